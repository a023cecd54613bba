"""Changing what is there, from many processes at once: values of a region, and its encoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import icechunk

from intarsia.array import LogicalArray, edit
from intarsia.array.logical import chosen_codecs
from intarsia.array.member import Encoding
from intarsia.array.recode import attach_recoded, recoded_member
from intarsia.errors import ConcurrentUpdateError
from intarsia.progress import silent
from intarsia.versions.backoff import Backoff
from intarsia.versions.commit import Commit
from intarsia.versions.conflict import Ground
from intarsia.versions.failures import explained
from intarsia.versions.locking import commit_lock
from intarsia.versions.lookup import frame_to_edit
from intarsia.versions.repository import RepositoryLike, open_repository
from intarsia.versions.retry import retry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from intarsia.array.box import Box
    from intarsia.array.manifest import Manifest
    from intarsia.casting import Casting
    from intarsia.codecs import CodecLike
    from intarsia.codecs.decide.decisions import DecisionLike
    from intarsia.codecs.runtime import PaddingFunction
    from intarsia.parallel import Client
    from intarsia.progress import Progress
    from intarsia.versions.transaction import Transaction

__all__ = ["recode", "write"]


def write(
    repo: RepositoryLike,
    path: str,
    selection: Any,
    values: Any,
    *,
    cross_region_writes: bool = False,
    casting: Casting = "same_kind",
    decision: DecisionLike | None = None,
    padding: PaddingFunction | bytes | None = None,
    branch: str = "main",
    message: str = "",
    metadata: Mapping[str, Any] | None = None,
    backoff: Backoff | None = None,
) -> str:
    """Write values into a logical array in a repository; returns the snapshot's id.

    The values are there when it returns, whatever others do at the same time: if they moved the region to
    another member, or wrote other parts of the same chunks, the write is made again on what is there now.
    `cross_region_writes`, `casting`, `decision` and `padding` are those of `LogicalArray.with_config`.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="create") as tx:
    ...     tx.create("t", shape=(0,), chunks=(2,), dtype="u1").append([1, 2, 3], codecs=["gzip"])
    >>> _ = intarsia.write(repo, "t", slice(1, 3), [8, 9])
    >>> intarsia.open(repo, "t")[...].tolist()
    [1, 8, 9]
    """

    def change(tx: Transaction) -> None:
        array = tx.open(path).with_config(
            cross_region_writes=cross_region_writes, casting=casting, decision=decision, padding=padding
        )
        array[selection] = values

    text = message or f"write to {path}"
    return retry(repo, change, branch=branch, message=text, metadata=metadata, backoff=backoff)


def recode(
    repo: RepositoryLike,
    path: str,
    bounds: Sequence[tuple[int, int]] | None = None,
    *,
    codecs: Iterable[CodecLike] | Literal["auto"] | None,
    chunks: tuple[int, ...] | None = None,
    shards: tuple[int, ...] | None = None,
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
    `concurrent.futures`) its workers encode it.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="create") as tx:
    ...     tx.create("t", shape=(0,), chunks=(2,), dtype="u1").append([1, 2, 3], codecs=[])
    >>> _ = intarsia.recode(repo, "t", codecs=["zstd"])
    >>> intarsia.open(repo, "t").regions[0].codec_names
    'zstd'
    """
    opened, waits = open_repository(repo), backoff or Backoff()
    commit = Commit(opened, branch, message or f"recode {path}", dict(metadata or {}))
    box: Box | None = None
    made: _Recoded | None = None
    with explained(commit.where):
        base = opened.lookup_branch(branch)
        for _ in waits.tries():
            if made is None:
                session = opened.writable_session(branch)
                array = LogicalArray(frame_to_edit(session, path))
                # Kept in logical chunks: the last one may be partial, and others may fill it.
                if box is None or bounds is None:
                    pairs = [(0, n) for n in array.shape] if bounds is None else list(bounds)
                    box = edit.lattice_box(array.manifest, pairs)
                chosen = chosen_codecs(codecs, array, _bounds(array.manifest, box))
                encoding = Encoding(None if chosen is None else tuple(chosen), chunks, shards)
                made = _Recoded.of(session, path, box, encoding, client, progress)
            with commit_lock(opened):
                session = opened.writable_session(branch)
                if not made.holds(opened, session):
                    made = None
                    continue
                made.attach(session)
                try:
                    return commit.make(session, since=base)
                except icechunk.ConflictError:
                    continue
    raise ConcurrentUpdateError(commit.message, branch, [f"{path}: changed in {waits.attempts} attempts"])


def _bounds(manifest: Manifest, box: Box) -> tuple[tuple[int, int], ...]:
    return manifest.elements(box).bounds


@dataclass(frozen=True)
class _Recoded:
    """A box in its new encoding: uploaded, but in no snapshot yet."""

    path: str
    """Of the logical array."""

    ground: Ground
    """What was encoded anew, as it was read."""

    name: str
    """Of the new member."""

    fork: icechunk.ForkSession
    """Holds it."""

    @classmethod
    def of(
        cls,
        session: icechunk.Session,
        path: str,
        box: Box,
        encoding: Encoding,
        client: Client | None,
        progress: Progress,
    ) -> _Recoded:
        fork = session.fork()
        frame = frame_to_edit(fork, path)
        name = recoded_member(frame, _bounds(frame.manifest, box), encoding, client=client, progress=progress)
        return cls(path, Ground.of(session, path, box), name, fork)

    def holds(self, repo: icechunk.Repository, session: icechunk.Session) -> bool:
        """Whether the box still has the layout, the holes and the values that were read."""
        return not self.ground.changed_until(repo, session.snapshot_id)

    def attach(self, session: icechunk.Session) -> None:
        """Make the member part of a session, and of the manifest."""
        session.merge(self.fork)
        frame = frame_to_edit(session, self.path)
        attach_recoded(frame, _bounds(frame.manifest, self.ground.box), self.name)
