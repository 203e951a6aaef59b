//! Batch normalization: FusedBatchNorm and its later versions, their gradient ops, and the form that a master fuses with an
//! activation (_FusedBatchNormEx).

use super::window::{Images, Window};
use crate::compose::{Gradients, binary, int_vector};
use graph::{Output, ShapeContext};
use kernel::{
    AttrMap, BoxedKernel, Cost, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags,
};
use numeric::batch_norm::{
    Finish, Moments, batch_norm_inference, batch_norm_inference_grad, batch_norm_training, batch_norm_training_grad,
};
use numeric::float::Float;
use std::marker::PhantomData;
use tensor::{DType, Element, PartialShape, Result, Shape, Status, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "FusedBatchNorm",
            inputs: &["x: T", "scale: T", "offset: T", "mean: T", "variance: T"],
            outputs: &["y: T", "batch_mean: T", "batch_variance: T", "reserve_space_1: T", "reserve_space_2: T"],
            attrs: &[
                "T: {float}",
                "epsilon: float = 1e-04",
                "exponential_avg_factor: float = 1.0",
                "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
                "is_training: bool = true",
            ],
            flags: OpFlags::NONE,
        },
        shape: forward_shape,
        gradient: Gradient::Fn(gradient_v1),
        kernels: FORWARD_KERNELS,
    },
    Op {
        def: OpDef {
            name: "FusedBatchNormV2",
            inputs: &["x: T", "scale: U", "offset: U", "mean: U", "variance: U"],
            outputs: &["y: T", "batch_mean: U", "batch_variance: U", "reserve_space_1: U", "reserve_space_2: U"],
            attrs: &[
                "T: {half, bfloat16, float}",
                "U: {float}",
                "epsilon: float = 1e-04",
                "exponential_avg_factor: float = 1.0",
                "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
                "is_training: bool = true",
            ],
            flags: OpFlags::NONE,
        },
        shape: forward_shape,
        gradient: Gradient::Fn(gradient_v2),
        kernels: FORWARD_KERNELS,
    },
    Op {
        def: OpDef {
            name: "FusedBatchNormV3",
            inputs: &["x: T", "scale: U", "offset: U", "mean: U", "variance: U"],
            outputs: &[
                "y: T",
                "batch_mean: U",
                "batch_variance: U",
                "reserve_space_1: U",
                "reserve_space_2: U",
                "reserve_space_3: U",
            ],
            attrs: &[
                "T: {half, bfloat16, float}",
                "U: {bfloat16, float}",
                "epsilon: float = 1e-04",
                "exponential_avg_factor: float = 1.0",
                "data_format: {'NHWC', 'NCHW', 'NDHWC', 'NCDHW'} = 'NHWC'",
                "is_training: bool = true",
            ],
            flags: OpFlags::NONE,
        },
        shape: forward_shape,
        gradient: Gradient::Fn(gradient_v3),
        kernels: FORWARD_KERNELS,
    },
    Op {
        def: OpDef {
            name: "_FusedBatchNormEx",
            inputs: &["x: T", "scale: U", "offset: U", "mean: U", "variance: U", "side_input: num_side_inputs * T"],
            outputs: &[
                "y: T",
                "batch_mean: U",
                "batch_variance: U",
                "reserve_space_1: U",
                "reserve_space_2: U",
                "reserve_space_3: U",
            ],
            attrs: &[
                "T: {half, float, bfloat16}",
                "U: {float}",
                "epsilon: float = 1e-04",
                "exponential_avg_factor: float = 1.0",
                "num_side_inputs: int >= 0 = 0",
                "activation_mode: string = 'Identity'",
                "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
                "is_training: bool = true",
            ],
            flags: OpFlags::NONE,
        },
        shape: forward_shape,
        gradient: Gradient::Unsupported,
        kernels: FORWARD_KERNELS,
    },
    Op {
        def: OpDef {
            name: "FusedBatchNormGrad",
            inputs: &["y_backprop: T", "x: T", "scale: T", "reserve_space_1: T", "reserve_space_2: T"],
            outputs: &[
                "x_backprop: T",
                "scale_backprop: T",
                "offset_backprop: T",
                "reserve_space_3: T",
                "reserve_space_4: T",
            ],
            attrs: &[
                "T: {float}",
                "epsilon: float = 1e-04",
                "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
                "is_training: bool = true",
            ],
            flags: OpFlags::NONE,
        },
        shape: backward_shape,
        gradient: Gradient::Unsupported,
        kernels: BACKWARD_KERNELS,
    },
    Op {
        def: OpDef {
            name: "FusedBatchNormGradV2",
            inputs: &["y_backprop: T", "x: T", "scale: float", "reserve_space_1: U", "reserve_space_2: U"],
            outputs: &[
                "x_backprop: T",
                "scale_backprop: U",
                "offset_backprop: U",
                "reserve_space_3: U",
                "reserve_space_4: U",
            ],
            attrs: &[
                "T: {half, bfloat16, float}",
                "U: {float}",
                "epsilon: float = 1e-04",
                "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
                "is_training: bool = true",
            ],
            flags: OpFlags::NONE,
        },
        shape: backward_shape,
        gradient: Gradient::Unsupported,
        kernels: BACKWARD_KERNELS,
    },
    Op {
        def: OpDef {
            name: "FusedBatchNormGradV3",
            inputs: &[
                "y_backprop: T",
                "x: T",
                "scale: float",
                "reserve_space_1: U",
                "reserve_space_2: U",
                "reserve_space_3: U",
            ],
            outputs: &[
                "x_backprop: T",
                "scale_backprop: U",
                "offset_backprop: U",
                "reserve_space_4: U",
                "reserve_space_5: U",
            ],
            attrs: &[
                "T: {half, bfloat16, float}",
                "U: {float}",
                "epsilon: float = 1e-04",
                "data_format: {'NHWC', 'NCHW', 'NDHWC', 'NCDHW'} = 'NHWC'",
                "is_training: bool = true",
            ],
            flags: OpFlags::NONE,
        },
        shape: backward_shape,
        gradient: Gradient::Unsupported,
        kernels: BACKWARD_KERNELS,
    },
];

