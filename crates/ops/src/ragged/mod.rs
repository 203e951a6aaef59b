//! Ragged tensors: flat values, and the row boundaries of each ragged dimension.

mod convert;
mod gather;
mod splits;
mod variant;

pub(crate) use variant::ragged_variant;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[convert::OPS, gather::OPS, variant::OPS];
