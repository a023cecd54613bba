"""Pins every private name of other packages that the package touches, and where it may be touched."""

import ast
import functools
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
import zarr

import intarsia
from intarsia import _compat as compat
from intarsia.errors import SlotsUnsupportedError
from intarsia.shards.sharding import SlottedSharding

ROOT = Path(compat.__file__).parent
SOURCES = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in sorted(ROOT.rglob("*.py"))}

STANDARD = {"_exit", "_fields", "_max_workers", "_mp_context", "_replace", "_value_"}
"""Names of Python itself; but for `_max_workers` and `_mp_context`, documented ones."""

SHARED = {"_handle", "_logical"}
"""Names of ours that another module than the one they are defined in may use."""


CODEC_METHODS = {"_decode_single", "_decode_sync", "_encode_single", "_encode_sync"}
"""The methods that make up a zarr codec; our own chains call them too."""

OVERRIDDEN = {
    "_check_native_dtype",  # of data types, as are the next four
    "_check_scalar",
    "_from_json_resolved",
    "_from_json_v2",
    "_from_json_v3",
    "_check_writable",  # of stores
    *compat.SHARDING_METHODS,
}
"""Methods of zarr's classes that ours replace, so that zarr calls them."""


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
            known = CODEC_METHODS | STANDARD | SHARED | own[module]
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
    assert replaced - CODEC_METHODS == OVERRIDDEN


NEWER_ZARR = """
import importlib, sys, types
import numpy as np
import zarr
real = importlib.import_module
importlib.import_module = lambda name: types.SimpleNamespace() if name.startswith("zarr.") else real(name)
import intarsia._compat as compat
importlib.import_module = real
import intarsia
from intarsia.codecs import PadCodec
assert "zarr.core.sync._get_loop" in compat.LACKING and len(compat.LACKING) == 7, compat.LACKING

values = np.arange(48, dtype="i4").reshape(6, 8)
array = intarsia.create({}, "a", shape=(6, 8), chunks=(2, 4), dtype="i4")
array.add_region((slice(0, 4), slice(0, 8)), codecs=["zstd"])
array.add_region((slice(4, 6), slice(0, 8)), codecs=["gzip"])
array.with_config(cross_region_writes=True)[:] = values
assert (array[1:, ::3] == values[1:, ::3]).all()

for shards in (None, (4, 8)):
    plain = zarr.create_array({}, shape=(6, 8), chunks=(2, 4), shards=shards, dtype="i4")
    plain[:] = values
    assert (intarsia.reader(plain)[:] == values).all()
old = zarr.create_array({}, shape=(6, 8), chunks=(2, 4), dtype="i4", zarr_format=2)
old[:] = values
assert (intarsia.reader(old)[:] == values).all()
assert intarsia.nullable.create_array({}, data=[1, None, 3])[:].tolist() == [1, None, 3]

for pipeline in ("Batched", "Fused"):
    with zarr.config.set({"codec_pipeline.path": f"intarsia.codecs.context.{pipeline}Pipeline"}):
        number = PadCodec(location="end", nbytes=1, padding_func=lambda data, chunk_index: bytes(chunk_index))
        store = {}
        padded = zarr.create(store=store, shape=4, chunks=2, dtype="u1", codecs=[{"name": "bytes"}, number])
        padded[:] = 7
        assert store["c/1"].to_bytes() == bytes([7, 7, 1]) and padded[:].tolist() == [7] * 4

slots = zarr.create_array(sys.argv[1], shape=(8,), chunks=(2,), shards=(8,), dtype="u1", compressors=None)
try:
    intarsia.shards.slotted(slots)[1:3] = 1
    print(intarsia.shards.slotted(slots)[:])
except intarsia.errors.SlotsUnsupportedError as error:
    print(error)
"""


def test_a_zarr_without_its_private_names_is_used_through_its_public_ones(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", NEWER_ZARR, tmp_path / "slots"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"zarr {zarr.__version__} is newer than this intarsia, and lacks zarr.")
    assert ran.stdout.startswith(f"slotted shards do not work with zarr {zarr.__version__}, which lacks")
    assert f"pip install 'zarr<{zarr.__version__}'" in ran.stdout


def test_a_zarr_without_a_name_that_nothing_replaces_is_refused():
    program = "import sys, zarr; del zarr.core.array_spec.ArraySpec; import intarsia._compat"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert f"does not work with zarr {zarr.__version__}: cannot import name 'ArraySpec'" in ran.stderr


def test_slotted_shards_are_refused_if_zarr_no_longer_calls_them(monkeypatch):
    monkeypatch.setattr(compat, "LACKING", [])
    monkeypatch.setattr(compat, "SHARDING_METHODS", ("_a_method_of_the_past",))
    with pytest.raises(SlotsUnsupportedError, match=r"ShardingCodec\._a_method_of_the_past"):
        SlottedSharding(chunk_shape=(2,))


@pytest.mark.parametrize(
    ("package", "ask"),
    [
        ("virtualizarr", compat.parsed_group),
        ("virtualizarr", compat.manifest_table),
        ("icechunk", compat.native_store),
        ("icechunk", compat.storage_path),
    ],
)
def test_another_package_that_lacks_a_private_name_is_named_with_its_version(package, ask):
    with pytest.raises(ImportError, match=rf"does not work with {package} \d"):
        ask(object())


def test_a_pandas_without_its_private_names_is_used_through_its_public_ones():
    pandas = pytest.importorskip("pandas")

    class Public:
        """What is public of a nullable array."""

        def __init__(self, array):
            self.to_numpy, self.isna, self.dtype = array.to_numpy, array.isna, array.dtype

    for dtype in ("Int16", "boolean", "Float32"):
        array = pandas.array([1, None, 0], dtype=dtype)
        values, missing = compat.pandas_memory(Public(array))
        assert (values.dtype, missing.tolist()) == (array.dtype.numpy_dtype, [False, True, False])
        assert values[[0, 2]].tolist() == [1, 0]
