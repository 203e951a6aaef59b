//! The gradient of the input: a convolution of the output's gradient with the reversed filter, or, where the window steps over pixels or
//! is nearly as large as the image, a product whose columns are added back to the pixels that they came from.

use super::shape::ConvShape;
use crate::matmul::{HasMicrokernel, MatrixView, Panels, RightOperand, multiply};
use crate::parallel;
use crate::scratch::{AlignedMemory, with_scratch};
use bytemuck::Pod;
use cpu_macros::each_level;

/// Writes the gradient of the input; `forward` computes the convolution with the reversed filter.
pub(super) fn input_grad<T: HasMicrokernel + Pod + Send + Sync>(
    shape: &ConvShape,
    filter: &[T],
    gradient: &[T],
    out: &mut [T],
    forward: impl FnOnce(&ConvShape, &[T], &[T], &mut [T]),
) {
    // A convolution to a few channels would leave most lanes of the micro-kernel's panels empty.
    let fills_panels = shape.group_in() * PANEL_SHARE >= T::microkernel().columns;
    match turned(shape).filter(|_| fills_panels) {
        Some(turned_shape) => with_scratch(filter.len(), |turned_filter: &mut [T]| {
            turn_filter(shape, filter, turned_filter);
            forward(&turned_shape, gradient, turned_filter, out);
        }),
        None => add_columns_back(shape, filter, gradient, out),
    }
}

/// The convolution with the reversed filter pays if its channels fill at least this part of a panel.
const PANEL_SHARE: usize = 4;

/// The convolution with the reversed filter pays if the input has at most this many times the pixels of the output: it has a window for
/// each pixel of the input, and windows beyond the output's edge see only padding.
const PIXELS_RATIO_MAX: usize = 4;

/// Returns the convolution that computes the input's gradient from the output's, for strides of 1 and windows that are small beside the
/// image.
pub(super) fn turned(shape: &ConvShape) -> Option<ConvShape> {
    let pixels = |sizes: [usize; 3]| sizes.into_iter().product::<usize>();
    if shape.strides != [1; 3] || pixels(shape.input) > PIXELS_RATIO_MAX * pixels(shape.output) {
        return None;
    }
    let mut pad_before = [0; 3];
    for axis in 0..3 {
        pad_before[axis] =
            ((shape.filter[axis].max(1) - 1) * shape.dilations[axis]).checked_sub(shape.pad_before[axis])?;
    }
    Some(ConvShape {
        in_channels: shape.out_channels,
        out_channels: shape.in_channels,
        input: shape.output,
        output: shape.input,
        pad_before,
        ..*shape
    })
}

/// Reverses the taps and swaps the channels of a filter.
pub(super) fn turn_filter<T: Copy>(shape: &ConvShape, filter: &[T], turned: &mut [T]) {
    let (taps, group_in, group_out) = (shape.taps(), shape.group_in(), shape.group_out());
    // In blocks of both channel axes, so that the cache lines of both layouts are used in full while they are cached.
    for tap in 0..taps {
        for group in 0..shape.groups {
            for first_output in (0..group_out).step_by(TURN_BLOCK) {
                for first_input in (0..group_in).step_by(TURN_BLOCK) {
                    for output in first_output..group_out.min(first_output + TURN_BLOCK) {
                        let row = ((taps - 1 - tap) * group_out + output) * shape.in_channels + group * group_in;
                        let column = group * group_out + output;
                        for input in first_input..group_in.min(first_input + TURN_BLOCK) {
                            turned[row + input] = filter[(tap * group_in + input) * shape.out_channels + column];
                        }
                    }
                }
            }
        }
    }
}

/// The side of the blocks of channels that [`turn_filter`] copies at a time.
const TURN_BLOCK: usize = 16;

