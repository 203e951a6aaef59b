//! The oldest batch normalization, with given moments: BatchNormWithGlobalNormalization and its gradient op.

use crate::compose::Gradients;
use graph::ShapeContext;
use kernel::{
    AttrMap, BoxedKernel, Gradient, GradientArgs, Kernel, KernelBuilder, Op, OpContext, OpDef, OpFlags, kernels,
};
use numeric::float::{Float, WideFloat};
use numeric::simd_math::SimdMath;
use std::marker::PhantomData;
use tensor::{Element, PartialShape, Result, Status, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "BatchNormWithGlobalNormalization",
            inputs: &["t: T", "m: T", "v: T", "beta: T", "gamma: T"],
            outputs: &["result: T"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "variance_epsilon: float",
                "scale_after_normalization: bool",
            ],
            flags: OpFlags::NONE,
        },
        shape: forward_shape,
        gradient: Gradient::Fn(forward_gradient),
        kernels: kernels!("T": [f32, f64, f16, bf16] => Forward),
    },
    Op {
        def: OpDef {
            name: "BatchNormWithGlobalNormalizationGrad",
            inputs: &["t: T", "m: T", "v: T", "gamma: T", "backprop: T"],
            outputs: &["dx: T", "dm: T", "dv: T", "db: T", "dg: T"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "variance_epsilon: float",
                "scale_after_normalization: bool",
            ],
            flags: OpFlags::NONE,
        },
        shape: backward_shape,
        gradient: Gradient::Unsupported,
        kernels: kernels!("T": [f32, f64, f16, bf16] => Backward),
    },
];

fn channels_of(
    c: &ShapeContext<'_>,
    parameters: std::ops::Range<usize>,
    images: &PartialShape,
) -> Result<PartialShape> {
    let mut channels = images.slice(3, 4);
    for index in parameters {
        channels = channels.merge(&c.with_rank(index, 1)?)?;
    }
    Ok(channels)
}

fn forward_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let images = c.with_rank(0, 4)?;
    let channels = channels_of(c, 1..5, &images)?;
    c.set_output(0, images.with_dim(3, channels.dim(0)));
    Ok(())
}

fn backward_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let images = c.with_rank(0, 4)?.merge(&c.with_rank(4, 4)?)?;
    let channels = channels_of(c, 1..4, &images)?;
    c.set_output(0, images.with_dim(3, channels.dim(0)));
    for index in 1..5 {
        c.set_output(index, channels.clone());
    }
    Ok(())
}

fn forward_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 5]) };
    let attrs = args.op.attrs();
    let op = grad.graph().op("BatchNormWithGlobalNormalizationGrad").input(&args.input(0)).input(&args.input(1));
    let op = op.input(&args.input(2)).input(&args.input(4)).input(&grad);
    let op = op.attr("variance_epsilon", attrs.float("variance_epsilon")?);
    let op = op.attr("scale_after_normalization", attrs.bool("scale_after_normalization")?).try_build()?;
    Ok((0..5).map(|port| Some(op.output(port).into())).collect())
}

#[derive(Clone, Copy)]
struct Options {
    epsilon: f32,
    scales: bool,
}

impl Options {
    fn new(attrs: &AttrMap) -> Result<Options> {
        Ok(Options { epsilon: attrs.float("variance_epsilon")?, scales: attrs.bool("scale_after_normalization")? })
    }
}

/// Returns the number of channels of images, after checking the parameters for them.
fn checked(images: &Tensor, parameters: &[(&Tensor, &str)]) -> Result<usize> {
    if images.shape().rank() != 4 {
        return Err(Status::invalid_argument(format!("input must be 4-dimensional{}", images.shape())));
    }
    let channels = images.shape().size(3);
    for (parameter, name) in parameters {
        if !parameter.shape().is_vector() || parameter.num_elements() != channels {
            return Err(Status::invalid_argument(format!(
                "{name} must be 1-dimensional with {channels} elements, but has shape {}",
                parameter.shape()
            )));
        }
    }
    Ok(channels)
}

struct Forward<T> {
    options: Options,
    element: PhantomData<fn(T)>,
}

impl<T: Element + Float> Forward<T> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(Forward::<T> { options: Options::new(builder.attrs())?, element: PhantomData })
    }
}

