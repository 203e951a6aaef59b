"""TensorFlow 1.15 itself, in a Python of its own: as the client of our servers, and with a parameter server of its own in a
cluster of ours.

Its last release has wheels for Python 3.7 at the latest. Where such a Python is, pip installs it once below `target/`; without one,
or without its wheel, these tests are skipped, and the reason says what was missing.
"""

import functools
import os
import pathlib
import re
import shutil
import subprocess

import pytest

import harness

pytestmark = [pytest.mark.slow, pytest.mark.watchdog(900)]

# protobuf 3.20 is the last that takes the descriptors of this release.
REQUIREMENTS = ["tensorflow==1.15.5", "protobuf==3.20.3"]
SCRIPT = harness.SCRIPTS / "tensorflow1.py"
INSTALL_WATCHDOG_SECS = 600


def python37():
    """Returns the path of a Python 3.7, or None."""
    found = shutil.which("python3.7")
    if found and subprocess.run([found, "-c", "import venv"], capture_output=True).returncode == 0:
        return found
    versions = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions"
    candidates = sorted(versions.glob("3.7.*/bin/python3.7"))
    return str(candidates[-1]) if candidates else None


@functools.cache
def interpreter():
    """Returns the Python that has TensorFlow 1.15 and why there is none, one of which is None."""
    directory = harness.ROOT / "target" / "tensorflow-1.15"
    python, stamp = directory / "bin" / "python", directory / "requirements.stamp"
    if stamp.exists() and stamp.read_text() == "\n".join(REQUIREMENTS):
        return python, None
    base = python37()
    if not base:
        return None, "there is no Python 3.7 (python3.7 on the PATH, or one of pyenv's), for which TensorFlow 1.15 has its wheels"
    for command in ([base, "-m", "venv", "--clear", directory],
                    [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *REQUIREMENTS]):
        try:
            done = subprocess.run(
                list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=INSTALL_WATCHDOG_SECS)
        except subprocess.TimeoutExpired:
            return None, f"{' '.join(map(str, command))} takes more than {INSTALL_WATCHDOG_SECS} s"
        if done.returncode != 0:
            return None, f"{' '.join(map(str, command))} failed: {done.stdout.strip().splitlines()[-1:]}"
    stamp.write_text("\n".join(REQUIREMENTS))
    return python, None


@pytest.fixture
def tensorflow1(processes):
    """Returns a function that starts a part of the script with TensorFlow 1.15."""
    python, reason = interpreter()
    if reason:
        pytest.skip(reason)

    def start(part, *arguments, env=None):
        environment = {"PYTHONPATH": "", "PYTHONWARNINGS": "ignore", "TF_CPP_MIN_LOG_LEVEL": "2", **(env or {})}
        process = harness.Process(f"TensorFlow 1.15, {part}", [python, SCRIPT, part, *map(str, arguments)], environment).start()
        processes.append(process)
        return process

    return start


def result(process):
    [found] = harness.results(process.expect_success())
    return found


def test_sessions(tensorflow1, cluster):
    made = cluster(ps=0, workers=1)
    assert result(tensorflow1("sessions", made.target)) == {
        "version": "1.15.5",
        "devices": ["/job:worker/replica:0/task:0/device:CPU:0"],
        "feeds": [8.0, 12.0],
        "partial run": [[3.0], [6.0]],
        "callable": [4.0],
        "traced": True,
        "loop": [1.5 ** 10, 2 * 1.5 ** 10],
        "cond": [6.0],
        "strings": ["a-0", "b-1"],
        "array": [1.0, 2.0, 3.0],
        "queue": [7, 8],
        "dataset": [[0, 4], [16, 36], [64]],
        "table": [1, 0, 2],
        "rnn": [2, 5, 3],
        "conv": [1, 8, 8, 4],
        "error": True,
    }


def test_workers_train_on_our_servers(tensorflow1, cluster, tmp_path):
    made = cluster(ps=1, workers=2)
    workers = [tensorflow1("train", made.spec["ps"][0], ",".join(made.spec["worker"]), index, tmp_path) for index in (0, 1)]
    check_training([result(worker) for worker in workers], tmp_path)


def test_our_workers_use_its_parameter_server(tensorflow1, tmp_path):
    spec = {"ps": [f"127.0.0.1:{harness.PORTS.take()}"], "worker": [f"127.0.0.1:{harness.PORTS.take()}" for _ in range(2)]}
    ps = tensorflow1("server", spec["ps"][0], ",".join(spec["worker"]), "ps", 0)
    tasks = [harness.Task(harness.default_kind(), spec, "worker", index).start() for index in (0, 1)]
    try:
        ps.wait_for(harness.READY.search, "that it is ready")
        for task in tasks:
            task.wait_ready()
        workers = [tensorflow1("train", spec["ps"][0], ",".join(spec["worker"]), index, tmp_path) for index in (0, 1)]
        check_training([result(worker) for worker in workers], tmp_path)
    finally:
        for task in tasks:
            task.kill()


def check_training(results, directory):
    for one in results:
        # The step that a worker sees last may be one behind those of the other.
        assert one["step"] >= 190 and one["loss"] < 1e-2, results
        assert one["slope"] == pytest.approx(2.0, abs=0.1) and one["offset"] == pytest.approx(1.0, abs=0.2), results
    state = (directory / "checkpoint").read_text()
    assert re.search(r'model_checkpoint_path: ".*model\.ckpt-2\d\d"', state), state
