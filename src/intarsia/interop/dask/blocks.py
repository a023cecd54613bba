"""Cutting data that workers write: into blocks of whole chunks, so that no chunk belongs to two of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from intarsia.array.reserve import Piece


type Sizes = tuple[int, ...]


def aligned(sizes: Sequence[Sizes], piece: Piece, grain: Sequence[int]) -> tuple[Sizes, ...]:
    """Block sizes as near to `sizes` as whole chunks of the member allow.

    >>> from intarsia.array.reserve import Piece
    >>> from intarsia.array.box import Box
    >>> piece = Piece("m-1", Box((0,), (10,)), Box((2,), (12,)))  # starts within the chunk [0:4]
    >>> aligned([(3, 3, 4)], piece, (4,))
    ((2, 4, 4),)
    """
    axes = zip(sizes, piece.target.start, grain, piece.target.shape, strict=True)
    return tuple(_axis(blocks, start, chunk, size) for blocks, start, chunk, size in axes)


def _axis(blocks: Sizes, start: int, chunk: int, size: int) -> Sizes:
    """A cut of the source moves down to where a chunk of the member begins."""
    moved = {(start + cut) // chunk * chunk - start for cut in accumulate(blocks)}
    edges = [0, *sorted(edge for edge in moved if 0 < edge < size), size]
    return tuple(b - a for a, b in pairwise(edges))


class Placed(Protocol):
    """Something that goes into a box of a member, whose chunks are written as wholes."""

    @property
    def piece(self) -> Piece:
        """Where it goes."""

    @property
    def grain(self) -> Sequence[int]:
        """The member's chunk or shard shape."""


def rounds[P: Placed](parts: Sequence[P]) -> list[list[P]]:
    """The parts in groups that can be written at once: two that share a chunk are in different ones.

    >>> from types import SimpleNamespace as Part
    >>> from intarsia.array.reserve import Piece
    >>> from intarsia.array.box import Box
    >>> pieces = [Piece("m-1", Box((a,), (a + 2,)), Box((a,), (a + 2,))) for a in (0, 2)]
    >>> [len(group) for group in rounds([Part(piece=piece, grain=(2,)) for piece in pieces])]
    [2]
    >>> [len(group) for group in rounds([Part(piece=piece, grain=(4,)) for piece in pieces])]
    [1, 1]
    """
    groups: list[list[P]] = []
    for part in parts:
        free = (g for g in groups if not any(_share_a_chunk(part, other) for other in g))
        group = next(free, None)
        if group is None:
            groups.append([part])
        else:
            group.append(part)
    return groups


def _share_a_chunk(one: Placed, other: Placed) -> bool:
    if one.piece.member != other.piece.member:
        return False
    chunks = one.piece.target.in_units(one.grain)
    return chunks.intersect(other.piece.target.in_units(one.grain)) is not None
