//! Max pooling: MaxPool, MaxPoolV2, MaxPool3D, MaxPoolWithArgmax, and their gradient ops.

use super::padding::Padding;
use super::pool_plan::{PoolPlan, PoolWindow, Source, pool_shape, pool_v2_shape};
use crate::compose::{Gradients, unary};
use graph::Output;
use graph::builder::{OpBuilder, Operation};
use kernel::{
    BoxedKernel, Cost, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags,
    kernels, shape,
};
use numeric::pool::{self as loops, PoolElement};
use numeric::reduce::{Max, ReducePlan, Reducer, reduce};
use std::marker::PhantomData;
use tensor::{DType, Element, Result, Status, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "MaxPool",
            inputs: &["input: T"],
            outputs: &["output: T"],
            attrs: &[
                "T: {half, bfloat16, float, double, int32, int64, uint8, int16, int8, uint16, qint8} = DT_FLOAT",
                "ksize: list(int) >= 4",
                "strides: list(int) >= 4",
                "padding: {'SAME', 'VALID', 'EXPLICIT'}",
                "explicit_paddings: list(int) = []",
                "data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'",
            ],
            flags: OpFlags::NONE,
        },
        shape: pool_shape::<2>,
        gradient: Gradient::Fn(max_pool_gradient),
        kernels: KERNELS_2D,
    },
    Op {
        def: OpDef {
            name: "MaxPoolV2",
            inputs: &["input: T", "ksize: int32", "strides: int32"],
            outputs: &["output: T"],
            attrs: &[
                "T: {half, bfloat16, float, double, int32, int64, uint8, int16, int8, uint16, qint8} = DT_FLOAT",
                "padding: {'SAME', 'VALID'}",
                "data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'",
            ],
            flags: OpFlags::NONE,
        },
        shape: pool_v2_shape,
        gradient: Gradient::Fn(max_pool_v2_gradient),
        kernels: KERNELS_2D,
    },
    Op {
        def: OpDef {
            name: "MaxPool3D",
            inputs: &["input: T"],
            outputs: &["output: T"],
            attrs: &[
                "ksize: list(int) >= 5",
                "strides: list(int) >= 5",
                "padding: {'SAME', 'VALID'}",
                "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'",
                "T: {half, bfloat16, float}",
            ],
            flags: OpFlags::NONE,
        },
        shape: pool_shape::<3>,
        gradient: Gradient::Fn(max_pool3d_gradient),
        kernels: KERNELS_3D,
    },
    Op {
        def: OpDef {
            name: "MaxPoolGrad",
            inputs: &["orig_input: T", "orig_output: T", "grad: T"],
            outputs: &["output: T"],
            attrs: &[
                "ksize: list(int) >= 4",
                "strides: list(int) >= 4",
                "padding: {'SAME', 'VALID', 'EXPLICIT'}",
                "explicit_paddings: list(int) = []",
                "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
                "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64} = DT_FLOAT",
            ],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(max_pool_grad_gradient),
        kernels: KERNELS_2D,
    },
    Op {
        def: OpDef {
            name: "MaxPoolGradV2",
            inputs: &["orig_input: T", "orig_output: T", "grad: T", "ksize: int32", "strides: int32"],
            outputs: &["output: T"],
            attrs: &[
                "padding: {'SAME', 'VALID'}",
                "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
                "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64} = DT_FLOAT",
            ],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(max_pool_grad_v2_gradient),
        kernels: KERNELS_2D,
    },
    Op {
        def: OpDef {
            name: "MaxPool3DGrad",
            inputs: &["orig_input: TInput", "orig_output: TInput", "grad: T"],
            outputs: &["output: T"],
            attrs: &[
                "ksize: list(int) >= 5",
                "strides: list(int) >= 5",
                "padding: {'SAME', 'VALID'}",
                "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'",
                "T: {half, bfloat16, float} = DT_FLOAT",
                "TInput: {half, bfloat16, float} = DT_FLOAT",
            ],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(max_pool3d_grad_gradient),
        kernels: KERNELS_3D,
    },
    Op {
        def: OpDef {
            name: "MaxPoolGradGrad",
            inputs: &["orig_input: T", "orig_output: T", "grad: T"],
            outputs: &["output: T"],
            attrs: &[
                "ksize: list(int) >= 4",
                "strides: list(int) >= 4",
                "padding: {'SAME', 'VALID'}",
                "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
                "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}",
            ],
            flags: OpFlags::NONE,
        },
        shape: like_output,
        gradient: Gradient::Fn(max_pool_grad_grad_gradient),
        kernels: KERNELS_2D,
    },
    Op {
        def: OpDef {
            name: "MaxPoolGradGradV2",
            inputs: &["orig_input: T", "orig_output: T", "grad: T", "ksize: int32", "strides: int32"],
            outputs: &["output: T"],
            attrs: &[
                "padding: {'SAME', 'VALID'}",
                "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
                "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}",
            ],
            flags: OpFlags::NONE,
        },
        shape: like_output,
        gradient: Gradient::Fn(max_pool_grad_grad_v2_gradient),
        kernels: KERNELS_2D,
    },
    Op {
        def: OpDef {
            name: "MaxPool3DGradGrad",
            inputs: &["orig_input: T", "orig_output: T", "grad: T"],
            outputs: &["output: T"],
            attrs: &[
                "ksize: list(int) >= 5",
                "strides: list(int) >= 5",
                "padding: {'SAME', 'VALID'}",
                "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'",
                "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}",
            ],
            flags: OpFlags::NONE,
        },
        shape: like_output,
        gradient: Gradient::Fn(max_pool3d_grad_grad_gradient),
        kernels: KERNELS_3D,
    },
    Op {
        def: OpDef {
            name: "MaxPoolWithArgmax",
            inputs: &["input: T"],
            outputs: &["output: T", "argmax: Targmax"],
            attrs: &[
                "ksize: list(int) >= 4",
                "strides: list(int) >= 4",
                "Targmax: {int32, int64} = DT_INT64",
                "padding: {'SAME', 'VALID'}",
                "include_batch_in_index: bool = false",
                "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}",
            ],
            flags: OpFlags::NONE,
        },
        shape: pool_shape::<2>,
        gradient: Gradient::Fn(max_pool_with_argmax_gradient),
        kernels: kernels!("T": [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64] => WithArgmax),
    },
    Op {
        def: OpDef {
            name: "MaxPoolGradWithArgmax",
            inputs: &["input: T", "grad: T", "argmax: Targmax"],
            outputs: &["output: T"],
            attrs: &[
                "ksize: list(int) >= 4",
                "strides: list(int) >= 4",
                "padding: {'SAME', 'VALID'}",
                "include_batch_in_index: bool = false",
                "Targmax: {int32, int64}",
                "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}",
            ],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: kernels!("T": [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64] => BackwardWithArgmax),
    },
];

/// The kernels over rows and columns; the op determines what they compute.
const KERNELS_2D: &[KernelDef] = &[
    kernel_2d::<f32>(),
    kernel_2d::<f64>(),
    kernel_2d::<f16>(),
    kernel_2d::<bf16>(),
    kernel_2d::<i8>(),
    kernel_2d::<i16>(),
    kernel_2d::<i32>(),
    kernel_2d::<i64>(),
    kernel_2d::<u8>(),
    kernel_2d::<u16>(),
    kernel_2d::<u32>(),
    kernel_2d::<u64>(),
];

/// The kernels over depth, rows and columns.
const KERNELS_3D: &[KernelDef] = &[kernel_3d::<f32>(), kernel_3d::<f64>(), kernel_3d::<f16>(), kernel_3d::<bf16>()];

/// Returns the maximum of each window of images (batch, rows, columns, channels).
#[track_caller]
pub fn max_pool(value: &Output, ksize: [i64; 2], strides: [i64; 2], padding: Padding) -> Output {
    let op = value.graph().op("MaxPool").input(value).attr("ksize", &[1, ksize[0], ksize[1], 1][..]);
    op.attr("strides", &[1, strides[0], strides[1], 1][..]).attr("padding", padding.attr()).output()
}

fn like_output(c: &mut kernel::ShapeContext<'_>) -> Result<()> {
    let output = c.input(1);
    c.set_output(0, output);
    Ok(())
}

/// Sets the window of another op.
pub(super) fn with_pool_attrs(mut builder: OpBuilder, like: &Operation) -> OpBuilder {
    let attrs = like.attrs();
    for name in ["ksize", "strides", "padding", "data_format"] {
        if let Some(value) = attrs.get(name) {
            builder = builder.attr(name, value.clone());
        }
    }
    builder
}

/// Adds an op of three inputs with the same window, and puts its output at an index of the gradients.
fn back(args: &GradientArgs<'_>, op: &str, inputs: &[Output], place: usize) -> Gradients {
    let builder = args.op.graph().op(op).inputs(inputs);
    let mut builder = with_pool_attrs(builder, args.op);
    if let Some(paddings) = args.op.attrs().get("explicit_paddings").filter(|_| op == "MaxPoolGrad") {
        builder = builder.attr("explicit_paddings", paddings.clone());
    }
    let mut grads = vec![None; args.op.num_inputs()];
    grads[place] = Some(builder.try_build()?.output(0).into());
    Ok(grads)
}

/// The gradient of a pooling: the op takes its input, its output and the gradient, and the window if that is an input.
fn forward_gradient(args: &GradientArgs<'_>, op: &str) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; args.op.num_inputs()]) };
    let mut inputs = vec![args.input(0), args.output(0), grad];
    inputs.extend((1..args.op.num_inputs()).map(|index| args.input(index)));
    back(args, op, &inputs, 0)
}

/// The gradient of a pooling's gradient with respect to the incoming gradient; the other inputs get zeros, as in TensorFlow.
fn backward_gradient(args: &GradientArgs<'_>, op: &str) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; args.op.num_inputs()]) };
    let mut inputs = vec![args.input(0), args.input(1), grad];
    inputs.extend((3..args.op.num_inputs()).map(|index| args.input(index)));
    let mut grads = back(args, op, &inputs, 2)?;
    for (index, grad) in grads.iter_mut().enumerate().take(2) {
        *grad = Some(unary("ZerosLike", &args.input(index))?.into());
    }
    Ok(grads)
}

fn max_pool_gradient(args: &GradientArgs<'_>) -> Gradients {
    forward_gradient(args, "MaxPoolGrad")
}

fn max_pool_v2_gradient(args: &GradientArgs<'_>) -> Gradients {
    forward_gradient(args, "MaxPoolGradV2")
}

fn max_pool3d_gradient(args: &GradientArgs<'_>) -> Gradients {
    forward_gradient(args, "MaxPool3DGrad")
}

fn max_pool_grad_gradient(args: &GradientArgs<'_>) -> Gradients {
    backward_gradient(args, "MaxPoolGradGrad")
}

fn max_pool_grad_v2_gradient(args: &GradientArgs<'_>) -> Gradients {
    backward_gradient(args, "MaxPoolGradGradV2")
}

fn max_pool3d_grad_gradient(args: &GradientArgs<'_>) -> Gradients {
    backward_gradient(args, "MaxPool3DGradGrad")
}

fn max_pool_grad_grad_gradient(args: &GradientArgs<'_>) -> Gradients {
    backward_gradient(args, "MaxPoolGrad")
}

fn max_pool_grad_grad_v2_gradient(args: &GradientArgs<'_>) -> Gradients {
    backward_gradient(args, "MaxPoolGradV2")
}

fn max_pool3d_grad_grad_gradient(args: &GradientArgs<'_>) -> Gradients {
    backward_gradient(args, "MaxPool3DGrad")
}

fn max_pool_with_argmax_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None]) };
    let builder = args.op.graph().op("MaxPoolGradWithArgmax").input(&args.input(0)).input(&grad).input(&args.output(1));
    let include_batch = args.op.attrs().bool("include_batch_in_index")?;
    let builder = with_pool_attrs(builder, args.op).attr("include_batch_in_index", include_batch);
    Ok(vec![Some(builder.try_build()?.output(0).into())])
}