const FORWARD_KERNELS: &[KernelDef] = &[forward::<f32>(), forward::<f16>(), forward::<bf16>()];
const BACKWARD_KERNELS: &[KernelDef] = &[backward::<f32>(), backward::<f16>(), backward::<bf16>()];

/// The results of a training normalization: the images, and mean and variance of each channel.
pub struct BatchNorm {
    /// The normalized images.
    pub y: Output,
    /// The mean of each channel.
    pub mean: Output,
    /// The variance of each channel, as an unbiased estimate.
    pub variance: Output,
}

/// Normalizes images (batch, rows, columns, channels) with the moments of the batch.
#[track_caller]
pub fn fused_batch_norm(x: &Output, scale: &Output, offset: &Output, epsilon: f32) -> BatchNorm {
    let graph = x.graph();
    let none = graph.constant_tensor(&Tensor::vector::<f32>(&[]));
    let op = graph.op("FusedBatchNormV3").input(x).input(scale).input(offset).input(&none).input(&none);
    let op = op.attr("epsilon", epsilon).attr("is_training", true).build();
    BatchNorm { y: op.output(0), mean: op.output(1), variance: op.output(2) }
}

/// Normalizes images with given moments.
#[track_caller]
pub fn fused_batch_norm_inference(
    x: &Output,
    scale: &Output,
    offset: &Output,
    mean: &Output,
    variance: &Output,
    epsilon: f32,
) -> Output {
    let op = x.graph().op("FusedBatchNormV3").input(x).input(scale).input(offset).input(mean).input(variance);
    op.attr("epsilon", epsilon).attr("is_training", false).output()
}

/// Returns the layout of the images, with two or three spatial axes.
fn layout(attrs: &AttrMap) -> Result<Window> {
    let format = attrs.string("data_format")?;
    let spatial = if format.len() == 5 { 3 } else { 2 };
    let mut own = AttrMap::default();
    own.set("data_format", format);
    own.set("padding", "VALID");
    Window::new(&own, spatial, &vec![1; spatial + 2])
}

