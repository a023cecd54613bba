"""An array as reads and writes see it: `ArrayState`, which is fixed while one of them uses it, and
`ArrayHandle`, which knows the current one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from intarsia._icechunk import is_immutable
from intarsia.display import place_text
from intarsia.engine.fetch.store import StoreFetcher, read_key
from intarsia.errors import DataTypeError, IntarsiaError, MemberError, ReadError, signal_failure
from intarsia.manifest.data_types import type_text
from intarsia.manifest.region_table import NONE

if TYPE_CHECKING:
    from zarr.storage import StorePath

    from intarsia.engine.plan import RegionPart
    from intarsia.engine.prepared_member import AnyArray, AnyMember, PreparedMember
    from intarsia.manifest.manifest import Manifest
    from intarsia.manifest.packing import Packing
    from intarsia.manifest.packing_columns import Packings
    from intarsia.manifest.region_table import Row


MAX_CHANGES = 100
"""How many times in a row a read or write is repeated because the state has changed."""


class ReplicaFallback(NamedTuple):
    """A region that could not be read, for which another layer stood in."""

    bounds: tuple[tuple[int, int], ...]
    """The bounds of the region, in elements."""

    layer: int
    """The layer of the region."""

    member: str
    """The name of the member behind it."""

    reason: str = ""
    """The message of the failure."""


class MemberArrays(Protocol):
    """The arrays behind the regions of an array, by name."""

    def __getitem__(self, name: str, /) -> AnyArray: ...

    def open_together(self, names: Iterable[str]) -> None:
        """Open several of them at once, if that is faster; one that fails is left to be opened alone."""


class ArrayState[M: MemberArrays]:
    """One state of an array: its manifest, and its members, prepared for reading and writing.

    A read or write works on one state from beginning to end, no matter what other threads do to the array.
    """

    def __init__(self, manifest: Manifest, members: M) -> None:
        self.manifest = manifest
        self.members = members
        self._sources: dict[str, AnyMember] = {}
        self._fitting: dict[int, AnyMember] = {}  # by row: what was found to fit the region

    def sources_of(self, parts: Sequence[RegionPart]) -> list[AnyMember]:
        """The members behind the parts of a plan, checked and prepared; an error names the row."""
        members, owner = self.manifest.members, self.manifest.regions_and_replicas.member
        if len(parts) > 1:
            self.members.open_together([members[owner[part.row]] for part in parts])
        sources = []
        for part in parts:
            source = self._fitting.get(part.row)
            if source is None or part.strip is not None:
                try:
                    source = self._checked_source(part)
                except IntarsiaError as error:
                    error.row = part.row
                    raise
            sources.append(source)
        return sources

    def _checked_source(self, part: RegionPart) -> AnyMember:
        """The member behind a part, found to fit its regions."""
        from intarsia.engine.prepared_member import checked_member  # opening reads nothing

        manifest, table = self.manifest, self.manifest.regions_and_replicas
        source = self.source(manifest.members[table.member[part.row]])
        rows = (part.row,)
        if part.strip is not None:
            # The regions that need most of the member are at the ends; one of each kind stands for its type.
            rows, numbers = part.strip.rows.tolist(), table.packing[part.strip.rows]
            kinds = numbers if numbers[0] == NONE else manifest.packings.kind[numbers]
            rows = (rows[0], rows[-1], *(rows[k] for k in np.unique(kinds, return_index=True)[1].tolist()))
        for i in rows:
            if self._fitting.get(i) is not source:
                checked_member(source.array, manifest, table.row(i))
                self._fitting[i] = source
        return source

    def packing_of(self, i: int) -> Packing | None:
        """How the stored numbers behind row `i` become values; None if they are values."""
        manifest = self.manifest
        number = int(manifest.regions_and_replicas.packing[i]) if len(manifest.packings) else NONE
        return None if number == NONE else manifest.packings[number]

    def packings_of(self, part: RegionPart) -> Packing | Packings | None:
        """How the stored numbers behind a part become values; one for each region if it is a strip."""
        if part.strip is None:
            return self.packing_of(part.row)
        numbers = self.manifest.regions_and_replicas.packing[part.strip.rows]
        return None if numbers[0] == NONE else self.manifest.packings.select(numbers)

    def source(self, name: str) -> AnyMember:
        """A member, prepared for reading and writing."""
        member = self.members[name]
        source = self._sources.get(name)
        if source is None or source.array is not member or not source.is_current:
            from intarsia.engine.prepared_member import PreparedMember

            source = self._sources[name] = PreparedMember.of(name, member)
        return source

    def change(self, manifest: Manifest, members: M) -> ArrayState[M]:
        """The next state; members that stay are not prepared again."""
        state = ArrayState(manifest, members)
        state._sources = {name: self._sources[name] for name in manifest.members if name in self._sources}
        return state

    def region_text(self, row: Row) -> str:
        """A region as messages name it: [0:500, 0:1000] (m-6f1c…, gzip)."""
        from intarsia.engine.prepared_member import short_codecs

        name = self.manifest.members[row.member]
        try:
            codecs = ", " + short_codecs(self.members[name], settings=False)
        except (MemberError, KeyError):
            codecs = ""
        layer = f", layer {row.layer}" if row.layer else ""
        return f"{self.manifest.elements(row.box).text()} ({name[:6]}{codecs}{layer})"


class ArrayHandle[M: MemberArrays](ABC):
    """The current state of an array, its store, and how to find out that it has changed."""

    state: ArrayState[M]
    """The state as last read or written."""

    _fetcher: StoreFetcher | None = None
    _last_seen: tuple[bytes, ArrayState[M]] | None = None
    """The document that was found to describe a state, and that state."""

    @cached_property
    def fallbacks(self) -> dict[tuple[int, int], ReplicaFallback]:
        """Regions that could not be read and for which another layer stood in, by generation and row."""
        return {}

    def fell_back(self, state: ArrayState[M], row: int, error: Exception) -> None:
        """Record that another layer stands in for a region that cannot be read."""
        manifest = state.manifest
        region = manifest.regions_and_replicas.row(row)
        bounds, member = manifest.elements(region.box).bounds, manifest.members[region.member]
        self.fallbacks[manifest.generation, row] = ReplicaFallback(bounds, region.layer, member, str(error))

    @property
    @abstractmethod
    def store_path(self) -> StorePath:
        """Where the array is."""

    @abstractmethod
    def chunk_text(
        self, state: ArrayState[M], row: int, source: PreparedMember, index: tuple[int, ...] | None
    ) -> str:
        """The name in messages of a chunk behind a region; the index is None if it is unknown."""

    @abstractmethod
    def reload(self) -> None:
        """Pick up what other handles have changed."""

    @abstractmethod
    def is_described_by(self, document: bytes, state: ArrayState[M]) -> bool:
        """Whether a metadata document in the store means this state."""

    @abstractmethod
    def still_backs(self, state: ArrayState[M], rows: Sequence[int]) -> bool:
        """Whether the current state shows these regions of an older one from the same places."""

    @property
    def manifest(self) -> Manifest:
        return self.state.manifest

    @property
    def store(self) -> Any:
        return self.store_path.store

    @property
    def path(self) -> str:
        return self.store_path.path

    @property
    def read_only(self) -> bool:
        given_up = getattr(self.store, "is_given_up", False)
        return bool(self.store.read_only) or is_immutable(self.store) or given_up

    def fetcher(self) -> StoreFetcher:
        """The current way to read from the store."""
        fetcher = self._fetcher
        if fetcher is None or not fetcher.is_current:
            from intarsia.engine.fetch.fetcher_choice import fetcher_for  # opening reads nothing

            fetcher = self._fetcher = fetcher_for(self.store)
        return fetcher

    @property
    def document_key(self) -> str:
        """Where the metadata is that tells whether the state is current."""
        return f"{self.path}/zarr.json".lstrip("/")

    def is_current(self, state: ArrayState[M]) -> bool:
        """Whether the store agrees with the state; costs one small read if anything may have changed and
        this was not checked yet."""
        if self.fetcher().immutable:
            return True
        document = read_key(self.store, self.document_key)
        if not document:
            return False
        if self._last_seen != (document, state):
            if not self.is_described_by(document, state):
                return False
            self._last_seen = document, state
        return True

    def retry_on_change[T](self, work: Callable[[ArrayState[M]], tuple[T, Sequence[int]]]) -> T:
        """Do some work on the state, and repeat it if the state turns out to be outdated.

        The work returns its result, and the rows of the regions that must still be backed as they were for
        the result to count. For a read, these are those in which chunks are missing: chunks of a removed
        member look as if they had never been written. For a write, they are all that it touched: what goes to
        a removed member is lost.
        """
        for _ in range(MAX_CHANGES):
            state = self.state
            try:
                result, doubtful = work(state)
            except Exception as error:
                if signal_failure(error) is not None or not self._was_replaced(state):
                    raise
                self._catch_up(state)
                continue
            if not doubtful or self._counts(state, doubtful):
                return result
        raise ReadError(
            f"the layout of the array at {place_text(self.store_path)} was changed {MAX_CHANGES} "
            "times while it was read or written"
        )

    def _counts(self, state: ArrayState[M], doubtful: Sequence[int]) -> bool:
        """Whether work on a state counts; if the state has changed, the current one is picked up."""
        if self.is_current(state):
            return True
        self._catch_up(state)
        return self.still_backs(state, doubtful)

    def _was_replaced(self, state: ArrayState[M]) -> bool:
        """Whether a failure may come from an outdated state."""
        try:
            return not self.is_current(state)
        except Exception:  # the store does not answer at all: the first failure says more
            return False

    def _catch_up(self, state: ArrayState[M]) -> None:
        """Pick up the state that has replaced this one."""
        self.reload()
        before, now = state.manifest, self.manifest
        if before.data_type != now.data_type or before.ndim != now.ndim:
            raise DataTypeError(
                f"the array at {place_text(self.store_path)} was replaced by another one: it is "
                f"{type_text(now.data_type)} of shape {now.shape} now, but was "
                f"{type_text(before.data_type)} of shape {before.shape}.\n  Open it again"
            )
