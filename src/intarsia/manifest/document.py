"""The manifest as JSON, and everything that may be wrong with it.

`parse_fields` checks the form, `problems_of_regions` the regions; `Manifest.from_json` calls both.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import zarr
from msgspec import UNSET, Meta, Struct, UnsetType, structs
from zarr.dtype import parse_dtype

from intarsia.display import one_line
from intarsia.errors import ManifestError, ManifestVersionError, PackingError, ShapeError, signal_failure
from intarsia.manifest.box import chunk_grid
from intarsia.manifest.data_types import zarr_type
from intarsia.manifest.packing_columns import NO_PACKINGS, Packings, can_hold
from intarsia.manifest.region_table import MAX_LAYERS, MAX_REGIONS, NONE, Ints, RegionTable
from intarsia.manifest.typed_json import decode
from intarsia.manifest.view import MAX_AXES, View

if TYPE_CHECKING:
    from intarsia.manifest.manifest import Manifest

MANIFEST_KEY = "intarsia"
CONVENTIONS_KEY = "zarr_conventions"
POLICY_KEY = "intarsia_policy"
"""The attribute that says what an array should look like; readers need not know it."""

VERSIONS = (1, 2)
"""The versions that are read; the lowest sufficient one is written."""

NAME = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,255}\Z")
COLUMNS = ("member", "start", "stop", "member_start")
MORE_COLUMNS = {"packing": -1, "view": -1, "layer": 0}
"""The columns of version 2, and the values they stand for when left out."""

MAX_ELEMENTS = 1 << 62
"""Positions of elements are computed with 64 bits, and this leaves room for a sum."""
MAX_SHOWN_PROBLEMS = 20


def convention(version: int) -> dict[str, str]:
    """The entry that identifies a manifest of a version to others.

    >>> convention(1)["name"]
    'intarsia'
    """
    tag = f"logical-array-v{version}"
    raw = f"https://raw.githubusercontent.com/intarsia-dev/intarsia/refs/tags/{tag}"
    return {
        "uuid": "6ad1d1a8-53a4-4d1f-9f0e-3c6f0b8e2a5c",
        "schema_url": f"{raw}/standard/logical-array/schema.json",
        "spec_url": f"https://github.com/intarsia-dev/intarsia/blob/{tag}/standard/logical-array/README.md",
        "name": MANIFEST_KEY,
        "description": "One logical array assembled from several Zarr arrays, each with its own encoding.",
    }


Size = Annotated[int, Meta(ge=0)]


class RegionColumns(Struct, forbid_unknown_fields=True):
    """The regions as columns in the attributes."""

    member: list[int]
    start: list[list[int]]
    stop: list[list[int]]
    member_start: list[list[int]]
    packing: list[int] | UnsetType = UNSET
    view: list[int] | UnsetType = UNSET
    layer: list[int] | UnsetType = UNSET


class ManifestDocument(Struct, forbid_unknown_fields=True):
    """The grammar of a manifest; only version 2 has the fields that may be absent."""

    version: int
    generation: Size
    shape: Annotated[list[Size], Meta(max_length=MAX_AXES)]
    chunk_shape: Annotated[list[Annotated[int, Meta(ge=1)]], Meta(max_length=MAX_AXES)]
    data_type: str | dict[str, Any]
    fill_value: Any
    dimension_names: Annotated[list[str | None], Meta(max_length=MAX_AXES)] | None
    members: list[Any]
    regions: str | RegionColumns
    packings: dict[str, Any] | UnsetType = UNSET
    views: list[Any] | UnsetType = UNSET


def parse_document(document: object) -> ManifestDocument:
    """The fields of a manifest; raises everything that is wrong with them at once."""
    if not isinstance(document, Mapping):
        problem = f"the attribute {MANIFEST_KEY!r} holds {type(document).__name__}, not an object"
        raise ManifestError([problem])
    version = document.get("version")
    if type(version) is int and version not in VERSIONS:
        raise ManifestVersionError(version, max(VERSIONS))
    try:
        parsed: ManifestDocument | None = decode(document, ManifestDocument, ValueError)
        problems = []
    except ValueError:
        parsed, problems = None, [*_problems_of_fields(document)]
    problems += problems_of_names(document.get("members"), document.get("regions"))
    if parsed is not None and not problems:
        problems = [*_contradictions(parsed)]
    if parsed is None or problems:
        raise ManifestError(problems[:MAX_SHOWN_PROBLEMS])
    return parsed


def _problems_of_fields(document: Mapping[str, Any]) -> Iterator[str]:
    """Fields that are unknown, missing, or of another type."""
    fields = {field.name: field for field in structs.fields(ManifestDocument)}
    yield from (f"{name!s:.200}: there is no such field" for name in document if name not in fields)
    for name, field in fields.items():
        if name in document:
            try:
                decode(document[name], field.type, ValueError, name)
            except ValueError as error:
                yield str(error)
        elif field.required:
            yield f"{name}: the field is missing"


def problems_of_names(members: Any, table: Any = None) -> list[str]:
    """Names of members, or of the table of the regions, that no store can have."""
    listed = members if isinstance(members, list | tuple) else ()
    named = [(f"members[{i}]", name) for i, name in enumerate(listed)]
    named += [("regions", table)] if isinstance(table, str) else []
    problems = [
        f"{what}: {name!r:.300} is not a name of one path segment"
        for what, name in named
        if not (isinstance(name, str) and NAME.match(name))
    ]
    return problems or ["members: a name is listed twice"] * (len(set(listed)) != len(listed))


def _contradictions(document: ManifestDocument) -> Iterator[str]:
    """Fields that the version does not have, that disagree about the axes, or have more elements than can be
    counted."""
    if document.version == 1:
        later = [(name, getattr(document, name)) for name in ("packings", "views")]
        if isinstance(document.regions, RegionColumns):
            later += [(f"regions.{name}", getattr(document.regions, name)) for name in MORE_COLUMNS]
        for name, value in later:
            if value is not UNSET:
                yield f"{name}: only a manifest of version 2 has this field"
    for name in ("chunk_shape", "dimension_names"):
        axes = getattr(document, name)
        if axes is not None and len(axes) != len(document.shape):
            yield f"{name}: {len(axes)} axes, but shape has {len(document.shape)}"
    yield from problems_of_size(document.shape, document.chunk_shape)


def problems_of_size(shape: Sequence[int], chunk_shape: Sequence[int]) -> Iterator[str]:
    """Shapes whose elements cannot be counted with 64 bits."""
    if max(prod(shape), *shape, *chunk_shape, 0) >= MAX_ELEMENTS:
        shapes = f"{list(shape)} in chunks of {list(chunk_shape)}"
        yield f"shape, chunk_shape: {shapes} has more elements than can be counted"


def parse_fields(
    document: object, table: Ints | zarr.Array[Any] | None, read: Callable[[], Manifest] | None = None
) -> dict[str, Any]:
    """The fields of a `Manifest`; of its regions, only the form is checked.

    The columns are in the attributes, or in the array beside the members. With `read`, the array is left
    unread until its columns are needed.
    """
    parsed, problems = parse_document(document), list[str]()
    if read is not None:
        regions = RegionTable.later(lambda: read().regions_and_replicas)
    else:
        ndim, listed = len(parsed.shape), parsed.regions
        rows = None if isinstance(listed, RegionColumns) else _read_table(parsed, table)
        regions = _listed_table(listed, ndim) if rows is None else RegionTable.from_columns(rows, ndim)
        if parsed.version > 1:
            regions = regions.in_layers()
    packings, views = NO_PACKINGS, []
    if parsed.packings is not UNSET:
        try:
            if read is not None:
                packings = Packings.described(parsed.packings, lambda: read().packings)
            else:
                packings = Packings.from_json(parsed.packings, None if rows is None else rows[:, -3:])
        except PackingError as error:
            problems.append(f"packings: {error}")
    for i, view in enumerate(() if parsed.views is UNSET else parsed.views[:MAX_REGIONS]):
        try:
            views.append(View.from_json(view))
        except ShapeError as error:
            problems.append(f"views[{i}]: {error}")
    try:
        named = parsed.data_type
        data_type = zarr_type(named) if isinstance(named, str) else parse_dtype(named, zarr_format=3)
        fill_value = data_type.from_json_scalar(parsed.fill_value, zarr_format=3)
    except Exception as error:  # anything that data types may raise for documents that are not theirs
        problems.append(f"data_type, fill_value: {one_line(error)}")
    if problems:
        raise ManifestError(problems[:MAX_SHOWN_PROBLEMS])
    return {
        "generation": parsed.generation,
        "shape": tuple(parsed.shape),
        "chunk_shape": tuple(parsed.chunk_shape),
        "data_type": data_type,
        "fill_value": fill_value,
        "dimension_names": None if parsed.dimension_names is None else tuple(parsed.dimension_names),
        "members": tuple(parsed.members),
        "regions_and_replicas": regions,
        "packings": packings,
        "views": tuple(views),
    }


def _read_table(document: ManifestDocument, table: Any) -> Ints:
    """The rows of the array beside the members; its shape is checked before it is read."""
    width, name = 1 + 3 * len(document.shape), document.regions
    cells = prod(chunk_grid(document.shape, document.chunk_shape))
    if document.version > 1:
        width, cells = width + len(MORE_COLUMNS) + 3, cells * MAX_LAYERS
    most = min(cells, MAX_REGIONS)
    shape: Sequence[int] = () if table is None or table.dtype != np.int64 else table.shape
    if len(shape) != 2 or shape[1] != width or shape[0] > most:
        what = "is missing" if table is None else f"is {table.dtype} of shape {table.shape}"
        expected = f"expected int64 with {width} columns, and there is room for {most} regions"
        raise ManifestError([f"regions: the table {name!r} {what}; {expected}"])
    try:
        rows: Ints = np.asarray(table[...])
    except Exception as error:
        if signal_failure(error) is not None:
            raise
        raise ManifestError([f"regions: the table {name!r} cannot be read: {error}"]) from error
    return rows


def _listed_table(regions: Any, ndim: int) -> RegionTable:
    """The table of the regions whose columns are in the attributes."""
    columns, problems, count = list[Ints](), list[str](), len(regions.member)
    for name, column in structs.asdict(regions).items():
        if column is UNSET:
            column = [MORE_COLUMNS[name]] * count
        expected = (count,) if name in MORE_COLUMNS or name == "member" else (count, ndim)
        values = None
        # Rows may differ in length, and numbers have more than 64 bits.
        with suppress(ValueError, OverflowError):
            values = np.array(column or np.empty((0, *expected[1:])), dtype=np.int64)
        if values is None or values.shape != expected:
            problems.append(f"regions.{name}: expected integers of shape {expected}, of up to 64 bits")
        else:
            columns.append(values)
    if problems:
        raise ManifestError(problems)
    return RegionTable(*columns)


def problems_of_regions(manifest: Manifest) -> list[str]:
    """Everything that is wrong with the regions, one line each; empty if nothing is.

    >>> from intarsia.manifest.manifest import Manifest
    >>> problems_of_regions(Manifest.empty((4,), (2,), "u1"))
    []
    """
    problems = [*_problems_of_numbers(manifest)] or [*_problems_of_boxes(manifest)]
    if not problems and not manifest.is_plain:  # the rest computes with bounds that must be possible
        problems = [*_problems_of_packings(manifest), *_problems_of_views(manifest)]
    return problems or [*_problems_of_layers(manifest)]


def _problems_of_layers(manifest: Manifest) -> Iterator[str]:
    """Regions of one layer that overlap, and replicas of what layer 0 does not have."""
    base = manifest.regions
    for layer, table in manifest.regions_and_replicas.by_layer().items():
        if (pair := table.overlap()) is not None:
            # Numbered as in the whole table, in which the regions of layer 0 come first.
            rows = np.flatnonzero(manifest.regions_and_replicas.layer == layer)
            yield f"regions: row {rows[pair[0]]} and row {rows[pair[1]]} overlap"
        elif layer:
            boxes = (table.row(i).box for i in range(len(table)))
            bad = next((box for box in boxes if not base.covers(box)), None)
            if bad is not None:
                yield f"regions.layer: the replica {bad.text()} in layer {layer} covers what layer 0 lacks"


def _problems_of_numbers(manifest: Manifest) -> Iterator[str]:
    """Rows that refer to entries that do not exist, and entries that no row refers to."""
    lists = ("member", manifest.members), ("packing", manifest.packings), ("view", manifest.views)
    for name, entries in lists:
        numbers: Ints = getattr(manifest.regions_and_replicas, name)
        count = len(entries)
        outside = np.flatnonzero((numbers < (0 if name == "member" else NONE)) | (numbers >= count))
        if outside.size:
            yield _rows(name, outside, f"refers past the list of {count} {name}s")
        elif not (used := np.bincount(numbers[numbers >= 0], minlength=count) > 0).all():
            unused = int(np.argmin(used))
            called = f" ({entries[unused]})" if name == "member" else ""
            yield f"{name}s[{unused}]{called} is not used by any region"


def _problems_of_boxes(manifest: Manifest) -> Iterator[str]:
    """Boxes that are empty, or lie outside the array or outside any possible member."""
    table, lattice = manifest.regions_and_replicas, np.array(manifest.lattice, dtype=np.int64)
    reach = MAX_ELEMENTS // np.array(manifest.chunk_shape, dtype=np.int64)
    beyond = f"lies beyond the {manifest.lattice} logical chunks of the array"
    layers = f"is in no layer: they are numbered from 0 to {MAX_LAYERS - 1}"
    for column, bad, what in (
        ("start", table.start < 0, "is negative"),
        ("member_start", table.member_start < 0, "is negative"),
        ("stop", table.stop <= table.start, "is not above start"),
        ("stop", table.stop > lattice, beyond),
        (
            "member_start",
            table.member_start > reach - (table.stop - table.start),
            "lies further out than any member reaches",
        ),
        ("layer", ((table.layer < 0) | (table.layer >= MAX_LAYERS))[:, np.newaxis], layers),
    ):
        if bad.any():  # the rows are only found then: along them, NumPy takes fifty times as long
            yield _rows(column, np.flatnonzero(bad.any(axis=1)), what)


def _problems_of_packings(manifest: Manifest) -> Iterator[str]:
    """Kinds of packings whose values the array cannot hold."""
    name = manifest.data_type.to_json(zarr_format=3)
    for i, kind in enumerate(manifest.packings.kinds):
        if not can_hold(manifest, kind):
            yield f"packings: kinds[{i}].values: {kind.values}, which data_type {name!r} cannot hold"


def _problems_of_views(manifest: Manifest) -> Iterator[str]:
    """Views of another rank, and regions that look where there can be nothing."""
    table = manifest.regions_and_replicas
    order = np.argsort(table.view, kind="stable")
    first = np.searchsorted(table.view[order], np.arange(len(manifest.views)))
    for i, (view, rows) in enumerate(zip(manifest.views, np.split(order, first)[1:], strict=True)):
        if view.ndim != manifest.ndim:
            yield f"views[{i}]: input_rank: {view.ndim}, but shape has {manifest.ndim} axes"
        else:
            yield from _problems_of_view(manifest, view, rows, f"views[{i}]")


def _problems_of_view(manifest: Manifest, view: View, rows: Ints, name: str) -> Iterator[str]:
    table, chunk = manifest.regions_and_replicas, np.array(manifest.chunk_shape, dtype=np.int64)
    place = table.member_start[rows] * chunk
    lower, upper = table.start[rows] * chunk, np.array(manifest.shape, dtype=np.int64)
    size = np.minimum(table.stop[rows] * chunk, upper) - lower
    for axis in view.new_axes:
        # With a larger logical chunk, the array could grow to show elements that the member does not have.
        long = (table.stop - table.start)[rows, axis] != 1
        if chunk[axis] != 1 or long.any() or place[:, axis].any():
            yield (
                f"{name}: axis {axis} is new: there, chunk_shape must be 1, and every region must have "
                "length 1 and member_start 0"
            )
    for source, offset, stride in view.axes:
        if source is not None:
            lowest = place[:, source] if stride > 0 else 1 - (place + size)[:, source]
            bad = (lowest < -offset) | (lowest + size[:, source] > MAX_ELEMENTS - offset)
            if bad.any():
                yield _rows("view", rows[bad], f"looks with {name} where no member can be")


def _rows(column: str, rows: Ints, what: str) -> str:
    more = f" (and {rows.size - 1} more rows)" if rows.size > 1 else ""
    return f"regions.{column}: row {rows[0]} {what}{more}"


def new_name(kind: str = "m") -> str:
    """A name that was never used before and never will be again.

    >>> new_name()[:2], len(new_name())
    ('m-', 34)
    """
    return f"{kind}-{uuid.uuid4().hex}"
