"""The canned estimators of `ferroflow::estimator` resume from TensorFlow's checkpoints and run the same steps, and the other way
round."""

import os
import shutil
import subprocess

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import harness
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

STEPS = 10

AGES = [0.5, 1.8, 2.5, 1.2, 0.1, 2.2, 3.1, 1.4]
JOBS = ["cook", "smith", "clerk", "smith", "cook", "cook", "smith", "clerk"]
WEIGHTS = [1.0, 2.0, 0.5, 1.0, 1.0, 1.5, 0.0, 1.0]
LABELS = [0, 1, 1, 0, 2, 1, 1, 0]

COLUMN = tf.feature_column
AGE = COLUMN.numeric_column("age")
JOB = COLUMN.categorical_column_with_vocabulary_list("job", ["cook", "smith"])
WIDE = [COLUMN.bucketized_column(AGE, [1.0, 2.0]), JOB]
DEEP = [AGE, COLUMN.embedding_column(JOB, 2)]

# The number of classes, and how TensorFlow's estimator is made; numbers are predicted from the labels of two classes.
ESTIMATORS = {
    "dnn_classifier": (2, lambda **a: tf.estimator.DNNClassifier([5, 3], DEEP, **a)),
    "dnn_three_classes": (3, lambda **a: tf.estimator.DNNClassifier([5, 3], DEEP, n_classes=3, weight_column="weight", **a)),
    "dnn_regressor": (2, lambda **a: tf.estimator.DNNRegressor([4], DEEP, **a)),
    "linear_classifier": (2, lambda **a: tf.estimator.LinearClassifier(
        WIDE, loss_reduction=tf.losses.Reduction.SUM_OVER_BATCH_SIZE, **a)),
    "linear_regressor": (2, lambda **a: tf.estimator.LinearRegressor(WIDE, **a)),
    "combined_classifier": (2, lambda **a: tf.estimator.DNNLinearCombinedClassifier(
        linear_feature_columns=WIDE, dnn_feature_columns=DEEP, dnn_hidden_units=[4], **a)),
    "combined_regressor": (2, lambda **a: tf.estimator.DNNLinearCombinedRegressor(
        linear_feature_columns=WIDE, dnn_feature_columns=DEEP, dnn_hidden_units=[4], **a)),
    "baseline_classifier": (3, lambda **a: tf.estimator.BaselineClassifier(n_classes=3, weight_column="weight", **a)),
    "baseline_regressor": (2, lambda **a: tf.estimator.BaselineRegressor(**a)),
}


@pytest.fixture(scope="module")
def program():
    return harness.example("canned_steps")


def rows(classes, times):
    labels = [min(label, classes - 1) for label in LABELS]
    features = {"age": AGES, "job": JOBS, "weight": WEIGHTS}
    return tf.data.Dataset.from_tensor_slices((features, labels)).repeat(times).batch(4, drop_remainder=True)


def values(directory):
    reader = tf.train.load_checkpoint(str(directory))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_ten_steps_from_the_same_checkpoint(kind, program, tmp_path):
    classes, make = ESTIMATORS[kind]
    theirs, ours, back = tmp_path / "theirs", tmp_path / "ours", tmp_path / "back"

    def model(directory):
        return make(model_dir=str(directory), config=tf.estimator.RunConfig(tf_random_seed=1))

    def run(steps):
        output = subprocess.run([program, kind, str(ours), str(steps)], check=True, stdout=subprocess.PIPE, text=True)
        return {name: float(number) for name, number in (line.split() for line in output.stdout.splitlines())}

    def train(directory):
        model(directory).train(lambda: rows(classes, None), steps=STEPS)

    train(theirs)
    shutil.copytree(theirs, ours)
    relocate(ours, theirs)
    train(theirs)
    measured = run(STEPS)
    expected = values(theirs)
    found = values(ours)
    assert sorted(found) == sorted(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-5, atol=2e-6, err_msg=name)
    evaluation = model(theirs).evaluate(lambda: rows(classes, 1))
    assert sorted(measured) == sorted(evaluation)
    for name, value in evaluation.items():
        assert measured[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name

    # And back: TensorFlow resumes from our checkpoint.
    shutil.copytree(ours, back)
    relocate(back, ours)
    train(theirs)
    train(back)
    for name, value in values(theirs).items():
        np.testing.assert_allclose(values(back)[name], value, rtol=5e-5, atol=5e-6, err_msg=name)


def relocate(directory, source):
    """The state file may name the files by absolute paths."""
    state = directory / "checkpoint"
    state.write_text(state.read_text().replace(str(source), str(directory)))
