"""Fetching encoded chunks: what reads ask of a store, and how any store of zarr's answers.

Memory is read in the thread that decodes; everything else goes through zarr's event loop, many requests at a
time. Files on this machine have their own ways, see `local_files.py`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import zarr
from zarr.abc.store import ByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import MemoryStore

from intarsia._compat import event_loop, store_supports_sync_io
from intarsia.engine.fetch.byte_ranges import REMOTE, Limits, coalesce_spans
from intarsia.file_io import read_exactly, read_rest
from intarsia.parallel import check_store

if TYPE_CHECKING:
    from intarsia.engine.prepared_member import EngineMember
    from intarsia.manifest.region_table import Ints

type Encoded = Any
"""Bytes as they are stored: anything with the buffer protocol, or a `FileSpan` that has not been read yet."""


class ByteRanges(NamedTuple):
    """Bytes of one member's stored objects: whole objects, or a range of each."""

    source: EngineMember
    """The member."""

    object_index: Ints
    """Which objects: positions in the member's grid of stored chunks (or shards), in C order."""

    start: Ints | None = None
    """The first byte of each; negative numbers count from the end. None means whole objects."""

    nbytes: Ints | None = None
    """The length of each range; None with whole objects."""

    within: Ints | None = None
    """Which inner chunk of each shard is meant, in C order, if the fetcher looks them up: `start` counts from
    its first byte. None if bytes of the object itself are meant."""

    def select(self, which: Any) -> ByteRanges:
        """Some of them."""
        columns = self.start, self.nbytes, self.within
        others = (None if column is None else column[which] for column in columns)
        return ByteRanges(self.source, self.object_index[which], *others)


class Cost(NamedTuple):
    """What a fetch costs."""

    requests: int
    """How many requests the store gets, or how often a file is read."""

    nbytes: int | None
    """The number of bytes that arrive; None if that is not known beforehand."""


class PendingBytes(Protocol):
    """Bytes that are on their way."""

    @property
    def arrival(self) -> Future[Any] | None:
        """Done when they have arrived; None if they are read in the thread that decodes them."""

    def __iter__(self) -> Generator[Encoded | None]:
        """The bytes in the requested order, None for what is not stored; raises at a range that could not be
        read."""

    def cancel(self) -> None:
        """Give up; nothing is left running."""


class Fetcher(Protocol):
    """One way to get encoded chunks of members out of a store."""

    name: str
    """What `explain` calls it."""

    in_threads: bool
    """Whether bytes are read one by one in the thread that decodes them, so that nothing is held ahead."""

    def request_numbers(self, spans: Sequence[ByteRanges]) -> list[Ints] | None:
        """For each range of all members, the number of its request; ranges that come together share one.
        Numbers rise in the best order for requests. None if it does not matter."""

    def cost(self, spans: Sequence[ByteRanges]) -> Cost:
        """What `begin` with the same ranges would cost."""

    def begin(self, spans: Sequence[ByteRanges]) -> PendingBytes:
        """Start to fetch, and return where the bytes will be."""


class StoreFetcher(Protocol):
    """What is known about a store, and the way to get chunks that is best for each member."""

    is_near: bool
    """Whether most of what it reads is in memory or on this machine, so that a request costs little."""

    immutable: bool
    """Whether what it says stays true, as in a read-only snapshot; if so, sizes and indexes may be kept."""

    @property
    def is_current(self) -> bool:
        """Whether there is no better way to read the store by now, as there is after a commit."""

    looks_into_shards: bool
    """Whether it finds inner chunks in their shards itself, while it reads; see `ByteRanges.within`."""

    supports_ranges: bool
    """Whether a piece of an object costs less than the whole; not if both are views of memory."""

    def locate(self, sources: Sequence[tuple[EngineMember, Ints]]) -> Sequence[tuple[Fetcher, Ints | None]]:
        """How to get these objects of each member, and their stored sizes in bytes, -1 for what is not
        stored; None if sizes are not known without reading."""


type KeyRange = tuple[str, ByteRequest | None]


def requests_of(spans: Sequence[ByteRanges]) -> Iterator[KeyRange]:
    """The key and byte range of everything that is wanted, in order."""
    for source, object_index, starts, nbytes, *_ in spans:
        keys = source.keys(object_index)
        if starts is None or nbytes is None:
            yield from ((key, None) for key in keys)
            continue
        for key, first, length in zip(keys, starts.tolist(), nbytes.tolist(), strict=True):
            yield key, SuffixByteRequest(length) if first < 0 else RangeByteRequest(first, first + length)


def cost_of(spans: Sequence[ByteRanges]) -> Cost:
    """What requesting each of these costs."""
    sizes = [item.nbytes for item in spans if item.object_index.size]
    known = [int(nbytes.sum()) for nbytes in sizes if nbytes is not None]
    requests = sum(item.object_index.size for item in spans)
    return Cost(requests, sum(known) if len(known) == len(sizes) else None)


