//! The built-in hooks: stopping, saving, summaries, logging, and checks of the loss.

use super::checkpoint_listener::CheckpointSaverListener;
use super::directory_lock::DirectoryLock;
use super::session_run_hook::{RunArgs, RunContext, RunValues, SessionRunHook};
use super::write_graph::{GRAPH_FILE, write_graph};
use super::{Coordinator, Saver};
use crate::session::Session;
use crate::summary::{FileWriter, SessionStatus};
use crate::variable::{Variable, get_global_step};
use graph::{Graph, Output};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::file_system::{FileSystem, FileSystems, path};
use tensor::{Code, Result, Status, Tensor};

/// An interval.
///
/// ```
/// use ferroflow::train::{Every, LoggingTensorHook, StepCounterHook};
/// use std::time::Duration;
///
/// let often = StepCounterHook::new(Every::Steps(100), None);
/// let seldom = StepCounterHook::new(Every::Time(Duration::from_secs(600)), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// A number of steps.
    Steps(i64),
    /// A time.
    Time(Duration),
}

/// Determines when something is due.
struct Timer {
    every: Every,
    last: Option<(i64, Instant)>,
}

impl Timer {
    fn new(every: Every) -> Timer {
        Timer { every, last: None }
    }

    fn is_due(&self, step: i64) -> bool {
        match (self.last, self.every) {
            (None, _) => true,
            (Some((last, _)), _) if last == step => false,
            (Some((last, _)), Every::Steps(steps)) => step >= last + steps.max(1),
            (Some((_, then)), Every::Time(time)) => then.elapsed() >= time,
        }
    }

    /// Records that it was done; returns the time and the number of steps since the previous time.
    fn update(&mut self, step: i64) -> Option<(Duration, i64)> {
        let previous = self.last.replace((step, Instant::now()));
        previous.map(|(last, then)| (then.elapsed(), step - last))
    }
}

fn needed_global_step(graph: &Graph, who: &str) -> Result<Variable> {
    get_global_step(graph)?
        .ok_or_else(|| Status::failed_precondition(format!("Global step should be created to use {who}.")))
}

/// The system reports a file that exceeds its size limit as out of range, too. In training, that code would mean the end of the
/// input.
fn not_of_input(status: Status) -> Status {
    match status.code() {
        Code::OutOfRange => Status::resource_exhausted(status.message().to_owned()),
        _ => status,
    }
}

fn step_of(values: &RunValues) -> Result<i64> {
    values.results.first().map_or_else(|| Err(Status::internal("a hook's value is missing")), Tensor::to_index)
}

/// Stops training at a global step.
///
/// ```
/// use ferroflow::{prelude::*, train::*, variable::create_global_step};
///
/// let g = Graph::new();
/// let step = create_global_step(&g);
/// let w = Variable::new(&g, "w", &g.constant(4f32));
/// let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
/// let mut session = MonitoredSession::training(&g).hook(StopAtStepHook::at(10)).build()?;
/// while !session.should_stop() {
///     session.run(&RunArgs::new().target(&train))?;
/// }
/// assert_eq!(session.raw_session()?.eval::<i64>(step.value())?, 10);
/// session.close()?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct StopAtStepHook {
    num_steps: Option<i64>,
    last_step: Option<i64>,
    step: Option<Variable>,
}

impl StopAtStepHook {
    /// Stops training at this global step.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let session = MonitoredSession::training(&g).hook(StopAtStepHook::at(3)).build()?;
    /// let mut steps = 0;
    /// session.run_until_stopped(|session| {
    ///     steps += 1;
    ///     session.run(&RunArgs::new().target(&train)).map(drop)
    /// })?;
    /// assert_eq!(steps, 3);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn at(last_step: i64) -> StopAtStepHook {
        StopAtStepHook { num_steps: None, last_step: Some(last_step), step: None }
    }

    /// Stops training this many global steps after its start.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// // However far earlier runs have come.
    /// let session = MonitoredSession::training(&g).hook(StopAtStepHook::after(3)).build()?;
    /// let mut steps = 0;
    /// session.run_until_stopped(|session| {
    ///     steps += 1;
    ///     session.run(&RunArgs::new().target(&train)).map(drop)
    /// })?;
    /// assert_eq!(steps, 3);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn after(num_steps: i64) -> StopAtStepHook {
        StopAtStepHook { num_steps: Some(num_steps), last_step: None, step: None }
    }
}

