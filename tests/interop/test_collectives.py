"""Collective ops: groups of Ferroflow tasks, of real TensorFlow tasks and of both, in one ring."""

import itertools
import threading

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import harness

tf.disable_v2_behavior()

LEADER = "/job:worker/replica:0/task:0"
GROUP = 11
STEP_WATCHDOG_MS = 120_000
OURS, THEIRS = "ours", harness.TENSORFLOW

# "Ours" means the servers under test.
MIXES = {
    "two": [OURS, OURS],
    "three": [OURS, OURS, OURS],
    "two_of_theirs": [THEIRS, THEIRS],
    "three_of_theirs": [THEIRS, THEIRS, THEIRS],
    "our_leader": [OURS, THEIRS],
    "their_leader": [THEIRS, OURS],
    "our_leader_of_three": [OURS, THEIRS, OURS],
    "their_leader_of_three": [THEIRS, OURS, THEIRS],
    "theirs_leads_two_of_ours": [THEIRS, OURS, OURS],
}
REDUCED_TYPES = [tf.bfloat16, tf.float32, tf.float16, tf.float64, tf.int32, tf.int64]
GATHERED_TYPES = [tf.float32, tf.float16, tf.float64, tf.int32, tf.int64]
SENT_TYPES = [tf.bool, *GATHERED_TYPES]
MERGES = {"Add": np.add, "Mul": np.multiply, "Min": np.minimum, "Max": np.maximum}


class Member(harness.Process):
    """One task of a job whose first task is the leader of the collective groups."""

    def __init__(self, kind, addresses, index, devices, directory):
        definition = tf.train.ServerDef(protocol="grpc", job_name="worker", task_index=index)
        definition.cluster.CopyFrom(tf.train.ClusterSpec({"worker": addresses}).as_cluster_def())
        definition.default_session_config.experimental.collective_group_leader = LEADER
        definition.default_session_config.device_count["CPU"] = devices
        path = directory / f"worker_{index}.pb"
        path.write_bytes(definition.SerializeToString())
        super().__init__(f"{kind} /job:worker/task:{index}", [*harness.server_program(kind), f"--server_def={path}"])
        self.kind = kind
        self.target = "grpc://" + addresses[index]
        self.devices = [f"/job:worker/replica:0/task:{index}/device:CPU:{number}" for number in range(devices)]

    def wait_ready(self):
        self.wait_for(harness.READY.search, "that it is ready")
        return self


class Members:
    """The tasks of a group."""

    def __init__(self, kinds, devices, directory):
        kinds = [harness.default_kind() if kind == OURS else kind for kind in kinds]
        addresses = [f"127.0.0.1:{harness.PORTS.take()}" for _ in kinds]
        self.tasks = [Member(kind, addresses, index, devices, directory) for index, kind in enumerate(kinds)]
        for task in self.tasks:
            task.start()
        for task in self.tasks:
            task.wait_ready()
        self.devices = [device for task in self.tasks for device in task.devices]

    def run_each(self, build, feeds, tries=1):
        """Runs a separate graph on each task, with a session of its own; returns what each has fetched or raised."""
        results = [None] * len(self.tasks)

        def run(index):
            task = self.tasks[index]
            with tf.Graph().as_default():
                with tf.device(task.devices[0]):
                    fed, fetched = build(index)
                for _ in range(tries):
                    try:
                        with tf.Session(task.target) as session:
                            results[index] = [run_step(session, fetched, {fed: value}) for value in feeds(index)]
                        break
                    except tf.errors.OpError as error:
                        results[index] = error

        run_all([lambda index=index: run(index) for index in range(len(self.tasks))])
        return results


@pytest.fixture
def members(request, tmp_path):
    """Returns a function that starts the tasks of a group; they are killed at the end of the test."""
    made = []

    def make(mix, devices=1):
        made.append(Members(MIXES[mix] if isinstance(mix, str) else mix, devices, tmp_path))
        return made[-1]

    yield make
    for one in made:
        for task in one.tasks:
            task.kill()
            if getattr(request.node, "call_failed", False):
                print(task.log())


def run_all(jobs):
    """Runs jobs in parallel, each in a thread; an exception in one is raised here."""
    raised = []

    def guarded(job):
        try:
            job()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


def run_step(session, fetches, feed=None, timeout_ms=STEP_WATCHDOG_MS):
    return session.run(fetches, feed, options=tf.RunOptions(timeout_in_ms=timeout_ms))


