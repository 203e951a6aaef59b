"""`tf.contrib.lookup`: tables."""

import tensorflow as tf
from tensorflow.python.ops.lookup_ops import (
    HashTable, IdTableWithHashBuckets, KeyValueTensorInitializer, MutableDenseHashTable, MutableHashTable, TextFileIdTableInitializer,
    TextFileIndex, TextFileInitializer, TextFileStringTableInitializer, index_table_from_file, index_table_from_tensor,
    index_to_string_table_from_file, index_to_string_table_from_tensor)

from ferroflow import contrib


def string_to_index_table_from_file(vocabulary_file=None, num_oov_buckets=0, vocab_size=None, default_value=-1, hasher_spec=None,
                                    name=None):
    """`index_table_from_file` under its old name."""
    return index_table_from_file(vocabulary_file, num_oov_buckets, vocab_size, default_value, name=name)


def string_to_index_table_from_tensor(mapping, num_oov_buckets=0, default_value=-1, hasher_spec=None, name=None):
    """`index_table_from_tensor` under its old name."""
    return index_table_from_tensor(mapping, num_oov_buckets, default_value, name=name)


def string_to_index(tensor, mapping, default_value=-1, name=None):
    return index_table_from_tensor(mapping, default_value=default_value, name=name).lookup(tensor)


def index_to_string(tensor, mapping, default_value="UNK", name=None):
    return index_to_string_table_from_tensor(mapping, default_value, name).lookup(tensor)


__getattr__ = contrib.missing_from(__name__)
