"""Checkpoints, records and event files are compatible between our storage and real TensorFlow, in both directions."""

import json
import os
import subprocess

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import harness
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorflow.core.util import saved_tensor_slice_pb2

import reference

tf.disable_v2_behavior()

NUMERIC = [
    tf.float32,
    tf.float64,
    tf.float16,
    tf.bfloat16,
    tf.int8,
    tf.int16,
    tf.int32,
    tf.int64,
    tf.uint8,
    tf.uint16,
    tf.uint32,
    tf.uint64,
    tf.complex64,
    tf.complex128,
    tf.bool,
]
# TensorFlow writes slices of any type, but puts only those of some types together again.
NOT_SLICED = ["numeric/float16", "numeric/uint16", "numeric/uint32", "numeric/uint64", "strings"]


@pytest.fixture(scope="session")
def tool():
    """Runs `storage_tool` and returns its output; with a `fails` it must fail with that code."""
    path = harness.example("storage_tool")

    def run(*arguments, fails=None):
        done = subprocess.run([path, *map(str, arguments)], capture_output=True, text=True)
        if fails:
            assert done.returncode == 1 and done.stderr.startswith(fails + ": "), done
            return done.stderr
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def values():
    """Tensors of every type and of odd shapes, by name."""
    generator = np.random.RandomState(1)
    tensors = {}
    for dtype in NUMERIC:
        value = generator.uniform(0, 100, size=(3, 5)).astype(dtype.as_numpy_dtype)
        tensors[f"numeric/{dtype.name}"] = value
    tensors["scalar"] = np.float32(2.5)
    tensors["empty"] = np.zeros((0, 4), np.float32)
    tensors["large"] = generator.normal(size=(700, 1001)).astype(np.float32)
    strings = [[b"", b"hello", b"\x00\xff"], [b"x" * 5000, "é".encode(), b"\n"]]
    tensors["strings"] = np.array(strings, object)
    return tensors


def save(prefix, tensors, partitioned=False, sharded=False):
    """Saves with TensorFlow's own Saver; partitioned, everything large enough is cut into three."""
    with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(device_count={"CPU": 3})) as session:
        variables = []
        for index, (name, value) in enumerate(tensors.items()):
            value = np.asarray(value)
            dtype = tf.string if value.dtype == object else tf.as_dtype(value.dtype)
            cut = partitioned and value.ndim > 0 and value.shape[0] >= 3
            partitioner = tf.fixed_size_partitioner(3) if cut else None
            with tf.device(f"/cpu:{index % 3}"):
                variable = tf.get_variable(
                    name,
                    shape=value.shape,
                    dtype=dtype,
                    partitioner=partitioner,
                    initializer=lambda shape, value=value, dtype=dtype, partition_info=None: tf.constant(
                        part_of(value, shape, partition_info), dtype=dtype, shape=shape
                    ),
                    use_resource=False,
                )
            variables.append(variable)
        session.run(tf.global_variables_initializer())
        saver = tf.train.Saver(tf.global_variables(), sharded=sharded)
        return saver.save(session, str(prefix), write_meta_graph=False)


def part_of(value, shape, partition_info):
    if partition_info is None:
        return value
    return value[tuple(slice(start, start + size) for start, size in zip(partition_info.var_offset, shape))]


