//! Updates of rows of a tensor, in place if it isn't shared: InplaceUpdate, InplaceAdd, InplaceSub, and the parts of
//! ParallelConcat.

use super::concat::join;
use crate::arithmetic::Arithmetic;
use crate::movement::Movable;
use graph::ShapeContext;
use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, shape};
use tensor::{Complex32, Complex64, DType, Result, Shape, Status, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "InplaceUpdate",
            inputs: &["x: T", "i: int32", "v: T"],
            outputs: &["y: T"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: UPDATE,
    },
    Op {
        def: OpDef {
            name: "InplaceAdd",
            inputs: &["x: T", "i: int32", "v: T"],
            outputs: &["y: T"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: ADD,
    },
    Op {
        def: OpDef {
            name: "InplaceSub",
            inputs: &["x: T", "i: int32", "v: T"],
            outputs: &["y: T"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: SUBTRACT,
    },
    Op {
        def: OpDef {
            name: "ParallelConcat",
            inputs: &["values: N * T"],
            outputs: &["output: T"],
            attrs: &["N: int >= 1", "T: type", "shape: shape"],
            flags: OpFlags::NONE,
        },
        shape: parallel_concat_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| BoxedKernel::new(ParallelConcat { shape: known_shape(builder)? }))],
    },
    Op {
        def: OpDef {
            name: "_ParallelConcatStart",
            inputs: &[],
            outputs: &["output: dtype"],
            attrs: &["shape: shape", "dtype: type"],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::from_shape_attr,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| {
            BoxedKernel::new(ConcatStart { dtype: builder.output_dtype(0), shape: known_shape(builder)? })
        })],
    },
    Op {
        def: OpDef {
            name: "_ParallelConcatUpdate",
            inputs: &["value: T", "update: T"],
            outputs: &["output: T"],
            attrs: &["T: type", "loc: int"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| BoxedKernel::new(ConcatUpdate { row: builder.attrs().int("loc")? }))],
    },
];

const UPDATE: &[KernelDef] = &[KernelDef::any(|_| BoxedKernel::new(Inplace(Change::Update)))];
const ADD: &[KernelDef] = &[KernelDef::any(|_| BoxedKernel::new(Inplace(Change::Add)))];
const SUBTRACT: &[KernelDef] = &[KernelDef::any(|_| BoxedKernel::new(Inplace(Change::Subtract)))];

fn known_shape(builder: &KernelBuilder<'_>) -> Result<Shape> {
    let shape = builder.attrs().shape("shape")?;
    shape.to_shape().ok_or_else(|| Status::invalid_argument(format!("shape must be fully defined, got {shape}")))
}

fn parallel_concat_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.attrs.shape("shape")?;
    if !shape.is_fully_defined() {
        return Err(Status::invalid_argument("shape attr must be fully defined."));
    }
    for index in 0..c.num_inputs() {
        let input = c.input(index);
        if input.dim(0).is_some_and(|rows| rows != 1) {
            return Err(Status::invalid_argument("Size of first dimension must be 1."));
        }
        input.merge(&shape.with_dim(0, Some(1)))?;
    }
    c.set_output(0, shape);
    Ok(())
}

#[derive(Clone, Copy)]
enum Change {
    Update,
    Add,
    Subtract,
}

struct Inplace(Change);

impl Kernel for Inplace {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let target = context.take_input(0)?;
        let (indices, values) = (context.input(1)?, context.input(2)?);
        if !indices.shape().is_vector() {
            return Err(Status::invalid_argument(format!("i must be a vector. {}", indices.shape())));
        }
        let rank = target.shape().rank();
        if rank == 0 || values.shape().rank() != rank {
            return Err(Status::invalid_argument(format!(
                "x and v shape doesn't match (ranks differ): {} vs. {}",
                target.shape(),
                values.shape()
            )));
        }
        if let Some(axis) = (1..rank).find(|&axis| values.dims()[axis] != target.dims()[axis]) {
            return Err(Status::invalid_argument(format!(
                "x and v shape doesn't match at index {axis} : {} vs. {}",
                target.shape(),
                values.shape()
            )));
        }
        if values.shape().size(0) != indices.num_elements() {
            return Err(Status::invalid_argument(format!(
                "i and x shape doesn't match at index 0: {} vs. {}",
                indices.shape(),
                values.shape()
            )));
        }
        let rows = target.shape().dim(0);
        if rows == 0 && indices.num_elements() > 0 {
            return Err(Status::invalid_argument("there are no rows to change"));
        }
        // Indices wrap around, as they do in TensorFlow.
        let places: Vec<usize> =
            indices.to_indices()?.iter().map(|index| index.rem_euclid(rows.max(1)) as usize).collect();
        let output = change_rows(target, &places, values, self.0)?;
        context.set_output(0, output);
        Ok(())
    }
}

fn change_rows(target: Tensor, places: &[usize], values: &Tensor, change: Change) -> Result<Tensor> {
    let len = target.dims()[1..].iter().product::<i64>() as usize;
    if len == 0 || places.is_empty() {
        return Ok(target);
    }
    if matches!(change, Change::Update) {
        return with_movable!(target.dtype(), E => {
            let from = E::view(values)?;
            E::modify(target, |to| {
                for (&place, row) in places.iter().zip(from.chunks_exact(len)) {
                    to[place * len..(place + 1) * len].clone_from_slice(row);
                }
                Ok(())
            })
        });
    }
    macro_rules! by_type {
        ($($dtype:ident => $rust:ty),* $(,)?) => {
            match target.dtype() {
                $(DType::$dtype => sum_rows::<$rust>(target, places, values, len, change),)*
                other => Err(Status::unimplemented(format!("{other} elements can't be added"))),
            }
        };
    }
    by_type!(
        Float => f32, Double => f64, Half => f16, BFloat16 => bf16, Int8 => i8, Int16 => i16, Int32 => i32, Int64 => i64,
        UInt8 => u8, UInt16 => u16, UInt32 => u32, UInt64 => u64, Complex64 => Complex32, Complex128 => Complex64,
    )
}

