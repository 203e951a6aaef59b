"""Cases of test_errors.py: ops that compute."""

import struct
import zlib

import numpy as np
import tensorflow.compat.v1 as tf

import picture_files
from error_table import BIG, HUGE, INVALID, TOO_LARGE, R, i64, ours, same, zeros

ONES = [1, 1, 1, 1]
IMAGE, FILTER = zeros(2, 5, 5, 3), zeros(3, 3, 3, 4)

# Convolutions.
for label, image, kernel in (
        ("depth", IMAGE, zeros(3, 3, 0, 4)), ("height", IMAGE, zeros(0, 3, 3, 4)), ("out", IMAGE, zeros(3, 3, 3, 0)), ("nothing", zeros(0), zeros(0)),
        ("no_channels", zeros(2, 5, 5, 0), zeros(3, 3, 0, 4)), ("rank", zeros(5), FILTER), ("filter_rank", IMAGE, zeros(3)),
        ("channels", IMAGE, zeros(3, 3, 2, 4)), ("larger", zeros(2, 2, 2, 3), FILTER)):
    same(f"Conv2D/{label}", lambda g, image=image, kernel=kernel: R.Conv2D(input=g(image), filter=g(kernel), strides=ONES, padding="VALID"))
    same(f"DepthwiseConv2dNative/{label}", lambda g, image=image, kernel=kernel: R.DepthwiseConv2dNative(
        input=g(image), filter=g(kernel), strides=ONES, padding="VALID"))
BACK = zeros(2, 3, 3, 4)
SIZES = {
    "fit": [2, 5, 5, 3], "wrong": [2, 9, 9, 3], "negative": [2, -5, 5, 3], "short": [2, 5, 5], "overflowing": [BIG, BIG, BIG, BIG], "zero": [0, 0, 0, 0],
    "batch": [1, 5, 5, 3], "depth": [2, 5, 5, 7],
}
for label, sizes in SIZES.items():
    same(f"Conv2DBackpropInput/{label}", lambda g, sizes=sizes: R.Conv2DBackpropInput(
        input_sizes=g(sizes), filter=g(FILTER), out_backprop=g(BACK), strides=ONES, padding="VALID"))
    same(f"DepthwiseConv2dNativeBackpropInput/{label}", lambda g, sizes=sizes: R.DepthwiseConv2dNativeBackpropInput(
        input_sizes=g(sizes), filter=g(zeros(3, 3, 3, 2)), out_backprop=g(zeros(2, 3, 3, 6)), strides=ONES, padding="VALID"))
FILTER_SIZES = {
    "fit": [3, 3, 3, 4], "wrong": [2, 2, 3, 4], "negative": [3, -3, 3, 4], "short": [3, 3, 3], "overflowing": [BIG, BIG, BIG, BIG], "zero": [0, 0, 0, 0],
    "depth": [3, 3, 5, 4], "out": [3, 3, 3, 9],
}
for label, sizes in FILTER_SIZES.items():
    same(f"Conv2DBackpropFilter/{label}", lambda g, sizes=sizes: R.Conv2DBackpropFilter(
        input=g(IMAGE), filter_sizes=g(sizes), out_backprop=g(BACK), strides=ONES, padding="VALID"))
    same(f"DepthwiseConv2dNativeBackpropFilter/{label}", lambda g, sizes=sizes: R.DepthwiseConv2dNativeBackpropFilter(
        input=g(IMAGE), filter_sizes=g(sizes), out_backprop=g(zeros(2, 3, 3, 12)), strides=ONES, padding="VALID"))
same("Conv2DBackpropInput/empty_filter", lambda g: R.Conv2DBackpropInput(
    input_sizes=g([2, 5, 5, 0]), filter=g(zeros(3, 3, 0, 4)), out_backprop=g(BACK), strides=ONES, padding="VALID"))
same("Conv2DBackpropInput/empty_gradient", lambda g: R.Conv2DBackpropInput(
    input_sizes=g([2, 5, 5, 3]), filter=g(FILTER), out_backprop=g(zeros(0)), strides=ONES, padding="VALID"))
same("Conv2DBackpropFilter/empty_input", lambda g: R.Conv2DBackpropFilter(
    input=g(zeros(0, 5, 5, 3)), filter_sizes=g([3, 3, 3, 4]), out_backprop=g(zeros(0, 3, 3, 4)), strides=ONES, padding="VALID"))
same("Conv2DBackpropFilter/gradient", lambda g: R.Conv2DBackpropFilter(
    input=g(IMAGE), filter_sizes=g([3, 3, 3, 4]), out_backprop=g(zeros(2, 9, 9, 4)), strides=ONES, padding="VALID"))
VOLUME, FIVE = zeros(1, 4, 4, 4, 2), [1, 1, 1, 1, 1]
same("Conv3D/empty_filter", lambda g: R.Conv3D(input=g(VOLUME), filter=g(zeros(2, 2, 2, 0, 3)), strides=FIVE, padding="SAME"))
same("Conv3D/rank", lambda g: R.Conv3D(input=g(IMAGE), filter=g(FILTER), strides=FIVE, padding="SAME"))
for label, sizes in {"negative": [1, -4, 4, 4, 2], "wrong": [1, 9, 4, 4, 2], "overflowing": [BIG] * 5, "short": [1, 2]}.items():
    same(f"Conv3DBackpropInputV2/{label}", lambda g, sizes=sizes: R.Conv3DBackpropInputV2(
        input_sizes=g(sizes), filter=g(zeros(2, 2, 2, 2, 3)), out_backprop=g(zeros(1, 4, 4, 4, 3)), strides=FIVE, padding="SAME"))
    same(f"Conv3DBackpropFilterV2/{label}", lambda g, sizes=sizes: R.Conv3DBackpropFilterV2(
        input=g(VOLUME), filter_sizes=g(sizes), out_backprop=g(zeros(1, 4, 4, 4, 3)), strides=FIVE, padding="SAME"))

# Pools.
WINDOW, STRIDES = [1, 2, 2, 1], [1, 2, 2, 1]
for label, sizes in {"negative": [2, -4, 4, 3], "wrong": [2, 9, 9, 3], "short": [2, 4], "overflowing": [BIG] * 4, "zero": [0, 0, 0, 0], "batch": [9, 4, 4, 3]}.items():
    same(f"AvgPoolGrad/{label}", lambda g, sizes=sizes: R.AvgPoolGrad(
        orig_input_shape=g(sizes), grad=g(zeros(2, 2, 2, 3)), ksize=WINDOW, strides=STRIDES, padding="VALID"))
same("AvgPoolGrad/empty_gradient", lambda g: R.AvgPoolGrad(orig_input_shape=g([2, 4, 4, 3]), grad=g(zeros(0)), ksize=WINDOW, strides=STRIDES, padding="VALID"))
for label, sizes in {"negative": [1, -4, 4, 4, 2], "wrong": [1, 9, 9, 4, 2], "short": [2, 4], "overflowing": [BIG] * 5}.items():
    same(f"AvgPool3DGrad/{label}", lambda g, sizes=sizes: R.AvgPool3DGrad(
        orig_input_shape=g(sizes), grad=g(zeros(1, 2, 2, 2, 2)), ksize=[1, 2, 2, 2, 1], strides=[1, 2, 2, 2, 1], padding="VALID"))
