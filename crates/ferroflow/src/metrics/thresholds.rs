//! Metrics of predictions between 0 and 1 that are counted at several thresholds.

use super::metric::{Count, Curve, Metric, MetricBuilder, MetricKind, Summation};
use super::parts::{assign_add, metric_variable};
use crate::compose::{
    self, assert, cast, div, div_no_nan, expand_dims, node, number_with, reduce, reduce_all, reshape, rows, with_number,
};
use crate::losses::broadcast_weights;
use graph::{Graph, Output};
use tensor::{DType, Result, Status, Tensor};

/// Keeps denominators away from 0, and the outermost thresholds beyond 0 and 1.
const EPSILON: f64 = 1e-7;

impl MetricBuilder {
    pub(super) fn at_thresholds(&self, graph: &Graph) -> Result<Metric> {
        use Count::*;
        match &self.kind {
            MetricKind::CountedAt { what, thresholds } => {
                let [counted] = self.counted(graph, thresholds, [*what])?;
                Ok(counted)
            }
            MetricKind::PrecisionAt { thresholds } => {
                let [right, wrong] = self.counted(graph, thresholds, [TruePositives, FalsePositives])?;
                both(&[right, wrong], |[right, wrong]| fraction(right, wrong))
            }
            MetricKind::RecallAt { thresholds } => {
                let [right, wrong] = self.counted(graph, thresholds, [TruePositives, FalseNegatives])?;
                both(&[right, wrong], |[right, wrong]| fraction(right, wrong))
            }
            MetricKind::Auc => {
                let all = self.all_counted(graph, 1.0 + EPSILON)?;
                both(&all, |[tp, fneg, tn, fp]| self.area(tp, fneg, tn, fp))
            }
            MetricKind::SensitivityAtSpecificity { specificity } => {
                check_fraction(*specificity, "specificity")?;
                let all = self.all_counted(graph, 1.0 + EPSILON)?;
                both(&all, |[tp, fneg, tn, fp]| {
                    let distances = node("Abs", &[&with_number("Sub", &fraction(tn, fp)?, *specificity)?])?;
                    let index = arg("ArgMin", &distances)?;
                    fraction(&element(tp, &index)?, &element(fneg, &index)?)
                })
            }
            MetricKind::SpecificityAtSensitivity { sensitivity } => {
                check_fraction(*sensitivity, "sensitivity")?;
                let all = self.all_counted(graph, 1.0 - EPSILON)?;
                both(&all, |[tp, fneg, tn, fp]| {
                    let distances = node("Abs", &[&with_number("Sub", &fraction(tp, fneg)?, *sensitivity)?])?;
                    // The last of the nearest ones, if there are several.
                    let nearest = node("Equal", &[&distances, &reduce_all("Min", &distances)?])?;
                    let nearest = cast(&nearest, DType::Int64)?;
                    let index = arg("ArgMax", &node("Cumsum", &[&nearest, &compose::int(graph, 0)])?)?;
                    fraction(&element(tn, &index)?, &element(fp, &index)?)
                })
            }
            _ => Err(Status::internal("a metric without thresholds")),
        }
    }

    /// Counts all entries of the confusion matrix at evenly spaced thresholds.
    fn all_counted(&self, graph: &Graph, last: f64) -> Result<[Metric; 4]> {
        if self.num_thresholds < 3 {
            let number = self.num_thresholds;
            return Err(Status::invalid_argument(format!("a curve needs three thresholds or more, got {number}")));
        }
        let inner = (1..self.num_thresholds - 1).map(|step| step as f64 / (self.num_thresholds - 1) as f64);
        let thresholds: Vec<f64> = std::iter::once(-EPSILON).chain(inner).chain(std::iter::once(last)).collect();
        use Count::*;
        self.counted(graph, &thresholds, [TruePositives, FalseNegatives, TrueNegatives, FalsePositives])
    }

    /// Counts some entries of the confusion matrix at each threshold.
    fn counted<const N: usize>(&self, graph: &Graph, thresholds: &[f64], kinds: [Count; N]) -> Result<[Metric; N]> {
        let count = i32::try_from(thresholds.len()).unwrap_or(0);
        if count == 0 {
            return Err(Status::invalid_argument("a metric without thresholds"));
        }
        let (labels, predictions, weights) = self.fitted(graph, None)?;
        let values = cast(&predictions, DType::Float)?;
        let bound = |op: &str, limit: f64| {
            let is_right = reduce_all("All", &with_number(op, &values, limit)?)?;
            assert(&is_right, "predictions must be in [0, 1]", &[&values])
        };
        let checks = [bound("GreaterEqual", 0.0)?, bound("LessEqual", 1.0)?];
        graph.control_dependencies(&checks, |graph| {
            let values = node("Identity", &[&values])?;
            let row = reshape(&values, &[1, -1])?;
            let thresholds: Vec<f32> = thresholds.iter().map(|&threshold| threshold as f32).collect();
            let column = expand_dims(&graph.constant_tensor(&Tensor::vector(&thresholds)), 1)?;
            let is_positive = node("Greater", &[&row, &column])?;
            let tiles = compose::ints(graph, &[count, 1]);
            let labels = node("Tile", &[&reshape(&cast(&labels, DType::Bool)?, &[1, -1])?, &tiles])?;
            let weights = match &weights {
                Some(weights) => Some(reshape(&broadcast_weights(weights, &values)?, &[1, -1])?),
                None => None,
            };
            let side = |x: &Output, wanted: bool| if wanted { Ok(x.clone()) } else { node("LogicalNot", &[x]) };
            let mut metrics = Vec::with_capacity(N);
            for kind in kinds {
                let variable = metric_variable(graph, kind.name(), &[i64::from(count)], DType::Float)?;
                let (label, prediction) = kind.label_and_prediction();
                let found = node("LogicalAnd", &[&side(&labels, label)?, &side(&is_positive, prediction)?])?;
                let mut found = cast(&found, DType::Float)?;
                if let Some(weights) = &weights {
                    found = compose::mul(&found, weights)?;
                }
                let update = assign_add(&variable, &reduce("Sum", &found, &[1], false)?)?;
                metrics.push(Metric { value: variable.read(), update });
            }
            metrics.try_into().map_err(|_| Status::internal("as many metrics as kinds"))
        })
    }

