"""Fused views: a store as other programs expect it, without copying anything.

A view shows another store, read-only: groups and plain arrays as they are, and each logical array as one
ordinary Zarr array whose chunks are read and encoded on demand. `ArrayView` is one such array, and
`ViewStore` the zarr store that shows everything.
"""

from __future__ import annotations

import asyncio
import datetime
import json
from collections.abc import AsyncIterator, Coroutine, Hashable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, Self

import zarr
from zarr.abc.codec import Codec
from zarr.abc.store import ByteRequest, Store
from zarr.codecs import ZstdCodec
from zarr.core.buffer import Buffer, BufferPrototype, NDBuffer, default_buffer_prototype
from zarr.storage import StorePath

from intarsia._compat import ArrayConfig, ArraySpec, ChunkTransform, event_loop, evolve_codecs, open_store
from intarsia._icechunk import is_immutable
from intarsia.codecs import CodecLike
from intarsia.codecs.base import in_thread_for, parse_codec
from intarsia.codecs.context import working_on
from intarsia.codecs.stored_chunks import part_of_value
from intarsia.display import one_line, place_text
from intarsia.engine.chunk_cache import BoundedCache
from intarsia.engine.fetch.fetcher_choice import check_links
from intarsia.engine.fetch.read_errors import explain_refusals
from intarsia.engine.fetch.store import run_on_event_loop
from intarsia.engine.read import read_request
from intarsia.engine.request import parse_selection
from intarsia.errors import (
    CodecConfigurationError,
    IntarsiaError,
    ReadError,
    ReadOnlyError,
    ShapeError,
)
from intarsia.logical.encoding import Encoding, planned_metadata
from intarsia.logical.hierarchy import is_logical, open_group, open_node
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.logical_array_handle import LogicalArrayHandle
from intarsia.manifest.box import Box
from intarsia.manifest.data_types import allocate
from intarsia.manifest.document import CONVENTIONS_KEY, MANIFEST_KEY, convention
from intarsia.parallel import check_travels
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
    parsed = None if codecs is None else tuple(parse_codec(codec) for codec in codecs)
    resolved = resolve_store(source.group if isinstance(source, LogicalArray) else source, version)
    with explain_errors(resolved.repo):
        node = open_node(resolved.store, path.strip("/"))
    if chunks is not None and not is_logical(node):
        raise ShapeError(
            f"chunks {tuple(chunks)} are for the view of one logical array, but {path or '/'!r} is not one"
        )
    grid = None if chunks is None else tuple(int(n) for n in chunks)
    return ViewStore(node.store_path.store, node.path, parsed, grid, consolidated=consolidated)


