//! Local response normalization: LRN, LRNGrad.

use crate::compose::Gradients;
use graph::{Output, ShapeContext};
use kernel::{
    BoxedKernel, Cost, Gradient, GradientArgs, Kernel, KernelBuilder, Op, OpContext, OpDef, OpFlags, kernels,
};
use numeric::float::Float;
use numeric::parallel;
use std::marker::PhantomData;
use tensor::{Element, PartialShape, Result, Status, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "LRN",
            inputs: &["input: T"],
            outputs: &["output: T"],
            attrs: &[
                "depth_radius: int = 5",
                "bias: float = 1.0",
                "alpha: float = 1.0",
                "beta: float = 0.5",
                "T: {half, bfloat16, float} = DT_FLOAT",
            ],
            flags: OpFlags::NONE,
        },
        shape: lrn_shape,
        gradient: Gradient::Fn(lrn_gradient),
        kernels: kernels!("T": [f32, f16, bf16] => Forward),
    },
    Op {
        def: OpDef {
            name: "LRNGrad",
            inputs: &["input_grads: T", "input_image: T", "output_image: T"],
            outputs: &["output: T"],
            attrs: &[
                "depth_radius: int = 5",
                "bias: float = 1.0",
                "alpha: float = 1.0",
                "beta: float = 0.5",
                "T: {half, bfloat16, float} = DT_FLOAT",
            ],
            flags: OpFlags::NONE,
        },
        shape: lrn_grad_shape,
        gradient: Gradient::Unsupported,
        kernels: kernels!("T": [f32, f16, bf16] => Backward),
    },
];

/// Returns images in which each channel is divided by a power of the sum of the squares of the adjacent channels.
#[track_caller]
pub fn local_response_normalization(input: &Output, depth_radius: i64, bias: f32, alpha: f32, beta: f32) -> Output {
    let op = input.graph().op("LRN").input(input).attr("depth_radius", depth_radius).attr("bias", bias);
    op.attr("alpha", alpha).attr("beta", beta).output()
}

fn lrn_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.with_rank(0, 4)?;
    c.set_output(0, input);
    Ok(())
}

fn lrn_grad_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.merged(0, 1)?.merge(&c.input(2))?.merge(&PartialShape::unknown_of_rank(4))?;
    c.set_output(0, shape);
    Ok(())
}

fn lrn_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None]) };
    let attrs = args.op.attrs();
    let op = grad.graph().op("LRNGrad").input(&grad).input(&args.input(0)).input(&args.output(0));
    let op = op.attr("depth_radius", attrs.int("depth_radius")?).attr("bias", attrs.float("bias")?);
    let op = op.attr("alpha", attrs.float("alpha")?).attr("beta", attrs.float("beta")?);
    Ok(vec![Some(op.try_build()?.output(0).into())])
}

/// The attributes of both ops.
#[derive(Clone, Copy)]
struct Parameters {
    radius: usize,
    bias: f32,
    alpha: f32,
    beta: f32,
}

impl Parameters {
    fn new(builder: &KernelBuilder<'_>) -> Result<Parameters> {
        let attrs = builder.attrs();
        let radius = attrs.int("depth_radius")?;
        let radius = usize::try_from(radius)
            .ok()
            .filter(|&radius| radius <= i32::MAX as usize)
            .ok_or_else(|| Status::invalid_argument(format!("depth_radius = {radius} larger than int max")))?;
        Ok(Parameters { radius, bias: attrs.float("bias")?, alpha: attrs.float("alpha")?, beta: attrs.float("beta")? })
    }

    fn window(&self, channel: usize, depth: usize) -> std::ops::Range<usize> {
        channel.saturating_sub(self.radius)..(channel + self.radius + 1).min(depth)
    }

    fn norm<T: Float<Wide = f32>>(&self, pixel: &[T], channel: usize) -> f32 {
        let squares: f32 = pixel[self.window(channel, pixel.len())].iter().map(|value| value.widen().powi(2)).sum();
        self.bias + self.alpha * squares
    }
}

/// Returns the number of channels of images, which a loop over pixels needs.
fn channels(tensor: &Tensor) -> Result<usize> {
    if tensor.shape().rank() != 4 {
        return Err(Status::invalid_argument("in must be 4-dimensional"));
    }
    Ok(tensor.shape().size(3))
}

