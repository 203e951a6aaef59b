//! The losses, and [`Loss`], which has their common options.

pub use ops::nn::Labels;

use super::collection::LOSSES;
use super::weights::{broadcast_weights, check_weights, to_float, without_last_axis};
use crate::compose::{self, cast, check_same_shape, kept, node, number_with, reduce, reduce_all, with_number};
use crate::train::Number;
use graph::{Graph, Output};
use tensor::{DType, Result, Status};

/// A model's predictions, on the scale of the labels.
///
/// ```
/// use ferroflow::losses::{self, Labels, Predictions};
/// use ferroflow::{Graph, Tensor};
///
/// let g = Graph::new();
/// let (x, y) = (g.constant_tensor(&Tensor::scalar(1f32)), g.constant_tensor(&Tensor::scalar(2f32)));
/// let loss = losses::absolute_difference(Labels(&y), Predictions(&x)).build();
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Predictions<'a>(pub &'a Output);

/// A model's outputs before the softmax or the sigmoid.
///
/// ```
/// use ferroflow::losses::{self, Labels, Logits};
/// use ferroflow::{Graph, Tensor};
///
/// let g = Graph::new();
/// let (x, y) = (g.constant_tensor(&Tensor::vector(&[1f32, -1.0])), g.constant_tensor(&Tensor::vector(&[1f32, 0.0])));
/// let loss = losses::sigmoid_cross_entropy(Labels(&y), Logits(&x)).build();
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Logits<'a>(pub &'a Output);

/// How the losses of all elements are reduced.
///
/// ```
/// use ferroflow::losses::{self, Labels, Predictions, Reduction};
/// use ferroflow::{Graph, Session, Tensor};
///
/// let g = Graph::new();
/// let (x, y) = (g.constant_tensor(&Tensor::vector(&[1f32, 2.0])), g.constant_tensor(&Tensor::vector(&[2f32, 4.0])));
/// let loss = losses::absolute_difference(Labels(&y), Predictions(&x)).reduction(Reduction::Sum).build();
/// assert_eq!(Session::new(&g)?.eval::<f32>(&loss)?, 3.0);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// No reduction: each element's loss, weighted.
    None,
    /// The weighted sum.
    Sum,
    /// The weighted sum divided by the sum of the weights.
    Mean,
    /// The weighted sum divided by the number of elements.
    SumOverBatchSize,
    /// The weighted sum divided by the number of nonzero weights.
    #[default]
    SumByNonzeroWeights,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    AbsoluteDifference,
    CosineDistance { axis: i64 },
    Hinge,
    Huber,
    Log,
    MeanPairwiseSquaredError,
    MeanSquaredError,
    SigmoidCrossEntropy,
    SoftmaxCrossEntropy,
    SparseSoftmaxCrossEntropy,
    Given,
}

/// Builds a loss.
///
/// ```
/// use ferroflow::losses::{self, Labels, Logits, Loss};
/// use ferroflow::{Graph, Tensor};
///
/// let g = Graph::new();
/// let (x, y) = (g.constant_tensor(&Tensor::vector(&[1f32, -1.0])), g.constant_tensor(&Tensor::vector(&[1f32, 0.0])));
/// let loss: Loss = losses::sigmoid_cross_entropy(Labels(&y), Logits(&x)).weights(0.5).label_smoothing(0.1);
/// let loss = loss.build();
/// ```
#[must_use = "the loss is added by `build`"]
pub struct Loss {
    kind: Kind,
    labels: Output,
    predictions: Output,
    weights: Number,
    label_smoothing: f64,
    delta: f64,
    epsilon: f64,
    reduction: Reduction,
    collection: Option<String>,
}

macro_rules! losses {
    ($($(#[$doc:meta])* $name:ident($side:ident $wrapper:ident) => $kind:expr, $labels:literal, $other:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// ```
        /// use ferroflow::losses::*;
        /// use ferroflow::{Graph, Session, Tensor};
        ///
        /// let g = Graph::new();
        #[doc = concat!("let labels = g.constant_tensor(&", $labels, ");")]
        #[doc = concat!("let ", stringify!($side), " = g.constant_tensor(&", $other, ");")]
        #[doc = concat!(
            "let loss = ", stringify!($name), "(Labels(&labels), ", stringify!($wrapper), "(&", stringify!($side), ")).build();"
        )]
        /// assert!(Session::new(&g)?.eval::<f32>(&loss)? >= 0.0);
        /// # Ok::<(), ferroflow::Status>(())
        /// ```
        pub fn $name(labels: Labels<'_>, $side: $wrapper<'_>) -> Loss {
            Loss::new($kind, labels.0, $side.0)
        }
    )*};
}

