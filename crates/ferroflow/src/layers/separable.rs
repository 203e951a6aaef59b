//! Convolutions of each channel separately ([`DepthwiseConv`]), and followed by a mix of the channels ([`SeparableConv`]).

use super::base::{Base, WeightOptions};
use super::conv::{Convolution, add_bias, by_axes, check_window, dilated, input_channels};
use super::options::{Activation, DataFormat, Sizes, check_positive};
use crate::compose::{expand_dims, squeeze};
use graph::Output;
use ops::nn::Padding;
use tensor::{Result, Status};

/// A convolution of each channel separately over `N` axes, as `tf.keras.layers.DepthwiseConv2D`: [`DepthwiseConv1D`],
/// [`DepthwiseConv2D`].
///
/// Its variables are `depthwise_kernel` (window sizes, channels, depth multiplier) and `bias`, in the scope `depthwise_conv2d` or
/// `depthwise_conv1d`.
///
/// ```
/// use ferroflow::layers::DepthwiseConv2D;
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let images = g.placeholder::<f32>((None, 8, 8, 3));
/// let layer = DepthwiseConv2D::new(3).depth_multiplier(2);
/// assert_eq!(layer.apply(&images).shape(), PartialShape::from([-1, 6, 6, 6]));
/// ```
pub struct DepthwiseConv<const N: usize> {
    base: Base,
    kernel_size: [i64; N],
    strides: [i64; N],
    padding: Padding,
    data_format: DataFormat,
    dilation_rate: [i64; N],
    depth_multiplier: i64,
    activation: Activation,
    use_bias: bool,
    depthwise: WeightOptions,
    bias: WeightOptions,
}

/// A convolution of each channel over time.
///
/// ```
/// let layer = ferroflow::layers::DepthwiseConv1D::new(3);
/// ```
pub type DepthwiseConv1D = DepthwiseConv<1>;

/// A convolution of each channel over images.
///
/// ```
/// let layer = ferroflow::layers::DepthwiseConv2D::new(3);
/// ```
pub type DepthwiseConv2D = DepthwiseConv<2>;

/// A convolution of each channel separately, followed by one with a window of size 1 that mixes the channels, as
/// `tf.layers.SeparableConv1D` and `SeparableConv2D`: [`SeparableConv1D`], [`SeparableConv2D`].
///
/// Its variables are `depthwise_kernel`, `pointwise_kernel` and `bias`, in the scope `separable_conv1d` or
/// `separable_conv2d`.
///
/// ```
/// use ferroflow::layers::SeparableConv2D;
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let images = g.placeholder::<f32>((None, 8, 8, 3));
/// assert_eq!(SeparableConv2D::new(16, 3).apply(&images).shape(), PartialShape::from([-1, 6, 6, 16]));
/// ```
pub struct SeparableConv<const N: usize> {
    base: Base,
    filters: i64,
    kernel_size: [i64; N],
    strides: [i64; N],
    padding: Padding,
    data_format: DataFormat,
    dilation_rate: [i64; N],
    depth_multiplier: i64,
    activation: Activation,
    use_bias: bool,
    depthwise: WeightOptions,
    pointwise: WeightOptions,
    bias: WeightOptions,
}

/// A separable convolution over time.
///
/// ```
/// let layer = ferroflow::layers::SeparableConv1D::new(16, 3);
/// ```
pub type SeparableConv1D = SeparableConv<1>;

/// A separable convolution over images.
///
/// ```
/// let layer = ferroflow::layers::SeparableConv2D::new(16, 3);
/// ```
pub type SeparableConv2D = SeparableConv<2>;

/// Adds a [`SeparableConv1D`] layer with default options.
///
/// ```
/// use ferroflow::layers::separable_conv1d;
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 8, 3));
/// assert_eq!(separable_conv1d(&x, 4, 3).shape(), PartialShape::from([-1, 6, 4]));
/// ```
#[track_caller]
pub fn separable_conv1d(x: &Output, filters: i64, kernel_size: impl Sizes<1>) -> Output {
    SeparableConv1D::new(filters, kernel_size).apply(x)
}

