//! [`ExponentialMovingAverage`]: moving averages of variables.

use super::expression::{Number, add, binary, cast, div, group, mul, sub};
use super::slot::{SlotInitial, create_slot};
use crate::kept::kept_operation;
use crate::variable::{Kind, Variable, collections};
use graph::{Graph, Operation, Output};
use parking_lot::Mutex;
use std::collections::HashMap;
use tensor::{DType, Result, Status};

/// Maintains moving averages: `average = decay * average + (1 - decay) * variable`.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::{ExponentialMovingAverage, global_variables_initializer};
///
/// let g = Graph::new();
/// let w = Variable::new(&g, "w", &g.constant(0f32));
/// let averages = ExponentialMovingAverage::new(0.9, None);
/// let update = averages.apply(&g, &[w.clone()]);
/// let set = w.assign(&g.constant(10f32));
/// let session = Session::new(&g)?;
/// session.run_ops(&[&global_variables_initializer(&g)])?;
/// session.run_ops(&[&set])?;
/// session.run_ops(&[&update])?;
/// let average = averages.average(&w).unwrap();
/// assert!((session.eval::<f32>(average.value())? - 1.0).abs() < 1e-5);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct ExponentialMovingAverage {
    decay: f64,
    num_updates: Option<Variable>,
    name: String,
    averages: Mutex<HashMap<String, Variable>>,
}

impl ExponentialMovingAverage {
    /// Returns moving averages with this decay. If the number of updates is given, such as the global step, early averages follow
    /// faster: the decay is at most `(1 + n) / (10 + n)`.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::train::ExponentialMovingAverage;
    /// use ferroflow::variable::create_global_step;
    ///
    /// let g = Graph::new();
    /// let averages = ExponentialMovingAverage::new(0.999, Some(&create_global_step(&g)));
    /// ```
    pub fn new(decay: f64, num_updates: Option<&Variable>) -> ExponentialMovingAverage {
        ExponentialMovingAverage {
            decay,
            num_updates: num_updates.cloned(),
            name: "ExponentialMovingAverage".to_owned(),
            averages: Mutex::new(HashMap::new()),
        }
    }

    /// Adds the averages of these variables, and returns the operation that updates them.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::train::ExponentialMovingAverage;
    /// use ferroflow::variable::trainable_variables;
    ///
    /// let g = Graph::new();
    /// Variable::new(&g, "w", &g.constant(0f32));
    /// let averages = ExponentialMovingAverage::new(0.9, None);
    /// averages.apply(&g, &trainable_variables(&g)?);
    /// assert!(g.operation("w/ExponentialMovingAverage").is_some());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn apply(&self, graph: &Graph, variables: &[Variable]) -> Operation {
        kept_operation(graph, "ExponentialMovingAverage", || self.try_apply(graph, variables))
    }

    fn try_apply(&self, graph: &Graph, variables: &[Variable]) -> Result<Operation> {
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
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::train::ExponentialMovingAverage;
    ///
    /// let g = Graph::new();
    /// let w = Variable::new(&g, "w", &g.constant(0f32));
    /// let averages = ExponentialMovingAverage::new(0.9, None);
    /// assert!(averages.average(&w).is_none());
    /// averages.apply(&g, &[w.clone()]);
    /// assert_eq!(averages.average(&w).unwrap().name(), "w/ExponentialMovingAverage");
    /// ```
    pub fn average(&self, variable: &Variable) -> Option<Variable> {
        self.averages.lock().get(&variable.name()).cloned()
    }

    /// Returns the name of a variable's average, in the graph and in checkpoints.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::train::ExponentialMovingAverage;
    ///
    /// let g = Graph::new();
    /// let w = Variable::new(&g, "w", &g.constant(0f32));
    /// assert_eq!(ExponentialMovingAverage::new(0.9, None).average_name(&w), "w/ExponentialMovingAverage");
    /// ```
    pub fn average_name(&self, variable: &Variable) -> String {
        format!("{}/{}", variable.name(), self.name)
    }

    /// Returns the variables for a saver that restores the averages into the variables themselves, for evaluation.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::train::{ExponentialMovingAverage, Saver, SaverOptions};
    ///
    /// // The graph that evaluates has the variable only, and takes the average for it.
    /// let g = Graph::new();
    /// let w = Variable::new(&g, "w", &g.constant(0f32));
    /// let variables = ExponentialMovingAverage::new(0.9, None).variables_to_restore(&[w], &[]);
    /// assert_eq!(variables[0].0, "w/ExponentialMovingAverage");
    /// let saver = Saver::with_options(&g, SaverOptions { variables: Some(variables), ..SaverOptions::default() })?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
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