def values_of(dtype, members, shape, seed=0):
    """Returns a value for each member whose sums and products are exact in every type."""
    random = np.random.RandomState(seed)
    if dtype == tf.bool:
        return [random.rand(*shape) < 0.5 for _ in range(members)]
    return [random.randint(1, 5, shape).astype(dtype.as_numpy_dtype) for _ in range(members)]


def reduced(values, merge, final):
    result = values[0]
    for value in values[1:]:
        result = MERGES[merge](result, value)
    if final == "Div":
        is_integer = np.issubdtype(np.asarray(values[0]).dtype, np.integer)
        result = result // len(values) if is_integer else result / np.asarray(len(values), result.dtype)
    return result


def scalars(*numbers):
    return [tf.constant(number, tf.int32) for number in numbers]


def every_op(devices):
    """Returns fetches on all devices, and their expected values."""
    size, keys = len(devices), itertools.count(1)
    fetches, expected = [], []

    def add(build, values, results):
        key = next(keys)
        for index, (device, result) in enumerate(zip(devices, results)):
            with tf.device(device):
                fetches.append(build(index, key, values[index]))
            expected.append(result)

    for dtype in REDUCED_TYPES:
        for merge, final in [("Add", "Id"), ("Add", "Div"), ("Mul", "Id"), ("Min", "Id"), ("Max", "Div")]:
            values = values_of(dtype, size, (5, 7))
            whole = [reduced(values, merge, final)] * size
            add(lambda _, key, value: tf.raw_ops.CollectiveReduce(
                input=value, group_size=size, group_key=GROUP, instance_key=key, merge_op=merge, final_op=final,
                subdiv_offsets=[0]), values, whole)
            add(lambda _, key, value: tf.raw_ops.CollectiveReduceV2(
                input=value, group_size=size, group_key=GROUP, instance_key=key, ordering_token=[], merge_op=merge,
                final_op=final), values, whole)
        values = values_of(dtype, size, (size, 3))
        swapped = [np.stack([value[index] for value in values]) for index in range(size)]
        add(lambda _, key, value: tf.raw_ops.CollectiveAllToAllV2(
            input=value, group_size=size, group_key=GROUP, instance_key=key, ordering_token=[]), values, swapped)
    for dtype in GATHERED_TYPES:
        values = values_of(dtype, size, (2, 3))
        gathered = [np.concatenate(values)] * size
        add(lambda _, key, value: tf.raw_ops.CollectiveGather(
            input=value, group_size=size, group_key=GROUP, instance_key=key, shape=[2 * size, 3]), values, gathered)
        add(lambda _, key, value: tf.raw_ops.CollectiveGatherV2(
            input=value, group_size=size, group_key=GROUP, instance_key=key, ordering_token=[]), values, gathered)
    for number, dtype in enumerate(SENT_TYPES):
        values, source = values_of(dtype, size, (3, 2)), number % size

        def broadcast(index, key, value):
            arguments = {"group_size": size, "group_key": GROUP, "instance_key": key}
            if index == source:
                return tf.raw_ops.CollectiveBcastSend(input=value, shape=[3, 2], **arguments)
            return tf.raw_ops.CollectiveBcastRecv(T=dtype, shape=[3, 2], **arguments)

        def broadcast_v2(index, key, value):
            arguments = {"group_size": size, "group_key": GROUP, "instance_key": key}
            if index == source:
                return tf.raw_ops.CollectiveBcastSendV2(input=value, **arguments)
            return tf.raw_ops.CollectiveBcastRecvV2(T=dtype, shape=[3, 2], **arguments)

        add(broadcast, values, [values[source]] * size)
        add(broadcast_v2, values, [values[source]] * size)
    return fetches, expected


def check(got, expected):
    for number, (result, value) in enumerate(zip(got, expected)):
        assert result.dtype == value.dtype, number
        np.testing.assert_array_equal(result, value, err_msg=f"fetch {number}")


@pytest.mark.parametrize("mix", list(MIXES))
def test_every_op_in_one_graph(members, graph, mix):
    made = members(mix)
    fetches, expected = every_op(made.devices)
    for task in made.tasks[:2]:
        with tf.Session(task.target) as session:
            for _ in range(2):
                check(run_step(session, fetches), expected)


@pytest.mark.parametrize("mix", ["two", "two_of_theirs", "our_leader", "their_leader"])
def test_several_devices_in_each_task(members, graph, mix):
    made = members(mix, devices=2)
    fetches, expected = every_op(made.devices)
    with tf.Session(made.tasks[1].target) as session:
        check(run_step(session, fetches), expected)


