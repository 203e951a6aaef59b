"""`tf.contrib.framework`: variables, scopes of arguments, checkpoints."""

import tensorflow as tf

from ferroflow import contrib
from ferroflow.contrib import repairs

repairs.install(tf)

try:
    from tf_slim.ops import arg_scope as _arg_scope
    from tf_slim.ops import framework_ops as _framework_ops
    from tf_slim.ops import variables

    add_arg_scope, arg_scope, arg_scoped_arguments, current_arg_scope, has_arg_scope = (
        _arg_scope.add_arg_scope, _arg_scope.arg_scope, _arg_scope.arg_scoped_arguments, _arg_scope.current_arg_scope,
        _arg_scope.has_arg_scope)
    get_graph_from_inputs, get_name_scope = _framework_ops.get_graph_from_inputs, _framework_ops.get_name_scope
    globals().update({name: getattr(variables, name) for name in variables.__all__})
    _has_slim = True
except ModuleNotFoundError:
    _has_slim = False

    def get_variables(scope=None, suffix=None, collection=tf.GraphKeys.GLOBAL_VARIABLES):
        if isinstance(scope, tf.VariableScope):
            scope = scope.name
        found = tf.get_collection(collection, scope)
        return [one for one in found if suffix is None or one.op.name[len(one.op.name) - len(suffix):] == suffix]

    get_variables_to_restore = tf.global_variables

get_or_create_global_step = tf.train.get_or_create_global_step
get_global_step = tf.train.get_global_step
create_global_step = tf.train.create_global_step
assert_global_step = tf.train.assert_global_step
nest = tf.nest
list_variables = tf.train.list_variables
load_variable = tf.train.load_variable
load_checkpoint = tf.train.load_checkpoint
init_from_checkpoint = tf.train.init_from_checkpoint
checkpoint_exists = tf.train.checkpoint_exists
is_tensor = tf.is_tensor
argsort, sort = tf.argsort, tf.sort
smart_cond = tf.layers.experimental.smart_cond if hasattr(getattr(tf.layers, "experimental", None), "smart_cond") else None
if smart_cond is None:
    from tensorflow.python.framework.smart_cond import smart_cond
from tensorflow.python.framework.smart_cond import smart_constant_value
from tensorflow.python.util.deprecation import deprecated, deprecated_arg_values, deprecated_args

assert_scalar = tf.assert_scalar
reduce_sum_n = tf.add_n


def assert_scalar_int(tensor, name=None):
    """Returns a tensor that must be an integer scalar."""
    tensor = tf.convert_to_tensor(tensor)
    if not tensor.dtype.base_dtype.is_integer:
        raise ValueError(f"Expected integer type for {tensor.name}, received type: {tensor.dtype}.")
    tf.assert_scalar(tensor)
    return tensor


def convert_to_tensor_or_sparse_tensor(value, dtype=None, name=None):
    return tf.convert_to_tensor_or_sparse_tensor(value, dtype, name)


def zero_initializer(ref, use_locking=True, name="zero_initializer"):
    """Returns an op that sets a variable to zeros."""
    return tf.assign(ref, tf.zeros(ref.shape, ref.dtype.base_dtype), use_locking=use_locking, name=name)


def with_shape(expected_shape, tensor):
    """Returns the tensor, with its shape asserted."""
    tensor = tf.convert_to_tensor(tensor)
    if not isinstance(expected_shape, tf.Tensor):
        tensor.shape.assert_is_compatible_with(expected_shape)
    return tf.ensure_shape(tensor, expected_shape) if not isinstance(expected_shape, tf.Tensor) else tensor


def with_same_shape(expected_tensor, tensor):
    return with_shape(expected_tensor.shape, tensor)


def remove_squeezable_dimensions(predictions, labels, name=None):
    from tensorflow.python.ops import confusion_matrix

    return tuple(reversed(confusion_matrix.remove_squeezable_dimensions(labels, predictions, name=name)))


def __getattr__(name):
    if not _has_slim and not name.startswith("__"):
        raise AttributeError(f"{contrib.needs_slim('framework.' + name)}")
    raise AttributeError(contrib.no_such("framework." + name))
