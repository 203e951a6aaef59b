"""Fixtures of the interop tests, and the watchdog that ends a hanging test."""

import faulthandler
import os
import sys
import threading

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Otherwise TensorFlow uses oneDNN on some processors and not on others, here and in the servers that tests start.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
# Session targets are on loopback, whatever the machine's proxy settings are.
os.environ["no_proxy"] = os.environ["NO_PROXY"] = "*"

import pytest

import harness

DEFAULT_WATCHDOG_SECS = 600
GRACE_SECS = 30
NOTE = "note"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    marker = item.get_closest_marker("watchdog")
    limit = marker.args[0] if marker else DEFAULT_WATCHDOG_SECS
    watchdog = Watchdog(item.nodeid, limit)
    harness.TAKE_NOTE = lambda text: item.user_properties.append((NOTE, text))
    try:
        return (yield)
    finally:
        watchdog.stop()


def pytest_terminal_summary(terminalreporter):
    """Shows the tests' notes about TensorFlow, such as crashes."""
    reports = [report for reports in terminalreporter.stats.values() for report in reports if getattr(report, "when", "") == "call"]
    notes = [(report.nodeid, text) for report in reports for kind, text in report.user_properties if kind == NOTE]
    if notes:
        terminalreporter.section("notes about TensorFlow")
    for nodeid, text in notes:
        terminalreporter.line(f"{nodeid}: {text}")


class Watchdog:
    """Ends a hanging test: first its servers, so that a blocked client call fails, then the whole run."""

    def __init__(self, name, limit_secs):
        self._done = threading.Event()
        self._name = name
        self._limit_secs = limit_secs
        threading.Thread(target=self._watch, daemon=True).start()

    def stop(self):
        self._done.set()

    def _watch(self):
        if self._done.wait(self._limit_secs):
            return
        out = sys.__stderr__
        print(f"\nWATCHDOG: {self._name} still runs after {self._limit_secs} s. Its processes:", file=out)
        for process in list(harness.LIVE):
            print(process.log(), file=out)
        faulthandler.dump_traceback(file=out)
        out.flush()
        harness.kill_all()
        if not self._done.wait(GRACE_SECS):
            print(f"WATCHDOG: {self._name} hangs although its servers are gone: giving up", file=out)
            out.flush()
            os._exit(70)


@pytest.fixture(scope="session")
def server_kind():
    """The servers under test: ours, or with FERROFLOW_INTEROP_AGAINST=tensorflow real ones."""
    return harness.default_kind()


@pytest.fixture(scope="session")
def ferroflow_bin():
    return harness.ferroflow_bin()


@pytest.fixture
def cluster(request):
    """Returns a function that starts a cluster; it is killed at the end of the test."""
    yield from cluster_maker(request, None)


@pytest.fixture
def tf_cluster(request):
    """Like `cluster`, of real TensorFlow servers."""
    yield from cluster_maker(request, harness.TENSORFLOW)


@pytest.fixture(scope="module")
def shared_cluster(request):
    """One ps and two workers that all tests of a module share: tests must not damage it."""
    made = harness.Cluster(ps=1, workers=2)
    yield made
    made.stop()


@pytest.fixture
def graph():
    """A graph of the test's own, set as default."""
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default() as made:
        yield made


@pytest.fixture
def processes(request):
    """A list for client processes; those that still run at the end of the test are killed."""
    made = []
    yield made
    for process in made:
        process.kill()
    if failed(request):
        for process in made:
            print(process.log())


def cluster_maker(request, kind):
    made = []

    def make(*args, **kwargs):
        if kind:
            kwargs.setdefault("kind", kind)
        result = harness.Cluster(*args, start=False, **kwargs)
        made.append(result)
        return result.start()

    yield make
    for one in made:
        one.stop()
    if failed(request):
        for one in made:
            print(one.log())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call":
        item.call_failed = report.failed
    if report.failed and report.when == "call" and "shared_cluster" in item.fixturenames:
        shared = item.funcargs.get("shared_cluster")
        if shared is not None:
            report.sections.append(("Cluster log", shared.log()))
    return report


def failed(request):
    return getattr(request.node, "call_failed", True)
