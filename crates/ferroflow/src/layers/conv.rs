//! Convolutions over one, two or three axes.

use super::base::{Base, WeightOptions, Weights};
use super::core::check_floating;
use super::options::{Activation, DataFormat, Sizes, check_positive};
use crate::compose::{self, expand_dims, known_dim, node, reshape, squeeze};
use crate::initializers;
use graph::Output;
use ops::nn::Padding;
use tensor::{Result, Status};

/// A convolution over `N` axes, as `tf.layers.Conv1D`, `Conv2D` and `Conv3D`: [`Conv1D`], [`Conv2D`], [`Conv3D`].
///
/// Its variables are `kernel` (window sizes, input channels, filters) and `bias` (filters), in the scope `conv1d`, `conv2d` or
/// `conv3d`.
///
/// ```
/// use ferroflow::layers::{Activation, Conv2D, Padding};
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let images = g.placeholder::<f32>((None, 28, 28, 1));
/// let layer = Conv2D::new(32, 5).strides(2).padding(Padding::Same).activation(Activation::Relu);
/// assert_eq!(layer.apply(&images).shape(), PartialShape::from([-1, 14, 14, 32]));
/// assert_eq!(layer.variables(&g)[0].name(), "conv2d/kernel");
/// ```
pub struct Conv<const N: usize> {
    base: Base,
    filters: i64,
    kernel_size: [i64; N],
    strides: [i64; N],
    padding: Padding,
    data_format: DataFormat,
    dilation_rate: [i64; N],
    activation: Activation,
    use_bias: bool,
    kernel: WeightOptions,
    bias: WeightOptions,
}

/// A convolution over time: (batch, time, channels).
///
/// ```
/// let layer = ferroflow::layers::Conv1D::new(16, 3);
/// ```
pub type Conv1D = Conv<1>;

/// A convolution over images: (batch, rows, columns, channels).
///
/// ```
/// let layer = ferroflow::layers::Conv2D::new(32, [3, 5]);
/// ```
pub type Conv2D = Conv<2>;

/// A convolution over volumes: (batch, depth, rows, columns, channels).
///
/// ```
/// let layer = ferroflow::layers::Conv3D::new(8, 3);
/// ```
pub type Conv3D = Conv<3>;

/// Adds a [`Conv1D`] layer with default options.
///
/// ```
/// use ferroflow::layers::conv1d;
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 10, 4));
/// assert_eq!(conv1d(&x, 8, 3).shape(), PartialShape::from([-1, 8, 8]));
/// ```
#[track_caller]
pub fn conv1d(x: &Output, filters: i64, kernel_size: impl Sizes<1>) -> Output {
    Conv1D::new(filters, kernel_size).apply(x)
}

/// Adds a [`Conv2D`] layer with default options.
///
/// ```
/// use ferroflow::layers::conv2d;
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 28, 28, 1));
/// assert_eq!(conv2d(&x, 8, 5).shape(), PartialShape::from([-1, 24, 24, 8]));
/// ```
#[track_caller]
pub fn conv2d(x: &Output, filters: i64, kernel_size: impl Sizes<2>) -> Output {
    Conv2D::new(filters, kernel_size).apply(x)
}

/// Adds a [`Conv3D`] layer with default options.
///
/// ```
/// use ferroflow::layers::conv3d;
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 6, 6, 6, 1));
/// assert_eq!(conv3d(&x, 2, 3).shape(), PartialShape::from([-1, 4, 4, 4, 2]));
/// ```
#[track_caller]
pub fn conv3d(x: &Output, filters: i64, kernel_size: impl Sizes<3>) -> Output {
    Conv3D::new(filters, kernel_size).apply(x)
}

