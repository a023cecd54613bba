"""Reading: all chunks of all members that a request needs, fetched together and decoded into one output.

On an event loop, no thread waits while bytes are on their way. Chunks are decoded in a few threads that all
such reads of a process share. Stores that answer without an event loop, as files do, are read there as well.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import icechunk
import numpy as np

from intarsia.codecs.context import working_on
from intarsia.codecs.runtime_options import NO_OPTIONS, Options
from intarsia.engine.chunk_codecs import Scratch
from intarsia.engine.chunk_plan import ChunkPlan
from intarsia.engine.config import LogicalConfig, cores
from intarsia.engine.fetch.read_errors import read_error
from intarsia.engine.fetch.store import Fetcher, Pending
from intarsia.engine.inner_chunks import ShardIndexError, locate, whereabouts
from intarsia.engine.member_source import EngineSource, Source, ZarrSource
from intarsia.engine.plan import Part, SelectionPlan, plan
from intarsia.engine.pool import Batch, Queue, by_fetcher, run, threads_for, whole_batch
from intarsia.engine.replica_choice import CHEAPEST, LayerChoice
from intarsia.engine.zarr_fallback import culprit, read_part_by_zarr
from intarsia.errors import IntarsiaError, ReadError, no_thread
from intarsia.manifest.coercion import Values, allocated
from intarsia.manifest.packing_columns import Packings
from intarsia.parallel import check_store

if TYPE_CHECKING:
    from intarsia.engine.chunk_cache import ChunkCache
    from intarsia.engine.request import Request
    from intarsia.engine.state import ArrayHandle, ArrayState


class PreparedRead(NamedTuple):
    """A plan down to the chunk: what is read here, and what is left to zarr."""

    plan: SelectionPlan
    works: list[ChunkPlan]
    by_zarr: list[tuple[Part, ZarrSource]]


def read_request(
    handle: ArrayHandle[Any],
    request: Request,
    config: LogicalConfig | None = None,
    cache: ChunkCache | None = None,
) -> Values:
    """The values of a request, in its shape."""
    config = config or LogicalConfig()
    return handle.retry_on_change(lambda state: read_state(handle, state, request, config, cache))


def read_state(
    handle: ArrayHandle[Any],
    state: ArrayState[Any],
    request: Request,
    config: LogicalConfig,
    cache: ChunkCache | None = None,
) -> tuple[Values, list[int], None]:
    """The values according to one state, and the regions in which chunks are missing."""
    layers = LayerChoice(config.layer, config.fallback)
    while True:
        try:
            begun = begin(handle, state, request, config, cache, layers)
            _read_chunks(handle, state, begun, config)
            return finish(handle, state, begun, config)
        except IntarsiaError as error:
            layers = retry_on_other_layer(handle, state, layers, error)


def retry_on_other_layer(
    handle: ArrayHandle[Any], state: ArrayState[Any], layers: LayerChoice, error: IntarsiaError
) -> LayerChoice:
    """How to read again after a failure: without the region to blame, if another layer may stand in for it.

    That is recorded. The failure is raised if there is no other layer, or if standing in is not allowed.
    """
    row = error.row
    if row is None or not layers.fallback or row in layers.avoided or len(state.manifest.replicas) == 0:
        raise error
    handle.fell_back(state, row, error)
    return layers.avoiding(row, str(error))


class BegunRead(NamedTuple):
    """A read of which everything is known except the chunks."""

    request: Request
    prepared: PreparedRead
    out: Values
    """The array that is read into, as the plan addresses it; values that need no chunk are there already."""
    cache: ChunkCache | None
    """Where chunks are kept, if they may be."""

    @property
    def busy(self) -> list[ChunkPlan]:
        """The parts that still have chunks to fetch."""
        return [work for work in self.prepared.works if work.present.size]


def begin(
    handle: ArrayHandle[Any],
    state: ArrayState[Any],
    request: Request,
    config: LogicalConfig,
    cache: ChunkCache | None = None,
    layers: LayerChoice = CHEAPEST,
) -> BegunRead:
    """Find all chunks, and allocate the values; chunks that are kept are copied into them at once."""
    options = config.options if config.verify_header else NO_OPTIONS
    if cache is not None and not handle.fetcher().immutable:
        cache = None  # others may write
    prepared = prepare(
        handle, state, request, options,
        by_strips=True, whole_chunks=cache is not None, layers=layers, now=False,
    )  # fmt: skip
    out = _output(state, prepared.plan)
    for work in prepared.works:
        work.out = work.part.onto(out)
        _fill_missing(work)
        if cache is not None:
            cache.place(work)
    return BegunRead(request, prepared, out, cache)


def finish(
    handle: ArrayHandle[Any], state: ArrayState[Any], begun: BegunRead, config: LogicalConfig
) -> tuple[Values, list[int], None]:
    """Read what is left to zarr; returns the values, and the regions in which chunks are missing."""
    request, prepared, out, _ = begun
    if prepared.by_zarr:
        check_store(handle.store)
    for part, source in prepared.by_zarr:
        packing = state.packing_of(part.row)
        try:
            read_part_by_zarr(
                source, part, out, points=request.axes is None, window=config.window, packing=packing
            )
        except Exception as error:
            raise _failure(handle, state, part.row, source, culprit(source, part), error) from error
    incomplete = [row for work in prepared.works for row in work.incomplete_regions()]
    incomplete += [part.row for part, _ in prepared.by_zarr]  # zarr does not say
    return out.reshape(request.shape), incomplete, None


def prepare(
    handle: ArrayHandle[Any],
    state: ArrayState[Any],
    request: Request,
    options: Options = NO_OPTIONS,
    *,
    by_strips: bool = False,
    whole_chunks: bool = False,
    layers: LayerChoice = CHEAPEST,
    now: bool = True,
) -> PreparedRead:
    """Find every chunk that a request needs, and where its bytes are; in parts as `plan` makes them.

    Unless whole chunks are wanted, pieces are enough where they can be fetched. Chunks in shards are located
    now, or during the read if the fetcher can do that.
    """
    fetcher = handle.fetcher()
    chosen = layers.among(state, near=fetcher.is_near)
    planned = plan(state.manifest, request, by_strips=by_strips, choose=chosen)
    works: list[ChunkPlan] = []
    by_zarr: list[tuple[Part, ZarrSource]] = []
    if len(planned.parts) > 1:
        state.members.open_together(state.member_names(planned.parts))
    for part in planned.parts:
        try:
            source = state.source_of(part).with_options(options)
        except IntarsiaError as error:
            error.row = part.row
            raise
        if isinstance(source, EngineSource):
            packing = state.packings_of(part)
            works.append(ChunkPlan(part, source, request.axes is None, request.working_shape, packing))
        elif part.strip is not None:  # zarr reads for one packing at a time
            return prepare(handle, state, request, options, whole_chunks=whole_chunks, layers=layers, now=now)
        else:
            by_zarr.append((part, source))
    if works:
        _locate(handle, fetcher, state, works, now=now)
        if not whole_chunks and fetcher.supports_ranges:
            for work in works:
                work.narrow()
        _join(works)
    return PreparedRead(planned, works, by_zarr)


def _locate(
    handle: ArrayHandle[Any], fetcher: Fetcher, state: ArrayState[Any], works: list[ChunkPlan], *, now: bool
) -> None:
    whole = [work for work in works if work.source.shards is None]
    try:
        sized = fetcher.sizes([(work.source, work.chunks) for work in whole])
    except icechunk.IcechunkError as error:
        what = f"cannot tell where the chunks of {handle.path!r} are stored"
        raise read_error(what, error, handle.store, handle.path, None) from error
    for work, sizes in zip(whole, sized, strict=True):
        if sizes is not None:
            work.set_sizes(sizes)
    sharded = [(work, shards) for work in works if (shards := work.source.shards) is not None]
    if fetcher.looks_into_shards and not now:
        for work, shards in sharded:
            work.look_up_later(*whereabouts(work.source, shards, work.chunks))
    elif sharded:
        try:
            places = locate(fetcher, [(work.source, shards, work.chunks) for work, shards in sharded])
        except ShardIndexError as failure:
            work, _ = sharded[failure.part]
            index = work.source.index(int(work.chunks[failure.position]))
            row = work.region_of(failure.position)
            raise _failure(handle, state, row, work.source, index, failure.cause) from failure.cause
        for (work, _), located in zip(sharded, places, strict=True):
            work.located = located
            work.set_sizes(located.nbytes)
    for work in works:
        work.fetcher = fetcher.for_member(work.source)


def _join(works: list[ChunkPlan]) -> None:
    """Decide which chunks come with one request."""
    if len(works) == 1 and works[0].present.size < 2:  # like most small reads
        return
    for via, those in by_fetcher(work for work in works if work.present.size):
        numbers = via.request_numbers([work.spans(work.present) for work in those])
        if numbers is not None:
            for work, request in zip(those, numbers, strict=True):
                work.set_requests(request)


def _output(state: ArrayState[Any], planned: SelectionPlan) -> Values:
    fill_value = None if planned.is_complete else state.manifest.fill_value
    return allocated(state.manifest.data_type, planned.request.working_shape, fill_value)


def _fill_missing(work: ChunkPlan) -> None:
    """Chunks that are not stored read as the member's fill value."""
    if work.chunks.size == work.present.size:
        return
    out, packing = work.out, work.packing
    if not work.present.size and not isinstance(packing, Packings):
        out[work.whole_target()] = work.fill_value(packing)
        return
    absent = np.flatnonzero(work.nbytes < 0)
    for (target, _), own in zip(work.placements(absent), work.packings(absent), strict=True):
        out[target] = work.fill_value(own)


