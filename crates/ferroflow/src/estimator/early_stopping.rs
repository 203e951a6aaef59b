//! Hooks that end training early, based on the metrics in the evaluations' event files.

use super::Estimator;
use crate::session::Session;
use crate::train::{Coordinator, Every, RunArgs, RunContext, RunValues, SessionRunHook};
use crate::variable::{Variable, collections, named_constant};
use graph::{Graph, Operation};
use proto::event::What;
use proto::summary::value::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use storage::event::EventsReader;
use storage::file_system::{FileSystem, FileSystems, path};
use tensor::{Code, Result, Status, Tensor};

/// The variable that all workers check: TensorFlow's name, so that its workers check it, too.
const STOP: &str = "signal_early_stopping/STOP";

/// The condition for ending training early.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Condition {
    /// The metric hasn't decreased for this many steps.
    NoDecrease(i64),
    /// The metric hasn't increased for this many steps.
    NoIncrease(i64),
    /// The metric is above this threshold.
    Higher(f64),
    /// The metric is below this threshold.
    Lower(f64),
}

/// Ends training early, on every worker. The chief decides.
///
/// ```no_run
/// use ferroflow::estimator::{Estimator, TrainSpec, stop_if_no_decrease_hook};
///
/// fn with_early_end(model: &Estimator, mut train: TrainSpec) -> TrainSpec {
///     let hook = stop_if_no_decrease_hook(model, "loss", 1000);
///     train.hooks.push(Box::new(hook.min_steps(5000)));
///     train
/// }
/// ```
pub struct EarlyStoppingHook {
    condition: Condition,
    metric: String,
    eval_dir: String,
    min_steps: i64,
    every: Every,
    is_chief: bool,
    stop: Option<Variable>,
    set: Option<Operation>,
    runs: i64,
    last: Option<(i64, Instant)>,
}

