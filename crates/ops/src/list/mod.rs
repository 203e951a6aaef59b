//! Lists of tensors, which are values: an op that changes a list makes another one.

mod gradients;
mod list_kernels;
mod list_ops;
mod tensor_list;

pub use list_ops::*;

pub(crate) use tensor_list::{added_lists, zeros_like_list};

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[list_ops::OPS];
