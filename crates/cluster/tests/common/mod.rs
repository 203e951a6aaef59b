//! A cluster of one ps and two workers, embedded or behind sockets, and short ways to use its masters.

use cluster::{
    ClusterSpec, EmbeddedCluster, MasterInterface, RemoteMaster, RunStepCall, RunStepReply, Server, ServerConfig,
    Transport,
};
use graph::NodeGraph;
use proto::{ConfigProto, CreateSessionRequest, GraphDef};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;
use tensor::{Result, Tensor};
use tokio::runtime::Runtime;

/// How the tasks of a cluster talk to each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// In this process, without sockets.
    Embedded,
    /// Over gRPC on loopback, as with TensorFlow's tasks.
    Grpc,
    /// Over streams by TCP.
    Tcp,
    /// Over streams by Unix sockets.
    Unix,
    /// Over Unix sockets and shared memory.
    SharedMemory,
}

/// All kinds, for tests that must hold for each.
pub const KINDS: [Kind; 5] = [Kind::Embedded, Kind::Grpc, Kind::Tcp, Kind::Unix, Kind::SharedMemory];

/// How long a test may take before it is taken for hung; no test comes near it, on a busy machine neither.
const WATCHDOG_TIMEOUT: Duration = Duration::from_secs(300);

/// Ends the process when a test hangs, so that a hang is a failure with a name. It goes with the test that started it.
pub struct Watchdog {
    _alive: Sender<()>,
}

impl Watchdog {
    pub fn start() -> Watchdog {
        let (alive, gone) = channel::<()>();
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        std::thread::spawn(move || {
            if gone.recv_timeout(WATCHDOG_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{test} hangs");
                std::process::exit(1);
            }
        });
        Watchdog { _alive: alive }
    }
}

/// One ps and two workers.
pub struct TestCluster {
    _watchdog: Watchdog,
    pub runtime: Runtime,
    embedded: Option<EmbeddedCluster>,
    pub servers: Vec<Server>,
    kind: Kind,
    devices: u32,
    spec: ClusterSpec,
}

/// Picks ports that are free now.
pub fn free_ports<const N: usize>() -> [u16; N] {
    let addresses = cluster::unused_addresses(N).unwrap();
    std::array::from_fn(|index| addresses[index].rsplit_once(':').unwrap().1.parse().unwrap())
}

/// Returns the spec of a cluster on three ports.
pub fn spec(ports: [u16; 3]) -> ClusterSpec {
    let [ps, first, second] = ports.map(|port| format!("127.0.0.1:{port}"));
    ClusterSpec::new().with_job("ps", &[ps]).unwrap().with_job("worker", &[first, second]).unwrap()
}

impl TestCluster {
    /// Starts a cluster.
    pub fn start(kind: Kind) -> TestCluster {
        TestCluster::with_devices(kind, 1)
    }

    /// Starts a cluster whose servers have so many devices each; tasks of an embedded one have one.
    pub fn with_devices(kind: Kind, devices: u32) -> TestCluster {
        TestCluster::starting(kind, devices, |_| true)
    }

    /// Starts a cluster of servers of which one is missing.
    pub fn without(kind: Kind, missing: &str) -> TestCluster {
        TestCluster::starting(kind, 1, |task| task != missing)
    }

    fn starting(kind: Kind, devices: u32, starts: impl Fn(&str) -> bool) -> TestCluster {
        let _watchdog = Watchdog::start();
        let runtime = Runtime::new().unwrap();
        let spec = spec(free_ports());
        let embedded = (kind == Kind::Embedded)
            .then(|| EmbeddedCluster::start(&spec, ops::registry(), runtime.handle().clone()).unwrap());
        let mut cluster = TestCluster { _watchdog, runtime, embedded, servers: Vec::new(), kind, devices, spec };
        if kind != Kind::Embedded {
            let tasks: Vec<(String, u32)> =
                cluster.spec.tasks().map(|(job, index, _)| (job.to_owned(), index)).collect();
            let started = tasks.iter().filter(|(job, index)| starts(&format!("/job:{job}/replica:0/task:{index}")));
            cluster.servers = started.map(|(job, index)| cluster.start_task(job, *index)).collect();
        }
        cluster
    }

