//! [`EstimatorSpec`]: the result of a model function: the parts of the graph that training, evaluation and prediction run.

use crate::metrics::Metric;
use crate::train::{Scaffold, SessionRunHook};
use graph::{Graph, Operation, Output};
use tensor::{Result, Status};

/// The purpose for which a model is built.
///
/// ```
/// use ferroflow::estimator::Mode;
///
/// fn drop_rate(mode: Mode) -> f64 {
///     if mode == Mode::Train { 0.5 } else { 0.0 }
/// }
/// # assert_eq!(drop_rate(Mode::Eval), 0.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Training.
    Train,
    /// Evaluation: there are labels, and nothing changes.
    Eval,
    /// Prediction or export: there are no labels.
    Predict,
}

/// The result of an exported model's signature.
///
/// ```
/// use ferroflow::estimator::ExportOutput;
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 1));
/// let output = ExportOutput::Regression { value: &x * 2.0 };
/// ```
#[derive(Clone, Debug)]
pub enum ExportOutput {
    /// Named tensors.
    Predict(Vec<(String, Output)>),
    /// A score for every class in every row, and the names of the classes.
    Classification {
        /// The scores, floats.
        scores: Option<Output>,
        /// The classes, strings.
        classes: Option<Output>,
    },
    /// A number for every row.
    Regression {
        /// The numbers, floats.
        value: Output,
    },
}

/// The result of a model function. The mode determines which parts are needed: a loss and the training operation for training, a
/// loss for evaluation, predictions for prediction.
///
/// ```
/// use ferroflow::estimator::{EstimatorSpec, Mode};
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let y = g.placeholder::<f32>((None, 1)) * 2.0;
/// let spec = EstimatorSpec::new(Mode::Predict).prediction("y", &y);
/// assert_eq!(spec.predictions.len(), 1);
/// ```
pub struct EstimatorSpec {
    /// The mode for which the model was built.
    pub mode: Mode,
    /// The predictions, by name.
    pub predictions: Vec<(String, Output)>,
    /// The loss that training minimizes: a scalar.
    pub loss: Option<Output>,
    /// Runs one step of training, and increments the global step.
    pub train_op: Option<Operation>,
    /// The metrics of an evaluation, by name, besides the loss.
    pub eval_metric_ops: Vec<(String, Metric)>,
    /// The signatures of the exported model; by default one that returns the predictions.
    pub export_outputs: Vec<(String, ExportOutput)>,
    /// The hooks of training, on every worker.
    pub training_hooks: Vec<Box<dyn SessionRunHook>>,
    /// The hooks of training on the chief.
    pub training_chief_hooks: Vec<Box<dyn SessionRunHook>>,
    /// The hooks of evaluations.
    pub evaluation_hooks: Vec<Box<dyn SessionRunHook>>,
    /// The hooks of predictions.
    pub prediction_hooks: Vec<Box<dyn SessionRunHook>>,
    /// The scaffold, if parts of it aren't the defaults.
    pub scaffold: Scaffold,
}

impl EstimatorSpec {
    /// Returns an empty specification for a mode.
    ///
    /// ```
    /// use ferroflow::estimator::{EstimatorSpec, Mode};
    ///
    /// assert!(EstimatorSpec::new(Mode::Train).loss.is_none());
    /// ```
    pub fn new(mode: Mode) -> EstimatorSpec {
        EstimatorSpec {
            mode,
            predictions: Vec::new(),
            loss: None,
            train_op: None,
            eval_metric_ops: Vec::new(),
            export_outputs: Vec::new(),
            training_hooks: Vec::new(),
            training_chief_hooks: Vec::new(),
            evaluation_hooks: Vec::new(),
            prediction_hooks: Vec::new(),
            scaffold: Scaffold::new(),
        }
    }

    /// Adds a prediction.
    ///
    /// ```
    /// use ferroflow::estimator::{EstimatorSpec, Mode};
    ///
    /// let g = ferroflow::Graph::new();
    /// let spec = EstimatorSpec::new(Mode::Predict).prediction("one", &g.constant([1f32]));
    /// assert_eq!(spec.predictions[0].0, "one");
    /// ```
    pub fn prediction(mut self, name: &str, value: &Output) -> EstimatorSpec {
        self.predictions.push((name.to_owned(), value.clone()));
        self
    }

