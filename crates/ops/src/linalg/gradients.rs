//! The gradients of this family.

use crate::compose::{
    Gradients, binary, call, cast, conj, constant, grad_or_zeros, int_scalar, int_vector, reshape, scalar, shape_of,
    sum, ternary, times, unary,
};
use graph::Output;
use kernel::GradientArgs;
use tensor::{DType, Result, Status, Tensor};

fn matmul(a: &Output, b: &Output) -> Result<Output> {
    product(a, b, false, false)
}

/// Returns the product of two batches of matrices, each of which may be replaced by its adjoint.
fn product(a: &Output, b: &Output, adjoint_a: bool, adjoint_b: bool) -> Result<Output> {
    let op = a.graph().op("BatchMatMulV2").input(a).input(b).attr("adj_x", adjoint_a).attr("adj_y", adjoint_b);
    Ok(op.try_build()?.output(0))
}

/// Swaps the last two dimensions.
fn transpose(x: &Output) -> Result<Output> {
    let graph = x.graph();
    let order = match x.shape().rank() {
        Some(rank) if rank >= 2 => {
            let mut order: Vec<i32> = (0..rank as i32).collect();
            order.swap(rank - 2, rank - 1);
            int_vector(graph, &order)?
        }
        _ => {
            let rank = unary("Rank", x)?;
            let outer = binary("Sub", &rank, &int_scalar(graph, 2)?)?;
            let leading = ternary("Range", &int_scalar(graph, 0)?, &outer, &int_scalar(graph, 1)?)?;
            let last = binary("Add", &int_vector(graph, &[1, 0])?, &outer)?;
            concat(&[leading, last], 0)?
        }
    };
    binary("Transpose", x, &order)
}

fn adjoint(x: &Output) -> Result<Output> {
    conj(&transpose(x)?)
}

fn band_part(x: &Output, lower: i64, upper: i64) -> Result<Output> {
    let graph = x.graph();
    let number = |value: i64| constant(graph, &Tensor::scalar(value));
    ternary("MatrixBandPart", x, &number(lower)?, &number(upper)?)
}

/// Returns matrices with a scaled diagonal.
fn scale_diagonal(x: &Output, factor: f64) -> Result<Output> {
    binary("MatrixSetDiag", x, &times(&unary("MatrixDiagPart", x)?, factor)?)
}

/// Returns `x` with two more dimensions of size 1.
fn as_matrices(x: &Output) -> Result<Output> {
    let last = int_scalar(x.graph(), -1)?;
    binary("ExpandDims", &binary("ExpandDims", x, &last)?, &last)
}

pub(super) fn matrix_inverse(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None]) };
    let inverse = args.output(0);
    let turned = args.op.attrs().bool("adjoint")?;
    let inner = product(&grad, &inverse, turned, !turned)?;
    Ok(vec![Some(unary("Neg", &product(&inverse, &inner, !turned, false)?)?.into())])
}

fn adjoint_inverse(a: &Output) -> Result<Output> {
    Ok(a.graph().op("MatrixInverse").input(a).attr("adjoint", true).try_build()?.output(0))
}

pub(super) fn matrix_determinant(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None]) };
    let factors = as_matrices(&binary("Mul", &grad, &args.output(0))?)?;
    Ok(vec![Some(binary("Mul", &factors, &adjoint_inverse(&args.input(0))?)?.into())])
}

pub(super) fn log_matrix_determinant(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(1) else { return Ok(vec![None]) };
    Ok(vec![Some(binary("Mul", &as_matrices(&grad)?, &adjoint_inverse(&args.input(0))?)?.into())])
}

pub(super) fn cholesky(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None]) };
    let lower = args.output(0);
    let ones = unary("OnesLike", &unary("MatrixDiagPart", &lower)?)?;
    let identity = binary("MatrixSetDiag", &unary("ZerosLike", &lower)?, &ones)?;
    let inverse = binary("MatrixTriangularSolve", &lower, &identity)?;
    let middle = band_part(&scale_diagonal(&product(&lower, &grad, true, false)?, 0.5)?, -1, 0)?;
    let half = matmul(&product(&inverse, &middle, true, false)?, &inverse)?;
    Ok(vec![Some(times(&binary("Add", &half, &adjoint(&half)?)?, 0.5)?.into())])
}

