"""Source files: names and globs as URLs, the stores behind them, and whether their content is still the same.

A file may refer to others: by kerchunk references, symbolic links, or what HDF5 has for that.
`Sources.linked` allows those in its own folder or bucket, and those that the caller authorised. Without this
check, a file could bring anything that its reader may read into a repository.
"""

from __future__ import annotations

import io
import math
import os
import re
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from glob import glob
from hashlib import blake2b
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, unquote, urlsplit

from intarsia.engine.fetch.symlinks import FOLLOW
from intarsia.engine.thread_pool import run_in_threads
from intarsia.errors import IngestError, argument
from intarsia.extras import import_extra
from intarsia.versions.storage_options import FILE, for_obstore, scheme_of, source_options

SCHEMES = ("file", "s3", "gs", "az", "http", "https")
"""Where virtual references may point: the stores that Icechunk reads chunks from."""

LISTED_SCHEMES = ("s3", "gs", "az")
"""Stores whose listings give sizes and fingerprints."""

WHOLE_BYTES = 4 << 20
"""Remote objects up to this size are fetched whole: a second request would cost more than the bytes."""

HEAD_BYTES = 8200
"""How many bytes of a file tell its format: HDF5 may begin at byte 8192."""

DIRECTORIES = (".zarr", ".n5", ".parq", ".parquet")
"""How the names of directories on web servers end."""

DIGEST = " blake2b:"
"""Precedes the digest of a content in ledgers."""

EPOCH = datetime.fromtimestamp(0, tz=UTC)

WILDCARDS = re.compile(r"[*?\[]")


def url_of(name: str | os.PathLike[str]) -> str:
    """The URL of a file name; a URL stays as it is.

    >>> url_of("/data/sst 2002#1.nc")
    'file:///data/sst%202002%231.nc'
    """
    text = os.fspath(name)
    if "://" not in text:
        return FILE + quote(os.path.abspath(text))
    _check_scheme(text)
    return text


def _check_scheme(url: str) -> None:
    scheme = scheme_of(url)
    if scheme not in SCHEMES:
        raise IngestError(
            f"{url}: sources of the scheme {scheme!r} cannot be referenced.\n"
            f"  Sources are at {', '.join(s + '://' for s in SCHEMES)}, and paths of local files"
        )


def is_glob(name: str) -> bool:
    """Whether a name stands for many: it has wildcards, and is not an existing file with that name.

    >>> is_glob("s3://bucket/*.nc"), is_glob("2002.nc")
    (True, False)
    """
    return bool(WILDCARDS.search(name)) and ("://" in name or not os.path.exists(name))


def is_listed(url: str) -> bool:
    """Whether a store lists what is below a URL: on a web server, only directories that are named as such.

    >>> is_listed("s3://bucket/sst"), is_listed("https://host/sst"), is_listed("https://host/sst.zarr")
    (True, False, True)
    """
    return scheme_of(url) in ("file", *LISTED_SCHEMES) or url.rstrip("/").endswith(DIRECTORIES)


@lru_cache(maxsize=64)  # needed several times while a file is parsed
def local_path(url: str) -> Path | None:
    """The path behind a file URL; None for any other URL."""
    return Path(unquote(url.removeprefix(FILE))) if url.startswith(FILE) else None


@dataclass(frozen=True, slots=True)
class ContentIdentity:
    """What distinguishes one content of a source from another."""

    size: int
    """Its size in bytes; for a directory, the sum over its files."""

    modified: datetime | None
    """When it was last changed, according to its store."""

    etag: str | None = None
    """The store's ETag of the content, if Icechunk can check it."""

    digest: str = field(default="", compare=False)
    """The digest of all bytes, if the store has no ETag and the file is small."""

    @property
    def checksum(self) -> str | datetime | None:
        """What Icechunk compares when it reads a chunk: the ETag, or the first full second after the change.

        Icechunk keeps whole seconds, hence the rounding up.
        """
        if self.etag is not None or self.modified is None:
            return self.etag
        return datetime.fromtimestamp(math.ceil(self.modified.timestamp()), tz=UTC)

    @property
    def text(self) -> str:
        """Equal texts mean equal content."""
        moment = "" if self.modified is None else self.modified.isoformat()
        return f"{self.size} {self.etag or moment}"

    @property
    def entry(self) -> str:
        """The same for the ledger, with the digest of the bytes."""
        return f"{self.text}{DIGEST}{self.digest}" if self.digest else self.text


