"""`tf.contrib.layers`: tf_slim's layers, feature columns and embeddings.

Without tf_slim, the few layers that need only `tf.layers` are still available.
"""

import importlib

import tensorflow as tf

from ferroflow import contrib
from ferroflow.contrib import repairs

repairs.install(tf)

try:
    import tf_slim as _slim
except ModuleNotFoundError:
    _slim = None

if _slim is not None:
    layers, initializers, optimizers, regularizers, summaries, rev_block_lib, utils, normalization = (
        importlib.import_module("tf_slim.layers." + name) for name in
        ("layers", "initializers", "optimizers", "regularizers", "summaries", "rev_block_lib", "utils", "normalization"))
    for _module in (layers, initializers, regularizers, summaries, rev_block_lib):
        globals().update({name: getattr(_module, name) for name in _module.__all__})
    bucketize = importlib.import_module("tf_slim.layers.bucketization_op").bucketize
    group_norm, instance_norm = normalization.group_norm, normalization.instance_norm
    optimize_loss, OPTIMIZER_CLS_NAMES = optimizers.optimize_loss, optimizers.OPTIMIZER_CLS_NAMES
    OPTIMIZER_SUMMARIES, adaptive_clipping_fn = optimizers.OPTIMIZER_SUMMARIES, optimizers.adaptive_clipping_fn
else:
    def xavier_initializer(uniform=True, seed=None, dtype=tf.float32):
        return (tf.glorot_uniform_initializer if uniform else tf.glorot_normal_initializer)(seed=seed, dtype=dtype)

    xavier_initializer_conv2d = xavier_initializer

    def variance_scaling_initializer(factor=2.0, mode="FAN_IN", uniform=False, seed=None, dtype=tf.float32):
        return tf.variance_scaling_initializer(
            scale=factor, mode=mode.lower(), distribution="uniform" if uniform else "truncated_normal", seed=seed, dtype=dtype)

    def l2_regularizer(scale, scope=None):
        return lambda weights: tf.multiply(float(scale), tf.nn.l2_loss(weights), name=scope or "l2_regularizer")

    def l1_regularizer(scale, scope=None):
        return lambda weights: tf.multiply(float(scale), tf.reduce_sum(tf.abs(weights)), name=scope or "l1_regularizer")

    def flatten(inputs, outputs_collections=None, scope=None):
        return tf.layers.flatten(inputs, name=scope)

    def fully_connected(inputs, num_outputs, activation_fn=tf.nn.relu, weights_initializer=None, biases_initializer=None,
                        weights_regularizer=None, trainable=True, scope=None, reuse=None):
        return tf.layers.dense(
            inputs, num_outputs, activation=activation_fn,
            kernel_initializer=weights_initializer or tf.glorot_uniform_initializer(),
            bias_initializer=biases_initializer or tf.zeros_initializer(), kernel_regularizer=weights_regularizer,
            trainable=trainable, name=scope, reuse=reuse)


def embed_sequence(ids, vocab_size=None, embed_dim=None, unique=False, initializer=None, regularizer=None, trainable=True,
                   scope=None, reuse=None):
    """Returns the embeddings of ids, from a variable `embeddings` in a scope `EmbedSequence`."""
    if not (reuse or (vocab_size and embed_dim)):
        raise ValueError(f"Must specify vocab size and embedding dimension when not reusing. Got vocab_size={vocab_size} "
                         f"and embed_dim={embed_dim}")
    with tf.variable_scope(scope, "EmbedSequence", [ids], reuse=reuse):
        shape = [vocab_size, embed_dim] if vocab_size and embed_dim else None
        table = tf.get_variable("embeddings", shape=shape, initializer=initializer, regularizer=regularizer, trainable=trainable)
        return embedding_lookup_unique(table, ids) if unique else tf.nn.embedding_lookup(table, ids)


