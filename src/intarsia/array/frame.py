"""The group behind a logical array: its manifest, read and written, and its members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from zarr.codecs import BytesCodec, ZstdCodec

from intarsia._icechunk import safe_store
from intarsia.array.fetch import fetcher_for, is_lasting
from intarsia.array.manifest import CONVENTION, CONVENTIONS_KEY, INLINE_REGIONS, MANIFEST_KEY, Manifest
from intarsia.array.member import Members, checked_member, create_member, new_name, short_codecs
from intarsia.array.source import Source
from intarsia.errors import ManifestError, MemberError, NotLogicalArrayError, ReadOnlyError
from intarsia.words import place_text

if TYPE_CHECKING:
    from intarsia.array.fetch import Fetcher
    from intarsia.array.member import Encoding
    from intarsia.array.table import Box, Ints, Row

__all__ = ["Frame", "open_group"]

TABLE_ROWS_PER_CHUNK = 1 << 16


def open_group(store: Any, path: str, mode: Any) -> zarr.Group:
    """The group at `path` of anything that zarr takes as a store, or of another group."""
    if isinstance(store, zarr.Group):
        store, path = store.store_path.store, "/".join(part for part in (store.path, path) if part)
    return zarr.open_group(
        safe_store(store), path=path or None, mode=mode, zarr_format=3, use_consolidated=False
    )


class Frame:
    """A logical array's group, its manifest as last read or written, and its members."""

    def __init__(self, group: zarr.Group, manifest: Manifest) -> None:
        self.group = group
        self.manifest = manifest
        self.members = Members(group, manifest.members)
        self._sources: dict[str, Source] = {}
        self._fetcher: Fetcher | None = None

    @classmethod
    def load(cls, group: zarr.Group) -> Frame:
        """Read and check the manifest of a group."""
        return cls(group, cls._read_manifest(group))

    @staticmethod
    def _read_manifest(group: zarr.Group) -> Manifest:
        attributes = group.metadata.attributes
        if MANIFEST_KEY not in attributes:
            raise NotLogicalArrayError(
                f"{place_text(group.store_path)} is a Zarr group, but not a logical array: "
                f"it has no attribute {MANIFEST_KEY!r}.\n"
                "  Create one with intarsia.create(store, path, shape=…, chunks=…, dtype=…)"
            )
        document: Any = attributes[MANIFEST_KEY]
        try:
            table = Frame._read_table(group, document)
            return Manifest.from_json(document, table)
        except ManifestError as error:
            error.add_note(f"in the attributes of {place_text(group.store_path)}")
            raise

    @staticmethod
    def _read_table(group: zarr.Group, document: Any) -> Ints | None:
        name = document.get("regions") if isinstance(document, dict) else None
        if not isinstance(name, str) or "/" in name or name in (".", ".."):
            return None
        try:
            table: Any = zarr.open_array(group.store_path / name, mode="r", zarr_format=3)[...]
        except FileNotFoundError:
            return None
        return np.asarray(table)

    @property
    def read_only(self) -> bool:
        return bool(self.group.store.read_only)

    def reload(self) -> None:
        """Take in what other handles changed."""
        fresh = open_group(self.group, "", "r" if self.read_only else "r+")
        manifest = self._read_manifest(fresh)
        self.group = fresh
        if manifest.generation != self.manifest.generation or manifest != self.manifest:
            self.manifest = manifest
            self.members = Members(fresh, manifest.members)
            self._sources = {}
        self._fetcher = None

    def begin_edit(self) -> None:
        """Before every change of the layout: writable, and up to date."""
        self.check_writable()
        self.reload()

    def check_writable(self) -> None:
        if self.read_only:
            raise ReadOnlyError(
                f"the logical array at {place_text(self.group.store_path)} was opened for reading.\n"
                "  Open it for writing: intarsia.open(store, path, mode='r+')"
            )

    def commit(self, manifest: Manifest) -> None:
        """Make `manifest` the current one; then remove what nothing refers to any more.

        Members and the table are in place before the attributes change, so that a crash leaves the old
        array or the new one.
        """
        attributes: dict[str, Any] = dict(self.group.metadata.attributes)
        old = attributes.get(MANIFEST_KEY)
        old_table = old.get("regions") if isinstance(old, dict) else None
        table_name = None
        if len(manifest.regions) > INLINE_REGIONS:
            table_name = new_name("t")
            self._write_table(table_name, manifest)
        attributes[MANIFEST_KEY] = manifest.to_json(table_name)
        conventions = [c for c in attributes.get(CONVENTIONS_KEY, []) if c.get("uuid") != CONVENTION["uuid"]]
        attributes[CONVENTIONS_KEY] = [*conventions, CONVENTION]
        self.group = self.group.update_attributes(attributes)
        gone = set(self.manifest.members) - set(manifest.members)
        if isinstance(old_table, str):
            gone.add(old_table)
        self.manifest = manifest
        self.members = self.members.renamed(manifest.members)
        for name in sorted(gone):
            self.discard(name)

    def _write_table(self, name: str, manifest: Manifest) -> None:
        packed = manifest.regions.packed()
        table = zarr.create_array(
            self.group.store_path,
            name=name,
            shape=packed.shape,
            dtype=packed.dtype,
            chunks=(min(TABLE_ROWS_PER_CHUNK, len(packed)), packed.shape[1]),
            serializer=BytesCodec(endian="little"),
            compressors=ZstdCodec(level=1),
            fill_value=0,
        )
        table[...] = packed

    def create_member(self, shape: tuple[int, ...], encoding: Encoding) -> tuple[str, zarr.Array[Any]]:
        """A new member; nothing refers to it until a manifest is committed that does."""
        name = new_name()
        member = create_member(self.group.store_path, name, self.manifest, shape, encoding)
        self.members.adopt(name, member)
        return name, member

    def discard(self, name: str) -> None:
        """Remove a child of the group that nothing refers to."""
        if name in self.group:
            del self.group[name]

    def member_of(self, row: Row) -> zarr.Array[Any]:
        """The member behind a region, checked against what the region needs."""
        return checked_member(self.members, self.manifest.members[row.member], self.manifest, row)

    def source_of(self, manifest: Manifest, i: int) -> Source:
        """The member behind row `i` of a manifest's table, checked, and prepared for the read engine."""
        name = manifest.members[manifest.regions.member[i]]
        source = self.source(name)
        checked, fitting = source.checked
        if checked is not manifest:
            fitting = set()
            source.checked = manifest, fitting
        if i not in fitting:
            checked_member(self.members, name, manifest, manifest.regions.row(i))
            fitting.add(i)
        return source

    def source(self, name: str) -> Source:
        """A member, prepared for the engine."""
        member = self.members[name]
        source = self._sources.get(name)
        if source is None or source.array is not member or not source.is_current:
            source = self._sources[name] = Source(name, member)
        return source

    def fetcher(self) -> Fetcher:
        """The way to read from the store, as it is now."""
        store = self.group.store
        if self._fetcher is None or self._fetcher.lasting != is_lasting(store):
            self._fetcher = fetcher_for(store)
        return self._fetcher

    def bounds_text(self, box: Box) -> str:
        """A box of logical chunks as elements: [0:500, 0:1000]."""
        return self.manifest.elements(box).text()

    def region_text(self, row: Row) -> str:
        """A region as messages name it: [0:500, 0:1000] (m-6f1c…, gzip)."""
        name = self.manifest.members[row.member]
        try:
            codecs = ", " + short_codecs(self.members[name])
        except (MemberError, KeyError):
            codecs = ""
        return f"{self.bounds_text(row.box)} ({name[:6]}{codecs})"
