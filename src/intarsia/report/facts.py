"""What a member's metadata says, read from its zarr.json alone.

Opening a member as a `zarr.Array` costs thirty times as much; a map of 10,000 regions cannot afford it.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import zarr

__all__ = ["MemberFacts", "pipeline_label", "read_facts"]

AT_ONCE = 256
"""Metadata documents requested together."""

TOLD = ("level", "clevel", "cname", "elementsize", "element_size", "offset", "scale", "order")
"""Settings that tell one codec of a name from another, as far as a label has room."""


@dataclass(frozen=True)
class MemberFacts:
    """A member without its data: how its chunks are stored.

    >>> facts = MemberFacts.of("m-1", {"codecs": [{"name": "bytes"}, {"name": "gzip",
    ...     "configuration": {"level": 5}}], "shape": [4],
    ...     "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}}})
    >>> facts.names, facts.label, facts.chunks
    ('gzip', 'gzip level=5', (2,))
    """

    name: str
    """Of the member in its group."""

    codecs: tuple[Mapping[str, Any], ...]
    """The codec objects of its zarr.json; those inside the shards where it is sharded."""

    shape: tuple[int, ...]
    """In elements."""

    chunks: tuple[int, ...]
    """Of the chunks that are read; the inner ones where it is sharded."""

    grain: tuple[int, ...]
    """Of the objects in the store: shards where it is sharded, else chunks."""

    key_prefix: str
    """What stands before the indices in a chunk's key."""

    key_separator: str
    """What stands between the indices in a chunk's key."""

    problem: str = ""
    """Why nothing is known about it; empty if all is well."""

    @property
    def names(self) -> str:
        """The codecs in a few words, as everywhere else."""
        found = [str(codec.get("name")) for codec in self.codecs if codec.get("name") != "bytes"]
        return "+".join(found) or ("unknown" if self.problem else "raw")

    @property
    def label(self) -> str:
        """The codecs with the settings that tell them apart."""
        return pipeline_label(self.codecs) or self.names

    @property
    def is_sharded(self) -> bool:
        """Whether the store holds shards."""
        return self.grain != self.chunks

    def key(self, index: Sequence[int]) -> str:
        """The key of a stored chunk below the member."""
        if not index:
            return self.key_prefix or "0"
        text = self.key_separator.join(map(str, index))
        return f"{self.key_prefix}{self.key_separator}{text}" if self.key_prefix else text

    def index_of(self, key: str) -> tuple[int, ...] | None:
        """Which stored chunk a key below the member names, or None if it names none.

        >>> facts = MemberFacts("m", (), (4, 4), (2, 2), (2, 2), "c", "/")
        >>> facts.index_of("c/0/1"), facts.index_of("zarr.json")
        ((0, 1), None)
        """
        head = self.key_prefix + self.key_separator if self.key_prefix else ""
        if not self.grain:
            return () if key == self.key(()) else None
        parts = key.removeprefix(head).split(self.key_separator)
        if not key.startswith(head) or len(parts) != len(self.grain) or not all(p.isdecimal() for p in parts):
            return None
        return tuple(map(int, parts))

    @classmethod
    def of(cls, name: str, document: Mapping[str, Any]) -> MemberFacts:
        """From the content of zarr.json."""
        codecs = document["codecs"]
        grain = tuple(document["chunk_grid"]["configuration"]["chunk_shape"])
        chunks = grain
        while codecs and codecs[0].get("name") == "sharding_indexed":
            inner = codecs[0]["configuration"]
            chunks, codecs = tuple(inner["chunk_shape"]), inner["codecs"]
        encoding = document.get("chunk_key_encoding") or {"name": "default"}
        settings = encoding.get("configuration") or {}
        default = encoding.get("name") == "default"
        return cls(
            name,
            tuple(codecs),
            tuple(document["shape"]),
            chunks,
            grain,
            "c" if default else "",
            settings.get("separator", "/" if default else "."),
        )

    @classmethod
    def unknown(cls, name: str, ndim: int, problem: str) -> MemberFacts:
        """A member that cannot be read."""
        nothing = (1,) * ndim
        return cls(name, (), nothing, nothing, nothing, "c", "/", problem)


def pipeline_label(codecs: Sequence[Mapping[str, Any]]) -> str:
    """Codec objects as a short text with the settings that matter.

    >>> pipeline_label([{"name": "bytes", "configuration": {"endian": "little"}},
    ...                 {"name": "blosc", "configuration": {"cname": "zstd", "clevel": 5, "typesize": 4}}])
    'blosc cname=zstd clevel=5'
    """
    parts = []
    for codec in codecs:
        settings = codec.get("configuration") or {}
        if codec.get("name") == "bytes" and settings.get("endian", "little") == "little":
            continue
        told = [
            f"{key}={settings[key]}"
            for key in sorted(settings.keys() & set(TOLD), key=list(settings).index)
            if isinstance(settings[key], str | int | float | list)
        ]
        nested = settings.get("codecs")
        if isinstance(nested, list) and nested:
            told.append("(" + pipeline_label(nested) + ")")
        parts.append(" ".join([str(codec.get("name")), *told]))
    return " + ".join(parts)


def read_facts(group: zarr.Group, names: Sequence[str], ndim: int) -> tuple[MemberFacts, ...]:
    """The facts of every member, requested together; a member that cannot be read says so itself.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="f4")
    >>> array.append([1, 2], codecs=["gzip"])
    >>> [facts.names for facts in read_facts(array.group, array.manifest.members, array.ndim)]
    ['gzip']
    """
    found: list[MemberFacts] = sync(_read_all(group, names, ndim))
    return tuple(found)


async def _read_all(group: zarr.Group, names: Sequence[str], ndim: int) -> list[MemberFacts]:
    limit = asyncio.Semaphore(AT_ONCE)
    prototype = default_buffer_prototype()
    prefix = f"{group.path}/" if group.path else ""

    async def one(name: str) -> MemberFacts:
        async with limit:
            try:
                buffer = await group.store.get(f"{prefix}{name}/zarr.json", prototype)
                if buffer is None:
                    return MemberFacts.unknown(name, ndim, "the member is missing")
                facts = MemberFacts.of(name, json.loads(buffer.to_bytes()))
            except Exception as error:
                return MemberFacts.unknown(name, ndim, f"{type(error).__name__}: {error}")
        if len(facts.grain) != ndim or len(facts.chunks) != ndim or min(facts.grain, default=1) < 1:
            return MemberFacts.unknown(name, ndim, f"its chunks have {len(facts.grain)} axes, not {ndim}")
        return facts

    return await asyncio.gather(*(one(name) for name in names))
