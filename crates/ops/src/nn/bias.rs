//! Per-channel biases: BiasAdd, BiasAddV1, BiasAddGrad.

use crate::compose::{Gradients, binary, constant, int_vector, reshape, shape_of, sum, unary};
use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags};
use numeric::bias::{self, Channels};
use tensor::{Complex32, Complex64, DType, Element, PartialShape, Result, Shape, Status, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "BiasAdd",
            inputs: &["value: T", "bias: T"],
            outputs: &["output: T"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
            ],
            flags: OpFlags::NONE,
        },
        shape: bias_add_shape,
        gradient: Gradient::Fn(bias_add_gradient),
        kernels: &[KernelDef::any(BiasAdd::create)],
    },
    Op {
        def: OpDef {
            name: "BiasAddV1",
            inputs: &["value: T", "bias: T"],
            outputs: &["output: T"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
            ],
            flags: OpFlags::NONE,
        },
        shape: bias_add_shape,
        gradient: Gradient::Fn(bias_add_v1_gradient),
        kernels: &[KernelDef::any(BiasAdd::create)],
    },
    Op {
        def: OpDef {
            name: "BiasAddGrad",
            inputs: &["out_backprop: T"],
            outputs: &["output: T"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
            ],
            flags: OpFlags::NONE,
        },
        shape: bias_add_grad_shape,
        gradient: Gradient::Fn(bias_add_grad_gradient),
        kernels: &[KernelDef::any(BiasAddGrad::create)],
    },
];

/// Returns `value` with each channel's bias added; channels are the last axis.
#[track_caller]
pub fn bias_add(value: &Output, bias: &Output) -> Output {
    value.graph().op("BiasAdd").input(value).input(bias).output()
}

/// Returns `x × weights + biases`.
#[track_caller]
pub fn xw_plus_b(x: &Output, weights: &Output, biases: &Output) -> Output {
    bias_add(&crate::math::matmul(x, weights), biases)
}

/// Returns the axis of the channels; the oldest version of the op has no format attribute.
fn channel_axis(format: Result<String>, rank: usize) -> usize {
    match format {
        Ok(format) if format == "NCHW" => 1,
        _ => rank - 1,
    }
}

fn bias_add_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let value = c.with_rank_at_least(0, 2)?;
    let bias = c.with_rank(1, 1)?;
    let Some(rank) = value.rank() else { return Ok(()) };
    let axis = channel_axis(c.attrs.string("data_format"), rank);
    let channels = value.slice(axis, axis + 1).merge(&bias)?;
    c.set_output(0, value.with_dim(axis, channels.dim(0)));
    Ok(())
}

fn bias_add_grad_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let value = c.with_rank_at_least(0, 2)?;
    let channels = value.rank().and_then(|rank| value.dim(channel_axis(c.attrs.string("data_format"), rank)));
    c.set_output(0, PartialShape::new(&[channels]));
    Ok(())
}

fn bias_add_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let format = args.op.attrs().string("data_format")?;
    let back = grad.graph().op("BiasAddGrad").input(&grad).attr("data_format", format).try_build()?.output(0);
    Ok(vec![Some(grad.into()), Some(back.into())])
}

fn bias_add_v1_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let graph = grad.graph();
    let number = |value: i32| constant(graph, &Tensor::scalar(value));
    let last = binary("Sub", &unary("Rank", &grad)?, &number(1)?)?;
    let axes = graph.op("Range").input(&number(0)?).input(&last).input(&number(1)?).try_build()?.output(0);
    let back = sum(&grad, &axes, false)?;
    Ok(vec![Some(grad.into()), Some(back.into())])
}

fn bias_add_grad_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None]) };
    let value = args.input(0);
    let spread = if args.op.attrs().string("data_format")? == "NCHW" {
        let rank = value.shape().rank().ok_or_else(|| Status::invalid_argument("the rank must be known"))?;
        let mut dims = vec![1; rank - 1];
        dims[0] = -1;
        reshape(&grad, &int_vector(grad.graph(), &dims)?)?
    } else {
        grad
    };
    Ok(vec![Some(binary("BroadcastTo", &spread, &shape_of(&value)?)?.into())])
}

/// Returns the position of the channels in a value of this shape.
fn channels(shape: &Shape, channels_first: bool) -> Result<(Channels, usize)> {
    if shape.rank() < 2 {
        return Err(Status::invalid_argument(format!("Input tensor must be at least 2D: {shape}")));
    }
    if channels_first {
        let dims = shape.to_usize();
        return Ok((Channels::Before { inner: dims[2..].iter().product() }, dims[1]));
    }
    Ok((Channels::Last, shape.size(shape.rank() - 1)))
}

struct BiasAdd {
    channels_first: bool,
    add: fn(Tensor, &Tensor, Channels) -> Result<Tensor>,
}

macro_rules! by_type {
    ($dtype:expr, $function:ident) => {
        match $dtype {
            DType::Float => $function!(f32),
            DType::Double => $function!(f64),
            DType::Half => $function!(f16),
            DType::BFloat16 => $function!(bf16),
            DType::Int8 => $function!(i8),
            DType::Int16 => $function!(i16),
            DType::Int32 => $function!(i32),
            DType::Int64 => $function!(i64),
            DType::UInt8 => $function!(u8),
            DType::UInt16 => $function!(u16),
            DType::UInt32 => $function!(u32),
            DType::UInt64 => $function!(u64),
            DType::Complex64 => $function!(Complex32),
            DType::Complex128 => $function!(Complex64),
            other => return Err(Status::unimplemented(format!("no bias of type {other}"))),
        }
    };
}

