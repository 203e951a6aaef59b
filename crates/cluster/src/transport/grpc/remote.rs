//! [`RemoteWorker`] and [`RemoteMaster`]: the interfaces over gRPC.

use super::messages::*;
use super::wire::Segments;
use super::{CONFIRM_STREAM, Channel, Secured};
use crate::interface::*;
use crate::random::RandomIds;
use crate::task_question::{ASK, TaskAnswer, TaskQuestion};
use crate::tls::Tls;
use crate::transport::stream::{ConfirmStreamRequest, ConfirmStreamResponse, Connection, StreamHub, StreamOffer};
use crate::{PeerTimes, TlsFiles};
use foldhash::HashSet;
use parking_lot::{Mutex, RwLock};
use proto::DeviceAttributes;
use proto::service::{master, worker};
use std::sync::{Arc, LazyLock};
use tensor::{Result, Tensor};
use tracing::{debug, info};

/// A worker in another process. It is asked over gRPC, and once a session was opened there the calls of every step go over a stream,
/// if both tasks take one.
pub(crate) struct RemoteWorker {
    channel: Channel,
    ids: Arc<RandomIds>,
    /// The stream, or how to get one.
    streaming: Option<Arc<Streaming>>,
}

/// How a worker in another process is reached by stream.
struct Streaming {
    /// The streams of this task.
    streams: Arc<StreamHub>,
    /// The worker's task, and its address.
    task: String,
    address: String,
    /// What its task offers, and the incarnation that it has, as it last said.
    offered: RwLock<Option<(StreamOffer, u64)>>,
    opened: RwLock<Option<Arc<Connection>>>,
    /// The devices for which a stream was opened because of a collective op: it is tried once for each.
    tried_for: tokio::sync::Mutex<HashSet<u64>>,
}

impl Streaming {
    /// Takes note of what a task says of itself.
    fn told(&self, devices: &[DeviceAttributes]) {
        if let Some(version) = devices.first().and_then(StreamOffer::other_version) {
            say_once(&self.task, version);
        }
        let offered = devices.first().and_then(|first| Some((StreamOffer::of(first)?, first.incarnation)));
        *self.offered.write() = offered;
    }

    fn stream(&self) -> Option<Arc<Connection>> {
        self.opened.read().clone().filter(|stream| stream.is_usable())
    }

    /// Returns the stream to the task that has this device, if there is one; it is opened if that was not tried for this device.
    async fn stream_to(self: &Arc<Self>, device: &DeviceAttributes, channel: &Channel) -> Option<Arc<Connection>> {
        let is_up = |stream: &Arc<Connection>| stream.is_greeted();
        if let Some(stream) = self.stream().filter(is_up) {
            return Some(stream);
        }
        let mut tried_for = self.tried_for.lock().await;
        if tried_for.len() >= TRIED_MAX {
            tried_for.clear();
        }
        if tried_for.insert(device.incarnation) && StreamOffer::of(device).is_some() {
            // What the device says of itself names no address: that is in what the task says of all its devices.
            if self.stream().is_none() && get_status(channel, Some(self.clone())).await.is_ok() {
                self.open();
            }
            if let Some(stream) = self.stream() {
                let _ = stream.settled().await;
            }
        }
        self.stream().filter(is_up)
    }

    /// Opens the stream that the task has offered. What is sent meanwhile waits.
    fn open(&self) {
        let offered = self.offered.read();
        let Some((offer, incarnation)) = &*offered else { return };
        let address = self.streams.offer().address_of(offer, &self.task, &self.address, *incarnation);
        match self.streams.get(&address) {
            Ok(stream) => *self.opened.write() = Some(stream),
            Err(status) => debug!("{} gets no stream: {status}", self.task),
        }
    }
}

/// A master in another process, as a client sees it.
pub struct RemoteMaster {
    channel: Channel,
    ids: Arc<RandomIds>,
}

/// Says, once for each task, that its release differs from this one.
fn say_once(task: &str, version: u64) {
    static SAID: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);
    let mut said = SAID.lock();
    if said.len() < SAID_MAX && said.insert(task.to_owned()) {
        info!(
            "{task} runs another release, whose streams have version {version}: tensors between it and this task go by gRPC. Run the \
             same release on both, and they go faster"
        );
    }
}

/// For how many devices of a task it is known that a stream was tried. There are more where a task was restarted as often.
const TRIED_MAX: usize = 1 << 10;