POOL_GRADS = {
    "gradient": (zeros(2, 4, 4, 3), zeros(2, 2, 2, 3), zeros(2, 9, 9, 3)), "output": (zeros(2, 4, 4, 3), zeros(2, 1, 1, 3), zeros(2, 2, 2, 3)),
    "empty": (zeros(0), zeros(0), zeros(0)), "empty_gradient": (zeros(2, 4, 4, 3), zeros(2, 2, 2, 3), zeros(0, 2, 2, 3)),
    "rank": (zeros(4, 4), zeros(2, 2, 2, 3), zeros(2, 2, 2, 3)), "no_channels": (zeros(2, 4, 4, 0), zeros(2, 2, 2, 0), zeros(2, 2, 2, 3)),
}
for label, (image, pooled, gradient) in POOL_GRADS.items():
    same(f"MaxPoolGrad/{label}", lambda g, image=image, pooled=pooled, gradient=gradient: R.MaxPoolGrad(
        orig_input=g(image), orig_output=g(pooled), grad=g(gradient), ksize=WINDOW, strides=STRIDES, padding="VALID"))
    same(f"MaxPoolGradV2/{label}", lambda g, image=image, pooled=pooled, gradient=gradient: R.MaxPoolGradV2(
        orig_input=g(image), orig_output=g(pooled), grad=g(gradient), ksize=g(WINDOW), strides=g(STRIDES), padding="VALID"))
    same(f"MaxPoolGradGrad/{label}", lambda g, image=image, pooled=pooled, gradient=gradient: R.MaxPoolGradGrad(
        orig_input=g(image), orig_output=g(pooled), grad=g(gradient), ksize=WINDOW, strides=STRIDES, padding="VALID"))
same("MaxPoolV2/windows", lambda g: R.MaxPoolV2(input=g(IMAGE), ksize=g([1, 0, 2, 1]), strides=g(STRIDES), padding="VALID"))
same("MaxPoolV2/strides", lambda g: R.MaxPoolV2(input=g(IMAGE), ksize=g(WINDOW), strides=g([1, 0, -1, 1]), padding="VALID"))
same("MaxPoolV2/short", lambda g: R.MaxPoolV2(input=g(IMAGE), ksize=g([2]), strides=g([2]), padding="VALID"))
same("MaxPool/larger", lambda g: R.MaxPool(input=g(zeros(1, 1, 1, 1)), ksize=[1, 5, 5, 1], strides=ONES, padding="VALID"))
for label, indices in {"beyond": i64(10**6), "negative": i64(-1)}.items():
    ours(f"MaxPoolGradWithArgmax/{label}", INVALID, lambda g, indices=indices: R.MaxPoolGradWithArgmax(
        input=g(zeros(1, 4, 4, 1)), grad=g(zeros(1, 2, 2, 1)), argmax=g(np.full((1, 2, 2, 1), indices[0]), tf.int64), ksize=WINDOW, strides=STRIDES, padding="VALID"))
same("MaxPoolGradWithArgmax/short", lambda g: R.MaxPoolGradWithArgmax(
    input=g(zeros(1, 4, 4, 1)), grad=g(zeros(1, 2, 2, 1)), argmax=g(i64(), tf.int64), ksize=WINDOW, strides=STRIDES, padding="VALID"))
same("MaxPool3DGrad/gradient", lambda g: R.MaxPool3DGrad(
    orig_input=g(VOLUME), orig_output=g(zeros(1, 2, 2, 2, 2)), grad=g(zeros(1, 9, 9, 9, 2)), ksize=[1, 2, 2, 2, 1], strides=[1, 2, 2, 2, 1], padding="VALID"))
same("MaxPool3DGrad/empty", lambda g: R.MaxPool3DGrad(
    orig_input=g(zeros(0, 0, 0, 0, 0)), orig_output=g(zeros(1, 2, 2, 2, 2)), grad=g(zeros(1, 2, 2, 2, 2)), ksize=[1, 2, 2, 2, 1], strides=[1, 2, 2, 2, 1], padding="VALID"))
same("MaxPool3DGradGrad/gradient", lambda g: R.MaxPool3DGradGrad(
    orig_input=g(VOLUME), orig_output=g(zeros(1, 2, 2, 2, 2)), grad=g(zeros(1, 9, 9, 9, 2)), ksize=[1, 2, 2, 2, 1], strides=[1, 2, 2, 2, 1], padding="VALID"))

# Normalization, biases, activations.
for label, lengths in {"scale": (1, 3, 3, 3), "offset": (3, 1, 3, 3), "mean": (3, 3, 1, 3), "variance": (3, 3, 3, 1), "none": (0, 0, 0, 0)}.items():
    for op in ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"):
        same(f"{op}/{label}", lambda g, op=op, lengths=lengths: getattr(R, op)(
            x=g(IMAGE), scale=g(zeros(lengths[0])), offset=g(zeros(lengths[1])), mean=g(zeros(lengths[2])), variance=g(zeros(lengths[3])), is_training=False)[0])
    same(f"FusedBatchNormGrad/{label}", lambda g, lengths=lengths: R.FusedBatchNormGrad(
        y_backprop=g(IMAGE), x=g(IMAGE), scale=g(zeros(lengths[0])), reserve_space_1=g(zeros(lengths[2])), reserve_space_2=g(zeros(lengths[3])), is_training=True)[0])
same("FusedBatchNormGrad/gradient", lambda g: R.FusedBatchNormGrad(
    y_backprop=g(zeros(1, 1, 1, 3)), x=g(IMAGE), scale=g(zeros(3)), reserve_space_1=g(zeros(3)), reserve_space_2=g(zeros(3)))[0])
same("BiasAdd/scalar", lambda g: R.BiasAdd(value=g(np.float32(1)), bias=g(zeros(1))))
same("BiasAdd/matrix", lambda g: R.BiasAdd(value=g(zeros(2, 2)), bias=g(zeros(2, 2))))
same("BiasAddGrad/scalar", lambda g: R.BiasAddGrad(out_backprop=g(np.float32(1))))
same("BiasAddGrad/first", lambda g: R.BiasAddGrad(out_backprop=g(zeros(2)), data_format="NCHW"))
same("LRN/rank", lambda g: R.LRN(input=g(zeros(3))))
same("LRNGrad/shapes", lambda g: R.LRNGrad(input_grads=g(zeros(1, 2, 2, 3)), input_image=g(zeros(1, 2, 2, 4)), output_image=g(zeros(1, 2, 2, 3))))
for op in ("ReluGrad", "Relu6Grad", "SoftplusGrad", "SoftsignGrad", "LeakyReluGrad"):
    same(f"{op}/shapes", lambda g, op=op: getattr(R, op)(gradients=g(zeros(3)), features=g(zeros(4))))
for op in ("EluGrad", "SeluGrad"):
    same(f"{op}/shapes", lambda g, op=op: getattr(R, op)(gradients=g(zeros(3)), outputs=g(zeros(4))))
