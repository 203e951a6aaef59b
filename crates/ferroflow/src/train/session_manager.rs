//! [`SessionManager`]: creates sessions with initialized variables, restored from a checkpoint, initialized, or waited for.

use super::readiness::{Heard, Listening, Readiness};
use super::{Coordinator, Saver};
use crate::session::{Session, SessionConfig, Target};
use graph::{Graph, Operation, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::checkpoint_state::get_checkpoint_state;
use storage::file_system::FileSystems;
use tensor::{Code, Result, Status, Tensor};

/// The first interval at which a worker polls when it isn't notified; the intervals grow up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// The most variables that a message names.
const NAMES_MAX: usize = 5;

/// A function that initializes what operations can't.
///
/// ```
/// use ferroflow::train::InitFn;
/// use std::sync::Arc;
///
/// let init: InitFn = Arc::new(|session| {
///     println!("the graph has {} nodes", session.graph().num_nodes());
///     Ok(())
/// });
/// ```
pub type InitFn = Arc<dyn Fn(&Session) -> Result<()> + Send + Sync>;

/// How variables are initialized if there is no checkpoint.
///
/// ```
/// use ferroflow::{prelude::*, train::*, variable::create_global_step};
/// use ferroflow::session::Target;
/// # let g = Graph::new();
/// # let step = create_global_step(&g);
/// # let w = Variable::new(&g, "w", &g.constant(4f32));
/// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
/// let init = Initialization { op: Some(global_variables_initializer(&g)), ..Initialization::default() };
/// let manager = SessionManager::new(&g);
/// let session = manager.prepare_session(&Target::Local, &Default::default(), &RestoreFrom::default(), &init, None)?;
/// assert_eq!(session.eval::<f32>(w.value())?, 4.0);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Default)]
pub struct Initialization {
    /// The init operation.
    pub op: Option<Operation>,
    /// The feeds of the operation.
    pub feeds: Vec<(Output, Tensor)>,
    /// The function to run after the operation.
    pub function: Option<InitFn>,
}

/// Where to restore a session's variables from.
///
/// ```
/// use ferroflow::{prelude::*, train::*, variable::create_global_step};
/// use ferroflow::session::Target;
/// # let directory = tempfile::tempdir().unwrap();
/// # let logdir = directory.path().to_str().unwrap();
/// # let g = Graph::new();
/// # let step = create_global_step(&g);
/// # let w = Variable::new(&g, "w", &g.constant(4f32));
/// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
/// let saver = std::sync::Arc::new(Saver::new(&g)?);
/// let first = Session::new(&g)?;
/// first.run_ops(&[&global_variables_initializer(&g)])?;
/// saver.save(&first, &format!("{logdir}/model"), Some(1))?;
///
/// let from = RestoreFrom { saver: Some(saver), directory: Some(logdir.to_owned()), ..RestoreFrom::default() };
/// let init = Initialization::default();
/// let session = SessionManager::new(&g).prepare_session(&Target::Local, &Default::default(), &from, &init, None)?;
/// assert_eq!(session.eval::<f32>(w.value())?, 4.0);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Default)]
pub struct RestoreFrom {
    /// The saver that restores checkpoints.
    pub saver: Option<Arc<Saver>>,
    /// A directory, whose newest checkpoint is restored.
    pub directory: Option<String>,
    /// A specific checkpoint, in place of the directory's newest one.
    pub checkpoint: Option<String>,
    /// Whether to wait for a checkpoint to appear in the directory.
    pub wait: bool,
}

/// Creates sessions that are ready for training.
///
/// ```
/// use ferroflow::{prelude::*, train::*, variable::create_global_step};
/// use ferroflow::session::Target;
///
/// let g = Graph::new();
/// let step = create_global_step(&g);
/// let w = Variable::new(&g, "w", &g.constant(4f32));
/// let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
/// let missing = report_uninitialized_variables(&g, None);
/// let manager = SessionManager::new(&g).ready_op(Some(&missing));
/// let init = Initialization { op: Some(global_variables_initializer(&g)), ..Initialization::default() };
/// let session = manager.prepare_session(&Target::Local, &Default::default(), &RestoreFrom::default(), &init, None)?;
/// session.run_ops(&[&train])?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone)]
pub struct SessionManager {
    graph: Graph,
    local_init_op: Option<Operation>,
    ready_op: Option<Output>,
    ready_for_local_init_op: Option<Output>,
    recovery_wait: Duration,
    longest_pause: Duration,
    coordinator: Coordinator,
}

/// What a session lacks.
struct Lacking {
    /// A description.
    what: String,
    /// The device of the first uninitialized variable.
    device: Option<String>,
}

impl SessionManager {
    /// Returns a manager of a graph's sessions without any conditions for readiness.
    ///
    /// ```
    /// use ferroflow::Graph;
    /// use ferroflow::train::SessionManager;
    ///
    /// let manager = SessionManager::new(&Graph::new());
    /// ```
    pub fn new(graph: &Graph) -> SessionManager {
        SessionManager {
            graph: graph.clone(),
            local_init_op: None,
            ready_op: None,
            ready_for_local_init_op: None,
            recovery_wait: Duration::from_secs(30),
            longest_pause: LONGEST_PAUSE,
            coordinator: Coordinator::new(),
        }
    }

    /// Sets the operation that initializes each session's local state.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let local = local_variables_initializer(&g);
    /// let manager = SessionManager::new(&g).local_init_op(Some(&local));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn local_init_op(mut self, op: Option<&Operation>) -> Self {
        self.local_init_op = op.cloned();
        self
    }

    /// Sets the vector of names of uninitialized variables: a session is ready if it is empty.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let missing = report_uninitialized_variables(&g, None);
    /// let manager = SessionManager::new(&g).ready_op(Some(&missing));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn ready_op(mut self, op: Option<&Output>) -> Self {
        self.ready_op = op.cloned();
        self
    }

    /// Sets a vector that must be empty before the local initialization can run.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let missing = report_uninitialized_variables(&g, Some(&[step]));
    /// let manager = SessionManager::new(&g).ready_for_local_init_op(Some(&missing));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn ready_for_local_init_op(mut self, op: Option<&Output>) -> Self {
        self.ready_for_local_init_op = op.cloned();
        self
    }

    /// Sets the interval at which a waiting worker logs what it waits for.
    ///
    /// ```
    /// use ferroflow::{Graph, train::SessionManager};
    /// use std::time::Duration;
    ///
    /// let manager = SessionManager::new(&Graph::new()).recovery_wait(Duration::from_secs(5));
    /// ```
    pub fn recovery_wait(mut self, recovery_wait: Duration) -> Self {
        self.recovery_wait = recovery_wait;
        self
    }

    /// Sets the interval at which a waiting worker polls. The chief also notifies it as soon as everything is ready, unless the
    /// chief is a TensorFlow program.
    ///
    /// ```
    /// use ferroflow::{Graph, train::SessionManager};
    /// use std::time::Duration;
    ///
    /// let manager = SessionManager::new(&Graph::new()).look_every(Duration::from_secs(1));
    /// ```
    pub fn look_every(mut self, pause: Duration) -> Self {
        self.longest_pause = pause;
        self
    }

    /// Sets the coordinator whose stop request ends the waiting.
    ///
    /// ```
    /// use ferroflow::Graph;
    /// use ferroflow::train::{Coordinator, SessionManager};
    ///
    /// let coordinator = Coordinator::new();
    /// let manager = SessionManager::new(&Graph::new()).coordinator(&coordinator);
    /// ```
    pub fn coordinator(mut self, coordinator: &Coordinator) -> Self {
        self.coordinator = coordinator.clone();
        self
    }

    /// Creates a session and restores its variables, or initializes them if there is no checkpoint. This is for the chief.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// use ferroflow::session::Target;
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let init = Initialization { op: Some(global_variables_initializer(&g)), ..Initialization::default() };
    /// let manager = SessionManager::new(&g);
    /// let session = manager.prepare_session(&Target::Local, &Default::default(), &RestoreFrom::default(), &init, None)?;
    /// assert_eq!(session.eval::<i64>(step.value())?, 0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn prepare_session(
        &self,
        target: &Target,
        config: &SessionConfig,
        from: &RestoreFrom,
        init: &Initialization,
        max_wait: Option<Duration>,
    ) -> Result<Session> {
        let (session, is_restored) = self.restore(target, config, from, max_wait)?;
        if !is_restored {
            if init.op.is_none() && init.function.is_none() && self.local_init_op.is_none() {
                return Err(Status::failed_precondition(
                    "Model is not initialized and no init_op or init_fn or local_init_op was given",
                ));
            }
            if let Some(op) = &init.op {
                let run = session.runner().target(op);
                init.feeds.iter().fold(run, |run, (output, value)| run.feed(output, value.clone())).run()?;
            }
            if let Some(function) = &init.function {
                function(&session)?;
            }
        }
        let missing = |stage: &str, what: String| {
            let op = init.op.as_ref().map_or_else(|| "None".to_owned(), Operation::name);
            Status::failed_precondition(format!("Init operations did not make model {stage}. Init op: {op}, {what}"))
        };
        if let Some(lacking) = self.run_local_init(&session)? {
            return Err(missing("ready for local_init", lacking.what));
        }
        match self.not_ready(&session)? {
            None => {
                self.tell_waiting(target, config);
                Ok(session)
            }
            Some(lacking) => Err(missing("ready", lacking.what)),
        }
    }

    /// Creates a session and restores its variables from a checkpoint; returns whether it is ready.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// use ferroflow::session::Target;
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let missing = report_uninitialized_variables(&g, None);
    /// let manager = SessionManager::new(&g).ready_op(Some(&missing));
    /// let (_session, is_ready) =
    ///     manager.recover_session(&Target::Local, &Default::default(), &RestoreFrom::default(), None)?;
    /// assert!(!is_ready);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn recover_session(
        &self,
        target: &Target,
        config: &SessionConfig,
        from: &RestoreFrom,
        max_wait: Option<Duration>,
    ) -> Result<(Session, bool)> {
        let (session, is_restored) = self.restore(target, config, from, max_wait)?;
        let local = self.run_local_init(&session)?;
        if !is_restored {
            return Ok((session, false));
        }
        if let Some(Lacking { what, .. }) = local {
            tracing::info!("Restoring did not make model ready for local initialization: {what}");
            return Ok((session, false));
        }
        let not_ready = self.not_ready(&session)?;
        match &not_ready {
            Some(Lacking { what, .. }) => tracing::info!("Restoring did not make model ready: {what}"),
            None => self.tell_waiting(target, config),
        }
        Ok((session, not_ready.is_none()))
    }

    /// Notifies the workers that wait for a session of this graph that it is ready.
    fn tell_waiting(&self, target: &Target, config: &SessionConfig) {
        if matches!(target, Target::Local) {
            return;
        }
        let told = Readiness::of(&self.graph).and_then(|readiness| match readiness {
            Some(readiness) => readiness.tell(target, config),
            None => Ok(()),
        });
        if let Err(status) = told {
            tracing::debug!("can't notify the waiting workers, which poll anyway: {status}");
        }
    }

    /// Creates a session and waits until the chief's session has initialized the variables.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// use ferroflow::{distributed::create_local_server, session::Target};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let server = create_local_server()?;
    /// let chief = Session::connect(&g, &server.target())?;
    /// chief.run_ops(&[&global_variables_initializer(&g)])?;
    ///
    /// let missing = report_uninitialized_variables(&g, None);
    /// let manager = SessionManager::new(&g).ready_op(Some(&missing));
    /// let worker = manager.wait_for_session(&Target::from(server.target()), &Default::default(), None)?;
    /// assert_eq!(worker.eval::<f32>(w.value())?, 4.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn wait_for_session(
        &self,
        target: &Target,
        config: &SessionConfig,
        max_wait: Option<Duration>,
    ) -> Result<Session> {
        let mut waiting = Waiting::new(self, max_wait);
        let mut current: Option<Session> = None;
        let readiness = Readiness::of(&self.graph)?;
        let mut listening: Option<Listening<'_>> = None;
        loop {
            let session = match current.take() {
                Some(session) => session,
                None => target.session(&self.graph, config)?,
            };
            let not_ready = match self.run_local_init(&session) {
                Ok(None) => self.not_ready(&session),
                other => other,
            };
            let lacking = match not_ready {
                Ok(None) => return Ok(session),
                Ok(Some(lacking)) => {
                    if listening.is_none() {
                        listening = readiness.as_ref().and_then(|readiness| readiness.listen(target, config).ok());
                    }
                    current = Some(session);
                    lacking
                }
                // A lost task ends the sessions on it; the next session may find the task back.
                Err(status) if is_recoverable(&status) => {
                    let _ = session.close();
                    listening = None;
                    Lacking { what: status.to_string(), device: None }
                }
                Err(status) => return Err(status),
            };
            let told = match (&mut listening, &lacking.device) {
                (Some(listening), Some(device)) => Some((listening, device.as_str())),
                _ => None,
            };
            if let Err(status) = waiting.pause_until_told(&lacking.what, told) {
                if let Some(session) = current {
                    let _ = session.close();
                }
                return Err(status);
            }
        }
    }

    fn restore(
        &self,
        target: &Target,
        config: &SessionConfig,
        from: &RestoreFrom,
        max_wait: Option<Duration>,
    ) -> Result<(Session, bool)> {
        let session = target.session(&self.graph, config)?;
        let Some(saver) = &from.saver else { return Ok((session, false)) };
        if let Some(checkpoint) = &from.checkpoint {
            saver.restore(&session, checkpoint)?;
            return Ok((session, true));
        }
        let Some(directory) = &from.directory else { return Ok((session, false)) };
        let mut waiting = Waiting::new(self, max_wait);
        let state = loop {
            match get_checkpoint_state(&FileSystems::all(), directory, None)? {
                Some(state) => break state,
                None if from.wait => waiting.pause(&format!("no checkpoint in {directory} yet"))?,
                None => return Ok((session, false)),
            }
        };
        saver.restore(&session, &state.model_checkpoint_path)?;
        saver.recover_last_checkpoints(&state.all_model_checkpoint_paths)?;
        Ok((session, true))
    }

    /// Runs the local initialization; returns what it lacks if it can't run yet.
    fn run_local_init(&self, session: &Session) -> Result<Option<Lacking>> {
        let Some(op) = &self.local_init_op else { return Ok(None) };
        if let Some(ready) = &self.ready_for_local_init_op
            && let Some(lacking) = self.lacking(session, ready)?
        {
            return Ok(Some(lacking));
        }
        session.run_ops(&[op])?;
        Ok(None)
    }

    /// Returns what the session lacks; `None` if it is ready.
    fn not_ready(&self, session: &Session) -> Result<Option<Lacking>> {
        match &self.ready_op {
            None => Ok(None),
            Some(ready) => self.lacking(session, ready),
        }
    }

    fn lacking(&self, session: &Session, ready: &Output) -> Result<Option<Lacking>> {
        let values = match session.run(&[ready]) {
            Ok(values) => values,
            Err(status) if status.code() == Code::FailedPrecondition => {
                return Ok(Some(Lacking { what: status.to_string(), device: None }));
            }
            Err(status) => return Err(status),
        };
        let Some(value) = values.first().filter(|value| value.num_elements() > 0) else { return Ok(None) };
        let Ok(names) = value.strings() else {
            return Ok(Some(Lacking { what: format!("{} is not empty", ready.name()), device: None }));
        };
        let names: Vec<String> = names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        let device = names.first().and_then(|name| self.graph.operation(name)).map(|op| op.device());
        Ok(Some(Lacking { what: self.describe(names.into_iter()), device }))
    }

    /// Lists variables and their devices.
    fn describe(&self, names: impl ExactSizeIterator<Item = String>) -> String {
        let count = names.len();
        let named: Vec<String> = names
            .take(NAMES_MAX)
            .map(|name| match self.graph.operation(&name).map(|op| op.device()) {
                Some(device) if !device.is_empty() => format!("{name} on {device}"),
                _ => name,
            })
            .collect();
        let more = if count > NAMES_MAX { format!(" and {} more", count - NAMES_MAX) } else { String::new() };
        format!("Variables not initialized: {}{more}", named.join(", "))
    }
}

