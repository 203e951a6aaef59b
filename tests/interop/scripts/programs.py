"""Typical Estimator and tf.data programs, each in a function.

A program runs in TensorFlow itself, or as a task of the cluster in TF_CONFIG, and prints its results: numbers that depend only on
its seeds.
"""

import json
import os
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

flags = tf.app.flags
flags.DEFINE_string("program", None, "The function to run")
flags.DEFINE_string("dir", None, "A directory for models and files")
FLAGS = flags.FLAGS

TASK = json.loads(os.environ.get("TF_CONFIG") or "{}").get("task", {"type": "alone", "index": 0})
PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def found(**numbers):
    flat = {name: np.asarray(value, np.float64).ravel().tolist() for name, value in numbers.items()}
    print("RESULT", json.dumps(flat), flush=True)


def config(name="model", **arguments):
    arguments.setdefault("save_checkpoints_steps", 20)
    return tf.estimator.RunConfig(model_dir=os.path.join(FLAGS.dir, name), tf_random_seed=3, **arguments)


def run(estimator, train, evaluate, steps, hooks=(), exporters=None):
    """Trains with `train_and_evaluate`; the chief evaluates by itself at the end."""
    tf.estimator.train_and_evaluate(
        estimator, tf.estimator.TrainSpec(train, max_steps=steps, hooks=list(hooks)),
        tf.estimator.EvalSpec(evaluate, steps=None, start_delay_secs=0, throttle_secs=0, exporters=exporters))
    if TASK["type"] not in ("alone", "chief", "master"):
        return None
    return estimator.evaluate(evaluate)


def numbers(count, seed=5):
    random = np.random.RandomState(seed)
    x = random.uniform(-1, 1, [count, 2]).astype(np.float32)
    return x, (x[:, 0] > x[:, 1]).astype(np.int32)


def point_columns():
    return [tf.feature_column.numeric_column("x"), tf.feature_column.numeric_column("y")]


def points(count, seed=5, repeats=1):
    x, label = numbers(count, seed)
    data = tf.data.Dataset.from_tensor_slices(({"x": x[:, 0], "y": x[:, 1]}, label))
    return data.repeat(repeats).batch(20)


@program
def regression_on_arrays():
    x, _ = numbers(200)
    y = (2 * x[:, 0] - x[:, 1] + 0.5).astype(np.float32)
    model = tf.estimator.LinearRegressor([tf.feature_column.numeric_column("x", shape=[2])], config=config())
    train = tf.estimator.inputs.numpy_input_fn({"x": x}, y, batch_size=20, num_epochs=None, shuffle=False)
    test = tf.estimator.inputs.numpy_input_fn({"x": x}, y, batch_size=50, num_epochs=1, shuffle=False)
    measured = run(model, train, test, 60)
    if measured:
        predicted = [row["predictions"][0] for row in model.predict(test)][:5]
        weights = model.get_variable_value("linear/linear_model/x/weights")
        found(loss=measured["average_loss"], predicted=predicted, weights=weights)


@program
def iris_like_classes():
    def rows(shuffled):
        x, label = numbers(300)
        label = label + (np.abs(x).sum(1) > 1.2)
        data = tf.data.Dataset.from_tensor_slices(({"x": x[:, 0], "y": x[:, 1]}, label.astype(np.int32)))
        return (data.shuffle(300, seed=2).repeat() if shuffled else data).batch(30)

    model = tf.estimator.DNNClassifier([10, 10], point_columns(), n_classes=3, config=config(),
                                       optimizer=tf.train.AdagradOptimizer(0.1))
    measured = run(model, lambda: rows(True), lambda: rows(False), 80)
    if measured:
        best = [row["class_ids"][0] for row in model.predict(lambda: rows(False))]
        found(accuracy=measured["accuracy"], loss=measured["average_loss"], classes=np.bincount(best, minlength=3) / len(best))


