"""How soon a server is there, and how many sessions a second it takes: ours and TensorFlow's, in turns.

Run it with `cargo xtask bench sessions`.
"""
import os
import pathlib
import statistics
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "interop"))
import harness  # noqa: E402
import tensorflow.compat.v1 as tf  # noqa: E402

import _report  # noqa: E402

tf.disable_v2_behavior()
SECONDS = float(os.environ.get("FERROFLOW_BENCH_SECONDS", "3"))
ROUNDS = int(os.environ.get("FERROFLOW_BENCH_ROUNDS", "5"))


def start(kind):
    """Starts a server on a port of its own; returns the process and the target once it says that it is ready."""
    program = [os.environ["FERROFLOW_BIN"], "server"]
    if kind == harness.TENSORFLOW:
        program = [sys.executable, str(ROOT / "tests" / "interop" / "tf_server.py")]
    port = harness.PORTS.take()
    process = subprocess.Popen(program + [f"--port={port}"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               env={**os.environ, "no_proxy": "*"})
    if not process.stdout.readline():
        sys.exit(f"a server did not start: {process.args}")
    return process, f"grpc://localhost:{port}"


def one_session(target, graph, fetch):
    with tf.Session(target, graph=graph) as session:
        assert session.run(fetch) == 3.0


def main():
    graph = tf.Graph()
    with graph.as_default():
        fetch = tf.constant(1.0) + tf.constant(2.0)
    startups = {kind: [] for kind in (harness.TENSORFLOW, harness.FERROFLOW)}
    rates = {kind: [] for kind in startups}
    for _ in range(ROUNDS):
        for kind in startups:
            begin = time.perf_counter()
            process, target = start(kind)
            one_session(target, graph, fetch)
            startups[kind].append(time.perf_counter() - begin)
            sessions, begin = 0, time.perf_counter()
            while time.perf_counter() - begin < SECONDS:
                one_session(target, graph, fetch)
                sessions += 1
            rates[kind].append(sessions / (time.perf_counter() - begin))
            process.kill()
            process.wait()
    results = []
    for name, figures, unit, bar, invert in (
            ("start-up to the first session", startups, "s", 50, True),
            ("sessions (connect, run once, close)", rates, "sessions/s", None, False)):
        theirs, ours = figures[harness.TENSORFLOW], figures[harness.FERROFLOW]
        ratios = [t / o if invert else o / t for t, o in zip(theirs, ours)]
        result = {"case": name, "unit": unit, "tensorflow": statistics.median(theirs), "ours": statistics.median(ours),
                  "ratio": statistics.median(ratios), "ratio_min": min(ratios), "ratio_max": max(ratios), "bar": bar}
        results.append(result)
        print(f"{name:38} {result['tensorflow']:9.3f} {result['ours']:9.3f} {unit:11} ratio {result['ratio']:7.1f} "
              f"({result['ratio_min']:.1f}-{result['ratio_max']:.1f}; bar {bar})", flush=True)
    _report.write("sessions", results)


if __name__ == "__main__":
    main()
