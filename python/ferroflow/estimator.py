"""Estimators under `TF_CONFIG`: every session of a task runs on its server, and an evaluator exits with the chief.

The modules of tf.estimator are patched when a program first imports them.
"""

import importlib.abc
import importlib.machinery
import json
import os
import sys
import threading
import time

from ferroflow import server

PACKAGE = "tensorflow_estimator.python.estimator."
EVALUATOR = "evaluator"


def install():
    """Patches the modules as soon as they are loaded."""
    changes = {PACKAGE + "training": change_training, PACKAGE + "run_config": change_run_config}
    for name in [name for name in changes if name in sys.modules]:
        changes.pop(name)(sys.modules[name])
    if changes:
        sys.meta_path.insert(0, AfterImport(changes))


def task():
    """Returns the task and the cluster of TF_CONFIG. Mistakes in it are reported by those who parse it later."""
    try:
        config = json.loads(os.environ.get("TF_CONFIG") or "{}")
        return config.get("task") or {}, config.get("cluster") or {}
    except (ValueError, AttributeError):
        return {}, {}


class AfterImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Calls a function with each of some modules once it is loaded."""

    def __init__(self, changes):
        self._changes = changes
        self._loaders = {}

    def find_spec(self, name, path=None, target=None):
        if name not in self._changes or name in self._loaders:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None:
            return None
        self._loaders[name] = spec.loader
        spec.loader = self
        return spec

    def create_module(self, spec):
        return self._loaders[spec.name].create_module(spec)

    def exec_module(self, module):
        name = module.__spec__.name
        self._loaders[name].exec_module(module)
        self._changes[name](module)


def change_training(training):
    """Starts workers when the chief is ready, and ends an evaluator's waits with the training."""
    training._DELAY_SECS_PER_WORKER = 0
    training.time = TimeUntilDone()
    listener = training._ContinuousEvalListener

    def before_eval(self):
        self._was_done = server.CHIEF_DONE.is_set()
        return True

    def after_eval(self, eval_result):
        if getattr(self, "_was_done", False):
            print("ferroflow: the chief is done: evaluating its last checkpoint", file=sys.stderr, flush=True)
            return False
        return True

    listener.before_eval, listener.after_eval = before_eval, after_eval
    evaluator = training._TrainingExecutor._Evaluator
    evaluate_and_export = evaluator.evaluate_and_export

    def evaluate_last(self):
        if server.CHIEF_DONE.is_set() and not self._is_final_export_triggered:
            # Training may end before its last step; final exporters export the checkpoint that it ends with.
            self._max_training_steps = 1
            if self._eval_spec.exporters:
                self._previous_ckpt_path = None
        while True:
            path = self._estimator.latest_checkpoint()
            try:
                return evaluate_and_export(self)
            except (ValueError, training.tf.errors.OpError):
                # A fast chief may remove an old checkpoint while it is being read.
                if not path or training.tf.compat.v1.train.checkpoint_exists(path):
                    raise
                print(f"ferroflow: {path} was removed after newer checkpoints:  evaluating the newest", file=sys.stderr, flush=True)

    evaluator.evaluate_and_export = evaluate_last


class TimeUntilDone:
    """The module `time`, with a `sleep` that ends when the chief is done."""

    def __getattr__(self, name):
        return getattr(time, name)

    @staticmethod
    def sleep(seconds):
        server.CHIEF_DONE.wait(seconds)


def change_run_config(run_config):
    """Runs sessions that evaluate on a server of their own: in the cluster they would overwrite the variables being trained."""
    evaluation_master = run_config.RunConfig.evaluation_master.fget

    def on_own_server(self):
        named = evaluation_master(self)
        is_distributed = self.task_type == EVALUATOR or bool(self.cluster_spec)
        return named if named or not is_distributed else EVALUATION.target()

    run_config.RunConfig.evaluation_master = property(on_own_server, doc=run_config.RunConfig.evaluation_master.__doc__)


class EvaluationServer:
    """The server for evaluations of this process, started on first use."""

    def __init__(self):
        self._lock = threading.Lock()
        self._server = None

    def target(self):
        with self._lock:
            if self._server is None:
                is_evaluator = task()[0].get("type") == EVALUATOR
                self._server = server.Server.of_tf_config() if is_evaluator else server.Server.create_local_server()
            return self._server.target


EVALUATION = EvaluationServer()
