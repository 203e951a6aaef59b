//! One worker of `ferroflow train`: an estimator that trains on the cluster and, on the chief, also evaluates and exports.

use super::curves::Curves;
use super::evaluations::{Evaluations, evaluate, evaluate_untrained, loss};
use super::flags::Flags;
use super::news::{Listener, News};
use super::recipe::{Part, Recipe, Training};
use super::watch::{UnderWay, Watch};
use crate::exit;
use cluster::{ClusterSpec, TfConfig};
use ferroflow::estimator::{Estimator, Evaluation, RunConfig, Strategy, TrainOptions};
use ferroflow::session::Target;
use ferroflow::train::{Coordinator, Every, Saver, latest_checkpoint};
use ferroflow::{Code, Graph, Result, Status};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A worker about to train.
pub struct Worker {
    /// The index among the workers; the chief is 0.
    pub task: u32,
    /// The number of workers, including the chief.
    pub workers: u32,
    /// The cluster.
    pub cluster: ClusterSpec,
    /// The job of this task: `worker`, `chief` or `master`.
    pub job: String,
    /// The index in the job.
    pub index: u32,
    pub flags: Flags,
    pub target: Target,
    pub recipe: Arc<dyn Recipe>,
    pub listener: Listener,
    /// The request to save and leave.
    pub stop: Coordinator,
}

/// The chief's results of the training.
#[derive(Clone, Debug, PartialEq)]
pub struct Trained {
    pub steps: i64,
    pub loss: f32,
    pub accuracy: f32,
    pub auc: Option<f32>,
    pub checkpoint: Option<String>,
    pub is_interrupted: bool,
}

impl Trained {
    /// Returns the results of an evaluation.
    pub fn of(evaluation: &Evaluation, checkpoint: Option<String>) -> Result<Trained> {
        Ok(Trained {
            steps: evaluation.global_step()?,
            loss: loss(evaluation)? as f32,
            accuracy: evaluation.get("accuracy")? as f32,
            auc: evaluation.get("auc").ok().map(|auc| auc as f32),
            checkpoint,
            is_interrupted: false,
        })
    }

    fn interrupted(steps: i64, checkpoint: Option<String>) -> Trained {
        Trained { steps, loss: f32::NAN, accuracy: f32::NAN, auc: None, checkpoint, is_interrupted: true }
    }
}

/// Why a worker failed.
pub struct WorkerFailure {
    /// The error.
    pub status: Status,
    /// Whether training had begun.
    has_begun: bool,
}

impl WorkerFailure {
    /// Returns whether another try would fail the same way, since the cause isn't a lost task.
    pub fn is_for_good(&self) -> bool {
        use Code::{
            AlreadyExists, DataLoss, FailedPrecondition, InvalidArgument, NotFound, PermissionDenied, Unimplemented,
        };
        match self.status.code() {
            InvalidArgument | PermissionDenied | Unimplemented | DataLoss => true,
            // Later, a restarted task, which has lost its state, returns these, too.
            FailedPrecondition | NotFound | AlreadyExists => !self.has_begun,
            _ => false,
        }
    }

    /// Returns the exit code that tells a cluster manager whether another start may help.
    pub fn exit_code(&self) -> u8 {
        match self.status.code() {
            _ if self.is_for_good() => exit::FAILED,
            Code::FailedPrecondition | Code::NotFound | Code::AlreadyExists => exit::PEER_LOST,
            _ => exit::code_of(&self.status),
        }
    }
}

/// How long a step may take to end when the worker is told to leave.
const LEAVING: Duration = Duration::from_secs(2);

/// How long a synchronous step may take before a line says that it waits.
const WAITING: Duration = Duration::from_secs(4);

/// A training of at most this many steps is saved and evaluated a fixed number of times.
const SHORT_STEPS: i64 = 20_000;

/// The number of times that a short training is saved and evaluated.
const EVALUATIONS: i64 = 10;

/// The default interval at which checkpoints of longer trainings are saved.
const SAVING: Duration = Duration::from_secs(30);

/// The most points of a curve in a short training, and the bounds of the number of steps between points.
const POINTS: i64 = 100;
const POINT_STEPS: (i64, i64) = (10, 100);

/// Longer than any training: without a directory, only the last checkpoint is of use.
const ONLY_AT_THE_END: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

