"""`tf.contrib.training`: hyperparameters, placement of variables by load, and tf_slim's training loop."""

import json
import re

import numpy as np
import tensorflow as tf

from ferroflow import contrib
from ferroflow.contrib import repairs

repairs.install(tf)

try:
    from tf_slim.training import evaluation as _evaluation
    from tf_slim.training import training as _training

    globals().update({name: getattr(_training, name) for name in (
        "add_gradients_summaries", "clip_gradient_norms", "clip_gradient_norms_fn", "create_train_op", "multiply_gradients", "train")})
    globals().update({name: getattr(_evaluation, name) for name in (
        "StopAfterNEvalsHook", "SummaryAtEndHook", "checkpoints_iterator", "evaluate_once", "evaluate_repeatedly",
        "get_or_create_eval_step", "wait_for_new_checkpoint")})
    _has_slim = True
except ModuleNotFoundError:
    _has_slim = False
    checkpoints_iterator = tf.train.checkpoints_iterator


class RandomStrategy:
    """Places each op on a random task; the same seed gives the same tasks."""

    def __init__(self, num_ps_tasks, seed=0):
        self._num_ps_tasks = num_ps_tasks
        self._random = np.random.RandomState(seed)

    def __call__(self, op):
        return self._random.randint(0, self._num_ps_tasks)


class GreedyLoadBalancingStrategy:
    """Places each op on the least loaded task; `load_fn` returns the load that an op adds."""

    def __init__(self, num_tasks, load_fn):
        self._load_fn = load_fn
        self._loads = np.zeros(num_tasks)

    def __call__(self, op):
        task = int(np.argmin(self._loads))
        self._loads[task] += self._load_fn(op)
        return task


def byte_size_load_fn(op):
    """Returns the size of an op's output in bytes, whose shape must be known."""
    elements = op.outputs[0].shape.num_elements()
    if elements is None:
        raise ValueError(f"the shape of {op.name} is not known, so neither is its size")
    return op.outputs[0].dtype.base_dtype.size * elements


# name=value, or name[3]=value, up to a comma that is not in brackets.
_ASSIGNMENT = re.compile(r"\s*(?P<name>[a-zA-Z][\w.]*)\s*(\[\s*(?P<index>\d+)\s*\])?\s*=\s*(?P<value>\[[^\]]*\]|[^,\[]*)\s*($|,\s*)")


