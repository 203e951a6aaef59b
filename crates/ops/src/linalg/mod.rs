//! Decompositions of matrices and what is solved with them. Every op works on the last two dimensions.

mod decompose;
mod gradients;
mod matrices;
mod solve;
mod tridiagonal;

pub use decompose::*;
pub use solve::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[decompose::OPS, solve::OPS, tridiagonal::OPS];
