"""The ops of crates/ops/src/data_flow, list, lookup, parsing and io beside TensorFlow's, and those of array that keep or move blocks."""

import itertools

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import control_flow_util

import side_by_side

R = tf.raw_ops
TABLE = side_by_side.Table()
NAMES = itertools.count()
RANDOM = np.random.RandomState(17)
A = RANDOM.uniform(-1, 1, (3, 4)).astype(np.float32)
WORDS = np.array([b"one", b"two", b"three"], object)
NO_SHAPE = np.zeros(0, np.int32)


def add(name, expression, gradient=False, **more):
    TABLE.add(name, expression, gradient=gradient, **more)


def name(kind):
    return f"{kind}{next(NAMES)}"


def after(first, make):
    with tf.control_dependencies([first] if not isinstance(first, (list, tuple)) else list(first)):
        return make()


# Queues: the old ops take references to strings, the new ones resources.
def through_queue(given, version, op, **attrs):
    v2 = "V2" if version else ""
    queue = getattr(R, op + v2)(component_types=[tf.float32, tf.int32], shapes=[[4], []], shared_name=name("queue"), **attrs)
    rows, ids = given(A), given([7, 8, 9])
    filled = getattr(R, "QueueEnqueueMany" + v2)(handle=queue, components=[rows, ids])
    one = after(filled, lambda: getattr(R, "QueueEnqueue" + v2)(handle=queue, components=[tf.identity(rows[0]), tf.identity(ids[0])]))
    size = after(one, lambda: getattr(R, "QueueSize" + v2)(handle=queue))
    first = after(size, lambda: getattr(R, "QueueDequeue" + v2)(handle=queue, component_types=[tf.float32, tf.int32]))
    two = after(first, lambda: getattr(R, "QueueDequeueMany" + v2)(handle=queue, n=tf.constant(2), component_types=[tf.float32, tf.int32]))
    closed = after(two, lambda: getattr(R, "QueueClose" + v2)(handle=queue))
    rest = after(closed, lambda: getattr(R, "QueueDequeueUpTo" + v2)(handle=queue, n=tf.constant(5), component_types=[tf.float32, tf.int32]))
    is_closed = after(closed, lambda: getattr(R, "QueueIsClosed" + v2)(handle=queue))
    return [size, *first, *two, *rest, is_closed]


def through_priority_queue(given, v2):
    queue = getattr(R, "PriorityQueue" + v2)(component_types=[tf.float32], shapes=[[]], shared_name=name("queue"))
    filled = getattr(R, "QueueEnqueueMany" + v2)(handle=queue, components=[given([5, 1, 3], tf.int64), given([0.5, 0.1, 0.3])])
    return after(filled, lambda: getattr(R, "QueueDequeueMany" + v2)(handle=queue, n=tf.constant(3), component_types=[tf.int64, tf.float32]))


for version in (0, 1):
    for op in ("FIFOQueue", "PaddingFIFOQueue"):
        add(f"{op}/{version}", lambda given, op=op, version=version: through_queue(given, version, op))
    add(f"RandomShuffleQueue/{version}", lambda given, version=version: through_queue(given, version, "RandomShuffleQueue", seed=3, seed2=4))
    add(f"PriorityQueue/{version}", lambda given, version=version: through_priority_queue(given, "V2" if version else ""))


def stacked(given, v2):
    if v2:
        stack = R.StackV2(max_size=tf.constant(-1), elem_type=tf.float32, stack_name=name("stack"))
    else:
        stack = R.Stack(elem_type=tf.float32, stack_name=name("stack"))
    first = getattr(R, "StackPush" + v2)(handle=stack, elem=given(A))
    second = after(first, lambda: getattr(R, "StackPush" + v2)(handle=stack, elem=given(A[0]) + 1))
    popped = after(second, lambda: getattr(R, "StackPop" + v2)(handle=stack, elem_type=tf.float32))
    again = after(popped, lambda: getattr(R, "StackPop" + v2)(handle=stack, elem_type=tf.float32))
    closed = after(again, lambda: getattr(R, "StackClose" + v2)(handle=stack))
    return [popped, again, after(closed, lambda: tf.constant(1))]


add("Stack/old", lambda given: stacked(given, ""))
add("Stack/new", lambda given: stacked(given, "V2"))


# Arrays of tensors; TensorFlow's client makes the third version only.
def tensor_array(given):
    handle, flow = R.TensorArrayV3(size=given(np.int32(3)), dtype=tf.float32, tensor_array_name=name("array"), dynamic_size=True, clear_after_read=False)
    rows = given(A)
    flow = R.TensorArrayWriteV3(handle=handle, index=tf.constant(0), value=rows[0], flow_in=flow)
    flow = R.TensorArrayScatterV3(handle=handle, indices=tf.constant([1, 2]), value=rows[1:], flow_in=flow)
    seen = [R.TensorArrayReadV3(handle=handle, index=tf.constant(1), flow_in=flow, dtype=tf.float32), R.TensorArraySizeV3(handle=handle, flow_in=flow),
            R.TensorArrayGatherV3(handle=handle, indices=tf.constant([2, 0]), flow_in=flow, dtype=tf.float32),
            *R.TensorArrayConcatV3(handle=handle, flow_in=flow, dtype=tf.float32)]
    grad_handle, grad_flow = after(seen, lambda: R.TensorArrayGradV3(handle=handle, flow_in=tf.identity(flow), source="gradients"))
    grad_flow = R.TensorArrayWriteV3(handle=grad_handle, index=tf.constant(0), value=rows[2], flow_in=grad_flow)
    grad_read = R.TensorArrayReadV3(handle=grad_handle, index=tf.constant(0), flow_in=grad_flow, dtype=tf.float32)
    closed = after([grad_read], lambda: R.TensorArrayCloseV3(handle=handle))
    return seen + [grad_read, after(closed, lambda: tf.constant(2))]


