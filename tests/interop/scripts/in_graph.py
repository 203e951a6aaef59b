"""In-graph replication: one client, variables on the ps tasks, a tower on each worker, averaged gradients."""

import argparse
import json

import numpy as np
import tensorflow.compat.v1 as tf
from ferroflow import mnist

tf.disable_v2_behavior()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ps_hosts", required=True)
    parser.add_argument("--worker_hosts", required=True)
    parser.add_argument("--chief_hosts", help="a task that only has the master, in place of the first worker's")
    parser.add_argument("--train_steps", type=int, default=200)
    flags = parser.parse_args()
    workers = flags.worker_hosts.split(",")
    digits = mnist.read_data_sets("MNIST_data", one_hot=True)

    with tf.device("/job:ps/task:0"):
        global_step = tf.train.get_or_create_global_step()
        w1 = tf.get_variable("w1", [784, 100])
        b1 = tf.get_variable("b1", [100], initializer=tf.zeros_initializer())
        w2 = tf.get_variable("w2", [100, 10])
        b2 = tf.get_variable("b2", [10], initializer=tf.zeros_initializer())
        optimizer = tf.train.AdamOptimizer(0.003)
    x = tf.placeholder(tf.float32, [None, 784])
    y = tf.placeholder(tf.float32, [None, 10])
    tower_gradients, tower_losses = [], []
    parts = zip(tf.split(x, len(workers)), tf.split(y, len(workers)))
    for index, (images, labels) in enumerate(parts):
        with tf.device("/job:worker/task:%d" % index), tf.name_scope("tower_%d" % index):
            logits = tf.matmul(tf.nn.relu(tf.matmul(images, w1) + b1), w2) + b2
            loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(labels=labels, logits=logits))
            tower_gradients.append(optimizer.compute_gradients(loss))
            tower_losses.append(loss)
            if index == 0:
                accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), tf.argmax(labels, 1)), tf.float32))
    with tf.device("/job:ps/task:0"):
        averaged = []
        for pairs in zip(*tower_gradients):
            gradients = [gradient for gradient, _ in pairs]
            averaged.append((tf.add_n(gradients) / len(gradients), pairs[0][1]))
        train = optimizer.apply_gradients(averaged, global_step=global_step)
        init = tf.global_variables_initializer()

    with tf.Session("grpc://" + (flags.chief_hosts or workers[0])) as session:
        session.run(init)
        for _ in range(flags.train_steps):
            images, labels = digits.train.next_batch(200)
            session.run(train, {x: images, y: labels})
        metadata = tf.RunMetadata()
        feed = {x: np.concatenate([digits.test.images] * len(workers)), y: np.concatenate([digits.test.labels] * len(workers))}
        step, final, _ = session.run([global_step, accuracy, tower_losses], feed,
                                     tf.RunOptions(output_partition_graphs=True), metadata)
    devices = {node.device for graph in metadata.partition_graphs for node in graph.node
               if node.name.startswith("tower_") and node.op not in ("_Send", "_Recv", "_HostSend", "_HostRecv")}
    print("RESULT " + json.dumps({
        "global_step": int(step), "accuracy": float(final),
        "tower_devices": sorted(device for device in devices if "/job:worker" in device)}))


if __name__ == "__main__":
    main()
