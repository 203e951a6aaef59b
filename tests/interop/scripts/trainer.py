"""Asynchronous between-graph training with Adagrad, Saver, summaries and a managed session.

Written like programs for TensorFlow 0.8, with the names of that version; run it with `python -m ferroflow`.
"""

import json

import tensorflow as tf
from tensorflow.examples.tutorials.mnist import input_data

tf.app.flags.DEFINE_string("ps_hosts", "", "Comma-separated list of hostname:port pairs")
tf.app.flags.DEFINE_string("worker_hosts", "", "Comma-separated list of hostname:port pairs")
tf.app.flags.DEFINE_string("job_name", "", "One of 'ps', 'worker'")
tf.app.flags.DEFINE_integer("task_index", 0, "Index of task within the job")
tf.app.flags.DEFINE_string("logdir", "/tmp/train_logs", "Where checkpoints and events go")
tf.app.flags.DEFINE_integer("train_steps", 1000, "Number of global steps")

FLAGS = tf.app.flags.FLAGS


def main(_):
    ps_hosts = FLAGS.ps_hosts.split(",")
    worker_hosts = FLAGS.worker_hosts.split(",")
    cluster = tf.train.ClusterSpec({"ps": ps_hosts, "worker": worker_hosts})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
    elif FLAGS.job_name == "worker":
        digits = input_data.read_data_sets("MNIST_data", one_hot=True)
        # Assigns ops to the local worker by default.
        with tf.device(tf.train.replica_device_setter(
                worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster)):
            x = tf.placeholder(tf.float32, [None, 784])
            labels = tf.placeholder(tf.float32, [None, 10])
            weights = tf.Variable(tf.truncated_normal([784, 10], stddev=0.01), name="weights")
            biases = tf.Variable(tf.zeros([10]), name="biases")
            logits = tf.matmul(x, weights) + biases
            loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(logits, labels))
            accuracy = tf.reduce_mean(tf.to_float(tf.equal(tf.argmax(logits, 1), tf.argmax(labels, 1))))
            global_step = tf.Variable(0, name="global_step", trainable=False)
            train_op = tf.train.AdagradOptimizer(0.1).minimize(loss, global_step=global_step)

            tf.scalar_summary("cross_entropy", loss)
            tf.scalar_summary("accuracy", accuracy)
            tf.histogram_summary("weights", weights)
            saver = tf.train.Saver()
            summary_op = tf.merge_all_summaries()
            init_op = tf.initialize_all_variables()

        # The summaries need a fed batch, so the chief computes them in its loop.
        sv = tf.train.Supervisor(is_chief=(FLAGS.task_index == 0), logdir=FLAGS.logdir, init_op=init_op, summary_op=None,
                                 saver=saver, global_step=global_step, save_model_secs=600,
                                 recovery_wait_secs=1)
        with sv.managed_session(server.target) as sess:
            step = start_step = int(sess.run(global_step))
            while not sv.should_stop() and step < FLAGS.train_steps:
                images, truth = digits.train.next_batch(100)
                feed = {x: images, labels: truth}
                _, step = sess.run([train_op, global_step], feed_dict=feed)
                if FLAGS.task_index == 0 and step % 50 == 0:
                    sv.summary_computed(sess, sess.run(summary_op, feed_dict=feed), step)
            result = {
                "task": FLAGS.task_index, "start_step": start_step, "global_step": int(step),
                "accuracy": float(sess.run(accuracy, feed_dict={x: digits.test.images, labels: digits.test.labels}))
            }
            if FLAGS.task_index == 0:
                saver.save(sess, sv.save_path, global_step=global_step)
        # Ask for all the services to stop.
        sv.stop()
        print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    tf.app.run()
