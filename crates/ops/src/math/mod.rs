//! Mathematics.

mod add_n;
mod arithmetic;
mod division;
mod exponential;
mod matmul;

pub use add_n::*;
pub use arithmetic::*;
pub use division::*;
pub use exponential::*;
pub use matmul::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[add_n::OPS, arithmetic::OPS, division::OPS, exponential::OPS, matmul::OPS];
