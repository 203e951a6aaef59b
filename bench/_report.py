"""Writes docs/performance.md and its plots from the results of the last runs in bench/results.

`python bench/_report.py` does so without measuring, and prints a summary of the results.
"""
import datetime
import functools
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

import _figures
import _plot

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Set by tests and for experiments, so that the real results and page are left unchanged.
OUTPUT = os.environ.get("FERROFLOW_BENCH_OUTPUT")
RESULTS = pathlib.Path(OUTPUT) / "results" if OUTPUT else ROOT / "bench" / "results"
DOCS = pathlib.Path(OUTPUT) if OUTPUT else ROOT / "docs"
TRANSPORTS = {"shm": "shared memory", "unix": "Unix socket", "tcp": "TCP", "grpc": "gRPC"}


def load(name):
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else []


def write(name, results, seconds, rounds):
    """Stores the results of a driver and how they were measured; cases that were not run keep their old results."""
    measured = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"), "machine": machine(),
                "seconds": seconds, "rounds": rounds, "tensorflow": tensorflow_kernels(), "instructions": instructions()}
    if os.environ.get("FERROFLOW_BENCH_STAND_IN"):
        measured["stand_in"] = True
    RESULTS.mkdir(parents=True, exist_ok=True)
    kept = {result["case"]: result for result in load(name)}
    kept.update({result["case"]: {**result, "measured": measured} for result in results})
    (RESULTS / f"{name}.json").write_text(json.dumps(list(kept.values()), indent=1) + "\n")
    render()


