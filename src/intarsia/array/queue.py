"""Batches of chunks in the order they are decoded, with the next ones fetched ahead."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from intarsia.array.fetch import Spans

if TYPE_CHECKING:
    from collections.abc import Iterator

    from intarsia.array.fetch import Pending
    from intarsia.array.table import Ints
    from intarsia.array.work import Work

__all__ = ["Batch", "Queue", "batches"]

type Batch = list[tuple[Work, Ints]]
"""Chunks of some parts: each part with positions among its chunks."""

BATCHES_PER_THREAD = 8
"""Work is cut so that no thread waits long for another's last piece."""

BATCHES_AHEAD = 4
"""Fetches that run at a time, where the store does not answer in the decoding thread."""


class Queue:
    """Hands out batches whose bytes are on their way; encoded bytes take up to half the window."""

    def __init__(self, works: list[Work], threads: int, window: int) -> None:
        chunks = sum(work.present.size for work in works)
        each = max(1, chunks // (threads * BATCHES_PER_THREAD))
        ahead = [work for work in works if work.fetcher is not None and not work.fetcher.in_threads]
        here = [work for work in works if work.fetcher is not None and work.fetcher.in_threads]
        self._ahead = batches(ahead, window // 2 // (BATCHES_AHEAD + threads), chunks)
        self._here = batches(here, window // 2 // threads, each)
        self._started: deque[tuple[Batch, Pending]] = deque()
        self._taken: list[Pending] = []
        self._lock = threading.Lock()
        self._fetch_ahead()

    def _fetch_ahead(self) -> None:
        while len(self._started) < BATCHES_AHEAD and (batch := next(self._ahead, None)) is not None:
            self._started.append((batch, _begin(batch)))

    def take(self) -> tuple[Batch, Pending] | None:
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
        """Give up all that is on its way."""
        with self._lock:
            for pending in (*self._taken, *(pending for _, pending in self._started)):
                pending.cancel()
            self._started.clear()
            self._ahead = self._here = iter(())


def _begin(batch: Batch) -> Pending:
    fetcher = batch[0][0].fetcher
    assert fetcher is not None
    spans = []
    for work, positions in batch:
        located = work.located
        if located is None:
            spans.append(Spans(work.source, work.chunks[positions]))
        else:
            spans.append(Spans(work.source, *(column[positions] for column in located)))
    return fetcher.begin(spans)


def batches(works: list[Work], most_bytes: int, most_chunks: int) -> Iterator[Batch]:
    """Cut work into batches of at most so many bytes and chunks; one chunk is the least."""
    batch: Batch = []
    room_bytes, room_chunks = most_bytes, most_chunks
    for work in works:
        positions = work.present
        total = np.cumsum(work.nbytes[positions])
        at = 0
        while at < positions.size:
            before = int(total[at - 1]) if at else 0
            end = int(np.searchsorted(total, before + room_bytes, side="right"))
            end = min(end, at + room_chunks, positions.size)
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
