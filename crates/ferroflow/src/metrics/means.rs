//! Metrics that are means of values, counts, and shares of counts.

use super::metric::{Count, Metric, MetricBuilder};
use super::parts::{assign_add, fitted_weights, metric_variable, weighted};
use crate::compose::{self, node, reduce_all, with_number};
use crate::losses::{broadcast_weights, to_float};
use crate::variable_scope::VariableScope;
use graph::{Graph, Output};
use tensor::{DType, Result, Status};

impl MetricBuilder {
    pub(super) fn mean_of(&self, values: &Output, weights: Option<Output>) -> Result<Metric> {
        let graph = values.graph();
        let values = to_float(values)?;
        let total = metric_variable(graph, "total", &[], DType::Float)?;
        let number = metric_variable(graph, "count", &[], DType::Float)?;
        let (values, num_values) = match weights {
            None => (values.clone(), to_float(&node("Size", &[&values])?)?),
            Some(weights) => {
                let weights = broadcast_weights(&fitted_weights(&weights, &values)?, &values)?;
                (compose::mul(&values, &weights)?, reduce_all("Sum", &weights)?)
            }
        };
        let new_total = assign_add(&total, &reduce_all("Sum", &values)?)?;
        let new_number =
            graph.control_dependencies(std::slice::from_ref(&values.op), |_| assign_add(&number, &num_values))?;
        let divide =
            |total: &Output, number: &Output| compose::div_no_nan(total, &with_number("Maximum", number, 0.0)?);
        Ok(Metric { value: divide(&total.read(), &number.read())?, update: divide(&new_total, &new_number)? })
    }

    pub(super) fn mean_of_each(&self, graph: &Graph) -> Result<Metric> {
        let values = to_float(&self.predictions)?;
        let shape = values.shape();
        let dims: Option<Vec<i64>> = (0..shape.rank().unwrap_or(0)).map(|axis| shape.dim(axis)).collect();
        let Some(dims) = dims.filter(|_| shape.rank().is_some()) else {
            return Err(Status::invalid_argument(format!(
                "the shape of {} must be known: it is {shape}",
                values.name()
            )));
        };
        let total = metric_variable(graph, "total_tensor", &dims, DType::Float)?;
        let number = metric_variable(graph, "count_tensor", &dims, DType::Float)?;
        let ones = node("OnesLike", &[&values])?;
        let (values, ones) = match self.weights_output(graph)? {
            None => (values, ones),
            Some(weights) => {
                let weights = broadcast_weights(&fitted_weights(&weights, &values)?, &values)?;
                (compose::mul(&values, &weights)?, compose::mul(&ones, &weights)?)
            }
        };
        let (new_total, new_number) = (assign_add(&total, &values)?, assign_add(&number, &ones)?);
        let divide =
            |total: &Output, number: &Output| compose::div_no_nan(total, &with_number("Maximum", number, 0.0)?);
        Ok(Metric { value: divide(&total.read(), &number.read())?, update: divide(&new_total, &new_number)? })
    }

    /// Adds `right / (right + wrong)`, or 0 if both are 0.
    pub(super) fn ratio(&self, graph: &Graph, right: Count, wrong: Count) -> Result<Metric> {
        let (labels, predictions, weights) = self.fitted(graph, Some(DType::Bool))?;
        let counted = |what: Count| {
            let scope = VariableScope::with_default_name(what.name());
            scope.run(graph, |graph| count(graph, what, &labels, &predictions, weights.as_ref()))
        };
        let (right, wrong) = (counted(right)?, counted(wrong)?);
        let divide = |right: &Output, wrong: &Output| {
            let sum = compose::add(right, wrong)?;
            let any = with_number("Greater", &sum, 0.0)?;
            node("SelectV2", &[&any, &compose::div(right, &sum)?, &compose::scalar(graph, DType::Float, 0.0)?])
        };
        Ok(Metric { value: divide(&right.value, &wrong.value)?, update: divide(&right.update, &wrong.update)? })
    }

    /// Adds a count of one of the four kinds of right and wrong.
    pub(super) fn count(&self, graph: &Graph, what: Count) -> Result<Metric> {
        let (labels, predictions, weights) = self.fitted(graph, Some(DType::Bool))?;
        count(graph, what, &labels, &predictions, weights.as_ref())
    }
}

/// Adds a count of one of the four kinds of right and wrong.
fn count(
    graph: &Graph,
    what: Count,
    labels: &Output,
    predictions: &Output,
    weights: Option<&Output>,
) -> Result<Metric> {
    let (label, prediction) = what.label_and_prediction();
    let side = |x: &Output, wanted: bool| if wanted { Ok(x.clone()) } else { node("LogicalNot", &[x]) };
    let both = node("LogicalAnd", &[&side(labels, label)?, &side(predictions, prediction)?])?;
    let number = metric_variable(graph, "count", &[], DType::Float)?;
    let mut values = to_float(&both)?;
    if let Some(weights) = weights {
        values = weighted(&values, weights)?;
    }
    Ok(Metric { value: number.read(), update: assign_add(&number, &reduce_all("Sum", &values)?)? })
}
