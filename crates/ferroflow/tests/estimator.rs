//! The life of a model: trained, gone on with, evaluated, asked, exported, and ended early.

use ferroflow::data::{Dataset, RecordOptions};
use ferroflow::estimator::*;
use ferroflow::prelude::*;
use ferroflow::saved_model::SavedModel;
use ferroflow::train::{Every, GradientDescentOptimizer, latest_checkpoint};
use ferroflow::variable::get_global_step;
use ferroflow::{Code, DType, Result};
use std::path::Path;

/// A line `y = slope x + 1`, whose slope is learnt.
fn line(features: &Features, labels: Option<&Output>, mode: Mode, rate: &f64) -> Result<EstimatorSpec> {
    let x = features.dense("x")?;
    let g = x.graph();
    let slope = Variable::new(g, "slope", &g.constant(0f32));
    let y = &x * slope.value() + 1.0;
    let spec = EstimatorSpec::new(mode).prediction("y", &y).prediction("x", &x);
    let Some(labels) = labels else { return Ok(spec) };
    let loss = (&y - labels).square().mean();
    let train = GradientDescentOptimizer::new(*rate).minimize(&loss, get_global_step(g)?.as_ref())?;
    let error = ferroflow::metrics::mean(&(&y - labels).abs()).build();
    Ok(spec.loss(&loss).train_op(&train).eval_metric("error", error))
}

/// Points of a line, so many times over.
fn points(g: &Graph, times: i64) -> Input {
    let rows = Dataset::from_tensor_slices(g, ([1f32, 2.0, 3.0], [3f32, 5.0, 7.0]));
    Input::new(&rows.repeat(times).batch(3, false), &["x"]).label()
}

fn estimator(directory: &Path) -> Estimator {
    let config = RunConfig { save_checkpoints: Some(Every::Steps(10)), ..RunConfig::new(directory.to_str().unwrap()) };
    Estimator::new(line, 0.05, config).unwrap()
}

fn steps(steps: i64) -> TrainOptions {
    TrainOptions { steps: Some(steps), ..TrainOptions::default() }
}

fn serving() -> ServingInputFn {
    build_raw_serving_input_receiver_fn(&[("x", DType::Float, PartialShape::from([-1]))])
}

/// Returns the models that were exported, oldest first.
fn exported(directory: &Path) -> Vec<u64> {
    let entries = std::fs::read_dir(directory).unwrap().flatten();
    let mut times: Vec<u64> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    times.sort_unstable();
    times
}

#[test]
fn a_model_is_trained_gone_on_with_evaluated_asked_and_exported() -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let model = estimator(directory.path());
    model.train(|g| points(g, -1), steps(15))?;
    assert_eq!(model.latest_checkpoint()?.unwrap().rsplit('-').next(), Some("15"));
    // Another process would go on from the same checkpoint.
    let model = estimator(directory.path());
    model.train(|g| points(g, -1), TrainOptions { max_steps: Some(40), ..TrainOptions::default() })?;
    assert_eq!(model.get_variable_value("global_step")?.to_scalar::<i64>()?, 40);
    assert_eq!(model.get_variable_names()?, ["global_step", "slope"]);
    // It is there already.
    model.train(|g| points(g, 0), TrainOptions { max_steps: Some(40), ..TrainOptions::default() })?;

    let measured = model.evaluate(|g| points(g, 2), EvalOptions::default())?;
    assert_eq!(measured.values.keys().collect::<Vec<_>>(), ["error", "global_step", "loss"]);
    assert_eq!(measured.global_step()?, 40);
    assert!(measured.get("loss")? < 1e-3 && measured.get("error")? < 0.05, "{measured}");
    assert!(std::fs::read_dir(directory.path().join("eval")).unwrap().count() == 1);

    let slope = model.get_variable_value("slope")?.to_scalar::<f32>()?;
    let rows = model.predict(|g| points(g, 1), PredictOptions::default())?.collect::<Result<Vec<_>>>()?;
    let y: Vec<f32> = rows.iter().map(|row| row["y"].to_scalar()).collect::<Result<_>>()?;
    assert_eq!(y, [1.0, 2.0, 3.0].map(|x| x * slope + 1.0));
    let keys = Some(vec!["x".to_owned()]);
    let rows = model.predict(|g| points(g, 1), PredictOptions { keys, ..PredictOptions::default() })?;
    assert!(rows.map(|row| row.unwrap().into_keys().collect::<Vec<_>>()).all(|keys| keys == ["x"]));

    let base = directory.path().join("served");
    let made = model.export_saved_model(base.to_str().unwrap(), &serving())?;
    let again = model.export_saved_model(base.to_str().unwrap(), &serving())?;
    assert_eq!(exported(&base).len(), 2, "{made} {again}");
    let served = SavedModel::open(&made)?.load(&["serve"])?;
    let answer = served.run("serving_default", [("x", [10f32])])?;
    assert_eq!(answer["y"].to_vec::<f32>()?, [10.0 * slope + 1.0]);
    Ok(())
}

