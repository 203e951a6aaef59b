//! Rectifiers: Relu, Relu6, Elu, Selu, LeakyRelu, and their gradient ops.

use crate::compose::{Gradients, binary, scalar, select, unary, unary_gradient};
use crate::elementwise::{Binary, Unary};
use graph::Output;
use kernel::{Grad, Gradient, GradientArgs, KernelBuilder, KernelDef, Op, OpDef, OpFlags, shape};
use num_traits::Float;
use numeric::simd_math::SimdMath;
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
        kernels: unbroadcast_kernels!(
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
        kernels: &[
            leaky_relu_kernel::<f32>(),
            leaky_relu_kernel::<f64>(),
            leaky_relu_kernel::<f16>(),
            leaky_relu_kernel::<bf16>(),
        ],
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
    Op {
        def: OpDef {
            name: "Relu6",
            inputs: &["features: T"],
            outputs: &["activations: T"],
            attrs: &["T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(relu6_gradient),
        kernels: unary_kernels!(
            [f32] => |x| if x < 0.0 { 0.0 } else if x > 6.0 { 6.0 } else { x },
            [f64] => |x| if x < 0.0 { 0.0 } else if x > 6.0 { 6.0 } else { x },
            [f16] => |x| if x < f16::ZERO { f16::ZERO } else if x > SIX_HALF { SIX_HALF } else { x },
            [bf16] => |x| if x < bf16::ZERO { bf16::ZERO } else if x > SIX_BFLOAT16 { SIX_BFLOAT16 } else { x },
            [i8, i16, i32, i64] => |x| x.clamp(0, 6),
            [u8, u16, u32, u64] => |x| x.min(6),
        ),
    },
    Op {
        def: OpDef {
            name: "Relu6Grad",
            inputs: &["gradients: T", "features: T"],
            outputs: &["backprops: T"],
            attrs: &["T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}"],
            flags: OpFlags::NONE,
        },
        shape: shape::merged,
        gradient: Gradient::Fn(relu6_grad_gradient),
        kernels: unbroadcast_kernels!(
            [f32] => |gradient, feature| if feature > 0.0 && feature < 6.0 { gradient } else { 0.0 },
            [f64] => |gradient, feature| if feature > 0.0 && feature < 6.0 { gradient } else { 0.0 },
            [f16] => |gradient, feature| if feature > f16::ZERO && feature < SIX_HALF { gradient } else { f16::ZERO },
            [bf16] => |gradient, feature| {
                if feature > bf16::ZERO && feature < SIX_BFLOAT16 { gradient } else { bf16::ZERO }
            },
            [i8, i16, i32, i64, u8, u16, u32, u64] => |gradient, feature| {
                if feature > 0 && feature < 6 { gradient } else { 0 }
            },
        ),
    },
    Op {
        def: OpDef {
            name: "Elu",
            inputs: &["features: T"],
            outputs: &["activations: T"],
            attrs: &["T: {half, bfloat16, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(elu_gradient),
        kernels: costly_unary_kernels!(1.0;
            [f32] => |x| if x < 0.0 { x.simd_expm1() } else { x },
            [f64] => |x| if x < 0.0 { x.simd_expm1() } else { x },
            [f16] => |x| if x < f16::ZERO { x.simd_expm1() } else { x },
            [bf16] => |x| if x < bf16::ZERO { x.simd_expm1() } else { x },
        ),
    },
    Op {
        def: OpDef {
            name: "EluGrad",
            inputs: &["gradients: T", "outputs: T"],
            outputs: &["backprops: T"],
            attrs: &["T: {half, bfloat16, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::merged,
        gradient: Gradient::Fn(elu_grad_gradient),
        kernels: unbroadcast_kernels!(
            [f32] => |gradient, output| if output < 0.0 { (output + 1.0) * gradient } else { gradient },
            [f64] => |gradient, output| if output < 0.0 { (output + 1.0) * gradient } else { gradient },
            [f16] => |gradient, output| if output < f16::ZERO { (output + f16::ONE) * gradient } else { gradient },
            [bf16] => |gradient, output| if output < bf16::ZERO { (output + bf16::ONE) * gradient } else { gradient },
        ),
    },
    Op {
        def: OpDef {
            name: "Selu",
            inputs: &["features: T"],
            outputs: &["activations: T"],
            attrs: &["T: {half, bfloat16, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(selu_gradient),
        kernels: costly_unary_kernels!(1.0;
            [f32] => |x| if x < 0.0 { SCALE_ALPHA as f32 * x.simd_expm1() } else { SCALE as f32 * x },
            [f64] => |x| if x < 0.0 { SCALE_ALPHA * x.simd_expm1() } else { SCALE * x },
            [f16] => |x| {
                if x < f16::ZERO { f16::from_f64(SCALE_ALPHA) * x.simd_expm1() } else { f16::from_f64(SCALE) * x }
            },
            [bf16] => |x| {
                if x < bf16::ZERO { bf16::from_f64(SCALE_ALPHA) * x.simd_expm1() } else { bf16::from_f64(SCALE) * x }
            },
        ),
    },
    Op {
        def: OpDef {
            name: "SeluGrad",
            inputs: &["gradients: T", "outputs: T"],
            outputs: &["backprops: T"],
            attrs: &["T: {half, bfloat16, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::merged,
        gradient: Gradient::Fn(selu_grad_gradient),
        kernels: unbroadcast_kernels!(
            [f32] => |gradient, output| {
                if output < 0.0 { gradient * (output + SCALE_ALPHA as f32) } else { gradient * SCALE as f32 }
            },
            [f64] => |gradient, output| {
                if output < 0.0 { gradient * (output + SCALE_ALPHA) } else { gradient * SCALE }
            },
            [f16] => |gradient, output| {
                let slope = if output < f16::ZERO { output + f16::from_f64(SCALE_ALPHA) } else { f16::from_f64(SCALE) };
                gradient * slope
            },
            [bf16] => |gradient, output| {
                let slope = if output < bf16::ZERO { output + bf16::from_f64(SCALE_ALPHA) } else { bf16::from_f64(SCALE) };
                gradient * slope
            },
        ),
    },
];

const SIX_HALF: f16 = f16::from_f32_const(6.0);
const SIX_BFLOAT16: bf16 = bf16::from_f32_const(6.0);

/// The constants of Selu: a factor for positive values, and one for the exponential of negative ones.
const SCALE: f64 = 1.0507009873554805;
const SCALE_ALPHA: f64 = 1.7580993408473766;

/// Returns `max(features, 0)`, element by element.
#[track_caller]
pub fn relu(features: &Output) -> Output {
    features.graph().op("Relu").input(features).output()
}

/// Returns `features` if positive, otherwise `alpha * features`.
#[track_caller]
pub fn leaky_relu_with(features: &Output, alpha: f32) -> Output {
    features.graph().op("LeakyRelu").input(features).attr("alpha", alpha).output()
}

unary_functions! {
    /// Returns `min(max(x, 0), 6)`.
    relu6 => "Relu6";
    /// Returns `x` if positive, otherwise `eˣ - 1`.
    elu => "Elu";
    /// Returns the scaled exponential linear unit.
    selu => "Selu";
}

/// Returns `features` if positive, otherwise 0.2 times them.
#[track_caller]
pub fn leaky_relu(features: &Output) -> Output {
    features.graph().op("LeakyRelu").input(features).output()
}

/// The second derivative of such a unit is zero everywhere, as in TensorFlow.
fn zeros(features: &Output) -> Result<Option<Grad>> {
    Ok(Some(unary("ZerosLike", features)?.into()))
}

fn relu6_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, _, y| binary("Relu6Grad", grad, y))
}

fn relu6_grad_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    Ok(vec![Some(binary("Relu6Grad", &grad, &args.input(1))?.into()), zeros(&args.input(1))?])
}

fn elu_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, _, y| binary("EluGrad", grad, y))
}

fn elu_grad_gradient(args: &GradientArgs<'_>) -> Gradients {
    exponential_grad_gradient(args, "EluGrad")
}

fn selu_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, _, y| binary("SeluGrad", grad, y))
}

fn selu_grad_gradient(args: &GradientArgs<'_>) -> Gradients {
    exponential_grad_gradient(args, "SeluGrad")
}

/// The slope of an exponential unit depends on its output where that is negative.
fn exponential_grad_gradient(args: &GradientArgs<'_>, op: &str) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let (gradients, outputs) = (args.input(0), args.input(1));
    let zero = scalar(&outputs, 0.0)?;
    let grad_outputs = select(&binary("Less", &outputs, &zero)?, &binary("Mul", &grad, &gradients)?, &zero)?;
    Ok(vec![Some(binary(op, &grad, &outputs)?.into()), Some(grad_outputs.into())])
}

fn relu_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None]) };
    let back = grad.graph().op("ReluGrad").input(&grad).input(&args.output(0)).try_build()?;
    Ok(vec![Some(back.output(0).into())])
}

