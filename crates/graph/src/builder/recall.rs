//! Recalls in a gradient what was computed on the way forward.
//!
//! The gradient of a loop is a loop that runs as often, backwards. What it needs of an iteration of the forward loop was
//! pushed on a stack there, and is popped in the iteration that goes back over it. Pushes and pops wait for the counters of
//! their loops, and the counters for them, so that they happen in the order of the iterations. A loop's invariants and
//! constants need no stack.

use super::control_flow::{Kind, Loop};
use super::{GraphBuilder, NodeId, Operation, Output, State};
use tensor::{Result, Status, Tensor};

/// What a loop that computes a gradient knows of its forward loop and of itself.
#[derive(Clone, Copy)]
pub(super) struct LoopGradient {
    /// Counts the forward iterations: what an iteration pushes comes after it.
    pub(super) forward_count: NodeId,
    /// Takes the forward count to the next iteration, after all that this one pushes.
    pub(super) forward_next: NodeId,
    /// What waits for pushes that may not happen, those in branches, if there are such.
    pub(super) forward_sync: Option<NodeId>,
    /// Counts down: what an iteration pops comes after it.
    pub(super) count: NodeId,
    /// What waits for pops, some of which may not happen.
    pub(super) sync: NodeId,
    /// The context in which the gradient was asked for.
    pub(super) base: Option<usize>,
}

/// The count of a loop's iterations.
pub(super) struct ForwardCount {
    /// How many there were.
    pub(super) total: Output,
    pub(super) count: NodeId,
    pub(super) next: NodeId,
}

impl GraphBuilder {
    /// Returns in the context of a gradient what `value` was in the context that the gradient belongs to.
    pub(super) fn recall(&self, value: &Output, context: usize) -> Result<Output> {
        let (original, gradient_loop) = {
            let state = self.shared.state.lock();
            let forward = state.contexts.all[context].forward;
            let passed = forward.map(|forward| &state.contexts.all[forward].passed);
            let edge = value.edge();
            let original =
                passed.and_then(|all| all.iter().find(|(_, inner)| **inner == edge).map(|(outer, _)| *outer));
            (original, state.gradient_loop_around(Some(context)))
        };
        if let Some(original) = original {
            return self.passed_into(&self.from_edge(original), context);
        }
        if value.op.op_type() == "Const" {
            let attrs = value.op.attrs();
            return self.within(Some(context), |graph| {
                let mut builder = graph.op("Const");
                for name in ["dtype", "value"] {
                    if let Some(attr) = attrs.get(name) {
                        builder = builder.attr(name, attr.clone());
                    }
                }
                Ok(builder.try_build()?.output(0))
            });
        }
        match gradient_loop {
            // Without a loop the value is there when the branch is taken.
            None => Ok(value.clone()),
            Some(gradient_loop) => self.recall_from_stack(value, context, gradient_loop),
        }
    }

    fn recall_from_stack(&self, value: &Output, context: usize, gradient_loop: usize) -> Result<Output> {
        let (gradient, forward, value_context) = {
            let state = self.shared.state.lock();
            let lost = || Status::internal("the gradient of a loop without the loop");
            let gradient = state.loop_gradient(gradient_loop).ok_or_else(lost)?;
            let forward = state.contexts.all[gradient_loop].forward.ok_or_else(lost)?;
            (gradient, forward, state.contexts.of_node.get(&value.op.id()).copied())
        };
        let dtype = value.dtype();
        let stack = self.within(gradient.base, |graph| {
            graph.colocate_with(&value.op, |graph| {
                let no_bound = graph.constant_tensor(&Tensor::scalar(-1i32));
                graph.op("StackV2").name("f_acc").input(&no_bound).attr("elem_type", dtype).try_build()
            })
        })?;
        let handle = stack.output(0);
        let push = self.within(value_context, |graph| {
            graph.colocate_with(&stack, |graph| {
                let count = graph.operation_by_id(gradient.forward_count);
                graph.op("StackPushV2").input(&handle).input(value).control(&count).try_build()
            })
        })?;
        if value_context == Some(forward) {
            self.operation_by_id(gradient.forward_next).add_control_input(&push);
        } else {
            self.forward_sync(gradient_loop, gradient, forward)?.add_control_input(&push);
        }
        let pop = self.within(Some(context), |graph| {
            graph.colocate_with(&stack, |graph| {
                let count = graph.operation_by_id(gradient.count);
                graph.op("StackPopV2").input(&handle).attr("elem_type", dtype).control(&count).try_build()
            })
        })?;
        self.operation_by_id(gradient.sync).add_control_input(&pop);
        let popped = pop.output(0);
        popped.set_shape(&value.shape())?;
        Ok(popped)
    }

