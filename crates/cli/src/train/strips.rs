//! Strips of digits, read as a whole: convolutions, a bidirectional LSTM over the columns, and CTC.

use super::digits::{placeholder, read_digits};
use super::flags::Flags;
use super::recipe::{Batches, Part, Recipe, Training};
use crate::Failure;
use ferroflow::data::Dataset;
use ferroflow::data::mnist::{self, IMAGE_PIXELS, IMAGE_SIZE, Mnist, NUM_CLASSES};
use ferroflow::estimator::{
    Estimator, EstimatorSpec, ExportOutput, Features, Input, InputFn, Mode, RunConfig, ServingInputFn,
    build_raw_serving_input_receiver_fn,
};
use ferroflow::layers::rnn::{BidirectionalDynamicRnn, LstmCell};
use ferroflow::layers::{Activation, Apply, Conv2D, Dense, MaxPooling2D, Padding};
use ferroflow::metrics::mean;
use ferroflow::prelude::*;
use ferroflow::train::{AdamOptimizer, Scaffold};
use ferroflow::{Result, summary};
use ops::array::{self, SliceIndex};
use ops::ctc::{ctc_greedy_decoder, ctc_loss};
use ops::math;
use std::sync::Arc;

/// The number of digits in a strip.
const DIGITS: usize = 3;

/// The number of columns for the recurrent layers: a quarter of the pixels.
const COLUMNS: i64 = (IMAGE_SIZE / 4 * DIGITS) as i64;

/// The number of strips that are evaluated in one step.
const EVALUATED: i64 = 100;

/// The height, the width and the channels of a strip.
const STRIP: [i64; 3] = [IMAGE_SIZE as i64, (IMAGE_SIZE * DIGITS) as i64, 1];

/// Digits, and a model that reads several at once.
pub struct StripsRecipe {
    digits: Mnist,
    batch_size: usize,
}

impl StripsRecipe {
    /// Reads the digits.
    pub fn read(flags: &Flags) -> Result<StripsRecipe, Failure> {
        Ok(StripsRecipe { digits: read_digits(flags)?, batch_size: flags.batch_size as usize })
    }
}

impl Recipe for StripsRecipe {
    fn data(&self) -> (&'static str, usize, usize) {
        ("digits", self.digits.train.len(), self.digits.test.len())
    }

    fn estimator(&self, part: &Part, config: RunConfig) -> Result<Estimator> {
        Estimator::new(model, part.clone(), config)
    }

    fn training(&self, task: u32) -> Training {
        let input: InputFn = Arc::new(|g| {
            g.name_scope("input", |g| {
                let strip = placeholder(g, "strip", DType::Float, &[-1, STRIP[0], STRIP[1], STRIP[2]]);
                let label = placeholder(g, "label", DType::Int64, &[-1, DIGITS as i64]);
                Input::from_tensors(Features::new().with("strip", strip), Some(&label))
            })
        });
        let digits = self.digits.train.clone();
        let batches = StripBatches { batches: digits.batches(0), digits, task, size: self.batch_size };
        Training { input, batches: Some(Box::new(batches)) }
    }

    fn testing(&self) -> Result<InputFn> {
        let (images, labels) = self.digits.test.all()?;
        let whole = self.digits.test.len() / DIGITS * DIGITS;
        let (strips, labels) = strips(&images.slice_rows(0, whole)?, &labels.slice_rows(0, whole)?)?;
        Ok(Arc::new(move |g| {
            let all = Dataset::from_tensor_slices(g, vec![strips.clone(), labels.clone()]);
            Input::new(&all.batch(EVALUATED, false), &["strip"]).label()
        }))
    }

    fn serving(&self) -> ServingInputFn {
        let shape = PartialShape::from([-1, STRIP[0], STRIP[1], STRIP[2]]);
        build_raw_serving_input_receiver_fn(&[("strip", DType::Float, shape)])
    }
}

/// Joins digits to strips; returns the strips, and the numbers on them.
fn strips(images: &Tensor, labels: &Tensor) -> Result<(Tensor, Tensor)> {
    let (pixels, ones) = (images.as_slice::<f32>()?, labels.as_slice::<f32>()?);
    let count = pixels.len() / (IMAGE_PIXELS * DIGITS);
    let mut rows = Vec::with_capacity(pixels.len());
    for strip in pixels.chunks_exact(IMAGE_PIXELS * DIGITS) {
        for row in 0..IMAGE_SIZE {
            let of_digit = |digit: usize| &strip[digit * IMAGE_PIXELS + row * IMAGE_SIZE..][..IMAGE_SIZE];
            (0..DIGITS).for_each(|digit| rows.extend_from_slice(of_digit(digit)));
        }
    }
    let number = |row: &[f32]| row.iter().position(|&one| one > 0.0).unwrap_or(0) as i64;
    let numbers: Vec<i64> = ones.chunks_exact(NUM_CLASSES).map(number).collect();
    let strips = Tensor::from_slice(&[count as i64, STRIP[0], STRIP[1], STRIP[2]], &rows)?;
    Ok((strips, Tensor::from_slice(&[count as i64, DIGITS as i64], &numbers)?))
}

