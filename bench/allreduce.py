"""Measures all-reduce among processes of one machine: ours, TensorFlow's, PyTorch's gloo and OpenMPI's.

Run it with `cargo xtask bench allreduce`; `-- --ranks=2 --bytes=4096,65536` measures only these. Ours and TensorFlow's are
measured with the same client and the same graphs (CollectiveReduce). PyTorch and mpi4py are used if this Python or the system's
has them, and reported as missing otherwise. All take turns. docs/allreduce.md keeps the tables of other processors.
"""
import argparse
import datetime
import json
import os
import queue
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import _figures
import _plot
import _report
from _processes import BENCH, FERROFLOW, STANDS_IN, TENSORFLOW, WATCHDOG_SECS, BenchError, Logged, harness, run_part, server_program

SECONDS = _figures.seconds(0.5)
ROUNDS = _figures.rounds(5)
KB, MB = 1 << 10, 1 << 20
BYTES = [4 * KB, 16 * KB, 64 * KB, 256 * KB, MB, 4 * MB, 16 * MB, 64 * MB, 256 * MB]
RANKS = [2, 4]
# The number of consecutive reductions in a step, so that TensorFlow's client doesn't dominate the measurement.
STEP_REDUCTIONS, STEP_BYTES = 16, 16 * MB
# If the machine is overloaded, spinning ranks take much longer than before.
STEPS_MAX = 4096
GLOO, MPI = "gloo", "OpenMPI"
NAMES = {FERROFLOW: "Ferroflow", TENSORFLOW: "TensorFlow", GLOO: "PyTorch, gloo", MPI: "OpenMPI"}
# The required speedups, from a size on.
BARS = {TENSORFLOW: [(64 * KB, 5.0), (0, 3.0)], GLOO: [(MB, 3.0)], MPI: [(MB, 1.0)]}

HEAD = """# All-reduce

How long it takes until every rank has the mean of the tensors of all ranks, which are processes of one machine: `cargo xtask bench
allreduce` writes this page. Elements are float32; the time is that of the slowest rank, the median of the rounds, and all programs take
turns. Ours and TensorFlow's are measured with the same client (TensorFlow 2.15) on the same graph: up to 16 `CollectiveReduce` ops one
after the other, each rank with a session on its own server. PyTorch and OpenMPI (by mpi4py) are called from Python, and divide the sum.

How many times as fast ours is stands in brackets, **bold** where it is at least what we ask for: against TensorFlow 5× from 64 kB on and
3× below, against gloo 3× from 1 MB on, and against OpenMPI the same from 1 MB on.

## How ours does it

Tasks of ours on one machine reduce in shared memory. Each rank leaves its tensor where it is; the others are told the place, over a Unix
socket, and read it there. Two ranks each add both tensors. More ranks each reduce their part of the tensor and copy the reduced parts of
the others; up to 256 kB in all, every rank reduces everything, which saves the second exchange. All add in the order of the ranks, so that
all have the same bits. Tasks of ours on different machines do the same over TCP; groups of more than 16, and groups with tasks of
TensorFlow, pass parts round a ring.

Below 1 MB it isn't memory that limits it, but the steps: each reduction is an op of a graph in a server, whose parts are asked for over a
socket and which is scheduled between threads, where an MPI program spins in one call until its neighbour has written.
"""


class Rank(Logged):
    """A process that is told what to do, and answers."""

    STDIN = subprocess.PIPE

    def __init__(self, name, command):
        super().__init__(name, command)
        self.answers = queue.SimpleQueue()
        self.start()

    def take(self, line):
        if line.startswith("ANSWER "):
            self.answers.put(json.loads(line[len("ANSWER "):]))
        else:
            super().take(line)

    def tell(self, command):
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        except OSError:
            # It has ended, which `hear` reports.
            pass

    def hear(self, others):
        deadline = time.monotonic() + WATCHDOG_SECS
        while True:
            try:
                answer = self.answers.get(timeout=0.5)
                break
            except queue.Empty:
                for process in (*others, self):
                    process.check()
                if time.monotonic() > deadline:
                    raise BenchError(f"{self.name} has not answered in {WATCHDOG_SECS} s; its log is {self.log_path}") from None
        if answer.get("error"):
            raise BenchError(f"{self.name}: {answer['error']}; its log is {self.log_path}")
        return answer


