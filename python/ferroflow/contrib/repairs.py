"""Names that tf_slim expects in TensorFlow's modules, and that TensorFlow 2.15 has elsewhere."""

import importlib

MOVED = {
    "framework.ops": ("Tensor", "IndexedSlices"),
    "ops.array_ops": ("stack", "unstack"),
    "ops.control_flow_ops": ("Assert", "case", "cond", "while_loop"),
}


def install(tf):
    """Restores these names. Calling it again changes nothing."""
    for path, names in MOVED.items():
        module = importlib.import_module("tensorflow.python." + path)
        for name in names:
            if not hasattr(module, name):
                setattr(module, name, getattr(tf, name))
    scope = importlib.import_module("tensorflow.python.ops.variable_scope")
    if not hasattr(scope, "variable"):
        scope.variable = tf.Variable
    # tf_slim's own would come from a package that TensorFlow 2.15 doesn't include.
    normalization = importlib.import_module("tensorflow.python.layers.normalization")
    normalization.BatchNormalization = normalization.BatchNorm = tf.layers.BatchNormalization
    normalization.batch_normalization = normalization.batch_norm = tf.layers.batch_normalization
