//! Smooth activations: Softplus, Softsign, and their gradient ops.

use crate::compose::{Gradients, binary, scalar, unary, unary_gradient};
use graph::Output;
use kernel::{Gradient, GradientArgs, Op, OpDef, OpFlags, shape};
use num_traits::Float;
use numeric::simd_math::SimdMath;
use tensor::{bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Softplus",
            inputs: &["features: T"],
            outputs: &["activations: T"],
            attrs: &["T: {half, bfloat16, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(softplus_gradient),
        kernels: costly_unary_kernels!(4.0; [f32, f64, f16, bf16] => |x| x.simd_softplus()),
    },
    Op {
        def: OpDef {
            name: "SoftplusGrad",
            inputs: &["gradients: T", "features: T"],
            outputs: &["backprops: T"],
            attrs: &["T: {half, bfloat16, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::merged,
        gradient: Gradient::Fn(softplus_grad_gradient),
        kernels: unbroadcast_kernels!([f32, f64, f16, bf16] => |gradient, x| gradient * x.simd_sigmoid()),
    },
    Op {
        def: OpDef {
            name: "Softsign",
            inputs: &["features: T"],
            outputs: &["activations: T"],
            attrs: &["T: {half, bfloat16, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(softsign_gradient),
        kernels: unary_kernels!(
            [f32] => |x| x / (x.abs() + 1.0),
            [f64] => |x| x / (x.abs() + 1.0),
            [f16] => |x| x / (x.abs() + f16::ONE),
            [bf16] => |x| x / (x.abs() + bf16::ONE),
        ),
    },
    Op {
        def: OpDef {
            name: "SoftsignGrad",
            inputs: &["gradients: T", "features: T"],
            outputs: &["backprops: T"],
            attrs: &["T: {half, bfloat16, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::merged,
        gradient: Gradient::Unsupported,
        kernels: unbroadcast_kernels!(
            [f32] => |gradient, x| gradient / ((1.0 + x.abs()) * (1.0 + x.abs())),
            [f64] => |gradient, x| gradient / ((1.0 + x.abs()) * (1.0 + x.abs())),
            [f16] => |gradient, x| gradient / ((f16::ONE + x.abs()) * (f16::ONE + x.abs())),
            [bf16] => |gradient, x| gradient / ((bf16::ONE + x.abs()) * (bf16::ONE + x.abs())),
        ),
    },
];

unary_functions! {
    /// Returns `log(1 + eˣ)`.
    softplus => "Softplus";
    /// Returns `x / (1 + |x|)`.
    softsign => "Softsign";
}

fn softplus_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, x, _| binary("SoftplusGrad", grad, x))
}

fn softplus_grad_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let (dy, x) = (args.input(0), args.input(1));
    let grad_dy = binary("SoftplusGrad", &grad, &x)?;
    let tails = binary("AddV2", &unary("Exp", &unary("Neg", &x)?)?, &unary("Exp", &x)?)?;
    let width = binary("AddV2", &tails, &scalar(&x, 2.0)?)?;
    let grad_x = binary("RealDiv", &binary("Mul", &grad, &dy)?, &width)?;
    Ok(vec![Some(grad_dy.into()), Some(grad_x.into())])
}

fn softsign_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, x, _| binary("SoftsignGrad", grad, x))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_gradient, run_op};
    use tensor::Tensor;

    #[test]
    fn values() {
        let x = Tensor::vector(&[-100f32, 0.0, 100.0]);
        let y = run_op("Softplus", attrs![], &[x.clone()]).unwrap();
        let y = y[0].as_slice::<f32>().unwrap();
        assert!(y[0] < 1e-40 && (y[1] - std::f32::consts::LN_2).abs() < 1e-6 && y[2] == 100.0, "{y:?}");
        let y = run_op("Softsign", attrs![], &[Tensor::vector(&[-3f64, 1.0])]).unwrap();
        assert_eq!(y[0].as_slice::<f64>().unwrap(), &[-0.75, 0.5]);
    }

    #[test]
    fn gradients() {
        let x = Tensor::vector(&[-1.5f64, 0.3, 2.0]);
        check_gradient(&[x.clone()], |_, x| softplus(&x[0]));
        check_gradient(&[x.clone()], |_, x| softsign(&x[0]));
        let dy = Tensor::vector(&[1f64, -0.3, 2.0]);
        check_gradient(&[dy, x], |graph, x| graph.op("SoftplusGrad").inputs(x).output());
    }
}
