//! Concatenates rows of tensors, and splits them.

use crate::movement::Movable;
use tensor::{Result, Status, Tensor};

/// Returns the number of rows; a batched tensor must have some dimension.
pub(super) fn num_rows(tensor: &Tensor) -> Result<usize> {
    tensor.dims().first().map(|&rows| rows as usize).ok_or_else(|| Status::invalid_argument("a scalar has no rows"))
}

/// Returns the concatenated rows of all parts.
pub(super) fn concat_rows(parts: &[Tensor]) -> Result<Tensor> {
    let [first, rest @ ..] = parts else {
        return Err(Status::invalid_argument("Empty batch."));
    };
    if rest.is_empty() {
        return Ok(first.clone());
    }
    let mut rows = 0i64;
    for part in parts {
        let (dims, first_dims) = (part.dims(), first.dims());
        if dims.is_empty() || dims.len() != first_dims.len() {
            return Err(Status::invalid_argument(format!(
                "Ranks of all input tensors should match: shape[0] = {} vs. {}",
                first.shape(),
                part.shape()
            )));
        }
        if dims[1..] != first_dims[1..] {
            return Err(Status::invalid_argument(format!(
                "Dimensions of inputs should match: shape[0] = {} vs. {}",
                first.shape(),
                part.shape()
            )));
        }
        if part.dtype() != first.dtype() {
            return Err(Status::invalid_argument(format!(
                "Types of inputs should match: {} vs. {}",
                first.dtype(),
                part.dtype()
            )));
        }
        rows = rows.checked_add(dims[0]).ok_or_else(|| Status::invalid_argument("a batch has too many rows"))?;
    }
    let shape = first.shape().with_dim(0, rows)?;
    with_movable!(first.dtype(), E => {
        let views: Vec<&[E]> = parts.iter().map(|part| <E as Movable>::view(part)).collect::<Result<_>>()?;
        <E as Movable>::build(first.dtype(), shape, |elements| {
            let mut left = elements;
            for view in views {
                let (to, rest) = left.split_at_mut(view.len());
                to.clone_from_slice(view);
                left = rest;
            }
        })
    })
}

/// Splits a tensor into consecutive rows, with the number of rows of each part in `sizes`; surplus rows are dropped.
pub(super) fn split_rows(tensor: &Tensor, sizes: &[usize]) -> Result<Vec<Tensor>> {
    let rows = num_rows(tensor)?;
    let total = sizes.iter().try_fold(0usize, |total, &size| total.checked_add(size));
    if total.is_none_or(|total| total > rows) {
        return Err(Status::invalid_argument("Sum of split sizes must not exceed dim0-size of input tensor"));
    }
    let mut start = 0;
    let cut = |&size: &usize| {
        let part = tensor.slice_rows(start, start + size);
        start += size;
        part
    };
    sizes.iter().map(cut).collect()
}

/// Returns a tensor like this one with no rows.
pub(super) fn without_rows(tensor: &Tensor) -> Result<Tensor> {
    Tensor::zeros(tensor.dtype(), tensor.shape().with_dim(0, 0)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensor::{Code, DType, Shape};

    #[test]
    fn rows_are_joined_and_cut() {
        let first = Tensor::from_slice(&[1, 2], &[1i32, 2]).unwrap();
        let second = Tensor::from_slice(&[2, 2], &[3i32, 4, 5, 6]).unwrap();
        let joined = concat_rows(&[first.clone(), second.clone()]).unwrap();
        assert_eq!((joined.dims(), joined.as_slice::<i32>().unwrap()), (&[3i64, 2][..], &[1, 2, 3, 4, 5, 6][..]));
        let parts = split_rows(&joined, &[2, 0, 1]).unwrap();
        assert_eq!(parts[2].as_slice::<i32>().unwrap(), &[5, 6]);
        assert_eq!(parts[1].dims(), &[0, 2]);
        assert_eq!(split_rows(&joined, &[2]).unwrap().len(), 1);
        for sizes in [&[4usize][..], &[usize::MAX, 2][..]] {
            assert_eq!(split_rows(&joined, sizes).unwrap_err().code(), Code::InvalidArgument);
        }
        let texts = Tensor::from_strings(Shape::vector(2), vec!["a".into(), "b".into()]).unwrap();
        assert_eq!(concat_rows(&[texts.clone(), texts.clone()]).unwrap().strings().unwrap().len(), 4);
        for wrong in
            [Tensor::vector(&[1i32]), Tensor::zeros(DType::Int32, Shape::new(&[1, 3]).unwrap()).unwrap(), texts]
        {
            assert_eq!(concat_rows(&[first.clone(), wrong]).unwrap_err().code(), Code::InvalidArgument);
        }
    }
}
