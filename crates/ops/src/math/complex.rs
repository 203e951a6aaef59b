//! Complex numbers: Complex, Real, Imag, Conj, ComplexAbs, Angle.

use crate::compose::{Gradients, binary, binary_gradient, scalar, unary, unary_gradient};
use crate::elementwise::{Convert, PassThrough, broadcast_plan};
use graph::Output;
use kernel::{BoxedKernel, Gradient, GradientArgs, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags, shape};
use numeric::elementwise;
use std::marker::PhantomData;
use tensor::{Complex32, Complex64, DType, Element, Result, Tensor};

/// Lists the kernels of a function from complex to real numbers.
macro_rules! part_kernels {
    ($function:expr) => {
        &[
            KernelDef {
                types: &[("T", DType::Complex64)],
                create: |_| Convert::<Complex32, f32, fn(Complex32) -> f32>::boxed($function),
            },
            KernelDef {
                types: &[("T", DType::Complex128)],
                create: |_| Convert::<Complex64, f64, fn(Complex64) -> f64>::boxed($function),
            },
        ]
    };
}

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Complex",
            inputs: &["real: T", "imag: T"],
            outputs: &["out: Tout"],
            attrs: &["T: {float, double} = DT_FLOAT", "Tout: {complex64, complex128} = DT_COMPLEX64"],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::Fn(complex_gradient),
        kernels: &[
            KernelDef {
                types: &[("T", DType::Float)],
                create: |_| BoxedKernel::new(Join::<f32, Complex32> { join: Complex32::new, types: PhantomData }),
            },
            KernelDef {
                types: &[("T", DType::Double)],
                create: |_| BoxedKernel::new(Join::<f64, Complex64> { join: Complex64::new, types: PhantomData }),
            },
        ],
    },
    Op {
        def: OpDef {
            name: "Real",
            inputs: &["input: T"],
            outputs: &["output: Tout"],
            attrs: &["T: {complex64, complex128} = DT_COMPLEX64", "Tout: {float, double} = DT_FLOAT"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(real_gradient),
        kernels: part_kernels!(|x| x.re),
    },
    Op {
        def: OpDef {
            name: "Imag",
            inputs: &["input: T"],
            outputs: &["output: Tout"],
            attrs: &["T: {complex64, complex128} = DT_COMPLEX64", "Tout: {float, double} = DT_FLOAT"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(imag_gradient),
        kernels: part_kernels!(|x| x.im),
    },
    Op {
        def: OpDef {
            name: "Angle",
            inputs: &["input: T"],
            outputs: &["output: Tout"],
            attrs: &["T: {complex64, complex128} = DT_COMPLEX64", "Tout: {float, double} = DT_FLOAT"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(angle_gradient),
        kernels: part_kernels!(|x| x.arg()),
    },
    Op {
        def: OpDef {
            name: "ComplexAbs",
            inputs: &["x: T"],
            outputs: &["y: Tout"],
            attrs: &["T: {complex64, complex128} = DT_COMPLEX64", "Tout: {float, double} = DT_FLOAT"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(complex_abs_gradient),
        kernels: part_kernels!(|x| x.norm()),
    },
    Op {
        def: OpDef {
            name: "Conj",
            inputs: &["input: T"],
            outputs: &["output: T"],
            attrs: &["T: {complex64, complex128, variant} = DT_COMPLEX64"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(conj_gradient),
        kernels: unary_kernels!(
            [Complex32, Complex64] => |x| x.conj();
            KernelDef { types: &[("T", DType::Variant)], create: |_| BoxedKernel::new(PassThrough) },
        ),
    },
];

/// Returns the complex number with the given parts.
#[track_caller]
pub fn complex(real: &Output, imag: &Output) -> Output {
    let dtype = if real.dtype() == DType::Double { DType::Complex128 } else { DType::Complex64 };
    real.graph().op("Complex").input(real).input(imag).attr("Tout", dtype).output()
}

macro_rules! parts {
    ($($(#[$doc:meta])* $name:ident => $op:literal;)*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(x: &Output) -> Output {
            x.graph().op($op).input(x).attr("Tout", x.dtype().real()).output()
        }
    )*};
}

parts! {
    /// Returns the real part.
    real => "Real";
    /// Returns the imaginary part.
    imag => "Imag";
    /// Returns the argument.
    angle => "Angle";
    /// Returns the absolute value of complex numbers.
    complex_abs => "ComplexAbs";
}

/// Returns the complex conjugate.
#[track_caller]
pub fn conj(x: &Output) -> Output {
    x.graph().op("Conj").input(x).output()
}

fn join(real: &Output, imag: &Output) -> Result<Output> {
    let dtype = if real.dtype() == DType::Double { DType::Complex128 } else { DType::Complex64 };
    Ok(real.graph().op("Complex").input(real).input(imag).attr("Tout", dtype).try_build()?.output(0))
}

fn part(op: &str, x: &Output) -> Result<Output> {
    Ok(x.graph().op(op).input(x).attr("Tout", x.dtype().real()).try_build()?.output(0))
}

fn complex_gradient(args: &GradientArgs<'_>) -> Gradients {
    binary_gradient(args, |grad, _, _| Ok((Some(part("Real", grad)?), Some(part("Imag", grad)?))))
}

fn real_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, _, _| join(grad, &scalar(grad, 0.0)?))
}

fn imag_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, _, _| join(&scalar(grad, 0.0)?, grad))
}

fn angle_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, x, _| {
        let swapped = join(&part("Imag", x)?, &part("Real", x)?)?;
        let grad = join(grad, &scalar(grad, 0.0)?)?;
        binary("Mul", &unary("Neg", &grad)?, &unary("Reciprocal", &swapped)?)
    })
}

fn complex_abs_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, x, y| {
        let zero = scalar(grad, 0.0)?;
        binary("DivNoNan", &binary("Mul", &join(grad, &zero)?, x)?, &join(y, &zero)?)
    })
}

fn conj_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, _, _| unary("Conj", grad))
}

