"""The layers, losses and metrics of the Rust library have TensorFlow's variables, restore TensorFlow's checkpoints, and then have
the same results and gradients."""

import os
import subprocess

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import harness
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

BATCH = 4


@pytest.fixture(scope="session")
def directory(tmp_path_factory):
    """The MetaGraphs of all graphs, built in Rust."""
    path = harness.example("layer_graphs")
    made = tmp_path_factory.mktemp("layer_graphs")
    subprocess.run([path, str(made)], check=True)
    return made


class Case:
    """One case in TensorFlow's graph: its scope, the results, and their gradients."""

    def __init__(self, fetches, name, inputs, build):
        before = len(tf.trainable_variables())
        with tf.variable_scope(name):
            outputs = build()
        outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        for index, output in enumerate(outputs):
            fetches[f"out_{name}/{index}"] = output
        variables = tf.trainable_variables()[before:]
        targets = {variable.op.name: variable for variable in variables}
        targets |= {f"input_{index}": x for index, x in enumerate(inputs)}
        gradients = tf.gradients([tf.reduce_sum(tf.square(output)) for output in outputs], list(targets.values()))
        for target, gradient in zip(targets, gradients):
            if gradient is not None:
                fetches[f"grad_{name}/{target}"] = tf.convert_to_tensor(gradient)


def flat(*structures):
    return tf.nest.flatten(structures)


