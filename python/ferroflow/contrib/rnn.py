"""`tf.contrib.rnn`: TensorFlow's cells, and those that it removed."""

import tensorflow as tf

from ferroflow import contrib

_cells = tf.nn.rnn_cell
RNNCell, BasicRNNCell, BasicLSTMCell, LSTMCell, GRUCell = (
    _cells.RNNCell, _cells.BasicRNNCell, _cells.BasicLSTMCell, _cells.LSTMCell, _cells.GRUCell)
LSTMStateTuple, MultiRNNCell, DropoutWrapper, ResidualWrapper, DeviceWrapper = (
    _cells.LSTMStateTuple, _cells.MultiRNNCell, _cells.DropoutWrapper, _cells.ResidualWrapper, _cells.DeviceWrapper)
CoreRNNCell = RNNCell
static_rnn, static_bidirectional_rnn, static_state_saving_rnn = (
    tf.nn.static_rnn, tf.nn.static_bidirectional_rnn, tf.nn.static_state_saving_rnn)


class _Wrapper(RNNCell):
    """A cell around another one, with the inner cell's state."""

    def __init__(self, cell):
        super().__init__()
        self._cell = cell

    @property
    def state_size(self):
        return self._cell.state_size

    @property
    def output_size(self):
        return self._cell.output_size

    def zero_state(self, batch_size, dtype):
        return self._cell.zero_state(batch_size, dtype)


class OutputProjectionWrapper(_Wrapper):
    """Projects a cell's output."""

    def __init__(self, cell, output_size, activation=None, reuse=None):
        super().__init__(cell)
        self._output_size, self._activation = output_size, activation

    @property
    def output_size(self):
        return self._output_size

    def __call__(self, inputs, state, scope=None):
        with tf.variable_scope(scope or "output_projection_wrapper", reuse=tf.AUTO_REUSE):
            output, state = self._cell(inputs, state)
            projected = _linear(output, self._output_size)
            return (self._activation(projected) if self._activation else projected), state


class InputProjectionWrapper(_Wrapper):
    """Projects a cell's input."""

    def __init__(self, cell, num_proj, activation=None, input_size=None, reuse=None):
        super().__init__(cell)
        self._num_proj, self._activation = num_proj, activation

    def __call__(self, inputs, state, scope=None):
        with tf.variable_scope(scope or "input_projection_wrapper", reuse=tf.AUTO_REUSE):
            projected = _linear(inputs, self._num_proj)
            return self._cell(self._activation(projected) if self._activation else projected, state)


class EmbeddingWrapper(_Wrapper):
    """Takes ids, and passes their embeddings to the cell."""

    def __init__(self, cell, embedding_classes, embedding_size, initializer=None, reuse=None):
        super().__init__(cell)
        self._shape, self._initializer = [embedding_classes, embedding_size], initializer

    def __call__(self, inputs, state, scope=None):
        with tf.variable_scope(scope or "embedding_wrapper", reuse=tf.AUTO_REUSE):
            initializer = self._initializer or tf.random_uniform_initializer(-(3 ** 0.5), 3 ** 0.5)
            first = state[0] if isinstance(state, tuple) else state
            table = tf.get_variable("embedding", self._shape, first.dtype, initializer)
            return self._cell(tf.nn.embedding_lookup(table, tf.reshape(inputs, [-1])), state)


