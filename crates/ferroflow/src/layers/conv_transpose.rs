//! Transposed convolutions, which upsample their input.

use super::base::{Base, WeightOptions};
use super::conv::{add_bias, by_axes, check_window, input_channels};
use super::options::{Activation, DataFormat, Sizes, check_positive};
use crate::compose::{self, expand_dims, int, pack, squeeze, with_number};
use graph::Output;
use ops::nn::Padding;
use tensor::{PartialShape, Result};

/// A transposed convolution over `N` axes, as `tf.layers.Conv2DTranspose` and `Conv3DTranspose`, and
/// `tf.keras.layers.Conv1DTranspose`: [`Conv1DTranspose`], [`Conv2DTranspose`], [`Conv3DTranspose`].
///
/// Its variables are `kernel` (window sizes, filters, input channels) and `bias` (filters), in a scope such as
/// `conv2d_transpose`.
///
/// ```
/// use ferroflow::layers::{Conv2DTranspose, Padding};
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let images = g.placeholder::<f32>((None, 7, 7, 16));
/// let larger = Conv2DTranspose::new(8, 5).strides(2).padding(Padding::Same).apply(&images);
/// assert_eq!(larger.shape(), PartialShape::from([-1, 14, 14, 8]));
/// ```
pub struct ConvTranspose<const N: usize> {
    base: Base,
    filters: i64,
    kernel_size: [i64; N],
    strides: [i64; N],
    padding: Padding,
    data_format: DataFormat,
    activation: Activation,
    use_bias: bool,
    kernel: WeightOptions,
    bias: WeightOptions,
}

/// A transposed convolution over time.
///
/// ```
/// let layer = ferroflow::layers::Conv1DTranspose::new(16, 3);
/// ```
pub type Conv1DTranspose = ConvTranspose<1>;

/// A transposed convolution over images.
///
/// ```
/// let layer = ferroflow::layers::Conv2DTranspose::new(16, 3);
/// ```
pub type Conv2DTranspose = ConvTranspose<2>;

/// A transposed convolution over volumes.
///
/// ```
/// let layer = ferroflow::layers::Conv3DTranspose::new(16, 3);
/// ```
pub type Conv3DTranspose = ConvTranspose<3>;

/// Adds a [`Conv2DTranspose`] layer with default options except for its strides.
///
/// ```
/// use ferroflow::layers::conv2d_transpose;
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 7, 7, 2));
/// assert_eq!(conv2d_transpose(&x, 8, 3, 2).shape(), PartialShape::from([-1, 15, 15, 8]));
/// ```
#[track_caller]
pub fn conv2d_transpose(x: &Output, filters: i64, kernel_size: impl Sizes<2>, strides: impl Sizes<2>) -> Output {
    Conv2DTranspose::new(filters, kernel_size).strides(strides).apply(x)
}

/// Adds a [`Conv3DTranspose`] layer with default options except for its strides.
///
/// ```
/// use ferroflow::layers::conv3d_transpose;
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>([2, 3, 3, 3, 2]);
/// assert_eq!(conv3d_transpose(&x, 4, 2, 2).shape(), PartialShape::from([2, 6, 6, 6, 4]));
/// ```
#[track_caller]
pub fn conv3d_transpose(x: &Output, filters: i64, kernel_size: impl Sizes<3>, strides: impl Sizes<3>) -> Output {
    Conv3DTranspose::new(filters, kernel_size).strides(strides).apply(x)
}

impl<const N: usize> ConvTranspose<N> {
    /// The numbers of axes that TensorFlow supports; others don't compile.
    const IS_KNOWN: () = assert!(N >= 1 && N <= 3, "a convolution has one, two or three axes");

    /// Returns a layer with this many filters and a window of this size.
    ///
    /// ```
    /// let layer = ferroflow::layers::Conv2DTranspose::new(32, 5);
    /// ```
    pub fn new(filters: i64, kernel_size: impl Sizes<N>) -> ConvTranspose<N> {
        let () = Self::IS_KNOWN;
        ConvTranspose {
            base: Base::new(by_axes::<N>(["conv1d_transpose", "conv2d_transpose", "conv3d_transpose"])),
            filters,
            kernel_size: kernel_size.sizes(),
            strides: [1; N],
            padding: Padding::Valid,
            data_format: DataFormat::ChannelsLast,
            activation: Activation::Linear,
            use_bias: true,
            kernel: WeightOptions::default(),
            bias: WeightOptions::default(),
        }
    }

