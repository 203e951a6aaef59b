"""Helpers: they provide a decoder's inputs, and sample its outputs."""

import tensorflow as tf


class Helper:
    """Provides a decoder's next inputs."""

    batch_size = None
    sample_ids_shape = tf.TensorShape([])
    sample_ids_dtype = tf.int32

    def initialize(self, name=None):
        """Returns which sequences are finished, and the first inputs."""
        raise NotImplementedError

    def sample(self, time, outputs, state, name=None):
        raise NotImplementedError

    def next_inputs(self, time, outputs, state, sample_ids, name=None):
        """Returns which sequences are finished, the next inputs and the next state."""
        raise NotImplementedError


class CustomHelper(Helper):
    """A helper built from three functions."""

    def __init__(self, initialize_fn, sample_fn, next_inputs_fn, sample_ids_shape=None, sample_ids_dtype=None):
        self._initialize_fn, self._sample_fn, self._next_inputs_fn = initialize_fn, sample_fn, next_inputs_fn
        self._batch_size = None
        self.sample_ids_shape = tf.TensorShape(sample_ids_shape or [])
        self.sample_ids_dtype = sample_ids_dtype or tf.int32

    @property
    def batch_size(self):
        if self._batch_size is None:
            raise ValueError("batch_size accessed before initialize was called")
        return self._batch_size

    def initialize(self, name=None):
        finished, next_inputs = self._initialize_fn()
        if self._batch_size is None:
            self._batch_size = tf.size(finished)
        return finished, next_inputs

    def sample(self, time, outputs, state, name=None):
        return self._sample_fn(time=time, outputs=outputs, state=state)

    def next_inputs(self, time, outputs, state, sample_ids, name=None):
        return self._next_inputs_fn(time=time, outputs=outputs, state=state, sample_ids=sample_ids)


class TrainingHelper(Helper):
    """Feeds given sequences."""

    def __init__(self, inputs, sequence_length, time_major=False, name=None):
        with tf.name_scope(name, "TrainingHelper"):
            inputs = tf.nest.map_structure(tf.convert_to_tensor, inputs)
            self._inputs = inputs
            by_time = inputs if time_major else tf.nest.map_structure(
                lambda one: tf.transpose(one, [1, 0, *range(2, one.shape.ndims)]), inputs)

            def array(tensor):
                made = tf.TensorArray(tensor.dtype, size=tf.shape(tensor)[0], element_shape=tensor.shape[1:])
                return made.unstack(tensor)

            self._arrays = tf.nest.map_structure(array, by_time)
            self._sequence_length = tf.convert_to_tensor(sequence_length, name="sequence_length")
            if self._sequence_length.shape.ndims != 1:
                raise ValueError(f"Expected sequence_length to be a vector, but received shape: {self._sequence_length.shape}")
            self._zero_inputs = tf.nest.map_structure(lambda one: tf.zeros_like(one[0]), by_time)
            self._batch_size = tf.size(self._sequence_length)

    @property
    def inputs(self):
        return self._inputs

    @property
    def sequence_length(self):
        return self._sequence_length

    @property
    def batch_size(self):
        return self._batch_size

    def _read(self, time, finished):
        return tf.cond(tf.reduce_all(finished), lambda: self._zero_inputs,
                       lambda: tf.nest.map_structure(lambda array: array.read(time), self._arrays))

    def initialize(self, name=None):
        finished = tf.equal(0, self._sequence_length)
        return finished, self._read(0, finished)

    def sample(self, time, outputs, state=None, name=None):
        return tf.cast(tf.argmax(outputs, axis=-1), tf.int32)

    def next_inputs(self, time, outputs, state, sample_ids=None, name=None):
        finished = time + 1 >= tf.cast(self._sequence_length, tf.int32)
        return finished, self._read(time + 1, finished), state


class ScheduledEmbeddingTrainingHelper(TrainingHelper):
    """Feeds given sequences, and with some probability the embedding of the sample instead."""

    def __init__(self, inputs, sequence_length, embedding, sampling_probability, time_major=False, seed=None, scheduling_seed=None,
                 name=None):
        self._embedding_fn = _embedding_function(embedding)
        self._probability = tf.convert_to_tensor(sampling_probability, name="sampling_probability")
        self._seed, self._scheduling_seed = seed, scheduling_seed
        super().__init__(inputs, sequence_length, time_major, name)

    def sample(self, time, outputs, state, name=None):
        chosen = tf.random_uniform([self.batch_size], seed=self._scheduling_seed) < self._probability
        sampled = tf.multinomial(outputs, 1, seed=self._seed, output_dtype=tf.int32)[:, 0]
        return tf.where(chosen, sampled, tf.fill([self.batch_size], -1))

    def next_inputs(self, time, outputs, state, sample_ids, name=None):
        finished, given, state = super().next_inputs(time, outputs, state, sample_ids)
        # An id of -1 has no embedding; its lookup is not used.
        sampled = self._embedding_fn(tf.maximum(sample_ids, 0))
        mixed = tf.where(sample_ids > -1, sampled, given)
        return finished, tf.cond(tf.reduce_all(finished), lambda: given, lambda: mixed), state


