"""Which files a source may refer to: those in its own folder or bucket, and those that the caller authorised.

References of kerchunk, external storage of HDF5 and symbolic links name other files. Without this check, a
file could bring anything that its reader may read into a repository.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from intarsia.engine.fetch.symlinks import FOLLOW
from intarsia.errors import IngestError
from intarsia.versions.access import FILE

type Authorized = bool | str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None
"""What sources may refer to: everything (`True`), or what is at or below paths and URLs."""

SHOWN = 3
"""How many files a refusal names."""


@dataclass(frozen=True, slots=True)
class Permissions:
    """What sources may refer to outside of their own folder or bucket."""

    prefixes: tuple[str, ...] | None = ()
    """Paths and URLs of files and directories; None for everything."""

    @classmethod
    def of(cls, authorize: Authorized) -> Permissions:
        """What the caller allows.

        >>> Permissions.of("s3://bucket/daily/"), Permissions.of(None)
        (Permissions(prefixes=('s3://bucket/daily/',)), Permissions(prefixes=()))
        """
        if authorize is None or isinstance(authorize, bool):
            return cls(None if authorize else ())
        if isinstance(authorize, Mapping):
            raise IngestError(
                "authorize= of an ingest takes URL prefixes without options of their own: storage_options= "
                "holds the options for all files"
            )
        named = [authorize] if isinstance(authorize, str | os.PathLike) else authorize
        return cls(tuple(os.fspath(each) for each in named))

    def checked(self, urls: Iterable[str], folder: str) -> dict[str, str]:
        """The files that links lead to, by the URL of the link.

        Raises `IngestError` if a file is neither below `folder`, which may be a bucket, nor authorised.
        """
        moved: dict[str, str] = {}
        outside: dict[str, str] = {}
        for url in urls:
            real = _real(url)
            if not _is_below(real, folder) and not self._allows(real):
                outside[url] = real
            elif not _same_file(url, real, folder):
                moved[url] = real
        if outside:
            raise IngestError(self.refusal(outside, folder))
        return moved

    def refusal(self, outside: Mapping[str, str], folder: str) -> str:
        """Why files are not read: where they are, by the name under which the source refers to them."""
        listed = [url if url == real else f"{url} (which leads to {real})" for url, real in outside.items()]
        more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
        first = next(iter(outside.values()))
        return (
            f"it refers to {', '.join(listed[:SHOWN])}{more}, outside of {folder} "
            f"(if you trust it, authorize=[{first!r}] allows this one, and a prefix all that is below it)"
        )

    def _allows(self, real: str) -> bool:
        return self.prefixes is None or any(_is_below(real, prefix) for prefix in self.prefixes)


def folder_of(url: str) -> str:
    """The folder that a local file is in, or the bucket or server that an object is on.

    >>> folder_of("file:///data/a.json"), folder_of("s3://bucket/2002/a.json")
    ('file:///data/', 's3://bucket/')
    """
    parts = urlsplit(url)
    return (
        url.rstrip("/").rpartition("/")[0] + "/"
        if parts.scheme == "file"
        else f"{parts.scheme}://{parts.netloc}/"
    )


def local_url(path: str) -> str:
    """The URL of an absolute path."""
    return FILE + quote(path)


def _real(url: str) -> str:
    """The URL of the file itself: without links and dots, if it is on this machine."""
    path = unquote(url.removeprefix(FILE))
    if not url.startswith(FILE) or not os.path.isabs(path):
        return url
    if "\0" in path:
        raise IngestError(f"it refers to {url!r}, which is no name of a file")
    real = _real_path(path)
    return url if real == path else local_url(real)


def _real_path(path: str) -> str:
    return os.path.normpath(path) if os.environ.get(FOLLOW) else os.path.realpath(path)


def _is_below(real: str, prefix: str) -> bool:
    """Whether a file is a prefix, or is below it; a local prefix may be a path, or lead through links.

    >>> _is_below("s3://bucket/a/1.nc", "s3://bucket/a"), _is_below("s3://bucket/ab/1.nc", "s3://bucket/a")
    (True, False)
    >>> _is_below("https://host/open/../secret", "https://host/open/")
    False
    """
    if "://" not in prefix or prefix.startswith(FILE):
        path, above = unquote(real.removeprefix(FILE)), unquote(prefix.removeprefix(FILE))
        inside = real.startswith(FILE) and os.path.isabs(path)
        return inside and Path(path).is_relative_to(_real_path(os.path.abspath(above)))
    if ".." in unquote(real).replace("\\", "/").split("/"):  # web servers and clients take it for a step up
        return False
    return real == prefix or real.startswith(prefix.rstrip("/") + "/")


def _same_file(url: str, real: str, folder: str) -> bool:
    """Whether a URL is that of the file itself, apart from links above the folder of the source."""
    if url == real:
        return True
    below, path = unquote(folder.removeprefix(FILE)), unquote(url.removeprefix(FILE))
    if not path.startswith(below):
        return False
    return os.path.join(_real_path(below), path.removeprefix(below)) == unquote(real.removeprefix(FILE))
