//! [`MetricBuilder`], which has the metrics' common options, and the metrics that are means or counts.

use super::parts::fitted_weights;
use crate::compose::{self, cast, check_same_shape, kept_as, node, number_with, reduce, with_number};
use crate::losses::{Labels, Predictions, to_float, without_last_axis};
use crate::train::Number;
use crate::variable_scope::VariableScope;
use graph::{Graph, Output};
use tensor::{DType, Result};

/// A metric in the graph.
///
/// ```
/// use ferroflow::metrics::{Metric, mean};
/// use ferroflow::{Graph, Tensor};
///
/// let g = Graph::new();
/// let metric: Metric = mean(&g.constant_tensor(&Tensor::scalar(1f32))).build();
/// assert_ne!(metric.value.name(), metric.update.name());
/// ```
#[derive(Clone, Debug)]
pub struct Metric {
    /// The metric over all steps so far.
    pub value: Output,
    /// Adds the current step, and returns the metric including it.
    pub update: Output,
}

/// The curve that [`auc`] is the area under.
///
/// ```
/// use ferroflow::losses::{Labels, Predictions};
/// use ferroflow::metrics::{Curve, auc};
/// use ferroflow::{Graph, Tensor};
///
/// let g = Graph::new();
/// let x = g.constant_tensor(&Tensor::vector(&[0f32, 1.0]));
/// auc(Labels(&x), Predictions(&x)).curve(Curve::PrecisionRecall).build();
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Curve {
    /// The true positive rate over the false positive rate.
    #[default]
    Roc,
    /// Precision over recall.
    PrecisionRecall,
}

/// How [`auc`] computes the area between two thresholds.
///
/// ```
/// use ferroflow::losses::{Labels, Predictions};
/// use ferroflow::metrics::{Curve, Summation, auc};
/// use ferroflow::{Graph, Tensor};
///
/// let g = Graph::new();
/// let x = g.constant_tensor(&Tensor::vector(&[0f32, 1.0]));
/// auc(Labels(&x), Predictions(&x)).curve(Curve::PrecisionRecall).summation(Summation::CarefulInterpolation).build();
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Summation {
    /// With the mean of both ends.
    #[default]
    Trapezoidal,
    /// Along the curve between the ends, which isn't straight for precision over recall.
    CarefulInterpolation,
    /// With the lower end: a lower bound of the area.
    Minoring,
    /// With the upper end: an upper bound of the area.
    Majoring,
}

#[derive(Clone, Debug)]
pub(super) enum MetricKind {
    Mean,
    MeanTensor,
    Accuracy,
    MeanAbsoluteError,
    MeanRelativeError { normalizer: Output },
    MeanCosineDistance { axis: i64 },
    MeanSquaredError,
    RootMeanSquaredError,
    PercentageBelow { threshold: f64 },
    Counted(Count),
    Precision,
    Recall,
    CountedAt { what: Count, thresholds: Vec<f64> },
    PrecisionAt { thresholds: Vec<f64> },
    RecallAt { thresholds: Vec<f64> },
    Auc,
    SensitivityAtSpecificity { specificity: f64 },
    SpecificityAtSensitivity { sensitivity: f64 },
    MeanPerClassAccuracy { num_classes: i64 },
    MeanIou { num_classes: i64 },
    PrecisionAtK { k: i64 },
    RecallAtK { k: i64 },
    AveragePrecisionAtK { k: i64 },
    PrecisionAtTopK,
    RecallAtTopK,
}

/// An entry of the confusion matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    TruePositives,
    FalsePositives,
    TrueNegatives,
    FalseNegatives,
}

impl Count {
    pub(super) fn name(self) -> &'static str {
        match self {
            Count::TruePositives => "true_positives",
            Count::FalsePositives => "false_positives",
            Count::TrueNegatives => "true_negatives",
            Count::FalseNegatives => "false_negatives",
        }
    }

    /// Returns whether this entry has a positive label, and a positive prediction.
    pub(super) fn label_and_prediction(self) -> (bool, bool) {
        match self {
            Count::TruePositives => (true, true),
            Count::FalsePositives => (false, true),
            Count::TrueNegatives => (false, false),
            Count::FalseNegatives => (true, false),
        }
    }
}

