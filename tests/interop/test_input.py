"""Input pipelines in graphs: readers behind queues, datasets, tables, sparse tensors, and lists."""

import os

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import gen_list_ops

tf.disable_v2_behavior()

WORKER = "/job:worker/task:0"


def example(**features):
    feature = {}
    for name, values in features.items():
        if isinstance(values[0], bytes):
            feature[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        elif isinstance(values[0], float):
            feature[name] = tf.train.Feature(float_list=tf.train.FloatList(value=values))
        else:
            feature[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


@pytest.fixture
def records(tmp_path):
    """Two files of ten examples each; the label of example i is i, and its image is i in every byte."""
    paths = []
    for part in range(2):
        path = os.path.join(str(tmp_path), f"part-{part}.tfrecords")
        with tf.python_io.TFRecordWriter(path) as writer:
            for label in range(part * 10, part * 10 + 10):
                writer.write(example(image=[bytes([label]) * 4], label=[label], weight=[label / 2]))
        paths.append(path)
    return paths


FEATURES = {
    "image": tf.FixedLenFeature([], tf.string),
    "label": tf.FixedLenFeature([], tf.int64),
    "weight": tf.FixedLenFeature([], tf.float32, default_value=0.0),
}


def rows(session, fetches):
    """Runs until the input ends."""
    found = []
    while True:
        try:
            found.append(session.run(fetches))
        except tf.errors.OutOfRangeError:
            return found


def test_records_come_through_queues(shared_cluster, graph, records):
    with tf.device(WORKER):
        names = tf.train.string_input_producer(records, num_epochs=2, shuffle=False)
        key, serialized = tf.TFRecordReader().read(names)
        features = tf.parse_single_example(serialized, FEATURES)
        image = tf.reshape(tf.decode_raw(features["image"], tf.uint8), [4])
        images, labels = tf.train.shuffle_batch([image, features["label"]], batch_size=8, capacity=40,
                                                min_after_dequeue=10, num_threads=2)
    with tf.Session(shared_cluster.target) as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        batches = rows(session, [images, labels])
        coordinator.request_stop()
        coordinator.join(threads, stop_grace_period_secs=60)
    seen = np.concatenate([labels for _, labels in batches])
    assert len(batches) == 5
    assert sorted(seen) == sorted(2 * list(range(20)))
    for images, labels in batches:
        assert (images == labels[:, None]).all()


def test_batches_of_examples(shared_cluster, graph):
    serialized = [example(x=[1, 2], y=[1.5], z=[b"q", b"r"]), example(x=[3, 4], z=[b"s"])]
    with tf.device(WORKER):
        parsed = tf.parse_example(tf.constant(serialized), {
            "x": tf.FixedLenFeature([2], tf.int64),
            "y": tf.FixedLenFeature([], tf.float32, default_value=7.0),
            "z": tf.VarLenFeature(tf.string),
        })
        columns = tf.decode_csv(tf.constant(["1,2.5,a", ',,"b,c"']), [[7], [0.5], ["none"]])
        missing = tf.parse_single_example(tf.constant(serialized[1]), {"y": tf.FixedLenFeature([], tf.float32)})
    with tf.Session(shared_cluster.target) as session:
        got = session.run(parsed)
        assert got["x"].tolist() == [[1, 2], [3, 4]]
        assert got["y"].tolist() == [1.5, 7.0]
        assert got["z"].indices.tolist() == [[0, 0], [0, 1], [1, 0]]
        assert got["z"].values.tolist() == [b"q", b"r", b"s"]
        assert got["z"].dense_shape.tolist() == [2, 2]
        assert [column.tolist() for column in session.run(columns)] == [[1, 7], [2.5, 0.5], [b"a", b"b,c"]]
        with pytest.raises(tf.errors.InvalidArgumentError, match="Feature: y .* is required but could not be found"):
            session.run(missing)


def test_datasets_from_files(shared_cluster, graph, records):
    def parse(serialized):
        features = tf.parse_single_example(serialized, FEATURES)
        return features["label"], features["weight"] * 2

    with tf.device(WORKER):
        dataset = tf.data.TFRecordDataset(records).map(parse, num_parallel_calls=2)
        dataset = dataset.filter(lambda label, _: tf.equal(label % 2, 0)).repeat(2).batch(6).prefetch(1)
        label, weight = tf.data.make_one_shot_iterator(dataset).get_next()
    with tf.Session(shared_cluster.target) as session:
        batches = rows(session, [label, weight])
    assert [len(labels) for labels, _ in batches] == [6, 6, 6, 2]
    assert np.concatenate([labels for labels, _ in batches]).tolist() == 2 * list(range(0, 20, 2))
    assert np.concatenate([weights for _, weights in batches]).tolist() == 2 * list(range(0, 20, 2))


def pipelines():
    ranged = tf.data.Dataset.range
    yield "map", lambda: ranged(5).map(lambda x: x * x)
    yield "shuffle", lambda: ranged(10).shuffle(4, seed=3)
    yield "shuffle once", lambda: ranged(10).shuffle(4, seed=3, reshuffle_each_iteration=False).repeat(2)
    yield "shuffle and repeat", lambda: ranged(5).apply(tf.data.experimental.shuffle_and_repeat(3, 2, seed=3))
    yield "interleave", lambda: ranged(1, 5).interleave(lambda x: tf.data.Dataset.from_tensors(x).repeat(6), 2, 4)
    yield "flat map", lambda: ranged(5).flat_map(ranged)
    yield "padded", lambda: ranged(1, 5).map(lambda n: tf.fill([n], n)).padded_batch(3, [None], padding_values=tf.cast(-1, tf.int64))
    yield "shard", lambda: ranged(10).shard(3, 1)
    yield "zip", lambda: tf.data.Dataset.zip((ranged(3), ranged(10, 20)))
    yield "cache", lambda: ranged(3).cache().repeat(2)
    yield "skip", lambda: ranged(5).skip(2).take(2).concatenate(ranged(2))
    yield "map and batch", lambda: ranged(5).apply(tf.data.experimental.map_and_batch(lambda x: x + 1, 2))
    yield "unbatch", lambda: ranged(5).batch(2).apply(tf.data.experimental.unbatch())
    yield "slices", lambda: tf.data.Dataset.from_tensor_slices({"a": [1, 2], "b": [["x"], ["y"]]})


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in pipelines()])
def test_datasets_give_what_tensorflows_give(shared_cluster, graph, make):
    with tf.device(WORKER):
        iterator = tf.data.make_initializable_iterator(make())
        following = iterator.get_next()

    def elements(target):
        with tf.Session(target) as session:
            session.run(iterator.initializer)
            return rows(session, following)

    with tf.Graph().as_default():
        local = tf.data.make_initializable_iterator(make())
        element = local.get_next()
        with tf.Session() as session:
            session.run(local.initializer)
            expected = rows(session, element)
    np.testing.assert_equal(elements(shared_cluster.target), expected)


