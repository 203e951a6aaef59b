//! BroadcastTo.

use super::shape::index_vector;
use crate::compose::{call, shape_of};
use crate::movement::{Movable, copy_cost_ns};
use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Grad, Gradient, GradientArgs, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags};
use smallvec::SmallVec;
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "BroadcastTo",
        inputs: &["input: T", "shape: Tidx"],
        outputs: &["output: T"],
        attrs: &["T: type", "Tidx: {int32, int64} = DT_INT32"],
        flags: OpFlags::NONE,
    },
    shape: broadcast_to_shape,
    gradient: Gradient::Fn(broadcast_to_gradient),
    kernels: &[KernelDef::any(|_| BoxedKernel::new(BroadcastTo))],
}];

/// Returns `input` repeated to fill the shape that the vector `shape` holds.
#[track_caller]
pub fn broadcast_to(input: &Output, shape: &Output) -> Output {
    input.graph().op("BroadcastTo").input(input).input(shape).output()
}

/// As [`broadcast_to`], with a shape known now.
#[track_caller]
pub fn broadcast_to_shape_of(input: &Output, shape: &Shape) -> Output {
    let wide = shape.dims().iter().any(|&dim| dim > i64::from(i32::MAX));
    broadcast_to(input, &input.graph().constant(index_vector(shape.dims(), wide)))
}

fn broadcast_to_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let graph = grad.graph();
    let target = args.input(1);
    let shape = match target.dtype() {
        DType::Int32 => shape_of(&args.input(0))?,
        wide => graph.op("Shape").input(&args.input(0)).attr("out_type", wide).try_build()?.try_output(0)?,
    };
    let axes = graph.op("BroadcastGradientArgs").input(&target).input(&shape).try_build()?.try_output(1)?;
    let sum = graph.op("Sum").input(&grad).input(&axes).attr("keep_dims", true).try_build()?.try_output(0)?;
    Ok(vec![Some(call("Reshape", &[&sum, &shape])?.into()), None])
}

fn broadcast_to_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank_at_most(1, 1)?;
    let target = c.constant_as_shape(1)?;
    let input = c.input(0);
    if let (Some(from), Some(to)) = (input.dims(), target.dims()) {
        if from.len() > to.len() {
            return Err(incompatible(&input, &target));
        }
        let missing = to.len() - from.len();
        for (axis, dim) in from.iter().enumerate() {
            if let (Some(from), Some(to)) = (dim, to[missing + axis])
                && *from != 1
                && *from != to
            {
                return Err(incompatible(&input, &target));
            }
        }
    }
    c.set_output(0, target);
    Ok(())
}

fn incompatible(input: &PartialShape, target: &PartialShape) -> Status {
    Status::invalid_argument(format!("Incompatible shapes: {input} vs. {target}"))
}

struct BroadcastTo;

impl Kernel for BroadcastTo {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let dims = context.input(1)?;
        if dims.shape().rank() > 1 {
            return Err(Status::invalid_argument(format!("shape must be a vector, got shape {}", dims.shape())));
        }
        let shape = Shape::new(&dims.to_indices()?)?;
        if context.input(0)?.shape() == &shape {
            let input = context.take_input(0)?;
            context.set_output(0, input);
            return Ok(());
        }
        let output = broadcast(context.input(0)?, shape)?;
        context.set_output(0, output);
        Ok(())
    }
}

/// Returns a tensor repeated to fill a shape.
pub(crate) fn broadcast(input: &Tensor, shape: Shape) -> Result<Tensor> {
    let (from, to) = (input.dims(), shape.dims());
    let fits =
        from.len() <= to.len() && from.iter().rev().zip(to.iter().rev()).all(|(&from, &to)| from == to || from == 1);
    if from.len() > to.len() {
        return Err(Status::invalid_argument(format!(
            "Rank of input ({}) must be no greater than rank of output shape ({}).",
            from.len(),
            to.len()
        )));
    }
    if !fits {
        return Err(Status::invalid_argument(format!("Incompatible shapes: {} vs. {shape}", input.shape())));
    }
    // Neighbouring dimensions that are both kept or both repeated are one dimension.
    let missing = to.len() - from.len();
    let mut sizes: SmallVec<[(usize, bool); 8]> = SmallVec::new();
    for (axis, &size) in to.iter().enumerate() {
        let kept = axis >= missing && from[axis - missing] == size;
        let size = size as usize;
        if size == 1 {
            continue;
        }
        match sizes.last_mut() {
            Some((run, same)) if *same == kept => *run *= size,
            _ => sizes.push((size, kept)),
        }
    }
    with_movable!(input.dtype(), E => broadcast_elements::<E>(input, &sizes, shape))
}

