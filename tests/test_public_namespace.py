"""The flat public namespace: complete, documented, with an executed example each."""

import inspect
import types

import pytest

import intarsia


def test_all_is_sorted_and_complete():
    assert intarsia.__all__ == sorted(intarsia.__all__)
    public = {name for name in vars(intarsia) if not name.startswith("_")}
    modules = {name for name in public if isinstance(getattr(intarsia, name), types.ModuleType)}
    assert public - modules <= set(intarsia.__all__)


@pytest.mark.parametrize("name", intarsia.__all__)
def test_every_public_object_has_a_docstring_with_an_example(name):
    thing = getattr(intarsia, name)
    documentation = inspect.getdoc(thing)
    assert documentation
    if not isinstance(thing, types.ModuleType):
        assert ">>>" in documentation
