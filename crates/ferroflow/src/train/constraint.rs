//! What optimizers make of a variable's value after they have changed it.

use super::expression::assign;
use crate::variable::Variable;
use graph::{Edge, Graph, Operation, Output};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tensor::Result;

/// Makes the value that a variable may have of the one that it has.
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

/// Adds what a variable's constraint does after an update, when it has one; returns the operation that comes last.
pub(crate) fn constrained(graph: &Graph, variable: &Variable, update: Operation) -> Result<Operation> {
    let constraint = graph.extension::<Constraints>().0.lock().get(&variable.handle().edge()).cloned();
    let Some(constraint) = constraint else { return Ok(update) };
    graph.control_dependencies(&[update], |graph| {
        // Read after the update, which the value that everyone shares needn't be.
        let value = match variable.handle().is_ref() {
            true => graph.op("Identity").input(variable.handle()).try_build()?.output(0),
            false => variable.read_op(graph),
        };
        assign(graph, variable, &constraint(&value), true)
    })
}
