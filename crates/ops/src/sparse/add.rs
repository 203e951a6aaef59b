//! Sums and extremes of sparse tensors: SparseAdd, SparseTensorDenseAdd, SparseSparseMaximum, SparseSparseMinimum, and
//! SparseDenseCwiseAdd, -Mul and -Div.

use super::coordinates::{Sparse, Words, in_bounds, indices_tensor, list};
use super::gradients;
use crate::arithmetic::Arithmetic;
use crate::compose::call;
use graph::{Output, ShapeContext};
use kernel::{
    BoxedKernel, Grad, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags,
};
use num_traits::ToPrimitive;
use std::cmp::Ordering;
use std::marker::PhantomData;
use tensor::{Complex32, Complex64, DType, Element, PartialShape, Result, Status, Tensor, bf16, f16};

const TWO: [&str; 6] =
    ["a_indices: int64", "a_values: T", "a_shape: int64", "b_indices: int64", "b_values: T", "b_shape: int64"];
const REAL: &str = "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}";
const WITH_DENSE: &[&str] = &["sp_indices: int64", "sp_values: T", "sp_shape: int64", "dense: T"];

macro_rules! typed {
    ($create:ident $(, $extra:expr)?) => {
        typed!(@list $create, ($($extra)?), [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64])
    };
    (@list $create:ident, $extra:tt, [$($ty:ty),*]) => {
        &[$(typed!(@one $create, $extra, $ty),)*]
    };
    (@one $create:ident, ($($extra:expr)?), $ty:ty) => {
        KernelDef {
            types: &[("T", <$ty as Element>::DTYPE)],
            create: |builder| $create::<$ty>::create(builder $(, $extra)?),
        }
    };
}

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "SparseAdd",
            inputs: &[TWO[0], TWO[1], TWO[2], TWO[3], TWO[4], TWO[5], "thresh: Treal"],
            outputs: &["sum_indices: int64", "sum_values: T", "sum_shape: int64"],
            attrs: &[
                numbertype!("T"),
                "Treal: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}",
            ],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            let shape = c.with_rank(2, 1)?;
            c.set_output(0, PartialShape::new(&[None, shape.dim(0)]));
            c.set_output(1, PartialShape::unknown_of_rank(1));
            c.set_output(2, shape);
            Ok(())
        },
        gradient: Gradient::Fn(add_gradient),
        kernels: typed!(SparseAdd),
    },
    Op {
        def: OpDef {
            name: "SparseAddGrad",
            inputs: &["backprop_val_grad: T", "a_indices: int64", "b_indices: int64", "sum_indices: int64"],
            outputs: &["a_val_grad: T", "b_val_grad: T"],
            attrs: &[numbertype!("T")],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            let (a, b) = (c.with_rank(1, 2)?, c.with_rank(2, 2)?);
            c.set_output(0, PartialShape::new(&[a.dim(0)]));
            c.set_output(1, PartialShape::new(&[b.dim(0)]));
            Ok(())
        },
        gradient: Gradient::NotDifferentiable,
        kernels: typed!(SparseAddGrad),
    },
    Op {
        def: OpDef {
            name: "SparseTensorDenseAdd",
            inputs: &["a_indices: Tindices", "a_values: T", "a_shape: Tindices", "b: T"],
            outputs: &["output: T"],
            attrs: &[numbertype!("T"), "Tindices: {int32, int64}"],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            let shape = c.input(3);
            c.set_output(0, shape);
            Ok(())
        },
        gradient: Gradient::Fn(dense_add_gradient),
        kernels: typed!(@list DenseAdd, (), [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, Complex32, Complex64]),
    },
    Op {
        def: OpDef {
            name: "SparseSparseMaximum",
            inputs: &TWO,
            outputs: &["output_indices: int64", "output_values: T"],
            attrs: &[REAL],
            flags: OpFlags::NONE,
        },
        shape: extreme_shape,
        gradient: Gradient::Unsupported,
        kernels: typed!(Extreme, Ordering::Greater),
    },
    Op {
        def: OpDef {
            name: "SparseSparseMinimum",
            inputs: &TWO,
            outputs: &["output_indices: int64", "output_values: T"],
            attrs: &[numbertype!("T")],
            flags: OpFlags::NONE,
        },
        shape: extreme_shape,
        gradient: Gradient::Unsupported,
        kernels: typed!(Extreme, Ordering::Less),
    },
    cwise("SparseDenseCwiseAdd", Gradient::Unsupported, typed!(Cwise, |x, y| x.plus(y))),
    cwise("SparseDenseCwiseMul", Gradient::Fn(gradients::dense_multiply), typed!(Cwise, |x, y| x.times(y))),
    cwise("SparseDenseCwiseDiv", Gradient::Fn(gradients::dense_divide), typed!(Cwise, |x, y| x.over(y))),
];

