"""The random numbers of our servers are those of TensorFlow's local session: same seeds, same values."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

SEEDS = [(1, 2), (87654321, 5), (0, 7), (2**31 - 1, 2**40)]
SIZES = [(), (1,), (7,), (3, 5), (1000,), (70001,)]
FLOATS = [tf.float16, tf.bfloat16, tf.float32, tf.float64]
# One unit in the last place or so: where a logarithm or a sine is part of it, ours isn't the same code.
CLOSE = {tf.float16: 2e-3, tf.bfloat16: 2e-2, tf.float32: 3e-6, tf.float64: 1e-12}

KINDS = {
    "uniform": (FLOATS, lambda shape, dtype, seed: tf.raw_ops.RandomUniform(shape=dims(shape), dtype=dtype, **seed), True),
    "normal": (FLOATS, lambda shape, dtype, seed: tf.raw_ops.RandomStandardNormal(shape=dims(shape), dtype=dtype, **seed), False),
    "truncated_normal": (FLOATS, lambda shape, dtype, seed: tf.raw_ops.TruncatedNormal(shape=dims(shape), dtype=dtype, **seed), False),
    "uniform_int": (
        [tf.int32, tf.int64],
        lambda shape, dtype, seed: tf.raw_ops.RandomUniformInt(
            shape=dims(shape), minval=tf.constant(-5, dtype), maxval=tf.constant(1000, dtype), **seed),
        True,
    ),
    "shuffle": (
        [tf.int32, tf.float64, tf.string],
        lambda shape, dtype, seed: tf.raw_ops.RandomShuffle(value=example(shape, dtype), **seed),
        True,
    ),
    "gamma": (
        [tf.float16, tf.float32, tf.float64],
        lambda shape, dtype, seed: tf.raw_ops.RandomGamma(shape=dims(shape), alpha=tf.constant([0.4, 3.5], dtype), **seed),
        False,
    ),
    "multinomial": (
        [tf.float32, tf.float64],
        lambda shape, dtype, seed: tf.raw_ops.Multinomial(
            # One row: what TensorFlow draws for several depends on how many threads share them.
            logits=tf.constant([[0.1, 2.0, -1.0, 0.6]], dtype), num_samples=int(np.prod(shape)), **seed),
        True,
    ),
    "poisson": (
        [tf.float32, tf.float64],
        lambda shape, dtype, seed: tf.raw_ops.RandomPoissonV2(
            shape=dims(shape), rate=tf.constant([0.7, 25.0], dtype), dtype=dtype, **seed),
        True,
    ),
}

STATELESS = {
    "uniform": lambda shape, dtype, seed: tf.raw_ops.StatelessRandomUniform(shape=dims(shape), seed=seed, dtype=dtype),
    "normal": lambda shape, dtype, seed: tf.raw_ops.StatelessRandomNormal(shape=dims(shape), seed=seed, dtype=dtype),
    "truncated_normal": lambda shape, dtype, seed: tf.raw_ops.StatelessTruncatedNormal(shape=dims(shape), seed=seed, dtype=dtype),
}


def dims(shape):
    return np.array(shape, np.int32)


def example(shape, dtype):
    rows = np.arange(max(int(np.prod(shape)), 1) * 2).reshape(-1, 2)
    return tf.as_string(rows) if dtype == tf.string else tf.constant(rows, dtype)


def compare(session_target, outputs, tolerance, is_exact):
    # The server must compute the numbers in a step: a second run must go on with the same stream.
    with tf.Session() as local, tf.Session(session_target) as ours:
        for _ in range(2):
            expected, got = local.run(outputs), ours.run(outputs)
            for ours_value, value in zip(got, expected):
                value, ours_value = np.asarray(value), np.asarray(ours_value)
                assert ours_value.shape == value.shape and ours_value.dtype == value.dtype
                if is_exact:
                    assert ours_value.tolist() == value.tolist()
                else:
                    difference = np.abs(ours_value.astype(np.float64) - value.astype(np.float64))
                    assert np.all(difference <= tolerance * np.maximum(1.0, np.abs(value.astype(np.float64))))


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_of_a_seed_are_tensorflows(shared_cluster, graph, kind):
    dtypes, make, is_exact = KINDS[kind]
    for dtype in dtypes:
        outputs = [
            make(size, dtype, {"seed": seed, "seed2": seed2}) for seed, seed2 in SEEDS for size in SIZES
        ]
        compare(shared_cluster.target, outputs, CLOSE.get(dtype, 0), is_exact)


@pytest.mark.parametrize("kind", STATELESS)
def test_stateless_numbers_are_tensorflows(shared_cluster, graph, kind):
    for dtype in FLOATS:
        outputs = [STATELESS[kind](size, dtype, [seed, seed2]) for seed, seed2 in SEEDS for size in SIZES]
        compare(shared_cluster.target, outputs, CLOSE[dtype], kind == "uniform")


def test_seeds_of_graph_and_op_give_tensorflows_numbers(shared_cluster, graph):
    tf.set_random_seed(42)
    outputs = [
        tf.random_uniform([3]), tf.random_uniform([3], seed=1), tf.random_normal([2, 2], 3.0, 0.5),
        tf.random_shuffle(tf.range(10), seed=9), tf.truncated_normal([5], seed=3),
    ]
    compare(shared_cluster.target, outputs, 1e-5, False)
