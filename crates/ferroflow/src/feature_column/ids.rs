//! The ids that categorical columns compute from features.

use super::categorical::{CategoricalColumn, CrossKey, Kind, VocabularyOptions, Words, leaves};
use super::combine::column;
use super::features::{Feature, SparseTensor};
use super::transform::{IdsAndWeights, Transformations, flat_rows, long, reshaped, retained, vector};
use crate::compose::{at, cast, concat, expand_dims, int, node, pack, reduce, reshape, rows, scalar, shape_of};
use crate::lookup::LookupTable;
use graph::Output;
use tensor::{DType, Result, Status};

/// The default key of a cross's hash, which is TensorFlow's.
const DEFAULT_HASH_KEY: i64 = 0xDECAF_CAFFE;

impl Transformations<'_> {
    /// Returns the ids of a column, and their weights.
    pub(super) fn ids(&mut self, column: &CategoricalColumn) -> Result<IdsAndWeights> {
        if let Some(ids) = self.ids.get(&column.id) {
            return Ok(ids.clone());
        }
        let mut made = self.made(column)?;
        if column.is_sequence {
            made = as_sequences(&made)?;
        }
        self.ids.insert(column.id, made.clone());
        Ok(made)
    }

    /// Returns the ids of a column, with all axes except the first flattened to one.
    pub(super) fn ids_as_matrix(&mut self, column: &CategoricalColumn) -> Result<IdsAndWeights> {
        let made = self.ids(column)?;
        let flat = |sparse: &SparseTensor| {
            if sparse.dense_shape.shape().dim(0) == Some(2) {
                return Ok(sparse.clone());
            }
            let shape = &sparse.dense_shape;
            reshaped(sparse, &concat(&[&rows(shape, 0, Some(1))?, &vector(shape.graph(), &[-1])], 0)?)
        };
        Ok(IdsAndWeights { ids: flat(&made.ids)?, weights: made.weights.as_ref().map(flat).transpose()? })
    }

    fn made(&mut self, column: &CategoricalColumn) -> Result<IdsAndWeights> {
        let ids = match &*column.kind {
            Kind::Identity { key, num_buckets, default } => {
                let input = self.sparse(key, None)?;
                identity(key, &input, *num_buckets, *default)?
            }
            Kind::Vocabulary { key, words, options } => {
                let input = self.sparse(key, None)?;
                in_vocabulary(key, &input, words, options)?
            }
            Kind::Hashed { key, num_buckets, dtype } => {
                let input = self.sparse(key, None)?;
                check_type(key, *dtype, input.values.dtype())?;
                let graph = input.values.graph();
                let texts = match dtype {
                    DType::String => input.values.clone(),
                    _ => node("AsString", &[&input.values])?,
                };
                let op = graph.op("StringToHashBucketFast").name("lookup").input(&texts);
                SparseTensor { values: op.attr("num_buckets", *num_buckets).try_build()?.output(0), ..input }
            }
            Kind::Bucketized { source, boundaries } => {
                let numbers = self.numbers(source)?;
                buckets_of_ids(&bucketized(&numbers, boundaries)?, source.num_elements(), boundaries.len() as i64 + 1)?
            }
            Kind::Crossed { keys, num_buckets, hash_key } => {
                self.crossed(keys, *num_buckets, hash_key.filter(|&key| key != 0))?
            }
            Kind::Weighted { column, weights, dtype } => return self.weighted(column, weights, *dtype),
        };
        Ok(IdsAndWeights { ids, weights: None })
    }

    fn weighted(&mut self, column: &CategoricalColumn, key: &str, dtype: DType) -> Result<IdsAndWeights> {
        let weights = self.sparse(key, Some(0.0))?;
        if weights.values.dtype() != dtype {
            return Err(Status::invalid_argument(format!(
                "Bad dtype, expected {dtype}, but got {}: the weights {key} of column {}",
                weights.values.dtype(),
                column.name()
            )));
        }
        let values = match dtype.is_floating() {
            true => weights.values.clone(),
            false => cast(&weights.values, DType::Float)?,
        };
        let ids = self.ids(column)?.ids;
        Ok(IdsAndWeights { ids, weights: Some(SparseTensor { values, ..weights }) })
    }

    fn crossed(&mut self, keys: &[CrossKey], num_buckets: i64, hash_key: Option<i64>) -> Result<SparseTensor> {
        let (mut sparse, mut dense) = (Vec::new(), Vec::new());
        for key in leaves(keys) {
            match key {
                CrossKey::Column(column) => sparse.push(self.ids(column)?.ids),
                CrossKey::Feature(key) => match self.feature(key)? {
                    Feature::Sparse(feature) => sparse.push(feature),
                    Feature::Dense(values) => dense.push(as_text_or_id(&values)?),
                },
            }
        }
        for feature in &mut sparse {
            feature.values = as_text_or_id(&feature.values)?;
        }
        let Some(first) = sparse.first().map(|feature| &feature.values).or(dense.first()) else {
            return Err(Status::invalid_argument("a cross without inputs"));
        };
        let sparse_types: Vec<DType> = sparse.iter().map(|feature| feature.values.dtype()).collect();
        let dense_types: Vec<DType> = dense.iter().map(Output::dtype).collect();
        let has_numbers = sparse_types.iter().chain(&dense_types).any(|&dtype| dtype != DType::String);
        let op = first.graph().op("SparseCross").inputs(sparse.iter().map(|feature| &feature.indices));
        let op = op.inputs(sparse.iter().map(|feature| &feature.values));
        let op = op.inputs(sparse.iter().map(|feature| &feature.dense_shape)).inputs(&dense);
        let op = op.attr("N", sparse.len() as i64).attr("hashed_output", true).attr("num_buckets", num_buckets);
        let op = op.attr("hash_key", hash_key.unwrap_or(DEFAULT_HASH_KEY)).attr("out_type", DType::Int64);
        let op = op.attr("internal_type", if has_numbers { DType::Int64 } else { DType::String });
        let op = op.attr("sparse_types", &sparse_types[..]).attr("dense_types", &dense_types[..]).try_build()?;
        Ok(SparseTensor { indices: op.output(0), values: op.output(1), dense_shape: op.output(2) })
    }
}

