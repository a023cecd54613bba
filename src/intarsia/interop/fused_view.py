"""Fused views: a store as other programs expect it, without copying anything.

A view shows another store, read-only: groups and plain arrays as they are, and each logical array as one
ordinary Zarr array whose chunks are read and encoded on demand. `ArrayView` is one such array, `Tree` finds
the nodes of the store, and `ViewStore` is the zarr store that puts them together.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import re
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Hashable,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, Self

import zarr
from zarr.abc.codec import Codec
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.codecs import ZstdCodec
from zarr.core.buffer import Buffer, BufferPrototype, NDBuffer, default_buffer_prototype
from zarr.storage import MemoryStore, StorePath

from intarsia._compat import ArraySpec, ChunkTransform, event_loop, evolve_codecs, open_store
from intarsia._icechunk import safe_store
from intarsia.codecs import CodecLike, parse_codecs
from intarsia.codecs.base import in_thread_for, parse_codec
from intarsia.codecs.context import working_on
from intarsia.display import one_line, place_text
from intarsia.engine.chunk_cache import BoundedCache
from intarsia.engine.fetch import check_links, is_immutable
from intarsia.engine.fetch.read_errors import helpful_refusals
from intarsia.engine.fetch.store import start
from intarsia.engine.read import read_request
from intarsia.engine.request import parse_selection
from intarsia.errors import (
    CodecConfigurationError,
    IntarsiaError,
    NotLogicalArrayError,
    ReadError,
    ReadOnlyError,
    ShapeError,
)
from intarsia.logical.hierarchy import open_group
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.logical_state import LogicalArrayHandle
from intarsia.logical.members import Encoding, create_member
from intarsia.manifest.box import Box
from intarsia.manifest.coercion import allocated, codecs_for, is_nullable
from intarsia.manifest.document import CONVENTIONS_KEY, MANIFEST_KEY, convention
from intarsia.manifest.manifest import Manifest
from intarsia.nullable.codec import default_serializer
from intarsia.parallel import check_travels
from intarsia.versions.version import LATEST, Version, resolve

METADATA = "zarr.json"
OLDER_METADATA = frozenset((".zarray", ".zattrs", ".zgroup", ".zmetadata"))

MOST_CHANGES = 20
"""How many times in a row a chunk is read again because the layout has changed."""

FAST = ZstdCodec(level=1)
"""The default compressor of chunks: they are made while a client waits."""

CHUNKS = "c"
"""The first segment of every chunk key in the default chunk key encoding of Zarr v3."""

NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
"""An index as zarr writes it in a chunk key: the same number written otherwise is another key."""


def is_metadata(name: str) -> bool:
    """Whether a key with this last segment holds metadata.

    >>> is_metadata("zarr.json"), is_metadata("c")
    (True, False)
    """
    return name == METADATA or name in OLDER_METADATA


def below(path: str, name: str = "") -> str:
    """A key below a path; without a name, the prefix that all such keys share.

    >>> below("a/b", "zarr.json"), below("", "zarr.json"), below("a")
    ('a/b/zarr.json', 'zarr.json', 'a/')
    """
    return f"{path}/{name}" if path else name


class Node(NamedTuple):
    """An array or a group."""

    document: bytes | None
    """Its zarr.json; None for arrays of Zarr v2."""

    kind: ArrayView | Literal["array", "group"]
    """Logical arrays are `ArrayView`."""


class Tree:
    """The nodes below `root` of a store, each read on demand.

    A read-only Icechunk session is read once. Other stores may change, so a node's metadata is read each
    time, as zarr does when it opens an array; a logical array is opened again if it has changed.
    """

    def __init__(
        self, store: Store, root: str, codecs: tuple[Codec, ...] | None, chunks: tuple[int, ...] | None
    ) -> None:
        self._store, self._root, self._codecs, self._chunks = store, root, codecs, chunks
        self._nodes: dict[str, Node] = {}
        self._checked: set[str] = set()
        """The plain arrays in which no link leads out of the store."""
        self.immutable = is_immutable(store)
        """Whether nothing can change; determined here, because an event loop must not wait for the answer."""

    async def owner(self, key: str) -> tuple[str, Node | None]:
        """The path and node of the array that contains a key, or else of whatever is at the key's place."""
        segments = key.split("/")[:-1]
        path, node = "", None
        for depth in range(len(segments) + 1):
            path = "/".join(segments[:depth])
            node = await self.at(path)
            if node is not None and node.kind != "group":
                break
        return path, node

    async def at(self, path: str) -> Node | None:
        """The node at a path; None if there is none."""
        node = self._nodes.get(path)
        if node is not None and self.immutable:
            return node
        document = await self.stored(below(path, METADATA))
        if document is None:
            older = await self.stored(below(path, ".zarray"))
            return None if older is None else Node(None, "array")
        if node is None or node.document != document:
            node = self._nodes[path] = await self._parse(path, document)
        return node

    async def _parse(self, path: str, document: bytes) -> Node:
        try:
            fields = json.loads(document)
            kind = fields["node_type"]
            attributes = fields.get("attributes") or {}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ReadError(f"the metadata of {path or '/'!r} is damaged: {error!r}") from error
        if kind != "group":
            return Node(document, "array")
        if MANIFEST_KEY not in attributes:
            return Node(document, "group")
        return Node(document, await in_thread_for("views", self._load, path))

    def _load(self, path: str) -> ArrayView:
        group = open_group(self._store, below(self._root, path).rstrip("/"), "r")
        return ArrayView(LogicalArrayHandle.load(group), self._codecs, self._chunks)

    async def consistent[T](self, path: str, view: ArrayView, look: Callable[[ArrayView], T]) -> T | None:
        """The result of `look` at the logical array at `path`, in a thread; None if it is gone by then.

        When a layout changes, members are removed once the manifest no longer names them. Chunks of a removed
        member look as if they had never been written, so a result counts only if the array is still the same
        afterwards.
        """
        for _ in range(MOST_CHANGES):
            failure: Exception | None = None
            try:
                answer = await in_thread_for("views", look, view)
            except Exception as error:
                failure = error
            node = None if self.immutable else await self.at(path)
            if self.immutable or (node is not None and node.kind is view):
                if failure is not None:
                    raise failure
                return answer
            if node is None or not isinstance(node.kind, ArrayView):
                return None
            view = node.kind
        raise ReadError(f"the array {path or '/'!r} changes faster than it can be read")

    async def children(self, path: str) -> list[str]:
        """The names directly below a path in the store."""
        return await self._collect(self._store.list_dir(below(self._root, path).rstrip("/")))

    async def keys(self, path: str) -> list[str]:
        """The keys of the plain array at a path."""
        keys = await self._collect(self._store.list_prefix(below(self._root, below(path))))
        return [key[len(below(self._root)) :] for key in keys]

    async def stored(self, key: str) -> bytes | None:
        """The stored value of a key."""
        value = await self.on_its_loop(self._store.get(below(self._root, key), default_buffer_prototype()))
        return None if value is None else value.to_bytes()

    async def in_plain_array(
        self, path: str, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None
    ) -> Buffer | None:
        """The stored value of a key inside the plain array at a path."""
        place = below(self._root, path).rstrip("/")
        if path not in self._checked:
            await in_thread_for("views", check_links, self._store, place)
            self._checked.add(path)
        with helpful_refusals(self._store, place):
            return await self.on_its_loop(self._store.get(below(self._root, key), prototype, byte_range))

    async def _collect(self, names: AsyncIterator[str]) -> list[str]:
        async def collect() -> list[str]:
            return [name async for name in names]

        return await self.on_its_loop(collect())

    @staticmethod
    async def on_its_loop[T](answer: Coroutine[Any, Any, T]) -> T:
        """The result of a store's call. Some stores only work on zarr's event loop; a server has another."""
        if asyncio.get_running_loop() is event_loop():
            return await answer
        return await asyncio.wrap_future(start(answer))


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
        encoding = Encoding(_chain(self._manifest, codecs), chunks)
        # zarr makes the metadata, so that it is what zarr would write for such an array.
        model = create_member(MemoryStore(), None, self._manifest, self._manifest.shape, encoding)
        self._chunks = chunks or self._manifest.chunk_shape
        prototype = default_buffer_prototype()
        metadata: Any = model.metadata.update_attributes(_attributes(logical))
        self.document: bytes = metadata.to_buffer_dict(prototype)["zarr.json"].to_bytes()
        """The metadata document."""
        self._spec = ArraySpec(
            self._chunks, metadata.data_type, metadata.fill_value, model.async_array.config, prototype
        )
        try:
            self._encoder = ChunkTransform(codecs=evolve_codecs(metadata.codecs, self._spec))
        except TypeError as error:
            raise CodecConfigurationError(f"these codecs cannot encode for a view: {error}") from error

    def index_of(self, key: str) -> tuple[int, ...] | None:
        """The chunk that a key below the array names; None if it does not name one of its chunks."""
        first, *rest = key.split("/")
        shape = self._manifest.shape
        if first != CHUNKS or len(rest) != len(shape) or not all(NUMBER.fullmatch(text) for text in rest):
            return None
        index = tuple(map(int, rest))
        inside = all(i * c < n for i, c, n in zip(index, self._chunks, shape, strict=True))
        return index if inside else None

    def covered_keys(self) -> Iterator[str]:
        """The keys of all chunks that regions cover; some may still hold nothing but the fill value."""
        manifest, seen = self._manifest, set[tuple[int, ...]]()
        aligned = self._chunks == manifest.chunk_shape  # then each chunk lies in one region
        for i in range(len(manifest.regions)):
            box = manifest.elements(manifest.regions.row(i).box).in_units(self._chunks)
            for index in box.indices():
                if aligned or index not in seen:
                    yield "/".join((CHUNKS, *map(str, index)))
                if not aligned:
                    seen.add(index)

    def chunk(self, key: str) -> bytes | None:
        """A chunk as this array stores it; None if it is a hole or holds only the fill value."""
        index = self.index_of(key)
        if index is None:
            return None
        with _reading(index):
            values = self._values(index)
            if values is None:
                return None
            with working_on(index):
                encoded = self._encoder.encode_chunk(values, self._spec)
            return None if encoded is None else encoded.to_bytes()

    def holds(self, key: str) -> bool:
        """Whether a chunk is stored."""
        index = self.index_of(key)
        if index is None:
            return False
        with _reading(index):
            return self._values(index) is not None

    def _values(self, index: tuple[int, ...]) -> NDBuffer | None:
        manifest = self._manifest
        start = tuple(i * c for i, c in zip(index, self._chunks, strict=True))
        stop = tuple(min(a + c, n) for a, c, n in zip(start, self._chunks, manifest.shape, strict=True))
        elements = Box(start, stop)
        if not manifest.regions.touching(manifest.cells(elements)).size:
            return None
        values = read_request(self._logical, parse_selection(manifest.shape, elements.slices or ...))
        if values.shape != self._chunks:  # chunks have the full size even at the edge of the array
            padded = allocated(manifest.data_type, self._chunks, manifest.fill_value)
            padded[tuple(slice(n) for n in values.shape)] = values
            values = padded
        buffer = self._spec.prototype.nd_buffer.from_ndarray_like(values)
        return None if buffer.all_equal(manifest.fill_value) else buffer


