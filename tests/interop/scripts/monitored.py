"""Between-graph training with MonitoredTrainingSession, hooks and optional SyncReplicasOptimizer, on existing servers."""

import json
import time

import tensorflow.compat.v1 as tf
from ferroflow import mnist

tf.disable_v2_behavior()

flags = tf.app.flags
flags.DEFINE_string("ps_hosts", "", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("worker_hosts", "", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("job_name", "worker", "worker; the servers run already")
flags.DEFINE_integer("task_index", 0, "Index of task within the job")
flags.DEFINE_boolean("sync_replicas", False, "Synchronous training")
flags.DEFINE_string("checkpoint_dir", None, "Where checkpoints go")
flags.DEFINE_integer("train_steps", 400, "Number of global steps")
flags.DEFINE_integer("save_steps", 100, "Steps between checkpoints")
flags.DEFINE_boolean("announce_steps", False, "Print a line at every step, for a test that waits for one")
FLAGS = flags.FLAGS


class Steps(tf.train.SessionRunHook):
    """Counts this worker's steps and its sessions."""

    def __init__(self, global_step):
        self.local_steps = 0
        self.sessions = 0
        self._global_step = global_step

    def after_create_session(self, session, coord):
        self.sessions += 1
        print("SESSION %d" % self.sessions, flush=True)

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(self._global_step)

    def after_run(self, run_context, run_values):
        self.local_steps += 1
        if FLAGS.announce_steps:
            print("STEP %d" % run_values.results, flush=True)


class LastTokens(tf.train.SessionRunHook):
    """Tells the other workers that training is over: they may wait for a token of a step that will never run."""

    def __init__(self, tokens):
        self._tokens = tokens

    def end(self, session):
        try:
            session.run(self._tokens)
        except tf.errors.CancelledError:
            # The chief was faster and has closed the queue, which also ends waits for a token.
            pass


def main(_):
    ps_hosts = FLAGS.ps_hosts.split(",")
    worker_hosts = FLAGS.worker_hosts.split(",")
    is_chief = FLAGS.task_index == 0
    cluster = tf.train.ClusterSpec({"ps": ps_hosts, "worker": worker_hosts})
    digits = mnist.read_data_sets("MNIST_data", one_hot=True)
    with tf.device(tf.train.replica_device_setter(
            worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster)):
        global_step = tf.train.get_or_create_global_step()
        x = tf.placeholder(tf.float32, [None, 784])
        y = tf.placeholder(tf.float32, [None, 10])
        hidden = tf.layers.dense(x, 100, activation=tf.nn.relu)
        logits = tf.layers.dense(hidden, 10)
        loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(labels=y, logits=logits))
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), tf.argmax(y, 1)), tf.float32))
        optimizer = tf.train.AdamOptimizer(0.003)
        steps = Steps(global_step)
        hooks = [tf.train.StopAtStepHook(last_step=FLAGS.train_steps), steps, tf.train.NanTensorHook(loss)]
        if FLAGS.sync_replicas:
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, len(worker_hosts), len(worker_hosts))
        train = optimizer.minimize(loss, global_step=global_step)
        if FLAGS.sync_replicas:
            hooks += [optimizer.make_session_run_hook(is_chief), LastTokens(optimizer.get_init_tokens_op())]
    config = tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:%d" % FLAGS.task_index])
    began = time.time()
    step, final = 0, 0.0
    # At the end, the chief's queue runner waits for gradients that will never arrive, so the grace period is short.
    with tf.train.MonitoredTrainingSession(
            master="grpc://" + worker_hosts[FLAGS.task_index], is_chief=is_chief, checkpoint_dir=FLAGS.checkpoint_dir,
            hooks=hooks, save_checkpoint_secs=None, save_checkpoint_steps=FLAGS.save_steps, save_summaries_steps=None,
            stop_grace_period_secs=2, config=config) as session:
        while not session.should_stop():
            images, labels = digits.train.next_batch(100)
            fetches = [train, global_step, accuracy]
            _, step, final = session.run(fetches, {x: images, y: labels})
    print("RESULT " + json.dumps({
        "task": FLAGS.task_index, "global_step": int(step), "local_steps": steps.local_steps, "sessions": steps.sessions,
        "accuracy": float(final), "seconds": time.time() - began}))


if __name__ == "__main__":
    tf.app.run()
