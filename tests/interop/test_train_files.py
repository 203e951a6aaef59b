"""Checkpoints and events of the Rust library and of TensorFlow are each other's."""

import os
import subprocess

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from google.protobuf import text_format
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import harness

tf.disable_v2_behavior()

V = np.arange(6, dtype=np.float32).reshape(2, 3) / 4
W = np.array([7, 8, 9], np.float32)


@pytest.fixture(scope="session")
def tool():
    """Runs `train_files` and returns the lines that it prints."""
    path = harness.example("train_files")

    def run(*arguments):
        done = subprocess.run([path, *map(str, arguments)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


@pytest.fixture(scope="session")
def written(tool, tmp_path_factory):
    return tool("write", tmp_path_factory.mktemp("files"))


def variables(initial):
    """The variables of `train_files`: a ref, a resource and one in two parts."""
    v = tf.get_variable("v", initializer=tf.constant(initial(V)))
    w = tf.get_variable("w", initializer=tf.constant(initial(W)), use_resource=True)
    table = tf.get_variable(
        "table",
        [5, 2],
        initializer=tf.constant_initializer(float(initial(np.float32(2.5)))),
        partitioner=tf.fixed_size_partitioner(2),
    )
    return v, w, tf.convert_to_tensor(table)


@pytest.mark.parametrize("which", [0, 1], ids=["whole", "sharded"])
def test_tensorflow_restores_ours(written, which):
    prefix = written[which]
    with tf.Graph().as_default(), tf.Session() as session:
        values = variables(np.zeros_like)
        tf.train.Saver().restore(session, prefix)
        v, w, table = session.run(values)
    np.testing.assert_array_equal(v, V)
    np.testing.assert_array_equal(w, W)
    np.testing.assert_array_equal(table, np.full([5, 2], 2.5))
    assert os.path.exists(f"{prefix}.data-00001-of-00002") == (which == 1)


@pytest.mark.parametrize("which", [0, 1], ids=["whole", "sharded"])
def test_tensorflow_imports_our_meta_graph(written, which):
    with tf.Graph().as_default() as graph:
        saver = tf.train.import_meta_graph(f"{written[which]}.meta", clear_devices=True)
        names = sorted(variable.op.name for variable in tf.global_variables())
        assert names == ["table/part_0", "table/part_1", "v", "w"]
        with tf.Session(graph=graph) as session:
            saver.restore(session, written[which])
            np.testing.assert_array_equal(session.run("v:0"), V)


def test_tensorflow_reads_our_graph_as_text(written):
    directory = os.path.dirname(written[0])
    with open(os.path.join(directory, "graph.pbtxt")) as file:
        from_text = text_format.Parse(file.read(), tf.GraphDef())
    with open(os.path.join(directory, "graph.pb"), "rb") as file:
        assert from_text == tf.GraphDef.FromString(file.read())
    assert {"v", "w", "table/part_0", "save/SaveV2"} <= {node.name for node in from_text.node}


@pytest.fixture(scope="session")
def two_ps():
    """A cluster of TensorFlow's with two parameter servers, in this process."""
    hosts = [f"127.0.0.1:{harness.PORTS.take()}" for _ in range(3)]
    spec = tf.train.ClusterSpec({"ps": hosts[:2], "worker": hosts[2:]})
    tasks = [("ps", 0), ("ps", 1), ("worker", 0)]
    servers = [tf.train.Server(spec, job_name=job, task_index=index) for job, index in tasks]
    return spec, servers


@pytest.mark.parametrize("sharded", [False, True])
def test_we_restore_tensorflows(tool, two_ps, tmp_path, sharded):
    spec, servers = two_ps
    with tf.Graph().as_default():
        with tf.device(tf.train.replica_device_setter(cluster=spec)):
            variables(lambda value: value)
        saver = tf.train.Saver(sharded=sharded)
        with tf.Session(servers[-1].target) as session:
            session.run(tf.global_variables_initializer())
            prefix = saver.save(session, str(tmp_path / "model"), global_step=3)
    assert os.path.exists(f"{prefix}.data-00001-of-00002") == sharded
    values = numbers(tool("read", prefix))
    assert values == {"v": V.ravel().tolist(), "w": W.tolist(), "table": [2.5] * 10}
    # With the graph and the saver that TensorFlow wrote beside it.
    values = numbers(tool("import", prefix))
    parts = {"table/part_0": [2.5] * 6, "table/part_1": [2.5] * 4}
    assert values == {"v": V.ravel().tolist(), "w": W.tolist(), **parts}


def numbers(lines):
    return {line.split()[0]: [float(word) for word in line.split()[1:]] for line in lines}


def test_tensorboard_reads_our_events(written):
    events = EventAccumulator(written[2], size_guidance={"images": 10, "tensors": 10})
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(3, 0.5)]
    spread = events.Histograms("spread")[0].histogram_value
    assert (spread.min, spread.max, spread.num, spread.sum) == (-3, 2, 4, 2)
    tags = events.Tags()
    assert sorted(tags["images"]) == ["picture/image/0", "picture/image/1"]
    picture = events.Images("picture/image/0")[0]
    assert (picture.width, picture.height) == (4, 4)
    assert tf.make_ndarray(events.Tensors("words")[0].tensor_proto).item() == b"some *words*"
    assert tags["graph"] and tags["run_metadata"] == ["step 3"]
    assert {"loss", "spread", "picture", "words"} <= {node.name for node in events.Graph().node}
