"""Estimator programs as five processes under TF_CONFIG: chief, worker, two ps and an evaluator, all of which exit by
themselves."""

import json
import re
import signal

import pytest

import harness

pytestmark = [pytest.mark.slow, pytest.mark.watchdog(900)]

ENDING_SECS = 400


class Job:
    """The processes of a job; each is the same program with its own TF_CONFIG."""

    def __init__(self, processes, model_dir, *arguments, chief="chief", evaluator=True, sparse=False):
        self._processes = processes
        self._arguments = [f"--model_dir={model_dir}", *arguments]
        self.cluster = {
            chief: [address()], "worker": [address()], "ps": [address(), address()],
        }
        self._sparse = sparse
        self.names = [(chief, 0), ("worker", 0), ("ps", 0), ("ps", 1)] + ([("evaluator", 0)] if evaluator else [])
        self.chief = chief
        self.tasks = {name: self.start(*name) for name in self.names}

    def start(self, job, index):
        cluster = self.cluster
        if self._sparse and job == "worker":
            cluster = dict(cluster, worker={str(index): cluster["worker"][index]})
        config = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
        process = harness.script("estimator.py", *self._arguments, ferroflow=True, env={"TF_CONFIG": config}, label=f"{job} {index}")
        self._processes.append(process)
        return process

    def restart(self, job, index):
        self.tasks[job, index].kill()
        self.tasks[job, index] = self.start(job, index)

    def wait(self):
        """Waits until all have exited with 0; returns the evaluation and everybody's output."""
        outputs = {name: self.tasks[name].expect_success(ENDING_SECS) for name in self.names}
        found = harness.results(outputs["evaluator", 0])[-1] if ("evaluator", 0) in outputs else None
        return found, outputs


def address():
    return f"127.0.0.1:{harness.PORTS.take()}"


def wait_for_step(process, step):
    process.wait_for(lambda line: any(int(at) >= step for at in re.findall(r"STEP (\d+)", line)), f"that it is at step {step}")


@pytest.fixture(autouse=True)
def only_ours(server_kind):
    if server_kind == harness.TENSORFLOW:
        pytest.skip("TensorFlow's parameter servers never end")


def test_a_canned_estimator_as_five_processes(processes, tmp_path):
    found, outputs = Job(processes, tmp_path / "model", "--max_steps=600").wait()
    assert found["global_step"] >= 600 and found["accuracy"] >= 0.9, found
    for name in ("latest", "final"):
        assert list((tmp_path / "model" / "export" / name).iterdir()), outputs["evaluator", 0]
    # The evaluator's sessions are on a server of its own.
    assert re.search(r"EVALUATES ON grpc://localhost:\d+", outputs["evaluator", 0])
    assert "serving without TensorFlow" in outputs["ps", 0]


def test_a_model_fn_goes_on_when_a_ps_is_killed(processes, tmp_path):
    job = Job(processes, tmp_path / "model", "--model=own", "--input=records", "--max_steps=600", "--pause=0.02")
    wait_for_step(job.tasks["chief", 0], 100)
    job.restart("ps", 1)
    found, outputs = job.wait()
    assert found["global_step"] >= 600 and found["accuracy"] >= 0.9, found
    # A process that lost its session has created another one, without restarting.
    assert "DONE chief" in outputs["chief", 0] and "DONE worker" in outputs["worker", 0]


@pytest.mark.parametrize("name", [("chief", 0), ("worker", 0), ("evaluator", 0)], ids=lambda name: name[0])
def test_a_task_that_is_killed_and_started_again_goes_on(processes, tmp_path, name):
    job = Job(processes, tmp_path / "model", "--max_steps=400", "--pause=0.02")
    wait_for_step(job.tasks["chief", 0], 100)
    job.restart(*name)
    found, _ = job.wait()
    assert found["global_step"] >= 400 and found["accuracy"] >= 0.85, found


def test_early_stopping_ends_all_and_exports_the_last_checkpoint(processes, tmp_path):
    found, outputs = Job(processes, tmp_path / "model", "--max_steps=1000000", "--stop_at=300", "--input=generator").wait()
    assert 300 <= found["global_step"] < 1000000, found
    assert list((tmp_path / "model" / "export" / "final").iterdir()), outputs["evaluator", 0]


def test_a_master_that_evaluates_and_a_sparse_worker(processes, tmp_path):
    job = Job(processes, tmp_path / "model", "--max_steps=300", chief="master", evaluator=False, sparse=True)
    _, outputs = job.wait()
    accuracies = [float(text) for text in re.findall(r"accuracy = ([\d.]+)", outputs["master", 0])]
    assert accuracies and accuracies[-1] >= 0.85, outputs["master", 0]


def test_a_warm_start(processes, tmp_path):
    Job(processes, tmp_path / "first", "--max_steps=300").wait()
    found, outputs = Job(processes, tmp_path / "second", "--max_steps=20", f"--warm_start={tmp_path / 'first'}").wait()
    assert "Warm-starting" in outputs["chief", 0]
    # It can't have learned that again in so few steps.
    assert found["accuracy"] >= 0.85, found


def test_sigterm_ends_a_task_as_cluster_managers_expect(processes, tmp_path):
    job = Job(processes, tmp_path / "model", "--max_steps=1000000")
    wait_for_step(job.tasks["chief", 0], 10)
    for name in job.names:
        job.tasks[name].signal(signal.SIGTERM)
    for name in job.names:
        assert job.tasks[name].wait() in (-signal.SIGTERM, 143), job.tasks[name].log()


def test_ferroflow_run_starts_all_tasks_and_ends_with_them(processes, tmp_path):
    program = [harness.sys.executable, "-m", "ferroflow", harness.SCRIPTS / "estimator.py", f"--model_dir={tmp_path / 'model'}"]
    environment = {"PYTHONPATH": str(harness.ROOT / "python"), "FERROFLOW_BIN": harness.ferroflow_bin()}
    command = [harness.ferroflow_bin(), "run", "--ps=1", "--workers=2", "--evaluator", "--", *program]
    job = harness.Process("ferroflow run", command, environment).start()
    processes.append(job)
    output = job.expect_success(ENDING_SECS)
    assert harness.results(output)[-1]["accuracy"] >= 0.85, output
    for line in ("chief 0     | DONE chief", "worker 0    | DONE worker", "evaluator 0 | DONE evaluator", "ferroflow run: chief 0 is done"):
        assert line in output, output
    assert "asking them to stop" not in output and "ended with" not in output, output
