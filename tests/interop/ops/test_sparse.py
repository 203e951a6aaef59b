"""The ops of crates/ops/src/sparse beside TensorFlow's."""

import numpy as np
import tensorflow.compat.v1 as tf

import side_by_side

R = tf.raw_ops
TABLE = side_by_side.Table()
add = TABLE.add
SHAPE = [3, 4]
INDICES = np.array([[0, 1], [0, 3], [1, 0], [2, 2]], np.int64)
VALUES = np.array([1.5, -2.0, 3.25, 4.0], np.float32)
OTHER_INDICES = np.array([[0, 0], [0, 3], [2, 2], [2, 3]], np.int64)
OTHER_VALUES = np.array([0.5, 2.0, -4.0, 1.0], np.float32)
DENSE = np.arange(12, dtype=np.float32).reshape(3, 4) - 4.5
NUMBERS = (tf.float32, tf.float64, tf.int32, tf.int64)


def parts(given, indices=INDICES, values=VALUES, shape=SHAPE, prefix="", names=("indices", "values", "shape"), dtype=tf.float32):
    made = (given(np.asarray(indices, np.int64).reshape(-1, len(shape)), tf.int64), given(values, dtype), given(shape, tf.int64))
    return dict(zip((prefix + name for name in names), made))


def other(given, prefix, dtype=tf.float32):
    return parts(given, OTHER_INDICES, OTHER_VALUES, SHAPE, prefix, dtype=dtype)


EMPTY = {"indices": np.zeros((0, 2), np.int64), "values": np.zeros(0, np.float32)}
for dtype in NUMBERS:
    add(f"SparseAdd/{dtype.name}", lambda given, dtype=dtype: R.SparseAdd(
        **parts(given, prefix="a_", dtype=dtype), **other(given, "b_", dtype), thresh=given(0, dtype)))
    add(f"SparseReduceSum/{dtype.name}", lambda given, dtype=dtype: R.SparseReduceSum(**parts(given, prefix="input_", dtype=dtype), reduction_axes=given([1])))
    add(f"SparseReduceMax/{dtype.name}", lambda given, dtype=dtype: R.SparseReduceMax(**parts(given, prefix="input_", dtype=dtype), reduction_axes=given([-1])))
    add(f"SparseTensorDenseAdd/{dtype.name}", lambda given, dtype=dtype: R.SparseTensorDenseAdd(**parts(given, prefix="a_", dtype=dtype), b=given(DENSE, dtype)))
    for op in ("SparseDenseCwiseMul", "SparseDenseCwiseDiv", "SparseDenseCwiseAdd"):
        add(f"{op}/{dtype.name}", lambda given, op=op, dtype=dtype: getattr(R, op)(**parts(given, prefix="sp_", dtype=dtype), dense=given(np.abs(DENSE) + 1, dtype)))
    for op in ("SparseSparseMaximum", "SparseSparseMinimum"):
        add(f"{op}/{dtype.name}", lambda given, op=op, dtype=dtype: getattr(R, op)(**parts(given, prefix="a_", dtype=dtype), **other(given, "b_", dtype)))
    if dtype != tf.int64:
        add(f"SparseTensorDenseMatMul/{dtype.name}", lambda given, dtype=dtype: R.SparseTensorDenseMatMul(**parts(given, prefix="a_", dtype=dtype), b=given(DENSE.T, dtype)))
    add(f"SparseToDense/{dtype.name}", lambda given, dtype=dtype: R.SparseToDense(
        sparse_indices=given(INDICES, tf.int64), output_shape=given(SHAPE, tf.int64), sparse_values=given(VALUES, dtype), default_value=given(7, dtype)))
for keep_dims in (False, True):
    for axes in ([0], [0, 1], []):
        label = f"{keep_dims}_{len(axes)}"
        for op in ("SparseReduceSum", "SparseReduceMax", "SparseReduceSumSparse", "SparseReduceMaxSparse"):
            add(f"{op}/{label}", lambda given, op=op, axes=axes, keep_dims=keep_dims: getattr(R, op)(
                **parts(given, prefix="input_"), reduction_axes=given(np.array(axes, np.int32)), keep_dims=keep_dims), gradient=False)
