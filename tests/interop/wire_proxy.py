"""Records the gRPC calls between two tasks, without changing a byte.

    cargo xtask proxy --listen 3333 --to 127.0.0.1:2222

Tell one task that the other is at the listening port, and every call between them is printed, decoded with our own
descriptors (FERROFLOW_DESCRIPTORS, which `cargo xtask` sets). `--route PORT=HOST:PORT` may be given many times, to sit
between all tasks of a cluster in one process; `--dump DIR` writes every message to a file as well.
"""

import argparse
import collections
import os
import pathlib
import socket
import struct
import sys
import threading
import time

import hpack
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, GOAWAY, CONTINUATION = 0, 1, 3, 7, 9
END_STREAM, END_HEADERS, PADDED, PRIORITY = 0x1, 0x4, 0x8, 0x20
TENSOR_BYTES_SHOWN = 48


class Messages:
    """Decodes a message by the path of its call."""

    def __init__(self, descriptors_path):
        self._pool = descriptor_pool.DescriptorPool()
        if descriptors_path and os.path.exists(descriptors_path):
            descriptors = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(descriptors_path).read_bytes())
            for file in descriptors.file:
                self._pool.Add(file)

    def decode(self, path, is_request, data):
        """Returns the message, or none when its type is unknown."""
        name = "tensorflow." + path.rsplit("/", 1)[-1] + ("Request" if is_request else "Response")
        try:
            kind = message_factory.GetMessageClass(self._pool.FindMessageTypeByName(name))
            return kind.FromString(data)
        except Exception:  # An unknown service, or bytes that are no such message: the caller shows the bytes.
            return None


def describe(message, indent="    "):
    """Returns readable text: a graph by its nodes, long bytes cut."""
    lines = []
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.full_name == "tensorflow.GraphDef":
            lines.append(f"{field.name}:")
            lines += ["  " + node_text(node) for node in value.node]
            lines += ["  function " + function.signature.name for function in value.library.function]
            lines.append(f"  versions {text_format.MessageToString(value.versions, as_one_line=True)}")
        else:
            lines.append(field_text(field, value))
    return "\n".join(indent + line for line in lines)


def field_text(field, value):
    """Returns one field as text, by printing a message that holds only this field."""
    message = message_factory.GetMessageClass(field.containing_type)()
    if field.label == field.LABEL_REPEATED:
        getattr(message, field.name).MergeFrom(value)
    elif field.message_type is not None:
        getattr(message, field.name).CopyFrom(value)
    else:
        setattr(message, field.name, value)
    return cut(text_format.MessageToString(message, as_one_line=True))


def node_text(node):
    attributes = ", ".join(
        f"{name}={cut(text_format.MessageToString(node.attr[name], as_one_line=True), 160)}" for name in sorted(node.attr))
    return f"{node.name} = {node.op}({', '.join(node.input)}) @ {node.device or '-'} [{attributes}]"


def cut(text, limit=2000):
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


class Recorder:
    """Prints calls in the order in which they are complete."""

    def __init__(self, messages, dump, out, only):
        self._messages = messages
        self._dump = pathlib.Path(dump) if dump else None
        self._out = out
        self._only = only
        self._lock = threading.Lock()
        self._count = 0
        self._started = time.monotonic()
        if self._dump:
            self._dump.mkdir(parents=True, exist_ok=True)

    def message(self, connection, stream, path, is_request, data):
        if self._only and not any(word in path for word in self._only):
            return
        decoded = self._messages.decode(path, is_request, data)
        body = describe(decoded) if decoded is not None else "    " + data[:TENSOR_BYTES_SHOWN].hex()
        side = "request" if is_request else "response"
        with self._lock:
            self._count += 1
            if self._dump:
                name = f"{self._count:05d}-{connection.route}-{path.rsplit('/', 1)[-1]}-{side}.pb"
                (self._dump / name.replace(":", "_")).write_bytes(data)
            self._line(connection, stream, f"{'>>' if is_request else '<<'} {path} {side}, {len(data)} bytes")
            if body.strip():
                print(body, file=self._out)
            self._out.flush()

    def note(self, connection, stream, text):
        with self._lock:
            self._line(connection, stream, text)
            self._out.flush()

    def _line(self, connection, stream, text):
        elapsed = time.monotonic() - self._started
        print(f"{elapsed:9.3f} [{connection.route} #{connection.number}/{stream}] {text}", file=self._out)


