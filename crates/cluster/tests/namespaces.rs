//! Three tasks on three machines, as far as the network can tell: each in a network namespace of its own, joined by a bridge.
//! The bridge stops forwarding between two of them, neither of which is the master, as a firewall or a broken switch does.
//!
//! Where the system allows no namespaces, this says so and tests nothing.

#[allow(dead_code, reason = "each test file uses a part")]
#[path = "common/child.rs"]
mod child;
#[allow(dead_code, reason = "each test file uses a part")]
mod common;

use child::{ChildTask, name_of, run};
use cluster::{MasterInterface, RemoteMaster, RunStepCall, Transport};
use common::{Watchdog, graph_def};
use proto::{CreateSessionRequest, RunOptions};
use std::process::Command;
use std::time::{Duration, Instant};
use tensor::{Code, Status, Tensor};
use tokio::runtime::Runtime;

/// Tells this program that it runs in a namespace of its own.
const INSIDE: &str = "FERROFLOW_TEST_INSIDE";

/// What the part inside ends with when the system can't join namespaces.
const SKIPPED: i32 = 77;

/// A step that takes longer than this has hung.
const HANGS_AFTER_MS: i64 = 60_000;

/// How long tasks may take to reach each other again, on whatever machine.
const REACHED_AFTER: Duration = Duration::from_secs(60);

const PORT: u16 = 2222;

const GRAPH: &str = r#"
    x = Placeholder() {dtype=float} @/job:ps/task:0
    near = AddV2(x, x) @/job:ps/task:0
    there = Neg(near) @/job:worker/task:1
    back = AddV2(there, there) @/job:ps/task:0
    alone = Const() {dtype=float, value=float[](3)} @/job:worker/task:1
    queue = FIFOQueueV2() {component_types=[float], shared_name="queue"} @/job:ps/task:0
    take = QueueDequeueV2(queue) {component_types=[float]} @/job:ps/task:0
    taken = Neg(take) @/job:worker/task:1
"#;

#[test]
fn child_task() {
    child::serve_if_child();
}

#[test]
fn two_tasks_that_the_network_separates_fail_their_steps_by_name() {
    if std::env::var(INSIDE).is_ok() {
        return inside();
    }
    let ways: [&[&str]; 2] = [&["--net"], &["--user", "--map-root-user", "--net"]];
    let may = |way: &&&[&str]| run("unshare", &[way, &["true"][..]].concat()).is_ok();
    let Some(way) = ways.iter().find(may) else {
        eprintln!("skipped: this system lets nobody make network namespaces");
        return;
    };
    let test = "two_tasks_that_the_network_separates_fail_their_steps_by_name";
    let status = Command::new("unshare")
        .args(*way)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        .status()
        .unwrap();
    if status.code() == Some(SKIPPED) {
        eprintln!("skipped: this system can't join network namespaces by a bridge");
        return;
    }
    assert!(status.success(), "it failed inside: {status}");
}

/// Three tasks and the bridge that joins them.
struct Network {
    _tasks: Vec<ChildTask>,
    runtime: Runtime,
    master: RemoteMaster,
    session_handle: String,
}

/// Makes the bridge, at which this process listens, too.
fn make_bridge() -> Result<(), String> {
    run("ip", &["link", "set", "lo", "up"])?;
    run("ip", &["link", "add", "bridge", "type", "bridge"])?;
    run("ip", &["address", "add", "10.9.0.254/24", "dev", "bridge"])?;
    run("ip", &["link", "set", "bridge", "up"])
}

/// Joins the network of a process to the bridge.
fn join(number: usize, process: u32) -> Result<(), String> {
    let (near, far, process) = (format!("near{number}"), format!("far{number}"), process.to_string());
    run("ip", &["link", "add", &near, "type", "veth", "peer", "name", &far])?;
    run("ip", &["link", "set", &near, "master", "bridge", "up"])?;
    run("ip", &["link", "set", &far, "netns", &process])?;
    let within = |args: &[&str]| run("nsenter", &[&["--target", &process, "--net", "ip"], args].concat());
    within(&["link", "set", "lo", "up"])?;
    within(&["address", "add", &format!("10.9.0.{}/24", number + 1), "dev", &far])?;
    within(&["link", "set", &far, "up"])
}

