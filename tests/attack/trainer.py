"""A client that trains during an attack: `trainer.py TARGET` trains until it reads a line, then checks the result.

It prints one line of JSON: the number of steps, their durations in milliseconds, and the difference of the weights from those
that TensorFlow's own session gets by the same steps.
"""

import json
import sys
import threading
import time

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

FEATURES, BATCH = 64, 32


def build(on_ps):
    """Returns the feeds, the step and the weights of a regression."""
    with tf.device("/job:ps/task:0" if on_ps else None):
        weights = tf.get_variable("weights", [FEATURES, 1], initializer=tf.zeros_initializer())
        bias = tf.get_variable("bias", [1], initializer=tf.zeros_initializer())
    x = tf.placeholder(tf.float32, [None, FEATURES])
    y = tf.placeholder(tf.float32, [None, 1])
    loss = tf.reduce_mean(tf.square(tf.matmul(x, weights) + bias - y))
    return x, y, tf.train.GradientDescentOptimizer(0.01).minimize(loss), weights


def batches():
    """Yields the same batches each time."""
    random = np.random.RandomState(7)
    truth = random.randn(FEATURES, 1).astype(np.float32)
    while True:
        x = random.randn(BATCH, FEATURES).astype(np.float32)
        yield x, x @ truth


def train(target, go_on):
    """Trains while `go_on(step)` is true, and returns the weights and the seconds of each step."""
    with tf.Graph().as_default():
        x, y, step, weights = build(bool(target))
        with tf.Session(target) as session:
            session.run(tf.global_variables_initializer())
            seconds = []
            for x_batch, y_batch in batches():
                if not go_on(len(seconds)):
                    break
                start = time.perf_counter()
                session.run(step, {x: x_batch, y: y_batch})
                seconds.append(time.perf_counter() - start)
            return session.run(weights), seconds


def main():
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
    learned, seconds = train(sys.argv[1], lambda _: not stop.is_set())
    expected, _ = train("", lambda step: step < len(seconds))
    milliseconds = np.array(seconds) * 1e3
    print(json.dumps({
        "steps": len(seconds),
        "median_ms": float(np.percentile(milliseconds, 50)),
        "p99_ms": float(np.percentile(milliseconds, 99)),
        "longest_ms": float(milliseconds.max()),
        "difference": float(np.abs(learned - expected).max()),
    }), flush=True)


if __name__ == "__main__":
    main()
