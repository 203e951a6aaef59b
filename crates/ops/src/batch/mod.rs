//! Batching: several steps' separate computations run as one, as model servers do.

mod batch_ops;
mod batcher;
mod request;
mod table_rows;
#[cfg(test)]
mod tests;
mod unbatch;
mod unbatch_grad;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[batch_ops::OPS, unbatch::OPS, unbatch_grad::OPS];
