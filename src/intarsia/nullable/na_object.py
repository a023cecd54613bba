"""`na_object`: what stands for null in NumPy's string arrays. A choice of the reader, never of the format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from intarsia.errors import DataTypeError, MissingExtraError

if TYPE_CHECKING:
    from intarsia.nullable.values import NullableValues

__all__ = ["ATTRIBUTE", "UNSET", "attribute_of", "check_na_object", "from_attribute", "strings"]

ATTRIBUTE: Final = "na_object"
"""The attribute of an array that names the `na_object` its readers are to use."""

_NONE, _NAN, _NA = "None", "numpy.nan", "pandas.NA"


class Unset:
    """The type of `UNSET`: no `na_object` was chosen; None is one that can be.

    >>> UNSET
    UNSET
    """

    def __repr__(self) -> str:
        return "UNSET"

    def __reduce__(self) -> str:
        return "UNSET"  # there is one, also after a pickle


UNSET: Final = Unset()
"""No `na_object` was chosen, so strings are read as masked arrays."""


def check_na_object(na_object: Any) -> None:
    """Refuse what cannot be told from a string.

    >>> check_na_object("N/A")
    Traceback (most recent call last):
    ...
    intarsia.errors.DataTypeError: na_object 'N/A' is a string: ...
    """
    if isinstance(na_object, str):
        raise DataTypeError(
            f"na_object {na_object!r} is a string: NumPy takes such a null for that text, so it would be a "
            "value again and equal to real ones.\n  Use None, numpy.nan or pandas.NA"
        )


def attribute_of(na_object: Any) -> str:
    """How the attribute names an `na_object`; only these three mean the same everywhere.

    >>> attribute_of(np.nan)
    'numpy.nan'
    """
    check_na_object(na_object)
    if na_object is None:
        return _NONE
    if isinstance(na_object, float) and np.isnan(na_object):
        return _NAN
    if type(na_object).__module__.startswith("pandas.") and repr(na_object) == "<NA>":
        return _NA
    raise DataTypeError(
        f"na_object {na_object!r} cannot be kept as an attribute: only None, numpy.nan and pandas.NA have a "
        "name. Choose it when opening instead: open_array(…, na_object=…)"
    )


def from_attribute(name: Any) -> Any:
    """The `na_object` that an attribute names.

    >>> from_attribute("numpy.nan")
    nan
    """
    if name == _NONE:
        return None
    if name == _NAN:
        return np.nan
    if name == _NA:
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingExtraError("pandas", "nullable") from error
        return pd.NA
    raise DataTypeError(
        f"the attribute {ATTRIBUTE!r} is {name!r}; it may be {_NONE!r}, {_NAN!r} or {_NA!r}.\n"
        "  Override it: open_array(…, na_object=…)"
    )


def strings(data: NullableValues, na_object: Any) -> np.ndarray[Any, Any]:
    """Strings as a plain array of `StringDType(na_object=…)`.

    >>> from intarsia.nullable import NullableValues
    >>> text = np.array(["x", ""], dtype=np.dtypes.StringDType())
    >>> strings(NullableValues(text, np.array([False, True])), None)
    array(['x', None], dtype=StringDType(na_object=None))
    """
    check_na_object(na_object)
    out: np.ndarray[Any, Any] = np.empty(data.shape, dtype=np.dtypes.StringDType(na_object=na_object))
    out[...] = data.values
    out[data.is_null()] = na_object
    return out