fn forward_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let layout = layout(c.attrs)?;
    let x = c.with_rank(0, layout.spatial + 2)?;
    let axis = layout.channel_axis();
    let mut channels = x.slice(axis, axis + 1);
    let last = if c.attrs.bool("is_training")? { 2 } else { 4 };
    for index in 1..=last {
        channels = channels.merge(&c.with_rank(index, 1)?)?;
    }
    c.set_output(0, x.with_dim(axis, channels.dim(0)));
    for index in 1..c.num_outputs().min(5) {
        c.set_output(index, channels.clone());
    }
    Ok(())
}

fn backward_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let layout = layout(c.attrs)?;
    let rank = PartialShape::unknown_of_rank(layout.spatial + 2);
    let x = c.merged(0, 1)?.merge(&rank)?;
    let axis = layout.channel_axis();
    let mut channels = x.slice(axis, axis + 1);
    for index in 2..5 {
        channels = channels.merge(&c.with_rank(index, 1)?)?;
    }
    c.set_output(0, x.with_dim(axis, channels.dim(0)));
    c.set_output(1, channels.clone());
    c.set_output(2, channels);
    for index in 3..c.num_outputs() {
        c.set_output(index, PartialShape::new(&[Some(0)]));
    }
    Ok(())
}

fn gradient_v1(args: &GradientArgs<'_>) -> Gradients {
    forward_gradient(args, "FusedBatchNormGrad")
}

fn gradient_v2(args: &GradientArgs<'_>) -> Gradients {
    forward_gradient(args, "FusedBatchNormGradV2")
}

fn gradient_v3(args: &GradientArgs<'_>) -> Gradients {
    forward_gradient(args, "FusedBatchNormGradV3")
}

fn forward_gradient(args: &GradientArgs<'_>, op: &str) -> Gradients {
    let mut grads = vec![None; 5];
    let Some(grad) = args.grad(0) else { return Ok(grads) };
    let attrs = args.op.attrs();
    let is_training = attrs.bool("is_training")?;
    let format = attrs.string("data_format")?;
    let layout = layout(&attrs)?;
    // TensorFlow's frozen gradient supports only channels last; our graphs must run there too.
    let swaps = !is_training && layout.channels_first;
    let spatial = layout.spatial as i32;
    let permuted = |x: &Output, permutation: Vec<i32>| binary("Transpose", x, &int_vector(x.graph(), &permutation)?);
    let to_last = || -> Vec<i32> { std::iter::once(0).chain(2..spatial + 2).chain(std::iter::once(1)).collect() };
    let to_first = || -> Vec<i32> { [0, spatial + 1].into_iter().chain(1..spatial + 1).collect() };
    let (x, dy) =
        if swaps { (permuted(&args.input(0), to_last())?, permuted(&grad, to_last())?) } else { (args.input(0), grad) };
    let format = match (swaps, spatial) {
        (false, _) => format,
        (true, 3) => "NDHWC".to_owned(),
        (true, _) => "NHWC".to_owned(),
    };
    let (mean, variance) = if is_training { (args.output(3), args.output(4)) } else { (args.input(3), args.input(4)) };
    let mut builder = x.graph().op(op).input(&dy).input(&x).input(&args.input(1)).input(&mean).input(&variance);
    if op.ends_with("V3") {
        builder = builder.input(&args.output(5));
    }
    let builder = builder.attr("epsilon", attrs.float("epsilon")?).attr("data_format", format);
    let back = builder.attr("is_training", is_training).try_build()?;
    let dx = if swaps { permuted(&back.output(0), to_first())? } else { back.output(0) };
    grads[0] = Some(dx.into());
    grads[1] = Some(back.output(1).into());
    grads[2] = Some(back.output(2).into());
    Ok(grads)
}

/// Returns a parameter for each channel, in single precision.
fn parameter<'a>(tensor: &'a Tensor, channels: usize, name: &str) -> Result<std::borrow::Cow<'a, [f32]>> {
    if !tensor.shape().is_vector() {
        return Err(Status::invalid_argument(format!("{name} must be 1-dimensional{}", tensor.shape())));
    }
    if tensor.num_elements() != channels {
        let name = match name {
            "mean" => "When is_training=false, mean",
            "variance" => "When is_training=false, variance",
            "saved mean" => "reserve_space_1",
            "saved variance" => "reserve_space_2",
            name => name,
        };
        return Err(Status::invalid_argument(format!(
            "{name} must have the same number of elements as the channels of x, got {} and {channels}",
            tensor.num_elements()
        )));
    }
    match tensor.dtype() {
        DType::BFloat16 => Ok(tensor.as_slice::<bf16>()?.iter().map(|value| value.to_f32()).collect()),
        _ => Ok(tensor.as_slice::<f32>()?.into()),
    }
}

