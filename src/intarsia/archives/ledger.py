"""The ledger of a dataset: its sources, what each of them shows, and the member of every encoding.

It is stored beside the arrays as a small JSON document, two tables that grow by rows, and an index of names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import zarr
from zarr.codecs import ZstdCodec

from intarsia._compat import sync
from intarsia.display import one_line, place_text
from intarsia.engine.zarr_fallback import read_by_zarr
from intarsia.errors import IngestError, ReadError
from intarsia.logical.hierarchy import LEDGER
from intarsia.manifest.region_table import RegionTable

if TYPE_CHECKING:
    from intarsia.manifest.region_table import Ints


@dataclass
class Ledger:
    """The sources, which part of the dataset each shows, and the member of every encoding.

    It is in a group beside the arrays, so that a later call knows which files are new.
    """

    dims: tuple[str, ...] = ()
    """The dimensions along which the dataset grows."""

    locations: list[str] = field(default_factory=list)
    contents: list[str] = field(default_factory=list)
    """What identified the content of each."""

    modified_times: list[float | None] = field(default_factory=list)
    """When each was last changed, in seconds since 1970; None if its store does not say."""

    variables: list[str] = field(default_factory=list)
    """The variables that the sources hold."""

    file_regions: RegionTable = field(default_factory=lambda: RegionTable.from_rows([], 1))
    """What each shows: sources by number, boxes of the axes; the last axis counts variables."""

    members: dict[str, dict[str, str]] = field(default_factory=dict)
    """For every variable: the member that holds an encoding, by the encoding's digest."""

    dropped_attrs: dict[str, list[str]] = field(default_factory=dict)
    """Attributes on which sources disagree, by variable; "" stands for the dataset."""

    stacked: dict[str, tuple[str, int]] = field(default_factory=dict)
    """For every stacked variable: the array, and the step of its first axis."""

    unread_files: int = 0
    """How many sources come before those that are here; they stay as they are."""

    unread_regions: int = 0
    """How many regions come before those that are here."""

    stored: Ledger | None = field(default=None, compare=False, repr=False)
    """What is in the store, so that only differences are written; None if unknown."""

    @property
    def count(self) -> int:
        """The number of all sources."""
        return self.unread_files + len(self.locations)

    def shown(self, number: int) -> set[str]:
        """The variables of which a source shows any part."""
        own = self.file_regions.select(self.file_regions.member == number)
        ends = zip(own.start[:, -1].tolist(), own.stop[:, -1].tolist(), strict=True)
        return {name for a, b in ends for name in self.variables[a:b]}


HEAD = "head"
"""The name of the array that holds everything small: JSON, as bytes."""

SOURCES, CLAIMS, INDEX = "sources", "claims", "index"
"""The names of the arrays with a row for each source, each region that one shows, and each indexed source."""

MAX_MEMBERS = 1_000
"""How many encodings of a variable are remembered; a forgotten one gets a new member when it returns."""

ROWS_A_CHUNK = 1 << 10
"""Each further file rewrites the last chunk: a few kilobytes. A million files make a thousand chunks."""

INDEX_CHUNK = 1 << 17
"""A megabyte: for a million files, eight requests tell whether one of them is known."""

INDEX_LAG = 1 << 11
"""The index is updated once this many files are missing from it; until then they are looked up by name."""

VERSION = 3
DESCRIPTION = "the sources of this dataset, what each shows of it, and the member of every encoding"

DAMAGE = (
    msgspec.MsgspecError, ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError,
    RecursionError, RuntimeError, MemoryError,
)  # fmt: skip
"""What damaged documents and chunks raise; a failing store raises other errors."""


