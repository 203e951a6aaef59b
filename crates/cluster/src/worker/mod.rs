//! [`Worker`]: the worker service of one task. It keeps the partitions that masters register, runs them, and passes the tensors
//! that they send to other tasks.

mod buf_rendezvous;
mod collective;
mod early_pushes;
mod expected_keys;
mod graph_mgr;
mod local_graph;
mod masters;
mod partial_run;
mod recipient;
mod recording;
mod rendezvous_mgr;
mod session;
mod spread;
mod step_log;
mod step_sequence;
mod step_state;
mod survey;
mod watch;

pub(crate) use recipient::Recipient;
pub(crate) use step_log::StepLog;
pub(crate) use step_sequence::{LeaderWorker, StepSequences};
pub(crate) use step_state::{LinkId, PeerLink, Receiver, RemoteReceive, StepProgress, StepState, Transfers};
pub(crate) use watch::watch;

use crate::ClusterSpec;
use crate::client::caller;
use crate::device::{LocalDevice, task_name, task_of};
use crate::interface::*;
use crate::random::RandomIds;
use crate::shares::Shares;
use crate::spawner::Spawner;
use crate::task_question::{TaskAnswer, TaskQuestion};
use collective::CollectiveMgr;
use expected_keys::ExpectedKeys;
use graph_mgr::{GraphMgr, GraphStep, RegisteredGraph, StepContext};
use kernel::{Logger, OpRegistry, Rendezvous, RendezvousKey, ResourceManager, SessionState};
use local_graph::RegisteredHere;
use masters::{Masters, Sessions};
use parking_lot::Mutex;
use partial_run::PartialSteps;
use proto::DeviceAttributes;
use recording::Recording;
use rendezvous_mgr::RendezvousMgr;
use session::WorkerSession;
use spread::{Spread, SpreadHandle};
use std::future::ready;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use step_log::now_micros;
use tensor::{Account, Result, Status, Tensor};
use tokio::sync::oneshot;
use watch::Watch;

/// The worker service of one task.
pub(crate) struct Worker {
    devices: Vec<LocalDevice>,
    registry: &'static OpRegistry,
    sessions: Sessions,
    masters: Masters,
    /// The number of sessions that each client may have.
    places: Arc<Shares>,
    /// For masters that open no worker session.
    default_session: Arc<WorkerSession>,
    steps: Arc<RendezvousMgr>,
    /// The transfers that registered graphs receive.
    expected: Arc<ExpectedKeys>,
    /// Watches steps that wait for other tasks.
    watch: Watch,
    partial_steps: Arc<PartialSteps>,
    step_context: Arc<StepContext>,
    /// The other tasks of this task's own cluster.
    transfers: Arc<dyn Transfers>,
    /// Logs transfers on request.
    log: Arc<StepLog>,
    /// Runs background work.
    spawner: Spawner,
    ids: Arc<RandomIds>,
    collectives: Arc<CollectiveMgr>,
    step_sequences: Arc<StepSequences>,
    /// Traces steps for monitoring.
    recording: Arc<Recording>,
    /// Answers questions about the task's state, which needs more than the worker.
    answers: OnceLock<AnswersQuestions>,
}

/// What answers questions about a task.
pub(crate) type AnswersQuestions = Box<dyn Fn(TaskQuestion) -> Answer<TaskAnswer> + Send + Sync>;

/// The worker's configuration of collective ops.
pub(crate) struct CollectiveSetup {
    /// The task that leads collective groups; without one, each task leads its own.
    pub leader: Option<String>,
    /// The interval at which to check whether awaited members are still running.
    pub check: Duration,
    /// The step ids of collective graphs.
    pub step_sequences: Arc<StepSequences>,
}

/// The most open worker sessions; masters that crash leave theirs behind.
const SESSIONS_MAX: usize = 1 << 16;

/// A client may have this many times as many worker sessions as are free: alone, seven eighths of them.
const SESSIONS_SHARE_FACTOR: usize = 7;

