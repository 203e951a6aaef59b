//! [`MasterInterface`] and [`WorkerInterface`]: what a client asks of a master and a master of a worker. Each is
//! implemented in this process and over gRPC, so that an embedded cluster is the same code without sockets.

use crate::task_question::{TaskAnswer, TaskQuestion};
use futures_util::future::BoxFuture;
use graph::NodeGraph;
use kernel::Cancellation;
use proto::{DeviceAttributes, GraphDef, RunMetadata, RunOptions, StepStats};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensor::{Result, Tensor};

/// The answer to a call, for whoever polls it; dropping it gives up whatever of the call has not been done by then.
pub type Answer<T> = BoxFuture<'static, Result<T>>;

/// What a client asks of the server that it is connected to.
pub trait MasterInterface: Send + Sync {
    /// Opens a session on a graph; returns its handle and the version of its graph.
    fn create_session(&self, request: proto::CreateSessionRequest) -> Answer<proto::CreateSessionResponse>;

    /// Adds nodes to a session's graph.
    fn extend_session(&self, request: proto::ExtendSessionRequest) -> Answer<proto::ExtendSessionResponse>;

    /// Prepares a step that will be fed and fetched bit by bit; returns its handle.
    fn partial_run_setup(&self, request: proto::PartialRunSetupRequest) -> Answer<String>;

    /// Runs one step, or a part of one.
    fn run_step(&self, call: RunStepCall) -> Answer<RunStepReply>;

    /// Ends a session.
    fn close_session(&self, session_handle: String) -> Answer<()>;

    /// Lists the devices that a session can use; without a session, those of the whole cluster.
    fn list_devices(&self, session_handle: String) -> Answer<proto::ListDevicesResponse>;

    /// Ends all sessions and drops the resources in the given containers.
    fn reset(&self, request: proto::ResetRequest) -> Answer<()>;

    /// Prepares a step that will be run many times; returns its handle.
    fn make_callable(&self, request: proto::MakeCallableRequest) -> Answer<i64>;

    /// Runs a callable.
    fn run_callable(&self, call: RunCallableCall) -> Answer<RunCallableReply>;

    /// Drops a callable.
    fn release_callable(&self, request: proto::ReleaseCallableRequest) -> Answer<()>;

    /// Returns a session whose steps can run on the thread that asks for them: its master and its only task are in this process.
    fn local_session(&self, _session_handle: &str) -> Option<Arc<dyn LocalSession>> {
        None
    }
}

/// A session of which all is in this process.
pub trait LocalSession: Send + Sync {
    /// Runs a step on this thread and waits for its end; the fetched tensors come in their order. `None` says that the run has to
    /// be compiled first, which [`MasterInterface::run_step`] does.
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
    /// The partial run that the step continues, or nothing.
    pub partial_run_handle: String,
}

/// What a step returned.
#[derive(Clone, Debug, Default)]
pub struct RunStepReply {
    /// The fetched tensors by name, in the order of the request.
    pub tensors: Vec<(String, Tensor)>,
    /// What was recorded; absent in all but the last call of a partial run.
    pub metadata: Option<RunMetadata>,
}

/// A callable to be run.
#[derive(Clone, Debug, Default)]
pub struct RunCallableCall {
    /// The session.
    pub session_handle: String,
    /// The callable.
    pub handle: i64,
    /// The tensors to feed, in the order in which the callable was made for them.
    pub feeds: Vec<Tensor>,
}

/// What a callable returned.
#[derive(Clone, Debug, Default)]
pub struct RunCallableReply {
    /// The fetched tensors in order.
    pub fetches: Vec<Tensor>,
    /// What was recorded.
    pub metadata: RunMetadata,
}

/// What a master asks of a worker, and workers of each other.
pub trait WorkerInterface: Send + Sync {
    /// Asks whether the worker is there, and for its devices.
    fn get_status(&self) -> Answer<Vec<DeviceAttributes>>;

    /// Tells of a session that its master has opened.
    fn create_worker_session(&self, request: proto::CreateWorkerSessionRequest) -> Answer<()>;

    /// Ends a session.
    fn delete_worker_session(&self, session_handle: String) -> Answer<()>;

    /// Hands over a partition of a graph.
    fn register_graph(&self, call: RegisterGraphCall) -> Answer<RegisterGraphReply>;

