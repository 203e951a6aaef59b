//! Layers, as in `tf.layers` and `tf.nn.rnn_cell`. Their variables have TensorFlow's names and shapes, so that checkpoints of the
//! same model are compatible in both directions.
//!
//! A layer is a value: [`Dense::new(100)`](Dense::new) with its options. Applying it to an output adds it to the graph, and
//! creates its variables the first time. Later applications use the same variables.
//!
//! ```
//! use ferroflow::layers::{Activation, Apply, Dense, Dropout, Flatten};
//! use ferroflow::variable::trainable_variables;
//! use ferroflow::{Graph, PartialShape};
//!
//! let g = Graph::new();
//! let images = g.placeholder::<f32>((None, 28, 28));
//! let logits = images
//!     .apply(&Flatten::new())
//!     .apply(&Dense::new(100).activation(Activation::Relu))
//!     .apply(&Dropout::new(0.5).training(true))
//!     .apply(&Dense::new(10));
//! assert_eq!(logits.shape(), PartialShape::from([-1, 10]));
//! let names: Vec<String> = trainable_variables(&g)?.iter().map(|variable| variable.name()).collect();
//! assert_eq!(names, ["dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"]);
//! # Ok::<(), ferroflow::Status>(())
//! ```
//!
//! Layers share weights if the same layer is applied several times, or through a [variable scope](crate::variable_scope) that
//! reuses variables and a [`name`](Dense::name).
//!
//! Default names are numbered within each variable scope, as in `tf.layers`. Keras numbers its layers within the whole graph. So
//! if a TensorFlow model has several layers that `tf.layers` doesn't have ([`LayerNormalization`], [`Embedding`],
//! [`Conv1DTranspose`], [`DepthwiseConv1D`], [`DepthwiseConv2D`]) in different scopes, give each the name that it has there.

#[macro_use]
mod macros;

pub(crate) mod base;
mod batch_norm;
pub mod constraints;
mod conv;
mod conv_transpose;
mod core;
mod layer_norm;
mod options;
mod pooling;
pub mod regularizers;
pub mod rnn;
mod separable;
mod sequential;

pub use self::core::*;
pub use batch_norm::*;
pub use conv::*;
pub use conv_transpose::*;
pub use layer_norm::*;
pub use ops::nn::Padding;
pub use options::{Activation, DataFormat, Sizes, Training};
pub use pooling::*;
pub use separable::*;
pub use sequential::*;

pub(crate) use options::{check_positive, dropout as dropout_op};

use graph::Output;

/// Computes an output from another one.
///
/// ```
/// use ferroflow::layers::{Apply, Dense, Layer};
/// use ferroflow::{Graph, Output};
///
/// /// Adds what goes in to what a layer makes of it.
/// struct Residual<L>(L);
///
/// impl<L: Layer> Layer for Residual<L> {
///     fn apply(&self, x: &Output) -> Output {
///         x + self.0.apply(x)
///     }
/// }
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 8));
/// assert_eq!(x.apply(&Residual(Dense::new(8))).shape(), x.shape());
/// ```
pub trait Layer {
    /// Adds the layer to the graph of `x` and returns its output.
    fn apply(&self, x: &Output) -> Output;
}

/// `x.apply(&layer)`, for chains.
///
/// ```
/// use ferroflow::layers::{Apply, Dense, Flatten};
/// use ferroflow::{Graph, PartialShape};
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>([8, 2, 3]);
/// let y = x.apply(&Flatten::new()).apply(&Dense::new(4));
/// assert_eq!(y.shape(), PartialShape::from([8, 4]));
/// ```
pub trait Apply {
    /// Applies a layer to this output.
    fn apply<L: Layer + ?Sized>(&self, layer: &L) -> Output;
}

impl Apply for Output {
    #[track_caller]
    fn apply<L: Layer + ?Sized>(&self, layer: &L) -> Output {
        // A layer behind a pointer doesn't see its caller's line.
        self.graph().called_here(|_| layer.apply(self))
    }
}
