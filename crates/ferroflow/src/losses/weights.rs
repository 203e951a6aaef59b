//! Weights of losses and metrics: a scalar, or a tensor of the values' rank, with each axis of size 1 or of the values' size.

use crate::compose::{self, assert, node, reduce_all, shape_of};
use graph::{Operation, Output};
use tensor::{DType, Result, Status, Tensor};

/// TensorFlow's error message for weights that can't be broadcast.
const MISFIT: &str = "weights can not be broadcast to values.";

/// Fails if weights are known not to fit the values; if that isn't known yet, returns an operation that checks it in every step.
pub(crate) fn check_weights(weights: &Output, values: &Output) -> Result<Option<Operation>> {
    let (ours, theirs) = (weights.shape(), values.shape());
    let misfit =
        || Status::invalid_argument(format!("{MISFIT} weights are {} {ours}, values are {theirs}", weights.name()));
    let graph = values.graph();
    match (ours.rank(), theirs.rank()) {
        (Some(0), _) => Ok(None),
        (Some(rank), Some(other)) => {
            if rank != other {
                return Err(misfit());
            }
            let fits = |axis: usize| match (ours.dim(axis), theirs.dim(axis)) {
                (Some(1), _) => Some(true),
                (Some(size), Some(wanted)) => Some(size == wanted),
                _ => None,
            };
            let all: Vec<Option<bool>> = (0..rank).map(fits).collect();
            if all.contains(&Some(false)) {
                return Err(misfit());
            }
            if all.iter().all(|fits| *fits == Some(true)) {
                return Ok(None);
            }
            let (found, wanted) = (shape_of(weights)?, shape_of(values)?);
            assert(&dims_fit(&found, &wanted)?, MISFIT, &[&found, &wanted]).map(Some)
        }
        _ => {
            let (found, wanted) = (shape_of(weights)?, shape_of(values)?);
            let is_scalar = compose::with_number("Equal", &node("Rank", &[weights])?, 0.0)?;
            let outputs = compose::cond(
                graph,
                &is_scalar,
                |graph| Ok(vec![graph.constant_tensor(&Tensor::scalar(true))]),
                |_| Ok(vec![dims_fit(&found, &wanted)?]),
            )?;
            let fits = outputs.first().ok_or_else(|| Status::internal("a conditional without a result"))?;
            assert(fits, MISFIT, &[&found, &wanted]).map(Some)
        }
    }
}

fn dims_fit(found: &Output, wanted: &Output) -> Result<Output> {
    let is_one = compose::with_number("Equal", found, 1.0)?;
    let either = node("LogicalOr", &[&is_one, &node("Equal", &[found, wanted])?])?;
    reduce_all("All", &either)
}

/// Broadcasts weights to the shape of the values.
pub(crate) fn broadcast_weights(weights: &Output, values: &Output) -> Result<Output> {
    let weights = compose::cast(weights, values.dtype())?;
    if let (Some(ours), Some(theirs)) = (weights.full_shape(), values.full_shape())
        && ours == theirs
    {
        return Ok(weights);
    }
    let multiply = || compose::mul(&weights, &node("OnesLike", &[values])?);
    match check_weights(&weights, values)? {
        Some(check) => values.graph().control_dependencies(&[check], |_| multiply()),
        None => multiply(),
    }
}

/// Removes the last axis of labels or predictions if it has size 1 and their rank is one too high: `expected` is the rank of the
/// predictions minus that of the labels.
pub(crate) fn without_last_axis(labels: &Output, predictions: &Output, expected: i64) -> Result<(Output, Output)> {
    let (Some(ours), Some(theirs)) = (labels.shape().rank(), predictions.shape().rank()) else {
        return Ok((labels.clone(), predictions.clone()));
    };
    let is_one = |x: &Output, rank: usize| rank > 0 && x.shape().dim(rank - 1).is_none_or(|size| size == 1);
    let difference = theirs as i64 - ours as i64;
    if difference == expected + 1 && is_one(predictions, theirs) {
        return Ok((labels.clone(), compose::squeeze(predictions, -1)?));
    }
    if difference == expected - 1 && is_one(labels, ours) {
        return Ok((compose::squeeze(labels, -1)?, predictions.clone()));
    }
    Ok((labels.clone(), predictions.clone()))
}

/// Casts a tensor to `float`, in which losses and metrics are computed.
pub(crate) fn to_float(x: &Output) -> Result<Output> {
    compose::cast(x, DType::Float)
}
