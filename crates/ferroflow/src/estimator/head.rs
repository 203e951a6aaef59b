//! [`Head`]: the part of a model after its logits: predictions, the loss, metrics and signatures, with TensorFlow's names.

use super::{EstimatorSpec, ExportOutput, Features, Mode};
use crate::compose::{self, cast, kept, node, reduce_all, reshape};
use crate::layers::UPDATE_OPS;
use crate::lookup::LookupTable;
use crate::losses::{self, Labels, Logits, Predictions, Reduction};
use crate::metrics::{self, Curve, Metric};
use crate::saved_model::signature_names;
use crate::summary;
use crate::train::expression::group;
use graph::{Graph, Operation, Output};
use tensor::{DType, Result, Shape, Status, Tensor};

/// The kind of a head's predictions.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Binary,
    MultiClass(i64),
    Regression(i64),
}

/// The part of a model after its logits: predictions, the loss, metrics and signatures, as in TensorFlow's canned estimators.
///
/// ```
/// use ferroflow::estimator::Head;
/// use ferroflow::losses::Reduction;
///
/// let flowers = Head::multi_class(3).label_vocabulary(&["setosa", "versicolor", "virginica"]);
/// let income = Head::binary().weight_column("sample_weight").loss_reduction(Reduction::SumOverBatchSize);
/// assert_eq!((flowers.logits_dimension(), income.logits_dimension()), (3, 1));
/// ```
#[derive(Clone, Debug)]
pub struct Head {
    kind: Kind,
    weight_column: Option<String>,
    label_vocabulary: Option<Vec<String>>,
    loss_reduction: Reduction,
}

/// The loss and its components.
struct Measured {
    loss: Output,
    unreduced: Output,
    weights: Option<Output>,
    labels: Output,
}

impl Head {
    fn new(kind: Kind) -> Head {
        Head { kind, weight_column: None, label_vocabulary: None, loss_reduction: Reduction::Sum }
    }

    /// Returns a head for binary classification with one logit and the sigmoid cross entropy. Labels are from 0 to 1.
    ///
    /// ```
    /// assert_eq!(ferroflow::estimator::Head::binary().logits_dimension(), 1);
    /// ```
    pub fn binary() -> Head {
        Head::new(Kind::Binary)
    }

    /// Returns a head for more than two classes with a logit for each and the softmax cross entropy. Labels are integers from 0
    /// on.
    ///
    /// ```
    /// assert_eq!(ferroflow::estimator::Head::multi_class(10).logits_dimension(), 10);
    /// ```
    pub fn multi_class(n_classes: i64) -> Head {
        Head::new(Kind::MultiClass(n_classes))
    }

    /// Returns a head for regression with this many numbers and the squared error.
    ///
    /// ```
    /// assert_eq!(ferroflow::estimator::Head::regression(1).logits_dimension(), 1);
    /// ```
    pub fn regression(label_dimension: i64) -> Head {
        Head::new(Kind::Regression(label_dimension))
    }

    /// Sets the feature whose values are the weights of rows.
    ///
    /// ```
    /// let head = ferroflow::estimator::Head::binary().weight_column("sample_weight");
    /// ```
    pub fn weight_column(mut self, name: &str) -> Head {
        self.weight_column = Some(name.to_owned());
        self
    }

    /// Sets the vocabulary of labels, which are then strings.
    ///
    /// ```
    /// let head = ferroflow::estimator::Head::binary().label_vocabulary(&["<=50K", ">50K"]);
    /// ```
    pub fn label_vocabulary(mut self, classes: &[&str]) -> Head {
        self.label_vocabulary = Some(classes.iter().map(|class| (*class).to_owned()).collect());
        self
    }

    /// Sets how the losses of a batch are reduced; the default is their sum.
    ///
    /// ```
    /// use ferroflow::{estimator::Head, losses::Reduction};
    ///
    /// let head = Head::regression(1).loss_reduction(Reduction::SumOverBatchSize);
    /// ```
    pub fn loss_reduction(mut self, reduction: Reduction) -> Head {
        self.loss_reduction = reduction;
        self
    }

