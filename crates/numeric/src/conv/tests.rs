//! Convolutions and gradients against the definition, in exact small integers.

use super::*;

fn values(len: usize, seed: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7 + seed * 5 + i / 3) % 7) as f32 - 3.0).collect()
}

/// Calls `body(input position, filter position, output position)` for every product of the convolution.
fn for_each_product(shape: &ConvShape, mut body: impl FnMut(usize, usize, usize)) {
    let (group_in, group_out) = (shape.in_channels / shape.groups, shape.out_channels / shape.groups);
    let cells = |size: [usize; 3]| {
        (0..size[0]).flat_map(move |z| (0..size[1]).flat_map(move |y| (0..size[2]).map(move |x| [z, y, x])))
    };
    let place = |cell: [usize; 3], size: [usize; 3]| (cell[0] * size[1] + cell[1]) * size[2] + cell[2];
    for example in 0..shape.batch {
        for out in cells(shape.output) {
            for tap in cells(shape.filter) {
                let at: [isize; 3] = std::array::from_fn(|axis| {
                    (out[axis] * shape.strides[axis] + tap[axis] * shape.dilations[axis]) as isize
                        - shape.pad_before[axis] as isize
                });
                if (0..3).any(|axis| at[axis] < 0 || at[axis] >= shape.input[axis] as isize) {
                    continue;
                }
                let at = at.map(|position| position as usize);
                for channel in 0..shape.out_channels {
                    for input_channel in 0..group_in {
                        let from = (example * shape.input.iter().product::<usize>() + place(at, shape.input))
                            * shape.in_channels
                            + channel / group_out * group_in
                            + input_channel;
                        let weight =
                            (place(tap, shape.filter) * group_in + input_channel) * shape.out_channels + channel;
                        let to = (example * shape.output.iter().product::<usize>() + place(out, shape.output))
                            * shape.out_channels
                            + channel;
                        body(from, weight, to);
                    }
                }
            }
        }
    }
}

/// Asserts that the values are equal, or, where Winograd's transform is used, within its rounding of sums of small integers.
fn assert_equal(out: &[f32], expected: &[f32], shape: &ConvShape) {
    let largest = expected.iter().fold(1.0f32, |most, &value| most.max(value.abs()));
    let tolerance = if winograd::Tiling::of(shape).is_some() { 2e-5 * largest } else { 0.0 };
    for (at, (&value, &expected)) in out.iter().zip(expected).enumerate() {
        assert!((value - expected).abs() <= tolerance, "{value} is not {expected} at {at} of {shape:?}");
    }
}

fn output_size(shape: &ConvShape, pad_after: [usize; 3]) -> [usize; 3] {
    std::array::from_fn(|axis| {
        let reach = (shape.filter[axis] - 1) * shape.dilations[axis] + 1;
        let padded = shape.input[axis] + shape.pad_before[axis] + pad_after[axis];
        (padded + shape.strides[axis]).saturating_sub(reach) / shape.strides[axis]
    })
}

