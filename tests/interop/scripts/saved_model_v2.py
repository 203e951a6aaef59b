"""The parts of `test_saved_model.py` that need TensorFlow 2's behaviour, which other tests turn off for their process.

`saved_model_v2.py load DIR` runs a model of ours; `functions|keras|estimator DIR` export one, and print what it computes. Inputs and outputs are
JSON.
"""

import base64
import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy as np
import tensorflow as tf

X = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
WORDS = ["b", "nothing", "a"]


def load(directory):
    model = tf.saved_model.load(directory, tags=["serve"])
    outputs = model.signatures["serving_default"](x=tf.constant(X), words=tf.constant(WORDS))
    return {"scores": outputs["scores"].numpy().tolist(), "names": [name.decode() for name in outputs["names"].numpy()]}


class Model(tf.Module):
    """A TensorFlow 2 model: functions that call each other, a variable that one changes, a table, a loop and a branch."""

    def __init__(self, vocabulary):
        super().__init__()
        self.w = tf.Variable([[1.0, 2.0], [3.0, 4.0]], name="w")
        self.calls = tf.Variable(0, dtype=tf.int64, name="calls", trainable=False)
        initializer = tf.lookup.TextFileInitializer(
            str(vocabulary), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER)
        self.table = tf.lookup.StaticHashTable(initializer, -1)

    @tf.function
    def inner(self, x):
        total = tf.zeros_like(x)
        for _ in tf.range(3):
            total += x
        return tf.cond(tf.reduce_sum(total) > 0, lambda: total, lambda: -total)

    @tf.function(input_signature=[tf.TensorSpec([None, 2], name="x"), tf.TensorSpec([None], tf.string, name="words")])
    def predict(self, x, words):
        self.calls.assign_add(1)
        return {"y": self.inner(tf.matmul(x, self.w)), "ids": self.table.lookup(words), "calls": self.calls.read_value()}

    @tf.function(input_signature=[tf.TensorSpec([], name="a")])
    def double(self, a):
        return 2 * a


def functions(directory):
    vocabulary = f"{directory}.txt"
    with open(vocabulary, "w", encoding="utf-8") as file:
        file.write("a\nb\nc\n")
    model = Model(vocabulary)
    model.w.assign([[-1.0, 2.0], [3.0, 5.0]])
    tf.saved_model.save(model, directory, signatures={"serving_default": model.predict, "double": model.double})
    outputs = {name: value.numpy().tolist() for name, value in model.predict(X, tf.constant(WORDS)).items()}
    # The model has its own.
    os.unlink(vocabulary)
    return outputs


def keras(directory):
    tf.keras.utils.set_random_seed(1)
    model = tf.keras.Sequential([
        tf.keras.layers.Conv2D(4, 3, activation="relu", input_shape=(8, 8, 1)),
        tf.keras.layers.BatchNormalization(),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(3, activation="softmax", name="out"),
    ])
    tf.saved_model.save(model, directory)
    pictures = np.random.RandomState(0).rand(2, 8, 8, 1).astype(np.float32)
    np.save(f"{directory}.npy", pictures)
    return model(pictures).numpy().tolist()


def estimator(directory):
    """A canned estimator, whose signatures take serialized examples."""
    columns = [
        tf.feature_column.numeric_column("age"),
        tf.feature_column.embedding_column(tf.feature_column.categorical_column_with_vocabulary_list("job", ["a", "b"]), 2),
    ]
    canned = tf.estimator.DNNClassifier([4], columns, model_dir=f"{directory}.train", n_classes=3)
    features = {"age": [[1.0], [2.0]], "job": [["a"], ["b"]]}
    canned.train(lambda: tf.data.Dataset.from_tensors((features, [[0], [2]])), steps=1)
    receiver = tf.estimator.export.build_parsing_serving_input_receiver_fn(tf.feature_column.make_parse_example_spec(columns))
    exported = canned.export_saved_model(directory, receiver).decode()
    predicted = [row["probabilities"].tolist() for row in canned.predict(lambda: tf.data.Dataset.from_tensors(features))]

    def example(age, job):
        ages = tf.train.Feature(float_list=tf.train.FloatList(value=[age]))
        jobs = tf.train.Feature(bytes_list=tf.train.BytesList(value=[job]))
        return tf.train.Example(features=tf.train.Features(feature={"age": ages, "job": jobs})).SerializeToString()

    examples = [{"b64": base64.b64encode(example(*row)).decode()} for row in [(1.0, b"a"), (2.0, b"b")]]
    return {"directory": exported, "examples": examples, "probabilities": predicted}


if __name__ == "__main__":
    command, where = sys.argv[1:]
    result = {"load": load, "functions": functions, "keras": keras, "estimator": estimator}[command](where)
    print(json.dumps(result))
