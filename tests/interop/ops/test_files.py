"""Ops that read and write files, beside TensorFlow's: readers, datasets of files, checkpoints."""

import atexit
import itertools
import os
import shutil
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

import side_by_side

R = tf.raw_ops
TABLE = side_by_side.Table()
NAMES = itertools.count()
# Both sides run on this machine, so they see the same files.
FOLDER = tempfile.mkdtemp(prefix="ferroflow-files-")
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
LINES = os.path.join(FOLDER, "lines.txt")
RECORDS = os.path.join(FOLDER, "records")
SHARDS = os.path.join(FOLDER, "shard")
A = np.arange(12, dtype=np.float32).reshape(3, 4)
with open(LINES, "w") as file:
    file.write("head\none 1\ntwo 22\nthree 333\n")
with tf.python_io.TFRecordWriter(RECORDS) as writer:
    for record in (b"first", b"", b"third"):
        writer.write(record)
for shard in range(7):
    with tf.python_io.TFRecordWriter(f"{SHARDS}{shard}", options="GZIP") as writer:
        for record in range(shard * 5):
            writer.write(f"{shard}/{record}".encode())


def add(name, expression):
    TABLE.add(name, expression, gradient=False)


def after(first, make):
    with tf.control_dependencies(first if isinstance(first, list) else [first]):
        return make()


def read(given, kind, v2, path, **attrs):
    """Reads two records, then up to three more, and asks the reader how far it is."""
    reader = getattr(R, kind + v2)(shared_name=f"reader{next(NAMES)}", **attrs)
    queue = getattr(R, "FIFOQueue" + v2)(component_types=[tf.string], shapes=[[]], shared_name=f"files{next(NAMES)}")
    filled = getattr(R, "QueueEnqueueMany" + v2)(handle=queue, components=[given(np.array([path.encode()] * 2, object))])
    closed = after(filled, lambda: getattr(R, "QueueClose" + v2)(handle=queue))

    def op(name, **more):
        return getattr(R, name + v2)(reader_handle=reader, **more)

    first = after(closed, lambda: op("ReaderRead", queue_handle=queue))
    produced = after(first.value, lambda: [op("ReaderNumRecordsProduced"), op("ReaderNumWorkUnitsCompleted")])
    rest = [] if kind in ("WholeFileReader", "IdentityReader") else list(after(produced, lambda: op("ReaderReadUpTo", queue_handle=queue, num_records=tf.constant(3, tf.int64))))
    reset = after(rest or produced, lambda: op("ReaderReset"))
    return [*first, *produced, *rest, after(reset, lambda: op("ReaderNumRecordsProduced"))]


def state(given, v2="V2"):
    reader = getattr(R, "IdentityReader" + v2)(shared_name=f"reader{next(NAMES)}")
    queue = getattr(R, "FIFOQueue" + v2)(component_types=[tf.string], shapes=[[]], shared_name=f"files{next(NAMES)}")
    filled = getattr(R, "QueueEnqueueMany" + v2)(handle=queue, components=[given(np.array([b"a", b"b"], object))])
    first = after(filled, lambda: getattr(R, "ReaderRead" + v2)(reader_handle=reader, queue_handle=queue))
    saved = after(first.value, lambda: getattr(R, "ReaderSerializeState" + v2)(reader_handle=reader))
    second = after(saved, lambda: getattr(R, "ReaderRead" + v2)(reader_handle=reader, queue_handle=queue))
    restored = after(second.value, lambda: getattr(R, "ReaderRestoreState" + v2)(reader_handle=reader, state=tf.identity(saved)))
    return [saved, second.value, after(restored, lambda: getattr(R, "ReaderNumRecordsProduced" + v2)(reader_handle=reader))]


# The client makes the old form of this reader only.
add("WholeFileReader", lambda given: read(given, "WholeFileReader", "", LINES))
add("TextLineReaderV2", lambda given: read(given, "TextLineReader", "V2", LINES, skip_header_lines=1))
add("TFRecordReaderV2", lambda given: read(given, "TFRecordReader", "V2", RECORDS))
add("FixedLengthRecordReaderV2", lambda given: read(given, "FixedLengthRecordReader", "V2", LINES, record_bytes=5, header_bytes=2, footer_bytes=1))
add("WholeFileReaderV2", lambda given: read(given, "WholeFileReader", "V2", LINES))
add("IdentityReaderV2", lambda given: read(given, "IdentityReader", "V2", LINES))
add("ReaderSerializeStateV2", state)


def drawn(dataset, count):
    text = {"output_types": [tf.string], "output_shapes": [tf.TensorShape(None)]}
    iterator = R.IteratorV2(shared_name=f"file_iterator{next(NAMES)}", container="", **text)
    last, seen = R.MakeIterator(dataset=dataset, iterator=iterator), []
    for _ in range(count):
        seen += after(last, lambda: R.IteratorGetNext(iterator=iterator, **text))
        last = seen[-1]
    return seen


def name_of(given, path):
    return given(np.array([path.encode()], object))


add("TextLineDataset", lambda given: drawn(R.TextLineDataset(filenames=name_of(given, LINES), compression_type=tf.constant(""), buffer_size=tf.constant(99, tf.int64)), 3))
add("TFRecordDataset", lambda given: drawn(R.TFRecordDataset(filenames=name_of(given, RECORDS), compression_type=tf.constant(""), buffer_size=tf.constant(0, tf.int64)), 3))
FIXED = {"header_bytes": 2, "record_bytes": 5, "footer_bytes": 1, "buffer_size": 99}
add("FixedLengthRecordDatasetV2", lambda given: drawn(R.FixedLengthRecordDatasetV2(
    filenames=name_of(given, LINES), compression_type=tf.constant(""), **{key: tf.constant(value, tf.int64) for key, value in FIXED.items()}), 2))