class ScheduledOutputTrainingHelper(TrainingHelper):
    """Feeds given sequences, and with some probability the last output instead."""

    def __init__(self, inputs, sequence_length, sampling_probability, time_major=False, seed=None, next_inputs_fn=None,
                 auxiliary_inputs=None, name=None):
        if auxiliary_inputs is not None:
            raise ValueError("ferroflow's ScheduledOutputTrainingHelper takes no auxiliary inputs")
        self._probability = tf.convert_to_tensor(sampling_probability, name="sampling_probability")
        self._seed = seed
        self._next_inputs_fn = next_inputs_fn or (lambda outputs: outputs)
        super().__init__(inputs, sequence_length, time_major, name)

    sample_ids_dtype = tf.int32

    def sample(self, time, outputs, state, name=None):
        return tf.cast(tf.random_uniform([self.batch_size], seed=self._seed) < self._probability, tf.int32)

    def next_inputs(self, time, outputs, state, sample_ids, name=None):
        finished, given, state = super().next_inputs(time, outputs, state, sample_ids)
        mixed = tf.where(tf.cast(sample_ids, tf.bool), self._next_inputs_fn(outputs), given)
        return finished, tf.cond(tf.reduce_all(finished), lambda: given, lambda: mixed), state


class GreedyEmbeddingHelper(Helper):
    """Feeds the embedding of the best output, until that is the end token."""

    def __init__(self, embedding, start_tokens, end_token):
        self._embedding_fn = _embedding_function(embedding)
        self._start_tokens = tf.convert_to_tensor(start_tokens, tf.int32, name="start_tokens")
        self._end_token = tf.convert_to_tensor(end_token, tf.int32, name="end_token")
        if self._start_tokens.shape.ndims != 1:
            raise ValueError("start_tokens must be a vector")
        if self._end_token.shape.ndims != 0:
            raise ValueError("end_token must be a scalar")
        self._batch_size = tf.size(self._start_tokens)
        self._start_inputs = self._embedding_fn(self._start_tokens)

    @property
    def batch_size(self):
        return self._batch_size

    def initialize(self, name=None):
        return tf.tile([False], [self._batch_size]), self._start_inputs

    def sample(self, time, outputs, state, name=None):
        if not isinstance(outputs, tf.Tensor):
            raise TypeError(f"Expected outputs to be a single Tensor, got: {type(outputs)}")
        return tf.argmax(outputs, axis=-1, output_type=tf.int32)

    def next_inputs(self, time, outputs, state, sample_ids, name=None):
        finished = tf.equal(sample_ids, self._end_token)
        following = tf.cond(tf.reduce_all(finished), lambda: self._start_inputs, lambda: self._embedding_fn(sample_ids))
        return finished, following, state


class SampleEmbeddingHelper(GreedyEmbeddingHelper):
    """Feeds the embedding of an output drawn by its probability."""

    def __init__(self, embedding, start_tokens, end_token, softmax_temperature=None, seed=None):
        super().__init__(embedding, start_tokens, end_token)
        self._temperature, self._seed = softmax_temperature, seed

    def sample(self, time, outputs, state, name=None):
        logits = outputs if self._temperature is None else outputs / self._temperature
        return tf.multinomial(logits, 1, seed=self._seed, output_dtype=tf.int32)[:, 0]


class InferenceHelper(Helper):
    """Feeds the samples of one function, until another function signals the end."""

    def __init__(self, sample_fn, sample_shape, sample_dtype, start_inputs, end_fn, next_inputs_fn=None):
        self._sample_fn, self._end_fn, self._next_inputs_fn = sample_fn, end_fn, next_inputs_fn
        self.sample_ids_shape, self.sample_ids_dtype = tf.TensorShape(sample_shape), sample_dtype
        self._start_inputs = tf.convert_to_tensor(start_inputs, name="start_inputs")
        self._batch_size = tf.shape(start_inputs)[0]

    @property
    def batch_size(self):
        return self._batch_size

    def initialize(self, name=None):
        return tf.tile([False], [self._batch_size]), self._start_inputs

    def sample(self, time, outputs, state, name=None):
        return self._sample_fn(outputs)

    def next_inputs(self, time, outputs, state, sample_ids, name=None):
        following = sample_ids if self._next_inputs_fn is None else self._next_inputs_fn(sample_ids)
        return self._end_fn(sample_ids), following, state


def _embedding_function(embedding):
    return embedding if callable(embedding) else lambda ids: tf.nn.embedding_lookup(embedding, ids)
