"""Attributes, and positions on an axis (by the coordinate array that has the axis' name), in words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr

from intarsia.display import plain
from intarsia.engine.reader import Reader
from intarsia.extras import import_extra
from intarsia.inspect.sample import FAILURES, split_nulls
from intarsia.interop.node_copies import open_source
from intarsia.logical.logical_array import LogicalArray

LONGEST = 80
"""The most characters of a label."""

MAX_ATTRIBUTES = 100
"""The most attributes that are listed."""


def open_any_array(store: Any, path: str) -> Reader | LogicalArray:
    """The array at a path, logical or plain; `FileNotFoundError` if there is none.

    >>> import intarsia
    >>> store = {}
    >>> _ = intarsia.create(store, "a", shape=(4,), chunks=(2,), dtype="f4")
    >>> type(open_any_array(store, "a")).__name__
    'LogicalArray'
    """
    node = open_source(store, path)
    if isinstance(node, zarr.Group):
        raise FileNotFoundError(f"{path or '/'} is a group")
    return node


@dataclass(frozen=True, eq=False)
class AxisLabels:
    """The coordinate of an axis.

    >>> import zarr
    >>> store = zarr.storage.MemoryStore()
    >>> time = zarr.create_array(store, name="time", data=np.array([0, 36]), attributes={
    ...     "units": "hours since 2020-01-01"})
    >>> AxisLabels.beside(store, "temperature", "time", 2).at([0, 1])
    ['2020-01-01', '2020-01-02 12:00']
    """

    coordinate: Reader | LogicalArray
    """The array: one-dimensional, and as long as the axis."""

    @classmethod
    def beside(cls, store: Any, path: str, name: str | None, size: int) -> AxisLabels | None:
        """The coordinate of an axis of the array at `path`; None if there is none."""
        if not name or "/" in name or name in (".", "..") or name.startswith("__"):
            return None
        parent = path.rpartition("/")[0]
        try:
            coordinate = open_any_array(store, f"{parent}/{name}".strip("/"))
        except FAILURES:  # nothing there, or nothing that can be opened
            return None
        return cls(coordinate) if tuple(coordinate.shape) == (size,) else None

    @property
    def units(self) -> str:
        """The unit of its numbers; empty if it has none, and if labels are dates."""
        units = self.coordinate.attrs.get("units")
        return plain(units, LONGEST) if isinstance(units, str) and not _since(units) else ""

    @property
    def are_dates(self) -> bool:
        """Whether its labels are dates."""
        if not _since(self.coordinate.attrs.get("units")):
            return self.coordinate.dtype.kind == "M"
        first = np.zeros(1, dtype=self.coordinate.dtype)
        return bool(_decoded(first, dict(self.coordinate.attrs)).dtype.kind == "M")

    def at(self, places: Sequence[int]) -> list[str]:
        """Labels for positions on the axis."""
        values = self.coordinate.oindex[np.array(places, dtype=np.int64)]
        return texts_of(values, dict(self.coordinate.attrs))


def texts_of(values: Any, attributes: dict[str, Any]) -> list[str]:
    """Values in words; numbers of days since a date, as in CF, become dates.

    >>> texts_of(np.array([1, 2]), {"units": "days since 2000-01-01"})
    ['2000-01-02', '2000-01-03']
    >>> texts_of(np.array([0.1], dtype="f4"), {}), texts_of(np.ma.masked_array([1], [True]), {})
    (['0.1'], ['null'])
    """
    values, null = split_nulls(values)
    values = _decoded(np.atleast_1d(values), attributes)
    if values.dtype.kind == "M":
        texts = np.datetime_as_string(values, unit="auto").tolist()
        words = [text if text == "NaT" else text.replace("T", " ") for text in texts]
    else:
        words = [_text(value) for value in values]
    return ["null" if no else word for no, word in zip(np.atleast_1d(null).tolist(), words, strict=True)]


def attribute_texts(attributes: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The first attributes by name, as JSON.

    >>> attribute_texts({"units": "K", "levels": [1, 2]})
    [('levels', '[1, 2]'), ('units', '"K"')]
    """
    names = sorted(attributes)[:MAX_ATTRIBUTES]
    return [(name, json.dumps(attributes[name], ensure_ascii=False, default=str)) for name in names]


def _since(units: object) -> bool:
    """Whether numbers in these units are times."""
    return isinstance(units, str) and " since " in units


def _decoded(values: Any, attributes: dict[str, Any]) -> Any:
    """What packed coordinates and times mean, by xarray; without it, the numbers."""
    if not (_since(attributes.get("units")) or {"scale_factor", "add_offset"} & attributes.keys()):
        return values
    try:
        xr = import_extra("xarray", "xarray")
        variable = xr.Variable(("x",), values, attributes)
        return xr.conventions.decode_cf_variable("x", variable, decode_timedelta=False).values
    except FAILURES:  # attributes may say anything
        return values


def _text(value: Any) -> str:
    if isinstance(value, np.floating):
        digits = 7 if value.itemsize <= 4 else 12
        return f"{float(value):.{digits}g}"
    return plain(value, LONGEST)