const fn cwise(name: &'static str, gradient: Gradient, kernels: &'static [KernelDef]) -> Op {
    Op {
        def: OpDef {
            name,
            inputs: WITH_DENSE,
            outputs: &["output: T"],
            attrs: &[numbertype!("T")],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            let indices = c.with_rank(0, 2)?;
            c.set_output(0, PartialShape::new(&[indices.dim(0)]));
            Ok(())
        },
        gradient,
        kernels,
    }
}

fn extreme_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, PartialShape::unknown_of_rank(2));
    c.set_output(1, PartialShape::unknown_of_rank(1));
    Ok(())
}

/// Adds two sparse tensors; drops sums below `thresh`. Returns the indices, the values and the shape.
#[track_caller]
pub fn sparse_add(a: [&Output; 3], b: [&Output; 3], thresh: &Output) -> [Output; 3] {
    let mut op = thresh.graph().op("SparseAdd");
    for input in a.into_iter().chain(b) {
        op = op.input(input);
    }
    let op = op.input(thresh).build();
    [op.output(0), op.output(1), op.output(2)]
}

fn add_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(1) else { return Ok(vec![None; 7]) };
    let op = grad.graph().op("SparseAddGrad").input(&grad).input(&args.input(0)).input(&args.input(3));
    let op = op.input(&args.output(0)).try_build()?;
    let (a, b) = (op.try_output(0)?, op.try_output(1)?);
    Ok(vec![None, Some(a.into()), None, None, Some(b.into()), None, None])
}

fn dense_add_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 4]) };
    let values = call("GatherNd", &[&grad, &args.input(0)])?;
    Ok(vec![None, Some(values.into()), None, Some(grad.into())])
}

/// A number, for these kernels.
trait Number: Arithmetic + PartialOrd + ToPrimitive {}

impl<T: Arithmetic + PartialOrd + ToPrimitive> Number for T {}

/// A step in merging two sorted sparse tensors.
enum Pair {
    A(usize),
    B(usize),
    Both(usize, usize),
}

/// Returns the matching values of two sparse tensors, whose indices must be sorted.
fn merged(a: &Sparse<'_>, b: &Sparse<'_>) -> Vec<Pair> {
    let (mut i, mut j) = (0, 0);
    let mut pairs = Vec::with_capacity(a.count() + b.count());
    while i < a.count() || j < b.count() {
        let order = match (i < a.count(), j < b.count()) {
            (true, true) => a.index(i).cmp(b.index(j)),
            (true, false) => Ordering::Less,
            _ => Ordering::Greater,
        };
        pairs.push(match order {
            Ordering::Less => Pair::A(i),
            Ordering::Greater => Pair::B(j),
            Ordering::Equal => Pair::Both(i, j),
        });
        i += usize::from(order != Ordering::Greater);
        j += usize::from(order != Ordering::Less);
    }
    pairs
}

