"""Characters and texts of fixed length, which become strings: names of stations, dates, flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.archives.parsed import read_stored

if TYPE_CHECKING:
    from intarsia.archives.parsed import Description, Want

ENCODING = "_Encoding"
"""The attribute that says how characters are encoded."""

MARKS = (ENCODING, "_FillValue", "missing_value")
"""Attributes about stored characters that mean nothing to strings."""


def with_texts(described: Mapping[str, Description], want: Want) -> dict[str, Description]:
    """The variables of a file, those of characters as strings: the last axis is the length of a text.

    An axis is not a length, as in xarray, if it grows from file to file, has a coordinate, or is an axis of
    variables of another type: along it, every character is a text.
    """
    axes = {name for name, variable in described.items() if variable.dims == (name,)}
    axes |= {
        dim
        for variable in described.values()
        for dim in variable.dims
        if variable.dtype.kind not in "SU" or dim != variable.dims[-1]
    }
    axes |= set(want.in_file(described).dims)
    return {
        name: _as_texts(variable, axes) if variable.dtype.kind in "SU" else variable
        for name, variable in described.items()
    }


def _as_texts(variable: Description, axes: set[str]) -> Description:
    *others, last = variable.dims or ("",)
    # kerchunk names both axes of `char station(station, length)` alike
    letters = variable.dtype == np.dtype("S1") and last and (last not in axes or last in others)
    rank = len(variable.dims) - bool(letters)
    attrs = {key: value for key, value in variable.attrs.items() if key not in MARKS}
    return replace(
        variable, dims=variable.dims[:rank], shape=variable.shape[:rank], attrs=attrs,
        dtype=np.dtypes.StringDType(), encoding=str(variable.attrs.get(ENCODING, "")), is_text=True,
    )  # fmt: skip


def loaded(source: Any, variable: Description) -> np.ndarray[Any, Any]:
    """All values of an HDF5 dataset or a Zarr array; those of characters as strings."""
    if variable.is_text:
        return texts(np.asarray(source[...]), variable)
    return read_stored(source, ..., variable.dtype)


def texts(stored: np.ndarray[Any, Any], variable: Description) -> np.ndarray[Any, Any]:
    """The strings of stored characters.

    They are decoded as the file says; if it does not, as UTF-8, or as Latin-1 if they are none.

    >>> from intarsia.archives.parsed import Description
    >>> names = Description(("station",), (2,), {}, np.dtypes.StringDType(), is_text=True)
    >>> texts(np.array([[b"O", b"s", b"", b""], [b"B", b"o", b"n", b"n"]]), names).tolist()
    ['Os', 'Bonn']
    """
    if stored.ndim > len(variable.dims):  # characters, one behind the other
        length = stored.shape[-1]
        stored = np.ascontiguousarray(stored)
        stored = stored.view(f"S{length}")[..., 0] if length else np.zeros(stored.shape[:-1], "S1")
    if stored.dtype.kind == "S":
        stored = _decoded(stored, variable.encoding)
    return np.asarray(stored, dtype=np.dtypes.StringDType())


def _decoded(stored: np.ndarray[Any, Any], named: str) -> np.ndarray[Any, Any]:
    for encoding in filter(None, (named, "utf-8")):
        try:
            return np.strings.decode(stored, encoding)
        except (UnicodeDecodeError, LookupError):
            continue
    return np.strings.decode(stored, "latin-1")
