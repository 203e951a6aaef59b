"""A real TensorFlow client's use of one session: runs, feeds, fetches, callables, errors, time-outs, Reset."""

import threading

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import timeline

import harness

tf.disable_v2_behavior()

PS = "/job:ps/task:0"
WORKER_0 = "/job:worker/task:0"
WORKER_1 = "/job:worker/task:1"

NUMBER_TYPES = [
    tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32,
    tf.uint64, tf.bool, tf.complex64, tf.complex128, tf.qint8, tf.quint8, tf.qint16, tf.quint16, tf.qint32,
]
SHAPES = [(), (0,), (3,), (2, 0, 4), (2, 3), (5, 1, 7)]


def test_hello_world_on_every_task(shared_cluster, graph):
    hello = tf.constant("Hello, distributed TensorFlow!")
    for task in shared_cluster.tasks.values():
        with tf.Session(task.target) as session:
            assert session.run(hello) == b"Hello, distributed TensorFlow!"


def test_hello_world_on_a_cluster_of_one(server_kind, processes, graph):
    port = harness.PORTS.take()
    server = harness.Process("server --port", [*harness.server_program(server_kind), f"--port={port}"]).start()
    processes.append(server)
    name, address = server.wait_for(harness.READY.search, "that it is ready").groups()
    assert name == "/job:localhost/task:0"
    assert address.endswith(f":{port}")
    with tf.Session(f"grpc://127.0.0.1:{port}") as session:
        assert session.run(tf.constant("alone")) == b"alone"


@pytest.mark.parametrize("dtype", NUMBER_TYPES, ids=lambda dtype: dtype.name)
def test_feeds_and_fetches_of_every_dtype_cross_tasks(shared_cluster, graph, dtype):
    with tf.device(WORKER_0):
        fed = tf.placeholder(dtype)
    with tf.device(PS):
        on_ps = tf.identity(fed)
    with tf.device(WORKER_1):
        back = tf.identity(on_ps)
    with tf.Session(shared_cluster.target) as session:
        for shape in SHAPES:
            value = example_array(dtype, shape)
            got = session.run([fed, on_ps, back], {fed: value})
            for result in map(np.asarray, got):
                assert plain_type(result.dtype) == plain_type(value.dtype)
                assert result.shape == shape
                assert result.tobytes() == value.tobytes()


def example_array(dtype, shape):
    size = int(np.prod(shape))
    numpy_type = np.dtype(dtype.as_numpy_dtype)
    if dtype == tf.bool:
        return (np.arange(size) % 2 == 0).reshape(shape)
    if dtype.is_complex:
        return (np.arange(size) - 1.5j * np.arange(size)).astype(numpy_type).reshape(shape)
    if dtype.is_quantized:
        return np.arange(size, dtype=plain_type(numpy_type)).view(numpy_type).reshape(shape)
    values = np.arange(size) * 3
    if dtype.is_floating:
        values = values / 7 - 1
    elif not dtype.is_unsigned:
        values = values - 5
    return values.astype(numpy_type).reshape(shape)


def plain_type(numpy_type):
    """Returns the type without its quantized name: the client gives back the integers that hold the values."""
    return numpy_type.fields[numpy_type.names[0]][0] if numpy_type.names else numpy_type


def test_floats_keep_their_bits(shared_cluster, graph):
    with tf.device(PS):
        fed = tf.placeholder(tf.float32, [None])
        out = tf.identity(fed)
    bits = np.array([0x00000000, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x00000001, 0x7F7FFFFF], np.uint32)
    with tf.Session(shared_cluster.target) as session:
        assert session.run(out, {fed: bits.view(np.float32)}).view(np.uint32).tolist() == bits.tolist()


