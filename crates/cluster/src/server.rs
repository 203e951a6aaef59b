//! [`Server`]: one task of a cluster in this process, with both services; [`EmbeddedCluster`]: all tasks of one, without
//! sockets.

use crate::cluster_spec::split_address;
use crate::device::{LocalDevice, task_name};
use crate::interface::{MasterInterface, WorkerInterface};
use crate::master::Master;
use crate::random::RandomIds;
use crate::rpc::server::{Services, serve};
use crate::stream::{StreamHub, StreamLimits, StreamOffer, StreamSettings};
use crate::worker::{Worker, watch};
use crate::worker_cache::{Connector, GrpcConnector, WorkerCache};
use crate::{ClusterSpec, ServerConfig, Transport};
use foldhash::{HashMap, HashMapExt};
use kernel::OpRegistry;
use parking_lot::{Mutex, RwLock};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tensor::{Result, Status};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};

/// How long the calls under way may take to end when a server stops, before their steps are cancelled.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// How long cancelled calls may take to end.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);
/// A server on which nothing was computed for as long gives its spare memory back.
const IDLE_TIME: Duration = Duration::from_secs(10);

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 1024;

/// One task of a cluster in this process. Dropping it stops it without draining.
pub struct Server {
    task: Task,
    address: String,
    /// What the sockets are bound to.
    bound: Vec<SocketAddr>,
    stopping: watch::Sender<bool>,
    stopped: watch::Sender<bool>,
    serving: Mutex<Vec<JoinHandle<()>>>,
    listening_streams: Option<AbortHandle>,
}

/// The services of a task.
struct Task {
    name: String,
    master: Master,
    worker: Arc<Worker>,
    streams: Option<Arc<StreamHub>>,
}

impl Task {
    fn new(
        config: &ServerConfig,
        cluster: ClusterSpec,
        registry: &'static OpRegistry,
        runtime: &tokio::runtime::Handle,
        ids: &Arc<RandomIds>,
        connector: Arc<dyn Connector>,
        transport: Option<Transport>,
    ) -> Task {
        let name = task_name(&config.job, config.task_index);
        let mut devices = LocalDevice::cpus(&config.job, config.task_index, config.device_count, ids);
        let incarnation = devices.first().map_or(0, |device| device.incarnation);
        let offer = transport.and_then(|transport| StreamOffer::new(transport, incarnation));
        let streams = offer.map(|offer| {
            let shared = Arc::new(offer.clone());
            devices.iter_mut().for_each(|device| device.stream = Some(shared.clone()));
            let incarnations = devices.iter().map(|device| device.incarnation).collect();
            let shares_memory = matches!(transport, Some(Transport::Auto | Transport::SharedMemory));
            let limits = StreamLimits::new(&config.peer_times, config.peer_bytes_max);
            let settings = StreamSettings { shares_memory, limits, ..StreamSettings::default() };
            Arc::new(StreamHub::new(runtime.clone(), name.clone(), incarnations, offer, settings))
        });
        let workers = Arc::new(WorkerCache::new(cluster, name.clone(), connector, streams.clone()));
        let worker = Arc::new(Worker::new(devices, registry, workers.clone(), runtime.clone(), ids.clone()));
        let itself: Weak<dyn WorkerInterface> = Arc::downgrade(&worker) as Weak<dyn WorkerInterface>;
        workers.set_own(itself);
        if let Some(streams) = &streams {
            streams.set_worker(Arc::downgrade(&worker));
            runtime.spawn(watch(Arc::downgrade(&worker), config.peer_times.check));
        }
        let default_config = config.default_session_config.clone();
        let gc = config.session_gc;
        let master = Master::new(workers, registry, ids.clone(), runtime.clone(), default_config, incarnation, gc);
        Task { name, master, worker, streams }
    }
}

