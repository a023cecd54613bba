"""Replicas in a repository, and the daily job of an archive, which carries out the policies of its arrays.

Everything is done in steps, each a commit of its own, alongside other writers. A step is prepared and
uploaded first; if others change what it was made from, it is made again. Finished steps stay: if a run is
ended early or killed, the next one continues it, and a run that finds nothing to do commits nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

import icechunk
import numpy as np

from intarsia._icechunk import VIRTUAL, chunk_table
from intarsia.codecs import CodecLike
from intarsia.display import bounds_text
from intarsia.errors import NotLogicalArrayError
from intarsia.logical.edit import consolidate
from intarsia.logical.hierarchy import logical_arrays
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.logical_state import LogicalArrayHandle
from intarsia.logical.members import Encoding, choose_codecs, encoding_of, planned_metadata
from intarsia.logical.recode import reserve_copy
from intarsia.logical.replicas import (
    EncodingPolicy,
    Policy,
    ReplicaPolicy,
    gaps,
    piece_of,
    plan_replica,
    reserve_replica,
)
from intarsia.manifest.box import BoundsLike, Box
from intarsia.parallel import Client
from intarsia.progress import Progress, silent
from intarsia.versions.commit import Backoff, Commit, publish
from intarsia.versions.repository import RepositoryLike, describe, explain_errors, open_repository
from intarsia.versions.transaction import Transaction, retry
from intarsia.versions.uploads import Reserve, Upload
from intarsia.versions.version import group_at, group_to_edit


def add_replica(
    store: RepositoryLike,
    path: str,
    bounds: BoundsLike | None = None,
    *,
    chunks: tuple[int, ...] | None = None,
    codecs: Iterable[CodecLike] | Literal["auto"] | None = None,
    shards: tuple[int, ...] | None = None,
    packing: Literal["keep"] | None = "keep",
    layer: int | None = None,
    branch: str = "main",
    message: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    backoff: Backoff | None = None,
    client: Client | None = None,
    progress: Progress = silent,
) -> str:
    """Store an aligned box (by default everything) in another layout too, and return the snapshot id.

    This does what `LogicalArray.add_replica` does, while others may write. The chunks are made and uploaded
    first, which others do not notice. If others change the box before it is committed, it is made again;
    appends and writes elsewhere only cost another edit of the manifest. With a client (a
    `dask.distributed.Client`, or an executor of `concurrent.futures`), its workers do the work. Virtual
    regions stay virtual.

    Args:
        store: An Icechunk repository, or the path or URL of one.
        path: Where the logical array is in the repository.
        bounds: The box: (start, stop) in elements for every axis, or slices such as `np.s_[0:500, :]`. It
            must be aligned to the lattice. By default it is the whole array.
        chunks: The chunk shape of the new member; by default that of the lattice.
        codecs: The codecs of the new member. `"auto"` tries some and takes what suits the data; None leaves
            the choice to zarr.
        shards: The shape of the shards, a whole number of chunks along each axis; by default there are none.
        packing: `"keep"` keeps packed regions packed; None stores their values.
        layer: The number of the layer. By default it is the layer with the same encoding, or a new one.
        branch: The branch that the commit goes to.
        message: The commit message; by default it says what was done.
        metadata: A dictionary that is kept with the commit.
        backoff: How often to retry the commit if others come first, and how long to wait in between: an
            `intarsia.types.Backoff`.
        client: A `dask.distributed.Client`, or an executor of `concurrent.futures` that does not fork, whose
            workers do the work. By default, threads of this process do it.
        progress: A function that is called with the number of steps done and the total, see
            `intarsia.types.Progress`.

    >>> import numpy as np, intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="maps") as tx:
    ...     array = tx.create("t", shape=(0, 4), chunks=(1, 4), dtype="i2")
    ...     array.append(np.arange(16).reshape(4, 4))
    >>> _ = intarsia.add_replica(repo, "t", chunks=(4, 1))
    >>> intarsia.explain(intarsia.open(repo, "t"), np.s_[:, 2]).chunks
    1
    """
    opened = open_repository(store)
    commit = Commit(opened, branch, message or f"add a replica of {path}", metadata, backoff)

    def prepare() -> Upload:
        session = opened.writable_session(branch)
        logical = group_to_edit(session, path)
        array = LogicalArray(logical)
        chosen: Any = codecs
        if codecs == "auto" and array.size:
            box: BoundsLike = Box.sized(array.shape).bounds if bounds is None else bounds
            chosen = choose_codecs(codecs, array.as_stored(box) if packing == "keep" else array, box)
        fields = {"chunks": chunks, "codecs": chosen, "shards": shards, "packing": packing}
        replica, cells = plan_replica(logical, bounds, fields, layer)
        reserve = partial(reserve_replica, box=cells, replica=replica)
        return Upload.copy(commit, session, logical, cells, reserve, client, progress)

    return publish(commit, prepare)


@dataclass(frozen=True)
class Upkeep:
    """One thing that `maintain` did, or would do."""

    path: str
    """The path of the logical array."""

    what: Literal["replica", "recode", "consolidate"]
    """Whether a replica was made or renewed, or regions were encoded again or joined."""

    layer: int
    """The layer in which it happened."""

    bounds: tuple[tuple[int, int], ...]
    """The elements concerned; all of them if regions were joined."""

    snapshot_id: str | None = None
    """The commit; None if it was not made."""

    def __str__(self) -> str:
        where = f"layer {self.layer} of {self.path}" if self.layer else self.path
        done = {"replica": "replicated", "recode": "recoded", "consolidate": "consolidated"}[self.what]
        return f"{done} {bounds_text(self.bounds)} in {where}"

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON."""
        return asdict(self)