impl Worker {
    /// Returns the worker of a task.
    pub fn new(
        devices: Vec<LocalDevice>,
        registry: &'static OpRegistry,
        transfers: Arc<dyn Transfers>,
        log: Arc<StepLog>,
        logger: Arc<dyn Logger>,
        spawner: Spawner,
        ids: Arc<RandomIds>,
        collective: CollectiveSetup,
    ) -> Worker {
        let expected = Arc::new(ExpectedKeys::default());
        let default_session = Arc::new(WorkerSession {
            _place: None,
            alive: Arc::default(),
            devices: devices.clone(),
            state: Arc::new(SessionState::new()),
            graphs: GraphMgr::new(registry, expected.clone()).with_spread(Arc::new(SpreadHandle(Arc::new(Spread {
                registry,
                devices: devices.clone(),
                transfers: transfers.clone(),
                spawner: spawner.clone(),
                ids: ids.clone(),
                session_handle: None,
            })))),
            master: Default::default(),
            transfers: transfers.clone(),
        });
        let steps = Arc::new(RendezvousMgr::new(expected.clone()));
        let collectives = CollectiveMgr::new(
            collective.leader,
            devices.iter().map(LocalDevice::attributes).collect(),
            transfers.clone(),
            steps.clone(),
            spawner.clone(),
            ids.clone(),
            collective.check,
        );
        Worker {
            devices,
            registry,
            sessions: Sessions::default(),
            masters: Masters::default(),
            places: Shares::new(SESSIONS_MAX, SESSIONS_SHARE_FACTOR),
            default_session,
            steps,
            expected,
            watch: Watch::default(),
            partial_steps: Arc::new(PartialSteps::default()),
            step_context: Arc::new(StepContext {
                runner: executor::default_runner(),
                logger,
                collectives: collectives.clone(),
            }),
            transfers,
            log,
            spawner,
            ids,
            collectives,
            step_sequences: collective.step_sequences,
            recording: Arc::default(),
            answers: OnceLock::new(),
        }
    }

    /// Sets the answerer of questions about the task.
    pub fn set_answers(&self, answers: AnswersQuestions) {
        let _ = self.answers.set(answers);
    }

    /// Traces the next steps, within a few seconds.
    pub fn record(&self, steps: u64) -> impl Future<Output = Vec<(i64, proto::StepStats)>> + Send + use<> {
        let recording = self.recording.clone();
        async move { recording.record(steps).await }
    }

    /// Ends every step, because the task is stopping.
    pub fn stop(&self) {
        self.steps.abort_all(&Status::unavailable(format!("{} is stopping", self.transfers.task())));
        self.sessions.write().clear();
    }

    /// Returns what ends the steps of sessions that have ended.
    fn sessions_ended(&self) -> SessionsEnded {
        SessionsEnded {
            steps: self.steps.clone(),
            partial_steps: self.partial_steps.clone(),
            transfers: self.transfers.clone(),
        }
    }

    /// Returns the number of partial runs.
    pub fn num_partial_steps(&self) -> usize {
        self.partial_steps.len()
    }

    /// Returns the number of sessions that masters of other tasks have open here.
    pub fn num_sessions_of_others(&self) -> usize {
        let own = self.transfers.task();
        self.sessions.read().values().filter(|session| session.master.0 != own).count()
    }

    fn session(&self, handle: &str, create_worker_session_called: bool) -> Result<Arc<WorkerSession>> {
        if let Some(session) = self.sessions.read().get(handle) {
            return Ok(session.clone());
        }
        if !create_worker_session_called {
            return Ok(self.default_session.clone());
        }
        Err(Status::aborted(format!(
            "Session handle is not found: {handle}. Possibly this worker (\"{}\") just restarted.",
            self.transfers.task()
        )))
    }

