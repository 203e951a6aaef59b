//! [`MasterInterface`] and [`WorkerInterface`]: the calls of a client to a master, and of a master to a worker. Both are
//! implemented in this process and over gRPC, so that an embedded cluster runs the same code without sockets.

use crate::task_question::{TaskAnswer, TaskQuestion};
use futures_util::future::BoxFuture;
use graph::NodeGraph;
use kernel::Cancellation;
use proto::{DeviceAttributes, GraphDef, RunMetadata, RunOptions, StepStats};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensor::{Result, Tensor};

/// The answer to a call, as a future; dropping it cancels the rest of the call.
pub type Answer<T> = BoxFuture<'static, Result<T>>;

/// The calls of a client to its server.
pub trait MasterInterface: Send + Sync {
    /// Opens a session on a graph; returns its handle and the version of its graph.
    fn create_session(&self, request: proto::CreateSessionRequest) -> Answer<proto::CreateSessionResponse>;

    /// Adds nodes to a session's graph.
    fn extend_session(&self, request: proto::ExtendSessionRequest) -> Answer<proto::ExtendSessionResponse>;

    /// Prepares a partial run; returns its handle.
    fn partial_run_setup(&self, request: proto::PartialRunSetupRequest) -> Answer<String>;

    /// Runs one step, or a part of one.
    fn run_step(&self, call: RunStepCall) -> Answer<RunStepReply>;

    /// Ends a session.
    fn close_session(&self, session_handle: String) -> Answer<()>;

    /// Lists the devices that a session can use; without a session, those of the whole cluster.
    fn list_devices(&self, session_handle: String) -> Answer<proto::ListDevicesResponse>;

    /// Ends all sessions and drops the resources in the given containers.
    fn reset(&self, request: proto::ResetRequest) -> Answer<()>;

    /// Prepares a callable, a step that is run many times; returns its handle.
    fn make_callable(&self, request: proto::MakeCallableRequest) -> Answer<i64>;

    /// Runs a callable.
    fn run_callable(&self, call: RunCallableCall) -> Answer<RunCallableReply>;

    /// Drops a callable.
    fn release_callable(&self, request: proto::ReleaseCallableRequest) -> Answer<()>;

    /// Returns a session whose steps can run on the calling thread: its master and its only task are in this process.
    fn local_session(&self, _session_handle: &str) -> Option<Arc<dyn LocalSession>> {
        None
    }
}

/// A session that is entirely in this process.
pub trait LocalSession: Send + Sync {
    /// Runs a step on this thread and waits for its end; the fetched tensors are in order. `None` means that the run has to be
    /// compiled first, which [`MasterInterface::run_step`] does.
    fn run(
        &self,
        feeds: &[(&str, Tensor)],
        fetches: &[&str],
        targets: &[&str],
        timeout: Option<Duration>,
    ) -> Option<Result<Vec<Tensor>>>;
}

/// A step to be run.
#[derive(Clone, Debug, Default)]
pub struct RunStepCall {
    /// The session.
    pub session_handle: String,
    /// The tensors to feed, by name.
    pub feeds: Vec<(String, Tensor)>,
    /// The names of the tensors to return.
    pub fetches: Vec<String>,
    /// The names of the nodes to run.
    pub targets: Vec<String>,
    /// The options, when there are any.
    pub options: Option<RunOptions>,
    /// The partial run that the step continues, or an empty handle.
    pub partial_run_handle: String,
}

/// The result of a step.
#[derive(Clone, Debug, Default)]
pub struct RunStepReply {
    /// The fetched tensors by name, in the order of the request.
    pub tensors: Vec<(String, Tensor)>,
    /// The metadata; absent in all but the last call of a partial run.
    pub metadata: Option<RunMetadata>,
}

/// A callable to be run.
#[derive(Clone, Debug, Default)]
pub struct RunCallableCall {
    /// The session.
    pub session_handle: String,
    /// The callable.
    pub handle: i64,
    /// The tensors to feed, in the order of the callable's feeds.
    pub feeds: Vec<Tensor>,
}

/// The result of a callable.
#[derive(Clone, Debug, Default)]
pub struct RunCallableReply {
    /// The fetched tensors in order.
    pub fetches: Vec<Tensor>,
    /// The metadata.
    pub metadata: RunMetadata,
}

/// The calls of a master to a worker, and between workers.
pub trait WorkerInterface: Send + Sync {
    /// Asks for the worker's devices, and so whether it is running.
    fn get_status(&self) -> Answer<Vec<DeviceAttributes>>;

    /// Opens a session of a master on the worker.
    fn create_worker_session(&self, request: proto::CreateWorkerSessionRequest) -> Answer<()>;

    /// Ends a session.
    fn delete_worker_session(&self, session_handle: String) -> Answer<()>;

    /// Registers a partition of a graph.
    fn register_graph(&self, call: RegisterGraphCall) -> Answer<RegisterGraphReply>;

    /// Deregisters a partition.
    fn deregister_graph(&self, request: proto::DeregisterGraphRequest) -> Answer<()>;

    /// Runs a partition for one step. When this returns, a worker in this process has started it, and a request to another one is
    /// on its way, even if the answer is never polled.
    fn run_graph(&self, call: RunGraphCall) -> Answer<RunGraphReply>;

    /// Frees the state of a step. A worker in this process has done so when this returns.
    fn cleanup_graph(&self, step_id: i64) -> Answer<()>;

    /// Drops the resources in the given containers; none means the default one.
    fn cleanup_all(&self, containers: Vec<String>) -> Answer<()>;

