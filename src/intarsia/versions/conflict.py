"""What others committed meanwhile, and whether it takes away what a session's changes were built on.

Icechunk compares changes node by node and chunk by chunk. That is not enough for logical arrays: a write
into a member is lost, without any conflict, when someone else's manifest sends readers to another member.
So the routing is checked here, both for our writes under their manifest and for theirs under ours.

What "nothing changed" means is said once, in `Basis`: recode, restore and the merging of forks ask it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

import icechunk

from intarsia.array.box import Box
from intarsia.array.logical_group import LogicalGroup
from intarsia.array.manifest import Manifest
from intarsia.array.member import grain
from intarsia.array.routing import disturbed, rows_of, shown_in
from intarsia.versions.version import group_at, manifest_at, node_at

SHOWN_CHUNKS = 4


def _split(path: str) -> tuple[str, str]:
    group, _, name = path.rpartition("/")
    return group or "/", name


@dataclass(frozen=True)
class Changes:
    """Changes of a session or between two snapshots, sorted by group.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="first") as tx:
    ...     tx.create("a", shape=(4,), chunks=(2,), dtype="u1").append([1, 2], codecs=[])
    ...     sorted(Changes.of(tx.session.status()).groups)
    ['/', '/a']
    """

    groups: set[str] = field(default_factory=set)
    """Groups whose attributes, and so perhaps manifests, changed; or that are new or gone."""

    chunks: dict[str, dict[str, list[tuple[int, ...]]]] = field(default_factory=dict)
    """Group, then array name, then the chunks written."""

    arrays: set[str] = field(default_factory=set)
    """Paths of arrays that are new, gone or have other metadata."""

    @classmethod
    def of(cls, diff: icechunk.Diff) -> Self:
        chunks: dict[str, dict[str, list[tuple[int, ...]]]] = {}
        for path, indices in diff.updated_chunks.items():
            group, name = _split(path)
            chunks.setdefault(group, {})[name] = [tuple(index) for index in indices]
        groups = set(diff.new_groups) | set(diff.updated_groups) | set(diff.deleted_groups)
        arrays = set(diff.new_arrays) | set(diff.updated_arrays) | set(diff.deleted_arrays)
        return cls(groups, chunks, arrays)

    def all_groups(self) -> set[str]:
        """Every group in which anything changed."""
        return self.groups | self.chunks.keys() | {_split(path)[0] for path in self.arrays}

    def touches(self, group: str) -> bool:
        """Whether anything in a group changed."""
        return group in self.all_groups()


@dataclass(frozen=True)
class Basis:
    """What a change is built on: a box of a logical array as it was, holes included.

    It is unchanged if the array is still the same node, the box is as large as it was, every part of it is
    backed by the same place of the same member or, still, by nothing, and no chunk that it shows was written.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="create") as tx:
    ...     tx.create("t", shape=(4,), chunks=(2,), dtype="u1").add_region([(0, 2)], codecs=[])
    >>> basis = Basis.of(repo.readonly_session("main"), "t", Box((0,), (2,)))
    >>> _ = intarsia.write(repo, "t", 1, 9)
    >>> basis.changed_until(repo, repo.lookup_branch("main"))
    ['/t: [0:2] was written']
    """

    path: str
    """Of the logical array, from the root: /t."""

    node: str
    """Icechunk's identity of its group."""

    base: str
    """The snapshot that was read."""

    manifest: Manifest
    """The layout then."""

    box: Box
    """What of it counts, in logical chunks."""

    @classmethod
    def of(
        cls, base: icechunk.Session, path: str, box: Box | None = None, manifest: Manifest | None = None
    ) -> Self:
        """The box of a logical array in a session, by default all of it; its manifest is read if need be."""
        node, manifest = node_at(base, path), manifest or manifest_at(base, path)
        assert node is not None
        assert manifest is not None
        if box is None:
            box = Box.sized(manifest.lattice)
        return cls("/" + path.strip("/"), node, base.snapshot_id, manifest, box)

    def changed_until(self, repo: icechunk.Repository, tip: str) -> list[str]:
        """What of it was changed by the commits up to a snapshot, in words; empty if nothing was."""
        if tip == self.base:
            return []
        try:
            theirs = Changes.of(repo.diff(from_snapshot_id=self.base, to_snapshot_id=tip))
        except icechunk.InvalidInputError:
            return [f"the branch was reset to {tip}, where {self.base} is unknown"]
        return self.changed_in(repo.readonly_session(snapshot_id=tip), theirs.chunks.get(self.path, {}))

    def changed_in(
        self, session: icechunk.Session, written: Mapping[str, Iterable[tuple[int, ...]]]
    ) -> list[str]:
        """What of it is not the same in a session, where these chunks were written since, by member."""
        now = group_at(session, self.path) if node_at(session, self.path) == self.node else None
        if now is None:
            return [f"{self.path}: removed or made anew"]
        place = self.manifest.elements(self.box)
        if now.manifest.elements(self.box) != place or disturbed(self.manifest, now.manifest, [self.box]):
            return [f"{self.path}: {place.text()} has another layout now"]
        return [f"{self.path}: {shown.text()} was written" for shown in self._shown(now, written)]

    def _shown(self, now: LogicalGroup, written: Mapping[str, Iterable[tuple[int, ...]]]) -> list[Box]:
        """What the box shows of chunks: the part in the first one of each region."""
        parts_shown, place = [], self.manifest.elements(self.box)
        for i in self.manifest.regions.touching(self.box).tolist():
            row = self.manifest.regions.row(i)
            name = self.manifest.members[row.member]
            if not written.get(name):
                continue
            size = grain(now.members[name])
            parts = (shown_in(self.manifest, row, index, size) for index in written[name])
            shown = next((part for part in parts if part is not None and part.intersect(place)), None)
            if shown is not None:
                parts_shown.append(shown)
        return parts_shown


