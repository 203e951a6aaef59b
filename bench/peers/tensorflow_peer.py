"""The models in TensorFlow 1, in its local session."""
import tensorflow.compat.v1 as tf

from _measure import BATCH, CLASSES, PIXELS, measure, task


def dense(name, x, inputs, outputs):
    w = tf.get_variable(f"{name}/kernel", [inputs, outputs])
    return tf.nn.xw_plus_b(x, w, tf.get_variable(f"{name}/bias", [outputs], initializer=tf.zeros_initializer()))


def mlp(images):
    return dense("output", tf.nn.relu(dense("hidden", images, PIXELS, 100)), 100, CLASSES)


def cnn(images):
    images = tf.reshape(images, [BATCH, 28, 28, 1])
    for name, inputs, outputs in (("first", 1, 32), ("second", 32, 64)):
        w = tf.get_variable(f"{name}/kernel", [5, 5, inputs, outputs])
        b = tf.get_variable(f"{name}/bias", [outputs], initializer=tf.zeros_initializer())
        images = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(images, w, [1, 1, 1, 1], "SAME"), b))
        images = tf.nn.max_pool(images, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
    flat = tf.reshape(images, [BATCH, 7 * 7 * 64])
    return dense("output", tf.nn.relu(dense("hidden", flat, 7 * 7 * 64, 512)), 512, CLASSES)


def lstm(images):
    rows = tf.unstack(tf.reshape(images, [BATCH, 28, 28]), axis=1)
    outputs, _ = tf.nn.static_rnn(tf.nn.rnn_cell.BasicLSTMCell(128), rows, dtype=tf.float32)
    return dense("output", outputs[-1], 128, CLASSES)


MODELS = {
    "mlp": (mlp, lambda: tf.train.AdamOptimizer(0.001)),
    "cnn": (cnn, lambda: tf.train.GradientDescentOptimizer(0.01)),
    "lstm": (lstm, lambda: tf.train.GradientDescentOptimizer(0.1)),
}


def main():
    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.ERROR)
    name, images, labels = task()
    network, optimizer = MODELS[name]
    x, y = tf.placeholder(tf.float32, [BATCH, PIXELS]), tf.placeholder(tf.int64, [BATCH])
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=network(x)))
    train = optimizer().minimize(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        step = session.make_callable([loss, train], [x, y])
        measure(lambda: step(images, labels)[0])


if __name__ == "__main__":
    main()
