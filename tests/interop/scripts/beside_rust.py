"""A worker of real TensorFlow that trains the model of `ferroflow train` together with Rust workers."""

import sys

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

flags = tf.app.flags
flags.DEFINE_string("ps_hosts", "", "")
flags.DEFINE_string("worker_hosts", "", "")
flags.DEFINE_integer("task_index", 1, "")
flags.DEFINE_integer("hidden_units", 16, "")
flags.DEFINE_integer("train_steps", 200, "")
flags.DEFINE_boolean("sync_replicas", False, "")
FLAGS = flags.FLAGS


def dense(x, name, rows, columns):
    w = tf.Variable(tf.truncated_normal([rows, columns], stddev=0.1), name=f"{name}_w")
    b = tf.Variable(tf.zeros([columns]), name=f"{name}_b")
    return tf.nn.xw_plus_b(x, w, b)


def main(_):
    ps, workers = FLAGS.ps_hosts.split(","), FLAGS.worker_hosts.split(",")
    cluster = tf.train.ClusterSpec({"ps": ps, "worker": workers})
    server = tf.train.Server(cluster, job_name="worker", task_index=FLAGS.task_index)
    device = f"/job:worker/task:{FLAGS.task_index}"
    hooks = [tf.train.StopAtStepHook(last_step=FLAGS.train_steps)]
    with tf.device(tf.train.replica_device_setter(worker_device=device, cluster=cluster)):
        step = tf.train.create_global_step()
        x = tf.placeholder(tf.float32, [None, 784])
        y = tf.placeholder(tf.float32, [None, 10])
        hidden = tf.nn.relu(dense(x, "hid", 784, FLAGS.hidden_units))
        logits = dense(hidden, "sm", FLAGS.hidden_units, 10)
        loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=y, logits=logits))
        optimizer = tf.train.AdamOptimizer(0.01)
        if FLAGS.sync_replicas:
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, len(workers), len(workers))
        train = optimizer.minimize(loss, global_step=step)
        if FLAGS.sync_replicas:
            hooks.append(optimizer.make_session_run_hook(False))
    config = tf.ConfigProto(device_filters=["/job:ps", device])
    # Stripes whose position shows the class: easy to learn, with little effect on the digits.
    random = np.random.RandomState(0)
    local = 0
    with tf.train.MonitoredTrainingSession(server.target, is_chief=False, hooks=hooks, config=config) as session:
        while not session.should_stop():
            classes = random.randint(0, 10, 20)
            images = np.zeros([20, 784], np.float32)
            for row, number in enumerate(classes):
                images[row, number * 2] = 1
            _, at = session.run([train, step], {x: images, y: np.eye(10)[classes]})
            local += 1
            if local == 1:
                print("tensorflow worker: first step", flush=True)
    print(f"tensorflow worker: {local} steps, global step {at}", flush=True)
    sys.stdout.flush()


tf.app.run(main)
