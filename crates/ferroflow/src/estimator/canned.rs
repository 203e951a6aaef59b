//! The canned estimators: neural networks, linear models, both combined, and baselines, on feature columns.
//!
//! Variables, checkpoints, losses and optimizers are those of TensorFlow's `DNNClassifier` and its relatives, so that either can
//! resume the other's training.

use super::{Estimator, EstimatorSpec, Features, Head, Mode, RunConfig};
use crate::compose::{self, kept};
use crate::feature_column::{Combiner, FeatureColumn, LinearModelOptions, input_layer, linear_model};
use crate::initializers;
use crate::layers::{Activation, Apply, BatchNormalization, Dense, Dropout};
use crate::summary;
use crate::train::expression::group;
use crate::train::{AdagradOptimizer, FtrlOptimizer, GradientOptions, GradientReduction, Optimizer};
use crate::variable::{SaveSlice, Variable, get_global_step, global_variables, trainable_variables};
use crate::variable_scope::{VariableScope, get_variable};
use graph::{Graph, Operation, Output};
use std::sync::Arc;
use tensor::{DType, Result, Status};

/// Creates an optimizer for a graph.
///
/// ```
/// use ferroflow::estimator::OptimizerFn;
/// use ferroflow::train::AdamOptimizer;
/// use std::sync::Arc;
///
/// let adam: OptimizerFn = Arc::new(|| Box::new(AdamOptimizer::new(0.001)));
/// assert_eq!(adam().name(), "Adam");
/// ```
pub type OptimizerFn = Arc<dyn Fn() -> Box<dyn Optimizer> + Send + Sync>;

/// The network of a canned estimator: its columns, hidden layers, and their options.
///
/// ```
/// use ferroflow::estimator::Dnn;
/// use ferroflow::feature_column::numeric_column;
///
/// let network = Dnn { dropout: Some(0.1), ..Dnn::new(&[64, 32], &[numeric_column("age").into()]) };
/// ```
#[derive(Clone)]
pub struct Dnn {
    /// The units of each hidden layer.
    pub hidden_units: Vec<i64>,
    /// The inputs of the first layer: dense columns.
    pub feature_columns: Vec<FeatureColumn>,
    /// The activation of hidden layers.
    pub activation: Activation,
    /// The fraction of units that dropout drops in training.
    pub dropout: Option<f64>,
    /// Whether hidden layers have batch normalization.
    pub batch_norm: bool,
    /// Creates the optimizer; the default is Adagrad.
    pub optimizer: Option<OptimizerFn>,
}

impl Dnn {
    /// Returns a network with TensorFlow's defaults.
    ///
    /// ```
    /// use ferroflow::estimator::Dnn;
    /// use ferroflow::feature_column::numeric_column;
    ///
    /// assert!(!Dnn::new(&[10], &[numeric_column("age").into()]).batch_norm);
    /// ```
    pub fn new(hidden_units: &[i64], feature_columns: &[FeatureColumn]) -> Dnn {
        Dnn {
            hidden_units: hidden_units.to_vec(),
            feature_columns: feature_columns.to_vec(),
            activation: Activation::Relu,
            dropout: None,
            batch_norm: false,
            optimizer: None,
        }
    }

    fn logits(&self, features: &Features, mode: Mode, units: i64) -> Output {
        let mut net = input_in_scope(features, &self.feature_columns);
        for (number, &units) in self.hidden_units.iter().enumerate() {
            let name = format!("hiddenlayer_{number}");
            let layer = Dense::new(units).name(&name).activation(self.activation);
            net = net.apply(&layer.kernel_initializer(initializers::glorot_uniform(None)));
            if let Some(rate) = self.dropout
                && mode == Mode::Train
            {
                net = net.apply(&Dropout::new(rate).training(true));
            }
            if self.batch_norm {
                let layer = BatchNormalization::new().momentum(0.999).name(&format!("batchnorm_{number}"));
                net = net.apply(&layer.training(mode == Mode::Train));
            }
            tell_of_layer(&name, &net);
        }
        let layer = Dense::new(units).name("logits").kernel_initializer(initializers::glorot_uniform(None));
        let logits = net.apply(&layer);
        tell_of_layer("logits", &logits);
        logits
    }
}

