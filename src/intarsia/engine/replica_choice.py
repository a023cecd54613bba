"""Which layer a read takes each part of a selection from: the one that costs least.

Layer 0 says what an array holds. Replicas, in layers 1 and above, hold some of it again, in other chunks. If
both have what a request needs, their prices are compared, one region of a replica at a time.

A price counts requests, bytes and decoding, in nanoseconds, with the table in `codecs/coding_costs.py`; the
numbers for requests to servers are estimates. `benchmarks/two_layouts.py` shows how well they fit for zstd in
files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from intarsia.display import count_text, size_text
from intarsia.engine.plan import (
    SelectionPlan,
    TouchedRegions,
    count_chunks,
    from_region,
    from_touched,
    in_strips,
)
from intarsia.errors import ReadError
from intarsia.manifest.box import Box

if TYPE_CHECKING:
    from intarsia.engine.array_handle import ArrayState
    from intarsia.engine.request import Request


NEAR_REQUEST = 11_000
"""The cost of finding, opening and placing a chunk in memory or in a local file."""

FAR_REQUEST = 240_000
"""The same for a chunk on a server: less than the wait for one request, because many are under way at a time
and neighbours come together."""

FAR_BYTE = 0.9
"""The cost of a byte from a server, which takes longer to arrive than to decode with most codecs."""


class ReadCost(NamedTuple):
    """What a read costs.

    >>> ReadCost.of(4, 30_000, 1.0, near=True).cost < ReadCost.of(1, 200_000, 1.0, near=True).cost
    True
    >>> ReadCost.of(4, 30_000, 1.0, near=False).cost < ReadCost.of(1, 200_000, 1.0, near=False).cost
    False
    """

    chunks: int
    """The number of chunks requested."""

    nbytes: int
    """Their decoded size; the fetched size is assumed to be in proportion."""

    cost: int
    """One number for comparing prices."""

    @classmethod
    def of(cls, chunks: int, nbytes: int, decode_cost: float, *, near: bool) -> ReadCost:
        """The price of some chunks of `nbytes` decoded bytes each."""
        each = NEAR_REQUEST + nbytes * decode_cost if near else FAR_REQUEST + nbytes * FAR_BYTE
        return cls(chunks, chunks * nbytes, chunks * int(each))


class LayerCost(NamedTuple):
    """What one layer costs for a selection, and how much of the selection is read from it."""

    layer: int
    """Its number."""

    covered: int
    """How many of the requested elements it has."""

    taken: int
    """How many of them are read from it."""

    price: ReadCost
    """What it would cost to read all of them that it has."""

    def __str__(self) -> str:
        """The layer in one line."""
        chunks, decoded = count_text(self.price.chunks, "chunk"), size_text(self.price.nbytes)
        has = f"has {count_text(self.covered, 'element')}, in {chunks} of {decoded} decoded"
        return f"layer {self.layer}: {has}; {self.taken:,} are read from it"


class LayerChoice(NamedTuple):
    """How one read chooses among layers.

    >>> LayerChoice().avoiding(3).avoided
    frozenset({3})
    """

    layer: int | None = None
    """Take this layer wherever it holds data, regardless of cost; layer 0 has the rest."""

    fallback: bool = False
    """Whether another layer may stand in for one that cannot be read."""

    avoided: frozenset[int] = frozenset()
    """Rows that turned out to be unreadable."""

    reason: str = ""
    """Why the last of them is unreadable."""

    def avoiding(self, row: int, reason: str = "") -> LayerChoice:
        """The same without one more row."""
        return self._replace(avoided=self.avoided | {row}, reason=reason)

    def chooser_for(self, state: ArrayState[Any], *, near: bool = True) -> LayerChooser | None:
        """What makes the choice in a state that is near or far; None if there is no choice."""
        return LayerChooser(state, self, near=near) if len(state.manifest.replicas) or self.avoided else None


class LayerChooser:
    """Takes regions of replicas instead of those of layer 0 if that costs less."""

    def __init__(self, state: ArrayState[Any], choice: LayerChoice, *, near: bool) -> None:
        self._state, self._manifest, self._choice, self._near = state, state.manifest, choice, near

    def choose_one(self, request: Request, cells: Box, region: int) -> int | None:
        """The row to read slices from that touch one region of layer 0; None if a region that they touch
        lacks some of them, so that `choose_all` has to decide."""
        choice, manifest = self._choice, self._manifest
        if choice.avoided:
            return None
        near = [] if choice.layer == 0 else self.touching(cells)
        rows = near if near and choice.layer is not None else [region, *near]
        if len(rows) == 1 and rows[0] == region:
            return region
        box = request.box
        if any(manifest.place_of(row)[0].intersect(box) != box for row in rows):
            return None
        return min(rows, key=lambda row: self._cost_of(request, row))

    def _cost_of(self, request: Request, row: int) -> int:
        return self.price(from_region(request, row, *self._manifest.place_of(row))).cost

    def choose_all(self, request: Request, cells: Box, touched: TouchedRegions) -> TouchedRegions:
        """The regions to read from, for the parts of layer 0 that a request touches."""
        choice = self._choice
        if choice.avoided:  # what nobody asked for may be unreadable
            touched, _ = _divided(touched, request.box)
        if choice.layer != 0:
            for one, box in self._strips(self.touching(cells)):
                inside, outside = _divided(touched, box)
                if inside.rows.size and self._is_better(request, one, inside):
                    touched = outside.concat(one)
        if choice.avoided and np.isin(touched.rows, list(choice.avoided)).any():
            raise ReadError(f"{choice.reason}\n  No other layer both has it and can be read")
        return touched

    def touching(self, cells: Box) -> list[int]:
        """The regions of replicas that touch a box of logical chunks, layer by layer."""
        choice, table, first = self._choice, self._manifest.replicas, len(self._manifest.regions)
        near = [i + first for i in table.touching(cells).tolist() if i + first not in choice.avoided]
        if choice.layer is not None:
            near = [i for i in near if table.layer[i - first] == choice.layer]
        return sorted(near, key=lambda i: int(table.layer[i - first])) if len(near) > 1 else near

    def _strips(self, near: list[int]) -> Iterator[tuple[TouchedRegions, Box]]:
        """These regions, with those joined that continue one another in a member regardless of packing, and
        the elements of each."""
        layers = self._manifest.regions_and_replicas.layer
        for layer in dict.fromkeys(layers[near].tolist()):
            rows = np.array([i for i in near if layers[i] == layer], dtype=np.int64)
            found = in_strips(self._manifest, TouchedRegions.of(self._manifest, rows))
            for k, strip in enumerate(found.strips):
                own = found.rows[k : k + 1] if strip is None else strip.rows
                yield TouchedRegions.of(self._manifest, own), _box(found.select(slice(k, k + 1)))

    def _is_better(self, request: Request, one: TouchedRegions, others: TouchedRegions) -> bool:
        if self._choice.layer is not None:
            return True
        if self._choice.avoided and np.isin(others.rows, list(self._choice.avoided)).any():
            return True
        return self.price_of(request, one).cost < self.price_of(request, others).cost

    def price_of(self, request: Request, touched: TouchedRegions) -> ReadCost:
        """The cost of reading what a request touches of some regions; a chunk that several show is read
        once."""
        return self.price(from_touched(self._manifest, request, in_strips(self._manifest, touched)))

    def price(self, planned: SelectionPlan) -> ReadCost:
        """The cost of reading all parts of a plan."""
        parts, costs = planned.parts, [ReadCost(0, 0, 0)]
        for part, source in zip(parts, self._state.sources_of(parts), strict=True):
            chunks = count_chunks(
                part.member_selection, source.read_chunk_shape, points=planned.request.axes is None
            )
            nbytes = math.prod(source.read_chunk_shape) * source.array.dtype.itemsize
            costs.append(ReadCost.of(chunks, nbytes, source.decode_cost, near=self._near))
        return ReadCost(*map(sum, zip(*costs, strict=True)))


def layer_costs(state: ArrayState[Any], planned: SelectionPlan, *, near: bool) -> tuple[LayerCost, ...]:
    """What each layer would cost for a request, and what the plan takes from it; empty for one layer."""
    manifest, request = state.manifest, planned.request
    if not len(manifest.replicas) or not request.size:
        return ()
    table, cells, found = manifest.regions_and_replicas, manifest.cells(request.box), []
    taken: dict[int, int] = {}
    for part in planned.parts:
        layer = int(table.layer[part.row])
        taken[layer] = taken.get(layer, 0) + part.size
    for layer in manifest.layers:
        chooser = LayerChooser(state, LayerChoice(layer), near=near)
        rows = chooser.touching(cells) if layer else manifest.regions.touching(cells)
        touched = TouchedRegions.of(manifest, np.array(rows, dtype=np.int64))
        covered = from_touched(manifest, request, touched).size
        price = chooser.price_of(request, touched)
        found.append(LayerCost(layer, covered, taken.get(layer, 0), price))
    return tuple(found)


def _box(one: TouchedRegions) -> Box:
    """The elements of a single region."""
    return Box(tuple(one.start[0].tolist()), tuple(one.stop[0].tolist()))


def _divided(touched: TouchedRegions, box: Box) -> tuple[TouchedRegions, TouchedRegions]:
    """The parts of some regions inside a box of elements, and the parts outside."""
    lower, upper = np.array(box.start, dtype=np.int64), np.array(box.stop, dtype=np.int64)
    meets = ((touched.start < upper) & (touched.stop > lower)).all(axis=1)
    inside = touched.select(meets)
    cut = ((inside.start < lower) | (inside.stop > upper)).any(axis=1)
    outside = touched.select(~meets)
    for k in np.flatnonzero(cut).tolist():
        one = inside.select(slice(k, k + 1))
        for left in _box(one).subtract(box):
            outside = outside.concat(one.crop(left))
    start, stop = np.maximum(inside.start, lower), np.minimum(inside.stop, upper)
    return inside._replace(start=start, stop=stop), outside
