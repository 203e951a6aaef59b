//! Maximum pooling, the positions of the maxima, and gradients through them.

use super::PoolShape;
use crate::parallel::{self, SharedMut};
use crate::scratch::with_scratch;
use bytemuck::Pod;
use cpu_macros::each_level;
use half::{bf16, f16};

/// An element type of maximum pooling.
pub trait PoolElement: Pod + PartialOrd + Send + Sync {
    /// The value that the search for the maximum starts from.
    const LOWEST: Self;
    /// Zero.
    const ZERO: Self;
    /// Returns the sum of two gradients.
    fn plus(self, other: Self) -> Self;
}

macro_rules! impl_pool_element {
    ($($scalar:ty: $zero:expr, $plus:expr;)*) => {$(
        impl PoolElement for $scalar {
            const LOWEST: Self = <$scalar>::MIN;
            const ZERO: Self = $zero;
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                #[allow(clippy::redundant_closure_call)]
                ($plus)(self, other)
            }
        }
    )*};
}
impl_pool_element! {
    f32: 0.0, |a, b| a + b;
    f64: 0.0, |a, b| a + b;
    f16: f16::ZERO, |a, b| a + b;
    bf16: bf16::ZERO, |a, b| a + b;
    i8: 0, i8::wrapping_add;
    i16: 0, i16::wrapping_add;
    i32: 0, i32::wrapping_add;
    i64: 0, i64::wrapping_add;
    u8: 0, u8::wrapping_add;
    u16: 0, u16::wrapping_add;
    u32: 0, u32::wrapping_add;
    u64: 0, u64::wrapping_add;
}

/// Writes the largest element under each window, for each channel.
pub fn max_pool<T: PoolElement>(shape: &PoolShape, input: &[T], out: &mut [T]) {
    shape.check(input.len(), out.len());
    shape.for_each_pixel(out, |first, pixels| max_pixels(shape, input, first, pixels));
}

/// Writes the largest element under each window and its position: the offset in its example or, with `include_batch`, in the
/// whole input.
pub fn max_pool_argmax<T: PoolElement>(
    shape: &PoolShape,
    input: &[T],
    include_batch: bool,
    out: &mut [T],
    positions: &mut [i64],
) {
    shape.check(input.len(), out.len());
    assert_eq!(out.len(), positions.len(), "there must be one position for each maximum");
    let (out, positions) = (SharedMut::new(out), SharedMut::new(positions));
    let pixels_per_image: usize = shape.output.iter().product();
    parallel::for_each_chunk(shape.batch * pixels_per_image, 2.0 * shape.pixel_cost(), |range| {
        let len = range.len() * shape.channels;
        // SAFETY: ranges of pixels are disjoint.
        let (out, positions) = unsafe {
            (out.slice(range.start * shape.channels, len), positions.slice(range.start * shape.channels, len))
        };
        for (offset, index) in range.enumerate() {
            let base = index / pixels_per_image * shape.in_image_len();
            let own = offset * shape.channels..(offset + 1) * shape.channels;
            find_first_largest(
                shape,
                &input[base..][..shape.in_image_len()],
                index,
                &mut out[own.clone()],
                &mut positions[own.clone()],
            );
            if include_batch {
                positions[own].iter_mut().for_each(|position| *position += base as i64);
            }
        }
    });
}

/// Writes the gradient of the input: each output's gradient is added to the first largest element under its window.
pub fn max_pool_grad<T: PoolElement>(shape: &PoolShape, input: &[T], gradient: &[T], out: &mut [T]) {
    shape.check(input.len(), gradient.len());
    assert_eq!(out.len(), input.len(), "the gradient of the input has another size than the input");
    shape.for_each_image(out, |example, image| {
        image.fill(T::ZERO);
        let input = &input[example * shape.in_image_len()..][..shape.in_image_len()];
        let gradient = &gradient[example * shape.out_image_len()..][..shape.out_image_len()];
        with_scratch(shape.channels, |best: &mut [T]| {
            with_scratch(shape.channels, |tap: &mut [u32]| {
                grad_of_image(shape, input, gradient, image, best, tap);
            });
        });
    });
}

/// Writes the second-order gradient: for each window, the element of `gradient` (shaped like the input) at the position of
/// the window's maximum.
pub fn max_pool_grad_grad<T: PoolElement>(shape: &PoolShape, input: &[T], gradient: &[T], out: &mut [T]) {
    shape.check(input.len(), out.len());
    assert_eq!(gradient.len(), input.len(), "the gradient has another size than the input");
    let mut positions = vec![0i64; out.len()];
    max_pool_argmax(shape, input, true, out, &mut positions);
    for (out, &position) in out.iter_mut().zip(&positions) {
        // A window that lies entirely in the padding has no maximum.
        *out = usize::try_from(position).ok().and_then(|at| gradient.get(at)).copied().unwrap_or(T::ZERO);
    }
}

#[each_level]
fn max_pixels<T: PoolElement>(shape: &PoolShape, input: &[T], first: usize, pixels: &mut [T]) {
    let pixels_per_image: usize = shape.output.iter().product();
    for (offset, out) in pixels.chunks_exact_mut(shape.channels).enumerate() {
        let index = first + offset;
        let image = &input[index / pixels_per_image * shape.in_image_len()..][..shape.in_image_len()];
        out.fill(T::LOWEST);
        shape.for_each_under(index, |at| {
            let values = &image[at..at + out.len()];
            for (out, &value) in out.iter_mut().zip(values) {
                *out = if value > *out { value } else { *out };
            }
        });
    }
}

/// Finds the first largest element of each window. The search starts with the first element, even if that is NaN.
fn find_first_largest<T: PoolElement>(
    shape: &PoolShape,
    image: &[T],
    index: usize,
    best: &mut [T],
    positions: &mut [i64],
) {
    best.fill(T::LOWEST);
    positions.fill(-1);
    shape.for_each_under(index, |at| {
        for channel in 0..shape.channels {
            let value = image[at + channel];
            if positions[channel] < 0 || value > best[channel] {
                best[channel] = value;
                positions[channel] = (at + channel) as i64;
            }
        }
    });
}

/// Adds the gradient of one image: finds the largest tap of each window, then adds to that tap only.
#[each_level]
fn grad_of_image<T: PoolElement>(
    shape: &PoolShape,
    input: &[T],
    gradient: &[T],
    out: &mut [T],
    best: &mut [T],
    winner: &mut [u32],
) {
    let channels = shape.channels;
    for (index, gradient) in gradient.chunks_exact(channels).enumerate() {
        let mut tap = 0u32;
        shape.for_each_under(index, |at| {
            let values = &input[at..at + channels];
            if tap == 0 {
                best.copy_from_slice(values);
                winner.fill(0);
            } else {
                for ((best, winner), &value) in best.iter_mut().zip(winner.iter_mut()).zip(values) {
                    let larger = value > *best;
                    *best = if larger { value } else { *best };
                    *winner = if larger { tap } else { *winner };
                }
            }
            tap += 1;
        });
        tap = 0;
        shape.for_each_under(index, |at| {
            for ((out, &winner), &gradient) in out[at..at + channels].iter_mut().zip(winner.iter()).zip(gradient) {
                *out = out.plus(if winner == tap { gradient } else { T::ZERO });
            }
            tap += 1;
        });
    }
}
