"""Archives that are opened in one line: each has a repository in a cache directory, kept up to date.

An entry belongs to the names and options that were given. To open it, we list the files and compare a digest
of their names and fingerprints with the one in the entry's record; if nothing changed, that is all. Otherwise
new files are ingested, changed ones are taken again and missing ones are taken out, by one process at a time:
a lock in the entry's directory ensures that. The record is replaced in one step, after the commit.

Readers keep the snapshot that they opened. So a dataset that has to be rebuilt goes into another group of the
repository, and nothing that a reader may need is deleted until somebody clears the cache.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import icechunk

from intarsia import __version__
from intarsia.archives.dataset import dataset_group
from intarsia.archives.ingestion import ingest, remove
from intarsia.archives.ledger import read_ledger
from intarsia.archives.source_files import Sources, content_fingerprints
from intarsia.display import count_text
from intarsia.errors import IngestError, IntarsiaError, RepositoryError
from intarsia.logical.hierarchy import groups_below, open_group
from intarsia.versions.locking import lock_directory
from intarsia.versions.repository import open_repository
from intarsia.versions.storage_options import SECRETS

CACHE = "INTARSIA_CACHE"
"""The environment variable that says where the cache is."""

RECORD_FILE = "entry.json"
REPOSITORY = "repository"

WAIT_SECONDS = 24 * 3600.0
"""How long to wait for another process that builds the same entry."""

OF_ONE_CALL = ("client", "progress")
"""Options of `ingest` that do not change the result."""


def cache_directory() -> Path:
    """Where the cache is: `INTARSIA_CACHE`, or the user's cache directory.

    >>> import os
    >>> os.environ["INTARSIA_CACHE"] = "/scratch/cache"
    >>> str(cache_directory())
    '/scratch/cache'
    >>> del os.environ["INTARSIA_CACHE"]
    >>> cache_directory().name
    'intarsia'
    """
    path = os.environ.get(CACHE) or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "intarsia")
    return Path(path).expanduser().absolute()


@dataclass(frozen=True)
class CachedArchive:
    """Files as a caller named them, and how they become a dataset.

    >>> CachedArchive.of("/data/*.nc", {"concat_dim": "time"}).key == CachedArchive.of(
    ...     ["/data/*.nc"], {"concat_dim": "time"}).key
    True
    """

    files: Sequence[Any]
    """Absolute paths, URLs, or globs of either; nested lists if files are nested."""

    options: Mapping[str, Any]
    """The options of `ingest` that change the result."""

    call_options: Mapping[str, Any]
    """Its other options."""

    storage_options: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        files: Any,
        options: Mapping[str, Any],
        storage_options: Mapping[str, Any] | None = None,
    ) -> CachedArchive:
        """The request, checked."""
        chosen = dict(options)
        call_options = {name: chosen.pop(name) for name in OF_ONE_CALL if name in chosen}
        storage = {**chosen.pop("storage_options", {}), **(storage_options or {})}
        try:
            json.dumps(chosen)
        except TypeError as error:
            raise IngestError(
                "an archive opened in one line is cached under its options, which must be plain values: "
                f"{error}.\n"
                "  Ingest it into a repository of your own: intarsia.ingest(files, 'repository', …)"
            ) from error
        named = [files] if isinstance(files, str | os.PathLike) else list(files)
        return cls([_absolute(each) for each in named], chosen, call_options, storage)

    @property
    def key(self) -> str:
        """Equal for all who ask for the same thing, whatever their credentials."""
        secrets = {name for names in SECRETS.values() for name in names} - {"anonymous"} | {"headers"}
        open_to_all = {name: str(v) for name, v in self.storage_options.items() if name not in secrets}
        identity = json.dumps([__version__, self.files, self.options, open_to_all], sort_keys=True)
        return blake2b(identity.encode(), digest_size=12).hexdigest()

    @property
    def is_nested(self) -> bool:
        """Whether nested lists say where files go."""
        return any(isinstance(each, list) for each in self.files)

    def names(self) -> list[str]:
        """All names, without the lists."""
        return list(_flat(self.files))


def _absolute(name: Any) -> Any:
    """A name that means the same in every directory; a directory stands for its files."""
    if isinstance(name, list | tuple):
        return [_absolute(each) for each in name]
    text = os.fspath(name)
    if "://" in text:
        return text + "*" if text.endswith("/") else text
    path = os.path.abspath(os.path.expanduser(text))
    names = ("zarr.json", ".zgroup", ".zarray", ".zmetadata", "attributes.json")
    if os.path.isdir(path) and not any(os.path.exists(os.path.join(path, name)) for name in names):
        return os.path.join(path, "*")
    return path


def _flat(names: Sequence[Any]) -> Iterator[str]:
    for each in names:
        if isinstance(each, list):
            yield from _flat(each)
        else:
            yield each


@dataclass(frozen=True)
class CacheRecord:
    """What is known about an entry: enough to tell that nothing changed."""

    sources: Sequence[Any]
    options: Mapping[str, Any]
    files: int
    digest: str
    """Digest of the names and fingerprints of the files in the dataset."""

    group: str
    """The dataset's group in the repository."""

    made: str
    """When it was last brought up to date, in UTC."""


