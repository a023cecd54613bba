"""Attributes of source files as JSON holds them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from intarsia.array.attributes import NONFINITE_KEY, RESERVED

__all__ = ["clean"]

FILE_MATTERS = frozenset(
    ("_NCProperties", "_Netcdf4Dimid", "DIMENSION_LIST", "REFERENCE_LIST", "CLASS", "NAME")
)
"""About how a file is laid out, not about the data."""


def clean(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that a Zarr node can hold.

    JSON has no number for NaN and infinity: they become texts, and one more attribute names them.

    >>> clean({"valid_min": np.int16(-2), "flags": np.array([1, 2]), "bad": np.nan, "CLASS": "x"})
    {'valid_min': -2, 'flags': [1, 2], 'bad': 'NaN', 'intarsia_nonfinite': ['bad']}
    """
    taken = {
        str(name): value
        for name, value in attrs.items()
        if name not in FILE_MATTERS and name not in RESERVED and name != NONFINITE_KEY
    }
    cleaned = {name: _json(value) for name, value in taken.items()}
    nonfinite = [name for name, value in taken.items() if _is_nonfinite(value)]
    return cleaned | ({NONFINITE_KEY: nonfinite} if nonfinite else {})


def _is_nonfinite(value: Any) -> bool:
    array = np.asarray(value)
    return array.dtype.kind == "f" and not bool(np.isfinite(array).all())


def _json(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, list | tuple):
        return [_json(each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): _json(each) for key, each in value.items()}
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
