"""Loads Python 2 sources: those that Python 3 can't compile, or that can't be meant for it, are translated first.

The grammar is lib2to3's, which is part of every Python that TensorFlow 2.15 has wheels for (or that of its successor `fissix`,
where a distribution leaves lib2to3 out). This module adds two things: indentation that mixes tabs and spaces as only Python 2
accepts, and division of two integers, which Python 2 rounds down.
"""

import ast
import importlib.machinery
import importlib.util
import io
import os
import site
import sys
import sysconfig
import tokenize
import warnings

TAB = 8

# Names and methods that only Python 2 has. A source that uses one without defining it was not written for Python 3.
NAMES = frozenset({"xrange", "raw_input", "unicode", "basestring", "long", "unichr", "execfile", "cmp"})
METHODS = frozenset({"iteritems", "itervalues", "iterkeys", "has_key"})
MODULES = frozenset({"cPickle", "Queue", "StringIO", "cStringIO", "urllib2", "urlparse", "ConfigParser", "HTMLParser", "Tkinter"})

FIXES = ("apply", "basestring", "dict", "except", "exec", "execfile", "exitfunc", "filter", "funcattrs", "getcwdu", "has_key",
         "imports", "input", "intern", "isinstance", "itertools", "itertools_imports", "long", "map", "methodattrs", "ne", "next",
         "nonzero", "numliterals", "operator", "paren", "print", "raise", "raw_input", "reduce", "renames", "repr",
         "standarderror", "sys_exc", "throw", "tuple_params", "types", "unicode", "urllib", "xrange", "zip")
# Only for modules of a package: a script's neighbours are found through the path.
FIX_OF_PACKAGES = "import"

DIVIDE = "__ferroflow_python2_divide__"


def install():
    """Makes imports of the program's own modules translate them as well."""
    loader = importlib.machinery.SourceFileLoader
    original = loader.get_code

    def get_code(self, fullname):
        path = self.get_filename(fullname)
        if not is_of_the_program(path):
            return original(self, fullname)
        # Nothing is cached in __pycache__: a plain `python` must not find a translation there.
        return compile_source(self.get_data(path), path, is_in_package="." in fullname)

    loader.get_code = get_code


def is_of_the_program(path):
    """Returns whether a source belongs neither to Python itself nor to an installed package."""
    path = os.path.abspath(path)
    return not any(path.startswith(directory + os.sep) for directory in INSTALLED)


def _installed_directories():
    found = {os.path.dirname(os.path.abspath(__file__)), *sysconfig.get_paths().values(), site.getusersitepackages()}
    found.update(getattr(site, "getsitepackages", list)())
    # The directory that contains them is not a directory of packages: a checkout may contain its environment.
    found -= {sysconfig.get_path("data"), sysconfig.get_path("scripts")}
    return tuple(os.path.abspath(path) for path in found)


INSTALLED = _installed_directories()


# Whether the program's main source is Python 2. If so, its other sources are, too, even those that Python 3 could read.
_main_is_python2 = False


def compile_main(data, path):
    """Returns the code of the program's main source."""
    return compile_source(data, path, is_main=True)


