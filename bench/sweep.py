"""Measures how the cost of a step grows with the size of a variable, the number of workers and the number of parameter servers.

Run it with `cargo xtask bench sweep`. One cluster of each side has all the tasks that a point needs; a point uses the first of
them, and the others are idle. Every point is a null step, on both sides in turns.
"""
import argparse
import pathlib
import time

import _figures
import _report
from _processes import FERROFLOW, TENSORFLOW, Clients, Servers, run_part

SECONDS = _figures.seconds(1)
ROUNDS = _figures.rounds(3)
SIDES = (TENSORFLOW, FERROFLOW)
BYTES = [4 << (4 * power) for power in range(8)]
WORKERS = [1, 2, 4, 8]
PS = [1, 2, 3, 4]
MIB = 1 << 20
# The memory that TensorFlow's tasks, ours and their clients take together for a variable, in multiples of its size: a few copies
# each.
COPIES = 11


def points(arguments):
    """Returns the points as empty results; the largest comes last, because its memory stays allocated."""
    made = []
    for workers in arguments.workers:
        for what, floats in (("scalar", 1), ("dense 4 MB", MIB)):
            made.append({"sweep": "workers", "what": what, "x": workers, "ps": 1, "workers": workers,
                         "floats": floats, "variables": 1, "case": f"{what}, workers: {workers}"})
    for ps in arguments.ps:
        workers = min(2, max(arguments.workers))
        made.append({"sweep": "ps", "what": f"16 variables of 1 MB, {workers} workers", "x": ps, "ps": ps,
                     "workers": workers, "floats": MIB // 4, "variables": 16, "case": f"16 variables of 1 MB, ps: {ps}"})
    for count in sorted(arguments.bytes):
        made.append({"sweep": "bytes", "what": "1 ps, 1 worker", "x": count, "ps": 1, "workers": 1,
                     "floats": max(count // 4, 1), "variables": 1, "case": f"variable of {_figures.size(count)}"})
    return made


def measure(point, number, clusters, clients):
    """Measures a point on each side in turns."""
    ps, workers = point["ps"], point["workers"]
    # A unique name, since the servers keep the variables of previous points.
    case = f"null_step({point['floats']}, {point['variables']}, 'point{number}_')"
    samples = {side: [] for side in SIDES}
    for side in SIDES:
        clients.build(case, clusters[side], side, ps, workers)
    # The first round warms up, which a few steps do.
    for round_number in range(ROUNDS + 1):
        for side in SIDES:
            seconds = SECONDS if round_number else SECONDS / 4
            samples[side].append(clients.sample(clusters[side], side, workers, seconds))
    for side in SIDES:
        clients.close(clusters[side], side, workers)
    theirs, ours = (_figures.summary(samples[side][1:]) for side in SIDES)
    return {**point, "tensorflow": theirs, "ours": ours, **_figures.spread(theirs["rates"], ours["rates"]),
            "cpu_ratio": _figures.share(ours["cpu_ms"], theirs["cpu_ms"])}


def available_bytes():
    text = pathlib.Path("/proc/meminfo").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("MemAvailable")).split()[1]) * 1024


def main():
    parser = argparse.ArgumentParser()
    for name, default in (("bytes", BYTES), ("workers", WORKERS), ("ps", PS)):
        parser.add_argument(f"--{name}", type=lambda text: [int(part) for part in text.split(",")], default=default,
                            help=f"which to measure, by default {','.join(map(str, default))}")
    arguments = parser.parse_args()
    print(_report.machine_line(SECONDS, ROUNDS), flush=True)
    started = time.monotonic()
    most_workers = max(arguments.workers)
    clusters = {side: Servers(side, max(arguments.ps), most_workers) for side in SIDES}
    clients = Clients(most_workers)
    for side in SIDES:
        clusters[side].wait_ready()
    for number, point in enumerate(points(arguments)):
        needed, available = COPIES * 4 * point["floats"] * point["variables"], available_bytes()
        if needed > available:
            print(f"{point['case']}: left out, it takes about {_figures.size(round(needed / MIB) * MIB)} of memory and there "
                  f"are {_figures.size(round(available / MIB) * MIB)}", flush=True)
            continue
        result = measure(point, number, clusters, clients)
        theirs, ours = result["tensorflow"], result["ours"]
        print(f"{result['case']:32} {1000 * point['workers'] / theirs['rate']:9.2f} {1000 * point['workers'] / ours['rate']:9.2f} ms a step  "
              f"{theirs['rate']:8.1f} {ours['rate']:8.1f} steps/s  ratio {result['ratio']:6.2f} "
              f"({result['ratio_min']:.2f}-{result['ratio_max']:.2f})  server CPU {theirs['cpu_ms']:.2f} {ours['cpu_ms']:.2f} ms",
              flush=True)
        _report.write("sweep", [result], SECONDS, ROUNDS)
    print(f"the sweep took {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    run_part(main)
