//! Neural networks.

mod relu;

pub use relu::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[relu::OPS];
