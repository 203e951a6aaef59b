//! Pooling: the maximum or the mean of each window, over one, two or three axes.

use super::conv::{by_axes, check_window, input_channels};
use super::options::{DataFormat, Sizes};
use crate::compose::{expand_dims, squeeze};
use graph::Output;
use ops::nn::Padding;
use tensor::Result;

/// The maximum of each window over `N` axes, as `tf.layers.MaxPooling1D`, `MaxPooling2D` and `MaxPooling3D`.
///
/// ```
/// use ferroflow::layers::MaxPooling2D;
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let images = g.placeholder::<f32>((None, 28, 28, 3));
/// assert_eq!(MaxPooling2D::new(2, 2).apply(&images).shape(), PartialShape::from([-1, 14, 14, 3]));
/// ```
pub struct MaxPooling<const N: usize> {
    pool_size: [i64; N],
    strides: [i64; N],
    padding: Padding,
    data_format: DataFormat,
}

/// The mean of each window over `N` axes, as `tf.layers.AveragePooling1D`, `AveragePooling2D` and `AveragePooling3D`.
///
/// ```
/// use ferroflow::layers::{AveragePooling1D, Padding};
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 9, 3));
/// let means = AveragePooling1D::new(2, 2).padding(Padding::Same).apply(&x);
/// assert_eq!(means.shape(), PartialShape::from([-1, 5, 3]));
/// ```
pub struct AveragePooling<const N: usize> {
    pool_size: [i64; N],
    strides: [i64; N],
    padding: Padding,
    data_format: DataFormat,
}

macro_rules! pooling {
    ($layer:ident, $ops:expr, $example:literal) => {
        impl<const N: usize> $layer<N> {
            /// The numbers of axes that TensorFlow supports; others don't compile.
            const IS_KNOWN: () = assert!(N >= 1 && N <= 3, "pooling has one, two or three axes");

            /// Returns a layer with this window size and these strides.
            #[doc = option_example!($example, "")]
            pub fn new(pool_size: impl Sizes<N>, strides: impl Sizes<N>) -> $layer<N> {
                let () = Self::IS_KNOWN;
                $layer {
                    pool_size: pool_size.sizes(),
                    strides: strides.sizes(),
                    padding: Padding::Valid,
                    data_format: DataFormat::ChannelsLast,
                }
            }

            fn add(&self, x: &Output) -> Result<Output> {
                input_channels::<N>(x, self.data_format, "pooling").or_else(|status| match x.shape().rank() {
                    // Pooling doesn't need the number of channels.
                    Some(rank) if rank == N + 2 && x.dtype().is_floating() => Ok(0),
                    _ => Err(status),
                })?;
                check_window(&self.pool_size, &self.strides, &[])?;
                x.graph().name_scope(by_axes::<N>($ops.scopes), |_| {
                    let op = by_axes::<N>($ops.ops);
                    pool(op, x, &self.pool_size, &self.strides, self.padding, self.data_format)
                })
            }
        }

        window_options!($layer<const N>, $example, N);
        apply_layer!($layer<const N>);
    };
}

struct Names {
    ops: [&'static str; 3],
    scopes: [&'static str; 3],
}

const MAX: Names =
    Names { ops: ["MaxPool", "MaxPool", "MaxPool3D"], scopes: ["max_pooling1d", "max_pooling2d", "max_pooling3d"] };
const AVERAGE: Names = Names {
    ops: ["AvgPool", "AvgPool", "AvgPool3D"],
    scopes: ["average_pooling1d", "average_pooling2d", "average_pooling3d"],
};

pooling!(MaxPooling, MAX, "MaxPooling2D::new(2, 2)");
pooling!(AveragePooling, AVERAGE, "AveragePooling2D::new(2, 2)");

fn pool(op: &str, x: &Output, size: &[i64], strides: &[i64], padding: Padding, format: DataFormat) -> Result<Output> {
    if let ([size], [stride]) = (size, strides) {
        // An image of a single column or row.
        let axis = format.first_spatial();
        let y = pool(op, &expand_dims(x, axis as i32)?, &[1, *size], &[1, *stride], padding, format)?;
        return squeeze(&y, axis as i64);
    }
    let op = x.graph().op(op).input(x).attr("ksize", &format.window(size)[..]);
    let op = op.attr("strides", &format.window(strides)[..]).attr("padding", padding.attr());
    Ok(op.attr("data_format", format.attr(size.len())).try_build()?.output(0))
}

macro_rules! by_rank {
    ($($(#[$doc:meta])* $alias:ident $function:ident $layer:ident $n:literal $input:literal $output:literal;)*) => {$(
        $(#[$doc])*
        #[doc = concat!("\n```\nlet layer = ferroflow::layers::", stringify!($alias), "::new(2, 2);\n```")]
        pub type $alias = $layer<$n>;

        #[doc = concat!("Adds [`", stringify!($alias), "`] without options.")]
        #[doc = concat!(
            "\n```\nuse ferroflow::ops::array::placeholder;\nuse ferroflow::{DType, Graph, PartialShape};\n\n",
            "let g = Graph::new();\nlet x = placeholder(&g, DType::Float, &PartialShape::from_dims(&", $input, "));\n",
            "let y = ferroflow::layers::", stringify!($function), "(&x, 2, 2);\n",
            "assert_eq!(y.shape(), PartialShape::from_dims(&", $output, "));\n```"
        )]
        #[track_caller]
        pub fn $function(x: &Output, pool_size: impl Sizes<$n>, strides: impl Sizes<$n>) -> Output {
            $alias::new(pool_size, strides).apply(x)
        }
    )*};
}

by_rank! {
    /// The maximum of each window over time.
    MaxPooling1D max_pooling1d MaxPooling 1 "[-1, 8, 3]" "[-1, 4, 3]";
    /// The maximum of each window of images.
    MaxPooling2D max_pooling2d MaxPooling 2 "[-1, 8, 8, 3]" "[-1, 4, 4, 3]";
    /// The maximum of each window of volumes.
    MaxPooling3D max_pooling3d MaxPooling 3 "[-1, 8, 8, 8, 3]" "[-1, 4, 4, 4, 3]";
    /// The mean of each window over time.
    AveragePooling1D average_pooling1d AveragePooling 1 "[-1, 8, 3]" "[-1, 4, 3]";
    /// The mean of each window of images.
    AveragePooling2D average_pooling2d AveragePooling 2 "[-1, 8, 8, 3]" "[-1, 4, 4, 3]";
    /// The mean of each window of volumes.
    AveragePooling3D average_pooling3d AveragePooling 3 "[-1, 8, 8, 8, 3]" "[-1, 4, 4, 4, 3]";
}
