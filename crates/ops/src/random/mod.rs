//! Random numbers: the same as TensorFlow's for the same seeds.

/// Lists a kernel of `RandomFill` per floating type.
macro_rules! float_kernels {
    ($distribution:ident) => {
        number_kernels!(@list "dtype", RandomFill, ($distribution), [f32, f64, f16, bf16])
    };
}

mod candidates;
mod discrete;
mod fill;
mod gamma;
mod generator;
mod mersenne;
mod stateful;
mod stateless;

pub use candidates::*;
pub use discrete::*;
pub use fill::*;
pub use gamma::*;
pub use stateless::*;

pub(crate) use generator::{Generator, SingleSample, random_bits};
pub(crate) use mersenne::MersenneTwister;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] =
    &[candidates::OPS, discrete::OPS, fill::OPS, gamma::OPS, stateful::OPS, stateless::OPS];
