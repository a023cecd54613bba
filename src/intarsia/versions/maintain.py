"""Replicas in a repository, and the daily job of an archive, which carries out the policies of its arrays.

Everything is done in steps, each a commit of its own, alongside other writers. A step is prepared and
uploaded first; if others change what it was made from, it is made again. Finished steps stay: if a run is
ended early or killed, the next one continues it, and a run that finds nothing to do commits nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from intarsia._icechunk import VIRTUAL, chunk_table
from intarsia.codecs import CodecLike
from intarsia.display import bounds_text
from intarsia.errors import NotLogicalArrayError
from intarsia.logical.edit import consolidate
from intarsia.logical.encoding import encoding_of, planned_metadata
from intarsia.logical.hierarchy import logical_arrays
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.logical_array_handle import LogicalArrayHandle
from intarsia.logical.recode import reserve_recode
from intarsia.logical.replicas import (
    EncodingPolicy,
    Policy,
    missing_boxes,
    next_box_to_copy,
    plan_replica,
    reserve_replica,
)
from intarsia.manifest.box import BoundsLike, Box
from intarsia.manifest.region_table import Row
from intarsia.parallel import Client
from intarsia.progress import Progress, silent
from intarsia.versions.append_recode import CopyPlan, Reserve, Upload
from intarsia.versions.commit import Backoff, Commit, commit_with_retries
from intarsia.versions.repository import RepositoryLike, explain_errors, open_repository
from intarsia.versions.transaction import Transaction, commit_change
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
        backoff: How often to retry if others commit first, and how long to wait: an `intarsia.types.Backoff`.
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
    commit = Commit(open_repository(store), branch, message or f"add a replica of {path}", metadata, backoff)
    fields = {"chunks": chunks, "codecs": codecs, "shards": shards, "packing": packing}

    def plan(logical: LogicalArrayHandle) -> CopyPlan:
        replica, box = plan_replica(LogicalArray(logical), bounds, fields, layer)
        return box, partial(reserve_replica, replica=replica, box=box)

    return commit_with_retries(commit, partial(Upload.copy, commit, path, plan, client, progress))


@dataclass(frozen=True)
class MaintenanceStep:
    """One thing that `maintain` did, or would do."""

    path: str
    """The path of the logical array."""

    what: Literal["replica", "recode", "consolidate"]
    """Whether a replica was made or renewed, or regions were encoded again or joined."""

    layer: int
    """The layer in which it happened."""

    bounds: tuple[tuple[int, int], ...]
    """The elements concerned; all of them if regions were joined."""

    snapshot_id: str | None = field(default=None, compare=False)
    """The commit; None if it was not made."""

    def __str__(self) -> str:
        where = f"layer {self.layer} of {self.path}" if self.layer else self.path
        done = {"replica": "replicated", "recode": "recoded", "consolidate": "consolidated"}[self.what]
        return f"{done} {bounds_text(self.bounds)} in {where}"


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
) -> tuple[MaintenanceStep, ...]:
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
        backoff: How often to retry if others commit first, and how long to wait: an `intarsia.types.Backoff`.
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
    opened = open_repository(store)
    with explain_errors(opened):
        session = opened.readonly_session(branch)
        paths = logical_arrays(session.store, path)
    if path and not paths:
        raise NotLogicalArrayError(f"there is no logical array at {path!r} or below it")
    commit, done = Commit(opened, branch, "maintain", metadata, backoff), list[MaintenanceStep]()
    for each in paths:
        logical = group_at(session, each)
        if dry_run and logical is not None:
            done += [step for step, _ in _due_steps(logical)]
        elif logical is not None and Policy.of(logical) != Policy():
            done += _maintain_array(commit, each.strip("/"), client, progress)
    return tuple(done)


def _maintain_array(
    commit: Commit, path: str, client: Client | None, progress: Progress
) -> Iterator[MaintenanceStep]:
    """Do the steps of one array, one commit at a time."""
    last = None
    while (step := _do_next_step(commit, path, client, progress)) is not None:
        yield step
        # A step that is due twice in a row was undone by others meanwhile: the next run will do it.
        if step == last:
            break
        last = step
    consolidated: MaintenanceStep | None = None

    def change(tx: Transaction) -> None:
        nonlocal consolidated
        logical = group_to_edit(tx.session, path)
        bounds = Box.sized(logical.manifest.shape).bounds
        consolidated = MaintenanceStep(path, "consolidate", 0, bounds) if consolidate(logical) else None

    snapshot = commit_change(replace(commit, message=f"maintain: consolidate {path}"), change)
    if consolidated is not None:
        yield replace(consolidated, snapshot_id=snapshot)


def _do_next_step(
    commit: Commit, path: str, client: Client | None, progress: Progress
) -> MaintenanceStep | None:
    """Do the next step of an array; None if there is none."""
    commit, step = replace(commit), None

    def plan(logical: LogicalArrayHandle) -> CopyPlan | None:
        nonlocal step
        step, planned = next(_due_steps(logical), (None, None))
        commit.message = f"maintain: {step}"
        return planned

    snapshot = commit_with_retries(commit, partial(Upload.copy, commit, path, plan, client, progress))
    return None if step is None else replace(step, snapshot_id=snapshot)


def _due_steps(logical: LogicalArrayHandle) -> Iterator[tuple[MaintenanceStep, CopyPlan]]:
    """What a policy wants and the array lacks, one commit each; layer 0 first, since others copy it."""
    policy, manifest, path = Policy.of(logical), logical.manifest, logical.group.path
    if policy.recode is not None:
        for box in _regions_due_for_recoding(logical, policy.recode):
            reserve: Reserve = partial(reserve_recode, box=box, encoding=policy.recode.encoding)
            yield MaintenanceStep(path, "recode", 0, manifest.elements(box).bounds), (box, reserve)
    for replica in policy.replicas:
        for missing in missing_boxes(manifest, replica, least=replica.after):
            box = next_box_to_copy(manifest, replica, missing)
            reserve = partial(reserve_replica, box=box, replica=replica)
            bounds = manifest.elements(box).bounds
            yield MaintenanceStep(path, "replica", replica.layer, bounds), (box, reserve)


def _regions_due_for_recoding(logical: LogicalArrayHandle, policy: EncodingPolicy) -> Iterator[Box]:
    """Long enough runs of regions that are not encoded as they should be; virtual ones are left alone."""
    manifest, axis = logical.manifest, policy.axis
    table = manifest.regions
    if not len(table) or not manifest.ndim:
        return
    positions, first = np.unique(table.member, return_index=True)
    pairs = zip(positions.tolist(), first.tolist(), strict=True)
    other = [member for member, row in pairs if _is_other(logical, table.row(row), policy)]
    table = table.select(np.isin(table.member, other))
    for run in table.runs(axis):
        box = table.row(run[0]).box
        box = box.with_axis(axis, box.start[axis], table.row(run[-1]).box.stop[axis])
        if box.shape[axis] >= policy.after:
            yield box


def _is_other(logical: LogicalArrayHandle, row: Row, policy: EncodingPolicy) -> bool:
    """Whether the member of a region is not encoded as it should be, and holds its own chunks."""
    manifest, member = logical.manifest, logical.member_of(row)
    if manifest.view_of(row) is None:
        packing = manifest.packing_of(row) if policy.packing == "keep" else None
        encoding = replace(policy.encoding, packing=packing, keep_packing=False)
        planned = planned_metadata(manifest, member.shape, encoding)
        mine, other = encoding_of(member.metadata), encoding_of(planned)
        if all(mine[key] == other[key] for key in ("data_type", "chunk_grid", "codecs")):
            return False
    store: Any = logical.group.store
    return not bool((chunk_table(store, member.path, member.ndim).kind == VIRTUAL).any())