/// Builds a metric.
///
/// ```
/// use ferroflow::losses::{Labels, Predictions};
/// use ferroflow::metrics::{MetricBuilder, accuracy};
/// use ferroflow::{Graph, Tensor};
///
/// let g = Graph::new();
/// let x = g.constant_tensor(&Tensor::vector(&[1i64, 2]));
/// let builder: MetricBuilder = accuracy(Labels(&x), Predictions(&x)).weights(0.5).name("right");
/// let metric = builder.build();
/// ```
#[must_use = "the metric is added by `build`"]
pub struct MetricBuilder {
    pub(super) kind: MetricKind,
    pub(super) labels: Output,
    pub(super) predictions: Output,
    pub(super) weights: Option<Number>,
    pub(super) num_thresholds: usize,
    pub(super) curve: Curve,
    pub(super) summation: Summation,
    pub(super) class_id: Option<i64>,
    name: Option<String>,
    metrics_collection: Option<String>,
    updates_collection: Option<String>,
}

/// The mean of values.
///
/// ```
/// use ferroflow::{Graph, Tensor, metrics};
///
/// let g = Graph::new();
/// let loss = metrics::mean(&g.constant_tensor(&Tensor::scalar(0.5f32))).name("loss").build();
/// assert_eq!(loss.value.op.name().split('/').next(), Some("loss"));
/// ```
pub fn mean(values: &Output) -> MetricBuilder {
    MetricBuilder::new(MetricKind::Mean, values, values)
}

/// The mean of each element of the values, whose shape must be known.
///
/// ```
/// use ferroflow::{Graph, PartialShape, Tensor, metrics};
///
/// let g = Graph::new();
/// let metric = metrics::mean_tensor(&g.constant_tensor(&Tensor::vector(&[0.5f32, 2.0]))).build();
/// assert_eq!(metric.value.shape(), PartialShape::from([2]));
/// ```
pub fn mean_tensor(values: &Output) -> MetricBuilder {
    MetricBuilder::new(MetricKind::MeanTensor, values, values)
}

/// How many per cent, as a fraction, of values are below a threshold.
///
/// ```
/// use ferroflow::{Graph, Tensor, metrics};
///
/// let g = Graph::new();
/// metrics::percentage_below(&g.constant_tensor(&Tensor::vector(&[0.5f32, 2.0])), 1.0).build();
/// ```
pub fn percentage_below(values: &Output, threshold: f64) -> MetricBuilder {
    MetricBuilder::new(MetricKind::PercentageBelow { threshold }, values, values)
}

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $ty:ty = $example:literal),*) => $kind:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// ```
        /// use ferroflow::losses::{Labels, Predictions};
        /// use ferroflow::{Graph, metrics};
        ///
        /// let g = Graph::new();
        /// let labels = g.placeholder::<i64>((None, 2));
        /// let predictions = g.placeholder::<f32>((None, 2));
        #[doc = concat!(
            "let metric = metrics::", stringify!($name), "(Labels(&labels), Predictions(&predictions)"
            $(, ", ", $example)*, ").build();"
        )]
        /// ```
        pub fn $name(labels: Labels<'_>, predictions: Predictions<'_> $(, $argument: $ty)*) -> MetricBuilder {
            MetricBuilder::new($kind, labels.0, predictions.0)
        }
    )*};
}

