//! Convolutions of each channel separately: DepthwiseConv2dNative and its gradient ops.

use super::conv::{Names, backprop_filter_gradient, backprop_input_gradient, forward_gradient};
use super::conv_check::ConvShapes;
use super::padding::Padding;
use super::window::{Images, Window};
use crate::compose::Gradients;
use crate::sizes::shape_of_sizes;
use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Cost, Gradient, GradientArgs, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags};
use numeric::conv::{
    DepthwiseShape, depthwise_conv2d as convolve, depthwise_conv2d_filter_grad, depthwise_conv2d_input_grad,
};
use numeric::float::Float;
use std::marker::PhantomData;
use tensor::{Element, PartialShape, Result, Shape, Status, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "DepthwiseConv2dNative",
            inputs: &["input: T", "filter: T"],
            outputs: &["output: T"],
            attrs: &[
                "T: {half, bfloat16, float, double}",
                "strides: list(int)",
                "padding: {'SAME', 'VALID', 'EXPLICIT'}",
                "explicit_paddings: list(int) = []",
                "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
                "dilations: list(int) = [1, 1, 1, 1]",
            ],
            flags: OpFlags::NONE,
        },
        shape: depthwise_shape,
        gradient: Gradient::Fn(depthwise_gradient),
        kernels: &[kernel_of::<f32>(), kernel_of::<f64>(), kernel_of::<f16>(), kernel_of::<bf16>()],
    },
    Op {
        def: OpDef {
            name: "DepthwiseConv2dNativeBackpropInput",
            inputs: &["input_sizes: int32", "filter: T", "out_backprop: T"],
            outputs: &["output: T"],
            attrs: &[
                "T: {half, bfloat16, float, double}",
                "strides: list(int)",
                "padding: {'SAME', 'VALID', 'EXPLICIT'}",
                "explicit_paddings: list(int) = []",
                "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
                "dilations: list(int) = [1, 1, 1, 1]",
            ],
            flags: OpFlags::NONE,
        },
        shape: backprop_input_shape,
        gradient: Gradient::Fn(depthwise_backprop_input_gradient),
        kernels: &[kernel_of::<f32>(), kernel_of::<f64>(), kernel_of::<f16>(), kernel_of::<bf16>()],
    },
    Op {
        def: OpDef {
            name: "DepthwiseConv2dNativeBackpropFilter",
            inputs: &["input: T", "filter_sizes: int32", "out_backprop: T"],
            outputs: &["output: T"],
            attrs: &[
                "T: {half, bfloat16, float, double}",
                "strides: list(int)",
                "padding: {'SAME', 'VALID', 'EXPLICIT'}",
                "explicit_paddings: list(int) = []",
                "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
                "dilations: list(int) = [1, 1, 1, 1]",
            ],
            flags: OpFlags::NONE,
        },
        shape: backprop_filter_shape,
        gradient: Gradient::Fn(depthwise_backprop_filter_gradient),
        kernels: &[kernel_of::<f32>(), kernel_of::<f64>(), kernel_of::<f16>(), kernel_of::<bf16>()],
    },
];

const NAMES: Names = Names {
    forward: "DepthwiseConv2dNative",
    backprop_input: "DepthwiseConv2dNativeBackpropInput",
    backprop_filter: "DepthwiseConv2dNativeBackpropFilter",
};

/// Returns the convolution of each channel with its own filters (rows, columns, channels, filters per channel).
#[track_caller]
pub fn depthwise_conv2d(input: &Output, filter: &Output, strides: [i64; 2], padding: Padding) -> Output {
    let op = input.graph().op("DepthwiseConv2dNative").input(input).input(filter).attr("padding", padding.attr());
    op.attr("strides", &[1, strides[0], strides[1], 1][..]).output()
}

