//! One worker of `ferroflow train`: its graph, its session and its loop.

use super::flags::Flags;
use super::model::Model;
use super::progress::Steps;
use crate::exit;
use ferroflow::data::mnist::Mnist;
use ferroflow::session::Target;
use ferroflow::train::{
    Coordinator, Every, MonitoredSession, NanTensorHook, RunArgs, Saver, Scaffold, StopAtStepHook, latest_checkpoint,
};
use ferroflow::{Code, Output, Result, RunOptions, Session, SessionConfig, Status, Tensor};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a worker tells.
pub type Listener = Arc<dyn Fn(News) + Send + Sync>;

/// What a worker tells while it works.
pub enum News {
    /// Steps that it has done.
    Steps(Steps),
    /// A line for people.
    Line(String),
}

/// A worker about to train.
pub struct Worker {
    /// The number among the workers; the chief is 0.
    pub task: u32,
    /// The device of this task, such as `/job:worker/task:1`.
    pub device: String,
    pub ps: u32,
    pub workers: u32,
    pub flags: Flags,
    pub target: Target,
    pub digits: Mnist,
    pub listener: Listener,
    /// What tells it to save and leave.
    pub stop: Coordinator,
}

/// What came of the training, as the chief knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Trained {
    pub steps: i64,
    pub loss: f32,
    pub accuracy: f32,
    pub checkpoint: Option<String>,
    pub is_interrupted: bool,
}

/// Why a worker failed.
pub struct WorkerFailure {
    /// What failed.
    pub status: Status,
    /// Whether training had begun.
    has_begun: bool,
}

impl WorkerFailure {
    /// Returns whether another try would fail the same way, since it isn't about tasks that are lost.
    pub fn is_for_good(&self) -> bool {
        use Code::{
            AlreadyExists, DataLoss, FailedPrecondition, InvalidArgument, NotFound, PermissionDenied, Unimplemented,
        };
        match self.status.code() {
            InvalidArgument | PermissionDenied | Unimplemented | DataLoss => true,
            // Later, these are also what a task says that was started again and has forgotten everything.
            FailedPrecondition | NotFound | AlreadyExists => !self.has_begun,
            _ => false,
        }
    }

    /// Returns the exit code by which a cluster manager knows whether another start may help.
    pub fn exit_code(&self) -> u8 {
        match self.status.code() {
            _ if self.is_for_good() => exit::FAILED,
            Code::FailedPrecondition | Code::NotFound | Code::AlreadyExists => exit::PEER_LOST,
            _ => exit::code_of(&self.status),
        }
    }
}

/// How often a worker tells of its steps.
const TELLING: Duration = Duration::from_millis(100);

/// How long a step may take to end when the worker is told to leave.
const LEAVING: Duration = Duration::from_secs(2);

/// How long a synchronous step may take before it is said that it waits.
const WAITING: Duration = Duration::from_secs(4);

/// How many digits are evaluated in one step.
const EVALUATED: usize = 1000;

/// How many digits tell whether a model is worth saving.
const SAMPLED: usize = 100;

impl Worker {
    /// Trains until the last step; the chief returns what came of it.
    pub fn run(&self) -> Result<Option<Trained>, WorkerFailure> {
        let prepared = self.prepare().map_err(|status| WorkerFailure { status, has_begun: false })?;
        let outcome = self.supervise(&prepared.0, prepared.1);
        match outcome {
            // The chief has ended synchronous training.
            Err(status) if self.task != 0 && status.code() == Code::OutOfRange => Ok(None),
            other => other.map_err(|status| WorkerFailure { status, has_begun: true }),
        }
    }

    /// Builds the graph and what makes its session.
    fn prepare(&self) -> Result<(Model, MonitoredSession)> {
        let is_chief = self.task == 0;
        let mut model = Model::build(&self.flags, self.task, &self.device, self.ps, self.workers)?;
        let device_filters = vec!["/job:ps".to_owned(), self.device.clone()];
        let config = SessionConfig::new().allow_soft_placement(true).device_filters(device_filters);
        let every = Duration::try_from_secs_f64(self.flags.save_checkpoint_secs)
            .map_err(|_| Status::invalid_argument("--save_checkpoint_secs must not be negative"))?;
        let mut builder = MonitoredSession::training(&model.graph)
            .target(&self.target)
            .config(config)
            .is_chief(is_chief)
            .scaffold(Scaffold::new().saver(model.saver.clone()))
            .save_checkpoint(Some(Every::Time(every)))
            .recovery_wait_secs(10)
            .max_wait_secs(None)
            .hook(StopAtStepHook::at(self.flags.last_step()))
            .hook(NanTensorHook::new(&model.loss, true));
        if let Some(hook) = model.sync_hook.take() {
            builder = builder.hook(hook);
        }
        let logdir = self.flags.logdir.as_deref().filter(|_| is_chief);
        if let Some(logdir) = logdir {
            builder = builder.checkpoint_dir(logdir);
        }
        let session = builder.build()?;
        if let Some(checkpoint) = logdir.map(latest_checkpoint).transpose()?.flatten() {
            self.say(format!("goes on from {checkpoint}"));
        }
        Ok((model, session))
    }

