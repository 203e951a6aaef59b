//! Conditionals and loops, as TensorFlow 1 builds them: `Switch` and `Merge`, `Enter`, `NextIteration` and `Exit`.
//!
//! A value from outside a branch or loop body is passed in when it is first used there: through a `Switch` on the predicate, or
//! through a constant `Enter`, which provides it to every iteration. Nodes without inputs get a control edge from the context's
//! pivot, so that they run only when the branch or the iteration does. Values of a branch or loop that its gradient uses are
//! [recalled](super::recall).

use super::contexts::{Conditional, Context, Kind, Loop, LoopVariable};
use super::{Graph, Operation, Output};
use crate::op_def::TypeSlot;
use tensor::{DType, PartialShape, Result, Status};

/// Options of a loop.
#[derive(Clone, Debug)]
pub struct LoopOptions {
    /// The number of iterations that may run at the same time.
    pub parallel_iterations: i64,
    /// The shapes that the loop variables keep through all iterations, where they are less specific than the initial ones.
    pub shape_invariants: Vec<Option<PartialShape>>,
}

impl Default for LoopOptions {
    fn default() -> LoopOptions {
        LoopOptions { parallel_iterations: 10, shape_invariants: Vec::new() }
    }
}

impl Graph {
    /// Returns the outputs of `on_true` or `on_false`, depending on the scalar `predicate`. Only that branch runs.
    ///
    /// Both must return the same number of outputs, of the same types.
    #[track_caller]
    pub fn cond(
        &self,
        predicate: &Output,
        on_true: impl FnOnce(&Graph) -> Vec<Output>,
        on_false: impl FnOnce(&Graph) -> Vec<Output>,
    ) -> Vec<Output> {
        // After a mistake, return as many outputs as the first branch, so that a program that destructures them can continue.
        let mut on_true = Some(on_true);
        let mut expected: Vec<TypeSlot> = Vec::new();
        let mut first_branch = |graph: &Graph| {
            let outputs = on_true.take().map_or_else(Vec::new, |on_true| on_true(graph));
            expected = outputs.iter().map(Output::slot).collect();
            outputs
        };
        let built = self.try_cond(predicate, &mut first_branch, on_false);
        if built.is_err() && expected.is_empty() {
            expected = on_true.take().map_or_else(Vec::new, |on_true| on_true(self)).iter().map(Output::slot).collect();
        }
        self.kept_outputs("cond", built, &expected)
    }

    /// As [`cond`](Self::cond), but returns mistakes as errors.
    #[track_caller]
    pub fn try_cond(
        &self,
        predicate: &Output,
        on_true: impl FnOnce(&Graph) -> Vec<Output>,
        on_false: impl FnOnce(&Graph) -> Vec<Output>,
    ) -> Result<Vec<Output>> {
        if predicate.op.is_mistaken() {
            self.finish()?;
        }
        if predicate.dtype() != DType::Bool {
            return Err(Status::invalid_argument(format!("the predicate of cond is {}, not bool", predicate.dtype())));
        }
        self.name_scope("cond", |graph| {
            let switch = graph.op("Switch").input(predicate).input(predicate).try_build()?;
            let pivot_true = graph.op("Identity").name("switch_t").input(&switch.output(1)).try_build()?;
            let pivot_false = graph.op("Identity").name("switch_f").input(&switch.output(0)).try_build()?;
            let predicate = graph.op("Identity").name("pred_id").input(predicate).try_build()?.output(0);
            let branch = |taken: bool, pivot: &Operation| {
                Context::new(Kind::Branch { predicate: predicate.edge(), taken }, Some(pivot.id()))
            };
            let (true_branch, true_outputs) = graph.in_context(branch(true, &pivot_true), |graph| {
                let outputs = on_true(graph);
                outputs.iter().map(|output| graph.leave_branch(output)).collect::<Result<Vec<_>>>()
            });
            let (false_branch, false_outputs) = graph.in_context(branch(false, &pivot_false), |graph| {
                let outputs = on_false(graph);
                outputs.iter().map(|output| graph.leave_branch(output)).collect::<Result<Vec<_>>>()
            });
            let (true_outputs, false_outputs) = (true_outputs?, false_outputs?);
            if true_outputs.len() != false_outputs.len() {
                return Err(Status::invalid_argument(format!(
                    "the branches of cond return {} and {} outputs",
                    true_outputs.len(),
                    false_outputs.len()
                )));
            }
            let merge = |(on_true, on_false): (&Output, &Output)| {
                let merge = graph.op("Merge").input(on_false).input(on_true).try_build()?;
                Ok(merge.output(0))
            };
            let merged: Vec<Output> = true_outputs.iter().zip(&false_outputs).map(merge).collect::<Result<Vec<_>>>()?;
            graph.note_conditional(Conditional {
                predicate: predicate.edge(),
                branches: [false_branch, true_branch],
                outputs: [false_outputs, true_outputs].map(|outputs| outputs.iter().map(Output::edge).collect()),
                merges: merged.iter().map(|output| output.op.id()).collect(),
            });
            Ok(merged)
        })
    }

