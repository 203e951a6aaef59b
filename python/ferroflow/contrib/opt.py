"""`tf.contrib.opt`: the optimizers that programs commonly use."""

import tensorflow as tf

from ferroflow import contrib


class LazyAdamOptimizer(tf.train.AdamOptimizer):
    """Adam that, for a sparse gradient, updates only the rows in it."""

    def _apply_sparse(self, grad, var):
        return self._lazily(grad.values, var, grad.indices, tf.scatter_update, tf.scatter_sub)

    def _resource_apply_sparse(self, grad, var, indices):
        return self._lazily(grad, var, indices, tf.scatter_update, tf.scatter_sub)

    def _lazily(self, gradient, var, indices, update, subtract):
        dtype = var.dtype.base_dtype
        beta1_power, beta2_power = self._get_beta_accumulators()
        rate = tf.cast(self._lr_t, dtype) * tf.sqrt(1 - tf.cast(beta2_power, dtype)) / (1 - tf.cast(beta1_power, dtype))
        beta1, beta2 = tf.cast(self._beta1_t, dtype), tf.cast(self._beta2_t, dtype)
        first, second = self.get_slot(var, "m"), self.get_slot(var, "v")
        first_rows = beta1 * tf.gather(first, indices) + (1 - beta1) * gradient
        second_rows = beta2 * tf.gather(second, indices) + (1 - beta2) * tf.square(gradient)
        step = rate * first_rows / (tf.sqrt(second_rows) + tf.cast(self._epsilon_t, dtype))
        return tf.group(update(first, indices, first_rows), update(second, indices, second_rows), subtract(var, indices, step))


class MovingAverageOptimizer(tf.train.Optimizer):
    """An optimizer that also maintains moving averages of the trained variables."""

    def __init__(self, opt, average_decay=0.9999, num_updates=None, sequential_update=True):
        super().__init__(False, "MovingAverageOptimizer")
        self._optimizer = opt
        self._averages = tf.train.ExponentialMovingAverage(average_decay, num_updates=num_updates)
        self._variables = None

    def compute_gradients(self, *args, **kwargs):
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        grads_and_vars = list(grads_and_vars)
        trained = self._optimizer.apply_gradients(grads_and_vars, global_step, name)
        self._variables = [variable for _, variable in grads_and_vars]
        with tf.control_dependencies([trained]):
            return tf.group(self._averages.apply(self._variables), name=name)

    def swapping_saver(self, var_list=None, name="swapping_saver", **kwargs):
        """Returns a saver that writes the averages under the variables' names."""
        if self._variables is None:
            raise RuntimeError("Must call apply_gradients or minimize before creating the swapping_saver")
        saved = {variable.op.name: variable for variable in var_list or tf.global_variables()}
        for variable in self._variables:
            average = self._averages.average(variable)
            saved.pop(average.op.name, None)
            saved[variable.op.name] = average
        return tf.train.Saver(saved, name=name, **kwargs)


class AdamWOptimizer(tf.train.AdamOptimizer):
    """Adam with weight decay that doesn't affect the moments."""

    def __init__(self, weight_decay, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._weight_decay = weight_decay

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        grads_and_vars = list(grads_and_vars)
        decays = [tf.assign_sub(variable, self._weight_decay * variable) for gradient, variable in grads_and_vars
                  if gradient is not None]
        with tf.control_dependencies(decays):
            return super().apply_gradients(grads_and_vars, global_step, name)


__getattr__ = contrib.missing_from(__name__)
