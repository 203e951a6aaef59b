//! Evaluations: [`Estimator::evaluate`].

use super::train::{StartInput, empty_input};
use super::{Estimator, Evaluation, Input, Mode};
use crate::metrics;
use crate::train::{FinalOpsHook, MonitoredSession, RunArgs, SessionRunHook};
use crate::variable::get_global_step;
use graph::Graph;
use prost::Message;
use proto::Summary;
use std::collections::BTreeMap;
use tensor::{Code, DType, Result, Status, Tensor};

/// The name of the loss among the metrics.
const LOSS: &str = "loss";

/// The name of the global step among the metrics.
const GLOBAL_STEP: &str = "global_step";

/// Options of an evaluation.
///
/// ```
/// use ferroflow::estimator::EvalOptions;
///
/// let on_training_rows = EvalOptions { steps: Some(10), name: Some("train".to_owned()), ..EvalOptions::default() };
/// ```
#[derive(Default)]
pub struct EvalOptions {
    /// The number of batches; by default all.
    pub steps: Option<u64>,
    /// The checkpoint; by default the newest.
    pub checkpoint_path: Option<String>,
    /// The name of this evaluation, which distinguishes it from others: its events are in `eval_NAME`.
    pub name: Option<String>,
    /// The hooks of the evaluation.
    pub hooks: Vec<Box<dyn SessionRunHook>>,
}

impl EvalOptions {
    /// Returns the subdirectory of the model's directory for the events.
    pub(super) fn directory(&self) -> String {
        match self.name.as_deref() {
            None | Some("") => "eval".to_owned(),
            Some(name) => format!("eval_{name}"),
        }
    }
}

impl Estimator {
    /// Evaluates a checkpoint, and writes the metrics as events to `eval`. An untrained model is evaluated with its initial
    /// values. A metric whose value is a serialized summary, such as images, is written as that summary.
    ///
    /// ```no_run
    /// use ferroflow::estimator::{Estimator, EvalOptions, Input};
    ///
    /// fn evaluate(model: &Estimator, input: fn(&ferroflow::Graph) -> Input) -> ferroflow::Result<()> {
    ///     let measured = model.evaluate(input, EvalOptions::default())?;
    ///     println!("step {}: accuracy {}", measured.global_step()?, measured.get("accuracy")?);
    ///     Ok(())
    /// }
    /// ```
    pub fn evaluate(&self, input_fn: impl Fn(&Graph) -> Input, options: EvalOptions) -> Result<Evaluation> {
        self.evaluate_by(&input_fn, options)
    }

    pub(super) fn evaluate_by(&self, input_fn: &dyn Fn(&Graph) -> Input, options: EvalOptions) -> Result<Evaluation> {
        let directory = options.directory();
        let checkpoint = match options.checkpoint_path {
            Some(checkpoint) => Some(checkpoint),
            None => self.latest_checkpoint()?,
        };
        let graph = self.new_graph();
        let model = self.build(&graph, Mode::Eval, input_fn)?;
        let spec = model.spec;
        let mut measured = spec.eval_metric_ops;
        if let Some((name, _)) = measured.iter().find(|(name, _)| name == LOSS || name == GLOBAL_STEP) {
            return Err(Status::invalid_argument(format!("no metric may be called '{name}': every evaluation has it")));
        }
        if let Some(loss) = &spec.loss {
            measured.push((LOSS.to_owned(), metrics::mean(loss).build()));
        }
        let global_step = get_global_step(&graph)?.ok_or_else(|| Status::internal("the graph has no global step"))?;
        // A hook's `end` may use the session for the last time.
        let last = measured.iter().fold(RunArgs::new(), |args, (_, metric)| args.fetch(&metric.value));
        let (last_values, values) = FinalOpsHook::new(last.fetch(global_step.value()));
        let mut builder = MonitoredSession::training(&graph)
            .config(self.config.session_config.clone().unwrap_or_default())
            .scaffold(spec.scaffold);
        if let Some(checkpoint) = &checkpoint {
            builder = builder.checkpoint(checkpoint);
        }
        builder = model.input.into_iter().fold(builder, |builder, input| builder.hook(StartInput(input)));
        builder =
            options.hooks.into_iter().chain(spec.evaluation_hooks).fold(builder, |builder, hook| builder.hook(hook));
        let mut session = builder.hook(last_values).build()?;
        let update = measured.iter().fold(RunArgs::new(), |args, (_, metric)| args.target(&metric.update.op));
        let mut steps = 0;
        while options.steps.is_none_or(|wanted| steps < wanted) && !session.should_stop() {
            match session.run(&update) {
                Ok(_) => steps += 1,
                Err(status) if status.code() == Code::OutOfRange && steps == 0 => {
                    return Err(empty_input("evaluation", &status));
                }
                Err(status) if status.code() == Code::OutOfRange => break,
                Err(status) => return Err(status),
            }
        }
        session.close()?;
        let values = values.lock().take().ok_or_else(|| Status::internal("an evaluation without values"))?;
        let names = measured.into_iter().map(|(name, _)| name).chain([GLOBAL_STEP.to_owned()]);
        let evaluation = Evaluation { values: names.zip(values).collect::<BTreeMap<_, _>>() };
        self.tell(&directory, checkpoint.as_deref(), &evaluation)?;
        Ok(evaluation)
    }

    /// Logs the metrics, and writes them as events.
    fn tell(&self, directory: &str, checkpoint: Option<&str>, evaluation: &Evaluation) -> Result<()> {
        let step = evaluation.global_step()?;
        tracing::info!("{directory} of {}: {evaluation}", checkpoint.unwrap_or("first values"));
        let writer = self.writer(directory)?;
        for (name, number) in evaluation.numbers().filter(|(name, _)| *name != GLOBAL_STEP) {
            writer.add_scalar(name, number as f32, step)?;
        }
        for (name, value) in &evaluation.values {
            if let Some(summary) = summary_of(name, value)? {
                writer.add_summary_proto(summary, step)?;
            }
        }
        writer.flush()
    }
}

/// Returns the summary in a metric whose value is a serialized summary, such as images; its tags are replaced by the metric's
/// name.
fn summary_of(name: &str, value: &Tensor) -> Result<Option<Summary>> {
    if value.dtype() != DType::String || value.num_elements() != 1 {
        return Ok(None);
    }
    let bytes = value.strings()?.first().cloned().unwrap_or_default();
    let Ok(mut summary) = Summary::decode(bytes) else {
        tracing::warn!("the metric '{name}' is a string, and no serialized summary: it is not among the events");
        return Ok(None);
    };
    for (index, part) in summary.value.iter_mut().enumerate() {
        part.tag = format!("{name}/{index}");
    }
    Ok(Some(summary))
}