def split_entry(entry: str) -> tuple[str, str]:
    """What identifies a content, and the digest of its bytes if there is one.

    >>> split_entry("7 2002-06-01T00:00:00+00:00 blake2b:3d5f"), split_entry("7 an-etag")
    (('7 2002-06-01T00:00:00+00:00', '3d5f'), ('7 an-etag', ''))
    """
    text, _, digest = entry.partition(DIGEST)
    return text, digest


def combined_identity(identities: Sequence[ContentIdentity]) -> ContentIdentity:
    """What identifies the content of several files together: their size, and the last change of any."""
    moments = [identity.modified for identity in identities if identity.modified is not None]
    complete = len(moments) == len(identities)
    return ContentIdentity(sum(identity.size for identity in identities), max(moments) if complete else None)


def identity_in(url: str, meta: Any) -> ContentIdentity:
    """What identifies an object, from what its store says about it."""
    # Icechunk strips the quotes from an ETag: only S3 accepts it like that
    etag = (meta["e_tag"] or "").strip('"') if scheme_of(url) == "s3" else ""
    return ContentIdentity(meta["size"], meta["last_modified"], etag or None)


@dataclass(frozen=True, slots=True)
class FormatProbe:
    """What tells the format of a source: the first bytes of a file, or the names in a directory."""

    url: str
    head: bytes = b""
    names: Sequence[str] = ()

    @classmethod
    def of(cls, url: str, sources: Sources) -> FormatProbe:
        """Read the beginning of a source."""
        try:
            with sources.reader(url) as reader:
                head = reader.read(HEAD_BYTES)
        except (FileNotFoundError, IsADirectoryError):  # object stores have names that begin alike instead
            if not is_listed(url) or not (names := sources.names_in(url)):
                raise
            return cls(url, names=names)
        if not head:
            raise IngestError("the file is empty")
        return cls(url, head)


def _objects_below(store: Any, path: str) -> Iterator[Any]:
    """What a store says about every object below a path."""
    for batch in import_extra("obstore", "virtual").list(store, path):
        yield from batch


def store_failures() -> tuple[type[Exception], ...]:
    """What is raised if a store cannot be read or listed."""
    return OSError, import_extra("obstore.exceptions", "virtual").BaseError


