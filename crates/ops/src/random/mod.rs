//! Random numbers: the same as TensorFlow's for the same seeds.

mod generator;

pub(crate) use generator::SingleSample;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[];
