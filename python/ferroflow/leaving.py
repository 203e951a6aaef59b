"""Waiting and exiting: waiting tasks say what they wait for, finished tasks are not waited for, and a worker exits after its
chief.

TensorFlow's workers poll the chief every 30 seconds, its synchronous training waits 120 seconds for threads that never end, and a
worker that waits for a chief that has exited waits forever. Here a server tells its program when the chief's program has
finished, and steps that still wait after that are cancelled.
"""

import contextlib
import sys
import threading
import time
import traceback

from ferroflow import server

# The first delay, in seconds, between polls of the chief; the delay grows.
FIRST_LOOK_SECS, LAST_LOOK_SECS = 0.1, 1.0
# The interval, in seconds, at which a worker logs what it waits for.
SAYING_SECS = 30
# How long threads that only fill queues may take to end: they wait in steps that are cancelled when the session closes.
QUEUE_RUNNERS_SECS = 2

# How long a step may still take when the chief is done; after that it counts as waiting for the chief.
LAST_STEP_SECS = 5

# The exit code for a lost task, which tells a cluster manager that a restart may help.
PEER_LOST = 138

CHIEF_HAS_LEFT = "the chief is done and has left"
# Set when this task's training has ended for that reason.
CHIEFS_LEAVE = threading.Event()


class Steps:
    """The steps that this process waits for. When the chief is done, those that keep waiting are cancelled."""

    def __init__(self):
        self._lock = threading.Lock()
        self._under_way = {}
        self._watcher = None
        self.are_cancelled = False

    @contextlib.contextmanager
    def step(self, session):
        """Marks that a session runs a step."""
        me = threading.get_ident()
        with self._lock:
            outer = self._under_way.get(me)
            self._under_way[me] = (session, object())
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, name="ferroflow-last-steps", daemon=True)
                self._watcher.start()
        try:
            yield
        finally:
            with self._lock:
                if outer is None:
                    del self._under_way[me]
                else:
                    self._under_way[me] = outer

    def _watch(self):
        server.CHIEF_DONE.wait()
        before = {}
        while True:
            with self._lock:
                now = dict(self._under_way)
            waiting = [session for me, (session, step) in now.items() if me in before and before[me][1] is step]
            for session in waiting:
                self.are_cancelled = True
                # The error ends the step, and the training.
                with contextlib.suppress(Exception):
                    session.close()
            before = now
            time.sleep(LAST_STEP_SECS)


STEPS = Steps()


def install():
    """Patches TensorFlow's classes in place."""
    from tensorflow.python.client import session
    from tensorflow.python.framework import errors
    from tensorflow.python.training import coordinator, session_manager

    session_manager.SessionManager.wait_for_session = wait_for_session
    coordinator.Coordinator.join = joining(coordinator.Coordinator.join)
    # A step gets Cancelled if another thread has closed its session.
    lost = (errors.UnavailableError, errors.AbortedError, errors.CancelledError)
    session.BaseSession.run = running(session.BaseSession.run, lost)


def exit_code(error):
    """Returns the exit code for an error that ends a program, after printing a line or a traceback; None if Python prints the
    error."""
    if is_chiefs_leave(error):
        return 0
    kind = type(error)
    if kind.__module__ == "tensorflow.python.framework.errors_impl" and kind.__name__ in ("UnavailableError", "AbortedError"):
        traceback.print_exception(kind, error, error.__traceback__)
        return PEER_LOST
    return None


def is_chiefs_leave(error):
    """Returns whether an error means only that the chief has exited. `Supervisor.managed_session` swallows ours and yields no
    session."""
    is_swallowed = isinstance(error, RuntimeError) and "generator didn't yield" in str(error)
    return CHIEF_HAS_LEFT in str(getattr(error, "message", "")) or (is_swallowed and CHIEFS_LEAVE.is_set())


def chief_has_left():
    """Returns the error that ends a worker's training. Sessions treat it as the end of the input."""
    from tensorflow.python.framework import errors

    if not CHIEFS_LEAVE.is_set():
        CHIEFS_LEAVE.set()
        print(f"ferroflow: {CHIEF_HAS_LEFT}: this task ends, too", file=sys.stderr, flush=True)
    return errors.OutOfRangeError(None, None, CHIEF_HAS_LEFT)


def wait_for_session(self, master, config=None, max_wait_secs=float("Inf")):
    """Replaces `SessionManager.wait_for_session`: waits until the chief has initialized the variables, and returns a session."""
    from tensorflow.python.client import session
    from tensorflow.python.framework import errors

    self._target = master
    max_wait_secs = float("Inf") if max_wait_secs is None else max_wait_secs
    start, said, pause = time.monotonic(), None, FIRST_LOOK_SECS
    while True:
        made = session.Session(master, graph=self._graph, config=config)
        is_ready, reason = self._try_run_local_init_op(made)
        if is_ready:
            is_ready, reason = self._model_ready(made)
        if is_ready:
            if said is not None:
                print(f"ferroflow: the chief is ready after {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)
            return made
        self._safe_close(made)
        waited = time.monotonic() - start
        if waited + pause > max_wait_secs:
            raise errors.DeadlineExceededError(None, None, f"Session was not ready after waiting {max_wait_secs:.0f} secs.")
        if said is None or waited - said >= SAYING_SECS:
            said = waited
            print(f"ferroflow: waits for the chief: {reason}", file=sys.stderr, flush=True)
        if server.CHIEF_DONE.wait(pause):
            raise chief_has_left()
        pause = min(pause * 1.5, LAST_LOOK_SECS)


def joining(original):
    """Returns a `Coordinator.join` that doesn't wait long for threads that only fill queues."""

    def join(self, threads=None, stop_grace_period_secs=120, ignore_live_threads=False):
        threads = list(threads or ())
        with self._lock:
            everyone = self._registered_threads.union(threads)
        while any(thread.is_alive() for thread in everyone) and not self.wait_for_stop(1.0):
            pass
        until = time.monotonic() + stop_grace_period_secs
        for thread in everyone:
            if not is_queue_runner(thread):
                join_until(thread, until)
        others = any(thread.is_alive() for thread in everyone if not is_queue_runner(thread))
        if not others:
            runners_until = min(until, time.monotonic() + QUEUE_RUNNERS_SECS)
            for thread in everyone:
                join_until(thread, runners_until)
            # They end with the session; this is not an error.
            ignore_live_threads = True
        return original(self, threads, stop_grace_period_secs=0, ignore_live_threads=ignore_live_threads)

    return join


def join_until(thread, until):
    # A thread that wasn't started, or the current one, can't be joined.
    if thread.is_alive() and thread is not threading.current_thread():
        thread.join(max(0.0, until - time.monotonic()))


def is_queue_runner(thread):
    return thread.name.startswith("QueueRunnerThread")


def running(original, lost):
    """Returns a `Session.run` that ends a worker's training if the chief is done and the worker's steps fail."""

    def run(self, *args, **kwargs):
        if not server.is_training() or not self.sess_str:
            return original(self, *args, **kwargs)
        try:
            with STEPS.step(self):
                return original(self, *args, **kwargs)
        except (*lost, RuntimeError) as error:
            # A session that was closed in the meantime raises RuntimeError.
            if not server.CHIEF_DONE.is_set() or (isinstance(error, RuntimeError) and not STEPS.are_cancelled):
                raise
            raise chief_has_left() from error

    run.__doc__ = original.__doc__
    return run
