"""The ops of crates/ops/src/image and the fractional pools beside TensorFlow's."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import side_by_side

RANDOM = np.random.RandomState(23)


def pixels(*shape):
    return RANDOM.randint(0, 100, shape).astype(np.float32)


IMAGES = pixels(2, 5, 4, 3)
GRAY = pixels(1, 7, 3, 1)

TABLE = side_by_side.Table()
op, add = TABLE.op, TABLE.add

# Resizing, up and down, each way of placing the corners.
SCALINGS = {"": {}, "corners": {"align_corners": True}, "centers": {"half_pixel_centers": True}}
for name in ("ResizeBilinear", "ResizeBicubic", "ResizeNearestNeighbor", "ResizeArea"):
    for scaling, flags in SCALINGS.items():
        if name == "ResizeArea" and scaling == "centers":
            continue
        for size in ([3, 2], [5, 4], [8, 9], [1, 1], [2, 11]):
            label = f"{scaling}{size[0]}x{size[1]}"
            types = None if size == [8, 9] else [tf.float32]
            op(name, label, types, images=IMAGES, size=np.array(size), **flags, rtol=1e-4, atol=1e-3)
        op(name, f"{scaling}gray", [tf.float32], images=GRAY, size=np.array([4, 6]), **flags, rtol=1e-4, atol=1e-3)
        op(name, f"{scaling}none", [tf.float32], images=np.zeros((0, 3, 3, 2)), size=np.array([4, 6]), gradient=False, **flags)
for scaling, flags in SCALINGS.items():
    op("ResizeNearestNeighborGrad", scaling, grads=pixels(1, 3, 4, 2), size=np.array([2, 5]), **flags)
    for name in ("ResizeBilinearGrad", "ResizeBicubicGrad"):
        add(f"{name}/{scaling}", lambda given, name=name, flags=flags: [
            getattr(tf.raw_ops, name)(grads=given(pixels(1, 3, 4, 2)), original_image=given(np.zeros((1, 5, 2, 2)), dtype), **flags)
            for dtype in (tf.float32, tf.float64)], gradient=False, rtol=1e-5, atol=1e-4)
add("resize_images", lambda given: tf.image.resize_images(given(IMAGES, shape=[None] * 4), given([6, 6])), atol=1e-3)

# Colors.
COLORS = RANDOM.uniform(0, 1, (2, 3, 4, 3)).astype(np.float32)
for name in ("RGBToHSV", "HSVToRGB"):
    op(name, images=COLORS, gradient=False, rtol=1e-2, atol=1e-2)
    op(name, "exact", [tf.float32, tf.float64], images=COLORS, gradient=False, atol=1e-5)
op("RGBToHSV", "odd", [tf.float32], images=np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.5, 0.5, 0.2], [-1.0, 2.0, 0.0]]), gradient=False, atol=1e-5)
for number in (-1.3, 0.0, 0.4, 1.0):
    op("AdjustHue", str(number), images=COLORS, delta=np.float32(number), gradient=False, atol=1e-5)
    op("AdjustSaturation", str(number), images=COLORS, scale=np.float32(number), gradient=False, atol=1e-5)
    op("AdjustContrastv2", str(number), images=COLORS, contrast_factor=np.float32(number), gradient=False, atol=1e-5)
op("Roll", input=COLORS, shift=np.array([1, -2]), axis=np.array([1, -1]))
op("Roll", "once", [tf.float32, tf.int32], input=COLORS, shift=np.int32(5), axis=np.int32(1))
op("Roll", "again", [tf.float32], input=COLORS, shift=np.array([3, 3]), axis=np.array([2, 2]))
op("Roll", "empty", [tf.float32], input=np.zeros((0, 3)), shift=np.int32(1), axis=np.int32(0), gradient=False)

# Windows.
OFFSETS = np.array([[0.1, -0.2], [-0.9, 0.8]])
for name in ("ExtractGlimpse", "ExtractGlimpseV2"):
    for centered in (False, True):
        for normalized in (False, True):
            op(name, f"{centered}_{normalized}", input=IMAGES, size=np.array([3, 2]), offsets=OFFSETS * (1 if normalized else 4), centered=centered,
               normalized=normalized, uniform_noise=False, noise="zero")

# Pools of ratios that aren't whole, drawn from the same seed.
for name in ("FractionalAvgPool", "FractionalMaxPool"):
    for pseudo_random in (False, True):
        for overlapping in (False, True):
            op(name, f"{pseudo_random}_{overlapping}", value=pixels(2, 9, 8, 3), pooling_ratio=[1.0, 1.44, 1.73, 1.0], pseudo_random=pseudo_random,
               overlapping=overlapping, deterministic=True, seed=5, seed2=7, rtol=1e-5, atol=1e-5)
SEQUENCES = {"row_pooling_sequence": np.array([0, 2, 3]), "col_pooling_sequence": np.array([0, 1, 3])}
op("FractionalAvgPoolGrad", orig_input_tensor_shape=np.array([1, 3, 3, 2]), out_backprop=pixels(1, 2, 2, 2), overlapping=True, **SEQUENCES, gradient=False)
add("FractionalMaxPoolGrad", lambda given: tf.raw_ops.FractionalMaxPoolGrad(
    orig_input=given(np.arange(9.0).reshape(1, 3, 3, 1)), orig_output=given(np.array([3.0, 5.0, 6.0, 8.0]).reshape(1, 2, 2, 1)),
    out_backprop=given(pixels(1, 2, 2, 1)), row_pooling_sequence=given(np.array([0, 2, 3]), tf.int64),
    col_pooling_sequence=given(np.array([0, 1, 3]), tf.int64)), gradient=False)

SEEN = np.array([
    [1.0, 0.0, 1.3, 0.0, 1.0, -2.2, 0.0, 0.0], [0.8, -0.6, 2.0, 0.6, 0.8, -1.0, 0.0, 0.0], [1.1, 0.1, -3.0, -0.2, 0.9, 6.0, 0.01, -0.02]], np.float32)
for mode in ("CONSTANT", "REFLECT", "WRAP", "NEAREST"):
    for interpolation in ("NEAREST", "BILINEAR"):
        for version, more in (("V2", {}), ("V3", {"fill_value": np.float32(3.5)})):
            op(f"ImageProjectiveTransform{version}", f"{mode}_{interpolation}", images=pixels(3, 7, 6, 2), transforms=SEEN, output_shape=np.array([5, 9]),
               interpolation=interpolation, fill_mode=mode, rtol=1e-4, atol=1e-3, **more)
op("ImageProjectiveTransformV2", "one_for_all", [tf.float32], images=pixels(3, 7, 6, 2), transforms=SEEN[:1], output_shape=np.array([7, 6]), interpolation="BILINEAR")
op("ImageProjectiveTransformV2", "one_pixel", [tf.float32], images=pixels(3, 1, 1, 1), transforms=SEEN, output_shape=np.array([2, 3]), interpolation="BILINEAR", fill_mode="REFLECT", gradient=False)

results, test_op, test_at_a_lower_level, test_beside_onednn = TABLE.tests()

UNKNOWN = tf.TensorShape(None)


def seen(given, images=(3, 7, 6, 2), transforms=SEEN, size=(5, 9), interpolation="NEAREST", mode="CONSTANT"):
    return tf.raw_ops.ImageProjectiveTransformV2(
        images=given(np.ones(images), shape=UNKNOWN), transforms=given(transforms, shape=UNKNOWN), output_shape=given(np.array(size, np.int32), shape=UNKNOWN),
        interpolation=interpolation, fill_mode=mode)


FAILURES = {
    "seen_rank": lambda given: seen(given, images=(7, 6, 2)),
    "seen_transforms": lambda given: seen(given, transforms=SEEN[:2]),
    "seen_parameters": lambda given: seen(given, transforms=SEEN[:, :6]),
    "seen_size": lambda given: seen(given, size=(0, 3)),
    "seen_sizes": lambda given: seen(given, size=(1, 2, 3)),
    "resize_rank": lambda given: tf.raw_ops.ResizeBilinear(images=given(np.ones((3, 3)), shape=UNKNOWN), size=given([2, 2])),
    "resize_size": lambda given: tf.raw_ops.ResizeBilinear(images=given(IMAGES), size=given([2, 2, 2], shape=UNKNOWN)),
    "resize_negative": lambda given: tf.raw_ops.ResizeArea(images=given(IMAGES), size=given([2, -2])),
    "resize_to_nothing": lambda given: tf.raw_ops.ResizeNearestNeighbor(images=given(IMAGES), size=given([0, 2])),
    "resize_nothing": lambda given: tf.raw_ops.ResizeBicubic(images=given(np.zeros((1, 0, 3, 1))), size=given([2, 2])),
    "resize_both": lambda given: tf.raw_ops.ResizeBilinear(images=given(IMAGES), size=given([2, 2]), align_corners=True, half_pixel_centers=True),
    "glimpse_offsets": lambda given: tf.raw_ops.ExtractGlimpse(input=given(IMAGES), size=given([2, 2]), offsets=given(np.zeros((3, 2)), shape=UNKNOWN)),
    "pool_ratio": lambda given: tf.raw_ops.FractionalMaxPool(value=given(IMAGES, shape=[None] * 4), pooling_ratio=[1.0, 9.0, 1.5, 1.0]).output,
    "pool_rank": lambda given: tf.raw_ops.FractionalAvgPool(value=given(GRAY[0], shape=UNKNOWN), pooling_ratio=[1.0, 1.5, 1.5, 1.0]).output,
}


@pytest.mark.parametrize("name", sorted(FAILURES))
def test_failures_have_the_same_code(op_server, name):
    side_by_side.check_failure(f"test_image {name}", FAILURES[name], op_server.target)