/// Multiplies the gradient of each line of pixels by the filter, and adds the resulting windows to the image.
fn add_columns_back<T: HasMicrokernel + Pod + Send + Sync>(
    shape: &ConvShape,
    filter: &[T],
    gradient: &[T],
    out: &mut [T],
) {
    let (image_len, taps, group_in) = (shape.in_image_len(), shape.taps(), shape.group_in());
    if out.is_empty() {
        return;
    }
    let depth = taps * group_in;
    if depth == 0 || shape.group_out() == 0 {
        return out.fill(T::ZERO);
    }
    let cost = shape.nanoseconds() / shape.batch.max(1) as f64;
    // All lines of all images are multiplied by the same filter, so it is packed once.
    let packed = |group: usize| {
        let data = &filter[group * shape.group_out()..];
        let b = MatrixView { data, row_stride: 1, column_stride: shape.out_channels };
        let memory = AlignedMemory::zeroed(Panels::<T>::bytes(shape.group_out(), depth));
        Panels::pack(b, shape.group_out(), depth, memory)
    };
    let filters: Vec<Panels<T>> = (0..shape.groups).map(packed).collect();
    parallel::for_each_chunk_mut(out, image_len, cost, |first, images| {
        with_scratch(shape.output[2] * depth, |columns: &mut [T]| {
            for (offset, image) in images.chunks_exact_mut(image_len).enumerate() {
                image.fill(T::ZERO);
                let gradient = &gradient[(first + offset) * shape.out_image_len()..][..shape.out_image_len()];
                for line in 0..shape.output[0] * shape.output[1] {
                    for (group, filter) in filters.iter().enumerate() {
                        let start = line * shape.output[2] * shape.out_channels + group * shape.group_out();
                        let a = MatrixView {
                            data: gradient.get(start..).unwrap_or(&[]),
                            row_stride: shape.out_channels,
                            column_stride: 1,
                        };
                        a.check(shape.output[2], shape.group_out());
                        let b = RightOperand::Packed { panels: filter, first_column: 0 };
                        let (rows, depth_out) = (shape.output[2], shape.group_out());
                        // SAFETY: the view was checked, the panels hold the filter, and `columns` holds the product.
                        unsafe { multiply(rows, depth, depth_out, a, b, columns.as_mut_ptr(), depth, false) };
                        add_line(shape, line, group, columns, image);
                    }
                }
            }
        });
    });
}

/// Adds the windows of one line of output pixels to the image.
#[each_level]
fn add_line<T: HasMicrokernel>(shape: &ConvShape, line: usize, group: usize, columns: &[T], image: &mut [T]) {
    let (taps, group_in) = (shape.taps(), shape.group_in());
    let (z, y) = (line / shape.output[1], line % shape.output[1]);
    let place = |axis: usize, output: usize, tap: usize| {
        let position =
            (output * shape.strides[axis] + tap * shape.dilations[axis]).checked_sub(shape.pad_before[axis])?;
        (position < shape.input[axis]).then_some(position)
    };
    let stride = shape.strides[2];
    for tap in 0..taps {
        let tap_x = tap % shape.filter[2] * shape.dilations[2];
        let tap_y = tap / shape.filter[2] % shape.filter[1];
        let tap_z = tap / (shape.filter[2] * shape.filter[1]);
        let (Some(at_z), Some(at_y)) = (place(0, z, tap_z), place(1, y, tap_y)) else { continue };
        // The windows whose tap lies inside of the line.
        let first = shape.pad_before[2].saturating_sub(tap_x).div_ceil(stride);
        let end = (shape.input[2] + shape.pad_before[2]).saturating_sub(tap_x).div_ceil(stride).min(shape.output[2]);
        if first >= end {
            continue;
        }
        let at_x = first * stride + tap_x - shape.pad_before[2];
        let start = ((at_z * shape.input[1] + at_y) * shape.input[2] + at_x) * shape.in_channels + group * group_in;
        let windows = columns[(first * taps + tap) * group_in..].chunks(taps * group_in);
        let pixels = image[start..].chunks_mut(stride * shape.in_channels);
        if group_in == 1 {
            for (to, from) in pixels.zip(windows).take(end - first) {
                to[0] = to[0].plus(from[0]);
            }
            continue;
        }
        for (to, from) in pixels.zip(windows).take(end - first) {
            for (to, &value) in to[..group_in].iter_mut().zip(&from[..group_in]) {
                *to = to.plus(value);
            }
        }
    }
}
