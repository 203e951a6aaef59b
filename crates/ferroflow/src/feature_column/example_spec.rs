//! Parsing of serialized examples for columns: [`make_parse_example_spec`] returns the features that columns need, and
//! [`parse_example`] parses them.

use super::categorical::{CategoricalColumn, CrossKey, Kind, Words};
use super::column::FeatureColumn;
use super::features::{Feature, Features, SparseTensor};
use super::numeric::NumericColumn;
use crate::kept::kept_as;
use bytes::Bytes;
use graph::{Graph, Output};
use std::collections::BTreeMap;
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// How a feature is parsed.
///
/// ```
/// use ferroflow::DType;
/// use ferroflow::feature_column::FeatureSpec;
///
/// let label = FeatureSpec::FixedLen { dims: vec![], dtype: DType::Int64, default: None };
/// assert_ne!(label, FeatureSpec::VarLen(DType::Int64));
/// ```
#[derive(Clone, Debug)]
pub enum FeatureSpec {
    /// Every example has a fixed number of values.
    FixedLen {
        /// The shape.
        dims: Vec<i64>,
        /// The type.
        dtype: DType,
        /// The value for examples that lack the feature, in its shape; without a default, the feature is required.
        default: Option<Tensor>,
    },
    /// Examples have any number of values; the result is sparse.
    VarLen(DType),
}

impl PartialEq for FeatureSpec {
    fn eq(&self, other: &FeatureSpec) -> bool {
        let texts = |default: &Option<Tensor>| default.as_ref().map(|default| format!("{default:?}"));
        match (self, other) {
            (FeatureSpec::VarLen(one), FeatureSpec::VarLen(two)) => one == two,
            (
                FeatureSpec::FixedLen { dims, dtype, default },
                FeatureSpec::FixedLen { dims: other_dims, dtype: other_dtype, default: other_default },
            ) => dims == other_dims && dtype == other_dtype && texts(default) == texts(other_default),
            _ => false,
        }
    }
}

/// Describes how examples are parsed: a [`FeatureSpec`] for each feature.
///
/// ```
/// use ferroflow::DType;
/// use ferroflow::feature_column::{FeatureSpec, ParseExampleSpec};
///
/// let mut spec = ParseExampleSpec::new();
/// spec.insert("words".to_owned(), FeatureSpec::VarLen(DType::String));
/// ```
pub type ParseExampleSpec = BTreeMap<String, FeatureSpec>;

/// Returns how examples are parsed for columns, as `tf.feature_column.make_parse_example_spec` does. The program adds its label.
///
/// ```
/// use ferroflow::DType;
/// use ferroflow::feature_column::*;
///
/// let cross = crossed_column(["country", "city"], 100);
/// let spec = make_parse_example_spec(&[numeric_column("age").into(), cross.into()])?;
/// assert_eq!(spec.keys().collect::<Vec<_>>(), ["age", "city", "country"]);
/// assert_eq!(spec["age"], FeatureSpec::FixedLen { dims: vec![1], dtype: DType::Float, default: None });
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn make_parse_example_spec(columns: &[FeatureColumn]) -> Result<ParseExampleSpec> {
    let mut spec = ParseExampleSpec::new();
    for column in columns {
        column.check()?;
        match column {
            FeatureColumn::Numeric(column) => numbers(&mut spec, column)?,
            FeatureColumn::SequenceNumeric(column) => {
                let (key, dtype) = column.key_and_type();
                add(&mut spec, key, FeatureSpec::VarLen(dtype))?;
            }
            FeatureColumn::Categorical(_) | FeatureColumn::Embedding(_) | FeatureColumn::Indicator(_) => {
                if let Some(column) = column.categorical() {
                    ids(&mut spec, column)?;
                }
            }
        }
    }
    Ok(spec)
}

fn add(spec: &mut ParseExampleSpec, key: &str, feature: FeatureSpec) -> Result<()> {
    match spec.get(key) {
        Some(known) if *known != feature => Err(Status::invalid_argument(format!(
            "feature_columns contain different parse_spec for key {key}. Given {feature:?} and {known:?}"
        ))),
        Some(_) => Ok(()),
        None => {
            spec.insert(key.to_owned(), feature);
            Ok(())
        }
    }
}

fn numbers(spec: &mut ParseExampleSpec, column: &NumericColumn) -> Result<()> {
    let (dims, dtype, default) = (column.dims.clone(), column.dtype, column.default_tensor()?);
    add(spec, &column.key, FeatureSpec::FixedLen { dims, dtype, default })
}

