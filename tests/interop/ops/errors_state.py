"""Cases of test_errors.py: ops with state, sparse tensors, strings, files, random numbers, datasets and functions."""

import atexit
import itertools
import shutil
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

from error_table import BIG, HUGE, INITIALIZERS, INVALID, TOO_LARGE, R, i64, ours, same, words, zeros

NAMES = itertools.count()

# A directory that doesn't exist, whatever previous runs have left: some ops create the directory of their output.
EMPTY = tempfile.mkdtemp(prefix="ferroflow-errors-")
GONE = (EMPTY + "/gone").encode()
atexit.register(shutil.rmtree, EMPTY, ignore_errors=True)


def new_name(kind):
    return f"{kind}_{next(NAMES)}"


def ref(value):
    return tf.Variable(value, use_resource=False, validate_shape=False, name=new_name("ref"))._ref()


def resource(value):
    """Returns a variable whose shape the client doesn't know."""
    value = tf.constant(value)
    handle = R.VarHandleOp(shape=tf.TensorShape(None), dtype=value.dtype, shared_name=new_name("resource"))
    INITIALIZERS.append(R.AssignVariableOp(resource=handle, value=value))
    return handle


def after(first, then):
    """Returns what `then` makes, to run after an op."""
    with tf.control_dependencies([first]):
        return then()


def one(value, dtype):
    return np.asarray(value, dtype)


# Variables.
same("Assign/uninitialized", lambda g: R.Assign(
    ref=R.VariableV2(shape=[2], dtype=tf.float32, shared_name=new_name("empty")), value=tf.identity(R.VariableV2(shape=[2], dtype=tf.float32, shared_name=new_name("empty")))))
same("Assign/shape", lambda g: R.Assign(ref=ref(zeros(2)), value=g(zeros(3)), validate_shape=True))
same("AssignAdd/uninitialized", lambda g: R.AssignAdd(ref=R.VariableV2(shape=[2], dtype=tf.float32, shared_name=new_name("empty")), value=g(zeros(2))))
same("AssignAdd/shape", lambda g: R.AssignAdd(ref=ref(zeros(2)), value=g(zeros(3))))
same("AssignSub/shape", lambda g: R.AssignSub(ref=ref(zeros(2)), value=g(zeros(3))))
same("ReadVariableOp/uninitialized", lambda g: R.ReadVariableOp(resource=R.VarHandleOp(shape=[2], dtype=tf.float32, shared_name=new_name("empty")), dtype=tf.float32))
same("AssignAddVariableOp/shape", lambda g: R.AssignAddVariableOp(resource=resource(zeros(2)), value=g(zeros(3))))
same("AssignAddVariableOp/uninitialized", lambda g: R.AssignAddVariableOp(
    resource=R.VarHandleOp(shape=[2], dtype=tf.float32, shared_name=new_name("empty")), value=g(zeros(2))))
same("AssignVariableOp/shape", lambda g: R.AssignVariableOp(resource=resource(zeros(2)), value=g(zeros(3)), validate_shape=True))
same("DestroyResourceOp/missing", lambda g: R.DestroyResourceOp(
    resource=R.VarHandleOp(shape=[2], dtype=tf.float32, shared_name=new_name("empty")), ignore_lookup_error=False))
same("VariableShape/uninitialized", lambda g: R.VariableShape(input=R.VarHandleOp(shape=[2], dtype=tf.float32, shared_name=new_name("empty"))))
same("CountUpTo/end", lambda g: R.CountUpTo(ref=ref(np.int32(3)), limit=3))
same("ResourceCountUpTo/end", lambda g: R.ResourceCountUpTo(resource=resource(np.int32(3)), limit=3, T=tf.int32))
same("ReadVariableOp/queue", lambda g: R.ReadVariableOp(resource=R.FIFOQueueV2(component_types=[tf.float32], shared_name=new_name("queue")), dtype=tf.float32))
same("QueueSizeV2/variable", lambda g: R.QueueSizeV2(handle=resource(zeros(2))))
same("LookupTableSizeV2/variable", lambda g: R.LookupTableSizeV2(table_handle=resource(zeros(2))))
same("StackPopV2/variable", lambda g: R.StackPopV2(handle=resource(zeros(2)), elem_type=tf.float32))
same("IteratorGetNext/variable", lambda g: R.IteratorGetNext(iterator=resource(zeros(2)), output_types=[tf.float32], output_shapes=[[]])[0])
SCATTERS = {
    "beyond": (zeros(3), [9], zeros(1)), "negative": (zeros(3), [-1], zeros(1)), "short": (zeros(3, 2), [0, 1], zeros(1, 2)), "narrow": (zeros(3, 4), [0], zeros(1, 2)),
    "scalar_variable": (np.float32(1), [0], zeros(1)),
}
for label, (variable, indices, updates) in SCATTERS.items():
    for op in ("ScatterUpdate", "ScatterAdd", "ScatterSub", "ScatterMul", "ScatterDiv", "ScatterMin", "ScatterMax"):
        same(f"{op}/{label}", lambda g, op=op, variable=variable, indices=indices, updates=updates: getattr(R, op)(
            ref=ref(variable), indices=g(indices), updates=g(updates)))
        same(f"Resource{op}/{label}", lambda g, op=op, variable=variable, indices=indices, updates=updates: getattr(R, f"Resource{op}")(
            resource=resource(variable), indices=g(indices), updates=g(updates)))
ours("ScatterDiv/zero", INVALID, lambda g: R.ScatterDiv(ref=ref([4, 5]), indices=g([0]), updates=g([0])))
ours("ScatterDiv/zero_scalar", INVALID, lambda g: R.ScatterDiv(ref=ref([4, 5]), indices=g([0]), updates=g(np.int32(0))))
same("ResourceScatterDiv/zero", lambda g: R.ResourceScatterDiv(resource=resource([4, 5]), indices=g([0]), updates=g([0])))
ours("ScatterDiv/least", (None,), lambda g: R.ScatterDiv(ref=ref([-2**31, 5]), indices=g([0]), updates=g([-1])))
same("ScatterUpdate/uninitialized", lambda g: R.ScatterUpdate(
    ref=R.VariableV2(shape=[2], dtype=tf.float32, shared_name=new_name("empty")), indices=g([0]), updates=g(zeros(1))))
for label, indices, updates in (("beyond", [[9]], zeros(1)), ("updates", [[0]], zeros(2)), ("depth", [[0, 0]], zeros(1)), ("negative", [[-1]], zeros(1))):
    for op in ("ScatterNdUpdate", "ScatterNdAdd", "ScatterNdSub"):
        same(f"{op}/{label}", lambda g, op=op, indices=indices, updates=updates: getattr(R, op)(ref=ref(zeros(3)), indices=g(indices), updates=g(updates)))
        same(f"Resource{op}/{label}", lambda g, op=op, indices=indices, updates=updates: getattr(R, f"Resource{op}")(
            ref=resource(zeros(3)), indices=g(indices), updates=g(updates)))
for label, dims in {"beyond": 3, "past_indices": 2}.items():
    same(f"ResourceGather/batch_dims_{label}", lambda g, dims=dims: R.ResourceGather(resource=resource(zeros(2, 2)), indices=g([0]), dtype=tf.float32, batch_dims=dims))
same("ResourceGather/beyond", lambda g: R.ResourceGather(resource=resource(zeros(2, 2)), indices=g([5]), dtype=tf.float32))
same("ResourceGather/scalar", lambda g: R.ResourceGather(resource=resource(np.float32(2)), indices=g([0]), dtype=tf.float32))
same("ResourceGatherNd/depth", lambda g: R.ResourceGatherNd(resource=resource(zeros(2)), indices=g([[0, 0, 0]]), dtype=tf.float32))
same("StridedSliceAssign/value", lambda g: R.StridedSliceAssign(ref=ref(zeros(3)), begin=g([0]), end=g([2]), strides=g([1]), value=g(zeros(3))))
same("ResourceStridedSliceAssign/value", lambda g: R.ResourceStridedSliceAssign(ref=resource(zeros(3)), begin=g([0]), end=g([2]), strides=g([1]), value=g(zeros(3))))

