"""Writing: a request goes to its regions, chunks are encoded in threads, their bytes stored in batches.

A request lies in one region, or in several when that was allowed. A chunk that is written in part is read
first. What the engine does not read is left to zarr (`ZarrSource`), and so are shards, whose writing is an
affair of whole files.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, wait
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from zarr.core.buffer import default_buffer_prototype

from intarsia._compat import chunk_is_empty
from intarsia.array.box import Box
from intarsia.array.config import LogicalConfig
from intarsia.array.decode import Scratch
from intarsia.array.fetch import Spans, fetcher_for, reason, start
from intarsia.array.plan import Part, plan
from intarsia.array.pool import run
from intarsia.array.source import EngineSource
from intarsia.array.values import Values, as_values, broadcast, for_member, holds_nulls, is_nullable
from intarsia.array.work import BATCHES_PER_THREAD, Work, batches, outer_index, threads_for
from intarsia.array.zarr_fallback import write_part_by_zarr
from intarsia.codecs.current_chunk import working_on
from intarsia.errors import CrossRegionWriteError, NoRegionError, PackingError, ReadError, ShapeError
from intarsia.nullable import NullableValues

if TYPE_CHECKING:
    from zarr.core.buffer import Buffer

    from intarsia.array.fetch import Fetcher, Pending
    from intarsia.array.layout import Told
    from intarsia.array.logical_group import GroupLayout, LogicalGroup
    from intarsia.array.plan import AxisSelector, SelectionPlan
    from intarsia.array.request import Request
    from intarsia.array.source import Source
    from intarsia.array.work import Batch
    from intarsia.packing import Packing


SHOWN_REGIONS = 6

type Look = Callable[[], Coroutine[Any, Any, Told]]
"""Asks the store what it says of the array."""

type Stored = list[tuple[str, Buffer | None]]
"""Keys and what to store there; None means to remove it."""

BATCHES_STORED_AT_A_TIME = 4


def write_request(logical: LogicalGroup, config: LogicalConfig, asked: Request, value: Any) -> None:
    """Write `value`, broadcast as NumPy does, where the request says."""
    logical.check_writable()
    values = as_values(logical.manifest, value, config.casting)
    try:
        values = broadcast(values, asked.shape)
    except ValueError:
        raise ShapeError(
            f"values of shape {values.shape} do not fit the selection, whose shape is {asked.shape}"
        ) from None
    values = values.reshape(asked.working_shape)
    touched: set[str] = set()

    def write(layout: GroupLayout) -> tuple[None, list[int], Told | None]:
        planned, points = plan(layout.manifest, asked), asked.axes is None
        # Of a region that is taken several times, the last one wins, as in NumPy.
        parts = list({part.row: part for part in planned.parts}.values())
        _check_regions(layout, config, planned, parts)
        rows = [layout.manifest.regions.row(part.row) for part in parts]
        sources = [layout.source_of(part) for part in parts]
        # Before anything is written, what some region cannot hold is refused.
        chosen = [_for_region(layout, part, values, points=points) for part in parts]
        if holds_nulls(values):
            for (part, own), source, row in zip(chosen, sources, rows, strict=True):
                own = own[part.target if points else outer_index(part.target, own.shape)]
                for_member(source.array, own, f"region {layout.region_text(row)}")
        touched.update(source.name for source in sources)
        told = None
        for (part, own), source in zip(chosen, sources, strict=True):
            target = source.with_options(logical.options(config.options))
            told = write_part(target, part, own, points=points, config=config, look=logical.look)
        return None, [part.row for part in parts], told

    logical.settled(write)
    for name in touched - set(logical.manifest.members):  # a member that was gone, brought back in part
        logical.discard(name)


def _for_region(layout: GroupLayout, part: Part, values: Values, *, points: bool) -> tuple[Part, Values]:
    """What is written, with the axes of the part's member and as its numbers; and the part for that."""
    packing, turned = layout.packing_of(part.row), part.onto(values)
    part = replace(part, view=None, at={})
    if packing is None:
        return part, turned
    chosen = turned[part.target if points else outer_index(part.target, turned.shape)]
    once = chosen[(slice(1),) * chosen.ndim] if not any(chosen.strides) else chosen  # one value for all
    try:
        stored = packing.encode(once)
    except PackingError as error:
        _refuse(layout, part, packing, once, error, points=points)
    every: tuple[AxisSelector, ...] = (np.arange(chosen.size),)
    if not points:
        axes = zip(part.source, chosen.shape, strict=True)
        every = tuple(slice(0, n, 1) if isinstance(s, slice) else np.arange(n) for s, n in axes)
    return replace(part, target=every), np.broadcast_to(stored, chosen.shape)


