"""Older, experimental and anonymous names of dataset ops beside TensorFlow's."""

import itertools

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.framework import function

import side_by_side

R = tf.raw_ops
TABLE = side_by_side.Table()
NAMES = itertools.count()
INT = {"output_types": [tf.int64], "output_shapes": [tf.TensorShape(None)]}


def add(name, expression):
    TABLE.add(name, expression, gradient=False)


def after(first, make):
    with tf.control_dependencies([first]):
        return make()


def long(value):
    return tf.constant(value, tf.int64)


def numbers(stop=6):
    return R.RangeDataset(start=long(0), stop=long(stop), step=long(1), **INT)


def texts(*values):
    return R.TensorSliceDataset(components=[tf.constant(values, tf.int64)], output_shapes=[[]])


def named_iterator():
    return R.IteratorV2(shared_name=f"names{next(NAMES)}", container="", **INT)


def elements(dataset, iterator, count=3):
    """Returns the first elements; they are read one after the other."""
    last, seen = R.MakeIterator(dataset=dataset, iterator=iterator), []
    for _ in range(count):
        [last] = after(last, lambda: R.IteratorGetNext(iterator=iterator, **INT))
        seen.append(last)
    return seen


def drawn(dataset, count=3):
    return elements(dataset, named_iterator(), count)


@function.Defun(tf.int64)
def doubled(x):
    return x * 2


@function.Defun(tf.int64)
def is_small(x):
    return x < 2


@function.Defun(tf.int64)
def third(x):
    return x // 3


@function.Defun(tf.int64)
def repeated(x):
    return R.RepeatDataset(input_dataset=R.TensorDataset(components=[x], output_shapes=[[]]), count=long(2), **INT)


@function.Defun(tf.int64)
def two(unused):
    return long(2)


@function.Defun(tf.int64, tf.variant)
def as_batch(unused, window):
    return R.BatchDatasetV2(input_dataset=window, batch_size=long(2), drop_remainder=tf.constant(False), **INT)


@function.Defun(tf.int64)
def zero(unused):
    return long(0)


@function.Defun(tf.int64, tf.int64)
def added(x, y):
    return x + y


@function.Defun(tf.int64, tf.int64)
def added_and_shown(x, y):
    return x + y, x * 10 + y


@function.Defun(tf.int64)
def itself(x):
    return tf.identity(x)


