"""The tables of the source documents' demands: complete, and true of names."""

import ast
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from tests.seeds import DOCUMENTS, demands

ROOT = Path(__file__).parents[1]
ROWS = [(name, row) for name, document in DOCUMENTS.items() for row in demands(document)]
FIELDS = {"demand": str, "where": list, "tests": list, "reason": str}


def test_no_demand_is_without_a_test_or_a_reason():
    assert [row["demand"] for _, row in ROWS if not {"tests", "reason"} & row.keys()] == []


def test_every_demand_is_listed_once_and_in_known_fields():
    assert len({(name, row["demand"]) for name, row in ROWS}) == len(ROWS) > 200
    for _, row in ROWS:
        assert {key: type(value) for key, value in row.items()}.items() <= FIELDS.items(), row["demand"]
        assert all(row.values()), row["demand"]


@cache
def names_in(file):
    """The names of the tests of a file, read and not run."""
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_test_that_is_named_exists(name):
    for row in demands(DOCUMENTS[name]):
        for test in row.get("tests", ()):
            file, _, function = test.partition("::")
            function, _, page_of_docs = function.removesuffix("]").partition("[")
            assert function.startswith("test_"), test
            assert function in names_in(file), test
            assert not page_of_docs or (ROOT / page_of_docs).is_file(), test


def exists(place):
    """Whether a file of the package, a page, or a public name is there."""
    if "/" in place or place.endswith(".py"):
        return (ROOT / place if place.startswith("docs/") else ROOT / "src" / "intarsia" / place).is_file()
    module, _, name = place.rpartition(".")
    return name in import_module(module).__all__


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_place_that_is_named_exists(name):
    named = {place for row in demands(DOCUMENTS[name]) for place in row["where"]}
    assert sorted(place for place in named if not exists(place)) == []
