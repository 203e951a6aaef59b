//! [`RemoteWorker`] and [`RemoteMaster`]: the interfaces over gRPC.

use super::client_terminals::with_transfers;
use super::messages::*;
use super::wire::Segments;
use super::{CONFIRM_STREAM, Channel, Secured};
use crate::interface::*;
use crate::random::RandomIds;
use crate::task_question::{ASK, TaskAnswer, TaskQuestion};
use crate::tls::Tls;
use crate::transport::stream::{ConfirmStreamRequest, ConfirmStreamResponse};
use crate::{PeerTimes, TlsFiles};
use proto::DeviceAttributes;
use proto::service::{master, worker};
use std::sync::Arc;
use tensor::{Result, Tensor};

/// A worker in another process, called over gRPC.
pub(crate) struct RemoteWorker {
    channel: Channel,
    ids: Arc<RandomIds>,
}

/// A client's view of a master in another process.
pub struct RemoteMaster {
    channel: Channel,
    ids: Arc<RandomIds>,
}

impl RemoteWorker {
    /// Makes the interface of a task's worker over a channel.
    pub fn new(channel: Channel, ids: Arc<RandomIds>) -> RemoteWorker {
        RemoteWorker { channel, ids }
    }
}

impl RemoteMaster {
    /// Returns the interface of the master at an address (`host:port`). It connects on the first call.
    pub fn new(address: &str, runtime: tokio::runtime::Handle) -> Result<RemoteMaster> {
        RemoteMaster::secured(address, runtime, None)
    }

    /// As [`new`](Self::new), over TLS. The server must present a certificate for this address, or that of a task of the own
    /// certificate's cluster.
    pub fn with_tls(address: &str, runtime: tokio::runtime::Handle, files: TlsFiles) -> Result<RemoteMaster> {
        let secured = Secured { tls: Arc::new(Tls::new(files)?), task: None };
        RemoteMaster::secured(address, runtime, Some(secured))
    }

    fn secured(address: &str, runtime: tokio::runtime::Handle, secured: Option<Secured>) -> Result<RemoteMaster> {
        let channel = Channel::new("the master", address, runtime, PeerTimes::default(), secured)?;
        Ok(RemoteMaster { channel, ids: Arc::new(RandomIds::from_system()) })
    }
}

/// Makes a call with plain messages as request and response.
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
        let answer = plain(&self.channel, worker::GET_STATUS, proto::GetStatusRequest {});
        Box::pin(async move { answer.await.map(|response: proto::GetStatusResponse| response.device_attributes) })
    }

    fn create_worker_session(&self, request: proto::CreateWorkerSessionRequest) -> Answer<()> {
        let answer = plain(&self.channel, worker::CREATE_WORKER_SESSION, request);
        Box::pin(async move { answer.await.map(|_: proto::CreateWorkerSessionResponse| ()) })
    }

    fn delete_worker_session(&self, session_handle: String) -> Answer<()> {
        let request = proto::DeleteWorkerSessionRequest { session_handle };
        let answer = plain(&self.channel, worker::DELETE_WORKER_SESSION, request);
        Box::pin(async move { answer.await.map(|_: proto::DeleteWorkerSessionResponse| ()) })
    }

    fn register_graph(&self, call: RegisterGraphCall) -> Answer<RegisterGraphReply> {
        let graph_def = with_transfers(match call.graph {
            PartitionGraph::Graph(graph) => graph.to_graph_def(),
            PartitionGraph::Def(def) => def,
        });
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
        let request = write_run_graph(&call, self.ids.next_request_id());
        let answer = self.channel.call(worker::RUN_GRAPH, request, Some(RUN_GRAPH_RESPONSE));
        let keys = call.receives;
        Box::pin(async move { read_run_graph_reply(answer.await?, &keys) })
    }

    fn cleanup_graph(&self, step_id: i64) -> Answer<()> {
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

    fn recv_part(&self, call: RecvTensorCall, _from: &DeviceAttributes) -> Answer<Tensor> {
        let received = recv_tensor(&self.channel, &call);
        Box::pin(async move { received.await.map(|received| received.tensor) })
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
