"""`python -m ferroflow.check GRAPH SCRIPT.py ARGUMENTS`: runs a program up to its first step, and writes its graph to a file.

`ferroflow check SCRIPT.py` runs this module. It starts no server and computes nothing.
"""

import os
import sys

import ferroflow
from ferroflow import __main__ as runner
from ferroflow import python2


class Built(BaseException):
    """Raised when the program runs a step: its graph is complete. Not an Exception, so that no program catches it."""


class Server:
    """A `tf.train.Server` that starts nothing."""

    target = "grpc://checked.invalid:1"

    def __init__(self, server_or_cluster_def, job_name=None, task_index=None, protocol=None, config=None, start=True):
        from tensorflow.python.training import server_lib

        self.server_def = server_lib._make_server_def(server_or_cluster_def, job_name, task_index, protocol, config)

    @staticmethod
    def create_local_server(config=None, start=True):
        return Server({"localhost": ["localhost:0"]}, "localhost", 0, config=config)

    def start(self):
        pass

    def join(self):
        print("ferroflow: this task only starts a server: check one that builds a graph, such as --job_name=worker", file=sys.stderr)
        raise Built


def main():
    if len(sys.argv) < 3:
        print("usage: python -m ferroflow.check GRAPH SCRIPT.py [ARGUMENTS]", file=sys.stderr)
        return 2
    output, arguments = sys.argv[1], sys.argv[2:]
    if not os.path.exists(arguments[0]):
        print(f"ferroflow check: no such file: {arguments[0]}", file=sys.stderr)
        return 2
    ferroflow.Server = Server
    ferroflow.patch()
    python2.install()
    import tensorflow as tf
    from tensorflow.python.client import session

    graphs = []

    def stop(self, *_, **__):
        graphs.append(self.graph)
        raise Built

    for name in ("run", "partial_run_setup", "make_callable", "list_devices"):
        setattr(session.BaseSession, name, stop)
    try:
        runner.run_script(arguments)
    except Built:
        pass
    except SystemExit as end:
        if end.code not in (None, 0) and not graphs:
            raise
    graph = graphs[0] if graphs else tf.get_default_graph()
    definition = graph.as_graph_def()
    if definition.node:
        with open(output, "wb") as file:
            file.write(definition.SerializeToString())
    return 0


if __name__ == "__main__":
    sys.exit(main())
