"""An Estimator program with TensorFlow 1's multi-worker mirrored strategy, the same on every worker, with its role from
TF_CONFIG.

The workers fit a line, each to its own rows; all use all of their rows in every step, so that the result can be computed.
"""

import json
import os

import numpy as np
import tensorflow as tf

flags = tf.app.flags
flags.DEFINE_string("model_dir", None, "Where checkpoints and events go")
flags.DEFINE_integer("max_steps", 20, "Training ends at this step")
FLAGS = flags.FLAGS

ROWS, WIDTH, RATE = 16, 3, 0.1


def rows(worker):
    random = np.random.RandomState(worker)
    x = random.uniform(-1, 1, [ROWS, WIDTH]).astype(np.float32)
    return x, (x @ [[1.0], [-2.0], [0.5]] + 0.25 * worker).astype(np.float32)


def input_fn(input_context=None):
    data = tf.data.Dataset.from_tensors(rows(input_context.input_pipeline_id if input_context else 0)).repeat()
    # Each worker has generated its own rows, which no other has.
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return data.with_options(options)


def model_fn(features, labels, mode):
    weights = tf.get_variable("weights", [WIDTH, 1], initializer=tf.random_normal_initializer())
    bias = tf.get_variable("bias", [1], initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(features, weights) + bias - labels))
    train = None
    if mode == tf.estimator.ModeKeys.TRAIN:
        train = tf.train.GradientDescentOptimizer(RATE).minimize(loss, global_step=tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)


def main(_):
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()
    config = tf.estimator.RunConfig(model_dir=FLAGS.model_dir, train_distribute=strategy, save_checkpoints_steps=5,
                                    save_summary_steps=5, log_step_count_steps=5)
    estimator = tf.estimator.Estimator(model_fn, config=config)
    tf.estimator.train_and_evaluate(
        estimator, tf.estimator.TrainSpec(input_fn, max_steps=FLAGS.max_steps),
        tf.estimator.EvalSpec(input_fn, steps=1, start_delay_secs=0, throttle_secs=0))
    print(f"DONE {task['type']} {task['index']} {tf.train.Server.__module__}", flush=True)


if __name__ == "__main__":
    tf.app.run()
