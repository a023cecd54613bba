"""How large the stored chunks of members are, asked of the store without reading them."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from icechunk import IcechunkStore
from zarr.core.sync import sync
from zarr.storage import LocalStore

from intarsia._icechunk import chunk_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import zarr

    from intarsia.array.table import Ints
    from intarsia.report.facts import MemberFacts

__all__ = ["StoredChunks", "requests_needed", "stored_chunks"]

AT_ONCE = 256
"""Sizes requested together."""


@dataclass(frozen=True, eq=False)
class StoredChunks:
    """The chunks of one member that exist, and their sizes.

    >>> import numpy as np
    >>> chunks = StoredChunks(np.array([[0], [1], [2]]), np.array([10, 20, 30]))
    >>> chunks.within((1,), (3,)).tolist()
    [1, 2]
    """

    index: Ints
    """Position in the member's grid of stored objects; shape (chunks, dimensions)."""

    nbytes: Ints
    """Size in the store; shape (chunks,)."""

    def within(self, start: Sequence[int], stop: Sequence[int]) -> Ints:
        """Rows of the chunks in a box of the grid."""
        inside = np.all((self.index >= start) & (self.index < stop), axis=1)
        return np.flatnonzero(inside)

    @property
    def total(self) -> int:
        """All sizes together."""
        return int(self.nbytes.sum())


def requests_needed(store: Any, facts: Iterable[MemberFacts]) -> int:
    """How many requests `stored_chunks` would send: what it costs before it is paid.

    >>> requests_needed(LocalStore("nowhere"), [])
    0
    """
    if isinstance(store, IcechunkStore):  # its own manifest holds all sizes of an array
        return sum(1 for _ in facts)
    return sum(prod(_grid(fact)) for fact in facts)


def stored_chunks(group: zarr.Group, facts: Sequence[MemberFacts]) -> tuple[StoredChunks, ...]:
    """The stored chunks of every member.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="u1")
    >>> array.append([1, 2, 3, 4], codecs=[])
    >>> from intarsia.report.facts import read_facts
    >>> facts = read_facts(array.group, array.manifest.members, 1)
    >>> stored_chunks(array.group, facts)[0].nbytes.tolist()
    [2, 2]
    """
    found: list[StoredChunks] = sync(_all(group, facts))
    return tuple(found)


async def _all(group: zarr.Group, facts: Sequence[MemberFacts]) -> list[StoredChunks]:
    limit = asyncio.Semaphore(AT_ONCE)
    prefix = f"{group.path}/" if group.path else ""
    store: Any = group.store

    async def one(fact: MemberFacts) -> StoredChunks:
        if fact.problem:
            return _collected([], len(fact.grain))
        path = prefix + fact.name
        if isinstance(store, IcechunkStore):
            async with limit:
                return await asyncio.to_thread(_from_icechunk, store, path, len(fact.grain))
        if isinstance(store, LocalStore):
            return await asyncio.to_thread(_from_files, os.fspath(store.root), path, fact)
        return await _from_sizes(store, path, fact, limit)

    return await asyncio.gather(*(one(fact) for fact in facts))


def _grid(fact: MemberFacts) -> tuple[int, ...]:
    return tuple(-(-n // g) for n, g in zip(fact.shape, fact.grain, strict=True))


def _collected(found: list[tuple[tuple[int, ...], int]], ndim: int) -> StoredChunks:
    found.sort()
    index = np.array([i for i, _ in found], dtype=np.int64).reshape(len(found), ndim)
    return StoredChunks(index, np.array([n for _, n in found], dtype=np.int64))


def _from_icechunk(store: IcechunkStore, path: str, ndim: int) -> StoredChunks:
    indices, sizes = [np.empty((0, ndim), dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for coordinates, _, _, _, lengths, _ in chunk_batches(store, path):
        indices.append(np.asarray(coordinates, dtype=np.int64).reshape(len(lengths), ndim))
        sizes.append(np.asarray(lengths, dtype=np.int64))
    return StoredChunks(np.concatenate(indices), np.concatenate(sizes))


def _from_files(root: str, path: str, fact: MemberFacts) -> StoredChunks:
    """Walks the member's directory: a sparse member may have far more possible chunks than files."""
    top = os.path.join(root, path)
    found = []
    for folder, _, names in os.walk(top):
        below = "" if folder == top else os.path.relpath(folder, top).replace(os.sep, "/") + "/"
        for name in names:
            index = fact.index_of(below + name)
            if index is not None:
                found.append((index, os.stat(os.path.join(folder, name)).st_size))
    return _collected(found, len(fact.grain))


async def _from_sizes(store: Any, path: str, fact: MemberFacts, limit: asyncio.Semaphore) -> StoredChunks:
    async def size(index: tuple[int, ...]) -> tuple[tuple[int, ...], int] | None:
        async with limit:
            try:
                return index, await store.getsize(f"{path}/{fact.key(index)}")
            except FileNotFoundError:
                return None

    if store.supports_listing:
        listed = [fact.index_of(key[len(path) + 1 :]) async for key in store.list_prefix(path + "/")]
        asked: Iterable[tuple[int, ...]] = [index for index in listed if index is not None]
    else:
        asked = product(*(range(n) for n in _grid(fact)))
    found = await asyncio.gather(*(size(index) for index in asked))
    return _collected([item for item in found if item is not None], len(fact.grain))
