"""Fused views: a store as other programs expect it, without copying anything.

A view shows another store, read-only: groups and plain arrays as they are, and each logical array as one
ordinary Zarr array whose chunks are read and encoded on demand. `ArrayView` is one such array, and
`ViewStore` the zarr store that shows everything.
"""

from __future__ import annotations

import asyncio
import datetime
import json
from collections.abc import AsyncIterator, Hashable, Iterable, Iterator, Sequence
from operator import floordiv, mul
from typing import Any, Literal

import zarr
from zarr.abc.codec import Codec
from zarr.abc.store import ByteRequest, Store
from zarr.codecs import ZstdCodec
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import MemoryStore, StorePath

from intarsia._compat import ArrayConfig, ArraySpec, ChunkTransform, evolve_codecs
from intarsia._icechunk import is_immutable
from intarsia.codecs import CodecLike
from intarsia.codecs.base import codec_list, in_thread_for, parse_codec
from intarsia.codecs.context import Grid, working_on
from intarsia.display import one_line, place_text
from intarsia.engine.chunk_cache import BoundedCache
from intarsia.engine.fetch.fetcher_choice import check_links
from intarsia.engine.fetch.read_errors import explain_refusals
from intarsia.engine.fetch.store import read_key, read_part, run_on_event_loop
from intarsia.engine.read import read_request
from intarsia.engine.request import parse_selection
from intarsia.errors import (
    CodecConfigurationError,
    IntarsiaError,
    MissingArrayError,
    ReadError,
    ReadOnlyError,
    ShapeError,
)
from intarsia.logical.attributes import RESERVED
from intarsia.logical.encoding import Encoding, planned_metadata
from intarsia.logical.hierarchy import is_logical, open_group, open_node
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.logical_array_handle import LogicalArrayHandle
from intarsia.manifest.box import Box
from intarsia.manifest.data_types import allocate
from intarsia.manifest.document import CONVENTIONS_KEY, convention
from intarsia.versions.repository import explain_errors
from intarsia.versions.version import LATEST, Version, resolve_store

METADATA = "zarr.json"
OLDER_METADATA = (".zarray", ".zattrs", ".zgroup", ".zmetadata")
CONSOLIDATED = "consolidated_metadata"

MAX_BYTES = 64 << 20
"""The size of the cache: enough for the shards that a few clients read piece by piece."""

FAST = ZstdCodec(level=1)
"""The default compressor of chunks: they are made while a client waits."""


def fused_view(
    store: Any,
    path: str = "",
    *,
    codecs: Iterable[CodecLike] | None = None,
    chunks: Sequence[int] | None = None,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    as_of: datetime.datetime | str | None = None,
) -> zarr.Group | zarr.Array[Any]:
    """A read-only view of what is at `path`, with every logical array as one ordinary Zarr array.

    `store` is a repository (for which `branch`, `tag`, `snapshot_id` and `as_of` choose the version), a
    session, a store, a group, a path or URL, or a logical array. The result is zarr's own array or group. Its
    `store` works wherever a zarr store is expected. Members are hidden; groups and plain arrays stay
    as they are. A chunk is read from its members on request and encoded with `codecs`, by default fast zstd;
    `codecs=[]` does not compress. The chunk grid is the logical one. For a single array, `chunks` may ask for
    another, such as larger chunks if the lattice is finer than the members' chunks.

    >>> import intarsia
    >>> array = intarsia.create({}, "t", shape=(0,), chunks=(2,), dtype="i4")
    >>> array.append([1, 2, 3, 4], codecs=["gzip"])
    >>> array.append([5], codecs=["zstd"])
    >>> view = intarsia.fused_view(array)
    >>> type(view).__module__, view[1:].tolist()
    ('zarr.core.array', [2, 3, 4, 5])
    """
    version = Version(branch, tag, snapshot_id, as_of)
    return zarr.open(view_store(store, path, codecs, chunks, version=version), mode="r")


def view_store(
    source: Any,
    path: str = "",
    codecs: Iterable[CodecLike] | None = None,
    chunks: Sequence[int] | None = None,
    *,
    consolidated: bool = False,
    version: Version = LATEST,
) -> ViewStore:
    """The store of a view, with what is at `path` as its root."""
    parsed = None if codecs is None else tuple(parse_codec(codec) for codec in codec_list(codecs))
    resolved = resolve_store(source.group if isinstance(source, LogicalArray) else source, version)
    with explain_errors(resolved.repo):
        node = open_node(resolved.store, path.strip("/"))
    if chunks is not None and not is_logical(node):
        raise ShapeError(
            f"chunks {tuple(chunks)} are for the view of one logical array, but {path or '/'!r} is not one"
        )
    grid = None if chunks is None else tuple(int(n) for n in chunks)
    store, root = node.store_path.store, node.path
    if isinstance(store, ViewStore):  # its threads must not wait for one another
        store, above, parsed, grid, _ = store._identity()
        root = _below(above, root).rstrip("/")
    return ViewStore(store, root, parsed, grid, consolidated)


