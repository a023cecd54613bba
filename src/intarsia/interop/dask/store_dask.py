"""`store_dask`: a dask array into a logical array, written where it is computed, shown by one commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from intarsia.codecs import CodecLike
from intarsia.errors import NotLogicalArrayError, ShapeError
from intarsia.extras import import_extra
from intarsia.interop import write_jobs
from intarsia.interop.dask.to_dask import to_dask
from intarsia.logical.append import AppendPlan
from intarsia.logical.encoding import Encoding
from intarsia.logical.hierarchy import open_group
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.logical_array_handle import LogicalArrayHandle
from intarsia.logical.staging import Reservation
from intarsia.manifest.box import BoundsLike
from intarsia.manifest.data_types import as_values, to_user_array
from intarsia.manifest.manifest import NewRegion
from intarsia.parallel import fork_of
from intarsia.progress import Progress, silent
from intarsia.versions.append_recode import append_data
from intarsia.versions.commit import Commit
from intarsia.versions.version import as_repository, group_at


def store_dask(
    array: Any,
    store: Any,
    path: str = "",
    *,
    axis: int | str | None = None,
    bounds: BoundsLike | None = None,
    codecs: Iterable[CodecLike] | Literal["auto"] | None = None,
    chunks: tuple[int, ...] | None = None,
    shards: tuple[int, ...] | None = None,
    lattice: Sequence[int] | None = None,
    fill_value: Any = None,
    dimension_names: Sequence[str | None] | None = None,
    attributes: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    branch: str = "main",
    message: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    client: Any = None,
    retries: int = 2,
    progress: Progress = silent,
) -> str | None:
    """Compute a dask array and store it in a logical array; each block is written where it is computed.

    `store` is a repository (or its path or URL): then everything becomes one commit, and its snapshot id is
    returned. It may also be a transaction, a writable session or any other zarr store; then the commit, if
    any, is up to you, and None is returned. Afterwards, either all of the data is visible or none of it.

    What happens to the logical array at `path`:

    - by default it is created (`overwrite` replaces an old one). `codecs`, `chunks` and `shards` say how the
      data is stored. `chunks` defaults to the blocks of the dask array; `lattice` is the chunk grid that
      regions have to align to, if it is to be finer than that.
    - with `axis`, by number or dimension name, the data goes after its end, as in `LogicalArray.append`; the
      array is created if it does not exist. Others may append at the same time.
    - with `bounds`, the data goes into that box: into a new region if the box is free, otherwise into the
      existing regions (`codecs` equal to theirs may bring a decision or a padding function). So data for
      several regions is stored in one go once `LogicalArray.add_region` has added them without data.

    `client` does the work, by default the current one; without one, dask's local scheduler does. Blocks
    are first cut to whole chunks. If a worker dies, others repeat its work, and a block that fails is retried
    `retries` times.

    Args:
        array: The dask array.
        fill_value: What holes of a new array read as.
        dimension_names: A name, or None, for every axis of a new array.
        attributes: Attributes of a new array.
        branch: The branch of a repository that the commit goes to.
        message: The commit message; by default it says what was done.
        metadata: A dictionary that is kept with the commit.
        client: The `dask.distributed.Client` that does the work, see above.
        progress: A function that is called with the number of steps done and the total, see
            `intarsia.types.Progress`.

    >>> import dask.array as da, intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> snapshot = intarsia.store_dask(da.ones((4, 6), chunks=(2, 3)), repo, "ones", codecs=["gzip"])
    >>> snapshot = intarsia.store_dask(da.zeros((2, 6)), repo, "ones", axis=0, codecs=["zstd"])
    >>> array = intarsia.open(repo, "ones")
    >>> array[...].sum().item(), [region.bounds for region in array.regions]
    (24.0, [((0, 4), (0, 6)), ((4, 6), (0, 6))])
    """
    source = _check_dask(array)
    if axis is not None and bounds is not None:
        raise TypeError("give axis (to append) or bounds (to fill a box), not both")
    path, cluster = path.strip("/"), write_jobs.Cluster(client, retries, progress)
    encoding = Encoding(write_jobs.codecs_for(source, codecs), chunks, shards)
    is_replaced = overwrite and axis is None and bounds is None

    def reserve(target: Any) -> write_jobs.WriteJob:
        """Reserve bounds or an append in a store."""
        logical = None if is_replaced else group_at(target, path, "r+")
        if bounds is not None:
            if logical is None:
                raise NotLogicalArrayError(
                    f"there is no logical array at {path!r} with a box to fill.\n"
                    "  Create it first: intarsia.create(store, path, shape=…, chunks=…, dtype=…)"
                )
            return write_jobs.fill_bounds(source, logical, bounds, encoding)
        if axis is not None and logical is not None:
            return write_jobs.append_along(source, logical, axis, encoding)
        if logical is not None:
            raise FileExistsError(
                f"there is already a logical array at {path or '/'!r}.\n"
                "  axis=… appends to it, bounds=… writes into it, overwrite=True replaces it"
            )
        return write_jobs.new_array(
            source,
            target,
            path,
            encoding,
            lattice=lattice,
            fill_value=fill_value,
            dimension_names=dimension_names,
            attributes=attributes,
            overwrite=overwrite,
        )

    repo = as_repository(store)
    verb = "append to" if axis is not None else "store" if bounds is None else "fill a box of"
    message = message or f"{verb} {path or '/'}"
    if repo is not None and axis is not None:
        incoming = _DeferredAppend(source, axis, encoding, cluster)
        try:
            return append_data(Commit(repo, branch, message, metadata), path, incoming)
        except NotLogicalArrayError:
            if incoming.array_exists:
                raise  # somebody removed it

    def write(target: Any) -> None:
        write_jobs.run_jobs([reserve(target)], cluster)

    return write_jobs.write_to(store, write, branch=branch, message=message, metadata=metadata)


def _check_dask(array: Any) -> Any:
    """The dask array, or an error that says what it lacks."""
    da = import_extra("dask.array", "dask")
    if not isinstance(array, da.Array):
        raise TypeError(
            f"{type(array).__name__!r} is not a dask array.\n  "
            "dask.array.from_array makes one; intarsia.append and LogicalArray.append take data in memory"
        )
    if any(np.isnan(size) for axis in array.chunks for size in axis):
        raise ShapeError(
            "the chunk sizes of the dask array are unknown, so its blocks cannot be placed.\n"
            "  Compute them first: array.compute_chunk_sizes()"
        )
    return array


@dataclass
class _DeferredAppend:
    """A dask array to be appended; the cluster writes all but the part that fills a partial last chunk."""

    source: Any
    axis: int | str
    choice: Encoding
    cluster: write_jobs.Cluster
    array_exists: bool = False
    head: np.ndarray[Any, Any] | None = None
    """The part for the partial last chunk: computed with the upload, because workers cannot write later."""

    stored: tuple[Reservation, AppendPlan] | None = None
    """Where it was written. If it has to move, it is read back, not computed again."""

    def plan(self, logical: LogicalArrayHandle) -> AppendPlan:
        """Where the data would go."""
        self.array_exists = True
        return write_jobs.append_plan(self.source, logical, self.axis)

    def encoding(self, plan: AppendPlan) -> Encoding:
        """The requested encoding, in the chunks of the series."""
        return write_jobs.encoding_of_series(self.source, plan, self.choice)

    def fill(self, reservation: Reservation) -> None:
        """Compute everything: the reserved part into members, the part before it into memory."""
        if self.stored is not None:
            self.source = self._read_back(*self.stored)
        plan = self.plan(reservation.logical)
        axis = plan.axis
        split = min(
            [piece.source.start[axis] for piece in reservation.pieces], default=self.source.shape[axis]
        )
        head = self.source[(slice(None),) * axis + (slice(0, split),)]
        self.head = as_values(reservation.logical.manifest, np.asanyarray(head.compute())) if split else None
        self.cluster.write([(self.source, reservation)])
        self.stored = reservation, plan

    def fill_partial_chunks(self, reservation: Reservation) -> None:
        """Write the part that was computed into memory."""
        head: Any = self.head
        reservation.fill(lambda source: head[source.slices])

    def _read_back(self, reservation: Reservation, plan: AppendPlan) -> Any:
        """The data as it is stored now: the part before the reserved one is still in memory."""
        da = import_extra("dask.array", "dask")
        manifest, store, axis = reservation.manifest, reservation.logical.group.store, plan.axis
        if manifest is None:  # it was uploaded apart
            new = [
                NewRegion(plan.new_chunks, piece.member, packing=piece.packing)
                for piece in reservation.pieces
            ]
            manifest = plan.before.replace_boxes([], new, shape=plan.grown.shape)
        group = open_group(fork_of(store).store, reservation.logical.group.path, "r")
        stored = to_dask(LogicalArray(LogicalArrayHandle(group, manifest)))
        head = [] if self.head is None else [da.from_array(to_user_array(self.head), name=False)]
        first = plan.data.start[axis] + sum(part.shape[axis] for part in head)
        return da.concatenate([*head, stored[(slice(None),) * axis + (slice(first, None),)]], axis=axis)
