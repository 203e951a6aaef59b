//! Exporters: export models after the evaluations of [`train_and_evaluate`](super::train_and_evaluate).

use super::export::{exported, timestamped};
use super::{Estimator, Evaluation, ServingInputFn};
use std::collections::BTreeMap;
use storage::file_system::{FileSystem, FileSystems, path};
use tensor::{Code, Result, Status};

/// The default number of exported models to keep.
const EXPORTS_TO_KEEP: usize = 5;

/// The file with the best model's metrics, beside the models.
const BEST_FILE: &str = "best_metrics.json";

/// Decides after an evaluation whether to export the model, and exports it.
///
/// ```
/// use ferroflow::estimator::{Estimator, Evaluation, Exporter};
///
/// /// Says which model would be exported.
/// struct Say;
///
/// impl Exporter for Say {
///     fn name(&self) -> &str {
///         "say"
///     }
///
///     fn export(
///         &mut self,
///         _estimator: &Estimator,
///         export_path: &str,
///         checkpoint_path: &str,
///         _evaluation: &Evaluation,
///         _is_the_final_export: bool,
///     ) -> ferroflow::Result<Option<String>> {
///         println!("{checkpoint_path} would go to {export_path}");
///         Ok(None)
///     }
/// }
/// ```
pub trait Exporter: Send {
    /// Returns the name of the models' directory, in the directory `export` of the model's directory.
    fn name(&self) -> &str;

    /// Exports an evaluated checkpoint to a subdirectory of `export_path`, which it returns. It is called again after the last
    /// evaluation, if it wasn't known before that it was the last.
    fn export(
        &mut self,
        estimator: &Estimator,
        export_path: &str,
        checkpoint_path: &str,
        evaluation: &Evaluation,
        is_the_final_export: bool,
    ) -> Result<Option<String>>;
}

/// Exports every evaluated model.
///
/// ```
/// use ferroflow::estimator::{LatestExporter, build_raw_serving_input_receiver_fn};
/// use ferroflow::{DType, PartialShape};
///
/// let serving = build_raw_serving_input_receiver_fn(&[("x", DType::Float, PartialShape::from([-1, 2]))]);
/// let mut exporter = LatestExporter::new("latest", serving);
/// exporter.exports_to_keep = 2;
/// ```
pub struct LatestExporter {
    name: String,
    serving_input_receiver_fn: ServingInputFn,
    /// The number of models to keep; 0 means all.
    pub exports_to_keep: usize,
    exported: Option<String>,
}

impl LatestExporter {
    /// Returns an exporter that keeps the newest five.
    ///
    /// ```
    /// use ferroflow::estimator::{LatestExporter, build_raw_serving_input_receiver_fn};
    ///
    /// let exporter = LatestExporter::new("latest", build_raw_serving_input_receiver_fn(&[]));
    /// assert_eq!(exporter.exports_to_keep, 5);
    /// ```
    pub fn new(name: &str, serving_input_receiver_fn: ServingInputFn) -> LatestExporter {
        let (name, exported) = (name.to_owned(), None);
        LatestExporter { name, serving_input_receiver_fn, exports_to_keep: EXPORTS_TO_KEEP, exported }
    }
}

impl Exporter for LatestExporter {
    fn name(&self) -> &str {
        &self.name
    }

    fn export(
        &mut self,
        estimator: &Estimator,
        export_path: &str,
        checkpoint_path: &str,
        _evaluation: &Evaluation,
        _is_the_final_export: bool,
    ) -> Result<Option<String>> {
        if self.exported.as_deref() == Some(checkpoint_path) {
            return Ok(None);
        }
        let directory = timestamped(export_path)?;
        let made = estimator.export_checkpoint(&directory, &self.serving_input_receiver_fn, checkpoint_path)?;
        self.exported = Some(checkpoint_path.to_owned());
        keep_newest(export_path, self.exports_to_keep);
        Ok(Some(made))
    }
}

/// Exports the model at the end of training.
///
/// ```
/// use ferroflow::estimator::{FinalExporter, build_raw_serving_input_receiver_fn};
///
/// let exporter = FinalExporter::new("final", build_raw_serving_input_receiver_fn(&[]));
/// ```
pub struct FinalExporter(LatestExporter);

impl FinalExporter {
    /// Returns an exporter.
    ///
    /// ```
    /// use ferroflow::estimator::{Exporter, FinalExporter, build_raw_serving_input_receiver_fn};
    ///
    /// assert_eq!(FinalExporter::new("final", build_raw_serving_input_receiver_fn(&[])).name(), "final");
    /// ```
    pub fn new(name: &str, serving_input_receiver_fn: ServingInputFn) -> FinalExporter {
        FinalExporter(LatestExporter { exports_to_keep: 0, ..LatestExporter::new(name, serving_input_receiver_fn) })
    }
}

