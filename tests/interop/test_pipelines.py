"""Typical tf.data pipelines, on our server and in TensorFlow's own session: every element, the order, and errors."""

import os

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.data.ops import dataset_ops

import reference

tf.disable_v2_behavior()

WORKER = "/job:worker/task:0"
Dataset = tf.data.Dataset
E = tf.data.experimental

# More elements than any of the pipelines has, so that an endless one is noticed.
ELEMENTS_MAX = 60


def plain(value):
    """Returns a fetched value as something that can be compared."""
    if isinstance(value, tf.SparseTensorValue):
        return ("sparse", *map(plain, value))
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tolist())
    return value.tolist() if isinstance(value, np.generic) else value


def drawn(run, fetches, initializers):
    """Runs until the end of the data; an error counts as an element, after which the pipeline continues."""
    for initializer in initializers:
        run(initializer)
    found = []
    while len(found) < ELEMENTS_MAX:
        try:
            found.append([plain(value) for value in run(fetches)])
        except tf.errors.OutOfRangeError:
            found.append("end")
            break
        except tf.errors.OpError as error:
            found.append(type(error).__name__)
    return found


def flat(element):
    """Returns the tensors of an element."""
    tensors = []
    for part in tf.nest.flatten(element):
        tensors += [part.indices, part.values, part.dense_shape] if isinstance(part, tf.SparseTensor) else [part]
    return tensors


def compared(cluster, make, times=1, expected=None):
    """Runs a pipeline on both sides, `times` over, and compares."""
    with tf.Graph().as_default() as graph:
        with tf.device(WORKER):
            dataset = make()
            iterator = tf.data.make_initializable_iterator(dataset)
            fetches = flat(iterator.get_next())
            more = [tf.tables_initializer()]
        with tf.Session(cluster.target) as session:
            ours = [drawn(session.run, fetches, [*more, iterator.initializer]) for _ in range(times)]
    with tf.Graph().as_default() as graph:
        iterator = tf.data.make_initializable_iterator(make())
        fetches = flat(iterator.get_next())
        with tf.Session(graph=graph) as session:
            theirs = [drawn(session.run, fetches, [iterator.initializer]) for _ in range(times)]
    assert ours == theirs
    assert all(len(found) < ELEMENTS_MAX for found in ours)
    if expected is not None:
        assert ours[0][:len(expected)] == expected


def csv_file(path):
    text = "a,b,c\n" + "".join(f'{i},{i / 2},"x,{i}"\n' for i in range(7)) + "8,,\n"
    name = os.path.join(str(path), "data.csv")
    with open(name, "w") as file:
        file.write(text)
    return name


def examples():
    def one(i):
        feature = {
            "x": tf.train.Feature(int64_list=tf.train.Int64List(value=[i, i + 1])),
            "s": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"v"] * (i % 3))),
        }
        return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
    return [one(i) for i in range(6)]


def fails_on(number):
    return lambda x: tf.check_numerics(tf.where(tf.equal(x, number), np.nan, tf.cast(x, tf.float32)), "bad")


def lengths(x):
    return tf.fill([x % 5 + 1], x)