pub(super) fn matrix_solve(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let turned = args.op.attrs().bool("adjoint")?;
    let solve = grad.graph().op("MatrixSolve").input(&args.input(0)).input(&grad).attr("adjoint", !turned);
    let grad_rhs = solve.try_build()?.output(0);
    let solution = args.output(0);
    let (left, right) = if turned { (&solution, &grad_rhs) } else { (&grad_rhs, &solution) };
    Ok(vec![Some(unary("Neg", &product(left, right, false, true)?)?.into()), Some(grad_rhs.into())])
}

pub(super) fn matrix_triangular_solve(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let (a, b) = (args.input(0), args.input(1));
    let (lower, turned) = (args.op.attrs().bool("lower")?, args.op.attrs().bool("adjoint")?);
    let solve = grad.graph().op("MatrixTriangularSolve").input(&a).input(&grad);
    let grad_b = solve.attr("lower", lower).attr("adjoint", !turned).try_build()?.output(0);
    let solution = args.output(0);
    let (left, right) = if turned { (&solution, &grad_b) } else { (&grad_b, &solution) };
    let grad_a = unary("Neg", &product(left, right, false, true)?)?;
    let grad_a = if lower { band_part(&grad_a, -1, 0)? } else { band_part(&grad_a, 0, -1)? };
    Ok(vec![Some(over_batch(&grad_a, &a, &b)?.into()), Some(over_batch(&grad_b, &b, &a)?.into())])
}

/// Sums over the batch dimensions along which an operand was repeated.
fn over_batch(grad: &Output, own: &Output, other: &Output) -> Result<Output> {
    if let (Some(a), Some(b)) = (own.full_shape(), other.full_shape())
        && a.slice(0, a.rank() - 2) == b.slice(0, b.rank() - 2)
    {
        return Ok(grad.clone());
    }
    let outer = |x: &Output| -> Result<Output> {
        let (graph, shape) = (x.graph(), shape_of(x)?);
        let count = binary("Sub", &unary("Size", &shape)?, &int_scalar(graph, 2)?)?;
        let count = reshape(&count, &int_vector(graph, &[1])?)?;
        ternary("Slice", &shape, &int_vector(graph, &[0])?, &count)
    };
    let axes = call("BroadcastGradientArgs", &[&outer(own)?, &outer(other)?])?;
    reshape(&sum(grad, &axes, false)?, &shape_of(own)?)
}

pub(super) fn matrix_solve_ls(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None, None]) };
    if !args.op.attrs().bool("fast")? {
        return Err(Status::invalid_argument("Gradient not defined for fast=False"));
    }
    let (a, b) = (args.input(0), args.input(1));
    let shape = a.shape();
    let rank = shape.rank().unwrap_or(2).max(2);
    let (Some(rows), Some(columns)) = (shape.dim(rank - 2), shape.dim(rank - 1)) else {
        return Err(Status::unimplemented("the gradient of MatrixSolveLs for matrices of unknown size"));
    };
    let tall = rows >= columns;
    let gram = product(&a, &a, tall, !tall)?;
    let regularizer = cast(&args.input(2), a.dtype())?;
    let diagonal = binary("Add", &unary("MatrixDiagPart", &gram)?, &regularizer)?;
    let triangle = unary("Cholesky", &binary("MatrixSetDiag", &gram, &diagonal)?)?;
    let solve = |rhs: &Output| -> Result<Output> {
        let half = binary("MatrixTriangularSolve", &triangle, rhs)?;
        let op = triangle.graph().op("MatrixTriangularSolve").input(&triangle).input(&half).attr("adjoint", true);
        Ok(op.try_build()?.output(0))
    };
    let (grad_a, grad_b) = if tall {
        let z = solve(&grad)?;
        let both = product(&args.output(0), &z, false, true)?;
        let both = binary("Add", &both, &transpose(&both)?)?;
        (binary("Sub", &product(&b, &z, false, true)?, &matmul(&a, &both)?)?, matmul(&a, &z)?)
    } else {
        let grad_b = solve(&matmul(&a, &grad)?)?;
        let solved = solve(&b)?;
        let first = matmul(&grad_b, &product(&solved, &a, true, false)?)?;
        let second = binary("Sub", &grad, &product(&a, &grad_b, true, false)?)?;
        (binary("Sub", &product(&solved, &second, false, true)?, &first)?, grad_b)
    };
    Ok(vec![Some(grad_a.into()), Some(grad_b.into()), None])
}

