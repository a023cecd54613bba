"""Making an older state of one logical array the current one, as a new commit."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import zarr
from zarr.core.buffer import default_buffer_prototype

from intarsia._compat import sync
from intarsia._icechunk import safe_store
from intarsia.array.chunk_copies import Move, chunk_refs, copy_chunks
from intarsia.array.document import MANIFEST_KEY
from intarsia.array.hierarchy import open_group
from intarsia.array.logical_group import LogicalGroup
from intarsia.array.manifest import Manifest
from intarsia.array.member import new_name
from intarsia.errors import ManifestError, ManifestVersionError, NotLogicalArrayError
from intarsia.versions.commit import Backoff
from intarsia.versions.conflict import Ground
from intarsia.versions.repository import RepositoryLike, describe, explained, open_repository
from intarsia.versions.sessions import group_at, manifest_at, same_node
from intarsia.versions.transaction import Transaction, retry
from intarsia.versions.version import snapshot_named

if TYPE_CHECKING:
    import icechunk


def restore(
    repo: RepositoryLike,
    path: str,
    version: str | datetime.datetime,
    *,
    branch: str = "main",
    message: str = "",
    metadata: Mapping[str, Any] | None = None,
    backoff: Backoff | None = None,
) -> str:
    """Give a logical array the layout, values and attributes it had in a version; returns the new snapshot.

    A version is a snapshot's id, a tag, a branch, or a time on the branch `main`. Nothing of the history is
    lost: this is a new commit, and other arrays stay as they are. Chunks that are still there are used as
    they are; only those that were removed or overwritten since are copied, encoded.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="create") as tx:
    ...     tx.create("t", shape=(0,), chunks=(2,), dtype="u1").append([1, 2], codecs=["gzip"])
    >>> _ = intarsia.write(repo, "t", 0, 99, message="a mistake")
    >>> _ = intarsia.restore(repo, "t", tx.snapshot_id)
    >>> intarsia.open(repo, "t")[...].tolist()
    [1, 2]
    """
    opened = open_repository(repo)
    with explained(describe(opened)):
        old_id = snapshot_named(opened, version)
        session = opened.readonly_session(snapshot_id=old_id)
        old = group_at(session, path)
    if old is None:
        raise NotLogicalArrayError(f"there was no logical array at {path!r} in snapshot {old_id}")
    source = old

    def change(tx: Transaction) -> None:
        _restore(tx, session, source, path.strip("/"))

    text = message or f"restore {path} to {old_id}"
    return retry(opened, change, branch=branch, message=text, metadata=metadata, backoff=backoff)


def _restore(tx: Transaction, session: icechunk.Session, old: LogicalGroup, path: str) -> None:
    now, generation = _current(tx.session, path)
    if now is not None:
        # Values that others write meanwhile fit on the layout that comes back, but not on what was asked for.
        tx.build_on(Ground.of(tx.repo.readonly_session(snapshot_id=tx.session.snapshot_id), path))
    _restore_attributes(open_group(tx.store, path, "a"), dict(old.group.metadata.attributes))
    names = tuple(_bring_back(tx, session, path, name) for name in old.manifest.members)
    generation = max(generation, old.manifest.generation)
    restored = replace(old.manifest, generation=generation, members=names)
    if now == restored and not tx.session.has_uncommitted_changes:
        return
    # Even if only values differ: a new generation conflicts with whoever changes the layout meanwhile.
    logical = LogicalGroup(open_group(tx.store, path, "r+"), restored if now is None else now)
    logical.commit(restored.changed(regions=restored.regions))


def _current(session: icechunk.Session, path: str) -> tuple[Manifest | None, int]:
    """The manifest as it is now, and the generation to count on from.

    A damaged manifest is no reason not to go back to a sound one: it counts as none, but for what it says
    about its generation, since handles tell by that whether the layout is another one.
    """
    try:
        now = manifest_at(session, path)
    except ManifestVersionError:
        raise  # not damaged: made by an intarsia that knows more than this one
    except ManifestError:
        document: Any = open_group(session.store, path, "r").metadata.attributes[MANIFEST_KEY]
        said = document.get("generation") if isinstance(document, dict) else None
        return None, said if isinstance(said, int) and said >= 0 else 0
    return now, 0 if now is None else now.generation


def _restore_attributes(group: zarr.Group, attributes: dict[str, Any]) -> None:
    """Give a group its old attributes, but for the manifest, which is not written yet."""
    current = dict(group.metadata.attributes)
    attributes.pop(MANIFEST_KEY)
    if MANIFEST_KEY in current:
        attributes[MANIFEST_KEY] = current[MANIFEST_KEY]
    if current != attributes:
        group.attrs.put(attributes)


def _bring_back(tx: Transaction, session: icechunk.Session, path: str, name: str) -> str:
    """Make a member what it was; returns its name, a new one if it was gone."""
    place = f"{path}/{name}".lstrip("/")
    there = same_node(tx.session, session, "/" + place)
    target = name if there else new_name()
    goal = f"{path}/{target}".lstrip("/")
    wanted = chunk_refs(session.store, place).places
    present = chunk_refs(tx.store, goal).places if there else {}
    sync(_drop(tx.store, goal, sorted(present.keys() - wanted.keys())))
    sync(_copy_metadata(session.store, place, tx.store, goal))
    moves = [Move(index, index) for index in sorted(wanted) if wanted[index] != present.get(index)]
    copy_chunks(_array(session.store, place, "r"), _array(tx.store, goal, "r+"), moves)
    return target


def _array(store: icechunk.IcechunkStore, path: str, mode: Any) -> zarr.Array[Any]:
    return zarr.open_array(safe_store(store), path=path, mode=mode, zarr_format=3)


async def _copy_metadata(
    source: icechunk.IcechunkStore, place: str, target: icechunk.IcechunkStore, goal: str
) -> None:
    """The array's metadata, byte by byte; a no-op if it is the same."""
    old = await source.get(f"{place}/zarr.json", default_buffer_prototype())
    new = await target.get(f"{goal}/zarr.json", default_buffer_prototype())
    assert old is not None
    if new is None or new.to_bytes() != old.to_bytes():
        await target.set(f"{goal}/zarr.json", old)


async def _drop(store: icechunk.IcechunkStore, path: str, chunks: list[tuple[int, ...]]) -> None:
    for index in chunks:
        await store.delete("/".join([path, "c", *map(str, index)]))
