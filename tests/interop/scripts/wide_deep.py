"""`examples/wide_deep.rs` as a TensorFlow program: the same columns, optimizers, rows and steps, with
`DNNLinearCombinedClassifier`.

By itself it runs in TensorFlow; with TF_CONFIG and under `python -m ferroflow` it is a task of a cluster:

    cargo xtask python tests/interop/scripts/wide_deep.py --model_dir=/tmp/census-tensorflow
"""

import csv
import gzip
import json
import pathlib

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

flags = tf.app.flags
flags.DEFINE_string("model_dir", None, "Where checkpoints and events go")
flags.DEFINE_integer("train_steps", 3000, "Training ends at this step")
flags.DEFINE_integer("seed", 1, "The seed of the graph and of the order of rows")
FLAGS = flags.FLAGS

ROWS = pathlib.Path(__file__).resolve().parents[3] / "crates" / "census" / "adult.csv.gz"
TEST_ROWS = 16_281

NUMBERS = {"age": "age", "education_num": "educational-num", "capital_gain": "capital-gain", "capital_loss": "capital-loss",
           "hours_per_week": "hours-per-week"}
WORDS = {"workclass": "workclass", "education": "education", "marital_status": "marital-status", "occupation": "occupation",
         "relationship": "relationship"}

WORKCLASSES = ["Self-emp-not-inc", "Private", "State-gov", "Federal-gov", "Local-gov", "?", "Self-emp-inc", "Without-pay",
               "Never-worked"]
EDUCATIONS = ["Bachelors", "HS-grad", "11th", "Masters", "9th", "Some-college", "Assoc-acdm", "Assoc-voc", "7th-8th", "Doctorate",
              "Prof-school", "5th-6th", "10th", "1st-4th", "Preschool", "12th"]
MARITAL_STATUSES = ["Married-civ-spouse", "Divorced", "Married-spouse-absent", "Never-married", "Separated", "Married-AF-spouse",
                    "Widowed"]
RELATIONSHIPS = ["Husband", "Not-in-family", "Wife", "Own-child", "Unmarried", "Other-relative"]
AGES = [18, 25, 30, 35, 40, 45, 50, 55, 60, 65]


def read():
    """Returns features and labels for training, and those for tests, which are the first rows of the file."""
    with gzip.open(ROWS, "rt") as file:
        rows = list(csv.DictReader(file))
    features = {name: np.array([float(row[column]) for row in rows], np.float32) for name, column in NUMBERS.items()}
    features.update({name: np.array([row[column].strip() for row in rows]) for name, column in WORDS.items()})
    labels = np.array([row["income"].strip().startswith(">50K") for row in rows], np.int64)
    part = lambda which: ({name: values[which] for name, values in features.items()}, labels[which])
    return part(slice(TEST_ROWS, None)), part(slice(0, TEST_ROWS))


def columns():
    """Returns the columns of the linear model and those of the network."""
    column = tf.feature_column
    age = column.numeric_column("age")
    ages = column.bucketized_column(age, AGES)
    workclass = column.categorical_column_with_vocabulary_list("workclass", WORKCLASSES)
    education = column.categorical_column_with_vocabulary_list("education", EDUCATIONS)
    marital_status = column.categorical_column_with_vocabulary_list("marital_status", MARITAL_STATUSES)
    relationship = column.categorical_column_with_vocabulary_list("relationship", RELATIONSHIPS)
    occupation = column.categorical_column_with_hash_bucket("occupation", 1000)
    wide = [education, marital_status, relationship, workclass, occupation, ages,
            column.crossed_column(["education", "occupation"], 1000),
            column.crossed_column([ages, "education", "occupation"], 1000)]
    logarithm = lambda x: tf.log(x + 1.0)
    deep = [age, column.numeric_column("education_num"), column.numeric_column("capital_gain", normalizer_fn=logarithm),
            column.numeric_column("capital_loss", normalizer_fn=logarithm), column.numeric_column("hours_per_week")]
    deep += [column.indicator_column(words) for words in (workclass, education, marital_status, relationship)]
    return wide, [*deep, column.embedding_column(occupation, 8)]


def main(_):
    train_rows, test_rows = read()
    wide, deep = columns()
    model = tf.estimator.DNNLinearCombinedClassifier(
        linear_feature_columns=wide, linear_optimizer=tf.train.FtrlOptimizer(0.05), dnn_feature_columns=deep,
        dnn_optimizer=tf.train.AdagradOptimizer(0.05), dnn_hidden_units=[100, 75, 50, 25],
        config=tf.estimator.RunConfig(model_dir=FLAGS.model_dir, save_checkpoints_steps=1000, tf_random_seed=FLAGS.seed))

    def train_input():
        rows = tf.data.Dataset.from_tensor_slices(train_rows)
        return rows.shuffle(33_000, seed=FLAGS.seed).repeat().batch(100, drop_remainder=True).prefetch(2)

    def test_input():
        return tf.data.Dataset.from_tensor_slices(test_rows).batch(1000)

    train = tf.estimator.TrainSpec(train_input, max_steps=FLAGS.train_steps)
    evaluation = tf.estimator.EvalSpec(test_input, steps=None, start_delay_secs=0, throttle_secs=0)
    measured = tf.estimator.train_and_evaluate(model, train, evaluation)
    if measured and measured[0]:
        print("RESULT", json.dumps({name: float(value) for name, value in measured[0].items()}), flush=True)


if __name__ == "__main__":
    tf.app.run(main)
