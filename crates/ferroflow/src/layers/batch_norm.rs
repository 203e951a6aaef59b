//! [`BatchNormalization`]: normalizes each channel, with moving averages of mean and variance.

use super::base::{Base, WeightOptions, Weights};
use super::core::check_floating;
use super::options::Training;
use crate::compose::{self, axis_of, cast, known_dim, known_rank, node, reduce, reshape, with_number};
use crate::initializers;
use crate::variable::{Kind, Variable};
use graph::{Graph, Output};
use tensor::{DType, Result, Status, Tensor};

/// The collection of operations to run with every training step, such as the updates of batch normalization's moving averages.
///
/// ```
/// use ferroflow::layers::{BatchNormalization, UPDATE_OPS};
/// use ferroflow::Graph;
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 4));
/// BatchNormalization::new().training(true).apply(&x);
/// // A training operation should run after these.
/// let updates: Vec<_> = g.collection(UPDATE_OPS).into_iter().map(|output| output.op).collect();
/// assert_eq!(updates.len(), 2);
/// ```
pub const UPDATE_OPS: &str = "update_ops";

/// A layer that normalizes each channel, as `tf.layers.BatchNormalization`: in training with the mean and variance of the batch,
/// otherwise with their moving averages.
///
/// Its variables are `gamma`, `beta`, `moving_mean` and `moving_variance`, in the scope `batch_normalization`. The
/// operations that update the averages are in the collection [`UPDATE_OPS`]: run them with every training step.
///
/// ```
/// use ferroflow::layers::BatchNormalization;
/// use ferroflow::Graph;
///
/// let g = Graph::new();
/// let images = g.placeholder::<f32>((None, 8, 8, 3));
/// let is_training = g.placeholder::<bool>(());
/// let layer = BatchNormalization::new().momentum(0.9).training(&is_training);
/// assert_eq!(layer.apply(&images).shape(), images.shape());
/// assert_eq!(layer.variables(&g).len(), 4);
/// ```
pub struct BatchNormalization {
    base: Base,
    axis: i64,
    momentum: f64,
    epsilon: f64,
    center: bool,
    scale: bool,
    fused: Option<bool>,
    training: Training,
    beta: WeightOptions,
    gamma: WeightOptions,
    moving_mean: WeightOptions,
    moving_variance: WeightOptions,
}

/// Adds a [`BatchNormalization`] layer that trains if `training` says so.
///
/// ```
/// use ferroflow::layers::batch_normalization;
/// use ferroflow::Graph;
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 4));
/// assert_eq!(batch_normalization(&x, true).shape(), x.shape());
/// ```
#[track_caller]
pub fn batch_normalization(x: &Output, training: impl Into<Training>) -> Output {
    BatchNormalization::new().training(training).apply(x)
}

impl Default for BatchNormalization {
    fn default() -> Self {
        BatchNormalization::new()
    }
}

impl BatchNormalization {
    /// Returns the layer.
    ///
    /// ```
    /// let layer = ferroflow::layers::BatchNormalization::new();
    /// ```
    pub fn new() -> BatchNormalization {
        BatchNormalization {
            base: Base::new("batch_normalization"),
            axis: -1,
            momentum: 0.99,
            epsilon: 1e-3,
            center: true,
            scale: true,
            fused: None,
            training: Training::Never,
            beta: WeightOptions::default(),
            gamma: WeightOptions::default(),
            moving_mean: WeightOptions::default(),
            moving_variance: WeightOptions::default(),
        }
    }

    /// Sets the axis of the channels; a negative one counts from the end.
    ///
    /// ```
    /// let layer = ferroflow::layers::BatchNormalization::new().axis(1);
    /// ```
    pub fn axis(mut self, axis: i64) -> Self {
        self.axis = axis;
        self
    }

    /// Sets the decay of the moving averages.
    ///
    /// ```
    /// let layer = ferroflow::layers::BatchNormalization::new().momentum(0.9);
    /// ```
    pub fn momentum(mut self, momentum: f64) -> Self {
        self.momentum = momentum;
        self
    }

