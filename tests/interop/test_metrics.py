"""The metrics of a task, as Prometheus' own client for Python reads them."""

import re
import urllib.request

import pytest
import tensorflow.compat.v1 as tf
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import harness

tf.disable_v2_behavior()

pytestmark = pytest.mark.skipif(harness.default_kind() == harness.TENSORFLOW, reason="TensorFlow's servers have no metrics")


def families(task):
    """Returns the metrics of a task by the name of their family."""
    address = task.wait_for(re.compile(r"http://([^/\s]+)/").search, "the address of its status port")[1]
    with urllib.request.urlopen(f"http://{address}/metrics") as answer:
        return {family.name: family for family in text_string_to_metric_families(answer.read().decode())}


def test_prometheus_reads_what_a_cluster_that_trains_tells(cluster):
    running = cluster(ps=1, workers=1, arguments=["--http_port=0"])
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            variable = tf.get_variable("weights", initializer=[0.0] * 1000, use_resource=True)
        with tf.device("/job:worker/task:0"):
            gradient = tf.random.uniform([1000])
        with tf.device("/job:ps/task:0"):
            update = variable.assign_add(gradient)
        with tf.Session(running.target) as session:
            session.run(variable.initializer)
            for _ in range(5):
                session.run(update.op)
            worker, ps = families(running.worker(0)), families(running.ps(0))
    steps = {sample.name: sample.value for sample in worker["ferroflow_step_duration_seconds"].samples}
    assert steps["ferroflow_step_duration_seconds_count"] == 6
    [peer] = worker["ferroflow_peer_up"].samples
    assert peer.labels == {"peer": "/job:ps/replica:0/task:0"} and peer.value == 1
    sizes = {sample.labels["variable"]: sample.value for sample in ps["ferroflow_variable_bytes"].samples}
    assert sizes == {"weights": 4000}
    sent = {sample.labels["peer"]: sample.value for sample in worker["ferroflow_transfer_bytes"].samples
            if sample.labels["direction"] == "sent"}
    assert sent["/job:ps/replica:0/task:0"] >= 5 * 4000
