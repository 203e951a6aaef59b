//! [`RunOptions`]: options of a run; [`RunMetadata`]: information about a run.

use super::config::milliseconds;
use prost::Message;
use proto::run_options::TraceLevel;
use std::time::Duration;
use tensor::{Result, Status};

/// Options of a run, as in `tf.RunOptions`.
///
/// ```
/// use ferroflow::{Graph, RunOptions, Session};
/// use std::time::Duration;
///
/// let g = Graph::new();
/// let sum = g.constant(1) + 2;
/// let options = RunOptions::new().timeout(Duration::from_secs(10)).full_trace(true);
/// let (values, metadata) = Session::new(&g)?.runner().fetch(&sum).options(options).run_with_metadata()?;
/// assert_eq!(i32::try_from(&values[0])?, 3);
/// assert!(!metadata.unwrap_or_default().node_runs().is_empty());
/// # Ok::<(), ferroflow::Status>(())
/// ```
///
/// `From` converts between this type and TensorFlow's message; options without a method here are preserved.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    pub(crate) timeout: Option<Duration>,
    pub(crate) full_trace: bool,
    pub(crate) output_partition_graphs: bool,
    /// The message's other options.
    rest: proto::RunOptions,
}

impl RunOptions {
    /// Returns the default options.
    ///
    /// ```
    /// let options = ferroflow::RunOptions::new();
    /// ```
    pub fn new() -> RunOptions {
        RunOptions::default()
    }

    /// Sets a timeout, after which the run fails with `DeadlineExceeded`.
    ///
    /// ```
    /// let options = ferroflow::RunOptions::new().timeout(std::time::Duration::from_secs(10));
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets whether to trace the times of all nodes.
    ///
    /// ```
    /// let options = ferroflow::RunOptions::new().full_trace(true);
    /// ```
    pub fn full_trace(mut self, full_trace: bool) -> Self {
        self.full_trace = full_trace;
        self
    }

    /// Sets whether to return the graphs of all devices.
    ///
    /// ```
    /// let options = ferroflow::RunOptions::new().output_partition_graphs(true);
    /// ```
    pub fn output_partition_graphs(mut self, output_partition_graphs: bool) -> Self {
        self.output_partition_graphs = output_partition_graphs;
        self
    }

    /// Returns the message; `None` if all options have their defaults.
    pub(super) fn to_proto(&self) -> Option<proto::RunOptions> {
        let message = proto::RunOptions::from(self.clone());
        (message != proto::RunOptions::default()).then_some(message)
    }
}

impl From<proto::RunOptions> for RunOptions {
    fn from(message: proto::RunOptions) -> RunOptions {
        let timeout = u64::try_from(message.timeout_in_ms).ok().filter(|&timeout| timeout > 0);
        RunOptions {
            timeout: timeout.map(Duration::from_millis),
            full_trace: message.trace_level != TraceLevel::NoTrace as i32,
            output_partition_graphs: message.output_partition_graphs,
            rest: message,
        }
    }
}

impl From<RunOptions> for proto::RunOptions {
    fn from(options: RunOptions) -> proto::RunOptions {
        // The message may request less than a full trace.
        let trace_level = match (options.full_trace, options.rest.trace_level) {
            (false, _) => TraceLevel::NoTrace as i32,
            (true, level) if level != TraceLevel::NoTrace as i32 => level,
            (true, _) => TraceLevel::FullTrace as i32,
        };
        proto::RunOptions {
            timeout_in_ms: options.timeout.map_or(0, milliseconds),
            trace_level,
            output_partition_graphs: options.output_partition_graphs,
            ..options.rest
        }
    }
}

/// Information about a run, as requested in its [options](RunOptions).
///
/// ```
/// use ferroflow::{Graph, RunOptions, Session};
///
/// let g = Graph::new();
/// let sum = g.constant(1) + 2;
/// let options = RunOptions::new().full_trace(true);
/// let (_, metadata) = Session::new(&g)?.runner().fetch(&sum).options(options).run_with_metadata()?;
/// for run in metadata.unwrap_or_default().node_runs() {
///     println!("{} on {}: {:?}", run.node, run.device, run.duration);
/// }
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunMetadata(pub(super) proto::RunMetadata);