    /// Returns the number of logits of a row.
    ///
    /// ```
    /// assert_eq!(ferroflow::estimator::Head::regression(4).logits_dimension(), 4);
    /// ```
    pub fn logits_dimension(&self) -> i64 {
        match self.kind {
            Kind::Binary => 1,
            Kind::MultiClass(count) | Kind::Regression(count) => count,
        }
    }

    /// Returns the result of a model function. `train_op_fn` adds the operation that minimizes a loss.
    ///
    /// ```
    /// use ferroflow::estimator::{Features, Head, Mode};
    /// use ferroflow::{prelude::*, train::AdagradOptimizer, variable::create_global_step};
    ///
    /// let g = Graph::new();
    /// let step = create_global_step(&g);
    /// let logits = Variable::new(&g, "logits", &g.constant([[0f32], [1.0]])).value().clone();
    /// let labels = g.constant([0i64, 1]);
    /// let optimizer = AdagradOptimizer::new(0.05);
    /// let spec = Head::binary().create_estimator_spec(&Features::new(), Mode::Train, &logits, Some(&labels), |loss| {
    ///     optimizer.minimize(loss, Some(&step))
    /// })?;
    /// assert!(spec.train_op.is_some());
    /// # Ok::<(), Status>(())
    /// ```
    #[track_caller]
    pub fn create_estimator_spec(
        &self,
        features: &Features,
        mode: Mode,
        logits: &Output,
        labels: Option<&Output>,
        train_op_fn: impl FnOnce(&Output) -> Result<Operation>,
    ) -> Result<EstimatorSpec> {
        let graph = logits.graph().clone();
        let logits = kept("head", &[logits], || self.checked_logits(logits));
        let predictions = graph.name_scope("head/predictions", |graph| self.predictions(graph, &logits))?;
        let mut spec = EstimatorSpec::new(mode);
        spec.predictions = predictions;
        if mode == Mode::Predict {
            spec.export_outputs = self.export_outputs(&graph, &spec.predictions)?;
            return Ok(spec);
        }
        let measured = match labels {
            Some(labels) => graph.name_scope("head", |graph| self.measure(graph, features, &logits, labels)),
            None => Err(Status::invalid_argument(format!("there are no labels, which mode {mode:?} needs"))),
        }?;
        spec.loss = Some(measured.loss.clone());
        if mode == Mode::Eval {
            spec.eval_metric_ops = graph.name_scope("head/metrics", |_| self.metrics(&spec.predictions, &measured))?;
            return Ok(spec);
        }
        let mut train = vec![train_op_fn(&measured.loss)?];
        // Such as the updates of batch normalization's moving averages.
        train.extend(graph.collection(UPDATE_OPS).into_iter().map(|update| update.op));
        spec.train_op = Some(if train.len() == 1 { train.remove(0) } else { group(&graph, &train, "group_deps")? });
        summary::scalar("loss", &measured.loss);
        if self.loss_reduction == Reduction::Sum {
            summary::scalar("average_loss", &mean_loss(&measured)?);
        }
        Ok(spec)
    }

    fn checked_logits(&self, logits: &Output) -> Result<Output> {
        let expected = self.logits_dimension();
        match self.kind {
            Kind::MultiClass(count) if count <= 2 => {
                return Err(Status::invalid_argument(format!(
                    "n_classes must be more than 2, and is {count}: Head::binary tells two classes apart"
                )));
            }
            Kind::Regression(count) if count < 1 => {
                return Err(Status::invalid_argument(format!("label_dimension must be 1 or more, and is {count}")));
            }
            _ => {}
        }
        if let (Some(vocabulary), Some(count)) = (&self.label_vocabulary, self.n_classes())
            && vocabulary.len() as i64 != count
        {
            return Err(Status::invalid_argument(format!(
                "the label vocabulary has {} classes, and the head {count}",
                vocabulary.len()
            )));
        }
        let rank = compose::known_rank(logits, "logits")?;
        let found = if rank == 0 { None } else { logits.shape().dim(rank - 1) };
        if rank < 2 || found.is_some_and(|found| found != expected) {
            return Err(Status::invalid_argument(format!(
                "logits of shape {} don't fit: a row must have {expected}",
                logits.shape()
            )));
        }
        cast(logits, DType::Float)
    }

