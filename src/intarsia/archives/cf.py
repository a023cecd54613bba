"""CF attributes: how stored numbers become values and characters become strings; attributes as JSON."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from intarsia.archives.parsed_file import ParsedVariable, ParseRequest, read_stored
from intarsia.errors import IngestError, PackingError
from intarsia.logical.attributes import NONFINITE_KEY, RESERVED
from intarsia.manifest.packing import Packing

if TYPE_CHECKING:
    from intarsia.archives.plan.reconcile import Conversion

PACKING = ("scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned")
"""Attributes that say how values are packed; a packing in the manifest takes their place."""

FACTORS = PACKING[:2]

FILE_MATTERS = frozenset(
    ("_NCProperties", "_Netcdf4Dimid", "DIMENSION_LIST", "REFERENCE_LIST", "CLASS", "NAME")
)
"""Attributes about the layout of a file, not about the data."""


@dataclass(frozen=True, slots=True)
class CFDecoding:
    """How the stored numbers of one variable become values.

    >>> attrs = {"scale_factor": 0.01, "add_offset": 273.15, "_FillValue": -32768}
    >>> decoding = CFDecoding.of(np.dtype("i2"), attrs)
    >>> decoding.values, str(decoding)
    (dtype('float64'), '* 0.01 + 273.15; missing -32768')
    """

    stored: np.dtype[Any]
    """The type of the stored data."""

    packing: Packing | None = None
    """How stored numbers are unpacked; None if they are the values."""

    nulls: bool = False
    """Whether missing values become null; integers then stay integers."""

    @classmethod
    def of(cls, dtype: np.dtype[Any], attrs: Mapping[str, Any], *, nulls: bool = False) -> Self:
        """What a variable's attributes describe, by the same rules as xarray."""
        decoding = cls(dtype, packing_of(dtype, attrs), nulls)
        boolean = attrs.get("dtype") == "bool" and dtype.kind in "iu" and dtype.itemsize == 1
        return cls(np.dtype(bool)) if boolean and not decoding.is_scaled else decoding

    @property
    def numbers(self) -> np.dtype[Any]:
        """The type that the stored numbers are read as."""
        return self.stored if self.packing is None else self.packing.numbers

    @property
    def is_scaled(self) -> bool:
        """Whether there is a scale or an offset."""
        packing = self.packing
        return packing is not None and (packing.scale is not None or packing.offset is not None)

    @property
    def missing(self) -> tuple[Any, ...]:
        """Stored numbers that mean "missing"."""
        return () if self.packing is None else self.packing.missing

    @property
    def values(self) -> np.dtype[Any]:
        """The type of the values."""
        if self.packing is None or (self.nulls and not self.is_scaled):
            return self.numbers
        kind = self.packing.values
        return np.dtype("f8") if self.nulls and kind.kind != "f" else kind

    @property
    def gives_nulls(self) -> bool:
        """Whether values may be null."""
        return self.nulls and bool(self.missing)

    def converted(self, conversion: Conversion) -> Self:
        """The same numbers in other units: one scale and one offset replace two of each.

        They are multiplied out in float64. Floats stay what they are, integers become float64.

        >>> from intarsia.archives.plan.reconcile import Conversion
        >>> str(CFDecoding.of(np.dtype("i2"), {"scale_factor": 0.5}).converted(Conversion(100.0, 5.0)))
        '* 50 + 5'
        """
        if not conversion.changes:
            return self
        if self.stored.kind not in "iuf":
            raise IngestError(f"values of type {self.stored} have no units that could be converted")
        packing = Packing(self.stored) if self.packing is None else self.packing
        kind = self.values if self.values.kind == "f" else np.dtype("f8")
        scale, offset = packing.scale, conversion.offset
        if conversion.factor != 1:
            scale = np.float64(conversion.factor * (1.0 if scale is None else float(scale)))
        if packing.offset is not None:
            offset += conversion.factor * float(packing.offset)
        combined = Packing(
            self.stored, scale=scale, offset=np.float64(offset) if offset else None, missing=packing.missing,
            unsigned=packing.unsigned, values=kind,
        )  # fmt: skip
        return replace(self, packing=combined)

    def packing_in(self, logical: np.dtype[Any]) -> Packing | None:
        """The packing for regions of an array of this type; None if it needs none, or needs filters."""
        packing, changes = self.packing, bool(self.missing) or self.is_scaled
        if self.stored != logical and not (self.stored.kind in "iuf" and logical.kind in "iuf"):
            raise IngestError(f"values of type {self.stored} cannot become {logical}")
        if self.nulls or self.needs_filters(logical):
            return None
        if not changes and self.stored == self.numbers == logical:
            return None
        if packing is None:
            return Packing(self.stored, values=logical)
        if changes and packing.values.kind == "f":
            return self._rounded(logical) or packing
        # Whole numbers, one conversion: right in any type that holds the result.
        factors = {"scale": packing.scale, "offset": packing.offset}
        return Packing(self.stored, **factors, unsigned=packing.unsigned, values=logical)

    def _rounded(self, logical: np.dtype[Any]) -> Packing | None:
        """The packing to a shorter float, if it gives the same as unpacking and then rounding.

        A packing rounds after every step. With one step there is no difference, as long as it is computed in
        the longer type: so the factor has that type. The numbers have to be the same in both.
        """
        packing = self.packing
        if packing is None or packing.values.kind != "f" or logical.kind != "f":
            return None
        steps = {name: f for name in ("scale", "offset") if (f := getattr(packing, name)) is not None}
        exact = np.can_cast(self.numbers, logical, "safe")
        exact = exact and all(np.can_cast(factor.dtype, packing.values, "safe") for factor in steps.values())
        if logical.itemsize >= packing.values.itemsize or len(steps) > 1 or not exact:
            return None
        factors: dict[str, Any] = {name: packing.values.type(factor) for name, factor in steps.items()}
        marks, sign = packing.missing, packing.unsigned
        return Packing(self.stored, **factors, missing=marks, unsigned=sign, values=logical)

    def needs_filters(self, logical: np.dtype[Any]) -> bool:
        """Whether only a member's filters can give values of this type: a packing does not round twice."""
        if self.nulls:
            return self.gives_nulls or self.is_scaled or self.numbers != logical
        if self.missing or self.is_scaled:
            kind = self.values
            exact = kind.kind == "f" or kind.itemsize < 8 or logical.kind in "iu"
            return not (exact and np.can_cast(kind, logical, "safe")) and self._rounded(logical) is None
        return logical.kind != "f" and not np.can_cast(self.numbers, logical, "safe")

    def __str__(self) -> str:
        parts, packing = [], self.packing
        if packing is not None and self.is_scaled:
            scale = 1.0 if packing.scale is None else packing.scale
            parts.append(f"* {scale:.6g} + {0.0 if packing.offset is None else packing.offset:.6g}")
        if self.missing:
            parts.append("missing " + ", ".join(f"{mark:g}" for mark in self.missing))
        return "; ".join(parts)


