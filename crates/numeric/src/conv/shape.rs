//! The sizes of a convolution, and how its windows lie in memory.

use crate::matmul::Segment;
use std::ops::Range;

/// A convolution over up to three spatial axes (depth, rows, columns), channels last. Two-dimensional ones have depth 1.
///
/// Only the padding before the input is given; the padding after it follows from the size of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvShape {
    /// Examples.
    pub batch: usize,
    /// Channels of the input.
    pub in_channels: usize,
    /// Channels of the output.
    pub out_channels: usize,
    /// Groups that the channels are split into; each output channel reads `in_channels / groups` channels of the input.
    pub groups: usize,
    /// Spatial size of the input.
    pub input: [usize; 3],
    /// Spatial size of the filter.
    pub filter: [usize; 3],
    /// Spatial size of the output.
    pub output: [usize; 3],
    /// Steps of the window.
    pub strides: [usize; 3],
    /// Steps inside the window.
    pub dilations: [usize; 3],
    /// Zeros before the input.
    pub pad_before: [usize; 3],
}

impl ConvShape {
    /// Returns a two-dimensional convolution with strides and dilations of 1, no padding and one group; set the fields for
    /// anything else.
    pub fn conv2d(
        batch: usize,
        input: [usize; 2],
        in_channels: usize,
        filter: [usize; 2],
        out_channels: usize,
    ) -> Self {
        let output: [usize; 2] = std::array::from_fn(|axis| (input[axis] + 1).saturating_sub(filter[axis]));
        ConvShape {
            batch,
            in_channels,
            out_channels,
            groups: 1,
            input: [1, input[0], input[1]],
            filter: [1, filter[0], filter[1]],
            output: [1, output[0], output[1]],
            strides: [1; 3],
            dilations: [1; 3],
            pad_before: [0; 3],
        }
    }

    /// Returns the same convolution with the given output size and padding before the input (rows and columns).
    pub fn with_output(self, output: [usize; 2], pad_before: [usize; 2]) -> Self {
        ConvShape { output: [1, output[0], output[1]], pad_before: [0, pad_before[0], pad_before[1]], ..self }
    }

    /// Elements of the input.
    pub fn in_len(&self) -> usize {
        self.batch * self.in_image_len()
    }

    /// Elements of the filter: `[depth, rows, columns, in_channels / groups, out_channels]`.
    pub fn filter_len(&self) -> usize {
        self.taps() * self.group_in() * self.out_channels
    }

    /// Elements of the output.
    pub fn out_len(&self) -> usize {
        self.batch * self.out_image_len()
    }

    pub(super) fn in_image_len(&self) -> usize {
        self.input.iter().product::<usize>() * self.in_channels
    }

    pub(super) fn out_image_len(&self) -> usize {
        self.output.iter().product::<usize>() * self.out_channels
    }

    pub(super) fn taps(&self) -> usize {
        self.filter.iter().product()
    }

    pub(super) fn group_in(&self) -> usize {
        self.in_channels / self.groups
    }

    pub(super) fn group_out(&self) -> usize {
        self.out_channels / self.groups
    }

    /// Estimates the time of the multiplications at the speed of the micro-kernel.
    pub(super) fn nanoseconds(&self) -> f64 {
        self.out_len() as f64 * (self.taps() * self.group_in()) as f64 / 40.0
    }

    pub(super) fn check(&self, input: usize, filter: usize, out: usize) {
        assert!(self.groups > 0, "a convolution has at least one group");
        assert!(
            self.in_channels.is_multiple_of(self.groups) && self.out_channels.is_multiple_of(self.groups),
            "the channels do not split into the groups"
        );
        assert!(self.strides.iter().chain(&self.dilations).all(|&step| step > 0), "a window that does not move");
        assert_eq!(input, self.in_len(), "the input has another size than its shape");
        assert_eq!(filter, self.filter_len(), "the filter has another size than its shape");
        assert_eq!(out, self.out_len(), "the output has another size than its shape");
    }

    /// Returns how many input positions `outputs` neighbouring windows span, padding included.
    pub(super) fn extent(&self, axis: usize, outputs: usize) -> usize {
        (outputs.max(1) - 1) * self.strides[axis] + (self.filter[axis].max(1) - 1) * self.dilations[axis] + 1
    }

    /// Returns whether all windows lie inside the input.
    pub(super) fn needs_no_padding(&self) -> bool {
        (0..3).all(|axis| self.pad_before[axis] == 0 && self.extent(axis, self.output[axis]) <= self.input[axis])
    }

    /// Returns the axis along which images are split into bands.
    pub(super) fn band_axis(&self) -> usize {
        if self.output[0] > 1 { 0 } else { 1 }
    }

    /// Returns the length of the bands that the output is split into. A band of the output and of the padded input fits the
    /// cache, and there are enough bands for the threads.
    pub(super) fn band_len(&self, element: usize) -> usize {
        const BAND_BYTES: usize = 160 << 10;
        let axis = self.band_axis();
        let across = if axis == 0 { self.output[1] * self.output[2] } else { self.output[2] };
        let in_across = if axis == 0 {
            self.extent(1, self.output[1]) * self.extent(2, self.output[2])
        } else {
            self.extent(2, self.output[2])
        };
        let unit = (across * self.out_channels + in_across * self.in_channels * self.strides[axis]) * element;
        let mut bands = self.output[axis].div_ceil((BAND_BYTES / unit.max(1)).max(1));
        let threads = crate::parallel::threads();
        if threads > 1 && self.batch * bands < 2 * threads {
            bands = (2 * threads).div_ceil(self.batch.max(1)).min(self.output[axis]);
        }
        self.output[axis].div_ceil(bands.max(1)).max(1)
    }
}