/// Returns the two operands. The error for shapes without dimensions is `empty`.
fn two<'a>(context: &'a OpContext<'_>, empty: &str) -> Result<(Sparse<'a>, Sparse<'a>)> {
    let a = Sparse::in_words(Words::Validated, context.input(0)?, context.input(1)?, context.input(2)?)?;
    let b = Sparse::in_words(Words::Validated, context.input(3)?, context.input(4)?, context.input(5)?)?;
    if a.rank() == 0 || b.rank() == 0 {
        return Err(Status::invalid_argument(empty));
    }
    if a.rank() != b.rank() {
        return Err(Status::invalid_argument(format!(
            "Operands' shapes do not match: got {:?} and {:?}",
            a.shape, b.shape
        )));
    }
    if let Some(axis) = (0..a.rank()).find(|&axis| a.shape[axis] != b.shape[axis]) {
        return Err(Status::invalid_argument(format!(
            "Operands' shapes do not match: got {} and {} for dimension {axis}",
            a.shape[axis], b.shape[axis]
        )));
    }
    Ok((a, b))
}

struct SparseAdd<T>(PhantomData<fn(T)>);

impl<T: Number> SparseAdd<T> {
    fn create(_: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(SparseAdd::<T>(PhantomData))
    }
}

impl<T: Number> Kernel for SparseAdd<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        check_counts(context)?;
        let (a, b) = two(context, "Tesors must not be empty")?;
        let (x, y) = (a.values.as_slice::<T>()?, b.values.as_slice::<T>()?);
        let thresh = threshold(context.input(6)?)?;
        let (mut indices, mut values) = (Vec::new(), Vec::new());
        for pair in merged(&a, &b) {
            let (index, value, is_sum) = match pair {
                Pair::A(i) => (a.index(i), x[i], false),
                Pair::B(j) => (b.index(j), y[j], false),
                Pair::Both(i, j) => (a.index(i), x[i].plus(y[j]), true),
            };
            // Only sums are compared with the threshold; NaN is never below anything.
            let is_small = is_sum && value.to_f64().is_some_and(|value| value.abs() < thresh);
            if !is_small {
                indices.extend_from_slice(index);
                values.push(value);
            }
        }
        let (indices, shape) = (indices_tensor(values.len(), a.rank(), &indices)?, Tensor::vector(a.shape));
        context.set_output(0, indices);
        context.set_output(1, Tensor::vector(&values));
        context.set_output(2, shape);
        Ok(())
    }
}

/// Checks that each operand has as many values as indices.
fn check_counts(context: &OpContext<'_>) -> Result<()> {
    let [a_indices, a_values, b_indices, b_values] =
        [context.input(0)?, context.input(1)?, context.input(3)?, context.input(4)?];
    let rows = |tensor: &Tensor| tensor.dims().first().copied().unwrap_or(1);
    let (expected, got) = ((rows(a_indices), rows(b_indices)), (rows(a_values), rows(b_values)));
    if a_indices.shape().is_matrix() && b_indices.shape().is_matrix() && expected != got {
        return Err(Status::invalid_argument(format!(
            "Expected {} and {} non-empty input values, got {} and {}",
            expected.0, expected.1, got.0, got.1
        )));
    }
    Ok(())
}

/// Returns the one number of a tensor of any real type.
fn threshold(tensor: &Tensor) -> Result<f64> {
    if !tensor.shape().is_scalar() {
        return Err(Status::invalid_argument(format!(
            "The magnitude threshold must be a scalar: got shape {}",
            tensor.shape()
        )));
    }
    fn number<T: Element + ToPrimitive>(tensor: &Tensor) -> Result<f64> {
        Ok(tensor.to_scalar::<T>()?.to_f64().unwrap_or(f64::NAN))
    }
    match tensor.dtype() {
        DType::Float => number::<f32>(tensor),
        DType::Double => number::<f64>(tensor),
        DType::Half => number::<f16>(tensor),
        DType::BFloat16 => number::<bf16>(tensor),
        DType::Int8 => number::<i8>(tensor),
        DType::Int16 => number::<i16>(tensor),
        DType::Int32 => number::<i32>(tensor),
        DType::Int64 => number::<i64>(tensor),
        DType::UInt8 => number::<u8>(tensor),
        DType::UInt16 => number::<u16>(tensor),
        DType::UInt32 => number::<u32>(tensor),
        DType::UInt64 => number::<u64>(tensor),
        other => Err(Status::invalid_argument(format!("{other} can't be a threshold"))),
    }
}

