"""`tf.contrib.losses`: tf_slim's, whose first argument is the predictions."""

import importlib

import tensorflow as tf

from ferroflow import contrib
from ferroflow.contrib import repairs

repairs.install(tf)

try:
    _losses = importlib.import_module("tf_slim.losses")
except ModuleNotFoundError:
    raise contrib.needs_slim("losses") from None

globals().update({name: value for name, value in vars(_losses).items() if not name.startswith("__")})
metric_learning = importlib.import_module("tf_slim.losses.metric_learning")

__getattr__ = contrib.missing_from(__name__)