PIPELINES = {
    "window": lambda: Dataset.range(7).window(3, shift=2, drop_remainder=False).flat_map(lambda w: w.batch(3)),
    "window_stride": lambda: Dataset.range(9).window(3, 1, 2, True).flat_map(lambda w: w.batch(3)),
    "window_pair": lambda: Dataset.zip((Dataset.range(5), Dataset.range(5, 10))).window(2).flat_map(
        lambda a, b: Dataset.zip((a.batch(2), b.batch(2)))),
    "group_by_window": lambda: Dataset.range(10).apply(E.group_by_window(lambda x: x % 3, lambda key, w: w.batch(2), window_size=2)),
    "group_by_window_func": lambda: Dataset.range(12).apply(E.group_by_window(
        lambda x: x % 2, lambda key, w: w.batch(10), window_size_func=lambda key: key + 2)),
    "group_by_reducer": lambda: Dataset.range(10).apply(E.group_by_reducer(
        lambda x: x % 3, E.Reducer(lambda _: np.int64(0), lambda s, x: s + x, lambda s: s))),
    "bucket_by_sequence_length": lambda: Dataset.range(12).map(lengths).apply(E.bucket_by_sequence_length(
        lambda x: tf.size(x), [3, 5], [2, 2, 2])),
    "parallel_interleave": lambda: Dataset.range(5).apply(E.parallel_interleave(
        lambda x: Dataset.from_tensors(x).repeat(x + 1), cycle_length=2, block_length=2)),
    "interleave": lambda: Dataset.range(5).interleave(lambda x: Dataset.from_tensors(x).repeat(x + 1), cycle_length=3, num_parallel_calls=2),
    "sample_from_datasets": lambda: E.sample_from_datasets([Dataset.range(10), Dataset.range(100, 120)], [0.3, 0.7], seed=5),
    "scan": lambda: Dataset.range(6).apply(E.scan(np.int64(1), lambda s, x: (s + x, s * x))),
    "unique": lambda: Dataset.from_tensor_slices([1, 2, 1, 3, 2]).apply(E.unique()),
    "take_while": lambda: Dataset.range(10).apply(E.take_while(lambda x: x < 4)),
    "error_in_map": lambda: Dataset.range(6).map(fails_on(3)),
    "error_in_parallel_map": lambda: Dataset.range(6).map(fails_on(3), num_parallel_calls=2),
    "error_before_parallel_map": lambda: Dataset.range(9).map(fails_on(3)).map(lambda x: x * 2, num_parallel_calls=4),
    "error_in_map_and_batch": lambda: Dataset.range(9).apply(E.map_and_batch(fails_on(4), 3)),
    "error_before_batch": lambda: Dataset.range(9).map(fails_on(4)).batch(3),
    "error_before_prefetch": lambda: Dataset.range(6).map(fails_on(3)).prefetch(2),
    "error_before_repeat": lambda: Dataset.range(4).map(fails_on(2)).repeat(2),
    "ignored_error_in_map": lambda: Dataset.range(6).map(fails_on(3)).apply(E.ignore_errors()),
    "ignored_error_in_parallel_map": lambda: Dataset.range(6).map(fails_on(3), num_parallel_calls=2).apply(E.ignore_errors()),
    "ignored_error_in_map_and_batch": lambda: Dataset.range(9).apply(E.map_and_batch(fails_on(4), 3)).apply(E.ignore_errors()),
    "ignored_error_before_prefetch": lambda: Dataset.range(6).map(fails_on(3)).prefetch(2).apply(E.ignore_errors()),
    "error_before_filtered_batch": lambda: Dataset.range(9).map(fails_on(4)).filter(lambda x: x >= 0).batch(3),
    "error_before_padded_batch": lambda: Dataset.range(9).map(fails_on(4)).padded_batch(3, []),
    "error_before_window": lambda: Dataset.range(9).map(fails_on(4)).window(3).flat_map(lambda w: w.batch(3)),
    "error_before_take": lambda: Dataset.range(8).map(fails_on(2)).take(4),
    "error_before_skip": lambda: Dataset.range(8).map(fails_on(2)).skip(4),
    "error_before_zip": lambda: Dataset.zip((Dataset.range(8).map(fails_on(2)), Dataset.range(8))),
    "error_in_parallel_interleave": lambda: Dataset.range(4).interleave(
        lambda x: Dataset.range(4).map(fails_on(1)), cycle_length=2, num_parallel_calls=2),
    "error_of_parallel_interleave": lambda: Dataset.range(4).interleave(
        lambda x: Dataset.from_tensors(fails_on(1)(x)).repeat(2), cycle_length=2, num_parallel_calls=2),
    "error_before_parallel_interleave": lambda: Dataset.range(4).map(fails_on(1)).interleave(
        lambda x: Dataset.from_tensors(x).repeat(2), cycle_length=2, num_parallel_calls=2),
    "error_in_filter": lambda: Dataset.range(8).filter(lambda x: fails_on(2)(x) < 6),
    "error_in_scan": lambda: Dataset.range(6).apply(E.scan(np.float32(0), lambda s, x: (s + 1, fails_on(2)(x) + s))),
    "error_in_interleave": lambda: Dataset.range(4).interleave(lambda x: Dataset.range(4).map(fails_on(1)), cycle_length=2),
    "enumerate": lambda: Dataset.range(5).enumerate(3),
    "choose_from_datasets": lambda: E.choose_from_datasets(
        [Dataset.range(6), Dataset.range(100, 106)], Dataset.from_tensor_slices(np.int64([0, 1, 1, 0, 0, 0, 1]))),
    "map_and_batch": lambda: Dataset.range(7).apply(E.map_and_batch(lambda x: x * 2, 3)),
    "shuffle_and_repeat": lambda: Dataset.range(5).apply(E.shuffle_and_repeat(3, 2, seed=4)),
    "shuffle": lambda: Dataset.range(8).shuffle(4, seed=3).repeat(2),
    "random": lambda: E.RandomDataset(seed=9).take(5),
    "cardinality": lambda: Dataset.from_tensors(tf.stack([E.cardinality(Dataset.range(10).batch(3).skip(1)), E.cardinality(
        Dataset.range(3).repeat()), E.cardinality(Dataset.range(3).filter(lambda x: x > 1)), E.cardinality(
            Dataset.zip((Dataset.range(4), Dataset.range(6).shard(4, 1))))])),
    "reduce": lambda: Dataset.from_tensors(Dataset.range(6).reduce(np.int64(2), lambda s, x: s + x)),
    "get_single_element": lambda: Dataset.from_tensors(E.get_single_element(Dataset.range(3).batch(5))),
    "seeded_random_in_map": lambda: Dataset.range(4).map(lambda x: tf.random_uniform([2], seed=7)).repeat(2),
    "seeded_random_in_parallel_map": lambda: Dataset.range(1).map(lambda x: tf.random_uniform([], seed=7), num_parallel_calls=2).repeat(3),
    "flat_map_fails": lambda: Dataset.range(4).flat_map(lambda x: Dataset.from_tensors(x).map(fails_on(1))),
}


