//! Magnitude, sign and rounding: Abs, Sign, Floor, Ceil, Round, Rint; and IsFinite, IsInf, IsNan.

use crate::compose::{Gradients, binary, unary, unary_gradient};
use graph::Output;
use kernel::{Gradient, GradientArgs, Op, OpDef, OpFlags, shape};
use num_traits::Float;
use tensor::{Complex32, Complex64, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Abs",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double, int8, int16, int32, int64}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(abs_gradient),
        kernels: unary_kernels!(
            [f32, f64, f16, bf16] => |x| x.abs(),
            [i8, i16, i32, i64] => |x| x.wrapping_abs(),
        ),
    },
    Op {
        def: OpDef {
            name: "Sign",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(sign_gradient),
        kernels: unary_kernels!(
            [f32] => |x| if x > 0.0 { 1.0 } else if x < 0.0 { -1.0 } else { x },
            [f64] => |x| if x > 0.0 { 1.0 } else if x < 0.0 { -1.0 } else { x },
            [f16] => |x| if x > f16::ZERO { f16::ONE } else if x < f16::ZERO { f16::NEG_ONE } else { x },
            [bf16] => |x| if x > bf16::ZERO { bf16::ONE } else if x < bf16::ZERO { bf16::NEG_ONE } else { x },
            [i8, i16, i32, i64] => |x| x.signum(),
            [Complex32, Complex64] => |x| { let size = x.norm(); if size == 0.0 { Default::default() } else { x / size } },
        ),
    },
    Op {
        def: OpDef {
            name: "Floor",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(no_gradient),
        kernels: unary_kernels!([f32, f64, f16, bf16] => |x| x.floor()),
    },
    Op {
        def: OpDef {
            name: "Ceil",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(no_gradient),
        kernels: unary_kernels!([f32, f64, f16, bf16] => |x| x.ceil()),
    },
    Op {
        def: OpDef {
            name: "Round",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(no_gradient),
        kernels: unary_kernels!(
            [f32, f64] => |x| x.round_ties_even(),
            [f16] => |x| f16::from_f32(x.to_f32().round_ties_even()),
            [bf16] => |x| bf16::from_f32(x.to_f32().round_ties_even()),
            [i8, i16, i32, i64] => |x| x,
        ),
    },
    Op {
        def: OpDef {
            name: "Rint",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(no_gradient),
        kernels: unary_kernels!(
            [f32, f64] => |x| x.round_ties_even(),
            [f16] => |x| f16::from_f32(x.to_f32().round_ties_even()),
            [bf16] => |x| bf16::from_f32(x.to_f32().round_ties_even()),
        ),
    },
    Op {
        def: OpDef {
            name: "IsFinite",
            inputs: &["x: T"],
            outputs: &["y: bool"],
            attrs: &["T: {bfloat16, half, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::NotDifferentiable,
        kernels: test_kernels!([f32, f64, f16, bf16] => |x| x.is_finite()),
    },
    Op {
        def: OpDef {
            name: "IsInf",
            inputs: &["x: T"],
            outputs: &["y: bool"],
            attrs: &["T: {bfloat16, half, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::NotDifferentiable,
        kernels: test_kernels!([f32, f64, f16, bf16] => |x| x.is_infinite()),
    },
    Op {
        def: OpDef {
            name: "IsNan",
            inputs: &["x: T"],
            outputs: &["y: bool"],
            attrs: &["T: {bfloat16, half, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::NotDifferentiable,
        kernels: test_kernels!([f32, f64, f16, bf16] => |x| x.is_nan()),
    },
];

unary_functions! {
    /// Returns the absolute value.
    abs => "Abs";
    /// Returns -1, 0 or 1, as `x` is negative, zero or positive.
    sign => "Sign";
    /// Returns `x` rounded down.
    floor => "Floor";
    /// Returns `x` rounded up.
    ceil => "Ceil";
    /// Returns `x` rounded to the nearest integer, halves to the even one.
    round => "Round";
    /// Returns whether `x` is neither infinite nor NaN.
    is_finite => "IsFinite";
    /// Returns whether `x` is infinite.
    is_inf => "IsInf";
    /// Returns whether `x` is NaN.
    is_nan => "IsNan";
}

fn no_gradient(_: &GradientArgs<'_>) -> Gradients {
    Ok(vec![None])
}

fn abs_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, x, _| binary("Mul", grad, &unary("Sign", x)?))
}

/// A sign is constant except at its jump; that of a complex number also changes with the argument.
fn sign_gradient(args: &GradientArgs<'_>) -> Gradients {
    // Of complex numbers, too, although they do change with their direction: TensorFlow says so.
    unary_gradient(args, |_, x, _| unary("ZerosLike", x))
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, run_op};
    use tensor::Tensor;

    #[test]
    fn odd_values() {
        let run = |op: &str, x: &[f32]| {
            run_op(op, attrs![], &[Tensor::vector(x)]).unwrap()[0].as_slice::<f32>().unwrap().to_vec()
        };
        assert_eq!(run("Round", &[0.5, 1.5, -0.5, -2.5]), [0.0, 2.0, -0.0, -2.0]);
        assert_eq!(run("Sign", &[f32::INFINITY, -0.0, -3.0]), [1.0, 0.0, -1.0]);
        assert!(run("Sign", &[f32::NAN])[0].is_nan());
        assert_eq!(run("Floor", &[-1.5, 1.5]), [-2.0, 1.0]);
        let x = Tensor::vector(&[i32::MIN, -3]);
        let y = run_op("Abs", attrs![], &[x]).unwrap();
        assert_eq!(y[0].as_slice::<i32>().unwrap(), &[i32::MIN, 3]);
        let x = Tensor::vector(&[1f64, f64::NAN, f64::INFINITY]);
        for (op, expected) in
            [("IsFinite", [true, false, false]), ("IsNan", [false, true, false]), ("IsInf", [false, false, true])]
        {
            let y = run_op(op, attrs![], &[x.clone()]).unwrap();
            assert_eq!(y[0].as_slice::<bool>().unwrap(), &expected, "{op}");
        }
    }
}