    /// Trains with an eye on the wish to leave: a step that waits for other workers is given up then.
    fn supervise(&self, model: &Model, mut session: MonitoredSession) -> Result<Option<Trained>> {
        let finished = Coordinator::new();
        let leaving = Leaving {
            wish: self.stop.clone(),
            session_stop: session.stop_handle(),
            finished: finished.clone(),
            raw: Arc::default(),
            saver: session.scaffold().saver.clone(),
            prefix: self.checkpoint_prefix(),
            step: model.global_step.value().clone(),
            sample: Sample::new(model, &self.digits)?,
        };
        let raw = leaving.raw.clone();
        let last_step_at = Arc::new(Mutex::new(Instant::now()));
        if self.flags.is_sync() {
            self.watch_for_waiting(&finished, &last_step_at)?;
        }
        let spawned = std::thread::Builder::new().name("leave".to_owned()).spawn(move || leaving.watch());
        spawned.map_err(|error| Status::resource_exhausted(format!("no thread to leave with: {error}")))?;
        let trained = self.train(model, &mut session, &raw, &last_step_at);
        let is_interrupted = self.stop.should_stop();
        finished.request_stop(None);
        // The other thread ends only when it is told to.
        self.stop.request_stop(None);
        let steps = match trained {
            Ok(steps) => steps,
            Err(_) if is_interrupted => {
                return self.trained(0, None);
            }
            Err(status) => return Err(status),
        };
        let figures = if self.task == 0 && !is_interrupted { Some(self.evaluate(model, &mut session)?) } else { None };
        let is_bad = match figures {
            Some((_, loss, _)) => loss.is_nan(),
            None => self.task == 0 && Sample::new(model, &self.digits)?.is_bad(&session.raw_session()?),
        };
        // Closed, the session would save what is good for nothing, and the next training would go on from it.
        if is_bad {
            return Err(NanTensorHook::diverged(&model.loss));
        }
        session.close()?;
        self.trained(steps, figures)
    }

    fn train(
        &self,
        model: &Model,
        session: &mut MonitoredSession,
        raw: &Mutex<Option<Session>>,
        last_step_at: &Mutex<Instant>,
    ) -> Result<i64> {
        let mut batches = self.digits.train.batches(u64::from(self.task));
        let mut step = 0;
        let (mut told, mut count) = (Instant::now(), 0);
        while !session.should_stop() {
            if !session.is_live() {
                *raw.lock() = Some(session.raw_session()?);
                let start = session.raw_session()?.eval_index(model.global_step.value())?;
                if start >= self.flags.last_step() {
                    return Ok(start);
                }
                // A worker that comes back shouldn't see the digits in the order in which it has seen them before.
                batches = self.digits.train.batches(u64::from(self.task) | start.unsigned_abs() << 16);
            }
            let (images, labels) = batches.next_batch(self.flags.batch_size as usize)?;
            let args = RunArgs::new().feed(&model.images, images).feed(&model.labels, labels);
            let args = args.target(&model.train).fetch(&model.loss).fetch(model.global_step.value());
            let recoveries = session.recoveries();
            let values = session.run(&args)?;
            if session.recoveries() != recoveries {
                *raw.lock() = Some(session.raw_session()?);
                self.say(format!("worker {}: a task was lost and is back; training goes on", self.task));
            }
            let (Some(loss), Some(at)) = (values.first(), values.get(1)) else {
                return Err(Status::internal("a step without values"));
            };
            step = at.to_index()?;
            *last_step_at.lock() = Instant::now();
            count += 1;
            if told.elapsed() >= TELLING || session.should_stop() {
                (self.listener)(News::Steps(Steps { task: self.task, count, step, loss: loss.to_scalar()? }));
                (told, count) = (Instant::now(), 0);
            }
        }
        Ok(step)
    }

