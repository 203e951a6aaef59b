//! `ferroflow run`: a cluster of any program on this machine. Every task is a process with its own `TF_CONFIG`; their output
//! lines are prefixed with the task's name, they stop together, and a line says which one failed.

mod output;
mod task;

use crate::children::{describe, free_addresses};
use crate::{Failure, exit};
use clap::{Args, ValueEnum};
use output::Printer;
use rustix::process::Signal;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use task::{Event, Role, Task};

/// The tasks to start, and their program.
#[derive(Args, Debug)]
pub struct Flags {
    /// The number of parameter servers.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=64))]
    ps: u32,
    /// The number of workers, including the chief.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: u32,
    /// Also starts an evaluator. In its TF_CONFIG it is outside of the cluster.
    #[arg(long)]
    evaluator: bool,
    /// The chief's job. Estimators accept chief or master; with worker, the chief is worker 0.
    #[arg(long, value_enum, default_value = "chief", value_name = "JOB")]
    chief: ChiefJob,
    /// How long the other tasks may continue when the chief is done, before they are asked to stop.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    grace: u64,
    #[command(flatten)]
    tls: crate::tls::TlsFlags,
    /// The parent process; when it exits, this one does too.
    #[arg(long, hide = true, value_name = "PID")]
    parent: Option<u32>,
    /// The program and its arguments, after `--`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// The name of the chief's job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ChiefJob {
    Chief,
    Master,
    Worker,
}

/// How long tasks that were asked to stop may take before they are killed.
const LEAVING: Duration = Duration::from_secs(10);

/// How long parameter servers may take to exit by themselves when no other task is left.
const BY_THEMSELVES: Duration = Duration::from_secs(5);

/// Starts all tasks and waits for them.
pub fn run(flags: &Flags) -> Result<(), Failure> {
    if let Some(parent) = flags.parent {
        return Err(task::become_program(parent, &flags.command));
    }
    let (events, incoming) = channel();
    listen_for_signals(&events)?;
    let mut tasks = tasks(flags)?;
    if let Some(files) = flags.tls.files()? {
        tasks.iter_mut().for_each(|task| task.use_tls(&files));
    }
    let printer = Printer::new(tasks.iter().map(Task::name).collect());
    let mut job = Job { tasks, printer, stage: Stage::Running, failed: None, told: None, grace: flags.grace };
    for number in 0..job.tasks.len() {
        job.tasks[number].start(number, &flags.command, &events)?;
    }
    job.wait(&incoming)?;
    job.outcome()
}

/// Creates the tasks, with addresses whose ports are free.
fn tasks(flags: &Flags) -> Result<Vec<Task>, Failure> {
    let mut jobs: Vec<(&'static str, Role, u32)> = Vec::new();
    match flags.chief {
        ChiefJob::Chief => jobs.push(("chief", Role::Chief, 0)),
        ChiefJob::Master => jobs.push(("master", Role::Chief, 0)),
        ChiefJob::Worker => jobs.push(("worker", Role::Chief, 0)),
    }
    let first = if flags.chief == ChiefJob::Worker { 1 } else { 0 };
    jobs.extend((0..flags.workers - 1).map(|index| ("worker", Role::Worker, first + index)));
    jobs.extend((0..flags.ps).map(|index| ("ps", Role::ParameterServer, index)));
    let addresses = free_addresses(jobs.len())?;
    let mut cluster = String::new();
    for name in ["chief", "master", "worker", "ps"] {
        let of_job = jobs.iter().zip(&addresses).filter(|((job, ..), _)| *job == name);
        let of_job: Vec<String> = of_job.map(|(_, address)| format!("\"{address}\"")).collect();
        if !of_job.is_empty() {
            let comma = if cluster.is_empty() { "" } else { ", " };
            cluster.push_str(&format!("{comma}\"{name}\": [{}]", of_job.join(", ")));
        }
    }
    if flags.evaluator {
        jobs.push(("evaluator", Role::Evaluator, 0));
    }
    let tasks = jobs.into_iter().map(|(job, role, index)| {
        let config = format!("{{\"cluster\": {{{cluster}}}, \"task\": {{\"type\": \"{job}\", \"index\": {index}}}}}");
        Task::new(job, index, role, config)
    });
    Ok(tasks.collect())
}

/// The stage of the run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    Running,
    /// The chief is done; the others have until this deadline, when they are asked to stop, or killed if they were already asked.
    ChiefDone {
        until: Instant,
        is_told: bool,
    },
    /// Only parameter servers are left; they have until this deadline, when they are asked to stop, or killed if they were
    /// already asked.
    ServersEnd {
        until: Instant,
        is_told: bool,
    },
    /// All were asked to stop, and those left are killed at this deadline.
    Leaving(Instant),
}

