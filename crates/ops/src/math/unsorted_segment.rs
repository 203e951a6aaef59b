//! Sums of rows by segment, in any order: UnsortedSegmentSum, which is what the gradient of a gather is made of.

use crate::arithmetic::Arithmetic;
use graph::{Output, ShapeContext};
use kernel::{
    BoxedKernel, Grad, Gradient, GradientArgs, Kernel, KernelBuilder, Op, OpContext, OpDef, OpFlags, kernels,
};
use std::marker::PhantomData;
use tensor::{Complex32, Complex64, DType, PartialShape, Result, Shape, Status, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "UnsortedSegmentSum",
        inputs: &["data: T", "segment_ids: Tindices", "num_segments: Tnumsegments"],
        outputs: &["output: T"],
        attrs: &[
            "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
            "Tindices: {int16, int32, int64}",
            "Tnumsegments: {int32, int64} = DT_INT32",
        ],
        flags: OpFlags::NONE,
    },
    shape: unsorted_segment_shape,
    gradient: Gradient::Fn(unsorted_segment_sum_gradient),
    kernels: kernels!("T": [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, Complex32, Complex64] => SegmentSum),
}];

/// Returns the sums of the rows of `data` that have one segment id each; rows with a negative id are left out.
#[track_caller]
pub fn unsorted_segment_sum(data: &Output, segment_ids: &Output, num_segments: &Output) -> Output {
    data.graph().op("UnsortedSegmentSum").input(data).input(segment_ids).input(num_segments).output()
}

fn unsorted_segment_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (data, ids) = (c.input(0), c.input(1));
    c.with_rank_at_most(2, 0)?;
    let Some(rank) = ids.rank() else { return Ok(()) };
    if data.rank().is_some() {
        data.slice(0, rank).merge(&ids)?;
        let rows = c.constant(2).and_then(|count| count.to_index().ok()).filter(|&count| count >= 0);
        let shape = PartialShape::new(&[rows]).concat(&data.slice(rank, usize::MAX));
        c.set_output(0, shape);
    }
    Ok(())
}

/// A row's gradient is its segment's, and nothing for rows that were left out.
fn unsorted_segment_sum_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None, None]) };
    let graph = grad.graph();
    let ids = args.input(1);
    let zeros = graph.op("ZerosLike").input(&ids).try_build()?.output(0);
    let clipped = graph.op("Maximum").input(&ids).input(&zeros).try_build()?.output(0);
    let axis = graph.constant_tensor(&Tensor::scalar(0i32));
    let rows = graph.op("GatherV2").input(&grad).input(&clipped).input(&axis).try_build()?.output(0);
    let is_in = graph.op("GreaterEqual").input(&ids).input(&zeros).try_build()?.output(0);
    let missing = match (args.input(0).shape().rank(), ids.shape().rank()) {
        (Some(whole), Some(part)) if whole >= part => whole - part,
        _ => return Err(Status::invalid_argument("the ranks of data and segment_ids must be known")),
    };
    let mut mask = is_in;
    for _ in 0..missing {
        let last = graph.constant_tensor(&Tensor::scalar(-1i32));
        mask = graph.op("ExpandDims").input(&mask).input(&last).try_build()?.output(0);
    }
    let none = graph.op("ZerosLike").input(&rows).try_build()?.output(0);
    let chosen = graph.op("SelectV2").input(&mask).input(&rows).input(&none).try_build()?;
    Ok(vec![Some(chosen.output(0).into()), None, None])
}

struct SegmentSum<T>(PhantomData<fn(T)>);

impl<T: Arithmetic> SegmentSum<T> {
    fn create(_: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(SegmentSum::<T>(PhantomData))
    }
}

impl<T: Arithmetic> Kernel for SegmentSum<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (data, ids, count) = (context.input(0)?, context.input(1)?, context.input(2)?);
        if count.num_elements() != 1 {
            return Err(Status::invalid_argument(format!(
                "num_segments should be a scalar, not shape {}",
                count.shape()
            )));
        }
        let segments = count.to_index()?;
        if segments < 0 {
            return Err(Status::invalid_argument(format!("Input num_segments == {segments} must not be negative.")));
        }
        let rank = ids.shape().rank();
        if data.shape().rank() < rank || data.shape()[..rank] != ids.shape()[..] {
            return Err(Status::invalid_argument(format!(
                "data.shape = {} does not start with segment_ids.shape = {}",
                data.shape(),
                ids.shape()
            )));
        }
        let inner = data.shape().slice(rank, data.shape().rank());
        let shape = Shape::new(&[segments])?.concat(&inner)?;
        let row_len = inner.num_elements();
        let numbers = match ids.dtype() {
            DType::Int16 => ids.as_slice::<i16>()?.iter().map(|&id| i64::from(id)).collect(),
            _ => ids.to_indices()?,
        };
        if let Some(id) = numbers.iter().find(|&&id| id >= segments) {
            return Err(Status::invalid_argument(format!("segment_ids = {id} is out of range [0, {segments})")));
        }
        let mut output = Tensor::zeros(T::DTYPE, shape)?;
        let rows = data.as_slice::<T>()?;
        let sums = output.make_mut::<T>()?;
        for (position, &id) in numbers.iter().enumerate() {
            // A negative id drops the row.
            let Ok(id) = usize::try_from(id) else { continue };
            let from = &rows[position * row_len..(position + 1) * row_len];
            for (sum, &value) in sums[id * row_len..(id + 1) * row_len].iter_mut().zip(from) {
                *sum = sum.plus(value);
            }
        }
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_gradient, run_op};
    use tensor::{Code, Tensor};

    #[test]
    fn values() {
        let data = Tensor::from_slice(&[3, 2], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        let ids = Tensor::vector(&[2i32, -1, 2]);
        let sums = run_op("UnsortedSegmentSum", attrs![], &[data.clone(), ids, Tensor::scalar(3i32)]).unwrap();
        assert_eq!(sums[0].as_slice::<f32>().unwrap(), &[0., 0., 0., 0., 6., 8.]);
        let bad = [data, Tensor::vector(&[0i32, 3, 1]), Tensor::scalar(3i32)];
        assert_eq!(run_op("UnsortedSegmentSum", attrs![], &bad).unwrap_err().code(), Code::InvalidArgument);
    }

    #[test]
    fn gradients() {
        let data = Tensor::from_slice(&[3, 2], &[1f64, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        check_gradient(&[data], |graph, xs| {
            let ids = graph.constant_tensor(&Tensor::vector(&[1i32, -1, 1]));
            super::unsorted_segment_sum(&xs[0], &ids, &graph.constant_tensor(&Tensor::scalar(2i32)))
        });
    }
}