struct Forward<T> {
    parameters: Parameters,
    element: PhantomData<fn(T)>,
}

impl<T: Element + Float<Wide = f32>> Forward<T> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(Forward::<T> { parameters: Parameters::new(builder)?, element: PhantomData })
    }
}

impl<T: Element + Float<Wide = f32>> Kernel for Forward<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let depth = channels(input)?;
        let values = input.as_slice::<T>()?;
        let parameters = self.parameters;
        let output = Tensor::build(input.shape().clone(), |out: &mut [T]| {
            if out.is_empty() {
                return;
            }
            parallel::for_each_chunk_mut(out, depth, depth as f64 * 20.0, |first, out| {
                let values = &values[first * depth..][..out.len()];
                for (pixel, out) in values.chunks_exact(depth).zip(out.chunks_exact_mut(depth)) {
                    for (channel, out) in out.iter_mut().enumerate() {
                        let scale = parameters.norm(pixel, channel).powf(-parameters.beta);
                        *out = T::narrow(pixel[channel].widen() * scale);
                    }
                }
            });
        })?;
        context.set_output(0, output);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

struct Backward<T> {
    parameters: Parameters,
    element: PhantomData<fn(T)>,
}

impl<T: Element + Float<Wide = f32>> Backward<T> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(Backward::<T> { parameters: Parameters::new(builder)?, element: PhantomData })
    }
}

impl<T: Element + Float<Wide = f32>> Kernel for Backward<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (gradient, input, output) = (context.input(0)?, context.input(1)?, context.input(2)?);
        let depth = channels(input)?;
        if gradient.shape() != input.shape() || output.shape() != input.shape() {
            return Err(Status::invalid_argument("input_grads, input_image, and out_image should have the same shape"));
        }
        let (gradients, inputs, outputs) = (gradient.as_slice::<T>()?, input.as_slice::<T>()?, output.as_slice::<T>()?);
        let parameters = self.parameters;
        let result = Tensor::build(input.shape().clone(), |out: &mut [T]| {
            if out.is_empty() {
                return;
            }
            parallel::for_each_chunk_mut(out, depth, depth as f64 * 40.0, |first, out| {
                let mut sums = vec![0f32; depth];
                for (offset, out) in out.chunks_exact_mut(depth).enumerate() {
                    let start = (first + offset) * depth;
                    let pixel = &inputs[start..start + depth];
                    sums.fill(0.0);
                    for channel in 0..depth {
                        let norm = parameters.norm(pixel, channel);
                        let (gradient, output) = (gradients[start + channel].widen(), outputs[start + channel].widen());
                        for other in parameters.window(channel, depth) {
                            let factor = -2.0 * parameters.alpha * parameters.beta;
                            let mut slope = factor * pixel[other].widen() * output / norm;
                            if other == channel {
                                slope += norm.powf(-parameters.beta);
                            }
                            sums[other] += slope * gradient;
                        }
                    }
                    out.iter_mut().zip(&sums).for_each(|(out, &sum)| *out = T::narrow(sum));
                }
            });
        })?;
        context.set_output(0, result);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, run_op};
    use tensor::Tensor;

    /// The numbers come from TensorFlow.
    #[test]
    fn values() {
        let attrs = || attrs![("depth_radius", 1i64), ("bias", 1f32), ("alpha", 2f32), ("beta", 0.5f32)];
        let x = Tensor::from_slice(&[1, 1, 1, 4], &[0f32, 1., 2., 3.]).unwrap();
        let close = |tensor: &Tensor, expected: [f32; 4]| {
            for (actual, expected) in tensor.as_slice::<f32>().unwrap().iter().zip(expected) {
                assert!((actual - expected).abs() < 1e-6, "{actual} instead of {expected}");
            }
        };
        let y = run_op("LRN", attrs(), &[x.clone()]).unwrap();
        close(&y[0], [0.0, 0.30151135, 0.37139067, 0.57735026]);
        let ones = Tensor::from_slice(&[1, 1, 1, 4], &[1f32; 4]).unwrap();
        let dx = run_op("LRNGrad", attrs(), &[ones, x, y[0].clone()]).unwrap();
        close(&dx[0], [0.57735026, 0.22107796, -0.06070483, -0.01268941]);
        assert!(run_op("LRN", attrs(), &[Tensor::vector(&[1f32])]).is_err());
    }
}