pub(super) fn qr(args: &GradientArgs<'_>) -> Gradients {
    if args.grad(0).is_none() && args.grad(1).is_none() {
        return Ok(vec![None]);
    }
    let (dq, dr) = (grad_or_zeros(args, 0)?, grad_or_zeros(args, 1)?);
    let (q, r) = (args.output(0), args.output(1));
    let (q_shape, r_shape) = (q.shape(), r.shape());
    let rank = r_shape.rank().unwrap_or(2).max(2);
    let (Some(rows), Some(width), Some(columns)) =
        (q_shape.dim(rank - 2), q_shape.dim(rank - 1), r_shape.dim(rank - 1))
    else {
        return Err(Status::unimplemented("QrGrad not implemented with dynamic shapes."));
    };
    if rows > columns && width == rows {
        return Err(Status::unimplemented("QrGrad not implemented when nrows > ncols and full_matrices is true."));
    }
    if rows >= columns {
        return Ok(vec![Some(qr_of_tall_matrices(&q, &r, &dq, &dr)?.into())]);
    }
    // A wide matrix consists of a square one, which alone determines `q`, and the rest, of which `r` is the product with `q`.
    let Ok(size) = i32::try_from(rows) else {
        return Err(Status::invalid_argument(format!("a matrix of {rows} rows is too large")));
    };
    let beside = |x: &Output| part(x, (None, None), (Some(size), None));
    let square = |x: &Output| part(x, (None, None), (None, Some(size)));
    let dr_beside = beside(&dr)?;
    let dq = binary("Add", &dq, &product(&beside(&args.input(0))?, &dr_beside, false, true)?)?;
    let left = qr_of_tall_matrices(&q, &square(&r)?, &dq, &square(&dr)?)?;
    Ok(vec![Some(concat(&[left, matmul(&q, &dr_beside)?], -1)?.into())])
}

fn qr_of_tall_matrices(q: &Output, r: &Output, dq: &Output, dr: &Output) -> Result<Output> {
    let solve = |x: &Output| -> Result<Output> {
        let op = r.graph().op("MatrixTriangularSolve").input(r).input(&adjoint(x)?).attr("lower", false);
        adjoint(&op.try_build()?.output(0))
    };
    let skew = |x: &Output| -> Result<Output> { binary("Sub", x, &adjoint(x)?) };
    let qdq = product(q, dq, true, false)?;
    let rdr = product(r, dr, false, true)?;
    let triangle = band_part(&binary("Add", &skew(&qdq)?, &skew(&rdr)?)?, -1, 0)?;
    let within = matmul(q, &binary("Add", dr, &solve(&triangle)?)?)?;
    let beside = solve(&binary("Sub", dq, &matmul(q, &qdq)?)?)?;
    let mut grad = binary("Add", &within, &beside)?;
    if q.dtype().is_complex() {
        let difference = binary("Sub", &rdr, &adjoint(&qdq)?)?;
        let zeros = unary("ZerosLike", &difference)?;
        let diagonal = binary("MatrixSetDiag", &zeros, &unary("MatrixDiagPart", &difference)?)?;
        let imaginary = binary("Sub", &diagonal, &cast(&real(&diagonal)?, q.dtype())?)?;
        grad = binary("Add", &grad, &solve(&matmul(q, &adjoint(&imaginary)?)?)?)?;
    }
    Ok(grad)
}

