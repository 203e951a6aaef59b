"""The real TensorFlow client on servers that take TLS only, by way of `ferroflow proxy`."""

import os
import subprocess

import pytest
import tensorflow.compat.v1 as tf

import harness

tf.disable_v2_behavior()

pytestmark = pytest.mark.skipif(harness.default_kind() == harness.TENSORFLOW, reason="TensorFlow's servers know no TLS")

TRAIN = """
import sys
import tensorflow as tf
with tf.device("/job:ps/task:0"):
    w = tf.Variable(0.0)
loss = tf.square(w - 3.0)
train = tf.train.GradientDescentOptimizer(0.25).minimize(loss)
with tf.Session(sys.argv[1]) as session:
    session.run(tf.global_variables_initializer())
    for _ in range(30):
        session.run(train)
    print("trained", round(float(session.run(w)), 3), flush=True)
    print("function", session.run(tf.py_func(lambda: 7.0, [], tf.float64)), flush=True)
"""


@pytest.fixture
def certificates(tmp_path):
    directory = str(tmp_path / "certs")

    def certs(*arguments):
        subprocess.run([harness.ferroflow_bin(), "certs", *arguments], check=True, stdout=subprocess.DEVNULL)

    certs("init", directory)
    certs("issue", directory, "--client=ann", "--cluster_spec=ps|localhost:1,worker|localhost:2")
    return directory


def environment(directory, name):
    return {f"FERROFLOW_TLS_{variable}": os.path.join(directory, file)
            for variable, file in (("CERT", f"{name}.pem"), ("KEY", f"{name}.key"), ("CA", "ca.pem"))}


def test_a_program_trains_through_the_proxy_that_it_starts_itself(certificates, tmp_path, request):
    cluster = harness.Cluster(ps=1, workers=1, kind=harness.FERROFLOW, env=environment(certificates, "{job}-{task}"))
    request.addfinalizer(cluster.stop)
    program = tmp_path / "train.py"
    program.write_text(TRAIN)
    env = environment(certificates, "client-ann")
    trained = harness.script(str(program), cluster.target, ferroflow=True, env=env, label="program")
    lines = trained.expect_success().splitlines()
    assert "trained 3.0" in lines and "function 7.0" in lines, lines
    # Without the proxy the client is told why it is not served.
    with pytest.raises(tf.errors.UnauthenticatedError, match="over TLS only"):
        with tf.Session(cluster.target) as session:
            session.run(tf.constant(1.0))
