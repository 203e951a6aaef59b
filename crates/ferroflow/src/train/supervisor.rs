//! [`Supervisor`]: supervises a training program: it creates the session, saves checkpoints and summaries during training, and
//! restores after a restart.
//!
//! ```
//! use ferroflow::train::{GradientDescentOptimizer, Optimizer, Supervisor};
//! use ferroflow::variable::create_global_step;
//! use ferroflow::{Graph, Tensor, Variable};
//!
//! let g = Graph::new();
//! let step = create_global_step(&g);
//! let x = Variable::new(&g, "x", &g.constant_tensor(&Tensor::scalar(4f32)));
//! let loss = ferroflow::ops::math::square(x.value());
//! let train = GradientDescentOptimizer::new(0.1).minimize(&loss, Some(&step))?;
//!
//! let supervisor = Supervisor::builder(&g).build()?;
//! let x = supervisor.managed_session("", |session| {
//!     while !supervisor.should_stop() && session.eval::<i64>(step.value())? < 20 {
//!         session.run_ops(&[&train])?;
//!     }
//!     session.eval::<f32>(x.value())
//! })?;
//! assert!(x < 0.1);
//! # Ok::<(), ferroflow::Status>(())
//! ```

use super::directory_lock::DirectoryLock;
use super::session_manager::{InitFn, Initialization, RestoreFrom, SessionManager};
use super::write_graph::{GRAPH_FILE, write_graph};
use super::{
    Coordinator, QueueRunner, Saver, global_variables_initializer, report_uninitialized_variables, start_queue_runners,
};
use crate::session::{Session, SessionConfig, Target};
use crate::summary::{self, FileWriter, SessionStatus};
use crate::variable::{Variable, get_global_step, global_variables};
use graph::{Graph, Operation, Output};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::file_system::{FileSystem, FileSystems, path};
use tensor::{Result, Status, Tensor};

/// A builder's option: the default, none, or a given value.
#[derive(Clone)]
enum Choice<T> {
    Default,
    Without,
    Given(T),
}

impl<T> Choice<T> {
    fn or_default(self, default: impl FnOnce() -> Result<Option<T>>) -> Result<Option<T>> {
        match self {
            Choice::Default => default(),
            Choice::Without => Ok(None),
            Choice::Given(value) => Ok(Some(value)),
        }
    }
}

/// Builds a supervisor.
///
/// ```
/// use ferroflow::{prelude::*, train::*};
/// # let directory = tempfile::tempdir().unwrap();
/// # let logdir = directory.path().to_str().unwrap();
/// # let g = Graph::new();
/// # let w = Variable::new(&g, "w", &g.constant(4f32));
/// let builder: SupervisorBuilder = Supervisor::builder(&g).logdir(logdir).save_model_secs(60);
/// let supervisor = builder.build()?;
/// assert_eq!(supervisor.save_path(), Some(format!("{logdir}/model.ckpt").as_str()));
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[must_use = "the supervisor is made by `build`"]
pub struct SupervisorBuilder {
    graph: Graph,
    is_chief: bool,
    logdir: Option<String>,
    config: SessionConfig,
    init_op: Choice<Operation>,
    init_feeds: Vec<(Output, Tensor)>,
    init_fn: Option<InitFn>,
    local_init_op: Choice<Operation>,
    ready_op: Choice<Output>,
    ready_for_local_init_op: Option<Output>,
    saver: Choice<Arc<Saver>>,
    summary_op: Choice<Output>,
    global_step: Choice<Variable>,
    save_summaries_secs: u64,
    save_model_secs: u64,
    recovery_wait_secs: f64,
    stop_grace_secs: u64,
    checkpoint_basename: String,
}