impl Worker {
    /// Trains until the last step; the chief returns the results.
    pub fn run(&self) -> Result<Option<Trained>, WorkerFailure> {
        let under_way = UnderWay::new();
        match self.train(&under_way) {
            // The chief has ended synchronous training.
            Err(status) if self.task != 0 && status.code() == Code::OutOfRange => Ok(None),
            other => other.map_err(|status| {
                let has_begun = under_way.has_begun.load(Ordering::Acquire);
                WorkerFailure { status, has_begun }
            }),
        }
    }

    /// Trains until a stop is requested: a step that waits for other workers is then cancelled.
    fn train(&self, under_way: &UnderWay) -> Result<Option<Trained>> {
        let directory = ModelDir::new(&self.flags)?;
        let part =
            Part { flags: self.flags.clone(), is_chief: self.task == 0, workers: self.workers, saver: Arc::default() };
        let config = RunConfig {
            tf_config: Some(TfConfig { cluster: self.cluster.clone(), job: self.job.clone(), task_index: self.index }),
            master: Some(self.target.clone()),
            session_creation_timeout_secs: None,
            elastic: self.flags.bounds(self.workers),
            ..config(&self.flags, &directory.path)?
        };
        let estimator = self.recipe.estimator(&part, config)?;
        let testing = if self.task == 0 { Some(self.recipe.testing()?) } else { None };
        let finished = Coordinator::new();
        let stop = Coordinator::new();
        self.watch_for_a_wish_to_leave(&stop, &finished, under_way, part.saver.clone())?;
        if self.flags.is_sync() {
            self.watch_for_waiting(&finished, under_way)?;
        }

        let Training { input, batches } = self.recipe.training(self.task);
        let of_chief = (self.task == 0).then(|| directory.path.clone());
        let curves = self
            .flags
            .logdir
            .as_ref()
            .map(|logdir| Curves::new(logdir, self.task, steps_between_points(&self.flags), self.task == 0));
        let watch = Watch::new(self.task, batches, self.listener.clone(), under_way.clone(), of_chief, curves);
        let mut options = TrainOptions {
            max_steps: Some(self.flags.last_step()),
            hooks: vec![Box::new(watch)],
            stop: Some(stop),
            ..TrainOptions::default()
        };
        let mut evaluations = None;
        if let Some(testing) = &testing {
            let is_new = self.flags.logdir.is_some() && evaluate_untrained(&estimator, testing, &self.listener)?;
            let (wish, listener, has_begun) = (&self.stop, self.listener.clone(), under_way.has_begun.clone());
            let (started, on_save) =
                Evaluations::start(&estimator, testing.clone(), wish, listener, has_begun, is_new)?;
            options.saving_listeners.push(Box::new(on_save));
            evaluations = Some(started);
        }
        let trained = estimator.train(|graph: &Graph| input(graph), options);
        let is_interrupted = self.stop.should_stop();
        finished.request_stop(None);
        let last = evaluations.map(Evaluations::finish).transpose().map(Option::flatten);
        // The other thread ends only on request.
        self.stop.request_stop(None);
        if !is_interrupted {
            trained?;
        }
        let Some(testing) = testing else { return Ok(None) };
        let checkpoint = self.flags.logdir.as_deref().map(latest_checkpoint).transpose()?.flatten();
        if is_interrupted {
            return Ok(Some(Trained::interrupted(0, checkpoint)));
        }
        // There is none if the existing checkpoint is of the last step already.
        let last = match last? {
            Some(evaluation) => evaluation,
            None => evaluate(&estimator, &testing, None)?,
        };
        self.export(&estimator)?;
        Trained::of(&last, checkpoint).map(Some)
    }

    fn export(&self, estimator: &Estimator) -> Result<()> {
        if let Some(directory) = &self.flags.export {
            let exported = estimator.export_saved_model(directory, &self.recipe.serving())?;
            self.say(format!("exported {exported}; look into it with: ferroflow saved_model ls {exported}"));
        }
        Ok(())
    }