def check(prefix, tensors, skipped=()):
    """Compares a checkpoint, as TensorFlow reads it, with what was put in."""
    reader = tf.train.load_checkpoint(str(prefix))
    assert sorted(reader.get_variable_to_shape_map()) == sorted(tensors)
    for name, value in tensors.items():
        if name in skipped:
            continue
        read = np.asarray(reader.get_tensor(name))
        value = np.asarray(value)
        assert read.shape == value.shape, name
        assert read.astype(value.dtype).tolist() == value.tolist(), name
        expected = tf.string if value.dtype == object else tf.as_dtype(value.dtype)
        assert reader.get_variable_to_dtype_map()[name] == expected, name


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("sharded", [False, True])
def test_checkpoint_from_tensorflow_and_back(tool, tmp_path, partitioned, sharded):
    tensors = values()
    prefix = save(tmp_path / "theirs", tensors, partitioned, sharded)
    tool("verify", prefix)
    listed = [line.split("\t") for line in tool("ls", prefix).splitlines()]
    assert [line[0] for line in listed] == sorted(tensors)
    for name, dtype, shape, size, slices in listed:
        value = np.asarray(tensors[name])
        assert json.loads(shape) == list(value.shape)
        if value.dtype != object:
            assert int(size) == value.nbytes
            assert tf.as_dtype(dtype) == tf.as_dtype(value.dtype)
        assert len(slices.split()) == (3 if partitioned and value.ndim and value.shape[0] >= 3 else 0)
    tool("copy", prefix, tmp_path / "ours")
    tool("verify", tmp_path / "ours")
    check(tmp_path / "ours", tensors, skipped=NOT_SLICED if partitioned else ())
    restore(tmp_path / "ours", tensors, partitioned)
    # One shard means whole tensors, which TensorFlow can read whatever their type.
    tool("repartition", tmp_path / "ours", tmp_path / "whole", 1)
    check(tmp_path / "whole", tensors)


def restore(prefix, tensors, partitioned):
    """Restores as TensorFlow's Saver does, whole tensors and slices that lie otherwise than those in the file."""
    names = sorted(set(tensors) - set(NOT_SLICED if partitioned else ()))
    types = [tf.as_dtype(np.asarray(tensors[name]).dtype) for name in names]
    specs = [""] * len(names)
    names += ["large", "large"]
    types += [tf.float32, tf.float32]
    specs += ["700 1001 100,500:-", "700 1001 1,699:500,2"]
    with tf.Graph().as_default(), tf.Session() as session:
        tensors_and_slices = tf.raw_ops.RestoreV2(
            prefix=str(prefix), tensor_names=names, shape_and_slices=specs, dtypes=types
        )
        restored = session.run(tensors_and_slices)
    for name, value in zip(names[:-2], restored):
        assert value.tolist() == np.asarray(tensors[name]).tolist(), name
    assert np.array_equal(restored[-2], tensors["large"][100:600])
    assert np.array_equal(restored[-1], tensors["large"][1:, 500:502])


def test_our_shards_and_slices(tool, tmp_path):
    tensors = {name: value for name, value in values().items() if name not in NOT_SLICED}
    prefix = save(tmp_path / "theirs", tensors)
    tool("repartition", prefix, tmp_path / "ours", 3)
    assert sorted(path.name for path in tmp_path.glob("ours*")) == [
        "ours.data-00000-of-00003",
        "ours.data-00001-of-00003",
        "ours.data-00002-of-00003",
        "ours.index",
    ]
    check(tmp_path / "ours", tensors)
    # And once more by ourselves, from slices to slices that lie otherwise.
    tool("repartition", tmp_path / "ours", tmp_path / "again", 2)
    check(tmp_path / "again", tensors)


def test_tensorflow_merges_our_shards(tool, tmp_path):
    ours, theirs = {"a": np.arange(10)}, {"b": np.ones((2, 2), np.float32)}
    tool("copy", save(tmp_path / "x", ours), tmp_path / "m_temp" / "part-00000-of-00002")
    save(tmp_path / "m_temp" / "part-00001-of-00002", theirs)
    parts = [str(tmp_path / "m_temp" / f"part-0000{index}-of-00002") for index in range(2)]
    with tf.Graph().as_default(), tf.Session() as session:
        session.run(tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=str(tmp_path / "m")))
    check(tmp_path / "m", {**ours, **theirs})
    tool("verify", tmp_path / "m")