# Optimizers.
F = np.float32
same("ApplyGradientDescent/shape", lambda g: R.ApplyGradientDescent(var=ref(zeros(2)), alpha=g(F(1)), delta=g(zeros(3))))
same("ApplyGradientDescent/rate", lambda g: R.ApplyGradientDescent(var=ref(zeros(2)), alpha=g(zeros(2)), delta=g(zeros(2))))
same("ResourceApplyGradientDescent/shape", lambda g: R.ResourceApplyGradientDescent(var=resource(zeros(2)), alpha=g(F(1)), delta=g(zeros(3))))
same("ApplyMomentum/slot", lambda g: R.ApplyMomentum(var=ref(zeros(2)), accum=ref(zeros(3)), lr=g(F(1)), grad=g(zeros(2)), momentum=g(F(1))))
same("ApplyAdagrad/shape", lambda g: R.ApplyAdagrad(var=ref(zeros(2)), accum=ref(zeros(2)), lr=g(F(1)), grad=g(zeros(3))))
for label, slot, rate, gradient, indices in (
        ("beyond", zeros(2, 2), F(1), zeros(1, 2), [7]), ("negative", zeros(2, 2), F(1), zeros(1, 2), [-1]), ("counts", zeros(2, 2), F(1), zeros(2, 2), [0]),
        ("narrow", zeros(2, 2), F(1), zeros(1, 1), [0]), ("slot", zeros(3, 2), F(1), zeros(1, 2), [0]), ("rate", zeros(2, 2), zeros(2), zeros(1, 2), [0]),
        ("matrix_ids", zeros(2, 2), F(1), zeros(1, 2), [[0]])):
    same(f"SparseApplyAdagrad/{label}", lambda g, slot=slot, rate=rate, gradient=gradient, indices=indices: R.SparseApplyAdagrad(
        var=ref(zeros(2, 2)), accum=ref(slot), lr=g(rate), grad=g(gradient), indices=g(indices)))
    same(f"ResourceSparseApplyAdagrad/{label}", lambda g, slot=slot, rate=rate, gradient=gradient, indices=indices: R.ResourceSparseApplyAdagrad(
        var=resource(zeros(2, 2)), accum=resource(slot), lr=g(rate), grad=g(gradient), indices=g(indices)))
    same(f"ResourceSparseApplyMomentum/{label}", lambda g, slot=slot, rate=rate, gradient=gradient, indices=indices: R.ResourceSparseApplyMomentum(
        var=resource(zeros(2, 2)), accum=resource(slot), lr=g(rate), grad=g(gradient), indices=g(indices), momentum=g(F(0.5))))
    same(f"SparseApplyFtrl/{label}", lambda g, slot=slot, rate=rate, gradient=gradient, indices=indices: R.SparseApplyFtrl(
        var=ref(zeros(2, 2)), accum=ref(slot), linear=ref(zeros(2, 2)), grad=g(gradient), indices=g(indices), lr=g(rate), l1=g(F(0)), l2=g(F(0)), lr_power=g(F(-0.5))))
    same(f"SparseApplyRMSProp/{label}", lambda g, slot=slot, rate=rate, gradient=gradient, indices=indices: R.SparseApplyRMSProp(
        var=ref(zeros(2, 2)), ms=ref(slot), mom=ref(zeros(2, 2)), lr=g(rate), rho=g(F(0.5)), momentum=g(F(0)), epsilon=g(F(1)), grad=g(gradient), indices=g(indices)))
same("ApplyAdam/slot", lambda g: R.ApplyAdam(
    var=ref(zeros(2)), m=ref(zeros(3)), v=ref(zeros(2)), beta1_power=g(F(0.5)), beta2_power=g(F(0.5)), lr=g(F(1)), beta1=g(F(0.5)), beta2=g(F(0.5)), epsilon=g(F(1)), grad=g(zeros(2))))
same("ApplyAdam/power", lambda g: R.ApplyAdam(
    var=ref(zeros(2)), m=ref(zeros(2)), v=ref(zeros(2)), beta1_power=g(zeros(2)), beta2_power=g(F(0.5)), lr=g(F(1)), beta1=g(F(0.5)), beta2=g(F(0.5)), epsilon=g(F(1)), grad=g(zeros(2))))
# Whole variables take anything; rows don't.
for label, rate, l1, l2, power in (("rate", -1, 0, 0, -0.5), ("no_rate", 0, 0, 0, -0.5), ("power", 1, 0, 0, 0.5), ("l1", 1, -1, 0, -0.5), ("l2", 1, 0, -1, -0.5),
                                   ("rates", [1, 2], 0, 0, -0.5), ("powers", 1, 0, 0, [1, 1])):
    def ftrl(g, op, rate=rate, l1=l1, l2=l2, power=power, kind=ref, **more):
        return op(var=kind(zeros(2)), accum=kind(zeros(2)), linear=kind(zeros(2)), grad=g(zeros(2) + 1), lr=g(np.float32(rate)), l1=g(F(l1)), l2=g(F(l2)), lr_power=g(np.float32(power)), **more)

    same(f"ApplyFtrl/{label}", lambda g, ftrl=ftrl: ftrl(g, R.ApplyFtrl))
    same(f"ResourceApplyFtrl/{label}", lambda g, ftrl=ftrl: ftrl(g, R.ResourceApplyFtrl, kind=resource))
    same(f"ApplyFtrlV2/{label}", lambda g, ftrl=ftrl: ftrl(g, R.ApplyFtrlV2, l2_shrinkage=g(F(0))))
    same(f"SparseApplyFtrl/{label}_value", lambda g, ftrl=ftrl: ftrl(g, R.SparseApplyFtrl, indices=g([0, 1])))
    same(f"SparseApplyFtrlV2/{label}_value", lambda g, ftrl=ftrl: ftrl(g, R.SparseApplyFtrlV2, l2_shrinkage=g(F(0)), indices=g([0, 1])))


# Queues and what holds tensors between ops.
def queue(**more):
    return R.FIFOQueueV2(component_types=[tf.float32], shared_name=new_name("queue"), **more)


def closed(handle, then):
    return after(R.QueueCloseV2(handle=handle), then)


def closed_dequeue(op, handle, **more):
    return closed(handle, lambda: getattr(R, op)(handle=handle, component_types=[tf.float32], **more)[0])


same("QueueDequeueV2/closed", lambda g: closed_dequeue("QueueDequeueV2", queue()))
same("QueueDequeueManyV2/closed", lambda g: closed_dequeue("QueueDequeueManyV2", queue(shapes=[[]]), n=g(np.int32(2))))
same("QueueDequeueManyV2/negative", lambda g: R.QueueDequeueManyV2(handle=queue(shapes=[[]]), component_types=[tf.float32], n=g(np.int32(-2)))[0])
same("QueueDequeueManyV2/shapes", lambda g: R.QueueDequeueManyV2(handle=queue(), component_types=[tf.float32], n=g(np.int32(2)))[0])
same("QueueDequeueUpToV2/negative", lambda g: R.QueueDequeueUpToV2(handle=queue(shapes=[[]]), component_types=[tf.float32], n=g(np.int32(-2)))[0])
same("QueueDequeueV2/types", lambda g: R.QueueDequeueV2(handle=queue(), component_types=[tf.int32])[0])
same("QueueDequeueV2/components", lambda g: R.QueueDequeueV2(handle=queue(), component_types=[tf.float32, tf.float32])[0])
same("QueueEnqueueV2/shape", lambda g: R.QueueEnqueueV2(handle=queue(shapes=[[3]]), components=[g(zeros(2))]))
same("QueueEnqueueV2/types", lambda g: R.QueueEnqueueV2(handle=queue(), components=[g([1])]))
same("QueueEnqueueManyV2/scalar", lambda g: R.QueueEnqueueManyV2(handle=queue(), components=[g(F(1))]))
same("QueueEnqueueManyV2/shape", lambda g: R.QueueEnqueueManyV2(handle=queue(shapes=[[3]]), components=[g(zeros(2, 2))]))
same("PriorityQueueV2/priority", lambda g: R.QueueEnqueueV2(
    handle=R.PriorityQueueV2(shapes=[[]], component_types=[tf.float32], shared_name=new_name("queue")), components=[g(zeros(2)), g(F(1))]))
same("PaddingFIFOQueueV2/shape", lambda g: R.QueueEnqueueV2(
    handle=R.PaddingFIFOQueueV2(component_types=[tf.float32], shapes=[tf.TensorShape([None, 2])], shared_name=new_name("queue")), components=[g(zeros(3, 3))]))


def enqueue_on_closed():
    handle = queue()
    return closed(handle, lambda: R.QueueEnqueueV2(handle=handle, components=[tf.constant(1.0)]))


same("QueueEnqueueV2/closed", lambda g: enqueue_on_closed())


def tensor_array(g, size, **more):
    return R.TensorArrayV3(size=g(np.int32(size)), dtype=tf.float32, tensor_array_name=new_name("array"), **more)


same("TensorArrayV3/negative", lambda g: tensor_array(g, -1)[1])
same("TensorArrayV3/size_vector", lambda g: R.TensorArrayV3(size=g([1, 2]), dtype=tf.float32)[1])
for label, index in {"beyond": 9, "negative": -1, "unwritten": 0}.items():
    same(f"TensorArrayReadV3/{label}", lambda g, index=index: (lambda array: R.TensorArrayReadV3(
        handle=array[0], index=g(np.int32(index)), flow_in=array[1], dtype=tf.float32))(tensor_array(g, 2)))
    if label != "unwritten":
        same(f"TensorArrayWriteV3/{label}", lambda g, index=index: (lambda array: R.TensorArrayWriteV3(
            handle=array[0], index=g(np.int32(index)), value=g(F(1)), flow_in=array[1]))(tensor_array(g, 2)))
