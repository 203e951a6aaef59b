//! Digits read from TFRecords by queues, a convolutional network with dropout, a learning rate that decays, and moving
//! averages of the weights, which judge the test digits.

#[path = "support/mod.rs"]
pub mod support;

use ferroflow::data::mnist::{Digits, Mnist};
use ferroflow::input::{
    BatchOptions, InputOptions, Reader, ShuffleOptions, batch, shuffle_batch, string_input_producer,
};
use ferroflow::ops::parsing::{FixedLenFeature, decode_raw, parse_example};
use ferroflow::ops::{array, math, nn};
use ferroflow::train::{
    AdamOptimizer, Coordinator, ExponentialMovingAverage, Optimizer, Supervisor, exponential_decay, start_queue_runners,
};
use ferroflow::variable::{create_global_step, trainable_variables};
use ferroflow::{DType, Graph, Output, Result, Shape, Status, Variable};
use prost::Message;
use proto::{BytesList, Example, Feature, Features, Int64List, feature::Kind};
use std::collections::HashMap;
use std::path::Path;
use storage::file_system::{FileSystem, FileSystems};
use storage::record::{CompressionType, RecordWriter};
use support::{biases, weights};

/// Writes digits as examples with their pixels and their label.
pub fn write_records(path: &Path, digits: &Digits, count: usize) -> Result<()> {
    let (images, _) = digits.all()?;
    let pixels = images.as_slice::<f32>()?;
    let mut writer = RecordWriter::new(FileSystems::local().create(&path.to_string_lossy())?, CompressionType::None);
    for (index, image) in pixels.chunks(784).take(count).enumerate() {
        let bytes: Vec<u8> = image.iter().map(|pixel| (pixel * 255.0).round() as u8).collect();
        let label = i64::from(digits.label(index).unwrap_or(0));
        let feature = |kind| Feature { kind: Some(kind) };
        let feature = HashMap::from([
            ("image_raw".to_owned(), feature(Kind::BytesList(BytesList { value: vec![bytes.into()] }))),
            ("label".to_owned(), feature(Kind::Int64List(Int64List { value: vec![label] }))),
        ]);
        let features = Features { feature: feature.into_iter().collect() };
        writer.write_record(&Example { features: Some(features) }.encode_to_vec())?;
    }
    writer.close()
}

/// Adds batches of images and labels from a file of records.
fn get_batch(g: &Graph, path: &Path, train: bool, size: i32, epochs: Option<i64>) -> Result<(Output, Output)> {
    let options = InputOptions { num_epochs: epochs, shuffle: train, ..Default::default() };
    let names = string_input_producer(g, &[&path.to_string_lossy()], &options)?;
    let (_, record) = Reader::tf_record(g, "")?.read(&names)?;
    let options = BatchOptions { batch_size: size, num_threads: 2, capacity: 1000, ..Default::default() };
    let records = if train {
        shuffle_batch(&[record], &options, &ShuffleOptions { min_after_dequeue: 400, seed: Some(1) })?
    } else {
        batch(&[record], &options)?
    };
    let feature =
        |key: &str, dtype| FixedLenFeature { key: key.to_owned(), dtype, shape: Shape::scalar(), default: None };
    let parsed = parse_example(&records[0], &[feature("image_raw", DType::String), feature("label", DType::Int64)]);
    let pixels = math::cast(&decode_raw(&parsed[0], DType::UInt8), DType::Float) * (1.0 / 255.0);
    Ok((array::reshape_to(&pixels, &[i64::from(size), 28, 28, 1]), parsed[1].clone()))
}

/// The weights of the network, by which it is built twice: as it is trained, and of their averages.
struct Weights(Vec<Variable>);

