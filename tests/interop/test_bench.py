"""Tests that the drivers of bench/ work, with a fraction of a second for each case; speeds are not checked.

Our servers replace real TensorFlow servers where those would take longer to start than everything else.
"""

import json
import math
import os
import pathlib
import re
import signal
import sys

import pytest

import harness

# On a machine with much else to do, importing TensorFlow alone takes minutes.
DRIVER_WATCHDOG_SECS = 1500

pytestmark = [
    pytest.mark.slow,
    pytest.mark.watchdog(DRIVER_WATCHDOG_SECS + 100),
    pytest.mark.skipif(harness.default_kind() == harness.TENSORFLOW, reason="the drivers compare both kinds themselves"),
]

BENCH = harness.ROOT / "bench"


def start_driver(directory, part, *arguments, stand_in=False, rounds=2, binary=None, environment=None):
    """Starts a driver that writes its results to a directory."""
    environment = {**(environment or {}), "FERROFLOW_BIN": binary or harness.ferroflow_bin(), "FERROFLOW_BENCH_SECONDS": "0.1",
                   "FERROFLOW_BENCH_ROUNDS": str(rounds), "FERROFLOW_BENCH_OUTPUT": str(directory),
                   "FERROFLOW_BENCH_LOGS": str(directory / "logs"), "FERROFLOW_BENCH_STAND_IN": "1" if stand_in else ""}
    return harness.Process(f"bench {part}", [sys.executable, BENCH / f"{part}.py", *arguments], environment).start()


def finish_driver(directory, process):
    """Waits for a driver to end; returns its exit code and its output."""
    code, output = process.wait(DRIVER_WATCHDOG_SECS), "\n".join(process.lines)
    assert not started_by_driver(directory), f"{process.name} left processes behind"
    return code, output


