//! Linear systems and determinants: Cholesky, MatrixInverse, MatrixDeterminant, LogMatrixDeterminant, MatrixSolve,
//! MatrixTriangularSolve, MatrixSolveLs, Lu.

use super::gradients;
use super::matrices::{Matrices, Process, matrix_dims, matrix_kernels, merged_dim, set_batch, square_dims, store};
use graph::Output;
use kernel::{Gradient, Op, OpContext, OpDef, OpFlags, ShapeContext, shape};
use numeric::linalg::{self, Field};
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Cholesky",
            inputs: &["input: T"],
            outputs: &["output: T"],
            attrs: &["T: {double, float, half, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: square_shape,
        gradient: Gradient::Fn(gradients::cholesky),
        kernels: matrix_kernels!([Float, Double, Complex64, Complex128] => |_| Ok(Cholesky)),
    },
    Op {
        def: OpDef {
            name: "MatrixInverse",
            inputs: &["input: T"],
            outputs: &["output: T"],
            attrs: &["adjoint: bool = false", "T: {double, float, half, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: square_shape,
        gradient: Gradient::Fn(gradients::matrix_inverse),
        kernels: matrix_kernels!([Float, Double, Half, Complex64, Complex128] => |builder| {
            Ok(Solve { adjoint: builder.attrs().bool("adjoint")?, inverse: true })
        }),
    },
    Op {
        def: OpDef {
            name: "MatrixDeterminant",
            inputs: &["input: T"],
            outputs: &["output: T"],
            attrs: &["T: {half, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: determinant_shape,
        gradient: Gradient::Fn(gradients::matrix_determinant),
        kernels: matrix_kernels!([Float, Double, Complex64, Complex128] => |_| Ok(Determinant { log: false })),
    },
    Op {
        def: OpDef {
            name: "LogMatrixDeterminant",
            inputs: &["input: T"],
            outputs: &["sign: T", "log_abs_determinant: T"],
            attrs: &["T: {half, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: determinant_shape,
        gradient: Gradient::Fn(gradients::log_matrix_determinant),
        kernels: matrix_kernels!([Float, Double, Complex64, Complex128] => |_| Ok(Determinant { log: true })),
    },
    Op {
        def: OpDef {
            name: "MatrixSolve",
            inputs: &["matrix: T", "rhs: T"],
            outputs: &["output: T"],
            attrs: &["adjoint: bool = false", "T: {double, float, half, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: solve_shape,
        gradient: Gradient::Fn(gradients::matrix_solve),
        kernels: matrix_kernels!([Float, Double, Complex64, Complex128] => |builder| {
            Ok(Solve { adjoint: builder.attrs().bool("adjoint")?, inverse: false })
        }),
    },
    Op {
        def: OpDef {
            name: "MatrixTriangularSolve",
            inputs: &["matrix: T", "rhs: T"],
            outputs: &["output: T"],
            attrs: &[
                "lower: bool = true",
                "adjoint: bool = false",
                "T: {bfloat16, double, float, half, complex64, complex128}",
            ],
            flags: OpFlags::NONE,
        },
        shape: triangular_solve_shape,
        gradient: Gradient::Fn(gradients::matrix_triangular_solve),
        kernels: matrix_kernels!([Float, Double, Half, BFloat16, Complex64, Complex128] => |builder| {
            Ok(TriangularSolve { lower: builder.attrs().bool("lower")?, adjoint: builder.attrs().bool("adjoint")? })
        }),
    },
    Op {
        def: OpDef {
            name: "MatrixSolveLs",
            inputs: &["matrix: T", "rhs: T", "l2_regularizer: double"],
            outputs: &["output: T"],
            attrs: &["T: {double, float, half, complex64, complex128}", "fast: bool = true"],
            flags: OpFlags::NONE,
        },
        shape: least_squares_shape,
        gradient: Gradient::Fn(gradients::matrix_solve_ls),
        kernels: matrix_kernels!([Float, Double, Complex64, Complex128] => |builder| {
            Ok(LeastSquares { fast: builder.attrs().bool("fast")? })
        }),
    },
    Op {
        def: OpDef {
            name: "Lu",
            inputs: &["input: T"],
            outputs: &["lu: T", "p: output_idx_type"],
            attrs: &["T: {double, float, half, complex64, complex128}", "output_idx_type: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: lu_shape,
        gradient: Gradient::Unsupported,
        kernels: matrix_kernels!([Float, Double, Half, Complex64, Complex128] => |builder| {
            Ok(Lu { index: builder.attrs().dtype("output_idx_type")? })
        }),
    },
];

/// Returns the lower triangular factor of the Cholesky decomposition.
#[track_caller]
pub fn cholesky(input: &Output) -> Output {
    input.graph().op("Cholesky").input(input).output()
}

/// Returns the inverse of square matrices.
#[track_caller]
pub fn matrix_inverse(input: &Output) -> Output {
    input.graph().op("MatrixInverse").input(input).output()
}

/// Returns the determinant of square matrices.
#[track_caller]
pub fn matrix_determinant(input: &Output) -> Output {
    input.graph().op("MatrixDeterminant").input(input).output()
}

/// Returns the solution of `matrix * x = rhs`.
#[track_caller]
pub fn matrix_solve(matrix: &Output, rhs: &Output) -> Output {
    matrix.graph().op("MatrixSolve").input(matrix).input(rhs).output()
}

/// Returns the solution of `matrix * x = rhs` for the lower triangle of `matrix`.
#[track_caller]
pub fn matrix_triangular_solve(matrix: &Output, rhs: &Output) -> Output {
    matrix.graph().op("MatrixTriangularSolve").input(matrix).input(rhs).output()
}

fn square_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (batch, size) = square_dims(c, 0)?;
    set_batch(c, 0, &batch, &[size, size]);
    Ok(())
}

fn determinant_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (batch, _) = square_dims(c, 0)?;
    for output in 0..c.num_outputs() {
        c.set_output(output, batch.clone());
    }
    Ok(())
}

fn lu_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (batch, size) = square_dims(c, 0)?;
    set_batch(c, 0, &batch, &[size, size]);
    set_batch(c, 1, &batch, &[size]);
    Ok(())
}

fn solve_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (batch, size) = square_dims(c, 0)?;
    let (rhs_batch, rows, columns) = matrix_dims(c, 1)?;
    let size = merged_dim(size, rows)?;
    set_batch(c, 0, &batch.merge(&rhs_batch)?, &[size, columns]);
    Ok(())
}

fn triangular_solve_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (batch, size) = square_dims(c, 0)?;
    let (rhs_batch, rows, columns) = matrix_dims(c, 1)?;
    let size = merged_dim(size, rows)?;
    let batch = shape::broadcast(&batch, &rhs_batch)?;
    set_batch(c, 0, &batch, &[size, columns]);
    Ok(())
}

fn least_squares_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(2, 0)?;
    let (batch, rows, unknowns) = matrix_dims(c, 0)?;
    let (rhs_batch, rhs_rows, columns) = matrix_dims(c, 1)?;
    merged_dim(rows, rhs_rows)?;
    set_batch(c, 0, &batch.merge(&rhs_batch)?, &[unknowns, columns]);
    Ok(())
}

struct Cholesky;

impl Process for Cholesky {
    fn run<F: Field>(&self, context: &mut OpContext<'_>, dtype: DType) -> Result<()> {
        let mut matrices = Matrices::<F>::square_input(context, 0)?;
        let size = matrices.rows;
        for matrix in matrices.values.chunks_exact_mut((size * size).max(1)) {
            // A matrix that isn't positive definite has no factor; the result is NaN.
            if !linalg::cholesky(matrix, size) {
                for (place, value) in matrix.iter_mut().enumerate() {
                    *value = if place % size > place / size { F::zero() } else { F::from_real(f64::NAN) };
                }
            }
        }
        context.set_output(0, store(dtype, matrices.shape(&[size, size])?, &matrices.values)?);
        Ok(())
    }
}

struct Solve {
    adjoint: bool,
    /// The right side is the identity.
    inverse: bool,
}

impl Process for Solve {
    fn run<F: Field>(&self, context: &mut OpContext<'_>, dtype: DType) -> Result<()> {
        let matrices = Matrices::<F>::square_input(context, 0)?;
        let size = matrices.rows;
        let rhs = if self.inverse { None } else { Some(Matrices::<F>::input(context, 1)?) };
        let columns = rhs.as_ref().map_or(size, |rhs| rhs.columns);
        if let Some(rhs) = &rhs {
            same_batch(&matrices.batch, &rhs.batch)?;
            if rhs.rows != size {
                return Err(Status::invalid_argument("Input matrix and rhs are incompatible."));
            }
        }
        let mut solutions = Vec::with_capacity(matrices.count() * size * columns);
        let identity = if self.inverse { linalg::identity(size, size) } else { Vec::new() };
        for (index, matrix) in matrices.each().enumerate() {
            let mut factors = if self.adjoint { linalg::adjoint(matrix, size, size) } else { matrix.to_vec() };
            let (order, _) = linalg::lu(&mut factors, size);
            if !has_pivots(&factors, size) {
                return Err(Status::invalid_argument(match self.inverse {
                    true => "Input is not invertible.",
                    false => "Input matrix is not invertible.",
                }));
            }
            let rhs = rhs.as_ref().map_or(&identity[..], |rhs| &rhs.values[index * size * columns..]);
            let start = solutions.len();
            for row in order {
                solutions.extend_from_slice(&rhs[row * columns..(row + 1) * columns]);
            }
            linalg::solve_triangular(&factors, size, true, true, &mut solutions[start..], columns);
            linalg::solve_triangular(&factors, size, false, false, &mut solutions[start..], columns);
        }
        context.set_output(0, store(dtype, matrices.shape(&[size, columns])?, &solutions)?);
        Ok(())
    }
}

/// Returns whether the factors have a nonzero pivot in every row.
fn has_pivots<F: Field>(factors: &[F], size: usize) -> bool {
    (0..size).all(|place| factors[place * size + place].magnitude() > 0.0)
}

fn same_batch(a: &Shape, b: &Shape) -> Result<()> {
    if a != b {
        return Err(Status::invalid_argument(format!(
            "All input tensors must have the same outer dimensions: {a} and {b} differ"
        )));
    }
    Ok(())
}

struct Determinant {
    log: bool,
}

impl Process for Determinant {
    fn run<F: Field>(&self, context: &mut OpContext<'_>, dtype: DType) -> Result<()> {
        let matrices = Matrices::<F>::square_input(context, 0)?;
        let size = matrices.rows;
        let (mut signs, mut logs) = (Vec::new(), Vec::new());
        for index in 0..matrices.count() {
            let mut factors = matrices.values[index * size * size..(index + 1) * size * size].to_vec();
            let (_, sign) = linalg::lu(&mut factors, size);
            let (mut sign, mut log) = (F::from_real(sign), 0.0);
            for place in 0..size {
                let pivot = factors[place * size + place];
                let magnitude = pivot.magnitude();
                if !self.log {
                    sign *= pivot;
                } else if magnitude == 0.0 {
                    (sign, log) = (F::zero(), f64::NEG_INFINITY);
                } else {
                    sign *= pivot.scaled(1.0 / magnitude);
                    log += magnitude.ln();
                }
            }
            signs.push(sign);
            logs.push(F::from_real(log));
        }
        context.set_output(0, store(dtype, matrices.batch.clone(), &signs)?);
        if self.log {
            context.set_output(1, store(dtype, matrices.batch.clone(), &logs)?);
        }
        Ok(())
    }
}

struct TriangularSolve {
    lower: bool,
    adjoint: bool,
}

impl Process for TriangularSolve {
    fn run<F: Field>(&self, context: &mut OpContext<'_>, dtype: DType) -> Result<()> {
        let matrices = Matrices::<F>::square_input(context, 0)?;
        let rhs = Matrices::<F>::input(context, 1)?;
        let (size, columns) = (matrices.rows, rhs.columns);
        if rhs.rows != size {
            return Err(Status::invalid_argument(format!(
                "In[0] and In[1] has different ndims: {size} rows and {} rows",
                rhs.rows
            )));
        }
        let batch = shape::broadcast(&PartialShape::from(&matrices.batch), &PartialShape::from(&rhs.batch))?
            .to_shape()
            .ok_or_else(|| Status::internal("a batch of unknown size"))?;
        let shape = batch.concat(&Shape::from_usize(&[size, columns])?)?;
        let mut solutions = Vec::with_capacity(shape.num_elements());
        for index in 0..batch.num_elements() {
            let (a, b) = (place(index, &batch, &matrices.batch), place(index, &batch, &rhs.batch));
            let matrix = &matrices.values[a * size * size..(a + 1) * size * size];
            let start = solutions.len();
            solutions.extend_from_slice(&rhs.values[b * size * columns..(b + 1) * size * columns]);
            let solution = &mut solutions[start..];
            match self.adjoint {
                true => {
                    let turned = linalg::adjoint(matrix, size, size);
                    linalg::solve_triangular(&turned, size, !self.lower, false, solution, columns);
                }
                false => linalg::solve_triangular(matrix, size, self.lower, false, solution, columns),
            }
        }
        context.set_output(0, store(dtype, shape, &solutions)?);
        Ok(())
    }
}

/// Returns the matrix of a batch for an index in the batch to which it is broadcast.
fn place(index: usize, batch: &Shape, own: &Shape) -> usize {
    let (mut rest, mut stride, mut found) = (index, 1, 0);
    for axis in (0..batch.rank()).rev() {
        let coordinate = rest % batch.size(axis).max(1);
        rest /= batch.size(axis).max(1);
        if let Some(axis) = (axis + own.rank()).checked_sub(batch.rank()) {
            found += if own.size(axis) == 1 { 0 } else { coordinate * stride };
            stride *= own.size(axis);
        }
    }
    found
}

struct LeastSquares {
    fast: bool,
}

impl Process for LeastSquares {
    fn run<F: Field>(&self, context: &mut OpContext<'_>, dtype: DType) -> Result<()> {
        let matrices = Matrices::<F>::input(context, 0)?;
        let rhs = Matrices::<F>::input(context, 1)?;
        let regularizer = context.scalar::<f64>(2, "l2_regularizer")?;
        if regularizer < 0.0 {
            return Err(Status::invalid_argument("l2_regularizer must be >= 0."));
        }
        same_batch(&matrices.batch, &rhs.batch)?;
        let (rows, unknowns, columns) = (matrices.rows, matrices.columns, rhs.columns);
        if rhs.rows != rows {
            return Err(Status::invalid_argument("Input matrix and rhs are incompatible."));
        }
        let shape = matrices.shape(&[unknowns, columns])?;
        let mut solutions = Vec::with_capacity(shape.num_elements());
        if rows == 0 || unknowns == 0 {
            solutions.resize(shape.num_elements(), F::zero());
        } else {
            for (index, matrix) in matrices.each().enumerate() {
                let rhs = &rhs.values[index * rows * columns..(index + 1) * rows * columns];
                solutions.extend(match self.fast {
                    true => regularized(matrix, rhs, (rows, unknowns, columns), regularizer).ok_or_else(|| {
                        Status::invalid_argument(
                            "Input matrix was rank deficient or ill-conditioned. Try setting fast=False or provide a \
                             larger l2_regularizer > 0.",
                        )
                    })?,
                    false => shortest(matrix, rhs, (rows, unknowns, columns))
                        .ok_or_else(|| Status::invalid_argument("Input matrix is not finite."))?,
                });
            }
        }
        context.set_output(0, store(dtype, shape, &solutions)?);
        Ok(())
    }
}

/// Solves the normal equations, in the smaller of the matrix's two dimensions.
fn regularized<F: Field>(
    matrix: &[F],
    rhs: &[F],
    (rows, unknowns, columns): (usize, usize, usize),
    regularizer: f64,
) -> Option<Vec<F>> {
    let turned = linalg::adjoint(matrix, rows, unknowns);
    let tall = rows >= unknowns;
    let size = rows.min(unknowns);
    let mut gram = match tall {
        true => linalg::product(&turned, matrix, unknowns, rows, unknowns),
        false => linalg::product(matrix, &turned, rows, unknowns, rows),
    };
    for place in 0..size {
        gram[place * size + place] += F::from_real(regularizer);
    }
    if !linalg::cholesky(&mut gram, size) {
        return None;
    }
    let mut solution = if tall { linalg::product(&turned, rhs, unknowns, rows, columns) } else { rhs.to_vec() };
    linalg::solve_triangular(&gram, size, true, false, &mut solution, columns);
    let upper = linalg::adjoint(&gram, size, size);
    linalg::solve_triangular(&upper, size, false, false, &mut solution, columns);
    Some(if tall { solution } else { linalg::product(&turned, &solution, unknowns, rows, columns) })
}

/// Returns the least-squares solution of minimum norm, for any rank.
fn shortest<F: Field>(matrix: &[F], rhs: &[F], (rows, unknowns, columns): (usize, usize, usize)) -> Option<Vec<F>> {
    let small = rows.min(unknowns);
    let (values, u, v) = linalg::singular_values(matrix, rows, unknowns, true, false)?;
    let mut coordinates = linalg::product(&linalg::adjoint(&u, rows, small), rhs, small, rows, columns);
    let smallest = values.first().copied().unwrap_or(0.0) * f64::EPSILON * rows.max(unknowns) as f64;
    if columns > 0 {
        for (row, &value) in coordinates.chunks_exact_mut(columns).zip(&values) {
            let factor = if value > smallest { 1.0 / value } else { 0.0 };
            row.iter_mut().for_each(|coordinate| *coordinate = coordinate.scaled(factor));
        }
    }
    Some(linalg::product(&v, &coordinates, unknowns, small, columns))
}

struct Lu {
    index: DType,
}

impl Process for Lu {
    fn run<F: Field>(&self, context: &mut OpContext<'_>, dtype: DType) -> Result<()> {
        let mut matrices = Matrices::<F>::square_input(context, 0)?;
        let size = matrices.rows;
        let mut orders: Vec<i64> = Vec::with_capacity(matrices.count() * size);
        for matrix in matrices.values.chunks_exact_mut((size * size).max(1)) {
            let (order, _) = linalg::lu(matrix, size);
            if !has_pivots(matrix, size) {
                return Err(Status::invalid_argument("Input is not invertible."));
            }
            orders.extend(order.into_iter().map(|row| row as i64));
        }
        context.set_output(0, store(dtype, matrices.shape(&[size, size])?, &matrices.values)?);
        let shape = matrices.shape(&[size])?;
        context.set_output(
            1,
            match self.index {
                DType::Int32 => Tensor::build::<i32>(shape, |to| {
                    to.iter_mut().zip(&orders).for_each(|(to, &row)| *to = row as i32);
                })?,
                _ => Tensor::from_slice(shape.dims(), &orders)?,
            },
        );
        Ok(())
    }
}
