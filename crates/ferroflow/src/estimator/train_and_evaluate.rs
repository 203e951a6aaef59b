//! [`train_and_evaluate`]: the same program on one machine and for every task of a cluster.

use super::{Estimator, EvalOptions, Evaluation, Exporter, Input, InputFn, TrainOptions, tasks};
use crate::session::Session;
use crate::train::{CheckpointSaverListener, Coordinator, SessionRunHook};
use graph::Graph;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::file_system::path;
use tensor::{Result, Status};

/// The interval at which an evaluator checks for a new checkpoint.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Creates the hooks of one evaluation.
type Hooks = Arc<dyn Fn() -> Vec<Box<dyn SessionRunHook>> + Send + Sync>;

/// Options of the training.
///
/// ```
/// use ferroflow::data::Dataset;
/// use ferroflow::estimator::{Input, TrainSpec};
///
/// let spec = TrainSpec::new(|g| Input::new(&Dataset::range(g, 10).batch(5, false), &["x"]), Some(1000));
/// assert_eq!(spec.max_steps, Some(1000));
/// ```
pub struct TrainSpec {
    /// The input.
    pub input_fn: InputFn,
    /// The global step at which training ends; by default it ends with the input.
    pub max_steps: Option<i64>,
    /// The hooks of the training.
    pub hooks: Vec<Box<dyn SessionRunHook>>,
    /// The listeners, which are notified of every checkpoint.
    pub saving_listeners: Vec<Box<dyn CheckpointSaverListener>>,
}

impl TrainSpec {
    /// Trains with an input up to a global step.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::estimator::{Input, TrainSpec};
    ///
    /// let spec = TrainSpec::new(|g| Input::new(&Dataset::range(g, 10).batch(5, false), &["x"]), None);
    /// assert!(spec.hooks.is_empty());
    /// ```
    pub fn new(input_fn: impl Fn(&Graph) -> Input + Send + Sync + 'static, max_steps: Option<i64>) -> TrainSpec {
        TrainSpec { input_fn: Arc::new(input_fn), max_steps, hooks: Vec::new(), saving_listeners: Vec::new() }
    }
}

/// Options of evaluations during training.
///
/// ```
/// use ferroflow::data::Dataset;
/// use ferroflow::estimator::{EvalSpec, Input};
///
/// let spec = EvalSpec::new(|g| Input::new(&Dataset::range(g, 10).batch(5, false), &["x"]));
/// assert_eq!(spec.steps, Some(100));
/// ```
pub struct EvalSpec {
    /// The input.
    pub input_fn: InputFn,
    /// The number of batches; 100 by default, `None` means all.
    pub steps: Option<u64>,
    /// The name of this evaluation, which distinguishes it from others: its events are in `eval_NAME`.
    pub name: Option<String>,
    /// Creates the hooks of each evaluation.
    pub hooks: Option<Hooks>,
    /// The exporters, which run after evaluations.
    pub exporters: Vec<Box<dyn Exporter>>,
    /// The delay before an evaluator starts; none by default.
    pub start_delay_secs: u64,
    /// The minimum time between the starts of two evaluations; none by default.
    pub throttle_secs: u64,
}

impl EvalSpec {
    /// Evaluates with an input, at the start and at every new checkpoint.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::estimator::{EvalSpec, Input};
    ///
    /// let input = |g: &ferroflow::Graph| Input::new(&Dataset::range(g, 10).batch(5, false), &["x"]);
    /// let spec = EvalSpec { steps: None, throttle_secs: 60, ..EvalSpec::new(input) };
    /// ```
    pub fn new(input_fn: impl Fn(&Graph) -> Input + Send + Sync + 'static) -> EvalSpec {
        EvalSpec {
            input_fn: Arc::new(input_fn),
            steps: Some(100),
            name: None,
            hooks: None,
            exporters: Vec::new(),
            start_delay_secs: 0,
            throttle_secs: 0,
        }
    }
}

