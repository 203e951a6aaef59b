//! Circular and hyperbolic functions and their inverses: Sin, Cos, Tan, Asin, Acos, Atan, Atan2, Sinh, Cosh, Asinh, Acosh,
//! Atanh.

use crate::compose::{Gradients, binary, binary_gradient, conj, scalar, unary, unary_gradient};
use crate::elementwise::Unary;
use graph::Output;
use kernel::{BoxedKernel, Gradient, GradientArgs, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags, shape};
use num_traits::Float;
use numeric::simd_math;
use tensor::{Complex32, Complex64, DType, Element, Result, Tensor, bf16, f16};

/// Lists the kernels of a function that is a method of every type.
macro_rules! method_kernels {
    ($method:ident) => {
        &[
            method!($method, f32),
            method!($method, f64),
            method!($method, f16),
            method!($method, bf16),
            method!($method, Complex32),
            method!($method, Complex64),
        ]
    };
}

/// One such kernel. All functions of a type share the loop: they take much longer than a call.
macro_rules! method {
    ($method:ident, $ty:ident) => {
        KernelDef {
            types: &[("T", <$ty as Element>::DTYPE)],
            create: |_| {
                let function: fn($ty) -> $ty = |x| x.$method();
                Unary::boxed_with_cost(10.0, function)
            },
        }
    };
}

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Sin",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(sin_gradient),
        kernels: &[
            vectorized(|_| BoxedKernel::new(Vectorized(simd_math::sin))),
            method!(sin, f64),
            method!(sin, f16),
            method!(sin, bf16),
            method!(sin, Complex32),
            method!(sin, Complex64),
        ],
    },
    Op {
        def: OpDef {
            name: "Cos",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(cos_gradient),
        kernels: &[
            vectorized(|_| BoxedKernel::new(Vectorized(simd_math::cos))),
            method!(cos, f64),
            method!(cos, f16),
            method!(cos, bf16),
            method!(cos, Complex32),
            method!(cos, Complex64),
        ],
    },
    Op {
        def: OpDef {
            name: "Tan",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(tan_gradient),
        kernels: method_kernels!(tan),
    },
    Op {
        def: OpDef {
            name: "Asin",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(asin_gradient),
        kernels: method_kernels!(asin),
    },
    Op {
        def: OpDef {
            name: "Acos",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(acos_gradient),
        kernels: method_kernels!(acos),
    },
    Op {
        def: OpDef {
            name: "Atan",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(atan_gradient),
        kernels: method_kernels!(atan),
    },
    Op {
        def: OpDef {
            name: "Sinh",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(sinh_gradient),
        kernels: method_kernels!(sinh),
    },
    Op {
        def: OpDef {
            name: "Cosh",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(cosh_gradient),
        kernels: method_kernels!(cosh),
    },
    Op {
        def: OpDef {
            name: "Asinh",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(asinh_gradient),
        kernels: &[
            // In single precision the sum in it would overflow.
            KernelDef {
                types: &[("T", DType::Float)],
                create: |_| Unary::<f32, _>::boxed_with_cost(10.0, |x: f32| f64::from(x).asinh() as f32),
            },
            method!(asinh, f64),
            method!(asinh, f16),
            method!(asinh, bf16),
            method!(asinh, Complex32),
            method!(asinh, Complex64),
        ],
    },
    Op {
        def: OpDef {
            name: "Acosh",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(acosh_gradient),
        kernels: &[
            // In single precision the sum in it would overflow.
            KernelDef {
                types: &[("T", DType::Float)],
                create: |_| Unary::<f32, _>::boxed_with_cost(10.0, |x: f32| f64::from(x).acosh() as f32),
            },
            method!(acosh, f64),
            method!(acosh, f16),
            method!(acosh, bf16),
            method!(acosh, Complex32),
            method!(acosh, Complex64),
        ],
    },
    Op {
        def: OpDef {
            name: "Atanh",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(atanh_gradient),
        kernels: method_kernels!(atanh),
    },
    Op {
        def: OpDef {
            name: "Atan2",
            inputs: &["y: T", "x: T"],
            outputs: &["z: T"],
            attrs: &["T: {bfloat16, half, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::Fn(atan2_gradient),
        kernels: binary_kernels!([f32, f64, f16, bf16] => |y, x| y.atan2(x)),
    },
];

unary_functions! {
    /// Returns the sine.
    sin => "Sin";
    /// Returns the cosine.
    cos => "Cos";
    /// Returns the tangent.
    tan => "Tan";
    /// Returns the inverse of the sine.
    asin => "Asin";
    /// Returns the inverse of the cosine.
    acos => "Acos";
    /// Returns the inverse of the tangent.
    atan => "Atan";
    /// Returns the hyperbolic sine.
    sinh => "Sinh";
    /// Returns the hyperbolic cosine.
    cosh => "Cosh";
    /// Returns the inverse of the hyperbolic sine.
    asinh => "Asinh";
    /// Returns the inverse of the hyperbolic cosine.
    acosh => "Acosh";
    /// Returns the inverse of the hyperbolic tangent.
    atanh => "Atanh";
}

/// Returns the angle of the point `(x, y)`.
#[track_caller]
pub fn atan2(y: &Output, x: &Output) -> Output {
    y.graph().op("Atan2").input(y).input(x).output()
}

fn times_function(args: &GradientArgs<'_>, op: &str) -> Gradients {
    unary_gradient(args, |grad, x, _| binary("Mul", grad, &unary(op, &conj(x)?)?))
}

fn sin_gradient(args: &GradientArgs<'_>) -> Gradients {
    times_function(args, "Cos")
}

fn cos_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, x, _| binary("Mul", &unary("Neg", grad)?, &unary("Sin", &conj(x)?)?))
}

fn sinh_gradient(args: &GradientArgs<'_>) -> Gradients {
    times_function(args, "Cosh")
}

fn cosh_gradient(args: &GradientArgs<'_>) -> Gradients {
    times_function(args, "Sinh")
}

fn tan_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, x, _| {
        let secant = unary("Reciprocal", &unary("Cos", &conj(x)?)?)?;
        binary("Mul", &unary("Square", &secant)?, grad)
    })
}

/// Returns `1 / √(1 - x²)`.
fn inverse_sine_slope(x: &Output) -> Result<Output> {
    let square = unary("Square", &conj(x)?)?;
    unary("Reciprocal", &unary("Sqrt", &binary("Sub", &scalar(x, 1.0)?, &square)?)?)
}

fn asin_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, x, _| binary("Mul", grad, &inverse_sine_slope(x)?))
}

fn acos_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, x, _| binary("Mul", &unary("Neg", grad)?, &inverse_sine_slope(x)?))
}

fn atan_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, x, _| {
        let square = unary("Square", &conj(x)?)?;
        binary("Mul", grad, &unary("Reciprocal", &binary("AddV2", &scalar(x, 1.0)?, &square)?)?)
    })
}

fn asinh_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, _, y| binary("RealDiv", grad, &unary("Cosh", &conj(y)?)?))
}

