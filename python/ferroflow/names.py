"""TensorFlow 1's names on the `tensorflow` module, including those that TensorFlow 2.15 renamed or removed."""

import functools
import importlib
import sys
import types
import warnings

from ferroflow import callbacks, contrib, estimator, flags, leaving, mnist, quiet

# TensorFlow 1's names, and where TensorFlow 2.15's v1 module has them. Names that still exist are left alone.
RENAMED = {
    # Variables and initialization.
    "all_variables": "global_variables",
    "initialize_all_variables": "global_variables_initializer",
    "initialize_local_variables": "local_variables_initializer",
    "initialize_variables": "variables_initializer",
    "initialize_all_tables": "tables_initializer",
    # Arithmetic.
    "mul": "multiply",
    "sub": "subtract",
    "neg": "negative",
    "inv": "reciprocal",
    "select": "where",
    "complex_abs": "abs",
    "batch_matmul": "matmul",
    "batch_matrix_inverse": "matrix_inverse",
    "batch_matrix_determinant": "matrix_determinant",
    "batch_matrix_transpose": "matrix_transpose",
    "batch_matrix_diag": "matrix_diag",
    "batch_matrix_diag_part": "matrix_diag_part",
    "batch_matrix_band_part": "matrix_band_part",
    "batch_cholesky": "cholesky",
    "batch_self_adjoint_eig": "self_adjoint_eig",
    "batch_svd": "svd",
    "batch_fft": "fft",
    "batch_ifft": "ifft",
    # Arrays.
    "pack": "stack",
    "unpack": "unstack",
    "listdiff": "setdiff1d",
    "sparse_concat_v2": "sparse_concat",
    # Summaries.
    "scalar_summary": "summary.scalar",
    "histogram_summary": "summary.histogram",
    "merge_summary": "summary.merge",
    "merge_all_summaries": "summary.merge_all",
    "train.SummaryWriter": "summary.FileWriter",
    # Networks.
    "nn.rnn": "nn.static_rnn",
    "nn.bidirectional_rnn": "nn.static_bidirectional_rnn",
    "nn.state_saving_rnn": "nn.static_state_saving_rnn",
    "nn.deconv2d": "nn.conv2d_transpose",
    # Training.
    "train.SyncReplicasOptimizerV2": "train.SyncReplicasOptimizer",
    # Files.
    "VERSION": "version.VERSION",
    "GIT_VERSION": "version.GIT_VERSION",
}

# The types that NumPy 1.24 removed and old programs use.
NUMPY_ALIASES = {"bool": bool, "int": int, "float": float, "complex": complex, "object": object, "str": str}


def install(server_class):
    """Changes `tensorflow` in place; its submodules stay unchanged."""
    import numpy
    import tensorflow
    import tensorflow.compat.v1 as v1

    with quiet.silenced():
        v1.disable_v2_behavior()
    quiet.install()
    flags.install()
    for name in dir(v1):
        if not name.startswith("__") and name not in ("compat", "__version__"):
            setattr(tensorflow, name, getattr(v1, name))
    root = Root(tensorflow, v1)
    for old, new in RENAMED.items():
        if not root.has(old):
            root.put(old, root.get(new))
    for old, replacement in adapted(v1).items():
        root.put(old, replacement)
    root.put("train.Server", server_class)
    importlib.import_module("tensorflow.python.training.server_lib").Server = server_class
    for package in ("tensorflow.examples", "tensorflow.examples.tutorials", "tensorflow.examples.tutorials.mnist"):
        root.add_module(package)
    root.add_module("tensorflow.examples.tutorials.mnist.input_data", mnist)
    for name, value in (("flags", flags), ("app.flags", flags), ("app.run", flags.run)):
        root.put(name, value)
    contrib.install(tensorflow, v1)
    callbacks.install()
    leaving.install()
    estimator.install()
    for name, kind in NUMPY_ALIASES.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if not hasattr(numpy, name):
                setattr(numpy, name, kind)