same("Softmax/scalar", lambda g: R.Softmax(logits=g(np.float32(1))))
same("SoftmaxCrossEntropyWithLogits/rank", lambda g: R.SoftmaxCrossEntropyWithLogits(features=g(zeros(2)), labels=g(zeros(2)))[0])
same("SparseSoftmaxCrossEntropyWithLogits/no_classes", lambda g: R.SparseSoftmaxCrossEntropyWithLogits(features=g(zeros(2, 0)), labels=g([0, 0]))[0])
same("TopKV2/scalar", lambda g: R.TopKV2(input=g(np.float32(1)), k=g(np.int32(1)))[0])
same("TopKV2/k_vector", lambda g: R.TopKV2(input=g(zeros(3)), k=g([1, 1]))[0])
same("NthElement/beyond", lambda g: R.NthElement(input=g(zeros(3)), n=g(np.int32(3))))
same("NthElement/negative", lambda g: R.NthElement(input=g(zeros(3)), n=g(np.int32(-1))))
same("NthElement/scalar", lambda g: R.NthElement(input=g(np.float32(1)), n=g(np.int32(0))))
same("InTopKV2/rank", lambda g: R.InTopKV2(predictions=g(zeros(3)), targets=g([0]), k=g(np.int32(1))))
same("DataFormatDimMap/range", lambda g: R.DataFormatDimMap(x=g([9])))
same("DataFormatVecPermute/length", lambda g: R.DataFormatVecPermute(x=g([1, 2, 3])))

# Sequences of labels.
for label, inputs, indices, values, lengths in (
        ("negative_length", zeros(2, 1, 3), [[0, 0]], [0], [-1]), ("long", zeros(2, 1, 3), [[0, 0]], [0], [9]),
        ("label", zeros(2, 1, 3), [[0, 0]], [7], [2]), ("negative_label", zeros(2, 1, 3), [[0, 0]], [-1], [2]), ("row", zeros(2, 1, 3), [[5, 0]], [0], [2]),
        ("no_steps", zeros(0, 1, 3), [[0, 0]], [0], [0]), ("lengths", zeros(2, 1, 3), [[0, 0]], [0], [2, 2]), ("no_batch", zeros(2, 0, 3), np.zeros((0, 2)), [], []),
        ("values", zeros(2, 1, 3), [[0, 0]], [0, 1], [2]), ("rank", zeros(2, 3), [[0, 0]], [0], [2]), ("indices_rank", zeros(2, 1, 3), [0], [0], [2]),
        ("no_labels", zeros(2, 1, 3), np.zeros((0, 2)), [], [2]), ("negative_row", zeros(2, 1, 3), [[-1, 0]], [0], [2])):
    same(f"CTCLoss/{label}", lambda g, inputs=inputs, indices=indices, values=values, lengths=lengths: R.CTCLoss(
        inputs=g(inputs), labels_indices=g(indices, tf.int64), labels_values=g(values, tf.int32), sequence_length=g(lengths, tf.int32))[0])
ours("CTCLoss/no_classes", INVALID, lambda g: R.CTCLoss(
    inputs=g(zeros(2, 1, 0)), labels_indices=g([[0, 0]], tf.int64), labels_values=g([0]), sequence_length=g([2]))[0])
for label, inputs, lengths in (
        ("no_classes", zeros(2, 1, 0), [2]), ("negative", zeros(2, 1, 3), [-1]), ("long", zeros(2, 1, 3), [9]), ("lengths", zeros(2, 1, 3), [2, 2]),
        ("rank", zeros(2), [2]), ("no_steps", zeros(0, 1, 3), [0])):
    same(f"CTCGreedyDecoder/{label}", lambda g, inputs=inputs, lengths=lengths: R.CTCGreedyDecoder(inputs=g(inputs), sequence_length=g(lengths))[3])
    same(f"CTCBeamSearchDecoder/{label}", lambda g, inputs=inputs, lengths=lengths: R.CTCBeamSearchDecoder(
        inputs=g(inputs), sequence_length=g(lengths), beam_width=2, top_paths=1)[3])
EDIT = {
    "empty_truth": ([[0, 0]], [1], [1, 1], np.zeros((0, 2)), [], [1, 0]), "empty_shape": ([[0, 0]], [1], [1, 1], np.zeros((0, 0)), [], []),
    "index": ([[0, 0]], [1], [1, 1], [[7, 0]], [1], [1, 1]), "negative": ([[0, -1]], [1], [1, 1], [[0, -1]], [1], [1, 1]),
    "values": ([[0, 0]], [1, 2], [1, 1], [[0, 0]], [1], [1, 1]), "ranks": ([[0, 0]], [1], [1, 1], [[0]], [1], [1]),
    "overflowing": ([[0, 0]], [1], [HUGE, 8], [[0, 0]], [1], [HUGE, 8]), "overflowing_cube": ([[0, 0, 0]], [1], [2**40, 2**40, 8], [[0, 0, 0]], [1], [2**40, 2**40, 8]),
    "negative_shape": ([[0, 0]], [1], [-1, 8], [[0, 0]], [1], [-1, 8]),
}
for label, (hi, hv, hs, ti, tv, ts) in EDIT.items():
    same(f"EditDistance/{label}", lambda g, hi=hi, hv=hv, hs=hs, ti=ti, tv=tv, ts=ts: R.EditDistance(
        hypothesis_indices=g(hi, tf.int64), hypothesis_values=g(hv, tf.int64), hypothesis_shape=g(hs, tf.int64), truth_indices=g(ti, tf.int64),
        truth_values=g(tv, tf.int64), truth_shape=g(ts, tf.int64), normalize=True))

# Arrays.
ours("Reverse/no_rows", (None,), lambda g: R.Reverse(tensor=g(zeros(0, 3)), dims=g(np.array([True, False]))))
same("Reverse/length", lambda g: R.Reverse(tensor=g(zeros(2, 3)), dims=g(np.array([True]))))
same("Reverse/scalar", lambda g: R.Reverse(tensor=g(zeros(2, 3)), dims=g(np.array(True))))
same("ReverseV2/empty_axis", lambda g: R.ReverseV2(tensor=g(zeros(0, 3)), axis=g([0])))
same("ReverseV2/twice", lambda g: R.ReverseV2(tensor=g(zeros(2, 3)), axis=g([0, -2])))
same("ReverseV2/matrix", lambda g: R.ReverseV2(tensor=g(zeros(2, 3)), axis=g([[0]])))
for label, lengths in {"long": [9, 1], "negative": [-1, 1], "count": [1]}.items():
    same(f"ReverseSequence/{label}", lambda g, lengths=lengths: R.ReverseSequence(input=g(zeros(2, 3)), seq_lengths=g(lengths), seq_dim=1))
same("ReverseSequence/rank", lambda g: R.ReverseSequence(input=g(zeros(2)), seq_lengths=g([1, 1]), seq_dim=3))
for op in ("Gather", "GatherV2"):
    axis = (lambda g: {"axis": g(np.int32(0))}) if op == "GatherV2" else (lambda g: {})
    same(f"{op}/negative", lambda g, op=op, axis=axis: getattr(R, op)(params=g(zeros(3)), indices=g([-1]), **axis(g)))
    same(f"{op}/scalar", lambda g, op=op, axis=axis: getattr(R, op)(params=g(np.float32(1)), indices=g([0]), **axis(g)))
    same(f"{op}/from_nothing", lambda g, op=op, axis=axis: getattr(R, op)(params=g(zeros(0, 2)), indices=g([0]), **axis(g)))
