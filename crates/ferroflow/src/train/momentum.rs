//! Momentum, and Nesterov's.

use super::expression::Number;
use super::optimizer::{Optimizer, OptimizerState, update_op};
use super::slot::SlotInitial;
use crate::variable::Variable;
use graph::{Graph, Operation, Output};
use tensor::Result;

/// Moves on in the direction of a decaying sum of the gradients.
pub struct MomentumOptimizer {
    name: String,
    use_locking: bool,
    learning_rate: Number,
    momentum: Number,
    use_nesterov: bool,
    state: OptimizerState,
}

impl MomentumOptimizer {
    /// Makes the optimizer with TensorFlow's defaults for the rest.
    pub fn new(learning_rate: impl Into<Number>, momentum: impl Into<Number>) -> MomentumOptimizer {
        MomentumOptimizer {
            name: "Momentum".to_owned(),
            use_locking: false,
            learning_rate: learning_rate.into(),
            momentum: momentum.into(),
            use_nesterov: false,
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

    /// Sets whether the gradient is taken where the momentum leads.
    pub fn use_nesterov(mut self, use_nesterov: bool) -> Self {
        self.use_nesterov = use_nesterov;
        self
    }
}

impl Optimizer for MomentumOptimizer {
    fn name(&self) -> &str {
        &self.name
    }

    fn state(&self) -> &OptimizerState {
        &self.state
    }

    fn create_slots(&self, _graph: &Graph, variables: &[Variable]) -> Result<()> {
        for variable in variables {
            self.state.slot(variable, "momentum", &self.name, SlotInitial::Zeros)?;
        }
        Ok(())
    }

    fn prepare(&self, graph: &Graph) -> Result<()> {
        self.state.prepare(graph, "learning_rate", &self.learning_rate)?;
        self.state.prepare(graph, "momentum", &self.momentum)
    }

    fn apply_dense(&self, graph: &Graph, gradient: &Output, variable: &Variable) -> Result<Operation> {
        let dtype = variable.dtype();
        let accumulator = self.state.existing_slot(variable, "momentum")?;
        let learning_rate = self.state.prepared(graph, "learning_rate", dtype)?;
        let momentum = self.state.prepared(graph, "momentum", dtype)?;
        update_op(
            graph,
            "ApplyMomentum",
            variable,
            &[&accumulator],
            &[&learning_rate, gradient, &momentum],
            &[("use_locking", self.use_locking), ("use_nesterov", self.use_nesterov)],
        )
    }

    fn apply_sparse(&self, graph: &Graph, values: &Output, indices: &Output, variable: &Variable) -> Result<Operation> {
        let dtype = variable.dtype();
        let accumulator = self.state.existing_slot(variable, "momentum")?;
        let learning_rate = self.state.prepared(graph, "learning_rate", dtype)?;
        let momentum = self.state.prepared(graph, "momentum", dtype)?;
        update_op(
            graph,
            "SparseApplyMomentum",
            variable,
            &[&accumulator],
            &[&learning_rate, values, indices, &momentum],
            &[("use_locking", self.use_locking), ("use_nesterov", self.use_nesterov)],
        )
    }
}