    /// Returns the number of classes; `None` for regression.
    fn n_classes(&self) -> Option<i64> {
        match self.kind {
            Kind::Binary => Some(2),
            Kind::MultiClass(count) => Some(count),
            Kind::Regression(_) => None,
        }
    }

    fn predictions(&self, graph: &Graph, logits: &Output) -> Result<Vec<(String, Output)>> {
        let Some(n_classes) = self.n_classes() else { return Ok(vec![("predictions".to_owned(), logits.clone())]) };
        let mut predictions = vec![("logits", logits.clone())];
        let class_logits = match self.kind {
            Kind::Binary => {
                predictions.push(("logistic", node("Sigmoid", &[logits])?));
                compose::concat(&[&node("ZerosLike", &[logits])?, logits], -1)?
            }
            _ => logits.clone(),
        };
        let ids = node("ArgMax", &[&class_logits, &compose::int(graph, -1)])?;
        let ids = compose::expand_dims(&ids, -1)?;
        predictions.push(("probabilities", node("Softmax", &[&class_logits])?));
        predictions.push(("class_ids", ids.clone()));
        let classes = match &self.label_vocabulary {
            Some(classes) => LookupTable::strings_from_list(graph, classes.clone(), "UNK").lookup(&ids),
            None => node("AsString", &[&ids])?,
        };
        predictions.push(("classes", classes));
        let all_ids: Vec<i32> = (0..n_classes as i32).collect();
        predictions.push(("all_class_ids", for_each_row(&graph.constant_tensor(&Tensor::vector(&all_ids)), logits)?));
        predictions.push(("all_classes", for_each_row(&self.all_classes(graph, n_classes)?, logits)?));
        Ok(predictions.into_iter().map(|(name, output)| (name.to_owned(), output)).collect())
    }

    fn all_classes(&self, graph: &Graph, n_classes: i64) -> Result<Output> {
        let classes: Vec<String> = match &self.label_vocabulary {
            Some(classes) => classes.clone(),
            None => (0..n_classes).map(|class| class.to_string()).collect(),
        };
        let shape = Shape::vector(classes.len());
        Ok(graph.constant_tensor(&Tensor::from_strings(shape, classes.into_iter().map(Into::into).collect())?))
    }

    fn export_outputs(&self, graph: &Graph, predictions: &[(String, Output)]) -> Result<Vec<(String, ExportOutput)>> {
        let named = |name: &str| predictions.iter().find(|(other, _)| other == name).map(|(_, output)| output.clone());
        let default = signature_names::SERVING_DEFAULT;
        let mut outputs = Vec::new();
        if let (Some(n_classes), Some(scores)) = (self.n_classes(), named("probabilities")) {
            let classes = for_each_row(&self.all_classes(graph, n_classes)?, &scores)?;
            let output = ExportOutput::Classification { scores: Some(scores), classes: Some(classes) };
            outputs.extend([(default, output.clone()), ("classification", output)]);
        }
        match (named("logistic"), named("predictions")) {
            (Some(value), _) => outputs.push(("regression", ExportOutput::Regression { value })),
            (_, Some(value)) => {
                let output = ExportOutput::Regression { value };
                outputs.extend([(default, output.clone()), ("regression", output)]);
            }
            _ => {}
        }
        outputs.push(("predict", ExportOutput::Predict(predictions.to_vec())));
        Ok(outputs.into_iter().map(|(name, output)| (name.to_owned(), output)).collect())
    }

