"""Recoding in a repository: encoded and uploaded first, attached when nobody has changed what was read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from intarsia._icechunk import writing
from intarsia.array import LogicalArray
from intarsia.array.accessors import chosen_codecs
from intarsia.array.box import Box
from intarsia.array.document import PackingChoice, chosen_packing
from intarsia.array.logical_group import LogicalGroup
from intarsia.array.member import Encoding
from intarsia.array.recode import copy_values, reserve_recode
from intarsia.array.reserve import lattice_box
from intarsia.parallel import Client
from intarsia.progress import Progress, silent
from intarsia.versions.commit import Backoff, Commit, settle
from intarsia.versions.conflict import Ground
from intarsia.versions.repository import RepositoryLike, open_repository
from intarsia.versions.sessions import group_in_fork, group_to_edit

if TYPE_CHECKING:
    import icechunk

    from intarsia.codecs import CodecLike


def recode(
    repo: RepositoryLike,
    path: str,
    bounds: Sequence[tuple[int, int]] | None = None,
    *,
    codecs: Iterable[CodecLike] | Literal["auto"] | None,
    chunks: tuple[int, ...] | None = None,
    shards: tuple[int, ...] | None = None,
    packing: PackingChoice = "keep",
    branch: str = "main",
    message: str = "",
    metadata: Mapping[str, Any] | None = None,
    backoff: Backoff | None = None,
    client: Client | None = None,
    progress: Progress = silent,
) -> str:
    """Encode an aligned box (by default everything) of a logical array anew; returns the snapshot's id.

    The new chunks are made and uploaded first, which others do not notice. If they change the box before
    it is committed, it is encoded again, so no write of theirs is lost; appends and writes elsewhere cost
    another edit of the manifest only. With a client (a `dask.distributed.Client`, or an executor of
    `concurrent.futures`) its workers encode it. `packing` is that of `LogicalArray.recode`.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="create") as tx:
    ...     tx.create("t", shape=(0,), chunks=(2,), dtype="u1").append([1, 2, 3], codecs=[])
    >>> _ = intarsia.recode(repo, "t", codecs=["zstd"])
    >>> intarsia.open(repo, "t").regions[0].codec_names
    'zstd'
    """
    opened = open_repository(repo)
    commit = Commit(opened, branch, message or f"recode {path}", dict(metadata or {}))
    box: Box | None = None

    def prepare() -> Recoded:
        nonlocal box
        session = opened.writable_session(branch)
        logical = group_to_edit(session, path)
        # Kept in logical chunks: the last one may be partial, and others may fill it.
        if box is None or bounds is None:
            box = lattice_box(logical.manifest, bounds or Box.sized(logical.manifest.shape).bounds)
        array, elements = LogicalArray(logical), logical.manifest.elements(box).bounds
        packed = chosen_packing(logical.manifest, packing)
        data = array.as_stored(elements) if packing == "keep" else array
        chosen = chosen_codecs(codecs, data, elements, packed.get("packing"))
        encoding = Encoding(None if chosen is None else tuple(chosen), chunks, shards, **packed)
        return Recoded.of(commit, session, logical, box, encoding, client, progress)

    return settle(commit, prepare, backoff or Backoff())


@dataclass
class Recoded:
    """A box in its new encoding: uploaded once, attached where the box is still what was read."""

    commit: Commit
    session: icechunk.Session
    path: str
    """Of the logical array."""

    ground: Ground
    """What was encoded anew, as it was read."""

    encoding: Encoding
    """How it was encoded."""

    name: str
    """Of the new member."""

    fork: icechunk.ForkSession
    """Holds it."""

    @classmethod
    def of(
        cls,
        commit: Commit,
        session: icechunk.Session,
        logical: LogicalGroup,
        box: Box,
        encoding: Encoding,
        client: Client | None,
        progress: Progress,
    ) -> Recoded:
        """Encode a box of the array in a session, and attach it there."""
        path, fork = logical.group.path, session.fork()
        ground = Ground.of(session, path, box, logical.manifest)
        apart = group_in_fork(logical, fork)
        room = reserve_recode(apart, box, encoding)
        copy_values(apart, room, client=client, progress=progress)
        recoded = cls(commit, session, path, ground, encoding, room.made[0], fork)
        recoded._attach(logical)
        return recoded

    def follow(self) -> list[str]:
        """Attach it to the newest state, if the box has the layout, holes and values that were read."""
        session = self.commit.repo.writable_session(self.commit.branch)
        changed = self.ground.changed_until(self.commit.repo, session.snapshot_id)
        if not changed:
            self.session = session
            self._attach(group_to_edit(session, self.path))
        return changed

    def _attach(self, logical: LogicalGroup) -> None:
        """Make the member part of the session, and of the manifest."""
        with writing(self.session):
            self.session.merge(self.fork)
        reserve_recode(logical, self.ground.box, self.encoding, ready=self.name).settle(logical)