    /// Adds the area under a curve.
    fn area(&self, tp: &Output, fneg: &Output, tn: &Output, fp: &Output) -> Result<Output> {
        if (self.curve, self.summation) == (Curve::PrecisionRecall, Summation::CarefulInterpolation) {
            return interpolated_area(tp, fneg, fp);
        }
        /// What TensorFlow adds to counts of curves.
        const COUNT_EPSILON: f64 = 1e-6;
        let more = |x: &Output| with_number("AddV2", x, COUNT_EPSILON);
        let recall = div(&more(tp)?, &more(&compose::add(tp, fneg)?)?)?;
        let (x, y) = match self.curve {
            Curve::Roc => (div(fp, &more(&compose::add(fp, tn)?)?)?, recall),
            Curve::PrecisionRecall => {
                let precision = div(&more(tp)?, &more(&compose::add(tp, fp)?)?)?;
                (recall, precision)
            }
        };
        let width = compose::sub(&rows(&x, 0, Some(-1))?, &rows(&x, 1, None)?)?;
        let (left, right) = (rows(&y, 0, Some(-1))?, rows(&y, 1, None)?);
        let height = match self.summation {
            Summation::Minoring => node("Minimum", &[&left, &right])?,
            Summation::Majoring => node("Maximum", &[&left, &right])?,
            _ => with_number("RealDiv", &compose::add(&left, &right)?, 2.0)?,
        };
        reduce_all("Sum", &compose::mul(&width, &height)?)
    }
}

/// Adds the area under the curve of precision over recall. Between its points, true positives grow linearly with positives, as Davis
/// and Goadrich have shown.
fn interpolated_area(tp: &Output, fneg: &Output, fp: &Output) -> Result<Output> {
    let positives = compose::add(tp, fp)?;
    let (first, next) = (|x: &Output| rows(x, 0, Some(-1)), |x: &Output| rows(x, 1, None));
    let no_less_than_zero = |x: &Output| with_number("Maximum", x, 0.0);
    let (tp_next, p_first, p_next) = (next(tp)?, first(&positives)?, next(&positives)?);
    let more_tp = compose::sub(&first(tp)?, &tp_next)?;
    let slope = div_no_nan(&more_tp, &no_less_than_zero(&compose::sub(&p_first, &p_next)?)?)?;
    let intercept = compose::sub(&tp_next, &compose::mul(&slope, &p_next)?)?;
    let are_some = |x: &Output| with_number("Greater", x, 0.0);
    let are_both = node("LogicalAnd", &[&are_some(&p_first)?, &are_some(&p_next)?])?;
    let ratio = div_no_nan(&p_first, &no_less_than_zero(&p_next)?)?;
    let ratio = node("Select", &[&are_both, &ratio, &node("OnesLike", &[&p_next])?])?;
    let area = compose::add(&more_tp, &compose::mul(&intercept, &node("Log", &[&ratio])?)?)?;
    let labels = no_less_than_zero(&compose::add(&tp_next, &next(fneg)?)?)?;
    reduce_all("Sum", &div_no_nan(&compose::mul(&slope, &area)?, &labels)?)
}

fn check_fraction(value: f64, what: &str) -> Result<()> {
    if (0.0..=1.0).contains(&value) {
        return Ok(());
    }
    Err(Status::invalid_argument(format!("`{what}` must be in the range [0, 1], got {value}")))
}

/// Combines metrics into one: once their values, and once their updates.
fn both<const N: usize>(metrics: &[Metric; N], make: impl Fn([&Output; N]) -> Result<Output>) -> Result<Metric> {
    let values: [&Output; N] = std::array::from_fn(|index| &metrics[index].value);
    let updates: [&Output; N] = std::array::from_fn(|index| &metrics[index].update);
    Ok(Metric { value: make(values)?, update: make(updates)? })
}

/// Adds `right / (epsilon + right + wrong)`.
fn fraction(right: &Output, wrong: &Output) -> Result<Output> {
    div(right, &compose::add(&number_with("AddV2", EPSILON, right)?, wrong)?)
}

fn arg(op: &str, x: &Output) -> Result<Output> {
    let graph = x.graph();
    let op = graph.op(op).input(x).input(&compose::int(graph, 0)).attr("output_type", DType::Int32);
    Ok(op.try_build()?.output(0))
}

fn element(x: &Output, index: &Output) -> Result<Output> {
    node("GatherV2", &[x, index, &compose::int(x.graph(), 0)])
}
