"""Writing the chunks of one part: encoded in threads, read first if they are written in part, and stored.

A store that can write in the calling thread does so; any other store writes on zarr's event loop. Local files
are written as in zarr, first beside their place and then moved there, so that nobody reads half of one.

All chunks of a shard are encoded before the shard is stored as a whole. Chunks that were not written to stay
as they are. So a write of one chunk reads and stores the whole shard, and the threads of this process lock
the shard meanwhile. Other processes are not kept out: they write through transactions, or into other shards.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Hashable, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager, nullcontext, suppress
from itertools import batched, count
from math import prod
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from weakref import WeakValueDictionary

import numpy as np
from zarr.abc.store import Store
from zarr.core.buffer import Buffer, default_buffer_prototype
from zarr.storage import LocalStore

from intarsia._compat import morton_order_coords, store_supports_sync_io
from intarsia._icechunk import IcechunkStore
from intarsia.codecs.context import working_on
from intarsia.engine.chunk_codecs import Scratch
from intarsia.engine.fetch.fetcher_choice import fetcher_for
from intarsia.engine.fetch.read_errors import read_error
from intarsia.engine.fetch.store import (
    ByteRanges,
    Encoded,
    Fetcher,
    FileSpan,
    PendingBytes,
    do_all,
    run_on_event_loop,
)
from intarsia.engine.inner_chunks import Shards, shard_positions
from intarsia.engine.plan import touched_chunks
from intarsia.engine.thread_pool import BATCHES_PER_THREAD, batches, run_in_threads
from intarsia.errors import ReadError
from intarsia.file_io import write_all

if TYPE_CHECKING:
    from intarsia.engine.chunk_plan import ChunkPlan, Placement
    from intarsia.engine.plan import RegionPart
    from intarsia.engine.prepared_member import PreparedMember
    from intarsia.manifest.data_types import Values
    from intarsia.manifest.region_table import Ints


type Pieces = list[Any]
"""Consecutive bytes, each piece with the buffer protocol."""

type Stored = list[tuple[str, Encoded | None]]
"""Keys and the values to store there; None removes a value."""

BATCHES_STORED_AT_A_TIME = 4


def as_buffer(encoded: Encoded) -> Buffer:
    """The form that zarr's stores take."""
    return encoded if isinstance(encoded, Buffer) else default_buffer_prototype().buffer.from_bytes(encoded)


def as_bytes(encoded: Encoded) -> Any:
    """The same with the buffer protocol."""
    return encoded.as_buffer_like() if isinstance(encoded, Buffer) else encoded


def store_writer(store: Any) -> SyncWriter | None:
    """How to store values in this thread; None if that takes an event loop."""
    if type(store) is LocalStore and os.name == "posix" and not store.read_only:
        return _FileWriter(store)
    return SyncWriter(store) if store_supports_sync_io(store) else None


class SyncWriter:
    """Puts values into a store that needs no event loop, or removes them."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __call__(self, key: str, pieces: Pieces) -> None:
        """Store the pieces as one value; without any, remove the value."""
        if pieces:
            whole = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self._store.set_sync(key, as_buffer(whole))
        else:
            self._store.delete_sync(key)


class _FileWriter(SyncWriter):
    """Puts values into files below the root of a store."""

    def __init__(self, store: LocalStore) -> None:
        super().__init__(store)
        self._root = f"{store.root}/"
        self._unique, self._numbers = uuid4().hex, count()

    def __call__(self, key: str, pieces: Pieces) -> None:
        if not pieces:
            super().__call__(key, pieces)
            return
        path = self._root + key
        beside = f"{path}.{self._unique}-{next(self._numbers)}.partial"
        try:
            file = self._create(beside)
            try:
                write_all(file, map(as_bytes, pieces))
            finally:
                os.close(file)
            os.replace(beside, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(beside)
            raise

    @staticmethod
    def _create(path: str) -> int:
        """A new file, with the directories that it is in."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            return os.open(path, flags, 0o666)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            return os.open(path, flags, 0o666)


async def store_all(store: Store, encoded: Stored) -> None:
    """Store these on an event loop."""
    form: Callable[[Encoded], Any] = as_buffer
    opened: AbstractAsyncContextManager[Any] = nullcontext(store)
    if isinstance(store, IcechunkStore):
        form, opened = as_bytes, store.bulk_writer()
    async with opened as inner:
        await do_all(
            [inner.delete(key) if value is None else inner.set(key, form(value)) for key, value in encoded]
        )


locks: WeakValueDictionary[Hashable, threading.Lock] = WeakValueDictionary()
"""A lock for every key that somebody holds or waits for, and no others."""

_guard = threading.Lock()