    /// Sets the number that is added to the variance before the division.
    ///
    /// ```
    /// let layer = ferroflow::layers::BatchNormalization::new().epsilon(1e-5);
    /// ```
    pub fn epsilon(mut self, epsilon: f64) -> Self {
        self.epsilon = epsilon;
        self
    }

    /// Sets whether `beta` is added; by default it is.
    ///
    /// ```
    /// let layer = ferroflow::layers::BatchNormalization::new().center(false);
    /// ```
    pub fn center(mut self, center: bool) -> Self {
        self.center = center;
        self
    }

    /// Sets whether the result is multiplied by `gamma`; by default it is.
    ///
    /// ```
    /// let layer = ferroflow::layers::BatchNormalization::new().scale(false);
    /// ```
    pub fn scale(mut self, scale: bool) -> Self {
        self.scale = scale;
        self
    }

    /// Sets whether to use the fused op, which supports only images; by default it is used for images.
    ///
    /// ```
    /// let layer = ferroflow::layers::BatchNormalization::new().fused(false);
    /// ```
    pub fn fused(mut self, fused: bool) -> Self {
        self.fused = Some(fused);
        self
    }

    /// Sets whether the layer trains; by default it doesn't.
    ///
    /// ```
    /// let layer = ferroflow::layers::BatchNormalization::new().training(true);
    /// ```
    pub fn training(mut self, training: impl Into<Training>) -> Self {
        self.training = training.into();
        self
    }

    /// Sets the initializer of the moving mean.
    ///
    /// ```
    /// use ferroflow::{initializers, layers::BatchNormalization};
    ///
    /// let layer = BatchNormalization::new().moving_mean_initializer(initializers::constant(0.5));
    /// ```
    pub fn moving_mean_initializer(mut self, initializer: initializers::Initializer) -> Self {
        self.moving_mean.initializer = Some(initializer);
        self
    }

    /// Sets the initializer of the moving variance.
    ///
    /// ```
    /// use ferroflow::{initializers, layers::BatchNormalization};
    ///
    /// let layer = BatchNormalization::new().moving_variance_initializer(initializers::constant(0.5));
    /// ```
    pub fn moving_variance_initializer(mut self, initializer: initializers::Initializer) -> Self {
        self.moving_variance.initializer = Some(initializer);
        self
    }

    fn add(&self, x: &Output) -> Result<Output> {
        check_floating(x, "batch normalization")?;
        let rank = known_rank(x, "the input of batch normalization")?;
        let axis = axis_of(self.axis, rank)?;
        let channels = known_dim(x, axis, "the number of channels of the input of batch normalization")?;
        let format = match (rank, axis) {
            (4, 3) => Some("NHWC"),
            (4, 1) => Some("NCHW"),
            (5, 4) => Some("NDHWC"),
            (5, 1) => Some("NCDHW"),
            _ => None,
        };
        let format = match (self.fused, format) {
            (Some(false), _) => None,
            (Some(true), None) => {
                return Err(Status::invalid_argument(format!(
                    "fused batch normalization takes images with their channels at axis 1 or last: got axis {axis} of {}",
                    x.shape()
                )));
            }
            // There is no fused op for double, and by default it is used only for images with channels last or first.
            (_, format) => format.filter(|_| x.dtype() != DType::Double),
        };
        // The statistics of half types are kept as float.
        let dtype = if matches!(x.dtype(), DType::Half | DType::BFloat16) { DType::Float } else { x.dtype() };
        self.base.apply(x.graph(), |weights| {
            let dims = [channels];
            let (zeros, ones) = (initializers::zeros(), initializers::ones());
            let gamma = match self.scale {
                true => Some(weights.get("gamma", &dims, dtype, &self.gamma, Some(ones.clone()))?),
                false => None,
            };
            let beta = match self.center {
                true => Some(weights.get("beta", &dims, dtype, &self.beta, Some(zeros.clone()))?),
                false => None,
            };
            let parameters = Parameters {
                gamma,
                beta,
                moving_mean: weights.untrained("moving_mean", &dims, dtype, &self.moving_mean, zeros)?,
                moving_variance: weights.untrained("moving_variance", &dims, dtype, &self.moving_variance, ones)?,
                channels,
                dtype,
            };
            match format {
                Some(format) => self.add_fused(weights, x, &parameters, format),
                None => self.add_by_moments(weights, x, &parameters, rank, axis),
            }
        })
    }

