"""`tf.contrib.legacy_seq2seq`: decoders that are unrolled in the graph, and their loss."""

import tensorflow as tf

from ferroflow import contrib


def rnn_decoder(decoder_inputs, initial_state, cell, loop_function=None, scope=None):
    """Runs a cell over a list of inputs; with a loop function, each input after the first is computed from the last output."""
    with tf.variable_scope(scope or "rnn_decoder"):
        state, outputs, previous = initial_state, [], None
        for index, inputs in enumerate(decoder_inputs):
            if loop_function is not None and previous is not None:
                with tf.variable_scope("loop_function", reuse=True):
                    inputs = loop_function(previous, index)
            if index > 0:
                tf.get_variable_scope().reuse_variables()
            output, state = cell(inputs, state)
            outputs.append(output)
            if loop_function is not None:
                previous = output
    return outputs, state


def basic_rnn_seq2seq(encoder_inputs, decoder_inputs, cell, dtype=tf.float32, scope=None):
    """Encodes one list with a cell, and decodes the other from the encoder's state."""
    import copy

    with tf.variable_scope(scope or "basic_rnn_seq2seq"):
        _, state = tf.nn.static_rnn(copy.deepcopy(cell), encoder_inputs, dtype=dtype)
        return rnn_decoder(decoder_inputs, state, cell)


def tied_rnn_seq2seq(encoder_inputs, decoder_inputs, cell, loop_function=None, dtype=tf.float32, scope=None):
    """Like `basic_rnn_seq2seq`, with one set of variables for both."""
    with tf.variable_scope("combined_tied_rnn_seq2seq"):
        scope = scope or "tied_rnn_seq2seq"
        _, state = tf.nn.static_rnn(cell, encoder_inputs, dtype=dtype, scope=scope)
        tf.get_variable_scope().reuse_variables()
        return rnn_decoder(decoder_inputs, state, cell, loop_function=loop_function, scope=scope)


def sequence_loss_by_example(logits, targets, weights, average_across_timesteps=True, softmax_loss_function=None, name=None):
    """Returns the weighted cross entropy of each sequence of a batch."""
    if len(targets) != len(logits) or len(weights) != len(logits):
        raise ValueError(f"Lengths of logits, weights, and targets must be the same {len(logits)}, {len(weights)}, {len(targets)}.")
    with tf.name_scope(name, "sequence_loss_by_example", [*logits, *targets, *weights]):
        losses = []
        for logit, target, weight in zip(logits, targets, weights):
            target = tf.reshape(target, [-1])
            if softmax_loss_function is None:
                loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=target, logits=logit)
            else:
                loss = softmax_loss_function(labels=target, logits=logit)
            losses.append(loss * weight)
        total = tf.add_n(losses)
        return total / (tf.add_n(list(weights)) + 1e-12) if average_across_timesteps else total


def sequence_loss(logits, targets, weights, average_across_timesteps=True, average_across_batch=True, softmax_loss_function=None,
                  name=None):
    """Returns the weighted cross entropy of a batch of sequences."""
    with tf.name_scope(name, "sequence_loss", [*logits, *targets, *weights]):
        cost = tf.reduce_sum(sequence_loss_by_example(logits, targets, weights, average_across_timesteps, softmax_loss_function))
        return cost / tf.cast(tf.shape(targets[0])[0], cost.dtype) if average_across_batch else cost


__getattr__ = contrib.missing_from(__name__)