class ViewStore(Store):
    """Shows everything below `root` of a store, read-only, with ordinary arrays in place of logical ones.

    Only keys of Zarr nodes are shown. `consolidated` puts the metadata of all nodes into that of the root,
    for readers that cannot list.

    A read-only Icechunk session is read once. Other stores may change, so a node's metadata is read each
    time, as zarr does when it opens an array; a logical array is opened again if it has changed.
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
        self._nodes: dict[str, ViewNode] = {}
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

    def with_read_only(self, read_only: bool = False) -> Self:
        """The view itself, if it is only to be read."""
        if not read_only:
            self._check_writable()
        return self

    def _check_writable(self) -> None:
        raise ReadOnlyError(
            "a fused view is read-only: what it shows is stored in members, each with its own encoding.\n"
            "  Write to the logical array itself: intarsia.open(store, path, mode='r+')"
        )

    async def _open(self) -> None:
        await super()._open()
        await _on_zarrs_loop(open_store(self._store))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ViewStore) and self._identity() == other._identity()

    __hash__ = None  # type: ignore[assignment]  # as in zarr: stores may cease to be equal

    def _identity(self) -> tuple[Any, ...]:
        return self._store, self._root, self._codecs, self._chunks, self._consolidated

    def __str__(self) -> str:
        return f"fused-view-of-{place_text(self.place)}".rstrip("/")

    def __repr__(self) -> str:
        return f"ViewStore({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        check_travels(self._store, "the view")
        return ViewStore, self._identity()

    async def set(self, key: str, value: Buffer) -> None:
        """Refused."""
        self._check_writable()

    async def delete(self, key: str) -> None:
        """Refused."""
        self._check_writable()

    # Nodes

    async def _node(self, path: str) -> ViewNode | None:
        """The node at a path; None if there is none."""
        node = self._nodes.get(path)
        if node is not None and self._immutable:
            return node
        document = await self._stored(_below(path, METADATA))
        if document is None:
            if await self._stored(_below(path, ".zarray")) is not None:
                return ViewNode(None, "array")
            return None if await self._stored(_below(path, ".zgroup")) is None else ViewNode(None, "group")
        if node is None or node.document != document:
            node = self._nodes[path] = await self._parse(path, document)
        return node

    async def _parse(self, path: str, document: bytes) -> ViewNode:
        try:
            fields = json.loads(document)
            kind = fields["node_type"]
            attributes = fields.get("attributes") or {}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ReadError(f"the metadata of {path or '/'!r} is damaged: {error!r}") from error
        if kind != "group":
            return ViewNode(document, "array")
        if MANIFEST_KEY not in attributes:
            return ViewNode(document, "group")
        return ViewNode(document, await in_thread_for("views", self._load, path))

    def _load(self, path: str) -> ArrayView:
        group = open_group(self._store, _below(self._root, path).rstrip("/"), "r")
        return ArrayView(LogicalArrayHandle.load(group), self._codecs, self._chunks)

    async def _owner(self, key: str) -> tuple[str, ViewNode | None]:
        """The path and node of the array that contains a key, or else of whatever is at the key's place."""
        segments = key.split("/")[:-1]
        path, node = "", None
        for depth in range(len(segments) + 1):
            path = "/".join(segments[:depth])
            node = await self._node(path)
            if node is not None and node.kind != "group":
                break
        return path, node

    async def _nodes_below(self, path: str) -> AsyncIterator[tuple[str, ViewNode]]:
        """The node at a path and all nodes below it, with their paths."""
        node = await self._node(path)
        if node is None:
            return
        yield path, node
        if node.kind == "group":
            for name in await self._children(path):
                if not _is_metadata(name):
                    async for each in self._nodes_below(_below(path, name)):
                        yield each

    # Reading

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """The value of a key; chunks of logical arrays are read and encoded on demand."""
        path, node = await self._owner(key)
        inside = key[len(_below(path)) :]
        if node is not None and node.kind == "array":
            return await self._in_plain_array(path, key, prototype, byte_range)
        if node is not None and inside == METADATA:
            value = await self._document(path, node)
        elif node is not None and isinstance(node.kind, ArrayView):
            value = await self._chunk(path, node.kind, inside)
        else:
            value = await self._stored(key) if inside in OLDER_METADATA else None
        return None if value is None else part_of_value(prototype.buffer.from_bytes(value), byte_range)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Several values, or parts of them."""
        return await asyncio.gather(*(self.get(key, prototype, part) for key, part in key_ranges))

    async def exists(self, key: str) -> bool:
        """Whether there is a value. Chunks of logical arrays have to be read to know it."""
        return await self.get(key, default_buffer_prototype()) is not None

    async def _stored(self, key: str) -> bytes | None:
        """The stored value of a key."""
        get = self._store.get(_below(self._root, key), default_buffer_prototype())
        value = await _on_zarrs_loop(get)
        return None if value is None else value.to_bytes()

    async def _in_plain_array(
        self, path: str, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None
    ) -> Buffer | None:
        """The stored value of a key inside the plain array at a path."""
        target = _below(self._root, path).rstrip("/")
        if path not in self._checked:
            await in_thread_for("views", check_links, self._store, target)
            self._checked.add(path)
        with explain_refusals(self._store, target):
            return await _on_zarrs_loop(self._store.get(_below(self._root, key), prototype, byte_range))

    async def _chunk(self, path: str, view: ArrayView, key: str) -> bytes | None:
        """A chunk of a logical array."""
        chunk = self._cache.get((path, key)) if self._immutable else None
        if chunk is None:
            chunk = await in_thread_for("views", view.chunk, key)
            if chunk is not None and self._immutable:
                self._cache.put((path, key), chunk)
        return chunk

    async def _document(self, path: str, node: ViewNode) -> bytes | None:
        """The zarr.json of a node as the view shows it: without the members of logical arrays."""
        if isinstance(node.kind, ArrayView):
            return node.kind.document
        everything = self._consolidated and not path
        if node.document is None or not (everything or CONSOLIDATED.encode() in node.document):
            return node.document
        document = json.loads(node.document)
        document.pop(CONSOLIDATED, None)
        if everything:
            nodes = {}
            async for below, each in self._nodes_below(""):
                text = await self._document(below, each) if below else None
                if text is not None:
                    nodes[below] = json.loads(text)
            document[CONSOLIDATED] = {"kind": "inline", "must_understand": False, "metadata": nodes}
        return json.dumps(document).encode()

    # Listing

    async def list(self) -> AsyncIterator[str]:
        """Every key. It has to read the chunks of logical arrays to know which exist."""
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Every key with this prefix. It has to read the chunks of logical arrays to know which exist."""
        owner, _ = await self._owner(prefix)
        async for path, node in self._nodes_below(owner):
            for key in await self._keys(path, node):
                if key.startswith(prefix) and (
                    not isinstance(node.kind, ArrayView) or await self.exists(key)
                ):
                    yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """The names directly below a path."""
        start = _below(prefix.strip("/"))
        _, node = await self._owner(start)
        if node is None or node.kind == "group":
            for name in await self._children(start.rstrip("/")):
                if _is_metadata(name) or await self._node(start + name) is not None:
                    yield name
            return
        for name in sorted({key[len(start) :].partition("/")[0] async for key in self.list_prefix(start)}):
            yield name

    async def _keys(self, path: str, node: ViewNode) -> Iterable[str]:
        """The keys of a node itself; some chunks of a logical array may hold nothing but the fill value."""
        if isinstance(node.kind, ArrayView):
            return (_below(path, name) for name in (METADATA, *node.kind.covered_keys()))
        if node.kind == "group":
            return [_below(path, name) for name in await self._children(path) if _is_metadata(name)]
        stored = await _collect(self._store.list_prefix(_below(self._root, _below(path))))
        return [key[len(_below(self._root)) :] for key in stored]

    async def _children(self, path: str) -> Iterable[str]:
        """The names directly below a path in the store."""
        return await _collect(self._store.list_dir(_below(self._root, path).rstrip("/")))


