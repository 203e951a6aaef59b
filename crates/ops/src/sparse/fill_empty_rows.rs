//! SparseFillEmptyRows, which gives empty rows a default value, and its gradient.

use super::coordinates::{Sparse, Words, indices_tensor};
use crate::arithmetic::Arithmetic;
use crate::movement::Movable;
use graph::{Output, ShapeContext};
use kernel::{
    BoxedKernel, Grad, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, kernels,
};
use num_complex::Complex;
use std::marker::PhantomData;
use tensor::{PartialShape, Result, Shape, Status, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "SparseFillEmptyRows",
            inputs: &["indices: int64", "values: T", "dense_shape: int64", "default_value: T"],
            outputs: &[
                "output_indices: int64",
                "output_values: T",
                "empty_row_indicator: bool",
                "reverse_index_map: int64",
            ],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: fill_shape,
        gradient: Gradient::Fn(fill_gradient),
        kernels: &[KernelDef::any(|_| BoxedKernel::new(FillEmptyRows))],
    },
    Op {
        def: OpDef {
            name: "SparseFillEmptyRowsGrad",
            inputs: &["reverse_index_map: int64", "grad_values: T"],
            outputs: &["d_values: T", "d_default_value: T"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            let map = c.with_rank(0, 1)?;
            c.with_rank(1, 1)?;
            c.set_output(0, map);
            c.set_output(1, PartialShape::scalar());
            Ok(())
        },
        gradient: Gradient::Unsupported,
        kernels: kernels!("T": [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, Complex<f32>, Complex<f64>
        ] => FillEmptyRowsGrad),
    },
];

/// Gives every empty row of a sparse matrix a default. Returns the indices, the values, which rows were empty, and the new
/// position of each value.
#[track_caller]
pub fn sparse_fill_empty_rows(
    indices: &Output,
    values: &Output,
    dense_shape: &Output,
    default_value: &Output,
) -> [Output; 4] {
    let op = indices.graph().op("SparseFillEmptyRows").input(indices).input(values).input(dense_shape);
    let op = op.input(default_value).build();
    [op.output(0), op.output(1), op.output(2), op.output(3)]
}

fn fill_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(1) else { return Ok(vec![None; 4]) };
    let op = grad.graph().op("SparseFillEmptyRowsGrad").input(&args.output(3)).input(&grad).try_build()?;
    Ok(vec![None, Some(op.try_output(0)?.into()), None, Some(op.try_output(1)?.into())])
}

fn fill_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (indices, values, shape) = (c.with_rank(0, 2)?, c.with_rank(1, 1)?, c.with_rank(2, 1)?);
    c.with_rank(3, 0)?;
    let rows = PartialShape::new(&[indices.dim(0)]).merge(&values)?;
    let rank = PartialShape::new(&[indices.dim(1)]).merge(&shape)?;
    let dense = c.constant_as_shape(2)?;
    c.set_output(0, PartialShape::new(&[None, rank.dim(0)]));
    c.set_output(1, PartialShape::unknown_of_rank(1));
    c.set_output(2, PartialShape::new(&[dense.dim(0)]));
    c.set_output(3, rows);
    Ok(())
}

struct FillEmptyRows;

