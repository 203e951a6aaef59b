"""`tf.contrib.estimator`: what moved to `tf.estimator.experimental`."""

import tensorflow as tf

from ferroflow import contrib

for _name in dir(tf.estimator.experimental):
    if not _name.startswith("_"):
        globals()[_name] = getattr(tf.estimator.experimental, _name)
InMemoryEvaluatorHook = tf.estimator.experimental.InMemoryEvaluatorHook
add_metrics = tf.estimator.add_metrics


def clip_gradients_by_norm(optimizer, clip_norm):
    """Returns an optimizer that clips each gradient to a norm."""
    class Clipped(tf.train.Optimizer):
        def __init__(self):
            super().__init__(optimizer._use_locking, "Clip" + optimizer.get_name())

        def compute_gradients(self, *args, **kwargs):
            return optimizer.compute_gradients(*args, **kwargs)

        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            clipped = [(None if gradient is None else tf.clip_by_norm(gradient, clip_norm), variable)
                       for gradient, variable in grads_and_vars]
            return optimizer.apply_gradients(clipped, global_step, name)

    return Clipped()


__getattr__ = contrib.missing_from(__name__)
