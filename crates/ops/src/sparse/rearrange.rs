//! Rearranging values: SparseReshape, SparseReorder, SparseConcat, SparseSlice, SparseSplit.

use super::coordinates::{Sparse, Words, indices_tensor, list, pick, sorted_order};
use crate::compose::call;
use graph::{Output, ShapeContext};
use kernel::{
    BoxedKernel, Grad, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags,
};
use std::ops::Range;
use tensor::{PartialShape, Result, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "SparseReshape",
            inputs: &["input_indices: int64", "input_shape: int64", "new_shape: int64"],
            outputs: &["output_indices: int64", "output_shape: int64"],
            attrs: &[],
            flags: OpFlags::NONE,
        },
        shape: reshape_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(SparseReshape))],
    },
    Op {
        def: OpDef {
            name: "SparseReorder",
            inputs: &["input_indices: int64", "input_values: T", "input_shape: int64"],
            outputs: &["output_indices: int64", "output_values: T"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            let (indices, values) = (c.with_rank(0, 2)?, c.with_rank(1, 1)?);
            c.with_rank(2, 1)?;
            c.set_output(0, indices);
            c.set_output(1, values);
            Ok(())
        },
        gradient: Gradient::Fn(reorder_gradient),
        kernels: &[KernelDef::any(|_| BoxedKernel::new(SparseReorder))],
    },
    Op {
        def: OpDef {
            name: "SparseConcat",
            inputs: &["indices: N * int64", "values: N * T", "shapes: N * int64"],
            outputs: &["output_indices: int64", "output_values: T", "output_shape: int64"],
            attrs: &["concat_dim: int", "N: int >= 2", "T: type"],
            flags: OpFlags::NONE,
        },
        shape: concat_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(SparseConcat::create)],
    },
    Op {
        def: OpDef {
            name: "SparseSlice",
            inputs: &["indices: int64", "values: T", "shape: int64", "start: int64", "size: int64"],
            outputs: &["output_indices: int64", "output_values: T", "output_shape: int64"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            let shape = c.with_rank(2, 1)?;
            c.set_output(0, PartialShape::new(&[None, shape.dim(0)]));
            c.set_output(1, PartialShape::unknown_of_rank(1));
            c.set_output(2, shape);
            Ok(())
        },
        gradient: Gradient::Fn(slice_gradient),
        kernels: &[KernelDef::any(|_| BoxedKernel::new(SparseSlice))],
    },
    Op {
        def: OpDef {
            name: "SparseSliceGrad",
            inputs: &["backprop_val_grad: T", "input_indices: int64", "input_start: int64", "output_indices: int64"],
            outputs: &["val_grad: T"],
            attrs: &[numbertype!("T")],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            let indices = c.with_rank(1, 2)?;
            c.set_output(0, PartialShape::new(&[indices.dim(0)]));
            Ok(())
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(SparseSliceGrad))],
    },
    Op {
        def: OpDef {
            name: "SparseSplit",
            inputs: &["split_dim: int64", "indices: int64", "values: T", "shape: int64"],
            outputs: &[
                "output_indices: num_split * int64",
                "output_values: num_split * T",
                "output_shape: num_split * int64",
            ],
            attrs: &["num_split: int >= 1", "T: type"],
            flags: OpFlags::NONE,
        },
        shape: split_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(SparseSplit::create)],
    },
];

/// Reshapes a sparse tensor; returns the indices and the shape.
#[track_caller]
pub fn sparse_reshape(indices: &Output, shape: &Output, new_shape: &Output) -> (Output, Output) {
    let op = indices.graph().op("SparseReshape").input(indices).input(shape).input(new_shape).build();
    (op.output(0), op.output(1))
}

/// Returns the indices in row-major order, and their values.
#[track_caller]
pub fn sparse_reorder(indices: &Output, values: &Output, shape: &Output) -> (Output, Output) {
    let op = indices.graph().op("SparseReorder").input(indices).input(values).input(shape).build();
    (op.output(0), op.output(1))
}

