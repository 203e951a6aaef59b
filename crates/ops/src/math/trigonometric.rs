//! Sine and cosine.

use graph::Output;
use kernel::{Grad, Gradient, GradientArgs, Op, OpDef, OpFlags, shape};
use tensor::{Complex32, Complex64, Result, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
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
        kernels: unary_kernels!(
            [f32, f64, Complex32, Complex64] => |x| x.cos(),
            [f16] => |x| f16::from_f32(x.to_f32().cos()),
            [bf16] => |x| bf16::from_f32(x.to_f32().cos()),
        ),
    },
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
        kernels: unary_kernels!(
            [f32, f64, Complex32, Complex64] => |x| x.sin(),
            [f16] => |x| f16::from_f32(x.to_f32().sin()),
            [bf16] => |x| bf16::from_f32(x.to_f32().sin()),
        ),
    },
];

/// Returns the cosine of each element.
#[track_caller]
pub fn cos(x: &Output) -> Output {
    x.graph().op("Cos").input(x).output()
}

/// Returns the sine of each element.
#[track_caller]
pub fn sin(x: &Output) -> Output {
    x.graph().op("Sin").input(x).output()
}

fn cos_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None]) };
    let sine = conjugate_if_complex(&grad, "Sin", args)?;
    let product = grad.graph().op("Mul").input(&grad).input(&sine).try_build()?.output(0);
    Ok(vec![Some(grad.graph().op("Neg").input(&product).try_build()?.output(0).into())])
}

fn sin_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None]) };
    let cosine = conjugate_if_complex(&grad, "Cos", args)?;
    Ok(vec![Some(grad.graph().op("Mul").input(&grad).input(&cosine).try_build()?.output(0).into())])
}

/// Returns `op(conj(x))`; the conjugate of a real number is itself.
fn conjugate_if_complex(grad: &Output, op: &str, args: &GradientArgs<'_>) -> Result<Output> {
    let graph = grad.graph();
    let mut x = args.input(0);
    if x.dtype().is_complex() {
        x = graph.op("Conj").input(&x).try_build()?.output(0);
    }
    Ok(graph.op(op).input(&x).try_build()?.output(0))
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_gradient, run_op};
    use tensor::Tensor;

    #[test]
    fn values_and_gradients() {
        let y = run_op("Cos", attrs![], &[Tensor::vector(&[0f32, std::f32::consts::PI])]).unwrap();
        assert!((y[0].as_slice::<f32>().unwrap()[1] + 1.0).abs() < 1e-6);
        let x = Tensor::vector(&[0.3f64, -1.2]);
        check_gradient(&[x.clone()], |_, xs| super::cos(&xs[0]));
        check_gradient(&[x], |_, xs| super::sin(&xs[0]));
    }
}
