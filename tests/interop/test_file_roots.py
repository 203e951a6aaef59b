"""File ops access only what `--file_root` and `--read_only` allow, each op with the real client."""

import os

import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import gen_io_ops, gen_logging_ops, gen_lookup_ops, gen_summary_ops

import harness

tf.disable_v2_behavior()


def next_of(dataset):
    return tf.data.make_one_shot_iterator(dataset).get_next()


def read_by(make_reader):
    def build(path):
        queue = tf.FIFOQueue(1, tf.string, shapes=[[]])
        with tf.control_dependencies([queue.enqueue(path)]):
            return make_reader().read(queue).value

    return build


def summary(path):
    writer = gen_summary_ops.summary_writer(shared_name="writer")
    create = gen_summary_ops.create_summary_file_writer(writer, path, 10, 1000, "")
    with tf.control_dependencies([create]):
        write = gen_summary_ops.write_scalar_summary(writer, tf.constant(1, tf.int64), "tag", 1.0)
    with tf.control_dependencies([write]):
        return gen_summary_ops.flush_summary_writer(writer)


def table(path):
    made = gen_lookup_ops.hash_table_v2(tf.string, tf.int64)
    return gen_lookup_ops.initialize_table_from_text_file_v2(made, path, -2, -1)


NAMES, SLICES = ["x"], [""]

READS = {
    "ReadFile": tf.io.read_file,
    "MatchingFiles": tf.io.matching_files,
    "MatchingFiles with a star": lambda path: tf.io.matching_files(path + "/*"),
    "RestoreV2": lambda path: gen_io_ops.restore_v2(path, ["x"], [""], [tf.float32])[0],
    "Restore": lambda path: gen_io_ops.restore(path, "x", tf.float32),
    "RestoreSlice": lambda path: gen_io_ops.restore_slice(path, "x", "", tf.float32),
    "TextLineDataset": lambda path: next_of(tf.data.TextLineDataset(path)),
    "TFRecordDataset": lambda path: next_of(tf.data.TFRecordDataset(path)),
    "FixedLengthRecordDataset": lambda path: next_of(tf.data.FixedLengthRecordDataset(path, 1)),
    "TextLineReader": read_by(tf.TextLineReader),
    "WholeFileReader": read_by(tf.WholeFileReader),
    "TFRecordReader": read_by(tf.TFRecordReader),
    "FixedLengthRecordReader": read_by(lambda: tf.FixedLengthRecordReader(1)),
    "RecordInput": lambda path: tf.raw_ops.RecordInput(file_pattern=path),
    "InitializeTableFromTextFileV2": table,
}

WRITES = {
    "WriteFile": lambda path: tf.io.write_file(path, "changed"),
    "SaveV2": lambda path: gen_io_ops.save_v2(path, NAMES, SLICES, [tf.constant(1.0)]),
    "Save": lambda path: gen_io_ops.save(path, NAMES, [tf.constant(1.0)]),
    "SaveSlices": lambda path: gen_io_ops.save_slices(path, NAMES, SLICES, [tf.constant(1.0)]),
    "MergeV2Checkpoints": lambda path: gen_io_ops.merge_v2_checkpoints([path + "-part"], path),
    "PrintV2": lambda path: gen_logging_ops.print_v2("changed", output_stream="file://" + path),
    "CreateSummaryFileWriter": summary,
    "CacheDataset": lambda path: next_of(tf.data.Dataset.range(1).cache(path)),
}


def run(target, build, path):
    """Returns the class of the error that one op ends with, or None."""
    with tf.Graph().as_default():
        out = build(path)
        with tf.Session(target) as session:
            try:
                session.run(out)
            except tf.errors.OpError as error:
                return error
    return None


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    made = tmp_path_factory.mktemp("files")
    for name in ("data", "out"):
        (made / name).mkdir()
    (made / "secret").write_text("secret\n")
    (made / "data" / "inside").write_text("inside\n")
    for name in ("link", "link.index"):
        os.symlink("../secret", made / "data" / name)
    return made


@pytest.fixture(scope="module")
def target(directory):
    roots = (f"--file_root={directory}/data:ro", f"--file_root={directory}/out")
    cluster = harness.Cluster(ps=0, workers=1, arguments=roots)
    yield cluster.target
    cluster.stop()


@pytest.mark.parametrize("op", READS)
def test_an_op_reads_only_beneath_a_root(target, directory, op):
    for path in ("secret", "data/../secret", "data/link"):
        error = run(target, READS[op], f"{directory}/{path}")
        assert isinstance(error, tf.errors.PermissionDeniedError), f"{path}: {error}"
        assert "--file_root" in error.message
    allowed = run(target, READS[op], f"{directory}/data/inside")
    assert not isinstance(allowed, tf.errors.PermissionDeniedError), allowed


@pytest.mark.parametrize("op", WRITES)
def test_an_op_writes_only_beneath_a_root_that_may_be_written(target, directory, op):
    for path in ("new", "out/../new", "data/new"):
        error = run(target, WRITES[op], f"{directory}/{path}")
        assert isinstance(error, tf.errors.PermissionDeniedError), f"{path}: {error}"
    allowed = run(target, WRITES[op], f"{directory}/out/{op}")
    # There is nothing to merge.
    assert allowed is None or op == "MergeV2Checkpoints" and isinstance(allowed, tf.errors.NotFoundError), allowed
    assert sorted(os.listdir(directory)) == ["data", "out", "secret"]
    assert sorted(os.listdir(directory / "data")) == ["inside", "link", "link.index"]


def test_a_server_that_only_reads(directory):
    cluster = harness.Cluster(ps=0, workers=1, arguments=("--read_only",))
    try:
        assert run(cluster.target, tf.io.read_file, f"{directory}/secret") is None
        for op, build in WRITES.items():
            error = run(cluster.target, build, f"{directory}/{op}")
            assert isinstance(error, tf.errors.PermissionDeniedError), f"{op}: {error}"
            assert "--read_only" in error.message
    finally:
        cluster.stop()
    assert sorted(os.listdir(directory)) == ["data", "out", "secret"]


def test_a_root_that_is_missing_is_said(tmp_path):
    started = harness.Process("server", [harness.ferroflow_bin(), "server", f"--file_root={tmp_path}/missing"])
    started.start()
    assert started.wait() != 0
    assert f"--file_root: {tmp_path}/missing; No such file or directory" in started.log()
