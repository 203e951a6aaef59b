"""`python -m ferroflow script.py ARGUMENTS`, or `python -m ferroflow -m package.module ARGUMENTS`."""

import os
import runpy
import sys

import ferroflow

USAGE = """usage: python -m ferroflow SCRIPT.py [ARGUMENTS]
       python -m ferroflow -m MODULE [ARGUMENTS]

Runs a TensorFlow 1 program on the installed TensorFlow; every tf.train.Server that it starts is a Ferroflow process."""


def main():
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if arguments else 2
    ferroflow.patch()
    if arguments[0] == "-m":
        if len(arguments) < 2:
            print(USAGE, file=sys.stderr)
            return 2
        sys.argv = arguments[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return 0
    script = arguments[0]
    if not os.path.exists(script):
        print(f"python -m ferroflow: there is no file {script}", file=sys.stderr)
        return 2
    # What Python itself does for a script: its arguments, and its directory first on the path.
    sys.argv = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