class Task(Logged):
    """A server of a job whose first task leads the collective groups."""

    def __init__(self, kind, addresses, index, directory):
        import tensorflow.compat.v1 as tf
        definition = tf.train.ServerDef(protocol="grpc", job_name="worker", task_index=index)
        definition.cluster.CopyFrom(tf.train.ClusterSpec({"worker": addresses}).as_cluster_def())
        definition.default_session_config.experimental.collective_group_leader = "/job:worker/replica:0/task:0"
        path = os.path.join(directory, f"{kind}-{index}.pb")
        with open(path, "wb") as file:
            file.write(definition.SerializeToString())
        super().__init__(f"{kind} /job:worker/task:{index}", [*server_program(kind), f"--server_def={path}"])
        self.is_ready = False
        self.start()

    def take(self, line):
        self.is_ready = self.is_ready or harness.READY.search(line) is not None
        super().take(line)


class Side:
    """All processes of one program."""

    def __init__(self, name, ranks, tasks=()):
        self.name, self.ranks, self.tasks = name, ranks, list(tasks)

    def ask(self, command):
        for rank in self.ranks:
            rank.tell(command)
        return [rank.hear([*self.ranks, *self.tasks]) for rank in self.ranks]

    def time(self, times):
        """Returns the duration of this many steps in seconds."""
        return max(answer["seconds"] for answer in self.ask({"run": times}))

    def stop(self):
        for process in (*self.ranks, *self.tasks):
            process.kill()


def on_servers(kind, size, directory):
    addresses = [f"127.0.0.1:{harness.PORTS.take()}" for _ in range(size)]
    tasks = [Task(kind, addresses, index, directory) for index in range(size)]
    for task in tasks:
        task.wait_until(lambda task=task: task.is_ready, "said that it is ready")
    command = [sys.executable, BENCH / "_allreduce_rank.py", "servers"]
    ranks = [Rank(f"{kind} rank {rank}", [*command, rank, size, f"grpc://{addresses[rank]}"]) for rank in range(size)]
    return Side(kind, ranks, tasks)


def with_torch(size):
    python = python_with("torch")
    if not python:
        return "neither this Python nor the system's has the package torch (PyPI: torch, Debian: python3-torch)"
    port = harness.PORTS.take()
    command = [python, BENCH / "_allreduce_rank.py", "torch"]
    return Side(GLOO, [Rank(f"{GLOO} rank {rank}", [*command, rank, size, port]) for rank in range(size)])


