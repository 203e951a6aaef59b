"""Holds the texts of errors to TensorFlow's: programs and their tests match on them.

TensorFlow's text is in ours, which may say more around it. `error_texts_accepted.txt` lists the cases whose text differs, each as
the module and the name of the case. No line may be added: a new case says what TensorFlow says from the start, and a case that
does so by now fails until its line is taken out.
"""

import functools
import pathlib
import re

ACCEPTED = pathlib.Path(__file__).with_name("error_texts_accepted.txt")
# What the client puts before an error to say where the graph was made, and a server to say who it is.
BEFORE = re.compile(r"^Graph execution error:.*?\nNode: '[^']*'\n|^From /job:[^\n]*:\n", re.DOTALL)
# Where a node is named, what follows is about the graph and the task, not about the input.
NODE = re.compile(r"\s*\[\[\{\{node .*", re.DOTALL)


def text_of(error):
    """Returns what an error says of the input."""
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