impl SessionRunHook for StopAtStepHook {
    fn begin(&mut self, graph: &Graph) -> Result<()> {
        self.step = Some(needed_global_step(graph, "StopAtStepHook")?);
        Ok(())
    }

    fn after_create_session(&mut self, session: &Session, _coordinator: &Coordinator) -> Result<()> {
        if let (None, Some(steps), Some(step)) = (self.last_step, self.num_steps, &self.step) {
            self.last_step = Some(session.eval_index(step.value())? + steps);
        }
        Ok(())
    }

    fn before_run(&mut self, _context: &RunContext<'_>) -> Result<RunArgs> {
        Ok(self.step.iter().fold(RunArgs::new(), |args, step| args.fetch(step.value())))
    }

    fn after_run(&mut self, context: &RunContext<'_>, values: &RunValues) -> Result<()> {
        let (Some(last), Some(step)) = (self.last_step, &self.step) else { return Ok(()) };
        // The step was read in parallel with the update, before or after it, so close to the end it is read again.
        if step_of(values)? + 1 >= last && context.session().eval_index(step.value())? >= last {
            context.request_stop();
        }
        Ok(())
    }
}

/// Saves checkpoints at the start, at intervals, and at the end, and the graph beside them as `graph.pbtxt`.
///
/// After a restore, the start doesn't save: the newest checkpoint stays as it is.
///
/// ```
/// use ferroflow::{prelude::*, train::*, variable::create_global_step};
/// use std::sync::Arc;
/// # let directory = tempfile::tempdir().unwrap();
/// # let logdir = directory.path().to_str().unwrap();
///
/// let g = Graph::new();
/// let step = create_global_step(&g);
/// let w = Variable::new(&g, "w", &g.constant(4f32));
/// let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
/// let hook = CheckpointSaverHook::new(logdir, Every::Steps(2), Arc::new(Saver::new(&g)?));
/// let mut session = MonitoredSession::training(&g).hook(hook).build()?;
/// for _ in 0..4 {
///     session.run(&RunArgs::new().target(&train))?;
/// }
/// session.close()?;
/// assert_eq!(latest_checkpoint(logdir)?, Some(format!("{logdir}/model.ckpt-4")));
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct CheckpointSaverHook {
    directory: String,
    prefix: String,
    saver: Arc<Saver>,
    timer: Timer,
    step: Option<Variable>,
    writer: Option<FileWriter>,
    lock: Option<DirectoryLock>,
    listeners: Vec<Box<dyn CheckpointSaverListener>>,
}