def test_strings_of_all_lengths_cross_tasks(shared_cluster, graph):
    with tf.device(WORKER_0):
        fed = tf.placeholder(tf.string)
    with tf.device(PS):
        out = tf.identity(fed)
    words = [b"", b"a", b"with\0zero", b"\xff\xfe not text", "Grüße".encode(), b"x" * 127, b"y" * 128, b"z" * 200000]
    with tf.Session(shared_cluster.target) as session:
        assert session.run(out, {fed: words}).tolist() == words
        assert session.run(out, {fed: b"scalar"}) == b"scalar"
        assert session.run(out, {fed: np.array([], object)}).shape == (0,)
        square = np.array([[b"a", b"bc"], [b"", b"d"]], object)
        assert session.run(out, {fed: square}).tolist() == square.tolist()


def test_constants_of_many_shapes(shared_cluster, graph):
    values = [np.zeros((100, 7), np.float32), np.full((3, 3), 2.5), np.arange(1000), np.array(["a", "bb", "bb", "bb"])]
    with tf.device(WORKER_1):
        constants = [tf.constant(value) for value in values]
    with tf.Session(shared_cluster.target) as session:
        for value, got in zip(values, session.run(constants)):
            if value.dtype.kind == "U":
                assert [item.decode() for item in got] == value.tolist()
            else:
                np.testing.assert_array_equal(got, value)


def test_fetch_structures_and_repeats(shared_cluster, graph):
    a = tf.constant(3.0)
    b = a * 2
    none = tf.no_op()
    with tf.Session(shared_cluster.target) as session:
        got = session.run({"pair": (a, [b, a]), "op": none, "name": "Const:0"})
        assert got == {"pair": (3.0, [6.0, 3.0]), "op": None, "name": 3.0}
        assert session.run([]) == []


def test_an_inner_tensor_can_be_fed(shared_cluster, graph):
    with tf.device(PS):
        a = tf.Variable(1.0, name="fed_inside")
        b = a + 1
    with tf.device(WORKER_1):
        c = b * 10
    with tf.Session(shared_cluster.target) as session:
        session.run(a.initializer)
    with tf.Session(shared_cluster.target) as session:
        assert session.run(c, {b: 7.0}) == 70.0
        assert session.run(c) == 20.0


def test_a_feed_counts_whatever_ran_before(shared_cluster, graph, server_kind):
    with tf.device(PS):
        a = tf.Variable(1.0, name="fed_later")
        b = a + 1
        c = b * 10
        folded = tf.constant(1.0) + 1
        d = folded * 10
    with tf.Session(shared_cluster.target) as session:
        session.run(a.initializer)
        assert session.run([c, d]) == [20.0, 20.0]
        # A TensorFlow master fails with an internal error, or has folded the constant and ignores the feed.
        if server_kind == harness.FERROFLOW:
            assert session.run(c, {b: 7.0}) == 70.0
            assert session.run([a, b, c], {a: 2.0}) == [2.0, 3.0, 30.0]
            assert session.run(d, {folded: 7.0}) == 70.0
        assert session.run([c, d]) == [20.0, 20.0]


def test_make_callable(shared_cluster, graph):
    with tf.device(PS):
        x = tf.placeholder(tf.float32, [2])
        y = tf.placeholder(tf.float32, [2])
        z = x * 2 + y
    with tf.Session(shared_cluster.target) as session:
        call = session.make_callable(z, [x, y])
        for i in range(5):
            assert call([i, i + 1], [1, 1]).tolist() == [2 * i + 1, 2 * i + 3]
        nothing = session.make_callable(tf.group(z.op, name="run_z"), [x, y], accept_options=True)
        assert nothing([0, 0], [0, 0], options=tf.RunOptions()) is None


