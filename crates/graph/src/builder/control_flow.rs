//! Conditionals and loops, as TensorFlow 1 builds them: `Switch` and `Merge`, `Enter`, `NextIteration` and `Exit`.
//!
//! Inside a branch or a loop's body, a value from outside is passed in when it is first used: through a `Switch` on the
//! predicate, or through an `Enter` that gives it to every iteration. Nodes without inputs wait for the context's pivot,
//! so that they run only when the branch or the iteration does.

use super::{GraphBuilder, NodeId, Operation, Output, State};
use crate::Edge;
use foldhash::{HashMap, HashMapExt};
use tensor::{DType, Result, Status};

/// A branch of a conditional or the body of a loop.
pub(super) struct Context {
    kind: Kind,
    /// The context around it.
    outer: Option<usize>,
    /// What nodes without inputs wait for.
    pivot: Option<NodeId>,
    /// Values from outside, and what stands for them inside.
    passed: HashMap<Edge, Edge>,
}

#[derive(Clone)]
enum Kind {
    Branch { predicate: Edge, taken: bool },
    Loop { frame_name: String, parallel_iterations: i64 },
}

/// The contexts of a graph.
#[derive(Default)]
pub(super) struct Contexts {
    all: Vec<Context>,
    current: Option<usize>,
    of_node: HashMap<NodeId, usize>,
}

impl Contexts {
    pub(super) fn note(&mut self, node: NodeId) {
        if let Some(current) = self.current {
            self.of_node.insert(node, current);
        }
    }

    pub(super) fn pivot(&self) -> Option<NodeId> {
        self.current.and_then(|current| self.all[current].pivot)
    }
}

impl GraphBuilder {
    /// Returns `on_true(…)` or `on_false(…)`, whichever the scalar `predicate` says; only that one is run.
    ///
    /// Both must return as many outputs of the same types.
    #[track_caller]
    pub fn cond(
        &self,
        predicate: &Output,
        on_true: impl FnOnce(&GraphBuilder) -> Vec<Output>,
        on_false: impl FnOnce(&GraphBuilder) -> Vec<Output>,
    ) -> Vec<Output> {
        match self.try_cond(predicate, on_true, on_false) {
            Ok(outputs) => outputs,
            Err(status) => panic!("{status}"),
        }
    }

