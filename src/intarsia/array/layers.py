"""Which layer a read takes each part of a selection from: the one that costs least.

Layer 0 says what an array holds. Replicas, in layers 1 and above, hold some of it once more, in other chunks.
Where both have what is asked for, the prices of the two are compared, a region of a replica at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from intarsia.array.box import Box
from intarsia.array.plan import Touched, in_strips, plan, points_in, selected
from intarsia.array.prices import NOTHING, UNREADABLE, Backing, ChunkPrice, LayerPrice, Price, decoding_work
from intarsia.array.table import NONE, Ints
from intarsia.errors import IntarsiaError, ReadError

if TYPE_CHECKING:
    from intarsia.array.layout import Layout
    from intarsia.array.manifest import Manifest
    from intarsia.array.plan import SelectionPlan
    from intarsia.array.request import Request


@dataclass(frozen=True)
class LayerChoice:
    """How one read chooses among layers.

    >>> LayerChoice().avoiding(3).avoided
    frozenset({3})
    """

    layer: int | None = None
    """Take this one wherever it has something, whatever it costs; layer 0 has the rest."""

    fallback: bool = False
    """Whether another layer may stand in for one that cannot be read."""

    avoided: frozenset[int] = frozenset()
    """Rows that were found not to be readable."""

    reason: str = ""
    """Why the last of them is not."""

    def avoiding(self, row: int, reason: str = "") -> LayerChoice:
        """The same without one more row."""
        return replace(self, avoided=self.avoided | {row}, reason=reason)

    def among(self, layout: Layout, *, near: bool = True) -> Chooser | None:
        """What makes the choice in a layout that is near, or is not; None if there is none to make."""
        return Chooser(layout, self, near=near) if len(layout.manifest.replicas) or self.avoided else None


CHEAPEST = LayerChoice()
"""The layer that costs least, wherever there are several."""


class Chooser:
    """Takes regions of replicas instead of those of layer 0, where that costs less."""

    def __init__(self, layout: Layout, choice: LayerChoice, *, near: bool) -> None:
        self._layout, self._manifest, self._choice, self._here = layout, layout.manifest, choice, near

    def __call__(self, asked: Request, cells: Box, touched: Touched) -> Touched:
        """What to read from, for what a request meets of layer 0."""
        choice = self._choice
        if choice.layer != 0:
            near = self._near(cells)
            if self._is_simple(asked, touched, near):
                return self._chosen_simply(asked, touched, near[0])
            for one, box in self._strips(near):
                inside, outside = _divided(touched, box)
                if inside.rows.size and self._is_better(asked, one, inside):
                    touched = outside.joined(one)
        if choice.avoided and np.isin(touched.rows, list(choice.avoided)).any():
            raise ReadError(f"{choice.reason}\n  No other layer has it, or can be read")
        return touched

    def _near(self, cells: Box) -> list[int]:
        """The regions of replicas that meet a box of logical chunks, layer by layer."""
        choice, table, first = self._choice, self._manifest.replicas, len(self._manifest.regions)
        near = [i + first for i in table.touching(cells).tolist() if i + first not in choice.avoided]
        if choice.layer is not None:
            near = [i for i in near if table.layer[i - first] == choice.layer]
        return sorted(near, key=lambda i: int(table.layer[i - first])) if len(near) > 1 else near

    def _strips(self, near: list[int]) -> Iterator[tuple[Touched, Box]]:
        """These regions, those together that continue one another in a member, whatever their packings; and
        the elements of each."""
        layers = self._manifest.backings.layer
        for layer in dict.fromkeys(layers[near].tolist()):
            rows = np.array([i for i in near if layers[i] == layer], dtype=np.int64)
            found = in_strips(self._manifest, Touched.of(self._manifest, rows))
            for k, strip in enumerate(found.strips):
                own = found.rows[k : k + 1] if strip is None else strip.rows
                yield Touched.of(self._manifest, own), _box(found.take(slice(k, k + 1)))

    def _is_simple(self, asked: Request, touched: Touched, near: list[int]) -> bool:
        """Whether slices of one region meet one replica: then numbers are faster than columns of them."""
        return len(near) == 1 == touched.rows.size and self._choice == CHEAPEST and asked.is_slices

    def _chosen_simply(self, asked: Request, touched: Touched, near: int) -> Touched:
        """The same choice for a replica that has all that the region has; small reads take no longer."""
        assert asked.axes is not None
        region, replica = self._backing(int(touched.rows[0])), self._backing(near)
        box = region.box.intersect(replica.box)
        if box is None:
            return touched
        prices = (backing.price(asked.axes, box, near=self._here) for backing in (replica, region))
        if not next(prices) < next(prices):
            return touched
        one = Touched.of(self._manifest, np.array([near], dtype=np.int64))
        return one if box == region.box else _divided(touched, replica.box)[1].joined(one)

    def _backing(self, row: int) -> Backing:
        """A region as prices see it, found out once."""
        known = self._layout.priced
        found = known.get(row)
        if found is None:
            region = self._manifest.backings.row(row)
            size, border, chunk = self._grid(region.member, region.view)
            shift = self._manifest.member_shift(region)
            place = tuple(a - b for a, b in zip(shift, border.tolist(), strict=True))
            box = self._manifest.elements(region.box)
            found = known[row] = Backing(box, place, tuple(size.tolist()), chunk)
        return found

    def _is_better(self, asked: Request, one: Touched, others: Touched) -> bool:
        if self._choice.layer is not None:
            return True
        if self._choice.avoided and np.isin(others.rows, list(self._choice.avoided)).any():
            return True
        return self._price_or_none(asked, one) < self._price_or_none(asked, others)

    def _price_or_none(self, asked: Request, touched: Touched) -> Price:
        """The price; an endless one if a member cannot be opened, and another layer may stand in for it."""
        try:
            return self.price(asked, touched)
        except IntarsiaError:
            if not self._choice.fallback:
                raise
            return UNREADABLE

    def price(self, asked: Request, touched: Touched) -> Price:
        """What it takes to read what a request meets of some regions."""
        table, total = self._manifest.backings, NOTHING
        if touched.rows.size > 1:  # a chunk that several regions show is read once
            touched = in_strips(self._manifest, touched)
        members, views = table.member[touched.rows], table.view[touched.rows]
        kinds = np.unique(np.stack([members, views]), axis=1).T.tolist()
        self._open([member for member, _ in kinds])
        for member, view in kinds:
            size, border, chunk = self._grid(member, view)
            alike = touched.take((members == member) & (views == view))
            count = _chunks_met(asked, alike, size, border)
            total = total.plus(chunk.of(count, near=self._here))
        return total

    def _open(self, members: Sequence[int]) -> None:
        names = self._manifest.members
        if len(members) > 1:
            self._layout.open_members([names[i] for i in dict.fromkeys(members)])

    def _grid(self, member: int, number: int) -> tuple[Ints, Ints, ChunkPrice]:
        """The chunks of a member as a region sees them: sizes, first borders; and what each takes."""
        known = self._layout.grids
        found = known.get((member, number))
        if found is None:
            array = self._layout.members[self._manifest.members[member]]
            view = None if number == NONE else self._manifest.views[number]
            try:
                sizes: Sequence[int] = array.chunks
            except NotImplementedError:  # chunks of many sizes
                sizes = self._manifest.chunk_shape
            pairs = [(n, 0) for n in sizes] if view is None else view.grid(sizes)
            grid = np.array(pairs, dtype=np.int64).reshape(-1, 2)
            chunk = ChunkPrice(prod(sizes) * array.dtype.itemsize, decoding_work(array))
            found = known[member, number] = grid[:, 0], grid[:, 1], chunk
        return found


def layer_prices(layout: Layout, planned: SelectionPlan, *, near: bool) -> tuple[LayerPrice, ...]:
    """What each layer would take for a request, and what the plan takes from it; empty if there is one."""
    manifest, asked = layout.manifest, planned.request
    if not len(manifest.replicas) or not asked.size:
        return ()
    table, cells, found = manifest.backings, manifest.cells(Box.of(asked.bounds)), []
    taken: dict[int, int] = {}
    for part in planned.parts:
        layer = int(table.layer[part.row])
        taken[layer] = taken.get(layer, 0) + part.size
    for layer in manifest.layers:
        chooser = Chooser(layout, LayerChoice(layer), near=near)
        rows = np.flatnonzero(table.layer == layer)
        inside = ((table.start[rows] < cells.stop) & (table.stop[rows] > cells.start)).all(axis=1)
        touched = Touched.of(manifest, rows[inside])
        price = chooser.price(asked, touched)
        found.append(LayerPrice(layer, _met(manifest, asked, touched), taken.get(layer, 0), price))
    return tuple(found)


def _met(manifest: Manifest, asked: Request, touched: Touched) -> int:
    """How many of the elements asked for some regions have."""
    return plan(manifest, asked, choose=lambda _asked, _cells, _regions: touched).size


def _box(one: Touched) -> Box:
    """The elements of a single region."""
    return Box(tuple(one.start[0].tolist()), tuple(one.stop[0].tolist()))


def _divided(touched: Touched, box: Box) -> tuple[Touched, Touched]:
    """What of some regions lies in a box of elements, and what does not."""
    lower, upper = np.array(box.start, dtype=np.int64), np.array(box.stop, dtype=np.int64)
    meets = ((touched.start < upper) & (touched.stop > lower)).all(axis=1)
    inside = touched.take(meets)
    cut = ((inside.start < lower) | (inside.stop > upper)).any(axis=1)
    outside = touched.take(~meets)
    for k in np.flatnonzero(cut).tolist():
        one = inside.take(slice(k, k + 1))
        for left in _box(one).without(box):
            outside = outside.joined(one.cropped(left))
    start, stop = np.maximum(inside.start, lower), np.minimum(inside.stop, upper)
    return inside._replace(start=start, stop=stop), outside


def _chunks_met(asked: Request, touched: Touched, size: Ints, border: Ints) -> int:
    """How many chunks of these grids a request meets, region by region."""
    if asked.axes is None:
        return _chunks_of_points(asked, touched, size, border)
    met = np.ones(touched.rows.size, dtype=np.int64)
    for d, axis in enumerate(asked.axes):
        count, lowest, highest = selected(axis, touched.start[:, d], touched.stop[:, d])
        place = touched.shift[:, d] - border[d]
        span = (highest + place) // size[d] - (lowest + place) // size[d] + 1
        met *= np.where(count > 0, np.minimum(span, count), 0)
    return int(met.sum())


def _chunks_of_points(asked: Request, touched: Touched, size: Ints, border: Ints) -> int:
    assert asked.points is not None
    if not asked.points:
        return 1
    met = 0
    for k, places in points_in(asked.points, touched):
        number = np.zeros(places.size, dtype=np.int64)
        for d, points in enumerate(asked.points):
            index = (points[places] + touched.shift[k, d] - border[d]) // size[d]
            index -= index.min()
            number = number * (int(index.max()) + 1) + index
        met += int(np.unique(number).size)
    return met
