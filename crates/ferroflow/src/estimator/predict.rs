//! Predictions: [`Estimator::predict`].

use super::train::StartInput;
use super::{Estimator, Input, Mode};
use crate::train::{MonitoredSession, RunArgs, SessionRunHook};
use graph::Graph;
use std::collections::BTreeMap;
use tensor::{Code, Result, Shape, Status, Tensor};

/// Options of predictions.
///
/// ```
/// use ferroflow::estimator::PredictOptions;
///
/// let only_classes = PredictOptions { keys: Some(vec!["classes".to_owned()]), ..PredictOptions::default() };
/// ```
#[derive(Default)]
pub struct PredictOptions {
    /// The names of the predictions to return; by default all.
    pub keys: Option<Vec<String>>,
    /// The checkpoint; by default the newest.
    pub checkpoint_path: Option<String>,
    /// The hooks.
    pub hooks: Vec<Box<dyn SessionRunHook>>,
}

/// The predictions for every row of the input, in order. The model runs when the next batch is needed.
///
/// ```no_run
/// use ferroflow::estimator::{Estimator, Input, PredictOptions};
///
/// fn show(model: &Estimator, input: fn(&ferroflow::Graph) -> Input) -> ferroflow::Result<()> {
///     for row in model.predict(input, PredictOptions::default())? {
///         println!("{:?}", row?["probabilities"].to_vec::<f32>()?);
///     }
///     Ok(())
/// }
/// ```
pub struct Predictions {
    session: Option<MonitoredSession>,
    fetches: RunArgs,
    names: Vec<String>,
    batch: Vec<Tensor>,
    row: usize,
}

impl Estimator {
    /// Returns the predictions for every row of the input, with the values of a checkpoint. An untrained model predicts with its
    /// initial values.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::estimator::{Estimator, EstimatorSpec, Input, PredictOptions, RunConfig};
    ///
    /// let double = Estimator::new(
    ///     |features, _, mode, ()| Ok(EstimatorSpec::new(mode).prediction("y", &(features.dense("x")? * 2.0))),
    ///     (),
    ///     RunConfig::new("/tmp/none-here"),
    /// )?;
    /// let rows = double.predict(
    ///     |g| Input::new(&Dataset::from_tensor_slices(g, [1f32, 2.0, 3.0]).batch(2, false), &["x"]),
    ///     PredictOptions::default(),
    /// )?;
    /// let doubled: Vec<f32> = rows.map(|row| row?["y"].to_scalar()).collect::<ferroflow::Result<_>>()?;
    /// assert_eq!(doubled, [2.0, 4.0, 6.0]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn predict(&self, input_fn: impl Fn(&Graph) -> Input, options: PredictOptions) -> Result<Predictions> {
        let checkpoint = match options.checkpoint_path {
            Some(checkpoint) => Some(checkpoint),
            None => self.latest_checkpoint()?,
        };
        let graph = self.new_graph();
        let model = self.build(&graph, Mode::Predict, &input_fn)?;
        let mut wanted = model.spec.predictions;
        if let Some(keys) = &options.keys {
            let known: Vec<String> = wanted.iter().map(|(name, _)| name.clone()).collect();
            if let Some(unknown) = keys.iter().find(|key| !known.contains(key)) {
                let known = known.join(", ");
                return Err(Status::invalid_argument(format!(
                    "the model doesn't predict '{unknown}'; it predicts: {known}"
                )));
            }
            wanted.retain(|(name, _)| keys.contains(name));
        }
        let mut builder = MonitoredSession::training(&graph).scaffold(model.spec.scaffold);
        if let Some(config) = &self.config.session_config {
            builder = builder.config(config.clone());
        }
        if let Some(checkpoint) = &checkpoint {
            builder = builder.checkpoint(checkpoint);
        }
        builder = model.input.into_iter().fold(builder, |builder, input| builder.hook(StartInput(input)));
        let hooks = options.hooks.into_iter().chain(model.spec.prediction_hooks);
        let session = hooks.fold(builder, |builder, hook| builder.hook(hook)).build()?;
        let fetches = wanted.iter().fold(RunArgs::new(), |args, (_, output)| args.fetch(output));
        let names = wanted.into_iter().map(|(name, _)| name).collect();
        Ok(Predictions { session: Some(session), fetches, names, batch: Vec::new(), row: 0 })
    }
}

impl Predictions {
    fn num_rows(&self) -> usize {
        let rows = self.batch.first().and_then(|tensor| tensor.dims().first());
        rows.and_then(|&rows| usize::try_from(rows).ok()).unwrap_or(0)
    }

    /// Predicts the next batch; returns whether there was one.
    fn next_batch(&mut self) -> Result<bool> {
        let Some(session) = &mut self.session else { return Ok(false) };
        if session.should_stop() {
            return Ok(false);
        }
        let batch = match session.run(&self.fetches) {
            Ok(batch) => batch,
            Err(status) if status.code() == Code::OutOfRange => return Ok(false),
            Err(status) => return Err(status),
        };
        let rows = batch.first().and_then(|tensor| tensor.dims().first()).copied();
        for (name, tensor) in self.names.iter().zip(&batch) {
            if rows.is_none() || tensor.dims().first().copied() != rows {
                return Err(Status::invalid_argument(format!(
                    "the prediction '{name}' has shape {}, but all must have as many rows as '{}': {}",
                    tensor.shape(),
                    self.names[0],
                    rows.map_or("none".to_owned(), |rows| rows.to_string())
                )));
            }
        }
        (self.batch, self.row) = (batch, 0);
        Ok(true)
    }

    fn next_row(&mut self) -> Result<Option<BTreeMap<String, Tensor>>> {
        while self.row >= self.num_rows() {
            if !self.next_batch()? {
                return match self.session.take() {
                    Some(session) => session.close().map(|()| None),
                    None => Ok(None),
                };
            }
        }
        let mut row = BTreeMap::new();
        for (name, tensor) in self.names.iter().zip(&self.batch) {
            let one = tensor.slice_rows(self.row, self.row + 1)?;
            let shape = Shape::new(&tensor.dims()[1..])?;
            row.insert(name.clone(), one.into_shape(shape)?);
        }
        self.row += 1;
        Ok(Some(row))
    }
}

impl Iterator for Predictions {
    type Item = Result<BTreeMap<String, Tensor>>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.next_row();
        if row.is_err() {
            // After a failure there are no more rows.
            self.session = None;
            self.batch.clear();
        }
        row.transpose()
    }
}
