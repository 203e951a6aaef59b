//! The kinds of records, and how a file of each kind is read.

use crate::file_access::{FixedLayout, FixedRecords, Lines, file_system};
use bytes::Bytes;
use storage::record::{CompressionType, RecordReader, RecordReaderOptions};
use tensor::Result;

/// The read size.
const BUFFER_BYTES: usize = 256 << 10;

/// The kind of records in a reader's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReaderKind {
    /// The file name itself is the record.
    Identity,
    /// Each file is one record.
    WholeFile,
    /// Each line is a record.
    TextLine { skip_header_lines: usize },
    /// Fixed-length records.
    FixedLength { layout: FixedLayout, compression: CompressionType },
    /// TFRecords.
    TfRecord(CompressionType),
}

/// An open file.
pub(super) trait Work: Send {
    /// Returns the next record with its key, if there is one, and whether it was the last.
    fn next(&mut self) -> Result<(Option<(Bytes, Bytes)>, bool)>;
}

impl ReaderKind {
    /// Returns the name for messages.
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

    /// Opens a file.
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
