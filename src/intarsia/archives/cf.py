"""CF attributes: how stored numbers become values, as the filters of a member; and attributes as JSON.

What xarray decides is decided the same way here: `_Unsigned`, `_FillValue` and `missing_value`,
`scale_factor` and `add_offset`, and whether the values are float32 or float64.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from zarr.dtype import ZDType, parse_dtype

from intarsia.array.attributes import NONFINITE_KEY, RESERVED
from intarsia.errors import IngestError

PACKING = ("scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned")
"""Attributes that say how values are packed; a member's filters take their place."""

FILE_MATTERS = frozenset(
    ("_NCProperties", "_Netcdf4Dimid", "DIMENSION_LIST", "REFERENCE_LIST", "CLASS", "NAME")
)
"""Attributes about how a file is laid out, not about the data."""


def _number(value: Any) -> Any:
    """An attribute as a scalar: HDF5 stores scalars as arrays of one element."""
    if isinstance(value, np.ndarray | list | tuple) and np.size(value) == 1:
        value = np.asarray(value).reshape(-1)[0]
    if isinstance(value, np.number):
        return value.astype(value.dtype.newbyteorder("="))  # HDF5 also stores attributes big-endian
    return value


def _float_type(stored: np.dtype[Any], scale: Any, offset: Any) -> np.dtype[Any]:
    """float32 or float64, by the types of the two attributes."""
    types = [np.asarray(value).dtype for value in (scale, offset) if value is not None]
    if any(kind not in (np.dtype("f4"), np.dtype("f8")) for kind in types):
        return np.dtype("f8")
    if len(types) == 2 and types[0] == types[1]:
        # single precision has too few digits for 32-bit integers
        wide = stored.kind in "iu" and stored.itemsize == 4
        return np.dtype("f8") if wide else types[0]
    return np.dtype("f8") if offset is not None else types[0]


@dataclass(frozen=True, slots=True)
class Packing:
    """How stored numbers become values.

    >>> attrs = {"scale_factor": 0.01, "add_offset": 273.15, "_FillValue": -32768}
    >>> packing = Packing.of(np.dtype("i2"), attrs)
    >>> packing.decoded, packing.value(100), packing.value(-32768)
    (dtype('float64'), np.float64(274.15), np.float64(nan))
    >>> [codec["name"] for codec in packing.filters(np.dtype("f8"))]
    ['scale_offset', 'cast_value']
    """

    stored: np.dtype[Any]
    """What the bytes hold, after `_Unsigned`."""

    decoded: np.dtype[Any]
    """What the values are."""

    scale: float | None = None
    """Values are stored numbers times this…"""

    offset: float | None = None
    """… plus this."""

    fills: tuple[int | float, ...] = ()
    """Stored numbers that mean "missing", and become NaN or null."""

    nulls: bool = False
    """Whether what is missing becomes null; integers then stay integers."""

    @classmethod
    def of(cls, dtype: np.dtype[Any], attrs: Mapping[str, Any], *, nulls: bool = False) -> Packing:
        """The packing that a variable's attributes describe."""
        stored, boolean = dtype, attrs.get("dtype") == "bool" and dtype.itemsize == 1
        sign = str(_number(attrs.get("_Unsigned", ""))).lower()
        if stored.kind == "i" and sign == "true":
            stored = np.dtype(f"u{stored.itemsize}")
        elif stored.kind == "u" and sign == "false":
            stored = np.dtype(f"i{stored.itemsize}")
        scale, offset = _number(attrs.get("scale_factor")), _number(attrs.get("add_offset"))
        if stored.kind not in "iuf":
            return cls(stored, stored)
        fills = tuple(_fills(dtype, stored, attrs))
        if scale is not None or offset is not None:
            decoded = _float_type(stored, scale, offset)
            scale, offset = _checked(scale, "scale_factor"), _checked(offset, "add_offset")
            return cls(stored, decoded, scale, offset, fills, nulls)
        if boolean:
            return cls(np.dtype(bool), np.dtype(bool))
        if fills and stored.kind in "iu" and not nulls:
            return cls(stored, np.dtype("f4" if stored.itemsize <= 2 else "f8"), fills=fills)
        return cls(stored, stored, fills=fills, nulls=nulls)

    @property
    def is_packed(self) -> bool:
        """Whether values are anything else than the stored numbers."""
        return self.scale is not None or self.offset is not None or bool(self.fills)

    @property
    def gives_nulls(self) -> bool:
        """Whether values may be null."""
        return self.nulls and bool(self.fills)

    def value(self, number: Any) -> Any:
        """The value of one stored number, as the filters decode it; None for null."""
        if number in self.fills:
            return None if self.nulls else self.decoded.type(np.nan)
        value = self.decoded.type(number)
        if self.scale is not None:
            value = self.decoded.type(value / self.decoded.type(1 / self.scale))
        if self.offset is not None:
            value = self.decoded.type(value + self.decoded.type(self.offset))
        return value

    def filters(self, logical: np.dtype[Any]) -> list[dict[str, Any]]:
        """The array → array codecs of a member whose values are `logical`."""
        codecs: list[dict[str, Any]] = []
        packed = self.scale is not None or self.offset is not None
        if logical != self.decoded:
            codecs.append(_cast(self.decoded))
        if packed:
            configuration: dict[str, Any] = {}
            if self.offset is not None and self.offset != 0:
                configuration["offset"] = self.offset
            if self.scale is not None and self.scale != 1:
                configuration["scale"] = 1 / self.scale  # the codec divides where CF multiplies
            if configuration:
                codecs.append({"name": "scale_offset", "configuration": configuration})
        mapped = self.fills if packed or not self.nulls else ()
        if self.decoded != self.stored or mapped:
            codecs.append(self._stored_as(mapped))
        if not self.gives_nulls:
            return codecs
        marks: dict[str, Any] = {"values": ["NaN"] if packed else list(self.fills)}
        if codecs:
            marks["codecs"] = codecs
        return [{"name": "intarsia.sentinel", "configuration": marks}]

    def _stored_as(self, mapped: tuple[int | float, ...]) -> dict[str, Any]:
        """The cast to what is stored, with NaN as the first of `mapped`."""
        cast = _cast(self.stored)
        if self.stored.kind in "iu":
            cast["configuration"]["out_of_range"] = "clamp"
        if mapped:
            cast["configuration"]["scalar_map"] = {
                "encode": [["NaN", mapped[0]]],
                "decode": [[fill, "NaN"] for fill in mapped],
            }
        return cast

    def __str__(self) -> str:
        parts = []
        if self.scale is not None or self.offset is not None:
            parts.append(f"* {1.0 if self.scale is None else self.scale:.6g} + {self.offset or 0.0:.6g}")
        if self.fills:
            parts.append("missing " + ", ".join(f"{fill:g}" for fill in self.fills))
        return "; ".join(parts)


