"""Time travel: the history of logical arrays, and restoring a version."""

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, pairwise
from typing import Any, ClassVar

import icechunk
import zarr
from zarr.core.buffer import default_buffer_prototype

from intarsia._compat import sync
from intarsia._icechunk import safe_store
from intarsia.display import Listing
from intarsia.engine.fetch.store import read_key
from intarsia.errors import ManifestError, ManifestVersionError, NotLogicalArrayError
from intarsia.logical.chunk_copies import ChunkMove, chunk_refs, copy_chunks
from intarsia.logical.hierarchy import joined_path, open_group
from intarsia.logical.logical_array_handle import LogicalArrayHandle
from intarsia.manifest.document import MANIFEST_KEY, new_name
from intarsia.manifest.manifest import Manifest
from intarsia.versions.commit import METADATA_KEY, Backoff, Changes, ReadPrecondition
from intarsia.versions.diff import ArrayChange, compare_states
from intarsia.versions.repository import RepositoryLike, explain_errors, open_repository
from intarsia.versions.transaction import Transaction, retry
from intarsia.versions.version import Version, find_snapshot, group_at, manifest_at, node_at


@dataclass(frozen=True)
class HistoryEntry:
    """One commit, and what it did to logical arrays.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="create", metadata={"by": "me"}) as tx:
    ...     tx.create("t", shape=(0,), chunks=(2,), dtype="u1").append([1, 2], codecs=["gzip"])
    >>> entry = intarsia.history(repo, "t")[0]
    >>> entry.message, entry.metadata, [str(region) for region in entry.changes[0].regions]
    ('create', {'by': 'me'}, ['added [0:2] (gzip-5)'])
    """

    snapshot_id: str
    """The snapshot of the commit."""

    parent_id: str | None
    """The snapshot of the commit before it."""

    written_at: datetime.datetime
    """The time of the commit."""

    message: str
    """The commit message."""

    metadata: dict[str, Any]
    """The metadata that the user gave."""

    changes: tuple[ArrayChange, ...]
    """One for each logical array that the commit changed."""

    @property
    def bytes_written(self) -> int:
        """The encoded bytes that the commit stored."""
        return sum(change.bytes_written for change in self.changes)

    @property
    def lines(self) -> str:
        """What the commit changed, in one line."""
        several = len(self.changes) > 1
        return "; ".join(
            f"{change.path}: {line}" if several else line
            for change in self.changes
            for line in change.lines(3)
        )


class History(Listing[HistoryEntry]):
    """Commits, newest first.

    >>> History()
    no commit
    """

    columns: ClassVar = {
        "Snapshot": "snapshot_id",
        "Time (UTC)": "written_at",
        "Message": "message",
        "What changed": "lines",
        "Bytes": "bytes_written",
    }
    empty = "no commit"


def history(
    store: RepositoryLike,
    path: str | None = None,
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    as_of: datetime.datetime | str | None = None,
    limit: int | None = None,
) -> History:
    """The commits that changed a logical array, or any logical array if no path is given; newest first.

    Args:
        store: An Icechunk repository, or the path or URL of one.
        path: The logical array; None means all of them.
        branch: Start at the tip of this branch. The default is `main`.
        tag: Start at this tag.
        snapshot_id: Start at this snapshot.
        as_of: Start at the version that was current at this time, in UTC unless it says otherwise.
        limit: The largest number of commits to list; by default there is no limit.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="create") as tx:
    ...     _ = tx.create("t", shape=(0,), chunks=(2,), dtype="u1")
    >>> for day in range(2):
    ...     _ = intarsia.append(repo, "t", [day, day], message=f"day {day}")
    >>> [(entry.message, entry.changes[0].bounds("added")) for entry in intarsia.history(repo, "t")]
    [('day 1', (((2, 4),),)), ('day 0', (((0, 2),),)), ('create', ())]
    """
    opened = open_repository(store)
    with explain_errors(opened):
        tip = Version(branch, tag, snapshot_id, as_of).session(opened).snapshot_id
        return History(islice(_walk(opened, tip, path), limit))


def _walk(repo: icechunk.Repository, tip: str, path: str | None) -> Iterator[HistoryEntry]:
    ancestry = list(repo.ancestry(snapshot_id=tip))
    for info, parent in pairwise(ancestry):
        changes = Changes.between(repo, parent.id, info.id)
        before = repo.readonly_session(snapshot_id=parent.id)
        after = repo.readonly_session(snapshot_id=info.id)
        groups = changes.all_groups if path is None else changes.all_groups & {"/" + path.strip("/")}
        states = ((group, _state(before, group), _state(after, group)) for group in sorted(groups))
        compared = [
            compare_states(group, old, new, changes.written_in(group))
            for group, old, new in states
            if old is not None or new is not None
        ]
        if path is not None and not any(compared):
            continue
        metadata = {key: value for key, value in info.metadata.items() if key != METADATA_KEY}  # the user's
        yield HistoryEntry(info.id, parent.id, info.written_at, info.message, metadata, tuple(compared))


def _state(session: icechunk.Session, path: str) -> LogicalArrayHandle | None:
    """A state in the history; if the manifest is damaged, it counts as if the array did not exist."""
    try:
        return group_at(session, path)
    except ManifestError:
        return None


