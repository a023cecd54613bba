"""What members are without their data: how their chunks are stored.

This is read only from zarr.json: opening a member as a `zarr.Array` costs thirty times as much, too much for
a map of 10,000 regions.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.chunk_key_encodings import ChunkKeyEncoding, parse_chunk_key_encoding

from intarsia._compat import DefaultChunkKeyEncoding, concurrent_map, sync
from intarsia.display import codecs_text
from intarsia.manifest.manifest import Manifest
from intarsia.manifest.region_table import NONE

AT_ONCE = 256
"""The number of metadata documents requested together."""

LARGEST_SIZE = 1 << 53
"""No axis is longer: JSON numbers up to this are exact everywhere."""


@dataclass(frozen=True)
class MemberMetadata:
    """A member without its data: how its chunks are stored.

    >>> metadata = MemberMetadata.of("m-1", {"codecs": [{"name": "bytes"}, {"name": "gzip",
    ...     "configuration": {"level": 5}}], "shape": [4],
    ...     "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}}})
    >>> metadata.names, metadata.label, metadata.chunks
    ('gzip', 'gzip-5', (2,))
    """

    name: str
    """The member's name in its group."""

    codecs: tuple[Mapping[str, Any], ...]
    """The codec objects in its zarr.json; if it is sharded, those inside the shards."""

    shape: tuple[int, ...]
    """The shape, in elements."""

    chunks: tuple[int, ...]
    """The shape of the chunks that are read; if it is sharded, of the inner chunks."""

    grain: tuple[int, ...]
    """The shape of the objects in the store: shards if it is sharded, otherwise chunks."""

    key_encoding: ChunkKeyEncoding
    """How an index becomes the key of a stored chunk below the member."""

    problem: str = ""
    """Why nothing is known about the member; empty if all is well."""

    @property
    def names(self) -> str:
        """The names of the codecs."""
        return "unknown" if self.problem else codecs_text(self.codecs, settings=False)

    @property
    def label(self) -> str:
        """The codecs in a few words, as everywhere else."""
        return "unknown" if self.problem else codecs_text(self.codecs)

    @property
    def is_sharded(self) -> bool:
        """Whether the store holds shards."""
        return self.grain != self.chunks

    @property
    def conditional_codecs(self) -> tuple[Mapping[str, Any], ...]:
        """The codecs nested in its `conditional` codec; empty if it has none."""
        for codec in self.codecs:
            settings = codec.get("configuration") or {}
            if codec.get("name") in ("conditional", "optional") and isinstance(settings.get("codecs"), list):
                return tuple(settings["codecs"])
        return ()

    def index_of(self, key: str) -> tuple[int, ...] | None:
        """Which stored chunk a key below the member refers to, or None if it refers to none.

        >>> metadata = MemberMetadata("m", (), (4, 4), (2, 2), (2, 2), DefaultChunkKeyEncoding())
        >>> metadata.index_of("c/0/1"), metadata.index_of("zarr.json")
        ((0, 1), None)
        """
        try:
            index = self.key_encoding.decode_chunk_key(key) if self.grain else ()
        except ValueError:
            return None
        is_key = len(index) == len(self.grain) and self.key_encoding.encode_chunk_key(index) == key
        return index if is_key else None

    @classmethod
    def of(cls, name: str, document: Mapping[str, Any]) -> Self:
        """What the content of zarr.json says about the member."""
        codecs, grid = document["codecs"], document["chunk_grid"]["configuration"]
        if "chunk_shape" not in grid:
            raise ValueError("its chunks differ in shape")
        chunks = grain = tuple(grid["chunk_shape"])
        while codecs and codecs[0].get("name") == "sharding_indexed":
            inner = codecs[0]["configuration"]
            chunks, codecs = tuple(inner["chunk_shape"]), inner["codecs"]
        keys = parse_chunk_key_encoding(document.get("chunk_key_encoding") or DefaultChunkKeyEncoding())
        return cls(name, tuple(codecs), tuple(document["shape"]), chunks, grain, keys)

    def check(self, ndim: int) -> None:
        """Raise an error unless these are the metadata of an array with so many axes."""
        for sizes, least in ((self.shape, 0), (self.grain, 1), (self.chunks, 1)):
            are_sizes = all(type(size) is int and least <= size <= LARGEST_SIZE for size in sizes)
            if len(sizes) != ndim or not are_sizes:
                raise ValueError(f"its shape or chunks are {sizes!r:.200}, but it has {ndim} axes")
        codecs_text(self.codecs)

    @classmethod
    def unknown(cls, name: str, ndim: int, problem: str) -> Self:
        """A member that cannot be read."""
        nothing = (1,) * ndim
        return cls(name, (), nothing, nothing, nothing, DefaultChunkKeyEncoding(), problem)


def read_member_metadata(group: zarr.Group, manifest: Manifest) -> tuple[MemberMetadata, ...]:
    """The metadata of every member, requested together; that of one that cannot be read says so.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="f4")
    >>> array.append([1, 2], codecs=["gzip"])
    >>> [metadata.label for metadata in read_member_metadata(array.group, array.manifest)]
    ['gzip-5']
    """
    # A member that is seen through a view has as many axes as the view says.
    ranks, table = [manifest.ndim] * len(manifest.members), manifest.regions
    for member, view in np.unique(np.stack([table.member, table.view])[:, table.view != NONE], axis=1).T:
        ranks[member] = len(manifest.views[view].axes)
    prefix = f"{group.path}/" if group.path else ""

    async def read(name: str, ndim: int) -> MemberMetadata:
        try:
            buffer = await group.store.get(f"{prefix}{name}/zarr.json", default_buffer_prototype())
            if buffer is None:
                return MemberMetadata.unknown(name, ndim, "the member is missing")
            metadata = MemberMetadata.of(name, json.loads(buffer.to_bytes()))
            metadata.check(ndim)
            return metadata
        except Exception as error:  # whatever damaged metadata lead to
            kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
            return MemberMetadata.unknown(name, ndim, f"{kind}{error}")

    return tuple(sync(concurrent_map(zip(manifest.members, ranks, strict=True), read, AT_ONCE)))