impl CheckpointSaverHook {
    /// Saves into a directory.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// use std::{sync::Arc, time::Duration};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let saver = Arc::new(Saver::new(&g)?);
    /// let hook = CheckpointSaverHook::new(logdir, Every::Time(Duration::from_secs(600)), saver);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn new(directory: &str, every: Every, saver: Arc<Saver>) -> CheckpointSaverHook {
        CheckpointSaverHook {
            directory: directory.to_owned(),
            prefix: path::join(directory, "model.ckpt"),
            saver,
            timer: Timer::new(every),
            step: None,
            writer: None,
            lock: None,
            listeners: Vec::new(),
        }
    }

    /// Sets the event file in which checkpoints are recorded.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// use ferroflow::summary::FileWriter;
    /// use std::sync::Arc;
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let saver = Arc::new(Saver::new(&g)?);
    /// let hook = CheckpointSaverHook::new(logdir, Every::Steps(100), saver).writer(FileWriter::new(logdir)?);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn writer(mut self, writer: FileWriter) -> Self {
        self.writer = Some(writer);
        self
    }

    /// Adds a listener, which is notified of every checkpoint.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// use std::sync::Arc;
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    ///
    /// struct Tell;
    /// impl CheckpointSaverListener for Tell {
    ///     fn after_save(&mut self, _session: &Session, step: i64) -> ferroflow::Result<bool> {
    ///         println!("there is a checkpoint of step {step}");
    ///         Ok(false)
    ///     }
    /// }
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// let hook = CheckpointSaverHook::new(logdir, Every::Steps(2), Arc::new(Saver::new(&g)?)).listener(Tell);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn listener(mut self, listener: impl CheckpointSaverListener + 'static) -> Self {
        self.listeners.push(Box::new(listener));
        self
    }

    /// Saves; returns whether a listener requests the end of the training.
    fn save(&mut self, session: &Session, step: i64) -> Result<bool> {
        self.listeners.iter_mut().try_for_each(|listener| listener.before_save(session, step))?;
        let written = self.saver.save_with_meta_graph(session, &self.prefix, Some(step)).map_err(not_of_input)?;
        // Set only now: a checkpoint that failed is saved again at the end.
        self.timer.update(step);
        if let Some(writer) = &self.writer {
            writer.add_session_log(SessionStatus::Checkpoint, Some(&written), step).map_err(not_of_input)?;
        }
        let mut should_stop = false;
        for listener in &mut self.listeners {
            should_stop |= listener.after_save(session, step)?;
        }
        Ok(should_stop)
    }
}

impl SessionRunHook for CheckpointSaverHook {
    fn begin(&mut self, graph: &Graph) -> Result<()> {
        self.step = Some(needed_global_step(graph, "CheckpointSaverHook")?);
        FileSystems::all().create_dir_all(&self.directory)?;
        self.lock = Some(DirectoryLock::take(&self.directory)?);
        self.listeners.iter_mut().try_for_each(|listener| listener.begin(graph))
    }

    fn after_create_session(&mut self, session: &Session, _coordinator: &Coordinator) -> Result<()> {
        write_graph(session.graph(), &self.directory, GRAPH_FILE, true).map_err(not_of_input)?;
        if let Some(step) = self.saver.newest_step(&self.prefix) {
            self.timer.update(step);
            return Ok(());
        }
        let Some(step) = &self.step else { return Ok(()) };
        let step = session.eval_index(step.value())?;
        self.save(session, step).map(drop)
    }

    fn before_run(&mut self, _context: &RunContext<'_>) -> Result<RunArgs> {
        Ok(self.step.iter().fold(RunArgs::new(), |args, step| args.fetch(step.value())))
    }

    fn after_run(&mut self, context: &RunContext<'_>, values: &RunValues) -> Result<()> {
        let Some(step) = &self.step else { return Ok(()) };
        if self.timer.is_due(step_of(values)? + 1) {
            let step = context.session().eval_index(step.value())?;
            if self.timer.is_due(step) && self.save(context.session(), step)? {
                context.request_stop();
            }
        }
        Ok(())
    }

    fn end(&mut self, session: &Session) -> Result<()> {
        let Some(step) = &self.step else { return Ok(()) };
        let step = session.eval_index(step.value())?;
        if self.timer.last.is_none_or(|(last, _)| last != step) {
            self.save(session, step)?;
        }
        self.listeners.iter_mut().try_for_each(|listener| listener.end(session, step))
    }
}

