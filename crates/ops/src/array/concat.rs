//! Concatenation: Concat, ConcatV2, ConcatOffset, Pack.

use super::shape::index_vector;
use crate::compose::{call, int_scalar, shape_of};
use crate::movement::{Movable, copy_cost_ns};
use graph::{Output, ShapeContext};
use kernel::{
    BoxedKernel, Cost, Grad, Gradient, GradientArgs, IndexedSlices, Kernel, KernelBuilder, KernelDef, Op, OpContext,
    OpDef, OpFlags,
};
use smallvec::SmallVec;
use std::ops::Range;
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Concat",
            inputs: &["concat_dim: int32", "values: N * T"],
            outputs: &["output: T"],
            attrs: &["N: int >= 2", "T: type"],
            flags: OpFlags::NONE,
        },
        shape: concat_shape,
        gradient: Gradient::Fn(concat_gradient),
        kernels: &[KernelDef::any(Concat::create)],
    },
    Op {
        def: OpDef {
            name: "ConcatV2",
            inputs: &["values: N * T", "axis: Tidx"],
            outputs: &["output: T"],
            attrs: &["N: int >= 2", "T: type", "Tidx: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: concat_v2_shape,
        gradient: Gradient::Fn(concat_v2_gradient),
        kernels: &[KernelDef::any(Concat::create)],
    },
    Op {
        def: OpDef {
            name: "ConcatOffset",
            inputs: &["concat_dim: int32", "shape: N * shape_type"],
            outputs: &["offset: N * shape_type"],
            attrs: &["N: int >= 2", "shape_type: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: concat_offset_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(ConcatOffset))],
    },
    Op {
        def: OpDef {
            name: "Pack",
            inputs: &["values: N * T"],
            outputs: &["output: T"],
            attrs: &["N: int >= 1", "T: type", "axis: int = 0"],
            flags: OpFlags::NONE,
        },
        shape: pack_shape,
        gradient: Gradient::Fn(pack_gradient),
        kernels: &[KernelDef::any(|builder| BoxedKernel::new(Pack { axis: builder.attrs().int("axis")? }))],
    },
];

/// Concatenates tensors along an existing axis.
#[track_caller]
pub fn concat(values: &[Output], axis: i32) -> Output {
    let Some(first) = values.first() else {
        return graph::builder::mistaken_output(
            "ConcatV2",
            tensor::Status::invalid_argument("concat needs at least one tensor"),
        );
    };
    if values.len() == 1 {
        return super::identity(first);
    }
    let axis = first.graph().constant_tensor(&Tensor::scalar(axis));
    first.graph().op("ConcatV2").inputs(values).input(&axis).attr("N", values.len() as i64).output()
}

/// Stacks tensors of the same shape along a new axis.
#[track_caller]
pub fn stack(values: &[Output], axis: i64) -> Output {
    let Some(first) = values.first() else {
        return graph::builder::mistaken_output(
            "Pack",
            tensor::Status::invalid_argument("stack needs at least one tensor"),
        );
    };
    first.graph().op("Pack").inputs(values).attr("axis", axis).output()
}

fn pack_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let count = args.op.num_inputs();
    let Some(grad) = args.grad(0) else { return Ok(vec![None; count]) };
    let axis = args.op.attrs().int("axis")?;
    let parts = grad.graph().op("Unpack").input(&grad).attr("num", count as i64).attr("axis", axis).try_build()?;
    (0..count as u32).map(|port| Ok(Some(parts.try_output(port)?.into()))).collect()
}

fn concat_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let parts = concat_parts_gradient(args, &args.input(0), 1..args.op.num_inputs())?;
    Ok(std::iter::once(None).chain(parts).collect())
}

fn concat_v2_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let last = args.op.num_inputs() - 1;
    let parts = concat_parts_gradient(args, &args.input(last), 0..last)?;
    Ok(parts.into_iter().chain([None]).collect())
}

