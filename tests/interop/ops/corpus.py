"""Writes the graphs of all tables of this directory, one per case, with their feeds and fetches, for fuzzing: `corpus.py
FILE`."""

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

import tensorflow.compat.v1 as tf

import tables


def write(path):
    """Writes a CreateSessionRequest and a RunStepRequest for each case, each preceded by its length; returns the number of
    cases."""
    count = 0
    with open(path, "wb") as file:
        for table in tables.all().values():
            built = table.built()
            definition = built.graph.as_graph_def()
            nodes = {node.name: node for node in definition.node}
            feeds = {placeholder.op.name: (placeholder.name, value) for placeholder, value in built.feed.items()}
            for fetches in built.fetches.values():
                needed = ancestors(nodes, [tensor.op.name for tensor in fetches])
                graph = tf.GraphDef(node=[nodes[name] for name in needed], versions=definition.versions)
                if uses_functions(graph, definition.library):
                    graph.library.CopyFrom(definition.library)
                session = field(1, graph.SerializeToString())
                step = b"".join(fed(nodes[name], *feeds[name]) for name in needed if name in feeds)
                step += b"".join(field(3, tensor.name.encode()) for tensor in fetches)
                for message in (session, step):
                    file.write(varint(len(message)) + message)
                count += 1
    return count


def fed(node, name, value):
    """Returns a NamedTensorProto as a RunStepRequest's feed; the client has these messages only in C++."""
    tensor = tf.make_tensor_proto(value, dtype=node.attr["dtype"].type, shape=value.shape)
    return field(2, field(1, name.encode()) + field(2, tensor.SerializeToString()))


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(number):
    data = bytearray()
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    return bytes(data + bytes([number]))


def uses_functions(graph, library):
    names = {function.signature.name for function in library.function}
    return any(
        node.op in names or any(value.HasField("func") or value.list.func for value in node.attr.values()) for node in graph.node)


def ancestors(nodes, names):
    found, stack = {}, list(names)
    while stack:
        name = stack.pop()
        if name not in found:
            found[name] = None
            stack.extend(one.lstrip("^").split(":")[0] for one in nodes[name].input)
            stack.extend(location[5:].decode() for location in nodes[name].attr["_class"].list.s if location.startswith(b"loc:@"))
            stack = [one for one in stack if one in nodes]
    return sorted(found)


if __name__ == "__main__":
    print(write(sys.argv[1]), "graphs")