metrics! {
    /// The fraction of predictions that equal their labels.
    accuracy() => MetricKind::Accuracy;
    /// The mean absolute difference between predictions and labels.
    mean_absolute_error() => MetricKind::MeanAbsoluteError;
    /// The mean distance of predictions from labels, each divided by its normalizer; a normalizer of 0 counts as no error.
    mean_relative_error(normalizer: &Output = "&predictions") =>
        MetricKind::MeanRelativeError { normalizer: normalizer.clone() };
    /// One minus the mean cosine of the angle between unit vectors along an axis.
    mean_cosine_distance(axis: i64 = "1") => MetricKind::MeanCosineDistance { axis };
    /// The mean squared error.
    mean_squared_error() => MetricKind::MeanSquaredError;
    /// The root mean squared error.
    root_mean_squared_error() => MetricKind::RootMeanSquaredError;
    /// The number of true positives; labels and predictions are cast to booleans.
    true_positives() => MetricKind::Counted(Count::TruePositives);
    /// The number of false positives.
    false_positives() => MetricKind::Counted(Count::FalsePositives);
    /// The number of true negatives.
    true_negatives() => MetricKind::Counted(Count::TrueNegatives);
    /// The number of false negatives.
    false_negatives() => MetricKind::Counted(Count::FalseNegatives);
    /// The fraction of positive predictions that are correct.
    precision() => MetricKind::Precision;
    /// The fraction of positive labels that are predicted.
    recall() => MetricKind::Recall;
    /// [`true_positives`] for predictions above each of several thresholds.
    true_positives_at_thresholds(thresholds: &[f64] = "&[0.2, 0.5]") =>
        MetricKind::CountedAt { what: Count::TruePositives, thresholds: thresholds.to_vec() };
    /// [`false_positives`] for predictions above each of several thresholds.
    false_positives_at_thresholds(thresholds: &[f64] = "&[0.2, 0.5]") =>
        MetricKind::CountedAt { what: Count::FalsePositives, thresholds: thresholds.to_vec() };
    /// [`true_negatives`] for predictions above each of several thresholds.
    true_negatives_at_thresholds(thresholds: &[f64] = "&[0.2, 0.5]") =>
        MetricKind::CountedAt { what: Count::TrueNegatives, thresholds: thresholds.to_vec() };
    /// [`false_negatives`] for predictions above each of several thresholds.
    false_negatives_at_thresholds(thresholds: &[f64] = "&[0.2, 0.5]") =>
        MetricKind::CountedAt { what: Count::FalseNegatives, thresholds: thresholds.to_vec() };
    /// [`precision`] for predictions above each of several thresholds.
    precision_at_thresholds(thresholds: &[f64] = "&[0.2, 0.5]") =>
        MetricKind::PrecisionAt { thresholds: thresholds.to_vec() };
    /// [`recall`] for predictions above each of several thresholds.
    recall_at_thresholds(thresholds: &[f64] = "&[0.2, 0.5]") =>
        MetricKind::RecallAt { thresholds: thresholds.to_vec() };
    /// The area under a curve of predictions between 0 and 1.
    auc() => MetricKind::Auc;
    /// The sensitivity at a given specificity.
    sensitivity_at_specificity(specificity: f64 = "0.5") => MetricKind::SensitivityAtSpecificity { specificity };
    /// The specificity at a given sensitivity.
    specificity_at_sensitivity(sensitivity: f64 = "0.5") => MetricKind::SpecificityAtSensitivity { sensitivity };
    /// The mean over classes of the accuracy in each class.
    mean_per_class_accuracy(num_classes: i64 = "3") => MetricKind::MeanPerClassAccuracy { num_classes };
    /// The mean over classes of the intersection over union.
    mean_iou(num_classes: i64 = "3") => MetricKind::MeanIou { num_classes };
    /// The fraction of the `k` most likely classes that are labels.
    precision_at_k(k: i64 = "1") => MetricKind::PrecisionAtK { k };
    /// The fraction of labels that are among the `k` most likely classes.
    recall_at_k(k: i64 = "1") => MetricKind::RecallAtK { k };
    /// The mean of the [precision](precision_at_k) at each of the `k` most likely classes that is a label.
    average_precision_at_k(k: i64 = "1") => MetricKind::AveragePrecisionAtK { k };
    /// [`precision_at_k`] for predictions that are the most likely classes already.
    precision_at_top_k() => MetricKind::PrecisionAtTopK;
    /// [`recall_at_k`] for predictions that are the most likely classes already.
    recall_at_top_k() => MetricKind::RecallAtTopK;
}