losses! {
    /// The absolute difference between predictions and labels.
    absolute_difference(predictions Predictions) => Kind::AbsoluteDifference,
        "Tensor::vector(&[1f32, 2.0])", "Tensor::vector(&[0f32, 4.0])";
    /// The hinge loss of a linear classifier; labels are 0 or 1.
    hinge_loss(logits Logits) => Kind::Hinge, "Tensor::vector(&[1f32, 0.0])", "Tensor::vector(&[0.5f32, -2.0])";
    /// The Huber loss: squared for small differences, and linear beyond [`delta`](Loss::delta).
    huber_loss(predictions Predictions) => Kind::Huber, "Tensor::vector(&[1f32, 2.0])", "Tensor::vector(&[0f32, 9.0])";
    /// The cross entropy between probabilities and labels.
    log_loss(predictions Predictions) => Kind::Log, "Tensor::vector(&[1f32, 0.0])", "Tensor::vector(&[0.7f32, 0.2])";
    /// The squared difference between the errors of each pair of elements of an example.
    mean_pairwise_squared_error(predictions Predictions) => Kind::MeanPairwiseSquaredError,
        "Tensor::from_slice(&[1, 2], &[1f32, 2.0])?", "Tensor::from_slice(&[1, 2], &[0f32, 4.0])?";
    /// The squared difference between predictions and labels.
    mean_squared_error(predictions Predictions) => Kind::MeanSquaredError,
        "Tensor::vector(&[1f32, 2.0])", "Tensor::vector(&[0f32, 4.0])";
    /// The cross entropy of independent logits and labels between 0 and 1.
    sigmoid_cross_entropy(logits Logits) => Kind::SigmoidCrossEntropy,
        "Tensor::vector(&[1f32, 0.0])", "Tensor::vector(&[2f32, -1.0])";
    /// The cross entropy of rows of logits and rows of probabilities, such as one-hot labels.
    softmax_cross_entropy(logits Logits) => Kind::SoftmaxCrossEntropy,
        "Tensor::from_slice(&[1, 2], &[1f32, 0.0])?", "Tensor::from_slice(&[1, 2], &[2f32, 1.0])?";
    /// The cross entropy of rows of logits and the indices of the correct classes.
    sparse_softmax_cross_entropy(logits Logits) => Kind::SparseSoftmaxCrossEntropy,
        "Tensor::vector(&[1i64])", "Tensor::from_slice(&[1, 2], &[2f32, 1.0])?";
}

/// One minus the cosine similarity of unit vectors along an axis.
///
/// ```
/// use ferroflow::losses::{Labels, Predictions, cosine_distance};
/// use ferroflow::{Graph, Session, Tensor};
///
/// let g = Graph::new();
/// let (x, y) = (g.constant_tensor(&Tensor::vector(&[1f32, 0.0])), g.constant_tensor(&Tensor::vector(&[0f32, 1.0])));
/// let loss = cosine_distance(Labels(&y), Predictions(&x), 0).build();
/// assert_eq!(Session::new(&g)?.eval::<f32>(&loss)?, 1.0);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn cosine_distance(labels: Labels<'_>, predictions: Predictions<'_>, axis: i64) -> Loss {
    Loss::new(Kind::CosineDistance { axis }, labels.0, predictions.0)
}

/// Losses computed by the program, to be weighted and reduced like the others.
///
/// ```
/// use ferroflow::losses::compute_weighted_loss;
/// use ferroflow::{Graph, Session, Tensor};
///
/// let g = Graph::new();
/// let each = g.constant_tensor(&Tensor::vector(&[1f32, 3.0]));
/// let loss = compute_weighted_loss(&each).weights(2.0).build();
/// assert_eq!(Session::new(&g)?.eval::<f32>(&loss)?, 4.0);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn compute_weighted_loss(losses: &Output) -> Loss {
    Loss::new(Kind::Given, losses, losses)
}

