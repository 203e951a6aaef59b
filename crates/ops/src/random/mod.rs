//! Random numbers: the same as TensorFlow's for the same seeds.
//!
//! ```
//! use graph::Graph;
//! use ops::random;
//! use tensor::DType;
//!
//! let g = Graph::new();
//! let numbers = random::stateless_random_uniform(&g.constant([3i32]), &g.constant([7i32, 1]), DType::Float);
//! let step = std::sync::Arc::new(kernel::Step::detached());
//! let values = kernel::evaluate(ops::registry(), &g.graph(), &[], &[numbers.edge()], &step)?;
//! assert!(values[0].as_slice::<f32>()?.iter().all(|number| (0.0..1.0).contains(number)));
//! # Ok::<(), tensor::Status>(())
//! ```

/// Lists a kernel of `RandomFill` per floating type.
macro_rules! float_kernels {
    ($distribution:ident) => {
        number_kernels!(@list "dtype", RandomFill, ($distribution), [f32, f64, f16, bf16])
    };
}

mod candidates;
mod clustering;
mod discrete;
mod fill;
mod gamma;
mod generator;
mod mersenne;
mod parameterized;
mod stateful;
mod stateless;
mod unigram;

pub use candidates::*;
pub use clustering::*;
pub use discrete::*;
pub use fill::*;
pub use gamma::*;
pub use stateless::*;

pub(crate) use generator::{Generator, SingleSample, random_bits};
pub(crate) use mersenne::MersenneTwister;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[
    candidates::OPS,
    clustering::OPS,
    discrete::OPS,
    fill::OPS,
    gamma::OPS,
    parameterized::OPS,
    stateful::OPS,
    stateless::OPS,
];
