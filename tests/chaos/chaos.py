"""`cargo xtask chaos [--minutes N] [--seed N]`: trains on a cluster of hosts while tasks are killed and stopped and hosts are cut off.

Two parameter servers and four workers each run on their own host (a network namespace); a forwarder of ours delays, loses and withholds their
packets. Workers 0 and 1 are our servers with real TensorFlow clients, 2 and 3 are Rust programs that contain a server. Faults come one after the
other, in an order that the seed decides. Each must be noticed by the workers that it concerns and by no others, and all must continue after it.
Each worker counts its steps on both parameter servers: no update may be lost or applied twice, except those that a restored checkpoint undoes.
"""

import argparse
import json
import pathlib
import random
import re
import signal
import statistics
import sys
import time

import hosts
from hosts import harness

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PAGE = ROOT / "docs" / "faults.md"
BEGIN, END = "<!-- chaos: begin -->", "<!-- chaos: end -->"
# Only a run at least this long is written into the documentation.
DOCUMENTED_MINUTES_MIN = 5

PORT = 2222
NUM_PS, NUM_WORKERS = 2, 4
CLIENTS = (0, 1)
RATE_BITS = 1e9
SLOW_BITS = 2e6
# How long a host that is cut off without a word may go unnoticed.
NOTICED_SECONDS_MAX = 15
CUT_SECONDS = 20
# The longest standstill: TensorFlow's client checks only every 30 s whether variables exist, and less often on a busy machine.
RESUMED_SECONDS_MAX = 180
WARM_UP_SECONDS = 10
GROWTH_BYTES_MAX = 64 << 20
GROWTH_DESCRIPTORS_MAX = 8
# By how many steps the counters in a checkpoint may differ, since it is saved while others train.
APART_MAX = 20

LOST = re.compile(r"^LOST |A task was lost")
ALLOWED_ERRORS = re.compile(r"UnavailableError|AbortedError|FailedPreconditionError|CancelledError|DeadlineExceededError|"
                            r"code: (Unavailable|Aborted|FailedPrecondition|Cancelled|DeadlineExceeded)")