same("GatherV2/batch_dims", lambda g: R.GatherV2(params=g(zeros(3, 4)), indices=g([0]), axis=g(np.int32(1)), batch_dims=2))
same("GatherV2/batch_dims_negative", lambda g: R.GatherV2(params=g(zeros(3, 4)), indices=g([0]), axis=g(np.int32(1)), batch_dims=-9))
same("GatherV2/batch_shapes", lambda g: R.GatherV2(params=g(zeros(3, 4)), indices=g([[0], [0]]), axis=g(np.int32(1)), batch_dims=1))
same("GatherV2/axis_vector", lambda g: R.GatherV2(params=g(zeros(3, 4)), indices=g([0]), axis=g([0, 1])))
same("GatherNd/depth", lambda g: R.GatherNd(params=g(zeros(3)), indices=g([[0, 0]])))
same("GatherNd/scalar", lambda g: R.GatherNd(params=g(np.float32(1)), indices=g([[0]])))
same("GatherNd/from_nothing", lambda g: R.GatherNd(params=g(zeros(0, 2)), indices=g([[0]])))
for label, indices, updates, shape in (
        ("beyond", [[9]], zeros(1), [3]), ("negative", [[-1]], zeros(1), [3]), ("updates", [[0]], zeros(2), [3]), ("negative_shape", [[0]], zeros(1), [-3]),
        ("huge", [[0]], zeros(1), [BIG]), ("into_nothing", [[0]], zeros(1), [0]), ("depth", [[0, 0]], zeros(1), [3]), ("rank", [[0]], zeros(1, 2), [3])):
    if label != "huge":
        same(f"ScatterNd/{label}", lambda g, indices=indices, updates=updates, shape=shape: R.ScatterNd(indices=g(indices), updates=g(updates), shape=g(shape)))
for op in ("TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub", "TensorScatterMax", "TensorScatterMin"):
    for label, indices, updates in (("beyond", [[9]], zeros(1)), ("updates", [[0]], zeros(2)), ("depth", [[0, 0]], zeros(1)), ("rank", [0], zeros(1))):
        same(f"{op}/{label}", lambda g, op=op, indices=indices, updates=updates: getattr(R, op)(tensor=g(zeros(3)), indices=g(indices), updates=g(updates)))
for label, begin, end, strides in (
        ("stride", [0], [1], [0]), ("lengths", [0, 0], [1], [1]), ("long", [0, 0, 0], [1, 1, 1], [1, 1, 1]), ("scalar", 0, 1, 1)):
    same(f"StridedSlice/{label}", lambda g, begin=begin, end=end, strides=strides: R.StridedSlice(
        input=g(zeros(3, 4)), begin=g(begin, tf.int32), end=g(end, tf.int32), strides=g(strides, tf.int32)))
    same(f"StridedSliceGrad/{label}", lambda g, begin=begin, end=end, strides=strides: R.StridedSliceGrad(
        shape=g([3, 4]), begin=g(begin, tf.int32), end=g(end, tf.int32), strides=g(strides, tf.int32), dy=g(zeros(1, 4))))
same("StridedSlice/shrink", lambda g: R.StridedSlice(input=g(zeros(3)), begin=g([7]), end=g([8]), strides=g([1]), shrink_axis_mask=1))
same("StridedSliceGrad/gradient", lambda g: R.StridedSliceGrad(shape=g([3, 4]), begin=g([0]), end=g([1]), strides=g([1]), dy=g(zeros(2, 4))))
same("StridedSliceGrad/negative", lambda g: R.StridedSliceGrad(shape=g([-3, 4]), begin=g([0]), end=g([1]), strides=g([1]), dy=g(zeros(1, 4))))
ours("StridedSliceGrad/huge", TOO_LARGE, lambda g: R.StridedSliceGrad(
    shape=g(i64(HUGE, 4), tf.int64), begin=g([0], tf.int64), end=g([1], tf.int64), strides=g([1], tf.int64), dy=g(zeros(1, 4))))
for label, begin, size in (("negative", [0, 0], [-2, 1]), ("lengths", [0], [1, 1]), ("begin", [-1, 0], [1, 1]), ("overflowing", [1, 1], [BIG, BIG]), ("matrix", [[0, 0]], [[1, 1]])):
    same(f"Slice/{label}", lambda g, begin=begin, size=size: R.Slice(input=g(zeros(3, 4)), begin=g(begin), size=g(size)))
for label, sizes in {"sum": [1, 1], "negative": [-1, -1], "too_large": [9, -1], "count": [3], "below": [-5, 8]}.items():
    same(f"SplitV/{label}", lambda g, sizes=sizes: R.SplitV(value=g(zeros(3, 4)), size_splits=g(sizes), axis=g(np.int32(0)), num_split=2)[0])
same("SplitV/axis", lambda g: R.SplitV(value=g(zeros(3, 4)), size_splits=g([1, 2]), axis=g(np.int32(4)), num_split=2)[0])
same("SplitV/scalar", lambda g: R.SplitV(value=g(np.float32(1)), size_splits=g([1, 2]), axis=g(np.int32(0)), num_split=2)[0])
same("Split/scalar", lambda g: R.Split(axis=g(np.int32(0)), value=g(np.float32(1)), num_split=1)[0])
same("Split/axis", lambda g: R.Split(axis=g(np.int32(-5)), value=g(zeros(3)), num_split=1)[0])
same("Split/axis_vector", lambda g: R.Split(axis=g([0, 1]), value=g(zeros(3)), num_split=1)[0])
same("Unpack/count", lambda g: R.Unpack(value=g(zeros(3)), num=2)[0])
same("Unpack/scalar", lambda g: R.Unpack(value=g(np.float32(1)), num=1)[0])
same("Unpack/axis", lambda g: R.Unpack(value=g(zeros(3)), num=3, axis=2)[0])
same("Pack/shapes", lambda g: R.Pack(values=[g(zeros(3)), g(zeros(2))]))
same("Pack/axis", lambda g: R.Pack(values=[g(zeros(3))], axis=5))
for op, name in (("ConcatV2", "axis"), ("Concat", "concat_dim")):
    same(f"{op}/ranks", lambda g, op=op, name=name: getattr(R, op)(values=[g(zeros(3, 1)), g(zeros(3))], **{name: g(np.int32(0))}))
    same(f"{op}/scalars", lambda g, op=op, name=name: getattr(R, op)(values=[g(np.float32(1)), g(np.float32(1))], **{name: g(np.int32(0))}))
    same(f"{op}/negative", lambda g, op=op, name=name: getattr(R, op)(values=[g(zeros(3)), g(zeros(3))], **{name: g(np.int32(-2))}))
    same(f"{op}/axis_vector", lambda g, op=op, name=name: getattr(R, op)(values=[g(zeros(3)), g(zeros(3))], **{name: g([0, 0])}))
