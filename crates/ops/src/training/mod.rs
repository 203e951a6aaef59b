//! The updates that optimizers make.

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[];
