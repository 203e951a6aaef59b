"""Runs an unmodified TensorFlow 1 program on today's TensorFlow, with Ferroflow servers in place of TensorFlow's.

    python -m ferroflow script.py --job_name=ps --task_index=0

or, inside a program and before its first use of TensorFlow:

    import ferroflow
    ferroflow.patch()

Afterwards `import tensorflow as tf` provides TensorFlow 1's names and behaviour, and each `tf.train.Server` is a process of
`ferroflow server`.
"""

import os

from ferroflow.server import Server, binary_path

__all__ = ["Server", "binary_path", "patch"]

_patched = False


def patch():
    """Sets TensorFlow 1's names and our servers on `tensorflow`. Calling it again changes nothing."""
    global _patched
    if _patched:
        return
    _patched = True
    # TensorFlow's notes about CPU instructions at every start are of no use to programs.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    from ferroflow import names

    names.install(Server)