same("ConcatOffset/axis", lambda g: R.ConcatOffset(concat_dim=g(np.int32(9)), shape=[g([2, 3]), g([2, 3])])[0])
same("ConcatOffset/shapes", lambda g: R.ConcatOffset(concat_dim=g(np.int32(0)), shape=[g([2, 3]), g([2, 4])])[0])
same("ConcatOffset/ranks", lambda g: R.ConcatOffset(concat_dim=g(np.int32(0)), shape=[g([2, 3]), g([2])])[0])
same("Tile/length", lambda g: R.Tile(input=g(zeros(3)), multiples=g([1, 1])))
same("Tile/scalar", lambda g: R.Tile(input=g(zeros(3)), multiples=g(np.int32(1))))
ours("Tile/huge", TOO_LARGE, lambda g: R.Tile(input=g(zeros(3, 3)), multiples=g(i64(HUGE, HUGE), tf.int64)))
same("Pad/length", lambda g: R.Pad(input=g(zeros(3)), paddings=g([[1, 1], [1, 1]])))
same("Pad/vector", lambda g: R.Pad(input=g(zeros(3)), paddings=g([1, 1])))
same("PadV2/vector", lambda g: R.PadV2(input=g(zeros(3)), paddings=g([1, 1]), constant_values=g(np.float32(1))))
ours("Pad/huge", TOO_LARGE, lambda g: R.Pad(input=g(zeros(3)), paddings=g([[HUGE, HUGE]], tf.int64)))
ours("PadV2/huge", TOO_LARGE, lambda g: R.PadV2(input=g(zeros(3, 3)), paddings=g([[2**40, 0], [2**40, 0]], tf.int64), constant_values=g(np.float32(1))))
same("MirrorPad/negative", lambda g: R.MirrorPad(input=g(zeros(3)), paddings=g([[-1, 1]]), mode="REFLECT"))
same("MirrorPadGrad/wide", lambda g: R.MirrorPadGrad(input=g(zeros(3)), paddings=g([[9, 9]]), mode="REFLECT"))
same("MirrorPadGrad/negative", lambda g: R.MirrorPadGrad(input=g(zeros(3)), paddings=g([[-1, 1]]), mode="SYMMETRIC"))
ours("Fill/huge", TOO_LARGE, lambda g: R.Fill(dims=g(i64(HUGE, HUGE), tf.int64), value=g(np.float32(1))))
ours("Fill/large", TOO_LARGE, lambda g: R.Fill(dims=g(i64(2**50), tf.int64), value=g(np.float32(1))))
same("Fill/matrix", lambda g: R.Fill(dims=g([[1]]), value=g(np.float32(1))))
same("Fill/value", lambda g: R.Fill(dims=g([1]), value=g(zeros(2))))
same("BroadcastTo/negative", lambda g: R.BroadcastTo(input=g(zeros(1)), shape=g([-1])))
same("BroadcastTo/rank", lambda g: R.BroadcastTo(input=g(zeros(1, 1)), shape=g([3])))
ours("BroadcastTo/huge", TOO_LARGE, lambda g: R.BroadcastTo(input=g(zeros(1)), shape=g(i64(2**50), tf.int64)))
same("BroadcastArgs/shapes", lambda g: R.BroadcastArgs(s0=g([2, 3]), s1=g([4])))
same("BroadcastGradientArgs/shapes", lambda g: R.BroadcastGradientArgs(s0=g([2, 3]), s1=g([4]))[0])
same("BroadcastGradientArgs/matrix", lambda g: R.BroadcastGradientArgs(s0=g([[2, 3]]), s1=g([4]))[0])
same("OneHot/negative", lambda g: R.OneHot(indices=g([1]), depth=g(np.int32(-1)), on_value=g(np.float32(1)), off_value=g(np.float32(0))))
same("OneHot/depth_vector", lambda g: R.OneHot(indices=g([1]), depth=g([2, 3]), on_value=g(np.float32(1)), off_value=g(np.float32(0))))
same("OneHot/on_vector", lambda g: R.OneHot(indices=g([1]), depth=g(np.int32(2)), on_value=g(zeros(2)), off_value=g(np.float32(0))))
ours("OneHot/huge", TOO_LARGE, lambda g: R.OneHot(indices=g(np.zeros((1 << 20,), np.int32)), depth=g(np.int32(BIG)), on_value=g(np.float32(1)), off_value=g(np.float32(0))))
ours("Range/huge", TOO_LARGE, lambda g: R.Range(start=g(i64(0)[0], tf.int64), limit=g(i64(HUGE)[0], tf.int64), delta=g(i64(1)[0], tf.int64)))
ours("Range/whole", TOO_LARGE, lambda g: R.Range(start=g(i64(-2**63)[0], tf.int64), limit=g(i64(2**63 - 1)[0], tf.int64), delta=g(i64(1)[0], tf.int64)))
same("Range/vector", lambda g: R.Range(start=g([0, 0]), limit=g(np.int32(1)), delta=g(np.int32(1))))
same("Range/infinite", lambda g: R.Range(start=g(np.float32(0)), limit=g(np.float32(np.inf)), delta=g(np.float32(1))))
same("Range/not_a_number", lambda g: R.Range(start=g(np.float32(0)), limit=g(np.float32(np.nan)), delta=g(np.float32(1))))
same("LinSpace/none", lambda g: R.LinSpace(start=g(np.float32(0)), stop=g(np.float32(1)), num=g(np.int32(0))))
same("LinSpace/vector", lambda g: R.LinSpace(start=g(zeros(2)), stop=g(np.float32(1)), num=g(np.int32(2))))
ours("LinSpace/huge", TOO_LARGE, lambda g: R.LinSpace(start=g(np.float32(0)), stop=g(np.float32(1)), num=g(i64(2**50)[0], tf.int64)))
for label, permutation in {"length": [0], "beyond": [0, 2], "negative": [0, -3], "matrix": [[0, 1]]}.items():
    same(f"Transpose/{label}", lambda g, permutation=permutation: R.Transpose(x=g(zeros(2, 3)), perm=g(permutation)))
same("InvertPermutation/beyond", lambda g: R.InvertPermutation(x=g([0, 7])))
same("InvertPermutation/negative", lambda g: R.InvertPermutation(x=g([0, -1])))
same("InvertPermutation/matrix", lambda g: R.InvertPermutation(x=g([[0, 1]])))
same("Reshape/overflowing", lambda g: R.Reshape(tensor=g(zeros(4)), shape=g(i64(HUGE, HUGE, -1), tf.int64)))
same("Reshape/negative", lambda g: R.Reshape(tensor=g(zeros(4)), shape=g([-2, -2])))
same("Reshape/nothing", lambda g: R.Reshape(tensor=g(zeros(0)), shape=g([0, -1])))
same("Reshape/nothing_of_something", lambda g: R.Reshape(tensor=g(zeros(6)), shape=g([0, -1])))
same("Reshape/matrix", lambda g: R.Reshape(tensor=g(zeros(4)), shape=g([[2, 2]])))
same("ExpandDims/two", lambda g: R.ExpandDims(input=g(zeros(4)), axis=g([0, 1])))
same("Bitcast/size", lambda g: R.Bitcast(input=g(np.zeros(3, np.uint8)), type=tf.float32))
same("Bitcast/scalar", lambda g: R.Bitcast(input=g(np.uint8(3)), type=tf.float32))
same("MatrixBandPart/rank", lambda g: R.MatrixBandPart(input=g(zeros(3)), num_lower=g(i64(0)[0], tf.int64), num_upper=g(i64(0)[0], tf.int64)))
same("MatrixBandPart/beyond", lambda g: R.MatrixBandPart(input=g(zeros(3, 3)), num_lower=g(i64(9)[0], tf.int64), num_upper=g(i64(0)[0], tf.int64)))
for label, k, rows in (("order", [1, -1], -1), ("three", [0, 1, 2], -1), ("none", np.zeros(0), -1), ("rows", [0], 1), ("band", [-1, 1], -1), ("far", [BIG, BIG], -1)):
    same(f"MatrixDiagV3/{label}", lambda g, k=k, rows=rows: R.MatrixDiagV3(
        diagonal=g(zeros(2, 3)), k=g(k, tf.int32), num_rows=g(np.int32(rows)), num_cols=g(np.int32(-1)), padding_value=g(np.float32(0))))
    same(f"MatrixDiagPartV3/{label}", lambda g, k=k: R.MatrixDiagPartV3(input=g(zeros(3, 3)), k=g(k, tf.int32), padding_value=g(np.float32(0))))
    same(f"MatrixSetDiagV3/{label}", lambda g, k=k: R.MatrixSetDiagV3(input=g(zeros(3, 3)), diagonal=g(zeros(2, 3)), k=g(k, tf.int32)))
