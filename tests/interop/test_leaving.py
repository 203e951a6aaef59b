"""Waiting and exiting under `python -m ferroflow`: waiting tasks say what they wait for, and start and exit without further
delay.

The script requests waits of days where TensorFlow's defaults are 30 and 120 seconds: a wait that isn't cut short hangs the test.
"""

import subprocess

import pytest

import harness

pytestmark = [pytest.mark.slow, pytest.mark.watchdog(600)]


@pytest.fixture(autouse=True)
def only_ours(server_kind):
    if server_kind == harness.TENSORFLOW:
        pytest.skip("TensorFlow's servers tell nobody")


class WithInput(harness.Process):
    """A process that waits for a line of its input."""

    STDIN = subprocess.PIPE

    def tell(self):
        self._process.stdin.write("go\n")
        self._process.stdin.flush()


def start(processes, made, mode):
    """Starts a ps, and a chief and a worker whose lines come in any order; the chief does nothing before it is told."""
    def command(job, index):
        return [harness.sys.executable, "-m", "ferroflow", harness.SCRIPTS / "leaving.py", *made.flags(), f"--job_name={job}",
                f"--task_index={index}", f"--mode={mode}"]

    environment = {"PYTHONPATH": str(harness.ROOT / "python"), "FERROFLOW_BIN": harness.ferroflow_bin()}
    ps = harness.Process("ps 0", command("ps", 0), environment)
    chief, worker = WithInput("chief", command("worker", 0), environment), harness.Process("worker", command("worker", 1), environment)
    for process in (ps, chief, worker):
        processes.append(process.start())
    chief.wait_for(lambda line: "CHIEF waits" in line, "that it waits")
    return ps, chief, worker


@pytest.mark.parametrize("mode", ["monitored", "supervisor", "sync"])
def test_a_worker_starts_when_the_chief_is_ready_and_both_end(processes, mode):
    ps, chief, worker = start(processes, harness.Cluster(ps=1, workers=2, start=False), mode)
    said = worker.wait_for(lambda line: "waits for the chief: " in line and line, "for what it waits")
    assert "not initialized" in said and "global_step" in said, said
    chief.tell()
    worker.wait_for(lambda line: "the chief is ready" in line, "that it need not wait any more")
    # Not before: if the chief has exited when a worker looks for it, the worker exits, too.
    chief.tell()
    for process in (chief, worker):
        assert "DONE" in process.expect_success()
    # Its program may have requested it, so another job can still use it.
    assert ps.returncode is None


def test_a_worker_that_waits_in_a_step_ends_when_the_chief_has(processes):
    _, chief, worker = start(processes, harness.Cluster(ps=1, workers=2, start=False), "stuck")
    worker.wait_for(lambda line: "waits for the chief: " in line, "for what it waits")
    chief.tell()
    worker.wait_for(lambda line: "the chief is ready" in line, "that it need not wait any more")
    worker.wait_for(lambda line: "WORKER waits" in line, "that it waits in a step")
    chief.tell()
    assert "DONE" in chief.expect_success()
    output = worker.expect_success()
    assert "the chief is done and has left: this task ends, too" in output and "DONE" in output, output
