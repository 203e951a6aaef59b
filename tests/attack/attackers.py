"""Malicious clients: `attackers.py TARGET SECONDS [UID]` runs all of them at once and prints each one's results.

Any outcome for them is acceptable, as long as the server lives and others are served. So their errors are counted by code and are
no failure; only an outcome that they don't expect, such as a call that never ends, is one.
"""

import collections
import contextlib
import json
import os
import random
import socket
import sys
import threading
import time
import traceback

import grpc
import numpy as np
import tensorflow.compat.v1 as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorflow.core.protobuf import config_pb2

tf.disable_v2_behavior()

# The client gives up a step that takes longer.
STEP_MS = 500
CALL_SECONDS = 20


def messages():
    """Returns the classes of our `.proto` files by name: the TensorFlow package has none for its services' messages."""
    pool = descriptor_pool.DescriptorPool()
    with open(os.environ["FERROFLOW_DESCRIPTORS"], "rb") as file:
        for one in descriptor_pb2.FileDescriptorSet.FromString(file.read()).file:
            pool.Add(one)
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tensorflow.{name}"))


MESSAGE = messages()
CreateSessionRequest, CreateSessionResponse = MESSAGE("CreateSessionRequest"), MESSAGE("CreateSessionResponse")
RunStepRequest, CloseSessionRequest = MESSAGE("RunStepRequest"), MESSAGE("CloseSessionRequest")
RunGraphRequest, CleanupGraphRequest = MESSAGE("RunGraphRequest"), MESSAGE("CleanupGraphRequest")
RecvTensorRequest = MESSAGE("RecvTensorRequest")


def session_request(graph=None, config=None):
    """Returns the bytes of a CreateSessionRequest with TensorFlow's own messages in it."""
    request = CreateSessionRequest()
    if graph is not None:
        request.graph_def.ParseFromString(graph.SerializeToString())
    if config is not None:
        request.config.ParseFromString(config.SerializeToString())
    return request.SerializeToString()


class Attack:
    """An attack, repeated until the time is over."""

    def __init__(self, address, deadline):
        self.address = address
        self.target = "grpc://" + address
        self.deadline = deadline
        self.outcomes = collections.Counter()

    def go_on(self):
        return time.monotonic() < self.deadline

    @contextlib.contextmanager
    def session(self, graph, config=None):
        """Yields a session, and closes it. A client that floods a server may wait too long for its turn to close one, too."""
        config = config or config_pb2.ConfigProto()
        config.operation_timeout_in_ms = STEP_MS
        session = tf.Session(self.target, graph=graph, config=config)
        try:
            yield session
        finally:
            try:
                session.close()
            except tf.errors.DeadlineExceededError:
                self.outcomes["close: DeadlineExceeded"] += 1

    def step(self, session, fetch, feeds=None):
        try:
            session.run(fetch, feeds)
            self.outcomes["OK"] += 1
        except tf.errors.OpError as error:
            self.outcomes[error.__class__.__name__.removesuffix("Error")] += 1

    def steps(self, build):
        """Runs the result of `build`, each time in a new session."""
        while self.go_on():
            graph = tf.Graph()
            with graph.as_default():
                fetch = build()
            try:
                with self.session(graph) as session:
                    self.step(session, fetch)
            except tf.errors.OpError as error:
                self.outcomes["session: " + error.__class__.__name__] += 1

    def call(self, path, request, compression=None, channel=None):
        """Makes one call with the given bytes."""
        own = channel or self.channel()
        try:
            method = own.unary_unary(path, request_serializer=bytes, response_deserializer=bytes)
            answer = method(request, timeout=CALL_SECONDS, compression=compression)
            self.outcomes["OK"] += 1
            return answer
        except grpc.RpcError as error:
            self.outcomes[error.code().name] += 1
            return None
        finally:
            if channel is None:
                own.close()

    def channel(self):
        unlimited = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        return grpc.insecure_channel(self.address, options=unlimited)


def next_of(dataset):
    return tf.data.make_one_shot_iterator(dataset).get_next()


def endless_datasets(attack):
    attack.steps(lambda: next_of(tf.data.Dataset.range(2**62).skip(2**61)))


def empty_repeats(attack):
    attack.steps(lambda: next_of(tf.data.Dataset.range(1).filter(lambda _: False).repeat()))


def endless_samplers(attack):
    attack.steps(lambda: tf.random.log_uniform_candidate_sampler([[0]], 1, 200_000, True, 200_000)[0])


def endless_loops(attack):
    attack.steps(lambda: tf.while_loop(lambda _: True, lambda i: i + 1, [0]))


def special_files(attack):
    attack.steps(lambda: [tf.io.read_file("/dev/zero"), tf.io.read_file("/dev/tty")])


def special_lines(attack):
    attack.steps(lambda: next_of(tf.data.TextLineDataset("/dev/zero")))


def huge_tensors(attack):
    attack.steps(lambda: [tf.reduce_sum(tf.fill([size], 1.0)) for size in (1 << 40, 1 << 34, 1 << 30)])


