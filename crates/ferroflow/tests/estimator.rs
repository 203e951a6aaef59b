//! The life of a model: trained, gone on with, evaluated, asked, exported, and ended early.

use ferroflow::data::Dataset;
use ferroflow::estimator::*;
use ferroflow::prelude::*;
use ferroflow::saved_model::SavedModel;
use ferroflow::train::{Every, GradientDescentOptimizer, latest_checkpoint};
use ferroflow::variable::get_global_step;
use ferroflow::{DType, Result};
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
