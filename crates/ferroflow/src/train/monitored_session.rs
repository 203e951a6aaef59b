//! [`MonitoredSession`]: a session with hooks, which is recreated when a task of the cluster is lost.
//!
//! ```
//! use ferroflow::train::{GradientDescentOptimizer, MonitoredSession, Optimizer, RunArgs, StopAtStepHook};
//! use ferroflow::variable::create_global_step;
//! use ferroflow::{Graph, Tensor, Variable};
//!
//! let g = Graph::new();
//! let step = create_global_step(&g);
//! let x = Variable::new(&g, "x", &g.constant_tensor(&Tensor::scalar(4f32)));
//! let loss = ferroflow::ops::math::square(x.value());
//! let train = GradientDescentOptimizer::new(0.1).minimize(&loss, Some(&step))?;
//!
//! let mut session = MonitoredSession::training(&g).hook(StopAtStepHook::at(20)).build()?;
//! let mut last = f32::MAX;
//! while !session.should_stop() {
//!     last = session.run(&RunArgs::new().target(&train).fetch(&loss))?[0].to_scalar()?;
//! }
//! session.close()?;
//! assert!(last < 0.1);
//! # Ok::<(), ferroflow::Status>(())
//! ```

use super::checkpoint_listener::CheckpointSaverListener;
use super::hooks::{CheckpointSaverHook, Every, StepCounterHook, SummarySaverHook};
use super::session_manager::{RestoreFrom, SessionManager, Waiting, is_recoverable};
use super::session_run_hook::{RunArgs, RunContext, RunValues, SessionRunHook};
use super::{Coordinator, Scaffold, start_queue_runners};
use crate::session::{RunOptions, Session, SessionConfig, Target};
use crate::summary::FileWriter;
use crate::variable::get_global_step;
use graph::Graph;
use std::time::Duration;
use tensor::{Code, Result, Status, Tensor};

/// Builds a monitored session.
///
/// ```
/// use ferroflow::{prelude::*, train::*, variable::create_global_step};
/// # let directory = tempfile::tempdir().unwrap();
/// # let logdir = directory.path().to_str().unwrap();
///
/// let g = Graph::new();
/// let step = create_global_step(&g);
/// let w = Variable::new(&g, "w", &g.constant(4f32));
/// let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
/// let builder: MonitoredSessionBuilder = MonitoredSession::training(&g);
/// let session = builder.checkpoint_dir(logdir).hook(StopAtStepHook::at(5)).build()?;
/// session.run_until_stopped(|session| session.run(&RunArgs::new().target(&train)).map(drop))?;
/// assert_eq!(latest_checkpoint(logdir)?, Some(format!("{logdir}/model.ckpt-5")));
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[must_use = "the session is made by `build`"]
pub struct MonitoredSessionBuilder {
    graph: Graph,
    target: Target,
    config: SessionConfig,
    is_chief: bool,
    checkpoint_dir: Option<String>,
    scaffold: Scaffold,
    hooks: Vec<Box<dyn SessionRunHook>>,
    chief_only_hooks: Vec<Box<dyn SessionRunHook>>,
    listeners: Vec<Box<dyn CheckpointSaverListener>>,
    checkpoint: Option<String>,
    stop: Coordinator,
    save_checkpoint: Option<Every>,
    save_summaries: Option<Every>,
    log_step_count: Option<i64>,
    stop_grace: Duration,
    recovery_wait: Duration,
    max_wait: Option<Duration>,
}

/// A session for a training loop. Steps that fail with `Unavailable` or `Aborted`, because a task was lost, are repeated in a new
/// session, which the chief restores from the newest checkpoint.
///
/// ```
/// use ferroflow::{prelude::*, train::*, variable::create_global_step};
///
/// let g = Graph::new();
/// let step = create_global_step(&g);
/// let w = Variable::new(&g, "w", &g.constant(4f32));
/// let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
/// let mut session = MonitoredSession::training(&g).hook(StopAtStepHook::at(3)).build()?;
/// let mut last = f32::MAX;
/// while !session.should_stop() {
///     let values = session.run(&RunArgs::new().target(&train).fetch(w.value()))?;
///     last = values[0].to_scalar::<f32>()?;
/// }
/// session.close()?;
/// assert!(last < 4.0);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct MonitoredSession {
    graph: Graph,
    target: Target,
    config: SessionConfig,
    is_chief: bool,
    checkpoint_dir: Option<String>,
    checkpoint: Option<String>,
    scaffold: Scaffold,
    manager: SessionManager,
    hooks: Vec<Box<dyn SessionRunHook>>,
    stop_grace: Duration,
    max_wait: Option<Duration>,
    live: Option<Live>,
    stop: Coordinator,
    recoveries: u64,
}