/// Says whether the first task, the ps, and the third reach each other.
fn separate(is_separate: bool) {
    let state = if is_separate { "on" } else { "off" };
    for port in ["near0", "near2"] {
        run("bridge", &["link", "set", "dev", port, "isolated", state]).unwrap();
    }
}

impl Network {
    fn start(transport: Transport) -> Network {
        let addresses: Vec<String> = (1..=3).map(|number| format!("10.9.0.{number}:{PORT}")).collect();
        let (ps, workers) = addresses.split_at(1);
        let tasks = [("ps", 0), ("worker", 0), ("worker", 1)];
        let mut children = Vec::new();
        for (number, (job, index)) in tasks.into_iter().enumerate() {
            let task = ChildTask::start(&["unshare", "--net"], ps, workers, job, index, name_of(transport));
            join_when_it_is_there(number, task.id());
            children.push(task);
        }
        children.iter_mut().for_each(ChildTask::begin);
        let runtime = Runtime::new().unwrap();
        let master = RemoteMaster::new(&workers[0], runtime.handle().clone()).unwrap();
        let request = CreateSessionRequest { graph_def: Some(graph_def(GRAPH)), ..Default::default() };
        let session_handle = runtime.block_on(master.create_session(request)).unwrap().session_handle;
        Network { _tasks: children, runtime, master, session_handle }
    }

    fn call(&self, feeds: &[(&str, f32)], fetch: &str) -> RunStepCall {
        RunStepCall {
            session_handle: self.session_handle.clone(),
            feeds: feeds.iter().map(|(name, value)| ((*name).to_owned(), Tensor::scalar(*value))).collect(),
            fetches: vec![fetch.to_owned()],
            options: Some(RunOptions { timeout_in_ms: HANGS_AFTER_MS, ..Default::default() }),
            ..Default::default()
        }
    }

    fn run(&self, feeds: &[(&str, f32)], fetch: &str) -> Result<f32, Status> {
        let reply = self.runtime.block_on(self.master.run_step(self.call(feeds, fetch)))?;
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

/// Joins a process that `unshare` is about to put into a namespace: until it is, its network is this one's.
fn join_when_it_is_there(number: usize, process: u32) {
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    while std::fs::read_link(format!("/proc/{process}/ns/net")).unwrap() == own {
        std::thread::yield_now();
    }
    join(number, process).unwrap();
}

fn assert_names_the_pair(status: &Status) {
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    for task in ["/job:ps/replica:0/task:0", "/job:worker/replica:0/task:1"] {
        assert!(status.message().contains(task), "{task} is not named: {status}");
    }
}

fn inside() {
    let _watchdog = Watchdog::start();
    if let Err(why) = make_bridge() {
        eprintln!("{why}");
        std::process::exit(SKIPPED);
    }
    // Separated from the first step on: nobody can connect.
    let network = Network::start(Transport::Tcp);
    if let Err(why) = run("bridge", &["link", "set", "dev", "near0", "isolated", "off"]) {
        eprintln!("{why}");
        std::process::exit(SKIPPED);
    }
    separate(true);
    assert_names_the_pair(&network.run(&[("x:0", 5.0)], "back:0").unwrap_err());
    assert_eq!(network.run(&[], "alone:0").unwrap(), 3.0, "the master reaches both");
    separate(false);
    assert_eq!(network.run_until_reached(&[("x:0", 5.0)], "back:0"), -20.0);
    // Separated while a step waits, after the tasks were connected.
    let waiting = network.runtime.spawn(network.master.run_step(network.call(&[], "taken:0")));
    assert_eq!(network.run(&[("x:0", 6.0)], "back:0").unwrap(), -24.0);
    separate(true);
    assert_names_the_pair(&network.runtime.block_on(waiting).unwrap().unwrap_err());
    separate(false);
    assert_eq!(network.run_until_reached(&[("x:0", 7.0)], "back:0"), -28.0);
}
