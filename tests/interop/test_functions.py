"""Functions of a graph's library: called by their names as ops, their gradients, and functions that call themselves."""

import threading

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from google.protobuf import text_format
from tensorflow.core.framework import graph_pb2
from tensorflow.python.framework import function
from tensorflow.python.ops import functional_ops

import harness

tf.disable_v2_behavior()

PS = "/job:ps/task:0"
WORKER_1 = "/job:worker/task:1"


def on_both(shared_cluster, fetches, feeds=None):
    """Runs on our servers and in TensorFlow's own session, and compares."""
    with tf.Session() as local:
        expected = local.run(fetches, feeds)
    with tf.Session(shared_cluster.target) as session:
        got = session.run(fetches, feeds)
    for one, other in zip(tf.nest.flatten(got), tf.nest.flatten(expected)):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    return got


def test_functions_called_by_name_and_their_gradients(shared_cluster, graph):
    @function.Defun(tf.float32, tf.float32)
    def inner(a, b):
        return a * b + tf.tanh(a)

    @function.Defun(tf.float32, tf.float32, tf.int32)
    def outer(a, b, n):
        return inner(a, b) * 2.0, tf.reduce_sum(b), n + 1

    x = tf.placeholder_with_default([1.0, 2.0], [2])
    y = tf.placeholder_with_default([3.0, 4.0], [2])
    product, total, count = outer(x, y, tf.placeholder_with_default(1, []))
    assert product.op.type.startswith("outer")
    gradients = tf.gradients([product, total], [x, y])
    assert all(gradient.op.type == "SymbolicGradient" for gradient in gradients)
    got = on_both(shared_cluster, [product, total, count, gradients])
    np.testing.assert_allclose(got[3][1], [3.0, 5.0])


def test_functions_with_a_gradient_of_their_own(shared_cluster, graph):
    @function.Defun(tf.float32, tf.float32)
    def hundredfold(x, dy):
        return dy * 100.0 * x

    @function.Defun(tf.float32, grad_func=hundredfold)
    def square(x):
        return x * x

    x = tf.placeholder_with_default([1.0, 2.0], [2])
    got = on_both(shared_cluster, [square(x), tf.gradients(square(x), x)])
    assert got[1][0].tolist() == [100.0, 200.0]


def test_functions_train_variables_on_the_ps(shared_cluster, graph):
    @function.Defun(tf.float32, tf.float32, tf.float32)
    def layer(weights, bias, x):
        return tf.nn.relu(tf.matmul(x, weights) + bias)

    with tf.device(PS):
        weights = tf.Variable(np.full((3, 2), 0.5, np.float32), name="function_weights", use_resource=False)
        bias = tf.Variable([0.1, -0.1], name="function_bias", use_resource=False)
    with tf.device(WORKER_1):
        x = tf.placeholder(tf.float32, [None, 3])
        loss = tf.reduce_mean(tf.square(layer(weights, bias, x) - 1.0))
        train = tf.train.GradientDescentOptimizer(0.3).minimize(loss)
    feed = {x: np.arange(12, dtype=np.float32).reshape(4, 3) / 10}

    with tf.Session(shared_cluster.target) as session:
        session.run([weights.initializer, bias.initializer])
        got = [session.run([loss, train], feed)[0] for _ in range(20)]
    assert got[-1] < 0.5 * got[0], got
    with tf.Graph().as_default():
        tf.import_graph_def(without_devices(graph), name="")
        with tf.Session() as local:
            local.run([weights.initializer.name, bias.initializer.name])
            fed = {x.name: feed[x]}
            expected = [local.run([loss.name, train.name], fed)[0] for _ in range(20)]
    np.testing.assert_allclose(got, expected, rtol=1e-4)


def without_devices(graph):
    definition = graph.as_graph_def()
    for node in definition.node:
        node.device = ""
    return definition


