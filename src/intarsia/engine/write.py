"""Writing: a request goes to its regions, chunks are encoded in threads, their bytes stored in batches.

A request touches one region, or several if that is allowed. A chunk that is written in part is read first,
and so is a shard. What intarsia does not write itself is left to zarr.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.engine.chunk_plan import ChunkPlan, outer_index
from intarsia.engine.config import DEFAULT_CONFIG, LogicalConfig
from intarsia.engine.plan import AxisSelector, RegionPart, SelectionPlan, plan, touched_chunks
from intarsia.engine.prepared_member import EngineMember, PreparedMember
from intarsia.engine.read import read_state
from intarsia.engine.replica_choice import LayerChoice
from intarsia.engine.thread_pool import run_in_threads, threads_for
from intarsia.engine.write_chunks import ChunkWriter, ShardWriter, lock_shards
from intarsia.engine.zarr_fallback import write_part_by_zarr
from intarsia.errors import CrossRegionWriteError, NoRegionError, PackingError, ShapeError
from intarsia.manifest.box import Box
from intarsia.manifest.data_types import (
    Values,
    as_member_values,
    as_values,
    broadcast,
    holds_nulls,
    is_nullable,
)
from intarsia.nullable import NullableValues
from intarsia.parallel import check_store

if TYPE_CHECKING:
    from intarsia.engine.array_handle import ArrayState
    from intarsia.engine.request import Request
    from intarsia.logical.logical_array_handle import LogicalArrayHandle
    from intarsia.manifest.manifest import Manifest


MAX_SHOWN_REGIONS = 6

MAX_WRITTEN_BOXES = 256
"""A write scattered over more boxes of logical chunks counts as one over the box around them."""


def write_request(logical: LogicalArrayHandle, config: LogicalConfig, request: Request, value: Any) -> None:
    """Write `value`, broadcast as in NumPy, where the request says."""
    logical.check_writable()
    values = as_values(logical.manifest, value, config.casting)
    try:
        values = broadcast(values, request.shape)
    except ValueError:
        raise ShapeError(
            f"values of shape {values.shape} do not fit the selection, whose shape is {request.shape}"
        ) from None
    values = values.reshape(request.working_shape)
    touched: set[str] = set()

    def write(state: ArrayState[Any]) -> tuple[None, list[int]]:
        planned, points = plan(state.manifest, request), request.axes is None
        # If a region is selected several times, the last value wins, as in NumPy.
        parts = list({part.row: part for part in planned.parts}.values())
        _check_regions(state, config, planned, parts)
        sources = state.sources_of(parts)
        # Values that some region cannot hold are refused before anything is written.
        chosen = [_for_region(state, part, values, points=points) for part in parts]
        if holds_nulls(values):
            for (part, own), source in zip(chosen, sources, strict=True):
                row = state.manifest.regions.row(part.row)
                own = own[part.output_selection if points else outer_index(part.output_selection, own.shape)]
                as_member_values(source.array, own, f"region {state.region_text(row)}")
        written = [part.row for part in parts]
        if len(state.manifest.replicas) and parts:
            boxes = written_cells(state.manifest, request)
            if config.replicas == "drop" and logical.cut_replicas(*boxes):
                return None, written  # the state has changed, so all of it is done again
        touched.update(source.name for source in sources)
        for (part, own), source in zip(chosen, sources, strict=True):
            target = source.with_options(logical.options(config.options))
            write_part(target, part, own, points=points, config=config)
        if len(state.manifest.replicas):
            written += _write_replicas(logical, state, config, request)
        return None, written

    logical.retry_on_change(write)
    for name in touched - set(logical.manifest.members):  # a member that was gone, brought back in part
        logical.discard(name)


def written_cells(manifest: Manifest, request: Request) -> list[Box]:
    """The logical chunks that a request touches, as boxes; if they are too many, the box around all of it.

    >>> from intarsia.manifest.manifest import Manifest
    >>> from intarsia.engine.request import parse_selection
    >>> written_cells(Manifest.empty((8,), (2,), "u1"), parse_selection((8,), [0, 1, 7]))
    [Box(start=(0,), stop=(1,)), Box(start=(3,), stop=(4,))]
    """
    around, points = manifest.cells(request.box), request.points is not None
    touched = touched_chunks(request.points or request.axes or (), manifest.chunk_shape, points=points)
    cells = list(islice(touched, MAX_WRITTEN_BOXES + 1))
    if len(cells) > MAX_WRITTEN_BOXES or len(cells) == prod(around.shape):
        return [around]
    return [Box(cell, tuple(i + 1 for i in cell)) for cell in cells]


def _write_replicas(
    logical: LogicalArrayHandle, state: ArrayState[Any], config: LogicalConfig, request: Request
) -> list[int]:
    """Write what layer 0 now has into its replicas too; returns the rows that were written.

    What layer 0 rounds is rounded in them. If one cannot be written, the write fails after layer 0 has been
    written; in a transaction, nothing is.
    """
    manifest, rows = state.manifest, []
    base, points = len(manifest.regions), request.axes is None
    values, _ = read_state(logical, request, replace(config, layer=0, fallback=False), None, state)
    values = values.reshape(request.working_shape)
    for layer in manifest.layers[1:]:
        choose = LayerChoice(layer).chooser_for(state)
        parts = {part.row: part for part in plan(manifest, request, choose=choose).parts if part.row >= base}
        for part, source in zip(parts.values(), state.sources_of([*parts.values()]), strict=True):
            own_part, own = _for_region(state, part, values, points=points)
            target = source.with_options(logical.options(config.options))
            write_part(target, own_part, own, points=points, config=config)
            rows.append(part.row)
    return rows


def _for_region(
    state: ArrayState[Any], part: RegionPart, values: Values, *, points: bool
) -> tuple[RegionPart, Values]:
    """The values to write, in the axes of the part's member and as its numbers, and the part for them."""
    packing, turned = state.packing_of(part.row), part.onto(values)
    part = replace(part, view=None, at={})
    if packing is None:
        return part, turned
    chosen = turned[part.output_selection if points else outer_index(part.output_selection, turned.shape)]
    once = chosen[(slice(1),) * chosen.ndim] if not any(chosen.strides) else chosen  # one value for all
    try:
        stored = packing.encode(once, None)
    except PackingError as error:
        region = state.region_text(state.manifest.regions_and_replicas.row(part.row))
        raise PackingError(f"region {region}: {error}") from None
    every: tuple[AxisSelector, ...] = (np.arange(chosen.size),)
    if not points:
        axes = zip(part.member_selection, chosen.shape, strict=True)
        every = tuple(slice(0, n, 1) if isinstance(s, slice) else np.arange(n) for s, n in axes)
    return replace(part, output_selection=every), np.broadcast_to(stored, chosen.shape)


