//! Event files, which TensorBoard reads. They are TFRecords of [`Event`] messages, the first of which contains the version.

use crate::file_system::{FileSystem, WritableFile, hostname};
use crate::record::{CompressionType, RecordReader, RecordReaderOptions, RecordWriter};
use prost::Message;
use proto::Event;
use proto::event::What;
use std::sync::Arc;
use tensor::{Code, Result, ResultExt, Status};

/// What the first event of every file says.
pub const FILE_VERSION: &str = "brain.Event:2";

const VERSION_PREFIX: &str = "brain.Event:";
const CURRENT_VERSION: u32 = 2;

/// The policy for automatic flushes.
///
/// There is no thread and no clock here: time is that of the events, so a writer that gets none for a while should be
/// flushed by its owner.
#[derive(Clone, Copy, Debug)]
pub struct FlushPolicy {
    /// Flush when this many events are waiting.
    pub max_events: usize,
    /// Flush when the oldest waiting event is older than the newest by this many seconds.
    pub max_seconds: f64,
    /// Whether a flush also waits until the events are on stable storage.
    pub sync: bool,
}

impl Default for FlushPolicy {
    /// Returns TensorFlow's two minutes, and a bound on how much a crash can lose.
    fn default() -> Self {
        FlushPolicy { max_events: 1000, max_seconds: 120.0, sync: false }
    }
}

/// The size of an event file in an object store after which the next one is started. Each flush puts the whole file again, since a
/// store can't append.
const REPLACED_BYTES_MAX: u64 = 4 << 20;

/// Writes one event file; in an object store, one after the other.
pub struct EventsWriter {
    file_system: Arc<dyn FileSystem>,
    prefix: String,
    suffix: String,
    path: String,
    writer: RecordWriter,
    policy: FlushPolicy,
    waiting_events: usize,
    oldest_waiting: Option<f64>,
    /// The time of the last event.
    newest: f64,
    encoded: Vec<u8>,
}

impl EventsWriter {
    /// Creates `PREFIX.out.tfevents.SECONDS.HOST SUFFIX` with its first event; `wall_time` is in seconds since the Epoch.
    ///
    /// The prefix is a path, usually `LOGDIR/events`; a suffix starts with its own dot. A file of that name is left
    /// alone, and the new one gets a number.
    pub fn create(
        file_system: Arc<dyn FileSystem>,
        prefix: &str,
        suffix: &str,
        wall_time: f64,
        policy: FlushPolicy,
    ) -> Result<EventsWriter> {
        let (path, writer) = create_file(&*file_system, prefix, suffix, wall_time)?;
        let mut writer = EventsWriter {
            file_system,
            prefix: prefix.to_owned(),
            suffix: suffix.to_owned(),
            path,
            writer,
            policy,
            waiting_events: 0,
            oldest_waiting: None,
            newest: wall_time,
            encoded: Vec::new(),
        };
        // A reader must be able to recognize the file at once.
        writer.write(&version_event(wall_time))?;
        writer.flush()?;
        Ok(writer)
    }

    /// Creates an event file in a directory, which is made when it is missing.
    pub fn create_in(
        file_system: Arc<dyn FileSystem>,
        logdir: &str,
        suffix: &str,
        wall_time: f64,
        policy: FlushPolicy,
    ) -> Result<EventsWriter> {
        file_system.create_dir_all(logdir)?;
        let prefix = crate::file_system::path::join(logdir, "events");
        EventsWriter::create(file_system, &prefix, suffix, wall_time, policy)
    }

    /// Returns where the file is that the next event is written to.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns how many events a crash would lose.
    pub fn waiting_events(&self) -> usize {
        self.waiting_events
    }

    /// Appends an event, and flushes when the policy says so.
    pub fn write(&mut self, event: &Event) -> Result<()> {
        let mut encoded = std::mem::take(&mut self.encoded);
        encoded.clear();
        let written = event
            .encode(&mut encoded)
            .map_err(|error| Status::internal(format!("an event can't be encoded: {error}")))
            .and_then(|()| self.write_serialized(&encoded, event.wall_time));
        self.encoded = encoded;
        written
    }

