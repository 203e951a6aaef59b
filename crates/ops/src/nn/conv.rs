//! Convolutions: Conv2D, Conv3D and their gradient ops.

use super::conv_check::ConvShapes;
use super::padding::Padding;
use super::window::{Images, Window};
use crate::compose::{Gradients, shape_of};
use crate::sizes::shape_of_sizes;
use graph::builder::Operation;
use graph::{Output, ShapeContext};
use kernel::{
    BoxedKernel, Cost, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags,
};
use numeric::conv::{self as loops, ConvElement, ConvShape};
use numeric::matmul::Epilogue;
use std::marker::PhantomData;
use tensor::{Element, PartialShape, Result, Shape, Status, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Conv2D",
            inputs: &["input: T", "filter: T"],
            outputs: &["output: T"],
            attrs: &[
                "T: {half, bfloat16, float, double, int32}",
                "strides: list(int)",
                "use_cudnn_on_gpu: bool = true",
                "padding: {'SAME', 'VALID', 'EXPLICIT'}",
                "explicit_paddings: list(int) = []",
                "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
                "dilations: list(int) = [1, 1, 1, 1]",
            ],
            flags: OpFlags::NONE,
        },
        shape: conv_shape::<2>,
        gradient: Gradient::Fn(conv2d_gradient),
        kernels: &[
            forward::<f32, 2>(),
            forward::<f64, 2>(),
            forward::<f16, 2>(),
            forward::<bf16, 2>(),
            integer_forward(),
        ],
    },
    Op {
        def: OpDef {
            name: "Conv2DBackpropInput",
            inputs: &["input_sizes: int32", "filter: T", "out_backprop: T"],
            outputs: &["output: T"],
            attrs: &[
                "T: {half, bfloat16, float, double, int32}",
                "strides: list(int)",
                "use_cudnn_on_gpu: bool = true",
                "padding: {'SAME', 'VALID', 'EXPLICIT'}",
                "explicit_paddings: list(int) = []",
                "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
                "dilations: list(int) = [1, 1, 1, 1]",
            ],
            flags: OpFlags::NONE,
        },
        shape: backprop_input_shape::<2>,
        gradient: Gradient::Fn(conv2d_backprop_input_gradient),
        kernels: &[
            backprop_input::<f32, 2>(),
            backprop_input::<f64, 2>(),
            backprop_input::<f16, 2>(),
            backprop_input::<bf16, 2>(),
        ],
    },
    Op {
        def: OpDef {
            name: "Conv2DBackpropFilter",
            inputs: &["input: T", "filter_sizes: int32", "out_backprop: T"],
            outputs: &["output: T"],
            attrs: &[
                "T: {half, bfloat16, float, double}",
                "strides: list(int)",
                "use_cudnn_on_gpu: bool = true",
                "padding: {'SAME', 'VALID', 'EXPLICIT'}",
                "explicit_paddings: list(int) = []",
                "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
                "dilations: list(int) = [1, 1, 1, 1]",
            ],
            flags: OpFlags::NONE,
        },
        shape: backprop_filter_shape,
        gradient: Gradient::Fn(conv2d_backprop_filter_gradient),
        kernels: &[
            backprop_filter::<f32, 2>(),
            backprop_filter::<f64, 2>(),
            backprop_filter::<f16, 2>(),
            backprop_filter::<bf16, 2>(),
        ],
    },
    Op {
        def: OpDef {
            name: "Conv3D",
            inputs: &["input: T", "filter: T"],
            outputs: &["output: T"],
            attrs: &[
                "T: {half, bfloat16, float, double}",
                "strides: list(int) >= 5",
                "padding: {'SAME', 'VALID'}",
                "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'",
                "dilations: list(int) = [1, 1, 1, 1, 1]",
            ],
            flags: OpFlags::NONE,
        },
        shape: conv_shape::<3>,
        gradient: Gradient::Fn(conv3d_gradient),
        kernels: &[forward::<f32, 3>(), forward::<f64, 3>(), forward::<f16, 3>(), forward::<bf16, 3>()],
    },
    Op {
        def: OpDef {
            name: "Conv3DBackpropInput",
            inputs: &["input: T", "filter: T", "out_backprop: T"],
            outputs: &["output: T"],
            attrs: &[
                "T: {half, float, double}",
                "strides: list(int) >= 5",
                "padding: {'SAME', 'VALID'}",
                "dilations: list(int) = [1, 1, 1, 1, 1]",
            ],
            flags: OpFlags::NONE,
        },
        shape: backprop_input_by_shape,
        gradient: Gradient::Unsupported,
        kernels: &[backprop_input::<f32, 3>(), backprop_input::<f64, 3>(), backprop_input::<f16, 3>()],
    },
    Op {
        def: OpDef {
            name: "Conv3DBackpropInputV2",
            inputs: &["input_sizes: Tshape", "filter: T", "out_backprop: T"],
            outputs: &["output: T"],
            attrs: &[
                "T: {half, bfloat16, float, double}",
                "strides: list(int) >= 5",
                "padding: {'SAME', 'VALID'}",
                "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'",
                "dilations: list(int) = [1, 1, 1, 1, 1]",
                "Tshape: {int32, int64} = DT_INT32",
            ],
            flags: OpFlags::NONE,
        },
        shape: backprop_input_shape::<3>,
        gradient: Gradient::Fn(conv3d_backprop_input_gradient),
        kernels: &[
            backprop_input::<f32, 3>(),
            backprop_input::<f64, 3>(),
            backprop_input::<f16, 3>(),
            backprop_input::<bf16, 3>(),
        ],
    },
    Op {
        def: OpDef {
            name: "Conv3DBackpropFilter",
            inputs: &["input: T", "filter: T", "out_backprop: T"],
            outputs: &["output: T"],
            attrs: &[
                "T: {half, float, double}",
                "strides: list(int) >= 5",
                "padding: {'SAME', 'VALID'}",
                "dilations: list(int) = [1, 1, 1, 1, 1]",
            ],
            flags: OpFlags::NONE,
        },
        shape: backprop_filter_by_shape,
        gradient: Gradient::Unsupported,
        kernels: &[backprop_filter::<f32, 3>(), backprop_filter::<f64, 3>(), backprop_filter::<f16, 3>()],
    },
    Op {
        def: OpDef {
            name: "Conv3DBackpropFilterV2",
            inputs: &["input: T", "filter_sizes: int32", "out_backprop: T"],
            outputs: &["output: T"],
            attrs: &[
                "T: {half, bfloat16, float, double}",
                "strides: list(int) >= 5",
                "padding: {'SAME', 'VALID'}",
                "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'",
                "dilations: list(int) = [1, 1, 1, 1, 1]",
            ],
            flags: OpFlags::NONE,
        },
        shape: backprop_filter_shape,
        gradient: Gradient::Fn(conv3d_backprop_filter_gradient),
        kernels: &[
            backprop_filter::<f32, 3>(),
            backprop_filter::<f64, 3>(),
            backprop_filter::<f16, 3>(),
            backprop_filter::<bf16, 3>(),
        ],
    },
];

