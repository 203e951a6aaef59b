"""The benchmark models: each builds a worker's graph and returns how to run a step of it.

A case is the same TensorFlow 1 program on all servers. Variables are on the ps, the rest on the worker, as
`replica_device_setter` places them. `_table.py` lists the measured cases and their bars.
"""
import gzip
import pathlib

import numpy as np
import tensorflow.compat.v1 as tf

DIGITS = pathlib.Path(__file__).resolve().parent.parent / "crates" / "digits" / "mnist"


class Case:
    """A worker's program: the chief runs `init` once, then each worker runs `fetches` repeatedly with `feeds`."""

    def __init__(self, fetches, feeds=None, init=None, local_init=None, threads=(), waits_for_others=False):
        self.fetches = fetches
        self.feeds = feeds or {}
        self.init = init if init is not None else tf.global_variables_initializer()
        # Run by every worker after the chief's `init`.
        self.local_init = local_init
        # Ops that threads of the chief run until the session ends.
        self.threads = list(threads)
        # Whether a step may need steps of the other workers to end.
        self.waits_for_others = waits_for_others


def null_step(floats, variables=1, name="v"):
    """The null step of the TensorFlow paper: fetches the parameters, computes next to nothing, and sends an update of their size.

    The parameters may be several variables, which are placed on the parameter servers in turn. Servers identify variables by
    their names, so steps that share servers need different names.
    """
    def build(worker, workers):
        updates = []
        for number in range(variables):
            variable = tf.get_variable(
                f"{name}{number}", [floats] if floats > 1 else [], initializer=tf.zeros_initializer())
            with worker_device(worker):
                update = tf.identity(variable) * 0.5
            updates.append(tf.assign_sub(variable, update).op)
        return Case(updates)
    return build


def sparse_step(rows, width, batch):
    """The same for a table of which a step uses only some rows."""
    def build(worker, workers):
        table = tf.get_variable("table", [rows, width], initializer=tf.zeros_initializer())
        ids = tf.placeholder(tf.int32, [batch], name="ids")
        taken = tf.nn.embedding_lookup(table, ids)
        with worker_device(worker):
            update = taken * 0.5
        ids_value = np.random.RandomState(worker).randint(0, rows, batch).astype(np.int32)
        return Case([tf.scatter_sub(table, ids, update).op], {ids: ids_value})
    return build


def mlp_loss(hidden=100):
    x = tf.placeholder(tf.float32, [None, 784], name="x")
    y_ = tf.placeholder(tf.float32, [None, 10], name="y_")
    hid_w = tf.Variable(tf.truncated_normal([784, hidden], stddev=1.0 / 28, seed=1), name="hid_w")
    hid_b = tf.Variable(tf.zeros([hidden]), name="hid_b")
    sm_w = tf.Variable(tf.truncated_normal([hidden, 10], stddev=0.1, seed=2), name="sm_w")
    sm_b = tf.Variable(tf.zeros([10]), name="sm_b")
    hid = tf.nn.relu(tf.nn.xw_plus_b(x, hid_w, hid_b))
    y = tf.nn.softmax(tf.nn.xw_plus_b(hid, sm_w, sm_b))
    return x, y_, -tf.reduce_sum(y_ * tf.log(tf.clip_by_value(y, 1e-10, 1.0)))


def mlp(worker, workers):
    """The program of mnist_replica: 784-100-10, batch 100, Adam."""
    x, y_, loss = mlp_loss()
    global_step = tf.train.get_or_create_global_step()
    step = tf.train.AdamOptimizer(0.01).minimize(loss, global_step=global_step)
    return Case([step, global_step], digits(worker, x, y_))


def mlp_sync(worker, workers):
    """The same with the gradients of all workers averaged in every step."""
    x, y_, loss = mlp_loss()
    global_step = tf.train.get_or_create_global_step()
    optimizer = tf.train.SyncReplicasOptimizer(
        tf.train.AdamOptimizer(0.01), replicas_to_aggregate=workers, total_num_replicas=workers)
    step = optimizer.minimize(loss, global_step=global_step)
    queue_runner = optimizer.get_chief_queue_runner()
    tokens = optimizer.get_init_tokens_op()
    local_init = optimizer.chief_init_op if worker == 0 else optimizer.local_step_init_op
    with tf.control_dependencies([tf.global_variables_initializer()]):
        init = tf.identity(0)
    if worker == 0:
        local_init = tf.group(local_init, tokens)
    return Case([step, global_step], digits(worker, x, y_), init.op, local_init,
                queue_runner.enqueue_ops if worker == 0 else (), waits_for_others=True)