def full_queues(attack):
    def build():
        queue = tf.FIFOQueue(10_000, tf.float32, shapes=[[1 << 22]])
        with tf.control_dependencies([queue.enqueue_many(tf.zeros([8, 1 << 22])) for _ in range(8)]):
            return queue.size()

    attack.steps(build)


def deep_datasets(attack):
    graph = tf.GraphDef()
    count = graph.node.add(name="n0", op="Const")
    count.attr["dtype"].type = tf.int64.as_datatype_enum
    count.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(np.int64(3)))
    graph.node.add(name="d0", op="RangeDataset", input=["n0", "n0", "n0"])
    for at in range(50_000):
        graph.node.add(name=f"d{at + 1}", op="SkipDataset", input=[f"d{at}", "n0"])
    for node in graph.node:
        if node.op.endswith("Dataset"):
            node.attr["output_types"].list.type.append(tf.int64.as_datatype_enum)
            node.attr["output_shapes"].list.shape.add()
    last = graph.node[-1].name
    graph.node.add(name="out", op="DatasetToGraph", input=[last])
    request = session_request(graph)
    while attack.go_on():
        answer = attack.call("/tensorflow.MasterService/CreateSession", request)
        if answer:
            handle = CreateSessionResponse.FromString(answer).session_handle
            run = RunStepRequest(session_handle=handle, fetch=["out:0"])
            run.options.timeout_in_ms = STEP_MS
            attack.call("/tensorflow.MasterService/RunStep", run.SerializeToString())
            close_session(attack, handle)


def deep_lists(attack):
    def build():
        def body(at, nested):
            empty = empty_list()
            return at + 1, tf.raw_ops.TensorListPushBack(input_handle=empty, tensor=nested)

        _, nested = tf.while_loop(lambda at, _: at < 20_000, body, [0, empty_list()],
                                  shape_invariants=[tf.TensorShape([]), tf.TensorShape(None)])
        return tf.raw_ops.TensorListLength(input_handle=nested)

    attack.steps(build)


def empty_list():
    return tf.raw_ops.EmptyTensorList(element_shape=tf.constant(-1), max_num_elements=-1, element_dtype=tf.variant)


def field(number, content):
    """Returns a bytes field of a message."""
    length, header = len(content), bytearray([number << 3 | 2])
    while True:
        header.append(length & 127 | (128 if length > 127 else 0))
        length >>= 7
        if not length:
            return bytes(header) + content


def bombs(attack):
    request = field(1, b"\x0a\x00" * 30_000_000)
    while attack.go_on():
        attack.call("/tensorflow.MasterService/CreateSession", request, compression=grpc.Compression.Gzip)


def huge_graphs(attack):
    graph = tf.GraphDef()
    for at in range(100_000):
        graph.node.add(name=f"n{at}", op="NoOp")
    request = session_request(graph)
    while attack.go_on():
        answer = attack.call("/tensorflow.MasterService/CreateSession", request)
        if answer:
            close_session(attack, CreateSessionResponse.FromString(answer).session_handle)


def close_session(attack, handle, channel=None):
    request = CloseSessionRequest(session_handle=handle)
    attack.call("/tensorflow.MasterService/CloseSession", request.SerializeToString(), channel=channel)


def guessed_handles(attack):
    with attack.channel() as channel:
        while attack.go_on():
            close_session(attack, f"{random.getrandbits(64):016x}", channel)
            run = RunGraphRequest(session_handle=f"{random.getrandbits(64):016x}", step_id=random.getrandbits(60))
            attack.call("/tensorflow.WorkerService/RunGraph", run.SerializeToString(), channel=channel)
            attack.call("/tensorflow.WorkerService/CleanupGraph",
                        CleanupGraphRequest(step_id=random.getrandbits(60)).SerializeToString(), channel=channel)


def many_sessions(attack):
    request = session_request()
    with attack.channel() as channel:
        while attack.go_on():
            answers = [attack.call("/tensorflow.MasterService/CreateSession", request, channel=channel) for _ in range(500)]
            for answer in filter(None, answers):
                close_session(attack, CreateSessionResponse.FromString(answer).session_handle, channel)


def silent_connections(attack):
    host, port = attack.address.rsplit(":", 1)
    while attack.go_on():
        held = []
        for _ in range(400):
            try:
                held.append(socket.create_connection((host, int(port)), timeout=CALL_SECONDS))
                attack.outcomes["connected"] += 1
            except OSError as error:
                attack.outcomes[error.__class__.__name__] += 1
        time.sleep(1)
        for connection in held:
            connection.close()


