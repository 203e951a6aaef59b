"""The ops of crates/ops/src/training and state beside TensorFlow's: each with a ref and a resource variable."""

import itertools

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.framework import op_def_registry

import side_by_side

R = tf.raw_ops
RANDOM = np.random.RandomState(3)
TABLE = side_by_side.Table()
NAMES = itertools.count()
SHAPE = (4, 3)
ROWS = np.array([2, 0], np.int32)

SCALARS = {
    "lr": 0.1, "alpha": 0.1, "l1": 0.01, "l2": 0.02, "lr_power": -0.5, "l2_shrinkage": 0.03, "momentum": 0.9, "rho": 0.8, "epsilon": 0.1, "beta1_power": 0.9,
    "beta2_power": 0.99, "beta1": 0.8, "beta2": 0.95, "beta": 0.7, "logbase": 2.0, "sign_decay": 0.9,
}
SLOTS = {"accum", "linear", "ms", "mom", "mg", "m", "v", "vhat", "gradient_accumulator", "gradient_squared_accumulator", "accum_update"}


def uniform(*shape):
    return RANDOM.uniform(0.1, 1.0, shape).astype(np.float32)


def variable(value, is_resource):
    """Returns a variable, and a function that reads it."""
    made = tf.Variable(value, use_resource=is_resource, name=f"variable{next(NAMES)}")
    return (made.handle if is_resource else made._ref()), made


def apply(op, values, dtype, given, **attrs):
    """Runs an optimizer's op twice and returns all its variables then."""
    definition = op_def_registry.get(op)
    is_resource = op.startswith("Resource")
    inputs, variables = {}, []
    for arg in definition.input_arg:
        value = values[arg.name]
        if arg.name == "var" or arg.name in SLOTS:
            inputs[arg.name], made = variable(side_by_side.converted(value, dtype), is_resource)
            variables.append(made)
        elif arg.name == "indices":
            inputs[arg.name] = given(value)
        elif arg.type:
            inputs[arg.name] = given(value, tf.as_dtype(arg.type))
        else:
            inputs[arg.name] = given(value, dtype)
    with tf.control_dependencies([one.initializer for one in variables]):
        # Fed placeholders keep no control inputs: what the op reads must come after the initializers.
        inputs = {name: (tensor if tensor.dtype._is_ref_dtype or tensor.dtype == tf.resource else tf.identity(tensor)) for name, tensor in inputs.items()}
        done = getattr(R, op)(**inputs, **attrs)
    with tf.control_dependencies([done]):
        inputs = {name: (tensor if tensor.dtype._is_ref_dtype or tensor.dtype == tf.resource else tf.identity(tensor)) for name, tensor in inputs.items()}
        done = getattr(R, op)(**inputs, **attrs)
    with tf.control_dependencies([done]):
        return [one.read_value() + 0 for one in variables]


def values_of(op):
    """Returns a value for every input of an optimizer's op."""
    found = {}
    for arg in op_def_registry.get(op).input_arg:
        if arg.name == "var" or arg.name in SLOTS:
            found[arg.name] = uniform(*SHAPE)
        elif arg.name == "grad" or arg.name == "delta":
            found[arg.name] = uniform(*((2,) + SHAPE[1:] if "Sparse" in op else SHAPE)) - 0.5
        elif arg.name == "indices":
            found[arg.name] = ROWS
        elif arg.name == "global_step":
            found[arg.name] = np.int64(7)
        else:
            found[arg.name] = np.float32(SCALARS[arg.name])
    return found


DENSE = ["AdaMax", "Adadelta", "Adagrad", "AdagradDA", "AdagradV2", "Adam", "AddSign", "CenteredRMSProp", "Ftrl", "FtrlV2", "GradientDescent", "Momentum",
         "PowerSign", "ProximalAdagrad", "ProximalGradientDescent", "RMSProp"]
SPARSE = ["Adadelta", "Adagrad", "AdagradDA", "AdagradV2", "CenteredRMSProp", "Ftrl", "FtrlV2", "Momentum", "ProximalAdagrad", "ProximalGradientDescent", "RMSProp"]
OPS = ([f"Apply{name}" for name in DENSE] + [f"ResourceApply{name}" for name in DENSE + ["AdamWithAmsgrad", "KerasMomentum"]]
       + [f"SparseApply{name}" for name in SPARSE] + [f"ResourceSparseApply{name}" for name in SPARSE + ["KerasMomentum"]])