def units_of(attrs: Mapping[str, Any]) -> str:
    """The units that attributes name; empty if they name none."""
    return str(attrs.get("units", ""))


def packing_of(dtype: np.dtype[Any], attrs: Mapping[str, Any]) -> Packing | None:
    """The packing that a variable's attributes describe, if there is one and it can be undone."""
    if dtype.kind not in "iuf":
        return None
    packing_attrs = {name: attrs[name] for name in PACKING if attrs.get(name) is not None}
    if not packing_attrs:
        return None
    packing_attrs |= {name: _factor(packing_attrs[name], name) for name in FACTORS if name in packing_attrs}
    try:
        return Packing.from_attributes(dtype, packing_attrs)
    except PackingError as error:
        raise IngestError(f"it cannot be unpacked: {error}") from error


def unpacked_values(stored: np.ndarray[Any, Any], attrs: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    """The values that stored numbers with these attributes mean."""
    packing = packing_of(stored.dtype, attrs)
    return stored if packing is None else packing.decode(stored)


def _factor(value: Any, name: str) -> Any:
    """A scale or an offset with its type in the file; HDF5 stores it as an array of one element."""
    if isinstance(value, np.ndarray | list | tuple) and np.size(value) == 1:
        value = np.asarray(value).reshape(-1)[0]
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise IngestError(f"{name} is {value!r}, which is not a number") from None
    if not np.isfinite(number) or (name == "scale_factor" and number == 0):
        raise IngestError(f"{name} is {number}: values cannot be unpacked with it")
    if isinstance(value, np.number):
        return value.astype(value.dtype.newbyteorder("="))  # HDF5 also stores attributes big-endian
    return number if isinstance(value, str) else value


def decoded_fill_attribute(value: Any, dtype: np.dtype[Any]) -> Any:
    """The `_FillValue` of a Zarr v3 array: for floats a number, a word such as "NaN", or as xarray writes it.

    >>> decoded_fill_attribute("NaN", np.dtype("f4")), decoded_fill_attribute("AAAAAAAAI8A=", np.dtype("f4"))
    (np.float32(nan), np.float32(-9.5))
    """
    if not isinstance(value, str) or dtype.kind != "f":
        return value
    try:
        return dtype.type(value)
    except ValueError:  # base64 of eight bytes, which always ends in "="
        return dtype.type(struct.unpack("<d", base64.standard_b64decode(value))[0])


def encoded_fill_attribute(value: Any, dtype: np.dtype[Any]) -> Any:
    """`_FillValue` as xarray expects it in a Zarr v3 array."""
    if dtype.kind == "f":
        return base64.standard_b64encode(struct.pack("<d", float(value))).decode("ascii")
    return int(value) if dtype.kind in "iu" else value


def json_attributes(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that a Zarr node can hold.

    JSON has no number for NaN and infinity: they become texts, and another attribute names them.

    >>> json_attributes({"valid_min": np.int16(-2), "flags": np.array([1, 2]), "bad": np.nan, "CLASS": "x"})
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
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        return False
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


ENCODING = "_Encoding"
"""The attribute that says how characters are encoded."""

TEXT_MARKS = (ENCODING, "_FillValue", "missing_value")
"""Attributes about stored characters that mean nothing for strings."""


def with_strings(described: Mapping[str, ParsedVariable], request: ParseRequest) -> dict[str, ParsedVariable]:
    """The variables of a file, with characters as strings: the last axis is the length of a text.

    As in xarray, an axis is not a length if it grows from file to file, has a coordinate, or is an axis of
    variables of another type: along it, every character is a text.
    """
    axes = {name for name, variable in described.items() if variable.dims == (name,)}
    axes |= {
        dim
        for variable in described.values()
        for dim in variable.dims
        if variable.dtype.kind not in "SU" or dim != variable.dims[-1]
    }
    axes |= set(request.dims)
    return {
        name: _as_strings(variable, axes) if variable.dtype.kind in "SU" else variable
        for name, variable in described.items()
    }


def _as_strings(variable: ParsedVariable, axes: set[str]) -> ParsedVariable:
    *others, last = variable.dims or ("",)
    # kerchunk gives both axes of `char station(station, length)` the same name
    letters = variable.dtype == np.dtype("S1") and last and (last not in axes or last in others)
    rank = len(variable.dims) - bool(letters)
    attrs = {key: value for key, value in variable.attrs.items() if key not in TEXT_MARKS}
    return replace(
        variable, dims=variable.dims[:rank], shape=variable.shape[:rank], attrs=attrs,
        dtype=np.dtypes.StringDType(), encoding=str(variable.attrs.get(ENCODING, "")), is_text=True,
    )  # fmt: skip


def load_values(source: Any, variable: ParsedVariable) -> np.ndarray[Any, Any]:
    """All values of an HDF5 dataset or a Zarr array; characters become strings."""
    if variable.is_text:
        return join_characters(np.asarray(source[...]), variable)
    return read_stored(source, ..., variable.dtype)


def join_characters(stored: np.ndarray[Any, Any], variable: ParsedVariable) -> np.ndarray[Any, Any]:
    """Stored characters as strings.

    They are decoded as the file says; if it does not say, as UTF-8, or as Latin-1 if they are not UTF-8.

    >>> names = ParsedVariable("name", "static", ("s",), (2,), {}, np.dtypes.StringDType(), is_text=True)
    >>> join_characters(np.array([[b"O", b"s", b"", b""], [b"B", b"o", b"n", b"n"]]), names).tolist()
    ['Os', 'Bonn']
    """
    if stored.ndim > len(variable.dims):  # characters, one after another
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
