//! Adagrad with regularization.

use super::expression::Number;
use super::optimizer::{Optimizer, OptimizerState, update_op};
use super::slot::{SlotInitial, constant_beside};
use crate::variable::Variable;
use graph::{Graph, Operation, Output};
use tensor::Result;

/// Adagrad with steps that shrink the weights.
pub struct ProximalAdagradOptimizer {
    name: String,
    use_locking: bool,
    learning_rate: Number,
    l1_regularization_strength: Number,
    l2_regularization_strength: Number,
    initial_accumulator_value: f64,
    state: OptimizerState,
}

impl ProximalAdagradOptimizer {
    /// Makes the optimizer with TensorFlow's defaults for the rest.
    pub fn new(learning_rate: impl Into<Number>) -> ProximalAdagradOptimizer {
        ProximalAdagradOptimizer {
            name: "ProximalAdagrad".to_owned(),
            use_locking: false,
            learning_rate: learning_rate.into(),
            l1_regularization_strength: 0.0.into(),
            l2_regularization_strength: 0.0.into(),
            initial_accumulator_value: 0.1,
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

    /// Sets the first value of the accumulators.
    pub fn initial_accumulator_value(mut self, initial_accumulator_value: f64) -> Self {
        self.initial_accumulator_value = initial_accumulator_value;
        self
    }
}

impl Optimizer for ProximalAdagradOptimizer {
    fn name(&self) -> &str {
        &self.name
    }

    fn state(&self) -> &OptimizerState {
        &self.state
    }

    fn create_slots(&self, graph: &Graph, variables: &[Variable]) -> Result<()> {
        for variable in variables {
            let initial = constant_beside(graph, variable, self.initial_accumulator_value)?;
            self.state.slot(variable, "accumulator", &self.name, SlotInitial::Tensor(&initial))?;
        }
        Ok(())
    }

    fn prepare(&self, graph: &Graph) -> Result<()> {
        self.state.prepare(graph, "learning_rate", &self.learning_rate)?;
        self.state.prepare(graph, "l1_regularization_strength", &self.l1_regularization_strength)?;
        self.state.prepare(graph, "l2_regularization_strength", &self.l2_regularization_strength)
    }

    fn apply_dense(&self, graph: &Graph, gradient: &Output, variable: &Variable) -> Result<Operation> {
        let dtype = variable.dtype();
        let accumulator = self.state.existing_slot(variable, "accumulator")?;
        let learning_rate = self.state.prepared(graph, "learning_rate", dtype)?;
        let l1_regularization_strength = self.state.prepared(graph, "l1_regularization_strength", dtype)?;
        let l2_regularization_strength = self.state.prepared(graph, "l2_regularization_strength", dtype)?;
        update_op(
            graph,
            "ApplyProximalAdagrad",
            variable,
            &[&accumulator],
            &[&learning_rate, &l1_regularization_strength, &l2_regularization_strength, gradient],
            &[("use_locking", self.use_locking)],
        )
    }

    fn apply_sparse(&self, graph: &Graph, values: &Output, indices: &Output, variable: &Variable) -> Result<Operation> {
        let dtype = variable.dtype();
        let accumulator = self.state.existing_slot(variable, "accumulator")?;
        let learning_rate = self.state.prepared(graph, "learning_rate", dtype)?;
        let l1_regularization_strength = self.state.prepared(graph, "l1_regularization_strength", dtype)?;
        let l2_regularization_strength = self.state.prepared(graph, "l2_regularization_strength", dtype)?;
        update_op(
            graph,
            "SparseApplyProximalAdagrad",
            variable,
            &[&accumulator],
            &[&learning_rate, &l1_regularization_strength, &l2_regularization_strength, values, indices],
            &[("use_locking", self.use_locking)],
        )
    }
}
