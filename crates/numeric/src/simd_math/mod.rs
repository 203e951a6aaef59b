//! Vectorised elementary functions.
//!
//! The trait [`SimdMath`] gives scalars functions without branches or calls. In a loop of [`crate::elementwise`], or any
//! function compiled for AVX2, they vectorise, alone or in larger expressions: `unary(a, out, |x| x * x.simd_tanh())`. The free
//! functions are the common loops. The documentation of each function states its error in units in the last place; infinities,
//! NaN, zeros and subnormals behave as in C's libm. Half-precision types compute in `f32`.

pub mod double;
pub mod single;

use crate::elementwise::{unary_in_place_with_cost, unary_with_cost};
use crate::parallel;
use half::{bf16, f16};
use std::ops::{Add, Mul};

/// Elementary functions that vectorise.
pub trait SimdMath: Copy + Send + Sync {
    /// `eˣ`.
    fn simd_exp(self) -> Self;
    /// `eˣ - 1`, accurate near zero.
    fn simd_expm1(self) -> Self;
    /// Natural logarithm.
    fn simd_log(self) -> Self;
    /// `log(1 + x)`, accurate near zero.
    fn simd_log1p(self) -> Self;
    /// Hyperbolic tangent.
    fn simd_tanh(self) -> Self;
    /// `1 / (1 + e⁻ˣ)`.
    fn simd_sigmoid(self) -> Self;
    /// `log(1 + eˣ)`.
    fn simd_softplus(self) -> Self;
    /// `1 / √x`.
    fn simd_rsqrt(self) -> Self;
    /// `√x`.
    fn simd_sqrt(self) -> Self;
    /// The error function.
    fn simd_erf(self) -> Self;
    /// `1 - erf(x)`, accurate for large `x`.
    fn simd_erfc(self) -> Self;
    /// `selfʸ`.
    fn simd_pow(self, y: Self) -> Self;
}

macro_rules! forward {
    ($($method:ident = $function:path),*) => {$(
        #[inline(always)]
        fn $method(self) -> Self {
            $function(self)
        }
    )*};
}

impl SimdMath for f32 {
    forward!(
        simd_exp = single::exp,
        simd_expm1 = single::expm1,
        simd_log = single::log,
        simd_log1p = single::log1p,
        simd_tanh = single::tanh,
        simd_sigmoid = single::sigmoid,
        simd_softplus = single::softplus,
        simd_sqrt = f32::sqrt,
        simd_erf = single::erf,
        simd_erfc = single::erfc
    );
    #[inline(always)]
    fn simd_rsqrt(self) -> Self {
        1.0 / self.sqrt()
    }
    #[inline(always)]
    fn simd_pow(self, y: Self) -> Self {
        single::pow(self, y)
    }
}

impl SimdMath for f64 {
    forward!(
        simd_exp = double::exp,
        simd_expm1 = double::expm1,
        simd_log = double::log,
        simd_log1p = double::log1p,
        simd_tanh = double::tanh,
        simd_sigmoid = double::sigmoid,
        simd_softplus = double::softplus,
        simd_sqrt = f64::sqrt,
        simd_erf = libm::erf,
        simd_erfc = libm::erfc
    );
    #[inline(always)]
    fn simd_rsqrt(self) -> Self {
        1.0 / self.sqrt()
    }
    #[inline(always)]
    fn simd_pow(self, y: Self) -> Self {
        self.powf(y)
    }
}

macro_rules! impl_half {
    ($($half:ty),*) => {$(
        impl SimdMath for $half {
            impl_half!(@each $half: simd_exp simd_expm1 simd_log simd_log1p simd_tanh simd_sigmoid simd_softplus
                simd_rsqrt simd_sqrt simd_erf simd_erfc);
            #[inline(always)]
            fn simd_pow(self, y: Self) -> Self {
                Self::from_f32(self.to_f32().simd_pow(y.to_f32()))
            }
        }
    )*};
    (@each $half:ty: $($method:ident)*) => {$(
        #[inline(always)]
        fn $method(self) -> Self {
            Self::from_f32(self.to_f32().$method())
        }
    )*};
}
impl_half!(f16, bf16);