class LayerNormBasicLSTMCell(RNNCell):
    """An LSTM whose gates and new state are normalized, with dropout on the additions to its state."""

    def __init__(self, num_units, forget_bias=1.0, input_size=None, activation=tf.tanh, layer_norm=True, norm_gain=1.0,
                 norm_shift=0.0, dropout_keep_prob=1.0, dropout_prob_seed=None, reuse=None):
        super().__init__(_reuse=reuse)
        self._num_units, self._forget_bias, self._activation = num_units, forget_bias, activation
        self._layer_norm, self._gain, self._shift = layer_norm, norm_gain, norm_shift
        self._keep_prob, self._seed = dropout_keep_prob, dropout_prob_seed

    @property
    def state_size(self):
        return LSTMStateTuple(self._num_units, self._num_units)

    @property
    def output_size(self):
        return self._num_units

    def _normalized(self, values, name):
        with tf.variable_scope(name):
            gamma = tf.get_variable("gamma", [self._num_units], values.dtype, tf.constant_initializer(self._gain))
            beta = tf.get_variable("beta", [self._num_units], values.dtype, tf.constant_initializer(self._shift))
        mean, variance = tf.nn.moments(values, [1], keepdims=True)
        return tf.nn.batch_normalization(values, mean, variance, beta, gamma, 1e-12)

    def call(self, inputs, state):
        c, h = state
        joined = tf.concat([inputs, h], 1)
        kernel = tf.get_variable("kernel", [joined.shape[1], 4 * self._num_units], joined.dtype)
        gates = tf.matmul(joined, kernel)
        if not self._layer_norm:
            gates += tf.get_variable("bias", [4 * self._num_units], joined.dtype, tf.zeros_initializer())
        i, j, f, o = tf.split(gates, 4, axis=1)
        if self._layer_norm:
            i, j, f, o = (self._normalized(gate, name) for gate, name in
                          ((i, "input"), (j, "transform"), (f, "forget"), (o, "output")))
        g = self._activation(j)
        if isinstance(self._keep_prob, tf.Tensor) or self._keep_prob < 1:
            g = tf.nn.dropout(g, self._keep_prob, seed=self._seed)
        new_c = c * tf.sigmoid(f + self._forget_bias) + tf.sigmoid(i) * g
        if self._layer_norm:
            new_c = self._normalized(new_c, "state")
        new_h = self._activation(new_c) * tf.sigmoid(o)
        return new_h, LSTMStateTuple(new_c, new_h)


class LSTMBlockCell(LSTMCell):
    """An LSTM with the variable names of the cell that was a single op; here it is several ops."""

    def __init__(self, num_units, forget_bias=1.0, cell_clip=None, use_peephole=False, dtype=None, reuse=None, name="lstm_cell"):
        super().__init__(num_units, use_peepholes=use_peephole, cell_clip=None if cell_clip is None or cell_clip <= 0 else cell_clip,
                         forget_bias=forget_bias, dtype=dtype, reuse=reuse, name=name)


class LSTMBlockFusedCell(tf.layers.Layer):
    """An LSTM over whole sequences (time, batch, depth), in one op."""

    def __init__(self, num_units, forget_bias=1.0, cell_clip=None, use_peephole=False, reuse=None, dtype=None, name="lstm_fused_cell"):
        super().__init__(name=name, dtype=dtype, _reuse=reuse)
        self.num_units = num_units
        self._forget_bias = forget_bias
        self._cell_clip = -1.0 if cell_clip is None else cell_clip
        self._use_peephole = use_peephole
        self.input_spec = tf.layers.InputSpec(ndim=3)

    def build(self, input_shape):
        units = self.num_units
        depth = tf.TensorShape(input_shape).as_list()[2]
        self._kernel = self.add_weight("kernel", [depth + units, 4 * units])
        self._bias = self.add_weight("bias", [4 * units], initializer=tf.zeros_initializer())
        self._peepholes = [self.add_weight(name, [units]) if self._use_peephole else tf.zeros([units], self.dtype)
                           for name in ("w_i_diag", "w_f_diag", "w_o_diag")]
        self.built = True

    def call(self, inputs, initial_state=None, dtype=None, sequence_length=None):
        """Returns the outputs, which are zero past the end of a sequence, and the states at the ends."""
        from tensorflow.python.ops import gen_rnn_ops

        dtype = tf.as_dtype(dtype or inputs.dtype)
        steps, batch = tf.shape(inputs)[0], tf.shape(inputs)[1]
        if initial_state is None:
            initial_state = (tf.zeros([batch, self.num_units], dtype),) * 2
        lengths = None if sequence_length is None else tf.cast(sequence_length, tf.int32)
        longest = tf.cast(steps if lengths is None else tf.reduce_max(lengths), tf.int64)
        peepholes = dict(zip(("wci", "wcf", "wco"), self._peepholes))
        computed = gen_rnn_ops.block_lstm(
            seq_len_max=longest, x=inputs, cs_prev=initial_state[0], h_prev=initial_state[1], w=self._kernel, b=self._bias,
            forget_bias=self._forget_bias, cell_clip=self._cell_clip, use_peephole=self._use_peephole, **peepholes)
        states, outputs = computed.cs, computed.h
        if lengths is None:
            return outputs, LSTMStateTuple(states[-1], outputs[-1])
        # The state before the first step is that of an empty sequence.
        ends = tf.stack([lengths, tf.range(batch)], axis=1)
        at_end = lambda before, values: tf.gather_nd(tf.concat([before[None], values], 0), ends)
        final = LSTMStateTuple(at_end(initial_state[0], states), at_end(initial_state[1], outputs))
        return outputs * tf.transpose(tf.sequence_mask(lengths, steps, dtype))[:, :, None], final


