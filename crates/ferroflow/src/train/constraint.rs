//! Constraints: projections that are applied to a variable's value after each update by an optimizer.

use super::expression::assign;
use crate::variable::Variable;
use graph::{Edge, Graph, Operation, Output};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tensor::Result;

/// Computes a variable's constrained value from its value.
///
/// ```
/// use ferroflow::layers::Dense;
/// use ferroflow::layers::constraints::Constraint;
///
/// let own: Constraint = std::sync::Arc::new(|w| ferroflow::ops::math::tanh(w));
/// let layer = Dense::new(10).kernel_constraint(own);
/// ```
pub type Constraint = Arc<dyn Fn(&Output) -> Output + Send + Sync>;

/// The constraints of a graph's variables.
#[derive(Default)]
struct Constraints(Mutex<HashMap<Edge, Constraint>>);

pub(crate) fn set_constraint(variable: &Variable, constraint: Constraint) {
    variable.graph().extension::<Constraints>().0.lock().insert(variable.handle().edge(), constraint);
}

/// Adds a variable's constraint after an update, if it has one; returns the last operation.
pub(crate) fn constrained(graph: &Graph, variable: &Variable, update: Operation) -> Result<Operation> {
    let constraint = graph.extension::<Constraints>().0.lock().get(&variable.handle().edge()).cloned();
    let Some(constraint) = constraint else { return Ok(update) };
    graph.control_dependencies(&[update], |graph| {
        // Reads after the update; the shared read op might run before it.
        let value = match variable.handle().is_ref() {
            true => graph.op("Identity").input(variable.handle()).try_build()?.output(0),
            false => variable.read_op(graph),
        };
        assign(graph, variable, &constraint(&value), true)
    })
}
