"""Graphs of the tables in this folder, changed at random: none makes the runtime panic, hang or fill the memory."""

import re
import subprocess

import corpus
import harness

# Always the same; `cargo xtask fuzz` runs more.
EXECUTIONS = 2000
MEMORY_LIMIT_KB = 4 << 20


def test_changed_graphs_neither_panic_nor_hang(tmp_path):
    path = tmp_path / "corpus"
    assert corpus.write(path) > 1000
    program = harness.example("fuzz")
    run = subprocess.run(
        [program, "--executions", str(EXECUTIONS), "--corpus", str(path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1200)
    assert run.returncode == 0, run.stdout[-6000:]
    assert f"executions: {EXECUTIONS}," in run.stdout
    # If most were refused, little would be tested.
    assert int(re.search(r"successes: (\d+),", run.stdout)[1]) > EXECUTIONS // 10, run.stdout
    assert int(re.search(r"VmHWM:\s*(\d+)", run.stdout)[1]) < MEMORY_LIMIT_KB