@program
def lines_of_text():
    name = os.path.join(FLAGS.dir, f"people-{TASK['type']}.csv")
    random = np.random.RandomState(1)
    with open(name, "w") as file:
        file.write("age,job,rich\n")
        for _ in range(200):
            age, job = random.randint(18, 80), random.choice(["cook", "smith", "clerk"])
            file.write(f"{age},{job},{int(age > 40 and job != 'cook')}\n")

    def rows(repeats):
        def parse(line):
            age, job, rich = tf.io.decode_csv(line, [[0.0], [""], [0]])
            return {"age": age, "job": job}, rich

        return tf.data.TextLineDataset(name).skip(1).map(parse).repeat(repeats).batch(25)

    column = tf.feature_column
    ages = column.bucketized_column(column.numeric_column("age"), [25, 40, 60])
    job = column.categorical_column_with_vocabulary_list("job", ["cook", "smith", "clerk"])
    model = tf.estimator.LinearClassifier([ages, job, column.crossed_column([ages, "job"], 50)], config=config())
    measured = run(model, lambda: rows(None), lambda: rows(1), 60)
    if measured:
        found(accuracy=measured["accuracy"], auc=measured["auc"], loss=measured["average_loss"])


@program
def records_with_words():
    name = os.path.join(FLAGS.dir, f"words-{TASK['type']}.tfrecord")
    random = np.random.RandomState(2)
    with tf.io.TFRecordWriter(name) as writer:
        for _ in range(200):
            words = [f"w{index}".encode() for index in random.randint(0, 12, random.randint(1, 5))]
            example = tf.train.Example(features=tf.train.Features(feature={
                "words": tf.train.Feature(bytes_list=tf.train.BytesList(value=words)),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(b"w3" in words or b"w4" in words)])),
            }))
            writer.write(example.SerializeToString())
    words = tf.feature_column.categorical_column_with_hash_bucket("words", 100)
    columns = [tf.feature_column.embedding_column(words, 4, combiner="sqrtn"), tf.feature_column.indicator_column(words)]
    specification = tf.feature_column.make_parse_example_spec(columns)

    def rows(repeats):
        full = dict(specification, label=tf.io.FixedLenFeature([1], tf.int64))

        def parse(records):
            features = tf.io.parse_example(records, full)
            return features, features.pop("label")

        return tf.data.TFRecordDataset(name).repeat(repeats).batch(20).map(parse, num_parallel_calls=2).prefetch(1)

    model = tf.estimator.DNNClassifier([8], columns, config=config(), optimizer=tf.train.AdamOptimizer(0.02))
    measured = run(model, lambda: rows(None), lambda: rows(1), 60)
    if measured:
        receiver = tf.estimator.export.build_parsing_serving_input_receiver_fn(specification)
        exported = model.export_saved_model(os.path.join(FLAGS.dir, "exported"), receiver)
        found(accuracy=measured["accuracy"], loss=measured["average_loss"], exported=len(os.listdir(exported)) > 0)


@program
def own_model_with_batch_normalization():
    def model_fn(features, labels, mode, params):
        is_training = mode == tf.estimator.ModeKeys.TRAIN
        net = tf.reshape(features["picture"], [-1, 8, 8, 1])
        net = tf.layers.conv2d(net, 4, 3, padding="same")
        net = tf.nn.relu(tf.layers.batch_normalization(net, training=is_training))
        net = tf.layers.max_pooling2d(net, 2, 2)
        logits = tf.layers.dense(tf.layers.flatten(net), 2)
        predictions = {"class": tf.argmax(logits, 1)}
        if mode == tf.estimator.ModeKeys.PREDICT:
            return tf.estimator.EstimatorSpec(mode, predictions=predictions)
        loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
        step = tf.train.get_global_step()
        rate = tf.train.exponential_decay(params["rate"], step, 20, 0.9)
        with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
            train = tf.train.MomentumOptimizer(rate, 0.9).minimize(loss, global_step=step)
        tf.summary.scalar("rate", rate)
        metrics = {"accuracy": tf.metrics.accuracy(labels, predictions["class"])}
        return tf.estimator.EstimatorSpec(mode, predictions, loss, train, metrics)

    def rows(repeats):
        random = np.random.RandomState(4)
        pictures = random.uniform(0, 1, [120, 8, 8]).astype(np.float32)
        labels = (pictures[:, :4].mean((1, 2)) > pictures[:, 4:].mean((1, 2))).astype(np.int32)
        return tf.data.Dataset.from_tensor_slices(({"picture": pictures}, labels)).repeat(repeats).batch(20)

    model = tf.estimator.Estimator(model_fn, params={"rate": 0.05}, config=config())
    measured = run(model, lambda: rows(None), lambda: rows(1), 60)
    if measured:
        moving = model.get_variable_value("batch_normalization/moving_mean")
        found(accuracy=measured["accuracy"], loss=measured["loss"], moving_mean=moving)