    /// Waits for a tensor that this worker produces in a step.
    fn recv_tensor(&self, call: RecvTensorCall) -> Answer<ReceivedTensor>;

    /// Waits for a part of a collective op's tensor from a device of this worker; the call's rendezvous key names the part.
    fn recv_part(&self, call: RecvTensorCall, from: &DeviceAttributes) -> Answer<Tensor>;

    /// Reports that the answer to a request has arrived, so that it need not be kept.
    fn mark_recv_finished(&self, request_id: i64) -> Answer<()>;

    /// Turns the log of transfers on and off, or reads it.
    fn logging(&self, request: proto::LoggingRequest) -> Answer<proto::LoggingResponse>;

    /// Traces the worker for a while.
    fn tracing(&self, request: proto::TracingRequest) -> Answer<proto::TracingResponse>;

    /// Asks for a buffer of a collective op.
    fn recv_buf(&self, request: proto::RecvBufRequest) -> Answer<proto::RecvBufResponse>;

    /// Announces a device to the leader of a collective group.
    fn complete_group(&self, request: proto::CompleteGroupRequest) -> Answer<proto::CompleteGroupResponse>;

    /// Announces a member of a collective op to the leader.
    fn complete_instance(&self, request: proto::CompleteInstanceRequest) -> Answer<proto::CompleteInstanceResponse>;

    /// Asks for the next step ids of collective graphs.
    fn get_step_sequence(&self, request: proto::GetStepSequenceRequest) -> Answer<proto::GetStepSequenceResponse>;

    /// Asks for the task's state, for monitoring.
    fn ask(&self, question: TaskQuestion) -> Answer<TaskAnswer>;
}

/// A partition to be registered.
#[derive(Clone)]
pub struct RegisterGraphCall {
    /// The session.
    pub session_handle: String,
    /// Whether the master has opened the session on the worker.
    pub create_worker_session_called: bool,
    /// The partition.
    pub graph: PartitionGraph,
    /// The session's settings, which TensorFlow's tasks use.
    pub config: Option<Arc<proto::ConfigProto>>,
    /// The key by which the steps of its collective ops are numbered; 0 if it has none.
    pub collective_graph_key: i64,
}

/// The graph of a partition: the graph itself within a process, a message between processes.
#[derive(Clone)]
pub enum PartitionGraph {
    /// The graph itself.
    Graph(NodeGraph),
    /// The message.
    Def(GraphDef),
}

impl PartitionGraph {
    /// Returns the number of nodes.
    pub fn num_nodes(&self) -> usize {
        match self {
            PartitionGraph::Graph(graph) => graph.len(),
            PartitionGraph::Def(def) => def.node.len(),
        }
    }
}

/// A registered partition.
pub struct RegisterGraphReply {
    /// The worker's handle for it.
    pub graph_handle: String,
    /// The partition itself, if it is in this process and talks to no other task.
    pub local: Option<Arc<dyn LocalGraph>>,
}

/// A registered partition in this process that communicates with no other task, so that its steps concern only the caller.
pub trait LocalGraph: Send + Sync {
    /// Runs a step on this thread and waits for its end. The arguments and the results are in the order of the graph's feed and
    /// fetch nodes.
    fn run(&self, call: LocalStepCall<'_>) -> Result<Vec<Tensor>>;
}

/// A step of a [`LocalGraph`].
pub struct LocalStepCall<'a> {
    /// The step.
    pub step_id: i64,
    /// The fed tensors.
    pub arguments: &'a mut dyn Iterator<Item = Tensor>,
    /// The deadline.
    pub deadline: Option<Instant>,
    /// Cancels it.
    pub cancellation: &'a Cancellation,
}

/// A partition to be run.
#[derive(Clone, Debug)]
pub struct RunGraphCall {
    /// The session.
    pub session_handle: Arc<str>,
    /// Whether the master has opened the session on the worker.
    pub create_worker_session_called: bool,
    /// The partition.
    pub graph_handle: Arc<str>,
    /// The step.
    pub step_id: i64,
    /// The tensors to put into the step's rendezvous, with their keys.
    pub sends: Vec<(Arc<str>, Tensor)>,
    /// The keys of the tensors to take out of it.
    pub receives: Arc<[Arc<str>]>,
    /// What to record.
    pub options: proto::ExecutorOpts,
    /// Whether this is part of a partial run.
    pub is_partial: bool,
    /// Whether this is the last part of it.
    pub is_last_partial_run: bool,
    /// Whether the worker cleans up its part of the step itself when it succeeds, since nobody will request its tensors.
    pub cleans_itself: bool,
}

/// The result of a partition.
#[derive(Clone, Debug, Default)]
pub struct RunGraphReply {
    /// The tensors asked for, in the order of their keys.
    pub received: Vec<Tensor>,
    /// The times of nodes.
    pub step_stats: Option<StepStats>,
    /// The graphs that ran.
    pub partition_graphs: Vec<GraphDef>,
}

/// A tensor to be received.
#[derive(Clone, Debug)]
pub struct RecvTensorCall {
    /// The step.
    pub step_id: i64,
    /// The rendezvous key.
    pub key: Arc<str>,
    /// Names the request.
    pub request_id: i64,
}

/// A tensor that was received.
#[derive(Clone, Debug)]
pub struct ReceivedTensor {
    /// The tensor.
    pub tensor: Tensor,
    /// Whether its producer didn't run.
    pub is_dead: bool,
    /// When the sender had it, in microseconds since the epoch.
    pub send_start_micros: i64,
    /// Whether the sender wants an acknowledgement.
    pub require_ack: bool,
}
