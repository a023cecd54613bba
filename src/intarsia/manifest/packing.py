"""How stored numbers become values: a scale, an offset and missing values, as in the CF conventions.

Everything is decided and computed as in xarray, so that both give the same values to the last bit. xarray
decides by the attributes and their types on every read (`coding/variables.py`); a `Packing` holds the
decision.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, NoReturn, Self, get_args

import numpy as np

from intarsia.errors import PackingError
from intarsia.manifest.box import Box, tile_in_blocks

type Number = np.number[Any]

BLOCK = 1 << 17
"""How many elements are decoded at a time: few enough that later steps find them in the cache."""

TypeName = Literal[
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"
]
SUPPORTED_DTYPES = {name: np.dtype(name) for name in get_args(TypeName)}
"""The data types that packings support, by their Zarr names."""

CHANGED_SIGNS: Mapping[tuple[str, ...], bool] = {("true", "i"): True, ("false", "u"): False}
"""What `_Unsigned` says about stored numbers of a kind; for others, it means nothing."""


def known_type(value: Any, what: str) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = np.dtype(value).newbyteorder("=")
    except TypeError:
        raise PackingError(f"{what} is {value!r}, which is not a data type") from None
    if dtype not in SUPPORTED_DTYPES.values():
        raise PackingError(f"{what} is {dtype}; packings support integers and floats of up to 64 bits")
    return dtype


def number_dtype(stored: np.dtype[Any], unsigned: bool | None) -> np.dtype[Any]:
    """The type that stored numbers are read as."""
    return stored if unsigned is None else np.dtype(f"{'u' if unsigned else 'i'}{stored.itemsize}")


def cast_exactly(mark: Any, numbers: np.dtype[Any], what: str = "missing") -> Number:
    """A number in another type, which must hold it exactly."""
    try:
        with np.errstate(all="ignore"):
            number: Number = numbers.type(mark)
        if number == mark:
            return number
    except (OverflowError, ValueError, TypeError):
        pass
    raise PackingError(f"{what}: {mark!r:.200} is not a value of {numbers}")


def _attribute_type(value: Any) -> np.dtype[Any] | None:
    """The type that xarray sees in an attribute; None for arrays and lists, which it takes for objects."""
    if isinstance(value, np.number):
        return value.dtype
    if isinstance(value, np.ndarray | list | tuple):
        return None
    return np.dtype(int) if isinstance(value, int) else np.dtype(float)


def float_type(numbers: np.dtype[Any], scale: Any, offset: Any) -> np.dtype[Any]:
    """The type that xarray computes in, given the types of scale and offset, at least one of which is set."""
    single, double = np.dtype("f4"), np.dtype("f8")
    if offset is not None:
        kinds = {_attribute_type(scale), _attribute_type(offset)}
        short = scale is not None and kinds == {single}
        # single precision has too few digits for 32-bit integers
        return single if short and not (numbers.kind in "iu" and numbers.itemsize == 4) else double
    return _attribute_type(scale) or double  # xarray turns objects into objects with these values


def value_type(numbers: np.dtype[Any], scale: Any, offset: Any, masked: bool) -> np.dtype[Any]:
    """The type of the values, as xarray chooses it."""
    if scale is not None or offset is not None:
        kind = float_type(numbers, scale, offset)
        return kind if kind.kind == "f" or not masked else np.dtype("f8")  # xarray fails: they have no NaN
    if not masked or numbers.kind == "f":
        return numbers
    return np.dtype("f4" if numbers.itemsize <= 2 else "f8")


def parse_factor(value: Any, values: np.dtype[Any], what: str) -> Number | None:
    """A scale or an offset as a number with its own type."""
    if value is None:
        return None
    if isinstance(value, np.ndarray) and not value.ndim:
        value = value[()]
    elif isinstance(value, np.ndarray | list | tuple) and np.size(value) == 1:
        value = np.asarray(value).item()
    if not isinstance(value, np.number):
        if type(value) not in (int, float):
            raise PackingError(f"the {what} is {value!r:.200}, which is not a number")
        # NumPy computes with Python numbers in the type of the array.
        with np.errstate(over="ignore"):
            value = values.type(value) if values.kind == "f" else cast_exactly(value, values, f"the {what}")
    factor: Number = value.astype(known_type(value.dtype, f"the type of the {what}"))
    if not np.isfinite(factor):
        raise PackingError(f"the {what} is {value!s}: values cannot be unpacked with it")
    if not np.can_cast(np.result_type(values, factor.dtype), values, "same_kind"):
        raise PackingError(
            f"the {what} is {value!r}, but the values are {values}, which cannot hold the result"
        )
    return factor


def unsigned_fill_value(mark: Any, stored: np.dtype[Any], numbers: np.dtype[Any]) -> Any:
    """The `_FillValue` of integers whose sign `_Unsigned` changes; it may be given in either form."""
    if np.asarray(mark).dtype.kind not in "iuf":
        return mark
    with np.errstate(invalid="ignore"):
        if numbers.kind == "i":
            return np.asarray(mark).astype(numbers)[()]
        return np.asarray(mark).astype(stored).view(numbers).item()


def numbers_equal_to_missing(mark: Any, numbers: np.dtype[Any], values: np.dtype[Any]) -> Sequence[Number]:
    """The stored number that xarray takes for a missing value, if there is one.

    xarray compares the converted numbers with the attribute, in the wider of their types. Sometimes nothing
    can be equal, such as a float64 of 1e20 in float32 data.
    """
    if np.asarray(mark).dtype.kind not in "biuf":
        return []  # text as the missing value of numbers, which equals none of them
    wide = values if isinstance(mark, int) else np.result_type(values, mark.dtype)
    with np.errstate(all="ignore"):
        wanted = wide.type(mark)
        value = values.type(wanted)
        candidates = [mark, value] if wide.type(value) == wanted else []
        if numbers.kind != "f":
            limits = np.iinfo(numbers)
            finite = (int(candidate) for candidate in candidates if np.isfinite(candidate))
            candidates = [min(max(integer, limits.min), limits.max) for integer in finite]
        found = [number for number in map(numbers.type, candidates) if values.type(number) == value]
    return found[:1]


def bits_of(factor: Number | None) -> int:
    """The bits of a scale or offset, filled up with zeros, as a 64-bit integer; 0 if there is none."""
    if factor is None:
        return 0
    bits = int.from_bytes(factor.tobytes(), sys.byteorder)
    return bits - (1 << 64) if bits >> 63 else bits


class PackingKind(NamedTuple):
    """What packings have in common that differ only in the numbers that are their scale and offset."""

    stored: np.dtype[Any]
    missing: tuple[Number, ...]
    unsigned: bool | None
    values: np.dtype[Any]
    scale_type: np.dtype[Any] | None
    offset_type: np.dtype[Any] | None
    missing_bytes: bytes
    """The missing values once more: 0.0 and -0.0 are two numbers, and equal."""


type Values = np.ndarray[Any, Any]

FEW = 1 << 10
"""For this few elements it makes no difference how they lie in memory."""


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Packing:
    """How stored numbers become values: `stored * scale + offset`, and NaN where one means "missing".

    >>> packing = Packing("int16", scale=0.01, offset=273.15, missing=-32768)
    >>> packing.decode(np.array([0, 100, -32768], dtype="int16"))
    array([273.15, 274.15,    nan])
    >>> packing.encode([274.15, np.nan])
    array([   100, -32768], dtype=int16)

    Values that the packing cannot hold are refused:

    >>> packing.encode([1e6])
    Traceback (most recent call last):
    ...
    intarsia.errors.PackingError: int16 * 0.01 + 273.15, missing -32768: cannot hold 1000000.0 (at [0]): ...

    The type of the values follows from the types of scale and offset, as in xarray, unless it is given:

    >>> Packing("int16", scale=np.float32(0.01)).values
    dtype('float32')
    >>> Packing("int16", scale=0.01, values="float32").scale
    np.float32(0.01)
    """

    stored: np.dtype[Any]
    """The data type of the stored numbers."""

    scale: Number | None = None
    """Stored numbers are multiplied by this…"""

    offset: Number | None = None
    """… and this is added."""

    missing: tuple[Number, ...] = ()
    """Stored numbers that mean "missing"; the first of them is written for NaN."""

    unsigned: bool | None = None
    """Whether signed integers are read as unsigned ones (True), or vice versa (False)."""

    values: np.dtype[Any] = field(kw_only=True)
    """The data type of the values."""

    def __init__(
        self,
        stored: Any,
        *,
        scale: Any = None,
        offset: Any = None,
        missing: Any = (),
        unsigned: bool | None = None,
        values: Any = None,
    ) -> None:
        stored = known_type(stored, "the stored data type")
        if unsigned not in (None, True, False):
            raise PackingError(f"unsigned is {unsigned!r}: give True, False or None")
        if unsigned is not None and stored.kind != ("i" if unsigned else "u"):
            unsigned = None
        numbers = number_dtype(stored, unsigned)
        listed = list(missing) if isinstance(missing, tuple | list | np.ndarray) else [missing]
        marks = [cast_exactly(mark, numbers) for mark in listed if mark == mark]  # NaN is missing anyway
        if values is None:
            values = value_type(numbers, scale, offset, masked=bool(marks))
        values = known_type(values, "the type of the values")
        if marks and values.kind != "f":
            raise PackingError(f"missing values become NaN, which {values} cannot hold")
        scale, offset = parse_factor(scale, values, "scale"), parse_factor(offset, values, "offset")
        missing = tuple(dict.fromkeys(marks))
        vars(self).update(stored=stored, missing=missing, unsigned=unsigned, values=values)
        vars(self).update(scale=scale, offset=offset)

    @property
    def attributes(self) -> dict[str, Any]:
        """The CF attributes that describe it.

        >>> Packing("int8", unsigned=True, scale=np.float32(0.5), missing=[255]).attributes
        {'scale_factor': np.float32(0.5), '_FillValue': np.int8(-1), '_Unsigned': 'true'}
        """
        first, *others = [*np.array(self.missing, dtype=self.numbers).view(self.stored), None]
        attributes = {
            "scale_factor": self.scale,
            "add_offset": self.offset,
            "_FillValue": first,
            "missing_value": others[:-1] or None,
            "_Unsigned": None if self.unsigned is None else str(self.unsigned).lower(),
        }
        return {name: value for name, value in attributes.items() if value is not None}

    @classmethod
    def from_attributes(cls, dtype: Any, attributes: Mapping[str, Any]) -> Self | None:
        """The packing that the attributes of a variable describe; None if they describe none.

        The types of the attributes matter: NumPy scalars keep the types that they have in a file.

        >>> Packing.from_attributes("uint8", {"_FillValue": np.uint8(255)})
        Packing('uint8', missing=(255,), values='float32')
        >>> Packing.from_attributes("int8", {"_Unsigned": "true", "scale_factor": np.float32(0.5)})
        Packing('int8', scale=float32(0.5), unsigned=True, values='float32')
        >>> Packing.from_attributes("int8", {"units": "K"})
        """
        stored = known_type(dtype, "the stored data type")
        scale, offset = (attributes.get(name) for name in ("scale_factor", "add_offset"))
        unsigned = CHANGED_SIGNS.get((*map(str, np.ravel(attributes.get("_Unsigned", ""))), stored.kind))
        numbers = number_dtype(stored, unsigned)
        absent = {n: attributes[n] for n in ("_FillValue", "missing_value") if attributes.get(n) is not None}
        marks = {
            name: [mark for mark in np.ravel(value) if mark is not None and mark == mark]
            for name, value in absent.items()
        }
        masked = any(marks.values())
        # Attributes that hold nothing but NaN say nothing new about floats, but xarray then leaves the type
        # of the stored numbers alone; for integers it drops them.
        only_nan = bool(absent) and not masked and stored.kind == "f"
        if scale is None and offset is None and unsigned is None and not masked:
            return None
        values = stored if only_nan else value_type(numbers, scale, offset, masked)
        missing: list[Number] = []
        for name, listed in marks.items():
            for mark in listed:
                if name == "_FillValue" and unsigned is not None:
                    mark = unsigned_fill_value(mark, stored, numbers)
                missing += numbers_equal_to_missing(mark, numbers, values)
        return cls(stored, scale=scale, offset=offset, missing=missing, unsigned=unsigned, values=values)

    @classmethod
    def of(cls, kind: PackingKind, scale: Number | None, offset: Number | None) -> Self:
        """The packing of a kind with this scale and offset, without checking them again.

        >>> Packing.of(Packing("int16", scale=0.5).kind, np.float64(0.25), None)
        Packing('int16', scale=float64(0.25), values='float64')
        """
        packing = object.__new__(cls)
        # A kind begins with what is a field of packings, too.
        vars(packing).update(zip(PackingKind._fields[:4], kind, strict=False), scale=scale, offset=offset)
        return packing

    @property
    def kind(self) -> PackingKind:
        """What it has in common with packings that only have other numbers as scale and offset.

        >>> Packing("int16", scale=0.5).kind == Packing("int16", scale=0.25).kind
        True
        """
        scale, offset = (None if factor is None else factor.dtype for factor in (self.scale, self.offset))
        missing_bytes = b"".join(mark.tobytes() for mark in self.missing)
        return PackingKind(
            self.stored, self.missing, self.unsigned, self.values, scale, offset, missing_bytes
        )

    def without_missing(self) -> Packing:
        """This packing without missing values: every number means a value.

        >>> Packing("int8", missing=-1).without_missing()
        Packing('int8', values='float32')
        """
        return Packing(
            self.stored, scale=self.scale, offset=self.offset, unsigned=self.unsigned, values=self.values
        )

    @cached_property
    def numbers(self) -> np.dtype[Any]:
        """The type that stored numbers are read as: `stored`, unless `unsigned` says otherwise."""
        return number_dtype(self.stored, self.unsigned)

    def decode(self, stored: Any) -> Values:
        """The values of stored numbers.

        >>> Packing("int8", unsigned=True).decode(np.array([-1], dtype="int8"))
        array([255], dtype=uint8)
        """
        stored = np.asarray(stored)
        out = np.empty(stored.shape, dtype=self.values)
        self.decode_into(stored, out)
        return out

    def decode_into(self, stored: Values, out: Values) -> None:
        """Put the values of stored numbers, in either byte order, into an array of the same shape.

        The array may have a wider type than the values; they are still rounded to their own type.

        >>> out = np.empty(2)
        >>> Packing("int16", scale=np.float32(0.1)).decode_into(np.array([1, 2], dtype="int16"), out)
        >>> out.tolist()
        [0.10000000149011612, 0.20000000298023224]
        """
        if stored.dtype != self.stored and stored.dtype.newbyteorder("=") != self.stored:
            raise PackingError(f"{self}: the stored numbers are {stored.dtype}, not {self.stored}")
        if self.unsigned is not None:
            stored = stored.view(self.numbers.newbyteorder(stored.dtype.byteorder))
        # Several passes over contiguous memory, and a copy, take less time than passes over scattered memory.
        in_place = out.dtype == self.values and (out.size <= FEW or out.flags.c_contiguous)
        with np.errstate(all="ignore"):
            buffer = np.empty(0 if in_place else min(BLOCK, out.size), dtype=self.values)
            pieces: Iterable[Any] = (...,)
            if out.size > BLOCK:
                boxes = tile_in_blocks(Box.sized(out.shape), (1,) * out.ndim, 1, BLOCK)
                pieces = (box.slices for box in boxes)
            for piece in pieces:
                place = out[piece]
                values = place if in_place else buffer[: place.size].reshape(place.shape)
                self._decode_block(stored[piece], values)
                if not in_place:
                    np.copyto(place, values, casting="same_kind")

    def _decode_block(self, numbers: Values, out: Values) -> None:
        out[...] = numbers
        absent = self._absent(numbers, out)
        # In place, as in xarray: a scale of a wider type than the values multiplies in its own type, and the
        # product is rounded before the offset is added.
        if self.scale is not None:
            np.multiply(out, self.scale, out=out, casting="same_kind")
        if self.offset is not None:
            np.add(out, self.offset, out=out, casting="same_kind")
        if absent is not None and absent.any():
            np.copyto(out, np.nan, where=absent)

    def _absent(self, numbers: Values, values: Values) -> Values | None:
        """Where a value is missing; `values` are the numbers, not yet scaled.

        xarray compares after the conversion, in which large integers may lose digits. If they cannot, the
        stored numbers are compared, which are shorter.
        """
        absent: Values | None = None
        for mark in self.missing:
            equal = numbers == mark if self._compares_numbers else values == self.values.type(mark)
            absent = equal if absent is None else absent | equal
        return absent

    @cached_property
    def _compares_numbers(self) -> bool:
        # NumPy calls the conversion of 64-bit integers to float64 safe; it is not.
        long = self.numbers.kind in "iu" and self.numbers.itemsize == 8
        return not long and bool(np.can_cast(self.numbers, self.values, "safe"))

    def encode(self, values: Any, origin: Sequence[int] | None = ()) -> Values:
        """The numbers to store for values: rounded, and the first missing value where they are NaN.

        `origin` is where the values begin in a larger array; an error gives a refused value's place there, or
        none if it is None.

        >>> Packing("uint8", scale=0.5).encode([0.2, 0.3, 1.0])
        array([0, 1, 2], dtype=uint8)
        """
        values = np.asarray(values)
        if values.dtype.kind not in "iuf":
            raise PackingError(f"{self}: got {values.dtype}, not numbers")
        if self.values.kind == "f" and values.dtype.kind != "f":
            values = values.astype(self.values)
        with np.errstate(all="ignore"):
            encode = self._encode_floats if self.values.kind == "f" else self._encode_integers
            numbers, bad = encode(values)
        if bad.any():
            self._refuse(values, bad, origin)
        return numbers.view(self.stored)

    def holds(self, values: Any, ulps: int = 0) -> bool:
        """Whether values survive packing, except for this many units in the last place.

        >>> packing = Packing("int16", scale=0.1)
        >>> packing.holds([0.1, 0.3]), packing.holds([0.1, 0.3], ulps=4), packing.holds([0.15], ulps=4)
        (False, True, False)
        """
        values = np.asarray(values)
        try:
            back = self.decode(self.encode(values))
        except PackingError:
            return False
        if values.dtype.kind != "f":
            return bool(np.array_equal(back, values))
        with np.errstate(all="ignore"):
            # The digits lost are those of the largest intermediate number, which may be the offset.
            offset = values.dtype.type(0 if self.offset is None else abs(self.offset))
            largest = np.maximum(np.abs(values), offset)
            near = np.abs(back - values) <= ulps * np.spacing(largest) if ulps else False
        return bool(((back == values) | near | (np.isnan(back) & np.isnan(values))).all())

    def _encode_floats(self, values: Values) -> tuple[Values, Values]:
        absent, numbers = np.isnan(values), self.numbers
        # xarray computes in the type of the data if it has a missing value to write, and otherwise in the
        # type that scale and offset ask for.
        kind = values.dtype.newbyteorder("=")
        chosen = value_type(numbers, self.scale, self.offset, masked=False)
        is_scaled = self.scale is not None or self.offset is not None
        if not self.missing and self.values == chosen and is_scaled:
            kind = float_type(kind, self.scale, self.offset)
        data = values.astype(kind)
        if self.offset is not None:
            np.subtract(data, self.offset, out=data, casting="same_kind")
        if self.scale is not None:
            np.divide(data, self.scale, out=data, casting="same_kind")
        if numbers.kind == "f":
            packed = data.astype(numbers)
            bad = (np.isinf(packed) & ~np.isinf(values)) | np.isnan(packed)
        else:
            np.rint(data, out=data)
            limits = np.iinfo(numbers)
            # One more than the largest integer is a power of two, which every float type holds, or is inf.
            beyond = data.dtype.type(2.0 ** (limits.bits - (numbers.kind == "i")))
            bad = ~((data >= limits.min) & (data < beyond))
            packed = np.where(bad, numbers.type(0), data).astype(numbers)
        taken = self._absent(packed, packed.astype(self.values))
        if taken is not None:
            bad |= taken
            packed[absent] = self.missing[0]
            bad &= ~absent
        elif numbers.kind == "f":
            bad &= ~absent
        return packed, bad

    def _encode_integers(self, values: Values) -> tuple[Values, Values]:
        data = values.astype(self.values)
        if self.offset is not None:
            data -= self.offset.astype(self.values)
        if self.scale is not None:
            data //= self.scale.astype(self.values)
        packed = data.astype(self.numbers)
        return packed, self.decode(packed.view(self.stored)) != values

    def _refuse(self, values: Values, bad: Values, origin: Sequence[int] | None) -> NoReturn:
        """Say which value cannot be held, and why."""
        index = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
        value, numbers = values[index].item(), self.numbers
        limits = np.iinfo(numbers) if numbers.kind in "iu" else np.finfo(numbers)
        ends = np.array([limits.min, limits.max], dtype=numbers).view(self.stored)
        low, high = sorted(self.without_missing().decode(ends).tolist())
        why = f"values lie between {low!r} and {high!r}"
        if value != value:
            why = "no stored number means missing"
        elif low <= value <= high:
            why = "its number means missing" if self.missing else "it lies between two numbers"
        at = [i + o for i, o in zip(index, origin, strict=True)] if origin else list(index)
        place = "" if origin is None else f" (at {at})"
        raise PackingError(f"{self}: cannot hold {value!r}{place}: {why}")

    @cached_property
    def key(self) -> tuple[PackingKind, int, int]:
        """The kind, and the bits of scale and offset: 0.0 and -0.0 are two numbers."""
        return self.kind, bits_of(self.scale), bits_of(self.offset)

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, Packing) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        parts = [repr(self.stored.name)]
        for name in ("scale", "offset"):
            factor = getattr(self, name)
            if factor is not None:
                parts.append(f"{name}={factor.dtype.name}({factor.item()!r})")
        if self.missing:
            parts.append(f"missing=({', '.join(repr(mark.item()) for mark in self.missing)},)")
        if self.unsigned is not None:
            parts.append(f"unsigned={self.unsigned}")
        return f"Packing({', '.join([*parts, f'values={self.values.name!r}'])})"

    def __str__(self) -> str:
        text = self.numbers.name
        if self.scale is not None:
            text += f" * {self.scale!s}"
        if self.offset is not None:
            text += f" + {self.offset!s}"
        return text + (f", missing {', '.join(str(mark) for mark in self.missing)}" if self.missing else "")