def test_make_callable_from_options(shared_cluster, graph):
    with tf.device(PS):
        x = tf.placeholder(tf.float32, [2], name="x")
    with tf.device(WORKER_1):
        y = tf.placeholder(tf.float32, [2], name="y")
        z = tf.add(x * 3, y, name="z")
        counter = tf.Variable(0, name="callable_counter")
        count = tf.assign_add(counter, 1, name="count")
    options = config_pb2.CallableOptions()
    options.feed.extend([x.name, y.name])
    options.fetch.extend([z.name, z.op.inputs[0].name])
    options.target.append(count.op.name)
    with tf.Session(shared_cluster.target) as session:
        session.run(counter.initializer)
        call = session._make_callable_from_options(options)
        for i in range(4):
            total, product = call(np.array([i, 1], np.float32), np.array([1, 1], np.float32))
            assert total.tolist() == [3 * i + 1, 4] and product.tolist() == [3 * i, 3]
        assert session.run(counter) == 4
        metadata = tf.RunMetadata()
        call(np.zeros(2, np.float32), np.zeros(2, np.float32), run_metadata=metadata)
        assert session.run(counter) == 5
        # The handle is released when the callable is dropped; another one can be created afterwards.
        del call
        again = session._make_callable_from_options(options)
        assert again(np.zeros(2, np.float32), np.ones(2, np.float32))[0].tolist() == [1, 1]


def test_callable_with_a_wrong_feed_is_an_error(shared_cluster, graph):
    x = tf.placeholder(tf.float32, [2], name="x")
    z = tf.identity(x * 3, name="z")
    options = config_pb2.CallableOptions(feed=["x:0"], fetch=["no_such_node:0"])
    with tf.Session(shared_cluster.target) as session:
        with pytest.raises(tf.errors.OpError) as caught:
            session._make_callable_from_options(options)(np.zeros(2, np.float32))
        assert "no_such_node" in str(caught.value)
        assert session.run(z, {x: [1, 2]}).tolist() == [3, 6]


def test_partial_run(shared_cluster, graph):
    with tf.device(PS):
        a = tf.placeholder(tf.float32, [])
        b = tf.placeholder(tf.float32, [])
        first = a + b
    with tf.device(WORKER_1):
        c = tf.placeholder(tf.float32, [])
        second = first * c
    with tf.Session(shared_cluster.target) as session:
        for start in (1.0, 4.0):
            handle = session.partial_run_setup([first, second], [a, b, c])
            middle = session.partial_run(handle, first, {a: start, b: 2.0})
            assert middle == start + 2
            assert session.partial_run(handle, second, {c: middle * 17}) == (start + 2) * (start + 2) * 17


def test_partial_run_fed_in_one_call_and_two_handles_at_once(shared_cluster, graph):
    a = tf.placeholder(tf.float32, [])
    b = tf.placeholder(tf.float32, [])
    first = a * 2
    second = first + b
    with tf.Session(shared_cluster.target) as session:
        one = session.partial_run_setup([first, second], [a, b])
        two = session.partial_run_setup([first, second], [a, b])
        assert session.partial_run(two, first, {a: 10.0}) == 20
        assert session.partial_run(one, [first, second], {a: 1.0, b: 1.0}) == [2, 3]
        assert session.partial_run(two, second, {b: 5.0}) == 25


def test_graph_extended_between_runs(shared_cluster, graph):
    with tf.Session(shared_cluster.target) as session:
        with tf.device(PS):
            v = tf.Variable(2.0, name="extended_v")
        session.run(v.initializer)
        total = v
        for i in range(5):
            with tf.device(WORKER_1 if i % 2 else WORKER_0):
                total = total + float(i)
            assert session.run(total) == 2.0 + sum(range(i + 1))
        with tf.device(PS):
            w = tf.Variable(v.initialized_value() * 3, name="extended_w")
        session.run(w.initializer)
        assert session.run([v, w]) == [2.0, 6.0]


def test_list_devices(shared_cluster, graph):
    with tf.Session(shared_cluster.target) as session:
        devices = {device.name: device for device in session.list_devices()}
        assert sorted(name for name in devices if name.endswith("device:CPU:0")) == [
            "/job:ps/replica:0/task:0/device:CPU:0",
            "/job:worker/replica:0/task:0/device:CPU:0",
            "/job:worker/replica:0/task:1/device:CPU:0",
        ]
        for name, device in devices.items():
            assert device.device_type == "CPU" and device.memory_limit_bytes > 0
        incarnations = {device.incarnation for device in devices.values()}
        assert 0 not in incarnations and len(incarnations) == len(devices)
        again = {device.name: device.incarnation for device in session.list_devices()}
        assert again == {name: device.incarnation for name, device in devices.items()}
    with tf.Session(shared_cluster.worker(1).target) as other:
        assert {device.name: device.incarnation for device in other.list_devices()} == again