def test_several_devices_in_one_task(members, graph):
    made = members([OURS], devices=3)
    fetches, expected = every_op(made.devices)
    with tf.Session(made.tasks[0].target) as session:
        check(run_step(session, fetches), expected)


def reduce_fed(size):
    """Returns a function that builds a mean of what all members are fed, and two more ops."""

    def build(_):
        fed = tf.placeholder(tf.float32, [None])
        fed.set_shape([1000])
        arguments = {"group_size": size, "group_key": GROUP}
        mean = tf.raw_ops.CollectiveReduce(input=fed, instance_key=1, merge_op="Add", final_op="Div",
                                           subdiv_offsets=[0], **arguments)
        gathered = tf.raw_ops.CollectiveGather(input=fed[:2], instance_key=2, shape=[2 * size], **arguments)
        largest = tf.raw_ops.CollectiveReduceV2(input=mean * 2.0, instance_key=3, ordering_token=[], merge_op="Max",
                                                final_op="Id", **arguments)
        return fed, [mean, gathered, largest]

    return build


@pytest.mark.parametrize("mix", list(MIXES))
def test_each_task_with_a_graph_of_its_own(members, mix):
    made = members(mix)
    size, steps = len(made.tasks), 6
    values = [[np.arange(1000, dtype=np.float32) * (step + 1) + index for step in range(steps)] for index in range(size)]
    results = made.run_each(reduce_fed(size), lambda index: values[index])
    for index, result in enumerate(results):
        assert isinstance(result, list), (index, result)
        for step, (mean, gathered, largest) in enumerate(result):
            expected = np.mean([value[step] for value in values], axis=0, dtype=np.float32)
            np.testing.assert_allclose(mean, expected, rtol=1e-6)
            np.testing.assert_array_equal(gathered, np.concatenate([value[step][:2] for value in values]))
            np.testing.assert_allclose(largest, 2 * expected, rtol=1e-6)


@pytest.mark.parametrize("mix", ["two", "two_of_theirs", "our_leader", "their_leader_of_three"])
def test_large_tensors_are_subdivided(members, graph, mix):
    made = members(mix, devices=2)
    size = len(made.devices)
    values = [np.arange(5_000_003, dtype=np.float32) % 1000 + index for index in range(size)]
    fed, fetches = [], []
    for device in made.devices:
        with tf.device(device):
            fed.append(tf.placeholder(tf.float32, [5_000_003]))
            total = tf.raw_ops.CollectiveReduceV2(
                input=fed[-1], group_size=size, group_key=GROUP, instance_key=1, ordering_token=[], merge_op="Add",
                final_op="Id", max_subdivs_per_device=0)
            turned = tf.raw_ops.CollectiveReduce(
                input=fed[-1][:101], group_size=size, group_key=GROUP, instance_key=2, merge_op="Add", final_op="Id",
                subdiv_offsets=[0, -1, 1])
            fetches += [total[::997], turned]
    expected = np.sum(values, axis=0)
    with tf.Session(made.tasks[0].target) as session:
        got = run_step(session, fetches, dict(zip(fed, values)))
    for number, result in enumerate(got):
        np.testing.assert_array_equal(result, expected[:101] if number % 2 else expected[::997])


def test_communicators_number_their_ops_and_rank_their_members(members, graph, server_kind):
    made = members([OURS], devices=3)
    size = len(made.devices)
    values = [np.arange(6, dtype=np.float32).reshape(3, 2) + 10 * index for index in range(size)]
    fetches = []
    for index, device in enumerate(made.devices):
        with tf.device(device):
            # The user's ranks are in the reverse order of the devices.
            communicator = tf.raw_ops.CollectiveInitializeCommunicator(
                group_key=GROUP, rank=size - 1 - index, group_size=size)
            total = tf.raw_ops.CollectiveReduceV3(input=values[index], communicator=communicator, group_assignment=[],
                                                  reduction="Add")
            with tf.control_dependencies([total]):
                swapped = tf.raw_ops.CollectiveAllToAllV3(input=values[index], communicator=communicator,
                                                          group_assignment=[])
            fetches += [total, swapped]
    options = tf.RunOptions(timeout_in_ms=STEP_WATCHDOG_MS)
    options.experimental.collective_graph_key = 77
    with tf.Session(made.tasks[0].target) as session:
        got = session.run(fetches, options=options)
        for index in range(size):
            np.testing.assert_array_equal(got[2 * index], np.sum(values, axis=0))
            np.testing.assert_array_equal(got[2 * index + 1], np.stack([value[index] for value in reversed(values)]))
        with pytest.raises(tf.errors.AlreadyExistsError):
            session.run(fetches, options=options)