/// Returns the convolution of images (batch, rows, columns, channels) with a filter (rows, columns, input channels,
/// output channels).
#[track_caller]
pub fn conv2d(input: &Output, filter: &Output, strides: [i64; 2], padding: Padding) -> Output {
    let op = input.graph().op("Conv2D").input(input).input(filter).attr("padding", padding.attr());
    op.attr("strides", &[1, strides[0], strides[1], 1][..]).output()
}

/// Returns the transpose of a convolution, which distributes each pixel over a window of an image of `output_shape`.
#[track_caller]
pub fn conv2d_transpose(
    input: &Output,
    filter: &Output,
    output_shape: &Output,
    strides: [i64; 2],
    padding: Padding,
) -> Output {
    let op = input.graph().op("Conv2DBackpropInput").input(output_shape).input(filter).input(input);
    op.attr("padding", padding.attr()).attr("strides", &[1, strides[0], strides[1], 1][..]).output()
}

pub(super) fn conv_shape<const N: usize>(c: &mut ShapeContext<'_>) -> Result<()> {
    let (input, filter) = (c.with_rank(0, N + 2)?, c.with_rank(1, N + 2)?);
    let window = Window::from_attrs(c.attrs, N)?;
    if let (Some(channels), Some(depth)) = (input.dim(window.channel_axis()), filter.dim(N)) {
        check_depth(channels as usize, depth as usize)?;
    }
    let sizes: Vec<Option<i64>> = (0..N).map(|axis| filter.dim(axis)).collect();
    let output = window.slide_partial(&input, &sizes, filter.dim(N + 1))?;
    c.set_output(0, output);
    Ok(())
}