def test_device_filters_hide_other_tasks(shared_cluster, graph):
    config = tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:0"])
    with tf.Session(shared_cluster.target, config=config) as session:
        tasks = {device.name.split("/device")[0] for device in session.list_devices()}
        assert tasks == {"/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0"}
        with tf.device(WORKER_1):
            hidden = tf.constant(1.0, name="hidden") + 1
        with pytest.raises(tf.errors.InvalidArgumentError, match="/job:worker/.*task:1"):
            session.run(hidden)


def test_run_metadata_has_every_task(shared_cluster, graph):
    with tf.device(PS):
        weights = tf.Variable(tf.ones([64, 64]), name="traced_weights", use_resource=False)
    with tf.device(WORKER_0):
        x = tf.placeholder(tf.float32, [None, 64])
        product = tf.matmul(x, weights, name="traced_product")
    with tf.device(WORKER_1):
        total = tf.reduce_sum(product, name="traced_total")
    options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True)
    metadata = tf.RunMetadata()
    with tf.Session(shared_cluster.target) as session:
        session.run(weights.initializer)
        assert session.run(total, {x: np.ones((2, 64))}, options, metadata) == 2 * 64 * 64
    devices = {stats.device: [node.node_name for node in stats.node_stats] for stats in metadata.step_stats.dev_stats}
    for task in shared_cluster.tasks.values():
        assert task.device in devices, sorted(devices)
    assert any(name.startswith("traced_product") for name in devices[shared_cluster.worker(0).device])
    assert any(name.startswith("traced_total") for name in devices[shared_cluster.worker(1).device])
    for stats in metadata.step_stats.dev_stats:
        for node in stats.node_stats:
            assert node.all_start_micros > 0 and node.all_end_rel_micros >= node.op_start_rel_micros >= 0
    trace = timeline.Timeline(metadata.step_stats).generate_chrome_trace_format()
    assert "traced_total" in trace and "traced_product" in trace
    graphs = metadata.partition_graphs
    assert len(graphs) == 3
    ops = {node.op for partition in graphs for node in partition.node}
    assert ops & {"_Send", "_HostSend"} and ops & {"_Recv", "_HostRecv"}


def test_a_failing_op_names_itself(shared_cluster, graph):
    with tf.device(WORKER_1):
        a = tf.placeholder(tf.float32, name="left")
        b = tf.placeholder(tf.float32, name="right")
        product = tf.matmul(a, b, name="the_product")
    with tf.device(PS):
        out = tf.identity(product)
    with tf.Session(shared_cluster.target) as session:
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            session.run(out, {a: np.ones((2, 3)), b: np.ones((2, 3))})
        assert caught.value.op is product.op
        assert "Matrix size-incompatible: In[0]: [2,3], In[1]: [2,3]" in caught.value.message
        assert "{{node the_product}}" in caught.value.message
        # The session stays alive.
        assert session.run(out, {a: np.ones((2, 3)), b: np.ones((3, 1))}).tolist() == [[3], [3]]


