"""Keeps from the output what a TensorFlow 1 program can do nothing about."""

import contextlib
import importlib
import logging
import warnings

# What today's TensorFlow says of names that this package gives on purpose.
NEEDLESS = (r".*tf\.layers\..* is deprecated", r".*tf\.nn\.rnn_cell\..* is deprecated", r".*`layer\.\w+` is deprecated",
            r".*`tf\.nn\.\w+rnn` is deprecated", r".*LSTMCell.* is deprecated")


def install():
    """Silences advice to move on, and lines that come twice."""
    importlib.import_module("tensorflow.python.util.deprecation")._PRINT_DEPRECATION_WARNINGS = False
    for message in NEEDLESS:
        warnings.filterwarnings("ignore", message=message, category=UserWarning)
    # It has a handler of its own; absl's and logging.basicConfig's would show each line again.
    logging.getLogger("tensorflow").propagate = False
    # Says that the result of an assertion or of a write was not used, which in a graph means nothing.
    importlib.import_module("tensorflow.python.util.tf_should_use")._TFShouldUseHelper.__del__ = lambda self: None


@contextlib.contextmanager
def silenced():
    """Keeps the warning that version 2's behaviour is off from the output: it is what was asked for."""
    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