fn ids(spec: &mut ParseExampleSpec, column: &CategoricalColumn) -> Result<()> {
    match &*column.kind {
        Kind::Identity { key, .. } => add(spec, key, FeatureSpec::VarLen(DType::Int64)),
        Kind::Hashed { key, dtype, .. } => add(spec, key, FeatureSpec::VarLen(*dtype)),
        Kind::Vocabulary { key, words, options } => {
            let dtype = match words {
                Words::List(words) => words.as_ref().map_err(Clone::clone)?.dtype(),
                Words::File { .. } => options.dtype,
            };
            add(spec, key, FeatureSpec::VarLen(if dtype == DType::String { dtype } else { DType::Int64 }))
        }
        Kind::Bucketized { source, .. } => numbers(spec, source),
        Kind::Crossed { keys, .. } => keys.iter().try_for_each(|key| match key {
            CrossKey::Feature(key) => add(spec, key, FeatureSpec::VarLen(DType::String)),
            CrossKey::Column(column) => ids(spec, column),
        }),
        Kind::Weighted { column, weights, dtype } => {
            ids(spec, column)?;
            add(spec, weights, FeatureSpec::VarLen(*dtype))
        }
    }
}

/// Adds the parsed features of a vector of serialized examples.
///
/// In a pipeline, draw batches of examples and parse each batch:
///
/// ```
/// use ferroflow::data::example::ExampleWriter;
/// use ferroflow::data::{Dataset, RecordOptions};
/// use ferroflow::feature_column::*;
/// use ferroflow::prelude::*;
/// # let directory = tempfile::tempdir().unwrap();
///
/// let path = directory.path().join("people.tfrecord");
/// let mut writer = ExampleWriter::create(&path)?;
/// writer.write([("age", 25f32.into()), ("job", "smith".into())])?;
/// writer.close()?;
///
/// let g = Graph::new();
/// let job = categorical_column_with_vocabulary_list("job", ["cook", "smith"]);
/// let columns = [numeric_column("age").into(), indicator_column(&job).into()];
/// let records = Dataset::tf_records(&g, &[path.to_str().unwrap()], &RecordOptions::default()).batch(32, false);
/// let next = records.make_one_shot_iterator().get_next();
/// let features = parse_example(&next[0], &make_parse_example_spec(&columns)?);
/// let first_layer = input_layer(&features, &columns);
///
/// let session = Session::new(&g)?;
/// session.run_ops(&[&g.collection("table_initializer")[0].op])?;
/// assert_eq!(session.run(&[&first_layer])?[0].to_vec::<f32>()?, [25.0, 0.0, 1.0]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn parse_example(serialized: &Output, spec: &ParseExampleSpec) -> Features {
    let instead = |instead: &Output| spec.keys().map(|key| (key.as_str(), instead)).collect();
    kept_as("parse_example", &[serialized], || parsed(serialized, spec), instead)
}

fn parsed(serialized: &Output, spec: &ParseExampleSpec) -> Result<Features> {
    let graph = serialized.graph();
    let (mut sparse, mut sparse_types) = (Vec::new(), Vec::new());
    let (mut dense, mut dense_types, mut shapes, mut defaults) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (key, feature) in spec {
        match feature {
            FeatureSpec::VarLen(dtype) => {
                sparse.push(key);
                sparse_types.push(*dtype);
            }
            FeatureSpec::FixedLen { dims, dtype, default } => {
                dense.push(key);
                dense_types.push(*dtype);
                shapes.push(PartialShape::from(&Shape::new(dims)?));
                defaults.push(match default {
                    Some(default) => graph.constant_tensor(default),
                    None => graph.constant_tensor(&Tensor::zeros(*dtype, Shape::vector(0))?),
                });
            }
        }
    }
    let none: &[DType] = &[];
    let op = graph.op("ParseExampleV2").input(serialized).input(&keys(graph, &[])?);
    let op = op.input(&keys(graph, &sparse)?).input(&keys(graph, &dense)?).input(&keys(graph, &[])?).inputs(&defaults);
    let op = op.attr("Tdense", &dense_types[..]).attr("num_sparse", sparse.len() as i64);
    let op = op.attr("sparse_types", &sparse_types[..]).attr("dense_shapes", &shapes[..]);
    let op = op.attr("ragged_value_types", none).attr("ragged_split_types", none).try_build()?;
    let count = sparse.len() as u32;
    let mut features = Features::new();
    for (index, key) in (0..).zip(sparse) {
        let (indices, values) = (op.output(index), op.output(count + index));
        features.insert(key, SparseTensor { indices, values, dense_shape: op.output(2 * count + index) });
    }
    for (index, key) in (0..).zip(dense) {
        features.insert(key, Feature::Dense(op.output(3 * count + index)));
    }
    Ok(features)
}

fn keys(graph: &Graph, keys: &[&String]) -> Result<Output> {
    let texts = keys.iter().map(|&key| Bytes::from(key.clone())).collect();
    Ok(graph.constant_tensor(&Tensor::from_strings(Shape::vector(keys.len()), texts)?))
}
