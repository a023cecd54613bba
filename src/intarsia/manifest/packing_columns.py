"""The packings of a logical array, in columns: what most of them share is stored once.

Archives pack every file with its own scale and offset, and are equal in everything else. So a packing is a
*kind*, and the bits of two numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import count, repeat
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from msgspec import Meta, Struct

from intarsia.errors import PackingError
from intarsia.manifest.data_types import is_nullable, type_text, values_dtype
from intarsia.manifest.packing import (
    SUPPORTED_DTYPES,
    Number,
    Packing,
    PackingKind,
    TypeName,
    bits_of,
    cast_exactly,
    number_dtype,
)
from intarsia.manifest.region_table import MAX_REGIONS, NONE, Ints, LazyColumns
from intarsia.manifest.typed_json import decode

if TYPE_CHECKING:
    from intarsia.manifest.manifest import Manifest

FACTORS = ("scale", "offset")
HEXADECIMAL = re.compile("0x[0-9a-fA-F]+")
MAX_MISSING = 1_000
"""The most missing values of one packing; files have one or two."""


@dataclass(frozen=True, eq=False)
class Packings(LazyColumns):
    """Packings by number.

    >>> packings, numbers = NO_PACKINGS.with_([Packing("int16", scale=0.1), Packing("int16", scale=0.2)])
    >>> numbers, packings[1]
    ([0, 1], Packing('int16', scale=float64(0.2), values='float64'))
    >>> len(packings), len(packings.kinds)
    (2, 1)
    """

    kinds: tuple[PackingKind, ...]
    """What packings have in common, each once."""

    rows: Ints
    """For every packing the position of its kind, and the bits of scale and offset (0 if its kind has none);
    shape (packings, 3)."""

    def __len__(self) -> int:
        count: int | None = vars(self).get("_count")
        return len(self.rows) if count is None else count

    def __iter__(self) -> Iterator[Packing]:
        return iter(self.some(np.arange(len(self))))

    def __getitem__(self, i: int) -> Packing:
        return self.some(np.array([i]))[0]

    def some(self, numbers: Ints) -> list[Packing]:
        """The packings with these numbers; among thousands, each takes a microsecond.

        >>> packings, _ = NO_PACKINGS.with_([Packing("int8", scale=0.5), Packing("int8", scale=0.25)])
        >>> [packing.scale.item() for packing in packings.some(np.array([1, 0, 1]))]
        [0.25, 0.5, 0.25]
        """
        packings: dict[int, Packing] = {}
        rows = self.rows[numbers]
        for number in np.unique(rows[:, 0]).tolist():
            kind, places = self.kinds[number], np.flatnonzero(rows[:, 0] == number)
            scales = _numbers(rows[places, 1], kind.scale_type)
            offsets = _numbers(rows[places, 2], kind.offset_type)
            for place, scale, offset in zip(places.tolist(), scales, offsets, strict=True):
                packings[place] = Packing.of(kind, scale, offset)
        return [packings[place] for place in range(len(rows))]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Packings) or self.kinds != other.kinds:
            return False
        return np.array_equal(self.rows, other.rows)

    __hash__ = None  # type: ignore[assignment]  # its columns are arrays

    @property
    def kind(self) -> Ints:
        """The position of every packing's kind."""
        return self.rows[:, 0]

    @cached_property
    def keys(self) -> tuple[tuple[PackingKind, int, int], ...]:
        """A key for every packing that distinguishes it from others, including those of other arrays."""
        return tuple((self.kinds[kind], scale, offset) for kind, scale, offset in self.rows.tolist())

    def with_(self, more: Iterable[Packing | None]) -> tuple[Packings, list[int]]:
        """These packings and some more, and the numbers of those; equal packings stay one.

        >>> NO_PACKINGS.with_([None, Packing("int8")])[1]
        [-1, 0]
        """
        keys = [None if packing is None else packing.key for packing in more]
        numbers: dict[Any, int] = {None: NONE}
        for i, key in enumerate(self.keys):  # of two that are equal, the first
            numbers.setdefault(key, i)
        new = dict.fromkeys([key for key in keys if key is not None and key not in numbers])
        numbers.update(zip(new, count(len(self))))
        kinds = {kind: i for i, kind in enumerate(dict.fromkeys((*self.kinds, *[key[0] for key in new])))}
        rows = [(kinds[kind], scale, offset) for kind, scale, offset in new]
        added = np.array(rows, dtype=np.int64).reshape(len(rows), 3)
        return Packings(tuple(kinds), np.concatenate([self.rows, added])), [numbers[key] for key in keys]

    def select(self, numbers: Ints) -> Packings:
        """A selection of the packings."""
        rows = self.rows[numbers]
        used, kind = np.unique(rows[:, 0], return_inverse=True)
        rows[:, 0] = kind.reshape(-1)
        return Packings(tuple([self.kinds[i] for i in used.tolist()]), rows)

    def columns(self, rows: int) -> Ints:
        """Kind, scale and offset side by side, filled up to a number of rows with zeros."""
        return np.pad(self.rows, ((0, rows - len(self)), (0, 0)))

    def to_json(self, *, in_table: bool = False) -> dict[str, Any]:
        """The packings as they are in the manifest; without the columns if those are in a table.

        >>> packings, _ = NO_PACKINGS.with_([Packing("int8", scale=0.5, missing=-1)])
        >>> packings.to_json()  # doctest: +NORMALIZE_WHITESPACE
        {'kinds': [{'stored': 'int8', 'unsigned': None, 'values': 'float64', 'missing': [-1],
                    'scale': 'float64', 'offset': None}],
         'kind': [0], 'scale': ['0x3fe0000000000000'], 'offset': [None]}
        """
        kinds = [_kind_to_json(kind) for kind in self.kinds]
        if in_table:
            return {"kinds": kinds, "count": len(self)}
        listed: dict[str, Any] = {"kinds": kinds, "kind": self.kind.tolist()}
        for column, name in enumerate(FACTORS, 1):
            types = [getattr(kind, f"{name}_type") for kind in self.kinds]
            rows = self.rows[:, (0, column)].tolist()
            listed[name] = [_hexadecimal(bits, types[kind]) for kind, bits in rows]
        return listed

    @classmethod
    def from_json(cls, document: object, table: Ints | None = None) -> Packings:
        """The packings from their JSON; from the columns of a table if it says how many there are.

        >>> packings, _ = NO_PACKINGS.with_([Packing("int8", scale=0.5), Packing("int8", scale=0.25)])
        >>> Packings.from_json(packings.to_json()) == packings
        True
        >>> Packings.from_json(packings.to_json(in_table=True), packings.columns(5)) == packings
        True
        """
        if table is None:
            listed: ListedPackings = decode(document, ListedPackings, PackingError)
            kinds = _parse_kinds(listed.kinds)
            packings = cls(kinds, _parse_rows(listed, kinds))
        else:
            kinds, count = _parse_description(document, len(table))
            packings = cls(kinds, table[:count])
        packings._check()
        return packings

    @classmethod
    def described(cls, document: object, read: Callable[[], Packings]) -> Packings:
        """The packings from their JSON, whose columns `read` takes from a table when they are needed.

        >>> packings, _ = NO_PACKINGS.with_([Packing("int8", scale=0.5), Packing("int8", scale=0.25)])
        >>> columns = Packings.described(packings.to_json(in_table=True), lambda: packings)
        >>> len(columns), columns.kinds == packings.kinds, columns[1].scale.item()
        (2, True, 0.25)
        """
        kinds, count = _parse_description(document, MAX_REGIONS)
        return cls.later(read, kinds=kinds, _count=count)

    def _check(self) -> None:
        """What may be wrong with the columns."""
        if not len(self):
            raise PackingError("kind: there is no packing")
        outside = np.flatnonzero((self.kind < 0) | (self.kind >= len(self.kinds)))
        if outside.size:
            raise PackingError(f"kind: row {outside[0]} refers past the list of {len(self.kinds)} kinds")
        unused = np.flatnonzero(np.bincount(self.kind, minlength=len(self.kinds)) == 0)
        if unused.size:
            raise PackingError(f"kinds[{unused[0]}]: no packing has this kind")
        for column, name in enumerate(FACTORS, 1):
            types = [str(getattr(kind, f"{name}_type")) for kind in self.kinds]
            distinct, number_of_kind = np.unique(types, return_inverse=True)
            for number, dtype in enumerate(distinct.tolist()):
                rows = np.flatnonzero(number_of_kind[self.kind] == number)
                bits, what = self.rows[rows, column].view(np.uint64), "nothing"
                bad = bits != 0
                if dtype != "None":
                    numbers, what = bits.astype(f"u{np.dtype(dtype).itemsize}"), f"a finite {dtype}"
                    bad = (numbers != bits) | ~np.isfinite(numbers.view(dtype))
                if bad.any():
                    raise PackingError(f"{name}: row {rows[np.argmax(bad)]} does not hold the bits of {what}")


