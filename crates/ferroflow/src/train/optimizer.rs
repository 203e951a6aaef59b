//! [`Optimizer`]: the common interface of all optimizers: gradients, slots, and the graph that applies the gradients, node by
//! node as TensorFlow 1 builds it.

use super::constraint::constrained;
use super::expression::group;
use super::gradient_reduction::GradientReduction;
use super::slot::{SlotInitial, create_slot};
use crate::variable::{Kind, Variable, collections, named_constant, trainable_variables};
use graph::builder::{Grad, IndexedSlices};
use graph::{Graph, Operation, Output, is_in_library};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::panic::Location;
use tensor::{DType, Result, Status, Tensor};

/// A gradient and its variable; `None` if the loss doesn't depend on the variable.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::{GradientAndVariable, GradientDescentOptimizer, GradientOptions};
///
/// let g = Graph::new();
/// let w = Variable::new(&g, "w", &g.constant(4f32));
/// let optimizer = GradientDescentOptimizer::new(0.1);
/// let gradients: Vec<GradientAndVariable> = optimizer.compute_gradients(&w.value().square(), &GradientOptions::default())?;
/// assert!(gradients[0].0.is_some() && gradients[0].1.name() == "w");
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub type GradientAndVariable = (Option<Grad>, Variable);

/// Which gradients must be complete before any is used.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::{GateGradients, GradientDescentOptimizer, GradientOptions};
///
/// let g = Graph::new();
/// let w = Variable::new(&g, "w", &g.constant(4f32));
/// let options = GradientOptions { gate_gradients: GateGradients::Graph, ..GradientOptions::default() };
/// let train = GradientDescentOptimizer::new(0.1).minimize_with(&w.value().square(), None, &options)?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GateGradients {
    /// None: each gradient is used at once.
    None,
    /// All gradients of one op.
    #[default]
    Op,
    /// All gradients of the graph.
    Graph,
}

/// Options of `compute_gradients`.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::{GradientDescentOptimizer, GradientOptions};
///
/// let g = Graph::new();
/// let (w, frozen) = (Variable::new(&g, "w", &g.constant(4f32)), Variable::new(&g, "frozen", &g.constant(4f32)));
/// let loss = (w.value() * frozen.value()).square();
/// let options = GradientOptions { variables: Some(vec![w.clone()]), ..GradientOptions::default() };
/// assert_eq!(GradientDescentOptimizer::new(0.1).compute_gradients(&loss, &options)?.len(), 1);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct GradientOptions {
    /// The variables; the default is the trainable ones.
    pub variables: Option<Vec<Variable>>,
    /// Which gradients must be complete before any is used.
    pub gate_gradients: GateGradients,
    /// The gradient of the loss itself; the default is ones.
    pub grad_loss: Option<Output>,
}

/// The variables and tensors that an optimizer has created.
///
/// ```
/// use ferroflow::train::{GradientDescentOptimizer, Optimizer, OptimizerState};
///
/// let optimizer = GradientDescentOptimizer::new(0.1);
/// let _state: &OptimizerState = optimizer.state();
/// assert!(optimizer.variables().is_empty());
/// ```
#[derive(Default)]
pub struct OptimizerState {
    slots: Mutex<HashMap<(String, String), Variable>>,
    /// Slot names in the order of their first use.
    names: Mutex<Vec<String>>,
    others: Mutex<Vec<(String, Variable)>>,
    prepared: Mutex<HashMap<&'static str, Output>>,
}

