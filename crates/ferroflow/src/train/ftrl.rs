//! Follow the regularized leader.

use super::expression::{Number, add, binary, div, mul};
use super::optimizer::{Optimizer, OptimizerState, update_op};
use super::slot::{SlotInitial, filled};
use crate::variable::{Variable, named_constant};
use graph::{Graph, Operation, Output};
use tensor::Result;

/// The FTRL-Proximal algorithm, for sparse linear models.
pub struct FtrlOptimizer {
    name: String,
    use_locking: bool,
    learning_rate: Number,
    learning_rate_power: Number,
    initial_accumulator_value: f64,
    l1_regularization_strength: Number,
    l2_regularization_strength: Number,
    l2_shrinkage_regularization_strength: f64,
    beta: Number,
    state: OptimizerState,
}

impl FtrlOptimizer {
    /// Makes the optimizer with TensorFlow's defaults for the rest.
    pub fn new(learning_rate: impl Into<Number>) -> FtrlOptimizer {
        FtrlOptimizer {
            name: "Ftrl".to_owned(),
            use_locking: false,
            learning_rate: learning_rate.into(),
            learning_rate_power: (-0.5).into(),
            initial_accumulator_value: 0.1,
            l1_regularization_strength: 0.0.into(),
            l2_regularization_strength: 0.0.into(),
            l2_shrinkage_regularization_strength: 0.0,
            beta: 0.0.into(),
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

    /// Sets how the learning rate decreases.
    pub fn learning_rate_power(mut self, learning_rate_power: impl Into<Number>) -> Self {
        self.learning_rate_power = learning_rate_power.into();
        self
    }

    /// Sets the first value of the accumulators.
    pub fn initial_accumulator_value(mut self, initial_accumulator_value: f64) -> Self {
        self.initial_accumulator_value = initial_accumulator_value;
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

    /// Sets the cost of squares that doesn't depend on where the weights have been.
    pub fn l2_shrinkage_regularization_strength(mut self, l2_shrinkage_regularization_strength: f64) -> Self {
        self.l2_shrinkage_regularization_strength = l2_shrinkage_regularization_strength;
        self
    }

    /// Sets what is added to the root of the accumulators.
    pub fn beta(mut self, beta: impl Into<Number>) -> Self {
        self.beta = beta.into();
        self
    }
}

impl Optimizer for FtrlOptimizer {
    fn name(&self) -> &str {
        &self.name
    }

    fn state(&self) -> &OptimizerState {
        &self.state
    }

    fn create_slots(&self, _graph: &Graph, variables: &[Variable]) -> Result<()> {
        for variable in variables {
            let initial = |graph: &Graph| {
                let dtype = variable.dtype();
                let shape = variable.shape().to_shape().unwrap_or(tensor::Shape::scalar());
                let ones = named_constant(graph, "ones", &filled(1.0, dtype, &shape)?);
                mul(graph, &ones, self.initial_accumulator_value)
            };
            self.state.slot(variable, "accum", &self.name, SlotInitial::Function(&initial))?;
            self.state.slot(variable, "linear", &self.name, SlotInitial::Zeros)?;
        }
        Ok(())
    }

    fn prepare(&self, graph: &Graph) -> Result<()> {
        self.state.prepare(graph, "learning_rate", &self.learning_rate)?;
        self.state.prepare(graph, "l1_regularization_strength", &self.l1_regularization_strength)?;
        // The kernels know no beta, so it is added to the cost of squares.
        let floor = binary(graph, "Maximum", "Maximum", self.learning_rate.clone(), 1e-36)?;
        let twice = mul(graph, 2.0, &floor)?;
        let beta_part = div(graph, self.beta.clone(), &twice)?;
        let adjusted = add(graph, self.l2_regularization_strength.clone(), &beta_part)?;
        self.state.set_prepared("l2_regularization_strength", adjusted);
        self.state.prepare(graph, "beta", &self.beta)?;
        let shrinkage = Number::Value(self.l2_shrinkage_regularization_strength);
        self.state.prepare(graph, "l2_shrinkage_regularization_strength", &shrinkage)?;
        self.state.prepare(graph, "learning_rate_power", &self.learning_rate_power)
    }

    fn apply_dense(&self, graph: &Graph, gradient: &Output, variable: &Variable) -> Result<Operation> {
        let dtype = variable.dtype();
        let accumulator = self.state.existing_slot(variable, "accum")?;
        let linear = self.state.existing_slot(variable, "linear")?;
        let slots = [&accumulator, &linear];
        let learning_rate = self.state.prepared(graph, "learning_rate", dtype)?;
        let l1 = self.state.prepared(graph, "l1_regularization_strength", dtype)?;
        let l2 = self.state.prepared(graph, "l2_regularization_strength", dtype)?;
        let power = self.state.prepared(graph, "learning_rate_power", dtype)?;
        let attrs = [("use_locking", self.use_locking)];
        if self.l2_shrinkage_regularization_strength > 0.0 {
            let shrinkage = self.state.prepared(graph, "l2_shrinkage_regularization_strength", dtype)?;
            let inputs = [gradient, &learning_rate, &l1, &l2, &shrinkage, &power];
            return update_op(graph, "ApplyFtrlV2", variable, &slots, &inputs, &attrs);
        }
        let inputs = [gradient, &learning_rate, &l1, &l2, &power];
        update_op(graph, "ApplyFtrl", variable, &slots, &inputs, &attrs)
    }

    fn apply_sparse(&self, graph: &Graph, values: &Output, indices: &Output, variable: &Variable) -> Result<Operation> {
        let dtype = variable.dtype();
        let accumulator = self.state.existing_slot(variable, "accum")?;
        let linear = self.state.existing_slot(variable, "linear")?;
        let slots = [&accumulator, &linear];
        let learning_rate = self.state.prepared(graph, "learning_rate", dtype)?;
        let l1 = self.state.prepared(graph, "l1_regularization_strength", dtype)?;
        let l2 = self.state.prepared(graph, "l2_regularization_strength", dtype)?;
        let power = self.state.prepared(graph, "learning_rate_power", dtype)?;
        let attrs = [("use_locking", self.use_locking)];
        if self.l2_shrinkage_regularization_strength > 0.0 {
            let shrinkage = self.state.prepared(graph, "l2_shrinkage_regularization_strength", dtype)?;
            let inputs = [values, indices, &learning_rate, &l1, &l2, &shrinkage, &power];
            return update_op(graph, "SparseApplyFtrlV2", variable, &slots, &inputs, &attrs);
        }
        let inputs = [values, indices, &learning_rate, &l1, &l2, &power];
        update_op(graph, "SparseApplyFtrl", variable, &slots, &inputs, &attrs)
    }
}
