"""Every op definition of ours equals the installed TensorFlow's."""

import subprocess

import pytest

import harness
import opdef


@pytest.fixture(scope="module")
def ours():
    command = ["cargo", "run", "--quiet", "--package", "ferroflow-ops", "--example", "definitions"]
    output = subprocess.run(command, cwd=harness.ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = {}
    for line in output.splitlines():
        name, *lists = line.split("\t")
        inputs, outputs, attrs, flags = (text.split("\x1f") if text else [] for text in lists)
        found[name] = {"name": name, "inputs": inputs, "outputs": outputs, "attrs": attrs, "flags": flags}
    return found


@pytest.fixture(scope="module")
def theirs():
    return opdef.registered_ops()


def test_definitions_equal_tensorflows(ours, theirs):
    differences = []
    for name, definition in ours.items():
        if name in theirs:
            expected = opdef.fields(theirs[name])
            differences += [f"{name}.{part}: ours {definition[part]}, TensorFlow's {expected[part]}"
                            for part in expected if definition[part] != expected[part]]
    assert not differences, "\n".join(differences)
    assert len(ours) > 100


def test_ops_that_tensorflow_lacks_are_internal(ours, theirs):
    # Ops that our passes make start with an underscore, as TensorFlow's own internal ops do.
    assert [name for name in ours if name not in theirs and not name.startswith("_")] == []
