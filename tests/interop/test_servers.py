"""Servers as processes: how they get their cluster, where they listen, their devices and their settings."""

import json
import os
import re

import grpc
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

import harness

tf.disable_v2_behavior()

pytestmark = pytest.mark.skipif(harness.default_kind() == harness.TENSORFLOW, reason="the flags are those of our servers")


def server(processes, *arguments, env=None):
    process = harness.Process("server " + " ".join(map(str, arguments)), [harness.ferroflow_bin(), "server", *arguments],
                              {"TF_CONFIG": "", **(env or {})}).start()
    processes.append(process)
    return process


def local_server(processes, *arguments, env=None):
    """Starts a cluster of one and returns its process and its address."""
    process = server(processes, "--port=0", *arguments, env=env)
    return process, process.wait_for(harness.READY.search, "that it is ready")[2]


def addresses(count):
    return [f"127.0.0.1:{harness.PORTS.take()}" for _ in range(count)]


def test_every_spelling_of_the_cluster(processes, graph, tmp_path):
    ps, first, second = addresses(3)
    lists = {"ps": [ps], "worker": [first, second]}
    definition = tf.train.ServerDef(cluster=tf.train.ClusterSpec(lists).as_cluster_def(), job_name="worker", task_index=1,
                                    protocol="grpc")
    for name, content in {"list.json": json.dumps(lists).encode(),
                          "map.json": json.dumps({"cluster": {"ps": {"0": ps}, "worker": {"1": second}}}).encode(),
                          "server.pbtxt": text_format.MessageToString(definition).encode(),
                          "server.pb": definition.SerializeToString()}.items():
        (tmp_path / name).write_bytes(content)
    task = ["--job_name=worker", "--task_index=1"]
    tf_config = {"cluster": lists, "task": {"type": "worker", "index": 1}}
    spellings = [
        ([f"--ps_hosts={ps}", f"--worker_hosts={first},{second}", *task], {}),
        (["--ps-hosts", ps, "--worker-hosts", f"{first}, {second}", "--job-name", "worker", "--task-index", "1"], {}),
        ([f"--cluster_spec=ps|{ps},worker|{first};{second}", *task], {}),
        ([f"--cluster_file={tmp_path / 'list.json'}", *task], {}),
        ([f"--cluster_file={tmp_path / 'map.json'}", *task], {}),
        ([f"--server_def={tmp_path / 'server.pbtxt'}"], {}),
        ([f"--server_def={tmp_path / 'server.pb'}"], {}),
        ([], {"TF_CONFIG": json.dumps(tf_config)}),
    ]
    value = tf.placeholder_with_default(2.0, [])
    for arguments, env in spellings:
        one = server(processes, *arguments, env=env)
        ready = one.wait_for(harness.READY.search, "that it is ready")
        assert ready.groups() == ("/job:worker/task:1", second)
        with tf.Session("grpc://" + second) as session:
            assert session.run(value) == 2.0
        one.kill()


def test_tasks_may_have_any_numbers(processes, graph, tmp_path):
    ps, worker = addresses(2)
    path = tmp_path / "sparse.json"
    path.write_text(json.dumps({"ps": {"3": ps}, "worker": {"7": worker}}))
    for job, index in [("ps", 3), ("worker", 7)]:
        one = server(processes, f"--cluster_file={path}", f"--job_name={job}", f"--task_index={index}")
        assert one.wait_for(harness.READY.search, "that it is ready")[1] == f"/job:{job}/task:{index}"
    with tf.device("/job:ps/task:3"):
        there = tf.placeholder_with_default(2.0, []) * 2.0
    with tf.device("/job:worker/task:7"):
        here = there + 1.0
    with tf.Session("grpc://" + worker) as session:
        assert session.run(here) == 5.0
        assert {device.name.split("/device")[0] for device in session.list_devices()} == {
            "/job:ps/replica:0/task:3", "/job:worker/replica:0/task:7"}


def test_mistakes_are_named(processes, tmp_path):
    _, taken = local_server(processes)
    port = taken.rpartition(":")[2]
    task = ["--job_name=worker", "--task_index=0"]
    (tmp_path / "bad.json").write_text('{"worker": {"x": "a:1"}}')
    (tmp_path / "bad.pbtxt").write_text("cluster { job { nme: 'ps' } }")
    for arguments, env, message in [
            (["--worker_hosts=a:1,a:1", *task], {}, "task 1 of job 'worker' ('a:1')"),
            (["--worker_hosts=a:1,b", *task], {}, "task 1 of job 'worker' ('b'): "),
            (["--worker_hosts=a:1,b:99999", *task], {}, "99999"),
            (["--worker_hosts=a:1", "--job_name=worker", "--task_index=2"], {}, "no task 2"),
            (["--worker_hosts=a:1", "--job_name=chief"], {}, "no job 'chief'"),
            (["--worker_hosts=a:1"], {}, "--job_name is missing"),
            (["--cluster_spec=worker", *task], {}, "'worker' is not 'job|host:port;host:port'"),
            (["--cluster_spec=worker|a:1", "--worker_hosts=a:1", *task], {}, "more than once"),
            ([f"--cluster_file={tmp_path / 'bad.json'}", *task], {}, "'x' is not a task number"),
            ([f"--server_def={tmp_path / 'bad.pbtxt'}"], {}, "nme"),
            ([], {"TF_CONFIG": "{]"}, "TF_CONFIG is not JSON"),
            ([], {"TF_CONFIG": '{"cluster": {"ps": ["a:1"]}}'}, "TF_CONFIG: it has no 'task'"),
            (["--device_count=0"], {}, "CPU devices, not 0"),
            (["--no_such_flag"], {}, "--no_such_flag"),
            ([f"--port={port}"], {}, f"port {port} is in use"),
    ]:
        one = server(processes, *arguments, env=env)
        assert one.wait() not in (0, None), one.log()
        assert message in "\n".join(one.lines), (message, one.log())


