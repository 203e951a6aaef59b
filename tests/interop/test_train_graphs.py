"""The graphs that the Rust library builds for training equal TensorFlow's, node by node, and train as TensorFlow does."""

import os
import subprocess

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import harness
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

# What TensorFlow 2's own bookkeeping leaves behind, which means nothing to a runtime.
IGNORED_ATTRIBUTES = {"_has_manual_control_dependencies"}

OPTIMIZERS = {
    "gradient_descent": lambda step: tf.train.GradientDescentOptimizer(0.1),
    "momentum": lambda step: tf.train.MomentumOptimizer(0.1, 0.9),
    "nesterov": lambda step: tf.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "adagrad": lambda step: tf.train.AdagradOptimizer(0.1),
    "adagrad_da": lambda step: tf.train.AdagradDAOptimizer(0.1, step),
    "adadelta": lambda step: tf.train.AdadeltaOptimizer(0.001),
    "adam": lambda step: tf.train.AdamOptimizer(0.001),
    "rmsprop": lambda step: tf.train.RMSPropOptimizer(0.1),
    "rmsprop_centered": lambda step: tf.train.RMSPropOptimizer(0.1, centered=True),
    "ftrl": lambda step: tf.train.FtrlOptimizer(0.1),
    "ftrl_shrinkage": lambda step: tf.train.FtrlOptimizer(0.1, l2_shrinkage_regularization_strength=0.5),
    "proximal_gradient_descent": lambda step: tf.train.ProximalGradientDescentOptimizer(0.1),
    "proximal_adagrad": lambda step: tf.train.ProximalAdagradOptimizer(0.1),
}


@pytest.fixture(scope="session")
def graphs(tmp_path_factory):
    """Builds all graphs in Rust and returns a function from their names to GraphDefs."""
    path = harness.example("train_graphs")
    directory = tmp_path_factory.mktemp("graphs")
    subprocess.run([path, str(directory)], check=True)

    def read(name):
        return tf.GraphDef.FromString((directory / f"{name}.pb").read_bytes())

    return read


def attributes(node):
    """Returns a node's attributes with tensors as arrays, so that only their values count."""
    result = {}
    for name, value in node.attr.items():
        if name in IGNORED_ATTRIBUTES:
            continue
        if value.HasField("tensor"):
            array = tf.make_ndarray(value.tensor)
            result[name] = (str(array.dtype), array.shape, array.tolist())
        else:
            result[name] = value.SerializeToString(deterministic=True)
    return result


def described(graph_def):
    """Returns op, data inputs in order, control inputs as a set, device and attributes by node name."""
    nodes = {}
    for node in graph_def.node:
        data = [name.removesuffix(":0") for name in node.input if not name.startswith("^")]
        control = sorted(name for name in node.input if name.startswith("^"))
        nodes[node.name] = (node.op, data, control, node.device, attributes(node))
    return nodes


def assert_equal(ours, theirs):
    ours, theirs = described(ours), described(theirs.as_graph_def())
    assert sorted(ours) == sorted(theirs)
    for name, expected in theirs.items():
        for part, mine, wanted in zip(("op", "inputs", "controls", "device", "attributes"), ours[name], expected):
            assert mine == wanted, f"{part} of {name}"


# TensorFlow's proximal optimizers take variables of float32 only.
SIZES = [(name, size) for name in OPTIMIZERS for size in ("", "-large") if not (size and name.startswith("proximal"))]


@pytest.mark.parametrize("name, size", SIZES)
@pytest.mark.parametrize("kind", ["ref", "resource"])
@pytest.mark.parametrize("gradient", ["dense", "sparse"])
def test_optimizer(graphs, name, kind, gradient, size):
    """Large variables, whose slots are filled on the device, have another type than the optimizer's numbers, too."""
    resource = kind == "resource"
    dtype, rows, columns = (tf.float64, 2, 1000) if size else (tf.float32, 4, 3)
    with tf.Graph().as_default() as graph:
        v = tf.get_variable("v", [rows, columns], dtype, tf.zeros_initializer(), use_resource=resource)
        w = tf.get_variable("w", [columns], dtype, tf.ones_initializer(), use_resource=resource)
        step = global_step(resource)
        values = tf.placeholder(dtype, [2 if gradient == "sparse" else rows, columns], name="gv")
        if gradient == "sparse":
            values = tf.IndexedSlices(values, tf.placeholder(tf.int32, [2], name="gi"))
        dense = tf.placeholder(dtype, [columns], name="gw")
        OPTIMIZERS[name](step).apply_gradients([(values, v), (dense, w)], global_step=step)
    assert_equal(graphs(f"{name}-{kind}-{gradient}{size}"), graph)
    # Ours must be no larger for what it carries; a tenth is left for how messages may be written.
    assert graphs(f"{name}-{kind}-{gradient}{size}").ByteSize() <= 1.1 * graph.as_graph_def().ByteSize()