@pytest.mark.parametrize("mix", ["two", "three"])
def test_each_member_keeps_its_part_of_a_reduction(members, graph, mix, server_kind):
    made = members(mix)
    size = len(made.devices)
    values = values_of(tf.float32, size, (2 * size, 3))
    fetches = []
    for index, device in enumerate(made.devices):
        with tf.device(device):
            fetches.append(tf.raw_ops.CollectiveReduceScatterV2(
                input=values[index], group_size=size, group_key=GROUP, instance_key=1, ordering_token=[], merge_op="Add",
                final_op="Id"))
    with tf.Session(made.tasks[0].target) as session:
        if server_kind == harness.TENSORFLOW:
            # TensorFlow has it for GPUs only.
            with pytest.raises(tf.errors.OpError):
                run_step(session, fetches)
            return
        for index, part in enumerate(run_step(session, fetches)):
            np.testing.assert_array_equal(part, np.sum(values, axis=0)[2 * index:2 * index + 2])


def test_groups_are_assigned_by_rows(members, graph):
    made = members([OURS])
    index, base = tf.placeholder(tf.int32, []), tf.placeholder(tf.int32, [])
    with tf.device(made.devices[0]):
        assigned = tf.raw_ops.CollectiveAssignGroupV2(group_assignment=[[0, 2], [3, 1]], device_index=index, base_key=base)
    with tf.Session(made.tasks[0].target) as session:
        assert tuple(session.run(assigned, {index: 2, base: 5})) == (2, 5)
        assert tuple(session.run(assigned, {index: 1, base: 5})) == (2, 6)
        with pytest.raises(tf.errors.InvalidArgumentError, match="is not found in group_assignment"):
            session.run(assigned, {index: 4, base: 5})
        with pytest.raises(tf.errors.InvalidArgumentError, match="reserved group_key = 0"):
            session.run(assigned, {index: 1, base: -1})


@pytest.mark.parametrize("mix", ["two", "our_leader"])
def test_members_that_want_different_things_are_told(members, graph, mix):
    made = members(mix)
    fetches = []
    for device, shape in zip(made.devices, [[2], [3]]):
        with tf.device(device):
            fetches.append(tf.raw_ops.CollectiveReduce(
                input=tf.ones(shape), group_size=2, group_key=GROUP, instance_key=1, merge_op="Add", final_op="Id",
                subdiv_offsets=[0]))
    with tf.Session(made.tasks[0].target) as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="Shape mismatch in the collective instance 1"):
            run_step(session, fetches)


def test_bad_groups_are_refused(members, graph):
    made = members([OURS])
    size = tf.placeholder(tf.int32)
    with tf.device(made.devices[0]):
        total = tf.raw_ops.CollectiveReduceV2(input=[1.0], group_size=size, group_key=GROUP, instance_key=1,
                                              ordering_token=[], merge_op="Add", final_op="Id")
    with tf.Session(made.tasks[0].target) as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="group_size must be positive integer but got 0"):
            run_step(session, total, {size: 0})
        with pytest.raises(tf.errors.InvalidArgumentError, match="Unexpected dimensions on input group_size"):
            run_step(session, total, {size: [1]})
        np.testing.assert_array_equal(run_step(session, total, {size: 1}), [1.0])


@pytest.mark.parametrize("mix", ["two", "our_leader", "their_leader"])
def test_a_member_that_never_comes_is_waited_for_until_the_time_is_over(members, graph, mix):
    made = members(mix)
    with tf.device(made.devices[1]):
        total = tf.raw_ops.CollectiveReduce(
            input=[1.0], group_size=2, group_key=GROUP, instance_key=1, merge_op="Add", final_op="Id", subdiv_offsets=[0],
            timeout_seconds=0.5)
    with tf.Session(made.tasks[1].target) as session:
        with pytest.raises(tf.errors.DeadlineExceededError, match="Collective has timed out waiting for other workers"):
            run_step(session, total)


