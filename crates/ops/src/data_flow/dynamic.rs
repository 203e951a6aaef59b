//! Partitioning rows by number and reassembling them: DynamicPartition, DynamicStitch, ParallelDynamicStitch.

use crate::compose::{Gradients, binary, grad_or_zeros, int_scalar, int_vector, reshape, shape_of, unary};
use crate::movement::Movable;
use crate::rows::{gather_slices, position_text};
use graph::Output;
use kernel::{
    BoxedKernel, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext,
};
use tensor::{PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "DynamicPartition",
            inputs: &["data: T", "partitions: int32"],
            outputs: &["outputs: num_partitions * T"],
            attrs: &["num_partitions: int >= 1", "T: type"],
            flags: OpFlags::NONE,
        },
        shape: partition_shape,
        gradient: Gradient::Fn(partition_gradient),
        kernels: &[KernelDef::any(|builder| {
            BoxedKernel::new(DynamicPartition { num_partitions: builder.output_dtypes().len() })
        })],
    },
    Op {
        def: OpDef {
            name: "DynamicStitch",
            inputs: &["indices: N * int32", "data: N * T"],
            outputs: &["merged: T"],
            attrs: &["N: int >= 1", "T: type"],
            flags: OpFlags::NONE,
        },
        shape: stitch_shape,
        gradient: Gradient::Fn(stitch_gradient),
        kernels: &[KernelDef::any(DynamicStitch::create)],
    },
    Op {
        def: OpDef {
            name: "ParallelDynamicStitch",
            inputs: &["indices: N * int32", "data: N * T"],
            outputs: &["merged: T"],
            attrs: &["N: int >= 1", "T: type"],
            flags: OpFlags::NONE,
        },
        shape: stitch_shape,
        gradient: Gradient::Fn(stitch_gradient),
        kernels: &[KernelDef::any(DynamicStitch::create)],
    },
];

/// Partitions the slices of `data` into `num_partitions` tensors by the numbers in `partitions`.
#[track_caller]
pub fn dynamic_partition(data: &Output, partitions: &Output, num_partitions: i64) -> Vec<Output> {
    let op = data.graph().op("DynamicPartition").input(data).input(partitions);
    op.attr("num_partitions", num_partitions).outputs()
}

/// Assembles slices by their indices; if an index occurs twice, the later slice wins.
#[track_caller]
pub fn dynamic_stitch(indices: &[Output], data: &[Output]) -> Output {
    stitch("DynamicStitch", indices, data)
}

/// As [`dynamic_stitch`]; which slice wins is unspecified.
#[track_caller]
pub fn parallel_dynamic_stitch(indices: &[Output], data: &[Output]) -> Output {
    stitch("ParallelDynamicStitch", indices, data)
}

#[track_caller]
fn stitch(op: &str, indices: &[Output], data: &[Output]) -> Output {
    let count = indices.len() as i64;
    indices[0].graph().op(op).inputs(indices).inputs(data).attr("N", count).output()
}

fn partition_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (data, partitions) = (c.input(0), c.input(1));
    let mut output = PartialShape::unknown();
    if let (Some(data_rank), Some(rank)) = (data.rank(), partitions.rank()) {
        data.slice(0, rank).merge(&partitions)?;
        output = PartialShape::new(&[None]).concat(&data.slice(rank, data_rank));
    }
    for index in 0..c.num_outputs() {
        c.set_output(index, output.clone());
    }
    Ok(())
}

fn stitch_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let count = c.num_inputs() / 2;
    let mut rest = PartialShape::unknown();
    let mut rows = Some(0i64);
    for index in 0..count {
        let largest = c.constant(index).map(|indices| indices.to_indices());
        rows = match (rows, largest) {
            (Some(rows), Some(indices)) => Some(indices?.into_iter().max().map_or(rows, |most| rows.max(most + 1))),
            _ => None,
        };
        let (indices, data) = (c.input(index), c.input(count + index));
        if let (Some(rank), Some(data_rank)) = (indices.rank(), data.rank()) {
            data.slice(0, rank).merge(&indices)?;
            rest = rest.merge(&data.slice(rank, data_rank))?;
        }
    }
    c.set_output(0, PartialShape::new(&[rows]).concat(&rest));
    Ok(())
}

fn partition_gradient(args: &GradientArgs<'_>) -> Gradients {
    let (data, partitions) = (args.input(0), args.input(1));
    let graph = data.graph();
    let count = args.op.num_outputs();
    let prefix = shape_of(&partitions)?;
    let axis = int_vector(graph, &[0])?;
    let total = binary("Prod", &prefix, &axis)?;
    let (start, step) = (int_scalar(graph, 0)?, int_scalar(graph, 1)?);
    let positions = graph.op("Range").input(&start).input(&total).input(&step).try_build()?.output(0);
    let positions = reshape(&positions, &prefix)?;
    let split = graph.op("DynamicPartition").input(&positions).input(&partitions);
    let split = split.attr("num_partitions", count as i64).try_build()?;
    let indices: Vec<Output> = (0..count).map(|port| split.output(port as u32)).collect();
    let grads = (0..count).map(|index| grad_or_zeros(args, index)).collect::<Result<Vec<_>>>()?;
    let merged = graph.op("ParallelDynamicStitch").inputs(&indices).inputs(&grads).attr("N", count as i64);
    let merged = merged.try_build()?.output(0);
    Ok(vec![Some(reshape(&merged, &unary("Shape", &data)?)?.into()), None])
}

