"""Runs public TensorFlow 1 programs for a few steps each, on our servers and on real TensorFlow's, and writes a table of the
results.

    python tests/corpus/run.py --sources DIRECTORY [--only NAME …] [--servers ferroflow tensorflow] [--table FILE]

The programs are listed in `programs.toml`. Their code is not part of this repository: DIRECTORY holds a checkout of each of their
repositories, as OWNER+NAME, at the commit that the list names. See README.md.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import tomllib

import data

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
STEPS = 40
# Ends a program that would never end; none is expected to take this long.
WATCHDOG_SECS = 600
SERVERS = ("tensorflow", "ferroflow")
STEPS_RUN = re.compile(r"^corpus: (\d+) steps$", re.MULTILINE)
ADDRESS = re.compile(r"\b(?:localhost|127\.0\.0\.1):(2[0-9]{3})\b")
LINES_SHOWN = 25


@dataclasses.dataclass
class Program:
    """An entry of the list."""

    name: str
    kind: str
    repo: str
    commit: str
    script: str
    # Command lines, one for each process of a distributed program; the one of a parameter server says so.
    args: list = dataclasses.field(default_factory=lambda: [""])
    # Generators in data.py, each with the path that it writes to below that directory: "mnist MNIST_data".
    directory: str = None
    # Generators in data.py, each with the path it writes to below that directory: "mnist MNIST_data".
    data: list = dataclasses.field(default_factory=list)
    # Constants of the program to change, such as the number of epochs or the hosts of its cluster: [file, pattern, replacement].
    edits: list = dataclasses.field(default_factory=list)
    # The number of steps after which it is ended successfully; 0: it runs to its own end.
    steps: int = STEPS
    # Further directories on the path of modules.
    path: list = dataclasses.field(default_factory=list)
    # Repositories that it imports from.
    also: list = dataclasses.field(default_factory=list)
    # With `-m`.
    module: bool = False
    note: str = ""


@dataclasses.dataclass
class Result:
    """The result of a program."""

    is_good: bool
    steps: int
    text: str


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", required=True, type=pathlib.Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--servers", nargs="*", default=list(SERVERS), choices=SERVERS)
    parser.add_argument("--table", type=pathlib.Path)
    parser.add_argument("--scratch", type=pathlib.Path, help="keeps the programs' directories and logs there")
    arguments = parser.parse_args()
    with open(HERE / "programs.toml", "rb") as file:
        listed = tomllib.load(file)
    programs = [Program(commit=listed["commits"][entry["repo"]], **entry) for entry in listed["program"]]
    if arguments.only:
        programs = [program for program in programs if any(word in program.name for word in arguments.only)]
    scratch = (arguments.scratch or pathlib.Path(tempfile.mkdtemp(prefix="corpus-"))).resolve()
    results = {}
    for program in programs:
        for servers in arguments.servers:
            result = run_program(program, servers, arguments.sources.resolve(), scratch / program.name.replace("/", "+") / servers)
            results[program.name, servers] = result
            print(f"{'good' if result.is_good else 'FAILED':6} {servers:10} {program.name}: {result.steps} steps", flush=True)
            if not result.is_good:
                print(result.text, flush=True)
    if not arguments.scratch:
        shutil.rmtree(scratch)
    table = make_table(programs, results, arguments.servers)
    print(table)
    if arguments.table:
        arguments.table.write_text(table)
    return 0 if all(result.is_good for (_, servers), result in results.items() if servers == "ferroflow") else 1


def run_program(program, servers, sources, scratch):
    """Runs all processes of a program in a copy of its repository, and returns the result."""
    source = sources / program.repo.replace("/", "+")
    if not (source / program.script).exists():
        return Result(False, 0, f"{source / program.script} is not there: bring {program.repo} at {program.commit}")
    shutil.rmtree(scratch, ignore_errors=True)
    tree = scratch / "tree"
    shutil.copytree(source, tree, symlinks=True, ignore=shutil.ignore_patterns(".git", "*.ipynb"))
    (scratch / "tmp").mkdir()
    script = tree / program.script
    directory = tree / program.directory if program.directory is not None else script.parent
    for line in program.data:
        generator, path = line.split()
        data.GENERATORS[generator](directory / path)
    missing = rewrite(tree, program, scratch)
    if missing:
        return Result(False, 0, missing)
    command = [sys.executable, HERE / "limited.py", "--sessions", *(["-m"] if program.module else []),
               module_of(program, directory, script) if program.module else script]
    environment = dict(
        os.environ, MPLBACKEND="Agg", PYTHONUNBUFFERED="1", CORPUS_STEPS=str(program.steps), HOME=str(scratch / "tmp"),
        TMPDIR=str(scratch / "tmp"), FERROFLOW_BIN=binary(servers, scratch),
        PYTHONPATH=os.pathsep.join(str(path) for path in (
            ROOT / "python", *(tree / path for path in program.path), *(sources / repo.replace("/", "+") for repo in program.also))))
    processes = []
    try:
        for number, line in enumerate(program.args):
            log = open(scratch / f"{number}.log", "wb")
            processes.append((line, log, subprocess.Popen(
                [*command, *line.split()], cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True)))
        return wait(processes, scratch)
    finally:
        for _, log, process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            log.close()


def wait(processes, scratch):
    """Waits for all training processes; a parameter server never exits on real TensorFlow, and is ended."""
    steps, problems = 0, []
    for number, (line, _, process) in enumerate(processes):
        if is_parameter_server(line):
            continue
        try:
            code = process.wait(WATCHDOG_SECS)
        except subprocess.TimeoutExpired:
            code = f"nothing within {WATCHDOG_SECS} s"
        text = (scratch / f"{number}.log").read_text(errors="replace")
        counts = [int(count) for count in STEPS_RUN.findall(text)]
        steps += counts[-1] if counts else 0
        if code != 0 or not counts or counts[-1] == 0:
            problems.append("\n".join([f"  {line or 'the program'} ended with {code}:",
                                       *("    " + line for line in text.splitlines()[-LINES_SHOWN:])]))
    return Result(not problems, steps, "\n".join(problems))


def is_parameter_server(line):
    return re.search(r"job_?name[= ]ps\b", line) is not None


def module_of(program, directory, script):
    return ".".join(script.relative_to(directory).with_suffix("").parts)


def rewrite(tree, program, scratch):
    """Changes constants of the program: those in its entry, absolute directories, and ports that others may use.

    Returns errors in the entry, if there are any.
    """
    ports = {}
    for path in tree.rglob("*.py"):
        text = original = path.read_text(errors="surrogateescape")
        for file, pattern, replacement in program.edits:
            if path == tree / program.script if file == "" else path == tree / file:
                text, count = re.subn(pattern, replacement, text)
                if count == 0:
                    return f"{path.name} has nothing like {pattern!r}"
        text = re.sub(r"(?<=['\"])/(?:tmp|logdir)\b", str(scratch / "tmp"), text)
        text = ADDRESS.sub(lambda match: f"127.0.0.1:{ports.setdefault(match[1], None) or new_port(ports, match[1])}", text)
        if text != original:
            path.write_text(text, errors="surrogateescape")
    return None


def new_port(ports, key):
    """Returns a free port, below those that the kernel assigns."""
    for port in range(21000 + os.getpid() % 5000, 32000):
        if port in ports.values():
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports[key] = port
        return port
    raise SystemExit("no port is free")


def binary(servers, scratch):
    """Returns the program that `python -m ferroflow` is to start as a server."""
    if servers == "ferroflow":
        return os.environ.get("FERROFLOW_BIN") or str(ROOT / "target" / "release" / "ferroflow")
    path = scratch / "tensorflow-server"
    path.write_text(f"#!/bin/sh\nexec {sys.executable} {HERE / 'tensorflow_server.py'} \"$@\"\n")
    path.chmod(0o755)
    return str(path)


def make_table(programs, results, servers):
    lines = ["| program | kind | source | " + " | ".join(servers) + " |", "|---|---|---|" + "---|" * len(servers)]
    for program in programs:
        cells = [f"{results[program.name, one].steps} steps" if results[program.name, one].is_good else "failed" for one in servers]
        source = f"[{program.repo}](https://github.com/{program.repo}/blob/{program.commit}/{program.script}) {program.commit[:7]}"
        lines.append(f"| {program.name} | {program.kind} | {source} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
