"""A worker of `cargo xtask chaos` with the real TensorFlow: `trainer.py TARGET TASK DIRECTORY` trains until it reads a line.

`crates/testkit/examples/chaos_worker.rs` builds the same graph and prints the same lines, `TOLD {…}`, `WRONG …` and `BACK {…}`. This one also
prints `LOST …` when a step fails because a task is lost. Worker 0 is the chief, which restores the newest checkpoint if variables are lost.
"""

import json
import logging
import sys
import threading
import time

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

FEATURES, BATCH, NUM_WORKERS = 64, 32, 4
TELL_SECONDS = 0.2
SAVE_SECONDS = 5


class Tries(tf.train.SessionRunHook):
    """Counts the attempts of a step: a step that failed with its session is tried again in another one."""

    def __init__(self):
        self.count = 0

    def before_run(self, run_context):
        self.count += 1


class Losses(logging.Handler):
    """Reports when TensorFlow logs that a step failed because a task was lost."""

    def emit(self, record):
        text = record.getMessage()
        if "error was raised" in text:
            print("LOST " + text[-400:].replace("\n", " "), flush=True)


def build(task):
    """Returns feeds, the step, the counters of both parameter servers after it, and the global step."""
    with tf.device("/job:ps/task:0"):
        global_step = tf.train.get_or_create_global_step()
        bias = tf.get_variable("bias", [1], initializer=tf.zeros_initializer())
        here = tf.get_variable("counters", [NUM_WORKERS + 1], tf.int64, tf.zeros_initializer(), trainable=False)
    with tf.device("/job:ps/task:1"):
        weights = tf.get_variable("weights", [FEATURES, 1], initializer=tf.zeros_initializer())
        there = tf.get_variable("there", [NUM_WORKERS + 1], tf.int64, tf.zeros_initializer(), trainable=False)
    x = tf.placeholder(tf.float32, [None, FEATURES])
    y = tf.placeholder(tf.float32, [None, 1])
    loss = tf.reduce_mean(tf.square(tf.matmul(x, weights) + bias - y))
    train = tf.train.GradientDescentOptimizer(0.01).minimize(loss, global_step)
    counters = [tf.scatter_add(counter, [task, NUM_WORKERS], tf.ones([2], tf.int64), use_locking=True) for counter in (here, there)]
    return x, y, train, counters, global_step


def tell(answered, tried, counters, step):
    print("TOLD " + json.dumps({"answered": answered, "tried": tried, "counters": counters, "step": step}), flush=True)


def train(target, task, directory, stop):
    with tf.Graph().as_default():
        with tf.device(f"/job:worker/task:{task}"):
            x, y, step, counters, global_step = build(task)
        tries = Tries()
        random = np.random.RandomState(task)
        batch = random.randn(BATCH, FEATURES).astype(np.float32)
        labels = batch.sum(axis=1, keepdims=True)
        config = tf.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{task}"])
        answered, last, told = 0, None, 0.0
        with tf.train.MonitoredTrainingSession(target, is_chief=task == 0, checkpoint_dir=directory if task == 0 else None,
                                               save_checkpoint_secs=SAVE_SECONDS, save_summaries_steps=None, save_summaries_secs=None,
                                               log_step_count_steps=None, config=config, hooks=[tries], max_wait_secs=600) as session:
            while not stop.is_set() and not session.should_stop():
                _, values, now = session.run([step, counters, global_step], {x: batch, y: labels})
                answered += 1
                own = [int(value[task]) for value in values]
                if last:
                    attempts = tries.count - last[0]
                    for name, old, new in zip(("counters", "there"), last[1], own):
                        if new - old > attempts:
                            print(f"WRONG {name} went from {old} to {new} in {attempts} attempts", flush=True)
                        elif new - old < 1:
                            print("BACK " + json.dumps({"variable": name, "lost": 1 - (new - old)}), flush=True)
                if not last or tries.count - last[0] > 1 or time.monotonic() - told >= TELL_SECONDS:
                    tell(answered, tries.count, own, int(now))
                    told = time.monotonic()
                last = (tries.count, own)
            tell(answered, tries.count, last[1], 0)


def check(target):
    """Prints the variables at the end."""
    with tf.Graph().as_default():
        with tf.device("/job:worker/task:0"):
            _, _, _, _, global_step = build(0)
        named = {variable.op.name: variable for variable in tf.global_variables()}
        with tf.Session(target) as session:
            here, there, step, weights = session.run([named["counters"], named["there"], global_step, named["weights"]])
    print("FOUND " + json.dumps({"counters": here.tolist(), "there": there.tolist(), "step": int(step),
                                 "is_finite": bool(np.isfinite(weights).all())}), flush=True)


def main():
    tf.logging.set_verbosity(tf.logging.INFO)
    logging.getLogger("tensorflow").addHandler(Losses())
    if sys.argv[2] == "check":
        check(sys.argv[1])
        return
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
    train(sys.argv[1], int(sys.argv[2]), sys.argv[3], stop)
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