    fn measure(&self, graph: &Graph, features: &Features, logits: &Output, labels: &Output) -> Result<Measured> {
        let expected = if let Kind::Regression(count) = self.kind { count } else { 1 };
        let labels = with_last_axis(labels, logits, expected)?;
        let labels = self.checked_labels(graph, &labels)?;
        let unreduced = match self.kind {
            Kind::Binary => ops::nn::sigmoid_cross_entropy_with_logits(Labels(&labels), logits),
            Kind::MultiClass(_) => {
                let loss = losses::sparse_softmax_cross_entropy(Labels(&labels), Logits(logits));
                compose::expand_dims(&loss.reduction(Reduction::None).build(), -1)?
            }
            Kind::Regression(_) => {
                let loss = losses::mean_squared_error(Labels(&labels), Predictions(logits));
                loss.reduction(Reduction::None).build()
            }
        };
        let weights = self.weights(features, logits)?;
        let mut loss = losses::compute_weighted_loss(&unreduced).reduction(self.loss_reduction);
        if let Some(weights) = &weights {
            loss = loss.weights(weights);
        }
        Ok(Measured { loss: loss.build(), unreduced, weights, labels })
    }

    /// Returns the labels as numbers, which are checked when the graph runs.
    fn checked_labels(&self, graph: &Graph, labels: &Output) -> Result<Output> {
        let Some(n_classes) = self.n_classes() else { return cast(labels, DType::Float) };
        let wrong = |what: &str| {
            Err(Status::invalid_argument(format!(
                "labels are {}, and must be {what}: {}",
                labels.dtype(),
                labels.name()
            )))
        };
        let ids = match &self.label_vocabulary {
            Some(_) if labels.dtype() != DType::String => return wrong("strings, since there is a label vocabulary"),
            Some(classes) => LookupTable::index_from_list(graph, classes.clone(), 0).lookup(labels),
            None if labels.dtype() == DType::String => return wrong("numbers, or there must be a label vocabulary"),
            None if self.kind != Kind::Binary && !matches!(labels.dtype(), DType::Int32 | DType::Int64) => {
                return wrong("integers");
            }
            None => labels.clone(),
        };
        let ids = if self.kind == Kind::Binary { cast(&ids, DType::Float)? } else { ids };
        let is_class = node(
            "LogicalAnd",
            &[
                &compose::with_number("GreaterEqual", &ids, 0.0)?,
                &compose::with_number("LessEqual", &ids, (n_classes - 1) as f64)?,
            ],
        )?;
        let flat = reshape(&node("LogicalNot", &[&is_class])?, &[-1])?;
        let others = node("GatherNd", &[&reshape(labels, &[-1])?, &node("Where", &[&flat])?])?;
        let message = match &self.label_vocabulary {
            Some(classes) => format!("labels outside of the label vocabulary ({}):", classes.join(", ")),
            None => format!("labels outside of the classes 0 to {}:", n_classes - 1),
        };
        let check = compose::assert(&reduce_all("All", &is_class)?, &message, &[&others])?;
        graph.control_dependencies(&[check], |_| node("Identity", &[&ids]))
    }

    fn weights(&self, features: &Features, logits: &Output) -> Result<Option<Output>> {
        let Some(name) = &self.weight_column else { return Ok(None) };
        let weights = features.dense(name).map_err(|status| status.context("the weight column"))?;
        if !matches!(weights.dtype(), DType::Float | DType::Double | DType::Int32 | DType::Int64) {
            return Err(Status::invalid_argument(format!("the weights '{name}' are {}, no numbers", weights.dtype())));
        }
        let weights = cast(&weights, DType::Float)?;
        match (weights.shape().rank(), logits.shape().rank()) {
            (Some(ours), Some(theirs)) if ours + 1 == theirs => compose::expand_dims(&weights, -1).map(Some),
            _ => Ok(Some(weights)),
        }
    }