/// A session with its threads.
struct Live {
    session: Session,
    coordinator: Coordinator,
}

impl MonitoredSession {
    /// Returns a builder of a session for training. By default it runs in this process, as the chief, without a checkpoint
    /// directory.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let mut session = MonitoredSession::training(&g).build()?;
    /// let values = session.run(&RunArgs::new().fetch(w.value()))?;
    /// assert_eq!(values[0].to_scalar::<f32>()?, 4.0);
    /// session.close()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn training(graph: &Graph) -> MonitoredSessionBuilder {
        MonitoredSessionBuilder {
            graph: graph.clone(),
            target: Target::Local,
            config: SessionConfig::default(),
            is_chief: true,
            checkpoint_dir: None,
            scaffold: Scaffold::new(),
            hooks: Vec::new(),
            chief_only_hooks: Vec::new(),
            listeners: Vec::new(),
            checkpoint: None,
            stop: Coordinator::new(),
            save_checkpoint: Some(Every::Time(Duration::from_secs(600))),
            save_summaries: Some(Every::Steps(100)),
            log_step_count: Some(100),
            stop_grace: Duration::from_secs(120),
            recovery_wait: Duration::from_secs(30),
            max_wait: Some(Duration::from_secs(7200)),
        }
    }

    /// Returns whether the loop should end: a hook has requested it, or a thread has failed.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let mut session = MonitoredSession::training(&g).hook(StopAtStepHook::at(1)).build()?;
    /// assert!(!session.should_stop());
    /// session.run(&RunArgs::new().target(&train))?;
    /// assert!(session.should_stop());
    /// session.close()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn should_stop(&self) -> bool {
        if self.stop.should_stop() {
            return true;
        }
        match &self.live {
            None => false,
            // The next run recovers.
            Some(live) if live.coordinator.failure().as_ref().is_some_and(is_recoverable) => false,
            Some(live) => live.coordinator.should_stop(),
        }
    }

    /// Returns the coordinator, which stops the session from another thread, even while it waits for the chief.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let session = MonitoredSession::training(&g).build()?;
    /// session.stop_handle().request_stop(None);
    /// assert!(session.should_stop());
    /// session.close()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn stop_handle(&self) -> Coordinator {
        self.stop.clone()
    }

    /// Returns whether the session exists already.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let mut session = MonitoredSession::training(&g).build()?;
    /// assert!(!session.is_live());
    /// session.run(&RunArgs::new().target(&train))?;
    /// assert!(session.is_live());
    /// session.close()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn is_live(&self) -> bool {
        self.live.is_some()
    }

    /// Returns the current session; a recovery replaces it.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let mut session = MonitoredSession::training(&g).build()?;
    /// // Without the hooks.
    /// assert_eq!(session.raw_session()?.eval::<f32>(w.value())?, 4.0);
    /// session.close()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn raw_session(&mut self) -> Result<Session> {
        self.live().map(|live| live.session.clone())
    }

    /// Returns the graph.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let session = MonitoredSession::training(&g).build()?;
    /// assert!(session.graph().same(&g));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Returns how often the session was recreated.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let mut session = MonitoredSession::training(&g).build()?;
    /// session.run(&RunArgs::new().target(&train))?;
    /// assert_eq!(session.recoveries(), 0);
    /// session.close()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn recoveries(&self) -> u64 {
        self.recoveries
    }

    /// Returns the scaffold.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let session = MonitoredSession::training(&g).build()?;
    /// assert!(session.scaffold().saver.is_some());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn scaffold(&self) -> &Scaffold {
        &self.scaffold
    }

    /// Runs a step with the hooks; repeats it if a task was lost.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let mut session = MonitoredSession::training(&g).build()?;
    /// session.run(&RunArgs::new().target(&train))?;
    /// let values = session.run(&RunArgs::new().fetch(step.value()))?;
    /// assert_eq!(values[0].to_scalar::<i64>()?, 1);
    /// session.close()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn run(&mut self, args: &RunArgs) -> Result<Vec<Tensor>> {
        loop {
            self.live()?;
            let status = match self.run_once(args) {
                Ok(values) => return Ok(values),
                Err(status) => status,
            };
            // The first failure of a thread is more informative than its consequences.
            let first = self.live.as_ref().and_then(|live| live.coordinator.failure());
            let status = first.unwrap_or(status);
            if !is_recoverable(&status) || self.stop.should_stop() {
                return Err(status);
            }
            tracing::warn!("A task was lost; recreating the session. {status}");
            self.recoveries += 1;
            self.abandon();
        }
    }

    /// Runs `step` until the session should stop or the input ends, then closes the session.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let session = MonitoredSession::training(&g).hook(StopAtStepHook::at(5)).build()?;
    /// let mut steps = 0;
    /// session.run_until_stopped(|session| {
    ///     steps += 1;
    ///     session.run(&RunArgs::new().target(&train)).map(drop)
    /// })?;
    /// assert_eq!(steps, 5);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn run_until_stopped(mut self, mut step: impl FnMut(&mut MonitoredSession) -> Result<()>) -> Result<()> {
        while !self.should_stop() {
            match step(&mut self) {
                Ok(()) => {}
                Err(status) if status.code() == Code::OutOfRange => break,
                Err(status) => {
                    self.abandon();
                    return Err(status);
                }
            }
        }
        self.close()
    }

    /// Ends the session: calls the hooks' `end`, stops the threads, and closes the session. Returns the first failure.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let mut session = MonitoredSession::training(&g).checkpoint_dir(logdir).build()?;
    /// session.run(&RunArgs::new().target(&train))?;
    /// // The last checkpoint is saved here.
    /// session.close()?;
    /// assert_eq!(latest_checkpoint(logdir)?, Some(format!("{logdir}/model.ckpt-1")));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn close(mut self) -> Result<()> {
        let Some(live) = self.live.take() else { return Ok(()) };
        let mut result = match live.coordinator.failure() {
            Some(failure) => Err(failure),
            None => self.hooks.iter_mut().try_for_each(|hook| hook.end(&live.session)),
        };
        live.coordinator.request_stop(None);
        let joined = live.coordinator.join(self.stop_grace);
        let closed = live.session.close();
        if result.is_ok() {
            result = joined.and(closed);
        }
        result
    }

    fn run_once(&mut self, args: &RunArgs) -> Result<Vec<Tensor>> {
        let Some(live) = &self.live else { return Err(Status::internal("no session")) };
        if let Some(failure) = live.coordinator.failure() {
            return Err(failure);
        }
        let context = RunContext::new(&live.session, &live.coordinator, args);
        let mut merged = args.clone();
        let mut spans = Vec::with_capacity(self.hooks.len());
        for hook in &mut self.hooks {
            let asked = hook.before_run(&context)?;
            for target in asked.targets {
                if !merged.targets.contains(&target) {
                    merged.targets.push(target);
                }
            }
            merged.feeds.extend(asked.feeds);
            merge_options(&mut merged.options, &asked.options);
            let mut positions = Vec::with_capacity(asked.fetches.len());
            for fetch in asked.fetches {
                let position = merged.fetches.iter().position(|other| *other == fetch);
                positions.push(position.unwrap_or_else(|| {
                    merged.fetches.push(fetch);
                    merged.fetches.len() - 1
                }));
            }
            spans.push(positions);
        }
        let (mut values, metadata) = merged.run(&live.session)?;
        for (hook, positions) in self.hooks.iter_mut().zip(spans) {
            let results = positions.iter().filter_map(|&position| values.get(position).cloned()).collect();
            hook.after_run(&context, &RunValues { results, metadata: metadata.clone() })?;
        }
        if context.stop_requested() {
            self.stop.request_stop(None);
        }
        values.truncate(args.fetches.len());
        Ok(values)
    }

    /// Returns the session with its threads; creates it if there is none.
    fn live(&mut self) -> Result<&Live> {
        if self.live.is_none() {
            let live = self.create()?;
            return Ok(self.live.insert(live));
        }
        self.live.as_ref().ok_or_else(|| Status::internal("no session"))
    }

    fn create(&mut self) -> Result<Live> {
        let manager = self.manager.clone();
        let mut waiting = Waiting::new(&manager, self.max_wait);
        loop {
            match self.try_create() {
                Ok(live) => return Ok(live),
                Err(status) if is_recoverable(&status) => waiting.pause(&status.to_string())?,
                Err(status) => return Err(status),
            }
        }
    }

    fn try_create(&mut self) -> Result<Live> {
        let keeps_variables = self.hooks.iter().any(|hook| hook.keeps_variables());
        let session = if self.is_chief && !keeps_variables {
            let from = RestoreFrom {
                saver: self.scaffold.saver.clone(),
                directory: self.checkpoint_dir.clone(),
                checkpoint: self.checkpoint.clone(),
                wait: false,
            };
            self.manager.prepare_session(&self.target, &self.config, &from, &self.scaffold.init, self.max_wait)?
        } else {
            self.manager.wait_for_session(&self.target, &self.config, self.max_wait)?
        };
        let live = Live { session, coordinator: Coordinator::new() };
        let started = start_queue_runners(&live.session, &live.coordinator).and_then(|()| {
            self.hooks.iter_mut().try_for_each(|hook| hook.after_create_session(&live.session, &live.coordinator))
        });
        match started {
            Ok(()) => Ok(live),
            Err(status) => {
                self.live = Some(live);
                self.abandon();
                Err(status)
            }
        }
    }

    /// Abandons the current session; pending runs fail.
    fn abandon(&mut self) {
        let Some(live) = self.live.take() else { return };
        live.coordinator.request_stop(None);
        if let Err(status) = live.session.close() {
            tracing::debug!("the lost session can't be closed: {status}");
        }
        // Threads that don't end hold only the old session.
        let _ = live.coordinator.join(self.stop_grace);
    }
}

