//! The forward convolution: the micro-kernel reads windows straight from the (padded) image, without copying them.

use super::shape::ConvShape;
use crate::matmul::{HasMicrokernel, MatrixView, Microkernel, Panel, RowsOfA, Segment, pack_columns};
use crate::parallel::{self, SharedMut};
use crate::scratch::with_scratch;
use bytemuck::Pod;

/// The size of a panel of the filter, chosen to stay in the L1 cache.
const PANEL_BYTES: usize = 20 << 10;

/// Writes the convolution to `out`, and calls `finish` with each line of pixels once it is complete.
pub(super) fn forward<T: HasMicrokernel + Pod + Send + Sync>(
    shape: &ConvShape,
    input: &[T],
    filter: &[T],
    out: &mut [T],
    finish: impl Fn(&mut [T]) + Sync,
) {
    let kernel = T::microkernel();
    let longest = (PANEL_BYTES / (kernel.columns * size_of::<T>())).max(32);
    let depth = shape.taps() * shape.group_in();
    let panels = shape.group_out().div_ceil(kernel.columns);
    let packed_len = depth * panels * kernel.columns;
    let band_len = shape.band_len(size_of::<T>());
    let bands = shape.output[shape.band_axis()].div_ceil(band_len);
    with_scratch(packed_len * shape.groups, |packed: &mut [T]| {
        // The filter is split along its depth at the same places for every window and band.
        let blocks = depth_blocks(&shape.window(0, 0, 0, longest), longest);
        for group in 0..shape.groups {
            let packed = &mut packed[group * packed_len..][..packed_len];
            let columns = &filter[group * shape.group_out()..];
            let mut at = 0;
            for block in &blocks {
                let b = MatrixView {
                    data: &columns[block.first_depth * shape.out_channels..],
                    row_stride: shape.out_channels,
                    column_stride: 1,
                };
                let len = block.depth * panels * kernel.columns;
                pack_columns(b, block.depth, shape.group_out(), kernel.columns, &mut packed[at..at + len]);
                at += len;
            }
        }
        let packed = &*packed;
        let out = SharedMut::new(out);
        let cost = shape.nanoseconds() / (shape.batch * bands).max(1) as f64;
        parallel::for_each_chunk(shape.batch * bands, cost, |tasks| {
            with_scratch(shape.region_len(band_len), |buffer: &mut [T]| {
                for task in tasks {
                    let band_start = task % bands * band_len;
                    let band = band_start..(band_start + band_len).min(shape.output[shape.band_axis()]);
                    let image = &input[task / bands * shape.in_image_len()..][..shape.in_image_len()];
                    let region = shape.pad_region(image, band.clone(), T::ZERO, buffer);
                    let lines = Lines::of(shape, band.len(), region.plane, region.row);
                    let line_len = shape.output[2] * shape.out_channels;
                    let first_line = band.start * if shape.band_axis() == 0 { shape.output[1] } else { 1 };
                    let start = task / bands * shape.out_image_len() + first_line * line_len;
                    // SAFETY: bands of images are disjoint parts of the output.
                    let out = unsafe { out.slice(start, lines.count() * line_len) };
                    for group in 0..shape.groups {
                        let window = shape.window(region.plane, region.row, group, longest);
                        shape.check_region(&region, band.len(), &window);
                        let packed = &packed[group * packed_len..][..packed_len];
                        // SAFETY: the region holds every window and the output every line.
                        unsafe {
                            band_of_group(shape, &kernel, region.data, &lines, &window, &blocks, packed, group, out)
                        };
                    }
                    for line in out.chunks_exact_mut(line_len.max(1)) {
                        finish(line);
                    }
                }
            });
        });
    });
}

/// Consecutive pieces of a window that one product covers.
pub(super) struct DepthBlock {
    pub pieces: std::ops::Range<usize>,
    pub first_depth: usize,
    pub depth: usize,
}

pub(super) fn depth_blocks(window: &[Segment], longest: usize) -> Vec<DepthBlock> {
    let mut blocks: Vec<DepthBlock> = Vec::new();
    let mut first_depth = 0;
    for (index, piece) in window.iter().enumerate() {
        match blocks.last_mut() {
            Some(block) if block.depth + piece.len <= longest => {
                block.pieces.end = index + 1;
                block.depth += piece.len;
            }
            _ => blocks.push(DepthBlock { pieces: index..index + 1, first_depth, depth: piece.len }),
        }
        first_depth += piece.len;
    }
    blocks
}

/// The lines of output pixels of a band, and where their first window starts in the region.
pub(super) struct Lines {
    per_plane: usize,
    planes: usize,
    plane_step: usize,
    row_step: usize,
}

impl Lines {
    pub(super) fn of(shape: &ConvShape, band_len: usize, plane: usize, row: usize) -> Self {
        let axis = shape.band_axis();
        Lines {
            planes: if axis == 0 { band_len } else { shape.output[0] },
            per_plane: if axis == 1 { band_len } else { shape.output[1] },
            plane_step: plane * shape.strides[0],
            row_step: row * shape.strides[1],
        }
    }

    pub(super) fn count(&self) -> usize {
        self.planes * self.per_plane
    }

    pub(super) fn offset(&self, line: usize) -> usize {
        line / self.per_plane * self.plane_step + line % self.per_plane * self.row_step
    }
}

/// Computes the output channels of one group for a band.
///
/// # Safety
/// The window of every line lies inside `region`, and `out` holds the lines.
unsafe fn band_of_group<T: HasMicrokernel + Pod>(
    shape: &ConvShape,
    kernel: &Microkernel<T>,
    region: &[T],
    lines: &Lines,
    window: &[Segment],
    blocks: &[DepthBlock],
    packed: &[T],
    group: usize,
    out: &mut [T],
) {
    let columns = shape.group_out();
    let panels = columns.div_ceil(kernel.columns);
    let line_len = shape.output[2] * shape.out_channels;
    let mut at = 0;
    for block in blocks {
        for panel in 0..panels {
            let b = &packed[at..at + block.depth * kernel.columns];
            at += block.depth * kernel.columns;
            let first_column = panel * kernel.columns;
            for line in 0..lines.count() {
                let c = &mut out[line * line_len + group * columns + first_column..];
                let arguments = Panel {
                    rows: shape.output[2],
                    segments: &window[block.pieces.clone()],
                    a: RowsOfA::Strided {
                        data: region[lines.offset(line)..].as_ptr(),
                        row_stride: shape.strides[2] * shape.in_channels,
                        column_stride: 1,
                    },
                    chosen: None,
                    b: b.as_ptr(),
                    b_row_stride: kernel.columns,
                    c: c.as_mut_ptr(),
                    c_row_stride: shape.out_channels,
                    columns: kernel.columns.min(columns - first_column),
                    accumulate: block.first_depth > 0,
                };
                // SAFETY: the caller vouches for the region and the output, and the kernel fits the processor.
                unsafe { (kernel.run)(&arguments) };
            }
        }
    }
}
