"""`--sessions`: runs sessions that name no server on a Ferroflow server.

A program's plain `tf.Session()`s compute in its own process, with TensorFlow's runtime. With this option each such session uses a
server that is started for the program, or a given one, with variables of its own, as in a local session.
"""

import functools
import threading

from ferroflow import server

_lock = threading.Lock()
# By the number of CPU devices that sessions request.
_servers = {}


def install(destination=None):
    """Redirects sessions without a target to `destination`, by default to a server that is started with the program's first
    session."""
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
        # Local sessions share no variables, but sessions on one server do unless they are isolated.
        isolated.isolate_session_state = True
        return make(self, destination or _local_target(isolated.device_count.get("CPU", 1)), graph, isolated)

    session.BaseSession.__init__ = make_on_server


def _local_target(cpus):
    """Returns the target of the server with this many CPU devices, and starts it on first use."""
    from tensorflow.core.protobuf import config_pb2

    with _lock:
        if cpus not in _servers:
            _servers[cpus] = server.Server.create_local_server(config_pb2.ConfigProto(device_count={"CPU": max(cpus, 1)}))
        return _servers[cpus].target
