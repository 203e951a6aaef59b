"""Compares the core with TensorFlow's local session: the same GraphDef and feeds, in turns.

Run it with `cargo xtask bench core [-- CASE…]`, which builds the example `step_rate` that runs our steps.
"""
import os
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np  # noqa: E402
import _figures  # noqa: E402
import _report  # noqa: E402
from _cases import digits  # noqa: E402
from _processes import LOGS, BenchError, example, run_part  # noqa: E402
import tensorflow as tf2  # noqa: E402

tf = tf2.compat.v1
tf.disable_v2_behavior()

SECONDS = _figures.seconds(2)
ROUNDS = _figures.rounds(5)


def null_step():
    """The cost of a step itself: a variable is read, and a value computed from it is written back."""
    v = tf.get_variable("v", [], initializer=tf.zeros_initializer())
    return {"feeds": {}, "fetches": [tf.assign_sub(v, tf.identity(v) * 0.5)], "targets": [], "bar": 3.0, "per_step": 1,
            "unit": "steps"}


def chain():
    x = tf.placeholder(tf.float32, [], name="x")
    y = x
    for _ in range(1000):
        y = y + x
    return {"feeds": {x: np.float32(1.0)}, "fetches": [y], "targets": [], "bar": 3.0, "per_step": 1000, "unit": "nodes"}


def mlp():
    tf.set_random_seed(1)
    x = tf.placeholder(tf.float32, [None, 784], name="x")
    y_ = tf.placeholder(tf.float32, [None, 10], name="y_")
    hid_w = tf.Variable(tf.truncated_normal([784, 100], stddev=1.0 / 28, seed=1), name="hid_w")
    hid_b = tf.Variable(tf.zeros([100]), name="hid_b")
    sm_w = tf.Variable(tf.truncated_normal([100, 10], stddev=0.1, seed=2), name="sm_w")
    sm_b = tf.Variable(tf.zeros([10]), name="sm_b")
    hid = tf.nn.relu(tf.nn.xw_plus_b(x, hid_w, hid_b))
    y = tf.nn.softmax(tf.nn.xw_plus_b(hid, sm_w, sm_b))
    loss = -tf.reduce_sum(y_ * tf.log(tf.clip_by_value(y, 1e-10, 1.0)))
    step = tf.train.AdamOptimizer(0.01).minimize(loss)
    return {"feeds": digits(0, x, y_), "fetches": [loss], "targets": [step], "bar": 1.5, "per_step": 1, "unit": "steps"}


def cnn():
    tf.set_random_seed(1)
    x = tf.placeholder(tf.float32, [None, 784], name="x")
    y_ = tf.placeholder(tf.float32, [None, 10], name="y_")

    def variable(shape, seed):
        return tf.Variable(tf.truncated_normal(shape, stddev=0.1, seed=seed))

    def layer(image, width, inputs, outputs, seed):
        conv = tf.nn.conv2d(image, variable([width, width, inputs, outputs], seed), [1, 1, 1, 1], "SAME")
        relu = tf.nn.relu(tf.nn.bias_add(conv, variable([outputs], seed + 1)))
        return tf.nn.max_pool(relu, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")

    image = layer(layer(tf.reshape(x, [-1, 28, 28, 1]), 5, 1, 32, 1), 5, 32, 64, 3)
    flat = tf.reshape(image, [-1, 7 * 7 * 64])
    hid = tf.nn.relu(tf.matmul(flat, variable([7 * 7 * 64, 512], 5)) + variable([512], 6))
    logits = tf.matmul(hid, variable([512, 10], 7)) + variable([10], 8)
    loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(labels=y_, logits=logits))
    step = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
    return {"feeds": digits(0, x, y_), "fetches": [loss], "targets": [step], "bar": 1.1, "per_step": 1, "unit": "steps"}


CASES = {
    "null step": null_step,
    "chain of 1,000 scalar adds": chain,
    "MLP 784-100-10, batch 100, Adam": mlp,
    "CNN 5x5x32, 5x5x64, 512, 10, batch 100": cnn,
}


def rate(step, seconds):
    start = time.perf_counter()
    steps = 0
    while time.perf_counter() - start < seconds:
        step()
        steps += 1
    return steps / (time.perf_counter() - start)


