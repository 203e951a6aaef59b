"""Compares Rust workers with TensorFlow's Python workers on TensorFlow's servers: the MLP, asynchronously.

Run it with `cargo xtask bench rust`. Ours are the programs that users run, one process for each task of a cluster of one ps and
two workers, which communicate over sockets: `examples/mnist_replica.rs`, which is TensorFlow's program op by op, and `ferroflow
train --job_name=…`, which uses the fused loss. They are restarted in every round, train on the bundled digits, and print the
global step every second; the rate is that of the global step once all workers run steps.
"""
import re
import time

import _figures
import _report
from _processes import TENSORFLOW, Clients, Logged, Servers, binary, example, harness, run_part
from _table import RUST

SECONDS = _figures.seconds(3)
ROUNDS = _figures.rounds(5)
PS, WORKERS = 1, 2
FLAGS = ["--hidden_units=100", "--batch_size=100", "--learning_rate=0.01", f"--train_steps={10**12}"]

# name: (the program, the pattern of the global step in its output)
PROGRAMS = {
    "MLP asynchronous, examples/mnist_replica": (lambda: [example("mnist_replica")], re.compile(r"global step: (\d+)")),
    "MLP asynchronous, ferroflow train": (lambda: [binary(), "train"], re.compile(r"^step (\d+) of ")),
}


class Worker(Logged):
    """A task that trains, or serves the ones that do."""

    def __init__(self, name, command, pattern, look):
        super().__init__(name, command)
        self.pattern = pattern
        self.look = look
        # (time, global step, total CPU of all tasks so far), for each line with a step.
        self.progress = []

    def take(self, line):
        found = self.pattern.search(line)
        if found:
            self.progress.append((time.perf_counter(), int(found.group(1)), self.look()))
        super().take(line)


class Training:
    """The tasks of a training job, each a process."""

    def __init__(self, program, pattern):
        hosts = [f"127.0.0.1:{harness.PORTS.take()}" for _ in range(PS + WORKERS)]
        cluster = [f"--ps_hosts={','.join(hosts[:PS])}", f"--worker_hosts={','.join(hosts[PS:])}"]
        self.tasks = []
        jobs = [("ps", task) for task in range(PS)] + [("worker", task) for task in range(WORKERS)]
        for job, task in jobs:
            command = [*program(), *cluster, f"--job_name={job}", f"--task_index={task}", *FLAGS]
            self.tasks.append(Worker(f"rust /job:{job}/task:{task}", command, pattern, self.cpu))
        for task in self.tasks:
            task.start()

    def cpu(self):
        try:
            return sum(task.cpu() for task in self.tasks)
        except (OSError, AttributeError):
            # One has ended, or has not been started: the current measurement won't be used.
            return 0.0

    def sample(self, seconds):
        """Returns the cost of steps once all workers run them."""
        chief, workers = self.tasks[PS], self.tasks[PS:]
        for worker in workers:
            worker.wait_until(lambda worker=worker: worker.progress, "told of a step", self.tasks)
        begin = len(chief.progress)

        def is_over():
            return len(chief.progress) > begin + 1 and chief.progress[-1][0] - chief.progress[begin][0] >= seconds

        chief.wait_until(is_over, "told of more steps", self.tasks)
        try:
            ps_peak_mb = max(task.peak_mb() for task in self.tasks[:PS])
        except OSError:
            ps_peak_mb = 0.0
        for task in self.tasks:
            task.check()
        (start, first, cpu), (end, last, cpu_end) = chief.progress[begin], chief.progress[-1]
        return {
            "rate": (last - first) / (end - start),
            "cpu_ms": (cpu_end - cpu) * 1000 / max(last - first, 1),
            # The workers are their own clients.
            "client_cpu_ms": 0.0,
            "ps_peak_mb": ps_peak_mb,
        }

    def stop(self):
        for task in self.tasks:
            task.kill()


def main():
    print(_report.machine_line(SECONDS, ROUNDS), flush=True)
    clients, servers = Clients(WORKERS), Servers(TENSORFLOW, PS, WORKERS).wait_ready()
    clients.build(RUST.build, servers, TENSORFLOW, PS, WORKERS)
    theirs, ours = [], {name: [] for name in PROGRAMS}
    # A warm-up round for TensorFlow's servers; ours run steps for a while before they are measured.
    clients.sample(servers, TENSORFLOW, WORKERS, SECONDS)
    for _ in range(ROUNDS):
        theirs.append(clients.sample(servers, TENSORFLOW, WORKERS, SECONDS))
        for name, (program, pattern) in PROGRAMS.items():
            training = Training(program, pattern)
            try:
                ours[name].append(training.sample(SECONDS))
            finally:
                training.stop()
    tensorflow = _figures.summary(theirs)
    tensorflow["ps_peak_mb"] = servers.ps_peak_mb()
    results = []
    for name, samples in ours.items():
        result = _figures.compare(name, tensorflow, _figures.summary(samples), RUST)
        # Our workers' usage includes their clients, so it is compared with TensorFlow's servers and clients together.
        result["whole_cpu_ratio"] = _figures.share(
            result["ours"]["cpu_ms"], tensorflow["cpu_ms"] + tensorflow["client_cpu_ms"])
        results.append(result)
        print(_figures.line(result), flush=True)
    _report.write("rust", results, SECONDS, ROUNDS)


if __name__ == "__main__":
    run_part(main)