impl Loss {
    fn new(kind: Kind, labels: &Output, predictions: &Output) -> Loss {
        Loss {
            kind,
            labels: labels.clone(),
            predictions: predictions.clone(),
            weights: Number::Value(1.0),
            label_smoothing: 0.0,
            delta: 1.0,
            epsilon: 1e-7,
            reduction: Reduction::default(),
            collection: Some(LOSSES.to_owned()),
        }
    }

    /// Sets a weight for all losses, or for each one: a tensor of the same rank, with each axis of size 1 or of the losses' size.
    ///
    /// ```
    /// use ferroflow::losses::{Labels, Predictions, mean_squared_error};
    /// use ferroflow::{Graph, Session, Tensor};
    ///
    /// let g = Graph::new();
    /// let vector = |values: &[f32]| g.constant_tensor(&Tensor::vector(values));
    /// let (x, y, weights) = (vector(&[1.0, 5.0]), vector(&[3.0, 0.0]), vector(&[1.0, 0.0]));
    /// let loss = mean_squared_error(Labels(&y), Predictions(&x)).weights(&weights).build();
    /// assert_eq!(Session::new(&g)?.eval::<f32>(&loss)?, 4.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn weights(mut self, weights: impl Into<Number>) -> Self {
        self.weights = weights.into();
        self
    }

    /// Sets how the losses of all elements are reduced.
    ///
    /// ```
    /// use ferroflow::losses::{Labels, Predictions, Reduction, mean_squared_error};
    /// use ferroflow::{Graph, Tensor};
    ///
    /// let g = Graph::new();
    /// let x = g.constant_tensor(&Tensor::vector(&[1f32, 5.0]));
    /// let losses = mean_squared_error(Labels(&x), Predictions(&x)).reduction(Reduction::None).build();
    /// assert_eq!(losses.shape(), x.shape());
    /// ```
    pub fn reduction(mut self, reduction: Reduction) -> Self {
        self.reduction = reduction;
        self
    }

    /// Sets the collection that the loss is added to.
    ///
    /// ```
    /// use ferroflow::losses::{Labels, Predictions, mean_squared_error};
    /// use ferroflow::{Graph, Tensor};
    ///
    /// let g = Graph::new();
    /// let x = g.constant_tensor(&Tensor::scalar(1f32));
    /// mean_squared_error(Labels(&x), Predictions(&x)).collection("critic_losses").build();
    /// assert_eq!(g.collection("critic_losses").len(), 1);
    /// ```
    pub fn collection(mut self, collection: &str) -> Self {
        self.collection = Some(collection.to_owned());
        self
    }

    /// Doesn't add the loss to any collection.
    ///
    /// ```
    /// use ferroflow::losses::{Labels, Predictions, get_losses, mean_squared_error};
    /// use ferroflow::{Graph, Tensor};
    ///
    /// let g = Graph::new();
    /// let x = g.constant_tensor(&Tensor::scalar(1f32));
    /// mean_squared_error(Labels(&x), Predictions(&x)).without_collection().build();
    /// assert!(get_losses(&g).is_empty());
    /// ```
    pub fn without_collection(mut self) -> Self {
        self.collection = None;
        self
    }

    /// Sets the label smoothing of a cross entropy, between 0 and 1.
    ///
    /// ```
    /// use ferroflow::losses::{Labels, Logits, sigmoid_cross_entropy};
    /// use ferroflow::{Graph, Tensor};
    ///
    /// let g = Graph::new();
    /// let x = g.constant_tensor(&Tensor::scalar(1f32));
    /// sigmoid_cross_entropy(Labels(&x), Logits(&x)).label_smoothing(0.1).build();
    /// ```
    pub fn label_smoothing(mut self, label_smoothing: f64) -> Self {
        self.label_smoothing = label_smoothing;
        self
    }

    /// Sets the difference at which [`huber_loss`] becomes linear; 1 by default.
    ///
    /// ```
    /// use ferroflow::losses::{Labels, Predictions, huber_loss};
    /// use ferroflow::{Graph, Tensor};
    ///
    /// let g = Graph::new();
    /// let x = g.constant_tensor(&Tensor::scalar(1f32));
    /// huber_loss(Labels(&x), Predictions(&x)).delta(0.5).build();
    /// ```
    pub fn delta(mut self, delta: f64) -> Self {
        self.delta = delta;
        self
    }

    /// Sets the small number that keeps the logarithms of [`log_loss`] finite; 1e-7 by default.
    ///
    /// ```
    /// use ferroflow::losses::{Labels, Predictions, log_loss};
    /// use ferroflow::{Graph, Tensor};
    ///
    /// let g = Graph::new();
    /// let x = g.constant_tensor(&Tensor::scalar(1f32));
    /// log_loss(Labels(&x), Predictions(&x)).epsilon(1e-6).build();
    /// ```
    pub fn epsilon(mut self, epsilon: f64) -> Self {
        self.epsilon = epsilon;
        self
    }

    /// Adds the loss.
    ///
    /// ```
    /// use ferroflow::losses::{Labels, Predictions, mean_squared_error};
    /// use ferroflow::{Graph, Session, Tensor};
    ///
    /// let g = Graph::new();
    /// let x = g.constant_tensor(&Tensor::scalar(1f32));
    /// let loss = mean_squared_error(Labels(&x), Predictions(&x)).build();
    /// assert_eq!(Session::new(&g)?.eval::<f32>(&loss)?, 0.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn build(self) -> Output {
        kept(&format!("loss {}", self.scope()), &[&self.predictions, &self.labels], || self.add())
    }

    fn scope(&self) -> &'static str {
        match self.kind {
            Kind::AbsoluteDifference => "absolute_difference",
            Kind::CosineDistance { .. } => "cosine_distance_loss",
            Kind::Hinge => "hinge_loss",
            Kind::Huber => "huber_loss",
            Kind::Log => "log_loss",
            Kind::MeanPairwiseSquaredError => "mean_pairwise_squared_error",
            Kind::MeanSquaredError => "mean_squared_error",
            Kind::SigmoidCrossEntropy => "sigmoid_cross_entropy_loss",
            Kind::SoftmaxCrossEntropy => "softmax_cross_entropy_loss",
            Kind::SparseSoftmaxCrossEntropy => "sparse_softmax_cross_entropy_loss",
            Kind::Given => "weighted_loss",
        }
    }

    fn add(&self) -> Result<Output> {
        let smooths = matches!(self.kind, Kind::SigmoidCrossEntropy | Kind::SoftmaxCrossEntropy);
        if self.label_smoothing != 0.0 && !(smooths && (0.0..=1.0).contains(&self.label_smoothing)) {
            return Err(Status::invalid_argument(format!(
                "label_smoothing is for sigmoid and softmax cross entropy, between 0 and 1: got {} for {}",
                self.label_smoothing,
                self.scope()
            )));
        }
        self.predictions.graph().name_scope(self.scope(), |graph| {
            let loss = match self.kind {
                Kind::MeanPairwiseSquaredError => self.pairwise(graph)?,
                _ => {
                    let (losses, weights) = self.losses()?;
                    self.weighted(graph, &losses, &weights)?
                }
            };
            if let Some(collection) = &self.collection {
                graph.add_to_collection(collection, &loss);
            }
            Ok(loss)
        })
    }

    /// Adds the loss of each element; returns the weights too, whose rank may change with that of the labels.
    fn losses(&self) -> Result<(Output, Number)> {
        let (labels, predictions) = match self.kind {
            Kind::SigmoidCrossEntropy | Kind::SoftmaxCrossEntropy => {
                (cast(&self.labels, self.predictions.dtype())?, self.predictions.clone())
            }
            Kind::SparseSoftmaxCrossEntropy | Kind::Given => (self.labels.clone(), self.predictions.clone()),
            _ => (to_float(&self.labels)?, to_float(&self.predictions)?),
        };
        if !matches!(self.kind, Kind::SparseSoftmaxCrossEntropy) {
            check_same_shape(&predictions, &labels)?;
        }
        let losses = match self.kind {
            Kind::AbsoluteDifference => node("Abs", &[&compose::sub(&predictions, &labels)?])?,
            Kind::CosineDistance { axis } => {
                let product = compose::mul(&predictions, &labels)?;
                number_with("Sub", 1.0, &reduce("Sum", &product, &[axis as i32], true)?)?
            }
            Kind::Hinge => {
                let ones = node("OnesLike", &[&labels])?;
                let signs = compose::sub(&with_number("Mul", &labels, 2.0)?, &ones)?;
                node("Relu", &[&compose::sub(&ones, &compose::mul(&signs, &predictions)?)?])?
            }
            Kind::Huber => {
                let error = node("Abs", &[&compose::sub(&predictions, &labels)?])?;
                let quadratic = with_number("Minimum", &error, self.delta)?;
                let linear = compose::sub(&error, &quadratic)?;
                let half = number_with("Mul", 0.5, &compose::mul(&quadratic, &quadratic)?)?;
                compose::add(&half, &number_with("Mul", self.delta, &linear)?)?
            }
            Kind::Log => {
                let log = |x: &Output| node("Log", &[&with_number("AddV2", x, self.epsilon)?]);
                let right = node("Neg", &[&compose::mul(&labels, &log(&predictions)?)?])?;
                let (no, not) = (number_with("Sub", 1.0, &labels)?, number_with("Sub", 1.0, &predictions)?);
                compose::sub(&right, &compose::mul(&no, &log(&not)?)?)?
            }
            Kind::MeanSquaredError => node("SquaredDifference", &[&predictions, &labels])?,
            Kind::SigmoidCrossEntropy => sigmoid_cross_entropy_op(&self.smoothed(&labels, 0.5)?, &predictions)?,
            Kind::SoftmaxCrossEntropy => {
                let rank = compose::known_rank(&labels, "the labels of softmax cross entropy")?;
                let classes = compose::size_of_axis(&labels, rank.saturating_sub(1))?;
                let labels = match self.label_smoothing > 0.0 {
                    false => labels,
                    true => {
                        let kept = with_number("Mul", &labels, 1.0 - self.label_smoothing)?;
                        let classes = cast(&classes, labels.dtype())?;
                        compose::add(&kept, &number_with("RealDiv", self.label_smoothing, &classes)?)?
                    }
                };
                let labels = node("StopGradient", &[&labels])?;
                softmax_cross_entropy_op("SoftmaxCrossEntropyWithLogits", &labels, &predictions, &predictions, rank)?
            }
            Kind::SparseSoftmaxCrossEntropy => return self.sparse_losses(&labels, &predictions),
            Kind::Given | Kind::MeanPairwiseSquaredError => predictions,
        };
        Ok((losses, self.weights.clone()))
    }

    fn smoothed(&self, labels: &Output, middle: f64) -> Result<Output> {
        if self.label_smoothing == 0.0 {
            return Ok(labels.clone());
        }
        let kept = with_number("Mul", labels, 1.0 - self.label_smoothing)?;
        with_number("AddV2", &kept, middle * self.label_smoothing)
    }

    fn sparse_losses(&self, labels: &Output, logits: &Output) -> Result<(Output, Number)> {
        let (labels, logits) = without_last_axis(labels, logits, 1)?;
        let rank = compose::known_rank(&logits, "the logits of sparse softmax cross entropy")?;
        let weights = match (&self.weights, labels.shape().rank()) {
            (Number::Tensor(weights), Some(rank)) if weights.shape().rank() == Some(rank + 1) => {
                Number::Tensor(compose::squeeze(weights, -1)?)
            }
            (weights, _) => weights.clone(),
        };
        let op = "SparseSoftmaxCrossEntropyWithLogits";
        Ok((softmax_cross_entropy_op(op, &labels, &logits, &labels, rank)?, weights))
    }

    fn weighted(&self, graph: &Graph, losses: &Output, weights: &Number) -> Result<Output> {
        let dtype = losses.dtype();
        let losses = to_float(losses)?;
        let weight = compose::number(graph, weights, DType::Float)?;
        let build = || {
            let weighted = compose::mul(&losses, &weight)?;
            let loss = match self.reduction {
                Reduction::None => weighted,
                Reduction::Sum => reduce_all("Sum", &weighted)?,
                reduction => {
                    let sum = reduce_all("Sum", &weighted)?;
                    let count = match reduction {
                        Reduction::Mean => reduce_all("Sum", &compose::mul(&node("OnesLike", &[&losses])?, &weight)?)?,
                        Reduction::SumOverBatchSize => num_elements(&losses)?,
                        _ => num_present(&losses, weights, &weight, None)?,
                    };
                    compose::div_no_nan(&sum, &count)?
                }
            };
            cast(&loss, dtype)
        };
        match check_weights(&weight, &losses)? {
            Some(check) => graph.control_dependencies(&[check], |_| build()),
            None => build(),
        }
    }

    fn pairwise(&self, graph: &Graph) -> Result<Output> {
        let (labels, predictions) = (to_float(&self.labels)?, to_float(&self.predictions)?);
        check_same_shape(&predictions, &labels)?;
        if self.reduction != Reduction::default() {
            return Err(Status::invalid_argument("mean_pairwise_squared_error has no other reduction"));
        }
        let rank = compose::known_rank(&predictions, "what mean_pairwise_squared_error is given")?;
        if rank == 0 {
            return Err(Status::invalid_argument("mean_pairwise_squared_error needs examples, not a single number"));
        }
        let axes: Vec<i32> = (1..rank as i32).collect();
        let weight = compose::number(graph, &self.weights, DType::Float)?;
        let build = || {
            let differences = compose::sub(&predictions, &labels)?;
            let squares = reduce("Sum", &node("Square", &[&differences])?, &axes, true)?;
            // TensorFlow doesn't check a plain number either.
            let count = num_present(&differences, &Number::Tensor(weight.clone()), &weight, Some(&axes))?;
            let pairs = with_number("Sub", &count, 1.0)?;
            let first = compose::div_no_nan(&squares, &with_number("Maximum", &pairs, 0.0)?)?;
            let sum = node("Square", &[&reduce("Sum", &differences, &axes, true)?])?;
            let all = with_number("Maximum", &compose::mul(&count, &pairs)?, 0.0)?;
            let second = compose::div_no_nan(&sum, &all)?;
            let double = |x: &Output| number_with("Mul", 2.0, x);
            let each = compose::mul(&compose::sub(&double(&first)?, &double(&second)?)?, &weight)?;
            let loss = reduce_all("Sum", &each)?;
            let any = with_number("Greater", &reduce_all("Sum", &count)?, 0.0)?;
            node("Select", &[&any, &loss, &node("ZerosLike", &[&loss])?])
        };
        match check_weights(&weight, &labels)? {
            Some(check) => graph.control_dependencies(&[check], |_| build()),
            None => build(),
        }
    }
}

