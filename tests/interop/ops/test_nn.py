"""The ops of crates/ops/src/nn and crates/ops/src/logging beside TensorFlow's."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import side_by_side

RANDOM = np.random.RandomState(11)


def uniform(*shape):
    return RANDOM.uniform(-1, 1, shape).astype(np.float32)


A = uniform(3, 4)
WHOLE = np.array([[5, -3, 7, 1], [2, 9, -8, 4], [-6, 3, 1, 2]], np.float32)
IMAGE = uniform(2, 8, 7, 3)
FILTER = uniform(3, 3, 3, 5)
VOLUME = uniform(2, 5, 6, 5, 2)
VOLUME_FILTER = uniform(2, 3, 2, 2, 3)
NO_IMAGES = np.zeros((0, 8, 7, 3), np.float32)
ODD = np.array([[np.nan, np.inf, -np.inf, 0.0], [1e-9, 3e38, -1.5, 0.5]], np.float32)

TABLE = side_by_side.Table()
op, add = TABLE.op, TABLE.add

# Activations.
for name in ("Relu", "Relu6", "Elu", "Selu", "Softplus", "Softsign", "LeakyRelu"):
    op(name, features=WHOLE)
    op(name, "odd", [tf.float32], gradient=False, features=ODD)
    op(name, "empty", [tf.float32], features=np.zeros((0, 2)))
for name in ("ReluGrad", "Relu6Grad", "SoftplusGrad", "SoftsignGrad", "LeakyReluGrad"):
    op(name, gradients=A, features=WHOLE)
for name in ("EluGrad", "SeluGrad"):
    op(name, gradients=A, outputs=A[::-1])
for name in ("Softmax", "LogSoftmax"):
    op(name, logits=A)
    op(name, "large", [tf.float32], logits=WHOLE * 100)
    op(name, "cube", [tf.float32], logits=uniform(2, 3, 4))
    op(name, "empty", [tf.float32], logits=np.zeros((0, 4)))
    op(name, "odd", [tf.float32], gradient=False, logits=ODD)

# Sequences.
def lstm(given, name, dtype, used, peephole, clip):
    """Of times that don't count, TensorFlow sets two outputs only."""
    shapes = {"x": (4, 3, 5), "cs_prev": (3, 2), "h_prev": (3, 2), "w": (7, 8), "wci": (2,), "wcf": (2,), "wco": (2,), "b": (8,)}
    values = {key: given(np.sin(np.arange(np.prod(shape)) + len(key)).reshape(shape), dtype) for key, shape in shapes.items()}
    times = given(np.int64(used), tf.int64)
    made = getattr(tf.raw_ops, name)(seq_len_max=times, use_peephole=peephole, cell_clip=clip, **values)
    outputs = list(made) if used == 4 else [made.cs, made.h]
    if name == "BlockLSTMV2" and dtype == tf.float32:
        # TensorFlow's gradient of this op is that of the other one, whose gates are in another order.
        outputs += tf.raw_ops.BlockLSTMGradV2(
            seq_len_max=times, use_peephole=peephole, cs_grad=given(np.cos(np.arange(24.0)).reshape(4, 3, 2)), h_grad=given(np.cos(np.arange(1.0, 25.0)).reshape(4, 3, 2)), **values, **made._asdict())
    return outputs


for name in ("BlockLSTM", "BlockLSTMV2"):
    for peephole in (False, True):
        for used in (4, 2, 0):
            add(f"{name}/{peephole}_{used}", lambda given, name=name, peephole=peephole, used=used: lstm(given, name, tf.float32, used, peephole, 0.6), gradient=name == "BlockLSTM")
    add(f"{name}/half", lambda given, name=name: lstm(given, name, tf.float16, 4, True, -1.0), gradient=False)

# Losses.
op("L2Loss", t=A)
op("SoftmaxCrossEntropyWithLogits", features=A, labels=np.array([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0.5, 0.5]]))
op("SoftmaxCrossEntropyWithLogits", "broadcast", [tf.float32], features=A, labels=np.array([[0, 1, 0, 0]]))
for labels in (tf.int32, tf.int64):
    add(f"SparseSoftmaxCrossEntropyWithLogits/{labels.name}", lambda given, labels=labels: tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=given([0, 3, 1], labels), logits=given(A)))
op("SparseSoftmaxCrossEntropyWithLogits", features=A, labels=np.array([0, 3, 1]))
add("sigmoid_cross_entropy", lambda given: tf.nn.sigmoid_cross_entropy_with_logits(labels=given(np.abs(A)), logits=given(A)))

