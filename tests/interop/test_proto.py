"""Compares our messages with real TensorFlow's, field by field.

TensorFlow's side comes from two places: the Python modules of the installed wheel, and the descriptors that its
libraries embed, since the messages of the master and the worker service have no Python modules.
"""

import glob
import importlib
import importlib.util
import mmap
import os
import re
import subprocess

import pytest
from google.protobuf import descriptor_pb2

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIBRARIES = ["libtensorflow_cc.so.2", "libtensorflow_framework.so.2"]
MODULES = [
    "core/example/*_pb2.py",
    "core/framework/*_pb2.py",
    "core/protobuf/*_pb2.py",
    "core/util/*_pb2.py",
    "python/training/checkpoint_state_pb2.py",
    "tsl/protobuf/*_pb2.py",
]
Field = descriptor_pb2.FieldDescriptorProto
LENGTH_DELIMITED = {Field.TYPE_STRING, Field.TYPE_BYTES, Field.TYPE_MESSAGE, Field.TYPE_GROUP}


class Definitions:
    """All messages and enums of a set of files by full name, in a form that can be compared."""

    def __init__(self, files):
        self.messages = {}
        self.enums = {}
        for file in files:
            self._add(file, f".{file.package}", file.message_type, file.enum_type)

    def _add(self, file, scope, messages, enums):
        syntax = file.syntax or "proto2"
        for enum in enums:
            self.enums[f"{scope}.{enum.name}"] = {value.name: value.number for value in enum.value}
        for message in messages:
            name = f"{scope}.{message.name}"
            self.messages[name] = {
                "file": file.name,
                "syntax": syntax,
                "map entry": message.options.map_entry,
                "fields": {field.number: describe(field, message, syntax) for field in message.field},
            }
            self._add(file, name, message.nested_type, message.enum_type)


def describe(field, message, syntax):
    """Everything about a field that matters to the wire or to generated code."""
    packed = None
    if field.label == Field.LABEL_REPEATED and field.type not in LENGTH_DELIMITED:
        packed = field.options.packed if field.options.HasField("packed") else syntax == "proto3"
    return {
        "name": field.name,
        "type": Field.Type.Name(field.type),
        "label": Field.Label.Name(field.label),
        "type name": field.type_name,
        "packed": packed,
        "oneof": message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else None,
        "optional": field.proto3_optional,
        "default": field.default_value,
    }


@pytest.fixture(scope="module")
def ours():
    path = os.environ.get("FERROFLOW_DESCRIPTORS")
    if path:
        with open(path, "rb") as file:
            serialized = file.read()
    else:
        command = ["cargo", "run", "--quiet", "--package", "ferroflow-proto", "--example", "descriptors"]
        serialized = subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE).stdout
    files = descriptor_pb2.FileDescriptorSet.FromString(serialized).file
    return Definitions(file for file in files if file.package.startswith("tensorflow"))


@pytest.fixture(scope="module")
def tensorflow_directory():
    return importlib.util.find_spec("tensorflow").submodule_search_locations[0]


@pytest.fixture(scope="module")
def embedded(tensorflow_directory):
    files = {}
    for library in LIBRARIES:
        with open(os.path.join(tensorflow_directory, library), "rb") as file:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                for descriptor in embedded_descriptors(data):
                    files[descriptor.name] = descriptor
    return Definitions(files.values())


@pytest.fixture(scope="module")
def imported(tensorflow_directory):
    files = {}
    for pattern in MODULES:
        for path in glob.glob(os.path.join(tensorflow_directory, pattern)):
            relative = os.path.relpath(path, os.path.dirname(tensorflow_directory))
            module = importlib.import_module(relative[: -len(".py")].replace(os.sep, "."))
            collect(module.DESCRIPTOR, files)
    return Definitions(files.values())


def collect(file, files):
    if file.name not in files:
        files[file.name] = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(files[file.name])
        for dependency in file.dependencies:
            collect(dependency, files)


def embedded_descriptors(data):
    """Finds serialized FileDescriptorProtos: each begins with its own file name as field 1."""
    for match in re.finditer(rb"\n.{1,2}?((?:tensorflow|tsl)/[A-Za-z0-9_/]+\.proto)", data, re.DOTALL):
        length, name_start = read_varint(data, match.start() + 1)
        if name_start != match.start(1) or length != len(match.group(1)):
            continue
        end = end_of_file_descriptor(data, match.start())
        try:
            descriptor = descriptor_pb2.FileDescriptorProto.FromString(data[match.start() : end])
        except Exception:  # Some other string that happens to look alike.
            continue
        if descriptor.message_type or descriptor.enum_type:
            yield descriptor


def end_of_file_descriptor(data, start):
    """Walks over top-level fields for as long as they could belong to a FileDescriptorProto."""
    wire_types = {1: 2, 2: 2, 3: 2, 4: 2, 5: 2, 6: 2, 7: 2, 8: 2, 9: 2, 10: 0, 11: 0, 12: 2}
    position = start
    while position < len(data):
        tag, value_start = read_varint(data, position)
        if wire_types.get(tag >> 3) != tag & 7 or (tag >> 3 == 1 and position != start):
            break
        value, next_position = read_varint(data, value_start)
        if tag & 7 == 2:
            next_position += value
        if next_position > len(data):
            break
        position = next_position
    return position


