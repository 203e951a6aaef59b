"""Convolutions of quantized images and what people put around them, beside TensorFlow's."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import side_by_side

R = tf.raw_ops
RANDOM = np.random.RandomState(5)
TABLE = side_by_side.Table()
IMAGE = RANDOM.randint(0, 256, [2, 7, 6, 3]).astype(np.uint8)
FILTER = RANDOM.randint(0, 256, [3, 2, 3, 5]).astype(np.uint8)
SUMS = np.append(RANDOM.randint(-2**31, 2**31, 40, np.int64), [0, -2**31, 2**31 - 1]).astype(np.int32)


def add(name, expression):
    TABLE.add(name, expression, gradient=False)


def q8(given, value):
    return tf.bitcast(given(value), tf.quint8)


def plain(output):
    return tf.bitcast(output, {tf.qint32: tf.int32, tf.quint8: tf.uint8, tf.qint8: tf.int8}[output.dtype])


def seen(made):
    return [plain(one) if one.dtype.is_quantized else one for one in made]


def convolved(given, stride, padding, ranges, filter=FILTER):
    filter = q8(given, filter)
    low, high, filter_low, filter_high = (given(np.float32(bound)) for bound in ranges)
    return seen(R.QuantizedConv2D(
        input=q8(given, IMAGE), filter=filter, min_input=low, max_input=high, min_filter=filter_low, max_filter=filter_high, strides=[1, stride, stride, 1], padding=padding))


for padding in ("SAME", "VALID"):
    for stride in (1, 2, 3):
        add(f"QuantizedConv2D/{padding}_{stride}", lambda given, padding=padding, stride=stride: convolved(given, stride, padding, (-1.5, 2.0, -0.5, 0.25)))
    # Zero may lie below the range, or above it.
    for label, ranges in (("below", (1.0, 2.0, 0.5, 1.5)), ("above", (-2.0, -1.0, -3.0, -1.0)), ("point", (1.0, 1.0, 0.0, 0.0))):
        add(f"QuantizedConv2D/{padding}_{label}", lambda given, padding=padding, ranges=ranges: convolved(given, 1, padding, ranges))
    add(f"QuantizedConv2D/{padding}_one", lambda given, padding=padding: convolved(given, 3, padding, (0.0, 2.0, -0.5, 0.25), filter=FILTER[:1, :1]))


def q32(given):
    return tf.bitcast(given(SUMS), tf.qint32)


for low, high in ((-3.5, 2.25), (0.0, 10.0), (-4.0, -1.0), (2.0, 2.0)):
    bounds = {"input_min": np.float32(low), "input_max": np.float32(high)}
    add(f"RequantizationRange/{low}", lambda given, bounds=bounds: R.RequantizationRange(input=q32(given), **bounds))
    add(f"QuantizeDownAndShrinkRange/{low}", lambda given, bounds=bounds: seen(R.QuantizeDownAndShrinkRange(input=q32(given), out_type=tf.quint8, **bounds)))
    for dtype in (tf.quint8, tf.qint8):
        for out_low, out_high in ((-1.0, 1.5), (0.0, 0.25), (0.0, 0.0)):
            add(f"Requantize/{low}_{dtype.name}_{out_low}_{out_high}", lambda given, bounds=bounds, dtype=dtype, out_low=out_low, out_high=out_high: seen(R.Requantize(
                input=q32(given), requested_output_min=np.float32(out_low), requested_output_max=np.float32(out_high), out_type=dtype, **bounds)))
    add(f"QuantizedRelu/{low}", lambda given, low=low, high=high: seen(R.QuantizedRelu(features=q8(given, IMAGE), min_features=np.float32(low), max_features=np.float32(high), out_type=tf.quint8)))

# None lies in the middle between two steps, where the last bit of a quotient decides.
VALUES = np.concatenate([np.linspace(-8, 8, 41) + 0.01371, [0.0, 5.99, 5.97, 6.01, -5.98, 127.5, 1e-3]]).reshape(12, 4)
for bits in (2, 4, 8, 16):
    for narrow in (False, True):
        attrs = {"num_bits": bits, "narrow_range": narrow}
        for label, low, high in (("around", -6.0, 6.0), ("skew", -0.1, 10.3), ("above", 1.0, 5.0), ("below", -5.0, -1.0)):
            TABLE.add(f"FakeQuantWithMinMaxArgs/{label}_{bits}_{narrow}", lambda given, low=low, high=high, attrs=attrs: R.FakeQuantWithMinMaxArgs(
                inputs=given(VALUES), min=low, max=high, **attrs))
            TABLE.add(f"FakeQuantWithMinMaxVars/{label}_{bits}_{narrow}", lambda given, low=low, high=high, attrs=attrs: R.FakeQuantWithMinMaxVars(
                inputs=given(VALUES), min=given(np.float32(low)), max=given(np.float32(high)), **attrs))
        TABLE.add(f"FakeQuantWithMinMaxVars/nothing_{bits}_{narrow}", lambda given, attrs=attrs: R.FakeQuantWithMinMaxVars(
            inputs=given(VALUES), min=given(np.float32(0)), max=given(np.float32(0)), **attrs))
        for shape in ((48,), (12, 4), (2, 2, 3, 4)):
            depth = shape[-1]
            TABLE.add(f"FakeQuantWithMinMaxVarsPerChannel/{len(shape)}_{bits}_{narrow}", lambda given, shape=shape, depth=depth, attrs=attrs: R.FakeQuantWithMinMaxVarsPerChannel(
                inputs=given(VALUES.reshape(shape)), min=given(-np.arange(depth) / 3), max=given(np.arange(depth) * 1.7), **attrs))

# Scales are chosen so that no number lies in the middle between two integers.
SCALED = VALUES / 7
for bits in (1, 2, 8, 16):
    for signed in (False, True):
        for narrow in (False, True):
            for mode in ("HALF_TO_EVEN", "HALF_UP"):
                attrs = {"num_bits": bits, "signed_input": signed, "narrow_range": narrow, "round_mode": mode}
                label = f"{bits}_{signed}_{narrow}_{mode}"
                for dtype in (tf.float32, tf.float64):
                    for given_range in (False, True):
                        for version in ("V2", "V4"):
                            TABLE.add(f"QuantizeAndDequantize{version}/{label}_{given_range}_{dtype.name}", lambda given, attrs=attrs, dtype=dtype, given_range=given_range, version=version: getattr(
                                R, "QuantizeAndDequantize" + version)(input=given(SCALED, dtype), input_min=given(-0.71, dtype), input_max=given(1.13, dtype), range_given=given_range, **attrs))
                if mode == "HALF_UP":
                    continue
                del attrs["round_mode"], attrs["num_bits"]
                for given_range in (False, True):
                    TABLE.add(f"QuantizeAndDequantizeV3/{label}_{given_range}", lambda given, attrs=attrs, given_range=given_range, bits=bits: R.QuantizeAndDequantizeV3(
                        input=given(SCALED), input_min=given(-0.71), input_max=given(1.13), num_bits=given(bits, tf.int32), range_given=given_range, **attrs))
for axis in (0, 1):
    depth = SCALED.shape[axis]
    for given_range in (False, True):
        for version in ("V2", "V4"):
            TABLE.add(f"QuantizeAndDequantize{version}/axis_{axis}_{given_range}", lambda given, axis=axis, depth=depth, given_range=given_range, version=version: getattr(
                R, "QuantizeAndDequantize" + version)(input=given(SCALED), input_min=given(-np.arange(1, depth + 1) / 3.7), input_max=given(np.arange(1, depth + 1) / 2.9), range_given=given_range, axis=axis))
    TABLE.add(f"QuantizeAndDequantizeV4Grad/axis_{axis}", lambda given, axis=axis, depth=depth: list(R.QuantizeAndDequantizeV4Grad(
        gradients=given(VALUES), input=given(SCALED), input_min=given(-np.arange(depth) / 3), input_max=given(np.arange(depth) / 2), axis=axis)), gradient=False)
# Limits on one side of zero only, and nothing to scale.
for label, low, high in (("above", 0.5, 2.0), ("below", -2.0, -0.5), ("point", 0.0, 0.0)):
    TABLE.add(f"QuantizeAndDequantizeV2/{label}", lambda given, low=low, high=high: R.QuantizeAndDequantizeV2(input=given(SCALED), input_min=given(low), input_max=given(high), range_given=True))
TABLE.add("QuantizeAndDequantizeV2/zeros", lambda given: R.QuantizeAndDequantizeV2(input=given(np.zeros(3)), input_min=given(0.0), input_max=given(0.0)))
TABLE.add("QuantizeAndDequantizeV2/none", lambda given: R.QuantizeAndDequantizeV2(input=given(np.zeros((0, 3))), input_min=given(0.0), input_max=given(0.0)), gradient=False)
TABLE.add("QuantizeAndDequantizeV2/no_number", lambda given: R.QuantizeAndDequantizeV2(input=given([1.0, np.nan, 2.0]), input_min=given(0.0), input_max=given(1.0), range_given=True), gradient=False)

results, test_op, test_at_a_lower_level, test_beside_onednn = TABLE.tests()

UNKNOWN = tf.TensorShape(None)

def limited(given, version="V2", low=0.0, high=1.0, **attrs):
    """Returns the op for limits whose shapes the client doesn't know."""
    made = getattr(R, "QuantizeAndDequantize" + version)
    return made(input=given(VALUES, shape=UNKNOWN), input_min=given(low, shape=UNKNOWN), input_max=given(high, shape=UNKNOWN), **attrs)