/// Trains and evaluates a model: in this process, or as the task of a cluster that the configuration names. In a cluster the
/// chief and the workers train, parameter servers serve, an evaluator evaluates every checkpoint, and all return when the chief
/// is done.
///
/// Returns the last evaluation, in the process that evaluates.
///
/// ```
/// use ferroflow::data::Dataset;
/// use ferroflow::estimator::{Estimator, EstimatorSpec, EvalSpec, Input, RunConfig, TrainSpec, train_and_evaluate};
/// use ferroflow::{prelude::*, train::GradientDescentOptimizer, variable::get_global_step};
/// # let directory = tempfile::tempdir().unwrap();
/// # let model_dir = directory.path().to_str().unwrap();
///
/// let model = Estimator::new(
///     |features, _, mode, ()| {
///         let x = features.dense("x")?;
///         let loss = (&x * Variable::new(x.graph(), "w", &x.graph().constant(1f32)).value()).square().mean();
///         let train = GradientDescentOptimizer::new(0.1).minimize(&loss, get_global_step(x.graph())?.as_ref())?;
///         Ok(EstimatorSpec::new(mode).loss(&loss).train_op(&train))
///     },
///     (),
///     RunConfig::new(model_dir),
/// )?;
/// let input = |g: &Graph, times| Input::new(&Dataset::from_tensor_slices(g, [1f32, 2.0]).repeat(times).batch(2, false), &["x"]);
/// let train = TrainSpec::new(move |g| input(g, -1), Some(20));
/// let measured = train_and_evaluate(&model, train, EvalSpec::new(move |g| input(g, 1)))?;
/// assert_eq!(measured.unwrap().global_step()?, 20);
/// # Ok::<(), Status>(())
/// ```
pub fn train_and_evaluate(estimator: &Estimator, train: TrainSpec, eval: EvalSpec) -> Result<Option<Evaluation>> {
    check_names(&eval.exporters)?;
    let told = estimator.config().tf_config.clone();
    let (input_fn, max_steps) = (train.input_fn, train.max_steps);
    let mut options = TrainOptions {
        max_steps,
        hooks: train.hooks,
        saving_listeners: train.saving_listeners,
        ..TrainOptions::default()
    };
    match &told {
        Some(told) if told.job == "ps" => tasks::serve(told).map(|()| None),
        Some(told) if told.is_evaluator() => {
            let end = Coordinator::new();
            if let Some(target) = tasks::way_to_chief(told)? {
                tasks::watch_chief(told, &target, &end)?;
            }
            let evaluated = Evaluator::new(estimator, eval, max_steps).evaluate_until(&end);
            // No other task needs the chief any more.
            end.request_stop(None);
            evaluated
        }
        Some(told) if told.job != "master" => estimator.train(|graph| input_fn(graph), options).map(|()| None),
        // A master, or a process without a cluster, evaluates between two steps.
        _ => {
            let evaluator = Arc::new(Mutex::new(Evaluator::new(estimator, eval, max_steps)));
            options.saving_listeners.push(Box::new(EvaluateOnSave(evaluator.clone())));
            estimator.train(|graph| input_fn(graph), options)?;
            let mut evaluator = evaluator.lock();
            evaluator.finish()?;
            Ok(evaluator.last.take())
        }
    }
}

fn check_names(exporters: &[Box<dyn Exporter>]) -> Result<()> {
    for (at, exporter) in exporters.iter().enumerate() {
        let name = exporter.name();
        if name.is_empty() || name.contains('/') {
            return Err(Status::invalid_argument(format!("'{name}' is no name for an exporter: a directory has it")));
        }
        if exporters[..at].iter().any(|other| other.name() == name) {
            return Err(Status::invalid_argument(format!("there are two exporters of the name '{name}'")));
        }
    }
    Ok(())
}

/// Evaluates one checkpoint after the other, and exports.
struct Evaluator {
    estimator: Estimator,
    spec: EvalSpec,
    max_steps: Option<i64>,
    /// The last evaluated checkpoint.
    checkpoint: Option<String>,
    last: Option<Evaluation>,
    began: Option<Instant>,
    is_finished: bool,
}

