//! Average pooling and its gradient. Only elements inside the input count.

use super::{PoolShape, Under, for_blocks};
use crate::float::{Float, WideFloat};
use crate::simd::MulAdd;
use cpu_macros::each_level;

/// Writes the mean of the elements under each window, for each channel.
pub fn avg_pool<T: Float>(shape: &PoolShape, input: &[T], out: &mut [T]) {
    shape.check(input.len(), out.len());
    shape.for_each_pixel(out, |first, pixels| mean_pixels(shape, input, first, pixels));
}

/// Writes the gradient of the input: each output's gradient is divided evenly among the elements under its window.
pub fn avg_pool_grad<T: Float>(shape: &PoolShape, gradient: &[T], out: &mut [T]) {
    shape.check(out.len(), gradient.len());
    shape.for_each_image(out, |example, image| {
        let gradient = &gradient[example * shape.out_image_len()..][..shape.out_image_len()];
        grad_of_image(shape, gradient, image);
    });
}

#[each_level]
fn mean_pixels<T: Float>(shape: &PoolShape, input: &[T], first: usize, pixels: &mut [T]) {
    let pixels_per_image: usize = shape.output.iter().product();
    for (offset, out) in pixels.chunks_exact_mut(shape.channels).enumerate() {
        let index = first + offset;
        let image = &input[index / pixels_per_image * shape.in_image_len()..][..shape.in_image_len()];
        let under = shape.under(index);
        let count = T::Wide::of(under.count() as f64);
        for_blocks!(out.len(), mean_of(&under, count, image, out));
    }
}

/// Writes the means of a window, for `LANES` channels.
#[inline(always)]
fn mean_of<T: Float, const LANES: usize>(channel: usize, under: &Under, count: T::Wide, image: &[T], out: &mut [T]) {
    let mut sums = [T::Wide::ZERO; LANES];
    under.for_each(
        #[inline(always)]
        |at| {
            let values = &image[at + channel..at + channel + LANES];
            for lane in 0..LANES {
                sums[lane] = sums[lane].plus(values[lane].widen());
            }
        },
    );
    let out = &mut out[channel..channel + LANES];
    for lane in 0..LANES {
        out[lane] = T::narrow(sums[lane] / count);
    }
}

#[each_level]
fn grad_of_image<T: Float>(shape: &PoolShape, gradient: &[T], out: &mut [T]) {
    let channels = shape.channels;
    out.fill(T::default());
    for (index, gradient) in gradient.chunks_exact(channels).enumerate() {
        let under = shape.under(index);
        let share = T::Wide::of(1.0) / T::Wide::of(under.count() as f64);
        under.for_each(|at| {
            for (out, &gradient) in out[at..at + channels].iter_mut().zip(gradient) {
                *out = T::narrow(out.widen() + gradient.widen() * share);
            }
        });
    }
}
