//! Roots, exponentials, logarithms and related functions: Exp, Expm1, Log, Log1p, Sqrt, Rsqrt, Tanh, Sigmoid, and the gradient
//! ops SqrtGrad, RsqrtGrad, TanhGrad, SigmoidGrad.

use crate::compose::{Gradients, binary, conj, scalar, times, unary, unary_gradient};
use graph::Output;
use kernel::{Gradient, GradientArgs, Op, OpDef, OpFlags, shape};
use numeric::simd_math::SimdMath;
use tensor::{Complex32, Complex64, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Exp",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(exp_gradient),
        kernels: costly_unary_kernels!(1.0; [f32, f64, f16, bf16] => |x| x.simd_exp(), [Complex32, Complex64] => |x| x.exp()),
    },
    Op {
        def: OpDef {
            name: "Expm1",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(expm1_gradient),
        kernels: costly_unary_kernels!(1.0;
            [f32, f64, f16, bf16] => |x| x.simd_expm1(),
            [Complex32, Complex64] => |x| x.exp() - 1.0,
        ),
    },
    Op {
        def: OpDef {
            name: "Log",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(log_gradient),
        kernels: costly_unary_kernels!(1.0; [f32, f64, f16, bf16] => |x| x.simd_log(), [Complex32, Complex64] => |x| x.ln()),
    },
    Op {
        def: OpDef {
            name: "Log1p",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(log1p_gradient),
        kernels: costly_unary_kernels!(3.0;
            [f32, f64, f16, bf16] => |x| x.simd_log1p(),
            [Complex32, Complex64] => |x| (x + 1.0).ln(),
        ),
    },
    Op {
        def: OpDef {
            name: "Sqrt",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(sqrt_gradient),
        kernels: costly_unary_kernels!(0.8; [f32, f64, f16, bf16] => |x| x.simd_sqrt(), [Complex32, Complex64] => |x| x.sqrt()),
    },
    Op {
        def: OpDef {
            name: "Rsqrt",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(rsqrt_gradient),
        kernels: costly_unary_kernels!(1.0;
            [f32, f64, f16, bf16] => |x| x.simd_rsqrt(),
            [Complex32, Complex64] => |x| x.sqrt().finv(),
        ),
    },
    Op {
        def: OpDef {
            name: "Tanh",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(tanh_gradient),
        kernels: costly_unary_kernels!(1.2; [f32, f64, f16, bf16] => |x| x.simd_tanh(), [Complex32, Complex64] => |x| x.tanh()),
    },
    Op {
        def: OpDef {
            name: "Sigmoid",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(sigmoid_gradient),
        kernels: costly_unary_kernels!(1.2;
            [f32, f64, f16, bf16] => |x| x.simd_sigmoid(),
            [Complex32, Complex64] => |x| ((-x).exp() + 1.0).finv(),
        ),
    },
    Op {
        def: OpDef {
            name: "SqrtGrad",
            inputs: &["y: T", "dy: T"],
            outputs: &["z: T"],
            attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::merged,
        gradient: Gradient::Fn(sqrt_grad_gradient),
        kernels: binary_kernels!(
            [f32] => |y, dy| dy * 0.5 / y,
            [f64] => |y, dy| dy * 0.5 / y,
            [f16] => |y, dy| dy * f16::from_f32_const(0.5) / y,
            [bf16] => |y, dy| dy * bf16::from_f32_const(0.5) / y,
            [Complex32, Complex64] => |y, dy| dy * 0.5 / y.conj(),
        ),
    },
    Op {
        def: OpDef {
            name: "RsqrtGrad",
            inputs: &["y: T", "dy: T"],
            outputs: &["z: T"],
            attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::merged,
        gradient: Gradient::Fn(rsqrt_grad_gradient),
        kernels: binary_kernels!(
            [f32] => |y, dy| dy * -0.5 * y * (y * y),
            [f64] => |y, dy| dy * -0.5 * y * (y * y),
            [f16] => |y, dy| dy * f16::from_f32_const(-0.5) * y * (y * y),
            [bf16] => |y, dy| dy * bf16::from_f32_const(-0.5) * y * (y * y),
            [Complex32, Complex64] => |y, dy| dy * -0.5 * (y * y * y).conj(),
        ),
    },
    Op {
        def: OpDef {
            name: "TanhGrad",
            inputs: &["y: T", "dy: T"],
            outputs: &["z: T"],
            attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::merged,
        gradient: Gradient::Fn(tanh_grad_gradient),
        kernels: binary_kernels!(
            [f32] => |y, dy| dy * (1.0 - y * y),
            [f64] => |y, dy| dy * (1.0 - y * y),
            [f16] => |y, dy| dy * (f16::ONE - y * y),
            [bf16] => |y, dy| dy * (bf16::ONE - y * y),
            [Complex32, Complex64] => |y, dy| dy * (-(y * y) + 1.0),
        ),
    },
    Op {
        def: OpDef {
            name: "SigmoidGrad",
            inputs: &["y: T", "dy: T"],
            outputs: &["z: T"],
            attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::merged,
        gradient: Gradient::Fn(sigmoid_grad_gradient),
        kernels: binary_kernels!(
            [f32] => |y, dy| dy * ((1.0 - y) * y),
            [f64] => |y, dy| dy * ((1.0 - y) * y),
            [f16] => |y, dy| dy * ((f16::ONE - y) * y),
            [bf16] => |y, dy| dy * ((bf16::ONE - y) * y),
            [Complex32, Complex64] => |y, dy| dy * ((-y + 1.0) * y),
        ),
    },
];

unary_functions! {
    /// Returns `eˣ`.
    exp => "Exp";
    /// Returns `eˣ - 1`, accurate near zero.
    expm1 => "Expm1";
    /// Returns the natural logarithm.
    log => "Log";
    /// Returns `log(1 + x)`, accurate near zero.
    log1p => "Log1p";
    /// Returns the square root.
    sqrt => "Sqrt";
    /// Returns `1 / √x`.
    rsqrt => "Rsqrt";
    /// Returns the hyperbolic tangent.
    tanh => "Tanh";
    /// Returns `1 / (1 + e⁻ˣ)`.
    sigmoid => "Sigmoid";
}

fn exp_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, _, y| binary("Mul", grad, &conj(y)?))
}

fn expm1_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, x, _| binary("Mul", grad, &unary("Exp", &conj(x)?)?))
}

fn log_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, x, _| binary("Mul", grad, &unary("Reciprocal", &conj(x)?)?))
}

fn log1p_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, x, _| {
        let shifted = binary("AddV2", &scalar(x, 1.0)?, &conj(x)?)?;
        binary("Mul", grad, &unary("Reciprocal", &shifted)?)
    })
}

fn sqrt_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, _, y| binary("SqrtGrad", y, grad))
}

