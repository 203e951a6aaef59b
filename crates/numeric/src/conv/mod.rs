//! Convolutions and their gradients, channels last, in one, two or three spatial dimensions, strided, dilated, grouped.
//!
//! The micro-kernel of the matrix product reads the windows straight from the image (padded into a small buffer where they
//! leave it), so windows are never copied out.

mod depthwise;
mod filter_grad;
mod forward;
mod input_grad;
mod shape;

pub use depthwise::{DepthwiseShape, depthwise_conv2d, depthwise_conv2d_filter_grad, depthwise_conv2d_input_grad};
pub use shape::ConvShape;

use crate::float::Float;
use crate::matmul::{Activation, Epilogue, FusedMatMulElement, MatMulShape, Operand, matmul, matmul_bias_activation};
use crate::scratch::with_scratch;
use half::{bf16, f16};

/// An element type of convolutions.
pub trait ConvElement: FusedMatMulElement {
    #[doc(hidden)]
    fn forward(shape: &ConvShape, input: &[Self], filter: &[Self], out: &mut [Self], epilogue: Epilogue<'_, Self>);
    #[doc(hidden)]
    fn input_grad(shape: &ConvShape, filter: &[Self], gradient: &[Self], out: &mut [Self]);
    #[doc(hidden)]
    fn filter_grad(shape: &ConvShape, input: &[Self], gradient: &[Self], out: &mut [Self]);
}

/// Writes `activation(convolution + bias)`, with a bias for each output channel.
pub fn conv<T: ConvElement>(shape: &ConvShape, input: &[T], filter: &[T], out: &mut [T], epilogue: Epilogue<'_, T>) {
    shape.check(input.len(), filter.len(), out.len());
    if let Some(bias) = epilogue.bias {
        assert_eq!(bias.len(), shape.out_channels, "the bias has another length than the channels");
    }
    if let Some(product) = as_product(shape) {
        return matmul_bias_activation(product, input, filter, out, epilogue);
    }
    T::forward(shape, input, filter, out, epilogue);
}

/// Writes the gradient of the input, given the gradient of the output.
pub fn conv_input_grad<T: ConvElement>(shape: &ConvShape, filter: &[T], gradient: &[T], out: &mut [T]) {
    shape.check(out.len(), filter.len(), gradient.len());
    if let Some(MatMulShape { m, k, n, .. }) = as_product(shape) {
        let product = MatMulShape::new(m, n, k).stored(Operand::Plain, Operand::Transposed);
        return matmul(product, gradient, filter, out);
    }
    T::input_grad(shape, filter, gradient, out);
}

/// Writes the gradient of the filter, given the gradient of the output.
pub fn conv_filter_grad<T: ConvElement>(shape: &ConvShape, input: &[T], gradient: &[T], out: &mut [T]) {
    shape.check(input.len(), out.len(), gradient.len());
    if let Some(MatMulShape { m, k, n, .. }) = as_product(shape) {
        let product = MatMulShape::new(k, m, n).stored(Operand::Transposed, Operand::Plain);
        return matmul(product, input, gradient, out);
    }
    T::filter_grad(shape, input, gradient, out);
}

/// The matrix product that a convolution is, if it is one: a window of one pixel, or one window for the whole image.
fn as_product(shape: &ConvShape) -> Option<MatMulShape> {
    if shape.groups != 1 || shape.pad_before != [0; 3] {
        return None;
    }
    let pixelwise = shape.filter == [1; 3] && shape.strides == [1; 3] && shape.input == shape.output;
    let whole = shape.output == [1; 3] && shape.filter == shape.input && shape.dilations == [1; 3];
    let pixels = shape.batch * shape.output.iter().product::<usize>();
    (pixelwise || whole).then(|| MatMulShape::new(pixels, shape.taps() * shape.in_channels, shape.out_channels))
}

macro_rules! impl_with_kernel {
    ($($scalar:ty),*) => {$(
        impl ConvElement for $scalar {
            fn forward(shape: &ConvShape, input: &[Self], filter: &[Self], out: &mut [Self], epilogue: Epilogue<'_, Self>) {
                let idle = epilogue.bias.is_none() && epilogue.activation == Activation::Identity;
                forward::forward(shape, input, filter, out, |_, line| {
                    if !idle {
                        line.chunks_exact_mut(shape.out_channels).for_each(|pixel| epilogue.apply(0, pixel));
                    }
                });
            }
            fn input_grad(shape: &ConvShape, filter: &[Self], gradient: &[Self], out: &mut [Self]) {
                input_grad::input_grad(shape, filter, gradient, out);
            }
            fn filter_grad(shape: &ConvShape, input: &[Self], gradient: &[Self], out: &mut [Self]) {
                filter_grad::filter_grad(shape, input, gradient, out);
            }
        }
    )*};
}
impl_with_kernel!(f32, f64);

macro_rules! impl_half {
    ($($scalar:ty),*) => {$(
        impl ConvElement for $scalar {
            fn forward(shape: &ConvShape, input: &[Self], filter: &[Self], out: &mut [Self], epilogue: Epilogue<'_, Self>) {
                let bias: Option<Vec<f32>> = epilogue.bias.map(|bias| bias.iter().map(|value| value.to_f32()).collect());
                let wide = Epilogue { bias: bias.as_deref(), activation: epilogue.activation };
                widened(input, filter, out, |input, filter, out| f32::forward(shape, input, filter, out, wide));
            }
            fn input_grad(shape: &ConvShape, filter: &[Self], gradient: &[Self], out: &mut [Self]) {
                widened(filter, gradient, out, |filter, gradient, out| f32::input_grad(shape, filter, gradient, out));
            }
            fn filter_grad(shape: &ConvShape, input: &[Self], gradient: &[Self], out: &mut [Self]) {
                widened(input, gradient, out, |input, gradient, out| f32::filter_grad(shape, input, gradient, out));
            }
        }
    )*};
}
impl_half!(f16, bf16);

/// Runs `body` on `f32` copies of two operands and rounds its output.
fn widened<T: Float<Wide = f32>>(a: &[T], b: &[T], out: &mut [T], body: impl FnOnce(&[f32], &[f32], &mut [f32])) {
    with_scratch(a.len() + b.len() + out.len(), |wide: &mut [f32]| {
        let (wide_a, wide) = wide.split_at_mut(a.len());
        let (wide_b, wide_out) = wide.split_at_mut(b.len());
        wide_a.iter_mut().zip(a).for_each(|(to, from)| *to = from.widen());
        wide_b.iter_mut().zip(b).for_each(|(to, from)| *to = from.widen());
        body(wide_a, wide_b, wide_out);
        out.iter_mut().zip(wide_out).for_each(|(to, from)| *to = T::narrow(*from));
    });
}

#[cfg(test)]
mod tests;