def layers(fetches):
    layer, keras = tf.layers, tf.keras.layers
    rows = tf.placeholder(tf.float32, [None, 6], "rows")
    times = tf.placeholder(tf.float32, [None, 9, 4], "times")
    images = tf.placeholder(tf.float32, [None, 8, 7, 3], "images")
    volumes = tf.placeholder(tf.float32, [None, 5, 6, 5, 2], "volumes")
    words = tf.placeholder(tf.int32, [None, 4], "words")
    training = tf.placeholder(tf.bool, [], "training")

    def case(name, x, build):
        Case(fetches, name, [] if x.dtype == tf.int32 else [x], lambda: build(x))

    case("dense", rows, lambda x: layer.dense(x, 5, tf.nn.relu))
    case("dense_no_bias", rows, lambda x: layer.dense(x, 5, tf.nn.softmax, use_bias=False, name="fc"))
    case("dense_rank3", times, lambda x: layer.dense(x, 5, tf.tanh))
    case("dense_twice", rows, lambda x: layer.dense(layer.dense(x, 6, tf.sigmoid), 3))

    def shared(x):
        one = layer.Dense(6)
        return one(one(x))

    case("dense_shared", rows, shared)
    case("dense_reused", rows, lambda x: layer.dense(layer.dense(x, 6, name="a"), 6, name="a", reuse=True))
    l2, l1 = tf.keras.regularizers.l2, tf.keras.regularizers.l1
    case("regularized", rows, lambda x: layer.dense(x, 5, kernel_regularizer=l2(0.1), bias_regularizer=l1(0.2)))
    case("frozen", rows, lambda x: layer.dense(x, 5, trainable=False))
    case("conv1d", times, lambda x: layer.conv1d(x, 5, 3, strides=2, activation=tf.nn.elu))
    case("conv1d_dilated", times, lambda x: layer.conv1d(x, 5, 3, dilation_rate=2, padding="same"))
    case("conv2d", images, lambda x: layer.conv2d(x, 4, (3, 2), strides=(2, 1), padding="same"))
    case("conv2d_dilated", images, lambda x: layer.conv2d(x, 4, 3, dilation_rate=(2, 1), use_bias=False))
    case("conv3d", volumes, lambda x: layer.conv3d(x, 3, 2, strides=2, padding="same"))
    case("conv3d_dilated", volumes, lambda x: layer.conv3d(x, 3, 2, dilation_rate=(1, 2, 3)))
    case("conv1d_transpose", times, lambda x: keras.Conv1DTranspose(5, 3, strides=2)(x))
    case("conv2d_transpose", images, lambda x: layer.conv2d_transpose(x, 4, 3, strides=(2, 3)))
    case("conv2d_transpose_same", images,
         lambda x: layer.conv2d_transpose(x, 4, 3, strides=2, padding="same", activation=tf.nn.relu))
    case("conv3d_transpose", volumes, lambda x: layer.conv3d_transpose(x, 3, 2, strides=2))
    case("separable_conv1d", times, lambda x: layer.separable_conv1d(x, 5, 3, strides=2, depth_multiplier=2))
    case("separable_conv2d", images, lambda x: layer.separable_conv2d(x, 5, 3, depth_multiplier=2, padding="same"))
    case("separable_conv2d_dilated", images, lambda x: layer.separable_conv2d(x, 5, 2, dilation_rate=2))
    case("depthwise_conv1d", times, lambda x: keras.DepthwiseConv1D(3, strides=2)(x))
    case("depthwise_conv2d", images, lambda x: keras.DepthwiseConv2D(3, strides=2, depth_multiplier=2)(x))
    case("max_pooling1d", times, lambda x: layer.max_pooling1d(x, 2, 2))
    case("max_pooling2d", images, lambda x: layer.max_pooling2d(x, (2, 3), 2, padding="same"))
    case("max_pooling3d", volumes, lambda x: layer.max_pooling3d(x, 2, 2))
    case("average_pooling1d", times, lambda x: layer.average_pooling1d(x, 3, 2, padding="same"))
    case("average_pooling2d", images, lambda x: layer.average_pooling2d(x, 2, 2))
    case("average_pooling3d", volumes, lambda x: layer.average_pooling3d(x, 2, 2, padding="same"))
    case("dropout", rows, lambda x: layer.dropout(x, 0.4, seed=3, training=True))
    case("dropout_off", rows, lambda x: layer.dropout(x, 0.4))
    case("dropout_noise_shape", times,
         lambda x: layer.dropout(x, 0.5, noise_shape=(None, 1, None), seed=4, training=True))
    case("dropout_asked", rows, lambda x: layer.dropout(x, 0.4, seed=5, training=training))
    norm = layer.batch_normalization
    case("batch_norm", rows, lambda x: norm(x, training=True, momentum=0.8))
    case("batch_norm_used", rows, lambda x: norm(x, epsilon=0.01))
    case("batch_norm_asked", rows, lambda x: norm(x, training=training))
    case("batch_norm_axis", times, lambda x: norm(x, axis=1, training=True, scale=False))
    case("batch_norm_fused", images, lambda x: norm(x, training=True))
    case("batch_norm_fused_used", images, lambda x: norm(x, center=False))
    case("batch_norm_fused_asked", images, lambda x: norm(x, training=training, momentum=0.7))
    case("layer_norm", times, lambda x: keras.LayerNormalization()(x))
    case("layer_norm_axes", times, lambda x: keras.LayerNormalization(axis=[1, 2], center=False, name="norm")(x))
    case("embedding", words, lambda x: keras.Embedding(10, 3)(x))
    case("flatten", images, layer.flatten)
    case("flatten_first", images, lambda x: layer.flatten(x, data_format="channels_first"))

    def scope(x):
        with tf.variable_scope("inner", initializer=tf.constant_initializer(0.5), regularizer=l2(0.3)):
            return layer.dense(x, 2)

    case("scope", rows, scope)
    tf.group(*tf.get_collection(tf.GraphKeys.UPDATE_OPS), name="updates")
    fetches["regularization_loss"] = tf.losses.get_regularization_loss()
    random = np.random.RandomState(1)
    feeds = {f"{name}:0": random.randn(BATCH, *shape) for name, shape in
             (("rows", [6]), ("times", [9, 4]), ("images", [8, 7, 3]), ("volumes", [5, 6, 5, 2]))}
    feeds["words:0"] = random.randint(0, 10, [BATCH, 4])
    return [feeds | {"training:0": True}, feeds | {"training:0": False}]


