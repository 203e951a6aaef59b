//! Records of files: TFRecordDataset, TextLineDataset, FixedLengthRecordDataset.

use super::base::{
    Dataset, DatasetIterator, Element, METADATA, Nesting, Next, argument, dataset_kernel, dataset_op, ready,
};
use super::position::{Position, Restoring, Saving};
use super::task::with_files;
use crate::file_access::{FixedLayout, FixedRecords, Lines, file_system};
use bytes::Bytes;
use kernel::{KernelBuilder, KernelDef, Op, OpContext, OpFlags, Step};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use storage::record::{CompressionType, RecordReader, RecordReaderOptions};
use tensor::{Result, Status, Tensor, check_interrupt};

/// The default read size.
const DEFAULT_BUFFER_BYTES: usize = 256 << 10;

/// Reading ahead stops after this many bytes or records.
const AHEAD_BYTES: usize = 256 << 10;
const AHEAD_RECORDS: usize = 1024;

/// The most bytes of a file that are read at once.
const MAX_BUFFER_BYTES: i64 = 64 << 20;

const FILES: &str = "filenames: string";
const COMPRESSION: &str = "compression_type: string";
const BUFFER: &str = "buffer_size: int64";
const OFFSETS: &str = "byte_offsets: int64";
const LAYOUT: [&str; 3] = ["header_bytes: int64", "record_bytes: int64", "footer_bytes: int64"];

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    dataset_op("TFRecordDataset", &[FILES, COMPRESSION, BUFFER], &[METADATA], OpFlags::STATEFUL, RECORDS),
    dataset_op("TFRecordDatasetV2", &[FILES, COMPRESSION, BUFFER, OFFSETS], &[METADATA], OpFlags::STATEFUL, RECORDS),
    dataset_op("TextLineDataset", &[FILES, COMPRESSION, BUFFER], &[METADATA], OpFlags::STATEFUL, LINES),
    dataset_op(
        "FixedLengthRecordDataset",
        &[FILES, LAYOUT[0], LAYOUT[1], LAYOUT[2], BUFFER],
        &[METADATA],
        OpFlags::STATEFUL,
        FIXED,
    ),
    dataset_op(
        "FixedLengthRecordDatasetV2",
        &[FILES, LAYOUT[0], LAYOUT[1], LAYOUT[2], BUFFER, COMPRESSION],
        &[METADATA],
        OpFlags::STATEFUL,
        FIXED,
    ),
];

const RECORDS: &[KernelDef] = &[KernelDef::any(|_| {
    dataset_kernel(|context| {
        let compression = compression(context, 1)?;
        let offsets = match context.num_inputs() {
            4 => context.slice::<i64>(3)?.iter().map(|&offset| offset.max(0) as u64).collect(),
            _ => Vec::new(),
        };
        let files = file_names(context)?;
        if !offsets.is_empty() && offsets.len() != files.len() {
            return Err(Status::invalid_argument("`byte_offsets` must have a size equal to the number of files"));
        }
        Ok(Files { files, kind: Kind::Records { compression, offsets }, buffer_bytes: buffer_bytes(context, 2)? })
    })
})];
const LINES: &[KernelDef] = &[KernelDef::any(|_| {
    dataset_kernel(|context| {
        let kind = Kind::Lines(compression(context, 1)?);
        Ok(Files { files: file_names(context)?, kind, buffer_bytes: buffer_bytes(context, 2)? })
    })
})];
const FIXED: &[KernelDef] = &[KernelDef::any(|_: &KernelBuilder<'_>| {
    dataset_kernel(|context| {
        let layout = FixedLayout::new(
            argument(context, 1, "header_bytes")?,
            argument(context, 2, "record_bytes")?,
            argument(context, 3, "footer_bytes")?,
            0,
        )?;
        let compression = if context.num_inputs() > 5 { compression(context, 5)? } else { CompressionType::None };
        let kind = Kind::Fixed { layout, compression };
        Ok(Files { files: file_names(context)?, kind, buffer_bytes: buffer_bytes(context, 4)? })
    })
})];