def _cast(dtype: np.dtype[Any]) -> dict[str, Any]:
    name = zarr_type(dtype).to_json(zarr_format=3)
    return {"name": "cast_value", "configuration": {"data_type": name}}


@lru_cache
def zarr_type(dtype: np.dtype[Any]) -> ZDType[Any, Any]:
    """The Zarr data type; zarr tries one after the other, which adds up over thousands of files."""
    return parse_dtype(dtype, zarr_format=3)


def _checked(value: Any, what: str) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise IngestError(f"{what} is {value!r}, which is not a number") from None
    if not np.isfinite(number) or (what == "scale_factor" and number == 0):
        raise IngestError(f"{what} is {number}: values cannot be unpacked with it")
    return number


def _fills(dtype: np.dtype[Any], stored: np.dtype[Any], attrs: Mapping[str, Any]) -> list[int | float]:
    """Stored numbers that mean "missing": each once, `_FillValue` first."""
    numbers: dict[int | float, None] = {}
    for name in ("_FillValue", "missing_value"):
        for raw in np.ravel(attrs[name]) if name in attrs else ():
            try:
                number = (
                    np.asarray(raw).astype("f8").item() if np.asarray(raw).dtype.kind == "f" else int(raw)
                )
            except (TypeError, ValueError):
                continue  # a text as fill value of numbers: xarray ignores it too
            if number != number:  # NaN is missing already
                continue
            if stored.kind == "f":
                numbers[float(stored.type(number))] = None
                continue
            if number != int(number):
                continue
            for kind in (dtype, stored):  # the attribute may be given in either sign: -1 or 255
                limits = np.iinfo(kind)
                if limits.min <= number <= limits.max:
                    numbers[np.array(int(number), dtype=kind).view(stored).item()] = None
                    break
    return list(numbers)


def decoded_fill_attribute(value: Any, dtype: np.dtype[Any]) -> Any:
    """`_FillValue` of a Zarr v3 array, which xarray writes as text for floats."""
    if isinstance(value, str) and dtype.kind == "f":
        return dtype.type(struct.unpack("<d", base64.standard_b64decode(value))[0])
    return value


def encoded_fill_attribute(value: Any, dtype: np.dtype[Any]) -> Any:
    """`_FillValue` as xarray expects it in a Zarr v3 array."""
    if dtype.kind == "f":
        return base64.standard_b64encode(struct.pack("<d", float(value))).decode("ascii")
    return int(value) if dtype.kind in "iu" else value


def clean(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that a Zarr node can hold.

    JSON has no number for NaN and infinity: they become texts, and one more attribute names them.

    >>> clean({"valid_min": np.int16(-2), "flags": np.array([1, 2]), "bad": np.nan, "CLASS": "x"})
    {'valid_min': -2, 'flags': [1, 2], 'bad': 'NaN', 'intarsia_nonfinite': ['bad']}
    """
    taken = {
        str(name): value
        for name, value in attrs.items()
        if name not in FILE_MATTERS and name not in RESERVED and name != NONFINITE_KEY
    }
    cleaned = {name: _json(value) for name, value in taken.items()}
    nonfinite = [name for name, value in taken.items() if _is_nonfinite(value)]
    return cleaned | ({NONFINITE_KEY: nonfinite} if nonfinite else {})


def _is_nonfinite(value: Any) -> bool:
    array = np.asarray(value)
    return array.dtype.kind == "f" and not bool(np.isfinite(array).all())


def _json(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, list | tuple):
        return [_json(each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): _json(each) for key, each in value.items()}
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
