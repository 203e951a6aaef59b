//! Conversion of coefficients to pixels: result sizes, chroma upsampling, colors.

use super::transform::Factors;
use super::{ColorSpace, Component, Frame, MOST_SAMPLES, Options, Picture, Window};

/// The geometry of the result.
pub(super) struct Layout {
    space: ColorSpace,
    /// The samples per side that a block has in the result: eight divided by the ratio.
    block: usize,
    channels: usize,
    top: usize,
    left: usize,
    window_height: usize,
    window_width: usize,
    /// The first column that is computed: a unit boundary, so that chroma is smoothed as if the image began and ended there.
    first_column: usize,
}

impl Layout {
    pub(super) fn new(frame: &Frame, space: ColorSpace, options: &Options, window: Option<Window>) -> Option<Layout> {
        let block = 8 / options.ratio;
        let (height, width) = ((frame.height * block).div_ceil(8), (frame.width * block).div_ceil(8));
        let channels = match options.channels {
            0 => frame.components.len().min(3),
            channels => channels,
        };
        let known = match channels {
            1 => matches!(space, ColorSpace::Gray | ColorSpace::Ycc | ColorSpace::Rgb),
            3 => space != ColorSpace::Unknown,
            _ => false,
        };
        if !known || height * width * frame.components.len() >= MOST_SAMPLES {
            return None;
        }
        let mut layout = Layout {
            space,
            block,
            channels,
            top: 0,
            left: 0,
            window_height: height,
            window_width: width,
            first_column: 0,
        };
        if let Some(window) = window {
            let side = |start: i32, length: i32, whole: usize| {
                let (start, length) = (usize::try_from(start).ok()?, usize::try_from(length).ok()?);
                (length > 0 && start + length <= whole).then_some((start, length))
            };
            (layout.top, layout.window_height) = side(window.top, window.height, height)?;
            (layout.left, layout.window_width) = side(window.left, window.width, width)?;
            let unit = frame.most_horizontal * block;
            layout.first_column = layout.left / unit * unit;
        }
        Some(layout)
    }

    /// Returns the number of computed columns.
    fn columns(&self) -> usize {
        self.left + self.window_width - self.first_column
    }

    /// Computes the pixels; rows from `complete_rows` on are black.
    pub(super) fn render(&self, mut frame: Frame, options: &Options, complete_rows: usize) -> Option<Picture> {
        let gray_only = self.channels == 1 && self.space != ColorSpace::Rgb;
        let used = if gray_only { 1 } else { frame.components.len() };
        let mut planes = Vec::with_capacity(used);
        for index in 0..used {
            planes.push(Plane::new(&frame.components[index], &frame, self, options)?);
            // These take more memory than anything else.
            frame.components[index].coefficients = Vec::new();
        }
        let row_length = self.window_width * self.channels;
        let mut pixels = vec![0u8; self.window_height * row_length];
        let mut rows = vec![vec![0u8; self.columns()]; used];
        let mut scratch = Vec::new();
        for (y, to) in pixels.chunks_exact_mut(row_length).enumerate() {
            if self.top + y >= complete_rows {
                break;
            }
            for (plane, row) in planes.iter().zip(&mut rows) {
                plane.row(self.top + y, row, &mut scratch);
            }
            let inside = self.left - self.first_column..self.columns();
            let parts: Vec<&[u8]> = rows.iter().map(|row| &row[inside.clone()]).collect();
            self.color(&parts, to, &frame);
        }
        Some(Picture { height: self.window_height, width: self.window_width, channels: self.channels, pixels })
    }

    fn color(&self, parts: &[&[u8]], to: &mut [u8], frame: &Frame) {
        match (self.channels, parts) {
            (1, &[red, green, blue]) => {
                for (x, to) in to.iter_mut().enumerate() {
                    *to = luminance([red[x], green[x], blue[x]]);
                }
            }
            (1, parts) => to.copy_from_slice(parts[0]),
            (_, &[gray]) => {
                for (&value, to) in gray.iter().zip(to.as_chunks_mut::<3>().0) {
                    *to = [value; 3];
                }
            }
            (_, &[first, second, third]) => {
                let convert = self.space == ColorSpace::Ycc;
                for (x, to) in to.as_chunks_mut::<3>().0.iter_mut().enumerate() {
                    let pixel = [first[x], second[x], third[x]];
                    *to = if convert { rgb(pixel) } else { pixel };
                }
            }
            (_, &[first, second, third, black]) => {
                for (x, to) in to.as_chunks_mut::<3>().0.iter_mut().enumerate() {
                    let mut inks = [first[x], second[x], third[x]];
                    if self.space == ColorSpace::Ycck {
                        inks = rgb(inks).map(|value| 255 - value);
                    }
                    let black = u32::from(black[x]);
                    // Adobe stores inverted inks, others don't.
                    *to = inks.map(|ink| match frame.inverted_inks {
                        true => black * u32::from(ink) / 255,
                        false => (255 - black) * (255 - u32::from(ink)) / 255,
                    } as u8);
                }
            }
            _ => {}
        }
    }
}