impl Kernel for FillEmptyRows {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let sparse = Sparse::in_words(Words::FillEmptyRows, context.input(0)?, context.input(1)?, context.input(2)?)?;
        let default = context.input(3)?;
        if !default.shape().is_scalar() {
            return Err(Status::invalid_argument(format!("default_value must be a scalar, saw: {}", default.shape())));
        }
        let Some(&rows) = sparse.shape.first() else {
            return Err(Status::invalid_argument("Dense shape cannot be empty."));
        };
        let (count, rank) = (sparse.count(), sparse.rank());
        if rows == 0 && count != 0 {
            return Err(Status::invalid_argument(format!(
                "Received SparseTensor with dense_shape[0] = 0 but indices.shape[0] = {count}"
            )));
        }
        let rows = usize::try_from(rows).map_err(|_| Status::invalid_argument("a negative number of rows"))?;
        // A request with a small shape must not take all memory.
        if Shape::from_usize(&[rows])?.num_bytes(32)? > tensor::tensor_bytes_max() {
            return Err(Status::resource_exhausted(format!("out of memory: can't fill {rows} rows")));
        }
        let mut per_row = vec![0usize; rows];
        for position in 0..count {
            let row = sparse.index(position)[0];
            match usize::try_from(row).ok().and_then(|row| per_row.get_mut(row)) {
                Some(seen) => *seen += 1,
                // TensorFlow says so of negative ones, too.
                None => {
                    return Err(Status::invalid_argument(format!(
                        "indices({position}, 0) is invalid: {row} >= {rows}"
                    )));
                }
            }
        }
        let empty = Tensor::build::<bool>(Shape::vector(rows), |empty| {
            empty.iter_mut().zip(&per_row).for_each(|(empty, &seen)| *empty = seen == 0);
        })?;
        // The position of the next value of each row.
        let mut total = 0;
        for seen in &mut per_row {
            let start = total;
            total += (*seen).max(1);
            *seen = start;
        }
        let starts = per_row;
        let mut next = starts.clone();
        let mut sources = vec![None; total];
        let mut reverse = Vec::with_capacity(count);
        for position in 0..count {
            let place = &mut next[sparse.index(position)[0] as usize];
            sources[*place] = Some(position);
            reverse.push(*place as i64);
            *place += 1;
        }
        let mut indices = vec![0i64; total * rank];
        for (row, &start) in starts.iter().enumerate() {
            indices[start * rank] = row as i64;
        }
        for (place, source) in sources.iter().enumerate() {
            if let Some(position) = source {
                indices[place * rank..(place + 1) * rank].copy_from_slice(sparse.index(*position));
            }
        }
        let values = with_movable!(sparse.values.dtype(), E => {
            let (from, default) = (E::view(sparse.values)?, E::view(default)?);
            let Some(default) = default.first() else { return Err(Status::internal("no default")) };
            E::build(sparse.values.dtype(), Shape::vector(total), |to| {
                for (to, source) in to.iter_mut().zip(&sources) {
                    to.clone_from(source.map_or(default, |position| &from[position]));
                }
            })?
        });
        let indices = indices_tensor(total, rank, &indices)?;
        context.set_output(0, indices);
        context.set_output(1, values);
        context.set_output(2, empty);
        context.set_output(3, Tensor::vector(&reverse));
        Ok(())
    }
}

struct FillEmptyRowsGrad<T>(PhantomData<T>);

impl<T: Arithmetic> FillEmptyRowsGrad<T> {
    fn create(_: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(FillEmptyRowsGrad::<T>(PhantomData))
    }
}

