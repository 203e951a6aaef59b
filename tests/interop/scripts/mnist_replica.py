"""Between-graph replication on digits: one ps, several workers, asynchronous or with sync_replicas.

The flags are those of the program that came with TensorFlow. With --existing_servers the process is only a client of a running
server; otherwise it starts its own.
"""

import json
import math
import sys
import tempfile
import time

import tensorflow as tf

try:
    from tensorflow.examples.tutorials.mnist import input_data
except ImportError:
    # Plain TensorFlow 2, without `python -m ferroflow`.
    import tensorflow.compat.v1 as tf
    from ferroflow import mnist as input_data

    tf.disable_v2_behavior()

flags = tf.app.flags
flags.DEFINE_string("data_dir", "/tmp/mnist-data", "Directory with MNIST data")
flags.DEFINE_boolean("download_only", False, "Only read the data; no session, no training")
flags.DEFINE_integer("task_index", None, "Worker task index; task 0 initializes the variables")
flags.DEFINE_integer("num_gpus", 1, "GPUs of each machine; 0 for none")
flags.DEFINE_integer("replicas_to_aggregate", None, "Replicas to aggregate before an update, with sync_replicas")
flags.DEFINE_integer("hidden_units", 100, "Units in the hidden layer")
flags.DEFINE_integer("train_steps", 200, "Number of global training steps")
flags.DEFINE_integer("batch_size", 100, "Training batch size")
flags.DEFINE_float("learning_rate", 0.01, "Learning rate")
flags.DEFINE_boolean("sync_replicas", False, "Aggregate the updates of the workers before they are applied")
flags.DEFINE_boolean("existing_servers", False, "Use the servers at the worker hosts, instead of starting one")
flags.DEFINE_string("ps_hosts", "localhost:2222", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("worker_hosts", "localhost:2223,localhost:2224", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("job_name", None, "job name: worker or ps")
FLAGS = flags.FLAGS

IMAGE_PIXELS = 28


def main(unused_argv):
    mnist = input_data.read_data_sets(FLAGS.data_dir, one_hot=True)
    if FLAGS.download_only:
        sys.exit(0)
    if not FLAGS.job_name:
        raise ValueError("Must specify an explicit `job_name`")
    if FLAGS.task_index is None:
        raise ValueError("Must specify an explicit `task_index`")
    print("job name = %s" % FLAGS.job_name)
    print("task index = %d" % FLAGS.task_index)

    ps_spec = FLAGS.ps_hosts.split(",")
    worker_spec = FLAGS.worker_hosts.split(",")
    num_workers = len(worker_spec)
    cluster = tf.train.ClusterSpec({"ps": ps_spec, "worker": worker_spec})
    if not FLAGS.existing_servers:
        server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
        if FLAGS.job_name == "ps":
            server.join()
    is_chief = FLAGS.task_index == 0
    if FLAGS.num_gpus > 0:
        # There need not be one: allow_soft_placement below moves the work to the CPU.
        worker_device = "/job:worker/task:%d/gpu:%d" % (FLAGS.task_index, FLAGS.task_index % FLAGS.num_gpus)
    else:
        worker_device = "/job:worker/task:%d/cpu:0" % FLAGS.task_index

    with tf.device(tf.train.replica_device_setter(worker_device=worker_device, ps_device="/job:ps/cpu:0",
                                                  cluster=cluster)):
        global_step = tf.Variable(0, name="global_step", trainable=False)
        hid_w = tf.Variable(
            tf.truncated_normal([IMAGE_PIXELS * IMAGE_PIXELS, FLAGS.hidden_units], stddev=1.0 / IMAGE_PIXELS), name="hid_w")
        hid_b = tf.Variable(tf.zeros([FLAGS.hidden_units]), name="hid_b")
        sm_w = tf.Variable(
            tf.truncated_normal([FLAGS.hidden_units, 10], stddev=1.0 / math.sqrt(FLAGS.hidden_units)), name="sm_w")
        sm_b = tf.Variable(tf.zeros([10]), name="sm_b")

        x = tf.placeholder(tf.float32, [None, IMAGE_PIXELS * IMAGE_PIXELS])
        y_ = tf.placeholder(tf.float32, [None, 10])
        hid = tf.nn.relu(tf.nn.xw_plus_b(x, hid_w, hid_b))
        y = tf.nn.softmax(tf.nn.xw_plus_b(hid, sm_w, sm_b))
        cross_entropy = -tf.reduce_sum(y_ * tf.log(tf.clip_by_value(y, 1e-10, 1.0)))
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(y, 1), tf.argmax(y_, 1)), tf.float32))

        opt = tf.train.AdamOptimizer(FLAGS.learning_rate)
        if FLAGS.sync_replicas:
            replicas_to_aggregate = FLAGS.replicas_to_aggregate
            if replicas_to_aggregate is None:
                replicas_to_aggregate = num_workers
            opt = tf.train.SyncReplicasOptimizer(
                opt, replicas_to_aggregate=replicas_to_aggregate, total_num_replicas=num_workers,
                name="mnist_sync_replicas")
        train_step = opt.minimize(cross_entropy, global_step=global_step)

        local_init_op = ready_for_local_init_op = None
        if FLAGS.sync_replicas:
            local_init_op = opt.chief_init_op if is_chief else opt.local_step_init_op
            ready_for_local_init_op = opt.ready_for_local_init_op
            chief_queue_runner = opt.get_chief_queue_runner()
            sync_init_op = opt.get_init_tokens_op()

        init_op = tf.global_variables_initializer()
        train_dir = tempfile.mkdtemp()
        extra = {}
        if FLAGS.sync_replicas:
            extra = {"local_init_op": local_init_op, "ready_for_local_init_op": ready_for_local_init_op}
        sv = tf.train.Supervisor(is_chief=is_chief, logdir=train_dir, init_op=init_op, recovery_wait_secs=1,
                                 global_step=global_step, **extra)
        sess_config = tf.ConfigProto(
            allow_soft_placement=True, log_device_placement=False,
            device_filters=["/job:ps", "/job:worker/task:%d" % FLAGS.task_index])

        if is_chief:
            print("Worker %d: Initializing session..." % FLAGS.task_index)
        else:
            print("Worker %d: Waiting for session to be initialized..." % FLAGS.task_index)
        if FLAGS.existing_servers:
            server_grpc_url = "grpc://" + worker_spec[FLAGS.task_index]
            print("Using existing server at: %s" % server_grpc_url)
            sess = sv.prepare_or_wait_for_session(server_grpc_url, config=sess_config)
        else:
            sess = sv.prepare_or_wait_for_session(server.target, config=sess_config)
        print("Worker %d: Session initialization complete." % FLAGS.task_index)
        if FLAGS.sync_replicas and is_chief:
            sess.run(sync_init_op)
            sv.start_queue_runners(sess, [chief_queue_runner])

        time_begin = time.time()
        print("Training begins @ %f" % time_begin)
        local_step = 0
        while True:
            batch_xs, batch_ys = mnist.train.next_batch(FLAGS.batch_size)
            _, step = sess.run([train_step, global_step], feed_dict={x: batch_xs, y_: batch_ys})
            local_step += 1
            if local_step % 100 == 0:
                print("%f: Worker %d: training step %d done (global step: %d)" %
                      (time.time(), FLAGS.task_index, local_step, step))
            if step >= FLAGS.train_steps:
                break
        if FLAGS.sync_replicas:
            # The other workers may wait for a token of a step that will never run: they must see that training is over.
            sess.run(sync_init_op)
        training_time = time.time() - time_begin
        print("Training elapsed time: %f s" % training_time)

        val_feed = {x: mnist.validation.images, y_: mnist.validation.labels}
        val_xent, val_accuracy = sess.run([cross_entropy, accuracy], feed_dict=val_feed)
        print("After %d training step(s), validation cross entropy = %g" % (step, val_xent))
        print("RESULT " + json.dumps({
            "task": FLAGS.task_index, "local_steps": local_step, "global_step": int(step), "loss": float(val_xent),
            "accuracy": float(val_accuracy), "seconds": training_time}))


if __name__ == "__main__":
    tf.app.run()