/// Returns whether a new session may succeed after this failure.
pub(super) fn is_recoverable(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::Aborted)
}

/// Waits until the next poll, and logs at intervals what it waits for.
pub(super) struct Waiting<'a> {
    manager: &'a SessionManager,
    start: Instant,
    said: Option<Instant>,
    pause: Duration,
    max_wait: Option<Duration>,
}

impl<'a> Waiting<'a> {
    pub(super) fn new(manager: &'a SessionManager, max_wait: Option<Duration>) -> Waiting<'a> {
        Waiting { manager, start: Instant::now(), said: None, pause: FIRST_PAUSE, max_wait }
    }

    pub(super) fn pause(&mut self, what: &str) -> Result<()> {
        self.pause_until_told(what, None)
    }

    /// As [`pause`](Self::pause), until the chief notifies of the variables on a device.
    fn pause_until_told(&mut self, what: &str, told: Option<(&mut Listening<'_>, &str)>) -> Result<()> {
        let stopped = || Status::cancelled(format!("stopped while waiting for model to be ready. {what}"));
        if self.max_wait.is_some_and(|max_wait| self.start.elapsed() >= max_wait) {
            return Err(Status::deadline_exceeded(format!(
                "Session was not ready after waiting {} secs. {what}",
                self.start.elapsed().as_secs()
            )));
        }
        if self.said.is_none_or(|said| said.elapsed() >= self.manager.recovery_wait) {
            tracing::info!("Waiting for model to be ready. {what}");
            self.said = Some(Instant::now());
        }
        let longest = match self.max_wait {
            Some(max_wait) => self.manager.longest_pause.min(max_wait.saturating_sub(self.start.elapsed())),
            None => self.manager.longest_pause,
        };
        let until = Instant::now() + longest;
        if let Some((listening, device)) = told {
            while !self.manager.coordinator.should_stop() {
                let left = until.saturating_duration_since(Instant::now());
                match listening.wait(device, left.min(LONGEST_PAUSE)) {
                    Heard::Told => return Ok(()),
                    Heard::Nothing if left <= LONGEST_PAUSE => return Ok(()),
                    Heard::Nothing => {}
                    Heard::CannotHear => break,
                }
            }
        }
        if self.manager.coordinator.wait_for_stop(Some(self.pause)) {
            return Err(stopped());
        }
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}
