"""How files differ from what is expected yet hold the same data: axes, units, types of values.

Axes may be turned, rolled or noisy. Units may differ by a factor and an offset: they are converted as in
udunits, through cf-units. Types of values can share an array if one type holds them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.archives.cf import PACKING, units_of, unpacked_values
from intarsia.archives.plan.axis_union import noise
from intarsia.archives.plan.coordinates import has_time_units, type_text
from intarsia.errors import IngestError, MissingExtraError, argument
from intarsia.extras import import_extra

if TYPE_CHECKING:
    from intarsia.archives.parsed_file import ParsedFile, ParsedVariable
    from intarsia.manifest.region_table import Ints

type Values = np.ndarray[Any, Any]

MAX_SPANS = 64
"""An axis that falls into more parts than this is in no order that anybody intended."""

CIRCLE = 360.0
"""Degrees of longitude after which the same place returns."""

EASTWARD = frozenset(
    ("degrees_east", "degree_east", "degree_e", "degrees_e", "degreee", "degreese")
)  # as listed in CF, in lower case
LONGITUDES = frozenset(("lon", "longitude"))


def is_longitude(name: str, attrs: Mapping[str, Any]) -> bool:
    """Whether 350 and -10 are the same place."""
    return units_of(attrs).lower() in EASTWARD or str(attrs.get("standard_name", name)).lower() in LONGITUDES


def values_are_close(a: Values, b: Values, tolerance: float | None, circle: bool = False) -> bool:
    """Whether two arrays hold the same values up to noise: a few steps of the coarser of their types.

    >>> values_are_close(np.array([0.1], "f4"), np.array([0.1]), None)
    True
    >>> values_are_close(np.array([0.1]), np.array([0.2]), None)
    False
    """
    if a.shape != b.shape:
        return False
    if a.dtype.kind not in "iuf" or b.dtype.kind not in "iuf":
        return bool(np.array_equal(a, b))
    apart = _apart(a, b, circle)
    near = np.full(a.shape, tolerance) if tolerance is not None else _noise(a, b, circle)
    return bool(((apart <= near) | (np.isnan(a) & np.isnan(b))).all())


def _apart(a: Values, b: Values, circle: bool) -> Values:
    apart = np.abs(a.astype(np.float64) - b.astype(np.float64))
    if circle:
        apart = apart % CIRCLE
        apart = np.minimum(apart, CIRCLE - apart)
    return apart


def _noise(a: Values, b: Values, circle: bool) -> Values:
    """How far apart values may be and still count as the same."""
    step = float(np.abs(np.diff(b)).min()) if b.ndim == 1 and len(b) > 1 else 0.0
    sizes = np.maximum(np.abs(a), np.abs(b)).astype(np.float64)
    return noise(sizes, (a.dtype, b.dtype), CIRCLE if circle else step)


def indices_in_expected(
    values: Values, expected: Values, tolerance: float | None, circle: bool = False
) -> Ints | None:
    """The index of each value among the expected ones, if both are the same set; otherwise None.

    >>> indices_in_expected(np.array([30.0, 20.0, 10.0]), np.array([10.0, 20.0, 30.0]), None).tolist()
    [2, 1, 0]
    >>> west, east = np.array([-90.0, 0.0, 90.0]), np.array([0.0, 90.0, 270.0])
    >>> indices_in_expected(west, east, None, circle=True).tolist()
    [2, 0, 1]
    """
    if values.shape != expected.shape or values.ndim != 1:
        return None
    if values_are_close(values, expected, tolerance):
        return np.arange(len(values))
    turned, circle = values, circle and values.dtype.kind in "iuf" and expected.dtype.kind in "iuf"
    if circle:
        turned = (values.astype(np.float64) - float(expected.min())) % CIRCLE
        turned[CIRCLE - turned < CIRCLE * 1e-6] = 0  # just below a full turn, because of noise
    rank, place = (np.argsort(each, kind="stable") for each in (turned, expected))
    if not values_are_close(values[rank], expected[place], tolerance, circle):
        return None
    positions = np.empty(len(values), dtype=np.int64)
    positions[rank] = place
    return positions


def align_axes(
    values: Values, dims: Sequence[str], expected: Sequence[str], positions: Mapping[str, Ints]
) -> Values | None:
    """Values with their axes as expected; None if the axes are different ones.

    >>> align_axes(np.array([[1, 2, 3]]), ("y", "x"), ("x",), {"x": np.array([2, 1, 0])}).tolist()
    [3, 2, 1]
    """
    stored = import_extra("xarray", "xarray").Variable(dims, values)
    extra = [dim for dim in dims if dim not in expected]
    if any(stored.sizes[dim] != 1 for dim in extra):
        return None
    seen = stored.squeeze(extra).set_dims(expected)
    turned = {dim: np.argsort(steps) for dim, steps in positions.items() if seen.sizes.get(dim) == len(steps)}
    return np.asarray(seen.isel(turned).values)


def difference(own: Values, expected: Values) -> str:
    """How values differ, in words, and what would accept them."""
    if own.shape != expected.shape:
        return f"shape {own.shape} instead of {expected.shape}"
    if own.dtype.kind not in "iuf" or expected.dtype.kind not in "iuf" or not own.size:
        return f"{own.dtype} instead of {expected.dtype}" if own.dtype != expected.dtype else "other values"
    apart = np.abs(own.astype(np.float64) - expected.astype(np.float64))
    apart = np.where(np.isnan(apart), np.inf, apart).reshape(-1)
    i = int(np.argmax(apart))
    a, b = own.reshape(-1)[i], expected.reshape(-1)[i]
    steps = np.abs(np.diff(expected)) if expected.ndim == 1 and len(expected) > 1 else np.array([np.inf])
    # in three digits, and not less than the difference
    tolerance = next(t for scale in (1, 1.01) if (t := float(f"{apart[i] * scale:.3g}")) >= apart[i])
    accepted = argument("tolerance", tolerance)
    option = f" ({accepted} accepts it)" if apart[i] < steps.min() / 2 else ""
    return (
        f"values from {own.min():g} to {own.max():g} instead of {expected.min():g} to {expected.max():g}; "
        f"the largest difference is {apart[i]:.3g}, at {i}: {a!s} instead of {b!s}{option}"
    )


FAR = 2.0**200
"""A number so large that no offset of units matters, and that divides exactly: it shows only the factor."""

PROBES = (-40.0, 0.5, 300.0, 1e6)
"""Numbers at which a conversion must agree with a factor and an offset."""

WATER = "1000 kg m-3"
"""What turns the depth of rain or snow, as liquid water, into its mass on an area."""

DEPTHS = ("m", "m s-1")
"""What is converted in this way, and its mass for an area."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """What numbers in other units are multiplied by, and what is then added."""

    factor: float
    offset: float

    @property
    def changes(self) -> bool:
        """Whether it changes numbers."""
        return self.factor != 1 or self.offset != 0

    def of(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Values in the other units: computed in float64, and rounded once to their own type.

        >>> Conversion(1000.0, 0.0).of(np.array([0.5, 2], "f4"))
        array([ 500., 2000.], dtype=float32)
        """
        kind = values.dtype if values.dtype.kind == "f" else np.dtype("f8")
        return (values.astype("f8") * self.factor + self.offset).astype(kind)