impl MetricBuilder {
    fn new(kind: MetricKind, labels: &Output, predictions: &Output) -> MetricBuilder {
        MetricBuilder {
            kind,
            labels: labels.clone(),
            predictions: predictions.clone(),
            weights: None,
            num_thresholds: 200,
            curve: Curve::Roc,
            summation: Summation::Trapezoidal,
            class_id: None,
            name: None,
            metrics_collection: None,
            updates_collection: None,
        }
    }

    /// Sets a weight for all values, or for each one.
    ///
    /// ```
    /// use ferroflow::{Graph, Tensor, metrics};
    ///
    /// let g = Graph::new();
    /// let (values, weights) = (Tensor::vector(&[1f32, 2.0]), Tensor::vector(&[0f32, 1.0]));
    /// metrics::mean(&g.constant_tensor(&values)).weights(&g.constant_tensor(&weights)).build();
    /// ```
    pub fn weights(mut self, weights: impl Into<Number>) -> Self {
        self.weights = Some(weights.into());
        self
    }

    /// Sets the name, which prefixes the names of the variables.
    ///
    /// ```
    /// use ferroflow::{Graph, Tensor, metrics};
    ///
    /// let g = Graph::new();
    /// metrics::mean(&g.constant_tensor(&Tensor::scalar(1f32))).name("loss").build();
    /// assert!(g.operation("loss/total").is_some());
    /// ```
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Sets the number of thresholds that approximate a curve; 200 by default.
    ///
    /// ```
    /// use ferroflow::losses::{Labels, Predictions};
    /// use ferroflow::{Graph, Tensor, metrics};
    ///
    /// let g = Graph::new();
    /// let x = g.constant_tensor(&Tensor::vector(&[0f32, 1.0]));
    /// metrics::auc(Labels(&x), Predictions(&x)).num_thresholds(50).build();
    /// ```
    pub fn num_thresholds(mut self, num_thresholds: usize) -> Self {
        self.num_thresholds = num_thresholds;
        self
    }

    /// Sets the curve of [`auc`].
    ///
    /// ```
    /// use ferroflow::losses::{Labels, Predictions};
    /// use ferroflow::{Graph, Tensor, metrics};
    ///
    /// let g = Graph::new();
    /// let x = g.constant_tensor(&Tensor::vector(&[0f32, 1.0]));
    /// metrics::auc(Labels(&x), Predictions(&x)).curve(metrics::Curve::Roc).build();
    /// ```
    pub fn curve(mut self, curve: Curve) -> Self {
        self.curve = curve;
        self
    }

    /// Sets how [`auc`] computes the area between two thresholds.
    ///
    /// ```
    /// use ferroflow::losses::{Labels, Predictions};
    /// use ferroflow::{Graph, Tensor, metrics};
    ///
    /// let g = Graph::new();
    /// let x = g.constant_tensor(&Tensor::vector(&[0f32, 1.0]));
    /// metrics::auc(Labels(&x), Predictions(&x)).summation(metrics::Summation::Minoring).build();
    /// ```
    pub fn summation(mut self, summation: Summation) -> Self {
        self.summation = summation;
        self
    }

    /// Makes [`precision_at_k`] and [`recall_at_k`] count one class only.
    ///
    /// ```
    /// use ferroflow::losses::{Labels, Predictions};
    /// use ferroflow::{Graph, metrics};
    ///
    /// let g = Graph::new();
    /// let (labels, scores) = (g.placeholder::<i64>([-1]), g.placeholder::<f32>((None, 5)));
    /// metrics::recall_at_k(Labels(&labels), Predictions(&scores), 2).class_id(4).build();
    /// ```
    pub fn class_id(mut self, class_id: i64) -> Self {
        self.class_id = Some(class_id);
        self
    }

    /// Adds the value to a collection.
    ///
    /// ```
    /// use ferroflow::{Graph, Tensor, metrics};
    ///
    /// let g = Graph::new();
    /// metrics::mean(&g.constant_tensor(&Tensor::scalar(1f32))).metrics_collection("evaluation").build();
    /// assert_eq!(g.collection("evaluation").len(), 1);
    /// ```
    pub fn metrics_collection(mut self, collection: &str) -> Self {
        self.metrics_collection = Some(collection.to_owned());
        self
    }

