//! Whether two tensors are equal, so that a test compares what it fetched with what it expects.

use crate::{Complex32, Complex64, DType, Element, Tensor, bf16, f16};

/// Tensors are equal when type, shape and all elements are. As with Rust's numbers, NaN equals nothing. Variants equal only
/// themselves.
///
/// ```
/// # use tensor::Tensor;
/// let x = Tensor::try_from([1f32, 2.0])?;
/// assert_eq!(x, Tensor::vector(&[1f32, 2.0]));
/// assert_ne!(x, Tensor::vector(&[1f64, 2.0]));
/// assert_ne!(x, Tensor::try_from([[1f32, 2.0]])?);
/// # Ok::<(), tensor::Status>(())
/// ```
impl PartialEq for Tensor {
    fn eq(&self, other: &Tensor) -> bool {
        self.dtype() == other.dtype() && self.shape() == other.shape() && self.has_elements_of(other)
    }
}

impl Tensor {
    /// Returns whether the elements of a tensor of the same type are the same.
    fn has_elements_of(&self, other: &Tensor) -> bool {
        if let (Ok(these), Ok(those)) = (self.strings(), other.strings()) {
            return these == those;
        }
        if let (Ok(these), Ok(those)) = (self.resources(), other.resources()) {
            return these == those;
        }
        match self.dtype() {
            DType::Float => self.equals::<f32>(other),
            DType::Double => self.equals::<f64>(other),
            DType::Half => self.equals::<f16>(other),
            DType::BFloat16 => self.equals::<bf16>(other),
            DType::Complex64 => self.equals::<Complex32>(other),
            DType::Complex128 => self.equals::<Complex64>(other),
            // What is left is equal where its bytes are.
            _ => match (self.buffer(), other.buffer()) {
                (Some(these), Some(those)) => these.bytes() == those.bytes(),
                _ => self.shares_memory(other),
            },
        }
    }

    fn equals<T: Element>(&self, other: &Tensor) -> bool {
        matches!((self.as_slice::<T>(), other.as_slice::<T>()), (Ok(these), Ok(those)) if these == those)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_shape_and_elements_decide() {
        assert_eq!(Tensor::vector(&[1i32, 2]), Tensor::vector(&[1i32, 2]));
        assert_ne!(Tensor::vector(&[1i32, 2]), Tensor::vector(&[1i32, 3]));
        assert_ne!(Tensor::vector(&[1i32, 2]), Tensor::vector(&[1u32, 2]));
        assert_ne!(Tensor::vector(&[1i32]), Tensor::scalar(1i32));
        assert_eq!(Tensor::string("a"), Tensor::string("a"));
        assert_ne!(Tensor::string("a"), Tensor::string("b"));
        assert_eq!(Tensor::vector(&[true, false]), Tensor::vector(&[true, false]));
    }

    #[test]
    fn floats_are_compared_as_numbers() {
        assert_eq!(Tensor::scalar(0f32), Tensor::scalar(-0f32));
        assert_ne!(Tensor::scalar(f32::NAN), Tensor::scalar(f32::NAN));
    }
}
