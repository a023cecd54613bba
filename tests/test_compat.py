"""Pins every private name of zarr and icechunk that the package touches."""

import ast
from pathlib import Path

import intarsia._compat as compat

SOURCE = Path(compat.__file__).parent


def test_every_name_exists():
    for name in compat.__all__:
        assert hasattr(compat, name)


def test_no_other_module_imports_a_private_name_of_zarr_or_icechunk():
    offenders = []
    for path in SOURCE.rglob("*.py"):
        if path.name == "_compat.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("zarr", "icechunk"):
                private = [a.name for a in node.names if a.name.startswith("_")]
                if private or "._" in node.module:
                    offenders.append(f"{path.name}: {node.module} {private}")
    assert not offenders
