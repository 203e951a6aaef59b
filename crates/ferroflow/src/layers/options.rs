//! Options of layers: [`Activation`], [`DataFormat`], [`Training`], and sizes along several axes.

use crate::compose::{self, node, with_number};
use crate::train::Number;
use graph::{Graph, Output};
use std::fmt;
use tensor::{Result, Status};

/// The activation function of a layer.
///
/// ```
/// use ferroflow::layers::{Activation, Dense};
/// use ferroflow::ops::math;
///
/// let layer = Dense::new(10).activation(Activation::Relu);
/// let own = Dense::new(10).activation(Activation::Function(|x| math::square(&math::tanh(x))));
/// ```
#[derive(Clone, Copy, Default)]
pub enum Activation {
    /// No activation
    #[default]
    Linear,
    /// `max(x, 0)`
    Relu,
    /// `min(max(x, 0), 6)`
    Relu6,
    /// `x`, or `exp(x) - 1` if it is negative
    Elu,
    /// A scaled [`Elu`](Self::Elu) that preserves mean and variance
    Selu,
    /// `x`, or `0.2 x` if it is negative
    LeakyRelu,
    /// `1 / (1 + exp(-x))`
    Sigmoid,
    /// The hyperbolic tangent
    Tanh,
    /// `exp(x)` divided by its sum along the last axis
    Softmax,
    /// `log(exp(x) + 1)`
    Softplus,
    /// `x / (|x| + 1)`
    Softsign,
    /// A function of the program
    Function(fn(&Output) -> Output),
}

impl Activation {
    pub(crate) fn apply(self, x: &Output) -> Result<Output> {
        let op = match self {
            Activation::Linear => return Ok(x.clone()),
            Activation::Function(function) => return Ok(function(x)),
            Activation::Relu => "Relu",
            Activation::Relu6 => "Relu6",
            Activation::Elu => "Elu",
            Activation::Selu => "Selu",
            Activation::LeakyRelu => "LeakyRelu",
            Activation::Sigmoid => "Sigmoid",
            Activation::Tanh => "Tanh",
            Activation::Softmax => "Softmax",
            Activation::Softplus => "Softplus",
            Activation::Softsign => "Softsign",
        };
        node(op, &[x])
    }
}

impl fmt::Debug for Activation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Activation::Linear => "Linear",
            Activation::Relu => "Relu",
            Activation::Relu6 => "Relu6",
            Activation::Elu => "Elu",
            Activation::Selu => "Selu",
            Activation::LeakyRelu => "LeakyRelu",
            Activation::Sigmoid => "Sigmoid",
            Activation::Tanh => "Tanh",
            Activation::Softmax => "Softmax",
            Activation::Softplus => "Softplus",
            Activation::Softsign => "Softsign",
            Activation::Function(_) => "Function",
        })
    }
}

/// The position of the channels.
///
/// ```
/// use ferroflow::layers::{DataFormat, Flatten};
///
/// let layer = Flatten::new().data_format(DataFormat::ChannelsFirst);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataFormat {
    /// After the spatial axes: (batch, rows, columns, channels).
    #[default]
    ChannelsLast,
    /// Before the spatial axes: (batch, channels, rows, columns).
    ChannelsFirst,
}

impl DataFormat {
    /// Returns the `data_format` attribute of ops with two spatial axes, or three.
    pub(crate) fn attr(self, spatial: usize) -> &'static str {
        match (self, spatial) {
            (DataFormat::ChannelsLast, 3) => "NDHWC",
            (DataFormat::ChannelsFirst, 3) => "NCDHW",
            (DataFormat::ChannelsLast, _) => "NHWC",
            (DataFormat::ChannelsFirst, _) => "NCHW",
        }
    }

    /// Returns the axis of the channels in a tensor of this rank.
    pub(crate) fn channel_axis(self, rank: usize) -> usize {
        match self {
            DataFormat::ChannelsLast => rank.saturating_sub(1),
            DataFormat::ChannelsFirst => 1,
        }
    }

    /// Returns the first spatial axis.
    pub(crate) fn first_spatial(self) -> usize {
        match self {
            DataFormat::ChannelsLast => 1,
            DataFormat::ChannelsFirst => 2,
        }
    }

    /// Returns one number per axis, with ones for batch and channels.
    pub(crate) fn window(self, spatial: &[i64]) -> Vec<i64> {
        let mut window = vec![1];
        match self {
            DataFormat::ChannelsLast => {
                window.extend(spatial);
                window.push(1);
            }
            DataFormat::ChannelsFirst => {
                window.push(1);
                window.extend(spatial);
            }
        }
        window
    }
}