def rnn(fetches):
    cells, nn = tf.nn.rnn_cell, tf.nn
    x = tf.placeholder(tf.float32, [None, 5, 3], "x")
    by_time = tf.placeholder(tf.float32, [None, None, 3], "by_time")
    lengths = tf.placeholder(tf.int32, [None], "lengths")
    steps = tf.unstack(x, axis=1)

    def case(name, build, x=x):
        Case(fetches, name, [x], lambda: flat(build()))

    def dynamic(cell, x=x, **options):
        return nn.dynamic_rnn(cell, x, dtype=tf.float32, **options)

    case("basic", lambda: dynamic(cells.BasicRNNCell(4)))
    case("basic_lstm", lambda: dynamic(cells.BasicLSTMCell(4, forget_bias=0.5), sequence_length=lengths))
    case("lstm", lambda: dynamic(cells.LSTMCell(4)))
    everything = dict(use_peepholes=True, num_proj=2, cell_clip=0.4, proj_clip=0.3)
    case("lstm_all", lambda: dynamic(cells.LSTMCell(4, **everything), sequence_length=lengths))
    case("gru", lambda: dynamic(cells.GRUCell(4, activation=nn.relu), sequence_length=lengths))
    case("time_major",
         lambda: dynamic(cells.GRUCell(4), by_time, time_major=True, sequence_length=lengths, scope="named"), by_time)
    case("multi", lambda: dynamic(
        cells.MultiRNNCell([cells.GRUCell(3), cells.DropoutWrapper(cells.LSTMCell(4), output_keep_prob=1.0)]),
        sequence_length=lengths))
    case("bidirectional",
         lambda: nn.bidirectional_dynamic_rnn(cells.GRUCell(4), cells.LSTMCell(3), x, dtype=tf.float32))
    case("bidirectional_lengths", lambda: nn.bidirectional_dynamic_rnn(
        cells.GRUCell(4), cells.GRUCell(3), x, lengths, dtype=tf.float32))
    case("static", lambda: nn.static_rnn(cells.BasicLSTMCell(4), steps, dtype=tf.float32))
    case("static_lengths",
         lambda: nn.static_rnn(cells.GRUCell(4), steps, dtype=tf.float32, sequence_length=lengths))
    case("static_bidirectional", lambda: nn.static_bidirectional_rnn(
        cells.GRUCell(4), cells.LSTMCell(3), steps, dtype=tf.float32, sequence_length=lengths))
    random = np.random.RandomState(2)
    feeds = {"x:0": random.randn(BATCH, 5, 3), "by_time:0": random.randn(6, BATCH, 3)}
    # The second batch ends early for everyone: what comes after is zeros.
    return [feeds | {"lengths:0": [5, 2, 1, 3]}, feeds | {"lengths:0": [2, 3, 0, 1]}]


def losses(fetches):
    x = tf.placeholder(tf.float32, [None, 4], "x")
    labels = tf.placeholder(tf.float32, [None, 4], "labels")
    classes = tf.placeholder(tf.int64, [None], "classes")
    rows = tf.placeholder(tf.float32, [None, 1], "row_weights")
    each = tf.placeholder(tf.float32, [None, 4], "weights")
    vector = tf.placeholder(tf.float32, [None], "vector")
    tl = tf.losses

    def case(name, build):
        Case(fetches, name, [x], build)

    case("absolute_difference", lambda: tl.absolute_difference(labels, x))
    case("absolute_difference_weights", lambda: tl.absolute_difference(labels, x, rows))
    case("cosine_distance", lambda: tl.cosine_distance(labels, x, 1, rows))
    case("hinge", lambda: tl.hinge_loss(labels, x, 2.0))
    case("huber", lambda: tl.huber_loss(labels, x, each, delta=0.5))
    case("log", lambda: tl.log_loss(labels, tf.sigmoid(x), epsilon=1e-3))
    case("mean_squared_error", lambda: tl.mean_squared_error(labels, x, each))
    case("pairwise", lambda: tl.mean_pairwise_squared_error(labels, x))
    case("pairwise_weights", lambda: tl.mean_pairwise_squared_error(labels, x, rows))
    case("sigmoid", lambda: tl.sigmoid_cross_entropy(labels, x, each, label_smoothing=0.2))
    case("softmax", lambda: tl.softmax_cross_entropy(labels, x, vector, label_smoothing=0.1))
    case("sparse_softmax", lambda: tl.sparse_softmax_cross_entropy(classes, x, vector))
    kinds = {"none": "NONE", "sum": "SUM", "mean": "MEAN", "batch": "SUM_OVER_BATCH_SIZE",
             "nonzero": "SUM_BY_NONZERO_WEIGHTS"}
    for name, kind in kinds.items():
        reduction = getattr(tl.Reduction, kind)
        case(name, lambda: tl.mean_squared_error(labels, x, each, loss_collection="others", reduction=reduction))
    case("weight_zero", lambda: tl.mean_squared_error(labels, x, 0.0, loss_collection=None))
    fetches["total_loss"] = tl.get_total_loss()
    random = np.random.RandomState(3)
    one = {"x:0": random.randn(BATCH, 4), "labels:0": random.randint(0, 2, [BATCH, 4]), "classes:0": [0, 3, 1, 2],
           "row_weights:0": [[0.5], [0.0], [2.0], [1.0]], "weights:0": random.randint(0, 3, [BATCH, 4]),
           "vector:0": [1.0, 0.0, 0.5, 2.0]}
    none = one | {"row_weights:0": np.zeros([BATCH, 1]), "weights:0": np.zeros([BATCH, 4]), "vector:0": np.zeros(BATCH)}
    return [one, none]


