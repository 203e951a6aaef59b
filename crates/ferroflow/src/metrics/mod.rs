//! Metrics, as `tf.metrics`: numbers that accumulate over many steps. Each has local variables, an `update` that adds a step to
//! them, and a `value` over all steps so far. The initializer of the local variables resets them.
//!
//! ```
//! use ferroflow::losses::{Labels, Predictions};
//! use ferroflow::train::local_variables_initializer;
//! use ferroflow::{Graph, Session, Tensor, metrics};
//!
//! let g = Graph::new();
//! let labels = g.placeholder::<i64>([-1]);
//! let predictions = g.placeholder::<i64>([-1]);
//! let accuracy = metrics::accuracy(Labels(&labels), Predictions(&predictions)).build();
//! let session = Session::new(&g)?;
//! session.run_ops(&[&local_variables_initializer(&g)])?;
//! for predicted in [[1i64, 2], [3, 4]] {
//!     let (right, predicted) = (Tensor::vector(&[1i64, 4]), Tensor::vector(&predicted));
//!     session.runner().feed(&labels, right).feed(&predictions, predicted).target(&accuracy.update.op).run()?;
//! }
//! assert_eq!(session.eval::<f32>(&accuracy.value)?, 0.5);
//! # Ok::<(), ferroflow::Status>(())
//! ```

mod at_k;
mod classes;
mod means;
mod metric;
mod parts;
mod thresholds;

pub use metric::*;
pub use parts::METRIC_VARIABLES;