fn reorder_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(1) else { return Ok(vec![None, None, None]) };
    let graph = grad.graph();
    let (indices, shape) = (args.input(0), args.input(2));
    let scalar = |value: i32| graph.constant_tensor(&Tensor::scalar(value));
    // Sorting numbers along with the values shows where each one went.
    let count = call("Size", &[&args.input(1)])?;
    let numbers = call("Range", &[&scalar(0), &count, &scalar(1)])?;
    let sorted = graph.op("SparseReorder").input(&indices).input(&numbers).input(&shape).try_build()?.try_output(1)?;
    let inverse = call("InvertPermutation", &[&sorted])?;
    let gathered = call("GatherV2", &[&grad, &inverse, &scalar(0)])?;
    Ok(vec![None, Some(gathered.into()), None])
}

fn slice_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(1) else { return Ok(vec![None; 5]) };
    let inputs = [&grad, &args.input(0), &args.input(3), &args.output(0)];
    Ok(vec![None, Some(call("SparseSliceGrad", &inputs)?.into()), None, None, None])
}

fn reshape_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (indices, new_shape) = (c.with_rank(0, 2)?, c.with_rank(2, 1)?);
    c.with_rank(1, 1)?;
    c.set_output(0, PartialShape::new(&[indices.dim(0), new_shape.dim(0)]));
    c.set_output(1, PartialShape::new(&[new_shape.dim(0)]));
    Ok(())
}

fn concat_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let count = c.num_inputs() / 3;
    let (mut rows, mut rank) = (Some(0), None);
    for index in 0..count {
        let indices = c.with_rank(index, 2)?;
        rows = rows.zip(indices.dim(0)).map(|(sum, rows): (i64, i64)| sum.saturating_add(rows));
        rank = rank.or(indices.dim(1));
        c.with_rank(count + index, 1)?;
        c.with_rank(2 * count + index, 1)?;
    }
    c.set_output(0, PartialShape::new(&[rows, rank]));
    c.set_output(1, PartialShape::new(&[rows]));
    c.set_output(2, PartialShape::new(&[rank]));
    Ok(())
}

fn split_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.with_rank(3, 1)?;
    let count = c.num_outputs() / 3;
    for index in 0..count {
        c.set_output(index, PartialShape::new(&[None, shape.dim(0)]));
        c.set_output(count + index, PartialShape::unknown_of_rank(1));
        c.set_output(2 * count + index, shape.clone());
    }
    Ok(())
}

/// Returns the number of elements of a dense shape.
fn dense_size(shape: &[i64]) -> Result<i64> {
    shape.iter().try_fold(1i64, |size, &dim| {
        size.checked_mul(dim.max(0)).ok_or_else(|| {
            Status::invalid_argument(format!(
                "Encountered overflow when multiplying {size} with {dim}, result: -1: shape [{}] is too large",
                list(shape)
            ))
        })
    })
}

struct SparseReshape;

