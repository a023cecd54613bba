"""What a caller says about files: their dimensions, what determines the place of each, what is stacked."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np

from intarsia.archives.cf import units_of
from intarsia.archives.parsed_file import (
    ParsedFile,
    ParsedVariable,
    ParseRequest,
    roles,
)
from intarsia.archives.plan.coordinates import has_time_units
from intarsia.archives.plan.reconcile import in_units, indices_in_expected, is_longitude
from intarsia.errors import IngestError, argument

if TYPE_CHECKING:
    from intarsia.archives.dataset import Dataset
    from intarsia.archives.source_files import Sources

type CoordinateSource = Callable[[ParsedFile], Any]
"""Returns the coordinate of a file along a dimension that its axes lack."""


@dataclass(frozen=True, slots=True)
class from_name:  # noqa: N801 - it is called like a function, and travels between processes as data
    r"""The coordinate of a file, taken from its name: the first group of a pattern, or the whole match.

    Whole numbers and decimals become numbers; `date` gives the format of a date; everything else is text.

    >>> from intarsia.archives.parsed_file import ParsedFile
    >>> file = ParsedFile("s3://bucket/tas_r3_20020601.nc", None, "hdf5", {})
    >>> from_name(r"_r(\d+)_")(file), from_name(r"\d{8}", date="%Y%m%d")(file)
    (3, np.datetime64('2002-06-01T00:00:00.000000'))
    """

    pattern: str
    """A regular expression that is searched for in the name without its directories."""

    date: str | None = None
    """The format of a date, as in `datetime.strptime`."""

    def __call__(self, file: ParsedFile) -> Any:
        name = unquote(file.url.rstrip("/").rsplit("/", 1)[-1])
        found = re.search(self.pattern, name)
        if found is None:
            raise ValueError(f"its name does not match {self.pattern!r}")
        text = found.group(1) if found.re.groups else found.group()
        if self.date is not None:
            return np.datetime64(datetime.strptime(text, self.date))
        return number_or_text(text)


@dataclass(frozen=True, slots=True)
class from_attribute:  # noqa: N801 - as above
    """The coordinate of a file, from an attribute of the file.

    >>> from intarsia.archives.parsed_file import ParsedFile
    >>> from_attribute("realization")(ParsedFile("file:///a.nc", None, "hdf5", {}, {"realization": "7"}))
    7
    """

    name: str
    """The name of the attribute."""

    def __call__(self, file: ParsedFile) -> Any:
        if self.name not in file.attrs:
            raise ValueError(f"it has no attribute {self.name!r}")
        value = file.attrs[self.name]
        return number_or_text(value) if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class from_variable:  # noqa: N801 - as above
    """The coordinate of a file, from another variable: a scalar, or one along the dimension.

    >>> from intarsia.archives.parsed_file import ParsedFile, ParsedVariable
    >>> step = ParsedVariable("kt", "static", (), (), {}, np.dtype("i4"), values=np.array(480))
    >>> from_variable("kt")(ParsedFile("file:///a.nc", None, "hdf5", {"kt": step})).loaded
    array(480)
    """

    name: str
    """The name of the variable in the dataset."""

    def __call__(self, file: ParsedFile) -> Any:
        variable = file.variables.get(self.name)
        if variable is None or variable.values is None:
            why = file.left_out.get(self.name)
            raise ValueError(f"it has no variable {self.name!r}" + (f" ({why})" if why else ""))
        if variable.values.ndim > 1:
            raise ValueError(f"{self.name!r} has {variable.values.ndim} axes")
        return variable


NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
"""How people write numbers; Python takes more for one, such as 2002_06 and nan."""


def number_or_text(text: str) -> int | float | str:
    """The number that a text means, or else the text.

    >>> number_or_text("2"), number_or_text("0.5"), number_or_text("C01"), number_or_text("2002_06")
    (2, 0.5, 'C01', '2002_06')
    """
    if NUMBER.fullmatch(text) is None:
        return text
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def names_in(names: str | os.PathLike[str] | Iterable[Any]) -> tuple[Any, ...]:
    """Names that a caller gave: one, or several.

    >>> names_in("sst"), names_in(["sst", "ice"])
    (('sst',), ('sst', 'ice'))
    """
    return (names,) if isinstance(names, str | os.PathLike) else tuple(names)


def check_concat_dims(
    concat_dim: str | Sequence[str] | None,
    combine: str | None,
    coordinate_sources: Mapping[str, CoordinateSource],
) -> tuple[str, ...]:
    """The dimensions that were named; none if the files' coordinates determine them."""
    if concat_dim is None and combine == "by_coords":
        return ()
    named = names_in(concat_dim or ())
    dims = named + tuple(dim for dim in coordinate_sources if dim not in named)
    if not dims or len(set(dims)) < len(dims) or not all(isinstance(dim, str) and dim for dim in dims):
        raise IngestError(
            f"{argument('concat_dim', concat_dim)}: name one dimension or several different ones; "
            "combine='by_coords' finds those whose coordinates differ between files"
        )
    return dims


