//! Checkpoints in TensorFlow's first format, V1: one [table](crate::table) with the values in it.
//!
//! The entry under the empty key lists the tensors of the file and which slices of them it holds; every other entry is
//! one slice, under the key that the tensor bundle has for it, with its values in the typed fields of a `TensorProto`.
//! A sharded checkpoint is several such files, which a pattern names.

mod reader;
mod values;
mod writer;

pub use reader::SliceReader;
pub use writer::SliceWriter;

/// The key of the list of contents.
const CONTENTS_KEY: &[u8] = b"";

/// The version of the format that we write.
const FORMAT_VERSION: i32 = 1;

#[cfg(test)]
mod tests;
