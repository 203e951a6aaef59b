"""Checkpoints in TensorFlow's first format: written by our servers for TensorFlow, and the other way round."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

WEIGHTS = np.arange(60000, dtype=np.float32).reshape(300, 200) / 7


def variables():
    """Variables by ref and by resource, one of them partitioned, and the ops that save and restore all of them."""
    made = [
        tf.get_variable("weights", initializer=tf.constant(WEIGHTS)),
        tf.get_variable("step", initializer=tf.constant(7, tf.int64), use_resource=True),
        tf.get_variable("names", initializer=tf.constant(["a", "", "longer"])),
        tf.convert_to_tensor(tf.get_variable("table", [5, 2], initializer=tf.constant_initializer(2.5), partitioner=tf.fixed_size_partitioner(2))),
    ]
    return made, lambda **options: tf.train.Saver(write_version=tf.train.SaverDef.V1, **options)


def save(target, path, **options):
    with tf.Graph().as_default(), tf.Session(target) as session:
        _, saver = variables()
        saver = saver(**options)
        session.run(tf.global_variables_initializer())
        return saver.save(session, path, write_meta_graph=False)


def restore(target, path, **options):
    with tf.Graph().as_default(), tf.Session(target) as session:
        made, saver = variables()
        saver(**options).restore(session, path)
        return session.run(made)


def check(restored):
    weights, step, names, table = restored
    np.testing.assert_array_equal(weights, WEIGHTS)
    assert step == 7 and list(names) == [b"a", b"", b"longer"]
    np.testing.assert_array_equal(table, np.full([5, 2], 2.5))


def test_both_write_the_same_file_and_read_it(cluster, tmp_path):
    target = cluster(ps=0, workers=1).target
    ours, theirs = save(target, str(tmp_path / "ours")), save("", str(tmp_path / "theirs"))
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    for path in (ours, theirs):
        check(restore(target, path))
        check(restore("", path))


def test_shards(cluster, tmp_path):
    target = cluster(ps=0, workers=1).target
    ours, theirs = save(target, str(tmp_path / "ours"), sharded=True), save("", str(tmp_path / "theirs"), sharded=True)
    for path in (ours, theirs):
        assert "?????" in path
        check(restore(target, path, sharded=True))
        check(restore("", path, sharded=True))