    /// Returns the node in the forward loop that waits for pushes in branches, after making it if there is none.
    fn forward_sync(&self, gradient_loop: usize, gradient: LoopGradient, forward: usize) -> Result<Operation> {
        if let Some(sync) = gradient.forward_sync {
            return Ok(self.operation_by_id(sync));
        }
        let sync = self.within(Some(forward), |graph| graph.op("ControlTrigger").name("f_sync").try_build())?;
        self.operation_by_id(gradient.forward_next).add_control_input(&sync);
        let mut state = self.shared.state.lock();
        if let Kind::Loop(Loop { gradient: Some(gradient), .. }) = &mut state.contexts.all[gradient_loop].kind {
            gradient.forward_sync = Some(sync.id());
        }
        drop(state);
        Ok(sync)
    }

    /// Counts the iterations of a loop. Inside another loop whose gradient is computed too, the count starts after what the
    /// iteration before pushed.
    pub(super) fn count_iterations(&self, forward: usize, around: Option<LoopGradient>) -> Result<ForwardCount> {
        let outer = self.shared.state.lock().contexts.all[forward].outer;
        let zero = self.within(outer, |graph| {
            let mut builder = graph.op("Const").name("f_count");
            builder = builder.attr("dtype", tensor::DType::Int32);
            builder = builder.attr("value", tensor::tensor_to_proto(&Tensor::scalar(0i32))?);
            if let Some(around) = around {
                builder = builder.control(&graph.operation_by_id(around.forward_count));
            }
            builder.try_build()
        })?;
        let mut count = None;
        let (total, next) = self.within(Some(forward), |graph| {
            graph.add_loop_variable(&zero.output(0), |value| {
                let one = graph.constant_tensor(&Tensor::scalar(1i32));
                let add = graph.op("Add").input(value).input(&one).try_build()?;
                count = Some(add.id());
                Ok(add.output(0))
            })
        })?;
        let count = count.ok_or_else(|| Status::internal("a loop without a count"))?;
        Ok(ForwardCount { total, count, next: next.id() })
    }
}

impl State {
    /// Returns the innermost loop around a context, or itself, that computes a gradient.
    pub(super) fn gradient_loop_around(&self, context: Option<usize>) -> Option<usize> {
        let mut at = context;
        while let Some(index) = at {
            let context = &self.contexts.all[index];
            context.forward?;
            if matches!(context.kind, Kind::Loop(_)) {
                return Some(index);
            }
            at = context.outer;
        }
        None
    }

    pub(super) fn loop_gradient(&self, context: usize) -> Option<LoopGradient> {
        match &self.contexts.all[context].kind {
            Kind::Loop(kind) => kind.gradient,
            Kind::Branch { .. } => None,
        }
    }

    /// Returns the innermost context around the current one, or itself, that computes no gradient.
    pub(super) fn base_context(&self) -> Option<usize> {
        let mut at = self.contexts.current;
        while let Some(index) = at {
            if self.contexts.all[index].forward.is_none() {
                return at;
            }
            at = self.contexts.all[index].outer;
        }
        None
    }
}
