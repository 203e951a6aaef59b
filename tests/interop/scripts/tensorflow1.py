"""A client of TensorFlow 1.15 itself, for its own Python: `tensorflow1.py PART …`. It prints its results after RESULT."""

import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)


def report(**values):
    print("RESULT " + json.dumps(values), flush=True)


def run_sessions(target):
    """Makes a client's requests to a session, except for training steps."""
    found = {"version": tf.__version__}
    with tf.Graph().as_default(), tf.Session(target) as session:
        found["devices"] = [device.name for device in session.list_devices()]
        a, b = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.float32, [None])
        c = tf.add(a, b, name="c")
        d = tf.multiply(c, 2.0, name="d")
        found["feeds"] = session.run(d, {a: [1, 2], b: [3, 4]}).tolist()
        handle = session.partial_run_setup([c, d], [a, b])
        part = session.partial_run(handle, c, {a: [1], b: [2]})
        found["partial run"] = [part.tolist(), session.partial_run(handle, d).tolist()]
        call = session.make_callable(d, [a, b])
        found["callable"] = call([1.0], [1.0]).tolist()
        options, metadata = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), tf.RunMetadata()
        session.run(d, {a: [1], b: [2]}, options, metadata)
        found["traced"] = "d" in {node.node_name for device in metadata.step_stats.dev_stats for node in device.node_stats}

        loop = tf.while_loop(lambda i, x: i < 10, lambda i, x: (i + 1, x * 1.5), [0, tf.constant([1.0, 2.0])])
        found["loop"] = session.run([loop[1], tf.gradients(loop[1], loop[1])])[0].tolist()
        found["cond"] = session.run(tf.cond(tf.reduce_sum(a) > 0, lambda: a + 1, lambda: a - 1), {a: [5.0]}).tolist()
        texts = tf.string_join([tf.constant(["a", "b"]), tf.as_string(tf.range(2))], "-")
        found["strings"] = [text.decode() for text in session.run(texts)]
        array = tf.TensorArray(tf.float32, 3).unstack([1.0, 2.0, 3.0])
        found["array"] = session.run(array.stack()).tolist()
        queue = tf.FIFOQueue(10, [tf.int32], shapes=[[]])
        session.run(queue.enqueue_many([[7, 8, 9]]))
        found["queue"] = session.run(queue.dequeue_many(2)).tolist()

        dataset = tf.data.Dataset.range(10).filter(lambda x: tf.equal(x % 2, 0)).map(lambda x: x * x, 2)
        dataset = dataset.batch(2).apply(tf.data.experimental.enumerate_dataset()).prefetch(1)
        following = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
        batches = []
        try:
            while True:
                batches.append(session.run(following)[1].tolist())
        except tf.errors.OutOfRangeError:
            found["dataset"] = batches

        table = tf.contrib.lookup.index_table_from_tensor(["x", "y"], num_oov_buckets=1)
        session.run(tf.tables_initializer())
        found["table"] = session.run(table.lookup(tf.constant(["y", "x", "z"]))).tolist()
        cell = tf.contrib.rnn.MultiRNNCell([tf.contrib.rnn.LSTMBlockCell(4), tf.contrib.rnn.GRUBlockCellV2(3)])
        outputs, _ = tf.nn.dynamic_rnn(cell, tf.ones([2, 5, 3]), dtype=tf.float32)
        image = tf.contrib.layers.conv2d(tf.ones([1, 8, 8, 3]), 4, 3, normalizer_fn=tf.contrib.layers.batch_norm)
        session.run(tf.global_variables_initializer())
        found["rnn"] = list(session.run(outputs).shape)
        found["conv"] = list(session.run(image).shape)
        try:
            session.run(tf.check_numerics(tf.log(a), "bad"), {a: [-1.0]})
        except tf.errors.InvalidArgumentError as error:
            found["error"] = "bad : Tensor had NaN" in error.message
    report(**found)


def linear_model():
    """Returns the loss of a line through four points, with its variables on the parameter server."""
    with tf.variable_scope("line"):
        slope = tf.get_variable("slope", [], initializer=tf.zeros_initializer())
        offset = tf.get_variable("offset", [], initializer=tf.zeros_initializer())
    x = tf.constant([0.0, 1.0, 2.0, 3.0])
    return tf.reduce_mean(tf.square(slope * x + offset - (2.0 * x + 1.0))), slope, offset


def run_train(ps, workers, index, directory):
    """Trains as a worker of between-graph replication, asynchronously."""
    cluster = tf.train.ClusterSpec({"ps": [ps], "worker": workers.split(",")})
    index = int(index)
    target = "grpc://" + workers.split(",")[index]
    with tf.Graph().as_default():
        with tf.device(tf.train.replica_device_setter(worker_device="/job:worker/task:%d" % index, cluster=cluster)):
            loss, slope, offset = linear_model()
            step = tf.train.get_or_create_global_step()
            optimizer = tf.train.MomentumOptimizer(0.05, 0.5)
            hooks = [tf.train.StopAtStepHook(last_step=200)]
            train = optimizer.minimize(loss, global_step=step)
        with tf.train.MonitoredTrainingSession(
                target, is_chief=index == 0, checkpoint_dir=directory if index == 0 else None, hooks=hooks, save_checkpoint_steps=50,
                log_step_count_steps=None) as session:
            values = None
            while not session.should_stop():
                values = session.run([train, loss, slope, offset, step])
    report(loss=float(values[1]), slope=float(values[2]), offset=float(values[3]), step=int(values[4]))


def run_server(ps, workers, job, index):
    """Runs a server of this TensorFlow until it is killed."""
    server = tf.train.Server({"ps": [ps], "worker": workers.split(",")}, job_name=job, task_index=int(index))
    print("tensorflow server ready: /job:%s/task:%s at %s" % (job, index, server.target[len("grpc://"):]), flush=True)
    server.join()


PARTS = {"sessions": run_sessions, "train": run_train, "server": run_server}

if __name__ == "__main__":
    PARTS[sys.argv[1]](*sys.argv[2:])
