//! Function calls, arguments and results.
//!
//! ```
//! use graph::Graph;
//! use ops::function::stateful_partitioned_call;
//! use tensor::DType;
//!
//! let g = Graph::new();
//! // Whether the library has the function is found out when the graph runs.
//! let results = stateful_partitioned_call(&g, "double", &[g.constant(1f32)], &[DType::Float]);
//! assert_eq!((results.len(), results[0].dtype()), (1, DType::Float));
//! g.finish()?;
//! # Ok::<(), tensor::Status>(())
//! ```

mod argument;
mod branch;
mod call;
mod iterate;
mod py_func;
mod runner;

pub use call::*;

#[cfg(test)]
pub(crate) use runner::tests as testing;
pub(crate) use runner::{Callee, Function};

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[argument::OPS, branch::OPS, call::OPS, iterate::OPS, py_func::OPS];
