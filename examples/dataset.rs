//! A pipeline of data from files to batches, and training that goes on in it where it stopped: examples are written to TFRecords,
//! parsed, shuffled and batched, and the position is saved with the variables. Flags: `--logdir --train_steps`.

use ferroflow::data::example::ExampleWriter;
use ferroflow::data::{Dataset, RecordOptions};
use ferroflow::feature_column::*;
use ferroflow::train::{AdamOptimizer, Saver, global_variables_initializer, latest_checkpoint};
use ferroflow::variable::create_global_step;
use ferroflow::{Result, flags::Flags, initializers, prelude::*};
use std::path::Path;

const CITIES: [&str; 3] = ["Ahaus", "Bonn", "Celle"];

/// Writes what the prices of flats might be: each has a size, a city, and a price that depends on both.
fn write_flats(path: &Path) -> Result<()> {
    let mut writer = ExampleWriter::create(path)?;
    for number in 0..600 {
        let (size, city) = (20.0 + (number % 37) as f32 * 3.0, number % 3);
        let price = size * (2.0 + city as f32);
        writer.write([("size", size.into()), ("city", CITIES[city].into()), ("price", price.into())])?;
    }
    writer.close()
}

/// Trains for some steps, from the newest checkpoint on when there is one; returns the step and the mean error of a price then.
pub fn train(flags: &Flags) -> Result<(i64, f32)> {
    let logdir = flags.text("logdir", "/tmp/dataset_logs");
    let path = Path::new(&logdir).join("flats.tfrecord");
    std::fs::create_dir_all(&logdir).map_err(|error| Status::unavailable(format!("{logdir}: {error}")))?;
    write_flats(&path)?;

    let g = Graph::new();
    // A function of Rust may be part of a pipeline that runs in this process: this one looks at every example.
    let is_large_enough = |serialized: &[Tensor]| Ok(serialized[0].num_elements() == 1);
    let files = [path.to_str().ok_or_else(|| Status::invalid_argument("the path is not a text"))?];
    let records = Dataset::tf_records(&g, &files, &RecordOptions::default()).filter_fn(is_large_enough);
    let batches = records.shuffle(600, Some(1), true).repeat(-1).batch(50, true).prefetch(2);
    let iterator = batches.make_one_shot_iterator();
    iterator.make_saveable();

    let city = indicator_column(&categorical_column_with_vocabulary_list("city", CITIES));
    let size = numeric_column("size");
    let mut spec = make_parse_example_spec(&[size.clone().into(), city.clone().into()])?;
    spec.insert("price".to_owned(), FeatureSpec::FixedLen { dims: vec![1], dtype: DType::Float, default: None });
    let features = parse_example(&iterator.get_next()[0], &spec);
    let Some(Feature::Dense(price)) = features.get("price") else {
        return Err(Status::internal("a price of each example was parsed"));
    };
    // The price of a square metre depends on the city.
    let cities = input_layer(&features, &[city.into()]);
    let rates = ferroflow::variable_scope::get_variable(&g, "rates", &[3, 1]).initializer(initializers::ones()).get();
    let predicted = input_layer(&features, &[size.into()]) * cities.matmul(&rates.read());
    let error = (&predicted - price).abs().mean();
    let step = create_global_step(&g);
    let train = AdamOptimizer::new(0.05).minimize(&((&predicted - price) / 100.0).square().mean(), Some(&step))?;

    let (session, saver) = (Session::new(&g)?, Saver::new(&g)?);
    for table in g.collection("table_initializer") {
        session.run_ops(&[&table.op])?;
    }
    match latest_checkpoint(&logdir)? {
        Some(checkpoint) => saver.restore(&session, &checkpoint)?,
        None => session.run_ops(&[&global_variables_initializer(&g)])?,
    }
    let mut last = (0, f32::NAN);
    for _ in 0..flags.get("train_steps", 200)? {
        last = session.runner().fetch(&step).fetch(&error).target(&train).run_as()?;
    }
    saver.save(&session, &format!("{logdir}/model"), Some(last.0))?;
    Ok(last)
}

fn main() -> Result<()> {
    println!("(step, mean error): {:?}", train(&Flags::from_env())?);
    Ok(())
}
