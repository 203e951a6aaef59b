//! Files from outside: checkpoints in both formats, records and event files.

use super::{Outcome, Target, magnitude};
use prost::Message;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use storage::bundle::{BundleReader, BundleWriter, BundleWriterOptions, data_filename, meta_filename};
use storage::event::EventsReader;
use storage::file_system::{FileSystem, LocalFileSystem};
use storage::record::{RecordReader, RecordReaderOptions, RecordWriter};
use storage::slices::{SliceReader, SliceWriter};
use storage::stream::CompressionType;
use storage::table::{Table, TableOptions, TableWriter};
use tensor::{Result, Shape, Tensor};

/// A directory that is removed with its target.
pub(super) struct Directory(PathBuf);

impl Directory {
    pub(super) fn new() -> Directory {
        static NUM_MADE: AtomicU64 = AtomicU64::new(0);
        let number = NUM_MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ferroflow-outside-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory can be made");
        Directory(path)
    }

    pub(super) fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Writes a file, and returns its path.
    pub(super) fn with(&self, name: &str, content: &[u8]) -> String {
        let path = self.file(name);
        std::fs::write(&path, content).expect("a file can be written");
        path
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.file(name)).expect("the file was written")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn local() -> Arc<dyn FileSystem> {
    Arc::new(LocalFileSystem)
}

fn saved() -> Vec<(&'static str, Tensor)> {
    let strings = Tensor::from_strings(Shape::vector(2), vec!["".into(), vec![7u8; 300].into()]);
    vec![
        ("bias", Tensor::vector(&[0.5f32, -1.0])),
        ("empty", Tensor::vector::<f64>(&[])),
        ("names", strings.expect("the sizes fit")),
        ("step", Tensor::scalar(7i64)),
        ("weights", Tensor::from_slice(&[3, 4], &[1.25f32; 12]).expect("the sizes fit")),
    ]
}

/// Checkpoints of both formats. The input is the length of a V2 index, the index, and the content of the data file. With
/// [`OLDER`] in place of the length it is a V1 file; with [`ENTRIES`], the entries of an index that is written here, so that
/// mutations get past the index's checksums.
pub struct Checkpoints(Directory);

const OLDER: u32 = u32::MAX;
const ENTRIES: u32 = u32::MAX - 1;

impl Checkpoints {
    /// Creates a directory for the files.
    pub fn new() -> Checkpoints {
        Checkpoints(Directory::new())
    }

    fn read_bundle(&self, index: &[u8], data: &[u8]) -> Result<String> {
        let prefix = self.0.file("read");
        self.0.with(&meta_filename("read"), index);
        self.0.with(&data_filename("read", 0, 1), data);
        let reader = BundleReader::open(local(), &prefix)?;
        let listed = reader.list()?;
        let mut num_read = 0;
        let mut failed = reader.verify();
        for info in &listed {
            match reader.lookup(&info.name) {
                Ok(_) => num_read += 1,
                Err(status) => failed = failed.and(Err(status)),
            }
        }
        failed.map(|()| format!("{} of {} tensors", magnitude(num_read), magnitude(listed.len())))
    }

    /// Returns the entries of an index as length-prefixed keys and values.
    fn entries_of(&self, index: &str) -> Result<Vec<u8>> {
        let table = Table::open(LocalFileSystem.open(&self.0.file(index))?)?;
        let mut entries = Vec::new();
        let mut iterator = table.iter();
        iterator.seek(&[])?;
        while let Some((key, value)) = iterator.current() {
            for part in [key, value] {
                entries.extend_from_slice(&(part.len() as u16).to_le_bytes());
                entries.extend_from_slice(part);
            }
            if !iterator.advance()? {
                break;
            }
        }
        Ok(entries)
    }

    /// Writes an index with these entries, and reads it.
    fn read_entries(&self, mut rest: &[u8]) -> Result<String> {
        let mut next = || {
            let (len, after) = rest.split_at_checked(2)?;
            let (part, after) = after.split_at_checked(usize::from(len[0]) | usize::from(len[1]) << 8)?;
            rest = after;
            Some(part)
        };
        let mut entries = BTreeMap::new();
        while let Some((key, value)) = next().zip(next()) {
            entries.insert(key, value);
        }
        let mut file = LocalFileSystem.create(&self.0.file("index"))?;
        let mut writer = TableWriter::new(&mut *file, TableOptions::default());
        entries.iter().try_for_each(|(key, value)| writer.add(key, value))?;
        writer.finish()?;
        file.close()?;
        self.read_bundle(&self.0.read("index"), &[7; 1024])
    }

    fn read_slices(&self, content: &[u8]) -> Result<String> {
        let path = self.0.with("slices", content);
        let reader = SliceReader::open(&LocalFileSystem, &path)?;
        let read: Vec<bool> = saved().iter().map(|(name, _)| reader.lookup(name).is_ok()).collect();
        Ok(format!("{read:?}"))
    }
}

impl Target for Checkpoints {
    fn seeds(&self) -> Vec<Vec<u8>> {
        let prefix = self.0.file("made");
        let mut bundle =
            BundleWriter::new(local(), &prefix, BundleWriterOptions::default()).expect("a checkpoint can be made");
        let mut slices = SliceWriter::new(local(), &self.0.file("made-slices"));
        for (name, tensor) in saved() {
            bundle.add(name, &tensor).expect("the tensor can be saved");
            slices.add(name, &tensor).expect("the tensor can be saved");
        }
        bundle.finish().expect("a checkpoint can be written");
        slices.finish().expect("a checkpoint can be written");
        let (index, data) = (self.0.read(&meta_filename("made")), self.0.read(&data_filename("made", 0, 1)));
        let both = [&(index.len() as u32).to_le_bytes()[..], &index, &data].concat();
        let older = [&OLDER.to_le_bytes()[..], &self.0.read("made-slices")].concat();
        let entries = self.entries_of(&meta_filename("made")).expect("the index can be read");
        vec![both, older, [&ENTRIES.to_le_bytes()[..], &entries].concat()]
    }

