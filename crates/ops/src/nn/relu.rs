//! Rectifiers: Relu, Relu6, Elu, Selu, LeakyRelu, and their gradient ops.

use crate::elementwise::{Binary, Unary};
use graph::Output;
use kernel::{Grad, Gradient, GradientArgs, KernelBuilder, KernelDef, Op, OpDef, OpFlags, shape};
use num_traits::Float;
use tensor::{Element, Result, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Relu",
            inputs: &["features: T"],
            outputs: &["activations: T"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, qint8}",
            ],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(relu_gradient),
        kernels: unary_kernels!(
            [f32, f64, f16, bf16, i8, i16, i32, i64] => |x| if x > Default::default() || x != x { x } else { Default::default() },
            [u8, u16, u32, u64] => |x| x,
        ),
    },
    Op {
        def: OpDef {
            name: "ReluGrad",
            inputs: &["gradients: T", "features: T"],
            outputs: &["backprops: T"],
            attrs: &["T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}"],
            flags: OpFlags::NONE,
        },
        shape: shape::merged,
        gradient: Gradient::Fn(relu_grad_gradient),
        kernels: binary_kernels!(
            [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64] =>
                |gradient, feature| if feature > Default::default() { gradient } else { Default::default() },
        ),
    },
    Op {
        def: OpDef {
            name: "LeakyRelu",
            inputs: &["features: T"],
            outputs: &["activations: T"],
            attrs: &["alpha: float = 0.2", "T: {half, bfloat16, float, double} = DT_FLOAT"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(leaky_relu_gradient),
        kernels: &[leaky_relu::<f32>(), leaky_relu::<f64>(), leaky_relu::<f16>(), leaky_relu::<bf16>()],
    },
    Op {
        def: OpDef {
            name: "LeakyReluGrad",
            inputs: &["gradients: T", "features: T"],
            outputs: &["backprops: T"],
            attrs: &["alpha: float = 0.2", "T: {half, bfloat16, float, double} = DT_FLOAT"],
            flags: OpFlags::NONE,
        },
        shape: shape::merged,
        gradient: Gradient::Fn(leaky_relu_grad_gradient),
        kernels: &[
            leaky_relu_grad::<f32>(),
            leaky_relu_grad::<f64>(),
            leaky_relu_grad::<f16>(),
            leaky_relu_grad::<bf16>(),
        ],
    },
];

/// Returns `max(features, 0)`, element by element.
#[track_caller]
pub fn relu(features: &Output) -> Output {
    features.graph().op("Relu").input(features).output()
}

/// Returns `features` where positive, and `alpha * features` elsewhere.
#[track_caller]
pub fn leaky_relu_with(features: &Output, alpha: f32) -> Output {
    features.graph().op("LeakyRelu").input(features).attr("alpha", alpha).output()
}

fn relu_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None]) };
    let back = grad.graph().op("ReluGrad").input(&grad).input(&args.output(0)).try_build()?;
    Ok(vec![Some(back.output(0).into())])
}

fn relu_grad_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let back = grad.graph().op("ReluGrad").input(&grad).input(&args.input(1)).try_build()?;
    Ok(vec![Some(back.output(0).into()), None])
}

fn leaky_relu_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None]) };
    let alpha = args.op.attrs().float("alpha")?;
    let back = grad.graph().op("LeakyReluGrad").input(&grad).input(&args.input(0)).attr("alpha", alpha).try_build()?;
    Ok(vec![Some(back.output(0).into())])
}

fn leaky_relu_grad_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let alpha = args.op.attrs().float("alpha")?;
    let back = grad.graph().op("LeakyReluGrad").input(&grad).input(&args.input(1)).attr("alpha", alpha).try_build()?;
    Ok(vec![Some(back.output(0).into()), None])
}

fn alpha<T: Float>(builder: &KernelBuilder<'_>) -> Result<T> {
    Ok(T::from(builder.attrs().float("alpha")?).unwrap_or_else(T::nan))
}

const fn leaky_relu<T: Element + Float>() -> KernelDef {
    KernelDef {
        types: const { &[("T", T::DTYPE)] },
        create: |builder| {
            let alpha = alpha::<T>(builder)?;
            Unary::boxed(move |x: T| if x > T::zero() { x } else { alpha * x })
        },
    }
}

const fn leaky_relu_grad<T: Element + Float>() -> KernelDef {
    KernelDef {
        types: const { &[("T", T::DTYPE)] },
        create: |builder| {
            let alpha = alpha::<T>(builder)?;
            Binary::boxed(move |gradient: T, feature: T| if feature > T::zero() { gradient } else { alpha * gradient })
        },
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, run_op};
    use tensor::Tensor;

    #[test]
    fn values() {
        let x = Tensor::vector(&[-1f32, 0.0, 2.0, f32::NAN]);
        let y = run_op("Relu", attrs![], &[x]).unwrap();
        let y = y[0].as_slice::<f32>().unwrap();
        assert_eq!(y[..3], [0.0, 0.0, 2.0]);
        assert!(y[3].is_nan());
        let x = Tensor::vector(&[-1f64, 2.0]);
        let y = run_op("LeakyRelu", attrs![("alpha", 0.5f32)], &[x]).unwrap();
        assert_eq!(y[0].as_slice::<f64>().unwrap(), &[-0.5, 2.0]);
    }

    #[test]
    fn shapes() {
        check_shape("Relu", attrs![], "[2,?]", "[2,?]");
        check_shape("ReluGrad", attrs![], "[2,?];[?,3]", "[2,3]");
    }
}