def _read_chunks(
    handle: ArrayHandle[Any], state: ArrayState[Any], begun: BegunRead, config: LogicalConfig
) -> None:
    works = begun.busy
    if not works:
        return
    threads = threads_for(works, config)
    at_once = whole_batch(works, threads, config.window)
    if at_once is not None:
        decode_batch(handle, state, *at_once, Scratch(), begun.cache)
        return
    queue = Queue(works, threads, config.window)
    scratches = threading.local()

    def decode(taken: tuple[Batch, Pending]) -> None:
        scratch = getattr(scratches, "own", None)
        if scratch is None:
            scratch = scratches.own = Scratch()
        decode_batch(handle, state, *taken, scratch, begun.cache)

    run(queue.take, decode, threads, give_up=lambda _: queue.cancel())


def decode_batch(
    handle: ArrayHandle[Any],
    state: ArrayState[Any],
    batch: Batch,
    pending: Pending,
    scratch: Scratch,
    chunk_cache: ChunkCache | None = None,
) -> None:
    """Decode chunks into their places as their bytes arrive."""
    received = iter(pending)
    work, position = batch[0][0], int(batch[0][1][0])
    try:
        for work, positions in batch:
            source, out, decoder = work.source, work.out, work.source.decoder
            each = positions.tolist(), work.placements(positions), work.packings(positions)
            for position, (target, inside), packing in zip(*each, strict=True):
                encoded = next(received)
                if encoded is None:
                    out[target] = work.fill_value(packing)
                    work.missing.append(position)
                elif chunk_cache is not None:
                    chunk = int(work.chunks[position])
                    with working_on(source.index(chunk)):
                        values = decoder.values(encoded, scratch)
                    chunk_cache.keep(source, chunk, values)
                    work.put(values, target, inside, packing)
                elif decoder.asks_for_index:
                    with working_on(source.index(int(work.chunks[position]))):
                        decoder.place(encoded, out, target, inside, scratch, packing)
                else:
                    decoder.place(encoded, out, target, inside, scratch, packing)
    except Exception as error:
        index, row = work.source.index(int(work.chunks[position])), work.region_of(position)
        raise _failure(handle, state, row, work.source, index, error) from error
    finally:
        received.close()