    fn metrics(&self, predictions: &[(String, Output)], measured: &Measured) -> Result<Vec<(String, Metric)>> {
        let named = |name: &str| {
            let found = predictions.iter().find(|(other, _)| other == name).map(|(_, output)| output.clone());
            found.ok_or_else(|| Status::internal(format!("a head without '{name}'")))
        };
        let Measured { labels, unreduced, weights, .. } = measured;
        let labels_of = Labels(labels);
        let weighted = |metric: metrics::MetricBuilder| match weights {
            Some(weights) => metric.weights(weights),
            None => metric,
        };
        let mut found = vec![("average_loss", weighted(metrics::mean(unreduced)).name("average_loss").build())];
        let predicted = match self.kind {
            Kind::Regression(_) => named("predictions")?,
            _ => named("class_ids")?,
        };
        if self.n_classes().is_some() {
            let accuracy = metrics::accuracy(labels_of, Predictions(&predicted));
            found.push(("accuracy", weighted(accuracy).name("accuracy").build()));
        }
        if self.kind == Kind::Binary {
            let logistic = named("logistic")?;
            let precision = metrics::precision(labels_of, Predictions(&predicted));
            let recall = metrics::recall(labels_of, Predictions(&predicted));
            let auc = metrics::auc(labels_of, Predictions(&logistic));
            let auc_pr = metrics::auc(labels_of, Predictions(&logistic)).curve(Curve::PrecisionRecall);
            let label_mean = weighted(metrics::mean(labels)).name("label/mean").build();
            found.push(("precision", weighted(precision).name("precision").build()));
            found.push(("recall", weighted(recall).name("recall").build()));
            found.push(("prediction/mean", weighted(metrics::mean(&logistic)).name("prediction/mean").build()));
            found.push(("accuracy_baseline", baseline(&label_mean)?));
            found.push(("label/mean", label_mean));
            found.push(("auc", weighted(auc).name("auc").build()));
            found.push(("auc_precision_recall", weighted(auc_pr).name("auc_precision_recall").build()));
        } else if self.n_classes().is_none() {
            found.push(("prediction/mean", weighted(metrics::mean(&predicted)).name("prediction/mean").build()));
            found.push(("label/mean", weighted(metrics::mean(labels)).name("label/mean").build()));
        }
        Ok(found.into_iter().map(|(name, metric)| (name.to_owned(), metric)).collect())
    }
}

/// Returns the accuracy of always predicting the more frequent class.
fn baseline(label_mean: &Metric) -> Result<Metric> {
    let larger = |mean: &Output| node("Maximum", &[mean, &compose::number_with("Sub", 1.0, mean)?]);
    Ok(Metric { value: larger(&label_mean.value)?, update: larger(&label_mean.update)? })
}

/// Returns the mean loss of a row, if the loss is a sum.
fn mean_loss(measured: &Measured) -> Result<Output> {
    let ones = node("OnesLike", &[&measured.unreduced])?;
    let weights = match &measured.weights {
        Some(weights) => compose::mul(weights, &ones)?,
        None => ones,
    };
    compose::div(&measured.loss, &reduce_all("Sum", &weights)?)
}

/// Repeats a vector for every row of a tensor.
fn for_each_row(vector: &Output, like: &Output) -> Result<Output> {
    let rows = compose::size_of_axis(like, 0)?;
    let one = compose::int(vector.graph(), 1);
    node("Tile", &[&compose::expand_dims(vector, 0)?, &compose::pack(&[&rows, &one])?])
}

/// Gives labels a last axis of this size, if they lack one.
fn with_last_axis(labels: &Output, logits: &Output, expected: i64) -> Result<Output> {
    let (ours, theirs) = (compose::known_rank(labels, "labels")?, compose::known_rank(logits, "logits")?);
    let labels = if ours + 1 == theirs && expected == 1 { compose::expand_dims(labels, -1)? } else { labels.clone() };
    let shape = labels.shape();
    let fits = shape.rank() == Some(theirs) && shape.dim(theirs - 1).is_none_or(|size| size == expected);
    if !fits {
        return Err(Status::invalid_argument(format!(
            "labels of shape {shape} don't fit logits of shape {}: a row must have {expected}",
            logits.shape()
        )));
    }
    Ok(labels)
}
