//! Winograd's transforms of whole tiles and filters in memory: applies the transforms of `transform`, which work on one line
//! of registers, to all channels, with the widest registers that the level has and the channels fill.

use super::transform::{
    CELLS, SIDE, both_axes, filter_gradient_line, filter_line, gradient_line, image_line, output_line,
};
use crate::parallel::SharedMut;
use crate::simd::Lanes;
use std::ops::Range;

/// The position of a tile in the output.
#[derive(Clone, Copy)]
pub(super) struct OutputTile {
    pub(super) window: usize,
    /// Outputs of a tile, along each side.
    pub(super) step: usize,
    /// The row and column of its first output.
    pub(super) first: [usize; 2],
    /// Rows and columns of the output.
    pub(super) output: [usize; 2],
    pub(super) channels: usize,
    /// The offset of its image.
    pub(super) image: usize,
}

impl OutputTile {
    /// Returns the offset of a pixel of the tile.
    #[inline(always)]
    pub(super) fn place(&self, y: usize, x: usize) -> usize {
        self.image + ((self.first[0] + y) * self.output[1] + self.first[1] + x) * self.channels
    }

    #[inline(always)]
    fn has(&self, y: usize, x: usize) -> bool {
        self.first[0] + y < self.output[0] && self.first[1] + x < self.output[1]
    }
}

/// How cells are split into the panels of `width` columns that the micro-kernel reads.
#[derive(Clone, Copy)]
pub(super) struct Panels {
    pub(super) width: usize,
    pub(super) panel_stride: usize,
    pub(super) cell_stride: usize,
}

impl Panels {
    /// Returns the offset of a channel of the first row in its cell.
    #[inline(always)]
    fn place(&self, channel: usize) -> usize {
        channel / self.width * self.panel_stride + channel % self.width
    }
}