def _refuse(
    layout: GroupLayout, part: Part, packing: Packing, values: Values, error: PackingError, *, points: bool
) -> NoReturn:
    """Say for which element of the array the value is that the packing of its region cannot hold."""
    manifest, row, index = layout.manifest, layout.manifest.regions.row(part.row), error.index or ()
    places = index * len(part.source) if points else index
    point = tuple(
        s.start + (s.step or 1) * i if isinstance(s, slice) else int(s[i])
        for s, i in zip(part.source, places, strict=True)
    )
    element = manifest.from_member(row, Box(point, tuple(i + 1 for i in point))).start
    try:
        packing.encode(values[index].reshape((1,) * manifest.ndim), element)
    except PackingError as named:
        error = named
    raise PackingError(f"region {layout.region_text(row)}: {error}") from None


def _check_regions(
    layout: GroupLayout, config: LogicalConfig, planned: SelectionPlan, parts: list[Part]
) -> None:
    asked = planned.request
    if not planned.is_complete:
        raise NoRegionError(
            f"the write to {_asked_text(asked)} reaches elements that no region covers: "
            f"{asked.size - planned.size} of {asked.size}.\n"
            "  Add a region there first: arr.add_region(bounds, codecs=[…]), or arr.append(data, codecs=[…])"
        )
    if len(parts) > 1 and not config.cross_region_writes:
        rows = [layout.manifest.regions.row(part.row) for part in parts[:SHOWN_REGIONS]]
        named = " and ".join(layout.region_text(row) for row in rows)
        more = f" and {len(parts) - SHOWN_REGIONS} more" if len(parts) > SHOWN_REGIONS else ""
        raise CrossRegionWriteError(
            f"the write to {_asked_text(asked)} touches {len(parts)} regions: {named}{more}.\n"
            "  Write them one by one, or allow it: arr.with_config(cross_region_writes=True)"
        )


def _asked_text(asked: Request) -> str:
    return Box.of(asked.bounds).text()


def write_box(source: Source, box: Box, value: Any, config: LogicalConfig | None = None) -> None:
    """Write values, or one value, into a box of a member."""
    values = broadcast(for_member(source.array, value, f"the array {source.name!r}"), box.shape)
    inside = tuple(slice(a, b, 1) for a, b in zip(*box, strict=True))
    every = tuple(slice(0, n, 1) for n in box.shape)
    if values.size:
        write_part(source, Part(-1, inside, every, values.size), values, points=False, config=config)


def write_part(
    source: Source,
    part: Part,
    values: Values,
    *,
    points: bool,
    config: LogicalConfig | None = None,
    look: Look | None = None,
) -> Told | None:
    """Write what `part.target` selects of the values to where `part.source` says in the member.

    Nullable members are left to zarr. Where an event loop stores all of it in one go, it looks in that same
    go what became of the array meanwhile: asking for it afterwards would cost a small write a fifth more.
    """
    if isinstance(values, NullableValues) and not is_nullable(source.metadata.dtype):
        values = values.values  # the caller made sure that no null is among those of this part
    if (
        not isinstance(source, EngineSource)
        or not source.is_plain
        or source.shards is not None
        or values.dtype != source.array.dtype
    ):
        write_part_by_zarr(source, part, values, points=points)
        return None
    config = config or LogicalConfig()
    work = Work(part, source, points, values.shape)
    threads = threads_for([work], config)
    writer = _Writer(work, values, threads, config.window, look)
    try:
        run(writer.take, writer.write, threads, give_up=writer.give_up)
        writer.finish()
    except BaseException as failure:
        writer.give_up(failure)
        if isinstance(failure, Exception):  # whoever catches it finds the store at rest
            writer.wait()
        raise
    return writer.told


async def _all_stored(storing: list[Coroutine[Any, Any, None]]) -> None:
    try:
        async with asyncio.TaskGroup() as tasks:
            for one in storing:
                tasks.create_task(one)
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None  # what the store says, as from any other write


