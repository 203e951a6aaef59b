"""Every op has a case, and docs/ops.md says how many.

The cases of all tables in this folder are built, and the ops in their graphs counted. What cannot run side by side with
TensorFlow is listed here with the reason and the test that covers it. `cargo xtask ops-document` writes docs/ops.md anew.
"""

import collections
import os
import re
import subprocess

import pytest

import absent
import error_table
import errors_compute  # noqa: F401 (fills the table)
import errors_state  # noqa: F401 (fills the table)
import harness
import tables

DOCUMENT = harness.ROOT / "docs" / "ops.md"
# What `ferroflow ops` knows of the cases: a line per op. The binary's package holds it, so that it builds from there alone.
COUNTS = harness.ROOT / "crates" / "cli" / "src" / "op_cases.txt"
HEAD = """# Ops

What `ferroflow ops --markdown` prints: each op with the types it has kernels for, whether it has a gradient ("none" where
TensorFlow calls it not differentiable, "-" where TensorFlow has none), and how many cases of the tests in `tests/interop/ops`
run it side by side with TensorFlow. `cargo xtask ops-document` writes this file; a test fails when it is not current. Ops with
no such case are covered by the tests that `tests/interop/ops/test_coverage.py` names. The last table says why other ops of
TensorFlow 2.15 are not here.

"""

INTERNAL = "made by our passes or by a real master, never by a client"
STEPS = "needs several steps of one session, or frames of its own"
MEMBERS = "needs several devices or tasks"
OTHER = "says something of the task that it runs on"
ELSEWHERE = [
    (INTERNAL, "crates/ops/src/control_flow/send_recv.rs", ["_Send", "_Recv", "_HostSend", "_HostRecv"]),
    (INTERNAL, "crates/ops/src/function/argument.rs", ["_Arg", "_Retval", "_DeviceArg", "_DeviceRetval", "_ListToArray", "_ArrayToList", "FakeParam"]),
    (INTERNAL, "crates/ops/src/nn/fused.rs", ["_FusedConv2D", "_FusedMatMul"]),
    (INTERNAL, "crates/ops/src/nn/batch_norm.rs", ["_FusedBatchNormEx"]),
    (INTERNAL, "crates/ops/src/math/fused_elementwise.rs", ["_FusedElementwise"]),
    (INTERNAL, "crates/ops/src/math/unary_composition.rs", ["_UnaryOpsComposition"]),
    (INTERNAL, "crates/ops/src/control_flow/branch.rs", ["_SwitchN"]),
    (INTERNAL, "crates/ops/src/array/inplace.rs", ["_ParallelConcatStart", "_ParallelConcatUpdate"]),
    (INTERNAL, "crates/ops/src/state/resource_variable.rs", ["_ReadVariablesOp", "_VarHandlesOp", "DisableCopyOnRead"]),
    (STEPS, "crates/ops/src/data_flow/session_handle.rs", ["DeleteSessionTensor", "GetSessionHandle", "GetSessionHandleV2", "GetSessionTensor"]),
    (STEPS, "crates/ops/src/control_flow/frame.rs", ["RefEnter", "RefExit", "RefNextIteration"]),
    (STEPS, "crates/ops/src/function/call.rs", ["RemoteCall", "SymbolicGradient"]),
    (STEPS, "crates/ops/src/nn/global_batch_norm.rs", ["BatchNormWithGlobalNormalization", "BatchNormWithGlobalNormalizationGrad"]),
    (STEPS, "tests/interop/test_input.py", ["OneShotIterator"]),
    (STEPS, "tests/interop/ops/test_sets.py", [
        "CloseSummaryWriter", "CreateSummaryFileWriter", "FlushSummaryWriter", "GenerateVocabRemapping", "ImportEvent",
        "LoadAndRemapMatrix", "SummaryWriter", "WriteGraphSummary", "WriteHistogramSummary", "WriteRawProtoSummary",
        "WriteAudioSummary", "WriteImageSummary", "WriteScalarSummary", "WriteSummary"]),
    (OTHER, "crates/ops/src/logging/print.rs", ["PrintV2", "Timestamp"]),
    (OTHER, "crates/ops/src/logging/media.rs", ["ImageSummary"]),
    (OTHER, "crates/ops/src/control_flow/trigger.rs", ["Abort"]),
    (OTHER, "crates/ops/src/function/argument.rs", ["DeviceIndex"]),
    (OTHER, "crates/ops/src/random/stateless.rs", ["StatelessRandomGetAlg", "StatelessRandomGetKeyCounterAlg"]),
    (STEPS, "tests/interop/test_pipelines.py", [
        "DatasetCardinality", "DatasetToSingleElement", "DirectedInterleaveDataset", "ExperimentalGroupByReducerDataset",
        "GroupByWindowDataset", "IgnoreErrorsDataset", "LegacyParallelInterleaveDatasetV2", "RandomDataset", "ReduceDataset",
        "RewriteDataset", "ScanDataset",
        "SerializeIterator", "TakeWhileDataset", "UniqueDataset", "WindowDataset", "DeserializeIterator",
        "AssertCardinalityDataset", "BytesProducedStatsDataset", "ExperimentalBytesProducedStatsDataset",
        "ExperimentalIgnoreErrorsDataset", "ExperimentalLatencyStatsDataset",
        "ExperimentalMaxIntraOpParallelismDataset", "ExperimentalNonSerializableDataset",
        "ExperimentalPrivateThreadPoolDataset", "ExperimentalSleepDataset", "ExperimentalSlidingWindowDataset",
        "ExperimentalUnbatchDataset", "ExperimentalUniqueDataset", "LatencyStatsDataset",
        "MaxIntraOpParallelismDataset", "NonSerializableDataset", "PrivateThreadPoolDataset", "SamplingDataset",
        "SleepDataset", "SlidingWindowDataset"]),
    (STEPS, "tests/interop/test_callbacks.py", ["GeneratorDataset", "PyFunc", "PyFuncStateless"]),
    (MEMBERS, "tests/interop/test_mirrored.py", [
        "MultiDeviceIterator", "MultiDeviceIteratorFromStringHandle", "MultiDeviceIteratorGetNextFromShard", "MultiDeviceIteratorInit",
        "MultiDeviceIteratorToStringHandle"]),
    (MEMBERS, "tests/interop/test_collectives.py", [
        "CollectiveAllToAllV2", "CollectiveAllToAllV3", "CollectiveAssignGroupV2", "CollectiveBcastRecv", "CollectiveBcastRecvV2",
        "CollectiveBcastSend", "CollectiveBcastSendV2", "CollectiveGather", "CollectiveGatherV2", "CollectiveInitializeCommunicator",
        "CollectiveReduce", "CollectiveReduceScatterV2", "CollectiveReduceV2", "CollectiveReduceV3"]),
]