/// The tasks; dropping them ends their processes.
struct Job {
    tasks: Vec<Task>,
    printer: Printer,
    stage: Stage,
    failed: Option<Failure>,
    /// The signal that this process has received.
    told: Option<Signal>,
    grace: u64,
}

impl Drop for Job {
    fn drop(&mut self) {
        self.tasks.iter_mut().for_each(Task::kill);
    }
}

impl Job {
    fn wait(&mut self, incoming: &Receiver<Event>) -> Result<(), Failure> {
        while self.tasks.iter().any(Task::is_running) {
            let event = match self.deadline() {
                Some(until) => incoming.recv_timeout(until.saturating_duration_since(Instant::now())),
                None => incoming.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match event {
                Ok(Event::Line { number, is_error, text }) => self.printer.line(number, is_error, &text),
                Ok(Event::Ended(number)) => self.ended(number)?,
                Ok(Event::Signal(signal)) => self.leave(signal),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Failure::new("no task can be heard any more")),
            }
            self.advance();
        }
        Ok(())
    }

    fn outcome(&mut self) -> Result<(), Failure> {
        match (self.failed.take(), self.told) {
            (_, Some(signal)) => {
                let name = if signal == Signal::TERM { "SIGTERM" } else { "Ctrl-C" };
                Err(Failure::new(format!("ended by {name}")).with_code(128 + signal.as_raw() as u8))
            }
            (Some(failure), None) => Err(failure),
            (None, None) => Ok(()),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::Running => None,
            Stage::ChiefDone { until, .. } | Stage::ServersEnd { until, .. } | Stage::Leaving(until) => Some(until),
        }
    }

    fn ended(&mut self, number: usize) -> Result<(), Failure> {
        let task = &mut self.tasks[number];
        let Some(status) = task.wait() else { return Ok(()) };
        let status = status.map_err(|error| Failure::new(format!("{} can't be waited for: {error}", task.name())))?;
        let (name, role, is_told) = (task.name(), task.role, task.is_told);
        if !status.success() && !is_told {
            let is_needed = role != Role::ParameterServer || self.stage == Stage::Running;
            let what = format!("{name} {}", describe(status));
            if is_needed && self.failed.is_none() && self.told.is_none() {
                self.printer.note(&format!("{what}; stopping the others"));
                self.failed = Some(Failure::new(what).with_code(code_of(status)));
                self.tell(|_| true, Signal::TERM);
                self.stage = Stage::Leaving(Instant::now() + LEAVING);
            } else {
                self.printer.note(&what);
            }
        } else if role == Role::Chief && self.stage == Stage::Running {
            self.printer.note(&format!("{name} is done"));
            let until = Instant::now() + Duration::from_secs(self.grace);
            self.stage = Stage::ChiefDone { until, is_told: false };
        }
        Ok(())
    }

    /// Enters the next stage when this one is over.
    fn advance(&mut self) {
        let now = Instant::now();
        let are_servers_alone = self.tasks.iter().all(|task| task.role == Role::ParameterServer || !task.is_running());
        match self.stage {
            Stage::ChiefDone { .. } if are_servers_alone => {
                self.stage = Stage::ServersEnd { until: now + BY_THEMSELVES, is_told: false };
            }
            Stage::ChiefDone { until, is_told: false } if now >= until => {
                let names = self.running(|task| task.role != Role::ParameterServer);
                self.printer
                    .note(&format!("{names} still running {} s after the chief: asking them to stop", self.grace));
                self.tell(|task| task.role != Role::ParameterServer, Signal::TERM);
                self.stage = Stage::ChiefDone { until: now + LEAVING, is_told: true };
            }
            Stage::ServersEnd { until, is_told: false } if now >= until => {
                self.tell(|_| true, Signal::TERM);
                self.stage = Stage::ServersEnd { until: now + LEAVING, is_told: true };
            }
            Stage::ChiefDone { until, .. } | Stage::ServersEnd { until, .. } | Stage::Leaving(until)
                if now >= until =>
            {
                let names = self.running(|_| true);
                if !names.is_empty() {
                    self.printer.note(&format!("{names} didn't stop within {} s: killed", LEAVING.as_secs()));
                }
                for task in &mut self.tasks {
                    task.is_told = true;
                    task.signal(Signal::KILL);
                }
                self.stage = Stage::Leaving(now + LEAVING);
            }
            _ => {}
        }
    }