class Root:
    """Sets dotted names on `tensorflow` and on the v1 module that it now exposes."""

    def __init__(self, tensorflow, v1):
        self._tensorflow = tensorflow
        self._v1 = v1

    def get(self, path):
        return functools.reduce(getattr, path.split("."), self._tensorflow)

    def has(self, path):
        try:
            self.get(path)
            return True
        except AttributeError:
            return False

    def put(self, path, value):
        """Sets a name, and creates missing modules along its path."""
        holder_path, _, name = path.rpartition(".")
        if not holder_path:
            setattr(self._tensorflow, name, value)
            setattr(self._v1, name, value)
            return
        if not self.has(holder_path):
            self.add_module("tensorflow." + holder_path)
        setattr(self.get(holder_path), name, value)

    def add_module(self, name, module=None):
        """Makes `import NAME` work, and sets the attribute on the parent module."""
        module = module or types.ModuleType(name, "TensorFlow 1's module of this name, as far as it is there.")
        if not hasattr(module, "__path__") and module is not mnist:
            module.__path__ = []
        sys.modules[name] = module
        parent, _, last = name.rpartition(".")
        if parent not in sys.modules:
            self.add_module(parent)
        holder = self._tensorflow if parent == "tensorflow" else sys.modules[parent]
        setattr(holder, last, module)
        if parent == "tensorflow":
            setattr(self._v1, last, module)


def adapted(v1):
    """Returns the names whose arguments changed, each with a function that accepts both the old and the new arguments."""
    concat, split, softmax, sigmoid, sparse_softmax = (
        v1.concat, v1.split, v1.nn.softmax_cross_entropy_with_logits, v1.nn.sigmoid_cross_entropy_with_logits,
        v1.nn.sparse_softmax_cross_entropy_with_logits)

    @functools.wraps(concat)
    def concat_both_ways(values, axis=None, name="concat", concat_dim=None):
        if concat_dim is not None:
            return concat(values if axis is None else axis, concat_dim, name)
        # Before 1.0 the axis was the first argument.
        if is_axis(values) and isinstance(axis, (list, tuple)):
            values, axis = axis, values
        return concat(values, axis, name)

    @functools.wraps(split)
    def split_both_ways(value=None, num_or_size_splits=None, axis=0, num=None, name="split", split_dim=None,
                        num_split=None):
        if split_dim is not None or num_split is not None:
            return split(value, num_split, split_dim, num, name)
        if is_axis(value) and isinstance(num_or_size_splits, int):
            # Before 1.0: split(split_dim, num_split, value).
            return split(axis, num_or_size_splits, value, num, name)
        return split(value, num_or_size_splits, axis, num, name)

    def by_position(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            # Before 1.0 the logits and the labels were passed by position, in this order.
            names = ("logits", "labels")
            kwargs.update(zip(names, (value for value in args if value is not None)))
            return function(**kwargs)

        return wrapper

    def image_summary(tag, tensor, max_images=3, collections=None, name=None):
        return v1.summary.image(name or tag, tensor, max_outputs=max_images, collections=collections)

    def audio_summary(tag, tensor, sample_rate, max_outputs=3, collections=None, name=None):
        return v1.summary.audio(name or tag, tensor, sample_rate, max_outputs=max_outputs, collections=collections)

    class SyncReplicasOptimizer(v1.train.SyncReplicasOptimizer):
        __doc__ = v1.train.SyncReplicasOptimizer.__doc__

        def __init__(self, opt, replicas_to_aggregate, *args, replica_id=None, **kwargs):
            # The first version had an argument for the replica's number, which the token queue made unnecessary.
            del replica_id
            super().__init__(opt, replicas_to_aggregate, *args, **kwargs)

    return {
        "concat": concat_both_ways,
        "split": split_both_ways,
        "nn.softmax_cross_entropy_with_logits": by_position(softmax),
        "nn.sigmoid_cross_entropy_with_logits": by_position(sigmoid),
        "nn.sparse_softmax_cross_entropy_with_logits": by_position(sparse_softmax),
        "image_summary": image_summary,
        "audio_summary": audio_summary,
        "train.SyncReplicasOptimizer": SyncReplicasOptimizer,
        "train.SyncReplicasOptimizerV2": SyncReplicasOptimizer,
                }


def is_axis(value):
    return isinstance(value, int) and not isinstance(value, bool)