def compile_source(data, path, is_in_package=False, is_main=False):
    """Returns the code of a source, translated if it is Python 2."""
    global _main_is_python2
    tree = error = None
    try:
        with warnings.catch_warnings():
            # Such as an invalid escape in a string; Python warns about it when it compiles the source for real.
            warnings.simplefilter("ignore")
            tree = compile(data, path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
        reason = reason_for_python2(tree) or ("as the program is" if _main_is_python2 else None)
        if reason is None:
            return compile(data, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as found:
        error = found
        reason = f"line {found.lineno}: {found.msg}" if isinstance(found, SyntaxError) else str(found)
    try:
        text = translate(decode(data), path, is_in_package)
        tree = compile(text, path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    except Exception as failure:
        if error is not None:
            # Not valid Python 2 either: Python's own error message is the most useful one.
            raise error from None
        print(f"ferroflow: {path} uses Python 2 ({reason}) but can't be translated: {failure}", file=sys.stderr)
        return compile(data, path, "exec", dont_inherit=True)
    _main_is_python2 = _main_is_python2 or is_main
    print(f"ferroflow: {path} is Python 2 ({reason}): translated while loading", file=sys.stderr)
    if not divides_as_python3(tree):
        tree = ast.fix_missing_locations(Division().visit(tree))
        install_division()
    return compile(tree, path, "exec", dont_inherit=True)


def reason_for_python2(tree):
    """Returns the first sign of Python 2 in a source that Python 3 can parse, or None."""
    defined = set()
    guarded = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            defined.add(node.name)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            defined.add(node.id)
        elif isinstance(node, ast.arg):
            defined.add(node.arg)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            defined.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Try) or (isinstance(node, ast.If) and asks_for_version(node.test)):
            # Sources for both versions check the version first, in one way or another.
            guarded.update(id(inner) for inner in ast.walk(node) if isinstance(inner, (ast.Import, ast.Name)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in NAMES and node.id not in defined and id(node) not in guarded:
            return f"line {node.lineno}: {node.id}"
        if (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS
                and node.func.attr not in defined and len(node.args) == (node.func.attr == "has_key")
                and not (isinstance(node.func.value, ast.Name) and node.func.value.id == "six")):
            return f"line {node.lineno}: .{node.func.attr}()"
        if isinstance(node, ast.Import) and id(node) not in guarded:
            for alias in node.names:
                if alias.name in MODULES:
                    return f"line {node.lineno}: import {alias.name}"
    return None


def asks_for_version(test):
    words = {getattr(node, "attr", getattr(node, "id", None)) for node in ast.walk(test)}
    return bool(words & {"version_info", "version", "PY2", "PY3", "hexversion", "python_version"})


def decode(data):
    """Returns the text of a source. One without a declared encoding may be in any, as long as only comments need it."""
    try:
        return importlib.util.decode_source(data)
    except (SyntaxError, UnicodeDecodeError):
        return io.IncrementalNewlineDecoder(None, True).decode(data.decode("latin-1"))


def translate(text, path="<string>", is_in_package=False):
    """Returns a Python 2 source translated to Python 3."""
    refactor, package = load_refactor()
    text = expand_tabs(text if text.endswith("\n") else text + "\n")
    fixes = FIXES + ((FIX_OF_PACKAGES,) if is_in_package else ())
    if has_future(text, "print_function"):
        fixes = tuple(name for name in fixes if name != "print")
    options = {"print_function": has_future(text, "print_function")}
    tool = refactor.RefactoringTool([f"{package}.fixes.fix_{name}" for name in fixes], options)
    tool.log_message = tool.log_debug = lambda *_, **__: None
    return str(tool.refactor_string(text, path))


def load_refactor():
    """Returns the refactoring module of lib2to3 or its successor, and the package that contains it."""
    with warnings.catch_warnings():
        # lib2to3 is deprecated, but still part of every version that TensorFlow 2.15 runs on.
        warnings.simplefilter("ignore")
        try:
            from lib2to3 import refactor
            return refactor, "lib2to3"
        except ImportError:
            pass
        try:
            from fissix import refactor
            return refactor, "fissix"
        except ImportError:
            raise ImportError("this Python has no lib2to3: install it (on Debian, `apt install python3-lib2to3`), "
                              "or `pip install fissix`") from None


def expand_tabs(text):
    """Returns a source with tabs in its indentation expanded: in Python 2 a tab reaches the next multiple of eight columns."""
    lines = text.splitlines(keepends=True)
    inside_strings = set()
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.STRING:
                inside_strings.update(range(token.start[0] + 1, token.end[0] + 1))
    except (tokenize.TokenError, SyntaxError):
        # Later lines can't be tokenized; the ones so far are enough.
        pass
    for index, line in enumerate(lines):
        indentation = line[:len(line) - len(line.lstrip(" \t"))]
        if "\t" in indentation and index + 1 not in inside_strings:
            lines[index] = indentation.expandtabs(TAB) + line[len(indentation):]
    return "".join(lines)


def has_future(text, name):
    return any(line.startswith("from __future__ import") and name in line for line in text.splitlines()) or (
        "from __future__ import (" in text and name in text.partition("from __future__ import (")[2].partition(")")[0])


def divides_as_python3(tree):
    return any(isinstance(node, ast.ImportFrom) and node.module == "__future__"
               and any(alias.name == "division" for alias in node.names) for node in tree.body)


class Division(ast.NodeTransformer):
    """Turns `a / b` into a call of Python 2's division."""

    def visit_BinOp(self, node):
        self.generic_visit(node)
        if not isinstance(node.op, ast.Div):
            return node
        return ast.copy_location(call_of_divide(node.left, node.right), node)

    def visit_AugAssign(self, node):
        self.generic_visit(node)
        # The target of a subscript or attribute may be an expression, which would be evaluated twice.
        if not isinstance(node.op, ast.Div) or not isinstance(node.target, ast.Name):
            return node
        value = call_of_divide(ast.Name(node.target.id, ast.Load()), node.value)
        return ast.copy_location(ast.Assign([node.target], value), node)


def call_of_divide(left, right):
    return ast.Call(ast.Name(DIVIDE, ast.Load()), [left, right], [])


def divide(left, right):
    """Divides as Python 2 does: integers, or arrays or tensors of integers, give the quotient rounded down."""
    if is_integral(left) and is_integral(right):
        return left // right
    return left / right


def is_integral(value):
    if isinstance(value, int):
        return True
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        return False
    # A tensor's dtype has a property for it; an array's has a kind letter.
    return getattr(dtype, "is_integer", False) is True or getattr(dtype, "kind", "f") in "iu"


def install_division():
    import builtins

    setattr(builtins, DIVIDE, divide)
