//! Reading TFRecords, from the start or from the offset where an earlier reader stopped.

use super::{CompressionType, FOOTER_BYTES, HEADER_BYTES};
use crate::coding::{masked_crc32c, u32_at, u64_at};
use crate::file_system::{RandomAccessFile, status_from_io};
use crate::stream::FileRead;
use crate::stream::read_bounded;
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::sync::Arc;
use tensor::{Result, Status};

/// Options for reading a record file.
#[derive(Clone, Copy, Debug)]
pub struct RecordReaderOptions {
    /// How the file is compressed.
    pub compression: CompressionType,
    /// The bytes that are read from the file system at once.
    pub buffer_bytes: usize,
}

impl Default for RecordReaderOptions {
    fn default() -> Self {
        RecordReaderOptions { compression: CompressionType::None, buffer_bytes: 256 << 10 }
    }
}

impl RecordReaderOptions {
    /// Returns the default options for a compression.
    pub fn compressed(compression: CompressionType) -> RecordReaderOptions {
        RecordReaderOptions { compression, ..Default::default() }
    }
}

/// Reads records one after the other.
///
/// After an error or at the end, the reader stays before the record that it couldn't read: reading again succeeds if the writer has
/// completed the record in the meantime.
pub struct RecordReader {
    file: Arc<dyn RandomAccessFile>,
    options: RecordReaderOptions,
    input: Input,
    /// Where the next record starts, in bytes before compression.
    offset: u64,
}

enum Input {
    Plain(PlainInput),
    Compressed(CompressedInput),
}

impl RecordReader {
    /// Reads a file from its start.
    pub fn new(file: Box<dyn RandomAccessFile>, options: RecordReaderOptions) -> RecordReader {
        let file: Arc<dyn RandomAccessFile> = file.into();
        let input = Input::new(&file, &options);
        RecordReader { file, options, input, offset: 0 }
    }

    /// Returns where the next record starts, which [`seek`](RecordReader::seek) takes; before compression.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Goes to an offset that [`offset`](RecordReader::offset) returned.
    pub fn seek(&mut self, offset: u64) {
        self.offset = offset;
    }

    /// Reads the next record into `record`, whose memory is reused, and returns false at the end of the file.
    pub fn read_record(&mut self, record: &mut Vec<u8>) -> Result<bool> {
        record.clear();
        let found = self.read_at_offset(record);
        if !matches!(found, Ok(true)) {
            record.clear();
            // The stream stopped somewhere inside a record, and what it has decoded can't be taken back.
            self.input = Input::new(&self.file, &self.options);
        }
        found
    }

    /// Returns the next record, or `None` at the end of the file.
    pub fn next_record(&mut self) -> Result<Option<Vec<u8>>> {
        let mut record = Vec::new();
        Ok(self.read_record(&mut record)?.then_some(record))
    }

    fn read_at_offset(&mut self, record: &mut Vec<u8>) -> Result<bool> {
        let offset = self.offset;
        if !self.input.seek(&self.file, &self.options, offset)? {
            return Ok(false);
        }
        let mut header = [0; HEADER_BYTES];
        match self.input.read(&mut header, offset)? {
            0 => return Ok(false),
            HEADER_BYTES => {}
            _ => return Err(truncated(offset)),
        }
        let length = u64_at(&header, 0).unwrap_or(u64::MAX);
        if u32_at(&header, 8) != Some(masked_crc32c(&header[..8])) {
            return Err(corrupted(offset));
        }
        let total = usize::try_from(length)
            .ok()
            .and_then(|length| length.checked_add(FOOTER_BYTES))
            .ok_or_else(|| Status::data_loss("record size too large"))?;
        self.input.read_to_vec(record, total, offset)?;
        let length = total - FOOTER_BYTES;
        if u32_at(record, length) != Some(masked_crc32c(&record[..length])) {
            // TensorFlow names the offset of the data here, and that of the record above.
            return Err(corrupted(offset + HEADER_BYTES as u64));
        }
        record.truncate(length);
        self.offset = offset + (HEADER_BYTES + total) as u64;
        Ok(true)
    }
}

fn truncated(offset: u64) -> Status {
    Status::data_loss(format!("truncated record at {offset}"))
}

fn corrupted(offset: u64) -> Status {
    Status::data_loss(format!("corrupted record at {offset}"))
}

impl Input {
    fn new(file: &Arc<dyn RandomAccessFile>, options: &RecordReaderOptions) -> Input {
        match options.compression {
            CompressionType::None => Input::Plain(PlainInput::new(file.clone(), options.buffer_bytes)),
            _ => Input::Compressed(CompressedInput::new(file, options)),
        }
    }

    /// Goes to `offset` and returns false when the file ends before it.
    fn seek(&mut self, file: &Arc<dyn RandomAccessFile>, options: &RecordReaderOptions, offset: u64) -> Result<bool> {
        match self {
            Input::Plain(input) => {
                input.seek(offset);
                Ok(true)
            }
            Input::Compressed(input) => {
                if input.position > offset {
                    *input = CompressedInput::new(file, options);
                }
                input.skip(offset - input.position)
            }
        }
    }

    /// Fills `buffer` as far as the file goes; `record_offset` is for the error.
    fn read(&mut self, buffer: &mut [u8], record_offset: u64) -> Result<usize> {
        match self {
            Input::Plain(input) => input.read(buffer),
            Input::Compressed(input) => input.read(buffer, record_offset),
        }
    }