/// Of how many tasks it is said that they run another release.
const SAID_MAX: usize = 1 << 10;

impl RemoteWorker {
    /// Makes the interface of a task's worker over a channel.
    pub fn new(
        channel: Channel,
        ids: Arc<RandomIds>,
        task: &str,
        address: &str,
        streams: Option<&Arc<StreamHub>>,
    ) -> RemoteWorker {
        let streaming = streams.map(|streams| {
            let (task, address) = (task.to_owned(), address.to_owned());
            let (offered, opened) = (RwLock::new(None), RwLock::new(None));
            Arc::new(Streaming {
                streams: streams.clone(),
                task,
                address,
                offered,
                opened,
                tried_for: Default::default(),
            })
        });
        RemoteWorker { channel, ids, streaming }
    }

    fn stream(&self) -> Option<Arc<Connection>> {
        self.streaming.as_ref()?.stream()
    }
}

impl RemoteMaster {
    /// Makes the interface of the master at an address (`host:port`). Nothing is connected before the first call.
    pub fn new(address: &str, runtime: tokio::runtime::Handle) -> Result<RemoteMaster> {
        RemoteMaster::secured(address, runtime, None)
    }

    /// As [`new`](Self::new), over TLS. The server must show a certificate for this address, or that of a task of the cluster to which
    /// the own certificate belongs.
    pub fn with_tls(address: &str, runtime: tokio::runtime::Handle, files: TlsFiles) -> Result<RemoteMaster> {
        let secured = Secured { tls: Arc::new(Tls::new(files)?), task: None };
        RemoteMaster::secured(address, runtime, Some(secured))
    }

    fn secured(address: &str, runtime: tokio::runtime::Handle, secured: Option<Secured>) -> Result<RemoteMaster> {
        let channel = Channel::new("the master", address, runtime, PeerTimes::default(), secured)?;
        Ok(RemoteMaster { channel, ids: Arc::new(RandomIds::from_system()) })
    }
}

/// Makes a call whose request and response are plain messages.
fn plain<Req: prost::Message, Resp: prost::Message + Default + 'static>(
    channel: &Channel,
    path: &'static str,
    request: Req,
) -> Answer<Resp> {
    let segments = Segments::from_message(&request, || match path {
        master::CREATE_SESSION | master::EXTEND_SESSION | worker::REGISTER_GRAPH => {
            format!("the GraphDef in the request of {path}")
        }
        _ => format!("the request of {path}"),
    });
    let answer = channel.call(path, segments, None);
    Box::pin(async move { answer.await?.decode() })
}

/// Asks a task for its devices, and takes note of how it takes streams.
fn get_status(channel: &Channel, streaming: Option<Arc<Streaming>>) -> Answer<Vec<DeviceAttributes>> {
    let answer = plain(channel, worker::GET_STATUS, proto::GetStatusRequest {});
    Box::pin(async move {
        let response: proto::GetStatusResponse = answer.await?;
        if let Some(streaming) = streaming {
            streaming.told(&response.device_attributes);
        }
        Ok(response.device_attributes)
    })
}

/// Asks a task for a tensor.
fn recv_tensor(channel: &Channel, call: &RecvTensorCall) -> Answer<ReceivedTensor> {
    let answer = channel.call(worker::RECV_TENSOR, write_recv_tensor(call), Some(RECV_TENSOR_RESPONSE));
    Box::pin(async move { read_recv_tensor_reply(answer.await?) })
}

/// Asks a task whether it is opening a stream to this one.
pub(crate) fn confirm_stream(channel: &Channel, request: ConfirmStreamRequest) -> Answer<ConfirmStreamResponse> {
    plain(channel, CONFIRM_STREAM, request)
}

impl WorkerInterface for RemoteWorker {
    fn get_status(&self) -> Answer<Vec<DeviceAttributes>> {
        get_status(&self.channel, self.streaming.clone())
    }

    fn create_worker_session(&self, request: proto::CreateWorkerSessionRequest) -> Answer<()> {
        let answer = plain(&self.channel, worker::CREATE_WORKER_SESSION, request);
        let streaming = self.streaming.clone();
        Box::pin(async move {
            let _: proto::CreateWorkerSessionResponse = answer.await?;
            if let Some(streaming) = streaming {
                streaming.open();
            }
            Ok(())
        })
    }

