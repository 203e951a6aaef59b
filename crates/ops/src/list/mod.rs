//! Lists of tensors, which are values: an op that changes a list creates another one.
//!
//! ```
//! use graph::Graph;
//! use ops::list;
//!
//! let g = Graph::new();
//! let rows = list::tensor_list_from_tensor(&g.constant([[1f32, 2.0], [3.0, 4.0]]), &g.constant([2i32]));
//! let length = list::tensor_list_length(&rows);
//! let step = std::sync::Arc::new(kernel::Step::detached());
//! let values = kernel::evaluate(ops::registry(), &g.graph(), &[], &[length.edge()], &step)?;
//! assert_eq!(values[0].to_scalar::<i32>()?, 2);
//! # Ok::<(), tensor::Status>(())
//! ```

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