    pub(super) fn note_conditional(&self, conditional: Conditional) {
        let mut state = self.shared.state.lock();
        let index = state.contexts.conditionals.len();
        for &merge in &conditional.merges {
            state.contexts.conditional_of.insert(merge, index);
        }
        for branch in conditional.branches {
            state.contexts.conditional_of_branch.insert(branch, index);
        }
        state.contexts.conditionals.push(conditional);
    }

    /// Wraps an output of a branch in an `Identity` in the branch, so that it is dead if the branch is not taken.
    fn leave_branch(&self, output: &Output) -> Result<Output> {
        Ok(self.op("Identity").input(output).try_build()?.output(0))
    }

    /// Repeats `body` while `condition` is true, and returns the final values of `variables`.
    #[track_caller]
    pub fn while_loop(
        &self,
        variables: &[Output],
        condition: impl FnOnce(&Graph, &[Output]) -> Output,
        body: impl FnOnce(&Graph, &[Output]) -> Vec<Output>,
    ) -> Vec<Output> {
        self.while_loop_with(variables, &LoopOptions::default(), condition, body)
    }

    /// As [`while_loop`](Self::while_loop), with options.
    #[track_caller]
    pub fn while_loop_with(
        &self,
        variables: &[Output],
        options: &LoopOptions,
        condition: impl FnOnce(&Graph, &[Output]) -> Output,
        body: impl FnOnce(&Graph, &[Output]) -> Vec<Output>,
    ) -> Vec<Output> {
        let expected: Vec<_> = variables.iter().map(Output::slot).collect();
        let built = self.try_while_loop(variables, options, condition, body);
        self.kept_outputs("while_loop", built, &expected)
    }

    /// Returns the outputs, or keeps the mistake and returns inert outputs.
    #[track_caller]
    fn kept_outputs(&self, what: &str, built: Result<Vec<Output>>, expected: &[TypeSlot]) -> Vec<Output> {
        match built {
            Ok(outputs) => outputs,
            Err(status) => {
                self.mistake_in(status, what);
                let op = self.mistaken_operation(what, what.to_owned(), expected.to_vec());
                (0..expected.len() as u32).map(|port| op.output(port)).collect()
            }
        }
    }

    /// As [`while_loop_with`](Self::while_loop_with), but returns mistakes as errors.
    #[track_caller]
    pub fn try_while_loop(
        &self,
        variables: &[Output],
        options: &LoopOptions,
        condition: impl FnOnce(&Graph, &[Output]) -> Output,
        body: impl FnOnce(&Graph, &[Output]) -> Vec<Output>,
    ) -> Result<Vec<Output>> {
        if options.parallel_iterations < 1 {
            return Err(Status::invalid_argument(format!(
                "parallel_iterations must be at least 1, not {}",
                options.parallel_iterations
            )));
        }
        self.name_scope("while", |graph| {
            let body = |graph: &Graph, inside: &[Output]| Ok(body(graph, inside));
            graph.build_loop(variables, options, None, |graph, merged| Ok(condition(graph, merged)), body)
        })
    }

