//! Tridiagonal matrices: TridiagonalSolve, TridiagonalMatMul.

use super::gradients;
use super::matrices::{Matrices, Process, matrix_kernels, store};
use kernel::{Gradient, Op, OpContext, OpDef, OpFlags, ShapeContext};
use numeric::linalg::Field;
use tensor::{DType, Result, Status};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "TridiagonalSolve",
            inputs: &["diagonals: T", "rhs: T"],
            outputs: &["output: T"],
            attrs: &[
                "partial_pivoting: bool = true",
                "perturb_singular: bool = false",
                "T: {double, float, complex64, complex128}",
            ],
            flags: OpFlags::NONE,
        },
        shape: solve_shape,
        gradient: Gradient::Fn(gradients::tridiagonal_solve),
        kernels: matrix_kernels!([Float, Double, Complex64, Complex128] => |builder| {
            if builder.attrs().bool("perturb_singular")? {
                return Err(Status::unimplemented("perturb_singular is not supported on a CPU."));
            }
            Ok(Solve { pivoting: builder.attrs().bool("partial_pivoting")? })
        }),
    },
    Op {
        def: OpDef {
            name: "TridiagonalMatMul",
            inputs: &["superdiag: T", "maindiag: T", "subdiag: T", "rhs: T"],
            outputs: &["output: T"],
            attrs: &["T: {double, float, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: product_shape,
        gradient: Gradient::Fn(gradients::tridiagonal_matmul),
        kernels: matrix_kernels!([Float, Double, Complex64, Complex128] => |_| Ok(Product)),
    },
];

fn solve_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank_at_least(0, 2)?;
    let rhs = c.with_rank_at_least(1, 2)?;
    c.set_output(0, rhs);
    Ok(())
}

fn product_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    for input in 0..3 {
        c.with_rank_at_least(input, 2)?;
    }
    let rhs = c.with_rank_at_least(3, 2)?;
    c.set_output(0, rhs);
    Ok(())
}

struct Solve {
    pivoting: bool,
}

impl Process for Solve {
    fn run<F: Field>(&self, context: &mut OpContext<'_>, dtype: DType) -> Result<()> {
        let diagonals = Matrices::<F>::input(context, 0)?;
        let mut rhs = Matrices::<F>::input(context, 1)?;
        let (size, columns) = (diagonals.columns, rhs.columns);
        if diagonals.rows != 3 {
            return Err(Status::invalid_argument(format!("Expected 3 diagonals got {}", diagonals.rows)));
        }
        if rhs.rows != size || rhs.batch != diagonals.batch {
            return Err(Status::invalid_argument(format!(
                "The length of diagonals and right hand side don't match: {size} and {}",
                rhs.rows
            )));
        }
        if size > 0 && columns > 0 {
            for (three, rhs) in diagonals.each().zip(rhs.values.chunks_exact_mut(size * columns)) {
                let solved = match self.pivoting {
                    true => solve_pivoting(three, size, rhs, columns),
                    false => solve_plainly(three, size, rhs, columns),
                };
                // Without a solution, the result is not finite.
                if solved.is_none() {
                    rhs.fill(F::from_real(f64::NAN));
                }
            }
        }
        context.set_output(0, store(dtype, rhs.shape(&[size, columns])?, &rhs.values)?);
        Ok(())
    }
}

fn row<F>(rhs: &[F], columns: usize, index: usize) -> &[F] {
    &rhs[index * columns..(index + 1) * columns]
}

/// Subtracts a multiple of one row from another.
fn eliminate<F: Field>(rhs: &mut [F], columns: usize, from: usize, to: usize, factor: F) {
    let source = row(rhs, columns, from).to_vec();
    for (to, from) in rhs[to * columns..(to + 1) * columns].iter_mut().zip(source) {
        *to -= factor * from;
    }
}

