"""Appends and recodes by many processes at once: uploaded once, attached where they fit.

Only the edit of the manifest is repeated if another process was faster. A copy is attached if nobody has
changed what was read.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Protocol, Self

import icechunk

from intarsia._icechunk import writing
from intarsia.casting import Casting
from intarsia.codecs import CodecLike
from intarsia.codecs.base import codec_list
from intarsia.logical.append import AppendPlan
from intarsia.logical.encoding import Encoding, choose_codecs
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.logical_array_handle import LogicalArrayHandle
from intarsia.logical.recode import copy_values, recode_encoding, reserve_recode
from intarsia.logical.staging import Reservation, lattice_box
from intarsia.manifest.box import BoundsLike, Box
from intarsia.manifest.data_types import as_values
from intarsia.manifest.packing_columns import PackingChoice, choose_packing
from intarsia.parallel import Client
from intarsia.progress import Progress, silent
from intarsia.versions.commit import (
    Backoff,
    Commit,
    PreparedChange,
    ReadPrecondition,
    SessionChanges,
    commit_with_retries,
)
from intarsia.versions.repository import RepositoryLike, open_repository
from intarsia.versions.version import group_in_fork, group_to_edit, node_at


def append(
    store: RepositoryLike,
    path: str,
    data: Any,
    *,
    axis: int | str = 0,
    codecs: Iterable[CodecLike] | Literal["auto"] | None = None,
    chunks: tuple[int, ...] | None = None,
    shards: tuple[int, ...] | None = None,
    packing: PackingChoice = None,
    merge: bool = True,
    casting: Casting = "same_kind",
    branch: str = "main",
    message: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    backoff: Backoff | None = None,
) -> str:
    """Append to a logical array in a repository, safely while others write, and return the snapshot id.

    When it returns, the data has been committed exactly once. Appends by several processes are all kept, one
    after another, in the order in which they commit. If nobody else writes and the encoding is the same, the
    last region grows, so that a year of daily appends is one member. If somebody else writes, the data
    becomes a region of its own (`array.consolidate()` joins them later). The other arguments are those of
    `LogicalArray.append`.

    Args:
        store: An Icechunk repository, or the path or URL of one.
        path: Where the logical array is in the repository.
        data: The data to add.
        axis: The axis that grows, as a number or a dimension name.
        codecs: The codecs of the new region. Without them, the data is encoded like the previous region;
            `"auto"` tries some and takes what suits the data.
        chunks: The chunk shape of a new member. Without codecs, chunks and shards, it is that of the previous
            region; otherwise it is that of the lattice by default.
        shards: The shape of the shards, a whole number of chunks along each axis.
        packing: How values are packed, as in `LogicalArray.append`.
        merge: Whether the last region may grow; otherwise the data becomes a region of its own.
        casting: `"same_kind"` refuses values that the array's data type would change by more than the
            rounding of a float; `"unsafe"` accepts all of NumPy's results.
        branch: The branch that the commit goes to.
        message: The commit message; by default it says what was done.
        metadata: A dictionary that is kept with the commit.
        backoff: How often to retry if others commit first, and how long to wait: an `intarsia.types.Backoff`.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="create") as tx:
    ...     _ = tx.create("t", shape=(0, 2), chunks=(1, 2), dtype="i4")
    >>> for day in range(3):
    ...     snapshot = intarsia.append(repo, "t", [[day, day]], codecs=["gzip"])
    >>> array = intarsia.open(repo, "t")
    >>> array[:, 0].tolist(), len(array.members)
    ([0, 1, 2], 1)
    """
    commit = Commit(open_repository(store), branch, message or f"append to {path}", metadata, backoff)
    listed = codecs if codecs is None or codecs == "auto" else codec_list(codecs)
    incoming = _InMemory(data, axis, casting, listed, chunks, shards, packing)
    return append_data(commit, path, incoming, merge=merge)


class AppendData(Protocol):
    """Data to be appended, in memory or elsewhere."""

    def plan(self, logical: LogicalArrayHandle) -> AppendPlan:
        """Where the data would go in the current array; refused if it does not fit."""

    def encoding(self, plan: AppendPlan) -> Encoding:
        """How it will be stored there."""

    def fill(self, reservation: Reservation) -> None:
        """Write all the data that the reservation is for. Slow work belongs here, because no lock is held.

        The reservation may be for the later part of the data only; `fill_partial_chunks` writes the rest.
        """

    def fill_partial_chunks(self, reservation: Reservation) -> None:
        """Write the part before the uploaded one: a few rows at most, while holding the lock."""


@dataclass
class _InMemory:
    """Data in the memory of this process."""

    values: Any
    axis: int | str
    casting: Casting
    codecs: Iterable[CodecLike] | Literal["auto"] | None
    chunks: tuple[int, ...] | None
    shards: tuple[int, ...] | None
    packing: PackingChoice

    def plan(self, logical: LogicalArrayHandle) -> AppendPlan:
        self.values = as_values(logical.manifest, self.values, self.casting, all_axes=True)
        return AppendPlan.of(logical, self.values.shape, self.axis, values=self.values)

    def encoding(self, plan: AppendPlan) -> Encoding:
        packed = choose_packing(plan.before, self.packing)
        chosen = choose_codecs(self.codecs, self.values, packing=packed.get("packing"))
        return Encoding(chosen, self.chunks, self.shards, **packed)

    def fill(self, reservation: Reservation) -> None:
        reservation.fill(lambda source: self.values[source.slices])

    fill_partial_chunks = fill


def append_data(commit: Commit, path: str, incoming: AppendData, *, merge: bool = True) -> str:
    """Append data to a logical array in a repository, and return the snapshot id."""
    may_grow = merge

    def prepare() -> PreparedChange | str:
        nonlocal may_grow
        session = commit.repo.writable_session(commit.branch)
        logical = group_to_edit(session, path)
        plan = incoming.plan(logical)
        if not plan.length:
            return session.snapshot_id
        plan = replace(plan, encoding=incoming.encoding(plan))
        if may_grow:
            may_grow = False  # if others append too, the data is uploaded apart from their manifest
            reservation = plan.reserve_growth()
            if reservation is not None:
                with reservation.shown_when_filled():
                    incoming.fill(reservation)
                return SessionChanges(commit, session, session.snapshot_id)
        return Upload.append(commit, session, plan, incoming)

    return commit_with_retries(commit, prepare)


type Attach = Callable[[icechunk.Session, LogicalArrayHandle], list[str]]
"""Makes uploaded data part of a logical array in a session, or says why it no longer fits."""

type Reserve = Callable[..., Reservation]
"""Makes room for a copy of a box in a group; with `ready`, for the array that already holds it."""


type CopyPlan = tuple[Box, Reserve]
"""A box of logical chunks that is to be stored in another encoding, and how to make room for it."""


@dataclass
class Upload:
    """Data in the repository's storage, but in no version yet: uploaded once, attached where it fits."""

    commit: Commit
    session: icechunk.Session
    path: str
    """The path of the logical array."""

    attach: Attach

    @classmethod
    def append(
        cls, commit: Commit, session: icechunk.Session, first: AppendPlan, incoming: AppendData
    ) -> Self:
        """Upload data to be appended: that in wholly new logical chunks, as a member of its own."""
        logical, path = first.logical, first.logical.group.path
        node, fork, member = node_at(session, path), None, None
        uploaded = Reservation(logical, first.data.start)
        if first.new_chunks_shape is not None:
            fork = session.fork()
            uploaded.logical = group_in_fork(logical, fork)
            elements = first.grown.elements(first.new_chunks)
            member = uploaded.in_new_member(elements, first.new_encoding)
        incoming.fill(uploaded)

        def attach(session: icechunk.Session, logical: LogicalArrayHandle) -> list[str]:
            plan = first
            if logical is not first.logical:  # others have committed since the upload
                plan = replace(incoming.plan(logical), encoding=first.encoding)
                if node_at(session, path) != node:  # a later group at the same path is not ours to write to
                    return [f"{path}: it was recreated"]
                if plan.new_chunks_shape != first.new_chunks_shape:
                    return [f"{path}: the data would now be aligned differently to the chunks"]
            _merge(session, fork)
            reservation = plan.reserve(ready=member, packing=first.new_encoding.packing)
            with reservation.shown_when_filled():
                incoming.fill_partial_chunks(reservation)
            return []

        attach(session, logical)
        return cls(commit, session, path, attach)

    @classmethod
    def copy(
        cls,
        commit: Commit,
        path: str,
        plan: Callable[[LogicalArrayHandle], CopyPlan | None],
        client: Client | None,
        progress: Progress,
    ) -> Self | str:
        """Upload a box in another encoding; it fits if the box has the layout, holes and values that were
        read. If the plan is None, nothing is to be done, and the current snapshot is returned."""
        session = commit.repo.writable_session(commit.branch)
        logical = group_to_edit(session, path)
        planned = plan(logical)
        if planned is None:
            return session.snapshot_id
        (box, reserve), fork = planned, session.fork()
        precondition = ReadPrecondition.of(session, path, box, logical.manifest)
        apart = group_in_fork(logical, fork)
        reservation = reserve(apart)
        copy_values(reservation, client=client, progress=progress)

        def attach(session: icechunk.Session, logical: LogicalArrayHandle) -> list[str]:
            changed = precondition.violations_until(commit.repo, session.snapshot_id)
            if not changed:
                _merge(session, fork)
                reserve(logical, ready=reservation.new_members[0]).commit()
            return changed

        attach(session, logical)
        return cls(commit, session, path, attach)

    def rebase(self) -> list[str]:
        """Attach it to the newest state of the array."""
        session = self.commit.repo.writable_session(self.commit.branch)
        changed = self.attach(session, group_to_edit(session, self.path))
        if not changed:
            self.session = session
        return changed


