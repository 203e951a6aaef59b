//! The autodiff walk: adds to a graph the nodes that compute gradients.

use super::control_flow::Kind;
use super::{Grad, Gradient, GradientArgs, GraphBuilder, IndexedSlices, NodeId, Operation, Output};
use crate::Edge;
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use std::collections::BinaryHeap;
use tensor::{Result, Status, Tensor};

/// A conditional or a loop, and the nodes that bring its results out of it.
struct Whole {
    kind: WholeKind,
    results: Vec<NodeId>,
}

enum WholeKind {
    Conditional(usize),
    Loop(usize),
}

impl GraphBuilder {
    /// Returns the gradients of the sum of `ys` with respect to each of `xs`; `None` where nothing flows.
    pub fn gradients(&self, ys: &[Output], xs: &[Output]) -> Result<Vec<Option<Grad>>> {
        self.gradients_with(ys, xs, &[], &[])
    }

    /// As [`gradients_with`](Self::gradients_with), but the gradients with respect to an op's inputs are all computed before
    /// any of them is used, so that none is computed from a variable that another has changed already.
    pub fn gradients_gated(
        &self,
        ys: &[Output],
        xs: &[Output],
        grad_ys: &[Option<Output>],
    ) -> Result<Vec<Option<Grad>>> {
        self.name_scope("gradients", |graph| graph.walk(ys, xs, grad_ys, &[], true))
    }

    /// Returns gradients of which none is there before all are.
    fn gate(&self, grads: Vec<Option<Grad>>) -> Result<Vec<Option<Grad>>> {
        self.name_scope("tuple", |graph| {
            let mut gate = graph.op("NoOp").name("group_deps").without_scope_controls();
            for grad in grads.iter().flatten() {
                gate = match grad {
                    Grad::Dense(output) => gate.control(&graph.passed_in(output)?.op),
                    Grad::Slices(slices) => gate.control(&graph.passed_in(&slices.values)?.op),
                };
            }
            let gate = gate.try_build()?;
            let pass = |output: &Output| {
                graph.colocate_with(&output.op, |graph| {
                    let op = graph.op("Identity").name("control_dependency").input(output).control(&gate);
                    op.try_build().map(|op| op.output(0))
                })
            };
            let pass_all = |grad: Grad| {
                Ok(match grad {
                    Grad::Dense(output) => Grad::Dense(pass(&output)?),
                    Grad::Slices(slices) => Grad::Slices(IndexedSlices { values: pass(&slices.values)?, ..slices }),
                })
            };
            grads.into_iter().map(|grad| grad.map(pass_all).transpose()).collect()
        })
    }

    /// As [`gradients`](Self::gradients), with the gradients of `ys` given (missing ones are ones) and outputs at which the
    /// walk stops.
    pub fn gradients_with(
        &self,
        ys: &[Output],
        xs: &[Output],
        grad_ys: &[Option<Output>],
        stop: &[Output],
    ) -> Result<Vec<Option<Grad>>> {
        self.name_scope("gradients", |graph| graph.walk(ys, xs, grad_ys, stop, false))
    }