impl Weights {
    fn new(g: &Graph) -> Result<Weights> {
        Ok(Weights(vec![
            weights(g, "conv_w", &[5, 5, 1, 8], 0.2)?,
            biases(g, "conv_b", 8)?,
            weights(g, "fc_w", &[7 * 7 * 8, 64], 0.05)?,
            biases(g, "fc_b", 64)?,
            weights(g, "out_w", &[64, 10], 0.1)?,
            biases(g, "out_b", 10)?,
        ]))
    }

    /// Adds the network; `value` says which value of a variable it takes.
    fn logits(&self, images: &Output, dropout: f64, value: impl Fn(&Variable) -> Output) -> Output {
        let values: Vec<Output> = self.0.iter().map(value).collect();
        let conv = nn::relu(&nn::bias_add(&nn::conv2d(images, &values[0], [2, 2], "SAME"), &values[1]));
        let pool = nn::max_pool(&conv, [2, 2], [2, 2], "SAME");
        let flat = array::reshape_to(&pool, &[-1, 7 * 7 * 8]);
        let hidden = nn::dropout(&nn::relu(&nn::xw_plus_b(&flat, &values[2], &values[3])), dropout, Some(1));
        nn::xw_plus_b(&hidden, &values[4], &values[5])
    }
}

/// Trains for some steps; returns the accuracy of the averaged network on the test digits.
pub fn train(directory: &Path, steps: i64) -> Result<f32> {
    let mnist = Mnist::builtin()?;
    let (train_file, test_file) = (directory.join("train.tfrecords"), directory.join("test.tfrecords"));
    write_records(&train_file, &mnist.train, 4000)?;
    write_records(&test_file, &mnist.test, 500)?;
    let g = Graph::new();
    let (x, y) = get_batch(&g, &train_file, true, 50, None)?;
    let (test_x, test_y) = get_batch(&g, &test_file, false, 250, None)?;
    let global_step = create_global_step(&g);
    let network = Weights::new(&g)?;
    let logits = network.logits(&x, 0.3, |variable| variable.value().clone());
    let loss = math::reduce_mean(&nn::sparse_softmax_cross_entropy_with_logits(nn::Labels(&y), &logits), None, false);
    let rate = exponential_decay(0.01, &global_step, 100.0, 0.9, true)?;
    let step = AdamOptimizer::new(rate).minimize(&loss, Some(&global_step))?;
    let averages = ExponentialMovingAverage::new(0.95, Some(&global_step));
    let variables = trainable_variables(&g)?;
    let train_op = g.control_dependencies(&[step], |_| averages.apply(&g, &variables))?;
    let averaged = |variable: &Variable| {
        averages.average(variable).map_or_else(|| variable.value().clone(), |average| average.value().clone())
    };
    let judged = network.logits(&test_x, 0.0, averaged);
    let right = math::equal(&math::argmax(&judged, 1), &test_y);
    let accuracy = math::reduce_mean(&math::cast(&right, DType::Float), None, false);

    let supervisor = Supervisor::builder(&g).global_step(&global_step).without_summary_op().build()?;
    supervisor.managed_session("", |session| {
        for _ in 0..steps {
            // The supervisor has started the runners; to start them again in every step does no harm.
            let coordinator = Coordinator::new();
            start_queue_runners(session, &coordinator)?;
            let values = session.runner().target(&train_op).fetch(&loss).run()?;
            if !values[0].to_scalar::<f32>()?.is_finite() {
                return Err(Status::invalid_argument("the loss is no number"));
            }
            coordinator.request_stop(None);
            coordinator.join(std::time::Duration::from_secs(10))?;
        }
        Ok((session.eval::<f32>(&accuracy)? + session.eval::<f32>(&accuracy)?) / 2.0)
    })
}

fn main() -> Result<()> {
    let directory = std::env::temp_dir().join(format!("number_recognition-{}", std::process::id()));
    std::fs::create_dir_all(&directory).map_err(|error| Status::unavailable(error.to_string()))?;
    let accuracy = train(&directory, 600)?;
    println!("test accuracy {:.1} %", 100.0 * accuracy);
    Ok(())
}
