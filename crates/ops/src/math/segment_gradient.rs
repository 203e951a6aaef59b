//! The gradients of reductions by segment.

use crate::compose::{Gradients, binary, cast, constant, reshape, scalar, select, shape_of, ternary, unary};
use graph::Output;
use kernel::GradientArgs;
use tensor::{DType, Result, Tensor};

/// Rows gathered by segment id, zero where the id is negative.
pub(super) struct Gathered {
    pub values: Output,
    /// The ids with negative ones replaced by 0.
    pub clipped: Output,
    /// Whether ids are not negative, in a shape that broadcasts to the rows.
    pub is_positive: Output,
}

/// Gathers rows by segment id; negative ids give zeros.
pub(super) fn gather_drop_negatives(params: &Output, ids: &Output) -> Result<Gathered> {
    let zero = scalar(ids, 0.0)?;
    let clipped = binary("Maximum", ids, &zero)?;
    let gathered = gather(params, &clipped)?;
    let flags = binary("GreaterEqual", ids, &zero)?;
    let is_positive = reshape(&flags, &broadcastable_shape(ids, &gathered)?)?;
    let values = select(&is_positive, &gathered, &scalar(&gathered, 0.0)?)?;
    Ok(Gathered { values, clipped, is_positive })
}

/// Returns the shape of ids with a 1 for each axis that only the rows have.
fn broadcastable_shape(ids: &Output, rows: &Output) -> Result<Output> {
    let graph = ids.graph();
    let (ids_shape, ids_rank, rows_rank) = (shape_of(ids)?, ids.shape().rank(), rows.shape().rank());
    let ones = match (ids_rank, rows_rank) {
        (Some(ids_rank), Some(rows_rank)) => {
            let missing = rows_rank.saturating_sub(ids_rank);
            if missing == 0 {
                return Ok(ids_shape);
            }
            constant(graph, &Tensor::vector(&vec![1i32; missing]))?
        }
        _ => {
            let missing = binary("Sub", &unary("Rank", rows)?, &unary("Rank", ids)?)?;
            let axis = constant(graph, &Tensor::scalar(0i32))?;
            let dims = binary("ExpandDims", &missing, &axis)?;
            binary("Fill", &dims, &constant(graph, &Tensor::scalar(1i32))?)?
        }
    };
    let axis = constant(graph, &Tensor::scalar(0i32))?;
    let op = graph.op("ConcatV2").input(&ids_shape).input(&ones).input(&axis).attr("N", 2i64);
    Ok(op.try_build()?.output(0))
}

fn gather(params: &Output, indices: &Output) -> Result<Output> {
    let axis = constant(params.graph(), &Tensor::scalar(0i32))?;
    ternary("GatherV2", params, indices, &axis)
}

pub(super) fn segment_sum_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    Ok(vec![Some(gather(&grad, &args.input(1))?.into()), None])
}

pub(super) fn segment_mean_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let (data, ids) = (args.input(0), args.input(1));
    // Ones in the shape of the ids, with further axes for those of the data.
    let ones = cast(&unary("OnesLike", &ids)?, grad.dtype())?;
    let ones = reshape(&ones, &broadcastable_shape(&ids, &data)?)?;
    let scaled = binary("RealDiv", &grad, &binary("SegmentSum", &ones, &ids)?)?;
    Ok(vec![Some(gather(&scaled, &ids)?.into()), None])
}

pub(super) fn segment_extreme_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let (data, ids) = (args.input(0), args.input(1));
    let is_selected = binary("Equal", &data, &gather(&args.output(0), &ids)?)?;
    let selected = binary("SegmentSum", &cast(&is_selected, grad.dtype())?, &ids)?;
    let weighted = gather(&binary("RealDiv", &grad, &selected)?, &ids)?;
    let grad_data = select(&is_selected, &weighted, &scalar(&weighted, 0.0)?)?;
    Ok(vec![Some(grad_data.into()), None])
}

pub(super) fn unsorted_extreme_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 3]) };
    let (data, ids, count) = (args.input(0), args.input(1), args.input(2));
    let gathered = gather_drop_negatives(&args.output(0), &ids)?;
    let is_selected = binary("LogicalAnd", &binary("Equal", &data, &gathered.values)?, &gathered.is_positive)?;
    let selected = ternary("UnsortedSegmentSum", &cast(&is_selected, grad.dtype())?, &ids, &count)?;
    let weighted = gather(&binary("RealDiv", &grad, &selected)?, &gathered.clipped)?;
    let grad_data = select(&is_selected, &weighted, &scalar(&weighted, 0.0)?)?;
    Ok(vec![Some(grad_data.into()), None, None])
}

pub(super) fn segment_prod_gradient(args: &GradientArgs<'_>) -> Gradients {
    let ids = args.input(1);
    let reduce = |op: &str, data: &Output| binary(&format!("Segment{op}"), data, &ids);
    let spread = |rows: &Output| gather(rows, &ids);
    prod_gradient(args, &reduce, &spread, &spread)
}

pub(super) fn unsorted_prod_gradient(args: &GradientArgs<'_>) -> Gradients {
    let (ids, count) = (args.input(1), args.input(2));
    let clipped = binary("Maximum", &ids, &scalar(&ids, 0.0)?)?;
    let reduce = |op: &str, data: &Output| ternary(&format!("UnsortedSegment{op}"), data, &ids, &count);
    prod_gradient(args, &reduce, &|rows| gather(rows, &clipped), &|rows| Ok(gather_drop_negatives(rows, &ids)?.values))
}

/// The product of the others: the whole product divided by the element, or, if the element is the only zero of its segment, the
/// product of the nonzero elements.
fn prod_gradient(
    args: &GradientArgs<'_>,
    reduce: &dyn Fn(&str, &Output) -> Result<Output>,
    spread: &dyn Fn(&Output) -> Result<Output>,
    spread_grad: &dyn Fn(&Output) -> Result<Output>,
) -> Gradients {
    let mut grads = vec![None; args.op.num_inputs()];
    let Some(grad) = args.grad(0) else { return Ok(grads) };
    let data = args.input(0);
    let is_zero = binary("Equal", &data, &scalar(&data, 0.0)?)?;
    let zeros = reduce("Sum", &cast(&is_zero, DType::Int32)?)?;
    let several = binary("Greater", &zeros, &scalar(&zeros, 1.0)?)?;
    let grad = select(&several, &scalar(&grad, 0.0)?, &grad)?;
    let non_zero = select(&is_zero, &scalar(&data, 1.0)?, &data)?;
    let non_zero_product = spread(&reduce("Prod", &non_zero)?)?;
    let ratio = binary("RealDiv", &spread(&args.output(0))?, &data)?;
    let slope = select(&is_zero, &non_zero_product, &ratio)?;
    grads[0] = Some(binary("Mul", &spread_grad(&grad)?, &slope)?.into());
    Ok(grads)
}
