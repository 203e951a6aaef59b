//! The gradients of conditionals and loops.
//!
//! The gradient of a conditional is a conditional on the same predicate, whose branches compute the gradients of the branches.
//! The gradient of a loop is a loop over the same iterations in reverse. Its variables are the gradients with respect to the
//! loop's variables, and, for each value that the loop captures from outside, the sum of its gradients over the iterations.
//!
//! A gradient also uses values from inside the conditional or loop that it belongs to: directly in a branch, through a stack in
//! a loop. When the gradient itself is differentiated, the gradient with respect to such a value is known only inside. It is
//! kept until the conditional or loop that has the value is differentiated, as if the value were one more result of it.

use super::contexts::{Conditional, Context, Kind, Loop, LoopGradient, LoopVariable, Source};
use super::control_flow::LoopOptions;
use super::gradients::{Around, Region};
use super::{Grad, Graph, IndexedSlices, NodeId, Output};
use crate::Edge;
use foldhash::HashSet;
use std::collections::BTreeSet;
use tensor::{DType, PartialShape, Result, Status, Tensor};

/// The largest tensor of zeros that is stored in the graph as a constant.
const CONSTANT_ELEMENTS_MAX: usize = 1024;

/// A value from outside a context that is used in it and may have a gradient.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Captured {
    /// The value.
    outer: Edge,
    /// Its equivalent inside.
    inner: Edge,
    /// Whether it comes from inside the conditional or loop whose gradient this context computes.
    is_recalled: bool,
}

impl Graph {
    /// Returns the gradients with respect to the values that a conditional captures, given those with respect to its results and to
    /// values inside.
    pub(super) fn conditional_gradient(
        &self,
        conditional: usize,
        grads: &[Option<Grad>],
        inside: &[(Edge, Output)],
        around: &Around<'_>,
    ) -> Result<Vec<(Edge, Grad)>> {
        let conditional = self.shared.state.lock().contexts.conditionals[conditional].clone();
        let captured = conditional.branches.map(|branch| self.captured(branch, around.between));
        let passed = captured.iter().flatten().filter(|captured| !captured.is_recalled);
        let mut outside: Vec<Edge> = passed.map(|captured| captured.outer).collect();
        outside.sort_unstable();
        outside.dedup();
        self.name_scope("cond_grad", |graph| {
            let predicate = graph.from_edge(conditional.predicate);
            let switch = graph.op("Switch").input(&predicate).input(&predicate).try_build()?;
            let predicate = graph.op("Identity").name("pred_id").input(&predicate).try_build()?.output(0);
            let mut branches = Vec::with_capacity(2);
            let mut results = Vec::new();
            for branch in 0..2 {
                let pivot = graph.op("Identity").input(&switch.output(branch as u32)).try_build()?;
                let kind = Kind::Branch { predicate: predicate.edge(), taken: branch == 1 };
                let mut context = Context::new(kind, Some(pivot.id()));
                context.forward = Some(conditional.branches[branch]);
                let mut ys = Vec::new();
                let mut grad_ys = Vec::new();
                for (output, grad) in conditional.outputs[branch].iter().zip(grads) {
                    if let Some(grad) = grad {
                        ys.push(graph.from_edge(*output));
                        grad_ys.push(Some(grad.to_dense()));
                    }
                }
                let forward = conditional.branches[branch];
                for (value, grad) in inside {
                    if graph.shared.state.lock().is_inside(value.node, forward) {
                        ys.push(graph.from_edge(*value));
                        grad_ys.push(Some(grad.clone()));
                    }
                }
                let mut xs: Vec<Output> =
                    captured[branch].iter().map(|captured| graph.from_edge(captured.inner)).collect();
                let stop = xs.clone();
                // A target may be inside the branch; its gradient exists when the branch is taken.
                let own = {
                    let state = graph.shared.state.lock();
                    let is_captured = |edge: &Edge| captured[branch].iter().any(|captured| captured.inner == *edge);
                    let own = around.targets.iter().copied();
                    own.filter(|edge| state.is_inside(edge.node, forward) && !is_captured(edge))
                        .collect::<BTreeSet<_>>()
                };
                xs.extend(own.iter().map(|&edge| graph.from_edge(edge)));
                let region = Region { context: forward, between: around.between };
                let (context, found) = graph.in_context(context, |graph| {
                    let (mut grads, left) = graph.walk(&ys, &xs, &grad_ys, &stop, around.gated, Some(region))?;
                    results.extend(left);
                    for (edge, grad) in own.iter().zip(grads.split_off(stop.len())) {
                        results.extend(grad.map(|grad| (*edge, grad)));
                    }
                    for (captured, grad) in captured[branch].iter().zip(&grads) {
                        if let Some(grad) = grad
                            && captured.is_recalled
                        {
                            results.push((captured.outer, Grad::Dense(graph.passed_in(&grad.to_dense())?)));
                        }
                    }
                    Ok::<_, Status>(grads)
                });
                branches.push((context, found?));
            }
            let grad_of = |branch: usize, outer: Edge| {
                let index = captured[branch].iter().position(|known| known.outer == outer && !known.is_recalled)?;
                branches[branch].1[index].clone()
            };
            let mut outputs = [Vec::new(), Vec::new()];
            let mut merges = Vec::new();
            for outer in outside {
                let grads = [grad_of(0, outer), grad_of(1, outer)];
                if grads.iter().all(Option::is_none) {
                    continue;
                }
                let mut merged = Vec::with_capacity(2);
                for (grad, (context, _)) in grads.iter().zip(&branches) {
                    merged.push(graph.within(Some(*context), |graph| {
                        let value = match grad {
                            Some(grad) => grad.to_dense(),
                            None => graph.zeros_for(&graph.from_edge(outer))?,
                        };
                        Ok::<_, Status>(graph.op("Identity").input(&value).try_build()?.output(0))
                    })?);
                }
                let merge = graph.op("Merge").inputs(&merged).try_build()?.output(0);
                merges.push(merge.op.id());
                for (outputs, merged) in outputs.iter_mut().zip(&merged) {
                    outputs.push(merged.edge());
                }
                graph.relax(&merge, &what_changes(&graph.from_edge(outer)).1)?;
                results.push((outer, Grad::Dense(merge)));
            }
            graph.note_conditional(Conditional {
                predicate: predicate.edge(),
                branches: [branches[0].0, branches[1].0],
                outputs,
                merges,
            });
            Ok(results)
        })
    }