same("TensorArrayWriteV3/type", lambda g: (lambda array: R.TensorArrayWriteV3(handle=array[0], index=g(np.int32(0)), value=g([1]), flow_in=array[1]))(tensor_array(g, 2)))
same("TensorArrayScatterV3/counts", lambda g: (lambda array: R.TensorArrayScatterV3(
    handle=array[0], indices=g([0, 1]), value=g(zeros(3)), flow_in=array[1]))(tensor_array(g, 2)))
same("TensorArrayScatterV3/beyond", lambda g: (lambda array: R.TensorArrayScatterV3(
    handle=array[0], indices=g([5]), value=g(zeros(1)), flow_in=array[1]))(tensor_array(g, 2)))
same("TensorArrayGatherV3/beyond", lambda g: (lambda array: R.TensorArrayGatherV3(
    handle=array[0], indices=g([5]), flow_in=array[1], dtype=tf.float32))(tensor_array(g, 2)))
for label, lengths in {"sum": [1, 1], "negative": [-1, 4], "count": [3]}.items():
    same(f"TensorArraySplitV3/{label}", lambda g, lengths=lengths: (lambda array: R.TensorArraySplitV3(
        handle=array[0], value=g(zeros(3)), lengths=g(lengths, tf.int64), flow_in=array[1]))(tensor_array(g, 2)))
same("StackPopV2/empty", lambda g: R.StackPopV2(handle=R.StackV2(max_size=g(np.int32(-1)), elem_type=tf.float32, stack_name=new_name("stack")), elem_type=tf.float32))
same("StackPushV2/full", lambda g: R.StackPushV2(handle=R.StackV2(max_size=g(np.int32(0)), elem_type=tf.float32, stack_name=new_name("stack")), elem=g(F(1))))
same("StackPushV2/type", lambda g: R.StackPushV2(handle=R.StackV2(max_size=g(np.int32(2)), elem_type=tf.float32, stack_name=new_name("stack")), elem=g([1])))


def tensor_list(g, count=2, shape=()):
    return R.TensorListReserve(element_shape=g(np.array(shape, np.int32)), num_elements=g(np.int32(count)), element_dtype=tf.float32)


same("TensorListReserve/negative", lambda g: R.TensorListLength(input_handle=tensor_list(g, -1)))
same("TensorListReserve/shape", lambda g: R.TensorListLength(input_handle=tensor_list(g, 1, [-5])))
for label, index in {"beyond": 9, "negative": -1}.items():
    same(f"TensorListGetItem/{label}", lambda g, index=index: R.TensorListGetItem(
        input_handle=tensor_list(g), index=g(np.int32(index)), element_shape=g(np.zeros(0, np.int32)), element_dtype=tf.float32))
    same(f"TensorListSetItem/{label}", lambda g, index=index: R.TensorListLength(input_handle=R.TensorListSetItem(
        input_handle=tensor_list(g), index=g(np.int32(index)), item=g(F(1)))))
same("TensorListSetItem/shape", lambda g: R.TensorListLength(input_handle=R.TensorListSetItem(input_handle=tensor_list(g), index=g(np.int32(0)), item=g(zeros(3)))))
same("TensorListSetItem/type", lambda g: R.TensorListLength(input_handle=R.TensorListSetItem(input_handle=tensor_list(g), index=g(np.int32(0)), item=g([1]))))
same("TensorListPopBack/empty", lambda g: R.TensorListPopBack(input_handle=tensor_list(g, 0), element_shape=g(np.zeros(0, np.int32)), element_dtype=tf.float32)[1])
same("TensorListResize/negative", lambda g: R.TensorListLength(input_handle=R.TensorListResize(input_handle=tensor_list(g), size=g(np.int32(-1)))))
same("TensorListFromTensor/scalar", lambda g: R.TensorListLength(input_handle=R.TensorListFromTensor(tensor=g(F(1)), element_shape=g(np.zeros(0, np.int32)))))
same("TensorListFromTensor/shape", lambda g: R.TensorListLength(input_handle=R.TensorListFromTensor(tensor=g(zeros(2, 2)), element_shape=g([3]))))
same("TensorListGather/beyond", lambda g: R.TensorListGather(
    input_handle=tensor_list(g), indices=g([5]), element_shape=g(np.zeros(0, np.int32)), element_dtype=tf.float32))
same("TensorListStack/count", lambda g: R.TensorListStack(input_handle=tensor_list(g), element_shape=g(np.zeros(0, np.int32)), element_dtype=tf.float32, num_elements=5))
same("TensorListStack/unknown", lambda g: R.TensorListStack(input_handle=tensor_list(g, 2, [-1]), element_shape=g([-1]), element_dtype=tf.float32))
for label, indices, count in (("negative", [-1], 2), ("beyond", [7], 2), ("counts", [0, 1], 2), ("negative_count", [0], -5)):
    same(f"TensorListScatterV2/{label}", lambda g, indices=indices, count=count: R.TensorListLength(input_handle=R.TensorListScatterV2(
        tensor=g(zeros(1)), indices=g(indices), element_shape=g(np.zeros(0, np.int32)), num_elements=g(np.int32(count)))))
for label, lengths in {"sum": [1, 1], "negative": [-1, 4], "scalar": 3}.items():
    same(f"TensorListSplit/{label}", lambda g, lengths=lengths: R.TensorListLength(input_handle=R.TensorListSplit(
        tensor=g(zeros(3)), element_shape=g(np.array([-1], np.int32)), lengths=g(lengths, tf.int64))))
same("TensorListLength/not_a_list", lambda g: R.TensorListLength(input_handle=R.TensorDataset(components=[g(zeros(1))], output_shapes=[[1]])))


def barrier():
    return R.Barrier(component_types=[tf.float32], shapes=[[]], shared_name=new_name("barrier"))


same("BarrierInsertMany/counts", lambda g: R.BarrierInsertMany(handle=barrier(), keys=g(words(b"a", b"b")), values=g(zeros(3)), component_index=0))
same("BarrierInsertMany/component", lambda g: R.BarrierInsertMany(handle=barrier(), keys=g(words(b"a")), values=g(zeros(1)), component_index=4))
same("BarrierTakeMany/negative", lambda g: R.BarrierTakeMany(handle=barrier(), num_elements=g(np.int32(-1)), component_types=[tf.float32])[0])


def accumulator():
    return R.ConditionalAccumulator(dtype=tf.float32, shape=[2], shared_name=new_name("accumulator"))


same("AccumulatorApplyGradient/shape", lambda g: R.AccumulatorApplyGradient(handle=accumulator(), local_step=g(i64(1)[0], tf.int64), gradient=g(zeros(3))))
same("AccumulatorTakeGradient/none", lambda g: R.AccumulatorTakeGradient(handle=accumulator(), num_required=g(np.int32(0)), dtype=tf.float32))

# Tables.


def table(op="HashTableV2", **more):
    return getattr(R, op)(key_dtype=tf.string, value_dtype=tf.int64, shared_name=new_name("table"), **more)


same("LookupTableFindV2/uninitialized", lambda g: R.LookupTableFindV2(table_handle=table(), keys=g(words(b"a")), default_value=g(i64(0)[0], tf.int64)))
same("LookupTableFindV2/default", lambda g: R.LookupTableFindV2(table_handle=table("MutableHashTableV2"), keys=g(words(b"a")), default_value=g(i64(0, 1), tf.int64)))
same("LookupTableInsertV2/counts", lambda g: R.LookupTableInsertV2(table_handle=table("MutableHashTableV2"), keys=g(words(b"a", b"b")), values=g(i64(0), tf.int64)))
same("LookupTableInsertV2/fixed", lambda g: R.LookupTableInsertV2(table_handle=table(), keys=g(words(b"a")), values=g(i64(0), tf.int64)))
same("InitializeTableV2/counts", lambda g: R.InitializeTableV2(table_handle=table(), keys=g(words(b"a", b"b")), values=g(i64(0), tf.int64)))
same("InitializeTableV2/twice", lambda g: R.InitializeTableV2(table_handle=table(), keys=g(words(b"a", b"a")), values=g(i64(0, 1), tf.int64)))
def empty_vocabulary(g, size):
    path = EMPTY + "/vocabulary"
    open(path, "w").close()
    return R.InitializeTableFromTextFileV2(table_handle=table(), filename=g(np.array(path.encode())), key_index=-2, value_index=-1, vocab_size=size)


same("InitializeTableFromTextFileV2/empty", lambda g: empty_vocabulary(g, -1))
same("InitializeTableFromTextFileV2/empty_of_one", lambda g: empty_vocabulary(g, 1))
same("InitializeTableFromTextFileV2/missing", lambda g: R.InitializeTableFromTextFileV2(table_handle=table(), filename=g(np.array(GONE + b"/words")), key_index=-2, value_index=-1))


def dense_table(g, buckets, empty=0, deleted=-1):
    return R.MutableDenseHashTableV2(empty_key=g(i64(empty)[0], tf.int64), deleted_key=g(i64(deleted)[0], tf.int64), value_dtype=tf.int64, value_shape=[],
                                     initial_num_buckets=buckets, shared_name=new_name("table"))


