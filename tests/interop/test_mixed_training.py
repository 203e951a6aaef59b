"""Workers in Rust and a worker of real TensorFlow train one model on our parameter server."""

import json
import re
import sys

import pytest

import harness


@pytest.mark.parametrize("mode", ["asynchronous", "synchronous"])
def test_rust_and_tensorflow_workers_train_one_model(ferroflow_bin, processes, mode, tmp_path):
    hosts = [f"127.0.0.1:{harness.PORTS.take()}" for _ in range(3)]
    shared = [f"--ps_hosts={hosts[0]}", f"--worker_hosts={hosts[1]},{hosts[2]}", "--hidden_units=16"]
    shared.append("--train_steps=300" if mode == "synchronous" else "--train_steps=20000")
    if mode == "synchronous":
        shared.append("--sync_replicas=True")

    def start(name, command):
        processes.append(harness.Process(name, command + shared).start())
        return processes[-1]

    ours = [ferroflow_bin, "train", "--batch_size=50", f"--logdir={tmp_path}"]
    ps = start("ps", [*ours, "--job_name=ps", "--task_index=0"])
    chief = start("chief", [*ours, "--job_name=worker", "--task_index=0"])
    script = harness.HERE / "scripts" / "beside_rust.py"
    theirs = start("tensorflow worker", [sys.executable, str(script), "--task_index=1"])
    if mode == "asynchronous":
        # The chief alone would finish quickly: it exits when both have trained.
        theirs.wait_for(re.compile("first step").search, "that it trains", 300)
        chief.signal(2)
        chief.expect_success(300)
        assert any("interrupted" in line for line in chief.lines), chief.log()
        return
    chief.expect_success(300)
    theirs.expect_success(300)
    steps = re.search(r"tensorflow worker: (\d+) steps, global step (\d+)", theirs.log())
    # Every step takes a gradient of both.
    assert int(steps[1]) >= 290, theirs.log()
    accuracy = re.search(r"test accuracy ([\d.]+) %", chief.log())
    assert float(accuracy[1]) > 80, chief.log()
    ps.expect_success(60)


def test_rust_and_python_estimators_are_tasks_of_one_tf_config(ferroflow_bin, server_kind, processes, tmp_path):
    if server_kind == harness.TENSORFLOW:
        pytest.skip("the chief is a program in Rust")
    cluster = {job: [f"127.0.0.1:{harness.PORTS.take()}"] for job in ("chief", "worker", "ps")}

    def environment(job):
        return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": job, "index": 0}})}

    # The chief trains until the worker, whose steps count for the same global step, has ended.
    ours = [ferroflow_bin, "train", "--hidden_units=16", "--train_steps=100000000", f"--logdir={tmp_path / 'model'}"]
    for job in ("ps", "chief"):
        processes.append(harness.Process(job, ours, environment(job)).start())
    ps, chief = processes[-2:]
    worker = harness.script("estimator_beside_rust.py", f"--model_dir={tmp_path / 'worker'}", ferroflow=True,
                            env=environment("worker"), label="worker")
    processes.append(worker)
    steps, at = map(int, re.search(r"estimator: (\d+) steps, global step (\d+)", worker.expect_success(300)).groups())
    assert steps >= 1 and at >= steps, worker.log()
    chief.signal(2)
    chief.expect_success(300)
    assert any("interrupted" in line for line in chief.lines), chief.log()
    ps.expect_success(100)
    assert int(re.search(r"model\.ckpt-(\d+);", chief.log())[1]) >= at, chief.log()
