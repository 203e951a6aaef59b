//! Adadelta.

use super::expression::Number;
use super::optimizer::{Optimizer, OptimizerState, update_op};
use super::slot::SlotInitial;
use crate::variable::Variable;
use graph::{Graph, Operation, Output};
use tensor::Result;

/// Scales steps by the ratio of decaying averages of squared updates and squared gradients.
pub struct AdadeltaOptimizer {
    name: String,
    use_locking: bool,
    learning_rate: Number,
    rho: Number,
    epsilon: Number,
    state: OptimizerState,
}

impl AdadeltaOptimizer {
    /// Makes the optimizer with TensorFlow's defaults for the rest.
    pub fn new(learning_rate: impl Into<Number>) -> AdadeltaOptimizer {
        AdadeltaOptimizer {
            name: "Adadelta".to_owned(),
            use_locking: false,
            learning_rate: learning_rate.into(),
            rho: 0.95.into(),
            epsilon: 1e-8.into(),
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

    /// Sets the decay of the averages.
    pub fn rho(mut self, rho: impl Into<Number>) -> Self {
        self.rho = rho.into();
        self
    }

    /// Sets what keeps divisors from being zero.
    pub fn epsilon(mut self, epsilon: impl Into<Number>) -> Self {
        self.epsilon = epsilon.into();
        self
    }
}

impl Optimizer for AdadeltaOptimizer {
    fn name(&self) -> &str {
        &self.name
    }

    fn state(&self) -> &OptimizerState {
        &self.state
    }

    fn create_slots(&self, _graph: &Graph, variables: &[Variable]) -> Result<()> {
        for variable in variables {
            self.state.slot(variable, "accum", &self.name, SlotInitial::Zeros)?;
            self.state.slot(variable, "accum_update", &self.name, SlotInitial::Zeros)?;
        }
        Ok(())
    }

    fn prepare(&self, graph: &Graph) -> Result<()> {
        self.state.prepare(graph, "lr", &self.learning_rate)?;
        self.state.prepare(graph, "rho", &self.rho)?;
        self.state.prepare(graph, "epsilon", &self.epsilon)
    }

    fn apply_dense(&self, graph: &Graph, gradient: &Output, variable: &Variable) -> Result<Operation> {
        let dtype = variable.dtype();
        let accum = self.state.existing_slot(variable, "accum")?;
        let accum_update = self.state.existing_slot(variable, "accum_update")?;
        let lr = self.state.prepared(graph, "lr", dtype)?;
        let rho = self.state.prepared(graph, "rho", dtype)?;
        let epsilon = self.state.prepared(graph, "epsilon", dtype)?;
        update_op(
            graph,
            "ApplyAdadelta",
            variable,
            &[&accum, &accum_update],
            &[&lr, &rho, &epsilon, gradient],
            &[("use_locking", self.use_locking)],
        )
    }

    fn apply_sparse(&self, graph: &Graph, values: &Output, indices: &Output, variable: &Variable) -> Result<Operation> {
        let dtype = variable.dtype();
        let accum = self.state.existing_slot(variable, "accum")?;
        let accum_update = self.state.existing_slot(variable, "accum_update")?;
        let lr = self.state.prepared(graph, "lr", dtype)?;
        let rho = self.state.prepared(graph, "rho", dtype)?;
        let epsilon = self.state.prepared(graph, "epsilon", dtype)?;
        update_op(
            graph,
            "SparseApplyAdadelta",
            variable,
            &[&accum, &accum_update],
            &[&lr, &rho, &epsilon, values, indices],
            &[("use_locking", self.use_locking)],
        )
    }
}