/// Swaps adjacent rows if the lower one has the larger pivot, which fills a second diagonal above.
fn solve_pivoting<F: Field>(three: &[F], size: usize, rhs: &mut [F], columns: usize) -> Option<()> {
    let (above, rest) = three.split_at(size);
    let (middle, below) = rest.split_at(size);
    // The three elements of each row of the triangle.
    let mut upper = vec![[F::zero(); 3]; size];
    upper[0] = [middle[0], if size > 1 { above[0] } else { F::zero() }, F::zero()];
    for index in 0..size - 1 {
        let next_above = if index + 2 < size { above[index + 1] } else { F::zero() };
        let next = [below[index + 1], middle[index + 1], next_above];
        let current = upper[index];
        if current[0].magnitude() >= next[0].magnitude() {
            if current[0].is_zero() {
                return None;
            }
            let factor = next[0] / current[0];
            upper[index + 1] = [next[1] - factor * current[1], next[2] - factor * current[2], F::zero()];
            eliminate(rhs, columns, index, index + 1, factor);
        } else {
            let factor = current[0] / next[0];
            upper[index] = next;
            upper[index + 1] = [current[1] - factor * next[1], current[2] - factor * next[2], F::zero()];
            let (first, second) = rhs[index * columns..(index + 2) * columns].split_at_mut(columns);
            first.swap_with_slice(second);
            eliminate(rhs, columns, index, index + 1, factor);
        }
    }
    if upper[size - 1][0].is_zero() {
        return None;
    }
    for index in (0..size).rev() {
        for offset in 1..3 {
            if index + offset < size {
                eliminate(rhs, columns, index + offset, index, upper[index][offset]);
            }
        }
        for value in &mut rhs[index * columns..(index + 1) * columns] {
            *value /= upper[index][0];
        }
    }
    Some(())
}

/// Eliminates without swapping rows.
fn solve_plainly<F: Field>(three: &[F], size: usize, rhs: &mut [F], columns: usize) -> Option<()> {
    let (above, rest) = three.split_at(size);
    let (middle, below) = rest.split_at(size);
    let mut pivots = middle.to_vec();
    if pivots[0].is_zero() {
        return None;
    }
    for index in 1..size {
        let factor = below[index] / pivots[index - 1];
        pivots[index] -= factor * above[index - 1];
        if pivots[index].is_zero() {
            return None;
        }
        eliminate(rhs, columns, index - 1, index, factor);
    }
    for index in (0..size).rev() {
        if index + 1 < size {
            eliminate(rhs, columns, index + 1, index, above[index]);
        }
        for value in &mut rhs[index * columns..(index + 1) * columns] {
            *value /= pivots[index];
        }
    }
    Some(())
}

struct Product;

impl Process for Product {
    fn run<F: Field>(&self, context: &mut OpContext<'_>, dtype: DType) -> Result<()> {
        let diagonals = [0, 1, 2].map(|input| Matrices::<F>::input(context, input));
        let [above, middle, below] = diagonals;
        let (above, middle, below) = (above?, middle?, below?);
        let rhs = Matrices::<F>::input(context, 3)?;
        let (size, columns) = (rhs.rows, rhs.columns);
        for diagonal in [&above, &middle, &below] {
            if diagonal.rows != 1 || diagonal.columns != size || diagonal.batch != rhs.batch {
                return Err(Status::invalid_argument(format!(
                    "a diagonal must have shape [..., 1, {size}], got [{}, {}]",
                    diagonal.rows, diagonal.columns
                )));
            }
        }
        let mut result = vec![F::zero(); rhs.values.len()];
        for (index, to) in result.chunks_exact_mut(columns.max(1)).enumerate() {
            let place = index % size.max(1);
            let mut add = |factor: F, source: usize| {
                for (to, &from) in to.iter_mut().zip(row(&rhs.values, columns, source)) {
                    *to += factor * from;
                }
            };
            add(middle.values[index], index);
            if place + 1 < size {
                add(above.values[index], index + 1);
            }
            if place > 0 {
                add(below.values[index], index - 1);
            }
        }
        context.set_output(0, store(dtype, rhs.shape(&[size, columns])?, &result)?);
        Ok(())
    }
}
