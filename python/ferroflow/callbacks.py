"""Serves this program's Python functions to its session's server, for `tf.py_func`, `tf.numpy_function` and
`Dataset.from_generator`.

The ops of these functions run in a server, which has no Python. So this process connects to the server, lists its functions, and
asks for calls; the server never connects to a client. Each function's token is followed by a random id of this process, so that
the functions of two programs are never confused.
"""

import os
import secrets
import socket
import sys
import threading
import traceback

from ferroflow import proxy

ATTEND = "/ferroflow.CallbackService/Attend"
EXCHANGE = "/ferroflow.CallbackService/Exchange"
SEPARATOR = "@"

# The most functions that run at once; a further call waits until one of them returns.
THREADS_MAX = 64

# The codes that TensorFlow gives to exceptions of such functions; other exceptions are UNKNOWN.
CODES = ((ValueError, 3), (TypeError, 3), (StopIteration, 11), (MemoryError, 8), (NotImplementedError, 12))
UNKNOWN = 2


def install():
    """Announces functions that graphs call to the servers of sessions. Calling it again changes nothing."""
    from tensorflow.python.client import session
    from tensorflow.python.ops import script_ops

    registry = script_ops._py_funcs
    if hasattr(registry, "ferroflow_clients"):
        return
    clients = registry.ferroflow_clients = Clients(registry)
    next_token = registry._next_unique_token
    insert = registry.insert

    registry._next_unique_token = lambda: next_token() + SEPARATOR + clients.id

    def insert_and_serve(function):
        token = insert(function)
        clients.serve()
        return token

    registry.insert = insert_and_serve
    make = session.BaseSession.__init__

    def make_and_serve(self, target="", graph=None, config=None):
        target = proxy.through(target)
        make(self, target, graph, config)
        clients.add(target)

    session.BaseSession.__init__ = make_and_serve


class Clients:
    """The connections to the servers of this program's sessions."""

    def __init__(self, registry):
        self.id = secrets.token_hex(16)
        self._pid = os.getpid()
        self._registry = registry
        self._lock = threading.Lock()
        self._targets = {}

    def add(self, target):
        """Records a session's server; the connection is opened when there are functions to serve."""
        target = target.decode() if isinstance(target, bytes) else target
        if not target or not target.startswith("grpc://"):
            return
        with self._lock:
            client = self._targets.get(target)
            # A lost server may be back.
            if client is None or client.is_over:
                self._targets[target] = None
        if self._registry.size() > 0:
            self.serve()

    def serve(self):
        """Connects to the servers that have no connection yet."""
        if os.getpid() != self._pid:
            # A forked child has its parent's tokens, but none of its threads.
            return
        with self._lock:
            for target, client in self._targets.items():
                if client is None:
                    self._targets[target] = Client(target, self.id, self._registry)