def split_array(given):
    handle, flow = R.TensorArrayV3(size=given(np.int32(2)), dtype=tf.float32, tensor_array_name=name("array"))
    flow = R.TensorArraySplitV3(handle=handle, value=given(A), lengths=given([1, 2], tf.int64), flow_in=flow)
    return R.TensorArrayConcatV3(handle=handle, flow_in=flow, dtype=tf.float32)


add("TensorArray", tensor_array)
add("TensorArraySplit", split_array)


def grad_with_shape(given):
    handle, flow = R.TensorArrayV3(size=given(np.int32(2)), dtype=tf.float32, tensor_array_name=name("array"), element_shape=[4])
    flow = R.TensorArrayWriteV3(handle=handle, index=tf.constant(0), value=given(A[0]), flow_in=flow)
    grad, grad_flow = R.TensorArrayGradWithShape(handle=handle, flow_in=flow, shape_to_prepend=given([2]), source="gradients")
    grad_flow = R.TensorArrayWriteV3(handle=grad, index=tf.constant(0), value=given(A[:2]), flow_in=grad_flow)
    return R.TensorArrayReadV3(handle=grad, index=tf.constant(0), flow_in=grad_flow, dtype=tf.float32)


add("TensorArrayGradWithShape", grad_with_shape)


# Lists of tensors.
def lists(given):
    rows = given(A)
    empty = R.EmptyTensorList(element_shape=given([4]), max_num_elements=tf.constant(-1), element_dtype=tf.float32)
    pushed = R.TensorListPushBack(input_handle=R.TensorListPushBack(input_handle=empty, tensor=rows[0]), tensor=rows[1])
    rest, popped = R.TensorListPopBack(input_handle=pushed, element_shape=given([4]), element_dtype=tf.float32)
    whole = R.TensorListFromTensor(tensor=rows, element_shape=given([4]))
    item = R.TensorListSetItem(input_handle=whole, index=tf.constant(1), item=rows[0] * 2)
    reserved = R.TensorListResize(input_handle=R.TensorListReserve(element_shape=given([4]), num_elements=given(np.int32(2)), element_dtype=tf.float32), size=tf.constant(3))
    scattered = R.TensorListScatter(tensor=rows, indices=given([2, 0, 1]), element_shape=given([4]))
    second = R.TensorListScatterV2(tensor=rows, indices=given([2, 0, 1]), element_shape=given([4]), num_elements=given(np.int32(4)))
    existing = R.TensorListScatterIntoExistingList(input_handle=item, tensor=rows[:1], indices=given([0]))
    split = R.TensorListSplit(tensor=rows, element_shape=given([-1, 4]), lengths=given([1, 2], tf.int64))

    def stack(handle):
        return R.TensorListStack(input_handle=handle, element_shape=given([4]), element_dtype=tf.float32)

    return [R.TensorListLength(input_handle=rest), popped, stack(pushed), stack(whole), stack(item), stack(reserved), stack(scattered), stack(second), stack(existing),
            R.TensorListElementShape(input_handle=whole, shape_type=tf.int32),
            R.TensorListGetItem(input_handle=whole, index=tf.constant(2), element_shape=given([4]), element_dtype=tf.float32),
            R.TensorListGather(input_handle=whole, indices=given([2, 0]), element_shape=given([4]), element_dtype=tf.float32),
            *R.TensorListConcat(input_handle=split, element_dtype=tf.float32),
            *R.TensorListConcatV2(input_handle=split, element_shape=given([-1, 4]), leading_dims=given([], tf.int64), element_dtype=tf.float32),
            stack(R.TensorListConcatLists(input_a=whole, input_b=pushed, element_dtype=tf.float32))]


add("TensorList", lists)
add("TensorListPushBackBatch", lambda given: R.TensorListStack(
    input_handle=tf.unstack(R.TensorListPushBackBatch(
        input_handles=tf.stack([R.EmptyTensorList(element_shape=given([4]), max_num_elements=tf.constant(-1), element_dtype=tf.float32) for _ in range(2)]),
        tensor=given(A[:2])))[1], element_shape=given([4]), element_dtype=tf.float32))


# Staging areas.
def staged(given):
    common = {"dtypes": [tf.float32], "shared_name": name("stage")}
    put = R.Stage(values=[given(A)], shared_name=common["shared_name"])
    size = after(put, lambda: R.StageSize(**common))
    peeked = after(size, lambda: R.StagePeek(index=tf.constant(0), **common))
    taken = after(peeked, lambda: R.Unstage(**common))
    cleared = after(taken, lambda: R.StageClear(**common))
    return [size, *peeked, *taken, after(cleared, lambda: R.StageSize(**common))]