def check(command):
    """Returns the result of our first step."""
    done = subprocess.run(command + ["--check"], capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchError(f"our step failed with {done.returncode}: {done.stderr.strip()}")
    return float(done.stdout)


class Steps:
    """Our side, in a process that ends with the block."""

    def __init__(self, command):
        LOGS.mkdir(parents=True, exist_ok=True)
        self.log_path = LOGS / "core-step_rate.log"
        with self.log_path.open("w") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)

    def rate(self, seconds):
        try:
            self.process.stdin.write(f"{seconds}\n")
            self.process.stdin.flush()
            return float(self.process.stdout.readline())
        except (OSError, ValueError):
            code = self.process.wait()
            raise BenchError(f"step_rate ended with {code}; its log is {self.log_path}") from None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def step_rate_arguments(graph, case, init, directory):
    """Writes a case's graph and feeds to files, and returns the arguments of `step_rate` for it."""
    path = os.path.join(directory, "graph.pb")
    with open(path, "wb") as file:
        file.write(graph.as_graph_def().SerializeToString())
    arguments = [path]
    if tf.global_variables() and init is not None:
        arguments += ["--init", init.name]
    for tensor, value in case["feeds"].items():
        feed = os.path.join(directory, tensor.op.name + ".pb")
        with open(feed, "wb") as file:
            file.write(tf.make_tensor_proto(value).SerializeToString())
        arguments += ["--feed", f"{tensor.name}={feed}"]
    for tensor in case["fetches"]:
        arguments += ["--fetch", tensor.name]
    for operation in case["targets"]:
        arguments += ["--target", operation.name]
    return arguments


def written(build, directory):
    """Builds a case and returns the arguments of `step_rate` for it."""
    with tf.Graph().as_default() as graph:
        case = build()
        return step_rate_arguments(graph, case, tf.global_variables_initializer(), directory)


def measure(name, build, binary, directory):
    graph = tf.Graph()
    with graph.as_default():
        case = build()
        init = tf.global_variables_initializer()
        command = [binary, *step_rate_arguments(graph, case, init, directory)]
        # Grappler's rewrites would fold the chain away on one side only.
        config = tf.ConfigProto()
        if name.startswith("chain"):
            config.graph_options.rewrite_options.disable_meta_optimizer = True
        with tf.Session(graph=graph, config=config) as session:
            session.run(init)
            run = session.make_callable(case["fetches"] + case["targets"], feed_list=list(case["feeds"]))
            values = list(case["feeds"].values())
            theirs_first = run(*values)[0]
            ours_first = check(command)
            if not np.allclose(ours_first, np.sum(theirs_first), rtol=1e-3):
                raise BenchError(f"{name}: the first step gives {ours_first}, TensorFlow's {np.sum(theirs_first)}")
            ours, theirs = [], []
            with Steps(command) as steps:
                for _ in range(ROUNDS + 1):
                    theirs.append(rate(lambda: run(*values), SECONDS))
                    ours.append(steps.rate(SECONDS))
    # The first round warms up.
    scale = case["per_step"]
    return {
        "case": name,
        "unit": case["unit"] + "/s",
        "ours": statistics.median(ours[1:]) * scale,
        "tensorflow": statistics.median(theirs[1:]) * scale,
        **_figures.spread(theirs[1:], ours[1:]),
        "bar": case["bar"],
    }


def main():
    binary = example("step_rate")
    wanted = sys.argv[1:]
    chosen = {name: build for name, build in CASES.items() if not wanted or any(part in name for part in wanted)}
    if not chosen:
        raise BenchError(f"no case is named so; there are: {', '.join(CASES)}")
    print(_report.machine_line(SECONDS, ROUNDS), flush=True)
    for name, build in chosen.items():
        with tempfile.TemporaryDirectory() as directory:
            result = measure(name, build, binary, directory)
        print(f"{name:42} {result['tensorflow']:12,.0f} {result['ours']:12,.0f} {result['unit']:8} ratio {result['ratio']:5.2f} "
              f"({result['ratio_min']:.2f}-{result['ratio_max']:.2f}; bar {result['bar']})", flush=True)
        _report.write("core", [result], SECONDS, ROUNDS)


if __name__ == "__main__":
    run_part(main)
