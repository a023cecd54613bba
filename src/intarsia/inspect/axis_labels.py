"""Positions on an axis in words: by the coordinate array beside the array that has the axis' name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from intarsia.display import plain
from intarsia.engine.reader import Reader
from intarsia.inspect.sample import FAILURES, split_nulls
from intarsia.logical.hierarchy import is_any_array, open_node
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.opening import reader

SINCE = re.compile(
    r"\s*(day|hour|minute|second|millisecond|microsecond|hr|min|sec|[dhs])s?\s+since\s+(\d{1,4}-.*)"
)
ZONE = re.compile(r"\s*(Z|UTC|GMT|[+-]00?:?00)$")
"""Ways to say that a time is in UTC."""

SECONDS = {
    "day": 86_400, "d": 86_400, "hour": 3_600, "hr": 3_600, "h": 3_600, "minute": 60, "min": 60,
    "second": 1, "sec": 1, "s": 1, "millisecond": 1e-3, "microsecond": 1e-6,
}  # fmt: skip
CALENDARS = ("standard", "gregorian", "proleptic_gregorian")
"""The calendars in which NumPy counts. In others, a number is shown with its unit."""

MAX_TIME = 1e17
"""In microseconds: three thousand years, beyond which numbers say more than dates."""

LONGEST = 80
"""The most characters of a label."""


def open_any_array(store: Any, path: str) -> Reader | LogicalArray:
    """The array at a path, logical or plain; `FileNotFoundError` if there is none.

    >>> import intarsia
    >>> store = {}
    >>> _ = intarsia.create(store, "a", shape=(4,), chunks=(2,), dtype="f4")
    >>> type(open_any_array(store, "a")).__name__
    'LogicalArray'
    """
    node = open_node(store, path)
    if not is_any_array(node):
        raise FileNotFoundError(f"{path or '/'} is a group")
    array = reader(node)
    assert not isinstance(array, dict)
    return array


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
        return plain(units, LONGEST) if isinstance(units, str) and not SINCE.match(units) else ""

    @property
    def are_dates(self) -> bool:
        """Whether its labels are dates."""
        attributes = dict(self.coordinate.attrs)
        return _dates(np.zeros(1, dtype=self.coordinate.dtype), attributes) is not None

    def at(self, places: Sequence[int]) -> list[str]:
        """Labels for positions on the axis."""
        if not len(places):
            return []
        first, last = min(places), max(places)
        step = max(1, np.gcd.reduce(np.array(places) - first)) if len(places) > 1 else 1
        values = self.coordinate[first : last + 1 : int(step)]
        return texts_of(values[(np.array(places) - first) // step], dict(self.coordinate.attrs))


def texts_of(values: Any, attributes: dict[str, Any]) -> list[str]:
    """Values in words; numbers of days since a date, as in CF, become dates.

    >>> texts_of(np.array([1, 2]), {"units": "days since 2000-01-01"})
    ['2000-01-02', '2000-01-03']
    >>> texts_of(np.array([0.1], dtype="f4"), {}), texts_of(np.ma.masked_array([1], [True]), {})
    (['0.1'], ['null'])
    """
    values, null = split_nulls(values)
    values = np.atleast_1d(_scaled(values, attributes))
    dates = _dates(values, attributes)
    if dates is None:
        words = [_text(value) for value in values]
    else:
        texts = np.datetime_as_string(dates, unit="auto").tolist()
        words = [text if text == "NaT" else text.replace("T", " ") for text in texts]
    return ["null" if no else word for no, word in zip(np.atleast_1d(null).tolist(), words, strict=True)]


def _scaled(values: Any, attributes: dict[str, Any]) -> Any:
    """The meaning of packed coordinates, as xarray writes them."""
    scale, offset = attributes.get("scale_factor"), attributes.get("add_offset")
    if values.dtype.kind not in "iuf" or not all(isinstance(n, int | float | None) for n in (scale, offset)):
        return values
    values = values if scale is None else values * scale
    return values if offset is None else values + offset


def _dates(values: Any, attributes: dict[str, Any]) -> Any:
    if values.dtype.kind == "M":
        return values
    units, calendar = attributes.get("units"), attributes.get("calendar", "standard")
    since = SINCE.match(units) if isinstance(units, str) and values.dtype.kind in "iuf" else None
    if since is None or calendar not in CALENDARS:
        return None
    try:
        start = np.datetime64(ZONE.sub("", since[2].strip()).replace(" ", "T", 1)[:26], "us")
        counts = np.where(np.isfinite(values), values, 0) * (SECONDS[since[1]] * 1e6)
        if np.abs(counts).max(initial=0) > MAX_TIME:
            return None
        dates = start + counts.round().astype(np.int64).astype("m8[us]")
    except (ValueError, OverflowError):
        return None
    return np.where(np.isfinite(values), dates, np.datetime64("NaT", "us"))


def _text(value: Any) -> str:
    if isinstance(value, np.floating):
        digits = 7 if value.itemsize <= 4 else 12
        return f"{float(value):.{digits}g}"
    return plain(value, LONGEST)