def cnn_loss():
    x = tf.placeholder(tf.float32, [None, 784], name="x")
    y_ = tf.placeholder(tf.float32, [None, 10], name="y_")

    def variable(shape, seed):
        return tf.Variable(tf.truncated_normal(shape, stddev=0.1, seed=seed))

    def layer(image, width, inputs, outputs, seed):
        conv = tf.nn.conv2d(image, variable([width, width, inputs, outputs], seed), [1, 1, 1, 1], "SAME")
        relu = tf.nn.relu(tf.nn.bias_add(conv, variable([outputs], seed + 1)))
        return tf.nn.max_pool(relu, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")

    image = layer(layer(tf.reshape(x, [-1, 28, 28, 1]), 5, 1, 32, 1), 5, 32, 64, 3)
    flat = tf.reshape(image, [-1, 7 * 7 * 64])
    hid = tf.nn.relu(tf.matmul(flat, variable([7 * 7 * 64, 512], 5)) + variable([512], 6))
    logits = tf.matmul(hid, variable([512, 10], 7)) + variable([10], 8)
    return x, y_, tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(labels=y_, logits=logits))


def cnn(worker, workers):
    """5x5x32, 5x5x64, 512, 10 on 28x28, batch 100."""
    x, y_, loss = cnn_loss()
    step = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
    return Case([step], digits(worker, x, y_))


def embedding(worker, workers):
    """A table of 1 M x 64, 26 lookups an example, batch 512, Adagrad."""
    rows, width, lookups, batch = 1_000_000, 64, 26, 512
    table = tf.get_variable("table", [rows, width], initializer=tf.constant_initializer(0.01))
    ids = tf.placeholder(tf.int64, [batch, lookups], name="ids")
    y_ = tf.placeholder(tf.float32, [batch, 1], name="y_")
    flat = tf.reshape(tf.nn.embedding_lookup(table, ids), [batch, lookups * width])
    w1 = tf.Variable(tf.truncated_normal([lookups * width, 64], stddev=0.02, seed=1))
    w2 = tf.Variable(tf.truncated_normal([64, 1], stddev=0.1, seed=2))
    hid = tf.nn.relu(tf.matmul(flat, w1) + tf.Variable(tf.zeros([64])))
    logits = tf.matmul(hid, w2) + tf.Variable(tf.zeros([1]))
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=y_, logits=logits))
    step = tf.train.AdagradOptimizer(0.05).minimize(loss)
    random = np.random.RandomState(worker)
    return Case([step], {ids: random.randint(0, rows, [batch, lookups]),
                         y_: random.randint(0, 2, [batch, 1]).astype(np.float32)})


def lstm(worker, workers):
    """dynamic_rnn over 28 rows of 28 pixels, 128 units, batch 100."""
    x = tf.placeholder(tf.float32, [None, 784], name="x")
    y_ = tf.placeholder(tf.float32, [None, 10], name="y_")
    cell = tf.nn.rnn_cell.BasicLSTMCell(128)
    outputs, _ = tf.nn.dynamic_rnn(cell, tf.reshape(x, [-1, 28, 28]), dtype=tf.float32)
    w = tf.Variable(tf.truncated_normal([128, 10], stddev=0.1, seed=2))
    logits = tf.matmul(outputs[:, -1], w) + tf.Variable(tf.zeros([10]))
    loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(labels=y_, logits=logits))
    step = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    return Case([step], digits(worker, x, y_))


def receive(floats, tensors=1, name="v"):
    """Transfers tensors from ps to worker and returns nothing: RecvTensor's bandwidth."""
    def build(worker, workers):
        received = []
        for number in range(tensors):
            variable = tf.get_variable(f"{name}{number}", [floats], initializer=tf.zeros_initializer())
            with worker_device(worker):
                received.append(tf.strided_slice(tf.identity(variable), [0], [1]).op)
        return Case(received)
    return build


def worker_device(worker):
    return tf.device(f"/job:worker/task:{worker}")


def digits(worker, x, y_, batch=100):
    """A batch of the bundled digits, a different one for each worker."""
    images = idx("train-images-idx3-ubyte.gz", 16, worker * batch * 784, batch * 784)
    labels = idx("train-labels-idx1-ubyte.gz", 8, worker * batch, batch)
    return {x: images.reshape(batch, 784).astype(np.float32) / 255, y_: np.eye(10, dtype=np.float32)[labels]}


def idx(name, header, first, count):
    """Returns the data of a digits file after its header."""
    with gzip.open(DIGITS / name) as file:
        return np.frombuffer(file.read(header + first + count)[header + first:], np.uint8)
