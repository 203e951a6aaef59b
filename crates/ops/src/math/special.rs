//! Special functions: Erf, Erfc, Erfinv, Ndtri, Lgamma, Digamma, Polygamma, Zeta, Igamma, Igammac, IgammaGradA,
//! RandomGammaGrad, Betainc,
//! the Bessel functions of imaginary argument, and NextAfter.

use crate::compose::{
    Gradients, binary, binary_gradient, reduce_broadcast, scalar, select, times, unary, unary_gradient,
};
use crate::elementwise::{Binary, Unary};
use graph::{Output, ShapeContext};
use kernel::{
    BoxedKernel, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, kernels,
    shape,
};
use num_traits::AsPrimitive;
use numeric::elementwise::{self, Broadcast};
use numeric::simd_math::SimdMath;
use numeric::special as functions;
use std::f64::consts::PI;
use std::marker::PhantomData;
use tensor::{Element, PartialShape, Result, Shape, Status, Tensor, bf16, f16};

/// Lists the kernels of a function that is computed in double precision.
macro_rules! through_double {
    ($function:path) => {
        &[
            one_argument!($function, f32),
            one_argument!($function, f64),
            one_argument!($function, f16),
            one_argument!($function, bf16),
        ]
    };
}

macro_rules! one_argument {
    ($function:path, $ty:ident) => {
        KernelDef {
            types: &[("T", <$ty as Element>::DTYPE)],
            create: |_| {
                let function: fn($ty) -> $ty = |x| $function(AsPrimitive::<f64>::as_(x)).as_();
                Unary::boxed_with_cost(30.0, function)
            },
        }
    };
}

/// Lists the kernels of a function of two arguments that is computed in double precision.
macro_rules! two_through_double {
    ($function:path) => {
        &[
            two_arguments!($function, f32),
            two_arguments!($function, f64),
            two_arguments!($function, f16),
            two_arguments!($function, bf16),
        ]
    };
}