FAILURES = {
    "assert": (tf.errors.InvalidArgumentError, "assertion failed: \\[too bad\\] \\[3\\]",
               lambda: tf.Assert(tf.placeholder_with_default(False, []), ["too bad", tf.constant(3)], name="check")),
    "uninitialized": (tf.errors.FailedPreconditionError, "uninitialized value \\S*never_set",
                      lambda: tf.identity(tf.Variable(1.0, name="never_set", use_resource=False))),
    "missing_file": (tf.errors.NotFoundError, "no/such/file",
                     lambda: tf.read_file("/no/such/file", name="reader")),
    "out_of_range_index": (tf.errors.InvalidArgumentError, "indices\\[1\\] = 7 is not in \\[0, 3\\)",
                           lambda: tf.gather(tf.placeholder_with_default([1.0, 2.0, 3.0], [3]), [0, 7], name="pick")),
    "division": (tf.errors.InvalidArgumentError, "Integer division by zero",
                 lambda: tf.floordiv(tf.placeholder_with_default([1, 2], [2]), [1, 0], name="quotient")),
    "nan": (tf.errors.InvalidArgumentError, "bad number : Tensor had NaN values",
            lambda: tf.check_numerics(tf.placeholder_with_default([float("nan")], [1]), "bad number", name="numbers")),
    "reshape": (tf.errors.InvalidArgumentError, "Input to reshape is a tensor with 4 values, but the requested shape has 3",
                lambda: tf.reshape(tf.placeholder_with_default(np.ones(4), [4]), tf.placeholder_with_default([3], [1]))),
    "closed_queue": (tf.errors.OutOfRangeError, "is closed and has insufficient elements",
                     lambda: closed_queue()),
}


def closed_queue():
    queue = tf.FIFOQueue(10, tf.float32, name="closed_queue", shared_name="closed_queue")
    with tf.control_dependencies([queue.close()]):
        return queue.dequeue(name="taken")


@pytest.mark.parametrize("name", sorted(FAILURES))
@pytest.mark.parametrize("device", [WORKER_0, PS], ids=["worker", "ps"])
def test_errors_have_their_class_and_message(shared_cluster, graph, name, device):
    error, message, build = FAILURES[name]
    with tf.device(device):
        with tf.name_scope(device.strip("/").replace(":", "_").replace("/", "_")):
            op = build()
    with tf.Session(shared_cluster.target) as session:
        with pytest.raises(error, match=message) as caught:
            session.run(op)
        assert caught.value.node_def is not None or "{{node " in caught.value.message


def test_functions_of_the_program_are_refused_with_the_reason(shared_cluster, server_kind, graph):
    # A client that does not serve its functions, as `python -m ferroflow` makes it do.
    doubled = tf.py_func(lambda x: 2 * x, [tf.constant(1.0)], tf.float32, name="doubled")
    eager = tf.py_function(lambda x: 2 * x, [tf.constant(1.0)], tf.float32, name="eager")
    with tf.Session(shared_cluster.target) as session:
        with pytest.raises(tf.errors.OpError) as caught:
            session.run(doubled)
        if server_kind == harness.FERROFLOW:
            assert isinstance(caught.value, tf.errors.NotFoundError)
            assert "'EagerPyFunc' (node eager), which calls a function of the client's Python program" in caught.value.message
            assert "`ferroflow check SCRIPT.py`" in caught.value.message
    with tf.Graph().as_default(), tf.Session(shared_cluster.target) as session:
        doubled = tf.py_func(lambda x: 2 * x, [tf.constant(1.0)], tf.float32, name="doubled")
        with pytest.raises(tf.errors.OpError) as caught:
            session.run(doubled)
        if server_kind == harness.FERROFLOW:
            assert isinstance(caught.value, tf.errors.FailedPreconditionError)
            assert "which does not serve it: run the program with `python -m ferroflow`" in caught.value.message


def test_placement_errors_list_what_there_is(shared_cluster, graph):
    with tf.device("/job:worker/task:7"):
        lost = tf.placeholder_with_default(1.0, [], name="lost")
    with tf.Session(shared_cluster.target) as session:
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            session.run(lost)
        assert "lost" in caught.value.message
        assert "/job:worker/task:7" in caught.value.message
        assert "/job:worker/replica:0/task:1/device:CPU:0" in caught.value.message


