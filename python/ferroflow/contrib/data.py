"""`tf.contrib.data`: the names that moved to `tf.data` and `tf.data.experimental`, and the few that were removed."""

import tensorflow as tf

from ferroflow import contrib

Dataset = tf.data.Dataset
Iterator = tf.data.Iterator
TFRecordDataset = tf.data.TFRecordDataset
TextLineDataset = tf.data.TextLineDataset
FixedLengthRecordDataset = tf.data.FixedLengthRecordDataset
AUTOTUNE = tf.data.experimental.AUTOTUNE

for _name in dir(tf.data.experimental):
    if not _name.startswith("_"):
        globals()[_name] = getattr(tf.data.experimental, _name)



def batch_and_drop_remainder(batch_size):
    """Returns a function for `Dataset.apply`."""
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def padded_batch_and_drop_remainder(batch_size, padded_shapes, padding_values=None):
    """Returns a function for `Dataset.apply`."""
    return lambda dataset: dataset.padded_batch(batch_size, padded_shapes, padding_values, drop_remainder=True)


def sloppy_interleave(map_func, cycle_length, block_length=1):
    """Returns a function for `Dataset.apply`."""
    return tf.data.experimental.parallel_interleave(map_func, cycle_length, block_length, sloppy=True)


def assert_element_shape(expected_shapes):
    """Returns a function for `Dataset.apply` that sets each component's shape, and fails if it has another one."""
    def ensure(*components):
        found = components[0] if len(components) == 1 else components
        return tf.nest.map_structure(
            lambda shape, tensor: tf.ensure_shape(tensor, shape), expected_shapes, found,
            check_types=False) if isinstance(expected_shapes, (tuple, dict)) else tf.ensure_shape(found, expected_shapes)

    return lambda dataset: dataset.map(ensure)


def reduce_dataset(dataset, reducer):
    """Returns the result of a reducer over all elements."""
    state = dataset.reduce(reducer.init_func(tf.constant(0, tf.int64)), reducer.reduce_func)
    return reducer.finalize_func(state)


def read_batch_features(file_pattern, batch_size, features, reader=None, reader_args=None, randomize_input=True, num_epochs=None,
                        capacity=10000):
    """Returns the parsed features of a batch."""
    dataset = tf.data.experimental.make_batched_features_dataset(
        file_pattern, batch_size, features, reader=reader, reader_args=reader_args, shuffle=randomize_input,
        shuffle_buffer_size=capacity, num_epochs=num_epochs)
    return tf.data.make_one_shot_iterator(dataset).get_next()


__getattr__ = contrib.missing_from(__name__)
