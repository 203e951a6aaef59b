"""Attention: a decoder's view of an encoder's outputs."""

import collections
import math

import tensorflow as tf


class AttentionMechanism:
    """Scores a memory by a query."""

    alignments_size = state_size = None


class _Attention(AttentionMechanism):
    """A memory with its keys, and the softmax of scores."""

    def __init__(self, query_layer, memory, probability_fn, memory_sequence_length, memory_layer, score_mask_value,
                 check_inner_dims_defined=True, name=None):
        memory = tf.convert_to_tensor(memory, name="memory")
        if check_inner_dims_defined and not memory.shape[2:].is_fully_defined():
            raise ValueError(f"Expected memory {memory.name} to have fully defined inner dims, but saw shape: {memory.shape}")
        self._mask = None
        if memory_sequence_length is not None:
            lengths = tf.convert_to_tensor(memory_sequence_length, name="memory_sequence_length")
            self._mask = tf.sequence_mask(lengths, tf.shape(memory)[1])
            memory *= tf.reshape(
                tf.cast(self._mask, memory.dtype),
                tf.concat([tf.shape(self._mask), tf.ones([tf.rank(memory) - 2], tf.int32)], 0))
        self._score_mask_value = memory.dtype.as_numpy_dtype(-math.inf) if score_mask_value is None else score_mask_value
        self.query_layer, self.memory_layer = query_layer, memory_layer
        self._probability_fn = probability_fn or tf.nn.softmax
        self._values = memory
        self._keys = memory_layer(memory) if memory_layer is not None else memory
        self._batch_size = tf.shape(self._keys)[0]
        self._alignments_size = self._keys.shape[1].value if hasattr(self._keys.shape[1], "value") else self._keys.shape[1]
        if self._alignments_size is None:
            self._alignments_size = tf.shape(self._keys)[1]

    values = property(lambda self: self._values)
    keys = property(lambda self: self._keys)
    batch_size = property(lambda self: self._batch_size)
    alignments_size = property(lambda self: self._alignments_size)
    state_size = property(lambda self: self._alignments_size)

    def initial_alignments(self, batch_size, dtype):
        return tf.zeros(tf.stack([batch_size, self._alignments_size]), dtype)

    def initial_state(self, batch_size, dtype):
        return self.initial_alignments(batch_size, dtype)

    def _probabilities(self, score):
        if self._mask is not None:
            score = tf.where(self._mask, score, self._score_mask_value * tf.ones_like(score))
        return self._probability_fn(score)


class LuongAttention(_Attention):
    """Scores by a product of query and keys."""

    def __init__(self, num_units, memory, memory_sequence_length=None, scale=False, probability_fn=None, score_mask_value=None,
                 dtype=None, custom_key_value_fn=None, name="LuongAttention"):
        layer = tf.layers.Dense(num_units, name="memory_layer", use_bias=False, dtype=dtype or tf.float32)
        super().__init__(None, memory, probability_fn, memory_sequence_length, layer, score_mask_value)
        self._num_units, self._scale, self._name = num_units, scale, name

    def __call__(self, query, state):
        with tf.variable_scope(None, "luong_attention", [query]):
            depth, units = query.shape[-1], self._keys.shape[-1]
            if depth != units:
                raise ValueError(f"Incompatible or unknown inner dimensions between query and keys. Query ({query}) has units: "
                                 f"{depth}. Keys ({self._keys}) have units: {units}.")
            score = tf.squeeze(tf.matmul(query[:, None], self._keys, transpose_b=True), [1])
            if self._scale:
                score *= tf.get_variable("attention_g", dtype=query.dtype, initializer=tf.ones_initializer(), shape=())
        alignments = self._probabilities(score)
        return alignments, alignments


