"""What is wrong with the regions of a manifest, found on whole columns; and with packings that are given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from intarsia.array.document import MOST_ELEMENTS
from intarsia.array.table import NONE
from intarsia.array.values import is_nullable, type_text, values_dtype
from intarsia.errors import PackingError
from intarsia.packing import Packing

if TYPE_CHECKING:
    from intarsia.array.manifest import Manifest
    from intarsia.array.orientation import View
    from intarsia.array.table import Ints


def checked_packing(manifest: Manifest, given: Packing | Mapping[str, Any] | None) -> Packing | None:
    """The packing that somebody gave, or its arguments; refused if the array cannot hold its values.

    Arguments without a type of the values mean that of the array.

    >>> from intarsia.array.manifest import Manifest
    >>> manifest = Manifest.empty((4,), (2,), "float32")
    >>> checked_packing(manifest, {"stored": "int16", "scale": 0.5})
    Packing('int16', scale=float32(0.5), values='float32')
    >>> checked_packing(manifest, Packing("int16", scale=0.1))
    Traceback (most recent call last):
    ...
    intarsia.errors.PackingError: int16 * 0.1: its values are float64, which an array of float32 cannot hold.
      Say of which type they are: Packing(…, values='float32')
    """
    if given is None:
        return None
    if isinstance(given, Mapping):
        arguments = {"values": values_dtype(manifest.data_type), **given}
        try:
            given = Packing(**arguments)
        except TypeError as error:
            raise PackingError(f"{arguments!r}: these are not the arguments of a packing: {error}") from None
    if not isinstance(given, Packing):
        raise PackingError(f"{given!r:.200} is neither a Packing nor the arguments of one")
    if not _holds(manifest, given):
        own, advice = type_text(manifest.data_type), ""
        if values_dtype(manifest.data_type).kind == "f" and not is_nullable(manifest.data_type):
            advice = f".\n  Say of which type they are: Packing(…, values={own!r})"
        raise PackingError(
            f"{given}: its values are {given.values}, which an array of {own} cannot hold{advice}"
        )
    return given


type PackingChoice = Packing | Mapping[str, Any] | Literal["keep"] | None
"""What people say about packing: a packing or its arguments, the one that was there before, or none."""


def chosen_packing(manifest: Manifest, given: PackingChoice) -> dict[str, Any]:
    """What an `Encoding` has to know of what was said about packing.

    >>> from intarsia.array.manifest import Manifest
    >>> chosen_packing(Manifest.empty((4,), (2,), "float32"), "keep")
    {'keep_packing': True}
    """
    if isinstance(given, str):
        if given != "keep":
            raise PackingError(f'packing={given!r}: say "keep", None, or give a packing')
        return {"keep_packing": True}
    return {"packing": checked_packing(manifest, given)}


def _holds(manifest: Manifest, packing: Packing) -> bool:
    """Whether the array can hold all values that a packing may have; arrays with nulls take no packings."""
    wanted, values = values_dtype(manifest.data_type), packing.values
    # NumPy calls the conversion of 64-bit integers to floats safe; it is not.
    long = values.kind in "iu" and values.itemsize == 8 and wanted.kind not in "iu"
    return not is_nullable(manifest.data_type) and not long and bool(np.can_cast(values, wanted, "safe"))


def problems_of_regions(manifest: Manifest) -> list[str]:
    """Everything that is wrong with the regions, a line each; empty when nothing is.

    >>> from intarsia.array.manifest import Manifest
    >>> problems_of_regions(Manifest.empty((4,), (2,), "u1"))
    []
    """
    table = manifest.regions
    found: list[str] = []
    lists = ("member", manifest.members), ("packing", manifest.packings), ("view", manifest.views)
    for name, entries in lists:
        found += _problems_of_numbers(name, getattr(table, name), entries)
    if found or not len(table):
        return found
    found = [*_problems_of_boxes(manifest)]
    layered = np.flatnonzero(table.layer != 0)
    if layered.size:
        found.append(_rows("layer", layered, "is in another layer than 0, which is reserved"))
    if not found:  # what follows computes with bounds that are possible
        found = [*_problems_of_packings(manifest), *_problems_of_views(manifest)]
    if not found and (pair := table.overlap()) is not None:
        found.append(f"regions: row {pair[0]} and row {pair[1]} overlap")
    return found


def _problems_of_numbers(name: str, numbers: Ints, entries: Any) -> Iterator[str]:
    """Rows that refer to what is not listed, or what is listed although no row refers to it."""
    outside = np.flatnonzero((numbers < (0 if name == "member" else NONE)) | (numbers >= len(entries)))
    used = np.unique(numbers[numbers >= 0])
    if outside.size:
        yield _rows(name, outside, f"refers past the list of {len(entries)} {name}s")
    elif len(entries) and not len(numbers):
        yield f"{name}s: {len(entries)} listed, but there is no region"
    elif used.size < len(entries):
        unused = next(i for i, number in enumerate([*used.tolist(), len(entries)]) if i != number)
        called = f" ({entries[unused]})" if name == "member" else ""
        yield f"{name}s[{unused}]{called} is used by no region"


def _problems_of_boxes(manifest: Manifest) -> Iterator[str]:
    """Boxes that are empty, or lie outside the array or of what a member can be."""
    table = manifest.regions
    low = np.flatnonzero((table.start < 0).any(axis=1) | (table.member_start < 0).any(axis=1))
    if low.size:
        yield _rows("start", low, "is negative")
    empty = np.flatnonzero((table.stop <= table.start).any(axis=1))
    if empty.size:
        yield _rows("stop", empty, "is not above start")
    beyond = np.flatnonzero((table.stop > np.array(manifest.lattice, dtype=np.int64)).any(axis=1))
    if beyond.size:
        yield _rows("stop", beyond, f"lies beyond the {manifest.lattice} logical chunks of the array")
    reach = MOST_ELEMENTS // np.array(manifest.chunk_shape, dtype=np.int64)
    far = np.flatnonzero((table.member_start > reach - (table.stop - table.start)).any(axis=1))
    if far.size:
        yield _rows("member_start", far, "lies further out than any member reaches")


def _problems_of_packings(manifest: Manifest) -> Iterator[str]:
    """Kinds of packings whose values the array cannot hold."""
    name = manifest.data_type.to_json(zarr_format=3)
    for i, kind in enumerate(manifest.packings.kinds):
        if not _holds(manifest, kind):
            yield f"packings: kinds[{i}].values: {kind.values}, which data_type {name!r} cannot hold"


def _problems_of_views(manifest: Manifest) -> Iterator[str]:
    """Views of another rank, and regions that look where nothing can be."""
    table = manifest.regions
    order = np.argsort(table.view, kind="stable")
    first = np.searchsorted(table.view[order], np.arange(len(manifest.views)))
    for i, (view, rows) in enumerate(zip(manifest.views, np.split(order, first)[1:], strict=True)):
        if view.ndim != manifest.ndim:
            yield f"views[{i}]: input_rank: {view.ndim}, but shape has {manifest.ndim} axes"
        else:
            yield from _problems_of_view(manifest, view, rows, f"views[{i}]")


def _problems_of_view(manifest: Manifest, view: View, rows: Ints, name: str) -> Iterator[str]:
    table, chunk = manifest.regions, np.array(manifest.chunk_shape, dtype=np.int64)
    place = table.member_start[rows] * chunk
    lower, upper = table.start[rows] * chunk, np.array(manifest.shape, dtype=np.int64)
    size = np.minimum(table.stop[rows] * chunk, upper) - lower
    for axis in view.new_axes:
        # Of a larger logical chunk, the array could grow to show elements that the member does not have.
        long = (table.stop - table.start)[rows, axis] != 1
        if chunk[axis] != 1 or long.any() or place[:, axis].any():
            yield (
                f"{name}: axis {axis} is new: chunk_shape has to be 1 there, and every region 1 long, with "
                "member_start 0"
            )
    for source, offset, stride in view.axes:
        if source is not None:
            lowest = place[:, source] if stride > 0 else 1 - (place + size)[:, source]
            bad = (lowest < -offset) | (lowest + size[:, source] > MOST_ELEMENTS - offset)
            if bad.any():
                yield _rows("view", rows[bad], f"looks with {name} where no member can be")


def _rows(column: str, rows: Ints, what: str) -> str:
    more = f" (and {rows.size - 1} more rows)" if rows.size > 1 else ""
    return f"regions.{column}: row {rows[0]} {what}{more}"
