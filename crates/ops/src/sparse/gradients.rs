//! The gradients of SparseReduceSum, SparseSoftmax, SparseDenseCwiseMul and SparseDenseCwiseDiv with respect to the values.

use crate::compose::{Gradients, binary, call, cast, int_scalar, int_vector, reshape, scalar_of, unary};
use graph::Output;
use kernel::GradientArgs;
use tensor::{DType, Result};

/// Each value gets the gradient of its group's total.
pub(super) fn reduce_sum(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 4]) };
    let (indices, shape, axes) = (args.input(0), args.input(2), args.input(3));
    let graph = grad.graph();
    let rank = unary("Size", &shape)?;
    let places = call("Range", &[&int_scalar(graph, 0)?, &rank, &int_scalar(graph, 1)?])?;
    let axes = binary("FloorMod", &axes, &rank)?;
    let stitch = graph
        .op("DynamicStitch")
        .inputs(&[places, axes.clone()])
        .inputs(&[cast(&shape, DType::Int32)?, unary("OnesLike", &axes)?]);
    // The sizes of the totals, with 1 for the summed axes.
    let kept = stitch.attr("N", 2i64).try_build()?.try_output(0)?;
    let scale = binary("FloorDiv", &shape, &cast(&kept, DType::Int64)?)?;
    let groups = binary("FloorDiv", &indices, &scale)?;
    let grad = call("GatherNd", &[&reshape(&grad, &kept)?, &groups])?;
    Ok(vec![None, Some(grad.into()), None, None])
}

/// As that of a dense softmax, with sums over the existing values.
pub(super) fn softmax(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 3]) };
    let (indices, shape, softmax) = (args.input(0), args.input(2), args.output(0));
    let graph = grad.graph();
    let weighted = binary("Mul", &grad, &softmax)?;
    let totals = graph.op("SparseReduceSum").inputs([&indices, &weighted, &shape]).input(&int_vector(graph, &[-1])?);
    let totals = totals.attr("keep_dims", true).try_build()?.try_output(0)?;
    let centered = call("SparseDenseCwiseAdd", &[&indices, &grad, &shape, &unary("Neg", &totals)?])?;
    Ok(vec![None, Some(binary("Mul", &centered, &softmax)?.into()), None])
}

pub(super) fn dense_multiply(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 4]) };
    let partners = Partners::new(args)?;
    let grad_values = binary("Mul", &grad, &partners.values)?;
    let grad_partners = binary("Mul", &grad, &args.input(1))?;
    Ok(vec![None, Some(grad_values.into()), None, Some(partners.total(&grad_partners)?.into())])
}

pub(super) fn dense_divide(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 4]) };
    let partners = Partners::new(args)?;
    let grad_values = binary("RealDiv", &grad, &partners.values)?;
    let slope = binary("RealDiv", &unary("Neg", &args.input(1))?, &unary("Square", &partners.values)?)?;
    let grad_partners = binary("Mul", &grad, &slope)?;
    Ok(vec![None, Some(grad_values.into()), None, Some(partners.total(&grad_partners)?.into())])
}

/// The elements of a dense tensor, broadcast to a sparse one's shape, at the positions of the sparse tensor's values.
struct Partners {
    dense: Output,
    dense_shape: Output,
    indices: Output,
    values: Output,
}

impl Partners {
    fn new(args: &GradientArgs<'_>) -> Result<Partners> {
        let (indices, shape, dense) = (args.input(0), args.input(2), args.input(3));
        let graph = dense.graph();
        let one = scalar_of(graph, DType::Int64, 1.0)?;
        let dense_shape = graph.op("Shape").input(&dense).attr("out_type", DType::Int64).try_build()?.try_output(0)?;
        let missing = binary("Sub", &unary("Size", &shape)?, &unary("Size", &dense_shape)?)?;
        let missing = call("ExpandDims", &[&missing, &int_scalar(graph, 0)?])?;
        let aligned = join(&[&binary("Fill", &missing, &one)?, &dense_shape])?;
        let scale = binary("FloorDiv", &shape, &aligned)?;
        let begin = join(&[&int_vector(graph, &[0])?, &missing])?;
        let indices = call("Slice", &[&binary("FloorDiv", &indices, &scale)?, &begin, &int_vector(graph, &[-1, -1])?])?;
        let values = call("GatherNd", &[&dense, &indices])?;
        Ok(Partners { dense, dense_shape, indices, values })
    }

    /// Sums the gradients of each element of the dense tensor.
    fn total(&self, grads: &Output) -> Result<Output> {
        call("SparseTensorDenseAdd", &[&self.indices, grads, &self.dense_shape, &unary("ZerosLike", &self.dense)?])
    }
}

fn join(parts: &[&Output]) -> Result<Output> {
    let graph = parts[0].graph();
    let joined = graph.op("ConcatV2").inputs(parts.iter().copied()).input(&int_scalar(graph, 0)?);
    joined.attr("N", parts.len() as i64).try_build()?.try_output(0)
}