def _chain(manifest: Manifest, codecs: Sequence[Codec] | None) -> Sequence[Codec]:
    codecs = (FAST,) if codecs is None else codecs
    if is_nullable(manifest.data_type):
        chain = codecs_for(manifest.data_type, codecs)
        assert chain is not None
        return chain
    return parse_codecs(codecs, default_serializer(manifest.data_type))


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


@contextmanager
def _reading(index: tuple[int, ...]) -> Iterator[None]:
    """Make every failure a `ReadError`: none may look like a missing key, which means fill value."""
    try:
        yield
    except IntarsiaError:
        raise
    except (OSError, KeyError) as error:
        raise ReadError(f"cannot read chunk {index}: {one_line(error)}") from error


CONSOLIDATED = "consolidated_metadata"

MOST_BYTES = 64 << 20
"""The size of the cache: enough for the shards that a few clients read piece by piece."""


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
    return zarr.open(view_store(store, path, codecs, chunks, version=version), mode="r", zarr_format=3)


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
    store = resolve(source.group if isinstance(source, LogicalArray) else source, version).store
    inside = path.strip("/")
    if isinstance(store, zarr.Group):
        inside = f"{store.path}/{inside}".strip("/")
        store = safe_store(store.store_path.store)
    try:
        node = zarr.open(store, path=inside or None, mode="r", zarr_format=3)
    except FileNotFoundError as error:
        raise NotLogicalArrayError(
            f"there is neither an array nor a group at {path or '/'!r}: {one_line(error)}"
        ) from error
    if chunks is not None and MANIFEST_KEY not in node.attrs:
        raise ShapeError(
            f"chunks {tuple(chunks)} are for the view of one logical array, but {path or '/'!r} is not one"
        )
    grid = None if chunks is None else tuple(int(n) for n in chunks)
    return ViewStore(node.store_path.store, inside, parsed, grid, consolidated=consolidated)


