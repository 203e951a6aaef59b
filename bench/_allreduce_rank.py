"""One rank of an all-reduce, in TensorFlow (on a server of either kind), PyTorch or MPI, started by `bench/allreduce.py`.

It reads commands from standard input, one JSON value per line, and answers each with a line `ANSWER {…}`: {"prepare": bytes,
"repeat": count} creates the tensor to reduce and checks the first mean, {"run": times} reduces it that many times and answers how
long that took. With MPI only the first rank has a standard input, and the others follow it.
"""
import json
import os
import sys
import time

import numpy as np

GROUP_KEY = 1
# Marks the commands that MPI's first rank passes on.
COMMAND = 7


class OnServers:
    """A TensorFlow client of its own task: a step is a chain of reductions, each of the previous result."""

    def __init__(self, rank, size, target):
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        import tensorflow.compat.v1 as tf
        tf.disable_v2_behavior()
        self.tf, self.rank, self.size, self.target = tf, int(rank), int(size), target
        self.session = None
        self.prepared = 0

    def prepare(self, count, repeat):
        tf = self.tf
        if self.session:
            self.session.close()
        self.prepared += 1
        graph = tf.Graph()
        with graph.as_default(), tf.device(f"/job:worker/task:{self.rank}"):
            variable = tf.get_variable(f"v{self.prepared}", [count], initializer=tf.constant_initializer(self.rank))
            value = variable
            for number in range(repeat):
                # The mean of equal tensors stays the same, however often it is taken.
                value = tf.raw_ops.CollectiveReduce(
                    input=value, group_size=self.size, group_key=GROUP_KEY, instance_key=1000 * self.prepared + number,
                    merge_op="Add", final_op="Div", subdiv_offsets=[0])
            ends = tf.stack([value[0], value[-1]])
        self.session = tf.Session(self.target, graph=graph)
        self.session.run(variable.initializer)
        self.step = self.session.make_callable(value.op)
        return self.session.run(ends)

    def run(self):
        self.step()


class Torch:
    """A rank of torch.distributed with gloo; the sum is divided, as a mean of gradients is."""

    def __init__(self, rank, size, port):
        import torch
        import torch.distributed as distributed
        self.rank, self.size = int(rank), int(size)
        self.torch, self.distributed = torch, distributed
        distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=self.rank, world_size=self.size)

    def prepare(self, count, repeat):
        self.value, self.repeat = self.torch.full([count], float(self.rank)), repeat
        self.run()
        return self.value[[0, -1]].numpy()

    def run(self):
        for _ in range(self.repeat):
            self.distributed.all_reduce(self.value)
            self.value /= self.size


class Mpi:
    """A rank of MPI."""

    def __init__(self):
        from mpi4py import MPI
        self.world = MPI.COMM_WORLD
        self.rank, self.size = self.world.Get_rank(), self.world.Get_size()

    def prepare(self, count, repeat):
        self.value, self.sum, self.repeat = np.full(count, self.rank, np.float32), np.empty(count, np.float32), repeat
        self.run()
        return self.value[[0, -1]]

    def run(self):
        for _ in range(self.repeat):
            self.world.Allreduce(self.value, self.sum)
            np.divide(self.sum, np.float32(self.size), out=self.value)


def obey(peer, command):
    if "prepare" in command:
        ends = peer.prepare(command["prepare"] // 4, command["repeat"])
        mean = (peer.size - 1) / 2
        if not np.allclose(ends, mean):
            raise ValueError(f"the mean of the ranks is {ends}, not {mean}")
        return {}
    # One more before the clock starts, so that all begin together.
    peer.run()
    started = time.perf_counter()
    for _ in range(command["run"]):
        peer.run()
    return {"seconds": time.perf_counter() - started}


def guarded(peer, command):
    try:
        return obey(peer, command)
    except Exception as error:  # whatever it is, the parent must hear of it
        return {"error": f"{type(error).__name__}: {error}"}


def say(answer):
    # One write that starts with a new line, so that output of libraries can't come in between.
    sys.stdout.write(f"\nANSWER {json.dumps(answer)}\n")
    sys.stdout.flush()


def main():
    kind, *arguments = sys.argv[1:]
    peer = {"servers": OnServers, "torch": Torch, "mpi": Mpi}[kind](*arguments)
    if kind != "mpi":
        for line in sys.stdin:
            say(guarded(peer, json.loads(line)))
        os._exit(0)
    while True:
        line = sys.stdin.readline() if peer.rank == 0 else None
        # A waiting rank spins, and would take time from the programs whose turn it is.
        while peer.rank > 0 and not peer.world.Iprobe(source=0, tag=COMMAND):
            time.sleep(0.002)
        if peer.rank == 0:
            for other in range(1, peer.size):
                peer.world.send(line, dest=other, tag=COMMAND)
        else:
            line = peer.world.recv(source=0, tag=COMMAND)
        if not line:
            return
        answers = peer.world.gather(guarded(peer, json.loads(line)))
        if peer.rank == 0:
            errors = [answer for answer in answers if "error" in answer]
            say(errors[0] if errors else {key: max(answer[key] for answer in answers) for key in answers[0]})


if __name__ == "__main__":
    main()