def map_staged(given, prefix):
    common = {"dtypes": [tf.float32, tf.int32], "shared_name": name("stage")}

    def op(kind, **more):
        return getattr(R, f"{prefix}Map{kind}")(**common, **more)

    values = [given(A), given([4])]
    put = getattr(R, f"{prefix}MapStage")(key=tf.constant(3, tf.int64), indices=tf.constant([0, 1]), values=values, **common)
    part = after(put, lambda: getattr(R, f"{prefix}MapStage")(key=tf.constant(5, tf.int64), indices=tf.constant([0]), values=[tf.identity(values[0])], **common))
    sizes = after(part, lambda: [op("Size"), op("IncompleteSize")])
    peeked = after(sizes, lambda: op("Peek", key=tf.constant(3, tf.int64), indices=tf.constant([0, 1])))
    taken = after(peeked, lambda: op("Unstage", key=tf.constant(3, tf.int64), indices=tf.constant([0, 1])))
    again = after(taken, lambda: getattr(R, f"{prefix}MapStage")(
        key=tf.constant(8, tf.int64), indices=tf.constant([0, 1]), values=[tf.identity(one) for one in values], **common))
    any_key = after(again, lambda: op("UnstageNoKey", indices=tf.constant([0, 1])))
    cleared = after(any_key.key, lambda: op("Clear"))
    return [*sizes, *peeked, *taken, any_key.key, *any_key.values, after(cleared, lambda: op("IncompleteSize"))]


add("Stage", staged)
add("MapStage", lambda given: map_staged(given, ""))
add("OrderedMapStage", lambda given: map_staged(given, "Ordered"))


def barrier(given):
    handle = R.Barrier(component_types=[tf.float32, tf.int32], shapes=[[], []], shared_name=name("barrier"))
    keys = given(WORDS[:2])
    first = R.BarrierInsertMany(handle=handle, keys=keys, values=given([0.5, 1.5]), component_index=0)
    incomplete = after(first, lambda: R.BarrierIncompleteSize(handle=handle))
    second = after(incomplete, lambda: R.BarrierInsertMany(handle=handle, keys=tf.identity(keys), values=tf.constant([5, 6]), component_index=1))
    ready = after(second, lambda: R.BarrierReadySize(handle=handle))
    taken = after(ready, lambda: R.BarrierTakeMany(handle=handle, num_elements=tf.constant(2), component_types=[tf.float32, tf.int32]))
    closed = after(taken.keys, lambda: R.BarrierClose(handle=handle))
    return [incomplete, ready, taken.indices, taken.keys, *taken.values, after(closed, lambda: tf.constant(3))]


add("Barrier", barrier)


def accumulated(given, prefix, reduction):
    handle = getattr(R, f"{prefix}ConditionalAccumulator")(dtype=tf.float32, shape=[3, 4], shared_name=name("accumulator"), reduction_type=reduction)
    a = given(A)

    def op(kind, **more):
        return getattr(R, f"{prefix}Accumulator{kind}")(handle=handle, **more)

    first = op("ApplyGradient", local_step=tf.constant(0, tf.int64), gradient=a)
    second = after(first, lambda: op("ApplyGradient", local_step=tf.constant(0, tf.int64), gradient=tf.identity(a) * 3))
    count = after(second, lambda: op("NumAccumulated"))
    taken = after(count, lambda: op("TakeGradient", num_required=tf.constant(2), dtype=tf.float32))
    stepped = after(taken, lambda: op("SetGlobalStep", new_global_step=tf.constant(9, tf.int64)))
    return [count, taken, after(stepped, lambda: op("NumAccumulated"))]


def sparse_accumulated(given):
    handle = R.SparseConditionalAccumulator(dtype=tf.float32, shape=[3, 4], shared_name=name("accumulator"))
    values = given(A[:2])
    first = R.SparseAccumulatorApplyGradient(
        handle=handle, local_step=tf.constant(0, tf.int64), gradient_indices=given([0, 2], tf.int64), gradient_values=values, gradient_shape=given([3, 4], tf.int64),
        has_known_shape=True)
    second = after(first, lambda: R.SparseAccumulatorApplyGradient(
        handle=handle, local_step=tf.constant(0, tf.int64), gradient_indices=tf.constant([1, 2], tf.int64), gradient_values=tf.identity(values),
        gradient_shape=tf.constant([3, 4], tf.int64), has_known_shape=True))
    return after(second, lambda: list(R.SparseAccumulatorTakeGradient(handle=handle, num_required=tf.constant(2), dtype=tf.float32)))


for reduction in ("MEAN", "SUM"):
    add(f"ConditionalAccumulator/{reduction}", lambda given, reduction=reduction: accumulated(given, "", reduction))
    add(f"ResourceConditionalAccumulator/{reduction}", lambda given, reduction=reduction: accumulated(given, "Resource", reduction))
add("SparseConditionalAccumulator", sparse_accumulated)


# Tables.
def table(given, v2):
    made = getattr(R, "HashTable" + v2)(key_dtype=tf.string, value_dtype=tf.int64, shared_name=name("table"))
    keys = given(WORDS)
    filled = getattr(R, "InitializeTable" + v2)(table_handle=made, keys=keys, values=given([4, 5, 6], tf.int64))
    found = after(filled, lambda: getattr(R, "LookupTableFind" + v2)(
        table_handle=made, keys=tf.concat([keys, ["absent"]], 0), default_value=tf.constant(-1, tf.int64)))
    return [found, after(filled, lambda: getattr(R, "LookupTableSize" + v2)(table_handle=made))]


