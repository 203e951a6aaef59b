"""`tf.contrib`: the names that programs use, from tf_slim where it has them, and from TensorFlow's v1 names elsewhere.

A module is imported on first use. `tensorflow.contrib.X.python.Y.Z`, the paths of its sources, resolve to `tensorflow.contrib.X`.
A missing name is an error that names it.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys
import types

PREFIX = "tensorflow.contrib."
OWN = __name__ + "."
READ_ON = "docs/limits-of-compatibility.md lists what is available, and alternatives"

# Modules of this package, by their names in tf.contrib; a target with a dot is outside of this package.
MODULES = {name: OWN + name for name in (
    "crf", "data", "distribute", "estimator", "factorization", "framework", "image", "layers", "learn", "legacy_seq2seq", "lookup", "losses", "metrics", "opt",
    "rnn", "seq2seq", "slim", "summary", "training", "util")}
MODULES.update({
    "cluster_resolver": "tensorflow.compat.v1.distribute.cluster_resolver",
    "ctc": OWN + "aliases.ctc",
    "distributions": "tensorflow.compat.v1.distributions",
    "eager": OWN + "aliases.eager",
    "keras": "tensorflow.compat.v1.keras",
    "learn.datasets": OWN + "aliases.learn.datasets",
    "learn.datasets.mnist": "ferroflow.mnist",
    "saved_model": "tensorflow.compat.v1.saved_model",
    "slim.nets": "tf_slim.nets",
    "staging": OWN + "aliases.staging",
    "tensorboard": OWN + "aliases.tensorboard",
    "tensorboard.plugins": OWN + "aliases.tensorboard.plugins",
    "tensorboard.plugins.projector": "tensorboard.plugins.projector",
})


def install(tensorflow, v1):
    """Sets `tensorflow.contrib`, and makes imports of its submodules work."""
    contrib = Contrib("tensorflow.contrib", __doc__)
    contrib.__path__ = []
    sys.modules["tensorflow.contrib"] = contrib
    tensorflow.contrib = v1.contrib = contrib
    sys.meta_path.insert(0, Finder())
    # Last in the list, so it is asked only if no other finder has the module.
    sys.meta_path.append(Missing())


def no_such(path):
    """Returns the message for a missing name."""
    return f"ferroflow has no tf.contrib.{path}: {READ_ON}"


def missing_from(name):
    """Returns a `__getattr__` for a module of this package."""
    path = name[len(OWN):]

    def __getattr__(attribute):
        raise AttributeError(no_such(f"{path}.{attribute}"))

    return __getattr__


def needs_slim(path):
    """Returns the error for names that need tf_slim if it is not installed."""
    return ImportError(f"tf.contrib.{path} needs tf_slim, which is not installed: run `{sys.executable} -m pip install tf_slim==1.1.0`")


class Contrib(types.ModuleType):
    """`tf.contrib` itself."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in MODULES:
            raise AttributeError(no_such(name))
        return importlib.import_module(PREFIX + name)

    def __dir__(self):
        return sorted(name for name in MODULES if "." not in name)


def find(path):
    """Returns the module for a path below tf.contrib, or None."""
    path = without_sources(path)
    target = "tf_" + path if path.startswith("slim.nets.") else MODULES.get(path)
    if target is None:
        return None
    if target.startswith(OWN + "aliases."):
        return alias(target[len(OWN + "aliases."):])
    if target.startswith("tensorflow.compat.v1."):
        value = sys.modules["tensorflow"]
        for part in target.split(".")[3:]:
            value = getattr(value, part)
        return value
    try:
        return importlib.import_module(target)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "tf_slim":
            raise
        raise needs_slim(path) from None


def without_sources(path):
    """Returns a module's public path for the path of its source: `slim.nets` for `slim.python.slim.nets`."""
    base, has_sources, rest = path.partition(".python")
    parts = rest.split(".")[1:] if has_sources else []
    for index in range(len(parts)):
        public = ".".join([base, *parts[index:]])
        if public in MODULES or public.startswith("slim.nets."):
            return public
    return base


def alias(path):
    """Returns a module of a few names that are defined elsewhere."""
    import tensorflow as tf

    module = types.ModuleType(PREFIX + path)
    module.__path__ = []
    module.__getattr__ = lambda name: lookup(path, name)
    names = {
        "ctc": {"ctc_loss": tf.nn.ctc_loss, "ctc_greedy_decoder": tf.nn.ctc_greedy_decoder,
                "ctc_beam_search_decoder": tf.nn.ctc_beam_search_decoder},
        "eager": {"Iterator": tf.data.Iterator, "in_eager_mode": tf.executing_eagerly, "executing_eagerly": tf.executing_eagerly},
        "staging": {},
    }
    if path == "staging":
        from tensorflow.python.ops import data_flow_ops

        names["staging"] = {"StagingArea": data_flow_ops.StagingArea}
    module.__dict__.update(names.get(path, {}))
    return module


def lookup(path, name):
    if name.startswith("__"):
        raise AttributeError(name)
    if f"{path}.{name}" in MODULES:
        return importlib.import_module(f"{PREFIX}{path}.{name}")
    raise AttributeError(no_such(f"{path}.{name}"))


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules below `tensorflow.contrib`."""

    def find_spec(self, name, path=None, target=None):
        if not name.startswith(PREFIX):
            return None
        module = find(name[len(PREFIX):])
        if module is None:
            raise ImportError(no_such(name[len(PREFIX):].replace(".python", "")), name=name)
        spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
        spec.loader_state = (module, getattr(module, "__spec__", None))
        return spec

    def create_module(self, spec):
        return spec.loader_state[0]

    def exec_module(self, module):
        # The import system has just replaced it with its own.
        state = module.__spec__.loader_state
        module.__spec__ = state[1]
        if not hasattr(module, "__path__"):
            module.__path__ = []


class Missing(importlib.abc.MetaPathFinder):
    """Raises an error that names what tf.contrib lacks, for `from tensorflow.contrib.X import Y`."""

    def find_spec(self, name, path=None, target=None):
        if name.startswith(OWN):
            raise ImportError(no_such(name[len(OWN):]), name=name)
        return None
