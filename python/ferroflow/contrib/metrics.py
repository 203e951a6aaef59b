"""`tf.contrib.metrics`: the streaming metrics, whose first argument is the predictions."""

import tensorflow as tf

from ferroflow import contrib


def _predictions_first(metric):
    def wrapper(predictions, labels, *args, **kwargs):
        return metric(labels, predictions, *args, **kwargs)

    wrapper.__doc__ = metric.__doc__
    return wrapper


for _name in ("accuracy", "auc", "average_precision_at_k", "false_negatives", "false_positives", "mean_absolute_error",
              "precision", "precision_at_k", "precision_at_thresholds", "recall", "recall_at_k", "recall_at_thresholds",
              "root_mean_squared_error", "mean_squared_error", "sensitivity_at_specificity", "sparse_average_precision_at_k",
              "sparse_precision_at_k", "specificity_at_sensitivity", "true_negatives", "true_positives"):
    globals()["streaming_" + _name] = _predictions_first(getattr(tf.metrics, _name))
streaming_sparse_recall_at_k = _predictions_first(tf.metrics.recall_at_k)
streaming_mean = tf.metrics.mean
streaming_mean_tensor = tf.metrics.mean_tensor
streaming_percentage_less = tf.metrics.percentage_below


def streaming_mean_iou(predictions, labels, num_classes, *args, **kwargs):
    return tf.metrics.mean_iou(labels, predictions, num_classes, *args, **kwargs)


def streaming_mean_relative_error(predictions, labels, normalizer, *args, **kwargs):
    return tf.metrics.mean_relative_error(labels, predictions, normalizer, *args, **kwargs)


def streaming_mean_cosine_distance(predictions, labels, dim, *args, **kwargs):
    return tf.metrics.mean_cosine_distance(labels, predictions, dim, *args, **kwargs)


def accuracy(predictions, labels, weights=None, name=None):
    """Returns the fraction of correct predictions."""
    with tf.name_scope(name, "accuracy"):
        right = tf.cast(tf.equal(predictions, labels), tf.float32)
        if weights is None:
            return tf.reduce_mean(right)
        weights = tf.cast(weights, tf.float32)
        return tf.div(tf.reduce_sum(right * weights), tf.reduce_sum(tf.ones_like(right) * weights))


def confusion_matrix(labels, predictions, num_classes=None, dtype=tf.int32, name=None, weights=None):
    return tf.math.confusion_matrix(labels, predictions, num_classes, weights, dtype, name)


def aggregate_metrics(*value_update_tuples):
    """Returns the values and the updates of several metrics as two lists."""
    if not value_update_tuples:
        raise ValueError("Expected at least one value_tensor/update_op pair")
    values, updates = zip(*value_update_tuples)
    return list(values), list(updates)


def aggregate_metric_map(names_to_tuples):
    """Returns the values and the updates of several metrics as two dictionaries."""
    values, updates = zip(*names_to_tuples.values())
    return dict(zip(names_to_tuples, values)), dict(zip(names_to_tuples, updates))


set_difference, set_intersection, set_size, set_union = tf.sets.difference, tf.sets.intersection, tf.sets.size, tf.sets.union


def __getattr__(name):
    if name.startswith("streaming_"):
        try:
            from ferroflow.contrib import slim

            return getattr(slim.metrics, name)
        except (ImportError, AttributeError):
            pass
    raise AttributeError(contrib.no_such("metrics." + name))