    /// Returns the gradients with respect to the values that a loop captures, given those with respect to its final variables and to
    /// values in its body.
    pub(super) fn loop_gradient(
        &self,
        forward: usize,
        grads: &[Option<Grad>],
        in_body: &[(Edge, Output)],
        around: &Around<'_>,
    ) -> Result<Vec<(Edge, Grad)>> {
        let (kind, outer_loop, base) = {
            let state = self.shared.state.lock();
            let Kind::Loop(kind) = &state.contexts.all[forward].kind else {
                return Err(Status::internal("a loop that is a branch"));
            };
            let outer_loop = state.gradient_loop_around(state.contexts.current);
            (kind.clone(), outer_loop, state.base_context())
        };
        // A variable without a gradient of its own may have one through the other variables.
        let differentiable: Vec<(LoopVariable, Option<Grad>)> = kind
            .variables
            .iter()
            .enumerate()
            .map(|(index, variable)| (*variable, grads.get(index).cloned().flatten()))
            .filter(|(variable, _)| {
                is_trainable(self.from_edge(variable.inside).dtype()) && around.between.contains(&variable.merge)
            })
            .collect();
        let captured = self.captured(forward, around.between);
        self.name_scope("while_grad", |graph| {
            let count = graph.count_iterations(forward, graph.source_around(forward, outer_loop)?)?;
            let start = graph.op("Identity").name("b_start").input(&count.total).try_build()?;
            let mut variables = vec![start.output(0)];
            let mut invariants = vec![None];
            for (variable, grad) in &differentiable {
                let exit = graph.operation_by_id(variable.exit).output(0);
                variables.push(match grad {
                    Some(grad) => grad.to_dense(),
                    None => graph.zeros_for(&exit)?,
                });
                invariants.push(Some(graph.operation_by_id(variable.merge).output(0).shape()));
            }
            let options = LoopOptions { parallel_iterations: kind.parallel_iterations, shape_invariants: invariants };
            let mut results: Vec<(Edge, Grad)> = Vec::new();
            let more = |graph: &Graph, merged: &[Output]| {
                let one = graph.constant_tensor(&Tensor::scalar(1i32));
                Ok(graph.op("GreaterEqual").input(&merged[0]).input(&one).try_build()?.output(0))
            };
            let exits = graph.build_loop(&variables, &options, Some(forward), more, |graph, inside| {
                let one = graph.constant_tensor(&Tensor::scalar(1i32));
                let index = graph.op("Sub").input(&inside[0]).input(&one).try_build()?;
                let sync = graph.op("ControlTrigger").name("b_sync").try_build()?;
                let gradient = LoopGradient {
                    sources: vec![Source { context: forward, count: count.count, next: count.next, sync: None }],
                    start: start.id(),
                    count: index.id(),
                    sync: sync.id(),
                    base,
                };
                graph.with_loop(|kind: &mut Loop| kind.gradient = Some(gradient));
                let mut next = vec![
                    graph.op("Identity").name("b_count").input(&index.output(0)).control(&sync).try_build()?.output(0),
                ];
                let mut ys: Vec<Output> =
                    differentiable.iter().map(|(variable, _)| graph.from_edge(variable.next)).collect();
                let mut grad_ys: Vec<Option<Output>> = inside[1..].iter().cloned().map(Some).collect();
                for (value, grad) in in_body {
                    ys.push(graph.from_edge(*value));
                    grad_ys.push(Some(grad.clone()));
                }
                let mut xs: Vec<Output> =
                    differentiable.iter().map(|(variable, _)| graph.from_edge(variable.inside)).collect();
                xs.extend(captured.iter().map(|captured| graph.from_edge(captured.inner)));
                let region = Region { context: forward, between: around.between };
                let (mut grads, left) = graph.walk(&ys, &xs, &grad_ys, &xs, around.gated, Some(region))?;
                results.extend(left);
                let of_captured = grads.split_off(differentiable.len());
                for (captured, grad) in captured.iter().zip(of_captured) {
                    let Some(grad) = grad else { continue };
                    let grad = match captured.is_recalled {
                        true => Grad::Dense(graph.passed_in(&grad.to_dense())?),
                        false => graph.sum_over_iterations(captured.outer, grad)?,
                    };
                    results.push((captured.outer, grad));
                }
                for (grad, before) in grads.iter().zip(&inside[1..]) {
                    next.push(match grad {
                        Some(grad) => grad.to_dense(),
                        None => graph.op("ZerosLike").input(before).try_build()?.output(0),
                    });
                }
                Ok(next)
            })?;
            let outer_gradient = outer_loop.and_then(|outer| graph.shared.state.lock().loop_gradient(outer));
            if let Some(outer_loop) = outer_gradient {
                graph.operation_by_id(outer_loop.sync).add_control_input(&exits[0].op);
            }
            for ((variable, _), exit) in differentiable.iter().zip(&exits[1..]) {
                let start = graph.operation_by_id(variable.enter).input(0);
                results.push((start.edge(), Grad::Dense(exit.clone())));
            }
            Ok(results)
        })
    }

