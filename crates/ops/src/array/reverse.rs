//! Reversing axes: Reverse, ReverseV2, ReverseSequence.

use crate::movement::{Movable, Rearrangement, copy_cost_ns, rearranged};
use graph::{Output, ShapeContext};
use kernel::{
    BoxedKernel, Grad, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags,
};
use smallvec::SmallVec;
use tensor::{DType, PartialShape, Result, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "ReverseV2",
            inputs: &["tensor: T", "axis: Tidx"],
            outputs: &["output: T"],
            attrs: &[
                "Tidx: {int32, int64} = DT_INT32",
                "T: {uint8, int8, uint16, int16, int32, uint32, int64, uint64, bool, bfloat16, half, float, double, complex64, complex128, string}",
            ],
            flags: OpFlags::NONE,
        },
        shape: reverse_v2_shape,
        gradient: Gradient::Fn(reverse_gradient),
        kernels: &[KernelDef::any(|_| BoxedKernel::new(Reverse))],
    },
    Op {
        def: OpDef {
            name: "Reverse",
            inputs: &["tensor: T", "dims: bool"],
            outputs: &["output: T"],
            attrs: &[
                "T: {uint8, int8, uint16, int16, uint32, int32, uint64, int64, bool, bfloat16, half, float, double, complex64, complex128, string}",
            ],
            flags: OpFlags::NONE,
        },
        shape: reverse_shape,
        gradient: Gradient::Fn(reverse_gradient),
        kernels: &[KernelDef::any(|_| BoxedKernel::new(Reverse))],
    },
    Op {
        def: OpDef {
            name: "ReverseSequence",
            inputs: &["input: T", "seq_lengths: Tlen"],
            outputs: &["output: T"],
            attrs: &["seq_dim: int", "batch_dim: int = 0", "T: type", "Tlen: {int32, int64} = DT_INT64"],
            flags: OpFlags::NONE,
        },
        shape: reverse_sequence_shape,
        gradient: Gradient::Fn(reverse_sequence_gradient),
        kernels: &[KernelDef::any(ReverseSequence::create)],
    },
];

/// Reverses `tensor` along the given axes.
#[track_caller]
pub fn reverse(tensor: &Output, axes: &[i32]) -> Output {
    let axes = tensor.graph().constant_tensor(&Tensor::vector(axes));
    tensor.graph().op("ReverseV2").input(tensor).input(&axes).output()
}

/// Reverses the first `seq_lengths[i]` elements along `seq_axis` of each part `i` along `batch_axis`.
#[track_caller]
pub fn reverse_sequence(input: &Output, seq_lengths: &Output, seq_axis: i64, batch_axis: i64) -> Output {
    let builder = input.graph().op("ReverseSequence").input(input).input(seq_lengths);
    builder.attr("seq_dim", seq_axis).attr("batch_dim", batch_axis).output()
}

fn reverse_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let back = grad.graph().op(&args.op.op_type()).input(&grad).input(&args.input(1)).try_build()?;
    Ok(vec![Some(back.try_output(0)?.into()), None])
}

fn reverse_sequence_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let attrs = args.op.attrs();
    let back = grad.graph().op("ReverseSequence").input(&grad).input(&args.input(1));
    let back = back.attr("seq_dim", attrs.int("seq_dim")?).attr("batch_dim", attrs.int("batch_dim")?).try_build()?;
    Ok(vec![Some(back.try_output(0)?.into()), None])
}

fn reverse_v2_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.input(0);
    c.with_rank(1, 1)?;
    if let (Some(rank), Some(axes)) = (input.rank(), c.constant(1)) {
        reversed_axes(&axes.to_indices()?, rank)?;
    }
    c.set_output(0, input);
    Ok(())
}

fn reverse_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.input(0);
    if let (Some(rank), Some(flags)) = (input.rank(), c.with_rank(1, 1)?.dim(0))
        && rank as i64 != flags
    {
        return Err(Status::invalid_argument(format!("Shape must be rank {flags} but is rank {rank}")));
    }
    c.set_output(0, input);
    Ok(())
}

fn reverse_sequence_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.input(0);
    let lengths = c.with_rank(1, 1)?;
    let (seq_dim, batch_dim) = (c.attrs.int("seq_dim")?, c.attrs.int("batch_dim")?);
    let Some(rank) = input.rank() else { return Ok(()) };
    for (name, axis) in [("batch_dim", batch_dim), ("seq_dim", seq_dim)] {
        if axis < 0 || axis >= rank as i64 {
            return Err(Status::invalid_argument(format!("{name} must be < input rank: {axis} vs. {rank}")));
        }
    }
    let batch = PartialShape::new(&[input.dim(batch_dim as usize)]).merge(&lengths)?;
    c.set_output(0, input.with_dim(batch_dim as usize, batch.dim(0)));
    Ok(())
}