def find_coordinate_sources(
    dims: Mapping[str, CoordinateSource] | None,
    order_by: str | None,
    coordinate: Callable[[str], Any] | None,
    concat_dims: tuple[str, ...],
) -> tuple[dict[str, CoordinateSource], list[str]]:
    """Where coordinates come from that are not those of the files; and the variables needed for that."""
    sources = dict(dims or {})
    for option, source in (
        ("order_by", None if order_by is None else from_variable(order_by)),
        ("coordinate", None if coordinate is None else lambda file: coordinate(file.url)),
    ):
        if source is None:
            continue
        if len(concat_dims) != 1 or concat_dims[0] in sources:
            raise IngestError(
                f"{argument(option)} is for one dimension that nothing else describes: "
                f"{argument('dims', {'name': ...})} says which"
            )
        sources[concat_dims[0]] = source
    return sources, [each.name for each in sources.values() if isinstance(each, from_variable)]


def check_dtypes(dtypes: Mapping[str, Any] | None) -> dict[str, np.dtype[Any]]:
    """The requested data types, by variable."""
    try:
        return {name: np.dtype(dtype) for name, dtype in dict(dtypes or {}).items()}
    except (TypeError, ValueError) as error:
        example = argument("dtype", {"name": "float32"})
        raise IngestError(f"give the types of variables, as in {example}: {error}") from error


def expand_files(named: Sequence[Any], sources: Sources) -> tuple[list[str], dict[str, tuple[int, ...]]]:
    """The URLs of everything that was named; and the place of each file in nested lists."""
    if not any(isinstance(each, list | tuple) for each in named):
        return list(sources.expand(named)), {}
    positions: dict[str, tuple[int, ...]] = {}
    for url, position in _walk_lists(named, sources, ()):
        if url in positions:
            raise IngestError(f"{url} appears twice in the lists")
        positions[url] = position
    return list(positions), positions