COUNTDOWN = """
node { name: "n" op: "Placeholder" attr { key: "dtype" value { type: DT_INT32 } } attr { key: "shape" value { shape { } } } }
node { name: "down" op: "countdown" input: "n" }
node { name: "plain" op: "stop" input: "n" }
library {
  function {
    signature { name: "stop" input_arg { name: "n" type: DT_INT32 } output_arg { name: "out" type: DT_INT32 } }
    node_def { name: "same" op: "Identity" input: "n" attr { key: "T" value { type: DT_INT32 } } }
    ret { key: "out" value: "same:output:0" }
  }
  function {
    signature { name: "again" input_arg { name: "n" type: DT_INT32 } output_arg { name: "out" type: DT_INT32 } }
    node_def { name: "one" op: "Const" attr { key: "dtype" value { type: DT_INT32 } }
      attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { } int_val: 1 } } } }
    node_def { name: "less" op: "Sub" input: "n" input: "one:output:0" attr { key: "T" value { type: DT_INT32 } } }
    node_def { name: "call" op: "countdown" input: "less:z:0" }
    ret { key: "out" value: "call:out:0" }
  }
  function {
    signature { name: "countdown" input_arg { name: "n" type: DT_INT32 } output_arg { name: "out" type: DT_INT32 } }
    node_def { name: "zero" op: "Const" attr { key: "dtype" value { type: DT_INT32 } }
      attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { } int_val: 0 } } } }
    node_def { name: "more" op: "Greater" input: "n" input: "zero:output:0" attr { key: "T" value { type: DT_INT32 } } }
    node_def { name: "if" op: "If" input: "more:z:0" input: "n" attr { key: "Tcond" value { type: DT_BOOL } }
      attr { key: "Tin" value { list { type: DT_INT32 } } } attr { key: "Tout" value { list { type: DT_INT32 } } }
      attr { key: "then_branch" value { func { name: "again" } } }
      attr { key: "else_branch" value { func { name: "stop" } } } attr { key: "output_shapes" value { list { } } } }
    ret { key: "out" value: "if:output:0" }
  }
}
"""


def test_functions_that_call_themselves(cluster, graph, server_kind):
    if server_kind == harness.TENSORFLOW:
        pytest.skip("TensorFlow's servers call the function until they have no memory")
    made = cluster(ps=0, workers=1)
    tf.import_graph_def(text_format.Parse(COUNTDOWN, graph_pb2.GraphDef()), name="")
    with tf.Session(made.target) as session:
        assert session.run("down:0", {"n:0": 0}) == 0
        assert session.run("down:0", {"n:0": 300}) == 0
        # As good as without an end; the client itself would crash on a graph with a function that has none.
        with pytest.raises(tf.errors.FailedPreconditionError, match="does it call itself without end"):
            session.run("down:0", {"n:0": 1000000})
        errors = []

        def run():
            try:
                session.run("down:0", {"n:0": 1000000})
            except tf.errors.OpError as error:
                errors.append(error)

        threads = [threading.Thread(target=run) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(errors) == 8 and all(isinstance(error, tf.errors.FailedPreconditionError) for error in errors), errors
        # The server stays alive.
        assert session.run("plain:0", {"n:0": 7}) == 7
    assert made.worker().returncode is None


# Functions on other devices of the task and on other tasks, and functions whose bodies are on several.
PS_CPU = "/job:ps/replica:0/task:0/device:CPU:0"
WORKER_1_CPU = "/job:worker/replica:0/task:1/device:CPU:0"


def remote_call(target, body, args, types):
    return functional_ops.remote_call(target=target, args=args, Tout=types, f=body)


@pytest.mark.parametrize("target", [PS_CPU, WORKER_1_CPU, "/job:ps/task:0/cpu:0"])
def test_a_function_is_called_on_another_task(shared_cluster, graph, target):
    @function.Defun(tf.float32, tf.int32)
    def body(x, n):
        return x * 2.0 + tf.cast(n, tf.float32), n + 1

    fed = tf.placeholder(tf.float32, [2])
    calls = [remote_call(target, body, [fed, tf.constant(n)], [tf.float32, tf.int32]) for n in range(3)]
    with tf.Session(shared_cluster.target) as session:
        for _ in range(3):
            got = session.run(calls, {fed: [1.0, 2.0]})
    assert [(values.tolist(), count) for values, count in got] == [([2.0, 4.0], 1), ([3.0, 5.0], 2), ([4.0, 6.0], 3)]


def test_a_function_reads_and_writes_variables_of_another_task(shared_cluster, graph):
    with tf.device("/job:ps/task:0"):
        variable = tf.get_variable("counted_remotely", initializer=1.0, use_resource=True)

    @function.Defun(tf.resource, tf.float32)
    def body(handle, x):
        with tf.control_dependencies([tf.raw_ops.AssignAddVariableOp(resource=handle, value=x)]):
            return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)

    with tf.device("/job:worker/task:0"):
        added = remote_call(PS_CPU, body, [variable.handle, tf.constant(2.0)], [tf.float32])
    with tf.Session(shared_cluster.target) as session:
        session.run(variable.initializer)
        assert [session.run(added)[0] for _ in range(3)] == [3.0, 5.0, 7.0]
        assert session.run(variable) == 7.0