    /// Reads exactly `total` bytes, and never allocates for more than the file turns out to hold.
    fn read_to_vec(&mut self, output: &mut Vec<u8>, total: usize, record_offset: u64) -> Result<()> {
        match self {
            Input::Plain(input) => {
                if !input.holds(total)? {
                    return Err(truncated(record_offset));
                }
                tensor::check_elements_fit(total, 1)?;
                // What is in the buffer is copied once; only the rest needs memory that is written twice.
                let buffered = input.buffered();
                let count = buffered.len().min(total);
                output.extend_from_slice(&buffered[..count]);
                input.position += count as u64;
                output.resize(total, 0);
                if count + input.read(&mut output[count..])? < total {
                    return Err(truncated(record_offset));
                }
                Ok(())
            }
            Input::Compressed(input) => {
                let count = read_bounded(&mut input.decoder, output, total);
                let count = count.map_err(|error| decoding_status(&error, record_offset))?;
                input.position += count as u64;
                if count < total { Err(truncated(record_offset)) } else { Ok(()) }
            }
        }
    }
}

/// An uncompressed file behind a buffer.
struct PlainInput {
    file: Arc<dyn RandomAccessFile>,
    buffer: Vec<u8>,
    /// Where the buffer's content starts in the file.
    buffer_start: u64,
    position: u64,
    capacity: usize,
    /// The length of the file when it was last asked for; the file may have grown since.
    known_length: u64,
}

impl PlainInput {
    fn new(file: Arc<dyn RandomAccessFile>, capacity: usize) -> PlainInput {
        PlainInput {
            file,
            buffer: Vec::new(),
            buffer_start: 0,
            position: 0,
            capacity: capacity.max(1),
            known_length: 0,
        }
    }

    fn seek(&mut self, position: u64) {
        self.position = position;
    }

    /// Returns whether the file has `count` more bytes.
    fn holds(&mut self, count: usize) -> Result<bool> {
        let Some(end) = self.position.checked_add(count as u64) else {
            return Ok(false);
        };
        if end > self.known_length {
            self.known_length = self.file.length()?;
        }
        Ok(end <= self.known_length)
    }

    fn buffered(&self) -> &[u8] {
        let start = self.position.checked_sub(self.buffer_start).and_then(|start| usize::try_from(start).ok());
        start.and_then(|start| self.buffer.get(start..)).unwrap_or(&[])
    }

    fn read(&mut self, output: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < output.len() {
            let rest = &mut output[filled..];
            let buffered = self.buffered();
            let count = if !buffered.is_empty() {
                let count = buffered.len().min(rest.len());
                rest[..count].copy_from_slice(&buffered[..count]);
                count
            } else if rest.len() >= self.capacity {
                self.file.read_at(self.position, rest)?
            } else {
                self.buffer.resize(self.capacity, 0);
                let count = self.file.read_at(self.position, &mut self.buffer)?;
                self.buffer.truncate(count);
                self.buffer_start = self.position;
                if count == 0 {
                    break;
                }
                continue;
            };
            if count == 0 {
                break;
            }
            filled += count;
            self.position = self.position.saturating_add(count as u64);
        }
        Ok(filled)
    }
}

/// A compressed file, which can only be read forwards.
struct CompressedInput {
    decoder: Decoder,
    /// How far the decoded stream has been read.
    position: u64,
}

enum Decoder {
    Zlib(ZlibDecoder<BufReader<FileRead>>),
    Gzip(MultiGzDecoder<BufReader<FileRead>>),
    /// Nothing has been written yet, not even the compressor's header.
    Empty,
}

impl CompressedInput {
    fn new(file: &Arc<dyn RandomAccessFile>, options: &RecordReaderOptions) -> CompressedInput {
        let read = FileRead::new(file.clone());
        let mut source = BufReader::with_capacity(options.buffer_bytes.max(1), read);
        // An error here comes back when the decoder reads.
        let empty = source.fill_buf().is_ok_and(<[u8]>::is_empty);
        let decoder = match options.compression {
            _ if empty => Decoder::Empty,
            CompressionType::Zlib => Decoder::Zlib(ZlibDecoder::new(source)),
            _ => Decoder::Gzip(MultiGzDecoder::new(source)),
        };
        CompressedInput { decoder, position: 0 }
    }

    fn read(&mut self, output: &mut [u8], record_offset: u64) -> Result<usize> {
        let mut filled = 0;
        while filled < output.len() {
            match self.decoder.read(&mut output[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(decoding_status(&error, record_offset)),
            }
        }
        self.position += filled as u64;
        Ok(filled)
    }

    fn skip(&mut self, count: u64) -> Result<bool> {
        let target = self.position + count;
        let skipped = io::copy(&mut (&mut self.decoder).take(count), &mut io::sink());
        self.position += skipped.map_err(|error| decoding_status(&error, target))?;
        Ok(self.position == target)
    }
}

impl Read for Decoder {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Decoder::Zlib(decoder) => decoder.read(buffer),
            Decoder::Gzip(decoder) => decoder.read(buffer),
            Decoder::Empty => Ok(0),
        }
    }
}

/// What the decompressor complains about is damage, unless the file itself couldn't be read.
fn decoding_status(error: &io::Error, record_offset: u64) -> Status {
    let from_file = error.get_ref().is_some_and(|inner| inner.is::<Status>());
    if from_file {
        status_from_io("", error)
    } else if error.kind() == ErrorKind::UnexpectedEof {
        truncated(record_offset)
    } else {
        corrupted(record_offset).append(format!(": {error}"))
    }
}