def with_mpi(size):
    mpirun, python = shutil.which("mpirun"), python_with("mpi4py.MPI")
    if not mpirun or not python:
        return "mpirun or the package mpi4py is not there (Debian: openmpi-bin, python3-mpi4py)"
    version = subprocess.run([mpirun, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    if "Open MPI" not in version:
        return f"{mpirun} is no OpenMPI"
    flags = ["--oversubscribe", "--bind-to", "none", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
    command = [mpirun, *flags, "-n", size, python, BENCH / "_allreduce_rank.py", "mpi"]
    return Side(MPI, [Rank(f"{MPI} of {size}", command)])


def python_with(module):
    """Returns a Python that has a module: this one, or the system's."""
    for python in (sys.executable, "/usr/bin/python3"):
        if os.path.exists(python) and subprocess.run([python, "-c", f"import numpy, {module}"], capture_output=True).returncode == 0:
            return python
    return None


def measure(count, sides):
    """Returns the duration of one reduction of this many bytes in seconds, for each round."""
    repeat = max(1, min(STEP_REDUCTIONS, STEP_BYTES // count))
    steps, rounds = {}, {side.name: [] for side in sides}
    for side in sides:
        side.ask({"prepare": count, "repeat": repeat})
        steps[side.name] = calibrated(side)
    for _ in range(ROUNDS):
        for side in sides:
            rounds[side.name].append(side.time(steps[side.name]) / steps[side.name] / repeat)
    return rounds


def calibrated(side):
    """Returns the number of steps that take as long as a round."""
    steps = 1
    while True:
        seconds = side.time(steps)
        if seconds >= SECONDS / 4 or steps >= STEPS_MAX:
            return max(1, min(STEPS_MAX, round(steps * SECONDS / seconds)))
        steps *= 2


def bar(side, count):
    """Returns the required speedup over a peer at a size, or None."""
    return next((bar for least, bar in BARS.get(side, []) if count >= least), None)


def row_of(ranks, count, rounds):
    ours = rounds[FERROFLOW]
    sides = {}
    for side, seconds in rounds.items():
        sides[side] = {"seconds": statistics.median(seconds), "rounds": seconds}
        if side != FERROFLOW:
            sides[side].update(_figures.spread([1 / value for value in seconds], [1 / value for value in ours]), bar=bar(side, count))
    return {"ranks": ranks, "bytes": count, "sides": sides}


def line(row):
    words = [f"{NAMES[side]} {result['seconds'] * 1e6:,.0f} µs" + (f" ({result['ratio']:.2f}x)" if "ratio" in result else "")
             for side, result in row["sides"].items()]
    return f"{row['ranks']} ranks, {_figures.size(row['bytes']):>7}: {', '.join(words)}"


def write(rows, absent):
    """Stores the results of this processor beside those of others, and writes the page."""
    path = _report.RESULTS / "allreduce.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    before = kept.get(_report.machine(), {"rows": []})
    measured = {(row["ranks"], row["bytes"]) for row in rows}
    rows = sorted([row for row in before["rows"] if (row["ranks"], row["bytes"]) not in measured] + rows,
                  key=lambda row: (row["ranks"], row["bytes"]))
    kept[_report.machine()] = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"), "seconds": SECONDS,
                               "rounds": ROUNDS, "absent": absent, "rows": rows}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    page = _report.DOCS / "allreduce.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    notes = page.read_text().split(_report.MARK, 1)[1] if page.exists() and _report.MARK in page.read_text() else "\n"
    lines = [HEAD]
    for machine in sorted(kept):
        lines += section(machine, kept[machine])
    (_report.DOCS / "allreduce.svg").write_text(plot(kept[_report.machine()]["rows"]))
    page.write_text("\n".join(lines) + _report.MARK + notes)


def section(machine, result):
    lines = [f"## {machine}", "", f"Measured on {result['date']}, {result['rounds']} rounds of {result['seconds']:g} s.", ""]
    if machine == _report.machine():
        lines += ["![seconds by size](allreduce.svg)", ""]
    for ranks in sorted({row["ranks"] for row in result["rows"]}):
        rows = [row for row in result["rows"] if row["ranks"] == ranks]
        others = [side for side in NAMES if side != FERROFLOW and any(side in row["sides"] for row in rows)]
        lines += [f"| {ranks} ranks | Ferroflow, µs | " + " | ".join(f"{NAMES[side]}, µs" for side in others) + " |",
                  "|--:|--:|" + "--:|" * len(others)]
        for row in rows:
            cells = [cell(row["sides"].get(side)) for side in others]
            lines.append(f"| {_figures.size(row['bytes'])} | {row['sides'][FERROFLOW]['seconds'] * 1e6:,.0f} | " + " | ".join(cells) + " |")
        lines.append("")
    return lines + [f"Left out: {NAMES[side]}: {reason}." for side, reason in result["absent"].items()] + [""] * bool(result["absent"])


def cell(result):
    if not result:
        return "–"
    ratio = f"{result['ratio']:.2f}×"
    if result["bar"] is not None and result["ratio"] >= result["bar"]:
        ratio = f"**{ratio}**"
    return f"{result['seconds'] * 1e6:,.0f} ({ratio})"


def plot(rows):
    panels = []
    for ranks in sorted({row["ranks"] for row in rows}):
        series = {}
        for row in rows:
            if row["ranks"] == ranks:
                for side, result in row["sides"].items():
                    series.setdefault(NAMES[side].split(",")[0], []).append((row["bytes"], result["seconds"] * 1e6))
        panels.append({"title": f"an all-reduce among {ranks} ranks, µs", "x_label": "bytes of a rank's tensor", "x_format": _figures.size,
                       "y_format": lambda value: f"{value:,.0f}", "series": series})
    return _plot.panels(panels)


def main():
    parser = argparse.ArgumentParser()
    numbers = lambda text: [int(part) for part in text.split(",")]  # noqa: E731
    parser.add_argument("--bytes", type=numbers, default=BYTES, help="the sizes to measure")
    parser.add_argument("--ranks", type=numbers, default=RANKS, help="the numbers of ranks to measure")
    arguments = parser.parse_args()
    if any(count < 4 or count % 4 for count in arguments.bytes) or any(ranks < 2 for ranks in arguments.ranks):
        parser.error("sizes are multiples of 4 bytes, and there are at least 2 ranks")
    print(f"{_report.machine()}; {ROUNDS} rounds of {SECONDS:g} s in turns", flush=True)
    rows, absent = [], {}
    for ranks in arguments.ranks:
        with tempfile.TemporaryDirectory() as directory:
            made = {FERROFLOW: on_servers(FERROFLOW, ranks, directory), TENSORFLOW: on_servers(TENSORFLOW, ranks, directory)}
            if not STANDS_IN:
                made.update({GLOO: with_torch(ranks), MPI: with_mpi(ranks)})
            sides = [side for side in made.values() if isinstance(side, Side)]
            for name, reason in made.items():
                if isinstance(reason, str) and name not in absent:
                    print(f"{NAMES[name]}: left out: {reason}", flush=True)
                    absent[name] = reason
            for count in arguments.bytes:
                rows.append(row_of(ranks, count, measure(count, sides)))
                print(line(rows[-1]), flush=True)
                write(rows, absent)
            for side in sides:
                side.stop()


if __name__ == "__main__":
    run_part(main)