def test_we_merge_their_shards(tool, tmp_path):
    first, second = {"a": np.arange(10)}, {"b": np.ones((2, 2), np.float32)}
    parts = [save(tmp_path / name, tensors) for name, tensors in [("x", first), ("y", second)]]
    tool("merge", tmp_path / "m", *parts)
    check(tmp_path / "m", {**first, **second})


def test_saving_again_under_the_same_prefix(tool, tmp_path):
    for round in range(3):
        tensors = {"a": np.full(10, round)}
        tool("copy", save(tmp_path / "x", tensors), tmp_path / "ours")
        check(tmp_path / "ours", tensors)
        assert len(list(tmp_path.glob("ours*"))) == 2


def test_damaged_checkpoints(tool, tmp_path):
    prefix = save(tmp_path / "m", values())
    data, index = prefix + ".data-00000-of-00001", prefix + ".index"
    original = {path: open(path, "rb").read() for path in (data, index)}

    def damage(path, content):
        for name, bytes in original.items():
            open(name, "wb").write(content if name == path else bytes)

    damage(data, original[data][:-1])
    assert "is truncated" in tool("verify", prefix, fails="DATA_LOSS")
    damage(data, original[data][:1000] + b"\x55" + original[data][1001:])
    assert "Checksum does not match" in tool("verify", prefix, fails="DATA_LOSS")
    damage(index, original[index][:-1])
    assert "bad magic number" in tool("ls", prefix, fails="DATA_LOSS")
    damage(index, original[index][:20] + b"\x55" + original[index][21:])
    assert "block checksum mismatch" in tool("ls", prefix, fails="DATA_LOSS")
    damage(None, None)
    tool("verify", prefix)
    os.remove(data)
    assert "No such file or directory" in tool("verify", prefix, fails="NOT_FOUND")
    assert "No such file or directory" in tool("ls", tmp_path / "none", fails="NOT_FOUND")


def test_checkpoint_state(tool, tmp_path):
    odd = tmp_path / 'quote"\'é\n\x01'
    odd.mkdir()
    prefixes = [save(odd / f"m-{step}", {"a": np.arange(step)}) for step in (1, 2)]
    assert tool("latest", odd) == prefixes[1] + "\n" == tf.train.latest_checkpoint(str(odd)) + "\n"
    (odd / "checkpoint").unlink()
    assert tool("latest", odd) == "\n"
    tool("update", odd, prefixes[1], prefixes[0])
    assert tf.train.latest_checkpoint(str(odd)) == prefixes[0]
    assert list(tf.train.get_checkpoint_state(str(odd)).all_model_checkpoint_paths) == prefixes[::-1]
    assert tool("latest", odd) == prefixes[0] + "\n"
    # To the byte, also with what TensorFlow takes for a pattern when it looks for the files.
    prefixes.append(str(odd / "back\\slash"))
    tf.train.update_checkpoint_state(str(odd), prefixes[-1], prefixes)
    theirs = (odd / "checkpoint").read_bytes()
    tool("update", odd, *prefixes)
    assert (odd / "checkpoint").read_bytes() == theirs


def records():
    generator = np.random.RandomState(2)
    return [generator.bytes(size) for size in [0, 1, 10, 1000, 300000, 7]]


@pytest.mark.parametrize("read_as", ["", "ZLIB", "GZIP"])
@pytest.mark.parametrize("write_as", ["", "ZLIB", "GZIP"])
def test_records(tool, tmp_path, read_as, write_as):
    theirs, ours = str(tmp_path / "theirs"), str(tmp_path / "ours")
    with tf.python_io.TFRecordWriter(theirs, options=read_as) as writer:
        for record in records():
            writer.write(record)
    tool("records", theirs, ours, read_as, write_as)
    options = tf.python_io.TFRecordOptions({"": 0, "ZLIB": 1, "GZIP": 2}[write_as])
    assert list(tf.python_io.tf_record_iterator(ours, options=options)) == records()
    if read_as == write_as == "":
        assert open(ours, "rb").read() == open(theirs, "rb").read()


