//! Powers and products with logarithms: Pow, Xlogy, Xlog1py.

use crate::compose::{Gradients, binary, binary_gradient, cast, conj, scalar, select, unary};
use crate::elementwise::Checked;
use graph::Output;
use kernel::{Gradient, GradientArgs, KernelDef, Op, OpContext, OpDef, OpFlags, shape};
use num_traits::{PrimInt, WrappingMul, Zero};
use numeric::simd_math::SimdMath;
use tensor::{Complex32, Complex64, Element, Result, Status, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Pow",
            inputs: &["x: T", "y: T"],
            outputs: &["z: T"],
            attrs: &["T: {bfloat16, float, half, double, int8, int16, int32, int64, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::Fn(pow_gradient),
        kernels: binary_kernels!(
            [f32, f64, f16, bf16] => |x, y| x.simd_pow(y),
            [Complex32, Complex64] => |x, y| if y.is_zero() { (1.0).into() } else if x.is_zero() { x } else { x.powc(y) };
            integer_pow::<i8>(), integer_pow::<i16>(), integer_pow::<i32>(), integer_pow::<i64>(),
        ),
    },
    Op {
        def: OpDef {
            name: "Xlogy",
            inputs: &["x: T", "y: T"],
            outputs: &["z: T"],
            attrs: &["T: {half, bfloat16, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::Fn(xlogy_gradient),
        kernels: binary_kernels!(
            [f32, f64, f16, bf16] => |x, y| if x.is_zero() { Default::default() } else { x * y.simd_log() },
            [Complex32, Complex64] => |x, y| if x.is_zero() { Default::default() } else { x * y.ln() },
        ),
    },
    Op {
        def: OpDef {
            name: "Xlog1py",
            inputs: &["x: T", "y: T"],
            outputs: &["z: T"],
            attrs: &["T: {half, bfloat16, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::Fn(xlog1py_gradient),
        kernels: binary_kernels!(
            [f32, f64, f16, bf16] => |x, y| if x.is_zero() { Default::default() } else { x * y.simd_log1p() },
            [Complex32, Complex64] => |x, y| if x.is_zero() { Default::default() } else { x * (y + 1.0).ln() },
        ),
    },
];

/// Returns `xʸ`.
#[track_caller]
pub fn pow(x: &Output, y: &Output) -> Output {
    x.graph().op("Pow").input(x).input(y).output()
}

fn pow_gradient(args: &GradientArgs<'_>) -> Gradients {
    let z = args.output(0);
    binary_gradient(args, |grad, x, y| {
        let (x, y, z) = (conj(x)?, conj(y)?, conj(&z)?);
        let lower = binary("Pow", &x, &binary("Sub", &y, &scalar(&y, 1.0)?)?)?;
        let grad_x = binary("Mul", &binary("Mul", grad, &y)?, &lower)?;
        // The logarithm is defined only for positive numbers; elsewhere the gradient is zero.
        let zero = scalar(&x, 0.0)?;
        let defined = binary(if x.dtype().is_complex() { "NotEqual" } else { "Greater" }, &x, &zero)?;
        let safe = select(&defined, &x, &unary("OnesLike", &x)?)?;
        let log = select(&defined, &unary("Log", &safe)?, &unary("ZerosLike", &x)?)?;
        let grad_y = binary("Mul", &binary("Mul", grad, &z)?, &log)?;
        Ok((Some(grad_x), Some(grad_y)))
    })
}

fn not_zero(x: &Output) -> Result<Output> {
    cast(&binary("NotEqual", x, &scalar(x, 0.0)?)?, x.dtype())
}

fn xlogy_gradient(args: &GradientArgs<'_>) -> Gradients {
    binary_gradient(args, |grad, x, y| {
        let (slope_x, slope_y) = (binary("Xlogy", &not_zero(x)?, y)?, binary("Xdivy", x, y)?);
        Ok((Some(binary("Mul", &slope_x, grad)?), Some(binary("Mul", &slope_y, grad)?)))
    })
}

fn xlog1py_gradient(args: &GradientArgs<'_>) -> Gradients {
    binary_gradient(args, |grad, x, y| {
        let shifted = binary("AddV2", y, &scalar(y, 1.0)?)?;
        let (slope_x, slope_y) = (binary("Xlog1py", &not_zero(x)?, y)?, binary("Xdivy", x, &shifted)?);
        Ok((Some(binary("Mul", &slope_x, grad)?), Some(binary("Mul", &slope_y, grad)?)))
    })
}

fn check_exponent<T: Element + PrimInt>(context: &OpContext<'_>) -> Result<()> {
    if context.input(0)?.num_elements() > 0 && context.slice::<T>(1)?.iter().any(|&exponent| exponent < T::zero()) {
        return Err(Status::invalid_argument("Integers to negative integer powers are not allowed"));
    }
    Ok(())
}

const fn integer_pow<T: Element + PrimInt + WrappingMul>() -> KernelDef {
    KernelDef {
        types: const { &[("T", T::DTYPE)] },
        create: |_| {
            Checked::boxed(check_exponent::<T>, |x: T, y: T| {
                // By squaring; products wrap. Negative exponents were refused.
                let (mut base, mut rest, mut result) = (x, y, T::one());
                while rest > T::zero() {
                    if (rest & T::one()) == T::one() {
                        result = result.wrapping_mul(&base);
                    }
                    base = base.wrapping_mul(&base);
                    rest = rest >> 1;
                }
                result
            })
        },
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_gradient, run_op};
    use tensor::Tensor;

    #[test]
    fn integers() {
        let x = Tensor::vector(&[i32::MIN, 5, -5, 7]);
        let z = run_op("Pow", attrs![], &[x.clone(), Tensor::vector(&[3, 2, 0, 31])]).unwrap();
        assert_eq!(z[0].as_slice::<i32>().unwrap(), &[0, 25, 1, 265001655]);
        let status = run_op("Pow", attrs![], &[x, Tensor::scalar(-1)]).unwrap_err();
        assert!(status.message().starts_with("Integers to negative integer powers are not allowed"), "{status}");
    }

    #[test]
    fn floats() {
        let x = Tensor::vector(&[f32::NAN, f32::INFINITY, -5.0, 0.0, 5.0]);
        let y = Tensor::vector(&[1f32, 2.0, 3.0, 0.0, -3.0]);
        let z = run_op("Pow", attrs![], &[x.clone(), y.clone()]).unwrap();
        let z = z[0].as_slice::<f32>().unwrap();
        assert!(z[0].is_nan());
        assert_eq!(z[1..4], [f32::INFINITY, -125.0, 1.0]);
        assert!((z[4] - 0.008).abs() < 1e-9);
        let z = run_op("Xlogy", attrs![], &[Tensor::vector(&[0f32, 1.0]), Tensor::scalar(0f32)]).unwrap();
        assert_eq!(z[0].as_slice::<f32>().unwrap(), &[0.0, f32::NEG_INFINITY]);
    }

    #[test]
    fn gradients() {
        let x = Tensor::from_slice(&[2, 2], &[1f64, 2.0, 3.0, 0.5]).unwrap();
        let y = Tensor::vector(&[2.5f64, 0.5]);
        for op in ["Pow", "Xlogy", "Xlog1py", "Xdivy"] {
            check_gradient(&[x.clone(), y.clone()], |graph, x| graph.op(op).inputs(x).output());
        }
    }
}
