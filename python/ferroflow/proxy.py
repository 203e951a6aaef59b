"""Sessions on servers that require TLS: TensorFlow's client speaks plain text, and `ferroflow proxy` forwards it over TLS."""

import os
import re
import subprocess
import threading

from ferroflow import server

READY = re.compile(r"proxy ready: (grpc://\S+) for ")
SCHEME = "grpc://"
LOCK = threading.Lock()
# By the server's target: its proxy process, and the proxy's own target.
PROXIES = {}


def through(target):
    """Returns the target to use for a server. With FERROFLOW_TLS_CERT it is that of a proxy, which exits with this process."""
    text = target.decode() if isinstance(target, bytes) else target
    if not text or not text.startswith(SCHEME) or not os.environ.get("FERROFLOW_TLS_CERT"):
        return target
    with LOCK:
        if any(known == text for _, known in PROXIES.values()):
            return target
        process, known = PROXIES.get(text, (None, None))
        if process is None or process.poll() is not None:
            process, known = _start(text[len(SCHEME):])
            PROXIES[text] = process, known
    return known.encode() if isinstance(target, bytes) else known


def _start(address):
    command = [server.binary_path(), "proxy", "--attached", address]
    # The proxy's standard input closes when this process ends.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    line = process.stdout.readline().decode(errors="replace")
    match = READY.search(line)
    if match is None:
        raise RuntimeError(f"`ferroflow proxy {address}` ended with {process.wait()}")
    return process, match.group(1)
