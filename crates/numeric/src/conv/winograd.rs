//! Winograd's convolution for 3x3 and 5x5 windows: a quarter (or about a third) of the multiplications, at the price of a few
//! additions for each tile.
//!
//! A 6x6 tile of the image is transformed, multiplied by the transformed filter cell by cell (36 matrix products over the
//! channels), and transformed back to 4x4 (or 2x2) outputs. Errors are a little larger than those of the plain sum: about
//! 1e-6 of the largest product.

use super::shape::ConvShape;
use super::tiles::{
    OutputTile, Panels, transform_filter, transform_filter_gradient, transform_gradient, transform_image, write_tile,
};
use super::transform::{CELLS, SIDE};
use crate::matmul::{HasMicrokernel, Microkernel, Panel, RowsOfA, Segment};
use crate::parallel::{self, SharedMut};
use crate::scratch::with_scratch;
use cpu::{Level, level};

/// The number of channels must be a multiple of this: a register of the transforms.
const LANES: usize = 8;

/// Bytes of transformed tiles in one block.
const BLOCK_BYTES: usize = 320 << 10;

/// How a convolution is split into tiles.
#[derive(Clone, Copy)]
pub(super) struct Tiling {
    window: usize,
    /// Outputs of a tile, along each side.
    step: usize,
    tile_rows: usize,
    tile_columns: usize,
    /// The convolution with its output rounded up to whole tiles.
    padded: ConvShape,
}

impl Tiling {
    pub(super) fn of(shape: &ConvShape) -> Option<Self> {
        let window = shape.filter[2];
        let fits = matches!(shape.filter, [1, 3, 3] | [1, 5, 5])
            && shape.strides == [1; 3]
            && shape.dilations == [1; 3]
            && shape.groups == 1
            && shape.input[0] == 1
            && shape.output[0] == 1
            && shape.pad_before[0] == 0
            && shape.in_channels.is_multiple_of(LANES)
            && shape.out_channels.is_multiple_of(LANES)
            && shape.in_channels >= 16
            && shape.out_channels >= 16
            && level() >= Level::Avx2;
        if !fits {
            return None;
        }
        let step = SIDE + 1 - window;
        let (tile_rows, tile_columns) = (shape.output[1].div_ceil(step), shape.output[2].div_ceil(step));
        let direct = shape.output[1] * shape.output[2] * window * window;
        let tiled = tile_rows * tile_columns * CELLS;
        // The transforms cost about a third of the products that they save, and enough tiles must share that of the filter.
        let pays = 2 * direct > 3 * tiled && shape.batch * tile_rows * tile_columns >= 32;
        let padded = ConvShape { output: [1, tile_rows * step, tile_columns * step], ..*shape };
        pays.then_some(Tiling { window, step, tile_rows, tile_columns, padded })
    }

    /// Returns the rows of tiles in a band, and the number of bands.
    fn bands(&self) -> (usize, usize) {
        let rows = self.padded.band_len(size_of::<f32>()).div_ceil(self.step).min(self.tile_rows).max(1);
        (rows, self.tile_rows.div_ceil(rows))
    }

    /// Returns the tiles in a block: few enough to fit the cache when transformed, unless the filter does not fit it either and
    /// must be shared by many tiles.
    fn tiles_per_block(&self) -> usize {
        let (channels_in, channels_out) = (self.padded.in_channels, self.padded.out_channels);
        let tile_bytes = CELLS * (channels_in + channels_out) * size_of::<f32>();
        let filter_bytes = CELLS * channels_in * channels_out * size_of::<f32>();
        if filter_bytes <= BLOCK_BYTES { (BLOCK_BYTES / tile_bytes).clamp(12, 96) } else { 72 }
    }

    /// Groups the bands of all images: a group has enough tiles for a block, and is one task for a thread.
    fn groups(&self) -> Groups {
        let (band_rows, bands) = self.bands();
        let band_tiles = band_rows * self.tile_columns;
        let all = self.padded.batch * bands;
        let threads = parallel::threads();
        let wanted = self.tiles_per_block().div_ceil(band_tiles);
        let per_group = wanted.min(all.div_ceil(2 * threads)).max(1);
        Groups { band_rows, bands, per_group, all }
    }
}

/// Bands of images, numbered consecutively, in groups of `per_group`.
#[derive(Clone, Copy)]
struct Groups {
    band_rows: usize,
    bands: usize,
    per_group: usize,
    all: usize,
}

impl Groups {
    fn count(&self) -> usize {
        self.all.div_ceil(self.per_group)
    }