    fn make_session(&self, request: &proto::CreateWorkerSessionRequest) -> Result<WorkerSession> {
        let own_cluster =
            request.server_def.as_ref().and_then(|def| def.cluster.as_ref().map(|cluster| (def, cluster)));
        let (mut devices, transfers) = match own_cluster.filter(|(_, cluster)| !cluster.job.is_empty()) {
            None => (self.devices.clone(), self.transfers.clone()),
            Some((def, cluster)) => {
                let index = u32::try_from(def.task_index)
                    .map_err(|_| Status::invalid_argument(format!("task index {} is negative", def.task_index)))?;
                let task = task_name(&def.job_name, index);
                let devices = self.devices.iter().map(|device| device.renamed(&task)).collect::<Result<_>>()?;
                (devices, self.transfers.for_cluster(ClusterSpec::from_proto(cluster)?, task))
            }
        };
        if request.isolate_session_state {
            for device in &mut devices {
                device.resources = Arc::new(ResourceManager::new());
            }
        }
        let client = caller().client;
        let place = self.places.take(client).ok_or_else(|| {
            Status::resource_exhausted(format!(
                "{client} has as many worker sessions on this task as it may have: others need some of the {SESSIONS_MAX}, too"
            ))
        })?;
        let spread = Spread {
            registry: self.registry,
            devices: devices.clone(),
            transfers: transfers.clone(),
            spawner: self.spawner.clone(),
            ids: self.ids.clone(),
            session_handle: Some(request.session_handle.as_str().into()),
        };
        Ok(WorkerSession {
            _place: Some(place),
            alive: Arc::default(),
            devices,
            state: Arc::new(SessionState::with_account(Account::of(&request.session_handle))),
            graphs: GraphMgr::new(self.registry, self.expected.clone())
                .with_spread(Arc::new(SpreadHandle(Arc::new(spread)))),
            master: (request.master_task.clone(), request.master_incarnation),
            transfers,
        })
    }

    fn start_graph(&self, mut call: RunGraphCall) -> Result<Answer<RunGraphReply>> {
        let started_micros = self.transfers.metrics().clock.now_micros();
        let session = self.session(&call.session_handle, call.create_worker_session_called)?;
        for (key, tensor) in &mut call.sends {
            let charged = tensor.charge_to(session.state.account());
            charged.map_err(|status| status.context(format!("the feed of key {key}")))?;
        }
        let graph = session.graphs.find(&call.graph_handle)?;
        let step = self.steps.start(call.step_id, &session.transfers, Arc::downgrade(&session.alive))?;
        step.started_micros.store(started_micros, Ordering::Relaxed);
        let rendezvous: Arc<dyn Rendezvous> = session.transfers.clone().rendezvous(step.clone());
        if call.is_partial {
            return partial_run::run(&self.partial_steps, graph, step, rendezvous, &self.step_context, call);
        }
        let is_traced = call.options.record_timeline || call.options.record_costs;
        // A trace that a client has requested is for the client only.
        let recording = (!is_traced && self.recording.wants_step()).then(|| self.recording.clone());
        let is_traced = is_traced || recording.is_some();
        let prepared = graph.prepare(call.sends, &step, &rendezvous, &self.step_context, is_traced)?;
        let (given_up, steps) = (self.steps.clone(), call.cleans_itself.then(|| self.steps.clone()));
        let transfers = session.transfers.clone();
        let running = StepUnderWay {
            graph,
            prepared,
            step,
            transfers,
            keys: call.receives,
            options: call.options,
            steps,
            started_micros,
            recording,
        };
        let mut outcome = run_executors(&running.prepared, &running.step);
        Ok(match outcome.try_recv() {
            // Most steps of a ps end right here, without a task or a wake-up.
            Ok(outcome) if outcome.is_err() || running.step.is_delivering() => Box::pin(ready(running.reply(outcome))),
            ended => {
                let guard = CancelOnDrop::new(&running.step, Some((&running.transfers, &given_up)));
                Box::pin(async move {
                    let ended = match ended {
                        Ok(ended) => ended,
                        Err(_) => outcome.await.unwrap_or_else(|_| Err(ended_silently())),
                    };
                    // A step that could not deliver its tensors has failed, even though all of its nodes have run.
                    let ended = match ended {
                        Ok(()) if !running.step.is_delivering() => running.step.delivered().await,
                        ended => ended,
                    };
                    guard.disarm();
                    running.reply(ended)
                })
            }
        })
    }

    /// Waits for a part of a collective op's tensor from this task.
    fn part(&self, step_id: i64, key: &str) -> Answer<Tensor> {
        let part = RendezvousKey::parse(key).and_then(|key| {
            let part = self.collectives.part_by_key(step_id, &key);
            part.ok_or_else(|| Status::invalid_argument(format!("'{}' names no part of a collective op", key.as_str())))
        });
        part.unwrap_or_else(|status| answer(Err(status)))
    }