/// Splits the gradient into the parts of the concatenated tensors.
fn concat_parts_gradient(args: &GradientArgs<'_>, axis: &Output, parts: Range<usize>) -> Result<Vec<Option<Grad>>> {
    /// With more parts than this, one SplitV is better than many slices.
    const SLICES_MAX: usize = 16;
    let grad = match args.grads.first().and_then(Option::as_ref) {
        None => return Ok(vec![None; parts.len()]),
        Some(Grad::Slices(slices)) if axis.constant_value().is_some_and(|axis| matches!(axis.to_index(), Ok(0))) => {
            return concat_rows_gradient(args, slices, parts);
        }
        Some(_) => match args.grad(0) {
            Some(grad) => grad,
            None => return Ok(vec![None; parts.len()]),
        },
    };
    if parts.len() == 1 {
        return Ok(vec![Some(grad.into())]);
    }
    let graph = grad.graph();
    let inputs: Vec<Output> = parts.clone().map(|index| args.input(index)).collect();
    let axis = non_negative_axis(axis, &inputs[0])?;
    let shapes = graph.op("ShapeN").inputs(&inputs).attr("N", inputs.len() as i64).try_build()?;
    let shapes: Vec<Output> = (0..inputs.len() as u32).map(|port| shapes.try_output(port)).collect::<Result<_>>()?;
    if inputs.len() > SLICES_MAX {
        let stacked = graph.op("Pack").inputs(&shapes).attr("axis", 1i64).try_build()?.try_output(0)?;
        let begin = call_pack(&[&axis, &int_scalar(graph, 0)?])?;
        let size = call_pack(&[&int_scalar(graph, 1)?, &int_scalar(graph, -1)?])?;
        let sizes = call("Slice", &[&stacked, &begin, &size])?;
        let sizes = graph.op("Squeeze").input(&sizes).attr("squeeze_dims", &[0i64][..]).try_build()?.try_output(0)?;
        let split = graph
            .op("SplitV")
            .input(&grad)
            .input(&sizes)
            .input(&axis)
            .attr("num_split", inputs.len() as i64)
            .try_build()?;
        return (0..inputs.len() as u32).map(|port| Ok(Some(split.try_output(port)?.into()))).collect();
    }
    let offsets = graph.op("ConcatOffset").input(&axis).inputs(&shapes).attr("N", inputs.len() as i64).try_build()?;
    let mut grads = Vec::with_capacity(inputs.len());
    for (index, shape) in shapes.iter().enumerate() {
        let part = call("Slice", &[&grad, &offsets.try_output(index as u32)?, shape])?;
        grads.push(Some(part.into()));
    }
    Ok(grads)
}

/// Returns the axis for TensorFlow's kernels, which accept no negative one.
fn non_negative_axis(axis: &Output, input: &Output) -> Result<Output> {
    let graph = axis.graph();
    if let (Some(value), Some(rank)) = (axis.constant_value(), input.shape().rank()) {
        return int_scalar(graph, concat_axis(value.to_index()?, rank)? as i32);
    }
    let axis = match axis.dtype() {
        DType::Int32 => axis.clone(),
        _ => graph.op("Cast").input(axis).attr("DstT", DType::Int32).try_build()?.try_output(0)?,
    };
    call("FloorMod", &[&axis, &call("Rank", &[input])?])
}

fn call_pack(inputs: &[&Output]) -> Result<Output> {
    inputs[0].graph().op("Pack").inputs(inputs.iter().copied()).try_build()?.try_output(0)
}