    fn add(&self, x: &Output) -> Result<Output> {
        check_positive(&[self.filters], "the number of filters")?;
        check_window(&self.kernel_size, &self.strides, &[])?;
        let channels = input_channels::<N>(x, self.data_format, "a transposed convolution")?;
        self.base.apply(x.graph(), |weights| {
            let mut dims = self.kernel_size.to_vec();
            dims.extend([self.filters, channels]);
            let kernel = weights.get("kernel", &dims, x.dtype(), &self.kernel, None)?.read();
            let mut y = self.transposed(x, &kernel)?;
            if self.use_bias {
                y = add_bias(weights, &y, self.filters, self.data_format, &self.bias)?;
            }
            self.activation.apply(&y)
        })
    }

    fn transposed(&self, x: &Output, kernel: &Output) -> Result<Output> {
        let graph = x.graph();
        let first = self.data_format.first_spatial();
        let shape = x.shape();
        let mut sizes = Vec::with_capacity(N + 2);
        let mut known = vec![None; N + 2];
        known[0] = shape.dim(0);
        known[self.data_format.channel_axis(N + 2)] = Some(self.filters);
        for axis in 0..N {
            let (stride, window) = (self.strides[axis], self.kernel_size[axis]);
            // The overlap of the last window with the strides.
            let over = if self.padding == Padding::Valid { (window - stride).max(0) } else { 0 };
            known[first + axis] = shape.dim(first + axis).map(|size| size * stride + over);
            sizes.push(match known[first + axis].and_then(|size| i32::try_from(size).ok()) {
                Some(size) => int(graph, size),
                None => {
                    let strided = with_number("Mul", &compose::size_of_axis(x, first + axis)?, stride as f64)?;
                    with_number("AddV2", &strided, over as f64)?
                }
            });
        }
        let channels = int(graph, self.filters as i32);
        sizes.insert(if first == 1 { N } else { 0 }, channels);
        sizes.insert(0, compose::size_of_axis(x, 0)?);
        let known = PartialShape::new(&known);
        if N == 1 {
            // An image of a single row.
            sizes.insert(first, int(graph, 1));
            let output_shape = pack(&sizes.iter().collect::<Vec<_>>())?;
            let strides = [1, self.strides[0]];
            let x = expand_dims(x, first as i32)?;
            let y = self.backprop("Conv2DBackpropInput", &output_shape, &expand_dims(kernel, 0)?, &x, &strides)?;
            let y = squeeze(&y, first as i64)?;
            y.set_shape(&known)?;
            return Ok(y);
        }
        let output_shape = pack(&sizes.iter().collect::<Vec<_>>())?;
        let op = if N == 3 { "Conv3DBackpropInputV2" } else { "Conv2DBackpropInput" };
        let y = self.backprop(op, &output_shape, kernel, x, &self.strides)?;
        y.set_shape(&known)?;
        Ok(y)
    }

    fn backprop(
        &self,
        op: &str,
        output_shape: &Output,
        kernel: &Output,
        x: &Output,
        strides: &[i64],
    ) -> Result<Output> {
        let op = x.graph().op(op).input(output_shape).input(kernel).input(x);
        let op = op.attr("strides", &self.data_format.window(strides)[..]).attr("padding", self.padding.attr());
        Ok(op.attr("data_format", self.data_format.attr(strides.len())).try_build()?.output(0))
    }
}

base_options!(ConvTranspose<const N>, "Conv2DTranspose::new(8, 3)");
bias_options!(ConvTranspose<const N>, "Conv2DTranspose::new(8, 3)");
window_options!(ConvTranspose<const N>, "Conv2DTranspose::new(8, 3)", N);
weight_options!(
    ConvTranspose<const N>,
    "Conv2DTranspose::new(8, 3)",
    kernel,
    "the kernel",
    kernel_initializer,
    kernel_regularizer,
    kernel_constraint
);
apply_layer!(ConvTranspose<const N>);