STEPS = 50


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("kind", ["ref", "resource"])
@pytest.mark.parametrize("gradient", ["dense", "sparse"])
def test_fifty_steps(graphs, shared_cluster, name, kind, gradient):
    """The graph of the Rust library, fed with the same gradients, on our server and in TensorFlow's own session."""
    ours = fifty_steps(graphs(f"{name}-{kind}-{gradient}"), gradient, shared_cluster.target)
    theirs = fifty_steps(graphs(f"{name}-{kind}-{gradient}"), gradient, "")
    assert len(ours) == len(theirs) == STEPS
    for step, (mine, wanted) in enumerate(zip(ours, theirs)):
        for variable, value in wanted.items():
            np.testing.assert_allclose(mine[variable], value, rtol=2e-4, atol=1e-6, err_msg=f"{variable}, step {step}")


def fifty_steps(graph_def, gradient, target):
    """Returns the values of all variables after each step."""
    random = np.random.RandomState(5)
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        with tf.Session(target) as session:
            operations = graph.get_operations()
            held = [op for op in operations if op.type in ("VariableV2", "VarHandleOp")]
            session.run([graph.get_operation_by_name(f"{op.name}/Assign") for op in held])
            reads = {op.name: f"{op.name}/{'read' if op.type == 'VariableV2' else 'Read/ReadVariableOp'}:0" for op in held}
            step = graph.get_operation_by_name("global_step")
            changes = ("AssignAdd", "AssignAddVariableOp")
            train = [op for op in operations if op.type in changes and step.outputs[0] in op.inputs]
            results = []
            for _ in range(STEPS):
                feeds = {"gw:0": random.randn(3)}
                if gradient == "sparse":
                    feeds["gv:0"] = random.randn(2, 3)
                    feeds["gi:0"] = random.randint(0, 4, [2])
                else:
                    feeds["gv:0"] = random.randn(4, 3)
                session.run(train, feeds)
                results.append(session.run(reads))
            return results


def global_step(resource=False):
    zeros = tf.zeros_initializer()
    return tf.get_variable("global_step", [], tf.int64, initializer=zeros, trainable=False, use_resource=resource)


def setter(**arguments):
    return tf.device(tf.train.replica_device_setter(ps_tasks=2, worker_device="/job:worker/task:1", **arguments))


@pytest.mark.parametrize("sharded", [False, True])
def test_saver(graphs, sharded):
    with tf.Graph().as_default() as graph, setter():
        tf.get_variable("v", [4, 3], initializer=tf.zeros_initializer())
        tf.get_variable("w", [3], initializer=tf.zeros_initializer(), use_resource=True)
        tf.train.Saver(sharded=sharded)
    assert_equal(graphs("saver-sharded" if sharded else "saver"), graph)


def test_synchronous_replicas(graphs):
    with tf.Graph().as_default() as graph, setter():
        step = global_step()
        v = tf.get_variable("v", [4, 3], initializer=tf.zeros_initializer())
        w = tf.get_variable("w", [3], initializer=tf.zeros_initializer())
        dense = tf.placeholder(tf.float32, [4, 3], name="gv")
        values = tf.placeholder(tf.float32, [2], name="gwv")
        indices = tf.placeholder(tf.int64, [2], name="gwi")
        sparse = tf.IndexedSlices(values, indices, tf.placeholder(tf.int64, [1], name="gws"))
        inner = tf.train.GradientDescentOptimizer(0.1)
        optimizer = tf.train.SyncReplicasOptimizer(inner, replicas_to_aggregate=2, total_num_replicas=3)
        optimizer.apply_gradients([(dense, v), (sparse, w)], global_step=step)
        optimizer.get_init_tokens_op()
        optimizer.get_chief_queue_runner()
    assert_equal(graphs("sync"), graph)


class GreedyBytes:
    """Gives every variable to the task that has the fewest bytes so far."""

    def __init__(self):
        self.loads = [0, 0]

    def __call__(self, op):
        task = self.loads.index(min(self.loads))
        shape = tf.TensorShape(op.get_attr("shape"))
        self.loads[task] += shape.num_elements() * op.get_attr("dtype").size
        return task