def test_the_ready_line_says_what_is_listened_on(processes, graph):
    port, elsewhere = harness.PORTS.take(), harness.PORTS.take()
    service = [f"--worker_hosts=some-service.invalid:{port}", "--job_name=worker"]

    def ready(*arguments):
        one = server(processes, *arguments)
        line = one.wait_for(lambda line: line if harness.READY.search(line) else None, "that it is ready")
        return one, line.partition(" ready: ")[2]

    one, line = ready(*service, "--insecure")
    assert line == f"/job:worker/task:0 at some-service.invalid:{port} (listening on all interfaces)"
    one.kill()
    one, line = ready(*service, "--bind=127.0.0.1", f"--port={elsewhere}")
    assert line == f"/job:worker/task:0 at some-service.invalid:{port} (listening on 127.0.0.1:{elsewhere})"
    with tf.Session(f"grpc://127.0.0.1:{elsewhere}") as session:
        assert session.run(tf.placeholder_with_default(1.0, [])) == 1.0
    _, line = ready(f"--worker_hosts=127.0.0.1:{port}", "--job_name=worker")
    assert line == f"/job:worker/task:0 at 127.0.0.1:{port}"


def test_a_task_with_several_devices(processes, graph):
    _, address = local_server(processes, "--device_count=3")
    with tf.device("/cpu:1"):
        v = tf.Variable(3.0, name="on_second", use_resource=False)
        step = tf.placeholder(tf.float32, [])
    with tf.device("/cpu:2"):
        squared = tf.square(v + step, name="squared")

    def body(i, total):
        with tf.device("/cpu:1"):
            total = total + v
        with tf.device("/cpu:2"):
            return i + 1.0, total * 2.0

    with tf.device("/cpu:0"):
        update = tf.assign(v, squared, name="update")
        _, looped = tf.while_loop(lambda i, _: i < step, body, [0.0, 1.0])
    metadata = tf.RunMetadata()
    options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True)
    with tf.Session("grpc://" + address) as session:
        names = [f"/job:localhost/replica:0/task:0/device:CPU:{index}" for index in range(3)]
        assert sorted(device.name for device in session.list_devices()) == names
        session.run(v.initializer)
        assert session.run(looped, {step: 2.0}) == ((1 + 3) * 2 + 3) * 2
        assert session.run(update, {step: 1.0}, options, metadata) == 16.0
        assert {stats.device for stats in metadata.step_stats.dev_stats} >= set(names[1:])
        ops = {(node.op, node.device[-1]) for partition in metadata.partition_graphs for node in partition.node}
        assert ("_Send", "1") in ops and ("_Recv", "2") in ops, sorted(ops)
        with tf.device("/cpu:3"):
            beyond = tf.placeholder_with_default(1.0, []) + 1
        with pytest.raises(tf.errors.InvalidArgumentError, match="CPU:2"):
            session.run(beyond)


def test_a_session_brings_its_cluster_along(processes, graph):
    # Each is a cluster of one; only the session knows them as tasks of one cluster.
    found = [local_server(processes)[1] for _ in range(3)]
    spec = tf.train.ClusterSpec({"ps": found[:1], "worker": found[1:]})
    with tf.device("/job:ps/task:0"):
        v = tf.Variable(2.0, name="propagated", use_resource=False)
    with tf.device("/job:worker/task:1"):
        tripled = v * 3.0
    config = tf.ConfigProto(cluster_def=spec.as_cluster_def())
    with tf.Session("grpc://" + found[1], config=config) as session:
        session.run(v.initializer)
        assert session.run(tripled) == 6.0
        assert len(session.list_devices()) == 3
    # A server knows nothing of it afterwards.
    with tf.Session("grpc://" + found[1]) as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="/job:localhost"):
            session.run(tripled)