def restore(
    store: RepositoryLike,
    path: str,
    version: str | datetime.datetime,
    *,
    branch: str = "main",
    message: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    backoff: Backoff | None = None,
) -> str:
    """Give a logical array the layout, values and attributes of a version, and return the new snapshot id.

    A version is a snapshot id, a tag, a branch, or a time on the branch `main`. No history is lost: this is a
    new commit, and other arrays stay as they are. Chunks that still exist are used as they are; only those
    that were removed or overwritten since are copied, without being decoded.

    Args:
        store: An Icechunk repository, or the path or URL of one.
        path: Where the logical array is in the repository.
        version: The version to go back to.
        branch: The branch that the commit goes to.
        message: The commit message; by default it says what was done.
        metadata: A dictionary that is kept with the commit.
        backoff: How often to retry if others commit first, and how long to wait: an `intarsia.types.Backoff`.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="create") as tx:
    ...     tx.create("t", shape=(0,), chunks=(2,), dtype="u1").append([1, 2], codecs=["gzip"])
    >>> _ = intarsia.write(repo, "t", 0, 99, message="a mistake")
    >>> _ = intarsia.restore(repo, "t", tx.snapshot_id)
    >>> intarsia.open(repo, "t")[...].tolist()
    [1, 2]
    """
    opened = open_repository(store)
    with explain_errors(opened):
        old_id = find_snapshot(opened, version)
        session = opened.readonly_session(snapshot_id=old_id)
        old = group_at(session, path)
    if old is None:
        raise NotLogicalArrayError(f"there was no logical array at {path!r} in snapshot {old_id}")
    change = partial(_restore, session=session, old=old, path=path.strip("/"))
    text = message or f"restore {path} to {old_id}"
    return retry(opened, change, branch=branch, message=text, metadata=metadata, backoff=backoff)


def _restore(tx: Transaction, session: icechunk.Session, old: LogicalArrayHandle, path: str) -> None:
    now, generation = _current(tx.session, path)
    if now is not None:
        # Values that others write meanwhile fit the restored layout, but do not belong to it.
        tx.build_on(ReadPrecondition.of(tx.repo.readonly_session(snapshot_id=tx.session.snapshot_id), path))
    _restore_attributes(open_group(tx.store, path, "a"), dict(old.group.metadata.attributes))
    names = tuple(_bring_back(tx, session, path, name) for name in old.manifest.members)
    generation = max(generation, old.manifest.generation)
    restored = replace(old.manifest, generation=generation, members=names)
    if now == restored and not tx.session.has_uncommitted_changes:
        return
    # Even if only values differ: a new generation conflicts with others who change the layout meanwhile.
    logical = LogicalArrayHandle(open_group(tx.store, path, "r+"), restored if now is None else now)
    logical.commit(restored.changed(restored.regions_and_replicas, same_values=True))


def _current(session: icechunk.Session, path: str) -> tuple[Manifest | None, int]:
    """The current manifest, and the generation to continue from.

    A damaged manifest does not prevent a return to a sound one: it counts as none, except for its generation,
    since that tells handles whether the layout has changed.
    """
    try:
        now = manifest_at(session, path)
    except ManifestVersionError:
        raise  # not damaged: made by a later version of intarsia
    except ManifestError:
        document: Any = open_group(session.store, path, "r").metadata.attributes[MANIFEST_KEY]
        generation = document.get("generation") if isinstance(document, dict) else None
        return None, generation if isinstance(generation, int) and generation >= 0 else 0
    return now, 0 if now is None else now.generation


def _restore_attributes(group: zarr.Group, attributes: dict[str, Any]) -> None:
    """Give a group its old attributes, except the manifest, which is not written yet."""
    current = dict(group.metadata.attributes)
    attributes.pop(MANIFEST_KEY)
    if MANIFEST_KEY in current:
        attributes[MANIFEST_KEY] = current[MANIFEST_KEY]
    if current != attributes:
        group.attrs.put(attributes)


def _bring_back(tx: Transaction, session: icechunk.Session, path: str, name: str) -> str:
    """Restore a member, and return its name, which is new if the member was gone."""
    source = joined_path(path, name)
    exists = node_at(tx.session, source) == node_at(session, source)
    target = name if exists else new_name()
    target_path = joined_path(path, target)
    target_refs = chunk_refs(session.store, source)
    present = chunk_refs(tx.store, target_path) if exists else {}
    sync(_drop(tx.store, target_path, sorted(present.keys() - target_refs.keys())))
    document = read_key(session.store, f"{source}/zarr.json")
    assert document is not None, "the manifest names it, so it was there"
    if read_key(tx.store, f"{target_path}/zarr.json") != document:
        value = default_buffer_prototype().buffer.from_bytes(document)
        sync(tx.store.set(f"{target_path}/zarr.json", value))
    moves = [
        ChunkMove(index, index) for index in sorted(target_refs) if target_refs[index] != present.get(index)
    ]
    copy_chunks(_array(session.store, source, "r"), _array(tx.store, target_path, "r+"), moves)
    return target


def _array(store: icechunk.IcechunkStore, path: str, mode: Any) -> zarr.Array[Any]:
    return zarr.open_array(safe_store(store), path=path, mode=mode, zarr_format=3)


async def _drop(store: icechunk.IcechunkStore, path: str, chunks: list[tuple[int, ...]]) -> None:
    for index in chunks:
        await store.delete("/".join([path, "c", *map(str, index)]))