/// Writes a summary at intervals.
///
/// ```
/// use ferroflow::{prelude::*, train::*, variable::create_global_step};
/// use ferroflow::summary::{self, FileWriter};
/// # let directory = tempfile::tempdir().unwrap();
/// # let logdir = directory.path().to_str().unwrap();
///
/// let g = Graph::new();
/// let step = create_global_step(&g);
/// let w = Variable::new(&g, "w", &g.constant(4f32));
/// let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
/// let weight = summary::scalar("weight", w.value());
/// let writer = FileWriter::new(logdir)?;
/// let hook = SummarySaverHook::new(Every::Steps(1), writer.clone(), &weight);
/// let mut session = MonitoredSession::training(&g).hook(hook).build()?;
/// session.run(&RunArgs::new().target(&train))?;
/// session.close()?;
/// assert!(std::fs::metadata(writer.path()).unwrap().len() > 0);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct SummarySaverHook {
    timer: Timer,
    writer: FileWriter,
    summary: Output,
    step: Option<Variable>,
    next_step: Option<i64>,
    is_asked: bool,
}

impl SummarySaverHook {
    /// Writes `summary` to an event file.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// use ferroflow::summary::{self, FileWriter};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let weight = summary::scalar("weight", w.value());
    /// let hook = SummarySaverHook::new(Every::Steps(100), FileWriter::new(logdir)?, &weight);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn new(every: Every, writer: FileWriter, summary: &Output) -> SummarySaverHook {
        let timer = Timer::new(every);
        SummarySaverHook { timer, writer, summary: summary.clone(), step: None, next_step: None, is_asked: false }
    }
}

impl SessionRunHook for SummarySaverHook {
    fn begin(&mut self, graph: &Graph) -> Result<()> {
        self.step = Some(needed_global_step(graph, "SummarySaverHook")?);
        Ok(())
    }

    fn before_run(&mut self, _context: &RunContext<'_>) -> Result<RunArgs> {
        let args = self.step.iter().fold(RunArgs::new(), |args, step| args.fetch(step.value()));
        self.is_asked = self.next_step.is_none_or(|step| self.timer.is_due(step));
        Ok(if self.is_asked { args.fetch(&self.summary) } else { args })
    }

    fn after_run(&mut self, context: &RunContext<'_>, values: &RunValues) -> Result<()> {
        let mut step = step_of(values)? + 1;
        if self.is_asked
            && let (Some(variable), Some(summary)) = (&self.step, values.results.get(1))
        {
            step = context.session().eval_index(variable.value())?;
            self.timer.update(step);
            self.writer.add_summary(summary, step).map_err(not_of_input)?;
        }
        self.next_step = Some(step + 1);
        Ok(())
    }

    fn end(&mut self, _session: &Session) -> Result<()> {
        self.writer.flush().map_err(not_of_input)
    }
}

/// Measures the steps per second.
///
/// ```
/// use ferroflow::{prelude::*, train::*, variable::create_global_step};
/// use ferroflow::summary::FileWriter;
/// # let directory = tempfile::tempdir().unwrap();
/// # let logdir = directory.path().to_str().unwrap();
///
/// let g = Graph::new();
/// let step = create_global_step(&g);
/// let w = Variable::new(&g, "w", &g.constant(4f32));
/// let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
/// let hook = StepCounterHook::new(Every::Steps(10), Some(FileWriter::new(logdir)?));
/// let mut session = MonitoredSession::training(&g).hook(hook).build()?;
/// session.run(&RunArgs::new().target(&train))?;
/// session.close()?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct StepCounterHook {
    timer: Timer,
    writer: Option<FileWriter>,
    step: Option<Variable>,
}

impl StepCounterHook {
    /// Measures them; with a writer, writes them to an event file too.
    ///
    /// ```
    /// use ferroflow::train::{Every, StepCounterHook};
    ///
    /// let hook = StepCounterHook::new(Every::Steps(100), None);
    /// ```
    pub fn new(every: Every, writer: Option<FileWriter>) -> StepCounterHook {
        StepCounterHook { timer: Timer::new(every), writer, step: None }
    }
}

impl SessionRunHook for StepCounterHook {
    fn begin(&mut self, graph: &Graph) -> Result<()> {
        self.step = Some(needed_global_step(graph, "StepCounterHook")?);
        Ok(())
    }