def test_damaged_records_have_tensorflows_errors(tool, tmp_path):
    path = str(tmp_path / "records")
    with tf.python_io.TFRecordWriter(path) as writer:
        for record in [b"first", b"second"]:
            writer.write(record)
    content = open(path, "rb").read()
    for damaged in [
        content[:-1],
        content[:34],
        content[:25] + b"x" + content[26:],
        content[:35] + b"x" + content[36:],
        b"x" + content[1:],
    ]:
        open(path, "wb").write(damaged)
        with tf.Graph().as_default() as graph:
            record = tf.data.make_one_shot_iterator(tf.data.TFRecordDataset(path)).get_next()
        with reference.Session(graph) as session, pytest.raises(tf.errors.DataLossError) as theirs:
            while True:
                session.run(record)
        ours = tool("records", path, tmp_path / "copy", "", "", fails="DATA_LOSS")
        message = ours.removeprefix("DATA_LOSS: ").strip()
        assert message in theirs.value.message
    # TensorFlow takes half a header for the end of the file, and silently loses the record. We don't.
    open(path, "wb").write(content[:30])
    assert "truncated record at 21" in tool("records", path, tmp_path / "copy", "", "", fails="DATA_LOSS")


def test_event_files(tool, tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        scalar = tf.summary.scalar("loss", tf.constant(0.25))
        histogram = tf.summary.histogram("weights", tf.constant([1.0, 2.0, 3.0]))
        summary = session.run(tf.summary.merge([scalar, histogram]))
        writer = tf.summary.FileWriter(str(tmp_path / "theirs"), session.graph)
        writer.add_summary(summary, 7)
        writer.add_session_log(tf.SessionLog(status=tf.SessionLog.START), 8)
        writer.close()
    [theirs] = map(str, (tmp_path / "theirs").iterdir())
    ours = tool("events", theirs, tmp_path / "ours").strip()
    assert os.path.basename(ours).startswith("events.out.tfevents.")
    assert os.path.basename(ours).split(".")[3].isdigit()
    their_events = list(tf.train.summary_iterator(theirs))
    our_events = list(tf.train.summary_iterator(ours))
    assert our_events[0].file_version == "brain.Event:2"
    assert our_events[1:] == their_events[1:] and len(our_events) > 3
    # TensorBoard splits an event with two summaries; the same file gives the same either way.
    loaded, expected = ([repr(event) for event in EventFileLoader(path).Load()][1:] for path in (ours, theirs))
    assert loaded == expected and len(loaded) > 3
    content = open(theirs, "rb").read()
    open(theirs, "wb").write(content[:-3])
    assert "truncated record" in tool("events", theirs, tmp_path / "more", fails="DATA_LOSS")


def test_a_table_of_many_blocks(tool, tmp_path):
    """A checkpoint in the old format is a table too, one with the values in it."""
    path = str(tmp_path / "old")
    with tf.Graph().as_default(), tf.Session() as session:
        for index in range(40):
            tf.get_variable(f"v{index:02}", initializer=tf.fill([5000], float(index)))
        session.run(tf.global_variables_initializer())
        tf.train.Saver(write_version=tf.train.SaverDef.V1).save(session, path, write_meta_graph=False)
    entries = [[bytes.fromhex(part) for part in line.split(" ")] for line in tool("table", path).splitlines()]
    assert entries[0][0] == b"" and len(entries) == 41
    for index, (key, value) in enumerate(entries[1:]):
        data = saved_tensor_slice_pb2.SavedTensorSlices.FromString(value).data
        assert data.name == f"v{index:02}" and data.name.encode() in key
        assert list(data.data.float_val) == [index] * 5000
    # It is no bundle, and we say so.
    os.rename(path, path + ".index")
    assert "Unable to read file" in tool("ls", path, fails="DATA_LOSS")
