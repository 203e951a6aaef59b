"""The table of inputs that ops refuse; errors_compute.py and errors_state.py fill it, test_errors.py runs it.

A case is a function that takes a maker of fed inputs, whose shapes are hidden from the client, and returns the fetches.
"""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

R = tf.raw_ops
HUGE = 2**62
BIG = 2**31 - 1

INVALID = tf.errors.InvalidArgumentError
# Refused because no tensor has that many elements, or because there isn't enough memory.
TOO_LARGE = (INVALID, tf.errors.ResourceExhaustedError)

SAME = {}
OURS = {}
# Operations that must run before the cases; collected while they are built.
INITIALIZERS = []


# TensorFlow 2.15 crashes on these, on every processor that was tried.
CRASHING = {
    "QueueEnqueueManyV2/scalar", "TensorArraySplitV3/negative", "SparseFillEmptyRows/overflowing", "SparseFillEmptyRows/negative_shape",
    "SparseTensorDenseMatMul/negative_shape", "ResourceGather/batch_dims_past_indices",
    "RecordInput/batch_size", "NearestNeighbors/k", "BlockLSTM/times", "BlockLSTM/negative",
}
# TensorFlow accepts these although they are meaningless, or reads memory out of bounds, or reports an internal error, or Python
# can't decode its message.
STRICTER = {
    "DepthwiseConv2dNative/height", "AvgPoolGrad/wrong", "AvgPoolGrad/zero", "AvgPoolGrad/batch", "AvgPool3DGrad/wrong", "DataFormatDimMap/range",
    "EditDistance/index", "UnravelIndex/negative", "TruncateDiv/zero", "TruncateMod/zero", "RaggedBincount/decreasing",
    "ResourceScatterUpdate/narrow", "ResourceScatterAdd/narrow", "ResourceScatterSub/narrow", "ResourceScatterMul/narrow",
    "ResourceScatterMin/narrow", "ResourceScatterMax/narrow", "BarrierInsertMany/counts",
    "BarrierTakeMany/negative", "SparseReduceSum/beyond", "SparseReduceMax/beyond", "SparseReduceSum/negative", "SparseReduceMax/negative",
    "SerializeSparse/counts", "SparseConcat/overflowing", "SparseReorder/negative_shape", "SparseAdd/negative_shape",
    "SparseConcat/negative_shape", "SerializeSparse/negative_shape", "SparseCross/shapes", "SaveV2/slice", "TFRecordDataset/compression",
    "ReadVariableOp/queue", "ExtractJpegShape/jpeg_no_tables", "ExtractJpegShape/jpeg_table_number", "DecodeImage/jpeg_no_codes",
    "DecodeImage/gif_version", "ParseExampleV2/text",
}


def same(name, expression):
    """Adds a case that must end with TensorFlow's code, or succeed if it succeeds there."""
    if name in CRASHING | STRICTER:
        ours(name, INVALID, expression)
        return
    assert name not in SAME and name not in OURS, name
    SAME[name] = expression


def ours(name, codes, expression):
    """Adds a case that can't be compared with TensorFlow; it must end with one of the codes, or succeed if None is one of
    them."""
    assert name not in SAME and name not in OURS, name
    OURS[name] = (codes if isinstance(codes, tuple) else (codes,), expression)


def zeros(*shape):
    return np.zeros(shape, np.float32)


def i64(*values):
    return np.array(values, np.int64)


def words(*values):
    return np.array(values, object)