    /// Builds a loop, which may compute the gradient of the loop `forward`; the shapes of such a loop are not checked.
    pub(super) fn build_loop(
        &self,
        variables: &[Output],
        options: &LoopOptions,
        forward: Option<usize>,
        condition: impl FnOnce(&Graph, &[Output]) -> Result<Output>,
        body: impl FnOnce(&Graph, &[Output]) -> Result<Vec<Output>>,
    ) -> Result<Vec<Output>> {
        if variables.is_empty() {
            return Err(Status::invalid_argument("a loop needs at least one variable"));
        }
        let frame_name = format!("{}/while_context", self.current_name_scope());
        let parallel_iterations = options.parallel_iterations;
        let enters = variables
            .iter()
            .map(|variable| {
                let enter = self
                    .op("Enter")
                    .input(variable)
                    .attr("frame_name", frame_name.as_str())
                    .attr("is_constant", false)
                    .attr("parallel_iterations", parallel_iterations)
                    .try_build()?
                    .output(0);
                enter.set_shape(&variable.shape())?;
                Ok(enter)
            })
            .collect::<Result<Vec<_>>>()?;
        let kind = Loop { frame_name, parallel_iterations, condition: None, variables: Vec::new(), gradient: None };
        let mut context = Context::new(Kind::Loop(kind), None);
        context.forward = forward;
        self.in_context(context, |graph| graph.loop_body(&enters, options, condition, body)).1
    }

    fn loop_body(
        &self,
        enters: &[Output],
        options: &LoopOptions,
        condition: impl FnOnce(&Graph, &[Output]) -> Result<Output>,
        body: impl FnOnce(&Graph, &[Output]) -> Result<Vec<Output>>,
    ) -> Result<Vec<Output>> {
        let is_gradient = {
            let mut state = self.shared.state.lock();
            for enter in enters {
                state.contexts.note(enter.op.id());
            }
            state.contexts.current.is_some_and(|current| state.contexts.all[current].forward.is_some())
        };
        // The second input of each merge is replaced once the body is built.
        let merges = enters
            .iter()
            .map(|enter| self.op("Merge").input(enter).input(enter).try_build())
            .collect::<Result<Vec<Operation>>>()?;
        let merged: Vec<Output> = merges.iter().map(|merge| merge.output(0)).collect();
        for (merge, invariant) in merged.iter().zip(&options.shape_invariants) {
            match invariant {
                Some(invariant) if is_gradient => self.relax(merge, invariant)?,
                Some(invariant) => self.check_and_relax(merge, invariant)?,
                None => {}
            }
        }
        self.set_pivot(&merged[0].op);
        let condition = condition(self, &merged)?;
        let loop_condition = self.op("LoopCond").input(&condition).try_build()?.output(0);
        self.with_loop(|kind| kind.condition = Some(loop_condition.edge()));
        let mut exits = Vec::with_capacity(merges.len());
        let mut inside = Vec::with_capacity(merges.len());
        for merge in &merged {
            let switch = self.op("Switch").input(merge).input(&loop_condition).try_build()?;
            exits.push(self.op("Exit").input(&switch.output(0)).try_build()?.output(0));
            inside.push(self.op("Identity").input(&switch.output(1)).try_build()?.output(0));
        }
        self.set_pivot(&inside[0].op);
        let next = body(self, &inside)?;
        if next.len() != merges.len() {
            return Err(Status::invalid_argument(format!(
                "the loop has {} variables, but its body returns {}",
                merges.len(),
                next.len()
            )));
        }
        for (index, (merge, value)) in merges.iter().zip(&next).enumerate() {
            let value = self.passed_in(value)?;
            if !is_gradient {
                check_invariant(&merged[index], &value)?;
            }
            let next = self.op("NextIteration").input(&value).try_build()?;
            merge.update_input(1, &next.output(0))?;
            let variable = LoopVariable {
                enter: enters[index].op.id(),
                merge: merge.id(),
                inside: inside[index].edge(),
                next: value.edge(),
                exit: exits[index].op.id(),
            };
            self.with_loop(|kind| kind.variables.push(variable));
        }
        for exit in &exits {
            self.leave_loop(&exit.op);
        }
        Ok(exits)
    }

