"""A survey of a logical array: its regions, their pipelines, and their stored sizes.

Everything that is shown, as text, picture or page, is drawn from a survey and nothing else, so that all of
them say the same.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import ClassVar

import numpy as np
import zarr

from intarsia.display import Column, Table, count_text, name_lines, ratio_text, size_text
from intarsia.inspect.axis_labels import AxisLabels
from intarsia.inspect.chunk_sizes import ChunkSizes, measure_chunks, requests_needed
from intarsia.inspect.sample import FAILURES
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.member_metadata import MemberMetadata, read_member_metadata
from intarsia.manifest.manifest import Manifest
from intarsia.manifest.region_table import NONE, Ints, RegionTable, Row

LETTERS = "ABCDEFGH"
"""Beside the colours: a letter for each pipeline of a picture."""

MAX_PIPELINES = len(LETTERS)
"""More kinds than this cannot be told apart by colour: they are named more coarsely, then combined."""

MAX_REQUESTS = 2_000
"""Showing a variable must not take long: above this many requests, stored sizes are left out."""

UNMEASURED = "Stored sizes were not measured: there are too many chunks. intarsia regions measures them"


@dataclass(frozen=True)
class Pipeline:
    """One way of storing chunks, and how much is stored that way."""

    place: int
    """The position of its colour and letter."""

    codecs: str
    """The codecs in words; one legend entry."""

    regions: int
    """The number of regions."""

    nbytes: int
    """The size in memory."""

    nbytes_stored: int | None
    """The stored bytes; None if they were not measured."""


PIPELINE_COLUMNS: dict[str, Column[Pipeline]] = {
    "Codecs": "codecs",
    "Regions": "regions",
    "Size": "nbytes",
    "Stored": "nbytes_stored",
    "Ratio": lambda pipeline: ratio_text(pipeline.nbytes, pipeline.nbytes_stored),
}
"""The columns for all regions with one codec pipeline."""


@dataclass(frozen=True)
class RegionRow:
    """One region, ready for a table or for JSON."""

    bounds: tuple[tuple[int, int], ...]
    """The first and last (excluded) element on every axis."""

    codecs: str
    """The codecs with the settings that distinguish them."""

    chunks: tuple[int, ...]
    """The member's own chunk shape."""

    nbytes: int
    """The size in memory."""

    nbytes_stored: int | None
    """The stored bytes; None if they were not measured."""

    member: str
    """The name of the member behind it."""

    problem: str
    """What is wrong with that member; empty if nothing is."""

    packing: str | None = None
    """How its numbers become values, in a few words; None if they are values."""

    view: str | None = None
    """The order of its axes, if it is not the array's; a minus means reversed."""

    layer: int = 0
    """The layer that it is in."""

    shards: tuple[int, ...] | None = None
    """The member's own shard shape; None if it has no shards."""

    json_properties: ClassVar = ("ratio",)

    @property
    def ratio(self) -> float | None:
        """How many times smaller the stored form is; None if that is not known."""
        return self.nbytes / self.nbytes_stored if self.nbytes_stored else None

    @property
    def codecs_and_problem(self) -> str:
        """The codecs, and what is wrong with the member, if anything is."""
        return f"{self.codecs} ({self.problem})" if self.problem else self.codecs


REGION_COLUMNS: Mapping[str, Column[RegionRow]] = {
    "Region": "bounds",
    "Codecs": "codecs_and_problem",
    "Packing": "packing",
    "View": "view",
    "Chunks": "chunks",
    "Shards": "shards",
    "Size": "nbytes",
    "Stored": "nbytes_stored",
    "Ratio": lambda row: ratio_text(row.nbytes, row.nbytes_stored),
    "Member": "member",
}
"""The columns for a region, wherever the table is shown."""


