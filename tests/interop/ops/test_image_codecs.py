"""Picture files beside TensorFlow's: what DecodePng and its kin read, and what EncodePng and EncodeJpeg write."""

import struct

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import picture_files
import side_by_side

R = tf.raw_ops
TABLE = side_by_side.Table()
add = TABLE.add


def file(contents):
    """Returns bytes as an array, which would leave out zeros at their end were it not one of objects."""
    return np.array(contents, object)


def decoded(name, op, contents, **attrs):
    """Adds a file that must be read to the same numbers."""
    add(name, lambda given: getattr(R, op)(contents=given(file(contents)), **attrs), gradient=False)


# PNG: every type of color and depth, as so many channels of either width.
for label, contents in picture_files.PNG.items():
    for channels in (0, 1, 3, 4):
        for dtype in (tf.uint8, tf.uint16):
            decoded(f"DecodePng/{label}/{channels}/{dtype.name}", "DecodePng", contents, channels=channels, dtype=dtype)
    decoded(f"DecodeImage/{label}", "DecodeImage", contents)
    decoded(f"DecodeImage/{label}/float", "DecodeImage", contents, dtype=tf.float32)
decoded("DecodeGif/png", "DecodeGif", picture_files.PNG["rgb8"])
decoded("DecodeJpeg/png", "DecodeJpeg", picture_files.PNG["rgb8"])

# BMP.
for label, contents in picture_files.BMP.items():
    for channels in (0, 3, 4):
        decoded(f"DecodeBmp/{label}/{channels}", "DecodeBmp", contents, channels=channels)
    decoded(f"DecodeImage/bmp_{label}", "DecodeImage", contents)
for dtype in (tf.uint16, tf.float32):
    decoded(f"DecodeImage/bmp/{dtype.name}", "DecodeImage", picture_files.BMP["rgb"], dtype=dtype)

# GIF: frames that cover the picture, that don't, and that let the last one through.
for label, contents in picture_files.GIF.items():
    decoded(f"DecodeGif/{label}", "DecodeGif", contents)
    for expand in (False, True):
        decoded(f"DecodeImage/gif_{label}/{expand}", "DecodeImage", contents, expand_animations=expand)
decoded("DecodePng/gif", "DecodePng", picture_files.GIF["one"])
decoded("DecodeJpeg/gif", "DecodeJpeg", picture_files.GIF["one"])
for dtype in (tf.uint16, tf.float32):
    decoded(f"DecodeImage/gif/{dtype.name}", "DecodeImage", picture_files.GIF["two"], dtype=dtype)

# JPEG: the pixels are the same, not only close.
for label, contents in picture_files.jpegs().items():
    for dct in ("", "INTEGER_ACCURATE"):
        for fancy in (True, False):
            for ratio in (1, 2, 4, 8):
                decoded(f"DecodeJpeg/{label}/{dct}/{fancy}/{ratio}", "DecodeJpeg", contents, dct_method=dct, fancy_upscaling=fancy, ratio=ratio)
    for channels in (1, 3):
        if channels == 3 or not label.startswith("cmyk"):
            decoded(f"DecodeJpeg/{label}/{channels}", "DecodeJpeg", contents, channels=channels)
    decoded(f"ExtractJpegShape/{label}", "ExtractJpegShape", contents)
    decoded(f"ExtractJpegShape/{label}/int64", "ExtractJpegShape", contents, output_type=tf.int64)
JPEGS = picture_files.jpegs()
decoded("DecodeImage/jpeg", "DecodeImage", JPEGS["rgb"])
decoded("DecodeImage/jpeg/uint16", "DecodeImage", JPEGS["rgb"], dtype=tf.uint16)
decoded("DecodeImage/jpeg/float", "DecodeImage", JPEGS["rgb"], dtype=tf.float32)
decoded("DecodePng/jpeg", "DecodePng", JPEGS["rgb"])
decoded("DecodeGif/jpeg", "DecodeGif", JPEGS["rgb"])
for label in ("rgb", "gray", "full"):
    for window in ([0, 0, 17, 23], [3, 5, 9, 11], [8, 16, 8, 7], [16, 22, 1, 1]):
        add(f"DecodeAndCropJpeg/{label}/{window}", lambda given, label=label, window=window: R.DecodeAndCropJpeg(
            contents=given(file(JPEGS[label])), crop_window=given(window)), gradient=False)