def _merge(session: icechunk.Session, fork: icechunk.ForkSession | None) -> None:
    if fork is not None:
        with writing(session):
            session.merge(fork)


def recode(
    store: RepositoryLike,
    path: str,
    bounds: BoundsLike | None = None,
    *,
    codecs: Iterable[CodecLike] | Literal["auto"] | None,
    chunks: tuple[int, ...] | None = None,
    shards: tuple[int, ...] | None = None,
    packing: PackingChoice = "keep",
    branch: str = "main",
    message: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    backoff: Backoff | None = None,
    client: Client | None = None,
    progress: Progress = silent,
) -> str:
    """Encode an aligned box (by default everything) of a logical array again, and return the snapshot id.

    The new chunks are made and uploaded first, which others do not notice. If others change the box before it
    is committed, it is encoded again, so none of their writes are lost; appends and writes elsewhere only
    cost another edit of the manifest. With a client (a `dask.distributed.Client`, or an executor of
    `concurrent.futures`), its workers encode it. `packing` is as in `LogicalArray.recode`.

    [Storing data again](../../explanation/storing-again.md) compares it with other operations.

    Args:
        store: An Icechunk repository, or the path or URL of one.
        path: Where the logical array is in the repository.
        bounds: The box: (start, stop) in elements for every axis, or slices such as `np.s_[0:500, :]`. It
            must be aligned to the lattice. By default it is the whole array.
        codecs: The codecs of the new member. `"auto"` tries some and takes what suits the data; None leaves
            the choice to zarr.
        chunks: The chunk shape of the new member. Without chunks and shards, both stay as they are;
            if regions in the box differ, those of the largest one are taken.
        shards: The shape of the shards, a whole number of chunks along each axis. With chunks but without
            shards, there are none.
        packing: What happens to packed regions, as in `LogicalArray.recode`.
        branch: The branch that the commit goes to.
        message: The commit message; by default it says what was done.
        metadata: A dictionary that is kept with the commit.
        backoff: How often to retry if others commit first, and how long to wait: an `intarsia.types.Backoff`.
        client: A `dask.distributed.Client`, or an executor of `concurrent.futures` that does not fork, whose
            workers do the work. By default, threads of this process do it.
        progress: A function that is called with the number of steps done and the total, see
            `intarsia.types.Progress`.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="create") as tx:
    ...     tx.create("t", shape=(0,), chunks=(2,), dtype="u1").append([1, 2, 3], codecs=[])
    >>> _ = intarsia.recode(repo, "t", codecs=["zstd"])
    >>> intarsia.open(repo, "t").regions[0].codec_names
    'zstd'
    """
    commit = Commit(open_repository(store), branch, message or f"recode {path}", metadata, backoff)
    box: Box | None = None

    def plan(logical: LogicalArrayHandle) -> CopyPlan:
        nonlocal box
        # Kept in logical chunks: the last one may be partial, and others may fill it.
        if box is None or bounds is None:
            box = lattice_box(logical.manifest, bounds)
        encoding = recode_encoding(LogicalArray(logical), box, codecs, chunks, shards, packing)
        return box, partial(reserve_recode, box=box, encoding=encoding)

    return commit_with_retries(commit, partial(Upload.copy, commit, path, plan, client, progress))
