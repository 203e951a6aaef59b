"""TensorFlow may crash: the crash is reported as a result, and the run continues."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import harness
import reference

tf.disable_v2_behavior()


@pytest.fixture
def session(graph):
    """A session of the reference whose graph has a counter `count`, and a step `abort` that ends TensorFlow's process."""
    counter = tf.Variable(0)
    tf.assign_add(counter, 1, name="count")
    tf.raw_ops.Abort(error_msg="on purpose", name="abort")
    with reference.Session(graph, counter.initializer) as made:
        yield made


def test_a_crash_is_told_and_the_next_step_runs(session):
    assert [session.run("count:0") for _ in range(2)] == [1, 2]
    for _ in range(2):
        with pytest.raises(reference.Crashed, match=r"(?s)TensorFlow crashes here: signal SIGABRT.*on purpose"):
            session.run("abort")
        # In a process of its own again.
        assert session.run("count:0") == 1


def test_a_step_is_not_blamed_for_what_one_before_it_did(session):
    """A process that crashes between two steps, as one with corrupted memory does."""
    assert [session.run("count:0") for _ in range(2)] == [1, 2]
    os.kill(session.pid, signal.SIGKILL)
    assert session.run("count:0") == 1


def test_errors_and_values_are_those_of_a_session(graph):
    x = tf.placeholder(tf.float32, [None])
    outputs = {"twice": x * 2, "rows": [tf.reshape(x, [2, -1]), tf.no_op()]}
    for size in (4, 3):
        feed = {x: np.arange(size, dtype=np.float32)}
        endings = []
        for session in (reference.Session(graph), tf.Session()):
            with session:
                try:
                    values = session.run(outputs, feed)
                    endings.append((values["twice"].tolist(), values["rows"][0].tolist(), values["rows"][1]))
                except tf.errors.OpError as error:
                    endings.append(type(error))
        assert endings[0] == endings[1]
        assert (endings[0] is tf.errors.InvalidArgumentError) == (size == 3)


def test_a_session_that_does_not_begin_says_so_each_time(graph):
    refused = tf.Assert(tf.constant(False), ["no beginning"])
    with reference.Session(graph, refused) as session:
        for _ in range(2):
            with pytest.raises(tf.errors.InvalidArgumentError, match="no beginning"):
                session.run(refused)


def test_a_test_whose_process_dies_fails_alone(tmp_path):
    (tmp_path / "test_some.py").write_text("""
import tensorflow.compat.v1 as tf

def test_that_crashes():
    with tf.Graph().as_default(), tf.Session() as session:
        session.run(tf.raw_ops.Abort(error_msg="on purpose"))

def test_that_follows():
    pass
""")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-c", harness.HERE / "pytest.ini", "--rootdir", tmp_path, tmp_path]
    run = subprocess.run(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert run.returncode == 1, run.stdout
    assert "crashed while running 'test_some.py::test_that_crashes'" in run.stdout, run.stdout
    assert "1 failed, 1 passed" in run.stdout, run.stdout
