//! [`TableSpec`]: the kind of a table, and the types and shapes of its keys and values.

use super::column::Key;
use tensor::{DType, Shape};

/// The kind of a table, by the operations that it allows.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TableKind {
    /// A table that is filled once.
    Initializable,
    /// A table whose keys can be inserted and exported at any time.
    Mutable,
    /// As above, with visible buckets: unused ones have a special key.
    Dense {
        empty_key: Key,
        deleted_key: Option<Key>,
        initial_buckets: usize,
        /// The load at which the number of buckets is doubled.
        max_load_factor: MaxLoadFactor,
    },
}

/// A fraction between 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MaxLoadFactor(pub f32);

/// The types and shapes of a table's keys and values.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TableSpec {
    pub kind: TableKind,
    pub key_dtype: DType,
    pub value_dtype: DType,
    /// The shape of a key; scalar unless the table is dense.
    pub key_shape: Shape,
    pub value_shape: Shape,
}
