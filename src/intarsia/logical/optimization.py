"""`optimize`: puts every region into the encoding that suits it best."""

from dataclasses import dataclass
from typing import ClassVar

from intarsia.codecs import CodecLike
from intarsia.display import Listing, size_text
from intarsia.engine.prepared_member import short_codecs
from intarsia.logical.advice import Objective, advise
from intarsia.logical.encoding import Encoding, chunk_codecs, chunks_and_shards
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.recode import copy_values, reserve_recode
from intarsia.logical.region import Region, stored_size
from intarsia.progress import Progress, part_of, silent

MIN_GAIN = 0.05
"""A region is left alone unless it gets cheaper by this fraction: rewriting has a price too."""


@dataclass(frozen=True, slots=True)
class OptimizedRegion:
    """What `optimize` did to one region.

    >>> OptimizedRegion(((0, 4),), "raw", "zstd-9", 1000, 400).saved
    600
    """

    bounds: tuple[tuple[int, int], ...]
    """The bounds of the region."""

    before: str
    """Its codecs before."""

    after: str
    """Its codecs now."""

    bytes_before: int
    """The stored bytes before."""

    bytes_after: int
    """The stored bytes now."""

    @property
    def saved(self) -> int:
        """How many stored bytes were saved."""
        return self.bytes_before - self.bytes_after


class OptimizedRegions(Listing[OptimizedRegion]):
    """What `optimize` changed.

    >>> OptimizedRegions([OptimizedRegion(((0, 4),), "raw", "zstd-9", 1000, 400)])
    Region  Codecs before  Codecs after  Stored before  Stored  Saved
    [0:4]   raw            zstd-9                 1 kB   400 B  600 B
    """

    columns: ClassVar = {
        "Region": "bounds",
        "Codecs before": "before",
        "Codecs after": "after",
        "Stored before": "bytes_before",
        "Stored": "bytes_after",
        "Saved": lambda change: f"{'-' * (change.saved < 0)}{size_text(abs(change.saved))}",
    }
    empty = "no region would gain from another encoding"


def optimize(
    array: LogicalArray, objective: Objective = "balanced", *, progress: Progress = silent
) -> OptimizedRegions:
    """Recode every region for which another encoding is better by the objective, and return the changes.

    The values stay the same. With the objective "size", no region gets larger: a region that would not shrink
    stays as it is. In a transaction, all of it is one commit, and an older snapshot undoes it. Steps of the
    progress are bytes of values.

    >>> import intarsia, numpy as np
    >>> array = intarsia.create({}, "a", shape=(0, 100), chunks=(50, 100), dtype="int64")
    >>> array.append(np.zeros((100, 100), dtype="int64") + np.arange(100), codecs=[])
    >>> [change.before for change in array.optimize("size")]
    ['raw']
    """
    regions, changes = array.regions, []
    whole, done = sum(region.nbytes for region in regions), 0
    progress(0, whole)
    for region in regions:
        changes.append(_optimized(array, region, objective, part_of(progress, done, region.nbytes, whole)))
        done += region.nbytes
        progress(done, whole)
    return OptimizedRegions(change for change in changes if change is not None)


def _optimized(
    array: LogicalArray, region: Region, objective: Objective, progress: Progress
) -> OptimizedRegion | None:
    """Recode one region, if that makes it better; None if it stays as it is."""
    chunks, shards = chunks_and_shards(region.member, region.view)
    before, size = short_codecs(region.member), region.nbytes_stored
    stored = array.as_stored(region.bounds)
    now: dict[str, list[CodecLike]] = {"now": [*chunk_codecs(region.member, region.view)]}
    current = advise(stored, objective, bounds=region.bounds, encodings=now, chunks=chunks).best
    best = advise(stored, objective, bounds=region.bounds, chunks=chunks).best
    gain = 1 - best.cost(objective) / max(current.cost(objective), 1e-12)
    if gain <= MIN_GAIN:
        return None
    encoding = Encoding(best.codecs, chunks, shards, options=array.config.options, keep_packing=True)
    logical = array._logical
    logical.begin_edit()
    reservation = reserve_recode(logical, region.row.box, encoding)
    with reservation.discarded_on_failure():
        copy_values(reservation, progress=progress)
        member = logical.members[reservation.new_members[0]]
        change = OptimizedRegion(region.bounds, before, short_codecs(member), size, stored_size(member))
    if objective == "size" and change.saved <= 0:  # the samples misled about the rest
        reservation.discard()
        return None
    reservation.commit()
    return change