def clashes(ours: icechunk.Diff, theirs: icechunk.Diff) -> list[str]:
    """What both changed, in words; empty if Icechunk can put the two together."""
    clashing = []
    ours_groups = ours.updated_groups | ours.new_groups | ours.deleted_groups
    theirs_groups = theirs.updated_groups | theirs.new_groups | theirs.deleted_groups
    clashing += [f"{path}: layout or attributes" for path in sorted(ours_groups & theirs_groups)]
    ours_arrays = ours.updated_arrays | ours.new_arrays | ours.deleted_arrays
    theirs_arrays = theirs.updated_arrays | theirs.new_arrays | theirs.deleted_arrays
    clashing += [f"{path}: its metadata" for path in sorted(ours_arrays & theirs_arrays)]
    written, rewritten = ours.updated_chunks, theirs.updated_chunks
    for path in sorted((set(written) & theirs.deleted_arrays) | (set(rewritten) & ours.deleted_arrays)):
        clashing.append(f"{path}: written by one, removed by the other")
    clashing += [f"{path}: has another shape now" for path in sorted(set(written) & theirs.updated_arrays)]
    for path in sorted(set(written) & set(rewritten)):
        both = sorted({tuple(index) for index in written[path]} & {tuple(index) for index in rewritten[path]})
        if both:
            more = f" and {len(both) - SHOWN_CHUNKS} more" if len(both) > SHOWN_CHUNKS else ""
            clashing.append(f"{path}: chunks {', '.join(map(str, both[:SHOWN_CHUNKS]))}{more}")
    return clashing


def hidden_writes(repo: icechunk.Repository, session: icechunk.Session, base: str) -> list[str]:
    """Writes that would be invisible if this rebased session were committed; `base` is what it began with.

    Either we wrote into members that others' manifests no longer show, or they wrote into members that ours
    no longer shows.
    """
    tip = session.snapshot_id
    if tip == base:
        return []
    ours = Changes.of(session.status())
    theirs = Changes.of(repo.diff(from_snapshot_id=base, to_snapshot_id=tip))
    before = repo.readonly_session(snapshot_id=base)
    hidden = []
    for group in sorted(ours.groups | ours.chunks.keys()):
        if not theirs.touches(group):
            continue
        old = manifest_at(before, group)
        if old is None:
            continue  # no logical array then: Icechunk's own check of nodes is enough
        new = manifest_at(session, group)
        written = (theirs if group in ours.groups else ours).chunks.get(group, {})
        boxes = [row.box for row in rows_of(old, written)]
        hidden += [
            f"{group}: {old.elements(box).text()} has another layout now"
            for box in (boxes if new is None else disturbed(old, new, boxes))
        ]
    return hidden
