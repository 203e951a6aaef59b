"""Runs an unmodified TensorFlow 1 program on today's TensorFlow, with Ferroflow servers in place of TensorFlow's.

    python -m ferroflow script.py --job_name=ps --task_index=0

or, inside a program and before its first use of TensorFlow:

    import ferroflow
    ferroflow.patch()

Afterwards `import tensorflow as tf` has TensorFlow 1's names, with its behaviour, and each `tf.train.Server` is a process
of `ferroflow server`.
"""

import os

from ferroflow.server import Server, binary_path

__all__ = ["Server", "binary_path", "patch"]

_patched = False


def patch():
    """Gives `tensorflow` the names of TensorFlow 1 and our servers. Calling it again changes nothing."""
    global _patched
    if _patched:
        return
    _patched = True
    # Notes about the CPU's instructions, before every program's output, help nobody.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    from ferroflow import names

    names.install(Server)