def mutable_table(given, v2, kind):
    more = {"value_shape": [2]} if kind == "MutableHashTableOfTensors" else {}
    if kind == "MutableDenseHashTable":
        made = getattr(R, kind + v2)(empty_key=tf.constant("", tf.string), **({"deleted_key": tf.constant("-")} if v2 else {}), value_dtype=tf.int64, shared_name=name("table"))
    else:
        made = getattr(R, kind + v2)(key_dtype=tf.string, value_dtype=tf.int64, shared_name=name("table"), **more)
    keys, values = given(WORDS), given([[4, 4], [5, 5], [6, 7]] if more else [4, 5, 6], tf.int64)
    default = tf.constant([-1, -2] if more else -1, tf.int64)
    filled = getattr(R, "LookupTableInsert" + v2)(table_handle=made, keys=keys, values=values)
    found = after(filled, lambda: getattr(R, "LookupTableFind" + v2)(table_handle=made, keys=tf.concat([keys, ["absent"]], 0), default_value=default))
    size = after(found, lambda: getattr(R, "LookupTableSize" + v2)(table_handle=made))
    kept = "Import" if kind != "MutableDenseHashTable" else "Insert"
    again = after(size, lambda: getattr(R, f"LookupTable{kept}{v2}")(table_handle=made, keys=tf.identity(keys[:2]), values=tf.identity(values[1:])))
    if v2:
        again = after(again, lambda: R.LookupTableRemoveV2(table_handle=made, keys=tf.identity(keys[1:2])))
    if kind == "MutableDenseHashTable":
        # What it exports are its buckets, empty ones and all.
        return [found, size, after(again, lambda: R.LookupTableSizeV2(table_handle=made))]
    exported = after(again, lambda: getattr(R, "LookupTableExport" + v2)(table_handle=made, Tkeys=tf.string, Tvalues=tf.int64))
    return [found, size, tf.sort(tf.reshape(tf.string_to_hash_bucket_fast(exported[0], 1000), [-1])), tf.sort(tf.reshape(exported[1], [-1]))]


for v2 in ("", "V2"):
    add(f"HashTable{v2}", lambda given, v2=v2: table(given, v2))
    for kind in ("MutableHashTable", "MutableHashTableOfTensors") + (("MutableDenseHashTable",) if v2 else ()):
        add(f"{kind}{v2}", lambda given, v2=v2, kind=kind: mutable_table(given, v2, kind))


def buckets(given, empty, deleted, steps):
    """Returns the keys and the size of a dense table after each step; values of unused buckets are undefined."""
    def keyed(value):
        return given(value, None if value.dtype == object else tf.int64)

    made = R.MutableDenseHashTableV2(
        empty_key=keyed(empty), deleted_key=keyed(deleted), value_dtype=tf.int64, value_shape=[], initial_num_buckets=8, max_load_factor=0.8, shared_name=name("table"))
    found, last = [], tf.no_op()
    for what, keys in steps:
        keys = keyed(keys)
        if what == "insert":
            last = after(last, lambda: R.LookupTableInsertV2(table_handle=made, keys=keys, values=tf.range(tf.shape(keys, out_type=tf.int64)[0]) + len(found)))
        else:
            last = after(last, lambda: R.LookupTableRemoveV2(table_handle=made, keys=keys))
        exported, values = after(last, lambda: R.LookupTableExportV2(table_handle=made, Tkeys=keys.dtype, Tvalues=tf.int64))
        # What TensorFlow exports are its own buckets, which later steps change, so they are copied at once.
        exported, values = (tf.reverse(tf.ensure_shape(one, [None, 1]), [0]) for one in (exported, values))
        used = tf.reduce_all(tf.not_equal(exported, tf.constant(empty, keys.dtype)), 1)
        last = [exported, tf.boolean_mask(values, used), tf.shape(values), after([exported, values], lambda: R.LookupTableSizeV2(table_handle=made))]
        found += last
    return found


add("MutableDenseHashTableV2/numbers", lambda given: buckets(given, np.int64(0), np.int64(-1), [
    ("insert", np.array([1, 9, 17, 3], np.int64)), ("remove", np.array([9, 55], np.int64)), ("insert", np.array([17], np.int64)), ("insert", np.array([25, 3], np.int64)),
    ("insert", np.array([4, 5, 6, 7], np.int64)), ("remove", np.array([17, -9], np.int64)), ("insert", np.array([-9, 2**40], np.int64))]), gradient=False)
add("MutableDenseHashTableV2/words", lambda given: buckets(given, np.array(b"", object), np.array(b"-", object), [
    ("insert", np.array([b"alpha", b"b", b"gamma delta epsilon", b"12345678", b"1234567"], object)), ("remove", np.array([b"b", b"alpha"], object)),
    ("insert", np.array([b"b", b"c", b"d"], object))]), gradient=False)


# Partitions and stitches.
add("DynamicPartition", lambda given: R.DynamicPartition(data=given(A), partitions=given([2, 0, 2]), num_partitions=3), gradient=True)
for op in ("DynamicStitch", "ParallelDynamicStitch"):
    add(op, lambda given, op=op: getattr(R, op)(indices=[given([3, 0]), given([[1], [2]])], data=[given(A[:2]), given(A[1:].reshape(2, 1, 4))]), gradient=op == "DynamicStitch")


