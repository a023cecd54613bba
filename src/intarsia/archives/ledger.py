"""What was ingested already: the ledger of the sources, and the dataset that it stands in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import zarr
from zarr.codecs import ZstdCodec

from intarsia.archives.cf import decoded_fill_attribute
from intarsia.array.attributes import UNLIMITED_KEY, with_floats
from intarsia.array.document import MANIFEST_KEY
from intarsia.array.hierarchy import LEDGER, open_group
from intarsia.array.logical_group import LogicalGroup
from intarsia.array.table import RegionTable
from intarsia.errors import IngestError, IntarsiaError
from intarsia.words import one_line

if TYPE_CHECKING:
    from intarsia.array.table import Ints

HEAD = "head"
"""Name of the array in it that holds what is small: JSON, as bytes."""

DOCUMENT = "document"
"""Name of the array that held everything, as JSON, in versions 1 and 2."""

SOURCES, CLAIMS, INDEX = "sources", "claims", "index"
"""Names of the arrays with a row for each source, for each claim, and for each source that is indexed."""

MOST_MEMBERS = 1_000
"""Encodings of a variable that are remembered; if one returns after more others, it gets a new member."""

ROWS_A_CHUNK = 1 << 10
"""A file more writes the last chunk again: a few kilobytes. A million files are a thousand chunks."""

INDEX_CHUNK = 1 << 17
"""A megabyte: of a million files, eight requests tell whether one is known."""

MOST_HITS = 64
"""So many sources are looked up one by one."""

INDEX_LAG = 1 << 12
"""The index is brought up to date when so many files are not in it; these are looked up by their names."""

END_STEPS = 2
"""Steps of an axis that are looked at where files go behind it: they tell whether it rises or falls."""

VERSION = 3
DESCRIPTION = "the sources of this dataset, what each shows of it, and the member of every encoding"


DAMAGE = (
    ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError, RecursionError, RuntimeError
)  # fmt: skip
"""What documents and chunks raise that are not as they were written; a failing store raises others."""


class Rows(NamedTuple):
    """How many rows stand in the arrays of a ledger."""

    files: int
    claims: int


NOTHING = Rows(0, 0)


@dataclass
class Ledger:
    """The sources, which part of the dataset each shows, and the member of every encoding.

    It stands in a group beside the arrays, so that a later call knows which files are new.
    """

    dims: tuple[str, ...] = ()
    """The dimensions along which the dataset grows."""

    locations: list[str] = field(default_factory=list)
    contents: list[str] = field(default_factory=list)
    """What identifies the content that each had."""

    moments: list[float | None] = field(default_factory=list)
    """When each was changed last, in seconds since 1970; None where its store does not say."""

    variables: list[str] = field(default_factory=list)
    """What the sources hold."""

    claims: RegionTable = field(default_factory=lambda: RegionTable.from_rows([], 1))
    """What each shows: sources by number, boxes of the axes; the last axis counts variables."""

    members: dict[str, dict[str, str]] = field(default_factory=dict)
    """For every variable: the member that holds an encoding, by the encoding's digest."""

    dropped_attrs: dict[str, list[str]] = field(default_factory=dict)
    """Attributes in which sources contradict one another, by variable; those of the dataset by ""."""

    stacked: dict[str, tuple[str, int]] = field(default_factory=dict)
    """For every variable that is stacked: the array, and the step of its first axis."""

    unread: Rows = NOTHING
    """Rows that stand before those that are here, and stay as they are."""

    stored: Ledger | None = field(default=None, compare=False, repr=False)
    """What is in the store, of which only what differs is written; None if nobody knows."""

    def array_of(self, variable: str) -> str:
        """The array that shows a variable."""
        return self.stacked[variable][0] if variable in self.stacked else variable

    @property
    def count(self) -> int:
        """Number of all sources."""
        return self.unread.files + len(self.locations)

    @classmethod
    def read(cls, group: zarr.Group, *, rows: bool = True) -> Ledger:
        """The ledger of a dataset, or without its `rows` only what is small; an empty one if it has none."""
        try:
            if LEDGER not in group:
                return cls()
            node: Any = group[LEDGER]
            version = node.attrs.get("version")
            if version not in (1, 2, VERSION):
                place = group.store_path
                raise IngestError(
                    f"the ledger of {place} has version {version}, which this intarsia does not read"
                )
            ledger = cls._parsed(version, node, rows=rows)
            ledger._check()
        except DAMAGE as why:
            if isinstance(why, IntarsiaError):
                raise
            reason = f"{type(why).__name__}: {one_line(why)}"
            raise IngestError(f"the ledger of {group.store_path} is damaged: {reason}") from why
        return ledger

    @classmethod
    def _parsed(cls, version: int, node: Any, *, rows: bool) -> Ledger:
        if version == 1:
            return cls._from_version_1(str(node.attrs["concat_dim"]), _read_json(node[DOCUMENT]))
        dims = tuple(node.attrs["concat_dims"])
        if version == 2:
            document = _read_json(node[DOCUMENT])
            listed, rank = document.pop("claims"), len(dims) + 1
            file, *ends = (np.array(listed[name], dtype=np.int64) for name in ("file", "start", "stop"))
            start, stop = (each.reshape(len(file), rank) for each in ends)
            return cls(dims, **document, claims=RegionTable.of(file, start, stop, np.zeros_like(start)))
        head = _read_json(node[HEAD])
        ledger = cls(dims, claims=RegionTable.from_rows([], len(dims) + 1), **head)
        if not rows:
            ledger.unread = Rows(node[SOURCES].shape[0], node[CLAIMS].shape[0])
        elif node[SOURCES].shape[0]:
            locations, contents, moments = np.asarray(node[SOURCES][...]).T.tolist()
            ledger.locations, ledger.contents = locations, contents
            ledger.moments = [float(moment) if moment else None for moment in moments]
            ledger.claims = _claims_of(np.asarray(node[CLAIMS][...]))
        # its lists are never changed in place, but replaced
        ledger.stored = replace(ledger, members={name: dict(own) for name, own in ledger.members.items()})
        return ledger

    def _check(self) -> None:
        """Raise ValueError unless the parts fit together, and are of the types they say."""
        sources = len(self.locations)
        for name in ("locations", "contents", "variables"):
            listed = getattr(self, name)
            if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
                raise ValueError(f"{name} is no list of texts")
        if not (isinstance(self.moments, list) and sources == len(self.contents) == len(self.moments)):
            raise ValueError(f"{sources} sources have {len(self.contents)} contents")
        if not all(moment is None or isinstance(moment, int | float) for moment in self.moments):
            raise ValueError("moments are no times")
        if not all(isinstance(dim, str) for dim in self.dims):
            raise ValueError("concat_dims are no names")
        for name in ("members", "stacked", "dropped_attrs"):
            if not isinstance(getattr(self, name), dict):
                raise ValueError(f"{name} is no object")
        claims = self.claims
        if len(claims) and not (claims.member.min() >= 0 and claims.member.max() < self.count):
            raise ValueError(f"claims name a source that is none of {self.count}")
        if (claims.start < 0).any() or (claims.stop < claims.start).any():
            raise ValueError("claims end before they start")

    @classmethod
    def _from_version_1(cls, dim: str, document: dict[str, Any]) -> Ledger:
        """What was written when sources lay one behind the other, on one axis."""
        locations, lengths, members = (document[key] for key in ("locations", "lengths", "members"))
        ends = np.cumsum([0, *lengths], dtype=np.int64)
        variables = np.zeros(len(lengths), dtype=np.int64)
        start = np.stack([ends[:-1], variables], axis=1)
        stop = np.stack([ends[1:], variables + max(len(members), 1)], axis=1)
        table = RegionTable.of(np.arange(len(lengths)), start, stop, np.zeros_like(start))
        moments: list[float | None] = [None] * len(locations)
        return cls((dim,), locations, document["contents"], moments, list(members), table, members)

    def shown(self, number: int) -> set[str]:
        """The variables of which a source shows something."""
        rows = np.flatnonzero(self.claims.member == number)
        ends = zip(self.claims.start[rows, -1].tolist(), self.claims.stop[rows, -1].tolist(), strict=True)
        return {name for a, b in ends for name in self.variables[a:b]}

    def write(self, group: zarr.Group) -> None:
        """Put the ledger in its place: what is there already, and stays, is not written again."""
        node, before = group.require_group(LEDGER), self.stored
        attrs: dict[str, Any] = {
            "version": VERSION,
            "concat_dims": list(self.dims),
            "description": DESCRIPTION,
        }
        if node.attrs.asdict() != attrs:
            node.attrs.put(attrs)
        if DOCUMENT in node:
            del node[DOCUMENT]
        head = self._head()
        if before is None or head != before._head():
            data = np.frombuffer(head, dtype=np.uint8)
            array = node.create_array(
                HEAD, shape=data.shape, dtype=data.dtype, chunks=data.shape, fill_value=0,
                compressors=ZstdCodec(level=3), overwrite=True,
            )  # fmt: skip
            array[...] = data
        files, claims = (0, 0) if before is None else (self._same_files(before), self._same_claims(before))
        texts = np.array(self._source_rows(files), dtype=np.dtypes.StringDType()).reshape(-1, 3)
        set_rows(node, SOURCES, self.unread.files + files, texts, before is None)
        set_rows(node, CLAIMS, self.unread.claims + claims, _columns(self.claims)[claims:], before is None)
        self._write_index(node, self.unread.files + files)

    def _head(self) -> bytes:
        members = {name: dict(list(known.items())[-MOST_MEMBERS:]) for name, known in self.members.items()}
        head: dict[str, Any] = {
            "variables": self.variables, "stacked": self.stacked, "members": members
        }  # fmt: skip
        if self.dropped_attrs:
            head["dropped_attrs"] = self.dropped_attrs
        return json.dumps(head, separators=(",", ":")).encode()

    def _source_rows(self, first: int) -> list[tuple[str, str, str]]:
        moments = ("" if moment is None else repr(moment) for moment in self.moments[first:])
        return list(zip(self.locations[first:], self.contents[first:], moments, strict=True))

    def _same_files(self, before: Ledger) -> int:
        """How many sources, from the first on, are in the store as they are here."""
        for names in ("locations", "contents", "moments"):
            if getattr(self, names)[: len(before.locations)] != getattr(before, names):
                mine = zip(self.locations, self.contents, self.moments, strict=True)
                theirs = zip(before.locations, before.contents, before.moments, strict=True)
                same = (a == b for a, b in zip(mine, theirs, strict=False))
                return sum(1 for _ in takewhile(bool, same))
        return len(before.locations)

    def _same_claims(self, before: Ledger) -> int:
        mine, theirs = _columns(self.claims), _columns(before.claims)
        if mine.shape[1] != theirs.shape[1]:
            return 0
        return same_rows(mine, theirs)

    def _write_index(self, node: Any, kept: int) -> None:
        """Bring the index up to date now and then; what it says of sources that changed is taken back."""
        index = node.get(INDEX)
        known = 0 if index is None else int(index.shape[0])
        valid = min(known, kept)
        if valid == known and self.count - known < INDEX_LAG:
            if index is None:
                set_rows(node, INDEX, 0, np.empty(0, dtype=np.uint64), False, INDEX_CHUNK)
            return
        first = min(valid, self.unread.files)
        names = self._locations_from(node, first)
        marks = np.array([mark_of(url) for url in names[valid - first :]], dtype=np.uint64)
        set_rows(node, INDEX, valid, marks, False, INDEX_CHUNK)

    def _locations_from(self, node: Any, first: int) -> list[str]:
        if first >= self.unread.files:
            return self.locations[first - self.unread.files :]
        stored = np.asarray(node[SOURCES][first : self.unread.files, 0]).tolist()
        return [*stored, *self.locations]