/// Makes complex numbers of two tensors of parts.
struct Join<T, C> {
    join: fn(T, T) -> C,
    types: PhantomData<fn(T) -> C>,
}

impl<T: Element, C: Element> Kernel for Join<T, C> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (real, imag) = (context.input(0)?, context.input(1)?);
        let (plan, shape) = broadcast_plan(real, imag)?;
        let (real, imag) = (real.as_slice::<T>()?, imag.as_slice::<T>()?);
        let output = Tensor::build(shape, |out: &mut [C]| elementwise::binary(real, imag, out, &plan, self.join))?;
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_gradient, run_op};
    use tensor::{Complex32, DType, Tensor};

    #[test]
    fn parts_of_numbers() {
        let x = Tensor::vector(&[Complex32::new(3.0, 4.0), Complex32::new(0.0, -1.0)]);
        let run = |op: &str| run_op(op, attrs![], &[x.clone()]).unwrap()[0].as_slice::<f32>().unwrap().to_vec();
        assert_eq!(run("Real"), [3.0, 0.0]);
        assert_eq!(run("Imag"), [4.0, -1.0]);
        assert_eq!(run("ComplexAbs"), [5.0, 1.0]);
        assert!((run("Angle")[1] + std::f32::consts::FRAC_PI_2).abs() < 1e-6);
        let y = run_op("Conj", attrs![], &[x.clone()]).unwrap();
        assert_eq!(y[0].as_slice::<Complex32>().unwrap()[0], Complex32::new(3.0, -4.0));
        let z = run_op("Complex", attrs![], &[Tensor::vector(&[1f32, 2.0]), Tensor::scalar(5f32)]).unwrap();
        assert_eq!(z[0].as_slice::<Complex32>().unwrap()[1], Complex32::new(2.0, 5.0));
    }

    #[test]
    fn gradients() {
        let (re, im) = (Tensor::vector(&[3f64, 1.0]), Tensor::vector(&[4f64, -2.0]));
        for op in ["Real", "Imag", "ComplexAbs"] {
            check_gradient(&[re.clone(), im.clone()], |graph, x| {
                let z = super::complex(&x[0], &x[1]);
                graph.op(op).input(&z).attr("Tout", DType::Double).output()
            });
        }
    }
}
