"""Where source files are: names and globs as URLs, the stores behind them, what identifies their content."""

import io
import math
import os
import re
import stat
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from glob import glob
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, unquote, urlsplit

from intarsia.errors import IngestError
from intarsia.extras import extra
from intarsia.versions.access import FILE, scheme_of
from intarsia.versions.storage_options import for_obstore, source_options

type State = Literal["present", "changed", "gone", "unreachable"]
"""What has become of a source since it was ingested."""

SCHEMES = ("file", "s3", "gs", "az", "http", "https")
"""What virtual references may point to: the stores that Icechunk reads chunks from."""

WHOLE_BYTES = 4 << 20
"""Remote objects up to this size are fetched whole: a second request would cost more than the bytes."""

HEADS_AT_ONCE = 16
"""Sources of which the identity is asked together."""

LISTED_SCHEMES = ("s3", "gs", "az")
"""Stores whose listings tell sizes and marks."""

LEAST_LISTED = 20
"""Fewer sources than this are asked for one by one."""

LISTED_BESIDE, LISTED_PAGES = 4, 10_000
"""A listing is given up that has so many times as many objects as were asked for, and some pages more."""

DIGEST = " blake2b:"
"""Stands in ledgers before the digest of a content."""

WILDCARDS = re.compile(r"[*?\[]")


def url_of(name: str | os.PathLike[str]) -> str:
    """The URL of a file name, or a URL as it is.

    >>> url_of("/data/sst 2002#1.nc")
    'file:///data/sst%202002%231.nc'
    """
    text = os.fspath(name)
    if "://" not in text:
        return FILE + quote(os.path.abspath(text))
    scheme = scheme_of(text)
    if scheme not in SCHEMES:
        raise IngestError(
            f"{text}: sources of the scheme {scheme!r} cannot be referenced.\n"
            f"  Sources are at {', '.join(s + '://' for s in SCHEMES)}, and paths of local files"
        )
    return text


def local_path(url: str) -> Path | None:
    """The path behind a file URL, None for any other."""
    return Path(unquote(url.removeprefix(FILE))) if url.startswith(FILE) else None


@dataclass(frozen=True, slots=True)
class Identity:
    """What tells one content of a source from another."""

    size: int
    """In bytes; for a directory the sum over its files."""

    modified: datetime | None
    """When it was last changed, as its store says."""

    etag: str | None = None
    """The store's own mark of the content, where Icechunk can check it."""

    digest: str = field(default="", compare=False)
    """Of all bytes, where the store has no mark of its own and they are few."""

    @property
    def checksum(self) -> str | datetime | None:
        """What Icechunk compares when it reads a chunk: the mark, or the first full second after the change.

        Icechunk keeps whole seconds, hence the rounding up.
        """
        if self.etag is not None:
            return self.etag
        if self.modified is None:
            return None
        return datetime.fromtimestamp(math.ceil(self.modified.timestamp()), tz=UTC)

    @property
    def text(self) -> str:
        """Equal texts, equal content."""
        moment = "" if self.modified is None else self.modified.isoformat()
        return f"{self.size} {self.etag or moment}"

    @property
    def entry(self) -> str:
        """For the ledger: the same, and the digest of the bytes."""
        return f"{self.text}{DIGEST}{self.digest}" if self.digest else self.text


def split_entry(entry: str) -> tuple[str, str]:
    """What identifies a content, and the digest of its bytes if there is one.

    >>> split_entry("7 2002-06-01T00:00:00+00:00 blake2b:3d5f"), split_entry("7 an-etag")
    (('7 2002-06-01T00:00:00+00:00', '3d5f'), ('7 an-etag', ''))
    """
    text, _, digest = entry.partition(DIGEST)
    return text, digest


