"""`cargo xtask attack [--seconds N]`: a Ferroflow cluster, a client that trains on it, and all attackers at once, twice.

The training must end with the right weights, and the 99th percentile of its steps in the server must stay below 50 ms. After each
round the servers must have as many open descriptors and as much memory in their accounts as before, and after the second round a
process may have at most 16 MB more than after the first.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "interop"))

import harness  # noqa: E402

ROUNDS = 2
# An idle server asks its allocator for memory to return every ten seconds.
IDLE_SECONDS = 25
GROWTH_BYTES_MAX = 16 << 20
DIFFERENCE_MAX = 1e-4
P99_MS_MAX = 50
# How long the effects of an attack may take to disappear: sessions of disconnected clients are ended, idle memory is returned.
CALM_SECONDS = 60
# The user that the attackers run as, if possible: then their share isn't that of the training client.
NOBODY = 65534

FLAGS = ["--memory_limit=4G", "--session_gc_seconds=2"]


class Failures:
    def __init__(self):
        self.texts = []

    def check(self, holds, text):
        print(("  ok      " if holds else "  FAILED  ") + text, flush=True)
        if not holds:
            self.texts.append(text)


def descriptors(task):
    return len(os.listdir(f"/proc/{task.pid}/fd"))


def resident_bytes(task):
    status = pathlib.Path(f"/proc/{task.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10


def ask(task):
    """Makes a server log its state, and returns the lines."""
    before = len(task.lines)
    task.signal(signal.SIGUSR1)
    task.wait_for(lambda line: len(task.lines) > before and "memory:" in line and line in list(task.lines)[before:], "how it is")
    return list(task.lines)[before:]


def state(task):
    """Returns what must be as before: descriptors, bytes in accounts, and bytes that are kept for the next step."""
    account, spare = re.search(r"memory: (\d+) bytes in use.*?, (\d+) spare", "\n".join(ask(task))).groups()
    return {"descriptors": descriptors(task), "account": int(account), "spare": int(spare)}


def p99_of_root_ms(lines):
    """Returns the 99th percentile of the training client's steps, from the arrival of a call to its answer."""
    found = [re.search(r"steps of user root: (\d+) calls, .*p99 ([0-9.]+) ms", line) for line in lines]
    return max((float(one[2]) for one in found if one and int(one[1])), default=None)


def wait_for_calm(tasks, before, failures):
    """Waits until every server is as it was before, and reports differences."""
    give_up = time.monotonic() + CALM_SECONDS
    for task in tasks:
        now = state(task)
        while now != before[task.name] and time.monotonic() < give_up:
            time.sleep(0.5)
            now = state(task)
        failures.check(now == before[task.name], f"{task.name}: {now}, was {before[task.name]}")


def start(script, *arguments):
    environment = dict(os.environ, no_proxy="*", PYTHONUNBUFFERED="1", TF_CPP_MIN_LOG_LEVEL="3", HOME="/tmp",
                       PYTHONDONTWRITEBYTECODE="1")
    return subprocess.Popen([sys.executable, str(HERE / script), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            text=True, env=environment)


def attack(cluster, seconds, failures):
    trainer = start("trainer.py", cluster.target)
    addresses = [task.address for task in cluster.tasks.values()]
    user = [str(NOBODY)] if os.getuid() == 0 else []
    attackers = [start("attackers.py", address, str(seconds), *user) for address in addresses]
    for address, process in zip(addresses, attackers):
        output, _ = process.communicate(timeout=seconds + 300)
        told = json.loads(output.splitlines()[-1]) if output.strip() else {"outcomes": {}, "unexpected": ["no output"]}
        for name, outcomes in sorted(told["outcomes"].items()):
            print(f"  {address} {name}: " + ", ".join(f"{count} {code}" for code, count in outcomes.items()))
        failures.check(not told["unexpected"], "attackers saw what they expect: " + "; ".join(told["unexpected"])[-1000:])
    for task in cluster.tasks.values():
        lines = ask(task)
        for line in lines:
            print("  " + line[:300])
        p99_ms = p99_of_root_ms(lines) if user else None
        if p99_ms is not None:
            failures.check(p99_ms < P99_MS_MAX, f"{task.name}: p99 of the steps of training is {p99_ms} ms in the server")
    output, _ = trainer.communicate("stop\n", timeout=300)
    failures.check(trainer.returncode == 0, f"the training ended with {trainer.returncode}")
    if trainer.returncode == 0:
        told = json.loads(output.splitlines()[-1])
        print(f"  {told['steps']} steps of training: median {told['median_ms']:.2f} ms, p99 {told['p99_ms']:.2f} ms, "
              f"longest {told['longest_ms']:.1f} ms")
        failures.check(told["difference"] <= DIFFERENCE_MAX, f"the weights differ by {told['difference']:.1e} from TensorFlow's")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--seconds", type=float, default=60, help="how long each round takes")
    arguments.add_argument("--rounds", type=int, default=ROUNDS, help="how many rounds there are")
    flags = arguments.parse_args()
    seconds = flags.seconds
    failures = Failures()
    allowed = [f"--allow_users={NOBODY}"] if os.getuid() == 0 else []
    cluster = harness.Cluster(ps=1, workers=1, arguments=FLAGS + allowed)
    tasks = list(cluster.tasks.values())
    try:
        # Once without attackers, so that every server has created what it creates only once.
        attack(cluster, 0, failures)
        before = {}
        for task in tasks:
            before[task.name] = state(task)
            while before[task.name]["spare"]:
                time.sleep(0.5)
                before[task.name] = state(task)
        resident = []
        for number in range(flags.rounds):
            print(f"round {number + 1}, {seconds:.0f} s", flush=True)
            attack(cluster, seconds, failures)
            wait_for_calm(tasks, before, failures)
            time.sleep(IDLE_SECONDS)
            resident.append({task.name: resident_bytes(task) for task in tasks})
        for task in tasks:
            growth = resident[-1][task.name] - resident[0][task.name]
            failures.check(growth < GROWTH_BYTES_MAX, f"{task.name}: the later rounds added {growth / (1 << 20):.1f} MB, "
                           f"after {', '.join(str(round_[task.name] >> 20) for round_ in resident)} MB")
            failures.check(task.returncode is None, f"{task.name} lives")
    finally:
        if failures.texts:
            print(cluster.log())
        cluster.stop()
    print("attack: " + (f"{len(failures.texts)} FAILED" if failures.texts else "all held"))
    sys.exit(1 if failures.texts else 0)


if __name__ == "__main__":
    main()
