//! Matrix decompositions and linear systems. Every op works on the last two dimensions.
//!
//! ```
//! use graph::Graph;
//! use ops::linalg;
//!
//! let g = Graph::new();
//! let inverse = linalg::matrix_inverse(&g.constant([[2f32, 0.0], [0.0, 4.0]]));
//! let step = std::sync::Arc::new(kernel::Step::detached());
//! let values = kernel::evaluate(ops::registry(), &g.graph(), &[], &[inverse.edge()], &step)?;
//! assert_eq!(values[0].to_vec::<f32>()?, [0.5, 0.0, 0.0, 0.25]);
//! # Ok::<(), tensor::Status>(())
//! ```

mod decompose;
mod functions;
mod gradients;
mod matrices;
mod solve;
mod tridiagonal;

pub use decompose::*;
pub use functions::*;
pub use solve::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[decompose::OPS, functions::OPS, solve::OPS, tridiagonal::OPS];