fn check_depth(channels: usize, depth: usize) -> Result<()> {
    if depth == 0 || !channels.is_multiple_of(depth) {
        return Err(Status::invalid_argument(format!(
            "Depth of input ({channels}) is not a multiple of input depth of filter ({depth})"
        )));
    }
    Ok(())
}

fn backprop_input_shape<const N: usize>(c: &mut ShapeContext<'_>) -> Result<()> {
    let sizes = c.constant_as_shape(0)?;
    let gradient = c.with_rank(2, N + 2)?;
    let filter = c.with_rank(1, N + 2)?;
    let output = match sizes.rank() {
        // Only the spatial sizes are given; the others are those of the other inputs.
        Some(rank) if rank == N => {
            let channels_first = c.attrs.string("data_format")?.starts_with("NC");
            let mut dims = vec![gradient.dim(0)];
            let spatial = (0..N).map(|axis| sizes.dim(axis));
            if channels_first {
                dims.push(filter.dim(N));
                dims.extend(spatial);
            } else {
                dims.extend(spatial);
                dims.push(filter.dim(N));
            }
            PartialShape::new(&dims)
        }
        _ => sizes.merge(&PartialShape::unknown_of_rank(N + 2))?,
    };
    c.set_output(0, output);
    Ok(())
}

fn backprop_filter_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let sizes = c.constant_as_shape(1)?;
    c.set_output(0, sizes);
    Ok(())
}

fn backprop_input_by_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.with_rank(0, 5)?;
    c.set_output(0, shape);
    Ok(())
}

fn backprop_filter_by_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.with_rank(1, 5)?;
    c.set_output(0, shape);
    Ok(())
}

/// Adds an op of the same convolution, with the strides, padding and so on of `like`.
pub(super) fn like(op: &str, like: &Operation, inputs: [&Output; 3]) -> Result<Output> {
    let builder = like.graph().op(op).inputs(inputs);
    with_window_attrs(builder, like).try_build().map(|op| op.output(0))
}

/// As [`like`], for the convolution itself.
pub(super) fn forward_like(op: &str, like: &Operation, inputs: [&Output; 2]) -> Result<Output> {
    let builder = like.graph().op(op).inputs(inputs);
    with_window_attrs(builder, like).try_build().map(|op| op.output(0))
}

fn with_window_attrs(mut builder: graph::builder::OpBuilder, like: &Operation) -> graph::builder::OpBuilder {
    let attrs = like.attrs();
    for name in ["strides", "padding", "explicit_paddings", "use_cudnn_on_gpu", "data_format", "dilations"] {
        if let Some(value) = attrs.get(name) {
            builder = builder.attr(name, value.clone());
        }
    }
    builder
}

/// The names of a convolution and of its gradient ops.
pub(super) struct Names {
    pub forward: &'static str,
    pub backprop_input: &'static str,
    pub backprop_filter: &'static str,
}

