"""Files outside a repository that hold virtual chunks: which may be read without Icechunk, and reading them.

The person who opens a repository says which of its sources may be read, and with which credentials;
`versions/authorization.py` puts that into `SourceAccess`. Nothing is guessed: a file is read directly only if
the container that Icechunk would choose is among them.

What Icechunk would check is checked: that the file is still the one that was referred to, by ETag or time,
with every answer.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from intarsia.engine.fetch.symlinks import CheckedFolders

if TYPE_CHECKING:
    from intarsia.engine.fetch.icechunk_checksums import Checksum


class Container:
    """A URL prefix below which virtual chunks, or the files of a repository, lie, and how to get them."""

    def __init__(self, prefix: str, arguments: Mapping[str, Any] | None = None) -> None:
        self.prefix = prefix
        self.arguments = arguments
        """What obstore takes to open the place; None for files on this machine."""
        self.is_local = arguments is None
        self._path = object_path(prefix)

    def __reduce__(self) -> tuple[Any, ...]:
        return Container, (self.prefix, self.arguments)

    @cached_property
    def store(self) -> Any:
        """The object store, opened on first use."""
        from obstore.store import from_url

        parts, arguments = urlsplit(self.prefix), dict(self.arguments or {})
        return from_url(f"{parts.scheme}://{parts.netloc}", **arguments)

    @cached_property
    def folders(self) -> CheckedFolders:
        """The directories below the prefix, if it is one of this machine: no link may lead out of it."""
        return CheckedFolders("/" + self._path)

    def key(self, url: str) -> str:
        """The path of a file below the prefix.

        >>> Container("file:///data/").key("file:///data/2002/sst%20daily.nc")
        '2002/sst daily.nc'
        """
        return object_path(url)[len(self._path) :]

    def read(self, name: str) -> bytes:
        """The content of a small file below the prefix; raises OSError if it cannot be read."""
        if self.is_local:
            with open(f"/{self._path}{name}", "rb") as file:
                return file.read()
        import obstore
        from obstore.exceptions import BaseError

        try:
            return bytes(obstore.get(self.store, self._path + name).bytes())
        except BaseError as error:
            raise OSError(str(error)) from error


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
        self._known: dict[str, Container | None] = {}
        self.named: list[tuple[str, Checksum]] = []
        """The URLs and checksums of all files with a number; all arrays of the session share them."""
        self._numbers: dict[tuple[str, Checksum], int] = {}
        self._adding = threading.Lock()
        # If it is not known what Icechunk may read, it might be anything that is declared.
        local = self._prefixes if access is None else self._direct
        self._local = {prefix: Container(prefix) for prefix in local if prefix.startswith("file://")}

    def _prefix_of(self, url: str) -> str:
        return next((prefix for prefix in self._prefixes if url.startswith(prefix)), "")

    def container_of(self, url: str) -> Container | None:
        """The container of a virtual chunk, if it may be read directly; None leaves it to Icechunk."""
        if url not in self._known:
            container = self._direct.get(self._prefix_of(url))
            self._known[url] = container if container is not None and is_plain(url) else None
        return self._known[url]

    def numbers(self, named: Iterable[tuple[str, Checksum]]) -> Mapping[tuple[str, Checksum], int]:
        """The numbers of these and other files; those that have none yet get one."""
        with self._adding:
            for each in dict.fromkeys(named):
                if each not in self._numbers:
                    self.named.append(each)
                    self._numbers[each] = len(self.named) - 1
        return self._numbers

    def file(self, number: int) -> ReferencedFile:
        """The file with this number."""
        url, checksum = self.named[number]
        return ReferencedFile(url, self.container_of(url), checksum)

    @property
    def are_local(self) -> bool:
        """Whether some of them may be on this machine."""
        return bool(self._local)

    def check_links(self, urls: Iterable[str]) -> None:
        """Raise `ReadError` if one of these is behind a link that leads out of its prefix."""
        for url in dict.fromkeys(urls) if self._local else ():
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


NANOSECONDS = 10**9


class RefusedError(Exception):
    """A source is gone, or may not be read this way: Icechunk says which, or reads it."""


class ChangedError(RefusedError):
    """A source is not the one that was referred to."""


class ReferencedFile(NamedTuple):
    """A file outside the repository that holds chunks, as it was when they were referred to."""

    url: str
    container: Container | None
    """How to read it; None if only Icechunk may read it."""
    checksum: Checksum = None

    @property
    def is_local(self) -> bool | None:
        """Whether it is read from this machine; None if only Icechunk may read it."""
        return None if self.container is None else self.container.is_local


class OpenSource:
    """The one file that is open while source files of this machine are read one after the other."""

    def __init__(self, sources: ReferencedFiles) -> None:
        self._sources = sources
        self._number, self._descriptor = -1, -1

    def open(self, number: int) -> int:
        """The descriptor of a file, checked to be the one that was referred to."""
        if number == self._number:
            return self._descriptor
        self.close()
        url, container, checksum = self._sources.file(number)
        assert container is not None
        file = container.folders.open(container.key(url))
        # Icechunk makes ETags of its own for comparison; times it keeps as whole seconds, rounded up.
        if isinstance(checksum, str) or (
            checksum is not None and os.fstat(file).st_mtime_ns > checksum * NANOSECONDS
        ):
            os.close(file)
            raise OSError(errno.ESTALE, f"{url} is no longer the file that was referred to")
        self._number, self._descriptor = number, file
        return file

    def is_open_as(self, descriptor: int) -> bool:
        """Whether this descriptor is that of the file."""
        return descriptor == self._descriptor

    def close(self) -> None:
        if self._number >= 0:
            os.close(self._descriptor)
            self._number = self._descriptor = -1


async def request_bytes(file: ReferencedFile, first: int, last: int) -> Any:
    """Bytes of an object elsewhere, or the reason why they did not come."""
    import obstore
    from obstore.exceptions import BaseError, GenericError

    url, container, checksum = file
    assert container is not None
    options: Any = {"range": (first, last)}
    if isinstance(checksum, int):
        options["if_unmodified_since"] = datetime.fromtimestamp(checksum, tz=UTC)
    elif checksum is not None:
        options["if_match"] = f'"{checksum}"'
    try:
        found = await obstore.get_async(container.store, object_path(url), options=options)
        if not _is_the_same(found.meta, checksum):
            return ChangedError(f"{url} is no longer the file that was referred to")
        content = memoryview(await found.bytes_async())
    except GenericError as error:  # the server fails, the connection breaks, the answer is wrong
        return OSError(f"{url} cannot be read: {str(error).splitlines()[0].strip()}")
    except (BaseError, OSError):  # gone, refused, changed
        return RefusedError()
    if len(content) != last - first:
        if found.meta["size"] < last:
            return RefusedError()
        return OSError(f"{url} cannot be read: {len(content)} of {last - first} bytes arrived")
    return content


def _is_the_same(meta: Any, checksum: Checksum) -> bool:
    """Whether the object in an answer is the one that was referred to."""
    if checksum is None:
        return True
    if isinstance(checksum, int):
        return bool(meta["last_modified"].timestamp() <= checksum)
    return str(meta["e_tag"] or "").strip('"') == checksum.strip('"')
