//! [`Server`]: one task of a cluster in this process, with both services; [`EmbeddedCluster`]: all tasks of a cluster, without
//! sockets.

use crate::audit::AuditLog;
use crate::clock::{sleep, timeout};
use crate::cluster_spec::split_address;
use crate::device::{LocalDevice, task_name};
use crate::interface::{Answer, MasterInterface, WorkerInterface};
use crate::listen::{Choice, INSECURE_VARIABLE, listen};
use crate::master::{Master, SESSIONS_MAX};
use crate::quota::Quotas;
use crate::random::RandomIds;
use crate::spawner::Spawner;
use crate::status::TaskStatus;
use crate::tls::Tls;
use crate::tokens::Tokens;
use crate::transport::grpc::Gate;
use crate::transport::grpc::server::{Services, serve};
use crate::transport::stream::{ConfirmStreamRequest, ConfirmStreamResponse};
use crate::transport::stream::{Dialer, StreamHub, StreamLimits, StreamOffer, StreamSettings};
use crate::transport::{Connector, GrpcConnector, TaskTransfers, WorkerCache};
use crate::turns::Turns;
use crate::worker::{
    CollectiveSetup, LeaderWorker, StderrLogger, StepLog, StepSequences, TracingLogger, Transfers, Worker, watch,
};
use crate::{ClusterSpec, LatencySummary, ServerConfig, TfConfig, TlsFiles, Transport};
use executor::idle;
use foldhash::{HashMap, HashMapExt};
use kernel::{Logger, OpRegistry};
use parking_lot::{Mutex, RwLock};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tensor::{Result, Status};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};
use tracing::info;

/// How long pending calls may take to end when a server stops, before their steps are cancelled.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// How long cancelled calls may take to end.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

/// The most calls of one client that are ready or running at once. It is more than the number of serving threads, so that a
/// thread finds the next call ready; but few, since other clients' calls wait for all of them.
fn turns_per_client() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2))
}

/// One task of a cluster in this process. Dropping it stops it without draining.
pub struct Server {
    task: TaskServices,
    services: Arc<Services>,
    address: String,
    /// The bound addresses.
    bound: Vec<SocketAddr>,
    stopping: watch::Sender<bool>,
    stopped: watch::Sender<bool>,
    serving: Mutex<Vec<JoinHandle<()>>>,
    listening_streams: Option<AbortHandle>,
}

/// The services of a task.
pub(crate) struct TaskServices {
    name: String,
    /// The master.
    pub master: Master,
    /// The worker.
    pub worker: Arc<Worker>,
    /// The streams to and from other tasks, if it uses any.
    pub streams: Option<Arc<StreamHub>>,
    status: TaskStatus,
    quotas: Arc<Quotas>,
}