def garbage(attack):
    host, port = attack.address.rsplit(":", 1)
    while attack.go_on():
        try:
            with socket.create_connection((host, int(port)), timeout=CALL_SECONDS) as connection:
                start = random.choice([b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\xff"])
                connection.sendall(start + random.randbytes(4096))
                connection.recv(4096)
                attack.outcomes["answered"] += 1
        except OSError as error:
            attack.outcomes[error.__class__.__name__] += 1


def waiting_receivers(attack):
    """Asks for tensors of steps that never begin, and disconnects."""
    path = "/tensorflow.WorkerService/RecvTensor"
    while attack.go_on():
        with attack.channel() as channel:
            method = channel.unary_unary(path, request_serializer=bytes, response_deserializer=bytes)
            calls = []
            for at in range(2000):
                key = f"/job:worker/replica:0/task:0/device:CPU:0;1;/job:ps/replica:0/task:0/device:CPU:0;edge_{at};0:0"
                request = RecvTensorRequest(step_id=random.getrandbits(60), rendezvous_key=key)
                calls.append(method.future(request.SerializeToString(), timeout=CALL_SECONDS))
            time.sleep(0.2)
            for call in calls:
                attack.outcomes["given up" if call.cancel() else "ended"] += 1


def foreign_clusters(attack):
    """Opens sessions whose cluster has addresses where nothing listens."""
    while attack.go_on():
        config = config_pb2.ConfigProto()
        job = config.cluster_def.job.add(name="worker")
        job.tasks[0] = attack.address
        for task in range(1, 5):
            job.tasks[task] = f"127.0.0.1:{random.randrange(1024, 2000)}"
        config.device_filters.append("/job:worker/task:0")
        answer = attack.call("/tensorflow.MasterService/CreateSession", session_request(config=config))
        if answer:
            close_session(attack, CreateSessionResponse.FromString(answer).session_handle)


def flood(attack):
    graph = tf.Graph()
    with graph.as_default():
        x = tf.placeholder(tf.float32, [None])
        out = tf.reduce_sum(x * 2.0)
    with attack.session(graph) as session:
        run = session.make_callable(out, [x])
        value = np.ones(1000, np.float32)
        while attack.go_on():
            try:
                run(value)
                attack.outcomes["OK"] += 1
            except tf.errors.OpError as error:
                attack.outcomes[error.__class__.__name__] += 1


def large_feeds(attack):
    graph = tf.Graph()
    with graph.as_default():
        x = tf.placeholder(tf.float32, [None])
        out = tf.size(x)
    value = np.ones(4 << 20, np.float32)
    with attack.session(graph) as session:
        while attack.go_on():
            attack.step(session, out, {x: value})


def ended_connections(attack):
    """Disconnects in the middle of steps, again and again."""
    graph = tf.Graph()
    with graph.as_default():
        out = tf.FIFOQueue(1, tf.float32).dequeue()
    request = session_request(graph.as_graph_def())
    while attack.go_on():
        channel = attack.channel()
        answer = attack.call("/tensorflow.MasterService/CreateSession", request, channel=channel)
        if answer:
            handle = CreateSessionResponse.FromString(answer).session_handle
            run = RunStepRequest(session_handle=handle, fetch=[out.name]).SerializeToString()
            method = channel.unary_unary("/tensorflow.MasterService/RunStep", request_serializer=bytes)
            calls = [method.future(run) for _ in range(10)]
            close_session(attack, handle, channel)
            for call in calls:
                call.cancel()
        channel.close()


ATTACKS = [
    bombs, deep_datasets, deep_lists, empty_repeats, ended_connections, endless_datasets, endless_loops, endless_samplers,
    flood, flood, flood, foreign_clusters, full_queues, garbage, guessed_handles, huge_graphs, huge_tensors, large_feeds,
    many_sessions, silent_connections, special_files, special_lines, waiting_receivers,
]


def become(user):
    """Continues as another user, who may not be able to read Python's files: so everything is loaded before."""
    with tf.Graph().as_default(), tf.Session() as session:
        session.run(next_of(tf.data.Dataset.range(4).filter(lambda x: x > 1).repeat()))
        session.run(tf.while_loop(lambda i: i < 2, lambda i: i + 1, [0]))
        session.run([tf.FIFOQueue(1, tf.float32).size(), tf.random.log_uniform_candidate_sampler([[0]], 1, 1, True, 2)[0]])
        try:
            session.run(tf.io.read_file("/nonexistent"))
        except tf.errors.NotFoundError:
            pass
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def main():
    address, seconds = sys.argv[1], float(sys.argv[2])
    if len(sys.argv) > 3:
        become(int(sys.argv[3]))
    deadline = time.monotonic() + seconds
    unexpected, threads, attacks = [], [], []

    def run(way, attack):
        try:
            way(attack)
        except Exception:  # What an attacker didn't expect is what this is about.
            unexpected.append(f"{way.__name__}: {traceback.format_exc()}")

    for way in ATTACKS:
        attack = Attack(address, deadline)
        attacks.append((way.__name__, attack))
        threads.append(threading.Thread(target=run, args=(way, attack), name=way.__name__, daemon=True))
        threads[-1].start()
    # The longest call of an attacker, with some margin.
    for thread in threads:
        thread.join(max(0, deadline - time.monotonic()) + 3 * CALL_SECONDS)
    unexpected += [f"{thread.name} has not ended" for thread in threads if thread.is_alive()]
    outcomes = collections.defaultdict(collections.Counter)
    for name, attack in attacks:
        outcomes[name].update(attack.outcomes)
    print(json.dumps({"outcomes": outcomes, "unexpected": unexpected}), flush=True)
    os._exit(1 if unexpected else 0)


if __name__ == "__main__":
    main()