@dataclass(frozen=True)
class CacheEntry:
    """One archive in the cache.

    >>> CacheEntry(Path("/nowhere")).record() is None
    True
    """

    path: Path

    def record(self) -> CacheRecord | None:
        """What is known about it; None if it was never finished."""
        try:
            return CacheRecord(**json.loads((self.path / RECORD_FILE).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    @property
    def nbytes(self) -> int:
        """Its size on disk."""
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())

    def open(self, archive: CachedArchive) -> tuple[icechunk.Repository, str]:
        """The repository, up to date, and the dataset's group."""
        record = self.bring_up_to_date(archive)
        folder = self.path / REPOSITORY
        repo = open_repository(folder, authorize=True, storage_options=archive.storage_options)
        open_group(repo.readonly_session("main").store, record.group, "r")
        return repo, record.group

    def discard(self) -> None:
        """Remove everything, the record first: without it nobody takes the rest for complete."""
        (self.path / RECORD_FILE).unlink(missing_ok=True)
        if self.path.is_dir():
            with lock_directory(self.path, WAIT_SECONDS):
                shutil.rmtree(self.path / REPOSITORY, ignore_errors=True)

    def bring_up_to_date(self, archive: CachedArchive) -> CacheRecord:
        """List the files and bring the dataset up to date, if anything about them changed."""
        sources = Sources(archive.storage_options)
        fingerprints = content_fingerprints(sources, archive.names())
        if not fingerprints:
            raise IngestError(f"no file matches {', '.join(archive.names()[:3])}")
        digest = blake2b(
            "".join(f"{name}\0{fingerprint}\n" for name, fingerprint in fingerprints.items()).encode(),
            digest_size=16,
        ).hexdigest()
        record = self.record()
        if record is not None and record.digest == digest:
            return record
        self._make_directory()
        with lock_directory(self.path, WAIT_SECONDS):
            record = self.record()
            if record is not None and record.digest == digest:  # another process was faster
                return record
            group = self._ingest_changes(archive, list(fingerprints), record)
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            record = CacheRecord(archive.files, archive.options, len(fingerprints), digest, group, now)
            fresh = self.path / f"{RECORD_FILE}.{uuid.uuid4().hex}"
            fresh.write_text(json.dumps(asdict(record)))
            fresh.replace(self.path / RECORD_FILE)
            return record

    def _make_directory(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RepositoryError(
                f"the cache cannot be written: {error}.\n"
                f"  The environment variable {CACHE} chooses another place"
            ) from error

    def _ingest_changes(self, archive: CachedArchive, urls: list[str], record: CacheRecord | None) -> str:
        """Ingest what is new or changed and take out what is gone; returns the dataset's group."""
        group = "0" if record is None else record.group
        options: Any = {**archive.options, **archive.call_options, "storage_options": archive.storage_options}
        files: Any = archive.files if archive.is_nested else urls
        folder = self.path / REPOSITORY
        if not folder.is_dir():
            ingest(files, folder, group=group, **options)
            return group
        repo = open_repository(folder)
        root = dataset_group(repo.readonly_session("main").store, group)
        below = [] if root is None else [(each, read_ledger(each)) for each in groups_below(root)]
        datasets = [
            (each, ledger) for each, ledger in below if ledger.count
        ]  # with "*" as source group, many
        known = dict.fromkeys(url for _, ledger in datasets for url in ledger.locations)
        gone = known.keys() - set(urls)
        if gone:
            _warn_about_gone([url for url in known if url in gone], archive)
        # whether every file goes where its coordinates say, whatever the order of files
        has_axes = all(dim in each for each, ledger in datasets for dim in ledger.dims)
        if not archive.is_nested and len(gone) < len(known) and has_axes:
            try:
                for each, ledger in datasets:
                    if own := [url for url in ledger.locations if url in gone]:
                        remove(repo, own, group=each.path)
                ingest(files, repo, group=group, replace=True, **options)
                return group
            except IngestError:  # they do not fit the existing files; all together they may
                pass
        group = str(int(group) + 1) if known else group
        ingest(files, repo, group=group, **options)
        return group


def _warn_about_gone(gone: list[str], archive: CachedArchive) -> None:
    warnings.warn(
        f"{count_text(len(gone), 'file')} of {', '.join(archive.names()[:3])} "
        f"{'has' if len(gone) == 1 else 'have'} disappeared since the archive was last opened, such as "
        f"{gone[0]}: the dataset no longer shows them",
        stacklevel=2,
    )


def open_archive(
    files: Any,
    options: Mapping[str, Any],
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[icechunk.Repository, str]:
    """The repository behind files that are opened in one line, up to date, and the dataset's group.

    >>> import os, tempfile, h5py, numpy as np
    >>> folder = tempfile.mkdtemp()
    >>> os.environ["INTARSIA_CACHE"] = f"{folder}/cache"
    >>> for day in range(3):
    ...     with h5py.File(f"{folder}/{day}.h5", "w") as file:
    ...         file["time"] = np.array([day])
    ...         file["sst"] = np.full((1, 4), day, dtype="f4")
    ...         file["time"].make_scale("time")
    ...         file["sst"].dims[0].attach_scale(file["time"])
    >>> repo, group = open_archive(f"{folder}/*.h5", {"concat_dim": "time"})
    >>> import intarsia
    >>> intarsia.open(repo, f"{group}/sst")[:, 0].tolist(), len(cached_archives())
    ([0.0, 1.0, 2.0], 1)
    >>> clear_cache()
    1
    >>> del os.environ["INTARSIA_CACHE"]
    """
    archive = CachedArchive.of(files, options, storage_options)
    entry = CacheEntry(cache_directory() / archive.key)
    try:
        return entry.open(archive)
    except IngestError:  # the files are at fault
        raise
    except (IntarsiaError, OSError, icechunk.IcechunkError):
        if not entry.path.is_dir():
            raise
    entry.discard()  # somebody cleared part of it, or a process was killed while it was made
    return entry.open(archive)


def cached_archives() -> list[CacheEntry]:
    """Everything in the cache, the most recently updated first."""
    entries = [CacheEntry(file.parent) for file in cache_directory().glob(f"*/{RECORD_FILE}")]
    finished = [(record.made, entry) for entry in entries if (record := entry.record()) is not None]
    return [entry for _, entry in sorted(finished, key=lambda pair: pair[0], reverse=True)]


def clear_cache(keys: Sequence[str] | None = None) -> int:
    """Remove archives from the cache, all of them unless keys are given; returns how many were removed.

    Open datasets lose their coordinates and everything that was copied; the files are not touched.
    """
    found = [file for name in (RECORD_FILE, REPOSITORY) for file in cache_directory().glob(f"*/{name}")]
    chosen = {file.parent for file in found if keys is None or file.parent.name in keys}
    for path in chosen:
        CacheEntry(path).discard()
        shutil.rmtree(path, ignore_errors=True)
    return len(chosen)
