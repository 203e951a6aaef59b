"""The ops of crates/ops/src/dataset and function beside TensorFlow's."""

import itertools

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.framework import function

import side_by_side

R = tf.raw_ops
TABLE = side_by_side.Table()
NAMES = itertools.count()
A = np.random.RandomState(23).uniform(-1, 1, (3, 4)).astype(np.float32)
INT = {"output_types": [tf.int64], "output_shapes": [tf.TensorShape(None)]}


def add(name, expression, **more):
    TABLE.add(name, expression, gradient=False, **more)


def after(first, make):
    with tf.control_dependencies([first]):
        return make()


def long(value):
    return tf.constant(value, tf.int64)


def numbers(stop=6):
    return R.RangeDataset(start=long(0), stop=long(stop), step=long(1), **INT)


def drawn(dataset, count=2, types=(tf.int64,), op="IteratorGetNext"):
    """Makes an iterator and returns its first elements."""
    shapes = [tf.TensorShape(None)] * len(types)
    iterator = R.IteratorV2(shared_name=f"iterator{next(NAMES)}", container="", output_types=list(types), output_shapes=shapes)
    last, seen = R.MakeIterator(dataset=dataset, iterator=iterator), []
    for _ in range(count):
        element = after(last, lambda: getattr(R, op)(iterator=iterator, output_types=list(types), output_shapes=shapes))
        last = element[0]
        seen += element
    return seen


@function.Defun(tf.int64)
def doubled(x):
    return x * 2


@function.Defun(tf.int64)
def is_odd(x):
    return tf.equal(x % 2, 1)


@function.Defun(tf.int64)
def repeated(x):
    return R.RepeatDataset(input_dataset=R.TensorDataset(components=[x], output_shapes=[[]]), count=long(2), **INT)


DATASETS = {
    "RangeDataset": lambda: numbers(),
    "BatchDatasetV2": lambda: R.BatchDatasetV2(input_dataset=numbers(5), batch_size=long(3), drop_remainder=tf.constant(False), **INT),
    "ParallelBatchDataset": lambda: R.ParallelBatchDataset(input_dataset=numbers(5), batch_size=long(3), num_parallel_calls=long(2), drop_remainder=tf.constant(False), **INT),
    "CacheDataset": lambda: R.CacheDataset(input_dataset=numbers(), filename=tf.constant(""), **INT),
    "ConcatenateDataset": lambda: R.ConcatenateDataset(input_dataset=numbers(1), another_dataset=numbers(3), **INT),
    "FilterDataset": lambda: R.FilterDataset(input_dataset=numbers(), other_arguments=[], predicate=is_odd, **INT),
    "FlatMapDataset": lambda: R.FlatMapDataset(input_dataset=numbers(), other_arguments=[], f=repeated, **INT),
    "InterleaveDataset": lambda: R.InterleaveDataset(input_dataset=numbers(), other_arguments=[], cycle_length=long(2), block_length=long(1), f=repeated, **INT),
    "ParallelInterleaveDatasetV2": lambda: R.ParallelInterleaveDatasetV2(
        input_dataset=numbers(), other_arguments=[], cycle_length=long(2), block_length=long(1), num_parallel_calls=long(2), f=repeated, **INT),
    "ParallelInterleaveDatasetV3": lambda: R.ParallelInterleaveDatasetV3(
        input_dataset=numbers(), other_arguments=[], cycle_length=long(2), block_length=long(1), num_parallel_calls=long(2), f=repeated, **INT),
    "ParallelInterleaveDatasetV4": lambda: R.ParallelInterleaveDatasetV4(
        input_dataset=numbers(), other_arguments=[], cycle_length=long(2), block_length=long(1), buffer_output_elements=long(1), prefetch_input_elements=long(1),
        num_parallel_calls=long(2), f=repeated, **INT),
    "MapDataset": lambda: R.MapDataset(input_dataset=numbers(), other_arguments=[], f=doubled, **INT),
    "ParallelMapDataset": lambda: R.ParallelMapDataset(input_dataset=numbers(), other_arguments=[], num_parallel_calls=tf.constant(2), f=doubled, **INT),
    "ParallelMapDatasetV2": lambda: R.ParallelMapDatasetV2(input_dataset=numbers(), other_arguments=[], num_parallel_calls=long(2), f=doubled, **INT),
    "MapAndBatchDataset": lambda: R.MapAndBatchDataset(
        input_dataset=numbers(), other_arguments=[], batch_size=long(2), num_parallel_calls=long(2), drop_remainder=tf.constant(False), f=doubled, **INT),
    "PaddedBatchDatasetV2": lambda: R.PaddedBatchDatasetV2(
        input_dataset=numbers(), batch_size=long(2), padded_shapes=[tf.zeros([0], tf.int64)], padding_values=[long(0)], drop_remainder=tf.constant(True), output_shapes=[[None]]),
    "PrefetchDataset": lambda: R.PrefetchDataset(input_dataset=numbers(), buffer_size=long(2), **INT),
    "RepeatDataset": lambda: R.RepeatDataset(input_dataset=numbers(1), count=long(3), **INT),
    "ShardDataset": lambda: R.ShardDataset(input_dataset=numbers(), num_shards=long(2), index=long(1), **INT),
    "ShuffleDataset": lambda: R.ShuffleDataset(input_dataset=numbers(), buffer_size=long(4), seed=long(3), seed2=long(4), **INT),
    "ShuffleAndRepeatDataset": lambda: R.ShuffleAndRepeatDataset(input_dataset=numbers(), buffer_size=long(4), seed=long(3), seed2=long(4), count=long(2), **INT),
    "SkipDataset": lambda: R.SkipDataset(input_dataset=numbers(), count=long(2), **INT),
    "TakeDataset": lambda: R.TakeDataset(input_dataset=numbers(), count=long(2), **INT),
    "TensorDataset": lambda: R.RepeatDataset(input_dataset=R.TensorDataset(components=[long([1, 2])], output_shapes=[[2]]), count=long(2), **INT),
    "TensorSliceDataset": lambda: R.TensorSliceDataset(components=[long([5, 6, 7])], output_shapes=[[]]),
    "UnbatchDataset": lambda: R.UnbatchDataset(input_dataset=R.TensorSliceDataset(components=[long([[5, 6], [7, 8]])], output_shapes=[[2]]), **INT),
    "OptionsDataset": lambda: R.OptionsDataset(input_dataset=numbers(), serialized_options="", **INT),
    "ModelDataset": lambda: R.ModelDataset(input_dataset=numbers(), **INT),
    "FinalizeDataset": lambda: R.FinalizeDataset(input_dataset=numbers(), **INT),
}
for name, make in DATASETS.items():
    add(name, lambda given, make=make: drawn(make()))