/// Supervises a training program.
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
/// let supervisor = Supervisor::builder(&g).logdir(logdir).build()?;
/// supervisor.managed_session("", |session| {
///     while !supervisor.should_stop() && session.eval::<i64>(step.value())? < 10 {
///         session.run_ops(&[&train])?;
///     }
///     supervisor.save(session).map(drop)
/// })?;
/// assert_eq!(latest_checkpoint(logdir)?, Some(format!("{logdir}/model.ckpt-10")));
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct Supervisor {
    graph: Graph,
    is_chief: bool,
    logdir: Option<String>,
    config: SessionConfig,
    init: Initialization,
    saver: Option<Arc<Saver>>,
    summary_op: Option<Output>,
    global_step: Option<Variable>,
    save_summaries: Duration,
    save_model: Duration,
    stop_grace: Duration,
    save_path: Option<String>,
    writer: Option<FileWriter>,
    coordinator: Coordinator,
    manager: SessionManager,
    /// Keeps other trainers out of the log directory, from the first session or checkpoint until everything stops.
    lock: Mutex<Option<DirectoryLock>>,
}

impl Supervisor {
    /// Returns a builder of a supervisor; by default it is the chief's, without a log directory.
    ///
    /// ```
    /// use ferroflow::{Graph, train::Supervisor};
    /// assert!(Supervisor::builder(&Graph::new()).build()?.is_chief());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn builder(graph: &Graph) -> SupervisorBuilder {
        SupervisorBuilder {
            graph: graph.clone(),
            is_chief: true,
            logdir: None,
            config: SessionConfig::default(),
            init_op: Choice::Default,
            init_feeds: Vec::new(),
            init_fn: None,
            local_init_op: Choice::Default,
            ready_op: Choice::Default,
            ready_for_local_init_op: None,
            saver: Choice::Default,
            summary_op: Choice::Default,
            global_step: Choice::Default,
            save_summaries_secs: 120,
            save_model_secs: 600,
            recovery_wait_secs: 30.0,
            stop_grace_secs: 120,
            checkpoint_basename: "model.ckpt".to_owned(),
        }
    }

    /// Returns whether this task is the chief, which initializes, saves and restores for all.
    ///
    /// ```
    /// use ferroflow::{Graph, train::Supervisor};
    /// let task_index = 1;
    /// assert!(!Supervisor::builder(&Graph::new()).is_chief(task_index == 0).build()?.is_chief());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn is_chief(&self) -> bool {
        self.is_chief
    }

    /// Returns the coordinator, which stops the threads.
    ///
    /// ```
    /// use ferroflow::{Graph, train::Supervisor};
    /// let supervisor = Supervisor::builder(&Graph::new()).build()?;
    /// supervisor.coordinator().request_stop(None);
    /// assert!(supervisor.should_stop());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// Returns the session manager.
    ///
    /// ```
    /// use ferroflow::{Graph, session::Target, train::Supervisor};
    ///
    /// let g = Graph::new();
    /// let one = g.constant(1f32);
    /// let supervisor = Supervisor::builder(&g).build()?;
    /// let session = supervisor.session_manager().wait_for_session(&Target::Local, &Default::default(), None)?;
    /// assert_eq!(session.eval::<f32>(&one)?, 1.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn session_manager(&self) -> &SessionManager {
        &self.manager
    }

    /// Returns the saver.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*};
    /// # let g = Graph::new();
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// assert!(Supervisor::builder(&g).build()?.saver().is_some());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn saver(&self) -> Option<&Arc<Saver>> {
        self.saver.as_ref()
    }

    /// Returns the prefix of the checkpoints.
    ///
    /// ```
    /// use ferroflow::{Graph, train::Supervisor};
    /// assert_eq!(Supervisor::builder(&Graph::new()).build()?.save_path(), None);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn save_path(&self) -> Option<&str> {
        self.save_path.as_deref()
    }

    /// Returns the event writer; only a chief with a log directory has one.
    ///
    /// ```
    /// use ferroflow::{Graph, train::Supervisor};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    ///
    /// let supervisor = Supervisor::builder(&Graph::new()).logdir(logdir).build()?;
    /// supervisor.summary_writer().unwrap().add_scalar("accuracy", 0.95, 10)?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn summary_writer(&self) -> Option<&FileWriter> {
        self.writer.as_ref()
    }

    /// Creates a session: the chief restores or initializes the variables, other tasks wait until it has. Starts the chief's
    /// services (saving checkpoints and summaries) and the graph's queue runners.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*};
    /// # let g = Graph::new();
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// let supervisor = Supervisor::builder(&g).build()?;
    /// let session = supervisor.prepare_or_wait_for_session("")?;
    /// assert_eq!(session.eval::<f32>(w.value())?, 4.0);
    /// supervisor.stop()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn prepare_or_wait_for_session(&self, target: impl Into<Target>) -> Result<Session> {
        let target = target.into();
        self.coordinator.clear_stop();
        let session = if self.is_chief {
            if !self.save_model.is_zero() {
                self.lock_directory()?;
            }
            let from = RestoreFrom {
                saver: self.saver.clone(),
                directory: self.logdir.clone(),
                checkpoint: None,
                wait: false,
            };
            let session = self.manager.prepare_session(&target, &self.config, &from, &self.init, None)?;
            if let Some(writer) = &self.writer {
                writer.add_graph(&self.graph)?;
            }
            if let Some(logdir) = &self.logdir {
                write_graph(&self.graph, logdir, GRAPH_FILE, true)?;
            }
            self.start_standard_services(&session)?;
            session
        } else {
            self.manager.wait_for_session(&target, &self.config, None)?
        };
        self.start_queue_runners(&session, None)?;
        Ok(session)
    }

    /// Runs `body` with a session; afterwards stops everything and closes the session. Returns the first failure of any thread;
    /// the end of the input isn't one.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let supervisor = Supervisor::builder(&g).build()?;
    /// let last = supervisor.managed_session("", |session| {
    ///     session.run_ops(&[&train])?;
    ///     session.eval::<i64>(step.value())
    /// })?;
    /// assert_eq!(last, 1);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn managed_session<R>(&self, target: impl Into<Target>, body: impl FnOnce(&Session) -> Result<R>) -> Result<R> {
        let session = self.prepare_or_wait_for_session(target)?;
        let result = body(&session);
        if let Err(status) = &result {
            self.request_stop(Some(status.clone()));
        }
        let stopped = self.stop();
        // Pending steps of a failed session end with it.
        let closed = session.close();
        match (result, stopped) {
            (Err(status), Ok(())) => Err(status),
            // The body's failure is often a consequence of the first one.
            (_, Err(first)) => Err(first),
            (Ok(value), Ok(())) => closed.map(|()| value),
        }
    }

    /// Starts the chief's services, each on a thread: checkpoints, summaries and the step rate.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    /// # let g = Graph::new();
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// let supervisor = Supervisor::builder(&g).logdir(logdir).build()?;
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[&global_variables_initializer(&g)])?;
    /// supervisor.start_standard_services(&session)?;
    /// supervisor.stop()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn start_standard_services(&self, session: &Session) -> Result<()> {
        if !self.is_chief {
            return Err(Status::failed_precondition("Only chief supervisor can start standard services."));
        }
        let Some(logdir) = &self.logdir else {
            tracing::debug!("no log directory: nothing is saved");
            return Ok(());
        };
        if let (Some(writer), Some(step)) = (&self.writer, &self.global_step) {
            let step = session.eval_index(step.value())?;
            writer.add_session_log(SessionStatus::Start, None, step)?;
        }
        if !self.save_summaries.is_zero()
            && let Some(writer) = &self.writer
        {
            if let Some(summary) = &self.summary_op {
                let (writer, summary, session) = (writer.clone(), summary.clone(), session.clone());
                let step = self.global_step.clone();
                self.loop_every(self.save_summaries, "summaries", move || {
                    let step = step.as_ref().map_or(Ok(0), |step| session.eval_index(step.value()))?;
                    let values = session.run(&[&summary])?;
                    values.first().map_or(Ok(()), |value| writer.add_summary(value, step))
                })?;
            }
            if let Some(step) = &self.global_step {
                let (writer, step, session) = (writer.clone(), step.clone(), session.clone());
                let mut last: Option<(Instant, i64)> = None;
                self.loop_every(self.save_summaries, "step rate", move || {
                    let current = session.eval_index(step.value())?;
                    let now = Instant::now();
                    if let Some((then, before)) = last.replace((now, current)) {
                        let rate = (current - before) as f64 / now.duration_since(then).as_secs_f64().max(1e-9);
                        writer.add_scalar("global_step/sec", rate as f32, current)?;
                    }
                    Ok(())
                })?;
            }
        }
        if let (false, Some(saver), Some(prefix)) = (self.save_model.is_zero(), &self.saver, &self.save_path) {
            FileSystems::all().create_dir_all(logdir)?;
            let (saver, prefix, session) = (saver.clone(), prefix.clone(), session.clone());
            let (writer, step) = (self.writer.clone(), self.global_step.clone());
            let mut is_first = true;
            self.loop_every(self.save_model, "checkpoints", move || {
                let is_start = std::mem::take(&mut is_first);
                if is_start && step.is_some() && saver.newest_step(&prefix).is_some() {
                    return Ok(());
                }
                save(&saver, &session, &prefix, step.as_ref(), writer.as_ref()).map(drop)
            })?;
        }
        Ok(())
    }

    /// Saves a checkpoint; returns its name, or `None` without a log directory.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// let supervisor = Supervisor::builder(&g).logdir(logdir).build()?;
    /// let saved = supervisor.managed_session("", |session| supervisor.save(session))?;
    /// assert_eq!(saved, Some(format!("{logdir}/model.ckpt-0")));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn save(&self, session: &Session) -> Result<Option<String>> {
        let (Some(saver), Some(prefix)) = (&self.saver, &self.save_path) else { return Ok(None) };
        self.lock_directory()?;
        save(saver, session, prefix, self.global_step.as_ref(), self.writer.as_ref()).map(Some)
    }

    /// Locks the log directory for this process if checkpoints are to be saved in it.
    fn lock_directory(&self) -> Result<()> {
        let mut lock = self.lock.lock();
        if let (None, Some(_), Some(logdir)) = (&*lock, &self.saver, &self.logdir) {
            FileSystems::all().create_dir_all(logdir)?;
            *lock = Some(DirectoryLock::take(logdir)?);
        }
        Ok(())
    }

    /// Writes a summary that a step has computed.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    /// # let g = Graph::new();
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// let weight = ferroflow::summary::scalar("weight", w.value());
    /// let supervisor = Supervisor::builder(&g).logdir(logdir).without_summary_op().build()?;
    /// supervisor.managed_session("", |session| {
    ///     let summary = session.run(&[&weight])?.remove(0);
    ///     supervisor.summary_computed(session, &summary, None)
    /// })?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn summary_computed(&self, session: &Session, summary: &Tensor, global_step: Option<i64>) -> Result<()> {
        let Some(writer) = &self.writer else {
            return Err(Status::failed_precondition("Writing a summary requires a summary writer."));
        };
        let step = match (global_step, &self.global_step) {
            (Some(step), _) => step,
            (None, Some(step)) => session.eval_index(step.value())?,
            (None, None) => 0,
        };
        writer.add_summary(summary, step)
    }

    /// Starts the given queue runners, or all of the graph's. Those that are running are left alone.
    ///
    /// ```
    /// use ferroflow::input::{InputOptions, range_input_producer};
    /// use ferroflow::{DType, Graph, Session, train::Supervisor};
    ///
    /// let g = Graph::new();
    /// let number = range_input_producer(&g, 1, &InputOptions::default()).dequeue(&[DType::Int32]).output(0);
    /// let supervisor = Supervisor::builder(&g).build()?;
    /// let session = Session::new(&g)?;
    /// supervisor.start_queue_runners(&session, None)?;
    /// assert_eq!(session.eval::<i32>(&number)?, 0);
    /// supervisor.stop()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn start_queue_runners(&self, session: &Session, runners: Option<&[QueueRunner]>) -> Result<()> {
        match runners {
            None => start_queue_runners(session, &self.coordinator),
            Some(runners) => runners.iter().try_for_each(|runner| runner.create_threads(session, &self.coordinator)),
        }
    }

    /// Calls `body` at once and then at intervals on its own thread, until the coordinator stops; a failure stops all threads.
    ///
    /// ```
    /// use ferroflow::{Graph, train::Supervisor};
    /// use std::{sync::mpsc::channel, time::Duration};
    ///
    /// let supervisor = Supervisor::builder(&Graph::new()).build()?;
    /// let (sender, called) = channel();
    /// supervisor.loop_every(Duration::from_secs(60), "tells", move || Ok(sender.send(()).unwrap_or_default()))?;
    /// called.recv().unwrap();
    /// supervisor.stop()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn loop_every(
        &self,
        every: Duration,
        name: &str,
        mut body: impl FnMut() -> Result<()> + Send + 'static,
    ) -> Result<()> {
        self.coordinator.spawn(name, move |coordinator| {
            let mut next = Instant::now();
            while !coordinator.wait_for_stop(Some(next.saturating_duration_since(Instant::now()))) {
                next += every;
                body()?;
            }
            Ok(())
        })
    }

    /// Returns whether training should end.
    ///
    /// ```
    /// use ferroflow::{Graph, train::Supervisor};
    /// let supervisor = Supervisor::builder(&Graph::new()).build()?;
    /// assert!(!supervisor.should_stop());
    /// supervisor.request_stop(None);
    /// assert!(supervisor.should_stop());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn should_stop(&self) -> bool {
        self.coordinator.should_stop()
    }

    /// Requests that everything stop; a failure is passed as the reason.
    ///
    /// ```
    /// use ferroflow::{Graph, Status, train::Supervisor};
    ///
    /// let supervisor = Supervisor::builder(&Graph::new()).build()?;
    /// supervisor.request_stop(Some(Status::data_loss("a broken file")));
    /// assert_eq!(supervisor.stop().unwrap_err().message(), "a broken file");
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn request_stop(&self, failure: Option<Status>) {
        self.coordinator.request_stop(failure);
    }

    /// Stops all threads and closes the event file; returns the first failure, if there was one.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let supervisor = Supervisor::builder(&g).build()?;
    /// let session = supervisor.prepare_or_wait_for_session("")?;
    /// session.run_ops(&[&train])?;
    /// supervisor.stop()?;
    /// session.close()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn stop(&self) -> Result<()> {
        self.coordinator.request_stop(None);
        let joined = self.coordinator.join(self.stop_grace);
        if let Some(writer) = &self.writer {
            // When stopped twice, the file is closed already.
            let _ = writer.add_session_log(SessionStatus::Stop, None, 0);
            writer.close()?;
        }
        if joined.is_ok() {
            *self.lock.lock() = None;
        }
        joined
    }
}

