"""Pipelines of `ferroflow::data` yield tf.data's elements, and their graphs run in TensorFlow as well as in our sessions."""

import json
import os
import struct
import subprocess

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import harness
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

DATA = tf.data.Dataset


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Files to read, the GraphDef of every pipeline as built in Rust, and what was drawn from it there."""
    made = tmp_path_factory.mktemp("dataset_graphs")
    (made / "lines.txt").write_text("to be\nor not\r\n\nto be")
    (made / "more.txt").write_text("that is\n")
    (made / "rows.csv").write_text('n,x,name\n1,1.5,"a, b"\n2,,c\n,2.5,\n')
    (made / "numbers.bin").write_bytes(b"HH" + struct.pack("<3i", 1, -2, 258) + b"F")
    with tf.io.TFRecordWriter(str(made / "examples.tfrecord")) as writer:
        for number in range(7):
            feature = {
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[number])),
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[bytes([number, 65])])),
            }
            if number % 2:
                feature["weight"] = tf.train.Feature(float_list=tf.train.FloatList(value=[number / 2]))
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    path = harness.example("dataset_graphs")
    subprocess.run([path, str(made)], check=True)
    return made


def ragged(count):
    return DATA.range(1, count + 1).map(lambda x: tf.fill([x % 8], x))


def repeated(x):
    return DATA.from_tensors(x).repeat(x)


def csv(directory):
    lines = tf.data.TextLineDataset(str(directory / "rows.csv")).skip(1)
    return lines.map(lambda line: tf.io.decode_csv(line, [tf.constant(0, tf.int64), 0.5, "none"]))


def examples(directory):
    specification = {
        "label": tf.io.FixedLenFeature([], tf.int64), "weight": tf.io.FixedLenFeature([], tf.float32, 0.25),
        "image": tf.io.FixedLenFeature([], tf.string),
    }
    records = tf.data.TFRecordDataset(str(directory / "examples.tfrecord")).batch(3)
    parsed = records.map(lambda batch: tf.io.parse_example(batch, specification))
    return parsed.map(lambda row: (row["label"], row["weight"], row["image"]))


def by_the_graph(_):
    tf.set_random_seed(7)
    return DATA.range(8).shuffle(8, seed=11)


# The same pipelines in Python; the order of shuffled ones follows from the seeds.
PIPELINES = {
    "range": lambda _: DATA.range(3, 20, 4),
    "slices": lambda _: DATA.from_tensor_slices((np.float32([[1, 2], [3, 4], [5, 6]]), ["a", "b", "c"])),
    "tensors": lambda _: DATA.from_tensors((np.int64([1, 2]), np.int32(7))),
    "take_skip_repeat": lambda _: DATA.range(10).skip(2).take(3).repeat(2),
    "shard": lambda _: DATA.range(10).shard(3, 1),
    "concatenate": lambda _: DATA.range(3).concatenate(DATA.range(10, 12)),
    "zip": lambda _: DATA.zip((DATA.range(5), DATA.from_tensor_slices(np.float32([1, 2, 3])))),
    "enumerate": lambda _: DATA.from_tensor_slices(["x", "y"]).enumerate(5),
    "shuffle": lambda _: DATA.range(20).shuffle(7, seed=42),
    "shuffle_again": lambda _: DATA.range(8).shuffle(8, seed=3).repeat(3),
    "shuffle_once": lambda _: DATA.range(8).shuffle(8, seed=3, reshuffle_each_iteration=False).repeat(3),
    "shuffle_by_the_graph": by_the_graph,
    "batch": lambda _: DATA.range(7).batch(3),
    "batch_whole": lambda _: DATA.range(7).batch(3, drop_remainder=True),
    "padded_batch": lambda _: ragged(6).padded_batch(2, [None]),
    "padded_batch_to": lambda _: ragged(5).padded_batch(2, [8], tf.constant(-1, tf.int64), drop_remainder=True),
    "unbatch": lambda _: DATA.from_tensor_slices(np.int64([[1, 2], [3, 4]])).unbatch(),
    "window": lambda _: DATA.range(7).window(3, 2, 1, True).flat_map(lambda window: window.batch(3)),
    "cache": lambda _: DATA.range(4).cache().repeat(2),
    "prefetch": lambda _: DATA.range(4).prefetch(2),
    "map": lambda _: DATA.range(5).map(lambda x: (x * 2, x * x)),
    "map_with": lambda _: DATA.range(5).map(lambda x: x * 10),
    "parallel_map": lambda _: DATA.range(20).map(lambda x: x + 1, num_parallel_calls=4),
    "filter": lambda _: DATA.range(10).filter(lambda x: x > 6),
    "flat_map": lambda _: DATA.range(4).flat_map(repeated),
    "nested": lambda _: DATA.range(3).flat_map(lambda _: DATA.range(2).map(lambda y: y + 5)).map(lambda z: z * 3),
    "interleave": lambda _: DATA.range(5).interleave(repeated, cycle_length=2, block_length=3),
    "bucket_by_length": lambda _: ragged(12).bucket_by_sequence_length(lambda x: tf.shape(x)[0], [3, 6], [2, 3, 4]),
    "text_lines": lambda directory: tf.data.TextLineDataset([str(directory / "lines.txt"), str(directory / "more.txt")]),
    "csv": csv,
    "fixed_length_records": lambda directory: tf.data.FixedLengthRecordDataset(str(directory / "numbers.bin"), 4, 2, 1),
    "examples": examples,
}


def drawn(session, fetches):
    """Returns all elements, each component as its shape and its values."""
    elements = []
    while True:
        try:
            element = session.run(fetches)
        except tf.errors.OutOfRangeError:
            return elements
        elements.append([[list(np.shape(value)), values(value)] for value in element])


def values(value):
    # An array of bytes would lose zeros at the end of each.
    return [plain(one) for one in ([value] if isinstance(value, bytes) else np.ravel(value))]


def plain(value):
    if isinstance(value, bytes):
        return "".join(chr(byte) if 32 <= byte < 127 else ESCAPES.get(byte, f"\\x{byte:02x}") for byte in value)
    return value.item()


ESCAPES = {9: "\\t", 10: "\\n", 13: "\\r"}


@pytest.mark.parametrize("name", sorted(PIPELINES))
def test_a_pipeline_draws_what_tensorflows_does(directory, name):
    ours = json.loads((directory / f"{name}.json").read_text())
    with tf.Graph().as_default(), tf.Session() as session:
        iterator = tf.data.make_initializable_iterator(PIPELINES[name](directory))
        fetches = tf.nest.flatten(iterator.get_next())
        session.run(iterator.initializer)
        expected = drawn(session, fetches)
    assert expected and ours["elements"] == expected
    definition = tf.GraphDef.FromString((directory / f"{name}.pb").read_bytes())
    with tf.Graph().as_default() as graph, tf.Session() as session:
        tf.import_graph_def(definition, name="")
        session.run(graph.get_operation_by_name(ours["initializer"]))
        for fetches in (ours["next"], ours["next_once"]):
            tensors = [graph.get_tensor_by_name(name if ":" in name else name + ":0") for name in fetches]
            assert drawn(session, tensors) == expected


def test_every_pipeline_of_rust_is_compared(directory):
    assert {path.stem for path in directory.glob("*.pb")} == set(PIPELINES)
