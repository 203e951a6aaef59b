//! Losses, as `tf.losses`: each adds a scalar to the graph and to the collection of losses, which [`get_total_loss`] sums up for
//! an optimizer.
//!
//! Predictions and labels have different types, [`Logits`] or [`Predictions`] and [`Labels`], so that a program that swaps them
//! doesn't compile.
//!
//! ```
//! use ferroflow::layers::Dense;
//! use ferroflow::losses::{self, Labels, Logits};
//! use ferroflow::train::{GradientDescentOptimizer, Optimizer};
//! use ferroflow::Graph;
//!
//! let g = Graph::new();
//! let x = g.placeholder::<f32>((None, 784));
//! let digits = g.placeholder::<i64>([-1]);
//! let logits = Dense::new(10).apply(&x);
//! let loss = losses::sparse_softmax_cross_entropy(Labels(&digits), Logits(&logits)).build();
//! GradientDescentOptimizer::new(0.5).minimize(&loss, None)?;
//! # Ok::<(), ferroflow::Status>(())
//! ```

mod collection;
mod loss;
mod weights;

pub use collection::*;
pub use loss::*;
pub(crate) use weights::{broadcast_weights, check_weights, to_float, without_last_axis};
