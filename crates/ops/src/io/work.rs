//! The kinds of record that readers know, and how a file of each kind is read.

use super::file_system;
use bytes::Bytes;
use storage::record::{CompressionType, RecordReader, RecordReaderOptions};
use storage::stream::{ByteStream, open_stream, read_bounded, read_until_bounded, skip_bytes, stream_status};
use tensor::{Result, Status};

/// How much of a file is read at once.
const BUFFER_BYTES: usize = 256 << 10;

/// What a reader's files hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReaderKind {
    /// The work itself is the record.
    Identity,
    /// Each file is one record.
    WholeFile,
    /// Each line is a record.
    TextLine { skip_header_lines: usize },
    /// Records all have the same size.
    FixedLength { layout: FixedLayout, compression: CompressionType },
    /// TFRecords.
    TfRecord(CompressionType),
}

/// Where the records of a file of records of the same size are, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FixedLayout {
    /// What comes before the first record.
    pub header: usize,
    /// The size of a record.
    pub record: usize,
    /// What comes after the last record.
    pub footer: usize,
    /// From the start of a record to that of the next.
    pub hop: usize,
}

/// A file that is being read.
pub(super) trait Work: Send {
    /// Returns the next record, if there is one, with its key; and whether that was the last.
    fn next(&mut self) -> Result<(Option<(Bytes, Bytes)>, bool)>;
}

impl ReaderKind {
    /// Returns the name in messages.
    pub(super) fn name(&self) -> &'static str {
        match self {
            ReaderKind::Identity => "IdentityReader",
            ReaderKind::WholeFile => "WholeFileReader",
            ReaderKind::TextLine { .. } => "TextLineReader",
            ReaderKind::FixedLength { .. } => "FixedLengthRecordReader",
            ReaderKind::TfRecord(_) => "TFRecordReader",
        }
    }

    /// Returns whether the state between two reads can be saved.
    pub(super) fn can_save(&self) -> bool {
        matches!(self, ReaderKind::Identity | ReaderKind::WholeFile)
    }

    /// Starts to read a file.
    pub(super) fn open(&self, name: &Bytes) -> Result<Box<dyn Work>> {
        let path = String::from_utf8_lossy(name).into_owned();
        Ok(match self {
            ReaderKind::Identity => Box::new(IdentityWork(name.clone())),
            ReaderKind::WholeFile => Box::new(WholeFileWork(name.clone())),
            ReaderKind::TextLine { skip_header_lines } => {
                let mut lines = Lines::open(&path, CompressionType::None, BUFFER_BYTES)?;
                for _ in 0..*skip_header_lines {
                    if lines.next_line()?.is_none() {
                        break;
                    }
                }
                Box::new(TextLineWork { path, lines, line_number: *skip_header_lines })
            }
            ReaderKind::FixedLength { layout, compression } => {
                let records = FixedRecords::open(&path, *layout, *compression, BUFFER_BYTES)?;
                Box::new(FixedLengthWork { path, records, record_number: 0 })
            }
            ReaderKind::TfRecord(compression) => {
                let file = file_system().open(&path)?;
                let reader = RecordReader::new(file, RecordReaderOptions::compressed(*compression));
                Box::new(TfRecordWork { path, reader })
            }
        })
    }
}

struct IdentityWork(Bytes);

impl Work for IdentityWork {
    fn next(&mut self) -> Result<(Option<(Bytes, Bytes)>, bool)> {
        Ok((Some((self.0.clone(), self.0.clone())), true))
    }
}

struct WholeFileWork(Bytes);

impl Work for WholeFileWork {
    fn next(&mut self) -> Result<(Option<(Bytes, Bytes)>, bool)> {
        let content = file_system().read(&String::from_utf8_lossy(&self.0))?;
        Ok((Some((self.0.clone(), content.into())), true))
    }
}

struct TextLineWork {
    path: String,
    lines: Lines,
    line_number: usize,
}

impl Work for TextLineWork {
    fn next(&mut self) -> Result<(Option<(Bytes, Bytes)>, bool)> {
        Ok(match self.lines.next_line()? {
            Some(line) => {
                self.line_number += 1;
                (Some((format!("{}:{}", self.path, self.line_number).into(), line)), false)
            }
            None => (None, true),
        })
    }
}