/// Changes variables to minimize a loss.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::{MomentumOptimizer, global_variables_initializer};
///
/// let g = Graph::new();
/// let w = Variable::new(&g, "w", &g.constant(4f32));
/// let optimizer = MomentumOptimizer::new(0.1, 0.9);
/// let train = optimizer.minimize(&w.value().square(), None)?;
/// assert_eq!(optimizer.slot(&w, "momentum").unwrap().name(), "w/Momentum");
/// let session = Session::new(&g)?;
/// session.run_ops(&[&global_variables_initializer(&g)])?;
/// session.run_ops(&[&train])?;
/// assert!((session.eval::<f32>(w.value())? - 3.2).abs() < 1e-6);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub trait Optimizer: Send + Sync {
    /// Returns the name, which is also that of the operation that applies the gradients.
    fn name(&self) -> &str;

    /// Returns the variables and tensors that the optimizer has created.
    fn state(&self) -> &OptimizerState;

    /// Creates the variables that the updates need beside `variables`.
    fn create_slots(&self, _graph: &Graph, _variables: &[Variable]) -> Result<()> {
        Ok(())
    }

    /// Creates the tensors that all updates share.
    fn prepare(&self, graph: &Graph) -> Result<()>;

    /// Adds the update of one variable by a dense gradient.
    fn apply_dense(&self, graph: &Graph, gradient: &Output, variable: &Variable) -> Result<Operation>;

    /// Adds the update of some rows of one variable; the indices are unique.
    fn apply_sparse(&self, graph: &Graph, values: &Output, indices: &Output, variable: &Variable) -> Result<Operation>;

    /// As [`apply_sparse`](Self::apply_sparse) where an index may occur several times.
    fn apply_sparse_duplicate_indices(
        &self,
        graph: &Graph,
        values: &Output,
        indices: &Output,
        variable: &Variable,
    ) -> Result<Operation> {
        let (values, indices) = deduplicate(graph, values, indices)?;
        self.apply_sparse(graph, &values, &indices, variable)
    }

    /// Adds what follows all updates, and returns an operation that completes when everything has run.
    fn finish(&self, graph: &Graph, updates: &[Operation], name: &str) -> Result<Operation> {
        group(graph, updates, name)
    }

    /// Returns the gradients of `loss` with respect to the variables.
    fn compute_gradients(&self, loss: &Output, options: &GradientOptions) -> Result<Vec<GradientAndVariable>> {
        compute_gradients(loss, options)
    }

    /// Adds an operation that applies gradients, and then increments `global_step`.
    fn apply_gradients(
        &self,
        gradients: &[GradientAndVariable],
        global_step: Option<&Variable>,
        name: Option<&str>,
    ) -> Result<Operation> {
        apply_gradients(self, gradients, global_step, name)
    }

    /// Adds an operation that updates the trainable variables to minimize `loss`.
    #[track_caller]
    fn minimize(&self, loss: &Output, global_step: Option<&Variable>) -> Result<Operation> {
        let caller = Location::caller();
        let result = loss.graph().called_here(|_| self.minimize_with(loss, global_step, &GradientOptions::default()));
        result.map_err(|status| with_line(status, loss, caller))
    }

    /// As [`minimize`](Self::minimize), with options.
    fn minimize_with(
        &self,
        loss: &Output,
        global_step: Option<&Variable>,
        options: &GradientOptions,
    ) -> Result<Operation> {
        let gradients = self.compute_gradients(loss, options)?;
        if gradients.iter().all(|(gradient, _)| gradient.is_none()) {
            return Err(Status::invalid_argument(format!(
                "No gradients provided for any variable, check your graph for ops that do not support gradients, \
                 between variables {:?} and loss {}.",
                gradients.iter().map(|(_, variable)| variable.name()).collect::<Vec<_>>(),
                loss.name()
            )));
        }
        self.apply_gradients(&gradients, global_step, None)
    }

    /// Returns the variable in another variable's slot.
    fn slot(&self, variable: &Variable, name: &str) -> Option<Variable> {
        self.state().slots.lock().get(&(variable.name(), name.to_owned())).cloned()
    }

    /// Returns the names of the slots.
    fn slot_names(&self) -> Vec<String> {
        self.state().names.lock().clone()
    }

    /// Returns the variables that the optimizer has created, sorted by name.
    fn variables(&self) -> Vec<Variable> {
        let state = self.state();
        let mut all: Vec<Variable> = state.slots.lock().values().cloned().collect();
        all.extend(state.others.lock().iter().map(|(_, variable)| variable.clone()));
        all.sort_by_key(Variable::name);
        all
    }
}

/// Appends the line that called for the minimization. A mistake of the graph has a line already.
fn with_line(status: Status, loss: &Output, caller: &Location<'_>) -> Status {
    let is_mistake = loss.graph().finish().is_err();
    let text = || format!(" [minimize of {} at {caller}]", loss.name());
    if is_mistake || is_in_library(caller) { status } else { status.append(text()) }
}

