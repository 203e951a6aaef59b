//! Roll: moves elements along axes, with wrap-around.

use crate::compose::{Gradients, ternary, unary};
use crate::movement::Movable;
use graph::Output;
use kernel::{BoxedKernel, Gradient, GradientArgs, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext};
use tensor::{Result, Status};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "Roll",
        inputs: &["input: T", "shift: Tshift", "axis: Taxis"],
        outputs: &["output: T"],
        attrs: &["T: type", "Tshift: {int32, int64}", "Taxis: {int32, int64}"],
        flags: OpFlags::NONE,
    },
    shape: roll_shape,
    gradient: Gradient::Fn(roll_gradient),
    kernels: &[KernelDef::any(|_| BoxedKernel::new(Roll))],
}];

/// Returns `input` with its elements moved along axes; elements that leave at one end come back at the other.
#[track_caller]
pub fn roll(input: &Output, shift: &Output, axis: &Output) -> Output {
    input.graph().op("Roll").input(input).input(shift).input(axis).output()
}

fn roll_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.with_rank_at_least(0, 1)?;
    c.with_rank_at_most(1, 1)?;
    c.with_rank_at_most(2, 1)?;
    c.set_output(0, input);
    Ok(())
}

fn roll_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None, None]) };
    let back = ternary("Roll", &grad, &unary("Neg", &args.input(1))?, &args.input(2))?;
    Ok(vec![Some(back.into()), None, None])
}

struct Roll;

impl Kernel for Roll {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (input, shift, axis) = (context.input(0)?, context.input(1)?, context.input(2)?);
        let shape = input.shape().clone();
        if shape.rank() == 0 {
            return Err(Status::invalid_argument("input must be 1-D or higher"));
        }
        for (name, tensor) in [("shift", shift), ("axis", axis)] {
            if tensor.shape().rank() > 1 {
                return Err(Status::invalid_argument(format!(
                    "{name} must be a scalar or a 1-D vector. Found: {}",
                    tensor.shape()
                )));
            }
        }
        if shift.shape() != axis.shape() {
            return Err(Status::invalid_argument("shift and axis must have the same size"));
        }
        // An axis may be named several times.
        let mut shifts = vec![0usize; shape.rank()];
        for (shift, axis) in shift.to_indices()?.into_iter().zip(axis.to_indices()?) {
            let axis =
                shape.axis(axis).map_err(|_| Status::invalid_argument(format!("axis {axis} is out of range")))?;
            let size = shape.dim(axis).max(1);
            shifts[axis] = (shifts[axis] + shift.rem_euclid(size) as usize) % size as usize;
        }
        let output = with_movable!(input.dtype(), E => {
            let from = E::view(input)?;
            E::build(input.dtype(), shape.clone(), |to| {
                to.clone_from_slice(from);
                let mut inner = 1;
                for axis in (0..shape.rank()).rev() {
                    let length = inner * shape.size(axis);
                    if shifts[axis] > 0 && length > 0 {
                        to.chunks_exact_mut(length).for_each(|chunk| chunk.rotate_right(shifts[axis] * inner));
                    }
                    inner = length;
                }
            })
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_gradient, check_shape, run_op};
    use tensor::Tensor;

    #[test]
    fn values() {
        let x = Tensor::from_slice(&[2, 3], &[1, 2, 3, 4, 5, 6]).unwrap();
        let run = |shift: Tensor, axis: Tensor| run_op("Roll", attrs![], &[x.clone(), shift, axis]);
        let rolled = run(Tensor::vector(&[1, -1]), Tensor::vector(&[0i64, 1])).unwrap();
        assert_eq!(rolled[0].as_slice::<i32>().unwrap(), &[5, 6, 4, 2, 3, 1]);
        assert_eq!(run(Tensor::scalar(4), Tensor::scalar(-1)).unwrap()[0].as_slice::<i32>().unwrap()[..3], [3, 1, 2]);
        assert!(run(Tensor::scalar(1), Tensor::scalar(2)).is_err());
        assert!(run(Tensor::vector(&[1, 2]), Tensor::vector(&[0])).is_err());
    }

    #[test]
    fn gradients_and_shapes() {
        check_gradient(&[Tensor::vector(&[1f64, 2.0, 3.0])], |graph, x| {
            let one = graph.constant_tensor(&Tensor::scalar(1));
            let zero = graph.constant_tensor(&Tensor::scalar(0));
            super::roll(&x[0], &one, &zero)
        });
        check_shape("Roll", attrs![], "[2,?];[];[]", "[2,?]");
    }
}
