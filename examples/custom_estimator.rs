//! An estimator with a model function of its own: layers, a loss and metrics, trained, evaluated and asked.
//!
//!     cargo run --release --example custom_estimator

use ferroflow::Result;
use ferroflow::data::census::{Census, FEATURES, Rows};
use ferroflow::estimator::*;
use ferroflow::flags::Flags;
use ferroflow::layers::{Activation, Apply, Dense};
use ferroflow::losses::{self, Labels, Logits, Predictions};
use ferroflow::metrics;
use ferroflow::prelude::*;
use ferroflow::train::AdamOptimizer;
use ferroflow::variable::get_global_step;

/// What the model function is told.
struct Params {
    hidden_units: i64,
    learning_rate: f64,
}

fn model(features: &Features, labels: Option<&Output>, mode: Mode, params: &Params) -> Result<EstimatorSpec> {
    let numbers = [("age", 0.02), ("education_num", 0.1), ("hours_per_week", 0.02)];
    let mut columns = Vec::new();
    for (name, scale) in numbers {
        columns.push((features.dense(name)? * scale).expand_dims(-1));
    }
    let x = columns[0].concat(&columns[1], 1).concat(&columns[2], 1);
    let hidden = x.apply(&Dense::new(params.hidden_units).activation(Activation::Tanh));
    let logits = hidden.apply(&Dense::new(2));
    let classes = logits.argmax(1);
    let spec = EstimatorSpec::new(mode).prediction("class", &classes).prediction("probabilities", &logits.softmax());
    let Some(labels) = labels else { return Ok(spec) };

    let loss = losses::sparse_softmax_cross_entropy(Labels(labels), Logits(&logits)).build();
    let accuracy = metrics::accuracy(Labels(labels), Predictions(&classes)).build();
    let step = get_global_step(loss.graph())?;
    let train = AdamOptimizer::new(params.learning_rate).minimize(&loss, step.as_ref())?;
    Ok(spec.loss(&loss).train_op(&train).eval_metric("accuracy", accuracy))
}

fn input(g: &Graph, rows: &Rows, times: i64) -> Input {
    Input::new(&rows.dataset(g).repeat(times).batch(100, false), &FEATURES).label()
}

/// Trains, evaluates and predicts; returns what was measured.
pub fn train(flags: &Flags) -> Result<Evaluation> {
    let census = Census::builtin()?;
    let params = Params { hidden_units: 16, learning_rate: 0.01 };
    let model = Estimator::new(model, params, RunConfig::from_env(&flags.text("model_dir", "/tmp/custom"))?)?;
    let steps = Some(flags.get("train_steps", 500)?);
    model.train(|g| input(g, &census.train, -1), TrainOptions { steps, ..TrainOptions::default() })?;
    let measured = model.evaluate(|g| input(g, &census.test, 1), EvalOptions::default())?;
    let rows = model.predict(|g| input(g, &census.test, 1), PredictOptions::default())?;
    for row in rows.take(3) {
        let row = row?;
        println!("class {} of {:?}", row["class"].to_scalar::<i64>()?, row["probabilities"].to_vec::<f32>()?);
    }
    Ok(measured)
}

pub fn main() -> Result<()> {
    println!("{}", train(&Flags::from_env())?);
    Ok(())
}
