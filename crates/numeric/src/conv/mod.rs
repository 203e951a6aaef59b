//! Convolutions and their gradients, channels last, in one, two or three spatial dimensions, with strides, dilations and
//! groups.
//!
//! The micro-kernel of the matrix product reads the windows straight from the image (from a small padded copy where they
//! reach beyond it), so windows are never copied out. 3x3 and 5x5 windows over enough channels use Winograd's transform,
//! which needs fewer multiplications.

mod depthwise;
mod filter_grad;
mod forward;
mod input_grad;
mod shape;
mod tiles;
mod transform;
mod winograd;

pub use depthwise::{DepthwiseShape, depthwise_conv2d, depthwise_conv2d_filter_grad, depthwise_conv2d_input_grad};
pub use shape::ConvShape;

use crate::float::Float;
use crate::matmul::{
    Activation, Epilogue, EpilogueElement, FusedMatMulElement, MatMulShape, Operand, matmul, matmul_bias_activation,
};
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

/// Returns the matrix product that a convolution is equal to, if its window is one pixel or covers the whole image.
fn as_product(shape: &ConvShape) -> Option<MatMulShape> {
    if shape.groups != 1 || shape.pad_before != [0; 3] {
        return None;
    }
    let pixelwise = shape.filter == [1; 3] && shape.strides == [1; 3] && shape.input == shape.output;
    let whole = shape.output == [1; 3] && shape.filter == shape.input && shape.dilations == [1; 3];
    let pixels = shape.batch * shape.output.iter().product::<usize>();
    (pixelwise || whole).then(|| MatMulShape::new(pixels, shape.taps() * shape.in_channels, shape.out_channels))
}

impl ConvElement for f32 {
    fn forward(shape: &ConvShape, input: &[f32], filter: &[f32], out: &mut [f32], epilogue: Epilogue<'_, f32>) {
        let finish = |pixels: &mut [f32]| apply(&epilogue, shape.out_channels, pixels);
        match winograd::Tiling::of(shape) {
            Some(tiling) => winograd::forward(shape, &tiling, input, filter, out, finish),
            None => forward::forward(shape, input, filter, out, finish),
        }
    }
    fn input_grad(shape: &ConvShape, filter: &[f32], gradient: &[f32], out: &mut [f32]) {
        input_grad::input_grad(shape, filter, gradient, out, |shape, gradient, filter, out| {
            f32::forward(shape, gradient, filter, out, Epilogue::NONE);
        });
    }
    fn filter_grad(shape: &ConvShape, input: &[f32], gradient: &[f32], out: &mut [f32]) {
        if let Some(tiling) = winograd::Tiling::of(shape)
            && winograd::filter_grad(shape, &tiling, input, gradient, out)
        {
            return;
        }
        filter_grad::filter_grad(shape, input, gradient, out);
    }
}

impl ConvElement for f64 {
    fn forward(shape: &ConvShape, input: &[f64], filter: &[f64], out: &mut [f64], epilogue: Epilogue<'_, f64>) {
        forward::forward(shape, input, filter, out, |pixels| apply(&epilogue, shape.out_channels, pixels));
    }
    fn input_grad(shape: &ConvShape, filter: &[f64], gradient: &[f64], out: &mut [f64]) {
        input_grad::input_grad(shape, filter, gradient, out, |shape, gradient, filter, out| {
            f64::forward(shape, gradient, filter, out, Epilogue::NONE);
        });
    }
    fn filter_grad(shape: &ConvShape, input: &[f64], gradient: &[f64], out: &mut [f64]) {
        filter_grad::filter_grad(shape, input, gradient, out);
    }
}

/// Applies the epilogue to some pixels of `channels` channels.
fn apply<T: EpilogueElement>(epilogue: &Epilogue<'_, T>, channels: usize, pixels: &mut [T]) {
    if epilogue.bias.is_some() || epilogue.activation != Activation::Identity {
        pixels.chunks_exact_mut(channels).for_each(|pixel| T::apply(epilogue, 0, pixel));
    }
}

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
