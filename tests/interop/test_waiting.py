"""A task that is not there: the client is told in time, and the server's log names it."""

import pytest
import tensorflow.compat.v1 as tf

import harness

tf.disable_v2_behavior()

PS = "/job:ps/task:0"


def test_a_task_that_is_not_there_is_named(server_kind, processes, graph):
    if server_kind == harness.TENSORFLOW:
        pytest.skip("TensorFlow waits for every task of the cluster, whether needed or not")
    made = harness.Cluster(ps=1, workers=1, start=False)
    worker = made.worker().start()
    processes.append(worker)
    worker.wait_ready()
    with tf.Session(made.target) as session:
        # What needs no ps runs without it.
        with tf.device("/job:worker/task:0"):
            assert session.run(tf.constant(2.0)) == 2.0
    with tf.device(PS):
        there = tf.placeholder_with_default(1.0, [])
        out = tf.identity(there)
    config = tf.ConfigProto(operation_timeout_in_ms=2000)
    with pytest.raises(tf.errors.DeadlineExceededError):
        with tf.Session(made.target, config=config) as session:
            session.run(out)
    worker.wait_for(lambda line: "/job:ps/" in line and made.spec["ps"][0] in line, "which task it waits for")
