"""Every function, method, parameter, command and option that a message names exists and takes what is said.

All messages of the package are searched. That a suggestion does what it says is tried beside the tests of
the room that makes it.
"""

import ast
import inspect
import re
import types
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import dask.array
import pytest
import zarr
from typer.main import get_command

import intarsia
from intarsia.cli.app import HOMES, app
from intarsia.interop.xarray import DatasetAccessor
from intarsia.nullable import NullableArray
from intarsia.versions.transaction import Transaction

SOURCE = Path(intarsia.__file__).parent
CALL = re.compile(r"(?<![\w.])(intarsia|arr|array|tx|dataset\.intarsia)((?:\.[a-z]\w*)+)(\(?)")
COMMAND = re.compile(r"\bintarsia ([a-z]+)(?= (?:STORE|--|[A-Z]{2,})|$|[,;:) ])")
OPTION = re.compile(r"(?<![\w(-])--[a-z][a-z-]*")
KEYWORD = re.compile(r"(?<![\w'.\"])([a-z_]+)=(?!=)")
ARRAYS = (intarsia.LogicalArray, NullableArray, zarr.Array, dask.array.Array)
OWNERS = {"arr": ARRAYS, "array": ARRAYS, "tx": (Transaction,), "intarsia": (intarsia,)}
OWNERS |= {"dataset.intarsia": (DatasetAccessor,)}
ARGUMENTS_OF = {
    "archives": [intarsia.ingest],
    "interop/adopt.py": [intarsia.adopt],
    "interop/convert.py": [intarsia.convert, intarsia.export],
    "shards": [intarsia.shards.slotted],
}
"""Whose parameters the modules of a room name with `argument(…)`."""


def messages():
    """Every text with a space in it that is no docstring, and every `argument(…)`, with its place."""
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        inside = {
            id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)
        }
        inside |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            place = f"{path.relative_to(SOURCE).as_posix()}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
                yield place, "".join(parts)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
                if " " in node.value:
                    yield place, node.value
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "argument":
                yield from [(place, node)] if isinstance(node.args[0], ast.Constant) else []


def resolved(owner, path):
    first, *rest = path.strip(".").split(".")
    found = next((getattr(each, first) for each in OWNERS[owner] if hasattr(each, first)), None)
    for name in rest if isinstance(found, types.ModuleType) else ():
        found = getattr(found, name, None) or import_module(f"{found.__name__}.{name}")
    return found


def within_parentheses(text):
    """What is between the parentheses that were just opened."""
    depth = 1
    for end, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if not depth:
            return text[:end]
    return text


def unknown_keywords(function, arguments):
    """Keywords of a call, outside of calls in it, that a function does not take."""
    parameters = inspect.signature(function).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return set()
    plain = re.sub(r"\([^()]*\)|\{[^{}]*\}", "", arguments)
    return set(KEYWORD.findall(plain)) - {each.name for each in parameters}


@cache
def options_of(verb):
    command = get_command(app).get_command(None, verb)
    return {option for each in command.params for option in each.opts + each.secondary_opts}


def problems(text):
    """What is wrong with the names in a message, and how many there are."""
    found, count = [], 0
    for match in CALL.finditer(text):
        owner, path, opens = match.groups()
        count += 1
        try:
            function = resolved(owner, path)
        except ImportError:
            function = None
        if function is None:
            found.append(f"there is no {match.group().rstrip('(')}")
        elif opens:
            unknown = unknown_keywords(function, within_parentheses(text[match.end() :]))
            found += [f"{match.group()}…) takes no {name}=" for name in unknown]
    verbs = [verb for verb in COMMAND.findall(text) if verb in HOMES]
    commands = re.findall(r"\bintarsia ([a-z]+) (?:STORE|--)", text)
    found += [f"there is no command {verb}" for verb in commands if verb not in HOMES]
    known = set().union(*map(options_of, verbs or HOMES), {"--json", "--help", "--version", "--upgrade"})
    options = OPTION.findall(text)
    found += [f"there is no option {option}" for option in options if option not in known]
    return found, count + len(verbs) + len(options)


def words_of(name):
    """The words that an argument of `ingest` may be."""
    annotation = get_type_hints(intarsia.ingest).get(name)
    literals = (each for each in (annotation, *get_args(annotation)) if get_origin(each) is Literal)
    return [word for literal in literals for word in get_args(literal)]


def argument_problem(place, call):
    """What is wrong with a parameter that a message names."""
    name = call.args[0].value
    functions = next((those for room, those in ARGUMENTS_OF.items() if place.startswith(room)), None)
    if functions is None:
        public = (getattr(intarsia, each) for each in dir(intarsia))
        functions = [each for each in public if inspect.isfunction(each)]
    if not any(name in inspect.signature(each).parameters for each in functions):
        return f"no function takes {name}="
    value = call.args[1].value if len(call.args) > 1 and isinstance(call.args[1], ast.Constant) else None
    words = words_of(name) if place.startswith("archives") else []
    wrong = isinstance(value, str) and words and value not in words
    return f"{name}={value!r} is none of {words}" if wrong else ""


def test_what_messages_name_exists():
    wrong, count = [], 0
    for place, message in messages():
        if isinstance(message, ast.Call):
            count += 1
            wrong += [f"{place}: {problem}" for problem in [argument_problem(place, message)] if problem]
        elif not place.startswith(("inspect/", "cli/demo")) or "intarsia." in message:
            found, names = problems(message)
            count += names
            wrong += [f"{place}: {problem}: {message!r}" for problem in found]
    assert not wrong, "\n".join(wrong)
    assert count > 150


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Give one: intarsia.codecs.no_such(array)", "there is no intarsia.codecs.no_such"),
        ("Create one: intarsia.create(store, path, form=…)", "takes no form="),
        ("Try arr.recodes(bounds, codecs=[…])", "there is no arr.recodes"),
        ("Say intarsia rekode STORE", "there is no command rekode"),
        ("Say intarsia ingest --concatdim", "there is no option --concatdim"),
    ],
)
def test_a_name_that_does_not_exist_is_found(text, words):
    assert words in problems(text)[0][0]