impl TaskServices {
    /// Creates the services of a task. It uses streams if a transport is given, and opens them through `dialer` in place of the
    /// system's TCP if that is given.
    pub fn new(
        config: &ServerConfig,
        cluster: ClusterSpec,
        registry: &'static OpRegistry,
        spawner: &Spawner,
        ids: &Arc<RandomIds>,
        connector: Arc<dyn Connector>,
        streams: Option<(Transport, Option<Arc<dyn Dialer>>)>,
        logger: Arc<dyn Logger>,
        tls: Option<Arc<Tls>>,
    ) -> Result<TaskServices> {
        let name = task_name(&config.job, config.task_index);
        let mut devices = LocalDevice::cpus(&config.job, config.task_index, config.device_count, ids);
        let incarnation = devices.first().map_or(0, |device| device.incarnation);
        let offer = streams
            .and_then(|(transport, dialer)| Some((transport, dialer, StreamOffer::new(transport, incarnation)?)));
        let streams = offer.map(|(transport, dialer, offer)| {
            let offers: Arc<str> = offer.to_text().into();
            devices.iter_mut().for_each(|device| device.offers = offers.clone());
            let incarnations = devices.iter().map(|device| device.incarnation).collect();
            let shares_memory = matches!(transport, Transport::Auto | Transport::SharedMemory);
            let limits = StreamLimits::new(&config.peer_times, config.peer_bytes_max);
            let settings = StreamSettings { shares_memory, peers: config.allowed_users.clone(), tls, limits, dialer };
            Arc::new(StreamHub::new(spawner.clone(), name.clone(), incarnations, offer, settings))
        });
        let workers = Arc::new(WorkerCache::new(cluster, name.clone(), connector, streams.clone()));
        let log = Arc::new(StepLog::default());
        let transfers: Arc<dyn Transfers> =
            Arc::new(TaskTransfers::new(workers.clone(), spawner.clone(), ids.clone(), log.clone()));
        let leader = config.collective_leader()?;
        let leader_worker = leader.clone().filter(|leader| *leader != name).map(|leader| {
            let workers = Arc::downgrade(&workers);
            let find = move || match workers.upgrade() {
                Some(workers) => workers.get(&leader),
                None => Err(Status::unavailable("the task is stopping")),
            };
            Box::new(find) as LeaderWorker
        });
        let step_sequences = Arc::new(StepSequences::new(leader_worker, ids.clone()));
        let collective =
            CollectiveSetup { leader, check: config.peer_times.check, step_sequences: step_sequences.clone() };
        let worker = Worker::new(devices, registry, transfers, log, logger, spawner.clone(), ids.clone(), collective);
        let worker = Arc::new(worker);
        let itself: Weak<dyn WorkerInterface> = Arc::downgrade(&worker) as Weak<dyn WorkerInterface>;
        workers.set_own(itself);
        if let Some(streams) = &streams {
            streams.set_worker(Arc::downgrade(&worker));
            streams.set_peers(Arc::downgrade(&workers));
            spawner.spawn(watch(Arc::downgrade(&worker), config.peer_times.check));
        }
        let default_config = config.default_session_config.clone();
        let gc = config.session_gc;
        let quotas = Quotas::new(config.client_quota);
        let max_sessions = config.max_sessions.unwrap_or(SESSIONS_MAX);
        let master = Master::new(
            workers.clone(),
            registry,
            ids.clone(),
            spawner.clone(),
            default_config,
            incarnation,
            gc,
            max_sessions,
            quotas.clone(),
            step_sequences,
        );
        let status = TaskStatus::new(name.clone(), Arc::downgrade(&worker), master.downgrade(), workers);
        Ok(TaskServices { name, master, worker, streams, status, quotas })
    }
}

impl Server {
    /// Starts a task: its port is open when this returns. The runtime runs all work of the server.
    pub fn start(
        config: ServerConfig,
        registry: &'static OpRegistry,
        runtime: tokio::runtime::Handle,
    ) -> Result<Server> {
        cpu::requested().map_err(Status::invalid_argument)?;
        let files = config.tls.as_ref().map(|files| files.for_task(&config.job, config.task_index));
        let tls = files.map(Tls::new).transpose()?.map(Arc::new);
        let tokens = config.tokens.as_deref().map(Tokens::open).transpose()?.map(Arc::new);
        let audit = config.audit_log.as_deref().map(AuditLog::open).transpose()?.map(Arc::new);
        let mut cluster = config.cluster.clone();
        let configured = cluster.task_address(&config.job, config.task_index)?.to_owned();
        let (host, port) = split_address(&configured).map_err(Status::invalid_argument)?;
        let name = task_name(&config.job, config.task_index);
        let choice =
            Choice { bind: config.bind, is_insecure: config.is_insecure || is_insecure_here() || tls.is_some() };
        let listening = listen(host, config.port.unwrap_or(port), &cluster, choice)
            .map_err(|status| status.context(format!("{name} can't listen")))?;
        let address = if port == 0 { format!("{host}:{}", listening.port) } else { configured };
        cluster.set_address(&config.job, config.task_index, address.clone());
        let ids = Arc::new(RandomIds::from_system());
        let connector = Arc::new(GrpcConnector::new(runtime.clone(), ids.clone(), config.peer_times, tls.clone()));
        let logger = Arc::new(TracingLogger);
        let (spawner, streams) = (runtime.clone().into(), Some((config.transport, None)));
        let task =
            TaskServices::new(&config, cluster, registry, &spawner, &ids, connector, streams, logger, tls.clone())?;
        let stopping = watch::Sender::new(false);
        let services = Arc::new(Services {
            master: Arc::new(task.master.clone()),
            worker: task.worker.clone(),
            streams: task.streams.clone(),
            connections: task.master.connections(),
            turns: Turns::new(turns_per_client()),
            quotas: task.quotas.clone(),
            stopping: stopping.subscribe(),
        });
        task.status.serves(&services);
        let mut serving = Vec::new();
        let mut listening_streams = None;
        let bound: Vec<SocketAddr> =
            listening.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
        say_who_can_connect(&name, &bound, &config);
        let first = bound.first().ok_or_else(|| Status::internal("a server without a socket"))?;
        let gate = Arc::new(Gate::new(&config, tls, tokens, audit, *first));
        if let Some(streams) = &task.streams
            && let Some(listener) = streams.bind()?
        {
            listening_streams = Some(runtime.spawn(streams.clone().listen(listener)).abort_handle());
        }
        for listener in listening.listeners {
            // Within the runtime, because a socket belongs to one.
            let _entered = runtime.enter();
            let listener = tokio::net::TcpListener::from_std(listener)
                .map_err(|error| Status::internal(format!("a socket can't be used: {error}")))?;
            serving.push(runtime.spawn(serve(listener, services.clone(), gate.clone(), stopping.subscribe())));
        }
        serving.push(runtime.spawn(give_memory_back(stopping.subscribe())));
        Ok(Server {
            task,
            services,
            address,
            bound,
            stopping,
            stopped: watch::Sender::new(false),
            serving: Mutex::new(serving),
            listening_streams,
        })
    }

