//! Adagrad with dual averaging.

use super::expression::{Number, add, cast_number, read_as, unary};
use super::optimizer::{Optimizer, OptimizerState, update_op};
use super::slot::{SlotInitial, constant_beside};
use crate::variable::Variable;
use graph::{Graph, Operation, Output};
use tensor::Result;

/// Adagrad with dual averaging, for sparse linear models.
pub struct AdagradDaOptimizer {
    name: String,
    use_locking: bool,
    learning_rate: Number,
    global_step: Variable,
    initial_gradient_squared_accumulator_value: f64,
    l1_regularization_strength: Number,
    l2_regularization_strength: Number,
    state: OptimizerState,
}

impl AdagradDaOptimizer {
    /// Makes the optimizer with TensorFlow's defaults for the rest.
    pub fn new(learning_rate: impl Into<Number>, global_step: &Variable) -> AdagradDaOptimizer {
        AdagradDaOptimizer {
            name: "AdagradDA".to_owned(),
            use_locking: false,
            learning_rate: learning_rate.into(),
            global_step: global_step.clone(),
            initial_gradient_squared_accumulator_value: 0.1,
            l1_regularization_strength: 0.0.into(),
            l2_regularization_strength: 0.0.into(),
            state: OptimizerState::default(),
        }
    }

    /// Sets the name.
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.to_owned();
        self
    }

    /// Sets whether updates of one variable exclude each other.
    pub fn use_locking(mut self, use_locking: bool) -> Self {
        self.use_locking = use_locking;
        self
    }

    /// Sets the first value of the accumulators.
    pub fn initial_gradient_squared_accumulator_value(
        mut self,
        initial_gradient_squared_accumulator_value: f64,
    ) -> Self {
        self.initial_gradient_squared_accumulator_value = initial_gradient_squared_accumulator_value;
        self
    }

    /// Sets how much absolute values cost.
    pub fn l1_regularization_strength(mut self, l1_regularization_strength: impl Into<Number>) -> Self {
        self.l1_regularization_strength = l1_regularization_strength.into();
        self
    }

    /// Sets how much squares cost.
    pub fn l2_regularization_strength(mut self, l2_regularization_strength: impl Into<Number>) -> Self {
        self.l2_regularization_strength = l2_regularization_strength.into();
        self
    }
}

impl Optimizer for AdagradDaOptimizer {
    fn name(&self) -> &str {
        &self.name
    }

    fn state(&self) -> &OptimizerState {
        &self.state
    }

    fn create_slots(&self, graph: &Graph, variables: &[Variable]) -> Result<()> {
        for variable in variables {
            let zeros = constant_beside(graph, variable, 0.0)?;
            let squares = constant_beside(graph, variable, self.initial_gradient_squared_accumulator_value)?;
            self.state.slot(variable, "gradient_accumulator", &self.name, SlotInitial::Tensor(&zeros))?;
            let slot = "gradient_squared_accumulator";
            self.state.slot(variable, slot, &self.name, SlotInitial::Tensor(&squares))?;
        }
        Ok(())
    }

    fn prepare(&self, graph: &Graph) -> Result<()> {
        self.state.prepare(graph, "learning_rate", &self.learning_rate)?;
        // A copy on the worker spares the task that holds the step counter.
        let learning_rate = self.state.prepared(graph, "learning_rate", self.learning_rate.dtype())?;
        let step = graph.colocate_with(&learning_rate.op, |graph| {
            let copy = read_as(graph, &self.global_step, "Identity")?;
            add(graph, &copy, 1.0)
        })?;
        self.state.set_prepared("global_step", step);
        Ok(())
    }

    fn apply_dense(&self, graph: &Graph, gradient: &Output, variable: &Variable) -> Result<Operation> {
        let dtype = variable.dtype();
        let sum = self.state.existing_slot(variable, "gradient_accumulator")?;
        let squares = self.state.existing_slot(variable, "gradient_squared_accumulator")?;
        let step = self.state.prepared(graph, "global_step", tensor::DType::Int64)?;
        let step = unary(graph, "Identity", &step)?;
        let learning_rate = self.state.prepared(graph, "learning_rate", dtype)?;
        let l1 = cast_number(graph, &self.l1_regularization_strength, dtype)?;
        let l2 = cast_number(graph, &self.l2_regularization_strength, dtype)?;
        let inputs = [gradient, &learning_rate, &l1, &l2, &step];
        let attrs = [("use_locking", self.use_locking)];
        update_op(graph, "ApplyAdagradDA", variable, &[&sum, &squares], &inputs, &attrs)
    }

    fn apply_sparse(&self, graph: &Graph, values: &Output, indices: &Output, variable: &Variable) -> Result<Operation> {
        let dtype = variable.dtype();
        let sum = self.state.existing_slot(variable, "gradient_accumulator")?;
        let squares = self.state.existing_slot(variable, "gradient_squared_accumulator")?;
        let step = self.state.prepared(graph, "global_step", tensor::DType::Int64)?;
        let step = unary(graph, "Identity", &step)?;
        let learning_rate = self.state.prepared(graph, "learning_rate", dtype)?;
        let l1 = cast_number(graph, &self.l1_regularization_strength, dtype)?;
        let l2 = cast_number(graph, &self.l2_regularization_strength, dtype)?;
        let inputs = [values, indices, &learning_rate, &l1, &l2, &step];
        let attrs = [("use_locking", self.use_locking)];
        update_op(graph, "SparseApplyAdagradDA", variable, &[&sum, &squares], &inputs, &attrs)
    }
}
