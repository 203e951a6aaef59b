//! Ops that make, move and reshape tensors.

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[];