def entries_of(group: zarr.Group, urls: Sequence[str]) -> dict[str, tuple[int, str]]:
    """Of these sources those that a dataset knows: their numbers, and what identified their content.

    A few are looked up in the index, which costs the same whatever the ledger holds.
    """
    node: Any = group.get(LEDGER, None)
    if node is None:
        return {}
    wanted, hits, marks = set(urls), [0], np.empty(0, dtype=np.uint64)
    if node.attrs.get("version") == VERSION:
        marks = np.asarray(node[INDEX][...])
        asked = np.array([mark_of(url) for url in wanted], dtype=np.uint64)
        hits = np.flatnonzero(np.isin(marks, asked)).tolist()
    if len(hits) > MOST_HITS or node.attrs.get("version") != VERSION:
        ledger = Ledger.read(group)
        known = zip(ledger.locations, ledger.contents, strict=True)
        return {url: (i, content) for i, (url, content) in enumerate(known) if url in wanted}
    found = {}
    for first, rows in ((i, node[SOURCES][i : i + 1]) for i in hits):  # two names may have one mark
        for number, (url, content, _) in enumerate(np.asarray(rows).tolist(), start=first):
            if url in wanted:
                found[url] = number, content
    for number, (url, content, _) in enumerate(np.asarray(node[SOURCES][len(marks) :]).tolist(), len(marks)):
        if url in wanted:
            found[url] = number, content
    return found


