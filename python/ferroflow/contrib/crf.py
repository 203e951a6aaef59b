"""`tf.contrib.crf`: linear-chain conditional random fields.

`inputs` are unary scores [batch, time, tags], `transition_params` scores [from, to]; steps past a sequence's length don't count.
"""

import numpy as np
import tensorflow as tf

from ferroflow import contrib


def crf_sequence_score(inputs, tag_indices, sequence_lengths, transition_params):
    """Returns the score of a sequence of tags."""
    tag_indices = tf.cast(tag_indices, tf.int32)
    return (crf_unary_score(tag_indices, sequence_lengths, inputs)
            + crf_binary_score(tag_indices, sequence_lengths, transition_params))


def crf_unary_score(tag_indices, sequence_lengths, inputs):
    """Returns the sum of the unary scores of the tags."""
    scores = tf.gather(inputs, tf.cast(tag_indices, tf.int32), axis=2, batch_dims=2)
    return tf.reduce_sum(scores * tf.sequence_mask(sequence_lengths, tf.shape(inputs)[1], inputs.dtype), 1)


def crf_binary_score(tag_indices, sequence_lengths, transition_params):
    """Returns the sum of the transition scores."""
    tag_indices = tf.cast(tag_indices, tf.int32)
    steps = tf.stack([tag_indices[:, :-1], tag_indices[:, 1:]], axis=2)
    scores = tf.gather_nd(transition_params, steps)
    lengths = tf.maximum(tf.cast(sequence_lengths, tf.int32) - 1, 0)
    return tf.reduce_sum(scores * tf.sequence_mask(lengths, tf.shape(tag_indices)[1] - 1, scores.dtype), 1)


def crf_log_norm(inputs, sequence_lengths, transition_params):
    """Returns the logarithm of the sum of the exponentials of all sequences' scores."""
    lengths = tf.cast(sequence_lengths, tf.int32)
    first = inputs[:, 0]
    rest = tf.transpose(inputs[:, 1:], [1, 0, 2])

    def step(state, element):
        scores, time = element
        after = scores + tf.reduce_logsumexp(state[:, :, None] + transition_params[None], axis=1)
        return tf.where(tf.tile((time < lengths)[:, None], [1, tf.shape(state)[1]]), after, state)

    times = tf.range(1, tf.shape(inputs)[1])
    # With a single step there is nothing to scan.
    alphas = tf.cond(tf.equal(tf.shape(rest)[0], 0), lambda: first,
                     lambda: tf.foldl(step, (rest, times), initializer=first))
    norm = tf.reduce_logsumexp(alphas, axis=1)
    return tf.where(lengths <= 0, tf.zeros_like(norm), norm)


def crf_log_likelihood(inputs, tag_indices, sequence_lengths, transition_params=None):
    """Returns the log likelihood of the tags, and the transition scores; creates a variable for them if none is given."""
    if transition_params is None:
        tags = inputs.shape[2]
        transition_params = tf.get_variable("transitions", [tags, tags])
    score = crf_sequence_score(inputs, tag_indices, sequence_lengths, transition_params)
    return score - crf_log_norm(inputs, sequence_lengths, transition_params), transition_params


def crf_decode(potentials, transition_params, sequence_length):
    """Returns the best tags of each sequence, zeros past its end, and their scores."""
    lengths = tf.maximum(tf.cast(sequence_length, tf.int32), 1)
    first = potentials[:, 0]
    rest = tf.transpose(potentials[:, 1:], [1, 0, 2])
    tags = tf.shape(potentials)[2]
    identity = tf.tile(tf.range(tags)[None], [tf.shape(potentials)[0], 1])

    def step(state, element):
        best, _ = state
        scores, time = element
        candidates = best[:, :, None] + transition_params[None]
        inside = tf.tile((time < lengths)[:, None], [1, tags])
        after = tf.where(inside, scores + tf.reduce_max(candidates, 1), best)
        return after, tf.where(inside, tf.argmax(candidates, 1, output_type=tf.int32), identity)

    def decode_steps():
        times = tf.range(1, tf.shape(potentials)[1])
        bests, back = tf.scan(step, (rest, times), initializer=(first, identity))
        last = tf.argmax(bests[-1], 1, output_type=tf.int32)
        earlier = tf.scan(lambda tag, pointers: tf.gather(pointers, tag, axis=1, batch_dims=1), back, initializer=last, reverse=True)
        return tf.concat([tf.transpose(earlier), last[:, None]], 1), tf.reduce_max(bests[-1], 1)

    found, scores = tf.cond(
        tf.equal(tf.shape(rest)[0], 0),
        lambda: (tf.argmax(first, 1, output_type=tf.int32)[:, None], tf.reduce_max(first, 1)), decode_steps)
    found *= tf.sequence_mask(lengths, tf.shape(potentials)[1], tf.int32)
    found.set_shape(potentials.shape[:2])
    return found, scores


def viterbi_decode(score, transition_params):
    """Returns the best tags of one sequence of NumPy scores [time, tags], and their score."""
    trellis = np.zeros_like(score)
    back = np.zeros_like(score, dtype=np.int32)
    trellis[0] = score[0]
    for time in range(1, score.shape[0]):
        candidates = np.expand_dims(trellis[time - 1], 1) + transition_params
        trellis[time] = score[time] + np.max(candidates, 0)
        back[time] = np.argmax(candidates, 0)
    tags = [int(np.argmax(trellis[-1]))]
    for pointers in reversed(back[1:]):
        tags.append(int(pointers[tags[-1]]))
    return tags[::-1], np.max(trellis[-1])


__getattr__ = contrib.missing_from(__name__)