struct FixedLengthWork {
    path: String,
    records: FixedRecords,
    record_number: u64,
}

impl Work for FixedLengthWork {
    fn next(&mut self) -> Result<(Option<(Bytes, Bytes)>, bool)> {
        Ok(match self.records.next_record()? {
            Some(record) => {
                let key = format!("{}:{}", self.path, self.record_number);
                self.record_number += 1;
                (Some((key.into(), record)), false)
            }
            None => (None, true),
        })
    }
}

struct TfRecordWork {
    path: String,
    reader: RecordReader,
}

impl Work for TfRecordWork {
    fn next(&mut self) -> Result<(Option<(Bytes, Bytes)>, bool)> {
        let key = format!("{}:{}", self.path, self.reader.offset());
        Ok(match self.reader.next_record()? {
            Some(record) => (Some((key.into(), record.into())), false),
            None => (None, true),
        })
    }
}

/// The lines of a file.
pub(crate) struct Lines {
    path: String,
    stream: ByteStream,
}

impl Lines {
    /// Opens a file.
    pub(crate) fn open(path: &str, compression: CompressionType, buffer_bytes: usize) -> Result<Lines> {
        let stream = open_stream(file_system().open(path)?, compression, buffer_bytes);
        Ok(Lines { path: path.to_owned(), stream })
    }

    /// Returns the next line without what ends it, or `None` at the end of the file.
    pub(crate) fn next_line(&mut self) -> Result<Option<Bytes>> {
        let mut line = Vec::new();
        let count = read_until_bounded(&mut self.stream, b'\n', &mut line);
        let count = count.map_err(|error| stream_status(&self.path, &error))?;
        if count == 0 {
            return Ok(None);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(Some(line.into()))
    }
}

/// The records of a file in which all have the same size.
pub(crate) struct FixedRecords {
    path: String,
    stream: ByteStream,
    layout: FixedLayout,
    /// What was read from the current position on: a record is only one when the footer follows.
    ahead: Vec<u8>,
}

impl FixedRecords {
    /// Opens a file.
    pub(crate) fn open(
        path: &str,
        layout: FixedLayout,
        compression: CompressionType,
        buffer_bytes: usize,
    ) -> Result<FixedRecords> {
        let stream = open_stream(file_system().open(path)?, compression, buffer_bytes);
        let mut records = FixedRecords { path: path.to_owned(), stream, layout, ahead: Vec::new() };
        records.skip(layout.header)?;
        Ok(records)
    }

    /// Returns the next record, or `None` when what is left is less than one.
    pub(crate) fn next_record(&mut self) -> Result<Option<Bytes>> {
        let FixedLayout { record, footer, hop, .. } = self.layout;
        let wanted = record.saturating_add(footer);
        let missing = wanted.saturating_sub(self.ahead.len());
        let read = read_bounded(&mut self.stream, &mut self.ahead, missing);
        read.map_err(|error| stream_status(&self.path, &error))?;
        if self.ahead.len() < wanted {
            return Ok(None);
        }
        let found = Bytes::copy_from_slice(&self.ahead[..record]);
        self.skip(hop)?;
        Ok(Some(found))
    }

    fn skip(&mut self, count: usize) -> Result<()> {
        let here = count.min(self.ahead.len());
        self.ahead.drain(..here);
        let skipped = skip_bytes(&mut self.stream, (count - here) as u64);
        skipped.map(drop).map_err(|error| stream_status(&self.path, &error))
    }
}

impl FixedLayout {
    /// Makes a layout from what a program said.
    pub(crate) fn new(header: i64, record: i64, footer: i64, hop: i64) -> Result<FixedLayout> {
        let size = |value: i64, name: &str, least: i64| match usize::try_from(value) {
            Ok(size) if value >= least => Ok(size),
            _ => Err(Status::invalid_argument(format!("{name} must be >= {least} but got {value}"))),
        };
        let record = size(record, "record_bytes", 1)?;
        let hop = size(hop, "hop_bytes", 0)?;
        let hop = if hop == 0 { record } else { hop };
        Ok(FixedLayout {
            header: size(header, "header_bytes", 0)?,
            record,
            footer: size(footer, "footer_bytes", 0)?,
            hop,
        })
    }
}
