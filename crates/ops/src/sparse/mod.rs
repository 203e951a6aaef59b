//! Sparse tensors: the indices, the values and the shape are a tensor each.

mod coordinates;
mod cross;
mod fill_empty_rows;
mod rearrange;
mod serialize;
mod to_dense;

pub use fill_empty_rows::*;
pub use rearrange::*;
pub use to_dense::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[cross::OPS, fill_empty_rows::OPS, rearrange::OPS, serialize::OPS, to_dense::OPS];