const CONV2D: Names =
    Names { forward: "Conv2D", backprop_input: "Conv2DBackpropInput", backprop_filter: "Conv2DBackpropFilter" };

const CONV3D: Names =
    Names { forward: "Conv3D", backprop_input: "Conv3DBackpropInputV2", backprop_filter: "Conv3DBackpropFilterV2" };

pub(super) fn forward_gradient(args: &GradientArgs<'_>, names: &Names) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let (input, filter) = (args.input(0), args.input(1));
    let grad_input = like(names.backprop_input, args.op, [&shape_of(&input)?, &filter, &grad])?;
    let grad_filter = like(names.backprop_filter, args.op, [&input, &shape_of(&filter)?, &grad])?;
    Ok(vec![Some(grad_input.into()), Some(grad_filter.into())])
}

pub(super) fn backprop_input_gradient(args: &GradientArgs<'_>, names: &Names) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 3]) };
    let (filter, backprop) = (args.input(1), args.input(2));
    let grad_filter = like(names.backprop_filter, args.op, [&grad, &shape_of(&filter)?, &backprop])?;
    let grad_backprop = forward_like(names.forward, args.op, [&grad, &filter])?;
    Ok(vec![None, Some(grad_filter.into()), Some(grad_backprop.into())])
}

pub(super) fn backprop_filter_gradient(args: &GradientArgs<'_>, names: &Names) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 3]) };
    let (input, backprop) = (args.input(0), args.input(2));
    let grad_input = like(names.backprop_input, args.op, [&shape_of(&input)?, &grad, &backprop])?;
    let grad_backprop = forward_like(names.forward, args.op, [&input, &grad])?;
    Ok(vec![Some(grad_input.into()), None, Some(grad_backprop.into())])
}

fn conv2d_gradient(args: &GradientArgs<'_>) -> Gradients {
    forward_gradient(args, &CONV2D)
}

fn conv2d_backprop_input_gradient(args: &GradientArgs<'_>) -> Gradients {
    backprop_input_gradient(args, &CONV2D)
}

fn conv2d_backprop_filter_gradient(args: &GradientArgs<'_>) -> Gradients {
    backprop_filter_gradient(args, &CONV2D)
}

fn conv3d_gradient(args: &GradientArgs<'_>) -> Gradients {
    forward_gradient(args, &CONV3D)
}

fn conv3d_backprop_input_gradient(args: &GradientArgs<'_>) -> Gradients {
    backprop_input_gradient(args, &CONV3D)
}

fn conv3d_backprop_filter_gradient(args: &GradientArgs<'_>) -> Gradients {
    backprop_filter_gradient(args, &CONV3D)
}

/// The sizes of a convolution, checked.
pub(super) struct Plan {
    pub window: Window,
    pub shape: ConvShape,
    pub output: Images,
}

