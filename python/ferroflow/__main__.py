"""`python -m ferroflow script.py ARGUMENTS`, or `python -m ferroflow -m package.module ARGUMENTS`."""

import importlib.metadata
import importlib.util
import os
import platform
import runpy
import subprocess
import sys
import types

import ferroflow
from ferroflow import leaving, python2, server

USAGE = """usage: python -m ferroflow [--sessions[=TARGET]] SCRIPT.py [ARGUMENTS]
       python -m ferroflow [--sessions[=TARGET]] -m MODULE [ARGUMENTS]
       python -m ferroflow --version

Runs a TensorFlow 1 program on the installed TensorFlow; every tf.train.Server that it starts is a Ferroflow process.

  --sessions            sessions that name no server, such as tf.Session(), run on a Ferroflow server that is started for this program
  --sessions=TARGET     they run on the server at TARGET, such as grpc://127.0.0.1:2222"""

WITHOUT_TENSORFLOW = """python -m ferroflow: this Python ({executable}) has no TensorFlow. Install it with

    {executable} -m pip install tensorflow-cpu==2.15.1

which has wheels for CPython 3.9 to 3.11."""


def main():
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if arguments else 2
    if arguments[0] == "--version":
        print("\n".join(versions()))
        return 0
    redirects, target, arguments = sessions_option(arguments)
    if not arguments:
        print(USAGE, file=sys.stderr)
        return 2
    if arguments[0] != "-m" and arguments[0].startswith("--"):
        print(f"python -m ferroflow: unknown option {arguments[0]}\n\n{USAGE}", file=sys.stderr)
        return 2
    if arguments[0] == "-m" and len(arguments) < 2:
        print(USAGE, file=sys.stderr)
        return 2
    if arguments[0] != "-m" and not os.path.exists(arguments[0]):
        print(f"python -m ferroflow: no such file: {arguments[0]}", file=sys.stderr)
        return 2
    if importlib.util.find_spec("tensorflow") is None:
        print(WITHOUT_TENSORFLOW.format(executable=sys.executable), file=sys.stderr)
        return 1
    # This module needs absl, which is installed with TensorFlow.
    from ferroflow import light

    if light.is_for_a_parameter_server(arguments):
        if arguments[0] != "-m" and light.serve_for_estimator(arguments[0]):
            return 0
        light.install()
    else:
        ferroflow.patch()
        if redirects:
            from ferroflow import sessions

            sessions.install(target)
    python2.install()
    try:
        run(arguments)
    except SystemExit as left:
        if left.code in (None, 0):
            server.finish_all()
        raise
    except Exception as error:
        code = leaving.exit_code(error)
        if code is None:
            raise
        if code == 0:
            server.finish_all()
        return code
    server.finish_all()
    return 0


def sessions_option(arguments):
    """Returns whether sessions without a target are redirected, the target if one is given, and the remaining arguments."""
    name, equals, target = arguments[0].partition("=")
    if name != "--sessions" or (equals and not target):
        return False, None, arguments
    return True, target or None, arguments[1:]


def run(arguments):
    """Runs a script, or a module."""
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        run_script(arguments)


def run_script(arguments):
    """Runs a script as Python itself does: with its arguments, its directory first on the path, and as `__main__`."""
    script = arguments[0]
    sys.argv = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    with open(script, "rb") as file:
        code = python2.compile_main(file.read(), script)
    module = types.ModuleType("__main__")
    module.__file__ = script
    module.__builtins__ = __builtins__
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


def versions():
    """Yields the lines that a bug report should contain, one for each component."""
    try:
        binary = ferroflow.binary_path()
        yield subprocess.run([binary, "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout.rstrip()
        yield f"binary: {binary}"
    except (OSError, subprocess.CalledProcessError) as error:
        yield f"ferroflow: {error}"
    yield f"TensorFlow {installed('tensorflow-cpu', 'tensorflow')}, tf_slim {installed('tf_slim')}"
    yield f"Python {platform.python_version()} at {sys.executable}"


def installed(*names):
    """Returns the version of the first of these packages that is installed."""
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return "not installed"


if __name__ == "__main__":
    sys.exit(main())