def bow_encoder(ids, vocab_size, embed_dim, sparse_lookup=True, initializer=None, regularizer=None, trainable=True, scope=None,
                reuse=None):
    """Returns the mean of the embeddings of each row of ids."""
    with tf.variable_scope(scope, "bow_encoder", [ids], reuse=reuse):
        table = tf.get_variable("embeddings", shape=[vocab_size, embed_dim], initializer=initializer, regularizer=regularizer,
                                trainable=trainable)
        if sparse_lookup:
            sparse = ids if isinstance(ids, tf.SparseTensor) else tf.sparse.from_dense(ids)
            return tf.nn.embedding_lookup_sparse(table, sparse, sp_weights=None, combiner="mean")
        return tf.reduce_mean(tf.nn.embedding_lookup(table, ids), axis=1)


def embedding_lookup_unique(params, ids, partition_strategy="mod", name=None):
    """Like `tf.nn.embedding_lookup`, which gathers each id once."""
    with tf.name_scope(name, "EmbeddingLookupUnique", [params, ids]):
        ids = tf.convert_to_tensor(ids)
        unique, indices = tf.unique(tf.reshape(ids, [-1]))
        rows = tf.gather(tf.nn.embedding_lookup(params, unique, partition_strategy=partition_strategy), indices)
        found = tf.reshape(rows, tf.concat([tf.shape(ids), tf.shape(rows)[1:]], 0))
        found.set_shape(ids.shape.concatenate(rows.shape[1:]))
        return found


safe_embedding_lookup_sparse = tf.nn.safe_embedding_lookup_sparse


# Feature columns under their old names.
def real_valued_column(column_name, dimension=1, default_value=None, dtype=tf.float32, normalizer=None):
    return tf.feature_column.numeric_column(column_name, (dimension,), default_value, dtype, normalizer)


def sparse_column_with_hash_bucket(column_name, hash_bucket_size, combiner="sum", dtype=tf.string, hash_keys=None):
    return tf.feature_column.categorical_column_with_hash_bucket(column_name, hash_bucket_size, dtype)


def sparse_column_with_keys(column_name, keys, default_value=-1, combiner="sum", dtype=tf.string):
    return tf.feature_column.categorical_column_with_vocabulary_list(column_name, keys, dtype, default_value)


def sparse_column_with_integerized_feature(column_name, bucket_size, combiner="sum", dtype=tf.int64):
    return tf.feature_column.categorical_column_with_identity(column_name, bucket_size)


def bucketized_column(source_column, boundaries):
    return tf.feature_column.bucketized_column(source_column, list(boundaries))


def crossed_column(columns, hash_bucket_size, combiner="sum", ckpt_to_load_from=None, tensor_name_in_ckpt=None, hash_key=None):
    keys = [getattr(column, "key", column) if not hasattr(column, "boundaries") else column for column in columns]
    return tf.feature_column.crossed_column(keys, hash_bucket_size, hash_key)


def embedding_column(sparse_id_column, dimension, combiner="mean", initializer=None, ckpt_to_load_from=None,
                     tensor_name_in_ckpt=None, max_norm=None, trainable=True):
    return tf.feature_column.embedding_column(sparse_id_column, dimension, combiner, initializer, ckpt_to_load_from,
                                              tensor_name_in_ckpt, max_norm, trainable)


def one_hot_column(sparse_id_column):
    return tf.feature_column.indicator_column(sparse_id_column)


def input_from_feature_columns(columns_to_tensors, feature_columns, weight_collections=None, trainable=True, scope=None):
    with tf.variable_scope(scope, "input_from_feature_columns"):
        return tf.feature_column.input_layer(columns_to_tensors, list(feature_columns), weight_collections, trainable)


def create_feature_spec_for_parsing(feature_columns):
    return tf.feature_column.make_parse_example_spec(list(feature_columns))


# What `from tensorflow.contrib.layers.python.layers import feature_column` expects.
from ferroflow.contrib import layers as feature_column


def __getattr__(name):
    if _slim is None and not name.startswith("__"):
        raise AttributeError(str(contrib.needs_slim("layers." + name)))
    raise AttributeError(contrib.no_such("layers." + name))
