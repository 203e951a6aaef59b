//! Strings.
//!
//! ```
//! use graph::Graph;
//! use ops::string;
//!
//! let g = Graph::new();
//! let joined = string::string_join(&[g.constant("distributed"), g.constant("TensorFlow")], " ");
//! let step = std::sync::Arc::new(kernel::Step::detached());
//! let values = kernel::evaluate(ops::registry(), &g.graph(), &[], &[joined.edge()], &step)?;
//! assert_eq!(values[0].strings()?[0], "distributed TensorFlow");
//! # Ok::<(), tensor::Status>(())
//! ```

mod as_string;
mod base64_ops;
mod charset;
mod fingerprint;
mod fingerprint_op;
mod format;
mod hash;
mod join;
mod ngrams;
mod number_format;
mod pattern;
mod split;
mod text;
mod unicode;
mod unicode_script;
mod unicode_script_table;

pub use as_string::*;
pub use base64_ops::*;
pub use format::*;
pub use hash::*;
pub use join::*;
pub use pattern::*;
pub use split::*;
pub use text::*;

pub(crate) use fingerprint::fingerprint64;
pub(crate) use hash::{murmur64, murmur64_seeded};

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[
    as_string::OPS,
    base64_ops::OPS,
    fingerprint_op::OPS,
    format::OPS,
    hash::OPS,
    join::OPS,
    ngrams::OPS,
    pattern::OPS,
    split::OPS,
    text::OPS,
    unicode::OPS,
    unicode_script::OPS,
];
