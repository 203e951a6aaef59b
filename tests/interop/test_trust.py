"""Who is served: users of the machine, clients beside others that are silent, and what all interfaces take."""

import os
import socket
import sys

import grpc
import pytest
import tensorflow.compat.v1 as tf

import harness
from test_servers import local_server, server

tf.disable_v2_behavior()

pytestmark = pytest.mark.skipif(harness.default_kind() == harness.TENSORFLOW, reason="TensorFlow serves everybody")

NOBODY = 65534

# Imports as whoever may read the installation, and connects as somebody else.
AS_NOBODY = f"""
import os, sys
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
for address in sys.argv[1:]:
    try:
        with tf.Session("grpc://" + address) as session:
            print("served", session.run(tf.constant(3.0) * 2.0), flush=True)
    except tf.errors.PermissionDeniedError as error:
        print("refused", " ".join(error.message.split()), flush=True)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_served_only_if_the_server_was_told(processes, graph):
    closed, own_only = local_server(processes)
    _, shared = local_server(processes, f"--allow_users=daemon,{NOBODY}")
    _, open_to_all = local_server(processes, "--allow-users=*")
    client = harness.Process("client of another user", [sys.executable, "-c", AS_NOBODY, own_only, shared, open_to_all])
    processes.append(client.start())
    lines = [line for line in client.expect_success().splitlines() if line.startswith(("served", "refused"))]
    assert [line.split()[0] for line in lines] == ["refused", "served", "served"], lines
    assert "this server serves only root, not" in lines[0] and "--allow_users=" in lines[0], lines
    assert lines[1] == "served 6.0", lines
    closed.wait_for(lambda line: "is not served" in line and "--allow_users=" in line, "whom it does not serve")
    # The user whose server it is does not notice.
    with tf.Session("grpc://" + own_only) as session:
        assert session.run(tf.constant(3.0) * 2.0) == 6.0


def test_silent_connections_keep_nobody_out(processes, graph):
    limited = ["sh", "-c", 'ulimit -n 256 && exec "$0" server --port=0', harness.ferroflow_bin()]
    one = harness.Process("server with few descriptors", limited, {"TF_CONFIG": ""}).start()
    processes.append(one)
    host, _, port = one.wait_for(harness.READY.search, "that it is ready")[2].rpartition(":")
    silent = []
    try:
        for count in range(300):
            silent.append(socket.create_connection((host, int(port)), timeout=60))
            # Some of them begin to speak and stop in the middle.
            silent[-1].sendall(b"PRI * HTTP/2.0"[:count % 15])
        with tf.Session(f"grpc://{host}:{port}") as session:
            assert session.run(tf.constant(3.0) * 2.0) == 6.0
        written = sum(len(line) for line in one.lines)
        assert written < 20_000, f"{written} bytes of lines"
        # The oldest were closed for the newest.
        silent[0].settimeout(60)
        assert silent[0].recv(1) == b""
    finally:
        for connection in silent:
            connection.close()


def test_all_interfaces_are_asked_for(processes, graph):
    port = harness.PORTS.take()
    service = [f"--worker_hosts=some-service.invalid:{port}", "--job_name=worker"]
    refused = server(processes, *service)
    assert refused.wait() not in (0, None), refused.log()
    text = "\n".join(refused.lines)
    for words in ("some-service.invalid", "--insecure", "FERROFLOW_INSECURE=1"):
        assert words in text, refused.log()
    for arguments, env in [(["--insecure"], {}), ([], {"FERROFLOW_INSECURE": "1"})]:
        told = server(processes, *service, *arguments, env=env)
        line = told.wait_for(lambda line: line if harness.READY.search(line) else None, "that it is ready")
        assert "(listening on all interfaces)" in line, told.log()
        told.wait_for(lambda line: "without encryption" in line and "every machine" in line, "who can reach it")
        told.kill()
    one, _ = local_server(processes)
    one.wait_for(lambda line: "without encryption: no other machine can reach it" in line, "who can reach it")


def test_handles_are_in_no_line(processes, graph):
    one, address = local_server(processes, "--session_gc_seconds=1", env={"FERROFLOW_LOG": "debug"})
    with tf.Session("grpc://" + address) as session:
        session.run(tf.constant(1.0))
        handle = _handle_of(address)
    assert len(handle) == 32
    # It is the line about this session, whose client is gone.
    one.wait_for(lambda line: "is ended" in line, "that the session is ended")
    assert not any(handle in line for line in one.lines), one.log()


def _handle_of(address):
    """Opens a session as a client that goes away does, and returns its handle."""
    with grpc.insecure_channel(address) as channel:
        # Both messages by hand: an empty request, and the handle as the first field of the answer.
        response = channel.unary_unary("/tensorflow.MasterService/CreateSession")(b"")
    assert response[0] == 0x0a and response[1] < 0x80, response
    return response[2:2 + response[1]].decode()