MAPPED = {"other_arguments": [], "f": doubled}
DATASETS = {
    "ExperimentalMapAndBatchDataset": lambda: R.ExperimentalMapAndBatchDataset(
        input_dataset=numbers(), batch_size=long(2), num_parallel_calls=long(2), drop_remainder=tf.constant(False), **MAPPED, **INT),
    "ExperimentalTakeWhileDataset": lambda: R.ExperimentalTakeWhileDataset(input_dataset=numbers(), other_arguments=[], predicate=is_small, **INT),
    "ExperimentalScanDataset": lambda: R.ExperimentalScanDataset(
        input_dataset=numbers(), initial_state=[long(5)], other_arguments=[], f=added_and_shown, **INT),
    "RandomDatasetV2": lambda: R.RandomDatasetV2(seed=long(3), seed2=long(4), seed_generator=R.DummySeedGenerator(), **INT),
    "RandomDatasetV2/anonymous": lambda: R.RandomDatasetV2(
        seed=long(3), seed2=long(4), rerandomize_each_iteration=True,
        seed_generator=R.AnonymousSeedGenerator(seed=long(5), seed2=long(6), reshuffle=tf.constant(True)).handle, **INT),
    "ExperimentalDirectedInterleaveDataset": lambda: R.ExperimentalDirectedInterleaveDataset(
        selector_input_dataset=texts(1, 0, 1), data_input_datasets=[numbers(), texts(7, 8)], **INT),
    "ExperimentalGroupByWindowDataset": lambda: R.ExperimentalGroupByWindowDataset(
        input_dataset=numbers(), key_func_other_arguments=[], reduce_func_other_arguments=[], window_size_func_other_arguments=[],
        key_func=third, reduce_func=as_batch, window_size_func=two, **INT),
    "GroupByReducerDataset": lambda: R.GroupByReducerDataset(
        input_dataset=numbers(9), key_func_other_arguments=[], init_func_other_arguments=[], reduce_func_other_arguments=[], finalize_func_other_arguments=[],
        key_func=third, init_func=zero, reduce_func=added, finalize_func=itself, **INT),
    "ParallelInterleaveDataset": lambda: R.ParallelInterleaveDataset(
        input_dataset=numbers(), other_arguments=[], cycle_length=long(2), block_length=long(1), sloppy=tf.constant(False), buffer_output_elements=long(1),
        prefetch_input_elements=long(1), f=repeated, **INT),
    "ExperimentalParallelInterleaveDataset": lambda: R.ExperimentalParallelInterleaveDataset(
        input_dataset=numbers(), other_arguments=[], cycle_length=long(2), block_length=long(2), sloppy=tf.constant(False), buffer_output_elements=long(1),
        prefetch_input_elements=long(1), f=repeated, **INT),
    "OptimizeDatasetV2": lambda: R.OptimizeDatasetV2(
        input_dataset=numbers(), optimizations_enabled=tf.constant([], tf.string), optimizations_disabled=tf.constant([], tf.string),
        optimizations_default=tf.constant([], tf.string), **INT),
    "ShuffleDatasetV3/anonymous": lambda: R.ShuffleDatasetV3(
        input_dataset=numbers(), buffer_size=long(4), seed=long(3), seed2=long(4),
        seed_generator=R.AnonymousSeedGenerator(seed=long(3), seed2=long(4), reshuffle=tf.constant(True)).handle, **INT),
    "ShuffleDatasetV3/dummy": lambda: R.ShuffleDatasetV3(
        input_dataset=numbers(), buffer_size=long(4), seed=long(3), seed2=long(4), seed_generator=R.DummySeedGenerator(), **INT),
    "ShuffleAndRepeatDatasetV2": lambda: R.ShuffleAndRepeatDatasetV2(
        input_dataset=numbers(), buffer_size=long(4), seed=long(3), seed2=long(4), count=long(2), seed_generator=R.DummySeedGenerator(), **INT),
    "CacheDatasetV2/dummy": lambda: R.CacheDatasetV2(input_dataset=numbers(), filename=tf.constant(""), cache=R.DummyMemoryCache(), **INT),
    "CacheDatasetV2/anonymous": lambda: R.CacheDatasetV2(input_dataset=numbers(), filename=tf.constant(""), cache=R.AnonymousMemoryCache().handle, **INT),
    "WrapDatasetVariant": lambda: R.UnwrapDatasetVariant(input_handle=R.WrapDatasetVariant(input_handle=numbers())),
    "ThreadPoolDataset": lambda: R.ThreadPoolDataset(
        input_dataset=numbers(), thread_pool=R.ThreadPoolHandle(num_threads=2, display_name="two", shared_name=f"pool{next(NAMES)}"), **INT),
    "ExperimentalThreadPoolDataset": lambda: R.ExperimentalThreadPoolDataset(
        input_dataset=numbers(), thread_pool=R.ExperimentalThreadPoolHandle(num_threads=2, display_name="two", shared_name=f"pool{next(NAMES)}"), **INT),
}
for name, make in DATASETS.items():
    add(name, lambda given, make=make: drawn(make(), 2))
add("ExperimentalDatasetCardinality", lambda given: [
    R.ExperimentalDatasetCardinality(input_dataset=numbers(stop)) for stop in (0, 4)])


def device_of(op):
    """Returns the name of an iterator's device, without its task."""
    iterator = named_iterator()
    made = R.MakeIterator(dataset=numbers(), iterator=iterator)
    device = after(made, lambda: getattr(R, op)(resource=iterator))
    return tf.strings.regex_replace(device, ".*/device", "")


for op in ("IteratorGetDevice", "ExperimentalIteratorGetDevice"):
    add(op, lambda given, op=op: device_of(op))


def deleted(seen, delete):
    """Returns the elements once what made them has been deleted."""
    with tf.control_dependencies(seen):
        done = delete()
    with tf.control_dependencies([done]):
        return [tf.identity(one) for one in seen]


def anonymous(version):
    made = getattr(R, "AnonymousIterator" + version)(**INT)
    if version != "V2":
        return elements(numbers(), made)
    return deleted(elements(numbers(), made.handle), lambda: R.DeleteIterator(handle=made.handle, deleter=made.deleter))


for version in ("", "V2", "V3"):
    add("AnonymousIterator" + version, lambda given, version=version: anonymous(version))


add("DummyIterationCounter", lambda given: tf.shape(R.DummyIterationCounter()) + given(np.zeros(0, np.int32)))

results, test_op, test_at_a_lower_level, test_beside_onednn = TABLE.tests()
