"""Pins every private name of other packages that the package touches, and where it may be touched."""

import ast
import functools
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import intarsia
from intarsia import _compat as compat

ROOT = Path(compat.__file__).parent
SOURCES = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in sorted(ROOT.rglob("*.py"))}

STANDARD = {"_exit", "_max_workers", "_mp_context", "_replace", "_value_"}
"""Names of Python itself; but for `_max_workers` and `_mp_context`, documented ones."""

SHARED = {"_handle", "_logical"}
"""Names of ours that another module than the one they are defined in may use."""


def is_private(name):
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__")) and name != "_"


@functools.cache
def nodes(text):
    """All of a module, in the order of `ast.walk`."""
    return list(ast.walk(ast.parse(text)))


def defined(module):
    """The private names that a module gives to what it defines."""
    for node in module:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store(), value=ast.Name(id="self" | "cls")):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)):  # a field
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]):
                yield name
            case ast.Call(
                func=ast.Attribute(attr="__setattr__"), args=[_, ast.Constant(value=str(name)), *_]
            ):
                yield name


def asked_for(module):
    """Where private attributes are asked for: the line, of what, and which."""
    for node in module:
        match node:
            case ast.Attribute(value=value, attr=name, ctx=ast.Load()) if is_private(name):
                yield node.lineno, ast.unparse(value), name
            case ast.Call(func=ast.Name(id="getattr"), args=[value, ast.Constant(value=name), *_]):
                if is_private(name):
                    yield node.lineno, ast.unparse(value), name


def offences(sources):
    """Private names that a module asks for although they are neither its own nor known."""
    modules = {name: nodes(text) for name, text in sources.items()}
    own = {name: set(defined(module)) for name, module in modules.items()}
    ours = set().union(*own.values())
    for module, content in modules.items():
        for line, of, name in asked_for(content):
            known = compat.CODEC_METHODS | STANDARD | SHARED | own[module]
            if of in ("self", "cls", "super()"):
                known = known | ours  # a class of ours may be derived from one of another module
            if name not in known:
                yield f"{module}:{line}: {of}.{name}"


def test_private_attributes_of_others_are_asked_for_in_one_module():
    assert list(offences({name: text for name, text in SOURCES.items() if name != "_compat.py"})) == []


@pytest.mark.parametrize(
    "line",
    [
        "chain._aa_codecs",
        "getattr(manifest, '_paths')",
        "self._get_chunk_spec(spec)",
        "store._store.session",
        "array._data, array._mask",
    ],
)
def test_such_an_attribute_does_not_go_unnoticed(line):
    elsewhere = "class Ours:\n    def __init__(self):\n        self._store = self._data = None\n"
    assert list(offences({"elsewhere.py": elsewhere, "module.py": line}))


def test_private_names_are_imported_in_one_module():
    offenders = []
    for name, text in SOURCES.items():
        if name == "_compat.py":
            continue
        for node in nodes(text):
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module != "__future__":
                package, *modules = node.module.split(".")
                private = [part for part in (*modules, *(a.name for a in node.names)) if is_private(part)]
                if private and package != "intarsia":
                    offenders.append(f"{name}:{node.lineno}: {node.module} {private}")
    assert offenders == []


def test_the_methods_of_zarr_that_ours_replace_are_these_and_exist():
    replaced = set()
    for found in pkgutil.walk_packages(intarsia.__path__, "intarsia."):
        if found.name.endswith("__main__"):
            continue
        module = importlib.import_module(found.name)
        for ours in vars(module).values():
            if inspect.isclass(ours) and ours.__module__ == found.name:
                bases = [base for base in ours.__mro__ if base.__module__.startswith("zarr.")]
                theirs = {name for base in bases for name in vars(base)}
                replaced |= {name for name in vars(ours) if is_private(name) and name in theirs}
    replaced = {name for name in replaced if not name.startswith("_abc_")}
    assert replaced - compat.CODEC_METHODS == compat.OVERRIDDEN