class BahdanauAttention(_Attention):
    """Scores by a sum of query and keys, through a tanh."""

    def __init__(self, num_units, memory, memory_sequence_length=None, normalize=False, probability_fn=None, score_mask_value=None,
                 dtype=None, custom_key_value_fn=None, name="BahdanauAttention"):
        dtype = dtype or tf.float32
        query_layer = tf.layers.Dense(num_units, name="query_layer", use_bias=False, dtype=dtype)
        memory_layer = tf.layers.Dense(num_units, name="memory_layer", use_bias=False, dtype=dtype)
        super().__init__(query_layer, memory, probability_fn, memory_sequence_length, memory_layer, score_mask_value)
        self._num_units, self._normalize, self._name = num_units, normalize, name

    def __call__(self, query, state):
        with tf.variable_scope(None, "bahdanau_attention", [query]):
            query = self.query_layer(query)[:, None]
            vector = tf.get_variable("attention_v", [self._num_units], query.dtype)
            if self._normalize:
                gain = tf.get_variable("attention_g", dtype=query.dtype, shape=(),
                                       initializer=tf.constant_initializer(math.sqrt(1.0 / self._num_units)))
                bias = tf.get_variable("attention_b", [self._num_units], query.dtype, tf.zeros_initializer())
                vector = gain * vector * tf.rsqrt(tf.reduce_sum(tf.square(vector)))
                score = tf.reduce_sum(vector * tf.tanh(self._keys + query + bias), [2])
            else:
                score = tf.reduce_sum(vector * tf.tanh(self._keys + query), [2])
        alignments = self._probabilities(score)
        return alignments, alignments


def hardmax(logits, name=None):
    """Returns a one at each row's maximum, and zeros elsewhere."""
    with tf.name_scope(name, "Hardmax", [logits]):
        depth = logits.shape[-1] if logits.shape[-1] is not None else tf.shape(logits)[-1]
        return tf.one_hot(tf.argmax(logits, -1), depth, dtype=logits.dtype)


def safe_cumprod(x, *args, **kwargs):
    """Returns the cumulative product of numbers from 0 to 1, whose gradient is finite even at zero."""
    tiny = x.dtype.as_numpy_dtype(1e-30)
    return tf.exp(tf.cumsum(tf.log(tf.clip_by_value(x, tiny, 1)), *args, **kwargs))


class AttentionWrapperState(collections.namedtuple("AttentionWrapperState", (
        "cell_state", "attention", "time", "alignments", "alignment_history", "attention_state"))):
    """The state of a cell with attention."""

    def clone(self, **kwargs):
        """Returns this state with some parts replaced."""
        def with_shape(old, new):
            if isinstance(old, tf.Tensor) and isinstance(new, tf.Tensor) and new.shape.ndims is not None:
                new.set_shape(old.shape)
            return new

        replaced = self._replace(**kwargs)
        return tf.nest.map_structure(with_shape, self, replaced)