same("MutableDenseHashTableV2/buckets", lambda g: R.LookupTableSizeV2(table_handle=dense_table(g, 3)))
same("MutableDenseHashTableV2/keys", lambda g: R.LookupTableSizeV2(table_handle=dense_table(g, 4, 1, 1)))
same("MutableDenseHashTableV2/empty_key", lambda g: R.LookupTableInsertV2(table_handle=dense_table(g, 4), keys=g(i64(0), tf.int64), values=g(i64(0), tf.int64)))


# Sparse tensors.
def sparse(g, indices, values, shape, prefix="", names=("indices", "values", "shape")):
    return dict(zip((prefix + name for name in names), (g(np.asarray(indices).reshape(-1 if shape else 0, len(shape)), tf.int64), g(values, tf.float32), g(shape, tf.int64))))


BROKEN = {
    "beyond": ([[5, 0]], [1.0], [2, 2]), "negative": ([[-1, 0]], [1.0], [2, 2]), "counts": ([[0, 0]], [1.0, 2.0], [2, 2]), "overflowing": ([[0, 0]], [1.0], [HUGE, 8]),
    "negative_shape": ([[0, 0]], [1.0], [-2, 2]), "empty_shape": (np.zeros((0, 0)), [], []),
}
for label, (indices, values, shape) in BROKEN.items():
    part = (indices, values, shape)
    same(f"SparseSplit/{label}", lambda g, part=part: R.SparseSplit(split_dim=g(i64(0)[0], tf.int64), num_split=2, **sparse(g, *part))[0])
    same(f"SparseFillEmptyRows/{label}", lambda g, part=part: R.SparseFillEmptyRows(
        default_value=g(F(1)), **sparse(g, *part, names=("indices", "values", "dense_shape")))[0])
    same(f"AddSparseToTensorsMap/{label}", lambda g, part=part: R.AddSparseToTensorsMap(**sparse(g, *part, "sparse_"), shared_name=new_name("map")))
    same(f"AddManySparseToTensorsMap/{label}", lambda g, part=part: R.AddManySparseToTensorsMap(**sparse(g, *part, "sparse_"), shared_name=new_name("map")))
    same(f"SparseToDense/{label}", lambda g, part=part: R.SparseToDense(
        sparse_indices=g(np.asarray(part[0]).reshape(-1 if part[2] else 0, len(part[2])), tf.int64), output_shape=g(part[2], tf.int64), sparse_values=g(part[1], tf.float32), default_value=g(F(0))))
    same(f"SparseReorder/{label}", lambda g, part=part: R.SparseReorder(**sparse(g, *part, "input_"))[0])
    same(f"SparseReduceSum/{label}", lambda g, part=part: R.SparseReduceSum(**sparse(g, *part, "input_"), reduction_axes=g([0])))
    same(f"SparseReduceMax/{label}", lambda g, part=part: R.SparseReduceMax(**sparse(g, *part, "input_"), reduction_axes=g([0])))
    same(f"SparseSoftmax/{label}", lambda g, part=part: R.SparseSoftmax(**sparse(g, *part, "sp_")))
    same(f"SparseTensorDenseMatMul/{label}", lambda g, part=part: R.SparseTensorDenseMatMul(**sparse(g, *part, "a_"), b=g(zeros(2, 2))))
    same(f"SparseTensorDenseAdd/{label}", lambda g, part=part: R.SparseTensorDenseAdd(**sparse(g, *part, "a_"), b=g(zeros(2, 2))))
    same(f"SparseDenseCwiseMul/{label}", lambda g, part=part: R.SparseDenseCwiseMul(**sparse(g, *part, "sp_"), dense=g(zeros(2, 2))))
    same(f"SparseSparseMaximum/{label}", lambda g, part=part: R.SparseSparseMaximum(**sparse(g, *part, "a_"), **sparse(g, *part, "b_"))[0])
    same(f"SparseAdd/{label}", lambda g, part=part: R.SparseAdd(**sparse(g, *part, "a_"), **sparse(g, *part, "b_"), thresh=g(F(0)))[0])
    same(f"SparseConcat/{label}", lambda g, part=part: R.SparseConcat(
        **{name: [tensor, tensor] for name, tensor in sparse(g, *part, names=("indices", "values", "shapes")).items()}, concat_dim=0)[0])
    same(f"SparseSlice/{label}", lambda g, part=part: R.SparseSlice(**sparse(g, *part), start=g(i64(0, 0), tf.int64), size=g(i64(1, 1), tf.int64))[0])
    same(f"SerializeSparse/{label}", lambda g, part=part: R.SerializeSparse(**sparse(g, *part, "sparse_")))
    same(f"SerializeManySparse/{label}", lambda g, part=part: R.SerializeManySparse(**sparse(g, *part, "sparse_")))
GOOD = ([[0, 0]], [1.0], [2, 2])
same("SparseSplit/axis", lambda g: R.SparseSplit(split_dim=g(i64(7)[0], tf.int64), num_split=2, **sparse(g, *GOOD))[0])
same("SparseSplit/count", lambda g: R.SparseSplit(split_dim=g(i64(0)[0], tf.int64), num_split=9, **sparse(g, *GOOD))[0])
same("SparseFillEmptyRows/default", lambda g: R.SparseFillEmptyRows(default_value=g(zeros(2)), **sparse(g, *GOOD, names=("indices", "values", "dense_shape")))[0])
same("SparseFillEmptyRows/order", lambda g: R.SparseFillEmptyRows(
    default_value=g(F(1)), **sparse(g, [[1, 0], [0, 0]], [1.0, 2.0], [2, 2], names=("indices", "values", "dense_shape")))[0])
same("SparseFillEmptyRowsGrad/beyond", lambda g: R.SparseFillEmptyRowsGrad(reverse_index_map=g(i64(9), tf.int64), grad_values=g(zeros(2)))[0])
for label, shape in {"negative": [-2, 2], "wrong": [3, 3], "overflowing": [HUGE, 8], "two_unknown": [-1, -1], "empty": []}.items():
    same(f"SparseReshape/{label}", lambda g, shape=shape: R.SparseReshape(input_indices=g([[0, 0]], tf.int64), input_shape=g([2, 2], tf.int64), new_shape=g(shape, tf.int64))[1])
same("SparseReshape/overflowing_input", lambda g: R.SparseReshape(input_indices=g([[0, 0]], tf.int64), input_shape=g([HUGE, 8], tf.int64), new_shape=g([-1], tf.int64))[1])
same("SparseToDense/order", lambda g: R.SparseToDense(sparse_indices=g([1, 0]), output_shape=g([3]), sparse_values=g(zeros(2)), default_value=g(F(0))))
same("SparseToDense/twice", lambda g: R.SparseToDense(sparse_indices=g([1, 1]), output_shape=g([3]), sparse_values=g(zeros(2)), default_value=g(F(0))))
ours("SparseToDense/huge", TOO_LARGE, lambda g: R.SparseToDense(sparse_indices=g([1], tf.int64), output_shape=g(i64(2**50), tf.int64), sparse_values=g(zeros(1)), default_value=g(F(0))))
ours("SparseTensorDenseMatMul/huge", TOO_LARGE, lambda g: R.SparseTensorDenseMatMul(**sparse(g, [[0, 0]], [1.0], [2**50, 2], "a_"), b=g(zeros(2, 2))))
same("SparseTensorDenseMatMul/shapes", lambda g: R.SparseTensorDenseMatMul(**sparse(g, *GOOD, "a_"), b=g(zeros(3, 2))))
same("SparseReduceSum/axis", lambda g: R.SparseReduceSum(**sparse(g, *GOOD, "input_"), reduction_axes=g([4])))
same("SparseAdd/shapes", lambda g: R.SparseAdd(**sparse(g, *GOOD, "a_"), **sparse(g, [[0, 0]], [1.0], [3, 2], "b_"), thresh=g(F(0)))[0])
same("SparseAdd/threshold", lambda g: R.SparseAdd(**sparse(g, *GOOD, "a_"), **sparse(g, *GOOD, "b_"), thresh=g(zeros(2)))[0])
same("SparseAddGrad/counts", lambda g: R.SparseAddGrad(
    backprop_val_grad=g(zeros(5)), a_indices=g([[0, 0]], tf.int64), b_indices=g([[0, 0]], tf.int64), sum_indices=g([[0, 0]], tf.int64))[0])
same("SparseDenseCwiseMul/shapes", lambda g: R.SparseDenseCwiseMul(**sparse(g, *GOOD, "sp_"), dense=g(zeros(3, 3))))
same("TakeManySparseFromTensorsMap/handle", lambda g: R.TakeManySparseFromTensorsMap(sparse_handles=g(i64(99), tf.int64), dtype=tf.float32, shared_name=new_name("map"))[0])
same("DeserializeSparse/text", lambda g: R.DeserializeSparse(serialized_sparse=g(words(b"a", b"b", b"c")), dtype=tf.float32)[0])
same("DeserializeSparse/columns", lambda g: R.DeserializeSparse(serialized_sparse=g(words(b"a", b"b")), dtype=tf.float32)[0])
same("DeserializeManySparse/text", lambda g: R.DeserializeManySparse(serialized_sparse=g(words(b"a", b"b", b"c").reshape(1, 3)), dtype=tf.float32)[0])
same("SparseCross/shapes", lambda g: R.SparseCross(
    indices=[g([[5, 0]], tf.int64)], values=[g(words(b"a"))], shapes=[g([2, 1], tf.int64)], dense_inputs=[], hashed_output=False, num_buckets=0, hash_key=1,
    out_type=tf.string, internal_type=tf.string)[0])