/// The linear part of a canned estimator.
///
/// ```
/// use ferroflow::estimator::Linear;
/// use ferroflow::feature_column::numeric_column;
///
/// let model = Linear::new(&[numeric_column("age").into()]);
/// ```
#[derive(Clone)]
pub struct Linear {
    /// The columns.
    pub feature_columns: Vec<FeatureColumn>,
    /// How the weights of several values in a row are combined.
    pub sparse_combiner: Combiner,
    /// Creates the optimizer; the default is Ftrl.
    pub optimizer: Option<OptimizerFn>,
}

impl Linear {
    /// Returns a linear model with TensorFlow's defaults.
    ///
    /// ```
    /// use ferroflow::estimator::Linear;
    ///
    /// assert!(Linear::new(&[]).optimizer.is_none());
    /// ```
    pub fn new(feature_columns: &[FeatureColumn]) -> Linear {
        Linear { feature_columns: feature_columns.to_vec(), sparse_combiner: Combiner::Sum, optimizer: None }
    }

    fn logits(&self, features: &Features, units: i64) -> Output {
        let options = LinearModelOptions { units, sparse_combiner: self.sparse_combiner, trainable: true };
        linear_model(features, &self.feature_columns, options)
    }

    /// Returns the learning rate of the default optimizer, which decreases with the number of columns.
    fn rate(&self, at_most: f64) -> f64 {
        at_most.min(1.0 / (self.feature_columns.len().max(1) as f64).sqrt())
    }
}

/// The scopes that distinguish the variables of the two parts.
const DNN: &str = "dnn";
const LINEAR: &str = "linear";
const BASELINE: &str = "baseline";

/// The text between the names of a variable and its slot in checkpoints of a pure network: TensorFlow creates the slots inside
/// the model's partitioned scope.
const DNN_SLOTS: &str = "t_0/";

/// The same for a linear model.
const LINEAR_SLOTS: &str = "part_0/";

/// Builds the first layer with TensorFlow's names.
#[track_caller]
fn input_in_scope(features: &Features, columns: &[FeatureColumn]) -> Output {
    let Some(graph) = features.graph() else { return input_layer(features, columns) };
    VariableScope::new("input_from_feature_columns").run(graph, |_| input_layer(features, columns))
}

fn tell_of_layer(name: &str, layer: &Output) {
    let zeros = kept("summary", &[layer], || {
        let is_zero = compose::with_number("Equal", layer, 0.0)?;
        compose::reduce_all("Mean", &compose::cast(&is_zero, DType::Float)?)
    });
    summary::scalar(&format!("{name}/fraction_of_zero_values"), &zeros);
    summary::histogram(&format!("{name}/activation"), layer);
}

/// Adds the operation that minimizes a loss over the variables of a scope.
fn minimize(optimizer: &dyn Optimizer, loss: &Output, scope: &str, step: Option<&Variable>) -> Result<Operation> {
    optimizer.minimize_with(loss, step, &options_of(loss, scope)?)
}

/// Returns the options by which only the variables of a scope are changed.
fn options_of(loss: &Output, scope: &str) -> Result<GradientOptions> {
    let mut variables = trainable_variables(loss.graph())?;
    variables.retain(|variable| variable.name().starts_with(&format!("{scope}/")));
    Ok(GradientOptions { variables: Some(variables), ..GradientOptions::default() })
}

/// Names the slots in checkpoints as TensorFlow does.
fn name_slots(graph: &Graph, between: &str) -> Result<()> {
    let primaries: Vec<String> = trainable_variables(graph)?.iter().map(Variable::name).collect();
    for mut variable in global_variables(graph)? {
        let name = variable.name();
        let Some((primary, slot)) = name.rsplit_once('/') else { continue };
        let is_slot = primaries.iter().any(|other| other == primary) && !primaries.contains(&name);
        if let (true, Some(shape)) = (is_slot, variable.shape().to_shape()) {
            variable.set_save_slice(SaveSlice {
                full_name: format!("{primary}/{between}{slot}"),
                full_shape: shape.clone(),
                offset: vec![0; shape.rank()],
                shape,
            });
        }
    }
    Ok(())
}

