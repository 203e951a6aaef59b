"""A C program on the wheel's TF_* functions uses our servers through TF_SetTarget."""

import pathlib
import subprocess

import pytest
import tensorflow as tensorflow_package
import tensorflow.compat.v1 as tf

import harness

tf.disable_v2_behavior()

PACKAGE = pathlib.Path(tensorflow_package.__file__).parent


@pytest.fixture(scope="module")
def c_client(tmp_path_factory):
    """The compiled program; the C compiler is the one that Rust links with."""
    program = tmp_path_factory.mktemp("c") / "c_client"
    command = ["cc", "-std=c11", "-Wall", "-Werror", f"-I{PACKAGE / 'include'}", str(harness.HERE / "c_client.c"), "-o",
               str(program), f"-L{PACKAGE}", "-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2",
               f"-Wl,-rpath,{PACKAGE}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return program


def test_a_c_program_trains(c_client, cluster, processes, tmp_path, graph):
    made = cluster(ps=1, workers=1)
    with tf.device("/job:ps/task:0"):
        slope = tf.Variable(0.0, name="slope")
        offset = tf.Variable(0.0, name="offset")
    with tf.device("/job:worker/task:0"):
        x = tf.placeholder(tf.float32, [None], name="x")
        y = tf.placeholder(tf.float32, [None], name="y")
        loss = tf.reduce_mean(tf.square(slope * x + offset - y), name="loss")
        tf.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
    tf.variables_initializer([slope, offset], name="init")
    path = tmp_path / "graph.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    client = harness.Process("c_client", [c_client, made.target, path, "200"]).start()
    processes.append(client)
    losses = [float(line.split()[1]) for line in client.expect_success().splitlines() if line.startswith("loss")]
    assert len(losses) == 200
    assert losses[0] == 21.0 and losses[-1] < 1e-3, losses[-1]
    with tf.Session(made.target) as session:
        assert session.run([slope, offset]) == pytest.approx([2.0, 1.0], abs=0.05)