add("ZipDataset", lambda given: drawn(R.ZipDataset(
    input_datasets=[numbers(), numbers(3)], output_types=[tf.int64, tf.int64], output_shapes=[tf.TensorShape(None)] * 2), types=(tf.int64, tf.int64)))
add("OptimizeDataset", lambda given: drawn(R.OptimizeDataset(input_dataset=numbers(), optimizations=given(np.zeros(0, object), tf.string), **INT)))
add("IteratorGetNextSync", lambda given: drawn(numbers(), op="IteratorGetNextSync"))


def optional(given):
    iterator = R.IteratorV2(shared_name=f"iterator{next(NAMES)}", container="", **INT)
    made = R.MakeIterator(dataset=numbers(1), iterator=iterator)
    first = after(made, lambda: R.IteratorGetNextAsOptional(iterator=iterator, **INT))
    has_first = R.OptionalHasValue(optional=first)
    second = after(has_first, lambda: R.IteratorGetNextAsOptional(iterator=iterator, **INT))
    mine = R.OptionalFromValue(components=[given(A)])
    return [has_first, *R.OptionalGetValue(optional=first, **INT), R.OptionalHasValue(optional=second), R.OptionalHasValue(optional=R.OptionalNone()),
            *R.OptionalGetValue(optional=mine, output_types=[tf.float32], output_shapes=[[3, 4]])]


add("Optional", optional)


def by_handle(v2):
    iterator = R.Iterator(shared_name=f"iterator{next(NAMES)}", container="", **INT)
    made = R.MakeIterator(dataset=numbers(), iterator=iterator)
    text = after(made, lambda: R.IteratorToStringHandle(resource_handle=iterator))
    again = getattr(R, "IteratorFromStringHandle" + v2)(string_handle=text, **INT)
    return R.IteratorGetNext(iterator=again, **INT)


add("IteratorFromStringHandle", lambda given: by_handle(""))
add("IteratorFromStringHandleV2", lambda given: by_handle("V2"))


# Functions.
@function.Defun(tf.float32)
def plus_one(x):
    return x + 1.0


@function.Defun(tf.float32)
def times_two(x):
    return x * 2.0


@function.Defun(tf.float32)
def is_small(x):
    return tf.reduce_sum(x) < 100.0


@function.Defun(tf.int32, tf.float32)
def add_index(i, x):
    return x + tf.cast(i, tf.float32)


FLOAT = {"Tout": [tf.float32]}
add("If", lambda given: [getattr(R, op)(cond=given(np.array(flag)), input=[given(A)], then_branch=plus_one, else_branch=times_two, **FLOAT)[0]
                         for op in ("If", "StatelessIf") for flag in (True, False)])
add("Case", lambda given: [getattr(R, op)(branch_index=given(np.int32(index)), input=[given(A)], branches=[plus_one, times_two], **FLOAT)[0]
                           for op in ("Case", "StatelessCase") for index in (0, 1, 7)])
add("While", lambda given: [getattr(R, op)(input=[given(A + 2)], cond=is_small, body=times_two)[0] for op in ("While", "StatelessWhile")])
add("For", lambda given: R.For(start=given(np.int32(1)), limit=given(np.int32(6)), delta=given(np.int32(2)), input=[given(A)], body=add_index)[0])
add("calls", lambda given: [R.PartitionedCall(args=[given(A)], f=times_two, **FLOAT)[0], R.StatefulPartitionedCall(args=[given(A)], f=plus_one, **FLOAT)[0]])

results, test_op, test_at_a_lower_level, test_beside_onednn = TABLE.tests()
