//! Applies bias and activation to rows of a product while they are still in the cache.

use super::Epilogue;
use crate::simd_math::SimdMath;
use cpu_macros::each_level;

/// An activation that can follow a product or a convolution, named as in TensorFlow's fused ops.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub enum Activation {
    /// None.
    #[default]
    Identity,
    /// `max(x, 0)`.
    Relu,
    /// `min(max(x, 0), 6)`.
    Relu6,
    /// `x` if positive, else `exp(x) - 1`.
    Elu,
    /// `x` if positive, else `alpha * x`.
    LeakyRelu(f32),
    /// The hyperbolic tangent.
    Tanh,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
}

/// An element type that an epilogue can be applied to.
pub(crate) trait EpilogueElement: Copy {
    /// Adds the bias of the columns from `first_column` on to a row or a part of one, and applies the activation.
    fn apply(epilogue: &Epilogue<'_, Self>, first_column: usize, row: &mut [Self]);
}

macro_rules! impl_apply {
    ($scalar:ty, $apply:ident) => {
        impl EpilogueElement for $scalar {
            fn apply(epilogue: &Epilogue<'_, Self>, first_column: usize, row: &mut [Self]) {
                let bias = epilogue.bias.map(|bias| &bias[first_column..first_column + row.len()]);
                $apply(row, bias, epilogue.activation);
            }
        }

        #[each_level]
        fn $apply(row: &mut [$scalar], bias: Option<&[$scalar]>, activation: Activation) {
            if let Some(bias) = bias {
                for (value, &bias) in row.iter_mut().zip(bias) {
                    *value += bias;
                }
            }
            // Comparisons that are false for NaN keep it, as TensorFlow does.
            match activation {
                Activation::Identity => {}
                Activation::Relu => {
                    row.iter_mut().for_each(|value| *value = if *value <= 0.0 { 0.0 } else { *value });
                }
                Activation::Relu6 => row.iter_mut().for_each(|value| {
                    let positive = if *value < 0.0 { 0.0 } else { *value };
                    *value = if positive > 6.0 { 6.0 } else { positive };
                }),
                Activation::LeakyRelu(alpha) => row.iter_mut().for_each(|value| {
                    *value = if *value > 0.0 { *value } else { *value * <$scalar>::from(alpha) };
                }),
                Activation::Elu => {
                    row.iter_mut().for_each(|value| *value = if *value < 0.0 { value.simd_expm1() } else { *value });
                }
                Activation::Tanh => row.iter_mut().for_each(|value| *value = value.simd_tanh()),
                Activation::Sigmoid => row.iter_mut().for_each(|value| *value = value.simd_sigmoid()),
            }
        }
    };
}

impl_apply!(f32, apply_f32);
impl_apply!(f64, apply_f64);