# Text and records.
same("Substr/beyond", lambda g: R.Substr(input=g(words(b"abc")), pos=g([9]), len=g([1])))
same("Substr/shapes", lambda g: R.Substr(input=g(words(b"abc", b"d", b"e")), pos=g([0, 0]), len=g([1, 1])))
same("StringJoin/shapes", lambda g: R.StringJoin(inputs=[g(words(b"a", b"b")), g(words(b"a", b"b", b"c"))]))
same("ReduceJoin/axis", lambda g: R.ReduceJoin(inputs=g(words(b"a")), reduction_indices=g([3])))
same("ReduceJoin/twice", lambda g: R.ReduceJoin(inputs=g(words(b"a")), reduction_indices=g([0, 0])))
same("RegexReplace/pattern", lambda g: R.RegexReplace(input=g(words(b"a")), pattern=g(np.array(b"(")), rewrite=g(np.array(b""))))
same("RegexReplace/rewrite", lambda g: R.RegexReplace(input=g(words(b"a")), pattern=g(np.array(b"a")), rewrite=g(np.array(b"\\7"))))
same("RegexFullMatch/pattern", lambda g: R.RegexFullMatch(input=g(words(b"a")), pattern=g(np.array(b"["))))
same("DecodeBase64/text", lambda g: R.DecodeBase64(input=g(words(b"***"))))
same("StringSplit/matrix", lambda g: R.StringSplit(input=g(words(b"a").reshape(1, 1)), delimiter=g(np.array(b" ")))[0])
same("StringSplit/delimiter", lambda g: R.StringSplit(input=g(words(b"a")), delimiter=g(words(b" ", b",")))[0])
same("StringSplitV2/delimiter", lambda g: R.StringSplitV2(input=g(words(b"a")), sep=g(words(b" ", b",")))[0])
same("StringToNumber/range", lambda g: R.StringToNumber(string_tensor=g(words(b"99999999999")), out_type=tf.int32))
same("UnsortedSegmentJoin/beyond", lambda g: R.UnsortedSegmentJoin(inputs=g(words(b"a")), segment_ids=g([5]), num_segments=g(np.int32(2))))
same("UnsortedSegmentJoin/negative", lambda g: R.UnsortedSegmentJoin(inputs=g(words(b"a")), segment_ids=g([0]), num_segments=g(np.int32(-2))))
same("DecodeRaw/odd", lambda g: R.DecodeRaw(bytes=g(words(b"abc")), out_type=tf.int32))
same("DecodeRaw/lengths", lambda g: R.DecodeRaw(bytes=g(words(b"abcd", b"abcdabcd")), out_type=tf.int32))
for label, length in {"zero": 0, "negative": -4, "uneven": 3}.items():
    same(f"DecodePaddedRaw/{label}", lambda g, length=length: R.DecodePaddedRaw(input_bytes=g(words(b"abcd")), fixed_length=g(np.int32(length)), out_type=tf.int32))
ours("DecodePaddedRaw/huge", TOO_LARGE + (None,), lambda g: tf.size(R.DecodePaddedRaw(input_bytes=g(words(*[b"abcd"] * 4000)), fixed_length=g(np.int32(BIG - 3)), out_type=tf.int32)))
same("DecodeCSV/fields", lambda g: R.DecodeCSV(records=g(words(b"1,2,3")), record_defaults=[g([1]), g([1])])[0])
same("DecodeCSV/number", lambda g: R.DecodeCSV(records=g(words(b"a")), record_defaults=[g([1])])[0])
same("DecodeCSV/missing", lambda g: R.DecodeCSV(records=g(words(b"")), record_defaults=[g(np.zeros(0, np.int32))])[0])
same("DecodeCSV/quote", lambda g: R.DecodeCSV(records=g(words(b'"a')), record_defaults=[g(words(b""))])[0])
same("DecodeCSV/defaults", lambda g: R.DecodeCSV(records=g(words(b"1")), record_defaults=[g([[1, 2]])])[0])
same("ParseTensor/text", lambda g: R.ParseTensor(serialized=g(np.array(b"\xff\xff")), out_type=tf.float32))
same("ParseTensor/type", lambda g: R.ParseTensor(serialized=g(np.array(tf.make_tensor_proto([1]).SerializeToString())), out_type=tf.float32))
ours("ParseTensor/huge", TOO_LARGE, lambda g: R.ParseTensor(serialized=g(np.array(huge_tensor().SerializeToString())), out_type=tf.float32))
ours("ParseTensor/scattered", TOO_LARGE, lambda g: R.ParseTensor(serialized=g(np.array(huge_tensor(1.0).SerializeToString())), out_type=tf.float32))
same("DecodeCompressed/text", lambda g: R.DecodeCompressed(bytes=g(words(b"abc")), compression_type="ZLIB"))


def huge_tensor(*values):
    proto = tf.make_tensor_proto(np.zeros(0, np.float32))
    del proto.tensor_shape.dim[:]
    proto.tensor_shape.dim.add().size = 2**50
    proto.float_val.extend(values)
    return proto


def parse_example(g, serialized, defaults=None, shape=(2,), op="ParseExampleV2"):
    return R.ParseExampleV2(
        serialized=g(serialized), names=g(words()), sparse_keys=g(words()), dense_keys=g(words(b"x")), ragged_keys=g(words()),
        dense_defaults=[g(zeros(0) if defaults is None else defaults)], num_sparse=0, sparse_types=[], ragged_value_types=[], ragged_split_types=[], dense_shapes=[list(shape)])[3][0]


EXAMPLE = tf.train.Example(features=tf.train.Features(feature={"x": tf.train.Feature(float_list=tf.train.FloatList(value=[1.0, 2.0]))}))
same("ParseExampleV2/text", lambda g: parse_example(g, words(b"\xff\xff")))
same("ParseExampleV2/missing", lambda g: parse_example(g, words(b"")))
same("ParseExampleV2/length", lambda g: parse_example(g, words(EXAMPLE.SerializeToString()), shape=(3,)))
same("ParseExampleV2/defaults", lambda g: parse_example(g, words(b""), zeros(7)))
same("ParseExampleV2/matrix", lambda g: parse_example(g, words(b"").reshape(1, 1)))
same("ParseExampleV2/keys", lambda g: R.ParseExampleV2(
    serialized=g(words(b"")), names=g(words()), sparse_keys=g(words(b"a", b"b")), dense_keys=g(words()), ragged_keys=g(words()), dense_defaults=[], num_sparse=1,
    sparse_types=[tf.float32], ragged_value_types=[], ragged_split_types=[], dense_shapes=[])[0][0])
same("AsString/precision", lambda g: R.AsString(input=g([1]), precision=3))

# Random numbers.
for op in ("RandomUniform", "RandomStandardNormal", "TruncatedNormal"):
    same(f"{op}/negative", lambda g, op=op: getattr(R, op)(shape=g([-1]), dtype=tf.float32))
    same(f"{op}/matrix", lambda g, op=op: getattr(R, op)(shape=g([[1]]), dtype=tf.float32))
    ours(f"{op}/huge", TOO_LARGE, lambda g, op=op: getattr(R, op)(shape=g(i64(HUGE, HUGE), tf.int64), dtype=tf.float32))
    ours(f"{op}/large", TOO_LARGE, lambda g, op=op: getattr(R, op)(shape=g(i64(2**50), tf.int64), dtype=tf.float32))
same("RandomUniformInt/vector", lambda g: R.RandomUniformInt(shape=g([2]), minval=g([0, 1]), maxval=g([3, 4])))
same("RandomShuffle/scalar", lambda g: R.RandomShuffle(value=g(F(1))))
same("Multinomial/no_classes", lambda g: R.Multinomial(logits=g(zeros(2, 0)), num_samples=g(np.int32(2))))
same("Multinomial/negative", lambda g: R.Multinomial(logits=g(zeros(2, 2)), num_samples=g(np.int32(-2))))
same("Multinomial/rank", lambda g: R.Multinomial(logits=g(zeros(2)), num_samples=g(np.int32(2))))
ours("Multinomial/huge", TOO_LARGE, lambda g: R.Multinomial(logits=g(zeros(1 << 20, 2)), num_samples=g(np.int32(BIG))))
same("RandomGamma/negative", lambda g: R.RandomGamma(shape=g([-2]), alpha=g(zeros(2))))
same("RandomGamma/matrix", lambda g: R.RandomGamma(shape=g([[2]]), alpha=g(zeros(2))))
ours("RandomGamma/huge", TOO_LARGE, lambda g: R.RandomGamma(shape=g(i64(HUGE, HUGE), tf.int64), alpha=g(zeros(2))))
same("RandomPoissonV2/negative", lambda g: R.RandomPoissonV2(shape=g([-2]), rate=g(zeros(2))))
ours("RandomPoissonV2/huge", TOO_LARGE, lambda g: R.RandomPoissonV2(shape=g(i64(HUGE, HUGE), tf.int64), rate=g(zeros(2))))
for op in ("StatelessRandomUniform", "StatelessRandomNormal", "StatelessTruncatedNormal"):
    same(f"{op}/seed", lambda g, op=op: getattr(R, op)(shape=g([2]), seed=g([1, 2, 3])))
    same(f"{op}/negative", lambda g, op=op: getattr(R, op)(shape=g([-2]), seed=g([1, 2])))