    /// Ends the training on request. If a step then waits for workers that have left, the model is saved as it is, and the step is
    /// cancelled.
    fn watch_for_a_wish_to_leave(
        &self,
        stop: &Coordinator,
        finished: &Coordinator,
        under_way: &UnderWay,
        saver: Arc<Mutex<Option<Arc<Saver>>>>,
    ) -> Result<()> {
        let leaving = Leaving {
            wish: self.stop.clone(),
            stop: stop.clone(),
            finished: finished.clone(),
            under_way: under_way.clone(),
            saver,
            prefix: self.checkpoint_prefix(),
        };
        let spawned = std::thread::Builder::new().name("leave".to_owned()).spawn(move || leaving.watch());
        spawned.map(drop).map_err(|error| Status::resource_exhausted(format!("no thread to leave with: {error}")))
    }

    /// Logs that a synchronous step waits for other workers, if it takes long.
    fn watch_for_waiting(&self, finished: &Coordinator, under_way: &UnderWay) -> Result<()> {
        let (finished, last_step_at) = (finished.clone(), under_way.last_step_at.clone());
        let listener = self.listener.clone();
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

    fn checkpoint_prefix(&self) -> Option<String> {
        let logdir = self.flags.logdir.as_deref().filter(|_| self.task == 0)?;
        Some(format!("{}/model.ckpt", logdir.trim_end_matches('/')))
    }

    fn say(&self, line: String) {
        (self.listener)(News::Line(line));
    }
}

/// Returns the configuration for training or evaluating a model.
pub fn config(flags: &Flags, model_dir: &str) -> Result<RunConfig> {
    let has_logdir = flags.logdir.is_some();
    Ok(RunConfig {
        save_checkpoints: Some(if has_logdir { saving(flags)? } else { Every::Time(ONLY_AT_THE_END) }),
        save_summary_steps: has_logdir.then(|| steps_between_points(flags)),
        // The bar, or lines in its place, and the curves of each worker show it.
        log_step_count_steps: None,
        strategy: if flags.is_all_reduce() { Strategy::AllReduce } else { Strategy::ParameterServers },
        ..RunConfig::new(model_dir)
    })
}

/// Returns the interval at which checkpoints are saved and evaluated.
fn saving(flags: &Flags) -> Result<Every> {
    if let Some(steps) = flags.eval_every {
        return Ok(Every::Steps(steps));
    }
    match flags.save_checkpoint_secs {
        None if flags.last_step() <= SHORT_STEPS => Ok(Every::Steps((flags.last_step() / EVALUATIONS).max(1))),
        None => Ok(Every::Time(SAVING)),
        Some(seconds) => Duration::try_from_secs_f64(seconds)
            .map(Every::Time)
            .map_err(|_| Status::invalid_argument("--save_checkpoint_secs must not be negative")),
    }
}

fn steps_between_points(flags: &Flags) -> i64 {
    (flags.last_step() / POINTS).clamp(POINT_STEPS.0, POINT_STEPS.1)
}

/// The directory of a model: that of the flags, or a temporary one that is removed when this is dropped.
struct ModelDir {
    path: String,
    _temporary: Option<tempfile::TempDir>,
}

impl ModelDir {
    fn new(flags: &Flags) -> Result<ModelDir> {
        if let Some(logdir) = &flags.logdir {
            return Ok(ModelDir { path: logdir.clone(), _temporary: None });
        }
        let made = tempfile::tempdir();
        let temporary = made.map_err(|error| Status::unknown(format!("no temporary directory: {error}")))?;
        Ok(ModelDir { path: temporary.path().display().to_string(), _temporary: Some(temporary) })
    }
}

/// Waits for the stop request.
struct Leaving {
    wish: Coordinator,
    stop: Coordinator,
    finished: Coordinator,
    under_way: UnderWay,
    saver: Arc<Mutex<Option<Arc<Saver>>>>,
    prefix: Option<String>,
}

impl Leaving {
    fn watch(self) {
        self.wish.wait_for_stop(None);
        self.stop.request_stop(None);
        if self.finished.wait_for_stop(Some(LEAVING)) {
            return;
        }
        // The step waits for workers that have left: save the model as it is, and cancel the step.
        let live = self.under_way.session.lock().take();
        let Some(live) = live else { return };
        if let (Some(saver), Some(prefix)) = (&*self.saver.lock(), &self.prefix)
            && !live.is_bad()
        {
            let step = live.session.eval_index(&live.step);
            let saved = step.and_then(|step| saver.save(&live.session, prefix, Some(step)));
            if let Err(status) = saved {
                tracing::warn!("no checkpoint was saved on leaving: {status}");
            }
        }
        let _ = live.session.close();
    }
}
