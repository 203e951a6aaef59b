//! Checks that a tensor has no NaN or infinity: CheckNumerics, CheckNumericsV2.

use crate::compose::{Gradients, unary_gradient};
use graph::Output;
use kernel::{
    BoxedKernel, Cost, Gradient, GradientArgs, Kernel, KernelBuilder, Op, OpContext, OpDef, OpFlags, kernels, shape,
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
        gradient: Gradient::Fn(check_gradient),
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
        gradient: Gradient::Fn(check_gradient),
        kernels: kernels!("T": [f32, f64, f16, bf16] => CheckNumerics),
    },
];

/// Returns the tensor, and fails the step if it contains an infinity or NaN.
#[track_caller]
pub fn check_numerics(tensor: &Output, message: &str) -> Output {
    tensor.graph().op("CheckNumerics").input(tensor).attr("message", message).output()
}

/// The gradient is checked as well.
fn check_gradient(args: &GradientArgs<'_>) -> Gradients {
    let message = args.op.attrs().string("message")?;
    let message = format!("Not a number (NaN) or infinity (Inf) values detected in gradient. {message}");
    unary_gradient(args, |grad, _, _| {
        let check = grad.graph().op(&args.op.op_type()).input(grad).attr("message", message.as_str());
        Ok(check.try_build()?.output(0))
    })
}

struct CheckNumerics<T> {
    message: String,
    /// Whether the error distinguishes the two infinities.
    tells_signs: bool,
    element: PhantomData<T>,
}

impl<T: Element + Float> CheckNumerics<T> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(CheckNumerics::<T> {
            message: builder.attrs().string("message")?,
            tells_signs: builder.node.op() == "CheckNumericsV2",
            element: PhantomData,
        })
    }

    /// Names the kinds of non-finite values in `values`.
    fn complaint(&self, values: &[T]) -> String {
        let has_nan = values.iter().any(|value| value.is_nan());
        let has_infinity =
            |negative: bool| values.iter().any(|value| value.is_infinite() && value.is_sign_negative() == negative);
        let (has_negative, has_positive) = (has_infinity(true), has_infinity(false));
        let kinds = if self.tells_signs {
            [(has_negative, "-Inf"), (has_positive, "+Inf"), (has_nan, "NaN")]
        } else {
            [(has_negative || has_positive, "Inf"), (has_nan, "NaN"), (false, "")]
        };
        let found: Vec<&str> = kinds.iter().filter(|(is_there, _)| *is_there).map(|(_, name)| *name).collect();
        match found[..] {
            [a, b, c] => format!("{a}, {b}, and {c}"),
            _ => found.join(" and "),
        }
    }
}

impl<T: Element + Float> Kernel for CheckNumerics<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let values = context.slice::<T>(0)?;
        // Without an early exit, so that the loop can be vectorized: usually all values are finite.
        if !values.iter().fold(true, |all, value| all & value.is_finite()) {
            return Err(Status::invalid_argument(format!(
                "{} : Tensor had {} values",
                self.message,
                self.complaint(values)
            )));
        }
        let value = context.take_value(0);
        context.set_output_value(0, value);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_gradient, run_op};
    use tensor::Tensor;

    /// The texts come from TensorFlow.
    #[test]
    fn errors_say_what_was_found() {
        let (nan, infinity) = (f32::NAN, f32::INFINITY);
        for (values, text, text_v2) in [
            (vec![1.0, nan], "NaN", "NaN"),
            (vec![infinity], "Inf", "+Inf"),
            (vec![infinity, -infinity], "Inf", "-Inf and +Inf"),
            (vec![nan, infinity], "Inf and NaN", "+Inf and NaN"),
            (vec![nan, infinity, 2.0, -infinity], "Inf and NaN", "-Inf, +Inf, and NaN"),
        ] {
            for (op, text) in [("CheckNumerics", text), ("CheckNumericsV2", text_v2)] {
                let status = run_op(op, attrs![("message", "m")], &[Tensor::vector(&values)]).unwrap_err();
                let expected = format!("m : Tensor had {text} values");
                assert!(status.message().starts_with(&expected), "{status} is not {expected}");
            }
        }
    }

    #[test]
    fn numbers_pass() {
        let y = run_op("CheckNumerics", attrs![("message", "m")], &[Tensor::vector(&[f16::MAX, f16::MIN])]).unwrap();
        assert_eq!(y[0].as_slice::<f16>().unwrap(), &[f16::MAX, f16::MIN]);
        check_gradient(&[Tensor::vector(&[1f64, 2.0])], |_, x| check_numerics(&x[0], "m"));
    }
}