/// Adds each number's bucket.
pub(super) fn bucketized(numbers: &Output, boundaries: &[f32]) -> Result<Output> {
    Ok(numbers.graph().op("Bucketize").input(numbers).attr("boundaries", boundaries).try_build()?.output(0))
}

fn as_text_or_id(values: &Output) -> Result<Output> {
    match values.dtype() {
        DType::String => Ok(values.clone()),
        _ => cast(values, DType::Int64),
    }
}

/// Fails unless a column and its feature are both strings or both integers.
fn check_type(key: &str, column: DType, feature: DType) -> Result<()> {
    let fits = (column == DType::String && feature == DType::String) || (column.is_integer() && feature.is_integer());
    match fits {
        true => Ok(()),
        false => Err(Status::invalid_argument(format!(
            "Column dtype and SparseTensors dtype must be compatible. key: {key}, column dtype: {column}, tensor dtype: \
             {feature}"
        ))),
    }
}

fn identity(key: &str, input: &SparseTensor, num_buckets: i64, default: Option<i64>) -> Result<SparseTensor> {
    if !input.values.dtype().is_integer() {
        return Err(Status::invalid_argument(format!(
            "Invalid input, not integer. key: {key} dtype: {}",
            input.values.dtype()
        )));
    }
    let mut values = cast(&input.values, DType::Int64)?;
    if let Some(default) = default {
        let graph = values.graph();
        let below = node("Less", &[&values, &long(graph, 0)])?;
        let above = node("GreaterEqual", &[&values, &long(graph, num_buckets)])?;
        let outside = node("LogicalOr", &[&below, &above])?;
        values = node("SelectV2", &[&outside, &long(graph, default), &values])?;
    }
    Ok(SparseTensor { values, ..input.clone() })
}

fn in_vocabulary(key: &str, input: &SparseTensor, words: &Words, options: &VocabularyOptions) -> Result<SparseTensor> {
    let dtype = match words {
        Words::List(words) => words.as_ref().map_err(Clone::clone)?.dtype(),
        Words::File { .. } => options.dtype,
    };
    check_type(key, dtype, input.values.dtype())?;
    let graph = input.values.graph();
    graph.name_scope(&format!("{}_lookup", scope_name(key)), |graph| {
        let values = as_text_or_id(&input.values)?;
        let default = options.default_value;
        let table = match words {
            Words::List(words) => {
                LookupTable::index_from_words(graph, words.clone()?, options.num_oov_buckets, default)?
            }
            Words::File { path, .. } => {
                let size = words.count(key, options)?;
                LookupTable::index_from_lines(graph, path, size, values.dtype(), options.num_oov_buckets, default)?
            }
        };
        Ok(SparseTensor { values: table.lookup(&values), ..input.clone() })
    })
}

