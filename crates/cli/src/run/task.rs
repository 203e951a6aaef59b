//! One task of `ferroflow run` and its process.

use crate::Failure;
use crate::children::read_lines;
use cluster::TlsFiles;
use rustix::process::{Pid, Signal, getppid, kill_process_group};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;

/// Messages to the main thread.
pub enum Event {
    /// A task has printed a line.
    Line {
        /// Which task.
        number: usize,
        /// Whether the line is from standard error.
        is_error: bool,
        /// The line.
        text: String,
    },
    /// A task has closed its outputs.
    Ended(usize),
    /// This process has received a signal.
    Signal(Signal),
}

/// The role of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The chief: when it is done, the run is.
    Chief,
    /// A worker.
    Worker,
    /// A parameter server, which needn't exit by itself.
    ParameterServer,
    /// An evaluator.
    Evaluator,
}

/// A task and its process.
pub struct Task {
    job: &'static str,
    index: u32,
    /// The task's role.
    pub role: Role,
    /// The value of its `TF_CONFIG`.
    pub tf_config: String,
    /// Whether it was asked to stop; if so, its exit code is ignored.
    pub is_told: bool,
    /// The certificate of the task, for the program and its server.
    tls: Option<TlsFiles>,
    child: Option<Child>,
}

impl Task {
    /// Returns a task without a process.
    pub fn new(job: &'static str, index: u32, role: Role, tf_config: String) -> Task {
        Task { job, index, role, tf_config, is_told: false, tls: None, child: None }
    }

    /// Sets the task's certificate; `{job}` and `{task}` in the names are replaced by its own.
    pub fn use_tls(&mut self, files: &TlsFiles) {
        self.tls = Some(files.for_task(self.job, self.index));
    }

    /// Returns the name to show.
    pub fn name(&self) -> String {
        format!("{} {}", self.job, self.index)
    }

    /// Starts the process.
    pub fn start(&mut self, number: usize, program: &[OsString], events: &Sender<Event>) -> Result<(), Failure> {
        let name = self.name();
        let own = std::env::current_exe()
            .map_err(|error| Failure::new(format!("can't find this program's path: {error}")))?;
        let mut command = Command::new(own);
        // This program again, which makes sure that the process ends with this one, and then becomes the program.
        command.args(["run", "--parent"]).arg(std::process::id().to_string()).arg("--").args(program);
        command.env("TF_CONFIG", &self.tf_config);
        if let Some(files) = &self.tls {
            command.envs(files.to_env());
        }
        if std::env::var_os("PYTHONUNBUFFERED").is_none() {
            // The lines of several processes make sense only in the order in which they were printed.
            command.env("PYTHONUNBUFFERED", "1");
        }
        // Its own process group gets no signals from the terminal, which would end parameter servers before the chief has saved.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(|error| Failure::new(format!("can't start {name}: {error}")))?;
        let outputs = (child.stdout.take(), child.stderr.take());
        self.child = Some(child);
        let (Some(output), Some(errors)) = outputs else { return Err(Failure::new("a process without output")) };
        let (lines, complaints, ended) = (events.clone(), events.clone(), events.clone());
        let no_thread = |error| Failure::new(format!("can't start a thread for {name}: {error}"));
        let complain = move || {
            read_lines(errors, |text| complaints.send(Event::Line { number, is_error: true, text }).is_ok());
        };
        let complaining = std::thread::Builder::new().name(format!("{name} errors")).spawn(complain);
        let complaining = complaining.map_err(no_thread)?;
        let read = move || {
            read_lines(output, |text| lines.send(Event::Line { number, is_error: false, text }).is_ok());
            let _ = complaining.join();
            let _ = ended.send(Event::Ended(number));
        };
        std::thread::Builder::new().name(name.clone()).spawn(read).map(drop).map_err(no_thread)
    }

    /// Returns whether the task has a process that hasn't been waited for.
    pub fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// Waits for the process, whose outputs have been closed; returns `None` if there is none.
    pub fn wait(&mut self) -> Option<std::io::Result<ExitStatus>> {
        self.child.take().map(|mut child| child.wait())
    }

    /// Sends a signal to the process group, as a terminal does.
    pub fn signal(&self, signal: Signal) {
        if let Some(child) = &self.child {
            // The signal fails if the process has already exited.
            let _ = kill_process_group(Pid::from_child(child), signal);
        }
    }

    /// Kills the process.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        if let Some(child) = &mut self.child {
            let _ = child.wait();
        }
    }
}

/// Asks the system to end this process, and the program that replaces it, when its parent ends.
#[cfg(target_os = "linux")]
fn end_with_parent() -> rustix::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
}

/// Only Linux ends a process with its parent. Elsewhere a program whose parent is killed keeps running.
#[cfg(not(target_os = "linux"))]
fn end_with_parent() -> rustix::io::Result<()> {
    Ok(())
}

/// Becomes the program, which ends when the process that started this one does; returns why that is not possible.
pub fn become_program(parent: u32, command: &[OsString]) -> Failure {
    let Some((program, arguments)) = command.split_first() else { return Failure::new("no program") };
    if let Err(error) = end_with_parent() {
        return Failure::new(format!("the system can't end this process with its parent: {error}"));
    }
    if getppid().map(Pid::as_raw_nonzero).map(|pid| pid.get().unsigned_abs()) != Some(parent) {
        return Failure::new("the process that started this one is gone");
    }
    let error = Command::new(program).args(arguments).exec();
    Failure::new(format!("can't start {}: {error}", program.to_string_lossy())).with_code(127)
}