    /// Adds the update to a collection.
    ///
    /// ```
    /// use ferroflow::{Graph, Tensor, metrics};
    ///
    /// let g = Graph::new();
    /// metrics::mean(&g.constant_tensor(&Tensor::scalar(1f32))).updates_collection("updates").build();
    /// assert_eq!(g.collection("updates").len(), 1);
    /// ```
    pub fn updates_collection(mut self, collection: &str) -> Self {
        self.updates_collection = Some(collection.to_owned());
        self
    }

    /// Adds the metric.
    ///
    /// ```
    /// use ferroflow::{Graph, Tensor, metrics};
    ///
    /// let g = Graph::new();
    /// let metric = metrics::mean(&g.constant_tensor(&Tensor::scalar(1f32))).build();
    /// ```
    #[track_caller]
    pub fn build(self) -> Metric {
        let kind = format!("metric {}", self.default_name());
        let instead = |nothing: &Output| Metric { value: nothing.clone(), update: nothing.clone() };
        kept_as(&kind, &[&self.predictions], || self.add(), instead)
    }

    fn default_name(&self) -> String {
        let name = match &self.kind {
            MetricKind::Mean | MetricKind::MeanTensor => "mean",
            MetricKind::Accuracy => "accuracy",
            MetricKind::MeanAbsoluteError => "mean_absolute_error",
            MetricKind::MeanRelativeError { .. } => "mean_relative_error",
            MetricKind::MeanCosineDistance { .. } => "mean_cosine_distance",
            MetricKind::MeanSquaredError => "mean_squared_error",
            MetricKind::RootMeanSquaredError => "root_mean_squared_error",
            MetricKind::PercentageBelow { .. } => "percentage_below_threshold",
            MetricKind::Counted(what) | MetricKind::CountedAt { what, .. } => what.name(),
            MetricKind::Precision => "precision",
            MetricKind::Recall => "recall",
            MetricKind::PrecisionAt { .. } => "precision_at_thresholds",
            MetricKind::RecallAt { .. } => "recall_at_thresholds",
            MetricKind::Auc => "auc",
            MetricKind::SensitivityAtSpecificity { .. } => "sensitivity_at_specificity",
            MetricKind::SpecificityAtSensitivity { .. } => "specificity_at_sensitivity",
            MetricKind::MeanPerClassAccuracy { .. } => "mean_accuracy",
            MetricKind::MeanIou { .. } => "mean_iou",
            MetricKind::PrecisionAtK { k } => return self.name_at_k("precision", Some(*k)),
            MetricKind::RecallAtK { k } => return self.name_at_k("recall", Some(*k)),
            MetricKind::AveragePrecisionAtK { k } => return format!("average_precision_at_{k}"),
            MetricKind::PrecisionAtTopK => return self.name_at_k("precision", None),
            MetricKind::RecallAtTopK => return self.name_at_k("recall", None),
        };
        name.to_owned()
    }

    fn add(&self) -> Result<Metric> {
        let scope = match &self.name {
            Some(name) => VariableScope::new(name),
            None => VariableScope::with_default_name(&self.default_name()),
        };
        let graph = self.predictions.graph();
        let metric = scope.run(graph, |graph| self.add_here(graph))?;
        if let Some(collection) = &self.metrics_collection {
            graph.add_to_collection(collection, &metric.value);
        }
        if let Some(collection) = &self.updates_collection {
            graph.add_to_collection(collection, &metric.update);
        }
        Ok(metric)
    }