class Program(harness.Process):
    """A process on a host, whose output lines are kept with their times."""

    STDIN = harness.subprocess.PIPE

    def __init__(self, name, host, command):
        super().__init__(name, host.within(command), {"TF_CPP_MIN_LOG_LEVEL": "3"})
        self.host = host
        self.timed = []
        self.log_path = LOGS / (name.replace("/", "-").replace(":", "") + ".log")
        self.log_file = self.log_path.open("w")

    def take(self, line):
        now = time.monotonic()
        self.timed.append((now, line))
        self.log_file.write(f"{now:.3f} {line}\n")
        self.log_file.flush()
        super().take(line)

    def since(self, start, pattern):
        """Returns the times of lines since a time."""
        return [at for at, line in list(self.timed) if at >= start and pattern.search(line)]

    def told(self):
        """Returns the times and values that a worker has reported."""
        return [(at, json.loads(line[5:])) for at, line in list(self.timed) if line.startswith("TOLD ")]

    def finish(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()


class Cluster:
    """All processes, by the names of their tasks."""

    def __init__(self, net, directory):
        self.net, self.directory = net, directory
        self.ps = [net.hosts[f"ps{index}"] for index in range(NUM_PS)]
        self.workers = [net.hosts[f"worker{index}"] for index in range(NUM_WORKERS)]
        addresses = lambda hosts: ",".join(f"{host.address}:{PORT}" for host in hosts)  # noqa: E731
        self.flags = [f"--ps_hosts={addresses(self.ps)}", f"--worker_hosts={addresses(self.workers)}"]
        self.servers, self.clients, self.ended = {}, {}, []

    def start(self):
        for host in self.ps + [self.workers[index] for index in CLIENTS]:
            self.start_server(host)
        for server in self.servers.values():
            server.wait_for(harness.READY.search, "that it is ready")
        for index in range(NUM_WORKERS):
            self.start_client(index)

    def start_server(self, host):
        job, index = host.name[:-1], host.name[-1]
        server = Program(host.name, host, [harness.ferroflow_bin(), "server", *self.flags, f"--job_name={job}",
                                           f"--task_index={index}", "--session_gc_seconds=5"])
        self.servers[host.name] = server.start()
        return server

    def start_client(self, index):
        host = self.workers[index]
        if index in CLIENTS:
            command = [sys.executable, HERE / "trainer.py", f"grpc://{host.address}:{PORT}", index, self.directory]
        else:
            example = pathlib.Path(harness.ferroflow_bin()).parent / "examples" / "chaos_worker"
            command = [example, *self.flags, f"--task_index={index}"]
        client = Program(f"{host.name}-client-{len(self.ended)}", host, command)
        self.clients[index] = client.start()
        return client

    def process(self, name):
        """Returns the process that serves a task."""
        return self.servers.get(name) or self.clients[int(name[-1])]

    def tasks(self):
        return [host.name for host in self.ps + self.workers]

    def watch(self, failures):
        """Restarts clients that ended with an error, as their supervisor would, and reports servers that ended."""
        for index, client in list(self.clients.items()):
            if client.returncode is not None:
                client.wait()
                text = "\n".join(client.lines)
                error = next((line for line in reversed(client.lines) if "rror" in line), "no error")[:300]
                print(f"    worker {index}'s client ended with {client.returncode}: {error}", flush=True)
                failures.check(bool(ALLOWED_ERRORS.search(text)), f"worker {index}'s client ended with the right error: {error}")
                self.ended.append((index, client))
                self.start_client(index)
        for name, server in list(self.servers.items()):
            if server.returncode is not None:
                failures.check(False, f"{name} ended with {server.returncode}: {server.log()}")
                self.start_server(server.host).wait_for(harness.READY.search, "that it is ready")

    def log(self):
        return "\n".join(process.log() for process in [*self.servers.values(), *self.clients.values()])


class Failures:
    def __init__(self):
        self.texts = []

    def check(self, holds, text):
        if not holds:
            print(f"    FAILED  {text}", flush=True)
            self.texts.append(text)


class Fault:
    """A kind of fault: what it does to a task, for how long, and how it is undone."""

    def __init__(self, name, targets, seconds, begin, end, is_cut_off=False):
        self.name, self.targets, self.seconds = name, targets, seconds
        self.begin, self.end, self.is_cut_off = begin, end, is_cut_off


def kinds(cluster, chance):
    """Returns all kinds of faults."""
    everywhere = cluster.tasks()
    forwarder = cluster.net.forwarder

    def condition(direction, settings, calm):
        def set_to(values):
            return lambda name: forwarder.set(cluster.net.hosts[name], direction, **{
                key: value() if callable(value) else value for key, value in values.items()})
        return set_to(settings), set_to(calm)

    def kill(name):
        # Hidden from `watch`, which would take its end for a crash.
        cluster.servers.pop(name).kill()

    def restart(name):
        cluster.start_server(cluster.net.hosts[name]).wait_for(harness.READY.search, "that it is ready")

    def kill_client(name):
        client = cluster.clients[int(name[-1])]
        client.kill()
        cluster.ended.append((int(name[-1]), client))

    def restart_client(name):
        cluster.start_client(int(name[-1]))

    def sent(number):
        return lambda name: cluster.process(name).signal(number)

    cut, joined = {"cut": True}, {"cut": False}
    return [
        Fault("parameter server killed", ["ps0", "ps1"], (0, 4), kill, restart),
        Fault("worker's server killed", ["worker0", "worker1"], (0, 4), kill, restart),
        Fault("Rust worker with its server killed", ["worker2", "worker3"], (0, 4), kill_client, restart_client),
        Fault("TensorFlow client killed", ["worker0", "worker1"], (0, 1), kill_client, restart_client),
        Fault("stopped (SIGSTOP) for 2 to 20 s", everywhere, (2, 20), sent(signal.SIGSTOP), sent(signal.SIGCONT)),
        Fault(f"parameter server cut off for {CUT_SECONDS} s", ["ps0", "ps1"], (CUT_SECONDS, CUT_SECONDS),
              *condition("both", cut, joined), is_cut_off=True),
        Fault(f"worker cut off for {CUT_SECONDS} s", everywhere[NUM_PS:], (CUT_SECONDS, CUT_SECONDS),
              *condition("both", cut, joined), is_cut_off=True),
        Fault(f"what a host sends cut off for {CUT_SECONDS} s", everywhere, (CUT_SECONDS, CUT_SECONDS),
              *condition("out", cut, joined), is_cut_off=True),
        Fault(f"what a host receives cut off for {CUT_SECONDS} s", everywhere, (CUT_SECONDS, CUT_SECONDS),
              *condition("in", cut, joined), is_cut_off=True),
        Fault("host cut off for 1 to 4 s", everywhere, (1, 4), *condition("both", cut, joined)),
        Fault("1 to 10 % of packets lost for 10 s", everywhere, (10, 10),
              *condition("both", {"loss": lambda: round(chance.uniform(0.01, 0.1), 3)}, {"loss": 0})),
        Fault("packets delayed by 20 to 200 ms for 10 s", everywhere, (10, 10),
              *condition("both", {"delay_ms": lambda: chance.randrange(10, 100)}, {"delay_ms": 0})),
        Fault("link slowed down to 2 Mbit/s for 10 s", everywhere, (10, 10),
              lambda name: cluster.net.hosts[name].set_rate(SLOW_BITS), lambda name: cluster.net.hosts[name].set_rate(RATE_BITS)),
    ]


def wait_until(question, seconds, cluster, failures, look=0.05):
    """Waits until `question` is true, and returns whether that was in time."""
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        if question():
            return True
        cluster.watch(failures)
        time.sleep(look)
    return bool(question())


def resumed_at(client, repaired):
    """Returns the time of a worker's first answer after a time."""
    told = client.told()
    before = max((values["answered"] for at, values in told if at <= repaired), default=0)
    return next((at for at, values in told if at > repaired and values["answered"] > before), None)


def inject(fault, cluster, chance, failures):
    """Injects one fault and returns its effects; `None` if the target can't have it now."""
    name = chance.choice(fault.targets)
    seconds = chance.uniform(*fault.seconds)
    before = dict(cluster.clients)
    # Clients may notice the end of a task before this program does.
    began = time.monotonic()
    fault.begin(name)
    is_killed_client = cluster.clients[int(name[-1])].returncode is not None if name.startswith("worker") else False
    if is_killed_client:
        # Only `end` may start it again.
        time.sleep(seconds)
    else:
        wait_until(lambda: time.monotonic() >= began + seconds, seconds + 1, cluster, failures)
    fault.end(name)
    ended = time.monotonic()
    went_on = lambda: all(resumed_at(client, ended) for client in cluster.clients.values())  # noqa: E731
    is_on = wait_until(went_on, RESUMED_SECONDS_MAX, cluster, failures)
    failures.check(is_on, f"{fault.name} ({name}): all work on within {RESUMED_SECONDS_MAX} s")
    resumed = max((resumed_at(client, ended) or time.monotonic() for client in cluster.clients.values())) - ended
    concerned = list(before) if name.startswith("ps") else [int(name[-1])]
    first = {index: min(client.since(began, LOST), default=None) for index, client in before.items()}
    noticed = {index: at - began for index, at in first.items() if at is not None and index in concerned}
    for index, at in first.items():
        failures.check(at is None or index in concerned, f"{fault.name} ({name}): worker {index} is not disturbed")
    if fault.is_cut_off:
        late = [index for index in concerned if noticed.get(index, NOTICED_SECONDS_MAX + 1) > NOTICED_SECONDS_MAX]
        failures.check(not late, f"{fault.name} ({name}): noticed within {NOTICED_SECONDS_MAX} s; not so by the workers {late}: {noticed}")
    back = {}
    for index, client in [*cluster.clients.items(), *cluster.ended]:
        for at, line in list(client.timed):
            if at >= began and line.startswith("BACK "):
                told = json.loads(line[5:])
                key = (told["variable"], index)
                back[key] = back.get(key, 0) + told["lost"]
    # A restored checkpoint undoes steps: the chief restores one whenever its session is created again.
    may_go_back = name.startswith("ps") or name == "worker0"
    failures.check(may_go_back or not back, f"{fault.name} ({name}): nothing goes back: {back}")
    lost = max((sum(count for (variable, _), count in back.items() if variable == which) for which in ("counters", "there")), default=0)
    print(f"  {fault.name} ({name}, {seconds:.1f} s): noticed after {shown(noticed.values())} s, "
          f"work went on {resumed:.1f} s after its end, {lost} steps lost", flush=True)
    return {"fault": fault.name, "task": name, "seconds": seconds, "noticed": max(noticed.values(), default=None), "resumed": resumed,
            "lost": lost}


def shown(values):
    values = [value for value in values if value is not None]
    if not values:
        return "–"
    middle = statistics.median(values)
    return f"{middle:.1f}" if len(values) == 1 else f"{middle:.1f} (at most {max(values):.1f})"


def usage(cluster):
    """Returns descriptors and resident bytes of each task."""
    found = {}
    for name in cluster.tasks():
        process = cluster.process(name)
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        found[name] = {"descriptors": len(list(pathlib.Path(f"/proc/{process.pid}/fd").iterdir())),
                       "bytes": int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10}
    return found


def table(results, probe, arguments, steps):
    rows = []
    for name in dict.fromkeys(result["fault"] for result in results):
        mine = [result for result in results if result["fault"] == name]
        rows.append(f"| {name} | {len(mine)} | {shown(result['noticed'] for result in mine)} | "
                    f"{shown(result['resumed'] for result in mine)} | {sum(result['lost'] for result in mine)} |")
    return "\n".join([
        f"A run of {arguments.minutes:g} minutes, seed {arguments.seed}, {build()} build: {len(results)} faults, {steps:,} steps of four workers.",
        f"The forwarder carried {probe['bits'] / 1e9:.1f} Gbit/s, and a round trip took {probe['trip_micros']:.0f} µs, before it was told to do worse. "
        "Seconds are medians.",
        "",
        "| fault | how often | seconds until noticed | seconds from its end until all work went on | steps lost |",
        "|---|--:|--:|--:|--:|",
        *rows])


def build():
    return "release" if pathlib.Path(harness.ferroflow_bin()).parent.name == "release" else "development"


def finish(cluster, failures):
    """Ends the training, and checks its counters."""
    for client in cluster.clients.values():
        client.finish()
    for index, client in cluster.clients.items():
        failures.check(client.wait() == 0, f"worker {index} ends as it should: {client.log()}")
    last = {index: client.told()[-1][1] for index, client in cluster.clients.items()}
    host = cluster.workers[0]
    checker = Program("checker", host, [sys.executable, HERE / "trainer.py", f"grpc://{host.address}:{PORT}", "check"]).start()
    checker.expect_success()
    found = json.loads(next(line for line in checker.lines if line.startswith("FOUND "))[6:])
    print(f"  at the end: {found}", flush=True)
    for variable, number in (("counters", 0), ("there", 1)):
        counted, total = found[variable][:-1], found[variable][-1]
        told = [last[index]["counters"][number] for index in range(NUM_WORKERS)]
        failures.check(counted == told, f"{variable} is {counted}, and the workers were told {told}")
        failures.check(sum(counted) == total, f"{variable}: the sum is {sum(counted)}, and one update counted {total}")
    return found


def all_clients(cluster):
    return [*cluster.ended, *cluster.clients.items()]


def check_global_step(cluster, found, results, failures):
    """The global step is a different variable from the counters. Failed attempts, and checkpoints saved during training, may make them differ."""
    failed = killed = 0
    for _, client in all_clients(cluster):
        told = client.told()
        failed += told[-1][1]["tried"] - told[-1][1]["answered"] if told else 0
        killed += 1
    apart = failed + killed + APART_MAX * (1 + sum(result["lost"] > 0 for result in results))
    for name, total in (("counters", found["counters"][-1]), ("there", found["there"][-1])):
        failures.check(abs(found["step"] - total) <= apart,
                       f"the global step is {found['step']}, {name} says {total}: apart by at most {apart}")
    failures.check(found["is_finite"], "the weights are finite")


def write_page(text):
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10, help="how long faults are injected")
    parser.add_argument("--seed", type=int, default=1, help="decides which faults there are, and where")
    parser.add_argument("--only", help="faults whose name contains this")
    parser.add_argument("--forwarder", required=True, help="the program that forwards packets")
    parser.add_argument("--out", required=True, help="a directory for logs and results")
    arguments = parser.parse_args()
    hosts.enter()
    global LOGS
    LOGS = pathlib.Path(arguments.out)
    LOGS.mkdir(parents=True, exist_ok=True)
    directory = harness.tempfile.mkdtemp(prefix="ferroflow-chaos-")
    chance, failures, results = random.Random(arguments.seed), Failures(), []
    net = hosts.Network([f"ps{i}" for i in range(NUM_PS)] + [f"worker{i}" for i in range(NUM_WORKERS)], arguments.forwarder,
                          seed=arguments.seed)
    cluster = Cluster(net, directory)
    try:
        probe = net.probe("worker0", "ps0")
        print(f"forwarder: {probe['bits'] / 1e9:.2f} Gbit/s, {probe['trip_micros']:.0f} µs for a round trip", flush=True)
        for host in net.hosts.values():
            host.set_rate(RATE_BITS)
        cluster.start()
        failures.check(wait_until(lambda: all(client.told() for client in cluster.clients.values()), RESUMED_SECONDS_MAX, cluster, failures),
                       "all workers begin to train")
        began = time.monotonic()
        wait_until(lambda: time.monotonic() > began + WARM_UP_SECONDS, WARM_UP_SECONDS + 1, cluster, failures)
        before, deck = usage(cluster), []
        chosen = [kind for kind in kinds(cluster, chance) if not arguments.only or arguments.only in kind.name]
        failures.check(chosen, f"no fault's name contains {arguments.only!r}")
        end = time.monotonic() + (60 * arguments.minutes if chosen else 0)
        while time.monotonic() < end and not (failures.texts and arguments.only):
            if not deck:
                deck = chance.sample(chosen, len(chosen))
            results.append(inject(deck.pop(), cluster, chance, failures))
            pause = time.monotonic() + chance.uniform(1, 3)
            wait_until(lambda: time.monotonic() > pause, 5, cluster, failures)
        began = time.monotonic()
        wait_until(lambda: time.monotonic() > began + WARM_UP_SECONDS, WARM_UP_SECONDS + 1, cluster, failures)
        after = usage(cluster)
        for name, now in after.items():
            was = before[name]
            print(f"  {name}: {was['descriptors']} descriptors and {was['bytes'] >> 20} MB before, {now['descriptors']} and {now['bytes'] >> 20} MB after")
            failures.check(now["descriptors"] <= was["descriptors"] + GROWTH_DESCRIPTORS_MAX, f"{name}: descriptors are as many as before")
            failures.check(now["bytes"] <= was["bytes"] + GROWTH_BYTES_MAX, f"{name}: memory is as much as before")
        found = finish(cluster, failures)
        check_global_step(cluster, found, results, failures)
        for index, client in all_clients(cluster):
            for _, line in client.timed:
                failures.check(not line.startswith("WRONG"), f"worker {index}: {line}")
        steps = sum(client.told()[-1][1]["answered"] for _, client in all_clients(cluster) if client.told())
        text = table(results, probe, arguments, steps)
        print(text, flush=True)
        (LOGS / "result.json").write_text(json.dumps({"probe": probe, "results": results, "failures": failures.texts}, indent=1))
        if not failures.texts and not arguments.only and arguments.minutes >= DOCUMENTED_MINUTES_MIN:
            write_page(text)
    finally:
        if failures.texts:
            print(f"logs are in {LOGS}")
        harness.kill_all()
        net.close()
        harness.shutil.rmtree(directory, ignore_errors=True)
    print("chaos: " + (f"{len(failures.texts)} FAILED" if failures.texts else "all held"))
    sys.exit(1 if failures.texts else 0)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except hosts.Unsupported as error:
        sys.exit(f"chaos: {error}")