/// Defines a function that runs a generic one with the widest registers that divide its channels.
macro_rules! with_registers {
    (
        $(#[$attribute:meta])*
        $name:ident($($argument:ident: $type:ty),*) = $body:ident, for channels $($channels:expr),*
    ) => {
        $(#[$attribute])*
        pub(super) unsafe fn $name($($argument: $type),*) {
            #[cfg(target_arch = "x86_64")]
            {
                use std::arch::x86_64::{__m256, __m512};

                #[target_feature(enable = "avx512f,avx2,fma")]
                unsafe fn run_avx512($($argument: $type),*) {
                    // SAFETY: the features are enabled here; the caller guarantees the rest.
                    unsafe { $body::<__m512>($($argument),*) }
                }

                #[target_feature(enable = "avx2,fma")]
                unsafe fn run_avx2($($argument: $type),*) {
                    // SAFETY: as above.
                    unsafe { $body::<__m256>($($argument),*) }
                }

                let fits = $(($channels).is_multiple_of(<__m512 as Lanes>::LANES))&&*;
                // SAFETY: the level has the instructions; the caller guarantees the rest.
                match fits && cpu::level() >= cpu::Level::Avx512 {
                    true => unsafe { run_avx512($($argument),*) },
                    false => unsafe { run_avx2($($argument),*) },
                }
            }
            #[cfg(not(target_arch = "x86_64"))]
            // SAFETY: needs no feature; the caller guarantees the rest.
            unsafe {
                $body::<[f32; 8]>($($argument),*)
            }
        }
    };
}

with_registers! {
    /// Transforms one tile of the image; cell `i` of channel `c` goes to `i * cell_stride + c`.
    ///
    /// # Safety
    /// The processor has AVX2; `corner` holds six lines of six pixels, `row` apart; channels come in multiples of eight.
    transform_image(corner: &[f32], row: usize, channels: usize, to: &mut [f32], cell_stride: usize)
        = image_channels, for channels channels
}

with_registers! {
    /// Transforms the products of a tile back, and writes those that lie inside the output.
    ///
    /// # Safety
    /// The processor has AVX2; `products` holds 36 cells; no other tile writes these outputs; channels come in multiples of
    /// eight.
    write_tile(tile: OutputTile, out: &SharedMut<f32>, products: &[f32], cell_stride: usize)
        = output_channels, for channels tile.channels
}

with_registers! {
    /// Transforms the filters of some input channels into panels, in which a row is an input channel.
    ///
    /// # Safety
    /// The processor has AVX2; the panels hold the filters of all channels, `[input, output]`, and nobody else writes those
    /// of `range`; output channels and the width of panels come in multiples of eight.
    transform_filter(
        window: usize,
        filter: &[f32],
        channels: [usize; 2],
        range: Range<usize>,
        panels: Panels,
        to: &SharedMut<f32>
    ) = filter_channels, for channels channels[1], panels.width
}

with_registers! {
    /// Transforms the gradients of `len` filters back from cells to taps.
    ///
    /// # Safety
    /// The processor has AVX2, and `len` is a multiple of eight.
    transform_filter_gradient(window: usize, cells: &[f32], len: usize, filter: &mut [f32])
        = filter_gradients, for channels len
}

with_registers! {
    /// Transforms one tile of the output's gradient into panels; beyond the output the gradient is zero.
    ///
    /// # Safety
    /// The processor has AVX2; `to` holds 36 cells of this tile; channels and the width of panels come in multiples of eight.
    transform_gradient(tile: OutputTile, gradient: &[f32], panels: Panels, to: &mut [f32])
        = gradient_channels, for channels tile.channels, panels.width
}

#[inline(always)]
unsafe fn image_channels<V: Lanes<Scalar = f32>>(
    corner: &[f32],
    row: usize,
    channels: usize,
    to: &mut [f32],
    cell_stride: usize,
) {
    assert!(to.len() >= (CELLS - 1) * cell_stride + channels);
    let (corner, to) = (corner.as_ptr(), to.as_mut_ptr());
    for channel in (0..channels).step_by(V::LANES) {
        // SAFETY: the caller guarantees the image, the assertion the output; channels fill whole registers.
        unsafe {
            both_axes::<V>(
                SIDE,
                SIDE,
                #[inline(always)]
                |y, x| V::load(corner.add(y * row + x * channels + channel)),
                #[inline(always)]
                |line| image_line(line),
                #[inline(always)]
                |y, x, value| value.store(to.add((y * SIDE + x) * cell_stride + channel)),
            );
        }
    }
}

#[inline(always)]
unsafe fn output_channels<V: Lanes<Scalar = f32>>(
    tile: OutputTile,
    out: &SharedMut<f32>,
    products: &[f32],
    cell_stride: usize,
) {
    assert!(products.len() >= (CELLS - 1) * cell_stride + tile.channels);
    for channel in (0..tile.channels).step_by(V::LANES) {
        // SAFETY: the caller guarantees the instructions; positions inside the image lie inside the output.
        unsafe {
            both_axes::<V>(
                SIDE,
                tile.step,
                #[inline(always)]
                |y, x| V::load(products.as_ptr().add((y * SIDE + x) * cell_stride + channel)),
                #[inline(always)]
                |line| output_line(tile.window, line),
                #[inline(always)]
                |y, x, value| {
                    if tile.has(y, x) {
                        value.store(out.as_mut_ptr().add(tile.place(y, x) + channel));
                    }
                },
            );
        }
    }
}

#[inline(always)]
unsafe fn filter_channels<V: Lanes<Scalar = f32>>(
    window: usize,
    filter: &[f32],
    [channels_in, channels_out]: [usize; 2],
    range: Range<usize>,
    panels: Panels,
    to: &SharedMut<f32>,
) {
    let len = channels_in * channels_out;
    assert!(filter.len() == window * window * len && range.end <= channels_in);
    // Panel by panel, so that each cell is written from front to back.
    for first in (0..channels_out).step_by(panels.width) {
        for input in range.clone() {
            for channel in (first..channels_out.min(first + panels.width)).step_by(V::LANES) {
                let at = input * channels_out + channel;
                let place = panels.place(channel) + input * panels.width;
                // SAFETY: inside the filter by the assertion; the caller guarantees the panels.
                unsafe {
                    both_axes::<V>(
                        window,
                        SIDE,
                        #[inline(always)]
                        |y, x| V::load(filter.as_ptr().add((y * window + x) * len + at)),
                        #[inline(always)]
                        |line| filter_line(window, line),
                        #[inline(always)]
                        |y, x, value| {
                            value.store(to.as_mut_ptr().add((y * SIDE + x) * panels.cell_stride + place));
                        },
                    );
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn filter_gradients<V: Lanes<Scalar = f32>>(window: usize, cells: &[f32], len: usize, filter: &mut [f32]) {
    assert!(filter.len() == window * window * len && cells.len() == CELLS * len && len.is_multiple_of(V::LANES));
    for at in (0..len).step_by(V::LANES) {
        // SAFETY: inside both slices by the assertion.
        unsafe {
            both_axes::<V>(
                SIDE,
                window,
                #[inline(always)]
                |y, x| V::load(cells.as_ptr().add((y * SIDE + x) * len + at)),
                #[inline(always)]
                |line| filter_gradient_line(window, line),
                #[inline(always)]
                |y, x, value| value.store(filter.as_mut_ptr().add((y * window + x) * len + at)),
            );
        }
    }
}

#[inline(always)]
unsafe fn gradient_channels<V: Lanes<Scalar = f32>>(
    tile: OutputTile,
    gradient: &[f32],
    panels: Panels,
    to: &mut [f32],
) {
    let last = panels.place(tile.channels - V::LANES) + V::LANES;
    let image_len = tile.output[0] * tile.output[1] * tile.channels;
    assert!(to.len() >= (CELLS - 1) * panels.cell_stride + last && gradient.len() == tile.image + image_len);
    for channel in (0..tile.channels).step_by(V::LANES) {
        let place = panels.place(channel);
        // SAFETY: inside both slices by the assertion and the check of the position.
        unsafe {
            both_axes::<V>(
                tile.step,
                SIDE,
                #[inline(always)]
                |y, x| match tile.has(y, x) {
                    true => V::load(gradient.as_ptr().add(tile.place(y, x) + channel)),
                    false => V::splat(0.0),
                },
                #[inline(always)]
                |line| gradient_line(tile.window, line),
                #[inline(always)]
                |y, x, value| value.store(to.as_mut_ptr().add((y * SIDE + x) * panels.cell_stride + place)),
            );
        }
    }
}
