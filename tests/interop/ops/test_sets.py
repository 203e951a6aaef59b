"""Sets, ragged tensors, Unicode, and vocabularies that change, beside TensorFlow's."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import side_by_side

TABLE = side_by_side.Table()
op, add = TABLE.op, TABLE.add

# Sets in the last dimension.
FIRST = np.array([[[1, 2, 2], [3, 4, 5]], [[7, 7, 7], [0, 1, 2]]])
SECOND = np.array([[[2, 9], [5, 3]], [[1, 8], [2, 2]]])
INDICES = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 1, 0], [1, 1, 2]])
VALUES = np.array([2, 9, 5, 1, 1])
for operation in ("a-b", "b-a", "intersection", "union"):
    op("DenseToDenseSetOperation", operation, set1=FIRST, set2=SECOND, set_operation=operation)
    op("DenseToSparseSetOperation", operation, set1=FIRST, set2_indices=INDICES, set2_values=VALUES, set2_shape=np.array([2, 2, 3]), set_operation=operation)
    op("SparseToSparseSetOperation", operation, set1_indices=INDICES, set1_values=VALUES, set1_shape=np.array([2, 2, 3]),
       set2_indices=INDICES[1:], set2_values=VALUES[:-1], set2_shape=np.array([2, 2, 4]), set_operation=operation)
op("SetSize", set_indices=INDICES, set_values=VALUES, set_shape=np.array([2, 2, 3]))
op("DenseToDenseSetOperation", "empty", [tf.int32], set1=np.zeros((2, 0)), set2=np.ones((2, 3)), set_operation="union")

# Ragged tensors.
SPLITS = np.array([0, 2, 2, 5])
for splits in (tf.int32, tf.int64):
    add(f"RaggedTensorToSparse/{splits.name}", lambda given, splits=splits: tf.raw_ops.RaggedTensorToSparse(
        rt_nested_splits=[given([0, 1, 3], splits), given(SPLITS, splits)], rt_dense_values=given(np.arange(10.0).reshape(5, 2))))
    add(f"RaggedRange/{splits.name}", lambda given, splits=splits: [tf.raw_ops.RaggedRange(
        starts=given([0, 5, 9], dtype), limits=given([4, 5, 2], dtype), deltas=given([1, 1, -3], dtype), Tsplits=splits)
        for dtype in (tf.int32, tf.int64, tf.float32, tf.float64)], gradient=False)
    add(f"RaggedGather/{splits.name}", lambda given, splits=splits: tf.raw_ops.RaggedGather(
        params_nested_splits=[given([0, 1, 3], splits), given(SPLITS, splits)], params_dense_values=given(np.arange(10.0).reshape(5, 2)),
        indices=given([[1, 0], [1, 1]]), OUTPUT_RAGGED_RANK=3), gradient=False)
    for shape in (-1, [-1, -1], [2, 4], [4, 1]):
        for dtype in (tf.float32, tf.string, tf.bool):
            add(f"RaggedTensorToTensor/{splits.name}_{shape}_{dtype.name}", lambda given, splits=splits, shape=shape, dtype=dtype: tf.raw_ops.RaggedTensorToTensor(
                shape=tf.constant(shape, tf.int64) if shape == -1 else given(np.array(shape), tf.int64), values=given(np.arange(1.0, 6.0), dtype), default_value=given(0.0, dtype),
                row_partition_tensors=[given(SPLITS, splits)], row_partition_types=["ROW_SPLITS"]))
add("RaggedTensorToTensor/row_ids", lambda given: tf.raw_ops.RaggedTensorToTensor(
    shape=given(np.array([-1, -1, 3]), tf.int32), values=given(np.arange(5.0)), default_value=given(7.0),
    row_partition_tensors=[given(3), given([0, 2, 2, 2]), given([0, 1, 1, 1, 3])], row_partition_types=["FIRST_DIM_SIZE", "VALUE_ROWIDS", "VALUE_ROWIDS"]))
add("RaggedTensorToTensor/inner", lambda given: tf.raw_ops.RaggedTensorToTensor(
    shape=given(np.array([-1, 3, 2]), tf.int64), values=given(np.arange(10.0).reshape(5, 2)), default_value=given(np.array([7.0, 8.0])),
    row_partition_tensors=[given(SPLITS)], row_partition_types=["ROW_SPLITS"]))

# Fingerprints of rows.
for dtype in (tf.float32, tf.int64, tf.uint8, tf.bool, tf.string):
    add(f"Fingerprint/{dtype.name}", lambda given, dtype=dtype: [
        tf.raw_ops.Fingerprint(data=given(np.arange(24.0).reshape(shape), dtype), method=tf.constant("farmhash64")) for shape in ([24], [4, 6], [2, 3, 4])], gradient=False)
add("Fingerprint/empty", lambda given: tf.raw_ops.Fingerprint(data=given(np.zeros([0, 3])), method=tf.constant("farmhash64")), gradient=False)

# Unicode.
op("UnicodeScript", input=np.concatenate([np.arange(0x3500), np.arange(0xa000, 0x12000), np.arange(0x1b000, 0x1fc00, 7), [0x2a6d6, 0xe0100, 0x10ffff, 0x110000, -1]]))
TEXTS = np.array([b"a\xff\xfeb", b"\xe2\x82x", b"\x01\x7fz\xc3", "\u20ac\U0001f600!".encode(), b"\xed\xa0\x80q", b"", b"\xc0\x80"], object)
for errors in ("replace", "ignore"):
    for controls in (False, True):
        flags = {"errors": errors, "replace_control_characters": controls, "replacement_char": 63}
        for name in ("UnicodeDecode", "UnicodeDecodeWithOffsets"):
            # With int32, TensorFlow itself dies of offsets.
            for splits in (tf.int32, tf.int64) if name == "UnicodeDecode" else (tf.int64,):
                op(name, f"{errors}_{controls}_{splits.name}", input=TEXTS, input_encoding="UTF-8", Tsplits=splits, **flags)
        for output in ("UTF-8", "UTF-16-BE", "UTF-32-BE"):
            op("UnicodeTranscode", f"{errors}_{controls}_{output}", input=TEXTS, input_encoding="UTF-8", output_encoding=output, **flags)
    for output in ("UTF-8", "UTF-16-BE", "UTF-32-BE"):
        add(f"UnicodeEncode/{errors}_{output}", lambda given, errors=errors, output=output: tf.raw_ops.UnicodeEncode(
            input_values=given([65, 0x20ac, 0x1f600, 0x110000, 66, -1]), input_splits=given([0, 3, 3, 6], tf.int64), errors=errors,
            output_encoding=output, replacement_char=63))
OTHERS = np.array([b"a\x00\xe9b", b"\x00\x00\x00A\xd8\x00\x00", b"\x82\xa0\x81"], object)
for encoding in ("UTF-16-BE", "UTF-16LE", "UTF-32-BE", "ISO-8859-1", "US-ASCII", "shift_jis", "windows-1252", "latin1", "koi8-r"):
    op("UnicodeDecodeWithOffsets", encoding, input=OTHERS, input_encoding=encoding)

results, test_op, test_at_a_lower_level, test_beside_onednn = TABLE.tests()

UNKNOWN = tf.TensorShape(None)
FAILURES = {
    "set_rank": lambda given: tf.raw_ops.DenseToDenseSetOperation(set1=given([1, 2], shape=UNKNOWN), set2=given([1, 2], shape=UNKNOWN), set_operation="union"),
    "set_groups": lambda given: tf.raw_ops.DenseToDenseSetOperation(set1=given([[1], [2]], shape=UNKNOWN), set2=given([[1]], shape=UNKNOWN), set_operation="union"),
    "set_operation": lambda given: tf.raw_ops.DenseToDenseSetOperation(set1=given([[1]]), set2=given([[1]]), set_operation="sum"),
    "ragged_splits": lambda given: tf.raw_ops.RaggedTensorToSparse(rt_nested_splits=[given([0, 9], tf.int64)], rt_dense_values=given([1.0])),
    "ragged_start": lambda given: tf.raw_ops.RaggedTensorToSparse(rt_nested_splits=[given([1, 1], tf.int64)], rt_dense_values=given([1.0])),
    "ragged_range": lambda given: tf.raw_ops.RaggedRange(starts=given([0]), limits=given([5]), deltas=given([0])),
    "ragged_gather": lambda given: tf.raw_ops.RaggedGather(params_nested_splits=[given([0, 1], tf.int64)], params_dense_values=given([1.0]), indices=given([1]), OUTPUT_RAGGED_RANK=1),
    "unicode_strict": lambda given: tf.raw_ops.UnicodeDecode(input=given(TEXTS), input_encoding="UTF-8", errors="strict"),
    "unicode_encoding": lambda given: tf.raw_ops.UnicodeDecode(input=given(TEXTS), input_encoding="nonsense"),
    "unicode_splits": lambda given: tf.raw_ops.UnicodeEncode(input_values=given([65, 66]), input_splits=given([0, 3], tf.int64), output_encoding="UTF-8"),
    "unicode_code": lambda given: tf.raw_ops.UnicodeEncode(input_values=given([0xd800]), input_splits=given([0, 1], tf.int64), errors="strict", output_encoding="UTF-8"),
}


@pytest.mark.parametrize("name", sorted(FAILURES))
def test_failures_have_the_same_code(op_server, name):
    side_by_side.check_failure(f"test_sets {name}", FAILURES[name], op_server.target)


def test_vocabularies_that_change(op_server, tmp_path):
    """A matrix of a checkpoint is put together for other words, by both."""
    (tmp_path / "new").write_text("a\nb\nc\nd\n")
    (tmp_path / "old").write_text("c\nx\nb\n")
    with tf.Graph().as_default():
        variable = tf.Variable(np.arange(6.0, dtype=np.float32).reshape(3, 2), name="words")
        with tf.Session() as session:
            session.run(variable.initializer)
            checkpoint = tf.train.Saver([variable]).save(session, str(tmp_path / "model"))
    with tf.Graph().as_default():
        remapping, present = tf.raw_ops.GenerateVocabRemapping(
            new_vocab_file=str(tmp_path / "new"), old_vocab_file=str(tmp_path / "old"), new_vocab_offset=1, num_new_vocab=3)
        matrix = tf.raw_ops.LoadAndRemapMatrix(
            ckpt_path=checkpoint, old_tensor_name="words", row_remapping=remapping, col_remapping=tf.constant([1, -1, 0], tf.int64),
            initializing_values=[10.0, 11.0, 12.0, 13.0, 14.0], num_rows=3, num_cols=3)
        found = []
        for where in ("", op_server.target):
            with tf.Session(where) as session:
                found.append([value.tolist() for value in session.run([remapping, present, matrix])])
    assert found[0] == found[1]


def pixels(image):
    """Returns a picture's pixels: how they are compressed is up to who writes them."""
    if not image.encoded_image_string:
        return None
    with tf.Graph().as_default(), tf.Session() as session:
        return session.run(tf.io.decode_png(image.encoded_image_string)).tolist()


