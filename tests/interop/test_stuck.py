"""No step makes a server unresponsive: a step that runs for ages, never ends or nests too deeply ends with an error, and others
are served."""

import os
import signal
import threading

import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import gen_dataset_ops, gen_list_ops

import harness

tf.disable_v2_behavior()


def next_of(dataset):
    return tf.data.make_one_shot_iterator(dataset).get_next()


def of_zeros(make_reader):
    def build():
        queue = tf.FIFOQueue(1, tf.string, shapes=[[]])
        with tf.control_dependencies([queue.enqueue("/dev/zero")]):
            return make_reader().read(queue).value

    return build


def skipped():
    return tf.data.Dataset.range(2**62).skip(2**61)


def sampled():
    # Of three million classes the last ones are hardly ever drawn.
    sampler = tf.random.log_uniform_candidate_sampler([[0]], 1, 3_000_000, True, 3_000_000)
    return tf.reduce_sum(sampler[0])


ENDLESS = {
    "skip": lambda: next_of(skipped()),
    "skip, prefetched": lambda: next_of(skipped().prefetch(1)),
    "filter": lambda: next_of(tf.data.Dataset.range(2**62).filter(lambda x: tf.equal(x, -1))),
    "flat map": lambda: next_of(
        tf.data.Dataset.range(2**62).flat_map(lambda x: tf.data.Dataset.range(0))
    ),
    "sampler": sampled,
    "while": lambda: tf.while_loop(lambda x: x < 1, lambda x: tf.identity(x), [tf.constant(0)]),
}

SPECIAL = {
    "ReadFile": lambda: tf.io.read_file("/dev/zero"),
    "TextLineDataset": lambda: next_of(tf.data.TextLineDataset("/dev/zero")),
    "FixedLengthRecordDataset": lambda: next_of(tf.data.FixedLengthRecordDataset("/dev/zero", 8)),
    "TFRecordDataset": lambda: next_of(tf.data.TFRecordDataset("/dev/zero")),
    "TextLineReader": of_zeros(tf.TextLineReader),
    "WholeFileReader": of_zeros(tf.WholeFileReader),
    "FixedLengthRecordReader": of_zeros(lambda: tf.FixedLengthRecordReader(8)),
}


@pytest.fixture(scope="module")
def server():
    # The one thread that serves is the one that is kept.
    cluster = harness.Cluster(ps=0, workers=1, kind=harness.FERROFLOW, arguments=("--threads=1",))
    yield cluster.worker()
    cluster.stop()


def answer(target, value):
    with tf.Graph().as_default():
        fed = tf.placeholder(tf.float32)
        doubled = fed * 2
        with tf.Session(target) as session:
            return session.run(doubled, {fed: value})


def cpu_ticks(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


class Step(threading.Thread):
    """Runs a step in a session of its own, and keeps its error."""

    def __init__(self, target, build, config=None):
        super().__init__(daemon=True)
        self.target, self.build, self.config, self.error = target, build, config, None
        self.start()

    def run(self):
        try:
            with tf.Graph().as_default():
                out = self.build()
                with tf.Session(self.target, config=self.config) as session:
                    session.run(out)
        except tf.errors.OpError as error:
            self.error = error

    def ended(self):
        self.join(60)
        assert not self.is_alive(), "the step did not end"
        return self.error


@pytest.mark.parametrize("name", ENDLESS)
def test_a_step_without_end_keeps_nobody_and_stops_with_its_deadline(server, name):
    config = tf.ConfigProto(operation_timeout_in_ms=1000)
    before = cpu_ticks(server.pid)
    step = Step(server.target, ENDLESS[name], config)
    while cpu_ticks(server.pid) - before < 20 and step.is_alive():
        assert answer(server.target, 21.0) == 42.0
    error = step.ended()
    assert isinstance(error, (tf.errors.DeadlineExceededError, tf.errors.CancelledError)), error
    # A cancelled step stops computing: the server becomes idle.
    quiet, last = 0, cpu_ticks(server.pid)
    for _ in range(600):
        threading.Event().wait(0.1)
        now = cpu_ticks(server.pid)
        quiet, last = (quiet + 1 if now - last <= 1 else 0), now
        if quiet == 3:
            break
    assert quiet == 3, "the server still computes"
    assert answer(server.target, 1.0) == 2.0


@pytest.mark.parametrize("name", SPECIAL)
def test_what_has_no_end_is_refused(server, name):
    error = Step(server.target, SPECIAL[name]).ended()
    assert isinstance(error, tf.errors.FailedPreconditionError), error
    assert "/dev/zero; Not a regular file but a character device" in error.message
    assert "node" in error.message


def test_a_pipe_that_nobody_writes_is_refused(server, tmp_path):
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    error = Step(server.target, lambda: tf.io.read_file(pipe)).ended()
    assert "Not a regular file but a named pipe" in error.message


def looped(count, body, start):
    return tf.while_loop(lambda i, _: i < count, lambda i, x: (i + 1, body(x)), [tf.constant(0), start])


def test_lists_may_lie_within_each_other(server):
    def build():
        empty = gen_list_ops.empty_tensor_list(tf.constant([], tf.int32), tf.constant(-1), element_dtype=tf.variant)
        put = lambda inner: gen_list_ops.tensor_list_push_back(empty, inner)
        count, nested = looped(20_000, put, empty)
        return count, gen_list_ops.tensor_list_length(nested)

    assert Step(server.target, build).ended() is None
    assert answer(server.target, 1.0) == 2.0


def test_datasets_that_lie_too_deep_are_refused(server):
    attrs = {"output_types": [tf.int64], "output_shapes": [tf.TensorShape([])]}

    def build():
        start = tf.data.Dataset.range(3)._variant_tensor
        around = lambda inner: gen_dataset_ops.skip_dataset(inner, tf.constant(0, tf.int64), **attrs)
        # Without this the client would leave the datasets out, since nobody asks for them.
        with tf.control_dependencies([looped(50_000, around, start)[1]]):
            return tf.constant(1)

    error = Step(server.target, build).ended()
    assert isinstance(error, tf.errors.InvalidArgumentError), error
    assert "datasets are nested more than 256 deep" in error.message
    assert answer(server.target, 1.0) == 2.0


@pytest.mark.parametrize("name", ["skip", "sampler", "while"])
def test_a_server_with_a_step_without_end_ends_when_it_is_told(name):
    cluster = harness.Cluster(ps=0, workers=1, kind=harness.FERROFLOW, arguments=("--threads=1",))
    worker = cluster.worker()
    try:
        before = cpu_ticks(worker.pid)
        step = Step(cluster.target, ENDLESS[name])
        while cpu_ticks(worker.pid) - before < 20:
            assert step.is_alive(), step.error
            assert answer(cluster.target, 3.0) == 6.0
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 143
    finally:
        cluster.stop()