def served():
    """Returns this task's server, and a scope that places variables on parameter servers; None without a cluster."""
    if TASK["type"] == "alone":
        return None, tf.device(None)
    cluster = tf.train.ClusterSpec(json.loads(os.environ["TF_CONFIG"])["cluster"])
    server = tf.train.Server(cluster, job_name=TASK["type"], task_index=TASK["index"])
    if TASK["type"] == "ps":
        server.join()
    return server, tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:{TASK['type']}/task:0"))


@program
def monitored_session_with_an_iterator():
    server, scope = served()
    if TASK["type"] == "ps":
        return
    with scope:
        step = tf.train.get_or_create_global_step()
        x, label = numbers(100)
        data = tf.data.Dataset.from_tensor_slices((x, label.astype(np.float32)))
        iterator = tf.data.make_initializable_iterator(data.shuffle(50, seed=9).repeat().batch(10))
        features, labels = iterator.get_next()
        weights = tf.get_variable("weights", [2, 1], initializer=tf.zeros_initializer())
        loss = tf.losses.sigmoid_cross_entropy(labels[:, None], tf.matmul(features, weights))
        train = tf.train.GradientDescentOptimizer(0.5).minimize(loss, global_step=step)
        tf.summary.scalar("loss", loss)

    class Start(tf.train.SessionRunHook):
        def after_create_session(self, session, coord):
            session.run(iterator.initializer)

    losses = []
    hooks = [Start(), tf.train.StopAtStepHook(40), tf.train.LoggingTensorHook({"loss": loss}, every_n_iter=10)]
    with tf.train.MonitoredTrainingSession(
            server.target if server else "", is_chief=True, checkpoint_dir=os.path.join(FLAGS.dir, "model"), hooks=hooks,
            save_summaries_steps=10) as session:
        while not session.should_stop():
            losses.append(session.run([train, loss])[1])
    found(losses=losses, steps=len(losses))


def session_of(server):
    return tf.Session(server.target if server else "")


@program
def one_iterator_for_training_and_validation():
    server, scope = served()
    if TASK["type"] == "ps":
        return
    with scope:
        x, label = numbers(60)
        train_data = tf.data.Dataset.from_tensor_slices((x[:40], label[:40])).shuffle(40, seed=1).batch(8)
        test_data = tf.data.Dataset.from_tensor_slices((x[40:], label[40:])).batch(20)
        iterator = tf.data.Iterator.from_structure(tf.data.get_output_types(train_data), tf.data.get_output_shapes(train_data))
        features, labels = iterator.get_next()
        start = {"train": iterator.make_initializer(train_data), "test": iterator.make_initializer(test_data)}
        weights = tf.get_variable("weights", [2, 2], initializer=tf.zeros_initializer())
        logits = tf.matmul(features, weights)
        loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
        train = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1, output_type=tf.int32), labels), tf.float32))
    accuracies, losses = [], []
    with session_of(server) as session:
        session.run(tf.global_variables_initializer())
        for _ in range(4):
            session.run(start["train"])
            while True:
                try:
                    losses.append(session.run([train, loss])[1])
                except tf.errors.OutOfRangeError:
                    break
            session.run(start["test"])
            accuracies.append(session.run(accuracy))
    found(losses=losses, accuracies=accuracies)


@program
def handles_of_two_iterators():
    server, scope = served()
    if TASK["type"] == "ps":
        return
    with scope:
        odd = tf.data.Dataset.range(1, 20, 2).repeat()
        even = tf.data.Dataset.range(0, 20, 2)
        handle = tf.placeholder(tf.string, [])
        both = tf.data.Iterator.from_string_handle(handle, tf.data.get_output_types(odd), tf.data.get_output_shapes(odd))
        first, second = tf.data.make_one_shot_iterator(odd), tf.data.make_initializable_iterator(even)
        drawn = both.get_next()
    values = []
    with session_of(server) as session:
        handles = session.run([first.string_handle(), second.string_handle()])
        session.run(second.initializer)
        for index in range(12):
            values.append(session.run(drawn, {handle: handles[index % 3 == 2]}))
        session.run(second.initializer)
        values.append(session.run(drawn, {handle: handles[1]}))
    found(values=values)


@program
def early_stopping():
    model = tf.estimator.DNNClassifier([4], point_columns(), config=config(save_checkpoints_steps=10),
                                       optimizer=tf.train.AdagradOptimizer(0.05))
    os.makedirs(model.eval_dir(), exist_ok=True)
    stop = tf.estimator.experimental.stop_if_higher_hook(model, "accuracy", 0.0, run_every_secs=None, run_every_steps=10)
    measured = run(model, lambda: points(200, repeats=None), lambda: points(100, 6), 40, hooks=[stop])
    if measured:
        found(steps=measured["global_step"] <= 40, accuracy=measured["accuracy"] > 0.4)


