//! CheckNumerics: an error when a tensor holds a NaN or an infinity.

use graph::Output;
use kernel::{
    BoxedKernel, Grad, Gradient, GradientArgs, Kernel, KernelBuilder, Op, OpContext, OpDef, OpFlags, kernels, shape,
};
use num_traits::Float;
use std::marker::PhantomData;
use tensor::{Element, Result, Status, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "CheckNumerics",
            inputs: &["tensor: T"],
            outputs: &["output: T"],
            attrs: &["T: {bfloat16, half, float, double}", "message: string"],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(check_numerics_gradient),
        kernels: kernels!("T": [f32, f64, f16, bf16] => CheckNumerics),
    },
    Op {
        def: OpDef {
            name: "CheckNumericsV2",
            inputs: &["tensor: T"],
            outputs: &["output: T"],
            attrs: &["T: {bfloat16, half, float, double}", "message: string"],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(check_numerics_gradient),
        kernels: kernels!("T": [f32, f64, f16, bf16] => CheckNumerics),
    },
];

/// Returns `tensor`, or fails with `message` when it holds a NaN or an infinity.
#[track_caller]
pub fn check_numerics(tensor: &Output, message: &str) -> Output {
    tensor.graph().op("CheckNumerics").input(tensor).attr("message", message).output()
}

fn check_numerics_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None]) };
    let message = format!(
        "Not a number (NaN) or infinity (Inf) values detected in gradient. {}",
        args.op.attrs().string("message")?
    );
    let checked = grad.graph().op(&args.op.op_type()).input(&grad).attr("message", message).try_build()?;
    Ok(vec![Some(checked.try_output(0)?.into())])
}

struct CheckNumerics<T> {
    message: String,
    /// Whether the error tells the two infinities apart.
    shows_signs: bool,
    element: PhantomData<fn(T)>,
}

impl<T: Element + Float> CheckNumerics<T> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let message = builder.attrs().string("message")?;
        let shows_signs = builder.node.op() == "CheckNumericsV2";
        BoxedKernel::new(CheckNumerics::<T> { message, shows_signs, element: PhantomData })
    }

    fn failure(&self, elements: &[T]) -> Status {
        let any = |is: fn(T) -> bool| elements.iter().any(|&element| is(element));
        let mut found = Vec::new();
        if self.shows_signs {
            if any(|value| value == T::neg_infinity()) {
                found.push("-Inf");
            }
            if any(|value| value == T::infinity()) {
                found.push("+Inf");
            }
        } else if any(T::is_infinite) {
            found.push("Inf");
        }
        if any(T::is_nan) {
            found.push("NaN");
        }
        let found = match &found[..] {
            [a, b, c] => format!("{a}, {b}, and {c}"),
            others => others.join(" and "),
        };
        Status::invalid_argument(format!("{} : Tensor had {found} values", self.message))
    }
}

impl<T: Element + Float> Kernel for CheckNumerics<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.take_input(0)?;
        let elements = input.as_slice::<T>()?;
        // Adding up zeros is quicker than a branch for each element: only what is not finite leaves a NaN.
        let clean = elements.chunks(4096).all(|chunk| {
            let sum = chunk.iter().fold(T::zero(), |sum, &element| sum + (element - element));
            !sum.is_nan()
        });
        if !clean {
            return Err(self.failure(elements));
        }
        context.set_output(0, input);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_gradient, run_op};
    use tensor::Tensor;

    #[test]
    fn what_is_not_finite_is_an_error() {
        let check = |op: &str, values: &[f32]| {
            run_op(op, attrs![("message", "msg")], &[Tensor::vector(values)])
                .map_err(|status| status.message().to_owned())
        };
        assert!(check("CheckNumerics", &[1.0, f32::MAX, -0.0]).is_ok());
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let error = |op: &str, values: &[f32]| check(op, values).unwrap_err();
        // As TensorFlow says it.
        assert!(error("CheckNumerics", &[1.0, nan, inf]).starts_with("msg : Tensor had Inf and NaN values"));
        assert!(error("CheckNumericsV2", &[-inf, inf]).starts_with("msg : Tensor had -Inf and +Inf values"));
        assert!(error("CheckNumerics", &[nan]).starts_with("msg : Tensor had NaN values"));
        check_gradient(&[Tensor::vector(&[1f64])], |_, xs| super::check_numerics(&xs[0], "m"));
    }
}
