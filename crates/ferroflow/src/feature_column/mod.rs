//! Feature columns: they describe how named features become a model's inputs, as `tf.feature_column` does.
//!
//! A column describes how one feature becomes numbers: unchanged, in buckets, by a vocabulary or a hash, crossed with others, or
//! as rows of an embedding. [`input_layer`] concatenates dense columns as the first layer of a network, [`linear_model`] is a
//! linear model of any columns, and [`make_parse_example_spec`] returns how to parse examples for them. Names, shapes and values
//! of the variables are those of `tf.feature_column` and of the canned estimators, so checkpoints are compatible in both
//! directions.
//!
//! ```
//! use ferroflow::feature_column::*;
//! use ferroflow::prelude::*;
//! use ferroflow::train::global_variables_initializer;
//! use ferroflow::variable::global_variables;
//!
//! let g = Graph::new();
//! let age = numeric_column("age");
//! let job = categorical_column_with_vocabulary_list("job", ["cook", "smith"]);
//! let decades = bucketized_column(&age, &[20.0, 30.0, 40.0]);
//! let deep = [age.into(), embedding_column(&job, 3).into()];
//! let wide = [job.clone().into(), crossed_column([CrossKey::from(&decades), "job".into()], 100).into()];
//!
//! let features = Features::new().with("age", g.constant([25f32, 50.0])).with("job", g.constant(["smith", "clerk"]));
//! let first_layer = input_layer(&features, &deep);
//! let logits = linear_model(&features, &wide, LinearModelOptions::default());
//! assert_eq!(first_layer.shape(), [2, 4].into());
//!
//! let names: Vec<String> = global_variables(&g)?.iter().map(Variable::name).collect();
//! assert_eq!(names[0], "input_layer/job_embedding/embedding_weights");
//! assert_eq!(names[1..3], ["linear_model/age_bucketized_X_job/weights", "linear_model/job/weights"]);
//!
//! let session = Session::new(&g)?;
//! session.run_ops(&[&global_variables_initializer(&g)])?;
//! for table in g.collection("table_initializer") {
//!     session.run_ops(&[&table.op])?;
//! }
//! assert_eq!(session.run(&[&logits])?[0].to_vec::<f32>()?, [0.0, 0.0]);
//! # Ok::<(), ferroflow::Status>(())
//! ```
//!
//! A feature may be dense or a [`SparseTensor`]; in a dense one, empty strings and -1 count as missing if the column is
//! categorical.

mod categorical;
mod column;
mod combine;
mod embedding;
mod example_spec;
mod features;
mod ids;
mod input_layer;
mod linear_model;
mod numeric;
mod sequence;
mod sequence_numeric;
mod transform;

pub use categorical::*;
pub use column::FeatureColumn;
pub use combine::Combiner;
pub use embedding::*;
pub use example_spec::*;
pub use features::*;
pub use input_layer::input_layer;
pub use linear_model::{LinearModelOptions, linear_model};
pub use numeric::{Normalizer, NumericColumn, numeric_column};
pub use sequence::*;
pub use sequence_numeric::{SequenceNumericColumn, sequence_numeric_column};