@dataclass(frozen=True, eq=False)
class Survey:
    """What a logical array is made of.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="f4")
    >>> array.append([1, 2], codecs=[])
    >>> seen = survey(array)
    >>> seen.row(0).bounds, seen.row(0).codecs, seen.row(0).nbytes_stored
    (((4, 6),), 'raw', 8)
    """

    manifest: Manifest
    """The manifest of the array, as it was then."""

    start: Ints
    """The first element of every region; shape (regions, dimensions)."""

    stop: Ints
    """The last element, excluded."""

    facts: tuple[MemberMetadata, ...]
    """The facts of every member, in the order of the manifest."""

    chunks: tuple[ChunkSizes, ...] | None
    """The stored chunks of every member; None if they were not measured."""

    group: Ints
    """The position of every region's pipeline in `labels`."""

    labels: tuple[str, ...]
    """The pipelines, with the most elements first."""

    coordinates: tuple[AxisLabels | None, ...] = ()
    """The labels of the positions on each axis, if it has a coordinate array."""

    layer: int = 0
    """The layer of the array that this is about."""

    def __len__(self) -> int:
        return len(self.group)

    @cached_property
    def letters(self) -> dict[int, str]:
        """The letter of every pipeline that a region has, by the position of its label; without gaps."""
        return {int(place): LETTERS[i] for i, place in enumerate(np.unique(self.group))}

    def shown_chunks(self) -> Iterator[tuple[int, int, Ints]]:
        """For every region: its row, its member, and the stored chunks that hold it."""
        assert self.chunks is not None  # they were measured
        table, places = self.manifest.regions, self.manifest.member_starts()
        for i, (member, view) in enumerate(zip(table.member.tolist(), table.view.tolist(), strict=True)):
            grain = np.array(self.facts[member].grain, dtype=np.int64)
            first, last = places[i], places[i] + self.stop[i] - self.start[i]
            if view != NONE:
                first, last = (np.array(ends, np.int64) for ends in self.manifest.in_member(table.row(i)))
            yield i, member, self.chunks[member].within(first // grain, -(-last // grain))

    @cached_property
    def _sizes(self) -> tuple[Ints | None, Ints | None]:
        """Of every region (a chunk that two regions share counts for both), and of every member (each of the
        chunks that regions show counts once)."""
        if self.chunks is None:
            return None, None
        stored = np.zeros(len(self), dtype=np.int64)
        used = [np.zeros(len(chunks.nbytes), dtype=bool) for chunks in self.chunks]
        for i, member, inside in self.shown_chunks():
            stored[i] = self.chunks[member].nbytes[inside].sum()
            used[member][inside] = True
        of_members = [chunks.nbytes[mask].sum() for chunks, mask in zip(self.chunks, used, strict=True)]
        return stored, np.array(of_members, dtype=np.int64)

    @property
    def stored(self) -> Ints | None:
        """The stored bytes of every region; None if they were not measured."""
        return self._sizes[0]

    @property
    def stored_of_members(self) -> Ints | None:
        """The stored bytes of every member that regions show, with each chunk counted once."""
        return self._sizes[1]

    @property
    def itemsize(self) -> int:
        """The bytes of an element in memory."""
        return int(self.manifest.data_type.to_native_dtype().itemsize)

    @property
    def nbytes(self) -> Ints:
        """The size of every region in memory."""
        sizes: Ints = np.prod(self.stop - self.start, axis=1, dtype=np.int64) * self.itemsize
        return sizes

    @property
    def total_nbytes(self) -> int:
        """The size in memory of everything that regions cover."""
        return int(self.nbytes.sum())

    @property
    def total_stored(self) -> int | None:
        """The bytes of all stored chunks that regions show, each counted once."""
        return None if self.stored_of_members is None else int(self.stored_of_members.sum())

    @property
    def total_unused(self) -> int | None:
        """The bytes of stored chunks that no region shows any more: left behind by cropping and recoding."""
        if self.chunks is None or self.total_stored is None:
            return None
        return sum(int(chunks.nbytes.sum()) for chunks in self.chunks) - self.total_stored

    @property
    def total_referenced(self) -> int | None:
        """The bytes of chunks that lie in files elsewhere, for members that regions show."""
        if self.chunks is None:
            return None
        return sum(int(c.nbytes[c.referenced].sum()) for c in self.chunks if c.referenced is not None)

    def totals(self) -> list[tuple[str, str]]:
        """The stored sizes of everything, in words."""
        facts = [
            ("Stored", size_text(self.total_stored)),
            ("Ratio", ratio_text(self.total_nbytes, self.total_stored)),
        ]
        sizes = {"Referenced in files": self.total_referenced, "Stored, not shown": self.total_unused}
        return facts + [(name, size_text(nbytes)) for name, nbytes in sizes.items() if nbytes]

    def dates(self, axis: int) -> Callable[[Sequence[int]], list[str]] | None:
        """A function that dates the positions on an axis, if it has dates; the end is dated like the last."""
        coordinate = self.coordinates[axis] if axis < len(self.coordinates) else None
        if coordinate is None or not coordinate.are_dates:
            return None
        last = self.manifest.shape[axis] - 1

        def at(places: Sequence[int]) -> list[str]:
            try:
                words = coordinate.at([min(place, last) for place in places])
            except FAILURES:  # a coordinate that cannot be read must not hide the regions
                return [str(place) for place in places]
            days = [each[:10] for each in words]
            return days if len(set(days)) == len(set(words)) else words

        return at

    @property
    def problems(self) -> tuple[str, ...]:
        """Members that cannot be read."""
        return tuple(f"{fact.name}: {fact.problem}" for fact in self.facts if fact.problem)

    def row(self, i: int) -> RegionRow:
        """Region `i`."""
        row = self.manifest.regions.row(i)
        packing, view = self.manifest.packing_of(row), self.manifest.view_of(row)
        fact = self.facts[row.member]
        bounds = tuple(zip(self.start[i].tolist(), self.stop[i].tolist(), strict=True))
        return RegionRow(
            bounds,
            fact.label,
            fact.chunks,
            int(np.prod(self.stop[i] - self.start[i])) * self.itemsize,
            None if self.stored is None else int(self.stored[i]),
            fact.name,
            fact.problem,
            None if packing is None else str(packing),
            None if view is None else str(view),
            self.layer,
            fact.grain if fact.is_sharded else None,
        )

    def rows(self, most: int | None = None) -> list[RegionRow]:
        """The regions in array order, or the first of them."""
        return [self.row(i) for i in self.manifest.regions.in_order()[:most].tolist()]

    def pipelines(self) -> tuple[Pipeline, ...]:
        """One entry for every label that a region has, in order."""
        counts = np.bincount(self.group, minlength=len(self.labels))
        sizes = np.zeros(len(self.labels), dtype=np.int64)
        np.add.at(sizes, self.group, self.nbytes)
        stored: list[int | None] = [None] * len(self.labels)
        if self.stored_of_members is not None:
            totals = np.zeros(len(self.labels), dtype=np.int64)
            label_of_member = np.zeros(len(self.facts), dtype=np.int64)
            label_of_member[self.manifest.regions.member] = self.group
            np.add.at(totals, label_of_member, self.stored_of_members)
            stored = list(totals.tolist())
        return tuple(
            Pipeline(i, label, int(counts[i]), int(sizes[i]), stored[i])
            for i, label in enumerate(self.labels)
            if counts[i]
        )


def survey(array: LogicalArray, most_requests: int | None = None, layer: int = 0) -> Survey:
    """Survey one layer of an array; stored sizes are left out if they take more than `most_requests`."""
    return replace(_survey(array.group, array.manifest.only(layer), most_requests), layer=layer)


def survey_layers(array: LogicalArray, most_requests: int | None = None) -> list[Survey]:
    """Surveys of all layers of an array, with the same colours."""
    return share_labels([survey(array, most_requests, layer) for layer in array.manifest.layers])


def _survey(group: zarr.Group, manifest: Manifest, most_requests: int | None) -> Survey:
    facts = read_member_metadata(group, manifest)
    start, stop = manifest.region_bounds()
    is_cheap = most_requests is None or requests_needed(group.store, facts) <= most_requests
    chunks = measure_chunks(group, facts) if is_cheap else None
    names = manifest.dimension_names or (None,) * manifest.ndim
    coordinates = tuple(
        AxisLabels.beside(group.store, group.path, name, size)
        for name, size in zip(names, manifest.shape, strict=True)
    )
    unlabelled = np.zeros(len(start), dtype=np.int64), ()
    return share_labels([Survey(manifest, start, stop, facts, chunks, *unlabelled, coordinates)])[0]


def info_blocks(array: LogicalArray, layers: Sequence[Survey] = ()) -> list[str | Table]:
    """What an array is, and how much each codec pipeline stores; `layers` if they were surveyed already."""
    now, *replicas = layers or survey_layers(array, MAX_REQUESTS)
    fields = dict(array.info.fields) | dict(now.totals())
    for seen in replicas:
        sizes = f"{size_text(seen.total_nbytes)} stored in {size_text(seen.total_stored)}"
        fields[f"Layer {seen.row(0).layer}"] = f"{count_text(len(seen), 'region')}, {sizes}"
    pipelines = now.pipelines()
    table: list[str | Table] = ["", Table.of(pipelines, PIPELINE_COLUMNS)] if pipelines else []
    unmeasured = [] if now.stored is not None else [UNMEASURED]
    return [*name_lines(list(fields.items())), *table, *unmeasured, *now.problems]


def region_blocks(group: zarr.Group, manifest: Manifest, rows: Sequence[Row], more: int) -> list[str | Table]:
    """A table of some regions, whose members alone are looked at, and a line about those it leaves out."""
    table = RegionTable.from_rows(rows, manifest.ndim)
    seen = _survey(group, manifest.changed(table, same_values=True), MAX_REQUESTS)
    return [
        Table.of([seen.row(i) for i in range(len(rows))], REGION_COLUMNS),
        *([] if seen.stored is not None else [UNMEASURED]),
        *([f"… and {count_text(more, 'more region')}"] if more else []),
    ]


def share_labels(surveys: Sequence[Survey]) -> list[Survey]:
    """The same surveys with one set of labels, so that a pipeline keeps its colour across surveys.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(0,), chunks=(2,), dtype="f4")
    >>> array.append([1, 2], codecs=["gzip"])
    >>> before = survey(array)
    >>> array.append([3, 4, 5, 6], codecs=["zstd"])
    >>> [seen.labels for seen in share_labels([before, survey(array)])]
    [('gzip-5', 'zstd-0'), ('gzip-5', 'zstd-0')]
    """

    def of_regions(seen: Survey, words: Sequence[str]) -> list[str]:
        return [words[member] for member in seen.manifest.regions.member.tolist()]

    names = [of_regions(seen, [fact.label for fact in seen.facts]) for seen in surveys]
    if len(set(chain.from_iterable(names))) > MAX_PIPELINES:  # then not so exactly
        names = [of_regions(seen, [fact.names for fact in seen.facts]) for seen in surveys]
    weight: dict[str, float] = {}
    for seen, each in zip(surveys, names, strict=True):
        volumes = np.prod(seen.stop - seen.start, axis=1, dtype=np.float64)
        for name, volume in zip(each, volumes.tolist(), strict=True):
            weight[name] = weight.get(name, 0.0) + volume
    labels = sorted(weight, key=lambda label: (-weight[label], label))
    place = {label: min(i, MAX_PIPELINES - 1) for i, label in enumerate(labels)}
    if len(labels) > MAX_PIPELINES:
        labels[MAX_PIPELINES - 1 :] = [f"{len(labels) - MAX_PIPELINES + 1} others"]
    groups = [np.array([place[name] for name in each], dtype=np.int64) for each in names]
    return [replace(seen, group=of, labels=tuple(labels)) for seen, of in zip(surveys, groups, strict=True)]
