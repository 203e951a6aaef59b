//! Sparse tensors: the indices, the values and the shape are a tensor each.

mod add;
mod coordinates;
mod cross;
mod fill_empty_rows;
mod gradients;
mod matmul;
mod rearrange;
mod reduce;
mod serialize;
mod set;
mod to_dense;

pub use add::*;
pub use fill_empty_rows::*;
pub use matmul::*;
pub use rearrange::*;
pub use to_dense::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[
    add::OPS,
    cross::OPS,
    fill_empty_rows::OPS,
    matmul::OPS,
    rearrange::OPS,
    reduce::OPS,
    serialize::OPS,
    set::OPS,
    to_dense::OPS,
];
