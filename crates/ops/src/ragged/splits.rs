//! Row splits, checked.

use kernel::OpContext;
use std::ops::Range;
use tensor::{DType, Result, Status, Tensor};

/// Returns the row splits in inputs; each must increase from zero to the number of rows of the next, and the last to the number
/// of values.
pub(super) fn nested_splits(context: &OpContext<'_>, inputs: Range<usize>, values: &Tensor) -> Result<Vec<Vec<i64>>> {
    if values.shape().rank() == 0 {
        return Err(Status::invalid_argument("the values of a ragged tensor must have a dimension"));
    }
    let mut all: Vec<Vec<i64>> = Vec::with_capacity(inputs.len());
    for input in inputs {
        let tensor = context.input(input)?;
        let splits = tensor.to_indices()?;
        if !tensor.shape().is_vector() || splits.is_empty() {
            return Err(Status::invalid_argument("Invalid ragged splits: they must be a vector that isn't empty."));
        }
        if splits[0] != 0 {
            return Err(Status::invalid_argument("First value of ragged splits must be 0."));
        }
        if !splits.is_sorted() {
            return Err(Status::invalid_argument("Invalid ragged splits: they must not fall."));
        }
        all.push(splits);
    }
    for level in 0..all.len() {
        let rows = match all.get(level + 1) {
            Some(next) => next.len() as i64 - 1,
            None => values.dims()[0],
        };
        if all[level].last() != Some(&rows) {
            return Err(Status::invalid_argument(
                "Invalid ragged splits: the last must be the number of rows of what they split.",
            ));
        }
    }
    Ok(all)
}

/// Returns splits as a tensor of their type.
pub(super) fn splits_tensor(dtype: DType, splits: &[i64]) -> Result<Tensor> {
    if dtype != DType::Int32 {
        return Ok(Tensor::vector(splits));
    }
    let narrow = |&split: &i64| {
        i32::try_from(split).map_err(|_| {
            Status::invalid_argument("Requested range length must fit in int32: use int64 for the row splits instead.")
        })
    };
    Ok(Tensor::vector(&splits.iter().map(narrow).collect::<Result<Vec<i32>>>()?))
}
