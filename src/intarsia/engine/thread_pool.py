"""Work in a few threads that live no longer than the work: batches of chunks, the next of them fetched ahead.

The calling thread works too. All reads of a process together use no more helpers than a single one may, so
reads from many threads (as in dask) do not multiply.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextvars import copy_context
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from intarsia._compat import HAS_GIL
from intarsia.errors import signal_failure

if TYPE_CHECKING:
    from intarsia.engine.chunk_plan import ChunkPlan
    from intarsia.engine.config import LogicalConfig
    from intarsia.engine.fetch.store import Fetcher, PendingBytes
    from intarsia.manifest.region_table import Ints

START_SECONDS = 1.0
"""A thread whose start was interrupted does not start any more after this long."""


class _Helpers:
    """How many helper threads there are now."""

    def __init__(self) -> None:
        self._lock, self._busy = threading.Lock(), 0

    def take(self, wanted: int) -> int:
        with self._lock:
            granted = max(0, wanted - self._busy)
            self._busy += granted
            return granted

    def give_back(self, count: int) -> None:
        with self._lock:
            self._busy -= count


_helpers = _Helpers()


def _forget_helpers() -> None:
    """No helper runs in a forked child, whatever the parent was doing."""
    global _helpers
    _helpers = _Helpers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_helpers)


def run_in_threads[T](
    take: Callable[[], T | None],
    work: Callable[[T], None],
    threads: int,
    give_up: Callable[[BaseException], None] = lambda _: None,
) -> None:
    """Do `work` on everything that `take` returns until it returns None, in a limited number of threads.

    The first failure stops the others after their current piece, and is raised; `give_up` is called with it
    so that they do not wait for what is on its way. No thread is left behind, neither by a failure nor by
    KeyboardInterrupt or what a signal handler raises, which is raised whatever else failed.

    >>> left, done = [3, 2, 1], []
    >>> run_in_threads(lambda: left.pop() if left else None, done.append, threads=1)
    >>> done
    [1, 2, 3]
    """
    if threads <= 1:  # like most small reads and writes
        try:
            while (piece := take()) is not None:
                work(piece)
        except BaseException as failure:
            give_up(failure)
            raise
        return
    failures: list[BaseException] = []
    stop = threading.Event()

    def loop() -> None:
        try:
            while not stop.is_set():
                piece = take()
                if piece is None:
                    return
                work(piece)
        except BaseException as failure:
            failures.append(failure)
            stop.set()
            give_up(failure)

    helpers = _helpers
    granted = helpers.take(threads - 1)
    started: list[_Helper] = []
    try:
        for _ in range(granted):
            started.append(_Helper(loop))
            if not started[-1].starts():
                started.pop()
                break
        loop()
        for helper in started:
            helper.thread.join()
    except BaseException as interrupt:  # while threads are starting, or during the wait for them
        stop.set()
        give_up(interrupt)
        for helper in started:
            helper.join_if_it_runs()
        raise
    finally:
        helpers.give_back(granted)
    if failures:
        raise next((f for f in failures if not isinstance(f, Exception) or signal_failure(f)), failures[0])


class _Helper:
    """A thread that works in its creator's context.

    It has a thread instead of being one: the private names of threads differ between versions of Python.
    """

    def __init__(self, loop: Callable[[], None]) -> None:
        self._loop, self._context, self._runs = loop, copy_context(), threading.Event()
        self.thread = threading.Thread(target=self._run, name="intarsia", daemon=True)

    def _run(self) -> None:
        self._runs.set()
        self._context.run(self._loop)

    def starts(self) -> bool:
        """Start it; False if the system has no more threads, so that those that run do all the work."""
        try:
            self.thread.start()
        except RuntimeError as error:
            if signal_failure(error) is not None:
                raise
            return False
        return True

    def join_if_it_runs(self) -> None:
        """Wait for its end, if it runs: it may have been interrupted while it was starting."""
        if self._runs.wait(START_SECONDS):
            self.thread.join()


WORTH_A_THREAD = 256 << 10
"""Decoded bytes that make up for starting a thread that encodes them."""

WORTH_A_READING_THREAD = 1 << 20
"""The same for a thread that decodes zstd; slower codecs need less, and data without a codec far more.
Starting a thread, and passing the interpreter lock to and fro, takes as long as decoding half a megabyte."""

type Batch = list[tuple[ChunkPlan, Ints]]
"""Chunks of some parts: each part with positions among its chunks."""

BATCHES_PER_THREAD = 8
"""Work is cut into pieces so that no thread waits long for another's last one."""

