//! Tables: values by key.
//!
//! ```
//! use graph::Graph;
//! use ops::lookup;
//! use tensor::DType;
//!
//! let g = Graph::new();
//! let table = lookup::mutable_hash_table(&g, DType::String, DType::Int64, "");
//! let insert = lookup::lookup_table_insert(&table, &g.constant(["cat", "dog"]), &g.constant([3i64, 5]));
//! let found = g.control_dependencies(&[insert], |g| {
//!     lookup::lookup_table_find(&table, &g.constant(["dog", "cow"]), &g.constant(-1i64))
//! });
//! let step = std::sync::Arc::new(kernel::Step::detached());
//! let values = kernel::evaluate(ops::registry(), &g.graph(), &[], &[found.edge()], &step)?;
//! assert_eq!(values[0].to_vec::<i64>()?, [5, -1]);
//! # Ok::<(), tensor::Status>(())
//! ```

mod buckets;
mod column;
mod initialize;
mod table;
mod table_ops;
mod table_spec;

pub use initialize::*;
pub use table_ops::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[initialize::OPS, table_ops::OPS];