@pytest.mark.parametrize("name", list(PIPELINES))
def test_pipeline(shared_cluster, name):
    compared(shared_cluster, PIPELINES[name], times=2)


def raw(name, dataset, **arguments):
    """Returns the result of an op on a dataset, for ops that the client can't create in any other way any more."""
    spec = arguments.pop("spec", dataset.element_spec)
    types = [spec.dtype]
    made = getattr(tf.raw_ops, name)(input_dataset=dataset._variant_tensor, output_types=types, output_shapes=[spec.shape], **arguments)
    return dataset_ops.DatasetV1Adapter(dataset_ops._VariantDataset(made, spec))


NUMBERS = tf.TensorSpec([], tf.int64)
# Ops of older versions, by name: the dataset they are given and their other inputs.
OLDER = {
    **{prefix + name: (lambda: Dataset.range(4), arguments) for prefix in ("", "Experimental") for name, arguments in {
        "NonSerializableDataset": {}, "MaxIntraOpParallelismDataset": {"max_intra_op_parallelism": np.int64(1)},
        "PrivateThreadPoolDataset": {"num_threads": np.int64(1)}, "BytesProducedStatsDataset": {"tag": "bytes"},
        "LatencyStatsDataset": {"tag": "latency"}, "SleepDataset": {"sleep_microseconds": np.int64(1)},
    }.items()},
    **{prefix + "SlidingWindowDataset": (lambda: Dataset.range(7), {
        "window_size": np.int64(3), "window_shift": np.int64(2), "window_stride": np.int64(1), "spec": tf.TensorSpec([None], tf.int64),
    }) for prefix in ("", "Experimental")},
    "ExperimentalUniqueDataset": (lambda: Dataset.from_tensor_slices(np.int64([1, 2, 1, 3, 2])), {}),
    "ExperimentalUnbatchDataset": (lambda: Dataset.range(5).batch(2), {"spec": NUMBERS}),
    "ExperimentalIgnoreErrorsDataset": (lambda: Dataset.range(5).map(fails_on(2)), {}),
    "AssertCardinalityDataset": (lambda: Dataset.range(4), {"cardinality": np.int64(4)}),
    "SamplingDataset": (lambda: Dataset.range(30), {"rate": np.float32(0.5), "seed": np.int64(3), "seed2": np.int64(4)}),
}


