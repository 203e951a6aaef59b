"""A worker and a chief that wait for each other in ways that never end in TensorFlow, or only after minutes."""

import sys

import tensorflow as tf

flags = tf.app.flags
flags.DEFINE_string("ps_hosts", "", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("worker_hosts", "", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("job_name", "", "ps or worker")
flags.DEFINE_integer("task_index", 0, "Index of task within the job")
flags.DEFINE_string("mode", "monitored", "monitored, supervisor, sync or stuck")
flags.DEFINE_integer("train_steps", 20, "Number of global steps")
FLAGS = flags.FLAGS

# Longer than any test: a test that waits for this hangs.
FOREVER_SECS = 10**6


def main(_):
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
    is_chief = FLAGS.task_index == 0
    wait_for_go(is_chief)
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{FLAGS.task_index}")):
        step = tf.train.get_or_create_global_step()
        weight = tf.Variable(1.0)
        loss = tf.square(weight - 3.0)
        optimizer, hooks = tf.train.GradientDescentOptimizer(0.1), []
        if FLAGS.mode == "sync":
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, 2, 2)
        train = optimizer.minimize(loss, global_step=step)
        with tf.device(f"/job:worker/task:{FLAGS.task_index}"):
            never = tf.FIFOQueue(1, tf.float32).dequeue()
        if FLAGS.mode == "sync":
            hooks.append(optimizer.make_session_run_hook(is_chief))
    if FLAGS.mode == "supervisor":
        supervisor = tf.train.Supervisor(is_chief=is_chief, global_step=step, recovery_wait_secs=FOREVER_SECS)
        with supervisor.managed_session(server.target) as session:
            wait_for_go(is_chief)
            run(session, train, step, supervisor.should_stop)
    else:
        hooks.append(tf.train.StopAtStepHook(last_step=FLAGS.train_steps))
        creator = (tf.train.ChiefSessionCreator if is_chief else tf.train.WorkerSessionCreator)(master=server.target)
        with tf.train.MonitoredSession(creator, hooks, stop_grace_period_secs=FOREVER_SECS) as session:
            wait_for_go(is_chief)
            while not session.should_stop():
                session.run(train)
                if FLAGS.mode == "stuck" and not is_chief:
                    print("WORKER waits", flush=True)
                    session.run(never)
    print("DONE", FLAGS.task_index, flush=True)


def wait_for_go(is_chief):
    """Makes the chief wait until it is told to continue: before it creates its session, and before it trains."""
    if is_chief:
        print("CHIEF waits", flush=True)
        sys.stdin.readline()


def run(session, train, step, should_stop):
    while not should_stop():
        session.run(train)
        if session.run(step) >= FLAGS.train_steps:
            return


if __name__ == "__main__":
    tf.app.run()
