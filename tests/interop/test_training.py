"""Whole training programs: the scripts of `scripts/` on our servers, between-graph and in-graph, async and sync."""

import pytest

import harness

pytestmark = [pytest.mark.slow, pytest.mark.watchdog(600)]

CLIENT_WATCHDOG_SECS = 400


def train(processes, cluster, name, *arguments, workers=2, ferroflow=False, tasks=None):
    """Runs one client process per worker to its end, and returns the results that they printed, by task."""
    clients = [
        harness.script(name, *cluster.flags(), "--job_name=worker", f"--task_index={index}", *arguments,
                       ferroflow=ferroflow, label=f"{name} worker {index}")
        for index in tasks or range(workers)
    ]
    processes.extend(clients)
    found = []
    for client in clients:
        found += harness.results(client.expect_success(CLIENT_WATCHDOG_SECS))
    return sorted(found, key=lambda result: result["task"])


REPLICA_MODES = {
    "async": [],
    "sync": ["--sync_replicas=True"],
    "sync_aggregating_one": ["--sync_replicas=True", "--replicas_to_aggregate=1"],
}


@pytest.mark.parametrize("mode", sorted(REPLICA_MODES))
def test_mnist_replica_on_existing_servers(cluster, processes, mode):
    made = cluster(ps=1, workers=2)
    check_replicas(train(processes, made, "mnist_replica.py", "--existing_servers=True", "--train_steps=1000",
                         *REPLICA_MODES[mode]), mode)


@pytest.mark.parametrize("mode", sorted(REPLICA_MODES))
def test_mnist_replica_starts_its_own_servers(processes, mode):
    made = harness.Cluster(ps=1, workers=2, start=False)
    ps = harness.script("mnist_replica.py", *made.flags(), "--job_name=ps", "--task_index=0", ferroflow=True,
                        label="mnist_replica.py ps")
    processes.append(ps)
    check_replicas(train(processes, made, "mnist_replica.py", "--train_steps=1000", *REPLICA_MODES[mode], ferroflow=True),
                   mode)
    assert ps.returncode is None, ps.log()


def check_replicas(found, mode):
    assert [result["task"] for result in found] == [0, 1]
    for result in found:
        assert result["global_step"] >= 1000
        assert result["accuracy"] >= 0.95, found
    local_steps = [result["local_steps"] for result in found]
    assert min(local_steps) > 0
    if mode == "sync":
        # Both contribute to every step, give or take the one that was under way when the other began.
        assert abs(local_steps[0] - local_steps[1]) <= 50, found
