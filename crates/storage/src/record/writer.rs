//! Writing TFRecords.

use super::CompressionType;
use crate::coding::masked_crc32c;
use crate::file_system::{WritableFile, status_from_io};
use flate2::write::{GzEncoder, ZlibEncoder};
use std::io::{self, Write};
use tensor::Result;

/// Writes records to a file.
pub struct RecordWriter {
    output: Output,
    bytes_written: u64,
}

enum Output {
    Plain(Box<dyn WritableFile>),
    Zlib(ZlibEncoder<FileWrite>),
    Gzip(GzEncoder<FileWrite>),
}

impl RecordWriter {
    /// Writes to a file from its current end on, at the default compression level.
    pub fn new(file: Box<dyn WritableFile>, compression: CompressionType) -> RecordWriter {
        let level = flate2::Compression::default();
        let output = match compression {
            CompressionType::None => Output::Plain(file),
            CompressionType::Zlib => Output::Zlib(ZlibEncoder::new(FileWrite(file), level)),
            CompressionType::Gzip => Output::Gzip(GzEncoder::new(FileWrite(file), level)),
        };
        RecordWriter { output, bytes_written: 0 }
    }

    /// Appends one record.
    pub fn write_record(&mut self, data: &[u8]) -> Result<()> {
        let length = (data.len() as u64).to_le_bytes();
        let mut header = [0; super::HEADER_BYTES];
        header[..8].copy_from_slice(&length);
        header[8..].copy_from_slice(&masked_crc32c(&length).to_le_bytes());
        self.append(&header)?;
        self.append(data)?;
        self.append(&masked_crc32c(data).to_le_bytes())
    }

    /// Returns how many bytes the records take so far, before compression.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    /// Hands everything to the file system, so that a reader finds every record written so far.
    pub fn flush(&mut self) -> Result<()> {
        match &mut self.output {
            Output::Plain(file) => file.flush(),
            Output::Zlib(encoder) => encoder.flush().map_err(from_io),
            Output::Gzip(encoder) => encoder.flush().map_err(from_io),
        }
    }

    /// Flushes, and returns when everything is on stable storage.
    pub fn sync(&mut self) -> Result<()> {
        self.flush()?;
        match &mut self.output {
            Output::Plain(file) => file.sync(),
            Output::Zlib(encoder) => encoder.get_mut().0.sync(),
            Output::Gzip(encoder) => encoder.get_mut().0.sync(),
        }
    }

    /// Ends the file; a compressed file that isn't closed has no end and reads as truncated.
    pub fn close(self) -> Result<()> {
        match self.output {
            Output::Plain(file) => file.close(),
            Output::Zlib(encoder) => encoder.finish().map_err(from_io)?.0.close(),
            Output::Gzip(encoder) => encoder.finish().map_err(from_io)?.0.close(),
        }
    }

    fn append(&mut self, data: &[u8]) -> Result<()> {
        self.bytes_written += data.len() as u64;
        match &mut self.output {
            Output::Plain(file) => file.append(data),
            Output::Zlib(encoder) => encoder.write_all(data).map_err(from_io),
            Output::Gzip(encoder) => encoder.write_all(data).map_err(from_io),
        }
    }
}

fn from_io(error: io::Error) -> tensor::Status {
    status_from_io("compressed record file", &error)
}

/// Lets the compressors, which want `io::Write`, write to a file of ours.
struct FileWrite(Box<dyn WritableFile>);

impl Write for FileWrite {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0.append(data)?;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(self.0.flush()?)
    }
}
