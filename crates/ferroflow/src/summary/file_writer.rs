//! [`FileWriter`]: writes summaries, graphs and session states to an event file for TensorBoard.

use crate::meta_graph::MetaGraph;
use crate::session::RunMetadata;
use graph::Graph;
use parking_lot::Mutex;
use prost::Message;
use proto::event::What;
use proto::summary::{Value, value};
use proto::{Event, SessionLog, Summary, TaggedRunMetadata, session_log};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use storage::event::{EventsWriter, FlushPolicy};
use storage::file_system::FileSystems;
use tensor::{Result, Status, Tensor};

/// The most tags whose metadata the writer remembers as written.
const TAGS_MAX: usize = 100_000;

/// Writes events to a file in a directory. Clones share the file.
///
/// ```
/// use ferroflow::summary::FileWriter;
/// # let directory = tempfile::tempdir().unwrap();
/// # let logdir = directory.path().to_str().unwrap();
///
/// let writer = FileWriter::new(logdir)?;
/// for step in 0..10 {
///     writer.add_scalar("loss", 1.0 / (step + 1) as f32, step)?;
/// }
/// writer.close()?;
/// assert!(std::fs::metadata(writer.path()).unwrap().len() > 0);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone)]
pub struct FileWriter {
    shared: Arc<Shared>,
}

struct Shared {
    logdir: String,
    path: String,
    state: Mutex<State>,
}

struct State {
    writer: Option<EventsWriter>,
    /// Tags whose metadata has been written; it is written only once.
    seen: HashSet<String>,
    run_tags: HashSet<String>,
}

/// A session's state changes.
///
/// ```
/// use ferroflow::summary::{FileWriter, SessionStatus};
/// # let directory = tempfile::tempdir().unwrap();
/// # let logdir = directory.path().to_str().unwrap();
///
/// let writer = FileWriter::new(logdir)?;
/// writer.add_session_log(SessionStatus::Start, None, 0)?;
/// writer.add_session_log(SessionStatus::Checkpoint, Some("model.ckpt-100"), 100)?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionStatus {
    /// It started, or restarted from a checkpoint.
    Start,
    /// It stopped.
    Stop,
    /// It saved a checkpoint.
    Checkpoint,
}

impl SessionStatus {
    fn to_proto(self) -> session_log::SessionStatus {
        match self {
            SessionStatus::Start => session_log::SessionStatus::Start,
            SessionStatus::Stop => session_log::SessionStatus::Stop,
            SessionStatus::Checkpoint => session_log::SessionStatus::Checkpoint,
        }
    }
}

