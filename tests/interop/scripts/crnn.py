"""Reads strips of digits: a CNN, a bidirectional LSTM and CTC, with Adadelta, synchronous or not, and an `init_fn` that restores.

Run it with `python -m ferroflow`.
"""

import json

import numpy as np
import tensorflow as tf
from tensorflow.examples.tutorials.mnist import input_data

FLAGS = tf.app.flags.FLAGS
tf.app.flags.DEFINE_string("ps_hosts", "", "Comma-separated list of hostname:port pairs")
tf.app.flags.DEFINE_string("worker_hosts", "", "Comma-separated list of hostname:port pairs")
tf.app.flags.DEFINE_string("job_name", "", "One of 'ps', 'worker'")
tf.app.flags.DEFINE_integer("task_index", 0, "Index of task within the job")
tf.app.flags.DEFINE_integer("issync", 0, "1 for synchronous training, 0 for asynchronous")
tf.app.flags.DEFINE_string("checkpoint_dir", "/tmp/crnn", "Where checkpoints go")
tf.app.flags.DEFINE_integer("train_steps", 100, "Number of global steps")

BATCH_SIZE = 16
DIGITS = 3
FRAMES = 28 * DIGITS // 4


class Strips:
    """Batches of images of three digits side by side, with sparse labels."""

    def __init__(self, seed):
        self._digits = input_data.read_data_sets("MNIST_data", reshape=False, validation_size=0).train
        self._random = np.random.RandomState(seed)

    def next_batch(self):
        chosen = self._random.randint(0, self._digits.num_examples, (BATCH_SIZE, DIGITS))
        images = np.concatenate([self._digits.images[chosen[:, i]] for i in range(DIGITS)], axis=2)
        labels = self._digits.labels[chosen].astype(np.int32)
        indices = np.array([[row, column] for row in range(BATCH_SIZE) for column in range(DIGITS)], np.int64)
        return images, (indices, labels.reshape(-1), [BATCH_SIZE, DIGITS])


def logits_of(images):
    hidden = tf.layers.conv2d(images, 8, 3, padding="same", activation=tf.nn.relu)
    hidden = tf.layers.max_pooling2d(hidden, 2, 2)
    hidden = tf.layers.conv2d(hidden, 16, 3, padding="same", activation=tf.nn.relu)
    hidden = tf.layers.max_pooling2d(hidden, 2, 2)
    # Each column of the picture becomes a step in time.
    hidden = tf.reshape(tf.transpose(hidden, [0, 2, 1, 3]), [BATCH_SIZE, FRAMES, 7 * 16])
    lengths = tf.fill([BATCH_SIZE], FRAMES)
    outputs, _ = tf.nn.bidirectional_dynamic_rnn(
        tf.nn.rnn_cell.LSTMCell(32), tf.nn.rnn_cell.LSTMCell(32), hidden, lengths, dtype=tf.float32)
    return tf.transpose(tf.layers.dense(tf.concat(outputs, 2), 11), [1, 0, 2]), lengths


def main(_):
    ps_hosts = FLAGS.ps_hosts.split(",")
    worker_hosts = FLAGS.worker_hosts.split(",")
    cluster = tf.train.ClusterSpec({"ps": ps_hosts, "worker": worker_hosts})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
    is_chief = FLAGS.task_index == 0
    with tf.device(tf.train.replica_device_setter(
            worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster)):
        global_step = tf.Variable(0, name="global_step", trainable=False)
        images = tf.placeholder(tf.float32, [BATCH_SIZE, 28, 28 * DIGITS, 1])
        labels = tf.sparse_placeholder(tf.int32)
        logits, lengths = logits_of(images)
        cost = tf.reduce_mean(tf.nn.ctc_loss(labels=labels, inputs=logits, sequence_length=lengths))
        decoded, _ = tf.nn.ctc_beam_search_decoder(logits, lengths, merge_repeated=False)
        distance = tf.reduce_mean(tf.edit_distance(tf.cast(decoded[0], tf.int32), labels))
        optimizer = tf.train.AdadeltaOptimizer(learning_rate=1.0)
        grads_and_vars = optimizer.compute_gradients(cost)
        ready = {}
        if FLAGS.issync == 1:
            rep_op = tf.train.SyncReplicasOptimizer(
                optimizer, replicas_to_aggregate=len(worker_hosts), total_num_replicas=len(worker_hosts), use_locking=True)
            train_op = rep_op.apply_gradients(grads_and_vars, global_step=global_step)
            init_token_op = rep_op.get_init_tokens_op()
            chief_queue_runner = rep_op.get_chief_queue_runner()
            ready["local_init_op"] = rep_op.chief_init_op if is_chief else rep_op.local_step_init_op
            ready["ready_for_local_init_op"] = rep_op.ready_for_local_init_op
        else:
            train_op = optimizer.apply_gradients(grads_and_vars, global_step=global_step)
        save = tf.train.Saver()
        init_op = tf.group(tf.global_variables_initializer(), tf.local_variables_initializer())
        local_init_op = tf.local_variables_initializer()

    def init_fn(sess):
        latest = tf.train.latest_checkpoint(FLAGS.checkpoint_dir)
        if latest is None:
            sess.run(init_op)
        else:
            save.restore(sess, latest)
            sess.run(local_init_op)

    sv = tf.train.Supervisor(is_chief=is_chief, logdir=FLAGS.checkpoint_dir, init_op=None, init_fn=init_fn, summary_op=None,
                             saver=save, global_step=global_step, save_model_secs=50, recovery_wait_secs=1, **ready)
    strips = Strips(FLAGS.task_index)
    with sv.prepare_or_wait_for_session(server.target) as sess:
        step = start_step = int(sess.run(global_step))
        if is_chief and FLAGS.issync == 1:
            sv.start_queue_runners(sess, [chief_queue_runner])
            sess.run(init_token_op)
        losses = []
        while step < FLAGS.train_steps:
            batch, truth = strips.next_batch()
            _, step, loss = sess.run([train_op, global_step, cost], {images: batch, labels: truth})
            losses.append(float(loss))
        if FLAGS.issync == 1:
            # The other workers may wait for a token of a step that will never run: they must see that training is over.
            sess.run(init_token_op)
        batch, truth = strips.next_batch()
        error = float(sess.run(distance, {images: batch, labels: truth}))
        if is_chief:
            save.save(sess, sv.save_path, global_step=global_step)
        tail = max(1, min(3, len(losses) // 2))
        print("RESULT " + json.dumps({
            "task": FLAGS.task_index, "start_step": start_step, "global_step": int(step), "edit_distance": error,
            "first_loss": losses[0] if losses else 0.0, "last_loss": sum(losses[-tail:]) / tail if losses else 0.0}))


if __name__ == "__main__":
    tf.app.run()