fn shapes() -> Vec<ConvShape> {
    let plain = ConvShape::conv2d(2, [9, 10], 3, [3, 3], 5);
    let mut shapes = vec![
        plain,
        ConvShape::conv2d(1, [5, 5], 1, [5, 5], 4),
        ConvShape::conv2d(3, [4, 4], 6, [1, 1], 20),
        ConvShape::conv2d(2, [14, 14], 32, [5, 5], 17),
        ConvShape::conv2d(2, [7, 300], 2, [2, 3], 3),
        ConvShape::conv2d(1, [6, 6], 700, [2, 2], 3),
        ConvShape::conv2d(3, [28, 28], 1, [5, 5], 32),
        ConvShape::conv2d(2, [3, 3], 2, [5, 5], 2),
        ConvShape::conv2d(3, [15, 18], 24, [3, 3], 40),
        ConvShape::conv2d(4, [13, 11], 16, [5, 5], 24),
        ConvShape::conv2d(1, [70, 60], 16, [3, 3], 16),
        // As wide as the image, as over the words of a sentence.
        ConvShape::conv2d(2, [12, 40], 1, [3, 40], 7),
    ];
    let mut more = Vec::new();
    for shape in &shapes {
        for (strides, dilations, pad) in [
            ([1, 1, 1], [1, 1, 1], [0, 1, 1]),
            ([1, 1, 1], [1, 1, 1], [0, 2, 2]),
            ([1, 2, 2], [1, 1, 1], [0, 1, 0]),
            ([1, 1, 3], [1, 2, 1], [0, 0, 2]),
            ([1, 1, 1], [1, 2, 3], [0, 2, 1]),
        ] {
            let mut other = ConvShape { strides, dilations, pad_before: pad, ..*shape };
            other.output = output_size(&other, pad);
            more.push(other);
        }
    }
    shapes.extend(more);
    let mut grouped = ConvShape { groups: 2, in_channels: 4, out_channels: 6, pad_before: [0, 1, 1], ..plain };
    grouped.output = output_size(&grouped, [0, 1, 1]);
    shapes.push(grouped);
    shapes.push(ConvShape {
        strides: [1, 2, 1],
        output: output_size(&ConvShape { strides: [1, 2, 1], ..grouped }, [0; 3]),
        ..grouped
    });
    let mut volume = ConvShape { input: [5, 6, 7], filter: [2, 3, 3], pad_before: [1, 1, 0], ..plain };
    volume.output = output_size(&volume, [0, 1, 1]);
    shapes.push(volume);
    shapes.push(ConvShape {
        strides: [2, 1, 2],
        output: output_size(&ConvShape { strides: [2, 1, 2], ..volume }, [0; 3]),
        ..volume
    });
    shapes.push(ConvShape { batch: 0, ..plain });
    shapes.retain(|shape| shape.output.iter().all(|&size| size > 0));
    shapes
}

#[test]
fn some_shapes_go_through_winograds_transform() {
    let tiled = shapes().iter().filter(|shape| winograd::Tiling::of(shape).is_some()).count();
    assert!(tiled >= 6 || cpu::level() < cpu::Level::Avx2, "{tiled} shapes");
}

#[test]
fn convolutions_equal_the_definition() {
    for shape in shapes() {
        let (input, filter) = (values(shape.in_len(), 1), values(shape.filter_len(), 2));
        let mut expected = vec![0.0f32; shape.out_len()];
        for_each_product(&shape, |from, weight, to| expected[to] += input[from] * filter[weight]);
        let mut out = vec![f32::NAN; shape.out_len()];
        conv(&shape, &input, &filter, &mut out, Epilogue::NONE);
        assert_equal(&out, &expected, &shape);
    }
}

#[test]
fn input_gradients_equal_the_definition() {
    for shape in shapes() {
        let (gradient, filter) = (values(shape.out_len(), 1), values(shape.filter_len(), 2));
        let mut expected = vec![0.0f32; shape.in_len()];
        for_each_product(&shape, |from, weight, to| expected[from] += gradient[to] * filter[weight]);
        let mut out = vec![f32::NAN; shape.in_len()];
        conv_input_grad(&shape, &filter, &gradient, &mut out);
        assert_equal(&out, &expected, &input_grad::turned(&shape).unwrap_or(shape));
    }
}

#[test]
fn the_input_gradient_of_wide_windows_is_no_convolution_of_padding() {
    // Turned, the window would be laid over each of the 480 pixels of the input, for 10 of the output.
    assert!(input_grad::turned(&ConvShape::conv2d(2, [12, 40], 1, [3, 40], 7)).is_none());
    assert!(input_grad::turned(&ConvShape::conv2d(2, [12, 40], 1, [3, 3], 7)).is_some());
}

#[test]
fn filter_gradients_equal_the_definition() {
    for shape in shapes() {
        let (input, gradient) = (values(shape.in_len(), 1), values(shape.out_len(), 2));
        let mut expected = vec![0.0f32; shape.filter_len()];
        for_each_product(&shape, |from, weight, to| expected[weight] += input[from] * gradient[to]);
        let mut out = vec![f32::NAN; shape.filter_len()];
        conv_filter_grad(&shape, &input, &gradient, &mut out);
        assert_equal(&out, &expected, &shape);
    }
}

