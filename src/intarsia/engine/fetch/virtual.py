"""Virtual chunks: which files outside a repository may be read, and reading them in few requests.

A session travels to other processes with all that it needs there: the location of its repository, the
containers of virtual chunks, and the credentials of those that were authorised. That form, MessagePack, is
read here. Nothing is guessed: a file is read directly only if the container that Icechunk would choose is
authorised, and its kind and credentials are known here.

Icechunk reads each virtual chunk with its own request. Here neighbours come together, even those of several
members. What Icechunk would check is checked: who may read, and that the file is still the one that was
referred to, by ETag or time, with every answer. Anything that does not fit is left to Icechunk, which reads
it or says why it cannot, in its own words.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

import msgpack
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
from intarsia.engine.fetch.store import Cost, Encoded, Fetcher, FileSpan, Pending, Spans, Started, requests_of
from intarsia.engine.fetch.symlinks import Folders
from intarsia.errors import ChunkDecodeError
from intarsia.extras import is_there
from intarsia.parallel import check_store

if TYPE_CHECKING:
    from intarsia.engine.fetch.icechunk import IcechunkBatch, References
    from intarsia.engine.fetch.icechunk_checksums import Checksum
    from intarsia.engine.member_source import EngineSource
    from intarsia.manifest.region_table import Ints


STORAGE, RESOLVER = 2, 4
"""Positions in a session's form: its repository's storage, and what resolves virtual chunks."""

CONTAINERS, CREDENTIALS = 0, 1

S3_KINDS = ("s3", "s3_compatible")
LOCAL_PROVIDER = "local_file_system_object_store_provider"

ENVIRONMENT_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")

RETRIES: Any = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {
        "base": 2,
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=3),
    },
}
"""As for repositories: a server that is down should be noticed soon."""

TIMEOUTS = {"timeout": "60s", "connect_timeout": "5s"}


@dataclass(frozen=True)
class Container:
    """A URL prefix below which virtual chunks may lie, and how to get them."""

    prefix: str
    opener: Callable[[], Any] | None = field(compare=False)
    """Opens the object store; None if the source is a file on this machine."""

    @cached_property
    def store(self) -> Any:
        """The object store, opened on first use."""
        assert self.opener is not None
        return self.opener()

    @property
    def is_local(self) -> bool:
        return self.opener is None

    @cached_property
    def folders(self) -> Folders:
        """The directories below the prefix, if it is one of this machine: no link may lead out of it."""
        return Folders("/" + inside(self.prefix))

    def key(self, url: str) -> str:
        """The path of a file below the prefix.

        >>> Container("file:///data/", None).key("file:///data/2002/sst%20daily.nc")
        '2002/sst daily.nc'
        """
        return inside(url)[len(inside(self.prefix)) :]


@dataclass(frozen=True)
class Grants:
    """What one session allows."""

    repository: Container | None
    """The session's storage, if it can be read here; the prefix is the path of the repository, or its key."""

    prefixes: tuple[str, ...]
    """Prefixes of all containers; the first that fits counts."""

    containers: Mapping[str, Container]
    """The containers that may be read directly."""

    @property
    def folder(self) -> Path | None:
        """The directory of a repository that lies on this machine."""
        return (
            Path(self.repository.prefix) if self.repository is not None and self.repository.is_local else None
        )

    def container_of(self, url: str) -> Container | None:
        """The container of a virtual chunk, if it may be read directly; None leaves it to Icechunk."""
        prefix = next((prefix for prefix in self.prefixes if url.startswith(prefix)), None)
        container = None if prefix is None else self.containers.get(prefix)
        return container if container is not None and is_plain(url) else None

    def local_container_of(self, url: str) -> Container | None:
        """The authorised container of a file on this machine, whoever reads it."""
        prefix = next((prefix for prefix in self.prefixes if url.startswith(prefix)), "")
        container = self.containers.get(prefix)
        return container if container is not None and container.is_local else None

    def read_file(self, name: str) -> bytes:
        """A file of the repository."""
        assert self.repository is not None
        if self.repository.is_local:
            return (Path(self.repository.prefix) / name).read_bytes()
        import obstore

        key = f"{self.repository.prefix}/{name}".lstrip("/")
        return bytes(obstore.get(self.repository.store, key).bytes())


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


