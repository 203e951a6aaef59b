"""`--sessions`: sessions that name no server run on a server of ours, as sessions that name one do.

A program that makes plain `tf.Session()`s computes inside its own process, with TensorFlow's runtime. With this, each such session goes
to one server that is started for the program, or to a given one, and keeps its variables to itself, as a local session does.
"""

import functools
import threading

from ferroflow import server

_lock = threading.Lock()
# By the number of CPU devices that sessions asked for.
_servers = {}


def install(destination=None):
    """Redirects sessions without a target to `destination`, by default to a server that this program starts with its first session."""
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.client import session

    make = session.BaseSession.__init__

    @functools.wraps(make)
    def make_on_server(self, target="", graph=None, config=None):
        if target or (config is not None and not isinstance(config, config_pb2.ConfigProto)):
            return make(self, target, graph, config)
        isolated = config_pb2.ConfigProto()
        if config is not None:
            isolated.CopyFrom(config)
        # Sessions in one process share no variables, and sessions of one server do unless they say otherwise.
        isolated.isolate_session_state = True
        return make(self, destination or _local_target(isolated.device_count.get("CPU", 1)), graph, isolated)

    session.BaseSession.__init__ = make_on_server


def _local_target(cpus):
    """Returns the target of the server with so many CPU devices, and starts it when it is asked for first."""
    from tensorflow.core.protobuf import config_pb2

    with _lock:
        if cpus not in _servers:
            _servers[cpus] = server.Server.create_local_server(config_pb2.ConfigProto(device_count={"CPU": max(cpus, 1)}))
        return _servers[cpus].target