impl Drop for MonitoredSession {
    fn drop(&mut self) {
        self.abandon();
    }
}

fn merge_options(options: &mut RunOptions, other: &RunOptions) {
    options.full_trace |= other.full_trace;
    options.output_partition_graphs |= other.output_partition_graphs;
    options.timeout = options.timeout.max(other.timeout);
}

impl MonitoredSessionBuilder {
    /// Sets the target on which the graph runs.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// use ferroflow::distributed::create_local_server;
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let server = create_local_server()?;
    /// let mut session = MonitoredSession::training(&g).target(server.target()).build()?;
    /// session.run(&RunArgs::new().target(&train))?;
    /// session.close()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn target(mut self, target: impl Into<Target>) -> Self {
        self.target = target.into();
        self
    }

    /// Sets the settings of sessions, such as device filters.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let session = MonitoredSession::training(&g).config(ferroflow::SessionConfig::new()).build()?;
    /// session.close()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn config(mut self, config: impl Into<SessionConfig>) -> Self {
        self.config = config.into();
        self
    }

    /// Sets whether this task is the chief, which initializes, saves and restores for all.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let task_index = 1;
    /// // Waits for the chief, and neither saves nor restores.
    /// let session = MonitoredSession::training(&g).is_chief(task_index == 0).build()?;
    /// session.close()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn is_chief(mut self, is_chief: bool) -> Self {
        self.is_chief = is_chief;
        self
    }

    /// Sets the directory of checkpoints and events. A chief that saves there locks it as long as the session lives: building the
    /// session fails with `FailedPrecondition` if another process has locked the directory.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// for expected in [0, 1] {
    ///     // The second time it goes on from the checkpoint.
    ///     let mut session = MonitoredSession::training(&g).checkpoint_dir(logdir).build()?;
    ///     assert_eq!(session.raw_session()?.eval::<i64>(step.value())?, expected);
    ///     session.run(&RunArgs::new().target(&train))?;
    ///     session.close()?;
    /// }
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn checkpoint_dir(mut self, directory: &str) -> Self {
        self.checkpoint_dir = Some(directory.to_owned());
        self
    }

    /// Sets the scaffold.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let set = w.assign(&g.constant(7f32));
    /// let scaffold = Scaffold::new().init_fn(move |session| session.run_ops(&[&set]));
    /// let mut session = MonitoredSession::training(&g).scaffold(scaffold).build()?;
    /// assert_eq!(session.raw_session()?.eval::<f32>(w.value())?, 7.0);
    /// session.close()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn scaffold(mut self, scaffold: Scaffold) -> Self {
        self.scaffold = scaffold;
        self
    }

    /// Adds a hook.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let session = MonitoredSession::training(&g).hook(StopAtStepHook::at(100)).build()?;
    /// session.close()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn hook(mut self, hook: impl SessionRunHook + 'static) -> Self {
        self.hooks.push(Box::new(hook));
        self
    }

    /// Adds a hook for the chief; other tasks ignore it.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let hook = LoggingTensorHook::new(&[("w", w.value())], Every::Steps(100));
    /// let session = MonitoredSession::training(&g).is_chief(false).chief_only_hook(hook).build()?;
    /// session.close()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn chief_only_hook(mut self, hook: impl SessionRunHook + 'static) -> Self {
        self.chief_only_hooks.push(Box::new(hook));
        self
    }

    /// Adds a listener, which is notified of every checkpoint that the chief saves automatically.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*};
    ///
    /// struct Tell;
    /// impl CheckpointSaverListener for Tell {
    ///     fn before_save(&mut self, _session: &Session, step: i64) -> ferroflow::Result<()> {
    ///         println!("saving step {step}");
    ///         Ok(())
    ///     }
    /// }
    /// let builder = MonitoredSession::training(&Graph::new()).saving_listener(Tell);
    /// ```
    pub fn saving_listener(mut self, listener: impl CheckpointSaverListener + 'static) -> Self {
        self.listeners.push(Box::new(listener));
        self
    }

    /// Sets the checkpoint to restore, in place of the directory's newest one.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*};
    ///
    /// let g = Graph::new();
    /// let w = Variable::new(&g, "w", &g.constant(4f32));
    /// let missing = MonitoredSession::training(&g).checkpoint("/no/such/model.ckpt-7").build()?.raw_session();
    /// assert!(missing.is_err());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn checkpoint(mut self, path: &str) -> Self {
        self.checkpoint = Some(path.to_owned());
        self
    }

    /// Sets a coordinator that can stop the session from outside, even while it waits; when a hook requests a stop, the session
    /// requests it from the coordinator.
    ///
    /// ```
    /// use ferroflow::{Graph, train::{Coordinator, MonitoredSession}};
    ///
    /// let stop = Coordinator::new();
    /// let session = MonitoredSession::training(&Graph::new()).stop(&stop).build()?;
    /// stop.request_stop(None);
    /// assert!(session.should_stop());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn stop(mut self, stop: &Coordinator) -> Self {
        self.stop = stop.clone();
        self
    }

    /// Sets the interval at which the chief saves checkpoints; `None` means never.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let builder = MonitoredSession::training(&g).checkpoint_dir(logdir).save_checkpoint(Some(Every::Steps(100)));
    /// builder.build()?.close()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn save_checkpoint(mut self, every: Option<Every>) -> Self {
        self.save_checkpoint = every;
        self
    }

    /// Sets the interval at which the chief writes summaries; `None` means never.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let builder = MonitoredSession::training(&g).checkpoint_dir(logdir).save_summaries(Some(Every::Steps(10)));
    /// builder.build()?.close()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn save_summaries(mut self, every: Option<Every>) -> Self {
        self.save_summaries = every;
        self
    }

    /// Sets the number of steps after which the chief writes the step rate; `None` means never.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// MonitoredSession::training(&g).checkpoint_dir(logdir).log_step_count_steps(None).build()?.close()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn log_step_count_steps(mut self, steps: Option<i64>) -> Self {
        self.log_step_count = steps;
        self
    }

    /// Sets how long to wait for threads to stop.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// MonitoredSession::training(&g).stop_grace_secs(30).build()?.close()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn stop_grace_secs(mut self, secs: u64) -> Self {
        self.stop_grace = Duration::from_secs(secs);
        self
    }

    /// Sets the interval at which a waiting worker logs what it waits for.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// MonitoredSession::training(&g).is_chief(false).recovery_wait_secs(5).build()?.close()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn recovery_wait_secs(mut self, secs: u64) -> Self {
        self.recovery_wait = Duration::from_secs(secs);
        self
    }

    /// Sets how long a worker waits for the chief; `None` means without limit.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// use ferroflow::Code;
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let mut session = MonitoredSession::training(&g).is_chief(false).max_wait_secs(Some(0)).build()?;
    /// // There is no chief.
    /// assert_eq!(session.run(&RunArgs::new().target(&train)).unwrap_err().code(), Code::DeadlineExceeded);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn max_wait_secs(mut self, secs: Option<u64>) -> Self {
        self.max_wait = secs.map(Duration::from_secs);
        self
    }

    /// Completes the graph. The session itself is created on first use.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let session = MonitoredSession::training(&g).build()?;
    /// assert!(!session.is_live());
    /// session.close()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn build(mut self) -> Result<MonitoredSession> {
        for hook in self.hooks.iter_mut().chain(self.chief_only_hooks.iter_mut().filter(|_| self.is_chief)) {
            hook.begin(&self.graph)?;
        }
        let scaffold = self.scaffold.finalize(&self.graph)?;
        let mut hooks = self.hooks;
        if self.is_chief {
            hooks.append(&mut self.chief_only_hooks);
            if let Some(directory) = &self.checkpoint_dir
                && get_global_step(&self.graph)?.is_some()
            {
                let mut own: Vec<Box<dyn SessionRunHook>> = Vec::new();
                // This comes first, since it fails if another trainer has the directory; nothing must be written there in that
                // case.
                let mut saving = match (self.save_checkpoint, &scaffold.saver) {
                    (Some(every), Some(saver)) => {
                        let hook = CheckpointSaverHook::new(directory, every, saver.clone());
                        Some(self.listeners.into_iter().fold(hook, CheckpointSaverHook::listener))
                    }
                    _ => None,
                };
                saving.iter_mut().try_for_each(|hook| hook.begin(&self.graph))?;
                let writer = FileWriter::new(directory)?;
                writer.add_graph(&self.graph)?;
                if let Some(steps) = self.log_step_count {
                    own.push(Box::new(StepCounterHook::new(Every::Steps(steps), Some(writer.clone()))));
                }
                if let (Some(every), Some(summary)) = (self.save_summaries, &scaffold.summary_op) {
                    own.push(Box::new(SummarySaverHook::new(every, writer.clone(), summary)));
                }
                own.iter_mut().try_for_each(|hook| hook.begin(&self.graph))?;
                if let Some(hook) = saving {
                    own.push(Box::new(hook.writer(writer.clone())));
                }
                hooks.append(&mut own);
            }
        }
        let stop = self.stop;
        let manager = SessionManager::new(&self.graph)
            .local_init_op(scaffold.local_init_op.as_ref())
            .ready_op(scaffold.ready_op.as_ref())
            .ready_for_local_init_op(scaffold.ready_for_local_init_op.as_ref())
            .recovery_wait(self.recovery_wait)
            .coordinator(&stop);
        Ok(MonitoredSession {
            graph: self.graph,
            target: self.target,
            config: self.config,
            is_chief: self.is_chief,
            checkpoint_dir: self.checkpoint_dir,
            checkpoint: self.checkpoint,
            scaffold,
            manager,
            hooks,
            stop_grace: self.stop_grace,
            max_wait: self.max_wait,
            live: None,
            stop,
            recoveries: 0,
        })
    }
}
