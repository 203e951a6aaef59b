//! The building blocks of layers, losses and metrics. Each adds one or a few nodes to the graph of its inputs, and returns an
//! error if they don't fit; [`kept`] and [`kept_as`] keep such a mistake in the graph, with the line of the user's call.

pub(crate) use crate::kept::{kept, kept_as};

use crate::train::Number;
use crate::variable::named_constant;
use graph::builder::{LoopOptions, scalar_tensor};
use graph::{Graph, Operation, Output};
use tensor::{DType, PartialShape, Result, Status, Tensor};

/// Adds a node to the graph of its first input.
pub(crate) fn node(op: &str, inputs: &[&Output]) -> Result<Output> {
    let Some(first) = inputs.first() else { return Err(Status::internal(format!("{op} without inputs"))) };
    Ok(first.graph().op(op).inputs(inputs.iter().copied()).try_build()?.output(0))
}

/// Adds a scalar of the given type.
pub(crate) fn scalar(graph: &Graph, dtype: DType, value: f64) -> Result<Output> {
    Ok(graph.constant_tensor(&scalar_tensor(dtype, value)?))
}

/// Adds `op(x, number)`.
pub(crate) fn with_number(op: &str, x: &Output, value: f64) -> Result<Output> {
    node(op, &[x, &scalar(x.graph(), x.dtype(), value)?])
}

/// Adds `op(number, x)`.
pub(crate) fn number_with(op: &str, value: f64, x: &Output) -> Result<Output> {
    node(op, &[&scalar(x.graph(), x.dtype(), value)?, x])
}

/// Adds a number of the program as a constant of the given type.
pub(crate) fn number(graph: &Graph, value: &Number, dtype: DType) -> Result<Output> {
    match value {
        Number::Value(value) => scalar(graph, dtype, *value),
        Number::Tensor(output) => cast(output, dtype),
    }
}

pub(crate) fn add(a: &Output, b: &Output) -> Result<Output> {
    node("AddV2", &[a, b])
}

pub(crate) fn sub(a: &Output, b: &Output) -> Result<Output> {
    node("Sub", &[a, b])
}

pub(crate) fn mul(a: &Output, b: &Output) -> Result<Output> {
    node("Mul", &[a, b])
}

pub(crate) fn div(a: &Output, b: &Output) -> Result<Output> {
    node("RealDiv", &[a, b])
}

/// Adds `a / b`, which is 0 where `b` is 0.
pub(crate) fn div_no_nan(a: &Output, b: &Output) -> Result<Output> {
    node("DivNoNan", &[a, b])
}

pub(crate) fn cast(x: &Output, dtype: DType) -> Result<Output> {
    if x.dtype() == dtype {
        return Ok(x.clone());
    }
    Ok(x.graph().op("Cast").input(x).attr("DstT", dtype).try_build()?.output(0))
}

/// Adds a constant vector of integers, such as axes or a shape.
pub(crate) fn ints(graph: &Graph, values: &[i32]) -> Output {
    named_constant(graph, "Const", &Tensor::vector(values))
}

/// Adds a constant integer, such as an axis.
pub(crate) fn int(graph: &Graph, value: i32) -> Output {
    named_constant(graph, "Const", &Tensor::scalar(value))
}

/// Adds a reduction over axes.
pub(crate) fn reduce(op: &str, x: &Output, axes: &[i32], keep_dims: bool) -> Result<Output> {
    let axes = ints(x.graph(), axes);
    Ok(x.graph().op(op).input(x).input(&axes).attr("keep_dims", keep_dims).try_build()?.output(0))
}

/// Adds a reduction over all axes.
pub(crate) fn reduce_all(op: &str, x: &Output) -> Result<Output> {
    let graph = x.graph();
    match x.shape().rank() {
        Some(rank) => reduce(op, x, &(0..rank as i32).collect::<Vec<_>>(), false),
        None => {
            let rank = node("Rank", &[x])?;
            let axes = node("Range", &[&int(graph, 0), &rank, &int(graph, 1)])?;
            node(op, &[x, &axes])
        }
    }
}

pub(crate) fn shape_of(x: &Output) -> Result<Output> {
    node("Shape", &[x])
}

/// Adds the size of one axis as a scalar: a constant if it is known.
pub(crate) fn size_of_axis(x: &Output, axis: usize) -> Result<Output> {
    let graph = x.graph();
    if let Some(size) = x.shape().dim(axis).and_then(|size| i32::try_from(size).ok()) {
        return Ok(int(graph, size));
    }
    at(&shape_of(x)?, axis as i32)
}

/// Adds `x[index]`.
pub(crate) fn at(x: &Output, index: i32) -> Result<Output> {
    let graph = x.graph();
    let op = graph.op("StridedSlice").input(x).input(&ints(graph, &[index])).input(&ints(graph, &[index + 1]));
    Ok(op.input(&ints(graph, &[1])).attr("shrink_axis_mask", 1i64).try_build()?.output(0))
}

/// Adds `x[begin:end]` along the first axis; a negative `end` counts from the end, and `None` is the end itself.
pub(crate) fn rows(x: &Output, begin: i32, end: Option<i32>) -> Result<Output> {
    let graph = x.graph();
    let op = graph.op("StridedSlice").input(x).input(&ints(graph, &[begin])).input(&ints(graph, &[end.unwrap_or(0)]));
    let op = op.input(&ints(graph, &[1])).attr("end_mask", i64::from(end.is_none()));
    Ok(op.try_build()?.output(0))
}