/// The gradient of tensors that were concatenated along axis 0, as rows: each part gets those within its range.
fn concat_rows_gradient(
    args: &GradientArgs<'_>,
    slices: &IndexedSlices,
    parts: Range<usize>,
) -> Result<Vec<Option<Grad>>> {
    let graph = slices.values.graph();
    let zero = int_scalar(graph, 0)?;
    let cast = |value: &Output| -> Result<Output> {
        if value.dtype() == slices.indices.dtype() {
            return Ok(value.clone());
        }
        graph.op("Cast").input(value).attr("DstT", slices.indices.dtype()).try_build()?.try_output(0)
    };
    let mut start = cast(&zero)?;
    let mut grads = Vec::with_capacity(parts.len());
    for index in parts {
        let shape = shape_of(&args.input(index))?;
        let rows = call("GatherV2", &[&shape, &zero, &zero])?;
        let end = call("AddV2", &[&start, &cast(&rows)?])?;
        let inside = call(
            "LogicalAnd",
            &[&call("GreaterEqual", &[&slices.indices, &start])?, &call("Less", &[&slices.indices, &end])?],
        )?;
        let positions = call("Where", &[&inside])?;
        let positions =
            graph.op("Squeeze").input(&positions).attr("squeeze_dims", &[1i64][..]).try_build()?.try_output(0)?;
        let indices = call("Sub", &[&call("GatherV2", &[&slices.indices, &positions, &zero])?, &start])?;
        let values = call("GatherV2", &[&slices.values, &positions, &zero])?;
        grads.push(Some(Grad::Slices(IndexedSlices { values, indices, dense_shape: Some(shape) })));
        start = end;
    }
    Ok(grads)
}

fn concat_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    joined_shape(c, 0, 1..c.num_inputs())
}

fn concat_v2_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let last = c.num_inputs().saturating_sub(1);
    joined_shape(c, last, 0..last)
}

fn joined_shape(c: &mut ShapeContext<'_>, axis: usize, values: Range<usize>) -> Result<()> {
    c.with_rank(axis, 0)?;
    let inputs: Vec<PartialShape> = values.map(|index| c.input(index)).collect();
    let Some(rank) = inputs.iter().find_map(PartialShape::rank) else { return Ok(()) };
    let mut joined = PartialShape::unknown_of_rank(rank);
    let shape = match c.constant(axis) {
        None => {
            for input in &inputs {
                if input.rank().is_some_and(|other| other != rank) {
                    input.merge(&joined)?;
                }
            }
            joined
        }
        Some(axis) => {
            let axis = concat_axis(axis.to_index()?, rank)?;
            let mut total = Some(0i64);
            for input in &inputs {
                let size = input.dim(axis);
                joined = joined.merge(&input.with_dim(axis, None))?;
                total = match (total, size) {
                    (Some(total), Some(size)) => Some(
                        total.checked_add(size).ok_or_else(|| Status::invalid_argument("Dimension is too large"))?,
                    ),
                    _ => None,
                };
            }
            joined.with_dim(axis, total)
        }
    };
    c.set_output(0, shape);
    Ok(())
}

fn concat_offset_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    for index in 1..c.num_inputs() {
        let shape = c.with_rank(index, 1)?;
        c.set_output(index - 1, shape);
    }
    Ok(())
}

fn pack_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let mut shape = c.input(0);
    for index in 1..c.num_inputs() {
        shape = shape.merge(&c.input(index)).map_err(|status| status.context("From merging the packed shapes"))?;
    }
    let Some(dims) = shape.dims() else { return Ok(()) };
    let axis = pack_axis(c.attrs.int("axis")?, dims.len() + 1)?;
    let mut dims = dims.to_vec();
    dims.insert(axis, Some(c.num_inputs() as i64));
    c.set_output(0, PartialShape::new(&dims));
    Ok(())
}

fn concat_axis(axis: i64, rank: usize) -> Result<usize> {
    let bounds = rank as i64;
    if rank == 0 {
        return Err(Status::invalid_argument("ConcatOp : Can't concatenate scalars (use tf.stack instead)"));
    }
    if axis < -bounds || axis >= bounds {
        return Err(Status::invalid_argument(format!(
            "ConcatOp : Expected concatenating dimensions in the range [{}, {bounds}), but got {axis}",
            -bounds
        )));
    }
    Ok(if axis < 0 { axis + bounds } else { axis } as usize)
}

fn pack_axis(axis: i64, rank: usize) -> Result<usize> {
    let bounds = rank as i64;
    if rank == 0 {
        return Err(Status::invalid_argument("ConcatOp : Can't concatenate scalars (use tf.stack instead)"));
    }
    if axis < -bounds || axis >= bounds {
        return Err(Status::invalid_argument(format!("axis = {axis} not in [{}, {bounds})", -bounds)));
    }
    Ok(if axis < 0 { axis + bounds } else { axis } as usize)
}