impl Plan {
    /// Plans the convolution of an input with a filter.
    pub(super) fn new(window: &Window, input: &Shape, filter: &Shape) -> Result<Plan> {
        let spatial = window.spatial;
        for (name, shape) in [("input", input), ("filter", filter)] {
            if spatial == 2 && shape.rank() != 4 {
                return Err(Status::invalid_argument(format!("convolution {name} must be 4-dimensional: {shape}")));
            }
        }
        let images = window.images(input, "input")?;
        if filter.rank() != spatial + 2 {
            return Err(Status::invalid_argument(format!("filter must be {}-dimensional: {filter}", spatial + 2)));
        }
        if filter.dims()[spatial] == 0 {
            return Err(Status::invalid_argument(match spatial {
                2 => "filter depth must be stricly positive, got 0",
                _ => "filter_depth must be non-zero",
            }));
        }
        // A filter without output channels gives an output without elements; one that sees nothing has no meaning.
        if filter.dims()[..=spatial].contains(&0) {
            return Err(Status::invalid_argument(
                "filter must not have zero elements (i.e. all dimensions must be non-zero)",
            ));
        }
        let dims = filter.to_usize();
        let (depth, out_channels) = (dims[spatial], dims[spatial + 1]);
        if window.channel_stride != 1 {
            return Err(Status::invalid_argument(
                "Current implementation does not yet support strides in the batch and depth dimensions.",
            ));
        }
        if !images.channels.is_multiple_of(depth) {
            return Err(Status::invalid_argument(format!(
                "input depth must be evenly divisible by filter depth: {} vs {depth}",
                images.channels
            )));
        }
        let groups = (images.channels / depth).max(1);
        if !out_channels.is_multiple_of(groups) {
            return Err(Status::invalid_argument(format!(
                "output depth must be evenly divisible by number of groups: {out_channels} vs {groups}"
            )));
        }
        let mut size = [1; 3];
        size[3 - spatial..].copy_from_slice(&dims[..spatial]);
        let (output, pad_before) = window.slide(images.size, size)?;
        window.check_reach(&images, size, output)?;
        let shape = ConvShape {
            batch: images.batch,
            in_channels: images.channels,
            out_channels,
            groups,
            input: images.size,
            filter: size,
            output,
            strides: window.strides,
            dilations: window.dilations,
            pad_before,
        };
        let output = Images { batch: images.batch, size: output, channels: out_channels };
        Ok(Plan { window: window.clone(), shape, output })
    }

    /// Returns whether there is nothing to compute: no output, or none of the input.
    fn is_empty(&self) -> bool {
        self.shape.out_len() == 0 || self.shape.in_len() == 0
    }

    /// Runs the convolution.
    pub(super) fn run<T: Element + ConvElement>(
        &self,
        input: &Tensor,
        filter: &Tensor,
        epilogue: Epilogue<'_, T>,
    ) -> Result<Tensor> {
        let output_shape = self.window.shape_channels_last(&self.output)?;
        if self.is_empty() {
            return Tensor::zeros(T::DTYPE, self.window.shape(&self.output)?);
        }
        let input = self.window.channels_last::<T>(input)?;
        let (input, filter) = (input.as_slice::<T>()?, filter.as_slice::<T>()?);
        let output =
            Tensor::build(output_shape, |out: &mut [T]| loops::conv(&self.shape, input, filter, out, epilogue))?;
        self.window.from_channels_last::<T>(output)
    }
}

/// A convolution over `N` spatial axes.
struct Forward<T, const N: usize> {
    window: Window,
    element: PhantomData<fn(T)>,
}

const fn forward<T: Element + ConvElement, const N: usize>() -> KernelDef {
    KernelDef {
        types: const { &[("T", T::DTYPE)] },
        create: |builder| {
            let window = Window::from_attrs(builder.attrs(), N)?;
            BoxedKernel::new(Forward::<T, N> { window, element: PhantomData })
        },
    }
}

impl<T: Element + ConvElement, const N: usize> Kernel for Forward<T, N> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (input, filter) = (context.input(0)?, context.input(1)?);
        let plan = Plan::new(&self.window, input.shape(), filter.shape())?;
        let output = plan.run::<T>(input, filter, Epilogue::NONE)?;
        context.set_output(0, output);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

/// A convolution of integers, computed in double precision, which represents all of their products.
struct IntegerForward {
    window: Window,
}

const fn integer_forward() -> KernelDef {
    KernelDef {
        types: &[("T", tensor::DType::Int32)],
        create: |builder| BoxedKernel::new(IntegerForward { window: Window::from_attrs(builder.attrs(), 2)? }),
    }
}

