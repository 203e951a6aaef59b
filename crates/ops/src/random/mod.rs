//! Random numbers: the same as TensorFlow's for the same seeds.

/// Lists a kernel of `RandomFill` per floating type.
macro_rules! float_kernels {
    ($distribution:ident) => {
        number_kernels!(@list "dtype", RandomFill, ($distribution), [f32, f64, f16, bf16])
    };
}

mod discrete;
mod fill;
mod gamma;
mod generator;
mod stateless;

pub use discrete::*;
pub use fill::*;
pub use gamma::*;
pub use stateless::*;

pub(crate) use generator::{SingleSample, random_bits};

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[discrete::OPS, fill::OPS, gamma::OPS, stateless::OPS];