/// Part of an image, padded where windows reach beyond it, with the distance between its planes and rows.
#[derive(Clone, Copy)]
pub(super) struct Region<'a, T> {
    pub data: &'a [T],
    pub plane: usize,
    pub row: usize,
}

impl ConvShape {
    /// Returns the elements of the buffer that [`ConvShape::pad_region`] needs for a band of the output.
    pub(super) fn region_len(&self, band_len: usize) -> usize {
        if self.needs_no_padding() {
            return 0;
        }
        let axis = self.band_axis();
        (0..3).map(|own| self.extent(own, if own == axis { band_len } else { self.output[own] })).product::<usize>()
            * self.in_channels
    }

    /// Returns the part of an image that the windows of a band read: the image itself, or a padded copy in `buffer`.
    pub(super) fn pad_region<'a, T: Copy>(
        &self,
        image: &'a [T],
        band: Range<usize>,
        zero: T,
        buffer: &'a mut [T],
    ) -> Region<'a, T> {
        let axis = self.band_axis();
        let channels = self.in_channels;
        if self.needs_no_padding() {
            let (plane, row) = (self.input[1] * self.input[2] * channels, self.input[2] * channels);
            let start = band.start * self.strides[axis] * if axis == 0 { plane } else { row };
            return Region { data: &image[start..], plane, row };
        }
        let outputs: [usize; 3] = std::array::from_fn(|own| if own == axis { band.len() } else { self.output[own] });
        let sizes: [usize; 3] = std::array::from_fn(|own| self.extent(own, outputs[own]));
        let first: [isize; 3] = std::array::from_fn(|own| {
            let start = if own == axis { band.start * self.strides[own] } else { 0 };
            start as isize - self.pad_before[own] as isize
        });
        let row = sizes[2] * channels;
        let plane = sizes[1] * row;
        let buffer = &mut buffer[..sizes[0] * plane];
        let inside = |own: usize, at: usize| {
            let position = first[own] + at as isize;
            usize::try_from(position).ok().filter(|&position| position < self.input[own])
        };
        // The columns inside the image are one run of each row.
        let left = usize::try_from(-first[2]).unwrap_or(0).min(sizes[2]);
        let skipped = usize::try_from(first[2]).unwrap_or(0);
        let existing = self.input[2].saturating_sub(skipped).min(sizes[2] - left);
        for z in 0..sizes[0] {
            for y in 0..sizes[1] {
                let line = &mut buffer[z * plane + y * row..][..row];
                match (inside(0, z), inside(1, y)) {
                    (Some(z), Some(y)) if existing > 0 => {
                        let start = ((z * self.input[1] + y) * self.input[2] + skipped) * channels;
                        line[..left * channels].fill(zero);
                        line[left * channels..][..existing * channels]
                            .copy_from_slice(&image[start..][..existing * channels]);
                        line[(left + existing) * channels..].fill(zero);
                    }
                    _ => line.fill(zero),
                }
            }
        }
        Region { data: buffer, plane, row }
    }

    /// Returns the rows of a window in a region as runs of adjacent elements, in the order of the filter, none longer than
    /// `longest`.
    pub(super) fn window(&self, plane: usize, row: usize, group: usize, longest: usize) -> Vec<Segment> {
        let mut segments = Vec::new();
        let joined = self.dilations[2] == 1 && self.groups == 1;
        let (steps, len) =
            if joined { (1, self.filter[2] * self.in_channels) } else { (self.filter[2], self.group_in()) };
        for z in 0..self.filter[0] {
            for y in 0..self.filter[1] {
                for x in 0..steps {
                    let start = z * self.dilations[0] * plane
                        + y * self.dilations[1] * row
                        + x * self.dilations[2] * self.in_channels
                        + group * self.group_in();
                    let pieces = len.div_ceil(longest).max(1);
                    let step = len.div_ceil(pieces).max(1);
                    for cut in (0..len).step_by(step) {
                        segments.push(Segment { offset: start + cut, len: step.min(len - cut) });
                    }
                }
            }
        }
        segments
    }

    /// Panics unless every element that the windows of a band read is inside the region.
    pub(super) fn check_region<T>(&self, region: &Region<'_, T>, band_len: usize, window: &[Segment]) {
        let axis = self.band_axis();
        let last = |own: usize| (if own == axis { band_len } else { self.output[own] }).max(1) - 1;
        let start = last(0) * self.strides[0] * region.plane
            + last(1) * self.strides[1] * region.row
            + last(2) * self.strides[2] * self.in_channels;
        let reach = window.iter().map(|segment| segment.offset + segment.len).max().unwrap_or(0);
        assert!(start + reach <= region.data.len(), "windows reach out of the input");
    }
}