def mark_of(url: str) -> int:
    """The number by which a source stands in the index.

    >>> mark_of("file:///data/a.nc")
    17324501145922268550
    """
    return int.from_bytes(blake2b(url.encode(), digest_size=8).digest(), "little")


def set_rows(
    node: Any, name: str, first: int, rows: np.ndarray[Any, Any], anew: bool, chunk: int = ROWS_A_CHUNK
) -> None:
    """Make an array end with these rows, from `first` on; what stands before them stays as it is."""
    array = None if anew else node.get(name)
    if array is None or array.shape[1:] != rows.shape[1:]:
        texts = isinstance(rows.dtype, np.dtypes.StringDType)
        made = node.create_array(
            name, shape=rows.shape, dtype="string" if texts else rows.dtype, chunks=(chunk, *rows.shape[1:]),
            compressors=ZstdCodec(level=3), overwrite=True,
        )  # fmt: skip
        made[...] = rows
        return
    total = first + len(rows)
    if array.shape[0] != total:
        array.resize((total, *array.shape[1:]))
    if len(rows):
        array[first:] = rows


def same_rows(mine: Ints, theirs: Ints) -> int:
    """How many rows, from the first on, two tables have in common.

    >>> same_rows(np.array([[1], [2], [3]]), np.array([[1], [2], [4]]))
    2
    """
    both = min(len(mine), len(theirs))
    differs = (mine[:both] != theirs[:both]).any(axis=1)
    return int(np.argmax(differs)) if differs.any() else both