# Windows.
for padding in ("SAME", "VALID"):
    for stride in (1, 2):
        label = f"{padding}_{stride}"
        types = None if label == "SAME_2" else [tf.float32]
        strides, window = [1, stride, stride, 1], [1, 3, 2, 1]
        op("Conv2D", label, types, input=IMAGE, filter=FILTER, strides=strides, padding=padding, atol=2e-2 if types is None else 1e-4)
        op("DepthwiseConv2dNative", label, types, input=IMAGE, filter=FILTER[..., :2], strides=strides, padding=padding,
           atol=2e-2 if types is None else 1e-4)
        op("AvgPool", label, types, value=IMAGE, ksize=window, strides=strides, padding=padding)
        op("MaxPool", label, types, input=np.round(IMAGE * 100), ksize=window, strides=strides, padding=padding)
        op("MaxPool", f"negative_{label}", [tf.float32], input=IMAGE - 5, ksize=window, strides=strides, padding=padding)
        add(f"MaxPoolV2/{label}", lambda given, padding=padding, strides=strides: tf.raw_ops.MaxPoolV2(
            input=given(IMAGE), ksize=tf.constant([1, 3, 2, 1]), strides=tf.constant(strides), padding=padding))
        op("MaxPoolWithArgmax", label, [tf.float32], input=IMAGE, ksize=window, strides=strides, padding=padding)
        op("AvgPool3D", label, [tf.float32], input=VOLUME, ksize=[1, 2, 3, 2, 1], strides=[1, stride, stride, stride, 1], padding=padding)
        op("MaxPool3D", label, [tf.float32], input=VOLUME, ksize=[1, 2, 3, 2, 1], strides=[1, stride, stride, stride, 1], padding=padding)
        op("Conv3D", label, [tf.float32], input=VOLUME, filter=VOLUME_FILTER, strides=[1, stride, stride, stride, 1], padding=padding, atol=1e-4)
op("Conv2D", "dilated", [tf.float32], input=IMAGE, filter=FILTER, strides=[1, 1, 1, 1], padding="VALID", dilations=[1, 2, 2, 1], gradient=False, atol=1e-4)
op("Conv2D", "explicit", [tf.float32], input=IMAGE, filter=FILTER, strides=[1, 2, 1, 1], padding="EXPLICIT",
   explicit_paddings=[0, 0, 1, 2, 0, 1, 0, 0], atol=1e-4)
