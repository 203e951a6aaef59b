//! Diagonals of whole tensors, and bands of matrices: Diag, DiagPart, MatrixBandPart.

use crate::compose::{call, unary};
use crate::movement::{Movable, copy_cost_ns};
use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Grad, Gradient, GradientArgs, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags, shape};
use tensor::{PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Diag",
            inputs: &["diagonal: T"],
            outputs: &["output: T"],
            attrs: &["T: {bfloat16, half, float, double, int32, int64, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: diag_shape,
        gradient: Gradient::Fn(diag_gradient),
        kernels: &[KernelDef::any(|_| BoxedKernel::new(Diag))],
    },
    Op {
        def: OpDef {
            name: "DiagPart",
            inputs: &["input: T"],
            outputs: &["diagonal: T"],
            attrs: &["T: {bfloat16, half, float, double, int32, int64, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: diag_part_shape,
        gradient: Gradient::Fn(diag_part_gradient),
        kernels: &[KernelDef::any(|_| BoxedKernel::new(DiagPart))],
    },
    Op {
        def: OpDef {
            name: "MatrixBandPart",
            inputs: &["input: T", "num_lower: Tindex", "num_upper: Tindex"],
            outputs: &["band: T"],
            attrs: &["T: type", "Tindex: {int32, int64} = DT_INT64"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(band_part_gradient),
        kernels: &[KernelDef::any(|_| BoxedKernel::new(BandPart))],
    },
    Op {
        def: OpDef {
            name: "BatchMatrixBandPart",
            inputs: &["input: T", "num_lower: int64", "num_upper: int64"],
            outputs: &["band: T"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(BandPart))],
    },
];

/// Returns a tensor of twice the rank with `diagonal` on its diagonal and zeros elsewhere.
#[track_caller]
pub fn diag(diagonal: &Output) -> Output {
    diagonal.graph().op("Diag").input(diagonal).output()
}

/// Returns the diagonal of a tensor whose first half of dimensions equals the second.
#[track_caller]
pub fn diag_part(input: &Output) -> Output {
    input.graph().op("DiagPart").input(input).output()
}

/// Returns matrices with only so many diagonals below and above the main one; -1 keeps all.
#[track_caller]
pub fn matrix_band_part(input: &Output, num_lower: i64, num_upper: i64) -> Output {
    let number = |value: i64| input.graph().constant_tensor(&Tensor::scalar(value));
    input.graph().op("MatrixBandPart").input(input).input(&number(num_lower)).input(&number(num_upper)).output()
}

fn diag_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None]) };
    Ok(vec![Some(unary("DiagPart", &grad)?.into())])
}

fn diag_part_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None]) };
    Ok(vec![Some(unary("Diag", &grad)?.into())])
}

fn band_part_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 3]) };
    Ok(vec![Some(call("MatrixBandPart", &[&grad, &args.input(1), &args.input(2)])?.into()), None, None])
}

fn diag_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.with_rank_at_least(0, 1)?;
    c.set_output(0, input.concat(&input));
    Ok(())
}

fn diag_part_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.input(0);
    let Some(rank) = input.rank() else { return Ok(()) };
    if rank == 0 || rank % 2 != 0 {
        return Err(Status::invalid_argument(format!("Input must have even and non-zero rank, input rank is {rank}")));
    }
    let half: PartialShape = input.slice(0, rank / 2).merge(&input.slice(rank / 2, rank))?;
    c.set_output(0, half);
    Ok(())
}

struct Diag;

