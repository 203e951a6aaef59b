//! Vector registers behind one trait, so that a micro-kernel is written once for all widths and element types.
//!
//! The methods are inlined into a `#[target_feature]` function that enables the features of the register type. Called from
//! elsewhere they would be slow, and undefined behaviour on a machine without the feature, so they are unsafe.

use num_complex::Complex;

/// A register of `LANES` scalars.
///
/// # Safety
/// Every method requires that the processor has the instruction set of the implementing type; `load` and `store`
/// require `LANES` valid scalars at the pointer, which needs no alignment.
pub(crate) trait Lanes: Copy {
    type Scalar: Copy;
    const LANES: usize;

    unsafe fn splat(value: Self::Scalar) -> Self;
    unsafe fn load(from: *const Self::Scalar) -> Self;
    unsafe fn store(self, to: *mut Self::Scalar);
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    /// Returns `self * factor + addend`.
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self;
}

/// Multiplication and addition as TensorFlow's matmul does them: integers wrap, floats may fuse.
pub trait MulAdd: Copy {
    /// The additive identity.
    const ZERO: Self;
    /// Returns `self + other`.
    fn plus(self, other: Self) -> Self;
    /// Returns `self - other`.
    fn minus(self, other: Self) -> Self;
    /// Returns `self * other`.
    fn times(self, other: Self) -> Self;
    /// Returns `self * factor + addend`.
    fn times_plus(self, factor: Self, addend: Self) -> Self;
    /// Returns whether it is zero, of either sign.
    fn is_zero(self) -> bool;
    /// Returns whether it is neither infinite nor NaN, so that zero times it is zero.
    fn is_finite(self) -> bool;
}

macro_rules! impl_mul_add_for_floats {
    ($($scalar:ty),*) => {$(
        impl MulAdd for $scalar {
            const ZERO: Self = 0.0;
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self - other
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn times_plus(self, factor: Self, addend: Self) -> Self {
                self * factor + addend
            }
            #[inline(always)]
            fn is_zero(self) -> bool {
                self == 0.0
            }
            #[inline(always)]
            fn is_finite(self) -> bool {
                self.abs() < <$scalar>::INFINITY
            }
        }
        impl MulAdd for Complex<$scalar> {
            const ZERO: Self = Complex { re: 0.0, im: 0.0 };
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self - other
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn times_plus(self, factor: Self, addend: Self) -> Self {
                self * factor + addend
            }
            #[inline(always)]
            fn is_zero(self) -> bool {
                self.re == 0.0 && self.im == 0.0
            }
            #[inline(always)]
            fn is_finite(self) -> bool {
                self.re.abs() < <$scalar>::INFINITY && self.im.abs() < <$scalar>::INFINITY
            }
        }
    )*};
}

macro_rules! impl_mul_add_for_integers {
    ($($scalar:ty),*) => {$(
        impl MulAdd for $scalar {
            const ZERO: Self = 0;
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn times_plus(self, factor: Self, addend: Self) -> Self {
                self.wrapping_mul(factor).wrapping_add(addend)
            }
            #[inline(always)]
            fn is_zero(self) -> bool {
                self == 0
            }
            #[inline(always)]
            fn is_finite(self) -> bool {
                true
            }
        }
    )*};
}

impl_mul_add_for_floats!(f32, f64);
impl_mul_add_for_integers!(i8, i16, i32, i64, u8, u16, u32, u64);

/// Computes each lane. `std::array::from_fn` would do the same, but takes ten times as long to compile.
#[inline(always)]
fn each_lane<T: Copy, const N: usize>(mut lanes: [T; N], compute: impl Fn(usize) -> T) -> [T; N] {
    for lane in 0..N {
        lanes[lane] = compute(lane);
    }
    lanes
}

/// A portable register: the compiler vectorises what it can.
impl<T: MulAdd, const N: usize> Lanes for [T; N] {
    type Scalar = T;
    const LANES: usize = N;

