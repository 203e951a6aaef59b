//! Conversion of pixels of all types to single precision, and back.

use std::borrow::Cow;
use tensor::{DType, Element, Result, Shape, Status, Tensor, bf16, f16};

/// Returns a tensor's elements as floats.
pub(super) fn load(tensor: &Tensor) -> Result<Cow<'_, [f32]>> {
    fn converted<T: Element + Copy>(tensor: &Tensor, convert: fn(T) -> f32) -> Result<Cow<'_, [f32]>> {
        Ok(Cow::Owned(tensor.as_slice::<T>()?.iter().map(|&value| convert(value)).collect()))
    }
    match tensor.dtype() {
        DType::Float => Ok(Cow::Borrowed(tensor.as_slice::<f32>()?)),
        DType::Double => converted::<f64>(tensor, |x| x as f32),
        DType::Half => converted::<f16>(tensor, f16::to_f32),
        DType::BFloat16 => converted::<bf16>(tensor, bf16::to_f32),
        DType::Int8 => converted::<i8>(tensor, f32::from),
        DType::UInt8 => converted::<u8>(tensor, f32::from),
        DType::Int16 => converted::<i16>(tensor, f32::from),
        DType::UInt16 => converted::<u16>(tensor, f32::from),
        DType::Int32 => converted::<i32>(tensor, |x| x as f32),
        DType::Int64 => converted::<i64>(tensor, |x| x as f32),
        other => Err(Status::invalid_argument(format!("images of type {other}"))),
    }
}

/// Converts floats to a tensor; integers that don't fit wrap around.
pub(super) fn store(dtype: DType, shape: Shape, values: &[f64]) -> Result<Tensor> {
    fn fill<T: Element>(shape: Shape, values: &[f64], narrow: fn(f64) -> T) -> Result<Tensor> {
        Tensor::build::<T>(shape, |to| to.iter_mut().zip(values).for_each(|(to, &value)| *to = narrow(value)))
    }
    match dtype {
        DType::Float => fill(shape, values, |x| x as f32),
        DType::Double => fill(shape, values, |x| x),
        DType::Half => fill(shape, values, f16::from_f64),
        DType::BFloat16 => fill(shape, values, bf16::from_f64),
        DType::Int8 => fill(shape, values, |x| x as i64 as i8),
        DType::UInt8 => fill(shape, values, |x| x as i64 as u8),
        DType::Int32 => fill(shape, values, |x| x as i64 as i32),
        other => Err(Status::invalid_argument(format!("images of type {other}"))),
    }
}

/// The sizes of a batch of images.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub batch: usize,
    pub height: usize,
    pub width: usize,
    pub channels: usize,
}

impl Sizes {
    pub(super) fn of(images: &Tensor) -> Result<Sizes> {
        let shape = images.shape();
        if shape.rank() != 4 {
            return Err(Status::invalid_argument(format!("input must be 4-dimensional{shape}")));
        }
        Ok(Sizes { batch: shape.size(0), height: shape.size(1), width: shape.size(2), channels: shape.size(3) })
    }

    pub(super) fn shape(&self) -> Result<Shape> {
        Shape::from_usize(&[self.batch, self.height, self.width, self.channels])
    }
}

/// Returns the height and width in an input.
pub(super) fn target_size(size: &Tensor) -> Result<(usize, usize)> {
    if !size.shape().is_vector() {
        return Err(Status::invalid_argument(format!("shape_t must be 1-dimensional{}", size.shape())));
    }
    match size.as_slice::<i32>()? {
        &[height, width] if height > 0 && width > 0 => Ok((height as usize, width as usize)),
        [_, _] => Err(Status::invalid_argument("output dimensions must be positive")),
        _ => Err(Status::invalid_argument(format!("shape_t must have two elements{}", size.shape()))),
    }
}
