//! What the ops of this process may read and write, and the lines and records of a file.

use bytes::Bytes;
use std::sync::{Arc, OnceLock};
use storage::file_system::{FileSystem, FileSystems};
use storage::record::CompressionType;
use storage::stream::{ByteStream, open_stream, read_bounded, read_until_bounded, skip_bytes, stream_status};
use tensor::{Result, Status};

/// One for the whole process: what a process may touch doesn't depend on which of its ops asks, and nobody can forget to pass
/// it on.
static FILE_SYSTEMS: OnceLock<Arc<dyn FileSystem>> = OnceLock::new();

/// Sets what the ops of this process read and write, for good. It has to come before the first op that touches a file, since
/// what an op has opened stays open.
pub fn set_file_system(files: impl FileSystem + 'static) -> Result<()> {
    let set = FILE_SYSTEMS.set(Arc::new(files));
    set.map_err(|_| {
        Status::failed_precondition("ops of this process have used files already; which ones they may is set before")
    })
}

/// Returns the file systems that ops read and write.
pub(crate) fn file_system() -> Arc<dyn FileSystem> {
    FILE_SYSTEMS.get_or_init(|| Arc::new(FileSystems::all())).clone()
}

/// The lines of a file.
pub(crate) struct Lines {
    path: String,
    stream: ByteStream,
    /// How many bytes were read, those that end lines included.
    position: u64,
}

impl Lines {
    /// Opens a file.
    pub(crate) fn open(path: &str, compression: CompressionType, buffer_bytes: usize) -> Result<Lines> {
        let stream = open_stream(file_system().open(path)?, compression, buffer_bytes);
        Ok(Lines { path: path.to_owned(), stream, position: 0 })
    }

    /// Returns how far into the file the lines reach that were read.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Returns the next line without what ends it, or `None` at the end of the file.
    pub(crate) fn next_line(&mut self) -> Result<Option<Bytes>> {
        let mut line = Vec::new();
        let count = read_until_bounded(&mut self.stream, b'\n', &mut line);
        let count = count.map_err(|error| stream_status(&self.path, &error))?;
        if count == 0 {
            return Ok(None);
        }
        self.position += count as u64;
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(Some(line.into()))
    }
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
