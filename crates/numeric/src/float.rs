//! The floating-point types that kernels are written for, and the types that they compute in.

use crate::simd::MulAdd;
use crate::simd_math::SimdMath;
use bytemuck::Pod;
use half::{bf16, f16};

/// A floating-point element type. Half-precision types are computed in `f32`.
pub trait Float: Pod + PartialOrd + Send + Sync + Default {
    /// The type in which sums and functions of this type are computed.
    type Wide: WideFloat;
    /// Converts to the type of computations.
    fn widen(self) -> Self::Wide;
    /// Rounds a result to this type.
    fn narrow(wide: Self::Wide) -> Self;
}

/// A floating-point type that is computed in directly.
pub trait WideFloat: Float<Wide = Self> + num_traits::Float + SimdMath + MulAdd + std::iter::Sum {
    /// Rounds a constant or a hyper-parameter to this type.
    fn of(value: f64) -> Self;
}

macro_rules! impl_wide {
    ($($scalar:ty),*) => {$(
        impl Float for $scalar {
            type Wide = $scalar;
            #[inline(always)]
            fn widen(self) -> $scalar {
                self
            }
            #[inline(always)]
            fn narrow(wide: $scalar) -> $scalar {
                wide
            }
        }
        impl WideFloat for $scalar {
            #[inline(always)]
            fn of(value: f64) -> $scalar {
                value as $scalar
            }
        }
    )*};
}
impl_wide!(f32, f64);

macro_rules! impl_half {
    ($($scalar:ty),*) => {$(
        impl Float for $scalar {
            type Wide = f32;
            #[inline(always)]
            fn widen(self) -> f32 {
                self.to_f32()
            }
            #[inline(always)]
            fn narrow(wide: f32) -> $scalar {
                <$scalar>::from_f32(wide)
            }
        }
    )*};
}
impl_half!(f16, bf16);
