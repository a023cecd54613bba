"""An array explained to people: what it is, and what a read of it does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from intarsia.display import Column, Result, Table, count_text, first_rows, size_text
from intarsia.engine.accessors import provided_by_higher_package
from intarsia.engine.fetch.store import Cost
from intarsia.engine.prepared_member import short_codecs
from intarsia.engine.read import Read
from intarsia.engine.replica_choice import LayerCost, layer_costs
from intarsia.engine.request import Mode, parse_selection
from intarsia.engine.stored_array import expect_array
from intarsia.engine.thread_pool import Batch, by_fetcher, cut_into_batches, threads_for
from intarsia.manifest.data_types import type_text

if TYPE_CHECKING:
    from intarsia.engine.array_handle import ArrayHandle
    from intarsia.engine.chunk_plan import ChunkPlan
    from intarsia.engine.plan import RegionPart
    from intarsia.engine.stored_array import StoredArray
    from intarsia.logical.logical_array import LogicalArray


MAX_SHOWN_PARTS = 30
"""The regions that an explanation lists."""


@dataclass(frozen=True, slots=True)
class PartExplanation:
    """What a read takes from one region.

    >>> import numpy as np, intarsia
    >>> array = intarsia.create({}, "a", shape=(0, 4), chunks=(2, 4), dtype="int32")
    >>> array.append(np.ones((4, 4)).astype("int32"), codecs=["gzip"])
    >>> part = intarsia.explain(array, np.s_[:2]).parts[0]
    >>> part.codecs, part.chunks
    ('gzip-5', 1)
    """

    bounds: tuple[tuple[int, int], ...]
    """The bounds of the region, in elements."""

    member: str
    """The name of the member behind it."""

    codecs: str
    """The member's codecs in a few words."""

    packing: str | None
    """How its numbers become values, in a few words; None if they are values."""

    view: str | None
    """The order of its axes, if it is not the array's; a minus means reversed."""

    elements: int
    """The number of elements that come from it."""

    chunks: int | None
    """The number of chunks that the selection touches; None if zarr reads the member."""

    fetched: int | None
    """How many of them are fetched. The others are not stored, and read as the member's fill value; if that
    is only known once they are requested, all of them count."""

    stored_bytes: int | None
    """The encoded bytes that are fetched; None if that is not known in advance."""

    fetcher: str
    """How the bytes are fetched."""

    layer: int = 0
    """The layer that the region is in."""

    shards: tuple[int, ...] | None = None
    """The shape of the member's shards; None if it has none."""

    @property
    def encoding(self) -> str:
        """Everything about how it is stored, in a few words."""
        shards = "" if self.shards is None else f"shards {self.shards}"
        return "; ".join([self.codecs, *filter(None, (shards, self.packing, self.view))])


EXPLAIN_COLUMNS: Mapping[str, Column[PartExplanation]] = {
    "Region": "bounds",
    "Codecs": "encoding",
    "Chunks": lambda part: "?" if part.chunks is None else part.chunks,
    "Fetched": lambda part: "?" if part.fetched is None else part.fetched,
    "Stored": "stored_bytes",
    "Member": "member",
    "Fetcher": "fetcher",
}


