"""The loss of sequences."""

import tensorflow as tf


def sequence_loss(logits, targets, weights, average_across_timesteps=True, average_across_batch=True,
                  sum_over_timesteps=False, sum_over_batch=False, softmax_loss_function=None, name=None):
    """Returns the weighted cross entropy of logits [batch, time, classes], averaged or summed over time and batch."""
    for tensor, rank, what in ((logits, 3, "Logits"), (targets, 2, "Targets"), (weights, 2, "Weights")):
        if len(tensor.shape) != rank:
            raise ValueError(f"{what} must be a {rank}-D tensor")
    if average_across_timesteps and sum_over_timesteps or average_across_batch and sum_over_batch:
        raise ValueError("a loss is either averaged or summed over a dimension")
    with tf.name_scope(name, "sequence_loss", [logits, targets, weights]):
        flat = tf.reshape(logits, [-1, tf.shape(logits)[2]])
        labels = tf.reshape(targets, [-1])
        if softmax_loss_function is None:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=flat)
        else:
            losses = softmax_loss_function(labels=labels, logits=flat)
        losses *= tf.reshape(weights, [-1])
        if average_across_timesteps and average_across_batch:
            total = tf.reduce_sum(weights)
            return tf.div_no_nan(tf.reduce_sum(losses), total)
        if sum_over_timesteps and sum_over_batch:
            return tf.div_no_nan(tf.reduce_sum(losses), tf.cast(tf.count_nonzero(weights), losses.dtype))
        losses = tf.reshape(losses, tf.shape(logits)[0:2])
        if average_across_timesteps or average_across_batch:
            axis = 1 if average_across_timesteps else 0
            return tf.div_no_nan(tf.reduce_sum(losses, axis), tf.reduce_sum(weights, axis))
        if sum_over_timesteps or sum_over_batch:
            axis = 1 if sum_over_timesteps else 0
            return tf.div_no_nan(tf.reduce_sum(losses, axis), tf.cast(tf.count_nonzero(weights, axis), losses.dtype))
        return losses
