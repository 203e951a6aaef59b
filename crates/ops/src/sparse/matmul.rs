//! SparseTensorDenseMatMul.

use crate::arithmetic::Arithmetic;
use crate::compose::{binary, call, conj, int_scalar, int_vector, sum};
use graph::{Output, ShapeContext};
use kernel::{
    BoxedKernel, Grad, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags,
};
use num_complex::Complex;
use std::marker::PhantomData;
use tensor::{PartialShape, Result, Shape, Status, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "SparseTensorDenseMatMul",
        inputs: &["a_indices: Tindices", "a_values: T", "a_shape: int64", "b: T"],
        outputs: &["product: T"],
        attrs: &[
            "T: type",
            "Tindices: {int32, int64} = DT_INT64",
            "adjoint_a: bool = false",
            "adjoint_b: bool = false",
        ],
        flags: OpFlags::NONE,
    },
    shape: matmul_shape,
    gradient: Gradient::Fn(matmul_gradient),
    kernels: &[
        kernel::<f32>(),
        kernel::<f64>(),
        kernel::<f16>(),
        kernel::<bf16>(),
        kernel::<i32>(),
        kernel::<Complex<f32>>(),
        kernel::<Complex<f64>>(),
    ],
}];

const fn kernel<T: Number>() -> KernelDef {
    KernelDef { types: T::TYPES, create: MatMul::<T>::create }
}

/// Multiplies a sparse matrix by a dense one.
#[track_caller]
pub fn sparse_tensor_dense_matmul(indices: &Output, values: &Output, shape: &Output, b: &Output) -> Output {
    indices.graph().op("SparseTensorDenseMatMul").input(indices).input(values).input(shape).input(b).output()
}

/// A number that can be multiplied.
trait Number: Arithmetic {
    const TYPES: &'static [(&'static str, tensor::DType)] = &[("T", Self::DTYPE)];

    fn conjugate(self) -> Self {
        self
    }
}

impl Number for f32 {}
impl Number for f64 {}
impl Number for f16 {}
impl Number for bf16 {}
impl Number for i32 {}

impl Number for Complex<f32> {
    fn conjugate(self) -> Self {
        self.conj()
    }
}

impl Number for Complex<f64> {
    fn conjugate(self) -> Self {
        self.conj()
    }
}

fn matmul_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 4]) };
    let graph = grad.graph();
    let attrs = args.op.attrs();
    let (adjoint_a, adjoint_b) = (attrs.bool("adjoint_a")?, attrs.bool("adjoint_b")?);
    let (indices, values, shape, b) = (args.input(0), args.input(1), args.input(2), args.input(3));
    let transposed = |x: &Output, conjugate: bool| -> Result<Output> {
        let op = if conjugate { "ConjugateTranspose" } else { "Transpose" };
        call(op, &[x, &int_vector(graph, &[1, 0])?])
    };
    let op = graph.op("SparseTensorDenseMatMul").input(&indices).input(&values).input(&shape).input(&grad);
    let mut b_grad = op.attr("adjoint_a", !adjoint_a).try_build()?.try_output(0)?;
    if adjoint_b {
        b_grad = transposed(&b_grad, true)?;
    }
    let column = |index: i32| {
        let op = graph.op("StridedSlice").input(&indices).input(&int_vector(graph, &[0, index])?);
        let op = op.input(&int_vector(graph, &[0, index + 1])?).input(&int_vector(graph, &[1, 1])?);
        op.attr("begin_mask", 1i64).attr("end_mask", 1i64).attr("shrink_axis_mask", 2i64).try_build()?.try_output(0)
    };
    let (rows, columns) = if adjoint_a { (column(1)?, column(0)?) } else { (column(0)?, column(1)?) };
    let zero = int_scalar(graph, 0)?;
    let parts_a = call("GatherV2", &[&grad, &rows, &zero])?;
    let b = if adjoint_b { transposed(&b, false)? } else { b };
    let parts_b = call("GatherV2", &[&b, &columns, &zero])?;
    let values_grad = sum(&binary("Mul", &parts_a, &conj(&parts_b)?)?, &int_scalar(graph, 1)?, false)?;
    Ok(vec![None, Some(values_grad.into()), None, Some(b_grad.into())])
}

fn matmul_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (adjoint_a, adjoint_b) = (c.attrs.bool("adjoint_a")?, c.attrs.bool("adjoint_b")?);
    c.with_rank(0, 2)?;
    let b = c.with_rank(3, 2)?;
    let a = c.constant_as_shape(2)?;
    if a.rank().is_some_and(|rank| rank != 2) {
        return Err(Status::invalid_argument(format!("Shape must be rank 2 but is {a}")));
    }
    let rows = a.dim(usize::from(adjoint_a));
    c.set_output(0, PartialShape::new(&[rows, b.dim(usize::from(!adjoint_b))]));
    Ok(())
}

struct MatMul<T> {
    adjoint_a: bool,
    adjoint_b: bool,
    element: PhantomData<fn(T)>,
}

impl<T: Number> MatMul<T> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        let (adjoint_a, adjoint_b) = (attrs.bool("adjoint_a")?, attrs.bool("adjoint_b")?);
        BoxedKernel::new(MatMul::<T> { adjoint_a, adjoint_b, element: PhantomData })
    }
}