#[test]
fn an_input_that_ends_ends_the_training() -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let model = estimator(directory.path());
    model.train(|g| points(g, 7), TrainOptions::default())?;
    assert_eq!(model.get_variable_value("global_step")?.to_scalar::<i64>()?, 7);
    Ok(())
}

#[test]
fn training_starts_from_another_models_values() -> Result<()> {
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    estimator(old.path()).train(|g| points(g, -1), steps(40))?;
    let settings = WarmStartSettings::new(old.path().to_str().unwrap());
    let model = estimator(new.path()).warm_start(settings.clone());
    model.train(|g| points(g, -1), steps(1))?;
    assert_eq!(model.get_variable_value("global_step")?.to_scalar::<i64>()?, 1);
    assert!((model.get_variable_value("slope")?.to_scalar::<f32>()? - 2.0).abs() < 0.05);
    // What was trained since is not lost again.
    let other = tempfile::tempdir().unwrap();
    let none = WarmStartSettings { vars_to_warm_start: "slop$".to_owned(), ..settings };
    let status = estimator(other.path()).warm_start(none).train(|g| points(g, -1), steps(1)).unwrap_err();
    assert!(status.message().contains("no trained variable matches"), "{status}");
    Ok(())
}

#[test]
fn a_model_is_evaluated_with_every_checkpoint_and_exported() -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let run = |max_steps| {
        let model = estimator(directory.path());
        let train = TrainSpec::new(|g| points(g, -1), Some(max_steps));
        let mut eval = EvalSpec::new(|g| points(g, 1));
        eval.exporters.push(Box::new(FinalExporter::new("final", serving())));
        let mut latest = LatestExporter::new("latest", serving());
        latest.exports_to_keep = 2;
        eval.exporters.push(Box::new(latest));
        let best = BestExporter::new("best", serving());
        // The error falls all the time, so that only the first model is the best.
        eval.exporters.push(Box::new(best.compare(|best, current| current["error"] > best["error"])));
        Ok::<_, Status>(train_and_evaluate(&model, train, eval)?.unwrap())
    };
    let count = |name: &str| exported(&directory.path().join("export").join(name)).len();
    assert_eq!(run(30)?.global_step()?, 30);
    assert_eq!([count("final"), count("latest"), count("best")], [1, 2, 1]);
    assert_eq!(run(40)?.global_step()?, 40);
    // The best one is known after the restart.
    assert_eq!([count("final"), count("latest"), count("best")], [2, 2, 1]);
    Ok(())
}

#[test]
fn an_input_may_be_tensors_of_the_graph() -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let tensors = |g: &Graph| {
        let features = Features::new().with("x", g.constant([1f32, 2.0, 3.0]));
        Input::from_tensors(features, Some(&g.constant([3f32, 5.0, 7.0])))
    };
    let model = estimator(directory.path());
    model.train(tensors, steps(30))?;
    let measured = model.evaluate(tensors, EvalOptions { steps: Some(1), ..EvalOptions::default() })?;
    assert!(measured.get("error")? < 0.1, "{measured}");
    let elsewhere = Graph::new();
    let status = model.train(|_| tensors(&elsewhere), steps(1)).unwrap_err();
    assert!(status.message().contains("tensors are of another graph"), "{status}");
    Ok(())
}

#[test]
fn a_metric_may_be_a_summary() -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let with_text = |features: &Features, labels: Option<&Output>, mode: Mode, rate: &f64| {
        let spec = line(features, labels, mode, rate)?;
        let g = features.dense("x")?.graph().clone();
        let value = ferroflow::summary::text("notes", &g.constant("**a line**"));
        let metric = ferroflow::metrics::Metric { update: value.clone(), value };
        Ok(if mode == Mode::Eval { spec.eval_metric("remarks", metric) } else { spec })
    };
    let model = Estimator::new(with_text, 0.05, RunConfig::new(directory.path().to_str().unwrap()))?;
    model.train(|g| points(g, -1), steps(3))?;
    model.evaluate(|g| points(g, 1), EvalOptions::default())?;
    let files = storage::file_system::FileSystems::local();
    let mut tags = Vec::new();
    for entry in std::fs::read_dir(directory.path().join("eval")).unwrap() {
        let path = entry.unwrap().path();
        let mut reader = storage::event::EventsReader::open(&files, path.to_str().unwrap())?;
        while let Some(event) = reader.next_event()? {
            if let Some(proto::event::What::Summary(summary)) = event.what {
                tags.extend(summary.value.into_iter().map(|value| value.tag));
            }
        }
    }
    assert!(tags.iter().any(|tag| tag == "remarks/0") && tags.iter().any(|tag| tag == "error"), "{tags:?}");
    Ok(())
}