@pytest.mark.parametrize("ours_writes", [True, False], ids=["ours writes", "TensorFlow writes"])
def test_a_cache_in_files_is_tensorflows(shared_cluster, graph, tmp_path, ours_writes):
    prefix = str(tmp_path / "cache")

    def elements(target, count):
        with tf.Graph().as_default(), tf.device(WORKER if target else None):
            dataset = tf.data.Dataset.range(count).map(lambda x: (tf.fill([x], x), tf.as_string(x)))
            iterator = tf.data.make_initializable_iterator(dataset.cache(prefix).repeat(2))
            following = iterator.get_next()
            with tf.Session(target) as session:
                session.run(iterator.initializer)
                return [(numbers.tolist(), text) for numbers, text in rows(session, following)]

    writer, reader = (shared_cluster.target, "") if ours_writes else ("", shared_cluster.target)
    expected = [([x] * x, str(x).encode()) for x in range(5)] * 2
    assert elements(writer, 5) == expected
    assert sorted(os.listdir(tmp_path)) == ["cache.data-00000-of-00001", "cache.index"]
    # The reader's own input would be longer.
    assert elements(reader, 7) == expected


def test_a_dataset_reads_variables_and_tables(shared_cluster, graph):
    with tf.device(WORKER):
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(
            tf.constant(["a", "b"]), tf.constant([10, 20], tf.int64)), -1)
        dataset = tf.data.Dataset.from_tensor_slices(["b", "z", "a"]).map(table.lookup)
        iterator = tf.data.make_initializable_iterator(dataset)
        following = iterator.get_next()
    with tf.Session(shared_cluster.target) as session:
        session.run(tf.tables_initializer())
        session.run(iterator.initializer)
        assert rows(session, following) == [20, -1, 10]
        with pytest.raises(tf.errors.OutOfRangeError, match="End of sequence"):
            session.run(following)


def test_tables(shared_cluster, graph, tmp_path):
    vocabulary = tmp_path / "vocabulary.txt"
    vocabulary.write_text("emerson\nlake\npalmer\n")
    with tf.device(WORKER):
        from_file = tf.lookup.StaticVocabularyTable(tf.lookup.TextFileInitializer(
            str(vocabulary), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER), num_oov_buckets=2)
        found = from_file.lookup(tf.constant(["lake", "palmer", "wakeman"]))
        mutable = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, [0.0, 0.0])
        insert = mutable.insert(tf.constant(["x", "y"]), tf.constant([[1.0, 2.0], [3.0, 4.0]]))
        values = mutable.lookup(tf.constant(["y", "?"]))
        size = mutable.size()
        dense = tf.lookup.experimental.DenseHashTable(tf.int64, tf.int64, -1, empty_key=-10, deleted_key=-11)
        insert_dense = dense.insert(tf.constant([5, 6], tf.int64), tf.constant([50, 60], tf.int64))
        from_dense = dense.lookup(tf.constant([6, 7], tf.int64))
    with tf.Session(shared_cluster.target) as session:
        session.run(tf.tables_initializer())
        ids = session.run(found)
        assert ids[:2].tolist() == [1, 2] and ids[2] in (3, 4)
        session.run([insert, insert_dense])
        assert session.run(values).tolist() == [[3, 4], [0, 0]]
        assert session.run(size) == 2
        assert session.run(from_dense).tolist() == [60, -1]


