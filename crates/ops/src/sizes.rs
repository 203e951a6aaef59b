//! Shapes from sizes in input tensors, with TensorFlow's errors.

use tensor::{Result, Shape, Status};

/// Returns the shape of some sizes, or the error if it would have too many elements.
pub(crate) fn shape_of_sizes(sizes: &[i64]) -> Result<Shape> {
    let mut count = 1i64;
    for &size in sizes.iter().filter(|&&size| size > 0) {
        count = count.checked_mul(size).ok_or_else(|| {
            let shown = sizes.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
            // TensorFlow has two texts for this, depending on how a kernel builds its shape.
            Status::invalid_argument(format!(
                "Shape [{shown}] would have more than 2**63 - 1 elements: Encountered overflow when multiplying {count} \
                 with {size}, result: -1"
            ))
        })?;
    }
    Shape::new(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_counted_is_named() {
        assert_eq!(shape_of_sizes(&[2, 0, 3]).unwrap().dims(), &[2, 0, 3]);
        assert!(shape_of_sizes(&[2, -1]).is_err());
        let status = shape_of_sizes(&[1 << 62, 8]).unwrap_err();
        assert!(status.message().starts_with("Shape [4611686018427387904,8] would have more than 2**63"), "{status}");
        assert!(status.message().contains("multiplying 4611686018427387904 with 8, result: -1"), "{status}");
    }
}
