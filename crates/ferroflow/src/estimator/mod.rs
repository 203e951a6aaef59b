//! Estimators, as `tf.estimator`: they train, evaluate and export a model, and predict with it, in a program that is the same on
//! one machine and on a cluster.
//!
//! An [`Estimator`] has a model function, which builds the model in a given graph, and gets its data from input functions, which
//! build a [`Dataset`](crate::data::Dataset). [`train_and_evaluate`] does the rest: if `TF_CONFIG` describes a cluster, each
//! process is one of its tasks.
//!
//! ```
//! use ferroflow::data::Dataset;
//! use ferroflow::estimator::{Estimator, EvalSpec, Features, Head, Input, Mode, RunConfig, TrainSpec, train_and_evaluate};
//! use ferroflow::layers::{Apply, Dense};
//! use ferroflow::prelude::*;
//! use ferroflow::train::AdagradOptimizer;
//! use ferroflow::variable::get_global_step;
//! # let directory = tempfile::tempdir().unwrap();
//! # let model_dir = directory.path().to_str().unwrap();
//!
//! fn input(g: &Graph) -> Input {
//!     let points = Dataset::from_tensor_slices(g, ([[0f32, 1.0], [1.0, 0.0], [2.0, 1.0], [1.0, 3.0]], [0i64, 1, 1, 0]));
//!     Input::new(&points.repeat(20).batch(4, false), &["point"]).label()
//! }
//!
//! let model = Estimator::new(
//!     |features, labels, mode, head: &Head| {
//!         let logits = features.dense("point")?.apply(&Dense::new(1));
//!         head.create_estimator_spec(features, mode, &logits, labels, |loss| {
//!             AdagradOptimizer::new(0.5).minimize(loss, get_global_step(loss.graph())?.as_ref())
//!         })
//!     },
//!     Head::binary(),
//!     RunConfig::from_env(model_dir)?,
//! )?;
//! let measured = train_and_evaluate(&model, TrainSpec::new(input, Some(20)), EvalSpec::new(input))?;
//! println!("accuracy {}", measured.unwrap().get("accuracy")?);
//! # Ok::<(), Status>(())
//! ```

mod canned;
mod early_stopping;
#[allow(clippy::module_inception, reason = "the module is named after what it is about, as its file is")]
mod estimator;
mod evaluate;
mod evaluation;
mod export;
mod exporter;
mod features;
mod head;
mod input;
mod predict;
mod run_config;
mod spec;
mod tasks;
mod train;
mod train_and_evaluate;
mod warm_start;

pub use crate::feature_column::Features;
pub use canned::*;
pub use early_stopping::{
    EarlyStoppingHook, stop_if_higher_hook, stop_if_lower_hook, stop_if_no_decrease_hook, stop_if_no_increase_hook,
};
pub use estimator::Estimator;
pub use evaluate::EvalOptions;
pub use evaluation::Evaluation;
pub use export::{
    ServingInputFn, ServingInputReceiver, build_parsing_serving_input_receiver_fn, build_raw_serving_input_receiver_fn,
};
pub use exporter::{BestExporter, Exporter, FinalExporter, LatestExporter};
pub use head::Head;
pub use input::{Input, InputFn};
pub use predict::{PredictOptions, Predictions};
pub use run_config::{RunConfig, Strategy};
pub use spec::{EstimatorSpec, ExportOutput, Mode};
pub use train::TrainOptions;
pub use train_and_evaluate::{EvalSpec, TrainSpec, train_and_evaluate};
pub use warm_start::WarmStartSettings;
