//! [`ExponentialMovingAverage`]: averages of variables that follow them slowly.

use super::expression::{Number, add, binary, cast, div, group, mul, sub};
use super::slot::{SlotInitial, create_slot};
use crate::variable::{Kind, Variable, collections};
use graph::{Graph, Operation, Output};
use parking_lot::Mutex;
use std::collections::HashMap;
use tensor::{DType, Result, Status};

/// Keeps averages: `average = decay * average + (1 - decay) * variable`.
pub struct ExponentialMovingAverage {
    decay: f64,
    num_updates: Option<Variable>,
    name: String,
    averages: Mutex<HashMap<String, Variable>>,
}

impl ExponentialMovingAverage {
    /// Makes averages with a decay. With the number of updates so far, such as the global step, early averages follow
    /// faster: the decay is at most `(1 + n) / (10 + n)`.
    pub fn new(decay: f64, num_updates: Option<&Variable>) -> ExponentialMovingAverage {
        ExponentialMovingAverage {
            decay,
            num_updates: num_updates.cloned(),
            name: "ExponentialMovingAverage".to_owned(),
            averages: Mutex::new(HashMap::new()),
        }
    }

    /// Makes the averages of these variables, and returns the operation that updates them.
    pub fn apply(&self, graph: &Graph, variables: &[Variable]) -> Result<Operation> {
        for variable in variables {
            if !variable.dtype().is_floating() {
                return Err(Status::invalid_argument(format!(
                    "The variables must be half, float, or double: {}",
                    variable.name()
                )));
            }
            if self.average(variable).is_some() {
                return Err(Status::invalid_argument(format!(
                    "Moving average already computed for: {}",
                    variable.name()
                )));
            }
            graph.add_to_collection(collections::MOVING_AVERAGE_VARIABLES, variable.handle());
            let initial = SlotInitial::Tensor(variable.initial_value());
            let average = create_slot(variable, &self.name, initial)?;
            self.averages.lock().insert(variable.name(), average);
        }
        graph.name_scope(&self.name, |graph| {
            let whole = format!("{}/", graph.current_name_scope());
            let decay = self.decay(graph)?;
            let mut updates = Vec::with_capacity(variables.len());
            for variable in variables {
                let Some(average) = self.average(variable) else { continue };
                updates.push(assign_moving_average(graph, &average, &variable.read(), &decay)?);
            }
            group(graph, &updates, &whole)
        })
    }

    /// Returns the average of a variable.
    pub fn average(&self, variable: &Variable) -> Option<Variable> {
        self.averages.lock().get(&variable.name()).cloned()
    }

    /// Returns the name that the average of a variable has, in checkpoints too.
    pub fn average_name(&self, variable: &Variable) -> String {
        format!("{}/{}", variable.name(), self.name)
    }

    /// Returns what a saver needs to restore the averages into the variables themselves, for evaluation.
    pub fn variables_to_restore(&self, averaged: &[Variable], others: &[Variable]) -> Vec<(String, Variable)> {
        let averaged = averaged.iter().map(|variable| (self.average_name(variable), variable.clone()));
        averaged.chain(others.iter().map(|variable| (variable.name(), variable.clone()))).collect()
    }

    fn decay(&self, graph: &Graph) -> Result<Output> {
        let Some(updates) = &self.num_updates else {
            return Number::Value(self.decay).to_output(graph, "decay", DType::Float);
        };
        let updates = cast(graph, &updates.read(), DType::Float)?;
        let early = div(graph, &add(graph, 1.0, &updates)?, &add(graph, 10.0, &updates)?)?;
        binary(graph, "Minimum", "Minimum", self.decay, &early)
    }
}

/// Adds `average -= (1 - decay) * (average - value)`.
fn assign_moving_average(graph: &Graph, average: &Variable, value: &Output, decay: &Output) -> Result<Operation> {
    graph.colocate_with(average.op(), |graph| {
        graph.name_scope("AssignMovingAvg", |graph| {
            let whole = format!("{}/", graph.current_name_scope());
            let rest = cast(graph, &sub(graph, 1.0, decay)?, average.dtype())?;
            let distance = sub(graph, average.read(), value)?;
            let delta = mul(graph, &distance, &rest)?;
            let op = if average.kind() == Kind::Ref { "AssignSub" } else { "AssignSubVariableOp" };
            graph.op(op).name(&whole).input(average.handle()).input(&delta).try_build()
        })
    })
}
