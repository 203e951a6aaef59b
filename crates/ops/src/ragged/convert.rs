//! Conversion of ragged tensors: RaggedTensorToSparse, RaggedTensorToTensor.

use super::splits::nested_splits;
use crate::compose::{Gradients, binary, call, int_scalar, int_vector, reshape, shape_of, sum, unary};
use crate::movement::Movable;
use graph::Output;
use kernel::{
    BoxedKernel, Grad, Gradient, GradientArgs, IndexedSlices, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef,
    OpFlags, ShapeContext,
};
use std::ops::Range;
use tensor::{PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "RaggedTensorToSparse",
            inputs: &["rt_nested_splits: RAGGED_RANK * Tsplits", "rt_dense_values: T"],
            outputs: &["sparse_indices: int64", "sparse_values: T", "sparse_dense_shape: int64"],
            attrs: &["RAGGED_RANK: int >= 1", "T: type", "Tsplits: {int32, int64} = DT_INT64"],
            flags: OpFlags::NONE,
        },
        shape: to_sparse_shape,
        gradient: Gradient::Fn(to_sparse_gradient),
        kernels: &[KernelDef::any(ToSparse::create)],
    },
    Op {
        def: OpDef {
            name: "RaggedTensorToTensor",
            inputs: &[
                "shape: Tshape",
                "values: T",
                "default_value: T",
                "row_partition_tensors: num_row_partition_tensors * Tindex",
            ],
            outputs: &["result: T"],
            attrs: &[
                "T: type",
                "Tindex: {int64, int32}",
                "Tshape: {int64, int32}",
                "num_row_partition_tensors: int >= 1",
                "row_partition_types: list(string)",
            ],
            flags: OpFlags::NONE,
        },
        shape: to_tensor_shape,
        gradient: Gradient::Fn(to_tensor_gradient),
        kernels: &[KernelDef::any(ToTensor::create)],
    },
];

fn to_sparse_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let splits = c.input_range("rt_nested_splits")?;
    let mut values = c.input(splits.end);
    if values.rank() == Some(0) {
        return Err(Status::invalid_argument("Shape must be at least rank 1 but is rank 0"));
    }
    for input in splits.clone() {
        c.with_rank(input, 1)?;
    }
    let rank = values.rank().map(|rank| (rank + splits.len()) as i64);
    let count = values.num_elements();
    values = PartialShape::new(&[count]);
    c.set_output(0, PartialShape::new(&[count, rank]));
    c.set_output(1, values);
    c.set_output(2, PartialShape::new(&[rank]));
    Ok(())
}

fn to_tensor_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let wanted = match c.input(0).rank() {
        // A scalar stands for a shape of which nothing is known.
        Some(0) => PartialShape::unknown(),
        _ => c.constant_as_shape(0)?,
    };
    let kinds = kinds(c.attrs.strings("row_partition_types")?)?;
    let output = combined_shape(&wanted, &c.input(1), ragged_rank(&kinds))?;
    c.set_output(0, output);
    Ok(())
}

/// Returns the merged information of the requested shape and that of the values.
fn combined_shape(wanted: &PartialShape, values: &PartialShape, ragged_rank: usize) -> Result<PartialShape> {
    let Some(values_rank) = values.rank() else { return Ok(wanted.clone()) };
    if values_rank == 0 {
        return Err(Status::invalid_argument("the values of a ragged tensor must have a dimension"));
    }
    let rank = ragged_rank + values_rank;
    let inner = PartialShape::unknown_of_rank(ragged_rank + 1).concat(&values.slice(1, values_rank));
    if wanted.rank().is_some_and(|wanted| wanted != rank) {
        return Err(Status::invalid_argument(format!(
            "rt_input.shape and shape={wanted} are incompatible: rt_input.rank = {rank} but shape.rank = {}",
            wanted.rank().unwrap_or(0)
        )));
    }
    wanted.merge(&inner).map_err(|_| {
        Status::invalid_argument(format!("rt_input.flat_values.shape={values} and shape={wanted} are incompatible"))
    })
}