    /// Calls `body(example, first row of tiles, rows of tiles)` for each band of a group.
    fn for_each_band(&self, tiling: &Tiling, group: usize, mut body: impl FnMut(usize, usize, usize)) {
        for band in group * self.per_group..((group + 1) * self.per_group).min(self.all) {
            let first_row = band % self.bands * self.band_rows;
            body(band / self.bands, first_row, self.band_rows.min(tiling.tile_rows - first_row));
        }
    }
}

/// A tile of the output: its example, row and column of tiles.
#[derive(Clone, Copy)]
struct Tile {
    example: usize,
    row: usize,
    column: usize,
}

impl Tile {
    fn outputs(self, shape: &ConvShape, tiling: &Tiling) -> OutputTile {
        OutputTile {
            window: tiling.window,
            step: tiling.step,
            first: [self.row * tiling.step, self.column * tiling.step],
            output: [shape.output[1], shape.output[2]],
            channels: shape.out_channels,
            image: self.example * shape.out_image_len(),
        }
    }
}

/// Writes the convolution, and calls `finish` with each pixel's channels once they are complete.
pub(super) fn forward(
    shape: &ConvShape,
    tiling: &Tiling,
    input: &[f32],
    filter: &[f32],
    out: &mut [f32],
    finish: impl Fn(&mut [f32]) + Sync,
) {
    let (channels_in, channels_out) = (shape.in_channels, shape.out_channels);
    let kernel = f32::microkernel();
    let groups = tiling.groups();
    let packed_width = channels_out.div_ceil(kernel.columns) * kernel.columns;
    with_scratch(CELLS * channels_in * packed_width, |packed: &mut [f32]| {
        pack_filter(shape, tiling, filter, &kernel, packed);
        let packed = &*packed;
        let shared = SharedMut::new(out);
        let cost = shape.nanoseconds() / 2.0 / groups.count().max(1) as f64;
        parallel::for_each_chunk(groups.count(), cost, |range| {
            for group in range {
                forward_group(shape, tiling, &kernel, &groups, group, input, packed, &shared, &finish);
            }
        });
    });
}

/// A band of the padded image, with `row` elements from one line to the next.
#[derive(Clone, Copy)]
struct Band<'a> {
    data: &'a [f32],
    row: usize,
}

/// Runs `body` on the part of an image that some rows of tiles read.
fn with_band<R>(
    shape: &ConvShape,
    tiling: &Tiling,
    input: &[f32],
    example: usize,
    first_row: usize,
    rows: usize,
    body: impl FnOnce(Band<'_>) -> R,
) -> R {
    let image = &input[example * shape.in_image_len()..][..shape.in_image_len()];
    with_scratch(tiling.padded.region_len(rows * tiling.step), |buffer: &mut [f32]| {
        let lines = first_row * tiling.step..(first_row + rows) * tiling.step;
        let region = tiling.padded.pad_region(image, lines, 0.0, buffer);
        let needed = (rows * tiling.step + tiling.window - 2) * region.row
            + (tiling.tile_columns * tiling.step + tiling.window - 1) * shape.in_channels;
        assert!(needed <= region.data.len(), "tiles reach out of the input");
        body(Band { data: region.data, row: region.row })
    })
}

/// Computes the tiles of a group, a block at a time.
fn forward_group(
    shape: &ConvShape,
    tiling: &Tiling,
    kernel: &Microkernel<f32>,
    groups: &Groups,
    group: usize,
    input: &[f32],
    packed: &[f32],
    out: &SharedMut<f32>,
    finish: &(impl Fn(&mut [f32]) + Sync),
) {
    let (channels_in, channels_out) = (shape.in_channels, shape.out_channels);
    let per_block = tiling.tiles_per_block();
    let mut tiles: Vec<Tile> = Vec::with_capacity(per_block);
    with_scratch(CELLS * per_block * channels_in, |images: &mut [f32]| {
        with_scratch(CELLS * per_block * channels_out, |products: &mut [f32]| {
            let mut flush = |images: &[f32], tiles: &mut Vec<Tile>| {
                multiply_cells(kernel, tiles.len(), per_block, channels_in, channels_out, images, packed, products);
                for (slot, tile) in tiles.drain(..).enumerate() {
                    let products = &products[slot * channels_out..];
                    // SAFETY: the level has the instructions; each tile writes its own outputs.
                    unsafe { write_tile(tile.outputs(shape, tiling), out, products, per_block * channels_out) };
                    finish_tile(shape, tiling, out, tile, finish);
                }
            };
            groups.for_each_band(tiling, group, |example, first_row, rows| {
                with_band(shape, tiling, input, example, first_row, rows, |band| {
                    for index in 0..rows * tiling.tile_columns {
                        let corner = tile_corner(tiling, band, channels_in, index);
                        let slot = &mut images[tiles.len() * channels_in..];
                        // SAFETY: the band was checked to hold all tiles and the level to have the instructions.
                        unsafe { transform_image(corner, band.row, channels_in, slot, per_block * channels_in) };
                        let (row, column) = (first_row + index / tiling.tile_columns, index % tiling.tile_columns);
                        tiles.push(Tile { example, row, column });
                        if tiles.len() == per_block {
                            flush(images, &mut tiles);
                        }
                    }
                });
            });
            if !tiles.is_empty() {
                flush(images, &mut tiles);
            }
        });
    });
}

/// Calls `finish` with each pixel of a tile that lies in the output.
fn finish_tile(
    shape: &ConvShape,
    tiling: &Tiling,
    out: &SharedMut<f32>,
    tile: Tile,
    finish: &(impl Fn(&mut [f32]) + Sync),
) {
    let outputs = tile.outputs(shape, tiling);
    for y in 0..outputs.step.min(outputs.output[0] - outputs.first[0]) {
        for x in 0..outputs.step.min(outputs.output[1] - outputs.first[1]) {
            // SAFETY: the pixel belongs to this tile.
            finish(unsafe { out.slice(outputs.place(y, x), outputs.channels) });
        }
    }
}

fn tile_corner<'a>(tiling: &Tiling, band: Band<'a>, channels: usize, tile: usize) -> &'a [f32] {
    let (row, column) = (tile / tiling.tile_columns, tile % tiling.tile_columns);
    &band.data[row * tiling.step * band.row + column * tiling.step * channels..]
}