class TimeReversedFusedRNN:
    """Runs a fused network from the last step to the first."""

    def __init__(self, cell):
        self._cell = cell

    def __call__(self, inputs, initial_state=None, dtype=None, sequence_length=None, scope=None):
        del scope

        def turned(values):
            if sequence_length is None:
                return tf.reverse(values, [0])
            return tf.reverse_sequence(values, sequence_length, seq_axis=0, batch_axis=1)

        outputs, state = self._cell(turned(inputs), initial_state, dtype, sequence_length)
        return turned(outputs), state


class GRUBlockCellV2(GRUCell):
    """A GRU with the variable names of the cell that was a single op; here it is several ops."""

    def __init__(self, num_units=None, reuse=None, name="gru_cell"):
        super().__init__(num_units, reuse=reuse, name=name)


class GRUBlockCell(GRUBlockCellV2):
    """`GRUBlockCellV2` under its old name."""

    def __init__(self, num_units=None, cell_size=None, reuse=None, name="gru_cell"):
        super().__init__(num_units if cell_size is None else cell_size, reuse=reuse, name=name)


class AttentionCellWrapper(_Wrapper):
    """Lets a cell attend to its own last states."""

    def __init__(self, cell, attn_length, attn_size=None, attn_vec_size=None, input_size=None, state_is_tuple=True, reuse=None):
        if not state_is_tuple:
            raise ValueError("ferroflow's AttentionCellWrapper supports tuple states only")
        super().__init__(cell)
        self._attn_length = attn_length
        self._attn_size = attn_size or cell.output_size
        self._attn_vec_size = attn_vec_size or self._attn_size
        self._input_size = input_size

    @property
    def state_size(self):
        return (self._cell.state_size, self._attn_size, self._attn_size * self._attn_length)

    @property
    def output_size(self):
        return self._attn_size

    def zero_state(self, batch_size, dtype):
        zeros = lambda size: tf.zeros([batch_size, size], dtype)
        return (self._cell.zero_state(batch_size, dtype), zeros(self._attn_size), zeros(self._attn_size * self._attn_length))

    def __call__(self, inputs, state, scope=None):
        with tf.variable_scope(scope or "attention_cell_wrapper", reuse=tf.AUTO_REUSE):
            state, attention, states = state
            states = tf.reshape(states, [-1, self._attn_length, self._attn_size])
            mixed = _linear(tf.concat([inputs, attention], 1), self._input_size or inputs.shape.as_list()[1])
            output, new_state = self._cell(mixed, state)
            query = tf.concat(tf.nest.flatten(new_state), 1)
            with tf.variable_scope("attention"):
                kernel = tf.get_variable("attn_w", [1, 1, self._attn_size, self._attn_vec_size], query.dtype)
                vector = tf.get_variable("attn_v", [self._attn_vec_size], query.dtype)
                hidden = tf.reshape(states, [-1, self._attn_length, 1, self._attn_size])
                features = tf.nn.conv2d(hidden, kernel, [1, 1, 1, 1], "SAME")
                projected = tf.reshape(_linear(query, self._attn_vec_size), [-1, 1, 1, self._attn_vec_size])
                weights = tf.nn.softmax(tf.reduce_sum(vector * tf.tanh(features + projected), [2, 3]))
                seen = tf.reduce_sum(tf.reshape(weights, [-1, self._attn_length, 1, 1]) * hidden, [1, 2])
                attention = tf.reshape(seen, [-1, self._attn_size])
            with tf.variable_scope("attn_output_projection"):
                output = _linear(tf.concat([output, attention], 1), self._attn_size)
            states = tf.concat([states[:, 1:], output[:, None]], 1)
            return output, (new_state, attention, tf.reshape(states, [-1, self._attn_length * self._attn_size]))