def test_settings_that_cannot_apply_are_said_once(processes, graph):
    process, address = local_server(processes)
    config = tf.ConfigProto(placement_period=3, intra_op_parallelism_threads=2, inter_op_parallelism_threads=2,
                            use_per_session_threads=True, share_cluster_devices_in_session=True)
    config.gpu_options.allow_growth = True
    config.rpc_options.compression_algorithm = "gzip"
    config.session_inter_op_thread_pool.add(num_threads=2)
    config.experimental.use_numa_affinity = True
    options = tf.RunOptions(inter_op_thread_pool=0, report_tensor_allocations_upon_oom=True)
    options.debug_options.debug_tensor_watch_opts.add(node_name="x", debug_ops=["DebugIdentity"])
    options.experimental.collective_graph_key = 5
    value = tf.placeholder_with_default(2.0, [], name="x")
    for _ in range(2):
        with tf.Session("grpc://" + address, config=config) as session:
            assert session.run(value, options=options) == 2.0
    # What a session says comes before what the next one does.
    with tf.Session("grpc://" + address, config=tf.ConfigProto(log_device_placement=True)) as session:
        assert session.run(value * 3.0) == 6.0
    process.wait_for(re.compile(r"mul: \(Mul\): /job:localhost/replica:0/task:0/device:CPU:0").search, "the placement")
    said = [match[1] for match in map(re.compile(r"asks for (\S+), which has no effect").search, process.lines) if match]
    assert sorted(said) == ["RunOptions.debug_options", "gpu_options", "inter_op_parallelism_threads",
                            "intra_op_parallelism_threads", "placement_period", "rpc_options",
                            "session_inter_op_thread_pool", "use_per_session_threads"]


def test_graph_options_turn_optimizations_off(processes, graph):
    _, address = local_server(processes)
    with tf.control_dependencies([tf.no_op()]):
        folded = tf.add(tf.constant(1.0), tf.constant(2.0), name="folded")
    out = tf.identity(folded * tf.placeholder_with_default(2.0, []), name="out")

    def ops(config):
        metadata = tf.RunMetadata()
        with tf.Session("grpc://" + address, config=config) as session:
            assert session.run(out, options=tf.RunOptions(output_partition_graphs=True), run_metadata=metadata) == 6.0
        return {node.op for partition in metadata.partition_graphs for node in partition.node}

    off = tf.ConfigProto()
    off.graph_options.optimizer_options.opt_level = tf.OptimizerOptions.L0
    off.graph_options.rewrite_options.disable_meta_optimizer = True
    assert {"Add", "AddV2"} & ops(off)
    assert not {"Add", "AddV2"} & ops(tf.ConfigProto())


class WorkerService:
    """Calls a worker's service with the messages of our `.proto` files, which the TensorFlow package doesn't have."""

    def __init__(self, address):
        pool = descriptor_pool.DescriptorPool()
        with open(os.environ["FERROFLOW_DESCRIPTORS"], "rb") as file:
            for one in descriptor_pb2.FileDescriptorSet.FromString(file.read()).file:
                pool.Add(one)
        self._pool = pool
        self._channel = grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0)])

    def call(self, method, **fields):
        request, response = [
            message_factory.GetMessageClass(self._pool.FindMessageTypeByName(f"tensorflow.{method}{kind}"))
            for kind in ("Request", "Response")]
        stub = self._channel.unary_unary(f"/tensorflow.WorkerService/{method}", request.SerializeToString,
                                         response.FromString)
        return stub(request(**fields), timeout=60)


def test_the_lesser_calls_of_a_worker(processes, graph):
    _, address = local_server(processes)
    worker = WorkerService(address)
    device, = worker.call("GetStatus").device_attributes
    assert device.name == "/job:localhost/replica:0/task:0/device:CPU:0" and device.incarnation != 0
    first = worker.call("GetStepSequence", graph_key=[5, 6]).step_sequence
    assert [sequence.graph_key for sequence in first] == [5, 6]
    assert worker.call("GetStepSequence", graph_key=[5]).step_sequence[0] == first[0]
    worker.call("MarkRecvFinished", request_id=7)
    logged = worker.call("Logging", enable_rpc_logging=True, fetch_step_id=[1]).step
    assert [labeled.step_id for labeled in logged] == [1]
    worker.call("Logging", disable_rpc_logging=True, clear=True)
    buffer = {"buf_rendezvous_key": "some_key", "src_device": device.name, "src_incarnation": device.incarnation + 1}
    for method, fields, code, words in [
            ("Tracing", {}, grpc.StatusCode.UNIMPLEMENTED, "Tracing"),
            ("RecvBuf", buffer, grpc.StatusCode.FAILED_PRECONDITION, "RecvBuf expects a different device incarnation"),
            ("CompleteGroup", {"group_key": 3, "group_size": 1}, grpc.StatusCode.INTERNAL, "device_attributes is not set"),
            ("CompleteInstance", {"name": "reduce", "group_key": 3, "instance_key": 4},
             grpc.StatusCode.FAILED_PRECONDITION, "group 3 not found"),
    ]:
        with pytest.raises(grpc.RpcError) as caught:
            worker.call(method, **fields)
        assert caught.value.code() == code
        assert words in caught.value.details()
    with tf.Session("grpc://" + address) as session:
        np.testing.assert_equal(session.run(tf.placeholder_with_default(1.0, [])), 1.0)