def test_soft_placement(shared_cluster, graph):
    with tf.device(WORKER_1 + "/gpu:0"):
        value = tf.constant(2.0) * 3.0
    with tf.Session(shared_cluster.target) as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="(?i)gpu:0"):
            session.run(value)
    with tf.Session(shared_cluster.target, config=tf.ConfigProto(allow_soft_placement=True)) as session:
        assert session.run(value) == 6.0


def test_a_step_that_takes_too_long_is_ended(shared_cluster, graph):
    with tf.device(PS):
        queue = tf.FIFOQueue(10, tf.float32, shared_name="never_filled")
        waiting = queue.dequeue()
        size = queue.size()
    with tf.device(WORKER_1):
        out = waiting + 1
    with tf.Session(shared_cluster.target) as session:
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(out, options=tf.RunOptions(timeout_in_ms=200))
        assert session.run(size) == 0
        session.run(queue.enqueue(4.0))
        # The abandoned dequeue must not have taken the element.
        assert session.run(out, options=tf.RunOptions(timeout_in_ms=60000)) == 5.0


def test_operation_timeout_of_the_session(shared_cluster, graph):
    with tf.device(PS):
        waiting = tf.FIFOQueue(10, tf.float32, shared_name="never_filled_either").dequeue()
    config = tf.ConfigProto(operation_timeout_in_ms=300)
    with tf.Session(shared_cluster.target, config=config) as session:
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(waiting)


def test_closing_a_session_cancels_its_steps(shared_cluster, graph):
    with tf.device(PS):
        started = tf.FIFOQueue(10, tf.int32, shared_name="started")
        waiting = tf.FIFOQueue(10, tf.float32, shared_name="closed_while_waiting")
        say_started = started.enqueue(1)
        with tf.control_dependencies([say_started]):
            blocked = waiting.dequeue()
        wait_for_start = started.dequeue()
    session = tf.Session(shared_cluster.target)
    other = tf.Session(shared_cluster.target)
    caught = []

    def run():
        try:
            session.run(blocked)
        except tf.errors.OpError as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    other.run(wait_for_start)
    session.close()
    thread.join()
    other.close()
    assert len(caught) == 1
    assert isinstance(caught[0], (tf.errors.CancelledError, tf.errors.AbortedError)), caught[0]


def test_variables_are_shared_by_name_between_sessions(shared_cluster):
    def build():
        with tf.device(PS):
            return tf.Variable(5.0, name="shared_by_name")

    with tf.Graph().as_default():
        v = build()
        with tf.Session(shared_cluster.worker(0).target) as session:
            session.run(v.initializer)
            session.run(v.assign_add(2.0))
    with tf.Graph().as_default():
        v = build()
        with tf.Session(shared_cluster.worker(1).target) as session:
            assert session.run(v) == 7.0


def test_isolated_sessions_share_nothing(shared_cluster):
    config = tf.ConfigProto(isolate_session_state=True)
    with tf.Graph().as_default():
        with tf.device(PS):
            v = tf.Variable(5.0, name="isolated_by_session", use_resource=False)
        with tf.Session(shared_cluster.target, config=config) as session:
            session.run(v.initializer)
            assert session.run(v) == 5.0
            with tf.Session(shared_cluster.target, config=config) as other:
                with pytest.raises(tf.errors.FailedPreconditionError):
                    other.run(v)
            assert session.run(v) == 5.0


def test_a_stateful_random_op_continues_its_stream(shared_cluster, graph):
    tf.set_random_seed(11)
    r = tf.random_uniform([3], seed=7)
    doubled = r * 1
    with tf.Session() as local:
        expected = [local.run(r), local.run(doubled), local.run(r)]
    for _ in range(2):
        with tf.Session(shared_cluster.target) as session:
            got = [session.run(r), session.run(doubled), session.run(r)]
            np.testing.assert_array_equal(got, expected)