fn real(x: &Output) -> Result<Output> {
    let dtype = if x.dtype() == DType::Complex64 { DType::Float } else { DType::Double };
    Ok(x.graph().op("Real").input(x).attr("Tout", dtype).try_build()?.output(0))
}

/// Returns the reciprocal, or nearly zero if there is none.
fn safe_reciprocal(x: &Output) -> Result<Output> {
    let square = binary("Add", &binary("Mul", x, x)?, &scalar(x, 1e-20)?)?;
    binary("Mul", x, &unary("Reciprocal", &square)?)
}

/// Returns the reciprocals of the differences of all pairs, with zeros on the diagonal.
fn inverse_differences(values: &Output) -> Result<Output> {
    let graph = values.graph();
    let row = binary("ExpandDims", values, &int_scalar(graph, -2)?)?;
    let column = binary("ExpandDims", values, &int_scalar(graph, -1)?)?;
    let inverses = safe_reciprocal(&binary("Sub", &row, &column)?)?;
    binary("MatrixSetDiag", &inverses, &unary("ZerosLike", values)?)
}

pub(super) fn self_adjoint_eig(args: &GradientArgs<'_>) -> Gradients {
    if args.grad(0).is_none() && args.grad(1).is_none() {
        return Ok(vec![None]);
    }
    let mut middle = unary("MatrixDiag", &grad_or_zeros(args, 0)?)?;
    let vectors = match args.op.attrs().bool("compute_v")? {
        true => {
            let vectors = args.output(1);
            let turned = product(&vectors, &grad_or_zeros(args, 1)?, true, false)?;
            let scaled = binary("Mul", &inverse_differences(&args.output(0))?, &turned)?;
            middle = binary("Add", &middle, &scaled)?;
            vectors
        }
        false => middle.graph().op("SelfAdjointEigV2").input(&args.input(0)).try_build()?.output(1),
    };
    let grad = matmul(&vectors, &product(&middle, &vectors, false, true)?)?;
    let triangle = band_part(&binary("Add", &grad, &adjoint(&grad)?)?, -1, 0)?;
    Ok(vec![Some(scale_diagonal(&triangle, 0.5)?.into())])
}

pub(super) fn svd(args: &GradientArgs<'_>) -> Gradients {
    if (0..3).all(|output| args.grad(output).is_none()) {
        return Ok(vec![None]);
    }
    let a = args.input(0);
    let grad_s = unary("MatrixDiag", &grad_or_zeros(args, 0)?)?;
    if !args.op.attrs().bool("compute_uv")? {
        let all = a.graph().op("Svd").input(&a).try_build()?;
        let grad = matmul(&all.output(1), &product(&grad_s, &all.output(2), false, true)?)?;
        return Ok(vec![Some(grad.into())]);
    }
    let shape = a.shape();
    let rank = shape.rank().unwrap_or(2).max(2);
    let (Some(rows), Some(columns)) = (shape.dim(rank - 2), shape.dim(rank - 1)) else {
        return Err(Status::unimplemented(
            "SVD gradient has not been implemented for input with unknown inner matrix shape.",
        ));
    };
    if args.op.attrs().bool("full_matrices")? && rows != columns {
        return Err(Status::unimplemented("svd gradient of full matrices that aren't square"));
    }
    // The matrix is treated as a wide one; a tall one is transposed.
    let turned = rows > columns;
    let (mut u, mut v) = (args.output(1), args.output(2));
    let (mut grad_u, mut grad_v) = (grad_or_zeros(args, 1)?, grad_or_zeros(args, 2)?);
    if turned {
        std::mem::swap(&mut u, &mut v);
        std::mem::swap(&mut grad_u, &mut grad_v);
    }
    let s = args.output(0);
    let s_matrix = unary("MatrixDiag", &s)?;
    let differences = inverse_differences(&binary("Mul", &s, &s)?)?;
    let u_part = binary("Mul", &differences, &product(&u, &grad_u, true, false)?)?;
    let v_overlap = product(&v, &grad_v, true, false)?;
    let v_part = binary("Mul", &differences, &v_overlap)?;
    let from_u = matmul(&binary("Add", &u_part, &adjoint(&u_part)?)?, &s_matrix)?;
    let from_v = matmul(&s_matrix, &binary("Add", &v_part, &adjoint(&v_part)?)?)?;
    let inner = binary("Add", &binary("Add", &grad_s, &from_u)?, &from_v)?;
    let mut grad = matmul(&u, &product(&inner, &v, false, true)?)?;
    let inverse = unary("MatrixDiag", &safe_reciprocal(&s)?)?;
    if rows != columns {
        let grad_v_turned = adjoint(&grad_v)?;
        let along = product(&matmul(&grad_v_turned, &v)?, &v, false, true)?;
        let beside = binary("Sub", &grad_v_turned, &along)?;
        grad = binary("Add", &grad, &matmul(&matmul(&u, &inverse)?, &beside)?)?;
    }
    if a.dtype().is_complex() {
        let zeros = unary("ZerosLike", &v_overlap)?;
        let diagonal = binary("MatrixSetDiag", &zeros, &unary("MatrixDiagPart", &v_overlap)?)?;
        let phase = matmul(&inverse, &binary("Sub", &adjoint(&diagonal)?, &diagonal)?)?;
        let third = matmul(&u, &product(&phase, &v, false, true)?)?;
        grad = binary("Add", &grad, &times(&third, 0.5)?)?;
    }
    Ok(vec![Some(if turned { adjoint(&grad)? } else { grad }.into())])
}

