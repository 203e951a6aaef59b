"""Datasets of files and of sparse and ragged tensors beside TensorFlow's, and random numbers of parameters."""

import atexit
import itertools
import pathlib
import shutil
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.framework import function

import side_by_side

R = tf.raw_ops
TABLE = side_by_side.Table()
NAMES = itertools.count()
DIRECTORY = pathlib.Path(tempfile.mkdtemp(prefix="ferroflow-datasets-"))
atexit.register(shutil.rmtree, DIRECTORY, ignore_errors=True)


def add(name, expression, **more):
    TABLE.add(name, expression, gradient=False, **more)


def long(value):
    return tf.constant(value, tf.int64)


def drawn(dataset, count, types):
    """Makes an iterator and returns its first elements."""
    shapes = [tf.TensorShape(None)] * len(types)
    iterator = R.IteratorV2(shared_name=f"more{next(NAMES)}", container="", output_types=list(types), output_shapes=shapes)
    last, seen = R.MakeIterator(dataset=dataset, iterator=iterator), []
    for _ in range(count):
        with tf.control_dependencies([last]):
            element = R.IteratorGetNext(iterator=iterator, output_types=list(types), output_shapes=shapes)
        last = element[0]
        seen += element
    return seen


def of(types, shapes=None):
    return {"output_types": list(types), "output_shapes": shapes or [tf.TensorShape(None)] * len(types)}


# CSV.
TABLE_TEXT = 'a,b,c\n1,2.5,"x,y"\n2,,"he said ""no""\nand left"\r\n3,1e3,z\r4,NA,\n'
(DIRECTORY / "a.csv").write_bytes(TABLE_TEXT.encode())
(DIRECTORY / "b.csv").write_bytes(b"head;er;c\n7;8;9\n10;11;last")
CSV_TYPES = [tf.int32, tf.float32, tf.string]


def csv(names, types=CSV_TYPES, op="CSVDatasetV2", **more):
    defaults = {tf.int32: tf.constant([9]), tf.float32: tf.constant([-1.0]), tf.string: tf.constant(["none"])}
    arguments = {
        "filenames": tf.constant([str(DIRECTORY / name) for name in names]), "compression_type": "", "buffer_size": long(7), "header": True, "field_delim": ",",
        "use_quote_delim": True, "na_value": "NA", "select_cols": tf.zeros([0], tf.int64), "record_defaults": [defaults[one] for one in types],
        "output_shapes": [[]] * len(types)}
    if op == "CSVDatasetV2":
        arguments["exclude_cols"] = tf.zeros([0], tf.int64)
    return getattr(R, op)(**{**arguments, **more})


for op in ("CSVDatasetV2", "CSVDataset", "ExperimentalCSVDataset"):
    add(op, lambda given, op=op: drawn(csv(["a.csv"], op=op), 4, CSV_TYPES))
add("CSVDatasetV2/two_files", lambda given: drawn(csv(["b.csv", "b.csv"], field_delim=";"), 4, CSV_TYPES))
add("CSVDatasetV2/selected", lambda given: drawn(csv(["a.csv"], [tf.int32, tf.string], select_cols=long([0, 2])), 4, [tf.int32, tf.string]))
add("CSVDatasetV2/excluded", lambda given: drawn(csv(["a.csv"], [tf.int32, tf.string], exclude_cols=long([1])), 4, [tf.int32, tf.string]))
add("CSVDatasetV2/header_as_record", lambda given: drawn(csv(["a.csv"], [tf.string] * 3, header=False), 5, [tf.string] * 3))

# Names of files, and records written to one.
for op in ("MatchingFilesDataset", "ExperimentalMatchingFilesDataset"):
    add(op, lambda given, op=op: drawn(getattr(R, op)(patterns=tf.constant([str(DIRECTORY / "*.csv"), str(DIRECTORY / "a.c?v")])), 3, [tf.string]))