    fn before_run(&mut self, _context: &RunContext<'_>) -> Result<RunArgs> {
        Ok(self.step.iter().fold(RunArgs::new(), |args, step| args.fetch(step.value())))
    }

    fn after_run(&mut self, _context: &RunContext<'_>, values: &RunValues) -> Result<()> {
        let step = step_of(values)?;
        if !self.timer.is_due(step) {
            return Ok(());
        }
        let Some((elapsed, steps)) = self.timer.update(step) else { return Ok(()) };
        let rate = steps as f64 / elapsed.as_secs_f64().max(1e-9);
        tracing::info!("global_step/sec: {rate:.1}");
        match &self.writer {
            Some(writer) => writer.add_scalar("global_step/sec", rate as f32, step).map_err(not_of_input),
            None => Ok(()),
        }
    }
}

/// Logs the values of scalars and small tensors at intervals.
///
/// ```
/// use ferroflow::{prelude::*, train::*, variable::create_global_step};
/// use std::sync::mpsc::channel;
///
/// let g = Graph::new();
/// let step = create_global_step(&g);
/// let w = Variable::new(&g, "w", &g.constant(4f32));
/// let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
/// let (lines, logged) = channel();
/// let hook = LoggingTensorHook::with_log(&[("w", w.value())], Every::Steps(1), move |line| {
///     lines.send(line.to_owned()).unwrap();
/// });
/// let mut session = MonitoredSession::training(&g).hook(hook).build()?;
/// session.run(&RunArgs::new().target(&train))?;
/// session.close()?;
/// assert!(logged.recv().unwrap().contains("w = "));
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct LoggingTensorHook {
    every: Every,
    tensors: Vec<(String, Output)>,
    runs: i64,
    timer: Timer,
    is_asked: bool,
    log: Box<dyn FnMut(&str) + Send>,
}

impl LoggingTensorHook {
    /// Logs tensors by name; `Every::Steps` counts the runs of this session.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let hook = LoggingTensorHook::new(&[("w", w.value())], Every::Steps(100));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn new(tensors: &[(&str, &Output)], every: Every) -> LoggingTensorHook {
        LoggingTensorHook::with_log(tensors, every, |line| tracing::info!("{line}"))
    }

    /// As [`new`](Self::new), with a function that receives the lines.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let hook = LoggingTensorHook::with_log(&[("w", w.value())], Every::Steps(100), |line| println!("{line}"));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn with_log(
        tensors: &[(&str, &Output)],
        every: Every,
        log: impl FnMut(&str) + Send + 'static,
    ) -> LoggingTensorHook {
        let tensors = tensors.iter().map(|(name, output)| ((*name).to_owned(), (*output).clone())).collect();
        LoggingTensorHook { every, tensors, runs: 0, timer: Timer::new(every), is_asked: false, log: Box::new(log) }
    }
}

impl SessionRunHook for LoggingTensorHook {
    fn after_create_session(&mut self, _session: &Session, _coordinator: &Coordinator) -> Result<()> {
        self.timer = Timer::new(self.every);
        self.runs = 0;
        Ok(())
    }

    fn before_run(&mut self, _context: &RunContext<'_>) -> Result<RunArgs> {
        self.is_asked = self.timer.is_due(self.runs);
        let tensors = if self.is_asked { &self.tensors[..] } else { &[] };
        Ok(tensors.iter().fold(RunArgs::new(), |args, (_, output)| args.fetch(output)))
    }

    fn after_run(&mut self, _context: &RunContext<'_>, values: &RunValues) -> Result<()> {
        if self.is_asked {
            let pairs: Vec<String> = self.tensors.iter().zip(&values.results).map(|((n, _), v)| show(n, v)).collect();
            let line = match self.timer.update(self.runs) {
                Some((elapsed, _)) => format!("{} ({:.3} sec)", pairs.join(", "), elapsed.as_secs_f64()),
                None => pairs.join(", "),
            };
            (self.log)(&line);
        }
        self.runs += 1;
        Ok(())
    }
}

