"""A CNN on digits that are read from TFRecord files through queues, with dropout, decay and moving averages.

`--make_records DIR` writes the files first. Run it with `python -m ferroflow`.
"""

import json
import os
import tempfile

import tensorflow as tf
from tensorflow.examples.tutorials.mnist import input_data

flags = tf.app.flags
flags.DEFINE_string("ps_hosts", None, "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("worker_hosts", None, "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("job_name", None, "job name: worker or ps")
flags.DEFINE_integer("task_index", None, "Index of task within the job")
flags.DEFINE_integer("issync", 0, "1 for synchronous training, 0 for asynchronous")
flags.DEFINE_string("records", None, "Directory with the TFRecord files")
flags.DEFINE_string("make_records", None, "Write the TFRecord files to this directory and end")
flags.DEFINE_integer("train_steps", 200, "Number of global steps")

FLAGS = flags.FLAGS

BATCH_SIZE = 50
LEARNING_RATE_BASE = 0.1
LEARNING_RATE_DECAY = 0.99
REGULARIZATION_RATE = 0.0001
MOVING_AVERAGE_DECAY = 0.9


def make_records(directory):
    digits = input_data.read_data_sets("MNIST_data", dtype=tf.uint8, validation_size=0)
    for name, part, count in (("train", digits.train, 3000), ("test", digits.test, 500)):
        with tf.python_io.TFRecordWriter(os.path.join(directory, name + ".tfrecords")) as writer:
            for image, label in zip(part.images[:count], part.labels[:count]):
                feature = {
                    "image_raw": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image.tobytes()])),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(label)])),
                }
                writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def get_batch(name, batch_size, num_epochs):
    queue = tf.train.string_input_producer([os.path.join(FLAGS.records, name + ".tfrecords")], num_epochs=num_epochs)
    reader = tf.TFRecordReader()
    _, serialized = reader.read(queue)
    features = tf.parse_single_example(serialized, features={
        "image_raw": tf.FixedLenFeature([], tf.string),
        "label": tf.FixedLenFeature([], tf.int64),
    })
    image = tf.cast(tf.reshape(tf.decode_raw(features["image_raw"], tf.uint8), [28, 28, 1]), tf.float32) / 255.0
    return tf.train.shuffle_batch([image, features["label"]], batch_size=batch_size, capacity=1000 + 3 * batch_size,
                                  min_after_dequeue=500, num_threads=2)


def inference(images, train, regularizer, reuse):
    def convolution(name, inputs, channels_in, channels_out):
        with tf.variable_scope(name, reuse=reuse):
            weights = tf.get_variable("weight", [5, 5, channels_in, channels_out],
                                      initializer=tf.truncated_normal_initializer(stddev=0.1))
            biases = tf.get_variable("bias", [channels_out], initializer=tf.constant_initializer(0.0))
            activated = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(inputs, weights, [1, 1, 1, 1], "SAME"), biases))
            return tf.nn.max_pool(activated, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")

    def dense(name, inputs, size_in, size_out):
        with tf.variable_scope(name, reuse=reuse):
            weights = tf.get_variable("weight", [size_in, size_out],
                                      initializer=tf.truncated_normal_initializer(stddev=0.1))
            if regularizer is not None and not reuse:
                tf.add_to_collection("losses", regularizer(weights))
            biases = tf.get_variable("bias", [size_out], initializer=tf.constant_initializer(0.1))
            return tf.matmul(inputs, weights) + biases

    hidden = convolution("layer1-conv1", images, 1, 8)
    hidden = convolution("layer2-conv2", hidden, 8, 16)
    hidden = tf.reshape(hidden, [-1, 7 * 7 * 16])
    hidden = tf.nn.relu(dense("layer3-fc1", hidden, 7 * 7 * 16, 64))
    if train:
        hidden = tf.nn.dropout(hidden, 0.5)
    return dense("layer4-fc2", hidden, 64, 10)


def main(_):
    if FLAGS.make_records:
        make_records(FLAGS.make_records)
        return
    ps_spec = FLAGS.ps_hosts.split(",")
    worker_spec = FLAGS.worker_hosts.split(",")
    cluster = tf.train.ClusterSpec({"ps": ps_spec, "worker": worker_spec})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
    is_chief = FLAGS.task_index == 0

    with tf.device(tf.train.replica_device_setter(
            worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster)):
        x, y_ = get_batch("train", BATCH_SIZE, None)
        # The workers count the epochs together, on the ps, and each fills a queue of names: none of them must run out.
        test_x, test_y = get_batch("test", BATCH_SIZE, 5000)
        regularizer = tf.contrib.layers.l2_regularizer(REGULARIZATION_RATE)
        logits = inference(x, True, regularizer, None)
        test_logits = inference(test_x, False, None, True)

        global_step = tf.Variable(0, name="global_step", trainable=False)
        averages = tf.train.ExponentialMovingAverage(MOVING_AVERAGE_DECAY, global_step)
        averages_op = averages.apply(tf.trainable_variables())
        cross_entropy = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=y_))
        loss = cross_entropy + tf.add_n(tf.get_collection("losses"))
        learning_rate = tf.train.exponential_decay(LEARNING_RATE_BASE, global_step, 60, LEARNING_RATE_DECAY)
        opt = tf.train.GradientDescentOptimizer(learning_rate)
        hooks = {}
        if FLAGS.issync == 1:
            opt = tf.train.SyncReplicasOptimizer(opt, replicas_to_aggregate=len(worker_spec),
                                                 total_num_replicas=len(worker_spec))
        update = opt.minimize(loss, global_step=global_step)
        if FLAGS.issync == 1:
            chief_queue_runner = opt.get_chief_queue_runner()
            init_tokens_op = opt.get_init_tokens_op()
            # The epoch counter of the test files is a local variable and needs its initializer as well.
            local_step = opt.chief_init_op if is_chief else opt.local_step_init_op
            hooks["ready_for_local_init_op"] = opt.ready_for_local_init_op
            hooks["local_init_op"] = tf.group(local_step, tf.local_variables_initializer())
        with tf.control_dependencies([update, averages_op]):
            train_step = tf.no_op(name="train")
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(test_logits, 1), test_y), tf.float32))

        init_op = tf.global_variables_initializer()
        sv = tf.train.Supervisor(is_chief=is_chief, logdir=tempfile.mkdtemp(), init_op=init_op, recovery_wait_secs=1,
                                 global_step=global_step, **hooks)
    sess = sv.prepare_or_wait_for_session(server.target)
    if FLAGS.issync == 1 and is_chief:
        sess.run(init_tokens_op)
        sv.start_queue_runners(sess, [chief_queue_runner])
    losses = []
    step = 0
    while step < FLAGS.train_steps:
        # Called at every step, although they already run: no second set of threads must start.
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess=sess, coord=coord)
        assert not threads, threads
        _, step, loss_value = sess.run([train_step, global_step, loss])
        losses.append(float(loss_value))
        coord.request_stop()
        coord.join(threads)
    if FLAGS.issync == 1:
        # The other workers may wait for a token of a step that will never run: they must see that training is over.
        sess.run(init_tokens_op)
    final = sum(sess.run(accuracy) for _ in range(5)) / 5
    print("After %d training steps, validation accuracy is %g." % (step, final))
    tail = max(1, min(5, len(losses) // 2))
    print("RESULT " + json.dumps({
        "task": FLAGS.task_index, "global_step": int(step), "accuracy": float(final),
        "first_loss": sum(losses[:tail]) / tail, "last_loss": sum(losses[-tail:]) / tail}))


if __name__ == "__main__":
    tf.app.run()
