"""The ops of crates/ops/src/math beside TensorFlow's."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import side_by_side
from side_by_side import Fixed

RANDOM = np.random.RandomState(7)
A = RANDOM.uniform(-2, 2, (3, 4)).astype(np.float32)
B = RANDOM.uniform(0.25, 2, (3, 4)).astype(np.float32)
UNIT = RANDOM.uniform(-0.9, 0.9, (3, 4)).astype(np.float32)
ROW = RANDOM.uniform(0.5, 2, (4,)).astype(np.float32)
CUBE = RANDOM.uniform(-1, 1, (2, 3, 4)).astype(np.float32)
WHOLE = np.array([[5, -3, 7, 1], [2, 9, -8, 4], [-6, 3, 1, 2]], np.float32)
WHOLE_B = np.array([[2, 3, -4, 1], [-1, 5, 3, 4], [2, -3, 5, 7]], np.float32)
EMPTY = np.zeros((0, 3), np.float32)
ODD = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-9, 3e38, -1.5, 0.5, 1.5, 2.5], np.float32)
BOOLS = np.array([[True, False, True, True], [False, False, True, False], [True, True, True, True]])
IMAGINARY = (A + 1j * B).astype(np.complex64)

TABLE = side_by_side.Table()
op, add = TABLE.op, TABLE.add

# Of one argument.
for name in ("Abs", "Neg", "Sign", "Square", "Round"):
    op(name, x=WHOLE)
for name in ("Exp", "Expm1", "Sin", "Cos", "Tan", "Tanh", "Sigmoid", "Floor", "Ceil", "Rint", "Atan", "Sinh", "Cosh", "Asinh",
             "Erf", "Erfc", "BesselI0e", "BesselI1e", "IsNan", "IsInf", "IsFinite"):
    op(name, x=A)
for name in ("Sqrt", "Rsqrt", "Log", "Log1p", "Lgamma", "Digamma"):
    op(name, x=B)
for name in ("Reciprocal", "Inv"):
    op(name, x=WHOLE)
op("Acosh", x=B + 1)
for name in ("Asin", "Acos", "Atanh", "Erfinv"):
    op(name, x=UNIT)
op("Ndtri", x=np.abs(UNIT))
for name in ("BesselI0", "BesselI1"):
    add(name, lambda given, name=name: getattr(tf.raw_ops, name)(x=given(A)))
for name in ("Abs", "Neg", "Sign", "Square", "Round", "Exp", "Expm1", "Tanh", "Sigmoid", "Floor", "Ceil", "Rint", "Atan", "Sinh",
             "Cosh", "Asinh", "Erf", "Erfc", "IsNan", "IsInf", "IsFinite", "Sqrt", "Rsqrt", "Log", "Log1p", "Reciprocal", "Acosh", "Asin",
             "Acos", "Atanh", "Lgamma", "Digamma", "Erfinv", "Ndtri"):
    op(name, "odd", [tf.float32, tf.float64], gradient=False, x=ODD)
    op(name, "empty", [tf.float32], x=EMPTY)
for name in ("Sin", "Cos", "Tan"):
    op(name, "odd", [tf.float32, tf.float64], gradient=False, x=np.array([np.nan, np.inf, 0, -0.0, 1e5, -3e4, 1e-20]))
for name in ("SqrtGrad", "RsqrtGrad", "TanhGrad", "SigmoidGrad", "ReciprocalGrad", "InvGrad"):
    op(name, y=B, dy=A)
op("LogicalNot", x=BOOLS)

# Of two.
for name in ("Add", "AddV2", "Sub", "Mul", "SquaredDifference", "Maximum", "Minimum", "Equal", "NotEqual", "Less", "LessEqual", "Greater",
             "GreaterEqual", "RealDiv", "Div", "TruncateDiv", "FloorDiv", "FloorMod", "Mod", "TruncateMod", "DivNoNan", "MulNoNan"):
    numbers = [one for one in side_by_side.cpu_types(name, "T") if one not in (tf.string, tf.bool)]
    op(name, "", numbers, x=WHOLE, y=WHOLE_B)
    op(name, "broadcast", [tf.float32], x=CUBE, y=B)
    op(name, "broadcast_both", [tf.float32], x=CUBE[:, :1], y=B[:, :1])
    op(name, "scalar", [tf.float32], x=np.float32(3.5), y=WHOLE_B)
    op(name, "empty", [tf.float32], x=EMPTY, y=ROW[:3])
    op(name, "odd", [tf.float32], gradient=False, x=ODD, y=np.roll(ODD, 4))
for name in ("Add", "AddV2", "Equal", "NotEqual"):
    if tf.string in side_by_side.cpu_types(name, "T"):
        op(name, "words", [tf.string], x=np.array([b"a", b"bc", b""], object), y=np.array([b"a", b"d", b"x"], object))
for name in ("Equal", "NotEqual"):
    op(name, "flags", [tf.bool], x=BOOLS, y=BOOLS[::-1])
for name in ("Equal", "NotEqual"):
    op(name, "incompatible", [tf.float32], x=WHOLE, y=WHOLE[:2], incompatible_shape_error=False)
for name in ("LogicalAnd", "LogicalOr"):
    op(name, x=BOOLS, y=BOOLS[::-1])
op("Pow", x=B, y=A, types=[tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.complex64, tf.complex128])
op("Pow", "whole", [tf.int8, tf.int16, tf.int32, tf.int64], x=WHOLE, y=np.abs(WHOLE_B) % 4)
op("Pow", "odd", [tf.float32], gradient=False, x=ODD, y=np.roll(ODD, 3))
op("Atan2", y=A, x=WHOLE)
for name in ("Xdivy", "Xlogy", "Xlog1py"):
    op(name, x=A, y=B)
    op(name, "zero", [tf.float32], x=A * BOOLS, y=B * BOOLS, gradient=False)
op("NextAfter", x1=A, x2=B)
op("ApproximateEqual", x=WHOLE, y=WHOLE + np.array([0, 1, 0, 0]))
op("Zeta", x=B + 1.5, q=B)
op("Polygamma", a=np.round(B) + 1, x=B, gradient=False)
for name in ("Igamma", "Igammac"):
    op(name, a=B, x=B[::-1])
op("IgammaGradA", a=B, x=B[::-1], rtol=1e-4)
op("Betainc", a=B, b=B[::-1], x=np.abs(UNIT))
op("ClipByValue", t=WHOLE, clip_value_min=np.float32(1), clip_value_max=np.float32(4))
# Of complex numbers each part is limited by itself.
for label, bound in (("scalars", np.complex64(0)), ("each", np.zeros(11, np.complex64))):
    op("ClipByValue", f"complex_{label}", [tf.complex64, tf.complex128], t=np.array([1 + 2j, 3 + 1j, -1 - 4j, 2 + 2j, 2, 0, 1 - 1j, 1 + 1j, 5, 1 + 9j, 4 - 9j]),
       clip_value_min=bound + (1 - 1j), clip_value_max=bound + (2 + 2j), gradient=False)
op("AddN", inputs=[WHOLE, WHOLE_B, WHOLE])
op("AddN", "one", [tf.float32], inputs=[A])
add("AccumulateNV2", lambda given: tf.accumulate_n([given(A), given(B)]))
op("Cross", a=WHOLE[:, :3], b=WHOLE_B[:, :3])

# Bits.
for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
    op(name, x=WHOLE, y=WHOLE_B)
    op(name, "broadcast", [tf.int32], x=WHOLE, y=WHOLE_B[0])
for name in ("LeftShift", "RightShift"):
    op(name, x=WHOLE, y=np.abs(WHOLE_B))
for name in ("Invert", "PopulationCount"):
    op(name, x=WHOLE)

# Reductions.
# Squares that overflow, some to sums that have no root.
SMALL = np.array([[1, 2, 3], [11, 4, 5], [7, 8, 0], [100, 50, 25], [-3, -100, 9], [12, 2, 1], [8, 8, 1], [127, 127, 127]])
op("EuclideanNorm", "overflowing", [tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16], input=SMALL, axis=Fixed([1]))
op("EuclideanNorm", "overflowing_words", [tf.int16], input=np.array([[200, 3, 4], [181, 3, 4], [200, 200, 1]]), axis=Fixed([1]))
op("EuclideanNorm", "overflowing_numbers", [tf.int32], input=np.array([[2**30, 2**30, 3], [40000, 40000, 1], [46340, 3, 4]]), axis=Fixed([1]))
op("EuclideanNorm", "overflowing_long", [tf.int64], input=np.array([[2**32, 3, 4], [3 * 2**30, 1, 4], [2**31, 2**31, 2**31]]), axis=Fixed([1]))
for name in ("Sum", "Mean", "Prod", "Max", "Min", "EuclideanNorm"):
    op(name, "", input=WHOLE, axis=Fixed([1]), gradient=name != "EuclideanNorm")
    for label, axes in {"all": [0, 1, 2], "first": [0], "last": [-1], "outer": [0, 2], "inner": [2, 1], "none": []}.items():
        for keep_dims in (False, True):
            op(name, f"{label}{'_keep' if keep_dims else ''}", [tf.float32], input=CUBE, axis=Fixed(np.array(axes, np.int32)), keep_dims=keep_dims)
    op(name, "empty", [tf.float32], input=EMPTY, axis=np.array([0]), gradient=False)
    op(name, "empty_kept", [tf.float32], input=EMPTY, axis=np.array([1]), gradient=False)
    op(name, "odd", [tf.float32], input=ODD.reshape(11, 1), axis=np.array([1]), gradient=False)
    op(name, "nan", [tf.float32], input=np.array([1, np.nan, 3], np.float32), axis=np.array([0]), gradient=False)
    op(name, "scalar", [tf.float32], input=np.float32(3), axis=np.array([], np.int32), gradient=False)
    add(f"{name}/axis_int64", lambda given, name=name: getattr(tf.raw_ops, name)(input=given(CUBE), axis=tf.constant(1, tf.int64)))
for name in ("All", "Any"):
    op(name, input=BOOLS, axis=np.array([0]))
    op(name, "keep", input=BOOLS, axis=np.array([-1]), keep_dims=True)
    op(name, "empty", input=np.zeros((0, 3), bool), axis=np.array([0]))
for name in ("ArgMax", "ArgMin"):
    kept = [one for one in side_by_side.cpu_types(name, "T") if one != tf.bool]
    op(name, "", kept, input=WHOLE, dimension=np.int32(1))
    op(name, "flags", [tf.bool], input=BOOLS, dimension=np.int32(0))
    op(name, "negative", [tf.float32], input=CUBE, dimension=np.int32(-2))
    op(name, "ties", [tf.int32], input=np.array([[1, 3, 3], [2, 2, 2]]), dimension=np.int32(1), output_type=tf.int32)
    op(name, "nan", [tf.float32], input=np.array([[1, np.nan, 3], [np.nan, 2, 1]]), dimension=np.int32(1))
add("reduce_logsumexp", lambda given: tf.reduce_logsumexp(given(CUBE), [1]))
add("moments", lambda given: tf.nn.moments(given(CUBE), [0, 2]))
add("reduce_hidden_shape", lambda given: [tf.reduce_mean(given(CUBE, shape=[None, 3, None]), axis) for axis in (None, 0, [1, 2])], gradient=False)

# Running sums.
for name in ("Cumsum", "Cumprod", "CumulativeLogsumexp"):
    for exclusive in (False, True):
        for reverse in (False, True):
            label = f"{'exclusive' if exclusive else 'inclusive'}{'_reverse' if reverse else ''}"
            differentiable = not (exclusive and name == "CumulativeLogsumexp")
            op(name, label, [tf.float32], differentiable, x=CUBE, axis=np.int32(1), exclusive=exclusive, reverse=reverse)
    op(name, x=WHOLE, axis=np.int32(-1), rtol=2e-2 if name == "CumulativeLogsumexp" else None)
    op(name, "empty", [tf.float32], x=EMPTY, axis=np.int32(0))

# Products.
for transpose_a in (False, True):
    for transpose_b in (False, True):
        label = f"{'t' if transpose_a else 'n'}{'t' if transpose_b else 'n'}"
        whole = (WHOLE.T if transpose_a else WHOLE, WHOLE_B if transpose_b else WHOLE_B.T)
        op("MatMul", label, a=whole[0], b=whole[1], transpose_a=transpose_a, transpose_b=transpose_b)
        add(f"SparseMatMul/{label}", lambda given, whole=whole, ta=transpose_a, tb=transpose_b: tf.raw_ops.SparseMatMul(
            a=given(whole[0]), b=given(whole[1]), transpose_a=ta, transpose_b=tb, a_is_sparse=True))
for adjoint_x in (False, True):
    for adjoint_y in (False, True):
        label = f"{'t' if adjoint_x else 'n'}{'t' if adjoint_y else 'n'}"
        cubes = (np.stack([WHOLE.T if adjoint_x else WHOLE] * 2), np.stack([WHOLE_B if adjoint_y else WHOLE_B.T, A if adjoint_y else A.T]))
        for name in ("BatchMatMul", "BatchMatMulV2"):
            op(name, label, x=cubes[0], y=cubes[1], adj_x=adjoint_x, adj_y=adjoint_y, atol=1e-4)
op("BatchMatMulV2", "broadcast", [tf.float32], x=CUBE, y=A.T)
op("BatchMatMulV2", "broadcast_both", [tf.float32], x=CUBE[:, np.newaxis], y=np.stack([A.T] * 3))
add("BatchMatMulV3", lambda given: tf.raw_ops.BatchMatMulV3(x=given(CUBE), y=given(A.T), Tout=tf.float32))
op("MatMul", "empty_inner", [tf.float32], a=np.zeros((2, 0)), b=np.zeros((0, 3)))
op("MatMul", "empty_rows", [tf.float32], a=np.zeros((0, 3)), b=B)
op("MatMul", "large", [tf.float32], a=np.sin(np.arange(130 * 70)).reshape(130, 70), b=np.cos(np.arange(70 * 90)).reshape(70, 90), atol=1e-4)
op("MatMul", "vector", [tf.float32], a=np.sin(np.arange(700)).reshape(1, 700), b=np.cos(np.arange(70 * 700)).reshape(700, 70), atol=1e-4)
op("MatMul", "nan", [tf.float32], a=np.array([[np.nan, 0], [1, 2]]), b=np.array([[0.0, 1], [1, 2]]), gradient=False)
EQUATIONS = {
    "ij,jk->ik": (A, B.T), "ij,kj->ik": (A, B), "bij,kj->bki": (CUBE, A), "bij,bkj->bik": (CUBE, CUBE), "ij->ji": (A,), "ij->": (A,),
    "ij->i": (A,), "ii->i": (A[:, :3],), "ii->": (A[:, :3],), "ij,ij->ij": (A, B), "i,j->ij": (ROW, A[:, 0]), "...ij,jk->...ik": (CUBE, A.T),
    "ab...,b...->a...": (CUBE, CUBE[0]), "bij,bij->b": (CUBE, CUBE), "ijk,ikj->": (CUBE, np.swapaxes(CUBE, 1, 2)),
}
for equation, operands in EQUATIONS.items():
    op("Einsum", equation.replace("/", ""), [tf.float32], inputs=operands, equation=equation)
op("Einsum", "", inputs=[WHOLE, WHOLE_B.T], equation="ij,jk->ik")

# Segments.
for name in ("SegmentSum", "SegmentMean", "SegmentMax", "SegmentMin", "SegmentProd"):
    op(name, data=WHOLE, segment_ids=np.array([0, 0, 2]))
    op(name, "empty", [tf.float32], data=EMPTY, segment_ids=np.zeros(0, np.int32), gradient=False)
    add(f"{name}/ids_int64", lambda given, name=name: getattr(tf.raw_ops, name)(data=given(A), segment_ids=given([1, 1, 3], tf.int64)))
for name in ("UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd"):
    op(name, data=WHOLE, segment_ids=np.array([2, 0, 2]), num_segments=np.int32(4))
    op(name, "dropped", [tf.float32], data=A, segment_ids=np.array([-1, 1, 1]), num_segments=np.int32(2))
    op(name, "matrix_ids", [tf.float32], data=CUBE, segment_ids=np.array([[0, 1, 0], [2, 2, 1]]), num_segments=np.int32(3))
    op(name, "empty", [tf.float32], data=EMPTY, segment_ids=np.zeros(0, np.int32), num_segments=np.int32(2), gradient=False)
for name in ("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN"):
    op(name, data=WHOLE, indices=np.array([0, 2, 1, 0]), segment_ids=np.array([0, 0, 1, 3]))
    op(f"{name}WithNumSegments", data=WHOLE, indices=np.array([0, 2, 1]), segment_ids=np.array([0, 0, 1]), num_segments=np.int32(5))
    op(name, "none", [tf.float32], data=A, indices=np.zeros(0, np.int32), segment_ids=np.zeros(0, np.int32), gradient=False)
    op(f"{name}Grad", grad=A, indices=np.array([0, 2, 1]), segment_ids=np.array([0, 0, 1]), output_dim0=np.int32(4))

# Counting.
op("Bucketize", input=WHOLE, boundaries=[-2.0, 0.0, 3.0, 5.0])
op("Bincount", "", [tf.float32, tf.float64, tf.int32, tf.int64], sweep="T", arr=np.array([1, 2, 2, 5]), size=np.int32(4), weights=np.array([1, 2, 3, 4]), gradient=False)
op("Bincount", "no_weights", [tf.int32, tf.float32], sweep="T", arr=np.array([1, 2, 2, 5]), size=np.int32(7), weights=np.zeros(0), gradient=False)
for binary in (False, True):
    add(f"DenseBincount/{binary}", lambda given, binary=binary: [
        tf.raw_ops.DenseBincount(input=given([1, 2, 2, 9]), size=given(6), weights=given(np.zeros(0, np.float32)), binary_output=binary),
        tf.raw_ops.DenseBincount(input=given([[1, 2, 2], [0, 0, 7]]), size=given(5), weights=given(np.zeros((0, 0), np.float32)), binary_output=binary),
        tf.raw_ops.DenseBincount(input=given([[1, 2, 2], [0, 0, 7]]), size=given(5), weights=given(CUBE[0, :2, :3]), binary_output=binary)], gradient=False)
add("RaggedBincount", lambda given: tf.raw_ops.RaggedBincount(
    splits=given([0, 2, 2, 5], tf.int64), values=given([1, 1, 2, 0, 9]), size=given(4), weights=given(np.zeros(0, np.float32))), gradient=False)
add("histogram_fixed_width", lambda given: tf.histogram_fixed_width(given(A), [-1.0, 1.5], 5))

# Complex numbers.
for name in ("Real", "Imag", "Angle"):
    add(name, lambda given, name=name: getattr(tf.raw_ops, name)(input=given(IMAGINARY)))
    add(f"{name}/double", lambda given, name=name: getattr(tf.raw_ops, name)(
        input=given(IMAGINARY, tf.complex128), Tout=tf.float64))
add("ComplexAbs", lambda given: [tf.raw_ops.ComplexAbs(x=given(IMAGINARY)), tf.abs(given(IMAGINARY, tf.complex128))])
op("Conj", "", [tf.complex64, tf.complex128], input=IMAGINARY)
add("Complex", lambda given: [tf.complex(given(A), given(B)), tf.complex(given(A, tf.float64), given(ROW, tf.float64))])

# Casts.
TYPES = ["float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool",
         "complex64", "complex128"]
for source in TYPES:
    add(f"Cast/{source}", lambda given, source=source: [
        tf.cast(given(np.array([0, 1, 3, 100, 77]), source), target) for target in TYPES], gradient=False)
add("Cast/down", lambda given: [tf.cast(given([-1.9, -0.5, 0.5, 1.9]), target) for target in (tf.int8, tf.int32, tf.int64, tf.bool, tf.float16)])
add("Cast/wrap", lambda given: [tf.cast(given([-1, 255, 256, 300, 70000]), target) for target in (tf.int8, tf.uint8, tf.int16, tf.uint16, tf.uint32)])
add("Cast/gradient", lambda given: tf.cast(given(A), tf.float64) * 2)

# Choices and sequences.
op("Select", "", condition=BOOLS, x=WHOLE, y=WHOLE_B, types=[one for one in side_by_side.cpu_types("Select", "T") if one != tf.bool], renamed={"x": "t", "y": "e"})
op("SelectV2", "", condition=BOOLS, t=WHOLE, e=WHOLE_B, types=[one for one in side_by_side.cpu_types("SelectV2", "T") if one != tf.bool])
op("Select", "rows", [tf.float32], condition=BOOLS[:, 0], x=A, y=B, renamed={"x": "t", "y": "e"})
op("Select", "scalar", [tf.float32], condition=np.array(True), x=A, y=B, renamed={"x": "t", "y": "e"})
op("SelectV2", "broadcast", [tf.float32], condition=BOOLS[:, :1], t=A, e=ROW)
op("SelectV2", "scalars", [tf.float32], condition=BOOLS, t=np.float32(1), e=np.float32(2))
op("Range", start=np.float32(3), limit=np.float32(20), delta=np.float32(4))
op("Range", "down", [tf.int32, tf.float32], start=np.float32(3), limit=np.float32(-20), delta=np.float32(-4))
op("Range", "none", [tf.int32], start=np.float32(3), limit=np.float32(3), delta=np.float32(1))
add("LinSpace", lambda given: [tf.linspace(given(np.float32(1)), 2.0, 5), tf.linspace(given(np.float32(1)), -2.0, 1)])
add("clip", lambda given: [tf.clip_by_value(given(A), -0.5, 0.5), tf.clip_by_norm(given(A), 1.0), tf.clip_by_global_norm([given(A), given(B)], 1.5)[0][0]])

# Classes to compare the true ones with, drawn from the same seeds.
TRUE_CLASSES = np.array([[1, 7], [0, 3], [12, 5]])
for unique in (False, True):
    for name, count, attrs in (("AllCandidateSampler", 20, {}), ("UniformCandidateSampler", 9, {"range_max": 30}), ("LogUniformCandidateSampler", 9, {"range_max": 30})):
        for seed in (1, 2):
            op(name, f"{unique}{seed}", true_classes=TRUE_CLASSES, num_true=2, num_sampled=count, unique=unique, seed=seed, seed2=4, gradient=False, **attrs)
COUNTS = [3.0, 1.0, 0.5, 7.0, 2.0, 2.0, 0.25, 4.0, 1.0, 6.0, 2.5, 1.5]
for unique in (False, True):
    for label, attrs in (("plain", {}), ("distorted", {"distortion": 0.75}), ("reserved", {"num_reserved_ids": 2, "range_max": 14})):
        op("FixedUnigramCandidateSampler", f"{label}_{unique}", true_classes=TRUE_CLASSES % 12, num_true=2, num_sampled=6, unique=unique, unigrams=COUNTS,
           seed=3, seed2=5, gradient=False, **{"range_max": 12, **attrs})
    op("FixedUnigramCandidateSampler", f"shards_{unique}", true_classes=TRUE_CLASSES % 6, num_true=2, num_sampled=4, unique=unique, unigrams=COUNTS,
       range_max=6, num_shards=2, shard=1, seed=3, seed2=5, gradient=False)
    for name in ("LearnedUnigramCandidateSampler", "ThreadUnsafeUnigramCandidateSampler"):
        op(name, f"{unique}", true_classes=TRUE_CLASSES % 30, num_true=2, num_sampled=9, unique=unique, range_max=30, seed=3, seed2=5, gradient=False)
op("UniformCandidateSampler", "power", true_classes=TRUE_CLASSES, num_true=2, num_sampled=5, unique=True, range_max=16, seed=1, seed2=4, gradient=False)
add("ComputeAccidentalHits", lambda given: tf.raw_ops.ComputeAccidentalHits(
    true_classes=given(TRUE_CLASSES, tf.int64), sampled_candidates=given([7, 3, 3, 40, 12, 7], tf.int64), num_true=2), gradient=False)
add("ComputeAccidentalHits/none", lambda given: tf.raw_ops.ComputeAccidentalHits(
    true_classes=given(np.zeros((0, 2)), tf.int64), sampled_candidates=given([7], tf.int64), num_true=2), gradient=False)

# Clusters: the same centers are drawn from the same seeds.
POINTS = np.random.RandomState(9).normal(size=(40, 3)).astype(np.float32)
for k in (0, 1, 3, 7, 9):
    add(f"NearestNeighbors/{k}", lambda given, k=k: list(tf.raw_ops.NearestNeighbors(points=given(POINTS), centers=given(POINTS[::6] + 0.1), k=given(k, tf.int64))), gradient=False)
for count, retries in ((1, 0), (3, 0), (5, 2), (40, 1), (6, -1)):
    for seed in (0, 7, 1 << 33):
        add(f"KmeansPlusPlusInitialization/{count}_{retries}_{seed}", lambda given, count=count, retries=retries, seed=seed: tf.raw_ops.KmeansPlusPlusInitialization(
            points=given(POINTS), num_to_sample=given(count, tf.int64), seed=given(seed, tf.int64), num_retries_per_sample=given(retries, tf.int64)), gradient=False)
for seed in (0, 3, 5):
    add(f"KMC2ChainInitialization/{seed}", lambda given, seed=seed: tf.raw_ops.KMC2ChainInitialization(
        distances=given(np.abs(POINTS[:, 0])), seed=given(seed, tf.int64)), gradient=False)

# How samples move with their parameter.
op("RandomGammaGrad", alpha=np.array([0.1, 0.7, 1.0, 2.5, 11.0, 60.0]), sample=np.array([[0.02, 0.4, 1.3, 3.0, 9.0, 58.0], [0.5, 2.0, 0.1, 0.7, 14.0, 70.0]]), gradient=False,
   rtol=2e-3, atol=1e-4)
add("random_gamma", lambda given: tf.random_gamma([4], given(np.array([0.6, 1.5, 7.0])), seed=3), rtol=2e-3, atol=1e-4)

results, test_op, test_at_a_lower_level, test_beside_onednn = TABLE.tests()

FAILURES = {
    "matmul": lambda given: tf.matmul(given(A, shape=[None, None]), given(B, shape=[None, None])),
    "batch_matmul": lambda given: tf.matmul(given(CUBE, shape=[None, None, None]), given(A, shape=[None, None])),
    "add": lambda given: tf.add(given(A, shape=[None, None]), given(A[:2], shape=[None, None])),
    "division": lambda given: tf.floordiv(given([1, 2]), given([1, 0])),
    "modulus": lambda given: tf.floormod(given([1, 2]), given([1, 0])),
    "reduction_axis": lambda given: tf.reduce_sum(given(A, shape=[None, None]), given(np.int32(2))),
    "argmax_axis": lambda given: tf.argmax(given(A, shape=[None, None]), given(np.int32(-3))),
    "argmax_empty": lambda given: tf.argmax(given(EMPTY, shape=[None, None]), given(np.int32(0))),
    "cumsum_axis": lambda given: tf.cumsum(given(A, shape=[None, None]), given(np.int32(5))),
    "segment_unsorted": lambda given: tf.segment_sum(given(A), given([1, 0, 0])),
    "segment_negative": lambda given: tf.segment_sum(given(A), given([-1, 0, 0])),
    "segment_length": lambda given: tf.segment_sum(given(A, shape=[None, None]), given([0, 0], shape=[None])),
    "unsorted_segment_range": lambda given: tf.unsorted_segment_sum(given(A), given([0, 1, 7]), given(np.int32(3))),
    "unsorted_segment_count": lambda given: tf.unsorted_segment_sum(given(A), given([0, 1, 1]), given(np.int32(-3), shape=None)),
    "sparse_segment_index": lambda given: tf.sparse_segment_sum(given(A), given([0, 9]), given([0, 1])),
    "sparse_segment_unsorted": lambda given: tf.sparse_segment_sum(given(A), given([0, 1]), given([1, 0])),
    "range_delta": lambda given: tf.range(given(np.int32(0)), given(np.int32(5)), given(np.int32(0))),
    "range_sign": lambda given: tf.range(given(np.int32(5)), given(np.int32(0)), given(np.int32(1))),
    "bincount_negative": lambda given: tf.raw_ops.Bincount(arr=given([-1, 2]), size=given(3), weights=given(np.zeros(0, np.float32))),
    "clip_shapes": lambda given: tf.raw_ops.ClipByValue(t=given(A, shape=[None, None]), clip_value_min=given(ROW), clip_value_max=given(ROW)),
    "einsum_sizes": lambda given: tf.raw_ops.Einsum(inputs=[given(A, shape=[None, None]), given(B, shape=[None, None])], equation="ij,jk->ik"),
    "integer_power": lambda given: tf.pow(given([2, 3]), given([1, -1])),
    "add_n_shapes": lambda given: tf.raw_ops.AddN(inputs=[given(A, shape=[None, None]), given(A[:2], shape=[None, None])]),
    "cross": lambda given: tf.raw_ops.Cross(a=given(A, shape=[None, None]), b=given(A, shape=[None, None])),
    "select_shapes": lambda given: tf.raw_ops.Select(condition=given(BOOLS[0], shape=[None]), x=given(A, shape=[None, None]), y=given(B, shape=[None, None])),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failure(op_server, name):
    side_by_side.check_failure(f"test_math {name}", FAILURES[name], op_server.target)
