//! SparseToDense.

use super::coordinates::{in_bounds, list, out_of_bounds};
use crate::compose::{call, int_scalar, sum};
use crate::movement::{Movable, fill};
use crate::sizes::shape_of_sizes;
use graph::{Output, ShapeContext};
use kernel::{
    BoxedKernel, Grad, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags,
};
use tensor::{Result, Status};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "SparseToDense",
        inputs: &["sparse_indices: Tindices", "output_shape: Tindices", "sparse_values: T", "default_value: T"],
        outputs: &["dense: T"],
        attrs: &["validate_indices: bool = true", "T: type", "Tindices: {int32, int64}"],
        flags: OpFlags::NONE,
    },
    shape: to_dense_shape,
    gradient: Gradient::Fn(to_dense_gradient),
    kernels: &[KernelDef::any(SparseToDense::create)],
}];

/// Returns a dense tensor with some values at given positions and a default everywhere else.
#[track_caller]
pub fn sparse_to_dense(indices: &Output, output_shape: &Output, values: &Output, default_value: &Output) -> Output {
    let op = indices.graph().op("SparseToDense").input(indices).input(output_shape).input(values);
    op.input(default_value).output()
}

fn to_dense_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 4]) };
    let (indices, shape) = (args.input(0), args.input(1));
    let values = call("GatherNd", &[&grad, &indices])?;
    let total = |x: &Output| -> Result<Output> {
        let rank = call("Rank", &[x])?;
        let (zero, one) = (int_scalar(x.graph(), 0)?, int_scalar(x.graph(), 1)?);
        sum(x, &call("Range", &[&zero, &rank, &one])?, false)
    };
    let default = call("Sub", &[&total(&grad)?, &total(&values)?])?;
    let zeros = |x: &Output| Ok::<_, Status>(Some(Grad::from(call("ZerosLike", &[x])?)));
    Ok(vec![zeros(&indices)?, zeros(&shape)?, Some(values.into()), Some(default.into())])
}

fn to_dense_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.constant_as_shape(1)?;
    c.set_output(0, shape);
    Ok(())
}

struct SparseToDense {
    validates: bool,
}

impl SparseToDense {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(SparseToDense { validates: builder.attrs().bool("validate_indices")? })
    }
}

