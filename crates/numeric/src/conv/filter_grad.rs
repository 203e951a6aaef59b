//! The gradient of the filter: for each row of the window, the product of the image elements under it and the gradient of
//! the output.

use super::forward::{DepthBlock, Lines, depth_blocks};
use super::shape::ConvShape;
use crate::matmul::{HasMicrokernel, MatrixView, Microkernel, Panel, RowsOfA, Segment, pack_columns};
use crate::parallel;
use crate::scratch::with_scratch;
use bytemuck::Pod;

/// The size of a packed panel of the output's gradient, chosen to stay in the L1 cache.
const PANEL_BYTES: usize = 24 << 10;

/// Writes the gradient of the filter.
pub(super) fn filter_grad<T: HasMicrokernel + Pod + Send + Sync>(
    shape: &ConvShape,
    input: &[T],
    gradient: &[T],
    out: &mut [T],
) {
    let band_len = shape.band_len(size_of::<T>());
    let bands = shape.output[shape.band_axis()].div_ceil(band_len);
    let tasks = shape.batch * bands;
    // Each part sums into its own copy of the gradient, so that parts need not wait for each other.
    let parts = if parallel::pays(tasks, shape.nanoseconds() / tasks.max(1) as f64) {
        parallel::threads().min(tasks)
    } else {
        1
    };
    let per_part = tasks.div_ceil(parts.max(1)).max(1);
    if parts <= 1 {
        out.fill(T::ZERO);
        return add_tasks(shape, input, gradient, band_len, 0..tasks, out);
    }
    let len = out.len();
    with_scratch((parts - 1) * len, |others: &mut [T]| {
        let shared = parallel::SharedMut::new(others);
        let first = parallel::SharedMut::new(out);
        parallel::run_tasks(parts, shape.nanoseconds(), &|part| {
            // SAFETY: each part writes its own buffer.
            let own = unsafe { if part == 0 { first.slice(0, len) } else { shared.slice((part - 1) * len, len) } };
            own.fill(T::ZERO);
            let range = (part * per_part).min(tasks)..((part + 1) * per_part).min(tasks);
            add_tasks(shape, input, gradient, band_len, range, own);
        });
        parallel::for_each_chunk_mut(out, 1, 0.3 * parts as f64, |first, out| {
            for other in others.chunks_exact(len) {
                for (out, &value) in out.iter_mut().zip(&other[first..]) {
                    *out = out.plus(value);
                }
            }
        });
    });
}

/// Adds the gradients of some bands of images.
fn add_tasks<T: HasMicrokernel + Pod + Send + Sync>(
    shape: &ConvShape,
    input: &[T],
    gradient: &[T],
    band_len: usize,
    tasks: std::ops::Range<usize>,
    out: &mut [T],
) {
    let kernel = T::microkernel();
    let bands = shape.output[shape.band_axis()].div_ceil(band_len);
    let most_pixels = (PANEL_BYTES / (kernel.columns * size_of::<T>())).max(16);
    let panels = shape.group_out().div_ceil(kernel.columns);
    let line_len = shape.output[2] * shape.out_channels;
    let packed_pixels = most_pixels.max(shape.output[2].min(most_pixels));
    with_scratch(shape.region_len(band_len), |buffer: &mut [T]| {
        with_scratch(packed_pixels * panels * kernel.columns, |packed: &mut [T]| {
            for task in tasks {
                let band_start = task % bands * band_len;
                let band = band_start..(band_start + band_len).min(shape.output[shape.band_axis()]);
                let image = &input[task / bands * shape.in_image_len()..][..shape.in_image_len()];
                let region = shape.pad_region(image, band.clone(), T::ZERO, buffer);
                let lines = Lines::of(shape, band.len(), region.plane, region.row);
                let first_line = band.start * if shape.band_axis() == 0 { shape.output[1] } else { 1 };
                let start = task / bands * shape.out_image_len() + first_line * line_len;
                let gradient = &gradient[start..start + lines.count() * line_len];
                // The depth of the product is the pixels of the band: several whole lines at a time, long lines split.
                let pixel_step = shape.strides[2] * shape.in_channels;
                let pieces = pixel_pieces(shape, &lines, pixel_step, most_pixels);
                let blocks = depth_blocks(&pieces, most_pixels);
                for group in 0..shape.groups {
                    let window = shape.window(region.plane, region.row, group, usize::MAX);
                    shape.check_region(&region, band.len(), &window);
                    for block in &blocks {
                        let b = MatrixView {
                            data: &gradient[block.first_depth * shape.out_channels + group * shape.group_out()..],
                            row_stride: shape.out_channels,
                            column_stride: 1,
                        };
                        pack_columns(b, block.depth, shape.group_out(), kernel.columns, packed);
                        let pixels = &pieces[block.pieces.clone()];
                        // SAFETY: the region holds every window, and `out` the whole filter.
                        unsafe {
                            add_block(
                                shape,
                                &kernel,
                                region.data,
                                &window,
                                pixels,
                                pixel_step,
                                block,
                                packed,
                                group,
                                out,
                            )
                        };
                    }
                }
            }
        });
    });
}

/// The pixels of a band as segments of the depth.
fn pixel_pieces(shape: &ConvShape, lines: &Lines, pixel_step: usize, longest: usize) -> Vec<Segment> {
    let mut pieces = Vec::new();
    for line in 0..lines.count() {
        for first in (0..shape.output[2]).step_by(longest) {
            let len = longest.min(shape.output[2] - first);
            pieces.push(Segment { offset: lines.offset(line) + first * pixel_step, len });
        }
    }
    pieces
}

/// Adds the products of one block of pixels to the gradient of every row of the window.
///
/// # Safety
/// The window of every pixel lies inside `region`; `packed` holds the block; `out` is the whole filter.
unsafe fn add_block<T: HasMicrokernel + Pod>(
    shape: &ConvShape,
    kernel: &Microkernel<T>,
    region: &[T],
    window: &[Segment],
    pixels: &[Segment],
    pixel_step: usize,
    block: &DepthBlock,
    packed: &[T],
    group: usize,
    out: &mut [T],
) {
    let columns = shape.group_out();
    for panel in 0..columns.div_ceil(kernel.columns) {
        let b = &packed[panel * block.depth * kernel.columns..][..block.depth * kernel.columns];
        let first_column = panel * kernel.columns;
        let mut row = 0;
        for piece in window {
            let c = &mut out[row * shape.out_channels + group * columns + first_column..];
            let arguments = Panel {
                rows: piece.len,
                segments: pixels,
                a: RowsOfA::Strided { data: region[piece.offset..].as_ptr(), row_stride: 1, column_stride: pixel_step },
                chosen: None,
                b: b.as_ptr(),
                b_row_stride: kernel.columns,
                c: c.as_mut_ptr(),
                c_row_stride: shape.out_channels,
                columns: kernel.columns.min(columns - first_column),
                accumulate: true,
            };
            // SAFETY: the caller vouches for the sizes, and the kernel fits the processor.
            unsafe { (kernel.run)(&arguments) };
            row += piece.len;
        }
    }
}
