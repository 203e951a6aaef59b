//! A cluster of processes on this machine: this process starts one for every task, shows their progress, restarts lost ones, and
//! handles Ctrl-C: workers leave, then the chief saves, and parameter servers stop last.

use super::child::{Event, State, Task};
use super::progress::{Progress, Steps, Whose};
use super::recipe::{Recipe, describe};
use super::restarts::{FUTILE_MAX, RESTARTS_MAX, Restarts, pause};
use super::task::{FAILED_FOR_GOOD, from_line};
use super::worker::Trained;
use super::{Flags, conclude};
use crate::Failure;
use crate::children::{describe as describe_end, free_addresses};
use rustix::process::Signal;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Starts all tasks and waits for them.
pub fn run(flags: &Flags, recipe: &dyn Recipe) -> Result<(), Failure> {
    let ps = flags.num_ps();
    crate::say!("{}; {ps} ps and {} worker(s), each a process", describe(recipe), flags.workers);
    let (events, incoming) = channel();
    listen_for_signals(&events)?;
    // Further workers may join those started here.
    let all = flags.workers.max(flags.max_workers.unwrap_or(0));
    let addresses = free_addresses((ps + all) as usize)?;
    let (ps_hosts, worker_hosts) = addresses.split_at(ps as usize);
    if all > flags.workers {
        crate::say!(
            "another worker joins with: ferroflow train --strategy=allreduce --max_workers={all} --job_name=worker --task_index={} \
             --worker_hosts={}",
            flags.workers,
            worker_hosts.join(",")
        );
    }
    let jobs = (0..ps).map(|index| ("ps", index)).chain((0..flags.workers).map(|index| ("worker", index)));
    let mut job = Job {
        flags,
        ps_hosts: ps_hosts.join(","),
        worker_hosts: worker_hosts.join(","),
        events,
        tasks: jobs.map(|(job, index)| Task::new(job, index)).collect(),
        restarts: Restarts::default(),
        progress: Progress::new(flags.last_step(), all, Whose::All),
        trained: None,
        stage: Stage::Training,
    };
    for number in 0..job.tasks.len() {
        job.start(number)?;
    }
    match job.run(&incoming)? {
        Outcome::Trained(trained) => conclude(&job.progress, &trained, flags),
        Outcome::Abandoned => {
            job.progress.finish(None);
            drop(job);
            eprintln!("ended at once; the steps since the last checkpoint are lost");
            std::process::exit(130);
        }
    }
    Ok(())
}

/// How the training ended.
enum Outcome {
    Trained(Trained),
    /// At the second Ctrl-C, without saving.
    Abandoned,
}

/// The stage of the training.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Training,
    /// The workers other than the chief have until this deadline to leave.
    WorkersLeave(Instant),
    /// The chief saves and leaves.
    ChiefLeaves,
    /// The chief is done; the other workers have until this deadline, when they are told to leave, or killed if they were told already.
    Ending {
        until: Instant,
        is_told: bool,
    },
    /// The parameter servers have until this deadline to stop.
    ServersStop(Instant),
}

/// How long the workers may take to leave before the chief saves. Their later steps are lost.
const WORKERS_LEAVE: Duration = Duration::from_secs(5);

/// How long the other tasks may continue when the chief is done.
const ENDING: Duration = Duration::from_secs(10);

/// The tasks, whose processes end when this is dropped.
struct Job<'a> {
    flags: &'a Flags,
    ps_hosts: String,
    worker_hosts: String,
    events: Sender<Event>,
    tasks: Vec<Task>,
    restarts: Restarts,
    progress: Progress,
    trained: Option<Trained>,
    stage: Stage,
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        self.tasks.iter_mut().for_each(Task::kill);
    }
}

