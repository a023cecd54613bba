"""Fused views: logical arrays as the arrays that other programs expect, without copying anything.

Behind a view is a store that shows another store with every logical array as one ordinary array.
"""

import asyncio
import datetime
import json
from collections.abc import AsyncIterator, Collection, Hashable, Iterable, Sequence
from typing import Any, Self

import zarr
from zarr.abc.codec import Codec
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import StorePath

from intarsia._compat import open_store
from intarsia._icechunk import safe_store
from intarsia.codecs import CodecLike
from intarsia.codecs.base import parse_codec
from intarsia.engine.chunk_cache import BoundedCache
from intarsia.errors import NotLogicalArrayError, ReadOnlyError, ShapeError
from intarsia.interop.tree import METADATA, OLDER_METADATA, ArrayView, Node, Tree, below, is_metadata
from intarsia.logical.logical_array import LogicalArray
from intarsia.manifest.document import MANIFEST_KEY
from intarsia.parallel import check_travels
from intarsia.versions.version import LATEST, Version, resolve
from intarsia.words import one_line, place_text

CONSOLIDATED = "consolidated_metadata"

MOST_BYTES = 64 << 20
"""The size of the cache: enough for the shards that a few clients read piece by piece."""


def fused_view(
    source: Any,
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

    `source` is a repository (for which `branch`, `tag`, `snapshot_id` and `as_of` choose the version), a
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
    return zarr.open(view_store(source, path, codecs, chunks, version=version), mode="r", zarr_format=3)


def view_store(
    source: Any,
    path: str = "",
    codecs: Iterable[CodecLike] | None = None,
    chunks: Sequence[int] | None = None,
    *,
    consolidated: bool = False,
    version: Version = LATEST,
) -> "ViewStore":
    """The store of a view, with what is at `path` as its root."""
    chosen = None if codecs is None else tuple(parse_codec(codec) for codec in codecs)
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
    return ViewStore(node.store_path.store, inside, chosen, grid, consolidated=consolidated)


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
        await self._tree.asked(open_store(self._store))

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
            return await self._tree.asked(self._store.exists(below(self._root, key)))
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
        made = self._cache.get((path, key)) if self._tree.are_lasting else None
        if made is None:
            made = await self._tree.told(path, view, lambda array: array.chunk(key))
            if made is not None and self._tree.are_lasting:
                self._cache.put((path, key), made)
        return made

    async def _holds(self, path: str, view: ArrayView, key: str) -> bool:
        return bool(await self._tree.told(path, view, lambda array: array.holds(key)))

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
        for name in view.covered():
            key = below(path, name)
            if not key.startswith(prefix) or prefix + key[len(prefix) :].partition("/")[0] in skipped:
                continue
            if await self._holds(path, view, name):
                yield key


def _inside(key: str, path: str) -> str:
    """A key, relative to the array at `path`."""
    return key[len(below(path)) :]


def _part(value: bytes, asked: ByteRequest | None) -> bytes:
    """The requested bytes."""
    match asked:
        case None:
            return value
        case RangeByteRequest():
            return value[asked.start : asked.end]
        case OffsetByteRequest():
            return value[asked.offset :]
        case SuffixByteRequest():
            return value[max(0, len(value) - asked.suffix) :]
    raise ValueError(f"{asked!r} is not a part of a value")
