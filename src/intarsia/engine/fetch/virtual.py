"""Virtual chunks: which files outside a repository may be read without Icechunk, and reading them in few
requests.

The person who opens a repository says which of its sources may be read, and with which credentials;
`versions/authorization.py` puts that into `SourceAccess`. Nothing is guessed: a file is read directly only if
the container that Icechunk would choose is among them.

Icechunk reads each virtual chunk with its own request. Here neighbours come together, even those of several
members. What Icechunk would check is checked: that the file is still the one that was referred to, by ETag or
time, with every answer. Anything that does not fit is left to Icechunk, which reads it or says why it cannot,
in its own words.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

import numpy as np
import zarr

from intarsia.engine.fetch.byte_ranges import (
    FILES,
    REMOTE,
    Limits,
    RangeRequests,
    coalesce_ranges,
    group_ranges,
)
from intarsia.engine.fetch.store import (
    ByteRanges,
    Cost,
    Encoded,
    FileSpan,
    LoopFetch,
    PendingBytes,
    requests_of,
)
from intarsia.engine.fetch.symlinks import CheckedFolders
from intarsia.errors import ChunkDecodeError
from intarsia.parallel import check_store

if TYPE_CHECKING:
    from intarsia.engine.fetch.icechunk import IcechunkSession
    from intarsia.engine.fetch.icechunk_checksums import Checksum
    from intarsia.manifest.region_table import Ints


class Container:
    """A URL prefix below which virtual chunks, or the files of a repository, lie, and how to get them."""

    def __init__(self, prefix: str, arguments: Mapping[str, Any] | None = None) -> None:
        self.prefix = prefix
        self.arguments = arguments
        """What obstore takes to open the place; None for files on this machine."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Container, (self.prefix, self.arguments)

    @property
    def is_local(self) -> bool:
        return self.arguments is None

    @cached_property
    def store(self) -> Any:
        """The object store, opened on first use."""
        from obstore.store import from_url

        parts, arguments = urlsplit(self.prefix), dict(self.arguments or {})
        return from_url(f"{parts.scheme}://{parts.netloc}", **arguments)

    @cached_property
    def folders(self) -> CheckedFolders:
        """The directories below the prefix, if it is one of this machine: no link may lead out of it."""
        return CheckedFolders("/" + object_path(self.prefix))

    def key(self, url: str) -> str:
        """The path of a file below the prefix.

        >>> Container("file:///data/").key("file:///data/2002/sst%20daily.nc")
        '2002/sst daily.nc'
        """
        return object_path(url)[len(object_path(self.prefix)) :]

    def read(self, name: str) -> bytes:
        """The content of a small file below the prefix."""
        if self.is_local:
            with open(f"/{object_path(self.prefix)}{name}", "rb") as file:
                return file.read()
        import obstore

        return bytes(obstore.get(self.store, object_path(self.prefix) + name).bytes())


@dataclass(frozen=True)
class SourceAccess:
    """What the person who opened a repository lets its sessions read, without asking Icechunk."""

    containers: Mapping[str, Container] = field(default_factory=dict)
    """The sources, by URL prefix."""

    repository: Container | None = None
    """The files of the repository itself, if they lie in an object store."""


class ReferencedFiles:
    """Files outside the repository of a session: what its configuration says about them, and which may be
    read here."""

    def __init__(self, declared: Iterable[str], access: SourceAccess | None) -> None:
        self._prefixes = sorted(declared, key=len, reverse=True)  # Icechunk takes the longest that matches
        self._direct = {} if access is None else access.containers
        # If it is not known what Icechunk may read, it might be anything that is declared.
        local = self._prefixes if access is None else self._direct
        self._local = {prefix: Container(prefix) for prefix in local if prefix.startswith("file://")}

    def _prefix_of(self, url: str) -> str:
        return next((prefix for prefix in self._prefixes if url.startswith(prefix)), "")

    def container_of(self, url: str) -> Container | None:
        """The container of a virtual chunk, if it may be read directly; None leaves it to Icechunk."""
        container = self._direct.get(self._prefix_of(url))
        return container if container is not None and is_plain(url) else None

    def check_links(self, urls: Callable[[], Iterable[str]], most_entries: int) -> None:
        """Raise `ReadError` if one of these is behind a link that leads out of its prefix.

        Nothing is done if no link at all leads out of the local prefixes, which is found out only if there
        are no more than `most_entries` files below them.
        """
        local = self._local.values()
        if not local or (most_entries and all(each.folders.is_free(most_entries) for each in local)):
            return
        for url in dict.fromkeys(urls()):
            container = self._local.get(self._prefix_of(url))
            if container is not None:
                container.folders.check_file(container.key(url))