    fn add_fused(&self, weights: &Weights<'_>, x: &Output, parameters: &Parameters, format: &str) -> Result<Output> {
        /// The smallest epsilon that one of TensorFlow's libraries accepts.
        const MIN_EPSILON: f64 = 1.001e-5;
        let graph = weights.graph();
        let gamma = parameters.or_filled(graph, &parameters.gamma, 1.0)?;
        let beta = parameters.or_filled(graph, &parameters.beta, 0.0)?;
        let epsilon = self.epsilon.max(MIN_EPSILON) as f32;
        let fused = |graph: &Graph, mean: &Output, variance: &Output, is_training: bool| {
            let op = graph.op("FusedBatchNormV3").input(x).input(&gamma).input(&beta).input(mean).input(variance);
            let op = op.attr("epsilon", epsilon).attr("data_format", format).attr("is_training", is_training);
            let op = op.try_build()?;
            Ok(vec![op.output(0), op.output(1), op.output(2)])
        };
        let outputs = self.training.choose(
            graph,
            |graph| {
                let none = graph.constant_tensor(&Tensor::vector::<f32>(&[]));
                fused(graph, &none, &none, true)
            },
            |graph| fused(graph, &parameters.moving_mean.read(), &parameters.moving_variance.read(), false),
        )?;
        let [y, mean, variance] = &outputs[..] else { return Err(Status::internal("a normalization without moments")) };
        let momentum = match &self.training {
            Training::Never => None,
            Training::Always => Some(compose::scalar(graph, parameters.dtype, self.momentum)?),
            // A decay of 1 leaves the averages unchanged in a step that doesn't train.
            training => {
                let chosen = training.choose(
                    graph,
                    |graph| Ok(vec![compose::scalar(graph, parameters.dtype, self.momentum)?]),
                    |graph| Ok(vec![compose::scalar(graph, parameters.dtype, 1.0)?]),
                )?;
                chosen.into_iter().next()
            }
        };
        if let Some(momentum) = momentum {
            let decay = compose::number_with("Sub", 1.0, &momentum)?;
            update(&parameters.moving_mean, mean, &decay)?;
            update(&parameters.moving_variance, variance, &decay)?;
        }
        y.set_shape(&x.shape())?;
        Ok(y.clone())
    }

    fn add_by_moments(
        &self,
        weights: &Weights<'_>,
        x: &Output,
        parameters: &Parameters,
        rank: usize,
        axis: usize,
    ) -> Result<Output> {
        let graph = weights.graph();
        let input = cast(x, parameters.dtype)?;
        let axes: Vec<i32> = (0..rank as i32).filter(|&other| other != axis as i32).collect();
        let (moving_mean, moving_variance) = (parameters.moving_mean.read(), parameters.moving_variance.read());
        let (mean, variance) = match self.training {
            Training::Never => (moving_mean, moving_variance),
            _ => {
                let (mean, variance) = moments(&input, &axes)?;
                let dims = [parameters.channels as i32];
                let (mean, variance) = (reshape(&mean, &dims)?, reshape(&variance, &dims)?);
                let same = |output: &Output| node("Identity", &[output]);
                let mut chosen = self.training.choose(
                    graph,
                    |_| Ok(vec![same(&mean)?, same(&variance)?]),
                    |_| Ok(vec![same(&moving_mean)?, same(&moving_variance)?]),
                )?;
                let variance = chosen.pop().ok_or_else(|| Status::internal("no variance"))?;
                let mean = chosen.pop().ok_or_else(|| Status::internal("no mean"))?;
                // In a step that doesn't train these are the averages themselves, which the update leaves unchanged.
                let decay = compose::scalar(graph, parameters.dtype, 1.0 - self.momentum)?;
                update(&parameters.moving_mean, &mean, &decay)?;
                update(&parameters.moving_variance, &variance, &decay)?;
                (mean, variance)
            }
        };
        let mut dims = vec![1; rank];
        dims[axis] = parameters.channels as i32;
        let broadcast = |value: &Output| match axis + 1 == rank {
            true => Ok(value.clone()),
            false => reshape(value, &dims),
        };
        let scale = parameters.gamma.as_ref().map(|gamma| broadcast(&gamma.read())).transpose()?;
        let offset = parameters.beta.as_ref().map(|beta| broadcast(&beta.read())).transpose()?;
        let y = normalized(
            &input,
            &broadcast(&mean)?,
            &broadcast(&variance)?,
            scale.as_ref(),
            offset.as_ref(),
            self.epsilon,
        )?;
        cast(&y, x.dtype())
    }
}