class _Writer:
    """Encodes batches of chunks of one part, and stores them."""

    def __init__(
        self, work: Work, values: Values, threads: int, window: int, look: Look | None = None
    ) -> None:
        self._work, self._values, self._source = work, values, work.source
        self._encoder = work.source.encoder
        self._store = work.source.array.store_path.store
        self._in_threads = work.source.in_threads
        self._covered = work.covered(work.source.metadata.shape)
        each = max(1, work.chunks.size // (threads * BATCHES_PER_THREAD))
        cut = batches([work], window // 2 // (BATCHES_STORED_AT_A_TIME + threads), each)
        first, second = next(cut), next(cut, None)
        self._batches: Iterator[Batch] = chain([first] if second is None else [first, second], cut)
        self._look = look if second is None else None  # when the only batch is stored, so is everything
        self.told: Told | None = None
        """What the store said after everything was stored, if it was asked."""
        self._fetcher: Fetcher | None = None  # only chunks that are written in part are read
        self._running: deque[Future[None]] = deque()
        self._begun: list[Future[None]] = []
        self._reading: set[Pending] = set()
        self._given_up = False
        self._lock = threading.Lock()
        self._scratch = threading.local()

    def take(self) -> Batch | None:
        """The next batch; None if there is none left."""
        with self._lock:
            return next(self._batches, None)

    def write(self, batch: Batch) -> None:
        """Encode a batch, and store it or see to it that it will be."""
        ((work, positions),) = batch
        partial = positions[~self._covered[positions]]
        pending = self._begin(Spans(self._source, work.chunks[partial])) if partial.size else None
        received = None if pending is None else iter(pending)
        keys = self._source.keys(work.chunks[positions])
        encoded: Stored = []
        try:
            for k, key, (target, inside) in zip(
                positions.tolist(), keys, work.placements(positions), strict=True
            ):
                if self._given_up:
                    return
                before = None
                if received is not None and not self._covered[k]:
                    before = self._read(received, int(work.chunks[k]))
                encoded.append((key, self._encode(int(work.chunks[k]), target, inside, before)))
                if self._in_threads:
                    self._store_now(*encoded.pop())
        finally:
            if received is not None and pending is not None:
                received.close()
                with self._lock:
                    self._reading.discard(pending)
        if encoded:
            self._store_soon(encoded)

    def _begin(self, spans: Spans) -> Pending:
        with self._lock:
            self._fetcher = self._fetcher or fetcher_for(self._store)
            pending = self._fetcher.begin([spans])
            self._reading.add(pending)
            return pending

    def _read(self, received: Any, chunk: int) -> Values | None:
        """The chunk as it is, to be changed; None if it is not stored."""
        scratch = getattr(self._scratch, "own", None)
        if scratch is None:
            scratch = self._scratch.own = Scratch()
        decoder, index = self._source.decoder, self._source.index(chunk)
        try:
            encoded = next(received)
            if encoded is None:
                return None
            values: Values = np.empty(self._source.chunk_shape, dtype=self._values.dtype)
            with working_on(index):
                decoder.place(encoded, values, (slice(None),) * values.ndim or ..., None, scratch)
        except Exception as error:
            why = reason(error, self._source.array.store, self._source.path, self._source.stored_as(index))
            raise ReadError(
                f"chunk {index} of member {self._source.name} is written in part, and cannot be read: {why}"
            ) from error
        return values

    def _encode(self, chunk: int, target: Any, inside: Any, before: Values | None) -> Buffer | None:
        source, values = self._source, self._values[target]
        if inside is not None:
            if before is None:
                before = np.full(source.chunk_shape, source.fill_value, dtype=values.dtype)
            before[inside] = values
            values = before
        array = default_buffer_prototype().nd_buffer.from_numpy_array(values)
        if chunk_is_empty(array, self._encoder.spec):
            return None
        with working_on(source.index(chunk)):
            return self._encoder.chain.encode_chunk(array, self._encoder.spec)

    def _store_now(self, key: str, encoded: Buffer | None) -> None:
        store: Any = self._store
        if encoded is None:
            store.delete_sync(key)
        else:
            store.set_sync(key, encoded)

    def _store_soon(self, encoded: Stored) -> None:
        with self._lock:
            if self._given_up:
                return
            self._begun.append(start(self._set(encoded)))
            self._running.append(self._begun[-1])
            waiting = self._running.popleft() if len(self._running) > BATCHES_STORED_AT_A_TIME else None
        if waiting is not None:
            waiting.result()

    async def _set(self, encoded: Stored) -> None:
        storing = [
            self._store.delete(key) if value is None else self._store.set(key, value)
            for key, value in encoded
        ]
        if len(storing) == 1:  # a task of its own would cost more than it does
            await storing[0]
        else:
            await _all_stored(storing)
        if self._look is not None:
            self.told = await self._look()

    def finish(self) -> None:
        """Wait until all is stored."""
        while self._running:
            self._running.popleft().result()

    def give_up(self, failure: BaseException) -> None:
        """Begin nothing more; after Ctrl-C and the like, wait for nothing that has begun either."""
        with self._lock:
            self._given_up = True
            self._batches = iter(())
            if not isinstance(failure, Exception):
                for storing in self._begun:
                    storing.cancel()
                for reading in self._reading:
                    reading.cancel()

    def wait(self) -> None:
        """Until nothing that has begun is on its way any more."""
        wait(self._begun)