/// Adds the operations by which each optimizer minimizes the loss with the variables of its scope. If workers train as equals, the
/// gradients of all parts are reduced together: a step changes all variables or none.
fn minimize_parts(parts: &[(Box<dyn Optimizer>, &str)], loss: &Output) -> Result<Vec<Operation>> {
    if !GradientReduction::is_set(loss.graph()) {
        return parts.iter().map(|(optimizer, scope)| minimize(&**optimizer, loss, scope, None)).collect();
    }
    let (mut gradients, mut counts) = (Vec::new(), Vec::new());
    for (optimizer, scope) in parts {
        let own = optimizer.compute_gradients(loss, &options_of(loss, scope)?)?;
        counts.push(own.len());
        gradients.extend(own);
    }
    let means = GradientReduction::of(loss.graph(), &gradients)?;
    let mut rest = &means[..];
    let apply = |((optimizer, _), count): (&(Box<dyn Optimizer>, &str), usize)| {
        let (own, others) = rest.split_at(count);
        rest = others;
        optimizer.apply_gradients(own, None, None)
    };
    parts.iter().zip(counts).map(apply).collect()
}

fn optimizer(given: &Option<OptimizerFn>, default: impl FnOnce() -> Box<dyn Optimizer>) -> Box<dyn Optimizer> {
    given.as_ref().map_or_else(default, |given| given())
}

/// The parts of a canned estimator: its logits, and how to train them.
trait Canned: Clone + Send + Sync + 'static {
    fn spec(&self, features: &Features, labels: Option<&Output>, mode: Mode, head: &Head) -> Result<EstimatorSpec>;

    #[track_caller]
    fn estimator(self, head: Head, config: RunConfig) -> Result<Estimator> {
        Estimator::new(
            |features, labels, mode, (model, head): &(Self, Head)| model.spec(features, labels, mode, head),
            (self, head),
            config,
        )
    }
}

fn graph_of(features: &Features) -> Result<&Graph> {
    features.graph().ok_or_else(|| Status::invalid_argument("the input has no features"))
}

impl Canned for Dnn {
    fn spec(&self, features: &Features, labels: Option<&Output>, mode: Mode, head: &Head) -> Result<EstimatorSpec> {
        let graph = graph_of(features)?;
        let units = head.logits_dimension();
        let logits = VariableScope::new(DNN).run(graph, |_| self.logits(features, mode, units));
        head.create_estimator_spec(features, mode, &logits, labels, |loss| {
            let optimizer = optimizer(&self.optimizer, || Box::new(AdagradOptimizer::new(0.05)));
            let train = minimize(&*optimizer, loss, DNN, get_global_step(graph)?.as_ref())?;
            name_slots(graph, DNN_SLOTS)?;
            Ok(train)
        })
    }
}

impl Canned for Linear {
    fn spec(&self, features: &Features, labels: Option<&Output>, mode: Mode, head: &Head) -> Result<EstimatorSpec> {
        let graph = graph_of(features)?;
        let logits = VariableScope::new(LINEAR).run(graph, |_| self.logits(features, head.logits_dimension()));
        head.create_estimator_spec(features, mode, &logits, labels, |loss| {
            let optimizer = optimizer(&self.optimizer, || Box::new(FtrlOptimizer::new(self.rate(0.2))));
            let train = minimize(&*optimizer, loss, LINEAR, get_global_step(graph)?.as_ref())?;
            name_slots(graph, LINEAR_SLOTS)?;
            Ok(train)
        })
    }
}

/// A linear model combined with a network.
#[derive(Clone)]
struct Combined {
    linear: Linear,
    dnn: Dnn,
}

