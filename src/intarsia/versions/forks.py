"""Writing one transaction from many processes: shares of the chunks, checked for overlaps."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
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
from intarsia.versions.commit import Changes, ReadPrecondition, chunks_text
from intarsia.versions.version import group_in_fork

type Chunks = dict[str, set[tuple[int, ...]]]
"""Chunks (or shards, if there are any) by member, or by the path of the array."""
type Places = dict[tuple[str, str], dict[tuple[int, ...], Any]]
"""Where the chunks of arrays are stored, by snapshot ("" for the session itself) and path."""


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
    cached: Places = {}
    written: Chunks = {}
    for share in shares:
        changes = Changes.of(share.fork.status())
        _check_share(share, session, changes)
        for path, indices in changes.chunks.items():
            if twice := written.setdefault(path, set()) & indices:
                raise ForkError(
                    f"two workers wrote the same chunks, {chunks_text(twice)} of {path}: one would overwrite "
                    "the other.\n  Nothing was merged. Give every worker its own share: array.fork_for(n)"
                )
            _check_chunks(session, share.base, path, indices, cached)
            written[path] |= indices
    with writing(session):
        session.merge(*(share.fork for share in shares))


def _check_share(share: WriteShare, session: icechunk.Session, changes: Changes) -> None:
    """Refuse anything but values in the chunks of the share, for the layout that was divided."""
    if changed := ReadPrecondition.of(share.base, share.path).violations_in(session, {}):
        raise ForkError(
            f"the layout of {share.path!r} changed after the work was divided: {changed[0]}.\n"
            "  Nothing was merged. Change the layout first, then divide the work: array.fork_for(n)"
        )
    if changes.groups or changes.arrays:
        raise ForkError(
            f"a worker changed more than values: {min(changes.groups | changes.arrays)}.\n"
            "  Nothing was merged. Change layout and attributes in the transaction itself"
        )
    for path, indices in changes.chunks.items():
        group, _, name = path.strip("/").rpartition("/")
        extra = indices - (share.chunks.get(name, set()) if group == share.path else set())
        if extra:
            raise ForkError(
                f"a worker wrote chunks that are not in its share: {chunks_text(extra)} of {path}.\n"
                "  Nothing was merged. Write only to the selections in share.boxes"
            )


def _check_chunks(
    session: icechunk.Session,
    base: icechunk.ForkSession,
    path: str,
    indices: set[tuple[int, ...]],
    cached: Places,
) -> None:
    """Refuse a worker's chunks if those in the session are not the ones that the worker began with.

    It makes no difference who wrote them: the transaction itself, or others on whose commit it began.
    `cached` remembers what many workers have in common.
    """
    for snapshot, one in ((base.snapshot_id, base), ("", session)):
        if (snapshot, path) not in cached:
            cached[snapshot, path] = chunk_refs(one.store, path.strip("/"))
    before, now = cached[base.snapshot_id, path], cached["", path]
    changed = [index for index in indices if before.get(index) != now.get(index)]
    if changed:
        raise ForkError(
            f"chunks were written after the work was divided, {chunks_text(changed)} of {path}: the worker's "
            "would overwrite them.\n  Nothing was merged. Divide the work again: array.fork_for(n)"
        )
