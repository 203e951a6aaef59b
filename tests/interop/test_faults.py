"""Tasks that are lost, come back, or never existed: the client's errors, and that other tasks continue."""

import re
import signal
import socket
import threading

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import harness
from test_training import CLIENT_WATCHDOG_SECS

tf.disable_v2_behavior()

PS = "/job:ps/task:0"
PS_NAME = "/job:ps/replica:0/task:0"
# The possible errors of a client that uses a lost task: MonitoredSession recovers from both.
LOST = (tf.errors.UnavailableError, tf.errors.AbortedError)


class BlockedStep:
    """A step that has begun on the worker and waits on a queue of the ps; `error` is its error."""

    def __init__(self, made, session):
        with tf.device("/job:worker/task:1"):
            started = tf.FIFOQueue(10, tf.int32, shared_name="started")
            say = started.enqueue(1)
            told = started.dequeue()
        with tf.device(PS):
            waiting = tf.FIFOQueue(10, tf.float32, shared_name="never_filled")
            with tf.control_dependencies([say]):
                taken = waiting.dequeue()
        with tf.device("/job:worker/task:0"):
            out = taken + 1
        self.error = None
        self._thread = threading.Thread(target=self._run, args=(session, out))
        self._thread.start()
        with tf.Session(made.worker(1).target) as other:
            other.run(told)

    def _run(self, session, out):
        try:
            session.run(out)
        except tf.errors.OpError as error:
            self.error = error

    def wait(self):
        self._thread.join()
        return self.error


def close(session):
    """Closes a session while its master runs: without one TensorFlow's client would retry forever, possibly when the session is
    garbage-collected."""
    try:
        session.close()
    except tf.errors.AbortedError:
        # The master is a different one.
        pass


@pytest.mark.parametrize("victim", [("ps", 0), ("worker", 0), ("worker", 1)], ids=lambda victim: f"{victim[0]}_{victim[1]}")
def test_a_task_killed_in_a_step_ends_it(cluster, graph, victim):
    made = cluster(ps=1, workers=2)
    session = tf.Session(made.worker(0).target)
    step = BlockedStep(made, session)
    if victim == ("worker", 1):
        # It has nothing left to do in the blocked step: the step of a session on it is what fails.
        with tf.device("/job:worker/task:1"):
            # Not a constant, which would be known without it.
            there = tf.random_uniform([])
        made.task(*victim).kill()
        with pytest.raises(LOST, match="/job:worker/replica:0/task:1"):
            session.run(tf.identity(there))
        made.ps().kill()
    else:
        made.task(*victim).kill()
        if victim == ("worker", 0):
            # TensorFlow's client calls its master again until there is one; the new one doesn't know the session.
            made.task(*victim).restart()
    assert isinstance(step.wait(), LOST), step.error
    if victim == ("ps", 0):
        assert PS_NAME in step.error.message
    close(session)


def test_a_restarted_ps_serves_new_sessions_and_refuses_old_ones(cluster, server_kind, graph):
    made = cluster(ps=1, workers=2)

    def wait_for_the_line(*texts):
        if server_kind != harness.TENSORFLOW:
            made.worker(0).wait_for(lambda line: f"{PS_NAME} at {made.ps().address}" in line
                                    and any(text in line for text in texts), f"'{texts[0]}'")

    with tf.device(PS):
        v = tf.Variable(1.0, name="v", use_resource=False)
        count = v.assign_add(1.0)
    old = tf.Session(made.target)
    old.run(v.initializer)
    assert old.run(count) == 2.0
    made.ps().kill()
    with pytest.raises(LOST):
        old.run(count)
    wait_for_the_line("lost the connection to", "closed its connection")
    made.ps().restart()
    with pytest.raises(LOST):
        old.run(count)
    with tf.Session(made.target) as new:
        with pytest.raises(tf.errors.FailedPreconditionError):
            new.run(count)
        new.run(v.initializer)
        assert new.run(count) == 2.0
    wait_for_the_line("connected to")
    close(old)