impl Kernel for SparseReshape {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (indices, shape, target) = (context.input(0)?, context.input(1)?, context.input(2)?);
        if !indices.shape().is_matrix() || !shape.shape().is_vector() || !target.shape().is_vector() {
            return Err(Status::invalid_argument(format!(
                "Input indices should be a matrix and shapes vectors, but received shapes {}, {} and {}",
                indices.shape(),
                shape.shape(),
                target.shape()
            )));
        }
        let (shape, wanted) = (shape.as_slice::<i64>()?, target.as_slice::<i64>()?);
        if indices.dims()[1] != shape.len() as i64 {
            return Err(Status::invalid_argument(format!(
                "Input tensor rank must match input shape length, got {} and {}",
                indices.dims()[1],
                shape.len()
            )));
        }
        let size = dense_size(shape)?;
        let mut new_shape = wanted.to_vec();
        let mut unknown = None;
        let mut product = 1i64;
        for (axis, &dim) in wanted.iter().enumerate() {
            match (dim, unknown) {
                (-1, Some(other)) => {
                    return Err(Status::invalid_argument(format!(
                        "only one output dimension may be -1, not both {other} and {axis}"
                    )));
                }
                (-1, None) => {
                    unknown = Some(axis);
                    new_shape[axis] = 1;
                }
                (..0, _) => {
                    return Err(Status::invalid_argument(format!("size {axis} must be non-negative, not {dim}")));
                }
                _ => {
                    product = product.checked_mul(dim).ok_or_else(|| {
                        Status::invalid_argument(format!(
                            "Encountered overflow when multiplying {product} with {dim}, result: -1: shape [{}] is \
                                 too large",
                            list(wanted)
                        ))
                    })?;
                }
            }
        }
        if let Some(axis) = unknown {
            if product == 0 {
                return Err(Status::invalid_argument(
                    "reshape cannot infer the missing input size for an empty tensor unless all specified input sizes \
                     are non-zero",
                ));
            }
            if size % product != 0 {
                return Err(Status::invalid_argument(format!(
                    "Input to reshape is a SparseTensor with {size} dense values, but the requested shape requires a \
                     multiple of {product}. input_shape=[{}] output_shape=[{}]",
                    list(shape),
                    list(&new_shape)
                )));
            }
            new_shape[axis] = size / product;
        }
        let new_size = dense_size(&new_shape)?;
        if new_size != size {
            return Err(Status::invalid_argument(format!(
                "Input to reshape is a tensor with {size} dense values, but the requested shape has {new_size}. \
                 input_shape=[{}] output_shape=[{}]",
                list(shape),
                list(&new_shape)
            )));
        }
        let rows = indices.dims()[0] as usize;
        let from = indices.as_slice::<i64>()?;
        if rows > 0 && size == 0 {
            return Err(Status::invalid_argument("Indices are given for a sparse tensor without elements"));
        }
        let mut moved = vec![0i64; rows * new_shape.len()];
        for (row, place) in moved.chunks_exact_mut(new_shape.len().max(1)).enumerate().take(rows) {
            let index = &from[row * shape.len()..(row + 1) * shape.len()];
            let mut flat =
                index.iter().zip(shape).fold(0i64, |flat, (&index, &size)| flat.wrapping_mul(size).wrapping_add(index));
            for (to, &size) in place.iter_mut().zip(&new_shape).rev() {
                *to = flat.rem_euclid(size.max(1));
                flat = flat.div_euclid(size.max(1));
            }
        }
        let output = indices_tensor(rows, new_shape.len(), &moved)?;
        context.set_output(0, output);
        context.set_output(1, Tensor::vector(&new_shape));
        Ok(())
    }
}

struct SparseReorder;

impl Kernel for SparseReorder {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let sparse = Sparse::in_words(Words::Validated, context.input(0)?, context.input(1)?, context.input(2)?)?;
        let rank = sparse.rank();
        let is_sorted = (1..sparse.count()).all(|row| sparse.index(row - 1) <= sparse.index(row));
        if is_sorted {
            let (indices, values) = (context.take_input(0)?, context.take_input(1)?);
            context.set_output(0, indices);
            context.set_output(1, values);
            return Ok(());
        }
        let order = sorted_order(sparse.indices, rank, sparse.count());
        let indices: Vec<i64> = order.iter().flat_map(|&row| sparse.index(row)).copied().collect();
        let (indices, values) = (indices_tensor(order.len(), rank, &indices)?, pick(sparse.values, &order)?);
        context.set_output(0, indices);
        context.set_output(1, values);
        Ok(())
    }
}

struct SparseConcat {
    axis: i64,
    indices: Range<usize>,
    values: Range<usize>,
    shapes: Range<usize>,
}

impl SparseConcat {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(SparseConcat {
            axis: builder.attrs().int("concat_dim")?,
            indices: builder.input_range("indices")?,
            values: builder.input_range("values")?,
            shapes: builder.input_range("shapes")?,
        })
    }
}

