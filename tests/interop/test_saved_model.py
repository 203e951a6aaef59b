"""SavedModels of the Rust library run in TensorFlow, and TensorFlow's, of both versions, run in ours."""

import json
import os
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import lookup_ops

import harness

tf.disable_v2_behavior()

pytestmark = pytest.mark.skipif(harness.default_kind() == harness.TENSORFLOW, reason="both kinds are compared here")

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
X = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
WORDS = ["b", "nothing", "a"]


@pytest.fixture(scope="module")
def tool():
    """Runs `saved_model_files` and returns the lines that it prints."""
    path = harness.example("saved_model_files")

    def run(*arguments):
        done = subprocess.run([path, *map(str, arguments)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "words.txt"
    path.write_text("a\nb\nc\n")
    return path


class Ours:
    """A model that the Rust library wrote, and what it computes there."""

    def __init__(self, tool, directory, vocabulary):
        self.directory = str(directory / "model")
        scores, names = tool("write", self.directory, vocabulary)
        self.scores = np.array(scores.split(), np.float32).reshape(3, 3)
        self.names = names.split()


@pytest.fixture(scope="module")
def ours(tool, tmp_path_factory):
    """The vocabulary is deleted after the export: the model has its own."""
    directory = tmp_path_factory.mktemp("ours")
    words = directory / "words.txt"
    words.write_text("a\nb\nc\n")
    model = Ours(tool, directory, words)
    words.unlink()
    return model


def tensorflow_2(what, directory):
    """Runs TensorFlow 2 in a process of its own: in this one its behaviour is that of TensorFlow 1."""
    script = os.path.join(REPOSITORY, "tests/interop/scripts/saved_model_v2.py")
    done = subprocess.run([sys.executable, script, what, directory], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def command(*arguments):
    binary = harness.ferroflow_bin()
    return subprocess.run([binary, "saved_model", *map(str, arguments)], capture_output=True, text=True)


def listed(directory, *flags):
    done = command("ls", directory, *flags)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run(directory, *flags, **inputs):
    given = [f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in inputs.items()]
    done = command("run", directory, "--json", *given, *flags)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(directory, *arguments):
    done = command("run", directory, *arguments)
    assert done.returncode == 1, done.stdout
    return done.stderr


def test_tensorflow_1_loads_ours(ours):
    with tf.Graph().as_default() as graph, tf.Session(graph=graph) as session:
        meta = tf.saved_model.load(session, [tf.saved_model.SERVING], ours.directory)
        signature = meta.signature_def["serving_default"]
        feeds = {signature.inputs["x"].name: X, signature.inputs["words"].name: WORDS}
        scores, names = session.run([signature.outputs["scores"].name, signature.outputs["names"].name], feeds)
    np.testing.assert_allclose(scores, ours.scores, rtol=1e-6)
    assert [name.decode() for name in names] == ours.names == ["b", "none", "a"]
    shape = [dim.size for dim in signature.inputs["x"].tensor_shape.dim]
    assert (shape, signature.method_name) == ([-1, 2], "tensorflow/serving/predict")


def test_tensorflow_1_goes_on_with_the_variables_of_ours(ours):
    """Names and slices of variables are told, so that another saver finds them."""
    with tf.Graph().as_default() as graph, tf.Session(graph=graph) as session:
        tf.saved_model.load(session, [tf.saved_model.TRAINING, "gpu"], ours.directory)
        names = sorted(variable.op.name for variable in tf.global_variables())
        assert names == ["b", "table/part_0", "table/part_1", "w"]
        np.testing.assert_array_equal(session.run("b:0"), [1, 2, 3])


def test_tensorflow_2_loads_ours(ours):
    outputs = tensorflow_2("load", ours.directory)
    np.testing.assert_allclose(outputs["scores"], ours.scores, rtol=1e-6)
    assert outputs["names"] == ours.names


def test_ours_is_complete_and_left_nothing_beside_it(ours):
    assert sorted(os.listdir(ours.directory)) == ["assets", "saved_model.pb", "variables"]
    assert os.listdir(f"{ours.directory}/assets") == ["words.txt"]
    assert "checkpoint" not in os.listdir(f"{ours.directory}/variables")
    assert os.listdir(os.path.dirname(ours.directory)) == ["model"]


def test_ours_runs_in_ours(ours, tmp_path):
    outputs = run(ours.directory, "--tag_set", "serve", x=X.tolist(), words=WORDS)
    np.testing.assert_allclose(outputs["scores"], ours.scores, rtol=1e-6)
    assert outputs["names"] == ours.names
    # Arrays of NumPy's in and out.
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "words.npy", np.array(WORDS))
    flags = ["--tag_set=serve", "--outdir", tmp_path / "out"]
    run(ours.directory, *flags, x=f"@{tmp_path}/x.npy", words=f"@{tmp_path}/words.npy")
    np.testing.assert_allclose(np.load(tmp_path / "out/scores.npy"), ours.scores, rtol=1e-6)
    assert [name.decode() for name in np.load(tmp_path / "out/names.npy")] == ours.names
    again = refused(ours.directory, "x=[[1,2]]", 'words=["a"]', *flags)
    assert "it exists already; use --overwrite to replace it" in again


def test_ours_with_a_sparse_input_runs_in_both(tool, tmp_path):
    directory = tmp_path / "sparse"
    tool("sparse", directory)
    indices, values, shape = [[0, 1], [2, 0]], [1.5, 2.5], [3, 2]
    expected = [[0, 1.5], [0, 0], [2.5, 0]]
    outputs = run(directory, **{"s/indices": indices, "s/values": values, "s/dense_shape": shape})
    assert outputs["dense"] == expected
    with tf.Graph().as_default() as graph, tf.Session(graph=graph) as session:
        meta = tf.saved_model.load(session, ["serve"], str(directory))
        signature = meta.signature_def["serving_default"]
        info = signature.inputs["s"]
        sparse = info.coo_sparse
        assert (info.dtype, len(info.tensor_shape.dim)) == (tf.float32.as_datatype_enum, 2)
        feeds = {sparse.indices_tensor_name: indices, sparse.values_tensor_name: values, sparse.dense_shape_tensor_name: shape}
        np.testing.assert_array_equal(session.run(signature.outputs["dense"].name, feeds), expected)


def export_with_tensorflow_1(directory, vocabulary, by_builder=False):
    """A model with variables of both kinds and a partitioned one, a table, an asset and a main op; returns what it computes."""
    with tf.Graph().as_default() as graph, tf.Session(graph=graph) as session:
        x, words = tf.placeholder(tf.float32, [None, 2]), tf.placeholder(tf.string, [None])
        table = lookup_ops.index_table_from_file(str(vocabulary), num_oov_buckets=1)
        rows = tf.get_variable("rows", [4, 3], partitioner=tf.fixed_size_partitioner(2))
        w = tf.get_variable("w", [2, 3], use_resource=True)
        b = tf.get_variable("b", [3], use_resource=False)
        scores = tf.nn.softmax(tf.matmul(x, w) + tf.nn.embedding_lookup(rows, table.lookup(words), "div") + b)
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        inputs, outputs = {"x": x, "words": words}, {"scores": scores}
        if by_builder:
            builder = tf.saved_model.Builder(directory)
            signature = tf.saved_model.predict_signature_def(inputs, outputs)
            assets = tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS)
            builder.add_meta_graph_and_variables(
                session, ["serve", "cpu"], {"score": signature}, assets, main_op=tf.tables_initializer(), strip_default_attrs=True)
            builder.save(as_text=True)
        else:
            tf.saved_model.simple_save(session, directory, inputs, outputs, legacy_init_op=tf.tables_initializer())
        return session.run(scores, {x: X, words: WORDS})


def test_a_simple_save_of_tensorflow_1_runs_in_ours(vocabulary, tmp_path):
    directory = str(tmp_path / "model")
    expected = export_with_tensorflow_1(directory, vocabulary)
    outputs = run(directory, x=X.tolist(), words=WORDS)
    np.testing.assert_allclose(outputs["scores"], expected, rtol=1e-5)
    text = listed(directory)
    for line in ["tags: serve", "signature serving_default, method tensorflow/serving/predict", "input  x: float [?,2],", "asset words.txt for"]:
        assert line in text


def test_a_builder_of_tensorflow_1_with_main_op_and_text_form_runs_in_ours(vocabulary, tmp_path):
    directory = str(tmp_path / "model")
    expected = export_with_tensorflow_1(directory, vocabulary, by_builder=True)
    assert os.path.exists(f"{directory}/saved_model.pbtxt")
    outputs = run(directory, "--signature_def=score", "--tag_set=cpu,serve", x=X.tolist(), words=WORDS)
    np.testing.assert_allclose(outputs["scores"], expected, rtol=1e-5)
    assert "no graph with the tags {serve}; it has {serve, cpu}" in refused(directory, "--tag_set=serve")
    assert "there is no signature 'serving_default'; the signatures are: score" in refused(directory)


def test_functions_of_tensorflow_2_run_in_ours(tmp_path):
    directory = str(tmp_path / "model")
    expected = tensorflow_2("functions", directory)
    outputs = run(directory, x=X.tolist(), words=WORDS)
    np.testing.assert_allclose(outputs["y"], expected["y"], rtol=1e-6)
    assert outputs["ids"] == expected["ids"] == [1, -1, 0]
    assert outputs["calls"] == expected["calls"] == 1
    assert run(directory, "--signature_def=double", a=4.5) == {"output_0": 9.0}


def test_a_keras_model_runs_in_ours(tmp_path):
    directory = str(tmp_path / "model")
    expected = tensorflow_2("keras", directory)
    outputs = run(directory, conv2d_input=f"@{directory}.npy")
    np.testing.assert_allclose(outputs["out"], expected, rtol=1e-5)


def test_an_estimator_of_tensorflow_runs_in_ours(tmp_path):
    expected = tensorflow_2("estimator", str(tmp_path / "export"))
    outputs = run(expected["directory"], "--signature_def=predict", examples=expected["examples"])
    np.testing.assert_allclose(outputs["probabilities"], expected["probabilities"], rtol=1e-5)


def test_a_model_runs_on_a_server(cluster, ours):
    server = cluster(ps=0, workers=1, kind=harness.FERROFLOW)
    outputs = run(ours.directory, "--tag_set=serve", "--worker", server.target, x=X.tolist(), words=WORDS)
    np.testing.assert_allclose(outputs["scores"], ours.scores, rtol=1e-6)


@pytest.mark.parametrize("arguments, words", [
    (["x=[[1,2]]"], "input 'words' is missing"),
    (["x=[[1,2]]", 'words=["a"]', "z=1"], "no input 'z'; it has words, x"),
    (["x=[1,2]", 'words=["a"]'], "input 'x' is float [2], but the model takes float [?,2]"),
    (["x=[[1,2],[3]]", 'words=["a"]'], "one has 1 elements, others 2"),
    (["x=@/no/such/file", 'words=["a"]'], "can't read /no/such/file"),
    (["x"], "'x' is not NAME=VALUE"),
    (["--signature_def=nothing"], "there is no signature 'nothing'; the signatures are: serving_default"),
    (["--tag_set=nothing"], "no graph with the tags {nothing}; it has {serve}, {train, gpu}"),
])
def test_what_is_wrong_is_told(ours, arguments, words):
    flags = [] if any(argument.startswith("--tag_set") for argument in arguments) else ["--tag_set=serve"]
    assert words in refused(ours.directory, *arguments, *flags)


def test_damaged_models_are_refused(ours, tmp_path):
    assert "has no saved_model.pb or saved_model.pbtxt" in refused(tmp_path)
    (tmp_path / "saved_model.pb").write_bytes(b"\xff\xff\xff")
    assert "saved_model.pb is not a SavedModel" in refused(tmp_path)
    (tmp_path / "saved_model.pb").write_bytes(open(f"{ours.directory}/saved_model.pb", "rb").read())
    # The asset is missing, and with it what fills the table.
    assert "words.txt" in refused(tmp_path, "--tag_set=serve", "x=[[1,2]]", 'words=["a"]')