def test_a_client_that_dies_frees_its_steps(cluster, processes, graph, tmp_path):
    made = cluster(ps=1, workers=1)
    path = tmp_path / "client.py"
    path.write_text("""
import sys
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
with tf.device("/job:ps/task:0"):
    queue = tf.FIFOQueue(10, tf.float32, shared_name="abandoned")
    started = tf.FIFOQueue(10, tf.float32, shared_name="abandoned_started")
    with tf.control_dependencies([started.enqueue(1.0)]):
        taken = queue.dequeue()
with tf.Session(sys.argv[1]) as session:
    session.run(taken)
""")
    client = harness.script(path, made.target, label="client")
    processes.append(client)
    with tf.device(PS):
        queue = tf.FIFOQueue(10, tf.float32, shared_name="abandoned")
        started = tf.FIFOQueue(10, tf.float32, shared_name="abandoned_started")
        told, put, size = started.dequeue(), queue.enqueue(5.0), queue.size()
    with tf.Session(made.target) as session:
        session.run(told)
        client.kill()
        # The dead client's dequeue is cancelled when its connection is seen to be closed; until then it takes elements.
        while session.run([put, size])[1] == 0 and session.run(size) == 0:
            pass
        assert session.run(queue.dequeue()) == 5.0


def test_the_session_of_a_client_that_died_is_ended_if_asked_for(cluster, processes, server_kind, graph, tmp_path):
    if server_kind == harness.TENSORFLOW:
        pytest.skip("a TensorFlow server keeps such sessions")
    made = cluster(ps=0, workers=1, arguments=["--session_gc_seconds=1"])
    value = tf.placeholder_with_default(2.0, [])
    session = tf.Session(made.target)
    assert session.run(value) == 2.0
    path = tmp_path / "client.py"
    path.write_text("""
import sys
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
session = tf.Session(sys.argv[1])
session.run(tf.placeholder_with_default(1.0, []))
print("RUNS")
import threading
threading.Event().wait()
""")
    client = harness.script(path, made.target, label="client")
    processes.append(client)
    client.wait_for(lambda line: line == "RUNS", "that it runs")
    client.kill()
    made.worker().wait_for(lambda line: "is ended: its client's connection is gone" in line, "that the session is ended")
    # This one was not used for longer, and its client is there.
    assert session.run(value) == 2.0
    session.close()


@pytest.mark.slow
@pytest.mark.watchdog(1200)
@pytest.mark.parametrize("victim", [("ps", 0), ("worker", 0)], ids=["ps", "chief"])
def test_monitored_session_recovers(cluster, processes, tmp_path, victim):
    made = cluster(ps=1, workers=1)
    client = harness.script("monitored.py", *made.flags(), "--train_steps=400", "--save_steps=50", "--announce_steps=True",
                            f"--checkpoint_dir={tmp_path / 'logs'}", label="monitored.py")
    processes.append(client)
    client.wait_for(lambda line: line.startswith("STEP 120"), "STEP 120")
    made.task(*victim).kill()
    made.task(*victim).restart()
    result, = harness.results(client.expect_success(CLIENT_WATCHDOG_SECS))
    assert result["sessions"] >= 2, result
    assert result["global_step"] >= 399 and result["accuracy"] >= 0.9, result


@pytest.mark.slow
@pytest.mark.watchdog(1200)
def test_the_others_go_on_when_a_worker_dies(cluster, processes, tmp_path):
    made = cluster(ps=1, workers=2)
    flags = [*made.flags(), "--announce_steps=True", f"--checkpoint_dir={tmp_path / 'logs'}"]
    chief = harness.script("monitored.py", *flags, "--train_steps=600", label="chief")
    processes.append(chief)
    chief.wait_for(lambda line: line.startswith("SESSION 1"), "SESSION 1")
    worker = harness.script("monitored.py", *flags, "--train_steps=600", "--task_index=1", label="worker")
    processes.append(worker)
    worker.wait_for(lambda line: line.startswith("STEP "), "a step")
    worker.kill()
    made.worker(1).kill()
    result, = harness.results(chief.expect_success(CLIENT_WATCHDOG_SECS))
    assert result["global_step"] >= 599 and result["sessions"] == 1, result