# Blocks, diagonals and places.
IMAGE = RANDOM.uniform(-1, 1, (4, 4, 6, 4)).astype(np.float32)
SQUARES = RANDOM.uniform(-1, 1, (2, 3, 4)).astype(np.float32)
add("space_batch", lambda given: [
    R.SpaceToBatchND(input=given(IMAGE), block_shape=given([2, 3], shape=[2]), paddings=given([[0, 0], [2, 1]], shape=[2, 2])),
    R.BatchToSpaceND(input=given(IMAGE), block_shape=given([2, 2], shape=[2]), crops=given([[1, 0], [0, 2]], shape=[2, 2])),
    R.SpaceToBatch(input=given(IMAGE), paddings=tf.constant([[0, 0], [1, 1]]), block_size=2), R.BatchToSpace(input=given(IMAGE), crops=tf.constant([[0, 1], [0, 0]]), block_size=2)])
add("space_depth", lambda given: [R.SpaceToDepth(input=given(IMAGE), block_size=2), R.DepthToSpace(input=given(IMAGE), block_size=2)], gradient=True)
add("MatrixBandPart", lambda given: R.MatrixBandPart(input=given(SQUARES), num_lower=given(np.int64(1), tf.int64), num_upper=given(np.int64(-1), tf.int64)))
add("MatrixDiag", lambda given: R.MatrixDiag(diagonal=given(A)))
add("MatrixDiagPart", lambda given: R.MatrixDiagPart(input=given(SQUARES)))
add("MatrixSetDiag", lambda given: R.MatrixSetDiag(input=given(SQUARES), diagonal=given(A[:2, :3])))
for version in ("V2", "V3"):
    for low, high in ((0, 0), (-1, 1), (-2, -1), (1, 2)):
        label = f"{version}/{low}_{high}"
        band = np.array([low, high], np.int32)
        rows = high - low + 1
        diagonal = RANDOM.uniform(-1, 1, (2, rows, 3) if rows > 1 else (2, 3)).astype(np.float32)
        more = [{}] if version == "V2" else [{"align": align} for align in ("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT")]
        for index, attrs in enumerate(more):
            add(f"MatrixDiag{label}_{index}", lambda given, v=version, band=band, d=diagonal, attrs=attrs: getattr(R, f"MatrixDiag{v}")(
                diagonal=given(d), k=given(band), num_rows=given(np.int32(-1)), num_cols=given(np.int32(-1)), padding_value=given(np.float32(9)), **attrs))
            add(f"MatrixDiagPart{label}_{index}", lambda given, v=version, band=band, attrs=attrs: getattr(R, f"MatrixDiagPart{v}")(
                input=given(SQUARES), k=given(band), padding_value=given(np.float32(9)), **attrs))
            add(f"MatrixSetDiag{label}_{index}", lambda given, v=version, band=band, attrs=attrs: getattr(R, f"MatrixSetDiag{v}")(
                input=given(SQUARES), diagonal=getattr(R, f"MatrixDiagPart{v}")(input=given(SQUARES * 2), k=given(band), padding_value=given(np.float32(0)), **attrs), k=given(band), **attrs))
add("Diag", lambda given: [R.Diag(diagonal=given(A[0])), R.Diag(diagonal=given(A)), R.DiagPart(input=given(A[:, :3]))], gradient=True)
add("ScatterNd", lambda given: [
    R.ScatterNd(indices=given([[0, 1], [2, 2], [0, 1]]), updates=given([1.0, 2.0, 3.0]), shape=given([3, 4])), R.ScatterNd(indices=given([[2], [0]]), updates=given(A[:2]), shape=given([3, 4])),
    R.ScatterNdNonAliasingAdd(input=given(A), indices=given([[2], [0]]), updates=given(A[:2]))], gradient=True)
for op in ("TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub", "TensorScatterMax", "TensorScatterMin"):
    add(op, lambda given, op=op: getattr(R, op)(tensor=given(A), indices=given([[2], [0]]), updates=given(A[:2] * 0.5)), gradient=True)
for op in ("InplaceUpdate", "InplaceAdd", "InplaceSub"):
    add(op, lambda given, op=op: getattr(R, op)(x=given(A) + 0, i=given([2, 0]), v=given(A[:2])))
add("TensorStridedSliceUpdate", lambda given: R.TensorStridedSliceUpdate(
    input=given(A), begin=given([0, 1]), end=given([3, 3]), strides=given([2, 1]), value=given(A[:2, :2])), gradient=True)
add("Reverse", lambda given: R.Reverse(tensor=given(A), dims=given(np.array([True, False]))), gradient=True)
add("search", lambda given: [getattr(R, op)(sorted_inputs=given([[1.0, 2.0, 2.0, 5.0]]), values=given([[0.0, 2.0, 9.0]]), out_type=dtype)
                             for op in ("LowerBound", "UpperBound") for dtype in (tf.int32, tf.int64)])
add("ListDiff", lambda given: R.ListDiff(x=given([4, 1, 9, 1]), y=given([1, 2])))
add("UniqueWithCountsV2", lambda given: R.UniqueWithCountsV2(x=given([[1, 2], [3, 4], [1, 2]]), axis=given([0], tf.int64)))
add("UnravelIndex", lambda given: [R.UnravelIndex(indices=given([5, 0, 11]), dims=given([3, 4])), R.UnravelIndex(indices=given(np.int32(7)), dims=given([3, 4]))])
add("Bitcast", lambda given: [R.Bitcast(input=given(A), type=tf.int32), R.Bitcast(input=given(A), type=tf.uint8), R.Bitcast(input=given(np.arange(8, dtype=np.uint8).reshape(2, 4)), type=tf.int32)])
add("copies", lambda given: [R.DeepCopy(x=given(A)), R.Snapshot(input=given(A)), R.GuaranteeConst(input=given(A)), R.CheckNumericsV2(tensor=given(A), message="m"),
                             R.PlaceholderWithDefault(input=given(A), shape=[None, 4]), R.ToBool(input=given(A[0, 0])), R.ToBool(input=given(np.zeros(0, np.float32)))])