def inside(url: str) -> str:
    """The path of an object in its bucket or on its host, or of a file without its leading slash.

    >>> inside("s3://bucket/2002/sst%20daily.nc")
    '2002/sst daily.nc'
    """
    return unquote(urlsplit(url).path).lstrip("/")


def grants_of(pickled: bytes) -> Grants:
    """What a session in its travelling form allows; an unknown form grants nothing.

    >>> grants_of(b"something else").repository is None
    True
    """
    try:
        session = msgpack.unpackb(pickled, strict_map_key=False)
        repository = _repository(session[STORAGE])
        resolver = session[RESOLVER]
        declared = {container[1]: container[2] for container in resolver[CONTAINERS]}
        # Icechunk takes the longest prefix that matches.
        prefixes = tuple(sorted(declared, key=len, reverse=True))
        found = {
            prefix: _container(prefix, declared[prefix], credentials)
            for prefix, credentials in resolver[CREDENTIALS].items()
            if prefix in declared
        }
    except (ValueError, TypeError, LookupError, AttributeError, msgpack.UnpackException):
        return Grants(None, (), {})
    return Grants(repository, prefixes, {p: c for p, c in found.items() if c is not None})


def _repository(storage: Any) -> Container | None:
    backend = storage.get("backend", {})
    if storage["type"] == "ObjectStorage" and backend.get("object_store_provider_type") == LOCAL_PROVIDER:
        return Container(backend["path"], None)
    if storage["type"] != "S3Storage" or storage["extra_read_headers"] or storage["key_layout"] != "Standard":
        return None
    opener = _s3(storage["bucket"], storage["config"], ["s3", *storage["credentials"]])
    return None if opener is None else Container((storage["prefix"] or "").strip("/"), opener)


def _container(prefix: str, kinds: Any, credentials: Any) -> Container | None:
    """How to read below a prefix; None if that is not known here."""
    ((kind, settings),) = kinds.items()
    if not prefix.endswith("/"):
        return None
    if kind == "local_file_system":
        return Container(prefix, None) if credentials == ["local_file_system_access"] else None
    if kind in S3_KINDS:
        opener = _s3(urlsplit(prefix).netloc, settings, credentials)
    elif kind == "http":
        opener = _http(prefix, settings) if credentials == ["http_access"] else None
    else:
        opener = None
    return None if opener is None else Container(prefix, opener)


def _s3(bucket: str, settings: Any, credentials: Any) -> Callable[[], Any] | None:
    """How to open a bucket, if obstore is installed and the credentials are plain."""
    region, endpoint, anonymous, allow_http, path_style, _, requester_pays, *_ = settings
    keys = _keys(credentials, anonymous=anonymous)
    if keys is None or region is None or not bucket or not is_there("obstore"):
        return None
    if endpoint is None and any(name.startswith("AWS_ENDPOINT") for name in os.environ):
        return None  # Icechunk and obstore may understand that differently
    if endpoint is not None and not path_style:
        return None
    options: dict[str, Any] = {"region": region, "virtual_hosted_style_request": not path_style, **keys}
    if endpoint is not None:
        options["endpoint"] = endpoint
    if requester_pays:
        options["request_payer"] = True
    client: Any = TIMEOUTS | {"allow_http": bool(allow_http)}

    def opened() -> Any:
        from obstore.store import S3Store

        return S3Store(bucket, client_options=client, retry_config=RETRIES, **options)

    return opened