    /// Appends an event that is serialized already, and flushes when the policy says so.
    pub fn write_serialized(&mut self, event: &[u8], wall_time: f64) -> Result<()> {
        if self.is_full() {
            self.start_next_file()?;
        }
        self.writer.write_record(event)?;
        self.waiting_events += 1;
        self.newest = wall_time;
        let oldest = *self.oldest_waiting.get_or_insert(wall_time);
        if self.waiting_events >= self.policy.max_events || wall_time - oldest >= self.policy.max_seconds {
            self.flush()?;
        }
        Ok(())
    }

    /// Makes every event so far visible to readers, and fails if the file was deleted in the meantime.
    pub fn flush(&mut self) -> Result<()> {
        if self.waiting_events == 0 {
            return Ok(());
        }
        let (count, path) = (self.waiting_events, &self.path);
        let flushed = if self.policy.sync { self.writer.sync() } else { self.writer.flush() };
        flushed.context(|| format!("Failed to flush {count} events to {path}"))?;
        if !self.file_system.exists(path)? {
            let gone = format!("The events file {path} has disappeared.");
            return Err(Status::unknown(gone).context(format!("Failed to flush {count} events to {path}")));
        }
        self.waiting_events = 0;
        self.oldest_waiting = None;
        Ok(())
    }

    /// Returns whether another put of the file would take too long.
    fn is_full(&self) -> bool {
        self.waiting_events == 0
            && self.writer.bytes_written() >= REPLACED_BYTES_MAX
            && self.file_system.appears_whole(&self.path)
    }

    fn start_next_file(&mut self) -> Result<()> {
        let (path, writer) = create_file(&*self.file_system, &self.prefix, &self.suffix, self.newest)?;
        std::mem::replace(&mut self.writer, writer).close()?;
        self.path = path;
        self.writer.write_record(&version_event(self.newest).encode_to_vec())
    }

    /// Flushes and closes.
    pub fn close(mut self) -> Result<()> {
        self.flush()?;
        self.writer.close()
    }
}

fn create_file(
    file_system: &dyn FileSystem,
    prefix: &str,
    suffix: &str,
    wall_time: f64,
) -> Result<(String, RecordWriter)> {
    let base = format!("{prefix}.out.tfevents.{:010}.{}", wall_time as i64, hostname());
    let (path, file) = create_unused(file_system, &base, suffix)?;
    Ok((path, RecordWriter::new(file, CompressionType::None)))
}

/// The most event files that may have the same second and host.
const MAX_SAME_NAME: u32 = 10_000;

fn create_unused(file_system: &dyn FileSystem, base: &str, suffix: &str) -> Result<(String, Box<dyn WritableFile>)> {
    for number in 0..MAX_SAME_NAME {
        let path = match number {
            0 => format!("{base}{suffix}"),
            _ => format!("{base}.{number}{suffix}"),
        };
        match file_system.create_new(&path) {
            Ok(file) => return Ok((path, file)),
            Err(status) if status.code() == Code::AlreadyExists => continue,
            Err(status) => return Err(status.context(format!("Creating writable file {path}"))),
        }
    }
    Err(Status::resource_exhausted(format!("there are {MAX_SAME_NAME} event files {base}*{suffix}")))
}

fn version_event(wall_time: f64) -> Event {
    Event { wall_time, what: Some(What::FileVersion(FILE_VERSION.to_owned())), ..Default::default() }
}

/// Reads one event file, which may still grow.
pub struct EventsReader {
    reader: RecordReader,
    record: Vec<u8>,
}

impl EventsReader {
    /// Opens a file; its first event is read with the others.
    pub fn open(file_system: &dyn FileSystem, path: &str) -> Result<EventsReader> {
        let reader = RecordReader::new(file_system.open(path)?, RecordReaderOptions::default());
        Ok(EventsReader { reader, record: Vec::new() })
    }

    /// Returns where the next event starts, which [`seek`](EventsReader::seek) takes.
    pub fn offset(&self) -> u64 {
        self.reader.offset()
    }