struct StripBatches {
    digits: mnist::Digits,
    batches: mnist::Batches,
    task: u32,
    size: usize,
}

impl Batches for StripBatches {
    fn placeholders(&self) -> &'static [&'static str] {
        &["input/strip", "input/label"]
    }

    fn start_at(&mut self, step: i64) {
        self.batches = self.digits.batches(u64::from(self.task) | step.unsigned_abs() << 16);
    }

    fn next(&mut self) -> Result<Vec<Tensor>> {
        let (images, labels) = self.batches.next_batch(self.size * DIGITS)?;
        let (strips, labels) = strips(&images, &labels)?;
        Ok(vec![strips, labels])
    }
}

fn model(features: &Features, labels: Option<&Output>, mode: Mode, part: &Part) -> Result<EstimatorSpec> {
    let strips = features.dense("strip")?;
    let graph = strips.graph();
    let logits = logits(&strips);
    let (lengths, decoded, numbers) = graph.name_scope("prediction", |g| {
        let batch = array::strided_slice(&array::shape(&strips), &[SliceIndex::Range(Some(0), Some(1))]);
        let lengths = array::fill(&batch, &g.constant(COLUMNS as i32));
        let decoded = ctc_greedy_decoder(&logits, &lengths, true);
        let none = g.constant(-1i64);
        let numbers = ops::sparse::sparse_to_dense(&decoded[0], &decoded[2], &decoded[1], &none);
        (lengths, decoded, numbers)
    });
    let spec = EstimatorSpec::new(mode).prediction("digits", &numbers);
    let spec =
        spec.export_output("serving_default", ExportOutput::Predict(vec![("digits".to_owned(), numbers.clone())]));
    let Some(labels) = labels else { return Ok(spec) };
    let (indices, values) = graph.name_scope("label", |_| {
        let zeros = array::zeros_like(labels);
        (array::where_true(&math::greater_equal(labels, &zeros)), array::reshape_to(labels, &[-1]))
    });
    let losses = graph.name_scope("ctc", |_| ctc_loss(&indices, &math::cast(&values, DType::Int32), &logits, &lengths));
    // The status page finds it by its name.
    let loss = graph.name_scope("total_loss", |_| losses.mean());
    let is_right = graph.name_scope("is_right", |graph| {
        let shape = array::shape_with(labels, DType::Int64);
        let distance = graph.op("EditDistance").inputs([&decoded[0], &decoded[1], &decoded[2]]);
        let distance = distance.inputs([&indices, &values, &shape]).attr("normalize", false).output();
        math::cast(&math::equal(&distance, &array::zeros_like(&distance)), DType::Float)
    });
    let spec = spec.loss(&loss);
    if mode == Mode::Eval {
        return Ok(spec
            .eval_metric("accuracy", mean(&is_right).build())
            .eval_metric("average_loss", mean(&losses).build()));
    }
    summary::scalar("loss", &loss);
    summary::scalar("accuracy", &is_right.mean());
    let (train, sync_hook) = part.minimize(&loss, AdamOptimizer::new(part.flags.rate()))?;
    let mut spec = spec.train_op(&train);
    spec.scaffold = part.saver.lock().iter().fold(Scaffold::new(), |scaffold, saver| scaffold.saver(saver.clone()));
    spec.training_hooks.extend(sync_hook.into_iter().map(|hook| Box::new(hook) as Box<_>));
    Ok(spec)
}

/// Adds the network: `[columns, batch, classes]` of strips. The classes are the digits and the blank.
fn logits(strips: &Output) -> Output {
    let convolved = [8, 12].into_iter().fold(strips.clone(), |images, filters| {
        let conv = Conv2D::new(filters, 3).padding(Padding::Same).activation(Activation::Relu);
        images.apply(&conv).apply(&MaxPooling2D::new(2, 2))
    });
    let columns = convolved.transpose([2, 0, 1, 3]).reshape([COLUMNS, -1, STRIP[0] / 4 * 12]);
    let (forward, backward) = (LstmCell::new(24), LstmCell::new(24));
    let ((ahead, back), _) = BidirectionalDynamicRnn::new(&forward, &backward).time_major(true).run(&columns);
    ahead.concat(&back, 2).apply(&Dense::new(NUM_CLASSES as i64 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_stand_beside_each_other() {
        let pixels: Vec<f32> = (0..DIGITS * IMAGE_PIXELS).map(|at| (at / IMAGE_PIXELS) as f32).collect();
        let images = Tensor::from_slice(&[DIGITS as i64, IMAGE_PIXELS as i64], &pixels).unwrap();
        let ones: Vec<f32> = (0..DIGITS * NUM_CLASSES).map(|at| f32::from(at % 11 == 7)).collect();
        let labels = Tensor::from_slice(&[DIGITS as i64, NUM_CLASSES as i64], &ones).unwrap();
        let (strips, labels) = strips(&images, &labels).unwrap();
        assert_eq!(strips.dims(), [1, 28, 84, 1]);
        let strips = strips.as_slice::<f32>().unwrap();
        assert_eq!([strips[27], strips[28], strips[84 * 27 + 83]], [0.0, 1.0, 2.0]);
        assert_eq!(labels.to_vec::<i64>().unwrap(), [7, 8, 9]);
    }
}