for op in ("SparseDenseCwiseMul", "SparseDenseCwiseAdd"):
    add(f"{op}/row", lambda given, op=op: getattr(R, op)(**parts(given, prefix="sp_"), dense=given(DENSE[0])))
for adjoint_a, adjoint_b in ((False, True), (True, False), (True, True)):
    b = DENSE.T if not adjoint_a else DENSE
    add(f"SparseTensorDenseMatMul/{adjoint_a}_{adjoint_b}", lambda given, a=adjoint_a, b_=adjoint_b, b=b: R.SparseTensorDenseMatMul(
        **parts(given, prefix="a_"), b=given(b.T if b_ else b), adjoint_a=a, adjoint_b=b_))
add("SparseAdd/empty", lambda given: R.SparseAdd(**parts(given, **EMPTY, prefix="a_"), **other(given, "b_"), thresh=given(np.float32(0))), gradient=False)
add("SparseAddGrad", lambda given: R.SparseAddGrad(
    backprop_val_grad=given(np.arange(6, dtype=np.float32)), a_indices=given(INDICES, tf.int64), b_indices=given(OTHER_INDICES, tf.int64),
    sum_indices=given(np.array([[0, 0], [0, 1], [0, 3], [1, 0], [2, 2], [2, 3]]), tf.int64)), gradient=False)
add("SparseConcat", lambda given: [R.SparseConcat(
    **{name: list(both) for name, both in zip(("indices", "values", "shapes"), zip(parts(given).values(), other(given, "").values()))}, concat_dim=axis) for axis in (0, 1, -1)])
add("SparseReorder", lambda given: R.SparseReorder(**parts(given, INDICES[[2, 0, 3, 1]], prefix="input_")))
add("SparseReshape", lambda given: [R.SparseReshape(input_indices=given(INDICES, tf.int64), input_shape=given(SHAPE, tf.int64), new_shape=given(shape, tf.int64))
                                    for shape in ([12], [2, -1], [2, 3, 2])])
add("SparseSlice", lambda given: R.SparseSlice(**parts(given), start=given([0, 1], tf.int64), size=given([2, 3], tf.int64)))
add("SparseSliceGrad", lambda given: R.SparseSliceGrad(
    backprop_val_grad=given(np.array([5.0, 6.0], np.float32)), input_indices=given(INDICES, tf.int64), input_start=given([0, 1], tf.int64),
    output_indices=given(np.array([[0, 0], [0, 2]]), tf.int64)), gradient=False)
add("SparseSplit", lambda given: [R.SparseSplit(split_dim=given(np.int64(axis), tf.int64), **parts(given), num_split=2) for axis in (0, 1)])
add("SparseSoftmax", lambda given: R.SparseSoftmax(**parts(given, prefix="sp_")))
add("SparseFillEmptyRows", lambda given: R.SparseFillEmptyRows(
    **parts(given, [[0, 1], [2, 0], [2, 3]], VALUES[:3], [5, 4], names=("indices", "values", "dense_shape")), default_value=given(np.float32(9))))
add("SparseFillEmptyRows/empty", lambda given: R.SparseFillEmptyRows(
    **parts(given, **EMPTY, names=("indices", "values", "dense_shape")), default_value=given(np.float32(9))), gradient=False)
add("SparseFillEmptyRowsGrad", lambda given: R.SparseFillEmptyRowsGrad(reverse_index_map=given([2, 0], tf.int64), grad_values=given(VALUES)), gradient=False)
add("SparseToDense/scalar", lambda given: [R.SparseToDense(
    sparse_indices=given(indices), output_shape=given([5]), sparse_values=given(np.float32(3)), default_value=given(np.float32(-1))) for indices in ([1, 4], 2)])