fn save(
    saver: &Saver,
    session: &Session,
    prefix: &str,
    step: Option<&Variable>,
    writer: Option<&FileWriter>,
) -> Result<String> {
    let step = step.map(|step| session.eval_index(step.value())).transpose()?;
    let written = saver.save_with_meta_graph(session, prefix, step)?;
    if let (Some(writer), Some(step)) = (writer, step) {
        writer.add_session_log(SessionStatus::Checkpoint, Some(&written), step)?;
    }
    Ok(written)
}

impl SupervisorBuilder {
    /// Sets whether this task is the chief, which initializes, saves and restores for all.
    ///
    /// ```
    /// use ferroflow::{Graph, train::Supervisor};
    /// assert!(!Supervisor::builder(&Graph::new()).is_chief(false).build()?.is_chief());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn is_chief(mut self, is_chief: bool) -> Self {
        self.is_chief = is_chief;
        self
    }

    /// Sets the directory of checkpoints and events. A chief that saves there locks it until it stops: its session fails with
    /// `FailedPrecondition` if another process has locked the directory.
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
    ///     let supervisor = Supervisor::builder(&g).logdir(logdir).build()?;
    ///     supervisor.managed_session("", |session| {
    ///         assert_eq!(session.eval::<i64>(step.value())?, expected);
    ///         session.run_ops(&[&train])?;
    ///         supervisor.save(session).map(drop)
    ///     })?;
    /// }
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn logdir(mut self, logdir: &str) -> Self {
        self.logdir = Some(logdir.to_owned());
        self
    }

    /// Sets the settings of sessions, such as device filters.
    ///
    /// ```
    /// use ferroflow::{Graph, train::Supervisor};
    ///
    /// let supervisor = Supervisor::builder(&Graph::new()).config(ferroflow::SessionConfig::new()).build()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn config(mut self, config: impl Into<SessionConfig>) -> Self {
        self.config = config.into();
        self
    }

    /// Sets the operation that initializes variables, in place of all variables' initializers.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// let init = variables_initializer(&g, &[w.clone(), step.clone()], "init_both");
    /// let supervisor = Supervisor::builder(&g).init_op(&init).build()?;
    /// assert_eq!(supervisor.managed_session("", |session| session.eval::<f32>(w.value()))?, 4.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn init_op(mut self, op: &Operation) -> Self {
        self.init_op = Choice::Given(op.clone());
        self
    }

    /// Removes the operation that initializes variables.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*};
    /// # let g = Graph::new();
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// let init = global_variables_initializer(&g);
    /// let builder = Supervisor::builder(&g).without_init_op();
    /// let supervisor = builder.init_fn(move |session| session.run_ops(&[&init])).build()?;
    /// assert_eq!(supervisor.managed_session("", |session| session.eval::<f32>(w.value()))?, 4.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn without_init_op(mut self) -> Self {
        self.init_op = Choice::Without;
        self
    }

    /// Adds a value that is fed to the init operation.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::train::Supervisor;
    ///
    /// let g = Graph::new();
    /// let first = g.placeholder::<f32>(());
    /// let w = Variable::new(&g, "w", &first);
    /// let supervisor = Supervisor::builder(&g).init_feed(&first, 2.5f32).build()?;
    /// assert_eq!(supervisor.managed_session("", |session| session.eval::<f32>(w.value()))?, 2.5);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn init_feed(mut self, output: &Output, value: impl Into<Tensor>) -> Self {
        self.init_feeds.push((output.clone(), value.into()));
        self
    }

    /// Sets a function that runs after the init operation, only if there was no checkpoint.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*};
    /// # let g = Graph::new();
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// let load = w.assign(&g.constant(7f32));
    /// let supervisor = Supervisor::builder(&g).init_fn(move |session| session.run_ops(&[&load])).build()?;
    /// assert_eq!(supervisor.managed_session("", |session| session.eval::<f32>(w.value()))?, 7.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn init_fn(mut self, function: impl Fn(&Session) -> Result<()> + Send + Sync + 'static) -> Self {
        self.init_fn = Some(Arc::new(function));
        self
    }

    /// Sets the operation that every task runs for itself, in place of the initializers of local variables and tables.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*};
    /// # let g = Graph::new();
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// let local = local_variables_initializer(&g);
    /// let supervisor = Supervisor::builder(&g).local_init_op(&local).build()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn local_init_op(mut self, op: &Operation) -> Self {
        self.local_init_op = Choice::Given(op.clone());
        self
    }

    /// Sets the vector of names of uninitialized variables, in place of the default for all variables.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*};
    /// # let g = Graph::new();
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// let missing = report_uninitialized_variables(&g, Some(&[w]));
    /// let supervisor = Supervisor::builder(&g).ready_op(&missing).build()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn ready_op(mut self, op: &Output) -> Self {
        self.ready_op = Choice::Given(op.clone());
        self
    }

    /// Considers every session ready.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*};
    /// # let g = Graph::new();
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// let supervisor = Supervisor::builder(&g).is_chief(false).without_ready_op().build()?;
    /// // There is no chief to wait for, and nothing is waited for.
    /// let session = supervisor.prepare_or_wait_for_session("")?;
    /// assert!(session.eval::<f32>(w.value()).is_err());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn without_ready_op(mut self) -> Self {
        self.ready_op = Choice::Without;
        self
    }

    /// Sets a vector that must be empty before the local init operation can run.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// let missing = report_uninitialized_variables(&g, Some(&[step]));
    /// let supervisor = Supervisor::builder(&g).ready_for_local_init_op(&missing).build()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn ready_for_local_init_op(mut self, op: &Output) -> Self {
        self.ready_for_local_init_op = Some(op.clone());
        self
    }

    /// Sets the saver, in place of one of all global variables.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*};
    /// # let g = Graph::new();
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// let saver = Saver::with_options(&g, SaverOptions { max_to_keep: 2, ..SaverOptions::default() })?;
    /// let supervisor = Supervisor::builder(&g).saver(std::sync::Arc::new(saver)).build()?;
    /// assert_eq!(supervisor.saver().unwrap().to_def().max_to_keep, 2);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn saver(mut self, saver: Arc<Saver>) -> Self {
        self.saver = Choice::Given(saver);
        self
    }

    /// Disables checkpoints.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*};
    /// # let g = Graph::new();
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// assert!(Supervisor::builder(&g).without_saver().build()?.saver().is_none());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn without_saver(mut self) -> Self {
        self.saver = Choice::Without;
        self
    }

    /// Sets the summary, in place of all summaries merged.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*};
    /// # let g = Graph::new();
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// let weight = ferroflow::summary::scalar("weight", w.value());
    /// let supervisor = Supervisor::builder(&g).summary_op(&weight).build()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn summary_op(mut self, op: &Output) -> Self {
        self.summary_op = Choice::Given(op.clone());
        self
    }

    /// Disables automatic summaries.
    ///
    /// ```
    /// use ferroflow::{Graph, train::Supervisor};
    /// let supervisor = Supervisor::builder(&Graph::new()).without_summary_op().build()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn without_summary_op(mut self) -> Self {
        self.summary_op = Choice::Without;
        self
    }

    /// Sets the step counter, in place of the variable `global_step`.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    /// # let g = Graph::new();
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// let count = Variable::builder(&g, "count").trainable(false).build_constant(&Tensor::scalar(5i64));
    /// let supervisor = Supervisor::builder(&g).logdir(logdir).global_step(&count).build()?;
    /// let saved = supervisor.managed_session("", |session| supervisor.save(session))?;
    /// assert_eq!(saved, Some(format!("{logdir}/model.ckpt-5")));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn global_step(mut self, step: &Variable) -> Self {
        self.global_step = Choice::Given(step.clone());
        self
    }

    /// Sets the interval at which checkpoints are saved; 0 means never.
    ///
    /// ```
    /// use ferroflow::{Graph, train::Supervisor};
    /// let supervisor = Supervisor::builder(&Graph::new()).save_model_secs(60).build()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn save_model_secs(mut self, secs: u64) -> Self {
        self.save_model_secs = secs;
        self
    }

    /// Sets the interval at which summaries are written; 0 means never.
    ///
    /// ```
    /// use ferroflow::{Graph, train::Supervisor};
    /// let supervisor = Supervisor::builder(&Graph::new()).save_summaries_secs(10).build()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn save_summaries_secs(mut self, secs: u64) -> Self {
        self.save_summaries_secs = secs;
        self
    }

    /// Sets the interval at which a waiting worker logs what it waits for. It notices at once when the variables are ready.
    ///
    /// ```
    /// use ferroflow::{Graph, train::Supervisor};
    /// let supervisor = Supervisor::builder(&Graph::new()).is_chief(false).recovery_wait_secs(1.0).build()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn recovery_wait_secs(mut self, secs: f64) -> Self {
        self.recovery_wait_secs = secs;
        self
    }

    /// Sets how long to wait for threads to stop.
    ///
    /// ```
    /// use ferroflow::{Graph, train::Supervisor};
    /// let supervisor = Supervisor::builder(&Graph::new()).stop_grace_secs(30).build()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn stop_grace_secs(mut self, secs: u64) -> Self {
        self.stop_grace_secs = secs;
        self
    }

    /// Sets the base name of the checkpoints in the log directory.
    ///
    /// ```
    /// use ferroflow::{Graph, train::Supervisor};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    ///
    /// let supervisor = Supervisor::builder(&Graph::new()).logdir(logdir).checkpoint_basename("mnist").build()?;
    /// assert!(supervisor.save_path().unwrap().ends_with("/mnist"));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn checkpoint_basename(mut self, name: &str) -> Self {
        self.checkpoint_basename = name.to_owned();
        self
    }

    /// Returns the supervisor. The graph should be complete at this point.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*};
    /// # let g = Graph::new();
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// let supervisor = Supervisor::builder(&g).build()?;
    /// assert!(supervisor.saver().is_some());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn build(self) -> Result<Supervisor> {
        let graph = self.graph;
        let init_op = self.init_op.or_default(|| Ok(Some(global_variables_initializer(&graph))))?;
        let local_init_op = self.local_init_op.or_default(|| super::scaffold::default_local_init(&graph).map(Some))?;
        let ready_op = self.ready_op.or_default(|| Ok(Some(report_uninitialized_variables(&graph, None))))?;
        let global_step = self.global_step.or_default(|| get_global_step(&graph))?;
        let saver = self.saver.or_default(|| {
            let is_needed = !global_variables(&graph)?.is_empty();
            is_needed.then(|| Saver::new(&graph).map(Arc::new)).transpose()
        })?;
        let summary_op = self.summary_op.or_default(|| Ok(summary::merge_all(&graph)))?;
        graph.finish()?;
        let coordinator = Coordinator::new();
        let manager = SessionManager::new(&graph)
            .local_init_op(local_init_op.as_ref())
            .ready_op(ready_op.as_ref())
            .ready_for_local_init_op(self.ready_for_local_init_op.as_ref())
            .recovery_wait(Duration::try_from_secs_f64(self.recovery_wait_secs).unwrap_or_default())
            .coordinator(&coordinator);
        let save_path = self.logdir.as_deref().map(|logdir| path::join(logdir, &self.checkpoint_basename));
        let writer = match &self.logdir {
            Some(logdir) if self.is_chief => Some(FileWriter::new(logdir)?),
            _ => None,
        };
        Ok(Supervisor {
            is_chief: self.is_chief,
            logdir: self.logdir,
            config: self.config,
            init: Initialization { op: init_op, feeds: self.init_feeds, function: self.init_fn },
            saver,
            summary_op,
            global_step,
            save_summaries: Duration::from_secs(self.save_summaries_secs),
            save_model: Duration::from_secs(self.save_model_secs),
            stop_grace: Duration::from_secs(self.stop_grace_secs),
            save_path,
            writer,
            coordinator,
            manager,
            lock: Mutex::new(None),
            graph,
        })
    }
}