fn depthwise_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (input, filter) = (c.with_rank(0, 4)?, c.with_rank(1, 4)?);
    let window = Window::from_attrs(c.attrs, 2)?;
    let axis = window.channel_axis();
    input.slice(axis, axis + 1).merge(&filter.slice(2, 3))?;
    let depth = input.dim(axis).or(filter.dim(2));
    let channels = depth.zip(filter.dim(3)).and_then(|(depth, multiplier)| depth.checked_mul(multiplier));
    let output = window.slide_partial(&input, &[filter.dim(0), filter.dim(1)], channels)?;
    c.set_output(0, output);
    Ok(())
}

fn backprop_input_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.constant_as_shape(0)?.merge(&PartialShape::unknown_of_rank(4))?;
    c.set_output(0, shape);
    Ok(())
}

fn backprop_filter_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.constant_as_shape(1)?.merge(&PartialShape::unknown_of_rank(4))?;
    c.set_output(0, shape);
    Ok(())
}

fn depthwise_gradient(args: &GradientArgs<'_>) -> Gradients {
    forward_gradient(args, &NAMES)
}

fn depthwise_backprop_input_gradient(args: &GradientArgs<'_>) -> Gradients {
    backprop_input_gradient(args, &NAMES)
}

fn depthwise_backprop_filter_gradient(args: &GradientArgs<'_>) -> Gradients {
    backprop_filter_gradient(args, &NAMES)
}

/// The computation of a kernel.
#[derive(Clone, Copy)]
enum Stage {
    Forward,
    BackpropInput,
    BackpropFilter,
}

struct Depthwise<T> {
    window: Window,
    stage: Stage,
    element: PhantomData<fn(T)>,
}

const fn kernel_of<T: Element + Float>() -> KernelDef {
    KernelDef {
        types: const { &[("T", T::DTYPE)] },
        create: |builder| {
            let stage = match builder.node.op() {
                "DepthwiseConv2dNative" => Stage::Forward,
                "DepthwiseConv2dNativeBackpropInput" => Stage::BackpropInput,
                _ => Stage::BackpropFilter,
            };
            BoxedKernel::new(Depthwise::<T> {
                window: Window::from_attrs(builder.attrs(), 2)?,
                stage,
                element: PhantomData,
            })
        },
    }
}

/// Plans the convolution, and returns the sizes of its output.
fn plan(window: &Window, input: &Shape, filter: &Shape) -> Result<(DepthwiseShape, Images)> {
    if input.rank() != 4 {
        return Err(Status::invalid_argument(format!("input must be 4-dimensional{input}")));
    }
    let images = window.images(input, "input")?;
    if filter.rank() != 4 {
        return Err(Status::invalid_argument(format!("filter must be 4-dimensional: {filter}")));
    }
    let dims = filter.to_usize();
    if dims[2] != images.channels {
        return Err(Status::invalid_argument(format!(
            "input and filter must have the same depth: {} vs {}",
            images.channels, dims[2]
        )));
    }
    let size = [1, dims[0], dims[1]];
    let (output, pad_before) = window.slide(images.size, size)?;
    window.check_reach(&images, size, output)?;
    let flat = |spatial: [usize; 3]| [spatial[1], spatial[2]];
    let shape = DepthwiseShape {
        batch: images.batch,
        in_channels: images.channels,
        multiplier: dims[3],
        input: flat(images.size),
        filter: flat(size),
        output: flat(output),
        strides: flat(window.strides),
        dilations: flat(window.dilations),
        pad_before: flat(pad_before),
    };
    Ok((shape, Images { batch: images.batch, size: output, channels: shape.out_channels() }))
}