    /// Goes to an offset that [`offset`](EventsReader::offset) returned.
    pub fn seek(&mut self, offset: u64) {
        self.reader.seek(offset);
    }

    /// Returns the next event, or `None` at the end; more may come when the file is still being written.
    ///
    /// Half an event at the end is `DATA_LOSS`, and can be read again once the writer has completed it.
    pub fn next_event(&mut self) -> Result<Option<Event>> {
        let offset = self.reader.offset();
        if !self.reader.read_record(&mut self.record)? {
            return Ok(None);
        }
        let event = Event::decode(self.record.as_slice())
            .map_err(|error| Status::data_loss(format!("the record at {offset} is no Event: {error}")))?;
        if let Some(What::FileVersion(version)) = &event.what {
            check_version(version)?;
        }
        Ok(Some(event))
    }
}

fn check_version(version: &str) -> Result<()> {
    let number = version.strip_prefix(VERSION_PREFIX).and_then(|number| number.parse::<u32>().ok());
    match number {
        Some(number) if number <= CURRENT_VERSION => Ok(()),
        _ => Err(Status::unimplemented(format!(
            "Unsupported event file version {version}; this reads up to {FILE_VERSION}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_system::FileSystems;

    fn events(path: &str) -> Vec<Event> {
        let mut reader = EventsReader::open(&FileSystems::local(), path).unwrap();
        std::iter::from_fn(|| reader.next_event().unwrap()).collect()
    }

    fn at(step: i64, wall_time: f64) -> Event {
        Event { wall_time, step, ..Default::default() }
    }

    fn create(dir: &tempfile::TempDir, policy: FlushPolicy) -> EventsWriter {
        let logdir = format!("{}/logs", dir.path().display());
        EventsWriter::create_in(Arc::new(FileSystems::local()), &logdir, ".v2", 1_700_000_000.5, policy).unwrap()
    }

    #[test]
    fn the_name_the_first_event_and_the_policy() {
        let dir = tempfile::tempdir().unwrap();
        let policy = FlushPolicy { max_events: 3, max_seconds: 10.0, sync: true };
        let mut writer = create(&dir, policy);
        let name = format!("{}/logs/events.out.tfevents.1700000000.{}.v2", dir.path().display(), hostname());
        assert_eq!(writer.path(), name);
        assert_eq!(events(&name), [version_event(1_700_000_000.5)]);
        writer.write(&at(1, 1.0)).unwrap();
        writer.write(&at(2, 2.0)).unwrap();
        assert_eq!((writer.waiting_events(), events(&name).len()), (2, 1));
        writer.write(&at(3, 3.0)).unwrap();
        assert_eq!((writer.waiting_events(), events(&name).len()), (0, 4));
        writer.write(&at(4, 4.0)).unwrap();
        writer.write(&at(5, 14.0)).unwrap();
        assert_eq!((writer.waiting_events(), events(&name).len()), (0, 6));
        writer.write(&at(6, 15.0)).unwrap();
        writer.close().unwrap();
        let steps: Vec<i64> = events(&name).iter().map(|event| event.step).collect();
        assert_eq!(steps, [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn a_second_writer_in_the_same_second_gets_its_own_file() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (create(&dir, FlushPolicy::default()), create(&dir, FlushPolicy::default()));
        assert_ne!(first.path(), second.path());
        assert_eq!(events(first.path()).len(), 1);
    }

    #[test]
    fn a_deleted_file_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = create(&dir, FlushPolicy::default());
        std::fs::remove_file(writer.path()).unwrap();
        writer.write(&at(1, 1.0)).unwrap();
        let status = writer.flush().unwrap_err();
        assert_eq!(status.code(), Code::Unknown);
        assert!(status.message().ends_with("has disappeared."), "{status}");
    }

    #[test]
    fn a_newer_version_is_refused() {
        assert!(check_version("brain.Event:1").is_ok());
        assert_eq!(check_version("brain.Event:3").unwrap_err().code(), Code::Unimplemented);
        assert_eq!(check_version("nonsense").unwrap_err().code(), Code::Unimplemented);
    }
}