@pytest.mark.parametrize("name", list(OLDER))
def test_op_of_an_older_version(shared_cluster, name):
    make, arguments = OLDER[name]
    compared(shared_cluster, lambda: raw(name, make(), **arguments), times=2)


def test_a_closed_queue_ends_a_map(shared_cluster):
    def drained(target, device):
        with tf.Graph().as_default(), tf.device(device):
            queue = tf.FIFOQueue(10, tf.int64, [[]])
            filled = queue.enqueue_many([np.int64([5, 6, 7])])
            closed = queue.close()
            iterator = tf.data.make_initializable_iterator(Dataset.range(10).map(lambda x: queue.dequeue() + x))
            fetch = iterator.get_next()
            with tf.Session(target) as session:
                session.run(filled)
                session.run(closed)
                return drawn(session.run, [fetch], [iterator.initializer])
    ours = drained(shared_cluster.target, WORKER)
    assert ours == drained("", None)
    assert ours == [[5], [7], [9], "end"]


@pytest.mark.parametrize("make", [
    lambda: Dataset.range(20).shuffle(5, seed=2).prefetch(2),
    lambda: Dataset.range(6).interleave(lambda x: Dataset.range(x), cycle_length=2).repeat(2).skip(1).take(25),
    lambda: Dataset.zip((Dataset.range(20), Dataset.range(3).concatenate(Dataset.range(30)))).shard(2, 1),
    lambda: Dataset.range(20).map(lambda x: x + 1, num_parallel_calls=3).apply(E.scan(np.int64(0), lambda s, x: (s + x, s))),
    lambda: Dataset.range(20).map(lambda x: x * 2).filter(lambda x: x % 3 > 0),
    lambda: Dataset.range(20).apply(E.unique()).cache().apply(E.take_while(lambda x: x < 15)),
])
def test_the_position_of_an_iterator_is_saved_and_restored(shared_cluster, tmp_path, make):
    with tf.Graph().as_default(), tf.device(WORKER):
        iterator = tf.data.make_initializable_iterator(make())
        fetch = flat(iterator.get_next())
        tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, E.make_saveable_from_iterator(iterator))
        saver = tf.train.Saver()
        with tf.Session(shared_cluster.target) as session:
            session.run(iterator.initializer)
            for _ in range(4):
                session.run(fetch)
            path = saver.save(session, os.path.join(str(tmp_path), "position"))
            rest = drawn(session.run, fetch, [])
        assert len(rest) > 3
        with tf.Session(shared_cluster.target) as session:
            session.run(iterator.initializer)
            saver.restore(session, path)
            assert drawn(session.run, fetch, []) == rest


def test_a_position_that_cannot_be_restored_says_why(shared_cluster, tmp_path):
    with tf.Graph().as_default(), tf.device(WORKER):
        iterator = tf.data.make_initializable_iterator(Dataset.range(4))
        saveable = E.make_saveable_from_iterator(iterator)
        saver = tf.train.Saver([saveable])
        with tf.Session(shared_cluster.target) as session:
            with pytest.raises(tf.errors.FailedPreconditionError, match=r"Save\(\) failed because the iterator has not been initialized"):
                saver.save(session, os.path.join(str(tmp_path), "position"))