struct SparseAddGrad<T>(PhantomData<fn(T)>);

impl<T: Number> SparseAddGrad<T> {
    fn create(_: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(SparseAddGrad::<T>(PhantomData))
    }
}

impl<T: Number> Kernel for SparseAddGrad<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let grad = context.slice::<T>(0)?;
        let sum = context.input(3)?;
        let (&[count, rank], true) = (sum.dims(), sum.shape().is_matrix()) else {
            return Err(Status::invalid_argument("sum_indices must be a matrix"));
        };
        let rank = rank as usize;
        if count != grad.len() as i64 || rank == 0 {
            return Err(Status::invalid_argument(format!(
                "# elements of backprop_val_grad and # rows of sum_indices should match (#nnz of sum): got {} and {count}",
                grad.len()
            )));
        }
        let sum = sum.as_slice::<i64>()?;
        let mut outputs = Vec::new();
        for input in [1, 2] {
            let indices = context.input(input)?;
            if !indices.shape().is_matrix() || indices.dims()[1] != rank as i64 {
                return Err(Status::invalid_argument("The densified operands should have the same ndims"));
            }
            // Both are sorted, so one pass finds each value.
            let mut values = Vec::with_capacity(indices.dims()[0] as usize);
            let mut next = sum.chunks_exact(rank).zip(grad).peekable();
            for index in indices.as_slice::<i64>()?.chunks_exact(rank) {
                while next.next_if(|(place, _)| *place < index).is_some() {}
                values.push(next.next_if(|(place, _)| *place == index).map_or(T::default(), |(_, grad)| *grad));
            }
            outputs.push(Tensor::vector(&values));
        }
        for (index, output) in outputs.into_iter().enumerate() {
            context.set_output(index, output);
        }
        Ok(())
    }
}

struct DenseAdd<T>(PhantomData<fn(T)>);

impl<T: Arithmetic> DenseAdd<T> {
    fn create(_: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(DenseAdd::<T>(PhantomData))
    }
}

impl<T: Arithmetic> Kernel for DenseAdd<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (indices, shape) = (context.input(0)?.to_indices()?, context.input(2)?.to_indices()?);
        let values = context.input(1)?.clone();
        let (values, dims) = (values.as_slice::<T>()?, context.input(0)?.dims().to_vec());
        let dense = context.input(3)?.dims();
        let error = |text: String| Err(Status::invalid_argument(text));
        if dims.first() != Some(&(values.len() as i64)) {
            return error(format!(
                "Dimensions {} and {} are not compatible: of indices, and of values",
                dims.first().copied().unwrap_or(0),
                values.len()
            ));
        }
        if shape.len() != dense.len() {
            return error(format!("Two operands have different ranks; received: {} and {}", shape.len(), dense.len()));
        }
        if let Some(axis) = (0..shape.len()).find(|&axis| shape[axis] != dense[axis]) {
            return error(format!(
                "Dimension {axis} does not equal (no broadcasting is supported): sparse side {} vs dense side {}",
                shape[axis], dense[axis]
            ));
        }
        if dims.get(1) != Some(&(shape.len() as i64)) {
            return error(format!("indices of {dims:?} don't fit a shape of {} dimensions", shape.len()));
        }
        let mut output = context.take_input(3)?;
        let into = output.make_mut::<T>()?;
        for (row, &value) in values.iter().enumerate() {
            let index = &indices[row * shape.len()..(row + 1) * shape.len()];
            if let Some(axis) = (0..shape.len()).find(|&axis| !(0..shape[axis]).contains(&index[axis])) {
                let sizes = shape.iter().map(i64::to_string).collect::<Vec<_>>().join(" ");
                return Err(Status::invalid_argument(format!(
                    "Sparse tensor has an invalid index on dimension {axis}: a_indices({row},{axis}) = {}, dense tensor \
                     shape: {sizes}",
                    index[axis]
                )));
            }
            let place = &mut into[flat(index, &shape)];
            *place = place.plus(value);
        }
        context.set_output(0, output);
        Ok(())
    }
}

