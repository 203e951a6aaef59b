"""`tf.app.flags` and `tf.app.run` as TensorFlow 1 had them, on absl.

TensorFlow 1 didn't have the flags that absl's logging and `run` define, so programs could define `log_dir`, `v` or `help`
themselves. A program's own flags replace those that exist before it starts.
"""

import sys

from absl import app as _app
from absl import flags as _flags
from absl.flags import *

_RENAMED = {"flag_name": "name", "default_value": "default", "docstring": "help"}


def install():
    """Lets a program's flags replace absl's. Calling it again changes nothing."""
    # Otherwise a later import of absl's logging would redefine its flags over the program's.
    from absl import logging

    for name in _flags.FLAGS:
        _flags.FLAGS[name].allow_override = True
    if getattr(_app.define_help_flags, "gives_way", False):
        return
    own_verbosity, use_absl_handler = _flags.FLAGS["verbosity"], logging.use_absl_handler

    def use_handler_of_own_flags():
        # absl's logging reads its own flag for the level, and the program's is a different one.
        if _flags.FLAGS["verbosity"] is own_verbosity:
            use_absl_handler()

    logging.use_absl_handler = use_handler_of_own_flags

    def define_help_flags():
        for flag in (_app.HelpFlag, _app.HelpshortFlag, _app.HelpfullFlag, _app.HelpXMLFlag):
            made = flag()
            names = [name for name in (made.name, made.short_name) if name]
            if any(name in _flags.FLAGS for name in names):
                continue
            _flags.DEFINE_flag(made)

    define_help_flags.gives_way = True
    _app.define_help_flags = define_help_flags
    _flags.FlagValues._parse_flags = lambda self, args=None: self(
        sys.argv if args is None else [sys.argv[0], *args], known_only=True)


class _Values:
    """absl's `FLAGS`, which parses the command line when a flag is read before anything has parsed it."""

    def __init__(self, values):
        self.__dict__["__wrapped"] = values

    def __getattribute__(self, name):
        if name == "__dict__":
            return super().__getattribute__(name)
        return self.__dict__["__wrapped"].__getattribute__(name)

    def __getattr__(self, name):
        values = self.__dict__["__wrapped"]
        if not values.is_parsed():
            values(sys.argv, known_only=True)
        return values.__getattr__(name)

    def __setattr__(self, name, value):
        self.__dict__["__wrapped"].__setattr__(name, value)

    def __delattr__(self, name):
        self.__dict__["__wrapped"].__delattr__(name)

    def __getitem__(self, name):
        return self.__dict__["__wrapped"][name]

    def __setitem__(self, name, flag):
        self.__dict__["__wrapped"][name] = flag

    def __contains__(self, name):
        return name in self.__dict__["__wrapped"]

    def __iter__(self):
        return iter(self.__dict__["__wrapped"])

    def __len__(self):
        return len(self.__dict__["__wrapped"])

    def __dir__(self):
        return dir(self.__dict__["__wrapped"])

    def __call__(self, *args, **kwargs):
        return self.__dict__["__wrapped"](*args, **kwargs)


def _with_old_names(define):
    def wrapper(*args, **kwargs):
        return define(*args, **{_RENAMED.get(name, name): value for name, value in kwargs.items()})

    return wrapper


DEFINE_string = _with_old_names(_flags.DEFINE_string)
DEFINE_boolean = DEFINE_bool = _with_old_names(_flags.DEFINE_boolean)
DEFINE_float = _with_old_names(_flags.DEFINE_float)
DEFINE_integer = _with_old_names(_flags.DEFINE_integer)
FLAGS = _Values(_flags.FLAGS)
_flags.disclaim_key_flags()


def run(main=None, argv=None):
    """Parses the flags, ignores unknown ones, and exits with the return value of `main`."""
    main = main or sys.modules["__main__"].main
    _app.run(main=main, argv=argv,
             flags_parser=lambda argv: FLAGS(sys.argv if argv is None else argv, known_only=True))


install()
