"""The feature columns of the Rust library have the variables of TensorFlow's, make the same numbers of the same features, and read each
other's checkpoints."""

import os
import subprocess

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import harness
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.feature_column.sequence_feature_column import concatenate_context_input
from tensorflow_estimator.python.estimator.canned.linear import LinearModel

tf.disable_v2_behavior()
fc = tf.feature_column



@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """The vocabularies, and the MetaGraph with all columns, built in Rust."""
    made = tmp_path_factory.mktemp("column_graphs")
    (made / "words.txt").write_text("be\nnot\nto\n")
    (made / "integers.txt").write_text("7\n11\n-4\n")
    path = harness.example("column_graphs")
    subprocess.run([path, str(made)], check=True)
    return made


def placeholders():
    def sparse(name, dtype, rank):
        return tf.SparseTensor(tf.placeholder(tf.int64, [None, rank], f"{name}_indices"),
                               tf.placeholder(dtype, [None], f"{name}_values"),
                               tf.placeholder(tf.int64, [rank], f"{name}_shape"))

    return {
        "x": tf.placeholder(tf.float32, [None], "x"), "xs": tf.placeholder(tf.int64, [None, 2], "xs"),
        "xss": tf.placeholder(tf.float64, [None, 2, 2], "xss"), "id": tf.placeholder(tf.int64, [None], "id"),
        "ids": tf.placeholder(tf.int32, [None, 3], "ids"), "word": tf.placeholder(tf.string, [None, 2], "word"),
        "words": sparse("words", tf.string, 2), "numbers": sparse("numbers", tf.int64, 2),
        "weights": sparse("weights", tf.float32, 2), "nested": sparse("nested", tf.int64, 3),
        "steps": sparse("steps", tf.float32, 2),
    }


def categorical(directory):
    """The columns of ids, by the names of their cases."""
    words, integers = str(directory / "words.txt"), str(directory / "integers.txt")

    def in_list(**options):
        return fc.categorical_column_with_vocabulary_list("words", ["to", "be", "or"], **options)

    def in_file(**options):
        return fc.categorical_column_with_vocabulary_file("words", words, **options)

    buckets = fc.bucketized_column(fc.numeric_column("xs", [2]), [0.0, 3.0])
    cross = fc.crossed_column(["words", "word"], 7)
    hashed = fc.categorical_column_with_hash_bucket
    return {
        "identity": fc.categorical_column_with_identity("id", 5),
        "identities": fc.categorical_column_with_identity("ids", 5),
        "identity_or": fc.categorical_column_with_identity("numbers", 20, 3),
        "nested": fc.categorical_column_with_identity("nested", 9),
        "list": in_list(),
        "list_default": in_list(default_value=1),
        "list_oov": in_list(num_oov_buckets=3),
        "list_dense": fc.categorical_column_with_vocabulary_list("word", ["be", "not"]),
        "list_integers": fc.categorical_column_with_vocabulary_list("numbers", [11, -4, 7]),
        "file": in_file(),
        "file_size": in_file(vocabulary_size=2, num_oov_buckets=2),
        "file_default": in_file(default_value=0),
        "file_integers": fc.categorical_column_with_vocabulary_file("numbers", integers, 2, dtype=tf.int64),
        "hash": hashed("words", 6),
        "hash_dense": hashed("word", 6),
        "hash_integers": hashed("numbers", 6, tf.int64),
        "hash_small_integers": hashed("ids", 6, tf.int32),
        "bucketized": buckets,
        "crossed": cross,
        "crossed_key": fc.crossed_column(["words", "word"], 7, 5),
        "crossed_columns": fc.crossed_column(["numbers", buckets, in_list()], 11),
        "crossed_crosses": fc.crossed_column([cross, "numbers"], 50),
        "weighted": fc.weighted_categorical_column(hashed("words", 6), "weights"),
        "weighted_integers": fc.weighted_categorical_column(hashed("words", 6), "numbers", tf.int64),
    }