impl<T: Element + Float> Kernel for Forward<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (images, mean, variance) = (context.input(0)?, context.input(1)?, context.input(2)?);
        let (beta, gamma) = (context.input(3)?, context.input(4)?);
        let channels = checked(images, &[(mean, "mean"), (variance, "var"), (beta, "beta"), (gamma, "gamma")])?;
        let values = images.as_slice::<T>()?;
        let (mean, variance) = (mean.as_slice::<T>()?, variance.as_slice::<T>()?);
        let (beta, gamma) = (beta.as_slice::<T>()?, gamma.as_slice::<T>()?);
        let epsilon = T::Wide::of(f64::from(self.options.epsilon));
        let factor = |channel: usize| {
            let inverse = (variance[channel].widen() + epsilon).simd_rsqrt();
            if self.options.scales { inverse * gamma[channel].widen() } else { inverse }
        };
        let factors: Vec<T::Wide> = (0..channels).map(factor).collect();
        let output = Tensor::build(images.shape().clone(), |out: &mut [T]| {
            for (index, (out, value)) in out.iter_mut().zip(values).enumerate() {
                let channel = index % channels;
                let centered = value.widen() - mean[channel].widen();
                *out = T::narrow(centered * factors[channel] + beta[channel].widen());
            }
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

struct Backward<T> {
    options: Options,
    element: PhantomData<fn(T)>,
}

impl<T: Element + Float> Backward<T> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(Backward::<T> { options: Options::new(builder.attrs())?, element: PhantomData })
    }
}

impl<T: Element + Float> Kernel for Backward<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (images, mean, variance) = (context.input(0)?, context.input(1)?, context.input(2)?);
        let (gamma, backprop) = (context.input(3)?, context.input(4)?);
        let channels = checked(images, &[(mean, "mean"), (variance, "var"), (gamma, "gamma")])?;
        if backprop.shape() != images.shape() {
            return Err(Status::invalid_argument(format!(
                "input and backprop must have the same shape, but have {} and {}",
                images.shape(),
                backprop.shape()
            )));
        }
        let (values, gradients) = (images.as_slice::<T>()?, backprop.as_slice::<T>()?);
        let (mean, variance) = (mean.as_slice::<T>()?, variance.as_slice::<T>()?);
        let gamma = gamma.as_slice::<T>()?;
        let number = |value: f64| T::Wide::of(value);
        let epsilon = number(f64::from(self.options.epsilon));
        let zero = number(0.0);
        let inverse: Vec<T::Wide> = variance.iter().map(|value| (value.widen() + epsilon).simd_rsqrt()).collect();
        let scale = |channel: usize| if self.options.scales { gamma[channel].widen() } else { number(1.0) };
        let (mut sums, mut products) = (vec![zero; channels], vec![zero; channels]);
        let dx = Tensor::build(images.shape().clone(), |out: &mut [T]| {
            for (index, out) in out.iter_mut().enumerate() {
                let channel = index % channels;
                let gradient = gradients[index].widen();
                sums[channel] = sums[channel] + gradient;
                products[channel] = products[channel] + gradient * (values[index].widen() - mean[channel].widen());
                *out = T::narrow(gradient * inverse[channel] * scale(channel));
            }
        })?;
        let vector = |of: &dyn Fn(usize) -> T::Wide| -> Tensor {
            Tensor::vector(&(0..channels).map(|channel| T::narrow(of(channel))).collect::<Vec<T>>())
        };
        let dm = vector(&|channel| zero - sums[channel] * inverse[channel] * scale(channel));
        let cube = |channel: usize| inverse[channel] * inverse[channel] * inverse[channel];
        let dv = vector(&|channel| number(-0.5) * products[channel] * cube(channel) * scale(channel));
        let db = vector(&|channel| sums[channel]);
        let dg = vector(&|channel| if self.options.scales { products[channel] * inverse[channel] } else { zero });
        for (index, output) in [dx, dm, dv, db, dg].into_iter().enumerate() {
            context.set_output(index, output);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_gradient, run_op};
    use tensor::Tensor;

    #[test]
    fn values_and_gradients() {
        let vector = |a: f64, b: f64| Tensor::vector(&[a, b]);
        let x = Tensor::from_slice(&[1, 1, 2, 2], &[1f64, 2., 3., -4.]).unwrap();
        let inputs = [x, vector(1., 0.5), vector(3., 1.), vector(0.1, 0.2), vector(2., 0.7)];
        let attrs = || attrs![("variance_epsilon", 1f32), ("scale_after_normalization", true)];
        let y = run_op("BatchNormWithGlobalNormalization", attrs(), &inputs).unwrap();
        let y = y[0].as_slice::<f64>().unwrap();
        assert!((y[0] - 0.1).abs() < 1e-12 && (y[2] - 2.1).abs() < 1e-12, "{y:?}");
        for scales in [true, false] {
            check_gradient(&inputs, |graph, x| {
                let op = graph.op("BatchNormWithGlobalNormalization").inputs(x).attr("variance_epsilon", 1f32);
                op.attr("scale_after_normalization", scales).output()
            });
        }
        let mut bad = inputs.to_vec();
        bad[1] = Tensor::vector(&[1f64]);
        assert!(run_op("BatchNormWithGlobalNormalization", attrs(), &bad).is_err());
    }
}
