//! Ops that pass tensors through: Identity, IdentityN, StopGradient, PreventGradient, Snapshot, DeepCopy and others.

use crate::elementwise::{PASS_THROUGH, PassThrough};
use graph::{Output, ShapeContext};
use kernel::{
    BoxedKernel, Cost, Grad, Gradient, GradientArgs, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags, shape,
};
use tensor::{DType, Result, Status};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Identity",
            inputs: &["input: T"],
            outputs: &["output: T"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(pass_gradients),
        kernels: PASS_THROUGH,
    },
    Op {
        def: OpDef {
            name: "RefIdentity",
            inputs: &["input: Ref(T)"],
            outputs: &["output: Ref(T)"],
            attrs: &["T: type"],
            flags: OpFlags::ALLOWS_UNINITIALIZED_INPUT,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(pass_gradients),
        kernels: PASS_THROUGH,
    },
    Op {
        def: OpDef {
            name: "IdentityN",
            inputs: &["input: T"],
            outputs: &["output: T"],
            attrs: &["T: list(type) >= 1"],
            flags: OpFlags::NONE,
        },
        shape: each_unchanged,
        gradient: Gradient::Fn(pass_gradients),
        kernels: &[KernelDef::any(|_| BoxedKernel::new(PassAll))],
    },
    Op {
        def: OpDef {
            name: "StopGradient",
            inputs: &["input: T"],
            outputs: &["output: T"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::NotDifferentiable,
        kernels: PASS_THROUGH,
    },
    Op {
        def: OpDef {
            name: "PreventGradient",
            inputs: &["input: T"],
            outputs: &["output: T"],
            attrs: &["T: type", "message: string = ''"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(prevent_gradient_gradient),
        kernels: PASS_THROUGH,
    },
    Op {
        def: OpDef {
            name: "Snapshot",
            inputs: &["input: T"],
            outputs: &["output: T"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: PASS_THROUGH,
    },
    Op {
        def: OpDef {
            name: "GuaranteeConst",
            inputs: &["input: T"],
            outputs: &["output: T"],
            attrs: &["T: type"],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(GuaranteeConst))],
    },
    Op {
        def: OpDef {
            name: "DeepCopy",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: type"],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(DeepCopy))],
    },
];

/// Returns `input` unchanged, under another name.
#[track_caller]
pub fn identity(input: &Output) -> Output {
    input.graph().op("Identity").input(input).output()
}

/// Returns all `inputs` unchanged, once all of them have arrived.
#[track_caller]
pub fn identity_n(inputs: &[Output]) -> Vec<Output> {
    match inputs.first() {
        Some(first) => first.graph().op("IdentityN").inputs(inputs).outputs(),
        None => Vec::new(),
    }
}

/// Returns `input`, and stops its gradient.
#[track_caller]
pub fn stop_gradient(input: &Output) -> Output {
    input.graph().op("StopGradient").input(input).output()
}

/// Returns `input`; a gradient through it is an error with this `message`.
#[track_caller]
pub fn prevent_gradient(input: &Output, message: &str) -> Output {
    input.graph().op("PreventGradient").input(input).attr("message", message).output()
}

fn pass_gradients(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    Ok(args.grads.to_vec())
}

fn prevent_gradient_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let reason = args.op.attrs().string("message")?;
    Err(Status::not_found(format!("Gradient explicitly disabled. Reason: {reason}")))
}

fn each_unchanged(c: &mut ShapeContext<'_>) -> Result<()> {
    for index in 0..c.num_outputs() {
        let shape = c.input(index);
        c.set_output(index, shape);
        if let (Some(from), Some(to)) = (c.input_handles.get(index), c.output_handles.get_mut(index)) {
            to.clone_from(from);
        }
    }
    Ok(())
}

/// Passes its input through, which must not be a handle: the resource of a handle may change.
struct GuaranteeConst;

impl Kernel for GuaranteeConst {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.take_input(0)?;
        if input.dtype() == DType::Resource {
            return Err(Status::invalid_argument("Input tensor cannot be a resource variable handle."));
        }
        context.set_output(0, input);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct PassAll;

impl Kernel for PassAll {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        for index in 0..context.num_outputs() {
            let value = context.take_value(index);
            context.set_output_value(index, value);
        }
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct DeepCopy;

impl Kernel for DeepCopy {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        if matches!(context.input(0), Ok(tensor) if tensor.is_unique()) {
            return PassThrough.compute(context);
        }
        let copy = context.input(0)?.deep_copy()?;
        context.set_output(0, copy);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_gradient, check_shape, run_op};
    use graph::Graph;
    use tensor::{DType, PartialShape, Tensor};

    #[test]
    fn values_pass() {
        let (a, b) = (Tensor::scalar(1f32), Tensor::vector(&[2i64]));
        let outputs = run_op("IdentityN", attrs![], &[a, b]).unwrap();
        assert_eq!(outputs[1].as_slice::<i64>().unwrap(), &[2]);
        let x = Tensor::vector(&[2i64]);
        assert!(run_op("Identity", attrs![], &[x.clone()]).unwrap()[0].shares_memory(&x));
        assert!(!run_op("DeepCopy", attrs![], &[x.clone()]).unwrap()[0].shares_memory(&x));
        check_shape("IdentityN", attrs![("T", &[DType::Float, DType::Float][..])], "[2];?", "[2];?");
    }

    #[test]
    fn gradients() {
        check_gradient(&[Tensor::vector(&[1f64, 2.0])], |_, xs| super::identity(&xs[0]));
        let graph = Graph::with_ops(crate::registry());
        let x = crate::array::placeholder(&graph, DType::Double, &PartialShape::scalar());
        let stopped = super::stop_gradient(&x);
        assert!(graph.gradients(&[stopped], &[x.clone()]).unwrap()[0].is_none());
        let prevented = super::prevent_gradient(&x, "because");
        let status = graph.gradients(&[prevented], &[x]).unwrap_err();
        assert!(status.message().contains("because"));
    }
}