class Cases:
    """The cases in TensorFlow's graph: each has a scope of its own, its results, and their gradients."""

    def __init__(self, directory):
        self.directory = directory
        self.features = placeholders()
        self.fetches = {}
        self.dense()
        self.linear()
        self.sequences()
        self.parsed()

    def case(self, name, build):
        before = len(tf.trainable_variables())
        with tf.variable_scope(name):
            outputs = build()
        outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        for index, output in enumerate(outputs):
            self.fetches[f"out_{name}/{index}"] = output
        variables = tf.trainable_variables()[before:]
        sums = [tf.reduce_sum(tf.square(output)) for output in outputs if output.dtype == tf.float32]
        for variable, gradient in zip(variables, tf.gradients(sums, variables) if variables else []):
            if gradient is not None:
                self.fetches[f"grad_{name}/{variable.op.name}"] = tf.convert_to_tensor(gradient)

    def input(self, name, *columns):
        self.case(name, lambda: fc.input_layer(self.features, columns))

    def model(self, name, *columns, **options):
        self.case(name, lambda: fc.linear_model(self.features, columns, **options))

    def dense(self):
        self.input("numeric", fc.numeric_column("x"), fc.numeric_column("xs", [2]))
        self.input("numeric_matrix", fc.numeric_column("xss", [2, 2]))
        normalized = fc.numeric_column("x", normalizer_fn=lambda x: (x - 3.0) / 4.0)
        self.input("normalized", normalized, fc.bucketized_column(normalized, [-0.5, 0.25]))
        self.input("buckets", fc.bucketized_column(fc.numeric_column("xs", [2]), [0.0, 3.0]))
        for name, column in categorical(self.directory).items():
            if name != "nested":
                self.input(f"input_{name}", fc.indicator_column(column), fc.embedding_column(column, 3))
        words = fc.categorical_column_with_hash_bucket("words", 6)
        weighted = fc.weighted_categorical_column(words, "weights")
        for combiner in ("sum", "mean", "sqrtn"):
            self.input(f"combined_{combiner}", fc.embedding_column(words, 2, combiner),
                       fc.embedding_column(weighted, 2, combiner))
        self.input("max_norm", fc.embedding_column(words, 2, max_norm=0.5))
        self.input("frozen", fc.embedding_column(words, 2, trainable=False))
        a = fc.categorical_column_with_identity("id", 20)
        b = fc.categorical_column_with_identity("numbers", 20, 3)
        self.input("shared", *fc.shared_embedding_columns([b, a], 2))
        # Only the layers of the estimators take these.
        self.case("shared_v2", lambda: tf.keras.layers.DenseFeatures(tf.compat.v2.feature_column.shared_embeddings(
            [b, a], 2))(self.features))
        self.input("shared_named", *fc.shared_embedding_columns(
            [a, b], 2, "sum", shared_embedding_collection_name="items"))
        odd = fc.categorical_column_with_identity("_x y/z", 5)
        # The layers of the estimators make names of scopes of such names; the functions refuse them.
        layer = lambda: LinearModel([odd], name="linear_model")
        self.case("odd_name", lambda: layer()({"_x y/z": self.features["id"]}))

    def linear(self):
        for name, column in categorical(self.directory).items():
            self.model(f"linear_{name}", column)
        words = fc.categorical_column_with_hash_bucket("words", 6)
        columns = [fc.numeric_column("x"), fc.numeric_column("xs", [2]), words, fc.embedding_column(words, 2)]
        self.model("linear_units", *columns, units=3)
        self.model("linear_frozen", *columns, trainable=False)
        for combiner in ("mean", "sqrtn"):
            self.model(f"linear_{combiner}", *columns, sparse_combiner=combiner)

    def sequences(self):
        def run(name, *columns):
            layer = tf.keras.experimental.SequenceFeatures(columns, name="sequence_input_layer")
            self.case(name, lambda: layer(self.features))

        run("sequence_numeric", fc.sequence_numeric_column("steps"))
        run("sequence_pairs", fc.sequence_numeric_column("steps", [2], -1.0, normalizer_fn=lambda x: x * 2.0))
        words = fc.sequence_categorical_column_with_vocabulary_list("words", ["to", "be", "or"])
        run("sequence_words", fc.embedding_column(words, 2), fc.indicator_column(words))
        nested = fc.sequence_categorical_column_with_identity("nested", 9)
        run("sequence_nested", fc.embedding_column(nested, 2), fc.indicator_column(nested))

        def context():
            steps = tf.keras.experimental.SequenceFeatures([fc.sequence_numeric_column("steps")])
            sequences, _ = steps(self.features)
            inputs = fc.input_layer(self.features, [fc.numeric_column("xs", [2])])
            return concatenate_context_input(inputs, sequences)

        self.case("context", context)

    def parsed(self):
        columns = [fc.numeric_column("age", [2], 7.0),
                   fc.embedding_column(fc.categorical_column_with_hash_bucket("tags", 9), 2),
                   fc.indicator_column(fc.categorical_column_with_identity("day", 7))]
        serialized = tf.placeholder(tf.string, [None], "examples")
        parse = lambda: tf.io.parse_example(serialized, fc.make_parse_example_spec(columns))
        self.case("parsed", lambda: fc.input_layer(parse(), columns))