def _forget() -> None:
    """In a forked child nobody holds anything, whatever the parent's threads were doing."""
    global locks, _guard
    locks, _guard = WeakValueDictionary(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


@contextmanager
def lock_shards(source: PreparedMember, part: RegionPart, *, points: bool) -> Iterator[None]:
    """Hold all shards that a write into this part stores again; of an array without shards, nothing.

    All who hold several take them in the same order, so that none waits for another in a circle. Stores are
    told apart by their roots: a copy of a handle, or of a store, means the same shards.
    """
    root, shape, touched = str(getattr(source.array.store, "root", "")), source.stored_object_shape, []
    if shape is not None and source.array.shards is not None:
        touched = sorted(touched_chunks(part.member_selection, shape, points=points))
    with ExitStack() as stack:
        for index in touched:
            with _guard:
                lock = locks.setdefault((root, source.path, index), threading.Lock())
            stack.enter_context(lock)
        yield


class ChunkWriter:
    """Encodes batches of chunks of one part, and stores them."""

    def __init__(self, work: ChunkPlan, threads: int, window: int) -> None:
        self.threads = threads
        """How many threads should call `write`."""
        self._work, self._source = work, work.source
        self._encoder = work.source.encoder
        self._store = store = work.source.array.store_path.store
        self._writer = store_writer(store)
        self._covered = work.covered(work.source.chunk_shape)
        self._batches = self._cut(window // 2 // (BATCHES_STORED_AT_A_TIME + threads))
        self._fetcher: Callable[[], Fetcher] = lambda: fetcher_for(store).locate(
            [(work.source, work.chunks)]
        )[0][0]
        self._reading: set[PendingBytes] = set()
        self._storing: list[Future[None]] = []
        """What is on its way to a store that works on an event loop."""
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._scratch = Scratch()

    def _cut(self, most_bytes: int) -> Iterator[Any]:
        """What is written at a time: the positions of some chunks in the work."""
        each = max(1, self._work.chunks.size // (self.threads * BATCHES_PER_THREAD))
        return (batch[0][1] for batch in batches([self._work], most_bytes, each))

    def take(self) -> Any:
        """What to write next; None if there is nothing left."""
        with self._lock:
            return next(self._batches, None)

    def write(self, positions: Any) -> None:
        """Encode a batch, and store it or arrange for it to be stored."""
        in_part = positions[~self._covered[positions]]
        before = self._fetched(self._work.chunks[in_part])
        keys = self._source.keys(self._work.chunks[positions])
        encoded: Stored = []
        try:
            each = zip(positions.tolist(), keys, self._work.placements(positions), strict=True)
            for k, key, (target, inside) in each:
                if self._stop.is_set():
                    return
                chunk = int(self._work.chunks[k])
                values = None if self._covered[k] else self._decoded(chunk, lambda: next(before))
                content = self._encoded(chunk, target, inside, values)
                if self._writer is not None:
                    self._writer(key, [] if content is None else [content])
                else:
                    encoded.append((key, content))
        finally:
            before.close()
        if encoded:
            self._begin_storing(encoded)

    def _begin_storing(self, encoded: Stored) -> None:
        """Arrange for these to be stored; wait if too much is on its way."""
        with self._lock:
            if self._stop.is_set():
                return
            self._storing.append(run_on_event_loop(store_all(self._store, encoded)))
            earlier = self._storing[:-BATCHES_STORED_AT_A_TIME][-1:]
        for storing in earlier:
            storing.result()

    def _fetched(self, objects: Ints) -> Generator[Encoded | None]:
        """The currently stored chunks, as they arrive."""
        with self._lock:
            pending = self._fetcher().begin([ByteRanges(self._source, objects)])
            self._reading.add(pending)
        received = iter(pending)
        try:
            yield from received
        finally:
            received.close()
            with self._lock:
                self._reading.discard(pending)

    def _decoded(self, chunk: int, stored: Callable[[], Encoded | None]) -> Values | None:
        """The chunk as it is, to be changed; None if it is not stored."""
        source, index = self._source, self._source.index(chunk)
        try:
            encoded = stored()
            if encoded is None:
                return None
            values: Values = np.empty(source.chunk_shape, dtype=self._work.out.dtype)
            with working_on(index):
                source.decoder.place(
                    encoded, values, (slice(None),) * values.ndim or ..., None, self._scratch
                )
        except Exception as error:
            raise self._cannot_read(index, error) from error
        return values

    def _cannot_read(self, index: tuple[int, ...], error: Exception) -> ReadError:
        source = self._source
        what = f"chunk {index} of member {source.name} would be written only in part, but cannot be read"
        return read_error(what, error, source.array.store, source.path, source.stored_as(index))

    def _encoded(self, chunk: int, target: Any, inside: Any, before: Values | None) -> Any:
        """The stored bytes of a chunk; None if there are none."""
        source, values = self._source, self._work.out[target]
        if inside is not None:
            if before is None:
                before = np.full(source.chunk_shape, source.fill_value, dtype=values.dtype)
            before[inside] = values
            values = before
        if not source.decoder.asks_for_index:
            return self._encoder.encode(values)
        with working_on(source.index(chunk)):
            return self._encoder.encode(values)

    def finish(self) -> None:
        """Wait until everything is stored."""
        for storing in self._storing:
            storing.result()

    def give_up(self, failure: BaseException) -> None:
        """Begin nothing more; after Ctrl-C, for example, do not wait for what has begun either."""
        with self._lock:  # threads that begin something later see it
            self._stop.set()
            self._batches = iter(())
            begun: list[PendingBytes | Future[None]] = [*self._reading, *self._storing]
        if not isinstance(failure, Exception):
            for each in begun:
                each.cancel()

    def wait(self) -> None:
        """Wait until everything that has begun is finished."""
        wait(self._storing)


class ShardWriter(ChunkWriter):
    """The same for chunks in shards: a thread writes whole shards, and those left over help it encode."""

    def __init__(self, work: ChunkPlan, threads: int, window: int, shards: Shards) -> None:
        self._form, self._order = shards.form, written_order(shards)
        self._shard_bytes = work.source.decoder.nbytes * prod(shards.per_shard)
        self._object_index, within = shard_positions(work.source, shards, work.chunks)
        every = list(np.ndindex(shards.per_shard))
        self._position = [every[i] for i in within.tolist()]
        self._objects = np.unique(self._object_index)
        self._is_whole = work.covered(work.source.metadata.chunk_grid.chunk_shape)
        """Which shards are written as a whole, as far as they are in the array: nothing of them is kept."""
        several = max(1, min(threads, self._objects.size, window // self._shard_bytes))
        self._helpers = threads // several
        super().__init__(work, several, window)

    def _cut(self, most_bytes: int) -> Iterator[list[tuple[int, Ints]]]:
        """Some shards, by number, and the positions of their chunks."""
        order = np.argsort(self._object_index, kind="stable")
        ends = np.searchsorted(self._object_index[order], self._objects, side="right")
        shards = list(enumerate(np.split(order, ends[:-1])))
        each = min(len(shards) // (self.threads * BATCHES_PER_THREAD), most_bytes // self._shard_bytes)
        return map(list, batched(shards, max(1, each)))

    def write(self, some: list[tuple[int, Ints]]) -> None:
        kept = [number for number, _ in some if not self._is_whole[number]]
        stored = self._fetched(self._objects[kept])
        done: Stored = []
        try:
            for number, positions in some:
                before = {} if self._is_whole[number] else self._split(stored, positions)
                chunks = before | self._chunks(positions, before)
                if self._stop.is_set():
                    return
                (key,) = self._source.keys(self._objects[[number]])
                in_order = {at: chunk for at in self._order if (chunk := chunks.get(at)) is not None}
                pieces = self._form.pieces(in_order) if in_order else []
                if self._writer is None:
                    done.append((key, b"".join(pieces) or None))
                else:
                    self._writer(key, pieces)
        finally:
            stored.close()
        if done:
            self._begin_storing(done)

    def _chunks(
        self, positions: Ints, before: dict[tuple[int, ...], memoryview]
    ) -> dict[tuple[int, ...], Any]:
        """The new chunks of a shard, by position; None for those that need not be stored."""
        chunks: dict[tuple[int, ...], Any] = {}
        each, taking = (
            zip(positions.tolist(), self._work.placements(positions), strict=True),
            threading.Lock(),
        )

        def take() -> tuple[int, Placement] | None:
            with taking:
                return None if self._stop.is_set() else next(each, None)

        def encode(item: tuple[int, Placement]) -> None:
            k, (target, inside) = item
            chunk, at, values = int(self._work.chunks[k]), self._position[k], None
            if not self._covered[k]:
                values = self._decoded(chunk, lambda: before.get(at))
            content = self._encoded(chunk, target, inside, values)
            chunks[at] = None if content is None else as_bytes(content)

        run_in_threads(take, encode, min(self._helpers, positions.size))
        return chunks

    def _split(
        self, received: Iterator[Encoded | None], positions: Ints
    ) -> dict[tuple[int, ...], memoryview]:
        """The stored chunks of the next shard that arrives, which has these chunks."""
        try:
            stored = next(received)
            if stored is None:
                return {}
            view = memoryview(stored.read() if type(stored) is FileSpan else stored).cast("B")
            return {at: view[start:stop] for at, (start, stop) in self._form.locate_in(view).items()}
        except Exception as error:
            first = int(self._work.chunks[positions[0]])
            raise self._cannot_read(self._source.index(first), error) from error


def written_order(shards: Shards) -> list[tuple[int, ...]]:
    """The chunks of a shard in the order of their layout, as zarr's codec is configured."""
    grid = shards.per_shard
    order = shards.codec.subchunk_write_order
    if order == "morton":
        return list(morton_order_coords(grid))
    every = list(np.ndindex(grid))
    return sorted(every, key=lambda at: at[::-1]) if order == "colexicographic" else every
