"""Writing arrays into a store: reserve members for each, write all of them, and then show all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import zarr

from intarsia._compat import dask_meta, sync
from intarsia.codecs import CodecLike
from intarsia.codecs.base import codec_list
from intarsia.errors import OverlapError, ShapeError
from intarsia.logical.append import AppendPlan, take_over_codecs
from intarsia.logical.encoding import Encoding, choose_codecs
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.logical_array_handle import LogicalArrayHandle
from intarsia.logical.opening import create
from intarsia.logical.staging import (
    Reservation,
    clean_up,
    lattice_box,
    removed_on_failure,
    reserve_in_existing_regions,
    reserve_region,
)
from intarsia.manifest.box import BoundsLike, Box, element_bounds
from intarsia.manifest.data_types import as_values
from intarsia.nullable import optional_dtype
from intarsia.progress import Progress, silent
from intarsia.versions.repository import remove_new_store_on_failure
from intarsia.versions.transaction import retry
from intarsia.versions.version import as_repository, resolve_store


@dataclass(frozen=True)
class WriteJob:
    """One array, and the reservation for it."""

    source: Any
    """A NumPy array or a dask array."""

    reservation: Reservation
    """What goes where in the logical array."""

    created: bool = False
    """Whether the logical array is new, and is removed again if this fails."""

    def write_here(self) -> None:
        """Write a source that is in memory."""
        values = as_values(self.reservation.logical.manifest, self.source)
        self.reservation.fill(lambda source: values[source.slices])

    def discard(self) -> None:
        """Remove everything again."""
        if self.created:
            sync(self.reservation.logical.group.store_path.delete_dir())
        else:
            self.reservation.discard()


@dataclass(frozen=True)
class Cluster:
    """What computes and writes the blocks of dask arrays."""

    client: Any = None
    """A `dask.distributed.Client`; None means the current one, or else dask's local scheduler."""

    retries: int = 2
    """How often a client retries a block that fails."""

    progress: Progress = silent
    """Called with the number of blocks written."""

    def write(self, jobs: Sequence[tuple[Any, Reservation]]) -> None:
        """Write dask arrays; without any, dask need not be installed."""
        if jobs:
            from intarsia.interop.dask.block_writes import write_blocks

            write_blocks(jobs, self.client, self.retries, self.progress)


def run_jobs(jobs: Iterable[WriteJob], cluster: Cluster, then: Callable[[], object] | None = None) -> None:
    """Write everything, call `then`, and show everything; if anything fails, nothing is shown.

    `jobs` may reserve one by one: if that fails, the others give theirs back.
    """
    reserved: list[WriteJob] = []
    try:
        for job in jobs:
            reserved.append(job)  # noqa: PERF402  # kept if the next one fails
        for job in reserved:
            if isinstance(job.source, np.ndarray):
                job.write_here()
        cluster.write([(job.source, job.reservation) for job in reserved if hasattr(job.source, "dask")])
        if then is not None:
            then()
    except BaseException as error:
        for job in reserved:
            clean_up(job.reservation.logical.group.store, error, job.discard)
        raise
    for job in reserved:
        job.reservation.commit()


def write_to(
    store: Any,
    write: Callable[[Any], object],
    *,
    branch: str,
    message: str,
    metadata: Mapping[str, Any] | None = None,
) -> str | None:
    """Call `write` with a store to write to; in a repository, return the snapshot id of the commit.

    If others change there what it builds on, it is called again.
    """
    repo = as_repository(store)
    if repo is not None:
        return retry(repo, lambda tx: write(tx.store), branch=branch, message=message, metadata=metadata)
    target = resolve_store(store).store
    with remove_new_store_on_failure(target):
        write(target)
    return None


def new_array(
    source: Any,
    store: Any,
    path: str,
    encoding: Encoding,
    lattice: Sequence[int] | None = None,
    **fields: Any,
) -> WriteJob:
    """A new logical array that holds all of the source in one region."""
    chunks = tuple(encoding.chunks or _chunk_shape(source))
    dtype = _data_type(source)
    array = create(store, path, shape=source.shape, chunks=tuple(lattice or chunks), dtype=dtype, **fields)
    with removed_on_failure(array.group.store_path):
        reservation = reserve_all(array, replace(encoding, chunks=chunks))
        return WriteJob(source, reservation, created=True)