def _failure(
    handle: ArrayHandle[Any],
    state: ArrayState[Any],
    row: int,
    source: Source,
    index: tuple[int, ...] | None,
    error: Exception,
) -> ReadError:
    what = f"cannot read {handle.chunk_text(state, row, source, index)}"
    failure = read_error(what, error, handle.store, source.path, source.stored_as(index))
    failure.row = row
    return failure


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


async def read_request_async(
    handle: ArrayHandle[Any], request: Request, config: LogicalConfig, cache: ChunkCache | None = None
) -> Values:
    """The values of a request, in its shape."""

    async def read(state: ArrayState[Any]) -> tuple[Values, list[int], None]:
        layers = LayerChoice(config.layer, config.fallback)
        while True:
            try:
                begun = await _elsewhere(begin, handle, state, request, config, cache, layers)
                if begun.busy:
                    await _read_chunks_async(handle, state, begun, config)
                return await _elsewhere(finish, handle, state, begun, config)
            except IntarsiaError as error:
                layers = retry_on_other_layer(handle, state, layers, error)

    return await handle.retry_on_change_async(read, _elsewhere)


async def _arrived(bytes_of_batch: Future[Any]) -> None:
    """Wait for the fetch to finish; errors surface on decode."""
    arrival = asyncio.wrap_future(bytes_of_batch)
    await asyncio.wait([arrival])
    if not arrival.cancelled():
        arrival.exception()  # retrieved here, so that asyncio does not complain that nobody did


async def _read_chunks_async(
    handle: ArrayHandle[Any], state: ArrayState[Any], begun: BegunRead, config: LogicalConfig
) -> None:
    works = begun.busy
    threads = threads_for(works, config)
    queue = Queue(works, threads, config.window)

    async def take_and_decode() -> None:
        scratch = Scratch()
        while (taken := queue.take()) is not None:
            batch, pending = taken
            if pending.arrival is not None:
                await _arrived(pending.arrival)
            await _elsewhere(decode_batch, handle, state, batch, pending, scratch, begun.cache)

    tasks = [asyncio.ensure_future(take_and_decode()) for _ in range(threads)]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        queue.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
