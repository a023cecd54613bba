"""What the read engine asks of a store: the sizes of stored objects, and the bytes of many at once."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from intarsia.array.source import EngineSource
    from intarsia.array.table import Ints


type Encoded = Any
"""Bytes as they are stored: anything with the buffer protocol, or a `FileSpan` that was not read yet."""


class Spans(NamedTuple):
    """Bytes of stored objects of one member: whole objects, or a range of each."""

    source: EngineSource
    """The member."""

    blob: Ints
    """Which objects: positions in the member's grid of stored chunks (or shards), in C order."""

    start: Ints | None = None
    """First byte of each; negative ones count from the end. None means whole objects."""

    nbytes: Ints | None = None
    """Length of each range; None with whole objects."""


class Pending(Protocol):
    """Bytes that are on their way."""

    def __iter__(self) -> Generator[Encoded | None]:
        """The bytes in the order they were asked for, None for what is not stored; raises at the one that
        could not be read."""

    def cancel(self) -> None:
        """Give up; nothing is left running."""


class Fetcher(Protocol):
    """One way to get encoded chunks out of a store."""

    name: str
    """How `explain` calls it."""

    in_threads: bool
    """Whether bytes are read one by one in the thread that decodes them, so that nothing is held ahead."""

    lasting: bool
    """Whether what it says stays true, as in a read-only snapshot; then sizes and indexes may be kept."""

    def sizes(self, sources: Sequence[tuple[EngineSource, Ints]]) -> list[Ints | None]:
        """Stored bytes of these objects of each member, -1 for what is not stored; None where that is
        not known without reading them."""

    def for_member(self, source: EngineSource) -> Fetcher:
        """The fetcher for this member: itself, or another one that can do what it needs."""

    def begin(self, spans: Sequence[Spans]) -> Pending:
        """Start to fetch, and say where the bytes will be."""
