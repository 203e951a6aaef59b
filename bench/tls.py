"""Measures the cost of encryption: steps with and without TLS between tasks, through `ferroflow proxy`, and without the flight
recorder.

Run it with `cargo xtask bench tls`. All sides are measured in turns, with two kinds of steps: one that transfers 100 MB from a ps
to a worker, and the smallest one. Only traffic between tasks is encrypted, except for the side with the proxy, where the client's
calls are, too.
"""
import argparse
import pathlib
import statistics
import subprocess
import tempfile

import _figures
import _report
from _processes import FERROFLOW, Clients, Logged, Servers, binary, run_part

SECONDS = _figures.seconds(1.0)
ROUNDS = _figures.rounds(9)
MEGABYTES = 100
SIDES = ("plain", "tls", "proxy", "no recorder")
# The largest accepted losses: of the rate at 100 MB, in microseconds of a small step, the same for the proxy, and of a small step
# by the recorder.
LARGE_LOSS_MAX, SMALL_MICROS_MAX, PROXY_MICROS_MAX, RECORDER_LOSS_MAX = 0.10, 20.0, 50.0, 0.01


class Proxy(Logged):
    """`ferroflow proxy`, with a client's certificate."""

    def __init__(self, server, certs):
        files = [f"--tls_cert={certs}/client-bench.pem", f"--tls_key={certs}/client-bench.key", f"--tls_ca={certs}/ca.pem"]
        super().__init__("proxy", [binary(), "proxy", server, *files])
        self.target = None
        self.start()

    def take(self, line):
        if "proxy ready: " in line:
            self.target = next(word for word in line.split() if word.startswith("grpc://"))
        super().take(line)


class Through:
    """A cluster as clients see it through a proxy."""

    def __init__(self, servers, proxy):
        self.servers, self.proxy = servers, proxy
        self.kind, self.tasks = servers.kind, [*servers.tasks, proxy]

    def target(self, _worker):
        return self.proxy.target

    def cpu(self):
        return self.servers.cpu()


def make_certificates(directory):
    for arguments in (["init", directory], ["issue", directory, "--ps=1", "--workers=1", "--client=bench"]):
        subprocess.run([binary(), "certs", *arguments], check=True, stdout=subprocess.DEVNULL)


def start(certs):
    files = [f"--tls_cert={certs}/{{job}}-{{task}}.pem", f"--tls_key={certs}/{{job}}-{{task}}.key", f"--tls_ca={certs}/ca.pem"]
    plain = Servers(FERROFLOW, 1, 1, ["--transport=tcp"])
    encrypted = Servers(FERROFLOW, 1, 1, ["--transport=tcp", "--allow_plain_loopback", *files])
    unrecorded = Servers(FERROFLOW, 1, 1, ["--transport=tcp"], ["FERROFLOW_RECORDER=off"])
    for servers in (plain, encrypted, unrecorded):
        servers.wait_ready()
    proxy = Proxy(encrypted.hosts[encrypted.num_ps], certs)
    proxy.wait_until(lambda: proxy.target, "said that it is ready", encrypted.tasks)
    return dict(zip(SIDES, (plain, encrypted, Through(encrypted, proxy), unrecorded)))


def measure(name, case, sides, clients):
    samples = {side: [] for side in sides}
    for side, servers in sides.items():
        clients.build(case.replace("SIDE", side.replace(" ", "_")), servers, side, 1, 1)
    # The first round warms up.
    for round_number in range(ROUNDS + 1):
        for side, servers in sides.items():
            sample = clients.sample(servers, side, 1, SECONDS if round_number else SECONDS / 4)
            if round_number:
                samples[side].append(sample)
    for side, servers in sides.items():
        clients.close(servers, side, 1)
    result = {"case": name, **{side: _figures.summary(samples[side]) for side in sides}}
    for side in SIDES[1:]:
        result[f"{side}_spread"] = _figures.spread(result["plain"]["rates"], result[side]["rates"])
    return result


def micros(result, side, other):
    """Returns how much longer a step takes on one side than on another: the median over the rounds."""
    return statistics.median(1e6 / a - 1e6 / b for a, b in zip(result[side]["rates"], result[other]["rates"]))


def loss(result, side, other):
    """Returns the fraction of the other side's rate that is lost, likewise."""
    return statistics.median(1 - a / b for a, b in zip(result[side]["rates"], result[other]["rates"]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=MEGABYTES, help="how much a large step moves")
    arguments = parser.parse_args()
    print(_report.machine_line(SECONDS, ROUNDS), flush=True)
    with tempfile.TemporaryDirectory() as directory:
        certs = str(pathlib.Path(directory) / "certs")
        make_certificates(certs)
        sides, clients = start(certs), Clients(1)
        large = measure(f"{arguments.megabytes} MB", f"receive({arguments.megabytes << 18}, 1, 'large_SIDE_')",
                        {side: sides[side] for side in SIDES}, clients)
        small = measure("small step", "null_step(1, 1, 'small_SIDE_')", sides, clients)
    for result in (large, small):
        for side in SIDES:
            print(f"{result['case']:>10} {side:12} {result[side]['rate']:10.1f} steps/s, {1e6 / result[side]['rate']:10.1f} µs a step", flush=True)
    for what, value, most, unit in (
            (f"lost by TLS at {large['case']}", 100 * loss(large, "tls", "plain"), 100 * LARGE_LOSS_MAX, "%"),
            ("TLS on a small step", micros(small, "tls", "plain"), SMALL_MICROS_MAX, "µs"),
            # Beside the cluster that the proxy leads to.
            ("the proxy on a small step", micros(small, "proxy", "tls"), PROXY_MICROS_MAX, "µs"),
            ("the recorder on a small step", 100 * loss(small, "plain", "no recorder"), 100 * RECORDER_LOSS_MAX, "%")):
        verdict = "ok" if value <= most else "MORE THAN IT MAY BE"
        print(f"{what}: {value:.1f} {unit} (at most {most:g} {unit}): {verdict}", flush=True)
    _report.write("tls", [large, small], SECONDS, ROUNDS)


if __name__ == "__main__":
    run_part(main)