fn to_sparse_gradient(args: &GradientArgs<'_>) -> Gradients {
    let inputs = args.op.num_inputs();
    let mut grads = vec![None; inputs];
    if let Some(grad) = args.grad(1) {
        grads[inputs - 1] = Some(reshape(&grad, &shape_of(&args.input(inputs - 1))?)?.into());
    }
    Ok(grads)
}

/// The op itself, run on the numbers of the values' rows, shows which row each position was filled from.
fn to_tensor_gradient(args: &GradientArgs<'_>) -> Gradients {
    let mut grads = vec![None; args.op.num_inputs()];
    let Some(grad) = args.grad(0) else { return Ok(grads) };
    let (values, default) = (args.input(1), args.input(2));
    let graph = grad.graph();
    let attrs = args.op.attrs();
    let types = attrs.strings("row_partition_types")?;
    let outer_rank = 1 + ragged_rank(&kinds(types)?) as i32;
    let range = |of: &Output, begin: i32, end: i32, end_mask: i64| -> Result<Output> {
        let slice = graph.op("StridedSlice").input(of).input(&int_vector(graph, &[begin])?);
        let slice = slice.input(&int_vector(graph, &[end])?).input(&int_vector(graph, &[1])?);
        slice.attr("end_mask", end_mask).try_build()?.try_output(0)
    };
    let concat = |parts: &[Output]| -> Result<Output> {
        let joined = graph.op("ConcatV2").inputs(parts).input(&int_scalar(graph, 0)?);
        joined.attr("N", parts.len() as i64).try_build()?.try_output(0)
    };
    let no_place = int_scalar(graph, -1)?;
    let flat = int_vector(graph, &[-1])?;
    let values_shape = shape_of(&values)?;
    let count = reshape(&range(&values_shape, 0, 1, 0)?, &int_vector(graph, &[])?)?;
    let numbers = call("Range", &[&int_scalar(graph, 0)?, &count, &int_scalar(graph, 1)?])?;
    let partitions: Vec<Output> = (3..args.op.num_inputs()).map(|input| args.input(input)).collect();
    let sources = graph.op("RaggedTensorToTensor").input(&range(&unary("Shape", &grad)?, 0, outer_rank, 0)?);
    let sources = sources.input(&numbers).input(&no_place).inputs(&partitions);
    let sources = sources.attr("row_partition_types", types).attr("num_row_partition_tensors", partitions.len() as i64);
    let sources = reshape(&sources.try_build()?.try_output(0)?, &flat)?;
    let is_value = binary("NotEqual", &sources, &no_place)?;
    // A row for each position that a row of the values, or the default in its place, was copied to.
    let inner = range(&values_shape, 1, 0, 1)?;
    let places = reshape(&unary("Size", &sources)?, &int_vector(graph, &[1])?)?;
    let rows = reshape(&grad, &concat(&[places, inner])?)?;
    let chosen = |of: &Output, places: &Output| call("GatherV2", &[of, places, &int_scalar(graph, 0)?]);
    let filled = reshape(&unary("Where", &is_value)?, &flat)?;
    let slices = IndexedSlices {
        values: chosen(&rows, &filled)?,
        indices: chosen(&sources, &filled)?,
        dense_shape: Some(values_shape),
    };
    grads[1] = Some(Grad::Slices(slices));
    let left = reshape(&unary("Where", &unary("LogicalNot", &is_value)?)?, &flat)?;
    let left = chosen(&rows, &left)?;
    let default_shape = shape_of(&default)?;
    let axes = graph.op("BroadcastGradientArgs").input(&unary("Shape", &left)?).input(&default_shape).try_build()?;
    grads[2] = Some(reshape(&sum(&left, &axes.try_output(1)?, false)?, &default_shape)?.into());
    Ok(grads)
}

struct ToSparse {
    splits: Range<usize>,
}

impl ToSparse {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(ToSparse { splits: builder.input_range("rt_nested_splits")? })
    }
}

