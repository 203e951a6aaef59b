//! A canned estimator: a network that tells incomes apart, trained and evaluated, alone or as the task that `TF_CONFIG` names.
//!
//!     cargo run --release --example estimator -- --model_dir=/tmp/income
//!     ferroflow run --ps 1 --workers 2 --evaluator -- target/release/examples/estimator --model_dir=/tmp/income

use ferroflow::Result;
use ferroflow::data::census::{Census, FEATURES, Rows};
use ferroflow::estimator::*;
use ferroflow::feature_column::*;
use ferroflow::flags::Flags;
use ferroflow::prelude::*;

fn input(g: &Graph, rows: &Rows, times: i64) -> Input {
    let rows = rows.dataset(g).repeat(times).shuffle(10_000, Some(1), true).batch(100, false);
    Input::new(&rows, &FEATURES).label()
}

/// Trains; returns what the last evaluation measured, where this process evaluates, and the exported model.
pub fn train(flags: &Flags) -> Result<Option<Evaluation>> {
    let Census { train, test } = Census::builtin()?;
    let numbers = ["age", "education_num", "hours_per_week"].map(|name| numeric_column(name).into());
    let occupation = categorical_column_with_hash_bucket("occupation", 100);
    let columns = [&numbers[..], &[embedding_column(&occupation, 8).into()]].concat();
    let config = RunConfig::from_env(&flags.text("model_dir", "/tmp/income"))?;
    let model = DNNClassifier::new(&[32, 16], &columns).build(config)?;

    let serving = build_raw_serving_input_receiver_fn(&[
        ("age", DType::Float, [-1].into()),
        ("education_num", DType::Float, [-1].into()),
        ("hours_per_week", DType::Float, [-1].into()),
        ("occupation", DType::String, [-1].into()),
    ]);
    let train = TrainSpec::new(move |g| input(g, &train, -1), Some(flags.get("train_steps", 1000)?));
    let mut eval = EvalSpec { steps: None, ..EvalSpec::new(move |g| input(g, &test, 1)) };
    eval.exporters.push(Box::new(BestExporter::new("best", serving)));
    train_and_evaluate(&model, train, eval)
}

pub fn main() -> Result<()> {
    if let Some(measured) = train(&Flags::from_env())? {
        println!("{measured}");
    }
    Ok(())
}