class Client:
    """A connection to one server, which receives calls and returns results."""

    def __init__(self, target, client_id, registry):
        # gRPC would log, at every start of a process, that its threads don't exist after a fork.
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
        import grpc

        self._grpc = grpc
        self._id = client_id
        self._registry = registry
        self._messages = messages()
        self.is_over = False
        self._lock = threading.Lock()
        self._idle = 0
        self._threads = 0
        self._channel = grpc.insecure_channel(target[len("grpc://"):], options=[
            ("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1), ("grpc.enable_http_proxy", 0),
            # A separate connection, even if other code in this process uses gRPC with this server.
            ("grpc.use_local_subchannel_pool", 1)])
        request, response = self._messages
        self._exchange, attend = (self._channel.unary_unary(
            path, request_serializer=request.SerializeToString, response_deserializer=response.FromString)
            for path in (EXCHANGE, ATTEND))
        who = f"{os.path.basename(sys.argv[0]) or 'python'} (pid {os.getpid()} on {socket.gethostname()})"
        self._attending = attend.future(request(client=client_id, message=[who]), wait_for_ready=True)
        self._attending.add_done_callback(self._end)
        with self._lock:
            self._start_thread()

    def _end(self, future):
        self.is_over = True
        code = None if future.cancelled() else future.code()
        # A TensorFlow server doesn't have this call; it reports itself which ops it can't run.
        if code not in (None, self._grpc.StatusCode.OK, self._grpc.StatusCode.UNAVAILABLE, self._grpc.StatusCode.UNIMPLEMENTED):
            print(f"ferroflow: a server refuses this program's Python functions: {future.details()}", file=sys.stderr)

    def _start_thread(self):
        self._threads += 1
        self._idle += 1
        threading.Thread(target=self._serve, name="ferroflow-callbacks", daemon=True).start()

    def _serve(self):
        """Asks for a call, runs it, and asks for the next one with its result."""
        request, _ = self._messages
        result = request(client=self._id)
        while not self.is_over:
            try:
                call = self._exchange(result, wait_for_ready=True)
            except self._grpc.RpcError as error:
                if error.code() == self._grpc.StatusCode.FAILED_PRECONDITION and not self.is_over:
                    # The server hasn't yet registered this client.
                    result = request(client=self._id)
                    threading.Event().wait(0.01)
                    continue
                if error.code() in (self._grpc.StatusCode.RESOURCE_EXHAUSTED, self._grpc.StatusCode.INVALID_ARGUMENT) and result.call:
                    # The result itself was refused, for example because it is too large.
                    result = request(client=self._id, call=result.call, code=["8"], message=[error.details()])
                    continue
                return
            with self._lock:
                self._idle -= 1
                # Functions may wait for each other, so another thread asks for calls while this one runs.
                if self._idle == 0 and self._threads < THREADS_MAX:
                    self._start_thread()
            result = self._run(call)
            with self._lock:
                self._idle += 1

    def _run(self, call):
        """Returns the result of a call, or its error, as the next request."""
        from tensorflow.python.framework import tensor_util

        request, _ = self._messages
        number, token = to_array(call.tensor[0].tensor)
        result = request(client=self._id, call=number.decode())
        try:
            args = [to_array(one.tensor) for one in call.tensor[1:]]
            returned = self._registry(token.decode(), None, args)
            values = returned if isinstance(returned, list) else [] if is_none(returned) else [returned]
            for index, value in enumerate(values):
                result.result.add(name=str(index)).tensor.CopyFrom(tensor_util.make_tensor_proto(value))
        except BaseException as error:
            del result.result[:]
            result.code.append(str(next((code for kind, code in CODES if isinstance(error, kind)), UNKNOWN)))
            result.message.append(describe(error))
        return result


def is_none(value):
    """Returns whether a function returned nothing, which TensorFlow's registry may have converted to an array."""
    return value is None or getattr(value, "dtype", None) == object and value.shape == () and value.item() is None


def to_array(tensor):
    """Returns the array of a TensorProto. TensorFlow's own function doesn't read strings in `tensor_content`."""
    import numpy as np
    from tensorflow.core.framework import types_pb2
    from tensorflow.python.framework import tensor_util

    if tensor.dtype != types_pb2.DT_STRING or not tensor.tensor_content:
        return tensor_util.MakeNdarray(tensor)
    shape = [dimension.size for dimension in tensor.tensor_shape.dim]
    content, at, lengths = tensor.tensor_content, 0, []
    for _ in range(int(np.prod(shape, dtype=np.int64))):
        length, shift = 0, 0
        while True:
            byte = content[at]
            length |= (byte & 127) << shift
            at, shift = at + 1, shift + 7
            if byte < 128:
                break
        lengths.append(length)
    array = np.empty(len(lengths), object)
    for index, length in enumerate(lengths):
        array[index] = content[at:at + length]
        at += length
    return array.reshape(shape)


def describe(error):
    """Returns TensorFlow's description of an exception: its class, its message and its traceback."""
    # The first two frames are those of this module and of TensorFlow's registry.
    frames = traceback.extract_tb(error.__traceback__)[2:] or traceback.extract_tb(error.__traceback__)
    places = "".join(traceback.format_list(frames))
    return f"{type(error).__name__}: {error}\nTraceback (most recent call last):\n\n{places}\n"


_messages = None


def messages():
    """Returns the message classes of a request and a response: the fields of RunStep, for which TensorFlow's wheel has no
    classes."""
    global _messages
    if _messages is None:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
        from tensorflow.core.protobuf import named_tensor_pb2

        file = descriptor_pb2.FileDescriptorProto(
            name="ferroflow/callbacks.proto", package="ferroflow", syntax="proto3",
            dependency=[named_tensor_pb2.DESCRIPTOR.name])
        field = descriptor_pb2.FieldDescriptorProto

        def add(message, name, number, is_list=False, tensors=False):
            message.field.add(
                name=name, number=number, label=field.LABEL_REPEATED if is_list else field.LABEL_OPTIONAL,
                type=field.TYPE_MESSAGE if tensors else field.TYPE_STRING, type_name=".tensorflow.NamedTensorProto" if tensors else None)

        request = file.message_type.add(name="ExchangeRequest")
        add(request, "client", 1)
        add(request, "result", 2, is_list=True, tensors=True)
        add(request, "message", 3, is_list=True)
        add(request, "code", 4, is_list=True)
        add(request, "call", 6)
        add(file.message_type.add(name="ExchangeResponse"), "tensor", 1, is_list=True, tensors=True)
        pool = descriptor_pool.Default()
        pool.Add(file)
        find = pool.FindMessageTypeByName
        get = getattr(message_factory, "GetMessageClass", None) or message_factory.MessageFactory(pool).GetPrototype
        _messages = get(find("ferroflow.ExchangeRequest")), get(find("ferroflow.ExchangeResponse"))
    return _messages
