//! Two tasks that can't reach each other, though the master reaches both: no step waits for ever, and each says who could
//! not be reached. The network between them is a proxy that takes connections and stays silent.

#[allow(dead_code, reason = "each test file uses a part")]
mod common;

use cluster::{MasterInterface, PeerTimes, RemoteMaster, RunStepCall, Server, ServerConfig, Transport};
use common::{Watchdog, free_ports, graph_def, spec};
use proto::{CreateSessionRequest, RunOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};
use tensor::{Code, Status, Tensor};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

const GRAPH: &str = r#"
    x = Placeholder() {dtype=float} @/job:ps/task:0
    near = AddV2(x, x) @/job:ps/task:0
    there = Neg(near) @/job:worker/task:1
    queue = FIFOQueueV2() {component_types=[float], shared_name="queue"} @/job:ps/task:0
    put = QueueEnqueueV2(queue, x) @/job:ps/task:0
    take = QueueDequeueV2(queue) {component_types=[float]} @/job:ps/task:0
    taken = Neg(take) @/job:worker/task:1
    size = QueueSizeV2(queue) @/job:ps/task:0
    on_ps = Const() {dtype=float, value=float[](2)} @/job:ps/task:0
    on_worker = Const() {dtype=float, value=float[](3)} @/job:worker/task:1
"#;

/// A step that takes longer than this has hung; the tests wait for errors that come long before.
const HANGS_AFTER_MS: i64 = 60_000;

/// How long tasks may take to reach each other again, on whatever machine.
const REACHED_AFTER: Duration = Duration::from_secs(60);

const FORWARD: u8 = 0;
const SILENT: u8 = 1;

/// Stands before a task and decides what becomes of connections to it.
struct Proxy {
    mode: Arc<AtomicU8>,
    /// Counts how often the connections that were made since were cut.
    cuts: watch::Sender<u64>,
}

