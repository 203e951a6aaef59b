"""`python -m ferroflow`: TensorFlow 1's names on the installed TensorFlow, with Ferroflow servers as processes."""

import gzip
import os
import pathlib
import select
import shutil
import signal
import sys

import numpy as np
import pytest

import harness

sys.path.insert(0, str(harness.ROOT / "python"))

from ferroflow import mnist

PROGRAM_OF_2016 = """
import sys
import tensorflow as tf
import tensorflow.contrib.rnn as rnn
from tensorflow.contrib.layers import l2_regularizer
from tensorflow.examples.tutorials.mnist import input_data

assert sys.argv == [__file__, "--flag=1", "rest"], sys.argv
digits = input_data.read_data_sets("MNIST_data", one_hot=True)
assert digits.train.images.shape == (10000, 784)
assert digits.train.next_batch(100)[1].shape == (100, 10)
x = tf.placeholder(tf.float32, [None, 784])
w = tf.Variable(tf.truncated_normal([784, 10], stddev=0.1))
logits = tf.sub(tf.mul(tf.matmul(x, w), 1.0), tf.neg(0.0))
y = tf.placeholder(tf.float32, [None, 10])
loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(logits, y)) + l2_regularizer(0.1)(w)
tf.scalar_summary("loss", loss)
tf.histogram_summary("w", w)
tf.image_summary("images", tf.reshape(x, [-1, 28, 28, 1]), max_images=2)
merged = tf.merge_all_summaries()
train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
joined = tf.concat(1, [x, x])
left, right = tf.split(1, 2, joined)
stacked = tf.unpack(tf.pack([left, right]))
cell = rnn.BasicLSTMCell(4)
with tf.Session() as session:
    session.run(tf.initialize_all_variables())
    writer = tf.train.SummaryWriter(sys.argv[0] + ".logs", session.graph)
    images, labels = digits.train.next_batch(10)
    feed = {x: images, y: labels}
    writer.add_summary(session.run(merged, feed), 0)
    session.run(train, feed)
    assert (session.run(stacked[1], feed) == images).all()
    writer.close()
print(f"variables {len(tf.all_variables())} {tf.train.Server.__module__}")
"""


def run_program(processes, directory, text, *arguments, name="program.py"):
    path = directory / name
    path.write_text(text)
    process = harness.script(path, *arguments, ferroflow=True, cwd=directory, label=name)
    processes.append(process)
    return process


def test_a_program_of_2016_runs(processes, tmp_path):
    process = run_program(processes, tmp_path, PROGRAM_OF_2016, "--flag=1", "rest")
    assert "variables 1 ferroflow.server" in process.expect_success()
    assert any("tfevents" in path.name for path in (tmp_path / "program.py.logs").iterdir())


def test_hello_world_with_a_local_server(processes, tmp_path):
    process = run_program(processes, tmp_path, """
import tensorflow as tf
c = tf.constant("Hello, distributed TensorFlow!")
server = tf.train.Server.create_local_server()
assert server.server_def.job_name == "localhost"
with tf.Session(server.target) as session:
    print(session.run(c))
""")
    assert "b'Hello, distributed TensorFlow!'" in process.expect_success()


def test_patch_inside_a_program(processes, tmp_path):
    process = run_program(processes, tmp_path, """
import ferroflow
ferroflow.patch()
ferroflow.patch()
import tensorflow as tf
import tensorflow.compat.v1
assert tf.train.Server is tensorflow.compat.v1.train.Server is ferroflow.Server
first = tf.train.Server(tf.train.ClusterSpec({"local": ["127.0.0.1:PORT_0", "127.0.0.1:PORT_1"]}), job_name="local", task_index=0)
second = tf.train.Server({"local": ["127.0.0.1:PORT_0", "127.0.0.1:PORT_1"]}, "local", 1, start=False)
assert second.target == ""
second.start()
assert first.target == "grpc://127.0.0.1:PORT_0" and second.target == "grpc://127.0.0.1:PORT_1"
with tf.device("/job:local/task:1"):
    value = tf.constant(20.0)
with tf.device("/job:local/task:0"):
    total = value + 1
with tf.Session(first.target) as session:
    print(f"total {session.run(total)}")
second.stop()
""".replace("PORT_0", str(harness.PORTS.take())).replace("PORT_1", str(harness.PORTS.take())))
    assert "total 21.0" in process.expect_success()


