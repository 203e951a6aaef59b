//! RMSProp, centered or not.

use super::expression::Number;
use super::optimizer::{Optimizer, OptimizerState, update_op};
use super::slot::SlotInitial;
use crate::variable::Variable;
use graph::{Graph, Operation, Output};
use tensor::Result;

/// Divides the gradient by the root of a decaying average of its square.
pub struct RmsPropOptimizer {
    name: String,
    use_locking: bool,
    learning_rate: Number,
    decay: Number,
    momentum: Number,
    epsilon: Number,
    centered: bool,
    state: OptimizerState,
}

impl RmsPropOptimizer {
    /// Makes the optimizer with TensorFlow's defaults for the rest.
    pub fn new(learning_rate: impl Into<Number>) -> RmsPropOptimizer {
        RmsPropOptimizer {
            name: "RMSProp".to_owned(),
            use_locking: false,
            learning_rate: learning_rate.into(),
            decay: 0.9.into(),
            momentum: 0.0.into(),
            epsilon: 1e-10.into(),
            centered: false,
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
    pub fn decay(mut self, decay: impl Into<Number>) -> Self {
        self.decay = decay.into();
        self
    }

    /// Sets the momentum.
    pub fn momentum(mut self, momentum: impl Into<Number>) -> Self {
        self.momentum = momentum.into();
        self
    }

    /// Sets what keeps divisors from being zero.
    pub fn epsilon(mut self, epsilon: impl Into<Number>) -> Self {
        self.epsilon = epsilon.into();
        self
    }

    /// Sets whether the mean of the gradient is taken off its square.
    pub fn centered(mut self, centered: bool) -> Self {
        self.centered = centered;
        self
    }
}

impl Optimizer for RmsPropOptimizer {
    fn name(&self) -> &str {
        &self.name
    }

    fn state(&self) -> &OptimizerState {
        &self.state
    }

    fn create_slots(&self, _graph: &Graph, variables: &[Variable]) -> Result<()> {
        for variable in variables {
            self.state.slot(variable, "rms", &self.name, SlotInitial::Ones)?;
            if self.centered {
                self.state.slot(variable, "mg", &self.name, SlotInitial::Zeros)?;
            }
            self.state.slot(variable, "momentum", &self.name, SlotInitial::Zeros)?;
        }
        Ok(())
    }

    fn prepare(&self, graph: &Graph) -> Result<()> {
        self.state.prepare(graph, "learning_rate", &self.learning_rate)?;
        self.state.prepare(graph, "decay", &self.decay)?;
        self.state.prepare(graph, "momentum", &self.momentum)?;
        self.state.prepare(graph, "epsilon", &self.epsilon)
    }

    fn apply_dense(&self, graph: &Graph, gradient: &Output, variable: &Variable) -> Result<Operation> {
        let dtype = variable.dtype();
        let mean_square = self.state.existing_slot(variable, "rms")?;
        let moment = self.state.existing_slot(variable, "momentum")?;
        let learning_rate = self.state.prepared(graph, "learning_rate", dtype)?;
        let decay = self.state.prepared(graph, "decay", dtype)?;
        let momentum = self.state.prepared(graph, "momentum", dtype)?;
        let epsilon = self.state.prepared(graph, "epsilon", dtype)?;
        let attrs = [("use_locking", self.use_locking)];
        let inputs = [&learning_rate, &decay, &momentum, &epsilon, gradient];
        if self.centered {
            let mean = self.state.existing_slot(variable, "mg")?;
            update_op(graph, "ApplyCenteredRMSProp", variable, &[&mean, &mean_square, &moment], &inputs, &attrs)
        } else {
            update_op(graph, "ApplyRMSProp", variable, &[&mean_square, &moment], &inputs, &attrs)
        }
    }

    fn apply_sparse(&self, graph: &Graph, values: &Output, indices: &Output, variable: &Variable) -> Result<Operation> {
        let dtype = variable.dtype();
        let mean_square = self.state.existing_slot(variable, "rms")?;
        let moment = self.state.existing_slot(variable, "momentum")?;
        let learning_rate = self.state.prepared(graph, "learning_rate", dtype)?;
        let decay = self.state.prepared(graph, "decay", dtype)?;
        let momentum = self.state.prepared(graph, "momentum", dtype)?;
        let epsilon = self.state.prepared(graph, "epsilon", dtype)?;
        let attrs = [("use_locking", self.use_locking)];
        let inputs = [&learning_rate, &decay, &momentum, &epsilon, values, indices];
        if self.centered {
            let mean = self.state.existing_slot(variable, "mg")?;
            update_op(graph, "SparseApplyCenteredRMSProp", variable, &[&mean, &mean_square, &moment], &inputs, &attrs)
        } else {
            update_op(graph, "SparseApplyRMSProp", variable, &[&mean_square, &moment], &inputs, &attrs)
        }
    }
}
