"""What rooms above provide is there under its name, and loaded by nobody who does not ask for it."""

import inspect
import subprocess
import sys
from pkgutil import resolve_name

import pytest

import intarsia
from intarsia.engine.accessors import PROVIDERS

METHODS = ["fork_for", "optimize", "to_dask", "to_xarray"]


@pytest.mark.parametrize("name", PROVIDERS)
def test_every_provider_is_there(name):
    assert callable(resolve_name(PROVIDERS[name]))


@pytest.mark.parametrize("name", METHODS)
def test_a_method_takes_what_its_provider_takes(name):
    def parameters(function):
        return [
            (p.name, p.default)
            for p in list(inspect.signature(function).parameters.values())[1:]
            if p.kind is not p.VAR_KEYWORD
        ]

    assert parameters(getattr(intarsia.LogicalArray, name)) == parameters(resolve_name(PROVIDERS[name]))


def test_methods_are_seen_by_whoever_looks():
    array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="f4")
    assert {*METHODS, "_repr_html_"} <= set(dir(array))
    assert all(getattr(array, name).__doc__ for name in METHODS)


def test_reading_and_writing_load_nothing_from_above():
    code = """
import sys, intarsia
array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="f4")
array.append([1, 2], codecs=["zstd"])
array[4] = array[5]
rooms = "logical.advice", "interop", "inspect", "archives", "cli"
above = tuple(f"intarsia.{room}" for room in rooms)
print([name for name in sys.modules if name.startswith(above)])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