fn file_names(context: &OpContext<'_>) -> Result<Arc<[String]>> {
    let names = context.input(0)?;
    if names.shape().rank() > 1 {
        return Err(Status::invalid_argument("`filenames` must be a scalar or a vector."));
    }
    Ok(names.strings()?.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

fn compression(context: &OpContext<'_>, index: usize) -> Result<CompressionType> {
    match context.input(index)?.strings()? {
        [name] => CompressionType::from_name(&String::from_utf8_lossy(name)),
        _ => Err(Status::invalid_argument("`compression_type` must be a scalar")),
    }
}

fn buffer_bytes(context: &OpContext<'_>, index: usize) -> Result<usize> {
    match argument::<i64>(context, index, "buffer_size")? {
        0 => Ok(DEFAULT_BUFFER_BYTES),
        bytes if bytes > 0 => Ok(bytes.min(MAX_BUFFER_BYTES) as usize),
        _ => Err(Status::invalid_argument("`buffer_size` must be >= 0 (0 == default)")),
    }
}

#[derive(Clone)]
enum Kind {
    Records { compression: CompressionType, offsets: Vec<u64> },
    Lines(CompressionType),
    Fixed { layout: FixedLayout, compression: CompressionType },
}

struct Files {
    files: Arc<[String]>,
    kind: Kind,
    buffer_bytes: usize,
}

impl Dataset for Files {
    fn iterator(&self, _: Nesting) -> Result<Box<dyn DatasetIterator>> {
        let source = Source {
            files: self.files.clone(),
            kind: self.kind.clone(),
            buffer_bytes: self.buffer_bytes,
            next_file: 0,
            open: None,
            num_read: 0,
            num_skipped: 0,
            ahead: VecDeque::new(),
        };
        Ok(Box::new(FileIterator { source: Arc::new(Mutex::new(source)) }))
    }
}

/// Reads ahead on a file thread, and returns records on request.
struct FileIterator {
    source: Arc<Mutex<Source>>,
}

struct Source {
    files: Arc<[String]>,
    kind: Kind,
    buffer_bytes: usize,
    next_file: usize,
    open: Option<OpenFile>,
    /// The number of records read from the open file.
    num_read: u64,
    /// The number of records of the next file that were read before a cancelled request had to close it.
    num_skipped: u64,
    /// Records that were read but not returned; nothing follows a `None`.
    ahead: VecDeque<Result<Option<Bytes>>>,
}

/// The saved state of a [`Source`].
struct SavedSource {
    next_file: usize,
    num_skipped: u64,
    ahead: VecDeque<Result<Option<Bytes>>>,
}

impl SavedSource {
    fn read(position: &Position) -> Result<SavedSource> {
        let mut reader = position.read::<Files>()?;
        let (next_file, num_skipped) = (reader.size()?, reader.number()? as u64);
        let mut ahead = VecDeque::new();
        for _ in 0..reader.size()? {
            let record = reader.result()?;
            let bytes = |element: Element| element.first()?.strings().ok()?.first().cloned();
            ahead.push_back(record.map(|element| element.and_then(bytes)));
        }
        Ok(SavedSource { next_file, num_skipped, ahead })
    }
}

enum OpenFile {
    Records(RecordReader),
    Lines(Lines),
    Fixed(FixedRecords),
}

impl Source {
    /// Reads some records, unless there are any.
    fn read_ahead(&mut self) -> Result<()> {
        let mut bytes = 0;
        while self.ahead.is_empty() || (bytes < AHEAD_BYTES && self.ahead.len() < AHEAD_RECORDS) {
            let record = self.next_record();
            // This ends the work for a cancelled request; for others it continues.
            if let Err(status) = check_interrupt() {
                if let Ok(Some(record)) = record {
                    self.ahead.push_back(Ok(Some(record)));
                } else if self.open.take().is_some() {
                    self.next_file -= 1;
                    self.num_skipped = self.num_skipped.max(self.num_read);
                }
                return Err(status);
            }
            bytes += record.as_ref().map_or(0, |record| record.as_ref().map_or(0, Bytes::len));
            let is_last = !matches!(record, Ok(Some(_)));
            self.ahead.push_back(record);
            if is_last {
                break;
            }
        }
        Ok(())
    }

    fn next_record(&mut self) -> Result<Option<Bytes>> {
        loop {
            check_interrupt()?;
            if let Some(open) = &mut self.open {
                let record = match open {
                    OpenFile::Records(reader) => reader.next_record().map(|record| record.map(Bytes::from)),
                    OpenFile::Lines(lines) => lines.next_line().map(|line| line.map(without_returns)),
                    OpenFile::Fixed(records) => records.next_record(),
                };
                match record {
                    Ok(Some(record)) => {
                        self.num_read += 1;
                        if self.num_read > self.num_skipped {
                            self.num_skipped = 0;
                            return Ok(Some(record));
                        }
                        continue;
                    }
                    Ok(None) => self.open = None,
                    // The file's position is unchanged.
                    Err(status) if check_interrupt().is_err() => return Err(status),
                    Err(status) => {
                        // The rest of a damaged file is skipped.
                        self.open = None;
                        return Err(status);
                    }
                }
            }
            let Some(path) = self.files.get(self.next_file) else { return Ok(None) };
            let opened = self.open_file(path);
            if opened.is_err() {
                // A cancelled request leaves the file to the next one.
                check_interrupt()?;
            }
            self.next_file += 1;
            self.num_read = 0;
            self.open = Some(opened?);
        }
    }

    /// Returns the position: the records read ahead, and the position in the current file.
    fn save(&self) -> Position {
        let is_open = self.open.is_some();
        let num_skipped = if is_open { self.num_read.max(self.num_skipped) } else { self.num_skipped };
        let position = Position::of::<Files>().size(self.next_file - usize::from(is_open)).number(num_skipped as i64);
        let position = position.size(self.ahead.len());
        self.ahead.iter().fold(position, |position, record| position.result(&record.clone().map(element)))
    }

    /// Moves to the position of an equivalent source; the records of the open file are read again when they are needed.
    fn restore(&mut self, state: SavedSource) {
        (self.next_file, self.num_skipped, self.ahead) = (state.next_file, state.num_skipped, state.ahead);
        self.open = None;
    }

    /// Opens the next file.
    fn open_file(&self, path: &str) -> Result<OpenFile> {
        Ok(match &self.kind {
            Kind::Records { compression, offsets } => {
                let options = RecordReaderOptions { compression: *compression, buffer_bytes: self.buffer_bytes };
                let mut reader = RecordReader::new(file_system().open(path)?, options);
                if let Some(&offset) = offsets.get(self.next_file) {
                    reader.seek(offset);
                }
                OpenFile::Records(reader)
            }
            Kind::Lines(compression) => OpenFile::Lines(Lines::open(path, *compression, self.buffer_bytes)?),
            Kind::Fixed { layout, compression } => {
                if *compression == CompressionType::None {
                    check_length(path, layout)?;
                }
                OpenFile::Fixed(FixedRecords::open(path, *layout, *compression, self.buffer_bytes)?)
            }
        })
    }
}

/// Returns a line without any carriage returns, as TensorFlow's datasets read lines.
fn without_returns(line: Bytes) -> Bytes {
    if !line.contains(&b'\r') {
        return line;
    }
    line.iter().copied().filter(|&byte| byte != b'\r').collect()
}

/// Fails if a file doesn't hold a whole number of records.
fn check_length(path: &str, layout: &FixedLayout) -> Result<()> {
    let length = file_system().open(path)?.length()?;
    let (header, footer, record) = (layout.header as u64, layout.footer as u64, layout.record as u64);
    let body = length.saturating_sub(header.saturating_add(footer));
    if body % record != 0 {
        return Err(Status::invalid_argument(format!(
            "Excluding the header ({header} bytes) and footer ({footer} bytes), input file \"{path}\" has body length {body} \
             bytes, which is not an exact multiple of the record length ({record} bytes)."
        )));
    }
    Ok(())
}

impl DatasetIterator for FileIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        // A cancelled request may still be reading; then nothing is read ahead yet.
        let ahead = self.source.try_lock().and_then(|mut source| source.ahead.pop_front());
        if let Some(record) = ahead {
            return ready(record.map(element));
        }
        Box::pin(async move {
            let read = |source: &mut Source| {
                source.read_ahead()?;
                Ok(source.ahead.pop_front())
            };
            let record = with_files(step, "records of files", &self.source, read).await?;
            record.unwrap_or(Ok(None)).map(element)
        })
    }

    fn save<'a>(&'a mut self, step: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(with_files(step, "records of files", &self.source, |source| Ok(source.save())))
    }

    fn restore<'a>(&'a mut self, position: &'a Position, step: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            let state = SavedSource::read(position)?;
            let restore = |source: &mut Source| {
                source.restore(state);
                Ok(())
            };
            with_files(step, "records of files", &self.source, restore).await
        })
    }
}