impl Kernel for ToSparse {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let values = context.input(self.splits.end)?;
        let splits = nested_splits(context, self.splits.clone(), values)?;
        let inner = values.shape().slice(1, values.shape().rank());
        let rank = splits.len() + 1 + inner.rank();
        let count = values.num_elements();
        let mut shape = vec![splits[0].len() as i64 - 1];
        shape.extend(splits.iter().map(|splits| splits.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)));
        shape.extend_from_slice(inner.dims());
        // The coordinates of each row, from the outermost dimension inwards.
        let mut coordinates: Vec<Vec<i64>> = (0..shape[0]).map(|row| vec![row]).collect();
        for splits in &splits {
            let mut next = Vec::new();
            for (row, pair) in coordinates.iter().zip(splits.windows(2)) {
                next.extend((0..pair[1] - pair[0]).map(|place| [&row[..], &[place]].concat()));
            }
            coordinates = next;
        }
        let indices = Tensor::build::<i64>(Shape::from_usize(&[count, rank])?, |indices| {
            let per_row = inner.num_elements().max(1);
            for (at, index) in indices.chunks_exact_mut(rank).enumerate() {
                let row = &coordinates[at / per_row];
                index[..row.len()].copy_from_slice(row);
                let mut rest = at % per_row;
                for axis in (0..inner.rank()).rev() {
                    index[row.len() + axis] = (rest % inner.size(axis)) as i64;
                    rest /= inner.size(axis);
                }
            }
        })?;
        let flat = values.reshape(Shape::vector(count))?;
        context.set_output(0, indices);
        context.set_output(1, flat);
        context.set_output(2, Tensor::vector(&shape));
        Ok(())
    }
}

/// The information of a tensor about the rows of a dimension.
#[derive(Clone, Copy, PartialEq)]
enum Partition {
    FirstDimSize,
    ValueRowIds,
    RowSplits,
}

fn kinds(names: &[bytes::Bytes]) -> Result<Vec<Partition>> {
    let kind = |name: &bytes::Bytes| match &name[..] {
        b"FIRST_DIM_SIZE" => Ok(Partition::FirstDimSize),
        b"VALUE_ROWIDS" => Ok(Partition::ValueRowIds),
        b"ROW_SPLITS" => Ok(Partition::RowSplits),
        other => Err(Status::invalid_argument(format!("Unknown string: {}", String::from_utf8_lossy(other)))),
    };
    names.iter().map(kind).collect()
}

fn ragged_rank(kinds: &[Partition]) -> usize {
    kinds.len() - usize::from(kinds.first() == Some(&Partition::FirstDimSize))
}

struct ToTensor {
    partitions: Range<usize>,
    kinds: Vec<Partition>,
}

impl ToTensor {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let kinds = kinds(builder.attrs().strings("row_partition_types")?)?;
        let partitions = builder.input_range("row_partition_tensors")?;
        if kinds.len() != partitions.len() || kinds.is_empty() || ragged_rank(&kinds) == 0 {
            return Err(Status::invalid_argument("row_partition_types must name each row partition tensor"));
        }
        if kinds[0] == Partition::ValueRowIds || kinds[1..].contains(&Partition::FirstDimSize) {
            return Err(Status::invalid_argument("Cannot handle VALUE_ROWIDS in first dimension."));
        }
        BoxedKernel::new(ToTensor { partitions, kinds })
    }

    /// Returns the number of children of each row of each ragged dimension.
    fn row_lengths(&self, context: &OpContext<'_>) -> Result<Vec<Vec<usize>>> {
        let mut rows = None;
        let mut all: Vec<Vec<usize>> = Vec::new();
        for (input, kind) in self.partitions.clone().zip(&self.kinds) {
            let partition = context.input(input)?;
            let numbers = partition.to_indices()?;
            // The expected number of rows, from the previous dimension.
            let expected = all.last().map(|lengths| lengths.iter().sum::<usize>()).or(rows);
            match kind {
                Partition::FirstDimSize => {
                    let first = if partition.shape().is_scalar() { numbers.first() } else { None };
                    let first = first.and_then(|&first| usize::try_from(first).ok()).ok_or_else(|| {
                        Status::invalid_argument("FIRST_DIM_SIZE must be a scalar that isn't negative")
                    })?;
                    Shape::from_usize(&[first])?;
                    rows = Some(first);
                }
                Partition::RowSplits => {
                    let valid = partition.shape().is_vector()
                        && numbers.first() == Some(&0)
                        && numbers.is_sorted()
                        && expected.is_none_or(|expected| expected + 1 == numbers.len());
                    if !valid {
                        return Err(Status::invalid_argument("Invalid row split argument"));
                    }
                    all.push(numbers.windows(2).map(|pair| (pair[1] - pair[0]) as usize).collect());
                }
                Partition::ValueRowIds => {
                    let expected = expected.unwrap_or(0);
                    let inside = |&id: &i64| usize::try_from(id).is_ok_and(|id| id < expected);
                    if !partition.shape().is_vector() || !numbers.is_sorted() || !numbers.iter().all(inside) {
                        return Err(Status::invalid_argument(format!(
                            "value rowids must rise, and be less than the number of rows, {expected}"
                        )));
                    }
                    // The number of rows may come from FIRST_DIM_SIZE alone, without any data.
                    tensor::Shape::from_usize(&[expected])?.num_bytes(8)?;
                    let mut lengths = vec![0; expected.min(MAX_ROWS)];
                    if lengths.len() < expected {
                        return Err(Status::resource_exhausted(format!("{expected} rows")));
                    }
                    numbers.iter().for_each(|&id| lengths[id as usize] += 1);
                    all.push(lengths);
                }
            }
        }
        Ok(all)
    }
}

