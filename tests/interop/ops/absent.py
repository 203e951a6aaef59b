"""Why ops of TensorFlow's registry are missing here, for docs/ops.md: by name, and by the devices for which TensorFlow has
kernels."""

import re

from tensorflow.core.framework import op_def_pb2
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.framework import kernels

# The first rule whose expression matches the whole name gives the reason.
RULES = [
    (r".*TPU.*|.*Tpu.*|Infeed.*|Outfeed.*|Prelinearize.*|.*DedupData.*|CrossReplicaSum|AllToAll|CollectivePermute|TopKUnique|TopKWithUnique|MakeUnique|KthOrderStatistic"
     r"|WorkerHeartbeat|ComputeDedupDataTupleMask", "for TPUs"),
    (r".*Xla.*|.*XLA.*|Risc.*|_XlaRun|MlirPassthroughOp|ReadVariableXlaSplitND|.*FFTND", "for the XLA compiler"),
    (r"_*Mkl.*|_Fused(Quantized|Conv3D|Depthwise).*|_QuantizedMaxPool3D|Quantized\w+And(Relu|Requantize|Dequantize)\w*|QuantizedConv2DPerChannel|QuantizedConv2DWithBias\w*"
     r"|QuantizedDepthwiseConv2D\w*|QuantizedMatMulWithBias\w*|Requantiz\w+PerChannel", "made by TensorFlow's passes for oneDNN"),
    (r"_?Nccl.*|Cudnn.*|CTCLossV2|_FusedBatchNormGradEx|GenerateBoundingBoxProposals|MaxPoolGradGradWithArgmax|Segment\w+V2|SparseMatrix(Add|Mul|Softmax|SoftmaxGrad|Zeros)"
     r"|QuantizedReluX", "for GPUs, or without a CPU kernel in TensorFlow"),
    (r"BoostedTrees.*|IsBoostedTrees.*", "not yet; TensorFlow 2.15 has dropped the kernels, too"),
    (r"Batch(I?)FFT(2D|3D)?|Batch(Cholesky|CholeskyGrad|Matrix\w+|SelfAdjointEig\w*|Svd)|SelfAdjointEig|QuantizeAndDequantize|Skipgram|NegTrain|AdjustContrast|RandomCrop"
     r"|TileGrad|StatefulStandardNormal", "older names that TensorFlow 1.15 writes no more"),
    (r"Debug.*|Copy(Host)?|DumpTensor|CustomAggregator", "of the debugger, which TensorFlow's master puts into graphs itself"),
    (r"DataService.*|RegisterDataset.*|Rpc.*|DeleteRpcFutureResource|CompressElement|UncompressElement|ListDataset|GetElementAtIndex|LoadDataset|SaveDataset.*"
     r"|SnapshotChunkDataset|Snapshot\w*Reader|DistributedSave|InitializeTableFromDataset|ComputeBatchSize|GetOptions|AssertPrevDataset|Conv2DBackprop\w+V2|Conv", "newer than TensorFlow 1.15"),
    (r"Uniform(Quantize|Dequantize|Requantize|Quantized).*|CompositeTensorVariant.*|\w*TensorMap\w*|RandomIndexShuffle|StochasticCastToInt|DTensor.*|.*ToMesh.*|Relayout.*"
     r"|ApproxTopK|StatelessRandomGammaV3|IsResourceHandleRefCounting|MakeWeakResourceHandle|FileSystemSetConfiguration|SyncDevice|GetDeadline|RaggedFillEmptyRows\w*"
     r"|TfLiteSubgraphExecute|IsTensorFloat32Enabled|SobolSample|IsotonicRegression", "newer than TensorFlow 1.15"),
    (r"BandedTriangularSolve|Bessel[JKY]\w+|\w*CSRSparse\w+|SparseMatrix\w+|DatasetToGraphV2|Dawsn|Expint|Fresnel\w+|Spence|\w*CountSparseOutput|SparseBincount|Eig"
     r"|QuantizedConcatV2|RaggedCross|SnapshotDatasetV2|StatelessParameterizedTruncatedNormal|StatelessRandom(GammaV2|Poisson)|StatelessSampleDistortedBoundingBox",
     "newer than TensorFlow 1.15"),
    (r"(Experimental)?LMDB\w+", "needs the LMDB library, which Ferroflow does not link"),
    (r"(Experimental)?SqlDataset|CreateSummaryDbWriter", "needs SQLite, which Ferroflow does not link"),
    (r"(Experimental)?(AssertNext|ChooseFastest)\w*|Fused(ResizeAnd)?PadConv2D", "made by TensorFlow's tools and rewrites of graphs"),
    (r"(Decode|Encode)Proto(V2)?", "needs descriptors of messages that are linked into TensorFlow's binary"),
    (r"(Experimental)?\w*StatsAggregator\w*", "for statistics of datasets, which TensorFlow 2 has no Python functions for"),
    (r"AudioMicrofrontend", "for TensorFlow Lite's speech models"),
    (r"Eager.*|_EagerConst|Anonymous.*|_HostCast|DeleteMultiDeviceIterator", "made by eager code only"),
    (r"_ScopedAllocator.*|_XlaMerge|Send|Recv|_TensorToHashBucketFast", "made by TensorFlow's own passes only"),
    (r"A|B|Attr.*|Binary|Unary|None|Simple.*|\w*Struct|Foo\d|Int\w*(In|Out)put\w*|Float\w*put\w*|\w*TwoFloat\w*|TwoInt\w*|TwoRefsIn|N?InPolymorphic\w*|NInTw\w+|NInts\w*"
     r"|NPolymorphic\w*|NInt\w*|OutT\w*|Polymorphic\w*|Ref(In|Out)\w*|Restrict|Reserved\w*|TypeList\w*|List(In|Out)put|FuncAttr|FuncListAttr|StringListAttr|DefaultAttrs|OpWith\w*"
     r"|IntAttr|Namespace>.*|TestStringOutput|TestAttr|NIntsIn|FiveFloatOutputs|Requires\w+|CopyOp|Old|FakeQueue|ConstructionFails|KernelLabel\w*|GraphDefVersion|DevicePlacementOp"
     r"|DtypeWithDefaultOp|Resource(CreateOp|InitializedOp|UsingOp)|StubResourceHandleOp|Sleep(Identity)?Op|WindowOp|\w*FloatInput\w*|IntOutput\w*|ComplexStruct",
     "of TensorFlow's tests"),
]
NO_CPU = "without a CPU kernel in TensorFlow"
NOT_YET = "not yet"


def registered():
    """Returns the names of TensorFlow's ops."""
    found = op_def_pb2.OpList()
    found.ParseFromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
    return {op.name for op in found.op}


def reasons(here):
    """Returns for each reason the ops that are not in `here` because of it."""
    with_kernel = {kernel.op for kernel in kernels.get_all_registered_kernels().kernel if kernel.device_type in ("CPU", "DEFAULT")}
    found = {}
    for op in sorted(registered() - set(here)):
        reason = next((why for expression, why in RULES if re.fullmatch(expression, op)), NOT_YET if op in with_kernel else NO_CPU)
        found.setdefault(reason, []).append(op)
    return found


def document(here):
    """Returns the section of docs/ops.md about missing ops."""
    lines = ["## Ops of TensorFlow 2.15 that are not here", "", "| why | ops |", "|---|---|"]
    lines += [f"| {why} | {' '.join(ops)} |" for why, ops in sorted(reasons(here).items())]
    return "\n".join(lines) + "\n"
