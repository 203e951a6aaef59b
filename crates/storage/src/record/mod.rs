//! TFRecord files: a sequence of byte strings, each with its length and two checksums, compressed or not.
//!
//! A record is the length (8 bytes, little endian), the masked CRC32C of those 8 bytes, the data, and the masked CRC32C
//! of the data. Compression is over the whole file, not over each record.

mod reader;
mod writer;

pub use reader::{RecordReader, RecordReaderOptions};
pub use writer::RecordWriter;

pub use crate::stream::CompressionType;

/// The length and its checksum.
const HEADER_BYTES: usize = 12;
/// The checksum of the data.
const FOOTER_BYTES: usize = 4;

#[cfg(test)]
mod tests;