impl Kernel for SparseConcat {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let mut parts = Vec::new();
        for ((indices, values), shape) in self.indices.clone().zip(self.values.clone()).zip(self.shapes.clone()) {
            parts.push(Sparse::new(context.input(indices)?, context.input(values)?, context.input(shape)?)?);
        }
        let Some(first) = parts.first().copied() else {
            return Err(Status::invalid_argument("there is nothing to concatenate"));
        };
        let rank = first.rank();
        let axis = if self.axis < 0 { self.axis + rank as i64 } else { self.axis };
        let axis = usize::try_from(axis).ok().filter(|&axis| axis < rank).ok_or_else(|| {
            let from = -(rank as i64);
            Status::invalid_argument(format!("Concat dimension must be in range [{from}, {rank}), got {}", self.axis))
        })?;
        let mut shape = first.shape.to_vec();
        let mut indices = Vec::new();
        let mut offset = 0i64;
        for (position, part) in parts.iter().enumerate() {
            if part.rank() != rank {
                return Err(Status::invalid_argument(format!(
                    "Ranks of all input tensors must match: expected {rank} but got {} at position {position}",
                    part.rank()
                )));
            }
            for (dim, (&expected, &size)) in first.shape.iter().zip(part.shape).enumerate() {
                if dim != axis && expected != size {
                    return Err(Status::invalid_argument(format!(
                        "Input shapes must match: expected {expected} for dimension {dim} but got {size} at position \
                         {position}"
                    )));
                }
            }
            for row in 0..part.count() {
                let start = indices.len();
                indices.extend_from_slice(part.index(row));
                indices[start + axis] = indices[start + axis].wrapping_add(offset);
            }
            offset = offset
                .checked_add(part.shape[axis])
                .ok_or_else(|| Status::invalid_argument("the concatenated shape is too large"))?;
        }
        shape[axis] = offset;
        let rows = indices.len() / rank.max(1);
        let values: Vec<&Tensor> = parts.iter().map(|part| part.values).collect();
        let values = crate::array::join(&values, 0, tensor::Shape::vector(rows))?;
        let order = sorted_order(&indices, rank, rows);
        let sorted: Vec<i64> = order.iter().flat_map(|&row| &indices[row * rank..(row + 1) * rank]).copied().collect();
        let (indices, values) = (indices_tensor(rows, rank, &sorted)?, pick(&values, &order)?);
        context.set_output(0, indices);
        context.set_output(1, values);
        context.set_output(2, Tensor::vector(&shape));
        Ok(())
    }
}

/// Returns the values within a box, with indices relative to its corner.
fn boxed(sparse: &Sparse<'_>, start: &[i64], end: &[i64]) -> (Vec<i64>, Vec<usize>) {
    let (mut indices, mut rows) = (Vec::new(), Vec::new());
    for row in 0..sparse.count() {
        let index = sparse.index(row);
        if index.iter().zip(start.iter().zip(end)).all(|(index, (start, end))| (start..end).contains(&index)) {
            indices.extend(index.iter().zip(start).map(|(index, start)| index - start));
            rows.push(row);
        }
    }
    (indices, rows)
}

struct SparseSlice;

impl Kernel for SparseSlice {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let sparse = Sparse::in_words(Words::Sliced, context.input(0)?, context.input(1)?, context.input(2)?)?;
        sparse.check_size()?;
        let (start, size) = (context.slice::<i64>(3)?, context.slice::<i64>(4)?);
        let rank = sparse.rank();
        for (name, vector) in [("start", start), ("size", size)] {
            if vector.len() != rank {
                return Err(Status::invalid_argument(format!(
                    "Expected {name} to be a vector of length {rank} but got length {}",
                    vector.len()
                )));
            }
        }
        let (mut ends, mut shape) = (Vec::with_capacity(rank), Vec::with_capacity(rank));
        for ((&start, &size), &dim) in start.iter().zip(size).zip(sparse.shape) {
            if start < 0 || size < 0 {
                return Err(Status::invalid_argument(format!("start {start} and size {size} must be non-negative")));
            }
            let end = start.saturating_add(size).min(dim);
            ends.push(end);
            shape.push((end - start).max(0));
        }
        let (indices, rows) = boxed(&sparse, start, &ends);
        let (indices, values) = (indices_tensor(rows.len(), rank, &indices)?, pick(sparse.values, &rows)?);
        context.set_output(0, indices);
        context.set_output(1, values);
        context.set_output(2, Tensor::vector(&shape));
        Ok(())
    }
}

struct SparseSliceGrad;

impl Kernel for SparseSliceGrad {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        use crate::movement::Movable;
        let (grad, indices, start, sliced) =
            (context.input(0)?, context.input(1)?, context.slice::<i64>(2)?, context.input(3)?);
        let is_fine = indices.shape().is_matrix()
            && sliced.shape().is_matrix()
            && grad.shape().is_vector()
            && indices.dims()[1] == start.len() as i64
            && sliced.dims()[1] == start.len() as i64
            && sliced.dims()[0] == grad.dims()[0];
        if !is_fine {
            return Err(Status::invalid_argument(format!(
                "the shapes of a sliced gradient don't fit: {}, {}, {}",
                grad.shape(),
                indices.shape(),
                sliced.shape()
            )));
        }
        let rank = start.len();
        let (rows, count) = (indices.dims()[0] as usize, grad.num_elements());
        let (all, kept) = (indices.as_slice::<i64>()?, sliced.as_slice::<i64>()?);
        let output = with_movable!(grad.dtype(), E => {
            let from = E::view(grad)?;
            let zero = E::zero().ok_or_else(|| Status::invalid_argument("values without a zero"))?;
            E::build(grad.dtype(), tensor::Shape::vector(rows), |to| {
                // Both have the same order, so one pass finds each kept value.
                let mut next = 0;
                for (row, to) in to.iter_mut().enumerate() {
                    let index = &all[row * rank..(row + 1) * rank];
                    let is_next = next < count
                        && index.iter().zip(start).zip(&kept[next * rank..(next + 1) * rank]).all(|((i, s), k)| *i == s + k);
                    if is_next {
                        to.clone_from(&from[next]);
                        next += 1;
                    } else {
                        to.clone_from(&zero);
                    }
                }
            })?
        });
        context.set_output(0, output);
        Ok(())
    }
}

