"""The servers that all op tests share."""

import pytest

import harness


@pytest.fixture(scope="session")
def op_server():
    cluster = harness.Cluster(ps=0, workers=1)
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def level_targets():
    """The targets of servers that use lower instruction levels than the processor has, by level."""
    clusters = {level: harness.Cluster(ps=0, workers=1, env={"FERROFLOW_CPU": level}) for level in harness.lower_levels()}
    yield {level: cluster.target for level, cluster in clusters.items()}
    for cluster in clusters.values():
        cluster.stop()
