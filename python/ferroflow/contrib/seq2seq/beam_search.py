"""Beam search."""

import collections

import tensorflow as tf

from ferroflow.contrib.seq2seq.decoder import Decoder
from ferroflow.contrib.seq2seq.helper import _embedding_function


class BeamSearchDecoderState(collections.namedtuple("BeamSearchDecoderState", ("cell_state", "log_probs", "finished", "lengths"))):
    """The state of all beams."""


class BeamSearchDecoderOutput(collections.namedtuple("BeamSearchDecoderOutput", ("scores", "predicted_ids", "parent_ids"))):
    """One step's additions to each beam, and the parent beams."""


class FinalBeamSearchDecoderOutput(
        collections.namedtuple("FinalBeamSearchDecoderOutput", ("predicted_ids", "beam_search_decoder_output"))):
    """The sequences found, best first."""


def tile_batch(t, multiplier, name=None):
    """Repeats each batch entry, in place, once per beam."""
    def tile(tensor):
        tensor = tf.convert_to_tensor(tensor)
        if tensor.shape.ndims == 0:
            raise ValueError("t must have (statically) at least one dimension")
        repeated = tf.repeat(tensor, multiplier, axis=0)
        first = tensor.shape[0]
        repeated.set_shape([None if first is None else first * multiplier, *tensor.shape[1:]])
        return repeated

    with tf.name_scope(name, "tile_batch"):
        return tf.nest.map_structure(tile, t)


def gather_tree(step_ids, parent_ids, max_sequence_lengths, end_token):
    """Returns the full sequences of ids [time, batch, beams], followed from their ends to their beginnings.

    Positions past a sequence's length, and those after its first end token, hold the end token.
    """
    steps = tf.shape(step_ids)[0]
    beams = tf.tile(tf.range(tf.shape(step_ids)[2])[None], [tf.shape(step_ids)[1], 1])
    within = tf.minimum(tf.cast(max_sequence_lengths, tf.int32), steps)

    def follow(state, element):
        parents, _ = state
        ids, parent_of, time = element
        inside = tf.tile((time < within)[:, None], [1, tf.shape(parents)[1]])
        found = tf.where(inside, tf.gather(ids, parents, axis=1, batch_dims=1), tf.fill(tf.shape(parents), end_token))
        before = tf.where(inside, tf.gather(parent_of, parents, axis=1, batch_dims=1), parents)
        return before, found

    _, sequences = tf.scan(follow, (step_ids, parent_ids, tf.range(steps)), initializer=(beams, tf.zeros_like(beams)), reverse=True)
    ended = tf.cumsum(tf.cast(tf.equal(sequences, end_token), tf.int32), axis=0, exclusive=True) > 0
    found = tf.where(ended, tf.fill(tf.shape(sequences), end_token), sequences)
    found.set_shape(step_ids.shape)
    return found


