"""`tensorflow` for a parameter server: its script runs without TensorFlow as long as it uses only flags and servers.

A parameter server defines flags, starts a `tf.train.Server` and joins it. Importing TensorFlow for that takes seconds and half a
gigabyte, so such a task gets a module with just these names. Any other name loads TensorFlow, and from then on the module
forwards everything to it.
"""

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import logging
import os
import sys
import types
import weakref

from ferroflow import flags
from ferroflow.server import Server

JOB = "ps"
SPECS = weakref.WeakSet()


def is_for_a_parameter_server(arguments):
    """Returns whether the command line or the environment says that this task is a parameter server."""
    if any(word == JOB or word.endswith("=" + JOB) for word in arguments[1:]):
        return True
    if os.environ.get("JOB_NAME") == JOB:
        return True
    try:
        config = json.loads(os.environ.get("TF_CONFIG") or "{}")
        return config.get("task", {}).get("type") == JOB
    except (ValueError, AttributeError):
        return False


def serve_for_estimator(script):
    """Serves as a parameter server of an Estimator's job until the job ends. Returns whether this task is one.

    On such a task `train_and_evaluate` only starts the server that TF_CONFIG describes and joins it.
    """
    try:
        config = json.loads(os.environ.get("TF_CONFIG") or "{}")
        task, cluster = config.get("task", {}), config.get("cluster", {})
        with open(script, "rb") as file:
            words = {getattr(node, "attr", None) for node in ast.walk(ast.parse(file.read()))}
    except (ValueError, AttributeError, SyntaxError, OSError):
        return False
    if task.get("type") != JOB or "train_and_evaluate" not in words or "Server" in words or not is_plain(cluster):
        return False
    index = int(task.get("index", 0))
    print(f"ferroflow: TF_CONFIG says that this is /job:{JOB}/task:{index}: serving without TensorFlow", file=sys.stderr)
    Server(cluster, job_name=JOB, task_index=index).join()
    return True


def install():
    """Installs the stand-in, so that `import tensorflow` finds it."""
    LIGHT.update({
        "app": Names("app", flags=flags, run=flags.run),
        "flags": flags,
        "logging": light_logging(),
        "train": Names("train", Server=Server, ClusterSpec=ClusterSpec),
    })
    stand_in = StandIn("tensorflow", "TensorFlow 1's names, of which those of servers need no TensorFlow.")
    stand_in.__dict__["__spec__"] = importlib.util.find_spec("tensorflow")
    sys.modules["tensorflow"] = stand_in
    sys.meta_path.insert(0, Submodules())
    from ferroflow import mnist

    # The MNIST module and its parents: most scripts import the digits at the top.
    for name in ("examples", "examples.tutorials", "examples.tutorials.mnist"):
        sys.modules["tensorflow." + name] = types.ModuleType("tensorflow." + name)
        sys.modules["tensorflow." + name].__path__ = []
    sys.modules["tensorflow.examples.tutorials.mnist"].input_data = mnist
    sys.modules["tensorflow.examples.tutorials.mnist.input_data"] = mnist


class StandIn(types.ModuleType):
    """The module `tensorflow` until TensorFlow is needed, and a view of the real one afterwards."""

    def __getattr__(self, name):
        if "real" not in self.__dict__ and name in LIGHT:
            return LIGHT[name]
        return getattr(self._load(), name)

    def __setattr__(self, name, value):
        setattr(self._load(), name, value)

    def __dir__(self):
        return dir(self._load())

    def _load(self):
        if "real" not in self.__dict__:
            for name in [name for name in sys.modules if name.startswith("tensorflow.examples")]:
                del sys.modules[name]
            del sys.modules["tensorflow"]
            import ferroflow

            for handler in light_logging.handlers:
                logging.getLogger("tensorflow").removeHandler(handler)
            ferroflow.patch()
            self.__dict__["real"] = sys.modules["tensorflow"]
            for spec in list(SPECS):
                spec.become_real()
        return self.__dict__["real"]


class Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Returns modules that loading TensorFlow has imported: an import of a submodule makes the stand-in load TensorFlow."""

    def find_spec(self, name, path=None, target=None):
        if not name.startswith("tensorflow.") or name not in sys.modules:
            return None
        return importlib.machinery.ModuleSpec(name, self)

    def create_module(self, spec):
        module = sys.modules[spec.name]
        self._kept = module.__spec__
        return module

    def exec_module(self, module):
        module.__spec__ = self._kept


class ClusterSpec:
    """`tf.train.ClusterSpec` of plain dictionaries, which turns into TensorFlow's own class once TensorFlow is loaded."""

    def __new__(cls, cluster):
        if isinstance(cluster, ClusterSpec):
            cluster = cluster.addresses
        if not is_plain(cluster):
            return sys.modules["tensorflow"]._load().train.ClusterSpec(cluster)
        spec = super().__new__(cls)
        spec.addresses = {job: list(tasks) for job, tasks in cluster.items()}
        SPECS.add(spec)
        return spec

    @property
    def jobs(self):
        return list(self.addresses)

    def as_dict(self):
        return {job: list(tasks) for job, tasks in self.addresses.items()}

    def num_tasks(self, job_name):
        return len(self.addresses[job_name])

    def job_tasks(self, job_name):
        return list(self.addresses[job_name])

    def task_address(self, job_name, task_index):
        return self.addresses[job_name][task_index]

    def become_real(self):
        """Converts this object to TensorFlow's class."""
        real = sys.modules["tensorflow"].train.ClusterSpec
        addresses = self.addresses
        self.__class__ = real
        self.__init__(addresses)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        sys.modules["tensorflow"]._load()
        return getattr(self, name)


def is_plain(cluster):
    return isinstance(cluster, dict) and all(
        isinstance(job, str) and isinstance(tasks, (list, tuple)) and all(isinstance(task, str) for task in tasks)
        for job, tasks in cluster.items())


class Names(types.ModuleType):
    """A module below the stand-in: it has a few names, and takes the rest from TensorFlow."""

    def __init__(self, path, **names):
        super().__init__("tensorflow." + path)
        self.__dict__.update(names)
        self.__dict__["_path"] = path

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        stand_in = sys.modules["tensorflow"]
        real = stand_in._load() if isinstance(stand_in, StandIn) else stand_in
        return getattr(getattr(real, self.__dict__["_path"]), name)


def light_logging():
    """Returns `tf.logging`, as far as Python's own logging can do it."""
    logger = logging.getLogger("tensorflow")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
    logger.addHandler(handler)
    logger.propagate = False
    light_logging.handlers.append(handler)
    return Names(
        "logging", DEBUG=logging.DEBUG, INFO=logging.INFO, WARN=logging.WARN, ERROR=logging.ERROR, FATAL=logging.FATAL,
        debug=logger.debug, info=logger.info, warn=logger.warning, warning=logger.warning, error=logger.error,
        set_verbosity=logger.setLevel, get_verbosity=logger.getEffectiveLevel)


light_logging.handlers = []

# The stand-in's own names, filled when it is installed.
LIGHT = {}
