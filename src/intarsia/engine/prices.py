"""What a read costs, so that layers can be compared: requests, and the work of decoding.

Costs are counted in bytes that zstd decodes, which takes about 1.6 ns each. Most numbers were
measured, as processor time on one machine, with chunks of 4 kB to 1 MB of float32; those for servers, bz2 and
lzma are estimates. `benchmarks/two_layouts.py` shows how well they fit for zstd in files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from intarsia._compat import ArrayV2Metadata
from intarsia.codecs.runtime_options import all_codecs
from intarsia.words import count_text, size_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from intarsia.engine.member_source import AnyArray
    from intarsia.engine.request import Axis
    from intarsia.manifest.box import Box


NEAR_REQUEST = 12 << 10
"""The cost of finding, opening and placing a chunk in memory or in a local file."""

FAR_REQUEST = 256 << 10
"""The same for a chunk on a server: less than the wait for one request, because many are under way at a time
and neighbours come together."""

COPYING = 0.15
"""The cost of reading a byte that no codec changes."""

DECODING = {
    "lz4": 0.4,
    "blosc": 0.35,
    "zstd": 0.85,
    "gzip": 1.2,
    "zlib": 1.2,
    "shuffle": 0.3,
    "bz2": 20.0,
    "lzma": 8.0,
}
"""What codecs cost per byte beyond that, by name; others cost next to nothing."""

BLOSC_DECODING = {"zstd": 0.8, "zlib": 1.2}
"""The same for compressors inside blosc, except for its fast ones."""


class Price(NamedTuple):
    """What a read costs.

    >>> Price(2, 100, 130_000) < Price(1, 1_000_000, 500_000)
    True
    """

    chunks: int
    """The number of chunks requested."""

    nbytes: int
    """Their decoded size; the fetched size is assumed to be in proportion."""

    cost: int
    """One number for comparing prices."""

    def __lt__(self, other: tuple[Any, ...]) -> bool:
        return isinstance(other, Price) and self.cost < other.cost

    def plus(self, other: Price) -> Price:
        """Both together."""
        return Price(self.chunks + other.chunks, self.nbytes + other.nbytes, self.cost + other.cost)


NOTHING = Price(0, 0, 0)
UNREADABLE = Price(0, 0, 1 << 62)


class ChunkPrice(NamedTuple):
    """What one chunk of a member costs.

    >>> ChunkPrice(1 << 20, 1.0).of(3, near=True).cost == 3 * (NEAR_REQUEST + (1 << 20))
    True
    """

    nbytes: int
    """The decoded size."""

    work: float
    """The work of decoding one byte; see `decoding_work`."""

    def cost(self, *, near: bool) -> int:
        """The cost of one chunk. Bytes from a server take longer to arrive than to decode, with any codec."""
        return NEAR_REQUEST + int(self.nbytes * self.work) if near else FAR_REQUEST + self.nbytes

    def of(self, chunks: int, *, near: bool) -> Price:
        """The price of this many chunks."""
        return Price(chunks, chunks * self.nbytes, chunks * self.cost(near=near))


class RegionGrid(NamedTuple):
    """The chunks of a member as a region sees them."""

    size: tuple[int, ...]
    """The chunk size on every axis of the region."""

    border: tuple[int, ...]
    """Where one of them begins."""

    chunk: ChunkPrice
    """What each chunk costs."""


class Backing(NamedTuple):
    """A region as prices see it."""

    box: Box
    """Its elements."""

    place: tuple[int, ...]
    """What to add to an element to count it from the start of a chunk."""

    size: tuple[int, ...]
    """The chunk size."""

    chunk: ChunkPrice
    """What each of its chunks costs."""

    def met(self, axes: Sequence[Axis], box: Box) -> tuple[int, bool]:
        """How many of its chunks slices touch in a box of it, and whether all that they select is there."""
        chunks, has_all = 1, True
        for axis, low, high, place, size in zip(axes, *box, self.place, self.size, strict=True):
            step, first, last = axis.step, axis.start, axis.start + (axis.count - 1) * axis.step
            if step < 0:  # the same elements, upwards
                step, first, last = -step, last, first
            if first < low or last >= high:
                # Up to the first one that lies in the box, down to the last; // rounds down, also below zero.
                above, below = first - (first - low) // step * step, last + (high - 1 - last) // step * step
                first, last = max(first, above), min(last, below)
                has_all = False
                if last < first:
                    return 0, False
            chunks *= min((last - first) // step, (last + place) // size - (first + place) // size) + 1
        return chunks, has_all


class LayerPrice(NamedTuple):
    """What one layer costs for a selection, and how much of the selection is read from it."""

    layer: int
    """Its number."""

    covered: int
    """How many of the requested elements it has."""

    taken: int
    """How many of them are read from it."""

    price: Price
    """What it would cost to read all of them that it has."""

    def __str__(self) -> str:
        """The layer in one line."""
        chunks, decoded = count_text(self.price.chunks, "chunk"), size_text(self.price.nbytes)
        has = f"has {count_text(self.covered, 'element')}, in {chunks} of {decoded} decoded"
        return f"layer {self.layer}: {has}; {self.taken:,} are read from it"

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON."""
        price = {"chunks": self.price.chunks, "decoded_bytes": self.price.nbytes, "cost": self.price.cost}
        return {"layer": self.layer, "covered": self.covered, "taken": self.taken, **price}


def decoding_work(array: AnyArray) -> float:
    """The work of decoding a byte of the array's chunks, compared with zstd.

    >>> import zarr
    >>> raw = zarr.create_array({}, shape=4, dtype="f4", compressors=None)
    >>> gzip = zarr.create_array({}, shape=4, dtype="f4", compressors=zarr.codecs.GzipCodec())
    >>> decoding_work(raw) < 1 < decoding_work(gzip)
    True
    """
    metadata: Any = array.metadata
    if isinstance(metadata, ArrayV2Metadata):
        settings = [codec.get_config() for codec in (*(metadata.filters or ()), metadata.compressor) if codec]
        return COPYING + sum(_work(each["id"], each) for each in settings)
    documents: list[Any] = [codec.to_dict() for codec in all_codecs(metadata.codecs)]
    return COPYING + sum(_work(each["name"], each.get("configuration", {})) for each in documents)


def _work(name: str, configuration: Mapping[str, Any]) -> float:
    short = name.removeprefix("numcodecs.")
    inside = str(configuration.get("cname")) if short == "blosc" else ""
    return BLOSC_DECODING.get(inside, DECODING.get(short, 0.0))