/// Returns a name with characters that scopes allow.
pub(super) fn scope_name(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect()
}

/// Offsets the bucket ids of a row's second number by the number of buckets, and so on.
fn buckets_of_ids(buckets: &Output, width: i64, count: i64) -> Result<SparseTensor> {
    let graph = buckets.graph();
    let buckets = cast(&flat_rows(buckets, width)?, DType::Int64)?;
    let offsets: Vec<i64> = (0..width).map(|number| number.saturating_mul(count)).collect();
    let ids = reshape(&node("AddV2", &[&buckets, &vector(graph, &offsets)])?, &[-1])?;
    let everywhere = node("OnesLike", &[&buckets])?;
    let indices = node("Where", &[&cast(&everywhere, DType::Bool)?])?;
    let op = graph.op("Shape").input(&buckets).attr("out_type", DType::Int64);
    Ok(SparseTensor { indices, values: ids, dense_shape: op.try_build()?.output(0) })
}

/// Reshapes ids to three axes: the batch, time, and the ids at each time.
fn as_sequences(made: &IdsAndWeights) -> Result<IdsAndWeights> {
    let shape = &made.ids.dense_shape;
    let rest = reduce("Prod", &rows(shape, 2, None)?, &[0], false)?;
    let target = pack(&[&at(shape, 0)?, &at(shape, 1)?, &rest])?;
    let weights = made.weights.as_ref().map(|weights| reshaped(weights, &target)).transpose()?;
    Ok(IdsAndWeights { ids: reshaped(&made.ids, &target)?, weights })
}

/// Adds the length of each row's sequence: one more than the last time that has a value, or the last index divided by the number
/// of values per time.
pub(super) fn sequence_length(sparse: &SparseTensor, num_elements: i64) -> Result<Output> {
    let graph = sparse.indices.graph();
    graph.name_scope("sequence_length", |graph| {
        let segments = column(&sparse.indices, 0)?;
        let ends = node("AddV2", &[&column(&sparse.indices, 1)?, &long(graph, 1)])?;
        let longest = node("SegmentMax", &[&ends, &segments])?;
        let per_time = scalar(graph, DType::Double, num_elements as f64)?;
        let times = node("RealDiv", &[&cast(&longest, DType::Double)?, &per_time])?;
        let lengths = cast(&node("Ceil", &[&times])?, DType::Int64)?;
        // Rows at the end of the batch may be empty.
        let batch = at(&cast(&sparse.dense_shape, DType::Int32)?, 0)?;
        let known = at(&shape_of(&lengths)?, 0)?;
        let missing = expand_dims(&node("Sub", &[&batch, &known])?, 0)?;
        concat(&[&lengths, &node("Fill", &[&missing, &long(graph, 0)])?], 0)
    })
}

/// Adds the count of each id, along the last but one axis of the ids.
pub(super) fn indicators(made: &IdsAndWeights, num_buckets: i64) -> Result<Output> {
    let graph = made.ids.indices.graph();
    let depth = i32::try_from(num_buckets)
        .map_err(|_| Status::invalid_argument(format!("{num_buckets} ids are too many for indicators")))?;
    let Some(weights) = &made.weights else {
        let op = graph.op("SparseToDense").input(&made.ids.indices).input(&made.ids.dense_shape);
        let dense = op.input(&made.ids.values).input(&long(graph, -1)).try_build()?.output(0);
        let (on, off) = (scalar(graph, DType::Float, 1.0)?, scalar(graph, DType::Float, 0.0)?);
        let one_hot = node("OneHot", &[&dense, &int(graph, depth), &on, &off])?;
        return reduce("Sum", &one_hot, &[-2], false);
    };
    // Ids outside of the range are not counted.
    let above = node("GreaterEqual", &[&made.ids.values, &long(graph, 0)])?;
    let below = node("Less", &[&made.ids.values, &long(graph, num_buckets)])?;
    let stays = node("LogicalAnd", &[&above, &below])?;
    let ids = retained(&made.ids, &stays)?;
    let weights = retained(weights, &stays)?;
    let row_numbers = expand_dims(&column(&ids.indices, 0)?, -1)?;
    let places = concat(&[&row_numbers, &expand_dims(&ids.values, -1)?], 1)?;
    let batch = rows(&ids.dense_shape, 0, Some(1))?;
    let shape = concat(&[&batch, &vector(graph, &[num_buckets])], 0)?;
    node("ScatterNd", &[&places, &weights.values, &shape])
}
