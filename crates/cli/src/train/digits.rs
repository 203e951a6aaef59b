//! Single digits of MNIST: a network with one hidden layer, or convolutions.

use super::flags::{Flags, ModelKind};
use super::recipe::{Batches, Part, Recipe, Training};
use crate::Failure;
use ferroflow::data::Dataset;
use ferroflow::data::mnist::{self, IMAGE_PIXELS, IMAGE_SIZE, Mnist, NUM_CLASSES};
use ferroflow::estimator::{
    Estimator, EstimatorSpec, ExportOutput, Features, Input, InputFn, Mode, RunConfig, ServingInputFn,
    build_raw_serving_input_receiver_fn,
};
use ferroflow::metrics::{Metric, mean};
use ferroflow::train::{AdamOptimizer, Scaffold};
use ferroflow::variable::collections;
use ferroflow::{DType, Graph, Output, PartialShape, Result, Shape, Status, Tensor, Variable, initializers, summary};
use ops::array::{self, SliceIndex};
use ops::{math, nn};
use std::sync::Arc;

/// The number of digits that are evaluated in one step.
const EVALUATED: i64 = 500;

/// The most misclassified digits that are shown.
const SHOWN: i64 = 10;

/// Digits, and a model that classifies them.
pub struct DigitsRecipe {
    digits: Mnist,
    batch_size: usize,
}

impl DigitsRecipe {
    /// Reads the digits.
    pub fn read(flags: &Flags) -> Result<DigitsRecipe, Failure> {
        Ok(DigitsRecipe { digits: read_digits(flags)?, batch_size: flags.batch_size as usize })
    }
}

/// Reads the digits in a directory, or the bundled ones.
pub fn read_digits(flags: &Flags) -> Result<Mnist> {
    match &flags.data_dir {
        Some(directory) => Mnist::from_dir(directory),
        None => Mnist::builtin(),
    }
}

impl Recipe for DigitsRecipe {
    fn data(&self) -> (&'static str, usize, usize) {
        ("digits", self.digits.train.len(), self.digits.test.len())
    }

    fn estimator(&self, part: &Part, config: RunConfig) -> Result<Estimator> {
        Estimator::new(model, part.clone(), config)
    }

    fn training(&self, task: u32) -> Training {
        let input: InputFn = Arc::new(|g| {
            g.name_scope("input", |g| {
                let image = placeholder(g, "image", DType::Float, &[-1, IMAGE_PIXELS as i64]);
                let label = placeholder(g, "label", DType::Float, &[-1, NUM_CLASSES as i64]);
                Input::from_tensors(Features::new().with("image", image), Some(&label))
            })
        });
        let digits = self.digits.train.clone();
        let batches = DigitBatches { batches: digits.batches(0), digits, task, size: self.batch_size };
        Training { input, batches: Some(Box::new(batches)) }
    }

    fn testing(&self) -> Result<InputFn> {
        let (images, labels) = self.digits.test.all()?;
        Ok(Arc::new(move |g| {
            let digits = Dataset::from_tensor_slices(g, vec![images.clone(), labels.clone()]);
            Input::new(&digits.batch(EVALUATED, false), &["image"]).label()
        }))
    }

    fn serving(&self) -> ServingInputFn {
        build_raw_serving_input_receiver_fn(&[("image", DType::Float, PartialShape::from([-1, IMAGE_PIXELS as i64]))])
    }
}

/// Adds a placeholder with a name.
pub fn placeholder(graph: &Graph, name: &str, dtype: DType, dims: &[i64]) -> Output {
    let op = graph.op("Placeholder").name(name).attr("dtype", dtype);
    op.attr("shape", PartialShape::from_dims(dims)).output()
}

struct DigitBatches {
    digits: mnist::Digits,
    batches: mnist::Batches,
    task: u32,
    size: usize,
}

impl Batches for DigitBatches {
    fn placeholders(&self) -> &'static [&'static str] {
        &["input/image", "input/label"]
    }

    fn start_at(&mut self, step: i64) {
        self.batches = self.digits.batches(u64::from(self.task) | step.unsigned_abs() << 16);
    }

    fn next(&mut self) -> Result<Vec<Tensor>> {
        let (images, labels) = self.batches.next_batch(self.size)?;
        Ok(vec![images, labels])
    }
}

fn model(features: &Features, labels: Option<&Output>, mode: Mode, part: &Part) -> Result<EstimatorSpec> {
    let images = features.dense("image")?;
    let graph = images.graph();
    let units = part.flags.hidden_units;
    let logits = match part.flags.model {
        ModelKind::Mlp => mlp(graph, &images, units)?,
        ModelKind::Cnn => cnn(graph, &images, units)?,
        ModelKind::Crnn | ModelKind::WideDeep => return Err(Status::internal("this is no model of single digits")),
    };
    let (class, probabilities) = graph.name_scope("prediction", |_| (math::argmax(&logits, 1), nn::softmax(&logits)));
    let outputs = vec![("class".to_owned(), class.clone()), ("probabilities".to_owned(), probabilities.clone())];
    let spec = EstimatorSpec::new(mode).prediction("class", &class).prediction("probabilities", &probabilities);
    let spec = spec.export_output("serving_default", ExportOutput::Predict(outputs));
    let Some(labels) = labels else { return Ok(spec) };
    let losses =
        graph.name_scope("cross_entropy", |_| nn::softmax_cross_entropy_with_logits(nn::Labels(labels), &logits));
    // The status page finds it by its name.
    let loss = graph.name_scope("total_loss", |_| math::reduce_mean(&losses, None, false));
    let is_right = graph.name_scope("is_right", |_| math::equal(&class, &math::argmax(labels, 1)));
    let right = math::cast(&is_right, DType::Float);
    let spec = spec.loss(&loss);
    if mode == Mode::Eval {
        let spec =
            spec.eval_metric("accuracy", mean(&right).build()).eval_metric("average_loss", mean(&losses).build());
        return Ok(spec.eval_metric("misclassified", misclassified(graph, &images, &is_right)?));
    }
    summary::scalar("loss", &loss);
    summary::scalar("accuracy", &math::reduce_mean(&right, None, false));
    let (train, sync_hook) = part.minimize(&loss, AdamOptimizer::new(part.flags.rate()))?;
    let mut spec = spec.train_op(&train);
    spec.scaffold = part.saver.lock().iter().fold(Scaffold::new(), |scaffold, saver| scaffold.saver(saver.clone()));
    spec.training_hooks.extend(sync_hook.into_iter().map(|hook| Box::new(hook) as Box<_>));
    Ok(spec)
}

