//! Queues, accumulators, tensor arrays, stacks.

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[];
