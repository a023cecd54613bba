"""Units that differ by a factor and an offset: as udunits converts them, by way of cf-units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.archives.cf import PACKING, packing_of
from intarsia.archives.coordinates import counts_time
from intarsia.errors import IngestError
from intarsia.extras import extra

if TYPE_CHECKING:
    from intarsia.archives.parsed import ParsedFile, ParsedVariable

FAR = 2.0**200
"""A number beside which no offset of units counts, and which divides exactly: it shows the factor alone."""

PROBES = (-40.0, 0.5, 300.0, 1e6)
"""Numbers at which a conversion has to be a factor and an offset."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """What numbers in other units are multiplied by, and what is added then."""

    factor: float
    offset: float

    @property
    def changes(self) -> bool:
        """Whether numbers are others afterwards."""
        return self.factor != 1 or self.offset != 0

    def of(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Values in the other units: computed in float64, and rounded once to the type that they have.

        >>> Conversion(1000.0, 0.0).of(np.array([0.5, 2], "f4"))
        array([ 500., 2000.], dtype=float32)
        """
        kind = values.dtype if values.dtype.kind == "f" else np.dtype("f8")
        return (values.astype("f8") * self.factor + self.offset).astype(kind)


@lru_cache
def conversion(own: str, wanted: str) -> Conversion:
    """How numbers of one unit become those of another.

    >>> conversion("degC", "K")
    Conversion(factor=1.0, offset=273.15)
    >>> conversion("K", "m")
    Traceback (most recent call last):
    ...
    intarsia.errors.IngestError: 'K' cannot be converted to 'm'
    """
    if own == wanted:
        return Conversion(1.0, 0.0)
    known = extra("cf_units", "units")
    if counts_time({"units": own}) or counts_time({"units": wanted}):
        raise IngestError(f"times are converted as coordinates only, not {own!r} to {wanted!r}")
    units = []
    for text in (own, wanted):
        try:
            units.append(known.Unit(text))
        except ValueError:
            raise IngestError(f"{text!r} is not a unit that udunits knows") from None
    if any(unit.is_unknown() or unit.is_no_unit() for unit in units):
        raise IngestError(f"{own!r} cannot be converted to {wanted!r}: one of them is no unit at all")
    if not units[0].is_convertible(units[1]):
        raise IngestError(f"{own!r} cannot be converted to {wanted!r}")
    convert = units[0].convert
    found = Conversion(convert(FAR, units[1]) / FAR, convert(0.0, units[1]))
    straight = (np.isclose(convert(x, units[1]), found.factor * x + found.offset) for x in PROBES)
    if not np.isfinite([found.factor, found.offset]).all() or not all(straight):
        raise IngestError(f"{own!r} and {wanted!r} differ by more than a factor and an offset")
    return found


def units_of(attrs: Mapping[str, Any]) -> str:
    """The units that attributes name; empty if they name none."""
    return str(attrs.get("units", ""))


def in_units(variable: ParsedVariable, wanted: str, given: str | None = None) -> ParsedVariable:
    """A variable that was loaded, in other units; `given` are those that it has if it does not say so itself.

    Numbers that mean the same are left alone, packed ones too.
    """
    found = conversion(units_of(variable.attrs) or given or "", wanted)
    attrs = variable.attrs | ({"units": wanted} if "units" in variable.attrs else {})
    if not found.changes:
        return replace(variable, attrs=attrs)
    packing = packing_of(variable.loaded.dtype, variable.attrs)
    values = found.of(variable.loaded if packing is None else packing.decode(variable.loaded))
    plain = {key: value for key, value in attrs.items() if key not in PACKING}
    return replace(variable, attrs=plain, values=values, dtype=values.dtype)


def convert_coordinate(file: ParsedFile, name: str, wanted: str) -> None:
    """Give a coordinate of a file other units, and its bounds with it, which need not name any."""
    variable = file.variables[name]
    own = units_of(variable.attrs)
    bounds = str(variable.attrs.get("bounds", ""))
    file.variables[name] = in_units(variable, wanted)
    if bounds in file.variables and not units_of(file.variables[bounds].attrs):
        file.variables[bounds] = in_units(file.variables[bounds], wanted, own)
