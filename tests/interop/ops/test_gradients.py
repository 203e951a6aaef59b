"""The gradients that the Rust library forms equal those that `tf.gradients` forms.

The graphs of all tables in this folder, with the gradients that the real client has added, are handed to a Rust program,
which adds its own gradients of the same outputs with respect to the same inputs. TensorFlow's local session then computes
both from the same feeds, so that what is compared is what the two libraries build.
"""

import re
import subprocess

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import harness
import reference
import side_by_side
import tables

R = tf.raw_ops
RANDOM = np.random.RandomState(23)
# Gradients of ops whose cases elsewhere are compared without them.
TABLE = side_by_side.Table()


def uniform(*shape):
    return RANDOM.uniform(-1, 1, shape).astype(np.float32)


WINDOW = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
CUBE = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 2, 2, 2, 1], "padding": "VALID"}
STEP = {"strides": [1, 1, 1, 1], "padding": "VALID"}
STEP3 = {"strides": [1, 1, 1, 1, 1], "padding": "VALID"}


def max_pool_grad(given):
    image = given(uniform(1, 4, 4, 2))
    return R.MaxPoolGrad(orig_input=image, orig_output=R.MaxPool(input=image, **WINDOW), grad=given(uniform(1, 2, 2, 2)), **WINDOW)


def max_pool_3d_grad(given):
    image = given(uniform(1, 2, 4, 4, 2))
    return R.MaxPool3DGrad(orig_input=image, orig_output=R.MaxPool3D(input=image, **CUBE), grad=given(uniform(1, 1, 2, 2, 2)), **CUBE)


def lists(given):
    made = R.TensorListFromTensor(tensor=given(uniform(3, 2)), element_shape=[2])
    made = R.TensorListSetItem(input_handle=made, index=1, item=given(uniform(2)))
    made = R.TensorListPushBack(input_handle=made, tensor=given(uniform(2)))
    shape = {"element_shape": [2], "element_dtype": tf.float32}
    rest, last = R.TensorListPopBack(input_handle=made, **shape)
    return [R.TensorListStack(input_handle=rest, **shape), last, R.TensorListGetItem(input_handle=made, index=2, **shape),
            R.TensorListGather(input_handle=made, indices=[3, 0], **shape)]


def ragged(splits, batched, rank):
    """Values that go through a variant and come back, with as many splits."""
    def expression(given):
        made = R.RaggedTensorToVariant(
            rt_nested_splits=[tf.constant(one, tf.int64) for one in splits], rt_dense_values=given(uniform(5, 2)), batched_input=batched)
        return R.RaggedTensorFromVariant(
            encoded_ragged=made, input_ragged_rank=rank, output_ragged_rank=len(splits), Tvalues=tf.float32).output_dense_values

    return expression