fn rsqrt_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, _, y| binary("RsqrtGrad", y, grad))
}

fn tanh_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, _, y| binary("TanhGrad", &conj(y)?, grad))
}

fn sigmoid_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, _, y| binary("SigmoidGrad", &conj(y)?, grad))
}

fn sqrt_grad_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let (a, y) = (args.input(0), args.output(0));
    let ratio = binary("RealDiv", &grad, &a)?;
    let grad_a = binary("Mul", &unary("Neg", &conj(&ratio)?)?, &y)?;
    Ok(vec![Some(grad_a.into()), Some(times(&ratio, 0.5)?.into())])
}

fn rsqrt_grad_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let (a, b) = (conj(&args.input(0))?, args.input(1));
    let cube_slope = binary("Mul", &times(&conj(&grad)?, -1.5)?, &b)?;
    let grad_a = binary("Mul", &cube_slope, &unary("Square", &a)?)?;
    let grad_b = binary("RsqrtGrad", &a, &grad)?;
    Ok(vec![Some(grad_a.into()), Some(grad_b.into())])
}

fn tanh_grad_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let (a, b) = (conj(&args.input(0))?, conj(&args.input(1))?);
    let grad_a = binary("Mul", &binary("Mul", &times(&grad, -2.0)?, &b)?, &a)?;
    let grad_b = binary("TanhGrad", &a, &grad)?;
    Ok(vec![Some(grad_a.into()), Some(grad_b.into())])
}

fn sigmoid_grad_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let (a, b) = (conj(&args.input(0))?, conj(&args.input(1))?);
    let both = binary("Mul", &grad, &b)?;
    let grad_a = binary("Sub", &both, &binary("Mul", &times(&both, 2.0)?, &a)?)?;
    let grad_b = binary("SigmoidGrad", &a, &grad)?;
    Ok(vec![Some(grad_a.into()), Some(grad_b.into())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_gradient, run_op};
    use tensor::Tensor;

    #[test]
    fn odd_values() {
        let run = |op: &str, x: &[f32]| {
            run_op(op, attrs![], &[Tensor::vector(x)]).unwrap()[0].as_slice::<f32>().unwrap().to_vec()
        };
        let y = run("Rsqrt", &[0.0, -1.0, f32::INFINITY, f32::NAN, 4.0]);
        assert_eq!((y[0], y[2], y[4]), (f32::INFINITY, 0.0, 0.5));
        assert!(y[1].is_nan() && y[3].is_nan());
        let y = run("Tanh", &[0.0, -100.0, f32::INFINITY, f32::NAN]);
        assert_eq!(y[..3], [0.0, -1.0, 1.0]);
        assert!(y[3].is_nan());
        let y = run("Log", &[0.0, -1.0, 1.0]);
        assert!(y[0] == f32::NEG_INFINITY && y[1].is_nan() && y[2] == 0.0);
        assert_eq!(run("Sigmoid", &[0.0, 1000.0, -1000.0]), [0.5, 1.0, 0.0]);
    }

    #[test]
    fn gradients() {
        let x = Tensor::vector(&[0.3f64, 1.5, 2.0]);
        for function in [exp, expm1, log, log1p, sqrt, rsqrt, tanh, sigmoid] {
            check_gradient(std::slice::from_ref(&x), |_, x| function(&x[0]));
        }
        let dy = Tensor::vector(&[0.7f64, -1.0, 0.2]);
        for op in ["SqrtGrad", "RsqrtGrad", "TanhGrad", "SigmoidGrad"] {
            check_gradient(&[x.clone(), dy.clone()], |graph, x| graph.op(op).inputs(x).output());
        }
    }
}
