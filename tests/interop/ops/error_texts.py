"""Compares the texts of errors with TensorFlow's: programs and their tests match on them.

Ours must contain TensorFlow's text, with any text around it. `error_texts_accepted.txt` lists the cases whose text differs, each
by the module and the name of the case. No line may be added: a new case has TensorFlow's text from the start, and a listed case
that matches fails until its line is removed.
"""

import functools
import pathlib
import re

ACCEPTED = pathlib.Path(__file__).with_name("error_texts_accepted.txt")
# The prefixes with which the client says where the graph was made, and a server which task it is.
BEFORE = re.compile(r"^Graph execution error:.*?\nNode: '[^']*'\n|^From /job:[^\n]*:\n", re.DOTALL)
# From the name of a node on, the text is about the graph and the task, not about the input.
NODE = re.compile(r"\s*\[\[\{\{node .*", re.DOTALL)


def text_of(error):
    """Returns the part of an error that is about the input."""
    text = error.message
    while BEFORE.match(text):
        text = BEFORE.sub("", text, count=1)
    return NODE.sub("", text).strip()


@functools.cache
def accepted():
    return ACCEPTED.read_text().splitlines()


def check(case, expected, got):
    """Fails if a case's text differs and is not listed, or is listed and does not differ."""
    theirs, ours = text_of(expected), text_of(got)
    if case in accepted():
        assert theirs not in ours, f"it says what TensorFlow says: take {case!r} out of {ACCEPTED.name}"
    else:
        assert theirs in ours, f"TensorFlow says: {theirs}\nours says: {ours}"