# TensorFlow 2.15 runs none of these in a graph, so that nothing runs beside ours: it has no CPU kernel of the first, can't describe
# the datasets to its own optimizer, and refuses to delete resources of step-local handles.
WITHOUT_CASES = {
    "ExperimentalMapDataset", "ExperimentalRandomDataset", "ParallelFilterDataset", "ShuffleDatasetV2", "AnonymousRandomSeedGenerator",
    "DeleteMemoryCache", "DeleteRandomSeedGenerator", "DeleteSeedGenerator",
}
# Names of other versions, which the client doesn't make any more or not without more of version 2, with the name that has
# cases: both have the same kernel.
VERSIONS = {
    **{f"TensorArray{kind}{version}": f"TensorArray{kind}V3" for version in ("", "V2")
       for kind in ("", "Close", "Concat", "Gather", "Grad", "Read", "Scatter", "Size", "Split", "Write")},
    "TensorArrayPack": "TensorArrayGatherV3", "TensorArrayUnpack": "TensorArrayScatterV3", "MutableDenseHashTable": "MutableDenseHashTableV2",
    **{f"BatchMatrix{kind}": f"Matrix{kind}" for kind in ("BandPart", "Diag", "DiagPart", "SetDiag")},
    "TopK": "TopKV2", "Conv3DBackpropFilter": "Conv3DBackpropFilterV2", "Conv3DBackpropInput": "Conv3DBackpropInputV2", "AudioSummary": "AudioSummaryV2",
    "PlaceholderV2": "Placeholder", "RandomPoisson": "RandomPoissonV2", "TFRecordDatasetV2": "TFRecordDataset", "FixedLengthRecordDataset": "FixedLengthRecordDatasetV2",
    **{f"{kind}Reader": f"{kind}ReaderV2" for kind in ("TFRecord", "TextLine", "FixedLengthRecord", "Identity")},
    **{f"Reader{kind}": f"Reader{kind}V2" for kind in ("ReadUpTo", "RestoreState", "SerializeState")},
    "BatchDataset": "BatchDatasetV2", "PaddedBatchDataset": "PaddedBatchDatasetV2", "CacheDatasetV2": "CacheDataset", "ShuffleDatasetV3": "ShuffleDataset",
    "TensorSummary": "TensorSummaryV2", "_If": "If", "_While": "While", "HostConst": "Const",
}


@pytest.fixture(scope="module")
def cases():
    """How many cases run each op."""
    counts = collections.Counter()
    for table in tables.all().values():
        for ops in table.built().ops().values():
            counts.update(ops)
    for name in [*error_table.SAME, *error_table.OURS]:
        counts[name.split("/")[0]] += 1
    return counts


@pytest.fixture(scope="module")
def listed(ferroflow_bin):
    """What the binary says of each op, without the number of cases that it was built with."""
    output = subprocess.run([ferroflow_bin, "ops", "--markdown"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return dict(row(line) for line in output.splitlines()[2:])


def row(line):
    name, types, gradient, _ = (cell.strip() for cell in line.strip("|").split("|"))
    return name, (types, gradient)


def test_every_op_has_a_case(cases, listed):
    elsewhere = {op for _, _, ops in ELSEWHERE for op in ops} | set(VERSIONS) | WITHOUT_CASES
    assert [op for op in listed if not cases[op] and op not in elsewhere] == []


def test_what_is_tested_elsewhere_is(cases, listed):
    for _, place, ops in ELSEWHERE:
        text = (harness.ROOT / place).read_text()
        assert re.search(r"#\[test\]|def test_", text), f"{place} has no tests"
        assert [op for op in ops if op not in listed or (place.startswith("crates") and f'"{op}"' not in text)] == []
    assert {op: other for op, other in VERSIONS.items() if op not in listed or not cases[other]} == {}


def test_the_document_is_current(cases, listed):
    lines = ["| op | types | gradient | cases |", "|---|---|---|---|"]
    lines += [f"| {op} | {types} | {gradient} | {cases[op]} |" for op, (types, gradient) in listed.items()]
    expected = HEAD + "\n".join(lines) + f"\n\n{len(listed)} ops, {sum(1 for op in listed if cases[op])} of them in these cases.\n\n" + absent.document(listed)
    counts = "".join(f"{op} {cases[op]}\n" for op in listed)
    if os.environ.get("FERROFLOW_WRITE_DOCUMENT"):
        DOCUMENT.write_text(expected)
        COUNTS.write_text(counts)
    assert DOCUMENT.read_text() == expected, "run `cargo xtask ops-document`"
    assert COUNTS.read_text() == counts, "run `cargo xtask ops-document`"
