"""Coordinates along the dimensions that grow: those of all files, joined into one array in one encoding.

Files may count time from different days or pack their coordinates differently. As long as they agree, stored
numbers are joined as they are; otherwise everything is decoded, and encoded in one way that loses nothing.
Values that no file has are missing.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.archives.cf import PACKING, json_attributes, units_of, unpacked_values
from intarsia.archives.parsed_file import ParsedFile, ParsedVariable, is_grid_mapping
from intarsia.errors import IngestError, argument
from intarsia.extras import import_extra

if TYPE_CHECKING:
    from intarsia.archives.dataset import Dataset
    from intarsia.archives.plan.axis_union import GrownAxis
    from intarsia.archives.plan.cube import FilePosition

DATASET = "the dataset"
"""The name of the dataset where it stands in for a file."""

MEANING = (*PACKING, "units", "calendar")
"""Attributes that say what stored numbers mean: if they are equal, the numbers are comparable."""

STANDARD = "standard"
SAME_CALENDARS = {"gregorian": STANDARD, "365_day": "noleap", "366_day": "all_leap"}
"""Calendars with two names in CF."""

MODERN = frozenset((STANDARD, "proleptic_gregorian"))
"""Calendars that agree on every day since the reform of the calendar."""

REFORM = np.datetime64("1582-10-15", "s")


@dataclass(frozen=True, slots=True)
class ConcatCoordinate:
    """One coordinate over all files, in one encoding."""

    dims: tuple[str, ...]
    attrs: dict[str, Any]
    before: np.ndarray[Any, Any] | None
    """What the dataset already holds, in this encoding."""

    parts: tuple[np.ndarray[Any, Any], ...]
    """The values of each file."""

    rewritten: bool
    """Whether what the dataset holds has to be rewritten."""


def _meaning(attrs: Mapping[str, Any]) -> dict[str, Any]:
    meaning = json_attributes({key: attrs[key] for key in MEANING if key in attrs})  # there NaN equals NaN
    return meaning | ({"calendar": calendar_of(attrs)} if has_time_units(attrs) else {})


def has_time_units(attrs: Mapping[str, Any]) -> bool:
    """Whether the units are those of time."""
    return " since " in units_of(attrs)


def concat_values(
    name: str,
    variables: Sequence[ParsedVariable],
    before: tuple[np.ndarray[Any, Any], dict[str, Any]] | None = None,
) -> ConcatCoordinate:
    """The values of one coordinate in every file, comparable with each other and with the existing ones.

    One day after 1 June and 36 hours after 2 June become 24 and 60 hours after 1 June.
    """
    in_files = [(variable.loaded, variable.attrs) for variable in variables]
    numbers, meanings = zip(*(in_files if before is None else [before, *in_files]), strict=True)
    attrs, (first, *others) = dict(meanings[0]), map(_meaning, meanings)
    if all(other == first for other in others) or any(part.dtype.kind not in "biuf" for part in numbers):
        try:
            dtype = np.result_type(*numbers)
        except TypeError:
            kinds = sorted({type_text(part.dtype) for part in numbers})
            raise IngestError(
                f"the coordinate {name!r} has the types {quoted(kinds)}: text cannot be mixed with numbers"
            ) from None
        parts = [part.astype(dtype, copy=False) for part in numbers]
    else:
        parts, attrs = _encode_alike(name, numbers, meanings)
    if before is None:
        return ConcatCoordinate(variables[0].dims, attrs, None, tuple(parts), rewritten=False)
    rewritten = not same_values(parts[0], before[0]) or _meaning(attrs) != first
    return ConcatCoordinate(variables[0].dims, attrs, parts[0], tuple(parts[1:]), rewritten)


def same_values(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Whether two arrays hold the same values, where NaN equals NaN."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind in "fcmM"))


def _encode_alike(
    name: str, numbers: Sequence[np.ndarray[Any, Any]], meanings: Sequence[Mapping[str, Any]]
) -> tuple[list[np.ndarray[Any, Any]], dict[str, Any]]:
    """Numbers with different meanings, in one encoding: that of the first, or a finer one."""
    plain = {key: value for key, value in meanings[0].items() if key not in PACKING}
    unpacked = [unpacked_values(part, meaning) for part, meaning in zip(numbers, meanings, strict=True)]
    units = [units_of(meaning) for meaning in meanings]
    if not all(map(has_time_units, meanings)):
        if len(set(units)) > 1:
            a, b = sorted(set(units))[:2]
            raise IngestError(f"the coordinate {name!r} has the units {a!r} in one file and {b!r} in another")
        dtype = np.result_type(*unpacked)
        return [part.astype(dtype, copy=False) for part in unpacked], plain
    calendars = sorted({calendar_of(meaning) for meaning in meanings})
    mixture = f"the coordinate {name!r} uses the calendars {quoted(calendars)}: a dataset has one calendar"
    if not are_comparable(calendars):
        raise IngestError(mixture)
    xr = import_extra("xarray", "xarray")
    coder = xr.coders.CFDatetimeCoder()
    calendar = calendar_of(meanings[0])
    flat = [
        xr.Variable(("n",), part.reshape(-1), {"units": unit, "calendar": calendar_of(meaning)})
        for part, unit, meaning in zip(unpacked, units, meanings, strict=True)
    ]
    try:
        times = [np.asarray(coder.decode(variable).values) for variable in flat]
    except Exception as error:
        raise IngestError(
            f"the coordinate {name!r} has the units {quoted(sorted(set(units)))}, which cannot be compared: "
            f"{str(error).split('. Try ')[0]}"
        ) from error
    everything = np.concatenate(times)
    if len(calendars) > 1 and (
        everything.dtype.kind != "M" or bool((everything.astype("M8[s]") < REFORM).any())
    ):
        raise IngestError(f"{mixture}, and these two differ before {REFORM.astype('M8[D]')}")
    encoding = {"units": units[0], "calendar": calendar, "dtype": np.dtype("i8")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that xarray takes a finer unit, which holds them exactly
        encoded = coder.encode(xr.Variable(("n",), everything, {}, encoding))
    if not bool((coder.decode(encoded).values == everything).all()):
        raise IngestError(
            f"the values of {name!r} cannot be concatenated: no unit like {units[0]!r} holds them all "
            f"exactly, or some are missing ({argument('coordinate')} says where files belong)"
        )
    cuts = np.cumsum([len(part) for part in times])[:-1]
    cut = zip(np.split(encoded.values, cuts), unpacked, strict=True)
    said = {"calendar": calendar} if "calendar" in plain or calendar != STANDARD else {}
    return [part.reshape(own.shape) for part, own in cut], plain | {"units": encoded.attrs["units"]} | said


def type_text(dtype: np.dtype[Any]) -> str:
    """The name of a data type in a message."""
    return "text" if dtype.kind == "T" else str(dtype)


def quoted(names: Iterable[str]) -> str:
    """Names in a message.

    >>> quoted(["y", "x"])
    "'y' and 'x'"
    """
    return " and ".join(map(repr, names))


def calendar_of(meaning: Mapping[str, Any]) -> str:
    """The calendar that attributes name, always under one name if CF has two."""
    name = str(meaning.get("calendar", STANDARD)).lower()
    return SAME_CALENDARS.get(name, name)


def are_comparable(calendars: Iterable[str]) -> bool:
    """Whether times in these calendars are comparable: they are one calendar, or agree since the reform.

    >>> are_comparable(["standard", "proleptic_gregorian"]), are_comparable(["standard", "noleap"])
    (True, False)
    """
    named = set(calendars)
    return len(named) == 1 or named <= MODERN


def labels(values: np.ndarray[Any, Any], attrs: Mapping[str, Any]) -> list[str]:
    """Coordinate values as people write them: times as dates."""
    if not has_time_units(attrs) or values.dtype.kind not in "iuf":
        return [str(value) for value in values.tolist()]
    xr = import_extra("xarray", "xarray")
    meaning = {key: attrs[key] for key in ("units", "calendar") if key in attrs}
    variable = xr.Variable(("n",), unpacked_values(values, attrs), meaning)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about fractions and distant dates: these are only labels
            times = xr.coders.CFDatetimeCoder(time_unit="us").decode(variable).values
    except Exception:  # whatever the decoder raises for invalid units: the numbers will do
        return [str(value) for value in values.tolist()]
    texts = [str(time).replace("T", " ").split(".")[0] for time in times]
    return [text.removesuffix(" 00:00:00") for text in texts]


@dataclass(frozen=True, slots=True)
class PlainArray:
    """A coordinate, or another loaded variable, after the commit."""

    dims: tuple[str, ...]
    attrs: dict[str, Any]
    values: np.ndarray[Any, Any]

    axis: int | None = None
    """The axis that grows, or the first of several; None if no axis grows."""

    unchanged_steps: int | None = None
    """How many steps along it need not be rewritten; None if all must be."""


def assemble_coordinate(
    coordinate: ConcatCoordinate, axes: Mapping[str, GrownAxis], having: Sequence[FilePosition]
) -> tuple[PlainArray, str]:
    """The values of a coordinate over the files that have it; and what is wrong if they disagree.

    What no file has is missing.
    """
    dims, before, attrs = coordinate.dims, coordinate.before, dict(coordinate.attrs)
    named = zip(having, coordinate.parts, strict=True)
    pieces = [(each.file.url, part, each.positions) for each, part in named]
    if before is not None:
        pieces.insert(0, (DATASET, before, tuple(axis.existing_positions for axis in axes.values())))
    sample = pieces[0][1]
    lengths = {dim: axis.length - axis.origin for dim, axis in axes.items()}
    values = np.zeros([lengths.get(dim, n) for dim, n in zip(dims, sample.shape, strict=True)], sample.dtype)
    filled, problem = np.zeros(values.shape, dtype=bool), ""
    for source, part, positions in pieces:
        if any(part.shape[d] != values.shape[d] for d, dim in enumerate(dims) if dim not in axes):
            problem = f"{source} has it in another shape"
            continue
        steps, places = [], dict(zip(axes, positions, strict=True))
        for dim, n in zip(dims, part.shape, strict=True):
            steps.append(places[dim][:n] - axes[dim].origin if dim in axes else np.arange(n))
        stays = [each >= 0 for each in steps]
        where = np.ix_(*(each[some] for each, some in zip(steps, stays, strict=True)))
        there, part = filled[where], part[np.ix_(*stays)]
        if there.any():
            if not same_values(values[where][there], part[there]):
                problem = f"files in the same place differ in it (such as {source})"
            part = np.where(there, values[where], part)
        values[where], filled[where] = part, True
    if not filled.all() and not isinstance(values.dtype, np.dtypes.StringDType):
        if "_FillValue" not in attrs and values.dtype.kind in "biu":  # as in xarray
            values = values.astype(np.float64)
        values[~filled] = attrs.get("_FillValue", np.nan)
    growing = [d for d, dim in enumerate(dims) if dim in axes]
    axis = axes[dims[growing[0]]]
    stays_same = before is not None and before.dtype == values.dtype and not coordinate.rewritten
    unchanged = len(axis.existing_positions) if stays_same and len(growing) == 1 and axis.appends else None
    return PlainArray(dims, attrs, values, growing[0], unchanged), problem


def expand_scalars(
    files: Sequence[ParsedFile], dataset: Dataset, dims: tuple[str, ...], dropped: dict[str, str]
) -> None:
    """Turn scalars that differ between files into coordinates with a value for every step, as xarray does.

    With several dimensions, it is unknown which one a scalar belongs to: then it is left out.
    """
    if len(dims) != 1:
        return
    (dim,) = dims
    grown = (name for name in dataset.plain if name != dim and dataset.dims(name) == (dim,))
    for name in {*dropped, *grown}:
        for file in files:
            variable = file.variables.get(name)
            if variable is None or variable.role != "static" or variable.dims:
                continue
            # the value of a grid mapping means nothing
            if variable.dtype.kind in "iufT" and not is_grid_mapping(variable.attrs):
                steps = file.steps(dim)
                variable.role, variable.dims, variable.shape = "concat", (dim,), (steps,)
                variable.values = np.repeat(variable.loaded.reshape(1), steps)
                dropped.pop(name, None)