/// The computation of a max-pooling kernel.
#[derive(Clone, Copy)]
enum Stage {
    /// The maximum.
    Forward,
    /// The gradient of its input.
    Backward,
    /// The gradient of that gradient.
    Twice,
}

/// A max pooling over `N` spatial axes.
struct MaxPool<T, const N: usize> {
    source: Source,
    stage: Stage,
    element: PhantomData<fn(T)>,
}

const fn kernel_2d<T: Element + PoolElement>() -> KernelDef
where
    Max: Reducer<T>,
{
    KernelDef { types: const { &[("T", T::DTYPE)] }, create: create::<T, 2> }
}

const fn kernel_3d<T: Element + PoolElement>() -> KernelDef
where
    Max: Reducer<T>,
{
    KernelDef { types: const { &[("T", T::DTYPE)] }, create: create::<T, 3> }
}

fn create<T: Element + PoolElement, const N: usize>(builder: &KernelBuilder<'_>) -> Result<BoxedKernel>
where
    Max: Reducer<T>,
{
    let stage = match builder.node.op() {
        "MaxPoolGrad" | "MaxPoolGradV2" | "MaxPool3DGrad" => Stage::Backward,
        "MaxPoolGradGrad" | "MaxPoolGradGradV2" | "MaxPool3DGradGrad" => Stage::Twice,
        _ => Stage::Forward,
    };
    BoxedKernel::new(MaxPool::<T, N> { source: Source::new(builder, N)?, stage, element: PhantomData })
}

impl<T: Element + PoolElement, const N: usize> Kernel for MaxPool<T, N>
where
    Max: Reducer<T>,
{
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let pool = self.source.window(context)?;
        let input = context.input(0)?;
        let output = match self.stage {
            Stage::Forward if N == 2 && pool.pools_channels()? => over_channels::<T>(&pool, input)?,
            Stage::Forward => {
                let plan = pool.plan(input.shape(), "tensor_in")?;
                pooled::<T>(&plan, input, None, |input, _, out| loops::max_pool(&plan.shape, input, out))?
            }
            Stage::Twice => {
                let plan = pool.plan(input.shape(), "tensor_in")?;
                plan.check_output(context.input(1)?.shape(), "orig_output")?;
                let gradient = context.input(2)?;
                if gradient.shape() != input.shape() {
                    return Err(Status::invalid_argument(format!(
                        "Expected grad shape to be {}, but got {}",
                        input.shape(),
                        gradient.shape()
                    )));
                }
                pooled::<T>(&plan, input, Some(gradient), |input, gradient, out| {
                    loops::max_pool_grad_grad(&plan.shape, input, gradient, out);
                })?
            }
            Stage::Backward => {
                let plan = pool.plan(input.shape(), "tensor_in")?;
                plan.check_output(context.input(1)?.shape(), "orig_output")?;
                let gradient = context.input(2)?;
                plan.check_output(gradient.shape(), "grad")?;
                spread::<T>(&plan, input, gradient)?
            }
        };
        context.set_output(0, output);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

/// Runs a loop from images to pooled images, in any format.
fn pooled<T: Element>(
    plan: &PoolPlan,
    input: &Tensor,
    second: Option<&Tensor>,
    run: impl FnOnce(&[T], &[T], &mut [T]),
) -> Result<Tensor> {
    if plan.is_empty() {
        return Tensor::zeros(T::DTYPE, plan.window.shape(&plan.output)?);
    }
    let input = plan.window.channels_last::<T>(input)?;
    let second = second.map(|tensor| plan.window.channels_last::<T>(tensor)).transpose()?;
    let second = second.as_ref().map(|tensor| tensor.as_slice::<T>()).transpose()?.unwrap_or(&[]);
    let input = input.as_slice::<T>()?;
    let shape = plan.window.shape_channels_last(&plan.output)?;
    let output = Tensor::build(shape, |out: &mut [T]| run(input, second, out))?;
    plan.window.from_channels_last::<T>(output)
}

/// Runs the gradient of the maximum.
fn spread<T: Element + PoolElement>(plan: &PoolPlan, input: &Tensor, gradient: &Tensor) -> Result<Tensor> {
    if plan.is_empty() {
        return Tensor::zeros(T::DTYPE, input.shape().clone());
    }
    let (input, gradient) = (plan.window.channels_last::<T>(input)?, plan.window.channels_last::<T>(gradient)?);
    let (input, gradient) = (input.as_slice::<T>()?, gradient.as_slice::<T>()?);
    let shape = plan.window.shape_channels_last(&plan.input)?;
    let output = Tensor::build(shape, |out: &mut [T]| loops::max_pool_grad(&plan.shape, input, gradient, out))?;
    plan.window.from_channels_last::<T>(output)
}

/// The maximum over runs of adjacent channels.
fn over_channels<T: Element>(pool: &PoolWindow, input: &Tensor) -> Result<Tensor>
where
    Max: Reducer<T>,
{
    let images = pool.window.images(input.shape(), "tensor_in")?;
    if pool.window.channels_first {
        return Err(Status::unimplemented("pooling across channels needs them to be the last axis"));
    }
    if !images.channels.is_multiple_of(pool.channel_size) {
        return Err(Status::unimplemented(
            "Depthwise max pooling requires the depth window to evenly divide the input depth",
        ));
    }
    let channels = images.channels / pool.channel_size;
    let elements = input.as_slice::<T>()?;
    let shape = pool.window.shape(&super::window::Images { channels, ..images })?;
    let plan = ReducePlan::new(&[shape.num_elements(), pool.channel_size], &[1]);
    Tensor::build(shape, |out: &mut [T]| reduce::<Max, T>(elements, out, &plan))
}

struct WithArgmax<T> {
    pool: PoolWindow,
    include_batch: bool,
    positions: DType,
    element: PhantomData<fn(T)>,
}

impl<T: Element + PoolElement> WithArgmax<T> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        BoxedKernel::new(WithArgmax::<T> {
            pool: PoolWindow::from_attrs(attrs, 2)?,
            include_batch: attrs.bool("include_batch_in_index")?,
            positions: attrs.dtype("Targmax")?,
            element: PhantomData,
        })
    }
}