op("Conv2D", "one_by_one", [tf.float32], input=IMAGE, filter=FILTER[:1, :1], strides=[1, 1, 1, 1], padding="SAME", atol=1e-4)
op("Conv2D", "one_by_one_strided", [tf.float32], input=IMAGE, filter=FILTER[:1, :1], strides=[1, 2, 2, 1], padding="SAME", atol=1e-4)
op("Conv2D", "groups", [tf.float32], gradient=False, input=uniform(2, 6, 6, 4), filter=uniform(3, 3, 2, 6), strides=[1, 1, 1, 1], padding="SAME", atol=1e-4)
op("Conv2D", "empty", [tf.float32], input=NO_IMAGES, filter=FILTER, strides=[1, 1, 1, 1], padding="SAME")
op("Conv2D", "many_channels", [tf.float32], input=uniform(2, 9, 9, 32), filter=uniform(3, 3, 32, 48), strides=[1, 1, 1, 1], padding="SAME", atol=1e-3)
op("MaxPool", "empty", [tf.float32], gradient=False, input=NO_IMAGES, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
op("MaxPool", "explicit", [tf.float32], input=IMAGE, ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding="EXPLICIT", explicit_paddings=[0, 0, 1, 1, 1, 0, 0, 0])
op("MaxPool", "channels", [tf.float32], gradient=False, input=uniform(2, 3, 3, 4), ksize=[1, 1, 1, 2], strides=[1, 1, 1, 2], padding="VALID")
op("MaxPool", "nan", [tf.float32], gradient=False, input=np.where(IMAGE > 0.9, np.nan, IMAGE), ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID")
op("MaxPool", "ties", [tf.float32], input=np.zeros((1, 4, 4, 2)), ksize=[1, 2, 2, 1], strides=[1, 1, 1, 1], padding="VALID")
op("AvgPool", "empty", [tf.float32], gradient=False, value=NO_IMAGES, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
add("conv2d_transpose", lambda given: tf.nn.conv2d_transpose(given(IMAGE), given(FILTER.transpose(0, 1, 3, 2)), [2, 16, 14, 5], [1, 2, 2, 1], "SAME"), atol=1e-4)
add("separable_conv2d", lambda given: tf.nn.separable_conv2d(
    given(IMAGE), given(FILTER[..., :2]), given(uniform(1, 1, 6, 4)), [1, 1, 1, 1], "SAME"), atol=1e-4)
add("conv1d", lambda given: tf.nn.conv1d(given(IMAGE[:, 0]), given(FILTER[0]), 2, "SAME"), atol=1e-4)

# Biases and normalization.
op("BiasAdd", value=WHOLE, bias=WHOLE[0])
op("BiasAdd", "image", [tf.float32], value=IMAGE, bias=A[0, :3])
op("BiasAdd", "first", [tf.float32], value=IMAGE.transpose(0, 3, 1, 2), bias=A[0, :3], data_format="NCHW")
op("BiasAddV1", value=WHOLE, bias=WHOLE[0])
op("BiasAddGrad", out_backprop=WHOLE)
op("LRN", input=uniform(2, 3, 3, 9), depth_radius=2, bias=1.1, alpha=0.7, beta=0.6)
op("LRN", "wide", [tf.float32], input=uniform(1, 2, 2, 3), depth_radius=5)


def batch_norm(name, is_training, given, dtype=tf.float32, **more):
    channels = 3
    mean = np.zeros(0) if is_training else uniform(channels)
    variance = np.zeros(0) if is_training else np.abs(uniform(channels)) + 0.5
    made = getattr(tf.raw_ops, name)(
        x=given(IMAGE, dtype), scale=given(np.array([1.0, 2.0, 3.0])), offset=given(np.array([0.1, 0.2, 0.3])), mean=given(mean),
        variance=given(variance), is_training=is_training, epsilon=0.01, **more)
    # What comes after variance is for the gradient only.
    return list(made)[:3]


for name in ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"):
    for is_training in (True, False):
        add(f"{name}/{'training' if is_training else 'inference'}", lambda given, name=name, is_training=is_training: batch_norm(name, is_training, given)[:1],
            atol=1e-4)
        add(f"{name}/{'training' if is_training else 'inference'}_all", lambda given, name=name, is_training=is_training: batch_norm(name, is_training, given),
            gradient=False)
        if name != "FusedBatchNorm":
            add(f"{name}/half_{'training' if is_training else 'inference'}", lambda given, name=name, is_training=is_training: batch_norm(
                name, is_training, given, tf.float16), gradient=False)
add("batch_normalization", lambda given: tf.nn.batch_normalization(given(IMAGE), given(A[0, :3]), given(np.abs(A[1, :3])), given(A[2, :3]), given(A[0, 1:]), 0.01), atol=1e-4)

# The largest.
op("TopKV2", input=WHOLE, k=np.int32(2), sweep="T")
op("TopKV2", "all", [tf.float32], input=WHOLE, k=np.int32(4))
op("TopKV2", "none", [tf.float32], input=WHOLE, k=np.int32(0), gradient=False)
op("TopKV2", "ties", [tf.int32], input=np.array([1, 3, 3, 3, 2, 1, 3]), k=np.int32(3))
op("TopKV2", "cube", [tf.float32], input=uniform(2, 3, 40), k=np.int32(7))
add("InTopK", lambda given: [tf.nn.in_top_k(given(A), given([0, 3, 1]), 2), tf.nn.in_top_k(given(ODD), given([0, 2]), 2)])
add("InTopKV2", lambda given: tf.raw_ops.InTopKV2(predictions=given(A), targets=given([0, 3, 9]), k=given(np.int32(2))))
op("NthElement", input=WHOLE, n=np.int32(1))
op("NthElement", "reverse", [tf.float32], input=WHOLE, n=np.int32(1), reverse=True)

# Layouts.
op("DataFormatDimMap", x=np.array([0, 1, 2, 3, -1]))
op("DataFormatDimMap", "back", [tf.int32], x=np.array([[0, 1], [-2, 3]]), src_format="NCHW", dst_format="NHWC")
op("DataFormatVecPermute", x=np.array([7, 4, 9, 3]))
op("DataFormatVecPermute", "pairs", [tf.int32], x=np.array([[7, 4], [9, 3], [4, 5], [5, 1]]))
op("DataFormatVecPermute", "spatial", [tf.int32], x=np.array([7, 4]), src_format="NHWC", dst_format="NCHW")

# Sequences of labels; TensorFlow adds logarithms in single precision, whatever the type.
LOGITS = uniform(6, 3, 5) * 3
LABELS = {"labels_indices": np.array([[0, 0], [0, 1], [1, 0], [2, 0], [2, 1], [2, 2]]), "labels_values": np.array([1, 2, 0, 3, 3, 1])}
for flags in ({}, {"ctc_merge_repeated": False}, {"preprocess_collapse_repeated": True}, {"ignore_longer_outputs_than_inputs": True}):
    op("CTCLoss", "".join(flags), inputs=LOGITS, sequence_length=np.array([6, 5, 6]), **LABELS, **flags, rtol=1e-4)
for merge_repeated in (False, True):
    op("CTCGreedyDecoder", f"merge_{merge_repeated}", inputs=LOGITS, sequence_length=np.array([6, 5, 0]), merge_repeated=merge_repeated)
    for width in (2, 7, 100):
        op("CTCBeamSearchDecoder", f"merge_{merge_repeated}_{width}", inputs=LOGITS, sequence_length=np.array([6, 5, 1]), beam_width=width,
           top_paths=2, merge_repeated=merge_repeated, rtol=1e-6)

# What is told to people.
add("CheckNumerics", lambda given: tf.check_numerics(given(A), "m"))
add("Print", lambda given: tf.raw_ops.Print(input=given(A), data=[given(A)], message="printed"))
add("ScalarSummary", lambda given: [tf.summary.scalar("loss", given(np.float32(1.5))), tf.raw_ops.ScalarSummary(tags=["a", "b"], values=given([1.0, 2.0]))], gradient=False)
add("HistogramSummary", lambda given: [tf.summary.histogram("h", given(A)), tf.summary.histogram("i", given([1, 2, 3]))], gradient=False)
add("MergeSummary", lambda given: tf.summary.merge([tf.summary.scalar("p", given(np.float32(1.5))), tf.summary.scalar("q", given(np.float32(2.5)))]), gradient=False)
add("AudioSummaryV2", lambda given: tf.summary.audio("sound", given(uniform(2, 30, 1)), 8000.0), gradient=False)
add("TensorSummaryV2", lambda given: tf.raw_ops.TensorSummaryV2(tag="t", tensor=given(A), serialized_summary_metadata=""), gradient=False)
add("AsString", lambda given: tf.as_string(given(A), precision=3), gradient=False)


def cell_inputs(random=np.random.RandomState(31), batch=2, inputs=3, cells=4):
    shapes = {"x": (batch, inputs), "cs_prev": (batch, cells), "h_prev": (batch, cells), "w": (inputs + cells, 4 * cells), "wci": (cells,),
              "wcf": (cells,), "wco": (cells,), "b": (4 * cells,)}
    return {key: random.uniform(-1, 1, shape) for key, shape in shapes.items()}


def lstm_cell(given, dtype, values, peephole, clip):
    inputs = {key: given(value, dtype) for key, value in values.items()}
    cell = tf.raw_ops.LSTMBlockCell(**inputs, use_peephole=peephole, cell_clip=clip)
    grads = [given(np.cos(np.arange(values["cs_prev"].size)).reshape(values["cs_prev"].shape), dtype) for _ in range(2)]
    return list(cell) + list(tf.raw_ops.LSTMBlockCellGrad(
        **inputs, **{key: getattr(cell, key) for key in ("i", "cs", "f", "o", "ci", "co")}, cs_grad=grads[0], h_grad=grads[1], use_peephole=peephole))


for dtype in (tf.float32, tf.float16):
    for peephole in (False, True):
        for clip in (0.0, 0.3):
            add(f"LSTMBlockCell/{peephole}_{clip}_{dtype.name}", lambda given, dtype=dtype, peephole=peephole, clip=clip: lstm_cell(
                given, dtype, cell_inputs(), peephole, clip), gradient=False, rtol=1e-2 if dtype == tf.float16 else 1e-4, atol=1e-2 if dtype == tf.float16 else 1e-5)


def gru_cell(given, batch):
    random = np.random.RandomState(37)
    shapes = {"x": (batch, 3), "h_prev": (batch, 4), "w_ru": (7, 8), "w_c": (7, 4), "b_ru": (8,), "b_c": (4,)}
    inputs = {key: given(random.uniform(-1, 1, shape)) for key, shape in shapes.items()}
    cell = tf.raw_ops.GRUBlockCell(**inputs)
    d_h = given(np.cos(np.arange(4 * batch)).reshape(batch, 4))
    return list(cell) + list(tf.raw_ops.GRUBlockCellGrad(**inputs, r=cell.r, u=cell.u, c=cell.c, d_h=d_h))


for batch in (0, 1, 3):
    add(f"GRUBlockCell/{batch}", lambda given, batch=batch: gru_cell(given, batch), gradient=False, rtol=1e-4, atol=1e-5)


results, test_op, test_at_a_lower_level, test_beside_onednn = TABLE.tests()


def test_image_summaries_show_the_same_pixels(op_server):
    """The two compress differently, so the pictures are compared, not the bytes."""
    for images in (IMAGE, IMAGE[..., :1] + 3, np.where(IMAGE > 0.8, np.nan, IMAGE), (IMAGE * 100 + 100).astype(np.uint8)):
        shown = []
        with tf.Graph().as_default():
            given = side_by_side.Given()
            summary = tf.summary.image("picture", given(images), max_outputs=2)
            for where in ("", op_server.target):
                with tf.Session(where) as session:
                    values = tf.Summary.FromString(session.run(summary, given.feed)).value
                shown.append([(value.tag, value.image.height, value.image.width, value.image.colorspace,
                               decoded(value.image.encoded_image_string)) for value in values])
        assert shown[0] == shown[1]


def decoded(png):
    with tf.Graph().as_default(), tf.Session() as session:
        return session.run(tf.image.decode_png(png)).tolist()


FAILURES = {
    "assert": lambda given: tf.Assert(given(np.array(False)), [given(A), "why"]),
    "not_a_number": lambda given: tf.check_numerics(given(ODD), "odd"),
    "conv_channels": lambda given: tf.nn.conv2d(given(IMAGE, shape=[None] * 4), given(FILTER[:, :, :2], shape=[None] * 4), [1, 1, 1, 1], "SAME"),
    "conv_rank": lambda given: tf.raw_ops.Conv2D(input=given(A, shape=tf.TensorShape(None)), filter=given(FILTER), strides=[1, 1, 1, 1], padding="SAME"),
    "pool_rank": lambda given: tf.raw_ops.MaxPool(input=given(A, shape=tf.TensorShape(None)), ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME"),
    "bias_length": lambda given: tf.nn.bias_add(given(A, shape=[None, None]), given(A[0, :2], shape=[None])),
    "label_range": lambda given: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=given([0, 9, 1]), logits=given(A)),
    "label_count": lambda given: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=given([0, 1], shape=[None]), logits=given(A, shape=[None, None])),
    "logits_shape": lambda given: tf.raw_ops.SoftmaxCrossEntropyWithLogits(features=given(A, shape=[None, None]), labels=given(A[:, :3], shape=[None, None])),
    "top_k": lambda given: tf.nn.top_k(given(A, shape=[None, None]), given(np.int32(9))).values,
    "top_k_negative": lambda given: tf.nn.top_k(given(A, shape=[None, None]), given(np.int32(-1))).values,
    "in_top_k": lambda given: tf.nn.in_top_k(given(A, shape=[None, None]), given([0], shape=[None]), 2),
    "scalar_summary": lambda given: tf.raw_ops.ScalarSummary(tags=["a", "b"], values=given(A, shape=tf.TensorShape(None))),
    "histogram_summary": lambda given: tf.summary.histogram("h", given(ODD)),
    "merge_summary": lambda given: tf.raw_ops.MergeSummary(inputs=[given(np.array(b"\xff\xff", object))]),
    "ctc_length": lambda given: tf.raw_ops.CTCLoss(
        inputs=given(LOGITS), labels_indices=given(LABELS["labels_indices"], tf.int64), labels_values=given(LABELS["labels_values"]),
        sequence_length=given([6, 5, 2]))[0],
    "ctc_paths": lambda given: tf.raw_ops.CTCBeamSearchDecoder(inputs=given(LOGITS), sequence_length=given([6, 5, 0]), beam_width=9, top_paths=3)[3],
    "batch_norm_scale": lambda given: tf.raw_ops.FusedBatchNormV3(
        x=given(IMAGE, shape=[None] * 4), scale=given(A[0], shape=[None]), offset=given(A[0], shape=[None]), mean=given(np.zeros(0), shape=[None]),
        variance=given(np.zeros(0), shape=[None]))[0],
}


@pytest.mark.parametrize("name", FAILURES)
def test_failure(op_server, name):
    side_by_side.check_failure(f"test_nn {name}", FAILURES[name], op_server.target)