@lru_cache
def conversion(own: str, target: str) -> Conversion:
    """How numbers in one unit become numbers in another.

    >>> conversion("degC", "K")
    Conversion(factor=1.0, offset=273.15)
    >>> conversion("K", "m")
    Traceback (most recent call last):
    ...
    intarsia.errors.IngestError: 'K' cannot be converted to 'm'
    >>> conversion("m", "kg m-2")  # rain and snow, as services give them
    Conversion(factor=1000.0, offset=0.0)
    """
    if own == target:
        return Conversion(1.0, 0.0)
    known = import_extra("cf_units", "units")
    if has_time_units({"units": own}) or has_time_units({"units": target}):
        raise IngestError(f"times are converted only as coordinates, not {own!r} to {target!r}")
    units = []
    for text in (own, target):
        try:
            units.append(known.Unit(text))
        except ValueError:
            raise IngestError(f"{text!r} is not a unit that udunits knows") from None
    for depth in () if units[0].is_convertible(units[1]) else DEPTHS:
        units = [unit * known.Unit(WATER) if unit.is_convertible(depth) else unit for unit in units]
    if not units[0].is_convertible(units[1]):
        raise IngestError(f"{own!r} cannot be converted to {target!r}")
    convert = units[0].convert
    found = Conversion(convert(FAR, units[1]) / FAR, convert(0.0, units[1]))
    straight = (np.isclose(convert(x, units[1]), found.factor * x + found.offset) for x in PROBES)
    if not np.isfinite([found.factor, found.offset]).all() or not all(straight):
        raise IngestError(f"{own!r} and {target!r} differ by more than a factor and an offset")
    return found