def constraints(fetches):
    x = tf.placeholder(tf.float32, [None, 3], "x")
    made = tf.keras.constraints
    y = x
    for name, constraint in (("max_norm", made.MaxNorm(0.5)), ("unit_norm", made.UnitNorm()),
                             ("min_max_norm", made.MinMaxNorm(0.7, 0.9, 0.5)), ("non_negative", made.NonNeg())):
        y = tf.layers.dense(y, 3, name=name, kernel_constraint=constraint)
    step = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.square(y)))
    tf.group(step, name="train")
    return [{"x:0": np.random.RandomState(4).randn(BATCH, 3)}]


GRAPHS = {"layers": layers, "rnn": rnn, "losses": losses, "constraints": constraints}
# The side effects of a step.
CHANGES = {"layers": "updates", "constraints": "train"}


def variables():
    """Names, shapes, types and whether they are trained, of all variables."""
    trained = {variable.op.name for variable in tf.trainable_variables()}
    return {v.op.name: (v.shape.as_list(), v.dtype.base_dtype.name, v.op.name in trained) for v in tf.global_variables()}


def run(session, fetches, feeds, change):
    """Returns the values of every batch, and of the variables after the changes that each makes."""
    results = []
    held = {variable.op.name: variable.read_value() for variable in tf.global_variables()}
    for batch in feeds:
        values = session.run(fetches, batch) if fetches else {}
        if change:
            session.run(change, batch)
        results.append(values | {f"variable {name}": value for name, value in session.run(held).items()})
    return results


@pytest.fixture(scope="session", params=GRAPHS)
def compared(request, directory, tmp_path_factory):
    """Runs a graph in TensorFlow and on our server with the same weights."""
    name = request.param
    prefix = str(tmp_path_factory.mktemp("checkpoint") / "model")
    change = CHANGES.get(name)
    fetches = {}
    with tf.Graph().as_default():
        feeds = GRAPHS[name](fetches)
        theirs = variables()
        with tf.Session() as session:
            random = np.random.RandomState(7)
            for variable in tf.global_variables():
                # Variances are positive, and the rest is not too large for loops.
                value = random.uniform(0.5, 1.5, variable.shape) if "variance" in variable.op.name else (
                    random.uniform(-0.8, 0.8, variable.shape))
                variable.load(value, session)
            if theirs:
                tf.train.Saver().save(session, prefix, write_meta_graph=False)
            expected = run(session, fetches, feeds, change)
    return name, change, fetches, feeds, prefix, theirs, expected