def limited_gradient(given, low=0.0, high=1.0, gradients=VALUES, axis=-1):
    return R.QuantizeAndDequantizeV4Grad(
        gradients=given(gradients, shape=UNKNOWN), input=given(VALUES, shape=UNKNOWN), input_min=given(low, shape=UNKNOWN),
        input_max=given(high, shape=UNKNOWN), axis=axis).input_backprop


FAILURES = {
    "dequantized_range": lambda given: limited(given, low=2.0, range_given=True),
    "dequantized_size": lambda given: limited(given, low=[0.0, 0.0], high=[1.0, 1.0], axis=1, range_given=True),
    "dequantized_max_size": lambda given: limited(given, low=np.zeros(4), high=[1.0, 1.0], axis=1, range_given=True),
    "dequantized_bits": lambda given: limited(given, num_bits=0),
    "dequantized_many_bits": lambda given: limited(given, num_bits=62),
    "dequantized_many_unsigned_bits": lambda given: limited(given, num_bits=63, signed_input=False),
    "dequantized_v4_range": lambda given: limited(given, "V4", low=2.0, range_given=True),
    "dequantized_v3_bits": lambda given: limited(given, "V3", num_bits=given(0, shape=UNKNOWN)),
    "dequantized_v3_many_bits": lambda given: limited(given, "V3", num_bits=given(64, shape=UNKNOWN)),
    "dequantized_v3_vector": lambda given: limited(given, "V3", num_bits=given([3, 4], shape=UNKNOWN)),
    "dequantized_v3_axis": lambda given: limited(given, "V3", low=[0.0], high=[1.0], num_bits=given(8, shape=UNKNOWN), axis=5),
    "dequantized_gradient_shape": lambda given: limited_gradient(given, gradients=VALUES[:2]),
    "dequantized_gradient_vector": lambda given: limited_gradient(given, low=[0.0, 1.0]),
    "dequantized_gradient_size": lambda given: limited_gradient(given, low=[0.0, 1.0], high=[1.0, 1.0], axis=1),
    "dequantized_gradient_axis": lambda given: limited_gradient(given, low=[0.0, 1.0], high=[1.0, 1.0], axis=7),
    "fake_quant_limits": lambda given: R.FakeQuantWithMinMaxArgs(inputs=given(VALUES), min=1.0, max=1.0),
    "fake_quant_bits": lambda given: R.FakeQuantWithMinMaxArgs(inputs=given(VALUES), num_bits=1),
    "fake_quant_many_bits": lambda given: R.FakeQuantWithMinMaxVars(inputs=given(VALUES), min=given(-1.0), max=given(1.0), num_bits=17),
    "fake_quant_vector": lambda given: R.FakeQuantWithMinMaxVars(inputs=given(VALUES), min=given([1.0], shape=UNKNOWN), max=given(1.0)),
    "fake_quant_channels": lambda given: R.FakeQuantWithMinMaxVarsPerChannel(
        inputs=given(VALUES, shape=UNKNOWN), min=given(np.zeros(3), shape=UNKNOWN), max=given(np.ones(4), shape=UNKNOWN)),
    "fake_quant_channels_max": lambda given: R.FakeQuantWithMinMaxVarsPerChannel(
        inputs=given(VALUES, shape=UNKNOWN), min=given(np.zeros(4), shape=UNKNOWN), max=given(np.ones(5), shape=UNKNOWN)),
    "fake_quant_channels_matrix": lambda given: R.FakeQuantWithMinMaxVarsPerChannel(
        inputs=given(VALUES, shape=UNKNOWN), min=given(np.zeros((4, 1)), shape=UNKNOWN), max=given(np.ones(4), shape=UNKNOWN)),
    "fake_quant_gradient": lambda given: R.FakeQuantWithMinMaxVarsGradient(
        gradients=given(VALUES, shape=UNKNOWN), inputs=given(VALUES[:2], shape=UNKNOWN), min=given(0.0), max=given(1.0)).backprops_wrt_input,
    "fake_quant_args_gradient": lambda given: R.FakeQuantWithMinMaxArgsGradient(gradients=given(VALUES, shape=UNKNOWN), inputs=given(VALUES[:2], shape=UNKNOWN)),
}


@pytest.mark.parametrize("name", sorted(FAILURES))
def test_failures_have_the_same_code(op_server, name):
    side_by_side.check_failure(f"test_quantized {name}", FAILURES[name], op_server.target)