/// The first few misclassified digits of an evaluation, as images.
fn misclassified(graph: &Graph, images: &Output, is_right: &Output) -> Result<Metric> {
    graph.name_scope("misclassified", |graph| {
        let size = IMAGE_SIZE as i64;
        let none = Tensor::zeros(DType::Float, Shape::new(&[0, size, size, 1])?)?;
        let kept = Variable::builder(graph, "pictures").trainable(false).validate_shape(false);
        let kept = kept.collections(&[collections::LOCAL_VARIABLES]).build_constant(&none);
        let wrong = array::where_true(&math::logical_not(is_right));
        let wrong = array::gather(images, &array::reshape_to(&wrong, &[-1]), 0);
        let wrong = array::reshape_to(&wrong, &[-1, size, size, 1]);
        let all = array::concat(&[kept.read(), wrong], 0);
        let few = array::strided_slice(&all, &[SliceIndex::Range(None, Some(SHOWN as i32))]);
        let update = graph.op("Assign").input(kept.handle()).input(&few).attr("validate_shape", false).output();
        let value = summary::image("pictures", &array::reshape_to(&kept.read(), &[-1, size, size, 1]), SHOWN);
        Ok(Metric { value, update })
    })
}

fn weights(graph: &Graph, name: &str, dims: &[i64], stddev: f64, seed: i64) -> Result<Variable> {
    let first = initializers::truncated_normal(0.0, stddev, Some(seed));
    Ok(Variable::new(graph, name, &first(graph, &Shape::new(dims)?, DType::Float)?))
}

fn biases(graph: &Graph, name: &str, len: i64) -> Result<Variable> {
    let zeros = Tensor::zeros(DType::Float, Shape::new(&[len])?)?;
    Ok(Variable::new(graph, name, &graph.constant_tensor(&zeros)))
}

fn mlp(graph: &Graph, images: &Output, units: i64) -> Result<Output> {
    let (pixels, classes) = (IMAGE_PIXELS as i64, NUM_CLASSES as i64);
    let hid_w = weights(graph, "hid_w", &[pixels, units], 1.0 / (IMAGE_PIXELS as f64).sqrt(), 1)?;
    let hid_b = biases(graph, "hid_b", units)?;
    let sm_w = weights(graph, "sm_w", &[units, classes], 1.0 / (units as f64).sqrt(), 2)?;
    let sm_b = biases(graph, "sm_b", classes)?;
    let hidden = graph.name_scope("hidden", |_| nn::relu(&nn::xw_plus_b(images, hid_w.value(), hid_b.value())));
    Ok(graph.name_scope("logits", |_| nn::xw_plus_b(&hidden, sm_w.value(), sm_b.value())))
}

fn cnn(graph: &Graph, images: &Output, units: i64) -> Result<Output> {
    let size = IMAGE_SIZE as i64;
    let mut layer = graph.name_scope("pictures", |_| array::reshape_to(images, &[-1, size, size, 1]));
    let mut channels = 1;
    for (number, (filters, kernel)) in [(12, 5), (24, 5)].into_iter().enumerate() {
        let stddev = (2.0 / (kernel * kernel * channels) as f64).sqrt();
        let name = format!("conv{}", number + 1);
        let dims = [kernel, kernel, channels, filters];
        let filter = weights(graph, &format!("{name}_w"), &dims, stddev, number as i64 + 1)?;
        let bias = biases(graph, &format!("{name}_b"), filters)?;
        layer = graph.name_scope(&name, |_| {
            let convolved = nn::conv2d(&layer, filter.value(), [1, 1], nn::Padding::Same);
            let active = nn::relu(&nn::bias_add(&convolved, bias.value()));
            nn::max_pool(&active, [2, 2], [2, 2], nn::Padding::Same)
        });
        channels = filters;
    }
    let flat = (size / 4) * (size / 4) * channels;
    let hid_w = weights(graph, "hid_w", &[flat, units], (2.0 / flat as f64).sqrt(), 3)?;
    let hid_b = biases(graph, "hid_b", units)?;
    let sm_w = weights(graph, "sm_w", &[units, NUM_CLASSES as i64], 1.0 / (units as f64).sqrt(), 4)?;
    let sm_b = biases(graph, "sm_b", NUM_CLASSES as i64)?;
    let hidden = graph.name_scope("hidden", |_| {
        nn::relu(&nn::xw_plus_b(&array::reshape_to(&layer, &[-1, flat]), hid_w.value(), hid_b.value()))
    });
    Ok(graph.name_scope("logits", |_| nn::xw_plus_b(&hidden, sm_w.value(), sm_b.value())))
}