WORTH_A_BATCH = 1 << 20
"""Decoded bytes that make up for opening files and looking up offsets once more: a tenth of their time."""

BATCHES_AHEAD = 4
"""How many fetches run at a time, if the store does not answer in the decoding thread."""


TOO_SMALL_TO_SHARE = 8 << 10
"""A chunk of fewer bytes is decoded before the interpreter's lock has passed from one thread to another: for
4 KiB, two threads took 1.1 to 1.7 times as long as one; for 16 KiB, 0.6 to 0.9."""

TOO_FAST_TO_SHARE = 384 << 10
"""The same for fast compressors: with lz4 in blosc, two threads took 1.8 times as long as one for chunks of
16 KiB, and 1.2 times for 64 KiB; for 256 KiB, 0.9 times on a quiet machine and 1.4 times on a busy one."""


RAW_WORK = 1 / 16
"""The work that a thread takes over with a byte that needs no decoding, relative to zstd: copying it costs
hardly more than the interpreter's lock."""


def threads_for(chunk_plans: list[ChunkPlan], config: LogicalConfig, *, writing: bool = False) -> int:
    """How many threads to use: as many as are allowed, have something to do, and fit into half the window."""
    if len(chunk_plans) == 1 and chunk_plans[0].present.size == 1:
        return 1
    chunks = largest = 0
    total = 0.0
    if not all(work.source.is_fixed_size for work in chunk_plans):
        return 1
    for work in chunk_plans:
        decoder = work.source.decoder
        chunks += work.present.size
        largest = max(largest, decoder.nbytes * decoder.copies)
        decoded = work.present.size * decoder.nbytes
        cost = 1.0 if writing else max(1.0, work.source.decode_cost)
        if decoder.is_raw:
            decoded = min(decoded, work.part.size * decoder.stored_dtype.itemsize)
            cost = cost if writing else RAW_WORK
        least = TOO_FAST_TO_SHARE if work.source.is_fast_to_decode else TOO_SMALL_TO_SHARE
        if writing or decoder.in_one_call or not HAS_GIL or decoder.nbytes >= least:
            total += decoded * cost
    fitting = config.window // 2 // max(largest, 1)
    worth = WORTH_A_THREAD if writing else WORTH_A_READING_THREAD
    return max(1, min(config.most_threads, chunks, fitting, int(total / worth)))