def _hexadecimal(bits: int, dtype: np.dtype[Any] | None) -> str | None:
    """The bytes of a number as Zarr writes those of a float: most significant first."""
    return None if dtype is None else f"0x{bits & 0xFFFFFFFFFFFFFFFF:0{2 * dtype.itemsize}x}"


def _numbers(bits: Ints, dtype: np.dtype[Any] | None) -> Iterable[Any]:
    """The numbers of a type with these bits."""
    if dtype is None:
        return repeat(None, bits.size)
    numbers: Iterable[Any] = bits.view(np.uint64).astype(f"u{dtype.itemsize}").view(dtype)
    return numbers


class KindDocument(Struct, forbid_unknown_fields=True):
    """What packings of one kind share; of scale and offset only the types."""

    stored: TypeName
    unsigned: bool | None
    values: TypeName
    missing: Annotated[list[int | str], Meta(max_length=MAX_MISSING)]
    scale: TypeName | None
    offset: TypeName | None


class ListedPackings(Struct, forbid_unknown_fields=True):
    """The packings of a manifest, with their columns."""

    kinds: list[KindDocument]
    kind: list[int]
    scale: list[str | None]
    offset: list[str | None]


class PackingsInTable(Struct, forbid_unknown_fields=True):
    """The packings of a manifest whose columns are in a table."""

    kinds: list[KindDocument]
    count: int


