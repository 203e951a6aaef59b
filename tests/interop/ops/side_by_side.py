"""Runs expressions in TensorFlow's local session and on a server, and compares the results.

A `Table` holds the cases of one family. All of them are built into one graph and run at once on each side, which takes seconds
for hundreds; only if that run fails are they bisected until the failing ones are found. Inputs are fed, so that nothing can be
folded away, and if an expression has gradients, those are compared as well.

Each case is compared with TensorFlow's plain kernels. Each table is then compared once more as a whole: at every lower
instruction level of this processor, and with TensorFlow's oneDNN kernels.
"""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.framework import kernels, op_def_registry

import error_texts
import harness
import reference

tf.disable_v2_behavior()

# Half types have about three digits; sums in a different order differ in the last.
TOLERANCES = {
    tf.float16: (2e-3, 2e-3), tf.bfloat16: (2e-2, 2e-2), tf.float32: (3e-5, 3e-6), tf.float64: (1e-9, 1e-10),
    tf.complex64: (3e-5, 3e-6), tf.complex128: (1e-9, 1e-10),
}
# oneDNN sums in a different order, computes some functions by shorter polynomials, and rounds half types in other places. Only
# some processors have its kernels for half types: larger differences there are noted, and fail no test.
ONEDNN_TOLERANCES = {
    **TOLERANCES, tf.float16: (1e-2, 1e-2), tf.bfloat16: (1e-1, 1e-1), tf.float32: (2e-4, 2e-5), tf.complex64: (2e-4, 2e-5),
}
HALF_TYPES = ("float16", "bfloat16")
# Cases that are not compared with oneDNN, by the prefix of their names, and the reason.
ONEDNN_DIFFERS = {
    "Softmax/odd": "a row that holds infinity is not all NaN",
    "Conv2D/empty": "the result of an empty batch has the channels of its input",
    "Quantize": "integers are off by one, and by what depends on the processor",
}
SWEPT_TYPES = {
    tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32,
    tf.uint64, tf.bool, tf.complex64, tf.complex128, tf.string,
}
DIFFERENTIATED_TYPES = {tf.float32, tf.float64, tf.complex64}


class Fixed:
    """A value that an op gets as a constant, as programs pass axes."""

    def __init__(self, value):
        self.value = np.asarray(value)


class Given:
    """Creates the fed inputs of one expression."""

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
    """Returns numbers as another type; numbers that the type can't represent are replaced."""
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
        """Adds an expression: a function that takes a `Given` and returns tensors."""
        assert name not in self.cases, name
        self.cases[name] = Case(expression, gradient, rtol, atol)

    def op(self, op, label="", types=None, gradient=True, rtol=None, atol=None, sweep=None, renamed={}, **arguments):
        """Adds an op for every type for which TensorFlow has a CPU kernel; inputs are arrays, the rest are attributes."""
        definition = op_def_registry.get(op)
        inputs = {one.name: one for one in definition.input_arg}
        attr = sweep or next((one.type_attr for one in definition.input_arg if one.type_attr), "")
        swept = (types or cpu_types(op, attr)) if attr else [None]
        assert swept, f"no CPU kernel of {op}"
        for dtype in swept:
            def expression(given, dtype=dtype):
                made = {}
                for name, value in arguments.items():
                    # Python's names of some arguments differ from the definition's.
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
        """Returns the graph of all cases, built on first use."""
        if self._built is None:
            self._built = Built(self.cases)
        return self._built

    def tests(self):
        """Returns a fixture and the tests that use it; each module binds them to names of its own."""
        @pytest.fixture(scope="module")
        def results(op_server):
            return SideBySide(self.cases, self.built(), op_server.target)

        @pytest.mark.parametrize("name", sorted(self.cases))
        def test(results, name):
            results.check(name)

        @pytest.mark.parametrize("level", harness.lower_levels())
        def test_at_a_lower_level(results, level_targets, level):
            got = results.run_on(level_targets[level])
            assert_none_failed(self.cases, lambda name: results.check(name, got=got))

        def test_beside_onednn(results):
            expected = results.run_reference(onednn=True)
            assert not all(isinstance(value, Exception) for value in expected.values()), "oneDNN computes nothing"

            def check(name):
                if isinstance(expected[name], Exception):
                    harness.note(f"{name} with oneDNN: {expected[name]}")
                    return
                try:
                    results.check(name, expected=expected, tolerances=ONEDNN_TOLERANCES)
                except AssertionError as difference:
                    if not name.endswith(HALF_TYPES):
                        raise
                    harness.note(f"{name} differs with oneDNN: {difference}")

            assert_none_failed([name for name in self.cases if not name.startswith(tuple(ONEDNN_DIFFERS))], check)

        return results, test, test_at_a_lower_level, test_beside_onednn


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