def cut_into_batches(
    chunk_plans: list[ChunkPlan], threads: int, window: int
) -> tuple[Iterator[Batch], Iterator[Batch]]:
    """The batches of a read: those that are fetched ahead, and those that the decoding threads read."""
    chunks = sum(work.present.size for work in chunk_plans)
    decoded = sum(work.present.size * work.source.decoder.nbytes for work in chunk_plans)
    count = min(threads * BATCHES_PER_THREAD, max(threads, decoded // WORTH_A_BATCH))
    each = max(1, chunks // max(1, count))
    ahead: list[Iterator[Batch]] = []
    here: list[Iterator[Batch]] = []
    for fetcher, those in by_fetcher(chunk_plans):
        if fetcher.in_threads:
            here.append(batches(those, window // 2 // threads, each))
        else:
            ahead.append(batches(those, window // 2 // (BATCHES_AHEAD + threads), chunks))
    return chain(*ahead), chain(*here)


def whole_batch(
    chunk_plans: list[ChunkPlan], threads: int, config: LogicalConfig
) -> tuple[Batch, PendingBytes] | None:
    """A read that is one batch, as most small ones are; None if it is more, or is fetched ahead."""
    if threads > 1 or len(chunk_plans) > 1:
        return None
    (work,) = chunk_plans
    if work.fetcher is None or not work.fetcher.in_threads:
        return None
    if work.present.size > 1 and int(work.nbytes[work.present].sum()) > config.window // 2:
        return None
    batch = [(work, work.present)]
    return batch, _begin(batch)


def by_fetcher(chunk_plans: Iterable[ChunkPlan]) -> list[tuple[Fetcher, list[ChunkPlan]]]:
    """Parts that one fetcher can fetch together."""
    found: dict[int, tuple[Fetcher, list[ChunkPlan]]] = {}
    for work in chunk_plans:
        if work.fetcher is not None:
            found.setdefault(id(work.fetcher), (work.fetcher, []))[1].append(work)
    return list(found.values())


class Queue:
    """Hands out batches whose bytes are on their way; encoded bytes take up to half the window."""

    def __init__(self, chunk_plans: list[ChunkPlan], threads: int, window: int) -> None:
        self._ahead, self._here = cut_into_batches(chunk_plans, threads, window)
        self._started: deque[tuple[Batch, PendingBytes]] = deque()
        self._taken: list[PendingBytes] = []
        self._lock = threading.Lock()
        self._fetch_ahead()

    def _fetch_ahead(self) -> None:
        while len(self._started) < BATCHES_AHEAD and (batch := next(self._ahead, None)) is not None:
            self._started.append((batch, _begin(batch)))

    def take(self) -> tuple[Batch, PendingBytes] | None:
        """The next batch; None if there is none left."""
        with self._lock:
            if self._started:
                taken = self._started.popleft()
                self._taken.append(taken[1])
                self._fetch_ahead()
                return taken
            batch = next(self._here, None)
            return None if batch is None else (batch, _begin(batch))

    def cancel(self) -> None:
        """Give up everything that is on its way."""
        with self._lock:
            begun = [*self._taken, *(pending for _, pending in self._started)]
            self._started.clear()
            self._ahead = self._here = iter(())
        for pending in begun:
            pending.cancel()


def _begin(batch: Batch) -> PendingBytes:
    fetcher = batch[0][0].fetcher
    assert fetcher is not None
    return fetcher.begin([work.spans(positions) for work, positions in batch])


def batches(chunk_plans: list[ChunkPlan], most_bytes: int, most_chunks: int) -> Iterator[Batch]:
    """Cut work into batches of limited bytes and chunks, each with at least one chunk.

    What comes with one request stays together, unless that alone exceeds a batch.
    """
    batch: Batch = []
    room_bytes, room_chunks = most_bytes, most_chunks
    for work in chunk_plans:
        positions = work.present
        total = np.cumsum(work.nbytes[positions])
        request = None if work.request is None else work.request[positions]
        at = 0
        while at < positions.size:
            # Sizes are summed up once: a batch ends where the sum has grown by the remaining room.
            before = int(total[at - 1]) if at else 0
            end = int(np.searchsorted(total, before + room_bytes, side="right"))
            end = min(end, at + room_chunks, positions.size)
            if request is not None and at < end < positions.size:
                # Go back to where the request of the next chunk begins, but leave no batch empty.
                begin = int(np.searchsorted(request, request[end]))
                end = begin if begin > at else at if batch else end
            if end <= at and not batch:
                end = at + 1
            if end > at:
                batch.append((work, positions[at:end]))
                room_bytes -= int(total[end - 1]) - before
                room_chunks -= end - at
                at = end
            if at < positions.size or room_chunks <= 0:
                yield batch
                batch, room_bytes, room_chunks = [], most_bytes, most_chunks
    if batch:
        yield batch