struct SparseSplit {
    count: usize,
}

impl SparseSplit {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let count = usize::try_from(builder.attrs().int("num_split")?).unwrap_or(0);
        BoxedKernel::new(SparseSplit { count })
    }
}

impl Kernel for SparseSplit {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let sparse = Sparse::in_words(Words::Validated, context.input(1)?, context.input(2)?, context.input(3)?)?;
        sparse.check_size()?;
        let rank = sparse.rank();
        sparse.validate_bounds()?;
        let wanted = context.scalar::<i64>(0, "split_dim")?;
        let axis = if wanted < 0 { wanted + rank as i64 } else { wanted };
        let axis = usize::try_from(axis).ok().filter(|&axis| axis < rank).ok_or_else(|| {
            let from = -(rank as i64);
            Status::invalid_argument(format!("Input axis should be in range [{from}, {rank}), got {wanted}"))
        })?;
        let (size, count) = (sparse.shape[axis], self.count as i64);
        if count < 1 || count > size {
            return Err(Status::invalid_argument(format!(
                "Input num_split should be between 1 and the splitting dimension size ({size}), got {count}"
            )));
        }
        let (least, larger) = (size / count, size % count);
        let mut from = 0;
        let mut outputs = Vec::with_capacity(self.count);
        for part in 0..count {
            let length = least + i64::from(part < larger);
            let (mut start, mut end, mut shape) = (vec![0; rank], sparse.shape.to_vec(), sparse.shape.to_vec());
            (start[axis], end[axis], shape[axis]) = (from, from + length, length);
            from += length;
            let (indices, rows) = boxed(&sparse, &start, &end);
            outputs.push((
                indices_tensor(rows.len(), rank, &indices)?,
                pick(sparse.values, &rows)?,
                Tensor::vector(&shape),
            ));
        }
        for (index, (indices, values, shape)) in outputs.into_iter().enumerate() {
            context.set_output(index, indices);
            context.set_output(self.count + index, values);
            context.set_output(2 * self.count + index, shape);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_gradient, check_shape, run_op};

    fn matrix(rows: i64, columns: i64, values: &[i64]) -> Tensor {
        Tensor::from_slice(&[rows, columns], values).unwrap()
    }

    fn ints(tensor: &Tensor) -> &[i64] {
        tensor.as_slice().unwrap()
    }

    fn floats(tensor: &Tensor) -> &[f32] {
        tensor.as_slice().unwrap()
    }

    #[test]
    fn reshape() {
        let indices = matrix(3, 2, &[0, 0, 0, 4, 1, 2]);
        let reshape = |shape: &[i64]| {
            run_op("SparseReshape", attrs![], &[indices.clone(), Tensor::vector(&[2i64, 6]), Tensor::vector(shape)])
        };
        let outputs = reshape(&[3, -1]).unwrap();
        assert_eq!((ints(&outputs[0]), ints(&outputs[1])), (&[0, 0, 1, 0, 2, 0][..], &[3, 4][..]));
        let message = |shape: &[i64]| reshape(shape).unwrap_err().message().lines().next().unwrap().to_owned();
        assert_eq!(
            message(&[5, -1]),
            "Input to reshape is a SparseTensor with 12 dense values, but the requested shape requires a multiple of 5. \
             input_shape=[2,6] output_shape=[5,1]"
        );
        assert_eq!(message(&[-1, -1]), "only one output dimension may be -1, not both 0 and 1");
        assert!(message(&[5, 2]).contains("12 dense values, but the requested shape has 10"));
        let none = run_op(
            "SparseReshape",
            attrs![],
            &[matrix(0, 2, &[]), Tensor::vector(&[0i64, 6]), Tensor::vector(&[-1i64, 3])],
        );
        assert_eq!(ints(&none.unwrap()[1]), &[0, 3]);
    }

