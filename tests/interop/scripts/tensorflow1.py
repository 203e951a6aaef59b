"""A client of TensorFlow 1.15 itself, for its own Python: `tensorflow1.py PART …`. What it finds it prints after RESULT."""

import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)


def report(**values):
    print("RESULT " + json.dumps(values), flush=True)


def run_sessions(target):
    """Runs what clients ask of a session besides steps that train."""
    found = {"version": tf.__version__}
    with tf.Graph().as_default(), tf.Session(target) as session:
        found["devices"] = [device.name for device in session.list_devices()]
        a, b = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.float32, [None])
        c = tf.add(a, b, name="c")
        d = tf.multiply(c, 2.0, name="d")
        found["feeds"] = session.run(d, {a: [1, 2], b: [3, 4]}).tolist()
        handle = session.partial_run_setup([c, d], [a, b])
        part = session.partial_run(handle, c, {a: [1], b: [2]})
        found["partial run"] = [part.tolist(), session.partial_run(handle, d).tolist()]
        call = session.make_callable(d, [a, b])
        found["callable"] = call([1.0], [1.0]).tolist()
        options, metadata = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), tf.RunMetadata()
        session.run(d, {a: [1], b: [2]}, options, metadata)
        found["traced"] = "d" in {node.node_name for device in metadata.step_stats.dev_stats for node in device.node_stats}

        loop = tf.while_loop(lambda i, x: i < 10, lambda i, x: (i + 1, x * 1.5), [0, tf.constant([1.0, 2.0])])
        found["loop"] = session.run([loop[1], tf.gradients(loop[1], loop[1])])[0].tolist()
        found["cond"] = session.run(tf.cond(tf.reduce_sum(a) > 0, lambda: a + 1, lambda: a - 1), {a: [5.0]}).tolist()
        texts = tf.string_join([tf.constant(["a", "b"]), tf.as_string(tf.range(2))], "-")
        found["strings"] = [text.decode() for text in session.run(texts)]
        array = tf.TensorArray(tf.float32, 3).unstack([1.0, 2.0, 3.0])
        found["array"] = session.run(array.stack()).tolist()
        queue = tf.FIFOQueue(10, [tf.int32], shapes=[[]])
        session.run(queue.enqueue_many([[7, 8, 9]]))
        found["queue"] = session.run(queue.dequeue_many(2)).tolist()

        dataset = tf.data.Dataset.range(10).filter(lambda x: tf.equal(x % 2, 0)).map(lambda x: x * x, 2)
        dataset = dataset.batch(2).apply(tf.data.experimental.enumerate_dataset()).prefetch(1)
        following = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
        batches = []
        try:
            while True:
                batches.append(session.run(following)[1].tolist())
        except tf.errors.OutOfRangeError:
            found["dataset"] = batches

        table = tf.contrib.lookup.index_table_from_tensor(["x", "y"], num_oov_buckets=1)
        session.run(tf.tables_initializer())
        found["table"] = session.run(table.lookup(tf.constant(["y", "x", "z"]))).tolist()
        cell = tf.contrib.rnn.MultiRNNCell([tf.contrib.rnn.LSTMBlockCell(4), tf.contrib.rnn.GRUBlockCellV2(3)])
        outputs, _ = tf.nn.dynamic_rnn(cell, tf.ones([2, 5, 3]), dtype=tf.float32)
        image = tf.contrib.layers.conv2d(tf.ones([1, 8, 8, 3]), 4, 3, normalizer_fn=tf.contrib.layers.batch_norm)
        session.run(tf.global_variables_initializer())
        found["rnn"] = list(session.run(outputs).shape)
        found["conv"] = list(session.run(image).shape)
        try:
            session.run(tf.check_numerics(tf.log(a), "bad"), {a: [-1.0]})
        except tf.errors.InvalidArgumentError as error:
            found["error"] = "bad : Tensor had NaN" in error.message
    report(**found)


def linear_model():
    """Returns the loss of a line through four points, with its variables on the parameter server."""
    with tf.variable_scope("line"):
        slope = tf.get_variable("slope", [], initializer=tf.zeros_initializer())
        offset = tf.get_variable("offset", [], initializer=tf.zeros_initializer())
    x = tf.constant([0.0, 1.0, 2.0, 3.0])
    return tf.reduce_mean(tf.square(slope * x + offset - (2.0 * x + 1.0))), slope, offset


