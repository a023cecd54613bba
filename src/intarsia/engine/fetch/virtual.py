"""Fetching chunks from files elsewhere: all that is wanted from a file, in as few requests as possible.

Icechunk reads each virtual chunk with its own request. Here neighbours come together, even those of several
members. What Icechunk would check is checked: who may read (`grants`), and that the file is still the one
that was referred to (`marks`), by ETag or time, with every answer. Anything that does not fit is left to
Icechunk, which reads it or says why it cannot, in its own words.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import zarr

from intarsia.engine.fetch.byte_ranges import FILES, REMOTE, JoinedRanges, Limits, joined, joined_as
from intarsia.engine.fetch.session_access import inside
from intarsia.engine.fetch.store import Cost, Encoded, Fetcher, FileSpan, Pending, Spans, Started, requests_of
from intarsia.errors import ChunkDecodeError
from intarsia.parallel import check_store

if TYPE_CHECKING:
    from intarsia.engine.fetch.icechunk import IcechunkBatch
    from intarsia.engine.fetch.references import Origin, References
    from intarsia.engine.member_source import EngineSource
    from intarsia.manifest.region_table import Ints


REQUESTS_PER_CHUNK = 4
"""As in `icechunk`: this many requests wait for each chunk that zarr would fetch at a time."""

NANOSECONDS = 10**9


class _RefusedError(Exception):
    """A source is gone, or may not be read this way: Icechunk says which, or reads it."""


class _ChangedError(_RefusedError):
    """A source is not the one that was referred to."""


class Wanted(NamedTuple):
    """Ranges of files elsewhere, for everything requested, in order."""

    owner: Ints
    """Number of the file in `origins`; -1 for what is not read from such a file."""

    start: Ints
    """The first byte of each range in its file."""

    nbytes: Ints
    origins: list[Origin]

    def joined(self, spans: Sequence[Spans], limits: Limits) -> tuple[Ints, JoinedRanges]:
        """The positions of what is read from files, and the requests for it."""
        own = np.flatnonzero(self.owner >= 0)
        columns = self.owner[own], self.start[own], self.nbytes[own]
        numbers = [item.request for item in spans]
        known = [number for number in numbers if number is not None]
        if numbers and len(known) == len(numbers):
            return own, joined_as(np.concatenate(known)[own], *columns)
        return own, joined(*columns, limits)


class _Origins(ABC):
    """What the two fetchers share: where everything lies, and what comes together."""

    lasting, looks_into_shards, supports_ranges = True, False, True
    limits: Limits

    def __init__(self, batch: IcechunkBatch) -> None:
        self._batch = batch

    def sizes(self, sources: Sequence[tuple[EngineSource, Ints]]) -> list[Ints | None]:
        return self._batch.sizes(sources)

    def for_member(self, source: EngineSource) -> Fetcher:
        return self._batch.for_member(source)

    @abstractmethod
    def _reads(self, origin: Origin) -> bool:
        """Whether this fetcher reads a file; other files are left to Icechunk."""

    def _wanted(self, spans: Sequence[Spans]) -> Wanted:
        """Files are numbered afresh: members that share a file share its number."""
        numbers: dict[tuple[str, Any], int] = {}
        origins: list[Origin] = []
        columns: list[tuple[Ints, Ints, Ints]] = []
        for item in spans:
            table = self._batch.listed(item.source)
            rows = table.rows(item.blob)
            number = self._numbered(table, rows, numbers, origins)
            columns.append((number, *table.places(rows, item)))
        if not columns:
            nothing = np.empty(0, dtype=np.int64)
            return Wanted(nothing, nothing, nothing, origins)
        owner, start, nbytes = (np.concatenate(column) for column in zip(*columns, strict=True))
        return Wanted(owner, start, nbytes, origins)

    def _numbered(
        self, table: References, rows: Ints, numbers: dict[tuple[str, Any], int], origins: list[Origin]
    ) -> Ints:
        own = np.where(rows >= 0, table.origin[rows], -1)
        used, where = np.unique(own, return_inverse=True)
        shared = np.full(used.shape, -1, dtype=np.int64)
        for k, origin in enumerate(table.origins[n] if n >= 0 else None for n in used.tolist()):
            if origin is not None and self._reads(origin):
                shared[k] = numbers.setdefault((origin.url, origin.mark), len(origins))
                if shared[k] == len(origins):
                    origins.append(origin)
        return shared[where]

    def joined(self, spans: Sequence[Spans]) -> list[Ints]:
        wanted = self._wanted(spans)
        own, requests = wanted.joined([], self.limits)
        number = requests.owner.size + np.arange(wanted.owner.size)
        number[own] = requests.request
        ends = np.cumsum([item.blob.size for item in spans])
        return np.split(number, ends[:-1])

    def cost(self, spans: Sequence[Spans]) -> Cost:
        wanted = self._wanted(spans)
        _, requests = wanted.joined(spans, self.limits)
        ends = np.cumsum([item.blob.size for item in spans])
        rest = [
            item.some(np.flatnonzero(mine < 0))
            for item, mine in zip(spans, np.split(wanted.owner, ends[:-1]), strict=True)
        ]
        others = self._batch.cost(rest)
        nbytes = None if others.nbytes is None else requests.nbytes + others.nbytes
        return Cost(requests.owner.size + others.requests, nbytes)


class LocalOrigins(_Origins):
    """Files elsewhere on this machine, read in the threads that decode."""

    in_threads = True
    name = "source files, neighbours joined"
    limits = FILES

    def _reads(self, origin: Origin) -> bool:
        return origin.container.is_local

    def begin(self, spans: Sequence[Spans]) -> Pending:
        return _OriginsLater(self._batch, spans, self._wanted(spans))


class _OriginsLater:
    """Opens and reads files from outside the repository during iteration."""

    arrival = None

    def __init__(self, batch: IcechunkBatch, spans: Sequence[Spans], wanted: Wanted) -> None:
        self._batch, self._spans, self._wanted = batch, spans, wanted
        self._open: tuple[int, int] | None = None
        """The number of the open file, and its descriptor."""

    def __iter__(self) -> Generator[Encoded | None]:
        wanted = self._wanted
        own, requests = wanted.joined(self._spans, FILES)
        request = np.full(wanted.owner.shape, -1, dtype=np.int64)
        request[own] = requests.request
        pieces = np.bincount(requests.request, minlength=requests.owner.size).tolist()
        columns = (column.tolist() for column in (request, wanted.start, wanted.nbytes))
        each = zip(self._places(), *columns, strict=True)
        current, content = -1, b""
        try:
            for (spans, i), number, first, length in each:
                if number < 0:
                    yield self._inlined(spans, i, first, length)
                    continue
                owner = int(requests.owner[number])
                try:
                    file = self._opened(owner)
                    if pieces[number] == 1:
                        yield FileSpan(file, first, length)
                        continue
                    begin = int(requests.first[number])
                    if number != current:
                        content, current = os.pread(file, int(requests.last[number]) - begin, begin), number
                except (OSError, _ChangedError) as error:
                    if isinstance(error, OSError) and error.errno is None:  # raised by a signal handler
                        raise
                    yield self._batch.get_now(spans, i)
                    continue
                piece = memoryview(content)[first - begin : first - begin + length]
                if len(piece) < length:
                    raise ChunkDecodeError(f"its file is cut off: it has {len(piece)} of {length} bytes")
                yield piece
        finally:
            self._close()

    def _places(self) -> Generator[tuple[Spans, int]]:
        for item in self._spans:
            yield from ((item, i) for i in range(item.blob.size))

    def _inlined(self, spans: Spans, i: int, first: int, length: int) -> Encoded:
        table = self._batch.listed(spans.source)
        row = int(table.rows(spans.blob[i : i + 1])[0])
        return memoryview(table.inlined[row])[first : first + length]

    def _opened(self, owner: int) -> int:
        """The descriptor of a file, checked to be the one that was referred to."""
        if self._open is not None and self._open[0] == owner:
            return self._open[1]
        self._close()
        origin = self._wanted.origins[owner]
        file = origin.container.folders.open(origin.container.key(origin.url))
        self._open = owner, file
        mark = origin.mark
        # Icechunk makes ETags of its own for comparison; times it keeps as whole seconds, rounded up.
        if isinstance(mark, str) or (mark is not None and os.fstat(file).st_mtime_ns > mark * NANOSECONDS):
            self._close()
            raise _ChangedError
        return file

    def _close(self) -> None:
        if self._open is not None:
            os.close(self._open[1])
            self._open = None

    def cancel(self) -> None:
        """Nothing is running."""


class RemoteOrigins(_Origins):
    """Objects elsewhere, requested on the event loop, many at a time."""

    in_threads = False
    name = "source objects, neighbours joined"
    limits = REMOTE

    def __init__(self, batch: IcechunkBatch) -> None:
        super().__init__(batch)
        self._gate = asyncio.Semaphore(max(1, REQUESTS_PER_CHUNK * zarr.config.get("async.concurrency")))

    def _reads(self, origin: Origin) -> bool:
        return not origin.container.is_local

    def begin(self, spans: Sequence[Spans]) -> Pending:
        check_store(self._batch.store)
        wanted = self._wanted(spans)
        own, requests = wanted.joined(spans, self.limits)
        return Started(self._get(spans, wanted, own, requests))

    async def _get(
        self, spans: Sequence[Spans], wanted: Wanted, own: Ints, requests: JoinedRanges
    ) -> list[Any]:
        keys = list(requests_of(spans))
        items: list[Any] = [None] * len(keys)
        rest = np.flatnonzero(wanted.owner < 0).tolist()
        columns = (column.tolist() for column in (requests.owner, requests.first, requests.last))
        asked = [self._request(wanted.origins[owner], *place) for owner, *place in zip(*columns, strict=True)]
        others, *contents = await asyncio.gather(self._batch.get_all([keys[k] for k in rest]), *asked)
        for k, item in zip(rest, others, strict=True):
            items[k] = item
        refused: dict[int, list[int]] = {}
        first, start, nbytes = requests.first.tolist(), wanted.start.tolist(), wanted.nbytes.tolist()
        for k, number in zip(own.tolist(), requests.request.tolist(), strict=True):
            content = contents[number]
            if isinstance(content, _RefusedError):
                refused.setdefault(number, []).append(k)
            elif isinstance(content, Exception):
                items[k] = content
            else:
                begin = start[k] - first[number]
                items[k] = memoryview(content)[begin : begin + nbytes[k]]
        again = [self._ask_icechunk(items, keys, places, contents[n]) for n, places in refused.items()]
        await asyncio.gather(*again)
        return items

    async def _ask_icechunk(
        self, items: list[Any], keys: list[Any], places: list[int], why: _RefusedError
    ) -> None:
        """Ask Icechunk for the pieces of a file that was refused; for the first it will say why.

        It ignores what a web server says about a file, so one that has changed stays refused.
        """
        head, *rest = places
        (items[head],) = await self._batch.get_all([keys[head]])
        if isinstance(why, _ChangedError) and not isinstance(items[head], Exception):
            items[head] = OSError(str(why))
        if isinstance(items[head], Exception):
            found = [items[head]] * len(rest)
        else:
            found = await self._batch.get_all([keys[k] for k in rest])
        for k, item in zip(rest, found, strict=True):
            items[k] = item

    async def _request(self, origin: Origin, first: int, last: int) -> Any:
        """The bytes of one request, or the reason why they did not come."""
        import obstore
        from obstore.exceptions import BaseError, GenericError

        options: Any = {"range": (first, last)}
        if isinstance(origin.mark, int):
            options["if_unmodified_since"] = datetime.fromtimestamp(origin.mark, tz=UTC)
        elif origin.mark is not None:
            options["if_match"] = f'"{origin.mark}"'
        try:
            async with self._gate:
                found = await obstore.get_async(origin.container.store, inside(origin.url), options=options)
                if not _is_the_same(found.meta, origin.mark):
                    return _ChangedError(f"{origin.url} is no longer the file that was referred to")
                content = memoryview(await found.bytes_async())
        except GenericError as error:  # the server fails, the connection breaks, the answer is wrong
            return OSError(f"{origin.url} cannot be read: {_first_line(error)}")
        except (BaseError, OSError):  # gone, refused, changed
            return _RefusedError()
        if len(content) != last - first:
            if found.meta["size"] < last:
                return _RefusedError()
            came = f"{len(content)} of {last - first} bytes arrived"
            return OSError(f"{origin.url} cannot be read: {came}")
        return content


def _is_the_same(meta: Any, mark: Any) -> bool:
    """Whether the object in an answer is the one that was referred to."""
    if mark is None:
        return True
    if isinstance(mark, int):
        return bool(meta["last_modified"].timestamp() <= mark)
    return str(meta["e_tag"] or "").strip('"') == str(mark).strip('"')


def _first_line(error: Exception) -> str:
    """What happened; obstore adds everything it knows, line by line."""
    return str(error).split("\n")[0].strip()
