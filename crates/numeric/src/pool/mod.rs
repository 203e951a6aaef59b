//! Pooling in two and three dimensions, channels last: maxima, averages and their gradients.
//!
//! Ties go to the first element of a window. NaN never becomes a maximum, except where the position is computed too and the
//! window starts with NaN. Both are as in TensorFlow.

mod average;
mod maximum;

pub use average::{avg_pool, avg_pool_grad};
pub use maximum::{PoolElement, max_pool, max_pool_argmax, max_pool_grad, max_pool_grad_grad};

use crate::parallel;

/// The sizes of a pooling over depth, rows and columns. Two-dimensional poolings have depth 1. Positions outside of the input
/// are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolShape {
    /// Examples.
    pub batch: usize,
    /// Channels.
    pub channels: usize,
    /// Spatial size of the input.
    pub input: [usize; 3],
    /// Size of the window.
    pub window: [usize; 3],
    /// Spatial size of the output.
    pub output: [usize; 3],
    /// Steps of the window.
    pub strides: [usize; 3],
    /// How far the first window extends before the input.
    pub pad_before: [usize; 3],
}

impl PoolShape {
    /// Returns a pooling over rows and columns.
    pub fn pool2d(
        batch: usize,
        input: [usize; 2],
        channels: usize,
        window: [usize; 2],
        strides: [usize; 2],
        output: [usize; 2],
        pad_before: [usize; 2],
    ) -> Self {
        let spatial = |size: [usize; 2], depth: usize| [depth, size[0], size[1]];
        PoolShape {
            batch,
            channels,
            input: spatial(input, 1),
            window: spatial(window, 1),
            output: spatial(output, 1),
            strides: spatial(strides, 1),
            pad_before: spatial(pad_before, 0),
        }
    }

    /// Returns the number of elements of the input.
    pub fn in_len(&self) -> usize {
        self.batch * self.in_image_len()
    }

    /// Returns the number of elements of the output.
    pub fn out_len(&self) -> usize {
        self.batch * self.out_image_len()
    }

    fn in_image_len(&self) -> usize {
        self.input.iter().product::<usize>() * self.channels
    }

    fn out_image_len(&self) -> usize {
        self.output.iter().product::<usize>() * self.channels
    }

    fn check(&self, input: usize, out: usize) {
        assert_eq!(input, self.in_len(), "the input has another size than its shape");
        assert_eq!(out, self.out_len(), "the output has another size than its shape");
        assert!(self.strides.iter().all(|&stride| stride > 0), "a window that does not move");
    }

    /// Estimates the nanoseconds per output pixel.
    fn pixel_cost(&self) -> f64 {
        2.0 + (self.window.iter().product::<usize>() * self.channels) as f64 * 0.2
    }

    /// Returns the part of the window at `output` that lies inside the input, on one axis.
    #[inline(always)]
    fn inside(&self, axis: usize, output: usize) -> std::ops::Range<usize> {
        let start = output * self.strides[axis];
        let end = (start + self.window[axis]).saturating_sub(self.pad_before[axis]).min(self.input[axis]);
        start.saturating_sub(self.pad_before[axis]).min(end)..end
    }

    /// Calls `body` with the offset in its image of each pixel under the window of output pixel `index`, in order.
    #[inline(always)]
    fn for_each_under(&self, index: usize, mut body: impl FnMut(usize)) {
        let [z, y, x] = self.cell(index);
        for at_z in self.inside(0, z) {
            for at_y in self.inside(1, y) {
                for at_x in self.inside(2, x) {
                    body(((at_z * self.input[1] + at_y) * self.input[2] + at_x) * self.channels);
                }
            }
        }
    }

    /// Returns the number of pixels under the window of output pixel `index`.
    #[inline(always)]
    fn count_under(&self, index: usize) -> usize {
        let cell = self.cell(index);
        (0..3).map(|axis| self.inside(axis, cell[axis]).len()).product()
    }

    #[inline(always)]
    fn cell(&self, index: usize) -> [usize; 3] {
        [
            index / (self.output[1] * self.output[2]) % self.output[0],
            index / self.output[2] % self.output[1],
            index % self.output[2],
        ]
    }

    /// Runs `body(first output pixel, pixels)` over the output.
    fn for_each_pixel<T: Send>(&self, out: &mut [T], body: impl Fn(usize, &mut [T]) + Sync) {
        if !out.is_empty() {
            parallel::for_each_chunk_mut(out, self.channels, self.pixel_cost(), body);
        }
    }

    /// Runs `body(example, image)` over gradients of the input, which `body` must zero first.
    fn for_each_image<T: Send>(&self, out: &mut [T], body: impl Fn(usize, &mut [T]) + Sync) {
        if out.is_empty() {
            return;
        }
        let image_len = self.in_image_len();
        let cost = self.pixel_cost() * 2.0 * self.output.iter().product::<usize>() as f64;
        parallel::for_each_chunk_mut(out, image_len, cost, |first, images| {
            for (offset, image) in images.chunks_exact_mut(image_len).enumerate() {
                body(first + offset, image);
            }
        });
    }
}

#[cfg(test)]
mod tests;