@dataclass(frozen=True, slots=True, repr=False)
class Explanation(Result):
    """What a read of one selection does.

    >>> import numpy as np, intarsia
    >>> array = intarsia.create({}, "a", shape=(0, 4), chunks=(2, 4), dtype="int32")
    >>> array.append(np.ones((4, 4)).astype("int32"), codecs=["gzip"])
    >>> intarsia.explain(array, np.s_[1:3]).chunks
    2
    """

    shape: tuple[int, ...]
    """The shape of the result."""

    nbytes: int
    """The size of the result in memory."""

    holes: int
    """The number of elements that no region covers; they read as the array's fill value."""

    threads: int
    """The number of threads that decode, including the calling one."""

    window_bytes: int
    """The most memory that is used besides the result."""

    parts: tuple[PartExplanation, ...]
    """One for every region that the selection touches, or for every time it reads one, by position."""

    requests: int = 0
    """How often chunks are requested from a store or a file is read; neighbours come together. Metadata, and
    what zarr reads, are not counted."""

    requested_bytes: int | None = 0
    """The bytes that come with the requests, including gaps between neighbours; None if that is not known in
    advance."""

    ideal_requests: int = 0
    """The fewest requests that an ideal reader would need: one that is not bound by memory, reads at most a
    tenth (or 32 KiB) more of an object than wanted, and requests about 4 MiB at a time."""

    prices: tuple[LayerCost, ...] = ()
    """What each layer would cost, if there are several."""

    json_properties: ClassVar = ("members", "chunks", "stored_bytes")

    @property
    def members(self) -> int:
        """The number of members that are read."""
        return len({part.member for part in self.parts})

    @property
    def chunks(self) -> int:
        """The number of chunks that the selection touches, except those read by zarr."""
        return sum(part.chunks or 0 for part in self.parts)

    @property
    def stored_bytes(self) -> int | None:
        """The encoded bytes that are fetched; None if they are not known for every part."""
        sizes = [part.stored_bytes for part in self.parts]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def summary(self) -> tuple[str, str]:
        """The read as a whole, in two lines."""
        stored = "" if self.stored_bytes is None else f", {size_text(self.stored_bytes)} stored"
        came = "" if self.requested_bytes is None else f" for {size_text(self.requested_bytes)}"
        ideal = "" if self.requests == self.ideal_requests else f" (ideal: {self.ideal_requests})"
        return (
            f"reads {self.shape}, {size_text(self.nbytes)}, from {count_text(len(self.parts), 'region')} of "
            f"{count_text(self.members, 'member')}: {count_text(self.chunks, 'chunk')}{stored}, "
            f"{count_text(self.requests, 'request')}{came}{ideal}",
            f"{count_text(self.threads, 'thread')}, at most {size_text(self.window_bytes)} besides the result"
            + (f", {count_text(self.holes, 'element')} in no region" if self.holes else ""),
        )

    def blocks(self, most: int | None = MAX_SHOWN_PARTS) -> Iterator[str | Table]:
        """The read as a whole, the prices of layers, and what is read of every region."""
        yield from self.summary()
        yield from map(str, self.prices)
        if self.parts:
            yield from first_rows(self.parts, EXPLAIN_COLUMNS, most, "region")


def explain(array: StoredArray, selection: Any = ..., *, mode: Mode | None = None) -> Explanation:
    """What reading `array[selection]` would do: members, chunks, bytes, and how these are fetched.

    No chunk is read, but chunk references and shard indexes may be. `mode` is `"orthogonal"` or
    `"vectorized"` for what `array.oindex[selection]` or `array.vindex[selection]` would do.

    >>> import numpy as np, intarsia
    >>> array = intarsia.create({}, "a", shape=(0, 4), chunks=(2, 4), dtype="int32")
    >>> array.append(np.ones((4, 4)).astype("int32"), codecs=["gzip"])
    >>> print(intarsia.explain(array, np.s_[1:3]))  # doctest: +NORMALIZE_WHITESPACE
    reads (2, 4), 32 B, from 1 region of 1 member: 2 chunks, 2 requests
    1 thread, at most ... besides the result
    Region      Codecs  Chunks  Fetched  Stored  Member  Fetcher
    [0:4, 0:4]  gzip-5       2        2       ?  m-...   MemoryStore, in threads
    """
    expect_array(array, "explain")
    handle, config = array._handle, array.config
    request = parse_selection(array.shape, selection, mode)
    prepared = Read(handle, handle.state, request, config)
    prepared.prepare()
    works = prepared.chunk_plans
    explained = {id(work.part): _explain_part(handle, work.part, work.source, work) for work in works}
    explained |= {id(part): _explain_part(handle, part, source, None) for part, source in prepared.by_zarr}
    busy = [work for work in works if work.present.size]
    threads = threads_for(busy, config) if busy else 1
    requests, requested_bytes = _cost(
        batch for batches in cut_into_batches(busy, threads, config.window) for batch in batches
    )
    ideal, _ = _cost([(work, work.present) for work in those] for _, those in by_fetcher(busy))
    return Explanation(
        request.shape,
        request.size * array.dtype.itemsize,
        request.size - prepared.plan.size,
        threads,
        config.window,
        tuple(sorted(explained.values(), key=lambda part: part.bounds)),
        requests,
        requested_bytes,
        ideal,
        layer_costs(handle.state, prepared.plan, near=handle.fetcher().is_near),
    )