def test_a_step_that_is_cancelled_leaves_nothing_behind(members, graph, server_kind):
    if server_kind == harness.TENSORFLOW:
        pytest.skip("TensorFlow's collective ops end with the first step that is cancelled, until its tasks are restarted")
    made = members("two")
    fetches = []
    for device in made.devices:
        with tf.device(device):
            fetches.append(tf.raw_ops.CollectiveReduce(
                input=[1.0], group_size=2, group_key=GROUP, instance_key=1, merge_op="Add", final_op="Id",
                subdiv_offsets=[0]))
    with tf.Session(made.tasks[0].target) as session:
        for alone in fetches:
            with pytest.raises(tf.errors.DeadlineExceededError):
                run_step(session, alone, timeout_ms=300)
            for result in run_step(session, fetches):
                np.testing.assert_array_equal(result, [2.0])


KILLED = {
    "of_three": [OURS, OURS, OURS],
    "theirs_of_three": [OURS, OURS, THEIRS],
    "of_three_theirs": [THEIRS, OURS, OURS],
}
DEATHS = [(mix, in_one_graph) for mix in KILLED for in_one_graph in (False, True)]


@pytest.mark.parametrize("mix, in_one_graph", DEATHS,
                         ids=[f"{mix}-{'one_graph' if one else 'own_graphs'}" for mix, one in DEATHS])
def test_a_member_that_dies_is_named_to_all_others(members, mix, in_one_graph, server_kind):
    made = members(KILLED[mix])
    size = len(made.tasks)
    begun = threading.Barrier(size)
    errors = [None] * size

    def run(index):
        """Runs a step with all members, and another one that the last member never begins."""
        with tf.Graph().as_default():
            with tf.device(made.devices[index]):
                fed, fetches = reduce_fed(size)(index)
            with tf.Session(made.tasks[index].target) as session:
                total = run_step(session, fetches, {fed: np.full(1000, index + 1.0)})[0]
                np.testing.assert_allclose(total, np.full(1000, (size + 1) / 2))
                if index < size - 1:
                    begun.wait()
                    try:
                        run_step(session, fetches, {fed: np.zeros(1000)})
                    except tf.errors.OpError as error:
                        errors[index] = error
            if index == size - 1:
                # Without a session, whose end would wait for its master.
                begun.wait()
                made.tasks[index].kill()

    if in_one_graph:
        with tf.Graph().as_default(), tf.Session(made.tasks[0].target) as session:
            feeds, fetches = [], []
            for index, device in enumerate(made.devices):
                with tf.device(device):
                    fed, mean = reduce_fed(size)(index)
                    feeds.append(fed)
                    fetches.append(mean[0])
            run_step(session, fetches, {fed: np.ones(1000) for fed in feeds})
            dying = threading.Thread(target=made.tasks[-1].kill)
            dying.start()
            with pytest.raises(tf.errors.OpError) as caught:
                for _ in range(100_000):
                    run_step(session, fetches, {fed: np.ones(1000) for fed in feeds})
            dying.join()
            errors[:-1] = [caught.value] * (size - 1)
            if made.tasks[0].kind == harness.TENSORFLOW:
                # The step ends, but a TensorFlow master never ends its session: it waits for the dead task to clean up, even if
                # all tasks are TensorFlow's. So the test doesn't close it.
                session._closed = True
    else:
        run_all([lambda index=index: run(index) for index in range(size)])
    for index, error in enumerate(errors[:-1]):
        assert error is not None, f"member {index} ended without an error"
        if made.tasks[index].kind != harness.TENSORFLOW and server_kind != harness.TENSORFLOW and mix != "of_three_theirs":
            assert isinstance(error, tf.errors.UnavailableError), (index, error)
            assert f"/job:worker/replica:0/task:{size - 1}" in error.message, (index, error)


def test_a_member_that_was_restarted_joins_its_group_again(members, server_kind):
    if server_kind == harness.TENSORFLOW:
        pytest.skip("TensorFlow's tasks must all be restarted when one is")
    made = members("two")
    values = lambda index: [np.full(1000, index + 1.0)]
    for _ in range(2):
        for result in made.run_each(reduce_fed(2), values):
            np.testing.assert_allclose(result[0][0], np.full(1000, 1.5))
    made.tasks[1].kill()
    made.tasks[1].lines.clear()
    made.tasks[1].start().wait_ready()
    # Those that knew the previous member notice with the first step, and retry as a MonitoredSession does.
    results = made.run_each(reduce_fed(2), values, tries=20)
    for result in results:
        assert isinstance(result, list), result
        np.testing.assert_allclose(result[0][0], np.full(1000, 1.5))
