"""The manifest as JSON: which fields it has, what is wrong with them, and the columns behind them.

What the fields mean together, `Manifest` checks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from intarsia import schemas
from intarsia.array.orientation import View
from intarsia.array.packings import NO_PACKINGS, Packings
from intarsia.array.table import RegionTable
from intarsia.errors import ManifestError, ManifestVersionError, PackingError, ShapeError

if TYPE_CHECKING:
    from intarsia.array.table import Ints


MANIFEST_KEY = "intarsia"
CONVENTIONS_KEY = "zarr_conventions"
VERSIONS = (1, 2)
"""Those that are read; the lowest that will do is written."""

NAME = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,255}\Z")
COLUMNS = ("member", "start", "stop", "member_start")
MORE_COLUMNS = {"packing": -1, "view": -1, "layer": 0}
"""Columns of version 2, and what they hold where they are left out."""

MOST_ELEMENTS = 1 << 62
"""Positions of elements are computed with 64 bits, and this leaves room for a sum."""
MOST_REGIONS = 10_000_000
"""A table that claims more than this is not even read."""
SHOWN_PROBLEMS = 20


def convention(version: int) -> dict[str, str]:
    """The entry by which others recognise a manifest of a version.

    >>> convention(1)["name"]
    'intarsia'
    """
    schema = "manifest" if version == 1 else f"manifest-{version}"
    base = "https://raw.githubusercontent.com/intarsia/intarsia"
    return {
        "uuid": "6ad1d1a8-53a4-4d1f-9f0e-3c6f0b8e2a5c",
        "schema_url": f"{base}/v{version}/src/intarsia/schemas/{schema}.schema.json",
        "spec_url": f"https://github.com/intarsia/intarsia/blob/v{version}/docs/spec/manifest.md",
        "name": MANIFEST_KEY,
        "description": "One logical array assembled from several Zarr arrays, each with its own encoding.",
    }


class Columns(NamedTuple):
    """What a manifest says about its regions."""

    regions: RegionTable
    packings: Packings
    views: tuple[View, ...]


def problems_of_fields(document: object) -> list[str]:
    """Everything wrong with the fields but the columns, which are checked as arrays."""
    if not isinstance(document, Mapping):
        return [f"the attribute {MANIFEST_KEY!r} holds {type(document).__name__}, not an object"]
    version = document.get("version")
    if type(version) is int and version not in VERSIONS:
        raise ManifestVersionError(version, max(VERSIONS))
    fields = dict(document)
    regions, members = fields.get("regions"), fields.get("members")
    for name in ("regions", "packings"):
        if isinstance(fields.get(name), Mapping):
            columns = fields[name].items()
            fields[name] = {key: [] if isinstance(column, list) else column for key, column in columns}
    for name in ("members", "views"):
        if isinstance(fields.get(name), list):
            fields[name] = []
    found = schemas.problems("manifest-2" if version == 2 else "manifest", fields)
    # To JSON Schema 8.0 is an integer; to whoever counts with it, it is not.
    numbers = [("version", version), ("generation", fields.get("generation"))]
    for name in ("shape", "chunk_shape"):
        if isinstance(fields.get(name), list):
            numbers += [(f"{name}[{i}]", value) for i, value in enumerate(fields[name])]
    found += [f"{name}: {value!r} is not an integer" for name, value in numbers if isinstance(value, float)]
    if isinstance(regions, str) and not NAME.match(regions):
        found.append(f"regions: {regions!r} is not a name of one path segment")
    if isinstance(members, list):
        bad = [i for i, name in enumerate(members) if not (isinstance(name, str) and NAME.match(name))]
        found += [f"members[{i}]: {members[i]!r} is not a name of one path segment" for i in bad]
        if not bad and len(set(members)) != len(members):
            found.append("members: a name is listed twice")
    if not found:
        ndim = len(fields["shape"])
        if len(fields["chunk_shape"]) != ndim:
            found.append(f"chunk_shape: {len(fields['chunk_shape'])} axes, but shape has {ndim}")
        if fields["dimension_names"] is not None and len(fields["dimension_names"]) != ndim:
            found.append(f"dimension_names: {len(fields['dimension_names'])} axes, but shape has {ndim}")
        if max(prod(fields["shape"]), *fields["shape"], *fields["chunk_shape"], 0) >= MOST_ELEMENTS:
            found.append(
                f"shape, chunk_shape: {fields['shape']} in chunks of {fields['chunk_shape']} has "
                "more elements than can be counted"
            )
    return found[:SHOWN_PROBLEMS]


def parse_columns(document: Mapping[str, Any], table: Any) -> tuple[Columns, list[str]]:
    """The columns in the attributes, or in the array beside the members; and what is wrong with them."""
    ndim = len(document["shape"])
    problems: list[str] = []
    stored: Ints | None = None
    regions = RegionTable.from_rows([], ndim)
    if isinstance(document["regions"], str):
        stored = _read_table(document, table)
        regions = RegionTable.from_columns(stored, ndim)
    else:
        columns, problems = _listed_columns(document["regions"], ndim)
        if not problems:
            regions = RegionTable(**columns)
    packings = NO_PACKINGS
    if "packings" in document:
        try:
            beside = None if stored is None else stored[:, -3:]
            packings = Packings.from_json(document["packings"], beside)
        except PackingError as error:
            problems.append(f"packings: {error}")
    views = []
    for i, view in enumerate(document.get("views", ())):
        try:
            views.append(View.from_json(view))
        except ShapeError as error:
            problems.append(f"views[{i}]: {error}")
    return Columns(regions, packings, tuple(views)), problems[:SHOWN_PROBLEMS]


def _read_table(document: Mapping[str, Any], table: Any) -> Ints:
    """The rows of the array beside the members; its shape is checked before it is read."""
    width, name = 1 + 3 * len(document["shape"]), document["regions"]
    if document["version"] > 1:
        width += len(MORE_COLUMNS) + 3
    if table is None or table.dtype != np.int64 or table.ndim != 2 or table.shape[1] != width:
        what = "is missing" if table is None else f"is {table.dtype} of shape {table.shape}"
        raise ManifestError([f"regions: the table {name!r} {what}; expected int64 with {width} columns"])
    cells = prod(-(-n // c) for n, c in zip(document["shape"], document["chunk_shape"], strict=True))
    if table.shape[0] > min(cells, MOST_REGIONS):
        raise ManifestError(
            [f"regions: the table {name!r} has {table.shape[0]} rows, but there is room for {cells} regions"]
            if cells <= MOST_REGIONS
            else [f"regions: the table {name!r} has {table.shape[0]} rows; {MOST_REGIONS} are the most"]
        )
    try:
        rows: Ints = np.asarray(table[...])
    except Exception as error:
        raise ManifestError([f"regions: the table {name!r} cannot be read: {error}"]) from error
    return rows


def _listed_columns(regions: Mapping[str, Any], ndim: int) -> tuple[dict[str, Ints], list[str]]:
    """The columns of the region table as arrays; those of version 2 only if they are there."""
    columns: dict[str, Ints] = {}
    problems = []
    count = len(regions["member"])
    for name in (*COLUMNS, *(name for name in MORE_COLUMNS if name in regions)):
        expected = (count,) if name in MORE_COLUMNS or name == "member" else (count, ndim)
        try:
            values = np.array(regions[name])
        except (ValueError, RecursionError):  # rows of different lengths, or nested without end
            problems.append(f"regions.{name}: rows of different lengths")
            continue
        if values.size == 0 and len(regions[name]) == count and ndim * count == 0:
            values = values.reshape(expected).astype(np.int64)
        rows = [regions[name]] if values.ndim == 1 else regions[name]
        mixed = values.dtype.kind == "i" and any(bool in set(map(type, row)) for row in rows)
        if values.dtype.kind != "i" or values.shape != expected or mixed:
            problems.append(
                f"regions.{name}: expected integers of shape {expected}, "
                f"got {values.dtype}{' and bool' * mixed} of shape {values.shape}"
            )
            continue
        columns[name] = values.astype(np.int64, copy=False)
    return columns, problems
