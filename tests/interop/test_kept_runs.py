"""Prepared runs of a client stay usable, however many other runs its session has compiled since, and end with the session."""

import re
import signal
import time

import pytest
import tensorflow.compat.v1 as tf

import harness

tf.disable_v2_behavior()

PS = "/job:ps/task:0"
WORKER_0 = "/job:worker/task:0"

NUM_RUNS = 1100
NUM_NODES = 11


def test_a_callable_and_a_partial_run_outlive_many_other_runs(shared_cluster, graph):
    with tf.device(PS):
        a = tf.placeholder(tf.float32, [])
    with tf.device(WORKER_0):
        b = tf.placeholder(tf.float32, [])
        first = tf.negative(a)
        nodes = [tf.no_op(name=f"n{index}") for index in range(NUM_NODES)]
    with tf.device(PS):
        second = first * b
    with tf.Session(shared_cluster.target) as session:
        call = session.make_callable(second, feed_list=[a, b])
        assert call(2.0, 3.0) == -6.0
        partial = session.partial_run_setup([first, second], [a, b])
        for number in range(1, NUM_RUNS + 1):
            session.run([node for index, node in enumerate(nodes) if number >> index & 1])
        assert call(3.0, 3.0) == -9.0
        assert session.partial_run(partial, first, feed_dict={a: 2.0}) == -2.0
        assert session.partial_run(partial, second, feed_dict={b: 4.0}) == -8.0


def memory_bytes(task):
    """Makes a server log what its accounts hold."""
    before = len(task.lines)
    task.signal(signal.SIGUSR1)
    said = task.wait_for(lambda _: [line for line in list(task.lines)[before:] if "memory:" in line], "what its accounts hold")
    return int(re.search(r"memory: (\d+) bytes", said[-1])[1])


@pytest.mark.parametrize("transform", [
    lambda dataset: dataset.map(lambda x: x + 1),
    lambda dataset: dataset.map(lambda x: x // 0),
    lambda dataset: dataset.map(lambda x: x + 1, num_parallel_calls=2).prefetch(2),
    lambda dataset: dataset.filter(lambda x: False),
    lambda dataset: dataset.flat_map(lambda x: tf.data.TextLineDataset("/nonexistent")),
])
def test_a_session_takes_its_iterators_along(transform):
    # An iterator has functions, and those run in the session that has the iterator.
    cluster = harness.Cluster(ps=0, workers=1, kind=harness.FERROFLOW)
    try:
        with tf.Graph().as_default():
            element = tf.data.make_one_shot_iterator(transform(tf.data.Dataset.range(3))).get_next()
            with tf.Session(cluster.target) as session:
                try:
                    session.run(element)
                except tf.errors.OpError:
                    pass
        give_up = time.monotonic() + harness.READY_WATCHDOG_SECS
        while memory_bytes(cluster.worker()) > 0:
            assert time.monotonic() < give_up, "something is left of the session"
    finally:
        cluster.stop()