def is_plain(url: str) -> bool:
    """Whether a URL says plainly where it leads: no steps upwards, no empty steps, nothing but a path.

    >>> is_plain("s3://bucket/2002/sst%20daily.nc"), is_plain("file:///data/../etc/passwd")
    (True, False)
    """
    parts = urlsplit(url)
    if parts.query or parts.fragment or "?" in url or "#" in url:
        return False
    steps = unquote(parts.path).split("/")[1:]
    return all(step not in ("", ".", "..") for step in steps) and "\\" not in url and "\0" not in unquote(url)


def object_path(url: str) -> str:
    """The path of an object in its bucket or on its host, or of a file without its leading slash.

    >>> object_path("s3://bucket/2002/sst%20daily.nc")
    '2002/sst daily.nc'
    """
    return unquote(urlsplit(url).path).lstrip("/")


REQUESTS_PER_CHUNK = 4
"""zarr's `async.concurrency` counts the chunks that are fetched and decoded at a time. Requests mostly wait,
so this many are made for each of those chunks."""

NANOSECONDS = 10**9


class _RefusedError(Exception):
    """A source is gone, or may not be read this way: Icechunk says which, or reads it."""


class _ChangedError(_RefusedError):
    """A source is not the one that was referred to."""


class ReferencedFile(NamedTuple):
    """A file outside the repository that holds chunks, as it was when they were referred to."""

    url: str
    container: Container
    """How to read it."""
    checksum: Checksum = None


class FileRanges(NamedTuple):
    """Ranges of files elsewhere, for everything requested, in order."""

    owner: Ints
    """Number of the file in `files`; -1 for what is not read from such a file."""

    start: Ints
    """The first byte of each range in its file."""

    nbytes: Ints
    files: list[ReferencedFile]

    @classmethod
    def of(cls, session: IcechunkSession, spans: Sequence[ByteRanges], *, local: bool) -> FileRanges:
        """What is read from files of this machine, or from elsewhere. Files are numbered afresh: members
        that share a file share its number."""
        numbers: dict[tuple[str, Any], int] = {}
        files: list[ReferencedFile] = []
        columns: list[tuple[Ints, Ints, Ints]] = [(np.empty(0, dtype=np.int64),) * 3]
        for item in spans:
            table = session.listed(item.source)
            rows = table.rows(item.blob)
            used, where = np.unique(np.where(rows >= 0, table.file[rows], -1), return_inverse=True)
            shared = np.full(used.shape, -1, dtype=np.int64)
            for k, file in enumerate(table.files[n] if n >= 0 else None for n in used.tolist()):
                if file is not None and file.container.is_local == local:
                    shared[k] = numbers.setdefault((file.url, file.checksum), len(files))
                    if shared[k] == len(files):
                        files.append(file)
            columns.append((shared[where], *table.places(rows, item)))
        owner, start, nbytes = (np.concatenate(column) for column in zip(*columns, strict=True))
        return cls(owner, start, nbytes, files)

    def coalesce(self, spans: Sequence[ByteRanges], limits: Limits) -> tuple[Ints, RangeRequests]:
        """The positions of what is read from files, and the requests for it: those that the spans name, if
        they name any."""
        own = np.flatnonzero(self.owner >= 0)
        columns = self.owner[own], self.start[own], self.nbytes[own]
        numbers = [item.request for item in spans]
        known = [number for number in numbers if number is not None]
        if numbers and len(known) == len(numbers):
            return own, group_ranges(np.concatenate(known)[own], *columns)
        return own, coalesce_ranges(*columns, limits)