#[test]
fn other_types_bias_and_activation() {
    let shape = ConvShape::conv2d(2, [6, 6], 2, [3, 3], 3).with_output([6, 6], [1, 1]);
    let (input, filter, bias) = (values(shape.in_len(), 1), values(shape.filter_len(), 2), values(3, 3));
    let mut expected = vec![0.0f32; shape.out_len()];
    for_each_product(&shape, |from, weight, to| expected[to] += input[from] * filter[weight]);
    expected.iter_mut().enumerate().for_each(|(at, value)| *value = (*value + bias[at % 3]).max(0.0));
    let mut out = vec![0.0f32; shape.out_len()];
    conv(&shape, &input, &filter, &mut out, Epilogue { bias: Some(&bias), activation: Activation::Relu });
    assert!(out == expected);
    let half = |values: &[f32]| -> Vec<f16> { values.iter().map(|&value| f16::from_f32(value)).collect() };
    let mut out = vec![f16::ZERO; shape.out_len()];
    let bias = half(&bias);
    conv(&shape, &half(&input), &half(&filter), &mut out, Epilogue { bias: Some(&bias), activation: Activation::Relu });
    assert!(out == half(&expected));
    let double = |values: &[f32]| -> Vec<f64> { values.iter().map(|&value| f64::from(value)).collect() };
    let mut gradient = vec![0.0f64; shape.filter_len()];
    conv_filter_grad(&shape, &double(&input), &double(&expected), &mut gradient);
    let mut slow = vec![0.0f64; shape.filter_len()];
    for_each_product(&shape, |from, weight, to| slow[weight] += f64::from(input[from]) * f64::from(expected[to]));
    assert!(gradient == slow);
}

#[test]
fn depthwise_equals_the_definition() {
    for multiplier in [1, 3] {
        for (strides, dilations, pad, output) in
            [([1, 1], [1, 1], [1, 1], [7, 9]), ([2, 2], [1, 1], [0, 1], [3, 5]), ([1, 1], [2, 3], [2, 3], [7, 9])]
        {
            let shape = DepthwiseShape {
                batch: 2,
                in_channels: 5,
                multiplier,
                input: [7, 9],
                filter: [3, 3],
                output,
                strides,
                dilations,
                pad_before: pad,
            };
            // A grouped convolution with one group per channel has the same products in the same layout.
            let grouped = ConvShape {
                strides: [1, strides[0], strides[1]],
                dilations: [1, dilations[0], dilations[1]],
                groups: 5,
                ..ConvShape::conv2d(2, [7, 9], 5, [3, 3], 5 * multiplier).with_output(output, pad)
            };
            let (input, filter) = (values(grouped.in_len(), 1), values(grouped.filter_len(), 2));
            let gradient = values(grouped.out_len(), 3);
            let mut expected = vec![0.0f32; grouped.out_len()];
            let mut expected_input = vec![0.0f32; grouped.in_len()];
            let mut expected_filter = vec![0.0f32; grouped.filter_len()];
            for_each_product(&grouped, |from, weight, to| {
                expected[to] += input[from] * filter[weight];
                expected_input[from] += gradient[to] * filter[weight];
                expected_filter[weight] += gradient[to] * input[from];
            });
            let mut out = vec![f32::NAN; expected.len()];
            depthwise_conv2d(&shape, &input, &filter, &mut out);
            assert!(out == expected);
            let mut out = vec![f32::NAN; expected_input.len()];
            depthwise_conv2d_input_grad(&shape, &filter, &gradient, &mut out);
            assert!(out == expected_input);
            let mut out = vec![f32::NAN; expected_filter.len()];
            depthwise_conv2d_filter_grad(&shape, &input, &gradient, &mut out);
            assert!(out == expected_filter);
        }
    }
}
