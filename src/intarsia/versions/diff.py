"""What differs between two versions of a logical array: regions, values, attributes, bytes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import icechunk
import zarr

from intarsia.display import SHOWN_ROWS, Listing, Result, Table, bounds_text, count_text, size_text
from intarsia.engine.member_source import grain, short_codecs
from intarsia.logical.attributes import RESERVED
from intarsia.logical.chunk_copies import chunk_refs
from intarsia.logical.logical_state import LogicalArrayHandle
from intarsia.logical.members import encoding_of
from intarsia.manifest.box import Bounds, Box
from intarsia.manifest.region_table import Row
from intarsia.manifest.routing import Reroute, boxes_that_moved, reroutes, rows_of, shown_in
from intarsia.versions.version import group_at

type ChangeKind = Literal["added", "dropped", "recoded", "joined", "written"]
type Written = Mapping[str, Iterable[tuple[int, ...]]]
"""The chunks written, by member."""

MOST_LINES = 8
"""How many boxes are named one by one when a change is described in lines."""


class State:
    """One logical array in one snapshot; it may not exist there."""

    def __init__(self, session: icechunk.Session, path: str, logical: LogicalArrayHandle | None) -> None:
        self.session, self.path, self.logical = session, path.strip("/"), logical

    @classmethod
    def of(cls, session: icechunk.Session, path: str) -> Self:
        """The array in a session; a damaged one is an error."""
        return cls(session, path, group_at(session, path))

    @property
    def attributes(self) -> dict[str, Any]:
        if self.logical is None:
            return {}
        fields = dict(self.logical.group.metadata.attributes)
        return {key: value for key, value in fields.items() if key not in RESERVED}

    def member(self, name: str) -> zarr.Array[Any]:
        assert self.logical is not None
        return self.logical.members[name]

    def member_path(self, name: str) -> str:
        return f"{self.path}/{name}".lstrip("/")

    def nbytes(self, written: Written, *, virtual: bool) -> int:
        """The stored bytes of some chunks in this state."""
        total = 0
        for name, indices in written.items():
            refs = chunk_refs(self.session.store, self.member_path(name))
            total += refs.nbytes(indices, virtual=virtual)
        return total


@dataclass(frozen=True)
class RegionChange:
    """A box of a logical array that has changed.

    `added`: no region was there. `dropped`: none is there now. `recoded`: it has another encoding. `joined`:
    another member holds it, in the same encoding. `written`: chunks that hold it were written.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="create") as tx:
    ...     tx.create("t", shape=(4,), chunks=(2,), dtype="u1").add_region([(0, 4)], codecs=["gzip"])
    >>> with intarsia.transaction(repo, message="recode") as tx:
    ...     tx.open("t").recode([(0, 2)], codecs=["zstd"])
    >>> print(intarsia.history(repo, "t")[0].changes[0].regions[0])
    recoded [0:2] (gzip to zstd)
    """

    kind: ChangeKind
    """What happened."""

    bounds: Bounds
    """The first and last (excluded) element on every axis."""

    member_before: str | None
    """The name of the member that held it."""

    member_after: str | None
    """The name of the member that holds it."""

    layer: int
    """The layer: 0, or that of a replica that changed, while the values may be the same."""

    _before: State = field(repr=False, compare=False)
    _after: State = field(repr=False, compare=False)

    @property
    def codecs_before(self) -> str | None:
        """The codecs it had, in a few words."""
        return None if self.member_before is None else short_codecs(self._before.member(self.member_before))

    @property
    def codecs_after(self) -> str | None:
        """The codecs it has, in a few words."""
        return None if self.member_after is None else short_codecs(self._after.member(self.member_after))

    def __str__(self) -> str:
        place = Box(*(tuple(edge) for edge in zip(*self.bounds, strict=True))) if self.bounds else Box((), ())
        how = self.codecs_after if self.kind != "dropped" else self.codecs_before
        if self.kind == "recoded":
            how = f"{self.codecs_before} to {self.codecs_after}"
        layer = f", layer {self.layer}" if self.layer else ""
        return f"{self.kind} {place.text()} ({how}{layer})"


class BoxChanges(Listing[RegionChange]):
    """The boxes of an array that changed, as a table.

    >>> BoxChanges()
    no region changed
    """

    columns = ("Change", "Region", "Codecs before", "Codecs after")
    empty = "no region changed"

    def cells(self, item: RegionChange) -> tuple[str, ...]:
        return item.kind, bounds_text(item.bounds), item.codecs_before or "", item.codecs_after or ""


@dataclass(frozen=True, repr=False)
class ArrayChange(Result):
    """What differs between two versions of one logical array.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="create") as tx:
    ...     tx.create("t", shape=(0,), chunks=(2,), dtype="u1").append([1, 2], codecs=["gzip"])
    >>> snapshot = intarsia.append(repo, "t", [3, 4], codecs=["zstd"])
    >>> change = intarsia.diff(repo, "t", tx.snapshot_id, snapshot)
    >>> change.shape_before, change.shape_after, [region.kind for region in change.regions]
    ((2,), (4,), ['added'])
    """

    path: str
    """The path of the array."""

    shape_before: tuple[int, ...] | None
    """The earlier shape; None if there was no such array."""

    shape_after: tuple[int, ...] | None
    """The later shape; None if the array is gone."""

    regions: BoxChanges
    """The boxes that changed."""

    attributes: tuple[str, ...]
    """The names of the user's attributes that changed."""

    bytes_written: int
    """The encoded bytes that the later version stores and the earlier one does not."""

    bytes_referenced: int
    """The same for chunks in other files."""

    @property
    def created(self) -> bool:
        """Whether the array is new."""
        return self.shape_before is None and self.shape_after is not None

    @property
    def deleted(self) -> bool:
        """Whether the array is gone."""
        return self.shape_before is not None and self.shape_after is None

    def bounds(self, kind: ChangeKind) -> tuple[Bounds, ...]:
        """The boxes with a change of this kind."""
        return tuple(region.bounds for region in self.regions if region.kind == kind)

    @property
    def added(self) -> tuple[Bounds, ...]:
        """Boxes that no region covered before."""
        return self.bounds("added")

    @property
    def dropped(self) -> tuple[Bounds, ...]:
        """Boxes that no region covers now."""
        return self.bounds("dropped")

    @property
    def recoded(self) -> tuple[Bounds, ...]:
        """Boxes that have another encoding."""
        return self.bounds("recoded")

    @property
    def written(self) -> tuple[Bounds, ...]:
        """Boxes whose chunks were written."""
        return self.bounds("written")

    def __bool__(self) -> bool:
        """Whether anything differs."""
        return bool(self.regions or self.attributes) or self.shape_before != self.shape_after

    def lines(self, most: int = MOST_LINES) -> tuple[str, ...]:
        """What happened to the array, one line each; boxes are only counted if there are more than `most`."""
        listed = [str(region) for region in self.regions[: most + 1]]
        if len(listed) > most:
            kinds = ((kind, self.bounds(kind)) for kind in sorted({region.kind for region in self.regions}))
            listed = [
                f"{kind} {count_text(len(boxes), 'box', 'boxes')}, first {bounds_text(boxes[0])}"
                for kind, boxes in kinds
            ]
        return (*self._shape_lines(), *listed, *self._attribute_lines(most))

    def _shape_lines(self) -> list[str]:
        if self.created:
            return [f"created with shape {self.shape_after}"]
        if self.deleted:
            return ["deleted"]
        changed = self.shape_before != self.shape_after
        return [f"shape {self.shape_before} to {self.shape_after}"] if changed else []

    def _attribute_lines(self, most: int) -> list[str]:
        return ["attributes changed: " + ", ".join(self.attributes[:most])] if self.attributes else []

    @property
    def summary(self) -> str:
        """Everything but the regions, in one line."""
        if not self:
            return f"{self.path or '/'}: no difference"
        facts = [*self._shape_lines(), *self._attribute_lines(MOST_LINES)]
        return f"{self.path or '/'}: {'; '.join([*facts, f'{size_text(self.bytes_written)} written'])}"

    def blocks(self, most: int | None = SHOWN_ROWS) -> Iterable[str | Table]:
        """The summary, and a table of the regions."""
        return [self.summary, *(self.regions.blocks(most) if self.regions else ())]