@pytest.mark.slow
@pytest.mark.watchdog(1200)
def test_a_new_chief_goes_on_from_the_checkpoint(cluster, processes, tmp_path):
    made = cluster(ps=1, workers=1)
    flags = [*made.flags(), "--announce_steps=True", f"--checkpoint_dir={tmp_path / 'logs'}", "--save_steps=50"]
    first = harness.script("monitored.py", *flags, "--train_steps=1000000", label="first chief")
    processes.append(first)
    first.wait_for(lambda line: line.startswith("STEP 120"), "STEP 120")
    first.kill()
    second = harness.script("monitored.py", *flags, "--train_steps=1000", label="second chief")
    processes.append(second)
    result, = harness.results(second.expect_success(CLIENT_WATCHDOG_SECS))
    assert result["global_step"] >= 999 and result["local_steps"] <= 1000 - 100, result


@pytest.mark.slow
@pytest.mark.watchdog(1200)
def test_memory_stays_flat(cluster, graph):
    made = cluster(ps=1, workers=2)
    with tf.device(PS):
        v = tf.Variable(tf.zeros([1000]), name="v", use_resource=False)
    with tf.device("/job:worker/task:0"):
        x = tf.placeholder(tf.float32, [1000])
        y = v + x
    with tf.device(PS):
        update = v.assign(y)
        bad = tf.check_numerics(update, "bad")
    data = np.ones(1000, np.float32)
    with tf.Session(made.target) as session:
        session.run(v.initializer)
        run = session.make_callable(update.op, [x])

        def steps(count):
            for i in range(count):
                run(data)
                if i % 100 == 0:
                    with pytest.raises(tf.errors.InvalidArgumentError):
                        session.run(bad, {x: data * np.nan})
                    session.run(v.initializer)

        steps(2000)
        before = {task.name: resident_kib(task.pid) for task in made.tasks.values()}
        steps(10000)
        after = {task.name: resident_kib(task.pid) for task in made.tasks.values()}
    growth = {name: after[name] - before[name] for name in before}
    assert max(growth.values()) < 16 * 1024, growth


def resident_kib(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))


def test_sigterm_drains_and_frees_the_port(cluster, server_kind, graph):
    if server_kind == harness.TENSORFLOW:
        pytest.skip("a TensorFlow server does not stop in order")
    made = cluster(ps=1, workers=1)
    with tf.Session(made.target) as session:
        assert session.run(tf.constant(1.0)) == 1.0
    made.ps().signal(signal.SIGTERM)
    assert made.ps().wait() == 143, made.ps().log()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", int(made.ps().address.rpartition(":")[2])))


def test_a_task_that_comes_late_is_waited_for(processes, server_kind, graph):
    if server_kind == harness.TENSORFLOW:
        pytest.skip("the lines are ours")
    made = harness.Cluster(ps=1, workers=1, start=False)
    worker = made.worker().start()
    processes.append(worker)
    worker.wait_ready()
    with tf.device(PS):
        out = tf.identity(tf.placeholder_with_default(3.0, []))
    got = []

    def run():
        with tf.Session(made.target, graph=graph) as session:
            got.append(session.run(out))

    client = threading.Thread(target=run)
    client.start()
    # The lines tell that the session waits; only then does the ps start.
    waits = re.compile(r"still waits for /job:ps/replica:0/task:0 at " + re.escape(made.spec["ps"][0]) + r", for (\d+) s")
    worker.wait_for(waits.search, "that it waits for the ps")
    worker.wait_for(lambda line: any(int(seconds) >= 4 for seconds in waits.findall(line)), "that it still waits")
    ps = made.ps().start()
    processes.append(ps)
    ps.wait_ready()
    client.join()
    assert got == [3.0]