def test_events_that_ops_write(op_server, tmp_path):
    """The same graph writes the same events."""
    written = []
    for index, where in enumerate(("", op_server.target)):
        logdir = str(tmp_path / str(index))
        with tf.Graph().as_default(), tf.Session(where) as session:
            writer = tf.raw_ops.SummaryWriter(shared_name=f"writer{index}")
            session.run(tf.raw_ops.CreateSummaryFileWriter(
                writer=writer, logdir=logdir, max_queue=10, flush_millis=100000, filename_suffix=".x"))
            session.run(tf.raw_ops.WriteScalarSummary(writer=writer, step=np.int64(3), tag="loss", value=1.5))
            session.run(tf.raw_ops.WriteSummary(
                writer=writer, step=np.int64(4), tensor=tf.constant([1.0, 2.0]), tag="t",
                summary_metadata=tf.compat.v1.SummaryMetadata(display_name="shown").SerializeToString()))
            session.run(tf.raw_ops.WriteHistogramSummary(writer=writer, step=np.int64(5), tag="h", values=[1.0, 2.0, 2.5]))
            summary = tf.Summary(value=[tf.Summary.Value(tag="raw", simple_value=2.5)])
            session.run(tf.raw_ops.WriteRawProtoSummary(writer=writer, step=np.int64(7), tensor=summary.SerializeToString()))
            session.run(tf.raw_ops.WriteGraphSummary(
                writer=writer, step=np.int64(8), tensor=tf.get_default_graph().as_graph_def().SerializeToString()))
            session.run(tf.raw_ops.WriteImageSummary(
                writer=writer, step=np.int64(9), tag="i", tensor=np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 2, 2, 3), bad_color=[9, 9, 9, 9], max_images=1))
            session.run(tf.raw_ops.WriteAudioSummary(
                writer=writer, step=np.int64(10), tag="a", tensor=np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4), sample_rate=8000.0, max_outputs=2))
            session.run(tf.raw_ops.ImportEvent(writer=writer, event=tf.Event(step=6, wall_time=1.0).SerializeToString()))
            session.run(tf.raw_ops.FlushSummaryWriter(writer=writer))
            events = []
            for event in tf.train.summary_iterator(str(next((tmp_path / str(index)).iterdir()))):
                values = [(value.tag, value.simple_value, value.metadata.display_name, value.histo.num, list(value.histo.bucket),
                           tf.make_ndarray(value.tensor).tolist() if value.HasField("tensor") else None, pixels(value.image), value.audio.encoded_audio_string)
                          for value in event.summary.value]
                graph = [node.op for node in tf.GraphDef.FromString(event.graph_def).node]
                events.append((event.step, values, graph))
            session.run(tf.raw_ops.CloseSummaryWriter(writer=writer))
        written.append(events)
    assert len(written[0]) == 9
    assert written[0] == written[1]