    /// As [`cond`](Self::cond), but returns mistakes.
    pub fn try_cond(
        &self,
        predicate: &Output,
        on_true: impl FnOnce(&GraphBuilder) -> Vec<Output>,
        on_false: impl FnOnce(&GraphBuilder) -> Vec<Output>,
    ) -> Result<Vec<Output>> {
        if predicate.dtype() != DType::Bool {
            return Err(Status::invalid_argument(format!("the predicate of cond is {}, not bool", predicate.dtype())));
        }
        self.name_scope("cond", |graph| {
            let switch = graph.op("Switch").input(predicate).input(predicate).try_build()?;
            let pivot_true = graph.op("Identity").name("switch_t").input(&switch.output(1)).try_build()?;
            let pivot_false = graph.op("Identity").name("switch_f").input(&switch.output(0)).try_build()?;
            let predicate = graph.op("Identity").name("pred_id").input(predicate).try_build()?.output(0);
            let branch = |taken: bool, pivot: &Operation| Context {
                kind: Kind::Branch { predicate: predicate.edge(), taken },
                outer: None,
                pivot: Some(pivot.id()),
                passed: HashMap::new(),
            };
            let (_, true_outputs) = graph.in_context(branch(true, &pivot_true), |graph| {
                let outputs = on_true(graph);
                outputs.iter().map(|output| graph.leave_branch(output)).collect::<Result<Vec<_>>>()
            });
            let (_, false_outputs) = graph.in_context(branch(false, &pivot_false), |graph| {
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
            true_outputs.iter().zip(&false_outputs).map(merge).collect()
        })
    }

    /// Makes sure that what a branch returns was made in it, so that it is dead when the branch isn't taken.
    fn leave_branch(&self, output: &Output) -> Result<Output> {
        Ok(self.op("Identity").input(output).try_build()?.output(0))
    }

    /// Returns what `variables` are once `condition` says no, after as many turns through `body` as it takes.
    #[track_caller]
    pub fn while_loop(
        &self,
        variables: &[Output],
        condition: impl FnOnce(&GraphBuilder, &[Output]) -> Output,
        body: impl FnOnce(&GraphBuilder, &[Output]) -> Vec<Output>,
    ) -> Vec<Output> {
        match self.try_while_loop(variables, 10, condition, body) {
            Ok(outputs) => outputs,
            Err(status) => panic!("{status}"),
        }
    }

    /// As [`while_loop`](Self::while_loop), with a bound on how many iterations may be under way at once; returns mistakes.
    pub fn try_while_loop(
        &self,
        variables: &[Output],
        parallel_iterations: i64,
        condition: impl FnOnce(&GraphBuilder, &[Output]) -> Output,
        body: impl FnOnce(&GraphBuilder, &[Output]) -> Vec<Output>,
    ) -> Result<Vec<Output>> {
        if variables.is_empty() {
            return Err(Status::invalid_argument("a loop needs at least one variable"));
        }
        self.name_scope("while", |graph| {
            let frame_name = format!("{}/while_context", graph.current_name_scope());
            let enters = variables
                .iter()
                .map(|variable| {
                    let enter = graph
                        .op("Enter")
                        .input(variable)
                        .attr("frame_name", frame_name.as_str())
                        .attr("is_constant", false)
                        .attr("parallel_iterations", parallel_iterations)
                        .try_build()?;
                    Ok(enter.output(0))
                })
                .collect::<Result<Vec<_>>>()?;
            let context = Context {
                kind: Kind::Loop { frame_name, parallel_iterations },
                outer: None,
                pivot: None,
                passed: HashMap::new(),
            };
            graph.in_context(context, |graph| graph.loop_body(&enters, condition, body)).1
        })
    }

    fn loop_body(
        &self,
        enters: &[Output],
        condition: impl FnOnce(&GraphBuilder, &[Output]) -> Output,
        body: impl FnOnce(&GraphBuilder, &[Output]) -> Vec<Output>,
    ) -> Result<Vec<Output>> {
        for enter in enters {
            self.shared.state.lock().contexts.note(enter.op.id());
        }
        // The second input of each merge is replaced once the body is known.
        let merges = enters
            .iter()
            .map(|enter| self.op("Merge").input(enter).input(enter).try_build())
            .collect::<Result<Vec<Operation>>>()?;
        let merged: Vec<Output> = merges.iter().map(|merge| merge.output(0)).collect();
        self.set_pivot(&merged[0].op);
        let condition = condition(self, &merged);
        let loop_condition = self.op("LoopCond").input(&condition).try_build()?.output(0);
        let mut exits = Vec::with_capacity(merges.len());
        let mut inside = Vec::with_capacity(merges.len());
        for merge in &merged {
            let switch = self.op("Switch").input(merge).input(&loop_condition).try_build()?;
            exits.push(self.op("Exit").input(&switch.output(0)).try_build()?.output(0));
            inside.push(self.op("Identity").input(&switch.output(1)).try_build()?.output(0));
        }
        self.set_pivot(&inside[0].op);
        let next = body(self, &inside);
        if next.len() != merges.len() {
            return Err(Status::invalid_argument(format!(
                "the loop has {} variables, but its body returns {}",
                merges.len(),
                next.len()
            )));
        }
        for (merge, value) in merges.iter().zip(&next) {
            let next = self.op("NextIteration").input(value).try_build()?;
            merge.update_input(1, &next.output(0))?;
        }
        // What leaves the loop belongs to the context around it.
        let mut state = self.shared.state.lock();
        let outer = state.contexts.current.and_then(|current| state.contexts.all[current].outer);
        for exit in &exits {
            match outer {
                Some(outer) => state.contexts.of_node.insert(exit.op.id(), outer),
                None => state.contexts.of_node.remove(&exit.op.id()),
            };
        }
        Ok(exits)
    }

    fn set_pivot(&self, pivot: &Operation) {
        let mut state = self.shared.state.lock();
        if let Some(current) = state.contexts.current {
            state.contexts.all[current].pivot = Some(pivot.id());
        }
    }

    /// Runs `body` inside a new context.
    fn in_context<R>(&self, mut context: Context, body: impl FnOnce(&GraphBuilder) -> R) -> (usize, R) {
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

    /// Returns what stands for `input` in the current context, after passing it in where need be.
    pub(super) fn passed_in(&self, input: &Output) -> Result<Output> {
        let current = self.shared.state.lock().contexts.current;
        match current {
            None => Ok(input.clone()),
            Some(current) => self.passed_into(input, current),
        }
    }

    fn passed_into(&self, input: &Output, context: usize) -> Result<Output> {
        let (outer, known) = {
            let state = self.shared.state.lock();
            if state.is_inside(input.op.id(), context) {
                return Ok(input.clone());
            }
            let context = &state.contexts.all[context];
            (context.outer, context.passed.get(&input.edge()).copied())
        };
        if let Some(edge) = known {
            return Ok(self.from_edge(edge));
        }
        let outside = match outer {
            Some(outer) => self.passed_into(input, outer)?,
            None => input.clone(),
        };
        let kind = self.shared.state.lock().contexts.all[context].kind.clone();
        // The passing node itself takes its inputs as they are.
        let builder = match &kind {
            Kind::Branch { predicate, .. } => self.op("Switch").input(&outside).input(&self.from_edge(*predicate)),
            Kind::Loop { frame_name, parallel_iterations } => self
                .op("Enter")
                .input(&outside)
                .attr("frame_name", frame_name.as_str())
                .attr("is_constant", true)
                .attr("parallel_iterations", *parallel_iterations),
        };
        let op = builder.without_scope_controls().outside_contexts().try_build()?;
        let port = match kind {
            Kind::Branch { taken, .. } => u32::from(taken),
            Kind::Loop { .. } => 0,
        };
        let inner = op.output(port);
        let mut state = self.shared.state.lock();
        state.contexts.of_node.insert(op.id(), context);
        state.contexts.all[context].passed.insert(input.edge(), inner.edge());
        Ok(inner)
    }
}

impl State {
    /// Returns whether a node was made in a context or in one inside it.
    fn is_inside(&self, node: NodeId, context: usize) -> bool {
        let mut at = self.contexts.of_node.get(&node).copied();
        while let Some(index) = at {
            if index == context {
                return true;
            }
            at = self.contexts.all[index].outer;
        }
        false
    }
}