def test_cond_and_while_across_devices(shared_cluster, graph):
    with tf.device(PS):
        step = tf.Variable(3.0, name="loop_step")
        limit = tf.placeholder(tf.float32, [])

    def body(i, total):
        with tf.device(WORKER_1):
            total = total * 2.0
        with tf.device(PS):
            return i + step, total + i

    with tf.device(WORKER_0):
        _, total = tf.while_loop(lambda i, _: i < limit, body, [0.0, 1.0])
        choice = tf.cond(total > 100.0, lambda: total * 0.5, lambda: total + 0.25)
    with tf.Session(shared_cluster.target) as session:
        session.run(step.initializer)
        for bound in (0.0, 1.0, 10.0, 40.0):
            i, expected = 0.0, 1.0
            while i < bound:
                i, expected = i + 3.0, expected * 2.0 + i
            picked = expected * 0.5 if expected > 100 else expected + 0.25
            assert session.run([total, choice], {limit: bound}) == [expected, picked]


def test_v1_control_flow_across_devices(shared_cluster):
    tf.disable_control_flow_v2()
    try:
        with tf.Graph().as_default():
            with tf.device(WORKER_0):
                n = tf.placeholder(tf.int32, [])

                def outer(i, total):
                    def inner(j, inner_total):
                        with tf.device(PS):
                            return j + 1, inner_total + tf.cast(i * j, tf.float32)

                    with tf.device(WORKER_1):
                        _, row = tf.while_loop(lambda j, _: j < n, inner, [0, 0.0])
                    return i + 1, total + row

                _, total = tf.while_loop(lambda i, _: i < n, outer, [0, 0.0])
                gradient_source = tf.placeholder(tf.float32, [])
                _, power = tf.while_loop(lambda i, _: i < n, lambda i, x: (i + 1, x * gradient_source), [0, 1.0])
                gradient, = tf.gradients(power, gradient_source)
            with tf.Session(shared_cluster.target) as session:
                for size in (0, 1, 4):
                    expected = sum(i * j for i in range(size) for j in range(size))
                    assert session.run(total, {n: size}) == expected
                assert session.run([power, gradient], {n: 3, gradient_source: 2.0}) == [8.0, 12.0]
    finally:
        tf.enable_control_flow_v2()
        tf.disable_control_flow_v2()


def test_queues_pass_elements_between_sessions(shared_cluster, graph):
    with tf.device(PS):
        queue = tf.FIFOQueue(3, [tf.int32, tf.string], shapes=[[], [2]], shared_name="between_sessions")
    number = tf.placeholder(tf.int32, [])
    words = tf.placeholder(tf.string, [2])
    put = queue.enqueue([number, words])
    take = queue.dequeue()
    take_many = queue.dequeue_many(2)
    with tf.Session(shared_cluster.worker(0).target) as one, tf.Session(shared_cluster.worker(1).target) as two:
        for i in range(3):
            one.run(put, {number: i, words: [str(i), "x"]})
        got = two.run(take)
        assert (got[0], got[1].tolist()) == (0, [b"0", b"x"])
        many = two.run(take_many)
        assert many[0].tolist() == [1, 2] and many[1].tolist() == [[b"1", b"x"], [b"2", b"x"]]
        assert one.run(queue.size()) == 0


def test_many_clients_at_once(shared_cluster):
    rounds, clients = 20, 6
    with tf.Graph().as_default() as graph:
        with tf.device(PS):
            counter = tf.Variable(0, name="clients_counter", use_resource=False)
            count = tf.assign_add(counter, 1, use_locking=True)
        with tf.device(WORKER_1):
            x = tf.placeholder(tf.float32, [])
            y = x * 2
        with tf.Session(shared_cluster.target) as session:
            session.run(counter.initializer)
        errors = []

        def client(index):
            try:
                with tf.Session(shared_cluster.worker(index % 2).target, graph=graph) as session:
                    for i in range(rounds):
                        value, _ = session.run([y, count], {x: index * 100 + i})
                        assert value == 2 * (index * 100 + i)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=client, args=(index,)) for index in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        with tf.Session(shared_cluster.target) as session:
            assert session.run(counter) == rounds * clients