def stack_bidirectional_dynamic_rnn(cells_fw, cells_bw, inputs, initial_states_fw=None, initial_states_bw=None, dtype=None,
                                    sequence_length=None, parallel_iterations=None, time_major=False, scope=None, swap_memory=False):
    """Runs layers of two cells each, one forward and one backward; a layer's input is both outputs of the one below."""
    _check_layers(cells_fw, cells_bw, initial_states_fw, initial_states_bw)
    states_fw, states_bw = [], []
    with tf.variable_scope(scope or "stack_bidirectional_rnn"):
        for index, (forward, backward) in enumerate(zip(cells_fw, cells_bw)):
            with tf.variable_scope(f"cell_{index}"):
                outputs, (state_fw, state_bw) = tf.nn.bidirectional_dynamic_rnn(
                    forward, backward, inputs, sequence_length=sequence_length, dtype=dtype,
                    initial_state_fw=initial_states_fw[index] if initial_states_fw else None,
                    initial_state_bw=initial_states_bw[index] if initial_states_bw else None,
                    parallel_iterations=parallel_iterations, time_major=time_major, swap_memory=swap_memory)
                inputs = tf.concat(outputs, 2)
            states_fw.append(state_fw)
            states_bw.append(state_bw)
    return inputs, tuple(states_fw), tuple(states_bw)


def stack_bidirectional_rnn(cells_fw, cells_bw, inputs, initial_states_fw=None, initial_states_bw=None, dtype=None,
                            sequence_length=None, scope=None):
    """Like `stack_bidirectional_dynamic_rnn`, for lists of tensors."""
    _check_layers(cells_fw, cells_bw, initial_states_fw, initial_states_bw)
    states_fw, states_bw = [], []
    with tf.variable_scope(scope or "stack_bidirectional_rnn"):
        for index, (forward, backward) in enumerate(zip(cells_fw, cells_bw)):
            with tf.variable_scope(f"cell_{index}"):
                inputs, state_fw, state_bw = tf.nn.static_bidirectional_rnn(
                    forward, backward, inputs, initial_states_fw[index] if initial_states_fw else None,
                    initial_states_bw[index] if initial_states_bw else None, dtype=dtype, sequence_length=sequence_length)
            states_fw.append(state_fw)
            states_bw.append(state_bw)
    return inputs, tuple(states_fw), tuple(states_bw)


def _check_layers(cells_fw, cells_bw, states_fw, states_bw):
    for cells, name in ((cells_fw, "fw"), (cells_bw, "bw")):
        if not isinstance(cells, list) or not cells:
            raise ValueError(f"cells_{name} must be a list of RNNCells (one per layer).")
    if len(cells_fw) != len(cells_bw):
        raise ValueError("Forward and Backward cells must have the same depth.")
    for states, cells, name in ((states_fw, cells_fw, "fw"), (states_bw, cells_bw, "bw")):
        if states is not None and len(states) != len(cells):
            raise ValueError(f"initial_states_{name} must be a list of state tensors (one per layer).")


def transpose_batch_time(x):
    """Swaps the first two dimensions."""
    return tf.transpose(x, [1, 0, *range(2, x.shape.ndims)])


def _linear(inputs, size):
    kernel = tf.get_variable("kernel", [inputs.shape[-1], size], inputs.dtype)
    return tf.matmul(inputs, kernel) + tf.get_variable("bias", [size], inputs.dtype, tf.zeros_initializer())




def __getattr__(name):
    if name in ("rnn_cell", "core_rnn_cell", "rnn", "core_rnn", "rnn_cell_impl"):
        import sys

        return sys.modules[__name__]
    raise AttributeError(contrib.no_such("rnn." + name))
