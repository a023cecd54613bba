"""The group behind a logical array: its manifest, read and written, and its members."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import icechunk
import zarr

from intarsia._compat import sync
from intarsia._icechunk import is_immutable
from intarsia.codecs.runtime_options import NO_OPTIONS, PicklableOptions, RuntimeOptions, remembered_decision
from intarsia.display import one_line, place_text
from intarsia.engine.array_handle import ArrayHandle, ArrayState
from intarsia.errors import ManifestError, NotLogicalArrayError, ReadOnlyError, signal_failure
from intarsia.logical.hierarchy import open_group
from intarsia.logical.members import Members
from intarsia.manifest.document import CONVENTIONS_KEY, MANIFEST_KEY, NAME, convention, new_name
from intarsia.manifest.manifest import INLINE_REGIONS, Manifest

if TYPE_CHECKING:
    from zarr.storage import StorePath

    from intarsia.codecs import Decision
    from intarsia.engine.prepared_member import PreparedMember
    from intarsia.logical.encoding import Encoding
    from intarsia.logical.members import Live
    from intarsia.manifest.box import Box
    from intarsia.manifest.manifest import NewRegion
    from intarsia.manifest.region_table import Row


@contextmanager
def _named(group: zarr.Group) -> Iterator[None]:
    """Name the array whose manifest has something wrong with it."""
    try:
        yield
    except ManifestError as error:
        error.add_note(f"in the attributes of {place_text(group.store_path)}")
        raise


class LogicalArrayHandle(ArrayHandle[Members]):
    """A logical array's group, its state as last read or written, and how to change it."""

    def __init__(
        self,
        group: zarr.Group,
        manifest: Manifest,
        live: Live | None = None,
        default: Decision | None = None,
    ) -> None:
        self.group = group
        self.state = ArrayState(manifest, Members(group, manifest.members, live))
        self.default = default
        """The decision if there is no other: the default of the process that handed out the work."""
        # Threads may share a handle. A thread that reads or writes the manifest, and keeps the result, does
        # both in one turn: otherwise a slow reader could replace the state that a writer is working on by an
        # old one.
        self._turn = threading.RLock()

    @property
    def store_path(self) -> StorePath:
        return self.group.store_path

    def chunk_text(
        self, state: ArrayState[Members], row: int, source: PreparedMember, index: tuple[int, ...] | None
    ) -> str:
        region = state.region_text(state.manifest.regions_and_replicas.row(row))
        return f"region {region}, member {source.name}" + ("" if index is None else f", chunk {index}")

    @property
    def members(self) -> Members:
        return self.state.members

    @classmethod
    def load(cls, group: zarr.Group, *, later: bool = False) -> LogicalArrayHandle:
        """Read and check the manifest of a group.

        With `later`, a table beside the members is read on demand, and nobody else may write.
        """
        return cls(group, cls._read_manifest(group, later))

    @staticmethod
    def _read_manifest(group: zarr.Group, later: bool = False) -> Manifest:
        attributes = group.metadata.attributes
        if MANIFEST_KEY not in attributes:
            raise NotLogicalArrayError(
                f"{place_text(group.store_path)} is a Zarr group, but not a logical array: "
                f"it has no attribute {MANIFEST_KEY!r}.\n"
                "  Create one with intarsia.create(store, path, shape=…, chunks=…, dtype=…)",
                command="Create one: intarsia create STORE PATH --shape … --chunks … --dtype …",
            )
        document: Any = attributes[MANIFEST_KEY]
        in_table = isinstance(document, dict) and isinstance(document.get("regions"), str)

        @cache
        def read() -> Manifest:
            with _named(group):
                table = LogicalArrayHandle._open_table(group, document) if in_table else None
                return Manifest.from_json(document, table)

        # A table of thousands of regions takes longer than all the rest, and is not needed to know what an
        # array is. In a snapshot it cannot change or vanish before it is needed.
        if in_table and (later or is_immutable(group.store)):
            with _named(group):
                return Manifest.described(document, read)
        return read()

    @staticmethod
    def _open_table(
        group: zarr.Group, document: Any, mode: Literal["r", "r+"] = "r"
    ) -> zarr.Array[Any] | None:
        """The array that holds the regions, if the manifest names one; not read yet."""
        name = document.get("regions") if isinstance(document, dict) else None
        if not isinstance(name, str) or not NAME.match(name):
            return None
        try:
            return zarr.open_array(
                group.store_path / name, mode=mode, zarr_format=3, config={"read_missing_chunks": False}
            )
        except FileNotFoundError:
            return None
        except Exception as error:
            if signal_failure(error) is not None:
                raise
            problem = f"regions: the table {name!r} cannot be opened: {one_line(error)}"
            raise ManifestError([problem]) from error

    def reload(self) -> None:
        """Pick up what other handles have changed."""
        with self._turn:
            try:
                fresh = open_group(self.group, "", "r" if self.group.store.read_only else "r+")
            except FileNotFoundError as error:
                raise NotLogicalArrayError(
                    f"the logical array at {place_text(self.group.store_path)} is gone: {one_line(error)}"
                ) from error
            manifest = self._read_manifest(fresh)
            self.group = fresh
            if manifest.generation != self.manifest.generation or manifest != self.manifest:
                self.state = ArrayState(manifest, self.members.reopened(fresh, manifest.members))
            self._fetcher = None

    def is_described_by(self, document: bytes, state: ArrayState[Members]) -> bool:
        return state.manifest.matches(document)

    def still_backs(self, state: ArrayState[Members], rows: Sequence[int]) -> bool:
        from intarsia.manifest.manifest_diff import rebacked_boxes

        boxes = [state.manifest.regions_and_replicas.row(i).box for i in rows]
        return not rebacked_boxes(state.manifest, self.manifest, boxes)

    def begin_edit(self) -> None:
        """Called before every change of the state: makes sure that it is writable and up to date."""
        self.check_writable()
        self.reload()

    def check_writable(self) -> None:
        if not self.read_only:
            return
        raise ReadOnlyError(
            f"this handle on {place_text(self.group.store_path)} is read-only: it was opened for reading, or "
            "its transaction has ended.\n  Open it for writing: with intarsia.transaction(repo) as tx: "
            "tx.open(path); in a plain store, intarsia.open(store, path, mode='r+')"
        )

    def commit(self, manifest: Manifest, more: Mapping[str, Any] | None = None) -> None:
        """Make `manifest` the current one; then remove what nothing refers to any more.

        Members and the table are in place before the attributes change, so that a crash leaves the old
        array or the new one. Anything that a reader would refuse is refused here. `more` are attributes to
        set in the same write.
        """
        from intarsia.manifest.region_table_array import INLINE_IN_TRANSACTIONS, store_table

        manifest.check()
        with self._turn:
            state, now = self.state, self.state.manifest
            attributes: dict[str, Any] = {**self.group.metadata.attributes, **(more or {})}
            old = attributes.get(MANIFEST_KEY)
            old_table = old.get("regions") if isinstance(old, dict) else None
            table_name = None
            is_in_transaction = isinstance(self.group.store, icechunk.IcechunkStore)
            most_inline = min(INLINE_REGIONS, INLINE_IN_TRANSACTIONS) if is_in_transaction else INLINE_REGIONS
            if len(manifest.regions_and_replicas) > most_inline:
                table = self._open_table(self.group, old, "r+")
                # Replicas come after regions here, but anywhere in the stored table: then all are written.
                as_stored = table is not None and not len(now.replicas)
                before = now.table() if as_stored else manifest.table()[:0]
                table_name = store_table(self.group.store_path, manifest.table(), table, before)
            attributes[MANIFEST_KEY] = manifest.to_json(table_name)
            entry = convention(manifest.version)
            others = [c for c in attributes.get(CONVENTIONS_KEY, []) if c.get("uuid") != entry["uuid"]]
            attributes[CONVENTIONS_KEY] = [*others, entry]
            self.group = self.group.update_attributes(attributes)
            unreferenced = set(now.members) - set(manifest.members)
            if isinstance(old_table, str) and old_table != table_name:
                unreferenced.add(old_table)
            self.state = state.change(manifest, state.members.renamed(manifest.members))
        if unreferenced:
            self.discard(*sorted(unreferenced))

    def extend(self, axis: int, shape: tuple[int, ...], regions: Sequence[NewRegion]) -> bool:
        """Add regions after all others, without reading those.

        Returns False, and nothing is done, if regions are not in a table that can be extended by these.
        """
        from intarsia.manifest.region_table_array import extend_table

        with self._turn:
            document: Any = self.group.metadata.attributes.get(MANIFEST_KEY)
            table = self._open_table(self.group, document, "r+")
            changes = extend_table(self.manifest, table, axis, shape, regions)
            if changes is None:
                return False
            changed = {**document, **changes, "generation": document["generation"] + 1}
            self.group = self.group.update_attributes({MANIFEST_KEY: changed})
            manifest = self._read_manifest(self.group, later=True)
            self.state = self.state.change(manifest, self.members.renamed(manifest.members))
        return True

    def cut_replicas(self, *boxes: Box) -> bool:
        """Before values are written, cut logical chunks out of all replicas; says whether there were any.

        A reader then finds the values only in layer 0, before and after they change.
        """
        if self.manifest.without_replicas(*boxes) is self.manifest:
            return False
        self.begin_edit()  # others may have changed the state by now
        cut = self.manifest.without_replicas(*boxes)
        if cut is not self.manifest:
            self.commit(cut)
        return True

    def create_member(self, shape: tuple[int, ...], encoding: Encoding) -> tuple[str, zarr.Array[Any]]:
        """A new member; nothing refers to it until a manifest is committed that does."""
        from intarsia.logical.encoding import create_member

        name = new_name()
        member = create_member(self.group.store_path, name, self.manifest, shape, encoding)
        self.members.adopt(name, member)
        return name, member

    def discard(self, *names: str) -> None:
        """Remove children of the group that nothing refers to; they stay if a store cannot delete."""
        for name in names:
            self.members.forget(name)
            if self.group.store.supports_deletes:
                sync((self.group.store_path / name).delete_dir())

    def member_of(self, row: Row) -> zarr.Array[Any]:
        """The member behind a region, checked against what the region needs."""
        from intarsia.engine.prepared_member import checked_member

        state = self.state
        return checked_member(state.members[state.manifest.members[row.member]], state.manifest, row)

    def target(self, name: str, options: RuntimeOptions = NO_OPTIONS) -> PreparedMember:
        """A member, prepared for writing with run-time options."""
        return self.state.source(name).with_options(self.options(options))

    def options(self, overrides: RuntimeOptions = NO_OPTIONS) -> RuntimeOptions:
        """What to write with: the overrides, and what the array remembers."""
        default = remembered_decision(self.group.metadata.attributes) or self.default
        return overrides.over(RuntimeOptions(default=default))

    def runtime_options(self, name: str, overrides: RuntimeOptions = NO_OPTIONS) -> PicklableOptions:
        """What another process needs to write into a member as this group would."""
        return PicklableOptions.of(self.members.live.get(name), self.options(overrides))