    /// Says that a synchronous step waits for other workers, when one takes long.
    fn watch_for_waiting(&self, finished: &Coordinator, last_step_at: &Arc<Mutex<Instant>>) -> Result<()> {
        let (finished, last_step_at, listener) = (finished.clone(), last_step_at.clone(), self.listener.clone());
        let needed = self.flags.replicas_to_aggregate.map_or(u64::from(self.workers), |count| count.max(1) as u64);
        let task = self.task;
        let mut said_at = None;
        let watch = move || {
            while !finished.wait_for_stop(Some(WAITING / 4)) {
                let at = *last_step_at.lock();
                if at.elapsed() >= WAITING && said_at != Some(at) {
                    said_at = Some(at);
                    let what = format!("every step needs {needed} gradients");
                    listener(News::Line(format!("worker {task}: waits for other workers, since {what}")));
                }
            }
        };
        let spawned = std::thread::Builder::new().name("watch for waiting".to_owned()).spawn(watch);
        spawned.map(drop).map_err(|error| Status::resource_exhausted(format!("no thread to watch: {error}")))
    }

    /// Returns the step, the loss and the accuracy on the test digits.
    fn evaluate(&self, model: &Model, session: &mut MonitoredSession) -> Result<(i64, f32, f32)> {
        let session = session.raw_session()?;
        let (images, labels) = self.digits.test.all()?;
        let total = self.digits.test.len();
        let (mut loss, mut accuracy) = (0.0, 0.0);
        for from in (0..total).step_by(EVALUATED) {
            let to = (from + EVALUATED).min(total);
            let part = |whole: &Tensor| whole.slice_rows(from, to);
            let run = session.runner().feed(&model.images, part(&images)?).feed(&model.labels, part(&labels)?);
            let values = run.fetch(&model.loss).fetch(&model.accuracy).run()?;
            let share = (to - from) as f32 / total as f32;
            for (sum, value) in [&mut loss, &mut accuracy].into_iter().zip(&values) {
                *sum += share * value.to_scalar::<f32>()?;
            }
        }
        Ok((session.eval_index(model.global_step.value())?, loss, accuracy))
    }

    fn trained(&self, steps: i64, figures: Option<(i64, f32, f32)>) -> Result<Option<Trained>> {
        if self.task != 0 {
            return Ok(None);
        }
        let checkpoint = self.flags.logdir.as_deref().map(latest_checkpoint).transpose()?.flatten();
        let is_interrupted = figures.is_none();
        let (steps, loss, accuracy) = figures.unwrap_or((steps, f32::NAN, f32::NAN));
        Ok(Some(Trained { steps, loss, accuracy, checkpoint, is_interrupted }))
    }

    fn checkpoint_prefix(&self) -> Option<String> {
        let logdir = self.flags.logdir.as_deref().filter(|_| self.task == 0)?;
        Some(format!("{}/model.ckpt", logdir.trim_end_matches('/')))
    }

    fn say(&self, line: String) {
        (self.listener)(News::Line(line));
    }
}

/// Some digits, to see whether the model is worth saving when nobody has looked at the loss since it was changed last.
struct Sample {
    images: (Output, Tensor),
    labels: (Output, Tensor),
    loss: Output,
}

impl Sample {
    fn new(model: &Model, digits: &Mnist) -> Result<Sample> {
        let (images, labels) = digits.train.batches(0).next_batch(SAMPLED)?;
        let (images, labels) = ((model.images.clone(), images), (model.labels.clone(), labels));
        Ok(Sample { images, labels, loss: model.loss.clone() })
    }

    /// Returns whether the loss isn't a number. A model that can't be asked is not called bad.
    fn is_bad(&self, session: &Session) -> bool {
        let ((images, pixels), (labels, digits)) = (&self.images, &self.labels);
        let run = session.runner().feed(images, pixels.clone()).feed(labels, digits.clone()).fetch(&self.loss);
        let values = run.options(RunOptions::new().timeout(LEAVING)).run();
        let loss = values.and_then(|values| values.first().map_or(Ok(0.0), Tensor::to_scalar::<f32>));
        loss.is_ok_and(f32::is_nan)
    }
}

/// Waits for the stop request.
struct Leaving {
    wish: Coordinator,
    session_stop: Coordinator,
    finished: Coordinator,
    /// The session as it is now.
    raw: Arc<Mutex<Option<Session>>>,
    saver: Option<Arc<Saver>>,
    prefix: Option<String>,
    step: Output,
    sample: Sample,
}

impl Leaving {
    fn watch(self) {
        self.wish.wait_for_stop(None);
        self.session_stop.request_stop(None);
        if self.finished.wait_for_stop(Some(LEAVING)) {
            return;
        }
        // The step waits for workers that have left: save the model as it is, and cancel the step.
        let session = self.raw.lock().take();
        let Some(session) = session else { return };
        if let (Some(saver), Some(prefix)) = (&self.saver, &self.prefix)
            && !self.sample.is_bad(&session)
        {
            let saved = session.eval_index(&self.step).and_then(|step| saver.save(&session, prefix, Some(step)));
            if let Err(status) = saved {
                tracing::warn!("no checkpoint was saved on leaving: {status}");
            }
        }
        let _ = session.close();
    }
}