impl OptimizerState {
    /// Returns the variable in a slot; creates it if there is none.
    pub(crate) fn slot(
        &self,
        variable: &Variable,
        slot: &str,
        op_name: &str,
        initial: SlotInitial<'_>,
    ) -> Result<Variable> {
        let key = (variable.name(), slot.to_owned());
        if let Some(found) = self.slots.lock().get(&key) {
            return Ok(found.clone());
        }
        let made = create_slot(variable, op_name, initial)?;
        self.slots.lock().insert(key, made.clone());
        let mut names = self.names.lock();
        if !names.iter().any(|name| name == slot) {
            names.push(slot.to_owned());
        }
        Ok(made)
    }

    /// Returns a slot that `create_slots` has created.
    pub(crate) fn existing_slot(&self, variable: &Variable, slot: &str) -> Result<Variable> {
        let found = self.slots.lock().get(&(variable.name(), slot.to_owned())).cloned();
        found.ok_or_else(|| Status::internal(format!("variable '{}' has no slot '{slot}'", variable.name())))
    }

    /// Returns a variable that belongs to no other one; creates it if there is none.
    pub(crate) fn other(&self, near: &Variable, name: &str, value: &Tensor) -> Result<Variable> {
        if let Some(found) = self.existing_other(name) {
            return Ok(found);
        }
        let made = near.graph().colocate_with(near.op(), |graph| {
            Variable::in_graph(graph, name).kind(near.kind()).trainable(false).build_constant(value)
        });
        self.others.lock().push((name.to_owned(), made.clone()));
        Ok(made)
    }

    pub(crate) fn existing_other(&self, name: &str) -> Option<Variable> {
        self.others.lock().iter().find(|(other, _)| other == name).map(|(_, variable)| variable.clone())
    }

    pub(crate) fn set_prepared(&self, name: &'static str, output: Output) {
        self.prepared.lock().insert(name, output);
    }

    /// Returns a tensor that was passed to `set_prepared`.
    pub(crate) fn prepared(&self, name: &'static str) -> Result<Output> {
        let found = self.prepared.lock().get(name).cloned();
        found.ok_or_else(|| Status::internal(format!("'{name}' was not prepared")))
    }
}

/// Sums the rows with equal indices.
pub(crate) fn deduplicate(graph: &Graph, values: &Output, indices: &Output) -> Result<(Output, Output)> {
    let unique = graph.op("Unique").input(indices).try_build()?;
    let shape = graph.op("Shape").input(&unique.output(0)).try_build()?.output(0);
    let count = graph.name_scope("strided_slice", |graph| {
        let whole = format!("{}/", graph.current_name_scope());
        let index = |name: &str, value: i32| named_constant(graph, name, &Tensor::vector(&[value]));
        graph
            .op("StridedSlice")
            .name(&whole)
            .input(&shape)
            .input(&index("stack", 0))
            .input(&index("stack_1", 1))
            .input(&index("stack_2", 1))
            .attr("shrink_axis_mask", 1i64)
            .try_build()
    })?;
    let sum = graph.op("UnsortedSegmentSum").input(values).input(&unique.output(1)).input(&count.output(0));
    Ok((sum.try_build()?.output(0), unique.output(0)))
}

fn compute_gradients(loss: &Output, options: &GradientOptions) -> Result<Vec<GradientAndVariable>> {
    let graph = loss.graph();
    check_dtype(loss.dtype(), &loss.name())?;
    let variables = match &options.variables {
        Some(variables) => variables.clone(),
        None => trainable_variables(graph)?,
    };
    if variables.is_empty() {
        return Err(Status::invalid_argument("No variables to optimize."));
    }
    let targets: Vec<Output> = variables.iter().map(|variable| variable.handle().clone()).collect();
    let (losses, grad_losses) = (std::slice::from_ref(loss), std::slice::from_ref(&options.grad_loss));
    let gradients = match options.gate_gradients {
        GateGradients::None => graph.gradients_with(losses, &targets, grad_losses, &[])?,
        GateGradients::Op => graph.gradients_gated(losses, &targets, grad_losses)?,
        GateGradients::Graph => tuple(graph, graph.gradients_with(losses, &targets, grad_losses, &[])?)?,
    };
    for (gradient, variable) in gradients.iter().zip(&variables) {
        if gradient.is_some() {
            check_dtype(variable.dtype(), &variable.name())?;
        }
    }
    Ok(gradients.into_iter().zip(variables).collect())
}

