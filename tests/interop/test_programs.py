"""Estimator and tf.data programs as a chief and a parameter server of ours, and in TensorFlow alone: both have the same
results."""

import re

import numpy as np
import pytest

import harness

pytestmark = [pytest.mark.slow, pytest.mark.watchdog(600)]

PROGRAMS = re.findall(r"^@program\ndef (\w+)", (harness.SCRIPTS / "programs.py").read_text(), re.MULTILINE)
ENDING_SECS = 300
# A sum in another order, over tens of steps.
RELATIVE, ABSOLUTE = 2e-3, 2e-4


@pytest.fixture(autouse=True)
def only_ours(server_kind):
    if server_kind == harness.TENSORFLOW:
        pytest.skip("TensorFlow's parameter servers never end")


def found(output):
    results = harness.results(output)
    assert len(results) == 1, output
    return results[0]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_finds_what_it_finds_in_tensorflow(processes, tmp_path, name):
    flags = lambda directory: [f"--program={name}", f"--dir={tmp_path / directory}"]
    alone = harness.script("programs.py", *flags("alone"), label="TensorFlow")
    script = [harness.sys.executable, "-m", "ferroflow", harness.SCRIPTS / "programs.py", *flags("cluster")]
    environment = {"PYTHONPATH": str(harness.ROOT / "python"), "FERROFLOW_BIN": harness.ferroflow_bin()}
    command = [harness.ferroflow_bin(), "run", "--ps=1", "--workers=1", "--", *script]
    job = harness.Process("ferroflow run", command, environment).start()
    processes.extend([alone, job])
    expected, output = found(alone.expect_success(ENDING_SECS)), job.expect_success(ENDING_SECS)
    assert "ended with" not in output and "asking them to stop" not in output, output
    ours = found(output)
    assert sorted(ours) == sorted(expected)
    for key, value in expected.items():
        np.testing.assert_allclose(ours[key], value, RELATIVE, ABSOLUTE, err_msg=f"{name}: {key}")