class SideBySide:
    """The results of a table's cases in TensorFlow and on a server."""

    def __init__(self, cases, built, target):
        self.cases = cases
        self.built = built
        self.expected = self.run_reference()
        self.got = self.run_on(target)

    def run_reference(self, onednn=False):
        """Returns TensorFlow's result for each case, or its error or crash."""
        with reference.Session(self.built.graph, self.built.initializers, config(), onednn) as session:
            return run_all(session, self.built.fetches, self.built.feed)

    def run_on(self, target):
        """Returns a server's result for each case, or its error."""
        with tf.Session(target, graph=self.built.graph, config=config()) as session:
            session.run(self.built.initializers)
            return run_all(session, self.built.fetches, self.built.feed)

    def check(self, name, expected=None, got=None, tolerances=TOLERANCES):
        """Raises the difference in a case; `expected` and `got` are by default those of the plain run."""
        expected, got = (expected or self.expected)[name], (got or self.got)[name]
        if isinstance(expected, Exception):
            raise AssertionError(f"TensorFlow itself fails: {expected}")
        if isinstance(got, Exception):
            raise got
        for index, (tensor, one, other) in enumerate(zip(self.built.fetches[name], expected, got)):
            what = f"{name}, output {index}, {tensor.op.type}"
            compare(what, tensor.dtype, np.asarray(one), np.asarray(other), self.cases[name], tolerances)


def config():
    made = tf.ConfigProto(isolate_session_state=True)
    # The test compares the ops' results, not those of an optimizer.
    made.graph_options.rewrite_options.disable_meta_optimizer = True
    made.graph_options.optimizer_options.opt_level = tf.OptimizerOptions.L0
    return made


def assert_none_failed(names, check):
    """Runs a check for each name and fails once, with all differences."""
    failures = {}
    for name in names:
        try:
            check(name)
        except (AssertionError, tf.errors.OpError) as failure:
            failures[name] = str(failure)
    assert not failures, "\n\n".join(f"{name}: {text[:1500]}" for name, text in failures.items())


def run_all(session, built, feed):
    """Returns each case's values, or its error."""
    def run(names):
        fetches = [built[name] for name in names]
        try:
            return dict(zip(names, session.run(fetches, feed)))
        except (tf.errors.OpError, reference.Crashed) as error:
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
    """Returns a different number for each element, so that a gradient that mixes them up is detected."""
    numbers = tf.cos(tf.cast(tf.range(tf.size(output)), tf.float64))
    return tf.reshape(tf.cast(numbers, output.dtype), tf.shape(output))


def compare(what, dtype, expected, got, case, tolerances=TOLERANCES):
    assert got.dtype == expected.dtype and got.shape == expected.shape, (
        f"{what}: {got.dtype}{got.shape} instead of {expected.dtype}{expected.shape}")
    if dtype not in tolerances:
        np.testing.assert_array_equal(got, expected, err_msg=what)
        return
    rtol, atol = tolerances[dtype]
    wide = np.complex128 if dtype.is_complex else np.float64
    np.testing.assert_allclose(
        got.astype(wide), expected.astype(wide), rtol=max(case.rtol or 0, rtol), atol=max(case.atol or 0, atol), err_msg=what)


def check_failure(case, expression, target):
    """Fails unless both refuse an expression with the same code and text, or the server with any code where TensorFlow crashes."""
    with tf.Graph().as_default() as graph:
        given = Given()
        fetches = expression(given)
    with reference.Session(graph) as session:
        expected = ending(session, fetches, given.feed)
    with tf.Session(target, graph=graph) as session:
        got = ending(session, fetches, given.feed)
    assert expected is not None, "TensorFlow takes it"
    assert_same_ending(case, got, expected)


def ending(session, fetches, feed):
    """Returns the error or crash that a step ends with, or None."""
    try:
        session.run([fetches], feed)
        return None
    except (tf.errors.OpError, reference.Crashed) as error:
        return error


def assert_same_ending(case, got, expected):
    """Fails unless a step ended with TensorFlow's code and text, or with any where TensorFlow crashed."""
    if isinstance(expected, reference.Crashed):
        harness.note(expected)
        assert got is not None, f"it is taken, and {expected}"
    else:
        assert type(got) is type(expected), f"{got}\nTensorFlow: {expected}"
        if expected is not None:
            error_texts.check(case, expected, got)