impl<T: Element + PoolElement> Kernel for WithArgmax<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let plan = self.pool.plan(input.shape(), "tensor_in")?;
        let shape = plan.window.shape(&plan.output)?;
        if plan.is_empty() {
            context.set_output(0, Tensor::zeros(T::DTYPE, shape.clone())?);
            context.set_output(1, Tensor::zeros(self.positions, shape)?);
            return Ok(());
        }
        let elements = input.as_slice::<T>()?;
        let mut positions = Tensor::zeros(DType::Int64, shape.clone())?;
        let places = positions.make_mut::<i64>()?;
        let output = Tensor::build(shape.clone(), |out: &mut [T]| {
            loops::max_pool_argmax(&plan.shape, elements, self.include_batch, out, places);
        })?;
        if self.positions == DType::Int32 {
            let wide = positions.as_slice::<i64>()?;
            positions = Tensor::build(shape, |out: &mut [i32]| {
                out.iter_mut().zip(wide).for_each(|(out, &position)| *out = position as i32);
            })?;
        }
        context.set_output(0, output);
        context.set_output(1, positions);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

/// Adds each gradient to the position of its maximum.
struct BackwardWithArgmax<T> {
    include_batch: bool,
    element: PhantomData<fn(T)>,
}

impl<T: Element + PoolElement> BackwardWithArgmax<T> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let include_batch = builder.attrs().bool("include_batch_in_index")?;
        BoxedKernel::new(BackwardWithArgmax::<T> { include_batch, element: PhantomData })
    }
}

