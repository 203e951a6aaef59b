"""Compares the current binary with an older one: the same client and graphs, in pairs of short turns.

`cargo xtask bench --against OLD_BINARY [cluster|core] [-- CASE…]` runs it. Both sides are up at the same time. A pair is a turn
of each, and which goes first alternates, so that a machine that gets slower or faster favours neither. The result is the median
of the pairs' ratios with its 95 % interval. It fails if the whole interval is below 0.97.
"""
import argparse
import math
import os
import pathlib
import statistics
import sys
import tempfile

import _figures
import _report
from _processes import FERROFLOW, BEFORE, BenchError, Clients, Servers, run_part
from _table import CASES

SECONDS = _figures.seconds(1)
PAIRS = max(_figures.rounds(15), 6)
PS, WORKERS = 1, 2
SIDES = (BEFORE, FERROFLOW)
# A ratio below this is a loss, if even the upper end of the interval is below it.
LEAST = 0.97


def interval(ratios):
    """Returns the interval that contains the median with a probability of at least 95 %, whatever the distribution of ratios.

    The number of ratios below the true median is binomially distributed, like heads among as many coins: the interval goes from
    the k-th smallest to the k-th largest ratio, for the largest k such that fewer than 2.5 % of such throws stay below it.
    """
    ordered, count = sorted(ratios), len(ratios)
    below, k = 0.0, 0
    while k < count // 2:
        below += math.comb(count, k) / 2**count
        if below > 0.025:
            break
        k += 1
    if k == 0:
        raise BenchError(f"{count} pairs are too few for an interval")
    return ordered[k - 1], ordered[count - k]


class Outcome:
    """The results of the pairs of one case: samples of {"rate", "cpu_ms"} by side."""

    def __init__(self, case, samples):
        self.case = case
        self.before, self.now = (_figures.summary(samples[side]) for side in SIDES)
        self.ratios = [now / before for now, before in zip(self.now["rates"], self.before["rates"])]
        self.ratio = statistics.median(self.ratios)
        self.low, self.high = interval(self.ratios)

    @property
    def is_lost(self):
        return self.high < LEAST

    def line(self):
        cpu = ""
        if "cpu_ms" in self.before:
            share = _figures.share(self.now["cpu_ms"], self.before["cpu_ms"])
            cpu = f"  server CPU {self.before['cpu_ms']:.3f} {self.now['cpu_ms']:.3f} ms" + (f" = {share:.2f}" if share else "")
        verdict = "  LOST" if self.is_lost else ""
        return (f"{self.case:42} {self.before['rate']:11.1f} {self.now['rate']:11.1f} steps/s  ratio {self.ratio:.3f} "
                f"({self.low:.3f}-{self.high:.3f}, {len(self.ratios)} pairs){cpu}{verdict}")


def in_pairs(sample):
    """Takes a sample of each side in turns, after one to warm up."""
    samples = {side: [] for side in SIDES}
    for side in SIDES:
        sample(side)
    for pair in range(PAIRS):
        for side in SIDES if pair % 2 == 0 else reversed(SIDES):
            samples[side].append(sample(side))
    return samples


def cluster_case(case, clients):
    clusters = {side: Servers(side, PS, WORKERS) for side in SIDES}
    try:
        for side in SIDES:
            clusters[side].wait_ready()
            clients.build(CASES[case].build, clusters[side], side, PS, WORKERS)
        samples = in_pairs(lambda side: clients.sample(clusters[side], side, WORKERS, SECONDS))
        for side in SIDES:
            clients.close(clusters[side], side, WORKERS)
        return Outcome(case, samples)
    finally:
        for side in SIDES:
            clusters[side].stop()


def run_cluster(wanted):
    clients = Clients(WORKERS)
    for case in chosen(CASES, wanted):
        yield cluster_case(case, clients)
    clients.stop()


def run_core(wanted):
    # It builds graphs, and so imports TensorFlow.
    import core

    programs = {BEFORE: beside(os.environ["FERROFLOW_BENCH_AGAINST"], "step_rate"), FERROFLOW: core.example("step_rate")}
    for case in chosen(core.CASES, wanted):
        with tempfile.TemporaryDirectory() as directory:
            arguments = core.written(core.CASES[case], directory)
            with core.Steps([programs[BEFORE], *arguments]) as before, core.Steps([programs[FERROFLOW], *arguments]) as now:
                steps = {BEFORE: before, FERROFLOW: now}
                yield Outcome(case, in_pairs(lambda side: {"rate": steps[side].rate(SECONDS)}))


def beside(binary, name):
    path = pathlib.Path(binary).parent / "examples" / name
    if not path.exists():
        raise BenchError(f"{path} is missing: `cargo build --release --package ferroflow --example {name}` makes it")
    return str(path)


def chosen(cases, wanted):
    found = [case for case in cases if not wanted or any(part in case for part in wanted)]
    if not found:
        raise BenchError(f"no case is named so; there are: {', '.join(cases)}")
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["cluster", "core"])
    parser.add_argument("cases", nargs="*", help="parts of the names of the cases; all by default")
    arguments = parser.parse_args()
    print(f"{_report.machine()}; {PAIRS} pairs of {SECONDS:g} s turns; before first", flush=True)
    lost = []
    for outcome in {"cluster": run_cluster, "core": run_core}[arguments.part](arguments.cases):
        print(outcome.line(), flush=True)
        if outcome.is_lost:
            lost.append(outcome.case)
    if lost:
        raise BenchError(f"slower than before: {', '.join(lost)}")


if __name__ == "__main__":
    run_part(main)