fn broadcast_elements<E: Movable>(input: &Tensor, sizes: &[(usize, bool)], shape: Shape) -> Result<Tensor> {
    let elements = E::view(input)?;
    E::build(input.dtype(), shape, |out| {
        if out.is_empty() {
            return;
        }
        let (outer, inner) = match sizes {
            [] => return out.clone_from_slice(elements),
            [outer @ .., inner] => (outer, *inner),
        };
        let (run_len, run_kept) = inner;
        numeric::parallel::for_each_chunk_mut(out, run_len, copy_cost_ns::<E>(run_len), |first, runs| {
            for (offset, run) in runs.chunks_exact_mut(run_len).enumerate() {
                let mut position = first + offset;
                let mut index = 0;
                let mut stride = if run_kept { run_len } else { 1 };
                for &(size, kept) in outer.iter().rev() {
                    if kept {
                        index += position % size * stride;
                        stride *= size;
                    }
                    position /= size;
                }
                if run_kept {
                    run.clone_from_slice(&elements[index..index + run_len]);
                } else {
                    run.fill(elements[index].clone());
                }
            }
        });
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_gradient, infer, run_op};
    use tensor::{Shape, Tensor};

    fn broadcast(x: &Tensor, shape: &[i32]) -> tensor::Result<Vec<i32>> {
        Ok(run_op("BroadcastTo", attrs![], &[x.clone(), Tensor::vector(shape)])?[0].as_slice::<i32>()?.to_vec())
    }

    #[test]
    fn values() {
        let x = Tensor::from_slice(&[2, 1], &[1, 2]).unwrap();
        assert_eq!(broadcast(&x, &[2, 3]).unwrap(), [1, 1, 1, 2, 2, 2]);
        assert_eq!(broadcast(&x, &[2, 2, 2]).unwrap(), [1, 1, 2, 2, 1, 1, 2, 2]);
        assert_eq!(broadcast(&Tensor::vector(&[1, 2]), &[2, 2]).unwrap(), [1, 2, 1, 2]);
        let x = Tensor::from_slice(&[2, 1, 2], &[1, 2, 3, 4]).unwrap();
        assert_eq!(broadcast(&x, &[2, 2, 2]).unwrap(), [1, 2, 1, 2, 3, 4, 3, 4]);
        assert_eq!(broadcast(&Tensor::scalar(7), &[3]).unwrap(), [7, 7, 7]);
        assert_eq!(broadcast(&Tensor::vector(&[7]), &[0]).unwrap(), [0i32; 0]);
        assert!(broadcast(&Tensor::vector(&[7, 8]), &[3]).is_err());
        assert!(broadcast(&Tensor::vector(&[7, 8]), &[]).is_err());
        let text = run_op("BroadcastTo", attrs![], &[Tensor::string("a"), Tensor::vector(&[2i64])]).unwrap();
        assert_eq!(text[0].strings().unwrap(), ["a", "a"]);
    }

    #[test]
    fn shapes() {
        let shape = |input: &str| infer("BroadcastTo", attrs![], input, &[(1, Tensor::vector(&[2i32, 3]))]);
        assert_eq!(shape("[3];[2]").unwrap()[0].to_string(), "[2,3]");
        assert!(shape("[2];[2]").is_err());
    }

    #[test]
    fn gradients() {
        let x = Tensor::from_slice(&[2, 1], &[1f64, 2.0]).unwrap();
        let shape = Shape::new(&[2, 2, 3]).unwrap();
        check_gradient(&[x], |_, xs| super::broadcast_to_shape_of(&xs[0], &shape));
    }
}
