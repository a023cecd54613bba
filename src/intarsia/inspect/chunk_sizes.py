"""The stored chunks of an array's members and the size of each, as the store tells them; no chunk is read."""

import asyncio
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import zarr
from icechunk import IcechunkStore
from zarr.storage import LocalStore

from intarsia._compat import concurrent_map, sync
from intarsia._icechunk import VIRTUAL, chunk_table
from intarsia.logical.hierarchy import joined_path
from intarsia.logical.member_metadata import MemberMetadata
from intarsia.manifest.box import chunk_grid
from intarsia.manifest.region_table import Ints

AT_ONCE = 16
"""The number of members that are measured together, and of sizes that are requested for each."""


@dataclass(frozen=True, eq=False)
class ChunkSizes:
    """The chunks of one member that exist, and their sizes.

    >>> import numpy as np
    >>> chunks = ChunkSizes(np.array([[0], [1], [2]]), np.array([10, 20, 30]))
    >>> chunks.within((1,), (3,)).tolist()
    [1, 2]
    """

    index: Ints
    """The positions in the member's grid of stored objects; shape (chunks, dimensions)."""

    nbytes: Ints
    """The stored sizes; shape (chunks,)."""

    referenced: np.ndarray[Any, np.dtype[np.bool_]] | None = None
    """Which of the chunks lie in files elsewhere; None if none does."""

    def within(self, start: Sequence[int], stop: Sequence[int]) -> Ints:
        """The rows of the chunks in a box of the grid."""
        inside = np.all((self.index >= start) & (self.index < stop), axis=1)
        return np.flatnonzero(inside)


def requests_needed(store: Any, metadata: Iterable[MemberMetadata]) -> int:
    """How many requests `measure_chunks` would send: its cost, known in advance.

    >>> requests_needed(LocalStore("nowhere"), [])
    0
    """
    if isinstance(store, IcechunkStore):  # its own manifest holds all sizes of an array
        return sum(1 for _ in metadata)
    return sum(prod(_grid(member)) for member in metadata)


def measure_chunks(group: zarr.Group, metadata: Sequence[MemberMetadata]) -> tuple[ChunkSizes, ...]:
    """The stored chunks of every member, and their sizes.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="u1")
    >>> array.append([1, 2, 3, 4], codecs=[])
    >>> from intarsia.logical.member_metadata import read_member_metadata
    >>> metadata = read_member_metadata(array.group, array.manifest)
    >>> measure_chunks(array.group, metadata)[0].nbytes.tolist()
    [2, 2]
    """
    return tuple(sync(concurrent_map([(group, member) for member in metadata], _measure, AT_ONCE)))


async def _measure(group: zarr.Group, member: MemberMetadata) -> ChunkSizes:
    store: Any = group.store
    path = joined_path(group.path, member.name)
    if member.problem:
        return _sorted_chunks([], len(member.grain))
    if isinstance(store, IcechunkStore):
        return await asyncio.to_thread(_from_icechunk, store, path, len(member.grain))
    if isinstance(store, LocalStore):
        return await asyncio.to_thread(_from_files, os.fspath(store.root), path, member)
    return await _from_sizes(store, path, member)


def _grid(member: MemberMetadata) -> tuple[int, ...]:
    return chunk_grid(member.shape, member.grain)


def _sorted_chunks(sizes: list[tuple[tuple[int, ...], int]], ndim: int) -> ChunkSizes:
    sizes.sort()
    index = np.array([i for i, _ in sizes], dtype=np.int64).reshape(len(sizes), ndim)
    return ChunkSizes(index, np.array([n for _, n in sizes], dtype=np.int64))


def _from_icechunk(store: IcechunkStore, path: str, ndim: int) -> ChunkSizes:
    table = chunk_table(store, path, ndim)
    referenced = table.kind == VIRTUAL
    return ChunkSizes(table.index, table.nbytes, referenced if referenced.any() else None)


def _from_files(root: str, path: str, member: MemberMetadata) -> ChunkSizes:
    """Walk the member's directory: a sparse member may have far fewer files than possible chunks."""
    top = os.path.join(root, path)
    sizes = []
    for folder, _, names in os.walk(top):
        below = "" if folder == top else os.path.relpath(folder, top).replace(os.sep, "/") + "/"
        for name in names:
            index = member.index_of(below + name)
            if index is not None:
                sizes.append((index, os.stat(os.path.join(folder, name)).st_size))
    return _sorted_chunks(sizes, len(member.grain))


async def _from_sizes(store: Any, path: str, member: MemberMetadata) -> ChunkSizes:
    async def size(index: tuple[int, ...]) -> tuple[tuple[int, ...], int] | None:
        try:
            return index, await store.getsize(f"{path}/{member.key_encoding.encode_chunk_key(index)}")
        except FileNotFoundError:
            return None

    if store.supports_listing:
        keys = [member.index_of(key[len(path) + 1 :]) async for key in store.list_prefix(path + "/")]
        indices: Iterable[tuple[int, ...]] = [index for index in keys if index is not None]
    else:
        indices = np.ndindex(_grid(member))
    sizes = await concurrent_map(((index,) for index in indices), size, AT_ONCE)
    return _sorted_chunks([item for item in sizes if item is not None], len(member.grain))