def test_a_function_whose_body_is_on_two_tasks(shared_cluster, graph):
    @function.Defun(tf.float32)
    def body(x):
        with tf.device("/job:ps/task:0"):
            doubled = tf.identity(x * 2.0, name="doubled")
        with tf.device("/job:worker/task:1"):
            total = tf.reduce_sum(doubled + 1.0)
        return total, x - 1.0

    fed = tf.placeholder(tf.float32, [2])
    with tf.device("/job:worker/task:0"):
        outputs = tf.raw_ops.StatefulPartitionedCall(args=[fed], Tout=[tf.float32, tf.float32], f=body)
    with tf.Session(shared_cluster.target) as session:
        for _ in range(2):
            total, rest = session.run(outputs, {fed: [1.0, 2.0]})
    assert total == 8.0 and rest.tolist() == [0.0, 1.0]


def test_errors_and_cancellation_of_a_function_on_another_task(shared_cluster, graph):
    @function.Defun(tf.float32)
    def body(x):
        with tf.control_dependencies([tf.Assert(x > 0, ["it is", x])]):
            return tf.identity(x)

    fed = tf.placeholder(tf.float32, [])
    call = remote_call(PS_CPU, body, [fed], [tf.float32])
    with tf.Session(shared_cluster.target) as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="assertion failed"):
            session.run(call, {fed: -1.0})
        assert session.run(call, {fed: 1.0}) == [1.0]
        nowhere = remote_call("/job:nowhere/task:0/cpu:0", body, [fed], [tf.float32])
        with pytest.raises(tf.errors.OpError):
            session.run(nowhere, {fed: 1.0})

    @function.Defun(tf.resource)
    def waiting(queue):
        return tf.raw_ops.QueueDequeueV2(handle=queue, component_types=[tf.float32])

    with tf.device("/job:ps/task:0"):
        queue = tf.FIFOQueue(1, [tf.float32], [[]])
    waits = remote_call(PS_CPU, waiting, [queue.queue_ref], [tf.float32])
    with tf.Session(shared_cluster.target) as session:
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(waits, options=tf.RunOptions(timeout_in_ms=2000))
        session.run(queue.enqueue(4.0))
        assert session.run(waits) == [4.0]


def test_a_function_on_another_cpu_of_the_task(cluster, graph, server_kind):
    if server_kind == harness.TENSORFLOW:
        pytest.skip("the test's real servers have one CPU each")
    made = cluster(ps=0, workers=1, arguments=["--device_count=2"])
    other = "/job:worker/replica:0/task:0/device:CPU:1"

    @function.Defun(tf.float32)
    def body(x):
        with tf.device("/cpu:1"):
            y = x * 3.0
        return y

    with tf.device(other):
        variable = tf.get_variable("on_the_second", initializer=5.0, use_resource=True)
    with tf.device("/job:worker/task:0/cpu:0"):
        remote = remote_call(other, body, [tf.constant(2.0)], [tf.float32])
        local = tf.raw_ops.PartitionedCall(args=[tf.constant(2.0)], Tout=[tf.float32], f=body)

        @function.Defun(tf.resource)
        def read(handle):
            return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)

        of_other = tf.raw_ops.StatefulPartitionedCall(args=[variable.handle], Tout=[tf.float32], f=read)
    with tf.Session(made.target) as session:
        session.run(variable.initializer)
        assert session.run([remote, local, of_other]) == [[6.0], [6.0], [5.0]]