/// Whether a layer such as dropout or batch normalization is in training mode: always, never, or as a `bool` in the graph says.
///
/// ```
/// use ferroflow::layers::{Dropout, Training};
/// use ferroflow::Graph;
///
/// let g = Graph::new();
/// let is_training = g.placeholder::<bool>(());
/// let always = Dropout::new(0.5).training(true);
/// let asked = Dropout::new(0.5).training(&is_training);
/// assert!(matches!(Training::from(false), Training::Never));
/// ```
#[derive(Clone, Debug, Default)]
pub enum Training {
    /// The layer doesn't train.
    #[default]
    Never,
    /// The layer trains.
    Always,
    /// The layer trains in steps in which this scalar is true.
    When(Output),
}

impl From<bool> for Training {
    fn from(training: bool) -> Training {
        if training { Training::Always } else { Training::Never }
    }
}

impl From<&Output> for Training {
    fn from(training: &Output) -> Training {
        match training.constant_value().and_then(|value| value.to_scalar::<bool>().ok()) {
            Some(training) => Training::from(training),
            None => Training::When(training.clone()),
        }
    }
}

impl Training {
    /// Adds the result of one of two functions, or a conditional with both.
    pub(crate) fn choose(
        &self,
        graph: &Graph,
        on_true: impl FnOnce(&Graph) -> Result<Vec<Output>>,
        on_false: impl FnOnce(&Graph) -> Result<Vec<Output>>,
    ) -> Result<Vec<Output>> {
        match self {
            Training::Always => on_true(graph),
            Training::Never => on_false(graph),
            Training::When(predicate) => compose::cond(graph, predicate, on_true, on_false),
        }
    }
}

/// Sizes along `N` axes: one number for all of them, or an array.
///
/// ```
/// use ferroflow::layers::Conv2D;
///
/// let square = Conv2D::new(8, 3).strides(2);
/// let oblong = Conv2D::new(8, [3, 5]).strides([1, 2]);
/// ```
pub trait Sizes<const N: usize> {
    /// Returns one size per axis.
    fn sizes(self) -> [i64; N];
}

impl<const N: usize> Sizes<N> for i64 {
    fn sizes(self) -> [i64; N] {
        [self; N]
    }
}

impl<const N: usize> Sizes<N> for [i64; N] {
    fn sizes(self) -> [i64; N] {
        self
    }
}

pub(crate) fn check_positive(sizes: &[i64], what: &str) -> Result<()> {
    match sizes.iter().find(|&&size| size < 1 || i32::try_from(size).is_err()) {
        Some(size) => Err(Status::invalid_argument(format!("{what} must be at least 1 and fit 31 bits, got {size}"))),
        None => Ok(()),
    }
}

/// Adds `x` with random elements set to zero, and the others scaled up, as `tf.nn.dropout` does.
pub(crate) fn dropout(x: &Output, rate: &Number, noise_shape: Option<&Output>, seed: Option<i64>) -> Result<Output> {
    let graph = x.graph();
    if let Number::Value(rate) = rate {
        if !(0.0..1.0).contains(rate) {
            return Err(Status::invalid_argument(format!("`rate` must be in the range [0, 1), got {rate}")));
        }
        if *rate == 0.0 {
            return Ok(x.clone());
        }
    }
    graph.name_scope("dropout", |graph| {
        let scaled = match rate {
            Number::Value(rate) => with_number("Mul", x, 1.0 / (1.0 - rate))?,
            Number::Tensor(rate) => {
                let keep = compose::number_with("Sub", 1.0, &compose::cast(rate, x.dtype())?)?;
                compose::mul(x, &compose::number_with("RealDiv", 1.0, &keep)?)?
            }
        };
        let shape = match noise_shape {
            Some(shape) => shape.clone(),
            None => compose::shape_of(x)?,
        };
        let (seed, seed2) = graph.random_seeds(seed);
        let random = graph.op("RandomUniform").input(&shape).attr("dtype", x.dtype()).attr("seed", seed);
        let random = random.attr("seed2", seed2).try_build()?.output(0);
        let rate = compose::number(graph, rate, x.dtype())?;
        let is_kept = node("GreaterEqual", &[&random, &rate])?;
        node("SelectV2", &[&is_kept, &scaled, &compose::scalar(graph, x.dtype(), 0.0)?])
    })
}