class Sources:
    """The stores that sources are read from, opened when needed."""

    def __init__(self, options: Mapping[str, Any] | None = None, authorize: Authorized = None) -> None:
        self.options = source_options(options)
        self.authorized = _prefixes(authorize)
        """The places of files that sources may refer to outside of their own folders; None for any."""
        self._stores: dict[str, Any] = {}
        self._kept = threading.local()  # what a thread reads repeatedly while it parses one file

    def __reduce__(self) -> tuple[Any, ...]:
        return Sources, (self.options, True if self.authorized is None else self.authorized)

    @cached_property
    def registry(self) -> Any:
        """VirtualiZarr's registry of stores, filled as sources are resolved."""
        return import_extra("obspec_utils.registry", "virtual").ObjectStoreRegistry()

    def resolve(self, url: str) -> tuple[Any, str]:
        """The object store behind a URL, and the path inside it."""
        _check_scheme(url)
        parts = urlsplit(url)
        root = FILE if parts.scheme == "file" else f"{parts.scheme}://{parts.netloc}"
        if root not in self._stores:
            options = {} if root == FILE else for_obstore(self.options, parts.scheme)
            try:
                store = import_extra("obstore.store", "virtual").from_url(root, **options)
            except Exception as error:  # of several classes, for an option that it does not take
                raise IngestError(f"{root} cannot be opened with the options given: {error}") from error
            self._stores[root] = store
            self.registry.register(root, store)
        return self._stores[root], unquote(parts.path).lstrip("/")

    def expand(self, files: Any) -> dict[str, str]:
        """The URLs of everything that was named: paths, URLs, and globs of either; each once, in order.

        Those that are found in a listing have a fingerprint of their content, others an empty one.
        """
        named: Iterable[Any] = [files] if isinstance(files, str | os.PathLike) else files
        urls: dict[str, str] = {}
        for name in named:
            text = os.fspath(name)
            if not is_glob(text):
                urls[url_of(text)] = ""
            elif "://" in text:
                urls |= self._objects(text)
            else:
                urls |= dict.fromkeys(map(url_of, sorted(glob(text, recursive=True))), "")
        return urls

    def _objects(self, pattern: str) -> dict[str, str]:
        """The URLs of objects that match a pattern, in order, with a fingerprint of each one's content."""
        *place, inside = f"{pattern}/".split("/", 3)
        root = "/".join(place)
        store, _ = self.resolve(root)
        try:
            found = list(import_extra("obspec_utils.glob", "virtual").glob_objects(store, inside.rstrip("/")))
        except store_failures() as error:
            raise IngestError(f"{root} cannot be listed: {error}") from error
        urls = {f"{root}/{quote(meta['path'])}": meta for meta in sorted(found, key=itemgetter("path"))}
        return {url: identity_in(url, meta).text for url, meta in urls.items()}

    def reader(self, url: str) -> Any:
        """A context with a file-like reader for one source."""
        kept = getattr(self._kept, "reader", None)
        if kept is None or kept[0] != url:
            path = local_path(url)
            if path is not None:
                return path.open("rb")
            kept = self._kept.reader = url, self._remote(url)
        content = kept[1]
        if isinstance(content, bytes):
            return io.BytesIO(content)
        content.seek(0)
        return nullcontext(content)  # other users come after this one: it stays open

    @contextmanager
    def held(self, url: str, size: int) -> Iterator[None]:
        """Read a small local file once: all reads within this context get the same bytes, from memory."""
        path = local_path(url)
        if path is not None and size <= WHOLE_BYTES and path.is_file():
            self._kept.reader = url, path.read_bytes()
        try:
            yield
        finally:
            self._kept.reader = None

    def _remote(self, url: str) -> Any:
        """All of a small object, in one request; for a large one, a reader that fetches blocks."""
        store, inside = self.resolve(url)
        obstore = import_extra("obstore", "virtual")
        try:  # no chunk could be read in place if a web server only returned whole files
            if scheme_of(url) in ("http", "https"):
                obstore.get_range(store, inside, start=0, length=1)
        except import_extra("obstore.exceptions", "virtual").NotSupportedError:
            raise IngestError(
                "its web server ignores the Range header, so chunks cannot be read in place: download the "
                "file, or use a server that answers with 206 Partial Content"
            ) from None
        if obstore.head(store, inside)["size"] <= WHOLE_BYTES:
            return bytes(obstore.get(store, inside).bytes())
        return import_extra("obspec_utils.readers", "virtual").BlockStoreReader(store, inside)

    def identity(self, url: str) -> ContentIdentity:
        """What identifies the content of a file, or of everything under a directory."""
        path = local_path(url)
        if path is not None:
            status = os.stat(path)
            if stat.S_ISDIR(status.st_mode):
                return self._identity_of_tree(url)
            moment = EPOCH + timedelta(microseconds=status.st_mtime_ns // 1000)
            return ContentIdentity(status.st_size, moment)
        store, inside = self.resolve(url)
        try:
            meta = import_extra("obstore", "virtual").head(store, inside)
        except FileNotFoundError:
            if not is_listed(url):
                raise
            return self._identity_of_tree(url)
        return identity_in(url, meta)

    def _identity_of_tree(self, url: str) -> ContentIdentity:
        found = list(_objects_below(*self.resolve(url)))
        if not found:
            raise FileNotFoundError(f"there is nothing at {url}")
        return combined_identity([identity_in(url, meta) for meta in found])

    def sizes_below(self, url: str) -> dict[str, int]:
        """The sizes of all files in a directory, by their paths in it."""
        store, inside = self.resolve(url)
        root = inside.rstrip("/") + "/"
        return {meta["path"].removeprefix(root): meta["size"] for meta in _objects_below(store, root)}

    def digest(self, url: str, identity: ContentIdentity) -> str:
        """The digest of a small file's bytes if only its time tells it from others; otherwise empty."""
        if identity.etag is not None or identity.size > WHOLE_BYTES:
            return ""
        try:
            return blake2b(self.get(url), digest_size=8).hexdigest()
        except (IsADirectoryError, FileNotFoundError):  # a directory has no bytes of its own
            return ""

    def names_in(self, url: str) -> list[str]:
        """The names of everything in a directory; empty for a file."""
        path = local_path(url)
        if path is not None:
            return sorted(os.listdir(path)) if path.is_dir() else []
        store, inside = self.resolve(url)
        listed = import_extra("obstore", "virtual").list_with_delimiter(store, inside.rstrip("/") + "/")
        paths = [meta["path"] for meta in listed["objects"]] + list(listed["common_prefixes"])
        return sorted(name.rstrip("/").rsplit("/", 1)[-1] for name in paths)

    def get(self, url: str) -> bytes:
        """All of a small file."""
        with self.reader(url) as reader:
            content: bytes = reader.read()
        return content

    def linked(self, urls: Iterable[str], folder: str) -> dict[str, str]:
        """The files that links lead to, by the URL of the link.

        Raises `IngestError` if a file is neither below `folder`, which may be a bucket, nor authorised.
        """
        linked: dict[str, str] = {}
        outside: dict[str, str] = {}
        for url in urls:
            real = _real(url)
            if not any(_is_below(real, each) for each in (folder, *(self.authorized or ()))):
                outside[url] = real
            if not _same_file(url, real, folder):
                linked[url] = real
        if outside and self.authorized is not None:
            raise IngestError(_refusal(outside, folder))
        return linked

    def location(self, url: str, folder: str) -> str:
        """The URL of the file that a URL leads to; raises `IngestError` as `linked` does."""
        return self.linked([url], folder).get(url, url)


type Authorized = bool | str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None
"""What sources may refer to: everything (`True`), or what is at or below paths and URLs."""

SHOWN = 3
"""How many files a refusal names."""


def _prefixes(authorize: Authorized) -> tuple[str, ...] | None:
    if authorize is None or isinstance(authorize, bool):
        return None if authorize else ()
    if isinstance(authorize, Mapping):
        raise IngestError(
            f"{argument('authorize')} of an ingest takes URL prefixes without options of their own: "
            f"{argument('storage_options')} holds the options for all files"
        )
    named = [authorize] if isinstance(authorize, str | os.PathLike) else authorize
    return tuple(os.fspath(each) for each in named)


def _refusal(outside: Mapping[str, str], folder: str) -> str:
    """Why files are not read: where they are, by the name under which the source refers to them."""
    listed = [url if url == real else f"{url} (which leads to {real})" for url, real in outside.items()]
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    first = next(iter(outside.values()))
    return (
        f"it refers to {', '.join(listed[:SHOWN])}{more}, outside of {folder} "
        f"(if you trust it, {argument('authorize', [first])} allows this one, and a prefix all "
        "that is below it)"
    )


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


def _real(url: str) -> str:
    """The URL of the file itself: without links and dots, if it is on this machine."""
    path = unquote(url.removeprefix(FILE))
    if not url.startswith(FILE) or not os.path.isabs(path):
        return url
    if "\0" in path:
        raise IngestError(f"it refers to {url!r}, which is no name of a file")
    real = _real_path(path)
    return url if real == path else url_of(real)


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


type State = Literal["present", "changed", "gone", "unreachable"]
"""What has become of a source since it was ingested."""

HEADS_AT_ONCE = 16
"""How many sources are identified at once."""

FIRST_HEADS, FAST_HEAD = 16, 1e-4
"""So many local files are identified one by one; if each takes fewer seconds than this, so are all others."""

MIN_LISTED = 20
"""If there are fewer sources than this, each is requested separately."""

LISTED_BESIDE, LISTED_PAGES = 4, 10_000
"""A listing is abandoned after this many objects per requested one, plus this many."""


def source_states(sources: Sources, entries: Mapping[str, str]) -> dict[str, State]:
    """Whether sources still have their known content, by URL."""
    texts = {url: split_entry(entry)[0] for url, entry in entries.items()}
    listed = _listed(sources, texts)
    # a listing may be less exact than an answer about one source, so only an equal fingerprint counts
    identities = find_identities(sources, [url for url, text in texts.items() if listed.get(url) != text])

    def state(url: str) -> State:
        identity = identities.get(url)
        if isinstance(identity, Exception):
            return "gone" if isinstance(identity, FileNotFoundError) else "unreachable"
        return "present" if identity is None or identity.text == texts[url] else "changed"

    return {url: state(url) for url in texts}


def find_identities(sources: Sources, urls: Iterable[str]) -> dict[str, ContentIdentity | Exception]:
    """What identifies the content of each source, or why it cannot be found out.

    Threads that look at files on a disk of this machine only wait for one another; elsewhere they save time.
    """
    names, found = list(dict.fromkeys(urls)), dict[str, ContentIdentity | Exception]()
    left, failures = iter(names), store_failures()  # `next` on it is atomic

    def ask(url: str) -> None:
        try:
            found[url] = sources.identity(url)
        except failures as error:
            found[url] = error

    is_fast = all(url.startswith(FILE) for url in names)
    if is_fast:
        began = time.perf_counter()
        for url in islice(left, FIRST_HEADS):
            ask(url)
        is_fast = time.perf_counter() - began < FIRST_HEADS * FAST_HEAD
    run_in_threads(lambda: next(left, None), ask, threads=1 if is_fast else min(HEADS_AT_ONCE, len(names)))
    return {url: found[url] for url in names}


def find_restored(sources: Sources, entries: Mapping[str, str]) -> dict[str, ContentIdentity]:
    """Changed sources that hold the same bytes as before, with what identifies them now."""
    restored = {}
    for url, identity in find_identities(sources, entries).items():
        text, digest = split_entry(entries[url])
        if isinstance(identity, Exception) or not digest or text.split(" ")[0] != str(identity.size):
            continue
        with suppress(*store_failures()):
            if sources.digest(url, identity) == digest and sources.identity(url) == identity:
                restored[url] = identity
    return restored


def content_fingerprints(sources: Sources, files: Iterable[str]) -> dict[str, str]:
    """The URLs of everything that was named, in order, with a fingerprint of its content.

    If many are in one place of a bucket, their fingerprints come from a listing.
    """
    fingerprints = sources.expand(files)
    alone = [url for url, fingerprint in fingerprints.items() if not fingerprint]
    fingerprints |= _listed(sources, alone)
    for url, identity in find_identities(sources, [url for url in alone if not fingerprints[url]]).items():
        if isinstance(identity, Exception):
            what = "found" if isinstance(identity, FileNotFoundError) else "reached"
            raise IngestError(f"a file that you named cannot be {what}: {url} ({identity})") from identity
        fingerprints[url] = identity.text
    return fingerprints


def _listed(sources: Sources, sought: Iterable[str]) -> dict[str, str]:
    """What identifies the content of sources according to listings: a thousand in one request.

    Empty if a store has no listing or does not return it, or if most of it would be other objects: then every
    source is requested separately.
    """
    by_root: dict[str, list[str]] = {}
    for url in sought:
        if scheme_of(url) in LISTED_SCHEMES:
            by_root.setdefault(folder_of(url), []).append(url)
    fingerprints: dict[str, str] = {}
    for urls in by_root.values():
        if len(urls) < MIN_LISTED:
            continue
        store, _ = sources.resolve(urls[0])
        places = {sources.resolve(url)[1]: url for url in urls}
        folder = os.path.commonpath([path.rpartition("/")[0] for path in places])
        with suppress(*store_failures()):
            for meta in islice(_objects_below(store, folder), LISTED_BESIDE * len(urls) + LISTED_PAGES):
                if (known := places.get(meta["path"])) is not None:
                    fingerprints[known] = identity_in(known, meta).text
    return fingerprints