impl FileWriter {
    /// Creates an event file in a directory, which is created if it doesn't exist.
    ///
    /// ```
    /// use ferroflow::summary::FileWriter;
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    ///
    /// let writer = FileWriter::new(&format!("{logdir}/run_1"))?;
    /// assert!(std::path::Path::new(writer.path()).exists());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn new(logdir: &str) -> Result<FileWriter> {
        FileWriter::with_suffix(logdir, "")
    }

    /// As [`new`](Self::new), with a suffix to the file's name.
    ///
    /// ```
    /// use ferroflow::summary::FileWriter;
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    ///
    /// assert!(FileWriter::with_suffix(logdir, ".eval")?.path().ends_with(".eval"));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn with_suffix(logdir: &str, suffix: &str) -> Result<FileWriter> {
        let files = Arc::new(FileSystems::all());
        let writer = EventsWriter::create_in(files, logdir, suffix, now(), FlushPolicy::default())?;
        let path = writer.path().to_owned();
        let state = State { writer: Some(writer), seen: HashSet::new(), run_tags: HashSet::new() };
        Ok(FileWriter { shared: Arc::new(Shared { logdir: logdir.to_owned(), path, state: Mutex::new(state) }) })
    }

    /// Returns the directory.
    ///
    /// ```
    /// use ferroflow::summary::FileWriter;
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    ///
    /// assert_eq!(FileWriter::new(logdir)?.logdir(), logdir);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn logdir(&self) -> &str {
        &self.shared.logdir
    }

    /// Returns the path of the file.
    ///
    /// ```
    /// use ferroflow::summary::FileWriter;
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    ///
    /// assert!(FileWriter::new(logdir)?.path().contains("events.out.tfevents."));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn path(&self) -> &str {
        &self.shared.path
    }

    /// Writes a serialized summary, the output of a summary op.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::summary::{self, FileWriter};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    ///
    /// let g = Graph::new();
    /// let loss = summary::scalar("loss", &g.constant(0.5f32));
    /// let values = Session::new(&g)?.run(&[&loss])?;
    /// FileWriter::new(logdir)?.add_summary(&values[0], 10)?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn add_summary(&self, summary: &Tensor, step: i64) -> Result<()> {
        let [bytes] = summary.strings()? else {
            return Err(Status::invalid_argument("a serialized summary must be one string"));
        };
        let summary = Summary::decode(&bytes[..])
            .map_err(|error| Status::invalid_argument(format!("not a serialized summary: {error}")))?;
        self.add_summary_proto(summary, step)
    }

    /// Writes a `Summary` message.
    ///
    /// ```
    /// use ferroflow::proto::{Summary, summary::{Value, value}};
    /// use ferroflow::summary::FileWriter;
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    ///
    /// let value = Some(value::Value::SimpleValue(0.5));
    /// let summary = Summary { value: vec![Value { tag: "loss".to_owned(), value, ..Value::default() }] };
    /// FileWriter::new(logdir)?.add_summary_proto(summary, 10)?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn add_summary_proto(&self, mut summary: Summary, step: i64) -> Result<()> {
        let mut state = self.shared.state.lock();
        for value in summary.value.iter_mut().filter(|value| value.metadata.is_some()) {
            if state.seen.contains(&value.tag) {
                value.metadata = None;
            } else if state.seen.len() < TAGS_MAX {
                state.seen.insert(value.tag.clone());
            }
        }
        state.write(What::Summary(summary), step)
    }

    /// Writes a number under a tag.
    ///
    /// ```
    /// use ferroflow::summary::FileWriter;
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    ///
    /// FileWriter::new(logdir)?.add_scalar("accuracy", 0.95, 1000)?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn add_scalar(&self, tag: &str, number: f32, step: i64) -> Result<()> {
        let value = Some(value::Value::SimpleValue(number));
        let value = Value { tag: tag.to_owned(), value, ..Default::default() };
        self.add_summary_proto(Summary { value: vec![value] }, step)
    }

    /// Writes the graph.
    ///
    /// ```
    /// use ferroflow::{Graph, summary::FileWriter};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    ///
    /// let g = Graph::new();
    /// g.constant(1f32);
    /// let writer = FileWriter::new(logdir)?;
    /// writer.add_graph(&g)?;
    /// writer.flush()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn add_graph(&self, graph: &Graph) -> Result<()> {
        self.write(What::GraphDef(graph.to_graph_def().encode_to_vec().into()), 0)
    }

    /// Writes a MetaGraph.
    ///
    /// ```
    /// use ferroflow::{Graph, summary::FileWriter, train::meta_graph::export_meta_graph};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    ///
    /// FileWriter::new(logdir)?.add_meta_graph(&export_meta_graph(&Graph::new(), None))?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn add_meta_graph(&self, meta: &MetaGraph) -> Result<()> {
        self.write(What::MetaGraphDef(meta.to_bytes().into()), 0)
    }

    /// Writes a run's metadata under a tag, which must be new.
    ///
    /// ```
    /// use ferroflow::summary::FileWriter;
    /// use ferroflow::{Graph, RunOptions, Session};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    ///
    /// let g = Graph::new();
    /// let sum = g.constant(1f32) + 2.0;
    /// let options = RunOptions::new().full_trace(true);
    /// let (_, metadata) = Session::new(&g)?.runner().fetch(&sum).options(options).run_with_metadata()?;
    /// let (writer, metadata) = (FileWriter::new(logdir)?, metadata.unwrap_or_default());
    /// writer.add_run_metadata(&metadata, "step 1", 1)?;
    /// assert!(writer.add_run_metadata(&metadata, "step 1", 2).is_err());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn add_run_metadata(&self, metadata: &RunMetadata, tag: &str, step: i64) -> Result<()> {
        let mut state = self.shared.state.lock();
        if state.run_tags.len() >= TAGS_MAX || !state.run_tags.insert(tag.to_owned()) {
            return Err(Status::invalid_argument("The provided tag was already used for this event type"));
        }
        let tagged = TaggedRunMetadata { tag: tag.to_owned(), run_metadata: metadata.to_bytes().into() };
        state.write(What::TaggedRunMetadata(tagged), step)
    }

    /// Writes a session's state change.
    ///
    /// ```
    /// use ferroflow::summary::{FileWriter, SessionStatus};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    ///
    /// FileWriter::new(logdir)?.add_session_log(SessionStatus::Stop, None, 100)?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn add_session_log(&self, status: SessionStatus, checkpoint: Option<&str>, step: i64) -> Result<()> {
        let log = SessionLog {
            status: status.to_proto() as i32,
            checkpoint_path: checkpoint.unwrap_or_default().to_owned(),
            ..Default::default()
        };
        self.write(What::SessionLog(log), step)
    }

    /// Flushes the file, so that readers see everything written so far.
    ///
    /// ```
    /// use ferroflow::summary::FileWriter;
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    ///
    /// let writer = FileWriter::new(logdir)?;
    /// writer.add_scalar("loss", 0.5, 1)?;
    /// writer.flush()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn flush(&self) -> Result<()> {
        self.shared.state.lock().writer.as_mut().map_or(Ok(()), EventsWriter::flush)
    }

    /// Flushes and closes the file; nothing can be written afterwards.
    ///
    /// ```
    /// use ferroflow::summary::FileWriter;
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    ///
    /// let writer = FileWriter::new(logdir)?;
    /// writer.close()?;
    /// assert!(writer.add_scalar("loss", 0.5, 1).is_err());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn close(&self) -> Result<()> {
        let writer = self.shared.state.lock().writer.take();
        writer.map_or(Ok(()), EventsWriter::close)
    }

    fn write(&self, what: What, step: i64) -> Result<()> {
        self.shared.state.lock().write(what, step)
    }
}