    /// Adds a variable to the current loop, whose condition must be built already; `step` computes its next value from the current
    /// one. Returns its value after the loop, which belongs to the enclosing context.
    pub(super) fn add_loop_variable(
        &self,
        initial: &Output,
        step: impl FnOnce(&Output) -> Result<Output>,
    ) -> Result<(Output, Operation)> {
        let current = self.shared.state.lock().contexts.current;
        let outer = current.and_then(|current| self.shared.state.lock().contexts.all[current].outer);
        let no_loop = || Status::internal("a variable for a loop that isn't there");
        let kind = self.with_loop(|kind| kind.clone()).ok_or_else(no_loop)?;
        let condition = self.from_edge(kind.condition.ok_or_else(no_loop)?);
        let initial = match outer {
            Some(outer) => self.passed_into(initial, outer)?,
            None => initial.clone(),
        };
        let enter = self
            .op("Enter")
            .input(&initial)
            .attr("frame_name", kind.frame_name.as_str())
            .attr("is_constant", false)
            .attr("parallel_iterations", kind.parallel_iterations)
            .outside_contexts()
            .try_build()?;
        if let Some(current) = current {
            self.shared.state.lock().contexts.of_node.insert(enter.id(), current);
        }
        let enter = enter.output(0);
        let merge = self.op("Merge").input(&enter).input(&enter).try_build()?;
        self.relax(&merge.output(0), &PartialShape::unknown())?;
        let switch = self.op("Switch").input(&merge.output(0)).input(&condition).try_build()?;
        let value = step(&switch.output(1))?;
        let next = self.op("NextIteration").input(&value).try_build()?;
        merge.update_input(1, &next.output(0))?;
        let exit = self.op("Exit").input(&switch.output(0)).try_build()?;
        let variable = LoopVariable {
            enter: enter.op.id(),
            merge: merge.id(),
            inside: switch.output(1).edge(),
            next: next.input(0).edge(),
            exit: exit.id(),
        };
        self.with_loop(|kind| kind.variables.push(variable));
        self.leave_loop(&exit);
        Ok((exit.output(0), next))
    }

    /// Moves an `Exit` to the context around its loop.
    fn leave_loop(&self, exit: &Operation) {
        let mut state = self.shared.state.lock();
        let Some(current) = state.contexts.current else { return };
        state.contexts.loop_of.insert(exit.id(), current);
        match state.contexts.all[current].outer {
            Some(outer) => state.contexts.of_node.insert(exit.id(), outer),
            None => state.contexts.of_node.remove(&exit.id()),
        };
    }

    /// Replaces an inferred shape by a less specific one, since other iterations may change it.
    pub(super) fn relax(&self, output: &Output, shape: &PartialShape) -> Result<()> {
        self.shared.state.lock().inferred.replace_shape(output.edge(), shape)
    }

    fn check_and_relax(&self, merge: &Output, invariant: &PartialShape) -> Result<()> {
        let shape = merge.shape();
        if !is_at_least(&shape, invariant) {
            return Err(Status::invalid_argument(format!(
                "The shape invariant specified for {} is not compatible with the initial shape of the loop variable. It \
                 enters the loop with shape {shape}, but the specified shape invariant is {invariant}.",
                merge.name()
            )));
        }
        self.relax(merge, invariant)
    }

    /// Calls `change` with the current loop, if there is one.
    pub(super) fn with_loop<R>(&self, change: impl FnOnce(&mut Loop) -> R) -> Option<R> {
        let mut state = self.shared.state.lock();
        let current = state.contexts.current?;
        match &mut state.contexts.all[current].kind {
            Kind::Loop(kind) => Some(change(kind)),
            Kind::Branch { .. } => None,
        }
    }

    /// Runs `body` outside of all branches and loops, so that the nodes it adds run whatever those do.
    #[track_caller]
    pub fn outside_control_flow<R>(&self, body: impl FnOnce(&Graph) -> R) -> R {
        self.within(None, body)
    }

    /// Runs `body` in another context.
    #[track_caller]
    pub(super) fn within<R>(&self, context: Option<usize>, body: impl FnOnce(&Graph) -> R) -> R {
        let previous = std::mem::replace(&mut self.shared.state.lock().contexts.current, context);
        let result = self.without_control_dependencies(body);
        self.shared.state.lock().contexts.current = previous;
        result
    }

    fn set_pivot(&self, pivot: &Operation) {
        let mut state = self.shared.state.lock();
        if let Some(current) = state.contexts.current {
            state.contexts.all[current].pivot = Some(pivot.id());
        }
    }