impl<T: Element + PoolElement> Kernel for BackwardWithArgmax<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (input, gradient, places) = (context.input(0)?, context.input(1)?, context.input(2)?);
        if gradient.shape() != places.shape() {
            return Err(Status::invalid_argument(format!(
                "Expected argmax shape to be {}, but got {}",
                gradient.shape(),
                places.shape()
            )));
        }
        if input.shape().rank() != 4 || gradient.shape().rank() != 4 || gradient.shape() != places.shape() {
            return Err(Status::invalid_argument(format!(
                "tensor_in and grad must be 4-dimensional and argmax must have the shape of grad, got {}, {} and {}",
                input.shape(),
                gradient.shape(),
                places.shape()
            )));
        }
        let (batch, in_image) =
            (input.shape().size(0), input.num_elements().checked_div(input.shape().size(0)).unwrap_or(0));
        if gradient.shape().size(0) != batch {
            return Err(Status::invalid_argument("Incompatible batch sizes of input and grad"));
        }
        let out_image = gradient.num_elements().checked_div(batch).unwrap_or(0);
        let places = places.to_indices()?;
        let values = gradient.as_slice::<T>()?;
        let mut output = Tensor::zeros(T::DTYPE, input.shape().clone())?;
        let out = output.make_mut::<T>()?;
        for (index, (&value, place)) in values.iter().zip(places).enumerate() {
            let offset = if self.include_batch { 0 } else { index / out_image.max(1) * in_image };
            let target = usize::try_from(place).ok().and_then(|place| out.get_mut(offset.checked_add(place)?));
            let Some(target) = target else {
                return Err(Status::invalid_argument(format!(
                    "Invalid input argmax: {place} is not a position in an input of shape {}",
                    input.shape()
                )));
            };
            *target = target.plus(value);
        }
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

    fn image() -> Tensor {
        Tensor::from_slice(&[1, 3, 3, 1], &[1f32, 5., 2., 4., 3., 9., 7., 8., 6.]).unwrap()
    }

    fn pooling(padding: &str) -> kernel::AttrMap {
        attrs![("ksize", &[1i64, 2, 2, 1][..]), ("strides", &[1i64, 1, 1, 1][..]), ("padding", padding)]
    }

    #[test]
    fn maxima_and_their_places() {
        let y = run_op("MaxPool", pooling("VALID"), &[image()]).unwrap();
        assert_eq!(y[0].as_slice::<f32>().unwrap(), &[5., 9., 8., 9.]);
        let y = run_op("MaxPool", pooling("SAME"), &[image()]).unwrap();
        assert_eq!(y[0].as_slice::<f32>().unwrap(), &[5., 9., 9., 8., 9., 9., 8., 8., 6.]);
        let (window, steps) = (Tensor::vector(&[1i32, 2, 2, 1]), Tensor::vector(&[1i32, 2, 2, 1]));
        let y = run_op("MaxPoolV2", attrs![("padding", "SAME")], &[image(), window, steps]).unwrap();
        assert_eq!(y[0].as_slice::<f32>().unwrap(), &[5., 9., 8., 6.]);
        let y = run_op("MaxPoolWithArgmax", pooling("VALID"), &[image()]).unwrap();
        assert_eq!(y[1].as_slice::<i64>().unwrap(), &[1, 5, 7, 5]);
        let dy = Tensor::from_slice(&[1, 2, 2, 1], &[1f32, 2., 3., 4.]).unwrap();
        let dx = run_op("MaxPoolGradWithArgmax", pooling("VALID"), &[image(), dy.clone(), y[1].clone()]).unwrap();
        let direct = run_op("MaxPoolGrad", pooling("VALID"), &[image(), y[0].clone(), dy]).unwrap();
        assert_eq!(dx[0].as_slice::<f32>().unwrap(), &[0., 1., 0., 0., 0., 6., 0., 3., 0.]);
        assert_eq!(dx[0].as_slice::<f32>().unwrap(), direct[0].as_slice::<f32>().unwrap());
    }

    #[test]
    fn channels_can_be_pooled() {
        let x = Tensor::from_slice(&[1, 1, 1, 4], &[1i32, 3, 2, 0]).unwrap();
        let attrs = attrs![("ksize", &[1i64, 1, 1, 2][..]), ("strides", &[1i64, 1, 1, 2][..]), ("padding", "VALID")];
        let y = run_op("MaxPool", attrs, &[x]).unwrap();
        assert_eq!(y[0].as_slice::<i32>().unwrap(), &[3, 2]);
    }

    #[test]
    fn bad_places_are_errors() {
        let dy = Tensor::from_slice(&[1, 1, 1, 1], &[1f32]).unwrap();
        for place in [-1i64, 9, i64::MAX] {
            let places = Tensor::from_slice(&[1, 1, 1, 1], &[place]).unwrap();
            assert!(run_op("MaxPoolGradWithArgmax", pooling("VALID"), &[image(), dy.clone(), places]).is_err());
        }
        assert!(run_op("MaxPoolGrad", pooling("VALID"), &[image(), dy.clone(), dy]).is_err());
    }

    #[test]
    fn shapes() {
        check_shape("MaxPool", pooling("SAME"), "[?,7,?,3]", "[?,7,?,3]");
        let shapes = infer("MaxPoolV2", attrs![("padding", "SAME")], "[2,7,7,3];[4];[4]", &[]).unwrap();
        assert_eq!(shapes[0].to_string(), "[?,?,?,?]");
    }

    #[test]
    fn gradients() {
        let values: Vec<f64> = (0..32).map(|index| f64::from((index * 7) % 32)).collect();
        let x = Tensor::from_slice(&[1, 4, 4, 2], &values).unwrap();
        check_gradient(&[x.clone()], |_, x| max_pool(&x[0], [2, 2], [1, 1], Padding::Same));
        check_gradient(&[x.clone()], |graph, x| {
            let op = graph.op("MaxPool").inputs(x).attr("padding", "VALID").attr("data_format", "NCHW");
            op.attr("ksize", &[1i64, 1, 2, 1][..]).attr("strides", &[1i64, 1, 2, 1][..]).output()
        });
    }
}