fn num_elements(losses: &Output) -> Result<Output> {
    cast(&node("Size", &[losses])?, losses.dtype())
}

/// Adds the number of losses with a nonzero weight, in total or along axes.
fn num_present(losses: &Output, given: &Number, weights: &Output, axes: Option<&[i32]>) -> Result<Output> {
    if let (Number::Value(value), None) = (given, axes)
        && *value != 0.0
    {
        return num_elements(losses);
    }
    let is_zero = with_number("Equal", weights, 0.0)?;
    let (zeros, ones) = (node("ZerosLike", &[weights])?, node("OnesLike", &[weights])?);
    let present = broadcast_weights(&node("Select", &[&is_zero, &zeros, &ones])?, losses)?;
    match axes {
        Some(axes) => reduce("Sum", &present, axes, true),
        None => reduce_all("Sum", &present),
    }
}

fn sigmoid_cross_entropy_op(labels: &Output, logits: &Output) -> Result<Output> {
    let zeros = node("ZerosLike", &[logits])?;
    let is_positive = node("GreaterEqual", &[logits, &zeros])?;
    let relu = node("Select", &[&is_positive, logits, &zeros])?;
    let negative = node("Select", &[&is_positive, &node("Neg", &[logits])?, logits])?;
    let first = compose::sub(&relu, &compose::mul(logits, labels)?)?;
    compose::add(&first, &node("Log1p", &[&node("Exp", &[&negative])?])?)
}

/// Adds a cross entropy over the last axis of logits; the result has the leading axes of `like`.
fn softmax_cross_entropy_op(op: &str, labels: &Output, logits: &Output, like: &Output, rank: usize) -> Result<Output> {
    if rank == 2 {
        return node(op, &[logits, labels]);
    }
    if rank == 0 {
        return Err(Status::invalid_argument("logits need an axis of classes"));
    }
    let graph = logits.graph();
    let classes = compose::expand_dims(&compose::size_of_axis(logits, rank - 1)?, 0)?;
    let rows = |x: &Output| node("Reshape", &[x, &compose::concat(&[&compose::ints(graph, &[-1]), &classes], 0)?]);
    let is_sparse = op.starts_with("Sparse");
    let flat_labels = if is_sparse { compose::reshape(labels, &[-1])? } else { rows(labels)? };
    let losses = node(op, &[&rows(logits)?, &flat_labels])?;
    let shape = compose::shape_of(like)?;
    let shape = if is_sparse { shape } else { compose::rows(&shape, 0, Some(-1))? };
    let losses = node("Reshape", &[&losses, &shape])?;
    losses.set_shape(&logits.shape().slice(0, rank - 1))?;
    Ok(losses)
}
