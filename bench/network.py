"""Clusters across a network: TensorFlow's servers and ours in turns, each on its own host, with different rates and delays.

Run it with `cargo xtask bench network [-- CASE…]`. One ps and two workers run in network namespaces, which are joined by a bridge if nothing
is delayed, otherwise by the forwarder of `cargo xtask chaos`. `tc tbf` limits the rate of each host. Only a run of all cases, rates and delays is kept.
"""
import argparse
import pathlib
import queue
import sys
import time

import _figures
import _report
from _processes import BENCH, FERROFLOW, ROOT, TENSORFLOW, BenchError, Client, Clients, Logged, Server, Servers, run_part, server_program

sys.path.insert(0, str(ROOT / "tests" / "chaos"))
import hosts  # noqa: E402

SECONDS = _figures.seconds(2)
ROUNDS = _figures.rounds(3)
SIDES = (TENSORFLOW, FERROFLOW)
PORTS = {TENSORFLOW: 2223, FERROFLOW: 2222}
PS, WORKERS = 1, 2
RATES_GBIT = (1, 10, 25)
DELAYS_MS = (0, 0.5, 5)
DENSE_BYTES = 100 << 20
# How each case is built, and the bytes that its step moves in each direction, if it does nothing else.
CASES = {
    "scalar": ("null_step(1)", None),
    "dense 100 MB": (f"null_step({DENSE_BYTES // 4})", DENSE_BYTES),
    "MLP asynchronous": ("mlp", None),
    "embedding": ("embedding", None),
}


class HostedServer(Server):
    """A server on a host."""

    def __init__(self, kind, name, flags, host):
        Logged.__init__(self, f"{kind} {name}", host.within(server_program(kind) + list(flags)))
        self.is_ready = False
        self.started = time.perf_counter()
        self.startup_s = None
        self.start()


class HostedServers(Servers):
    """The tasks of one cluster, on hosts."""

    def __init__(self, kind, hosts):
        self.kind, self.num_ps = kind, PS
        self.hosts = [f"{host.address}:{PORTS[kind]}" for host in hosts]
        cluster = [f"--ps_hosts={','.join(self.hosts[:PS])}", f"--worker_hosts={','.join(self.hosts[PS:])}"]
        self.tasks = []
        for index, host in enumerate(hosts):
            job, task = ("ps", index) if index < PS else ("worker", index - PS)
            self.tasks.append(HostedServer(kind, f"/job:{job}/task:{task}", [*cluster, f"--job_name={job}", f"--task_index={task}"], host))


class HostedClient(Client):
    """A worker's client, on the worker's host."""

    def __init__(self, worker, host):
        Logged.__init__(self, f"client {worker}", host.within([sys.executable, BENCH / "_client.py"]))
        self.worker = worker
        self.answers = queue.SimpleQueue()
        self.start()


class HostedClients(Clients):
    """Clients on the hosts of their workers."""

    def __init__(self, hosts):
        self.all = [HostedClient(worker, host) for worker, host in enumerate(hosts)]


def set_conditions(net, gbit, delay_ms):
    for host in net.hosts.values():
        host.set_rate(gbit * 1e9)
        if net.forwarder:
            # Half of the delay in each direction.
            net.forwarder.set(host, "in", delay_ms=delay_ms / 2)