same("MatrixDiagPartV3/rank", lambda g: R.MatrixDiagPartV3(input=g(zeros(3)), k=g([0]), padding_value=g(np.float32(0))))
same("MatrixDiagPart/rank", lambda g: R.MatrixDiagPart(input=g(zeros(3))))
same("MatrixDiag/scalar", lambda g: R.MatrixDiag(diagonal=g(np.float32(1))))
same("MatrixSetDiag/diagonal", lambda g: R.MatrixSetDiag(input=g(zeros(3, 3)), diagonal=g(zeros(2))))
same("Diag/scalar", lambda g: R.Diag(diagonal=g(np.float32(1))))
same("DiagPart/odd", lambda g: R.DiagPart(input=g(zeros(3))))
same("DiagPart/shape", lambda g: R.DiagPart(input=g(zeros(3, 2))))
for label, image, block, pads in (
        ("zero", zeros(1, 4, 4, 1), [0, 2], [[0, 0], [0, 0]]), ("uneven", zeros(1, 5, 4, 1), [2, 2], [[0, 0], [0, 0]]), ("negative", zeros(1, 4, 4, 1), [2, 2], [[-1, 0], [0, 0]]),
        ("rank", zeros(4), [2, 2], [[0, 0], [0, 0]]), ("pads", zeros(1, 4, 4, 1), [2, 2], [[0, 0]]), ("huge", zeros(1, 4, 4, 1), [BIG, BIG], [[0, 0], [0, 0]]),
        ("negative_block", zeros(1, 4, 4, 1), [-2, 2], [[0, 0], [0, 0]])):
    same(f"SpaceToBatchND/{label}", lambda g, image=image, block=block, pads=pads: R.SpaceToBatchND(input=g(image), block_shape=g(block, shape=[2]), paddings=g(pads, shape=[None, 2])))
    same(f"BatchToSpaceND/{label}", lambda g, image=image, block=block, pads=pads: R.BatchToSpaceND(
        input=g(np.concatenate([image] * 4) if image.ndim > 1 else image), block_shape=g(block, shape=[2]), crops=g(pads, shape=[None, 2])))
same("BatchToSpaceND/crops", lambda g: R.BatchToSpaceND(input=g(zeros(4, 1, 1, 1)), block_shape=g([2, 2], shape=[2]), crops=g([[2, 2], [0, 0]], shape=[None, 2])))
same("SpaceToBatch/uneven", lambda g: R.SpaceToBatch(input=g(zeros(1, 3, 3, 1)), paddings=g([[0, 0], [0, 0]]), block_size=2))
same("BatchToSpace/batch", lambda g: R.BatchToSpace(input=g(zeros(3, 1, 1, 1)), crops=g([[0, 0], [0, 0]]), block_size=2))
same("SpaceToDepth/uneven", lambda g: R.SpaceToDepth(input=g(zeros(1, 3, 3, 1)), block_size=2))
same("SpaceToDepth/rank", lambda g: R.SpaceToDepth(input=g(zeros(3)), block_size=2))
same("DepthToSpace/uneven", lambda g: R.DepthToSpace(input=g(zeros(1, 3, 3, 3)), block_size=2))
same("UnravelIndex/beyond", lambda g: R.UnravelIndex(indices=g([99]), dims=g([2, 3])))
same("UnravelIndex/negative", lambda g: R.UnravelIndex(indices=g([-1]), dims=g([2, 3])))
same("UnravelIndex/zero", lambda g: R.UnravelIndex(indices=g([0]), dims=g([0, 3])))
same("UnravelIndex/overflowing", lambda g: R.UnravelIndex(indices=g([0], tf.int64), dims=g(i64(HUGE, HUGE), tf.int64)))
same("UniqueV2/axis", lambda g: R.UniqueV2(x=g(zeros(2, 2)), axis=g([5]))[0])
same("UniqueV2/axes", lambda g: R.UniqueV2(x=g(zeros(2, 2)), axis=g([0, 1]))[0])
same("Unique/matrix", lambda g: R.Unique(x=g(zeros(2, 2)))[0])
same("ListDiff/matrix", lambda g: R.ListDiff(x=g(zeros(2, 2)), y=g(zeros(2)))[0])
same("EnsureShape/shape", lambda g: R.EnsureShape(input=g(zeros(2)), shape=[3]))
same("Where/rank", lambda g: R.Where(condition=g(np.zeros([1] * 9, bool))))
same("DynamicPartition/beyond", lambda g: R.DynamicPartition(data=g(zeros(2)), partitions=g([0, 9]), num_partitions=2)[0])
same("DynamicPartition/negative", lambda g: R.DynamicPartition(data=g(zeros(2)), partitions=g([0, -1]), num_partitions=2)[0])
same("DynamicPartition/shape", lambda g: R.DynamicPartition(data=g(zeros(2)), partitions=g([0, 0, 1]), num_partitions=2)[0])
for op in ("DynamicStitch", "ParallelDynamicStitch"):
    same(f"{op}/negative", lambda g, op=op: getattr(R, op)(indices=[g([-1])], data=[g(zeros(1))]))
    same(f"{op}/shapes", lambda g, op=op: getattr(R, op)(indices=[g([0]), g([1])], data=[g(zeros(1, 2)), g(zeros(1, 3))]))
    same(f"{op}/counts", lambda g, op=op: getattr(R, op)(indices=[g([0, 1])], data=[g(zeros(1))]))
ours("DynamicStitch/huge", TOO_LARGE, lambda g: R.DynamicStitch(indices=[g([BIG - 1])], data=[g(zeros(1, 1 << 20))]))

# Numbers.
same("MatMul/rank", lambda g: R.MatMul(a=g(zeros(2)), b=g(zeros(2))))
same("BatchMatMulV2/rank", lambda g: R.BatchMatMulV2(x=g(zeros(2)), y=g(zeros(2))))
same("BatchMatMulV2/batches", lambda g: R.BatchMatMulV2(x=g(zeros(2, 2, 2)), y=g(zeros(3, 2, 2))))
same("BatchMatMul/batches", lambda g: R.BatchMatMul(x=g(zeros(2, 2, 2)), y=g(zeros(1, 2, 2))))
same("SparseMatMul/shapes", lambda g: R.SparseMatMul(a=g(zeros(2, 2)), b=g(zeros(3, 2))))
for op in ("FloorDiv", "TruncateDiv", "Div", "Mod", "FloorMod", "TruncateMod"):
    same(f"{op}/zero", lambda g, op=op: getattr(R, op)(x=g([1, 2]), y=g([1, 0])))
    for dtype in (tf.int32, tf.int64):
        ours(f"{op}/least_{dtype.name}", (None,), lambda g, op=op, dtype=dtype: getattr(R, op)(x=g([dtype.min], dtype), y=g([-1], dtype)))
same("Add/shapes", lambda g: R.Add(x=g(zeros(2)), y=g(zeros(3))))
same("AddN/shapes", lambda g: R.AddN(inputs=[g(zeros(2)), g(zeros(3))]))
same("Betainc/shapes", lambda g: R.Betainc(a=g(zeros(2)), b=g(zeros(3)), x=g(zeros(2))))
same("SelectV2/shapes", lambda g: R.SelectV2(condition=g(np.array([True, False])), t=g(zeros(3)), e=g(zeros(2))))
for op in ("Sum", "Mean", "Prod", "Max", "Min", "EuclideanNorm"):
    same(f"{op}/axis", lambda g, op=op: getattr(R, op)(input=g(zeros(2)), axis=g([-2])))
    same(f"{op}/twice", lambda g, op=op: getattr(R, op)(input=g(zeros(2)), axis=g([0, 0])))
