"""`tf.contrib.slim`: tf_slim."""

import importlib

import tensorflow as tf

from ferroflow import contrib
from ferroflow.contrib import repairs

repairs.install(tf)

try:
    import tf_slim
except ModuleNotFoundError:
    raise contrib.needs_slim("slim") from None

globals().update({name: value for name, value in vars(tf_slim).items() if not name.startswith("__")})
initializers, optimizers, regularizers, utils = (
    importlib.import_module("tf_slim.layers." + name) for name in ("initializers", "optimizers", "regularizers", "utils"))
for _module in (initializers, regularizers):
    globals().update({name: getattr(_module, name) for name in _module.__all__})
optimize_loss = optimizers.optimize_loss
nets = importlib.import_module("tf_slim.nets")
layers = importlib.import_module("ferroflow.contrib.layers")

__getattr__ = contrib.missing_from(__name__)
