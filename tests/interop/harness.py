"""Starts tasks of a cluster as processes, ours or real TensorFlow's, and reports what hung.

A task counts as up when its standard output says so; nothing here sleeps. Time-outs are only watchdogs: they end a wait that
would otherwise never end, and name what was waited for.
"""

import atexit
import collections
import ctypes
import functools
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SCRIPTS = HERE / "scripts"

# Generous, because a loaded machine is slow and a real TensorFlow server alone takes seconds to start.
READY_WATCHDOG_SECS = 300
EXIT_WATCHDOG_SECS = 240

FERROFLOW = "ferroflow"
TENSORFLOW = "tensorflow"

# Loaded here, because little is safe between fork and exec.
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1
# The command that starts a program that ends with this process, if the system has it (util-linux).
DIES_WITH_PARENT = ["setpriv", "--pdeathsig=KILL"]
if not shutil.which("setpriv") or subprocess.run([*DIES_WITH_PARENT, "true"], capture_output=True).returncode != 0:
    DIES_WITH_PARENT = []

# A script that puts a test run in the background leaves SIGINT ignored, also for all processes that the run starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

READY = re.compile(r"server ready: (/job:\S+) at (\S+)")
LOG_LINES_KEPT = 2000
LOG_LINES_SHOWN = 60


def note(text):
    """Records a line about the running test that is shown at the end of the run, whether the test passes or not."""
    TAKE_NOTE(str(text))


# Set by the conftest for the running test.
TAKE_NOTE = print


class HarnessError(AssertionError):
    """A prerequisite of the test failed; the message contains the logs."""


def ferroflow_bin():
    """Returns the path of our binary: FERROFLOW_BIN, or the one that cargo last built."""
    if default_kind() == TENSORFLOW:
        return tensorflow_stand_in()
    named = os.environ.get("FERROFLOW_BIN")
    if named:
        return named
    for profile in ("debug", "release"):
        path = ROOT / "target" / profile / "ferroflow"
        if path.exists():
            return str(path)
    raise HarnessError("no ferroflow binary: run `cargo build -p ferroflow-cli`, or set FERROFLOW_BIN")


def example(name):
    """Builds an example of the workspace and returns its path. `--workspace` has cargo use what the tests in Rust built."""
    build = ["cargo", "build", "--quiet", "--workspace", "--example", name, "--message-format=json"]
    output = subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    return [message["executable"] for message in map(json.loads, output.splitlines()) if message.get("executable")][-1]


def tensorflow_stand_in():
    """Returns a program that takes `server …` as our binary does and starts a real TensorFlow server."""
    path = pathlib.Path(tempfile.gettempdir()) / f"tensorflow-server-{os.getpid()}"
    if not path.exists():
        path.write_text(f"#!/bin/sh\nexec {sys.executable} {HERE / 'tf_server.py'} \"$@\"\n")
        path.chmod(0o755)
        atexit.register(path.unlink)
    return str(path)