    /// Drops a partition.
    fn deregister_graph(&self, request: proto::DeregisterGraphRequest) -> Answer<()>;

    /// Runs a partition for one step. When this returns, a worker in this process has started it, and a request to another one is
    /// on its way: nothing of it waits for the answer to be polled.
    fn run_graph(&self, call: RunGraphCall) -> Answer<RunGraphReply>;

    /// Drops what is left of a step. A worker in this process has done so when this returns.
    fn cleanup_graph(&self, step_id: i64) -> Answer<()>;

    /// Drops the resources in the given containers; none means the default one.
    fn cleanup_all(&self, containers: Vec<String>) -> Answer<()>;

    /// Waits for a tensor that this worker produces in a step.
    fn recv_tensor(&self, call: RecvTensorCall) -> Answer<ReceivedTensor>;

    /// Waits for a part of a collective op's tensor that a device of this worker gives, and that the rendezvous key of the call names.
    fn recv_part(&self, call: RecvTensorCall, from: &DeviceAttributes) -> Answer<Tensor>;

    /// Says that the answer to a request has arrived, so that it need not be kept.
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

    /// Asks which step ids come next for collective graphs.
    fn get_step_sequence(&self, request: proto::GetStepSequenceRequest) -> Answer<proto::GetStepSequenceResponse>;

    /// Asks how the task is, for people who look at its cluster.
    fn ask(&self, question: TaskQuestion) -> Answer<TaskAnswer>;
}

/// A partition to be registered.
#[derive(Clone)]
pub struct RegisterGraphCall {
    /// The session.
    pub session_handle: String,
    /// Whether the worker was told of the session.
    pub create_worker_session_called: bool,
    /// The partition.
    pub graph: PartitionGraph,
    /// The session's settings, which tasks of TensorFlow look at.
    pub config: Option<Arc<proto::ConfigProto>>,
    /// What the steps of its collective ops are numbered by; 0 if it has none.
    pub collective_graph_key: i64,
}

/// The graph of a partition: itself within a process, and as a message between processes.
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

/// A partition that was registered.
pub struct RegisterGraphReply {
    /// What the worker calls it.
    pub graph_handle: String,
    /// The partition itself, if it is in this process and talks to no other task.
    pub local: Option<Arc<dyn LocalGraph>>,
}

/// A registered partition in this process that talks to no other task, so that its steps concern nobody but the caller.
pub trait LocalGraph: Send + Sync {
    /// Runs a step on this thread and waits for its end. The arguments and the results are in the order in which the graph has the
    /// nodes of its feeds and fetches.
    fn run(&self, call: LocalStepCall<'_>) -> Result<Vec<Tensor>>;
}

/// A step of a [`LocalGraph`].
pub struct LocalStepCall<'a> {
    /// The step.
    pub step_id: i64,
    /// The fed tensors.
    pub arguments: &'a mut dyn Iterator<Item = Tensor>,
    /// When it is given up.
    pub deadline: Option<Instant>,
    /// Ends it early.
    pub cancellation: &'a Cancellation,
}

/// A partition to be run.
#[derive(Clone, Debug)]
pub struct RunGraphCall {
    /// The session.
    pub session_handle: Arc<str>,
    /// Whether the worker was told of the session.
    pub create_worker_session_called: bool,
    /// The partition.
    pub graph_handle: Arc<str>,
    /// The step.
    pub step_id: i64,
    /// The tensors to put into the step's rendezvous, by their keys.
    pub sends: Vec<(Arc<str>, Tensor)>,
    /// The keys of the tensors to take out of it.
    pub receives: Arc<[Arc<str>]>,
    /// What to record.
    pub options: proto::ExecutorOpts,
    /// Whether this is part of a partial run.
    pub is_partial: bool,
    /// Whether this is the last part of it.
    pub is_last_partial_run: bool,
    /// Whether the worker ends its part of the step by itself when it succeeds: nobody will ask for its tensors.
    pub cleans_itself: bool,
}

/// What a partition returned.
#[derive(Clone, Debug, Default)]
pub struct RunGraphReply {
    /// The tensors asked for, in the order of their keys.
    pub received: Vec<Tensor>,
    /// When nodes ran.
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
    /// Whether the sender wants to be told that it arrived.
    pub require_ack: bool,
}