/// Returns the position of an index within a shape, in row-major order.
fn flat(index: &[i64], shape: &[i64]) -> usize {
    index.iter().zip(shape).fold(0, |flat, (&index, &size)| flat * size + index) as usize
}

struct Extreme<T> {
    wins: Ordering,
    element: PhantomData<fn(T)>,
}

impl<T: Number> Extreme<T> {
    fn create(_: &KernelBuilder<'_>, wins: Ordering) -> Result<BoxedKernel> {
        BoxedKernel::new(Extreme::<T> { wins, element: PhantomData })
    }
}

impl<T: Number> Kernel for Extreme<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (a, b) = two(context, "Tensors must not be empty")?;
        a.validate_bounds()?;
        b.validate_bounds()?;
        let (x, y) = (a.values.as_slice::<T>()?, b.values.as_slice::<T>()?);
        let (mut indices, mut values) = (Vec::new(), Vec::new());
        for pair in merged(&a, &b) {
            // Missing values are zero.
            let (index, x, y) = match pair {
                Pair::A(i) => (a.index(i), x[i], T::default()),
                Pair::B(j) => (b.index(j), T::default(), y[j]),
                Pair::Both(i, j) => (a.index(i), x[i], y[j]),
            };
            indices.extend_from_slice(index);
            values.push(if y.partial_cmp(&x) == Some(self.wins) { y } else { x });
        }
        let indices = indices_tensor(values.len(), a.rank(), &indices)?;
        context.set_output(0, indices);
        context.set_output(1, Tensor::vector(&values));
        Ok(())
    }
}

struct Cwise<T> {
    apply: fn(T, T) -> T,
}

impl<T: Number> Cwise<T> {
    fn create(_: &KernelBuilder<'_>, apply: fn(T, T) -> T) -> Result<BoxedKernel> {
        BoxedKernel::new(Cwise { apply })
    }
}

