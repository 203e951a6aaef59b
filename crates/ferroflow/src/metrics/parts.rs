//! The parts of metrics: their variables, and weights with the shape of the values.

use crate::compose::{self, cast};
use crate::losses::check_weights;
use crate::variable::{Kind, Variable, collections};
use graph::{Graph, Output};
use tensor::{DType, Result, Shape, Status, Tensor};

/// The collection of the variables of metrics, which are local variables, too.
///
/// ```
/// use ferroflow::metrics::{METRIC_VARIABLES, mean};
/// use ferroflow::{Graph, Tensor};
///
/// let g = Graph::new();
/// mean(&g.constant_tensor(&Tensor::scalar(1f32))).build();
/// assert_eq!(g.collection(METRIC_VARIABLES).len(), 2);
/// ```
pub const METRIC_VARIABLES: &str = "metric_variables";

/// Adds the product of values and weights, and a check that their shapes are compatible.
pub(super) fn weighted(values: &Output, weights: &Output) -> Result<Output> {
    let multiply = || compose::mul(values, &cast(weights, values.dtype())?);
    match check_weights(weights, values)? {
        Some(check) => values.graph().control_dependencies(&[check], |_| multiply()),
        None => multiply(),
    }
}

/// Returns weights with as many axes as the values, if they have one more or one less.
pub(super) fn fitted_weights(weights: &Output, values: &Output) -> Result<Output> {
    match (weights.shape().rank(), values.shape().rank()) {
        (Some(0), _) => Ok(weights.clone()),
        (Some(ours), Some(theirs)) if ours == theirs + 1 => compose::squeeze(weights, -1),
        (Some(ours), Some(theirs)) if ours + 1 == theirs => compose::expand_dims(weights, -1),
        _ => Ok(weights.clone()),
    }
}

/// Adds a local variable of zeros.
pub(super) fn metric_variable(graph: &Graph, name: &str, dims: &[i64], dtype: DType) -> Result<Variable> {
    let shape = Shape::new(dims)?;
    let collections = [collections::LOCAL_VARIABLES, METRIC_VARIABLES];
    let builder = Variable::in_graph(graph, name).trainable(false).collections(&collections);
    builder.try_build(|graph| Ok(graph.constant_tensor(&Tensor::zeros(dtype, shape)?)))
}

/// Adds to a variable; returns the new value.
pub(super) fn assign_add(variable: &Variable, delta: &Output) -> Result<Output> {
    if variable.kind() == Kind::Resource {
        return Err(Status::internal("the variables of metrics are refs"));
    }
    let graph = variable.graph();
    Ok(graph.op("AssignAdd").input(variable.handle()).input(delta).try_build()?.output(0))
}
