"""`tf.contrib.seq2seq`: decoders that run in a loop, helpers that feed them, attention, beam search and sequence loss."""

import sys

from ferroflow import contrib
from ferroflow.contrib.seq2seq.attention import (
    AttentionMechanism, AttentionWrapper, AttentionWrapperState, BahdanauAttention, LuongAttention, hardmax, safe_cumprod)
from ferroflow.contrib.seq2seq.beam_search import (
    BeamSearchDecoder, BeamSearchDecoderOutput, BeamSearchDecoderState, FinalBeamSearchDecoderOutput, gather_tree, tile_batch)
from ferroflow.contrib.seq2seq.decoder import BasicDecoder, BasicDecoderOutput, Decoder, dynamic_decode
from ferroflow.contrib.seq2seq.helper import (
    CustomHelper, GreedyEmbeddingHelper, Helper, InferenceHelper, SampleEmbeddingHelper, ScheduledEmbeddingTrainingHelper,
    ScheduledOutputTrainingHelper, TrainingHelper)
from ferroflow.contrib.seq2seq.loss import sequence_loss


def __getattr__(name):
    # The modules that code imports from contrib's sources.
    if name in ("attention_wrapper", "basic_decoder", "beam_search_decoder", "beam_search_ops"):
        return sys.modules[__name__]
    raise AttributeError(contrib.no_such("seq2seq." + name))
