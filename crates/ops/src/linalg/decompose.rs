//! Orthogonal decompositions: Qr, Svd, SelfAdjointEigV2.

use super::gradients;
use super::matrices::{Matrices, Process, matrix_dims, matrix_kernels, set_batch, square_dims, store};
use graph::Output;
use kernel::{Gradient, Op, OpContext, OpDef, OpFlags, ShapeContext};
use numeric::linalg::{self, Field};
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Qr",
            inputs: &["input: T"],
            outputs: &["q: T", "r: T"],
            attrs: &["full_matrices: bool = false", "T: {double, float, half, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: qr_shape,
        gradient: Gradient::Fn(gradients::qr),
        kernels: matrix_kernels!([Float, Double, Complex64, Complex128] => |builder| {
            Ok(Qr { full: builder.attrs().bool("full_matrices")? })
        }),
    },
    Op {
        def: OpDef {
            name: "Svd",
            inputs: &["input: T"],
            outputs: &["s: T", "u: T", "v: T"],
            attrs: &[
                "compute_uv: bool = true",
                "full_matrices: bool = false",
                "T: {double, float, half, complex64, complex128}",
            ],
            flags: OpFlags::NONE,
        },
        shape: svd_shape,
        gradient: Gradient::Fn(gradients::svd),
        kernels: matrix_kernels!([Float, Double, Complex64, Complex128] => |builder| {
            Ok(Svd { vectors: builder.attrs().bool("compute_uv")?, full: builder.attrs().bool("full_matrices")? })
        }),
    },
    Op {
        def: OpDef {
            name: "SelfAdjointEigV2",
            inputs: &["input: T"],
            outputs: &["e: T", "v: T"],
            attrs: &["compute_v: bool = true", "T: {double, float, half, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: eigen_shape,
        gradient: Gradient::Fn(gradients::self_adjoint_eig),
        kernels: matrix_kernels!([Float, Double, Complex64, Complex128] => |builder| {
            Ok(SelfAdjointEig { vectors: builder.attrs().bool("compute_v")? })
        }),
    },
];

/// Returns an orthogonal and a triangular matrix whose product is the input.
#[track_caller]
pub fn qr(input: &Output) -> (Output, Output) {
    let op = input.graph().op("Qr").input(input).build();
    (op.output(0), op.output(1))
}

/// Returns the singular values, and the left and the right singular vectors as columns.
#[track_caller]
pub fn svd(input: &Output) -> (Output, Output, Output) {
    let op = input.graph().op("Svd").input(input).build();
    (op.output(0), op.output(1), op.output(2))
}

/// Returns the eigenvalues of Hermitian matrices, and the eigenvectors as columns.
#[track_caller]
pub fn self_adjoint_eig(input: &Output) -> (Output, Output) {
    let op = input.graph().op("SelfAdjointEigV2").input(input).build();
    (op.output(0), op.output(1))
}

fn smaller(rows: Option<i64>, columns: Option<i64>) -> Option<i64> {
    match (rows, columns) {
        (Some(0), _) | (_, Some(0)) => Some(0),
        _ => Some(rows?.min(columns?)),
    }
}

fn qr_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (batch, rows, columns) = matrix_dims(c, 0)?;
    let inner = if c.attrs.bool("full_matrices")? { rows } else { smaller(rows, columns) };
    set_batch(c, 0, &batch, &[rows, inner]);
    set_batch(c, 1, &batch, &[inner, columns]);
    Ok(())
}

fn svd_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (batch, rows, columns) = matrix_dims(c, 0)?;
    let small = smaller(rows, columns);
    set_batch(c, 0, &batch, &[small]);
    if !c.attrs.bool("compute_uv")? {
        c.set_output(1, PartialShape::from_dims(&[0]));
        c.set_output(2, PartialShape::from_dims(&[0]));
        return Ok(());
    }
    let full = c.attrs.bool("full_matrices")?;
    set_batch(c, 1, &batch, &[rows, if full { rows } else { small }]);
    set_batch(c, 2, &batch, &[columns, if full { columns } else { small }]);
    Ok(())
}

fn eigen_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (batch, size) = square_dims(c, 0)?;
    set_batch(c, 0, &batch, &[size]);
    match c.attrs.bool("compute_v")? {
        true => set_batch(c, 1, &batch, &[size, size]),
        false => c.set_output(1, PartialShape::from_dims(&[0])),
    }
    Ok(())
}

struct Qr {
    full: bool,
}