fn relu_grad_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let back = grad.graph().op("ReluGrad").input(&grad).input(&args.input(1)).try_build()?;
    Ok(vec![Some(back.output(0).into()), zeros(&args.input(1))?])
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
    Ok(vec![Some(back.output(0).into()), zeros(&args.input(1))?])
}

fn alpha<T: Float>(builder: &KernelBuilder<'_>) -> Result<T> {
    Ok(T::from(builder.attrs().float("alpha")?).unwrap_or_else(T::nan))
}

const fn leaky_relu_kernel<T: Element + Float>() -> KernelDef {
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
            let function = move |gradient: T, feature: T| if feature > T::zero() { gradient } else { alpha * gradient };
            Binary::unbroadcast(builder, function)
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_gradient, check_shape, run_op};
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
    fn bounded_and_exponential_units() {
        let x = Tensor::vector(&[-1f32, 3.0, 7.0, f32::NAN]);
        let run = |op: &str| run_op(op, attrs![], &[x.clone()]).unwrap()[0].as_slice::<f32>().unwrap().to_vec();
        assert_eq!(run("Relu6")[..3], [0.0, 3.0, 6.0]);
        assert!(run("Relu6")[3].is_nan());
        assert!((run("Elu")[0] + 0.63212055).abs() < 1e-6);
        assert!((run("Selu")[0] + 1.1113307).abs() < 1e-6 && (run("Selu")[1] - 3.152103).abs() < 1e-6);
        let y = run_op("Relu6", attrs![], &[Tensor::vector(&[9u8, 2])]).unwrap();
        assert_eq!(y[0].as_slice::<u8>().unwrap(), &[6, 2]);
    }

    #[test]
    fn gradients() {
        let x = Tensor::vector(&[-1.5f64, 0.3, 7.0]);
        for function in [relu, relu6, elu, selu, leaky_relu] {
            check_gradient(std::slice::from_ref(&x), |_, x| function(&x[0]));
        }
        let dy = Tensor::vector(&[1f64, -0.3, 2.0]);
        for op in ["EluGrad", "SeluGrad"] {
            check_gradient(&[dy.clone(), x.clone()], |graph, x| graph.op(op).inputs(x).output());
        }
    }

    #[test]
    fn shapes() {
        check_shape("Relu", attrs![], "[2,?]", "[2,?]");
        check_shape("ReluGrad", attrs![], "[2,?];[?,3]", "[2,3]");
    }
}