impl Proxy {
    fn start(runtime: &Runtime, port: u16, target: u16) -> Proxy {
        let mode = Arc::new(AtomicU8::new(FORWARD));
        let cuts = watch::Sender::new(0);
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", port))).unwrap();
        let (shared, cut) = (mode.clone(), cuts.subscribe());
        runtime.spawn(async move {
            while let Ok((mut incoming, _)) = listener.accept().await {
                let (is_silent, mut cut) = (shared.load(Ordering::SeqCst) == SILENT, cut.clone());
                cut.mark_unchanged();
                tokio::spawn(async move {
                    if is_silent {
                        // It is held until the network is mended, and nothing is read.
                        let _ = cut.changed().await;
                        return;
                    }
                    let Ok(mut outgoing) = TcpStream::connect(("127.0.0.1", target)).await else { return };
                    tokio::select! {
                        _ = copy_bidirectional(&mut incoming, &mut outgoing) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Proxy { mode, cuts }
    }

    /// From now on connections are taken and nothing is said.
    fn fall_silent(&self) {
        self.mode.store(SILENT, Ordering::SeqCst);
    }

    /// From now on connections are forwarded.
    fn mend(&self) {
        self.mode.store(FORWARD, Ordering::SeqCst);
    }

    /// Ends the connections that there are.
    fn cut(&self) {
        self.cuts.send_modify(|count| *count += 1);
    }
}

/// One ps and two workers. The ps and the second worker are behind proxies, which the master's calls go through as well.
struct Network {
    _watchdog: Watchdog,
    runtime: Runtime,
    proxies: [Proxy; 2],
    _servers: Vec<Server>,
    master: Arc<RemoteMaster>,
    session_handle: String,
}

impl Network {
    fn start(transport: Transport) -> Network {
        let _watchdog = Watchdog::start();
        let runtime = Runtime::new().unwrap();
        let [ps_proxy, ps, master, worker_proxy, worker] = free_ports();
        let spec = spec([ps_proxy, master, worker_proxy]);
        let proxies = [Proxy::start(&runtime, ps_proxy, ps), Proxy::start(&runtime, worker_proxy, worker)];
        let start = |job: &str, index: u32, port: u16| {
            let mut config = ServerConfig::new(spec.clone(), job, index).unwrap();
            config.port = Some(port);
            config.transport = transport;
            let (connect, check) = (Duration::from_secs(1), Duration::from_millis(100));
            config.peer_times = PeerTimes { connect, check, ..PeerTimes::default() };
            Server::start(config, ops::registry(), runtime.handle().clone()).unwrap()
        };
        let servers = vec![start("ps", 0, ps), start("worker", 0, master), start("worker", 1, worker)];
        let master = Arc::new(RemoteMaster::new(servers[1].address(), runtime.handle().clone()).unwrap());
        let request = CreateSessionRequest { graph_def: Some(graph_def(GRAPH)), ..Default::default() };
        let session_handle = runtime.block_on(master.create_session(request)).unwrap().session_handle;
        let network = Network { _watchdog, runtime, proxies, _servers: servers, master, session_handle };
        // The master is connected to both from here on.
        assert_eq!(network.run(&[], "on_ps:0").unwrap(), 2.0);
        assert_eq!(network.run(&[], "on_worker:0").unwrap(), 3.0);
        network
    }

    fn call(&self, feeds: &[(&str, f32)], fetches: &[&str], targets: &[&str]) -> RunStepCall {
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        RunStepCall {
            session_handle: self.session_handle.clone(),
            feeds: feeds.iter().map(|(name, value)| ((*name).to_owned(), Tensor::scalar(*value))).collect(),
            fetches: own(fetches),
            targets: own(targets),
            options: Some(RunOptions { timeout_in_ms: HANGS_AFTER_MS, ..Default::default() }),
            ..Default::default()
        }
    }

    fn run(&self, feeds: &[(&str, f32)], fetch: &str) -> Result<f32, Status> {
        let reply = self.runtime.block_on(self.master.run_step(self.call(feeds, &[fetch], &[])))?;
        reply.tensors[0].1.to_scalar()
    }

    /// Runs a step once more while tasks find out that their connections are broken, or are slow to connect again.
    fn run_until_reached(&self, feeds: &[(&str, f32)], fetch: &str) -> f32 {
        let started = Instant::now();
        loop {
            match self.run(feeds, fetch) {
                Ok(value) => return value,
                Err(status) if status.code() == Code::Unavailable && started.elapsed() < REACHED_AFTER => {}
                Err(status) => panic!("{status}"),
            }
        }
    }
}

/// Checks that an error says which two tasks could not reach each other.
fn assert_names_the_pair(status: &Status) {
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    for task in ["/job:ps/replica:0/task:0", "/job:worker/replica:0/task:1"] {
        assert!(status.message().contains(task), "{task} is not named: {status}");
    }
}

#[test]
fn a_step_between_tasks_that_never_reached_each_other_fails_by_name_and_works_once_they_can() {
    for transport in [Transport::Tcp, Transport::Grpc] {
        let network = Network::start(transport);
        network.proxies.iter().for_each(Proxy::fall_silent);
        let status = network.run(&[("x:0", 5.0)], "there:0").expect_err(&format!("{transport:?}"));
        assert_names_the_pair(&status);
        assert!(status.message().contains("127.0.0.1:"), "it does not say where: {status}");
        // The master still reaches both.
        assert_eq!(network.run(&[], "on_worker:0").unwrap(), 3.0);
        network.proxies.iter().for_each(Proxy::mend);
        assert_eq!(network.run_until_reached(&[("x:0", 5.0)], "there:0"), -10.0);
    }
}

#[test]
fn a_step_that_waits_while_the_network_is_cut_fails_and_the_next_one_works() {
    for transport in [Transport::Tcp, Transport::Grpc] {
        let network = Network::start(transport);
        assert_eq!(network.run_until_reached(&[("x:0", 5.0)], "there:0"), -10.0);
        let waiting = network.runtime.spawn(network.master.run_step(network.call(&[], &["taken:0"], &[])));
        // The step has begun when its dequeue waits, which the queue can't tell; another step that went through shows that the
        // tasks are connected.
        assert_eq!(network.run(&[("x:0", 6.0)], "there:0").unwrap(), -12.0);
        network.proxies.iter().for_each(Proxy::cut);
        let status = network.runtime.block_on(waiting).unwrap().unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(status.message().contains("/job:"), "nobody is named: {status}");
        assert_eq!(network.run_until_reached(&[("x:0", 7.0)], "there:0"), -14.0);
    }
}