impl Kernel for Diag {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        if input.shape().is_scalar() {
            return Err(Status::invalid_argument("Input must be at least rank 1, got 0"));
        }
        let shape = input.shape().concat(input.shape())?;
        let count = input.num_elements();
        let output = with_movable!(input.dtype(), E => {
            let from = E::view(input)?;
            let zero = E::zero().ok_or_else(|| Status::invalid_argument("there is no zero to fill with"))?;
            E::build(input.dtype(), shape, |to| {
                to.fill(zero);
                for (index, value) in from.iter().enumerate() {
                    to[index * (count + 1)].clone_from(value);
                }
            })
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

struct DiagPart;

impl Kernel for DiagPart {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let rank = input.shape().rank();
        if let Some(axis) =
            (0..rank / 2).find(|&axis| rank % 2 == 0 && input.dims()[axis] != input.dims()[axis + rank / 2])
        {
            return Err(Status::invalid_argument(format!(
                "Invalid shape {}: dimensions {axis} and {} do not match.",
                input.shape(),
                axis + rank / 2
            )));
        }
        if rank == 0 || rank % 2 != 0 || input.dims()[..rank / 2] != input.dims()[rank / 2..] {
            return Err(Status::invalid_argument(format!(
                "The rank of the tensor should be even and positive, and its halves equal, got shape {}",
                input.shape()
            )));
        }
        let shape: Shape = input.shape().slice(0, rank / 2);
        let count = shape.num_elements();
        let output = with_movable!(input.dtype(), E => {
            let from = E::view(input)?;
            E::build(input.dtype(), shape, |to| {
                for (index, to) in to.iter_mut().enumerate() {
                    to.clone_from(&from[index * (count + 1)]);
                }
            })
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

struct BandPart;

impl Kernel for BandPart {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let shape = context.input(0)?.shape().clone();
        let number = |index: usize, name: &str| {
            let tensor = context.input(index)?;
            if !tensor.shape().is_scalar() {
                return Err(Status::invalid_argument(format!("{name} must be scalar, got shape {}", tensor.shape())));
            }
            tensor.to_index()
        };
        let (lower, upper) = (number(1, "num_lower")?, number(2, "num_upper")?);
        if shape.rank() < 2 {
            return Err(Status::invalid_argument(format!("input must be at least 2-dim, received shape: {shape}")));
        }
        let (rows, columns) = (shape.dim(shape.rank() - 2), shape.dim(shape.rank() - 1));
        if lower > rows {
            return Err(Status::invalid_argument(format!(
                "num_lower must be negative or less or equal to number of rows ({rows}) got: {lower}"
            )));
        }
        if upper > columns {
            return Err(Status::invalid_argument(format!(
                "num_upper must be negative or less or equal to number of columns ({columns}) got: {upper}"
            )));
        }
        let input = context.take_input(0)?;
        let output = if lower < 0 && upper < 0 {
            input
        } else {
            with_movable!(input.dtype(), E => banded::<E>(input, rows as usize, columns as usize, lower, upper))?
        };
        context.set_output(0, output);
        Ok(())
    }
}

fn banded<E: Movable>(input: Tensor, rows: usize, columns: usize, lower: i64, upper: i64) -> Result<Tensor> {
    let zero = E::zero().ok_or_else(|| Status::invalid_argument("there is no zero to fill with"))?;
    let bound = |row: usize, shift: i64| (row as i64 + shift).clamp(0, columns as i64) as usize;
    E::modify(input, |elements| {
        if elements.is_empty() {
            return Ok(());
        }
        numeric::parallel::for_each_chunk_mut(elements, columns, copy_cost_ns::<E>(columns), |first, run| {
            for (offset, line) in run.chunks_exact_mut(columns).enumerate() {
                let row = (first + offset) % rows;
                let start = if lower < 0 { 0 } else { bound(row, -lower) };
                let end = if upper < 0 { columns } else { bound(row, upper + 1) };
                line[..start].fill(zero.clone());
                line[end.max(start)..].fill(zero.clone());
            }
        });
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_gradient, check_shape, run_op};
    use tensor::{Result, Tensor};

    #[test]
    fn whole_tensors() {
        let y = run_op("Diag", attrs![], &[Tensor::vector(&[1f32, 2.0])]).unwrap();
        assert_eq!((y[0].dims(), y[0].as_slice::<f32>().unwrap()), (&[2i64, 2][..], &[1., 0., 0., 2.][..]));
        let matrix = Tensor::from_slice(&[2, 2], &[1i32, 2, 3, 4]).unwrap();
        let y = run_op("Diag", attrs![], &[matrix.clone()]).unwrap();
        assert_eq!(y[0].dims(), [2, 2, 2, 2]);
        let back = run_op("DiagPart", attrs![], &y).unwrap();
        assert_eq!(back[0].as_slice::<i32>().unwrap(), matrix.as_slice::<i32>().unwrap());
        assert!(run_op("DiagPart", attrs![], &[Tensor::vector(&[1i32])]).is_err());
        assert!(run_op("Diag", attrs![], &[Tensor::scalar(1i32)]).is_err());
    }

    #[test]
    fn bands() {
        let matrix = Tensor::from_slice(&[3, 4], &(1..13).collect::<Vec<i32>>()).unwrap();
        let band = |lower: i64, upper: i64| -> Result<Vec<i32>> {
            let inputs = [matrix.clone(), Tensor::scalar(lower), Tensor::scalar(upper)];
            Ok(run_op("MatrixBandPart", attrs![], &inputs)?[0].as_slice::<i32>()?.to_vec())
        };
        // As TensorFlow answers.
        assert_eq!(band(1, 0).unwrap(), [1, 0, 0, 0, 5, 6, 0, 0, 0, 10, 11, 0]);
        assert_eq!(band(-1, 1).unwrap(), [1, 2, 0, 0, 5, 6, 7, 0, 9, 10, 11, 12]);
        assert_eq!(band(0, -1).unwrap(), [1, 2, 3, 4, 0, 6, 7, 8, 0, 0, 11, 12]);
        assert!(band(4, 0).is_err());
        assert!(band(0, 5).is_err());
    }

    #[test]
    fn shapes_and_gradients() {
        check_shape("Diag", attrs![], "[2,?]", "[2,?,2,?]");
        check_shape("DiagPart", attrs![], "[2,?,?,3]", "[2,3]");
        let x = Tensor::from_slice(&[2, 2], &[1f64, 2., 3., 4.]).unwrap();
        check_gradient(&[Tensor::vector(&[1f64, 2.])], |_, xs| super::diag(&xs[0]));
        check_gradient(&[x.clone()], |_, xs| super::diag_part(&xs[0]));
        check_gradient(&[x], |_, xs| super::matrix_band_part(&xs[0], 0, 1));
    }
}