/// Formats `name = value`; large tensors are shown by their shape.
fn show(name: &str, value: &Tensor) -> String {
    use tensor::DType;
    if value.num_elements() != 1 {
        return format!("{name} = {}{}", value.dtype(), value.shape());
    }
    let text = match value.dtype() {
        DType::Float => value.to_scalar::<f32>().map(|v| v.to_string()),
        DType::Double => value.to_scalar::<f64>().map(|v| v.to_string()),
        DType::Int32 | DType::Int64 => value.to_index().map(|v| v.to_string()),
        DType::String => value.strings().map(|v| String::from_utf8_lossy(&v[0]).into_owned()),
        other => Ok(format!("{other}")),
    };
    format!("{name} = {}", text.unwrap_or_default())
}

/// Stops training when the loss is NaN.
///
/// ```
/// use ferroflow::{prelude::*, train::*, variable::create_global_step};
///
/// let g = Graph::new();
/// let step = create_global_step(&g);
/// let w = Variable::new(&g, "w", &g.constant(4f32));
/// let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
/// let loss = w.value() * f32::NAN;
/// let mut session = MonitoredSession::training(&g).hook(NanTensorHook::new(&loss, true)).build()?;
/// assert!(session.run(&RunArgs::new().target(&train)).is_err());
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct NanTensorHook {
    loss: Output,
    is_failure: bool,
}

impl NanTensorHook {
    /// Returns the error for a NaN loss.
    ///
    /// ```
    /// use ferroflow::Graph;
    /// use ferroflow::train::NanTensorHook;
    ///
    /// let g = Graph::new();
    /// let status = NanTensorHook::diverged(&g.name_scope("loss", |g| g.constant(f32::NAN)));
    /// assert!(status.message().contains("loss"));
    /// ```
    pub fn diverged(loss: &Output) -> Status {
        Status::invalid_argument(format!("Model diverged with loss = NaN ({})", loss.name()))
    }

    /// Fails if the loss is NaN; if `is_failure` is false, requests a stop instead.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let loss = w.value() * f32::NAN;
    /// let mut session = MonitoredSession::training(&g).hook(NanTensorHook::new(&loss, false)).build()?;
    /// session.run(&RunArgs::new().target(&train))?;
    /// assert!(session.should_stop());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn new(loss: &Output, is_failure: bool) -> NanTensorHook {
        NanTensorHook { loss: loss.clone(), is_failure }
    }
}

impl SessionRunHook for NanTensorHook {
    fn before_run(&mut self, _context: &RunContext<'_>) -> Result<RunArgs> {
        Ok(RunArgs::new().fetch(&self.loss))
    }

    fn after_run(&mut self, context: &RunContext<'_>, values: &RunValues) -> Result<()> {
        let Some(loss) = values.results.first() else { return Ok(()) };
        let is_nan = match loss.dtype() {
            tensor::DType::Double => loss.to_scalar::<f64>()?.is_nan(),
            _ => loss.to_scalar::<f32>()?.is_nan(),
        };
        if !is_nan {
            return Ok(());
        }
        let failure = NanTensorHook::diverged(&self.loss);
        if self.is_failure {
            return Err(failure);
        }
        tracing::warn!("{}", failure.message());
        context.request_stop();
        Ok(())
    }
}

/// The values that a [`FinalOpsHook`] has fetched.
///
/// ```
/// use ferroflow::{prelude::*, train::*, variable::create_global_step};
/// # let g = Graph::new();
/// # let step = create_global_step(&g);
/// # let w = Variable::new(&g, "w", &g.constant(4f32));
/// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
/// let (hook, values): (FinalOpsHook, FinalValues) = FinalOpsHook::new(RunArgs::new().fetch(step.value()));
/// assert!(values.lock().is_none());
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub type FinalValues = Arc<Mutex<Option<Vec<Tensor>>>>;

