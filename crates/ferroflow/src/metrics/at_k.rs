//! Precision and recall of the `k` most likely classes.

use super::metric::{Count, Metric, MetricBuilder};
use super::parts::{assign_add, metric_variable, weighted};
use crate::compose::{self, cast, div, div_no_nan, expand_dims, known_dim, known_rank, node, reduce, reduce_all};
use crate::layers::check_positive;
use crate::losses::broadcast_weights;
use graph::{Graph, Output};
use tensor::{DType, Result, Status};

impl MetricBuilder {
    /// Adds the most likely classes.
    fn top_k(&self, graph: &Graph, k: i64) -> Result<Output> {
        check_positive(&[k], "k")?;
        let k =
            i32::try_from(k).map_err(|_| Status::invalid_argument(format!("k is {k}, and there are fewer classes")))?;
        let top = graph.op("TopKV2").input(&self.predictions).input(&compose::int(graph, k)).try_build()?;
        Ok(top.output(1))
    }

    /// Returns a name with the number of classes, and the only class that is counted.
    pub(super) fn name_at_k(&self, name: &str, k: Option<i64>) -> String {
        let k = k.map_or_else(|| "k".to_owned(), |k| k.to_string());
        match self.class_id {
            Some(class) => format!("{name}_at_{k}_class{class}"),
            None => format!("{name}_at_{k}"),
        }
    }

    /// Adds `right / (right + wrong)` of the `k` most likely classes, or of the predictions, if these are classes.
    pub(super) fn at_k(&self, graph: &Graph, k: Option<i64>, wrong: Count) -> Result<Metric> {
        // A class is wrong if it is predicted and no label, or a label and not predicted.
        let (wrong, difference) = match wrong {
            Count::FalsePositives => ("false_positive", "a-b"),
            _ => ("false_negative", "b-a"),
        };
        let chosen = match k {
            Some(k) => self.top_k(graph, k)?,
            None => self.predictions.clone(),
        };
        let chosen = cast(&chosen, DType::Int64)?;
        let labels = self.labels_of(&chosen)?;
        let weights = self.weights_output(graph)?;
        let counted = |name: String, operation: &str| {
            graph.name_scope(&name, |graph| {
                let whole = format!("{}/", graph.current_name_scope());
                let size = match self.class_id {
                    Some(class) => cast(&is_in_set(&chosen, &labels, class, operation)?, DType::Int32)?,
                    None => set_size(graph, &chosen, &labels, operation)?,
                };
                let mut number = cast(&size, DType::Double)?;
                if let Some(weights) = &weights {
                    number = weighted(&number, weights)?;
                }
                let variable = metric_variable(graph, &whole, &[], DType::Double)?;
                let update = assign_add(&variable, &reduce_all("Sum", &number)?)?;
                Ok::<_, Status>(Metric { value: variable.read(), update })
            })
        };
        let right = counted(self.name_at_k("true_positive", k), "intersection")?;
        let wrong = counted(self.name_at_k(wrong, k), difference)?;
        let divide = |right: &Output, wrong: &Output| div(right, &compose::add(right, wrong)?);
        Ok(Metric { value: divide(&right.value, &wrong.value)?, update: divide(&right.update, &wrong.update)? })
    }

    /// Adds the mean over rows of the precision at each right class.
    pub(super) fn average_precision(&self, graph: &Graph, k: i64) -> Result<Metric> {
        let chosen = cast(&self.top_k(graph, k)?, DType::Int64)?;
        let labels = self.labels_of(&chosen)?;
        let last = known_rank(&chosen, "predictions")? as i32 - 1;
        // Compares each of the most likely classes with every label.
        let is_label = node("Equal", &[&expand_dims(&chosen, -1)?, &expand_dims(&labels, -2)?])?;
        let is_right = cast(&reduce("Any", &is_label, &[last + 1], false)?, DType::Double)?;
        let sum_so_far = |x: &Output| node("Cumsum", &[x, &compose::int(graph, last)]);
        let precision = div(&sum_so_far(&is_right)?, &sum_so_far(&node("OnesLike", &[&is_right])?)?)?;
        let sum = reduce("Sum", &compose::mul(&precision, &is_right)?, &[last], false)?;
        let num_labels = known_dim(&labels, last as usize, "the number of labels")?;
        let average = compose::with_number("RealDiv", &sum, num_labels.min(k) as f64)?;
        let weights = match self.weights_output(graph)? {
            Some(weights) => Some(broadcast_weights(&cast(&weights, DType::Double)?, &average)?),
            None => None,
        };
        let (average, most) = match &weights {
            Some(weights) => (compose::mul(&average, weights)?, reduce_all("Sum", weights)?),
            None => (average.clone(), cast(&node("Size", &[&average])?, DType::Double)?),
        };
        let summed = |name: &str, number: &Output| {
            graph.name_scope(name, |graph| {
                let variable = metric_variable(graph, &format!("{}/", graph.current_name_scope()), &[], DType::Double)?;
                let update = assign_add(&variable, number)?;
                Ok::<_, Status>(Metric { value: variable.read(), update })
            })
        };
        // As in TensorFlow, which has an operation `max` before this one.
        let most = summed("max_1", &most)?;
        let total = summed("total", &reduce_all("Sum", &average)?)?;
        Ok(Metric { value: div_no_nan(&total.value, &most.value)?, update: div_no_nan(&total.update, &most.update)? })
    }

    /// Returns the labels with as many axes as the most likely classes.
    fn labels_of(&self, chosen: &Output) -> Result<Output> {
        let (ours, theirs) = (known_rank(&self.labels, "labels")?, known_rank(chosen, "predictions")?);
        let labels = cast(&self.labels, DType::Int64)?;
        match theirs {
            rank if rank > 0 && rank == ours => Ok(labels),
            rank if rank == ours + 1 => expand_dims(&labels, -1),
            _ => {
                let (labels, predictions) = (self.labels.shape(), self.predictions.shape());
                Err(Status::invalid_argument(format!(
                    "Unexpected labels shape {labels} for predictions shape {predictions}."
                )))
            }
        }
    }
}

/// Adds the sizes of a set operation's results on the rows of two tensors.
fn set_size(graph: &Graph, a: &Output, b: &Output, operation: &str) -> Result<Output> {
    let op = graph.op("DenseToDenseSetOperation").input(a).input(b).attr("set_operation", operation).try_build()?;
    let parts = [op.output(0), op.output(1), op.output(2)];
    Ok(graph.op("SetSize").inputs(&parts).try_build()?.output(0))
}

/// Adds whether the set that a set operation computes from each row of two tensors contains a class.
fn is_in_set(a: &Output, b: &Output, class: i64, operation: &str) -> Result<Output> {
    let last = known_rank(a, "predictions")? as i32 - 1;
    let has_class = |x: &Output| {
        let is_class = node("Equal", &[x, &x.graph().constant(class)])?;
        reduce("Any", &is_class, &[last], false)
    };
    let (in_a, in_b) = (has_class(a)?, has_class(b)?);
    match operation {
        "intersection" => node("LogicalAnd", &[&in_a, &in_b]),
        "a-b" => node("LogicalAnd", &[&in_a, &node("LogicalNot", &[&in_b])?]),
        _ => node("LogicalAnd", &[&in_b, &node("LogicalNot", &[&in_a])?]),
    }
}