def test_embeddings_of_sparse_features(shared_cluster, graph):
    with tf.device(WORKER):
        ids = tf.SparseTensor([[0, 0], [0, 1], [2, 0]], tf.constant([1, 3, 0], tf.int64), [4, 2])
        table = tf.get_variable("table", initializer=tf.constant(np.arange(8, dtype=np.float32).reshape(4, 2)))
        means = tf.nn.safe_embedding_lookup_sparse(table, ids, combiner="mean")
        dense = tf.sparse_tensor_to_dense(ids, default_value=-1)
        crossed = tf.sparse.cross_hashed([tf.constant([["a"], ["b"]]), tf.constant([["x"], ["y"]])], num_buckets=100)
        product = tf.sparse_tensor_dense_matmul(
            tf.SparseTensor([[0, 0], [1, 2]], [2.0, 3.0], [2, 3]), tf.constant([[1.0, 2], [3, 4], [5, 6]]))
        gradient = tf.gradients(means, table)[0]
    with tf.Session(shared_cluster.target) as session:
        session.run(tf.global_variables_initializer())
        assert session.run(means).tolist() == [[4, 5], [0, 0], [0, 1], [0, 0]]
        assert session.run(dense).tolist() == [[1, 3], [-1, -1], [0, -1], [-1, -1]]
        assert session.run(product).tolist() == [[2, 4], [15, 18]]
        hashed = session.run(crossed)
        assert hashed.dense_shape.tolist() == [2, 1]
        got = session.run(gradient)
        totals = np.zeros((4, 2))
        np.add.at(totals, got.indices, got.values)
        assert totals.tolist() == [[1, 1], [0.5, 0.5], [0, 0], [0.5, 0.5]]
    with tf.Graph().as_default(), tf.Session() as session:
        local = tf.sparse.cross_hashed([tf.constant([["a"], ["b"]]), tf.constant([["x"], ["y"]])], num_buckets=100)
        assert session.run(local).values.tolist() == hashed.values.tolist()


def test_lists_of_tensors(shared_cluster, graph):
    with tf.device(WORKER):
        x = tf.constant([[1.0, 2], [3, 4], [5, 6]])
        items = gen_list_ops.tensor_list_from_tensor(x, tf.constant([2]))
        items = gen_list_ops.tensor_list_set_item(items, 1, x[0] * 3.0)
        last = gen_list_ops.tensor_list_get_item(items, 2, [2], tf.float32)
        stacked = gen_list_ops.tensor_list_stack(items, [2], tf.float32)
        gradient = tf.gradients([stacked * [[1.0, 2], [3, 4], [5, 6]], last * last], x)[0]
    with tf.Session(shared_cluster.target) as session:
        assert session.run(stacked).tolist() == [[1, 2], [3, 6], [5, 6]]
        assert session.run(gradient).tolist() == [[10, 14], [0, 0], [15, 18]]


def test_rows_by_number_blocks_and_diagonals(shared_cluster, graph):
    with tf.device(WORKER):
        parts = tf.dynamic_partition(tf.constant([10, 20, 30, 40]), [1, 0, 1, 2], 3)
        stitched = tf.dynamic_stitch([[1], [0, 2], [3]], parts)
        spaces = tf.space_to_batch_nd(tf.reshape(tf.range(16), [1, 4, 4, 1]), [2, 2], [[0, 0], [0, 0]])
        diagonal = tf.matrix_diag(tf.constant([1, 2]))
        scattered = tf.scatter_nd([[1], [3]], tf.constant([5, 6]), [5])
    with tf.Session(shared_cluster.target) as session:
        assert [part.tolist() for part in session.run(parts)] == [[20], [10, 30], [40]]
        assert session.run(stitched).tolist() == [10, 20, 30, 40]
        assert session.run(spaces).reshape(4, 4).tolist() == [[0, 2, 8, 10], [1, 3, 9, 11], [4, 6, 12, 14], [5, 7, 13, 15]]
        assert session.run(diagonal).tolist() == [[1, 0], [0, 2]]
        assert session.run(scattered).tolist() == [0, 5, 0, 6, 0]