def test_variables_results_and_gradients(compared, directory, shared_cluster):
    name, change, fetches, feeds, prefix, theirs, expected = compared
    with tf.Graph().as_default() as graph:
        saver = tf.train.import_meta_graph(str(directory / f"{name}.meta"))
        assert variables() == theirs
        ours = {op.name: f"{op.name}:0" for op in graph.get_operations() if op.name.startswith(("out_", "grad_"))}
        ours |= {key: f"{key}:0" for key in fetches if not key.startswith(("out_", "grad_"))}
        assert sorted(ours) == sorted(fetches)
        with tf.Session(shared_cluster.target) as session:
            if theirs:
                saver.restore(session, prefix)
            values = run(session, ours, feeds, change)
    problems = []
    for batch, (mine, wanted) in enumerate(zip(values, expected)):
        for key, value in wanted.items():
            if mine[key].shape != value.shape or not np.allclose(mine[key], value, rtol=2e-4, atol=2e-5):
                problems.append(f"{key}, batch {batch}: {mine[key]} instead of {value}")
    assert not problems, "\n".join(problems)


def metrics():
    """Builds all metrics in TensorFlow; returns their values and updates."""
    m = tf.metrics
    x = tf.placeholder(tf.float32, [None, 4], "x")
    y = tf.placeholder(tf.float32, [None, 4], "y")
    truths = tf.placeholder(tf.bool, [None, 4], "truths")
    guesses = tf.placeholder(tf.bool, [None, 4], "guesses")
    probabilities = tf.placeholder(tf.float32, [None, 4], "probabilities")
    classes = tf.placeholder(tf.int64, [None], "classes")
    guessed = tf.placeholder(tf.int64, [None], "guessed")
    several = tf.placeholder(tf.int64, [None, 2], "several")
    each = tf.placeholder(tf.float32, [None, 4], "weights")
    rows = tf.placeholder(tf.float32, [None, 1], "row_weights")
    vector = tf.placeholder(tf.float32, [None], "vector")
    table = tf.placeholder(tf.float32, [4, 2], "values")
    at = [0.2, 0.5, 0.9]

    def area(curve, method):
        return lambda: m.auc(truths, probabilities, curve=curve, summation_method=method)

    cases = {
        "mean": lambda: m.mean(x),
        "mean_weights": lambda: m.mean(x, rows, name="loss"),
        "percentage": lambda: m.percentage_below(x, 0.3, each),
        "accuracy": lambda: m.accuracy(classes, guessed),
        "accuracy_weights": lambda: m.accuracy(classes, guessed, vector),
        "each": lambda: m.mean_tensor(table),
        "each_weights": lambda: m.mean_tensor(table, vector),
        "relative": lambda: m.mean_relative_error(y, x, each),
        "relative_weights": lambda: m.mean_relative_error(y, x, y, rows),
        "absolute": lambda: m.mean_absolute_error(y, x, each),
        "squared": lambda: m.mean_squared_error(y, x),
        "root": lambda: m.root_mean_squared_error(y, x, rows),
        "cosine": lambda: m.mean_cosine_distance(y, x, 1),
        "tp": lambda: m.true_positives(truths, guesses, each),
        "fp": lambda: m.false_positives(truths, guesses),
        "tn": lambda: m.true_negatives(truths, guesses, rows),
        "fn": lambda: m.false_negatives(truths, guesses),
        "precision": lambda: m.precision(truths, guesses),
        "precision_weights": lambda: m.precision(truths, guesses, each),
        "recall": lambda: m.recall(truths, guesses, rows),
        "tp_at": lambda: m.true_positives_at_thresholds(truths, probabilities, at),
        "fp_at": lambda: m.false_positives_at_thresholds(truths, probabilities, at, each),
        "tn_at": lambda: m.true_negatives_at_thresholds(truths, probabilities, at),
        "fn_at": lambda: m.false_negatives_at_thresholds(truths, probabilities, at),
        "precision_at": lambda: m.precision_at_thresholds(truths, probabilities, at, rows),
        "recall_at": lambda: m.recall_at_thresholds(truths, probabilities, at),
        "auc": lambda: m.auc(truths, probabilities),
        "auc_pr": lambda: m.auc(truths, probabilities, each, 20, curve="PR", summation_method="trapezoidal"),
        "auc_roc_careful": area("ROC", "careful_interpolation"),
        "auc_pr_careful": area("PR", "careful_interpolation"),
        "auc_roc_minoring": area("ROC", "minoring"),
        "auc_pr_minoring": area("PR", "minoring"),
        "auc_roc_majoring": area("ROC", "majoring"),
        "auc_pr_majoring": area("PR", "majoring"),
        "sensitivity": lambda: m.sensitivity_at_specificity(truths, probabilities, 0.6),
        "specificity": lambda: m.specificity_at_sensitivity(truths, probabilities, 0.4, each, 30),
        "per_class": lambda: m.mean_per_class_accuracy(classes, guessed, 4),
        "per_class_weights": lambda: m.mean_per_class_accuracy(classes, guessed, 4, vector),
        "iou": lambda: m.mean_iou(classes, guessed, 4),
        "iou_weights": lambda: m.mean_iou(classes, guessed, 4, vector),
        "precision_k": lambda: m.precision_at_k(several, probabilities, 2),
        "recall_k": lambda: m.recall_at_k(several, probabilities, 3, weights=vector),
        "recall_k_one": lambda: m.recall_at_k(classes, probabilities, 2),
        "precision_k_class": lambda: m.precision_at_k(several, probabilities, 2, 1, vector),
        "recall_k_class": lambda: m.recall_at_k(several, probabilities, 3, 2),
        "average_precision_k": lambda: m.average_precision_at_k(several, probabilities, 3),
        "average_precision_k_one": lambda: m.average_precision_at_k(classes, probabilities, 2, vector),
        "precision_top_k": lambda: m.precision_at_top_k(classes, several),
        "recall_top_k": lambda: m.recall_at_top_k(classes, several, class_id=3, weights=vector),
    }
    values, updates = {}, {}
    for name, build in cases.items():
        with tf.variable_scope(name):
            values[f"out_{name}/value"], updates[f"out_{name}/update"] = build()
    return values, updates


