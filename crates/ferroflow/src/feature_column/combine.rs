//! [`Combiner`]: combines the table rows for the ids of each row of a batch into one.

use super::features::SparseTensor;
use super::transform::{IdsAndWeights, long, reshaped, retained};
use crate::compose::{self, cast, concat, expand_dims, int, ints, node, reshape, scalar, shape_of};
use crate::variable::Variable;
use graph::{Graph, Output};
use tensor::{DType, PartialShape, Result};

/// How several values in a row are combined.
///
/// ```
/// use ferroflow::feature_column::*;
///
/// let words = categorical_column_with_hash_bucket("words", 1000);
/// let column = embedding_column(&words, 16).combiner(Combiner::SqrtN);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Combiner {
    /// Their sum.
    Sum,
    /// Their mean.
    #[default]
    Mean,
    /// Their sum divided by the square root of their number.
    SqrtN,
}

/// Adds a lookup of ids in a table, combined along the last axis of the ids. Negative ids are ignored; a row without ids gets
/// zeros.
pub(super) fn safe_embedding_lookup_sparse(
    table: &Variable,
    sparse: &IdsAndWeights,
    combiner: Combiner,
    max_norm: Option<f64>,
) -> Result<Output> {
    let graph = table.graph();
    let original_shape = &sparse.ids.dense_shape;
    let rank = original_shape.shape().dim(0);
    let (ids, weights) = as_matrix(graph, sparse, rank)?;
    let (ids, weights) = pruned(graph, ids, weights, combiner)?;
    let (ids, is_row_empty) = filled(&ids, &long(graph, 0))?;
    let weights = match weights {
        Some(weights) => Some(filled(&weights, &scalar(graph, weights.values.dtype(), 1.0)?)?.0.values),
        None => None,
    };
    let result = embedding_lookup_sparse(table, &ids, weights.as_ref(), combiner, max_norm)?;
    let width = result.shape().dim(1);
    let empty = reshape(&is_row_empty, &[-1, 1])?;
    let result = node("SelectV2", &[&empty, &node("ZerosLike", &[&result])?, &result])?;
    match rank {
        Some(2) => {
            result.set_shape(&PartialShape::new(&[None, width]))?;
            Ok(result)
        }
        _ => {
            let shape = cast(original_shape, DType::Int32)?;
            let leading = compose::rows(&shape, 0, Some(-1))?;
            let columns = compose::rows(&shape_of(&result)?, 1, None)?;
            let whole = node("Reshape", &[&result, &concat(&[&leading, &columns], 0)?])?;
            if let Some(rank) = rank.and_then(|rank| usize::try_from(rank).ok()).filter(|&rank| rank > 0) {
                whole.set_shape(&PartialShape::unknown_of_rank(rank - 1).concat(&PartialShape::new(&[width])))?;
            }
            Ok(whole)
        }
    }
}

/// Reshapes ids and weights so that all axes except the last become one.
fn as_matrix(graph: &Graph, sparse: &IdsAndWeights, rank: Option<i64>) -> Result<(SparseTensor, Option<SparseTensor>)> {
    if rank == Some(2) {
        return Ok((sparse.ids.clone(), sparse.weights.clone()));
    }
    let shape = &sparse.ids.dense_shape;
    let rows = node("Prod", &[&compose::rows(shape, 0, Some(-1))?, &ints(graph, &[0])])?;
    let new_shape = concat(&[&expand_dims(&rows, 0)?, &expand_dims(&at_end(shape)?, 0)?], 0)?;
    let ids = reshaped(&sparse.ids, &new_shape)?;
    let weights = sparse.weights.as_ref().map(|weights| SparseTensor { values: weights.values.clone(), ..ids.clone() });
    Ok((ids, weights))
}

fn at_end(x: &Output) -> Result<Output> {
    let graph = x.graph();
    let last = node("Sub", &[&node("Size", &[x])?, &int(graph, 1)])?;
    node("GatherV2", &[x, &last, &int(graph, 0)])
}

/// Drops negative ids and, unless the rows are summed, ids with a weight that isn't positive.
fn pruned(
    graph: &Graph,
    ids: SparseTensor,
    weights: Option<SparseTensor>,
    combiner: Combiner,
) -> Result<(SparseTensor, Option<SparseTensor>)> {
    let mut stays = node("GreaterEqual", &[&ids.values, &long(graph, 0)])?;
    if let Some(weights) = weights.as_ref().filter(|_| combiner != Combiner::Sum) {
        let positive = node("Greater", &[&weights.values, &scalar(graph, weights.values.dtype(), 0.0)?])?;
        stays = node("LogicalAnd", &[&stays, &positive])?;
    }
    let weights = weights.map(|weights| retained(&weights, &stays)).transpose()?;
    Ok((retained(&ids, &stays)?, weights))
}

