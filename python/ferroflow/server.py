"""`tf.train.Server`, as a process of `ferroflow server`."""

import collections
import contextlib
import ctypes
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading

READY = re.compile(r"server ready: /job:\S+ at (\S+)")
CHIEF_IS_DONE = "ferroflow server: the chief is done"
OUTPUT_LINES_KEPT = 50
# How long a server may take to tell the others that this program is done, and to exit.
FINISHING_SECS = 30
# In the processes of the other tasks: set when the chief's program has finished.
CHIEF_DONE = threading.Event()
SERVERS = []
# Loaded here, because little is safe between fork and exec.
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1
# Used in place of a cluster: the server is the one that TF_CONFIG describes.
TF_CONFIG = object()


def binary_path():
    """Returns the path of the `ferroflow` binary: FERROFLOW_BIN, the one installed with this module, the one on the PATH, or the
    one that cargo built in this checkout."""
    named = os.environ.get("FERROFLOW_BIN")
    if named:
        if not os.access(named, os.X_OK):
            raise FileNotFoundError(f"FERROFLOW_BIN names {named}, which is not a program")
        return named
    found = installed_binary() or shutil.which("ferroflow")
    if found:
        return found
    checkout = pathlib.Path(__file__).resolve().parent.parent.parent
    for profile in ("release", "debug"):
        path = checkout / "target" / profile / "ferroflow"
        if path.exists():
            return str(path)
    raise FileNotFoundError(
        "there is no ferroflow binary: run `cargo build --release` in its checkout, put it on the PATH, or set FERROFLOW_BIN")


def installed_binary():
    """Returns the path of the binary in this module's wheel; None in a checkout."""
    module = pathlib.Path(__file__).resolve()
    for distribution in importlib.metadata.distributions(name="ferroflow"):
        files = distribution.files or ()
        paths = [pathlib.Path(distribution.locate_file(file)).resolve() for file in files]
        # Another copy of the module may be installed, with a binary of another version.
        if module in paths:
            return next((str(path) for path in paths if path.name == "ferroflow" and path.is_file()), None)
    return None


class Server:
    """Has the interface of `tf.train.Server`; the server itself is a child process that dies with this one."""

    def __init__(self, server_or_cluster_def, job_name=None, task_index=None, protocol=None, config=None, start=True):
        arguments = (server_or_cluster_def, job_name, task_index, protocol, config)
        self._by_tf_config = server_or_cluster_def is TF_CONFIG
        self._plain = PlainTask.of(*arguments) if "tensorflow.python" not in sys.modules else None
        self._server_def = None if self._plain or self._by_tf_config else make_server_def(*arguments)
        self._process = None
        self._address = None
        self._output = collections.deque(maxlen=OUTPUT_LINES_KEPT)
        self._known = threading.Event()
        self._ended = threading.Event()
        self._failure = None
        self._is_stopped = False
        if start:
            self.start()

    @staticmethod
    def create_local_server(config=None, start=True):
        """Returns a server that is a cluster of its own, on a free port."""
        return Server({"localhost": ["localhost:0"]}, job_name="localhost", task_index=0, protocol="grpc", config=config,
                      start=start)

    @staticmethod
    def of_tf_config():
        """Returns the server that TF_CONFIG describes; for an evaluator outside of the cluster, a cluster of its own."""
        return Server(TF_CONFIG)

    @property
    def server_def(self):
        if self._server_def is None:
            plain = self._plain
            self._server_def = make_server_def(plain.addresses, plain.job_name, plain.task_index, plain.protocol, None)
        return self._server_def

    @property
    def target(self):
        """The target to pass to `tf.Session`."""
        if self._address is None:
            return ""
        own = self._own_address()
        # Everybody can use the task's address in the cluster, but perhaps not the address that the server binds.
        return "grpc://" + (self._address if own.endswith(":0") else own)

    def start(self):
        """Starts the process and returns when it accepts sessions."""
        if self._known.is_set() or self._process is not None:
            return
        command = binary_path()
        threading.Thread(target=self._run, args=(command,), name="ferroflow-server", daemon=True).start()
        _wait(self._known)
        if self._failure is not None:
            raise RuntimeError(self._failure)

    def join(self):
        """Blocks until the server exits; Ctrl-C ends the wait and the program."""
        if self._process is None:
            raise RuntimeError("the server has not been started")
        # A worker that only serves is needed as long as the chief runs.
        _wait(self._ended, CHIEF_DONE)
        if not self._ended.is_set():
            print("ferroflow: the chief is done and has left: this task ends, too", file=sys.stderr, flush=True)
            self.stop()
        code = self._process.returncode
        if code != 0 and not self._is_stopped:
            raise RuntimeError(self._describe_end(code))

    def stop(self):
        """Ends the process; sessions on it get an error."""
        if self._process is not None and self._process.poll() is None:
            self._is_stopped = True
            self._process.terminate()
            _wait(self._ended)

    def finish(self):
        """Reports that this program has finished: the server tells the others and exits."""
        if self._process is None or self._ended.is_set():
            return
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(b"done\n")
            self._process.stdin.close()
        if not self._ended.wait(FINISHING_SECS):
            self.stop()

    @property
    def is_in_cluster(self):
        """Whether the server is a task of a cluster with other tasks."""
        if self._by_tf_config:
            return False
        if self._plain:
            return sum(map(len, self._plain.addresses.values())) > 1
        return sum(len(job.tasks) for job in self._server_def.cluster.job) > 1

    def _own_address(self):
        if self._by_tf_config:
            return ":0"
        if self._plain:
            return self._plain.addresses[self._plain.job_name][self._plain.task_index]
        for job in self._server_def.cluster.job:
            if job.name == self._server_def.job_name:
                return job.tasks[self._server_def.task_index]
        return ""

    def _run(self, command):
        # The kernel ends the child with the thread that started it, so this thread stays until the child has exited.
        try:
            environment, definition = dict(os.environ), None
            task = ["--attached"]
            if is_by_tf_config():
                # The job belongs to a cluster manager: all its tasks, including parameter servers, exit when the chief is done.
                task.append("--exit_when_done")
            if not self._by_tf_config:
                environment.pop("TF_CONFIG", None)
                definition = None if self._plain else _in_memory(self._server_def.SerializeToString())
                task += self._plain.flags() if self._plain else [f"--server_def=/dev/fd/{definition}"]
            self._process = subprocess.Popen(
                [command, "server", *task], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                env=environment, pass_fds=() if definition is None else (definition,), preexec_fn=_prepare_child)
            if definition is not None:
                os.close(definition)
            SERVERS.append(self)
            for line in self._process.stdout:
                line = line.decode(errors="replace")
                if line.startswith(CHIEF_IS_DONE):
                    CHIEF_DONE.set()
                    continue
                self._output.append(line)
                sys.stderr.write(line)
                match = READY.search(line)
                if match and not self._known.is_set():
                    self._address = match.group(1)
                    self._known.set()
            code = self._process.wait()
            if not self._known.is_set():
                self._failure = self._describe_end(code)
        except OSError as error:
            self._failure = f"cannot start {command}: {error}"
        finally:
            self._ended.set()
            self._known.set()

    def _describe_end(self, code):
        return f"the ferroflow server ended with {code}:\n{''.join(self._output)}"