def _parse_description(document: object, most: int) -> tuple[tuple[PackingKind, ...], int]:
    parsed: PackingsInTable = decode(document, PackingsInTable, PackingError)
    if not 0 < parsed.count <= most:
        raise PackingError(f"count: {parsed.count} is not a number from 1 to {most}")
    return _parse_kinds(parsed.kinds), parsed.count


def _parse_kinds(documents: list[KindDocument]) -> tuple[PackingKind, ...]:
    kinds = []
    for i, document in enumerate(documents):
        try:
            kinds.append(_parse_kind(document))
        except PackingError as error:
            raise PackingError(f"kinds[{i}].{error}") from None
    if len(set(kinds)) != len(kinds):
        raise PackingError("kinds: one is listed twice")
    return tuple(kinds)


def _parse_kind(document: KindDocument) -> PackingKind:
    stored = SUPPORTED_DTYPES[document.stored]
    if stored.kind != {None: stored.kind, True: "i", False: "u"}[document.unsigned]:
        raise PackingError(f"unsigned: {document.unsigned!r} means nothing for {stored}")
    numbers = number_dtype(stored, document.unsigned)
    marks = [_parse_mark(mark, numbers) for mark in document.missing]
    missing = np.array(marks, dtype=numbers) if marks else ()
    zeros = {
        name: None if (factor := getattr(document, name)) is None else SUPPORTED_DTYPES[factor].type(0)
        for name in FACTORS
    }
    packing = Packing(stored, missing=missing, unsigned=document.unsigned, values=document.values, **zeros)
    return packing.kind


def _parse_mark(mark: int | str, numbers: np.dtype[Any]) -> Number:
    """A missing value: integers as they are, floats as their bytes."""
    if numbers.kind != "f":
        if not isinstance(mark, int):
            raise PackingError(f"missing: {mark!r:.200} is not an integer")
        return cast_exactly(mark, numbers)
    number: Number
    (number,) = _numbers(np.array([_parse_bits(mark, numbers, "missing:")]), numbers)
    if np.isnan(number):
        raise PackingError("missing: NaN is missing anyway")
    return number


def _parse_bits(text: Any, dtype: np.dtype[Any] | None, what: str) -> int:
    """The bits of a number of this type, as a 64-bit integer; 0 if there is none."""
    if dtype is None:
        if text is not None:
            raise PackingError(f"{what} {text!r:.200}, not null")
        return 0
    digits = 2 * dtype.itemsize
    if not isinstance(text, str) or len(text) != 2 + digits or not HEXADECIMAL.fullmatch(text):
        raise PackingError(f"{what} {text!r:.200}, not 0x and {digits} hexadecimal digits")
    bits = int(text, 16)
    return bits - (1 << 64) if bits >> 63 else bits


