"""Calls TensorFlow's collective_ops in sessions: each worker trains its own copy of a variable with the mean of all gradients."""

import tensorflow as tf
from tensorflow.python.ops import collective_ops

flags = tf.app.flags
flags.DEFINE_string("worker_hosts", None, "The addresses of all workers")
flags.DEFINE_integer("task_index", 0, "Which of them this is")
FLAGS = flags.FLAGS

GROUP_KEY = 1


def main(_):
    hosts = FLAGS.worker_hosts.split(",")
    size, rank = len(hosts), FLAGS.task_index
    config = tf.ConfigProto()
    config.experimental.collective_group_leader = "/job:worker/replica:0/task:0"
    server = tf.train.Server(tf.train.ClusterSpec({"worker": hosts}), job_name="worker", task_index=rank, config=config)
    with tf.device(f"/job:worker/task:{rank}"):
        weights = tf.get_variable("weights", initializer=[float(rank), 2.0])
        # All workers start with the first one's values.
        if rank == 0:
            first = collective_ops.broadcast_send(weights.initialized_value(), [2], tf.float32, size, GROUP_KEY, 1)
        else:
            first = collective_ops.broadcast_recv([2], tf.float32, size, GROUP_KEY, 1)
        start = weights.assign(first)
        gradient = tf.gradients(tf.reduce_sum(tf.square(weights - float(rank))), weights)[0]
        mean = collective_ops.all_reduce(gradient, size, GROUP_KEY, 2, "Add", "Div")
        train = weights.assign_sub(0.25 * mean)
        together = collective_ops.all_gather(tf.reshape(weights, [1, 2]), size, GROUP_KEY, 3)
    options = tf.RunOptions()
    options.experimental.collective_graph_key = 7
    with tf.Session(server.target) as session:
        session.run(tf.global_variables_initializer())
        session.run(start.op, options=options)
        for _ in range(3):
            session.run(train.op, options=options)
        print("RESULT", session.run(together, options=options).tolist(), flush=True)
        # No worker exits before all others have received its values.
        session.run(collective_ops.all_reduce(tf.ones([1]), size, GROUP_KEY, 4, "Add", "Id").op, options=options)


if __name__ == "__main__":
    tf.app.run()
