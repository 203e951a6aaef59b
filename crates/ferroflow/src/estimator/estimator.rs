//! [`Estimator`]: trains, evaluates and exports a model, and predicts with it.

use super::input::Drawn;
use super::warm_start::WarmStartSettings;
use super::{EstimatorSpec, Features, Input, Mode, RunConfig};
use crate::summary::FileWriter;
use crate::train::latest_checkpoint;
use crate::variable::create_global_step;
use graph::{Graph, Operation, Output};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;
use storage::bundle::BundleReader;
use storage::file_system::{FileSystem, FileSystems, path};
use tensor::{Code, Result, Status, Tensor};

/// The model function with its parameters.
type ModelFn = dyn Fn(&Features, Option<&Output>, Mode) -> Result<EstimatorSpec> + Send + Sync;

/// Trains, evaluates and exports a model, and predicts with it. Every call builds a graph of its own, and resumes from the newest
/// checkpoint of the model's directory.
///
/// ```
/// use ferroflow::data::Dataset;
/// use ferroflow::estimator::{Estimator, EstimatorSpec, EvalOptions, Features, Input, Mode, RunConfig, TrainOptions};
/// use ferroflow::train::GradientDescentOptimizer;
/// use ferroflow::variable::get_global_step;
/// use ferroflow::prelude::*;
/// # let directory = tempfile::tempdir().unwrap();
/// # let model_dir = directory.path().to_str().unwrap();
///
/// /// A line through the origin.
/// fn model(features: &Features, labels: Option<&Output>, mode: Mode, rate: &f64) -> ferroflow::Result<EstimatorSpec> {
///     let x = features.dense("x")?;
///     let g = x.graph();
///     let y = &x * Variable::new(g, "slope", &g.constant(0f32)).value();
///     let spec = EstimatorSpec::new(mode).prediction("y", &y);
///     let Some(labels) = labels else { return Ok(spec) };
///     let loss = (&y - labels).square().mean();
///     let train = GradientDescentOptimizer::new(*rate).minimize(&loss, get_global_step(g)?.as_ref())?;
///     Ok(spec.loss(&loss).train_op(&train))
/// }
///
/// fn input(g: &Graph) -> Input {
///     let rows = Dataset::from_tensor_slices(g, ([1f32, 2.0], [3f32, 6.0]));
///     Input::new(&rows.repeat(50).batch(2, false), &["x"]).label()
/// }
///
/// let line = Estimator::new(model, 0.1, RunConfig::new(model_dir))?;
/// line.train(input, TrainOptions::default())?;
/// let measured = line.evaluate(input, EvalOptions::default())?;
/// assert_eq!(measured.global_step()?, 50);
/// assert!(measured.get("loss")? < 1e-3);
/// # Ok::<(), Status>(())
/// ```
#[derive(Clone)]
pub struct Estimator {
    model_fn: Arc<ModelFn>,
    pub(super) config: RunConfig,
    model_dir: String,
    pub(super) warm_start: Option<WarmStartSettings>,
    /// The line of the program that made it, which mistakes in its model name.
    caller: &'static Location<'static>,
    /// One event file for each directory, however often it is evaluated.
    writers: Arc<Mutex<BTreeMap<String, FileWriter>>>,
}

/// A model in a graph.
pub(super) struct Model {
    pub spec: EstimatorSpec,
    /// Restarts the input.
    pub input: Option<Operation>,
}