def cut(label, part):
    """Returns a file without the last part of its scan."""
    scan = JPEGS[label].index(b"\xff\xda")
    return JPEGS[label][:scan + int((len(JPEGS[label]) - scan) * part)]


# A file that is cut: the rows that are whole. TensorFlow reads what follows them from bytes that it has read before.
for label, part, whole in (("large", 0.3, 14), ("large", 0.8, 78), ("large_full", 0.5, 48)):
    add(f"DecodeJpeg/{label}_cut/{part}", lambda given, label=label, part=part, whole=whole: [
        pixels for picture in [R.DecodeJpeg(contents=given(file(cut(label, part))), try_recover_truncated=True, acceptable_fraction=0.1)]
        for pixels in (picture[:whole], tf.shape(picture))], gradient=False)
for label, part in (("large", 0.5), ("large", 0.8), ("large_full", 0.6)):
    decoded(f"DecodeJpeg/{label}_rows/{part}", "DecodeJpeg", cut(label, part), acceptable_fraction=0.1)

# What is written is read back: a PNG as it was, a JPEG as close as TensorFlow's.
RANDOM = np.random.RandomState(5)
for channels in (1, 2, 3, 4):
    picture = RANDOM.randint(0, 256, (7, 5, channels)).astype(np.uint8)
    wide = RANDOM.randint(0, 65536, (7, 5, channels)).astype(np.uint16)
    for compression in (-1, 0, 1, 9):
        add(f"EncodePng/{channels}/{compression}", lambda given, picture=picture, compression=compression: R.DecodePng(
            contents=R.EncodePng(image=given(picture), compression=compression)), gradient=False)
    add(f"EncodePng/{channels}/wide", lambda given, wide=wide: R.DecodePng(contents=R.EncodePng(image=given(wide)), dtype=tf.uint16), gradient=False)
add("EncodePng/batch", lambda given: tf.map_fn(
    lambda one: R.DecodePng(contents=one), tf.reshape(R.EncodePng(image=given(RANDOM.randint(0, 256, (2, 3, 4, 5, 1)).astype(np.uint8))), [-1]), tf.uint8),
    gradient=False)
SMOOTH = picture_files.smooth(19, 22, 3)
# Chroma beyond the right edge is not rounded as there; at a low quality that may move a coefficient by a whole step.
JPEG_BOUND, LOW_BOUND = 4, 30
for label, attrs in {
        "default": {}, "low": {"quality": 20}, "worst": {"quality": 0}, "best": {"quality": 100}, "progressive": {"progressive": True},
        "optimized": {"optimize_size": True}, "full": {"chroma_downsampling": False}, "dense": {"density_unit": "cm", "x_density": 7, "y_density": 9},
        "described": {"xmp_metadata": "<x/>"}, "rgb": {"format": "rgb"}}.items():
    add(f"EncodeJpeg/{label}", lambda given, attrs=attrs: tf.cast(
        R.DecodeJpeg(contents=R.EncodeJpeg(image=given(SMOOTH), **attrs), dct_method="INTEGER_ACCURATE"), tf.float32), gradient=False,
        atol=LOW_BOUND if label == "low" else JPEG_BOUND)
add("EncodeJpeg/gray", lambda given: tf.cast(
    R.DecodeJpeg(contents=R.EncodeJpeg(image=given(SMOOTH[:, :, :1]), format="grayscale"), dct_method="INTEGER_ACCURATE"), tf.float32),
    gradient=False, atol=JPEG_BOUND)
for quality in (0, 30, 100):
    add(f"EncodeJpegVariableQuality/{quality}", lambda given, quality=quality: tf.cast(R.DecodeJpeg(
        contents=R.EncodeJpegVariableQuality(images=given(SMOOTH), quality=given(np.int32(quality))), dct_method="INTEGER_ACCURATE"), tf.float32),
        gradient=False, atol=JPEG_BOUND)

results, test_op, test_at_a_lower_level, test_beside_onednn = TABLE.tests()