    fn take(&mut self, input: &[u8]) -> Outcome {
        let Some((len, rest)) = input.split_at_checked(4) else { return Outcome::accepted("nothing") };
        let len = len.iter().rev().fold(0, |len, &byte| len << 8 | u32::from(byte));
        let read = match (len, rest.split_at_checked(len as usize)) {
            (ENTRIES, _) => self.read_entries(rest),
            (_, Some((index, data))) => self.read_bundle(index, data),
            (_, None) => self.read_slices(rest),
        };
        Outcome::of(read, |text| text)
    }
}

/// Files of records. The first byte of an input selects the compression.
pub struct Records(Directory);

const COMPRESSIONS: [CompressionType; 3] = [CompressionType::None, CompressionType::Zlib, CompressionType::Gzip];

impl Records {
    /// Creates a directory for the files.
    pub fn new() -> Records {
        Records(Directory::new())
    }
}

fn write_records(directory: &Directory, compression: CompressionType, records: &[Vec<u8>]) -> Vec<u8> {
    let path = directory.file("made");
    let mut writer = RecordWriter::new(LocalFileSystem.create(&path).expect("a file can be made"), compression);
    records.iter().for_each(|record| writer.write_record(record).expect("a record can be written"));
    writer.close().expect("the file can be closed");
    directory.read("made")
}

impl Target for Records {
    fn seeds(&self) -> Vec<Vec<u8>> {
        let records = [Vec::new(), b"a record".to_vec(), vec![3; 700]];
        let of = |(index, &compression)| [&[index as u8][..], &write_records(&self.0, compression, &records)].concat();
        COMPRESSIONS.iter().enumerate().map(of).collect()
    }

    fn take(&mut self, input: &[u8]) -> Outcome {
        let Some((&which, content)) = input.split_first() else { return Outcome::accepted("nothing") };
        let compression = COMPRESSIONS[usize::from(which) % COMPRESSIONS.len()];
        let path = self.0.with("read", content);
        let read = LocalFileSystem.open(&path).and_then(|file| {
            let mut reader = RecordReader::new(file, RecordReaderOptions::compressed(compression));
            let mut num_records = 0;
            while reader.next_record()?.is_some() {
                num_records += 1;
            }
            Ok(num_records)
        });
        Outcome::of(read, |num_records| format!("{} records", magnitude(num_records)))
    }
}

/// Event files.
pub struct Events(Directory);

impl Events {
    /// Creates a directory for the files.
    pub fn new() -> Events {
        Events(Directory::new())
    }
}

impl Target for Events {
    fn seeds(&self) -> Vec<Vec<u8>> {
        let value = proto::summary::Value {
            tag: "loss".to_owned(),
            value: Some(proto::summary::value::Value::SimpleValue(0.5)),
            ..Default::default()
        };
        let summary = proto::Summary { value: vec![value] };
        let of = |what, step| proto::Event { wall_time: 1.5, step, what: Some(what), ..Default::default() };
        let events = [
            of(proto::event::What::FileVersion("brain.Event:2".to_owned()), 0),
            of(proto::event::What::Summary(summary), 3),
            of(proto::event::What::GraphDef(vec![1, 2, 3].into()), 4),
        ];
        vec![write_records(&self.0, CompressionType::None, &events.map(|event| event.encode_to_vec()))]
    }

    fn take(&mut self, input: &[u8]) -> Outcome {
        let path = self.0.with("read", &framed(input));
        let read = EventsReader::open(&LocalFileSystem, &path).and_then(|mut reader| {
            let mut num_events = 0;
            while reader.next_event()?.is_some() {
                num_events += 1;
            }
            Ok(num_events)
        });
        Outcome::of(read, |num_events| format!("{} events", magnitude(num_events)))
    }
}

/// Corrects the checksums of mutated records, so that their contents are read at all. Leaves bytes that are no longer records
/// unchanged.
fn framed(input: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    let mut at = 0;
    while let Some(len) = bytes.get(at..at + 8) {
        let len = len.iter().rev().fold(0usize, |len, &byte| len << 8 | usize::from(byte));
        let content = at + 12;
        let Some(end) = content.checked_add(len).filter(|&end| end <= bytes.len().saturating_sub(4)) else { break };
        let sums = (masked(&bytes[at..at + 8]), masked(&bytes[content..end]));
        bytes[at + 8..content].copy_from_slice(&sums.0.to_le_bytes());
        bytes[end..end + 4].copy_from_slice(&sums.1.to_le_bytes());
        at = end + 4;
    }
    bytes
}

/// Returns the masked checksum of a part of a record.
fn masked(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}