def written(op, compression):
    path = DIRECTORY / f"{op}{compression}{next(NAMES)}"
    texts = R.TensorSliceDataset(components=[tf.constant(["one", "", "three" * 100])], output_shapes=[[]])
    done = getattr(R, op)(input_dataset=texts, filename=str(path), compression_type=compression)
    with tf.control_dependencies([done]):
        records = R.TFRecordDataset(filenames=tf.constant(str(path)), compression_type=compression, buffer_size=long(0))
    return drawn(records, 3, [tf.string])


for compression in ("", "GZIP", "ZLIB"):
    add(f"DatasetToTFRecord/{compression}", lambda given, compression=compression: written("DatasetToTFRecord", compression))
add("ExperimentalDatasetToTFRecord", lambda given: written("ExperimentalDatasetToTFRecord", ""))

# Sparse tensors.
SPARSE_TYPES = [tf.int64, tf.float32, tf.int64]
add("SparseTensorSliceDataset", lambda given: drawn(R.SparseTensorSliceDataset(
    indices=given([[0, 1], [0, 2], [2, 0]], tf.int64), values=given([1.0, 2.0, 3.0]), dense_shape=given([4, 3], tf.int64)), 4, SPARSE_TYPES))
add("SparseTensorSliceDataset/deep", lambda given: drawn(R.SparseTensorSliceDataset(
    indices=given([[0, 1, 1], [1, 0, 0], [1, 0, 1]], tf.int64), values=given(["a", "b", "c"]), dense_shape=given([2, 2, 2], tf.int64)), 2,
    [tf.int64, tf.string, tf.int64]))


@function.Defun(tf.int64)
def row_of(x):
    return tf.cast(tf.range(x), tf.float32)


def sparse_batches(op, row_shape):
    numbers = R.RangeDataset(start=long(0), stop=long(5), step=long(1), **of([tf.int64]))
    rows = R.MapDataset(input_dataset=numbers, other_arguments=[], f=row_of, **of([tf.float32]))
    made = getattr(R, op)(input_dataset=rows, batch_size=long(2), row_shape=long(row_shape), **of([tf.variant]))
    return [tensor for batch in drawn(made, 3, [tf.variant]) for tensor in R.DeserializeSparse(serialized_sparse=batch, dtype=tf.float32)]


for op in ("DenseToSparseBatchDataset", "ExperimentalDenseToSparseBatchDataset"):
    for shape in ([6], [-1]):
        add(f"{op}/{shape}", lambda given, op=op, shape=shape: sparse_batches(op, shape))


# Examples.
def example(**features):
    made = tf.train.Example()
    for name, values in features.items():
        kind = made.features.feature[name]
        if isinstance(values[0], float):
            kind.float_list.value.extend(values)
        elif isinstance(values[0], int):
            kind.int64_list.value.extend(values)
        else:
            kind.bytes_list.value.extend(values)
    return made.SerializeToString()


EXAMPLES = [example(x=[1.5, 2.5], tags=[b"p", b"q"], n=[3], r=[1, 2]), example(x=[3.5, 4.5], n=[4], r=[5]), example(x=[0.0, 1.0], tags=[b"s"])]


def parsed(op, ragged=False):
    texts = R.TensorSliceDataset(components=[tf.constant(EXAMPLES)], output_shapes=[[]])
    batches = R.BatchDatasetV2(input_dataset=texts, batch_size=long(2), drop_remainder=tf.constant(False), **of([tf.string]))
    # The features come in the order of their names: n, r, tags, x.
    types = [tf.int64, *([tf.variant] if ragged else []), tf.variant, tf.float32]
    keys = {"ragged_keys": ["r"], "ragged_value_types": [tf.int64], "ragged_split_types": [tf.int32]} if ragged else {}
    made = getattr(R, op)(
        input_dataset=batches, num_parallel_calls=long(2), dense_defaults=[long(-1), tf.zeros([0])], sparse_keys=["tags"], dense_keys=["n", "x"],
        sparse_types=[tf.string], dense_shapes=[[], [2]], **of(types), **keys)
    found = []
    elements = drawn(made, 2, types)
    for start in range(0, len(elements), len(types)):
        element = elements[start:start + len(types)]
        found += [element[0], element[-1], *R.DeserializeSparse(serialized_sparse=element[-2], dtype=tf.string)]
        if ragged:
            splits, values = R.RaggedTensorFromVariant(
                encoded_ragged=element[1], input_ragged_rank=1, output_ragged_rank=1, Tvalues=tf.int64, Tsplits=tf.int32)
            found += [splits[0], values]
    return found