macro_rules! two_arguments {
    ($function:path, $ty:ident) => {
        KernelDef {
            types: &[("T", <$ty as Element>::DTYPE)],
            create: |_| {
                let function: fn($ty, $ty) -> $ty =
                    |x, y| $function(AsPrimitive::<f64>::as_(x), AsPrimitive::<f64>::as_(y)).as_();
                Binary::boxed(function)
            },
        }
    };
}

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Erf",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(erf_gradient),
        kernels: costly_unary_kernels!(5.0; [f32, f64, f16, bf16] => |x| x.simd_erf()),
    },
    Op {
        def: OpDef {
            name: "Erfc",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(erfc_gradient),
        kernels: costly_unary_kernels!(5.0; [f32, f64, f16, bf16] => |x| x.simd_erfc()),
    },
    Op {
        def: OpDef {
            name: "Erfinv",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(erfinv_gradient),
        kernels: through_double!(functions::erfinv),
    },
    Op {
        def: OpDef {
            name: "Ndtri",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(ndtri_gradient),
        kernels: through_double!(functions::ndtri),
    },
    Op {
        def: OpDef {
            name: "Lgamma",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(lgamma_gradient),
        kernels: through_double!(functions::lgamma),
    },
    Op {
        def: OpDef {
            name: "Digamma",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(digamma_gradient),
        kernels: through_double!(functions::digamma),
    },
    Op {
        def: OpDef {
            name: "BesselI0",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(bessel_i0_gradient),
        kernels: through_double!(functions::bessel_i0),
    },
    Op {
        def: OpDef {
            name: "BesselI0e",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(bessel_i0e_gradient),
        kernels: through_double!(functions::bessel_i0e),
    },
    Op {
        def: OpDef {
            name: "BesselI1",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(bessel_i1_gradient),
        kernels: through_double!(functions::bessel_i1),
    },
    Op {
        def: OpDef {
            name: "BesselI1e",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(bessel_i1e_gradient),
        kernels: through_double!(functions::bessel_i1e),
    },
    Op {
        def: OpDef {
            name: "Polygamma",
            inputs: &["a: T", "x: T"],
            outputs: &["z: T"],
            attrs: &["T: {float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::Fn(polygamma_gradient),
        kernels: two_through_double!(functions::polygamma),
    },
    Op {
        def: OpDef {
            name: "Zeta",
            inputs: &["x: T", "q: T"],
            outputs: &["z: T"],
            attrs: &["T: {float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::Fn(zeta_gradient),
        kernels: two_through_double!(functions::zeta),
    },
    Op {
        def: OpDef {
            name: "Igamma",
            inputs: &["a: T", "x: T"],
            outputs: &["z: T"],
            attrs: &["T: {bfloat16, half, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::Fn(igamma_gradient),
        kernels: two_through_double!(functions::igamma),
    },
    Op {
        def: OpDef {
            name: "Igammac",
            inputs: &["a: T", "x: T"],
            outputs: &["z: T"],
            attrs: &["T: {bfloat16, half, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::Fn(igammac_gradient),
        kernels: two_through_double!(functions::igammac),
    },
    Op {
        def: OpDef {
            name: "IgammaGradA",
            inputs: &["a: T", "x: T"],
            outputs: &["z: T"],
            attrs: &["T: {float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::Unsupported,
        kernels: two_through_double!(igamma_slope_in_a),
    },
    Op {
        def: OpDef {
            name: "RandomGammaGrad",
            inputs: &["alpha: T", "sample: T"],
            outputs: &["output: T"],
            attrs: &["T: {float, double}"],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::Unsupported,
        kernels: two_through_double!(gamma_sample_slope),
    },
    Op {
        def: OpDef {
            name: "Betainc",
            inputs: &["a: T", "b: T", "x: T"],
            outputs: &["z: T"],
            attrs: &["T: {float, double}"],
            flags: OpFlags::NONE,
        },
        shape: betainc_shape,
        gradient: Gradient::Fn(betainc_gradient),
        kernels: kernels!("T": [f32, f64] => Betainc),
    },
    Op {
        def: OpDef {
            name: "NextAfter",
            inputs: &["x1: T", "x2: T"],
            outputs: &["output: T"],
            attrs: &["T: {double, float} = DT_FLOAT"],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::Fn(next_after_gradient),
        kernels: binary_kernels!([f32, f64] => |x, y| {
            if x < y { x.next_up() } else if x > y { x.next_down() } else if x == y { y } else { x + y }
        }),
    },
];

unary_functions! {
    /// Returns the error function.
    erf => "Erf";
    /// Returns `1 - erf(x)`, accurate for large `x`.
    erfc => "Erfc";
    /// Returns the inverse of the error function.
    erfinv => "Erfinv";
    /// Returns the inverse of the standard normal distribution.
    ndtri => "Ndtri";
    /// Returns the logarithm of the absolute value of the gamma function.
    lgamma => "Lgamma";
    /// Returns the derivative of the logarithm of the gamma function.
    digamma => "Digamma";
}

/// Returns the regularized lower incomplete gamma function.
#[track_caller]
pub fn igamma(a: &Output, x: &Output) -> Output {
    a.graph().op("Igamma").input(a).input(x).output()
}

/// Returns the regularized incomplete beta function.
#[track_caller]
pub fn betainc(a: &Output, b: &Output, x: &Output) -> Output {
    a.graph().op("Betainc").input(a).input(b).input(x).output()
}

fn betainc_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let mut shape = PartialShape::scalar();
    for index in 0..3 {
        let input = c.input(index);
        match (shape.rank(), input.rank()) {
            (_, Some(0)) => {}
            (Some(0), _) => shape = input,
            _ => shape = shape.merge(&input)?,
        }
    }
    c.set_output(0, shape);
    Ok(())
}

/// Returns `grad * factor * exp(sign * x²)`.
fn bell(grad: &Output, x: &Output, factor: f64, exponent: f64) -> Result<Output> {
    let weight = times(&unary("Exp", &times(&unary("Square", x)?, exponent)?)?, factor)?;
    binary("Mul", grad, &weight)
}

fn erf_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, x, _| bell(grad, x, 2.0 / PI.sqrt(), -1.0))
}

fn erfc_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, x, _| bell(grad, x, -2.0 / PI.sqrt(), -1.0))
}

fn erfinv_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, _, y| bell(grad, y, PI.sqrt() / 2.0, 1.0))
}

fn ndtri_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, _, y| bell(grad, y, (2.0 * PI).sqrt(), 0.5))
}

fn lgamma_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, x, _| binary("Mul", grad, &unary("Digamma", x)?))
}

fn digamma_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, x, _| binary("Mul", grad, &binary("Polygamma", &scalar(x, 1.0)?, x)?))
}

fn bessel_i0_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, x, _| binary("Mul", grad, &unary("BesselI1", x)?))
}

fn bessel_i0e_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, x, y| {
        let slope = binary("Sub", &unary("BesselI1e", x)?, &binary("Mul", &unary("Sign", x)?, y)?)?;
        binary("Mul", grad, &slope)
    })
}

/// Returns `slope` for nonzero `x`, and its limit of one half at zero; `slope` is called with an `x` without zeros.
fn around_zero(x: &Output, slope: impl FnOnce(&Output) -> Result<Output>) -> Result<Output> {
    let is_zero = binary("Equal", x, &scalar(x, 0.0)?)?;
    let safe = select(&is_zero, &scalar(x, 1.0)?, x)?;
    select(&is_zero, &scalar(x, 0.5)?, &slope(&safe)?)
}

fn bessel_i1_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, x, y| {
        let slope = around_zero(x, |safe| binary("Sub", &unary("BesselI0", safe)?, &binary("RealDiv", y, safe)?))?;
        binary("Mul", grad, &slope)
    })
}

fn bessel_i1e_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, x, y| {
        let slope = around_zero(x, |safe| {
            let decay = binary("AddV2", &unary("Sign", safe)?, &unary("Reciprocal", safe)?)?;
            binary("Sub", &unary("BesselI0e", safe)?, &binary("Mul", y, &decay)?)
        })?;
        binary("Mul", grad, &slope)
    })
}

