//! Depthwise convolution and its gradients: each channel has its own filters. Channels last.

use crate::float::Float;
use crate::parallel;
use crate::simd::MulAdd;
use cpu_macros::each_level;

/// The sizes of a depthwise convolution. The filter is `[rows, columns, in_channels, multiplier]`, the output has
/// `in_channels * multiplier` channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DepthwiseShape {
    /// Examples.
    pub batch: usize,
    /// Channels of the input.
    pub in_channels: usize,
    /// Filters for each channel.
    pub multiplier: usize,
    /// Rows and columns of the input.
    pub input: [usize; 2],
    /// Rows and columns of the filter.
    pub filter: [usize; 2],
    /// Rows and columns of the output.
    pub output: [usize; 2],
    /// Steps of the window.
    pub strides: [usize; 2],
    /// Steps inside the window.
    pub dilations: [usize; 2],
    /// Zeros before the input.
    pub pad_before: [usize; 2],
}

impl DepthwiseShape {
    /// Channels of the output.
    pub fn out_channels(&self) -> usize {
        self.in_channels * self.multiplier
    }

    fn check(&self, input: usize, filter: usize, out: usize) {
        let pixels = |size: [usize; 2]| size[0] * size[1];
        assert!(self.strides.iter().chain(&self.dilations).all(|&step| step > 0), "a window that does not move");
        assert_eq!(input, self.batch * pixels(self.input) * self.in_channels, "the input has another size");
        assert_eq!(filter, pixels(self.filter) * self.out_channels(), "the filter has another size");
        assert_eq!(out, self.batch * pixels(self.output) * self.out_channels(), "the output has another size");
    }

    /// Returns the input position under a tap of the window of an output position, if it is inside the input.
    #[inline(always)]
    fn seen(&self, axis: usize, output: usize, tap: usize) -> Option<usize> {
        let padded = output * self.strides[axis] + tap * self.dilations[axis];
        padded.checked_sub(self.pad_before[axis]).filter(|&position| position < self.input[axis])
    }

    /// Returns the output position whose window has an input position under a tap, if there is one.
    #[inline(always)]
    fn seeing(&self, axis: usize, input: usize, tap: usize) -> Option<usize> {
        let padded = (input + self.pad_before[axis]).checked_sub(tap * self.dilations[axis])?;
        (padded.is_multiple_of(self.strides[axis]))
            .then_some(padded / self.strides[axis])
            .filter(|&position| position < self.output[axis])
    }

    fn line_cost(&self, columns: usize) -> f64 {
        (columns * self.out_channels() * self.filter[0] * self.filter[1]) as f64 * 0.3
    }
}

/// Writes the depthwise convolution.
pub fn depthwise_conv2d<T: Float>(shape: &DepthwiseShape, input: &[T], filter: &[T], out: &mut [T]) {
    shape.check(input.len(), filter.len(), out.len());
    let line = shape.output[1] * shape.out_channels();
    if out.is_empty() {
        return;
    }
    parallel::for_each_chunk_mut(out, line, shape.line_cost(shape.output[1]), |first, lines| {
        forward_lines(shape, input, filter, first, lines);
    });
}

/// Writes the gradient of the input of a depthwise convolution, given the gradient of its output.
pub fn depthwise_conv2d_input_grad<T: Float>(shape: &DepthwiseShape, filter: &[T], gradient: &[T], out: &mut [T]) {
    shape.check(out.len(), filter.len(), gradient.len());
    let line = shape.input[1] * shape.in_channels;
    if out.is_empty() {
        return;
    }
    parallel::for_each_chunk_mut(out, line, shape.line_cost(shape.input[1]), |first, lines| {
        input_grad_lines(shape, filter, gradient, first, lines);
    });
}

/// Writes the gradient of the filter of a depthwise convolution, given the gradient of its output.
pub fn depthwise_conv2d_filter_grad<T: Float>(shape: &DepthwiseShape, input: &[T], gradient: &[T], out: &mut [T]) {
    shape.check(input.len(), out.len(), gradient.len());
    let channels = shape.out_channels();
    if out.is_empty() {
        return;
    }
    let cost = (shape.batch * shape.output[0] * shape.output[1] * channels) as f64 * 0.3;
    parallel::for_each_chunk_mut(out, channels, cost, |first, taps| {
        for (offset, tap) in taps.chunks_exact_mut(channels).enumerate() {
            filter_grad_tap(shape, input, gradient, first + offset, tap);
        }
    });
}