# Files.
same("SaveV2/names", lambda g: R.SaveV2(prefix=g(np.array(GONE + b"/x")), tensor_names=g(words(b"a", b"b")), shape_and_slices=g(words(b"", b"")), tensors=[g(zeros(2))]))
same("SaveV2/slices", lambda g: R.SaveV2(prefix=g(np.array(GONE + b"/x")), tensor_names=g(words(b"a")), shape_and_slices=g(words(b"", b"")), tensors=[g(zeros(2))]))
same("SaveV2/prefixes", lambda g: R.SaveV2(prefix=g(words(b"a", b"b")), tensor_names=g(words(b"a")), shape_and_slices=g(words(b"")), tensors=[g(zeros(2))]))
same("SaveV2/slice", lambda g: R.SaveV2(prefix=g(np.array(b"/tmp/never-written")), tensor_names=g(words(b"a")), shape_and_slices=g(words(b"4 9,9")), tensors=[g(zeros(2))]))
same("RestoreV2/names", lambda g: R.RestoreV2(prefix=g(np.array(GONE + b"/x")), tensor_names=g(words(b"a", b"b")), shape_and_slices=g(words(b"", b"")), dtypes=[tf.float32])[0])
same("RestoreV2/slices", lambda g: R.RestoreV2(prefix=g(np.array(GONE + b"/x")), tensor_names=g(words(b"a")), shape_and_slices=g(words(b"", b"")), dtypes=[tf.float32])[0])
same("RestoreV2/missing", lambda g: R.RestoreV2(prefix=g(np.array(GONE + b"/x")), tensor_names=g(words(b"a")), shape_and_slices=g(words(b"")), dtypes=[tf.float32])[0])
same("RestoreV2/prefixes", lambda g: R.RestoreV2(prefix=g(words(b"a", b"b")), tensor_names=g(words(b"a")), shape_and_slices=g(words(b"")), dtypes=[tf.float32])[0])
same("Save/names", lambda g: R.Save(filename=g(np.array(GONE + b"/x")), tensor_names=g(words(b"a", b"b")), data=[g(zeros(2))]))
same("Save/folder", lambda g: R.Save(filename=g(np.array(GONE + b"/x")), tensor_names=g(words(b"a")), data=[g(zeros(2))]))
same("Save/type", lambda g: R.Save(filename=g(np.array(GONE + b"/x")), tensor_names=g(words(b"a")), data=[g(np.array([1, 2], np.uint64))]))
same("Save/bfloat16", lambda g: R.Save(filename=g(np.array(GONE + b"/x")), tensor_names=g(words(b"a")), data=[tf.cast(g(zeros(2)), tf.bfloat16)]))
same("Save/filenames", lambda g: R.Save(filename=g(words(b"a", b"b")), tensor_names=g(words(b"a")), data=[g(zeros(2))]))
same("SaveSlices/slices", lambda g: R.SaveSlices(filename=g(np.array(GONE + b"/x")), tensor_names=g(words(b"a")), shapes_and_slices=g(words(b"", b"")), data=[g(zeros(2))]))
same("SaveSlices/slice", lambda g: R.SaveSlices(filename=g(np.array(GONE + b"/x")), tensor_names=g(words(b"a")), shapes_and_slices=g(words(b"4 0,3")), data=[g(zeros(2))]))
same("SaveSlices/text", lambda g: R.SaveSlices(filename=g(np.array(GONE + b"/x")), tensor_names=g(words(b"a")), shapes_and_slices=g(words(b"4")), data=[g(zeros(2))]))
same("Restore/missing", lambda g: R.Restore(file_pattern=g(np.array(GONE + b"/x")), tensor_name=g(np.array(b"a")), dt=tf.float32))
same("Restore/names", lambda g: R.Restore(file_pattern=g(np.array(GONE + b"/x")), tensor_name=g(words(b"a", b"b")), dt=tf.float32))
same("Restore/no_table", lambda g: R.Restore(file_pattern=g(np.array(__file__.encode())), tensor_name=g(np.array(b"a")), dt=tf.float32))
same("RestoreSlice/missing", lambda g: R.RestoreSlice(file_pattern=g(np.array(GONE + b"/x")), tensor_name=g(np.array(b"a")), shape_and_slice=g(np.array(b"")), dt=tf.float32))
same("RestoreSlice/slices", lambda g: R.RestoreSlice(file_pattern=g(np.array(GONE + b"/x")), tensor_name=g(np.array(b"a")), shape_and_slice=g(words(b"", b"")), dt=tf.float32))
same("RecordInput/missing", lambda g: R.RecordInput(file_pattern=GONE.decode() + "/x*"))
same("RecordInput/no_records", lambda g: R.RecordInput(file_pattern=__file__))
same("RecordInput/batch_size", lambda g: R.RecordInput(file_pattern=__file__, batch_size=-1))
# With these TensorFlow waits forever.
ours("RecordInput/buffer", INVALID, lambda g: R.RecordInput(file_pattern=__file__, file_buffer_size=0))
ours("RecordInput/parallelism", INVALID, lambda g: R.RecordInput(file_pattern=__file__, file_parallelism=0))
ours("RecordInput/huge", TOO_LARGE, lambda g: R.RecordInput(file_pattern=__file__, batch_size=HUGE))
same("ReadFile/missing", lambda g: R.ReadFile(filename=g(np.array(GONE + b"/x"))))
same("ReadFile/names", lambda g: R.ReadFile(filename=g(words(b"a", b"b"))))
same("WriteFile/missing", lambda g: R.WriteFile(filename=g(np.array(b"/proc/x/y")), contents=g(np.array(b""))))
same("ShardedFilename/vector", lambda g: R.ShardedFilename(basename=g(words(b"a", b"b")), shard=g(np.int32(0)), num_shards=g(np.int32(1))))
ours("MergeV2Checkpoints/missing", tf.errors.NotFoundError, lambda g: R.MergeV2Checkpoints(checkpoint_prefixes=g(words(GONE + b"/a")), destination_prefix=g(np.array(GONE + b"/b"))))


# Datasets, which fail when they are iterated.
def first_of(dataset, types=(tf.int64,), shapes=((),)):
    iterator = R.IteratorV2(shared_name=new_name("iterator"), container="", output_types=list(types), output_shapes=[list(shape) for shape in shapes])
    return after(R.MakeIterator(dataset=dataset, iterator=iterator), lambda: R.IteratorGetNext(
        iterator=iterator, output_types=list(types), output_shapes=[tf.TensorShape(None)] * len(types))[0])


TYPED = {"output_types": [tf.int64], "output_shapes": [tf.TensorShape(None)]}


def numbers(g, step=1):
    return R.RangeDataset(start=g(i64(0)[0], tf.int64), stop=g(i64(5)[0], tf.int64), step=g(i64(step)[0], tf.int64), **TYPED)


def long(g, value):
    return g(i64(value)[0], tf.int64)


same("RangeDataset/step", lambda g: first_of(numbers(g, 0)))
for size in (0, -1):
    same(f"BatchDatasetV2/{size}", lambda g, size=size: first_of(R.BatchDatasetV2(input_dataset=numbers(g), batch_size=long(g, size), drop_remainder=g(np.array(False)), **TYPED)))
    same(f"ShuffleDataset/{size}", lambda g, size=size: first_of(R.ShuffleDataset(input_dataset=numbers(g), buffer_size=long(g, size), seed=long(g, 1), seed2=long(g, 1), **TYPED)))
    ours(f"ShardDataset/{size}", INVALID, lambda g, size=size: first_of(R.ShardDataset(input_dataset=numbers(g), num_shards=long(g, size), index=long(g, 0), **TYPED)))
same("ShuffleDataset/below", lambda g: first_of(R.ShuffleDataset(input_dataset=numbers(g), buffer_size=long(g, -7), seed=long(g, 1), seed2=long(g, 1), **TYPED)))
same("ShardDataset/index", lambda g: first_of(R.ShardDataset(input_dataset=numbers(g), num_shards=long(g, 2), index=long(g, 5), **TYPED)))
same("PrefetchDataset/negative", lambda g: first_of(R.PrefetchDataset(input_dataset=numbers(g), buffer_size=long(g, -5), **TYPED)))
same("BatchDatasetV2/shapes", lambda g: first_of(R.BatchDatasetV2(input_dataset=R.TensorSliceDataset(components=[g(np.float32(1))], output_shapes=[[]]), batch_size=long(g, 2),
                                                                  drop_remainder=g(np.array(False)), **TYPED)))