def maintain(
    store: RepositoryLike,
    path: str = "",
    *,
    branch: str = "main",
    dry_run: bool = False,
    metadata: Mapping[str, Any] | None = None,
    backoff: Backoff | None = None,
    client: Client | None = None,
    progress: Progress = silent,
) -> tuple[Upkeep, ...]:
    """Do what the policies of logical arrays ask for, at a path or below it: the daily job of an archive.

    Replicas get what they lack after writes or appends. Regions that were written in haste get the encoding
    that `LogicalArray.set_policy` describes. Neighbours that have become alike are joined. Each step is a
    commit, and others may write meanwhile. Run it as often as you like, and stop it when you like: it
    continues where it left off, and does nothing if there is nothing to do. `dry_run=True` only lists the
    steps. [Storing data again](../../explanation/storing-again.md) compares it with other operations.

    Args:
        store: An Icechunk repository, or the path or URL of one.
        path: The logical array, or a group with logical arrays below it.
        branch: The branch that the commits go to.
        dry_run: Whether to list the steps without doing them.
        metadata: A dictionary that is kept with each commit.
        backoff: How often to retry the commit if others come first, and how long to wait in between: an
            `intarsia.types.Backoff`.
        client: A `dask.distributed.Client`, or an executor of `concurrent.futures` that does not fork, whose
            workers do the work. By default, threads of this process do it.
        progress: A function that is called with the number of steps done and the total, see
            `intarsia.types.Progress`.

    >>> import numpy as np, intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="maps") as tx:
    ...     array = tx.create("t", shape=(0, 4), chunks=(1, 4), dtype="i2")
    ...     array.append(np.arange(16).reshape(4, 4))
    ...     array.set_policy(replica={"chunks": (4, 1), "after": "2 chunks"})
    >>> for step in intarsia.maintain(repo):
    ...     print(step)
    replicated [0:4, 0:4] in layer 1 of t
    >>> intarsia.maintain(repo)
    ()
    """
    opened, done = open_repository(store), list[Upkeep]()
    with explain_errors(describe(opened)):
        paths = logical_arrays(opened.readonly_session(branch).store, path)
    if path and not paths:
        raise NotLogicalArrayError(f"there is no logical array at {path!r} or below it")
    for each in paths:
        work = _Work(opened, each.strip("/"), branch, metadata, backoff, client, progress)
        done += work.planned() if dry_run else work.carried_out()
    return tuple(done)


