//! Losses and other composed functions: L2Loss, and the compositions dropout, moments and sigmoid_cross_entropy_with_logits.

use super::softmax::Labels;
use crate::compose::{Gradients, binary, unary_gradient};
use crate::math;
use graph::Output;
use kernel::{
    BoxedKernel, Gradient, GradientArgs, Kernel, KernelBuilder, Op, OpContext, OpDef, OpFlags, kernels, shape,
};
use numeric::float::{Float, WideFloat};
use numeric::reduce::{self, Reducer, SumOfSquares};
use std::marker::PhantomData;
use tensor::{Element, Result, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "L2Loss",
        inputs: &["t: T"],
        outputs: &["output: T"],
        attrs: &["T: {half, bfloat16, float, double}"],
        flags: OpFlags::NONE,
    },
    shape: shape::scalar,
    gradient: Gradient::Fn(l2_loss_gradient),
    kernels: kernels!("T": [f32, f64, f16, bf16] => L2Loss),
}];

/// Returns half the sum of the squares.
#[track_caller]
pub fn l2_loss(t: &Output) -> Output {
    t.graph().op("L2Loss").input(t).output()
}

/// Returns `x` with random elements set to zero, with probability `rate`, and the others scaled up so that the expected sum is
/// unchanged.
#[track_caller]
pub fn dropout(x: &Output, rate: f64, seed: Option<i64>) -> Output {
    if !(0.0..1.0).contains(&rate) {
        let status = tensor::Status::invalid_argument(format!("`rate` must be in the range [0, 1), got {rate}"));
        return x.graph().op("Dropout").input(x).mistaken(status).output(0);
    }
    if rate == 0.0 {
        return x.clone();
    }
    let graph = x.graph();
    graph.name_scope("dropout", |graph| {
        let scaled = x * (1.0 / (1.0 - rate));
        let shape = graph.op("Shape").input(x).output();
        let (seed, seed2) = graph.random_seeds(seed);
        let random = graph.op("RandomUniform").input(&shape).attr("dtype", x.dtype()).attr("seed", seed);
        let random = random.attr("seed2", seed2).output();
        let kept = math::greater_equal(&random, &x.scalar_like(rate));
        math::where_v2(&kept, &scaled, &x.scalar_like(0.0))
    })
}

/// Returns the mean and the variance over axes.
#[track_caller]
pub fn moments(x: &Output, axes: &[i32], keep_dims: bool) -> (Output, Output) {
    let graph = x.graph();
    let mean = math::reduce_mean(x, Some(axes), true);
    let fixed_mean = graph.op("StopGradient").input(&mean).output();
    let variance = math::reduce_mean(&math::squared_difference(x, &fixed_mean), Some(axes), true);
    if keep_dims {
        return (mean, variance);
    }
    let axes: Vec<i64> = axes.iter().map(|&axis| i64::from(axis)).collect();
    let squeeze = |kept: &Output| graph.op("Squeeze").input(kept).attr("squeeze_dims", &axes[..]).output();
    (squeeze(&mean), squeeze(&variance))
}

/// Returns the cross entropy of logits with independent label probabilities, element by element.
#[track_caller]
pub fn sigmoid_cross_entropy_with_logits(labels: Labels<'_>, logits: &Output) -> Output {
    let graph = logits.graph();
    let zeros = graph.op("ZerosLike").input(logits).output();
    let positive = math::greater_equal(logits, &zeros);
    let relu = graph.op("Select").input(&positive).input(logits).input(&zeros).output();
    let negative_size = graph.op("Select").input(&positive).input(&-logits).input(logits).output();
    (relu - logits * labels.0) + math::log1p(&math::exp(&negative_size))
}

fn l2_loss_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, t, _| binary("Mul", t, grad))
}

struct L2Loss<T>(PhantomData<fn(T)>);

impl<T: Element + Float> L2Loss<T>
where
    SumOfSquares: Reducer<T>,
{
    fn create(_: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(L2Loss::<T>(PhantomData))
    }
}

impl<T: Element + Float> Kernel for L2Loss<T>
where
    SumOfSquares: Reducer<T>,
{
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let total = reduce::reduce_all::<SumOfSquares, T>(context.slice::<T>(0)?);
        let half = T::narrow(total.widen() * T::Wide::of(0.5));
        context.set_output(0, Tensor::scalar(half));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_gradient, run_op};

    #[test]
    fn half_the_sum_of_squares() {
        let y = run_op("L2Loss", attrs![], &[Tensor::vector(&[3f32, 4.0])]).unwrap();
        assert_eq!(y[0].to_scalar::<f32>().unwrap(), 12.5);
        let y = run_op("L2Loss", attrs![], &[Tensor::vector(&[f16::from_f32(3.0)])]).unwrap();
        assert_eq!(y[0].to_scalar::<f16>().unwrap().to_f32(), 4.5);
    }

    #[test]
    fn gradients() {
        let x = Tensor::from_slice(&[2, 2], &[0.3f64, -4.0, 2.0, 0.1]).unwrap();
        let z = Tensor::from_slice(&[2, 2], &[1f64, 0.0, 0.5, 0.1]).unwrap();
        check_gradient(&[x.clone()], |_, x| l2_loss(&x[0]));
        check_gradient(&[z, x.clone()], |_, x| sigmoid_cross_entropy_with_logits(Labels(&x[0]), &x[1]));
        check_gradient(&[x.clone()], |_, x| moments(&x[0], &[0], false).0);
    }
}
