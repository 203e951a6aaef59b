"""One worker's client: builds cases and runs steps of them on command.

It reads commands from standard input, one JSON value per line, and answers each with a line `ANSWER {…}`. A command names its
slot: a client may have a session on each of the compared clusters. {"build": …} connects, {"init"} initializes the variables,
{"start"} runs the first step, {"run": seconds} runs steps, {"pause"} stops steps that wait for those of other workers, {"close"}
ends the session, and the end of the input ends the client.
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

# Sessions whose servers are killed while a step waits. They are kept: TensorFlow's client closes a session that is
# garbage-collected, and waits forever for the answer of a lost server.
LEFT_OPEN = []


def main():
    slots = {}
    for line in sys.stdin:
        command = json.loads(line)
        name = command.pop("slot")
        try:
            if "build" in command:
                slots[name] = Slot(**command["build"])
                answer = {}
            elif "close" in command:
                slots.pop(name).close()
                answer = {}
            else:
                answer = slots[name].do(command)
        except Exception as error:  # whatever it is, the parent must hear of it
            answer = {"error": f"{type(error).__name__}: {error}"}
        # One write that starts with a new line, so that TensorFlow's output can't come in between.
        sys.stdout.write(f"\nANSWER {json.dumps(answer)}\n")
        sys.stdout.flush()
    os._exit(0)


class Slot:
    """A session with the graph of a case."""

    def __init__(self, case, target, worker, workers, ps):
        graph = tf.Graph()
        cluster = tf.train.ClusterSpec(
            {"ps": [f"p{i}:1" for i in range(ps)], "worker": [f"w{i}:1" for i in range(workers)]})
        builder = eval(case, vars(_cases))  # an expression such as null_step(1)
        with graph.as_default():
            tf.set_random_seed(1)
            with tf.device(tf.train.replica_device_setter(
                    cluster=cluster, worker_device=f"/job:worker/task:{worker}", ps_device="/job:ps")):
                self.case = builder(worker, workers)
        filters = [f"/job:ps/task:{task}" for task in range(ps)] + [f"/job:worker/task:{worker}"]
        self.session = tf.Session(target, graph=graph, config=tf.ConfigProto(device_filters=filters))
        self.stepper = None

    def do(self, command):
        if "init" in command:
            self.session.run(self.case.init)
            return {}
        if "start" in command:
            if self.case.local_init is not None:
                self.session.run(self.case.local_init)
            for op in self.case.threads:
                threading.Thread(target=repeat, args=(self.session, op), daemon=True).start()
            call = self.session.make_callable(self.case.fetches, feed_list=list(self.case.feeds))
            values = list(self.case.feeds.values())
            call(*values)
            self.stepper = Stepper(lambda: call(*values), self.case.waits_for_others)
            return {}
        if "pause" in command:
            self.stepper.going.clear()
            return {}
        return self.stepper.run(command["run"])

    def close(self):
        self.stepper.stop()
        # A step that waits for other workers ends with its servers.
        if self.case.waits_for_others:
            LEFT_OPEN.append(self.session)
        else:
            self.session.close()


class Stepper:
    """Runs steps in a thread: a step that still waits for the other workers when the time is over, as a synchronous one may,
    continues in the next round. Any other step is waited for: it must not run while the other cluster is measured."""

    def __init__(self, step, waits_for_others):
        self.step = step
        self.waits_for_others = waits_for_others
        self.steps = 0
        self.ended = 0.0
        self.error = None
        self.going = threading.Event()
        self.in_step = threading.Lock()
        self.stopped = False
        threading.Thread(target=self.loop, daemon=True).start()

    def loop(self):
        try:
            while not self.stopped:
                self.going.wait()
                with self.in_step:
                    if self.stopped or not self.going.is_set():
                        continue
                    self.step()
                    self.ended = time.perf_counter()
                    self.steps += 1
        except Exception as error:  # whatever it is, the parent must hear of it
            self.error = f"{type(error).__name__}: {error}"

    def run(self, seconds):
        before, cpu, start = self.steps, time.process_time(), time.perf_counter()
        self.going.set()
        time.sleep(seconds)
        while self.steps == before and self.error is None:
            time.sleep(0.01)
        end = time.perf_counter()
        # Steps that wait for others continue until all workers have run one; {"pause"} ends them.
        if not self.waits_for_others:
            self.going.clear()
            with self.in_step:
                end = self.ended
        return {"steps": self.steps - before, "seconds": end - start, "cpu": time.process_time() - cpu, "error": self.error}

    def stop(self):
        self.stopped = True
        self.going.set()


def repeat(session, op):
    try:
        while True:
            session.run(op)
    except (tf.errors.OpError, RuntimeError):
        pass


if __name__ == "__main__":
    main()