impl State {
    fn write(&mut self, what: What, step: i64) -> Result<()> {
        let writer =
            self.writer.as_mut().ok_or_else(|| Status::failed_precondition("the event file is closed already"))?;
        writer.write(&Event { wall_time: now(), step, what: Some(what), ..Default::default() })
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage::event::EventsReader;

    #[test]
    fn what_is_written_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let writer = FileWriter::new(directory.path().to_str().unwrap()).unwrap();
        let graph = Graph::new();
        graph.constant_tensor(&Tensor::scalar(1f32));
        writer.add_graph(&graph).unwrap();
        writer.add_session_log(SessionStatus::Start, None, 3).unwrap();
        writer.add_scalar("loss", 0.5, 7).unwrap();
        let metadata = RunMetadata::default();
        writer.add_run_metadata(&metadata, "step 7", 7).unwrap();
        assert!(writer.add_run_metadata(&metadata, "step 7", 8).is_err());
        assert!(writer.add_summary(&Tensor::scalar(1f32), 8).is_err());
        writer.close().unwrap();
        assert!(writer.add_scalar("loss", 0.5, 9).is_err());

        let mut reader = EventsReader::open(&FileSystems::all(), writer.path()).unwrap();
        let events: Vec<Event> = std::iter::from_fn(|| reader.next_event().unwrap()).collect();
        assert_eq!(events.iter().map(|event| event.step).collect::<Vec<_>>(), [0, 0, 3, 7, 7]);
        let Some(What::GraphDef(bytes)) = &events[1].what else { panic!("no graph") };
        assert_eq!(proto::GraphDef::decode(&bytes[..]).unwrap().node.len(), 1);
        let Some(What::Summary(summary)) = &events[3].what else { panic!("no summary") };
        assert_eq!(summary.value[0].value, Some(value::Value::SimpleValue(0.5)));
    }

    #[test]
    fn the_metadata_of_a_tag_is_written_once() {
        let directory = tempfile::tempdir().unwrap();
        let writer = FileWriter::new(directory.path().to_str().unwrap()).unwrap();
        let metadata = Some(proto::SummaryMetadata { display_name: "x".to_owned(), ..Default::default() });
        let value = Value { tag: "t".to_owned(), metadata, ..Default::default() };
        for step in 0..2 {
            writer.add_summary_proto(Summary { value: vec![value.clone()] }, step).unwrap();
        }
        writer.close().unwrap();
        let mut reader = EventsReader::open(&FileSystems::all(), writer.path()).unwrap();
        let with_metadata = std::iter::from_fn(|| reader.next_event().unwrap())
            .filter_map(|event| match event.what {
                Some(What::Summary(summary)) => Some(summary.value[0].metadata.is_some()),
                _ => None,
            })
            .collect::<Vec<_>>();
        assert_eq!(with_metadata, [true, false]);
    }
}