/// Multiplies, for each cell, the tiles' transformed pixels by the transformed filter. Cells have room for `capacity` tiles.
fn multiply_cells(
    kernel: &Microkernel<f32>,
    tiles: usize,
    capacity: usize,
    channels_in: usize,
    channels_out: usize,
    images: &[f32],
    packed: &[f32],
    products: &mut [f32],
) {
    let panels = channels_out.div_ceil(kernel.columns);
    for cell in 0..CELLS {
        let a = &images[cell * capacity * channels_in..][..tiles * channels_in];
        let c = &mut products[cell * capacity * channels_out..][..tiles * channels_out];
        for panel in 0..panels {
            let b = &packed[(cell * panels + panel) * channels_in * kernel.columns..][..channels_in * kernel.columns];
            let first_column = panel * kernel.columns;
            let arguments = Panel {
                rows: tiles,
                segments: &[Segment { offset: 0, len: channels_in }],
                a: RowsOfA::Strided { data: a.as_ptr(), row_stride: channels_in, column_stride: 1 },
                chosen: None,
                b: b.as_ptr(),
                b_row_stride: kernel.columns,
                c: c[first_column..].as_mut_ptr(),
                c_row_stride: channels_out,
                columns: kernel.columns.min(channels_out - first_column),
                accumulate: false,
            };
            // SAFETY: the slices above hold the operands and the product; the kernel fits the processor.
            unsafe { (kernel.run)(&arguments) };
        }
    }
}

/// Transforms the filter straight into the panels that the micro-kernel reads.
fn pack_filter(shape: &ConvShape, tiling: &Tiling, filter: &[f32], kernel: &Microkernel<f32>, packed: &mut [f32]) {
    let (channels_in, channels_out) = (shape.in_channels, shape.out_channels);
    let cell_stride = packed.len() / CELLS;
    let panels = Panels { width: kernel.columns, panel_stride: channels_in * kernel.columns, cell_stride };
    let shared = SharedMut::new(packed);
    let cost = FILTER_NANOSECONDS * channels_out as f64;
    parallel::for_each_chunk(channels_in, cost, |range| {
        // SAFETY: the level was checked, the panels hold the whole filter, and ranges of input channels are disjoint.
        unsafe { transform_filter(tiling.window, filter, [channels_in, channels_out], range, panels, &shared) };
    });
}

/// The approximate time of the transform of the filter of one pair of channels.
const FILTER_NANOSECONDS: f64 = 6.0;

/// The largest transformed filter whose gradient is summed tile by tile: it must stay in the cache.
const GRADIENT_BYTES: usize = 4 << 20;

