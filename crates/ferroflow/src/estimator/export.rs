//! Exporting a model for serving: [`Estimator::export_saved_model`].

use super::spec::ExportOutput;
use super::{Estimator, Features, Mode};
use crate::data::FixedLenFeature;
use crate::saved_model::{Export, SavedModelBuilder, Signature, signature_names, tags};
use crate::session::Session;
use crate::train::{Saver, default_local_init};
use crate::variable::create_global_step;
use graph::{Graph, Output};
use ops::array::placeholder;
use ops::parsing::parse_example;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use storage::file_system::{FileSystem, FileSystems, path};
use tensor::{DType, PartialShape, Result, Status};

/// The input of an exported model: the tensors to feed, and the features computed from them.
///
/// ```
/// use ferroflow::estimator::{Features, ServingInputReceiver};
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 2));
/// let receiver = ServingInputReceiver { features: Features::new().with("x", &x), receiver_tensors: vec![("x".to_owned(), x)] };
/// ```
#[derive(Clone, Debug)]
pub struct ServingInputReceiver {
    /// The features.
    pub features: Features,
    /// The tensors to feed, by their names in the signature.
    pub receiver_tensors: Vec<(String, Output)>,
}

/// A function that builds the input of an exported model in a graph.
///
/// ```
/// use ferroflow::estimator::{ServingInputFn, build_raw_serving_input_receiver_fn};
/// use ferroflow::{DType, PartialShape};
///
/// let serving: ServingInputFn = build_raw_serving_input_receiver_fn(&[("x", DType::Float, PartialShape::from([-1, 2]))]);
/// ```
pub type ServingInputFn = Arc<dyn Fn(&Graph) -> ServingInputReceiver + Send + Sync>;

/// Returns an input for exported models that parses serialized `tf.train.Example`s, named `examples`.
///
/// ```
/// use ferroflow::data::FixedLenFeature;
/// use ferroflow::estimator::build_parsing_serving_input_receiver_fn;
/// use ferroflow::{DType, Graph, Shape};
///
/// let x = FixedLenFeature { key: "x".to_owned(), dtype: DType::Float, shape: Shape::vector(2), default: None };
/// let serving = build_parsing_serving_input_receiver_fn(&[x]);
/// let receiver = serving(&Graph::new());
/// assert_eq!(receiver.receiver_tensors[0].0, "examples");
/// ```
pub fn build_parsing_serving_input_receiver_fn(features: &[FixedLenFeature]) -> ServingInputFn {
    let wanted = features.to_vec();
    Arc::new(move |graph| {
        let examples = graph.op("Placeholder").name("input_example_tensor");
        let examples = examples.attr("dtype", DType::String).attr("shape", PartialShape::from([-1])).output();
        let parsed = parse_example(&examples, &wanted);
        let features =
            wanted.iter().zip(&parsed).fold(Features::new(), |features, (one, tensor)| features.with(&one.key, tensor));
        ServingInputReceiver { features, receiver_tensors: vec![("examples".to_owned(), examples)] }
    })
}

/// Returns an input for exported models that takes the features directly.
///
/// ```
/// use ferroflow::estimator::build_raw_serving_input_receiver_fn;
/// use ferroflow::{DType, Graph, PartialShape};
///
/// let receiver = build_raw_serving_input_receiver_fn(&[("x", DType::Float, PartialShape::from([-1, 2]))])(&Graph::new());
/// assert_eq!(receiver.receiver_tensors[0].0, "x");
/// ```
pub fn build_raw_serving_input_receiver_fn(features: &[(&str, DType, PartialShape)]) -> ServingInputFn {
    let wanted: Vec<(String, DType, PartialShape)> =
        features.iter().map(|(name, dtype, shape)| ((*name).to_owned(), *dtype, shape.clone())).collect();
    Arc::new(move |graph| {
        let fed =
            |(name, dtype, shape): &(String, DType, PartialShape)| (name.clone(), placeholder(graph, *dtype, shape));
        let receiver_tensors: Vec<(String, Output)> = wanted.iter().map(fed).collect();
        let features =
            receiver_tensors.iter().fold(Features::new(), |features, (name, tensor)| features.with(name, tensor));
        ServingInputReceiver { features, receiver_tensors }
    })
}

impl Estimator {
    /// Exports the newest checkpoint as a SavedModel, to a subdirectory of `base` that is named after the time; returns its path.
    /// The directory appears only when it is complete, so a server of models in `base` never sees a partial one.
    ///
    /// ```no_run
    /// use ferroflow::estimator::{Estimator, build_raw_serving_input_receiver_fn};
    /// use ferroflow::{DType, PartialShape};
    ///
    /// fn export(model: &Estimator) -> ferroflow::Result<String> {
    ///     let serving = build_raw_serving_input_receiver_fn(&[("x", DType::Float, PartialShape::from([-1, 2]))]);
    ///     model.export_saved_model("/srv/models/flowers", &serving)
    /// }
    /// ```
    pub fn export_saved_model(&self, base: &str, serving_input_receiver_fn: &ServingInputFn) -> Result<String> {
        let checkpoint = self.latest_checkpoint()?.ok_or_else(|| self.untrained())?;
        let directory = timestamped(base)?;
        self.export_checkpoint(&directory, serving_input_receiver_fn, &checkpoint)
    }