for op in OPS:
    for dtype in (tf.float32, tf.float64):
        TABLE.add(f"{op}/{dtype.name}", lambda given, op=op, dtype=dtype: apply(op, values_of(op), dtype, given), gradient=False)
for op in ("ApplyMomentum", "ResourceApplyMomentum", "SparseApplyMomentum", "ResourceSparseApplyMomentum", "ApplyAdam", "ResourceApplyAdam"):
    TABLE.add(f"{op}/nesterov", lambda given, op=op: apply(op, values_of(op), tf.float32, given, use_nesterov=True), gradient=False)
for op in ("ApplyAdagrad", "SparseApplyAdagrad", "ResourceSparseApplyAdagrad"):
    TABLE.add(f"{op}/no_slots", lambda given, op=op: apply(op, values_of(op), tf.float32, given, update_slots=False), gradient=False)


def after(first, make):
    with tf.control_dependencies([first]):
        return make()


def scattered(given, op, variable_value, **inputs):
    """Runs one op that changes a variable."""
    is_resource = op.startswith("Resource")
    handle, made = variable(variable_value, is_resource)
    name = "ref" if "Nd" in op or "Slice" in op or not is_resource else "resource"
    fed = {key: given(one) for key, one in inputs.items()}
    with tf.control_dependencies([made.initializer]):
        done = getattr(R, op)(**{name: handle}, **{key: tf.identity(one) for key, one in fed.items()})
    return after(done, lambda: made.read_value() + 0)


TABLE_VALUE = uniform(4, 3)
for op in ("ScatterDiv", "ScatterMul", "ScatterMin", "ScatterMax", "ScatterAdd", "ScatterSub", "ScatterUpdate"):
    for prefix in ("", "Resource"):
        TABLE.add(f"{prefix}{op}/rows", lambda given, op=prefix + op: scattered(given, op, TABLE_VALUE, indices=ROWS, updates=uniform(2, 3)), gradient=False)
        TABLE.add(f"{prefix}{op}/scalar", lambda given, op=prefix + op: scattered(given, op, TABLE_VALUE, indices=ROWS, updates=np.float32(2)), gradient=False)
        TABLE.add(f"{prefix}{op}/none", lambda given, op=prefix + op: scattered(given, op, TABLE_VALUE, indices=np.zeros(0, np.int32), updates=np.zeros((0, 3), np.float32)), gradient=False)
        TABLE.add(f"{prefix}{op}/whole", lambda given, op=prefix + op: scattered(given, op, np.array([40, -7, 9], np.int32), indices=[0, 0, 2], updates=np.array([2, 3, -4], np.int32)), gradient=False)
for op in ("ScatterNdUpdate", "ScatterNdAdd", "ScatterNdSub", "ScatterNdMin", "ScatterNdMax"):
    for prefix in ("", "Resource"):
        TABLE.add(f"{prefix}{op}/elements", lambda given, op=prefix + op: scattered(given, op, TABLE_VALUE, indices=[[0, 1], [3, 2]], updates=uniform(2)), gradient=False)
        TABLE.add(f"{prefix}{op}/rows", lambda given, op=prefix + op: scattered(given, op, TABLE_VALUE, indices=[[3], [0]], updates=uniform(2, 3)), gradient=False)
for op in ("StridedSliceAssign", "ResourceStridedSliceAssign"):
    TABLE.add(op, lambda given, op=op: scattered(given, op, TABLE_VALUE, begin=[0, 1], end=[4, 3], strides=[2, 1], value=uniform(2, 2)), gradient=False)


def read(given, is_resource):
    handle, made = variable(TABLE_VALUE, is_resource)
    indices, pairs = given(ROWS), given([[0, 1], [2, 2]])
    with tf.control_dependencies([made.initializer]):
        if not is_resource:
            return [R.IsVariableInitialized(ref=handle), R.RefIdentity(input=handle) + 0]
        return [R.ResourceGather(resource=handle, indices=tf.identity(indices), dtype=tf.float32),
                R.ResourceGatherNd(resource=handle, indices=tf.identity(pairs), dtype=tf.float32),
                R.VariableShape(input=handle), R.VarIsInitializedOp(resource=handle), R.ReadVariableOp(resource=handle, dtype=tf.float32)]


TABLE.add("reading/ref", lambda given: read(given, False), gradient=False)
TABLE.add("reading/resource", lambda given: read(given, True), gradient=False)


def counted(is_resource):
    handle, made = variable(np.int32(3), is_resource)
    with tf.control_dependencies([made.initializer]):
        return R.ResourceCountUpTo(resource=handle, limit=9, T=tf.int32) if is_resource else R.CountUpTo(ref=handle, limit=9)


