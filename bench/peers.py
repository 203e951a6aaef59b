"""Compares training steps with other libraries: an MLP, a CNN and an LSTM in burn, candle, tch, TensorFlow, PyTorch and ours.

Run it with `cargo xtask bench peers`; it isn't part of a plain `cargo xtask bench`, since it builds the other libraries. The
programs are in bench/peers, a separate workspace, and are built in target/peers, each in its own directory, so that build times
can be measured. PyTorch is installed in a separate environment, which tch uses as well. All train on the same batch of digits, in
turns; what isn't available is named and left out. docs/peers.md keeps the tables of other processors.

`cargo xtask bench peers -- burn candle` measures these and ours. FERROFLOW_BENCH_JOBS=1 builds with one job.
"""
import datetime
import gzip
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time

import _figures
import _report
from _processes import BenchError, run_part

SECONDS = _figures.seconds(3)
ROUNDS = _figures.rounds(5)
ROOT = pathlib.Path(__file__).resolve().parent.parent
PEERS = ROOT / "bench" / "peers"
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "peers"
DIGITS = ROOT / "crates" / "digits" / "mnist"
BATCH = 100
MODELS = {"mlp": "MLP", "cnn": "CNN", "lstm": "LSTM"}
OURS = "ferroflow"

# name: (the crate or the Python program, the back end, the package that has the version)
RUST_PEERS = {
    OURS: ("ours", "", "ferroflow"),
    "burn, flex": ("burn", "flex", "burn"),
    "burn, ndarray": ("burn", "ndarray", "burn"),
    "candle": ("candle", "", "candle-core"),
    "tch": ("tch", "", "tch"),
}
PYTHON_PEERS = {"TensorFlow": ("tensorflow_peer.py", "tensorflow"), "PyTorch": ("torch_peer.py", "torch")}
# The Python that has PyTorch, or why there is none; `cargo xtask bench peers` sets it up.
TORCH_PYTHON = os.environ.get("FERROFLOW_TORCH_PYTHON", "")
TORCH_MISSING = os.environ.get("FERROFLOW_TORCH_MISSING") or "PyTorch is not installed"

HEAD = """# Beside other libraries

The same training steps in other libraries, on the CPU: `cargo xtask bench peers` writes this page. Every program trains on one
batch of 100 digits that all of them share, and reads the loss after each step: an MLP (784-100-10, Adam), a CNN (5x5x32, 5x5x64,
512, 10 on 28x28, gradient descent) and an LSTM (28 rows of 28 pixels, 128 units, gradient descent). Each uses the layers of its
library and the number of threads that the library takes by itself. They are measured in turns.

- *steps/s* is the median of the rounds; *ours* how many times as many steps ferroflow takes.
- *peak memory* is the process's largest resident set.
- *build* is a release build from nothing but downloaded sources, with as many jobs as the table says. tch links the library of the
  Python package `torch`, which is not built. The package for Linux brings CUDA's libraries, and their pages count as memory.
- *lines* are those of the program with all three models, without blank lines and comments.

The programs are in [`bench/peers`](../bench/peers).
"""


class Peer:
    """A program that trains a model, and how it was built."""

    def __init__(self, name, command, version, lines, build_seconds=None):
        self.name = name
        self.command = command
        self.version = version
        self.lines = lines
        self.build_seconds = build_seconds


def main():
    wanted = set(sys.argv[1:])
    known = {name.split(",")[0] for name in [*RUST_PEERS, *PYTHON_PEERS]}
    if wanted - known:
        raise BenchError(f"there is no peer {', '.join(sorted(wanted - known))}; there are: {', '.join(sorted(known))}")
    print(f"{_report.machine()}; {ROUNDS} rounds of {SECONDS:g} s in turns", flush=True)
    batch = write_batch()
    peers, absent = [], {}
    for name in [*RUST_PEERS, *PYTHON_PEERS]:
        if wanted and name != OURS and name.split(",")[0] not in wanted:
            continue
        made = rust_peer(name) if name in RUST_PEERS else python_peer(name)
        if isinstance(made, str):
            print(f"{name}: left out: {made}", flush=True)
            absent[name] = made
        else:
            peers.append(made)
    rows = []
    for model in MODELS:
        rows += measured(model, peers, batch)
    write(rows, peers, absent)