/// Returns the axes to reverse.
fn reversed_axes(axes: &[i64], rank: usize) -> Result<SmallVec<[bool; 8]>> {
    let mut reversed: SmallVec<[bool; 8]> = SmallVec::from_elem(false, rank);
    for &axis in axes {
        let index = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
        let Some(flag) = usize::try_from(index).ok().and_then(|index| reversed.get_mut(index)) else {
            return Err(Status::invalid_argument(format!("'axis' {axis} is out of valid range [0, {rank})")));
        };
        if std::mem::replace(flag, true) {
            return Err(Status::invalid_argument(format!("axis {index} specified more than once.")));
        }
    }
    Ok(reversed)
}

struct Reverse;

impl Kernel for Reverse {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (input, axes) = (context.input(0)?, context.input(1)?);
        if !axes.shape().is_vector() {
            return Err(Status::invalid_argument(format!("'dims' must be 1-dimension, not {}", axes.shape().rank())));
        }
        let rank = input.shape().rank();
        let reversed = if axes.dtype() == DType::Bool {
            if axes.num_elements() != rank {
                return Err(Status::invalid_argument(format!(
                    "'dims' must have the same number of values as 'input' has dimensions. 'input' has {rank}'dims' has \
                     {} values",
                    axes.num_elements()
                )));
            }
            SmallVec::from_slice(axes.as_slice::<bool>()?)
        } else {
            reversed_axes(&axes.to_indices()?, rank)?
        };
        let moves = |(axis, &reversed): (usize, &bool)| reversed && input.shape().dim(axis) > 1;
        let output = if reversed.iter().enumerate().any(moves) {
            rearranged(input, input.shape().clone(), &Flip { dims: input.shape().to_usize(), reversed })?
        } else {
            context.take_input(0)?
        };
        context.set_output(0, output);
        Ok(())
    }
}

struct Flip {
    dims: SmallVec<[usize; 6]>,
    reversed: SmallVec<[bool; 8]>,
}

impl Rearrangement for Flip {
    fn apply<T: Copy + Send + Sync>(&self, from: &[T], to: &mut [T]) {
        numeric::slice_copy::reverse(from, &self.dims, &self.reversed, to);
    }
}

struct ReverseSequence {
    seq_dim: i64,
    batch_dim: i64,
}

impl ReverseSequence {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        BoxedKernel::new(ReverseSequence { seq_dim: attrs.int("seq_dim")?, batch_dim: attrs.int("batch_dim")? })
    }
}

