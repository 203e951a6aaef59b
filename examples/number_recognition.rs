//! Digits read from TFRecords by queues, a convolutional network with dropout, a learning rate that decays, and moving
//! averages of the weights, which judge the test digits.

use ferroflow::data::{example::ExampleWriter, mnist::Digits, mnist::Mnist};
use ferroflow::input::*;
use ferroflow::layers::{Activation, Apply, Conv2D, Dense, Dropout, Flatten, MaxPooling2D, Padding};
use ferroflow::ops::parsing::{FixedLenFeature, decode_raw, parse_example};
use ferroflow::prelude::*;
use ferroflow::train::{AdamOptimizer, ExponentialMovingAverage, Supervisor, exponential_decay};
use ferroflow::{Result, losses, variable::create_global_step, variable::trainable_variables};

/// Writes digits as examples with their pixels and their label.
fn write_records(path: &str, digits: &Digits, count: usize) -> Result<()> {
    let (images, mut writer) = (digits.all()?.0, ExampleWriter::create(path)?);
    for (index, image) in images.as_slice::<f32>()?.chunks(784).take(count).enumerate() {
        let bytes: Vec<u8> = image.iter().map(|pixel| (pixel * 255.0).round() as u8).collect();
        writer.write([("image_raw", bytes.into()), ("label", i64::from(digits.label(index).unwrap_or(0)).into())])?;
    }
    writer.close()
}

/// Adds batches of images and labels from a file of records.
fn get_batch(g: &Graph, path: &str, train: bool, size: i32) -> Result<(Output, Output)> {
    let names = string_input_producer(g, &[path], &InputOptions { shuffle: train, ..Default::default() });
    let record = [Reader::tf_record(g, Compression::None).read(&names).1];
    let options = BatchOptions { batch_size: size, num_threads: 2, capacity: 1000, ..Default::default() };
    let shuffle = ShuffleOptions { min_after_dequeue: 400, seed: Some(1) };
    let records = if train { shuffle_batch(&record, &options, &shuffle) } else { batch(&record, &options) };
    let feature = |key: &str, dtype| FixedLenFeature { key: key.into(), dtype, shape: Shape::scalar(), default: None };
    let parsed = parse_example(&records[0], &[feature("image_raw", DType::String), feature("label", DType::Int64)]);
    let pixels = decode_raw(&parsed[0], DType::UInt8).cast(DType::Float) * (1.0 / 255.0);
    Ok((pixels.reshape([i64::from(size), 28, 28, 1]), parsed[1].clone()))
}

/// Trains for some steps; returns the accuracy of the averaged network on the test digits.
pub fn train(directory: &std::path::Path, steps: i64) -> Result<f32> {
    let (g, mnist) = (Graph::new(), Mnist::builtin()?);
    let path = |name: &str| directory.join(name).to_string_lossy().into_owned();
    write_records(&path("train.tfrecords"), &mnist.train, 4000)?;
    write_records(&path("test.tfrecords"), &mnist.test, 500)?;
    let conv = Conv2D::new(8, 5).strides(2).padding(Padding::Same).activation(Activation::Relu);
    let (hidden, out) = (Dense::new(64).activation(Activation::Relu), Dense::new(10));
    let network = |x: &Output, training: bool| {
        let hidden = x.apply(&conv).apply(&MaxPooling2D::new(2, 2)).apply(&Flatten::new()).apply(&hidden);
        hidden.apply(&Dropout::new(0.3).training(training)).apply(&out)
    };
    let (x, y) = get_batch(&g, &path("train.tfrecords"), true, 50)?;
    let (logits, global_step) = (network(&x, true), create_global_step(&g));
    let loss = losses::sparse_softmax_cross_entropy(losses::Labels(&y), losses::Logits(&logits)).build();
    let rate = exponential_decay(0.01, &global_step, 100.0, 0.9, true);
    let step = AdamOptimizer::new(rate).minimize(&loss, Some(&global_step))?;
    let (averages, weights) = (ExponentialMovingAverage::new(0.95, Some(&global_step)), trainable_variables(&g)?);
    let train = g.control_dependencies(&[step], |g| averages.apply(g, &weights));
    let assigned = weights.iter().filter_map(|weight| Some(weight.assign(averages.average(weight)?.value())));
    let averaged: Vec<Operation> = assigned.collect();
    let (test_x, test_y) = get_batch(&g, &path("test.tfrecords"), false, 500)?;
    let accuracy = network(&test_x, false).argmax(1).equal(&test_y).cast(DType::Float).mean();
    let supervisor = Supervisor::builder(&g).global_step(&global_step).without_summary_op().build()?;
    supervisor.managed_session("", |session| {
        (0..steps).try_for_each(|_| session.run_ops(&[&train]))?;
        session.run_ops(&averaged.iter().collect::<Vec<_>>())?;
        session.eval(&accuracy)
    })
}

fn main() -> Result<()> {
    train(&std::env::temp_dir(), 600).map(|accuracy| println!("test accuracy {:.1} %", 100.0 * accuracy))
}