class ViewStore(Store):
    """Shows everything below `root` of a store, read-only, with ordinary arrays in place of logical ones.

    Only keys of Zarr nodes are shown. `consolidated` puts the metadata of all nodes into that of the root,
    for readers that cannot list.

    A read-only Icechunk session is read once. Other stores may change, so a node's metadata is read each
    time, as zarr does when it opens an array; a logical array is opened again if it has changed.

    Everything is done in threads: some stores only work on zarr's event loop, and a server has another.
    """

    supports_writes = False
    supports_deletes = False

    def __init__(
        self,
        store: Store,
        root: str = "",
        codecs: tuple[Codec, ...] | None = None,
        chunks: tuple[int, ...] | None = None,
        consolidated: bool = False,
    ) -> None:
        super().__init__(read_only=True)
        self._store, self._root, self._consolidated = store, root, consolidated
        self._codecs, self._chunks = codecs, chunks
        self._nodes: dict[str, tuple[bytes | None, ViewNode]] = {}
        """Nodes by path, each with the metadata document that it was opened with."""
        self._checked: set[str] = set()
        """The plain arrays in which no link leads out of the store."""
        self._immutable = is_immutable(self._store)
        """Whether nothing can change; determined here, because an event loop must not wait for the answer."""
        self._cache = BoundedCache[Hashable, bytes](MAX_BYTES, len)

    @property
    def place(self) -> StorePath:
        """The place that it shows."""
        return StorePath(self._store, self._root)

    # What zarr expects of every store

    @property
    def supports_listing(self) -> bool:
        """Whether the store below can list."""
        return self._store.supports_listing

    @property
    def supports_consolidated_metadata(self) -> bool:
        """Whether there is any. If not, zarr and xarray do not look for it."""
        return self._consolidated

    def _check_writable(self) -> None:
        raise ReadOnlyError(
            "a fused view is read-only: what it shows is stored in members, each with its own encoding.\n"
            "  Write to the logical array itself: intarsia.open(store, path, mode='r+')"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ViewStore) and self._identity() == other._identity()

    __hash__ = None  # type: ignore[assignment]  # as in zarr: stores may cease to be equal

    def _identity(self) -> tuple[Any, ...]:
        return self._store, self._root, self._codecs, self._chunks, self._consolidated

    def __str__(self) -> str:
        return f"fused-view-of-{place_text(self.place)}".rstrip("/")

    def __reduce__(self) -> tuple[Any, ...]:
        return ViewStore, self._identity()

    async def set(self, key: str, value: Buffer) -> None:
        """Refused."""
        self._check_writable()

    async def delete(self, key: str) -> None:
        """Refused."""
        self._check_writable()

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """The value of a key; chunks of logical arrays are read and encoded on demand."""
        return await in_thread_for("views", self._get, key, prototype, byte_range)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Several values, or parts of them."""
        return await asyncio.gather(*(self.get(key, prototype, part) for key, part in key_ranges))

    async def exists(self, key: str) -> bool:
        """Whether there is a value."""
        return await self.get(key, default_buffer_prototype()) is not None

    async def list(self) -> AsyncIterator[str]:
        """Every key."""
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Every key with this prefix."""
        for key in await in_thread_for("views", lambda: tuple(self._keys(prefix))):
            yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """The names directly below a path."""
        for name in await in_thread_for("views", self._names, _below(prefix.strip("/"))):
            yield name

    # Nodes

    def _node(self, path: str) -> ViewNode | None:
        """The node at a path; None if there is none."""
        document, node = self._nodes.get(path, (None, None))
        if node is not None and self._immutable:
            return node
        current = read_key(self._store, _below(self._root, _below(path, METADATA)))
        if node is not None and current == document:
            return node
        place = _below(self._root, path).rstrip("/")
        try:
            opened = open_node(self._store, place)
        except MissingArrayError:
            return None
        node = "group" if isinstance(opened, zarr.Group) else "array"
        if is_logical(opened):
            handle = LogicalArrayHandle.load(open_group(self._store, place, "r"))
            node = ArrayView(handle, self._codecs, self._chunks)
        self._nodes[path] = current, node
        return node

    def _owner(self, key: str) -> tuple[str, ViewNode | None]:
        """The path and node of the array that contains a key, or else of whatever is at the key's place."""
        segments = key.split("/")[:-1]
        path, node = "", None
        for depth in range(len(segments) + 1):
            path = "/".join(segments[:depth])
            node = self._node(path)
            if node is not None and node != "group":
                break
        return path, node

    def _nodes_below(self, path: str) -> Iterator[tuple[str, ViewNode]]:
        """The node at a path and all nodes below it, with their paths."""
        node = self._node(path)
        if node is not None:
            yield path, node
        if node == "group":
            for name in self._children(path):
                if not _is_metadata(name):
                    yield from self._nodes_below(_below(path, name))

    # Values and keys

    def _get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None) -> Buffer | None:
        path, node = self._owner(key)
        name = key[len(_below(path)) :]
        value = None
        if node == "array":
            return self._in_plain_array(path, key, prototype, byte_range)
        if isinstance(node, ArrayView):
            value = node.document if name == METADATA else self._chunk(path, node, name)
        elif node == "group" and _is_metadata(name):
            value = self._group_metadata(path, name)
        content = {} if value is None else {key: prototype.buffer.from_bytes(value)}
        return MemoryStore(content).get_sync(key, prototype=prototype, byte_range=byte_range)

    def _in_plain_array(
        self, path: str, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None
    ) -> Buffer | None:
        """The stored value of a key inside the plain array at a path."""
        target = _below(self._root, path).rstrip("/")
        if path not in self._checked:
            check_links(self._store, target)
            self._checked.add(path)
        with explain_refusals(self._store, target):
            return read_part(self._store, _below(self._root, key), prototype, byte_range)

    def _chunk(self, path: str, view: ArrayView, name: str) -> bytes | None:
        """A chunk of a logical array."""
        chunk = self._cache.get((path, name)) if self._immutable else None
        if chunk is None:
            chunk = view.chunk(name)
            if chunk is not None and self._immutable:
                self._cache.put((path, name), chunk)
        return chunk

    def _group_metadata(self, path: str, name: str) -> bytes | None:
        """A metadata document of a group as the view shows it: without the members of logical arrays."""
        stored = read_key(self._store, _below(self._root, _below(path, name)))
        everything = self._consolidated and not path
        if stored is None or name != METADATA or not (everything or CONSOLIDATED.encode() in stored):
            return stored
        document = json.loads(stored)
        document.pop(CONSOLIDATED, None)
        if everything:
            nodes = {}
            for node, _ in self._nodes_below(""):
                value = self._get(_below(node, METADATA), default_buffer_prototype(), None) if node else None
                if value is not None:
                    nodes[node] = json.loads(value.to_bytes())
            document[CONSOLIDATED] = {"kind": "inline", "must_understand": False, "metadata": nodes}
        return json.dumps(document).encode()

    def _keys(self, prefix: str) -> Iterator[str]:
        """Every key with this prefix."""
        for path, node in self._nodes_below(self._owner(prefix)[0]):
            names: Iterable[str]
            if isinstance(node, ArrayView):
                names = METADATA, *node.keys()
            elif node == "group":
                names = filter(_is_metadata, self._children(path))
            else:
                start = _below(self._root, _below(path))
                names = (key[len(start) :] for key in _collected(self._store.list_prefix(start)))
            yield from (key for key in (_below(path, name) for name in names) if key.startswith(prefix))

    def _names(self, start: str) -> Sequence[str]:
        """The names directly below a path, which ends with a slash unless it is empty."""
        _, node = self._owner(start)
        if node is None or node == "group":
            names = self._children(start.rstrip("/"))
            return [name for name in names if _is_metadata(name) or self._node(start + name) is not None]
        return sorted({key[len(start) :].partition("/")[0] for key in self._keys(start)})

    def _children(self, path: str) -> Sequence[str]:
        """The names directly below a path in the store."""
        return _collected(self._store.list_dir(_below(self._root, path).rstrip("/")))


