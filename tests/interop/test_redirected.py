"""`python -m ferroflow --sessions`: programs that make plain `tf.Session()`s, on a server of ours."""

import subprocess
import sys

import harness

PLAIN = """
import sys
import numpy as np
import tensorflow as tf

assert sys.argv[1:] == ["--flag"], sys.argv


def on_server(session):
    return session.sess_str.startswith(b"grpc://")


v = tf.get_variable("v", initializer=[1.0, 2.0])
doubled = v.assign_add(v)
with tf.Session() as first, tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as second:
    assert on_server(first) and on_server(second)
    first.run(tf.global_variables_initializer())
    assert list(first.run(doubled)) == [2.0, 4.0]
    # As with local sessions, a variable is one session's own.
    try:
        second.run(v)
        raise SystemExit("the sessions share a variable")
    except tf.errors.FailedPreconditionError:
        pass
    second.run(tf.global_variables_initializer())
    assert list(second.run(v)) == [1.0, 2.0] and list(first.run(v)) == [2.0, 4.0]
    saver = tf.train.Saver()
    path = saver.save(first, "./model")
    saver.restore(second, path)
    assert list(second.run(v)) == [2.0, 4.0]

# More devices, as for a local session.
with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
    with tf.device("/cpu:1"):
        far = tf.constant(3.0) + 1.0
    assert session.run(far) == 4.0
    assert len([one for one in session.list_devices() if one.device_type == "CPU"]) == 2

# Functions of the program, and the sessions that others make.
squares = tf.data.Dataset.from_generator(lambda: iter(np.arange(4.0) ** 2), tf.float64, [])
value = tf.py_func(lambda x: x + 1, [tf.data.make_one_shot_iterator(squares).get_next()], tf.float64)


class Look(tf.train.SessionRunHook):
    def after_create_session(self, session, coord):
        assert on_server(session)


step = tf.train.get_or_create_global_step()
count = tf.assign_add(step, 1)
with tf.train.MonitoredTrainingSession(hooks=[tf.train.StopAtStepHook(last_step=3), Look()]) as session:
    values = []
    while not session.should_stop():
        values.append(session.run([value, count])[0])
    assert values == [1.0, 2.0, 5.0], values
interactive = tf.InteractiveSession()
assert on_server(interactive) and tf.constant(5).eval() == 5
interactive.close()

estimator = tf.estimator.LinearRegressor([tf.feature_column.numeric_column("x")], model_dir="model")
data = lambda: tf.data.Dataset.from_tensors(({"x": [[1.0], [2.0]]}, [[1.0], [2.0]])).repeat(5)
assert estimator.train(data).evaluate(data)["global_step"] == 5

try:
    tf.Session(config="wrong")
    raise SystemExit("a wrong configuration is taken")
except TypeError as error:
    assert "ConfigProto" in str(error), error
print("DONE")
"""


def run(processes, directory, text, option):
    """Starts `python -m ferroflow` with an option, and a program with a flag."""
    path = directory / "program.py"
    path.write_text(text)
    command = [sys.executable, "-m", "ferroflow", option, path, "--flag"]
    environment = {"PYTHONPATH": str(harness.ROOT / "python"), "FERROFLOW_BIN": harness.ferroflow_bin()}
    process = harness.Process("program.py", command, environment, directory).start()
    processes.append(process)
    return process


def test_plain_sessions_run_on_a_server_that_is_started_for_them(server_kind, processes, tmp_path):
    text = PLAIN
    if server_kind == harness.TENSORFLOW:
        # Real TensorFlow's server is another process, and has no Python functions.
        start, end = text.index("squares ="), text.index("\n\nclass Look")
        text = text[:start] + "value = tf.data.make_one_shot_iterator(tf.data.Dataset.from_tensor_slices([1.0, 2.0, 5.0])).get_next()\n" + text[end:]
    assert "DONE" in run(processes, tmp_path, text, "--sessions").expect_success()


def test_plain_sessions_run_on_the_server_that_is_named(processes, tmp_path, cluster):
    made = cluster(ps=0, workers=1)
    process = run(processes, tmp_path, """
import sys
import tensorflow as tf
with tf.Session() as session:
    devices = [one.name for one in session.list_devices()]
    print("TARGET", session.sess_str.decode(), devices[0])
    assert session.run(tf.constant(2) * 3) == 6
""", f"--sessions={made.target}")
    output = process.expect_success()
    assert f"TARGET {made.target} /job:worker" in output, output


def test_options_are_those_before_the_program(processes, tmp_path):
    path = tmp_path / "program.py"
    path.write_text("import sys; print('ARGUMENTS', sys.argv[1:])")
    environment = {"PYTHONPATH": str(harness.ROOT / "python"), "PATH": ""}

    def output(*arguments):
        return subprocess.run([sys.executable, "-m", "ferroflow", *arguments], env=environment, text=True, capture_output=True)

    assert "ARGUMENTS ['--sessions']" in output(str(path), "--sessions").stdout
    for arguments in (["--session", str(path)], ["--sessions=", str(path)], ["--sessions"]):
        refused = output(*arguments)
        assert refused.returncode == 2 and "usage: python -m ferroflow" in refused.stderr, refused
