"""An Estimator that trains the model of `ferroflow train` together with its tasks, as the task that TF_CONFIG names."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

flags = tf.app.flags
flags.DEFINE_string("model_dir", None, "")
flags.DEFINE_integer("hidden_units", 16, "")
flags.DEFINE_integer("max_steps", 50, "")
FLAGS = flags.FLAGS


def dense(x, name, rows, columns):
    w = tf.Variable(tf.truncated_normal([rows, columns], stddev=0.1), name=f"{name}_w")
    b = tf.Variable(tf.zeros([columns]), name=f"{name}_b")
    return tf.nn.xw_plus_b(x, w, b)


def model(features, labels, mode):
    hidden = tf.nn.relu(dense(features["image"], "hid", 784, FLAGS.hidden_units))
    logits = dense(hidden, "sm", FLAGS.hidden_units, 10)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    train = tf.train.AdamOptimizer(0.01).minimize(loss, tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)


def digits():
    """Stripes whose place tells the class: something to learn that disturbs the digits little."""
    classes = np.arange(200) % 10
    images = np.zeros([200, 784], np.float32)
    images[np.arange(200), classes * 2] = 1
    return tf.data.Dataset.from_tensor_slices(({"image": images}, classes)).repeat().batch(20)


class Told(tf.train.SessionRunHook):
    def begin(self):
        self.steps, self.at = 0, 0

    def before_run(self, _):
        return tf.train.SessionRunArgs(tf.train.get_global_step())

    def after_run(self, _, values):
        self.steps, self.at = self.steps + 1, values.results


def main(_):
    told = Told()
    estimator = tf.estimator.Estimator(model, config=tf.estimator.RunConfig(model_dir=FLAGS.model_dir))
    train = tf.estimator.TrainSpec(digits, max_steps=FLAGS.max_steps, hooks=[told])
    tf.estimator.train_and_evaluate(estimator, train, tf.estimator.EvalSpec(digits, steps=1))
    print(f"estimator: {told.steps} steps, global step {told.at}", flush=True)


tf.app.run(main)
