"""TensorFlow's savers on our servers: replacing a checkpoint, deleting old ones, and leftovers of killed savers."""

import glob
import os
import threading

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import harness

tf.disable_v2_behavior()


@pytest.fixture(scope="module")
def cluster():
    cluster = harness.Cluster(ps=2, workers=1, kind=harness.FERROFLOW)
    yield cluster
    cluster.stop()


class Model:
    """A variable on each ps, and a saver."""

    def __init__(self, cluster, **options):
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.values = []
            for index in range(2):
                with tf.device(f"/job:ps/task:{index}"):
                    self.values.append(tf.get_variable(f"v{index}", [1000], initializer=tf.zeros_initializer()))
            self.value = tf.placeholder(tf.float32, [])
            self.set = [tf.assign(v, tf.fill([1000], self.value)) for v in self.values]
            self.saver = tf.train.Saver(**options)
        self.session = tf.Session(cluster.target, graph=self.graph)

    def save(self, value, prefix, **options):
        self.session.run(self.set, {self.value: value})
        return self.saver.save(self.session, str(prefix), write_meta_graph=False, **options)


def names(directory):
    return sorted(os.path.basename(path) for path in glob.glob(str(directory / "*")))


@pytest.mark.parametrize("sharded", [False, True], ids=["whole", "sharded"])
def test_tensorflow_reads_and_deletes_a_checkpoint_that_was_replaced_often(cluster, tmp_path, sharded):
    model = Model(cluster, sharded=sharded, max_to_keep=1)
    for value in range(4):
        prefix = model.save(value, tmp_path / "model")
        reader = tf.train.load_checkpoint(prefix)
        for name in ["v0", "v1"]:
            assert np.array_equal(reader.get_tensor(name), np.full(1000, value, np.float32))
    assert len(names(tmp_path)) == (4 if sharded else 3), names(tmp_path)
    # The next one takes its place among those that are kept, and TensorFlow deletes its files by its own pattern.
    model.save(9, tmp_path / "other")
    assert not [name for name in names(tmp_path) if name.startswith("model")], names(tmp_path)


def test_two_clients_that_save_one_prefix_show_whole_checkpoints_only(cluster, tmp_path):
    prefix, failures = tmp_path / "model", []
    models = [Model(cluster) for _ in range(2)]
    models[0].save(0, prefix)

    def save_often(number):
        try:
            for _ in range(15):
                models[number].saver.save(models[number].session, str(prefix), write_meta_graph=False, write_state=False)
        except Exception as error:  # pylint: disable=broad-except
            failures.append(error)

    savers = [threading.Thread(target=save_often, args=[number]) for number in range(2)]
    for saver in savers:
        saver.start()
    reading = models[0].graph
    with reading.as_default():
        restored = tf.raw_ops.RestoreV2(
            prefix=str(prefix), tensor_names=["v0", "v1"], shape_and_slices=["", ""], dtypes=[tf.float32, tf.float32])
    with tf.Session(cluster.target, graph=reading) as session:
        while any(saver.is_alive() for saver in savers):
            assert [len(value) for value in session.run(restored)] == [1000, 1000]
    for saver in savers:
        saver.join()
    assert not failures
    assert len(names(tmp_path)) == 3, names(tmp_path)


def test_parts_that_were_never_merged_are_swept_by_the_next_save(tmp_path):
    cluster = harness.Cluster(ps=2, workers=1, kind=harness.FERROFLOW)
    try:
        model = Model(cluster, sharded=True)
        model.save(0, tmp_path / "model", global_step=0)
        before = names(tmp_path)
        # The part of one ps, of a save that never comes to its merge; then both ps are killed.
        for step in range(1, 4):
            name = model.saver.saver_def.filename_tensor_name
            model.session.run("save/SaveV2", {name: str(tmp_path / f"model-{step}")})
            assert [path for path in names(tmp_path) if path.startswith(f"model-{step}_temp")], names(tmp_path)
        model.session.close()
        for index in range(2):
            cluster.ps(index).kill()
            cluster.ps(index).restart()
        model = Model(cluster, sharded=True)
        model.save(4, tmp_path / "model", global_step=4)
        model.session.close()
        left = [name for name in names(tmp_path) if "-4." not in name and name != "checkpoint"]
        assert left == [name for name in before if name != "checkpoint"], names(tmp_path)
        assert np.array_equal(tf.train.load_variable(str(tmp_path / "model-4"), "v1"), np.full(1000, 4, np.float32))
    finally:
        cluster.stop()
