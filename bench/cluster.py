"""Compares our clusters with TensorFlow's: the same client and graphs, in turns.

Run it with `cargo xtask bench cluster [-- CASE…]`. Both clusters (1 ps, 2 workers, one process per task) are up for a case at the
same time; while one is measured, the other is idle.
"""
import argparse
import json
import sys

import _figures
import _report
from _processes import FERROFLOW, TENSORFLOW, BenchError, Clients, Servers, run_part
from _table import CASES

SECONDS = _figures.seconds(3)
ROUNDS = _figures.rounds(5)
SIDES = (TENSORFLOW, FERROFLOW)
PS, WORKERS = 1, 2


def measure(case, clients, sides=SIDES, flags=()):
    """Measures one case on each side in turns."""
    clusters = {side: Servers(side, PS, WORKERS, flags) for side in sides}
    try:
        for side in sides:
            clusters[side].wait_ready()
            clients.build(case, clusters[side], side, PS, WORKERS)
        samples = {side: [] for side in sides}
        # The first round warms up.
        for _ in range(ROUNDS + 1):
            for side in sides:
                samples[side].append(clients.sample(clusters[side], side, WORKERS, SECONDS))
        results = {}
        for side in sides:
            results[side] = _figures.summary(samples[side][1:])
            results[side]["ps_peak_mb"] = clusters[side].ps_peak_mb()
            results[side]["startup_s"] = clusters[side].tasks[0].startup_s
            clients.close(clusters[side], side, WORKERS)
        return results
    finally:
        for side in sides:
            clusters[side].stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", help="parts of the names of the cases; all by default")
    parser.add_argument("--only", choices=SIDES, help="measure one side only, for a profile")
    parser.add_argument("--server_flag", action="append", default=[], help="passed on to our servers")
    arguments = parser.parse_args()
    chosen = [case for case in CASES if not arguments.cases or any(part in case for part in arguments.cases)]
    if not chosen:
        raise BenchError(f"no case is named so; there are: {', '.join(CASES)}")
    sides = (arguments.only,) if arguments.only else SIDES
    print(_report.machine_line(SECONDS, ROUNDS), flush=True)
    clients = Clients(WORKERS)
    failures = []
    for case in chosen:
        try:
            measured = measure(CASES[case].build, clients, sides, arguments.server_flag)
        except BenchError as error:
            # The clients' state is unknown now; the results of the other cases are still useful.
            print(f"{case}: {error}", file=sys.stderr, flush=True)
            failures.append(case)
            clients.stop()
            clients = Clients(WORKERS)
            continue
        if arguments.only:
            print(case, json.dumps(measured[arguments.only]), flush=True)
            continue
        result = _figures.compare(case, measured[TENSORFLOW], measured[FERROFLOW], CASES[case])
        print(_figures.line(result), flush=True)
        _report.write("cluster", [result], SECONDS, ROUNDS)
    clients.stop()
    if failures:
        raise BenchError(f"not measured: {', '.join(failures)}")


if __name__ == "__main__":
    run_part(main)
