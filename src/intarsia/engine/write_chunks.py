"""Writing the chunks of one part: encoded in threads, read first if they are written in part, and stored.

A chunk is an object in the store, or a piece of one: a shard. All chunks of a shard are encoded before it is
stored as a whole; those that were not written to are kept as they are. A write into shards holds them
meanwhile (`shard_locks`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia._compat import morton_order_coords
from intarsia.codecs.current_chunk import working_on
from intarsia.engine.chunk_codecs import Scratch
from intarsia.engine.fetch import fetcher_for
from intarsia.engine.fetch.session_access import read_error
from intarsia.engine.fetch.store import Encoded, Fetcher, FileSpan, Pending, Spans
from intarsia.engine.inner_chunks import Shards, whereabouts
from intarsia.engine.pool import BATCHES_PER_THREAD, Batch, batches
from intarsia.engine.put import BATCHES_STORED_AT_A_TIME, Look, Stored, Storing, as_bytes, put_here
from intarsia.errors import ReadError

if TYPE_CHECKING:
    from intarsia.engine.chunk_plan import Work
    from intarsia.engine.state import Told
    from intarsia.manifest.coercion import Values
    from intarsia.manifest.region_table import Ints


class ChunkWriter:
    """Encodes batches of chunks of one part, and stores them."""

    def __init__(
        self, work: Work, values: Values, threads: int, window: int, look: Look | None = None
    ) -> None:
        self._work, self._values, self._source = work, values, work.source
        self._encoder = work.source.encoder
        store = work.source.array.store_path.store
        self._put_here = put_here(store)
        self._keeps = self._put_here is None or self._put_here.keeps
        """Whether encoded chunks are held after the next one is encoded."""
        self._covered = work.covered(work.source.metadata.shape)
        each = max(1, work.chunks.size // (threads * BATCHES_PER_THREAD))
        cut = batches([work], window // 2 // (BATCHES_STORED_AT_A_TIME + threads), each)
        first, second = next(cut), next(cut, None)
        self._batches: Iterator[Batch] = chain([first] if second is None else [first, second], cut)
        # When the only batch is stored, so is everything.
        self._storing = Storing(store, look if second is None else None)
        self._fetcher: Callable[[], Fetcher] = lambda: fetcher_for(store)
        self._reading: set[Pending] = set()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._own = threading.local()

    @property
    def told(self) -> Told | None:
        """What the store said after everything was stored, if it was asked."""
        return self._storing.told

    def take(self) -> Ints | None:
        """The chunks to write next, as positions in the work; None if there are none left."""
        with self._lock:
            batch = next(self._batches, None)
            return None if batch is None else batch[0][1]

    def write(self, positions: Ints) -> None:
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
                made = self._encoded(chunk, target, inside, values)
                if self._put_here is not None:
                    self._put_here(key, made)
                else:
                    encoded.append((key, made))
        finally:
            before.close()
        if encoded:
            self._storing.begin(encoded)

    def _fetched(self, blobs: Ints) -> Generator[Encoded | None]:
        """The currently stored chunks, as they arrive."""
        with self._lock:
            pending = self._fetcher().begin([Spans(self._source, blobs)])
            self._reading.add(pending)
        received = iter(pending)
        try:
            yield from received
        finally:
            received.close()
            with self._lock:
                self._reading.discard(pending)

    @property
    def _scratch(self) -> Scratch:
        scratch: Scratch | None = getattr(self._own, "scratch", None)
        if scratch is None:
            scratch = self._own.scratch = Scratch()
        return scratch

    def _decoded(self, chunk: int, stored: Callable[[], Encoded | None]) -> Values | None:
        """The chunk as it is, to be changed; None if it is not stored."""
        source, index = self._source, self._source.index(chunk)
        try:
            encoded = stored()
            if encoded is None:
                return None
            values: Values = np.empty(source.chunk_shape, dtype=self._values.dtype)
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
        source, values = self._source, self._values[target]
        if inside is not None:
            if before is None:
                before = np.full(source.chunk_shape, source.fill_value, dtype=values.dtype)
            before[inside] = values
            values = before
        if not self._encoder.asks_for_index:
            return self._encoder.encode(values, self._scratch, keep=self._keeps)
        with working_on(source.index(chunk)):
            return self._encoder.encode(values, self._scratch, keep=self._keeps)

    def finish(self) -> None:
        """Wait until everything is stored."""
        self._storing.finish()

    def give_up(self, failure: BaseException) -> None:
        """Begin nothing more; after Ctrl-C, for example, do not wait for what has begun either."""
        self._storing.give_up(failure)
        with self._lock:
            self._stop.set()
            self._batches = iter(())
            reading = list(self._reading)
        if not isinstance(failure, Exception):
            for each in reading:
                each.cancel()

    def wait(self) -> None:
        """Wait until everything that has begun is finished."""
        self._storing.wait()


class _OpenShard:
    """A shard some of whose chunks are already encoded."""

    __slots__ = ("before", "chunks", "left")

    def __init__(self, left: int) -> None:
        self.left = left
        """How many chunks are still to be encoded."""
        self.before: Future[dict[tuple[int, ...], memoryview]] = Future()
        """Its currently stored chunks."""
        self.chunks: dict[tuple[int, ...], Any] = {}
        """The new chunks; None for those that need not be stored."""


def _chunk_before(shard: _OpenShard, position: tuple[int, ...]) -> Encoded | None:
    return shard.before.result().get(position)


class ShardWriter(ChunkWriter):
    """The same for chunks in shards: the thread that encodes the last chunk of a shard stores it."""

    def __init__(
        self, work: Work, values: Values, threads: int, window: int, look: Look | None, shards: Shards
    ) -> None:
        self._form, self._order = shards.form, written_order(shards)
        self._blob, within = whereabouts(work.source, shards, work.chunks)
        every = list(np.ndindex(shards.per_shard))
        self._position = [every[i] for i in within.tolist()]
        # Shard after shard, so that few are open at a time.
        work.present = np.argsort(self._blob, kind="stable")
        blobs, where, counts = np.unique(self._blob, return_inverse=True, return_counts=True)
        self._count = dict(zip(blobs.tolist(), counts.tolist(), strict=True))
        covered = work.covered(work.source.metadata.shape)
        inside = np.bincount(where, weights=covered, minlength=blobs.size)
        whole = inside >= _chunks_inside(work, shards, blobs)
        self._whole = set(blobs[whole].tolist())
        """Shards that are written as a whole, as far as they are in the array: nothing of them is kept."""
        # The others are held in memory as a whole, so each of their chunks counts for its share.
        kept = work.source.decoder.nbytes * prod(shards.per_shard) // counts
        work.nbytes = np.where(whole, work.source.decoder.nbytes, kept)[where]
        self._open: dict[int, _OpenShard] = {}
        super().__init__(work, values, threads, window, look)
        self._keeps = True

    def write(self, positions: Ints) -> None:
        blobs = self._blob[positions]
        with self._lock:
            if self._stop.is_set():
                return
            new = self._opened(np.unique(blobs).tolist())
        self._load(new)
        done: Stored = []
        each = zip(positions.tolist(), blobs.tolist(), self._work.placements(positions), strict=True)
        for k, blob, (target, inside) in each:
            if self._stop.is_set():
                return
            shard, chunk, position = self._open[blob], int(self._work.chunks[k]), self._position[k]
            values = None
            if not self._covered[k]:
                values = self._decoded(chunk, partial(_chunk_before, shard, position))
            made = self._encoded(chunk, target, inside, values)
            shard.chunks[position] = None if made is None else as_bytes(made)
            with self._lock:
                shard.left -= 1
                last = not shard.left
            if last:
                (key,), pieces = self._source.keys(np.array([blob])), self._pieces(blob)
                if self._put_here is None:
                    done.append((key, b"".join(pieces) or None))
                elif pieces:
                    self._put_here.put_pieces(key, pieces)
                else:
                    self._put_here(key, None)
        if done:
            self._storing.begin(done)

    def _opened(self, blobs: list[int]) -> list[int]:
        """The shards among these that no thread has begun."""
        new = [blob for blob in blobs if blob not in self._open]
        self._open |= {blob: _OpenShard(self._count[blob]) for blob in new}
        return new

    def _load(self, new: list[int]) -> None:
        """Read shards of which something is kept; threads that come later wait until that is done."""
        for blob in self._whole.intersection(new):
            self._open[blob].before.set_result({})
        reading = [blob for blob in new if blob not in self._whole]
        if not reading:
            return
        received = self._fetched(np.array(reading))
        try:
            for blob in reading:
                before = self._split(blob, received)
                with suppress(InvalidStateError):  # another thread failed, and it was cancelled
                    self._open[blob].before.set_result(before)
        finally:
            received.close()

    def give_up(self, failure: BaseException) -> None:
        super().give_up(failure)
        with self._lock:
            shards = list(self._open.values())
        for shard in shards:
            shard.before.cancel()  # so that nobody waits for what will not come

    def _split(self, blob: int, received: Iterator[Encoded | None]) -> dict[tuple[int, ...], memoryview]:
        try:
            stored = next(received)
            if stored is None:
                return {}
            view = memoryview(stored.read() if type(stored) is FileSpan else stored).cast("B")
            return {at: view[start:stop] for at, (start, stop) in self._form.found_in(view).items()}
        except Exception as error:
            first = int(self._work.chunks[np.flatnonzero(self._blob == blob)[0]])
            raise self._cannot_read(self._source.index(first), error) from error

    def _pieces(self, blob: int) -> list[Any]:
        """The bytes of a shard, piece by piece; none if nothing is in it."""
        with self._lock:
            shard = self._open.pop(blob)
        chunks = shard.before.result() | shard.chunks
        stored = {at: chunk for at in self._order if (chunk := chunks.get(at)) is not None}
        return self._form.pieces(stored) if stored else []


def _chunks_inside(work: Work, shards: Shards, blobs: Ints) -> Ints:
    """How many chunks of each shard are in the array, at least in part."""
    source, inside = work.source, np.ones(blobs.size, dtype=np.int64)
    if not source.grid:
        return inside
    axes = zip(
        np.unravel_index(blobs, source.blob_grid), source.metadata.shape, source.chunk_shape,
        shards.per_shard, strict=True,
    )  # fmt: skip
    for at, length, size, count in axes:
        inside *= np.clip(-(-length // size) - at * count, 0, count)
    return inside


def written_order(shards: Shards) -> list[tuple[int, ...]]:
    """The chunks of a shard in the order of their layout, as zarr's codec is configured."""
    grid = shards.per_shard
    order = shards.codec.subchunk_write_order
    if order == "morton":
        return list(morton_order_coords(grid))
    every = list(np.ndindex(grid))
    return sorted(every, key=lambda at: at[::-1]) if order == "colexicographic" else every