/// Returns moments or gradients in the node's output type.
fn parameter_tensor(values: &[f32], dtype: DType) -> Tensor {
    match dtype {
        DType::BFloat16 => Tensor::vector(&values.iter().map(|&value| bf16::from_f32(value)).collect::<Vec<_>>()),
        _ => Tensor::vector(values),
    }
}

struct Forward<T> {
    layout: Window,
    epsilon: f32,
    average_factor: f32,
    is_training: bool,
    relu: bool,
    side_input: Option<usize>,
    parameters: DType,
    element: PhantomData<fn(T)>,
}

const fn forward<T: Element + Float<Wide = f32>>() -> KernelDef {
    KernelDef { types: const { &[("T", T::DTYPE)] }, create: Forward::<T>::create }
}

impl<T: Element + Float<Wide = f32>> Forward<T> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        let relu = match attrs.string("activation_mode").as_deref() {
            Ok("Relu") => true,
            Ok("Identity") | Err(_) => false,
            Ok(other) => return Err(Status::invalid_argument(format!("Unsupported activation mode: {other}"))),
        };
        let side_input = attrs.int("num_side_inputs").is_ok_and(|count| count > 0).then_some(5);
        BoxedKernel::new(Forward::<T> {
            layout: layout(attrs)?,
            epsilon: attrs.float("epsilon")?,
            average_factor: attrs.float("exponential_avg_factor")?,
            is_training: attrs.bool("is_training")?,
            relu,
            side_input,
            parameters: builder.output_dtype(1),
            element: PhantomData,
        })
    }
}

impl<T: Element + Float<Wide = f32>> Kernel for Forward<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let x = context.input(0)?;
        let images = self.layout.images(x.shape(), "input")?;
        let channels = images.channels;
        let scale = parameter(context.input(1)?, channels, "scale")?;
        let offset = parameter(context.input(2)?, channels, "offset")?;
        let (given_mean, given_variance) = (context.input(3)?, context.input(4)?);
        let needs_given = !self.is_training || self.average_factor != 1.0;
        let given = if needs_given {
            Some((parameter(given_mean, channels, "mean")?, parameter(given_variance, channels, "variance")?))
        } else {
            None
        };
        let last = self.layout.channels_last::<T>(x)?;
        let elements = last.as_slice::<T>()?;
        let side = self.side_input.map(|index| context.input(index)).transpose()?;
        if let Some(side) = side
            && side.shape() != x.shape()
        {
            return Err(Status::invalid_argument(format!(
                "side_input shape must be equal to input shape: {} != {}",
                side.shape(),
                x.shape()
            )));
        }
        let side = side.map(|side| self.layout.channels_last::<T>(side)).transpose()?;
        let side_input = side.as_ref().map(|side| side.as_slice::<T>()).transpose()?;
        let finish = Finish { side_input, relu: self.relu };
        let mut saved = Moments { mean: Vec::new(), variance: Vec::new() };
        let shape = self.layout.shape_channels_last(&images)?;
        let y = Tensor::build(shape, |y: &mut [T]| match &given {
            Some((mean, variance)) if !self.is_training => {
                if !y.is_empty() {
                    batch_norm_inference(elements, &scale, &offset, mean, variance, self.epsilon, finish, y);
                }
                saved = Moments { mean: mean.to_vec(), variance: variance.to_vec() };
            }
            _ if y.is_empty() => {
                saved = Moments { mean: vec![f32::NAN; channels], variance: vec![f32::NAN; channels] };
            }
            _ => saved = batch_norm_training(elements, &scale, &offset, self.epsilon, finish, y),
        })?;
        let (mean, variance) =
            self.running(&saved, given.as_ref().map(|(mean, variance)| (&**mean, &**variance)), &images);
        let y = self.layout.from_channels_last::<T>(y)?;
        let parameters = self.parameters;
        let outputs = [
            y,
            parameter_tensor(&mean, parameters),
            parameter_tensor(&variance, parameters),
            parameter_tensor(&saved.mean, parameters),
            parameter_tensor(&saved.variance, parameters),
        ];
        for (index, output) in outputs.into_iter().enumerate() {
            context.set_output(index, output);
        }
        if context.num_outputs() > 5 {
            context.set_output(5, graph::builder::scalar_tensor(parameters, 0.0)?);
        }
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