@functools.cache
def lower_levels():
    """Returns this processor's instruction levels below the one that servers use."""
    if default_kind() == TENSORFLOW:
        return []
    output = subprocess.run([ferroflow_bin(), "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout
    used = re.search(r"^instructions: (\w+)$", output, re.MULTILINE)[1]
    available = re.search(r"^this processor has: (.+)$", output, re.MULTILINE)[1].split(", ")
    return available[:available.index(used)]


def default_kind():
    """Returns the kind of servers under test; with real TensorFlow's, the run checks the tests themselves."""
    return os.environ.get("FERROFLOW_INTEROP_AGAINST", FERROFLOW)


class Ports:
    """Returns loopback ports that nothing else uses.

    They are below the range of the kernel's outgoing ports, in a block that belongs to this process as long as it holds the
    block's first port, so that two test runs on one machine don't collide.
    """

    FIRST, LAST, BLOCK = 12000, 32000, 100

    def __init__(self):
        self._lock = threading.Lock()
        self._guard = None
        self._start = self._next = None

    def take(self):
        with self._lock:
            if self._guard is None:
                self._claim_block()
            for _ in range(self.BLOCK):
                port = self._next
                self._next += 1
                if self._next >= self._start + self.BLOCK:
                    self._next = self._start + 1
                if self._is_free(port):
                    return port
        raise HarnessError(f"no free port from {self._start} to {self._start + self.BLOCK}")

    def _claim_block(self):
        for start in range(self.FIRST, self.LAST, self.BLOCK):
            guard = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                guard.bind(("127.0.0.1", start))
                guard.listen(1)
            except OSError:
                guard.close()
                continue
            self._guard, self._start, self._next = guard, start, start + 1
            return
        raise HarnessError("every block of ports is taken by another test run")

    @staticmethod
    def _is_free(port):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
        return True


PORTS = Ports()
LIVE = set()


class Process:
    """A child process whose output is read as it arrives, and kept for failure messages."""

    STDIN = subprocess.DEVNULL

    def __init__(self, name, command, env=None, cwd=None):
        self.name = name
        self.command = [str(word) for word in command]
        self.env = env or {}
        self.cwd = cwd
        self.lines = collections.deque(maxlen=LOG_LINES_KEPT)
        self._changed = threading.Condition()
        self._finished_reading = False
        self._process = None
        self._reader = None

    def start(self):
        environment = dict(os.environ)
        # A proxy from the environment must not come between tasks on loopback, for us or for TensorFlow.
        environment.update({"no_proxy": "*", "NO_PROXY": "*", "PYTHONUNBUFFERED": "1", "TF_CPP_MIN_LOG_LEVEL": "1"})
        environment.update(self.env)
        self._finished_reading = False
        # With a function to run between fork and exec, Python copies its whole address space first, which takes tens of
        # milliseconds with TensorFlow in it: that would be most of what a server of ours takes to start.
        before_exec = None if DIES_WITH_PARENT else die_with_parent
        self._process = subprocess.Popen(
            DIES_WITH_PARENT + self.command, env=environment, cwd=self.cwd, stdin=self.STDIN, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", preexec_fn=before_exec)
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()
        LIVE.add(self)
        return self

    @property
    def pid(self):
        return self._process.pid

    @property
    def returncode(self):
        return self._process.poll()

    def take(self, line):
        """Takes a line of the output, in the thread that reads it."""
        self.lines.append(line)

    def _read(self, process):
        for line in process.stdout:
            with self._changed:
                self.take(line.rstrip("\n"))
                self._changed.notify_all()
        process.wait()
        with self._changed:
            self._finished_reading = True
            self._changed.notify_all()

    def wait_for(self, predicate, what, timeout_secs=READY_WATCHDOG_SECS):
        """Waits until a line for which `predicate` is true has been printed, and returns its result."""
        seen = []

        def look():
            for line in list(self.lines):
                value = predicate(line)
                if value:
                    seen.append(value)
                    return True
            return self._finished_reading

        with self._changed:
            in_time = self._changed.wait_for(look, timeout_secs)
        if seen:
            return seen[0]
        if not in_time:
            raise HarnessError(f"{self.name} has not said {what} in {timeout_secs} s\n{self.log()}")
        raise HarnessError(f"{self.name} ended with {self.returncode} before it said {what}\n{self.log()}")

    def wait(self, timeout_secs=EXIT_WATCHDOG_SECS):
        """Waits for the end of the process and returns its exit code."""
        with self._changed:
            ended = self._changed.wait_for(lambda: self._finished_reading, timeout_secs)
        if not ended:
            raise HarnessError(f"{self.name} has not ended in {timeout_secs} s\n{self.log()}")
        LIVE.discard(self)
        return self._process.returncode

    def expect_success(self, timeout_secs=EXIT_WATCHDOG_SECS):
        """Waits for the end and returns the whole output; any exit code except 0 fails the test."""
        code = self.wait(timeout_secs)
        if code != 0:
            raise HarnessError(f"{self.name} ended with {code}\n{self.log()}")
        return "\n".join(self.lines)

    def signal(self, number):
        self._process.send_signal(number)

    def kill(self):
        """Ends the process as a power failure would."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
        if self._process is not None:
            self.wait()

    def log(self):
        shown = list(self.lines)[-LOG_LINES_SHOWN:]
        text = "\n".join("    " + line for line in shown) or "    (nothing)"
        return f"  output of {self.name} (pid {self._process.pid if self._process else '-'}):\n{text}"


class Task(Process):
    """One server of a cluster."""

    def __init__(self, kind, cluster, job, index, arguments=(), env=None):
        flags = cluster_flags(cluster) + [f"--job_name={job}", f"--task_index={index}", *arguments]
        command = server_program(kind) + flags
        super().__init__(f"{kind} /job:{job}/task:{index}", command, env)
        self.kind = kind
        self.job = job
        self.index = index
        self.address = cluster[job][index]

    @property
    def target(self):
        return "grpc://" + self.address

    @property
    def device(self):
        return f"/job:{self.job}/replica:0/task:{self.index}/device:CPU:0"

    def wait_ready(self):
        self.wait_for(READY.search, "that it is ready")
        return self

    def restart(self):
        """Starts it again on the same port, after it ended or was killed."""
        self.kill()
        self.lines.clear()
        return self.start().wait_ready()


def server_program(kind):
    """Returns the words of the command that starts a server of this kind."""
    if kind == FERROFLOW:
        return [ferroflow_bin(), "server"]
    return [sys.executable, str(HERE / "tf_server.py")]


class Cluster:
    """The tasks of one cluster and their addresses."""

    def __init__(self, ps=1, workers=2, kind=None, kinds=None, jobs=None, start=True, arguments=(), env=None):
        """Starts `ps` and `workers` tasks; `kinds` maps a job or a (job, index) to a kind, for mixed clusters."""
        jobs = jobs or {"ps": ps, "worker": workers}
        self.spec = {job: [f"127.0.0.1:{PORTS.take()}" for _ in range(count)] for job, count in jobs.items() if count}
        kind = kind or default_kind()
        kinds = kinds or {}
        self.tasks = {
            (job, index): Task(kinds.get((job, index), kinds.get(job, kind)), self.spec, job, index, arguments, env)
            for job, addresses in self.spec.items() for index in range(len(addresses))
        }
        if start:
            self.start()

    def start(self):
        # All at once: a real TensorFlow server takes seconds to start.
        for task in self.tasks.values():
            task.start()
        for task in self.tasks.values():
            task.wait_ready()
        return self

    def task(self, job, index=0):
        return self.tasks[job, index]

    def worker(self, index=0):
        return self.tasks["worker", index]

    def ps(self, index=0):
        return self.tasks["ps", index]

    @property
    def target(self):
        """The session target that a client of the first worker uses."""
        first = "worker" if ("worker", 0) in self.tasks else next(iter(self.spec))
        return self.tasks[first, 0].target

    def flags(self):
        return cluster_flags(self.spec)

    def log(self):
        return "\n".join(task.log() for task in self.tasks.values() if task._process)

    def stop(self):
        for task in self.tasks.values():
            task.kill()


def cluster_flags(spec):
    if set(spec) <= {"ps", "worker", "chief"}:
        return [f"--{job}_hosts={','.join(addresses)}" for job, addresses in spec.items()]
    return ["--cluster_spec=" + ",".join(f"{job}|{';'.join(addresses)}" for job, addresses in spec.items())]


def script(name, *arguments, ferroflow=False, env=None, cwd=None, label=None):
    """Starts a training script with the venv's Python, optionally with `python -m ferroflow`."""
    path = SCRIPTS / name
    front = ["-m", "ferroflow"] if ferroflow else []
    environment = {"PYTHONPATH": str(ROOT / "python"), "FERROFLOW_BIN": ferroflow_bin() if ferroflow else ""}
    environment.update(env or {})
    if not environment["FERROFLOW_BIN"]:
        del environment["FERROFLOW_BIN"]
    return Process(label or name, [sys.executable, *front, path, *arguments], environment, cwd).start()


def results(output):
    """Returns the JSON objects that a script printed after the word `RESULT`.

    A line may contain more than that: another thread's output on standard error can come before the object, or before the end of
    its line.
    """
    decoder = json.JSONDecoder()
    return [decoder.raw_decode(part)[0] for part in re.split(r"RESULT (?={)", output)[1:]]


def die_with_parent():
    """Runs in the child: servers must not outlive a test run that is killed."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def kill_all():
    for process in list(LIVE):
        try:
            process.kill()
        except HarnessError as error:
            print(error, file=sys.stderr)


atexit.register(kill_all)