class AttentionWrapper(tf.nn.rnn_cell.RNNCell):
    """A cell whose inputs include the attention over one or several memories, and which outputs it."""

    def __init__(self, cell, attention_mechanism, attention_layer_size=None, alignment_history=False, cell_input_fn=None,
                 output_attention=True, initial_cell_state=None, name=None, attention_layer=None, attention_fn=None, dtype=None):
        super().__init__(name=name)
        self._is_multi = isinstance(attention_mechanism, (list, tuple))
        self._mechanisms = tuple(attention_mechanism) if self._is_multi else (attention_mechanism,)
        for mechanism in self._mechanisms:
            if not isinstance(mechanism, AttentionMechanism):
                raise TypeError(f"attention_mechanism must be an AttentionMechanism or list of them, saw {type(mechanism).__name__}")
        if attention_layer_size is not None and attention_layer is not None:
            raise ValueError("Only one of attention_layer_size and attention_layer should be set")
        count = len(self._mechanisms)
        if attention_layer_size is not None:
            sizes = tuple(attention_layer_size) if isinstance(attention_layer_size, (list, tuple)) else (attention_layer_size,)
            if len(sizes) != count:
                raise ValueError("If provided, attention_layer_size must contain exactly one integer per attention_mechanism, saw: "
                                 f"{len(sizes)} vs {count}")
            self._layers = tuple(tf.layers.Dense(size, name="attention_layer", use_bias=False,
                                                 dtype=mechanism.keys.dtype) for size, mechanism in zip(sizes, self._mechanisms))
            self._attention_size = sum(sizes)
        elif attention_layer is not None:
            self._layers = tuple(attention_layer) if isinstance(attention_layer, (list, tuple)) else (attention_layer,)
            shapes = [layer.compute_output_shape([None, cell.output_size + mechanism.values.shape.as_list()[-1]])[-1]
                      for layer, mechanism in zip(self._layers, self._mechanisms)]
            self._attention_size = sum(int(size) for size in shapes)
        else:
            self._layers = None
            self._attention_size = sum(mechanism.values.shape.as_list()[-1] for mechanism in self._mechanisms)
        self._cell = cell
        self._cell_input_fn = cell_input_fn or (lambda inputs, attention: tf.concat([inputs, attention], -1))
        self._attention_fn = attention_fn or _compute_attention
        self._output_attention = output_attention
        self._has_history = alignment_history
        self._initial_cell_state = initial_cell_state

    def _one_or_all(self, values):
        values = tuple(values)
        return values if self._is_multi else values[0]

    @property
    def output_size(self):
        return self._attention_size if self._output_attention else self._cell.output_size

    @property
    def state_size(self):
        sizes = self._one_or_all(mechanism.alignments_size for mechanism in self._mechanisms)
        return AttentionWrapperState(
            cell_state=self._cell.state_size, time=tf.TensorShape([]), attention=self._attention_size, alignments=sizes,
            attention_state=self._one_or_all(mechanism.state_size for mechanism in self._mechanisms),
            alignment_history=self._one_or_all(sizes if self._has_history and not self._is_multi else () for _ in self._mechanisms))

    def zero_state(self, batch_size, dtype):
        with tf.name_scope("AttentionWrapperZeroState"):
            cell_state = self._initial_cell_state
            if cell_state is None:
                cell_state = self._cell.zero_state(batch_size, dtype)
            else:
                cell_state = tf.nest.map_structure(tf.identity, cell_state)
            alignments = [mechanism.initial_alignments(batch_size, dtype) for mechanism in self._mechanisms]
            history = [tf.TensorArray(dtype, size=0, dynamic_size=True, element_shape=one.shape) if self._has_history else ()
                       for one in alignments]
            return AttentionWrapperState(
                cell_state=cell_state, time=tf.zeros([], tf.int32), attention=tf.zeros([batch_size, self._attention_size], dtype),
                alignments=self._one_or_all(alignments), alignment_history=self._one_or_all(history),
                attention_state=self._one_or_all(mechanism.initial_state(batch_size, dtype) for mechanism in self._mechanisms))

    def call(self, inputs, state):
        if not isinstance(state, AttentionWrapperState):
            raise TypeError(f"Expected state to be instance of AttentionWrapperState. Received type {type(state)} instead.")
        cell_output, cell_state = self._cell(self._cell_input_fn(inputs, state.attention), state.cell_state)
        previous = state.attention_state if self._is_multi else (state.attention_state,)
        histories = state.alignment_history if self._is_multi else (state.alignment_history,)
        attentions, alignments, states, written = [], [], [], []
        for index, mechanism in enumerate(self._mechanisms):
            layer = self._layers[index] if self._layers else None
            attention, weights, next_state = self._attention_fn(mechanism, cell_output, previous[index], layer)
            attentions.append(attention)
            alignments.append(weights)
            states.append(next_state)
            written.append(histories[index].write(state.time, weights) if self._has_history else ())
        attention = tf.concat(attentions, 1)
        following = AttentionWrapperState(
            cell_state=cell_state, time=state.time + 1, attention=attention, alignments=self._one_or_all(alignments),
            alignment_history=self._one_or_all(written), attention_state=self._one_or_all(states))
        return (attention if self._output_attention else cell_output), following


def _compute_attention(mechanism, cell_output, attention_state, layer):
    alignments, next_state = mechanism(cell_output, attention_state)
    context = tf.squeeze(tf.matmul(alignments[:, None], mechanism.values), [1])
    attention = context if layer is None else layer(tf.concat([cell_output, context], 1))
    return attention, alignments, next_state
