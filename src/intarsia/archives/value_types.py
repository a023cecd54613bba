"""Which types of values go together in one array, and which type holds them all."""

from collections.abc import Iterable
from typing import Any

import numpy as np

NUMBERS = "iuf"
"""Kinds of NumPy data types that become one another."""


def type_problem(
    name: str, values: np.dtype[Any], held: np.dtype[Any] | None, source: str, *, fixed: bool
) -> str:
    """Why values of a type do not go into an array; empty if they do. One that is `fixed` stays as it is.

    >>> type_problem("v", np.dtype("bool"), np.dtype("f4"), "a.nc", fixed=False)
    "'v' has values of type bool, but a.nc has float32, and these do not go together \
(rename={'v': …} makes it another variable)"
    >>> type_problem("v", np.dtype("f8"), np.dtype("f4"), "a.nc", fixed=False)
    ''
    """
    if held is None or values == held:
        return ""
    if values.kind not in NUMBERS or held.kind not in NUMBERS:
        return (
            f"{name!r} has values of type {_text(values)}, but {source} has {_text(held)}, and these do not "
            f"go together (rename={{{name!r}: …}} makes it another variable)"
        )
    if fixed and not np.can_cast(values, held, "safe"):
        return (
            f"{name!r} has values of type {values}, which {held} of {source} cannot hold without loss "
            f"(dtype={{{name!r}: {str(held)!r}}} rounds them)"
        )
    return ""


def widened(dtype: np.dtype[Any], arriving: Iterable[np.dtype[Any]]) -> np.dtype[Any] | None:
    """The type of numbers that holds `dtype` and all `arriving`, as NumPy chooses it, if it is wider.

    >>> widened(np.dtype("f4"), [np.dtype("f8")]), widened(np.dtype("f8"), [np.dtype("f4")])
    (dtype('float64'), None)
    >>> widened(np.dtype("u1"), [np.dtype("i2")]), widened(np.dtype("i4"), [np.dtype("f4")])
    (dtype('int16'), dtype('float64'))
    """
    held = [dtype, *arriving]
    if any(each.kind not in NUMBERS for each in held):
        return None
    common = np.result_type(*held)
    return None if common == dtype else common


def _text(dtype: np.dtype[Any]) -> str:
    return "text" if isinstance(dtype, np.dtypes.StringDType) else str(dtype)