    pub(super) fn walk(
        &self,
        ys: &[Output],
        xs: &[Output],
        grad_ys: &[Option<Output>],
        stop: &[Output],
        gated: bool,
    ) -> Result<Vec<Option<Grad>>> {
        let targets: HashSet<Edge> = xs.iter().map(Output::edge).collect();
        let stop: HashSet<NodeId> = stop.iter().map(|output| output.op.id()).collect();
        let between = self.between(ys, &targets);
        let mut pending: HashMap<Edge, Vec<Grad>> = HashMap::new();
        // Consumers have larger ids than what they consume, but for the back edges of loops.
        let mut queue: BinaryHeap<NodeId> = BinaryHeap::new();
        let mut queued: HashSet<NodeId> = HashSet::new();
        for (index, y) in ys.iter().enumerate() {
            let grad = match grad_ys.get(index).cloned().flatten() {
                Some(grad) => grad,
                None => self
                    .colocate_with(&y.op, |graph| graph.op("OnesLike").input(y).try_build())
                    .map(|op| op.output(0))?,
            };
            pending.entry(y.edge()).or_default().push(Grad::Dense(grad));
            if queued.insert(y.op.id()) {
                queue.push(y.op.id());
            }
        }
        let mut results: HashMap<Edge, Grad> = HashMap::new();
        // Conditionals and loops are gone back over as a whole, when the first of their results is reached.
        let mut is_done: HashSet<NodeId> = HashSet::new();
        while let Some(id) = queue.pop() {
            if is_done.contains(&id) {
                continue;
            }
            if let Some(whole) = self.whole_of(id) {
                let mut grads = Vec::with_capacity(whole.results.len());
                for &result in &whole.results {
                    is_done.insert(result);
                    let edge = Edge { node: result, port: 0 };
                    let grad = match pending.remove(&edge) {
                        Some(parts) => Some(self.aggregate(parts, &self.operation_by_id(result))?),
                        None => None,
                    };
                    if let Some(grad) = &grad
                        && targets.contains(&edge)
                    {
                        results.insert(edge, grad.clone());
                    }
                    grads.push(grad.filter(|_| between.contains(&result) && !stop.contains(&result)));
                }
                if grads.iter().all(Option::is_none) {
                    continue;
                }
                let found = match whole.kind {
                    WholeKind::Conditional(index) => self.conditional_gradient(index, &grads, &between, gated),
                    WholeKind::Loop(index) => self.loop_gradient(index, &grads, &between, gated),
                }?;
                for (edge, grad) in found {
                    if !between.contains(&edge.node) && !targets.contains(&edge) {
                        continue;
                    }
                    pending.entry(edge).or_default().push(grad);
                    if queued.insert(edge.node) {
                        queue.push(edge.node);
                    }
                }
                continue;
            }
            let op = self.operation_by_id(id);
            let mut grads = Vec::with_capacity(op.num_outputs());
            for port in 0..op.num_outputs() as u32 {
                let edge = Edge { node: id, port };
                let grad = match pending.remove(&edge) {
                    Some(parts) => Some(self.aggregate(parts, &op)?),
                    None => None,
                };
                if let Some(grad) = &grad
                    && targets.contains(&edge)
                {
                    results.insert(edge, grad.clone());
                }
                grads.push(grad);
            }
            if !between.contains(&id) || stop.contains(&id) || grads.iter().all(Option::is_none) {
                continue;
            }
            let op_type = op.op_type();
            let gradient = match self.ops().op(&op_type) {
                Some(info) => info.gradient,
                None if self.has_function(&op_type) => Gradient::Fn(crate::function::call_gradient),
                None => Gradient::Unsupported,
            };
            let function = match gradient {
                Gradient::NotDifferentiable => continue,
                Gradient::Fn(function) => function,
                Gradient::Unsupported => {
                    return Err(Status::not_found(format!(
                        "No gradient defined for operation '{}' (op type: {op_type})",
                        op.name()
                    )));
                }
            };
            let scope = format!("{}_grad", op.name());
            let args = GradientArgs { op: &op, grads: &grads };
            let input_grads = self.name_scope(&scope, |graph| {
                let grads = graph.colocated_if_needed(&op, || function(&args))?;
                if gated && grads.iter().flatten().count() > 1 { graph.gate(grads) } else { Ok(grads) }
            });
            let input_grads =
                input_grads.map_err(|status| status.context(format!("the gradient of '{}' ({op_type})", op.name())))?;
            let inputs = op.inputs();
            if input_grads.len() != inputs.len() {
                return Err(Status::internal(format!(
                    "the gradient of {op_type} gave {} results for {} inputs",
                    input_grads.len(),
                    inputs.len()
                )));
            }
            for (input, grad) in inputs.into_iter().zip(input_grads) {
                let Some(grad) = grad else { continue };
                let source = input.op.id();
                if !between.contains(&source) && !targets.contains(&input.edge()) {
                    continue;
                }
                pending.entry(input.edge()).or_default().push(grad);
                if queued.insert(source) {
                    queue.push(source);
                }
            }
        }
        Ok(xs.iter().map(|x| results.get(&x.edge()).cloned()).collect())
    }