/// Gives rows without a value a default; also returns which rows these are.
fn filled(sparse: &SparseTensor, default: &Output) -> Result<(SparseTensor, Output)> {
    let op = default.graph().op("SparseFillEmptyRows").input(&sparse.indices).input(&sparse.values);
    let op = op.input(&sparse.dense_shape).input(default).try_build()?;
    let sparse = SparseTensor { indices: op.output(0), values: op.output(1), dense_shape: sparse.dense_shape.clone() };
    Ok((sparse, op.output(2)))
}

fn embedding_lookup_sparse(
    table: &Variable,
    ids: &SparseTensor,
    weights: Option<&Output>,
    combiner: Combiner,
    max_norm: Option<f64>,
) -> Result<Output> {
    let graph = table.graph();
    let segments = cast(&reshape(&column(&ids.indices, 0)?, &[-1])?, DType::Int32)?;
    // Each row is looked up once, however often its id occurs.
    let unique = graph.op("Unique").input(&ids.values).try_build()?;
    let (ids, places) = (unique.output(0), unique.output(1));
    let rows = graph.colocate_with(table.op(), |graph| match table.handle().is_ref() {
        // The gradient of a gather from the variable itself is sparse: it covers only the rows that were used.
        true => node("GatherV2", &[table.value(), &ids, &int(graph, 0)]),
        false => {
            let op = graph.op("ResourceGather").input(table.handle()).input(&ids);
            Ok(op.attr("dtype", table.dtype()).try_build()?.output(0))
        }
    })?;
    let rows = match max_norm {
        Some(norm) => clipped(&rows, norm)?,
        None => rows,
    };
    let Some(weights) = weights else {
        let op = match combiner {
            Combiner::Sum => "SparseSegmentSum",
            Combiner::Mean => "SparseSegmentMean",
            Combiner::SqrtN => "SparseSegmentSqrtN",
        };
        return node(op, &[&rows, &places, &segments]);
    };
    let weights = reshape(&cast(weights, rows.dtype())?, &[-1, 1])?;
    let weighted = node("Mul", &[&node("GatherV2", &[&rows, &places, &int(graph, 0)])?, &weights])?;
    let sum = node("SegmentSum", &[&weighted, &segments])?;
    match combiner {
        Combiner::Sum => Ok(sum),
        Combiner::Mean => node("RealDiv", &[&sum, &node("SegmentSum", &[&weights, &segments])?]),
        Combiner::SqrtN => {
            let squares = node("SegmentSum", &[&node("Square", &[&weights])?, &segments])?;
            node("RealDiv", &[&sum, &node("Sqrt", &[&squares])?])
        }
    }
}

/// Adds a slice with one column of a matrix.
pub(super) fn column(matrix: &Output, index: i32) -> Result<Output> {
    let graph = matrix.graph();
    let op = graph.op("StridedSlice").input(matrix).input(&ints(graph, &[0, index]));
    let op = op.input(&ints(graph, &[0, index + 1])).input(&ints(graph, &[1, 1]));
    let op = op.attr("begin_mask", 1i64).attr("end_mask", 1i64).attr("shrink_axis_mask", 2i64);
    Ok(op.try_build()?.output(0))
}

/// Scales down rows whose norm exceeds a maximum.
fn clipped(rows: &Output, norm: f64) -> Result<Output> {
    let graph = rows.graph();
    let square = node("Mul", &[rows, rows])?;
    let op = graph.op("Sum").input(&square).input(&ints(graph, &[1])).attr("keep_dims", true);
    let sums = op.try_build()?.output(0);
    let is_long = node("Greater", &[&sums, &scalar(graph, rows.dtype(), 0.0)?])?;
    // The gradient of a square root at zero is infinite.
    let safe = node("SelectV2", &[&is_long, &sums, &node("OnesLike", &[&sums])?])?;
    let lengths = node("SelectV2", &[&is_long, &node("Sqrt", &[&safe])?, &sums])?;
    let norm = scalar(graph, rows.dtype(), norm)?;
    node("RealDiv", &[&node("Mul", &[rows, &norm])?, &node("Maximum", &[&lengths, &norm])?])
}