def reserve_all(array: LogicalArray, encoding: Encoding) -> Reservation:
    """One region for everything in a new array; none if it has no elements."""
    logical = array._logical
    if not array.size:
        return Reservation(logical)
    return reserve_region(logical, Box.sized(logical.manifest.lattice), encoding)


def fill_bounds(source: Any, logical: LogicalArrayHandle, bounds: BoundsLike, encoding: Encoding) -> WriteJob:
    """Into a box of an array: into new regions if it is free, otherwise into the existing ones."""
    logical.begin_edit()
    manifest = logical.manifest
    _check_type(logical, source)
    box = Box.of(element_bounds(bounds, manifest.shape))
    if box.shape != tuple(source.shape):
        raise ShapeError(
            f"the data has shape {tuple(source.shape)}, but the box {box.text()} has {box.shape}"
        )
    rows = manifest.regions.touching(manifest.cells(box))
    if not rows.size:
        return WriteJob(source, reserve_region(logical, lattice_box(manifest, bounds), encoding))
    there = [manifest.regions.row(i) for i in rows.tolist()]
    is_theirs = encoding == Encoding(encoding.codecs)  # so that only their run-time options may be new
    if is_theirs and encoding.codecs is not None:
        is_theirs = all(take_over_codecs(logical, row, encoding) for row in there)
    if not is_theirs:
        named = ", ".join(map(logical.state.region_text, there[:6]))
        raise OverlapError(
            f"the box {box.text()} takes no codecs, chunks or shards: it already has regions: {named}.\n"
            "  Leave them out to write the data into these; arr.recode changes their encoding"
        )
    return WriteJob(source, reserve_in_existing_regions(logical, box))


def append_along(source: Any, logical: LogicalArrayHandle, axis: int | str, encoding: Encoding) -> WriteJob:
    """After the end of an axis."""
    logical.begin_edit()
    plan = append_plan(source, logical, axis)
    plan = replace(plan, encoding=encoding_of_series(source, plan, encoding))
    return WriteJob(source, plan.reserve_growth() or plan.reserve())


def append_plan(source: Any, logical: LogicalArrayHandle, axis: int | str) -> AppendPlan:
    """Where the source goes after the end of an axis; if it does not fit, refused before it is computed."""
    _check_type(logical, source)
    return AppendPlan.of(logical, tuple(source.shape), axis)


def encoding_of_series(source: Any, plan: AppendPlan, encoding: Encoding) -> Encoding:
    """Data appended with other codecs keeps the chunks of the series, unless the caller chose others."""
    if encoding.codecs is None or encoding.chunks is not None or encoding.shards is not None:
        return encoding
    last = plan.new_encoding
    return replace(encoding, chunks=last.chunks or _chunk_shape(source), shards=last.shards)


def codecs_for(source: Any, codecs: Any) -> tuple[CodecLike, ...] | None:
    """The codec list; "auto" means what suits the data, or a block from the middle of a dask array."""
    if codecs == "auto":
        is_lazy = hasattr(source, "dask")
        sample = source.blocks[tuple(n // 2 for n in source.numblocks)] if is_lazy else source
        codecs = choose_codecs(codecs, np.asarray(sample))
    return None if codecs is None else codec_list(codecs)


def _data_type(source: Any) -> Any:
    """The data type of a new array: masked arrays, in memory or in dask, become nullable ones."""
    masked = isinstance(dask_meta(source), np.ma.MaskedArray)
    return optional_dtype(source.dtype) if masked else source.dtype


def _check_type(logical: LogicalArrayHandle, source: Any) -> None:
    """Refuse a data type that the array cannot take, before anything is computed."""
    as_values(logical.manifest, np.empty(0, dtype=source.dtype))


def _chunk_shape(source: Any) -> tuple[int, ...]:
    """The block shape of a dask array, which somebody has chosen; otherwise zarr's own choice."""
    blocks = getattr(source, "chunks", None)
    if blocks is not None:
        return tuple(max(*axis, 1) for axis in blocks)
    guess = zarr.create_array({}, shape=[max(n, 1) for n in source.shape], dtype=source.dtype).chunks
    return tuple(guess)
