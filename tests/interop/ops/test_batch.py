"""Batching compared with TensorFlow's: rows of a single step, and of several steps that meet."""

import itertools
import threading

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import side_by_side

R = tf.raw_ops
TABLE = side_by_side.Table()
NAMES = itertools.count()
A = np.arange(6, dtype=np.float32).reshape(3, 2)
WAIT_MICROS = 600_000_000
OPTIONS = {"num_batch_threads": 2, "max_batch_size": 6, "grad_timeout_micros": WAIT_MICROS}


def batch(tensors, **options):
    return R.Batch(in_tensors=tensors, **{**OPTIONS, "batch_timeout_micros": 0, "shared_name": f"batcher{next(NAMES)}", **options})


def seen(made):
    """The part that doesn't depend on keys, which are random."""
    return [*made.batched_tensors, made.batch_index[:, 1:], tf.shape(made.id), tf.equal(made.batch_index[:, 0], made.id)]


def batched_and_back(given):
    made = batch([given(A), given(A[:, 0])])
    own = R.Unbatch(batched_tensor=made.batched_tensors[0] * made.batched_tensors[0], batch_index=made.batch_index, id=made.id, timeout_micros=WAIT_MICROS, shared_name=f"unbatcher{next(NAMES)}")
    other = R.Unbatch(batched_tensor=made.batched_tensors[1], batch_index=made.batch_index, id=made.id, timeout_micros=WAIT_MICROS, shared_name=f"unbatcher{next(NAMES)}")
    return [own, other]


def gradient_of_rows(given):
    made = batch([given(A)])
    return R.UnbatchGrad(original_input=made.batched_tensors[0], batch_index=made.batch_index, grad=given(A), id=made.id, shared_name=f"gradient{next(NAMES)}")


def function(given, rows, **options):
    factor = given(np.float32(3))

    @tf.nondifferentiable_batch_function(2, 6, 0, **options)
    def multiply(x, y):
        return x * factor, tf.shape(x)[:1] + tf.zeros_like(tf.cast(y, tf.int32)), tf.strings.as_string(y)

    return multiply(given(A[:rows], shape=[None, 2]), given(A[:rows, 0], shape=[None]))


TABLE.add("Batch", lambda given: seen(batch([given(A)])), gradient=False)
TABLE.add("Batch/strings", lambda given: seen(batch([given(A), given(np.array([b"a", b"b", b"c"], object))])), gradient=False)
TABLE.add("Batch/padded", lambda given: seen(batch([given(A)], allowed_batch_sizes=[1, 5, 6])), gradient=False)
TABLE.add("Batch/none", lambda given: list(batch([given(A[:0])]).batched_tensors), gradient=False)
TABLE.add("Unbatch", batched_and_back, gradient=False)
TABLE.add("UnbatchGrad", gradient_of_rows, gradient=False)
TABLE.add("BatchFunction", lambda given: function(given, 3), gradient=False)
TABLE.add("BatchFunction/padded", lambda given: function(given, 3, allowed_batch_sizes=[2, 4, 6]), gradient=False)
TABLE.add("BatchFunction/split", lambda given: function(given, 3, allowed_batch_sizes=[1, 2], enable_large_batch_splitting=True), gradient=False)

results, test_op, test_at_a_lower_level, test_beside_onednn = TABLE.tests()


def run_at_once(session, fetches, feeds):
    """Runs steps in parallel, and returns the result of each."""
    outcomes = [None] * len(feeds)

    def run(index):
        try:
            outcomes[index] = session.run(fetches, feeds[index])
        except tf.errors.OpError as error:
            outcomes[index] = error

    threads = [threading.Thread(target=run, args=[index]) for index in range(len(feeds))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


@pytest.fixture(params=["ours", "TensorFlow's"])
def session(request):
    with tf.Graph().as_default():
        target = request.getfixturevalue("op_server").target if request.param == "ours" else ""
        with tf.Session(target, config=tf.ConfigProto(inter_op_parallelism_threads=8, isolate_session_state=True)) as session:
            yield session


def test_steps_meet_in_a_batch_and_part_again(session):
    rows = tf.placeholder(tf.float32, [None])
    made = batch([rows], batch_timeout_micros=WAIT_MICROS)
    together = made.batched_tensors[0]
    totals = together + tf.reduce_sum(together)
    unbatched = R.Unbatch(batched_tensor=totals, batch_index=made.batch_index, id=made.id, timeout_micros=WAIT_MICROS, shared_name="unbatcher")
    weights = tf.cast(tf.range(1, tf.size(rows) + 1), tf.float32)
    all_weights = R.UnbatchGrad(original_input=totals, batch_index=made.batch_index, grad=weights, id=made.id, shared_name="gradient")
    slope = all_weights + tf.reduce_sum(all_weights)
    gradient = R.Unbatch(batched_tensor=slope, batch_index=made.batch_index, id=made.id, timeout_micros=WAIT_MICROS, shared_name="slopes")
    parts = [[1.0], [2.0, 3.0], [4.0, 5.0, 6.0]]
    for part, (sums, slopes) in zip(parts, run_at_once(session, [unbatched, gradient], [{rows: part} for part in parts])):
        np.testing.assert_allclose(sums, np.array(part) + 21)
        np.testing.assert_allclose(slopes, np.arange(1, len(part) + 1) + 10)


def test_one_call_serves_several_steps(session):
    rows = tf.placeholder(tf.float32, [None])

    @tf.nondifferentiable_batch_function(1, 6, WAIT_MICROS)
    def count(x):
        return x, tf.fill(tf.shape(x), tf.size(x))

    parts = [[1.0], [2.0, 3.0], [4.0, 5.0, 6.0]]
    for part, (own, counts) in zip(parts, run_at_once(session, count(rows), [{rows: part} for part in parts])):
        assert list(own) == part and list(counts) == [6] * len(part)


def test_a_step_that_waits_for_rows_gives_up_in_time(session):
    empty = R.Unbatch(batched_tensor=tf.zeros([0, 2]), batch_index=tf.zeros([0, 3], tf.int64), id=tf.constant(5, tf.int64), timeout_micros=1000, shared_name="late")
    with pytest.raises(tf.errors.DeadlineExceededError):
        session.run(empty)


def test_a_step_in_a_batch_can_be_cancelled(op_server):
    """TensorFlow lets it wait."""
    with tf.Graph().as_default(), tf.Session(op_server.target) as session:
        made = batch([tf.zeros([1])], batch_timeout_micros=WAIT_MICROS)
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(made.id, options=tf.RunOptions(timeout_in_ms=100))