impl<T: Number> Kernel for Cwise<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let sparse = Sparse::in_words(Words::Cwise, context.input(0)?, context.input(1)?, context.input(2)?)?;
        let dense = context.input(3)?;
        if sparse.rank() == 0 {
            return Err(Status::invalid_argument("The shape argument requires at least one element."));
        }
        sparse.check_size()?;
        let skipped = sparse.rank().checked_sub(dense.shape().rank());
        let fits = skipped.is_some_and(|skipped| {
            sparse.shape[skipped..].iter().zip(dense.dims()).all(|(&size, &dense)| dense == size || dense == 1)
        });
        let (true, Some(skipped)) = (fits, skipped) else {
            return Err(Status::invalid_argument(format!(
                "SparseDenseBinaryOpShared broadcasts dense to sparse only; got incompatible shapes: [{}] vs. {}",
                list(sparse.shape),
                dense.shape()
            )));
        };
        let (values, others) = (sparse.values.as_slice::<T>()?, dense.as_slice::<T>()?);
        let mut results = Vec::with_capacity(values.len());
        for (row, &value) in values.iter().enumerate() {
            let index = sparse.index(row);
            if !in_bounds(index, sparse.shape) {
                return Err(Status::invalid_argument(format!(
                    "Provided indices are out-of-bounds w.r.t. dense side with broadcasted shape: indices[{row}] = [{}]",
                    list(index)
                )));
            }
            let place = index[skipped..]
                .iter()
                .zip(dense.dims())
                .fold(0, |flat, (&index, &size)| flat * size + if size == 1 { 0 } else { index });
            results.push((self.apply)(value, others[place as usize]));
        }
        context.set_output(0, Tensor::vector(&results));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_gradient, run_op};

    fn matrix(rows: i64, values: &[i64]) -> Tensor {
        Tensor::from_slice(&[rows, 2], values).unwrap()
    }

    fn pair<T: Element>(a: &[T], b: &[T]) -> Vec<Tensor> {
        let shape = Tensor::vector(&[2i64, 2]);
        let (first, second) = (matrix(2, &[0, 0, 0, 1]), matrix(2, &[0, 1, 1, 0]));
        vec![first, Tensor::vector(a), shape.clone(), second, Tensor::vector(b), shape]
    }

    #[test]
    fn sums() {
        let add = |thresh: f32| {
            let mut inputs = pair(&[1f32, 2.], &[-2., 4.]);
            inputs.push(Tensor::scalar(thresh));
            run_op("SparseAdd", attrs![], &inputs).unwrap()
        };
        let outputs = add(0.5);
        assert_eq!(outputs[0].as_slice::<i64>().unwrap(), &[0, 0, 1, 0]);
        assert_eq!(outputs[1].as_slice::<f32>().unwrap(), &[1., 4.]);
        assert_eq!(add(0.)[1].as_slice::<f32>().unwrap(), &[1., 0., 4.]);
        let mut inputs = pair(&[1f64, 2.], &[3., 4.]);
        inputs.push(Tensor::scalar(0f32));
        check_gradient(&inputs, |_, xs| {
            sparse_add([&xs[0], &xs[1], &xs[2]], [&xs[3], &xs[4], &xs[5]], &xs[6])[1].clone()
        });
        let dense = Tensor::from_slice(&[2, 2], &[1f64, 2., 3., 4.]).unwrap();
        let inputs = [matrix(2, &[0, 1, 1, 0]), Tensor::vector(&[10f64, 20.]), Tensor::vector(&[2i64, 2]), dense];
        let sum = run_op("SparseTensorDenseAdd", attrs![], &inputs).unwrap();
        assert_eq!(sum[0].as_slice::<f64>().unwrap(), &[1., 12., 23., 4.]);
        check_gradient(&inputs, |graph, xs| {
            graph.op("SparseTensorDenseAdd").input(&xs[0]).input(&xs[1]).input(&xs[2]).input(&xs[3]).output()
        });
    }

    #[test]
    fn extremes_and_dense_operands() {
        let outputs = run_op("SparseSparseMaximum", attrs![], &pair(&[1f32, -2.], &[5., -7.])).unwrap();
        assert_eq!(outputs[1].as_slice::<f32>().unwrap(), &[1., 5., 0.]);
        let outputs = run_op("SparseSparseMinimum", attrs![], &pair(&[1f32, -2.], &[5., -7.])).unwrap();
        assert_eq!(outputs[1].as_slice::<f32>().unwrap(), &[0., -2., -7.]);
        let dense = Tensor::from_slice(&[1, 3], &[1f32, 2., 3.]).unwrap();
        let inputs =
            [matrix(3, &[0, 0, 0, 2, 1, 1]), Tensor::vector(&[1f32, 2., 3.]), Tensor::vector(&[2i64, 3]), dense];
        for (op, expected) in [
            ("SparseDenseCwiseMul", [1f32, 6., 6.]),
            ("SparseDenseCwiseAdd", [2., 5., 5.]),
            ("SparseDenseCwiseDiv", [1., 2. / 3., 1.5]),
        ] {
            assert_eq!(run_op(op, attrs![], &inputs).unwrap()[0].as_slice::<f32>().unwrap(), &expected, "{op}");
        }
    }
}