impl<T> Forward<T> {
    /// Returns the output moments: in training those of the batch, as unbiased estimates and averaged with the given ones.
    fn running(&self, saved: &Moments, given: Option<(&[f32], &[f32])>, images: &Images) -> (Vec<f32>, Vec<f32>) {
        if !self.is_training {
            return (saved.mean.clone(), saved.variance.clone());
        }
        let rows = images.batch * images.size.iter().product::<usize>();
        let factor = Moments::population_factor(rows);
        let variance: Vec<f32> = saved.variance.iter().map(|variance| variance * factor).collect();
        let Some((given_mean, given_variance)) = given else { return (saved.mean.clone(), variance) };
        let weight = self.average_factor;
        let average = |given: &[f32], own: &[f32]| {
            given.iter().zip(own).map(|(given, own)| (1.0 - weight) * given + weight * own).collect()
        };
        (average(given_mean, &saved.mean), average(given_variance, &variance))
    }
}

struct Backward<T> {
    layout: Window,
    epsilon: f32,
    is_training: bool,
    parameters: DType,
    element: PhantomData<fn(T)>,
}

const fn backward<T: Element + Float<Wide = f32>>() -> KernelDef {
    KernelDef {
        types: const { &[("T", T::DTYPE)] },
        create: |builder| {
            let attrs = builder.attrs();
            BoxedKernel::new(Backward::<T> {
                layout: layout(attrs)?,
                epsilon: attrs.float("epsilon")?,
                is_training: attrs.bool("is_training")?,
                parameters: builder.output_dtype(1),
                element: PhantomData,
            })
        },
    }
}