@program
def warm_start():
    def network(name, **arguments):
        return tf.estimator.DNNClassifier([6], point_columns(), config=config(name), optimizer=tf.train.AdagradOptimizer(0.1),
                                          **arguments)

    first = os.path.join(FLAGS.dir, "first")
    if TASK["type"] == "alone" or TASK["type"] == "chief":
        # A separate program has trained the initial values before.
        environment = os.environ.pop("TF_CONFIG", None)
        network("first").train(lambda: points(200, repeats=None), steps=60)
        if environment:
            os.environ["TF_CONFIG"] = environment
    start = tf.estimator.WarmStartSettings(first, vars_to_warm_start=".*hiddenlayer.*")
    model = network("second", warm_start_from=start if TASK["type"] in ("alone", "chief") else None)
    measured = run(model, lambda: points(200, repeats=None), lambda: points(100, 6), 10)
    if measured:
        found(accuracy=measured["accuracy"], loss=measured["average_loss"])


@program
def exporters():
    columns = point_columns()
    receiver = tf.estimator.export.build_parsing_serving_input_receiver_fn(tf.feature_column.make_parse_example_spec(columns))
    model = tf.estimator.DNNRegressor([5], columns, config=config(), optimizer=tf.train.AdagradOptimizer(0.1))
    exports = [tf.estimator.LatestExporter("latest", receiver, exports_to_keep=2), tf.estimator.FinalExporter("final", receiver)]
    measured = run(model, lambda: points(100, repeats=None), lambda: points(100, 6), 60, exporters=exports)
    if measured:
        found(loss=measured["average_loss"], mean=measured["prediction/mean"])


@program
def sequences_of_other_lengths():
    def model_fn(features, labels, mode):
        table = tf.get_variable("table", [10, 4])
        inputs = tf.nn.embedding_lookup(table, features["ids"])
        cell = tf.nn.rnn_cell.LSTMCell(6, name="lstm")
        _, state = tf.nn.dynamic_rnn(cell, inputs, features["length"], dtype=tf.float32)
        logits = tf.layers.dense(state.h, 1)
        loss = tf.losses.sigmoid_cross_entropy(labels[:, None], logits)
        train = tf.train.AdamOptimizer(0.02).minimize(loss, global_step=tf.train.get_global_step())
        metrics = {"auc": tf.metrics.auc(labels, tf.sigmoid(logits[:, 0]))}
        return tf.estimator.EstimatorSpec(mode, logits, loss, train, metrics)

    def rows(repeats):
        random = np.random.RandomState(6)
        sequences = [random.randint(1, 10, random.randint(1, 7)).tolist() for _ in range(120)]

        def generate():
            for ids in sequences:
                yield {"ids": ids, "length": len(ids)}, float(3 in ids)

        types = {"ids": tf.int32, "length": tf.int32}, tf.float32
        shapes = {"ids": [None], "length": []}, []
        data = tf.data.Dataset.from_generator(generate, types, shapes)
        return data.repeat(repeats).padded_batch(12, shapes)

    model = tf.estimator.Estimator(model_fn, config=config())
    measured = run(model, lambda: rows(None), lambda: rows(1), 50)
    if measured:
        found(auc=measured["auc"], loss=measured["loss"])


@program
def interleaved_files_kept_on_disk():
    names = []
    for number in range(4):
        names.append(os.path.join(FLAGS.dir, f"numbers-{TASK['type']}-{number}.txt"))
        with open(names[-1], "w") as file:
            file.writelines(f"{number * 100 + line}\n" for line in range(25))

    def rows(repeats, cache):
        data = tf.data.Dataset.from_tensor_slices(names)
        data = data.interleave(tf.data.TextLineDataset, cycle_length=2, block_length=3, num_parallel_calls=2)
        data = data.map(lambda line: tf.string_to_number(line) / 400).filter(lambda x: x > 0.01)
        data = data.cache(os.path.join(FLAGS.dir, f"{cache}-{TASK['type']}")).repeat(repeats).batch(10).prefetch(2)
        return data.map(lambda x: ({"x": x}, 3 * x - 1))

    model = tf.estimator.LinearRegressor([tf.feature_column.numeric_column("x")], config=config())
    measured = run(model, lambda: rows(None, "train"), lambda: rows(1, "test"), 60)
    if measured:
        found(loss=measured["average_loss"], mean=measured["label/mean"], bias=model.get_variable_value("linear/linear_model/bias_weights"))


