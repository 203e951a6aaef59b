//! A cluster of processes on this machine: this process starts one for every task, and shows how they get on.

use super::progress::{Progress, Steps, Whose};
use super::task::from_line;
use super::worker::Trained;
use super::{Flags, conclude, describe};
use crate::Failure;
use ferroflow::data::mnist::Mnist;
use parking_lot::Mutex;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

/// What the main thread hears of its children.
enum Report {
    Line(String),
    Ended { job: &'static str, index: u32 },
}

/// The children, which end with this.
struct Children(Vec<(&'static str, u32, Child)>);

impl Drop for Children {
    fn drop(&mut self) {
        for (_, _, child) in &mut self.0 {
            // One that has ended already can't be killed.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts all tasks and waits for them.
pub fn run(flags: &Flags, digits: &Mnist) -> Result<(), Failure> {
    crate::say!("{}; {} ps and {} worker(s), each a process", describe(digits), flags.ps, flags.workers);
    let parents_ends = Arc::new(Mutex::new(Vec::new()));
    leave_on_signals(&parents_ends)?;
    let addresses = free_addresses((flags.ps + flags.workers) as usize)?;
    let (ps_hosts, worker_hosts) = addresses.split_at(flags.ps as usize);
    let (reports, incoming) = channel();
    let mut children = Children(Vec::new());
    let jobs = (0..flags.ps).map(|index| ("ps", index)).chain((0..flags.workers).map(|index| ("worker", index)));
    for (job, index) in jobs {
        let mut child = start(flags, job, index, &ps_hosts.join(","), &worker_hosts.join(","), &reports)?;
        parents_ends.lock().extend(child.stdin.take());
        children.0.push((job, index, child));
    }
    drop(reports);
    let mut progress = Progress::new(flags.last_step(), flags.workers, Whose::All);
    let mut trained: Option<Trained> = None;
    for report in incoming {
        match report {
            Report::Line(line) => {
                if let Some(steps) = Steps::from_line(&line) {
                    progress.take(steps);
                } else if let Some(done) = from_line(&line) {
                    trained = Some(done);
                } else if !line.starts_with("ferroflow server ready") {
                    progress.say(&line);
                }
            }
            Report::Ended { job, index } => {
                let found = children.0.iter_mut().find(|(other, number, _)| *other == job && *number == index);
                let Some((_, _, child)) = found else { continue };
                let status = child
                    .wait()
                    .map_err(|error| Failure::new(format!("{job} {index} can't be waited for: {error}")))?;
                if status.success() {
                    continue;
                }
                // The rest of an asynchronous job goes on without a worker.
                if job == "worker" && index != 0 && !flags.is_sync() {
                    progress.say(&format!("worker {index} was lost ({status}); the rest go on"));
                } else {
                    return Err(Failure::new(format!("{job} {index} was lost: {status}")));
                }
            }
        }
    }
    let Some(trained) = trained else { return Err(Failure::new("the chief ended without a result")) };
    conclude(&progress, &trained, flags);
    Ok(())
}

fn start(
    flags: &Flags,
    job: &'static str,
    index: u32,
    ps_hosts: &str,
    worker_hosts: &str,
    reports: &Sender<Report>,
) -> Result<Child, Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::new(format!("where am I? {error}")))?;
    let mut command = Command::new(program);
    command.args(["train", "--reports"]);
    let model = match flags.model {
        super::flags::ModelKind::Mlp => "mlp",
        super::flags::ModelKind::Cnn => "cnn",
    };
    let mut set = |name: &str, value: String| {
        command.arg(format!("--{name}={value}"));
    };
    set("job_name", job.to_owned());
    set("task_index", index.to_string());
    set("ps_hosts", ps_hosts.to_owned());
    set("worker_hosts", worker_hosts.to_owned());
    set("model", model.to_owned());
    set("sync_replicas", flags.is_sync().to_string());
    set("hidden_units", flags.hidden_units.to_string());
    set("train_steps", flags.last_step().to_string());
    set("batch_size", flags.batch_size.to_string());
    set("learning_rate", flags.rate().to_string());
    set("save_checkpoint_secs", flags.save_checkpoint_secs.to_string());
    let optional = [
        ("replicas_to_aggregate", flags.replicas_to_aggregate.map(|count| count.to_string())),
        ("data_dir", flags.data_dir.clone()),
        ("logdir", flags.logdir.clone()),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            set(name, value);
        }
    }
    let mut child = command
        // Its end tells the child that this process wants it to leave, or is gone itself.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| Failure::new(format!("can't start {job} {index}: {error}")))?;
    let Some(output) = child.stdout.take() else { return Err(Failure::new("a process without output")) };
    let reports = reports.clone();
    let read = move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let _ = reports.send(Report::Line(line));
        }
        let _ = reports.send(Report::Ended { job, index });
    };
    let spawned = std::thread::Builder::new().name(format!("{job} {index}")).spawn(read);
    spawned.map_err(|error| Failure::new(format!("no thread for {job} {index}: {error}")))?;
    Ok(child)
}

/// Returns addresses on which nothing listens now.
fn free_addresses(count: usize) -> Result<Vec<String>, Failure> {
    let open = || TcpListener::bind("127.0.0.1:0");
    // All are open at once, so that no two are the same.
    let listeners: std::io::Result<Vec<TcpListener>> = (0..count).map(|_| open()).collect();
    let addresses =
        listeners.and_then(|all| all.iter().map(TcpListener::local_addr).collect::<std::io::Result<Vec<_>>>());
    let addresses = addresses.map_err(|error| Failure::new(format!("no free ports: {error}")))?;
    Ok(addresses.iter().map(ToString::to_string).collect())
}

/// On Ctrl-C or SIGTERM the children save and leave, and this process shows it.
fn leave_on_signals(parents_ends: &Arc<Mutex<Vec<ChildStdin>>>) -> Result<(), Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = ferroflow::session::runtime()?;
    let _guard = runtime.enter();
    let listen = |kind| signal(kind).map_err(|error| Failure::new(format!("signals can't be received: {error}")));
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    let parents_ends = parents_ends.clone();
    runtime.spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            parents_ends.lock().clear();
        }
    });
    Ok(())
}