class ViewStore(Store):
    """Shows everything below `root` of a store, read-only, with ordinary arrays in place of logical ones.

    Only keys of Zarr nodes are shown. `consolidated` puts the metadata of all nodes into that of the root,
    for readers that cannot list.
    """

    supports_writes = False
    supports_deletes = False

    def __init__(
        self,
        store: Store,
        root: str = "",
        codecs: tuple[Codec, ...] | None = None,
        chunks: tuple[int, ...] | None = None,
        *,
        consolidated: bool = False,
    ) -> None:
        super().__init__(read_only=True)
        self._store, self._root, self._consolidated = store, root, consolidated
        self._codecs, self._chunks = codecs, chunks
        self._begin()

    def _begin(self) -> None:
        self._tree = Tree(self._store, self._root, self._codecs, self._chunks)
        self._cache = BoundedCache[Hashable, bytes](MOST_BYTES, len)

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
        if read_only:
            return self
        raise self._refusal()

    def _check_writable(self) -> None:
        raise self._refusal()

    @staticmethod
    def _refusal() -> ReadOnlyError:
        return ReadOnlyError(
            "a fused view is read-only: what it shows is stored in members, each with its own encoding.\n"
            "  Write to the logical array itself: intarsia.open(store, path, mode='r+')"
        )

    async def _open(self) -> None:
        await super()._open()
        await self._tree.on_its_loop(open_store(self._store))

    def close(self) -> None:
        """Close the view, and the store below."""
        super().close()
        self._store.close()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ViewStore) and self._identity() == other._identity()

    __hash__ = None  # type: ignore[assignment]  # as in zarr: stores may cease to be equal

    def _identity(self) -> tuple[Any, ...]:
        return self._store, self._root, self._consolidated, self._codecs, self._chunks

    def __str__(self) -> str:
        return f"fused-view-of-{place_text(StorePath(self._store, self._root))}".rstrip("/")

    def __repr__(self) -> str:
        return f"ViewStore({str(self)!r})"

    def __getstate__(self) -> dict[str, Any]:
        check_travels(self._store, "the view")
        return {key: value for key, value in vars(self).items() if key not in ("_tree", "_cache")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    async def set(self, key: str, value: Buffer) -> None:
        """Refused."""
        raise self._refusal()

    async def delete(self, key: str) -> None:
        """Refused."""
        raise self._refusal()

    # Reading

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """The value of a key; chunks of logical arrays are read and encoded on demand."""
        path, node = await self._tree.owner(key)
        if node is not None and node.kind == "array":
            return await self._tree.in_plain_array(path, key, prototype, byte_range)
        value = await self._value(key, path, node)
        return None if value is None else prototype.buffer.from_bytes(_part(value, byte_range))

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Several values, or parts of them."""
        return await asyncio.gather(*(self.get(key, prototype, part) for key, part in key_ranges))

    async def exists(self, key: str) -> bool:
        """Whether there is a value; for chunks of logical arrays, whether they hold more than fill values."""
        path, node = await self._tree.owner(key)
        if node is not None and node.kind == "array":
            return await self._tree.on_its_loop(self._store.exists(below(self._root, key)))
        if node is not None and isinstance(node.kind, ArrayView) and _inside(key, path) != METADATA:
            return await self._holds(path, node.kind, _inside(key, path))
        return await self._value(key, path, node) is not None

    async def _value(self, key: str, path: str, node: Node | None) -> bytes | None:
        """The value of a key that is not inside a plain array."""
        if node is not None and isinstance(node.kind, ArrayView):
            inside = _inside(key, path)
            return node.kind.document if inside == METADATA else await self._chunk(path, node.kind, inside)
        name = key.rpartition("/")[2]
        if name == METADATA:
            return None if node is None else await self._group_document(path, node)
        return await self._tree.stored(key) if name in OLDER_METADATA else None

    async def _chunk(self, path: str, view: ArrayView, key: str) -> bytes | None:
        chunk = self._cache.get((path, key)) if self._tree.immutable else None
        if chunk is None:
            chunk = await self._tree.consistent(path, view, lambda array: array.chunk(key))
            if chunk is not None and self._tree.immutable:
                self._cache.put((path, key), chunk)
        return chunk

    async def _holds(self, path: str, view: ArrayView, key: str) -> bool:
        return bool(await self._tree.consistent(path, view, lambda array: array.holds(key)))

    async def _group_document(self, path: str, node: Node) -> bytes | None:
        """A group's zarr.json, without the members of logical arrays."""
        if node.document is None:
            return None
        document = json.loads(node.document)
        everything = self._consolidated and not path
        if not everything and document.get(CONSOLIDATED) is None:
            return node.document
        document.pop(CONSOLIDATED, None)
        if everything:
            nodes = {name: shown async for name, shown in self._documents("") if name}
            document[CONSOLIDATED] = {"kind": "inline", "must_understand": False, "metadata": nodes}
        return json.dumps(document).encode()

    async def _documents(self, path: str) -> AsyncIterator[tuple[str, Any]]:
        """The paths and zarr.json of a node and all nodes below it, as the view shows them."""
        node = await self._tree.at(path)
        if node is not None and isinstance(node.kind, ArrayView):
            yield path, json.loads(node.kind.document)
            return
        if node is not None and node.document is not None:
            document = json.loads(node.document)
            document.pop(CONSOLIDATED, None)
            yield path, document
        if node is None or node.kind == "group":
            for name in await self._tree.children(path):
                if not is_metadata(name):
                    async for shown in self._documents(below(path, name)):
                        yield shown

    # Listing

    async def list(self) -> AsyncIterator[str]:
        """Every key. It has to read the chunks of logical arrays to know which exist."""
        async for key in self._keys(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Every key with this prefix. It has to read the chunks of logical arrays to know which exist."""
        path, node = await self._tree.owner(prefix)
        if node is not None and isinstance(node.kind, ArrayView):
            keys = self._keys_of(path, node.kind, prefix)
        else:
            keys = self._keys(path)
        async for key in keys:
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """The names directly below a path."""
        path = prefix.strip("/")
        owner, node = await self._tree.owner(below(path))
        if node is not None and isinstance(node.kind, ArrayView):
            seen: set[str] = set()
            async for key in self._keys_of(owner, node.kind, below(path), seen):
                name = _inside(key, path).partition("/")[0]
                seen.add(below(path, name))
                yield name
            return
        plain = node is not None and node.kind == "array"
        for name in await self._tree.children(path):
            if plain or is_metadata(name) or await self._is_there(below(path, name)):
                yield name

    async def _is_there(self, path: str) -> bool:
        """Whether there is a node at a path, or below it."""
        if await self._tree.at(path) is not None:
            return True
        async for _ in self._keys(path):
            return True
        return False

    async def _keys(self, path: str) -> AsyncIterator[str]:
        """Every key at or below a path that is not inside an array."""
        node = await self._tree.at(path)
        if node is not None and isinstance(node.kind, ArrayView):
            async for key in self._keys_of(path, node.kind, below(path)):
                yield key
        elif node is not None and node.kind == "array":
            for key in await self._tree.keys(path):
                yield key
        else:
            for name in await self._tree.children(path):
                if is_metadata(name):
                    yield below(path, name)
                else:
                    async for key in self._keys(below(path, name)):
                        yield key

    async def _keys_of(
        self, path: str, view: ArrayView, prefix: str, skipped: Collection[str] = ()
    ) -> AsyncIterator[str]:
        """The keys of a logical array with this prefix, except those in the directories `skipped`."""
        if below(path, METADATA).startswith(prefix):
            yield below(path, METADATA)
        for name in view.covered_keys():
            key = below(path, name)
            if not key.startswith(prefix) or prefix + key[len(prefix) :].partition("/")[0] in skipped:
                continue
            if await self._holds(path, view, name):
                yield key


def _inside(key: str, path: str) -> str:
    """A key, relative to the array at `path`."""
    return key[len(below(path)) :]


def _part(value: bytes, request: ByteRequest | None) -> bytes:
    """The requested bytes."""
    match request:
        case None:
            return value
        case RangeByteRequest():
            return value[request.start : request.end]
        case OffsetByteRequest():
            return value[request.offset :]
        case SuffixByteRequest():
            return value[max(0, len(value) - request.suffix) :]
    raise ValueError(f"{request!r} is not a part of a value")