impl Canned for Combined {
    fn spec(&self, features: &Features, labels: Option<&Output>, mode: Mode, head: &Head) -> Result<EstimatorSpec> {
        let graph = graph_of(features)?;
        let units = head.logits_dimension();
        let (has_dnn, has_linear) = (!self.dnn.feature_columns.is_empty(), !self.linear.feature_columns.is_empty());
        let dnn = || VariableScope::new(DNN).run(graph, |_| self.dnn.logits(features, mode, units));
        let linear = || {
            let logits = VariableScope::new(LINEAR).run(graph, |_| self.linear.logits(features, units));
            tell_of_layer(LINEAR, &logits);
            logits
        };
        let logits = match (has_dnn, has_linear) {
            (true, true) => {
                let (dnn, linear) = (dnn(), linear());
                kept("logits", &[&dnn, &linear], || compose::add(&dnn, &linear))
            }
            (true, false) => dnn(),
            (false, true) => linear(),
            (false, false) => {
                return Err(Status::invalid_argument("there are neither linear nor network feature columns"));
            }
        };
        head.create_estimator_spec(features, mode, &logits, labels, |loss| {
            let mut parts = Vec::new();
            if has_dnn {
                parts.push((optimizer(&self.dnn.optimizer, || Box::new(AdagradOptimizer::new(0.001))), DNN));
            }
            if has_linear {
                let default = || -> Box<dyn Optimizer> { Box::new(FtrlOptimizer::new(self.linear.rate(0.005))) };
                parts.push((optimizer(&self.linear.optimizer, default), LINEAR));
            }
            let trains = minimize_parts(&parts, loss)?;
            let both = group(graph, &trains, "group_deps")?;
            let step = get_global_step(graph)?.ok_or_else(|| Status::internal("the graph has no global step"))?;
            Ok(graph.control_dependencies(&[both], |graph| step.assign_add(&graph.constant(1i64))))
        })
    }
}

/// A bias only.
#[derive(Clone, Default)]
struct Baseline {
    optimizer: Option<OptimizerFn>,
}

impl Canned for Baseline {
    fn spec(&self, features: &Features, labels: Option<&Output>, mode: Mode, head: &Head) -> Result<EstimatorSpec> {
        let graph = graph_of(features)?;
        let units = head.logits_dimension();
        let first = features.iter().next().ok_or_else(|| Status::invalid_argument("the input has no features"))?.1;
        let rows = match first {
            crate::feature_column::Feature::Dense(tensor) => compose::size_of_axis(tensor, 0)?,
            crate::feature_column::Feature::Sparse(sparse) => {
                compose::cast(&compose::at(&sparse.dense_shape, 0)?, DType::Int32)?
            }
        };
        let logits = VariableScope::new(BASELINE).run(graph, |graph| {
            let bias = get_variable(graph, "bias", &[units]).initializer(initializers::zeros()).get();
            kept("baseline", &[bias.value()], || {
                let shape = compose::pack(&[&rows, &compose::int(graph, units as i32)])?;
                compose::mul(&bias.read(), &compose::fill(&shape, DType::Float, 1.0)?)
            })
        });
        head.create_estimator_spec(features, mode, &logits, labels, |loss| {
            let optimizer = optimizer(&self.optimizer, || Box::new(FtrlOptimizer::new(0.3)));
            minimize(&*optimizer, loss, BASELINE, get_global_step(graph)?.as_ref())
        })
    }
}