def test_a_jpeg_says_what_it_was_given(op_server):
    """The head of a file that we wrote: density, description, and sizes that TensorFlow reads."""
    with tf.Graph().as_default(), tf.Session(op_server.target) as session:
        image = tf.placeholder(tf.uint8, [None, None, 3])
        contents = session.run(
            R.EncodeJpeg(image=image, density_unit="cm", x_density=7, y_density=9, xmp_metadata="<about/>"), {image: SMOOTH})
    assert contents[6:11] == b"JFIF\0"
    assert struct.unpack(">BHH", contents[13:18]) == (2, 7, 9)
    assert b"http://ns.adobe.com/xap/1.0/\0<about/>" in contents
    with tf.Graph().as_default(), tf.Session() as session:
        assert list(session.run(R.ExtractJpegShape(contents=contents))) == [19, 22, 3]


def test_compression_makes_a_difference(op_server):
    with tf.Graph().as_default(), tf.Session(op_server.target) as session:
        image = tf.placeholder(tf.uint8, [None, None, 3])
        sizes = [len(one) for one in session.run([R.EncodePng(image=image, compression=level) for level in (0, 9)], {image: SMOOTH})]
    assert sizes[0] > SMOOTH.size > sizes[1]


PNG, JPEG, GIF, BMP = picture_files.PNG["rgb8"], JPEGS["rgb"], picture_files.GIF["two"], picture_files.BMP["rgb"]
FAILURES = {
    "window_outside": lambda given: R.DecodeAndCropJpeg(contents=given(file(JPEG)), crop_window=given([0, 0, 18, 23])),
    "window_empty": lambda given: R.DecodeAndCropJpeg(contents=given(file(JPEG)), crop_window=given([0, 0, 0, 3])),
    "window_negative": lambda given: R.DecodeAndCropJpeg(contents=given(file(JPEG)), crop_window=given([-1, 0, 2, 3])),
    "window_short": lambda given: R.DecodeAndCropJpeg(contents=given(file(JPEG)), crop_window=given([0, 0, 2], shape=tf.TensorShape(None))),
    "window_of_png": lambda given: R.DecodeAndCropJpeg(contents=given(file(PNG)), crop_window=given([0, 0, 1, 1])),
    "ratio": lambda given: R.DecodeJpeg(contents=given(file(JPEG)), ratio=3),
    "method": lambda given: R.DecodeJpeg(contents=given(file(JPEG)), dct_method="FLOAT"),
    "four_channels": lambda given: R.DecodeJpeg(contents=given(file(JPEG)), channels=4),
    "two_channels": lambda given: R.DecodePng(contents=given(file(PNG)), channels=2),
    "animated_png": lambda given: R.DecodePng(contents=given(file(GIF))),
    "gif_of_one_channel": lambda given: R.DecodeImage(contents=given(file(GIF)), channels=1),
    "bmp_as_png": lambda given: R.DecodePng(contents=given(file(BMP))),
    "png_as_bmp": lambda given: R.DecodeBmp(contents=given(file(PNG))),
    "bmp_gray": lambda given: R.DecodeBmp(contents=given(file(BMP)), channels=1),
    "quality": lambda given: R.EncodeJpeg(image=given(SMOOTH), quality=101),
    "variable_quality": lambda given: R.EncodeJpegVariableQuality(images=given(SMOOTH), quality=given(np.int32(101))),
    "compression": lambda given: R.EncodePng(image=given(SMOOTH), compression=10),
    "jpeg_channels": lambda given: R.EncodeJpeg(image=given(SMOOTH[:, :, :2])),
    "jpeg_format": lambda given: R.EncodeJpeg(image=given(SMOOTH), format="grayscale"),
    "jpeg_empty": lambda given: R.EncodeJpeg(image=given(SMOOTH[:0])),
    "jpeg_rank": lambda given: R.EncodeJpeg(image=given(SMOOTH[0], shape=tf.TensorShape(None))),
    "png_empty": lambda given: R.EncodePng(image=given(SMOOTH[:0])),
    "png_channels": lambda given: R.EncodePng(image=given(np.zeros((2, 2, 5), np.uint8))),
    "png_rank": lambda given: R.EncodePng(image=given(SMOOTH[0], shape=tf.TensorShape(None))),
}


@pytest.mark.parametrize("name", sorted(FAILURES))
def test_failures_have_the_same_code(op_server, name):
    side_by_side.check_failure(f"test_image_codecs {name}", FAILURES[name], op_server.target)