struct Concat {
    values: Range<usize>,
    axis: usize,
}

impl Concat {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let values = builder.input_range("values")?;
        let axis = if values.start == 0 { values.end } else { 0 };
        BoxedKernel::new(Concat { values, axis })
    }
}

impl Kernel for Concat {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let axis = context.input(self.axis)?;
        if axis.num_elements() != 1 {
            return Err(Status::invalid_argument(format!(
                "{} tensor should be a scalar integer, but got shape {}",
                if self.axis == 0 { "concat_dim" } else { "axis" },
                axis.shape()
            )));
        }
        let axis = axis.to_index()?;
        let values = context.input_list(self.values.clone())?;
        let Some(first) = values.first() else {
            return Err(Status::invalid_argument("ConcatOp : there is nothing to join"));
        };
        let axis = concat_axis(axis, first.shape().rank())?;
        let mut total = 0i64;
        for (index, value) in values.iter().enumerate() {
            check_same_but(first, value, index, axis)?;
            total = total
                .checked_add(value.shape().dim(axis))
                .ok_or_else(|| Status::invalid_argument("ConcatOp : the result is too large"))?;
        }
        let shape = first.shape().with_dim(axis, total)?;
        // If only one part has elements, it is the result.
        let mut filled = values.iter().enumerate().filter(|(_, value)| value.num_elements() != 0);
        let only = match (filled.next(), filled.next()) {
            (Some((index, _)), None) => Some(self.values.start + index),
            _ => None,
        };
        let joined = if only.is_none() { Some(join(&values, axis, shape.clone())?) } else { None };
        drop(values);
        let output = match (joined, only) {
            (Some(joined), _) => joined,
            (None, index) => context.take_input(index.unwrap_or(self.values.start))?.into_shape(shape)?,
        };
        context.set_output(0, output);
        Ok(())
    }
}

fn check_same_but(first: &Tensor, value: &Tensor, index: usize, axis: usize) -> Result<()> {
    if value.shape().rank() != first.shape().rank() {
        return Err(Status::invalid_argument(format!(
            "ConcatOp : Ranks of all input tensors should match: shape[0] = {} vs. shape[{index}] = {}",
            first.shape(),
            value.shape()
        )));
    }
    let differs = |other: usize| other != axis && value.shape().dim(other) != first.shape().dim(other);
    match (0..first.shape().rank()).find(|&other| differs(other)) {
        Some(other) => Err(Status::invalid_argument(format!(
            "ConcatOp : Dimension {other} in both shapes must be equal: shape[0] = {} vs. shape[{index}] = {}",
            first.shape(),
            value.shape()
        ))),
        None => Ok(()),
    }
}

/// Concatenates tensors whose shapes agree except in `axis`; `shape` is the shape of the result.
pub(crate) fn join(values: &[&Tensor], axis: usize, shape: Shape) -> Result<Tensor> {
    let outer: usize = shape.dims()[..axis].iter().product::<i64>() as usize;
    let Some(first) = values.first() else { return Err(Status::internal("nothing to join")) };
    with_movable!(first.dtype(), E => join_rows::<E>(first.dtype(), values, outer, shape))
}

fn join_rows<E: Movable>(dtype: DType, values: &[&Tensor], outer: usize, shape: Shape) -> Result<Tensor> {
    let mut parts: SmallVec<[(&[E], usize); 8]> = SmallVec::new();
    for value in values {
        let elements = E::view(value)?;
        parts.push((elements, elements.len().checked_div(outer).unwrap_or(0)));
    }
    let row_len: usize = parts.iter().map(|(_, len)| len).sum();
    E::build(dtype, shape, |out| {
        if out.is_empty() {
            return;
        }
        numeric::parallel::for_each_chunk_mut(out, row_len, copy_cost_ns::<E>(row_len), |first_row, run| {
            for (offset, mut row) in run.chunks_exact_mut(row_len).enumerate() {
                for (elements, len) in &parts {
                    let start = (first_row + offset) * len;
                    let (to, rest) = row.split_at_mut(*len);
                    copy_run(&elements[start..start + len], to);
                    row = rest;
                }
            }
        });
    })
}

