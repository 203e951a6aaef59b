//! [`TableSpec`]: the kind of a table, and the types and shapes of what it holds.

use super::column::Key;
use tensor::{DType, Shape};

/// What may be done with a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TableKind {
    /// It is filled once.
    Initializable,
    /// It takes and gives keys at any time.
    Mutable,
    /// As above, and shows its buckets: those that nobody has used carry a key that stands for that.
    Dense {
        empty_key: Key,
        deleted_key: Option<Key>,
        initial_buckets: usize,
        /// How full it may be before the buckets are doubled.
        max_load_factor: MaxLoadFactor,
    },
}

/// A part of the whole, between 0 and 1.
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