def test_wrong_clusters_are_refused_as_by_tensorflow(processes, tmp_path):
    process = run_program(processes, tmp_path, """
import tensorflow as tf
for arguments in (({"ps": ["a:1"], "worker": ["b:2"]},), ({"ps": ["a:1", "c:3"]}, "ps"), (17,)):
    try:
        tf.train.Server(*arguments)
    except (ValueError, TypeError, tf.errors.InvalidArgumentError) as error:
        print(f"REFUSED {error}")
""")
    lines = process.expect_success().splitlines()
    assert sum(line.startswith("REFUSED") for line in lines) == 3, lines


def test_a_port_in_use_is_an_error_that_says_so(server_kind, cluster, processes, tmp_path):
    made = cluster(ps=1, workers=0)
    process = run_program(processes, tmp_path, f"""
import tensorflow as tf
tf.train.Server({{"ps": ["{made.ps().address}"]}}, job_name="ps", task_index=0)
""")
    if server_kind == harness.TENSORFLOW:
        pytest.skip("TensorFlow shares the port")
    assert process.wait() != 0
    port = made.ps().address.rpartition(":")[2]
    assert any(port in line and "in use" in line for line in process.lines), process.log()


JOINING = """
import tensorflow as tf
server = tf.train.Server({{"ps": ["127.0.0.1:{port}"]}}, job_name="ps", task_index=0)
server.join()
"""


def test_an_interrupt_ends_join(processes, tmp_path):
    process = run_program(processes, tmp_path, JOINING.format(port=harness.PORTS.take()))
    process.wait_for(harness.READY.search, "that it is ready")
    child = server_child(process.pid)
    process.signal(signal.SIGINT)
    assert process.wait() != 0
    assert any("KeyboardInterrupt" in line for line in process.lines), process.log()
    wait_for_end(child)


def test_the_server_dies_with_its_program(processes, tmp_path):
    process = run_program(processes, tmp_path, JOINING.format(port=harness.PORTS.take()))
    process.wait_for(harness.READY.search, "that it is ready")
    child = server_child(process.pid)
    process.signal(signal.SIGKILL)
    wait_for_end(child)
    process.wait()


def server_child(pid):
    """Returns a handle of the only child of a process; it stays valid after the child has exited."""
    children = []
    for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
        children += (thread / "children").read_text().split()
    assert len(children) == 1, children
    return os.pidfd_open(int(children[0]))


def wait_for_end(handle):
    ready, _, _ = select.select([handle], [], [], harness.EXIT_WATCHDOG_SECS)
    os.close(handle)
    assert ready, "the server outlived its program"


def test_join_tells_of_a_server_that_died(processes, tmp_path):
    process = run_program(processes, tmp_path, JOINING.format(port=harness.PORTS.take()))
    process.wait_for(harness.READY.search, "that it is ready")
    child = server_child(process.pid)
    signal.pidfd_send_signal(child, signal.SIGKILL)
    wait_for_end(child)
    assert process.wait() != 0
    assert any("the ferroflow server ended with -9" in line for line in process.lines), process.log()


def test_a_missing_script_is_named(processes):
    process = harness.script("no_such_script.py", ferroflow=True)
    processes.append(process)
    assert process.wait() == 2
    assert any("no_such_script.py" in line for line in process.lines)


def test_digits_of_a_directory_are_used(tmp_path):
    for path in (harness.ROOT / "crates" / "digits" / "mnist").iterdir():
        shutil.copy(path, tmp_path)
    plain = tmp_path / "train-labels-idx1-ubyte"
    plain.write_bytes(gzip.decompress((tmp_path / "train-labels-idx1-ubyte.gz").read_bytes()))
    (tmp_path / "train-labels-idx1-ubyte.gz").unlink()
    digits = mnist.read_data_sets(str(tmp_path), validation_size=100, seed=1)
    assert digits.train.num_examples == 14900 and digits.validation.num_examples == 100
    assert digits.test.images.shape == (2500, 784)
    assert digits.train.images.dtype == np.float32 and 0.99 < digits.train.images.max() <= 1.0
    seen = sum(len(digits.train.next_batch(1000)[0]) for _ in range(15))
    assert seen == 15000 and digits.train.epochs_completed == 1
    plain.write_bytes(plain.read_bytes()[:-1])
    with pytest.raises(ValueError, match="train-labels-idx1-ubyte should hold 15000 bytes"):
        mnist.read_data_sets(str(tmp_path))