impl Server {
    /// Starts a task: its port is open when this returns. The runtime runs everything that the server does.
    pub fn start(
        config: ServerConfig,
        registry: &'static OpRegistry,
        runtime: tokio::runtime::Handle,
    ) -> Result<Server> {
        cpu::requested().map_err(Status::invalid_argument)?;
        let mut cluster = config.cluster.clone();
        let configured = cluster.task_address(&config.job, config.task_index)?.to_owned();
        let (host, port) = split_address(&configured).map_err(Status::invalid_argument)?;
        let name = task_name(&config.job, config.task_index);
        let listening = listen(host, config.port.unwrap_or(port), config.bind)
            .map_err(|status| status.context(format!("{name} can't listen")))?;
        let address = if port == 0 { format!("{host}:{}", listening.port) } else { configured };
        cluster.set_address(&config.job, config.task_index, address.clone());
        let ids = Arc::new(RandomIds::from_system());
        let connector = Arc::new(GrpcConnector::new(runtime.clone(), ids.clone(), config.peer_times));
        let task = Task::new(&config, cluster, registry, &runtime, &ids, connector, Some(config.transport));
        let services = Arc::new(Services {
            master: Arc::new(task.master.clone()),
            worker: task.worker.clone(),
            streams: task.streams.clone(),
            connections: task.master.connections(),
        });
        let stopping = watch::Sender::new(false);
        let mut serving = Vec::new();
        let mut listening_streams = None;
        let bound = listening.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
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
            serving.push(runtime.spawn(serve(listener, services.clone(), stopping.subscribe())));
        }
        serving.push(runtime.spawn(give_memory_back(stopping.subscribe())));
        Ok(Server {
            task,
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

    /// Returns the target for clients, such as `grpc://127.0.0.1:2222`.
    pub fn target(&self) -> String {
        format!("grpc://{}", self.address)
    }

    /// Returns the task's address in the cluster.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the whole name of the task.
    pub fn task(&self) -> &str {
        &self.task.name
    }

    /// Returns whether the server listens on all interfaces, because its address is none of this machine's or it was told to.
    pub fn is_on_all_interfaces(&self) -> bool {
        self.bound.iter().any(|address| address.ip().is_unspecified())
    }

    /// Returns what the server listens on.
    pub fn bound(&self) -> &[SocketAddr] {
        &self.bound
    }

    /// Returns the master, for a client in this process.
    pub fn master(&self) -> Arc<dyn MasterInterface> {
        Arc::new(self.task.master.clone())
    }

    /// Waits until the server has stopped.
    pub async fn join(&self) {
        let _ = self.stopped.subscribe().wait_for(|&is_stopped| is_stopped).await;
    }

    /// Waits until the server has stopped, for a time; returns whether it has.
    pub async fn join_timeout(&self, timeout: Duration) -> bool {
        tokio::time::timeout(timeout, self.join()).await.is_ok()
    }

    /// Stops: no new calls are taken, those under way may end for a while, then they are cancelled. The port is free
    /// when this returns.
    pub async fn stop(&self) {
        self.stopping.send_replace(true);
        let mut serving = std::mem::take(&mut *self.serving.lock());
        let drained = async {
            if let Some(streams) = &self.task.streams {
                let _ = tokio::time::timeout(DRAIN_TIMEOUT, streams.drain()).await;
            }
        };
        if !tokio::join!(ended_within(&mut serving, DRAIN_TIMEOUT), drained).0 {
            self.task.worker.stop();
            let _ = tokio::time::timeout(CANCEL_TIMEOUT, self.task.master.stop()).await;
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

/// Gives the blocks of steps back while there are no steps, until the server stops.
async fn give_memory_back(mut stopping: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(IDLE_TIME);
    loop {
        tokio::select! {
            _ = ticks.tick() => tensor::Recycler::trim_if_idle(),
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
    tokio::time::timeout(limit, all).await.is_ok()
}

struct Listening {
    listeners: Vec<std::net::TcpListener>,
    port: u16,
}

/// Opens the sockets for an address. A loopback address means both of them, an address of this machine itself, and anything
/// else, such as a service's name or an address outside a NAT, all interfaces.
fn listen(host: &str, port: u16, bind: Option<IpAddr>) -> Result<Listening> {
    const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let one = |ip: IpAddr| -> Result<Listening> {
        let listener = open(ip, port).map_err(|error| cannot_bind(ip, port, &error))?;
        let port = port_of(&listener)?;
        Ok(Listening { listeners: vec![listener], port })
    };
    if let Some(ip) = bind {
        return one(ip);
    }
    let literal: Option<IpAddr> = if host == "localhost" { Some(LOOPBACK) } else { host.parse().ok() };
    match literal {
        Some(ip) if ip == LOOPBACK || ip == IpAddr::V6(Ipv6Addr::LOCALHOST) => {
            let mut listening = one(LOOPBACK)?;
            match open(IpAddr::V6(Ipv6Addr::LOCALHOST), listening.port) {
                Ok(listener) => listening.listeners.push(listener),
                // Machines without IPv6 have no such address.
                Err(error) if error.kind() != ErrorKind::AddrInUse => {}
                // A port that the system chose may be taken on the other address, which nobody was told of.
                Err(_) if port == 0 => {}
                Err(error) => return Err(cannot_bind(IpAddr::V6(Ipv6Addr::LOCALHOST), port, &error)),
            }
            Ok(listening)
        }
        Some(ip) => match open(ip, port) {
            Ok(listener) => {
                let port = port_of(&listener)?;
                Ok(Listening { listeners: vec![listener], port })
            }
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => all_interfaces(port),
            Err(error) => Err(cannot_bind(ip, port, &error)),
        },
        None => all_interfaces(port),
    }
}

fn all_interfaces(port: u16) -> Result<Listening> {
    let both = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let listener = match open(both, port) {
        Ok(listener) => listener,
        Err(error) if error.kind() == ErrorKind::AddrInUse => return Err(cannot_bind(both, port, &error)),
        Err(_) => {
            let ip = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
            open(ip, port).map_err(|error| cannot_bind(ip, port, &error))?
        }
    };
    let port = port_of(&listener)?;
    Ok(Listening { listeners: vec![listener], port })
}

fn open(ip: IpAddr, port: u16) -> std::io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(SocketAddr::new(ip, port)), Type::STREAM, Some(Protocol::TCP))?;
    if ip.is_ipv6() {
        // The address of all interfaces takes IPv4 too; any other one is itself only.
        socket.set_only_v6(!ip.is_unspecified())?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::new(ip, port).into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn port_of(listener: &std::net::TcpListener) -> Result<u16> {
    let address =
        listener.local_addr().map_err(|error| Status::internal(format!("a socket without a port: {error}")))?;
    Ok(address.port())
}

fn cannot_bind(ip: IpAddr, port: u16, error: &std::io::Error) -> Status {
    let address = SocketAddr::new(ip, port);
    match error.kind() {
        ErrorKind::AddrInUse => {
            Status::failed_precondition(format!("port {port} is in use by another process (binding {address})"))
        }
        _ => Status::failed_precondition(format!("binding {address}: {error}")),
    }
}

/// All tasks of a cluster in this process, which talk to each other without sockets and without encoding anything.
pub struct EmbeddedCluster {
    tasks: HashMap<String, Task>,
}

/// Finds the workers of an embedded cluster.
#[derive(Default)]
struct EmbeddedConnector {
    workers: RwLock<HashMap<String, Weak<Worker>>>,
}

impl Connector for EmbeddedConnector {
    fn connect(&self, task: &str, _address: &str) -> Result<Arc<dyn WorkerInterface>> {
        let worker = self.workers.read().get(task).and_then(Weak::upgrade);
        match worker {
            Some(worker) => Ok(worker),
            None => Err(Status::unavailable(format!("{task} is not in this process"))),
        }
    }
}

impl EmbeddedCluster {
    /// Starts all tasks of a cluster.
    pub fn start(
        cluster: &ClusterSpec,
        registry: &'static OpRegistry,
        runtime: tokio::runtime::Handle,
    ) -> Result<EmbeddedCluster> {
        cpu::requested().map_err(Status::invalid_argument)?;
        let ids = Arc::new(RandomIds::from_system());
        let connector = Arc::new(EmbeddedConnector::default());
        let mut tasks = HashMap::new();
        for (job, index, _) in cluster.tasks() {
            let config = ServerConfig::new(cluster.clone(), job, index)?;
            let task = Task::new(&config, cluster.clone(), registry, &runtime, &ids, connector.clone(), None);
            connector.workers.write().insert(task.name.clone(), Arc::downgrade(&task.worker));
            tasks.insert(task.name.clone(), task);
        }
        Ok(EmbeddedCluster { tasks })
    }

    /// Returns the master of a task.
    pub fn master(&self, job: &str, index: u32) -> Result<Arc<dyn MasterInterface>> {
        match self.tasks.get(&task_name(job, index)) {
            Some(task) => Ok(Arc::new(task.master.clone())),
            None => Err(Status::not_found(format!("the cluster has no task {index} of job '{job}'"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_on_all_interfaces(listening: &Listening) -> bool {
        listening.listeners.iter().any(|listener| listener.local_addr().unwrap().ip().is_unspecified())
    }

    #[test]
    fn a_port_in_use_is_said_to_be() {
        let first = listen("localhost", 0, None).unwrap();
        let status = listen("127.0.0.1", first.port, None).err().unwrap();
        assert!(status.message().contains(&format!("port {} is in use", first.port)), "{status}");
        assert!(!is_on_all_interfaces(&first));
    }

    #[test]
    fn names_and_foreign_addresses_mean_all_interfaces() {
        assert!(is_on_all_interfaces(&listen("some-service.invalid", 0, None).unwrap()));
        assert!(is_on_all_interfaces(&listen("192.0.2.1", 0, None).unwrap()));
        let loopback = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        assert!(!is_on_all_interfaces(&listen("192.0.2.1", 0, loopback).unwrap()));
    }
}
