//! Connectionist temporal classification: sequences of labels whose times aren't known.

mod decode;
mod loss;

pub use decode::*;
pub use loss::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[decode::OPS, loss::OPS];
