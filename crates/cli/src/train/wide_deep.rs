//! Wide and deep: a linear model of crossed columns combined with a network, on the Adult census rows.

use super::flags::Flags;
use super::recipe::{Part, Recipe, Training, WithHistograms};
use crate::Failure;
use ferroflow::Result;
use ferroflow::data::census::{Census, FEATURES};
use ferroflow::estimator::{
    DNNLinearCombinedClassifier, Estimator, Input, InputFn, RunConfig, ServingInputFn,
    build_raw_serving_input_receiver_fn,
};
use ferroflow::feature_column::{
    CrossKey, FeatureColumn, Normalizer, bucketized_column, categorical_column_with_hash_bucket,
    categorical_column_with_vocabulary_list, crossed_column, embedding_column, indicator_column, numeric_column,
};
use ferroflow::prelude::*;
use ferroflow::train::{AdagradOptimizer, FtrlOptimizer};
use std::sync::Arc;

/// The boundaries of the buckets of ages.
const AGES: [f32; 10] = [18.0, 25.0, 30.0, 35.0, 40.0, 45.0, 50.0, 55.0, 60.0, 65.0];

/// The features with few different words, and the numbers of buckets that they are hashed into.
const WORDS: [(&str, i64); 4] = [("workclass", 40), ("education", 60), ("marital_status", 30), ("relationship", 30)];

/// The number of rows that are evaluated in one step.
const EVALUATED: i64 = 1000;

/// Census rows, and a model that predicts who has an income above 50,000 dollars.
pub struct CensusRecipe {
    census: Census,
    batch_size: i64,
}

impl CensusRecipe {
    /// Reads the rows.
    pub fn read(flags: &Flags) -> Result<CensusRecipe, Failure> {
        let census = match &flags.data_dir {
            Some(directory) => Census::from_dir(directory)?,
            None => Census::builtin()?,
        };
        Ok(CensusRecipe { census, batch_size: flags.batch_size as i64 })
    }
}

impl Recipe for CensusRecipe {
    fn data(&self) -> (&'static str, usize, usize) {
        ("rows", self.census.train.len(), self.census.test.len())
    }

    fn estimator(&self, part: &Part, config: RunConfig) -> Result<Estimator> {
        estimator(&part.flags, config)
    }

    fn training(&self, _task: u32) -> Training {
        let (rows, batch_size) = (self.census.train.clone(), self.batch_size);
        let input: InputFn = Arc::new(move |g| {
            let count = rows.len() as i64;
            let rows = rows.dataset(g).shuffle(count, None, true).repeat(-1).batch(batch_size, true).prefetch(2);
            Input::new(&rows, &FEATURES).label()
        });
        Training { input, batches: None }
    }

    fn testing(&self) -> Result<InputFn> {
        let rows = self.census.test.clone();
        Ok(Arc::new(move |g| Input::new(&rows.dataset(g).batch(EVALUATED, false), &FEATURES).label()))
    }

    fn serving(&self) -> ServingInputFn {
        let dtype = |index: usize| if index < 5 { DType::Float } else { DType::String };
        let features: Vec<(&str, DType, PartialShape)> =
            FEATURES.iter().enumerate().map(|(index, name)| (*name, dtype(index), PartialShape::from([-1]))).collect();
        build_raw_serving_input_receiver_fn(&features)
    }
}

fn estimator(flags: &Flags, config: RunConfig) -> Result<Estimator> {
    let age = numeric_column("age");
    let ages = bucketized_column(&age, &AGES);
    let words = WORDS.map(|(name, buckets)| categorical_column_with_hash_bucket(name, buckets));
    let gender = categorical_column_with_vocabulary_list("gender", ["Male", "Female"]);
    let occupation = categorical_column_with_hash_bucket("occupation", 1000);
    let mut wide: Vec<FeatureColumn> = words.iter().map(|column| column.clone().into()).collect();
    wide.extend([gender.clone().into(), occupation.clone().into(), ages.clone().into()]);
    wide.push(crossed_column(["education", "occupation"], 1000).into());
    wide.push(crossed_column([CrossKey::from(&ages), "education".into(), "occupation".into()], 1000).into());
    // Gains reach a hundred thousand, but most are zero: only the number of their digits is informative.
    let logarithm: Normalizer = Arc::new(|x| (x + 1.0).log());
    let mut deep: Vec<FeatureColumn> = vec![age.into()];
    deep.extend(["education_num", "hours_per_week"].map(|name| numeric_column(name).into()));
    deep.extend(["capital_gain", "capital_loss"].map(|name| numeric_column(name).normalizer(logarithm.clone()).into()));
    deep.extend(words.iter().chain([&gender]).map(|column| indicator_column(column).into()));
    deep.push(embedding_column(&occupation, 8).into());

    let mut model = DNNLinearCombinedClassifier::new(&wide, &deep, &[flags.hidden_units, 75, 50, 25]);
    let rate = flags.rate();
    model.linear.optimizer = Some(Arc::new(move || Box::new(WithHistograms(FtrlOptimizer::new(rate)))));
    model.dnn.optimizer = Some(Arc::new(move || Box::new(WithHistograms(AdagradOptimizer::new(rate)))));
    model.build(config)
}
