"""Tokens and quotas with the real TensorFlow client, and what the audit log has of files."""

import json
import os

import pytest
import tensorflow.compat.v1 as tf

import harness

tf.disable_v2_behavior()

pytestmark = pytest.mark.skipif(harness.default_kind() == harness.TENSORFLOW, reason="TensorFlow's servers know no tokens")

ANN = "ann-0123456789abcdef"


def config(token):
    settings = tf.ConfigProto()
    settings.experimental.session_metadata.name = "ferroflow-token:" + token
    return settings


@pytest.fixture
def server(tmp_path, request):
    tokens = tmp_path / "tokens"
    tokens.write_text(f"# who may use the server\nclient ann {ANN}\n")
    tokens.chmod(0o600)
    audit = tmp_path / "audit.json"
    flags = [f"--tokens={tokens}", f"--audit_log={audit}", "--client_quota=sessions=1,nodes=100"]
    cluster = harness.Cluster(ps=0, workers=1, kind=harness.FERROFLOW, arguments=flags)
    request.addfinalizer(cluster.stop)
    return cluster, audit


def test_the_client_says_who_it_is_and_has_its_quota(server, tmp_path):
    cluster, audit = server
    graph = tf.Graph()
    with graph.as_default():
        v = tf.get_variable("v", initializer=[1.0, 2.0])
        total = tf.reduce_sum(v)
        saver = tf.train.Saver()
    with pytest.raises(tf.errors.UnauthenticatedError, match="doesn't know the token"):
        with tf.Session(cluster.target, graph=graph, config=config("nobody-0123456789")) as session:
            session.run(total)
    prefix = str(tmp_path / "model")
    with tf.Session(cluster.target, graph=graph, config=config(ANN)) as session:
        session.run(v.initializer)
        assert session.run(total) == 3.0
        saver.save(session, prefix, write_state=False, write_meta_graph=False)
        with pytest.raises(tf.errors.ResourceExhaustedError, match="has 1 sessions and asks for 1 more"):
            with tf.Session(cluster.target, graph=graph, config=config(ANN)) as second:
                second.run(total)
    large = tf.Graph()
    with large.as_default():
        outputs = [tf.constant(float(number)) for number in range(200)]
    with pytest.raises(tf.errors.ResourceExhaustedError, match="nodes"):
        with tf.Session(cluster.target, graph=large, config=config(ANN)) as session:
            session.run(outputs)
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    whos = {line["who"] for line in lines if line["event"] == "session" and line["code"] == "OK"}
    assert whos == {"token of client ann (a client)"}, lines
    files = {(line["call"], os.path.basename(line["path"])) for line in lines if line["event"] == "file"}
    assert ("rename", "model.index") in files, files
    assert any(call == "write" for call, _ in files), files
    assert ANN not in audit.read_text()
