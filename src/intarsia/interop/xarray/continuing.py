"""Whether a variable can go on where the stored one ends: dimensions, type and CF encoding."""

from __future__ import annotations

from typing import Any

import numpy as np
from xarray import Variable, conventions

from intarsia.errors import DataTypeError, ShapeError

__all__ = ["check_encoding", "check_type", "fitting"]

CF_ENCODING = ("units", "calendar", "scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned")
"""Attributes that say how stored numbers are meant."""


def fitting(name: str, variable: Variable, stored: Variable, dim: str) -> Variable:
    """The variable with its dimensions in the stored order; refused if it cannot go after the stored one."""
    if set(variable.dims) != set(stored.dims):
        raise ShapeError(
            f"the variable {name!r} has the dimensions {variable.dims}, but the stored one {stored.dims}"
        )
    fitting = variable.transpose(*stored.dims)
    for other in stored.dims:
        if other != dim and fitting.sizes[other] != stored.sizes[other]:
            raise ShapeError(
                f"the variable {name!r} has {fitting.sizes[other]} elements on {other!r}, "
                f"but the stored one has {stored.sizes[other]}"
            )
    return fitting


def check_type(name: str, variable: Variable, stored: Variable) -> None:
    """Refuse what the stored type would round: xarray warns and does it."""
    numbers = variable.dtype.kind in "biufc" and stored.dtype.kind in "biufc"
    if numbers and not np.can_cast(variable.dtype, stored.dtype, "same_kind"):
        raise DataTypeError(
            f"the variable {name!r} is {variable.dtype}, but the stored one is {stored.dtype}, "
            "which cannot hold them all"
        )


def check_encoding(name: str, encoded: Variable, stored: Variable) -> None:
    """Refuse what could only be stored otherwise than what is there: xarray would take other units for it."""
    for key in CF_ENCODING:
        asked, there = encoded.attrs.get(key), stored.attrs.get(key)
        if asked == there or (_is_nan(asked) and _is_nan(there)):
            continue
        if key in ("units", "calendar") and _mean_the_same(name, encoded, stored):
            continue
        raise ValueError(
            f"the variable {name!r} can only be stored with {key} = {asked!r}, but what is stored has "
            f"{key} = {there!r}.\n"
            f"  Write a new array with an encoding that suits both: encoding={{{name!r}: {{{key!r}: …}}}}"
        )


def _mean_the_same(name: str, encoded: Variable, stored: Variable) -> bool:
    """Whether numbers mean the same times, however their units are written: two of them tell."""
    times = [
        conventions.decode_cf_variable(name, Variable("p", np.arange(2, dtype=encoded.dtype), variable.attrs))
        for variable in (encoded, stored)
    ]
    return bool(times[0].equals(times[1]))


def _is_nan(value: Any) -> bool:
    return isinstance(value, float | np.floating) and bool(np.isnan(value))