fn polygamma_gradient(args: &GradientArgs<'_>) -> Gradients {
    binary_gradient(args, |grad, n, x| {
        let next = binary("AddV2", n, &scalar(n, 1.0)?)?;
        Ok((None, Some(binary("Mul", &binary("Polygamma", &next, x)?, grad)?)))
    })
}

fn zeta_gradient(args: &GradientArgs<'_>) -> Gradients {
    binary_gradient(args, |grad, x, q| {
        let next = binary("AddV2", x, &scalar(x, 1.0)?)?;
        let slope = binary("Mul", &unary("Neg", x)?, &binary("Zeta", &next, q)?)?;
        Ok((None, Some(binary("Mul", &slope, grad)?)))
    })
}

/// Returns the slopes of the lower incomplete gamma function in `a` and in `x`, each multiplied by `grad`.
fn igamma_slopes(grad: &Output, a: &Output, x: &Output) -> Result<(Output, Output)> {
    let slope_a = binary("IgammaGradA", a, x)?;
    let power = binary("Mul", &binary("Sub", a, &scalar(a, 1.0)?)?, &unary("Log", x)?)?;
    let exponent = binary("Sub", &binary("Sub", &power, x)?, &unary("Lgamma", a)?)?;
    Ok((binary("Mul", &slope_a, grad)?, binary("Mul", &unary("Exp", &exponent)?, grad)?))
}

fn igamma_gradient(args: &GradientArgs<'_>) -> Gradients {
    binary_gradient(args, |grad, a, x| igamma_slopes(grad, a, x).map(|(a, x)| (Some(a), Some(x))))
}

fn igammac_gradient(args: &GradientArgs<'_>) -> Gradients {
    binary_gradient(args, |grad, a, x| {
        let (slope_a, slope_x) = igamma_slopes(grad, a, x)?;
        Ok((Some(unary("Neg", &slope_a)?), Some(unary("Neg", &slope_x)?)))
    })
}

fn betainc_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 3]) };
    let (a, b, x) = (args.input(0), args.input(1), args.input(2));
    let less_one = |value: &Output| binary("Sub", value, &scalar(value, 1.0)?);
    let gamma = |value: &Output| unary("Lgamma", value);
    let log_beta = binary("Sub", &binary("AddV2", &gamma(&a)?, &gamma(&b)?)?, &gamma(&binary("AddV2", &a, &b)?)?)?;
    let upper = binary("Mul", &less_one(&b)?, &unary("Log1p", &unary("Neg", &x)?)?)?;
    let lower = binary("Mul", &less_one(&a)?, &unary("Log", &x)?)?;
    let exponent = binary("Sub", &binary("AddV2", &upper, &lower)?, &log_beta)?;
    let slope = binary("Mul", &unary("Exp", &exponent)?, &grad)?;
    let (grad_x, _) = reduce_broadcast(&x, &args.output(0), Some(slope), None)?;
    Ok(vec![None, None, grad_x.map(Into::into)])
}

fn next_after_gradient(args: &GradientArgs<'_>) -> Gradients {
    binary_gradient(args, |grad, _, _| Ok((Some(grad.clone()), Some(times(grad, 0.0)?))))
}

/// The derivative of the lower incomplete gamma function with respect to its first argument, by high-order differences.
fn igamma_slope_in_a(a: f64, x: f64) -> f64 {
    if !(a > 0.0 && x >= 0.0) {
        return f64::NAN;
    }
    if x == 0.0 {
        return 0.0;
    }
    const WEIGHTS: [f64; 4] = [4.0 / 5.0, -1.0 / 5.0, 4.0 / 105.0, -1.0 / 280.0];
    let step = 0.02 * a.min(a.sqrt());
    // The smaller tail is the more accurate one.
    let lower = x < a;
    let value = |a: f64| if lower { functions::igamma(a, x) } else { -functions::igammac(a, x) };
    let difference = |(index, weight): (usize, &f64)| {
        let shift = (index + 1) as f64 * step;
        weight * (value(a + shift) - value(a - shift))
    };
    WEIGHTS.iter().enumerate().map(difference).sum::<f64>() / step
}