class ViewNode(NamedTuple):
    """An array or a group of the viewed store."""

    document: bytes | None
    """Its zarr.json as it is stored; None for nodes of Zarr v2."""

    kind: ArrayView | Literal["array", "group"]
    """Logical arrays are `ArrayView`."""


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
        fill_value, config = metadata.fill_value, ArrayConfig.from_dict({})
        self._spec = ArraySpec(self._chunks, metadata.data_type, fill_value, config, prototype)
        try:
            self._encoder = ChunkTransform(codecs=evolve_codecs(metadata.codecs, self._spec))
        except TypeError as error:
            raise CodecConfigurationError(f"these codecs cannot encode for a view: {error}") from error

    def covered_keys(self) -> Iterator[str]:
        """The keys of all chunks that regions cover; some may still hold nothing but the fill value."""
        manifest, seen = self._manifest, set[tuple[int, ...]]()
        for i in range(len(manifest.regions)):
            for index in manifest.elements(manifest.regions.row(i).box).in_units(self._chunks).indices():
                if index not in seen:
                    seen.add(index)
                    yield _chunk_key(index)

    def chunk(self, key: str) -> bytes | None:
        """A chunk as this array stores it; None if it is a hole or holds only the fill value."""
        index = self._index(key)
        if index is None:
            return None
        try:
            values = self._values(index)
            if values is None:
                return None
            with working_on(index):
                encoded = self._encoder.encode_chunk(values, self._spec)
        except (OSError, KeyError) as error:  # neither may look like a missing key, which means fill value
            if isinstance(error, IntarsiaError):
                raise
            raise ReadError(f"cannot read chunk {index}: {one_line(error)}") from error
        return None if encoded is None else encoded.to_bytes()

    def _index(self, key: str) -> tuple[int, ...] | None:
        """The chunk that a key below the array names; None if it does not name one of its chunks."""
        try:
            index = tuple(map(int, key.split("/")[1:]))
        except ValueError:
            return None
        # The same numbers written otherwise are another key.
        if _chunk_key(index) != key or len(index) != len(self._chunks):
            return None
        axes = zip(index, self._chunks, self._manifest.shape, strict=True)
        return index if all(0 <= i * c < n for i, c, n in axes) else None

    def _values(self, index: tuple[int, ...]) -> NDBuffer | None:
        manifest = self._manifest
        start = tuple(i * c for i, c in zip(index, self._chunks, strict=True))
        stop = tuple(min(a + c, n) for a, c, n in zip(start, self._chunks, manifest.shape, strict=True))
        elements = Box(start, stop)
        if not manifest.regions.touching(manifest.cells(elements)).size:
            return None
        values = read_request(self._logical, parse_selection(manifest.shape, elements.slices or ...))
        if values.shape != self._chunks:  # chunks have the full size even at the edge of the array
            padded = allocate(manifest.data_type, self._chunks, manifest.fill_value)
            padded[tuple(slice(n) for n in values.shape)] = values
            values = padded
        buffer = self._spec.prototype.nd_buffer.from_ndarray_like(values)
        return None if buffer.all_equal(manifest.fill_value) else buffer