impl<T: Element + Float<Wide = f32>> Kernel for Backward<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (gradient, x) = (context.input(0)?, context.input(1)?);
        if gradient.shape() != x.shape() {
            return Err(Status::invalid_argument(format!(
                "x and y_backprop must have same shape, but x has shape {} and y_backprop has shape {}",
                x.shape(),
                gradient.shape()
            )));
        }
        let images = self.layout.images(x.shape(), "input")?;
        let channels = images.channels;
        let scale = parameter(context.input(2)?, channels, "scale")?;
        let mean = parameter(context.input(3)?, channels, "saved mean")?;
        let variance = parameter(context.input(4)?, channels, "saved variance")?;
        let (gradient, x) = (self.layout.channels_last::<T>(gradient)?, self.layout.channels_last::<T>(x)?);
        let (gradient, x) = (gradient.as_slice::<T>()?, x.as_slice::<T>()?);
        let mut parameters = (vec![0.0; channels], vec![0.0; channels]);
        let x_grad = Tensor::build(self.layout.shape_channels_last(&images)?, |x_grad: &mut [T]| {
            if x_grad.is_empty() {
                return;
            }
            let grads = if self.is_training {
                let moments = Moments { mean: mean.to_vec(), variance: variance.to_vec() };
                batch_norm_training_grad(gradient, x, &scale, &moments, self.epsilon, x_grad)
            } else {
                batch_norm_inference_grad(gradient, x, &scale, &mean, &variance, self.epsilon, x_grad)
            };
            parameters = (grads.scale, grads.offset);
        })?;
        let x_grad = self.layout.from_channels_last::<T>(x_grad)?;
        context.set_output(0, x_grad);
        context.set_output(1, parameter_tensor(&parameters.0, self.parameters));
        context.set_output(2, parameter_tensor(&parameters.1, self.parameters));
        for index in 3..context.num_outputs() {
            context.set_output(index, Tensor::zeros(self.parameters, Shape::vector(0))?);
        }
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_shape, run_op};

    fn x() -> Tensor {
        let values: Vec<f32> = (0..12).map(|value| value as f32).collect();
        Tensor::from_slice(&[1, 2, 3, 2], &values).unwrap()
    }

    fn close(tensor: &Tensor, expected: &[f32]) {
        let actual = tensor.as_slice::<f32>().unwrap();
        assert_eq!(actual.len(), expected.len());
        for (actual, expected) in actual.iter().zip(expected) {
            assert!((actual - expected).abs() <= 2e-5 * (1.0 + expected.abs()), "{actual} instead of {expected}");
        }
    }

    fn inputs() -> [Tensor; 5] {
        let pair = |a: f32, b: f32| Tensor::vector(&[a, b]);
        [x(), pair(1.0, 2.0), pair(0.5, -0.5), pair(1.0, 2.0), pair(3.0, 4.0)]
    }

    /// The numbers come from TensorFlow.
    #[test]
    fn training() {
        let attrs = attrs![("epsilon", 1e-3f32), ("exponential_avg_factor", 0.5f32)];
        let y = run_op("FusedBatchNormV3", attrs, &inputs()).unwrap();
        close(
            &y[0],
            &[
                -0.9637873,
                -3.4275746,
                -0.37827235,
                -2.2565446,
                0.20724255,
                -1.0855149,
                0.79275745,
                0.0855149,
                1.3782723,
                1.2565447,
                1.9637873,
                2.4275746,
            ],
        );
        close(&y[1], &[3.0, 4.0]);
        close(&y[2], &[8.5, 9.0]);
        close(&y[3], &[5.0, 6.0]);
        close(&y[4], &[11.666667, 11.666667]);
        let gradient: Vec<f32> = (0..12).map(|value| value as f32 * 0.1).collect();
        let gradient = Tensor::from_slice(&[1, 2, 3, 2], &gradient).unwrap();
        let [_, scale, ..] = inputs();
        let back = [gradient, x(), scale, y[3].clone(), y[4].clone(), y[5].clone()];
        let dx = run_op("FusedBatchNormGradV3", attrs![("epsilon", 1e-3f32)], &back).unwrap();
        close(&dx[1], &[2.049302, 2.0493023]);
        close(&dx[2], &[3.0, 3.6]);
        assert_eq!(dx[3].dims(), &[0]);
    }

    #[test]
    fn frozen_moments() {
        let gradient: Vec<f32> = (0..12).map(|value| value as f32 * 0.1).collect();
        let gradient = Tensor::from_slice(&[1, 2, 3, 2], &gradient).unwrap();
        let [x, scale, _, mean, variance] = inputs();
        let attrs = attrs![("epsilon", 1e-3f32), ("is_training", false)];
        let back = [gradient, x, scale, mean, variance, Tensor::scalar(0f32)];
        let dx = run_op("FusedBatchNormGradV3", attrs, &back).unwrap();
        close(&dx[1], &[10.967828, 10.698664]);
        close(
            &dx[0].slice_rows(0, 1).unwrap(),
            &[
                0.0, 0.0999875, 0.11545082, 0.29996252, 0.23090164, 0.49993753, 0.3463525, 0.69991255, 0.4618033,
                0.8998876, 0.5772541, 1.0998626,
            ],
        );
    }

    #[test]
    fn an_activation_behind() {
        let attrs = attrs![("epsilon", 1e-3f32), ("is_training", false), ("activation_mode", "Relu")];
        let plain = attrs![("epsilon", 1e-3f32), ("is_training", false)];
        let y = run_op("_FusedBatchNormEx", attrs, &inputs()).unwrap();
        let plain = run_op("FusedBatchNormV2", plain, &inputs()).unwrap();
        let relu: Vec<f32> = plain[0].as_slice::<f32>().unwrap().iter().map(|value| value.max(0.0)).collect();
        close(&y[0], &relu);
    }

    #[test]
    fn shapes_and_bad_parameters() {
        check_shape("FusedBatchNormV3", attrs![], "[?,?,?,?];[2];[2];[?];[?]", "[?,?,?,2];[2];[2];[2];[2];?");
        let mut bad = inputs();
        bad[1] = Tensor::vector(&[1f32; 3]);
        assert!(run_op("FusedBatchNorm", attrs![], &bad).is_err());
        let mut bad = inputs();
        bad[0] = Tensor::vector(&[1f32; 3]);
        assert!(run_op("FusedBatchNorm", attrs![], &bad).is_err());
    }
}