impl Evaluator {
    fn new(estimator: &Estimator, spec: EvalSpec, max_steps: Option<i64>) -> Evaluator {
        let estimator = estimator.clone();
        Evaluator { estimator, spec, max_steps, checkpoint: None, last: None, began: None, is_finished: false }
    }

    /// Evaluates every new checkpoint until that of the last step, or until the chief is done.
    fn evaluate_until(mut self, end: &Coordinator) -> Result<Option<Evaluation>> {
        end.wait_for_stop(Some(Duration::from_secs(self.spec.start_delay_secs)));
        let directory = self.estimator.model_dir().to_owned();
        if self.estimator.latest_checkpoint()?.is_none() {
            tracing::info!("waiting for the first checkpoint in {directory}");
        }
        loop {
            // Checkpoints saved before the end are handled below.
            if end.should_stop() {
                self.finish()?;
            } else if self.waits().is_zero() {
                self.evaluate_newest(false)?;
            }
            if self.is_finished {
                return Ok(self.last);
            }
            end.wait_for_stop(Some(self.waits().max(LOOK_EVERY)));
        }
    }

    /// Returns the delay before the next evaluation.
    fn waits(&self) -> Duration {
        let throttle = Duration::from_secs(self.spec.throttle_secs);
        self.began.map_or(Duration::ZERO, |began| throttle.saturating_sub(began.elapsed()))
    }

    /// Evaluates the newest checkpoint, unless it was evaluated before.
    fn evaluate_newest(&mut self, is_final: bool) -> Result<()> {
        let Some(newest) =
            self.estimator.latest_checkpoint()?.filter(|newest| self.checkpoint.as_ref() != Some(newest))
        else {
            return Ok(());
        };
        self.began = Some(Instant::now());
        let options = EvalOptions {
            steps: self.spec.steps,
            checkpoint_path: Some(newest.clone()),
            name: self.spec.name.clone(),
            hooks: self.spec.hooks.as_ref().map(|hooks| hooks()).unwrap_or_default(),
        };
        let evaluation = match self.estimator.evaluate_by(&*self.spec.input_fn, options) {
            Ok(evaluation) => evaluation,
            // The chief keeps only the newest few.
            Err(status) if self.estimator.latest_checkpoint()?.is_some_and(|now| now != newest) => {
                tracing::info!("{newest} wasn't evaluated: there is a newer one ({status})");
                return Ok(());
            }
            Err(status) => return Err(status),
        };
        let step = evaluation.global_step()?;
        (self.checkpoint, self.last) = (Some(newest), Some(evaluation));
        self.export(is_final || self.max_steps.is_some_and(|max_steps| step >= max_steps))
    }

    /// Evaluates the final checkpoint, and exports for the last time.
    fn finish(&mut self) -> Result<()> {
        if !self.is_finished {
            self.evaluate_newest(true)?;
        }
        if !self.is_finished {
            // The last checkpoint was evaluated before it was known to be the last.
            self.export(true)?;
        }
        Ok(())
    }

    fn export(&mut self, is_final: bool) -> Result<()> {
        self.is_finished = is_final;
        let (Some(checkpoint), Some(evaluation)) = (&self.checkpoint, &self.last) else { return Ok(()) };
        for exporter in &mut self.spec.exporters {
            let exports = path::join(self.estimator.model_dir(), "export");
            let base = path::join(&exports, exporter.name());
            if let Some(exported) = exporter.export(&self.estimator, &base, checkpoint, evaluation, is_final)? {
                tracing::info!("exported {exported}");
            }
        }
        Ok(())
    }
}

/// Evaluates after each checkpoint, unless nothing was trained before it.
struct EvaluateOnSave(Arc<Mutex<Evaluator>>);

impl CheckpointSaverListener for EvaluateOnSave {
    fn after_save(&mut self, _session: &Session, step: i64) -> Result<bool> {
        let mut evaluator = self.0.lock();
        if step > 0 && evaluator.waits().is_zero() {
            evaluator.evaluate_newest(false)?;
        }
        Ok(false)
    }
}