same("TensorSliceDataset/sizes", lambda g: first_of(R.TensorSliceDataset(components=[g(zeros(2)), g(zeros(3))], output_shapes=[[], []]), (tf.float32, tf.float32), ((), ())))
same("TFRecordDataset/missing", lambda g: first_of(R.TFRecordDataset(
    filenames=g(words(GONE + b"/records")), compression_type=g(np.array(b"")), buffer_size=long(g, 0)), (tf.string,)))
same("TFRecordDataset/compression", lambda g: first_of(R.TFRecordDataset(
    filenames=g(words(GONE + b"/records")), compression_type=g(np.array(b"what")), buffer_size=long(g, 0)), (tf.string,)))
same("TextLineDataset/missing", lambda g: first_of(R.TextLineDataset(
    filenames=g(words(GONE + b"/lines")), compression_type=g(np.array(b"")), buffer_size=long(g, 0)), (tf.string,)))
same("TensorSliceDataset/types", lambda g: first_of(R.TensorSliceDataset(components=[g(zeros(2))], output_shapes=[[]])))
same("IteratorGetNext/unmade", lambda g: R.IteratorGetNext(
    iterator=R.IteratorV2(shared_name=new_name("iterator"), container="", output_types=[tf.int64], output_shapes=[[]]), output_types=[tf.int64], output_shapes=[[]])[0])
same("IteratorGetNext/end", lambda g: first_of(R.TakeDataset(input_dataset=numbers(g), count=long(g, 0), **TYPED)))

# What is told to people.
same("ScalarSummary/shapes", lambda g: R.ScalarSummary(tags=g(words(b"a")), values=g(zeros(2))))
same("HistogramSummary/tags", lambda g: R.HistogramSummary(tag=g(words(b"a", b"b")), values=g(zeros(2))))
same("ImageSummary/rank", lambda g: R.ImageSummary(tag=g(np.array(b"a")), tensor=g(zeros(2))))
same("ImageSummary/channels", lambda g: R.ImageSummary(tag=g(np.array(b"a")), tensor=g(zeros(1, 2, 2, 7))))
same("AudioSummaryV2/rank", lambda g: R.AudioSummaryV2(tag=g(np.array(b"a")), tensor=g(zeros(2)), sample_rate=g(F(8000))))
same("Assert/vector", lambda g: R.Assert(condition=g(np.array([True, False])), data=[g(zeros(2))]))


# A function that recurses without end. TensorFlow's stack overflows, and so does its client's if the call is plain.
def call_endless(g, op):
    name = new_name("endless")
    number, truth = tf.float32.as_datatype_enum, tf.bool.as_datatype_enum
    graph = tf.GraphDef()
    function = graph.library.function.add()
    function.signature.name = name
    for argument, argument_name in ((function.signature.input_arg.add(), "x"), (function.signature.output_arg.add(), "y")):
        argument.name, argument.type = argument_name, number
    function.ret["y"] = "again:output:0"
    placeholder = graph.node.add()
    placeholder.name, placeholder.op = "x", "Placeholder"
    placeholder.attr["dtype"].type = number
    for nodes, node_name, suffix in ((function.node_def, "again", ":output:0"), (graph.node, "call", "")):
        condition = nodes.add()
        condition.name, condition.op = "true", "Const"
        condition.attr["dtype"].type = truth
        condition.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(True))
        call = nodes.add()
        call.name, call.op = node_name, op
        call.input.extend(["true" + suffix, "x"])
        call.attr["Tcond"].type = truth
        call.attr["Tin"].list.type.append(number)
        call.attr["Tout"].list.type.append(number)
        call.attr["then_branch"].func.name = call.attr["else_branch"].func.name = name
    return tf.import_graph_def(graph, {"x": g(F(1))}, ["call:0"], name=new_name("imported"))[0]


for op in ("StatelessIf", "If"):
    ours(f"{op}/endless", tf.errors.FailedPreconditionError, lambda g, op=op: call_endless(g, op))

# Batching.
BATCHING = {"num_batch_threads": 1, "max_batch_size": 4, "batch_timeout_micros": 0, "grad_timeout_micros": 1000}


def batched(*tensors, **options):
    return R.Batch(in_tensors=list(tensors), shared_name=new_name("batcher"), **{**BATCHING, **options}).id


def unbatched(batch, index, key):
    return R.Unbatch(batched_tensor=batch, batch_index=index, id=key, timeout_micros=1000, shared_name=new_name("unbatcher"))


def unbatched_grad(batch, index, grad, key):
    return R.UnbatchGrad(original_input=batch, batch_index=index, grad=grad, id=key, shared_name=new_name("unbatcher"))


same("Batch/scalar", lambda g: batched(g(zeros())))
same("Batch/rows", lambda g: batched(g(zeros(2)), g(zeros(3))))
same("Batch/large", lambda g: batched(g(zeros(5))))
same("Batch/threads", lambda g: batched(g(zeros(2)), num_batch_threads=0))
same("Batch/max_batch_size", lambda g: batched(g(zeros(2)), max_batch_size=0))
same("Batch/timeout", lambda g: batched(g(zeros(2)), batch_timeout_micros=-1))
same("Batch/allowed", lambda g: batched(g(zeros(2)), allowed_batch_sizes=[2, 3]))
same("Batch/decreasing", lambda g: batched(g(zeros(2)), allowed_batch_sizes=[3, 2, 4]))
same("Unbatch/index", lambda g: unbatched(g(zeros(1)), g(np.zeros([2, 3], np.int64), tf.int64), g(np.int64(1), tf.int64)))
same("Unbatch/columns", lambda g: unbatched(g(zeros(1)), g(np.zeros([1, 2], np.int64), tf.int64), g(np.int64(1), tf.int64)))
same("Unbatch/id", lambda g: unbatched(g(zeros(1)), g(np.zeros([1, 3], np.int64), tf.int64), g(i64(1), tf.int64)))
same("Unbatch/beyond", lambda g: unbatched(g(zeros(1)), g(np.array([[1, 0, 2]], np.int64), tf.int64), g(np.int64(1), tf.int64)))
same("Unbatch/late", lambda g: unbatched(g(zeros(0)), g(np.zeros([0, 3], np.int64), tf.int64), g(np.int64(1), tf.int64)))
ours("Unbatch/negative", INVALID, lambda g: unbatched(g(zeros(1)), g(np.array([[1, 1, 0]], np.int64), tf.int64), g(np.int64(1), tf.int64)))
ours("Unbatch/vector", INVALID, lambda g: unbatched(g(zeros(1)), g(i64(1, 0, 1), tf.int64), g(np.int64(1), tf.int64)))
same("UnbatchGrad/id", lambda g: unbatched_grad(g(zeros(1)), g(np.zeros([1, 3], np.int64), tf.int64), g(zeros(1)), g(i64(1), tf.int64)))
same("UnbatchGrad/index", lambda g: unbatched_grad(g(zeros(1)), g(np.zeros([0, 3], np.int64), tf.int64), g(zeros(1)), g(np.int64(1), tf.int64)))
same("UnbatchGrad/columns", lambda g: unbatched_grad(g(zeros(1)), g(np.zeros([1, 2], np.int64), tf.int64), g(zeros(1)), g(np.int64(1), tf.int64)))
ours("UnbatchGrad/scalar", INVALID, lambda g: unbatched_grad(g(zeros(0)), g(np.zeros([0, 3], np.int64), tf.int64), g(zeros()), g(np.int64(1), tf.int64)))

# Generators whose state is a variable, and fingerprints.
def moved_on(g, state, algorithm=1, delta=1):
    return R.RngReadAndSkip(resource=resource(state), alg=g(np.int32(algorithm)), delta=g(np.uint64(delta), tf.uint64))


same("RngReadAndSkip/three_fry", lambda g: moved_on(g, i64(1, 2, 3), algorithm=2))
same("RngReadAndSkip/algorithm", lambda g: moved_on(g, i64(1, 2, 3), algorithm=9))
same("RngReadAndSkip/type", lambda g: moved_on(g, np.array([1, 2, 3], np.int32)))
same("RngReadAndSkip/rank", lambda g: moved_on(g, i64([1, 2, 3])))
# TensorFlow writes beyond its end.
ours("RngReadAndSkip/short", INVALID, lambda g: moved_on(g, i64(1, 2)))
same("Fingerprint/method", lambda g: R.Fingerprint(data=g(zeros(2)), method=g(np.array(b"md5"))))
same("Fingerprint/scalar", lambda g: R.Fingerprint(data=g(zeros()), method=g(np.array(b"farmhash64"))))
same("NonDeterministicInts/negative", lambda g: R.NonDeterministicInts(shape=g(i64(-1), tf.int64)))
ours("NonDeterministicInts/huge", TOO_LARGE, lambda g: R.NonDeterministicInts(shape=g(i64(HUGE), tf.int64)))


