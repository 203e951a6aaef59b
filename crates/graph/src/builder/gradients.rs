//! Reverse-mode differentiation: adds to a graph the nodes that compute gradients.

use super::contexts::Kind;
use super::function_gradient::call_gradient;
use super::{Grad, Gradient, GradientArgs, Graph, IndexedSlices, NodeId, Operation, Output};
use crate::Edge;
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use std::collections::{BTreeSet, BinaryHeap};
use tensor::{Result, Status, Tensor};

/// A conditional or a loop, and the nodes that are its results.
struct Whole {
    kind: WholeKind,
    results: Vec<NodeId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum WholeKind {
    Conditional(usize),
    Loop(usize),
}

/// The branch or loop body that an inner walk is confined to.
#[derive(Clone, Copy)]
pub(super) struct Region<'a> {
    pub(super) context: usize,
    /// The nodes on a path from a target to the `ys` of the outermost walk.
    pub(super) between: &'a HashSet<NodeId>,
}

/// What the gradient of a conditional or loop needs from the walk that reached it.
pub(super) struct Around<'a> {
    pub(super) between: &'a HashSet<NodeId>,
    /// The values whose gradients are wanted, in any context.
    pub(super) targets: &'a HashSet<Edge>,
    pub(super) gated: bool,
}

/// The gradients that a walk has found so far.
struct Found<'a> {
    graph: &'a Graph,
    /// The context of the walk.
    level: Option<usize>,
    is_confined: bool,
    targets: &'a HashSet<Edge>,
    between: &'a HashSet<NodeId>,
    /// The gradients found with respect to each output, not yet summed.
    pending: HashMap<Edge, Vec<Grad>>,
    /// The gradients with respect to values inside of conditionals and loops, which are differentiated as a whole.
    inside: HashMap<WholeKind, Vec<(Edge, Output)>>,
    /// The gradients with respect to values outside of the walk's region.
    left: Vec<(Edge, Grad)>,
    // Consumers have larger ids than their inputs, except for the back edges of loops.
    queue: BinaryHeap<NodeId>,
    queued: HashSet<NodeId>,
}

impl Found<'_> {
    /// Adds a gradient with respect to an output that `ys` depend on.
    fn add(&mut self, edge: Edge, grad: Grad) {
        if !self.targets.contains(&edge) {
            if self.is_confined && !self.level.is_none_or(|level| self.graph.is_inside(edge.node, level)) {
                return self.left.push((edge, grad));
            }
            if !self.between.contains(&edge.node) {
                return;
            }
        }
        self.start(edge, grad);
    }

    /// Adds a gradient with respect to an output, even if `ys` do not depend on it.
    fn start(&mut self, edge: Edge, grad: Grad) {
        match self.graph.whole_around(edge.node, self.level).filter(|_| !self.targets.contains(&edge)) {
            Some(kind) => self.inside.entry(kind).or_default().push((edge, grad.to_dense())),
            None => self.pending.entry(edge).or_default().push(grad),
        }
        if self.queued.insert(edge.node) {
            self.queue.push(edge.node);
        }
    }
}

impl Graph {
    /// Returns the gradients of the sum of `ys` with respect to each of `xs`; `None` for no gradient.
    #[track_caller]
    pub fn gradients(&self, ys: &[Output], xs: &[Output]) -> Result<Vec<Option<Grad>>> {
        self.gradients_with(ys, xs, &[], &[])
    }

    /// As [`gradients_with`](Self::gradients_with), but computes all gradients with respect to an op's inputs before any of them is
    /// used, so that none is computed from a variable that has been updated already.
    #[track_caller]
    pub fn gradients_gated(
        &self,
        ys: &[Output],
        xs: &[Output],
        grad_ys: &[Option<Output>],
    ) -> Result<Vec<Option<Grad>>> {
        self.gradients_in_scope(ys, xs, grad_ys, &[], true)
    }

    /// Returns the gradients, with a barrier so that none is available before all are.
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

    /// As [`gradients`](Self::gradients), with given gradients with respect to `ys` (ones by default), and outputs at which to stop.
    #[track_caller]
    pub fn gradients_with(
        &self,
        ys: &[Output],
        xs: &[Output],
        grad_ys: &[Option<Output>],
        stop: &[Output],
    ) -> Result<Vec<Option<Grad>>> {
        self.gradients_in_scope(ys, xs, grad_ys, stop, false)
    }

    #[track_caller]
    fn gradients_in_scope(
        &self,
        ys: &[Output],
        xs: &[Output],
        grad_ys: &[Option<Output>],
        stop: &[Output],
        gated: bool,
    ) -> Result<Vec<Option<Grad>>> {
        self.finish()?;
        let given = ys.iter().chain(xs).chain(stop).chain(grad_ys.iter().flatten());
        for output in given {
            if !output.graph().same(self) {
                return Err(Status::invalid_argument(format!("{} belongs to another graph", output.described())));
            }
        }
        let grads = self.in_gradients_scope(|graph| graph.walk(ys, xs, grad_ys, stop, gated, None))?.0;
        // A gradient function may have left a mistake in the graph without returning it.
        self.finish()?;
        Ok(grads)
    }