/// Adds a [`SeparableConv2D`] layer with default options.
///
/// ```
/// use ferroflow::layers::separable_conv2d;
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 8, 8, 3));
/// assert_eq!(separable_conv2d(&x, 4, 3).shape(), PartialShape::from([-1, 6, 6, 4]));
/// ```
#[track_caller]
pub fn separable_conv2d(x: &Output, filters: i64, kernel_size: impl Sizes<2>) -> Output {
    SeparableConv2D::new(filters, kernel_size).apply(x)
}

impl<const N: usize> DepthwiseConv<N> {
    /// The numbers of axes that TensorFlow supports; others don't compile.
    const IS_KNOWN: () = assert!(N == 1 || N == 2, "a depthwise convolution has one or two axes");

    /// Returns a depthwise convolution with a window of this size.
    ///
    /// ```
    /// let layer = ferroflow::layers::DepthwiseConv2D::new(3);
    /// ```
    pub fn new(kernel_size: impl Sizes<N>) -> DepthwiseConv<N> {
        let () = Self::IS_KNOWN;
        DepthwiseConv {
            base: Base::new(by_axes::<N>(["depthwise_conv1d", "depthwise_conv2d", ""])),
            kernel_size: kernel_size.sizes(),
            strides: [1; N],
            padding: Padding::Valid,
            data_format: DataFormat::ChannelsLast,
            dilation_rate: [1; N],
            depth_multiplier: 1,
            activation: Activation::Linear,
            use_bias: true,
            depthwise: WeightOptions::default(),
            bias: WeightOptions::default(),
        }
    }

    /// Sets the number of output channels per input channel.
    ///
    /// ```
    /// let layer = ferroflow::layers::DepthwiseConv2D::new(3).depth_multiplier(2);
    /// ```
    pub fn depth_multiplier(mut self, depth_multiplier: i64) -> Self {
        self.depth_multiplier = depth_multiplier;
        self
    }

    fn add(&self, x: &Output) -> Result<Output> {
        check_positive(&[self.depth_multiplier], "the depth multiplier")?;
        check_window(&self.kernel_size, &self.strides, &self.dilation_rate)?;
        let channels = input_channels::<N>(x, self.data_format, "a depthwise convolution")?;
        self.base.apply(x.graph(), |weights| {
            let mut dims = self.kernel_size.to_vec();
            dims.extend([channels, self.depth_multiplier]);
            let kernel = weights.get("depthwise_kernel", &dims, x.dtype(), &self.depthwise, None)?.read();
            let window = Convolution {
                strides: &self.strides,
                dilations: &self.dilation_rate,
                padding: self.padding,
                data_format: self.data_format,
            };
            let mut y = depthwise(x, &kernel, &window)?;
            if self.use_bias {
                y = add_bias(weights, &y, channels * self.depth_multiplier, self.data_format, &self.bias)?;
            }
            self.activation.apply(&y)
        })
    }
}

impl<const N: usize> SeparableConv<N> {
    /// The numbers of axes that TensorFlow supports; others don't compile.
    const IS_KNOWN: () = assert!(N == 1 || N == 2, "a separable convolution has one or two axes");

    /// Returns a separable convolution with this many filters and a window of this size.
    ///
    /// ```
    /// let layer = ferroflow::layers::SeparableConv2D::new(16, 3);
    /// ```
    pub fn new(filters: i64, kernel_size: impl Sizes<N>) -> SeparableConv<N> {
        let () = Self::IS_KNOWN;
        SeparableConv {
            base: Base::new(by_axes::<N>(["separable_conv1d", "separable_conv2d", ""])),
            filters,
            kernel_size: kernel_size.sizes(),
            strides: [1; N],
            padding: Padding::Valid,
            data_format: DataFormat::ChannelsLast,
            dilation_rate: [1; N],
            depth_multiplier: 1,
            activation: Activation::Linear,
            use_bias: true,
            depthwise: WeightOptions::default(),
            pointwise: WeightOptions::default(),
            bias: WeightOptions::default(),
        }
    }

    /// Sets the number of depthwise channels per input channel, before they are mixed.
    ///
    /// ```
    /// let layer = ferroflow::layers::SeparableConv2D::new(16, 3).depth_multiplier(2);
    /// ```
    pub fn depth_multiplier(mut self, depth_multiplier: i64) -> Self {
        self.depth_multiplier = depth_multiplier;
        self
    }