def _check_regions(
    state: ArrayState[Any], config: LogicalConfig, planned: SelectionPlan, parts: list[RegionPart]
) -> None:
    """Refuse a write to elements without a region, or to several regions unless the handle allows it."""
    request = planned.request
    if not planned.is_complete:
        raise NoRegionError(
            f"the write to {request.box.text()} reaches elements that no region covers: "
            f"{request.size - planned.size} of {request.size}.\n"
            "  Add a region there first: arr.add_region(bounds, codecs=[…]), or arr.append(data, codecs=[…])"
        )
    if len(parts) > 1 and not config.cross_region_writes:
        rows = [state.manifest.regions.row(part.row) for part in parts[:MAX_SHOWN_REGIONS]]
        named = " and ".join(state.region_text(row) for row in rows)
        more = f" and {len(parts) - MAX_SHOWN_REGIONS} more" if len(parts) > MAX_SHOWN_REGIONS else ""
        raise CrossRegionWriteError(
            f"the write to {request.box.text()} touches {len(parts)} regions: {named}{more}.\n"
            "  Write them one by one, or allow it: arr.with_config(cross_region_writes=True)"
        )


def write_box(source: PreparedMember, box: Box, value: Any, config: LogicalConfig = DEFAULT_CONFIG) -> None:
    """Write values, or one value, into a box of a member."""
    shape = box.shape
    values = broadcast(as_member_values(source.array, value, f"the array {source.name!r}"), shape)
    inside = tuple([slice(a, b, 1) for a, b in zip(*box, strict=True)])
    every = tuple([slice(0, n, 1) for n in shape])
    if values.size:
        write_part(source, RegionPart(-1, inside, every, values.size), values, points=False, config=config)


def write_part(
    source: PreparedMember,
    part: RegionPart,
    values: Values,
    *,
    points: bool,
    config: LogicalConfig,
) -> None:
    """Write what the `output_selection` of a part selects of the values to its `member_selection`.

    What intarsia does not write itself, such as nullable members, is left to zarr.
    """
    if isinstance(values, NullableValues) and not is_nullable(source.metadata.dtype):
        values = values.values  # the caller made sure that none of this part's values are null
    if (
        not isinstance(source, EngineMember)
        or not source.is_written_by_engine
        or values.dtype != source.array.dtype
    ):
        write_part_by_zarr(source, part, values, points=points)
        return
    work = ChunkPlan(part, source, points)
    work.out = values
    threads = threads_for([work], config, writing=True)
    if source.shards is None:
        _run(ChunkWriter(work, threads, config.window))
        return
    check_store(source.array.store)
    with lock_shards(source, part, points=points):
        _run(ShardWriter(work, threads, config.window, source.shards))


def _run(writer: ChunkWriter) -> None:
    """Let threads write; none of them is left behind, whatever happens."""
    try:
        run_in_threads(writer.take, writer.write, writer.threads, give_up=writer.give_up)
        writer.finish()
    except BaseException as failure:
        writer.give_up(failure)
        if isinstance(failure, Exception):  # code that catches it finds the store at rest
            writer.wait()
        raise