add("Empty", lambda given: [tf.shape(R.Empty(shape=given([2, 3]), dtype=tf.float32)), R.Empty(shape=given([2, 3]), dtype=tf.float32, init=True)])
add("LinSpace", lambda given: [R.LinSpace(start=given(np.float32(start)), stop=given(np.float32(7)), num=given(np.int32(count))) for start in (1, 9) for count in (1, 2, 6)])
add("InTopK", lambda given: R.InTopK(predictions=given(A), targets=given([0, 3, 1]), k=2))
add("AccumulateNV2", lambda given: R.AccumulateNV2(inputs=[given(A), given(A * 2)], shape=[3, 4]))
add("ParallelConcat", lambda given: [tf.parallel_stack([given(A), given(A * 2)]), R.ParallelConcat(values=[given(A[:1]), given(A[1:2])], shape=[2, 4])])
add("trigger", lambda given: after([R.ControlTrigger(), R.NoOp(), R.Assert(condition=given(np.array(True)), data=[given(A)])], lambda: given(A) * 2))
add("pool_second", lambda given: [
    R.MaxPoolGradGrad(orig_input=given(IMAGE), orig_output=tf.nn.max_pool(given(IMAGE), [1, 2, 2, 1], [1, 2, 2, 1], "SAME"), grad=given(IMAGE * 2), ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME"),
    R.MaxPoolGradGradV2(orig_input=given(IMAGE), orig_output=tf.nn.max_pool(given(IMAGE), [1, 2, 2, 1], [1, 2, 2, 1], "SAME"), grad=given(IMAGE * 2), ksize=given([1, 2, 2, 1]), strides=given([1, 2, 2, 1]),
                        padding="SAME")])
VOLUME = RANDOM.uniform(-1, 1, (1, 4, 4, 4, 2)).astype(np.float32)
add("pool_second_3d", lambda given: R.MaxPool3DGradGrad(
    orig_input=given(VOLUME), orig_output=R.MaxPool3D(input=given(VOLUME), ksize=[1, 2, 2, 2, 1], strides=[1, 2, 2, 2, 1], padding="SAME"), grad=given(VOLUME * 2), ksize=[1, 2, 2, 2, 1],
    strides=[1, 2, 2, 2, 1], padding="SAME"))
for op in ("SparseSegmentSumGradV2", "SparseSegmentMeanGradV2", "SparseSegmentSqrtNGradV2"):
    add(op, lambda given, op=op: getattr(R, op)(grad=given(A), indices=given([0, 5, 5]), segment_ids=given([0, 0, 1]), dense_output_dim0=given(np.int32(8))))

# Text and records.
add("text", lambda given: [R.StringLower(input=given(WORDS)), R.StringUpper(input=given(WORDS)), R.StringStrip(input=given(np.array([b" a ", b"b\n"], object))),
                           R.RegexFullMatch(input=given(WORDS), pattern=given(np.array(b"t.*", object))),
                           R.RegexReplace(input=given(WORDS), pattern=given(np.array(b"(o)n", object)), rewrite=given(np.array(b"<\\1>", object)), replace_global=False),
                           *R.StringSplitV2(input=given(np.array([b"a,b,,c", b""], object)), sep=given(np.array(b",", object)), maxsplit=2),
                           R.StringFormat(inputs=[given(A), given(WORDS)], template="x {} y {}", placeholder="{}", summarize=2),
                           R.UnsortedSegmentJoin(inputs=given(WORDS), segment_ids=given([1, 0, 1]), num_segments=given(np.int32(3)), separator="-")])
add("ReduceJoin", lambda given: [R.ReduceJoin(inputs=given(np.array([[b"a", b"b"], [b"c", b"d"]], object)), reduction_indices=given(np.array(axes, np.int32)), keep_dims=keep, separator="+")
                                 for axes in ([0], [1], [1, 0], []) for keep in (False, True)])
add("decoding", lambda given: [R.DecodeRaw(bytes=given(np.array([b"abcdefgh", b"12345678"], object)), out_type=dtype, little_endian=little) for dtype in (tf.uint8, tf.int16, tf.int32, tf.float64)
                               for little in (True, False)]
    + [R.DecodePaddedRaw(input_bytes=given(np.array([b"abc", b"12345678"], object)), fixed_length=given(np.int32(4)), out_type=tf.int16, little_endian=little) for little in (True, False)]
    + list(R.DecodeCSV(records=given(np.array([b'1,2.5,"a,b"', b",,"], object)), record_defaults=[given([7]), given([0.5]), given(np.array([b"z"], object))])))
add("ParseTensor", lambda given: R.ParseTensor(serialized=R.SerializeTensor(tensor=given(A)), out_type=tf.float32))
EXAMPLES = np.array([tf.train.Example(features=tf.train.Features(feature={
    "x": tf.train.Feature(float_list=tf.train.FloatList(value=[float(index), 2.0])), "n": tf.train.Feature(int64_list=tf.train.Int64List(value=list(range(index)))),
    **({"w": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"word"]))} if index == 1 else {})})).SerializeToString() for index in range(3)], object)