#[test]
fn a_training_can_be_told_to_end() -> Result<()> {
    struct Tell(ferroflow::train::Coordinator);
    impl ferroflow::train::CheckpointSaverListener for Tell {
        fn after_save(&mut self, _session: &Session, step: i64) -> Result<bool> {
            if step > 0 {
                self.0.request_stop(None);
            }
            Ok(false)
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let (model, stop) = (estimator(directory.path()), ferroflow::train::Coordinator::new());
    let options = TrainOptions {
        saving_listeners: vec![Box::new(Tell(stop.clone()))],
        stop: Some(stop),
        ..TrainOptions::default()
    };
    model.train(|g| points(g, -1), options)?;
    assert_eq!(model.latest_checkpoint()?.unwrap().rsplit('-').next(), Some("10"));
    Ok(())
}

#[test]
fn a_damaged_record_ends_the_training_and_the_last_checkpoint_stays() -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("numbers.tfrecord");
    let files = storage::file_system::FileSystems::local();
    let mut writer = storage::record::RecordWriter::new(
        storage::file_system::FileSystem::create(&files, file.to_str().unwrap())?,
        storage::record::CompressionType::None,
    );
    for number in 0..40 {
        writer.write_record(format!("{:02}", number % 10).as_bytes())?;
    }
    writer.close()?;
    // A record has 18 bytes: a length and its checksum, two characters and theirs.
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[18 * 25 + 12] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let path = file.to_str().unwrap().to_owned();
    let input = move |g: &Graph| {
        let records = Dataset::tf_records(g, &[&path], &RecordOptions::default());
        Input::new(&records.repeat(-1).batch(1, true), &["number"])
    };
    let model_fn = |features: &Features, _: Option<&Output>, mode: Mode, _: &()| {
        let x = ops::parsing::string_to_number(&features.dense("number")?, DType::Float);
        let w = Variable::new(x.graph(), "w", &x.graph().constant(1f32));
        let loss = (&x * w.value()).square().mean();
        let train = GradientDescentOptimizer::new(0.001).minimize(&loss, get_global_step(x.graph())?.as_ref())?;
        Ok(EstimatorSpec::new(mode).loss(&loss).train_op(&train))
    };
    let models = directory.path().join("model");
    let config = RunConfig { save_checkpoints: Some(Every::Steps(10)), ..RunConfig::new(models.to_str().unwrap()) };
    let model = Estimator::new(model_fn, (), config)?;
    let status = model.train(&input, TrainOptions::default()).unwrap_err();
    assert_eq!(status.code(), Code::DataLoss, "{status}");
    assert!(status.message().contains("462"), "the place is missing: {status}");
    assert_eq!(model.latest_checkpoint()?.unwrap().rsplit('-').next(), Some("20"));
    assert!(model.get_variable_value("w").is_ok());
    Ok(())
}

#[test]
fn a_training_that_gets_no_better_ends_early() -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let config =
        RunConfig { save_checkpoints: Some(Every::Steps(5)), ..RunConfig::new(directory.path().to_str().unwrap()) };
    // With this rate nothing is learnt.
    let model = Estimator::new(line, 0.0, config)?;
    let mut train = TrainSpec::new(|g| points(g, -1), Some(1000));
    let hook = stop_if_no_decrease_hook(&model, "loss", 10).run_every(Every::Steps(1));
    train.hooks.push(Box::new(hook));
    let measured = train_and_evaluate(&model, train, EvalSpec::new(|g| points(g, 1)))?.unwrap();
    assert!((15..=25).contains(&measured.global_step()?), "{measured}");
    assert!(model.get_variable_names()?.contains(&"signal_early_stopping/STOP".to_owned()));
    assert_eq!(latest_checkpoint(model.model_dir())?, model.latest_checkpoint()?);
    Ok(())
}
