//! Queues, accumulators, tensor arrays, stacks, barriers, staging areas: what graphs hand tensors over with.

mod accumulator;
mod accumulator_ops;
mod queue;
mod queue_ops;
mod resource_op;
mod stack;
mod stacking;
mod tensor_array;
mod tensor_array_grad;
mod tensor_array_kernels;
mod tensor_array_ops;

pub use accumulator_ops::*;
pub use queue_ops::*;
pub use stack::*;
pub use tensor_array_ops::*;

pub(crate) use queue::{DequeueMode, Queue};
pub(crate) use resource_op::ResourceOp;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[accumulator_ops::OPS, queue_ops::OPS, stack::OPS, tensor_array_ops::OPS];