    fn receive(&self, call: &RecvTensorCall) -> Result<Answer<ReceivedTensor>> {
        let key = RendezvousKey::parse(&call.key)?;
        if let Some(part) = self.collectives.part_by_key(call.step_id, &key) {
            return Ok(Box::pin(async move { part.await.map(|tensor| received_tensor(tensor, false)) }));
        }
        let incarnation = key.source_incarnation();
        // Not by name, which may differ in a session's own cluster.
        if !self.devices.iter().any(|device| device.incarnation == incarnation) {
            return Err(Status::aborted(format!(
                "RecvTensor expects a different device incarnation: {incarnation} vs. {}. Your worker job (\"{}\") was \
                 probably restarted. Check your worker job for the reason why it was restarted.",
                self.devices.first().map_or(0, |device| device.incarnation),
                self.transfers.task()
            )));
        }
        let step = self.steps.find_or_create(call.step_id)?;
        let waiting = self.steps.wait_in(&step)?;
        let (sender, mut receiver) = oneshot::channel();
        step.local.receive_by_name(&call.key, Box::new(move |outcome| drop(sender.send(outcome))));
        let peer = self.transfers.metrics().peer(task_of(key.destination_device())).cloned();
        let step_id = call.step_id;
        let received = move |outcome: Result<(Tensor, bool)>| {
            outcome.map(|(tensor, is_dead)| {
                if let Some(peer) = &peer {
                    peer.sent(step_id, tensor.num_bytes());
                }
                received_tensor(tensor, is_dead)
            })
        };
        if let Ok(outcome) = receiver.try_recv() {
            return Ok(Box::pin(ready(received(outcome))));
        }
        Ok(Box::pin(async move {
            let outcome = receiver.await;
            drop(waiting);
            received(outcome.unwrap_or_else(|_| Err(Status::cancelled("the step is over").derived())))
        }))
    }
}

fn received_tensor(tensor: Tensor, is_dead: bool) -> ReceivedTensor {
    ReceivedTensor { tensor, is_dead, send_start_micros: now_micros(), require_ack: false }
}

fn ended_silently() -> Status {
    Status::internal("a step ended without a word")
}

/// A running step of a partition.
struct StepUnderWay {
    graph: Arc<RegisteredGraph>,
    prepared: GraphStep,
    step: Arc<StepState>,
    transfers: Arc<dyn Transfers>,
    keys: Arc<[Arc<str>]>,
    options: proto::ExecutorOpts,
    /// Where the step cleans up itself, if it does.
    steps: Option<Arc<RendezvousMgr>>,
    /// When it was requested.
    started_micros: u64,
    /// Gets its trace, if it is traced for monitoring.
    recording: Option<Arc<Recording>>,
}

impl StepUnderWay {
    fn reply(&self, outcome: Result<()>) -> Result<RunGraphReply> {
        let metrics = self.transfers.metrics();
        metrics.partition_ended(self.step.id, self.started_micros, outcome.as_ref().err());
        let mut step_stats = self.prepared.step_stats();
        if let Some(recording) = &self.recording {
            recording.take_step(self.step.id, step_stats.take().unwrap_or_default());
        }
        if let Err(status) = outcome {
            self.transfers.forget_step(self.step.id);
            return Err(status);
        }
        if let Some(steps) = &self.steps {
            steps.cleanup(self.step.id);
        }
        Ok(RunGraphReply {
            received: self.graph.results(&self.prepared, &self.keys)?,
            step_stats,
            partition_graphs: match self.options.record_partition_graphs {
                true => self.graph.partition_graphs(),
                false => Vec::new(),
            },
        })
    }
}