    #[inline(always)]
    unsafe fn splat(value: T) -> Self {
        [value; N]
    }
    #[inline(always)]
    unsafe fn load(from: *const T) -> Self {
        // SAFETY: the caller promises `N` scalars; arrays of scalars have no padding.
        unsafe { from.cast::<[T; N]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut T) {
        // SAFETY: as in `load`.
        unsafe { to.cast::<[T; N]>().write_unaligned(self) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        each_lane(
            self,
            #[inline(always)]
            |lane| self[lane].plus(other[lane]),
        )
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        each_lane(
            self,
            #[inline(always)]
            |lane| self[lane].minus(other[lane]),
        )
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        each_lane(
            self,
            #[inline(always)]
            |lane| self[lane].times(other[lane]),
        )
    }
    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self {
        each_lane(
            self,
            #[inline(always)]
            |lane| self[lane].times_plus(factor[lane], addend[lane]),
        )
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Lanes;
    use std::arch::x86_64::*;

    macro_rules! impl_lanes {
        (
            $register:ty, $scalar:ty, $lanes:expr, $splat:ident, $load:ident, $store:ident, $add:ident, $sub:ident,
            $mul:ident, $mul_add:ident
        ) => {
            impl Lanes for $register {
                type Scalar = $scalar;
                const LANES: usize = $lanes;

                #[inline(always)]
                unsafe fn splat(value: $scalar) -> Self {
                    // SAFETY: the caller has the instruction set.
                    unsafe { $splat(value) }
                }
                #[inline(always)]
                unsafe fn load(from: *const $scalar) -> Self {
                    // SAFETY: the caller has the instruction set and valid scalars.
                    unsafe { $load(from) }
                }
                #[inline(always)]
                unsafe fn store(self, to: *mut $scalar) {
                    // SAFETY: the caller has the instruction set and valid scalars.
                    unsafe { $store(to, self) }
                }
                #[inline(always)]
                unsafe fn add(self, other: Self) -> Self {
                    // SAFETY: the caller has the instruction set.
                    unsafe { $add(self, other) }
                }
                #[inline(always)]
                unsafe fn sub(self, other: Self) -> Self {
                    // SAFETY: the caller has the instruction set.
                    unsafe { $sub(self, other) }
                }
                #[inline(always)]
                unsafe fn mul(self, other: Self) -> Self {
                    // SAFETY: the caller has the instruction set.
                    unsafe { $mul(self, other) }
                }
                #[inline(always)]
                unsafe fn mul_add(self, factor: Self, addend: Self) -> Self {
                    // SAFETY: the caller has the instruction set.
                    unsafe { $mul_add(self, factor, addend) }
                }
            }
        };
    }

    impl_lanes!(
        __m256,
        f32,
        8,
        _mm256_set1_ps,
        _mm256_loadu_ps,
        _mm256_storeu_ps,
        _mm256_add_ps,
        _mm256_sub_ps,
        _mm256_mul_ps,
        _mm256_fmadd_ps
    );
    impl_lanes!(
        __m256d,
        f64,
        4,
        _mm256_set1_pd,
        _mm256_loadu_pd,
        _mm256_storeu_pd,
        _mm256_add_pd,
        _mm256_sub_pd,
        _mm256_mul_pd,
        _mm256_fmadd_pd
    );
    impl_lanes!(
        __m512,
        f32,
        16,
        _mm512_set1_ps,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        _mm512_add_ps,
        _mm512_sub_ps,
        _mm512_mul_ps,
        _mm512_fmadd_ps
    );
    impl_lanes!(
        __m512d,
        f64,
        8,
        _mm512_set1_pd,
        _mm512_loadu_pd,
        _mm512_storeu_pd,
        _mm512_add_pd,
        _mm512_sub_pd,
        _mm512_mul_pd,
        _mm512_fmadd_pd
    );
}