impl Job<'_> {
    fn run(&mut self, incoming: &Receiver<Event>) -> Result<Outcome, Failure> {
        while self.tasks.iter().any(|task| matches!(task.state, State::Running(_) | State::Waiting(_))) {
            let event = match self.next_deadline() {
                Some(until) => incoming.recv_timeout(until.saturating_duration_since(Instant::now())),
                None => incoming.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match event {
                Ok(Event::Line(number, line)) => self.hear(number, &line),
                Ok(Event::Complaint(number, line)) => self.hear_complaint(number, line),
                Ok(Event::Ended(number)) => self.ended(number)?,
                Ok(Event::Interrupt) => match self.stage {
                    Stage::Training => self.interrupt(),
                    Stage::WorkersLeave(_) | Stage::ChiefLeaves => return Ok(Outcome::Abandoned),
                    // Everything is saved.
                    Stage::Ending { .. } | Stage::ServersStop(_) => self.tasks.iter_mut().for_each(Task::kill),
                },
                Ok(Event::Suspend) => self.suspend(),
                Err(RecvTimeoutError::Timeout) => self.start_those_due()?,
                Err(RecvTimeoutError::Disconnected) => return Err(Failure::new("no task can be heard any more")),
            }
            self.advance();
        }
        match self.trained.take() {
            Some(trained) => Ok(Outcome::Trained(trained)),
            None => Err(Failure::new("the chief ended without a result")),
        }
    }

    fn start(&mut self, number: usize) -> Result<(), Failure> {
        let task = &mut self.tasks[number];
        task.start(number, self.flags, &self.ps_hosts, &self.worker_hosts, &self.events)
    }

    fn next_deadline(&self) -> Option<Instant> {
        let waiting = self.tasks.iter().filter_map(|task| match task.state {
            State::Waiting(until) => Some(until),
            _ => None,
        });
        let leaving = match self.stage {
            Stage::WorkersLeave(until) | Stage::Ending { until, .. } | Stage::ServersStop(until) => Some(until),
            Stage::Training | Stage::ChiefLeaves => None,
        };
        waiting.chain(leaving).min()
    }

    fn start_those_due(&mut self) -> Result<(), Failure> {
        let now = Instant::now();
        for number in 0..self.tasks.len() {
            if matches!(self.tasks[number].state, State::Waiting(until) if until <= now) {
                self.start(number)?;
            }
        }
        Ok(())
    }

    fn hear(&mut self, number: usize, line: &str) {
        let task = &mut self.tasks[number];
        if let Some(steps) = Steps::from_line(line) {
            task.has_progressed = true;
            self.progress.take(steps);
        } else if let Some(done) = from_line(line) {
            // Only the chief was told to leave, and it has saved: further steps of the others would be lost.
            if done.is_interrupted && self.stage == Stage::Training {
                self.interrupt();
            }
            self.trained = Some(done);
        } else if line == FAILED_FOR_GOOD {
            task.is_final = true;
        } else if line.starts_with("ferroflow server ready") {
            task.has_progressed |= task.job == "ps";
        } else {
            self.progress.say(line);
        }
    }

    fn hear_complaint(&mut self, number: usize, line: String) {
        let task = &mut self.tasks[number];
        // Its error is printed when it is decided what becomes of the task.
        if !line.starts_with("ferroflow: ") {
            self.progress.complain(&line);
        }
        task.remember(line);
    }

    /// Decides what to do about a task whose process has ended.
    fn ended(&mut self, number: usize) -> Result<(), Failure> {
        let task = &mut self.tasks[number];
        let Some(status) = task.wait() else { return Ok(()) };
        let status = status.map_err(|error| Failure::new(format!("{} can't be waited for: {error}", task.name())))?;
        task.state = State::Done;
        let (name, end) = (task.name(), describe_end(status));
        // A parameter server ends when it is told to, which doesn't happen during training.
        if status.success() && (task.job == "worker" || self.stage != Stage::Training) {
            return Ok(());
        }
        if self.trained.is_some() || self.stage != Stage::Training {
            if task.is_chief() && self.trained.is_none() {
                let why = last_words(task);
                return Err(Failure::new(format!("{name} {end} before it had saved a checkpoint{why}")));
            }
            self.progress.say(&format!("{name} {end}"));
            return Ok(());
        }
        if task.is_final || status.code() == Some(2) {
            return Err(Failure::new(format!("{name} {end}{}", last_words(task))));
        }
        task.futile = if task.has_progressed { 0 } else { task.futile + 1 };
        let futile = task.futile;
        if futile >= FUTILE_MAX {
            return self.give_up(number, &format!("{name} {end}, {futile} times in a row before it had done anything"));
        }
        let Some(count) = self.restarts.count(Instant::now()) else {
            return self.give_up(
                number,
                &format!("{name} {end}, and tasks were started again {RESTARTS_MAX} times in an hour"),
            );
        };
        let why = last_words(&self.tasks[number]);
        self.progress.say(&format!("{name} {end}{why}; starting it again ({count} of {RESTARTS_MAX} in an hour)"));
        let task = &mut self.tasks[number];
        if task.job == "ps" && self.flags.logdir.is_none() {
            self.progress.say("there is no checkpoint to go on from without --logdir: training begins again");
        }
        task.state = State::Waiting(Instant::now() + pause(futile));
        // Workers that had reached the last step are needed again when the others go back to a checkpoint.
        if task.job == "ps" || task.is_chief() {
            let done = self.tasks.iter_mut().filter(|task| task.job == "worker" && matches!(task.state, State::Done));
            done.for_each(|task| task.state = State::Waiting(Instant::now()));
        }
        self.start_those_due()
    }

    /// Continues without a worker if that is possible, and fails otherwise.
    fn give_up(&mut self, number: usize, what: &str) -> Result<(), Failure> {
        let task = &mut self.tasks[number];
        let why = last_words(task);
        let is_elastic = self.flags.bounds(self.flags.workers).is_some();
        let needs_all = self.flags.is_sync() || (self.flags.is_all_reduce() && !is_elastic);
        if task.job == "ps" || task.is_chief() || needs_all {
            return Err(Failure::new(format!("{what}{why}")));
        }
        task.state = State::Lost;
        self.progress.say(&format!("{what}{why}; the others go on without it"));
        Ok(())
    }

    /// Starts to end the training.
    fn interrupt(&mut self) {
        self.progress.complain("saving and leaving; press Ctrl-C again to end at once");
        for task in &mut self.tasks {
            if matches!(task.state, State::Waiting(_)) {
                task.state = State::Lost;
            }
            // With all-reduce, the chief needs the others to finish its current step.
            if task.job == "worker" && task.is_chief() == self.flags.is_all_reduce() {
                task.leave();
            }
        }
        self.stage = match self.flags.is_all_reduce() {
            true => Stage::ChiefLeaves,
            false => Stage::WorkersLeave(Instant::now() + WORKERS_LEAVE),
        };
    }

    /// Enters the next stage when this one is over.
    fn advance(&mut self) {
        let now = Instant::now();
        let is_needed = |task: &Task| matches!(task.state, State::Running(_) | State::Waiting(_));
        let is_chief_needed = self.tasks.iter().any(|task| task.is_chief() && is_needed(task));
        let are_others_needed =
            self.tasks.iter().any(|task| task.job == "worker" && !task.is_chief() && is_needed(task));
        match self.stage {
            Stage::Training if !is_chief_needed => {
                self.stage = Stage::Ending { until: now + ENDING, is_told: false };
                self.advance();
            }
            Stage::WorkersLeave(until) if !are_others_needed || now >= until => {
                self.tasks.iter_mut().filter(|task| task.is_chief()).for_each(Task::leave);
                self.stage = Stage::ChiefLeaves;
                self.advance();
            }
            Stage::ChiefLeaves if !is_chief_needed => {
                self.tasks.iter_mut().filter(|task| task.job == "worker").for_each(Task::leave);
                self.stage = Stage::Ending { until: now + ENDING, is_told: true };
                self.advance();
            }
            Stage::Ending { .. } if !are_others_needed => {
                self.tasks.iter_mut().filter(|task| task.job == "ps").for_each(Task::leave);
                self.stage = Stage::ServersStop(now + ENDING);
            }
            Stage::Ending { until, is_told } if now >= until => {
                let workers = self.tasks.iter_mut().filter(|task| task.job == "worker");
                workers.for_each(if is_told { Task::kill } else { Task::leave });
                self.stage = Stage::Ending { until: now + ENDING, is_told: true };
            }
            Stage::ServersStop(until) if now >= until => {
                self.tasks.iter_mut().for_each(Task::kill);
                self.stage = Stage::ServersStop(now + ENDING);
            }
            _ => {}
        }
    }

    /// Stops all processes until this one is continued, as if all were in the terminal's process group.
    fn suspend(&mut self) {
        self.tasks.iter().for_each(|task| task.signal(Signal::STOP));
        // This returns when the process is continued.
        let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
        self.tasks.iter().for_each(|task| task.signal(Signal::CONT));
    }
}

/// Returns the last error line of a task, to be appended to the message about its end.
fn last_words(task: &Task) -> String {
    let failure = task.last_lines.iter().rev().find_map(|line| line.strip_prefix("ferroflow: "));
    failure.map_or_else(String::new, |failure| format!(": {failure}"))
}

/// Forwards signals to the main thread.
fn listen_for_signals(events: &Sender<Event>) -> Result<(), Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = ferroflow::session::runtime()?;
    let _guard = runtime.enter();
    let listen = |kind| signal(kind).map_err(|error| Failure::new(format!("signals can't be received: {error}")));
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    let mut suspend = listen(SignalKind::from_raw(Signal::TSTP.as_raw()))?;
    let events = events.clone();
    runtime.spawn(async move {
        loop {
            let event = tokio::select! {
                _ = interrupt.recv() => Event::Interrupt,
                _ = terminate.recv() => {
                    crate::exit::note_sigterm();
                    Event::Interrupt
                }
                _ = suspend.recv() => Event::Suspend,
            };
            if events.send(event).is_err() {
                return;
            }
        }
    });
    Ok(())
}