def compare(before: State, after: State, written: Written | None = None) -> ArrayChange:
    """The difference between two states of one array.

    `written` holds the chunks that were written in between, if they are known; otherwise the references
    to all chunks of both are compared.
    """
    if written is None:
        written = _differing_chunks(before, after)
    attributes = before.attributes, after.attributes
    names = sorted(attributes[0].keys() | attributes[1].keys())
    changed = tuple(name for name in names if attributes[0].get(name, ...) != attributes[1].get(name, ...))
    stored = {} if after.logical is None else written
    return ArrayChange(
        path=after.path,
        shape_before=None if before.logical is None else before.logical.manifest.shape,
        shape_after=None if after.logical is None else after.logical.manifest.shape,
        regions=BoxChanges(_region_changes(before, after, written)),
        attributes=changed,
        bytes_written=after.nbytes(stored, virtual=False),
        bytes_referenced=after.nbytes(stored, virtual=True),
    )


def _differing_chunks(before: State, after: State) -> Written:
    """The chunks of members in `after` that are not in `before`, or are stored elsewhere in it."""
    if after.logical is None:
        return {}
    differing: dict[str, list[tuple[int, ...]]] = {}
    known = set(before.logical.manifest.members) if before.logical is not None else set()
    for name in after.logical.manifest.members:
        path = after.member_path(name)
        new = chunk_refs(after.session.store, path).places
        old = chunk_refs(before.session.store, path).places if name in known else {}
        changed = [index for index in new.keys() | old.keys() if new.get(index) != old.get(index)]
        if changed:
            differing[name] = sorted(changed)
    return differing