    /// Returns the gradients with respect to `xs`, and those with respect to values outside of the walk's region.
    pub(super) fn walk(
        &self,
        ys: &[Output],
        xs: &[Output],
        grad_ys: &[Option<Output>],
        stop: &[Output],
        gated: bool,
        region: Option<Region<'_>>,
    ) -> Result<(Vec<Option<Grad>>, Vec<(Edge, Grad)>)> {
        let targets: HashSet<Edge> = xs.iter().map(Output::edge).collect();
        let stop: HashSet<NodeId> = stop.iter().map(|output| output.op.id()).collect();
        let own;
        let between = match region {
            Some(region) => region.between,
            None => {
                own = self.between(ys, &targets);
                &own
            }
        };
        let around = Around { between, targets: &targets, gated };
        let mut found = Found {
            graph: self,
            level: region.map_or(self.shared.state.lock().contexts.current, |region| Some(region.context)),
            is_confined: region.is_some(),
            targets: &targets,
            between,
            pending: HashMap::new(),
            inside: HashMap::new(),
            left: Vec::new(),
            queue: BinaryHeap::new(),
            queued: HashSet::new(),
        };
        for (index, y) in ys.iter().enumerate() {
            let grad = match grad_ys.get(index).cloned().flatten() {
                Some(grad) => grad,
                None => self
                    .colocate_with(&y.op, |graph| graph.op("OnesLike").input(y).try_build())
                    .map(|op| op.output(0))?,
            };
            found.start(y.edge(), Grad::Dense(grad));
        }
        let mut results: HashMap<Edge, Grad> = HashMap::new();
        // Conditionals and loops are differentiated as a whole, when the walk reaches the first of their results.
        let mut is_done: HashSet<WholeKind> = HashSet::new();
        while let Some(id) = found.queue.pop() {
            if let Some(whole) = self.whole_of(id, found.level) {
                // A gradient uses values from inside the conditional or loop that it belongs to.
                let of_node = found.pending.keys().filter(|edge| edge.node == id && !whole.results.contains(&id));
                for edge in of_node.copied().collect::<BTreeSet<_>>() {
                    let parts = found.pending.remove(&edge).unwrap_or_default();
                    results.insert(edge, self.aggregate(parts, &self.operation_by_id(id))?);
                }
                if !is_done.insert(whole.kind) {
                    continue;
                }
                let mut grads = Vec::with_capacity(whole.results.len());
                for &result in &whole.results {
                    let edge = Edge { node: result, port: 0 };
                    let grad = match found.pending.remove(&edge) {
                        Some(parts) => Some(self.aggregate(parts, &self.operation_by_id(result))?),
                        None => None,
                    };
                    if let Some(grad) = &grad
                        && found.targets.contains(&edge)
                    {
                        results.insert(edge, grad.clone());
                    }
                    grads.push(grad.filter(|_| between.contains(&result) && !stop.contains(&result)));
                }
                let inside = found.inside.remove(&whole.kind).unwrap_or_default();
                if inside.is_empty() && grads.iter().all(Option::is_none) {
                    continue;
                }
                let grads = match whole.kind {
                    WholeKind::Conditional(index) => self.conditional_gradient(index, &grads, &inside, &around),
                    WholeKind::Loop(index) => self.loop_gradient(index, &grads, &inside, &around),
                }?;
                for (edge, grad) in grads {
                    found.add(edge, grad);
                }
                continue;
            }
            let op = self.operation_by_id(id);
            let mut grads = Vec::with_capacity(op.num_outputs());
            for port in 0..op.num_outputs() as u32 {
                let edge = Edge { node: id, port };
                let grad = match found.pending.remove(&edge) {
                    Some(parts) => Some(self.aggregate(parts, &op)?),
                    None => None,
                };
                if let Some(grad) = &grad
                    && found.targets.contains(&edge)
                {
                    results.insert(edge, grad.clone());
                }
                grads.push(grad);
            }
            if !between.contains(&id) || stop.contains(&id) || grads.iter().all(Option::is_none) {
                continue;
            }
            if self.is_passing(id) {
                // A confined walk stops at values from outside; any other continues there, in the same branch or
                // iteration.
                if let Some(grad) = grads.into_iter().flatten().next().filter(|_| !found.is_confined) {
                    found.add(op.input(0).edge(), grad);
                }
                continue;
            }
            let op_type = op.op_type();
            let gradient = match self.ops().op(&op_type) {
                Some(info) => info.gradient,
                None if self.has_function(&op_type) => Gradient::Fn(call_gradient),
                None => Gradient::Unsupported,
            };
            let function = match gradient {
                Gradient::NotDifferentiable => continue,
                Gradient::Fn(function) => function,
                Gradient::Unsupported => {
                    return Err(Status::not_found(format!(
                        "No gradient defined for operation '{}' (op type: {op_type}){}",
                        op.name(),
                        op.with_line()
                    )));
                }
            };
            let scope = format!("{}_grad", op.name());
            let args = GradientArgs { op: &op, grads: &grads };
            let input_grads = self.on_behalf_of(&op, || {
                self.name_scope(&scope, |graph| {
                    let grads = graph.colocated_if_needed(&op, || function(&args))?;
                    if gated && grads.iter().flatten().count() > 1 { graph.gate(grads) } else { Ok(grads) }
                })
            });
            let input_grads = input_grads.map_err(|status| {
                status.context(format!("the gradient of '{}' ({op_type})", op.name())).append(op.with_line())
            })?;
            let inputs = op.inputs();
            if input_grads.len() != inputs.len() {
                return Err(Status::internal(format!(
                    "the gradient of {op_type} gave {} results for {} inputs",
                    input_grads.len(),
                    inputs.len()
                )));
            }
            for (input, grad) in inputs.into_iter().zip(input_grads) {
                if let Some(grad) = grad {
                    found.add(input.edge(), grad);
                }
            }
        }
        Ok((xs.iter().map(|x| results.get(&x.edge()).cloned()).collect(), found.left))
    }