fn acosh_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, _, y| binary("RealDiv", grad, &unary("Sinh", &conj(y)?)?))
}

fn atanh_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, x, _| {
        let square = unary("Square", &conj(x)?)?;
        binary("Mul", grad, &unary("Reciprocal", &binary("Sub", &scalar(x, 1.0)?, &square)?)?)
    })
}

fn atan2_gradient(args: &GradientArgs<'_>) -> Gradients {
    binary_gradient(args, |grad, y, x| {
        let squares = binary("AddV2", &unary("Square", x)?, &unary("Square", y)?)?;
        let share = binary("RealDiv", grad, &squares)?;
        Ok((Some(binary("Mul", x, &share)?), Some(binary("Mul", &unary("Neg", y)?, &share)?)))
    })
}

/// A vectorized loop over whole slices.
struct Vectorized(fn(&[f32], &mut [f32]));

const fn vectorized(create: fn(&kernel::KernelBuilder<'_>) -> Result<BoxedKernel>) -> KernelDef {
    KernelDef { types: &[("T", DType::Float)], create }
}

impl Kernel for Vectorized {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let values = input.as_slice::<f32>()?;
        let output = Tensor::build(input.shape().clone(), |out: &mut [f32]| (self.0)(values, out))?;
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_gradient, run_op};

    #[test]
    fn values() {
        let x = Tensor::vector(&[0f32, 0.5, 1e9, f32::INFINITY]);
        let y = run_op("Sin", attrs![], &[x]).unwrap();
        let y = y[0].as_slice::<f32>().unwrap();
        assert!(
            y[0] == 0.0 && (y[1] - 0.47942554).abs() < 1e-6 && (y[2] - 0.545_843_5).abs() < 1e-5 && y[3].is_nan(),
            "{y:?}"
        );
        for op in ["Asinh", "Acosh"] {
            let y = run_op(op, attrs![], &[Tensor::vector(&[3e38f32])]).unwrap()[0].as_slice::<f32>().unwrap()[0];
            assert!((y - 89.289_993).abs() < 1e-4, "{op} is {y}");
        }
        let z = run_op("Atan2", attrs![], &[Tensor::vector(&[5f32, -5.0]), Tensor::vector(&[3f32, -3.0])]).unwrap();
        let z = z[0].as_slice::<f32>().unwrap();
        assert!((z[0] - 1.0303769).abs() < 1e-6 && (z[1] + 2.1112158).abs() < 1e-6, "{z:?}");
    }

    #[test]
    fn gradients() {
        let x = Tensor::vector(&[0.3f64, -0.5, 0.1]);
        for function in [sin, cos, tan, asin, acos, atan, sinh, cosh, asinh, atanh] {
            check_gradient(std::slice::from_ref(&x), |_, x| function(&x[0]));
        }
        let x = Tensor::vector(&[1.3f64, 2.5, 3.1]);
        check_gradient(std::slice::from_ref(&x), |_, x| acosh(&x[0]));
        check_gradient(&[x, Tensor::scalar(0.7f64)], |_, x| atan2(&x[0], &x[1]));
    }
}
