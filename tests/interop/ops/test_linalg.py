"""The ops of crates/ops/src/linalg beside TensorFlow's."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import side_by_side

RANDOM = np.random.RandomState(17)


def uniform(*shape):
    return RANDOM.uniform(-1, 1, shape).astype(np.float32)


def definite(*shape):
    half = uniform(*shape)
    return half @ np.swapaxes(half, -1, -2) + 2 * np.eye(shape[-1], dtype=np.float32)


A = uniform(2, 4, 4) + 3 * np.eye(4, dtype=np.float32)
TALL, WIDE = uniform(2, 5, 3), uniform(2, 3, 5)
RHS = uniform(2, 4, 3)
EMPTY = np.zeros((0, 3, 3), np.float32)
NO_SIZE = np.zeros((2, 0, 0), np.float32)

TABLE = side_by_side.Table()
op, add = TABLE.op, TABLE.add
COMPLEX = [tf.complex64, tf.complex128]


def hermitian(x):
    """Both triangles of the same matrix, whatever the type."""
    return tf.matmul(x, x, adjoint_b=True) + tf.eye(x.shape[-1].value, dtype=x.dtype)


TYPES = [tf.float32, tf.float64, tf.complex64, tf.complex128]
for dtype in TYPES:
    differentiable = dtype in (tf.float32, tf.float64)
    add(f"Cholesky/{dtype.name}", lambda given, dtype=dtype: tf.linalg.cholesky(hermitian(given(A, dtype))), atol=1e-4 if dtype in (tf.float32, tf.complex64) else None)
    # Vectors are fixed only up to a factor of magnitude 1, so what doesn't depend on it is compared.
    add(f"SelfAdjointEigV2/{dtype.name}", lambda given, dtype=dtype: list(eigen(hermitian(given(A, dtype)))), gradient=differentiable, rtol=1e-3, atol=1e-3)
    add(f"SelfAdjointEigV2/values_{dtype.name}", lambda given, dtype=dtype: tf.raw_ops.SelfAdjointEigV2(
        input=hermitian(given(A, dtype)), compute_v=False).e, rtol=1e-4, atol=1e-4)
    for label, matrix in (("square", A), ("tall", TALL), ("wide", WIDE)):
        add(f"Svd/{label}_{dtype.name}", lambda given, dtype=dtype, matrix=matrix: list(singular(given(matrix, dtype), False)), gradient=differentiable, rtol=1e-3, atol=1e-3)
        add(f"Svd/values_{label}_{dtype.name}", lambda given, dtype=dtype, matrix=matrix: tf.raw_ops.Svd(
            input=given(matrix, dtype), compute_uv=False).s, gradient=differentiable, rtol=1e-4, atol=1e-4)
        add(f"Svd/full_{label}_{dtype.name}", lambda given, dtype=dtype, matrix=matrix: list(singular(given(matrix, dtype), True)), gradient=False, rtol=1e-3, atol=1e-3)


def eigen(x):
    e, v = tf.raw_ops.SelfAdjointEigV2(input=x)
    yield e
    yield tf.abs(v)
    yield tf.matmul(v * tf.expand_dims(tf.cos(e), -2), v, adjoint_b=True)


def singular(x, full):
    s, u, v = tf.raw_ops.Svd(input=x, full_matrices=full)
    rank = min(x.shape[-2].value, x.shape[-1].value)
    yield s
    yield tf.abs(u[..., :rank])
    yield tf.matmul(u[..., :rank] * tf.expand_dims(tf.cos(s), -2), v[..., :rank], adjoint_b=True)
    yield tf.matmul(u, u, adjoint_a=True)
    yield tf.matmul(v, v, adjoint_a=True)


for adjoint in (False, True):
    op("MatrixInverse", f"adjoint_{adjoint}", input=A, adjoint=adjoint, rtol=1e-3, atol=1e-3)
    op("MatrixSolve", f"adjoint_{adjoint}", matrix=A, rhs=RHS, adjoint=adjoint, rtol=1e-4, atol=1e-5)
    for lower in (False, True):
        label = f"lower_{lower}_adjoint_{adjoint}"
        op("MatrixTriangularSolve", label, matrix=A, rhs=RHS, lower=lower, adjoint=adjoint, rtol=2e-2, atol=2e-2)
        op("MatrixTriangularSolve", f"broadcast_{label}", [tf.float32], matrix=A[:1], rhs=uniform(3, 2, 4, 2), lower=lower, adjoint=adjoint, rtol=1e-4, atol=1e-4)
op("MatrixDeterminant", input=A, rtol=1e-4, atol=1e-5)
op("MatrixDeterminant", "singular", [tf.float32], gradient=False, input=np.ones((2, 2)))
op("LogMatrixDeterminant", input=A, rtol=1e-4, atol=1e-5)
op("LogMatrixDeterminant", "negative", [tf.float32, tf.float64], input=np.array([[0.0, 2.0], [3.0, 1.0]]))
op("LogMatrixDeterminant", "singular", [tf.float32], gradient=False, input=np.ones((2, 2)))
for label, matrix in (("square", A), ("tall", TALL), ("wide", WIDE)):
    op("Qr", label, TYPES, input=matrix, rtol=1e-3, atol=1e-4)
    op("Qr", f"full_{label}", TYPES, input=matrix, full_matrices=True, gradient=False, rtol=1e-4, atol=1e-5)
    rhs = uniform(2, matrix.shape[1], 2)
    for fast in (True, False):
        op("MatrixSolveLs", f"{label}_{fast}", matrix=matrix, rhs=rhs, l2_regularizer=np.float64(0.1 if fast else 0.0), fast=fast, rtol=1e-3, atol=1e-4)
op("MatrixSolveLs", "deficient", [tf.float32, tf.float64], matrix=np.ones((3, 2)), rhs=np.ones((3, 1)), l2_regularizer=np.float64(0), fast=False, gradient=False, atol=1e-5)
for index in (tf.int32, tf.int64):
    op("Lu", index.name, [tf.float32, tf.float64, tf.complex64, tf.complex128], input=A[:, ::-1], output_idx_type=index, gradient=False, rtol=1e-4, atol=1e-5)
DIAGONALS = np.stack([uniform(2, 4), uniform(2, 4) + 3, uniform(2, 4)], 1)
for pivoting in (True, False):
    op("TridiagonalSolve", f"pivoting_{pivoting}", diagonals=DIAGONALS, rhs=RHS, partial_pivoting=pivoting, rtol=1e-4, atol=1e-5)
op("TridiagonalSolve", "needs_pivots", [tf.float32], diagonals=np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 2.0], [0.0, 3.0, 1.0]]), rhs=np.ones((3, 1)), rtol=1e-4, atol=1e-5)
op("TridiagonalSolve", "one", [tf.float32], diagonals=np.array([[1.0], [4.0], [2.0]]), rhs=np.ones((1, 2)))
op("TridiagonalMatMul", superdiag=uniform(2, 1, 4), maindiag=uniform(2, 1, 4), subdiag=uniform(2, 1, 4), rhs=RHS, rtol=1e-4, atol=1e-5)
# TensorFlow fills the lower triangle with NaN and leaves the upper one as it finds the memory, so there is none here.
op("Cholesky", "indefinite", [tf.float32], input=np.array([[[4.0]], [[-5.0]]]), gradient=False)
op("MatrixTriangularSolve", "singular", [tf.float32], matrix=np.array([[1.0, 0.0], [2.0, 0.0]]), rhs=np.ones((2, 1)), gradient=False)
op("Svd", "not_a_number", [tf.float32], input=np.array([[np.nan, 0.0], [0.0, 1.0]]), gradient=False)
for pivoting in (True, False):
    op("TridiagonalSolve", f"singular_{pivoting}", [tf.float32], diagonals=np.zeros((3, 2)), rhs=np.ones((2, 1)), partial_pivoting=pivoting, gradient=False)
for label, nothing in (("no_matrices", EMPTY), ("no_rows", NO_SIZE)):
    for name in ("Cholesky", "MatrixInverse", "MatrixDeterminant", "LogMatrixDeterminant", "Qr", "Svd", "SelfAdjointEigV2", "Lu"):
        op(name, label, [tf.float32], gradient=False, input=nothing)
    for name in ("MatrixSolve", "MatrixTriangularSolve"):
        op(name, label, [tf.float32], gradient=False, matrix=nothing, rhs=nothing)

# Functions of matrices; the eigenvalues stay away from the negative numbers, where there is no principal root.
ROOTED = np.random.RandomState(17).uniform(-1, 1, (2, 4, 4)) + 4 * np.eye(4)
op("MatrixSquareRoot", input=ROOTED, types=[tf.float32, tf.float64], rtol=1e-4, atol=1e-5)
for name in ("MatrixSquareRoot", "MatrixLogarithm"):
    op(name, "complex", [tf.complex64, tf.complex128], input=ROOTED + 0.5j * np.flip(ROOTED, -1), gradient=False, rtol=1e-4, atol=1e-5)
    op(name, "empty", [tf.complex64], input=np.zeros((2, 0, 0)), gradient=False)

results, test_op, test_at_a_lower_level, test_beside_onednn = TABLE.tests()


UNKNOWN = tf.TensorShape(None)
FAILURES = {
    "cholesky_rectangle": lambda given: tf.linalg.cholesky(given(TALL, shape=UNKNOWN)),
    "inverse_singular": lambda given: tf.linalg.inv(given(np.ones((2, 2)))),
    "inverse_vector": lambda given: tf.linalg.inv(given(np.ones(2), shape=UNKNOWN)),
    "solve_singular": lambda given: tf.linalg.solve(given(np.zeros((2, 2))), given(np.ones((2, 1)))),
    "solve_sizes": lambda given: tf.linalg.solve(given(A, shape=UNKNOWN), given(RHS[:, :2], shape=UNKNOWN)),
    "solve_batches": lambda given: tf.linalg.solve(given(A, shape=UNKNOWN), given(RHS[:1], shape=UNKNOWN)),
    "determinant_rectangle": lambda given: tf.linalg.det(given(TALL, shape=UNKNOWN)),
    "solve_not_a_number": lambda given: tf.linalg.solve(given(np.array([[np.nan, 0.0], [0.0, 1.0]])), given(np.ones((2, 1)))),
    "eigen_not_a_number": lambda given: tf.raw_ops.SelfAdjointEigV2(input=given(np.array([[np.nan, 0.0], [0.0, 1.0]]))).e,
    "lu_singular": lambda given: tf.raw_ops.Lu(input=given(np.zeros((2, 2)))).lu,
    "least_squares_deficient": lambda given: tf.raw_ops.MatrixSolveLs(matrix=given(np.zeros((3, 2))), rhs=given(np.ones((3, 1))), l2_regularizer=given(0.0, tf.float64)),
    "least_squares_negative": lambda given: tf.raw_ops.MatrixSolveLs(matrix=given(np.eye(2)), rhs=given(np.ones((2, 1))), l2_regularizer=given(-1.0, tf.float64)),
    "eigen_rectangle": lambda given: tf.raw_ops.SelfAdjointEigV2(input=given(TALL, shape=UNKNOWN)).e,
}


@pytest.mark.parametrize("name", sorted(FAILURES))
def test_failures_have_the_same_code(op_server, name):
    side_by_side.check_failure(f"test_linalg {name}", FAILURES[name], op_server.target)