    #[test]
    fn reorder() {
        let inputs = [matrix(3, 2, &[1, 0, 0, 2, 0, 1]), Tensor::vector(&[3f32, 4., 5.]), Tensor::vector(&[3i64, 3])];
        let outputs = run_op("SparseReorder", attrs![], &inputs).unwrap();
        assert_eq!(ints(&outputs[0]), &[0, 1, 0, 2, 1, 0]);
        assert_eq!(floats(&outputs[1]), &[5., 4., 3.]);
        let inputs = [inputs[0].clone(), Tensor::vector(&[3f64, 4., 5.]), inputs[2].clone()];
        check_gradient(&inputs, |_, xs| sparse_reorder(&xs[0], &xs[1], &xs[2]).1);
    }

    #[test]
    fn concat() {
        let concat = |axis: i64, second: &[i64]| {
            let inputs = [
                matrix(2, 2, &[0, 2, 1, 0]),
                matrix(2, 2, &[0, 1, 1, 1]),
                Tensor::vector(&[1f32, 2.]),
                Tensor::vector(&[3f32, 4.]),
                Tensor::vector(&[2i64, 3]),
                Tensor::vector(second),
            ];
            run_op("SparseConcat", attrs![("concat_dim", axis), ("N", 2i64)], &inputs)
        };
        let outputs = concat(1, &[2, 4]).unwrap();
        assert_eq!(ints(&outputs[0]), &[0, 2, 0, 4, 1, 0, 1, 4]);
        assert_eq!((floats(&outputs[1]), ints(&outputs[2])), (&[1., 3., 2., 4.][..], &[2, 7][..]));
        assert_eq!(ints(&concat(-2, &[2, 3]).unwrap()[2]), &[4, 3]);
        let status = concat(0, &[2, 4]).unwrap_err();
        assert!(status.message().contains("expected 3 for dimension 1 but got 4 at position 1"), "{status}");
    }

    #[test]
    fn slice_and_split() {
        let indices = matrix(4, 2, &[0, 1, 0, 2, 1, 0, 2, 2]);
        let inputs = |values: Tensor| {
            let shape = Tensor::vector(&[3i64, 3]);
            vec![indices.clone(), values, shape, Tensor::vector(&[0i64, 1]), Tensor::vector(&[2i64, 5])]
        };
        let outputs = run_op("SparseSlice", attrs![], &inputs(Tensor::vector(&[1f32, 2., 3., 4.]))).unwrap();
        assert_eq!((ints(&outputs[0]), ints(&outputs[2])), (&[0, 0, 0, 1][..], &[2, 2][..]));
        assert_eq!(floats(&outputs[1]), &[1., 2.]);
        check_gradient(&inputs(Tensor::vector(&[1f64, 2., 3., 4.])), |graph, xs| {
            graph.op("SparseSlice").inputs(xs).build().output(1)
        });
        let inputs = [
            Tensor::scalar(1i64),
            matrix(5, 2, &[0, 2, 0, 4, 0, 5, 1, 0, 1, 1]),
            Tensor::vector(&[1f32, 2., 3., 4., 5.]),
            Tensor::vector(&[2i64, 7]),
        ];
        let outputs = run_op("SparseSplit", attrs![("num_split", 2i64)], &inputs).unwrap();
        assert_eq!(ints(&outputs[0]), &[0, 2, 1, 0, 1, 1]);
        assert_eq!(ints(&outputs[1]), &[0, 0, 0, 1]);
        assert_eq!((floats(&outputs[2]), floats(&outputs[3])), (&[1., 4., 5.][..], &[2., 3.][..]));
        assert_eq!((ints(&outputs[4]), ints(&outputs[5])), (&[2, 4][..], &[2, 3][..]));
    }

    #[test]
    fn shapes() {
        check_shape("SparseReshape", attrs![], "[5,2];[2];[3]", "[5,3];[3]");
        check_shape("SparseConcat", attrs![("N", 2i64)], "[4,2];[?,2];[4];[?];[2];[2]", "[?,2];[?];[2]");
        check_shape("SparseSlice", attrs![], "[4,2];[4];[2];[2];[2]", "[?,2];[?];[2]");
    }
}