def _cost(batches: Iterable[Batch]) -> Cost:
    """The cost of fetching these batches."""
    costs = [
        work.fetcher.cost([each.spans(positions) for each, positions in batch])
        for batch in batches
        if (work := batch[0][0]).fetcher is not None
    ]
    sizes = [cost.nbytes for cost in costs]
    known = None if None in sizes else sum(size for size in sizes if size is not None)
    return Cost(sum(cost.requests for cost in costs), known)


def _explain_part(
    handle: ArrayHandle[Any], part: RegionPart, source: Any, work: ChunkPlan | None
) -> PartExplanation:
    """What is read of a part of the plan, by chunks or, without them, by zarr."""
    manifest, row = handle.manifest, handle.manifest.regions_and_replicas.row(part.row)
    packing, view = manifest.packing_of(row), manifest.view_of(row)
    chunks = fetched = stored_bytes = None
    if work is None:
        fetcher = f"zarr itself: {source.obstacle}"
    else:
        chunks, fetched = int(work.chunks.size), int(work.present.size)
        stored_bytes = int(work.nbytes[work.present].sum()) if work.stored_sizes_are_known else None
        fetcher = "" if work.fetcher is None else work.fetcher.name
    return PartExplanation(
        manifest.elements(row.box).bounds,
        source.name,
        short_codecs(source.array),
        None if packing is None else str(packing),
        None if view is None else str(view),
        part.size,
        chunks,
        fetched,
        stored_bytes,
        fetcher,
        row.layer,
        source.array.shards,
    )


@dataclass(frozen=True, slots=True, repr=False)
class ArrayInfo(Result):
    """A logical array in a few lines, as `intarsia info` prints them.

    >>> import intarsia
    >>> intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="f4").info
    Type           : LogicalArray
    Path           : a
    Shape          : (4,)
    Data type      : float32
    Chunks         : (2,)
    Fill value     : 0.0
    Dimension names: none
    Size           : 16 B
    Regions        : 0
    Members        : 0
    Covered        : 0.0 %
    Stored         : 0 B
    Ratio          : ?
    """

    fields: tuple[tuple[str, str], ...]
    """Names and values, in order; without stored sizes, which are measured only to be shown."""

    array: LogicalArray = field(repr=False, compare=False)
    """The array."""

    _repr_html_: ClassVar[None] = None  # type: ignore[assignment]  # aligned lines need a fixed-width font

    @classmethod
    def of(cls, array: LogicalArray) -> ArrayInfo:
        manifest = array.manifest
        start, stop = manifest.region_bounds()
        covered = int((stop - start).prod(axis=1).sum()) / array.size if array.size and len(start) else 0.0
        replicas = [
            (f"Layer {layer}", count_text(len(table), "region"))
            for layer, table in manifest.replicas.by_layer().items()
        ]
        return cls(
            (
                ("Type", "LogicalArray"),
                ("Path", array.path or "/"),
                ("Shape", str(array.shape)),
                ("Data type", type_text(array.manifest.data_type)),
                ("Chunks", str(array.chunks)),
                ("Fill value", str(array.fill_value)),
                ("Dimension names", ", ".join(name or "-" for name in array.dimension_names or ()) or "none"),
                ("Size", size_text(array.nbytes)),
                ("Regions", str(len(manifest.regions))),
                ("Members", str(len(manifest.members))),
                ("Covered", f"{covered:.1%}".replace("%", " %")),
                *replicas,
            ),
            array,
        )

    def blocks(self, most: int | None = None) -> Iterable[str | Table]:
        """Lines, and a table of codec pipelines; stored sizes are measured now."""
        blocks: Iterable[str | Table] = provided_by_higher_package("info_blocks", self.array)
        return blocks