class CoalescedFetcher:
    """Fetches neighbours in source files together; the two kinds of places differ in how they are read."""

    def __init__(self, session: IcechunkSession, name: str, limits: Limits, *, local: bool) -> None:
        self._session, self.name, self._limits = session, name, limits
        self.in_threads = local

    def _ranges(self, spans: Sequence[ByteRanges]) -> FileRanges:
        return FileRanges.of(self._session, spans, local=self.in_threads)

    def request_numbers(self, spans: Sequence[ByteRanges]) -> list[Ints] | None:
        if not any(self._session.listed(item.source).files for item in spans):
            return None
        ranges = self._ranges(spans)
        own, requests = ranges.coalesce([], self._limits)
        number = requests.owner.size + np.arange(ranges.owner.size)
        number[own] = requests.request
        return _split(number, spans)

    def cost(self, spans: Sequence[ByteRanges]) -> Cost:
        ranges = self._ranges(spans)
        _, requests = ranges.coalesce(spans, self._limits)
        owners = zip(spans, _split(ranges.owner, spans), strict=True)
        others = self._session.cost([item.select(np.flatnonzero(mine < 0)) for item, mine in owners])
        nbytes = None if others.nbytes is None else requests.nbytes + others.nbytes
        return Cost(requests.owner.size + others.requests, nbytes)


def _split(column: Ints, spans: Sequence[ByteRanges]) -> list[Ints]:
    """A column of all that is requested, divided by member."""
    return np.split(column, np.cumsum([item.blob.size for item in spans])[:-1])


class OpenSource:
    """The one file that is open while source files of this machine are read one after the other."""

    def __init__(self, files: list[ReferencedFile]) -> None:
        self._files = files
        self._number, self._descriptor = -1, -1

    def open(self, number: int) -> int:
        """The descriptor of a file, checked to be the one that was referred to."""
        if number == self._number:
            return self._descriptor
        self.close()
        url, container, checksum = self._files[number]
        file = container.folders.open(container.key(url))
        # Icechunk makes ETags of its own for comparison; times it keeps as whole seconds, rounded up.
        if isinstance(checksum, str) or (
            checksum is not None and os.fstat(file).st_mtime_ns > checksum * NANOSECONDS
        ):
            os.close(file)
            raise _ChangedError
        self._number, self._descriptor = number, file
        return file

    def close(self) -> None:
        if self._number >= 0:
            os.close(self._descriptor)
            self._number = -1


def read_coalesced(
    spans: Sequence[ByteRanges],
    ranges: FileRanges,
    own: Callable[[ByteRanges], Iterable[Encoded | None]],
    ask_icechunk: Callable[[ByteRanges], bytes],
) -> Generator[Encoded | None]:
    """Everything that is requested, in order; neighbours in a source file of this machine in one go.

    `own` reads what is not in a source file, and `ask_icechunk` what cannot be read from one.
    """
    positions, requests = ranges.coalesce(spans, FILES)
    request = np.full(ranges.owner.shape, -1, dtype=np.int64)
    request[positions] = requests.request
    pieces = np.bincount(requests.request, minlength=requests.owner.size).tolist()
    columns = (column.tolist() for column in (request, ranges.start, ranges.nbytes))
    places = ((item, slice(i, i + 1)) for item in spans for i in range(item.blob.size))
    current, content, sources = -1, b"", OpenSource(ranges.files)
    try:
        for (item, at), number, first, length in zip(places, *columns, strict=True):
            if number < 0:
                yield from own(item.select(at))
                continue
            begin = int(requests.first[number])
            try:
                file = sources.open(int(requests.owner[number]))
                if pieces[number] == 1:
                    yield FileSpan(file, first, length)
                    continue
                if number != current:
                    content, current = os.pread(file, int(requests.last[number]) - begin, begin), number
            except (OSError, _ChangedError) as error:
                if isinstance(error, OSError) and error.errno is None:  # raised by a signal handler
                    raise
                yield ask_icechunk(item.select(at))
                continue
            piece = memoryview(content)[first - begin : first - begin + length]
            if len(piece) < length:
                raise ChunkDecodeError(f"its file is cut off: it has {len(piece)} of {length} bytes")
            yield piece
    finally:
        sources.close()


