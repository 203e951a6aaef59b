"""Runs expressions in TensorFlow's local session and on a server, and compares what comes out.

A `Table` holds the cases of one family. All of them are built into one graph and run at once on each side, which takes
seconds for hundreds; only when that run fails are they cut in halves until the failing ones are found. Inputs are fed, so
that nothing can be folded away, and where an expression has gradients, those are compared as well.
"""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.framework import kernels, op_def_registry

tf.disable_v2_behavior()

# Half types have some three digits; sums of them in another order differ in the last.
TOLERANCES = {
    tf.float16: (2e-3, 2e-3), tf.bfloat16: (2e-2, 2e-2), tf.float32: (3e-5, 3e-6), tf.float64: (1e-9, 1e-10),
    tf.complex64: (3e-5, 3e-6), tf.complex128: (1e-9, 1e-10),
}
SWEPT_TYPES = {
    tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32,
    tf.uint64, tf.bool, tf.complex64, tf.complex128, tf.string,
}
DIFFERENTIATED_TYPES = {tf.float32, tf.float64, tf.complex64}


class Fixed:
    """A value that an op is given as a constant, as programs give axes."""

    def __init__(self, value):
        self.value = np.asarray(value)


class Given:
    """Makes the fed inputs of one expression."""

    def __init__(self):
        self.feed = {}

    def __call__(self, value, dtype=None, shape=None):
        """Returns a placeholder for a value; `shape` may hide sizes from shape inference."""
        array = as_array(value, dtype)
        dtype = dtype or (tf.string if array.dtype == object else tf.as_dtype(array.dtype))
        placeholder = tf.placeholder(dtype, array.shape if shape is None else shape)
        self.feed[placeholder] = array
        return placeholder


def as_array(value, dtype=None):
    array = np.asarray(value)
    if dtype is not None:
        return converted(array, tf.as_dtype(dtype))
    if array.dtype == np.float64:
        return array.astype(np.float32)
    if array.dtype == np.int64:
        return array.astype(np.int32)
    return array.astype(object) if array.dtype.kind in "SU" else array


def converted(array, dtype):
    """Returns numbers as another type, with what the type cannot hold made so that it can."""
    if dtype == tf.string:
        return array if array.dtype == object else np.array([str(x).encode() for x in array.ravel()], object).reshape(array.shape)
    if array.dtype.kind == "f" and not dtype.is_floating and not dtype.is_complex:
        array = np.where(np.isfinite(array), array, 0)
    if dtype.is_unsigned:
        array = np.abs(array)
    if dtype.is_complex and array.dtype.kind != "c":
        array = array + 1j * np.flip(array)
    return array.astype(dtype.as_numpy_dtype)


def cpu_types(op, attr):
    """Returns the types for which TensorFlow has a CPU kernel."""
    definition = op_def_registry.get(op)
    allowed = next((one.allowed_values.list.type for one in definition.attr if one.name == attr), [])
    found = set()
    for kernel in kernels.get_registered_kernels_for_op(op).kernel:
        if kernel.device_type not in ("CPU", "DEFAULT") or kernel.label:
            continue
        constraint = [one for one in kernel.constraint if one.name == attr]
        types = constraint[0].allowed_values.list.type if constraint else allowed or map(int, map(lambda t: t.as_datatype_enum, SWEPT_TYPES))
        found.update(tf.as_dtype(one) for one in types)
    if allowed:
        found &= {tf.as_dtype(one) for one in allowed}
    return sorted(found & SWEPT_TYPES, key=lambda dtype: dtype.as_datatype_enum)


class Case:
    def __init__(self, expression, gradient, rtol, atol):
        self.expression = expression
        self.gradient = gradient
        self.rtol = rtol
        self.atol = atol