def measure(net, name, conditions, probes):
    """Measures a case under each condition, and yields the results."""
    build, moved = CASES[name]
    hosts = list(net.hosts.values())
    for gbit, delay_ms in conditions[:1]:
        set_conditions(net, gbit, delay_ms)
    clusters = {side: HostedServers(side, hosts) for side in SIDES}
    clients = HostedClients(hosts[PS:])
    try:
        for side in SIDES:
            clusters[side].wait_ready()
            clients.build(build, clusters[side], side, PS, WORKERS)
        for gbit, delay_ms in conditions:
            set_conditions(net, gbit, delay_ms)
            samples = {side: [] for side in SIDES}
            for _ in range(ROUNDS + 1):
                for side in SIDES:
                    samples[side].append(clients.sample(clusters[side], side, WORKERS, SECONDS))
            sides = {side: _figures.summary(samples[side][1:]) for side in SIDES}
            result = {"case": f"{name}, {gbit:g} Gbit/s, {delay_ms:g} ms", "name": name, "gbit": gbit, "delay_ms": delay_ms,
                      "tensorflow": sides[TENSORFLOW], "ours": sides[FERROFLOW], "probe": probes[gbit, delay_ms],
                      **_figures.spread(sides[TENSORFLOW]["rates"], sides[FERROFLOW]["rates"])}
            if moved:
                for side, told in (("tensorflow", sides[TENSORFLOW]), ("ours", sides[FERROFLOW])):
                    # The ps sends all of it over its one link, and receives as much.
                    result[f"{side}_share"] = told["rate"] * moved * 8 / (gbit * 1e9)
                    result[f"{side}_gb_per_cpu_s"] = 2 * moved / 1e9 / (told["cpu_ms"] / 1000) if told["cpu_ms"] else None
            yield result
        for side in SIDES:
            clients.close(clusters[side], side, WORKERS)
    finally:
        clients.stop()
        for side in SIDES:
            clusters[side].stop()


def line(result):
    theirs, ours = result["tensorflow"], result["ours"]
    shares = f"  of the line {result['tensorflow_share']:.2f} {result['ours_share']:.2f}" if "ours_share" in result else ""
    return (f"{result['case']:36} {theirs['rate']:9.1f} {ours['rate']:9.1f} steps/s  ratio {result['ratio']:5.2f} "
            f"({result['ratio_min']:.2f}-{result['ratio_max']:.2f}){shares}  server CPU {theirs['cpu_ms']:.2f} {ours['cpu_ms']:.2f} ms")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", help="parts of the names of the cases; all by default")
    numbers = lambda text: tuple(float(part) for part in text.split(","))  # noqa: E731
    parser.add_argument("--rates", type=numbers, default=RATES_GBIT, help="Gbit/s of each host's link")
    parser.add_argument("--delays", type=numbers, default=DELAYS_MS, help="milliseconds added to a round trip")
    parser.add_argument("--forwarder", required=True, help="the program that forwards packets")
    arguments = parser.parse_args()
    chosen = [case for case in CASES if not arguments.cases or any(part in case for part in arguments.cases)]
    if not chosen:
        raise BenchError(f"no case is named so; there are: {', '.join(CASES)}")
    hosts.enter()
    print(_report.machine_line(SECONDS, ROUNDS), flush=True)
    results, failures = [], []
    for is_delayed in (False, True):
        conditions = [(gbit, delay) for delay in arguments.delays for gbit in arguments.rates if (delay > 0) == is_delayed]
        if not conditions:
            continue
        net = hosts.Network(["ps0", "worker0", "worker1"], arguments.forwarder if is_delayed else None, offload=True)
        try:
            free = net.probe("ps0", "worker0")
            print(f"{'forwarder' if is_delayed else 'bridge'}: {free['bits'] / 1e9:.1f} Gbit/s by one connection, "
                  f"{free['trip_micros']:.0f} µs for a round trip", flush=True)
            probes = {}
            for gbit, delay_ms in conditions:
                set_conditions(net, gbit, delay_ms)
                probes[gbit, delay_ms] = told = {**net.probe("ps0", "worker0"), "free_bits": free["bits"]}
                print(f"  at {gbit:g} Gbit/s and {delay_ms:g} ms: {told['bits'] / 1e9:.2f} Gbit/s, {told['trip_micros']:.0f} µs", flush=True)
            for name in chosen:
                try:
                    for result in measure(net, name, conditions, probes):
                        results.append(result)
                        print(line(result), flush=True)
                except BenchError as error:
                    print(f"{name}: {error}", file=sys.stderr, flush=True)
                    failures.append(name)
        finally:
            net.close()
    is_whole = not arguments.cases and arguments.rates == RATES_GBIT and arguments.delays == DELAYS_MS
    if is_whole and not failures:
        _report.write("network", results, SECONDS, ROUNDS)
    if failures:
        raise BenchError(f"not measured: {', '.join(failures)}")


if __name__ == "__main__":
    try:
        run_part(main)
    except hosts.Unsupported as error:
        sys.exit(f"bench/{pathlib.Path(__file__).name}: {error}")
