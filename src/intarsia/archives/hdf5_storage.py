"""How a dataset of an HDF5 file is stored: its codecs as VirtualiZarr names them, and where its chunks are.

What VirtualiZarr says follows from a dataset's shape, type, filters and fill value alone. Files of an archive
have the same ones over and over, so it is asked once for each, and the places of chunks are read here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from intarsia._compat import hdf5_manifest_array
from intarsia.archives.hdf5_bytes import leaves_edges_bare
from intarsia.archives.hdf5_headers import Header, library
from intarsia.archives.parsed import ChunkRanges
from intarsia.archives.virtual import parsed_variable
from intarsia.array.box import chunk_grid
from intarsia.extras import extra

if TYPE_CHECKING:
    from intarsia.archives.parsed import Description, ParsedVariable

MOST_KINDS = 1_000
"""Kinds of datasets that are remembered."""


class Encoded(NamedTuple):
    """How the chunks of a kind of datasets are encoded."""

    chunks: tuple[int, ...]
    codecs: tuple[dict[str, Any], ...]
    fill: Any


_known: dict[Any, Encoded] = {}


class Storage:
    """How a dataset is stored: what decides whether it can be referred to."""

    def __init__(self, header: Header, reader: Any) -> None:
        h5d = library().h5d
        plist = header.plist
        layout = plist.get_layout()
        self.filters = plist.get_nfilters()
        self.chunks = plist.get_chunk() if layout == h5d.CHUNKED else None
        self.header = header
        self.reason = ""
        if layout == h5d.COMPACT:
            self.reason = "its data lie in the header of the dataset (compact layout)"
        elif layout == h5d.VIRTUAL:
            self.reason = "it is a virtual dataset, made of others"
        elif plist.get_external_count():
            self.reason = "its data lie in external files"
        self.places: list[Any] = []
        """Of every chunk that is stored: its first element, the filters that it skipped, first byte, size."""
        if self.chunks is not None and not self.reason:
            header.id.chunk_iter(self.places.append)
        cut = self.chunks is not None and self.filters and _is_cut(header.shape, self.chunks)
        self.bare_edges = bool(cut) and leaves_edges_bare(header.id, reader)
        """Whether chunks that the end of an axis cuts off skip all filters."""

    def variable(self, name: str, url: str, description: Description) -> ParsedVariable:
        """The parsed variable, with the filters that single chunks skipped."""
        kind = self._kind(description)
        encoded = _known.get(kind)
        if self.reason:
            return self._copied(name, description, self.reason)
        if encoded is None:
            extra("virtualizarr.parsers", "virtual")
            manifest_array = hdf5_manifest_array()
            try:
                dataset = self.header.dataset
                array = manifest_array(url, dataset, dataset.parent.name)
            except Exception as error:
                return self._copied(name, description, f"it cannot be referenced: {error}")
            found = parsed_variable(name, "data", array, description)
            if kind is None or found.reason:
                return found
            encoded = Encoded(found.chunks, found.codecs, found.fill)
            if len(_known) >= MOST_KINDS:
                _known.clear()
            _known[kind] = encoded
        chunks, codecs, fill = encoded
        ranges = self._ranges(url, description, chunks)
        codecs = tuple(map(dict, codecs))
        variable = description.parsed(name, "data", chunks=chunks, codecs=codecs, fill=fill, ranges=ranges)
        return self._with_masks(variable, ranges)

    def _kind(self, description: Description) -> Any:
        """Everything that the encoding of its chunks depends on; None where there is more to it."""
        dtype = self.header.dtype
        if dtype.kind not in "biufc":
            return None
        plist = self.header.plist
        filters = tuple(plist.get_filter(i) for i in range(self.filters))
        fill = np.zeros(1, dtype=dtype)
        try:
            plist.get_fill_value(fill)
        except RuntimeError:  # it has none
            return description.shape, self.chunks, dtype.str, filters, None
        return description.shape, self.chunks, dtype.str, filters, fill.tobytes()

    def _copied(self, name: str, description: Description, reason: str) -> ParsedVariable:
        """A variable that cannot be referred to."""
        grain = self.chunks or tuple(max(n, 1) for n in description.shape)
        chunks = tuple(min(c, max(n, 1)) for c, n in zip(grain, description.shape, strict=True))
        return description.parsed(name, "data", chunks=chunks, reason=reason)

    def _ranges(self, url: str, description: Description, chunks: tuple[int, ...]) -> ChunkRanges:
        grid = chunk_grid(description.shape, chunks)
        offsets, lengths = np.zeros(grid, dtype=np.uint64), np.zeros(grid, dtype=np.uint64)
        if self.chunks is None:
            at = self.header.id.get_offset()
            if at is not None and offsets.size:
                offsets[...], lengths[...] = at, self.header.id.get_storage_size()
        elif self.places:
            first, _, at, size = zip(*self.places, strict=True)
            index = tuple((np.array(first, dtype=np.int64) // np.array(chunks)).T)
            offsets[index] = at
            # of a chunk that the end of its array cuts off, VirtualiZarr takes what is inside if that is the
            # beginning of its bytes
            trimmed = chunks != self.chunks
            lengths[index] = int(np.prod(chunks)) * self.header.dtype.itemsize if trimmed else size
        return ChunkRanges(url if lengths.any() else "", offsets, lengths)

    def _with_masks(self, variable: ParsedVariable, ranges: ChunkRanges) -> ParsedVariable:
        skipped = [place for place in self.places if place[1]] if self.filters else []
        if not skipped and not self.bare_edges:
            return variable
        steps = sum(1 for codec in variable.codecs if codec["name"] != "bytes")
        if steps != self.filters:
            variable.ranges = None
            variable.reason = (
                f"single chunks skipped a filter, and its {self.filters} filters are not {steps} codecs"
            )
            return variable
        ranges.masks = np.zeros(ranges.grid, dtype=np.uint32)
        for first, mask, *_ in skipped:
            ranges.masks[tuple(a // c for a, c in zip(first, variable.chunks, strict=True))] = mask
        if self.bare_edges:
            for axis, (n, c) in enumerate(zip(variable.shape, variable.chunks, strict=True)):
                if n % c:
                    np.moveaxis(ranges.masks, axis, 0)[-1] = (1 << self.filters) - 1
        return variable


def _is_cut(shape: tuple[int, ...], chunks: tuple[int, ...]) -> bool:
    return any(n % c for n, c in zip(shape, chunks, strict=True))