    fn delete_worker_session(&self, session_handle: String) -> Answer<()> {
        let request = proto::DeleteWorkerSessionRequest { session_handle };
        let answer = plain(&self.channel, worker::DELETE_WORKER_SESSION, request);
        Box::pin(async move { answer.await.map(|_: proto::DeleteWorkerSessionResponse| ()) })
    }

    fn register_graph(&self, call: RegisterGraphCall) -> Answer<RegisterGraphReply> {
        let graph_def = match call.graph {
            PartitionGraph::Graph(graph) => graph.to_graph_def(),
            PartitionGraph::Def(def) => def,
        };
        let config = call.config.as_deref();
        let request = proto::RegisterGraphRequest {
            session_handle: call.session_handle,
            graph_def: Some(graph_def),
            graph_options: config.and_then(|config| config.graph_options.clone()),
            debug_options: config.map(|_| proto::DebugOptions::default()),
            create_worker_session_called: call.create_worker_session_called,
            config_proto: config.cloned(),
            collective_graph_key: call.collective_graph_key,
            ..Default::default()
        };
        let answer = plain(&self.channel, worker::REGISTER_GRAPH, request);
        Box::pin(async move {
            let response: proto::RegisterGraphResponse = answer.await?;
            Ok(RegisterGraphReply { graph_handle: response.graph_handle, local: None })
        })
    }

    fn deregister_graph(&self, request: proto::DeregisterGraphRequest) -> Answer<()> {
        let answer = plain(&self.channel, worker::DEREGISTER_GRAPH, request);
        Box::pin(async move { answer.await.map(|_: proto::DeregisterGraphResponse| ()) })
    }

    fn run_graph(&self, call: RunGraphCall) -> Answer<RunGraphReply> {
        if !call.is_partial
            && let Some(stream) = self.stream()
        {
            return match stream.run_graph(&call) {
                Ok(pending) => Box::pin(pending.answer()),
                Err(status) => Box::pin(std::future::ready(Err(status))),
            };
        }
        let request = write_run_graph(&call, self.ids.next_request_id());
        let answer = self.channel.call(worker::RUN_GRAPH, request, Some(RUN_GRAPH_RESPONSE));
        let keys = call.receives;
        Box::pin(async move { read_run_graph_reply(answer.await?, &keys) })
    }

    fn cleanup_graph(&self, step_id: i64) -> Answer<()> {
        if let Some(stream) = self.stream() {
            return Box::pin(std::future::ready(stream.cleanup(step_id)));
        }
        let answer = plain(&self.channel, worker::CLEANUP_GRAPH, proto::CleanupGraphRequest { step_id });
        Box::pin(async move { answer.await.map(|_: proto::CleanupGraphResponse| ()) })
    }

    fn cleanup_all(&self, container: Vec<String>) -> Answer<()> {
        let answer = plain(&self.channel, worker::CLEANUP_ALL, proto::CleanupAllRequest { container });
        Box::pin(async move { answer.await.map(|_: proto::CleanupAllResponse| ()) })
    }

    fn recv_tensor(&self, call: RecvTensorCall) -> Answer<ReceivedTensor> {
        recv_tensor(&self.channel, &call)
    }

    fn recv_part(&self, call: RecvTensorCall, from: &DeviceAttributes) -> Answer<Tensor> {
        let Some(streaming) = self.streaming.clone() else {
            let received = recv_tensor(&self.channel, &call);
            return Box::pin(async move { received.await.map(|received| received.tensor) });
        };
        if let Some(stream) = streaming.stream().filter(|stream| stream.is_greeted()) {
            return match stream.recv_part(call.step_id, &call.key) {
                Ok(pending) => Box::pin(pending.part()),
                Err(status) => Box::pin(std::future::ready(Err(status))),
            };
        }
        let (from, channel) = (from.clone(), self.channel.clone());
        Box::pin(async move {
            match streaming.stream_to(&from, &channel).await {
                Some(stream) => stream.recv_part(call.step_id, &call.key)?.part().await,
                None => recv_tensor(&channel, &call).await.map(|received| received.tensor),
            }
        })
    }

    fn mark_recv_finished(&self, request_id: i64) -> Answer<()> {
        let answer = plain(&self.channel, worker::MARK_RECV_FINISHED, proto::MarkRecvFinishedRequest { request_id });
        Box::pin(async move { answer.await.map(|_: proto::MarkRecvFinishedResponse| ()) })
    }

    fn logging(&self, request: proto::LoggingRequest) -> Answer<proto::LoggingResponse> {
        plain(&self.channel, worker::LOGGING, request)
    }

