//! Quotients and remainders: Div, RealDiv, DivNoNan, FloorDiv, FloorMod, Mod, TruncateDiv, TruncateMod, Xdivy, and
//! reciprocals.

use crate::compose::{Gradients, binary, binary_gradient, cast, conj, scalar, times, unary, unary_gradient};
use crate::elementwise::Checked;
use graph::Output;
use kernel::{Grad, Gradient, GradientArgs, KernelDef, Op, OpContext, OpDef, OpFlags, shape};
use num_traits::{Float, PrimInt, WrappingAdd, WrappingMul, WrappingSub, Zero};
use tensor::{Complex32, Complex64, Element, Result, Status, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Div",
            inputs: &["x: T", "y: T"],
            outputs: &["z: T"],
            attrs: &[
                "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, complex64, complex128}",
            ],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::Fn(real_div_gradient),
        kernels: DIV_KERNELS,
    },
    Op {
        def: OpDef {
            name: "RealDiv",
            inputs: &["x: T", "y: T"],
            outputs: &["z: T"],
            attrs: &[
                "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, complex64, complex128}",
            ],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::Fn(real_div_gradient),
        kernels: DIV_KERNELS,
    },
    Op {
        def: OpDef {
            name: "TruncateDiv",
            inputs: &["x: T", "y: T"],
            outputs: &["z: T"],
            attrs: &[
                "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, complex64, complex128}",
            ],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::Fn(no_gradients),
        kernels: binary_kernels!(
            [f32, f64, f16, bf16] => |x, y| (x / y).trunc();
            integer_div::<i8>(), integer_div::<i16>(), integer_div::<i32>(), integer_div::<i64>(),
            integer_div::<u8>(), integer_div::<u16>(), integer_div::<u32>(), integer_div::<u64>(),
        ),
    },
    Op {
        def: OpDef {
            name: "DivNoNan",
            inputs: &["x: T", "y: T"],
            outputs: &["z: T"],
            attrs: &["T: {half, float, bfloat16, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::Fn(div_no_nan_gradient),
        kernels: binary_kernels!(
            [f32, f64, f16, bf16] => |x, y| if y.is_zero() { Default::default() } else { x / y },
            [Complex32, Complex64] => |x, y| if y.is_zero() || (x * y.conj()).is_zero() { Default::default() } else { x / y },
        ),
    },
    Op {
        def: OpDef {
            name: "FloorDiv",
            inputs: &["x: T", "y: T"],
            outputs: &["z: T"],
            attrs: &[
                "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, complex64, complex128}",
            ],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::Fn(no_gradients),
        kernels: binary_kernels!(
            [f32, f64, f16, bf16] => |x, y| (x / y).floor();
            integer_floor_div::<i8>(), integer_floor_div::<i16>(), integer_floor_div::<i32>(), integer_floor_div::<i64>(),
            integer_floor_div::<u8>(), integer_floor_div::<u16>(), integer_floor_div::<u32>(), integer_floor_div::<u64>(),
        ),
    },
    Op {
        def: OpDef {
            name: "FloorMod",
            inputs: &["x: T", "y: T"],
            outputs: &["z: T"],
            attrs: &["T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64, bfloat16, half, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::Fn(floor_mod_gradient),
        kernels: binary_kernels!(
            [f32, f64, f16, bf16] => float_floor_mod;
            integer_floor_mod::<i8>(), integer_floor_mod::<i16>(), integer_floor_mod::<i32>(), integer_floor_mod::<i64>(),
            integer_floor_mod::<u8>(), integer_floor_mod::<u16>(), integer_floor_mod::<u32>(), integer_floor_mod::<u64>(),
        ),
    },
    Op {
        def: OpDef {
            name: "Mod",
            inputs: &["x: T", "y: T"],
            outputs: &["z: T"],
            attrs: &["T: {int32, int64, half, half, bfloat16, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::Unsupported,
        kernels: MOD_KERNELS,
    },
    Op {
        def: OpDef {
            name: "TruncateMod",
            inputs: &["x: T", "y: T"],
            outputs: &["z: T"],
            attrs: &["T: {int32, int64, bfloat16, half, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::Unsupported,
        kernels: MOD_KERNELS,
    },
    Op {
        def: OpDef {
            name: "Xdivy",
            inputs: &["x: T", "y: T"],
            outputs: &["z: T"],
            attrs: &["T: {half, bfloat16, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::Fn(xdivy_gradient),
        kernels: binary_kernels!(
            [f32, f64, f16, bf16, Complex32, Complex64] => |x, y| if x.is_zero() { Default::default() } else { x / y },
        ),
    },
    Op {
        def: OpDef {
            name: "Reciprocal",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(reciprocal_gradient),
        kernels: RECIPROCAL_KERNELS,
    },
    Op {
        def: OpDef {
            name: "Inv",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(reciprocal_gradient),
        kernels: RECIPROCAL_KERNELS,
    },
    Op {
        def: OpDef {
            name: "ReciprocalGrad",
            inputs: &["y: T", "dy: T"],
            outputs: &["z: T"],
            attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::merged,
        gradient: Gradient::Fn(reciprocal_grad_gradient),
        kernels: RECIPROCAL_GRAD_KERNELS,
    },
    Op {
        def: OpDef {
            name: "InvGrad",
            inputs: &["y: T", "dy: T"],
            outputs: &["z: T"],
            attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::merged,
        gradient: Gradient::Fn(reciprocal_grad_gradient),
        kernels: RECIPROCAL_GRAD_KERNELS,
    },
];

/// True division; integers are truncated towards zero.
const DIV_KERNELS: &[KernelDef] = binary_kernels!(
    [f32, f64, f16, bf16, Complex32, Complex64] => |x, y| x / y;
    integer_div::<i8>(), integer_div::<i16>(), integer_div::<i32>(), integer_div::<i64>(),
    integer_div::<u8>(), integer_div::<u16>(), integer_div::<u32>(), integer_div::<u64>(),
);

/// The remainder with the sign of the dividend.
const MOD_KERNELS: &[KernelDef] = binary_kernels!(
    [f32, f64, f16, bf16] => |x, y| x % y;
    integer_mod::<i8>(), integer_mod::<i16>(), integer_mod::<i32>(), integer_mod::<i64>(),
    integer_mod::<u8>(), integer_mod::<u16>(), integer_mod::<u32>(), integer_mod::<u64>(),
);

const RECIPROCAL_KERNELS: &[KernelDef] = unary_kernels!(
    [f32] => |x| 1.0 / x,
    [f64] => |x| 1.0 / x,
    [f16] => |x| f16::ONE / x,
    [bf16] => |x| bf16::ONE / x,
    [Complex32] => |x| Complex32::new(1.0, 0.0) / x,
    [Complex64] => |x| Complex64::new(1.0, 0.0) / x,
    // TensorFlow's integer ops return 0 if the result can't be represented; a division by zero must not stop the server.
    [i8, i16, i32, i64] => |x| if x == 1 || x == -1 { x } else { 0 },
);

const RECIPROCAL_GRAD_KERNELS: &[KernelDef] = binary_kernels!(
    [f32, f64, f16, bf16] => |y, dy| -dy * (y * y),
    [Complex32, Complex64] => |y, dy| -dy * (y * y).conj(),
);

/// Returns `x / y`; integers become floating-point first.
#[track_caller]
pub fn divide(x: &Output, y: &Output) -> Output {
    x / y
}

/// Returns `x / y` for floating-point values.
#[track_caller]
pub fn realdiv(x: &Output, y: &Output) -> Output {
    x.graph().op("RealDiv").input(x).input(y).output()
}

/// Returns `x / y`, and 0 where `y` is 0.
#[track_caller]
pub fn div_no_nan(x: &Output, y: &Output) -> Output {
    x.graph().op("DivNoNan").input(x).input(y).output()
}

/// Returns `x / y` rounded down.
#[track_caller]
pub fn floordiv(x: &Output, y: &Output) -> Output {
    x.graph().op("FloorDiv").input(x).input(y).output()
}

/// Returns the remainder with the sign of `y`.
#[track_caller]
pub fn floormod(x: &Output, y: &Output) -> Output {
    x % y
}

/// Returns `1 / x`.
#[track_caller]
pub fn reciprocal(x: &Output) -> Output {
    x.graph().op("Reciprocal").input(x).output()
}

fn no_gradients(args: &GradientArgs<'_>) -> Gradients {
    Ok(vec![None; args.op.num_inputs()])
}

fn real_div_gradient(args: &GradientArgs<'_>) -> Gradients {
    quotient_gradient(args, "RealDiv")
}

fn div_no_nan_gradient(args: &GradientArgs<'_>) -> Gradients {
    quotient_gradient(args, "DivNoNan")
}

fn quotient_gradient(args: &GradientArgs<'_>, divide: &str) -> Gradients {
    binary_gradient(args, |grad, x, y| {
        let (x, y) = (conj(x)?, conj(y)?);
        let grad_x = binary(divide, grad, &y)?;
        let slope = binary(divide, &binary(divide, &unary("Neg", &x)?, &y)?, &y)?;
        Ok((Some(grad_x), Some(binary("Mul", grad, &slope)?)))
    })
}

fn floor_mod_gradient(args: &GradientArgs<'_>) -> Gradients {
    binary_gradient(args, |grad, x, y| {
        let quotient = unary("Neg", &binary("FloorDiv", x, y)?)?;
        Ok((Some(grad.clone()), Some(binary("Mul", grad, &quotient)?)))
    })
}

fn xdivy_gradient(args: &GradientArgs<'_>) -> Gradients {
    binary_gradient(args, |grad, x, y| {
        let not_zero = cast(&binary("NotEqual", x, &scalar(x, 0.0)?)?, x.dtype())?;
        let slope_x = binary("Xdivy", &not_zero, y)?;
        let slope_y = binary("Xdivy", &unary("Neg", x)?, &unary("Square", y)?)?;
        Ok((Some(binary("Mul", &slope_x, grad)?), Some(binary("Mul", &slope_y, grad)?)))
    })
}

fn reciprocal_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, _, y| binary("ReciprocalGrad", y, grad))
}

fn reciprocal_grad_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let (a, b) = (conj(&args.input(0))?, args.input(1));
    let grad_conj = conj(&grad)?;
    let grad_a = binary("Mul", &binary("Mul", &times(&grad_conj, -2.0)?, &b)?, &a)?;
    let grad_b = binary("ReciprocalGrad", &a, &grad)?;
    Ok(vec![Some(Grad::from(grad_a)), Some(grad_b.into())])
}

/// The operations of integer division.
trait Integer: Element + PrimInt + WrappingAdd + WrappingMul + WrappingSub {}
impl<T: Element + PrimInt + WrappingAdd + WrappingMul + WrappingSub> Integer for T {}

fn check_divisor<T: Integer>(context: &OpContext<'_>) -> Result<()> {
    if context.slice::<T>(1)?.contains(&T::zero()) && context.input(0)?.num_elements() > 0 {
        return Err(Status::invalid_argument("Integer division by zero"));
    }
    Ok(())
}

/// The quotient, truncated; the smallest number divided by -1 overflows to itself. The divisor was checked.
fn truncated_quotient<T: Integer>(x: T, y: T) -> T {
    x.checked_div(&y).unwrap_or(if y.is_zero() { T::zero() } else { x })
}

/// The remainder with the sign of `x`.
fn remainder<T: Integer>(x: T, y: T) -> T {
    // No quotient means division by zero, which was checked, or an overflow, whose remainder is 0.
    if x.checked_div(&y).is_none() { T::zero() } else { x % y }
}

const fn integer_div<T: Integer>() -> KernelDef {
    KernelDef {
        types: const { &[("T", T::DTYPE)] },
        create: |_| Checked::boxed(check_divisor::<T>, |x: T, y: T| truncated_quotient(x, y)),
    }
}

const fn integer_floor_div<T: Integer>() -> KernelDef {
    KernelDef {
        types: const { &[("T", T::DTYPE)] },
        create: |_| {
            Checked::boxed(check_divisor::<T>, |x: T, y: T| {
                let z = truncated_quotient(x, y);
                let is_exact = z.wrapping_mul(&y) == x;
                if !is_exact && (x < T::zero()) != (y < T::zero()) { z.wrapping_sub(&T::one()) } else { z }
            })
        },
    }
}

const fn integer_mod<T: Integer>() -> KernelDef {
    KernelDef {
        types: const { &[("T", T::DTYPE)] },
        create: |_| Checked::boxed(check_divisor::<T>, |x: T, y: T| remainder(x, y)),
    }
}

const fn integer_floor_mod<T: Integer>() -> KernelDef {
    KernelDef {
        types: const { &[("T", T::DTYPE)] },
        create: |_| {
            Checked::boxed(check_divisor::<T>, |x: T, y: T| {
                let rest = remainder(x, y);
                let differs = (y < T::zero()) != (rest < T::zero());
                if !rest.is_zero() && differs { rest.wrapping_add(&y) } else { rest }
            })
        },
    }
}

fn float_floor_mod<T: Float>(x: T, y: T) -> T {
    let rest = x % y;
    if rest != T::zero() && (y < T::zero()) != (rest < T::zero()) { rest + y } else { rest }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, run_op};
    use tensor::Tensor;

    fn ints(op: &str) -> Vec<i32> {
        let x = Tensor::vector(&[i32::MIN, 5, -5, 7]);
        let y = Tensor::vector(&[-1, 2, 2, -3]);
        run_op(op, attrs![], &[x, y]).unwrap()[0].as_slice::<i32>().unwrap().to_vec()
    }

    #[test]
    fn integers_divide_as_in_tensorflow() {
        assert_eq!(ints("Div"), [i32::MIN, 2, -2, -2]);
        assert_eq!(ints("FloorDiv"), [i32::MIN, 2, -3, -3]);
        assert_eq!(ints("FloorMod"), [0, 1, 1, -2]);
        assert_eq!(ints("Mod"), [0, 1, -1, 1]);
        assert_eq!(ints("TruncateDiv"), [i32::MIN, 2, -2, -2]);
        assert_eq!(ints("TruncateMod"), [0, 1, -1, 1]);
    }

    #[test]
    fn zero_divisors() {
        for op in ["Div", "FloorDiv", "FloorMod", "Mod", "TruncateDiv", "TruncateMod"] {
            let status = run_op(op, attrs![], &[Tensor::vector(&[1i64, 2]), Tensor::scalar(0i64)]).unwrap_err();
            assert!(status.message().starts_with("Integer division by zero"), "{op}: {status}");
            assert!(run_op(op, attrs![], &[Tensor::vector::<i64>(&[]), Tensor::scalar(0i64)]).is_ok());
        }
    }

    #[test]
    fn floats_divide_as_in_tensorflow() {
        let x = Tensor::vector(&[5f32, -5.0, 5.0, -5.0, 1.0]);
        let y = Tensor::vector(&[3f32, 3.0, -3.0, -3.0, 0.0]);
        let run =
            |op: &str| run_op(op, attrs![], &[x.clone(), y.clone()]).unwrap()[0].as_slice::<f32>().unwrap().to_vec();
        assert_eq!(run("FloorDiv"), [1.0, -2.0, -2.0, 1.0, f32::INFINITY]);
        assert_eq!(run("FloorMod")[..4], [2.0, 1.0, -1.0, -2.0]);
        assert_eq!(run("Mod")[..4], [2.0, -2.0, 2.0, -2.0]);
        assert_eq!(run("DivNoNan")[4], 0.0);
        assert_eq!(run("Xdivy")[4], f32::INFINITY);
    }
}