impl Exporter for FinalExporter {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn export(
        &mut self,
        estimator: &Estimator,
        export_path: &str,
        checkpoint_path: &str,
        evaluation: &Evaluation,
        is_the_final_export: bool,
    ) -> Result<Option<String>> {
        match is_the_final_export {
            true => self.0.export(estimator, export_path, checkpoint_path, evaluation, true),
            false => Ok(None),
        }
    }
}

/// Decides, by the scalar metrics, whether a model is better than the best one before it.
type IsBetter = Box<dyn Fn(&BTreeMap<String, f64>, &BTreeMap<String, f64>) -> bool + Send>;

/// Exports a model if it is better than all before it. The best one's metrics are stored beside the models, so that they are
/// known after a restart.
///
/// ```
/// use ferroflow::estimator::{BestExporter, build_raw_serving_input_receiver_fn};
///
/// let exporter = BestExporter::new("best", build_raw_serving_input_receiver_fn(&[]))
///     .compare(|best, current| current.get("auc") > best.get("auc"));
/// ```
pub struct BestExporter {
    name: String,
    serving_input_receiver_fn: ServingInputFn,
    /// The number of models to keep; 0 means all.
    pub exports_to_keep: usize,
    is_better: IsBetter,
}

impl BestExporter {
    /// Returns an exporter of models with a lower loss than all before.
    ///
    /// ```
    /// use ferroflow::estimator::{BestExporter, build_raw_serving_input_receiver_fn};
    ///
    /// let exporter = BestExporter::new("best", build_raw_serving_input_receiver_fn(&[]));
    /// assert_eq!(exporter.exports_to_keep, 5);
    /// ```
    pub fn new(name: &str, serving_input_receiver_fn: ServingInputFn) -> BestExporter {
        let is_better: IsBetter = Box::new(|best, current| match (best.get("loss"), current.get("loss")) {
            (Some(best), Some(current)) => current < best,
            _ => false,
        });
        BestExporter { name: name.to_owned(), serving_input_receiver_fn, exports_to_keep: EXPORTS_TO_KEEP, is_better }
    }

    /// Sets the comparison: it decides, given the best and the current metrics, whether the current model is better.
    ///
    /// ```
    /// use ferroflow::estimator::{BestExporter, build_raw_serving_input_receiver_fn};
    ///
    /// let exporter = BestExporter::new("best", build_raw_serving_input_receiver_fn(&[]))
    ///     .compare(|best, current| current["accuracy"] > best["accuracy"]);
    /// ```
    pub fn compare(
        mut self,
        is_better: impl Fn(&BTreeMap<String, f64>, &BTreeMap<String, f64>) -> bool + Send + 'static,
    ) -> BestExporter {
        self.is_better = Box::new(is_better);
        self
    }
}

impl Exporter for BestExporter {
    fn name(&self) -> &str {
        &self.name
    }

    fn export(
        &mut self,
        estimator: &Estimator,
        export_path: &str,
        checkpoint_path: &str,
        evaluation: &Evaluation,
        _is_the_final_export: bool,
    ) -> Result<Option<String>> {
        let files = FileSystems::all();
        let file = path::join(export_path, BEST_FILE);
        let best: Option<BTreeMap<String, f64>> = match files.read(&file) {
            Ok(text) => {
                Some(serde_json::from_slice(&text).map_err(|error| Status::data_loss(format!("{file}: {error}")))?)
            }
            Err(status) if status.code() == Code::NotFound => None,
            Err(status) => return Err(status),
        };
        // NaN can't be written, and is never better.
        let current: BTreeMap<String, f64> = evaluation
            .numbers()
            .filter(|(_, number)| number.is_finite())
            .map(|(name, n)| (name.to_owned(), n))
            .collect();
        if best.is_some_and(|best| !(self.is_better)(&best, &current)) {
            return Ok(None);
        }
        let directory = timestamped(export_path)?;
        let made = estimator.export_checkpoint(&directory, &self.serving_input_receiver_fn, checkpoint_path)?;
        let text = serde_json::to_vec_pretty(&current)
            .map_err(|error| Status::internal(format!("metrics that can't be written: {error}")))?;
        files.write_atomically(&file, &text)?;
        keep_newest(export_path, self.exports_to_keep);
        Ok(Some(made))
    }
}

/// Deletes all except the newest models. If one can't be deleted, a line is logged.
fn keep_newest(export_path: &str, count: usize) {
    let files = FileSystems::all();
    let times = exported(export_path).unwrap_or_default();
    let old = if count == 0 { 0 } else { times.len().saturating_sub(count) };
    for time in &times[..old] {
        let directory = path::join(export_path, &time.to_string());
        if let Err(status) = files.delete_recursively(&directory) {
            tracing::warn!("the old model {directory} stays: {status}");
        }
    }
}