def write_batch():
    """Writes the batch as plain numbers, so that every library reads the same data; returns the directory."""
    directory = TARGET / "batch"
    directory.mkdir(parents=True, exist_ok=True)
    import numpy as np
    with gzip.open(DIGITS / "train-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(16 + BATCH * 784)[16:], np.uint8)
    with gzip.open(DIGITS / "train-labels-idx1-ubyte.gz") as file:
        labels = file.read(8 + BATCH)[8:]
    (images.astype("<f4") / np.float32(255)).tofile(directory / "images.f32")
    (directory / "labels.u8").write_bytes(labels)
    return directory


def rust_peer(name):
    """Builds a Rust program; returns it, or the reason why it can't be built."""
    crate, variant, package = RUST_PEERS[name]
    environment = dict(os.environ)
    if crate == "tch":
        if not TORCH_PYTHON:
            return last_line(TORCH_MISSING)
        # Its build script asks the first Python on the path for the library's location.
        environment.update(LIBTORCH_USE_PYTORCH="1", PATH=f"{pathlib.Path(TORCH_PYTHON).parent}:{os.environ['PATH']}")
        found = subprocess.run([TORCH_PYTHON, "-c", "import torch; print(torch.__file__)"], stdout=subprocess.PIPE, text=True)
        environment["LD_LIBRARY_PATH"] = str(pathlib.Path(found.stdout.strip()).parent / "lib")
    seconds = build(crate, environment)
    if isinstance(seconds, str):
        return seconds
    program = TARGET / crate / "release" / f"peer-{crate}"
    prefix = ["env", f"LD_LIBRARY_PATH={environment['LD_LIBRARY_PATH']}"] if crate == "tch" else []
    command = [*prefix, str(program), "{model}", "{batch}", *([variant] if variant else [])]
    return Peer(name, command, locked_version(package), lines_of(PEERS / crate / "src" / "main.rs"), seconds)


def build(crate, environment):
    """Builds a crate; returns the duration of a clean build, or why it can't be built."""
    target, stamp = TARGET / crate, TARGET / f"{crate}.build.json"
    jobs = int(os.environ.get("FERROFLOW_BENCH_JOBS") or os.cpu_count() or 1)
    command = ["cargo", "build", "--release", "--locked", "--package", f"peer-{crate}", "--target-dir", str(target), "--jobs", str(jobs)]
    command += ["--manifest-path", str(PEERS / "Cargo.toml")]
    if crate == "ours":
        # Its manifests change with the product, and so does the lock file.
        command.remove("--locked")
    if not stamp.exists() and target.exists():
        # An unfinished build would only measure the rest.
        shutil.rmtree(target)
    subprocess.run(["cargo", "fetch", "--quiet", "--manifest-path", str(PEERS / "Cargo.toml")], check=False)
    print(f"building peer-{crate}", flush=True)
    start = time.perf_counter()
    run = subprocess.run(command, env=environment, cwd=PEERS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if run.returncode:
        return f"it can't be built: {(run.stdout.strip().splitlines() or ['cargo says nothing'])[-1]}"
    if not stamp.exists():
        stamp.write_text(json.dumps({"seconds": time.perf_counter() - start, "jobs": jobs}))
    return json.loads(stamp.read_text())


def python_peer(name):
    """Returns a Python program, or the reason why it can't run."""
    script, package = PYTHON_PEERS[name]
    python = TORCH_PYTHON if package == "torch" else sys.executable
    if not python:
        return last_line(TORCH_MISSING)
    found = subprocess.run([python, "-c", VERSION, package], stdout=subprocess.PIPE, text=True)
    if found.returncode:
        return f"the Python package {package} is not installed"
    return Peer(name, [python, str(PEERS / script), "{model}", "{batch}"], found.stdout.strip(), lines_of(PEERS / script))


# Prints the version of a package, which may have a name of its own for processors.
VERSION = """
import sys
from importlib.metadata import PackageNotFoundError, version
try:
    print(version(sys.argv[1]))
except PackageNotFoundError:
    print(version(f"{sys.argv[1]}-cpu"))
"""


def last_line(text):
    return (text.strip().splitlines() or ["it says nothing"])[-1].rstrip(".")


def locked_version(package):
    text = (PEERS / "Cargo.lock").read_text()
    found = re.search(rf'^name = "{re.escape(package)}"\nversion = "([^"]+)"', text, re.MULTILINE)
    return found[1] if found else "?"


def lines_of(path):
    """Returns a program's number of lines of code."""
    lines = [line.strip() for line in path.read_text().splitlines()]
    return sum(1 for line in lines if line and not line.startswith(("//", "#", '"""')))


class Running:
    """A peer's process for one model."""

    def __init__(self, peer, model, batch):
        self.peer, self.rates = peer, []
        command = [word.format(model=model, batch=batch) for word in peer.command]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONDONTWRITEBYTECODE": "1"}
        self.log = (TARGET / f"{model}-{peer.name.replace(', ', '-')}.log").open("w+")
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.losses = [float(word) for word in self.answer().split()]
        if len(self.losses) != 2 or not self.losses[1] < self.losses[0]:
            raise BenchError(f"{peer.name} does not train the {model}: losses {self.losses}")

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.log.seek(0)
            last = (self.log.read().strip().splitlines() or ["it says nothing"])[-1]
            raise BenchError(f"{self.peer.name} ended with {self.process.returncode}: {last} ({self.log.name})")
        return line

    def sample(self, seconds):
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        self.rates.append(float(self.answer()))

    def peak_mb(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
        return int(found[1]) / 1024 if found else 0.0

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


def measured(model, peers, batch):
    """Returns a row for each peer; they are measured in turns."""
    running = []
    try:
        for peer in peers:
            running.append(Running(peer, model, batch))
        for _ in range(ROUNDS):
            for one in running:
                one.sample(SECONDS)
        rows = []
        ours = next(one for one in running if one.peer.name == OURS)
        for one in running:
            ratio = statistics.median(a / b for a, b in zip(ours.rates, one.rates))
            row = {"model": model, "peer": one.peer.name, "rate": statistics.median(one.rates), "rates": one.rates,
                   "ratio": ratio, "peak_mb": one.peak_mb(), "losses": one.losses}
            print(f"{MODELS[model]:5} {one.peer.name:14} {row['rate']:9.1f} steps/s  ours {ratio:6.2f}x  "
                  f"{row['peak_mb']:6.0f} MB", flush=True)
            rows.append(row)
        return rows
    finally:
        for one in running:
            one.stop()


def write(rows, peers, absent):
    """Stores the results of this processor beside those of others, and writes the page."""
    path = _report.RESULTS / "peers.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    programs = {peer.name: {"version": peer.version, "lines": peer.lines, "build": peer.build_seconds} for peer in peers}
    kept[_report.machine()] = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"), "seconds": SECONDS, "rounds": ROUNDS,
        "programs": programs, "absent": absent, "rows": rows,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    page = _report.DOCS / "peers.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    notes = page.read_text().split(_report.MARK, 1)[1] if page.exists() and _report.MARK in page.read_text() else "\n"
    tables = "\n".join([HEAD, *(line for machine in sorted(kept) for line in section(machine, kept[machine]))])
    page.write_text(f"{tables}\n{_report.MARK}{notes}")


def section(machine, result):
    lines = [f"## {machine}", "", f"Measured on {result['date']}, {result['rounds']} rounds of {result['seconds']:g} s.", ""]
    for model, title in MODELS.items():
        rows = [row for row in result["rows"] if row["model"] == model]
        rows.sort(key=lambda row: -row["rate"])
        lines += [f"| {title} | steps/s | ours | peak memory, MB |", "|---|--:|--:|--:|"]
        lines += [f"| {row['peer']} | {row['rate']:,.1f} | {row['ratio']:.2f}× | {row['peak_mb']:,.0f} |" for row in rows] + [""]
    lines += ["| program | version | build, s | jobs | lines |", "|---|---|--:|--:|--:|"]
    for name, program in result["programs"].items():
        built = program["build"]
        lines.append(f"| {name} | {program['version']} | {built['seconds']:,.0f} | {built['jobs']} | {program['lines']} |" if built
                     else f"| {name} | {program['version']} | – | – | {program['lines']} |")
    lines += [""] + [f"Left out: {name}: {reason}." for name, reason in result["absent"].items()] + [""] * bool(result["absent"])
    return lines


if __name__ == "__main__":
    run_part(main)