macro_rules! loops {
    ($($(#[$doc:meta])* $name:ident, $name_in_place:ident, $method:ident, $cost_ns:literal;)*) => {$(
        $(#[$doc])*
        pub fn $name<T: SimdMath>(a: &[T], out: &mut [T]) {
            unary_with_cost($cost_ns, a, out, #[inline(always)] |x: T| x.$method());
        }
        $(#[$doc])*
        pub fn $name_in_place<T: SimdMath>(a: &mut [T]) {
            unary_in_place_with_cost($cost_ns, a, #[inline(always)] |x: T| x.$method());
        }
    )*};
}

loops! {
    /// `eˣ` of each element.
    exp, exp_in_place, simd_exp, 0.8;
    /// `eˣ - 1` of each element.
    expm1, expm1_in_place, simd_expm1, 0.8;
    /// Natural logarithm of each element.
    log, log_in_place, simd_log, 1.0;
    /// `log(1 + x)` of each element.
    log1p, log1p_in_place, simd_log1p, 3.0;
    /// Hyperbolic tangent of each element.
    tanh, tanh_in_place, simd_tanh, 1.2;
    /// `1 / (1 + e⁻ˣ)` of each element.
    sigmoid, sigmoid_in_place, simd_sigmoid, 1.2;
    /// `log(1 + eˣ)` of each element.
    softplus, softplus_in_place, simd_softplus, 4.0;
    /// `1 / √x` of each element.
    rsqrt, rsqrt_in_place, simd_rsqrt, 1.0;
    /// `√x` of each element.
    sqrt, sqrt_in_place, simd_sqrt, 0.8;
    /// The error function of each element.
    erf, erf_in_place, simd_erf, 5.0;
    /// The complement of the error function of each element.
    erfc, erfc_in_place, simd_erfc, 5.0;
}

/// Sine of each element, within 1 ulp.
pub fn sin(a: &[f32], out: &mut [f32]) {
    trigonometric(a, out, single::sin, f32::sin);
}

/// Cosine of each element, within 1 ulp.
pub fn cos(a: &[f32], out: &mut [f32]) {
    trigonometric(a, out, single::cos, f32::cos);
}

/// Runs the vector function on blocks whose arguments it can reduce, and the standard library's on the others.
fn trigonometric(a: &[f32], out: &mut [f32], vector: impl Fn(f32) -> f32 + Sync, library: impl Fn(f32) -> f32 + Sync) {
    assert_eq!(a.len(), out.len(), "operand and output differ in length");
    parallel::for_each_chunk_mut(out, 1, 2.0, |first, out| {
        for (a, out) in a[first..first + out.len()].chunks(256).zip(out.chunks_mut(256)) {
            let largest = a.iter().fold(0.0f32, |largest, x| if x.abs() > largest { x.abs() } else { largest });
            if largest <= single::TRIGONOMETRIC_RANGE {
                unary_with_cost(0.0, a, out, &vector);
            } else {
                unary_with_cost(0.0, a, out, &library);
            }
        }
    });
}

/// Evaluates a polynomial, coefficients of low degree first, two at a time so that the multiplications overlap.
#[inline(always)]
fn polynomial<T: Copy + Add<Output = T> + Mul<Output = T> + MulAddFloat, const N: usize>(
    x: T,
    coefficients: &[T; N],
) -> T {
    let square = x * x;
    let pair = |low: usize| {
        if low + 1 < N { coefficients[low + 1].fused(x, coefficients[low]) } else { coefficients[low] }
    };
    let mut low = (N - 1) & !1;
    let mut sum = pair(low);
    while low > 0 {
        low -= 2;
        sum = sum.fused(square, pair(low));
    }
    sum
}

/// Returns `self * factor + addend`, rounded once.
trait MulAddFloat {
    fn fused(self, factor: Self, addend: Self) -> Self;
}

impl MulAddFloat for f32 {
    #[inline(always)]
    fn fused(self, factor: f32, addend: f32) -> f32 {
        self.mul_add(factor, addend)
    }
}

impl MulAddFloat for f64 {
    #[inline(always)]
    fn fused(self, factor: f64, addend: f64) -> f64 {
        self.mul_add(factor, addend)
    }
}

#[cfg(test)]
mod tests;
