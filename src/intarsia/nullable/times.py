"""Dates and durations for libraries that know four units and have no NaT beside null."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.errors import DataTypeError, NullsPresentError

if TYPE_CHECKING:
    from intarsia.nullable.values import NullableValues

__all__ = ["UNITS", "in_common_unit", "without_nat"]

UNITS = ("s", "ms", "us", "ns")
"""The units that pandas and Arrow have."""

_COARSER = ("W", "D", "h", "m")


def in_common_unit(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """`values` in one of `UNITS`, unchanged in meaning; a unit that none of them can express is refused.

    >>> in_common_unit(np.array(["2020-01-02"], dtype="M8[D]"))
    array(['2020-01-02T00:00:00'], dtype='datetime64[s]')
    """
    unit, count = np.datetime_data(values.dtype)
    if unit in UNITS and count == 1 and values.dtype.isnative:
        return values
    kind = values.dtype.kind
    if unit in UNITS:
        target = unit
    elif unit in _COARSER or (kind == "M" and unit in "YM"):
        target = "s"
    else:
        raise DataTypeError(
            f"{values.dtype} has no equal in Arrow or pandas, which count in {', '.join(UNITS)}: "
            "convert it with astype first"
        )
    converted = values.astype(f"{kind}8[{target}]")
    if not np.array_equal(np.isnat(values), np.isnat(converted)) or not np.array_equal(
        values[~np.isnat(values)], converted[~np.isnat(converted)]
    ):
        raise DataTypeError(f"a value of {values.dtype} is beyond the range of {converted.dtype}")
    return converted


def without_nat(nullable: NullableValues, *, nat_as_null: bool, where: str) -> NullableValues:
    """`nullable` with no NaT among its present values: those are refused, or made null.

    >>> from intarsia.nullable import NullableValues
    >>> x = NullableValues(np.array(["2020-01-01", "NaT"], dtype="M8[s]"))
    >>> without_nat(x, nat_as_null=True, where="Arrow").is_null()
    array([False,  True])
    """
    from intarsia.nullable.values import NullableValues  # the other way round at import time

    if nullable.values.dtype.kind not in "mM":
        return nullable
    nat = np.isnat(nullable.values) & ~nullable.is_null()
    count = int(np.count_nonzero(nat))
    if not count:
        return nullable
    if not nat_as_null:
        raise NullsPresentError(
            f"{count} of {nullable.size} elements are NaT and not null, and {where} cannot tell the two "
            "apart: pass nat_as_null=True to make them null"
        )
    return NullableValues(nullable.values, nullable.is_null() | nat)