for name, expression in {
        "AvgPoolGrad": lambda given: R.AvgPoolGrad(orig_input_shape=[1, 4, 4, 2], grad=given(uniform(1, 2, 2, 2)), **WINDOW),
        "AvgPool3DGrad": lambda given: R.AvgPool3DGrad(orig_input_shape=[1, 2, 4, 4, 2], grad=given(uniform(1, 1, 2, 2, 2)), **CUBE),
        "MaxPoolGrad": max_pool_grad,
        "MaxPool3DGrad": max_pool_3d_grad,
        "Conv2DBackpropFilter": lambda given: R.Conv2DBackpropFilter(
            input=given(uniform(1, 4, 4, 2)), filter_sizes=[2, 2, 2, 3], out_backprop=given(uniform(1, 3, 3, 3)), **STEP),
        "Conv3DBackpropFilterV2": lambda given: R.Conv3DBackpropFilterV2(
            input=given(uniform(1, 3, 3, 3, 2)), filter_sizes=[2, 2, 2, 2, 3], out_backprop=given(uniform(1, 2, 2, 2, 3)), **STEP3),
        "Conv3DBackpropInputV2": lambda given: R.Conv3DBackpropInputV2(
            input_sizes=[1, 3, 3, 3, 2], filter=given(uniform(2, 2, 2, 2, 3)), out_backprop=given(uniform(1, 2, 2, 2, 3)), **STEP3),
        "DepthwiseConv2dNativeBackpropFilter": lambda given: R.DepthwiseConv2dNativeBackpropFilter(
            input=given(uniform(1, 4, 4, 2)), filter_sizes=[2, 2, 2, 2], out_backprop=given(uniform(1, 3, 3, 4)), **STEP),
        "DepthwiseConv2dNativeBackpropInput": lambda given: R.DepthwiseConv2dNativeBackpropInput(
            input_sizes=[1, 4, 4, 2], filter=given(uniform(2, 2, 2, 2)), out_backprop=given(uniform(1, 3, 3, 4)), **STEP),
        "BatchToSpace": lambda given: R.BatchToSpace(input=given(uniform(4, 1, 2, 1)), crops=[[0, 0], [1, 0]], block_size=2),
        "BatchToSpaceND": lambda given: R.BatchToSpaceND(input=given(uniform(4, 1, 2, 1)), block_shape=[2, 2], crops=[[0, 0], [1, 0]]),
        "SpaceToBatch": lambda given: R.SpaceToBatch(input=given(uniform(1, 2, 3, 1)), paddings=[[0, 0], [1, 0]], block_size=2),
        "SpaceToBatchND": lambda given: R.SpaceToBatchND(input=given(uniform(1, 2, 3, 1)), block_shape=[2, 2], paddings=[[0, 0], [1, 0]]),
        "MatrixBandPart": lambda given: R.MatrixBandPart(input=given(uniform(2, 3, 4)), num_lower=1, num_upper=0),
        "MatrixDiag": lambda given: R.MatrixDiag(diagonal=given(uniform(2, 3))),
        "MatrixDiagV2": lambda given: R.MatrixDiagV2(diagonal=given(uniform(2, 3)), k=1, num_rows=-1, num_cols=-1, padding_value=given(0.5)),
        "MatrixDiagV3": lambda given: R.MatrixDiagV3(diagonal=given(uniform(2, 2, 3)), k=[0, 1], num_rows=3, num_cols=4, padding_value=given(0.5), align="LEFT_RIGHT"),
        "MatrixDiagPart": lambda given: R.MatrixDiagPart(input=given(uniform(2, 3, 3))),
        "MatrixDiagPartV2": lambda given: R.MatrixDiagPartV2(input=given(uniform(2, 3, 4)), k=1, padding_value=given(0.5)),
        "MatrixDiagPartV3": lambda given: R.MatrixDiagPartV3(input=given(uniform(2, 3, 4)), k=[-1, 1], padding_value=given(0.5), align="RIGHT_LEFT"),
        "MatrixSetDiag": lambda given: R.MatrixSetDiag(input=given(uniform(2, 3, 4)), diagonal=given(uniform(2, 3))),
        "MatrixSetDiagV2": lambda given: R.MatrixSetDiagV2(input=given(uniform(2, 3, 4)), diagonal=given(uniform(2, 3)), k=1),
        "MatrixSetDiagV3": lambda given: R.MatrixSetDiagV3(input=given(uniform(2, 3, 4)), diagonal=given(uniform(2, 2, 3)), k=[0, 1]),
        "MirrorPadGrad": lambda given: R.MirrorPadGrad(input=given(uniform(4, 5)), paddings=[[1, 1], [0, 2]], mode="SYMMETRIC"),
        "StridedSliceGrad": lambda given: R.StridedSliceGrad(shape=[4, 5], begin=[1, 0], end=[3, 5], strides=[1, 2], dy=given(uniform(2, 3))),
        "ResizeNearestNeighborGrad": lambda given: R.ResizeNearestNeighborGrad(grads=given(uniform(1, 4, 4, 2)), size=[2, 3]),
        "PlaceholderWithDefault": lambda given: R.PlaceholderWithDefault(input=given(uniform(2, 3)), shape=[None, 3]),
        "ParallelDynamicStitch": lambda given: R.ParallelDynamicStitch(indices=[[3, 0], [1, 2]], data=[given(uniform(2, 2)), given(uniform(2, 2))]),
        "Polygamma": lambda given: R.Polygamma(a=tf.constant([1.0, 2.0]), x=given(np.array([0.5, 2.5]))),
        "TensorArray": lambda given: tf.TensorArray(tf.float32, 3).unstack(given(uniform(3, 2))).stack(),
        "TensorArray/write": lambda given: (lambda array: [array.read(0), array.concat()])(
            tf.TensorArray(tf.float32, 2, clear_after_read=False).write(0, given(uniform(2))).write(1, given(uniform(2)))),
        "TensorArray/split": lambda given: tf.TensorArray(tf.float32, 2, infer_shape=False).split(given(uniform(3, 2)), [1, 2]).concat(),
        "TensorArray/gather": lambda given: tf.TensorArray(tf.float32, 3).scatter([2, 0, 1], given(uniform(3, 2))).gather([1, 2]),
        "TensorList": lists,
        "RaggedTensorToVariant/whole": ragged([[0, 2, 2, 5]], False, 1),
        "RaggedTensorToVariant/batched": ragged([[0, 2, 2, 5]], True, 0),
        "RaggedTensorToVariant/two_levels": ragged([[0, 1, 3], [0, 2, 2, 5]], True, 1),
}.items():
    TABLE.add(f"gradient/{name}", expression)