def machine():
    """Returns the processor and the number of cores."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    models = [line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")]
    return f"{models[0] if models else platform.machine()}, {os.cpu_count()} cores"


@functools.cache
def tensorflow_kernels():
    """Returns the kernels that TensorFlow uses: its default depends on the processor, and is what users have."""
    if os.environ.get("FERROFLOW_BENCH_STAND_IN"):
        return ""
    question = "from tensorflow.python.util import _pywrap_util_port as port; print(port.IsMklEnabled())"
    output = subprocess.run([sys.executable, "-c", question], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return "with oneDNN" if output.split() == ["True"] else "without oneDNN"


@functools.cache
def instructions():
    """Returns the instruction level that our binary uses, or None if the binary doesn't report it."""
    run = subprocess.run([os.environ["FERROFLOW_BIN"], "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    found = re.search(r"^instructions: (.+)$", run.stdout, re.MULTILINE)
    return found[1] if found else ""


def machine_line(seconds, rounds):
    return f"{machine()}{kinds(tensorflow_kernels(), instructions())}; {rounds} rounds of {seconds:g} s in turns, TensorFlow's figures first"


def kinds(tensorflow, level):
    """Describes both sides' kernels, if they are known."""
    words = [f"TensorFlow {tensorflow}" if tensorflow else "", f"ours at {level}" if level else ""]
    return "".join(f", {word}" for word in words if word)


def render():
    """Writes the page; the handwritten part below the mark is preserved."""
    page = DOCS / "performance.md"
    DOCS.mkdir(parents=True, exist_ok=True)
    notes = page.read_text().split(MARK, 1)[1] if page.exists() and MARK in page.read_text() else "\n"
    lines = [HEAD]
    for section in (cluster_section, rust_section, core_section, data_section, sessions_section, sweep_section, bandwidth_section,
                    network_section):
        lines += section()
    page.write_text("\n".join(lines) + MARK + notes)


def cluster_section():
    results = in_order(load("cluster"))
    if not results:
        return []
    (DOCS / "performance.svg").write_text(_plot.bars(results + load("rust")))
    return ["## On a cluster of one ps and two workers", "", "![ratios](performance.svg)", "", *how(results),
            *cluster_table(results), "",
            "| case | ps peak memory, MB | of TensorFlow's | at most | start-up to ready, s | of TensorFlow's |",
            "|---|--:|--:|--:|--:|--:|", *map(memory_row, results), ""]


def in_order(results):
    """Returns results in the order of the table of cases."""
    from _table import CASES
    names = list(CASES)
    return sorted(results, key=lambda r: names.index(r["case"]) if r["case"] in names else len(names))


def cluster_table(results):
    lines = ["| case | TensorFlow, steps/s | Ferroflow, steps/s | ratio (spread) | at least | | server CPU a step, ms | of TensorFlow's | at most |",
             "|---|--:|--:|--:|--:|---|--:|--:|--:|"]
    for r in results:
        t, o = r["tensorflow"], r["ours"]
        lines.append(f"| {r['case']} | {t['rate']:,.1f} | {o['rate']:,.1f} | {ratio(r)} | {bar(r['bar'])} | {verdict(r['ratio'], r['bar'])} "
                     f"| {t['cpu_ms']:.2f} → {o['cpu_ms']:.2f} | {part(r['cpu_ratio'])} | {at_most(r['cpu_ratio'], r['cpu_bar'])} |")
    return lines


def memory_row(r):
    t, o = r["tensorflow"], r["ours"]
    return (f"| {r['case']} | {t['ps_peak_mb']:,.0f} → {o['ps_peak_mb']:,.0f} | {part(r['memory_ratio'], 3)} "
            f"| {at_most(r['memory_ratio'], r.get('memory_bar'))} | {t['startup_s']:.2f} → {o['startup_s']:.3f} "
            f"| {part(_figures.share(o['startup_s'], t['startup_s']), 4)} |")


def rust_section():
    results = load("rust")
    if not results:
        return []
    lines = ["## Workers in Rust", "",
             "The MLP trained asynchronously by one ps and two workers, three processes over sockets: Rust programs, against",
             "TensorFlow's Python workers on TensorFlow's servers. `examples/mnist_replica` is TensorFlow's program op by op;",
             "`ferroflow train --job_name=…` has the fused loss. Our workers are their own clients: their CPU is all there is,",
             "while TensorFlow's clients use some beside the servers.", "", *how(results), *cluster_table(results), "",
             "| case | CPU a step with clients, ms | of TensorFlow's | ps peak memory, MB | of TensorFlow's | at most |",
             "|---|--:|--:|--:|--:|--:|"]
    for r in results:
        t, o = r["tensorflow"], r["ours"]
        lines.append(f"| {r['case']} | {t['cpu_ms'] + t['client_cpu_ms']:.2f} → {o['cpu_ms']:.2f} | {part(r['whole_cpu_ratio'])} "
                     f"| {t['ps_peak_mb']:,.0f} → {o['ps_peak_mb']:,.0f} | {part(r['memory_ratio'], 3)} "
                     f"| {at_most(r['memory_ratio'], r.get('memory_bar'))} |")
    return lines + [""]


def core_section():
    results = load("core")
    if not results:
        return []
    lines = ["## In process", "", *how(results), "| case | TensorFlow | Ferroflow | ratio (spread) | at least | |",
             "|---|--:|--:|--:|--:|---|"]
    for r in results:
        lines.append(f"| {r['case']} | {r['tensorflow']:,.0f} {r['unit']} | {r['ours']:,.0f} {r['unit']} "
                     f"| {ratio(r)} | {bar(r['bar'])} | {verdict(r['ratio'], r['bar'])} |")
    return lines + [""]


def data_section():
    results = load("data")
    if not results:
        return []
    lines = ["## Input pipelines", "",
             "The same pipeline of datasets on the same files, drawn from as fast as it goes, in one process on each side.", "",
             *how(results),
             "| case | tf.data, records/s | Ferroflow, records/s | ratio (spread) | at least | | CPU a record, µs | of TensorFlow's |",
             "|---|--:|--:|--:|--:|---|--:|--:|"]
    for r in results:
        t, o = r["tensorflow"], r["ours"]
        lines.append(f"| {r['case']} | {t['rate']:,.0f} | {o['rate']:,.0f} | {ratio(r)} | {bar(r['bar'])} | {verdict(r['ratio'], r['bar'])} "
                     f"| {t['cpu_us']:.2f} → {o['cpu_us']:.2f} | {part(r['cpu_ratio'])} |")
    return lines + [""]


def sessions_section():
    results = load("sessions")
    if not results:
        return []
    lines = ["## Starting", "", *how(results), "| case | TensorFlow | Ferroflow | ratio (spread) | bar | |",
             "|---|--:|--:|--:|--:|---|"]
    for r in results:
        if "ratio" not in r:
            lines.append(f"| {r['case']} | | {r['ours']:,.1f} {r['unit']} | | under {r['bar']} {r['unit']} | {verdict(r['ours'], r['bar'], True)} |")
            continue
        lines.append(f"| {r['case']} | {r['tensorflow']:.3f} {r['unit']} | {r['ours']:.3f} {r['unit']} "
                     f"| {ratio(r)} | {bar(r['bar'])} | {verdict(r['ratio'], r['bar'])} |")
    return lines + [""]


def sweep_section():
    results = load("sweep")
    if not results:
        return []
    groups = {}
    for r in sorted(results, key=lambda r: r["x"]):
        groups.setdefault((r["sweep"], r["what"]), []).append(r)
    lines = ["## How the cost grows", "",
             "Null steps: a worker fetches the parameters, does next to nothing and sends an update of their size.", "",
             "![growth](performance-sweep.svg)", "", *how(results)]
    panels = []
    titles = {"bytes": ("Bytes of the variable", "bytes", _figures.size), "workers": ("Workers", "workers", str),
              "ps": ("Parameter servers", "ps", str)}
    for sweep, (title, label, shown) in titles.items():
        series = {}
        for (which, what), group in groups.items():
            if which != sweep:
                continue
            lines += [f"### {title}: {what}", "",
                      f"| {label} | TensorFlow, ms a step | Ferroflow, ms a step | TensorFlow, steps/s | Ferroflow, steps/s | ratio (spread) | server CPU a step, ms |",
                      "|--:|--:|--:|--:|--:|--:|--:|"]
            for r in group:
                t, o = r["tensorflow"], r["ours"]
                lines.append(f"| {shown(r['x'])} | {step_ms(r, t):,.2f} | {step_ms(r, o):,.2f} | {t['rate']:,.1f} | {o['rate']:,.1f} | {ratio(r)} "
                             f"| {t['cpu_ms']:,.2f} → {o['cpu_ms']:,.2f} |")
            lines.append("")
            for name, side in (("TensorFlow", "tensorflow"), ("Ferroflow", "ours")):
                series[f"{name}, {what}" if sweep == "workers" else name] = [(r["x"], step_ms(r, r[side])) for r in group]
        if series:
            panels.append({"title": f"milliseconds a step of a worker, by {label}", "x_label": title, "x_format": shown,
                           "y_format": lambda value: f"{value:g}", "series": series})
    (DOCS / "performance-sweep.svg").write_text(_plot.panels(panels))
    return lines


def step_ms(r, side):
    """Returns the duration of a worker's step: all workers run steps at the same time."""
    return 1000 * r["workers"] / side["rate"]


def bandwidth_section():
    results = sorted(load("bandwidth"), key=lambda r: r["bytes"])
    if not results:
        return []
    lines = ["## Tensors from one task to another", "", "![bandwidth](performance-bandwidth.svg)", "",
             "A step moves tensors from a ps to a worker, 16 at once or 16 MB, whichever is less, but at least one, and brings",
             "nothing back. Through shared memory, which is the default between tasks of one machine, a large tensor is lent",
             "and not copied, so that its figure says how many bytes change hands, not how many are moved.", "", *how(results),
             "| size | TensorFlow | " + " | ".join(TRANSPORTS.values()) + " | ratio of shared memory (spread) | ratio of gRPC (spread) |",
             "|--:|" + "--:|" * (len(TRANSPORTS) + 3)]
    for r in results:
        figures = [speed(r[side]["rate"]) for side in ("tensorflow", *TRANSPORTS)]
        lines.append(f"| {r['case']} | " + " | ".join(figures) + f" | {ratio(r)} | {ratio(r['grpc_spread'])} |")
    series = {"TensorFlow": [(r["bytes"], r["tensorflow"]["rate"]) for r in results]}
    series.update({shown: [(r["bytes"], r[name]["rate"]) for r in results] for name, shown in TRANSPORTS.items()})
    (DOCS / "performance-bandwidth.svg").write_text(_plot.panels([{
        "title": "bytes a second, by the size of a tensor", "x_label": "size", "x_format": _figures.size, "y_format": speed,
        "series": series}]))
    return lines + [""]


def network_section():
    results = load("network")
    if not results:
        return []
    lines = ["## Across a network", "",
             "One ps and two workers on hosts of their own, which are network namespaces: `tc tbf` limits what each of them sends, and a",
             "forwarder of ours delays packets, half of the delay in each direction. *Line*: what one plain TCP connection carried there.",
             "*Share*: the bytes that the ps sends of the rate of its link, in which headers of packets are 4 %.", "", *how(results),
             "| case | rate, Gbit/s | delay, ms | line, Gbit/s | TensorFlow, steps/s | Ferroflow, steps/s | ratio (spread) | share of the link "
             "| server CPU a step, ms | GB a CPU second |", "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]
    for r in results:
        t, o = r["tensorflow"], r["ours"]
        share = f"{r['tensorflow_share']:.2f} → {r['ours_share']:.2f}" if "ours_share" in r else "–"
        per_second = f"{part(r['tensorflow_gb_per_cpu_s'], 1)} → {part(r['ours_gb_per_cpu_s'], 1)}" if "ours_share" in r else "–"
        lines.append(f"| {r['name']} | {r['gbit']:g} | {r['delay_ms']:g} | {r['probe']['bits'] / 1e9:.2f} | {t['rate']:,.1f} | {o['rate']:,.1f} "
                     f"| {ratio(r)} | {share} | {t['cpu_ms']:,.2f} → {o['cpu_ms']:,.2f} | {per_second} |")
    return lines + [""]


def how(results):
    """Describes the machine and the duration of the measurements, once for all results that agree."""
    texts = []
    for r in results:
        measured = r.get("measured")
        if not measured:
            continue
        sides = kinds(measured.get("tensorflow"), measured.get("instructions"))
        text = (f"Measured {measured['date']} on {measured['machine']}{sides}: the median of {measured['rounds']} rounds of "
                f"{measured['seconds']:g} s in turns.")
        if measured.get("stand_in"):
            text += " Our servers stand in for TensorFlow's: this shows nothing but that the measuring works."
        if text not in texts:
            texts.append(text)
    return [line for text in texts for line in (text, "")]


def ratio(r):
    return f"**{r['ratio']:.2f}×** ({r['ratio_min']:.2f}–{r['ratio_max']:.2f})"


def bar(least):
    return f"{least}×" if least else "–"


def part(value, digits=2):
    return "–" if value is None else f"{value:.{digits}f}"


def at_most(value, most):
    return "–" if most is None or value is None else f"{most} ({verdict(value, most, True)})"


def verdict(value, least, at_most=False):
    if least is None:
        return "–"
    return "met" if (value <= least if at_most else value >= least) else "not met"


def speed(rate):
    """Formats bytes per second."""
    for unit in ("B/s", "kB/s", "MB/s"):
        if rate < 1000:
            return f"{rate:.3g} {unit}"
        rate /= 1000
    return f"{rate:,.3g} GB/s" if rate < 1000 else f"{rate:,.0f} GB/s"


def print_short():
    """Prints every case with its ratio and its bar."""
    print(f"{'part':10} {'case':44} {'ratio':>8} {'spread':>15} {'at least':>9}")
    for name in ("cluster", "rust", "core", "data", "sessions", "sweep", "bandwidth", "network"):
        results = load(name)
        for r in in_order(results) if name == "cluster" else results:
            if "ratio" in r:
                spread = f"{r['ratio_min']:.2f}-{r['ratio_max']:.2f}"
                least = r.get("bar")
                asked = f"{least:g}x {verdict(r['ratio'], least)}" if least else ""
                print(f"{name:10} {r['case']:44} {r['ratio']:7.2f}x {spread:>15} {asked:>12}")
            else:
                print(f"{name:10} {r['case']:44} {r['ours']:7.1f} {r['unit']}")
    print(f"the page is {DOCS / 'performance.md'}, the figures are in {RESULTS}")


MARK = "<!-- Below this line the page is written by hand. -->\n"
HEAD = """# Performance

The same TensorFlow client runs the same graphs on TensorFlow 2.15.1's servers and on ours, in turns within one run. Machines
differ, so the ratios say more than the figures. `cargo xtask bench` measures everything in twenty to thirty minutes, and writes
the tables and plots of this page; `cargo xtask bench cluster`, `rust`, `core`, `data`, `sessions`, `sweep` or `bandwidth` measures one
part, and `cargo xtask bench cluster -- MLP` some of its cases. The raw figures are in `bench/results`.
"""

if __name__ == "__main__":
    render()
    print_short()