/// More rows than this without values are refused.
const MAX_ROWS: usize = 1 << 31;

impl Kernel for ToTensor {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let wanted = context.input(0)?;
        let wanted = match wanted.shape().is_scalar() {
            true if wanted.to_index()? == -1 => PartialShape::unknown(),
            true => {
                return Err(Status::invalid_argument(
                    "The only valid scalar shape tensor is the fully unknown shape specified as -1.",
                ));
            }
            false => PartialShape::from_dims(&wanted.to_indices()?),
        };
        let (values, default) = (context.input(1)?, context.input(2)?);
        let lengths = self.row_lengths(context)?;
        let output = combined_shape(&wanted, &PartialShape::from(values.shape()), lengths.len())?;
        if lengths.last().is_some_and(|lengths| lengths.iter().sum::<usize>() != values.shape().size(0)) {
            return Err(Status::invalid_argument("the row partitions don't fit the number of values"));
        }
        let widest = |level: usize| lengths[level].iter().copied().max().unwrap_or(0) as i64;
        let mut dims = vec![output.dim(0).unwrap_or(lengths[0].len() as i64)];
        dims.extend((0..lengths.len()).map(|level| output.dim(level + 1).unwrap_or_else(|| widest(level))));
        let inner = values.shape().slice(1, values.shape().rank());
        let sizes: Vec<usize> = dims.iter().map(|&size| size as usize).collect();
        dims.extend_from_slice(inner.dims());
        let shape = Shape::new(&dims)?;
        shape.num_bytes(16)?;
        // The destination of each row, in units of one value's size; none if it was cut off.
        let mut places: Vec<Option<usize>> = (0..lengths[0].len()).map(|row| (row < sizes[0]).then_some(row)).collect();
        for (lengths, &size) in lengths.iter().zip(&sizes[1..]) {
            let children = places.iter().zip(lengths).flat_map(|(place, &length)| {
                (0..length).map(move |child| place.filter(|_| child < size).map(|place| place * size + child))
            });
            places = children.collect();
        }
        let fill = Fill::new(default.shape(), &inner)?;
        let output = with_movable!(values.dtype(), E => {
            let (from, default) = (E::view(values)?, E::view(default)?);
            let width = inner.num_elements();
            E::build(values.dtype(), shape, |to| {
                if width == 0 {
                    return;
                }
                for to in to.chunks_exact_mut(width) {
                    for (at, to) in to.iter_mut().enumerate() {
                        to.clone_from(&default[fill.place(at)]);
                    }
                }
                for (from, place) in from.chunks_exact(width).zip(&places) {
                    if let Some(place) = place {
                        to[place * width..(place + 1) * width].clone_from_slice(from);
                    }
                }
            })
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

/// Repeats a default value over the inner dimensions.
struct Fill {
    /// Size of the inner dimension, and the step in the default value.
    axes: Vec<(usize, usize)>,
}

impl Fill {
    fn new(default: &Shape, inner: &Shape) -> Result<Fill> {
        let incompatible = || {
            Status::invalid_argument(format!(
                "default_value.shape={default} and rt_input.flat_values.shape=[?]+{inner} are incompatible"
            ))
        };
        let missing = inner.rank().checked_sub(default.rank()).ok_or_else(incompatible)?;
        let mut axes = Vec::with_capacity(inner.rank());
        let mut step = 1;
        for axis in (0..inner.rank()).rev() {
            let size = axis.checked_sub(missing).map_or(1, |axis| default.size(axis));
            if size != 1 && size != inner.size(axis) {
                return Err(incompatible());
            }
            axes.push((inner.size(axis), if size == 1 { 0 } else { step }));
            step *= size;
        }
        Ok(Fill { axes })
    }

    /// Returns the element of the default value for one of the inner dimensions.
    fn place(&self, mut index: usize) -> usize {
        let mut place = 0;
        for &(size, step) in &self.axes {
            place += index % size * step;
            index /= size;
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_shape, run_op};

    #[test]
    fn to_sparse() {
        let inputs = [Tensor::vector(&[0i64, 2, 2, 3]), Tensor::from_slice(&[3, 1], &[5f32, 6.0, 7.0]).unwrap()];
        let outputs = run_op("RaggedTensorToSparse", attrs![("RAGGED_RANK", 1i64)], &inputs).unwrap();
        assert_eq!(outputs[0].as_slice::<i64>().unwrap(), &[0, 0, 0, 0, 1, 0, 2, 0, 0]);
        assert_eq!(outputs[1].as_slice::<f32>().unwrap(), &[5.0, 6.0, 7.0]);
        assert_eq!(outputs[2].as_slice::<i64>().unwrap(), &[3, 2, 1]);
        for bad in [vec![], vec![1, 3], vec![0, 2, 1, 3], vec![0, 4]] {
            let inputs = [Tensor::vector::<i64>(&bad), inputs[1].clone()];
            assert!(run_op("RaggedTensorToSparse", attrs![("RAGGED_RANK", 1i64)], &inputs).is_err());
        }
        check_shape("RaggedTensorToSparse", attrs![("RAGGED_RANK", 1i64)], "[?];[3,2]", "[6,3];[6];[3]");
    }

    fn to_tensor(shape: Tensor, kinds: &[&str], partitions: &[Tensor]) -> Result<Tensor> {
        let mut inputs = vec![shape, Tensor::vector(&[1, 2, 3, 4]), Tensor::scalar(9)];
        inputs.extend_from_slice(partitions);
        let attrs = attrs![("row_partition_types", kinds), ("num_row_partition_tensors", partitions.len() as i64)];
        Ok(run_op("RaggedTensorToTensor", attrs, &inputs)?.remove(0))
    }

    #[test]
    fn to_tensor_pads_and_cuts() {
        let splits = [Tensor::vector(&[0i64, 3, 3, 4])];
        let whole = to_tensor(Tensor::scalar(-1i64), &["ROW_SPLITS"], &splits).unwrap();
        assert_eq!(whole.as_slice::<i32>().unwrap(), &[1, 2, 3, 9, 9, 9, 4, 9, 9]);
        let cut = to_tensor(Tensor::vector(&[2i64, 2]), &["ROW_SPLITS"], &splits).unwrap();
        assert_eq!(cut.as_slice::<i32>().unwrap(), &[1, 2, 9, 9]);
        let ids = [Tensor::scalar(3i64), Tensor::vector(&[0i64, 0, 2, 2])];
        let rows = to_tensor(Tensor::scalar(-1i64), &["FIRST_DIM_SIZE", "VALUE_ROWIDS"], &ids).unwrap();
        assert_eq!(rows.as_slice::<i32>().unwrap(), &[1, 2, 9, 9, 3, 4]);
        let bad = [Tensor::vector(&[0i64, 3, 2, 4])];
        assert!(to_tensor(Tensor::scalar(-1i64), &["ROW_SPLITS"], &bad).is_err());
        let far = [Tensor::scalar(2i64), Tensor::vector(&[0i64, 0, 2, 2])];
        assert!(to_tensor(Tensor::scalar(-1i64), &["FIRST_DIM_SIZE", "VALUE_ROWIDS"], &far).is_err());
    }
}