def _attributes(logical: LogicalArrayHandle) -> dict[str, Any]:
    """The group's attributes without those that make it a logical array; other conventions stay."""
    attributes: dict[str, Any] = dict(logical.group.metadata.attributes)
    del attributes[MANIFEST_KEY]
    conventions, uuid = attributes.pop(CONVENTIONS_KEY, None), convention(1)["uuid"]
    if isinstance(conventions, list):
        others = [c for c in conventions if not (isinstance(c, dict) and c.get("uuid") == uuid)]
        if others:
            attributes[CONVENTIONS_KEY] = others
    return attributes


def _chunk_key(index: tuple[int, ...]) -> str:
    """The key of a chunk below its array, in the default chunk key encoding of Zarr v3."""
    return "/".join(("c", *map(str, index)))


def _is_metadata(name: str) -> bool:
    """Whether a key with this last segment holds metadata."""
    return name == METADATA or name in OLDER_METADATA


def _below(path: str, name: str = "") -> str:
    """A key below a path; without a name, the prefix that all such keys share.

    >>> _below("a/b", "zarr.json"), _below("", "zarr.json"), _below("a")
    ('a/b/zarr.json', 'zarr.json', 'a/')
    """
    return f"{path}/{name}" if path else name


async def _on_zarrs_loop[T](answer: Coroutine[Any, Any, T]) -> T:
    """The result of a store's call. Some stores only work on zarr's event loop; a server has another."""
    if asyncio.get_running_loop() is event_loop():
        return await answer
    return await asyncio.wrap_future(run_on_event_loop(answer))


async def _collect(names: AsyncIterator[str]) -> Sequence[str]:
    async def collect() -> Sequence[str]:
        return [name async for name in names]

    return await _on_zarrs_loop(collect())
