//! Wide and deep: a linear model over crossed columns beside a network, on the Adult census rows, on one machine or a cluster.
//!
//!     cargo run --release --example wide_deep -- --model_dir=/tmp/census
//!     ferroflow run --ps 1 --workers 2 --evaluator -- target/release/examples/wide_deep --model_dir=/tmp/census

use ferroflow::Result;
use ferroflow::data::census::{Census, FEATURES};
use ferroflow::estimator::{
    DNNLinearCombinedClassifier, EvalSpec, Evaluation, Input, RunConfig, TrainSpec, train_and_evaluate,
};
use ferroflow::feature_column::*;
use ferroflow::flags::Flags;
use ferroflow::prelude::*;
use ferroflow::train::{AdagradOptimizer, Every, FtrlOptimizer};
use std::sync::Arc;

const WORKCLASSES: [&str; 9] = [
    "Self-emp-not-inc",
    "Private",
    "State-gov",
    "Federal-gov",
    "Local-gov",
    "?",
    "Self-emp-inc",
    "Without-pay",
    "Never-worked",
];
const EDUCATIONS: [&str; 16] = [
    "Bachelors",
    "HS-grad",
    "11th",
    "Masters",
    "9th",
    "Some-college",
    "Assoc-acdm",
    "Assoc-voc",
    "7th-8th",
    "Doctorate",
    "Prof-school",
    "5th-6th",
    "10th",
    "1st-4th",
    "Preschool",
    "12th",
];
const MARITAL_STATUSES: [&str; 7] = [
    "Married-civ-spouse",
    "Divorced",
    "Married-spouse-absent",
    "Never-married",
    "Separated",
    "Married-AF-spouse",
    "Widowed",
];
const RELATIONSHIPS: [&str; 6] = ["Husband", "Not-in-family", "Wife", "Own-child", "Unmarried", "Other-relative"];
const AGES: [f32; 10] = [18.0, 25.0, 30.0, 35.0, 40.0, 45.0, 50.0, 55.0, 60.0, 65.0];

/// Returns the columns of the linear model and those of the network.
fn columns() -> (Vec<FeatureColumn>, Vec<FeatureColumn>) {
    let age = numeric_column("age");
    let ages = bucketized_column(&age, &AGES);
    let workclass = categorical_column_with_vocabulary_list("workclass", WORKCLASSES);
    let education = categorical_column_with_vocabulary_list("education", EDUCATIONS);
    let marital_status = categorical_column_with_vocabulary_list("marital_status", MARITAL_STATUSES);
    let relationship = categorical_column_with_vocabulary_list("relationship", RELATIONSHIPS);
    let occupation = categorical_column_with_hash_bucket("occupation", 1000);
    let wide = vec![
        education.clone().into(),
        marital_status.clone().into(),
        relationship.clone().into(),
        workclass.clone().into(),
        occupation.clone().into(),
        ages.clone().into(),
        crossed_column(["education".into(), CrossKey::from("occupation")], 1000).into(),
        crossed_column([CrossKey::from(&ages), "education".into(), "occupation".into()], 1000).into(),
    ];
    // Gains reach a hundred thousand, and are mostly none: only how many digits they have says something.
    let logarithm: Normalizer = Arc::new(|x| (x + 1.0).log());
    let mut deep = vec![
        age.into(),
        numeric_column("education_num").into(),
        numeric_column("capital_gain").normalizer(logarithm.clone()).into(),
        numeric_column("capital_loss").normalizer(logarithm).into(),
        numeric_column("hours_per_week").into(),
    ];
    deep.extend(
        [workclass, education, marital_status, relationship].iter().map(|column| indicator_column(column).into()),
    );
    deep.push(embedding_column(&occupation, 8).into());
    (wide, deep)
}

/// Trains as the task that `TF_CONFIG` names, or alone; returns the last evaluation of the task that evaluates.
pub fn train(flags: &Flags) -> Result<Option<Evaluation>> {
    let census = match flags.text("data_dir", "") {
        directory if directory.is_empty() => Census::builtin()?,
        directory => Census::from_dir(directory)?,
    };
    let (wide, deep) = columns();
    let mut model = DNNLinearCombinedClassifier::new(&wide, &deep, &[100, 75, 50, 25]);
    model.linear.optimizer = Some(Arc::new(|| Box::new(FtrlOptimizer::new(0.05))));
    model.dnn.optimizer = Some(Arc::new(|| Box::new(AdagradOptimizer::new(0.05))));
    let config = RunConfig {
        save_checkpoints: Some(Every::Steps(1000)),
        tf_random_seed: Some(1),
        ..RunConfig::from_env(&flags.text("model_dir", "/tmp/census"))?
    };
    let model = model.build(config)?;
    let (rows, tested) = (census.train, census.test);
    let train = move |g: &Graph| {
        let rows = rows.dataset(g).shuffle(33_000, Some(1), true).repeat(-1).batch(100, true).prefetch(2);
        Input::new(&rows, &FEATURES).label()
    };
    let test = move |g: &Graph| Input::new(&tested.dataset(g).batch(1000, false), &FEATURES).label();
    let eval = EvalSpec { steps: None, ..EvalSpec::new(test) };
    train_and_evaluate(&model, TrainSpec::new(train, Some(flags.get("train_steps", 3000)?)), eval)
}

pub fn main() -> Result<()> {
    if let Some(measured) = train(&Flags::from_env())? {
        println!("step {}: test AUC {:.4}", measured.global_step()?, measured.get("auc")?);
        println!("test accuracy {:.1} %", 100.0 * measured.get("accuracy")?);
    }
    Ok(())
}