def _keys(credentials: Any, *, anonymous: bool) -> dict[str, Any] | None:
    """Credentials in obstore's form; None for those that are not known here, or that expire."""
    match credentials:
        case ["s3", "anonymous"]:
            return {"skip_signature": True}
        case ["s3", *_] if anonymous:
            return {"skip_signature": True}
        case ["s3", "static", str(key), str(secret), token, None]:
            if token is None and ENVIRONMENT_KEYS[2] in os.environ:
                return None  # obstore would take somebody else's token
            found = [key, secret, token]
        case ["s3", "from_env"] if all(os.environ.get(name) for name in ENVIRONMENT_KEYS[:2]):
            found = [os.environ.get(name) for name in ENVIRONMENT_KEYS]
        case _:
            return None
    names = ("access_key_id", "secret_access_key", "session_token")
    return {name: value for name, value in zip(names, found, strict=True) if value}


def _http(prefix: str, settings: Mapping[str, Any]) -> Callable[[], Any] | None:
    """How to open a web server, unless the settings ask for something that is not known here."""
    if not is_there("obstore") or set(settings) - {"allow_http"}:
        return None
    parts = urlsplit(prefix)
    client: Any = TIMEOUTS | {"allow_http": settings.get("allow_http") == "true"}

    def opened() -> Any:
        from obstore.store import HTTPStore

        root = f"{parts.scheme}://{parts.netloc}"
        return HTTPStore.from_url(root, client_options=client, retry_config=RETRIES)

    return opened


def local_grants(prefixes: Iterable[str]) -> Grants:
    """Grants for the containers on this machine among all with these prefixes, as if they were authorised.

    >>> list(local_grants(["file:///data/", "s3://bucket/"]).containers)
    ['file:///data/']
    """
    ordered = tuple(sorted(prefixes, key=len, reverse=True))
    local = [prefix for prefix in ordered if prefix.startswith("file://")]
    return Grants(None, ordered, {prefix: Container(prefix, None) for prefix in local})


REQUESTS_PER_CHUNK = 4
"""As in `icechunk`: this many requests wait for each chunk that zarr would fetch at a time."""

NANOSECONDS = 10**9


class _RefusedError(Exception):
    """A source is gone, or may not be read this way: Icechunk says which, or reads it."""


class _ChangedError(_RefusedError):
    """A source is not the one that was referred to."""


class Origin(NamedTuple):
    """A file outside the repository that holds chunks, as it was when they were referred to."""

    url: str
    checksum: Checksum
    container: Container
    """How to read it."""


class FileRanges(NamedTuple):
    """Ranges of files elsewhere, for everything requested, in order."""

    owner: Ints
    """Number of the file in `origins`; -1 for what is not read from such a file."""

    start: Ints
    """The first byte of each range in its file."""

    nbytes: Ints
    origins: list[Origin]

    def coalesce(self, spans: Sequence[Spans], limits: Limits) -> tuple[Ints, RangeRequests]:
        """The positions of what is read from files, and the requests for it."""
        own = np.flatnonzero(self.owner >= 0)
        columns = self.owner[own], self.start[own], self.nbytes[own]
        numbers = [item.request for item in spans]
        known = [number for number in numbers if number is not None]
        if numbers and len(known) == len(numbers):
            return own, group_ranges(np.concatenate(known)[own], *columns)
        return own, coalesce_ranges(*columns, limits)


