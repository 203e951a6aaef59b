//! Ops that control execution.
//!
//! ```
//! use graph::Graph;
//! use ops::control_flow;
//!
//! let g = Graph::new();
//! let (when_false, when_true) = control_flow::switch(&g.constant(1f32), &g.constant(true));
//! // Whichever of the two is there.
//! let (value, index) = control_flow::merge(&[when_false * 2.0, when_true * 3.0]);
//! assert_eq!((value.dtype(), index.dtype()), (tensor::DType::Float, tensor::DType::Int32));
//! g.finish()?;
//! # Ok::<(), tensor::Status>(())
//! ```

mod branch;
mod frame;
mod send_recv;
mod trigger;

pub use branch::*;
pub use frame::*;
pub use trigger::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[branch::OPS, frame::OPS, send_recv::OPS, trigger::OPS];