    fn add(&self, x: &Output) -> Result<Output> {
        check_positive(&[self.filters, self.depth_multiplier], "the number of filters")?;
        check_window(&self.kernel_size, &self.strides, &self.dilation_rate)?;
        let channels = input_channels::<N>(x, self.data_format, "a separable convolution")?;
        self.base.apply(x.graph(), |weights| {
            let mut dims = self.kernel_size.to_vec();
            dims.extend([channels, self.depth_multiplier]);
            let kernel = weights.get("depthwise_kernel", &dims, x.dtype(), &self.depthwise, None)?.read();
            let mut dims = vec![1; N];
            dims.extend([channels * self.depth_multiplier, self.filters]);
            let mix = weights.get("pointwise_kernel", &dims, x.dtype(), &self.pointwise, None)?.read();
            let window = Convolution {
                strides: &self.strides,
                dilations: &self.dilation_rate,
                padding: self.padding,
                data_format: self.data_format,
            };
            let y = depthwise(x, &kernel, &window)?;
            let ones = [1; N];
            let window = Convolution {
                strides: &ones,
                dilations: &ones,
                padding: Padding::Valid,
                data_format: self.data_format,
            };
            let mut y = window.add(&y, &mix)?;
            if self.use_bias {
                y = add_bias(weights, &y, self.filters, self.data_format, &self.bias)?;
            }
            self.activation.apply(&y)
        })
    }
}

/// Adds a depthwise convolution; one over a single axis runs on images of a single row.
fn depthwise(x: &Output, kernel: &Output, window: &Convolution<'_>) -> Result<Output> {
    let format = window.data_format;
    if let ([stride], [dilation]) = (window.strides, window.dilations) {
        // The op has one stride for both axes; it has no effect along the axis of size 1.
        let (strides, dilations) = ([*stride, *stride], [1, *dilation]);
        let rows = Convolution { strides: &strides, dilations: &dilations, ..*window };
        let axis = format.first_spatial();
        let y = depthwise(&expand_dims(x, axis as i32)?, &expand_dims(kernel, 0)?, &rows)?;
        return squeeze(&y, axis as i64);
    }
    if window.strides.iter().any(|stride| *stride != window.strides[0]) {
        return Err(Status::invalid_argument(format!(
            "a depthwise convolution takes equal strides only, got {:?}",
            window.strides
        )));
    }
    let kernel = dilated(kernel, window.dilations)?;
    let op = x.graph().op("DepthwiseConv2dNative").input(x).input(&kernel);
    let op = op.attr("strides", &format.window(window.strides)[..]).attr("padding", window.padding.attr());
    Ok(op.attr("data_format", format.attr(2)).try_build()?.output(0))
}

base_options!(DepthwiseConv<const N>, "DepthwiseConv2D::new(3)");
bias_options!(DepthwiseConv<const N>, "DepthwiseConv2D::new(3)");
window_options!(DepthwiseConv<const N>, "DepthwiseConv2D::new(3)", N);
dilation_option!(DepthwiseConv<const N>, "DepthwiseConv2D::new(3)", N);
weight_options!(
    DepthwiseConv<const N>,
    "DepthwiseConv2D::new(3)",
    depthwise,
    "the depthwise kernel",
    depthwise_initializer,
    depthwise_regularizer,
    depthwise_constraint
);
apply_layer!(DepthwiseConv<const N>);

base_options!(SeparableConv<const N>, "SeparableConv2D::new(8, 3)");
bias_options!(SeparableConv<const N>, "SeparableConv2D::new(8, 3)");
window_options!(SeparableConv<const N>, "SeparableConv2D::new(8, 3)", N);
dilation_option!(SeparableConv<const N>, "SeparableConv2D::new(8, 3)", N);
weight_options!(
    SeparableConv<const N>,
    "SeparableConv2D::new(8, 3)",
    depthwise,
    "the depthwise kernel",
    depthwise_initializer,
    depthwise_regularizer,
    depthwise_constraint
);
weight_options!(
    SeparableConv<const N>,
    "SeparableConv2D::new(8, 3)",
    pointwise,
    "the pointwise kernel",
    pointwise_initializer,
    pointwise_regularizer,
    pointwise_constraint
);
apply_layer!(SeparableConv<const N>);
