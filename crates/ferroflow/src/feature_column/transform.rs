//! [`Transformations`]: a cache of the tensors that columns compute from features.

use super::features::{Feature, Features, SparseTensor};
use super::numeric::{ColumnId, NumericColumn};
use crate::compose::{cast, concat, expand_dims, int, ints, node, reshape, shape_of};
use crate::variable::named_constant;
use graph::{Graph, Output};
use std::collections::HashMap;
use tensor::{DType, PartialShape, Result, Status, Tensor};

/// The ids of a categorical column, and their weights.
#[derive(Clone)]
pub(super) struct IdsAndWeights {
    pub(super) ids: SparseTensor,
    pub(super) weights: Option<SparseTensor>,
}

/// The tensors computed from the features so far.
pub(super) struct Transformations<'a> {
    features: &'a Features,
    raw: HashMap<String, Feature>,
    numbers: HashMap<ColumnId, Output>,
    pub(super) ids: HashMap<ColumnId, IdsAndWeights>,
}

impl<'a> Transformations<'a> {
    pub(super) fn new(features: &'a Features) -> Transformations<'a> {
        Transformations { features, raw: HashMap::new(), numbers: HashMap::new(), ids: HashMap::new() }
    }

    /// Returns a feature with at least two axes: one with a single value in each row gets a second axis.
    pub(super) fn feature(&mut self, key: &str) -> Result<Feature> {
        if let Some(feature) = self.raw.get(key) {
            return Ok(feature.clone());
        }
        let feature = self.features.get(key).ok_or_else(|| {
            let names: Vec<&str> = self.features.names().collect();
            Status::invalid_argument(format!(
                "Feature {key} is not in features dictionary, which has: {}",
                names.join(", ")
            ))
        })?;
        let feature = match feature {
            Feature::Dense(values) => Feature::Dense(as_rows(key, values)?),
            Feature::Sparse(sparse) => Feature::Sparse(sparse_as_rows(key, sparse)?),
        };
        self.raw.insert(key.to_owned(), feature.clone());
        Ok(feature)
    }

    /// Returns a feature as a sparse tensor. In a dense feature, values that mean "missing" are left out: empty strings and -1,
    /// or `ignored`.
    pub(super) fn sparse(&mut self, key: &str, ignored: Option<f64>) -> Result<SparseTensor> {
        match self.feature(key)? {
            Feature::Sparse(sparse) => Ok(sparse),
            Feature::Dense(values) => to_sparse(&values, ignored),
        }
    }

    /// Returns the numbers of a column, normalized if it has a normalizer.
    pub(super) fn numbers(&mut self, column: &NumericColumn) -> Result<Output> {
        if let Some(numbers) = self.numbers.get(&column.id) {
            return Ok(numbers.clone());
        }
        let key = &column.key;
        let Feature::Dense(values) = self.feature(key)? else {
            return Err(Status::invalid_argument(format!(
                "The corresponding Tensor of numerical column must be a Tensor. SparseTensor is not supported. key: {key}"
            )));
        };
        if !values.dtype().is_floating() && !values.dtype().is_integer() && values.dtype() != DType::Bool {
            return Err(Status::invalid_argument(format!(
                "column {key} is numeric, but its feature has type {}",
                values.dtype()
            )));
        }
        let normalized = match &column.normalizer {
            Some(normalizer) => normalizer(&values),
            None => values,
        };
        check_row(key, &normalized, column.num_elements())?;
        let numbers = cast(&normalized, DType::Float)?;
        self.numbers.insert(column.id, numbers.clone());
        Ok(numbers)
    }
}

/// Fails if a row is known not to have the number of values that a column expects.
fn check_row(key: &str, values: &Output, num_elements: i64) -> Result<()> {
    let shape = values.shape();
    let Some(rank) = shape.rank().filter(|&rank| rank > 0) else { return Ok(()) };
    match shape.slice(1, rank).num_elements() {
        Some(found) if found != num_elements => Err(Status::invalid_argument(format!(
            "column {key} has {num_elements} numbers in a row, and its feature has the shape {shape}"
        ))),
        _ => Ok(()),
    }
}

/// Adds a second axis if there is only one.
fn as_rows(key: &str, values: &Output) -> Result<Output> {
    match values.shape().rank() {
        Some(0) => Err(no_rank_0(key)),
        Some(1) => expand_dims(values, -1),
        Some(_) => Ok(values.clone()),
        None => {
            let shape = shape_of(values)?;
            node("Reshape", &[values, &concat(&[&shape, &second_axis(values)?], 0)?])
        }
    }
}

/// Appends the size of a second axis to a shape with one axis; leaves other shapes unchanged.
fn second_axis(x: &Output) -> Result<Output> {
    let graph = x.graph();
    let is_vector = node("Equal", &[&node("Rank", &[x])?, &int(graph, 1)])?;
    let count = expand_dims(&cast(&is_vector, DType::Int32)?, 0)?;
    node("Fill", &[&count, &int(graph, 1)])
}

fn sparse_as_rows(key: &str, sparse: &SparseTensor) -> Result<SparseTensor> {
    let SparseTensor { indices, values, dense_shape } = sparse;
    let rank = dense_shape.shape().dim(0).or_else(|| indices.shape().dim(1));
    let new_shape = match rank {
        Some(0) => return Err(no_rank_0(key)),
        Some(1) => concat(&[&cast(dense_shape, DType::Int64)?, &vector(dense_shape.graph(), &[1])], 0)?,
        Some(_) => return Ok(sparse.clone()),
        None => {
            let graph = dense_shape.graph();
            let rank = node("Size", &[dense_shape])?;
            let is_vector = cast(&node("Equal", &[&rank, &int(graph, 1)])?, DType::Int32)?;
            let ones = node("Fill", &[&expand_dims(&is_vector, 0)?, &long(graph, 1)])?;
            concat(&[dense_shape, &ones], 0)?
        }
    };
    reshaped(&SparseTensor { values: values.clone(), ..sparse.clone() }, &new_shape)
}

fn no_rank_0(key: &str) -> Status {
    Status::invalid_argument(format!("Feature (key: {key}) cannot have rank 0."))
}

/// Adds a vector of `int64`.
pub(super) fn vector(graph: &Graph, values: &[i64]) -> Output {
    named_constant(graph, "Const", &Tensor::vector(values))
}

/// Adds a number of type `int64`.
pub(super) fn long(graph: &Graph, value: i64) -> Output {
    named_constant(graph, "Const", &Tensor::scalar(value))
}

/// Adds the same values in another shape.
pub(super) fn reshaped(sparse: &SparseTensor, new_shape: &Output) -> Result<SparseTensor> {
    let graph = sparse.indices.graph();
    let op = graph.op("SparseReshape").input(&sparse.indices).input(&sparse.dense_shape).input(new_shape);
    let op = op.try_build()?;
    Ok(SparseTensor { indices: op.output(0), values: sparse.values.clone(), dense_shape: op.output(1) })
}

/// Adds a selection of the values for which a boolean vector is true.
pub(super) fn retained(sparse: &SparseTensor, stays: &Output) -> Result<SparseTensor> {
    let graph = stays.graph();
    let places = reshape(&node("Where", &[stays])?, &[-1])?;
    let zero = int(graph, 0);
    Ok(SparseTensor {
        indices: node("GatherV2", &[&sparse.indices, &places, &zero])?,
        values: node("GatherV2", &[&sparse.values, &places, &zero])?,
        dense_shape: sparse.dense_shape.clone(),
    })
}

/// Adds the values of a dense tensor that aren't missing.
fn to_sparse(values: &Output, ignored: Option<f64>) -> Result<SparseTensor> {
    let graph = values.graph();
    graph.name_scope("to_sparse_input", |graph| {
        let ignored = match values.dtype() {
            DType::String => named_constant(graph, "ignore_value", &Tensor::string("")),
            dtype => {
                let missing = if dtype.is_integer() { -1.0 } else { 0.0 };
                cast(&number(graph, ignored.unwrap_or(missing)), dtype)?
            }
        };
        let indices = node("Where", &[&node("NotEqual", &[values, &ignored])?])?;
        let there = node("GatherNd", &[values, &indices])?;
        let op = graph.op("Shape").name("dense_shape").input(values).attr("out_type", DType::Int64);
        Ok(SparseTensor { indices, values: there, dense_shape: op.try_build()?.output(0) })
    })
}

fn number(graph: &Graph, value: f64) -> Output {
    named_constant(graph, "Const", &Tensor::scalar(value as f32))
}

/// Adds a reshape of a batch to rows of a fixed number of values.
pub(super) fn flat_rows(values: &Output, num_elements: i64) -> Result<Output> {
    let columns = i32::try_from(num_elements)
        .map_err(|_| Status::invalid_argument(format!("{num_elements} numbers in a row are too many")))?;
    let rows = values.shape().dim(0).and_then(|rows| i32::try_from(rows).ok());
    let flat = match rows {
        Some(rows) => reshape(values, &[rows, columns])?,
        None => {
            let graph = values.graph();
            let batch = crate::compose::rows(&shape_of(values)?, 0, Some(1))?;
            node("Reshape", &[values, &concat(&[&batch, &ints(graph, &[columns])], 0)?])?
        }
    };
    let shape = PartialShape::new(&[rows.map(i64::from), Some(num_elements)]);
    flat.set_shape(&shape)?;
    Ok(flat)
}
