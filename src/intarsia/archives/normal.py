"""Making every file alike: the axis that a single step lacks, its coordinate, the units of bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.archives.parsed import Failure, ParsedFile, ParsedVariable
from intarsia.archives.pieces import with_new_axis

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["normal"]


def normal(
    result: ParsedFile | Failure, dim: str, coordinate: Callable[[str], Any] | None
) -> ParsedFile | Failure:
    """A file that is one step gets the axis that it lacks; and every file its coordinate."""
    if isinstance(result, Failure):
        return result
    _name_units_of_bounds(result)
    if result.new_dim:
        for variable in result.variables.values():
            if variable.role == "data":
                with_new_axis(variable, dim)
            elif variable.role == "joined" and variable.values is not None:
                variable.dims, variable.shape = (dim,), (1,)
                variable.values = variable.values.reshape(1)
    if coordinate is not None and dim not in result.variables:
        try:
            values = np.atleast_1d(np.asarray(coordinate(result.url)))
        except Exception as error:
            return Failure(result.url, f"coordinate() failed for it: {error}")
        result.variables[dim] = _coordinate(dim, values)
    return result


def _coordinate(dim: str, values: np.ndarray[Any, Any]) -> ParsedVariable:
    attrs: dict[str, Any] = {}
    if values.dtype.kind == "M":
        values = values.astype("datetime64[ns]").astype("i8")
        attrs = {"units": "nanoseconds since 1970-01-01", "calendar": "proleptic_gregorian"}
    elif values.dtype.kind in "US":
        values = values.astype(np.dtypes.StringDType())
    return ParsedVariable(dim, "joined", (dim,), values.shape, attrs, values.dtype, values=values)


def _name_units_of_bounds(file: ParsedFile) -> None:
    """Bounds are counted like the coordinate that they belong to, which CF says once."""
    for variable in file.variables.values():
        attrs = variable.attrs
        bounds = file.variables.get(str(attrs.get("bounds", attrs.get("climatology", ""))))
        if bounds is not None and bounds.role == "joined" and " since " in str(attrs.get("units", "")):
            for key in {"units", "calendar"} & attrs.keys():
                bounds.attrs.setdefault(key, attrs[key])
