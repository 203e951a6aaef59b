//! The gradients of conditionals and loops.
//!
//! The gradient of a conditional is a conditional on the same predicate, whose branches compute the gradients of the
//! branches. The gradient of a loop is a loop that goes back over its iterations: its variables are the gradients with
//! respect to the loop's variables, and sums over the iterations for what the loop takes from outside.

use super::control_flow::{Context, Kind, Loop, LoopOptions, LoopVariable};
use super::recall::LoopGradient;
use super::{Grad, GraphBuilder, IndexedSlices, NodeId, Output};
use crate::Edge;
use foldhash::HashSet;
use tensor::{DType, PartialShape, Result, Status, Tensor};

/// The largest constant of zeros that is written into the graph.
const CONSTANT_ELEMENTS_MAX: usize = 1024;

impl GraphBuilder {
    /// Returns the gradients with respect to what a conditional takes from outside, given those with respect to what it
    /// returns.
    pub(super) fn conditional_gradient(
        &self,
        conditional: usize,
        grads: &[Option<Grad>],
        between: &HashSet<NodeId>,
        gated: bool,
    ) -> Result<Vec<(Edge, Grad)>> {
        let conditional = self.shared.state.lock().contexts.conditionals[conditional].clone();
        let captured = conditional.branches.map(|branch| self.captured(branch, between));
        let mut outside: Vec<Edge> = captured.iter().flatten().map(|(outer, _)| *outer).collect();
        outside.sort_unstable();
        outside.dedup();
        self.name_scope("cond_grad", |graph| {
            let predicate = graph.from_edge(conditional.predicate);
            let switch = graph.op("Switch").input(&predicate).input(&predicate).try_build()?;
            let predicate = graph.op("Identity").name("pred_id").input(&predicate).try_build()?.output(0);
            let mut branches = Vec::with_capacity(2);
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
                        grad_ys.push(Some(dense(grad)));
                    }
                }
                let xs: Vec<Output> = captured[branch].iter().map(|(_, inner)| graph.from_edge(*inner)).collect();
                let (context, found) = graph.in_context(context, |graph| graph.walk(&ys, &xs, &grad_ys, &xs, gated));
                branches.push((context, found?));
            }
            let grad_of = |branch: usize, outer: Edge| {
                let index = captured[branch].iter().position(|(known, _)| *known == outer)?;
                branches[branch].1[index].clone()
            };
            let mut results = Vec::new();
            for outer in outside {
                let grads = [grad_of(0, outer), grad_of(1, outer)];
                if grads.iter().all(Option::is_none) {
                    continue;
                }
                let mut merged = Vec::with_capacity(2);
                for (grad, (context, _)) in grads.iter().zip(&branches) {
                    merged.push(graph.within(Some(*context), |graph| {
                        let value = match grad {
                            Some(grad) => dense(grad),
                            None => graph.zeros_for(&graph.from_edge(outer))?,
                        };
                        Ok::<_, Status>(graph.op("Identity").input(&value).try_build()?.output(0))
                    })?);
                }
                let merge = graph.op("Merge").inputs(&merged).try_build()?.output(0);
                graph.relax(&merge, &graph.from_edge(outer).shape())?;
                results.push((outer, Grad::Dense(merge)));
            }
            Ok(results)
        })
    }

    /// Returns the gradients with respect to what a loop takes from outside, given those with respect to its variables
    /// after the loop.
    pub(super) fn loop_gradient(
        &self,
        forward: usize,
        grads: &[Option<Grad>],
        between: &HashSet<NodeId>,
        gated: bool,
    ) -> Result<Vec<(Edge, Grad)>> {
        let (kind, outer_loop, base) = {
            let state = self.shared.state.lock();
            if state.contexts.all[forward].forward.is_some() {
                return Err(Status::unimplemented("Second-order gradient for while loops not supported."));
            }
            let Kind::Loop(kind) = &state.contexts.all[forward].kind else {
                return Err(Status::internal("a loop that is a branch"));
            };
            let around = state.gradient_loop_around(state.contexts.current);
            (kind.clone(), around.and_then(|around| state.loop_gradient(around)), state.base_context())
        };
        // What the loop doesn't change much but only passes on may matter too, through other variables.
        let differentiable: Vec<(LoopVariable, Option<Grad>)> = kind
            .variables
            .iter()
            .enumerate()
            .map(|(index, variable)| (*variable, grads.get(index).cloned().flatten()))
            .filter(|(variable, grad)| {
                is_trainable(self.from_edge(variable.inside).dtype())
                    && (grad.is_some() || between.contains(&variable.merge))
            })
            .collect();
        let captured = self.captured(forward, between);
        self.name_scope("while_grad", |graph| {
            let count = graph.count_iterations(forward, outer_loop)?;
            let mut variables = vec![count.total.clone()];
            let mut invariants = vec![None];
            for (variable, grad) in &differentiable {
                let exit = graph.operation_by_id(variable.exit).output(0);
                variables.push(match grad {
                    Some(grad) => dense(grad),
                    None => graph.zeros_for(&exit)?,
                });
                invariants.push(Some(graph.operation_by_id(variable.merge).output(0).shape()));
            }
            let options = LoopOptions { parallel_iterations: kind.parallel_iterations, shape_invariants: invariants };
            let mut results: Vec<(Edge, Grad)> = Vec::new();
            let more = |graph: &GraphBuilder, merged: &[Output]| {
                let one = graph.constant_tensor(&Tensor::scalar(1i32));
                Ok(graph.op("GreaterEqual").input(&merged[0]).input(&one).try_build()?.output(0))
            };
            let exits = graph.build_loop(&variables, &options, Some(forward), more, |graph, inside| {
                let one = graph.constant_tensor(&Tensor::scalar(1i32));
                let index = graph.op("Sub").input(&inside[0]).input(&one).try_build()?;
                let sync = graph.op("ControlTrigger").name("b_sync").try_build()?;
                let gradient = LoopGradient {
                    forward_count: count.count,
                    forward_next: count.next,
                    forward_sync: None,
                    count: index.id(),
                    sync: sync.id(),
                    base,
                };
                graph.with_loop(|kind: &mut Loop| kind.gradient = Some(gradient));
                let mut next = vec![
                    graph.op("Identity").name("b_count").input(&index.output(0)).control(&sync).try_build()?.output(0),
                ];
                let ys: Vec<Output> =
                    differentiable.iter().map(|(variable, _)| graph.from_edge(variable.next)).collect();
                let grad_ys: Vec<Option<Output>> = inside[1..].iter().cloned().map(Some).collect();
                let mut xs: Vec<Output> =
                    differentiable.iter().map(|(variable, _)| graph.from_edge(variable.inside)).collect();
                xs.extend(captured.iter().map(|(_, inner)| graph.from_edge(*inner)));
                let mut grads = graph.walk(&ys, &xs, &grad_ys, &xs, gated)?;
                let sums = grads.split_off(differentiable.len());
                for ((outer, _), grad) in captured.iter().zip(sums) {
                    if let Some(grad) = grad {
                        results.push((*outer, graph.sum_over_iterations(*outer, grad)?));
                    }
                }
                for (grad, before) in grads.iter().zip(&inside[1..]) {
                    next.push(match grad {
                        Some(grad) => dense(grad),
                        None => graph.op("ZerosLike").input(before).try_build()?.output(0),
                    });
                }
                Ok(next)
            })?;
            if let Some(outer_loop) = outer_loop {
                graph.operation_by_id(outer_loop.sync).add_control_input(&exits[0].op);
            }
            for ((variable, _), exit) in differentiable.iter().zip(&exits[1..]) {
                let start = graph.operation_by_id(variable.enter).input(0);
                results.push((start.edge(), Grad::Dense(exit.clone())));
            }
            Ok(results)
        })
    }

    /// Returns what a context takes from outside and could have a gradient: in the context around it, and what stands for it
    /// inside.
    fn captured(&self, context: usize, between: &HashSet<NodeId>) -> Vec<(Edge, Edge)> {
        let state = self.shared.state.lock();
        let mut captured: Vec<(Edge, Edge)> = Vec::new();
        for &inner in state.contexts.all[context].passed.values() {
            // What passes a value in has it as its first input.
            let Some(node) = state.graph.get(inner.node).filter(|_| between.contains(&inner.node)) else { continue };
            let is_trainable = node.output_types.get(inner.port as usize).is_some_and(|slot| is_trainable(slot.dtype));
            if let Some(&outer) = node.inputs.first()
                && is_trainable
            {
                captured.push((outer, inner));
            }
        }
        captured.sort_unstable();
        captured.dedup();
        captured
    }

    /// Adds up in the current loop the gradient with respect to what every iteration takes from outside.
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
        let grad = dense(&grad);
        let (total, _) =
            self.add_loop_variable(&zeros, |sum| Ok(self.op("Add").input(sum).input(&grad).try_build()?.output(0)))?;
        self.relax(&total, &value.shape())?;
        Ok(Grad::Dense(total))
    }

    /// Collects the rows that the iterations give, without making whole tensors of them.
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
        let indices = collect(&slices.indices, Tensor::new(slices.indices.dtype(), tensor::Shape::vector(0))?)?;
        let shape = tensor::Shape::new(&dims)?;
        let values = collect(&slices.values, Tensor::new(slices.values.dtype(), shape)?)?;
        let mut known: Vec<Option<i64>> = dims.iter().copied().map(Some).collect();
        known[0] = None;
        self.relax(&values, &PartialShape::new(&known))?;
        let dense_shape = self.within(around, |graph| graph.op("Shape").input(value).try_build())?.output(0);
        Ok(Grad::Slices(IndexedSlices { values, indices, dense_shape: Some(dense_shape) }))
    }

    /// Returns zeros of the shape of `value`, which needn't be in the current context.
    fn zeros_for(&self, value: &Output) -> Result<Output> {
        let dtype = value.dtype();
        let zero = || -> Result<Output> { Ok(self.constant_tensor(&Tensor::new(dtype, tensor::Shape::scalar())?)) };
        if let Some(shape) = value.full_shape() {
            if shape.num_elements() <= CONSTANT_ELEMENTS_MAX {
                return Ok(self.constant_tensor(&Tensor::new(dtype, shape)?));
            }
            let dims = self.constant_tensor(&Tensor::vector(shape.dims()));
            return Ok(self.op("Fill").input(&dims).input(&zero()?).try_build()?.output(0));
        }
        // Where the value is, so that only its shape is passed on.
        let home = self.shared.state.lock().contexts.of_node.get(&value.op.id()).copied();
        let shape = self.within(home, |graph| graph.op("Shape").input(value).try_build())?.output(0);
        Ok(self.op("Fill").input(&shape).input(&zero()?).try_build()?.output(0))
    }
}

fn dense(grad: &Grad) -> Output {
    match grad {
        Grad::Dense(output) => output.clone(),
        Grad::Slices(slices) => slices.to_dense(),
    }
}

fn is_trainable(dtype: DType) -> bool {
    dtype.is_floating() || dtype.is_complex()
}