    fn tracing(&self, request: proto::TracingRequest) -> Answer<proto::TracingResponse> {
        plain(&self.channel, worker::TRACING, request)
    }

    fn recv_buf(&self, request: proto::RecvBufRequest) -> Answer<proto::RecvBufResponse> {
        plain(&self.channel, worker::RECV_BUF, request)
    }

    fn complete_group(&self, request: proto::CompleteGroupRequest) -> Answer<proto::CompleteGroupResponse> {
        plain(&self.channel, worker::COMPLETE_GROUP, request)
    }

    fn complete_instance(&self, request: proto::CompleteInstanceRequest) -> Answer<proto::CompleteInstanceResponse> {
        plain(&self.channel, worker::COMPLETE_INSTANCE, request)
    }

    fn get_step_sequence(&self, request: proto::GetStepSequenceRequest) -> Answer<proto::GetStepSequenceResponse> {
        plain(&self.channel, worker::GET_STEP_SEQUENCE, request)
    }

    fn ask(&self, question: TaskQuestion) -> Answer<TaskAnswer> {
        plain(&self.channel, ASK, question)
    }
}

/// Asks the task at an address (`host:port`) how it is.
pub(crate) fn ask_at(address: &str, question: TaskQuestion, runtime: tokio::runtime::Handle) -> Answer<TaskAnswer> {
    match Channel::new("the task", address, runtime, PeerTimes::default(), None) {
        // The channel must live as long as the call.
        Ok(channel) => Box::pin(async move { plain(&channel, ASK, question).await }),
        Err(status) => Box::pin(std::future::ready(Err(status))),
    }
}

impl MasterInterface for RemoteMaster {
    fn create_session(&self, request: proto::CreateSessionRequest) -> Answer<proto::CreateSessionResponse> {
        plain(&self.channel, master::CREATE_SESSION, request)
    }

    fn extend_session(&self, request: proto::ExtendSessionRequest) -> Answer<proto::ExtendSessionResponse> {
        plain(&self.channel, master::EXTEND_SESSION, request)
    }

    fn partial_run_setup(&self, request: proto::PartialRunSetupRequest) -> Answer<String> {
        let answer = plain(&self.channel, master::PARTIAL_RUN_SETUP, request);
        Box::pin(
            async move { answer.await.map(|response: proto::PartialRunSetupResponse| response.partial_run_handle) },
        )
    }

    fn run_step(&self, call: RunStepCall) -> Answer<RunStepReply> {
        let request = write_run_step(&call, self.ids.next_request_id());
        let answer = self.channel.call(master::RUN_STEP, request, Some(RUN_STEP_RESPONSE));
        Box::pin(async move { read_run_step_reply(answer.await?) })
    }

    fn close_session(&self, session_handle: String) -> Answer<()> {
        let answer = plain(&self.channel, master::CLOSE_SESSION, proto::CloseSessionRequest { session_handle });
        Box::pin(async move { answer.await.map(|_: proto::CloseSessionResponse| ()) })
    }

    fn list_devices(&self, session_handle: String) -> Answer<proto::ListDevicesResponse> {
        plain(&self.channel, master::LIST_DEVICES, proto::ListDevicesRequest { session_handle })
    }

    fn reset(&self, request: proto::ResetRequest) -> Answer<()> {
        let answer = plain(&self.channel, master::RESET, request);
        Box::pin(async move { answer.await.map(|_: proto::ResetResponse| ()) })
    }

    fn make_callable(&self, request: proto::MakeCallableRequest) -> Answer<i64> {
        let answer = plain(&self.channel, master::MAKE_CALLABLE, request);
        Box::pin(async move { answer.await.map(|response: proto::MakeCallableResponse| response.handle) })
    }

    fn run_callable(&self, call: RunCallableCall) -> Answer<RunCallableReply> {
        let request = write_run_callable(&call, self.ids.next_request_id());
        let answer = self.channel.call(master::RUN_CALLABLE, request, Some(RUN_CALLABLE_RESPONSE));
        Box::pin(async move { read_run_callable_reply(answer.await?) })
    }

    fn release_callable(&self, request: proto::ReleaseCallableRequest) -> Answer<()> {
        let answer = plain(&self.channel, master::RELEASE_CALLABLE, request);
        Box::pin(async move { answer.await.map(|_: proto::ReleaseCallableResponse| ()) })
    }
}