/// The derivative of a gamma-distributed sample with respect to the parameter, at a fixed quantile.
fn gamma_sample_slope(alpha: f64, sample: f64) -> f64 {
    if sample == 0.0 {
        return 0.0;
    }
    let log_density = (alpha - 1.0) * sample.ln() - sample - functions::lgamma(alpha);
    -igamma_slope_in_a(alpha, sample) / log_density.exp()
}

/// The incomplete beta function; its inputs have the same shape, except for scalars.
struct Betainc<T>(PhantomData<fn(T)>);

impl<T: Element + AsPrimitive<f64>> Betainc<T>
where
    f64: AsPrimitive<T>,
{
    fn create(_: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(Betainc::<T>(PhantomData))
    }
}

impl<T: Element + AsPrimitive<f64>> Kernel for Betainc<T>
where
    f64: AsPrimitive<T>,
{
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let inputs = [context.input(0)?, context.input(1)?, context.input(2)?];
        let mut shape: Option<&Shape> = None;
        for (one, other, names) in [(0, 1, "a and b"), (0, 2, "a and x"), (1, 2, "b and x")] {
            let (one, other) = (inputs[one].shape(), inputs[other].shape());
            if !one.is_scalar() && !other.is_scalar() && one != other {
                return Err(Status::invalid_argument(format!("Shapes of {names} are inconsistent: {one} vs. {other}")));
            }
        }
        for input in inputs.iter().filter(|input| !input.shape().is_scalar()) {
            shape.get_or_insert(input.shape());
        }
        let dims = inputs.map(|input| input.shape().to_usize());
        let plan = Broadcast::<3>::of([&dims[0], &dims[1], &dims[2]])
            .ok_or_else(|| Status::internal("shapes that were checked don't fit"))?;
        let [a, b, x] = inputs;
        let (a, b, x) = (a.as_slice::<T>()?, b.as_slice::<T>()?, x.as_slice::<T>()?);
        let output = Tensor::build(shape.cloned().unwrap_or_default(), |out: &mut [T]| {
            elementwise::ternary(a, b, x, out, &plan, |a: T, b: T, x: T| {
                functions::betainc(a.as_(), b.as_(), x.as_()).as_()
            });
        })?;
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
        let run = |op: &str, inputs: &[f64]| {
            let inputs: Vec<Tensor> = inputs.iter().map(|&value| Tensor::scalar(value)).collect();
            run_op(op, attrs![], &inputs).unwrap()[0].to_scalar::<f64>().unwrap()
        };
        let close =
            |actual: f64, expected: f64| assert!((actual - expected).abs() < 1e-9, "{actual} instead of {expected}");
        close(run("Erf", &[0.5]), 0.5204998778130465);
        close(run("Lgamma", &[0.5]), 0.5723649429247001);
        close(run("Digamma", &[1.0]), -0.5772156649015329);
        close(run("Igamma", &[2.0, 1.5]), 0.4421745996289254);
        close(run("Betainc", &[2.0, 3.0, 0.4]), 0.5248);
        close(run("Zeta", &[2.0, 1.0]), PI * PI / 6.0);
        close(run("Polygamma", &[1.0, 1.0]), PI * PI / 6.0);
        close(run("Ndtri", &[0.975]), 1.959963984540054);
        assert_eq!(run("NextAfter", &[1.0, 2.0]), 1.0f64.next_up());
        assert!(run("NextAfter", &[f64::NAN, 2.0]).is_nan());
    }

    #[test]
    fn gradients() {
        let x = Tensor::vector(&[0.3f64, 0.5, 0.1]);
        for op in
            ["Erf", "Erfc", "Erfinv", "Ndtri", "Lgamma", "Digamma", "BesselI0", "BesselI0e", "BesselI1", "BesselI1e"]
        {
            check_gradient(std::slice::from_ref(&x), |graph, x| graph.op(op).inputs(x).output());
        }
        let a = Tensor::vector(&[0.7f64, 3.0, 1.5]);
        check_gradient(&[a.clone(), Tensor::scalar(1.2f64)], |graph, x| graph.op("Igamma").inputs(x).output());
        check_gradient(&[a.clone(), Tensor::scalar(1.2f64)], |graph, x| graph.op("Igammac").inputs(x).output());
    }
}