fn element(record: Option<Bytes>) -> Option<Element> {
    record.map(|record| vec![Tensor::string(record)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensor::Interrupt;

    /// A request that is cancelled in the middle of a file makes the next one skip nothing.
    #[test]
    fn what_was_interrupted_goes_on_where_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| directory.path().join(name).to_str().unwrap().to_owned());
        let mut expected = Vec::new();
        for path in &paths {
            let lines: Vec<String> = (0..1500).map(|number| format!("{path} {number}")).collect();
            std::fs::write(path, lines.join("\n")).unwrap();
            expected.extend(lines);
        }
        let mut source = Source {
            files: paths.into(),
            kind: Kind::Lines(CompressionType::None),
            buffer_bytes: 100,
            next_file: 0,
            open: None,
            num_read: 0,
            num_skipped: 0,
            ahead: VecDeque::new(),
        };
        let interrupt = Interrupt::new();
        interrupt.raise();
        let mut found = Vec::new();
        loop {
            for _ in 0..2 {
                // With enough records read ahead it doesn't read, and so doesn't notice the cancellation.
                let _ = interrupt.within(|| source.read_ahead());
            }
            source.read_ahead().unwrap();
            match source.ahead.pop_front().unwrap().unwrap() {
                Some(line) => found.push(String::from_utf8(line.to_vec()).unwrap()),
                None => break,
            }
            // From time to time all records read ahead are taken, so that more must be read.
            if found.len() % 7 == 0 {
                let rest = std::mem::take(&mut source.ahead);
                let lines = rest.into_iter().filter_map(|line| line.unwrap());
                found.extend(lines.map(|line| String::from_utf8(line.to_vec()).unwrap()));
            }
        }
        assert_eq!(found, expected);
    }
}
