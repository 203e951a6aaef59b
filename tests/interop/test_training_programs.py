"""Whole training programs that start their own servers: digits, records, strips of digits, checkpoints and summaries."""

import re

import pytest

import harness
from test_training import CLIENT_WATCHDOG_SECS, REPLICA_FLAGS, REPLICA_MODES, check_replicas, train

pytestmark = [pytest.mark.slow, pytest.mark.watchdog(1200)]


@pytest.mark.parametrize("mode", sorted(REPLICA_MODES))
def test_mnist_replica_starts_its_own_servers(processes, mode):
    made = harness.Cluster(ps=1, workers=2, start=False)
    ps = harness.script("mnist_replica.py", *made.flags(), "--job_name=ps", "--task_index=0", ferroflow=True,
                        label="mnist_replica.py ps")
    processes.append(ps)
    check_replicas(train(processes, made, "mnist_replica.py", *REPLICA_FLAGS, *REPLICA_MODES[mode], ferroflow=True), mode)
    assert ps.returncode is None, ps.log()


def test_adagrad_trainer_saves_summarizes_and_resumes(processes, tmp_path):
    made = harness.Cluster(ps=2, workers=2, start=False)
    for index in range(2):
        processes.append(harness.script("trainer.py", *made.flags(), "--job_name=ps", f"--task_index={index}", ferroflow=True,
                                        label=f"trainer.py ps {index}"))
    flags = [f"--logdir={tmp_path / 'logs'}"]
    first = train(processes, made, "trainer.py", "--train_steps=300", *flags, ferroflow=True)
    assert all(result["global_step"] >= 300 for result in first), first
    assert first[0]["start_step"] == 0
    events = read_events(tmp_path / "logs")
    assert {"cross_entropy", "accuracy"} <= {value.tag for event in events for value in event.summary.value}
    assert any(event.graph_def for event in events)
    # The same command again goes on from the checkpoint, with fresh servers and the same ps tasks.
    second = train(processes, made, "trainer.py", "--train_steps=600", *flags, ferroflow=True)
    assert second[0]["start_step"] >= 300, second
    assert second[0]["accuracy"] >= 0.85, second


def read_events(directory):
    from tensorboard.backend.event_processing import event_file_loader

    files = sorted(path for path in directory.iterdir() if "tfevents" in path.name)
    assert files, list(directory.iterdir())
    return [event for path in files for event in event_file_loader.LegacyEventFileLoader(str(path)).Load()]


@pytest.mark.parametrize("sync", [0, 1], ids=["async", "sync"])
def test_number_recognition_from_records(processes, tmp_path, sync):
    made = harness.Cluster(ps=1, workers=2, start=False)
    records = harness.script("number_recognition.py", f"--make_records={tmp_path}", ferroflow=True, label="make records")
    records.expect_success(CLIENT_WATCHDOG_SECS)
    processes.append(harness.script("number_recognition.py", *made.flags(), "--job_name=ps", "--task_index=0",
                                    f"--records={tmp_path}", ferroflow=True, label="number_recognition.py ps"))
    found = train(processes, made, "number_recognition.py", f"--records={tmp_path}", f"--issync={sync}",
                  "--train_steps=200", ferroflow=True)
    assert [result["task"] for result in found] == [0, 1]
    for result in found:
        assert result["global_step"] >= 200, found
        assert result["accuracy"] >= 0.75, found
        assert result["last_loss"] < result["first_loss"], found


@pytest.mark.parametrize("sync", [0, 1], ids=["async", "sync"])
def test_crnn_learns_strips_of_digits(processes, tmp_path, sync):
    made = harness.Cluster(ps=1, workers=2, start=False)
    processes.append(harness.script("crnn.py", *made.flags(), "--job_name=ps", "--task_index=0", ferroflow=True,
                                    label="crnn.py ps"))
    flags = [f"--issync={sync}", f"--checkpoint_dir={tmp_path / 'logs'}"]
    found = train(processes, made, "crnn.py", "--train_steps=40", *flags, ferroflow=True)
    for result in found:
        assert result["global_step"] >= 40, found
        assert result["last_loss"] < 0.6 * result["first_loss"], found
    # init_fn restores what the Supervisor saved.
    again = train(processes, made, "crnn.py", "--train_steps=45", *flags, ferroflow=True)
    assert again[0]["start_step"] >= 40, again


def test_in_graph_replication_with_two_towers(cluster, processes):
    made = cluster(ps=1, workers=2)
    client = harness.script("in_graph.py", *made.flags(), "--train_steps=400")
    processes.append(client)
    result, = harness.results(client.expect_success(CLIENT_WATCHDOG_SECS))
    assert result["accuracy"] >= 0.93, result
    assert result["tower_devices"] == [made.worker(0).device, made.worker(1).device]


@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
def test_monitored_training_session(cluster, processes, tmp_path, sync):
    made = cluster(ps=1, workers=2)
    found = train(processes, made, "monitored.py", "--train_steps=400", f"--sync_replicas={sync}",
                  f"--checkpoint_dir={tmp_path / 'logs'}", after_chief="SESSION 1")
    for result in found:
        assert result["accuracy"] >= 0.9, found
        assert result["sessions"] == 1 and result["local_steps"] > 0, found
    # A worker reads the step while others count it up; the chief's last checkpoint has what it came to.
    assert int(re.search(r"model\.ckpt-(\d+)", (tmp_path / "logs" / "checkpoint").read_text())[1]) >= 400
