//! Mathematics.

mod add_n;
mod arg_extreme;
mod arithmetic;
mod cast;
mod compare;
mod division;
mod exponential;
mod matmul;
mod reduce;
mod select;

pub use add_n::*;
pub use arg_extreme::*;
pub use arithmetic::*;
pub use cast::*;
pub use compare::*;
pub use division::*;
pub use exponential::*;
pub use matmul::*;
pub use reduce::*;
pub use select::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[
    add_n::OPS,
    arg_extreme::OPS,
    arithmetic::OPS,
    cast::OPS,
    compare::OPS,
    division::OPS,
    exponential::OPS,
    matmul::OPS,
    reduce::OPS,
    select::OPS,
];