for op in ("ParseExampleDatasetV2", "ParseExampleDataset", "ExperimentalParseExampleDataset"):
    add(op, lambda given, op=op: parsed(op))
add("ParseExampleDatasetV2/ragged", lambda given: parsed("ParseExampleDatasetV2", True))


# Batches of other sizes.
def rebatched(sizes, drop):
    numbers = R.RangeDataset(start=long(0), stop=long(10), step=long(1), **of([tf.int64]))
    batches = R.BatchDatasetV2(input_dataset=numbers, batch_size=long(4), drop_remainder=tf.constant(False), **of([tf.int64]))
    return drawn(R.RebatchDatasetV2(input_dataset=batches, batch_sizes=long(sizes), drop_remainder=tf.constant(drop), **of([tf.int64])), 3, [tf.int64])


for sizes, drop in (([3], True), ([1, 5, 2], False), ([2, 3], False)):
    add(f"RebatchDatasetV2/{sizes}", lambda given, sizes=sizes, drop=drop: rebatched(sizes, drop))


# A function for each row.
@function.Defun(tf.float32, tf.int32, tf.float32)
def scaled(x, n, factor):
    return x * factor + tf.cast(n, tf.float32), tf.reduce_sum(x)


add("MapDefun", lambda given: R.MapDefun(
    arguments=[given(np.arange(12).reshape(4, 3) * 0.5), given([1, 2, 3, 4])], captured_inputs=[given(2.0)], f=scaled,
    **of([tf.float32, tf.float32], [[3], []])))
add("MapDefun/empty", lambda given: R.MapDefun(
    arguments=[given(np.zeros((0, 3))), given(np.zeros(0, np.int32))], captured_inputs=[given(2.0)], f=scaled, **of([tf.float32, tf.float32], [[3], []])))


# Ragged tensors in variants.
def ragged_round(given, splits, values, batched, ranks):
    splits = [given(one, tf.int64) for one in splits]
    variant = R.RaggedTensorToVariant(rt_nested_splits=splits, rt_dense_values=given(values), batched_input=batched)
    found = R.RaggedTensorFromVariant(encoded_ragged=variant, input_ragged_rank=ranks[0], output_ragged_rank=ranks[1], Tvalues=tf.float32, Tsplits=tf.int64)
    return [*found.output_nested_splits, found.output_dense_values]


VALUES = np.arange(10).reshape(5, 2) / 4
add("RaggedTensorToVariant/whole", lambda given: ragged_round(given, [[0, 2, 2, 5]], VALUES, False, (1, 1)))
add("RaggedTensorToVariant/batched", lambda given: ragged_round(given, [[0, 2, 2, 5]], VALUES, True, (-1, 1)))
add("RaggedTensorToVariant/two_levels", lambda given: ragged_round(given, [[0, 1, 3], [0, 2, 2, 5]], VALUES, True, (1, 2)))
add("RaggedTensorToVariant/whole_two_levels", lambda given: ragged_round(given, [[0, 1, 3], [0, 2, 2, 5]], VALUES, False, (2, 2)))
add("RaggedTensorToVariant/rows", lambda given: ragged_round(given, [], VALUES, True, (0, 1)))