for op in ("Cumsum", "Cumprod"):
    same(f"{op}/axis_vector", lambda g, op=op: getattr(R, op)(x=g(zeros(2)), axis=g([0, 0])))
same("ArgMax/vector", lambda g: R.ArgMax(input=g(zeros(2)), dimension=g([0, 0])))
for op in ("SegmentSum", "SegmentMean", "SegmentMax", "SegmentMin", "SegmentProd"):
    same(f"{op}/decreasing", lambda g, op=op: getattr(R, op)(data=g(zeros(2)), segment_ids=g([1, 0])))
    same(f"{op}/negative", lambda g, op=op: getattr(R, op)(data=g(zeros(2)), segment_ids=g([-2, 0])))
    same(f"{op}/ids", lambda g, op=op: getattr(R, op)(data=g(zeros(2)), segment_ids=g([[0, 0]])))
    ours(f"{op}/huge", TOO_LARGE, lambda g, op=op: getattr(R, op)(data=g(zeros(2, 4)), segment_ids=g(i64(0, HUGE), tf.int64)))
    ours(f"{op}/largest", TOO_LARGE, lambda g, op=op: getattr(R, op)(data=g(zeros(1)), segment_ids=g(i64(2**63 - 1), tf.int64)))
for op in ("UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd"):
    same(f"{op}/negative", lambda g, op=op: getattr(R, op)(data=g(zeros(2)), segment_ids=g([0, 1]), num_segments=g(np.int32(-1))))
    same(f"{op}/beyond", lambda g, op=op: getattr(R, op)(data=g(zeros(2)), segment_ids=g([0, 5]), num_segments=g(np.int32(2))))
    same(f"{op}/count_vector", lambda g, op=op: getattr(R, op)(data=g(zeros(2)), segment_ids=g([0, 5]), num_segments=g([2, 2])))
    same(f"{op}/ids", lambda g, op=op: getattr(R, op)(data=g(zeros(2)), segment_ids=g([0, 1, 1]), num_segments=g(np.int32(2))))
    ours(f"{op}/huge", TOO_LARGE, lambda g, op=op: getattr(R, op)(data=g(zeros(2, 4)), segment_ids=g([0, 1]), num_segments=g(i64(HUGE)[0], tf.int64)))
for op in ("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN"):
    same(f"{op}/negative_index", lambda g, op=op: getattr(R, op)(data=g(zeros(2, 2)), indices=g([-1]), segment_ids=g([0])))
    same(f"{op}/counts", lambda g, op=op: getattr(R, op)(data=g(zeros(2, 2)), indices=g([0, 1]), segment_ids=g([0])))
    same(f"{op}/negative_id", lambda g, op=op: getattr(R, op)(data=g(zeros(2, 2)), indices=g([0]), segment_ids=g([-1])))
    same(f"{op}/scalar", lambda g, op=op: getattr(R, op)(data=g(np.float32(1)), indices=g([0]), segment_ids=g([0])))
    ours(f"{op}/huge", TOO_LARGE, lambda g, op=op: getattr(R, op)(data=g(zeros(2, 1 << 16)), indices=g([0]), segment_ids=g([BIG])))
    same(f"{op}WithNumSegments/few", lambda g, op=op: getattr(R, op + "WithNumSegments")(data=g(zeros(2, 2)), indices=g([0]), segment_ids=g([5]), num_segments=g(np.int32(2))))
    same(f"{op}WithNumSegments/negative", lambda g, op=op: getattr(R, op + "WithNumSegments")(data=g(zeros(2, 2)), indices=g([0]), segment_ids=g([0]), num_segments=g(np.int32(-2))))
    same(f"{op}Grad/negative", lambda g, op=op: getattr(R, op + "Grad")(grad=g(zeros(2, 2)), indices=g([0]), segment_ids=g([0]), output_dim0=g(np.int32(-2))))
    same(f"{op}Grad/beyond", lambda g, op=op: getattr(R, op + "Grad")(grad=g(zeros(2, 2)), indices=g([9]), segment_ids=g([0]), output_dim0=g(np.int32(2))))
    same(f"{op}Grad/segment", lambda g, op=op: getattr(R, op + "Grad")(grad=g(zeros(2, 2)), indices=g([0]), segment_ids=g([7]), output_dim0=g(np.int32(2))))
    ours(f"{op}Grad/huge", TOO_LARGE, lambda g, op=op: getattr(R, op + "Grad")(grad=g(zeros(2, 1 << 16)), indices=g([0]), segment_ids=g([0]), output_dim0=g(np.int32(BIG))))
same("Bincount/negative_size", lambda g: R.Bincount(arr=g([1]), size=g(np.int32(-1)), weights=g(zeros(0))))
same("Bincount/weights", lambda g: R.Bincount(arr=g([1]), size=g(np.int32(3)), weights=g(zeros(7))))
same("DenseBincount/negative", lambda g: R.DenseBincount(input=g([-1]), size=g(np.int32(3)), weights=g(zeros(0))))
same("DenseBincount/negative_size", lambda g: R.DenseBincount(input=g([1]), size=g(np.int32(-3)), weights=g(zeros(0))))
same("DenseBincount/size_vector", lambda g: R.DenseBincount(input=g([1]), size=g([2, 2]), weights=g(zeros(0))))
same("DenseBincount/rank", lambda g: R.DenseBincount(input=g(np.zeros((1, 1, 1), np.int32)), size=g(np.int32(2)), weights=g(zeros(0))))
for label, splits in {"none": [], "first": [1, 2], "beyond": [0, 9], "decreasing": [0, 2, 1, 2], "short": [0, 1]}.items():
    same(f"RaggedBincount/{label}", lambda g, splits=splits: R.RaggedBincount(splits=g(splits, tf.int64), values=g([1, 1]), size=g(np.int32(2)), weights=g(zeros(0))))
same("HistogramFixedWidth/none", lambda g: R.HistogramFixedWidth(values=g(zeros(2)), value_range=g([0.0, 1.0]), nbins=g(np.int32(0))))
same("HistogramFixedWidth/range", lambda g: R.HistogramFixedWidth(values=g(zeros(2)), value_range=g([1.0, 1.0]), nbins=g(np.int32(2))))
same("HistogramFixedWidth/short", lambda g: R.HistogramFixedWidth(values=g(zeros(2)), value_range=g([1.0]), nbins=g(np.int32(2))))
for op in ("LowerBound", "UpperBound"):
    same(f"{op}/rows", lambda g, op=op: getattr(R, op)(sorted_inputs=g(zeros(2, 3)), values=g(zeros(1, 3))))
    same(f"{op}/rank", lambda g, op=op: getattr(R, op)(sorted_inputs=g(zeros(3)), values=g(zeros(3))))

# Picture files.
PNG, JPEG, GIF, BMP = picture_files.PNG["rgb8"], picture_files.jpegs()["rgb"], picture_files.GIF["two"], picture_files.BMP["rgb"]


def png_head(width, height, depth=8, color=2, interlaced=0):
    return b"\x89PNG\r\n\x1a\n" + picture_files.chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlaced))


