"""The vectors as a program finds them, and what came of reading one."""

import atexit
import base64
import json
import shutil
import tempfile
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

import numpy as np
from standard.vectors.generate.case import document
from standard.vectors.generate.encode import dtype_of

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Vector:
    """One vector."""

    path: str
    kind: str
    about: str
    refused: dict | None = None
    content: dict = field(default_factory=dict, repr=False, compare=False)
    """What the document of its family holds: `files`, and `expected`."""

    @property
    def family(self):
        return self.path.split("/")[0]

    @cached_property
    def files(self):
        """The files of the Zarr array or group, by their paths."""
        return {name: unpacked(content) for name, content in self.content["files"].items()}

    @property
    def node(self):
        """The Zarr array or group, in a directory that goes with this process."""
        node = _scratch() / self.path / "zarr"
        if not node.exists():
            self.write(node)
        return node

    def write(self, folder):
        """Write the Zarr array or group to a folder."""
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    @cached_property
    def metadata(self):
        return json.loads(self.files["zarr.json"])

    @property
    def expected(self):
        """The values, and the levels at which they are null (0: they are not), or None."""
        data_type, shape, listed = (self.content["expected"][key] for key in ("data_type", "shape", "values"))
        if not isinstance(data_type, dict):
            return np.array(_values(listed, dtype_of(data_type)), dtype_of(data_type)).reshape(shape), None
        while "name" in data_type.get("configuration", {}):
            data_type = data_type["configuration"]
        dtype = np.dtype("U8" if data_type["name"] == "string" else data_type["name"])
        nulls = np.zeros(len(listed), dtype="u1")
        present = np.zeros(len(listed), dtype)
        for i, element in enumerate(listed):
            level = 1
            while isinstance(element, list):
                element, level = element[0], level + 1
            if element is None:
                nulls[i] = level
            else:
                (present[i],) = _values([element], dtype)
        return present.reshape(shape), nulls.reshape(shape)


def _values(listed, dtype):
    """Elements out of JSON; in lists of floats, some are words."""
    return [float(value) for value in listed] if dtype.kind == "f" else listed


def unpacked(content):
    """The bytes of a file that a document holds: metadata as an object, other bytes in base64."""
    if isinstance(content, dict):
        return document(content)
    return base64.b64decode(content if isinstance(content, str) else "".join(content))


@cache
def _scratch():
    folder = tempfile.mkdtemp(prefix="vectors-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@cache
def _by_path():
    found = {}
    for path in sorted(DATA.glob("*.json")):
        stored = json.loads(path.read_text())
        for each in stored["vectors"]:
            name = f"{stored['family']}/{each['name']}"
            found[name] = Vector(name, each["kind"], each["about"], each.get("refused"), each)
    return found


def vectors():
    """All vectors."""
    return list(_by_path().values())


def vector(path):
    """One of them."""
    return _by_path()[path]


def difference(vector, values, nulls):
    """How what was read differs from what is expected, or None. NaN equals NaN, 0.0 is not -0.0."""
    wanted, wanted_nulls = vector.expected
    values = np.asarray(values)
    if values.shape != wanted.shape:
        return f"shape {values.shape}, not {wanted.shape}"
    if wanted.dtype.kind != "U" and values.dtype.newbyteorder("=") != wanted.dtype:
        return f"{values.dtype}, not {wanted.dtype}"
    if wanted_nulls is not None:
        if nulls is None or not np.array_equal(nulls, wanted_nulls):
            return "other nulls"
        values, wanted = values[wanted_nulls == 0], wanted[wanted_nulls == 0]
    same = values == wanted
    if wanted.dtype.kind == "f":
        same = (same & (np.signbit(values) == np.signbit(wanted))) | (np.isnan(values) & np.isnan(wanted))
    return None if np.all(same) else f"{np.size(same) - np.count_nonzero(same)} other values"
