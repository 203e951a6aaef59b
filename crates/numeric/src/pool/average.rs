//! Average pooling and its gradient. Only elements inside the input count.

use super::PoolShape;
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
        image.fill(T::default());
        let gradient = &gradient[example * shape.out_image_len()..][..shape.out_image_len()];
        grad_of_image(shape, gradient, image);
    });
}

#[each_level]
fn mean_pixels<T: Float>(shape: &PoolShape, input: &[T], first: usize, pixels: &mut [T]) {
    let pixels_per_image: usize = shape.output.iter().product();
    let mut sums = vec![T::Wide::ZERO; shape.channels];
    for (offset, out) in pixels.chunks_exact_mut(shape.channels).enumerate() {
        let index = first + offset;
        let image = &input[index / pixels_per_image * shape.in_image_len()..][..shape.in_image_len()];
        sums.fill(T::Wide::ZERO);
        shape.for_each_under(index, |at| {
            for (sum, &value) in sums.iter_mut().zip(&image[at..]) {
                *sum = sum.plus(value.widen());
            }
        });
        let count = T::Wide::of(shape.count_under(index) as f64);
        for (out, &sum) in out.iter_mut().zip(&sums) {
            *out = T::narrow(sum / count);
        }
    }
}

#[each_level]
fn grad_of_image<T: Float>(shape: &PoolShape, gradient: &[T], out: &mut [T]) {
    let channels = shape.channels;
    for (index, gradient) in gradient.chunks_exact(channels).enumerate() {
        let share = T::Wide::of(1.0) / T::Wide::of(shape.count_under(index) as f64);
        shape.for_each_under(index, |at| {
            for (out, &gradient) in out[at..at + channels].iter_mut().zip(gradient) {
                *out = T::narrow(out.widen() + gradient.widen() * share);
            }
        });
    }
}
