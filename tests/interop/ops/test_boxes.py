"""Windows into images beside TensorFlow's: patches, crops, boxes that overlap, dilation, scaling with filters."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import side_by_side

R = tf.raw_ops
RANDOM = np.random.RandomState(29)
TABLE = side_by_side.Table()
op, add = TABLE.op, TABLE.add


def numbers(*shape):
    return RANDOM.uniform(-3, 3, shape).astype(np.float32)


# Patches.
IMAGES = numbers(2, 7, 6, 3)
for padding in ("SAME", "VALID"):
    for label, sizes, strides, rates in (("", (2, 3), (1, 1), (1, 1)), ("strided", (3, 2), (2, 3), (1, 1)), ("spread", (2, 2), (1, 2), (3, 2)), ("one", (1, 1), (1, 1), (1, 1))):
        around = {"ksizes": [1, *sizes, 1], "strides": [1, *strides, 1], "rates": [1, *rates, 1], "padding": padding}
        types = None if label == "spread" else [tf.float32]
        op("ExtractImagePatches", f"{padding}{label}", types, images=IMAGES, **around)
    op("ExtractImagePatches", f"{padding}_none", [tf.float32], images=np.zeros((0, 7, 6, 3)), ksizes=[1, 2, 2, 1], strides=[1] * 4, rates=[1] * 4, padding=padding, gradient=False)
    for label, sizes, strides in (("", (2, 1, 2), (1, 1, 1)), ("strided", (2, 3, 2), (2, 1, 3))):
        op("ExtractVolumePatches", f"{padding}{label}", input=numbers(1, 4, 3, 5, 2), ksizes=[1, *sizes, 1], strides=[1, *strides, 1], padding=padding, gradient=not label)
op("ExtractImagePatches", "smaller", [tf.float32], images=numbers(1, 2, 2, 1), ksizes=[1, 3, 3, 1], strides=[1] * 4, rates=[1] * 4, padding="VALID", gradient=False)
add("ExtractImagePatches/unknown", lambda given: tf.extract_image_patches(
    given(IMAGES, shape=[None] * 4), ksizes=[1, 2, 2, 1], strides=[1, 2, 2, 1], rates=[1] * 4, padding="SAME"))

# Crops: inside, flipped, half outside, wholly outside, a single point.
BOXES = np.array([[0.0, 0.0, 1.0, 1.0], [0.1, 0.25, 0.7, 0.6], [0.8, 0.9, 0.2, 0.1], [-0.5, 0.3, 0.4, 1.4], [1.5, 1.5, 2.0, 2.0], [0.3, 0.3, 0.3, 0.3]])
OWNERS = np.array([0, 1, 1, 0, 1, 0])
for method in ("bilinear", "nearest"):
    for size in ([3, 4], [1, 1], [9, 2]):
        op("CropAndResize", f"{method}{size}", None if size == [3, 4] else [tf.float32], image=IMAGES * 20, boxes=BOXES, box_ind=OWNERS, crop_size=np.array(size),
           method=method, extrapolation_value=2.5, rtol=1e-4, atol=1e-4)
    for dtype in (tf.float32, tf.float64, tf.float16):
        add(f"CropAndResizeGradImage/{method}/{dtype.name}", lambda given, method=method, dtype=dtype: R.CropAndResizeGradImage(
            grads=given(numbers(6, 3, 2, 3)), boxes=given(BOXES), box_ind=given(OWNERS), image_size=given([2, 7, 6, 3]), T=dtype, method=method),
            gradient=False, rtol=1e-4, atol=1e-2 if dtype == tf.float16 else 1e-5)
op("CropAndResizeGradBoxes", image=IMAGES * 20, grads=numbers(6, 3, 2, 3), boxes=BOXES, box_ind=OWNERS, gradient=False, sweep="T", rtol=1e-4, atol=1e-3)
op("CropAndResize", "none", [tf.float32], image=IMAGES, boxes=np.zeros((0, 4)), box_ind=np.zeros(0, np.int32), crop_size=np.array([2, 2]), gradient=False)

# The best of boxes that overlap. Coordinates are sixteenths, so that half precision has them too.
CORNERS = np.concatenate([np.array([[0, 0, 1, 1], [0, 0.125, 1, 1.125], [0, -0.125, 1, 0.875], [0, 10, 1, 11], [0, 10.125, 1, 11.125], [0, 100, 1, 101]]),
                          RANDOM.randint(0, 32, (20, 4)) / 16])
SCORES = np.concatenate([[0.875, 0.75, 0.625, 0.9375, 0.5, 0.25], RANDOM.randint(0, 100, 20) / 128])
MOST = np.int32(12)
for threshold in (0.0, 0.25, 0.5, 1.0):
    op("NonMaxSuppression", str(threshold), boxes=CORNERS, scores=SCORES, max_output_size=MOST, iou_threshold=threshold, gradient=False)
    for dtype in (tf.float32, tf.float16):
        def given_boxes(given, dtype=dtype):
            return {"boxes": given(CORNERS, dtype), "scores": given(SCORES, dtype), "max_output_size": given(MOST)}
        label = f"{threshold}/{dtype.name}"
        add(f"NonMaxSuppressionV2/{label}", lambda given, dtype=dtype, threshold=threshold, given_boxes=given_boxes: R.NonMaxSuppressionV2(
            **given_boxes(given), iou_threshold=given(np.float32(threshold), dtype)), gradient=False)
        add(f"NonMaxSuppressionV3/{label}", lambda given, dtype=dtype, threshold=threshold, given_boxes=given_boxes: R.NonMaxSuppressionV3(
            **given_boxes(given), iou_threshold=given(np.float32(threshold), dtype), score_threshold=given(np.float32(0.375), dtype)), gradient=False)
        for pad in (False, True):
            add(f"NonMaxSuppressionV4/{label}/{pad}", lambda given, dtype=dtype, threshold=threshold, pad=pad, given_boxes=given_boxes: R.NonMaxSuppressionV4(
                **given_boxes(given), iou_threshold=given(np.float32(threshold), dtype), score_threshold=given(np.float32(0.375), dtype),
                pad_to_max_output_size=pad), gradient=False)
            for sigma in (0.0, 0.5):
                if sigma and dtype == tf.float16:
                    continue
                add(f"NonMaxSuppressionV5/{label}/{pad}/{sigma}", lambda given, dtype=dtype, threshold=threshold, pad=pad, sigma=sigma, given_boxes=given_boxes:
                    R.NonMaxSuppressionV5(
                        **given_boxes(given), iou_threshold=given(np.float32(threshold), dtype), score_threshold=given(np.float32(0.125), dtype),
                        soft_nms_sigma=given(np.float32(sigma), dtype), pad_to_max_output_size=pad), gradient=False)
OVERLAPS = RANDOM.uniform(0, 1, (10, 10))
# Of several classes and images at once; no two scores are equal, because TensorFlow's order of equal ones is no rule.
EACH_CLASS = RANDOM.permutation(2 * 12 * 3).reshape(2, 12, 3) / 72
BATCH = np.concatenate([RANDOM.uniform(-0.2, 0.6, (2, 12, 3, 2)), RANDOM.uniform(0.5, 1.2, (2, 12, 3, 2))], 3)
for label, positions, per_class, total, least in (("", 1, 4, 9, 0.1), ("each", 3, 4, 9, 0.1), ("few", 1, 2, 40, 0.1), ("least", 3, 5, 9, 0.75), ("none", 1, 5, 3, 2.0)):
    for pad in (False, True):
        for clip in (False, True):
            add(f"CombinedNonMaxSuppression/{label}_{pad}_{clip}", lambda given, positions=positions, per_class=per_class, total=total, least=least, pad=pad, clip=clip: list(
                R.CombinedNonMaxSuppression(
                    boxes=given(BATCH[:, :, :positions]), scores=given(EACH_CLASS), max_output_size_per_class=per_class, max_total_size=total,
                    iou_threshold=0.4, score_threshold=least, pad_per_class=pad, clip_boxes=clip)), gradient=False)
add("CombinedNonMaxSuppression/sizes", lambda given: list(R.CombinedNonMaxSuppression(
    boxes=given(BATCH[:, :, :1], shape=[None, 12, 1, 4]), scores=given(EACH_CLASS, shape=[2, None, None]), max_output_size_per_class=given(np.int32(3)),
    max_total_size=given(np.int32(5)), iou_threshold=given(0.5), score_threshold=given(0.1))), gradient=False)
op("NonMaxSuppressionWithOverlaps", overlaps=OVERLAPS, scores=SCORES[:10], max_output_size=MOST, overlap_threshold=np.float32(0.6), score_threshold=np.float32(0.3), gradient=False)
op("NonMaxSuppression", "nothing", boxes=np.zeros((0, 4)), scores=np.zeros(0), max_output_size=MOST, gradient=False)
op("NonMaxSuppression", "at_most_none", boxes=CORNERS, scores=SCORES, max_output_size=np.int32(0), gradient=False)

# Dilation; whole numbers small enough not to wrap.
INPUT, FILTER = np.round(numbers(2, 6, 5, 2) * 10) + 40, np.round(numbers(3, 2, 2) * 5) + 20
for padding in ("SAME", "VALID"):
    for label, strides, rates in (("", (1, 1), (1, 1)), ("strided", (2, 3), (1, 1)), ("spread", (1, 1), (2, 2))):
        around = {"strides": [1, *strides, 1], "rates": [1, *rates, 1], "padding": padding}
        types = None if label == "spread" else [tf.float32]
        op("Dilation2D", f"{padding}{label}", types, input=INPUT, filter=FILTER, **around)
        shape = {"SAME": {"": (6, 5), "strided": (3, 2), "spread": (6, 5)}, "VALID": {"": (4, 4), "strided": (2, 2), "spread": (2, 3)}}[padding][label]
        back = np.round(numbers(2, *shape, 2))
        op("Dilation2DBackpropInput", f"{padding}{label}", types, input=INPUT, filter=FILTER, out_backprop=back, **around, gradient=False)
        op("Dilation2DBackpropFilter", f"{padding}{label}", types, input=INPUT, filter=FILTER, out_backprop=back, **around, gradient=False)

# Scaling with filters.
SIZED = {"smaller": ([3, 4], [0.5, 0.6]), "larger": ([11, 8], [1.7, 1.4]), "mixed": ([5, 9], [0.6, 1.5])}
for filtered in ("lanczos1", "lanczos3", "lanczos5", "gaussian", "box", "triangle", "keyscubic", "mitchellcubic"):
    for label, (size, scale) in SIZED.items():
        for antialias in (False, True):
            types = None if (filtered, label, antialias) == ("lanczos3", "mixed", True) else [tf.float32]
            op("ScaleAndTranslate", f"{filtered}/{label}/{antialias}", types, images=IMAGES * 10, size=np.array(size), scale=np.array(scale), translation=np.array([0.3, -0.7]),
               kernel_type=filtered, antialias=antialias, rtol=1e-4, atol=1e-4)
op("ScaleAndTranslateGrad", grads=numbers(2, 5, 9, 3), original_image=IMAGES, scale=np.array([0.6, 1.5]), translation=np.array([0.3, -0.7]), gradient=False, rtol=1e-4, atol=1e-5)
op("ScaleAndTranslate", "away", [tf.float32], images=IMAGES, size=np.array([3, 3]), scale=np.array([1.0, 1.0]), translation=np.array([50.0, 0.0]))

# Boxes drawn, and drawn at random.
for channels in (1, 3, 4):
    for dtype in (tf.float32, tf.float16):
        drawn = RANDOM.uniform(-0.2, 1.2, (2, 14, 4))
        drawn[:, :, 2:] += 0.4
        add(f"DrawBoundingBoxes/{channels}/{dtype.name}", lambda given, channels=channels, dtype=dtype, drawn=drawn: R.DrawBoundingBoxes(
            images=given(np.zeros((2, 11, 13, channels)), dtype), boxes=given(drawn)), gradient=False)
        add(f"DrawBoundingBoxesV2/{channels}/{dtype.name}", lambda given, channels=channels, dtype=dtype, drawn=drawn: R.DrawBoundingBoxesV2(
            images=given(np.zeros((2, 11, 13, channels)), dtype), boxes=given(drawn), colors=given(np.array([[0.5, 0.25, 0.75, 1.0], [0.1, 0.2, 0.3, 0.4]]))), gradient=False)
add("DrawBoundingBoxesV2/no_colors", lambda given: R.DrawBoundingBoxesV2(
    images=given(np.zeros((1, 5, 6, 3))), boxes=given(np.array([[[0.1, 0.2, 0.8, 0.9]]])), colors=given(np.zeros((0, 4)))), gradient=False)
OBJECTS = np.array([[[0.1, 0.2, 0.5, 0.6], [0.4, 0.1, 0.9, 0.8]]])
for dtype in (tf.uint8, tf.int8, tf.int16, tf.int32, tf.int64):
    for seed in (1, 2, 3):
        add(f"SampleDistortedBoundingBoxV2/{dtype.name}/{seed}", lambda given, dtype=dtype, seed=seed: R.SampleDistortedBoundingBoxV2(
            image_size=given(np.array([90, 70, 3]), dtype), bounding_boxes=given(OBJECTS), min_object_covered=given(np.float32(0.3)), seed=seed, seed2=7), gradient=False)
for seed in range(1, 12):
    add(f"SampleDistortedBoundingBox/{seed}", lambda given, seed=seed: R.SampleDistortedBoundingBox(
        image_size=given(np.array([301, 417, 3])), bounding_boxes=given(OBJECTS), min_object_covered=0.5, aspect_ratio_range=[0.4, 2.5], area_range=[0.1, 0.9], seed=seed,
        seed2=5), gradient=False)
add("SampleDistortedBoundingBox/impossible", lambda given: R.SampleDistortedBoundingBox(
    image_size=given(np.array([40, 50, 3])), bounding_boxes=given(OBJECTS), min_object_covered=1.0, area_range=[0.01, 0.02], max_attempts=5, seed=3), gradient=False)
add("SampleDistortedBoundingBox/no_boxes", lambda given: R.SampleDistortedBoundingBox(
    image_size=given(np.array([40, 50, 3])), bounding_boxes=given(np.zeros((1, 0, 4))), use_image_if_no_bounding_boxes=True, seed=3), gradient=False)

results, test_op, test_at_a_lower_level, test_beside_onednn = TABLE.tests()

UNKNOWN = tf.TensorShape(None)


def crop(given, image=IMAGES, boxes=BOXES, owners=OWNERS, size=(2, 2)):
    return R.CropAndResize(image=given(image, shape=UNKNOWN), boxes=given(boxes, shape=UNKNOWN), box_ind=given(owners, tf.int32, UNKNOWN), crop_size=given(np.array(size), shape=UNKNOWN))


def suppress(given, boxes=CORNERS, scores=SCORES, most=MOST, threshold=np.float32(0.5)):
    return R.NonMaxSuppressionV2(boxes=given(boxes, shape=UNKNOWN), scores=given(scores, shape=UNKNOWN), max_output_size=given(most, shape=UNKNOWN),
                                 iou_threshold=given(threshold, shape=UNKNOWN))


def sample(given, size=(40, 50, 3), boxes=OBJECTS, **attrs):
    return R.SampleDistortedBoundingBox(image_size=given(np.array(size), shape=UNKNOWN), bounding_boxes=given(boxes, shape=UNKNOWN), seed=3, **attrs).begin


FAILURES = {
    "crop_rank": lambda given: crop(given, image=IMAGES[0]), "crop_boxes": lambda given: crop(given, boxes=BOXES[:, :3]), "crop_owner": lambda given: crop(given, owners=OWNERS + 1),
    "crop_negative_owner": lambda given: crop(given, owners=OWNERS - 1), "crop_owners": lambda given: crop(given, owners=OWNERS[:2]), "crop_to_nothing": lambda given: crop(given, size=(0, 2)),
    "crop_size": lambda given: crop(given, size=(2, 2, 2)), "crop_of_nothing": lambda given: crop(given, image=np.zeros((2, 0, 3, 1))),
    "crop_huge": lambda given: crop(given, size=(2**31 - 1, 2**31 - 1)),
    "suppress_columns": lambda given: suppress(given, boxes=CORNERS[:, :3]), "suppress_rank": lambda given: suppress(given, boxes=CORNERS[0]),
    "suppress_scores": lambda given: suppress(given, scores=SCORES[1:]), "suppress_threshold": lambda given: suppress(given, threshold=np.float32(1.5)),
    "suppress_negative": lambda given: suppress(given, most=np.int32(-1)), "suppress_most": lambda given: suppress(given, most=np.array([3], np.int32)),
    "patches_rank": lambda given: R.ExtractImagePatches(images=given(IMAGES[0], shape=UNKNOWN), ksizes=[1, 2, 2, 1], strides=[1] * 4, rates=[1] * 4, padding="SAME"),
    "patches_large": lambda given: R.ExtractImagePatches(images=given(IMAGES, shape=UNKNOWN), ksizes=[1, 20, 20, 1], strides=[1] * 4, rates=[1] * 4, padding="VALID"),
    "dilation_depth": lambda given: R.Dilation2D(input=given(INPUT, shape=UNKNOWN), filter=given(FILTER[:, :, :1], shape=UNKNOWN), strides=[1] * 4, rates=[1] * 4, padding="SAME"),
    "dilation_gradient": lambda given: R.Dilation2DBackpropInput(input=given(INPUT), filter=given(FILTER), out_backprop=given(INPUT[:, 1:]), strides=[1] * 4, rates=[1] * 4, padding="SAME"),
    "scale_zero": lambda given: R.ScaleAndTranslate(images=given(IMAGES), size=given([2, 2]), scale=given(np.array([0.0, 1.0])), translation=given(np.zeros(2))),
    "scale_filter": lambda given: R.ScaleAndTranslate(images=given(IMAGES), size=given([2, 2]), scale=given(np.ones(2)), translation=given(np.zeros(2)), kernel_type="sinc"),
    "scale_pair": lambda given: R.ScaleAndTranslate(images=given(IMAGES), size=given([2, 2]), scale=given(np.ones(3), shape=UNKNOWN), translation=given(np.zeros(2))),
    "draw_channels": lambda given: R.DrawBoundingBoxes(images=given(np.zeros((1, 3, 3, 2)), shape=UNKNOWN), boxes=given(np.zeros((1, 1, 4)))),
    "draw_batch": lambda given: R.DrawBoundingBoxes(images=given(np.zeros((1, 3, 3, 3))), boxes=given(np.zeros((2, 1, 4)))),
    "draw_colors": lambda given: R.DrawBoundingBoxesV2(images=given(np.zeros((1, 3, 3, 3))), boxes=given(np.zeros((1, 1, 4))), colors=given(np.zeros((1, 2)))),
    "sample_outside": lambda given: sample(given, boxes=OBJECTS + 1), "sample_no_boxes": lambda given: sample(given, boxes=np.zeros((1, 0, 4))),
    "sample_size": lambda given: sample(given, size=(40, 50)), "sample_negative": lambda given: sample(given, size=(-40, 50, 3)), "sample_area": lambda given: sample(given, area_range=[0.5, 1.5]),
    "sample_ratio": lambda given: sample(given, aspect_ratio_range=[-1.0, 1.0]), "sample_attempts": lambda given: sample(given, max_attempts=0),
}


@pytest.mark.parametrize("name", sorted(FAILURES))
def test_failures_have_the_same_code(op_server, name):
    side_by_side.check_failure(f"test_boxes {name}", FAILURES[name], op_server.target)
