//! Stacks elements along a new first axis, with or without padding.

use crate::movement::{Movable, fill};
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// Returns the elements, which all have shape `shape`, along a new first axis.
pub(crate) fn stack(dtype: DType, shape: &Shape, parts: &[&Tensor]) -> Result<Tensor> {
    let batch = Shape::vector(parts.len()).concat(shape)?;
    if let Some(part) = parts.iter().find(|part| part.shape() != shape || part.dtype() != dtype) {
        return Err(Status::invalid_argument(format!(
            "an element of type {} and shape {} doesn't fit a batch of {dtype} elements of shape {shape}",
            part.dtype(),
            part.shape()
        )));
    }
    with_movable!(dtype, E => {
        let views: Vec<&[E]> = parts.iter().map(|part| <E as Movable>::view(part)).collect::<Result<_>>()?;
        let len = shape.num_elements();
        <E as Movable>::build(dtype, batch, |elements| {
            if len > 0 {
                elements.chunks_exact_mut(len).zip(views).for_each(|(to, from)| to.clone_from_slice(from));
            }
        })
    })
}

/// Stacks elements of the same rank along a new first axis. If a size in `shape` is unknown, it is that of the largest element;
/// smaller ones are padded with zeros or empty strings.
pub(crate) fn stack_padded(dtype: DType, shape: &PartialShape, parts: &[&Tensor]) -> Result<Tensor> {
    let zero = Tensor::zeros(dtype, Shape::scalar())
        .map_err(|_| Status::invalid_argument(format!("{dtype} elements can't be padded")))?;
    stack_padded_with(dtype, shape, parts, &zero)
}

/// As [`stack_padded`], but pads with the element of a scalar.
pub(crate) fn stack_padded_with(
    dtype: DType,
    shape: &PartialShape,
    parts: &[&Tensor],
    padding: &Tensor,
) -> Result<Tensor> {
    let Some(rank) = shape.rank() else {
        return Err(Status::invalid_argument("the rank of a component must be known to pad it"));
    };
    let mut dims: Vec<i64> = (0..rank).map(|axis| shape.dim(axis).unwrap_or(0)).collect();
    for part in parts {
        if part.shape().rank() != rank || part.dtype() != dtype {
            return Err(Status::invalid_argument("elements of a batch must have the same type and rank"));
        }
        for (axis, dim) in dims.iter_mut().enumerate().filter(|(axis, _)| shape.dim(*axis).is_none()) {
            *dim = (*dim).max(part.dims()[axis]);
        }
    }
    let padded = Shape::new(&dims)?;
    if parts.iter().all(|part| *part.shape() == padded) {
        return stack(dtype, &padded, parts);
    }
    let batch = Shape::vector(parts.len()).concat(&padded)?;
    with_movable!(dtype, E => {
        let padding = <E as Movable>::view(padding)?.first();
        let padding = padding.ok_or_else(|| Status::invalid_argument("there is nothing to fill up with"))?;
        let views: Vec<&[E]> = parts.iter().map(|part| <E as Movable>::view(part)).collect::<Result<_>>()?;
        let len = padded.num_elements();
        <E as Movable>::build(dtype, batch, |elements| {
            fill(elements, padding);
            if len > 0 {
                for ((to, from), part) in elements.chunks_exact_mut(len).zip(views).zip(parts) {
                    copy_corner(from, part.dims(), to, &dims);
                }
            }
        })
    })
}

/// Copies a whole array into the corner of a larger one of the same rank.
fn copy_corner<E: Clone>(from: &[E], from_dims: &[i64], to: &mut [E], to_dims: &[i64]) {
    let (Some((&from_rows, from_inner)), Some((_, to_inner))) = (from_dims.split_first(), to_dims.split_first()) else {
        to.clone_from_slice(from);
        return;
    };
    let len = |dims: &[i64]| dims.iter().product::<i64>() as usize;
    let (from_len, to_len) = (len(from_inner), len(to_inner));
    if from_inner == to_inner {
        to[..from.len()].clone_from_slice(from);
        return;
    }
    for row in 0..from_rows as usize {
        let from = &from[row * from_len..(row + 1) * from_len];
        copy_corner(from, from_inner, &mut to[row * to_len..(row + 1) * to_len], to_inner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_become_rows() {
        let (a, b) = (Tensor::vector(&[1i32, 2]), Tensor::vector(&[3i32, 4]));
        let batch = stack(DType::Int32, &Shape::vector(2), &[&a, &b]).unwrap();
        assert_eq!((batch.dims(), batch.as_slice::<i32>().unwrap()), (&[2i64, 2][..], &[1, 2, 3, 4][..]));
        assert!(stack(DType::Int32, &Shape::vector(2), &[&a, &Tensor::vector(&[1i32])]).is_err());
        assert_eq!(stack(DType::Int32, &Shape::vector(2), &[]).unwrap().dims(), &[0, 2]);
    }

    #[test]
    fn smaller_elements_are_filled_up() {
        let a = Tensor::from_slice(&[1, 2], &[1i32, 2]).unwrap();
        let b = Tensor::from_slice(&[2, 1], &[3i32, 4]).unwrap();
        let batch = stack_padded(DType::Int32, &PartialShape::from_dims(&[-1, -1]), &[&a, &b]).unwrap();
        assert_eq!(batch.dims(), &[2, 2, 2]);
        assert_eq!(batch.as_slice::<i32>().unwrap(), &[1, 2, 0, 0, 3, 0, 4, 0]);
        let batch = stack_padded(DType::Int32, &PartialShape::from_dims(&[-1, 2]), &[]).unwrap();
        assert_eq!(batch.dims(), &[0, 0, 2]);
    }
}
