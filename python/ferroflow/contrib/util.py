"""`tf.contrib.util`."""

import tensorflow as tf
from tensorflow.python.framework.tensor_util import constant_value

from ferroflow import contrib

make_tensor_proto, make_ndarray = tf.make_tensor_proto, tf.make_ndarray

__getattr__ = contrib.missing_from(__name__)
