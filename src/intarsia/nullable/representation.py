"""The Python type that an array's selections have: attributes may name it, and readers may override it.

`intarsia_na_object` names what stands for null in NumPy's string arrays; `py_array_representation` names an
array type of some library. Neither changes what is stored.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np

from intarsia.errors import DataTypeError
from intarsia.extras import import_extra
from intarsia.nullable.elements import is_string
from intarsia.nullable.nullable_values import NullableValues

ATTRIBUTE: Final = "intarsia_na_object"
"""The attribute of an array that names the `na_object` for its readers."""

_NONE, _NAN, _NA = "None", "numpy.nan", "pandas.NA"

REPRESENTATION: Final = "py_array_representation"
"""The attribute of an array that names the Python type of its selections, as in the proposal."""

_LIBRARIES = {
    "pandas.Series": "pandas",
    "pandas.DataFrame": "pandas",
    "polars.Series": "polars",
    "pyarrow.Array": "arrow",
}
_ABBREVIATIONS = (("np", "numpy"), ("pd", "pandas"), ("pl", "polars"), ("pa", "pyarrow"))
_STRINGS = re.compile(r"numpy\.typing\.NDArray\[numpy\.dtypes\.StringDType\(na_object=(.*)\)\]")


UNSET: Final = msgspec.UNSET
"""No `na_object` was chosen, so strings are read as masked arrays; None is a valid choice."""


def check_na_object(na_object: Any, dtype: np.dtype[Any]) -> None:
    """Refuse what cannot be distinguished from a string, and values of a `dtype` that are none."""
    if not is_string(dtype):
        raise DataTypeError(f"na_object is for strings; this array holds {dtype}")
    if isinstance(na_object, str):
        raise DataTypeError(
            f"na_object {na_object!r} is a string: NumPy treats such a null as that text, so it would equal "
            "real values.\n  Use None, numpy.nan or pandas.NA"
        )


def na_object_name(na_object: Any) -> str:
    """The name of an `na_object` in the attribute; only three mean the same everywhere."""
    if na_object is None:
        return _NONE
    if isinstance(na_object, float) and np.isnan(na_object):
        return _NAN
    if type(na_object).__module__.startswith("pandas.") and repr(na_object) == "<NA>":
        return _NA
    raise DataTypeError(
        f"na_object {na_object!r} cannot be stored as an attribute: only None, numpy.nan and pandas.NA can. "
        "Choose it when you open the array: open_array(…, na_object=…)"
    )


def _na_object_from_name(name: Any) -> Any:
    """The `na_object` that an attribute names."""
    if name == _NA:
        return import_extra("pandas", "nullable").NA
    known = {_NONE: None, _NAN: np.nan}
    if name not in known:
        raise DataTypeError(
            f"the attribute {ATTRIBUTE!r} is {name!r}, but must be {_NONE!r}, {_NAN!r} or {_NA!r}.\n"
            "  Override it: open_array(…, na_object=…)"
        )
    return known[name]


def read_representation(attributes: Mapping[str, Any], dtype: np.dtype[Any]) -> tuple[str | None, Any]:
    """The library whose arrays the attributes name, and the `na_object` if `dtype` is for strings.

    Unknown names of types are ignored.

    >>> strings = np.dtypes.StringDType()
    >>> read_representation({"py_array_representation": "pd.Series"}, strings)
    ('pandas', UNSET)
    >>> text = "np.typing.NDArray[np.dtypes.StringDType(na_object=np.nan)]"
    >>> read_representation({"py_array_representation": text}, strings)
    (None, nan)
    >>> read_representation({"intarsia_na_object": "None"}, strings)
    (None, None)
    """
    if ATTRIBUTE in attributes and is_string(dtype):
        return None, _na_object_from_name(attributes[ATTRIBUTE])
    name = str(attributes.get(REPRESENTATION))
    for short, module in _ABBREVIATIONS:
        name = re.sub(rf"\b{short}\.", f"{module}.", name)
    match = _STRINGS.fullmatch(name)
    if match and match[1] in (_NONE, _NAN, _NA) and is_string(dtype):
        return None, _na_object_from_name(match[1])
    return _LIBRARIES.get(name), UNSET


def to_strings(data: NullableValues, na_object: Any) -> np.ndarray[Any, Any]:
    """Strings as a plain array of `StringDType(na_object=…)`."""
    out: np.ndarray[Any, Any] = np.empty(data.shape, dtype=np.dtypes.StringDType(na_object=na_object))
    out[...] = data.values
    out[data.isnull()] = na_object
    return out


def from_strings(array: np.ndarray[Any, Any]) -> NullableValues:
    """An array of `StringDType(na_object=…)` as nullable data."""
    dtype: Any = array.dtype
    objects: np.ndarray[Any, Any] = array.astype(object)
    is_na = [element is dtype.na_object for element in objects.flat]
    missing: np.ndarray[Any, Any] = np.array(is_na, dtype=np.bool_).reshape(array.shape)
    objects[missing] = ""
    return NullableValues(objects.astype(np.dtypes.StringDType()), missing)