fn rgb([y, cb, cr]: [u8; 3]) -> [u8; 3] {
    const HALF: i32 = 1 << 15;
    let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
    let red = y + ((91881 * cr + HALF) >> 16);
    let green = y + ((-22554 * cb - 46802 * cr + HALF) >> 16);
    let blue = y + ((116130 * cb + HALF) >> 16);
    [red, green, blue].map(|value| value.clamp(0, 255) as u8)
}

fn luminance([red, green, blue]: [u8; 3]) -> u8 {
    ((19595 * u32::from(red) + 38470 * u32::from(green) + 7471 * u32::from(blue) + (1 << 15)) >> 16) as u8
}

/// The samples of a component, and their upsampling to the size of the result.
struct Plane {
    samples: Vec<u8>,
    stride: usize,
    height: usize,
    /// The used columns.
    start: usize,
    width: usize,
    across: usize,
    down: usize,
    smooth: bool,
}

impl Plane {
    fn new(component: &Component, frame: &Frame, layout: &Layout, options: &Options) -> Option<Plane> {
        // A component with fewer samples is reduced less, so that it needs less upsampling.
        let mut size = layout.block;
        let even = |most: usize, own: usize, size: usize| (most * layout.block).is_multiple_of(own * size * 2);
        while size < 8
            && even(frame.most_horizontal, component.horizontal, size)
            && even(frame.most_vertical, component.vertical, size)
        {
            size *= 2;
        }
        let own = (component.horizontal * size / layout.block, component.vertical * size / layout.block);
        if !frame.most_horizontal.is_multiple_of(own.0) || !frame.most_vertical.is_multiple_of(own.1) {
            return None;
        }
        let factors = Factors::new(component.quantization.as_ref()?, size, options.fast_transform);
        let stride = component.blocks_wide * size;
        let mut samples = vec![0u8; stride * component.blocks_high * size];
        let whole_row = component.stride * 64;
        for (row, to) in samples.chunks_exact_mut(stride * size).enumerate() {
            let blocks = &component.coefficients[row * whole_row..(row + 1) * whole_row];
            for (column, block) in blocks.as_chunks::<64>().0.iter().take(component.blocks_wide).enumerate() {
                factors.apply(block, &mut to[column * size..], stride);
            }
        }
        let (across, down) = (frame.most_horizontal / own.0, frame.most_vertical / own.1);
        let height = (frame.height * component.vertical * size).div_ceil(frame.most_vertical * 8);
        let width = (frame.width * component.horizontal * size).div_ceil(frame.most_horizontal * 8);
        let start = layout.first_column / across;
        let used = layout.columns().div_ceil(across).min(width.saturating_sub(start));
        let smooth = options.fancy_upscaling
            && layout.block > 1
            && match (across, down) {
                (2, 1) | (2, 2) => width > 2 && used >= 2,
                shape => shape == (1, 2),
            };
        Some(Plane { samples, stride, height, start, width: used, across, down, smooth })
    }

    fn source(&self, row: usize) -> &[u8] {
        let start = row.min(self.height - 1) * self.stride + self.start;
        &self.samples[start..start + self.width]
    }

    /// Writes a row of the result; `scratch` is working memory.
    fn row(&self, y: usize, to: &mut [u8], scratch: &mut Vec<u16>) {
        let near = self.source(y / self.down);
        if !self.smooth {
            match self.across {
                1 => to.copy_from_slice(&near[..to.len()]),
                across => to.iter_mut().enumerate().for_each(|(x, to)| *to = near[x / across]),
            }
            return;
        }
        if self.down == 1 {
            double(near, to, |value| u16::from(*value), (2, 1, 2));
            return;
        }
        // Each row is three parts of the nearest and one of the next nearest; the edges count twice.
        let upper = y.is_multiple_of(2);
        let far = self.source(if upper { (y / 2).saturating_sub(1) } else { y / 2 + 1 });
        let mixed = near.iter().zip(far).map(|(&near, &far)| 3 * u16::from(near) + u16::from(far));
        if self.across == 1 {
            let bias = if upper { 1 } else { 2 };
            to.iter_mut().zip(mixed).for_each(|(to, value)| *to = ((value + bias) >> 2) as u8);
        } else {
            scratch.clear();
            scratch.extend(mixed);
            double(scratch, to, |value| *value, (4, 8, 7));
        }
    }
}

/// Doubles a row: each sample gives two, each with three parts of it and one of the neighbour on that side.
fn double<T>(from: &[T], to: &mut [u8], value: fn(&T) -> u16, (shift, left_bias, right_bias): (u32, u16, u16)) {
    let last = from.len() - 1;
    for (x, pair) in to.chunks_mut(2).enumerate() {
        let here = value(&from[x]);
        let left = if x == 0 { here } else { value(&from[x - 1]) };
        let right = if x == last { here } else { value(&from[x + 1]) };
        pair[0] = ((3 * here + left + left_bias) >> shift) as u8;
        if let Some(to) = pair.get_mut(1) {
            *to = ((3 * here + right + right_bias) >> shift) as u8;
        }
    }
}