/// Copies elements; a call for a handful of them costs more than the copy itself.
pub(crate) fn copy_run<E: Clone>(from: &[E], to: &mut [E]) {
    if let ([from], [to]) = (from, &mut *to) {
        to.clone_from(from);
    } else {
        to.clone_from_slice(from);
    }
}

struct ConcatOffset;

impl Kernel for ConcatOffset {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let axis = i64::from(context.scalar::<i32>(0, "concat_dim")?);
        let first = context.input(1)?;
        let wide = first.dtype() == DType::Int64;
        let first = first.to_indices()?;
        let rank = first.len() as i64;
        if axis < -rank || axis >= rank {
            return Err(Status::invalid_argument(format!("Concat dim is out of range: {axis} vs. {rank}")));
        }
        let axis = if axis < 0 { axis + rank } else { axis } as usize;
        let mut start = 0i64;
        for index in 1..context.num_inputs() {
            let shape = context.input(index)?;
            if !shape.shape().is_vector() {
                return Err(Status::invalid_argument(format!("input {} should be a vector", index - 1)));
            }
            let shape = shape.to_indices()?;
            if shape.len() != first.len() {
                return Err(Status::invalid_argument(format!(
                    "input {} should contain {rank} elements, but got {}",
                    index - 1,
                    shape.len()
                )));
            }
            if let Some(other) = (0..first.len()).find(|&other| other != axis && shape[other] != first[other]) {
                return Err(Status::invalid_argument(format!(
                    "All dimensions except {axis} must match. Input {} has shape [{}] and doesn't match input 0 with \
                     shape [{}]. They differ in dimension {other}.",
                    index - 1,
                    spaced(&shape),
                    spaced(&first)
                )));
            }
            let mut offsets: SmallVec<[i64; 8]> = SmallVec::from_elem(0, first.len());
            offsets[axis] = start;
            start = start
                .checked_add(shape[axis])
                .ok_or_else(|| Status::invalid_argument("the sizes to concatenate overflow"))?;
            context.set_output(index - 1, index_vector(&offsets, wide)?);
        }
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct Pack {
    axis: i64,
}

impl Kernel for Pack {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let count = context.num_inputs();
        let first = context.input(0)?.shape().clone();
        let axis = pack_axis(self.axis, first.rank() + 1)?;
        let mut dims: SmallVec<[i64; 8]> = SmallVec::from_slice(first.dims());
        dims.insert(axis, count as i64);
        let shape = Shape::new(&dims)?;
        let output = if count == 1 {
            context.take_input(0)?.into_shape(shape)?
        } else {
            let values = context.input_list(0..count)?;
            if let Some(index) = values.iter().position(|value| value.shape() != &first) {
                return Err(Status::invalid_argument(format!(
                    "Shapes of all inputs must match: values[0].shape = {first} != values[{index}].shape = {}",
                    values[index].shape()
                )));
            }
            join(&values, axis, shape)?
        };
        context.set_output(0, output);
        Ok(())
    }
}

