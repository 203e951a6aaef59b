"""Decoders, and the loop that runs them."""

import collections

import tensorflow as tf


class Decoder:
    """The interface that `dynamic_decode` runs step by step."""

    batch_size = output_size = output_dtype = None

    def initialize(self, name=None):
        """Returns which sequences are finished, the first inputs and the first state."""
        raise NotImplementedError

    def step(self, time, inputs, state, name=None):
        """Returns the outputs, the next state, the next inputs and which sequences are finished."""
        raise NotImplementedError

    def finalize(self, outputs, final_state, sequence_lengths):
        raise NotImplementedError

    @property
    def tracks_own_finished(self):
        """Whether a finished sequence may still change, as beams do when they are reordered."""
        return False


def dynamic_decode(decoder, output_time_major=False, impute_finished=False, maximum_iterations=None, parallel_iterations=32,
                   swap_memory=False, scope=None):
    """Runs a decoder until every sequence is finished; returns the outputs, the last state and the lengths."""
    if not isinstance(decoder, Decoder):
        raise TypeError(f"Expected decoder to be type Decoder, but saw: {type(decoder)}")
    with tf.variable_scope(scope, "decoder") as found:
        # A loop must not read a variable of another task in every iteration.
        if found.caching_device is None:
            found.set_caching_device(lambda op: op.device)
        if maximum_iterations is not None:
            maximum_iterations = tf.convert_to_tensor(maximum_iterations, tf.int32, name="maximum_iterations")
            if maximum_iterations.shape.ndims != 0:
                raise ValueError("maximum_iterations must be a scalar")
        first_finished, first_inputs, first_state = decoder.initialize()
        zeros = tf.nest.map_structure(
            lambda size, dtype: _zeros(decoder.batch_size, size, dtype), decoder.output_size, decoder.output_dtype)
        if maximum_iterations is not None:
            first_finished = tf.logical_or(first_finished, 0 >= maximum_iterations)
        arrays = tf.nest.map_structure(
            lambda size, dtype: tf.TensorArray(dtype, size=0, dynamic_size=True, clear_after_read=True,
                                               element_shape=tf.TensorShape([_static(decoder.batch_size)]).concatenate(size)),
            decoder.output_size, decoder.output_dtype)

        def condition(time, arrays, state, inputs, finished, lengths):
            return tf.logical_not(tf.reduce_all(finished))

        def body(time, arrays, state, inputs, finished, lengths):
            outputs, next_state, next_inputs, now_finished = decoder.step(time, inputs, state)
            next_finished = now_finished if decoder.tracks_own_finished else tf.logical_or(now_finished, finished)
            if maximum_iterations is not None:
                next_finished = tf.logical_or(next_finished, time + 1 >= maximum_iterations)
            next_lengths = tf.where(tf.logical_not(finished), tf.fill(tf.shape(lengths), time + 1), lengths)
            tf.nest.assert_same_structure(state, next_state)
            if impute_finished:
                outputs = tf.nest.map_structure(lambda out, zero: tf.where(finished, zero, out), outputs, zeros)
                next_state = tf.nest.map_structure(lambda new, old: _unless(finished, new, old), next_state, state)
            arrays = tf.nest.map_structure(lambda array, out: array.write(time, out), arrays, outputs)
            return time + 1, arrays, next_state, next_inputs, next_finished, next_lengths

        _, arrays, state, _, _, lengths = tf.while_loop(
            condition, body,
            [tf.constant(0), arrays, first_state, first_inputs, first_finished, tf.zeros_like(first_finished, dtype=tf.int32)],
            parallel_iterations=parallel_iterations, swap_memory=swap_memory)
        outputs = tf.nest.map_structure(lambda array: array.stack(), arrays)
        try:
            outputs, state = decoder.finalize(outputs, state, lengths)
        except NotImplementedError:
            pass
        if not output_time_major:
            outputs = tf.nest.map_structure(_swap_batch_and_time, outputs)
        return outputs, state, lengths


def _unless(finished, new, old):
    # A tensor array, or a scalar such as attention's time, belongs to all sequences.
    if isinstance(old, tf.TensorArray) or old.shape.ndims == 0:
        return new
    new.set_shape(old.shape)
    return tf.where(finished, old, new)


def _zeros(batch_size, size, dtype):
    shape = size.as_list() if isinstance(size, tf.TensorShape) else size
    shape = tf.convert_to_tensor([] if shape == [] else shape, tf.int32)
    return tf.zeros(tf.concat([[batch_size], tf.reshape(shape, [-1])], 0), dtype)


def _static(value):
    return tf.get_static_value(value) if isinstance(value, tf.Tensor) else value


def _swap_batch_and_time(tensor):
    if tensor.shape.ndims is not None and tensor.shape.ndims < 2:
        return tensor
    rank = tf.rank(tensor)
    swapped = tf.transpose(tensor, tf.concat([[1, 0], tf.range(2, rank)], 0))
    if tensor.shape.ndims is not None:
        swapped.set_shape([tensor.shape[1], tensor.shape[0], *tensor.shape[2:]])
    return swapped


class BasicDecoderOutput(collections.namedtuple("BasicDecoderOutput", ("rnn_output", "sample_id"))):
    """A step's output, and its sample."""


class BasicDecoder(Decoder):
    """Runs a cell on a helper's inputs."""

    def __init__(self, cell, helper, initial_state, output_layer=None):
        self._cell, self._helper, self._initial_state, self._output_layer = cell, helper, initial_state, output_layer

    @property
    def batch_size(self):
        return self._helper.batch_size

    def _rnn_output_size(self):
        size = self._cell.output_size
        if self._output_layer is None:
            return size
        with_batch = tf.nest.map_structure(lambda one: tf.TensorShape([None]).concatenate(one), size)
        return tf.nest.map_structure(lambda shape: shape[1:], self._output_layer.compute_output_shape(with_batch))

    @property
    def output_size(self):
        return BasicDecoderOutput(self._rnn_output_size(), self._helper.sample_ids_shape)

    @property
    def output_dtype(self):
        dtype = tf.nest.flatten(self._initial_state)[0].dtype
        return BasicDecoderOutput(tf.nest.map_structure(lambda _: dtype, self._rnn_output_size()), self._helper.sample_ids_dtype)

    def initialize(self, name=None):
        return self._helper.initialize() + (self._initial_state,)

    def step(self, time, inputs, state, name=None):
        with tf.name_scope(name, "BasicDecoderStep"):
            cell_outputs, cell_state = self._cell(inputs, state)
            if self._output_layer is not None:
                cell_outputs = self._output_layer(cell_outputs)
            sample_ids = self._helper.sample(time=time, outputs=cell_outputs, state=cell_state)
            finished, next_inputs, next_state = self._helper.next_inputs(
                time=time, outputs=cell_outputs, state=cell_state, sample_ids=sample_ids)
        return BasicDecoderOutput(cell_outputs, sample_ids), next_state, next_inputs, finished