/// The times of a node's run.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::{RunOptions, session::NodeRun};
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>([2]);
/// let root = x.sqrt();
/// let session = Session::new(&g)?;
/// let run = session.runner().feed(&x, [4f32, 9.0]).fetch(&root);
/// let (_, metadata) = run.options(RunOptions::new().full_trace(true)).run_with_metadata()?;
/// let runs: Vec<NodeRun> = metadata.unwrap_or_default().node_runs();
/// assert!(runs.iter().any(|run| run.node == "Sqrt" && run.device.ends_with("CPU:0")));
/// # Ok::<(), Status>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRun {
    /// The device.
    pub device: String,
    /// The node's name.
    pub node: String,
    /// When it began, since the Unix epoch.
    pub start: Duration,
    /// How long it took.
    pub duration: Duration,
}

impl RunMetadata {
    /// Returns the times of all nodes, by device; none without a [trace](RunOptions::full_trace).
    ///
    /// ```
    /// assert!(ferroflow::RunMetadata::default().node_runs().is_empty());
    /// ```
    pub fn node_runs(&self) -> Vec<NodeRun> {
        let microseconds = |time: i64| Duration::from_micros(u64::try_from(time).unwrap_or(0));
        let devices = self.0.step_stats.iter().flat_map(|stats| &stats.dev_stats);
        let runs = devices.flat_map(|device| device.node_stats.iter().map(move |node| (device, node)));
        runs.map(|(device, node)| NodeRun {
            device: device.device.clone(),
            node: node.node_name.clone(),
            start: microseconds(node.all_start_micros),
            duration: microseconds(node.all_end_rel_micros),
        })
        .collect()
    }

    /// Returns the graphs of the devices, in text form; none unless [requested](RunOptions::output_partition_graphs).
    ///
    /// ```
    /// use ferroflow::{Graph, RunOptions, Session};
    ///
    /// let g = Graph::new();
    /// let sum = g.placeholder::<f32>([2]) + 2.0;
    /// let session = Session::new(&g)?;
    /// let run = session.runner().feed(&sum.op.input(0), [1f32, 2.0]).fetch(&sum);
    /// let (_, metadata) = run.options(RunOptions::new().output_partition_graphs(true)).run_with_metadata()?;
    /// assert!(metadata.unwrap_or_default().partition_graphs()?[0].contains("AddV2"));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn partition_graphs(&self) -> Result<Vec<String>> {
        let text = |def| proto::text::format("tensorflow.GraphDef", def);
        let graphs: std::result::Result<_, _> = self.0.partition_graphs.iter().map(text).collect();
        graphs.map_err(|error| Status::internal(format!("a graph without a text form: {error}")))
    }

    /// Returns the metadata in TensorFlow's file format, a serialized `RunMetadata`.
    ///
    /// ```
    /// assert!(ferroflow::RunMetadata::default().to_bytes().is_empty());
    /// ```
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.encode_to_vec()
    }
}

impl From<proto::RunMetadata> for RunMetadata {
    fn from(message: proto::RunMetadata) -> RunMetadata {
        RunMetadata(message)
    }
}

impl From<RunMetadata> for proto::RunMetadata {
    fn from(metadata: RunMetadata) -> proto::RunMetadata {
        metadata.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_survive_the_way_there_and_back() {
        let message = proto::RunOptions {
            timeout_in_ms: 50,
            trace_level: TraceLevel::SoftwareTrace as i32,
            inter_op_thread_pool: 3,
            ..Default::default()
        };
        let options = RunOptions::from(message.clone());
        assert_eq!((options.timeout, options.full_trace), (Some(Duration::from_millis(50)), true));
        assert_eq!(proto::RunOptions::from(options.clone()), message);
        let without = proto::RunOptions::from(options.full_trace(false));
        assert_eq!((without.trace_level, without.inter_op_thread_pool), (TraceLevel::NoTrace as i32, 3));
        assert_eq!(RunOptions::new().to_proto(), None);
        // 0 would mean no timeout.
        let soon = RunOptions::new().timeout(Duration::from_nanos(1)).to_proto().unwrap();
        assert_eq!(soon.timeout_in_ms, 1);
    }
}
