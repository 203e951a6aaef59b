"""Checkpoints, events and datasets in an object store (`s3://`), written and read by our servers and programs.

The store is a small one in this process; with FERROFLOW_S3_PYTHON, the Python that has moto, it is moto's server. A real TensorFlow
has no file system for these paths, so these tests run against our servers only.
"""

import os
import re
import subprocess
import threading

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import harness
import object_store

tf.disable_v2_behavior()

pytestmark = pytest.mark.skipif(
    harness.default_kind() == harness.TENSORFLOW, reason="TensorFlow's servers have no s3:// without a plugin")

BUCKET = "training"
ADDRESS = re.compile(r"Running on http://([\d.]+):(\d+)")


@pytest.fixture
def store(processes):
    behind = None
    python = os.environ.get("FERROFLOW_S3_PYTHON")
    if python:
        moto = harness.Process("moto", [python, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(harness.PORTS.take())])
        processes.append(moto.start())
        host, port = moto.wait_for(ADDRESS.search, "where it is").groups()
        behind = (host, int(port))
    made = object_store.ObjectStore(behind)
    made.request("PUT", f"/{BUCKET}")
    yield made
    made.stop()


def model(size):
    initial = tf.placeholder_with_default(np.zeros(size, np.float32), [size])
    v = tf.Variable(initial, name="v")
    saver = tf.train.Saver([v], sharded=False)
    return initial, v, saver.saver_def


def save(session, saver, path):
    # `Saver.save` itself would look for the directory in the client, where TensorFlow has no such file system.
    session.run(saver.save_tensor_name, {saver.filename_tensor_name: path})


def restore(session, saver, path):
    session.run(saver.restore_op_name, {saver.filename_tensor_name: path})


def test_a_graph_saves_and_restores(cluster, store, graph):
    made = cluster(ps=0, workers=1, env=store.env)
    path = f"s3://{BUCKET}/logs/model.ckpt-1"
    initial, v, saver = model(1000)
    value = np.arange(1000, dtype=np.float32)
    with tf.Session(made.target) as session:
        session.run(v.initializer, {initial: value})
        save(session, saver, path)
        assert store.names(BUCKET) == ["logs/model.ckpt-1.data-00000-of-00001", "logs/model.ckpt-1.index"]
        session.run(v.initializer, {initial: -value})
        restore(session, saver, path)
        np.testing.assert_array_equal(session.run(v), value)
        # Once more under the same name, and the data of before is gone.
        session.run(v.initializer, {initial: 2 * value})
        save(session, saver, path)
        assert store.names(BUCKET) == ["logs/model.ckpt-1.data-00000-of-00002", "logs/model.ckpt-1.index"]
        restore(session, saver, path)
        np.testing.assert_array_equal(session.run(v), 2 * value)
        with pytest.raises(tf.errors.NotFoundError, match="s3://training/logs/none"):
            restore(session, saver, f"s3://{BUCKET}/logs/none")


def test_tensorflow_reads_the_files(cluster, store, graph, tmp_path):
    made = cluster(ps=1, workers=1, env=store.env)
    with tf.device("/job:ps/task:0"):
        a = tf.Variable(np.full(10, 1, np.float32), name="a")
    with tf.device("/job:worker/task:0"):
        b = tf.Variable(np.full(10, 2, np.float32), name="b")
    saver = tf.train.Saver([a, b], sharded=True).saver_def
    with tf.Session(made.target) as session:
        session.run(tf.global_variables_initializer())
        save(session, saver, f"s3://{BUCKET}/sharded/model")
    names = store.names(BUCKET)
    assert len(names) == 3, names
    for name in names:
        (tmp_path / os.path.basename(name)).write_bytes(store.get(f"/{BUCKET}/{name}"))
    reader = tf.train.load_checkpoint(str(tmp_path / "model"))
    np.testing.assert_array_equal(reader.get_tensor("a"), np.full(10, 1, np.float32))
    np.testing.assert_array_equal(reader.get_tensor("b"), np.full(10, 2, np.float32))


def test_a_killed_save_leaves_the_earlier_checkpoint(cluster, store, graph):
    made = cluster(ps=0, workers=1, env=store.env)
    path = f"s3://{BUCKET}/logs/model.ckpt"
    size = 8 << 20
    initial, v, saver = model(size)
    # Not closed: its server is killed.
    session = tf.Session(made.target)
    with session.as_default():
        session.run(v.initializer, {initial: np.full(size, 1, np.float32)})
        save(session, saver, path)
        session.run(v.initializer, {initial: np.full(size, 2, np.float32)})
        held = store.hold(lambda method, where: method == "PUT" and "partNumber=3" in where)
        make = session.make_callable(saver.save_tensor_name, [saver.filename_tensor_name])
        thread = threading.Thread(target=lambda: pytest.raises(tf.errors.OpError, make, path))
        thread.start()
        assert held.arrived.wait(harness.READY_WATCHDOG_SECS)
        made.worker().kill()
        held.released.set()
        store.held = None
        # TensorFlow's client calls its master again until there is one; the new one doesn't know the session.
        made.worker().restart()
        thread.join()
    with tf.Session(made.target) as session:
        restore(session, saver, path)
        assert session.run(tf.reduce_min(v)) == session.run(tf.reduce_max(v)) == 1
        # The next save under this name is not disturbed by what the killed one left.
        session.run(v.initializer, {initial: np.full(size, 3, np.float32)})
        save(session, saver, path)
        restore(session, saver, path)
        assert session.run(tf.reduce_min(v)) == session.run(tf.reduce_max(v)) == 3


