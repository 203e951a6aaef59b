//! [`SessionRunHook`]: what takes part in every run of a [`MonitoredSession`](super::MonitoredSession).

use super::Coordinator;
use crate::session::{RunMetadata, RunOptions, Session};
use graph::{Graph, Operation, Output};
use std::cell::Cell;
use tensor::{Result, Tensor};

/// What is asked of a run.
#[derive(Clone, Debug, Default)]
pub struct RunArgs {
    pub(super) feeds: Vec<(String, Tensor)>,
    pub(super) fetches: Vec<String>,
    pub(super) targets: Vec<String>,
    pub(super) options: RunOptions,
}

impl RunArgs {
    /// Asks for nothing yet.
    pub fn new() -> RunArgs {
        RunArgs::default()
    }

    /// Gives a value for an output.
    pub fn feed(mut self, output: &Output, value: impl Into<Tensor>) -> Self {
        self.feeds.push((output.name(), value.into()));
        self
    }

    /// Asks for an output's value.
    pub fn fetch(mut self, output: &Output) -> Self {
        self.fetches.push(output.name());
        self
    }

    /// Runs an operation for its effects.
    pub fn target(mut self, operation: &Operation) -> Self {
        self.targets.push(operation.name());
        self
    }

    /// Sets how the run is done; what one asks to record is recorded for all.
    pub fn options(mut self, options: RunOptions) -> Self {
        self.options = options;
        self
    }

    /// Runs what is asked for in a plain session.
    pub(super) fn run(&self, session: &Session) -> Result<(Vec<Tensor>, Option<RunMetadata>)> {
        let mut runner = session.runner().options(self.options.clone());
        for (name, value) in &self.feeds {
            runner = runner.feed_name(name, value.clone());
        }
        let runner = self.fetches.iter().fold(runner, |runner, name| runner.fetch_name(name));
        self.targets.iter().fold(runner, |runner, name| runner.target_name(name)).run_with_metadata()
    }
}

/// The run that is about to be done or was done.
pub struct RunContext<'a> {
    session: &'a Session,
    coordinator: &'a Coordinator,
    original: &'a RunArgs,
    stop: Cell<bool>,
}

impl<'a> RunContext<'a> {
    pub(super) fn new(session: &'a Session, coordinator: &'a Coordinator, original: &'a RunArgs) -> RunContext<'a> {
        RunContext { session, coordinator, original, stop: Cell::new(false) }
    }

    /// Returns the session.
    pub fn session(&self) -> &Session {
        self.session
    }

    /// Returns what stops the threads.
    pub fn coordinator(&self) -> &Coordinator {
        self.coordinator
    }

    /// Returns what the program asked for.
    pub fn original_args(&self) -> &RunArgs {
        self.original
    }

    /// Asks the program to end after this run.
    pub fn request_stop(&self) {
        self.stop.set(true);
    }

    /// Returns whether a hook asked the program to end.
    pub fn stop_requested(&self) -> bool {
        self.stop.get()
    }
}

/// What a run gave to one hook.
pub struct RunValues {
    /// The values that the hook asked for.
    pub results: Vec<Tensor>,
    /// What was recorded of the run.
    pub metadata: Option<RunMetadata>,
}

/// Takes part in the life of a monitored session. Each method does nothing unless it is written.
pub trait SessionRunHook: Send {
    /// Is called once, while nodes can still be added to the graph.
    fn begin(&mut self, _graph: &Graph) -> Result<()> {
        Ok(())
    }

    /// Is called after every session that is made: at the start, and after every recovery.
    fn after_create_session(&mut self, _session: &Session, _coordinator: &Coordinator) -> Result<()> {
        Ok(())
    }

    /// Returns what to run beside what the program runs.
    fn before_run(&mut self, _context: &RunContext<'_>) -> Result<RunArgs> {
        Ok(RunArgs::new())
    }

    /// Is called with the values that [`before_run`](Self::before_run) asked for; not when the run failed.
    fn after_run(&mut self, _context: &RunContext<'_>, _values: &RunValues) -> Result<()> {
        Ok(())
    }

    /// Is called at the end, unless training failed.
    fn end(&mut self, _session: &Session) -> Result<()> {
        Ok(())
    }
}