results, test_op, test_at_a_lower_level, test_beside_onednn = TABLE.tests()

# What TensorFlow has of loops and conditionals is in the graph only as ops; the Rust library goes back over those that it built.
CONTROL_FLOW = {"Switch", "Merge", "Enter", "Exit", "RefSwitch", "NextIteration", "LoopCond", "RefMerge", "RefEnter", "RefExit", "RefNextIteration"}
# Ops with a gradient that no case here goes back over: old versions, of which the newest has one; those that take variables
# or lists, which are not fed; those whose gradient a client does not form of what is fed; and BlockLSTMV2, whose gradient
# TensorFlow's Python takes of BlockLSTM, with the gates in another order.
WITHOUT_A_CASE = {
    "TensorArrayConcat", "TensorArrayConcatV2", "TensorArrayGather", "TensorArrayGatherV2", "TensorArrayRead", "TensorArrayReadV2",
    "TensorArrayScatter", "TensorArrayScatterV2", "TensorArraySplit", "TensorArraySplitV2", "TensorArrayWrite", "TensorArrayWriteV2",
    "TopK", "AccumulateNV2", "BatchNormWithGlobalNormalization", "CheckNumericsV2", "MaxPool3DGradGrad", "MaxPoolGradGrad",
    "BlockLSTMV2", "MaxPoolGradGradV2", "MaxPoolGradV2", "PreventGradient", "ReadVariableOp", "RefIdentity", "ResizeNearestNeighborGrad", "ResourceGather",
    "ResourceGatherNd", "TensorListConcat", "TensorListConcatV2", "TensorListResize", "TensorListScatter",
    "TensorListScatterIntoExistingList", "TensorListScatterV2", "TensorListSplit",
}


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
    return harness.example("table_gradients")


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
        graph = self.imported(tf.GraphDef.FromString(path.with_suffix(".added").read_bytes()))
        pairs = {}
        for case, names in self.gradients.items():
            if case not in self.errors:
                expected = [gradient.name for gradient in built.differentiated[case].gradients if gradient is not None]
                pairs[case] = [expected, [name for name in names if name is not None]]
        config = tf.ConfigProto(isolate_session_state=True)
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        with reference.Session(graph, built.initializers, config) as session:
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
            assert name is not None, f"there is no gradient {index}, where TensorFlow has {tensor.op.type}"
            side_by_side.compare(f"{case}, gradient {index}", tensor.dtype, next(wanted), next(got), self.cases[case])


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
        except (AssertionError, tf.errors.OpError) as failure:
            failures[case] = str(failure)
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