@program
def weights_crosses_and_shared_embeddings():
    column = tf.feature_column
    x = column.numeric_column("x")
    buckets = column.bucketized_column(x, [-0.5, 0.0, 0.5])
    here, there = (column.categorical_column_with_identity(name, 8, default_value=0) for name in ("here", "there"))
    wide = [buckets, column.crossed_column([buckets, here], 40)]
    deep = [x, *column.shared_embedding_columns([here, there], 3)]

    def rows(repeats):
        random = np.random.RandomState(8)
        features = {"x": random.uniform(-1, 1, 160).astype(np.float32), "here": random.randint(0, 9, 160),
                    "there": random.randint(0, 8, 160), "weight": random.uniform(0, 2, 160).astype(np.float32)}
        labels = (features["x"] + (features["here"] == features["there"])).astype(np.float32)
        return tf.data.Dataset.from_tensor_slices((features, labels)).repeat(repeats).batch(16)

    model = tf.estimator.DNNLinearCombinedRegressor(
        linear_feature_columns=wide, dnn_feature_columns=deep, dnn_hidden_units=[6], weight_column="weight", config=config())
    measured = run(model, lambda: rows(None), lambda: rows(1), 60)
    if measured:
        found(loss=measured["average_loss"], mean=measured["prediction/mean"])


@program
def named_classes_and_added_metrics():
    def rows(repeats):
        x, label = numbers(150)
        names = np.array(["below", "above"])[label]
        return tf.data.Dataset.from_tensor_slices(({"x": x[:, 0], "y": x[:, 1]}, names)).repeat(repeats).batch(15)

    def more(labels, predictions):
        is_above = tf.cast(tf.equal(labels, "above"), tf.float32)
        return {"square": tf.metrics.mean_squared_error(is_above, tf.reshape(predictions["logistic"], [-1]))}

    model = tf.estimator.LinearClassifier(point_columns(), label_vocabulary=["below", "above"], config=config())
    model = tf.estimator.add_metrics(model, more)
    measured = run(model, lambda: rows(None), lambda: rows(1), 60)
    if measured:
        classes = [row["classes"][0] for row in model.predict(lambda: rows(1))]
        found(auc=measured["auc"], square=measured["square"], above=classes.count(b"above"))


@program
def words_of_a_vocabulary_file():
    name = os.path.join(FLAGS.dir, f"vocabulary-{TASK['type']}.txt")
    with open(name, "w") as file:
        file.write("\n".join(["good", "bad", "film", "the", "was"]) + "\n")
    lines = ["the film was good", "the film was bad", "good good film", "bad film", "what a good film", "was bad"]

    def rows(repeats):
        table = tf.lookup.StaticVocabularyTable(tf.lookup.TextFileInitializer(
            name, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER), 2)

        def split(line, label):
            return {"ids": table.lookup(tf.string_split([line]).values)}, label

        labels = [int("good" in line) for line in lines]
        data = tf.data.Dataset.from_tensor_slices((lines, labels)).map(split).repeat(repeats)
        data = data.padded_batch(3, ({"ids": [4]}, []), ({"ids": np.int64(7)}, 0))
        iterator = tf.data.make_initializable_iterator(data)
        tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
        return iterator.get_next()

    def model_fn(features, labels, mode):
        counts = tf.reduce_sum(tf.one_hot(features["ids"], 7), 1)
        logits = tf.layers.dense(counts, 1, kernel_initializer=tf.zeros_initializer())
        loss = tf.losses.sigmoid_cross_entropy(labels[:, None], logits)
        train = tf.train.GradientDescentOptimizer(0.5).minimize(loss, global_step=tf.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, logits, loss, train, {"right": tf.metrics.accuracy(labels, logits[:, 0] > 0)})

    model = tf.estimator.Estimator(model_fn, config=config())
    measured = run(model, lambda: rows(None), lambda: rows(1), 30)
    if measured:
        found(right=measured["right"], loss=measured["loss"], kernel=model.get_variable_value("dense/kernel"))


def main(_):
    FLAGS.dir = FLAGS.dir or tempfile.mkdtemp()
    os.makedirs(FLAGS.dir, exist_ok=True)
    PROGRAMS[FLAGS.program]()


if __name__ == "__main__":
    tf.app.run(main)
