"""One worker's client: builds a case once and takes steps for as long as it is told to.

It reads commands from its standard input, one JSON value a line, and answers each with one: {"build": …} connects and
initializes, {"run": seconds} takes steps, and the end of the input ends it.
"""
import json
import os
import sys
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow.compat.v1 as tf  # noqa: E402

import _cases  # noqa: E402

tf.disable_v2_behavior()


def main():
    answers = os.fdopen(os.dup(1), "w")
    # What TensorFlow prints must not come between the answers.
    os.dup2(2, 1)
    session = step = None
    for line in sys.stdin:
        command = json.loads(line)
        answer = {}
        if "build" in command:
            session, step, case = build(**command["build"])
        elif "init" in command:
            session.run(case.init)
        elif "start" in command:
            if case.local_init is not None:
                session.run(case.local_init)
            for op in case.threads:
                threading.Thread(target=repeat, args=(session, op), daemon=True).start()
            step()
            stepper = Stepper(step)
        else:
            answer = stepper.run(command["run"])
        print(json.dumps(answer), file=answers, flush=True)
    os._exit(0)


def build(case, target, worker, workers, ps):
    graph = tf.Graph()
    cluster = tf.train.ClusterSpec({"ps": [f"p{i}:1" for i in range(ps)], "worker": [f"w{i}:1" for i in range(workers)]})
    builder = _cases.CASES[case][0] if case in _cases.CASES else eval(case, vars(_cases))
    with graph.as_default():
        tf.set_random_seed(1)
        with tf.device(tf.train.replica_device_setter(
                cluster=cluster, worker_device=f"/job:worker/task:{worker}", ps_device="/job:ps")):
            built = builder(worker, workers)
    config = tf.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{worker}"])
    session = tf.Session(target, graph=graph, config=config)
    call = session.make_callable(built.fetches, feed_list=list(built.feeds))
    values = list(built.feeds.values())
    return session, lambda: call(*values), built


class Stepper:
    """Takes steps in a thread of its own: a step that waits for the other workers when the time is over, as a
    synchronous one may, goes on in the next round."""

    def __init__(self, step):
        self.step = step
        self.steps = 0
        self.error = None
        self.going = threading.Event()
        threading.Thread(target=self.loop, daemon=True).start()

    def loop(self):
        try:
            while True:
                self.going.wait()
                self.step()
                self.steps += 1
        except Exception as error:  # whatever it is, the parent must hear of it
            self.error = f"{type(error).__name__}: {error}"

    def run(self, seconds):
        before, cpu, start = self.steps, time.process_time(), time.perf_counter()
        self.going.set()
        time.sleep(seconds)
        while self.steps == before and self.error is None:
            time.sleep(0.05)
        self.going.clear()
        taken, elapsed = self.steps - before, time.perf_counter() - start
        return {"steps": taken, "seconds": elapsed, "cpu": time.process_time() - cpu, "error": self.error}


def repeat(session, op):
    try:
        while True:
            session.run(op)
    except (tf.errors.OpError, RuntimeError):
        pass


if __name__ == "__main__":
    main()
