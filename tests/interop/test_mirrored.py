"""Programs with TensorFlow 1's multi-worker mirrored strategy, and with its collective_ops in sessions, through `python -m ferroflow`."""

import ast
import json
import re

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import harness

pytestmark = [pytest.mark.slow, pytest.mark.watchdog(900)]

ENDING_SECS = 400
STEPS = 20
# As scripts/mirrored.py has them.
ROWS, WIDTH, RATE = 16, 3, 0.1


@pytest.fixture(autouse=True)
def only_ours(server_kind):
    if server_kind == harness.TENSORFLOW:
        pytest.skip("these programs bring their servers")


def addresses(count):
    return [f"127.0.0.1:{harness.PORTS.take()}" for _ in range(count)]


def rows(worker):
    random = np.random.RandomState(worker)
    x = random.uniform(-1, 1, [ROWS, WIDTH]).astype(np.float32)
    return x, (x @ [[1.0], [-2.0], [0.5]] + 0.25 * worker).astype(np.float32)


def trained(weights, bias, workers, steps):
    """Returns what so many steps with the mean of all workers' gradients make of the variables."""
    for _ in range(steps):
        gradients = []
        for worker in range(workers):
            x, y = rows(worker)
            error = 2 * (x @ weights + bias - y) / ROWS
            gradients.append((x.T @ error, error.sum(axis=0)))
        weights = weights - RATE * np.mean([gradient for gradient, _ in gradients], axis=0)
        bias = bias - RATE * np.mean([gradient for _, gradient in gradients], axis=0)
    return weights, bias


@pytest.mark.parametrize("workers", [2, 3])
def test_an_estimator_with_the_multi_worker_mirrored_strategy(processes, tmp_path, workers):
    cluster = {"worker": addresses(workers)}
    for index in range(workers):
        config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
        processes.append(harness.script("mirrored.py", f"--model_dir={tmp_path}", f"--max_steps={STEPS}", ferroflow=True,
                                        env={"TF_CONFIG": config}, label=f"worker {index}"))
    for index, process in enumerate(processes):
        assert f"DONE worker {index} ferroflow.server" in process.expect_success(ENDING_SECS)

    def at(step):
        reader = tf.train.load_checkpoint(str(tmp_path / f"model.ckpt-{step}"))
        return reader.get_tensor("weights"), reader.get_tensor("bias")

    weights, bias = trained(*at(0), workers, STEPS)
    np.testing.assert_allclose(at(STEPS)[0], weights, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(at(STEPS)[1], bias, rtol=1e-4, atol=1e-5)


def test_collective_ops_in_sessions(processes):
    hosts = addresses(3)
    for rank in range(3):
        processes.append(harness.script("all_reduce.py", f"--worker_hosts={','.join(hosts)}", f"--task_index={rank}", ferroflow=True,
                                        label=f"worker {rank}"))
    weights = np.array([0.0, 2.0])
    for _ in range(3):
        weights = weights - 0.25 * 2 * (weights - 1.0)
    for process in processes:
        found = re.search(r"RESULT (\[.*\])", process.expect_success(ENDING_SECS))
        np.testing.assert_allclose(ast.literal_eval(found[1]), [weights] * 3, rtol=1e-6)
