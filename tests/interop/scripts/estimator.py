"""A typical Estimator program: the same on every task, with its role from TF_CONFIG."""

import json
import os

import numpy as np
import tensorflow as tf

flags = tf.app.flags
flags.DEFINE_string("model_dir", None, "Where checkpoints, events and exports go")
flags.DEFINE_string("model", "wide_deep", "wide_deep (canned, feature columns) or own (a model_fn)")
flags.DEFINE_string("input", "map", "Which tf.data pipeline: map, records or generator")
flags.DEFINE_integer("max_steps", 400, "Training ends at this step")
flags.DEFINE_integer("save_steps", 50, "Steps between checkpoints")
flags.DEFINE_integer("stop_at", 0, "Stops early at this step, when it is given")
flags.DEFINE_float("pause", 0.0, "Seconds between steps, for a test that needs time to kill a task")
flags.DEFINE_string("warm_start", None, "A directory with a checkpoint to start from")
FLAGS = flags.FLAGS

COLOURS = ["red", "green", "blue"]


def rows(count, seed):
    """Returns rows whose label depends on their features."""
    random = np.random.RandomState(seed)
    x, y = random.uniform(-1, 1, [2, count]).astype(np.float32)
    colour = random.randint(0, len(COLOURS), count)
    label = ((x + y > 0) ^ (colour == 2)).astype(np.int32)
    return {"x": x, "y": y, "colour": np.array(COLOURS)[colour]}, label


def input_fn(count, seed, is_training):
    features, label = rows(count, seed)
    if FLAGS.input == "generator":
        def generate():
            for index in range(count):
                yield {key: values[index] for key, values in features.items()}, label[index]

        types = {"x": tf.float32, "y": tf.float32, "colour": tf.string}, tf.int32
        shapes = {"x": [], "y": [], "colour": []}, []
        data = tf.data.Dataset.from_generator(generate, types, shapes)
    elif FLAGS.input == "records":
        data = tf.data.TFRecordDataset([records(features, label, seed)])
        specification = {
            "x": tf.io.FixedLenFeature([], tf.float32), "y": tf.io.FixedLenFeature([], tf.float32),
            "colour": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64),
        }

        def parse(record):
            parsed = tf.io.parse_single_example(record, specification)
            return parsed, tf.cast(parsed.pop("label"), tf.int32)

        data = data.map(parse, num_parallel_calls=2)
    else:
        data = tf.data.Dataset.from_tensor_slices((features, label))
        data = data.map(lambda row, label: (dict(row, y=tf.identity(row["y"])), label), num_parallel_calls=2)
    if is_training:
        data = data.shuffle(500, seed=seed).repeat()
    return data.batch(50).prefetch(2)


def records(features, label, seed):
    """Writes the rows as tf.train.Examples, and returns the file's name."""
    path = os.path.join(FLAGS.model_dir, f"rows-{seed}-{os.getpid()}.tfrecord")
    os.makedirs(FLAGS.model_dir, exist_ok=True)
    with tf.io.TFRecordWriter(path) as writer:
        for index in range(len(label)):
            def floats(key):
                return tf.train.Feature(float_list=tf.train.FloatList(value=[features[key][index]]))

            colour = tf.train.BytesList(value=[features["colour"][index].encode()])
            example = tf.train.Example(features=tf.train.Features(feature={
                "x": floats("x"), "y": floats("y"), "colour": tf.train.Feature(bytes_list=colour),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label[index]])),
            }))
            writer.write(example.SerializeToString())
    return path


def columns():
    x, y = tf.feature_column.numeric_column("x"), tf.feature_column.numeric_column("y")
    colour = tf.feature_column.categorical_column_with_vocabulary_list("colour", COLOURS)
    buckets = [tf.feature_column.bucketized_column(x, [-0.5, 0.0, 0.5]), tf.feature_column.bucketized_column(y, [-0.5, 0.0, 0.5])]
    wide = [colour, tf.feature_column.crossed_column([*buckets, colour], 1000)]
    return wide, [x, y, tf.feature_column.indicator_column(colour), tf.feature_column.embedding_column(colour, 2)]


def own_model(features, labels, mode, params):
    del params
    net = tf.feature_column.input_layer(features, columns()[1])
    for units in (32, 16):
        net = tf.layers.dense(net, units, activation=tf.nn.relu)
    logits = tf.layers.dense(net, 2)
    classes = tf.argmax(logits, 1)
    predictions = {"classes": classes, "probabilities": tf.nn.softmax(logits)}
    if mode == tf.estimator.ModeKeys.PREDICT:
        outputs = {"serving_default": tf.estimator.export.PredictOutput(predictions)}
        return tf.estimator.EstimatorSpec(mode, predictions=predictions, export_outputs=outputs)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    metrics = {"accuracy": tf.metrics.accuracy(labels, classes)}
    train = tf.train.AdamOptimizer(0.01).minimize(loss, global_step=tf.train.get_or_create_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train, eval_metric_ops=metrics)


class Steps(tf.train.SessionRunHook):
    """Prints the global step from time to time, and slows training down."""

    def begin(self):
        self._step, self._count = tf.train.get_global_step(), 0

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(self._step)

    def after_run(self, run_context, run_values):
        self._count += 1
        if self._count % 5 == 0:
            print("STEP", run_values.results, flush=True)
        if FLAGS.pause:
            import time

            time.sleep(FLAGS.pause)
        if FLAGS.stop_at and run_values.results >= FLAGS.stop_at:
            run_context.request_stop()


def main(_):
    tf.logging.set_verbosity(tf.logging.INFO)
    config = tf.estimator.RunConfig(model_dir=FLAGS.model_dir, save_checkpoints_steps=FLAGS.save_steps, tf_random_seed=1)
    if config.task_type == "evaluator":
        print("EVALUATES ON", config.evaluation_master, flush=True)
    if FLAGS.model == "own":
        estimator = tf.estimator.Estimator(own_model, config=config)
    else:
        wide, deep = columns()
        estimator = tf.estimator.DNNLinearCombinedClassifier(
            linear_feature_columns=wide, dnn_feature_columns=deep, dnn_hidden_units=[32, 16], config=config,
            dnn_optimizer=tf.train.AdagradOptimizer(0.1), warm_start_from=FLAGS.warm_start)
    specification = tf.feature_column.make_parse_example_spec(columns()[0] + columns()[1])
    receiver = tf.estimator.export.build_parsing_serving_input_receiver_fn(specification)
    seed = 1 + config.global_id_in_cluster if config.global_id_in_cluster is not None else 1
    train = tf.estimator.TrainSpec(lambda: input_fn(2000, seed, True), max_steps=FLAGS.max_steps, hooks=[Steps()])
    evaluation = tf.estimator.EvalSpec(
        lambda: input_fn(1000, 99, False), steps=None, start_delay_secs=0, throttle_secs=1,
        exporters=[tf.estimator.LatestExporter("latest", receiver), tf.estimator.FinalExporter("final", receiver)])
    tf.estimator.train_and_evaluate(estimator, train, evaluation)
    if config.task_type == "evaluator":
        metrics = estimator.evaluate(lambda: input_fn(1000, 99, False))
        print("RESULT", json.dumps({key: float(value) for key, value in metrics.items()}), flush=True)
    print("DONE", config.task_type, flush=True)


if __name__ == "__main__":
    tf.app.run()
