"""`diff`: what differs between two versions of a logical array: regions, values, attributes, bytes."""

import datetime
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from intarsia._icechunk import VIRTUAL
from intarsia.display import MAX_SHOWN_ROWS, Listing, Result, Table, bounds_text, count_text, size_text
from intarsia.engine.prepared_member import object_shape, short_codecs
from intarsia.logical.attributes import RESERVED
from intarsia.logical.chunk_copies import ChunkRef, Index, chunk_refs
from intarsia.logical.encoding import encoding_of
from intarsia.logical.logical_array_handle import LogicalArrayHandle
from intarsia.manifest.box import Bounds
from intarsia.manifest.manifest_diff import RegionDiff, rebacked_boxes, region_diffs, rows_of
from intarsia.versions.commit import Written, written_box
from intarsia.versions.repository import RepositoryLike, explain_errors, open_repository
from intarsia.versions.version import find_snapshot, group_at

type ChangeKind = Literal["added", "dropped", "recoded", "joined", "written"]

MAX_LINES = 8
"""How many boxes are named one by one when a change is described in lines."""


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
    recoded [0:2] (gzip-5 to zstd-0)
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

    _before: LogicalArrayHandle | None = field(repr=False, compare=False)
    _after: LogicalArrayHandle | None = field(repr=False, compare=False)

    json_properties: ClassVar = ("codecs_before", "codecs_after")

    @property
    def codecs_before(self) -> str | None:
        """The codecs it had, in a few words."""
        return _codecs_of(self._before, self.member_before)

    @property
    def codecs_after(self) -> str | None:
        """The codecs it has, in a few words."""
        return _codecs_of(self._after, self.member_after)

    def __str__(self) -> str:
        how = self.codecs_after if self.kind != "dropped" else self.codecs_before
        if self.kind == "recoded":
            how = f"{self.codecs_before} to {self.codecs_after}"
        layer = f", layer {self.layer}" if self.layer else ""
        return f"{self.kind} {bounds_text(self.bounds)} ({how}{layer})"


def _codecs_of(logical: LogicalArrayHandle | None, name: str | None) -> str | None:
    return None if logical is None or name is None else short_codecs(logical.members[name])


class BoxChanges(Listing[RegionChange]):
    """The boxes of an array that changed, as a table.

    >>> BoxChanges()
    no region changed
    """

    columns: ClassVar = {
        "Change": "kind",
        "Region": "bounds",
        "Layer": lambda change: change.layer or "",
        "Codecs before": "codecs_before",
        "Codecs after": "codecs_after",
    }
    empty = "no region changed"


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

    def __bool__(self) -> bool:
        """Whether anything differs."""
        return bool(self.regions or self.attributes) or self.shape_before != self.shape_after

    def lines(self, most: int = MAX_LINES) -> tuple[str, ...]:
        """What happened to the array, one line each; of more boxes than `most`, the others are counted."""
        listed = [*self._facts(), *map(str, self.regions[:most])]
        if len(self.regions) > most:
            listed.append(count_text(len(self.regions) - most, "more box", "more boxes"))
        return tuple(listed)

    def _facts(self) -> list[str]:
        """Everything but the regions."""
        facts = []
        if self.created:
            facts.append(f"created with shape {self.shape_after}")
        elif self.deleted:
            facts.append("deleted")
        elif self.shape_before != self.shape_after:
            facts.append(f"shape {self.shape_before} to {self.shape_after}")
        if self.attributes:
            facts.append("attributes changed: " + ", ".join(self.attributes[:MAX_LINES]))
        return facts

    @property
    def summary(self) -> str:
        """Everything but the regions, in one line."""
        facts = [*self._facts(), f"{size_text(self.bytes_written)} written"] if self else ["no difference"]
        return f"{self.path or '/'}: {'; '.join(facts)}"

    def blocks(self, most: int | None = MAX_SHOWN_ROWS) -> Iterable[str | Table]:
        """The summary, and a table of the regions."""
        return [self.summary, *(self.regions.blocks(most) if self.regions else ())]


def diff(
    store: RepositoryLike, path: str, before: str | datetime.datetime, after: str | datetime.datetime = "main"
) -> ArrayChange:
    """What differs between two versions of a logical array, however far apart.

    A version is a tag, a branch, a snapshot id, or a time on the branch `main`.

    Args:
        store: An Icechunk repository, or the path or URL of one.
        path: Where the logical array is in the repository.
        before: The earlier version.
        after: The later version; by default the tip of `main`.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="create") as tx:
    ...     tx.create("t", shape=(0,), chunks=(2,), dtype="u1").append([1, 2], codecs=["gzip"])
    >>> _ = intarsia.append(repo, "t", [3, 4], codecs=["gzip"])
    >>> intarsia.diff(repo, "t", tx.snapshot_id).bounds("added")
    (((2, 4),),)
    """
    opened = open_repository(store)
    with explain_errors(opened):
        snapshots = [find_snapshot(opened, version) for version in (before, after)]
        old, new = (group_at(opened.readonly_session(snapshot_id=each), path) for each in snapshots)
        return compare_states(path, old, new)