class Table:
    """The cases of one family, by name."""

    def __init__(self):
        self.cases = {}
        self._built = None

    def add(self, name, expression, gradient=True, rtol=None, atol=None):
        """Adds an expression: a function that is given a `Given` and returns tensors."""
        assert name not in self.cases, name
        self.cases[name] = Case(expression, gradient, rtol, atol)

    def op(self, op, label="", types=None, gradient=True, rtol=None, atol=None, sweep=None, renamed={}, **arguments):
        """Adds an op for every type that TensorFlow has a CPU kernel for; inputs are arrays, the rest are attributes."""
        definition = op_def_registry.get(op)
        inputs = {one.name: one for one in definition.input_arg}
        attr = sweep or next((one.type_attr for one in definition.input_arg if one.type_attr), "")
        swept = (types or cpu_types(op, attr)) if attr else [None]
        assert swept, f"no CPU kernel of {op}"
        for dtype in swept:
            def expression(given, dtype=dtype):
                made = {}
                for name, value in arguments.items():
                    # Python's names of some arguments are others than the definition's.
                    arg = inputs.get(renamed.get(name, name))
                    if isinstance(value, Fixed):
                        made[name] = tf.constant(as_array(value.value))
                    elif arg is None:
                        made[name] = value
                    elif arg.number_attr:
                        made[name] = [given(one, dtype if arg.type_attr == attr else None) for one in value]
                    elif arg.type_attr and arg.type_attr == attr:
                        made[name] = given(value, dtype)
                    elif arg.type:
                        made[name] = given(value, tf.as_dtype(arg.type))
                    else:
                        made[name] = given(value)
                if attr and not any(one.type_attr == attr for one in definition.input_arg):
                    made[attr] = dtype
                return getattr(tf.raw_ops, op)(**made)
            name = "/".join(part for part in (op, label, dtype.name if dtype else "") if part)
            self.add(name, expression, gradient and (dtype is None or dtype in DIFFERENTIATED_TYPES), rtol, atol)

    def built(self):
        """Returns the graph of all cases, made when first asked for."""
        if self._built is None:
            self._built = Built(self.cases)
        return self._built

    def tests(self):
        """Returns the fixture and the test that a module binds to names of its own."""
        @pytest.fixture(scope="module")
        def results(op_server):
            return run_side_by_side(self.cases, op_server.target, self.built())

        @pytest.mark.parametrize("name", sorted(self.cases))
        def test(results, name):
            results[name]()

        return results, test


class Built:
    """The cases of a table in one graph, each in a name scope of its own."""

    def __init__(self, cases):
        self.graph = tf.Graph()
        self.fetches = {}
        self.feed = {}
        self.scopes = {}
        # The gradients that TensorFlow forms, for each case that has some.
        self.differentiated = {}
        with self.graph.as_default():
            tf.set_random_seed(42)
            for index, (name, case) in enumerate(cases.items()):
                given = Given()
                self.scopes[f"case{index}"] = name
                with tf.name_scope(f"case{index}"):
                    outputs = [one for one in tf.nest.flatten(case.expression(given)) if isinstance(one, tf.Tensor)]
                    found = gradients(outputs, given) if case.gradient else None
                assert outputs, f"{name} has no output"
                fetches = list(outputs)
                if found is not None:
                    self.differentiated[name] = found
                    fetches += [gradient for gradient in found.gradients if gradient is not None]
                self.fetches[name] = fetches
                self.feed.update(given.feed)
            self.initializers = [tf.global_variables_initializer(), tf.tables_initializer()]

    def ops(self):
        """Returns for each case the types of its ops, with those of the functions that it calls."""
        definition = self.graph.as_graph_def()
        functions = {function.signature.name: function.node_def for function in definition.library.function}
        found = {name: set() for name in self.fetches}
        for node in definition.node:
            name = self.scopes.get(node.name.split("/")[0])
            if name is not None:
                add_ops(found[name], node, functions)
        return found


def add_ops(found, node, functions):
    """Adds the op of a node and, once each, those of the functions that it names."""
    found.add(node.op)
    for value in node.attr.values():
        for function in [value.func, *value.list.func]:
            if function.name in functions and function.name not in found:
                found.add(function.name)
                for inner in functions[function.name]:
                    add_ops(found, inner, functions)


