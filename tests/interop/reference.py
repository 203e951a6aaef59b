"""TensorFlow's own session as the reference, in a separate process that may crash.

Some inputs that must be refused crash TensorFlow's process instead, and which ones depends on the processor: with oneDNN, the
default on newer processors, there are others. So a separate process runs the graphs. It forks a child for every session. If the
child crashes, `run` raises `Crashed` with the reason, and the next `run` has a new child.

It uses oneDNN if this process does: the tests turn it off, so that results don't depend on the processor, except where a test
turns it on.
"""

import atexit
import ctypes
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import traceback

PR_SET_PDEATHSIG = 1
LINES_SHOWN = 8


class Crashed(Exception):
    """TensorFlow's process crashed in the middle of a step."""

    def __init__(self, how, lines):
        super().__init__(f"TensorFlow crashes here: {how}\n" + "\n".join(lines))
        self.how = how


class Reference:
    """A process that has imported TensorFlow and forks itself for every session."""

    def __init__(self, onednn):
        import harness

        ours, theirs = socket.socketpair()
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
        if onednn:
            environment["TF_ENABLE_ONEDNN_OPTS"] = "1"
        command = [*harness.DIES_WITH_PARENT, sys.executable, __file__, str(theirs.fileno())]
        self._process = subprocess.Popen(
            command, env=environment, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        theirs.close()
        self._control = ours
        harness.LIVE.add(self)

    def fork(self, connection, errors):
        """Creates a child that serves one session on a connection and writes its errors to a file."""
        socket.send_fds(self._control, [b"f"], [connection.fileno(), errors.fileno()])

    def wait(self):
        """Waits for the end of the child and returns how it ended."""
        answer = self._control.recv(64).decode()
        if not answer:
            raise AssertionError(f"the process of the reference ended: {self._process.stderr.read().decode()[-2000:]}")
        status = int(answer)
        if os.WIFSIGNALED(status):
            return f"signal {signal.Signals(os.WTERMSIG(status)).name}"
        return f"exit code {os.WEXITSTATUS(status)}"

    def kill(self):
        import harness

        self._process.kill()
        self._process.wait()
        harness.LIVE.discard(self)
        REFERENCES.clear()

    def log(self):
        return f"  TensorFlow's reference (pid {self._process.pid})"


REFERENCES = {}


def reference(onednn=False):
    """Returns the process, started on first use."""
    if onednn not in REFERENCES:
        REFERENCES[onednn] = Reference(onednn)
    return REFERENCES[onednn]


class Session:
    """Runs steps of a graph as `tf.Session` does; fetches are tensors and operations, in lists or not."""

    def __init__(self, graph, initializers=(), config=None, onednn=False):
        import tensorflow.compat.v1 as tf

        self._tf = tf
        self._reference = reference(onednn)
        self._opening = {
            "graph": graph.as_graph_def(add_shapes=False).SerializeToString(),
            "config": (config or tf.ConfigProto()).SerializeToString(),
            "initializers": names(tf, initializers),
        }
        self._stream = self._errors = None
        # The session's process, once a step has run.
        self.pid = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self._stream is not None:
            self._stream.close()
            self._reference.wait()
            self._forget()

    def _forget(self):
        self._errors.close()
        self._stream = self._errors = None

    def run(self, fetches, feed=None):
        """Runs a step; raises TensorFlow's error, or `Crashed`."""
        is_new = self._stream is None
        try:
            values = self._step(fetches, feed)
        except Crashed:
            if is_new:
                raise
            # An earlier step may have corrupted memory. A child that runs nothing else decides that.
            values = self._step(fetches, feed)
        return self._tf.nest.pack_sequence_as(fetches, values, expand_composites=True)

    def _step(self, fetches, feed):
        if self._stream is None:
            self._open()
        return self._ask({
            "fetches": names(self._tf, fetches),
            "feed": {key if isinstance(key, str) else key.name: value for key, value in (feed or {}).items()},
        })

    def _open(self):
        ours, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()
        self._reference.fork(theirs, self._errors)
        theirs.close()
        self._stream = ours.makefile("rwb")
        ours.close()
        try:
            [self.pid] = self._ask(self._opening)
        except self._tf.errors.OpError:
            # A child whose session was not created serves no steps.
            self.close()
            raise

    def _ask(self, question):
        try:
            pickle.dump(question, self._stream)
            self._stream.flush()
            kind, *rest = pickle.load(self._stream)
        except (EOFError, OSError, pickle.UnpicklingError):
            how = self._reference.wait()
            self._errors.seek(0)
            lines = self._errors.read().decode(errors="replace").splitlines()[-LINES_SHOWN:]
            self._forget()
            raise Crashed(how, lines) from None
        if kind == "values":
            return rest[0]
        if kind == "error":
            code, message = rest
            raise self._tf.errors.exception_type_from_error_code(code)(None, None, message)
        raise AssertionError(rest[0])


def names(tf, fetches):
    flat = tf.nest.flatten(fetches, expand_composites=True)
    return [one if isinstance(one, str) else one.name for one in flat]


@atexit.register
def kill_all():
    for process in list(REFERENCES.values()):
        process.kill()


def main(control):
    """Forks for each requested session, one at a time, and reports how each child ended."""
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    libc = ctypes.CDLL(None)
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 2)
        if not message:
            return
        connection, errors = descriptors
        child = os.fork()
        if child == 0:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            os.dup2(errors, 1)
            os.dup2(errors, 2)
            control.close()
            serve(tf, socket.socket(fileno=connection).makefile("rwb"))
            os._exit(0)
        os.close(connection)
        os.close(errors)
        control.send(str(os.waitpid(child, 0)[1]).encode())


def serve(tf, stream):
    session = None
    while True:
        try:
            question = pickle.load(stream)
        except EOFError:
            return
        try:
            if session is None:
                session = opened(tf, **question)
                answer = ("values", [os.getpid()])
            else:
                answer = ("values", session.run(question["fetches"], question["feed"]))
        except tf.errors.OpError as error:
            answer = ("error", error.error_code, error.message)
        except UnicodeDecodeError as error:
            # The step failed, and its message isn't text: TensorFlow's Python then loses the code.
            answer = ("error", tf.errors.UNKNOWN, f"a message that can't be read: {error}")
        except Exception:
            answer = ("broken", traceback.format_exc())
        pickle.dump(answer, stream)
        stream.flush()


def opened(tf, graph, config, initializers):
    with tf.Graph().as_default() as made:
        tf.import_graph_def(tf.GraphDef.FromString(graph), name="")
    session = tf.Session(graph=made, config=tf.ConfigProto.FromString(config))
    if initializers:
        session.run(initializers)
    return session


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