    /// Starts a cluster of one task on a free port, as TensorFlow's `create_local_server` does.
    pub fn create_local_server(registry: &'static OpRegistry, runtime: tokio::runtime::Handle) -> Result<Server> {
        Server::start(ServerConfig::local(0)?, registry, runtime)
    }

    /// Starts the task that the environment variable `TF_CONFIG` describes, and logs which it is. A missing variable is an error.
    pub fn from_env(registry: &'static OpRegistry, runtime: tokio::runtime::Handle) -> Result<Server> {
        let config = TfConfig::from_env()?.ok_or_else(|| Status::failed_precondition("TF_CONFIG is not set"))?;
        info!("TF_CONFIG says that this is {}", task_name(&config.job, config.task_index));
        let mut config = config.server_config()?;
        config.tls = TlsFiles::of_process()?;
        Server::start(config, registry, runtime)
    }

    /// Returns the target for clients, such as `grpc://127.0.0.1:2222`.
    pub fn target(&self) -> String {
        format!("grpc://{}", self.address)
    }

    /// Returns the task's address in the cluster.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the task's status.
    pub fn status(&self) -> TaskStatus {
        self.task.status.clone()
    }

    /// Returns how long the steps of each connected client took, from the arrival of the call to the answer.
    pub fn latencies(&self) -> Vec<(String, LatencySummary)> {
        self.services.turns.latencies()
    }

    /// Returns the whole name of the task.
    pub fn task(&self) -> &str {
        &self.task.name
    }

    /// Returns whether the server listens on all interfaces, because it was configured to, or may and must.
    pub fn is_on_all_interfaces(&self) -> bool {
        self.bound.iter().any(|address| address.ip().is_unspecified())
    }

    /// Returns what the server listens on.
    pub fn bound(&self) -> &[SocketAddr] {
        &self.bound
    }

    /// Returns the worker.
    #[cfg(test)]
    pub(crate) fn worker(&self) -> &Arc<Worker> {
        &self.task.worker
    }

    /// Returns the master, for a client in this process.
    pub fn master(&self) -> Arc<dyn MasterInterface> {
        Arc::new(self.task.master.clone())
    }

    /// Returns the number of sessions that masters of other tasks have open here.
    pub fn num_sessions_of_others(&self) -> usize {
        self.task.worker.num_sessions_of_others()
    }

    /// Waits until the server has stopped.
    pub async fn join(&self) {
        let _ = self.stopped.subscribe().wait_for(|&is_stopped| is_stopped).await;
    }