macro_rules! estimators {
    ($($(#[$doc:meta])* $name:ident: $head:expr, { $($field:ident: $ty:ty = $init:expr;)* }, ($($arg:ident: $arg_ty:ty),*) => $model:expr, $example:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// ```
        #[doc = concat!("use ferroflow::estimator::{", stringify!($name), ", RunConfig};")]
        /// use ferroflow::feature_column::numeric_column;
        ///
        #[doc = concat!("let model = ", $example, ".build(RunConfig::new(\"/tmp/income\"))?;")]
        /// assert_eq!(model.model_dir(), "/tmp/income");
        /// # Ok::<(), ferroflow::Status>(())
        /// ```
        #[derive(Clone)]
        pub struct $name {
            /// The part after the logits: the classes or numbers, the loss, weights of rows, names of labels.
            pub head: Head,
            $(
                /// This part of the model.
                pub $field: $ty,
            )*
        }

        impl $name {
            /// Returns the model with TensorFlow's defaults.
            ///
            /// ```
            #[doc = concat!("use ferroflow::estimator::", stringify!($name), ";")]
            /// use ferroflow::feature_column::numeric_column;
            ///
            #[doc = concat!("let mut model = ", $example, ";")]
            /// model.head = model.head.weight_column("sample_weight");
            /// ```
            #[allow(clippy::new_without_default, reason = "some take arguments")]
            pub fn new($($arg: $arg_ty),*) -> $name {
                $name { head: $head, $($field: $init),* }
            }

            /// Returns the estimator.
            ///
            /// ```
            #[doc = concat!("use ferroflow::estimator::{", stringify!($name), ", RunConfig};")]
            /// use ferroflow::feature_column::numeric_column;
            ///
            #[doc = concat!("assert!(", $example, ".build(RunConfig::new(\"\")).is_err());")]
            /// ```
            #[track_caller]
            pub fn build(self, config: RunConfig) -> Result<Estimator> {
                let model: fn($name) -> _ = $model;
                let head = self.head.clone();
                model(self).estimator(head, config)
            }
        }
    )*};
}

estimators! {
    /// A network for binary classification, or for more classes with another head.
    DNNClassifier: Head::binary(), { dnn: Dnn = Dnn::new(hidden_units, feature_columns); },
        (hidden_units: &[i64], feature_columns: &[FeatureColumn]) => |model| model.dnn,
        "DNNClassifier::new(&[8], &[numeric_column(\"age\").into()])";
    /// A network for regression.
    DNNRegressor: Head::regression(1), { dnn: Dnn = Dnn::new(hidden_units, feature_columns); },
        (hidden_units: &[i64], feature_columns: &[FeatureColumn]) => |model| model.dnn,
        "DNNRegressor::new(&[8], &[numeric_column(\"age\").into()])";
    /// A linear model for binary classification, or for more classes with another head.
    LinearClassifier: Head::binary(), { linear: Linear = Linear::new(feature_columns); },
        (feature_columns: &[FeatureColumn]) => |model| model.linear,
        "LinearClassifier::new(&[numeric_column(\"age\").into()])";
    /// A linear model for regression.
    LinearRegressor: Head::regression(1), { linear: Linear = Linear::new(feature_columns); },
        (feature_columns: &[FeatureColumn]) => |model| model.linear,
        "LinearRegressor::new(&[numeric_column(\"age\").into()])";
    /// A linear model combined with a network, wide and deep, for binary classification, or for more classes with another head.
    DNNLinearCombinedClassifier: Head::binary(),
        { linear: Linear = Linear::new(linear_feature_columns); dnn: Dnn = Dnn::new(dnn_hidden_units, dnn_feature_columns); },
        (linear_feature_columns: &[FeatureColumn], dnn_feature_columns: &[FeatureColumn], dnn_hidden_units: &[i64]) =>
        |model| Combined { linear: model.linear, dnn: model.dnn },
        "DNNLinearCombinedClassifier::new(&[], &[numeric_column(\"age\").into()], &[8])";
    /// A linear model combined with a network for regression.
    DNNLinearCombinedRegressor: Head::regression(1),
        { linear: Linear = Linear::new(linear_feature_columns); dnn: Dnn = Dnn::new(dnn_hidden_units, dnn_feature_columns); },
        (linear_feature_columns: &[FeatureColumn], dnn_feature_columns: &[FeatureColumn], dnn_hidden_units: &[i64]) =>
        |model| Combined { linear: model.linear, dnn: model.dnn },
        "DNNLinearCombinedRegressor::new(&[], &[numeric_column(\"age\").into()], &[8])";
    /// Predicts the frequency of each class, whatever the features: the baseline for classifiers.
    BaselineClassifier: Head::binary(), { optimizer: Option<OptimizerFn> = None; },
        () => |model| Baseline { optimizer: model.optimizer },
        "BaselineClassifier::new()";
    /// Predicts the mean, whatever the features: the baseline for regressors.
    BaselineRegressor: Head::regression(1), { optimizer: Option<OptimizerFn> = None; },
        () => |model| Baseline { optimizer: model.optimizer },
        "BaselineRegressor::new()";
}