impl Kernel for IntegerForward {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (input, filter) = (context.input(0)?, context.input(1)?);
        let plan = Plan::new(&self.window, input.shape(), filter.shape())?;
        let wide = |tensor: &Tensor| -> Result<Tensor> {
            let from = tensor.as_slice::<i32>()?;
            Tensor::build(tensor.shape().clone(), |to: &mut [f64]| {
                to.iter_mut().zip(from).for_each(|(to, &from)| *to = f64::from(from));
            })
        };
        let result = plan.run::<f64>(&wide(input)?, &wide(filter)?, Epilogue::NONE)?;
        let from = result.as_slice::<f64>()?;
        let output = Tensor::build(result.shape().clone(), |to: &mut [i32]| {
            to.iter_mut().zip(from).for_each(|(to, &from)| *to = from as i64 as i32);
        })?;
        context.set_output(0, output);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

/// Returns the sizes in an input: a vector of them, or a tensor of that shape in the oldest versions.
fn sizes_of(tensor: &Tensor, by_shape: bool, name: &str) -> Result<Shape> {
    if by_shape {
        return Ok(tensor.shape().clone());
    }
    if !tensor.shape().is_vector() {
        return Err(Status::invalid_argument(format!("{name} input must be 1-dim, not {}", tensor.shape().rank())));
    }
    shape_of_sizes(&tensor.to_indices()?)
}

fn takes_tensors(builder: &KernelBuilder<'_>) -> bool {
    matches!(builder.node.op(), "Conv3DBackpropInput" | "Conv3DBackpropFilter")
}

struct BackpropInput<T, const N: usize> {
    window: Window,
    /// Whether the first input has the result's shape, rather than containing it.
    by_shape: bool,
    op: String,
    element: PhantomData<fn(T)>,
}

const fn backprop_input<T: Element + ConvElement, const N: usize>() -> KernelDef {
    KernelDef {
        types: const { &[("T", T::DTYPE)] },
        create: |builder| {
            let window = Window::from_attrs(builder.attrs(), N)?;
            let (by_shape, op) = (takes_tensors(builder), builder.node.op().to_owned());
            BoxedKernel::new(BackpropInput::<T, N> { window, by_shape, op, element: PhantomData })
        },
    }
}

impl<T: Element + ConvElement, const N: usize> Kernel for BackpropInput<T, N> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (filter, gradient) = (context.input(1)?, context.input(2)?);
        let mut sizes = sizes_of(context.input(0)?, self.by_shape, "input_sizes")?;
        if N == 2 && ![N, N + 2].contains(&sizes.rank()) {
            return Err(Status::invalid_argument(format!(
                "Conv2DBackpropInput requires input_sizes to contain 4 values or 2 values, but got: {}",
                sizes.rank()
            )));
        }
        if N == 2 && gradient.shape().rank() != N + 2 {
            return Err(Status::invalid_argument(format!(
                "input_sizes must be 4-dimensional, got: {}",
                gradient.shape().rank()
            )));
        }
        if sizes.rank() == N && gradient.shape().rank() == N + 2 && filter.shape().rank() == N + 2 {
            // Only the spatial sizes are given.
            let mut size = [1; 3];
            size[3 - N..].copy_from_slice(&sizes.to_usize());
            let images = Images { batch: gradient.shape().size(0), size, channels: filter.shape().size(N) };
            sizes = self.window.shape(&images)?;
        }
        let shapes = ConvShapes { input: &sizes, filter: filter.shape(), gradient: gradient.shape() };
        shapes.check(&self.window, &self.op)?;
        let plan = Plan::new(&self.window, &sizes, filter.shape())?;
        if plan.is_empty() {
            let output = Tensor::zeros(T::DTYPE, sizes)?;
            context.set_output(0, output);
            return Ok(());
        }
        let images = self.window.images(&sizes, "input_sizes")?;
        let gradient = self.window.channels_last::<T>(gradient)?;
        let (filter, gradient) = (filter.as_slice::<T>()?, gradient.as_slice::<T>()?);
        let output = Tensor::build(self.window.shape_channels_last(&images)?, |out: &mut [T]| {
            loops::conv_input_grad(&plan.shape, filter, gradient, out);
        })?;
        let output = self.window.from_channels_last::<T>(output)?;
        context.set_output(0, output);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

struct BackpropFilter<T, const N: usize> {
    window: Window,
    by_shape: bool,
    op: String,
    element: PhantomData<fn(T)>,
}

const fn backprop_filter<T: Element + ConvElement, const N: usize>() -> KernelDef {
    KernelDef {
        types: const { &[("T", T::DTYPE)] },
        create: |builder| {
            let window = Window::from_attrs(builder.attrs(), N)?;
            let (by_shape, op) = (takes_tensors(builder), builder.node.op().to_owned());
            BoxedKernel::new(BackpropFilter::<T, N> { window, by_shape, op, element: PhantomData })
        },
    }
}

impl<T: Element + ConvElement, const N: usize> Kernel for BackpropFilter<T, N> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (input, gradient) = (context.input(0)?, context.input(2)?);
        let sizes = sizes_of(context.input(1)?, self.by_shape, "filter_sizes")?;
        let shapes = ConvShapes { input: input.shape(), filter: &sizes, gradient: gradient.shape() };
        shapes.check(&self.window, &self.op)?;
        let plan = Plan::new(&self.window, input.shape(), &sizes)?;
        if plan.is_empty() {
            context.set_output(0, Tensor::zeros(T::DTYPE, sizes)?);
            return Ok(());
        }
        let (input, gradient) = (self.window.channels_last::<T>(input)?, self.window.channels_last::<T>(gradient)?);
        let (input, gradient) = (input.as_slice::<T>()?, gradient.as_slice::<T>()?);
        let output = Tensor::build(sizes, |out: &mut [T]| loops::conv_filter_grad(&plan.shape, input, gradient, out))?;
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
    use crate::testing::{attrs, check_gradient, check_shape, infer, run_op};

