//! Ops that make, move and reshape tensors.

mod placeholder;

pub use placeholder::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[placeholder::OPS];