fn sum_rows<T: Arithmetic>(
    mut target: Tensor,
    places: &[usize],
    values: &Tensor,
    len: usize,
    change: Change,
) -> Result<Tensor> {
    let from = values.as_slice::<T>()?;
    let to = target.make_mut::<T>()?;
    for (&place, row) in places.iter().zip(from.chunks_exact(len)) {
        let to = to[place * len..(place + 1) * len].iter_mut().zip(row);
        match change {
            Change::Subtract => to.for_each(|(to, &from)| *to = to.minus(from)),
            _ => to.for_each(|(to, &from)| *to = to.plus(from)),
        }
    }
    Ok(target)
}

struct ParallelConcat {
    shape: Shape,
}

impl Kernel for ParallelConcat {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let values = context.input_list(0..context.num_inputs())?;
        let row = if self.shape.is_scalar() { None } else { Some(self.shape.with_dim(0, 1)?) };
        let fits = row.is_some_and(|row| values.iter().all(|value| value.shape() == &row))
            && self.shape.size(0) == values.len();
        if !fits {
            return Err(Status::invalid_argument(format!("the values don't make up shape {}", self.shape)));
        }
        let output = join(&values, 0, self.shape.clone())?;
        drop(values);
        context.set_output(0, output);
        Ok(())
    }
}

struct ConcatStart {
    dtype: DType,
    shape: Shape,
}

impl Kernel for ConcatStart {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        context.set_output(0, Tensor::new(self.dtype, self.shape.clone())?);
        Ok(())
    }
}

struct ConcatUpdate {
    row: i64,
}

impl Kernel for ConcatUpdate {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let target = context.take_input(0)?;
        let update = context.input(1)?;
        if target.shape().is_scalar() || update.shape() != &target.shape().with_dim(0, 1)? {
            return Err(Status::invalid_argument(format!(
                "update shape doesn't match: {} vs. {}",
                target.shape(),
                update.shape()
            )));
        }
        let rows = target.shape().dim(0);
        let row = if self.row < 0 { self.row.saturating_add(rows) } else { self.row };
        if row < 0 || row >= rows {
            return Err(Status::invalid_argument(format!("loc {} is not in [0, {rows})", self.row)));
        }
        let output = change_rows(target, &[row as usize], update, Change::Update)?;
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, run_op};
    use tensor::{DType, Result, Shape, Tensor};

    /// The answers in these tests are TensorFlow's.
    #[test]
    fn rows() {
        let x = Tensor::from_slice(&[2, 2], &[1i32, 2, 3, 4]).unwrap();
        let run = |op: &str, indices: &[i32], values: &[i32]| -> Result<Vec<i32>> {
            let values = Tensor::from_slice(&[indices.len() as i64, 2], values)?;
            Ok(run_op(op, attrs![], &[x.clone(), Tensor::vector(indices), values])?[0].as_slice::<i32>()?.to_vec())
        };
        assert_eq!(run("InplaceAdd", &[0, 0], &[10, 20, 30, 40]).unwrap(), [41, 62, 3, 4]);
        assert_eq!(run("InplaceUpdate", &[1], &[10, 20]).unwrap(), [1, 2, 10, 20]);
        assert_eq!(run("InplaceUpdate", &[-1], &[10, 20]).unwrap(), [1, 2, 10, 20]);
        assert_eq!(run("InplaceUpdate", &[2], &[10, 20]).unwrap(), [10, 20, 3, 4]);
        assert_eq!(run("InplaceSub", &[5], &[1, 1]).unwrap(), [1, 2, 2, 3]);
        let bad = [x.clone(), Tensor::scalar(0i32), Tensor::vector(&[1i32, 1])];
        assert!(run_op("InplaceSub", attrs![], &bad).is_err());
    }

    #[test]
    fn pieces_of_a_concatenation() {
        let shape = || Shape::new(&[2, 2]).unwrap();
        let row = |values: &[f32]| Tensor::from_slice(&[1, 2], values).unwrap();
        let y = run_op("ParallelConcat", attrs![("shape", shape())], &[row(&[1., 2.]), row(&[3., 4.])]).unwrap();
        assert_eq!(y[0].as_slice::<f32>().unwrap(), &[1., 2., 3., 4.]);
        let start = run_op("_ParallelConcatStart", attrs![("shape", shape()), ("dtype", DType::Float)], &[]).unwrap();
        let first =
            run_op("_ParallelConcatUpdate", attrs![("loc", 0i64)], &[start[0].clone(), row(&[1., 2.])]).unwrap();
        let both = run_op("_ParallelConcatUpdate", attrs![("loc", 1i64)], &[first[0].clone(), row(&[3., 4.])]).unwrap();
        assert_eq!(both[0].as_slice::<f32>().unwrap(), &[1., 2., 3., 4.]);
        assert!(run_op("_ParallelConcatUpdate", attrs![("loc", 2i64)], &[first[0].clone(), row(&[3., 4.])]).is_err());
    }
}