    fn ramp(dims: &[i64], step: f64) -> Tensor {
        let count: i64 = dims.iter().product();
        let values: Vec<f64> = (0..count).map(|index| ((index * 7) % 11) as f64 * step - 1.0).collect();
        Tensor::from_slice(dims, &values).unwrap()
    }

    #[test]
    fn a_small_convolution() {
        let x = Tensor::from_slice(&[1, 3, 3, 1], &[1f32, 2., 3., 4., 5., 6., 7., 8., 9.]).unwrap();
        let f = Tensor::from_slice(&[2, 2, 1, 1], &[1f32, 2., 3., 4.]).unwrap();
        let run = |padding: &str, format: &str, x: &Tensor| {
            let attrs = attrs![("strides", &[1i64, 1, 1, 1][..]), ("padding", padding), ("data_format", format)];
            run_op("Conv2D", attrs, &[x.clone(), f.clone()])
        };
        let y = run("VALID", "NHWC", &x).unwrap();
        assert_eq!(y[0].as_slice::<f32>().unwrap(), &[37., 47., 67., 77.]);
        let y = run("SAME", "NHWC", &x).unwrap();
        assert_eq!(y[0].as_slice::<f32>().unwrap(), &[37., 47., 21., 67., 77., 33., 23., 26., 9.]);
        let first = x.reshape(Shape::new(&[1, 1, 3, 3]).unwrap()).unwrap();
        let y = run("VALID", "NCHW", &first).unwrap();
        assert_eq!((y[0].dims(), y[0].as_slice::<f32>().unwrap()), (&[1, 1, 2, 2][..], &[37., 47., 67., 77.][..]));
        assert!(run("VALID", "NHWC", &first).is_err());
        let integers = |x: &Tensor| {
            let values: Vec<i32> = x.as_slice::<f32>().unwrap().iter().map(|&x| x as i32).collect();
            Tensor::from_slice(x.dims(), &values).unwrap()
        };
        let attrs = attrs![("strides", &[1i64, 1, 1, 1][..]), ("padding", "VALID")];
        let y = run_op("Conv2D", attrs, &[integers(&x), integers(&f)]).unwrap();
        assert_eq!(y[0].as_slice::<i32>().unwrap(), &[37, 47, 67, 77]);
    }