add("SparseToDense/words", lambda given: R.SparseToDense(
    sparse_indices=given([1, 3]), output_shape=given([4]), sparse_values=given(np.array([b"a", b"b"], object)), default_value=given(np.array(b"-", object))))
add("SerializeSparse", lambda given: R.DeserializeSparse(serialized_sparse=R.SerializeSparse(**parts(given, prefix="sparse_")), dtype=tf.float32), gradient=False)
add("SerializeManySparse", lambda given: R.DeserializeManySparse(
    serialized_sparse=R.SerializeManySparse(**parts(given, prefix="sparse_")), dtype=tf.float32), gradient=False)
add("AddManySparseToTensorsMap", lambda given: R.TakeManySparseFromTensorsMap(
    sparse_handles=R.AddManySparseToTensorsMap(**parts(given, prefix="sparse_"), shared_name="many"), dtype=tf.float32, shared_name="many"), gradient=False)
add("AddSparseToTensorsMap", lambda given: R.TakeManySparseFromTensorsMap(
    sparse_handles=tf.expand_dims(R.AddSparseToTensorsMap(**parts(given, prefix="sparse_"), shared_name="one"), 0), dtype=tf.float32, shared_name="one"), gradient=False)
WORDS = np.array([b"a", b"b", b"c", b"d"], object)
for hashed in (False, True):
    add(f"SparseCross/{hashed}", lambda given, hashed=hashed: R.SparseCross(
        indices=[given(INDICES, tf.int64)], values=[given(WORDS)], shapes=[given(SHAPE, tf.int64)],
        dense_inputs=[given(np.array([[b"x"], [b"y"], [b"z"]], object))], hashed_output=hashed, num_buckets=100 if hashed else 0, hash_key=956888297470,
        out_type=tf.int64 if hashed else tf.string, internal_type=tf.string), gradient=False)
add("SparseCrossV2", lambda given: R.SparseCrossV2(
    indices=[given(INDICES, tf.int64)], values=[given(WORDS)], shapes=[given(SHAPE, tf.int64)],
    dense_inputs=[given(np.array([[b"x"], [b"y"], [b"z"]], object))], sep=given(np.array(b"_", object))), gradient=False)
add("SparseCrossHashed", lambda given: [R.SparseCrossHashed(
    indices=[given(INDICES, tf.int64)], values=[given(WORDS)], shapes=[given(SHAPE, tf.int64)], dense_inputs=[given(np.array([[b"x"], [b"y"], [b"z"]], object))],
    num_buckets=given(np.int64(1000), tf.int64), strong_hash=given(np.array(strong)), salt=given([3, 4], tf.int64)) for strong in (False, True)], gradient=False)

# TensorFlow itself dies of a strong hash of a dense number.
NUMBERS = np.array([7, -8, 2**40 + 7, 5])
for label, values, dense, strong in (
        ("numbers", NUMBERS, np.array([[5], [2**33 + 5], [-1]]), False), ("sparse_numbers", NUMBERS, np.array([[b"x"], [b"y"], [b"z"]], object), False),
        ("dense_numbers", WORDS, np.array([[5], [2**33 + 5], [-1]]), False), ("strong_numbers", NUMBERS, np.array([[b"x"], [b"y"], [b"z"]], object), True)):
    add(f"SparseCrossHashed/{label}", lambda given, values=values, dense=dense, strong=strong: R.SparseCrossHashed(
        indices=[given(INDICES, tf.int64)], values=[given(values, None if values.dtype == object else tf.int64)], shapes=[given(SHAPE, tf.int64)],
        dense_inputs=[given(dense, None if dense.dtype == object else tf.int64)], num_buckets=given(np.int64(0), tf.int64), strong_hash=given(np.array(strong)),
        salt=given([3, 4], tf.int64)), gradient=False)

results, test_op, test_at_a_lower_level, test_beside_onednn = TABLE.tests()
