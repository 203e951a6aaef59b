//! Ops without data: NoOp, ControlTrigger, Abort.

use graph::{Graph, Operation};
use kernel::{BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, shape};
use tensor::{Result, Status};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef { name: "NoOp", inputs: &[], outputs: &[], attrs: &[], flags: OpFlags::NONE },
        shape: shape::unknown,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(NoOp))],
    },
    Op {
        def: OpDef { name: "ControlTrigger", inputs: &[], outputs: &[], attrs: &[], flags: OpFlags::NONE },
        shape: shape::unknown,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(NoOp))],
    },
    Op {
        def: OpDef {
            name: "Abort",
            inputs: &[],
            outputs: &[],
            attrs: &["error_msg: string = ''", "exit_without_error: bool = false"],
            flags: OpFlags::NONE,
        },
        shape: shape::unknown,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(Abort::create)],
    },
];

/// Returns an operation that does nothing except wait for others.
#[track_caller]
pub fn no_op(graph: &Graph) -> Operation {
    graph.op("NoOp").build()
}

/// Returns an operation that runs after all `ops`.
#[track_caller]
pub fn group(graph: &Graph, ops: &[Operation]) -> Operation {
    ops.iter().fold(graph.op("NoOp").name("group_deps"), |builder, op| builder.control(op)).build()
}

struct NoOp;

impl Kernel for NoOp {
    fn compute(&self, _: &mut OpContext<'_>) -> Result<()> {
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct Abort {
    message: String,
    quietly: bool,
}

impl Abort {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let message = builder.attrs().string("error_msg")?;
        BoxedKernel::new(Abort { message, quietly: builder.attrs().bool("exit_without_error")? })
    }
}

impl Kernel for Abort {
    /// TensorFlow ends the process here. A server is shared, so only the step ends.
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let message = if self.message.is_empty() { context.node_name() } else { &self.message };
        let how = if self.quietly { "Abort op asked to exit" } else { "Abort_op intentional failure" };
        Err(Status::aborted(format!("{how}; {message}")))
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, run_op};
    use graph::Graph;
    use tensor::Code;

    #[test]
    fn abort_ends_the_step_only() {
        let graph = Graph::with_ops(crate::registry());
        let (a, b) = (super::no_op(&graph), super::no_op(&graph));
        assert_eq!(super::group(&graph, &[a, b]).control_inputs().len(), 2);
        // A fetch doesn't run an op without outputs, so the kernel is called directly.
        assert!(run_op("NoOp", attrs![], &[]).unwrap().is_empty());
        let abort = graph.op("Abort").attr("error_msg", "stop here").build();
        let node = graph.graph().node(abort.id()).clone();
        let kernel::BoxedKernel::Sync(kernel) = crate::registry().create_kernel(&node, "").unwrap() else {
            panic!("Abort doesn't wait")
        };
        let step = std::sync::Arc::new(kernel::Step::detached());
        let mut outputs = kernel::Outputs::new();
        let mut context = kernel::OpContext::new(&mut [], &mut outputs, &step, "abort", Default::default(), false);
        let status = kernel.compute(&mut context).unwrap_err();
        assert_eq!(status.code(), Code::Aborted);
        assert!(status.message().contains("stop here"));
    }
}