def read_varint(data, position):
    """Returns the value and where it ends; an over-long one ends the walk by its impossible value."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    return 1 << 70, position


def differences(ours, theirs):
    """A line for each way in which our definitions differ from theirs, over what both have."""
    lines = []
    for name, message in sorted(ours.messages.items()):
        other = theirs.messages.get(name)
        if other is None:
            continue
        for aspect in ("syntax", "map entry"):
            if message[aspect] != other[aspect]:
                lines.append(f"{name}: {aspect} is {message[aspect]}, TensorFlow has {other[aspect]}")
        for number in sorted(message["fields"].keys() | other["fields"].keys()):
            our_field, their_field = message["fields"].get(number), other["fields"].get(number)
            if our_field is None:
                lines.append(f"{name}: we lack field {number}, {their_field}")
            elif their_field is None:
                lines.append(f"{name}: TensorFlow has no field {number}, {our_field}")
            else:
                for aspect, value in our_field.items():
                    if value != their_field[aspect]:
                        lines.append(
                            f"{name}.{our_field['name']} = {number}: {aspect} is {value!r}, "
                            f"TensorFlow has {their_field[aspect]!r}"
                        )
    for name, values in sorted(ours.enums.items()):
        if name in theirs.enums and values != theirs.enums[name]:
            mismatch = sorted(set(values.items()) ^ set(theirs.enums[name].items()))
            lines.append(f"{name}: values differ in {mismatch}")
    return lines


def test_messages_equal_those_in_the_libraries(ours, embedded):
    lines = differences(ours, embedded)
    assert not lines, "\n" + "\n".join(lines)


def test_messages_equal_those_in_the_python_modules(ours, imported):
    lines = differences(ours, imported)
    assert not lines, "\n" + "\n".join(lines)


def test_every_message_of_ours_was_compared(ours, embedded, imported):
    known = embedded.messages.keys() | embedded.enums.keys() | imported.messages.keys() | imported.enums.keys()
    unknown = sorted((ours.messages.keys() | ours.enums.keys()) - known)
    assert not unknown, f"not in TensorFlow, or not found there: {unknown}"


def test_all_messages_of_both_services_are_declared(ours, embedded):
    for file in ("tensorflow/core/protobuf/master.proto", "tensorflow/core/protobuf/worker.proto"):
        theirs = {name for name, message in embedded.messages.items() if message["file"] == file}
        assert theirs, f"{file} was not found in the libraries"
        assert not theirs - ours.messages.keys()


@pytest.mark.parametrize(
    "change, report",
    [
        (lambda message: message.field[0].__setattr__("name", "other"), "name is 'numbers', TensorFlow has 'other'"),
        (lambda message: message.field[0].__setattr__("type", Field.TYPE_UINT32), "type is 'TYPE_INT32'"),
        (lambda message: message.field[0].__setattr__("number", 3), "we lack field 3"),
        (lambda message: message.field[0].options.__setattr__("packed", False), "packed is True"),
        (lambda message: message.field[1].ClearField("oneof_index"), "oneof is 'kind', TensorFlow has None"),
        (lambda message: message.field[1].__setattr__("type_name", ".p.Other"), "type name is '.p.M'"),
        (lambda message: message.field.__delitem__(1), "TensorFlow has no field 2"),
        (lambda message: message.enum_type[0].value[0].__setattr__("number", 1), "values differ"),
    ],
)
def test_a_difference_is_reported(change, report):
    """Guards the comparison itself, which would also pass if it compared nothing."""
    file = descriptor_pb2.FileDescriptorProto(name="sample.proto", package="p", syntax="proto3")
    message = file.message_type.add(name="M")
    message.oneof_decl.add(name="kind")
    message.field.add(name="numbers", number=1, type=Field.TYPE_INT32, label=Field.LABEL_REPEATED)
    message.field.add(
        name="inner", number=2, type=Field.TYPE_MESSAGE, label=Field.LABEL_OPTIONAL, type_name=".p.M", oneof_index=0
    )
    message.enum_type.add(name="E").value.add(name="ZERO", number=0)
    before = Definitions([file])
    assert differences(before, before) == []
    change(message)
    assert report in "\n".join(differences(before, Definitions([file])))


def test_calls_are_those_of_the_libraries(tensorflow_directory):
    pattern = rb"/tensorflow\.(?:Master|Worker)Service/[A-Za-z]+"
    with open(os.path.join(tensorflow_directory, LIBRARIES[0]), "rb") as file:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            theirs = set(re.findall(pattern, data))
    with open(os.path.join(REPOSITORY, "crates/proto/src/service.rs"), "rb") as file:
        mine = set(re.findall(pattern, file.read()))
    assert mine == theirs


def test_every_setting_is_on_the_compatibility_page():
    import tensorflow.compat.v1 as tf

    with open(os.path.join(REPOSITORY, "docs", "compatibility.md")) as file:
        sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", file.read(), re.DOTALL | re.MULTILINE))
    for message in (tf.ConfigProto, tf.RunOptions):
        rows = re.findall(r"^\| ([a-z_, ]+) \|", sections[message.DESCRIPTOR.name], re.MULTILINE)
        listed = [name for row in rows for name in row.split(", ") if name != "field"]
        assert sorted(listed) == sorted(field.name for field in message.DESCRIPTOR.fields)
