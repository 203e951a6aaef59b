//! The canned estimators, for the tests that compare them with TensorFlow's: `canned_steps KIND MODEL_DIR STEPS` trains one from the
//! checkpoint that is there, and prints what an evaluation measures.

use ferroflow::Result;
use ferroflow::data::Dataset;
use ferroflow::estimator::*;
use ferroflow::feature_column::*;
use ferroflow::losses::Reduction;
use ferroflow::prelude::*;

const AGES: [f32; 8] = [0.5, 1.8, 2.5, 1.2, 0.1, 2.2, 3.1, 1.4];
const JOBS: [&str; 8] = ["cook", "smith", "clerk", "smith", "cook", "cook", "smith", "clerk"];
const WEIGHTS: [f32; 8] = [1.0, 2.0, 0.5, 1.0, 1.0, 1.5, 0.0, 1.0];
const LABELS: [i64; 8] = [0, 1, 1, 0, 2, 1, 1, 0];

fn rows(g: &Graph, classes: i64, times: i64) -> Input {
    let labels = LABELS.map(|label| label.min(classes - 1));
    let rows = Dataset::from_tensor_slices(g, (AGES, JOBS, WEIGHTS, labels));
    Input::new(&rows.repeat(times).batch(4, true), &["age", "job", "weight"]).label()
}

fn build(kind: &str, config: RunConfig) -> Result<(Estimator, i64)> {
    let (age, job) = (numeric_column("age"), categorical_column_with_vocabulary_list("job", ["cook", "smith"]));
    let wide = [bucketized_column(&age, &[1.0, 2.0]).into(), job.clone().into()];
    let deep = [age.into(), embedding_column(&job, 2).into()];
    let three = || Head::multi_class(3).weight_column("weight");
    let model = match kind {
        "dnn_classifier" => DNNClassifier::new(&[5, 3], &deep).build(config),
        "dnn_three_classes" => DNNClassifier { head: three(), ..DNNClassifier::new(&[5, 3], &deep) }.build(config),
        "dnn_regressor" => DNNRegressor::new(&[4], &deep).build(config),
        "linear_classifier" => {
            let head = Head::binary().loss_reduction(Reduction::SumOverBatchSize);
            LinearClassifier { head, ..LinearClassifier::new(&wide) }.build(config)
        }
        "linear_regressor" => LinearRegressor::new(&wide).build(config),
        "combined_classifier" => DNNLinearCombinedClassifier::new(&wide, &deep, &[4]).build(config),
        "combined_regressor" => DNNLinearCombinedRegressor::new(&wide, &deep, &[4]).build(config),
        "baseline_classifier" => BaselineClassifier { head: three(), ..BaselineClassifier::new() }.build(config),
        "baseline_regressor" => BaselineRegressor::new().build(config),
        _ => Err(Status::invalid_argument(format!("there is no estimator '{kind}'"))),
    }?;
    Ok((model, if kind.contains("three") || kind == "baseline_classifier" { 3 } else { 2 }))
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [kind, directory, steps] = &words[..] else {
        return Err(Status::invalid_argument("canned_steps KIND MODEL_DIR STEPS"));
    };
    let steps = Some(steps.parse().map_err(|_| Status::invalid_argument(format!("'{steps}' is no number of steps")))?);
    let (model, classes) = build(kind, RunConfig::new(directory))?;
    model.train(|g| rows(g, classes, -1), TrainOptions { steps, ..TrainOptions::default() })?;
    let measured = model.evaluate(|g| rows(g, classes, 1), EvalOptions::default())?;
    for name in measured.values.keys() {
        println!("{name} {}", measured.get(name)?);
    }
    Ok(())
}
