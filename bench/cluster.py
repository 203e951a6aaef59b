"""Clusters of ours against clusters of TensorFlow's: the same client, the same graphs, in turns.

Run it with `cargo xtask bench cluster [-- CASE…]`. Both clusters (1 ps, 2 workers, one process a task) are up for a case at
the same time; while one is measured, the other idles.
"""
import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "interop"))
sys.path.insert(0, str(ROOT / "bench"))
import harness  # noqa: E402

SECONDS = float(os.environ.get("FERROFLOW_BENCH_SECONDS", "3"))
ROUNDS = int(os.environ.get("FERROFLOW_BENCH_ROUNDS", "5"))
TICK = os.sysconf("SC_CLK_TCK")
SIDES = (harness.TENSORFLOW, harness.FERROFLOW)


class Tasks:
    """The tasks of one cluster, and what they have used."""

    def __init__(self, kind, ps, workers, extra=()):
        ports = [harness.PORTS.take() for _ in range(ps + workers)]
        hosts = [f"127.0.0.1:{port}" for port in ports]
        flags = [f"--ps_hosts={','.join(hosts[:ps])}", f"--worker_hosts={','.join(hosts[ps:])}"]
        program = [os.environ["FERROFLOW_BIN"], "server"]
        if kind == harness.TENSORFLOW:
            program = [sys.executable, str(ROOT / "tests" / "interop" / "tf_server.py")]
            extra = ()
        self.processes = []
        self.hosts = hosts[ps:]
        started = time.perf_counter()
        for index in range(ps + workers):
            job, task = ("ps", index) if index < ps else ("worker", index - ps)
            command = program + flags + [f"--job_name={job}", f"--task_index={task}", *extra]
            environment = {**os.environ, "no_proxy": "*", "TF_CPP_MIN_LOG_LEVEL": "3"}
            self.processes.append(subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment))
        self.startup = None
        for process in self.processes:
            line = process.stdout.readline()
            if not line:
                sys.exit(f"a server did not start: {process.args}")
            self.startup = self.startup or time.perf_counter() - started

    def cpu(self):
        """Returns the seconds of CPU that all tasks have used."""
        total = 0
        for process in self.processes:
            fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        return total / TICK

    def peak_mb(self, index):
        """Returns the most memory that a task has had at once."""
        status = pathlib.Path(f"/proc/{self.processes[index].pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()


class Client:
    """A worker's client, in a process of its own."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "bench" / "_client.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env={**os.environ, "no_proxy": "*", "TF_CPP_MIN_LOG_LEVEL": "3"})

    def tell(self, command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def hear(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit("a client ended early; its error is above")
        answer = json.loads(line)
        if answer.get("error"):
            sys.exit(f"a step failed: {answer['error']}")
        return answer

    def ask(self, command):
        self.tell(command)
        return self.hear()


def measure(case, ps=1, workers=2, sides=SIDES, extra=()):
    """Measures one case on each side in turns."""
    clusters = {side: Tasks(side, ps, workers, extra) for side in sides}
    clients = {side: [Client() for _ in range(workers)] for side in sides}
    samples = {side: [] for side in sides}
    try:
        for side in sides:
            for index, client in enumerate(clients[side]):
                client.tell({"build": {"case": case, "target": f"grpc://{clusters[side].hosts[index]}",
                                       "worker": index, "workers": workers, "ps": ps}})
            for client in clients[side]:
                client.hear()
            clients[side][0].ask({"init": True})
            # Together: in synchronous training no worker takes its first step alone.
            for client in clients[side]:
                client.tell({"start": True})
            for client in clients[side]:
                client.hear()
        for _ in range(ROUNDS + 1):
            for side in sides:
                samples[side].append(sample(clusters[side], clients[side]))
        return {side: summary(samples[side][1:], clusters[side], ps) for side in sides}
    finally:
        for side in sides:
            for client in clients[side]:
                client.process.kill()
            clusters[side].stop()


def sample(cluster, clients):
    before = cluster.cpu()
    for client in clients:
        client.tell({"run": SECONDS})
    answers = [client.hear() for client in clients]
    steps = sum(answer["steps"] for answer in answers)
    return {
        "rate": sum(answer["steps"] / answer["seconds"] for answer in answers),
        "cpu_ms": (cluster.cpu() - before) * 1000 / steps,
        "client_cpu_ms": sum(answer["cpu"] for answer in answers) * 1000 / steps,
    }


def summary(samples, cluster, ps):
    result = {key: statistics.median(sample[key] for sample in samples) for key in samples[0]}
    result["rates"] = [sample["rate"] for sample in samples]
    result["cpus"] = [sample["cpu_ms"] for sample in samples]
    result["ps_peak_mb"] = max(cluster.peak_mb(index) for index in range(ps))
    result["startup_s"] = cluster.startup
    return result


def report(case, sides, bar, cpu_bar):
    """Adds the ratios to what was measured, and prints a line."""
    theirs, ours = sides[harness.TENSORFLOW], sides[harness.FERROFLOW]
    ratios = [a / b for a, b in zip(ours["rates"], theirs["rates"])]
    result = {
        "case": case, "tensorflow": theirs, "ours": ours, "bar": bar, "cpu_bar": cpu_bar,
        "ratio": statistics.median(ratios), "ratio_min": min(ratios), "ratio_max": max(ratios),
        "cpu_ratio": ours["cpu_ms"] / theirs["cpu_ms"],
        "memory_ratio": ours["ps_peak_mb"] / theirs["ps_peak_mb"],
    }
    print(f"{case:24} {theirs['rate']:9.1f} {ours['rate']:9.1f} steps/s  ratio {result['ratio']:5.2f} "
          f"({result['ratio_min']:.2f}-{result['ratio_max']:.2f}; bar {bar})  server CPU {theirs['cpu_ms']:.2f} {ours['cpu_ms']:.2f} ms "
          f"= {result['cpu_ratio']:.2f} (bar {cpu_bar})  client CPU {theirs['client_cpu_ms']:.2f} {ours['client_cpu_ms']:.2f} ms  "
          f"ps peak {theirs['ps_peak_mb']:.0f} {ours['ps_peak_mb']:.0f} MB", flush=True)
    return result


def main():
    import _cases  # the parent builds no graph; it only needs the names and bars
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", help="parts of the names of the cases; all by default")
    parser.add_argument("--only", choices=SIDES, help="measure one side only, for a profile")
    parser.add_argument("--server_flag", action="append", default=[], help="passed on to our servers")
    arguments = parser.parse_args()
    chosen = [case for case in _cases.CASES if not arguments.cases or any(part in case for part in arguments.cases)]
    if not chosen:
        sys.exit(f"no case is named so; there are: {', '.join(_cases.CASES)}")
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores; rounds of {SECONDS:g} s", flush=True)
    results = []
    for case in chosen:
        sides = (arguments.only,) if arguments.only else SIDES
        measured = measure(case, sides=sides, extra=arguments.server_flag)
        if arguments.only:
            print(case, json.dumps(measured[arguments.only]), flush=True)
        else:
            results.append(report(case, measured, *_cases.CASES[case][1:]))
    if results:
        import _report
        _report.write("cluster", results)


if __name__ == "__main__":
    main()
