"""What is where in the store below a view: groups, plain arrays, and logical arrays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Literal, NamedTuple

from zarr.abc.codec import Codec
from zarr.abc.store import Store
from zarr.core.buffer import default_buffer_prototype

from intarsia._compat import event_loop
from intarsia.array.document import MANIFEST_KEY
from intarsia.array.fetch import is_lasting, start
from intarsia.array.hierarchy import open_group
from intarsia.array.logical_group import LogicalGroup
from intarsia.codecs.synchronous import in_thread_for
from intarsia.errors import ReadError
from intarsia.interop.views.array_view import ArrayView

METADATA = "zarr.json"
OLDER_METADATA = frozenset((".zarray", ".zattrs", ".zgroup", ".zmetadata"))

MOST_CHANGES = 20
"""So many times in a row a chunk is read again because the layout has changed."""


def is_metadata(name: str) -> bool:
    """Whether a key of this last segment holds metadata.

    >>> is_metadata("zarr.json"), is_metadata("c")
    (True, False)
    """
    return name == METADATA or name in OLDER_METADATA


def below(path: str, name: str = "") -> str:
    """A key below a path; where all of them start, without a name.

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
    """The nodes below `root` of a store, each looked at when asked for.

    A read-only session of Icechunk is read once. Other stores may change, so a node's metadata is read each
    time, as zarr does when it opens an array; a logical array is opened again when it has changed.
    """

    def __init__(
        self, store: Store, root: str, codecs: tuple[Codec, ...] | None, chunks: tuple[int, ...] | None
    ) -> None:
        self._store, self._root, self._codecs, self._chunks = store, root, codecs, chunks
        self._known: dict[str, Node] = {}
        self.are_lasting = is_lasting(store)
        """Whether nothing changes any more; asked here, as an event loop must not wait for the answer."""

    async def owner(self, key: str) -> tuple[str, Node | None]:
        """The array that a key lies in, or else what there is where the key lies; path and node."""
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
        """What the logical array at `path` tells, looked at in a thread; None if it is gone meanwhile.

        Where a layout is changed, members are removed after the manifest has ceased to name them. Chunks of
        a member that is gone look as if they had never been written, so what was read counts only if the
        array is still the same afterwards.
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
        """The names directly below a path, as the store has them."""
        return await self._listed(self._store.list_dir(below(self._root, path).rstrip("/")))

    async def keys(self, path: str) -> list[str]:
        """The keys of the plain array at a path."""
        keys = await self._listed(self._store.list_prefix(below(self._root, below(path))))
        return [key[len(below(self._root)) :] for key in keys]

    async def stored(self, key: str) -> bytes | None:
        """A value of the store."""
        value = await self.asked(self._store.get(below(self._root, key), default_buffer_prototype()))
        return None if value is None else value.to_bytes()

    async def _listed(self, names: AsyncIterator[str]) -> list[str]:
        async def collect() -> list[str]:
            return [name async for name in names]

        return await self.asked(collect())

    @staticmethod
    async def asked[T](answer: Coroutine[Any, Any, T]) -> T:
        """What the store answers: some stores work on zarr's event loop alone, and a server has its own."""
        if asyncio.get_running_loop() is event_loop():
            return await answer
        return await asyncio.wrap_future(start(answer))