    /// Starts a server of the cluster.
    pub fn start_task(&self, job: &str, index: u32) -> Server {
        let mut config = ServerConfig::new(self.spec.clone(), job, index).unwrap();
        config.transport = match self.kind {
            Kind::Tcp => Transport::Tcp,
            Kind::Unix => Transport::Unix,
            Kind::SharedMemory => Transport::SharedMemory,
            Kind::Embedded | Kind::Grpc => Transport::Grpc,
        };
        config.device_count = self.devices;
        let experimental = config.default_session_config.experimental.get_or_insert_default();
        experimental.collective_group_leader = "/job:ps/replica:0/task:0".to_owned();
        Server::start(config, ops::registry(), self.runtime.handle().clone()).unwrap()
    }

    /// Returns the master of a task, as a client of this cluster sees it.
    pub fn master(&self, job: &str, index: u32) -> Arc<dyn MasterInterface> {
        if let Some(embedded) = &self.embedded {
            return embedded.master(job, index).unwrap();
        }
        let task = format!("/job:{job}/replica:0/task:{index}");
        let server = self.servers.iter().find(|server| server.task() == task).unwrap();
        Arc::new(RemoteMaster::new(server.address(), self.runtime.handle().clone()).unwrap())
    }

    /// Opens a session on the first worker's master.
    pub fn session(&self, text: &str) -> Session<'_> {
        self.session_with(text, ConfigProto::default()).unwrap()
    }

    /// As [`session`](Self::session), with settings.
    pub fn session_with(&self, text: &str, config: ConfigProto) -> Result<Session<'_>> {
        let master = self.master("worker", 0);
        let request =
            CreateSessionRequest { graph_def: Some(graph_def(text)), config: Some(config), ..Default::default() };
        let response = self.runtime.block_on(master.create_session(request))?;
        Ok(Session { cluster: self, master, handle: response.session_handle })
    }
}

/// Reads a graph from its text.
pub fn graph_def(text: &str) -> GraphDef {
    NodeGraph::from_text(text, ops::registry()).unwrap().to_graph_def()
}

/// A session on a cluster.
pub struct Session<'a> {
    pub cluster: &'a TestCluster,
    pub master: Arc<dyn MasterInterface>,
    pub handle: String,
}

impl Session<'_> {
    /// Returns a call that feeds and fetches tensors and runs nodes.
    pub fn call(&self, feeds: &[(&str, Tensor)], fetches: &[&str], targets: &[&str]) -> RunStepCall {
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        RunStepCall {
            session_handle: self.handle.clone(),
            feeds: feeds.iter().map(|(name, tensor)| ((*name).to_owned(), tensor.clone())).collect(),
            fetches: own(fetches),
            targets: own(targets),
            ..RunStepCall::default()
        }
    }

    /// Makes a call.
    pub fn make(&self, call: RunStepCall) -> Result<RunStepReply> {
        self.cluster.runtime.block_on(self.master.run_step(call))
    }

    /// Feeds and fetches.
    pub fn run(&self, feeds: &[(&str, Tensor)], fetches: &[&str]) -> Result<Vec<Tensor>> {
        let reply = self.make(self.call(feeds, fetches, &[]))?;
        Ok(reply.tensors.into_iter().map(|(_, tensor)| tensor).collect())
    }

    /// Fetches one float.
    pub fn float(&self, feeds: &[(&str, Tensor)], fetch: &str) -> Result<f32> {
        self.run(feeds, &[fetch])?[0].to_scalar()
    }

    /// Runs nodes.
    pub fn run_targets(&self, feeds: &[(&str, Tensor)], targets: &[&str]) -> Result<()> {
        self.make(self.call(feeds, &[], targets)).map(drop)
    }
}
