//! Plain gradient descent.

use super::expression::{Number, mul, unary};
use super::optimizer::{Optimizer, OptimizerState, update_op};
use crate::variable::{Kind, Variable};
use graph::{Graph, Operation, Output};
use tensor::Result;

/// Moves every variable against its gradient.
pub struct GradientDescentOptimizer {
    name: String,
    use_locking: bool,
    learning_rate: Number,
    state: OptimizerState,
}

impl GradientDescentOptimizer {
    /// Makes the optimizer.
    pub fn new(learning_rate: impl Into<Number>) -> GradientDescentOptimizer {
        GradientDescentOptimizer {
            name: "GradientDescent".to_owned(),
            use_locking: false,
            learning_rate: learning_rate.into(),
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
}

impl Optimizer for GradientDescentOptimizer {
    fn name(&self) -> &str {
        &self.name
    }

    fn state(&self) -> &OptimizerState {
        &self.state
    }

    fn prepare(&self, graph: &Graph) -> Result<()> {
        self.state.prepare(graph, "learning_rate", &self.learning_rate)
    }

    fn apply_dense(&self, graph: &Graph, gradient: &Output, variable: &Variable) -> Result<Operation> {
        let dtype = variable.dtype();
        let learning_rate = self.state.prepared(graph, "learning_rate", dtype)?;
        update_op(
            graph,
            "ApplyGradientDescent",
            variable,
            &[],
            &[&learning_rate, gradient],
            &[("use_locking", self.use_locking)],
        )
    }

    fn apply_sparse(&self, graph: &Graph, values: &Output, indices: &Output, variable: &Variable) -> Result<Operation> {
        let learning_rate = self.state.prepared(graph, "learning_rate", variable.dtype())?;
        match variable.kind() {
            Kind::Ref => {
                let delta = mul(graph, values, &learning_rate)?;
                let update = graph.op("ScatterSub").input(variable.handle()).input(indices).input(&delta);
                update.attr("use_locking", self.use_locking).try_build()
            }
            Kind::Resource => {
                let negative = unary(graph, "Neg", values)?;
                let delta = mul(graph, &negative, &learning_rate)?;
                graph.op("ResourceScatterAdd").input(variable.handle()).input(indices).input(&delta).try_build()
            }
        }
    }

    fn apply_sparse_duplicate_indices(
        &self,
        graph: &Graph,
        values: &Output,
        indices: &Output,
        variable: &Variable,
    ) -> Result<Operation> {
        // Rows add up by themselves here.
        self.apply_sparse(graph, values, indices, variable)
    }
}