    #[test]
    fn shapes() {
        let attrs = attrs![("strides", &[1i64, 2, 2, 1][..]), ("padding", "SAME")];
        check_shape("Conv2D", attrs.clone(), "[?,7,?,3];[3,3,3,8]", "[?,4,?,8]");
        assert!(infer("Conv2D", attrs.clone(), "[?,7,7,3];[3,3,2,8]", &[]).is_err());
        let sizes = Tensor::vector(&[2i32, 7, 7, 3]);
        let shapes = infer("Conv2DBackpropInput", attrs, "[4];[3,3,3,8];[2,4,4,8]", &[(0, sizes)]).unwrap();
        assert_eq!(shapes[0].to_string(), "[2,7,7,3]");
    }

    #[test]
    fn gradients() {
        let (x, f) = (ramp(&[2, 4, 5, 4], 0.3), ramp(&[3, 2, 2, 4], 0.2));
        for (format, stride, dilation, padding) in
            [("NHWC", 1i64, 1i64, "SAME"), ("NHWC", 2, 1, "VALID"), ("NHWC", 1, 2, "SAME"), ("NCHW", 1, 1, "VALID")]
        {
            let steps = |step: i64| if format == "NHWC" { [1, step, step, 1] } else { [1, 1, step, step] };
            let x = if format == "NHWC" { x.clone() } else { ramp(&[2, 4, 4, 5], 0.3) };
            check_gradient(&[x, f.clone()], |graph, x| {
                let op = graph.op("Conv2D").inputs(x).attr("padding", padding).attr("data_format", format);
                op.attr("strides", &steps(stride)[..]).attr("dilations", &steps(dilation)[..]).output()
            });
        }
        check_gradient(&[ramp(&[1, 3, 3, 3, 1], 0.3), ramp(&[2, 2, 2, 1, 2], 0.2)], |graph, x| {
            graph.op("Conv3D").inputs(x).attr("padding", "SAME").attr("strides", &[1i64, 1, 1, 1, 1][..]).output()
        });
    }

    #[test]
    fn gradients_of_gradients() {
        let (f, dy) = (ramp(&[2, 2, 1, 2], 0.2), ramp(&[1, 3, 3, 2], 0.4));
        check_gradient(&[f.clone(), dy.clone()], |graph, x| {
            let sizes = graph.constant_tensor(&Tensor::vector(&[1i32, 4, 4, 1]));
            conv2d_transpose(&x[1], &x[0], &sizes, [1, 1], Padding::Valid)
        });
        check_gradient(&[ramp(&[1, 4, 4, 1], 0.3), dy], |graph, x| {
            let sizes = graph.constant_tensor(&Tensor::vector(&[2i32, 2, 1, 2]));
            let op = graph.op("Conv2DBackpropFilter").input(&x[0]).input(&sizes).input(&x[1]);
            op.attr("padding", "VALID").attr("strides", &[1i64, 1, 1, 1][..]).output()
        });
    }

    #[test]
    fn absurd_sizes_are_errors() {
        let x = Tensor::from_slice(&[1, 1, 1, 1], &[1f32]).unwrap();
        let f = Tensor::from_slice(&[2, 2, 1, 1], &[1f32; 4]).unwrap();
        let far = i64::from(i32::MAX) / 2;
        let attrs =
            attrs![("strides", &[1i64, 1, 1, 1][..]), ("dilations", &[1, far, far, 1][..]), ("padding", "SAME"),];
        assert!(run_op("Conv2D", attrs, &[x.clone(), f.clone()]).is_err());
        let attrs = attrs![("strides", &[1i64, 1, 1, 1][..]), ("padding", "VALID")];
        let sizes = Tensor::vector(&[1i32, -3, 2, 1]);
        assert!(run_op("Conv2DBackpropInput", attrs, &[sizes, f, x]).is_err());
    }
}
