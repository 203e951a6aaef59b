//! Queues, accumulators, tensor arrays, stacks, barriers, staging areas: what graphs hand tensors over with.

mod queue;
mod queue_ops;
mod resource_op;
mod stacking;

pub use queue_ops::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[queue_ops::OPS];
