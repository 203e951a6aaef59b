"""Suppresses output that a TensorFlow 1 program can do nothing about."""

import contextlib
import importlib
import logging
import warnings

# Deprecation warnings about names that this package provides on purpose.
NEEDLESS = (r".*tf\.layers\..* is deprecated", r".*tf\.nn\.rnn_cell\..* is deprecated", r".*`layer\.\w+` is deprecated",
            r".*`tf\.nn\.\w+rnn` is deprecated", r".*LSTMCell.* is deprecated")


def install():
    """Suppresses deprecation advice and duplicate lines."""
    importlib.import_module("tensorflow.python.util.deprecation")._PRINT_DEPRECATION_WARNINGS = False
    for message in NEEDLESS:
        warnings.filterwarnings("ignore", message=message, category=UserWarning)
    # TensorFlow's logger has its own handler; those of absl and logging.basicConfig would print each line again.
    logging.getLogger("tensorflow").propagate = False
    # Warns that the result of an assertion or a write is unused, which means nothing in a graph.
    importlib.import_module("tensorflow.python.util.tf_should_use")._TFShouldUseHelper.__del__ = lambda self: None


@contextlib.contextmanager
def silenced():
    """Suppresses the warning that version 2's behaviour is off, since it is off on purpose."""
    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
