"""Prints TensorFlow's op definitions as the Rust literals of the `ops` crate.

The strings in a literal are in TensorFlow's registration language, with every short-hand spelled out, so that one OpDef has
exactly one text: a test compares our definitions with `literal(op)` of the installed TensorFlow's.

    python opdef.py MatMul Conv2D      # these ops
    python opdef.py --all              # every registered op, sorted by name
"""

import argparse
import json
import math
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from google.protobuf import text_format

from tensorflow.core.framework import op_def_pb2, types_pb2
from tensorflow.python.client import pywrap_tf_session

FLAGS = (
    ("is_stateful", "STATEFUL"),
    ("is_commutative", "COMMUTATIVE"),
    ("is_aggregate", "AGGREGATE"),
    ("allows_uninitialized_input", "ALLOWS_UNINITIALIZED_INPUT"),
    ("is_distributed_communication", "DISTRIBUTED_COMMUNICATION"),
)

# The width that rustfmt.toml sets.
MAX_WIDTH = 120


def registered_ops():
    """Returns a dict from name to OpDef of every op in the installed TensorFlow."""
    # Importing the package loads the ops that live in its Python extension modules.
    import tensorflow  # noqa: F401  pylint: disable=unused-import

    op_list = op_def_pb2.OpList()
    buffer = pywrap_tf_session.TF_GetAllOpList()
    op_list.ParseFromString(pywrap_tf_session.TF_GetBuffer(buffer))
    return {op.name: op for op in op_list.op}


def literal(op, indent=""):
    """Returns the Rust literal of an OpDef, as rustfmt would format it at this indent."""
    inner = indent + "    "
    return "\n".join([
        indent + "OpDef {",
        f"{inner}name: {rust_string(op.name)},",
        rust_field("inputs", map(arg_text, op.input_arg), inner),
        rust_field("outputs", map(arg_text, op.output_arg), inner),
        rust_field("attrs", map(attr_text, op.attr), inner),
        f"{inner}flags: {flags_text(op)},",
        indent + "}",
    ])


def fields(op):
    """Returns the definition as plain data, for comparison without layout."""
    return {
        "name": op.name,
        "inputs": [arg_text(arg) for arg in op.input_arg],
        "outputs": [arg_text(arg) for arg in op.output_arg],
        "attrs": [attr_text(attr) for attr in op.attr],
        "flags": [name for field, name in FLAGS if getattr(op, field)],
    }


def arg_text(arg):
    """Returns `name: type` of an input or output, such as `values: N * T`."""
    if arg.type_list_attr:
        text = arg.type_list_attr
    elif arg.type_attr:
        text = arg.type_attr
    else:
        text = type_name(arg.type)
    if arg.number_attr:
        text = f"{arg.number_attr} * {text}"
    if arg.is_ref:
        text = f"Ref({text})"
    return f"{arg.name}: {text}"


def attr_text(attr):
    """Returns `name: type [constraint] [= default]` of an attribute."""
    kind = attr.type
    if attr.HasField("allowed_values"):
        allowed = attr.allowed_values.list
        if allowed.type:
            values = [type_name(value) for value in allowed.type]
        else:
            values = [quoted(value) for value in allowed.s]
        choice = "{" + ", ".join(values) + "}"
        kind = f"list({choice})" if kind.startswith("list(") else choice
    text = f"{attr.name}: {kind}"
    if attr.has_minimum:
        text += f" >= {attr.minimum}"
    if attr.HasField("default_value"):
        text += f" = {value_text(attr.type, attr.default_value)}"
    return text


def value_text(kind, value):
    """Returns the text of an AttrValue whose attribute has the given type."""
    if kind.startswith("list("):
        kind = kind[len("list("):-1]
        field = {"string": "s", "int": "i", "float": "f", "bool": "b", "type": "type",
                 "shape": "shape", "tensor": "tensor", "func": "func"}[kind]
        return "[" + ", ".join(scalar_text(kind, item) for item in getattr(value.list, field)) + "]"
    return scalar_text(kind, getattr(value, {"string": "s", "int": "i", "float": "f", "bool": "b"}.get(kind, kind)))


def scalar_text(kind, item):
    if kind == "string":
        return quoted(item)
    if kind == "int":
        return str(item)
    if kind == "float":
        return float_text(item)
    if kind == "bool":
        return "true" if item else "false"
    if kind == "type":
        return types_pb2.DataType.Name(item)
    text = text_format.MessageToString(item, as_one_line=True).strip()
    return "{ " + text + " }" if text else "{ }"


def float_text(value):
    """Returns the shortest decimal that parses to the same 32-bit float."""
    if math.isinf(value) or math.isnan(value):
        return str(value)
    return str(np.float32(value))


def type_name(data_type):
    """Returns the registration language's name of a DataType: `float`, `int32`."""
    return types_pb2.DataType.Name(data_type)[len("DT_"):].lower()


def quoted(data):
    """Returns bytes between single quotes, escaped as in C."""
    out = []
    for byte in bytes(data):
        char = chr(byte)
        if char in "'\\":
            out.append("\\" + char)
        elif char == "\n":
            out.append("\\n")
        elif 32 <= byte < 127:
            out.append(char)
        else:
            out.append(f"\\{byte:03o}")
    return "'" + "".join(out) + "'"


def flags_text(op):
    names = ["OpFlags::" + name for field, name in FLAGS if getattr(op, field)]
    if not names:
        return "OpFlags::NONE"
    return names[0] + "".join(f".union({name})" for name in names[1:])


def rust_string(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def rust_field(name, items, indent):
    items = [rust_string(item) for item in items]
    line = f"{indent}{name}: &[{', '.join(items)}],"
    if len(line) <= MAX_WIDTH:
        return line
    return f"{indent}{name}: &[\n" + "".join(f"{indent}    {item},\n" for item in items) + f"{indent}],"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="OP")
    parser.add_argument("--all", action="store_true", help="every registered op")
    parser.add_argument("--json", action="store_true", help="one JSON object per op instead of Rust")
    arguments = parser.parse_args()
    ops = registered_ops()
    names = sorted(ops) if arguments.all else arguments.names
    unknown = [name for name in names if name not in ops]
    for name in unknown:
        print(f"opdef: TensorFlow has no op named {name}", file=sys.stderr)
    for name in names:
        if name in ops:
            print(json.dumps(fields(ops[name])) if arguments.json else literal(ops[name]))
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
