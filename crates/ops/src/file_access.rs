//! The file systems that ops of this process may use, and the lines and records of a file.

use bytes::Bytes;
use std::sync::{Arc, OnceLock};
use storage::file_system::{FileSystem, FileSystems};
use storage::record::CompressionType;
use storage::stream::{ByteStream, open_stream, read_bounded, read_until_bounded, skip_bytes, stream_status};
use tensor::{Result, Status};

/// One for the whole process: access rights don't depend on the op, and nobody can forget to pass them on.
static FILE_SYSTEMS: OnceLock<Arc<dyn FileSystem>> = OnceLock::new();

/// Sets the file systems for ops of this process, permanently. Call it before the first op that accesses a file, since files that
/// an op has opened stay open.
pub fn set_file_system(files: impl FileSystem + 'static) -> Result<()> {
    let set = FILE_SYSTEMS.set(Arc::new(files));
    set.map_err(|_| {
        Status::failed_precondition("ops of this process have used files already; which ones they may is set before")
    })
}

/// Returns the file systems for ops.
pub(crate) fn file_system() -> Arc<dyn FileSystem> {
    FILE_SYSTEMS.get_or_init(|| Arc::new(FileSystems::all())).clone()
}

/// The lines of a file.
pub(crate) struct Lines {
    path: String,
    stream: ByteStream,
    /// The number of bytes read, including line ends.
    position: u64,
}

impl Lines {
    /// Opens a file.
    pub(crate) fn open(path: &str, compression: CompressionType, buffer_bytes: usize) -> Result<Lines> {
        let stream = open_stream(file_system().open(path)?, compression, buffer_bytes);
        Ok(Lines { path: path.to_owned(), stream, position: 0 })
    }

    /// Returns the position in the file after the lines read so far.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Returns the next line without its line end, or `None` at the end of the file.
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

/// The layout of a file of fixed-length records, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FixedLayout {
    /// The header before the first record.
    pub header: usize,
    /// The size of a record.
    pub record: usize,
    /// The footer after the last record.
    pub footer: usize,
    /// The distance between the starts of two records.
    pub hop: usize,
}

/// The records of a file of fixed-length records.
pub(crate) struct FixedRecords {
    path: String,
    stream: ByteStream,
    layout: FixedLayout,
    /// The bytes read from the current position on: they are a record only if the footer follows.
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

    /// Returns the next record, or `None` if less than a record is left.
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
    /// Returns a layout for a program's arguments.
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