def is_training():
    """Returns whether this process runs the server of a task that others may wait for."""
    return any(server.is_in_cluster for server in SERVERS)


def finish_all():
    """Reports that this program has finished."""
    for server in SERVERS:
        server.finish()


def is_by_tf_config():
    """Returns whether TF_CONFIG describes a cluster."""
    try:
        return bool(json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster"))
    except (ValueError, AttributeError):
        return False


def make_server_def(server_or_cluster_def, job_name, task_index, protocol, config):
    """Returns the ServerDef that TensorFlow's own function builds, so that it accepts and refuses what TensorFlow does."""
    # Imported through the package, which may have to be loaded first.
    import tensorflow

    tensorflow.train.ClusterDef
    from tensorflow.python.training import server_lib

    if hasattr(server_or_cluster_def, "addresses"):
        server_or_cluster_def = server_or_cluster_def.addresses
    made = server_lib._make_server_def(server_or_cluster_def, job_name, task_index, protocol, config)
    if made.protocol not in ("grpc", ""):
        raise ValueError(f"ferroflow servers speak grpc, not {made.protocol!r}")
    return made


class PlainTask:
    """A task that flags can describe, so that it starts without TensorFlow."""

    def __init__(self, addresses, job_name, task_index, protocol):
        self.addresses = addresses
        self.job_name = job_name
        self.task_index = task_index
        self.protocol = protocol

    @staticmethod
    def of(cluster, job_name, task_index, protocol, config):
        """Returns the task, or None if only TensorFlow can tell what the arguments mean, or what is wrong with them."""
        addresses = getattr(cluster, "addresses", cluster)
        if not isinstance(addresses, dict) or config is not None or protocol not in (None, "grpc"):
            return None
        plain = all(
            isinstance(tasks, list) and tasks and all(isinstance(task, str) and not set(task) & set(",;| ") for task in tasks)
            for tasks in addresses.values())
        if not plain or not all(isinstance(job, str) and job.isidentifier() for job in addresses):
            return None
        if job_name not in addresses or type(task_index) is not int or not 0 <= task_index < len(addresses[job_name]):
            return None
        return PlainTask(addresses, job_name, task_index, protocol)

    def flags(self):
        spec = ",".join(f"{job}|{';'.join(tasks)}" for job, tasks in self.addresses.items())
        return [f"--cluster_spec={spec}", f"--job_name={self.job_name}", f"--task_index={self.task_index}"]


def _wait(event, other=None):
    # Python handles a Ctrl-C that arrives just before a wait only after that wait, so no wait is long.
    while not event.wait(0.5):
        if other is not None and other.is_set():
            return


def _in_memory(data):
    """Returns an unnamed file for a child to read: a named one would outlive a program that is killed."""
    made = os.memfd_create("ferroflow")
    with os.fdopen(os.dup(made), "wb") as file:
        file.write(data)
    return made


def _prepare_child():
    # Ctrl-C is meant for the program, which may still want to close its session.
    os.setpgid(0, 0)
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