def run_train(ps, workers, index, mode, directory, server_of_its_own):
    """Trains as a worker of between-graph replication; `server_of_its_own` is "yes" where this TensorFlow is the server."""
    cluster = tf.train.ClusterSpec({"ps": [ps], "worker": workers.split(",")})
    index = int(index)
    if server_of_its_own == "yes":
        target = tf.train.Server(cluster, job_name="worker", task_index=index).target
    else:
        target = "grpc://" + workers.split(",")[index]
    count = len(workers.split(","))
    with tf.Graph().as_default():
        with tf.device(tf.train.replica_device_setter(worker_device="/job:worker/task:%d" % index, cluster=cluster)):
            loss, slope, offset = linear_model()
            step = tf.train.get_or_create_global_step()
            optimizer = tf.train.MomentumOptimizer(0.05, 0.5)
            # Of workers in step with each other the chief ends the training: whoever left before it would leave it waiting.
            hooks = [tf.train.StopAtStepHook(last_step=200)] if mode == "async" or index == 0 else []
            if mode == "sync":
                optimizer = tf.train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate=count, total_num_replicas=count)
                hooks.append(optimizer.make_session_run_hook(index == 0, num_tokens=0))
            train = optimizer.minimize(loss, global_step=step)
        with tf.train.MonitoredTrainingSession(
                target, is_chief=index == 0, checkpoint_dir=directory if index == 0 else None, hooks=hooks, save_checkpoint_steps=50,
                log_step_count_steps=None) as session:
            values = None
            while not session.should_stop():
                values = session.run([train, loss, slope, offset, step])
    report(loss=float(values[1]), slope=float(values[2]), offset=float(values[3]), step=int(values[4]))


def run_server(ps, workers, job, index):
    """Is a server of this TensorFlow until it is killed."""
    server = tf.train.Server({"ps": [ps], "worker": workers.split(",")}, job_name=job, task_index=int(index))
    print("tensorflow server ready: /job:%s/task:%s at %s" % (job, index, server.target[len("grpc://"):]), flush=True)
    server.join()


def run_save(target, path):
    """Saves variables in both formats through a server, and in this process."""
    for version, name in [(tf.train.SaverDef.V2, "new"), (tf.train.SaverDef.V1, "old")]:
        for where, master in [("server", target), ("local", "")]:
            with tf.Graph().as_default(), tf.Session(master) as session:
                tf.get_variable("table", initializer=np.arange(12, dtype=np.float32).reshape(3, 4))
                tf.get_variable("parts", initializer=tf.range(10.0), partitioner=tf.fixed_size_partitioner(3))
                tf.get_variable("count", initializer=np.int64(7), dtype=tf.int64)
                saver = tf.train.Saver(write_version=version)
                session.run(tf.global_variables_initializer())
                saver.save(session, os.path.join(path, name + "-" + where), global_step=3)
    report(saved=True)


def run_restore(target, path):
    """Restores each checkpoint through a server and in this process."""
    found = {}
    # The variables of those who saved are still there, in other parts.
    tf.Session.reset(target)
    for name in ["new-server-3", "new-local-3", "old-server-3", "old-local-3"]:
        for where, master in [("server", target), ("local", "")]:
            with tf.Graph().as_default(), tf.Session(master) as session:
                table = tf.get_variable("table", [3, 4])
                parts = tf.get_variable("parts", [10], partitioner=tf.fixed_size_partitioner(2))
                count = tf.get_variable("count", [], dtype=tf.int64)
                tf.train.Saver().restore(session, os.path.join(path, name))
                values = session.run([tf.reduce_sum(table), tf.reduce_sum(tf.convert_to_tensor(parts)), count])
                found[name + " in " + where] = [float(value) for value in values]
    report(**found)


def run_estimator(directory):
    """Trains and evaluates an estimator; TF_CONFIG says in which cluster."""
    columns = [tf.feature_column.numeric_column("x"),
               tf.feature_column.embedding_column(tf.feature_column.categorical_column_with_hash_bucket("w", 20), 4)]
    estimator = tf.estimator.DNNLinearCombinedClassifier(
        directory, linear_feature_columns=columns[:1], dnn_feature_columns=columns, dnn_hidden_units=[8],
        linear_optimizer=tf.train.FtrlOptimizer(0.5), dnn_optimizer=tf.train.AdamOptimizer(0.05),
        config=tf.estimator.RunConfig(tf_random_seed=1, save_checkpoints_steps=100))

    def examples():
        x = np.linspace(-1, 1, 64).astype(np.float32)
        words = np.array(["pos" if value > 0 else "neg" for value in x])
        data = tf.data.Dataset.from_tensor_slices(({"x": x, "w": words}, (x > 0).astype(np.int32)))
        return data.shuffle(64, seed=3).repeat().batch(16)

    train = tf.estimator.TrainSpec(examples, max_steps=200)
    evaluate = tf.estimator.EvalSpec(lambda: examples().take(4), steps=4, throttle_secs=0, start_delay_secs=0)
    tf.estimator.train_and_evaluate(estimator, train, evaluate)
    if estimator.config.task_type in ("chief", "master"):
        report(accuracy=float(estimator.evaluate(lambda: examples().take(4), steps=4)["accuracy"]))


PARTS = {"sessions": run_sessions, "train": run_train, "server": run_server, "save": run_save, "restore": run_restore,
         "estimator": run_estimator}

if __name__ == "__main__":
    PARTS[sys.argv[1]](*sys.argv[2:])
