//! Precision and recall of the `k` most likely classes.

use super::metric::{Metric, MetricBuilder, assign_add, metric_variable, weighted};
use crate::compose::{self, cast, div, expand_dims, known_rank, reduce_all};
use crate::layers::check_positive;
use graph::{Graph, Output};
use tensor::{DType, Result, Status};

impl MetricBuilder {
    /// Adds `right / (right + wrong)`, where the wrong ones are a set difference of classes.
    pub(super) fn at_k(&self, graph: &Graph, k: i64, (wrong, difference): (&str, &str)) -> Result<Metric> {
        check_positive(&[k], "k")?;
        let top = graph.op("TopKV2").input(&self.predictions).input(&compose::int(graph, k as i32)).try_build()?;
        let chosen = cast(&top.output(1), DType::Int64)?;
        let (ours, theirs) = (known_rank(&self.labels, "labels")?, known_rank(&chosen, "predictions")?);
        let labels = cast(&self.labels, DType::Int64)?;
        let labels = match theirs {
            rank if rank == ours => labels,
            rank if rank == ours + 1 => expand_dims(&labels, -1)?,
            _ => {
                let (labels, predictions) = (self.labels.shape(), self.predictions.shape());
                return Err(Status::invalid_argument(format!(
                    "Unexpected labels shape {labels} for predictions shape {predictions}."
                )));
            }
        };
        let weights = self.weights_output(graph)?;
        let counted = |name: String, operation: &str| {
            graph.name_scope(&name, |graph| {
                let whole = format!("{}/", graph.current_name_scope());
                let size = set_size(graph, &chosen, &labels, operation)?;
                let mut number = cast(&size, DType::Double)?;
                if let Some(weights) = &weights {
                    number = weighted(&number, weights)?;
                }
                let variable = metric_variable(graph, &whole, &[], DType::Double)?;
                let update = assign_add(&variable, &reduce_all("Sum", &number)?)?;
                Ok::<_, Status>(Metric { value: variable.read(), update })
            })
        };
        let right = counted(format!("true_positive_at_{k}"), "intersection")?;
        let wrong = counted(format!("{wrong}_at_{k}"), difference)?;
        let divide = |right: &Output, wrong: &Output| div(right, &compose::add(right, wrong)?);
        Ok(Metric { value: divide(&right.value, &wrong.value)?, update: divide(&right.update, &wrong.update)? })
    }
}

/// Adds the sizes of a set operation's results on the rows of two tensors.
fn set_size(graph: &Graph, a: &Output, b: &Output, operation: &str) -> Result<Output> {
    let op = graph.op("DenseToDenseSetOperation").input(a).input(b).attr("set_operation", operation).try_build()?;
    let parts = [op.output(0), op.output(1), op.output(2)];
    Ok(graph.op("SetSize").inputs(&parts).try_build()?.output(0))
}
