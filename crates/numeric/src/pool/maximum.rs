//! Maximum pooling, the positions of the maxima, and gradients through them.

use super::{PoolShape, Under, for_blocks};
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
        let input = &input[example * shape.in_image_len()..][..shape.in_image_len()];
        let gradient = &gradient[example * shape.out_image_len()..][..shape.out_image_len()];
        with_scratch(shape.output[2] * shape.channels, |winners: &mut [u32]| {
            grad_of_image(shape, input, gradient, image, winners);
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
        let under = shape.under(index);
        for_blocks!(out.len(), largest_of(&under, image, out));
    }
}

/// Writes the largest elements of a window, for `LANES` channels.
#[inline(always)]
fn largest_of<T: PoolElement, const LANES: usize>(channel: usize, under: &Under, image: &[T], out: &mut [T]) {
    let mut best = [T::LOWEST; LANES];
    under.for_each(
        #[inline(always)]
        |at| {
            let values = block_of::<T, LANES>(&image[at + channel..]);
            for lane in 0..LANES {
                best[lane] = if values[lane] > best[lane] { values[lane] } else { best[lane] };
            }
        },
    );
    out[channel..channel + LANES].copy_from_slice(&best);
}

/// Returns the first elements of a slice.
#[inline(always)]
fn block_of<T: Copy, const LANES: usize>(values: &[T]) -> [T; LANES] {
    match values.first_chunk() {
        Some(block) => *block,
        None => panic!("a window reaches out of the input"),
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
    shape.under(index).for_each(|at| {
        for channel in 0..shape.channels {
            let value = image[at + channel];
            if positions[channel] < 0 || value > best[channel] {
                best[channel] = value;
                positions[channel] = (at + channel) as i64;
            }
        }
    });
}

/// Writes the gradient of one image. `winners` has room for a line of windows.
///
/// Each line is searched before anything is written: a load that follows a store to the same place in another page waits for it,
/// and where both tensors start at the same place in their pages, every window would wait for an earlier one.
#[each_level]
fn grad_of_image<T: PoolElement>(shape: &PoolShape, input: &[T], gradient: &[T], out: &mut [T], winners: &mut [u32]) {
    // Where windows neither overlap nor leave anything out, each of them writes its pixels once.
    let writes = shape.is_partition();
    if !writes {
        out.fill(T::ZERO);
    }
    let channels = shape.channels;
    let columns = shape.output[2];
    for (line, gradient) in gradient.chunks_exact(columns * channels).enumerate() {
        for (column, winners) in winners.chunks_exact_mut(channels).enumerate() {
            let under = shape.under(line * columns + column);
            for_blocks!(channels, first_largest(&under, input, winners));
        }
        for (column, winners) in winners.chunks_exact(channels).enumerate() {
            let under = shape.under(line * columns + column);
            let gradient = &gradient[column * channels..][..channels];
            if writes {
                for_blocks!(channels, write_grad(&under, winners, gradient, out));
            } else {
                for_blocks!(channels, add_grad(&under, winners, gradient, out));
            }
        }
    }
}

/// Finds the first largest tap of a window, for `LANES` channels. The search starts with the first tap, even if that is NaN.
#[inline(always)]
fn first_largest<T: PoolElement, const LANES: usize>(channel: usize, under: &Under, input: &[T], winners: &mut [u32]) {
    let mut winner = [0u32; LANES];
    if let Some(first) = under.first() {
        let mut best = block_of::<T, LANES>(&input[first + channel..]);
        let mut tap = 0u32;
        under.for_each(
            #[inline(always)]
            |at| {
                let values = block_of::<T, LANES>(&input[at + channel..]);
                for lane in 0..LANES {
                    winner[lane] = if values[lane] > best[lane] { tap } else { winner[lane] };
                    best[lane] = if values[lane] > best[lane] { values[lane] } else { best[lane] };
                }
                tap += 1;
            },
        );
    }
    winners[channel..channel + LANES].copy_from_slice(&winner);
}

/// Writes the gradient at the first largest tap of a window, and zero at the others.
#[inline(always)]
fn write_grad<T: PoolElement, const LANES: usize>(
    channel: usize,
    under: &Under,
    winners: &[u32],
    gradient: &[T],
    out: &mut [T],
) {
    let winner = block_of::<u32, LANES>(&winners[channel..]);
    let gradient = block_of::<T, LANES>(&gradient[channel..]);
    let mut tap = 0u32;
    under.for_each(
        #[inline(always)]
        |at| {
            let mut values = [T::ZERO; LANES];
            for lane in 0..LANES {
                // The sum, so that a negative zero becomes one without a sign, as where windows overlap.
                values[lane] = T::ZERO.plus(if winner[lane] == tap { gradient[lane] } else { T::ZERO });
            }
            out[at + channel..at + channel + LANES].copy_from_slice(&values);
            tap += 1;
        },
    );
}

/// Adds the gradient to the first largest tap of a window.
#[inline(always)]
fn add_grad<T: PoolElement, const LANES: usize>(
    channel: usize,
    under: &Under,
    winners: &[u32],
    gradient: &[T],
    out: &mut [T],
) {
    let winner = block_of::<u32, LANES>(&winners[channel..]);
    let gradient = block_of::<T, LANES>(&gradient[channel..]);
    let mut tap = 0u32;
    under.for_each(
        #[inline(always)]
        |at| {
            let own = &mut out[at + channel..at + channel + LANES];
            let mut values = block_of::<T, LANES>(own);
            for lane in 0..LANES {
                values[lane] = values[lane].plus(if winner[lane] == tap { gradient[lane] } else { T::ZERO });
            }
            own.copy_from_slice(&values);
            tap += 1;
        },
    );
}