pub(crate) fn reshape(x: &Output, dims: &[i32]) -> Result<Output> {
    node("Reshape", &[x, &ints(x.graph(), dims)])
}

pub(crate) fn expand_dims(x: &Output, axis: i32) -> Result<Output> {
    node("ExpandDims", &[x, &int(x.graph(), axis)])
}

pub(crate) fn squeeze(x: &Output, axis: i64) -> Result<Output> {
    Ok(x.graph().op("Squeeze").input(x).attr("squeeze_dims", &[axis][..]).try_build()?.output(0))
}

pub(crate) fn transpose(x: &Output, permutation: &[i32]) -> Result<Output> {
    node("Transpose", &[x, &ints(x.graph(), permutation)])
}

pub(crate) fn concat(values: &[&Output], axis: i32) -> Result<Output> {
    let Some(first) = values.first() else { return Err(Status::internal("nothing to put together")) };
    let graph = first.graph();
    let op = graph.op("ConcatV2").inputs(values.iter().copied()).input(&int(graph, axis));
    Ok(op.attr("N", values.len() as i64).try_build()?.output(0))
}

/// Adds the vector of the given scalars.
pub(crate) fn pack(values: &[&Output]) -> Result<Output> {
    node("Pack", values)
}

pub(crate) fn split(x: &Output, count: i64, axis: i32) -> Result<Vec<Output>> {
    let graph = x.graph();
    let op = graph.op("Split").input(&int(graph, axis)).input(x).attr("num_split", count).try_build()?;
    Ok((0..count as u32).map(|port| op.output(port)).collect())
}

/// Adds `a @ b`.
pub(crate) fn matmul(a: &Output, b: &Output) -> Result<Output> {
    node("MatMul", &[a, b])
}

/// Adds a tensor filled with one number, whose dimensions are given as a vector.
pub(crate) fn fill(dims: &Output, dtype: DType, value: f64) -> Result<Output> {
    node("Fill", &[dims, &scalar(dims.graph(), dtype, value)?])
}

/// Adds a conditional with two branches.
pub(crate) fn cond(
    graph: &Graph,
    predicate: &Output,
    on_true: impl FnOnce(&Graph) -> Result<Vec<Output>>,
    on_false: impl FnOnce(&Graph) -> Result<Vec<Output>>,
) -> Result<Vec<Output>> {
    let (mut first, mut second) = (None, None);
    let outputs = graph.try_cond(
        predicate,
        |graph| on_true(graph).unwrap_or_else(|status| note(&mut first, status, &[])),
        |graph| on_false(graph).unwrap_or_else(|status| note(&mut second, status, &[])),
    );
    match first.or(second) {
        Some(status) => Err(status),
        None => outputs,
    }
}

/// Adds a loop.
pub(crate) fn while_loop(
    graph: &Graph,
    variables: &[Output],
    options: &LoopOptions,
    condition: impl FnOnce(&Graph, &[Output]) -> Result<Output>,
    body: impl FnOnce(&Graph, &[Output]) -> Result<Vec<Output>>,
) -> Result<Vec<Output>> {
    let (mut first, mut second) = (None, None);
    let outputs = graph.try_while_loop(
        variables,
        options,
        |graph, inside| match condition(graph, inside) {
            Ok(condition) => condition,
            Err(status) => {
                first = Some(status);
                named_constant(graph, "never", &Tensor::scalar(false))
            }
        },
        |graph, inside| body(graph, inside).unwrap_or_else(|status| note(&mut second, status, inside)),
    );
    match first.or(second) {
        Some(status) => Err(status),
        None => outputs,
    }
}

fn note(place: &mut Option<Status>, status: Status, instead: &[Output]) -> Vec<Output> {
    *place = Some(status);
    instead.to_vec()
}

/// Returns the rank of `x`, which must be known.
pub(crate) fn known_rank(x: &Output, what: &str) -> Result<usize> {
    x.shape().rank().ok_or_else(|| Status::invalid_argument(format!("{what} must have a known rank: {}", x.name())))
}

/// Returns the size of an axis, which must be known.
pub(crate) fn known_dim(x: &Output, axis: usize, what: &str) -> Result<i64> {
    x.shape().dim(axis).ok_or_else(|| {
        Status::invalid_argument(format!(
            "{what} must be known, but axis {axis} of {} is not: its shape is {}",
            x.name(),
            x.shape()
        ))
    })
}

/// Returns an axis as an index from the front.
pub(crate) fn axis_of(axis: i64, rank: usize) -> Result<usize> {
    let from_front = if axis < 0 { axis + rank as i64 } else { axis };
    match usize::try_from(from_front) {
        Ok(found) if found < rank => Ok(found),
        _ => Err(Status::invalid_argument(format!("axis {axis} is out of range for a rank of {rank}"))),
    }
}

/// Fails unless the two shapes are compatible.
pub(crate) fn check_same_shape(a: &Output, b: &Output) -> Result<PartialShape> {
    a.shape().merge(&b.shape()).map_err(|_| {
        Status::invalid_argument(format!(
            "Shapes {} and {} of {} and {} are incompatible",
            a.shape(),
            b.shape(),
            a.name(),
            b.name()
        ))
    })
}

/// Adds an operation that fails with a message unless a condition holds.
pub(crate) fn assert(condition: &Output, message: &str, data: &[&Output]) -> Result<Operation> {
    let graph = condition.graph();
    let message = graph.constant_tensor(&Tensor::string(message.to_owned()));
    let op = graph.op("Assert").input(condition).input(&message).inputs(data.iter().copied());
    op.attr("summarize", 3i64).try_build()
}
