"""What a session of Icechunk may read outside its repository, and how: learnt from the session itself.

A session travels to other processes with all that it needs there: the location of its repository, the
containers of virtual chunks, and the credentials of those that were authorised. That form, MessagePack, is
read here. Nothing is guessed: a source is read directly only if the container that Icechunk would choose is
authorised, and its kind and credentials are known here. Everything else is left to Icechunk, which reads it
or says why it cannot. What it says is put into helpful words here, too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import icechunk
import msgpack
import numpy as np
from zarr.abc.store import RangeByteRequest
from zarr.core.buffer import default_buffer_prototype

from intarsia._icechunk import VIRTUAL, chunk_table
from intarsia.display import common_prefix, storage_hint
from intarsia.engine.fetch.store import start
from intarsia.engine.fetch.symlinks import Folders
from intarsia.errors import NotAuthorizedError, ReadError, signal_failure
from intarsia.extras import is_there

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


NOT_AUTHORISED = re.compile(r"resolves to the url prefix (\S+), to be able to fetch")


NO_CONTAINER = re.compile(r"no virtual chunk container can handle the chunk location \((\S+)\)")


def local_grants(prefixes: Iterable[str]) -> Grants:
    """Grants for the containers on this machine among all with these prefixes, as if they were authorised.

    >>> list(local_grants(["file:///data/", "s3://bucket/"]).containers)
    ['file:///data/']
    """
    ordered = tuple(sorted(prefixes, key=len, reverse=True))
    local = [prefix for prefix in ordered if prefix.startswith("file://")]
    return Grants(None, ordered, {prefix: Container(prefix, None) for prefix in local})


def origin(store: Any, path: str, index: tuple[int, ...] | None) -> str | None:
    """The URL of the file that holds a virtual chunk; None if the chunk is not virtual, or this is unknown.

    >>> origin({}, "t/m-1", (0, 0)) is None
    True
    """
    if index is None or not isinstance(store, icechunk.IcechunkStore):
        return None
    try:
        table = chunk_table(store, path, len(index))
        virtual = ((table.index == index).all(axis=1) & (table.kind == VIRTUAL)).nonzero()[0]
        return table.location[virtual[0]] if virtual.size else None
    except Exception:  # the message is about another error, which must not be lost because of this one
        return None


def read_error(
    what: str, error: Exception, store: Any, path: str, index: tuple[int, ...] | None
) -> ReadError:
    """Our error for a chunk that cannot be read, with its cause in helpful words.

    If the program's own signal handler raised the error, that is raised instead.

    >>> read_error("cannot read [0:4]", ValueError("bad bytes"), {}, "t/m-1", (0,))
    ReadError('cannot read [0:4]: bad bytes')
    """
    interrupt = signal_failure(error)
    if interrupt is not None:
        raise interrupt
    text = f"{what}: {reason(error, store, path, index)}"
    prefix = refused_prefix(error, store)
    return ReadError(text) if prefix is None else NotAuthorizedError(text, prefix)


def refused_prefix(error: Exception, store: Any) -> str | None:
    """The prefix that a repository must be allowed to read, if its refusal is the error; one for all sources.

    >>> refused_prefix(ValueError("bad bytes"), {}) is None
    True
    """
    if not isinstance(error, icechunk.IcechunkError):
        return None
    unknown = NO_CONTAINER.search(str(error))
    if unknown:  # the handle was opened before the repository had a container for it
        return unknown[1].rsplit("/", 1)[0] + "/"
    refused = NOT_AUTHORISED.search(str(error))
    if refused is None:
        return None
    known = store.session.config.virtual_chunk_containers or {}
    root = "/".join(refused[1].split("/")[:3]) + "/"
    return common_prefix([refused[1], *(each for each in known if each.startswith(root))]) or refused[1]


@contextmanager
def helpful_refusals(store: Any, path: str) -> Iterator[None]:
    """Around reads of stored chunks: for files that may not be read, raise `NotAuthorizedError`.

    >>> with helpful_refusals({}, "t/m-1"):
    ...     pass
    """
    try:
        yield
    except icechunk.IcechunkError as error:
        if refused_prefix(error, store) is None:
            raise
        raise read_error(f"{path} cannot be read", error, store, path, None) from error


def check_access(store: Any, arrays: Iterable[tuple[str, int]]) -> None:
    """Raise an error, before anything is read, if these arrays refer to files that may not be read.

    Arrays are given by path and number of axes. For each container, one byte of one chunk is requested.

    >>> check_access({}, [("t/m-1", 2)])
    """
    if not isinstance(store, icechunk.IcechunkStore):
        return
    left = set(store.session.config.virtual_chunk_containers or ()) or {""}
    for path, ndim in arrays:
        if not left:
            return
        table = chunk_table(store, path, ndim)
        for row in np.flatnonzero(table.kind == VIRTUAL).tolist():
            met = {prefix for prefix in left if table.location[row].startswith(prefix)}
            if not met:
                continue
            left -= met
            key = "/".join([path, "c", *map(str, table.index[row].tolist())])
            # Any other error is reported to those who read it.
            with suppress(icechunk.IcechunkError), helpful_refusals(store, path):
                start(_first_byte(store, key)).result()


async def _first_byte(store: icechunk.IcechunkStore, key: str) -> None:
    await store.get(key, default_buffer_prototype(), RangeByteRequest(0, 1))


def reason(error: Exception, store: Any, path: str, index: tuple[int, ...] | None) -> str:
    """What is wrong with a chunk, in helpful words.

    >>> reason(ValueError("bad bytes"), {}, "t/m-1", (0,))
    'bad bytes'
    """
    text = str(error).split("\n\ncontext:")[0].strip()  # the call chain inside Icechunk
    place = origin(store, path, index)
    if place is not None and place not in text:
        text = f"{text} ({place})"
    if not isinstance(error, icechunk.IcechunkError):
        return text
    prefix = refused_prefix(error, store)
    if prefix is not None:
        return (
            f"{place or 'its source'} may not be read: the repository is not authorised to read below "
            f"{prefix}.\n  If you trust it, say so where you open it: authorize=[{prefix!r}], or "
            f"authorize=True for all that it names; or repo = intarsia.archives.authorize(repo, [{prefix!r}])"
        )
    return text + storage_hint(text)
