//! The canned estimators: the names of their variables, and that they learn.

use ferroflow::Result;
use ferroflow::data::Dataset;
use ferroflow::estimator::*;
use ferroflow::feature_column::*;
use ferroflow::prelude::*;

fn columns() -> (Vec<FeatureColumn>, Vec<FeatureColumn>) {
    let (age, job) = (numeric_column("age"), categorical_column_with_vocabulary_list("job", ["cook", "smith"]));
    let wide = vec![bucketized_column(&age, &[1.0, 2.0]).into(), job.clone().into()];
    (wide, vec![age.into(), embedding_column(&job, 2).into()])
}

/// Rows whose label says whether the age is above 1.5.
fn rows(g: &Graph, times: i64) -> Input {
    let ages = [0.5f32, 1.8, 2.5, 1.2];
    let rows = Dataset::from_tensor_slices(g, (ages, ["cook", "smith", "clerk", "smith"], [0i64, 1, 1, 0]));
    Input::new(&rows.repeat(times).batch(4, true), &["age", "job"]).label()
}

/// Trains and evaluates; returns the names of the variables but for the global step, and what was measured.
fn trained(build: impl FnOnce(RunConfig) -> Result<Estimator>, steps: i64) -> Result<(Vec<String>, Evaluation)> {
    let directory = tempfile::tempdir().unwrap();
    let config = RunConfig { tf_random_seed: Some(7), ..RunConfig::new(directory.path().to_str().unwrap()) };
    let model = build(config)?;
    model.train(|g| rows(g, -1), TrainOptions { steps: Some(steps), ..TrainOptions::default() })?;
    let mut names = model.get_variable_names()?;
    names.retain(|name| name != "global_step");
    let measured = model.evaluate(|g| rows(g, 1), EvalOptions::default())?;
    assert_eq!(measured.global_step()?, steps);
    Ok((names, measured))
}

fn with_slots(variables: &[&str], slots: &[&str]) -> Vec<String> {
    let names = variables.iter().flat_map(|name| {
        std::iter::once((*name).to_owned()).chain(slots.iter().map(move |slot| format!("{name}/{slot}")))
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn a_network() -> Result<()> {
    let (_, deep) = columns();
    let (names, measured) = trained(|config| DNNClassifier::new(&[8, 4], &deep).build(config), 300)?;
    let variables = [
        "dnn/hiddenlayer_0/bias",
        "dnn/hiddenlayer_0/kernel",
        "dnn/hiddenlayer_1/bias",
        "dnn/hiddenlayer_1/kernel",
        "dnn/input_from_feature_columns/input_layer/job_embedding/embedding_weights",
        "dnn/logits/bias",
        "dnn/logits/kernel",
    ];
    assert_eq!(names, with_slots(&variables, &["t_0/Adagrad"]));
    assert!(measured.get("accuracy")? == 1.0, "{measured}");
    let (names, measured) = trained(|config| DNNRegressor::new(&[4], &deep).build(config), 1)?;
    assert!(names.contains(&"dnn/hiddenlayer_0/kernel".to_owned()) && measured.get("label/mean")? == 0.5);
    Ok(())
}

#[test]
fn a_network_with_dropout_and_batch_normalization() -> Result<()> {
    let (_, deep) = columns();
    let mut model = DNNClassifier::new(&[8], &deep);
    (model.dnn.dropout, model.dnn.batch_norm) = (Some(0.2), true);
    let (names, _) = trained(|config| model.build(config), 5)?;
    assert!(names.contains(&"dnn/batchnorm_0/moving_mean".to_owned()), "{names:?}");
    Ok(())
}

#[test]
fn a_linear_model() -> Result<()> {
    let (wide, _) = columns();
    let variables = [
        "linear/linear_model/age_bucketized/weights",
        "linear/linear_model/bias_weights",
        "linear/linear_model/job/weights",
    ];
    let (names, measured) = trained(|config| LinearClassifier::new(&wide).build(config), 100)?;
    assert_eq!(names, with_slots(&variables, &["part_0/Ftrl", "part_0/Ftrl_1"]));
    assert!(measured.get("auc")? > 0.7, "{measured}");
    let (names, _) = trained(|config| LinearRegressor::new(&wide).build(config), 1)?;
    assert_eq!(names, with_slots(&variables, &["part_0/Ftrl", "part_0/Ftrl_1"]));
    Ok(())
}

#[test]
fn both_together() -> Result<()> {
    let (wide, deep) = columns();
    let (names, _) = trained(|config| DNNLinearCombinedClassifier::new(&wide, &deep, &[4]).build(config), 10)?;
    for name in ["dnn/hiddenlayer_0/kernel/Adagrad", "dnn/logits/bias", "linear/linear_model/job/weights/Ftrl_1"] {
        assert!(names.contains(&name.to_owned()), "{names:?}");
    }
    let (names, _) = trained(|config| DNNLinearCombinedRegressor::new(&wide, &[], &[]).build(config), 2)?;
    assert!(names.iter().all(|name| name.starts_with("linear/linear_model/")), "{names:?}");
    let status = trained(|config| DNNLinearCombinedRegressor::new(&[], &[], &[]).build(config), 2).unwrap_err();
    assert!(status.message().contains("neither linear nor network feature columns"), "{status}");
    Ok(())
}

#[test]
fn a_baseline() -> Result<()> {
    let (names, measured) = trained(|config| BaselineClassifier::new().build(config), 20)?;
    assert_eq!(names, with_slots(&["baseline/bias"], &["Ftrl", "Ftrl_1"]));
    assert!((measured.get("prediction/mean")? - 0.5).abs() < 0.05, "{measured}");
    let (_, measured) = trained(|config| BaselineRegressor::new().build(config), 100)?;
    assert!((measured.get("prediction/mean")? - 0.5).abs() < 0.05, "{measured}");
    Ok(())
}

#[test]
fn a_wrong_column_is_blamed_on_the_line_that_made_the_estimator() -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let config = RunConfig::new(directory.path().to_str().unwrap());
    let line = line!() + 1;
    let model = DNNClassifier::new(&[4], &[numeric_column("aeg").into()]).build(config)?;
    let status = model.train(|g| rows(g, 1), TrainOptions::default()).unwrap_err();
    assert!(status.message().contains("Feature aeg is not in features dictionary, which has: age, job"), "{status}");
    assert!(status.message().contains(&format!("estimator_canned.rs:{line}:")), "{status}");
    Ok(())
}
