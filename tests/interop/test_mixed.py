"""Clusters in which some tasks are ours and some are real TensorFlow's."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import harness
from test_training import CLIENT_WATCHDOG_SECS, REPLICA_FLAGS, REPLICA_MODES, check_replicas, train

tf.disable_v2_behavior()

MIXES = {
    "their_ps": {"ps": harness.TENSORFLOW},
    "our_ps": {"worker": harness.TENSORFLOW},
    "their_chief": {("worker", 0): harness.TENSORFLOW},
    "their_second_worker": {("worker", 1): harness.TENSORFLOW},
}


@pytest.mark.parametrize("mix", sorted(MIXES))
def test_tensors_cross_between_kinds(cluster, graph, mix):
    made = cluster(ps=1, workers=2, kinds=MIXES[mix])
    dtypes = [tf.float32, tf.float64, tf.int32, tf.int64, tf.bool, tf.uint8, tf.complex64, tf.float16]
    hops = ["/job:worker/task:0", "/job:ps/task:0", "/job:worker/task:1", "/job:ps/task:0"]
    numbers, words = [tf.placeholder(dtype) for dtype in dtypes], tf.placeholder(tf.string)
    values = list(numbers) + [words]
    for hop in hops:
        with tf.device(hop):
            values = [tf.identity(value) for value in values]
    feed = {number: np.arange(6).reshape(2, 3).astype(dtype.as_numpy_dtype) for number, dtype in zip(numbers, dtypes)}
    feed[words] = np.array([[b"", b"a"], [b"longer" * 100, b"\0\xff"]], object)
    for task in made.tasks.values():
        with tf.Session(task.target) as session:
            for _ in range(3):
                got = session.run(values, feed)
                for expected, result in zip(feed.values(), got):
                    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("mix", sorted(MIXES))
def test_loops_and_errors_cross_between_kinds(cluster, graph, mix):
    made = cluster(ps=1, workers=2, kinds=MIXES[mix])
    with tf.device("/job:ps/task:0"):
        step = tf.Variable(3.0, name="step", use_resource=False)
        limit = tf.placeholder(tf.float32, [])

    def body(i, total):
        with tf.device("/job:worker/task:1"):
            total = total * 2.0
        with tf.device("/job:ps/task:0"):
            return i + step, total + i

    with tf.device("/job:worker/task:0"):
        _, total = tf.while_loop(lambda i, _: i < limit, body, [0.0, 1.0])
    with tf.device("/job:ps/task:0"):
        left = tf.placeholder(tf.float32)
        product = tf.matmul(left, left, name="mixed_product")
    for target in (made.worker(0).target, made.worker(1).target, made.ps().target):
        with tf.Session(target) as session:
            with pytest.raises(tf.errors.FailedPreconditionError):
                session.run(tf.identity(step), options=tf.RunOptions(timeout_in_ms=60000))
            session.run(step.initializer)
            assert session.run(total, {limit: 10.0}) == (((1 * 2 + 0) * 2 + 3) * 2 + 6) * 2 + 9
            with pytest.raises(tf.errors.InvalidArgumentError, match="Matrix size-incompatible") as caught:
                session.run(product, {left: np.ones((2, 3))})
            assert caught.value.op is product.op
        tf.Session.reset(made.worker(0).target)


@pytest.mark.slow
@pytest.mark.watchdog(1200)
@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("mix", ["our_ps", "their_ps", "their_chief"])
def test_training_on_mixed_clusters(cluster, processes, mix, mode):
    made = cluster(ps=1, workers=2, kinds=MIXES[mix])
    check_replicas(train(processes, made, "mnist_replica.py", "--existing_servers=True", *REPLICA_FLAGS,
                         *REPLICA_MODES[mode]), mode)


@pytest.mark.slow
@pytest.mark.watchdog(1200)
def test_their_master_with_our_ps_and_workers(cluster, processes):
    # The master is of another task than all computation, so each partition that it optimized goes to a task of ours.
    made = cluster(jobs={"ps": 1, "worker": 2, "chief": 1}, kinds={"chief": harness.TENSORFLOW})
    client = harness.script("in_graph.py", *made.flags(), "--train_steps=400")
    processes.append(client)
    result, = harness.results(client.expect_success(CLIENT_WATCHDOG_SECS))
    assert result["accuracy"] >= 0.93, result


@pytest.mark.slow
@pytest.mark.watchdog(1200)
def test_our_master_with_their_ps_and_workers(cluster, processes, server_kind):
    made = cluster(jobs={"ps": 1, "worker": 2, "chief": 1}, kind=harness.TENSORFLOW, kinds={"chief": server_kind})
    client = harness.script("in_graph.py", *made.flags(), "--train_steps=400")
    processes.append(client)
    result, = harness.results(client.expect_success(CLIENT_WATCHDOG_SECS))
    assert result["accuracy"] >= 0.93, result