class _Origins(ABC):
    """What the two fetchers share: where everything lies, and what comes together."""

    immutable, looks_into_shards, supports_ranges = True, False, True
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

    def _ranges(self, spans: Sequence[Spans]) -> FileRanges:
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
            return FileRanges(nothing, nothing, nothing, origins)
        owner, start, nbytes = (np.concatenate(column) for column in zip(*columns, strict=True))
        return FileRanges(owner, start, nbytes, origins)

    def _numbered(
        self, table: References, rows: Ints, numbers: dict[tuple[str, Any], int], origins: list[Origin]
    ) -> Ints:
        own = np.where(rows >= 0, table.origin[rows], -1)
        used, where = np.unique(own, return_inverse=True)
        shared = np.full(used.shape, -1, dtype=np.int64)
        for k, origin in enumerate(table.origins[n] if n >= 0 else None for n in used.tolist()):
            if origin is not None and self._reads(origin):
                shared[k] = numbers.setdefault((origin.url, origin.checksum), len(origins))
                if shared[k] == len(origins):
                    origins.append(origin)
        return shared[where]

    def request_numbers(self, spans: Sequence[Spans]) -> list[Ints]:
        ranges = self._ranges(spans)
        own, requests = ranges.coalesce([], self.limits)
        number = requests.owner.size + np.arange(ranges.owner.size)
        number[own] = requests.request
        ends = np.cumsum([item.blob.size for item in spans])
        return np.split(number, ends[:-1])

    def cost(self, spans: Sequence[Spans]) -> Cost:
        ranges = self._ranges(spans)
        _, requests = ranges.coalesce(spans, self.limits)
        ends = np.cumsum([item.blob.size for item in spans])
        rest = [
            item.select(np.flatnonzero(mine < 0))
            for item, mine in zip(spans, np.split(ranges.owner, ends[:-1]), strict=True)
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
        return _OriginsLater(self._batch, spans, self._ranges(spans))


class _OriginsLater:
    """Opens and reads files from outside the repository during iteration."""

    arrival = None

    def __init__(self, batch: IcechunkBatch, spans: Sequence[Spans], ranges: FileRanges) -> None:
        self._batch, self._spans, self._ranges = batch, spans, ranges
        self._open: tuple[int, int] | None = None
        """The number of the open file, and its descriptor."""

    def __iter__(self) -> Generator[Encoded | None]:
        ranges = self._ranges
        own, requests = ranges.coalesce(self._spans, FILES)
        request = np.full(ranges.owner.shape, -1, dtype=np.int64)
        request[own] = requests.request
        pieces = np.bincount(requests.request, minlength=requests.owner.size).tolist()
        columns = (column.tolist() for column in (request, ranges.start, ranges.nbytes))
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
        origin = self._ranges.origins[owner]
        file = origin.container.folders.open(origin.container.key(origin.url))
        self._open = owner, file
        checksum = origin.checksum
        # Icechunk makes ETags of its own for comparison; times it keeps as whole seconds, rounded up.
        if isinstance(checksum, str) or (
            checksum is not None and os.fstat(file).st_mtime_ns > checksum * NANOSECONDS
        ):
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
        ranges = self._ranges(spans)
        own, requests = ranges.coalesce(spans, self.limits)
        return Started(self._get(spans, ranges, own, requests))

    async def _get(
        self, spans: Sequence[Spans], ranges: FileRanges, own: Ints, requests: RangeRequests
    ) -> list[Any]:
        keys = list(requests_of(spans))
        items: list[Any] = [None] * len(keys)
        rest = np.flatnonzero(ranges.owner < 0).tolist()
        columns = (column.tolist() for column in (requests.owner, requests.first, requests.last))
        transfers = [
            self._request(ranges.origins[owner], *place) for owner, *place in zip(*columns, strict=True)
        ]
        others, *contents = await asyncio.gather(self._batch.get_all([keys[k] for k in rest]), *transfers)
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
        if isinstance(origin.checksum, int):
            options["if_unmodified_since"] = datetime.fromtimestamp(origin.checksum, tz=UTC)
        elif origin.checksum is not None:
            options["if_match"] = f'"{origin.checksum}"'
        try:
            async with self._gate:
                found = await obstore.get_async(origin.container.store, inside(origin.url), options=options)
                if not _is_the_same(found.meta, origin.checksum):
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


def _is_the_same(meta: Any, checksum: Any) -> bool:
    """Whether the object in an answer is the one that was referred to."""
    if checksum is None:
        return True
    if isinstance(checksum, int):
        return bool(meta["last_modified"].timestamp() <= checksum)
    return str(meta["e_tag"] or "").strip('"') == str(checksum).strip('"')


def _first_line(error: Exception) -> str:
    """What happened; obstore adds everything it knows, line by line."""
    return str(error).split("\n")[0].strip()
