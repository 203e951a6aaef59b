//! [`StreamedWorker`]: a worker in another process. Once a session is open on it, the calls of every step use a stream if both
//! tasks support one; other calls use gRPC.

use super::stream::{Connection, StreamHub, StreamOffer};
use crate::interface::*;
use crate::task_question::{TaskAnswer, TaskQuestion};
use foldhash::HashSet;
use parking_lot::{Mutex, RwLock};
use proto::DeviceAttributes;
use std::future::ready;
use std::sync::{Arc, LazyLock};
use tensor::Tensor;
use tracing::{debug, info};

/// A worker in another process, and the stream to it.
pub(crate) struct StreamedWorker {
    worker: Arc<dyn WorkerInterface>,
    streaming: Arc<Streaming>,
}

/// The stream to a worker in another process.
struct Streaming {
    /// The streams of this task.
    streams: Arc<StreamHub>,
    /// The worker's task, and its address.
    task: String,
    address: String,
    /// The offer of its task, and its incarnation, as last reported.
    offered: RwLock<Option<(StreamOffer, u64)>>,
    opened: RwLock<Option<Arc<Connection>>>,
    /// The devices for which a stream was opened because of a collective op: it is tried once for each.
    tried_for: tokio::sync::Mutex<HashSet<u64>>,
}

impl Streaming {
    /// Records the report of a task.
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

    /// Returns the stream to the task with this device, if there is one; it is opened unless that was tried for this device.
    async fn stream_to(&self, device: &DeviceAttributes, worker: &dyn WorkerInterface) -> Option<Arc<Connection>> {
        let is_up = |stream: &Arc<Connection>| stream.is_greeted();
        if let Some(stream) = self.stream().filter(is_up) {
            return Some(stream);
        }
        let mut tried_for = self.tried_for.lock().await;
        if tried_for.len() >= TRIED_MAX {
            tried_for.clear();
        }
        if tried_for.insert(device.incarnation) && StreamOffer::of(device).is_some() {
            // The device's own description has no address: the task's list of its devices has it.
            if self.stream().is_none()
                && let Ok(devices) = worker.get_status().await
            {
                self.told(&devices);
                self.open();
            }
            if let Some(stream) = self.stream() {
                let _ = stream.settled().await;
            }
        }
        self.stream().filter(is_up)
    }

    /// Opens the stream that the task has offered. Frames are queued meanwhile.
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

/// Logs, once for each task, that its release differs from this one.
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

/// The most devices of a task for which an attempt is remembered. There are more only if a task was restarted as often.
const TRIED_MAX: usize = 1 << 10;

/// The most tasks that are logged as running another release.
const SAID_MAX: usize = 1 << 10;

impl StreamedWorker {
    /// Returns the interface of a worker that is called through `worker` if there is no stream.
    pub fn new(
        worker: Arc<dyn WorkerInterface>,
        task: &str,
        address: &str,
        streams: &Arc<StreamHub>,
    ) -> StreamedWorker {
        let (task, address) = (task.to_owned(), address.to_owned());
        let (offered, opened) = (RwLock::new(None), RwLock::new(None));
        StreamedWorker {
            worker,
            streaming: Arc::new(Streaming {
                streams: streams.clone(),
                task,
                address,
                offered,
                opened,
                tried_for: tokio::sync::Mutex::default(),
            }),
        }
    }

    fn stream(&self) -> Option<Arc<Connection>> {
        self.streaming.stream()
    }
}

impl WorkerInterface for StreamedWorker {
    fn get_status(&self) -> Answer<Vec<DeviceAttributes>> {
        let (answer, streaming) = (self.worker.get_status(), self.streaming.clone());
        Box::pin(async move {
            let devices = answer.await?;
            streaming.told(&devices);
            Ok(devices)
        })
    }

    fn create_worker_session(&self, request: proto::CreateWorkerSessionRequest) -> Answer<()> {
        let (answer, streaming) = (self.worker.create_worker_session(request), self.streaming.clone());
        Box::pin(async move {
            answer.await?;
            streaming.open();
            Ok(())
        })
    }

    fn delete_worker_session(&self, session_handle: String) -> Answer<()> {
        self.worker.delete_worker_session(session_handle)
    }

    fn register_graph(&self, call: RegisterGraphCall) -> Answer<RegisterGraphReply> {
        self.worker.register_graph(call)
    }

    fn deregister_graph(&self, request: proto::DeregisterGraphRequest) -> Answer<()> {
        self.worker.deregister_graph(request)
    }

    fn run_graph(&self, call: RunGraphCall) -> Answer<RunGraphReply> {
        if !call.is_partial
            && let Some(stream) = self.stream()
        {
            return match stream.run_graph(&call) {
                Ok(pending) => Box::pin(pending.answer()),
                Err(status) => Box::pin(ready(Err(status))),
            };
        }
        self.worker.run_graph(call)
    }

    fn cleanup_graph(&self, step_id: i64) -> Answer<()> {
        match self.stream() {
            Some(stream) => Box::pin(ready(stream.cleanup(step_id))),
            None => self.worker.cleanup_graph(step_id),
        }
    }

    fn cleanup_all(&self, containers: Vec<String>) -> Answer<()> {
        self.worker.cleanup_all(containers)
    }

    fn recv_tensor(&self, call: RecvTensorCall) -> Answer<ReceivedTensor> {
        self.worker.recv_tensor(call)
    }

    fn recv_part(&self, call: RecvTensorCall, from: &DeviceAttributes) -> Answer<Tensor> {
        if let Some(stream) = self.stream().filter(|stream| stream.is_greeted()) {
            return match stream.recv_part(call.step_id, &call.key) {
                Ok(pending) => Box::pin(pending.part()),
                Err(status) => Box::pin(ready(Err(status))),
            };
        }
        let (streaming, worker, from) = (self.streaming.clone(), self.worker.clone(), from.clone());
        Box::pin(async move {
            match streaming.stream_to(&from, &*worker).await {
                Some(stream) => stream.recv_part(call.step_id, &call.key)?.part().await,
                None => worker.recv_part(call, &from).await,
            }
        })
    }

    fn mark_recv_finished(&self, request_id: i64) -> Answer<()> {
        self.worker.mark_recv_finished(request_id)
    }

    fn logging(&self, request: proto::LoggingRequest) -> Answer<proto::LoggingResponse> {
        self.worker.logging(request)
    }

    fn tracing(&self, request: proto::TracingRequest) -> Answer<proto::TracingResponse> {
        self.worker.tracing(request)
    }

    fn recv_buf(&self, request: proto::RecvBufRequest) -> Answer<proto::RecvBufResponse> {
        self.worker.recv_buf(request)
    }

    fn complete_group(&self, request: proto::CompleteGroupRequest) -> Answer<proto::CompleteGroupResponse> {
        self.worker.complete_group(request)
    }

    fn complete_instance(&self, request: proto::CompleteInstanceRequest) -> Answer<proto::CompleteInstanceResponse> {
        self.worker.complete_instance(request)
    }

    fn get_step_sequence(&self, request: proto::GetStepSequenceRequest) -> Answer<proto::GetStepSequenceResponse> {
        self.worker.get_step_sequence(request)
    }

    fn ask(&self, question: TaskQuestion) -> Answer<TaskAnswer> {
        self.worker.ask(question)
    }
}
