//! The operations of reductions: sums, products, extremes and truth values, for each element type.

use crate::simd::MulAdd;
use half::{bf16, f16};
use num_complex::Complex;

/// An operation that reduces elements of type `T` to one result.
///
/// Many lanes accumulate a block of elements in parallel; the lanes of a block are then merged into a total. Floating-point
/// sums keep the total in a wider type, so that the error does not grow with the length.
pub trait Reducer<T: Copy>: Sync {
    /// The accumulator of a lane within a block.
    type Lane: Copy + Send + Sync;
    /// The accumulator of the blocks.
    type Total: Copy + Send + Sync;
    /// Whether the result of a single element is that element.
    const KEEPS_ONE: bool = true;
    /// An empty lane.
    const LANE: Self::Lane;
    /// An empty total.
    const TOTAL: Self::Total;
    /// Accumulates an element in a lane.
    fn step(lane: Self::Lane, value: T) -> Self::Lane;
    /// Accumulates a lane in a total.
    fn gather(total: Self::Total, lane: Self::Lane) -> Self::Total;
    /// Combines two totals.
    fn merge(total: Self::Total, other: Self::Total) -> Self::Total;
    /// Returns the result of `count` elements.
    fn finish(total: Self::Total, count: usize) -> T;
}

/// The sum.
pub struct Sum;
/// The sum divided by the number of elements.
pub struct Mean;
/// The sum of the squares.
pub struct SumOfSquares;
/// The square root of the sum of the squares.
pub struct EuclideanNorm;
/// The product.
pub struct Product;
/// The largest element; NaN if any is NaN.
pub struct Max;
/// The smallest element; NaN if any is NaN.
pub struct Min;
/// Whether all are true.
pub struct All;
/// Whether any is true.
pub struct Any;

macro_rules! additive {
    ($reducer:ident, $keeps_one:literal, $scalar:ty, $lane:ty, $total:ty, $lift:expr, $finish:expr) => {
        impl Reducer<$scalar> for $reducer {
            type Lane = $lane;
            type Total = $total;
            const KEEPS_ONE: bool = $keeps_one;
            const LANE: $lane = <$lane as MulAdd>::ZERO;
            const TOTAL: $total = <$total as MulAdd>::ZERO;
            #[inline(always)]
            fn step(lane: $lane, value: $scalar) -> $lane {
                #[allow(clippy::redundant_closure_call)]
                lane.plus(($lift)(value))
            }
            #[inline(always)]
            fn gather(total: $total, lane: $lane) -> $total {
                total.plus(lane.into())
            }
            #[inline(always)]
            fn merge(total: $total, other: $total) -> $total {
                total.plus(other)
            }
            #[inline(always)]
            fn finish(total: $total, count: usize) -> $scalar {
                let finish: fn($total, usize) -> $scalar = $finish;
                finish(total, count)
            }
        }
    };
}

macro_rules! multiplicative {
    ($scalar:ty, $lane:ty, $one:expr, $lift:expr, $times:expr, $lower:expr) => {
        impl Reducer<$scalar> for Product {
            type Lane = $lane;
            type Total = $lane;
            const LANE: $lane = $one;
            const TOTAL: $lane = $one;
            #[inline(always)]
            fn step(lane: $lane, value: $scalar) -> $lane {
                #[allow(clippy::redundant_closure_call)]
                ($times)(lane, ($lift)(value))
            }
            #[inline(always)]
            fn gather(total: $lane, lane: $lane) -> $lane {
                #[allow(clippy::redundant_closure_call)]
                ($times)(total, lane)
            }
            #[inline(always)]
            fn merge(total: $lane, other: $lane) -> $lane {
                #[allow(clippy::redundant_closure_call)]
                ($times)(total, other)
            }
            #[inline(always)]
            fn finish(total: $lane, _: usize) -> $scalar {
                #[allow(clippy::redundant_closure_call)]
                ($lower)(total)
            }
        }
    };
}

/// Implements an extreme: `$better` is a strict comparison, and values for which `$is_nan` holds win over all others.
macro_rules! extreme {
    ($reducer:ident, $scalar:ty, $worst:expr, $better:tt, $is_nan:expr) => {
        impl Reducer<$scalar> for $reducer {
            type Lane = $scalar;
            type Total = $scalar;
            const LANE: $scalar = $worst;
            const TOTAL: $scalar = $worst;
            #[inline(always)]
            fn step(lane: $scalar, value: $scalar) -> $scalar {
                #[allow(clippy::redundant_closure_call)]
                if value $better lane || ($is_nan)(value) { value } else { lane }
            }
            #[inline(always)]
            fn gather(total: $scalar, lane: $scalar) -> $scalar {
                <$reducer as Reducer<$scalar>>::step(total, lane)
            }
            #[inline(always)]
            fn merge(total: $scalar, other: $scalar) -> $scalar {
                <$reducer as Reducer<$scalar>>::step(total, other)
            }
            #[inline(always)]
            fn finish(total: $scalar, _: usize) -> $scalar {
                total
            }
        }
    };
}