    /// Returns the values that a context captures and that may have a gradient.
    fn captured(&self, context: usize, between: &HashSet<NodeId>) -> Vec<Captured> {
        let state = self.shared.state.lock();
        let mut captured: Vec<Captured> = Vec::new();
        for &inner in state.contexts.all[context].passed.values() {
            let Some(node) = state.graph.get(inner.node).filter(|_| between.contains(&inner.node)) else { continue };
            let is_variable = state.inferred.handle(inner).iter().any(|behind| is_trainable(behind.dtype));
            if !is_variable && !node.output_types.get(inner.port as usize).is_some_and(|slot| is_trainable(slot.dtype))
            {
                continue;
            }
            if state.contexts.passing.contains(&inner.node) {
                // A node that passes a value in has it as its first input.
                captured.extend(node.inputs.first().map(|&outer| Captured { outer, inner, is_recalled: false }));
            } else if let Some(&outer) = state.contexts.recalled.get(&inner.node) {
                captured.push(Captured { outer, inner, is_recalled: true });
            } else if !state.is_inside(inner.node, context) {
                captured.push(Captured { outer: inner, inner, is_recalled: true });
            }
        }
        captured.sort_unstable();
        captured.dedup();
        captured
    }

    /// Sums over the iterations of the current loop the gradient with respect to a captured value.
    fn sum_over_iterations(&self, outer: Edge, grad: Grad) -> Result<Grad> {
        let value = self.from_edge(outer);
        let around = {
            let state = self.shared.state.lock();
            state.contexts.current.and_then(|current| state.contexts.all[current].outer)
        };
        if let Grad::Slices(slices) = &grad
            && let Some(rows) = slices.values.shape().dims().and_then(|dims| dims.get(1..)?.iter().copied().collect())
        {
            return self.rows_of_iterations(&value, slices, rows, around);
        }
        let zeros = self.within(around, |graph| graph.zeros_for(&value))?;
        let grad = grad.to_dense();
        let (total, _) =
            self.add_loop_variable(&zeros, |sum| Ok(self.op("Add").input(sum).input(&grad).try_build()?.output(0)))?;
        self.relax(&total, &what_changes(&value).1)?;
        Ok(Grad::Dense(total))
    }