def ragged_gradient(given):
    values, splits = given(np.arange(5) + 0.5), given([0, 2, 2, 5], tf.int64)
    rows = R.RaggedTensorToVariant(rt_nested_splits=[splits], rt_dense_values=values, batched_input=True)
    gradient = R.RaggedTensorToVariant(rt_nested_splits=[splits], rt_dense_values=values * 2.0, batched_input=True)
    return R.RaggedTensorToVariantGradient(encoded_ragged_grad=gradient, row_splits=splits, dense_values_shape=tf.shape(values), Tvalues=tf.float32), tf.shape(rows)


add("RaggedTensorToVariantGradient", ragged_gradient)

# Random numbers of parameters. Which half numbers are taken depends on how they are rounded on the way.
for dtype in (tf.float32, tf.float64):
    add(f"ParameterizedTruncatedNormal/one/{dtype.name}", lambda given, dtype=dtype: R.ParameterizedTruncatedNormal(
        shape=[60], means=tf.constant(0, dtype), stdevs=tf.constant(1, dtype), minvals=tf.constant(-2, dtype), maxvals=tf.constant(2, dtype), seed=3, seed2=7),
        rtol=1e-4)
    add(f"ParameterizedTruncatedNormal/rows/{dtype.name}", lambda given, dtype=dtype: R.ParameterizedTruncatedNormal(
        shape=[4, 20], means=tf.constant([0, 5, -3, 1], dtype), stdevs=tf.constant([1, 2, 0.5, 1], dtype), minvals=tf.constant([-1, 6, -100, 5], dtype),
        maxvals=tf.constant([1, 9, -3.2, 8], dtype), seed=3, seed2=7), rtol=1e-4)
for dtype in (tf.float16, tf.float32, tf.float64):
    add(f"StatelessRandomBinomial/{dtype.name}", lambda given, dtype=dtype: [R.StatelessRandomBinomial(
        shape=[30, 4], seed=given([3, 7]), counts=tf.constant([5, 20, 100, 1000], dtype), probs=tf.cast(tf.constant([0.3, 0.7, 0.2, 0.5]), dtype), dtype=output)
        for output in (tf.int32, tf.int64, tf.float32, tf.float64)])


def stateful(op, **arguments):
    state = tf.Variable(tf.constant([1, 2, 3], tf.int64), use_resource=True)
    with tf.control_dependencies([state.initializer]):
        first = getattr(R, op)(resource=state.handle, algorithm=1, shape=[20], **arguments)
    with tf.control_dependencies([first]):
        second = getattr(R, op)(resource=state.handle, algorithm=1, shape=[3], **arguments)
    with tf.control_dependencies([second]):
        return first, second, state.read_value()


# Only the first draw: TensorFlow 2.15 leaves the state as it was, so that all of its draws are the same; ours moves on.
for dtype in (tf.int64, tf.float32):
    add(f"StatefulRandomBinomial/{dtype.name}", lambda given, dtype=dtype: stateful(
        "StatefulRandomBinomial", counts=tf.constant(40.0), probs=tf.constant(0.6), dtype=dtype)[0])
for op in ("StatefulStandardNormalV2", "StatefulTruncatedNormal", "StatefulUniform"):
    for dtype in (tf.float32, tf.float64):
        add(f"{op}/{dtype.name}", lambda given, op=op, dtype=dtype: stateful(op, dtype=dtype))
for dtype in (tf.int32, tf.int64, tf.uint32, tf.uint64):
    add(f"StatefulUniformFullInt/{dtype.name}", lambda given, dtype=dtype: stateful("StatefulUniformFullInt", dtype=dtype))
for dtype in (tf.int32, tf.int64):
    add(f"StatefulUniformInt/{dtype.name}", lambda given, dtype=dtype: stateful("StatefulUniformInt", minval=tf.constant(3, dtype), maxval=tf.constant(99, dtype)))

results, test_op, test_at_a_lower_level, test_beside_onednn = TABLE.tests()