def _read_json(array: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(np.asarray(array[...]).tobytes())
    return document


def _columns(claims: RegionTable) -> Ints:
    return np.column_stack([claims.member, claims.start, claims.stop])


def _claims_of(columns: Ints) -> RegionTable:
    file, ends = np.ascontiguousarray(columns[:, 0]), columns[:, 1:]
    start, stop = (np.ascontiguousarray(each) for each in np.split(ends, 2, axis=1))
    return RegionTable.of(file, start, stop, np.zeros_like(start))


@dataclass
class Dataset:
    """A dataset in a repository: what is there already; nothing, for a new one."""

    ledger: Ledger = field(default_factory=Ledger)
    """Its sources."""

    logical_groups: dict[str, LogicalGroup] = field(default_factory=dict)
    """Its logical arrays."""

    plain: dict[str, Any] = field(default_factory=dict)
    """Its coordinates and other loaded arrays."""

    group_attrs: dict[str, Any] = field(default_factory=dict)
    """The attributes of the group that it is."""

    groups: set[str] = field(default_factory=set)
    """Names of other groups, such as datasets below this one."""

    origin: int = 0
    """Steps along the dimension that grows that are not looked at: what is here begins after them."""

    @property
    def is_new(self) -> bool:
        return not self.ledger.count

    @classmethod
    def read(cls, store: Any, path: str) -> Dataset:
        """The dataset at a path of a store."""
        group = _group(store, path)
        if group is None:
            return cls()
        return cls._with_children(group, Ledger.read(group))

    @classmethod
    def _with_children(cls, group: zarr.Group, ledger: Ledger, *, later: bool = False) -> Dataset:
        dataset = cls(ledger, group_attrs=_own_attributes(group))
        for name, child in group.members():
            if isinstance(child, zarr.Array):
                dataset.plain[name] = child
            elif MANIFEST_KEY in child.attrs:
                dataset.logical_groups[name] = LogicalGroup.load(child, later=later)
            else:
                dataset.groups.add(name)
        return dataset

    @classmethod
    def read_end(cls, store: Any, path: str, urls: Sequence[str]) -> Dataset | None:
        """The end of the dataset: all that files need which go behind it, whatever lies before.

        None if files do not go there by a coordinate along one dimension, or some of these are known.
        """
        group = _group(store, path)
        ledger = Ledger() if group is None else Ledger.read(group, rows=False)
        if group is None or len(ledger.dims) != 1 or not ledger.unread.files or entries_of(group, urls):
            return None
        dataset, dim = cls._with_children(group, ledger, later=True), ledger.dims[0]
        axis = dataset.plain.get(dim)
        if axis is None or axis.ndim != 1 or axis.shape[0] <= END_STEPS:
            return None
        for name, array in dataset.plain.items():
            along = dataset.dims(name)
            if dim in along and array.shape[along.index(dim)] != axis.shape[0]:
                return None
        for logical in dataset.logical_groups.values():
            manifest = logical.manifest
            names = list(manifest.dimension_names or ())
            place = names.index(dim) if dim in names else None
            known = None if place is None else (manifest.shape[place], manifest.chunk_shape[place])
            if known not in (None, (axis.shape[0], 1)):
                return None
        dataset.origin = axis.shape[0] - END_STEPS
        return dataset

    @staticmethod
    def entries(store: Any, path: str, urls: Sequence[str]) -> dict[str, tuple[int, str]]:
        """Of these sources those that the dataset knows, by number, and what identified their content."""
        group = _group(store, path)
        return {} if group is None else entries_of(group, urls)

    @staticmethod
    def read_ledger(store: Any, path: str) -> Ledger:
        """Only the ledger of the dataset."""
        group = _group(store, path)
        return Ledger() if group is None else Ledger.read(group)

    def all_attrs(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The attributes of everything in it, by name; those of the dataset itself by an empty one."""
        yield "", with_floats(self.group_attrs)
        for name, logical in self.logical_groups.items():
            yield name, with_floats(dict(logical.group.attrs))
        for name in self.plain:
            yield name, with_floats(self.attrs(name))

    def values(self, name: str) -> np.ndarray[Any, Any]:
        """The stored values of a plain array, from the origin on."""
        dims = self.dims(name)
        where = [slice(self.origin if dim in self.ledger.dims else 0, None) for dim in dims]
        return np.asarray(self.plain[name][tuple(where)])

    def dims(self, name: str) -> tuple[str, ...]:
        """The names of a plain array's axes."""
        return tuple(str(dim) for dim in self.plain[name].metadata.dimension_names or ())

    def attrs(self, name: str) -> dict[str, Any]:
        """The attributes of a plain array."""
        array: zarr.Array[Any] = self.plain[name]
        attrs: dict[str, Any] = dict(array.metadata.attributes)
        if "_FillValue" in attrs:
            attrs["_FillValue"] = decoded_fill_attribute(attrs["_FillValue"], array.dtype)
        return attrs


def _own_attributes(group: zarr.Group) -> dict[str, Any]:
    """What files said of the dataset."""
    return {key: value for key, value in group.attrs.items() if key != UNLIMITED_KEY}


def _group(store: Any, path: str) -> zarr.Group | None:
    try:
        group = open_group(store, path, "r" if getattr(store, "read_only", False) else "r+")
    except FileNotFoundError:
        return None
    except ValueError as error:  # an array stands there
        raise IngestError(f"{path!r} is an array: a dataset needs a group of its own") from error
    if MANIFEST_KEY in group.attrs:
        raise IngestError(
            f"{path!r} is a logical array itself; a dataset is a group that holds some.\n"
            "  Choose another group: intarsia.ingest(…, group='name')"
        )
    return group
