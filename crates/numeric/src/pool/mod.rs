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
    fn inside(&self, axis: usize, output: usize) -> [usize; 2] {
        let start = output * self.strides[axis];
        let end = (start + self.window[axis]).saturating_sub(self.pad_before[axis]).min(self.input[axis]);
        [start.saturating_sub(self.pad_before[axis]).min(end), end]
    }

    /// Returns the pixels under the window of output pixel `index`.
    #[inline(always)]
    fn under(&self, index: usize) -> Under {
        let row = index / self.output[2];
        let [z, y, x] = [row / self.output[1] % self.output[0], row % self.output[1], index % self.output[2]];
        Under {
            inside: [self.inside(0, z), self.inside(1, y), self.inside(2, x)],
            rows: self.input[1],
            columns: self.input[2],
            channels: self.channels,
        }
    }

    /// Returns whether each pixel of the input is under exactly one window.
    fn is_partition(&self) -> bool {
        (0..3).all(|axis| {
            let covered = (self.output[axis] * self.strides[axis]).saturating_sub(self.pad_before[axis]);
            self.strides[axis] == self.window[axis] && covered >= self.input[axis]
        })
    }

    /// Runs `body(first output pixel, pixels)` over the output.
    fn for_each_pixel<T: Send>(&self, out: &mut [T], body: impl Fn(usize, &mut [T]) + Sync) {
        if !out.is_empty() {
            parallel::for_each_chunk_mut(out, self.channels, self.pixel_cost(), body);
        }
    }

    /// Runs `body(example, image)` over gradients of the input, which `body` must write whole.
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

/// The pixels of an image under one window.
#[derive(Clone, Copy)]
struct Under {
    /// Where they start and end on each axis.
    inside: [[usize; 2]; 3],
    rows: usize,
    columns: usize,
    channels: usize,
}

impl Under {
    /// Calls `body` with the offset in its image of each pixel, in order.
    #[inline(always)]
    fn for_each(&self, mut body: impl FnMut(usize)) {
        let [depth, rows, columns] = self.inside;
        for z in depth[0]..depth[1] {
            for y in rows[0]..rows[1] {
                let row = (z * self.rows + y) * self.columns;
                for x in columns[0]..columns[1] {
                    body((row + x) * self.channels);
                }
            }
        }
    }

    /// Returns the offset in its image of the first pixel, if there is one.
    #[inline(always)]
    fn first(&self) -> Option<usize> {
        let [depth, rows, columns] = self.inside;
        let first = ((depth[0] * self.rows + rows[0]) * self.columns + columns[0]) * self.channels;
        (self.count() > 0).then_some(first)
    }

    /// Returns the number of pixels.
    #[inline(always)]
    fn count(&self) -> usize {
        self.inside.iter().map(|[start, end]| end - start).product()
    }
}

/// Calls an inlined function with the first of each block of channels. The blocks' lengths are constants, so that what is computed for
/// one stays in registers while a window is read.
macro_rules! for_blocks {
    ($channels:expr, $block:ident($($argument:expr),*)) => {{
        let channels: usize = $channels;
        let mut channel = 0;
        while channel + 32 <= channels {
            $block::<_, 32>(channel, $($argument),*);
            channel += 32;
        }
        while channel + 8 <= channels {
            $block::<_, 8>(channel, $($argument),*);
            channel += 8;
        }
        while channel < channels {
            $block::<_, 1>(channel, $($argument),*);
            channel += 1;
        }
    }};
}
use for_blocks;

#[cfg(test)]
mod tests;
