"""The parts of an ingested dataset that are uniform: what programs without intarsia can read.

In such a part every variable has one encoding, so it is an ordinary Zarr array whose chunks are ranges of the
source files. Packed numbers stay packed, with their packing as CF attributes. `to_kerchunk` and
`to_virtual_zarr` write these parts in two forms.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr
from zarr.core.buffer import default_buffer_prototype

from intarsia._compat import sync
from intarsia._icechunk import VIRTUAL, ChunkTable, chunk_table
from intarsia.archives.dataset import Dataset
from intarsia.archives.plan.coordinates import PlainArray
from intarsia.display import bounds_text
from intarsia.errors import IngestError, UnreachableMembersError
from intarsia.logical.hierarchy import LEDGER
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.region import Region
from intarsia.manifest.box import Box, chunk_grid

EXPORT = "Copy the values to plain Zarr: intarsia.export"
"""What to do if a copy cannot be avoided."""

type Bounds = Mapping[str, tuple[int, int]]
"""The first index and the one after the last, along dimensions by name."""


@dataclass(frozen=True, slots=True)
class ChunkReference:
    """Where the bytes of one chunk are."""

    index: tuple[int, ...]
    """Its position in the array of the part."""

    member_index: tuple[int, ...]
    """Its position in the member."""

    location: str
    """The URL of the source file; empty if the repository itself holds the bytes."""

    offset: int
    nbytes: int


@dataclass(frozen=True)
class UniformArray:
    """One variable in a part: an ordinary Zarr array."""

    name: str
    dims: list[str]
    attrs: dict[str, Any]
    """Those of the variable, and its packing as CF attributes."""

    shape: tuple[int, ...]

    chunks: tuple[int, ...]
    """The shape of a stored chunk, or of a shard if there are shards."""

    dtype: np.dtype[Any]
    """The type of the stored numbers."""

    fill_value: Any
    """The stored number of chunks that are not stored."""

    member: zarr.Array[Any] | None
    """The array that has the encoding; None if no file has this variable here."""

    _table: ChunkTable | None = None
    _first: tuple[int, ...] = ()
    """The index of the first chunk in the member."""

    def stored_chunks(self) -> Iterator[ChunkReference]:
        """Every chunk that is stored."""
        if self.member is None or self._table is None:
            return
        table, first = self._table, np.array(self._first, dtype=np.int64)
        grid = np.array(chunk_grid(self.shape, self.chunks), dtype=np.int64)
        index = table.index - first
        for row in np.flatnonzero(((index >= 0) & (index < grid)).all(axis=1)).tolist():
            yield ChunkReference(
                tuple(index[row].tolist()),
                tuple(table.index[row].tolist()),
                table.location[row] if table.kind[row] == VIRTUAL else "",
                int(table.offset[row]),
                int(table.nbytes[row]),
            )

    def read(self, chunk: ChunkReference) -> bytes:
        """The encoded bytes of a chunk that the repository itself holds."""
        assert self.member is not None
        key = f"{self.member.path}/{self.member.metadata.encode_chunk_key(chunk.member_index)}"
        content = sync(self.member.store.get(key, default_buffer_prototype()))
        if content is None:
            raise UnreachableMembersError(f"{key} is gone: somebody else changes the store")
        return bytes(content.to_bytes())


@dataclass(frozen=True)
class UniformPart:
    """A part of a dataset in which no variable changes its encoding."""

    bounds: Bounds
    """Its indices along every dimension that is cut."""

    arrays: list[UniformArray]
    loaded: dict[str, PlainArray]
    """Coordinates, and other variables whose values were loaded."""

    @property
    def name(self) -> str:
        """Its bounds, as part of a name; empty for the whole dataset.

        >>> UniformPart({"time": (0, 30), "lat": (2, 4)}, [], {}).name
        'time0-30-lat2-4'
        """
        return "-".join(f"{dim}{a}-{b}" for dim, (a, b) in self.bounds.items())


def uniform_parts(dataset: Dataset, path: str) -> Iterator[UniformPart]:
    """The parts of the dataset at a path. A part that no Zarr array can show raises
    `UnreachableMembersError`."""
    if not dataset.logical_groups:
        raise IngestError(f"there is no dataset of logical arrays at {path or '/'!r}")
    variables = [_Variable(LogicalArray(group)) for group in dataset.logical_groups.values()]
    sizes = {dim: size for each in variables for dim, size in zip(each.dims, each.array.shape, strict=True)}
    cuts = {dim: {0, size} for dim, size in sizes.items()}
    for variable in variables:
        for axis, dim in enumerate(variable.dims):
            cuts[dim] |= {end for region in variable.regions for end in region.bounds[axis]}
    spans = [itertools.pairwise(sorted(ends)) for ends in cuts.values()]
    for ends in itertools.product(*spans):
        bounds = dict(zip(cuts, ends, strict=True))
        yield UniformPart(
            {dim: span for dim, span in bounds.items() if span != (0, sizes[dim])},
            [variable.within(bounds) for variable in variables],
            {name: _loaded(dataset, name, bounds) for name in dataset.plain if name != LEDGER},
        )


class _Variable:
    """One logical array of the dataset."""

    def __init__(self, array: LogicalArray) -> None:
        self.array = array
        self.name = array.path.rpartition("/")[2]
        self.regions: list[Region] = list(array.regions)
        self.dims = [str(dim) for dim in array.dimension_names or map(str, range(array.ndim))]
        self._tables: dict[str, ChunkTable] = {}

    def within(self, bounds: Bounds) -> UniformArray:
        """The array of a part, which lies in one region, or in none."""
        box, attrs = Box.of(bounds[dim] for dim in self.dims), dict(self.array.attrs)
        region = next((r for r in self.regions if Box.of(r.bounds).intersect(box) is not None), None)
        if region is None:
            about = np.dtype(self.array.dtype), self.array.fill_value
            return UniformArray(self.name, self.dims, attrs, box.shape, box.shape, *about, None)
        if region.view is not None:
            raise UnreachableMembersError(
                f"{self.name}{bounds_text(region.bounds)} is seen reversed, transposed or stacked, which "
                f"references cannot express.\n  {EXPORT}"
            )
        member = region.member
        if region.packing is not None:
            attrs |= region.packing.attributes
        inside = self.array.manifest.to_member(region.row, box)
        chunks = tuple(member.shards or member.chunks)
        if any(start % size for start, size in zip(inside.start, chunks, strict=True)):
            raise UnreachableMembersError(
                f"{self.name}{bounds_text(box.bounds)} does not begin at the border of a chunk of {chunks}, "
                f"which references cannot express.\n  {EXPORT}"
            )
        if region.name not in self._tables:
            self._tables[region.name] = chunk_table(self.array.store, member.path, self.array.ndim)
        return UniformArray(
            self.name, self.dims, attrs, box.shape, chunks, np.dtype(member.dtype), member.fill_value, member,
            self._tables[region.name], inside.in_units(chunks)[0],
        )  # fmt: skip


def _loaded(dataset: Dataset, name: str, bounds: Bounds) -> PlainArray:
    values, dims = dataset.values(name), dataset.dims(name)
    chosen = values[tuple(slice(*bounds[dim]) if dim in bounds else slice(None) for dim in dims)]
    return PlainArray(dims, dataset.attrs(name), chosen)