def quantized_sums(image, filter, **options):
    bounds = {"min_input": 0.0, "max_input": 1.0, "min_filter": 0.0, "max_filter": 1.0}
    options = {"strides": [1, 1, 1, 1], "padding": "VALID", **bounds, **options}
    return tf.bitcast(R.QuantizedConv2D(input=tf.bitcast(image, tf.quint8), filter=tf.bitcast(filter, tf.quint8), **options).output, tf.int32)


def bytes_of(*shape):
    return np.ones(shape, np.uint8)


same("QuantizedConv2D/depth", lambda g: quantized_sums(g(bytes_of(1, 2, 2, 3)), g(bytes_of(1, 1, 2, 1))))
same("QuantizedConv2D/rank", lambda g: quantized_sums(g(bytes_of(1, 2, 2)), g(bytes_of(1, 1, 2, 1))))
same("QuantizedConv2D/range", lambda g: quantized_sums(g(bytes_of(1, 2, 2, 1)), g(bytes_of(1, 1, 1, 1)), min_input=g(zeros(2))))
same("QuantizedConv2D/strides", lambda g: quantized_sums(g(bytes_of(1, 2, 2, 1)), g(bytes_of(1, 1, 1, 1)), strides=[1, 1, 2, 1]))
ours("QuantizedConv2D/window", INVALID, lambda g: quantized_sums(g(bytes_of(1, 2, 2, 1)), g(bytes_of(3, 3, 1, 1))))
ours("QuantizedConv2D/empty", INVALID, lambda g: quantized_sums(g(bytes_of(0, 2, 2, 1)), g(bytes_of(1, 1, 1, 1))))
same("Requantize/range", lambda g: tf.bitcast(R.Requantize(
    input=tf.bitcast(g(np.array([1, 2])), tf.qint32), input_min=0.0, input_max=1.0, requested_output_min=g(np.float32(0.5)), requested_output_max=1.0, out_type=tf.quint8).output, tf.uint8))


def sequence(g, used, **changes):
    shapes = {"x": (2, 1, 1), "cs_prev": (1, 1), "h_prev": (1, 1), "w": (2, 4), "wci": (1,), "wcf": (1,), "wco": (1,), "b": (4,), **changes}
    return R.BlockLSTM(seq_len_max=g(np.int64(used), tf.int64), **{key: g(zeros(*shape)) for key, shape in shapes.items()}).h


same("BlockLSTM/times", lambda g: sequence(g, 3))
same("BlockLSTM/negative", lambda g: sequence(g, -1))
for key, shape in (("x", (2, 1, 2)), ("cs_prev", (1,)), ("h_prev", (2, 1)), ("w", (2, 5)), ("wci", (2,)), ("b", (8,))):
    same(f"BlockLSTM/{key}", lambda g, key=key, shape=shape: sequence(g, 1, **{key: shape}))

# Cells, and classes drawn by their frequency.
CELL = {"x": (2, 3), "cs_prev": (2, 4), "h_prev": (2, 4), "w": (7, 16), "wci": (4,), "wcf": (4,), "wco": (4,), "b": (16,)}
for key, shape in {"cs_prev": (3, 4), "h_prev": (2, 5), "w": (6, 16), "b": (15,)}.items():
    same(f"LSTMBlockCell/{key}", lambda g, key=key, shape=shape: R.LSTMBlockCell(
        **{name: g(zeros(*size)) for name, size in {**CELL, key: shape}.items()}).h)
UNIT = {"x": (2, 3), "h_prev": (2, 4), "w_ru": (7, 8), "w_c": (7, 4), "b_ru": (8,), "b_c": (4,)}
for key, shape in {"h_prev": (3, 4), "w_ru": (7, 9), "w_c": (6, 4), "b_ru": (7,), "b_c": (5,)}.items():
    same(f"GRUBlockCell/{key}", lambda g, key=key, shape=shape: R.GRUBlockCell(
        **{name: g(zeros(*size)) for name, size in {**UNIT, key: shape}.items()}).h)
DRAWN = {"num_true": 1, "num_sampled": 2, "unique": True, "range_max": 3}
same("NearestNeighbors/points", lambda g: R.NearestNeighbors(points=g(zeros(2)), centers=g(zeros(2, 2)), k=g(1, tf.int64)).nearest_center_indices)
same("NearestNeighbors/centers", lambda g: R.NearestNeighbors(points=g(zeros(2, 2)), centers=g(zeros(2)), k=g(1, tf.int64)).nearest_center_indices)
same("NearestNeighbors/dimensions", lambda g: R.NearestNeighbors(points=g(zeros(2, 2)), centers=g(zeros(2, 3)), k=g(1, tf.int64)).nearest_center_indices)
same("NearestNeighbors/none", lambda g: R.NearestNeighbors(points=g(zeros(0, 2)), centers=g(zeros(2, 2)), k=g(1, tf.int64)).nearest_center_indices)
same("NearestNeighbors/k", lambda g: R.NearestNeighbors(points=g(zeros(2, 2)), centers=g(zeros(2, 2)), k=g(-1, tf.int64)).nearest_center_indices)
same("NearestNeighbors/vector", lambda g: R.NearestNeighbors(points=g(zeros(2, 2)), centers=g(zeros(2, 2)), k=g([1], tf.int64)).nearest_center_indices)


def chosen(g, points, count=1, seed=1, retries=0):
    return R.KmeansPlusPlusInitialization(
        points=g(points), num_to_sample=g(count, tf.int64), seed=g(seed, tf.int64), num_retries_per_sample=g(retries, tf.int64))


same("KmeansPlusPlusInitialization/points", lambda g: chosen(g, zeros(2)))
same("KmeansPlusPlusInitialization/none", lambda g: chosen(g, zeros(0, 2)))
same("KmeansPlusPlusInitialization/zero", lambda g: chosen(g, zeros(2, 2), count=0))
same("KmeansPlusPlusInitialization/many", lambda g: chosen(g, zeros(2, 2), count=3))
same("KmeansPlusPlusInitialization/count", lambda g: chosen(g, zeros(2, 2), count=[1]))
same("KmeansPlusPlusInitialization/seed", lambda g: chosen(g, zeros(2, 2), seed=[1]))
same("KmeansPlusPlusInitialization/retries", lambda g: chosen(g, zeros(2, 2), retries=[1]))
same("KMC2ChainInitialization/matrix", lambda g: R.KMC2ChainInitialization(distances=g(zeros(2, 2)), seed=g(1, tf.int64)))
same("KMC2ChainInitialization/none", lambda g: R.KMC2ChainInitialization(distances=g(zeros(0)), seed=g(1, tf.int64)))
same("KMC2ChainInitialization/seed", lambda g: R.KMC2ChainInitialization(distances=g(zeros(2)), seed=g([1], tf.int64)))


def found_iterator(g, types, shapes):
    """Returns an iterator over integers, by its name and with a promise of other types or shapes."""
    dataset = R.RangeDataset(start=np.int64(0), stop=np.int64(3), step=np.int64(1), output_types=[tf.int64], output_shapes=[[]])
    iterator = R.IteratorV2(shared_name=new_name("iterator"), container="", output_types=[tf.int64], output_shapes=[[]])
    with tf.control_dependencies([R.MakeIterator(dataset=dataset, iterator=iterator)]):
        name = R.IteratorToStringHandle(resource_handle=iterator)
    found = R.IteratorFromStringHandleV2(string_handle=name, output_types=types, output_shapes=shapes)
    return R.IteratorGetNext(iterator=found, output_types=[tf.int64], output_shapes=[None])


same("IteratorFromStringHandleV2/types", lambda g: found_iterator(g, [tf.float32], [[]]))
same("IteratorFromStringHandleV2/shapes", lambda g: found_iterator(g, [tf.int64], [[2]]))
same("IteratorFromStringHandleV2/count", lambda g: found_iterator(g, [tf.int64] * 2, [[]] * 2))
same("IteratorFromStringHandleV2/none", lambda g: found_iterator(g, [], []))
same("FixedUnigramCandidateSampler/nothing", lambda g: R.FixedUnigramCandidateSampler(true_classes=g([[1]], tf.int64), **DRAWN)[0])
same("FixedUnigramCandidateSampler/both", lambda g: R.FixedUnigramCandidateSampler(
    true_classes=g([[1]], tf.int64), vocab_file="/nowhere", unigrams=[1.0, 2.0, 3.0], **DRAWN)[0])
same("FixedUnigramCandidateSampler/range", lambda g: R.FixedUnigramCandidateSampler(true_classes=g([[1]], tf.int64), unigrams=[1.0, 2.0], **DRAWN)[0])
same("LearnedUnigramCandidateSampler/range", lambda g: R.LearnedUnigramCandidateSampler(true_classes=g([[1]], tf.int64), **{**DRAWN, "num_sampled": 4})[0])
