//! One task of `train --processes`, as a process.

use super::{Flags, flags::ModelKind};
use crate::Failure;
use crate::children::read_lines;
use std::collections::VecDeque;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::time::Instant;

/// The line that makes a parameter server stop at once. The end of its input means that this process has ended.
pub const LEAVE: &str = "leave";

/// Messages to the main thread.
pub enum Event {
    /// A child has printed a line.
    Line(usize, String),
    /// A child has printed a line on its standard error.
    Complaint(usize, String),
    /// A child's outputs have ended.
    Ended(usize),
    /// Ctrl-C was pressed, or SIGTERM received.
    Interrupt,
    /// Ctrl-Z was pressed.
    Suspend,
}

/// The state of a task.
pub enum State {
    /// It has a process.
    Running(Child),
    /// It ended successfully.
    Done,
    /// It will be restarted at this time.
    Waiting(Instant),
    /// It ended, and the others continue without it.
    Lost,
}

/// A task and its process.
pub struct Task {
    /// `ps` or `worker`.
    pub job: &'static str,
    /// The index in the job.
    pub index: u32,
    /// Its state.
    pub state: State,
    /// Whether the current process has been ready (a ps), or has done a step (a worker).
    pub has_progressed: bool,
    /// Whether it has reported that another start would fail the same way.
    pub is_final: bool,
    /// How many times in a row it has ended without progress.
    pub futile: u32,
    /// The last lines of its standard error.
    pub last_lines: VecDeque<String>,
    input: Option<ChildStdin>,
}

/// The number of a child's last lines that are kept, to be shown if it fails.
const LAST_LINES: usize = 5;

impl Task {
    /// Returns a task without a process.
    pub fn new(job: &'static str, index: u32) -> Task {
        Task {
            job,
            index,
            state: State::Lost,
            has_progressed: false,
            is_final: false,
            futile: 0,
            last_lines: VecDeque::new(),
            input: None,
        }
    }

    /// Returns the name for messages.
    pub fn name(&self) -> String {
        format!("{} {}", self.job, self.index)
    }

    /// Returns whether it is the chief, which initializes, saves and restores for all.
    pub fn is_chief(&self) -> bool {
        self.job == "worker" && self.index == 0
    }

    /// Starts the process.
    pub fn start(
        &mut self,
        number: usize,
        flags: &Flags,
        ps_hosts: &str,
        worker_hosts: &str,
        events: &Sender<Event>,
    ) -> Result<(), Failure> {
        let name = self.name();
        let mut command = command(flags, self.job, self.index, ps_hosts, worker_hosts)?;
        let mut child = command.spawn().map_err(|error| Failure::new(format!("can't start {name}: {error}")))?;
        self.input = child.stdin.take();
        let outputs = (child.stdout.take(), child.stderr.take());
        self.state = State::Running(child);
        (self.has_progressed, self.is_final) = (false, false);
        self.last_lines.clear();
        let (Some(output), Some(errors)) = outputs else { return Err(Failure::new("a process without output")) };
        let no_thread = |error| Failure::new(format!("no thread for {name}: {error}"));
        let (lines, complaints, ended) = (events.clone(), events.clone(), events.clone());
        let complain = move || read_lines(errors, |line| complaints.send(Event::Complaint(number, line)).is_ok());
        let complaining = std::thread::Builder::new().name(format!("{name} errors")).spawn(complain);
        let complaining = complaining.map_err(no_thread)?;
        let read = move || {
            read_lines(output, |line| lines.send(Event::Line(number, line)).is_ok());
            let _ = complaining.join();
            let _ = ended.send(Event::Ended(number));
        };
        std::thread::Builder::new().name(name.clone()).spawn(read).map(drop).map_err(no_thread)
    }

    /// Keeps a line, to print if the task fails.
    pub fn remember(&mut self, line: String) {
        if self.last_lines.len() == LAST_LINES {
            self.last_lines.pop_front();
        }
        self.last_lines.push_back(line);
    }

    /// Waits for the process, whose outputs have ended; returns `None` if there is none.
    pub fn wait(&mut self) -> Option<std::io::Result<ExitStatus>> {
        match &mut self.state {
            State::Running(child) => Some(child.wait()),
            _ => None,
        }
    }

    /// Tells a worker to leave (the chief saves before), or a parameter server to stop at once.
    pub fn leave(&mut self) {
        if let Some(mut input) = self.input.take()
            && self.job == "ps"
        {
            // The write fails if the process has ended already, which is fine.
            let _ = writeln!(input, "{LEAVE}");
        }
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: rustix::process::Signal) {
        if let State::Running(child) = &self.state {
            let _ = rustix::process::kill_process(rustix::process::Pid::from_child(child), signal);
        }
    }

    /// Kills the process.
    pub fn kill(&mut self) {
        if let State::Running(child) = &mut self.state {
            // A process that has ended already can't be killed.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn command(flags: &Flags, job: &str, index: u32, ps_hosts: &str, worker_hosts: &str) -> Result<Command, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::new(format!("the program's own path can't be found: {error}")))?;
    let mut command = Command::new(program);
    command.args(["train", "--reports"]);
    let model = match flags.model {
        ModelKind::Mlp => "mlp",
        ModelKind::Cnn => "cnn",
        ModelKind::Crnn => "crnn",
        ModelKind::WideDeep => "wide_deep",
    };
    let mut set = |name: &str, value: String| {
        command.arg(format!("--{name}={value}"));
    };
    set("job_name", job.to_owned());
    set("task_index", index.to_string());
    if flags.is_all_reduce() {
        set("strategy", "allreduce".to_owned());
    } else {
        set("ps_hosts", ps_hosts.to_owned());
        set("sync_replicas", flags.is_sync().to_string());
    }
    set("worker_hosts", worker_hosts.to_owned());
    set("model", model.to_owned());
    set("hidden_units", flags.hidden_units.to_string());
    set("train_steps", flags.last_step().to_string());
    set("batch_size", flags.batch_size.to_string());
    set("learning_rate", flags.rate().to_string());
    let optional = [
        ("min_workers", flags.min_workers.map(|count| count.to_string())),
        ("max_workers", flags.max_workers.map(|count| count.to_string())),
        ("replicas_to_aggregate", flags.replicas_to_aggregate.map(|count| count.to_string())),
        ("data_dir", flags.data_dir.clone()),
        ("logdir", flags.logdir.clone()),
        ("save_checkpoint_secs", flags.save_checkpoint_secs.map(|seconds| seconds.to_string())),
        ("eval_every", flags.eval_every.map(|steps| steps.to_string())),
        ("export", flags.export.clone()),
        ("memory_limit", flags.memory.memory_limit.clone()),
        ("session_memory_limit", flags.memory.session_memory_limit.clone()),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            set(name, value);
        }
    }
    // Every task shows the whole cluster, and the chief runs as long as training does.
    if (job, index) == ("worker", 0) {
        command.args(flags.status.to_arguments());
    }
    // Relative names work: the child runs in the same directory.
    if let Some(files) = flags.listen.tls.files()? {
        command.envs(files.to_env());
    }
    // Flags name the task.
    command.env_remove("TF_CONFIG");
    // The end of its input tells the child that this process has ended. In its own process group it receives no signals from the
    // terminal, which would stop parameter servers before the chief has saved.
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    Ok(command)
}