macro_rules! hooks {
    ($($(#[$doc:meta])* $name:ident($argument:ident: $ty:ty) => $condition:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// ```no_run
        #[doc = concat!("use ferroflow::estimator::{EarlyStoppingHook, Estimator, ", stringify!($name), "};")]
        ///
        /// fn hook(model: &Estimator) -> EarlyStoppingHook {
        #[doc = concat!("    ", stringify!($name), "(model, \"loss\", 1 as _)")]
        /// }
        /// ```
        pub fn $name(estimator: &Estimator, metric_name: &str, $argument: $ty) -> EarlyStoppingHook {
            EarlyStoppingHook::new(estimator, metric_name, Condition::$condition($argument))
        }
    )*};
}

hooks! {
    /// Ends training when a metric hasn't decreased for this many steps.
    stop_if_no_decrease_hook(max_steps_without_decrease: i64) => NoDecrease;
    /// Ends training when a metric hasn't increased for this many steps.
    stop_if_no_increase_hook(max_steps_without_increase: i64) => NoIncrease;
    /// Ends training when a metric is above a threshold.
    stop_if_higher_hook(threshold: f64) => Higher;
    /// Ends training when a metric is below a threshold.
    stop_if_lower_hook(threshold: f64) => Lower;
}

impl EarlyStoppingHook {
    fn new(estimator: &Estimator, metric: &str, condition: Condition) -> EarlyStoppingHook {
        EarlyStoppingHook {
            condition,
            metric: metric.to_owned(),
            eval_dir: path::join(estimator.model_dir(), "eval"),
            min_steps: 0,
            every: Every::Time(Duration::from_secs(60)),
            is_chief: estimator.config().is_chief(),
            stop: None,
            set: None,
            runs: 0,
            last: None,
        }
    }

    /// Sets the directory of the evaluations' events.
    ///
    /// ```no_run
    /// use ferroflow::estimator::{EarlyStoppingHook, Estimator, stop_if_higher_hook};
    ///
    /// fn hook(model: &Estimator) -> EarlyStoppingHook {
    ///     stop_if_higher_hook(model, "accuracy", 0.99).eval_dir("/tmp/model/eval_other")
    /// }
    /// ```
    pub fn eval_dir(mut self, directory: &str) -> EarlyStoppingHook {
        self.eval_dir = directory.to_owned();
        self
    }

    /// Ignores evaluations before this global step.
    ///
    /// ```no_run
    /// use ferroflow::estimator::{EarlyStoppingHook, Estimator, stop_if_no_increase_hook};
    ///
    /// fn hook(model: &Estimator) -> EarlyStoppingHook {
    ///     stop_if_no_increase_hook(model, "auc", 500).min_steps(1000)
    /// }
    /// ```
    pub fn min_steps(mut self, min_steps: i64) -> EarlyStoppingHook {
        self.min_steps = min_steps;
        self
    }

    /// Sets how often the chief checks; the default is every minute.
    ///
    /// ```no_run
    /// use ferroflow::estimator::{EarlyStoppingHook, Estimator, stop_if_lower_hook};
    /// use ferroflow::train::Every;
    ///
    /// fn hook(model: &Estimator) -> EarlyStoppingHook {
    ///     stop_if_lower_hook(model, "loss", 0.1).run_every(Every::Steps(100))
    /// }
    /// ```
    pub fn run_every(mut self, every: Every) -> EarlyStoppingHook {
        self.every = every;
        self
    }

    fn is_due(&self) -> bool {
        match (self.last, self.every) {
            (None, _) => true,
            (Some((runs, _)), Every::Steps(steps)) => self.runs >= runs + steps.max(1),
            (Some((_, then)), Every::Time(time)) => then.elapsed() >= time,
        }
    }
}

impl SessionRunHook for EarlyStoppingHook {
    fn begin(&mut self, graph: &Graph) -> Result<()> {
        let stop = Variable::builder(graph, STOP).trainable(false).collections(&[collections::GLOBAL_VARIABLES]);
        let stop = stop.build(|graph| named_constant(graph, "Const", &Tensor::scalar(false)));
        self.set = Some(stop.assign(&graph.constant_tensor(&Tensor::scalar(true))));
        self.stop = Some(stop);
        graph.finish()
    }

    fn after_create_session(&mut self, session: &Session, _coordinator: &Coordinator) -> Result<()> {
        // A training that resumes after an early stop restores it as true.
        match &self.stop {
            Some(stop) if self.is_chief => session.run_ops(&[stop.initializer()]),
            _ => Ok(()),
        }
    }

    fn before_run(&mut self, _context: &RunContext<'_>) -> Result<RunArgs> {
        Ok(self.stop.iter().fold(RunArgs::new(), |args, stop| args.fetch(stop.value())))
    }

    fn after_run(&mut self, context: &RunContext<'_>, values: &RunValues) -> Result<()> {
        if values.results.first().map(Tensor::to_scalar::<bool>).transpose()? == Some(true) {
            tracing::info!("Requesting early stopping: the chief has asked for it");
            context.request_stop();
            return Ok(());
        }
        self.runs += 1;
        if !self.is_chief || !self.is_due() {
            return Ok(());
        }
        self.last = Some((self.runs, Instant::now()));
        let measured = measured(&self.eval_dir, &self.metric)?;
        if let Some(reason) = self.condition.reason(&measured, self.min_steps) {
            tracing::info!("Requesting early stopping: {} {reason}", self.metric);
            if let Some(set) = &self.set {
                context.session().run_ops(&[set])?;
            }
            context.request_stop();
        }
        Ok(())
    }
}

impl Condition {
    /// Returns why the training should end, given the metric at global steps.
    fn reason(self, measured: &BTreeMap<i64, f64>, min_steps: i64) -> Option<String> {
        let mut best: Option<(i64, f64)> = None;
        for (&step, &value) in measured.range(min_steps..) {
            let is_better = |than: f64| match self {
                Condition::NoDecrease(_) => value < than,
                _ => value > than,
            };
            match self {
                Condition::Higher(threshold) if value > threshold => {
                    return Some(format!("is {value} at step {step}, above {threshold}"));
                }
                Condition::Lower(threshold) if value < threshold => {
                    return Some(format!("is {value} at step {step}, below {threshold}"));
                }
                Condition::Higher(_) | Condition::Lower(_) => {}
                Condition::NoDecrease(steps) | Condition::NoIncrease(steps) => match best {
                    Some((at, than)) if !is_better(than) => {
                        if step - at >= steps {
                            return Some(format!("has its best value, {than}, since step {at}, {steps} or more ago"));
                        }
                    }
                    _ => best = Some((step, value)),
                },
            }
        }
        None
    }
}

/// Reads a metric from the event files of a directory, by global step. If there is no directory, nothing was measured yet.
fn measured(directory: &str, metric: &str) -> Result<BTreeMap<i64, f64>> {
    let files = FileSystems::all();
    let mut names = match files.list(directory) {
        Ok(names) => names,
        Err(status) if status.code() == Code::NotFound => return Ok(BTreeMap::new()),
        Err(status) => return Err(status),
    };
    names.retain(|name| name.contains(".tfevents."));
    names.sort_unstable();
    let mut measured = BTreeMap::new();
    for name in names {
        let file = path::join(directory, &name);
        let failed = |status: Status| status.context(format!("the events of evaluations in {file}"));
        let mut reader = EventsReader::open(&files, &file).map_err(failed)?;
        loop {
            let event = match reader.next_event() {
                Ok(Some(event)) => event,
                Ok(None) => break,
                // The rest is about to be written.
                Err(status) if status.code() == Code::DataLoss || status.code() == Code::OutOfRange => break,
                Err(status) => return Err(failed(status)),
            };
            let Some(What::Summary(summary)) = event.what else { continue };
            for value in summary.value.iter().filter(|value| value.tag == metric) {
                if let Some(Value::SimpleValue(number)) = value.value {
                    measured.insert(event.step, f64::from(number));
                }
            }
        }
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(condition: Condition, values: &[(i64, f64)], min_steps: i64) -> bool {
        condition.reason(&values.iter().copied().collect(), min_steps).is_some()
    }

    #[test]
    fn a_metric_that_gets_no_better() {
        let falling = [(100, 3.0), (200, 2.0), (300, 1.0)];
        assert!(!ends(Condition::NoDecrease(100), &falling, 0));
        assert!(ends(Condition::NoIncrease(200), &falling, 0));
        assert!(!ends(Condition::NoIncrease(201), &falling, 0));
        assert!(!ends(Condition::NoIncrease(200), &falling, 200));
        assert!(ends(Condition::NoDecrease(100), &[(1, 1.0), (101, 1.0)], 0));
    }

    #[test]
    fn a_metric_beyond_a_threshold() {
        let values = [(100, 0.5), (200, 0.9), (300, 0.7)];
        assert!(ends(Condition::Higher(0.8), &values, 0) && !ends(Condition::Higher(0.8), &values, 300));
        assert!(ends(Condition::Lower(0.6), &values, 0) && !ends(Condition::Lower(0.6), &values, 200));
    }
}