class _Shared(io.RawIOBase):
    """A reader of remote blocks that several users read one after the other: closing it closes nothing."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        reader.seek(0)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        data: bytes = self._reader.read(size)
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any, /) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        at: int = self._reader.seek(offset, whence)
        return at

    def tell(self) -> int:
        at: int = self._reader.tell()
        return at


class Sources:
    """The stores that sources are read from, opened when needed."""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.options = source_options(options)
        self._registry: Any = None
        self._stores: dict[str, Any] = {}
        self._kept = threading.local()  # what a thread reads again and again while it parses one file

    def __reduce__(self) -> tuple[Any, ...]:
        return Sources, (self.options,)

    @property
    def registry(self) -> Any:
        """VirtualiZarr's registry of stores, filled as sources are resolved."""
        if self._registry is None:
            self._registry = extra("obspec_utils.registry", "virtual").ObjectStoreRegistry()
        return self._registry

    def resolve(self, url: str) -> tuple[Any, str]:
        """The object store behind a URL, and the path inside it."""
        parts = urlsplit(url)
        root = FILE if parts.scheme == "file" else f"{parts.scheme}://{parts.netloc}"
        if root not in self._stores:
            stores = extra("obstore.store", "virtual")
            self._stores[root] = stores.LocalStore() if root == FILE else self._remote_store(stores, root)
            self.registry.register(root, self._stores[root])
        return self._stores[root], unquote(parts.path).lstrip("/")

    def _remote_store(self, stores: Any, root: str) -> Any:
        try:
            return stores.from_url(root, **for_obstore(self.options, scheme_of(root)))
        except BaseException as error:  # an option of the wrong type is a panic in Rust: no Exception
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            raise IngestError(f"{root} cannot be opened with the options given: {error}") from error

    def expand(self, files: Any) -> list[str]:
        """URLs of everything that was named: paths, URLs, and globs of either; each once, in order."""
        named: Iterable[Any] = [files] if isinstance(files, str | os.PathLike) else files
        urls: dict[str, None] = {}
        for name in named:
            text = os.fspath(name)
            if WILDCARDS.search(text) and not ("://" not in text and os.path.exists(text)):
                urls.update(dict.fromkeys(self._matching(text)))
            else:
                urls[url_of(text)] = None
        return list(urls)

    def _matching(self, pattern: str) -> list[str]:
        if "://" not in pattern:
            return [url_of(path) for path in sorted(glob(pattern, recursive=True))]
        return list(self._objects(pattern))

    def _objects(self, pattern: str) -> dict[str, str]:
        """URLs of objects that match a pattern, in order, with a mark of the content of each."""
        url_of(pattern)
        scheme, _, rest = pattern.partition("://")
        host, _, inside = rest.partition("/")
        root = f"{scheme}://{host}"
        store, _ = self.resolve(root)
        try:
            found = list(extra("obspec_utils.glob", "virtual").glob_objects(store, inside))
        except (OSError, extra("obstore.exceptions", "virtual").BaseError) as error:
            raise IngestError(f"{root} cannot be listed: {error}") from error
        found.sort(key=lambda meta: str(meta["path"]))
        urls = [f"{root}/{quote(meta['path'])}" for meta in found]
        return {url: self._identity_in(url, meta).text for url, meta in zip(urls, found, strict=True)}

    def marked(self, files: Iterable[str]) -> dict[str, str]:
        """Everything that was named, in order, with a mark of its content; in as few requests as possible.

        Local files by their paths, others by their URLs. Of files that are gone there is no mark, and of many
        in one place of a bucket the marks come with a list of it.
        """
        marks: dict[str, str] = {}
        alone: list[str] = []
        for name in files:
            is_glob = WILDCARDS.search(name) and not ("://" not in name and os.path.exists(name))
            if "://" in name:
                marks |= self._objects(name) if is_glob else {name: ""}
                alone += [] if is_glob else [name]
                continue
            for path in sorted(glob(name, recursive=True)) if is_glob else [name]:
                mark = self._local_mark(path)
                if mark is not None:
                    marks[path] = mark
        marks |= self._marks_of(alone)
        return {name: mark for name, mark in marks.items() if mark}

    def _local_mark(self, path: str) -> str | None:
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return None
        if stat.S_ISDIR(status.st_mode):
            return self.identity(url_of(path)).text
        return f"{status.st_size} {status.st_mtime_ns}"

    def _marks_of(self, urls: list[str]) -> dict[str, str]:
        """Marks of single objects; of those that lie together, with a list of the place."""
        marks = self._listed(urls) if urls else {}
        left = [url for url in urls if url not in marks]
        failures = extra("obstore.exceptions", "virtual").BaseError

        def asked(url: str) -> str:
            try:
                return self.identity(url).text
            except FileNotFoundError:
                return ""
            except failures as error:
                raise IngestError(f"{url} cannot be reached: {error}") from error

        if left:
            with ThreadPoolExecutor(max_workers=HEADS_AT_ONCE) as pool:
                marks |= dict(zip(left, pool.map(asked, left), strict=True))
        return marks

    def reader(self, url: str) -> Any:
        """A file-like reader of one source."""
        path = local_path(url)
        if path is not None:
            return path.open("rb")
        kept = getattr(self._kept, "reader", None)
        if kept is None or kept[0] != url:
            kept = self._kept.reader = url, self._remote(url)
        content = kept[1]
        return io.BytesIO(content) if isinstance(content, bytes) else _Shared(content)

    def _remote(self, url: str) -> Any:
        """The whole of a small object, in one request; of a large one a reader that fetches blocks."""
        store, inside = self.resolve(url)
        obstore = extra("obstore", "virtual")
        if scheme_of(url) in ("http", "https"):
            self._check_ranges(obstore, store, inside)
        if obstore.head(store, inside)["size"] <= WHOLE_BYTES:
            return bytes(obstore.get(store, inside).bytes())
        return extra("obspec_utils.readers", "virtual").BlockStoreReader(store, inside)

    @staticmethod
    def _check_ranges(obstore: Any, store: Any, inside: str) -> None:
        """Refuse a web server that gives whole files only: no chunk could be read where it is."""
        try:
            obstore.get_range(store, inside, start=0, length=1)
        except extra("obstore.exceptions", "virtual").NotSupportedError:
            raise IngestError(
                "its web server ignores the header Range, so that no chunk can be read where it is: "
                "download the file, or use a server that answers with 206 Partial Content"
            ) from None

    def identity(self, url: str) -> Identity:
        """What identifies the content of a file, or of everything under a directory."""
        path = local_path(url)
        if path is not None and path.is_dir():
            return self._identity_of_tree(url)
        if path is not None:
            status = path.stat()
            moment = datetime.fromtimestamp(status.st_mtime_ns // 10**9, tz=UTC)
            moment += timedelta(microseconds=status.st_mtime_ns % 10**9 // 1000)
            return Identity(status.st_size, moment)
        store, inside = self.resolve(url)
        try:
            meta = extra("obstore", "virtual").head(store, inside)
        except FileNotFoundError:
            return self._identity_of_tree(url)
        return self._identity_in(url, meta)

    @staticmethod
    def _identity_in(url: str, meta: Any) -> Identity:
        # Icechunk strips the quotes of a mark: only S3 takes it back that way
        etag = (meta["e_tag"] or "").strip('"') if scheme_of(url) == "s3" else ""
        return Identity(meta["size"], meta["last_modified"], etag or None)

    def _identity_of_tree(self, url: str) -> Identity:
        store, inside = self.resolve(url)
        sizes, moments = 0, []
        for batch in extra("obstore", "virtual").list(store, inside):
            sizes += sum(meta["size"] for meta in batch)
            moments += [meta["last_modified"] for meta in batch]
        if not moments:
            raise FileNotFoundError(f"there is nothing at {url}")
        return Identity(sizes, max(moments))

    def states(self, known: Mapping[str, str]) -> dict[str, State]:
        """Whether sources still have the content that was known of them, by URL."""
        failures = extra("obstore.exceptions", "virtual").BaseError
        known = {url: split_entry(entry)[0] for url, entry in known.items()}

        def state(url: str) -> State:
            try:
                return "present" if self.identity(url).text == known[url] else "changed"
            except FileNotFoundError:
                return "gone"
            except (OSError, failures):
                return "unreachable"

        listed = self._listed(known)
        found: dict[str, State] = {url: "present" for url in known if listed.get(url) == known[url]}
        left = [url for url in known if url not in found]
        if not left:
            return found
        shares = [left[i::HEADS_AT_ONCE] for i in range(min(HEADS_AT_ONCE, len(left)))]
        with ThreadPoolExecutor(max_workers=len(shares)) as pool:
            for share, states in zip(
                shares, pool.map(lambda urls: list(map(state, urls)), shares), strict=True
            ):
                found |= dict(zip(share, states, strict=True))
        return {url: found[url] for url in known}

    def digest(self, url: str, identity: Identity) -> str:
        """Of all bytes of a small file that nothing but its time tells from another one; otherwise empty."""
        path = local_path(url)
        if identity.etag is not None or identity.size > WHOLE_BYTES or (path is not None and path.is_dir()):
            return ""
        try:
            return blake2b(self.get(url), digest_size=8).hexdigest()
        except FileNotFoundError:  # a directory of an object store: it has no bytes of its own
            return ""

    def restored(self, known: Mapping[str, str]) -> dict[str, Identity]:
        """Of sources that changed those that hold the same bytes as before, with what identifies them now."""
        failures = extra("obstore.exceptions", "virtual").BaseError

        def same(url: str) -> Identity | None:
            text, digest = split_entry(known[url])
            try:
                identity = self.identity(url)
                if not digest or text.split(" ")[0] != str(identity.size):
                    return None
                found = self.digest(url, identity)
                return identity if found == digest and self.identity(url) == identity else None
            except (OSError, failures):
                return None

        with ThreadPoolExecutor(max_workers=HEADS_AT_ONCE) as pool:
            found = zip(known, pool.map(same, known), strict=True)
            return {url: identity for url, identity in found if identity is not None}

    def _listed(self, known: Iterable[str]) -> dict[str, str]:
        """What listings say identifies the content of sources: a thousand in one request.

        Empty where a store has no listing or does not give it, or where most of it would be of other things:
        then every source is asked for by itself.
        """
        by_root: dict[str, list[str]] = {}
        for url in known:
            if scheme_of(url) in LISTED_SCHEMES:
                by_root.setdefault("/".join(url.split("/", 3)[:3]), []).append(url)
        failures = extra("obstore.exceptions", "virtual").BaseError
        found: dict[str, str] = {}
        for urls in by_root.values():
            if len(urls) < LEAST_LISTED:
                continue
            store, _ = self.resolve(urls[0])
            places = {self.resolve(url)[1]: url for url in urls}
            folder = os.path.commonpath([path.rpartition("/")[0] for path in places])
            seen, most = 0, LISTED_BESIDE * len(urls) + LISTED_PAGES
            try:
                for batch in extra("obstore", "virtual").list(store, folder):
                    for meta in batch:
                        path = meta["path"]
                        if path in places:
                            found[places[path]] = self._identity_in(places[path], meta).text
                    seen += len(batch)
                    if seen > most:
                        break
            except (OSError, failures):
                continue
        return found

    def names_in(self, url: str) -> list[str]:
        """Names of what a directory holds; empty for a file."""
        path = local_path(url)
        if path is not None:
            return sorted(os.listdir(path)) if path.is_dir() else []
        store, inside = self.resolve(url)
        listed = extra("obstore", "virtual").list_with_delimiter(store, inside.rstrip("/") + "/")
        paths = [meta["path"] for meta in listed["objects"]] + list(listed["common_prefixes"])
        return sorted(name.rstrip("/").rsplit("/", 1)[-1] for name in paths)

    def get(self, url: str) -> bytes:
        """The whole of a small file."""
        with self.reader(url) as reader:
            content: bytes = reader.read()
        return content
