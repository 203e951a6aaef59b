"""Sequence examples beside TensorFlow's."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import side_by_side


def feature(value):
    if isinstance(value[0], float) if value else False:
        return tf.train.Feature(float_list=tf.train.FloatList(value=value))
    if isinstance(value[0], bytes) if value else False:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=value))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=value))


def sequence(context, lists):
    return tf.train.SequenceExample(
        context=tf.train.Features(feature={key: feature(value) for key, value in context.items()}),
        feature_lists=tf.train.FeatureLists(feature_list={
            key: tf.train.FeatureList(feature=[feature(step) for step in steps]) for key, steps in lists.items()})).SerializeToString()


EXAMPLES = np.array([
    sequence({"n": [3], "s": [b"x", b"y"]}, {"f": [[1.0, 2.0], [3.0, 4.0]], "i": [[1], [2, 3], []]}),
    sequence({"n": [4]}, {"f": [[5.0, 6.0]], "i": [[7, 8, 9]]}),
    sequence({"n": [5], "s": [b"z"]}, {"f": [], "t": [[b"a"], [b"b", b"c"]]}),
], object)
CONTEXT = {"n": tf.FixedLenFeature([], tf.int64), "s": tf.VarLenFeature(tf.string)}
LISTS = {
    "f": tf.FixedLenSequenceFeature([2], tf.float32, allow_missing=True),
    "i": tf.VarLenFeature(tf.int64),
    "t": tf.io.RaggedFeature(tf.string, row_splits_dtype=tf.int32),
}


def parts(parsed):
    for value in tf.nest.flatten(parsed, expand_composites=True):
        yield value


TABLE = side_by_side.Table()
add = TABLE.add
PLAIN = {key: LISTS[key] for key in ("f", "i")}
add("ParseSequenceExampleV2/batch", lambda given: list(parts(tf.io.parse_sequence_example(given(EXAMPLES), CONTEXT, LISTS))), gradient=False)
add("ParseSequenceExampleV2/plain", lambda given: list(parts(tf.io.parse_sequence_example(given(EXAMPLES), CONTEXT, PLAIN))), gradient=False)
for index in range(3):
    add(f"ParseSequenceExampleV2/{index}", lambda given, index=index: list(parts(
        tf.io.parse_single_sequence_example(given(np.array(EXAMPLES[index], object)), CONTEXT, LISTS))), gradient=False)
    add(f"ParseSingleSequenceExample/{index}", lambda given, index=index: list(parts(tf.raw_ops.ParseSingleSequenceExample(
        serialized=given(np.array(EXAMPLES[index], object)), feature_list_dense_missing_assumed_empty=["f"], context_sparse_keys=["s"],
        context_dense_keys=["n"], feature_list_sparse_keys=["i"], feature_list_dense_keys=["f"],
        context_dense_defaults=[given(np.array([], np.int64), tf.int64)], debug_name="", context_sparse_types=[tf.string],
        feature_list_dense_types=[tf.float32], context_dense_shapes=[[]], feature_list_sparse_types=[tf.int64],
        feature_list_dense_shapes=[[2]]))), gradient=False)
add("ParseSequenceExample/batch", lambda given: list(parts(tf.raw_ops.ParseSequenceExample(
    serialized=given(EXAMPLES), debug_name=given(np.array([], object), tf.string), context_dense_defaults=[given(np.array([], np.int64), tf.int64)],
    feature_list_dense_missing_assumed_empty=["f"], context_sparse_keys=["s"], context_dense_keys=["n"], feature_list_sparse_keys=["i"],
    feature_list_dense_keys=["f"], Ncontext_sparse=1, Ncontext_dense=1, Nfeature_list_sparse=1, Nfeature_list_dense=1,
    context_sparse_types=[tf.string], context_dense_shapes=[[]], feature_list_sparse_types=[tf.int64], feature_list_dense_types=[tf.float32],
    feature_list_dense_shapes=[[2]]))), gradient=False)

WORDS = np.array([b"aa", b"b", b"cc", b"", b"e", b"f"], object)
for label, splits in (("three", [0, 3, 4, 6]), ("empty", [0, 0, 6, 6]), ("one", [0, 6])):
    for widths in ([1], [2], [3, 1], [7], []):
        for pad_width in (-1, 0, 1, 5):
            for preserve in (False, True):
                if preserve and pad_width < 0 and not widths:
                    continue
                for dtype in (tf.int32, tf.int64):
                    name = f"StringNGrams/{label}_{widths}_{pad_width}_{preserve}_{dtype.name}"
                    add(name, lambda given, splits=splits, widths=widths, pad_width=pad_width, preserve=preserve, dtype=dtype: tf.raw_ops.StringNGrams(
                        data=given(WORDS), data_splits=given(np.array(splits), dtype), separator="|", ngram_widths=widths, left_pad="<<", right_pad=">",
                        pad_width=pad_width, preserve_short_sequences=preserve))
add("StringNGrams/no_words", lambda given: tf.raw_ops.StringNGrams(
    data=given(WORDS[:0]), data_splits=given(np.array([0, 0, 0]), tf.int64), separator="|", ngram_widths=[2], left_pad="", right_pad="", pad_width=-1,
    preserve_short_sequences=False))

results, test_op, test_at_a_lower_level, test_beside_onednn = TABLE.tests()

REQUIRED = {"t": tf.FixedLenSequenceFeature([1], tf.string)}


def grams(given, splits, widths=(2,), preserve_short_sequences=False):
    return tf.raw_ops.StringNGrams(
        data=given(WORDS), data_splits=given(np.array(splits), tf.int64), separator="|", ngram_widths=list(widths), left_pad="", right_pad="", pad_width=-1,
        preserve_short_sequences=preserve_short_sequences).ngrams


FAILURES = {
    "missing_list": lambda given: tf.io.parse_sequence_example(given(EXAMPLES), sequence_features=REQUIRED)[1]["t"],
    "missing_context": lambda given: tf.io.parse_sequence_example(given(EXAMPLES), {"q": tf.FixedLenFeature([], tf.int64)})[0]["q"],
    "list_type": lambda given: tf.io.parse_sequence_example(given(EXAMPLES[:1]), sequence_features={"f": tf.VarLenFeature(tf.int64)})[1]["f"].values,
    "step_size": lambda given: tf.io.parse_sequence_example(given(EXAMPLES[:1]), sequence_features={"f": tf.FixedLenSequenceFeature([3], tf.float32)})[1]["f"],
    "grams_first": lambda given: grams(given, [1, 6]),
    "grams_order": lambda given: grams(given, [0, 4, 3, 6]),
    "grams_beyond": lambda given: grams(given, [0, 7]),
    "grams_last": lambda given: grams(given, [0, 5]),
    "grams_width": lambda given: grams(given, [0, 6], [0]),
    "grams_without_widths": lambda given: grams(given, [0, 6], [], preserve_short_sequences=True),
    "garbage": lambda given: tf.io.parse_sequence_example(given(np.array([b"garbage!"], object)), sequence_features=PLAIN)[1]["f"],
}


@pytest.mark.parametrize("name", sorted(FAILURES))
def test_failures_have_the_same_code(op_server, name):
    side_by_side.check_failure(f"test_sequences {name}", FAILURES[name], op_server.target)
