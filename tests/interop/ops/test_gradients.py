"""The gradients that the Rust library forms equal those that `tf.gradients` forms.

The graphs of all tables in this folder, with the gradients that the real client has added, are handed to a Rust program,
which adds its own gradients of the same outputs with respect to the same inputs. TensorFlow's local session then computes
both from the same feeds, so that what is compared is what the two libraries build.
"""

import json
import re
import subprocess

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import harness
import side_by_side
import tables

# What TensorFlow has of loops and conditionals is in the graph only as ops; the Rust library goes back over those that it built.
CONTROL_FLOW = {"Switch", "Merge", "Enter", "Exit", "RefSwitch", "NextIteration", "LoopCond", "RefMerge", "RefEnter", "RefExit", "RefNextIteration"}
# Gradients that TensorFlow has and the Rust library has not yet, by the beginning of the name of the case.
MISSING = (
    "GatherV2/float32", "GatherV2/float64", "GatherV2/complex64", "GatherV2/batch/float32",  # an axis that is computed
    "Qr/wide", "TridiagonalSolve/one", "TridiagonalMatMul", "RaggedTensorToTensor", "SparseReduceSum", "SparseDenseCwiseMul",
    "SparseDenseCwiseDiv", "SparseSoftmax",
)
# Ops with a gradient that no case here goes back over.
WITHOUT_A_CASE = set()


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """For each table and case what both gradients are, and the ops that each case goes back over."""
    directory = tmp_path_factory.mktemp("gradients")
    built = {name: table.built() for name, table in tables.all().items()}
    for name, one in built.items():
        (directory / f"{name}.pb").write_bytes(one.graph.as_graph_def().SerializeToString())
        (directory / f"{name}.request").write_text("".join(request(one)))
    subprocess.run([program(), str(directory)], check=True)
    return {name: Outcome(one, tables.all()[name].cases, directory / name) for name, one in built.items()}


def program():
    build = ["cargo", "build", "--quiet", "--workspace", "--example", "table_gradients", "--message-format=json"]
    output = subprocess.run(build, cwd=harness.ROOT, check=True, stdout=subprocess.PIPE).stdout
    messages = [json.loads(line) for line in output.splitlines()]
    return [message["executable"] for message in messages if message.get("executable")][-1]


def request(built):
    """Yields what is asked of the program: outputs with their weights, and sources."""
    for name, one in built.differentiated.items():
        yield f"case\t{name}\n"
        for output, weight in zip(one.outputs, one.weights):
            yield f"y\t{output.name}\t{weight.name}\n"
        for source in one.sources:
            yield f"x\t{source.name}\n"


class Outcome:
    """What the program made of one table, and what TensorFlow computes of it."""

    def __init__(self, built, cases, path):
        self.built = built
        self.cases = cases
        self.client_ops = built.ops()
        self.errors = {}
        self.ops = {}
        self.gradients = {}
        for line in path.with_suffix(".answer").read_text().splitlines():
            kind, *rest = line.split("\t", 1)
            if kind == "case":
                case = rest[0]
                self.ops[case], self.gradients[case] = set(), []
            elif kind == "op":
                self.ops[case].add(rest[0])
            elif kind == "gradient":
                self.gradients[case].append(rest[0] or None)
            else:
                self.errors[case] = rest[0]
        with self.imported(tf.GraphDef.FromString(path.with_suffix(".added").read_bytes())).as_default():
            pairs = {}
            for case, names in self.gradients.items():
                if case not in self.errors:
                    expected = [gradient.name for gradient in built.differentiated[case].gradients if gradient is not None]
                    pairs[case] = [expected, [name for name in names if name is not None]]
            config = tf.ConfigProto(isolate_session_state=True)
            config.graph_options.rewrite_options.disable_meta_optimizer = True
            with tf.Session(config=config) as session:
                session.run([op.name for op in built.initializers])
                feed = {placeholder.name: value for placeholder, value in built.feed.items()}
                self.values = side_by_side.run_all(session, pairs, feed)

    def imported(self, added):
        """Returns the client's graph with what was added; cases whose nodes TensorFlow refuses are left out."""
        cases = list(self.gradients)
        while True:
            definition = self.built.graph.as_graph_def()
            definition.node.extend(added.node)
            try:
                with tf.Graph().as_default() as graph:
                    tf.import_graph_def(definition, name="")
                return graph
            except ValueError as error:
                scope = re.search(r"\bours(\d+)/", str(error))
                if scope is None:
                    raise
                self.errors[cases[int(scope[1])]] = str(error)
                kept = [node for node in added.node if not node.name.startswith(scope[0])]
                del added.node[:]
                added.node.extend(kept)

    def check(self, case):
        if case in self.errors:
            raise AssertionError(self.errors[case])
        if isinstance(self.values[case], Exception):
            raise self.values[case]
        wanted, got = map(iter, self.values[case])
        for index, (tensor, name) in enumerate(zip(self.built.differentiated[case].gradients, self.gradients[case])):
            assert tensor is not None or name is None, f"gradient {index} is {name}, where TensorFlow has none"
            if tensor is None:
                continue
            value = next(wanted)
            # Where nothing flows, TensorFlow has zeros now and then.
            ours = np.zeros_like(value) if name is None else next(got)
            side_by_side.compare(f"{case}, gradient {index}", tensor.dtype, value, ours, self.cases[case])


def is_built_by_the_client(ops):
    return bool(ops & CONTROL_FLOW)


@pytest.mark.parametrize("name", sorted(tables.names()))
def test_gradients_are_those_of_the_client(outcome, name):
    one = outcome[name]
    failures = {}
    for case in one.built.differentiated:
        if is_built_by_the_client(one.client_ops[case]):
            continue
        try:
            one.check(case)
            error = "it is no longer missing" if case.startswith(MISSING) else None
        except (AssertionError, tf.errors.OpError) as failure:
            error = None if case.startswith(MISSING) and case in one.errors else str(failure)
        if error:
            failures[case] = error
    assert not failures, "\n\n".join(f"{case}: {text[:1500]}" for case, text in failures.items())


def test_every_gradient_has_a_case(outcome, ferroflow_bin):
    output = subprocess.run([ferroflow_bin, "ops", "--markdown"], check=True, stdout=subprocess.PIPE, text=True).stdout
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in output.splitlines()[2:]]
    differentiable = {name for name, _, gradient, _ in rows if gradient == "gradient"}
    covered = set()
    for one in outcome.values():
        for case, ops in one.ops.items():
            if not is_built_by_the_client(one.client_ops[case]):
                covered |= ops
    assert sorted(differentiable - covered - WITHOUT_A_CASE) == [], "these have no case"
    assert sorted(WITHOUT_A_CASE & covered) == [], "these have cases"