class OpaqueStore:
    """A store that says nothing about an object before it is read, and treats all members alike."""

    in_threads = is_near = immutable = False
    is_current = True
    looks_into_shards = False
    supports_ranges = True
    limits: Limits | None = None
    """How far ranges are joined, if they are."""

    def locate(self, sources: Sequence[tuple[EngineMember, Ints]]) -> list[tuple[Self, None]]:
        return [(self, None)] * len(sources)

    def request_numbers(self, spans: Sequence[ByteRanges]) -> None:
        return None

    def cost(self, spans: Sequence[ByteRanges]) -> Cost:
        return cost_of(spans if self.limits is None else coalesce_spans(spans, self.limits)[0])


class DeferredBytes:
    """Bytes that are read during iteration, in the thread that decodes them."""

    arrival = None

    def __init__(self, read: Callable[[], Generator[Encoded | None]]) -> None:
        self._read = read

    def __iter__(self) -> Generator[Encoded | None]:
        return self._read()

    def cancel(self) -> None:
        """Nothing is running."""


class SynchronousStore(OpaqueStore):
    """A store that can be read without an event loop, such as memory."""

    in_threads = is_near = True

    def __init__(self, store: Store) -> None:
        self._store: Any = store
        self.supports_ranges = type(store) is not MemoryStore
        self.name = f"{type(store).__name__}, in threads"

    def begin(self, spans: Sequence[ByteRanges]) -> PendingBytes:
        return DeferredBytes(partial(self._read, spans))

    def _read(self, spans: Sequence[ByteRanges]) -> Generator[Encoded | None]:
        get, prototype = self._store.get_sync, default_buffer_prototype()
        for key, byte_range in requests_of(spans):
            content = get(key, prototype=prototype, byte_range=byte_range)
            yield None if content is None else content.as_numpy_array()


def run_on_event_loop[T](work: Coroutine[Any, Any, T]) -> Future[T]:
    """Run a coroutine on zarr's event loop, without waiting for it."""
    loop = event_loop()
    try:
        here = asyncio.get_running_loop()
    except RuntimeError:
        here = None
    if here is loop:
        work.close()
        raise RuntimeError("a logical array cannot be read from within zarr's own event loop")
    return asyncio.run_coroutine_threadsafe(work, loop)


async def do_all(work: Sequence[Awaitable[Any]]) -> None:
    """Wait for all of it; if some fails, the rest is cancelled, and its error is raised."""
    if len(work) == 1:  # a task would cost more than the work
        await work[0]
        return
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


class LoopFetch:
    """Bytes that the event loop is fetching; an exception in the list is raised in their place."""

    def __init__(self, work: Coroutine[Any, Any, list[Any]]) -> None:
        self.arrival = self._future = run_on_event_loop(work)

    def __iter__(self) -> Generator[Encoded | None]:
        items = self._future.result()
        for position, item in enumerate(items):
            items[position] = None  # each is released once it is decoded
            if isinstance(item, BaseException):
                raise item
            yield item

    def cancel(self) -> None:
        self._future.cancel()


class ConcurrentStore(OpaqueStore):
    """A store that only works on an event loop: zip files, object stores, HTTP."""

    limits: Limits = REMOTE

    def __init__(self, store: Store) -> None:
        self._store = store
        self._gate = asyncio.Semaphore(zarr.config.get("async.concurrency"))
        self.name = f"{type(store).__name__}, concurrently"

    def begin(self, spans: Sequence[ByteRanges]) -> PendingBytes:
        ranges, parts = coalesce_spans(spans, self.limits)
        return LoopFetch(self._get(list(requests_of(ranges)), parts))

    async def _get(self, requests: list[KeyRange], parts: Callable[[list[Any]], list[Any]]) -> list[Any]:
        prototype = default_buffer_prototype()

        async def one(key: str, byte_range: ByteRequest | None) -> Any:
            async with self._gate:  # all batches together make no more requests than zarr allows
                content = await self._store.get(key, prototype, byte_range)
                return None if content is None else content.as_numpy_array()

        tasks = [one(*item) for item in requests]
        return parts(await asyncio.gather(*tasks, return_exceptions=True))


CAN_READ_FILES = hasattr(os, "preadv")
"""Whether the system can read from a position in a file into memory; Windows cannot."""


class FileSpan:
    """Bytes of an open file, not read yet; valid until the next one is requested."""

    __slots__ = ("_file", "_offset", "nbytes")

    def __init__(self, file: int, offset: int, nbytes: int) -> None:
        self._file, self._offset, self.nbytes = file, offset, nbytes

    def read(self) -> bytes | bytearray:
        """The bytes."""
        return read_exactly(self._file, self._offset, self.nbytes)

    def read_into(self, destination: memoryview) -> None:
        """Read the bytes straight to where they belong."""
        count = os.preadv(self._file, [destination], self._offset)
        if count != self.nbytes:
            read_rest(self._file, self._offset, destination[: self.nbytes], count)


def read_key(store: Any, key: str) -> bytes | None:
    """A small value in a store; None if there is none."""
    value = read_part(store, key, default_buffer_prototype())
    return None if value is None else value.to_bytes()


def read_part(
    store: Any, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
) -> Buffer | None:
    """A value in a store, or a part of it, in the calling thread if the store can; None if there is none."""
    check_store(store)
    if store_supports_sync_io(store):
        value: Buffer | None = store.get_sync(key, prototype=prototype, byte_range=byte_range)
    else:
        value = run_on_event_loop(store.get(key, prototype, byte_range)).result()
    return value