def _region_changes(before: State, after: State, written: Written) -> Iterator[RegionChange]:
    if before.logical is None and after.logical is None:
        return
    if before.logical is None or after.logical is None:
        there = after.logical or before.logical
        assert there is not None
        for i in range(len(there.manifest.backings)):
            row = there.manifest.backings.row(i)
            name = there.manifest.members[row.member]
            bounds = _bounds(there.manifest.elements(row.box))
            if before.logical is None:
                yield RegionChange("added", bounds, None, name, row.layer, before, after)
            else:
                yield RegionChange("dropped", bounds, name, None, row.layer, before, after)
        return
    old, new = before.logical.manifest, after.logical.manifest
    for change in reroutes(old, new):
        yield _region_change(change, before, after)
    rows = [(name, row) for name in sorted(written) for row in rows_of(old, [name])]
    gone = set(boxes_that_moved(old, new, [row.box for _, row in rows]))
    for name, row in rows:
        box = None if row.box in gone else _written_box(before, name, row, written[name])
        if box is not None:
            yield RegionChange("written", _bounds(box), name, name, row.layer, before, after)


def _region_change(change: Reroute, before: State, after: State) -> RegionChange:
    assert before.logical is not None
    assert after.logical is not None
    old, new = before.logical.manifest, after.logical.manifest
    was = None if change.before is None else old.members[change.before.member]
    now = None if change.after is None else new.members[change.after.member]
    kind: ChangeKind
    if change.kind == "moved":
        assert was is not None
        assert now is not None
        assert change.before is not None
        assert change.after is not None
        equal = encoding_of(before.member(was).metadata) == encoding_of(after.member(now).metadata)
        equal &= old.packing_of(change.before) == new.packing_of(change.after)
        equal &= old.view_of(change.before) == new.view_of(change.after)
        kind = "joined" if equal else "recoded"
    else:
        kind = change.kind
    elements = (old if kind == "dropped" else new).elements(change.box)
    return RegionChange(kind, _bounds(elements), was, now, change.layer, before, after)


def _written_box(state: State, name: str, row: Row, chunks: Iterable[tuple[int, ...]]) -> Box | None:
    """The box around the part of a former region that lies in these chunks of its member."""
    assert state.logical is not None
    size = grain(state.member(name))
    around: Box | None = None
    for index in chunks:
        shown = shown_in(state.logical.manifest, row, index, size)
        if shown is not None:
            around = shown if around is None else _around(around, shown)
    return around


def _around(one: Box, other: Box) -> Box:
    return Box(tuple(map(min, one.start, other.start)), tuple(map(max, one.stop, other.stop)))


def _bounds(box: Box) -> Bounds:
    return tuple(zip(box.start, box.stop, strict=True))