def test_datasets_and_files(cluster, store, graph, tmp_path):
    made = cluster(ps=0, workers=1, env=store.env)
    for number in range(2):
        file = tmp_path / "records"
        with tf.io.TFRecordWriter(str(file)) as writer:
            for index in range(500):
                writer.write(b"%d %d" % (number, index))
        store.put(f"/{BUCKET}/data/part-{number}.tfrecord", file.read_bytes())
    pattern = f"s3://{BUCKET}/data/part-*.tfrecord"
    names = tf.io.matching_files(pattern)
    records = tf.data.TFRecordDataset(names).batch(1000)
    batch = tf.data.make_initializable_iterator(records)
    everything = batch.get_next()
    note = f"s3://{BUCKET}/notes/hello world"
    write = tf.io.write_file(note, "content")
    with tf.Session(made.target) as session:
        assert list(session.run(names)) == [f"s3://{BUCKET}/data/part-{number}.tfrecord".encode() for number in range(2)]
        session.run(batch.initializer)
        assert list(session.run(everything)) == [b"%d %d" % (number, index) for number in range(2) for index in range(500)]
        session.run(write)
        assert session.run(tf.io.read_file(note)) == b"content"
    assert "notes/hello world" in store.names(BUCKET)


def test_what_fails_has_a_code_and_no_secret(cluster, store, graph):
    made = cluster(ps=0, workers=1, env={**store.env, "FERROFLOW_LOG": "info"})
    with tf.Session(made.target) as session:
        with pytest.raises(tf.errors.NotFoundError, match=f"s3://{BUCKET}/x; No such file or directory"):
            session.run(tf.io.read_file(f"s3://{BUCKET}/x"))
        store.refuses = True
        with pytest.raises(tf.errors.PermissionDeniedError, match=f"s3://{BUCKET}/x; ") as refused:
            session.run(tf.io.read_file(f"s3://{BUCKET}/x"))
        store.refuses = False
        with pytest.raises(tf.errors.UnimplementedError, match="NFS gateway"):
            session.run(tf.io.read_file("hdfs://host/x"))
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(tf.io.read_file("s3://a@b/x"))
    for text in (str(refused.value), made.log()):
        assert object_store.SECRET_KEY not in text and object_store.ACCESS_KEY not in text


def test_roots_are_kept_in_stores_too(cluster, store, graph):
    made = cluster(ps=0, workers=1, env=store.env, arguments=[f"--file_root=s3://{BUCKET}/in", f"--file_root=s3://{BUCKET}/ro:ro"])
    for name in ("in/x", "ro/x", "out"):
        store.put(f"/{BUCKET}/{name}", b"content")
    with tf.Session(made.target) as session:
        assert session.run(tf.io.read_file(f"s3://{BUCKET}/in/x")) == b"content"
        assert session.run(tf.io.read_file(f"s3://{BUCKET}/ro/x")) == b"content"
        session.run(tf.io.write_file(f"s3://{BUCKET}/in/y", "new"))
        for refused in (
                tf.io.read_file(f"s3://{BUCKET}/out"), tf.io.read_file("/etc/hostname"),
                tf.io.write_file(f"s3://{BUCKET}/ro/y", "new")):
            with pytest.raises(tf.errors.PermissionDeniedError):
                session.run(refused)


def test_training_keeps_all_of_its_files_in_a_store(ferroflow_bin, store, tmp_path):
    logdir = f"s3://{BUCKET}/run"
    environment = {**os.environ, **store.env, "no_proxy": "*"}

    def ferroflow(*arguments):
        done = subprocess.run([ferroflow_bin, *arguments], env=environment, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert object_store.SECRET_KEY not in done.stdout + done.stderr
        return done.stdout + done.stderr

    ferroflow("train", "--train_steps=20", f"--logdir={logdir}")
    names = store.names(BUCKET)
    assert "run/checkpoint" in names and any("events.out.tfevents" in name for name in names), names
    assert not os.listdir(tmp_path), "nothing is written on the disk"
    state = store.get(f"/{BUCKET}/run/checkpoint").decode()
    newest = re.search(r'^model_checkpoint_path: "(.*)"', state)[1]
    # Another worker's step may still have been under way.
    assert int(newest.rpartition("-")[2]) >= 20, state
    path = newest if newest.startswith("s3://") else f"{logdir}/{newest}"
    assert "global_step" in ferroflow("checkpoint", "ls", path)
    # It goes on where it has stopped.
    ferroflow("train", "--train_steps=40", f"--logdir={logdir}")
    state = store.get(f"/{BUCKET}/run/checkpoint").decode()
    assert int(re.search(r'^model_checkpoint_path: ".*-(\d+)"', state)[1]) >= 40, state
    # TensorFlow reads the events.
    steps = []
    for number, name in enumerate(name for name in store.names(BUCKET) if "tfevents" in name):
        file = tmp_path / f"events-{number}"
        file.write_bytes(store.get(f"/{BUCKET}/{name}"))
        steps += [event.step for event in tf.train.summary_iterator(str(file))]
    assert max(steps) >= 20