PARSED = {"x": tf.FixedLenFeature([2], tf.float32), "n": tf.VarLenFeature(tf.int64), "w": tf.FixedLenFeature([], tf.string, default_value="none")}


def parsed(features):
    return [part for name in sorted(features) for part in ([features[name].indices, features[name].values, features[name].dense_shape]
                                                           if isinstance(features[name], tf.SparseTensor) else [features[name]])]


add("ParseExampleV2", lambda given: parsed(tf.io.parse_example(given(EXAMPLES), PARSED)))
add("ParseSingleExample", lambda given: parsed(tf.io.parse_single_example(given(EXAMPLES[2:])[0], PARSED)))
add("ParseExample", lambda given: list(itertools.chain.from_iterable(R.ParseExample(
    serialized=given(EXAMPLES), names=given(np.zeros(0, object), tf.string), sparse_keys=[given(np.array(b"n", object))], dense_keys=[given(np.array(b"x", object))],
    dense_defaults=[given(np.zeros(0, np.float32))], sparse_types=[tf.int64], dense_shapes=[[2]]))))
add("ParseSingleExample/raw", lambda given: list(itertools.chain.from_iterable(R.ParseSingleExample(
    serialized=given(EXAMPLES[2:])[0], dense_defaults=[given(np.zeros(0, np.float32))], num_sparse=1, sparse_keys=["n"], dense_keys=["x"], sparse_types=[tf.int64],
    dense_shapes=[[2]]))))
add("DecodeCompressed", lambda given: R.DecodeCompressed(bytes=given(np.array([b"plain"], object))))
add("filenames", lambda given: [R.ShardedFilename(basename=given(np.array(b"a", object)), shard=given(np.int32(2)), num_shards=given(np.int32(5))),
                                R.ShardedFilespec(basename=given(np.array(b"a", object)), num_shards=given(np.int32(5)))])
add("StatelessRandom", lambda given: [
    R.StatelessRandomUniform(shape=given([5]), seed=given([1, 2])), R.StatelessRandomNormal(shape=given([5]), seed=given([1, 2])),
    R.StatelessTruncatedNormal(shape=given([5]), seed=given([1, 2])), R.StatelessRandomUniformInt(shape=given([5]), seed=given([1, 2]), minval=given(np.int32(-5)), maxval=given(np.int32(50))),
    R.StatelessRandomUniformFullInt(shape=given([5]), seed=given([1, 2]), dtype=tf.int32), R.StatelessMultinomial(logits=given(A), num_samples=given(np.int32(6)), seed=given([1, 2])),
    R.StatelessRandomUniformFullIntV2(shape=given([5]), key=given([7], tf.uint64), counter=given([1, 2], tf.uint64), alg=tf.constant(1), dtype=tf.int32),
    R.StatelessShuffle(value=given(A), key=given([7], tf.uint64), counter=given([1, 2], tf.uint64), alg=tf.constant(1))])

# Examples as JSON, taken apart again, since the order of features in the bytes is nobody's business.
JSON_EXAMPLES = np.array([
    '{"features": {"feature": {"n": {"int64List": {"value": ["3", -4]}}, "x": {"floatList": {"value": [1.5, "-2.25"]}}, "s": {"bytesList": {"value": ["aGk=", ""]}}}}}',
    '{"features": {"feature": {"n": {"int64_list": {"value": [5, 6.0]}}, "x": {"float_list": {"value": [1e3, 7]}}, "s": {"bytes_list": {"value": ["AAE_", "_-8"]}}}}}',
], object)
JSON_FEATURES = {"n": tf.FixedLenFeature([2], tf.int64), "x": tf.FixedLenFeature([2], tf.float32), "s": tf.FixedLenFeature([2], tf.string)}
add("DecodeJSONExample", lambda given: list(tf.io.parse_example(R.DecodeJSONExample(json_examples=given(JSON_EXAMPLES)), JSON_FEATURES).values()), gradient=False)
add("DecodeJSONExample/nothing", lambda given: R.DecodeJSONExample(json_examples=given(np.array([["{}", '{"features": {}}']], object))), gradient=False)

# Lists of which some elements are not set and whose shapes are known in part: the rest tells, or what is asked for.
def reserved(given, count, shape, dtype=tf.float32):
    return R.TensorListReserve(element_shape=tf.constant(np.array(shape, np.int32)), num_elements=given(np.int32(count)), element_dtype=dtype)


def with_one(given, count, shape, item):
    return R.TensorListSetItem(input_handle=reserved(given, count, shape), index=given(np.int32(1)), item=given(item))


def of_shape(given, shape):
    return {"element_shape": tf.constant(np.array(shape, np.int32)), "element_dtype": tf.float32}


