"""`tf.contrib.factorization`: k-means, with the ops and the Estimator that TensorFlow still has under other names."""

import tensorflow as tf
from tensorflow.python.ops import clustering_ops

from ferroflow import contrib

COSINE_DISTANCE = clustering_ops.COSINE_DISTANCE
KMEANS_PLUS_PLUS_INIT = clustering_ops.KMEANS_PLUS_PLUS_INIT
RANDOM_INIT = clustering_ops.RANDOM_INIT
SQUARED_EUCLIDEAN_DISTANCE = clustering_ops.SQUARED_EUCLIDEAN_DISTANCE
KMeans = clustering_ops.KMeans
KMeansClustering = tf.estimator.experimental.KMeans

__getattr__ = contrib.missing_from(__name__)
