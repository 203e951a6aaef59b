//! Positions of extremes along one axis.

use crate::parallel;
use crate::scratch::with_scratch;
use cpu_macros::each_level;
use half::{bf16, f16};

/// An element type that can be compared for [`argmax`] and [`argmin`].
pub trait ArgElement: Copy + PartialOrd + bytemuck::NoUninit + bytemuck::AnyBitPattern + Send + Sync {
    /// The value that an element must exceed to be the largest.
    const LOWEST: Self;
    /// The value that an element must be below to be the smallest.
    const HIGHEST: Self;
}

macro_rules! impl_arg_element {
    ($($scalar:ty),*) => {$(
        impl ArgElement for $scalar {
            const LOWEST: Self = <$scalar>::MIN;
            const HIGHEST: Self = <$scalar>::MAX;
        }
    )*};
}
impl_arg_element!(f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64);

/// Writes the position of the first largest element along the middle axis of a shape `[outer, axis, inner]`. NaN is
/// never the largest; if nothing exceeds the lowest finite value, the position is 0.
pub fn argmax<T: ArgElement, I: Index>(a: &[T], dims: [usize; 3], out: &mut [I]) {
    arg(a, dims, out, T::LOWEST, |value, best| value > best);
}

/// Writes the position of the first smallest element; see [`argmax`].
pub fn argmin<T: ArgElement, I: Index>(a: &[T], dims: [usize; 3], out: &mut [I]) {
    arg(a, dims, out, T::HIGHEST, |value, best| value < best);
}

/// An integer type for positions.
pub trait Index: Copy + Send {
    /// Converts a position, which must fit.
    fn from_position(position: usize) -> Self;
}

macro_rules! impl_index {
    ($($scalar:ty),*) => {$(
        impl Index for $scalar {
            fn from_position(position: usize) -> Self {
                position as $scalar
            }
        }
    )*};
}
impl_index!(i16, u16, i32, i64);

fn arg<T: ArgElement, I: Index>(
    a: &[T],
    [outer, axis, inner]: [usize; 3],
    out: &mut [I],
    worst: T,
    better: impl Fn(T, T) -> bool + Sync,
) {
    assert_eq!(a.len(), outer * axis * inner, "the input has another size than its shape");
    assert_eq!(out.len(), outer * inner, "the output has another size than its shape");
    if out.is_empty() {
        return;
    }
    let cost = 0.5 * (axis * inner) as f64;
    parallel::for_each_chunk_mut(out, inner, cost, |first, out| {
        let a = &a[first * axis * inner..][..out.len() * axis];
        if inner == 1 {
            along_rows(a, axis, out, worst, &better);
        } else if axis > 0 {
            for (a, out) in a.chunks_exact(axis * inner).zip(out.chunks_exact_mut(inner)) {
                with_scratch(inner, |best: &mut [T]| along_columns(a, out, best, worst, &better));
            }
        } else {
            out.fill(I::from_position(0));
        }
    });
}

/// Finds the extreme, which vectorises, then its position.
#[each_level]
fn along_rows<T: ArgElement, I: Index, F: Fn(T, T) -> bool>(a: &[T], axis: usize, out: &mut [I], worst: T, better: &F) {
    const LANES: usize = 32;
    for (row, out) in out.iter_mut().enumerate() {
        let a = &a[row * axis..][..axis];
        let (chunks, rest) = a.as_chunks::<LANES>();
        let mut lanes = [worst; LANES];
        for chunk in chunks {
            for lane in 0..LANES {
                lanes[lane] = if better(chunk[lane], lanes[lane]) { chunk[lane] } else { lanes[lane] };
            }
        }
        let mut best = worst;
        for &value in lanes.iter().chain(rest) {
            best = if better(value, best) { value } else { best };
        }
        // If nothing beats the start value, TensorFlow returns position 0.
        let found = if better(best, worst) { a.iter().position(|&value| value == best) } else { None };
        *out = I::from_position(found.unwrap_or(0));
    }
}

#[each_level]
fn along_columns<T: ArgElement, I: Index, F: Fn(T, T) -> bool>(
    a: &[T],
    out: &mut [I],
    best: &mut [T],
    worst: T,
    better: &F,
) {
    best.fill(worst);
    out.fill(I::from_position(0));
    for (position, row) in a.chunks_exact(out.len()).enumerate() {
        for ((&value, best), out) in row.iter().zip(best.iter_mut()).zip(out.iter_mut()) {
            if better(value, *best) {
                *best = value;
                *out = I::from_position(position);
            }
        }
    }
}