    /// Concatenates the rows of all iterations, without converting them to dense tensors.
    fn rows_of_iterations(
        &self,
        value: &Output,
        slices: &IndexedSlices,
        rows: Vec<i64>,
        around: Option<usize>,
    ) -> Result<Grad> {
        let mut dims = vec![0];
        dims.extend(rows);
        let collect = |part: &Output, start: Tensor| {
            let start = self.within(around, |graph| graph.constant_tensor(&start));
            let step = |all: &Output| {
                let axis = self.constant_tensor(&Tensor::scalar(0i32));
                let op = self.op("ConcatV2").input(all).input(part).input(&axis).attr("N", 2i64).try_build()?;
                Ok(op.output(0))
            };
            Ok::<_, Status>(self.add_loop_variable(&start, step)?.0)
        };
        let indices = collect(&slices.indices, Tensor::zeros(slices.indices.dtype(), tensor::Shape::vector(0))?)?;
        let shape = tensor::Shape::new(&dims)?;
        let values = collect(&slices.values, Tensor::zeros(slices.values.dtype(), shape)?)?;
        let mut known: Vec<Option<i64>> = dims.iter().copied().map(Some).collect();
        known[0] = None;
        self.relax(&values, &PartialShape::new(&known))?;
        let dense_shape = self.within(around, |graph| graph.op(shape_op(value)).input(value).try_build())?.output(0);
        Ok(Grad::Slices(IndexedSlices { values, indices, dense_shape: Some(dense_shape) }))
    }

    /// Returns zeros in the shape of `value`, or of the variable that it is a handle of. The value may be in another context.
    fn zeros_for(&self, value: &Output) -> Result<Output> {
        let (dtype, shape) = what_changes(value);
        let zero = || -> Result<Output> { Ok(self.constant_tensor(&Tensor::zeros(dtype, tensor::Shape::scalar())?)) };
        if let Some(shape) = shape.to_shape() {
            if shape.num_elements() <= CONSTANT_ELEMENTS_MAX {
                return Ok(self.constant_tensor(&Tensor::zeros(dtype, shape)?));
            }
            let dims = self.constant_tensor(&Tensor::vector(shape.dims()));
            return Ok(self.op("Fill").input(&dims).input(&zero()?).try_build()?.output(0));
        }
        // The shape is computed in the context of the value, so that only the shape is passed on.
        let home = self.shared.state.lock().contexts.of_node.get(&value.op.id()).copied();
        let shape = self.within(home, |graph| graph.op(shape_op(value)).input(value).try_build())?.output(0);
        Ok(self.op("Fill").input(&shape).input(&zero()?).try_build()?.output(0))
    }
}

/// Returns the type and shape of the gradient with respect to a value; for a handle, those of its variable.
fn what_changes(value: &Output) -> (DType, PartialShape) {
    match value.handle_data().first() {
        Some(behind) if value.dtype() == DType::Resource => (behind.dtype, behind.shape.clone()),
        _ => (value.dtype(), value.shape()),
    }
}

/// Returns the op that computes the shape of a value, or of the variable that it is a handle of.
fn shape_op(value: &Output) -> &'static str {
    if value.dtype() == DType::Resource { "VariableShape" } else { "Shape" }
}

fn is_trainable(dtype: DType) -> bool {
    dtype.is_floating() || dtype.is_complex()
}