/// Selects one of `names`, for one, two or three axes.
pub(super) fn by_axes<const N: usize>(names: [&'static str; 3]) -> &'static str {
    names[N.clamp(1, 3) - 1]
}

impl<const N: usize> Conv<N> {
    /// The numbers of axes that TensorFlow supports; others don't compile.
    const IS_KNOWN: () = assert!(N >= 1 && N <= 3, "a convolution has one, two or three axes");

    /// Returns a layer with this many filters and a window of this size.
    ///
    /// ```
    /// let layer = ferroflow::layers::Conv2D::new(32, 5);
    /// ```
    pub fn new(filters: i64, kernel_size: impl Sizes<N>) -> Conv<N> {
        let () = Self::IS_KNOWN;
        Conv {
            base: Base::new(by_axes::<N>(["conv1d", "conv2d", "conv3d"])),
            filters,
            kernel_size: kernel_size.sizes(),
            strides: [1; N],
            padding: Padding::Valid,
            data_format: DataFormat::ChannelsLast,
            dilation_rate: [1; N],
            activation: Activation::Linear,
            use_bias: true,
            kernel: WeightOptions::default(),
            bias: WeightOptions::default(),
        }
    }

    fn add(&self, x: &Output) -> Result<Output> {
        check_positive(&[self.filters], "the number of filters")?;
        check_window(&self.kernel_size, &self.strides, &self.dilation_rate)?;
        let channels = input_channels::<N>(x, self.data_format, "a convolution")?;
        self.base.apply(x.graph(), |weights| {
            let mut dims = self.kernel_size.to_vec();
            dims.extend([channels, self.filters]);
            let kernel = weights.get("kernel", &dims, x.dtype(), &self.kernel, None)?.read();
            let convolution = Convolution {
                strides: &self.strides,
                dilations: &self.dilation_rate,
                padding: self.padding,
                data_format: self.data_format,
            };
            let mut y = convolution.add(x, &kernel)?;
            if self.use_bias {
                y = add_bias(weights, &y, self.filters, self.data_format, &self.bias)?;
            }
            self.activation.apply(&y)
        })
    }
}

base_options!(Conv<const N>, "Conv2D::new(8, 3)");
bias_options!(Conv<const N>, "Conv2D::new(8, 3)");
window_options!(Conv<const N>, "Conv2D::new(8, 3)", N);
dilation_option!(Conv<const N>, "Conv2D::new(8, 3)", N);
weight_options!(
    Conv<const N>,
    "Conv2D::new(8, 3)",
    kernel,
    "the kernel",
    kernel_initializer,
    kernel_regularizer,
    kernel_constraint
);
apply_layer!(Conv<const N>);

pub(super) fn check_window(kernel_size: &[i64], strides: &[i64], dilations: &[i64]) -> Result<()> {
    check_positive(kernel_size, "the size of a window")?;
    check_positive(strides, "a stride")?;
    check_positive(dilations, "a dilation rate")?;
    if strides.iter().any(|&stride| stride > 1) && dilations.iter().any(|&rate| rate > 1) {
        return Err(Status::invalid_argument(format!(
            "strides > 1 are not supported together with dilation_rate > 1: got strides {strides:?} and dilation_rate \
             {dilations:?}"
        )));
    }
    Ok(())
}

/// Returns the number of channels of an input with `N` spatial axes.
pub(super) fn input_channels<const N: usize>(x: &Output, format: DataFormat, what: &str) -> Result<i64> {
    check_floating(x, what)?;
    let rank = compose::known_rank(x, &format!("the input of {what}"))?;
    if rank != N + 2 {
        return Err(Status::invalid_argument(format!(
            "the input of {what} over {N} axes must have rank {}, but {} has shape {}",
            N + 2,
            x.name(),
            x.shape()
        )));
    }
    known_dim(x, format.channel_axis(rank), &format!("the number of channels of the input of {what}"))
}

pub(super) fn add_bias(
    weights: &Weights<'_>,
    y: &Output,
    channels: i64,
    format: DataFormat,
    options: &WeightOptions,
) -> Result<Output> {
    let bias = weights.get("bias", &[channels], y.dtype(), options, Some(initializers::zeros()))?.read();
    let rank = compose::known_rank(y, "the result of a convolution")?;
    match format {
        DataFormat::ChannelsLast => node("BiasAdd", &[y, &bias]),
        DataFormat::ChannelsFirst => {
            let mut dims = vec![1; rank];
            dims[1] = channels as i32;
            compose::add(y, &reshape(&bias, &dims)?)
        }
    }
}

/// The strides and sizes of a convolution over one, two or three axes.
pub(super) struct Convolution<'a> {
    pub(super) strides: &'a [i64],
    pub(super) dilations: &'a [i64],
    pub(super) padding: Padding,
    pub(super) data_format: DataFormat,
}

impl Convolution<'_> {
    /// Adds the convolution; one over a single axis runs on images of a single row.
    pub(super) fn add(&self, x: &Output, kernel: &Output) -> Result<Output> {
        if let ([stride], [dilation]) = (self.strides, self.dilations) {
            let (strides, dilations) = ([1, *stride], [1, *dilation]);
            let rows = Convolution { strides: &strides, dilations: &dilations, ..*self };
            let axis = self.data_format.first_spatial();
            let y = rows.add(&expand_dims(x, axis as i32)?, &expand_dims(kernel, 0)?)?;
            return squeeze(&y, axis as i64);
        }
        let spatial = self.strides.len();
        // No kernel over volumes supports dilation; a window with zeros inserted has the same effect.
        let (kernel, dilations) = match spatial {
            3 => (dilated(kernel, self.dilations)?, vec![1; 3]),
            _ => (kernel.clone(), self.dilations.to_vec()),
        };
        let op = x.graph().op(if spatial == 3 { "Conv3D" } else { "Conv2D" }).input(x).input(&kernel);
        let op = op.attr("strides", &self.data_format.window(self.strides)[..]);
        let op = op.attr("dilations", &self.data_format.window(&dilations)[..]);
        let op = op.attr("padding", self.padding.attr()).attr("data_format", self.data_format.attr(spatial));
        Ok(op.try_build()?.output(0))
    }
}

/// Inserts `rate - 1` zeros between the window's elements along each spatial axis, which has the effect of that dilation.
pub(super) fn dilated(kernel: &Output, rates: &[i64]) -> Result<Output> {
    if rates.iter().all(|&rate| rate == 1) {
        return Ok(kernel.clone());
    }
    let graph = kernel.graph();
    let spatial = rates.len();
    let dims: Vec<i32> = match kernel.full_shape() {
        Some(shape) => shape.dims().iter().map(|&size| size as i32).collect(),
        None => return Err(Status::internal("a kernel of unknown shape")),
    };
    let (mut apart, mut paddings, mut together, mut sizes) = (vec![], vec![], vec![], vec![]);
    for (&size, &rate) in dims.iter().zip(rates) {
        let rate = rate as i32;
        apart.extend([size, 1]);
        paddings.extend([0, 0, 0, rate - 1]);
        together.push(size * rate);
        sizes.push((size - 1) * rate + 1);
    }
    for &size in &dims[spatial..] {
        apart.push(size);
        paddings.extend([0, 0]);
        together.push(size);
        sizes.push(size);
    }
    let paddings = reshape(&compose::ints(graph, &paddings), &[apart.len() as i32, 2])?;
    let padded = node("Pad", &[&reshape(kernel, &apart)?, &paddings])?;
    let begin = compose::ints(graph, &vec![0; dims.len()]);
    node("Slice", &[&reshape(&padded, &together)?, &begin, &compose::ints(graph, &sizes)])
}
