"""Workers in Rust and a worker of real TensorFlow train one model on our parameter server."""

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