impl Estimator {
    /// Returns an estimator of a model function and the parameters to call it with.
    ///
    /// ```
    /// use ferroflow::estimator::{Estimator, EstimatorSpec, RunConfig};
    ///
    /// let estimator = Estimator::new(
    ///     |features, _labels, mode, name: &&str| Ok(EstimatorSpec::new(mode).prediction("same", &features.dense(name)?)),
    ///     "x",
    ///     RunConfig::default(),
    /// )?;
    /// # std::fs::remove_dir(estimator.model_dir()).unwrap();
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn new<P: Send + Sync + 'static>(
        model_fn: impl Fn(&Features, Option<&Output>, Mode, &P) -> Result<EstimatorSpec> + Send + Sync + 'static,
        params: P,
        config: RunConfig,
    ) -> Result<Estimator> {
        let model_dir = match &config.model_dir {
            Some(directory) => directory.trim_end_matches('/').to_owned(),
            None => temporary_directory()?,
        };
        if model_dir.is_empty() {
            return Err(Status::invalid_argument("the model directory has no name"));
        }
        Ok(Estimator {
            model_fn: Arc::new(move |features, labels, mode| model_fn(features, labels, mode, &params)),
            config,
            model_dir,
            warm_start: None,
            caller: Location::caller(),
            writers: Arc::default(),
        })
    }

    /// Initializes the first training from another model's checkpoint.
    ///
    /// ```
    /// use ferroflow::estimator::{Estimator, EstimatorSpec, RunConfig, WarmStartSettings};
    ///
    /// let estimator = Estimator::new(|_, _, mode, ()| Ok(EstimatorSpec::new(mode)), (), RunConfig::new("/tmp/new"))?;
    /// let estimator = estimator.warm_start(WarmStartSettings::new("/tmp/old"));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn warm_start(mut self, settings: WarmStartSettings) -> Estimator {
        self.warm_start = Some(settings);
        self
    }

    /// Returns the directory of checkpoints and events.
    ///
    /// ```
    /// use ferroflow::estimator::{Estimator, EstimatorSpec, RunConfig};
    ///
    /// let estimator = Estimator::new(|_, _, mode, ()| Ok(EstimatorSpec::new(mode)), (), RunConfig::new("/tmp/m/"))?;
    /// assert_eq!(estimator.model_dir(), "/tmp/m");
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn model_dir(&self) -> &str {
        &self.model_dir
    }

    /// Returns where and how the model runs.
    ///
    /// ```
    /// use ferroflow::estimator::{Estimator, EstimatorSpec, RunConfig};
    ///
    /// let estimator = Estimator::new(|_, _, mode, ()| Ok(EstimatorSpec::new(mode)), (), RunConfig::new("/tmp/m"))?;
    /// assert!(estimator.config().is_chief());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn config(&self) -> &RunConfig {
        &self.config
    }

    /// Returns the newest checkpoint, if there is one.
    ///
    /// ```
    /// use ferroflow::estimator::{Estimator, EstimatorSpec, RunConfig};
    ///
    /// let estimator = Estimator::new(|_, _, mode, ()| Ok(EstimatorSpec::new(mode)), (), RunConfig::new("/tmp/none-here"))?;
    /// assert_eq!(estimator.latest_checkpoint()?, None);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn latest_checkpoint(&self) -> Result<Option<String>> {
        latest_checkpoint(&self.model_dir)
    }

    /// Returns the value of a variable in the newest checkpoint.
    ///
    /// ```
    /// use ferroflow::estimator::{Estimator, EstimatorSpec, RunConfig};
    ///
    /// let estimator = Estimator::new(|_, _, mode, ()| Ok(EstimatorSpec::new(mode)), (), RunConfig::new("/tmp/none-here"))?;
    /// assert!(estimator.get_variable_value("w").unwrap_err().message().contains("no checkpoint"));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn get_variable_value(&self, name: &str) -> Result<Tensor> {
        self.reader()?.lookup(name)
    }

    /// Returns the names of the variables in the newest checkpoint.
    ///
    /// ```
    /// use ferroflow::estimator::{Estimator, EstimatorSpec, RunConfig};
    ///
    /// let estimator = Estimator::new(|_, _, mode, ()| Ok(EstimatorSpec::new(mode)), (), RunConfig::new("/tmp/none-here"))?;
    /// assert!(estimator.get_variable_names().is_err());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn get_variable_names(&self) -> Result<Vec<String>> {
        Ok(self.reader()?.list()?.into_iter().map(|info| info.name).collect())
    }

    fn reader(&self) -> Result<BundleReader> {
        let checkpoint = self.latest_checkpoint()?.ok_or_else(|| self.untrained())?;
        BundleReader::open(Arc::new(FileSystems::all()), &checkpoint)
    }

    pub(super) fn untrained(&self) -> Status {
        Status::not_found(format!("there is no checkpoint in {}: the model isn't trained yet", self.model_dir))
    }

    /// Builds the model with its input in a graph.
    pub(super) fn build(&self, graph: &Graph, mode: Mode, input_fn: &dyn Fn(&Graph) -> Input) -> Result<Model> {
        create_global_step(graph);
        let Drawn { features, labels, initializer } = input_fn(graph).draw(graph)?;
        // Evaluation inputs can be used for predictions, too; the model doesn't get the labels.
        let labels = labels.filter(|_| mode != Mode::Predict);
        let spec = self.call(graph, &features, labels.as_ref(), mode)?;
        Ok(Model { spec, input: initializer })
    }

    pub(super) fn new_graph(&self) -> Graph {
        let graph = Graph::new();
        if let Some(seed) = self.config.tf_random_seed {
            graph.set_random_seed(seed);
        }
        graph
    }

    /// Calls the model function.
    pub(super) fn call(
        &self,
        graph: &Graph,
        features: &Features,
        labels: Option<&Output>,
        mode: Mode,
    ) -> Result<EstimatorSpec> {
        match (self.model_fn)(features, labels, mode) {
            Ok(spec) => spec.check(graph, mode),
            // A mistake that is already in the graph came first, and has the line of the model function.
            Err(status) => graph.finish().and(Err(status)),
        }
        // The model function of a canned estimator is in the library.
        .map_err(|status| status.append(format!(" [estimator made at {}]", self.caller)))
    }

    /// Returns the event writer of evaluations in a subdirectory of the model's directory.
    pub(super) fn writer(&self, directory: &str) -> Result<FileWriter> {
        let directory = path::join(&self.model_dir, directory);
        let mut writers = self.writers.lock();
        if let Some(writer) = writers.get(&directory) {
            return Ok(writer.clone());
        }
        let writer = FileWriter::new(&directory)?;
        writers.insert(directory, writer.clone());
        Ok(writer)
    }

    /// Returns the global step of the newest checkpoint; 0 if there is none.
    pub(super) fn trained_steps(&self) -> Result<i64> {
        match self.latest_checkpoint()? {
            None => Ok(0),
            Some(checkpoint) => {
                let reader = BundleReader::open(Arc::new(FileSystems::all()), &checkpoint)?;
                if reader.contains("global_step")? { reader.lookup("global_step")?.to_index() } else { Ok(0) }
            }
        }
    }
}

/// Creates a directory for a model that has none.
fn temporary_directory() -> Result<String> {
    let files = FileSystems::all();
    let base = std::env::temp_dir().to_string_lossy().into_owned();
    for attempt in 0..10_000 {
        let directory = path::join(&base, &format!("estimator-{}-{attempt}", std::process::id()));
        match files.create_dir(&directory) {
            Ok(()) => {
                tracing::info!("the model's directory is {directory}: its configuration names none");
                return Ok(directory);
            }
            Err(status) if status.code() == Code::AlreadyExists => {}
            Err(status) => return Err(status),
        }
    }
    Err(Status::resource_exhausted(format!("{base} is full of directories of models")))
}
