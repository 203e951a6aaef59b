//! Adagrad.

use super::expression::Number;
use super::optimizer::{Optimizer, OptimizerState, update_op};
use super::slot::SlotInitial;
use crate::variable::Variable;
use graph::{Graph, Operation, Output};
use tensor::Result;

/// Divides the learning rate of each element by the root of the sum of its squared gradients.
pub struct AdagradOptimizer {
    name: String,
    use_locking: bool,
    learning_rate: Number,
    initial_accumulator_value: f64,
    state: OptimizerState,
}

impl AdagradOptimizer {
    /// Makes the optimizer with TensorFlow's defaults for the rest.
    pub fn new(learning_rate: impl Into<Number>) -> AdagradOptimizer {
        AdagradOptimizer {
            name: "Adagrad".to_owned(),
            use_locking: false,
            learning_rate: learning_rate.into(),
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

    /// Sets the first value of the accumulators.
    pub fn initial_accumulator_value(mut self, initial_accumulator_value: f64) -> Self {
        self.initial_accumulator_value = initial_accumulator_value;
        self
    }
}

impl Optimizer for AdagradOptimizer {
    fn name(&self) -> &str {
        &self.name
    }

    fn state(&self) -> &OptimizerState {
        &self.state
    }

    fn create_slots(&self, _graph: &Graph, variables: &[Variable]) -> Result<()> {
        for variable in variables {
            let initial = SlotInitial::Constant(self.initial_accumulator_value);
            self.state.slot(variable, "accumulator", &self.name, initial)?;
        }
        Ok(())
    }

    fn prepare(&self, graph: &Graph) -> Result<()> {
        self.state.prepare(graph, "learning_rate", &self.learning_rate)
    }

    fn apply_dense(&self, graph: &Graph, gradient: &Output, variable: &Variable) -> Result<Operation> {
        let dtype = variable.dtype();
        let accumulator = self.state.existing_slot(variable, "accumulator")?;
        let learning_rate = self.state.prepared(graph, "learning_rate", dtype)?;
        update_op(
            graph,
            "ApplyAdagrad",
            variable,
            &[&accumulator],
            &[&learning_rate, gradient],
            &[("use_locking", self.use_locking)],
        )
    }

    fn apply_sparse(&self, graph: &Graph, values: &Output, indices: &Output, variable: &Variable) -> Result<Operation> {
        let dtype = variable.dtype();
        let accumulator = self.state.existing_slot(variable, "accumulator")?;
        let learning_rate = self.state.prepared(graph, "learning_rate", dtype)?;
        update_op(
            graph,
            "SparseApplyAdagrad",
            variable,
            &[&accumulator],
            &[&learning_rate, values, indices],
            &[("use_locking", self.use_locking)],
        )
    }
}
