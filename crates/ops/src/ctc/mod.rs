//! Connectionist temporal classification: sequences of labels whose times aren't known.
//!
//! ```
//! use graph::Graph;
//! use ops::ctc;
//!
//! let g = Graph::new();
//! // Two times, one sequence, two labels and the blank: label 1, then label 0.
//! let logits = g.constant([[[0f32, 9.0, 0.0]], [[9.0, 0.0, 0.0]]]);
//! let decoded = ctc::ctc_greedy_decoder(&logits, &g.constant([2i32]), true);
//! let step = std::sync::Arc::new(kernel::Step::detached());
//! let values = kernel::evaluate(ops::registry(), &g.graph(), &[], &[decoded[1].edge()], &step)?;
//! assert_eq!(values[0].to_vec::<i64>()?, [1, 0]);
//! # Ok::<(), tensor::Status>(())
//! ```

mod decode;
mod loss;

pub use decode::*;
pub use loss::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[decode::OPS, loss::OPS];
