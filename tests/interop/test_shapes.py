"""Shapes inferred from a GraphDef equal TensorFlow's, or are more specific; a GraphDef is written as it was read."""

import os
import subprocess

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.framework import function

import harness

tf.disable_v2_behavior()


def mlp():
    x = tf.placeholder(tf.float32, [None, 784])
    labels = tf.placeholder(tf.float32, [None, 10])
    w1 = tf.get_variable("w1", [784, 100])
    b1 = tf.get_variable("b1", [100])
    w2 = tf.get_variable("w2", [100, 10], use_resource=True)
    b2 = tf.get_variable("b2", [10], use_resource=True)
    hidden = tf.nn.relu(tf.nn.xw_plus_b(x, w1, b1))
    logits = tf.matmul(hidden, w2) + b2
    loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(labels=labels, logits=logits))
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), tf.argmax(labels, 1)), tf.float32))
    step = tf.train.get_or_create_global_step()
    tf.train.AdamOptimizer().minimize(loss, global_step=step)
    tf.identity(accuracy)


def cnn():
    images = tf.placeholder(tf.float32, [100, 28, 28, 1])
    net = images
    for index, channels in enumerate([32, 64]):
        kernel = tf.get_variable(f"kernel{index}", [5, 5, net.shape[3], channels])
        bias = tf.get_variable(f"bias{index}", [channels])
        net = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(net, kernel, [1, 1, 1, 1], "SAME"), bias))
        net = tf.nn.max_pool(net, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
    flat = tf.reshape(net, [-1, 7 * 7 * 64])
    dense = tf.get_variable("dense", [7 * 7 * 64, 10])
    loss = tf.reduce_sum(tf.square(tf.matmul(tf.nn.dropout(flat, rate=0.5), dense)))
    tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)


def array_ops():
    x = tf.placeholder(tf.float32, [None, 3, 4])
    shape = tf.shape(x)
    tf.reshape(x, [shape[0], 12])
    tf.reshape(x, tf.stack([shape[0] * 3, 4]))
    tf.fill(tf.concat([[shape[0]], [7]], 0), 1.0)
    tf.transpose(x, [2, 0, 1])
    tf.concat([x, x], 1)
    tf.split(x, 2, axis=2)
    tf.tile(x, [1, 2, 3])
    x[:, 1:, ::2]
    x[0, ..., tf.newaxis]
    tf.expand_dims(x, -1)
    tf.squeeze(tf.expand_dims(x, 1), [1])
    tf.one_hot(tf.placeholder(tf.int32, [None, 2]), 5)
    tf.gather(x, [0, 1], axis=1)
    tf.pad(x, [[0, 0], [1, 2], [3, 0]])
    tf.unstack(x, axis=1)
    tf.zeros_like(x)
    tf.range(3, 10, 2)
    tf.reduce_max(x, [0, 2], keepdims=True)
    tf.argmax(x, 2)
    tf.where(x > 0, x, -x)
    tf.matmul(x, x, transpose_b=True)


def control_flow():
    x = tf.placeholder(tf.float32, [3, 4])
    flag = tf.placeholder(tf.bool, [])
    tf.cond(flag, lambda: x + 1.0, lambda: x * 2.0)
    tf.cond(flag, lambda: x, lambda: tf.zeros([3, 5]))
    tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2.0), [tf.constant(0), x])
    tf.while_loop(
        lambda i, a: i < 3,
        lambda i, a: (i + 1, tf.concat([a, a], 0)),
        [tf.constant(0), x],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, 4])],
    )


@pytest.fixture(scope="module")
def program():
    return harness.example("shapes")


@pytest.mark.parametrize("build", [mlp, cnn, array_ops, control_flow], ids=lambda build: build.__name__)
def test_shapes_equal_tensorflows(build, program, tmp_path):
    with tf.Graph().as_default() as graph:
        build()
        path = tmp_path / "graph.pb"
        path.write_bytes(graph.as_graph_def().SerializeToString())
        output = subprocess.run([program, path], check=True, stdout=subprocess.PIPE, text=True).stdout
        ours = dict(line.split("\t") for line in output.splitlines())
        differences = []
        for operation in graph.get_operations():
            for tensor in operation.outputs:
                found = parse(ours[tensor.name])
                if not says_as_much(found, tensor.shape):
                    differences.append(f"{tensor.name} ({operation.type}): {found}, TensorFlow has {tensor.shape}")
    assert not differences, "\n".join(differences)


def everything():
    """Adds what a GraphDef can hold beside plain nodes."""
    mlp()
    control_flow()

    @function.Defun(tf.float32, func_name="twice")
    def twice(x):
        return x * 2.0

    with tf.device("/job:ps/task:0/cpu:0"):
        table = tf.get_variable("table", [4, 2])
    with tf.control_dependencies([table.initializer]), tf.colocate_with(table):
        y = tf.identity(table, name="after")
    tf.gradients(twice(y), table)
    tf.data.Dataset.range(3).map(lambda x: x + 1).make_one_shot_iterator().get_next()
    tf.constant([b"\xff\x00", b""])


@pytest.mark.parametrize("add_shapes", [False, True])
def test_a_graph_is_written_as_it_was_read(program, tmp_path, add_shapes):
    with tf.Graph().as_default() as graph:
        everything()
        exported = graph.as_graph_def(add_shapes=add_shapes)
    path, copy = tmp_path / "graph.pb", tmp_path / "copy.pb"
    path.write_bytes(exported.SerializeToString())
    subprocess.run([program, path, copy], check=True)
    written = tf.GraphDef.FromString(copy.read_bytes())
    # One node at a time, so that a difference is easy to see.
    for theirs, ours in zip(exported.node, written.node):
        assert ours == theirs
    for theirs, ours in zip(exported.library.function, written.library.function):
        assert ours == theirs
    assert written == exported


def parse(text):
    if text == "unknown":
        return tf.TensorShape(None)
    sizes = [size for size in text.strip("[]").split(",") if size]
    return tf.TensorShape([None if size == "?" else int(size) for size in sizes])


def says_as_much(ours, theirs):
    """Returns whether our shape holds all that TensorFlow's says, and contradicts none of it."""
    return ours.is_compatible_with(theirs) and str(ours.merge_with(theirs)) == str(ours)