    /// Waits until the server has stopped, with a timeout; returns whether it has.
    pub async fn join_timeout(&self, timeout: Duration) -> bool {
        crate::clock::timeout(timeout, self.join()).await.is_ok()
    }

    /// Stops the server: refuses new calls, lets pending ones end for a while, then cancels them. The port is free when this
    /// returns.
    pub async fn stop(&self) {
        self.stopping.send_replace(true);
        let mut serving = std::mem::take(&mut *self.serving.lock());
        let drained = async {
            if let Some(streams) = &self.task.streams {
                let _ = timeout(DRAIN_TIMEOUT, streams.drain()).await;
            }
        };
        if !tokio::join!(ended_within(&mut serving, DRAIN_TIMEOUT), drained).0 {
            self.task.worker.stop();
            let _ = timeout(CANCEL_TIMEOUT, self.task.master.stop()).await;
            ended_within(&mut serving, CANCEL_TIMEOUT).await;
        }
        for task in &serving {
            task.abort();
        }
        self.task.worker.stop();
        self.stop_streams();
        self.stopped.send_replace(true);
    }
}

impl Server {
    /// Returns the streams to other tasks.
    #[cfg(test)]
    pub(crate) fn streams(&self) -> Option<&Arc<StreamHub>> {
        self.task.streams.as_ref()
    }

    fn stop_streams(&self) {
        if let Some(listening) = &self.listening_streams {
            listening.abort();
        }
        if let Some(streams) = &self.task.streams {
            streams.stop();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_streams();
        self.stopping.send_replace(true);
        for task in self.serving.lock().iter() {
            task.abort();
        }
    }
}

/// Returns whether the environment allows to listen on all interfaces if necessary.
fn is_insecure_here() -> bool {
    std::env::var(INSECURE_VARIABLE).is_ok_and(|value| matches!(value.trim(), "1" | "true" | "yes"))
}

/// Logs who can reach the port, and that only the network protects it.
fn say_who_can_connect(task: &str, bound: &[SocketAddr], config: &ServerConfig) {
    let addresses: Vec<String> = bound.iter().map(SocketAddr::to_string).collect();
    let addresses = addresses.join(" and ");
    let here = format!("on this machine it serves {}", config.allowed_users);
    if config.tls.is_some() {
        let plain = if config.allows_plain_loopback { ", also without one" } else { "" };
        info!("{task} listens on {addresses}, with encryption, and serves whoever has a certificate; {here}{plain}");
        return;
    }
    let who = if bound.iter().all(|address| address.ip().is_loopback()) {
        "no other machine can reach it"
    } else if bound.iter().any(|address| address.ip().is_unspecified()) {
        "every machine that reaches any address of this one can run graphs here"
    } else {
        "every machine that reaches this address can run graphs here"
    };
    info!("{task} listens on {addresses}, without encryption: {who}, and {here}");
}

/// Sets `give_back`, which every serving and compute thread of this process calls while its servers are idle. It returns to the
/// system what the program's allocator holds for the calling thread.
///
/// Only the program knows its allocator, and an allocator purges freed memory only when it is called. Only the first call has an
/// effect.
pub fn set_idle_hook(give_back: fn()) {
    idle::set_hook(give_back);
}

/// Frees the memory pools of steps while there are no steps, until the server stops.
async fn give_memory_back(mut stopping: watch::Receiver<bool>) {
    loop {
        if tensor::Recycler::trim_if_idle() {
            idle::give_back_everywhere();
        }
        tokio::select! {
            _ = sleep(idle::IDLE_TIME) => {}
            _ = stopping.wait_for(|&is_stopping| is_stopping) => return,
        }
    }
}

async fn ended_within(tasks: &mut Vec<JoinHandle<()>>, limit: Duration) -> bool {
    let all = async {
        while let Some(task) = tasks.last_mut() {
            let _ = task.await;
            tasks.pop();
        }
    };
    timeout(limit, all).await.is_ok()
}

/// All tasks of a cluster in this process, which communicate without sockets and without encoding messages.
pub struct EmbeddedCluster {
    tasks: HashMap<String, TaskServices>,
}

/// The job of the single task of a session in this process, as TensorFlow names it.
const LOCAL_JOB: &str = "localhost";

/// Finds the workers of an embedded cluster.
#[derive(Default)]
struct EmbeddedConnector {
    workers: RwLock<HashMap<String, Weak<Worker>>>,
}

impl Connector for EmbeddedConnector {
    fn connect(
        &self,
        task: &str,
        _address: &str,
        _streams: Option<&Arc<StreamHub>>,
    ) -> Result<Arc<dyn WorkerInterface>> {
        let worker = self.workers.read().get(task).and_then(Weak::upgrade);
        match worker {
            Some(worker) => Ok(worker),
            None => Err(Status::unavailable(format!("{task} is not in this process"))),
        }
    }

