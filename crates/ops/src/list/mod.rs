//! Lists of tensors, which are values: an op that changes a list makes another one.

mod gradients;
mod list_kernels;
mod list_ops;
mod tensor_list;
mod variants;

pub use list_ops::*;

pub(crate) use variants::{added_variants, zeros_like_variant};

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[list_ops::OPS];
