//! Mathematics.

mod add_n;
mod arg_extreme;
mod arithmetic;
mod cast;
mod compare;
mod division;
mod exponential;
mod extremes;
mod fused_elementwise;
mod matmul;
mod power;
mod range;
mod reduce;
mod rounding;
mod select;
mod trigonometric;
mod unsorted_segment;

pub use add_n::*;
pub use arg_extreme::*;
pub use arithmetic::*;
pub use cast::*;
pub use compare::*;
pub use division::*;
pub use exponential::*;
pub use extremes::*;
pub use matmul::*;
pub use power::*;
pub use range::*;
pub use reduce::*;
pub use rounding::*;
pub use select::*;
pub use trigonometric::*;
pub use unsorted_segment::*;

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
    extremes::OPS,
    fused_elementwise::OPS,
    matmul::OPS,
    power::OPS,
    range::OPS,
    reduce::OPS,
    rounding::OPS,
    select::OPS,
    trigonometric::OPS,
    unsorted_segment::OPS,
];
