//! Tables: values by key.

mod buckets;
mod column;
mod initialize;
mod table;
mod table_ops;

pub use initialize::*;
pub use table_ops::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[initialize::OPS, table_ops::OPS];
