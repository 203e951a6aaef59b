"""What a client prepares stays usable, however many other runs its session has compiled since."""

import tensorflow.compat.v1 as tf

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
