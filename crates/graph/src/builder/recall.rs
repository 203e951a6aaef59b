//! Makes values of the forward computation available in gradients.
//!
//! The gradient of a loop is a loop that runs as often, in reverse. The forward loop pushes the values that the gradient needs
//! on stacks, and the gradient loop pops them in the corresponding iterations. Pushes and pops are ordered by control edges
//! from and to the iteration counters of their loops. A loop's invariants and constants need no stack.
//!
//! A second-order gradient has a third loop over the same iterations, in forward order. It pushes the gradients that it finds
//! with respect to values of the first loop, and the loop that differentiates the first loop pops them.

use super::contexts::{Kind, Loop, LoopGradient, Source};
use super::{Graph, NodeId, Operation, Output};
use tensor::{Result, Status, Tensor};

/// The count of a loop's iterations.
pub(super) struct ForwardCount {
    /// The number of iterations.
    pub(super) total: Output,
    pub(super) count: NodeId,
    pub(super) next: NodeId,
}

impl Graph {
    /// Returns, in the context of a gradient, the value that `value` had in the context that the gradient belongs to.
    pub(super) fn recall(&self, value: &Output, context: usize) -> Result<Output> {
        let (is_passing, gradient_loop) = {
            let state = self.shared.state.lock();
            let of_value = state.contexts.of_node.get(&value.op.id()).copied();
            let is_passing = state.contexts.passing.contains(&value.op.id())
                && of_value.is_some()
                && of_value == state.contexts.all[context].forward;
            let gradient_loop = state.gradient_loop_around(Some(context));
            // A value of the same iteration can be used directly.
            (is_passing, gradient_loop.filter(|&around| !state.is_inside(value.op.id(), around)))
        };
        if is_passing {
            return self.passed_into(&value.op.input(0), context);
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
            // Outside of loops, the value exists whenever the branch is taken.
            None => Ok(value.clone()),
            Some(gradient_loop) => self.recall_from_stack(value, context, gradient_loop),
        }
    }

    fn recall_from_stack(&self, value: &Output, context: usize, gradient_loop: usize) -> Result<Output> {
        let (source_context, value_context) = {
            let state = self.shared.state.lock();
            let source = state.counterpart(value.op.id(), gradient_loop);
            // If both loops ran in the same direction, the second would pop in the wrong order.
            let source = source.filter(|&source| state.order(source) % 2 != state.order(gradient_loop) % 2);
            (source, state.contexts.of_node.get(&value.op.id()).copied())
        };
        let source_context = source_context.ok_or_else(|| {
            Status::unimplemented(format!(
                "the gradient of a while loop needs '{}', which no loop in the opposite direction has",
                value.name()
            ))
        })?;
        let source = self.source(gradient_loop, source_context)?;
        let gradient = self.gradient_of_loop(gradient_loop)?;
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
                let count = graph.operation_by_id(source.count);
                graph.op("StackPushV2").input(&handle).input(value).control(&count).try_build()
            })
        })?;
        if value_context == Some(source_context) {
            self.operation_by_id(source.next).add_control_input(&push);
        } else {
            self.source_sync(gradient_loop, source)?.add_control_input(&push);
        }
        let pop = self.within(Some(context), |graph| {
            graph.colocate_with(&stack, |graph| {
                let count = graph.operation_by_id(gradient.count);
                graph.op("StackPopV2").input(&handle).attr("elem_type", dtype).control(&count).try_build()
            })
        })?;
        self.operation_by_id(gradient.sync).add_control_input(&pop);
        self.shared.state.lock().contexts.recalled.insert(pop.id(), value.edge());
        let popped = pop.output(0);
        popped.set_shape(&value.shape())?;
        Ok(popped)
    }

    /// Returns a loop whose values `gradient_loop` pops. Adds a counter of its iterations if it has none.
    fn source(&self, gradient_loop: usize, context: usize) -> Result<Source> {
        let gradient = self.gradient_of_loop(gradient_loop)?;
        if let Some(source) = gradient.sources.iter().find(|source| source.context == context) {
            return Ok(*source);
        }
        let outer_loop = {
            let state = self.shared.state.lock();
            state.gradient_loop_around(state.contexts.all[gradient_loop].outer)
        };
        let source_around = self.source_around(context, outer_loop)?;
        let count = self.count_iterations(context, source_around)?;
        // The pops begin after the last push: in this iteration of the enclosing loops, or in all of them.
        match outer_loop.zip(source_around) {
            Some((outer_loop, source)) => self.source_sync(outer_loop, source)?.add_control_input(&count.total.op),
            None => self.operation_by_id(gradient.start).add_control_input(&count.total.op),
        }
        let source = Source { context, count: count.count, next: count.next, sync: None };
        self.change_gradient_of_loop(gradient_loop, |gradient| gradient.sources.push(source));
        Ok(source)
    }

    /// Returns the loop around `context` whose values `outer_loop` pops, if there is one.
    pub(super) fn source_around(&self, context: usize, outer_loop: Option<usize>) -> Result<Option<Source>> {
        let Some(outer_loop) = outer_loop else { return Ok(None) };
        let outer = {
            let state = self.shared.state.lock();
            let root = state.root(outer_loop);
            state.outwards(state.contexts.all[context].outer).find(|&outer| state.root(outer) == root)
        };
        // Within the same iteration of `outer_loop` no stack is needed.
        match outer.filter(|&outer| outer != outer_loop) {
            Some(outer) => self.source(outer_loop, outer).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the node in a source's loop that waits for pushes in branches, and adds it if there is none.
    fn source_sync(&self, gradient_loop: usize, source: Source) -> Result<Operation> {
        let known = self.source(gradient_loop, source.context)?.sync;
        if let Some(sync) = known {
            return Ok(self.operation_by_id(sync));
        }
        let sync = self.within(Some(source.context), |graph| graph.op("ControlTrigger").name("f_sync").try_build())?;
        self.operation_by_id(source.next).add_control_input(&sync);
        self.change_gradient_of_loop(gradient_loop, |gradient| {
            for known in gradient.sources.iter_mut().filter(|known| known.context == source.context) {
                known.sync = Some(sync.id());
            }
        });
        Ok(sync)
    }

    fn gradient_of_loop(&self, context: usize) -> Result<LoopGradient> {
        let gradient = self.shared.state.lock().loop_gradient(context);
        gradient.ok_or_else(|| Status::internal("the gradient of a loop without the loop"))
    }

    fn change_gradient_of_loop(&self, context: usize, change: impl FnOnce(&mut LoopGradient)) {
        let mut state = self.shared.state.lock();
        if let Kind::Loop(Loop { gradient: Some(gradient), .. }) = &mut state.contexts.all[context].kind {
            change(gradient);
        }
    }

    /// Adds a counter of a loop's iterations. Inside another loop whose gradient is computed too, it starts after the pushes of
    /// the previous outer iteration.
    pub(super) fn count_iterations(&self, forward: usize, around: Option<Source>) -> Result<ForwardCount> {
        let outer = self.shared.state.lock().contexts.all[forward].outer;
        let zero = self.within(outer, |graph| {
            let mut builder = graph.op("Const").name("f_count");
            builder = builder.attr("dtype", tensor::DType::Int32);
            builder = builder.attr("value", tensor::tensor_to_proto(&Tensor::scalar(0i32))?);
            if let Some(around) = around {
                builder = builder.control(&graph.operation_by_id(around.count));
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
