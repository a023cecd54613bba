"""Fetching from Icechunk, wherever its repository lies: many chunks a call, virtual ones as well."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import zarr
from zarr.core.buffer import default_buffer_prototype

from intarsia._compat import get_many
from intarsia.array.fetch.coalesce import coalesced
from intarsia.array.fetch.references import References, load
from intarsia.array.fetch.store import KeyRange, Started, requests_of
from intarsia.parallel import check_store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from icechunk import IcechunkStore
    from zarr.abc.store import ByteRequest

    from intarsia.array.fetch.fetcher import Fetcher, Pending, Spans
    from intarsia.array.source import Source
    from intarsia.array.table import Ints

__all__ = ["IcechunkBatch"]

KEYS_PER_CALL = 50
KEYS_AT_A_TIME = 10
"""Icechunk works on so many keys of a call at a time (`get_partial_values_concurrency`)."""

REQUESTS_PER_CHUNK = 4
"""zarr's `async.concurrency` counts chunks that are fetched and decoded at a time. Requests mostly wait, so
there are this many times as many of them."""

MOST_CHUNKS_LISTED = 50_000
"""The references of a member with more chunks than this are listed only if a good part of them is wanted."""

WORTH_LISTING = 8

MEMBERS_LISTED_AT_A_TIME = 32
"""Listing the chunks of a member means reading its part of the snapshot, from afar."""


class IcechunkBatch:
    """A session of Icechunk; what a read-only one says about its chunks is asked for once and kept."""

    in_threads = False

    def __init__(
        self, store: IcechunkStore, *, read_only: bool, listed_at_a_time: int = MEMBERS_LISTED_AT_A_TIME
    ) -> None:
        self.store = store
        self.lasting = read_only
        self._listed_at_a_time = listed_at_a_time
        requests = REQUESTS_PER_CHUNK * zarr.config.get("async.concurrency")
        self._gate = asyncio.Semaphore(max(1, requests // KEYS_AT_A_TIME))  # of calls
        self.name = "Icechunk, in batches"

    def sizes(self, sources: Sequence[tuple[Source, Ints]]) -> list[Ints | None]:
        if not self.lasting:
            return [None] * len(sources)
        unknown = {
            source.path: source
            for source, blob in sources
            if source.references is None
            and (source.blobs <= MOST_CHUNKS_LISTED or blob.size * WORTH_LISTING >= source.blobs)
        }
        if unknown:
            listed = load(self.store, list(unknown.values()), self._listed_at_a_time)
            for source, found in zip(unknown.values(), listed, strict=True):
                source.references = found
        return [
            source.references.sizes(blob) if isinstance(source.references, References) else None
            for source, blob in sources
        ]

    def for_member(self, source: Source) -> Fetcher:
        return self

    def begin(self, spans: Sequence[Spans]) -> Pending:
        check_store(self.store)
        joined, parts = coalesced(spans)
        return Started(self._get(list(requests_of(joined)), parts))

    async def _get(self, wanted: list[KeyRange], parts: Callable[[list[Any]], list[Any]]) -> list[Any]:
        calls = [wanted[i : i + KEYS_PER_CALL] for i in range(0, len(wanted), KEYS_PER_CALL)]
        return parts([item for found in await asyncio.gather(*map(self._call, calls)) for item in found])

    async def _call(self, wanted: list[KeyRange]) -> list[Any]:
        """One batch. What comes back as None, or fails, is asked for again alone: only then Icechunk tells
        a chunk that is not stored from one that cannot be read."""
        async with self._gate:
            try:
                found: list[Any] = await get_many(self.store, [(key, _range(r)) for key, r in wanted])
            except Exception:
                found = [None] * len(wanted)
        doubtful = [i for i, item in enumerate(found) if item is None]
        if doubtful:
            alone = [self.get_one(*wanted[i]) for i in doubtful]
            for i, item in zip(doubtful, await asyncio.gather(*alone, return_exceptions=True), strict=True):
                found[i] = item
        return found

    async def get_one(self, key: str, byte_range: ByteRequest | None) -> Any:
        """One value, None if it is not stored; raises if it cannot be read."""
        found = await self.store.get(key, default_buffer_prototype(), byte_range)
        return None if found is None else found.as_numpy_array()


def _range(byte_range: Any) -> tuple[int | None, int | None]:
    if byte_range is None:
        return None, None
    suffix = getattr(byte_range, "suffix", None)
    return (None, suffix) if suffix is not None else (byte_range.start, byte_range.end)
