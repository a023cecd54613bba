"""Writing one transaction from many processes: shares of the chunks, checked for overlaps."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import icechunk
import numpy as np

from intarsia._icechunk import writing
from intarsia.engine.prepared_member import object_shape
from intarsia.errors import ForkError
from intarsia.logical.chunk_copies import chunk_refs
from intarsia.logical.logical_array import LogicalArray
from intarsia.manifest.box import Bounds, Box
from intarsia.manifest.manifest_diff import region_part_in_chunk, rows_of
from intarsia.versions.commit import Changes, ReadPrecondition
from intarsia.versions.version import group_in_fork

type Chunks = dict[str, set[tuple[int, ...]]]
"""Chunks (or shards, if there are any) by member, or by the path of the array."""


@dataclass(eq=False, repr=False)
class WriteShare:
    """What one worker may write: chunks of members that no other share has. Made by `array.fork_for`.

    A share is pickled and sent to a worker, which writes to it and sends it back. `tx.merge` then merges it
    into the transaction, and refuses what was written outside it.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="by two workers") as tx:
    ...     array = tx.create("t", shape=(4,), chunks=(1,), dtype="u1")
    ...     array.add_region([(0, 4)], codecs=["gzip"])
    ...     shares = array.fork_for(2)
    ...     for share in shares:
    ...         for box in share.boxes:
    ...             share[box] = box[0].start + 10
    ...     tx.merge(*shares)
    >>> intarsia.open(repo, "t")[...].tolist()
    [10, 11, 12, 13]
    """

    array: LogicalArray
    """The logical array."""

    base: icechunk.ForkSession
    """The session as it was when the work was divided; nobody writes to it."""

    chunks: Chunks
    """The chunks that may be written."""

    @property
    def path(self) -> str:
        """The path of the logical array."""
        return self.array.path

    @property
    def fork(self) -> icechunk.ForkSession:
        """The worker's session."""
        store: Any = self.array.store
        session: icechunk.ForkSession = store.session
        return session

    @property
    def boxes(self) -> tuple[tuple[slice, ...], ...]:
        """The share as selections of the array, one per chunk."""
        return tuple(_boxes(self.array, self.chunks))

    @property
    def size(self) -> int:
        """The number of chunks."""
        return sum(len(indices) for indices in self.chunks.values())

    def __setitem__(self, selection: Any, value: Any) -> None:
        self.array.with_config(cross_region_writes=True)[selection] = value

    def __getitem__(self, selection: Any) -> np.ndarray[Any, Any]:
        return self.array[selection]

    def __repr__(self) -> str:
        return f"<WriteShare of {self.path!r}: {self.size} chunks>"


def fork_for(array: LogicalArray, workers: int, bounds: Bounds | None = None) -> list[WriteShare]:
    """Divide the chunks of an array, or those of a box of elements, among workers; one share each."""
    store = array.store
    if not isinstance(store, icechunk.IcechunkStore) or array.read_only:
        raise ForkError(
            "fork_for divides the work of a transaction, but this array is not in one.\n"
            "  with intarsia.transaction(repo) as tx: shares = tx.open(path).fork_for(4)"
        )
    if workers < 1:
        raise ForkError(f"fork_for({workers}): the number of workers must be at least 1")
    session = store.session
    # Workers write values, not manifests: what they may change is cut out of replicas right here.
    within = Box.sized(array.shape) if bounds is None else Box.of(bounds)
    array._logical.cut_replicas(array.manifest.cells(within))
    units = list(dict.fromkeys(_units(array, within)))
    edges = [len(units) * i // workers for i in range(workers + 1)]
    base = session.fork()  # forks of it share its snapshot, instead of writing one each
    shares = []
    for first, last in pairwise(edges):
        chunks: Chunks = {}
        for name, index in units[first:last]:
            chunks.setdefault(name, set()).add(index)
        apart = group_in_fork(array._logical, base.fork())
        shares.append(WriteShare(LogicalArray(apart, array.config), base, chunks))
    return shares


def _units(array: LogicalArray, within: Box) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every chunk that backs the box, member by member; once for each region that shows it."""
    manifest = array.manifest
    for name in manifest.members:
        size = object_shape(array.members[name])
        for row in rows_of(manifest, [name]):
            part = manifest.elements(row.box).intersect(within)
            if part is not None:
                for index in manifest.to_member(row, part).in_units(size).indices():
                    yield name, index


def _boxes(array: LogicalArray, chunks: Chunks) -> Iterator[tuple[slice, ...]]:
    manifest = array.manifest
    for name, indices in chunks.items():
        size = object_shape(array.members[name])
        for row in rows_of(manifest, [name]):
            for index in sorted(indices):
                part = region_part_in_chunk(manifest, row, index, size)
                if part is not None:
                    yield part.slices


def merge_shares(session: icechunk.Session, shares: Iterable[WriteShare]) -> None:
    """Merge the changes of workers into a session; all of them are checked before any is merged."""
    shares = list(shares)
    if problem := next(_problems(session, shares), None):
        raise ForkError(
            f"{problem}.\n  Nothing was merged. Change the layout first, then divide the work with "
            "array.fork_for(n), and let every worker write to share.boxes only"
        )
    with writing(session):
        session.merge(*(share.fork for share in shares))


def _problems(session: icechunk.Session, shares: list[WriteShare]) -> Iterator[str]:
    """What a merge would lose or must not change; nothing but values in the chunks of a share may differ."""
    bases = {share.base.snapshot_id: share.base for share in shares}
    refs_before = cache(lambda base, path: chunk_refs(bases[base].store, path.strip("/")))
    refs_now = cache(lambda path: chunk_refs(session.store, path.strip("/")))
    written: Chunks = {}
    for share in shares:
        changes = Changes.of(share.fork.status())
        if changed := ReadPrecondition.of(share.base, share.path).violations_in(session, {}):
            yield f"the layout of {share.path!r} changed after the work was divided: {changed[0]}"
        if changes.groups or changes.arrays:
            yield f"a worker changed more than values: {min(changes.groups | changes.arrays)}"
        for path, indices in changes.chunks.items():
            group, _, name = path.strip("/").rpartition("/")
            if extra := indices - (share.chunks.get(name, set()) if group == share.path else set()):
                yield f"a worker wrote chunks that are not in its share, such as {min(extra)} of {path}"
            if twice := written.setdefault(path, set()) & indices:
                yield f"two workers wrote the same chunks, such as {min(twice)} of {path}"
            written[path] |= indices
            # No matter by whom: by the transaction itself, or by others on whose commit it began.
            before, now = refs_before(share.base.snapshot_id, path), refs_now(path)
            if late := [index for index in indices if before.get(index) != now.get(index)]:
                yield f"chunks were written after the work was divided, {min(late)} of {path}"
