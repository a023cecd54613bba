"""Coordinates along the concatenation dimension: loaded from every file, joined into one plain array.

Files may count time from different days or pack their coordinates differently. As long as they agree, stored
numbers are joined as they are; otherwise everything is decoded, and encoded in one way that loses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.archives.cf import PACKING, Packing
from intarsia.errors import IngestError
from intarsia.extras import extra

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from intarsia.archives.parsed import ParsedVariable

__all__ = ["Joined", "calendar_of", "join", "labels", "same_values"]

MEANING = (*PACKING, "units", "calendar")
"""Attributes that say what stored numbers mean: equal ones, comparable numbers."""

STANDARD = "standard"
SAME_CALENDARS = {"gregorian": STANDARD, "365_day": "noleap", "366_day": "all_leap"}
"""Calendars that CF knows under two names."""

FINER = ("days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds")


@dataclass(frozen=True, slots=True)
class Joined:
    """One coordinate over all files, in one encoding."""

    dims: tuple[str, ...]
    """Names of its axes."""

    attrs: dict[str, Any]
    """Its attributes."""

    before: np.ndarray[Any, Any] | None
    """What the dataset holds already, in this encoding."""

    parts: tuple[np.ndarray[Any, Any], ...]
    """The values of each file."""

    rewritten: bool
    """Whether what the dataset holds has to be written again."""


def _meaning(attrs: Mapping[str, Any]) -> dict[str, str]:
    found = {key: repr(np.asarray(attrs[key]).tolist()) for key in MEANING if key in attrs}  # NaN equals NaN
    if " since " in found.get("units", ""):
        found["calendar"] = calendar_of(attrs)
    return found


def join(
    name: str,
    variables: Sequence[ParsedVariable],
    before: tuple[np.ndarray[Any, Any], dict[str, Any]] | None = None,
) -> Joined:
    """The values of one coordinate in every file, comparable with each other and with what is there.

    >>> from intarsia.archives.parsed import ParsedVariable
    >>> def day(n, units):
    ...     values, attrs = np.array([n]), {"units": units}
    ...     return ParsedVariable("time", "joined", ("time",), (1,), attrs, values.dtype, values=values)
    >>> joined = join("time", [day(1, "days since 2002-06-01"), day(36, "hours since 2002-06-02")])
    >>> [part.tolist() for part in joined.parts], joined.attrs["units"]
    ([[24], [60]], 'hours since 2002-06-01')
    """
    values = [_values(variable) for variable in variables]
    attrs = dict(variables[0].attrs if before is None else before[1])
    same = all(_meaning(variable.attrs) == _meaning(attrs) for variable in variables)
    numbers = [*values] if before is None else [before[0], *values]
    if any(part.dtype.kind not in "biuf" for part in numbers) or same:
        dtype = np.result_type(*numbers)
        parts = [part.astype(dtype, copy=False) for part in numbers]
    else:
        meanings: list[Mapping[str, Any]] = [variable.attrs for variable in variables]
        if before is not None:
            meanings.insert(0, before[1])
        parts, attrs = _encoded_alike(name, numbers, meanings, attrs)
    first = None if before is None else parts[0]
    rewritten = before is not None and not same_values(parts[0], before[0])
    rewritten = rewritten or (before is not None and _meaning(attrs) != _meaning(before[1]))
    return Joined(variables[0].dims, attrs, first, tuple(parts if before is None else parts[1:]), rewritten)


def _values(variable: ParsedVariable) -> np.ndarray[Any, Any]:
    assert variable.values is not None
    return variable.values


def same_values(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Whether two arrays hold the same, NaN being equal to NaN.

    >>> same_values(np.array([1.0, np.nan]), np.array([1.0, np.nan]))
    True
    """
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind in "fcmM"))