/// Runs a step on all its devices. A failure on one cancels the step on all.
fn run_executors(prepared: &GraphStep, step: &Arc<StepState>) -> oneshot::Receiver<Result<()>> {
    struct Ending {
        remaining: AtomicUsize,
        outcome: Mutex<(Result<()>, Option<oneshot::Sender<Result<()>>>)>,
        step: Arc<StepState>,
    }
    let (sender, receiver) = oneshot::channel();
    if prepared.num_devices() == 0 {
        let _ = sender.send(Ok(()));
        return receiver;
    }
    let ending = Arc::new(Ending {
        remaining: AtomicUsize::new(prepared.num_devices()),
        outcome: Mutex::new((Ok(()), Some(sender))),
        step: step.clone(),
    });
    prepared.run(move |ended| {
        if let Err(status) = ended {
            prefer_cause(&mut ending.outcome.lock().0, status.clone());
            ending.step.abort(status.derived());
        }
        if ending.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
            let mut outcome = ending.outcome.lock();
            if let Some(sender) = outcome.1.take() {
                let _ = sender.send(outcome.0.clone());
            }
        }
    });
    receiver
}

/// Records a failure: the user should see the cause, not its consequences.
fn prefer_cause(outcome: &mut Result<()>, status: Status) {
    let replaces = match &*outcome {
        Ok(()) => true,
        Err(earlier) => earlier.is_derived() && !status.is_derived(),
    };
    if replaces {
        *outcome = Err(status);
    }
}

impl Drop for Worker {
    /// A waiting step holds itself: it has to be told if what it waits for will never arrive.
    fn drop(&mut self) {
        self.steps.abort_all(&Status::unavailable(format!("{} has ended", self.transfers.task())).derived());
    }
}

/// Ends the steps of sessions that have ended, as far as nobody has said that they are over.
pub(super) struct SessionsEnded {
    steps: Arc<RendezvousMgr>,
    partial_steps: Arc<PartialSteps>,
    transfers: Arc<dyn Transfers>,
}

impl SessionsEnded {
    fn tidy_up(&self) {
        for step_id in self.steps.end_with_sessions() {
            self.partial_steps.remove(step_id);
            self.transfers.forget_step(step_id);
        }
    }
}

/// Cancels a step when its caller disconnects.
pub(super) struct CancelOnDrop {
    step: Option<Arc<StepState>>,
    whole: Option<(Arc<dyn Transfers>, Arc<RendezvousMgr>)>,
}

impl CancelOnDrop {
    /// Guards a step. After a whole step nothing is kept: its tensors that have not been sent to other tasks are dropped, and
    /// nobody needs to report its end.
    fn new(step: &Arc<StepState>, whole: Option<(&Arc<dyn Transfers>, &Arc<RendezvousMgr>)>) -> CancelOnDrop {
        let whole = whole.map(|(transfers, steps)| (transfers.clone(), steps.clone()));
        CancelOnDrop { step: Some(step.clone()), whole }
    }

    fn disarm(mut self) {
        self.step = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some(step) = self.step.take() else { return };
        let status = Status::cancelled("the step was cancelled").derived();
        step.abort(status.clone());
        if let Some((transfers, steps)) = &self.whole {
            steps.give_up(step.id, &status);
            transfers.forget_step(step.id);
        }
    }
}

fn answer<T: Send + 'static>(result: Result<T>) -> Answer<T> {
    Box::pin(ready(result))
}

impl WorkerInterface for Worker {
    fn get_status(&self) -> Answer<Vec<DeviceAttributes>> {
        answer(Ok(self.devices.iter().map(LocalDevice::attributes).collect()))
    }

    fn create_worker_session(&self, request: proto::CreateWorkerSessionRequest) -> Answer<()> {
        let made = self.make_session(&request).map(|session| {
            let session = Arc::new(session);
            let replaced = self.sessions.write().insert(request.session_handle, session.clone());
            if replaced.is_some() {
                drop(replaced);
                self.sessions_ended().tidy_up();
            }
            self.look_for_sessions_of_before(&session);
        });
        answer(made)
    }

    fn delete_worker_session(&self, session_handle: String) -> Answer<()> {
        let removed = self.sessions.write().remove(&session_handle);
        if removed.is_some() {
            drop(removed);
            self.sessions_ended().tidy_up();
        }
        answer(Ok(()))
    }

    fn register_graph(&self, call: RegisterGraphCall) -> Answer<RegisterGraphReply> {
        let registered = self.session(&call.session_handle, call.create_worker_session_called).and_then(|session| {
            let num_nodes = call.graph.num_nodes();
            let register = || session.graphs.register(call.graph, &session.devices, &session.state);
            let (graph_handle, graph) = crate::threads::for_graph(num_nodes, register)?;
            let local = session.transfers.is_alone().then(|| {
                let context = self.step_context.clone();
                Arc::new(RegisteredHere { graph, context }) as Arc<dyn LocalGraph>
            });
            Ok(RegisterGraphReply { graph_handle, local })
        });
        answer(registered)
    }