def run_side_by_side(cases, target, built=None):
    """Returns for each case a function that raises what was wrong with it."""
    built = built or Built(cases)
    with built.graph.as_default():
        config = tf.ConfigProto(isolate_session_state=True)
        # What is compared is what the ops compute, not what an optimizer makes of them.
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        config.graph_options.optimizer_options.opt_level = tf.OptimizerOptions.L0
        sides = []
        for where in ("", target):
            with tf.Session(where, config=config) as session:
                session.run(built.initializers)
                sides.append(run_all(session, built.fetches, built.feed))
    expected, got = sides
    return {name: lambda name=name: check(name, cases[name], built.fetches[name], expected[name], got[name]) for name in cases}


def run_all(session, built, feed):
    """Returns for each case its values or the error that it fails with."""
    def run(names):
        fetches = [built[name] for name in names]
        try:
            return dict(zip(names, session.run(fetches, feed)))
        except tf.errors.OpError as error:
            if len(names) == 1:
                return {names[0]: error}
        middle = len(names) // 2
        return {**run(names[:middle]), **run(names[middle:])}

    return run(list(built))


class Differentiated:
    """Gradients of weighted outputs with respect to sources."""

    def __init__(self, outputs, weights, sources, gradients):
        self.outputs = outputs
        self.weights = weights
        self.sources = sources
        self.gradients = gradients


def gradients(outputs, given):
    """Returns the gradients that TensorFlow can form of the float outputs with respect to the fed floats, or None."""
    def is_float(tensor):
        return tensor.dtype in DIFFERENTIATED_TYPES

    floats = [output for output in outputs if is_float(output)]
    sources = [placeholder for placeholder in given.feed if is_float(placeholder)]
    if not floats or not sources:
        return None
    weighted = [weights(output) for output in floats]
    try:
        found = tf.gradients(floats, sources, grad_ys=weighted)
    except (LookupError, NotImplementedError, TypeError, ValueError):
        # TensorFlow has no gradient for one of the ops, or not for this type or shape.
        return None
    dense = [None if gradient is None else tf.convert_to_tensor(gradient) for gradient in found]
    return Differentiated(floats, weighted, sources, dense)


def weights(output):
    """Returns a different number for each element, so that a gradient that mixes them up is seen."""
    numbers = tf.cos(tf.cast(tf.range(tf.size(output)), tf.float64))
    return tf.reshape(tf.cast(numbers, output.dtype), tf.shape(output))


def check(name, case, fetches, expected, got):
    if isinstance(expected, Exception):
        raise AssertionError(f"TensorFlow itself fails: {expected}")
    if isinstance(got, Exception):
        raise got
    for index, (tensor, one, other) in enumerate(zip(fetches, expected, got)):
        compare(f"{name}, output {index}, {tensor.op.type}", tensor.dtype, np.asarray(one), np.asarray(other), case)


def compare(what, dtype, expected, got, case):
    assert got.dtype == expected.dtype and got.shape == expected.shape, (
        f"{what}: {got.dtype}{got.shape} instead of {expected.dtype}{expected.shape}")
    if dtype not in TOLERANCES:
        np.testing.assert_array_equal(got, expected, err_msg=what)
        return
    rtol, atol = TOLERANCES[dtype]
    wide = np.complex128 if dtype.is_complex else np.float64
    np.testing.assert_allclose(
        got.astype(wide), expected.astype(wide), rtol=max(case.rtol or 0, rtol), atol=max(case.atol or 0, atol), err_msg=what)


def failure(expression, target):
    """Returns the class of the error with which an expression fails, in the local session and on the server."""
    found = []
    with tf.Graph().as_default():
        given = Given()
        fetches = expression(given)
        for where in ("", target):
            with tf.Session(where) as session:
                try:
                    session.run(fetches, given.feed)
                    found.append((None, ""))
                except tf.errors.OpError as error:
                    found.append((type(error), error.message))
    return found