def _encoded_alike(
    name: str, numbers: list[np.ndarray[Any, Any]], meanings: list[Mapping[str, Any]], attrs: dict[str, Any]
) -> tuple[list[np.ndarray[Any, Any]], dict[str, Any]]:
    """Numbers that meant different things, in one encoding."""
    plain = {key: value for key, value in attrs.items() if key not in PACKING}
    unpacked = [_unpacked(part, meaning) for part, meaning in zip(numbers, meanings, strict=True)]
    units = [str(meaning.get("units", "")) for meaning in meanings]
    if not all(" since " in unit for unit in units):
        if len(set(units)) > 1:
            a, b = sorted(set(units))[:2]
            raise IngestError(f"the coordinate {name!r} has the units {a!r} in one file and {b!r} in another")
        dtype = np.result_type(*unpacked)
        return [part.astype(dtype, copy=False) for part in unpacked], plain
    calendars = sorted({calendar_of(meaning) for meaning in meanings})
    if len(calendars) > 1:
        raise IngestError(
            f"the coordinate {name!r} counts in the calendars {' and '.join(map(repr, calendars))}: "
            "a dataset has one calendar"
        )
    xr = extra("xarray", "xarray")
    coder = xr.coders.CFDatetimeCoder()
    shapes = [part.shape for part in unpacked]
    times = [
        np.asarray(
            coder.decode(
                xr.Variable(("n",), part.reshape(-1), {"units": unit, "calendar": calendar_of(meaning)})
            ).values
        )
        for part, unit, meaning in zip(unpacked, units, meanings, strict=True)
    ]
    everything = np.concatenate(times)
    calendar = calendar_of(meanings[0])
    step, epoch = units[0].split(" since ", 1)
    for candidate in _finer(step):
        unit = f"{candidate} since {epoch}"
        encoded = _exact(coder, everything, unit, calendar)
        if encoded is not None:
            cuts = np.cumsum([len(part) for part in times])[:-1]
            parts = [p.reshape(s) for p, s in zip(np.split(encoded, cuts), shapes, strict=True)]
            said = {"calendar": calendar} if "calendar" in plain or calendar != STANDARD else {}
            return parts, plain | {"units": unit} | said
    raise IngestError(
        f"the values of {name!r} cannot be joined: no unit since {epoch!r} holds them all exactly"
    )


def calendar_of(meaning: Mapping[str, Any]) -> str:
    """The calendar that attributes name, under one name for each.

    >>> calendar_of({"calendar": "gregorian"}), calendar_of({"calendar": "365_day"})
    ('standard', 'noleap')
    """
    name = str(meaning.get("calendar", STANDARD)).lower()
    return SAME_CALENDARS.get(name, name)


def _finer(step: str) -> list[str]:
    known = step.strip().lower()
    known = known if known.endswith("s") else known + "s"
    start = FINER.index(known) if known in FINER else 0
    return list(FINER[start:])


def _exact(coder: Any, times: np.ndarray[Any, Any], units: str, calendar: str) -> np.ndarray[Any, Any] | None:
    """Times as whole numbers of a unit, or None if they are none."""
    xr = extra("xarray", "xarray")
    variable = xr.Variable(("n",), times, {}, {"units": units, "calendar": calendar, "dtype": np.dtype("f8")})
    encoded = np.asarray(coder.encode(variable).values)
    whole = np.rint(encoded)
    if not bool(np.array_equal(encoded, whole)) or bool((np.abs(whole) >= 2.0**53).any()):
        return None
    attrs = {"units": units, "calendar": calendar}
    back = np.asarray(coder.decode(xr.Variable(("n",), whole.astype("i8"), attrs)).values)
    return whole.astype("i8") if bool((back == times).all()) else None


def _unpacked(values: np.ndarray[Any, Any], attrs: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    packing = Packing.of(values.dtype, attrs)
    if not packing.is_packed:
        return values
    missing = np.isin(values.view(packing.stored), packing.fills)
    decoded = values.view(packing.stored).astype(packing.decoded)
    if packing.scale is not None:
        decoded *= packing.decoded.type(packing.scale)
    if packing.offset is not None:
        decoded += packing.decoded.type(packing.offset)
    decoded[missing] = np.nan
    return decoded


def labels(values: np.ndarray[Any, Any], attrs: Mapping[str, Any]) -> list[str]:
    """Coordinate values as people write them: dates where they are times.

    >>> labels(np.array([0, 1]), {"units": "days since 2002-06-01"})
    ['2002-06-01', '2002-06-02']
    """
    if " since " not in str(attrs.get("units", "")) or values.dtype.kind not in "iuf":
        return [str(value) for value in values.tolist()]
    xr = extra("xarray", "xarray")
    variable = xr.Variable(
        ("n",), _unpacked(values, attrs), {k: attrs[k] for k in ("units", "calendar") if k in attrs}
    )
    times = xr.coders.CFDatetimeCoder().decode(variable).values
    texts = [str(time).replace("T", " ").split(".")[0] for time in times]
    return [text.removesuffix(" 00:00:00") for text in texts]