impl<T: Number> Kernel for MatMul<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (indices, values, shape, b) =
            (context.input(0)?, context.slice::<T>(1)?, context.slice::<i64>(2)?, context.input(3)?);
        let error = |text: String| Err(Status::invalid_argument(text));
        let (&[rows, columns], &[b_rows, b_columns]) = (shape, b.dims()) else {
            return error("Tensor 'a_shape' must have 2 elements and 'b' must be a matrix".to_owned());
        };
        if indices.dims() != [values.len() as i64, 2] {
            return error(format!(
                "Number of rows of a_indices does not match number of entries in a_values: {}",
                indices.shape()
            ));
        }
        if rows < 0 || columns < 0 {
            return error("a_shape must be non-negative".to_owned());
        }
        let (outer, inner) = if self.adjoint_a { (columns, rows) } else { (rows, columns) };
        let (b_inner, width) = if self.adjoint_b { (b_columns, b_rows) } else { (b_rows, b_columns) };
        if inner != b_inner {
            return error(format!(
                "Cannot multiply A and B because inner dimension does not match: {inner} vs. {b_inner}.  Did you forget a \
                 transpose?  Dimensions of A: [{rows}, {columns}).  Dimensions of B: {}",
                b.shape()
            ));
        }
        let indices = indices.to_indices()?;
        let dense = b.as_slice::<T>()?;
        let shape = Shape::new(&[outer, width])?;
        let mut output = Tensor::zeros(T::DTYPE, shape)?;
        let (width, b_stride) = (width as usize, b_columns as usize);
        let product = output.make_mut::<T>()?;
        for (position, (index, &value)) in indices.chunks_exact(2).zip(values).enumerate() {
            let (row, column) = (index[0], index[1]);
            if !(0..rows).contains(&row) || !(0..columns).contains(&column) {
                // TensorFlow's names are those of the product: `k` runs over the inner dimension.
                let names = if self.adjoint_a { ["k", "m"] } else { ["m", "k"] };
                let axis = usize::from((0..rows).contains(&row));
                return error(format!(
                    "{} ({}) from index[{position},{axis}] out of bounds (>={})",
                    names[axis],
                    [row, column][axis],
                    [rows, columns][axis]
                ));
            }
            let (to, from) = if self.adjoint_a { (column, row) } else { (row, column) };
            let (to, from) = (to as usize, from as usize);
            let value = if self.adjoint_a { value.conjugate() } else { value };
            let into = &mut product[to * width..(to + 1) * width];
            if self.adjoint_b {
                for (place, into) in into.iter_mut().enumerate() {
                    *into = into.plus(value.times(dense[place * b_stride + from].conjugate()));
                }
            } else {
                for (into, &b) in into.iter_mut().zip(&dense[from * b_stride..(from + 1) * b_stride]) {
                    *into = into.plus(value.times(b));
                }
            }
        }
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_gradient, infer, run_op};
    use tensor::Element;

    fn inputs<T: Element>(values: &[T], b: &[T]) -> Vec<Tensor> {
        let indices = Tensor::from_slice(&[2, 2], &[0i64, 0, 1, 2]).unwrap();
        vec![indices, Tensor::vector(values), Tensor::vector(&[2i64, 3]), Tensor::from_slice(&[3, 2], b).unwrap()]
    }

    #[test]
    fn products() {
        let plain = inputs(&[2f32, 3.], &[1., 2., 3., 4., 5., 6.]);
        let product = run_op("SparseTensorDenseMatMul", attrs![], &plain).unwrap().remove(0);
        assert_eq!(product.as_slice::<f32>().unwrap(), &[2., 4., 15., 18.]);
        let mut adjoint = plain.clone();
        adjoint[3] = Tensor::from_slice(&[2, 2], &[1f32, 3., 2., 4.]).unwrap();
        let both = attrs![("adjoint_a", true), ("adjoint_b", true)];
        let product = run_op("SparseTensorDenseMatMul", both, &adjoint).unwrap().remove(0);
        assert_eq!(product.as_slice::<f32>().unwrap(), &[2., 4., 0., 0., 9., 12.]);
        let status = run_op("SparseTensorDenseMatMul", attrs![("adjoint_a", true)], &plain).unwrap_err();
        assert!(status.message().contains("inner dimension does not match: 2 vs. 3"), "{status}");
        let mut outside = plain;
        outside[2] = Tensor::vector(&[2i64, 2]);
        outside[3] = Tensor::from_slice(&[2, 1], &[1f32, 2.]).unwrap();
        assert!(run_op("SparseTensorDenseMatMul", attrs![], &outside).is_err());
    }

    #[test]
    fn gradient_and_shape() {
        let plain = inputs(&[2f64, 3.], &[1., 2., 3., 4., 5., 6.]);
        check_gradient(&plain, |_, xs| sparse_tensor_dense_matmul(&xs[0], &xs[1], &xs[2], &xs[3]));
        let shape = Tensor::vector(&[2i64, 3]);
        let shapes = infer("SparseTensorDenseMatMul", attrs![], "[2,2];[2];[2];[3,5]", &[(2, shape)]).unwrap();
        assert_eq!(shapes[0].to_string(), "[2,5]");
    }
}