def sparse_feed(name, rows):
    """Feeds a sparse tensor whose rows are lists, of lists for one of rank 3."""
    is_nested = any(isinstance(value, list) for row in rows for value in row)
    places = []
    for index, row in enumerate(rows):
        for column, value in enumerate(row):
            nested = [([index, column, place], one) for place, one in enumerate(value)] if is_nested else (
                [([index, column], value)])
            places.extend(nested)
    rank = 3 if is_nested else 2
    width = max((len(row) for row in rows), default=0)
    deep = [max((len(value) for row in rows for value in row), default=0)] if is_nested else []
    return {f"{name}_indices:0": np.reshape([place for place, _ in places], [-1, rank]),
            f"{name}_values:0": [value for _, value in places], f"{name}_shape:0": [len(rows), width, *deep]}


def example(**features):
    kinds = {float: lambda v: tf.train.Feature(float_list=tf.train.FloatList(value=v)),
             int: lambda v: tf.train.Feature(int64_list=tf.train.Int64List(value=v)),
             bytes: lambda v: tf.train.Feature(bytes_list=tf.train.BytesList(value=v))}
    made = {name: kinds[type(values[0])](values) for name, values in features.items()}
    return tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()


def feeds():
    """Two batches: one as usual, with rows that have nothing, and one with a single row."""
    first = {"x:0": [1.5, -2.0, 7.0], "xs:0": [[1, 5], [-3, 0], [3, 2]], "xss:0": np.arange(12).reshape([3, 2, 2]) / 7,
             "id:0": [4, -1, 0], "ids:0": [[0, 4, -1], [1, 1, 1], [-1, -1, -1]],
             "word:0": [["be", "to"], ["", "not"], ["", ""]],
             "examples:0": [example(age=[1.0, 2.0], tags=[b"a", b"b"], day=[3]), example(tags=[b"c"]), example(day=[1, 1])],
             **sparse_feed("words", [["to", "be"], [], ["whale", "or", "be"]]),
             **sparse_feed("numbers", [[11, 7], [], [-4, 19, 25]]),
             **sparse_feed("weights", [[0.5, 2.0], [], [1.0, -1.5, 0.25]]),
             **sparse_feed("nested", [[[1, 2], [3]], [[8]], [[0], [5, 5, 6]]]),
             **sparse_feed("steps", [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0], []])}
    second = {"x:0": [0.0], "xs:0": [[0, 0]], "xss:0": [[[1, 2], [3, 4]]], "id:0": [2], "ids:0": [[2, 3, 4]],
              "word:0": [["a", "be"]], "examples:0": [example(age=[3.0, 4.0])],
              **sparse_feed("words", [["not"]]), **sparse_feed("numbers", [[7]]), **sparse_feed("weights", [[3.0]]),
              **sparse_feed("nested", [[[7, 7]]]), **sparse_feed("steps", [[9.0, 8.0]])}
    return [first, second]


def variables():
    trained = {variable.op.name for variable in tf.trainable_variables()}
    return {v.op.name: (v.shape.as_list(), v.dtype.base_dtype.name, v.op.name in trained) for v in tf.global_variables()}


def test_columns_make_what_tensorflows_make(directory, tmp_path, shared_cluster):
    theirs_at, ours_at = str(tmp_path / "theirs"), str(tmp_path / "ours")
    with tf.Graph().as_default():
        cases = Cases(directory)
        wanted_variables = variables()
        saver = tf.train.Saver()
        with tf.Session() as session:
            random = np.random.RandomState(7)
            for variable in tf.global_variables():
                variable.load(random.uniform(-0.8, 0.8, variable.shape), session)
            session.run(tf.tables_initializer())
            saver.save(session, theirs_at, write_meta_graph=False)
            wanted = [session.run(cases.fetches, batch) for batch in feeds()]
        with tf.Graph().as_default() as graph:
            ours = tf.train.import_meta_graph(str(directory / "columns.meta"))
            assert variables() == wanted_variables
            fetches = {op.name: f"{op.name}:0" for op in graph.get_operations() if op.name.startswith(("out_", "grad_"))}
            assert sorted(fetches) == sorted(cases.fetches)
            with tf.Session(shared_cluster.target) as session:
                ours.restore(session, theirs_at)
                session.run(tf.tables_initializer())
                found = [session.run(fetches, batch) for batch in feeds()]
                # The way back, with other numbers.
                session.run([tf.assign(variable, variable * 0.5) for variable in tf.global_variables()])
                ours.save(session, ours_at, write_meta_graph=False)
                halved = session.run(fetches, feeds()[0])
        compare(found, wanted)
        with tf.Session() as session:
            saver.restore(session, ours_at)
            session.run(tf.tables_initializer())
            compare([halved], [session.run(cases.fetches, feeds()[0])])


def compare(found, wanted):
    problems = []
    for batch, (mine, theirs) in enumerate(zip(found, wanted)):
        for key, value in theirs.items():
            if mine[key].shape != value.shape or not np.allclose(mine[key], value, rtol=1e-5, atol=1e-6):
                problems.append(f"{key}, batch {batch}: {mine[key]} instead of {value}")
    assert not problems, "\n".join(problems)
