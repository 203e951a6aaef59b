//! [`LayerNormalization`]: normalizes each example separately.

use super::base::{Base, WeightOptions};
use super::batch_norm::{moments, normalized};
use super::core::check_floating;
use crate::compose::{axis_of, cast, known_dim, known_rank, reshape};
use crate::initializers;
use graph::Output;
use tensor::{DType, Result, Status};

/// A layer that normalizes each example along some axes, by default the last one, as `tf.keras.layers.LayerNormalization`. Its
/// variables are `gamma` and `beta`, in the scope `layer_normalization`.
///
/// ```
/// use ferroflow::layers::LayerNormalization;
/// use ferroflow::Graph;
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 64));
/// let layer = LayerNormalization::new();
/// assert_eq!(layer.apply(&x).shape(), x.shape());
/// assert_eq!(layer.variables(&g)[0].name(), "layer_normalization/gamma");
/// ```
pub struct LayerNormalization {
    base: Base,
    axes: Vec<i64>,
    epsilon: f64,
    center: bool,
    scale: bool,
    beta: WeightOptions,
    gamma: WeightOptions,
}

/// Adds a [`LayerNormalization`] layer with default options.
///
/// ```
/// use ferroflow::layers::layer_normalization;
/// use ferroflow::Graph;
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 64));
/// assert_eq!(layer_normalization(&x).shape(), x.shape());
/// ```
#[track_caller]
pub fn layer_normalization(x: &Output) -> Output {
    LayerNormalization::new().apply(x)
}

impl Default for LayerNormalization {
    fn default() -> Self {
        LayerNormalization::new()
    }
}

impl LayerNormalization {
    /// Returns the layer.
    ///
    /// ```
    /// let layer = ferroflow::layers::LayerNormalization::new();
    /// ```
    pub fn new() -> LayerNormalization {
        LayerNormalization {
            base: Base::new("layer_normalization"),
            axes: vec![-1],
            epsilon: 1e-3,
            center: true,
            scale: true,
            beta: WeightOptions::default(),
            gamma: WeightOptions::default(),
        }
    }

    /// Sets the axes that are normalized together; negative ones count from the end.
    ///
    /// ```
    /// let layer = ferroflow::layers::LayerNormalization::new().axes(&[-2, -1]);
    /// ```
    pub fn axes(mut self, axes: &[i64]) -> Self {
        self.axes = axes.to_vec();
        self
    }

    /// Sets the number that is added to the variance before the division.
    ///
    /// ```
    /// let layer = ferroflow::layers::LayerNormalization::new().epsilon(1e-5);
    /// ```
    pub fn epsilon(mut self, epsilon: f64) -> Self {
        self.epsilon = epsilon;
        self
    }

    /// Sets whether `beta` is added; by default it is.
    ///
    /// ```
    /// let layer = ferroflow::layers::LayerNormalization::new().center(false);
    /// ```
    pub fn center(mut self, center: bool) -> Self {
        self.center = center;
        self
    }

    /// Sets whether the result is multiplied by `gamma`; by default it is.
    ///
    /// ```
    /// let layer = ferroflow::layers::LayerNormalization::new().scale(false);
    /// ```
    pub fn scale(mut self, scale: bool) -> Self {
        self.scale = scale;
        self
    }

    fn add(&self, x: &Output) -> Result<Output> {
        check_floating(x, "layer normalization")?;
        let rank = known_rank(x, "the input of layer normalization")?;
        let mut axes = self.axes.iter().map(|&axis| axis_of(axis, rank)).collect::<Result<Vec<usize>>>()?;
        axes.sort_unstable();
        if axes.is_empty() || axes.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Status::invalid_argument(format!(
                "layer normalization needs axes, each once: {:?}",
                self.axes
            )));
        }
        let what = "a dimension that layer normalization normalizes";
        let sizes = axes.iter().map(|&axis| known_dim(x, axis, what)).collect::<Result<Vec<i64>>>()?;
        let dtype = if matches!(x.dtype(), DType::Half | DType::BFloat16) { DType::Float } else { x.dtype() };
        self.base.apply(x.graph(), |weights| {
            let ones = Some(initializers::ones());
            let gamma = match self.scale {
                true => Some(weights.get("gamma", &sizes, dtype, &self.gamma, ones)?.read()),
                false => None,
            };
            let beta = match self.center {
                true => Some(weights.get("beta", &sizes, dtype, &self.beta, Some(initializers::zeros()))?.read()),
                false => None,
            };
            let mut dims = vec![1; rank];
            for (&axis, &size) in axes.iter().zip(&sizes) {
                dims[axis] = size as i32;
            }
            let is_last = axes == [rank - 1];
            let broadcast = |value: Option<Output>| match value {
                Some(value) if !is_last => reshape(&value, &dims).map(Some),
                other => Ok(other),
            };
            let (gamma, beta) = (broadcast(gamma)?, broadcast(beta)?);
            let input = cast(x, dtype)?;
            let axes: Vec<i32> = axes.iter().map(|&axis| axis as i32).collect();
            let (mean, variance) = moments(&input, &axes)?;
            let y = normalized(&input, &mean, &variance, gamma.as_ref(), beta.as_ref(), self.epsilon)?;
            let y = cast(&y, x.dtype())?;
            y.set_shape(&x.shape())?;
            Ok(y)
        })
    }
}

base_options!(LayerNormalization, "LayerNormalization::new()");
weight_options!(
    LayerNormalization,
    "LayerNormalization::new()",
    beta,
    "`beta`",
    beta_initializer,
    beta_regularizer,
    beta_constraint
);
weight_options!(
    LayerNormalization,
    "LayerNormalization::new()",
    gamma,
    "`gamma`",
    gamma_initializer,
    gamma_regularizer,
    gamma_constraint
);
apply_layer!(LayerNormalization);