/// Runs fetches once at the end.
///
/// ```
/// use ferroflow::{prelude::*, train::*, variable::create_global_step};
///
/// let g = Graph::new();
/// let step = create_global_step(&g);
/// let w = Variable::new(&g, "w", &g.constant(4f32));
/// let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
/// let (hook, values) = FinalOpsHook::new(RunArgs::new().fetch(step.value()));
/// let mut session = MonitoredSession::training(&g).hook(hook).build()?;
/// session.run(&RunArgs::new().target(&train))?;
/// session.close()?;
/// assert_eq!(values.lock().as_ref().unwrap()[0].to_scalar::<i64>()?, 1);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct FinalOpsHook {
    args: RunArgs,
    values: FinalValues,
}

impl FinalOpsHook {
    /// Returns the hook, and the place where it puts the values.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let (hook, values) = FinalOpsHook::new(RunArgs::new().fetch(w.value()));
    /// MonitoredSession::training(&g).hook(hook).build()?.close()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn new(args: RunArgs) -> (FinalOpsHook, FinalValues) {
        let values = FinalValues::default();
        (FinalOpsHook { args, values: values.clone() }, values)
    }
}

impl SessionRunHook for FinalOpsHook {
    fn end(&mut self, session: &Session) -> Result<()> {
        let (values, _) = self.args.run(session)?;
        *self.values.lock() = Some(values);
        Ok(())
    }
}

/// Delays a worker until the others have reached a global step.
///
/// ```
/// use ferroflow::{prelude::*, train::*, variable::create_global_step};
///
/// let g = Graph::new();
/// let step = create_global_step(&g);
/// let w = Variable::new(&g, "w", &g.constant(4f32));
/// let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
/// // Each worker begins 100 steps after the one before it, so that they don't all pull at the first weights.
/// let task_index = 0;
/// let mut session = MonitoredSession::training(&g).hook(GlobalStepWaiterHook::new(100 * task_index)).build()?;
/// session.run(&RunArgs::new().target(&train))?;
/// session.close()?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct GlobalStepWaiterHook {
    wait_until_step: i64,
    step: Option<Variable>,
    is_done: bool,
}

impl GlobalStepWaiterHook {
    /// Waits for this global step before the first run.
    ///
    /// ```
    /// use ferroflow::train::GlobalStepWaiterHook;
    ///
    /// let hook = GlobalStepWaiterHook::new(100);
    /// ```
    pub fn new(wait_until_step: i64) -> GlobalStepWaiterHook {
        GlobalStepWaiterHook { wait_until_step, step: None, is_done: wait_until_step <= 0 }
    }
}

impl SessionRunHook for GlobalStepWaiterHook {
    fn begin(&mut self, graph: &Graph) -> Result<()> {
        self.step = Some(needed_global_step(graph, "GlobalStepWaiterHook")?);
        Ok(())
    }

    fn before_run(&mut self, context: &RunContext<'_>) -> Result<RunArgs> {
        const PAUSE: Duration = Duration::from_millis(50);
        let Some(step) = self.step.as_ref().filter(|_| !self.is_done) else { return Ok(RunArgs::new()) };
        tracing::info!("Waiting for global step {} before starting training.", self.wait_until_step);
        while context.session().eval_index(step.value())? < self.wait_until_step {
            if context.coordinator().wait_for_stop(Some(PAUSE)) {
                break;
            }
        }
        self.is_done = true;
        Ok(RunArgs::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_of_steps() {
        let mut timer = Timer::new(Every::Steps(10));
        assert!(timer.is_due(0));
        assert_eq!(timer.update(0), None);
        assert!(!timer.is_due(0) && !timer.is_due(9) && timer.is_due(10));
        assert_eq!(timer.update(12).map(|(_, steps)| steps), Some(12));
        assert!(!timer.is_due(21) && timer.is_due(22));
    }

    #[test]
    fn values_are_shown() {
        assert_eq!(show("loss", &Tensor::scalar(0.5f32)), "loss = 0.5");
        assert_eq!(show("step", &Tensor::scalar(7i64)), "step = 7");
    }
}
