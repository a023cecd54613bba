"""`intarsia.archives.relocate`: finds sources that moved, or that were restored without their times.

`ingest` does the same for files with another time and the same bytes.

References are rewritten in one commit, and nothing is parsed again. A file counts as the one that moved if it
has the known size, and all the bytes that are referenced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from typing import Any

import icechunk
import numpy as np
import zarr

from intarsia._icechunk import VIRTUAL, ChunkTable, chunk_table, safe_store
from intarsia.archives.ledger import Ledger, read_ledger, write_ledger
from intarsia.archives.plan.lint_findings import shown_items
from intarsia.archives.source_files import ContentIdentity, Sources, find_identities, split_entry, url_of
from intarsia.archives.write_plan import UncommittedChange
from intarsia.display import count_text
from intarsia.errors import IngestError
from intarsia.logical.hierarchy import LEDGER, groups_below, is_logical, open_group
from intarsia.logical.logical_array_handle import LogicalArrayHandle
from intarsia.versions.authorization import with_containers
from intarsia.versions.commit import Commit, commit_with_retries
from intarsia.versions.repository import open_repository


@dataclass(frozen=True)
class Relocation:
    """What `relocate` did.

    >>> print(Relocation(2, 10, 1, "0K…"))
    2 files, 10 references; 1 file with another mark compared by size
    """

    files: int
    """The number of sources that moved."""

    chunks: int
    """The number of references that were rewritten."""

    unmarked: int
    """The number of files that were recognised by size alone, because their time or ETag differs."""

    snapshot_id: str
    """The snapshot of the commit."""

    repository: icechunk.Repository | None = field(default=None, repr=False, compare=False)
    """The repository, authorised to read the sources where they are now."""

    def __str__(self) -> str:
        text = f"{count_text(self.files, 'file')}, {count_text(self.chunks, 'reference')}"
        if self.unmarked:
            text += f"; {count_text(self.unmarked, 'file')} with another mark compared by size"
        return text


def relocate(
    store: Any,
    moves: Mapping[Any, Any],
    *,
    branch: str = "main",
    storage_options: Mapping[str, Any] | None = None,
    message: str | None = None,
) -> Relocation:
    """Tell a repository that its sources have moved: one commit, and nothing is parsed again.

    `moves` maps old places to new ones: directories or single files, as paths or URLs. Every file must be
    there with its known size, and hold all the bytes that are referenced; otherwise nothing is changed, and
    the error names the files. If a file's mark (the ETag on S3, elsewhere the time of the last change) is not
    the known one, only the size decides, and the result says for how many files. So
    `relocate(store, {"/data": "/data"})` accepts files that were restored without their times. Other versions
    of the repository still refer to the old places.

    `store` is a repository or its path; the commit goes to `branch`, with `message`. `storage_options` are
    for the new places.

    >>> import os, tempfile, h5py, numpy as np, intarsia
    >>> folder = tempfile.mkdtemp()
    >>> os.mkdir(f"{folder}/old")
    >>> for day in range(3):
    ...     with h5py.File(f"{folder}/old/{day}.h5", "w") as file:
    ...         file["time"] = np.array([day])
    ...         file["sst"] = np.full((1, 4), day, dtype="f4")
    ...         file["time"].make_scale("time")
    ...         file["sst"].dims[0].attach_scale(file["time"])
    >>> report = intarsia.ingest(f"{folder}/old/*.h5", f"{folder}/repository", concat_dim="time")
    >>> os.rename(f"{folder}/old", f"{folder}/new")
    >>> moved = intarsia.archives.relocate(f"{folder}/repository", {f"{folder}/old": f"{folder}/new"})
    >>> print(moved)
    3 files, 3 references
    >>> intarsia.open(moved.repository, "sst")[:, 0].tolist()
    [0.0, 1.0, 2.0]
    """
    places = {url_of(old).rstrip("/"): url_of(new).rstrip("/") for old, new in moves.items()}
    if not places:
        raise IngestError("say what has moved: relocate(store, {'old prefix': 'new prefix'})")
    return _relocated(open_repository(store), places, branch, Sources(storage_options), message)


def accept_restored(
    repo: icechunk.Repository, restored: Mapping[str, ContentIdentity], branch: str, sources: Sources
) -> icechunk.Repository:
    """Make a repository accept sources with another time and the same bytes as before."""
    places = {url: url for url in restored}
    message = f"the same bytes with another time: {count_text(len(restored), 'file')}"
    done = _relocated(repo, places, branch, sources, message, restored)
    return done.repository or repo


def _relocated(
    opened: icechunk.Repository, places: Mapping[str, str], branch: str, sources: Sources,
    message: str | None, restored: Mapping[str, ContentIdentity] | None = None,
) -> Relocation:  # fmt: skip
    commit = Commit(opened, branch, message or "relocate")
    done = Relocation(0, 0, 0, "")

    def prepare() -> UncommittedChange | None:
        nonlocal done
        before = opened.readonly_session(branch)
        move = _Move(safe_store(before.store), places, sources, restored or {})
        move.look()
        allowed, _ = with_containers(opened, move.now.values(), (), sources.options)
        session = allowed.writable_session(branch)
        if session.snapshot_id != before.snapshot_id:  # there was another commit in the meantime
            return None
        done = move.write(safe_store(session.store), allowed)
        commit.message = message or f"relocate {done}"
        return UncommittedChange(session)

    snapshot_id = commit_with_retries(commit, prepare)
    return with_fields(done, snapshot_id=snapshot_id)


def _from_below(url: str) -> Iterator[str]:
    """A URL, and then everything above it."""
    while url:
        yield url
        url = url.rpartition("/")[0]


@dataclass
class _Move:
    """Where everything is in one version of a repository, and where it is now."""

    store: Any
    places: Mapping[str, str]
    sources: Sources
    restored: Mapping[str, ContentIdentity] = field(default_factory=dict)
    """Files whose bytes were all compared, and what identified them then."""

    now: dict[str, str] = field(default_factory=dict)
    """The new URL of every source, and of every other referenced file."""

    identities: dict[str, ContentIdentity] = field(default_factory=dict)
    """The identities of the files at their new URLs."""

    tables: dict[str, tuple[ChunkTable, dict[int, str]]] = field(default_factory=dict)
    """The chunks of every array that refers to moved files; where those that do are now, by row."""

    ledgers: dict[str, Ledger] = field(default_factory=dict)
    """The sources of every dataset with moved files."""

    contents: dict[str, str] = field(default_factory=dict)
    """What the ledgers say about the content of the sources that moved."""

    def moved(self, url: str) -> str | None:
        """Where a file is now; None if no move names it. The longest prefix counts."""
        old = next((each for each in _from_below(url) if each in self.places), None)
        return None if old is None else self.places[old] + url[len(old) :]

    def look(self) -> None:
        """Find all references to moved files, and the files in their new places; refuse what does not fit."""
        for group in groups_below(open_group(self.store, "", "r"), inside_arrays=True):
            if is_logical(group):
                names = list(LogicalArrayHandle.load(group).manifest.members)
            else:
                names = list(group.array_keys())
                if LEDGER in group:
                    self._look_into_ledger(group)
            for name in names:
                self._look_into_array(f"{group.path}/{name}".strip("/"))
        needed: dict[str, int] = {}
        for table, rows in self.tables.values():
            for i in rows:
                url = self._source_of(table.location[i])
                end = int(table.offset[i] + table.nbytes[i])
                needed[url] = max(needed.get(url, 0), end)
        if not self.contents and not needed:
            raise IngestError(
                f"the repository refers to nothing below {', '.join(self.places)}.\n"
                "  intarsia.archives.sources(repo) lists what it refers to",
                command="intarsia sources STORE lists what it refers to",
            )
        self._check(needed)

    def _look_into_ledger(self, group: zarr.Group) -> None:
        ledger = read_ledger(group)
        entries = zip(ledger.locations, ledger.contents, strict=True)
        moved = {url: entry for url, entry in entries if self.moved(url) is not None}
        if moved:
            self.ledgers[group.path] = ledger
            self.contents |= moved

    def _look_into_array(self, path: str) -> None:
        table = chunk_table(self.store, path)
        virtual = np.flatnonzero(table.kind == VIRTUAL).tolist()
        rows = {i: moved for i in virtual if (moved := self.moved(table.location[i])) is not None}
        if rows:
            self.tables[path] = table, rows

    def _source_of(self, url: str) -> str:
        """The source that a file belongs to: a directory above it, such as a Zarr store, or the file."""
        return next((each for each in _from_below(url) if each in self.contents), url)

    def _check(self, needed: Mapping[str, int]) -> None:
        contents = self.contents
        self.now = {url: moved for url in (*contents, *needed) if (moved := self.moved(url)) is not None}
        identities = find_identities(self.sources, self.now.values())
        problems = []
        for url, now in self.now.items():
            size, identity = int(contents[url].split()[0]) if url in contents else None, identities[now]
            if isinstance(identity, FileNotFoundError):
                problems.append(f"{now}: it is not there")
            elif isinstance(identity, Exception):
                problems.append(f"{now}: it cannot be reached: {identity}")
            elif size is not None and identity.size != size:
                problems.append(f"{now}: it has {identity.size:,} bytes instead of {size:,}")
            elif identity != self.restored.get(url, identity):
                problems.append(f"{now}: it changed again")
            elif size is None and identity.size < needed.get(url, 0):
                # A source of the size that is known may be shorter than what it replaced, whose references
                # stay in members, where no region shows them.
                problems.append(f"{now}: it ends before byte {needed[url]:,}, which a reference needs")
            else:
                self.identities[url] = identity
        if problems:
            count = f"{len(problems)} of {len(self.now)} files"
            head = f"{count} are not the ones that moved, so nothing was changed:"
            raise IngestError("\n  ".join([head, *shown_items(problems)]))

    def write(self, store: Any, repo: icechunk.Repository) -> Relocation:
        """Rewrite the references and the ledgers."""
        for path, ledger in self.ledgers.items():
            self._put(ledger)
            write_ledger(ledger, open_group(store, path, "r+"))
        for path, (table, rows) in self.tables.items():
            self._rewrite(store, path, table, rows)
        chunks = sum(len(rows) for _, rows in self.tables.values())
        unmarked = sum(self.identities[url].text != split_entry(e)[0] for url, e in self.contents.items())
        return Relocation(len(self.identities), chunks, unmarked, "", repo)

    def _put(self, ledger: Ledger) -> None:
        """Update the ledger for the files that moved; its lists are replaced, never changed in place."""
        urls, contents, times = [*ledger.locations], [*ledger.contents], [*ledger.modified_times]
        for row, url in enumerate(ledger.locations):
            identity = self.identities.get(url)
            if identity is not None:
                known = with_fields(identity, digest=split_entry(contents[row])[1])  # of the parsed content
                urls[row], contents[row] = self.now[url], known.entry
                times[row] = None if identity.modified is None else identity.modified.timestamp()
        ledger.locations, ledger.contents, ledger.modified_times = urls, contents, times

    def _rewrite(self, store: Any, path: str, table: ChunkTable, rows: Mapping[int, str]) -> None:
        specs = []
        for i, moved in rows.items():
            mark = self.identities[self._source_of(table.location[i])].checksum
            etag, moment = (mark, None) if isinstance(mark, str) else (None, mark)
            place = int(table.offset[i]), int(table.nbytes[i])
            specs.append(icechunk.VirtualChunkSpec(table.index[i].tolist(), moved, *place, etag, moment))
        if store.set_virtual_refs(path, specs):
            raise IngestError(f"references of {path} were refused: no container covers {specs[0].location}")