class BeamSearchDecoder(Decoder):
    """Keeps the best continuations of each sequence in a batch."""

    def __init__(self, cell, embedding, start_tokens, end_token, initial_state, beam_width, output_layer=None,
                 length_penalty_weight=0.0, coverage_penalty_weight=0.0, reorder_tensor_arrays=True):
        if coverage_penalty_weight:
            raise ValueError("ferroflow's BeamSearchDecoder has no coverage penalty")
        self._cell, self._output_layer = cell, output_layer
        self._embedding_fn = _embedding_function(embedding)
        self._start_tokens = tf.convert_to_tensor(start_tokens, tf.int32, name="start_tokens")
        self._end_token = tf.convert_to_tensor(end_token, tf.int32, name="end_token")
        if self._start_tokens.shape.ndims != 1:
            raise ValueError("start_tokens must be a vector")
        if self._end_token.shape.ndims != 0:
            raise ValueError("end_token must be a scalar")
        self._beam_width = beam_width
        self._length_penalty_weight = length_penalty_weight
        self._batch_size = tf.size(self._start_tokens)
        self._initial_cell_state = tf.nest.map_structure(self._split, initial_state)
        start = tf.tile(self._start_tokens[:, None], [1, beam_width])
        self._start_inputs = self._embedding_fn(start)

    @property
    def batch_size(self):
        return self._batch_size

    @property
    def tracks_own_finished(self):
        return True

    @property
    def output_size(self):
        width = tf.TensorShape([self._beam_width])
        return BeamSearchDecoderOutput(width, width, width)

    @property
    def output_dtype(self):
        return BeamSearchDecoderOutput(tf.nest.flatten(self._initial_cell_state)[0].dtype, tf.int32, tf.int32)

    def _split(self, tensor):
        """Reshapes [batch * beams, …] to [batch, beams, …]; tensors without a batch dimension are unchanged."""
        if isinstance(tensor, tf.TensorArray) or tensor.shape.ndims == 0:
            return tensor
        shape = tf.concat([[self._batch_size, self._beam_width], tf.shape(tensor)[1:]], 0)
        split = tf.reshape(tensor, shape)
        split.set_shape(tf.TensorShape([None, self._beam_width]).concatenate(tensor.shape[1:]))
        return split

    def _merge(self, tensor):
        if isinstance(tensor, tf.TensorArray) or tensor.shape.ndims == 0:
            return tensor
        merged = tf.reshape(tensor, tf.concat([[self._batch_size * self._beam_width], tf.shape(tensor)[2:]], 0))
        merged.set_shape(tf.TensorShape([None]).concatenate(tensor.shape[2:]))
        return merged

    def initialize(self, name=None):
        dtype = tf.nest.flatten(self._initial_cell_state)[0].dtype
        # All beams start out the same: only the first one counts.
        first = tf.one_hot(tf.zeros([self._batch_size], tf.int32), self._beam_width, on_value=0.0, off_value=-float("inf"), dtype=dtype)
        finished = tf.zeros([self._batch_size, self._beam_width], tf.bool)
        state = BeamSearchDecoderState(self._initial_cell_state, first, finished, tf.zeros_like(finished, dtype=tf.int64))
        return finished, self._start_inputs, state

    def step(self, time, inputs, state, name=None):
        with tf.name_scope(name, "BeamSearchDecoderStep"):
            cell_outputs, cell_state = self._cell(
                self._merge(inputs), tf.nest.map_structure(self._merge, state.cell_state))
            if self._output_layer is not None:
                cell_outputs = self._output_layer(cell_outputs)
            cell_state = tf.nest.map_structure(self._split, cell_state)
            logits = self._split(cell_outputs)
            vocabulary = logits.shape[-1] if logits.shape[-1] is not None else tf.shape(logits)[-1]
            step_log_probs = self._end_if_finished(tf.nn.log_softmax(logits), state.finished, vocabulary)
            totals = state.log_probs[:, :, None] + step_log_probs
            longer = tf.one_hot(tf.fill(tf.shape(state.lengths), self._end_token), vocabulary, on_value=0, off_value=1, dtype=tf.int64)
            lengths = state.lengths[:, :, None] + longer * tf.cast(tf.logical_not(state.finished), tf.int64)[:, :, None]
            scores = totals / self._penalty(lengths, totals.dtype)
            flat = tf.reshape(scores, [self._batch_size, -1])
            best, indices = tf.nn.top_k(flat, k=self._beam_width)
            best.set_shape([None, self._beam_width])
            indices.set_shape([None, self._beam_width])
            words = tf.cast(indices % vocabulary, tf.int32)
            parents = tf.cast(indices // vocabulary, tf.int32)
            pick = lambda tensor: tf.gather(tensor, parents, axis=1, batch_dims=1)
            was_finished = pick(state.finished)
            finished = tf.logical_or(was_finished, tf.equal(words, self._end_token))
            # The end token itself does not count.
            next_lengths = pick(state.lengths) + tf.cast(tf.logical_not(finished), tf.int64)
            chosen = tf.gather(tf.reshape(totals, [self._batch_size, -1]), indices, axis=1, batch_dims=1)
            next_cell_state = tf.nest.map_structure(
                lambda part: part if isinstance(part, tf.TensorArray) or part.shape.ndims == 0 else pick(part), cell_state)
            for old, new in zip(tf.nest.flatten(state.cell_state), tf.nest.flatten(next_cell_state)):
                if isinstance(new, tf.Tensor):
                    new.set_shape(old.shape)
            next_state = BeamSearchDecoderState(next_cell_state, chosen, finished, next_lengths)
            output = BeamSearchDecoderOutput(best, words, parents)
            following = tf.cond(tf.reduce_all(finished), lambda: self._start_inputs, lambda: self._embedding_fn(words))
            return output, next_state, following, finished

    def _end_if_finished(self, log_probs, finished, vocabulary):
        """A finished beam continues with the end token only, at no cost."""
        ended = tf.one_hot(self._end_token, vocabulary, on_value=0.0, off_value=log_probs.dtype.min, dtype=log_probs.dtype)
        return tf.where(tf.tile(finished[:, :, None], [1, 1, vocabulary]), tf.zeros_like(log_probs) + ended, log_probs)

    def _penalty(self, lengths, dtype):
        if self._length_penalty_weight == 0:
            return tf.ones([], dtype)
        return ((5.0 + tf.cast(lengths, dtype)) / 6.0) ** self._length_penalty_weight

    def finalize(self, outputs, final_state, sequence_lengths):
        longest = tf.cast(tf.reduce_max(final_state.lengths, axis=1), tf.int32) + 1
        ids = gather_tree(outputs.predicted_ids, outputs.parent_ids, tf.maximum(longest, 1), self._end_token)
        return FinalBeamSearchDecoderOutput(ids, outputs), final_state