class HParams:
    """Hyperparameters as attributes, each of which keeps the type of its first value."""

    def __init__(self, model_structure=None, **kwargs):
        self._types = {}
        self._model_structure = model_structure
        for name, value in kwargs.items():
            self.add_hparam(name, value)

    def add_hparam(self, name, value):
        """Adds a parameter; a name that exists is an error."""
        if getattr(self, name, None) is not None:
            raise ValueError(f"Hyperparameter name is reserved: {name}")
        if isinstance(value, (list, tuple)):
            if not value:
                raise ValueError(f"Multi-valued hyperparameters cannot be empty: {name}")
            self._types[name] = (type(value[0]), True)
        else:
            self._types[name] = (type(value), False)
        setattr(self, name, value)

    def set_hparam(self, name, value):
        """Sets a parameter, to a value of its type."""
        kind, is_list = self._types[name]
        if isinstance(value, list) != is_list:
            raise ValueError(f"Must pass a list for multi-valued parameter: {name}." if is_list
                             else f"Must not pass a list for single-valued parameter: {name}")
        setattr(self, name, [_cast(name, kind, one) for one in value] if is_list else _cast(name, kind, value))

    def del_hparam(self, name):
        """Removes a parameter."""
        if hasattr(self, name):
            delattr(self, name)
            del self._types[name]

    def parse(self, values):
        """Sets parameters from a string `name=value,name=[value,value],name[1]=value`."""
        position, found, single = 0, {}, {}
        while position < len(values):
            match = _ASSIGNMENT.match(values, position)
            if not match:
                raise ValueError(f"Malformed hyperparameter value: {values[position:]}")
            position = match.end()
            name, index, text = match["name"], match["index"], match["value"].strip()
            if name not in self._types:
                raise ValueError(f"Unknown hyperparameter type for {name}")
            kind, is_list = self._types[name]
            if index is not None:
                if not is_list:
                    raise ValueError(f"Could not parse hparam '{name}' with index: it is no list")
                single.setdefault(name, {})[int(index)] = _parse(name, kind, text)
            elif text.startswith("["):
                if not is_list:
                    raise ValueError(f"Must not pass a list for single-valued parameter: {name}")
                items = text[1:-1].strip()
                found[name] = [_parse(name, kind, item.strip()) for item in items.split(",")] if items else []
            elif is_list:
                raise ValueError(f"Must pass a list for multi-valued parameter: {name}")
            else:
                if name in found:
                    raise ValueError(f"Multiple assignments to variable '{name}' in {values}")
                found[name] = _parse(name, kind, text)
        self.override_from_dict(found)
        for name, items in single.items():
            changed = list(getattr(self, name))
            for index, value in items.items():
                changed[index] = value
            setattr(self, name, changed)
        return self

    def override_from_dict(self, values_dict):
        """Sets parameters from a dictionary."""
        for name, value in values_dict.items():
            self.set_hparam(name, value)
        return self

    def parse_json(self, values_json):
        """Sets parameters from a JSON object."""
        return self.override_from_dict(json.loads(values_json))

    def values(self):
        """Returns the parameters as a dictionary."""
        return {name: getattr(self, name) for name in self._types}

    def to_json(self, indent=None, separators=None, sort_keys=False):
        return json.dumps({name: value for name, value in self.values().items() if not callable(value)}, indent=indent,
                          separators=separators, sort_keys=sort_keys)

    def get(self, key, default=None):
        """Returns a parameter, or the default, which must be of the parameter's type."""
        if key not in self._types:
            return default
        if default is not None:
            kind, is_list = self._types[key]
            if isinstance(default, list) != is_list:
                raise ValueError(f"the default of {key} should {'' if is_list else 'not '}be a list")
            for one in default if is_list else [default]:
                _cast(key, kind, one)
        return getattr(self, key)

    def get_model_structure(self):
        return self._model_structure

    def set_model_structure(self, model_structure):
        self._model_structure = model_structure

    def __contains__(self, key):
        return key in self._types

    def __str__(self):
        return str(sorted(self.values().items()))

    def __repr__(self):
        return f"{type(self).__name__}({self})"


def _parse(name, kind, text):
    """Parses a value."""
    try:
        if kind is bool:
            lowered = {"true": True, "1": True, "false": False, "0": False}
            return lowered[text.lower()]
        return kind(text) if kind is not type(None) else text
    except (ValueError, KeyError):
        raise ValueError(f"Could not parse hparam '{name}' of type '{kind.__name__}' with value '{text}'") from None


def _cast(name, kind, value):
    """Converts a value to the parameter's type; a conversion that would lose something is an error."""
    refused = ValueError(f"Could not cast hparam '{name}' of type '{kind.__name__}' from value {value!r}")
    if kind is type(None) or callable(value) or value is None or isinstance(value, kind) and not (
            isinstance(value, bool) and kind is not bool):
        return value
    if isinstance(value, bool) or kind is bool or isinstance(value, str) != issubclass(kind, str):
        raise refused
    if issubclass(kind, int) and not isinstance(value, (int, np.integer)):
        raise refused
    return kind(value)


def __getattr__(name):
    if not _has_slim and name in ("create_train_op", "train", "evaluate_once", "evaluate_repeatedly", "StopAfterNEvalsHook"):
        raise AttributeError(str(contrib.needs_slim("training." + name)))
    raise AttributeError(contrib.no_such("training." + name))
