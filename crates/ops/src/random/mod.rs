//! Random numbers, equal to TensorFlow's for equal seeds.

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[];