fn stitch_gradient(args: &GradientArgs<'_>) -> Gradients {
    let count = args.op.num_inputs() / 2;
    let mut grads = vec![None; 2 * count];
    let Some(grad) = args.grad(0) else { return Ok(grads) };
    let axis = int_scalar(grad.graph(), 0)?;
    for index in 0..count {
        let gather = grad.graph().op("GatherV2").input(&grad).input(&args.input(index)).input(&axis);
        grads[count + index] = Some(gather.try_build()?.output(0).into());
    }
    Ok(grads)
}

struct DynamicPartition {
    num_partitions: usize,
}

impl Kernel for DynamicPartition {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (data, partitions) = (context.take_input(0)?, context.input(1)?);
        let rank = partitions.shape().rank();
        if data.shape().rank() < rank || data.dims()[..rank] != *partitions.dims() {
            return Err(Status::invalid_argument(format!(
                "data.shape must start with partitions.shape, got data.shape = {}, partitions.shape = {}",
                data.shape(),
                partitions.shape()
            )));
        }
        let mut slices = vec![Vec::new(); self.num_partitions];
        for (position, &partition) in partitions.as_slice::<i32>()?.iter().enumerate() {
            let part = usize::try_from(partition).ok().and_then(|partition| slices.get_mut(partition));
            let part = part.ok_or_else(|| {
                Status::invalid_argument(format!(
                    "partitions{} = {partition} is not in [0, {})",
                    position_text(partitions.dims(), position),
                    self.num_partitions
                ))
            })?;
            part.push(position);
        }
        let rest = data.shape().slice(rank, data.shape().rank());
        for (index, slices) in slices.iter().enumerate() {
            let shape = Shape::vector(slices.len()).concat(&rest)?;
            context.set_output(index, gather_slices(&data, slices, rest.num_elements(), shape)?);
        }
        Ok(())
    }
}

struct DynamicStitch {
    count: usize,
}

impl DynamicStitch {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(DynamicStitch { count: builder.input_range("indices")?.len() })
    }

    /// Checks the inputs, and returns the number of rows of the result and the shape of a row.
    fn result_shape(&self, context: &OpContext<'_>) -> Result<(usize, Shape)> {
        let mut rows = 0usize;
        let mut rest: Option<Shape> = None;
        for index in 0..self.count {
            let (indices, data) = (context.input(index)?, context.input(self.count + index)?);
            let rank = indices.shape().rank();
            if data.shape().rank() < rank || data.dims()[..rank] != *indices.dims() {
                return Err(Status::invalid_argument(format!(
                    "data[{index}].shape = {} does not start with indices[{index}].shape = {}",
                    data.shape(),
                    indices.shape()
                )));
            }
            let own = data.shape().slice(rank, data.shape().rank());
            match &rest {
                Some(first) if *first != own => {
                    return Err(Status::invalid_argument(format!(
                        "Need data[0].shape[{}:] = data[{index}].shape[{rank}:], got data[0].shape = {}, \
                         data[{index}].shape = {}, indices[0].shape = {}, indices[{index}].shape = {}",
                        context.input(0)?.shape().rank(),
                        context.input(self.count)?.shape(),
                        data.shape(),
                        context.input(0)?.shape(),
                        indices.shape()
                    )));
                }
                _ => rest = Some(own),
            }
            for &row in indices.as_slice::<i32>()? {
                let row = usize::try_from(row)
                    .map_err(|_| Status::invalid_argument(format!("indices[{index}] is out of range")))?;
                rows = rows.max(row + 1);
            }
        }
        Ok((rows, rest.unwrap_or_default()))
    }
}

impl DynamicStitch {
    /// Returns whether there is a slice for each row.
    fn covers(&self, context: &OpContext<'_>, rows: usize) -> Result<bool> {
        let total = (0..self.count).map(|index| Ok(context.input(index)?.num_elements())).sum::<Result<usize>>()?;
        if total < rows {
            return Ok(false);
        }
        let mut covered = vec![false; rows];
        for index in 0..self.count {
            context.slice::<i32>(index)?.iter().for_each(|&row| covered[row as usize] = true);
        }
        Ok(covered.into_iter().all(|covered| covered))
    }
}

