"""`examples/wide_deep.rs` on the census rows, as four processes under `ferroflow run`, beside TensorFlow's own estimator."""

import re

import pytest

import harness

pytestmark = [pytest.mark.slow, pytest.mark.watchdog(1200)]

STEPS = 3000
LEAST_AUC = 0.88
# How far two trainings of the same model may be apart.
MARGIN = 0.005
ENDING_SECS = 600


@pytest.fixture(scope="module")
def example():
    return harness.example("wide_deep")


@pytest.fixture(autouse=True)
def only_ours(server_kind):
    if server_kind == harness.TENSORFLOW:
        pytest.skip("this is about a program in Rust")


def test_wide_and_deep_is_as_good_as_tensorflows(example, processes, tmp_path):
    flags = lambda name: [f"--model_dir={tmp_path / name}", f"--train_steps={STEPS}"]
    command = [harness.ferroflow_bin(), "run", "--ps=1", "--workers=2", "--evaluator", "--", example, *flags("ours")]
    ours = harness.Process("ferroflow run", command).start()
    processes.append(ours)
    output = ours.expect_success(ENDING_SECS)
    assert "ferroflow run: chief 0 is done" in output and "ended with" not in output, output
    step, found = re.search(r"evaluator 0 \| step (\d+): test AUC ([\d.]+)", output).groups()
    assert STEPS <= int(step) < STEPS + 10 and float(found) >= LEAST_AUC, output
    theirs = harness.script("wide_deep.py", *flags("theirs"), label="TensorFlow")
    processes.append(theirs)
    expected = harness.results(theirs.expect_success(ENDING_SECS))[-1]
    assert expected["global_step"] == STEPS
    assert float(found) == pytest.approx(expected["auc"], abs=MARGIN), (found, expected)
