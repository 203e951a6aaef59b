"""SyncReplicasOptimizer on an embedding: its gradients are rows, which go through accumulators whose shape the client leaves open."""

import threading

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

STEPS = 4
ROWS, WIDTH = 6, 3


def build(worker, is_chief, use_resource):
    """Returns a graph as each of two workers builds it, and what its client needs."""
    with tf.Graph().as_default() as graph:
        with tf.device(tf.train.replica_device_setter(ps_tasks=1, worker_device=f"/job:worker/task:{worker}")):
            step = tf.train.get_or_create_global_step()
            table = tf.get_variable("table", [ROWS, WIDTH], initializer=tf.ones_initializer(), use_resource=use_resource)
            bias = tf.get_variable("bias", [WIDTH], initializer=tf.zeros_initializer(), use_resource=use_resource)
            # Each worker uses rows of its own and one that both use.
            rows = tf.nn.embedding_lookup(table, [0, 1 + worker, 0])
            loss = tf.reduce_sum(tf.square(rows + bias)) * (1.0 + worker)
            optimizer = tf.train.SyncReplicasOptimizer(tf.train.AdagradOptimizer(0.5), replicas_to_aggregate=2, total_num_replicas=2)
            train = optimizer.minimize(loss, global_step=step)
        hook = optimizer.make_session_run_hook(is_chief, num_tokens=2)
    return graph, train, step, hook, (table, bias)


@pytest.mark.parametrize("use_resource", [False, True])
def test_two_workers_train_an_embedding_in_step(cluster, use_resource):
    made = cluster(ps=1, workers=2)
    failures, trained = [], {}

    def work(worker):
        try:
            graph, train, step, hook, variables = build(worker, worker == 0, use_resource)
            with graph.as_default():
                creator = tf.train.ChiefSessionCreator if worker == 0 else tf.train.WorkerSessionCreator
                hooks = [hook, tf.train.StopAtStepHook(last_step=STEPS)]
                with tf.train.MonitoredSession(creator(master=made.worker(worker).target), hooks=hooks) as session:
                    while not session.should_stop():
                        session.run(train)
        except Exception as failure:
            failures.append((worker, failure))

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    graph, _, step, _, variables = build(0, True, use_resource)
    with tf.Session(made.target, graph=graph) as session:
        count, trained = session.run([step, list(variables)])
    assert count >= STEPS
    table, bias = trained
    # Rows that were used have moved, the same way in all columns; one worker alone may have given the gradients of all steps.
    assert np.all(table[0] < 1) and np.any(table[1:3] < 1) and np.all(table[3:] == 1) and np.all(bias < 0)
    assert np.allclose(table, table[:, :1]) and np.allclose(bias, bias[0])