pub(super) fn tridiagonal_solve(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let (diagonals, solution) = (args.input(0), args.output(0));
    let row = |index: i32, from: Option<i32>, to: Option<i32>| {
        part(&diagonals, (Some(index), (index < 2).then_some(index + 1)), (from, to))
    };
    let zero = unary("ZerosLike", &row(1, None, Some(1))?)?;
    let above = concat(&[row(2, Some(1), None)?, zero.clone()], -1)?;
    let below = concat(&[zero, row(0, None, Some(-1))?], -1)?;
    let turned = concat(&[above, row(1, None, None)?, below], -2)?;
    let solve = grad.graph().op("TridiagonalSolve").input(&turned).input(&grad);
    let solve = solve.attr("partial_pivoting", args.op.attrs().bool("partial_pivoting")?);
    let grad_rhs = solve.try_build()?.output(0);
    let along = |x: &Output| diagonal_of_product(&grad_rhs, x);
    let grads = [along(&rows_up(&solution)?)?, along(&solution)?, along(&rows_down(&solution)?)?];
    Ok(vec![Some(unary("Neg", &concat(&grads, -2)?)?.into()), Some(grad_rhs.into())])
}

pub(super) fn tridiagonal_matmul(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 4]) };
    let rhs = conj(&args.input(3))?;
    let scaled = |input: usize| binary("Mul", &adjoint(&args.input(input))?, &grad);
    let outer = binary("Add", &rows_down(&scaled(0)?)?, &rows_up(&scaled(2)?)?)?;
    let grad_rhs = binary("Add", &outer, &scaled(1)?)?;
    Ok(vec![
        Some(diagonal_of_product(&rows_up(&rhs)?, &grad)?.into()),
        Some(diagonal_of_product(&rhs, &grad)?.into()),
        Some(diagonal_of_product(&rows_down(&rhs)?, &grad)?.into()),
        Some(grad_rhs.into()),
    ])
}

/// Returns the diagonals of `x yᵀ` as matrices of one row.
fn diagonal_of_product(x: &Output, y: &Output) -> Result<Output> {
    let graph = x.graph();
    let sums = sum(&binary("Mul", x, y)?, &int_scalar(graph, -1)?, false)?;
    binary("ExpandDims", &sums, &int_scalar(graph, -2)?)
}

/// Moves each row up by one; the last becomes zero.
fn rows_up(x: &Output) -> Result<Output> {
    let zero = unary("ZerosLike", &part(x, (None, Some(1)), (None, None))?)?;
    concat(&[part(x, (Some(1), None), (None, None))?, zero], -2)
}