    /// Exports a checkpoint to a directory that doesn't exist yet.
    pub(super) fn export_checkpoint(
        &self,
        directory: &str,
        serving_input_receiver_fn: &ServingInputFn,
        checkpoint: &str,
    ) -> Result<String> {
        // This reports problems before anything is built.
        let builder = SavedModelBuilder::new(directory)?;
        let graph = self.new_graph();
        create_global_step(&graph);
        let ServingInputReceiver { features, receiver_tensors } = serving_input_receiver_fn(&graph);
        let spec = self.call(&graph, &features, None, Mode::Predict)?;
        let outputs = match spec.export_outputs.is_empty() {
            true => {
                vec![(signature_names::SERVING_DEFAULT.to_owned(), ExportOutput::Predict(spec.predictions.clone()))]
            }
            false => spec.export_outputs,
        };
        let mut export = Export::new(&[tags::SERVING]);
        for (name, signature) in signatures(&receiver_tensors, &outputs)? {
            export = export.signature(&name, signature);
        }
        // The operation that initializes the exported model: the model function's own, or that of its tables.
        let local_init = match spec.scaffold.local_init_op {
            Some(op) => {
                export = export.main_op(&op);
                op
            }
            None => default_local_init(&graph)?,
        };
        let saver = match spec.scaffold.saver {
            Some(saver) => saver,
            None => Arc::new(Saver::new(&graph)?),
        };
        let session = Session::new(&graph)?;
        saver.restore(&session, checkpoint)?;
        session.run_ops(&[&local_init])?;
        builder.add_meta_graph_and_variables(&session, export)?.save()
    }
}

/// Returns a subdirectory of `base` named after the time in seconds, or a little later: the newest model has the largest number.
pub(super) fn timestamped(base: &str) -> Result<String> {
    let base = base.trim_end_matches('/');
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let newest = exported(base)?.last().copied();
    let seconds = newest.map_or(now, |newest| now.max(newest.saturating_add(1)));
    Ok(path::join(base, &seconds.to_string()))
}

/// Returns the times of the models below `base`, oldest first.
pub(super) fn exported(base: &str) -> Result<Vec<u64>> {
    let files = FileSystems::all();
    if !files.exists(base)? {
        return Ok(Vec::new());
    }
    let mut times: Vec<u64> = files.list(base)?.iter().flat_map(|name| name.parse()).collect();
    times.sort_unstable();
    Ok(times)
}

/// The input's name in classification and regression signatures.
const INPUTS: &str = "inputs";

/// Builds the signatures. Those that TensorFlow Serving calls with examples need an input that parses examples; otherwise they
/// are left out.
fn signatures(receivers: &[(String, Output)], outputs: &[(String, ExportOutput)]) -> Result<Vec<(String, Signature)>> {
    let examples = match receivers {
        [(_, one)] if one.dtype() == DType::String => Some(one),
        _ => None,
    };
    let mut signatures = Vec::new();
    let mut left_out = Vec::new();
    for (name, output) in outputs {
        let signature = match output {
            ExportOutput::Predict(tensors) => {
                let signature =
                    receivers.iter().fold(Signature::predict(), |signature, (name, fed)| signature.input(name, fed));
                tensors.iter().fold(signature, |signature, (name, tensor)| signature.output(name, tensor))
            }
            ExportOutput::Classification { scores, classes } => {
                let Some(examples) = examples else {
                    left_out.push(name.as_str());
                    continue;
                };
                if scores.is_none() && classes.is_none() {
                    return Err(Status::invalid_argument(format!(
                        "the signature '{name}' is a classification with neither scores nor classes"
                    )));
                }
                let named = [("classes", classes), ("scores", scores)];
                let named = named.into_iter().filter_map(|(name, tensor)| Some((name, tensor.as_ref()?)));
                named.fold(Signature::classify().input(INPUTS, examples), |signature, (name, tensor)| {
                    signature.output(name, tensor)
                })
            }
            ExportOutput::Regression { value } => {
                let Some(examples) = examples else {
                    left_out.push(name.as_str());
                    continue;
                };
                Signature::regress().input(INPUTS, examples).output("outputs", value)
            }
        };
        signatures.push((name.clone(), signature));
    }
    if !left_out.is_empty() {
        tracing::info!("left out, since they take serialized examples and this input doesn't: {}", left_out.join(", "));
    }
    if signatures.is_empty() {
        return Err(Status::invalid_argument(format!(
            "no signature can be exported: {} take serialized examples, and the input is another",
            left_out.join(", ")
        )));
    }
    Ok(signatures)
}