def test_variables_and_placement(graphs):
    with tf.Graph().as_default() as graph, setter(ps_strategy=GreedyBytes()):
        with tf.variable_scope("sc"):
            tf.get_variable("v", [4, 3], initializer=tf.random_normal_initializer(seed=3))
            tf.get_variable("t", [4, 3], initializer=tf.truncated_normal_initializer(stddev=0.1))
            tf.get_variable("u", [4, 3])
            tf.get_variable("q", [6], initializer=tf.constant_initializer(0.5))
            tf.get_variable("ru", [4, 3], initializer=tf.random_uniform_initializer(-1, 1), use_resource=True)
        tf.train.create_global_step()
        tf.Variable([1.0, 2.0], name="local", collections=[tf.GraphKeys.LOCAL_VARIABLES], trainable=False)
        tf.global_variables_initializer()
        tf.local_variables_initializer()
        tf.report_uninitialized_variables()
    assert_equal(graphs("variables"), graph)


def test_decays_clipping_gates_and_averages(graphs, shared_cluster):
    """What the Rust library adds beside optimizers has, on our server, the values of TensorFlow's."""
    with tf.Graph().as_default():
        theirs = helpers()
        with tf.Session() as session:
            expected = helped(session, theirs)
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graphs("helpers"), name="")
        held = [op.name for op in graph.get_operations() if op.type == "VariableV2"]
        ours = {name: f"out_{name}:0" for name in theirs if not name.startswith("_")}
        assert sorted(ours.values()) == sorted(f"{op.name}:0" for op in graph.get_operations() if op.name.startswith("out_"))
        ours |= {"_init": [f"{name}/Assign" for name in held], "_update": "update_averages"}
        ours |= {"_step": "global_step:0", "_x": "x:0", "_y": "y:0", "_i": "i:0"}
        with tf.Session(shared_cluster.target) as session:
            values = helped(session, ours)
    for step, (mine, wanted) in enumerate(zip(values, expected)):
        for name, value in wanted.items():
            np.testing.assert_allclose(mine[name], value, rtol=1e-5, atol=1e-6, err_msg=f"{name}, step {step}")


def helpers():
    """The graph `helpers` with TensorFlow's own functions."""
    step = global_step()
    v = tf.get_variable("v", [4, 3], initializer=tf.constant_initializer(2.0))
    x = tf.placeholder(tf.float32, [4, 3])
    y = tf.IndexedSlices(tf.placeholder(tf.float32, [2, 3]), tf.placeholder(tf.int32, [2]))
    out = {"_step": step, "_x": x, "_y": y.values, "_i": y.indices}
    for name, staircase in (("", False), ("_staircase", True)):
        out[f"exponential{name}"] = tf.train.exponential_decay(0.1, step, 10, 0.5, staircase)
        out[f"natural_exp{name}"] = tf.train.natural_exp_decay(0.1, step, 10, 0.5, staircase)
        out[f"inverse_time{name}"] = tf.train.inverse_time_decay(0.1, step, 10, 0.5, staircase)
    out["polynomial"] = tf.train.polynomial_decay(1.0, step, 10, 0.1, 2.0)
    out["polynomial_cycle"] = tf.train.polynomial_decay(1.0, step, 10, 0.1, 2.0, cycle=True)
    out["cosine"] = tf.train.cosine_decay(0.1, step, 10, 0.2)
    out["piecewise"] = tf.train.piecewise_constant(step, [2, 9], [1.0, 0.5, 0.1])
    out["by_value"] = tf.clip_by_value(x, -0.5, 0.5)
    out["by_norm"] = tf.clip_by_norm(x, 1.5)
    (dense, _, slices), out["global_norm"] = tf.clip_by_global_norm([x, None, y], 2.5)
    out["global_dense"], out["global_slices"] = dense, slices.values
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    loss = tf.reduce_sum(tf.square(v * x))
    for name, gate in (("none", optimizer.GATE_NONE), ("op", optimizer.GATE_OP), ("graph", optimizer.GATE_GRAPH)):
        out[f"gate_{name}"] = optimizer.compute_gradients(loss, gate_gradients=gate)[0][0]
    averages = tf.train.ExponentialMovingAverage(0.9, step)
    out["_update"] = averages.apply([v])
    out["average"] = averages.average(v).read_value()
    out["_init"] = tf.global_variables_initializer()
    return out


def helped(session, names):
    """Returns the values at some steps; the average is of what was fed as the variable's value."""
    random = np.random.RandomState(6)
    outputs = {name: output for name, output in names.items() if not name.startswith("_")}
    session.run(names["_init"])
    results = []
    for step in (0, 1, 2, 3, 5, 9, 10, 15, 20, 25):
        feeds = {names["_step"]: step, names["_x"]: random.randn(4, 3), names["_y"]: random.randn(2, 3)}
        feeds[names["_i"]] = random.randint(0, 4, [2])
        session.run(names["_update"], {names["_step"]: step, "v:0": random.randn(4, 3)})
        results.append(session.run(outputs, feeds))
    return results
