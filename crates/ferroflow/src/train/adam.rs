//! Adam.

use super::expression::{Number, add, assign, cast, div, group, mul, number, sub, unary};
use super::optimizer::{Optimizer, OptimizerState, update_op};
use super::slot::SlotInitial;
use crate::variable::{Kind, Variable};
use graph::{Graph, Operation, Output};
use tensor::{Result, Status};

/// Scales steps by decaying averages of the gradient and of its square.
pub struct AdamOptimizer {
    name: String,
    use_locking: bool,
    learning_rate: Number,
    beta1: Number,
    beta2: Number,
    epsilon: Number,
    state: OptimizerState,
}

impl AdamOptimizer {
    /// Makes the optimizer with TensorFlow's defaults for the rest.
    pub fn new(learning_rate: impl Into<Number>) -> AdamOptimizer {
        AdamOptimizer {
            name: "Adam".to_owned(),
            use_locking: false,
            learning_rate: learning_rate.into(),
            beta1: 0.9.into(),
            beta2: 0.999.into(),
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

    /// Sets the decay of the gradient's average.
    pub fn beta1(mut self, beta1: impl Into<Number>) -> Self {
        self.beta1 = beta1.into();
        self
    }

    /// Sets the decay of the square's average.
    pub fn beta2(mut self, beta2: impl Into<Number>) -> Self {
        self.beta2 = beta2.into();
        self
    }

    /// Sets what keeps divisors from being zero.
    pub fn epsilon(mut self, epsilon: impl Into<Number>) -> Self {
        self.epsilon = epsilon.into();
        self
    }

    fn powers(&self) -> Result<(Variable, Variable)> {
        let power = |name: &str| {
            let found = self.state.existing_other(name);
            found.ok_or_else(|| Status::internal(format!("'{name}' was not made")))
        };
        Ok((power("beta1_power")?, power("beta2_power")?))
    }

    /// Adds `slot = slot * decay`, then adds rows to it; returns the value after that.
    fn decay_and_add(
        &self,
        graph: &Graph,
        slot: &Variable,
        decay: &Output,
        indices: &Output,
        rows: &Output,
    ) -> Result<Output> {
        let decayed = mul(graph, slot.read(), decay)?;
        let assign = assign(graph, slot, &decayed, self.use_locking)?;
        graph.control_dependencies(std::slice::from_ref(&assign), |graph| match slot.kind() {
            Kind::Ref => {
                let op = graph.op("ScatterAdd").input(slot.handle()).input(indices).input(rows);
                Ok(op.attr("use_locking", self.use_locking).try_build()?.output(0))
            }
            Kind::Resource => {
                let op = graph.op("ResourceScatterAdd").input(slot.handle()).input(indices).input(rows).try_build()?;
                Ok(graph.control_dependencies(&[op], |_| slot.read()))
            }
        })
    }
}

impl Optimizer for AdamOptimizer {
    fn name(&self) -> &str {
        &self.name
    }

    fn state(&self) -> &OptimizerState {
        &self.state
    }

    fn create_slots(&self, _graph: &Graph, variables: &[Variable]) -> Result<()> {
        let Some(first) = variables.iter().min_by_key(|variable| variable.name()) else { return Ok(()) };
        for (name, beta) in [("beta1_power", &self.beta1), ("beta2_power", &self.beta2)] {
            let Number::Value(beta) = beta else {
                return Err(Status::invalid_argument("Adam's betas must be numbers"));
            };
            self.state.other(first, name, &number(*beta, tensor::DType::Float)?)?;
        }
        for variable in variables {
            self.state.slot(variable, "m", &self.name, SlotInitial::Zeros)?;
            self.state.slot(variable, "v", &self.name, SlotInitial::Zeros)?;
        }
        Ok(())
    }

    fn prepare(&self, graph: &Graph) -> Result<()> {
        self.state.prepare(graph, "learning_rate", &self.learning_rate)?;
        self.state.prepare(graph, "beta1", &self.beta1)?;
        self.state.prepare(graph, "beta2", &self.beta2)?;
        self.state.prepare(graph, "epsilon", &self.epsilon)
    }

    fn apply_dense(&self, graph: &Graph, gradient: &Output, variable: &Variable) -> Result<Operation> {
        let dtype = variable.dtype();
        let (m, v) = (self.state.existing_slot(variable, "m")?, self.state.existing_slot(variable, "v")?);
        let (beta1_power, beta2_power) = self.powers()?;
        let hyper = |name: &'static str| self.state.prepared(graph, name, dtype);
        let (learning_rate, beta1, beta2, epsilon) =
            (hyper("learning_rate")?, hyper("beta1")?, hyper("beta2")?, hyper("epsilon")?);
        if variable.kind() == Kind::Ref {
            let (beta1_power, beta2_power) =
                (cast(graph, &beta1_power.read(), dtype)?, cast(graph, &beta2_power.read(), dtype)?);
            let inputs = [&beta1_power, &beta2_power, &learning_rate, &beta1, &beta2, &epsilon, gradient];
            return update_op(graph, "ApplyAdam", variable, &[&m, &v], &inputs, &[("use_locking", self.use_locking)]);
        }
        graph.name_scope("ResourceApplyAdam", |graph| {
            let whole = format!("{}/", graph.current_name_scope());
            let read = |power: &Variable| cast(graph, &power.read(), dtype);
            let (beta1_power, beta2_power) = (read(&beta1_power)?, read(&beta2_power)?);
            let inputs = [&beta1_power, &beta2_power, &learning_rate, &beta1, &beta2, &epsilon, gradient];
            let handles = [variable.handle(), m.handle(), v.handle()];
            let op = graph.op("ResourceApplyAdam").name(&whole).inputs(handles).inputs(inputs);
            op.attr("use_locking", self.use_locking).try_build()
        })
    }

    fn apply_sparse(&self, graph: &Graph, values: &Output, indices: &Output, variable: &Variable) -> Result<Operation> {
        let dtype = variable.dtype();
        let (m, v) = (self.state.existing_slot(variable, "m")?, self.state.existing_slot(variable, "v")?);
        let (beta1_power, beta2_power) = self.powers()?;
        let hyper = |name: &'static str| self.state.prepared(graph, name, dtype);
        let (learning_rate, beta1, beta2, epsilon) =
            (hyper("learning_rate")?, hyper("beta1")?, hyper("beta2")?, hyper("epsilon")?);
        let read = |power: &Variable| cast(graph, &power.read(), dtype);
        let unbiased2 = unary(graph, "Sqrt", &sub(graph, 1.0, &read(&beta2_power)?)?)?;
        let scaled = mul(graph, &learning_rate, &unbiased2)?;
        let rate = div(graph, &scaled, &sub(graph, 1.0, &read(&beta1_power)?)?)?;
        let m_part = mul(graph, values, &sub(graph, 1.0, &beta1)?)?;
        let m_new = self.decay_and_add(graph, &m, &beta1, indices, &m_part)?;
        let squares = mul(graph, values, values)?;
        let v_part = mul(graph, &squares, &sub(graph, 1.0, &beta2)?)?;
        let v_new = self.decay_and_add(graph, &v, &beta2, indices, &v_part)?;
        let root = unary(graph, "Sqrt", &v_new)?;
        let step = mul(graph, &rate, &m_new)?;
        let step = div(graph, &step, &add(graph, &root, &epsilon)?)?;
        let update = match variable.kind() {
            Kind::Ref => {
                let op = graph.op("AssignSub").input(variable.handle()).input(&step);
                op.attr("use_locking", self.use_locking).try_build()?
            }
            Kind::Resource => {
                let update = graph.op("AssignSubVariableOp").input(variable.handle()).input(&step).try_build()?;
                graph.control_dependencies(std::slice::from_ref(&update), |graph| variable.read_op(graph));
                update
            }
        };
        group(graph, &[update, m_new.op.clone(), v_new.op.clone()], "group_deps")
    }

    fn finish(&self, graph: &Graph, updates: &[Operation], name: &str) -> Result<Operation> {
        let (beta1_power, beta2_power) = self.powers()?;
        let mut all = updates.to_vec();
        let powers = graph.control_dependencies(updates, |graph| {
            graph.colocate_with(beta1_power.op(), |graph| {
                let mut assigns = Vec::new();
                for (power, beta) in [(&beta1_power, "beta1"), (&beta2_power, "beta2")] {
                    let beta = self.state.prepared(graph, beta, power.dtype())?;
                    let next = mul(graph, power.read(), &beta)?;
                    assigns.push(assign(graph, power, &next, self.use_locking)?);
                }
                Ok(assigns)
            })
        })?;
        all.extend(powers);
        group(graph, &all, name)
    }
}
