"""Taking files out of a dataset again: their part becomes a hole."""

from __future__ import annotations

import os
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import icechunk

from intarsia._icechunk import safe_store
from intarsia.archives.dataset import Dataset
from intarsia.archives.draft import emptied
from intarsia.archives.locations import WILDCARDS, Sources, local_path, url_of
from intarsia.archives.writer import Writer, Written
from intarsia.errors import IngestError
from intarsia.versions.commit import Commit, settle
from intarsia.versions.repository import open_repository
from intarsia.words import count_text

if TYPE_CHECKING:
    from intarsia.archives.ledger import Ledger


def remove(
    repo: Any,
    files: str | os.PathLike[str] | Iterable[Any],
    *,
    group: str = "",
    branch: str = "main",
    message: str | None = None,
) -> str:
    """Take files out of a dataset that `ingest` made, in one commit; returns the id of its snapshot.

    What they showed is missing then, and steps of an axis that no other file has are gone: the dataset is as
    if they had never been ingested. `files` are paths, URLs or globs of either, which are compared with the
    sources that the dataset knows: the files themselves need not be there any more. Nothing of them is
    deleted.

    >>> import tempfile, h5py, numpy as np, intarsia
    >>> folder = tempfile.mkdtemp()
    >>> for day in range(3):
    ...     with h5py.File(f"{folder}/{day}.h5", "w") as file:
    ...         file["time"] = np.array([day])
    ...         file["sst"] = np.full((1, 4), day, dtype="f4")
    ...         file["time"].make_scale("time")
    ...         file["sst"].dims[0].attach_scale(file["time"])
    >>> report = intarsia.ingest(f"{folder}/*.h5", f"{folder}/repository", concat_dim="time")
    >>> snapshot = intarsia.archives.remove(report.repository, f"{folder}/1.h5")
    >>> intarsia.open(report.repository, "sst")[:, 0].tolist()
    [0.0, 2.0]
    """
    opened = repo if isinstance(repo, icechunk.Repository) else open_repository(repo)
    named = [files] if isinstance(files, str | os.PathLike) else list(files)
    commit = Commit(opened, branch, message or "remove")

    def prepare() -> Written:
        session = opened.writable_session(branch)
        dataset = Dataset.read(session.store, group)
        gone = _entries(named, dataset.ledger)
        draft = emptied(dataset, gone)
        problems = Writer(safe_store(session.store), group, draft, dataset, Sources()).write()
        if problems:
            raise IngestError(f"without these files the dataset cannot be written: {problems}")
        commit.message = message or f"remove {count_text(len(gone), 'file')}"
        return Written(session)

    return settle(commit, prepare)


def _entries(named: Iterable[Any], ledger: Ledger) -> list[int]:
    """The ledger's entries of the files that were named."""
    known = {url: i for i, url in enumerate(ledger.locations)}
    found: dict[int, None] = {}
    for name in named:
        text = os.fspath(name)
        url = None if WILDCARDS.search(text) else url_of(text)
        hits = [i for each, i in known.items() if each == url or (url is None and _matches(each, text))]
        if not hits:
            raise IngestError(
                f"{text} is not a source of the dataset, which has {count_text(len(known), 'file')}"
            )
        found |= dict.fromkeys(hits)
    if len(found) == len(known):
        raise IngestError("these are all files of the dataset, and nothing would be left: delete its group")
    return list(found)


def _matches(url: str, pattern: str) -> bool:
    path = local_path(url)
    if path is None or "://" in pattern:
        return fnmatchcase(url, pattern)
    return fnmatchcase(str(path), os.path.abspath(pattern))