def test_one_session_from_many_threads(shared_cluster, graph):
    x = tf.placeholder(tf.float32, [None])
    with tf.device(PS):
        y = tf.reduce_sum(x)
    errors = []
    with tf.Session(shared_cluster.target) as session:
        def run(index):
            try:
                for i in range(20):
                    assert session.run(y, {x: [index, i]}) == index + i
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors


@pytest.mark.parametrize("megabytes", [8, pytest.param(256, marks=pytest.mark.slow)])
def test_large_variable_is_assigned_and_fetched(shared_cluster, graph, megabytes):
    count = megabytes * 1024 * 1024 // 4
    with tf.device(PS):
        v = tf.Variable(tf.zeros([count]), name=f"large_{megabytes}", use_resource=False)
        value = tf.placeholder(tf.float32, [count])
        assign = tf.assign(v, value)
    data = np.arange(count, dtype=np.float32)
    with tf.Session(shared_cluster.target) as session:
        session.run(assign.op, {value: data})
        np.testing.assert_array_equal(session.run(v), data)
        # Free it for the tests that follow on the same ps.
        session.run(tf.assign(v, tf.zeros([0]), validate_shape=False).op)


def test_reset_clears_the_containers(cluster, graph):
    made = cluster(ps=1, workers=1)
    with tf.device(PS):
        default = tf.Variable(0.0, name="default_variable", use_resource=False)
        with tf.container("one"):
            one = tf.Variable(1.0, name="one_variable", use_resource=False)
        with tf.container("two"):
            two = tf.Variable(2.0, name="two_variable", use_resource=False)

    def state():
        with tf.Session(made.target) as session:
            return session.run([tf.is_variable_initialized(v) for v in (default, one, two)])

    with tf.Session(made.target) as session:
        session.run(tf.global_variables_initializer())
    assert state() == [True, True, True]
    tf.Session.reset(made.target, ["one"])
    assert state() == [True, False, True]
    tf.Session.reset(made.target)
    assert state() == [False, False, True]


def test_reset_ends_the_sessions_of_the_master(cluster, graph):
    made = cluster(ps=1, workers=1)
    value = tf.placeholder_with_default(1.0, [])
    session = tf.Session(made.target)
    assert session.run(value) == 1.0
    tf.Session.reset(made.target)
    with pytest.raises(tf.errors.AbortedError, match="Session .* is not found"):
        session.run(value)
    with pytest.raises(tf.errors.AbortedError):
        session.close()
    with tf.Session(made.target) as session:
        assert session.run(value) == 1.0


def test_denormal_numbers_are_zero(shared_cluster):
    """As operands and as results, in small tensors, in some that many threads compute, and in constants."""
    def values(target, size, small):
        with tf.Graph().as_default(), tf.device("/job:worker/task:0" if target else None):
            x, y = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.float32, [None])
            constant = tf.constant([small])
            fetches = {
                "product": x * y, "sum": x + y, "half": x / 2.0, "exp": tf.exp(x - 100.0), "root": tf.sqrt(x),
                "total": tf.reduce_sum(x), "matmul": tf.matmul(x[:1, None], y[None, :]), "positive": x > 0.0,
                "narrowed": tf.cast(tf.cast(x, tf.float64) * 0.5, tf.float32), "same": tf.identity(x),
                "absolute": tf.abs(x), "joined": tf.concat([x, y], 0), "folded": constant * constant,
            }
            with tf.Session(target) as session:
                feeds = {x: np.full(size, small, np.float32), y: np.full(size, small / 3, np.float32)}
                return session.run(fetches, feeds)

    for size in [1, 9, 300_000]:
        for small in [1e-20, 1e-39, 1.5e-38]:
            ours, theirs = values(shared_cluster.target, size, small), values("", size, small)
            for name in theirs:
                # With no absolute bound a denormal number is not zero.
                np.testing.assert_allclose(ours[name], theirs[name], 1e-5, 0, err_msg=f"{name} of {size} times {small}")