TABLE.add("CountUpTo", lambda given: counted(False) + 0)
TABLE.add("ResourceCountUpTo", lambda given: counted(True))


def temporary(given):
    value = given(TABLE_VALUE)
    made = R.TemporaryVariable(shape=[4, 3], dtype=tf.float32, var_name="temporary")
    return R.DestroyTemporaryVariable(ref=R.Assign(ref=made, value=value), var_name="temporary")


TABLE.add("TemporaryVariable", temporary, gradient=False)


def old_variable(given):
    made = R.Variable(shape=[4, 3], dtype=tf.float32, shared_name="old")
    return R.Assign(ref=made, value=given(TABLE_VALUE)) + 0


TABLE.add("Variable", old_variable, gradient=False)


def destroyed():
    handle = R.VarHandleOp(shape=[2], dtype=tf.float32, shared_name="destroyed")
    assigned = R.AssignVariableOp(resource=handle, value=tf.constant([1.0, 2.0]))
    gone = after(assigned, lambda: R.DestroyResourceOp(resource=handle))
    return after(gone, lambda: R.VarIsInitializedOp(resource=handle))


TABLE.add("DestroyResourceOp", lambda given: destroyed())


def locked(given):
    mutex = R.MutexV2(shared_name="mutex")
    lock = R.MutexLock(mutex=mutex)
    done = after(R.ConsumeMutexLock(mutex_lock=lock), lambda: given(TABLE_VALUE) * 2)
    return done


TABLE.add("MutexLock", locked, gradient=False)


def chosen(given):
    """Ref ops of control flow."""
    handle, made = variable(TABLE_VALUE, False)
    other, second = variable(TABLE_VALUE * 2, False)
    with tf.control_dependencies([made.initializer, second.initializer]):
        start = R.RefIdentity(input=handle)
        false, true = R.RefSwitch(data=start, pred=tf.identity(given(np.array(True))))
        merged, index = R.RefMerge(inputs=[false, true])
        picked = R.RefSelect(index=tf.identity(given(np.int32(1))), inputs=[handle, other])
        return [merged + 0, index, picked + 0]


TABLE.add("ref_control", chosen, gradient=False)

# Numbers that mean nothing, which TensorFlow takes all the same when it updates whole variables.
for label, rate, l1, l2, power in (("rate", -1, 0, 0, -0.5), ("no_rate", 0, 0, 0, -0.5), ("power", 1, 0, 0, 0.5), ("l1", 1, -1, 0, -0.5), ("l2", 1, 0, -1, -0.5)):
    TABLE.add(f"ApplyFtrl/{label}", lambda given, rate=rate, l1=l1, l2=l2, power=power: tf.raw_ops.ApplyFtrl(
        var=tf.Variable(np.zeros(2, np.float32), use_resource=False)._ref(), accum=tf.Variable(np.zeros(2, np.float32), use_resource=False)._ref(),
        linear=tf.Variable(np.zeros(2, np.float32), use_resource=False)._ref(), grad=given(np.ones(2, np.float32)), lr=given(np.float32(rate)),
        l1=given(np.float32(l1)), l2=given(np.float32(l2)), lr_power=given(np.float32(power))), gradient=False)


def generator(given, skip):
    state = tf.Variable(np.array([-600, 6, 7], np.int64), use_resource=True, name=f"variable{next(NAMES)}")
    if skip:
        skipped = tf.raw_ops.RngSkip(resource=state.handle, algorithm=tf.constant(1, tf.int64), delta=given(np.int64(-5), tf.int64))
        with tf.control_dependencies([skipped]):
            return state.read_value()
    before = tf.raw_ops.RngReadAndSkip(resource=state.handle, alg=given(np.int32(1)), delta=given(np.uint64(3)))
    with tf.control_dependencies([before]):
        return [before, state.read_value()]


TABLE.add("RngReadAndSkip", lambda given: generator(given, False), gradient=False)
TABLE.add("RngSkip", lambda given: generator(given, True), gradient=False)
TABLE.add("NonDeterministicInts", lambda given: [tf.shape(tf.raw_ops.NonDeterministicInts(shape=given([2, 3], tf.int64), dtype=dtype)) for dtype in (tf.int32, tf.int64, tf.uint32, tf.uint64)], gradient=False)

results, test_op, test_at_a_lower_level, test_beside_onednn = TABLE.tests()
