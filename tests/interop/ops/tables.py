"""All tables of this directory, by the name of their module."""

import importlib
import pathlib


def names():
    """Returns the modules that have a table."""
    folder = pathlib.Path(__file__).parent
    return [path.stem for path in sorted(folder.glob("test_*.py")) if "\nTABLE = " in path.read_text()]


def all():
    """Returns the tables, loaded on first use."""
    return {name: importlib.import_module(name).TABLE for name in names()}
