"""How nullable data lies in memory, and the NumPy dtype that says so.

zarr hands the dtype of an array, and nothing else, to whoever allocates its memory. So the dtype of
a nullable array is the plain dtype with a note on it: NumPy's dtype metadata, or the `na_object` of a
`StringDType`, which takes no metadata. The note changes nothing about the dtype otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

__all__ = ["MOST_LEVELS", "Layout", "beneath", "is_string", "layout_of", "tagged"]

_KEY = "intarsia.nullable"

MOST_LEVELS = 255
"""Levels of nesting that fit the `missing` byte of an element."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Values of `dtype` beside a `missing` byte each.

    >>> layout_of(tagged(np.dtype("float32"), 2))
    Layout(dtype=dtype('float32'), depth=2)
    """

    dtype: np.dtype[Any]
    """The plain NumPy dtype of the values."""

    depth: int
    """How many levels of null there are; `missing` counts them from the inside."""

    def __bool__(self) -> bool:
        return True


def is_string(dtype: np.dtype[Any]) -> bool:
    """Whether `dtype` is NumPy's variable-width string.

    >>> is_string(np.dtype("float32")), is_string(np.dtypes.StringDType())
    (False, True)
    """
    return isinstance(dtype, np.dtypes.StringDType)


@lru_cache(maxsize=256)
def _tagged(dtype: np.dtype[Any], depth: int, text: str) -> np.dtype[Any]:
    layout = Layout(dtype, depth)
    if is_string(dtype):
        # Without coerce=False a list with None in it would become the string "None".
        return np.dtypes.StringDType(na_object=layout, coerce=False)
    return np.dtype(dtype, metadata={_KEY: layout})


def tagged(dtype: np.dtype[Any], depth: int) -> np.dtype[Any]:
    """`dtype` with the note that it is the value part of nullable data.

    >>> tagged(np.dtype("float32"), 1) == np.dtype("float32")
    True
    """
    # Equal dtypes need not be the same (byte order of one byte, h5py's metadata), hence the text.
    return _tagged(dtype, depth, dtype.str)


def layout_of(dtype: Any) -> Layout | None:
    """The note on `dtype`, or None for a plain dtype.

    >>> layout_of(np.dtype("float32")) is None
    True
    """
    if isinstance(dtype, np.dtype):
        metadata = dtype.metadata
        if metadata is not None:
            return metadata.get(_KEY)
        if dtype.kind == "T":  # a string; asked for every array of zarr, so the quick way
            note = getattr(dtype, "na_object", None)
            return note if isinstance(note, Layout) else None
    return None


def beneath(dtype: np.dtype[Any]) -> Any:
    """What lies in memory where nothing is: NaN or NaT if there is one, so that misuse shows.

    >>> beneath(np.dtype("float32")), int(beneath(np.dtype("int8")))
    (nan, 0)
    """
    if dtype.kind in "fc":
        return np.nan
    if dtype.kind in "mM":
        return np.array("NaT", dtype=dtype)[()]
    if dtype.kind == "O":
        return b""
    return "" if dtype.kind in "UT" else np.zeros((), dtype=dtype)[()]