add("ReadFile", lambda given: [R.ReadFile(filename=given(np.array(LINES.encode(), object))), R.MatchingFiles(pattern=given(np.array(FOLDER.encode() + b"/li*", object)))])


def table(given, v2):
    made = getattr(R, "HashTable" + v2)(key_dtype=tf.string, value_dtype=tf.int64, shared_name=f"file_table{next(NAMES)}")
    filled = getattr(R, "InitializeTableFromTextFile" + v2)(table_handle=made, filename=given(np.array(LINES.encode(), object)), key_index=-2, value_index=-1)
    return after(filled, lambda: getattr(R, "LookupTableFind" + v2)(table_handle=made, keys=tf.constant(["two 22", "x"]), default_value=tf.constant(-1, tf.int64)))


def saved(given):
    prefix, joined = (os.path.join(FOLDER, f"{kind}{next(NAMES)}") for kind in ("part", "joined"))
    value, lines = given(A), given(np.array([b"a", b"bc"], object))
    written = R.SaveV2(prefix=tf.constant(prefix), tensor_names=["a", "b"], shape_and_slices=["", ""], tensors=[value, lines])
    merged = after(written, lambda: R.MergeV2Checkpoints(checkpoint_prefixes=tf.constant([prefix]), destination_prefix=tf.constant(joined)))
    return after(merged, lambda: R.RestoreV2(prefix=tf.constant(joined), tensor_names=["b", "a", "a"], shape_and_slices=["", "", "3 4 1,2:-"], dtypes=[tf.string, tf.float32, tf.float32]))


def written(given):
    path = os.path.join(FOLDER, f"written{next(NAMES)}")
    done = R.WriteFile(filename=tf.constant(path), contents=given(np.array(b"text", object)))
    return after(done, lambda: R.ReadFile(filename=tf.constant(path)))


def saved_slices(given, slices):
    path = os.path.join(FOLDER, f"slices{next(NAMES)}")
    value, lines = given(A), given(np.array([b"a", b"bc"], object))
    if not slices:
        written = R.Save(filename=tf.constant(path), tensor_names=["a", "b"], data=[value, lines])
        return after(written, lambda: [R.Restore(file_pattern=tf.constant(path), tensor_name="b", dt=tf.string), R.Restore(file_pattern=tf.constant(path), tensor_name="a", dt=tf.float32)])
    written = [R.SaveSlices(filename=tf.constant(f"{path}-{part}"), tensor_names=["a", "b"], shapes_and_slices=[f"6 4 {3 * part},3:-", f"4 {2 * part},2"], data=[value, lines])
               for part in range(2)]
    return after(written, lambda: [R.RestoreSlice(file_pattern=tf.constant(path + "-?"), tensor_name=name, shape_and_slice=spec, dt=dtype)
                                   for name, spec, dtype in [("a", "", tf.float32), ("a", "6 4 2,3:1,2", tf.float32), ("b", "4 1,2", tf.string), ("b", "4 2,2", tf.string)]])


def saved_types(given):
    path = os.path.join(FOLDER, f"types{next(NAMES)}")
    types = [tf.float16, tf.float64, tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.bool, tf.complex64, tf.complex128]
    written = R.Save(filename=tf.constant(path), tensor_names=[dtype.name for dtype in types], data=[given(A, dtype) for dtype in types])
    # The newer op reads the older format, too.
    return after(written, lambda: R.RestoreV2(prefix=tf.constant(path), tensor_names=[dtype.name for dtype in types], shape_and_slices=["3 4 1,2:-"] * len(types), dtypes=types))


def shards(numbers):
    return ",".join(f"{SHARDS}{number}" for number in numbers)


for v2 in ("", "V2"):
    add(f"InitializeTableFromTextFile{v2}", lambda given, v2=v2: table(given, v2))
add("SaveV2", saved)
add("Save", lambda given: saved_slices(given, False))
add("Save/types", saved_types)
add("SaveSlices", lambda given: saved_slices(given, True))
# The order is defined in the first epoch, when one reader fills a buffer that takes all of it.
# The files are named one by one, since TensorFlow takes those of a pattern as the file system lists them.
MIXED = {"file_parallelism": 1, "file_buffer_size": 1000}
add("RecordInput", lambda given: R.RecordInput(file_pattern=RECORDS, batch_size=3, **MIXED))
add("RecordInput/shards", lambda given: R.RecordInput(file_pattern=shards(range(7)), batch_size=105, compression_type="GZIP", **MIXED))
add("RecordInput/shift", lambda given: R.RecordInput(
    file_pattern=shards([5, 2, 4, 6, 1, 3]), file_random_seed=-7, file_shuffle_shift_ratio=0.7, batch_size=105, compression_type="GZIP", **MIXED))
add("RecordInput/parallel", lambda given: tf.sort(tf.strings.to_hash_bucket_fast(
    R.RecordInput(file_pattern=SHARDS + "*", batch_size=210, compression_type="GZIP", file_parallelism=3, file_buffer_size=20), 1 << 40)))
add("WriteFile", written)

results, test_op, test_at_a_lower_level, test_beside_onednn = TABLE.tests()
