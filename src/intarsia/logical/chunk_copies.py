"""Moving encoded chunks between arrays of equal encoding: bytes as they are stored, never decoded."""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import icechunk
import zarr
from zarr.abc.store import RangeByteRequest
from zarr.core.buffer import Buffer, default_buffer_prototype

from intarsia._compat import concurrent_map, sync
from intarsia._icechunk import VIRTUAL, chunk_table
from intarsia.engine.fetch.fetcher_choice import fetcher_for
from intarsia.engine.fetch.icechunk import IcechunkSession
from intarsia.engine.fetch.icechunk_checksums import Checksum
from intarsia.errors import ReadError

type Index = tuple[int, ...]


class ChunkMove(NamedTuple):
    """One stored chunk to be moved."""

    source: Index
    """Its index in the source's grid."""

    target: Index
    """Its index in the target's grid."""


type ChunkRef = tuple[int, str, int, int, bytes]
"""Where a chunk is: kind, file or URL, offset, length, and the bytes if they are in the manifest itself.

A chunk that two versions have in common has one and the same."""


def chunk_refs(store: icechunk.IcechunkStore, path: str) -> dict[Index, ChunkRef]:
    """Where every stored chunk of an array in a repository is, by index."""
    table = chunk_table(store, path)
    numbers = (column.tolist() for column in (table.index, table.kind, table.offset, table.nbytes))
    rows = enumerate(zip(*numbers, table.location, strict=True))
    return {
        tuple(index): (kind, location, offset, nbytes, table.inlined.get(row, b""))
        for row, (index, kind, offset, nbytes, location) in rows
    }


def copy_chunks(
    source: zarr.Array[Any],
    target: zarr.Array[Any],
    moves: Sequence[ChunkMove],
    change: Callable[[Buffer], Buffer] | None = None,
    *,
    refer_unread: bool = False,
) -> list[Index]:
    """Copy stored chunks; where the source has none, the target has none afterwards. Returns those places.

    The two arrays must have equal encodings, apart from what `change` does to the bytes. Without it,
    references to chunks in other files stay references. With `refer_unread`, files that the source may not
    read are referred to as well, if their checksums are known.

    >>> a = zarr.create_array({}, shape=4, chunks=2, dtype="u1")
    >>> a[:] = [1, 2, 3, 4]
    >>> b = zarr.create_array({}, shape=4, chunks=2, dtype="u1")
    >>> copy_chunks(a, b, [ChunkMove((0,), (1,))])
    []
    >>> b[:].tolist()
    [0, 0, 1, 2]
    """
    reader, virtual = source.store, dict[Index, ChunkRef]()
    into_repository = change is None and isinstance(target.store, icechunk.IcechunkStore)
    if into_repository and isinstance(reader, icechunk.IcechunkStore):
        refs = chunk_refs(reader, source.path).items()
        virtual = {index: ref for index, ref in refs if ref[0] == VIRTUAL}
    if references := [move for move in moves if move.source in virtual]:
        _refer(source, target, references, virtual, refer_unread)
    return sync(_copy(source, target, [move for move in moves if move.source not in virtual], change))


async def _copy(
    source: zarr.Array[Any],
    target: zarr.Array[Any],
    moves: list[ChunkMove],
    change: Callable[[Buffer], Buffer] | None,
) -> list[Index]:
    reader, writer = source.store, target.store
    missing: list[Index] = []

    async def copy(move: ChunkMove) -> None:
        value = await reader.get(_key(source, move.source), default_buffer_prototype())
        if value is None:
            missing.append(move.target)
            await writer.delete(_key(target, move.target))
        else:
            await writer.set(_key(target, move.target), value if change is None else change(value))

    await concurrent_map([(move,) for move in moves], copy, zarr.config.get("async.concurrency"))
    return sorted(missing)


def _key(array: zarr.Array[Any], index: Index) -> str:
    return "/".join(part for part in (array.path, array.metadata.encode_chunk_key(index)) if part)


def _refer(
    source: zarr.Array[Any],
    target: zarr.Array[Any],
    moves: list[ChunkMove],
    refs: dict[Index, ChunkRef],
    refer_unread: bool,
) -> None:
    """Copy references, with their checksums if these are known.

    Otherwise each source is read once: that checks the old reference, and the new one is valid from now on.
    """
    store: Any = target.store
    marks = _checksums(source, () if refer_unread else {refs[move.source][1] for move in moves})
    if marks is None:
        now, first = math.ceil(time.time()), RangeByteRequest(0, 1)  # Icechunk keeps whole seconds
        reads = [(_key(source, move.source), default_buffer_prototype(), first) for move in moves]
        sync(concurrent_map(reads, source.store.get, zarr.config.get("async.concurrency")))
        marks = {move.source: now for move in moves}
    specs = []
    for move in moves:
        _, location, offset, length, _ = refs[move.source]
        mark = marks[move.source]
        etag, moment = (mark, None) if isinstance(mark, str) else (None, mark)
        changed = None if moment is None else datetime.datetime.fromtimestamp(moment, datetime.UTC)
        specs.append(icechunk.VirtualChunkSpec(list(move.target), location, offset, length, etag, changed))
    failed = store.set_virtual_refs(target.path, specs, validate_containers=True)
    if failed:
        uncovered = next(refs[move.source][1] for move in moves if move.target == tuple(failed[0]))
        raise ReadError(
            f"{len(failed)} chunks of {target.path} lie in files that no authorised virtual chunk "
            f"container covers, such as {uncovered}"
        )


def _checksums(source: zarr.Array[Any], urls: Iterable[str]) -> dict[Index, Checksum] | None:
    """The checksums of references; None if they are not known, or if one of these files may not be read."""
    session = fetcher_for(source.store)
    if not isinstance(session, IcechunkSession) or not all(map(session.sources.container_of, urls)):
        return None
    known = session.checksums(source.path, source.ndim)
    return known and dict(zip(map(tuple, known.chunk.tolist()), known.checksum, strict=True))
