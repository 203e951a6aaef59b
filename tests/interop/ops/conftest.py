"""The server that all op tests share."""

import pytest

import harness


@pytest.fixture(scope="session")
def op_server():
    cluster = harness.Cluster(ps=0, workers=1)
    yield cluster
    cluster.stop()