    /// Runs `body` inside a new context.
    #[track_caller]
    pub(super) fn in_context<R>(&self, mut context: Context, body: impl FnOnce(&Graph) -> R) -> (usize, R) {
        let index = {
            let mut state = self.shared.state.lock();
            context.outer = state.contexts.current;
            state.contexts.all.push(context);
            let index = state.contexts.all.len() - 1;
            state.contexts.current = Some(index);
            index
        };
        let result = self.without_control_dependencies(body);
        let mut state = self.shared.state.lock();
        state.contexts.current = state.contexts.all[index].outer;
        (index, result)
    }

    /// Returns the equivalent of `input` in the current context, and passes it in if necessary.
    pub(super) fn passed_in(&self, input: &Output) -> Result<Output> {
        let current = self.shared.state.lock().contexts.current;
        match current {
            None => Ok(input.clone()),
            Some(current) => self.passed_into(input, current),
        }
    }

    pub(super) fn passed_into(&self, input: &Output, context: usize) -> Result<Output> {
        let (outer, known, is_forward) = {
            let state = self.shared.state.lock();
            if state.is_inside(input.op.id(), context) {
                return Ok(input.clone());
            }
            let is_forward = state.counterpart(input.op.id(), context).is_some();
            let context = &state.contexts.all[context];
            (context.outer, context.passed.get(&input.edge()).copied(), is_forward)
        };
        if let Some(edge) = known {
            return Ok(self.from_edge(edge));
        }
        if is_forward {
            let recalled = self.recall(input, context)?;
            self.shared.state.lock().contexts.all[context].passed.insert(input.edge(), recalled.edge());
            return Ok(recalled);
        }
        let outside = match outer {
            Some(outer) => self.passed_into(input, outer)?,
            None => input.clone(),
        };
        let kind = {
            let mut state = self.shared.state.lock();
            let context = &mut state.contexts.all[context];
            // The same outer value may have been passed in already, for another input.
            if let Some(&inner) = context.passed.get(&outside.edge()) {
                context.passed.insert(input.edge(), inner);
                drop(state);
                return Ok(self.from_edge(inner));
            }
            context.kind.clone()
        };
        // The node that passes the value in takes its own inputs unchanged.
        let builder = match &kind {
            Kind::Branch { predicate, .. } => self.op("Switch").input(&outside).input(&self.from_edge(*predicate)),
            Kind::Loop(kind) => self
                .op("Enter")
                .input(&outside)
                .attr("frame_name", kind.frame_name.as_str())
                .attr("is_constant", true)
                .attr("parallel_iterations", kind.parallel_iterations),
        };
        let op = builder.without_scope_controls().outside_contexts().try_build()?;
        let port = match kind {
            Kind::Branch { taken, .. } => u32::from(taken),
            Kind::Loop(_) => 0,
        };
        let inner = op.output(port);
        inner.set_shape(&outside.shape())?;
        let mut state = self.shared.state.lock();
        state.contexts.of_node.insert(op.id(), context);
        state.contexts.passing.insert(op.id());
        for edge in [input.edge(), outside.edge()] {
            state.contexts.all[context].passed.insert(edge, inner.edge());
        }
        drop(state);
        Ok(inner)
    }
}

/// Returns whether a shape is at least as specific as another, and compatible with it.
fn is_at_least(shape: &PartialShape, less: &PartialShape) -> bool {
    match (shape.dims(), less.dims()) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(dims), Some(less)) => {
            dims.len() == less.len() && dims.iter().zip(less).all(|(dim, less)| less.is_none() || dim == less)
        }
    }
}

/// Checks that a variable whose shape changes from one iteration to the next has a shape invariant.
fn check_invariant(merge: &Output, next: &Output) -> Result<()> {
    let (before, after) = (merge.shape(), next.shape());
    if is_at_least(&after, &before) {
        return Ok(());
    }
    Err(Status::invalid_argument(format!(
        "Input tensor '{}' enters the loop with shape {before}, but has shape {after} after one iteration. To allow the \
         shape to vary across iterations, say less of it with LoopOptions::shape_invariants.",
        merge.op.input(0).op.input(0).name()
    )))
}