def compare_states(
    path: str,
    before: LogicalArrayHandle | None,
    after: LogicalArrayHandle | None,
    written: Written | None = None,
) -> ArrayChange:
    """The difference between two states of one array; it may not exist in one of them.

    `written` holds the chunks that were written in between, if they are known; otherwise the references
    to all chunks of both are compared.
    """
    chunks = _changed_chunks(before, after, written)
    refs = [ref for of_member in chunks.values() for ref in of_member.values() if ref is not None]
    old, new = _attributes(before), _attributes(after)
    changed = [key for key in sorted(old.keys() | new.keys()) if old.get(key, ...) != new.get(key, ...)]
    return ArrayChange(
        path=path.strip("/"),
        shape_before=None if before is None else before.manifest.shape,
        shape_after=None if after is None else after.manifest.shape,
        regions=BoxChanges(_region_changes(before, after, chunks)),
        attributes=tuple(changed),
        bytes_written=sum(nbytes for kind, _, _, nbytes, _ in refs if kind != VIRTUAL),
        bytes_referenced=sum(nbytes for kind, _, _, nbytes, _ in refs if kind == VIRTUAL),
    )


def _attributes(logical: LogicalArrayHandle | None) -> dict[str, Any]:
    """The user's own attributes."""
    fields = {} if logical is None else logical.group.metadata.attributes
    return {key: value for key, value in fields.items() if key not in RESERVED}


def _refs(logical: LogicalArrayHandle | None, name: str) -> dict[Index, ChunkRef]:
    """Where the chunks of a member are; nowhere, if there is no such member."""
    if logical is None or name not in logical.manifest.members:
        return {}
    store: Any = logical.group.store  # of Icechunk
    return chunk_refs(store, f"{logical.group.path}/{name}".lstrip("/"))


def _changed_chunks(
    before: LogicalArrayHandle | None, after: LogicalArrayHandle | None, written: Written | None
) -> dict[str, dict[Index, ChunkRef | None]]:
    """Where the chunks of members in `after` are that were written, or, if that is unknown, are not where
    they were in `before`; None for those that are gone."""
    changed, members = {}, () if after is None else after.manifest.members
    for name in members if written is None else written:
        now = _refs(after, name)
        if written is None:
            indices = {index for index, _ in now.items() ^ _refs(before, name).items()}
        else:
            indices = set(written[name])
        if indices:
            changed[name] = {index: now.get(index) for index in sorted(indices)}
    return changed


def _region_changes(
    before: LogicalArrayHandle | None, after: LogicalArrayHandle | None, written: Written
) -> Iterator[RegionChange]:
    either = after or before
    if either is None:
        return
    nothing = either.manifest.without_regions()
    old, new = (nothing if each is None else each.manifest for each in (before, after))
    for change in region_diffs(old, new):
        was = None if change.before is None else old.members[change.before.member]
        now = None if change.after is None else new.members[change.after.member]
        kind: ChangeKind = _kind_of_move(change, before, after) if change.kind == "moved" else change.kind
        bounds = (old if kind == "dropped" else new).elements(change.box).bounds
        yield RegionChange(kind, bounds, was, now, change.layer, before, after)
    rows = list(rows_of(old, written))
    moved = set(rebacked_boxes(old, new, [row.box for row in rows]))
    for row in rows:
        if before is not None and row.box not in moved:
            name = old.members[row.member]
            box = written_box(old, row, object_shape(before.members[name]), written[name])
            if box is not None:
                yield RegionChange("written", box.bounds, name, name, row.layer, before, after)


def _kind_of_move(change: RegionDiff, before: Any, after: Any) -> Literal["joined", "recoded"]:
    """Whether a box that is in another member now is encoded as before."""

    def encoding(logical: LogicalArrayHandle, row: Any) -> tuple[Any, ...]:
        manifest = logical.manifest
        member = logical.members[manifest.members[row.member]]
        return encoding_of(member.metadata), manifest.packing_of(row), manifest.view_of(row)

    return "joined" if encoding(before, change.before) == encoding(after, change.after) else "recoded"