def jpeg_sized(height, width, file=JPEG):
    """Returns a file whose frame says another size."""
    place = file.index(b"\xff\xc0") + 5
    return file[:place] + struct.pack(">HH", height, width) + file[place + 4:]


DATA = picture_files.chunk(b"IDAT", zlib.compress(b"\0" * 99))
END = picture_files.chunk(b"IEND", b"")
TABLES = JPEG.index(b"\xff\xdb")
FRAME = JPEG.index(b"\xff\xc0")
CODES = JPEG.index(b"\xff\xc4")
SCAN = JPEG.index(b"\xff\xda")
BROKEN = {
    "empty": b"", "nothing_known": b"hello, world", "png_magic": PNG[:8], "png_head": PNG[:20], "png_half": PNG[:len(PNG) // 2], "png_no_end": PNG[:-12],
    "png_zero": png_head(0, 5) + DATA + END, "png_huge": png_head(2**31 - 1, 2**31 - 1) + DATA + END, "png_wide": png_head(999999, 500) + DATA + END,
    "png_bomb": png_head(22000, 22000) + DATA + END, "png_depth": png_head(3, 3, depth=3) + DATA + END, "png_color": png_head(3, 3, color=5) + DATA + END,
    "png_no_palette": png_head(3, 3, color=3) + DATA + END, "png_no_data": png_head(3, 3) + END, "png_interlace": png_head(3, 3, interlaced=9) + DATA + END,
    "png_checksum": PNG[:29] + b"\0\0\0\0" + PNG[33:], "png_garbage": PNG[:41] + b"\xff" * 30 + PNG[71:], "png_short_data": png_head(300, 300) + DATA + END,
    "png_first_chunk": PNG[:8] + DATA + END, "jpeg_magic": JPEG[:3], "jpeg_head": JPEG[:40], "jpeg_half": JPEG[:len(JPEG) // 2], "jpeg_no_end": JPEG[:-2],
    "jpeg_zero": jpeg_sized(0, 20), "jpeg_no_width": jpeg_sized(20, 0), "jpeg_huge": jpeg_sized(65535, 65535), "jpeg_too_little": jpeg_sized(1000, 1000),
    "jpeg_no_tables": JPEG[:TABLES] + JPEG[FRAME:], "jpeg_no_codes": JPEG[:CODES] + JPEG[SCAN:], "jpeg_no_frame": JPEG[:FRAME] + JPEG[CODES:],
    "jpeg_two_frames": JPEG[:FRAME] + JPEG[FRAME:CODES] + JPEG[FRAME:], "jpeg_precision": JPEG[:FRAME + 4] + b"\x0c" + JPEG[FRAME + 5:],
    "jpeg_components": JPEG[:FRAME + 9] + b"\x07" + JPEG[FRAME + 10:], "jpeg_sampling": JPEG[:FRAME + 11] + b"\x00" + JPEG[FRAME + 12:],
    "jpeg_table_number": JPEG[:FRAME + 12] + b"\x0f" + JPEG[FRAME + 13:], "jpeg_full_codes": JPEG[:CODES + 5] + b"\xff" * 16 + JPEG[CODES + 21:],
    "jpeg_lossless": JPEG[:FRAME] + b"\xff\xc3" + JPEG[FRAME + 2:], "jpeg_long_segment": JPEG[:TABLES + 2] + b"\xff\xff" + JPEG[TABLES + 4:],
    "gif_magic": GIF[:4], "gif_head": GIF[:10], "gif_no_image": GIF[:61] + b"\x3b", "gif_version": b"GIF80a" + GIF[6:], "gif_block": GIF[:61] + b"\x77" + GIF[62:],
    "bmp_magic": BMP[:2], "bmp_head": BMP[:31], "bmp_half": BMP[:60], "bmp_long": BMP + b"\0", "bmp_zero": BMP[:18] + b"\0" * 8 + BMP[26:],
    "bmp_negative": BMP[:18] + b"\xff\xff\xff\xff" + BMP[22:], "bmp_huge": BMP[:18] + b"\xff\xff\xff\x7f" * 2 + BMP[26:], "bmp_bits": BMP[:28] + b"\x10\0" + BMP[30:],
    "bmp_lowest": BMP[:22] + b"\0\0\0\x80" + BMP[26:], "bmp_start": BMP[:10] + b"\xff\xff\xff\xff" + BMP[14:],
}
for label, contents in BROKEN.items():
    same(f"DecodeImage/{label}", lambda g, contents=contents: R.DecodeImage(contents=g(np.array(contents, object))))
    if label.startswith("jpeg"):
        # TensorFlow looks for the end of some of these without end.
        ours(f"DecodeJpeg/{label}", (None, INVALID), lambda g, contents=contents: R.DecodeJpeg(contents=g(np.array(contents, object)), try_recover_truncated=True))
        same(f"ExtractJpegShape/{label}", lambda g, contents=contents: R.ExtractJpegShape(contents=g(np.array(contents, object))))
    if label.startswith("bmp"):
        same(f"DecodeBmp/{label}", lambda g, contents=contents: R.DecodeBmp(contents=g(np.array(contents, object)), channels=3))
same("DecodePng/vector", lambda g: R.DecodePng(contents=g([PNG])))
same("ExtractJpegShape/empty", lambda g: R.ExtractJpegShape(contents=g(b"")))
same("ExtractJpegShape/png", lambda g: R.ExtractJpegShape(contents=g(np.array(PNG, object))))
# Frames of more pixels than there is memory for, of which nothing is there.
ours("DecodeGif/huge", TOO_LARGE, lambda g: R.DecodeGif(contents=g(np.array(picture_files.gif(
    65535, 65535, b"\x2c" + struct.pack("<HHHHB", 0, 0, 65535, 65535, 0) + picture_files.lzw([1])), object))))
# Noise in the place of what was there: any ending but a crash.
NOISE = np.random.RandomState(3)
for label, contents in {"png": PNG, "jpeg": JPEG, "progressive": picture_files.jpegs()["progressive"], "gif": GIF, "bmp": BMP}.items():
    for number in range(20):
        damaged = bytearray(contents)
        for place in NOISE.randint(8, len(damaged), 3):
            damaged[place] = NOISE.randint(0, 256)
        ours(f"DecodeImage/damaged_{label}_{number}", (None, INVALID), lambda g, damaged=bytes(damaged): R.DecodeImage(contents=g(np.array(damaged, object))))


def combined(g, boxes=zeros(1, 2, 1, 4), scores=zeros(1, 2, 3), per_class=1, total=1, overlap=0.5, least=0.1):
    return list(R.CombinedNonMaxSuppression(
        boxes=g(boxes), scores=g(scores), max_output_size_per_class=g(per_class), max_total_size=g(total), iou_threshold=g(overlap),
        score_threshold=g(least)))


for label, wrong in (
        ("positions", {"boxes": zeros(1, 2, 2, 4)}), ("corners", {"boxes": zeros(1, 2, 1, 3)}), ("counts", {"scores": zeros(1, 3, 3)}),
        ("batch", {"scores": zeros(2, 2, 3)}), ("per_class", {"per_class": 0}), ("total", {"total": 0}), ("negative", {"total": -1}),
        ("overlap", {"overlap": 1.5}), ("per_class_vector", {"per_class": [1]}), ("total_vector", {"total": [1]}),
        ("overlap_vector", {"overlap": [0.5]}), ("least_vector", {"least": [0.5]})):
    same(f"CombinedNonMaxSuppression/{label}", lambda g, wrong=wrong: combined(g, **wrong))