    /// Returns the conditional or loop that a node is a result of.
    fn whole_of(&self, id: NodeId) -> Option<Whole> {
        let state = self.shared.state.lock();
        let contexts = &state.contexts;
        if let Some(&index) = contexts.conditional_of.get(&id) {
            let results = contexts.conditionals[index].merges.clone();
            return Some(Whole { kind: WholeKind::Conditional(index), results });
        }
        let &index = contexts.loop_of.get(&id)?;
        let Kind::Loop(kind) = &contexts.all[index].kind else { return None };
        let results = kind.variables.iter().map(|variable| variable.exit).collect();
        Some(Whole { kind: WholeKind::Loop(index), results })
    }

    /// Gradient nodes of a colocated op stay where the op is; others follow the device scopes around the call.
    fn colocated_if_needed<R>(&self, op: &Operation, body: impl FnOnce() -> R) -> R {
        let device = op.device();
        if device.is_empty() { body() } else { self.without_device(|graph| graph.device(&device, |_| body())) }
    }

    /// Returns the nodes on a path from a target to `ys`.
    fn between(&self, ys: &[Output], targets: &HashSet<Edge>) -> HashSet<NodeId> {
        let graph = self.graph();
        let mut behind: HashSet<NodeId> = HashSet::new();
        let mut stack: Vec<NodeId> = ys.iter().map(|y| y.op.id()).collect();
        while let Some(id) = stack.pop() {
            if behind.insert(id) {
                stack.extend(graph.node(id).inputs.iter().map(|edge| edge.node));
            }
        }
        let consumers = graph.consumers();
        let mut reached: HashSet<NodeId> = HashSet::new();
        let mut stack: Vec<NodeId> = Vec::new();
        for target in targets {
            if behind.contains(&target.node) {
                reached.insert(target.node);
                for &(consumer, input) in &consumers[target.node.index()] {
                    let uses = input.is_some_and(|input| graph.node(consumer).inputs[input] == *target);
                    if uses {
                        stack.push(consumer);
                    }
                }
            }
        }
        while let Some(id) = stack.pop() {
            if behind.contains(&id) && reached.insert(id) {
                stack.extend(consumers[id.index()].iter().filter(|(_, input)| input.is_some()).map(|(id, _)| *id));
            }
        }
        reached
    }

    /// Adds up the gradients that flow into one output.
    fn aggregate(&self, mut parts: Vec<Grad>, op: &Operation) -> Result<Grad> {
        if parts.len() == 1 {
            return Ok(parts.remove(0));
        }
        let all_slices: Option<Vec<IndexedSlices>> = parts
            .iter()
            .map(|part| match part {
                Grad::Slices(slices) => Some(slices.clone()),
                Grad::Dense(_) => None,
            })
            .collect();
        self.colocated_if_needed(op, || match all_slices {
            Some(slices) => self.concat_slices(&slices),
            None => {
                let dense: Vec<Output> = parts
                    .iter()
                    .map(|part| match part {
                        Grad::Dense(output) => output.clone(),
                        Grad::Slices(slices) => slices.to_dense(),
                    })
                    .collect();
                let sum = self.op("AddN").inputs(&dense).try_build()?;
                Ok(Grad::Dense(sum.output(0)))
            }
        })
    }

    fn concat_slices(&self, slices: &[IndexedSlices]) -> Result<Grad> {
        let axis = self.constant_tensor(&Tensor::scalar(0i32));
        let concat = |outputs: Vec<&Output>| -> Result<Output> {
            let op = self.op("ConcatV2").inputs(outputs).input(&axis).attr("N", slices.len() as i64).try_build()?;
            Ok(op.output(0))
        };
        Ok(Grad::Slices(IndexedSlices {
            values: concat(slices.iter().map(|part| &part.values).collect())?,
            indices: concat(slices.iter().map(|part| &part.indices).collect())?,
            dense_shape: slices.iter().find_map(|part| part.dense_shape.clone()),
        }))
    }
}
