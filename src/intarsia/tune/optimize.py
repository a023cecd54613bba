"""Encoding the regions of a logical array anew where that pays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zarr.codecs import ShardingCodec

from intarsia.tune.advise import advise

if TYPE_CHECKING:
    from intarsia.array import LogicalArray
    from intarsia.tune.advise import Objective

__all__ = ["Change", "optimize"]

LEAST_GAIN = 0.05
"""A region is left alone unless it gets cheaper by this share: rewriting has a price too."""


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to one region.

    >>> Change(((0, 4),), "raw", "zstd-9", 1000, 400).saved
    600
    """

    bounds: tuple[tuple[int, int], ...]
    """The region."""

    before: str
    """Its codecs before."""

    after: str
    """Its encoding now; the same words as before if it was left alone."""

    bytes_before: int
    """Stored bytes before."""

    bytes_after: int
    """Stored bytes now."""

    @property
    def saved(self) -> int:
        """Stored bytes fewer than before."""
        return self.bytes_before - self.bytes_after


def optimize(array: LogicalArray, objective: Objective = "balanced") -> tuple[Change, ...]:
    """Recode every region for which another encoding is better by the objective; say what was done.

    The values stay the same. In a transaction all of it is one commit, and an older snapshot undoes it.

    >>> import intarsia, numpy as np
    >>> array = intarsia.create({}, "a", shape=(0, 100), chunks=(50, 100), dtype="int64")
    >>> array.append(np.zeros((100, 100), dtype="int64") + np.arange(100), codecs=[])
    >>> [change.before for change in array.optimize("size")]
    ['raw']
    """
    changes = []
    for region in array.regions:
        before, size = region.codec_names, region.nbytes_stored
        now = {"now": _inner(region.codecs)}
        current = advise(array, objective, bounds=region.bounds, encodings=now).best
        best = advise(array, objective, bounds=region.bounds).best
        if best.cost(objective) < (1 - LEAST_GAIN) * current.cost(objective):
            member = region.member
            array.recode(region.bounds, codecs=best.codecs, chunks=member.chunks, shards=member.shards)
            changed = array.region_at(tuple(a for a, _ in region.bounds))
            assert changed is not None
            changes.append(Change(region.bounds, before, best.name, size, changed.nbytes_stored))
        else:
            changes.append(Change(region.bounds, before, before, size, size))
    return tuple(changes)


def _inner(codecs: tuple[Any, ...]) -> list[Any]:
    """The codecs of a single chunk, which lie inside those of a shard."""
    return list(codecs[0].codecs) if isinstance(codecs[0], ShardingCodec) else list(codecs)