impl Process for Qr {
    fn run<F: Field>(&self, context: &mut OpContext<'_>, dtype: DType) -> Result<()> {
        let matrices = Matrices::<F>::input(context, 0)?;
        let (rows, columns) = (matrices.rows, matrices.columns);
        let inner = if self.full { rows } else { rows.min(columns) };
        let (mut all_q, mut all_r) = (Vec::new(), Vec::new());
        for index in 0..matrices.count() {
            let size = rows * columns;
            let (q, r) = linalg::qr(&matrices.values[index * size..(index + 1) * size], rows, columns, self.full);
            all_q.extend(q);
            all_r.extend(r);
        }
        context.set_output(0, store(dtype, matrices.shape(&[rows, inner])?, &all_q)?);
        context.set_output(1, store(dtype, matrices.shape(&[inner, columns])?, &all_r)?);
        Ok(())
    }
}

struct Svd {
    vectors: bool,
    full: bool,
}

impl Process for Svd {
    fn run<F: Field>(&self, context: &mut OpContext<'_>, dtype: DType) -> Result<()> {
        let matrices = Matrices::<F>::input(context, 0)?;
        let (rows, columns) = (matrices.rows, matrices.columns);
        let small = rows.min(columns);
        let (u_width, v_width) = if self.full { (rows, columns) } else { (small, small) };
        let not_a_number = F::from_real(f64::NAN);
        let (mut all_s, mut all_u, mut all_v): (Vec<F>, Vec<F>, Vec<F>) = Default::default();
        for index in 0..matrices.count() {
            let size = rows * columns;
            let matrix = &matrices.values[index * size..(index + 1) * size];
            match linalg::singular_values(matrix, rows, columns, self.vectors, self.full) {
                Some((s, u, v)) => {
                    all_s.extend(s.into_iter().map(F::from_real));
                    all_u.extend(u);
                    all_v.extend(v);
                }
                // A matrix that isn't finite has no decomposition; the results are NaN.
                None => {
                    all_s.resize(all_s.len() + small, not_a_number);
                    if self.vectors {
                        all_u.resize(all_u.len() + rows * u_width, not_a_number);
                        all_v.resize(all_v.len() + columns * v_width, not_a_number);
                    }
                }
            }
        }
        context.set_output(0, store(dtype, matrices.shape(&[small])?, &all_s)?);
        let shape = |rows, columns| if self.vectors { matrices.shape(&[rows, columns]) } else { Ok(Shape::vector(0)) };
        context.set_output(1, store(dtype, shape(rows, u_width)?, &all_u)?);
        context.set_output(2, store(dtype, shape(columns, v_width)?, &all_v)?);
        Ok(())
    }
}

struct SelfAdjointEig {
    vectors: bool,
}

