"""Measures server start-up, and the sessions per second that a server handles: ours and TensorFlow's, in turns.

Run it with `cargo xtask bench sessions`.
"""
import os
import pathlib
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Session targets are on loopback, whatever the machine's proxy settings are.
os.environ["no_proxy"] = os.environ["NO_PROXY"] = "*"
import tensorflow.compat.v1 as tf  # noqa: E402

import _figures  # noqa: E402
import _report  # noqa: E402
from _processes import FERROFLOW, TENSORFLOW, BenchError, Server, binary, harness, run_part  # noqa: E402

tf.disable_v2_behavior()
SECONDS = _figures.seconds(3)
ROUNDS = _figures.rounds(5)
BINARY_BAR_MB = 30


def one_session(target, graph, fetch):
    with tf.Session(target, graph=graph) as session:
        assert session.run(fetch) == 3.0


class Watched(Server):
    """A server whose end ends this program, since a TensorFlow client waits for a lost one."""

    is_leaving = False

    def _read(self, process):
        super()._read(process)
        if self.is_ready and not self.is_leaving:
            print(f"bench/sessions.py: {self.name} ended with {self.returncode}; its log is {self.log_path}",
                  file=sys.stderr, flush=True)
            os._exit(1)

    def kill(self):
        self.is_leaving = True
        super().kill()


def measure(kind, graph, fetch):
    """Returns the time from starting a server to the end of the first session, and the sessions per second."""
    port = harness.PORTS.take()
    target = f"grpc://localhost:{port}"
    begin = time.perf_counter()
    server = Watched(kind, f"at {port}", [f"--port={port}"])
    try:
        server.wait_ready()
        one_session(target, graph, fetch)
        startup = time.perf_counter() - begin
        sessions, begin = 0, time.perf_counter()
        while sessions == 0 or time.perf_counter() - begin < SECONDS:
            one_session(target, graph, fetch)
            sessions += 1
        return startup, sessions / (time.perf_counter() - begin)
    except tf.errors.OpError as error:
        server.check()
        raise BenchError(f"{server.name}: {error}; its log is {server.log_path}") from None
    finally:
        server.kill()


def main():
    print(_report.machine_line(SECONDS, ROUNDS), flush=True)
    graph = tf.Graph()
    with graph.as_default():
        fetch = tf.constant(1.0) + tf.constant(2.0)
    measured = {kind: [] for kind in (TENSORFLOW, FERROFLOW)}
    for _ in range(ROUNDS):
        for kind in measured:
            measured[kind].append(measure(kind, graph, fetch))
    results = []
    for index, name, unit, bar, invert in (
            (0, "start-up to the first session", "s", 50, True),
            (1, "sessions (connect, run once, close)", "sessions/s", None, False)):
        theirs, ours = ([figures[index] for figures in measured[kind]] for kind in measured)
        spread = _figures.spread(ours, theirs) if invert else _figures.spread(theirs, ours)
        result = {"case": name, "unit": unit, "tensorflow": statistics.median(theirs), "ours": statistics.median(ours),
                  **spread, "bar": bar}
        results.append(result)
        print(f"{name:42} {result['tensorflow']:12.3f} {result['ours']:12.3f} {unit:11} ratio {result['ratio']:7.1f} "
              f"({result['ratio_min']:.1f}-{result['ratio_max']:.1f}; bar {bar})", flush=True)
    megabytes = pathlib.Path(binary()).stat().st_size / 1e6
    results.append({"case": "size of the binary", "unit": "MB", "ours": megabytes, "bar": BINARY_BAR_MB})
    print(f"{'size of the binary':42} {'':12} {megabytes:12.1f} MB          (bar: under {BINARY_BAR_MB})", flush=True)
    _report.write("sessions", results, SECONDS, ROUNDS)


if __name__ == "__main__":
    run_part(main)