@dataclass(frozen=True)
class _Work:
    """The upkeep of one array."""

    repo: icechunk.Repository
    path: str
    branch: str
    metadata: Mapping[str, Any] | None
    backoff: Backoff | None
    client: Client | None
    progress: Progress

    def _now(self) -> LogicalArrayHandle | None:
        return group_at(self.repo.readonly_session(self.branch), self.path)

    def planned(self) -> list[Upkeep]:
        """The steps to do, without those that follow from them."""
        logical = self._now()
        if logical is None:
            return []
        manifest, listed = logical.manifest, []
        for step, box, _, replica in _steps(logical):
            layer = 0 if replica is None else replica.layer
            listed.append(Upkeep(self.path, step, layer, manifest.elements(box).bounds))
        return listed

    def carried_out(self) -> Iterator[Upkeep]:
        """Do the steps, one commit at a time."""
        logical = self._now()
        if logical is None or Policy.of(logical) == Policy():
            return
        last = None
        while (made := self._step()) is not None:
            yield made
            # A step that is due twice in a row was undone by others meanwhile: the next run will do it.
            if (made.what, made.layer, made.bounds) == last:
                break
            last = made.what, made.layer, made.bounds
        yield from self._joined()

    def _step(self) -> Upkeep | None:
        """Do the next step; None if there is none."""
        made: list[Upkeep] = []
        commit = Commit(self.repo, self.branch, "", self.metadata, self.backoff)

        def prepare() -> Upload | str:
            session = self.repo.writable_session(self.branch)
            logical = group_to_edit(session, self.path)
            step = next(iter(_steps(logical)), None)
            made.clear()
            if step is None:
                return session.snapshot_id
            what, box, encoding, replica = step
            bounds, layer = logical.manifest.elements(box).bounds, 0 if replica is None else replica.layer
            made.append(Upkeep(self.path, what, layer, bounds))
            commit.message = f"maintain: {made[0]}"
            reserve: Reserve = partial(reserve_copy, boxes=[box], encoding=encoding)
            if replica is not None:
                reserve = partial(reserve_replica, box=box, replica=replica)
            return Upload.copy(commit, session, logical, box, reserve, self.client, self.progress)

        snapshot = publish(commit, prepare)
        return replace(made[0], snapshot_id=snapshot) if made else None

    def _joined(self) -> Iterator[Upkeep]:
        """Join neighbours that are encoded alike, if there are any."""
        before, joined = self.repo.lookup_branch(self.branch), 0

        def change(tx: Transaction) -> None:
            nonlocal joined
            joined = consolidate(group_to_edit(tx.session, self.path))

        text = f"maintain: consolidate {self.path}"
        snapshot = retry(
            self.repo, change, branch=self.branch, message=text, metadata=self.metadata, backoff=self.backoff
        )
        logical = self._now()
        if joined and snapshot != before and logical is not None:
            bounds = Box.sized(logical.manifest.shape).bounds
            yield Upkeep(self.path, "consolidate", 0, bounds, snapshot)


type Step = tuple[Literal["replica", "recode"], Box, Encoding, ReplicaPolicy | None]


def _steps(logical: LogicalArrayHandle) -> Iterator[Step]:
    """What a policy wants and the array lacks, one commit each; layer 0 first, since others copy it."""
    policy = Policy.of(logical)
    if policy.recode is not None:
        for box in _regions_due_for_recoding(logical, policy.recode):
            yield "recode", box, policy.recode.encoding, None
    for replica in policy.replicas:
        for gap in gaps(logical.manifest, replica, least=replica.after):
            yield "replica", piece_of(logical.manifest, replica, gap), replica.encoding, replica


def _regions_due_for_recoding(logical: LogicalArrayHandle, policy: EncodingPolicy) -> Iterator[Box]:
    """Long enough runs of regions that are not encoded as they should be; virtual ones are left alone."""
    manifest, axis = logical.manifest, policy.axis
    table = manifest.regions
    if not len(table) or not manifest.ndim:
        return
    other = _members(logical, lambda name, row: _is_other(logical, name, row, policy))
    table = table.select(np.isin(table.member, other))
    for run in table.runs(axis):
        box = table.row(run[0]).box
        box = box.with_axis(axis, box.start[axis], table.row(run[-1]).box.stop[axis])
        if box.shape[axis] >= policy.after:
            yield box


def _members(logical: LogicalArrayHandle, chosen: Callable[[str, int], bool]) -> list[int]:
    """The members of layer 0 for which `chosen` is true, each called with the first of its rows."""
    positions, first = np.unique(logical.manifest.regions.member, return_index=True)
    names = logical.manifest.members
    pairs = zip(positions.tolist(), first.tolist(), strict=True)
    return [position for position, row in pairs if chosen(names[position], row)]


def _is_other(logical: LogicalArrayHandle, name: str, row: int, policy: EncodingPolicy) -> bool:
    """Whether a member is not encoded as it should be, and holds its own chunks."""
    manifest, member = logical.manifest, logical.members[name]
    region = manifest.regions.row(row)
    packing = manifest.packing_of(region) if policy.packing == "keep" else None
    if manifest.view_of(region) is None:
        encoding = replace(policy.encoding, packing=packing, keep_packing=False)
        planned = planned_metadata(manifest, member.shape, encoding)
        mine, other = encoding_of(member.metadata), encoding_of(planned)
        if all(mine[key] == other[key] for key in ("data_type", "chunk_grid", "codecs")):
            return False
    path = f"{logical.group.path}/{name}".lstrip("/")
    store: Any = logical.group.store
    return not bool((chunk_table(store, path, member.ndim).kind == VIRTUAL).any())