def gathered(session, values, updates):
    """Returns updates, values and variables after each of some steps."""
    random = np.random.RandomState(5)
    session.run(tf.local_variables_initializer())
    held = {variable.op.name: variable for variable in tf.local_variables()}
    results = [session.run(values)]
    for _ in range(3):
        feeds = {"x:0": random.randn(BATCH, 4), "y:0": random.randn(BATCH, 4),
                 "truths:0": random.rand(BATCH, 4) < 0.5, "guesses:0": random.rand(BATCH, 4) < 0.5,
                 "probabilities:0": random.rand(BATCH, 4), "classes:0": random.randint(0, 4, BATCH),
                 "guessed:0": random.randint(0, 4, BATCH), "several:0": random.randint(0, 4, [BATCH, 2]),
                 "values:0": random.randn(BATCH, 2),
                 "weights:0": random.randint(0, 3, [BATCH, 4]), "row_weights:0": random.rand(BATCH, 1),
                 "vector:0": random.rand(BATCH)}
        results.append(session.run(updates, feeds) | session.run(values) | session.run(held))
    return results


def test_metrics(directory, shared_cluster):
    with tf.Graph().as_default():
        values, updates = metrics()
        theirs = {variable.op.name: variable.shape.as_list() for variable in tf.local_variables()}
        with tf.Session() as session:
            expected = gathered(session, values, updates)
    with tf.Graph().as_default():
        tf.train.import_meta_graph(str(directory / "metrics.meta"))
        assert {variable.op.name: variable.shape.as_list() for variable in tf.local_variables()} == theirs
        assert len(tf.get_collection(tf.GraphKeys.METRIC_VARIABLES)) == len(theirs)
        ours = [{key: f"{key}:0" for key in some} for some in (values, updates)]
        with tf.Session(shared_cluster.target) as session:
            results = gathered(session, *ours)
    problems = []
    for step, (mine, wanted) in enumerate(zip(results, expected)):
        for key, value in wanted.items():
            if np.shape(mine[key]) != np.shape(value) or not np.allclose(mine[key], value, rtol=1e-5, equal_nan=True):
                problems.append(f"{key}, step {step}: {mine[key]} instead of {value}")
    assert not problems, "\n".join(problems)