    fn add_here(&self, graph: &Graph) -> Result<Metric> {
        match &self.kind {
            MetricKind::Mean => self.mean_of(&self.predictions, self.weights_output(graph)?),
            MetricKind::MeanTensor => self.mean_of_each(graph),
            MetricKind::PercentageBelow { threshold } => {
                let below = with_number("Less", &self.predictions, *threshold)?;
                self.mean_of(&to_float(&below)?, self.weights_output(graph)?)
            }
            MetricKind::Accuracy => {
                let (labels, predictions, weights) = self.fitted(graph, None)?;
                let is_right = node("Equal", &[&cast(&predictions, labels.dtype())?, &labels])?;
                self.mean_of(&to_float(&is_right)?, weights)
            }
            MetricKind::MeanAbsoluteError => {
                let (labels, predictions, weights) = self.fitted(graph, Some(DType::Float))?;
                self.mean_of(&node("Abs", &[&compose::sub(&predictions, &labels)?])?, weights)
            }
            MetricKind::MeanRelativeError { normalizer } => {
                let (labels, predictions, weights) = self.fitted(graph, Some(DType::Float))?;
                let (predictions, normalizer) = without_last_axis(&predictions, &cast(normalizer, DType::Float)?, 0)?;
                check_same_shape(&predictions, &normalizer)?;
                let distances = node("Abs", &[&compose::sub(&labels, &predictions)?])?;
                let relative = compose::div(&distances, &normalizer)?;
                let is_nothing = with_number("Equal", &normalizer, 0.0)?;
                self.mean_of(&node("Select", &[&is_nothing, &node("ZerosLike", &[&labels])?, &relative])?, weights)
            }
            MetricKind::MeanSquaredError | MetricKind::RootMeanSquaredError => {
                let (labels, predictions, weights) = self.fitted(graph, Some(DType::Float))?;
                let mean = self.mean_of(&node("SquaredDifference", &[&labels, &predictions])?, weights)?;
                match self.kind {
                    MetricKind::MeanSquaredError => Ok(mean),
                    _ => mean.map(|x| node("Sqrt", &[x])),
                }
            }
            MetricKind::MeanCosineDistance { axis } => {
                let (labels, predictions, weights) = self.fitted(graph, Some(DType::Float))?;
                let product = reduce("Sum", &compose::mul(&predictions, &labels)?, &[*axis as i32], true)?;
                self.mean_of(&product, weights)?.map(|x| number_with("Sub", 1.0, x))
            }
            MetricKind::Counted(what) => self.count(graph, *what),
            MetricKind::Precision => self.ratio(graph, Count::TruePositives, Count::FalsePositives),
            MetricKind::Recall => self.ratio(graph, Count::TruePositives, Count::FalseNegatives),
            MetricKind::MeanPerClassAccuracy { num_classes } => self.mean_per_class_accuracy(graph, *num_classes),
            MetricKind::MeanIou { num_classes } => self.mean_iou(graph, *num_classes),
            MetricKind::PrecisionAtK { k } => self.at_k(graph, Some(*k), Count::FalsePositives),
            MetricKind::RecallAtK { k } => self.at_k(graph, Some(*k), Count::FalseNegatives),
            MetricKind::PrecisionAtTopK => self.at_k(graph, None, Count::FalsePositives),
            MetricKind::RecallAtTopK => self.at_k(graph, None, Count::FalseNegatives),
            MetricKind::AveragePrecisionAtK { k } => self.average_precision(graph, *k),
            _ => self.at_thresholds(graph),
        }
    }

    pub(super) fn weights_output(&self, graph: &Graph) -> Result<Option<Output>> {
        self.weights.as_ref().map(|weights| compose::number(graph, weights, DType::Float)).transpose()
    }

    /// Returns labels, predictions and weights in the same shape and in the given type.
    pub(super) fn fitted(&self, graph: &Graph, dtype: Option<DType>) -> Result<(Output, Output, Option<Output>)> {
        let convert = |x: &Output| match dtype {
            Some(dtype) => cast(x, dtype),
            None => Ok(x.clone()),
        };
        let (labels, predictions) = without_last_axis(&convert(&self.labels)?, &convert(&self.predictions)?, 0)?;
        check_same_shape(&predictions, &labels)?;
        let weights = match self.weights_output(graph)? {
            Some(weights) => Some(fitted_weights(&weights, &predictions)?),
            None => None,
        };
        Ok((labels, predictions, weights))
    }
}

impl Metric {
    fn map(self, change: impl Fn(&Output) -> Result<Output>) -> Result<Metric> {
        Ok(Metric { value: change(&self.value)?, update: change(&self.update)? })
    }
}
