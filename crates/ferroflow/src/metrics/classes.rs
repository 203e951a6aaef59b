//! Metrics that count each class separately.

use super::metric::{Metric, MetricBuilder};
use super::parts::{assign_add, metric_variable};
use crate::compose::{self, cast, check_same_shape, node, reduce, reduce_all, reshape, with_number};
use crate::layers::check_positive;
use crate::losses::to_float;
use graph::{Graph, Output};
use tensor::{DType, Result};

impl MetricBuilder {
    pub(super) fn mean_per_class_accuracy(&self, graph: &Graph, num_classes: i64) -> Result<Metric> {
        check_positive(&[num_classes], "the number of classes")?;
        let (labels, predictions, weights) = self.flat(graph)?;
        let total = metric_variable(graph, "total", &[num_classes], DType::Float)?;
        let right = metric_variable(graph, "count", &[num_classes], DType::Float)?;
        let mut is_right = to_float(&node("Equal", &[&predictions, &labels])?)?;
        let mut ones = to_float(&node("OnesLike", &[&labels])?)?;
        if let Some(weights) = weights {
            is_right = compose::mul(&is_right, &weights)?;
            ones = compose::mul(&ones, &weights)?;
        }
        let scatter = |variable: &crate::Variable, values: &Output| {
            let op = graph.op("ScatterAdd").input(variable.handle()).input(&labels).input(values);
            Ok::<_, tensor::Status>(op.try_build()?.output(0))
        };
        let (new_total, new_right) = (scatter(&total, &ones)?, scatter(&right, &is_right)?);
        let each = |right: &Output, total: &Output| compose::div_no_nan(right, &with_number("Maximum", total, 0.0)?);
        Ok(Metric {
            value: reduce_all("Mean", &each(&right.read(), &total.read())?)?,
            // As in TensorFlow: the accuracy of each class.
            update: each(&new_right, &new_total)?,
        })
    }

    pub(super) fn mean_iou(&self, graph: &Graph, num_classes: i64) -> Result<Metric> {
        check_positive(&[num_classes], "the number of classes")?;
        let (labels, predictions, weights) = self.flat(graph)?;
        let matrix = metric_variable(graph, "total_confusion_matrix", &[num_classes, num_classes], DType::Double)?;
        let classes = num_classes as i32;
        let dims = cast(&compose::ints(graph, &[classes, classes]), DType::Int64)?;
        let places = graph.op("Pack").inputs([&labels, &predictions]).attr("axis", 1i64).try_build()?.output(0);
        let ones = node("OnesLike", &[&cast(&predictions, DType::Double)?])?;
        let values = match weights {
            Some(weights) => compose::mul(&ones, &cast(&weights, DType::Double)?)?,
            None => ones,
        };
        let current = node("ScatterNd", &[&places, &values, &dims])?;
        let update = assign_add(&matrix, &current)?;
        let all = matrix.read();
        let sum = |axis: i32| to_float(&reduce("Sum", &all, &[axis], false)?);
        let diagonal = to_float(&node("DiagPart", &[&all])?)?;
        let union = compose::sub(&compose::add(&sum(0)?, &sum(1)?)?, &diagonal)?;
        let valid = reduce_all("Sum", &to_float(&with_number("NotEqual", &union, 0.0)?)?)?;
        let is_there = with_number("Greater", &union, 0.0)?;
        let safe = node("Select", &[&is_there, &union, &node("OnesLike", &[&union])?])?;
        let sum = reduce_all("Sum", &compose::div(&diagonal, &safe)?)?;
        let any = with_number("Greater", &valid, 0.0)?;
        let zero = compose::scalar(graph, DType::Float, 0.0)?;
        Ok(Metric { value: node("SelectV2", &[&any, &compose::div(&sum, &valid)?, &zero])?, update })
    }

    /// Returns labels and predictions as vectors of classes, and the weights as a vector.
    fn flat(&self, graph: &Graph) -> Result<(Output, Output, Option<Output>)> {
        check_same_shape(&self.predictions, &self.labels)?;
        let flat = |x: &Output| if x.shape().rank() == Some(1) { Ok(x.clone()) } else { reshape(x, &[-1]) };
        let classes = |x: &Output| cast(&flat(x)?, DType::Int64);
        let weights = match self.weights_output(graph)? {
            Some(weights) if weights.shape().rank() != Some(0) => Some(flat(&weights)?),
            other => other,
        };
        Ok((classes(&self.labels)?, classes(&self.predictions)?, weights))
    }
}