impl<T: Element + Float> Kernel for Depthwise<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let window = &self.window;
        let sizes = |index: usize, name: &str| -> Result<Shape> {
            let sizes = context.input(index)?.to_indices()?;
            if let Some(axis) = sizes.iter().position(|&size| size < 0) {
                return Err(Status::invalid_argument(format!("Dimension {axis} of {name} must be >= 0")));
            }
            shape_of_sizes(&sizes)
        };
        let output = match self.stage {
            Stage::Forward => {
                let (input, filter) = (context.input(0)?, context.input(1)?);
                let (shape, out) = plan(window, input.shape(), filter.shape())?;
                let input = window.channels_last::<T>(input)?;
                let (input, filter) = (input.as_slice::<T>()?, filter.as_slice::<T>()?);
                let output = Tensor::build(window.shape_channels_last(&out)?, |out: &mut [T]| {
                    convolve(&shape, input, filter, out);
                })?;
                window.from_channels_last::<T>(output)?
            }
            Stage::BackpropInput => {
                let (input_shape, filter, gradient) = (sizes(0, "input_sizes")?, context.input(1)?, context.input(2)?);
                let shapes = ConvShapes { input: &input_shape, filter: filter.shape(), gradient: gradient.shape() };
                shapes.check_depthwise(window, "DepthwiseConv2DBackpropInput")?;
                let (shape, _) = plan(window, &input_shape, filter.shape())?;
                let images = window.images(&input_shape, "input_sizes")?;
                let gradient = window.channels_last::<T>(gradient)?;
                let (filter, gradient) = (filter.as_slice::<T>()?, gradient.as_slice::<T>()?);
                let output = Tensor::build(window.shape_channels_last(&images)?, |out: &mut [T]| {
                    depthwise_conv2d_input_grad(&shape, filter, gradient, out);
                })?;
                window.from_channels_last::<T>(output)?
            }
            Stage::BackpropFilter => {
                let (input, filter_shape, gradient) = (context.input(0)?, sizes(1, "filter_sizes")?, context.input(2)?);
                let shapes = ConvShapes { input: input.shape(), filter: &filter_shape, gradient: gradient.shape() };
                shapes.check_depthwise(window, "DepthwiseConv2DBackpropFilter")?;
                let (shape, _) = plan(window, input.shape(), &filter_shape)?;
                let (input, gradient) = (window.channels_last::<T>(input)?, window.channels_last::<T>(gradient)?);
                let (input, gradient) = (input.as_slice::<T>()?, gradient.as_slice::<T>()?);
                Tensor::build(filter_shape, |out: &mut [T]| {
                    depthwise_conv2d_filter_grad(&shape, input, gradient, out);
                })?
            }
        };
        context.set_output(0, output);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_gradient, check_shape, run_op};

    #[test]
    fn channels_stay_apart() {
        let x = Tensor::from_slice(&[1, 1, 2, 2], &[1f32, 10., 2., 20.]).unwrap();
        let f = Tensor::from_slice(&[1, 2, 2, 1], &[1f32, 2., 3., 4.]).unwrap();
        let attrs = || attrs![("strides", &[1i64, 1, 1, 1][..]), ("padding", "VALID")];
        let y = run_op("DepthwiseConv2dNative", attrs(), &[x.clone(), f]).unwrap();
        assert_eq!(y[0].as_slice::<f32>().unwrap(), &[7., 100.]);
        let other = Tensor::from_slice(&[1, 2, 1, 2], &[1f32, 2., 3., 4.]).unwrap();
        assert!(run_op("DepthwiseConv2dNative", attrs(), &[x, other]).is_err());
        check_shape("DepthwiseConv2dNative", attrs(), "[?,5,5,3];[2,2,3,4]", "[?,4,4,12]");
    }

    #[test]
    fn gradients() {
        let ramp = |dims: &[i64], step: f64| {
            let values: Vec<f64> =
                (0..dims.iter().product()).map(|index: i64| ((index * 7) % 11) as f64 * step).collect();
            Tensor::from_slice(dims, &values).unwrap()
        };
        let (x, f) = (ramp(&[1, 4, 4, 2], 0.3), ramp(&[3, 2, 2, 2], 0.2));
        for (stride, padding) in [(1, Padding::Same), (2, Padding::Valid)] {
            check_gradient(&[x.clone(), f.clone()], |_, x| depthwise_conv2d(&x[0], &x[1], [stride, stride], padding));
        }
    }
}