type ViewNode = ArrayView | Literal["array", "group"]
"""A node of the viewed store; logical arrays are `ArrayView`."""


class ArrayView:
    """What other programs see of a logical array: a zarr.json, and chunks wherever there are values.

    Its chunk grid is the logical one unless `chunks` asks for another. Its methods read data, so they must
    not be called on an event loop.
    """

    def __init__(
        self,
        logical: LogicalArrayHandle,
        codecs: Sequence[Codec] | None = None,
        chunks: tuple[int, ...] | None = None,
    ) -> None:
        self._logical, self._manifest = logical, logical.manifest
        self._chunks = chunks or self._manifest.chunk_shape
        encoding = Encoding((FAST,) if codecs is None else codecs, chunks)
        metadata: Any = planned_metadata(self._manifest, self._manifest.shape, encoding)
        metadata = metadata.update_attributes(_attributes(logical))
        prototype = default_buffer_prototype()
        self.document: bytes = metadata.to_buffer_dict(prototype)["zarr.json"].to_bytes()
        """The metadata document."""
        self._grid = Grid.of(metadata)
        fill_value, config = metadata.fill_value, ArrayConfig.from_dict({})
        self._spec = ArraySpec(self._chunks, metadata.data_type, fill_value, config, prototype)
        try:
            self._encoder = ChunkTransform(codecs=evolve_codecs(metadata.codecs, self._spec))
        except TypeError as error:
            raise CodecConfigurationError(f"these codecs cannot encode for a view: {error}") from error

    def keys(self) -> Iterator[str]:
        """The keys of all chunks."""
        manifest, seen = self._manifest, set[tuple[int, ...]]()
        for i in range(len(manifest.regions)):
            for index in manifest.elements(manifest.regions.row(i).box).in_units(self._chunks).indices():
                if index not in seen:
                    seen.add(index)
                    yield self._key(index)

    def _key(self, index: tuple[int, ...]) -> str:
        """The key of a chunk below the array."""
        return self._grid.key_encoding.encode_chunk_key(index)

    def box_of(self, key: str) -> Box | None:
        """The elements of the chunk that a key below the array names; None if there is no such chunk.

        There is one wherever a region is, also if all values in it are the fill value.
        """
        index = self._grid.index_of(key)
        if index is None or self._key(index) != key:
            return None
        manifest, start = self._manifest, tuple(map(mul, index, self._chunks))
        box = Box.sized(self._chunks, start).intersect(Box.sized(manifest.shape))
        return box if box is not None and manifest.regions.touching(manifest.cells(box)).size else None

    def chunk(self, key: str) -> bytes | None:
        """A chunk as this array stores it; None if there is none."""
        box = self.box_of(key)
        if box is None:
            return None
        try:
            values = read_request(self._logical, parse_selection(self._manifest.shape, box.slices or ...))
            if values.shape != self._chunks:  # chunks have the full size even at the edge of the array
                padded = allocate(self._manifest.data_type, self._chunks, self._manifest.fill_value)
                padded[tuple(slice(n) for n in values.shape)] = values
                values = padded
            with working_on(tuple(map(floordiv, box.start, self._chunks))):
                buffer = self._spec.prototype.nd_buffer.from_ndarray_like(values)
                encoded = self._encoder.encode_chunk(buffer, self._spec)
        except (OSError, KeyError) as error:  # neither may look like a missing key, which means fill value
            if isinstance(error, IntarsiaError):
                raise
            raise ReadError(f"cannot read chunk {key}: {one_line(error)}") from error
        return None if encoded is None else encoded.to_bytes()


def _attributes(logical: LogicalArrayHandle) -> dict[str, Any]:
    """The group's attributes without those that make it a logical array; other conventions stay."""
    attributes, uuid = logical.group.metadata.attributes, convention(1)["uuid"]
    listed = attributes.get(CONVENTIONS_KEY)
    entries = listed if isinstance(listed, list) else []
    others = [each for each in entries if not (isinstance(each, dict) and each.get("uuid") == uuid)]
    users = {key: value for key, value in attributes.items() if key not in RESERVED}
    return users | ({CONVENTIONS_KEY: others} if others else {})


def _is_metadata(name: str) -> bool:
    """Whether a key with this last segment holds metadata."""
    return name == METADATA or name in OLDER_METADATA


def _below(path: str, name: str = "") -> str:
    """A key below a path; without a name, the prefix that all such keys share.

    >>> _below("a/b", "zarr.json"), _below("", "zarr.json"), _below("a")
    ('a/b/zarr.json', 'zarr.json', 'a/')
    """
    return f"{path}/{name}" if path else name


def _collected(names: AsyncIterator[str]) -> Sequence[str]:
    async def collect() -> Sequence[str]:
        return [name async for name in names]

    return run_on_event_loop(collect()).result()