def _kind_to_json(kind: PackingKind) -> dict[str, Any]:
    return {
        "stored": kind.stored.name,
        "unsigned": kind.unsigned,
        "values": kind.values.name,
        "missing": [
            mark.item() if mark.dtype.kind in "iu" else _hexadecimal(bits_of(mark), mark.dtype)
            for mark in kind.missing
        ],
        "scale": None if kind.scale_type is None else kind.scale_type.name,
        "offset": None if kind.offset_type is None else kind.offset_type.name,
    }


def _parse_rows(document: ListedPackings, kinds: tuple[PackingKind, ...]) -> Ints:
    kind = document.kind
    if not all(0 <= k < len(kinds) for k in kind):
        raise PackingError(f"kind: it refers past the list of {len(kinds)} kinds")
    columns = [kind]
    for name in FACTORS:
        listed = getattr(document, name)
        if len(listed) != len(kind):
            raise PackingError(
                f"{name}: expected a list of {len(kind)} strings or nulls, as many as kind has"
            )
        types = [getattr(one, f"{name}_type") for one in kinds]
        rows = enumerate(zip(kind, listed, strict=True))
        columns.append([_parse_bits(text, types[k], f"{name}: row {row} holds") for row, (k, text) in rows])
    return np.array(columns, dtype=np.int64).T.copy()


NO_PACKINGS = Packings((), np.zeros((0, 3), dtype=np.int64))


def parse_packing(manifest: Manifest, packing: Packing | Mapping[str, Any] | None) -> Packing | None:
    """The packing, also from the arguments of one; refused if the array cannot hold its values.

    If the arguments give no type for the values, it is that of the array.

    >>> from intarsia.manifest.manifest import Manifest
    >>> manifest = Manifest.empty((4,), (2,), "float32")
    >>> parse_packing(manifest, {"stored": "int16", "scale": 0.5})
    Packing('int16', scale=float32(0.5), values='float32')
    >>> parse_packing(manifest, Packing("int16", scale=0.1))
    Traceback (most recent call last):
    ...
    intarsia.errors.PackingError: int16 * 0.1: its values are float64, which an array of float32 cannot hold.
      Say what type they have: Packing(…, values='float32')
    """
    if packing is None:
        return None
    if isinstance(packing, Mapping):
        arguments = {"values": values_dtype(manifest.data_type), **packing}
        try:
            packing = Packing(**arguments)
        except TypeError as error:
            raise PackingError(f"{arguments!r}: these are not the arguments of a packing: {error}") from None
    if not isinstance(packing, Packing):
        raise PackingError(f"{packing!r:.200} is neither a Packing nor the arguments of one")
    if not can_hold(manifest, packing):
        own, advice = type_text(manifest.data_type), ""
        if values_dtype(manifest.data_type).kind == "f" and not is_nullable(manifest.data_type):
            advice = f".\n  Say what type they have: Packing(…, values={own!r})"
        raise PackingError(
            f"{packing}: its values are {packing.values}, which an array of {own} cannot hold{advice}"
        )
    return packing


type PackingChoice = Packing | Mapping[str, Any] | Literal["keep"] | None
"""What a caller says about packing: a packing or its arguments, `"keep"` for the current one, or none."""


def choose_packing(manifest: Manifest, packing: PackingChoice) -> dict[str, Any]:
    """The fields of an `Encoding` for what was said about packing.

    >>> from intarsia.manifest.manifest import Manifest
    >>> choose_packing(Manifest.empty((4,), (2,), "float32"), "keep")
    {'keep_packing': True}
    """
    if isinstance(packing, str):
        if packing != "keep":
            raise PackingError(f'packing={packing!r}: give "keep", None or a packing')
        return {"keep_packing": True}
    return {"packing": parse_packing(manifest, packing)}


def can_hold(manifest: Manifest, packing: Packing | PackingKind) -> bool:
    """Whether the array can hold all values of a packing; arrays with nulls take no packings."""
    own, values = values_dtype(manifest.data_type), packing.values
    # NumPy calls conversions of 64-bit integers to floats, and of numbers to texts, safe; they are not.
    long = values.kind in "iu" and values.itemsize == 8 and own.kind not in "iu"
    if is_nullable(manifest.data_type) or own.kind not in "iufc" or long:
        return False
    return bool(np.can_cast(values, own, "safe"))
