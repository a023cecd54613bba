"""The packings of a logical array, in columns: what most of them share is stored once.

Archives pack every file with its own scale and offset, and are equal in everything else. So a packing is a
*kind*, and the bits of two numbers.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from intarsia.errors import PackingError
from intarsia.manifest.coercion import is_nullable, type_text, values_dtype
from intarsia.manifest.packing import KINDS, Packing
from intarsia.manifest.region_table import MOST_REGIONS, NONE, Ints, ReadLater

if TYPE_CHECKING:
    from intarsia.manifest.manifest import Manifest

FACTORS = ("scale", "offset")
MOST_MISSING = 1_000
"""The most missing values of one packing; files have one or two."""


@dataclass(frozen=True, eq=False)
class Packings(ReadLater):
    """Packings by number.

    >>> packings, numbers = NO_PACKINGS.with_([Packing("int16", scale=0.1), Packing("int16", scale=0.2)])
    >>> numbers, packings[1]
    ([0, 1], Packing('int16', scale=float64(0.2), values='float64'))
    >>> len(packings), len(packings.kinds)
    (2, 1)
    """

    kinds: tuple[Packing, ...]
    """One packing of each kind: it says everything but the values of scale and offset."""

    kind: Ints
    """Position in the list of kinds; shape (packings,)."""

    scale: Ints
    """The bits of every scale; 0 if its kind has none."""

    offset: Ints
    """The bits of every offset."""

    def __len__(self) -> int:
        count: int | None = vars(self).get("_count")
        return len(self.kind) if count is None else count

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
        found: dict[int, Packing] = {}
        kinds = self.kind[numbers]
        for number in np.unique(kinds).tolist():
            kind, places = self.kinds[number], np.flatnonzero(kinds == number)
            scales, offsets = (column[numbers[places]] for column in (self.scale, self.offset))
            factors = zip(_numbers(scales, kind.scale), _numbers(offsets, kind.offset), strict=True)
            found.update(zip(places.tolist(), (kind.with_factors(*each) for each in factors), strict=True))
        return [found[place] for place in range(numbers.size)]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Packings):
            return NotImplemented
        if self.kinds == other.kinds:
            return np.array_equal(self.columns(len(self)), other.columns(len(other)))
        return self.keys == other.keys

    def __hash__(self) -> int:
        return hash(self.keys)

    @cached_property
    def keys(self) -> tuple[tuple[Packing, int, int], ...]:
        """A key for every packing that distinguishes it from others, including those of other arrays."""
        columns = zip(self.kind.tolist(), self.scale.tolist(), self.offset.tolist(), strict=True)
        return tuple((self.kinds[kind], scale, offset) for kind, scale, offset in columns)

    def with_(self, more: Iterable[Packing | None]) -> tuple[Packings, list[int]]:
        """These packings and some more, and the numbers of those; equal packings stay one.

        >>> NO_PACKINGS.with_([None, Packing("int8")])[1]
        [-1, 0]
        """
        keys = list(self.keys)
        known: dict[Any, int] = {}
        for i, key in enumerate(keys):  # of two that are equal, the first
            known.setdefault(key, i)
        kinds: dict[tuple[Any, ...], Packing] = {}
        numbers = []
        for packing in more:
            if packing is None:
                numbers.append(NONE)
                continue
            shared = packing.stored, packing.unsigned, packing.values, packing.missing
            of_kind = (*shared, type(packing.scale), type(packing.offset))
            if of_kind not in kinds:
                kinds[of_kind] = packing.with_factors(_zero(packing.scale), _zero(packing.offset))
            key = kinds[of_kind], _bits(packing.scale), _bits(packing.offset)
            if key not in known:
                known[key] = len(keys)
                keys.append(key)
            numbers.append(known[key])
        return self if len(keys) == len(self) else _of(keys), numbers

    def select(self, numbers: Ints) -> Packings:
        """A selection of the packings."""
        used, kind = np.unique(self.kind[numbers], return_inverse=True)
        kinds = tuple(self.kinds[i] for i in used.tolist())
        return Packings(kinds, kind.reshape(-1), self.scale[numbers], self.offset[numbers])

    def columns(self, rows: int) -> Ints:
        """Kind, scale and offset side by side, filled up to a number of rows with zeros."""
        found = np.zeros((rows, 3), dtype=np.int64)
        found[: len(self)] = np.stack([self.kind, self.scale, self.offset], axis=1)
        return found

    def to_json(self, *, in_table: bool = False) -> dict[str, Any]:
        """The packings as they are in the manifest; without the columns if those are in a table.

        >>> packings, _ = NO_PACKINGS.with_([Packing("int8", scale=0.5, missing=-1)])
        >>> packings.to_json()  # doctest: +NORMALIZE_WHITESPACE
        {'kinds': [{'stored': 'int8', 'unsigned': None, 'values': 'float64', 'missing': [-1],
                    'scale': 'float64', 'offset': None}],
         'kind': [0], 'scale': ['0x3fe0000000000000'], 'offset': [None]}
        """
        kinds = [
            kind.to_json() | {name: _type_name(getattr(kind, name)) for name in FACTORS}
            for kind in self.kinds
        ]
        if in_table:
            return {"kinds": kinds, "count": len(self)}
        listed: dict[str, Any] = {"kinds": kinds, "kind": self.kind.tolist()}
        for name in FACTORS:
            digits = [_digits(getattr(kind, name)) for kind in self.kinds]
            listed[name] = [
                f"0x{bits & 0xFFFFFFFFFFFFFFFF:0{digits[kind]}x}" if digits[kind] else None
                for kind, bits in zip(listed["kind"], getattr(self, name).tolist(), strict=True)
            ]
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
            fields, kinds = _parsed_kinds(document, {"kinds", "kind", *FACTORS})
            found = cls(kinds, *_parsed_columns(fields, kinds))
        else:
            fields, kinds = _parsed_kinds(document, {"kinds", "count"})
            count = _parsed_count(fields, len(table))
            kind, scale, offset = np.ascontiguousarray(table[:count].T)
            found = cls(kinds, kind, scale, offset)
        found._check()
        return found

    @classmethod
    def described(cls, document: object, read: Callable[[], Packings]) -> Packings:
        """The packings from their JSON, whose columns `read` takes from a table when they are needed.

        >>> packings, _ = NO_PACKINGS.with_([Packing("int8", scale=0.5), Packing("int8", scale=0.25)])
        >>> columns = Packings.described(packings.to_json(in_table=True), lambda: packings)
        >>> len(columns), columns.kinds == packings.kinds, columns[1].scale.item()
        (2, True, 0.25)
        """
        fields, kinds = _parsed_kinds(document, {"kinds", "count"})
        return cls.later(read, kinds=kinds, _count=_parsed_count(fields, MOST_REGIONS))

    def _check(self) -> None:
        """What may be wrong with the columns."""
        if not len(self):
            raise PackingError("kind: there is no packing")
        outside = np.flatnonzero((self.kind < 0) | (self.kind >= len(self.kinds)))
        if outside.size:
            raise PackingError(f"kind: row {outside[0]} refers past the list of {len(self.kinds)} kinds")
        order = np.argsort(self.kind, kind="stable")
        used, first = np.unique(self.kind[order], return_index=True)
        if used.size < len(self.kinds):
            unused = min(set(range(len(self.kinds))) - set(used.tolist()))
            raise PackingError(f"kinds[{unused}]: no packing has this kind")
        for kind, rows in zip(self.kinds, np.split(order, first[1:]), strict=True):
            for name in FACTORS:
                dtype = _type(getattr(kind, name))
                bits = getattr(self, name)[rows].view(np.uint64)
                wide = bits >> (8 * dtype.itemsize) if dtype is not None and dtype.itemsize < 8 else 0 * bits
                bad = wide != 0 if dtype is not None else bits != 0
                if dtype is not None:
                    bad |= ~np.isfinite(bits.astype(f"u{dtype.itemsize}").view(dtype))
                if bad.any():
                    what = "nothing" if dtype is None else f"a finite {dtype}"
                    raise PackingError(f"{name}: row {rows[np.argmax(bad)]} does not hold the bits of {what}")


def _of(keys: Sequence[tuple[Packing, int, int]]) -> Packings:
    kinds = {kind: i for i, kind in enumerate(dict.fromkeys(kind for kind, *_ in keys))}
    rows = [(kinds[kind], scale, offset) for kind, scale, offset in keys]
    return Packings(tuple(kinds), *np.array(rows, dtype=np.int64).reshape(len(rows), 3).T.copy())


def _zero(factor: Any) -> Any:
    """The scale or offset in the one packing that represents its kind."""
    return None if factor is None else factor.dtype.type(0)


def _type(factor: Any) -> np.dtype[Any] | None:
    return None if factor is None else factor.dtype


def _type_name(factor: Any) -> str | None:
    return None if factor is None else factor.dtype.name


def _digits(factor: Any) -> int:
    return 0 if factor is None else 2 * factor.dtype.itemsize


def _bits(factor: Any) -> int:
    """The bits of a number, filled up with zeros, as a 64-bit integer."""
    if factor is None:
        return 0
    bits = int.from_bytes(factor.tobytes(), sys.byteorder)
    return bits - (1 << 64) if bits >> 63 else bits


def _numbers(bits: Ints, factor: Any) -> Iterable[Any]:
    """The numbers with these bits, in the type of another one."""
    if factor is None:
        return repeat(None, bits.size)
    dtype = factor.dtype
    numbers: Iterable[Any] = bits.view(np.uint64).astype(f"u{dtype.itemsize}").view(dtype)
    return numbers


def _parsed_kinds(document: object, fields: set[str]) -> tuple[Mapping[str, Any], tuple[Packing, ...]]:
    """The object itself, which has these fields, and the kinds in it."""
    if not isinstance(document, Mapping):
        raise PackingError(f"expected an object of {', '.join(sorted(fields))}; got {document!r:.200}")
    for name in sorted(fields ^ set(document), key=str):
        what = "is missing" if name in fields else "is not expected here"
        raise PackingError(f"{name!s:.200}: the field {what}; there are {', '.join(sorted(fields))}")
    kinds = document["kinds"]
    if not isinstance(kinds, list):
        raise PackingError(f"kinds: {kinds!r:.200} is not a list")
    parsed = tuple(_parsed_kind(kind, i) for i, kind in enumerate(kinds))
    if len(set(parsed)) != len(parsed):
        raise PackingError("kinds: one is listed twice")
    return document, parsed


def _parsed_count(fields: Mapping[str, Any], most: int) -> int:
    count = fields["count"]
    if type(count) is not int or not 0 < count <= most:
        raise PackingError(f"count: {count!r:.200} is not a number from 1 to {most}")
    return count


def _parsed_kind(document: object, i: int) -> Packing:
    if not isinstance(document, Mapping):
        raise PackingError(f"kinds[{i}]: {document!r:.200} is not an object")
    factors: dict[str, Any] = {}
    for name in FACTORS:
        type_name = document.get(name)
        if type_name is not None and (not isinstance(type_name, str) or type_name not in KINDS):
            raise PackingError(f"kinds[{i}].{name}: {type_name!r:.200} is not one of {', '.join(KINDS)}")
        if type_name is not None:
            factors[name] = [type_name, "0x" + "00" * KINDS[type_name].itemsize]
    missing = document.get("missing")
    if isinstance(missing, list) and len(missing) > MOST_MISSING:
        raise PackingError(f"kinds[{i}].missing: {len(missing)} values; at most {MOST_MISSING} are possible")
    try:
        return Packing.from_json({**document, **factors})
    except PackingError as error:
        raise PackingError(f"kinds[{i}].{error}") from None


def _parsed_columns(document: Mapping[str, Any], kinds: tuple[Packing, ...]) -> tuple[Ints, Ints, Ints]:
    kind = document["kind"]
    if not isinstance(kind, list) or not set(map(type, kind)) <= {int}:
        raise PackingError("kind: expected a list of integers")
    if not all(0 <= k < len(kinds) for k in kind):
        raise PackingError(f"kind: it refers past the list of {len(kinds)} kinds")
    columns = [np.array(kind, dtype=np.int64)]
    for name in FACTORS:
        listed = document[name]
        if not isinstance(listed, list) or len(listed) != len(kind):
            raise PackingError(
                f"{name}: expected a list of {len(kind)} strings or nulls, as many as kind has"
            )
        digits = [_digits(getattr(k, name)) for k in kinds]
        spelled = [re.compile(f"0x[0-9a-fA-F]{{{n}}}") if n else None for n in digits]
        bits = np.zeros(len(kind), dtype=np.uint64)
        for row, (k, text) in enumerate(zip(kind, listed, strict=True)):
            pattern = spelled[k]
            if pattern is None:
                if text is not None:
                    raise PackingError(f"{name}: row {row} holds {text!r:.200}, where its kind has none")
            elif not isinstance(text, str) or not pattern.fullmatch(text):
                raise PackingError(
                    f"{name}: row {row} holds {text!r:.200}, not 0x and {digits[k]} hexadecimal digits"
                )
            else:
                bits[row] = int(text, 16)
        columns.append(bits.view(np.int64))
    return columns[0], columns[1], columns[2]


NO_PACKINGS = Packings((), *np.zeros((3, 0), dtype=np.int64))


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


def can_hold(manifest: Manifest, packing: Packing) -> bool:
    """Whether the array can hold all values of a packing; arrays with nulls take no packings."""
    own, values = values_dtype(manifest.data_type), packing.values
    # NumPy calls conversions of 64-bit integers to floats, and of numbers to texts, safe; they are not.
    long = values.kind in "iu" and values.itemsize == 8 and own.kind not in "iu"
    if is_nullable(manifest.data_type) or own.kind not in "iufc" or long:
        return False
    return bool(np.can_cast(values, own, "safe"))