#[each_level]
fn forward_lines<T: Float>(shape: &DepthwiseShape, input: &[T], filter: &[T], first: usize, lines: &mut [T]) {
    let channels = shape.out_channels();
    let mut sums = vec![T::Wide::ZERO; channels];
    for (offset, pixel) in lines.chunks_exact_mut(channels).enumerate() {
        let index = first * shape.output[1] + offset;
        let (x, y) = (index % shape.output[1], index / shape.output[1] % shape.output[0]);
        let example = index / (shape.output[0] * shape.output[1]);
        sums.fill(T::Wide::ZERO);
        for tap_y in 0..shape.filter[0] {
            let Some(at_y) = shape.seen(0, y, tap_y) else { continue };
            for tap_x in 0..shape.filter[1] {
                let Some(at_x) = shape.seen(1, x, tap_x) else { continue };
                let start = ((example * shape.input[0] + at_y) * shape.input[1] + at_x) * shape.in_channels;
                let values = &input[start..start + shape.in_channels];
                let weights = &filter[(tap_y * shape.filter[1] + tap_x) * channels..][..channels];
                if shape.multiplier == 1 {
                    for ((sum, &value), &weight) in sums.iter_mut().zip(values).zip(weights) {
                        *sum = value.widen().times_plus(weight.widen(), *sum);
                    }
                } else {
                    for (channel, &value) in values.iter().enumerate() {
                        let own = channel * shape.multiplier..(channel + 1) * shape.multiplier;
                        for (sum, &weight) in sums[own.clone()].iter_mut().zip(&weights[own]) {
                            *sum = value.widen().times_plus(weight.widen(), *sum);
                        }
                    }
                }
            }
        }
        for (out, &sum) in pixel.iter_mut().zip(&sums) {
            *out = T::narrow(sum);
        }
    }
}

#[each_level]
fn input_grad_lines<T: Float>(shape: &DepthwiseShape, filter: &[T], gradient: &[T], first: usize, lines: &mut [T]) {
    let channels = shape.out_channels();
    let mut sums = vec![T::Wide::ZERO; shape.in_channels];
    for (offset, pixel) in lines.chunks_exact_mut(shape.in_channels).enumerate() {
        let index = first * shape.input[1] + offset;
        let (x, y) = (index % shape.input[1], index / shape.input[1] % shape.input[0]);
        let example = index / (shape.input[0] * shape.input[1]);
        sums.fill(T::Wide::ZERO);
        for tap_y in 0..shape.filter[0] {
            let Some(out_y) = shape.seeing(0, y, tap_y) else { continue };
            for tap_x in 0..shape.filter[1] {
                let Some(out_x) = shape.seeing(1, x, tap_x) else { continue };
                let start = ((example * shape.output[0] + out_y) * shape.output[1] + out_x) * channels;
                let values = &gradient[start..start + channels];
                let weights = &filter[(tap_y * shape.filter[1] + tap_x) * channels..][..channels];
                if shape.multiplier == 1 {
                    for ((sum, &value), &weight) in sums.iter_mut().zip(values).zip(weights) {
                        *sum = value.widen().times_plus(weight.widen(), *sum);
                    }
                } else {
                    for (channel, sum) in sums.iter_mut().enumerate() {
                        let own = channel * shape.multiplier..(channel + 1) * shape.multiplier;
                        for (&value, &weight) in values[own.clone()].iter().zip(&weights[own]) {
                            *sum = value.widen().times_plus(weight.widen(), *sum);
                        }
                    }
                }
            }
        }
        for (out, &sum) in pixel.iter_mut().zip(&sums) {
            *out = T::narrow(sum);
        }
    }
}

#[each_level]
fn filter_grad_tap<T: Float>(shape: &DepthwiseShape, input: &[T], gradient: &[T], tap: usize, out: &mut [T]) {
    let channels = shape.out_channels();
    let (tap_y, tap_x) = (tap / shape.filter[1], tap % shape.filter[1]);
    let mut sums = vec![T::Wide::ZERO; channels];
    for example in 0..shape.batch {
        for y in 0..shape.output[0] {
            let Some(at_y) = shape.seen(0, y, tap_y) else { continue };
            for x in 0..shape.output[1] {
                let Some(at_x) = shape.seen(1, x, tap_x) else { continue };
                let start = ((example * shape.input[0] + at_y) * shape.input[1] + at_x) * shape.in_channels;
                let values = &input[start..start + shape.in_channels];
                let start = ((example * shape.output[0] + y) * shape.output[1] + x) * channels;
                let gradient = &gradient[start..start + channels];
                if shape.multiplier == 1 {
                    for ((sum, &value), &gradient) in sums.iter_mut().zip(values).zip(gradient) {
                        *sum = value.widen().times_plus(gradient.widen(), *sum);
                    }
                } else {
                    for (channel, &value) in values.iter().enumerate() {
                        let own = channel * shape.multiplier..(channel + 1) * shape.multiplier;
                        for (sum, &gradient) in sums[own.clone()].iter_mut().zip(&gradient[own]) {
                            *sum = value.widen().times_plus(gradient.widen(), *sum);
                        }
                    }
                }
            }
        }
    }
    for (out, &sum) in out.iter_mut().zip(&sums) {
        *out = T::narrow(sum);
    }
}
