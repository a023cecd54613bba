"""The flat public namespace: complete, documented, with an executed example each."""

import inspect
import types
import typing

import pytest

import intarsia


def test_all_is_sorted_and_complete():
    assert intarsia.__all__ == sorted(intarsia.__all__)
    public = {name for name in vars(intarsia) if not name.startswith("_")}
    modules = {name for name in public if isinstance(getattr(intarsia, name), types.ModuleType)}
    assert public - modules <= set(intarsia.__all__)


SPACES = [intarsia, intarsia.codecs, intarsia.errors, intarsia.nullable, intarsia.shards, intarsia.types]
PUBLIC = [(space, name) for space in SPACES for name in space.__all__]


@pytest.mark.parametrize(
    ("space", "name"), PUBLIC, ids=[f"{space.__name__}.{name}" for space, name in PUBLIC]
)
def test_every_public_object_has_a_docstring_with_an_example(space, name):
    thing = getattr(space, name)
    documentation = inspect.getdoc(thing)
    assert documentation
    is_type_alias = isinstance(thing, typing.TypeAliasType)
    if not isinstance(thing, types.ModuleType) and not is_type_alias and space is not intarsia.errors:
        assert ">>>" in documentation


def test_a_name_has_one_home():
    """What stands at the top may have a home below as well; no other name has two."""
    below = [name for space in SPACES[1:] for name in space.__all__]
    assert sorted(set(below)) == sorted(below)
