"""What xarray decides by the attributes of a variable and their types: read in its `coding/variables.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.errors import PackingError
from intarsia.packing.numbers import exact, known_type

if TYPE_CHECKING:
    from intarsia.packing.numbers import Number


def _attribute_type(value: Any) -> np.dtype[Any] | None:
    """The type that xarray sees in an attribute; None for arrays and lists, in which it sees objects."""
    if isinstance(value, np.number):
        return value.dtype
    if isinstance(value, np.ndarray | list | tuple):
        return None
    return np.dtype(int) if isinstance(value, int) else np.dtype(float)


def float_type(numbers: np.dtype[Any], scale: Any, offset: Any) -> np.dtype[Any]:
    """The type that xarray computes in, by the types of scale and offset, at least one of which is given."""
    single, double = np.dtype("f4"), np.dtype("f8")
    if offset is not None:
        kinds = {_attribute_type(scale), _attribute_type(offset)}
        short = scale is not None and kinds == {single}
        # single precision has too few digits for 32-bit integers
        return single if short and not (numbers.kind in "iu" and numbers.itemsize == 4) else double
    return _attribute_type(scale) or double  # of objects xarray makes objects, whose values are these


def value_type(numbers: np.dtype[Any], scale: Any, offset: Any, masked: bool) -> np.dtype[Any]:
    """What the values are, as xarray chooses it."""
    if scale is not None or offset is not None:
        kind = float_type(numbers, scale, offset)
        return kind if kind.kind == "f" or not masked else np.dtype("f8")  # here xarray fails: no NaN in them
    if not masked or numbers.kind == "f":
        return numbers
    return np.dtype("f4" if numbers.itemsize <= 2 else "f8")


def factor(given: Any, values: np.dtype[Any], what: str) -> Number | None:
    """A scale or an offset as a number with a type of its own."""
    if given is None:
        return None
    if isinstance(given, np.ndarray) and not given.ndim:
        given = given[()]
    elif isinstance(given, np.ndarray | list | tuple) and np.size(given) == 1:
        given = np.asarray(given).item()
    if not isinstance(given, np.number):
        if type(given) not in (int, float):
            raise PackingError(f"the {what} is {given!r:.200}, which is not a number")
        # NumPy computes with Python's numbers in the type of the array.
        with np.errstate(over="ignore"):
            given = values.type(given) if values.kind == "f" else exact(given, values, f"the {what}")
    factor: Number = given.astype(known_type(given.dtype, f"the type of the {what}"))
    if not np.isfinite(factor):
        raise PackingError(f"the {what} is {given!s}: values cannot be unpacked with it")
    if not np.can_cast(np.result_type(values, factor.dtype), values, "same_kind"):
        raise PackingError(
            f"the {what} is {given!r}, and the values are {values}, which cannot hold the result"
        )
    return factor


def reinterpreted(mark: Any, stored: np.dtype[Any], numbers: np.dtype[Any]) -> Any:
    """`_FillValue` of integers whose sign `_Unsigned` changes: it may be given in either."""
    if np.asarray(mark).dtype.kind not in "iuf":
        return mark
    with np.errstate(invalid="ignore"):
        if numbers.kind == "i":
            return np.asarray(mark).astype(numbers)[()]
        return np.asarray(mark).astype(stored).view(numbers).item()


def found_by(mark: Any, numbers: np.dtype[Any], values: np.dtype[Any]) -> Sequence[Number]:
    """The stored number that xarray takes for a missing value, if there is one.

    xarray compares the converted numbers with the attribute, in the wider of their types. Sometimes nothing
    can be equal: 1e20 of float64 in data of float32.
    """
    if np.asarray(mark).dtype.kind not in "biuf":
        return []  # a text as the missing value of numbers, which is equal to none of them
    wide = values if isinstance(mark, int) else np.result_type(values, mark.dtype)
    with np.errstate(all="ignore"):
        wanted = wide.type(mark)
        value = values.type(wanted)
        if wide.type(value) != wanted:
            return []
        for candidate in (mark, value):
            if numbers.kind == "f":
                number: Number = numbers.type(candidate)
            elif np.isfinite(candidate):
                limits = np.iinfo(numbers)
                number = numbers.type(min(max(int(candidate), limits.min), limits.max))
            else:
                continue
            if values.type(number) == value:
                return [number]
    return []