fn check_dtype(dtype: DType, name: &str) -> Result<()> {
    if dtype.is_floating() || dtype.is_complex() {
        return Ok(());
    }
    Err(Status::invalid_argument(format!("Invalid type {dtype} for {name}, expected: float, double, half or bfloat16")))
}

/// Makes every gradient wait for all others.
fn tuple(graph: &Graph, gradients: Vec<Option<Grad>>) -> Result<Vec<Option<Grad>>> {
    graph.name_scope("tuple", |graph| {
        let mut all: Vec<Operation> = Vec::new();
        for gradient in gradients.iter().flatten() {
            all.push(match gradient {
                Grad::Dense(output) => output.op.clone(),
                Grad::Slices(slices) => slices.values.op.clone(),
            });
        }
        let gate = group(graph, &all, "group_deps")?;
        let pass = |output: &Output| {
            graph.colocate_with(&output.op, |graph| {
                let op = graph.op("Identity").name("control_dependency").input(output).control(&gate);
                op.try_build().map(|op| op.output(0))
            })
        };
        let gated = gradients.into_iter().map(|gradient| {
            Ok(match gradient {
                None => None,
                Some(Grad::Dense(output)) => Some(Grad::Dense(pass(&output)?)),
                Some(Grad::Slices(slices)) => {
                    Some(Grad::Slices(IndexedSlices { values: pass(&slices.values)?, ..slices }))
                }
            })
        });
        gated.collect()
    })
}

fn apply_gradients<O: Optimizer + ?Sized>(
    optimizer: &O,
    gradients: &[GradientAndVariable],
    global_step: Option<&Variable>,
    name: Option<&str>,
) -> Result<Operation> {
    let Some((_, first)) = gradients.iter().find(|(gradient, _)| gradient.is_some()) else {
        return Err(Status::invalid_argument(format!(
            "No gradients provided for any variable: {:?}.",
            gradients.iter().map(|(_, variable)| variable.name()).collect::<Vec<_>>()
        )));
    };
    let graph = first.graph().clone();
    let gradients = GradientReduction::of(&graph, gradients)?;
    let with_gradient: Vec<(&Grad, &Variable)> =
        gradients.iter().filter_map(|(gradient, variable)| Some((gradient.as_ref()?, variable))).collect();
    let variables: Vec<Variable> = with_gradient.iter().map(|(_, variable)| (*variable).clone()).collect();
    graph.without_control_dependencies(|graph| optimizer.create_slots(graph, &variables))?;
    let train_op = graph.name_scope(name.unwrap_or(optimizer.name()), |graph| {
        let whole = format!("{}/", graph.current_name_scope());
        optimizer.prepare(graph)?;
        let mut updates = Vec::with_capacity(with_gradient.len());
        for (gradient, variable) in &with_gradient {
            let update = graph.name_scope(&format!("update_{}", variable.name()), |graph| {
                graph.colocate_with(variable.op(), |graph| {
                    let update = match gradient {
                        Grad::Dense(output) => optimizer.apply_dense(graph, output, variable),
                        Grad::Slices(slices) => {
                            optimizer.apply_sparse_duplicate_indices(graph, &slices.values, &slices.indices, variable)
                        }
                    };
                    constrained(graph, variable, update?)
                })
            })?;
            updates.push(update);
        }
        let Some(global_step) = global_step else { return optimizer.finish(graph, &updates, &whole) };
        let update = optimizer.finish(graph, &updates, "update")?;
        graph.control_dependencies(&[update], |graph| {
            graph.colocate_with(global_step.op(), |graph| add_one(graph, global_step, &whole))
        })
    })?;
    if train_op.num_outputs() > 0 {
        graph.add_to_collection(collections::TRAIN_OP, &train_op.output(0));
    }
    Ok(train_op)
}

fn add_one(graph: &Graph, global_step: &Variable, name: &str) -> Result<Operation> {
    let one = super::expression::number(1.0, global_step.dtype())?;
    let (op, constant) = match global_step.kind() {
        Kind::Ref => ("AssignAdd", "value"),
        Kind::Resource => ("AssignAddVariableOp", "Const"),
    };
    let one = named_constant(graph, constant, &one);
    graph.op(op).name(name).input(global_step.handle()).input(&one).try_build()
}
