//! Tasks in processes of their own: the test's own program, started again as a server.

use cluster::{ClusterSpec, PeerTimes, Server, ServerConfig, Transport};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tokio::runtime::Runtime;

/// Tells a child what it is: the tasks of `ps` and `worker`, its own job and index, and the transport.
const TASK: &str = "FERROFLOW_TEST_TASK";

/// What a child says when it serves.
const READY: &str = "the task is ready";

/// How long a child may take, on whatever machine.
const CHILD_TIMEOUT: Duration = Duration::from_secs(120);

/// The times of tasks in tests: short, so that tests are.
pub const PEER_TIMES: PeerTimes = PeerTimes {
    connect: Duration::from_secs(2),
    check: Duration::from_millis(100),
    silence: Duration::from_millis(300),
};

/// Serves a task if this process is a child, until its standard input ends. Each test file that has children calls it in a
/// test named `child_task`.
pub fn serve_if_child() {
    let Ok(task) = std::env::var(TASK) else { return };
    let words: Vec<&str> = task.split(' ').collect();
    let [ps, workers, job, index, transport] = words[..] else { panic!("'{task}' is no task") };
    let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
    let cluster = ClusterSpec::new().with_job("ps", &list(ps)).unwrap().with_job("worker", &list(workers)).unwrap();
    let mut config = ServerConfig::new(cluster, job, index.parse().unwrap()).unwrap();
    config.transport = transport.parse().unwrap();
    config.peer_times = PEER_TIMES;
    // A parent may have something to prepare first, such as this process's network.
    let mut input = std::io::stdin().lines();
    input.next();
    let runtime = Runtime::new().unwrap();
    let _server = Server::start(config, ops::registry(), runtime.handle().clone()).unwrap();
    println!("{READY}");
    input.for_each(drop);
    std::process::exit(0);
}

/// A task in a process of its own, which ends with this.
pub struct ChildTask {
    process: Child,
    lines: Receiver<String>,
}

impl ChildTask {
    /// Starts a process that becomes a task once it is told to [`begin`](Self::begin); `wrapper` is what it is started with.
    pub fn start(
        wrapper: &[&str],
        ps: &[String],
        workers: &[String],
        job: &str,
        index: u32,
        transport: &str,
    ) -> ChildTask {
        let program = std::env::current_exe().unwrap();
        let mut command = match wrapper.split_first() {
            None => Command::new(&program),
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(&program);
                command
            }
        };
        command.args(["--exact", "child_task", "--nocapture", "--test-threads=1"]);
        command.env(TASK, format!("{} {} {job} {index} {transport}", ps.join(","), workers.join(",")));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let output = process.stdout.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        ChildTask { process, lines }
    }

    /// Has the process serve; returns when it does.
    pub fn begin(&mut self) {
        self.process.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        while !self.lines.recv_timeout(CHILD_TIMEOUT).expect("a task did not start").contains(READY) {}
    }

    /// Returns the number of the process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends the process a signal, such as `STOP`.
    pub fn signal(&self, name: &str) {
        run("kill", &["-s", name, &self.id().to_string()]).unwrap();
        // On a busy machine its threads run on until one of them has taken the signal.
        while name == "STOP" && !self.is_stopped() {
            std::thread::yield_now();
        }
    }

    fn is_stopped(&self) -> bool {
        let mut threads = std::fs::read_dir(format!("/proc/{}/task", self.id())).unwrap();
        threads.all(|thread| {
            let stat = std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
        })
    }
}

impl Drop for ChildTask {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a command; an error is what it said.
pub fn run(program: &str, args: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(args).output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program} {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}

/// Returns the transport's name, as children take it.
pub fn name_of(transport: Transport) -> &'static str {
    match transport {
        Transport::Auto => "auto",
        Transport::SharedMemory => "shm",
        Transport::Unix => "unix",
        Transport::Tcp => "tcp",
        Transport::Grpc => "grpc",
    }
}
