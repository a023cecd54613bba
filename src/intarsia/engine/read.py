"""Reading: all chunks of all members that a request needs, fetched together and decoded into one output.

On an event loop, no thread waits while bytes are on their way. Chunks are decoded in a few threads that all
such reads of a process share. Stores that answer without an event loop, as files do, are read there as well.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cache, partial
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np

from intarsia.codecs.context import working_on
from intarsia.codecs.runtime_options import RuntimeOptions
from intarsia.engine.chunk_codecs import TOGETHER_BYTES, Scratch
from intarsia.engine.chunk_plan import ChunkPlan
from intarsia.engine.config import DEFAULT_CONFIG, LogicalConfig, cores
from intarsia.engine.fetch.read_errors import read_error
from intarsia.engine.fetch.store import Encoded, FileSpan, PendingBytes, StoreFetcher, do_all
from intarsia.engine.inner_chunks import locate_inner_chunks, shard_positions
from intarsia.engine.plan import RegionPart, plan
from intarsia.engine.prepared_member import EngineMember, PreparedMember, ZarrMember
from intarsia.engine.replica_choice import LayerChoice
from intarsia.engine.thread_pool import Batch, Queue, by_fetcher, run_in_threads, threads_for, whole_batch
from intarsia.engine.zarr_fallback import read_part_by_zarr
from intarsia.errors import IntarsiaError, ReadError, no_thread, signal_failure
from intarsia.manifest.data_types import Values, allocate
from intarsia.manifest.packing_columns import Packings
from intarsia.parallel import check_store

if TYPE_CHECKING:
    from intarsia.engine.array_handle import ArrayHandle, ArrayState
    from intarsia.engine.chunk_cache import ChunkCache
    from intarsia.engine.request import Request
    from intarsia.manifest.region_table import Ints


def read_request(
    handle: ArrayHandle[Any],
    request: Request,
    config: LogicalConfig = DEFAULT_CONFIG,
    cache: ChunkCache | None = None,
) -> Values:
    """The values of a request, in its shape."""
    return handle.retry_on_change(partial(read_state, handle, request, config, cache))


def read_state(
    handle: ArrayHandle[Any],
    request: Request,
    config: LogicalConfig,
    cache: ChunkCache | None,
    state: ArrayState[Any],
) -> tuple[Values, list[int]]:
    """The values according to one state, and the regions in which chunks are missing."""
    read = Read(handle, state, request, config, cache)
    while True:
        try:
            read.begin()
            read.read_chunks()
            return read.finish()
        except IntarsiaError as error:
            read.use_other_layer(error)


async def read_request_async(
    handle: ArrayHandle[Any], request: Request, config: LogicalConfig, cache: ChunkCache | None = None
) -> Values:
    """The values of a request, in its shape.

    If something fails, or the state may be outdated, one of the threads reads again, as without an event
    loop: it finds the current state, or another layer, or raises the error.
    """
    state = handle.state
    read = Read(handle, state, request, config, cache)
    try:
        await _elsewhere(read.begin)
        await read.read_chunks_async()
        values, doubtful = await _elsewhere(read.finish)
        if not doubtful or await _elsewhere(handle.is_current, state):
            return values
    except Exception as error:
        if signal_failure(error) is not None:
            raise
    return await _elsewhere(read_request, handle, request, config, cache)


class Read:
    """A request, read from one state of an array."""

    chunk_plans: list[ChunkPlan]
    """The parts that the engine reads."""

    by_zarr: list[tuple[RegionPart, ZarrMember]]
    """The parts that are left to zarr."""

    def __init__(
        self,
        handle: ArrayHandle[Any],
        state: ArrayState[Any],
        request: Request,
        config: LogicalConfig,
        cache: ChunkCache | None = None,
    ) -> None:
        self._handle, self._state, self._request, self._config = handle, state, request, config
        self._options: RuntimeOptions | None = config.options if config.verify_header else None
        self._layers = LayerChoice(config.layer, config.fallback)
        self._fetcher = handle.fetcher()
        # If others may write, no chunk is kept.
        self._cache = cache if self._fetcher.immutable else None
        self._shape = request.working_shape

    def begin(self) -> None:
        """Find all chunks, and allocate the values; those for which nothing is fetched are set at once."""
        self.prepare(by_strips=True, look_up_later=self._fetcher.looks_into_shards)
        manifest = self._state.manifest
        fill_value = None if self.plan.is_complete else manifest.fill_value
        self._out: Values = allocate(manifest.data_type, self._shape, fill_value)
        for work in self.chunk_plans:
            work.out = work.part.onto(self._out)
            if work.chunks.size > work.present.size:
                if work.source.refuses_missing:
                    raise self._failure_at(work, int(np.argmin(work.nbytes)), _not_stored())
                _fill_missing(work)
            if self._cache is not None:
                self._cache.place(work)
        self._busy = [work for work in self.chunk_plans if work.present.size]

    def prepare(self, *, by_strips: bool = False, look_up_later: bool = False) -> None:
        """Find every chunk that the request needs, and where its bytes are; in parts as `plan` makes them.

        Pieces of chunks are enough where they can be fetched, unless chunks are to be kept. With
        `look_up_later`, chunks in shards are located while they are fetched.
        """
        state, request, fetcher = self._state, self._request, self._fetcher
        manifest = state.manifest
        choose = None if manifest.is_plain else self._layers.chooser_for(state, near=fetcher.is_near)
        self.plan = plan(manifest, request, by_strips=by_strips, choose=choose)
        self.chunk_plans, self.by_zarr = [], []
        parts, points = self.plan.parts, request.axes is None
        for part, source in zip(parts, state.sources_of(parts), strict=True):
            if self._options is not None:
                source = source.with_options(self._options)
            if isinstance(source, EngineMember):
                packing = None if manifest.is_plain else state.packings_of(part)
                self.chunk_plans.append(ChunkPlan(part, source, points, packing))
            elif part.strip is not None:  # zarr reads for one packing at a time
                self.prepare(look_up_later=look_up_later)
                return
            else:
                self.by_zarr.append((part, source))
        if self.chunk_plans:
            self._locate(look_up_later)
            if self._cache is None and fetcher.supports_ranges:
                for work in self.chunk_plans:
                    work.narrow()
            if len(self.chunk_plans) > 1 or self.chunk_plans[0].present.size > 1:
                _join(self.chunk_plans)

    def _locate(self, look_up_later: bool) -> None:
        fetcher, whole = self._fetcher, [work for work in self.chunk_plans if work.source.shards is None]
        try:
            located = fetcher.locate([(work.source, work.chunks) for work in whole])
        except icechunk.IcechunkError as error:
            store, path = self._handle.store, self._handle.path
            what = f"cannot tell where the chunks of {path!r} are stored"
            raise read_error(what, error, store, path, None) from error
        for work, (via, sizes) in zip(whole, located, strict=True):
            work.fetcher = via
            if sizes is not None:
                work.set_sizes(sizes)
        if len(whole) < len(self.chunk_plans):
            self._locate_in_shards(fetcher, look_up_later)

    def _locate_in_shards(self, fetcher: StoreFetcher, look_up_later: bool) -> None:
        sharded = [(work, shards) for work in self.chunk_plans if (shards := work.source.shards) is not None]
        if look_up_later:
            for work, shards in sharded:
                work.look_up_later(*shard_positions(work.source, shards, work.chunks))
                ((work.fetcher, _),) = fetcher.locate([(work.source, work.object_index)])
            return
        locate_inner_chunks(fetcher, sharded, self._failure_at)

    def read_chunks(self) -> None:
        """Fetch and decode all chunks, in a few threads."""
        chunk_plans, config = self._busy, self._config
        if not chunk_plans:
            return
        threads = threads_for(chunk_plans, config)
        at_once = whole_batch(chunk_plans, threads, config)
        if at_once is not None:
            self._decode_batch(*at_once, Scratch())
            return
        queue, scratch = Queue(chunk_plans, threads, config.window), Scratch()

        def decode(taken: tuple[Batch, PendingBytes]) -> None:
            self._decode_batch(*taken, scratch)

        run_in_threads(queue.take, decode, threads, give_up=lambda _: queue.cancel())

    async def read_chunks_async(self) -> None:
        """The same, without a thread that waits."""
        if not self._busy:
            return
        threads = threads_for(self._busy, self._config)
        queue, scratch = Queue(self._busy, threads, self._config.window), Scratch()

        async def take_and_decode() -> None:
            while (taken := queue.take()) is not None:
                batch, pending = taken
                if pending.arrival is not None:  # its errors surface on decode
                    await asyncio.gather(asyncio.wrap_future(pending.arrival), return_exceptions=True)
                await _elsewhere(self._decode_batch, batch, pending, scratch)

        try:
            await do_all([take_and_decode() for _ in range(threads)])
        except BaseException:
            queue.cancel()
            raise

    def _decode_batch(self, batch: Batch, pending: PendingBytes, scratch: Scratch) -> None:
        """Decode chunks into their places as their bytes arrive."""
        received = iter(pending)
        try:
            for work, positions in batch:
                together = work.source.decoder.together
                if together == 1 or positions.size == 1 or self._cache is not None:
                    self._decode_each(work, positions, received, scratch)
                    continue
                while positions.size:
                    encoded = self._receive(work, positions[:together], received)
                    some, positions = positions[: len(encoded)], positions[len(encoded) :]
                    stored = np.array([data is not None for data in encoded])
                    if not stored.all():
                        self._decode_each(work, some[~stored], repeat(None), scratch)
                        some, encoded = some[stored], [data for data in encoded if data is not None]
                    values = work.source.decoder.values_together(encoded) if encoded else None
                    if values is None:
                        self._decode_each(work, some, encoded, scratch)
                    else:
                        work.put_together(values, some)
        finally:
            received.close()

    def _receive(
        self, work: ChunkPlan, positions: Ints, received: Iterator[Encoded | None]
    ) -> list[Encoded | None]:
        """The bytes of the first of these chunks; of fewer, if they are longer than such chunks ever are."""
        encoded: list[Encoded | None] = []
        nbytes = 0
        try:
            for data in islice(received, positions.size):
                data = data.read() if type(data) is FileSpan else data
                encoded.append(data)
                nbytes += 0 if data is None else len(data)
                if nbytes > TOGETHER_BYTES:
                    break
        except Exception as error:
            raise self._failure_at(work, int(positions[len(encoded)]), error) from error
        return encoded

    def _decode_each(
        self, work: ChunkPlan, positions: Ints, received: Iterable[Encoded | None], scratch: Scratch
    ) -> None:
        """Decode one chunk after the other."""
        source, out, decoder, kept = work.source, work.out, work.source.decoder, self._cache
        each = positions.tolist(), work.placements(positions), work.packings(positions)
        arriving, position = iter(received), -1
        try:
            for position, (target, inside), packing in zip(*each, strict=True):
                encoded = next(arriving)
                if encoded is None:
                    if source.refuses_missing:
                        raise _not_stored()
                    out[target] = work.fill_value(packing)
                    work.missing.append(position)
                elif kept is None and not decoder.asks_for_index:
                    decoder.place(encoded, out, target, inside, scratch, packing)
                else:
                    chunk = int(work.chunks[position])
                    with working_on(source.index(chunk)):
                        values = decoder.values(encoded, scratch)
                    if kept is not None:
                        kept.keep(source, chunk, values)
                    work.put(values, target, inside, packing)
        except Exception as error:
            raise self._failure_at(work, position, error) from error

    def finish(self) -> tuple[Values, list[int]]:
        """Read what is left to zarr; returns the values, and the regions in which chunks are missing."""
        request, state = self._request, self._state
        if self.by_zarr:
            check_store(self._handle.store)
        for part, source in self.by_zarr:
            packing, points = state.packing_of(part.row), request.axes is None
            try:
                read_part_by_zarr(source, part, self._out, points=points, packing=packing)
            except Exception as error:
                raise self._failure(part.row, source, None, error) from error
        incomplete = [row for work in self.chunk_plans for row in work.incomplete_regions()]
        incomplete += [part.row for part, _ in self.by_zarr]  # zarr does not say
        return self._out.reshape(request.shape), incomplete

    def use_other_layer(self, error: IntarsiaError) -> None:
        """After a failure, leave out the region to blame, if another layer may stand in for it.

        That is recorded. The failure is raised if there is no other layer, or if standing in is not allowed.
        """
        layers, row = self._layers, error.row
        replicas = self._state.manifest.replicas
        if row is None or not layers.fallback or row in layers.avoided or len(replicas) == 0:
            raise error
        self._handle.fell_back(self._state, row, error)
        self._layers = layers.avoiding(row, str(error))

    def _failure_at(self, work: ChunkPlan, position: int, error: Exception) -> ReadError:
        """The error for a chunk that cannot be fetched or decoded; it names region, member and chunk."""
        index = work.source.index(int(work.chunks[position]))
        return self._failure(work.region_of(position), work.source, index, error)

    def _failure(
        self, row: int, source: PreparedMember, index: tuple[int, ...] | None, error: Exception
    ) -> ReadError:
        what = f"cannot read {self._handle.chunk_text(self._state, row, source, index)}"
        failure = read_error(what, error, self._handle.store, source.path, source.stored_as(index))
        failure.row = row
        return failure


def _join(chunk_plans: list[ChunkPlan]) -> None:
    """Decide which chunks come with one request."""
    for via, those in by_fetcher(work for work in chunk_plans if work.present.size):
        numbers = via.request_numbers([work.spans(work.present) for work in those])
        if numbers is not None:
            for work, request in zip(those, numbers, strict=True):
                work.set_requests(request)


def _fill_missing(work: ChunkPlan) -> None:
    """Chunks that are not stored read as the member's fill value."""
    out, packing = work.out, work.packing
    if not work.present.size and not isinstance(packing, Packings):
        out[work.whole_target()] = work.fill_value(packing)
        return
    absent = np.flatnonzero(work.nbytes < 0)
    for (target, _), own in zip(work.placements(absent), work.packings(absent), strict=True):
        out[target] = work.fill_value(own)


def _not_stored() -> FileNotFoundError:
    return FileNotFoundError("it is not stored, and read_missing_chunks=False refuses to fill it")


@cache
def _pool() -> ThreadPoolExecutor:
    """The threads of all reads; no more than there are cores, however many reads there are."""
    return ThreadPoolExecutor(cores(), thread_name_prefix="intarsia-async")


if hasattr(os, "register_at_fork"):  # no thread runs in a forked child, whatever the parent was doing
    os.register_at_fork(after_in_child=_pool.cache_clear)


async def _elsewhere[T](function: Callable[..., T], *args: Any) -> T:
    """Call a function in one of the threads, in the caller's context."""
    context = copy_context()
    try:
        begun = asyncio.get_running_loop().run_in_executor(_pool(), lambda: context.run(function, *args))
    except RuntimeError as error:
        raise no_thread(error) from error
    return await begun