class LedgerHeader(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The small parts of a ledger, as they are stored."""

    variables: list[str]
    stacked: dict[str, tuple[str, int]]
    members: dict[str, dict[str, str]]
    dropped_attrs: dict[str, list[str]] = {}


def read_ledger(group: zarr.Group | None, *, rows: bool = True) -> Ledger:
    """The ledger of a dataset, or without its `rows` only the small parts; an empty one if it has none."""
    if group is None:
        return Ledger()
    with _named(group):
        node: Any = group.get(LEDGER, None)
        if node is None:
            return Ledger()
        _check_version(group, node)
        dims = msgspec.convert(node.attrs["concat_dims"], tuple[str, ...])
        nothing, width = RegionTable.from_rows([], len(dims) + 1), 1 + 2 * (len(dims) + 1)
        ledger = Ledger(dims, file_regions=nothing, **msgspec.structs.asdict(_read_header(node[HEAD])))
        if not rows:
            ledger.unread_files, ledger.unread_regions = (node[each].shape[0] for each in (SOURCES, CLAIMS))
        elif node[SOURCES].shape[0]:
            ledger.locations, ledger.contents, times = _table(node[SOURCES], 3).T.tolist()
            ledger.modified_times = [float(time) if time else None for time in times]
            ledger.file_regions = _parse_regions(_table(node[CLAIMS], width), len(ledger.locations))
        # its lists are never changed in place, only replaced
        ledger.stored = replace(ledger, members={name: dict(own) for name, own in ledger.members.items()})
        return ledger


def _check_version(group: zarr.Group, node: zarr.Group) -> None:
    version = node.attrs.get("version")
    if version != VERSION:
        raise IngestError(
            f"the ledger of {place_text(group.store_path)} has version {version}, but this intarsia reads "
            f"only version {VERSION}: use a newer intarsia, or ingest the files again, into another group"
        )


@contextmanager
def _named(group: zarr.Group) -> Iterator[None]:
    """Turn any error in here into one that names the ledger of this group."""
    try:
        yield
    except IngestError:
        raise
    except (ReadError, *DAMAGE) as why:
        how = "cannot be read" if isinstance(why, ReadError) else f"is damaged: {type(why).__name__}"
        place = place_text(group.store_path)
        raise IngestError(f"the ledger of {place} {how}: {one_line(why)}") from why


def write_ledger(ledger: Ledger, group: zarr.Group) -> None:
    """Store the ledger: what is already there, and stays, is not written again."""
    node, before = group.require_group(LEDGER), ledger.stored
    attrs: dict[str, Any] = {
        "version": VERSION,
        "concat_dims": list(ledger.dims),
        "description": DESCRIPTION,
    }
    if node.attrs.asdict() != attrs:
        node.attrs.put(attrs)
    header = _encode_header(ledger)
    if before is None or header != _encode_header(before):
        data = np.frombuffer(header, dtype=np.uint8)
        node.create_array(HEAD, data=data, chunks=data.shape, compressors=ZstdCodec(level=3), overwrite=True)
    rows, regions = _source_rows(ledger), _columns(ledger.file_regions)
    files = same = 0
    if before is not None:
        files = common_prefix_length(rows, _source_rows(before))
        same = common_prefix_length(regions, _columns(before.file_regions))
    set_rows(node, SOURCES, ledger.unread_files + files, rows[files:])
    set_rows(node, CLAIMS, ledger.unread_regions + same, regions[same:])
    _write_index(ledger, node, ledger.unread_files + files)


def _encode_header(ledger: Ledger) -> bytes:
    members = {name: dict(list(names.items())[-MAX_MEMBERS:]) for name, names in ledger.members.items()}
    return msgspec.json.encode(LedgerHeader(ledger.variables, ledger.stacked, members, ledger.dropped_attrs))


def _source_rows(ledger: Ledger) -> np.ndarray[Any, Any]:
    times = ["" if time is None else repr(time) for time in ledger.modified_times]
    return np.array([ledger.locations, ledger.contents, times], dtype=np.dtypes.StringDType()).T


def _write_index(ledger: Ledger, node: Any, unchanged: int) -> None:
    """Update the index now and then; entries for sources that changed are removed."""
    index = node.get(INDEX)
    indexed = 0 if index is None else int(index.shape[0])
    valid = min(indexed, unchanged)
    if valid == indexed and ledger.count - indexed < INDEX_LAG:
        if index is None:
            set_rows(node, INDEX, 0, np.empty(0, dtype=np.uint64), INDEX_CHUNK)
        return
    names = ledger.locations[max(0, valid - ledger.unread_files) :]
    if valid < ledger.unread_files:
        names = [*read_by_zarr(node[SOURCES], (slice(valid, ledger.unread_files), 0)).tolist(), *names]
    set_rows(node, INDEX, valid, np.array(list(map(index_key, names)), dtype=np.uint64), INDEX_CHUNK)


def entries_of(group: zarr.Group | None, urls: Sequence[str]) -> dict[str, tuple[int, str]]:
    """Which of these sources a dataset knows: their numbers, and what identified their content."""
    if group is None or not urls:
        return {}
    named = set(urls)
    with _named(group):
        node: Any = group.get(LEDGER, None)
        if node is None:
            return {}
        _check_version(group, node)
        index, sources = node[INDEX], node[SOURCES]
        keys = read_by_zarr(index) if index.shape[0] else np.empty(0, dtype=np.uint64)
        hits = np.flatnonzero(np.isin(keys, np.array(list(map(index_key, named)), dtype=np.uint64)))
        rows = np.concatenate([hits, np.arange(len(keys), sources.shape[0])])  # the last ones are not indexed
        entries = read_by_zarr(sources, (rows, slice(None))).tolist() if rows.size else []
        # two names may have the same key
        numbered = zip(rows.tolist(), entries, strict=True)
        return {url: (number, content) for number, (url, content, _) in numbered if url in named}


def index_key(url: str) -> int:
    """The number that stands for a source in the index.

    >>> index_key("file:///data/a.nc")
    17324501145922268550
    """
    return int.from_bytes(blake2b(url.encode(), digest_size=8).digest(), "little")


def set_rows(node: Any, name: str, first: int, rows: np.ndarray[Any, Any], chunk: int = ROWS_A_CHUNK) -> None:
    """Make an array end with these rows, from `first` on; the rows before them stay as they are."""
    array = node.get(name)
    if array is None or array.shape[1:] != rows.shape[1:]:
        chunks = chunk, *rows.shape[1:]
        node.create_array(name, data=rows, chunks=chunks, compressors=ZstdCodec(level=3), overwrite=True)
        return
    total = first + len(rows)
    if array.shape[0] != total:
        array.resize((total, *array.shape[1:]))
    if len(rows):
        array[first:] = rows


def common_prefix_length(mine: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]) -> int:
    """How many rows, from the first on, two tables have in common.

    >>> common_prefix_length(np.array([[1], [2], [3]]), np.array([[1], [2], [4]]))
    2
    """
    both = min(len(mine), len(theirs))
    differs = (mine[:both] != theirs[:both]).any(axis=1)
    return int(np.argmax(differs)) if differs.any() else both


def _read_header(array: Any) -> LedgerHeader:
    if array.shape != array.chunks:  # it was written as one chunk
        raise ValueError(f"{array.name} has the shape {array.shape}, but chunks of {array.chunks}")
    return msgspec.json.decode(read_by_zarr(array).tobytes(), type=LedgerHeader)


def _table(array: Any, width: int) -> np.ndarray[Any, Any]:
    """All rows of an array that `set_rows` made; if it claims more, an error before anything is read."""
    rows, *others = array.shape
    if others != [width]:
        raise ValueError(f"{array.name} has the shape {array.shape}, but rows of {width} are needed")
    last = ((rows - 1) // array.chunks[0], 0)
    if not sync(array.store.exists(f"{array.path}/{array.metadata.encode_chunk_key(last)}")):
        raise ValueError(f"{array.name} has the shape {array.shape}, but its last chunk {last} is missing")
    return read_by_zarr(array)


def _columns(regions: RegionTable) -> Ints:
    return np.column_stack([regions.member, regions.start, regions.stop])


def _parse_regions(columns: Ints, sources: int) -> RegionTable:
    ndim = columns.shape[1] // 2
    nowhere = np.zeros((len(columns), ndim), dtype=np.int64)
    regions = RegionTable.from_columns(np.column_stack([columns, nowhere]), ndim)
    if not ((regions.member >= 0) & (regions.member < sources)).all():
        raise ValueError(f"claims name a source that is not one of {sources}")
    if (regions.start < 0).any() or (regions.stop < regions.start).any():
        raise ValueError("claims end before they start")
    return regions