    /// Sets the loss.
    ///
    /// ```
    /// use ferroflow::estimator::{EstimatorSpec, Mode};
    ///
    /// let g = ferroflow::Graph::new();
    /// assert!(EstimatorSpec::new(Mode::Eval).loss(&g.constant(0.5f32)).loss.is_some());
    /// ```
    pub fn loss(mut self, loss: &Output) -> EstimatorSpec {
        self.loss = Some(loss.clone());
        self
    }

    /// Sets the operation that does one step of training.
    ///
    /// ```
    /// use ferroflow::estimator::{EstimatorSpec, Mode};
    /// use ferroflow::{prelude::*, train::GradientDescentOptimizer, variable::create_global_step};
    ///
    /// let g = Graph::new();
    /// let step = create_global_step(&g);
    /// let loss = Variable::new(&g, "w", &g.constant(4f32)).value().square();
    /// let train = GradientDescentOptimizer::new(0.1).minimize(&loss, Some(&step))?;
    /// let spec = EstimatorSpec::new(Mode::Train).loss(&loss).train_op(&train);
    /// # Ok::<(), Status>(())
    /// ```
    pub fn train_op(mut self, train_op: &Operation) -> EstimatorSpec {
        self.train_op = Some(train_op.clone());
        self
    }

    /// Adds a metric for evaluations.
    ///
    /// ```
    /// use ferroflow::estimator::{EstimatorSpec, Mode};
    /// use ferroflow::metrics;
    ///
    /// let g = ferroflow::Graph::new();
    /// let size = metrics::mean(&g.constant([1f32, 2.0])).build();
    /// let spec = EstimatorSpec::new(Mode::Eval).eval_metric("size", size);
    /// ```
    pub fn eval_metric(mut self, name: &str, metric: Metric) -> EstimatorSpec {
        self.eval_metric_ops.push((name.to_owned(), metric));
        self
    }

    /// Adds a signature of the exported model.
    ///
    /// ```
    /// use ferroflow::estimator::{EstimatorSpec, ExportOutput, Mode};
    ///
    /// let g = ferroflow::Graph::new();
    /// let output = ExportOutput::Regression { value: g.constant([1f32]) };
    /// let spec = EstimatorSpec::new(Mode::Predict).export_output("regression", output);
    /// ```
    pub fn export_output(mut self, name: &str, output: ExportOutput) -> EstimatorSpec {
        self.export_outputs.push((name.to_owned(), output));
        self
    }

    /// Adds a hook for training on every worker.
    ///
    /// ```
    /// use ferroflow::estimator::{EstimatorSpec, Mode};
    /// use ferroflow::train::{Every, LoggingTensorHook};
    ///
    /// let g = ferroflow::Graph::new();
    /// let loss = g.constant(0.5f32);
    /// let spec = EstimatorSpec::new(Mode::Train).training_hook(LoggingTensorHook::new(&[("loss", &loss)], Every::Steps(10)));
    /// ```
    pub fn training_hook(mut self, hook: impl SessionRunHook + 'static) -> EstimatorSpec {
        self.training_hooks.push(Box::new(hook));
        self
    }

    /// Checks that all parts are there that the mode needs.
    pub(super) fn check(self, graph: &Graph, mode: Mode) -> Result<EstimatorSpec> {
        // The first mistake has the line of the model function; a missing part is often its consequence.
        graph.finish()?;
        let wrong = |what: String| Err(Status::invalid_argument(format!("the model function's result {what}")));
        if self.mode != mode {
            return wrong(format!("is for mode {:?}, and it was called for {mode:?}", self.mode));
        }
        let lacking = match mode {
            Mode::Train if self.loss.is_none() => Some("loss"),
            Mode::Train if self.train_op.is_none() => Some("train_op"),
            Mode::Eval if self.loss.is_none() => Some("loss"),
            Mode::Predict if self.predictions.is_empty() => Some("predictions"),
            _ => None,
        };
        if let Some(lacking) = lacking {
            return wrong(format!("has no {lacking}, which mode {mode:?} needs"));
        }
        let metrics = self.eval_metric_ops.iter().map(|(name, metric)| (name.as_str(), &metric.value));
        let outputs = self.predictions.iter().map(|(name, output)| (name.as_str(), output));
        let all = metrics.chain(outputs).chain(self.loss.iter().map(|loss| ("loss", loss)));
        for (name, output) in all {
            if !output.graph().same(graph) {
                return wrong(format!("has a '{name}' of another graph"));
            }
        }
        if let Some(loss) = &self.loss
            && loss.shape().num_elements().is_some_and(|count| count != 1)
        {
            return wrong(format!("has a loss of shape {}; it must be a single number", loss.shape()));
        }
        Ok(self)
    }
}