    /// Forwards a signal, to parameter servers last, since the others may want to save. A second signal kills.
    fn leave(&mut self, signal: Signal) {
        if self.told.replace(signal).is_some() {
            self.tell(|_| true, Signal::KILL);
            return;
        }
        self.tell(|task| task.role != Role::ParameterServer, signal);
        self.stage = Stage::ChiefDone { until: Instant::now() + LEAVING, is_told: true };
    }

    fn tell(&mut self, whom: impl Fn(&Task) -> bool, signal: Signal) {
        for task in self.tasks.iter_mut().filter(|task| task.is_running()) {
            if whom(task) {
                task.is_told = true;
                task.signal(signal);
            }
        }
    }

    fn running(&self, which: impl Fn(&Task) -> bool) -> String {
        let names = self.tasks.iter().filter(|task| task.is_running() && which(task)).map(Task::name);
        names.collect::<Vec<_>>().join(", ")
    }
}

/// Returns the exit code of a process in a shell's convention.
fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(i32::from(exit::FAILED));
    u8::try_from(code).unwrap_or(exit::FAILED)
}

/// Forwards signals to the main thread.
fn listen_for_signals(events: &Sender<Event>) -> Result<(), Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let failed = |error| Failure::new(format!("signals can't be received: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let (mut interrupt, mut terminate) = {
        let _guard = runtime.enter();
        (signal(SignalKind::interrupt()).map_err(failed)?, signal(SignalKind::terminate()).map_err(failed)?)
    };
    let events = events.clone();
    let listen = move || {
        runtime.block_on(async move {
            loop {
                let signal = tokio::select! {
                    _ = interrupt.recv() => Signal::INT,
                    _ = terminate.recv() => Signal::TERM,
                };
                if events.send(Event::Signal(signal)).is_err() {
                    return;
                }
            }
        });
    };
    let spawned = std::thread::Builder::new().name("signals".to_owned()).spawn(listen);
    spawned.map(drop).map_err(|error| Failure::new(format!("can't start a thread for signals: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::TfConfig;

    fn configs(arguments: &[&str]) -> Vec<TfConfig> {
        #[derive(clap::Parser)]
        struct Whole {
            #[command(flatten)]
            flags: Flags,
        }
        let words = ["run"].iter().chain(arguments).chain(&["--", "program", "--ps=9"]);
        let whole = <Whole as clap::Parser>::try_parse_from(words).ok().unwrap();
        assert_eq!(whole.flags.command, ["program", "--ps=9"]);
        let tasks = tasks(&whole.flags).ok().unwrap();
        tasks.iter().map(|task| TfConfig::parse(&task.tf_config).unwrap()).collect()
    }

    fn names(configs: &[TfConfig]) -> Vec<String> {
        configs.iter().map(|config| format!("{}{}", config.job, config.task_index)).collect()
    }

    #[test]
    fn the_chief_is_one_of_the_workers() {
        let all = configs(&["--ps", "2", "--workers", "3", "--evaluator"]);
        assert_eq!(names(&all), ["chief0", "worker0", "worker1", "ps0", "ps1", "evaluator0"]);
        assert!(
            all.iter().all(|config| config.cluster == all[0].cluster && config.cluster.num_tasks("evaluator") == 0)
        );
        assert_eq!(all.iter().filter(|config| config.is_chief()).count(), 1);
    }

    #[test]
    fn the_chief_has_the_job_that_is_asked_for() {
        assert_eq!(names(&configs(&["--chief=master", "--ps=0", "--workers=2"])), ["master0", "worker0"]);
        let all = configs(&["--chief=worker"]);
        assert_eq!(names(&all), ["worker0", "worker1", "ps0"]);
        assert!(all[0].is_chief());
    }
}
