"""What a view shows of a store: groups, plain arrays, and each logical array as one ordinary Zarr array."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

from zarr.abc.codec import Codec
from zarr.abc.store import ByteRequest, Store
from zarr.codecs import ZstdCodec
from zarr.core.buffer import Buffer, BufferPrototype, NDBuffer, default_buffer_prototype
from zarr.storage import MemoryStore

from intarsia._compat import ArraySpec, ChunkTransform, event_loop, evolve_codecs
from intarsia.codecs import parse_codecs
from intarsia.codecs.base import in_thread_for
from intarsia.codecs.current_chunk import working_on
from intarsia.engine.fetch import check_links, is_lasting
from intarsia.engine.fetch.session_access import helpful_refusals
from intarsia.engine.fetch.store import start
from intarsia.engine.read import read_request
from intarsia.engine.request import request
from intarsia.errors import CodecConfigurationError, IntarsiaError, ReadError
from intarsia.logical.hierarchy import open_group
from intarsia.logical.logical_state import LogicalGroup
from intarsia.logical.members import Encoding, create_member
from intarsia.manifest.box import Box
from intarsia.manifest.coercion import allocated, codecs_for, is_nullable
from intarsia.manifest.document import CONVENTIONS_KEY, MANIFEST_KEY, convention
from intarsia.manifest.manifest import Manifest
from intarsia.nullable.codec import default_serializer
from intarsia.words import one_line

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
        self._known: dict[str, Node] = {}
        self._checked: set[str] = set()
        """The plain arrays in which no link leads out of the store."""
        self.are_lasting = is_lasting(store)
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
        known = self._known.get(path)
        if known is not None and self.are_lasting:
            return known
        document = await self.stored(below(path, METADATA))
        if document is None:
            older = await self.stored(below(path, ".zarray"))
            return None if older is None else Node(None, "array")
        if known is None or known.document != document:
            known = self._known[path] = await self._parsed(path, document)
        return known

    async def _parsed(self, path: str, document: bytes) -> Node:
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
        return ArrayView(LogicalGroup.load(group), self._codecs, self._chunks)

    async def told[T](self, path: str, view: ArrayView, look: Callable[[ArrayView], T]) -> T | None:
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
            node = None if self.are_lasting else await self.at(path)
            if self.are_lasting or (node is not None and node.kind is view):
                if failure is not None:
                    raise failure
                return answer
            if node is None or not isinstance(node.kind, ArrayView):
                return None
            view = node.kind
        raise ReadError(f"the array {path or '/'!r} changes faster than it can be read")

    async def children(self, path: str) -> list[str]:
        """The names directly below a path in the store."""
        return await self._listed(self._store.list_dir(below(self._root, path).rstrip("/")))

    async def keys(self, path: str) -> list[str]:
        """The keys of the plain array at a path."""
        keys = await self._listed(self._store.list_prefix(below(self._root, below(path))))
        return [key[len(below(self._root)) :] for key in keys]

    async def stored(self, key: str) -> bytes | None:
        """The stored value of a key."""
        value = await self.asked(self._store.get(below(self._root, key), default_buffer_prototype()))
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
            return await self.asked(self._store.get(below(self._root, key), prototype, byte_range))

    async def _listed(self, names: AsyncIterator[str]) -> list[str]:
        async def collect() -> list[str]:
            return [name async for name in names]

        return await self.asked(collect())

    @staticmethod
    async def asked[T](answer: Coroutine[Any, Any, T]) -> T:
        """The store's answer. Some stores only work on zarr's event loop, and a server has its own."""
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
        logical: LogicalGroup,
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

    def covered(self) -> Iterator[str]:
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
        values = read_request(self._logical, request(manifest.shape, elements.slices or ...))
        if values.shape != self._chunks:  # chunks have the full size even at the edge of the array
            padded = allocated(manifest.data_type, self._chunks, manifest.fill_value)
            padded[tuple(slice(n) for n in values.shape)] = values
            values = padded
        buffer = self._spec.prototype.nd_buffer.from_ndarray_like(values)
        return None if buffer.all_equal(manifest.fill_value) else buffer


def _chain(manifest: Manifest, codecs: Sequence[Codec] | None) -> Sequence[Codec]:
    chosen = (FAST,) if codecs is None else codecs
    if is_nullable(manifest.data_type):
        chain = codecs_for(manifest.data_type, chosen)
        assert chain is not None
        return chain
    return parse_codecs(chosen, default_serializer(manifest.data_type))


def _attributes(logical: LogicalGroup) -> dict[str, Any]:
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