/// Writes the gradient of the filter, or returns `false` if the plain algorithm is faster.
pub(super) fn filter_grad(
    shape: &ConvShape,
    tiling: &Tiling,
    input: &[f32],
    gradient: &[f32],
    out: &mut [f32],
) -> bool {
    let cell_len = shape.in_channels * shape.out_channels;
    let cells_len = CELLS * cell_len;
    if cells_len * size_of::<f32>() > GRADIENT_BYTES {
        return false;
    }
    let groups = tiling.groups();
    let tasks = groups.count();
    let parallel_pays = parallel::pays(tasks, shape.nanoseconds() / 2.0 / tasks.max(1) as f64);
    let parts = if parallel_pays { parallel::threads().min(tasks) } else { 1 };
    let per_part = tasks.div_ceil(parts);
    with_scratch(parts * cells_len, |sums: &mut [f32]| {
        let shared = SharedMut::new(sums);
        let part = |part: usize| {
            // SAFETY: each part writes its own sums.
            let sums = unsafe { shared.slice(part * cells_len, cells_len) };
            sums.fill(0.0);
            for group in (part * per_part).min(tasks)..((part + 1) * per_part).min(tasks) {
                add_group(shape, tiling, &groups, group, input, gradient, sums);
            }
        };
        if parts == 1 {
            part(0);
        } else {
            parallel::run_tasks(parts, shape.nanoseconds() / 2.0, &part);
        }
        let (first, others) = sums.split_at_mut(cells_len);
        for other in others.chunks_exact(cells_len) {
            first.iter_mut().zip(other).for_each(|(sum, &value)| *sum += value);
        }
        // SAFETY: the level was checked, and both slices hold whole filters.
        unsafe { transform_filter_gradient(tiling.window, first, cell_len, out) };
    });
    true
}

/// Adds the products of the tiles of a group to the transformed gradient of the filter.
fn add_group(
    shape: &ConvShape,
    tiling: &Tiling,
    groups: &Groups,
    group: usize,
    input: &[f32],
    gradient: &[f32],
    sums: &mut [f32],
) {
    let kernel = f32::microkernel();
    let (channels_in, channels_out) = (shape.in_channels, shape.out_channels);
    let panels = channels_out.div_ceil(kernel.columns);
    let per_block = tiling.tiles_per_block();
    let panel_len = per_block * kernel.columns;
    let cell_stride = panels * panel_len;
    let panels_of_block = Panels { width: kernel.columns, panel_stride: panel_len, cell_stride };
    let mut count = 0;
    with_scratch(CELLS * per_block * channels_in, |images: &mut [f32]| {
        with_scratch(CELLS * cell_stride, |gradients: &mut [f32]| {
            if channels_out < panels * kernel.columns {
                gradients.fill(0.0);
            }
            groups.for_each_band(tiling, group, |example, first_row, rows| {
                let gradient = &gradient[example * shape.out_image_len()..][..shape.out_image_len()];
                with_band(shape, tiling, input, example, first_row, rows, |band| {
                    for index in 0..rows * tiling.tile_columns {
                        let corner = tile_corner(tiling, band, channels_in, index);
                        let image = &mut images[count * channels_in..];
                        let panel = &mut gradients[count * kernel.columns..];
                        let (row, column) = (first_row + index / tiling.tile_columns, index % tiling.tile_columns);
                        let tile = Tile { example: 0, row, column };
                        // SAFETY: the band was checked to hold all tiles and the level to have the instructions.
                        unsafe {
                            transform_image(corner, band.row, channels_in, image, per_block * channels_in);
                            transform_gradient(tile.outputs(shape, tiling), gradient, panels_of_block, panel);
                        }
                        count += 1;
                        if count == per_block {
                            add_cells(shape, &kernel, count, per_block, images, gradients, sums);
                            count = 0;
                        }
                    }
                });
            });
            if count > 0 {
                add_cells(shape, &kernel, count, per_block, images, gradients, sums);
            }
        });
    });
}

/// Adds, for each cell, the products of the tiles' transformed pixels and transformed gradients.
fn add_cells(
    shape: &ConvShape,
    kernel: &Microkernel<f32>,
    tiles: usize,
    capacity: usize,
    images: &[f32],
    gradients: &[f32],
    sums: &mut [f32],
) {
    let (channels_in, channels_out) = (shape.in_channels, shape.out_channels);
    let panels = channels_out.div_ceil(kernel.columns);
    let panel_len = capacity * kernel.columns;
    for cell in 0..CELLS {
        let a = &images[cell * capacity * channels_in..][..tiles * channels_in];
        let c = &mut sums[cell * channels_in * channels_out..][..channels_in * channels_out];
        for panel in 0..panels {
            let b = &gradients[(cell * panels + panel) * panel_len..][..tiles * kernel.columns];
            let first_column = panel * kernel.columns;
            let arguments = Panel {
                rows: channels_in,
                segments: &[Segment { offset: 0, len: tiles }],
                a: RowsOfA::Strided { data: a.as_ptr(), row_stride: 1, column_stride: channels_in },
                chosen: None,
                b: b.as_ptr(),
                b_row_stride: kernel.columns,
                c: c[first_column..].as_mut_ptr(),
                c_row_stride: channels_out,
                columns: kernel.columns.min(channels_out - first_column),
                accumulate: true,
            };
            // SAFETY: the slices above hold the operands and the sums; the kernel fits the processor.
            unsafe { (kernel.run)(&arguments) };
        }
    }
}