def _walk_lists(files: Sequence[Any], sources: Sources, above: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    numbers = count()
    for each in files:
        if isinstance(each, list | tuple):
            yield from _walk_lists(each, sources, (*above, next(numbers)))
        else:
            yield from ((url, (*above, next(numbers))) for url in sources.expand(each))


def find_concat_dims(
    files: Sequence[ParsedFile], tolerance: float | None, convert_units: bool = False
) -> tuple[str, ...]:
    """The dimensions that grow from file to file: those whose coordinates differ between files."""
    seen: dict[str, ParsedVariable] = {}
    dims: dict[str, None] = {}
    axes: dict[str, None] = {}
    for file in files:
        attributes = [variable.attrs for variable in file.variables.values()]
        mentioned = {name for attrs in attributes for name in str(attrs.get("coordinates", "")).split()}
        for name, variable in file.variables.items():
            if variable.role == "data":
                axes |= dict.fromkeys(variable.sizes)
            is_scalar = not variable.dims and (name in mentioned or has_time_units(variable.attrs))
            if variable.values is None or not (is_scalar or variable.dims == (name,)):
                continue
            first = seen.setdefault(name, variable)
            if convert_units:
                with suppress(IngestError):
                    variable = in_units(variable, units_of(first.attrs))
            own, other = (np.atleast_1d(each.loaded) for each in (variable, first))
            circle = is_longitude(name, variable.attrs)
            is_same = units_of(variable.attrs) == units_of(first.attrs)
            if not is_same or indices_in_expected(own, other, tolerance, circle) is None:
                dims[name] = None
    scalars = [name for name in dims if name not in axes]
    return (*scalars, *(dim for dim in axes if dim in dims))


def assign_roles(file: ParsedFile, request: ParseRequest) -> ParsedFile | None:
    """A file that was parsed before we knew which dimensions grow from file to file.

    None if a variable now has to be loaded, so that the file must be parsed again.
    """
    found = roles(file.variables, request)
    variables = {}
    for name, role in found.roles.items():
        variable = file.variables[name]
        if (role == "data") != (variable.values is None):
            return None
        variable.role = role
        variables[name] = variable
    left_out = file.left_out | found.left_out
    return replace(file, variables=variables, left_out=left_out, new_dims=found.new_dims)


@dataclass(frozen=True, eq=False)
class StackedVariables:
    """Several variables that one array is made of.

    >>> StackedVariables.of("CMI", ("band", {7: "CMI_C07", 13: "CMI_C13"})).labels.tolist()
    [7, 13]
    """

    dim: str
    """The new dimension, which comes first."""

    parts: list[str]
    """The variables, one for each step."""

    labels: np.ndarray[Any, Any]
    """The coordinate of the new dimension."""

    @classmethod
    def of(cls, array: str, value: Any) -> StackedVariables:
        """What a caller gave for an array: a dimension and names of variables, or names by coordinate."""
        try:
            dim, parts = value
            names = list(parts.values()) if isinstance(parts, Mapping) else list(parts)
            labels = np.asarray(list(parts))
        except (TypeError, ValueError):
            names, dim, labels = [], "", np.empty(0)
        texts = all(isinstance(each, str) and each for each in (dim, *names))
        if not names or not texts or len(set(names)) < len(names) or labels.dtype.kind not in "iufU":
            raise IngestError(
                f"{argument('stack', {array: value})}: give a dimension and variables, as in "
                "{'CMI': ('band', ['CMI_C01', 'CMI_C02'])} or {'CMI': ('band', {1: 'CMI_C01', 2: 'CMI_C02'})}"
            )
        return cls(dim, names, labels.astype(np.dtypes.StringDType()) if labels.dtype.kind == "U" else labels)

    def check(self, array: str, dataset: Dataset) -> None:
        """Refuse to stack other variables than those that the dataset has in an array."""
        logical, labels = dataset.logical_groups.get(array), self.labels.tolist()
        known = dataset.values(self.dim).tolist() if self.dim in dataset.plain else labels
        first = self.dim if logical is None else (logical.manifest.dimension_names or ("",))[0]
        if known != labels or first != self.dim:
            raise IngestError(
                f"the dataset stacks {known} along {first!r}, and not {labels} along {self.dim!r}"
            )


def check_stacks(stacks: Mapping[str, Any] | None) -> dict[str, StackedVariables]:
    """The stacks that a caller named, by array."""
    checked = {array: StackedVariables.of(array, value) for array, value in (stacks or {}).items()}
    owners: dict[str, str] = {}
    for array, stack in checked.items():
        for part in stack.parts:
            if owners.setdefault(part, array) != array:
                raise IngestError(
                    f"{argument('stack')}: {part!r} appears in both {owners[part]!r} and {array!r}"
                )
    return checked