    fn is_in_process(&self) -> bool {
        true
    }

    fn confirm_stream(
        &self,
        _task: &str,
        _address: &str,
        _request: ConfirmStreamRequest,
    ) -> Answer<ConfirmStreamResponse> {
        Box::pin(std::future::ready(Err(Status::unimplemented("tasks of one process open no streams"))))
    }
}

impl EmbeddedCluster {
    /// Starts all tasks of a cluster.
    pub fn start(
        cluster: &ClusterSpec,
        registry: &'static OpRegistry,
        runtime: tokio::runtime::Handle,
    ) -> Result<EmbeddedCluster> {
        EmbeddedCluster::with_logger(cluster, registry, runtime, Arc::new(TracingLogger))
    }

    /// Starts the cluster for a session in this process: its only task is `/job:localhost/task:0`, and the output of ops such as
    /// Print goes to standard error.
    pub fn local(registry: &'static OpRegistry, runtime: tokio::runtime::Handle) -> Result<EmbeddedCluster> {
        let cluster = ClusterSpec::new().with_job(LOCAL_JOB, &["localhost:0"])?;
        EmbeddedCluster::with_logger(&cluster, registry, runtime, Arc::new(StderrLogger))
    }

    fn with_logger(
        cluster: &ClusterSpec,
        registry: &'static OpRegistry,
        runtime: tokio::runtime::Handle,
        logger: Arc<dyn Logger>,
    ) -> Result<EmbeddedCluster> {
        cpu::requested().map_err(Status::invalid_argument)?;
        let ids = Arc::new(RandomIds::from_system());
        let connector = Arc::new(EmbeddedConnector::default());
        let spawner = runtime.into();
        let mut tasks = HashMap::new();
        for (job, index, _) in cluster.tasks() {
            let mut config = ServerConfig::new(cluster.clone(), job, index)?;
            // All tasks are here, so any of them can lead.
            if let Some((job, index, _)) = cluster.tasks().next() {
                config.default_session_config.experimental.get_or_insert_default().collective_group_leader =
                    task_name(job, index);
            }
            let (connect, cluster) = (connector.clone(), cluster.clone());
            let task =
                TaskServices::new(&config, cluster, registry, &spawner, &ids, connect, None, logger.clone(), None)?;
            connector.workers.write().insert(task.name.clone(), Arc::downgrade(&task.worker));
            tasks.insert(task.name.clone(), task);
        }
        Ok(EmbeddedCluster { tasks })
    }

    /// Returns the master of the only task of a [`local`](Self::local) cluster.
    pub fn local_master(&self) -> Result<Arc<dyn MasterInterface>> {
        self.master(LOCAL_JOB, 0)
    }

    /// Returns the status of each task, sorted by name.
    pub fn statuses(&self) -> Vec<TaskStatus> {
        let mut statuses: Vec<TaskStatus> = self.tasks.values().map(|task| task.status.clone()).collect();
        statuses.sort_by(|one, other| one.task().cmp(other.task()));
        statuses
    }

    /// Returns the master of a task.
    pub fn master(&self, job: &str, index: u32) -> Result<Arc<dyn MasterInterface>> {
        match self.tasks.get(&task_name(job, index)) {
            Some(task) => Ok(Arc::new(task.master.clone())),
            None => Err(Status::not_found(format!("the cluster has no task {index} of job '{job}'"))),
        }
    }
}
