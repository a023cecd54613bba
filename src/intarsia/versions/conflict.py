"""What others committed meanwhile, and whether it takes away the ground under a session's changes.

Icechunk compares changes node by node and chunk by chunk. That is not enough for logical arrays: a write
into a member is lost, without any conflict, when someone else's manifest sends readers to another member.
So the routing is checked here, both for our writes under their manifest and for theirs under ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from intarsia.array.routing import keeps_routing, rows_of
from intarsia.versions.lookup import manifest_at

if TYPE_CHECKING:
    import icechunk


__all__ = ["Changes", "clashes", "hidden_writes"]

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
    def of(cls, diff: icechunk.Diff) -> Changes:
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


def clashes(ours: icechunk.Diff, theirs: icechunk.Diff) -> list[str]:
    """What both changed, in words; empty if Icechunk can put the two together."""
    found = []
    ours_groups = ours.updated_groups | ours.new_groups | ours.deleted_groups
    theirs_groups = theirs.updated_groups | theirs.new_groups | theirs.deleted_groups
    found += [f"{path}: layout or attributes" for path in sorted(ours_groups & theirs_groups)]
    ours_arrays = ours.updated_arrays | ours.new_arrays | ours.deleted_arrays
    theirs_arrays = theirs.updated_arrays | theirs.new_arrays | theirs.deleted_arrays
    found += [f"{path}: its metadata" for path in sorted(ours_arrays & theirs_arrays)]
    written, rewritten = ours.updated_chunks, theirs.updated_chunks
    for path in sorted((set(written) & theirs.deleted_arrays) | (set(rewritten) & ours.deleted_arrays)):
        found.append(f"{path}: written by one, removed by the other")
    found += [f"{path}: has another shape now" for path in sorted(set(written) & theirs.updated_arrays)]
    for path in sorted(set(written) & set(rewritten)):
        both = sorted({tuple(index) for index in written[path]} & {tuple(index) for index in rewritten[path]})
        if both:
            more = f" and {len(both) - SHOWN_CHUNKS} more" if len(both) > SHOWN_CHUNKS else ""
            found.append(f"{path}: chunks {', '.join(map(str, both[:SHOWN_CHUNKS]))}{more}")
    return found


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
    found = []
    for group in sorted(ours.groups | ours.chunks.keys()):
        if not theirs.touches(group):
            continue
        old = manifest_at(before, group)
        if old is None:
            continue  # no logical array then: Icechunk's own check of nodes is enough
        new = manifest_at(session, group)
        written = (theirs if group in ours.groups else ours).chunks.get(group, {})
        found += [
            f"{group}: {old.elements(row.box).text()} has another layout now"
            for row in rows_of(old, written)
            if new is None or not keeps_routing(old, new, row)
        ]
    return found