    /// Returns the conditional or loop that has a node as a result, or that contains the node but not the walk.
    fn whole_of(&self, id: NodeId, level: Option<usize>) -> Option<Whole> {
        let around = self.whole_around(id, level);
        let state = self.shared.state.lock();
        let contexts = &state.contexts;
        let kind = around
            .or_else(|| contexts.conditional_of.get(&id).copied().map(WholeKind::Conditional))
            .or_else(|| contexts.loop_of.get(&id).copied().map(WholeKind::Loop))?;
        let results = match kind {
            WholeKind::Conditional(index) => contexts.conditionals[index].merges.clone(),
            WholeKind::Loop(index) => match &contexts.all[index].kind {
                Kind::Loop(kind) => kind.variables.iter().map(|variable| variable.exit).collect(),
                Kind::Branch { .. } => return None,
            },
        };
        Some(Whole { kind, results })
    }

    /// Returns the outermost conditional or loop that contains a node but not a walk at `level`.
    fn whole_around(&self, id: NodeId, level: Option<usize>) -> Option<WholeKind> {
        let state = self.shared.state.lock();
        let context = state.outermost_below(id, level)?;
        match &state.contexts.all[context].kind {
            Kind::Loop(_) => Some(WholeKind::Loop(context)),
            Kind::Branch { .. } => {
                state.contexts.conditional_of_branch.get(&context).copied().map(WholeKind::Conditional)
            }
        }
    }

    fn is_inside(&self, id: NodeId, context: usize) -> bool {
        self.shared.state.lock().is_inside(id, context)
    }

    fn is_passing(&self, id: NodeId) -> bool {
        self.shared.state.lock().contexts.passing.contains(&id)
    }

    /// Runs `body` so that gradient nodes of a colocated op are placed with it; others follow the current device scopes.
    fn colocated_if_needed<R>(&self, op: &Operation, body: impl FnOnce() -> R) -> R {
        let device = op.device();
        if device.is_empty() { body() } else { self.without_device(|graph| graph.device(&device, |_| body())) }
    }

    /// Returns the nodes on a path from a target to `ys`.
    fn between(&self, ys: &[Output], targets: &HashSet<Edge>) -> HashSet<NodeId> {
        let graph = self.graph();
        // A value popped from a stack depends on the value that was pushed.
        let recalled = self.shared.state.lock().contexts.recalled.clone();
        let mut pops: HashMap<Edge, Vec<NodeId>> = HashMap::new();
        let mut values: HashMap<NodeId, Vec<Edge>> = HashMap::new();
        for (&pop, &value) in &recalled {
            pops.entry(value).or_default().push(pop);
            values.entry(value.node).or_default().push(value);
        }
        let mut behind: HashSet<NodeId> = HashSet::new();
        let mut stack: Vec<NodeId> = ys.iter().map(|y| y.op.id()).collect();
        while let Some(id) = stack.pop() {
            if behind.insert(id) {
                stack.extend(graph.node(id).inputs.iter().map(|edge| edge.node));
                stack.extend(recalled.get(&id).map(|value| value.node));
            }
        }
        let consumers = graph.consumers();
        let mut reached: HashSet<NodeId> = HashSet::new();
        let mut stack: Vec<NodeId> = Vec::new();
        for target in targets {
            if behind.contains(&target.node) {
                reached.insert(target.node);
                stack.extend(pops.get(target).into_iter().flatten());
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
                let values = values.get(&id).into_iter().flatten();
                stack.extend(values.filter_map(|value| pops.get(value)).flatten());
            }
        }
        reached
    }

    /// Sums the gradients with respect to one output.
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
                let dense: Vec<Output> = parts.iter().map(Grad::to_dense).collect();
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