    fn deregister_graph(&self, request: proto::DeregisterGraphRequest) -> Answer<()> {
        let session = self.session(&request.session_handle, request.create_worker_session_called);
        answer(session.and_then(|session| session.graphs.deregister(&request.graph_handle)))
    }

    fn run_graph(&self, call: RunGraphCall) -> Answer<RunGraphReply> {
        self.start_graph(call).unwrap_or_else(|status| answer(Err(status)))
    }

    fn cleanup_graph(&self, step_id: i64) -> Answer<()> {
        self.steps.cleanup(step_id);
        self.partial_steps.remove(step_id);
        self.transfers.forget_step(step_id);
        answer(Ok(()))
    }

    fn cleanup_all(&self, containers: Vec<String>) -> Answer<()> {
        let containers = if containers.is_empty() { vec![String::new()] } else { containers };
        for device in &self.devices {
            for container in &containers {
                device.resources.cleanup(container);
            }
        }
        answer(Ok(()))
    }

    fn recv_tensor(&self, call: RecvTensorCall) -> Answer<ReceivedTensor> {
        self.receive(&call).unwrap_or_else(|status| answer(Err(status)))
    }

    fn recv_part(&self, call: RecvTensorCall, _from: &DeviceAttributes) -> Answer<Tensor> {
        self.part(call.step_id, &call.key)
    }

    fn mark_recv_finished(&self, _request_id: i64) -> Answer<()> {
        // Nothing is kept for a request once it is answered.
        answer(Ok(()))
    }

    fn logging(&self, request: proto::LoggingRequest) -> Answer<proto::LoggingResponse> {
        let log = &self.log;
        if request.enable_rpc_logging {
            log.enable(true);
        }
        if request.disable_rpc_logging {
            log.enable(false);
        }
        if request.clear {
            log.clear();
        }
        let labeled = |&step_id: &i64| proto::LabeledStepStats { step_id, step_stats: Some(log.take(step_id)) };
        answer(Ok(proto::LoggingResponse { step: request.fetch_step_id.iter().map(labeled).collect() }))
    }

    fn tracing(&self, _request: proto::TracingRequest) -> Answer<proto::TracingResponse> {
        // Traces of hardware counters need a GPU; a step's own trace is requested in its options.
        answer(Err(Status::unimplemented("Tracing is not available: ask for a step's trace with its RunOptions")))
    }

    fn recv_buf(&self, request: proto::RecvBufRequest) -> Answer<proto::RecvBufResponse> {
        self.collectives.recv_buf(request)
    }

    fn complete_group(&self, request: proto::CompleteGroupRequest) -> Answer<proto::CompleteGroupResponse> {
        self.collectives.complete_group(request)
    }

    fn complete_instance(&self, request: proto::CompleteInstanceRequest) -> Answer<proto::CompleteInstanceResponse> {
        self.collectives.complete_instance(request)
    }

    fn get_step_sequence(&self, request: proto::GetStepSequenceRequest) -> Answer<proto::GetStepSequenceResponse> {
        answer(self.step_sequences.serve(&request))
    }

    fn ask(&self, question: TaskQuestion) -> Answer<TaskAnswer> {
        match self.answers.get() {
            Some(answers) => answers(question),
            None => answer(Err(Status::unimplemented("this task answers no questions"))),
        }
    }
}

/// Writes the output of ops such as Print to the log.
pub(crate) struct TracingLogger;

impl Logger for TracingLogger {
    fn log(&self, level: &str, message: &str) {
        match level {
            "error" | "fatal" => tracing::error!("{message}"),
            "warning" => tracing::warn!("{message}"),
            _ => tracing::info!("{message}"),
        }
    }
}

/// Writes the output of ops such as Print to standard error, as TensorFlow does.
pub(crate) struct StderrLogger;

impl Logger for StderrLogger {
    fn log(&self, _level: &str, message: &str) {
        eprintln!("{message}");
    }
}