class SourceObjects(CoalescedFetcher):
    """Objects elsewhere, requested on the event loop, many at a time."""

    def __init__(self, session: IcechunkSession) -> None:
        super().__init__(session, "source objects, neighbours joined", REMOTE, local=False)
        self._gate = asyncio.Semaphore(max(1, REQUESTS_PER_CHUNK * zarr.config.get("async.concurrency")))

    def begin(self, spans: Sequence[ByteRanges]) -> PendingBytes:
        check_store(self._session.store)
        ranges = self._ranges(spans)
        own, requests = ranges.coalesce(spans, self._limits)
        return LoopFetch(self._get(spans, ranges, own, requests))

    async def _get(
        self, spans: Sequence[ByteRanges], ranges: FileRanges, own: Ints, requests: RangeRequests
    ) -> list[Any]:
        keys = list(requests_of(spans))
        items: list[Any] = [None] * len(keys)
        rest = np.flatnonzero(ranges.owner < 0).tolist()
        columns = (column.tolist() for column in (requests.owner, requests.first, requests.last))
        transfers = [
            self._request(ranges.files[owner], *place) for owner, *place in zip(*columns, strict=True)
        ]
        others, *contents = await asyncio.gather(self._session.get_all([keys[k] for k in rest]), *transfers)
        for k, item in zip(rest, others, strict=True):
            items[k] = item
        refused: dict[int, list[int]] = {}
        first, start, nbytes = requests.first.tolist(), ranges.start.tolist(), ranges.nbytes.tolist()
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
        (items[head],) = await self._session.get_all([keys[head]])
        if isinstance(why, _ChangedError) and not isinstance(items[head], Exception):
            items[head] = OSError(str(why))
        if isinstance(items[head], Exception):
            found = [items[head]] * len(rest)
        else:
            found = await self._session.get_all([keys[k] for k in rest])
        for k, item in zip(rest, found, strict=True):
            items[k] = item

    async def _request(self, source: ReferencedFile, first: int, last: int) -> Any:
        """The bytes of one request, or the reason why they did not come."""
        import obstore
        from obstore.exceptions import BaseError, GenericError

        url, container, checksum = source
        options: Any = {"range": (first, last)}
        if isinstance(checksum, int):
            options["if_unmodified_since"] = datetime.fromtimestamp(checksum, tz=UTC)
        elif checksum is not None:
            options["if_match"] = f'"{checksum}"'
        try:
            async with self._gate:
                found = await obstore.get_async(container.store, object_path(url), options=options)
                if not _is_the_same(found.meta, checksum):
                    return _ChangedError(f"{url} is no longer the file that was referred to")
                content = memoryview(await found.bytes_async())
        except GenericError as error:  # the server fails, the connection breaks, the answer is wrong
            return OSError(f"{url} cannot be read: {str(error).splitlines()[0].strip()}")
        except (BaseError, OSError):  # gone, refused, changed
            return _RefusedError()
        if len(content) != last - first:
            if found.meta["size"] < last:
                return _RefusedError()
            return OSError(f"{url} cannot be read: {len(content)} of {last - first} bytes arrived")
        return content


def _is_the_same(meta: Any, checksum: Checksum) -> bool:
    """Whether the object in an answer is the one that was referred to."""
    if checksum is None:
        return True
    if isinstance(checksum, int):
        return bool(meta["last_modified"].timestamp() <= checksum)
    return str(meta["e_tag"] or "").strip('"') == checksum.strip('"')
