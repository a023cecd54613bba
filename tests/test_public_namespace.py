"""The flat public namespace: complete, documented, with an executed example each."""

import ast
import inspect
import itertools
import re
import textwrap
import types
import typing

import pytest

import intarsia


def test_all_is_sorted_and_complete():
    assert intarsia.__all__ == sorted(intarsia.__all__)
    public = {name for name in vars(intarsia) if not name.startswith("_")}
    modules = {name for name in public if isinstance(getattr(intarsia, name), types.ModuleType)}
    assert public - modules <= set(intarsia.__all__)


def test_help_begins_with_a_screenful_that_has_every_name():
    assert set(intarsia.__all__) <= set(re.findall(r"\w+", intarsia.__doc__))
    assert len(intarsia.__doc__.splitlines()) <= 45


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


MADE_ELSEWHERE = (
    intarsia.LogicalArray,
    intarsia.Region,
    intarsia.nullable.NullableArray,
    intarsia.types.Reader,
)
"""Classes that nobody calls: functions make them."""


def public_callables():
    """Every public function and class, and the public methods of arrays, by name."""
    for made in MADE_ELSEWHERE:
        for method, function in inspect.getmembers(made, inspect.isroutine):
            if not method.startswith("_"):
                yield f"{made.__name__}.{method}", function
    for space in (intarsia, intarsia.codecs, intarsia.nullable, intarsia.shards):
        for name in space.__all__:
            thing = getattr(space, name)
            if thing in MADE_ELSEWHERE:
                continue
            if inspect.isclass(thing) or inspect.isroutine(thing):
                yield f"{space.__name__}.{name}", thing


def described(thing):
    """All that is written about something: its docstring, and those of the fields of a class."""
    written = inspect.getdoc(thing) or ""
    for one in inspect.getmro(thing) if inspect.isclass(thing) else ():
        if not one.__module__.startswith("intarsia"):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(one))).body[0].body
        for field, text in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                written += f"\n    {field.target.id}: {text.value.value}"
    return re.sub(r"(?m)^ *(>>>|\.\.\.).*$", "", written)  # an example describes nothing


def is_named(parameter, written):
    """Whether a text has a parameter between backticks, or in a list of arguments."""
    name = re.escape(parameter)
    return re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`|(?m:^ +\**{name}: \S)", written) is not None


CALLABLES = dict(public_callables())


@pytest.mark.parametrize("name", sorted(CALLABLES))
def test_every_parameter_is_described(name):
    thing = CALLABLES[name]
    if inspect.isclass(thing) and issubclass(thing, Exception):
        return  # exceptions take whatever they are given
    parameters = inspect.signature(thing).parameters
    wanted = [parameter for parameter in parameters if parameter != "self" and not parameter.startswith("_")]
    written = described(thing)
    assert [parameter for parameter in wanted if not is_named(parameter, written)] == []


def test_a_parameter_that_is_not_described_is_found():
    written = "Write `values` there.\n\nArgs:\n    path: Where.\n    **options: The rest.\n"
    found = [name for name in ("values", "path", "options", "Where", "mode") if is_named(name, written)]
    assert found == ["values", "path", "options"]