impl Kernel for DynamicStitch {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (rows, rest) = self.result_shape(context)?;
        let dtype = context.input(self.count)?.dtype();
        let shape = Shape::vector(rows).concat(&rest)?;
        let len = rest.num_elements();
        // Rows without a slice are zero; usually there is a slice for each row, and nothing needs to be cleared first.
        let start = if self.covers(context, rows)? { Tensor::new(dtype, shape)? } else { Tensor::zeros(dtype, shape)? };
        let output = with_movable!(dtype, E => {
            let mut parts: Vec<(&[i32], &[E])> = Vec::with_capacity(self.count);
            for index in 0..self.count {
                let data = context.input(self.count + index)?;
                parts.push((context.input(index)?.as_slice()?, <E as Movable>::view(data)?));
            }
            <E as Movable>::modify(start, |output| {
                if len > 0 {
                    for (indices, data) in parts {
                        for (&row, slice) in indices.iter().zip(data.chunks_exact(len)) {
                            output[row as usize * len..(row as usize + 1) * len].clone_from_slice(slice);
                        }
                    }
                }
                Ok(())
            })
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_gradient, check_shape, infer, run_op};
    use tensor::DType;

    #[test]
    fn slices_are_sorted_and_put_back() {
        let data = Tensor::from_slice(&[3, 2], &[1i32, 2, 3, 4, 5, 6]).unwrap();
        let partitions = Tensor::vector(&[1i32, 0, 1]);
        let parts = run_op("DynamicPartition", attrs![("num_partitions", 3i64)], &[data, partitions]).unwrap();
        assert_eq!((parts[0].dims(), parts[0].as_slice::<i32>().unwrap()), (&[1i64, 2][..], &[3, 4][..]));
        assert_eq!((parts[1].dims(), parts[1].as_slice::<i32>().unwrap()), (&[2i64, 2][..], &[1, 2, 5, 6][..]));
        assert_eq!(parts[2].dims(), &[0, 2]);
        let indices = [Tensor::vector(&[1i32]), Tensor::vector(&[0i32, 2])];
        let inputs = [indices[0].clone(), indices[1].clone(), parts[0].clone(), parts[1].clone()];
        for op in ["DynamicStitch", "ParallelDynamicStitch"] {
            let merged = run_op(op, attrs![("N", 2i64)], &inputs).unwrap();
            assert_eq!(merged[0].as_slice::<i32>().unwrap(), &[1, 2, 3, 4, 5, 6]);
        }
    }

    #[test]
    fn the_later_slice_wins_and_gaps_are_zero() {
        let indices = [Tensor::vector(&[0i32, 3]), Tensor::scalar(3i32)];
        let inputs = [indices[0].clone(), indices[1].clone(), Tensor::vector(&[1i32, 2]), Tensor::scalar(9i32)];
        let merged = run_op("DynamicStitch", attrs![("N", 2i64)], &inputs).unwrap();
        assert_eq!(merged[0].as_slice::<i32>().unwrap(), &[1, 0, 0, 9]);
        let words: Vec<_> = ["a", "b"].iter().map(|word| bytes::Bytes::from(*word)).collect();
        let words = Tensor::from_strings(Shape::vector(2), words).unwrap();
        let merged = run_op("DynamicStitch", attrs![("N", 1i64)], &[Tensor::vector(&[1i32, 0]), words]).unwrap();
        assert_eq!(merged[0].strings().unwrap(), ["b", "a"]);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let message = |op: &str, attrs, inputs: &[Tensor]| {
            run_op(op, attrs, inputs).unwrap_err().message().lines().next().unwrap_or_default().to_owned()
        };
        let data = Tensor::vector(&[1f32, 2.0]);
        let two = || attrs![("num_partitions", 2i64)];
        assert_eq!(
            message("DynamicPartition", two(), &[data.clone(), Tensor::vector(&[0i32, 5])]),
            "partitions[1] = 5 is not in [0, 2)"
        );
        assert_eq!(
            message("DynamicPartition", two(), &[data.clone(), Tensor::vector(&[0i32])]),
            "data.shape must start with partitions.shape, got data.shape = [2], partitions.shape = [1]"
        );
        assert_eq!(
            message("DynamicStitch", attrs![("N", 1i64)], &[Tensor::vector(&[0i32, -1]), data]),
            "indices[0] is out of range"
        );
    }

    #[test]
    fn gradients() {
        let data = Tensor::from_slice(&[3, 2], &[1f64, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        check_gradient(&[data.clone()], |graph, xs| {
            let partitions = graph.constant_tensor(&Tensor::vector(&[1i32, 0, 1]));
            dynamic_partition(&xs[0], &partitions, 2).remove(1)
        });
        let more = Tensor::from_slice(&[1, 2], &[7f64, 8.0]).unwrap();
        check_gradient(&[data, more], |graph, xs| {
            let first = graph.constant_tensor(&Tensor::vector(&[3i32, 0, 1]));
            let second = graph.constant_tensor(&Tensor::vector(&[2i32]));
            dynamic_stitch(&[first, second], xs)
        });
    }

    #[test]
    fn shapes() {
        check_shape("DynamicPartition", attrs![("num_partitions", 2i64)], "[3,2];[3]", "[?,2];[?,2]");
        check_shape("DynamicStitch", attrs![("N", 1i64)], "[3];[3,2]", "[?,2]");
        let constants = [(0, Tensor::vector(&[4i32, 1, 0]))];
        let shapes = infer("DynamicStitch", attrs![("N", 1i64), ("T", DType::Float)], "[3];[3,2]", &constants);
        assert_eq!(shapes.unwrap()[0].to_string(), "[5,2]");
    }
}
