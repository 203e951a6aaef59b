//! TFRecord files: a sequence of byte strings, each with its length and two checksums, compressed or not.
//!
//! A record is the length (8 bytes, little endian), the masked CRC32C of those 8 bytes, the data, and the masked CRC32C
//! of the data. Compression is over the whole file, not over each record.

mod reader;
mod writer;

pub use reader::{RecordReader, RecordReaderOptions};
pub use writer::RecordWriter;

use tensor::{Result, Status};

/// The length and its checksum.
const HEADER_BYTES: usize = 12;
/// The checksum of the data.
const FOOTER_BYTES: usize = 4;

/// How the whole file is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompressionType {
    /// Not at all.
    #[default]
    None,
    /// As a zlib stream.
    Zlib,
    /// As a gzip file.
    Gzip,
}

impl CompressionType {
    /// Returns the type that TensorFlow calls `""`, `"NONE"`, `"ZLIB"` or `"GZIP"`.
    pub fn from_name(name: &str) -> Result<CompressionType> {
        match name {
            "" | "NONE" => Ok(CompressionType::None),
            "ZLIB" => Ok(CompressionType::Zlib),
            "GZIP" => Ok(CompressionType::Gzip),
            _ => Err(Status::invalid_argument(format!("Unsupported compression_type: {name}"))),
        }
    }
}

#[cfg(test)]
mod tests;