macro_rules! add_of {
    (f16) => {
        |value: Tensor, bias: &Tensor, channels: Channels| add_half::<f16>(value, bias, channels)
    };
    (bf16) => {
        |value: Tensor, bias: &Tensor, channels: Channels| add_half::<bf16>(value, bias, channels)
    };
    ($ty:ty) => {
        |mut value: Tensor, bias: &Tensor, channels: Channels| {
            let bias = bias.as_slice::<$ty>()?;
            if let Some(elements) = value.as_mut_slice::<$ty>() {
                bias::bias_add_in_place(elements, bias, channels);
                return Ok(value);
            }
            let elements = value.as_slice::<$ty>()?;
            Tensor::build(value.shape().clone(), |out: &mut [$ty]| bias::bias_add(elements, bias, channels, out))
        }
    };
}

fn add_half<T: Element + std::ops::Add<Output = T>>(
    value: Tensor,
    bias: &Tensor,
    channels: Channels,
) -> Result<Tensor> {
    let (elements, bias) = (value.as_slice::<T>()?, bias.as_slice::<T>()?);
    let inner = match channels {
        Channels::Last => 1,
        Channels::Before { inner } => inner,
    };
    Tensor::build(value.shape().clone(), |out: &mut [T]| {
        if out.is_empty() {
            return;
        }
        let runs = elements.chunks_exact(inner).zip(out.chunks_exact_mut(inner));
        for ((from, to), &bias) in runs.zip(bias.iter().cycle()) {
            to.iter_mut().zip(from).for_each(|(to, &from)| *to = from + bias);
        }
    })
}

macro_rules! sum_of {
    ($ty:ty) => {
        |gradient: &Tensor, channels: Channels, count: usize| {
            let elements = gradient.as_slice::<$ty>()?;
            Tensor::build(Shape::vector(count), |out: &mut [$ty]| bias::bias_add_grad(elements, channels, out))
        }
    };
}

impl BiasAdd {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let channels_first = builder.attrs().string("data_format").is_ok_and(|format| format == "NCHW");
        let add: fn(Tensor, &Tensor, Channels) -> Result<Tensor> = by_type!(builder.input_dtype(0), add_of);
        BoxedKernel::new(BiasAdd { channels_first, add })
    }
}

impl Kernel for BiasAdd {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let value = context.take_input(0)?;
        let bias = context.input(1)?;
        let (channels, count) = channels(value.shape(), self.channels_first)?;
        if !bias.shape().is_vector() {
            return Err(Status::invalid_argument(format!("Biases must be 1D: {}", bias.shape())));
        }
        if bias.num_elements() != count {
            let which = if self.channels_first { "channel" } else { "last" };
            return Err(Status::invalid_argument(format!(
                "Must provide as many biases as the {which} dimension of the input tensor: {} vs. {}",
                bias.shape(),
                value.shape()
            )));
        }
        let output = (self.add)(value, bias, channels)?;
        context.set_output(0, output);
        Ok(())
    }
}

struct BiasAddGrad {
    channels_first: bool,
    sum: fn(&Tensor, Channels, usize) -> Result<Tensor>,
}

impl BiasAddGrad {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let channels_first = builder.attrs().string("data_format")? == "NCHW";
        let sum: fn(&Tensor, Channels, usize) -> Result<Tensor> = by_type!(builder.input_dtype(0), sum_of);
        BoxedKernel::new(BiasAddGrad { channels_first, sum })
    }
}

impl Kernel for BiasAddGrad {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let gradient = context.input(0)?;
        let (channels, count) = channels(gradient.shape(), self.channels_first)?;
        let output = (self.sum)(gradient, channels, count)?;
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_gradient, check_shape, run_op};

    #[test]
    fn both_formats() {
        let x = Tensor::from_slice(&[1, 2, 2], &[1f32, 2., 3., 4.]).unwrap();
        let bias = Tensor::vector(&[10f32, 20.]);
        let y = run_op("BiasAdd", attrs![], &[x.clone(), bias.clone()]).unwrap();
        assert_eq!(y[0].as_slice::<f32>().unwrap(), &[11., 22., 13., 24.]);
        let y = run_op("BiasAdd", attrs![("data_format", "NCHW")], &[x.clone(), bias]).unwrap();
        assert_eq!(y[0].as_slice::<f32>().unwrap(), &[11., 12., 23., 24.]);
        let y = run_op("BiasAddGrad", attrs![("data_format", "NCHW")], &[x.clone()]).unwrap();
        assert_eq!(y[0].as_slice::<f32>().unwrap(), &[3., 7.]);
        let y = run_op("BiasAddGrad", attrs![], &[x.clone()]).unwrap();
        assert_eq!(y[0].as_slice::<f32>().unwrap(), &[4., 6.]);
        let status = run_op("BiasAddV1", attrs![], &[x, Tensor::vector(&[1f32])]).unwrap_err();
        assert!(status.message().starts_with("Must provide as many biases as the last dimension"), "{status}");
    }

    #[test]
    fn shapes() {
        check_shape("BiasAdd", attrs![], "[2,?];[3]", "[2,3]");
        check_shape("BiasAddGrad", attrs![("data_format", "NCHW")], "[2,5,4,4]", "[5]");
    }

    #[test]
    fn gradients() {
        let x = Tensor::from_slice(&[2, 2], &[1f64, 2., 3., 4.]).unwrap();
        let bias = Tensor::vector(&[10f64, 20.]);
        check_gradient(&[x.clone(), bias.clone()], |_, x| bias_add(&x[0], &x[1]));
        check_gradient(&[x.clone(), bias], |graph, x| graph.op("BiasAddV1").inputs(x).output());
        check_gradient(&[x], |graph, x| graph.op("BiasAddGrad").inputs(x).output());
    }
}