impl Process for SelfAdjointEig {
    fn run<F: Field>(&self, context: &mut OpContext<'_>, dtype: DType) -> Result<()> {
        let matrices = Matrices::<F>::square_input(context, 0)?;
        let size = matrices.rows;
        let (mut all_values, mut all_vectors): (Vec<F>, Vec<F>) = Default::default();
        for matrix in matrices.each() {
            let Some((values, vectors)) = linalg::self_adjoint_eigen(matrix, size, self.vectors) else {
                return Err(Status::invalid_argument(
                    "Self-adjoint eigen decomposition was not successful. The input might not be valid.",
                ));
            };
            all_values.extend(values.into_iter().map(F::from_real));
            all_vectors.extend(vectors);
        }
        context.set_output(0, store(dtype, matrices.shape(&[size])?, &all_values)?);
        context.set_output(
            1,
            match self.vectors {
                true => store(dtype, matrices.shape(&[size, size])?, &all_vectors)?,
                false => Tensor::zeros(dtype, Shape::vector(0))?,
            },
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{cholesky, matrix_determinant, matrix_inverse, matrix_solve, matrix_triangular_solve};
    use super::*;
    use crate::testing::{attrs, check_gradient, check_shape, run_op};

    fn matrix(rows: i64, values: &[f64]) -> Tensor {
        Tensor::from_slice(&[rows, values.len() as i64 / rows], values).unwrap()
    }

    #[test]
    fn values() {
        let a = matrix(2, &[4.0, 2.0, 2.0, 5.0]);
        let run = |op: &str, inputs: &[Tensor]| run_op(op, attrs![], inputs).unwrap();
        let values = |tensor: &Tensor| tensor.as_slice::<f64>().unwrap().to_vec();
        assert_eq!(values(&run("Cholesky", &[a.clone()])[0]), [2.0, 0.0, 1.0, 2.0]);
        assert_eq!(values(&run("MatrixDeterminant", &[a.clone()])[0]), [16.0]);
        let solved = run("MatrixSolve", &[a.clone(), matrix(2, &[8.0, 9.0])]);
        assert!(values(&solved[0]).iter().zip([1.375, 1.25]).all(|(a, b)| (a - b).abs() < 1e-12));
        let eigen = run("SelfAdjointEigV2", &[a.clone()]);
        assert!((values(&eigen[0])[0] - (4.5 - 4.25f64.sqrt())).abs() < 1e-12);
        assert_eq!(
            run("Svd", &[Tensor::zeros(DType::Float, Shape::from_usize(&[2, 0, 3]).unwrap()).unwrap()])[2].dims(),
            &[2, 3, 0]
        );
        let indefinite = run("Cholesky", &[matrix(2, &[1.0, 0.0, 2.0, 1.0])]);
        assert_eq!(values(&indefinite[0]).iter().map(|x| x.is_nan()).collect::<Vec<_>>(), [true, false, true, true]);
        assert!(run_op("MatrixInverse", attrs![], &[matrix(2, &[1.0, 2.0, 2.0, 4.0])]).is_err());
        assert!(run_op("MatrixInverse", attrs![], &[matrix(1, &[1.0, 2.0])]).is_err());
        let tridiagonal = [matrix(3, &[1.0, 1.0, 0.0, 4.0, 4.0, 4.0, 0.0, 1.0, 1.0]), matrix(3, &[5.0, 6.0, 5.0])];
        assert!(values(&run("TridiagonalSolve", &tridiagonal)[0]).iter().all(|x| (x - 1.0).abs() < 1e-12));
    }

    #[test]
    fn gradients() {
        let a = matrix(3, &[4.0, 0.3, -0.2, 0.7, 3.0, 0.9, -0.5, 0.1, 2.0]);
        let b = matrix(3, &[1.0, 2.0, -1.0, 0.5, 0.3, 0.2]);
        check_gradient(&[a.clone()], |_, x| matrix_inverse(&x[0]));
        check_gradient(&[a.clone()], |_, x| matrix_determinant(&x[0]));
        check_gradient(&[a.clone()], |graph, x| graph.op("LogMatrixDeterminant").input(&x[0]).build().output(1));
        check_gradient(&[a.clone(), b.clone()], |_, x| matrix_solve(&x[0], &x[1]));
        check_gradient(&[a.clone(), b.clone()], |_, x| matrix_triangular_solve(&x[0], &x[1]));
        check_gradient(&[a.clone()], |_, x| qr(&x[0]).0);
        check_gradient(&[a.clone()], |_, x| qr(&x[0]).1);
        check_gradient(&[b.clone()], |_, x| qr(&x[0]).1);
        check_gradient(&[a.clone()], |_, x| svd(&x[0]).0);
        check_gradient(&[b.clone()], |_, x| svd(&x[0]).1);
        check_gradient(&[b.clone()], |_, x| svd(&x[0]).2);
        // An op that reads only one triangle has a symmetric gradient, so the input is made symmetric first.
        let symmetric = |x: &Output| {
            let product = x.graph().op("MatMul").input(x).input(x).attr("transpose_b", true).output();
            x.graph().op("Add").input(&product).input(&product).output()
        };
        check_gradient(&[a.clone()], |_, x| cholesky(&symmetric(&x[0])));
        check_gradient(&[a.clone()], |_, x| self_adjoint_eig(&symmetric(&x[0])).0);
        check_gradient(&[a.clone()], |_, x| self_adjoint_eig(&symmetric(&x[0])).1);
        let diagonals = matrix(3, &[0.4, 0.3, 0.0, 4.0, 3.0, 2.0, 0.0, -0.5, 0.7]);
        check_gradient(&[diagonals, b.clone()], |graph, x| graph.op("TridiagonalSolve").inputs(x).output());
        let regularizer = Tensor::scalar(0.5f64);
        check_gradient(&[b.clone(), b.clone()], move |graph, x| {
            let l2 = graph.constant_tensor(&regularizer);
            graph.op("MatrixSolveLs").input(&x[0]).input(&x[1]).input(&l2).output()
        });
    }

    #[test]
    fn shapes() {
        check_shape("Qr", attrs![], "[?,5,3]", "[?,5,3];[?,3,3]");
        check_shape("Qr", attrs![("full_matrices", true)], "[?,5,3]", "[?,5,5];[?,5,3]");
        check_shape("Svd", attrs![], "[2,5,3]", "[2,3];[2,5,3];[2,3,3]");
        check_shape("SelfAdjointEigV2", attrs![("compute_v", false)], "[2,3,3]", "[2,3];[0]");
        check_shape("MatrixSolve", attrs![], "[?,3];[3,2]", "[3,2]");
        check_shape("MatrixSolveLs", attrs![], "[4,3];[4,2];[]", "[3,2]");
        check_shape("MatrixTriangularSolve", attrs![], "[2,1,3,3];[4,3,2]", "[2,4,3,2]");
        check_shape("Lu", attrs![], "[2,3,3]", "[2,3,3];[2,3]");
    }
}
