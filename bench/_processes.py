"""The processes that a driver measures: servers of both kinds, and the workers' clients.

All of them end with the driver, however it ends; each one's output is in a file of its own, which errors name.
"""
import itertools
import json
import os
import pathlib
import queue
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BENCH = ROOT / "bench"
sys.path.insert(0, str(ROOT / "tests" / "interop"))
import harness  # noqa: E402
from harness import FERROFLOW, TENSORFLOW  # noqa: E402, F401

# Servers of the binary that `--against` names.
BEFORE = "before"
TICK = os.sysconf("SC_CLK_TCK")
LOGS = pathlib.Path(os.environ.get("FERROFLOW_BENCH_LOGS") or pathlib.Path(tempfile.gettempdir()) / "ferroflow-bench-logs")
# Tests of the drivers use our servers in place of TensorFlow's, which take seconds to start.
STANDS_IN = bool(os.environ.get("FERROFLOW_BENCH_STAND_IN"))
# A bound on waits that could last forever; initializing gigabytes on a loaded machine takes time.
WATCHDOG_SECS = 600
NUMBERS = itertools.count()


class BenchError(Exception):
    """The reason why a part can't be measured."""


def run_part(main):
    """Runs a driver: no process that it started outlives it, and errors are reported in a line."""
    # When `cargo xtask bench` is killed, so is this.
    if os.environ.get("FERROFLOW_BENCH_LOGS"):
        harness.die_with_parent()
    try:
        main()
    except (BenchError, harness.HarnessError) as error:
        sys.exit(f"bench/{pathlib.Path(sys.argv[0]).name}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        harness.kill_all()


class Logged(harness.Process):
    """A process whose output also goes to a file."""

    def __init__(self, name, command):
        super().__init__(name, command, {"TF_CPP_MIN_LOG_LEVEL": "3"})
        LOGS.mkdir(parents=True, exist_ok=True)
        part = pathlib.Path(sys.argv[0]).stem
        plain = name.replace("/job:", "").replace("/task:", "-").replace(" ", "-").replace("/", "-")
        self.log_path = LOGS / f"{part}-{next(NUMBERS):03}-{plain}.log"
        self.log_file = self.log_path.open("w")

    def take(self, line):
        super().take(line)
        self.log_file.write(line + "\n")
        self.log_file.flush()

    def kill(self):
        super().kill()
        self.log_file.close()

    def check(self):
        """Raises an error when the process has ended."""
        if self.returncode is not None:
            self.wait()
            raise BenchError(f"{self.name} ended with {self.returncode}; its log is {self.log_path}\n{self.log()}")

    def wait_until(self, ready, what, others=()):
        """Waits until `ready` is true, which must depend on the output of this process."""
        deadline = time.monotonic() + WATCHDOG_SECS
        while True:
            with self._changed:
                if self._changed.wait_for(ready, 0.5):
                    return
            for process in (self, *others):
                process.check()
            if time.monotonic() > deadline:
                raise BenchError(f"{self.name} has not {what} in {WATCHDOG_SECS} s; its log is {self.log_path}")

    def cpu(self):
        """Returns the CPU seconds that the process has used; an OSError means that it has ended."""
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def peak_mb(self):
        """Returns the peak memory of the process."""
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


class Server(Logged):
    """A server of one kind."""

    def __init__(self, kind, name, flags, variables=()):
        prefix = ["env", *variables] if variables else []
        super().__init__(f"{kind} {name}", prefix + server_program(kind) + list(flags))
        self.is_ready = False
        self.started = time.perf_counter()
        self.startup_s = None
        self.start()

    def take(self, line):
        if not self.is_ready and harness.READY.search(line):
            self.is_ready = True
            self.startup_s = time.perf_counter() - self.started
        super().take(line)

    def wait_ready(self):
        self.wait_until(lambda: self.is_ready, "said that it is ready")
        return self


def server_program(kind):
    if kind == TENSORFLOW and not STANDS_IN:
        return [sys.executable, ROOT / "tests" / "interop" / "tf_server.py"]
    return [binary("FERROFLOW_BENCH_AGAINST" if kind == BEFORE else "FERROFLOW_BIN"), "server"]


def binary(variable="FERROFLOW_BIN"):
    if variable not in os.environ:
        raise BenchError(f"{variable} is not set: run this with `cargo xtask bench`")
    path = os.environ[variable]
    if not os.access(path, os.X_OK):
        raise BenchError(f"{path} can't be run")
    return path


def example(name):
    """Returns an example's path: cargo puts the examples next to the binary."""
    path = pathlib.Path(binary()).parent / "examples" / name
    if not path.exists():
        raise BenchError(f"{path} is missing: run this with `cargo xtask bench`")
    return str(path)


class Servers:
    """The tasks of one cluster, and their resource usage."""

    def __init__(self, kind, ps, workers, flags=(), variables=()):
        """Starts them with these flags, and environment variables such as NAME=value."""
        self.kind = kind
        self.hosts = [f"127.0.0.1:{harness.PORTS.take()}" for _ in range(ps + workers)]
        self.num_ps = ps
        cluster = [f"--ps_hosts={','.join(self.hosts[:ps])}", f"--worker_hosts={','.join(self.hosts[ps:])}"]
        if kind == TENSORFLOW:
            flags = ()
        self.tasks = []
        for index in range(ps + workers):
            job, task = ("ps", index) if index < ps else ("worker", index - ps)
            own = [f"--job_name={job}", f"--task_index={task}"]
            self.tasks.append(Server(kind, f"/job:{job}/task:{task}", [*cluster, *own, *flags], variables))

    def wait_ready(self):
        for task in self.tasks:
            task.wait_ready()
        return self

    def target(self, worker):
        return f"grpc://{self.hosts[self.num_ps + worker]}"

    def cpu(self):
        """Returns the CPU seconds that all tasks have used."""
        return self.look(lambda: sum(task.cpu() for task in self.tasks))

    def ps_peak_mb(self):
        return self.look(lambda: max(task.peak_mb() for task in self.tasks[:self.num_ps]))

    def look(self, question):
        try:
            return question()
        except OSError as error:
            for task in self.tasks:
                task.check()
            raise BenchError(f"a task can't be looked at: {error}") from None

    def stop(self):
        for task in self.tasks:
            task.kill()


class Client(Logged):
    """A worker's client, in a process of its own; it answers commands."""

    STDIN = subprocess.PIPE

    def __init__(self, worker):
        super().__init__(f"client {worker}", [sys.executable, BENCH / "_client.py"])
        self.worker = worker
        self.answers = queue.SimpleQueue()
        self.start()

    def take(self, line):
        if line.startswith("ANSWER "):
            self.answers.put(json.loads(line[len("ANSWER "):]))
        else:
            super().take(line)

    def tell(self, slot, command):
        try:
            self._process.stdin.write(json.dumps({"slot": slot, **command}) + "\n")
            self._process.stdin.flush()
        except OSError:
            # It has ended, which `hear` reports.
            pass

    def hear(self, servers):
        """Waits for the answer to the last command; if a server fails meanwhile, the error names it."""
        deadline = time.monotonic() + WATCHDOG_SECS
        while True:
            try:
                answer = self.answers.get(timeout=0.5)
                break
            except queue.Empty:
                for process in (*servers.tasks, self):
                    process.check()
                if time.monotonic() > deadline:
                    raise BenchError(f"{self.name} has not answered in {WATCHDOG_SECS} s; the logs are in {LOGS}") from None
        if answer.get("error"):
            # The server's failure is the cause, and may be noticed a little before or after its client's.
            for _ in range(10):
                for task in servers.tasks:
                    task.check()
                time.sleep(0.1)
            logs = ", ".join(str(task.log_path) for task in servers.tasks)
            raise BenchError(f"{self.name} on {servers.kind} servers: {answer['error']}\nThe servers' logs: {logs}")
        return answer


class Clients:
    """Clients for a number of workers; they serve one case after the other."""

    def __init__(self, count):
        self.all = [Client(worker) for worker in range(count)]

    def build(self, case, servers, slot, ps, workers):
        """Connects this many clients to a cluster, and runs the first step of the case."""
        chosen = self.all[:workers]
        for client in chosen:
            client.tell(slot, {"build": {"case": case, "target": servers.target(client.worker), "worker": client.worker,
                                         "workers": workers, "ps": ps}})
        for client in chosen:
            client.hear(servers)
        chosen[0].tell(slot, {"init": True})
        chosen[0].hear(servers)
        # Together: in synchronous training no worker completes its first step alone.
        self.ask_all(servers, slot, workers, {"start": True})

    def ask_all(self, servers, slot, workers, command):
        for client in self.all[:workers]:
            client.tell(slot, command)
        return [client.hear(servers) for client in self.all[:workers]]

    def sample(self, servers, slot, workers, seconds):
        """Runs steps for some time; returns their cost."""
        before = servers.cpu()
        answers = self.ask_all(servers, slot, workers, {"run": seconds})
        cpu = servers.cpu() - before
        self.ask_all(servers, slot, workers, {"pause": True})
        steps = sum(answer["steps"] for answer in answers)
        return {
            "rate": sum(answer["steps"] / answer["seconds"] for answer in answers),
            "cpu_ms": cpu * 1000 / steps,
            "client_cpu_ms": sum(answer["cpu"] for answer in answers) * 1000 / steps,
        }

    def close(self, servers, slot, workers):
        self.ask_all(servers, slot, workers, {"close": True})

    def stop(self):
        for client in self.all:
            client.kill()