def started_by_driver(directory):
    """Returns the running processes of a driver, with their command lines: all inherit its environment."""
    mark = f"FERROFLOW_BENCH_OUTPUT={directory}".encode()
    found = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            # One that has ended and was not waited for has no environment any more.
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found[int(process.name)] = (process / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            pass
    return found


def check_part(directory, part, cases, *arguments, kept=(), **options):
    """Runs a driver and checks that results and page contain these cases, with ratios and spreads; returns both."""
    code, output = finish_driver(directory, start_driver(directory, part, *arguments, **options))
    assert code == 0, output
    results = {result["case"]: result for result in json.loads((directory / "results" / f"{part}.json").read_text())}
    assert sorted(results) == sorted([*cases, *kept]), output
    page = (directory / "performance.md").read_text()
    # Which kernels both sides had: TensorFlow's own depend on the processor.
    assert re.search(r"ours at (baseline|avx2|avx512);", output) and re.search(r", ours at (baseline|avx2|avx512): the median", page), output
    assert options.get("stand_in") or "TensorFlow without oneDNN, ours" in output, output
    for case, result in results.items():
        assert case in output or case in kept
        if "ratio" in result:
            least, middle, most = (result[key] for key in ("ratio_min", "ratio", "ratio_max"))
            assert 0 < least <= middle <= most < math.inf, result
            assert f"**{middle:.2f}×** ({least:.2f}–{most:.2f})" in page, result
        for rate in find_rates(result):
            assert 0 < rate < math.inf, result
    for image in re.findall(r"!\[\w+\]\((\S+)\)", page):
        assert (directory / image).read_text().startswith("<svg"), image
    return results, page


def find_rates(value):
    """Returns every rate in a result, however deep."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "rate":
                yield inner
            elif key == "rates":
                yield from inner
            else:
                yield from find_rates(inner)


def table_rows(page, heading):
    """Returns the first cells of the tables in a section of the page."""
    section = page.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0].split("<!--", 1)[0]
    return [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")]


def test_a_cluster_beside_tensorflow_and_more_cases_later(tmp_path):
    heading = "On a cluster of one ps and two workers"
    results, page = check_part(tmp_path, "cluster", ["scalar"], "scalar")
    scalar = results["scalar"]
    assert scalar["bar"] == 3.0 and scalar["tensorflow"]["ps_peak_mb"] > 0 and scalar["ours"]["startup_s"] > 0
    # In the table of steps and in that of memory.
    assert table_rows(page, heading) == ["case", "scalar", "case", "scalar"]
    assert "stand in" not in page
    (tmp_path / "performance.md").write_text(page + "Written by hand.\n")
    # What is not measured again stays, and so does what people wrote.
    cases = ["dense 4 MB", "MLP asynchronous", "MLP synchronous"]
    results, page = check_part(tmp_path, "cluster", cases, "4 MB", "MLP", kept=["scalar"], stand_in=True)
    assert results["scalar"] == scalar
    assert page.endswith("Written by hand.\n") and "stand in" in page
    assert table_rows(page, heading) == ["case", "scalar", *cases] * 2


def test_workers_in_rust(tmp_path):
    cases = ["MLP asynchronous, examples/mnist_replica", "MLP asynchronous, ferroflow train"]
    results, page = check_part(tmp_path, "rust", cases, stand_in=True, rounds=1)
    assert all(result["bar"] == 5.0 for result in results.values())
    assert table_rows(page, "Workers in Rust") == ["case", *cases] * 2


def test_the_core_beside_tensorflow(tmp_path):
    cases = ["chain of 1,000 scalar adds", "MLP 784-100-10, batch 100, Adam"]
    _, page = check_part(tmp_path, "core", cases, "chain", "MLP")
    assert table_rows(page, "In process")[1:] == cases


def test_input_pipelines_beside_tensorflow(tmp_path):
    cases = ["TFRecords of examples, batch 100", "CSV lines, batch 100", "JPEG images of 160x160, batch 16"]
    results, page = check_part(tmp_path, "data", cases)
    assert table_rows(page, "Input pipelines")[1:] == cases
    assert all(result[side]["cpu_us"] > 0 for result in results.values() for side in ("tensorflow", "ours"))


def test_starting_beside_tensorflow(tmp_path):
    cases = ["start-up to the first session", "sessions (connect, run once, close)", "size of the binary"]
    _, page = check_part(tmp_path, "sessions", cases, rounds=1)
    assert table_rows(page, "Starting")[1:] == cases


def test_sweeps(tmp_path):
    cases = ["scalar, workers: 1", "dense 4 MB, workers: 1", "scalar, workers: 2", "dense 4 MB, workers: 2",
             "16 variables of 1 MB, ps: 1", "16 variables of 1 MB, ps: 2", "variable of 4 B", "variable of 64 kB"]
    _, page = check_part(
        tmp_path, "sweep", cases, "--workers=1,2", "--ps=1,2", "--bytes=4,65536", stand_in=True)
    rows = table_rows(page, "How the cost grows")
    assert [row for row in rows if row[0].isdigit()] == ["4 B", "64 kB", "1", "2", "1", "2", "1", "2"]
    assert (tmp_path / "performance-sweep.svg").read_text().count("<polyline") == 8


def test_bandwidth(tmp_path):
    _, page = check_part(tmp_path, "bandwidth", ["1 kB", "256 kB"], "--bytes=1024,262144", stand_in=True)
    assert table_rows(page, "Tensors from one task to another")[1:] == ["1 kB", "256 kB"]
    assert (tmp_path / "performance-bandwidth.svg").read_text().count("<polyline") == 5


def start_against(directory, *arguments, old=None):
    environment = {"FERROFLOW_BENCH_AGAINST": old or harness.ferroflow_bin()}
    return start_driver(directory, "_against", *arguments, stand_in=True, rounds=6, environment=environment)


def test_an_all_reduce_beside_tensorflow(tmp_path):
    (tmp_path / "results").mkdir()
    kept = {"another processor": {"date": "2020-01-01", "seconds": 1, "rounds": 1, "absent": {}, "rows": []}}
    (tmp_path / "results" / "allreduce.json").write_text(json.dumps(kept))
    arguments = ("--ranks=2", "--bytes=4096,65536")
    code, output = finish_driver(tmp_path, start_driver(tmp_path, "allreduce", *arguments, stand_in=True))
    assert code == 0, output
    results = json.loads((tmp_path / "results" / "allreduce.json").read_text())
    assert results.pop("another processor") == kept["another processor"]
    (measured,) = results.values()
    assert [(row["ranks"], row["bytes"]) for row in measured["rows"]] == [(2, 4096), (2, 65536)]
    for row, bar in zip(measured["rows"], (3.0, 5.0)):
        sides = row["sides"]
        assert sorted(sides) == ["ferroflow", "tensorflow"] and sides["tensorflow"]["bar"] == bar
        assert all(0 < seconds < 60 for side in sides.values() for seconds in side["rounds"])
    page = (tmp_path / "allreduce.md").read_text()
    assert "| 2 ranks | Ferroflow, µs | TensorFlow, µs |" in page and "| 64 kB | " in page and "## another processor" in page
    assert (tmp_path / "allreduce.svg").read_text().count("<polyline") == 2


def test_a_binary_beside_one_of_before(tmp_path):
    for arguments in (["cluster", "scalar"], ["core", "chain"]):
        process = start_against(tmp_path, *arguments)
        code, output = finish_driver(tmp_path, process)
        # Both are the same, but nothing is asked of how fast each was in a tenth of a second.
        assert code == 0 or "slower than before" in output, output
        ratio, low, high = map(float, re.search(r"ratio (\S+) \((\S+)-(\S+), 6 pairs\)", output).groups())
        assert 0 < low <= ratio <= high < math.inf
        assert ("LOST" in output) == (code == 1) == (high < 0.97), output


def test_the_interval_of_a_median(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import _against

    # The fourth of fifteen at either end: three or fewer heads of fifteen have a probability of 1.8 %.
    assert _against.interval([float(index) for index in range(15, 0, -1)]) == (4.0, 12.0)
    assert _against.interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == (1.0, 6.0)
    with pytest.raises(_against.BenchError, match="too few"):
        _against.interval([1.0] * 5)
    samples = {"before": [{"rate": 100.0}] * 15, "ferroflow": [{"rate": 96.0}] * 8 + [{"rate": 90.0}] * 7}
    assert _against.Outcome("slow", samples).is_lost
    samples["ferroflow"] = [{"rate": 98.0}] * 5 + [{"rate": 90.0}] * 10
    assert not _against.Outcome("unclear", samples).is_lost


@pytest.mark.parametrize("part", ["cluster", "rust", "sweep", "bandwidth"])
def test_a_server_that_does_not_start_is_named_with_its_log(tmp_path, part):
    broken = tmp_path / "ferroflow"
    broken.write_text("#!/bin/sh\necho it broke >&2\nexit 3\n")
    broken.chmod(0o755)
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "mnist_replica").symlink_to(broken)
    arguments = ["scalar"] if part == "cluster" else []
    process = start_driver(tmp_path, part, *arguments, stand_in=True, binary=str(broken))
    code, output = finish_driver(tmp_path, process)
    assert code == 1, output
    assert "ended with 3" in output and "Traceback" not in output, output
    log = pathlib.Path(re.search(r"its log is (\S+)", output)[1])
    assert log.read_text() == "it broke\n"
    assert not (tmp_path / "results" / f"{part}.json").exists()


def test_a_server_that_is_killed_is_named_with_its_log(tmp_path):
    # More sizes than it can have measured by the time that one is known.
    process = start_driver(tmp_path, "bandwidth", "--bytes=" + ",".join(["1024"] * 500), stand_in=True)
    process.wait_for(lambda line: "ratio" in line, "what it measured", DRIVER_WATCHDOG_SECS)
    servers = [pid for pid, words in started_by_driver(tmp_path).items() if "--transport=tcp" in words and "--job_name=ps" in words]
    assert len(servers) == 1
    os.kill(servers[0], signal.SIGKILL)
    code, output = finish_driver(tmp_path, process)
    assert code == 1 and "Traceback" not in output, output
    assert "ferroflow /job:ps/task:0 ended with -9; its log is " in output, output
    # What was measured before is kept.
    assert json.loads((tmp_path / "results" / "bandwidth.json").read_text())[0]["case"] == "1 kB"


# A peer that trains nothing, but answers as one does.
STAND_IN_PEER = """
import sys
print("2.0", sys.argv[3], flush=True)
for line in sys.stdin:
    print(sys.argv[4] if float(line) else 0, flush=True)
"""


@pytest.fixture
def peers(monkeypatch, tmp_path):
    """The driver of the peers, with its results in a directory of the test, and a function that makes peers."""
    monkeypatch.syspath_prepend(str(BENCH))
    import _report
    import peers
    monkeypatch.setattr(_report, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(_report, "DOCS", tmp_path)
    monkeypatch.setattr(peers, "TARGET", tmp_path)

    def make(name, rate, last_loss=1.0, build=None):
        command = [sys.executable, "-c", STAND_IN_PEER, "{model}", "{batch}", str(last_loss), str(rate)]
        return peers.Peer(name, command, "1.2.3", 77, build)

    peers.make = make
    return peers


def test_peers_take_turns_and_other_processors_keep_their_tables(peers, tmp_path, monkeypatch):
    ours = peers.make("ferroflow", 300.0, build={"seconds": 61.0, "jobs": 2})
    measured = [ours, peers.make("burn, flex", 100.0)]
    rows = [row for model in peers.MODELS for row in peers.measured(model, measured, tmp_path)]
    assert [(row["peer"], row["ratio"]) for row in rows[:2]] == [("ferroflow", 1.0), ("burn, flex", 3.0)]
    assert all(len(row["rates"]) == peers.ROUNDS and row["peak_mb"] > 0 for row in rows)
    import _report
    for machine in ("Processor A, 2 cores", "Processor B, 8 cores"):
        monkeypatch.setattr(_report, "machine", lambda machine=machine: machine)
        peers.write(rows, measured, {"PyTorch": "the Python package torch is not installed"})
    page = (tmp_path / "peers.md").read_text()
    assert page.index("## Processor A, 2 cores") < page.index("## Processor B, 8 cores")
    assert page.count("| burn, flex | 100.0 | 3.00× |") == 6
    assert page.count("| ferroflow | 1.2.3 | 61 | 2 | 77 |") == 2
    assert "Left out: PyTorch: the Python package torch is not installed." in page


def test_what_is_written_by_hand_about_peers_stays(peers, tmp_path):
    measured = [peers.make("ferroflow", 300.0)]
    rows = peers.measured("mlp", measured, tmp_path)
    peers.write(rows, measured, {})
    page = tmp_path / "peers.md"
    page.write_text(page.read_text() + "Why ours is not the fastest.\n")
    peers.write(rows, measured, {})
    assert page.read_text().endswith("Why ours is not the fastest.\n")


def test_a_peer_that_does_not_train_is_named(peers, tmp_path):
    with pytest.raises(peers.BenchError, match="candle does not train the mlp"):
        peers.measured("mlp", [peers.make("candle", 1.0, last_loss=2.5)], tmp_path)


def test_without_pytorch_its_peers_are_left_out(peers, monkeypatch):
    monkeypatch.setattr(peers, "TORCH_PYTHON", "")
    monkeypatch.setattr(peers, "TORCH_MISSING", "there is no Python here\nInstall one of these.")
    assert peers.python_peer("PyTorch") == "Install one of these"
    assert peers.rust_peer("tch") == "Install one of these"
    assert peers.python_peer("TensorFlow").version.count(".") == 2


def test_an_unknown_peer_is_named(peers, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["peers.py", "torchlight"])
    with pytest.raises(peers.BenchError, match="there is no peer torchlight"):
        peers.main()