/// Returns numbers with spaces between them.
fn spaced<T: ToString>(numbers: &[T]) -> String {
    numbers.iter().map(T::to_string).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_gradient, check_shape, infer, run_op};
    use graph::Graph;
    use tensor::{DType, Shape, Tensor};

    fn matrix(rows: i64, columns: i64, start: f64) -> Tensor {
        let values: Vec<f64> = (0..rows * columns).map(|index| start + index as f64).collect();
        Tensor::from_slice(&[rows, columns], &values).unwrap()
    }

    #[test]
    fn concatenates() {
        let (a, b) = (matrix(2, 1, 0.0), matrix(2, 2, 10.0));
        let y = run_op("ConcatV2", attrs![], &[a.clone(), b.clone(), Tensor::scalar(-1i32)]).unwrap();
        assert_eq!(y[0].as_slice::<f64>().unwrap(), &[0., 10., 11., 1., 12., 13.]);
        let y = run_op("Concat", attrs![], &[Tensor::scalar(1i32), a.clone(), b.clone()]).unwrap();
        assert_eq!(y[0].dims(), [2, 3]);
        assert!(run_op("Concat", attrs![], &[Tensor::scalar(0i32), a.clone(), b]).is_err());
        let empty = matrix(0, 1, 0.0);
        let y = run_op("ConcatV2", attrs![], &[empty, a.clone(), Tensor::scalar(0i64)]).unwrap();
        assert!(y[0].shares_memory(&a));
        let strings = |text: &'static str| Tensor::from_strings(Shape::vector(1), vec![text.into()]).unwrap();
        let y = run_op("ConcatV2", attrs![], &[strings("a"), strings("b"), Tensor::scalar(0i32)]).unwrap();
        assert_eq!(y[0].strings().unwrap(), ["a", "b"]);
        assert!(run_op("ConcatV2", attrs![], &[a.clone(), a, Tensor::scalar(2i32)]).is_err());
    }

    #[test]
    fn large_rows_are_joined_alike() {
        let wide = |value: u8| Tensor::from_slice(&[64, 5000], &vec![value; 64 * 5000]).unwrap();
        let y = run_op("ConcatV2", attrs![], &[wide(1), wide(2), Tensor::scalar(1i32)]).unwrap();
        let rows = y[0].as_slice::<u8>().unwrap();
        assert!(rows.chunks(10000).all(|row| row[..5000] == [1; 5000] && row[5000..] == [2; 5000]));
    }

    #[test]
    fn packs() {
        let y = run_op("Pack", attrs![("axis", 1i64)], &[Tensor::vector(&[1i64, 2]), Tensor::vector(&[3i64, 4])]);
        assert_eq!(y.unwrap()[0].as_slice::<i64>().unwrap(), &[1, 3, 2, 4]);
        let y = run_op("Pack", attrs![], &[Tensor::scalar(true), Tensor::scalar(false)]).unwrap();
        assert_eq!((y[0].dims(), y[0].as_slice::<bool>().unwrap()), (&[2i64][..], &[true, false][..]));
        assert!(run_op("Pack", attrs![], &[Tensor::vector(&[1i64]), Tensor::vector(&[3i64, 4])]).is_err());
        assert!(run_op("Pack", attrs![("axis", 2i64)], &[Tensor::vector(&[1i64])]).is_err());
    }

    #[test]
    fn offsets() {
        let shapes = [Tensor::scalar(1i32), Tensor::vector(&[2i32, 2, 7]), Tensor::vector(&[2i32, 3, 7])];
        let y = run_op("ConcatOffset", attrs![], &shapes).unwrap();
        assert_eq!(y[1].as_slice::<i32>().unwrap(), &[0, 2, 0]);
        let shapes = [Tensor::scalar(0i32), Tensor::vector(&[2i64, 2]), Tensor::vector(&[2i64, 3])];
        assert!(run_op("ConcatOffset", attrs![], &shapes).is_err());
    }

    #[test]
    fn shapes() {
        let joined = infer("ConcatV2", attrs![("N", 2i64)], "[2,?];[?,3];[]", &[(2, Tensor::scalar(0i32))]).unwrap();
        assert_eq!(joined[0].to_string(), "[?,3]");
        check_shape("ConcatV2", attrs![("N", 2i64)], "[2,?];[?,3];[]", "[?,?]");
        check_shape("Pack", attrs![("N", 2i64), ("axis", -1i64)], "[2,?];[?,3]", "[2,3,2]");
        check_shape("ConcatOffset", attrs![("N", 2i64), ("shape_type", DType::Int32)], "[];[3];[3]", "[3];[3]");
    }

    #[test]
    fn gradients() {
        let (a, b) = (matrix(2, 1, 0.0), matrix(2, 2, 10.0));
        check_gradient(&[a.clone(), b.clone()], |_, xs| super::concat(xs, -1));
        check_gradient(&[a.clone(), a.clone()], |_, xs| super::stack(xs, 1));
        let many = vec![a; 17];
        check_gradient(&many, |_: &Graph, xs| super::concat(xs, 1));
    }
}
