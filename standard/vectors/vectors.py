"""The vectors as a program finds them, and what came of reading one."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Vector:
    """One vector on disk."""

    path: str
    kind: str
    about: str
    refused: dict | None = None

    @property
    def family(self):
        return self.path.split("/")[0]

    @property
    def folder(self):
        return DATA / self.path

    @property
    def node(self):
        """The Zarr array or group."""
        return self.folder / "zarr"

    @cached_property
    def metadata(self):
        return json.loads((self.node / "zarr.json").read_text())

    @property
    def expected(self):
        """The values, and the levels at which they are null (0: they are not), or None."""
        nulls = self.folder / "nulls.npy"
        return np.load(self.folder / "expected.npy"), np.load(nulls) if nulls.exists() else None


def vectors():
    """All vectors, in their order."""
    return [Vector(**case) for case in json.loads((DATA / "index.json").read_text())["cases"]]


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