impl Kernel for ReverseSequence {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (input, lengths) = (context.input(0)?, context.input(1)?);
        let rank = input.shape().rank() as i64;
        let axis = |name: &str, axis: i64| {
            usize::try_from(axis)
                .ok()
                .filter(|_| axis < rank)
                .ok_or_else(|| Status::invalid_argument(format!("{name} must be < input rank ( {axis} vs. {rank})")))
        };
        let (seq_axis, batch_axis) = (axis("seq_dim", self.seq_dim)?, axis("batch_dim", self.batch_dim)?);
        if seq_axis == batch_axis {
            return Err(Status::invalid_argument(format!("batch_dim == seq_dim == {seq_axis}")));
        }
        let (batches, steps) = (input.shape().size(batch_axis), input.shape().size(seq_axis));
        if lengths.dims() != [batches as i64] {
            return Err(Status::invalid_argument(format!(
                "Length of seq_lengths != input.dims({batch_axis}), ({} vs. {batches})",
                lengths.num_elements()
            )));
        }
        let lengths = lengths.to_indices()?;
        for (batch, &length) in lengths.iter().enumerate() {
            if length < 0 || length > steps as i64 {
                let bound = match length {
                    length if length < 0 => "< 0".to_owned(),
                    _ => format!("> input.dims({seq_axis})"),
                };
                return Err(Status::invalid_argument(format!("seq_lens({batch}) {bound}: {length}")));
            }
        }
        let inner: usize = input.dims()[seq_axis.max(batch_axis) + 1..].iter().product::<i64>() as usize;
        let output = with_movable!(input.dtype(), E => {
            let walk = Walk { seq_axis, batch_axis, lengths: &lengths, inner };
            walk.reversed::<E>(input)
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

/// Iterates over runs of `inner` elements, each of which belongs to one batch and one step.
struct Walk<'a> {
    seq_axis: usize,
    batch_axis: usize,
    lengths: &'a [i64],
    inner: usize,
}

impl Walk<'_> {
    fn reversed<E: Movable>(&self, input: &Tensor) -> Result<Tensor> {
        let dims = input.shape().to_usize();
        let from = E::view(input)?;
        let last = self.seq_axis.max(self.batch_axis);
        // The number of runs between two indices of an axis.
        let runs_per = |axis: usize| dims[axis + 1..=last].iter().product::<usize>();
        let (seq_runs, batch_runs) = (runs_per(self.seq_axis), runs_per(self.batch_axis));
        let (steps, batches) = (dims[self.seq_axis], dims[self.batch_axis]);
        let inner = self.inner;
        E::build(input.dtype(), input.shape().clone(), |to| {
            if to.is_empty() {
                return;
            }
            numeric::parallel::for_each_chunk_mut(to, inner, copy_cost_ns::<E>(inner), |first, runs| {
                for (offset, to) in runs.chunks_exact_mut(inner).enumerate() {
                    let run = first + offset;
                    let (step, batch) = (run / seq_runs % steps, run / batch_runs % batches);
                    let length = self.lengths[batch] as usize;
                    let source =
                        if step < length { run - step * seq_runs + (length - 1 - step) * seq_runs } else { run };
                    super::concat::copy_run(&from[source * inner..(source + 1) * inner], to);
                }
            });
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_gradient, check_shape, infer, run_op};
    use tensor::Tensor;

    #[test]
    fn reverses() {
        let x = Tensor::from_slice(&[2, 2], &[1i32, 2, 3, 4]).unwrap();
        let y = run_op("ReverseV2", attrs![], &[x.clone(), Tensor::vector(&[-1i32])]).unwrap();
        assert_eq!(y[0].as_slice::<i32>().unwrap(), &[2, 1, 4, 3]);
        let y = run_op("Reverse", attrs![], &[x.clone(), Tensor::vector(&[true, false])]).unwrap();
        assert_eq!(y[0].as_slice::<i32>().unwrap(), &[3, 4, 1, 2]);
        assert!(run_op("ReverseV2", attrs![], &[x.clone(), Tensor::vector(&[0i32, -2])]).is_err());
        assert!(run_op("ReverseV2", attrs![], &[x.clone(), Tensor::vector(&[2i32])]).is_err());
        assert!(run_op("Reverse", attrs![], &[x, Tensor::vector(&[true])]).is_err());
    }

    #[test]
    fn reverses_sequences() {
        let x = Tensor::from_slice(&[2, 3, 2], &(0..12).collect::<Vec<i32>>()).unwrap();
        let run = |seq: i64, batch: i64, lengths: &[i64]| {
            let attrs = attrs![("seq_dim", seq), ("batch_dim", batch)];
            run_op("ReverseSequence", attrs, &[x.clone(), Tensor::vector(lengths)])
                .map(|y| y[0].as_slice::<i32>().unwrap().to_vec())
        };
        // As TensorFlow answers.
        assert_eq!(run(1, 0, &[2, 3]).unwrap(), [2, 3, 0, 1, 4, 5, 10, 11, 8, 9, 6, 7]);
        assert_eq!(run(0, 2, &[2, 1]).unwrap(), [6, 1, 8, 3, 10, 5, 0, 7, 2, 9, 4, 11]);
        assert_eq!(run(2, 0, &[0, 2]).unwrap(), [0, 1, 2, 3, 4, 5, 7, 6, 9, 8, 11, 10]);
        assert!(run(1, 0, &[4, 0]).is_err());
        assert!(run(1, 0, &[-1, 0]).is_err());
        assert!(run(1, 1, &[1, 1, 1]).is_err());
        assert!(run(3, 0, &[1, 1]).is_err());
        assert!(run(1, 0, &[1]).is_err());
    }

    #[test]
    fn shapes() {
        check_shape("ReverseV2", attrs![], "[2,?];[1]", "[2,?]");
        assert!(infer("ReverseV2", attrs![], "[2,?];[1]", &[(1, Tensor::vector(&[2i32]))]).is_err());
        check_shape("ReverseSequence", attrs![("seq_dim", 1i64), ("batch_dim", 0i64)], "[?,3];[2]", "[2,3]");
    }

    #[test]
    fn gradients() {
        let x = Tensor::from_slice(&[2, 3], &[1f64, 2., 3., 4., 5., 6.]).unwrap();
        check_gradient(&[x.clone()], |_, xs| super::reverse(&xs[0], &[1]));
        check_gradient(&[x, Tensor::vector(&[3i32, 2])], |_, xs| super::reverse_sequence(&xs[0], &xs[1], 1, 0));
    }
}