/// Moves each row down by one; the first becomes zero.
fn rows_down(x: &Output) -> Result<Output> {
    let zero = unary("ZerosLike", &part(x, (None, Some(1)), (None, None))?)?;
    concat(&[zero, part(x, (None, Some(-1)), (None, None))?], -2)
}

/// Returns ranges of the rows and columns of matrices, as `x[..., a:b, c:d]` does.
fn part(x: &Output, rows: (Option<i32>, Option<i32>), columns: (Option<i32>, Option<i32>)) -> Result<Output> {
    let graph = x.graph();
    let ends = |row: Option<i32>, column: Option<i32>| {
        int_vector(graph, &[0, row.unwrap_or_default(), column.unwrap_or_default()])
    };
    let mask = |row: Option<i32>, column: Option<i32>| i64::from(row.is_none()) << 1 | i64::from(column.is_none()) << 2;
    let slice = graph.op("StridedSlice").input(x).input(&ends(rows.0, columns.0)?).input(&ends(rows.1, columns.1)?);
    let slice = slice.input(&int_vector(graph, &[1, 1, 1])?).attr("ellipsis_mask", 1i64);
    let slice = slice.attr("begin_mask", mask(rows.0, columns.0)).attr("end_mask", mask(rows.1, columns.1));
    slice.try_build()?.try_output(0)
}

fn concat(parts: &[Output], axis: i32) -> Result<Output> {
    let graph = parts[0].graph();
    let joined = graph.op("ConcatV2").inputs(parts).input(&int_scalar(graph, axis)?);
    joined.attr("N", parts.len() as i64).try_build()?.try_output(0)
}

/// With `S` the root and `G` the gradient with respect to it, the gradient `X` satisfies `Sᵀ X + X Sᵀ = G`. That is linear in the
/// elements of `X`, so it is solved as one system of equations per matrix.
pub(super) fn matrix_square_root(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None]) };
    let root = args.output(0);
    let graph = root.graph();
    let shape = shape_of(&root)?;
    let sizes = |begin: i32, end: i32, masks: (i64, i64)| -> Result<Output> {
        let op = graph.op("StridedSlice").input(&shape).inputs(&[
            int_vector(graph, &[begin])?,
            int_vector(graph, &[end])?,
            int_vector(graph, &[1])?,
        ]);
        Ok(op.attr("begin_mask", masks.0).attr("end_mask", masks.1).try_build()?.output(0))
    };
    let (batch, size) = (sizes(0, -2, (1, 0))?, sizes(-1, 0, (0, 1))?);
    let concat = |parts: &[Output]| concat(parts, 0);
    let one = int_vector(graph, &[1])?;
    let elements = binary("Mul", &size, &size)?;
    let system = concat(&[batch.clone(), elements.clone(), elements.clone()])?;
    let units = unary("MatrixDiag", &binary("Fill", &size, &scalar(&root, 1.0)?)?)?;
    // Row `(i, j)` of the system is the equation for the element of `G` in row `i` and column `j`.
    let rows = |matrices: &Output, batch: &Output| {
        reshape(matrices, &concat(&[batch.clone(), size.clone(), one.clone(), size.clone(), one.clone()])?)
    };
    let columns = |matrices: &Output, batch: &Output| {
        reshape(matrices, &concat(&[batch.clone(), one.clone(), size.clone(), one.clone(), size.clone()])?)
    };
    let none = int_vector(graph, &[])?;
    let from_left = binary("Mul", &rows(&transpose(&root)?, &batch)?, &columns(&units, &none)?)?;
    let from_right = binary("Mul", &rows(&units, &none)?, &columns(&root, &batch)?)?;
    let sum = binary("Add", &reshape(&from_left, &system)?, &reshape(&from_right, &system)?)?;
    let right = reshape(&grad, &concat(&[batch, elements, one.clone()])?)?;
    Ok(vec![Some(reshape(&binary("MatrixSolve", &sum, &right)?, &shape)?.into())])
}