def conversion_option(own: str, target: str) -> str:
    """The option that converts units, in words; empty if they cannot be converted."""
    try:
        conversion(own, target)
    except IngestError:
        return ""
    except MissingExtraError:  # then the option says what to install
        pass
    return f"{argument('convert_units', True)} converts them"


def in_units(variable: ParsedVariable, target: str, default: str | None = None) -> ParsedVariable:
    """A loaded variable in other units; `default` are its units if it does not name any itself.

    Numbers that mean the same are left alone, including packed ones.
    """
    found = conversion(units_of(variable.attrs) or default or "", target)
    attrs = variable.attrs | ({"units": target} if "units" in variable.attrs else {})
    if not found.changes:
        return replace(variable, attrs=attrs)
    values = found.of(unpacked_values(variable.loaded, variable.attrs))
    plain = {key: value for key, value in attrs.items() if key not in PACKING}
    return replace(variable, attrs=plain, values=values, dtype=values.dtype)


def convert_coordinate(file: ParsedFile, name: str, target: str) -> None:
    """Convert a coordinate of a file to other units, with its bounds, which need not name any."""
    variable = file.variables[name]
    own = units_of(variable.attrs)
    bounds = str(variable.attrs.get("bounds", ""))
    file.variables[name] = in_units(variable, target)
    if bounds in file.variables and not units_of(file.variables[bounds].attrs):
        file.variables[bounds] = in_units(file.variables[bounds], target, own)


NUMBERS = "iuf"
"""Kinds of NumPy data types that can become one another."""


def check_type(
    name: str, values: np.dtype[Any], array_dtype: np.dtype[Any], source: str, *, fixed: bool
) -> None:
    """Refuse values of a type that does not fit into an array. A `fixed` type stays as it is.

    >>> check_type("v", np.dtype("f8"), np.dtype("f4"), "a.nc", fixed=False)
    """
    if values.kind not in NUMBERS or array_dtype.kind not in NUMBERS:
        raise IngestError(
            f"{name!r} has values of type {type_text(values)}, but {source} has {type_text(array_dtype)}, "
            f"which cannot be combined ({argument('preprocess')} may give it another name, and "
            f"{argument('missing', 'fill')} takes files without {name!r})"
        )
    if fixed and not np.can_cast(values, array_dtype, "safe"):
        raise IngestError(
            f"{name!r} has values of type {values}, which {array_dtype} of {source} cannot hold without loss "
            f"({argument('dtype', {name: str(array_dtype)})} rounds them)"
        )


def wider_type(dtype: np.dtype[Any], arriving: Iterable[np.dtype[Any]]) -> np.dtype[Any]:
    """The number type that holds `dtype` and all `arriving`, as NumPy chooses it; other types stay.

    >>> wider_type(np.dtype("f4"), [np.dtype("f8")]), wider_type(np.dtype("f8"), [np.dtype("f4")])
    (dtype('float64'), dtype('float64'))
    >>> wider_type(np.dtype("u1"), [np.dtype("i2")]), wider_type(np.dtype("i4"), [np.dtype("f4")])
    (dtype('int16'), dtype('float64'))
    """
    dtypes = [dtype, *arriving]
    return np.result_type(*dtypes) if all(each.kind in NUMBERS for each in dtypes) else dtype
