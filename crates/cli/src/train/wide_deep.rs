//! `ferroflow train --model wide_deep`: a linear model over crossed columns beside a network, on the Adult census rows, as an Estimator.
//! It is one process, or the task of a cluster that `TF_CONFIG` or flags name.

use super::flags::Flags;
use super::leave_on_interrupt;
use super::place::Place;
use super::progress::{Progress, Steps, Whose};
use crate::Failure;
use cluster::TfConfig;
use ferroflow::Result;
use ferroflow::data::census::{Census, FEATURES};
use ferroflow::estimator::{
    DNNLinearCombinedClassifier, Estimator, EvalSpec, Evaluation, Input, RunConfig, ServingInputFn, TrainSpec,
    build_raw_serving_input_receiver_fn, train_and_evaluate,
};
use ferroflow::feature_column::{
    CrossKey, FeatureColumn, Normalizer, bucketized_column, categorical_column_with_hash_bucket,
    categorical_column_with_vocabulary_list, crossed_column, embedding_column, indicator_column, numeric_column,
};
use ferroflow::prelude::*;
use ferroflow::train::{
    AdagradOptimizer, Coordinator, Every, FtrlOptimizer, RunArgs, RunContext, RunValues, SessionRunHook,
};
use ferroflow::variable::get_global_step;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// The ages between which people are told apart.
const AGES: [f32; 10] = [18.0, 25.0, 30.0, 35.0, 40.0, 45.0, 50.0, 55.0, 60.0, 65.0];

/// The features that are words of which there are few, with how many buckets they are hashed into.
const WORDS: [(&str, i64); 4] = [("workclass", 40), ("education", 60), ("marital_status", 30), ("relationship", 30)];

/// Trains and evaluates; the accuracy is printed last.
pub fn run(flags: &Flags) -> Result<(), Failure> {
    let place = Place::find(flags)?;
    let census = match &flags.data_dir {
        Some(directory) => Census::from_dir(directory)?,
        None => Census::builtin()?,
    };
    let temporary;
    let model_dir = match &flags.logdir {
        Some(logdir) => logdir.clone(),
        None if place.is_some() => return Err(Failure::new("--logdir is missing: the tasks of a cluster share one")),
        None => {
            temporary =
                tempfile::tempdir().map_err(|error| Failure::new(format!("no temporary directory: {error}")))?;
            temporary.path().display().to_string()
        }
    };
    let whose = place.as_ref().map_or("in this process".to_owned(), |place| format!("as {}", place.device()));
    crate::say!("{} rows to train on, {} to test on; {whose}", census.train.len(), census.test.len());
    let model = model(flags, &model_dir, place)?;
    let stop = Coordinator::new();
    leave_on_interrupt(&stop)?;
    let progress = Arc::new(Mutex::new(Progress::new(flags.last_step(), 1, Whose::All)));
    let (batch, tested) = (flags.batch_size as i64, census.test);
    let train = move |g: &Graph| {
        let rows = census.train.dataset(g).shuffle(33_000, None, true).repeat(-1).batch(batch, true).prefetch(2);
        Input::new(&rows, &FEATURES).label()
    };
    let test = move |g: &Graph| Input::new(&tested.dataset(g).batch(1000, false), &FEATURES).label();
    let mut train = TrainSpec::new(train, Some(flags.last_step()));
    train.hooks.push(Box::new(Watch {
        progress: progress.clone(),
        stop: stop.clone(),
        outputs: Vec::new(),
        last: None,
    }));
    let measured = train_and_evaluate(&model, train, EvalSpec { steps: None, ..EvalSpec::new(test) })?;
    conclude(flags, &model, &progress.lock(), measured.as_ref(), stop.should_stop())
}

