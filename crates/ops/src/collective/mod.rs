//! Collective ops, in which devices of one or several tasks take part as equals: reductions, gathers, broadcasts, exchanges, and
//! the groups for them. The worker transfers the tensors ([`kernel::Collectives`]).
//!
//! ```
//! use ops::collective::collective_reduce;
//!
//! // Two workers, each with a part of the gradient, get the mean of both.
//! let g = graph::Graph::new();
//! for task in 0..2 {
//!     let worker = format!("/job:worker/task:{task}");
//!     let mean = g.device(&worker, |g| collective_reduce(&g.constant([1f32, 2.0]), 2, 1, 1, "Add", "Div"));
//!     assert_eq!(mean.op.op_type(), "CollectiveReduce");
//! }
//! # g.finish().unwrap();
//! ```

mod all_to_all;
mod broadcast;
mod communicator;
mod gather;
mod group;
mod kernel_op;
mod reduce;
mod reduction;

pub use broadcast::*;
pub use gather::*;
pub use reduce::*;

use kernel::{Op, OpFlags};

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[all_to_all::OPS, broadcast::OPS, gather::OPS, group::OPS, reduce::OPS];

/// The common effects of all collective ops.
const FLAGS: OpFlags = OpFlags::STATEFUL.union(OpFlags::DISTRIBUTED_COMMUNICATION);
