"""Inputs that ops refuse: with TensorFlow's code, without a panic, and without memory that grows with a number in the input.

The cases come from TensorFlow's public security advisories and from what its kernels check. Most must end as they end in
TensorFlow; where that hangs or allocates what the input asks for, the case names the code itself. Where TensorFlow crashes, which
for some depends on the processor, the step must end with an error on ours.
"""

import pathlib
import re

import pytest
import tensorflow.compat.v1 as tf

import errors_compute  # noqa: F401 (fills the table)
import errors_state  # noqa: F401 (fills the table)
import harness
import reference
import side_by_side
from error_table import CRASHING, INITIALIZERS, OURS, SAME

STEP_TIMEOUT_MS = 120000
MEMORY_LIMIT_KB = 2 << 20
# What must not be in a message or in the server's log.
PANIC = re.compile(r"panic|overflow(ed)? (in|at)|unwrap|out of bounds: the len", re.IGNORECASE)


class Hidden(side_by_side.Given):
    """Makes placeholders of which the client knows the type only."""

    def __call__(self, value, dtype=None, shape=None):
        return super().__call__(value, dtype, tf.TensorShape(None) if shape is None else shape)


@pytest.fixture(scope="module")
def server():
    cluster = harness.Cluster(ps=0, workers=1)
    yield cluster.worker()
    cluster.stop()


@pytest.fixture(scope="module")
def endings(server):
    """How each case ends: for TensorFlow and for us, the error or None."""
    cases = {**SAME, **{name: expression for name, (_, expression) in OURS.items()}}
    found = {name: {} for name in cases}
    with tf.Graph().as_default():
        built = {}
        for name, expression in cases.items():
            given = Hidden()
            with tf.name_scope(None):
                built[name] = (expression(given), given.feed)
        initializer = [tf.global_variables_initializer(), INITIALIZERS]
        config = side_by_side.config()
        config.operation_timeout_in_ms = STEP_TIMEOUT_MS
        with reference.Session(tf.get_default_graph(), initializer, config) as session:
            for name in [*SAME, *CRASHING]:
                found[name]["tensorflow"] = side_by_side.ending(session, *built[name])
        with tf.Session(server.target, config=config) as session:
            session.run(initializer)
            for name in cases:
                found[name]["ours"] = side_by_side.ending(session, *built[name])
    return found


@pytest.mark.parametrize("name", sorted(SAME))
def test_ends_as_in_tensorflow(endings, name):
    expected, got = endings[name]["tensorflow"], endings[name]["ours"]
    side_by_side.assert_same_ending(f"test_errors {name}", got, expected)
    assert got is None or not PANIC.search(got.message), got.message


@pytest.mark.parametrize("name", sorted(OURS))
def test_ends_as_named(endings, name):
    got = endings[name]["ours"]
    assert (got and type(got)) in OURS[name][0], got
    assert got is None or not PANIC.search(got.message), got.message


def test_crashes_of_tensorflow_are_told(endings):
    """Cases that are listed because TensorFlow crashes on them; which ones do depends on the processor."""
    crashes = [endings[name]["tensorflow"] for name in sorted(CRASHING)]
    for name, crash in zip(sorted(CRASHING), crashes):
        harness.note(f"{name}: {crash}")
    assert any(isinstance(crash, reference.Crashed) for crash in crashes)


def test_the_server_lives_and_has_not_panicked(endings, server):
    with tf.Graph().as_default(), tf.Session(server.target) as session:
        assert session.run(tf.constant(2) + 3) == 5
    assert not [line for line in server.lines if PANIC.search(line)]


def test_no_input_made_the_server_take_memory(endings, server):
    status = pathlib.Path(f"/proc/{server.pid}/status").read_text()
    peak_kb = int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1))
    assert peak_kb < MEMORY_LIMIT_KB