for shape_name, shape in {"unknown": -1, "partial": [-1, 4], "full": [3, 4]}.items():
    for asked_name, asked in {"unknown": -1, "partial": [-1, -1], "full": [3, 4]}.items():
        label = f"{shape_name}_{asked_name}"
        add(f"TensorListStack/{label}", lambda given, shape=shape, asked=asked: R.TensorListStack(
            input_handle=with_one(given, 3, shape, A), **of_shape(given, asked)))
        add(f"TensorListGather/{label}", lambda given, shape=shape, asked=asked: R.TensorListGather(
            input_handle=with_one(given, 3, shape, A), indices=given([0, 1]), **of_shape(given, asked)))
        add(f"TensorListGetItem/{label}", lambda given, shape=shape, asked=asked: R.TensorListGetItem(
            input_handle=with_one(given, 3, shape, A), index=given(np.int32(0)), **of_shape(given, asked)))
        add(f"TensorListConcatV2/{label}", lambda given, shape=shape, asked=asked: list(R.TensorListConcatV2(
            input_handle=with_one(given, 2, shape, A), leading_dims=given([], tf.int64), **of_shape(given, asked))))
        add(f"TensorListConcatV2/leading_{label}", lambda given, shape=shape, asked=asked: list(R.TensorListConcatV2(
            input_handle=with_one(given, 2, shape, A), leading_dims=given([5, 3], tf.int64), **of_shape(given, asked))))
    add(f"TensorListPushBackBatch/{shape_name}", lambda given, shape=shape: [R.TensorListStack(input_handle=one, **of_shape(given, -1)) for one in tf.unstack(
        R.TensorListPushBackBatch(input_handles=tf.stack([reserved(given, 0, shape) for _ in range(2)]), tensor=given(np.stack([A, A + 1]))), num=2)])


# Variants within variants, their sums and their zeros.
def pushed(handle, item):
    return R.TensorListPushBack(input_handle=handle, tensor=item)


def optional_of(*components):
    return R.OptionalFromValue(components=list(components))


def value_of(optional):
    return R.OptionalGetValue(optional=optional, output_types=[tf.float32], output_shapes=[tf.TensorShape(None)])[0]


def list_of_variant(given, item):
    return pushed(reserved(given, 0, [], tf.variant), item)


def inner(given, handle):
    return R.TensorListGetItem(input_handle=handle, index=given(np.int32(0)), element_shape=given(NO_SHAPE), element_dtype=tf.variant)


def stacked_rows(given, handle):
    return R.TensorListStack(input_handle=handle, **of_shape(given, [4]))


def nested_list(given, row):
    return list_of_variant(given, pushed(reserved(given, 0, [4]), given(row)))


add("AddN/lists_in_lists", lambda given: stacked_rows(given, inner(given, tf.add_n([nested_list(given, A[0]), nested_list(given, A[1])]))))
add("ZerosLike/lists_in_lists", lambda given: stacked_rows(given, inner(given, tf.zeros_like(nested_list(given, A[0])))))
add("AddN/optionals", lambda given: value_of(tf.add_n([optional_of(given(A)), optional_of(given(A + 1))])))
add("ZerosLike/optional", lambda given: value_of(tf.zeros_like(optional_of(given(A)))))
add("AddN/no_optionals", lambda given: R.OptionalHasValue(optional=tf.add_n([R.OptionalNone(), R.OptionalNone()])))
add("AddN/optionals_in_lists", lambda given: value_of(inner(given, tf.add_n(
    [list_of_variant(given, optional_of(given(A))), list_of_variant(given, optional_of(given(A * 2)))]))))
add("ZerosLike/optional_in_list", lambda given: value_of(inner(given, tf.zeros_like(list_of_variant(given, optional_of(given(A)))))))


# Gradients of gradients of conditionals as functions keep optionals in lists.
def functional_gradients(given, build, times):
    before = control_flow_util.ENABLE_CONTROL_FLOW_V2
    control_flow_util.ENABLE_CONTROL_FLOW_V2 = True
    try:
        x = given(np.float32(1.1))
        y = build(x, given(np.array(True)))
        found = [y]
        for _ in range(times):
            y = tf.gradients(y, x)[0]
            found.append(y)
        return found
    finally:
        control_flow_util.ENABLE_CONTROL_FLOW_V2 = before


def product_loop(x, each):
    return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, each(i, y)), [0, x])[1]


add("If/third_gradient", lambda given: functional_gradients(given, lambda x, p: tf.cond(p, lambda: x * x * x * tf.exp(x), lambda: x), 3))
add("While/second_gradient_with_if", lambda given: functional_gradients(
    given, lambda x, p: product_loop(x, lambda i, y: tf.cond(tf.equal(i % 2, 0), lambda: y * x, lambda: y * y * x)), 2))
add("If/second_gradient_with_while", lambda given: functional_gradients(
    given, lambda x, p: tf.cond(p, lambda: product_loop(x, lambda i, y: y * y * x), lambda: x), 2))


# Accumulators of sparse gradients whose shape is open: what is declared is a prefix of it.
def sparse_accumulated_openly(given, shape, reduction):
    handle = R.SparseConditionalAccumulator(dtype=tf.float32, shape=shape, shared_name=name("accumulator"), reduction_type=reduction)

    def apply(indices, values):
        return R.SparseAccumulatorApplyGradient(
            handle=handle, local_step=given(np.int64(0), tf.int64), gradient_indices=given(indices, tf.int64), gradient_values=given(values),
            gradient_shape=given([], tf.int64), has_known_shape=False)

    first = apply([0, 2], A[:2])
    second = after(first, lambda: apply([1, 2], A[1:]))
    return after(second, lambda: list(R.SparseAccumulatorTakeGradient(handle=handle, num_required=tf.constant(2), dtype=tf.float32)))


for label, shape in {"unknown": None, "empty": [], "prefix": [3], "partial": [None, 4]}.items():
    for reduction in ("MEAN", "SUM"):
        add(f"SparseConditionalAccumulator/{label}_{reduction}", lambda given, shape=shape, reduction=reduction: sparse_accumulated_openly(
            given, shape, reduction))


results, test_op, test_at_a_lower_level, test_beside_onednn = TABLE.tests()