base_options!(BatchNormalization, "BatchNormalization::new()");
weight_options!(
    BatchNormalization,
    "BatchNormalization::new()",
    beta,
    "`beta`",
    beta_initializer,
    beta_regularizer,
    beta_constraint
);
weight_options!(
    BatchNormalization,
    "BatchNormalization::new()",
    gamma,
    "`gamma`",
    gamma_initializer,
    gamma_regularizer,
    gamma_constraint
);
apply_layer!(BatchNormalization);

struct Parameters {
    gamma: Option<Variable>,
    beta: Option<Variable>,
    moving_mean: Variable,
    moving_variance: Variable,
    channels: i64,
    dtype: DType,
}

impl Parameters {
    /// Returns a variable's value, or a constant if there is no variable.
    fn or_filled(&self, graph: &Graph, variable: &Option<Variable>, value: f64) -> Result<Output> {
        match variable {
            Some(variable) => Ok(variable.read()),
            None => compose::fill(&compose::ints(graph, &[self.channels as i32]), self.dtype, value),
        }
    }
}

/// Adds the mean and variance over axes, which are kept with size 1.
pub(super) fn moments(x: &Output, axes: &[i32]) -> Result<(Output, Output)> {
    let mean = reduce("Mean", x, axes, true)?;
    let distance = node("SquaredDifference", &[x, &node("StopGradient", &[&mean])?])?;
    Ok((mean, reduce("Mean", &distance, axes, true)?))
}

/// Adds `(x - mean) / sqrt(variance + epsilon) * scale + offset`, in TensorFlow's order of operations.
pub(super) fn normalized(
    x: &Output,
    mean: &Output,
    variance: &Output,
    scale: Option<&Output>,
    offset: Option<&Output>,
    epsilon: f64,
) -> Result<Output> {
    x.graph().name_scope("batchnorm", |_| {
        let mut inverse = node("Rsqrt", &[&with_number("AddV2", variance, epsilon)?])?;
        if let Some(scale) = scale {
            inverse = compose::mul(&inverse, scale)?;
        }
        let shifted = compose::mul(mean, &inverse)?;
        let rest = match offset {
            Some(offset) => compose::sub(offset, &shifted)?,
            None => node("Neg", &[&shifted])?,
        };
        compose::add(&compose::mul(x, &inverse)?, &rest)
    })
}

/// Adds the operation that updates a moving average, and adds it to the collection.
fn update(average: &Variable, value: &Output, decay: &Output) -> Result<()> {
    let graph = average.graph();
    graph.colocate_with(average.op(), |graph| {
        graph.name_scope("AssignMovingAvg", |graph| {
            let delta = compose::mul(&compose::sub(&average.read(), value)?, decay)?;
            let kind = average.kind();
            let op = if kind == Kind::Ref { "AssignSub" } else { "AssignSubVariableOp" };
            let op = graph.op(op).input(average.handle()).input(&delta).try_build()?;
            let done = match kind {
                Kind::Ref => op.output(0),
                // An operation without outputs can't be in a collection; a read after it can.
                Kind::Resource => graph.control_dependencies(&[op], |graph| average.read_op(graph)),
            };
            graph.add_to_collection(UPDATE_OPS, &done);
            Ok(())
        })
    })
}
