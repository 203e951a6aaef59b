//! Queues, accumulators, tensor arrays, stacks, barriers, staging areas: what graphs hand tensors over with.

mod accumulator;
mod accumulator_ops;
mod queue;
mod queue_ops;
mod resource_op;
mod stacking;

pub use accumulator_ops::*;
pub use queue_ops::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[accumulator_ops::OPS, queue_ops::OPS];