macro_rules! floats {
    ($scalar:ty, $lane:ty, $lift:expr, $lower:expr, $infinity:expr, $negative_infinity:expr) => {
        additive!(Sum, true, $scalar, $lane, f64, $lift, |total, _| ($lower)(total));
        additive!(Mean, true, $scalar, $lane, f64, $lift, |total, count| ($lower)(total / count as f64));
        additive!(SumOfSquares, false, $scalar, $lane, f64, |x| { let x: $lane = ($lift)(x); x * x }, |total, _| ($lower)(total));
        additive!(EuclideanNorm, false, $scalar, $lane, f64, |x| { let x: $lane = ($lift)(x); x * x }, |total, _| ($lower)(total.sqrt()));
        multiplicative!($scalar, $lane, 1.0, $lift, |a: $lane, b: $lane| a * b, |total: $lane| ($lower)(f64::from(total)));
        extreme!(Max, $scalar, $negative_infinity, >, |x: $scalar| x.is_nan());
        extreme!(Min, $scalar, $infinity, <, |x: $scalar| x.is_nan());
    };
}
floats!(f32, f32, |x| x, |x: f64| x as f32, f32::INFINITY, f32::NEG_INFINITY);
floats!(f64, f64, |x| x, |x: f64| x, f64::INFINITY, f64::NEG_INFINITY);
floats!(f16, f32, |x: f16| x.to_f32(), f16::from_f64, f16::INFINITY, f16::NEG_INFINITY);
floats!(bf16, f32, |x: bf16| x.to_f32(), bf16::from_f64, bf16::INFINITY, bf16::NEG_INFINITY);

/// Takes an integer square root. If the sum of squares has wrapped to a negative number, the result is what the processor
/// converts NaN to, as in TensorFlow.
macro_rules! integer_root {
    ($total:ident, $scalar:ty) => {{
        let root = ($total as f64).sqrt();
        match root.is_nan() {
            true if <$scalar>::BITS == 64 => i64::MIN as $scalar,
            true => i32::MIN as $scalar,
            false => root as $scalar,
        }
    }};
}

macro_rules! integers {
    ($($scalar:ty),*) => {$(
        additive!(Sum, true, $scalar, $scalar, $scalar, |x| x, |total, _| total);
        // The division truncates and its divisor wraps, as in TensorFlow.
        additive!(Mean, true, $scalar, $scalar, $scalar, |x| x, |total, count| total.checked_div(count as $scalar).unwrap_or(0));
        additive!(SumOfSquares, false, $scalar, $scalar, $scalar, |x: $scalar| x.wrapping_mul(x), |total, _| total);
        additive!(EuclideanNorm, false, $scalar, $scalar, $scalar, |x: $scalar| x.wrapping_mul(x), |total, _| integer_root!(total, $scalar));
        multiplicative!($scalar, $scalar, 1, |x| x, |a: $scalar, b: $scalar| a.wrapping_mul(b), |total| total);
        extreme!(Max, $scalar, <$scalar>::MIN, >, |_| false);
        extreme!(Min, $scalar, <$scalar>::MAX, <, |_| false);
    )*};
}
integers!(i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! complex {
    ($($part:ty),*) => {$(
        additive!(Sum, true, Complex<$part>, Complex<$part>, Complex<$part>, |x| x, |total, _| total);
        additive!(Mean, true, Complex<$part>, Complex<$part>, Complex<$part>, |x| x, |total, count| total / count as $part);
        additive!(SumOfSquares, false, Complex<$part>, Complex<$part>, Complex<$part>, |x: Complex<$part>| x * x, |total, _| total);
        additive!(EuclideanNorm, false, Complex<$part>, Complex<$part>, Complex<$part>, |x: Complex<$part>| x * x.conj(), |total, _| total.sqrt());
        multiplicative!(Complex<$part>, Complex<$part>, Complex { re: 1.0, im: 0.0 }, |x| x, |a: Complex<$part>, b: Complex<$part>| a * b, |total| total);
    )*};
}
complex!(f32, f64);

macro_rules! truth {
    ($reducer:ident, $identity:literal, $operator:tt) => {
        impl Reducer<bool> for $reducer {
            type Lane = bool;
            type Total = bool;
            const LANE: bool = $identity;
            const TOTAL: bool = $identity;
            #[inline(always)]
            fn step(lane: bool, value: bool) -> bool {
                lane $operator value
            }
            #[inline(always)]
            fn gather(total: bool, lane: bool) -> bool {
                total $operator lane
            }
            #[inline(always)]
            fn merge(total: bool, other: bool) -> bool {
                total $operator other
            }
            #[inline(always)]
            fn finish(total: bool, _: usize) -> bool {
                total
            }
        }
    };
}
truth!(All, true, &);
truth!(Any, false, |);