impl Kernel for SparseToDense {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (indices, shape, values, default) =
            (context.input(0)?, context.input(1)?, context.input(2)?, context.input(3)?);
        let error = |text: String| Err(Status::invalid_argument(text));
        if indices.shape().rank() > 2 {
            return error(format!(
                "sparse_indices should be a scalar, vector, or matrix, got shape {}",
                indices.shape()
            ));
        }
        if !shape.shape().is_vector() {
            return error(format!("output_shape must be rank 1, got shape {}", shape.shape()));
        }
        let (count, depth) = match indices.dims() {
            [] => (1, 1),
            [count] => (*count as usize, 1),
            [count, depth, ..] => (*count as usize, *depth as usize),
        };
        let output_shape = shape.to_indices()?;
        if output_shape.len() != depth {
            return error(format!(
                "output_shape has incorrect number of elements: {} should be: {depth}",
                output_shape.len()
            ));
        }
        if values.shape().rank() > 1 || (values.shape().rank() == 1 && values.num_elements() != count) {
            return error(format!("sparse_values has incorrect shape {}, should be [] or [{count}]", values.shape()));
        }
        if !default.shape().is_scalar() {
            return error("default_value should be a scalar.".to_owned());
        }
        let all = indices.to_indices()?;
        let dense = shape_of_sizes(&output_shape)?;
        let mut places = Vec::with_capacity(count);
        let mut before: Option<&[i64]> = None;
        for row in 0..count {
            let index = &all[row * depth..(row + 1) * depth];
            if !in_bounds(index, &output_shape) {
                return match self.validates {
                    true => Err(out_of_bounds(row, index, &output_shape)),
                    false => error(format!("Indices are not valid (out of bounds).  Shape: {dense}")),
                };
            }
            if let (true, Some(before)) = (self.validates, before) {
                match before.cmp(index) {
                    std::cmp::Ordering::Less => {}
                    std::cmp::Ordering::Equal => {
                        return error(format!("indices[{row}] = [{}] is repeated", list(index)));
                    }
                    std::cmp::Ordering::Greater => {
                        return error(format!(
                            "indices[{row}] = [{}] is out of order. Many sparse ops require sorted indices.\n    Use \
                             `tf.sparse.reorder` to create a correctly ordered copy.\n\n",
                            list(index)
                        ));
                    }
                }
            }
            before = Some(index);
            places.push(index.iter().zip(&output_shape).fold(0, |flat, (&index, &size)| flat * size + index) as usize);
        }
        let one_for_all = values.shape().is_scalar();
        let output = with_movable!(values.dtype(), E => {
            let (from, default) = (E::view(values)?, E::view(default)?);
            let Some(default) = default.first() else { return Err(Status::internal("no default")) };
            E::build(values.dtype(), dense, |to| {
                fill(to, default);
                for (row, place) in places.into_iter().enumerate() {
                    to[place].clone_from(&from[if one_for_all { 0 } else { row }]);
                }
            })?
        });
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_gradient, infer, run_op};
    use tensor::{Shape, Tensor};

    fn dense(indices: Tensor, shape: &[i32], values: Tensor) -> Result<Tensor> {
        Ok(run_op("SparseToDense", attrs![], &[indices, Tensor::vector(shape), values, Tensor::scalar(0i32)])?
            .remove(0))
    }

    #[test]
    fn values() {
        let indices = Tensor::from_slice(&[2, 2], &[0i32, 1, 1, 0]).unwrap();
        let output = dense(indices, &[2, 3], Tensor::vector(&[5i32, 6])).unwrap();
        assert_eq!(output.as_slice::<i32>().unwrap(), &[0, 5, 0, 6, 0, 0]);
        let output = dense(Tensor::vector(&[1i32, 3]), &[5], Tensor::scalar(9i32)).unwrap();
        assert_eq!(output.as_slice::<i32>().unwrap(), &[0, 9, 0, 9, 0]);
        let output = dense(Tensor::scalar(1i32), &[5], Tensor::scalar(9i32)).unwrap();
        assert_eq!(output.as_slice::<i32>().unwrap(), &[0, 9, 0, 0, 0]);
        let texts = Tensor::from_strings(Shape::vector(1), vec!["x".into()]).unwrap();
        let inputs = [Tensor::vector(&[1i64]), Tensor::vector(&[2i64]), texts, Tensor::string("-")];
        assert_eq!(run_op("SparseToDense", attrs![], &inputs).unwrap()[0].strings().unwrap(), &["-", "x"]);
    }

    #[test]
    fn mistakes_read_as_tensorflow_writes_them() {
        let message = |indices: &[i32], values: Tensor| {
            dense(Tensor::vector(indices), &[5], values).unwrap_err().message().lines().next().unwrap().to_owned()
        };
        let nine = || Tensor::scalar(9i32);
        assert_eq!(message(&[1, 1], nine()), "indices[1] = [1] is repeated");
        assert!(message(&[3, 1], nine()).starts_with("indices[1] = [1] is out of order. Many sparse ops require"));
        assert_eq!(message(&[1, 7], nine()), "indices[1] = [7] is out of bounds: need 0 <= index < [5]");
        assert_eq!(
            message(&[1, 2], Tensor::vector(&[9i32, 8, 7])),
            "sparse_values has incorrect shape [3], should be [] or [2]"
        );
    }

    #[test]
    fn gradient_and_shape() {
        let inputs = [
            Tensor::from_slice(&[2, 2], &[0i32, 1, 1, 0]).unwrap(),
            Tensor::vector(&[2i32, 3]),
            Tensor::vector(&[1f64, 2.]),
            Tensor::scalar(3f64),
        ];
        check_gradient(&inputs, |_, xs| sparse_to_dense(&xs[0], &xs[1], &xs[2], &xs[3]));
        let shapes = infer("SparseToDense", attrs![], "[2,2];[2];[2];[]", &[(1, Tensor::vector(&[2i32, 3]))]).unwrap();
        assert_eq!(shapes[0].to_string(), "[2,3]");
    }
}