/// Makes the estimator of this task.
fn model(flags: &Flags, model_dir: &str, place: Option<Place>) -> Result<Estimator> {
    let age = numeric_column("age");
    let ages = bucketized_column(&age, &AGES);
    let words = WORDS.map(|(name, buckets)| categorical_column_with_hash_bucket(name, buckets));
    let gender = categorical_column_with_vocabulary_list("gender", ["Male", "Female"]);
    let occupation = categorical_column_with_hash_bucket("occupation", 1000);
    let mut wide: Vec<FeatureColumn> = words.iter().map(|column| column.clone().into()).collect();
    wide.extend([gender.clone().into(), occupation.clone().into(), ages.clone().into()]);
    wide.push(crossed_column(["education", "occupation"], 1000).into());
    wide.push(crossed_column([CrossKey::from(&ages), "education".into(), "occupation".into()], 1000).into());
    // Gains reach a hundred thousand, and are mostly none: only how many digits they have says something.
    let logarithm: Normalizer = Arc::new(|x| (x + 1.0).log());
    let mut deep: Vec<FeatureColumn> = vec![age.into()];
    deep.extend(["education_num", "hours_per_week"].map(|name| numeric_column(name).into()));
    deep.extend(["capital_gain", "capital_loss"].map(|name| numeric_column(name).normalizer(logarithm.clone()).into()));
    deep.extend(words.iter().chain([&gender]).map(|column| indicator_column(column).into()));
    deep.push(embedding_column(&occupation, 8).into());

    let mut model = DNNLinearCombinedClassifier::new(&wide, &deep, &[flags.hidden_units, 75, 50, 25]);
    let rate = flags.rate();
    model.linear.optimizer = Some(Arc::new(move || Box::new(FtrlOptimizer::new(rate))));
    model.dnn.optimizer = Some(Arc::new(move || Box::new(AdagradOptimizer::new(rate))));
    let tf_config = place.map(|place| TfConfig { cluster: place.cluster, job: place.job, task_index: place.index });
    let every = match flags.eval_every {
        Some(steps) => Every::Steps(steps),
        None => Every::Time(Duration::try_from_secs_f64(flags.save_checkpoint_secs).map_err(|error| {
            Status::invalid_argument(format!("--save_checkpoint_secs={}: {error}", flags.save_checkpoint_secs))
        })?),
    };
    model.build(RunConfig { save_checkpoints: Some(every), tf_config, ..RunConfig::new(model_dir) })
}

/// Returns the input of the exported model: the features as they are.
fn serving() -> ServingInputFn {
    let dtype = |index: usize| if index < 5 { DType::Float } else { DType::String };
    let features: Vec<(&str, DType, PartialShape)> =
        FEATURES.iter().enumerate().map(|(index, name)| (*name, dtype(index), PartialShape::from([-1]))).collect();
    build_raw_serving_input_receiver_fn(&features)
}

/// Says what came of it; the accuracy is last.
fn conclude(
    flags: &Flags,
    model: &Estimator,
    progress: &Progress,
    measured: Option<&Evaluation>,
    is_interrupted: bool,
) -> Result<(), Failure> {
    progress.finish();
    if let Some(logdir) = &flags.logdir
        && let Some(checkpoint) = model.latest_checkpoint()?.filter(|_| model.config().is_chief())
    {
        crate::say!("checkpoint {checkpoint}; look into it with: ferroflow checkpoint ls {checkpoint}");
        crate::say!("curves: tensorboard --logdir {logdir}");
    }
    if let Some(directory) = flags.export.as_ref().filter(|_| model.config().is_chief()) {
        let exported = model.export_saved_model(directory, &serving())?;
        crate::say!("exported {exported}; look into it with: ferroflow saved_model ls {exported}");
    }
    if is_interrupted {
        crate::say!("interrupted; run it again with the same --logdir to go on");
    }
    let Some(measured) = measured else { return Ok(()) };
    crate::say!("test loss {:.4}", measured.get("average_loss")?);
    crate::say!("test AUC {:.4}", measured.get("auc")?);
    crate::say!("test accuracy {:.1} %", 100.0 * measured.get("accuracy")?);
    Ok(())
}

/// Shows how training goes, and ends it when somebody wants to leave.
struct Watch {
    progress: Arc<Mutex<Progress>>,
    stop: Coordinator,
    /// The global step and the loss.
    outputs: Vec<Output>,
    last: Option<i64>,
}

impl SessionRunHook for Watch {
    fn begin(&mut self, graph: &Graph) -> Result<()> {
        let step = get_global_step(graph)?.ok_or_else(|| Status::internal("the graph has no global step"))?;
        // The estimator's summary of the loss has it as its second input.
        let summary = graph.operation("loss").ok_or_else(|| Status::internal("the graph has no loss"))?;
        self.outputs = vec![step.value().clone(), summary.input(1)];
        Ok(())
    }

    fn before_run(&mut self, _context: &RunContext<'_>) -> Result<RunArgs> {
        Ok(self.outputs.iter().fold(RunArgs::new(), |args, output| args.fetch(output)))
    }

    fn after_run(&mut self, context: &RunContext<'_>, values: &RunValues) -> Result<()> {
        let [step, loss] = &values.results[..] else { return Err(Status::internal("a step without its values")) };
        let (step, loss) = (step.to_index()?, loss.to_scalar::<f32>()?);
        // The step is read beside the training.
        let step = self.last.map_or(step, |last| step.max(last + 1));
        self.last = Some(step);
        self.progress.lock().take(Steps { task: 0, count: 1, step, loss });
        if self.stop.should_stop() {
            context.request_stop();
        }
        Ok(())
    }

    fn end(&mut self, _session: &Session) -> Result<()> {
        self.progress.lock().finish();
        Ok(())
    }
}
