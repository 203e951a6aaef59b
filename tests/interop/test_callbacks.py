"""Functions of a Python program, which its own process serves under `python -m ferroflow`: py_func, numpy_function,
from_generator."""

import signal

import pytest

import harness
from test_module import run_program


@pytest.fixture(autouse=True)
def ours_only(server_kind):
    if server_kind == harness.TENSORFLOW:
        pytest.skip("TensorFlow's servers run such functions only in the process that made them")


ONE_SERVER = """
import threading
import numpy as np
import tensorflow as tf

server = tf.train.Server.create_local_server()


def fails(error):
    def function(x):
        raise error
    return function


add = tf.py_func(lambda x, y: x + y, [tf.constant([1.0, 2.0]), tf.constant(3.0)], tf.float32)
texts = tf.numpy_function(lambda x: np.array([b"a" + one for one in x], object), [tf.constant(["x", "yz"])], tf.string)
pair = tf.py_func(lambda: (np.int64(7), np.array([True])), [], [tf.int64, tf.bool], stateful=False)
nothing = tf.py_func(lambda: None, [], [])
large = tf.py_func(lambda x: x, [tf.fill([3 << 20], 2.0)], tf.float32)
kinds = [tf.py_func(fails(error), [tf.constant(0.0)], tf.float32) for error in (
    ValueError("five"), TypeError("five"), NotImplementedError("five"), KeyError("five"), MemoryError("five"))]
promised = tf.py_func(lambda: np.float64(1), [], tf.float32), tf.py_func(lambda: np.float32(1), [], [tf.float32, tf.float32])

# One waits for the other, so both must run at once.
meeting = threading.Barrier(2)
both = [tf.py_func(lambda x: (meeting.wait(), x)[1], [tf.constant(float(n))], tf.float32) for n in range(2)]


def numbers():
    for n in range(4):
        yield n, [n] * n


dataset = tf.data.Dataset.from_generator(numbers, (tf.int64, tf.int32), ([], [None]))
dataset = dataset.map(lambda n, row: (n, tf.py_func(lambda r: np.int32(r.sum()), [row], tf.int32)))
element = tf.data.make_one_shot_iterator(dataset).get_next()
repeated = tf.data.Dataset.from_generator(lambda: iter([5, 6]), tf.int64, []).repeat(3)
again = tf.data.make_one_shot_iterator(repeated).get_next()
batches = tf.data.make_one_shot_iterator(tf.data.Dataset.from_generator(lambda: iter(range(7)), tf.int64, []).batch(3)).get_next()

with tf.Session(server.target) as session, tf.Session() as local:
    assert session.run(add).tolist() == [4.0, 5.0]
    assert session.run(texts).tolist() == [b"ax", b"ayz"]
    assert [value.tolist() for value in session.run(pair)] == [7, [True]]
    session.run(nothing)
    assert [session.run(batches).tolist() for _ in range(3)] == [[0, 1, 2], [3, 4, 5], [6]]
    assert session.run(large).sum() == 2.0 * (3 << 20)
    assert session.run(both) == [0.0, 1.0]
    for op in (*kinds, *promised):
        errors = []
        for one in (session, local):
            try:
                one.run(op)
            except tf.errors.OpError as error:
                errors.append(error)
        ours, theirs = errors
        assert type(ours) is type(theirs), (ours, theirs)
        said = lambda error: error.message.splitlines()[0].replace("{{node ", "").partition("@")[0]
        assert said(ours) == said(theirs), (said(ours), said(theirs))
    try:
        session.run(kinds[0])
    except tf.errors.InvalidArgumentError as error:
        assert "ValueError: five" in error.message and "in function" in error.message, error.message
    seen = []
    try:
        while True:
            seen.append(tuple(int(value) for value in session.run(element)))
    except tf.errors.OutOfRangeError:
        pass
    assert seen == [(0, 0), (1, 1), (2, 4), (3, 9)], seen
    assert [int(session.run(again)) for _ in range(6)] == [5, 6] * 3
    try:
        session.run(again)
        raise AssertionError("the generator goes on after three times")
    except tf.errors.OutOfRangeError:
        pass
print("CALLED")
"""


def test_functions_of_a_program_run_on_its_server(processes, tmp_path):
    assert "CALLED" in run_program(processes, tmp_path, ONE_SERVER).expect_success()


# As users write it: features from a generator, a py_func that makes the labels, between-graph replication.
TRAINER = """
import numpy as np
import tensorflow as tf

tf.app.flags.DEFINE_string("ps_hosts", "", "")
tf.app.flags.DEFINE_string("worker_hosts", "", "")
tf.app.flags.DEFINE_string("job_name", "", "")
tf.app.flags.DEFINE_integer("task_index", 0, "")
FLAGS = tf.app.flags.FLAGS


def main(_):
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()

    def samples():
        random = np.random.RandomState(FLAGS.task_index)
        while True:
            yield random.rand(4).astype(np.float32)

    weights = np.arange(1, 5, dtype=np.float32) * (1 + 0 * FLAGS.task_index)
    with tf.device(tf.train.replica_device_setter(worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster)):
        dataset = tf.data.Dataset.from_generator(samples, tf.float32, [4]).batch(16).prefetch(2)
        x = tf.data.make_one_shot_iterator(dataset).get_next()
        y = tf.py_func(lambda batch: batch.dot(weights), [x], tf.float32)
        y.set_shape([None])
        w = tf.get_variable("w", [4], initializer=tf.zeros_initializer())
        loss = tf.reduce_mean(tf.square(tf.reduce_sum(x * w, 1) - y))
        step = tf.train.get_or_create_global_step()
        train = tf.train.AdamOptimizer(0.1).minimize(loss, global_step=step)
    hooks = [tf.train.StopAtStepHook(last_step=300)]
    with tf.train.MonitoredTrainingSession(server.target, is_chief=FLAGS.task_index == 0, hooks=hooks) as session:
        while not session.should_stop():
            value, _ = session.run([loss, train])
    print("LOSS %.3f" % value)
    assert value < 1.0, value


if __name__ == "__main__":
    tf.app.run()
"""


def test_a_generator_and_a_py_func_train_on_one_ps_and_two_workers(processes, tmp_path):
    addresses = [f"127.0.0.1:{harness.PORTS.take()}" for _ in range(3)]
    flags = [f"--ps_hosts={addresses[0]}", f"--worker_hosts={','.join(addresses[1:])}"]
    run_program(processes, tmp_path, TRAINER, *flags, "--job_name=ps", name="train.py")
    workers = [run_program(processes, tmp_path, TRAINER, *flags, "--job_name=worker", f"--task_index={index}", name="train.py")
               for index in range(2)]
    for worker in workers:
        assert "LOSS" in worker.expect_success()


# A client whose process ends while another waits for its function.
LEAVING = """
import sys, time
import tensorflow as tf
forever = tf.py_func(lambda: (print("ENTERED", flush=True), time.sleep(1000)), [], [], name="forever")
with tf.Session(sys.argv[1]) as session:
    session.run(forever)
"""


def test_the_end_of_a_client_fails_the_step_that_waits_for_it(processes, tmp_path, cluster):
    import tensorflow.compat.v1 as tf

    made = cluster(ps=0, workers=1)
    client = run_program(processes, tmp_path, LEAVING, made.target, name="leaving.py")
    client.wait_for(lambda line: "ENTERED" in line, "that its function runs")
    client.signal(signal.SIGKILL)
    client.wait()
    # The server is unaffected.
    with tf.Graph().as_default(), tf.Session(made.target) as session:
        assert session.run(tf.constant(1.0)) == 1.0