impl<T: Arithmetic> Kernel for FillEmptyRowsGrad<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (map, grad) = (context.slice::<i64>(0)?, context.slice::<T>(1)?);
        let mut visited = vec![false; grad.len()];
        let mut values = Vec::with_capacity(map.len());
        for (position, &place) in map.iter().enumerate() {
            let place = usize::try_from(place).ok().filter(|&place| place < grad.len()).ok_or_else(|| {
                Status::invalid_argument(format!(
                    "Elements in reverse index must be in [0, {}) but got {place} at {position}",
                    grad.len()
                ))
            })?;
            values.push(grad[place]);
            visited[place] = true;
        }
        let unvisited = grad.iter().zip(visited).filter(|(_, visited)| !visited);
        let default = unvisited.fold(T::default(), |sum, (&grad, _)| sum.plus(grad));
        context.set_output(0, Tensor::vector(&values));
        context.set_output(1, Tensor::scalar(default));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_gradient, infer, run_op};

    fn inputs(rows: &[i64], shape: &[i64], values: Tensor, default: Tensor) -> Vec<Tensor> {
        let indices = Tensor::from_slice(&[rows.len() as i64 / 2, 2], rows).unwrap();
        vec![indices, values, Tensor::vector(shape), default]
    }

    #[test]
    fn rows_without_values_get_the_default() {
        let inputs_of =
            |rows: &[i64]| inputs(rows, &[5, 6], Tensor::vector(&[1f32, 2., 3., 4.]), Tensor::scalar(-9f32));
        let outputs = run_op("SparseFillEmptyRows", attrs![], &inputs_of(&[0, 1, 0, 3, 2, 0, 3, 1])).unwrap();
        assert_eq!(outputs[0].as_slice::<i64>().unwrap(), &[0, 1, 0, 3, 1, 0, 2, 0, 3, 1, 4, 0]);
        assert_eq!(outputs[1].as_slice::<f32>().unwrap(), &[1., 2., -9., 3., 4., -9.]);
        assert_eq!(outputs[2].as_slice::<bool>().unwrap(), &[false, true, false, false, true]);
        assert_eq!(outputs[3].as_slice::<i64>().unwrap(), &[0, 1, 3, 4]);
        // Unsorted rows are sorted.
        let outputs = run_op("SparseFillEmptyRows", attrs![], &inputs_of(&[2, 1, 0, 3, 2, 0, 0, 1])).unwrap();
        assert_eq!(outputs[1].as_slice::<f32>().unwrap(), &[2., 4., -9., 1., 3., -9., -9.]);
        assert_eq!(outputs[3].as_slice::<i64>().unwrap(), &[3, 0, 4, 1]);
        let none = inputs(&[], &[2, 6], Tensor::from_strings(Shape::vector(0), vec![]).unwrap(), Tensor::string("d"));
        let outputs = run_op("SparseFillEmptyRows", attrs![], &none).unwrap();
        assert_eq!(outputs[1].strings().unwrap(), &["d", "d"]);
    }

    #[test]
    fn mistakes() {
        let one = |shape: &[i64]| inputs(&[7, 1], shape, Tensor::vector(&[1f32]), Tensor::scalar(0f32));
        let message = |shape: &[i64]| {
            run_op("SparseFillEmptyRows", attrs![], &one(shape))
                .unwrap_err()
                .message()
                .lines()
                .next()
                .unwrap()
                .to_owned()
        };
        assert_eq!(message(&[5, 6]), "indices(0, 0) is invalid: 7 >= 5");
        assert_eq!(message(&[0, 6]), "Received SparseTensor with dense_shape[0] = 0 but indices.shape[0] = 1");
    }

    #[test]
    fn gradient() {
        let grad = run_op(
            "SparseFillEmptyRowsGrad",
            attrs![],
            &[Tensor::vector(&[0i64, 1, 4]), Tensor::vector(&[1f32, 2., 3., 4., 5.])],
        )
        .unwrap();
        assert_eq!(grad[0].as_slice::<f32>().unwrap(), &[1., 2., 5.]);
        assert_eq!(grad[1].to_scalar::<f32>().unwrap(), 7.);
        let inputs = inputs(&[2, 1, 0, 3], &[4, 6], Tensor::vector(&[1f64, 2.]), Tensor::scalar(3f64));
        check_gradient(&inputs, |_, xs| sparse_fill_empty_rows(&xs[0], &xs[1], &xs[2], &xs[3])[1].clone());
    }

    #[test]
    fn shapes() {
        let constants = [(2, Tensor::vector(&[5i64, 6]))];
        let shapes = infer("SparseFillEmptyRows", attrs![], "[4,2];[4];[2];[]", &constants).unwrap();
        let shown: Vec<String> = shapes.iter().map(PartialShape::to_string).collect();
        assert_eq!(shown, ["[?,2]", "[?]", "[5]", "[4]"]);
    }
}