class Side:
    """Parses the HTTP/2 frames of one direction of a connection."""

    def __init__(self, connection, is_client):
        self._connection = connection
        self._is_client = is_client
        self._buffer = bytearray()
        self._preface = is_client
        self._decoder = hpack.Decoder(max_header_list_size=1 << 24)
        self._decoder.max_allowed_table_size = 1 << 24
        self._block = bytearray()
        self._block_stream = 0
        self._bodies = collections.defaultdict(bytearray)

    def feed(self, data):
        self._buffer += data
        if self._preface:
            if len(self._buffer) < len(PREFACE):
                return
            del self._buffer[:len(PREFACE)]
            self._preface = False
        while len(self._buffer) >= 9:
            length = int.from_bytes(self._buffer[:3], "big")
            if len(self._buffer) < 9 + length:
                return
            kind, flags = self._buffer[3], self._buffer[4]
            stream = int.from_bytes(self._buffer[5:9], "big") & 0x7FFFFFFF
            payload = bytes(self._buffer[9:9 + length])
            del self._buffer[:9 + length]
            self._frame(kind, flags, stream, payload)

    def _frame(self, kind, flags, stream, payload):
        if kind in (DATA, HEADERS) and flags & PADDED:
            payload = payload[1:len(payload) - payload[0]]
        if kind == HEADERS:
            if flags & PRIORITY:
                payload = payload[5:]
            self._block, self._block_stream = bytearray(payload), stream
        elif kind == CONTINUATION:
            self._block += payload
        elif kind == DATA:
            self._body(stream, payload)
        elif kind == RST_STREAM:
            self._connection.note(stream, self._is_client, f"RST_STREAM {int.from_bytes(payload, 'big')}")
        elif kind == GOAWAY:
            self._connection.note(stream, self._is_client, f"GOAWAY {payload[4:8].hex()} {payload[8:]!r}")
        if kind in (HEADERS, CONTINUATION) and flags & END_HEADERS:
            headers = self._decoder.decode(bytes(self._block), raw=True)
            self._connection.headers(self._block_stream, self._is_client, dict(headers))

    def _body(self, stream, payload):
        body = self._bodies[stream]
        body += payload
        while len(body) >= 5:
            compressed, length = struct.unpack(">BI", body[:5])
            if len(body) < 5 + length:
                return
            data = bytes(body[5:5 + length])
            del body[:5 + length]
            if compressed:
                self._connection.note(stream, self._is_client, f"compressed message of {length} bytes")
            else:
                self._connection.message(stream, self._is_client, data)


class Connection:
    """A client's connection and the one that we made to the server for it."""

    def __init__(self, number, route, recorder, client, server):
        self.number = number
        self.route = route
        self._recorder = recorder
        self._client = client
        self._server = server
        self._paths = {}

    def start(self):
        pairs = ((self._client, self._server, Side(self, True)), (self._server, self._client, Side(self, False)))
        for source, sink, side in pairs:
            threading.Thread(target=self._pump, args=(source, sink, side), daemon=True).start()

    def _pump(self, source, sink, side):
        readable = True
        try:
            while data := source.recv(1 << 20):
                # Read before it is passed on, so that no answer is printed before its request.
                if readable:
                    try:
                        side.feed(data)
                    except Exception as error:  # The recording ends here, the traffic must not.
                        readable = False
                        self._recorder.note(self, 0, f"cannot read this connection any more: {error!r}")
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def headers(self, stream, is_client, headers):
        if is_client:
            self._paths[stream] = headers.get(b":path", b"?").decode()
            timeout = headers.get(b"grpc-timeout")
            extra = f" grpc-timeout {timeout.decode()}" if timeout else ""
            self._recorder.note(self, stream, f">> {self._paths[stream]} begins{extra}")
        elif b"grpc-status" in headers and headers[b"grpc-status"] != b"0":
            status = headers[b"grpc-status"].decode()
            details = headers.get(b"grpc-status-details-bin", b"")
            text = headers.get(b"grpc-message", b"").decode(errors="replace")
            self._recorder.note(self, stream, f"<< {self._paths.get(stream, '?')} status {status} {text} {details!r}")

    def message(self, stream, is_client, data):
        self._recorder.message(self, stream, self._paths.get(stream, "?"), is_client, data)

    def note(self, stream, is_client, text):
        self._recorder.note(self, stream, f"{'>>' if is_client else '<<'} {self._paths.get(stream, '')} {text}")


def serve(listen_port, host, port, recorder):
    """Accepts connections for one route; returns when the listening socket is open."""
    listener = socket.create_server(("127.0.0.1", listen_port))
    route = f"{listen_port}>{port}"

    def accept():
        number = 0
        while True:
            client, _ = listener.accept()
            number += 1
            try:
                server = socket.create_connection((host, port))
            except OSError:
                client.close()
                continue
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            Connection(number, route, recorder, client, server).start()

    threading.Thread(target=accept, daemon=True).start()


def parse_route(text):
    listen, _, to = text.partition("=")
    host, _, port = to.rpartition(":")
    return int(listen), host, int(port)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listen", type=int, metavar="PORT")
    parser.add_argument("--to", metavar="HOST:PORT")
    parser.add_argument("--route", action="append", default=[], metavar="PORT=HOST:PORT")
    parser.add_argument("--dump", metavar="DIR", help="write every message to a file here")
    parser.add_argument("--only", action="append", metavar="WORD", help="print the messages of calls with this in the path")
    parser.add_argument("--descriptors", default=os.environ.get("FERROFLOW_DESCRIPTORS"))
    arguments = parser.parse_args()
    routes = [parse_route(text) for text in arguments.route]
    if arguments.listen and arguments.to:
        routes.append(parse_route(f"{arguments.listen}={arguments.to}"))
    if not routes:
        parser.error("give --listen and --to, or --route")
    recorder = Recorder(Messages(arguments.descriptors), arguments.dump, sys.stdout, arguments.only)
    for route in routes:
        serve(*route, recorder)
    print("wire proxy ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
