"""The walk from an array, or from the bytes of one of its chunks, to its `conditional` codecs.

`find_codecs` goes through zarr.json, through shards and the parts of nullable data. `ChunkWalk` goes the
same way through the bytes of a chunk, and back if a visit has replaced some. `masks`, `rewrite`,
`with_decision` and `extend_codecs` do nothing else.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any, Self, cast

import zarr
from zarr.abc.codec import BytesBytesCodec, Codec
from zarr.codecs import ShardingCodec
from zarr.core.buffer import Buffer
from zarr.storage import StorePath

from intarsia._compat import ArraySpec, ChunkGrid, codec_specs
from intarsia.codecs.base import all_codecs
from intarsia.codecs.compressors import likely_bound
from intarsia.codecs.conditional import ConditionalCodec
from intarsia.codecs.context import (
    Grid,
    Index,
    Locate,
    at_position,
    axes_after,
    first_spec,
    inner_position,
    to_array_axes,
)
from intarsia.codecs.nested import decode_with, encode_with
from intarsia.codecs.runtime_options import config_of
from intarsia.codecs.shard_index import ShardIndex
from intarsia.errors import CodecConfigurationError


@dataclass(frozen=True, slots=True)
class CodecPath:
    """One `conditional` codec of an array."""

    path: str
    """The codec's place in zarr.json, leaving out `configuration`: "codecs[0].codecs[1]"."""

    codec: ConditionalCodec
    """The codec."""

    spec: ArraySpec
    """What zarr tells the codec about the array; in shards, about a chunk."""

    shards: tuple[ShardingCodec, ...]
    """The shards around it, outermost first."""

    axes: Index | None
    """The axis of the array that each axis of a chunk in these shards is; None if that cannot be known."""

    nested: bool
    """Whether it is nested in another `conditional` codec."""

    def chunk_shape(self, array: zarr.Array[Any]) -> tuple[int, ...] | None:
        """The shape of the chunks it decides about, in the array's axes; None if that cannot be known."""
        if not self.shards:
            return array.chunks
        return None if self.axes is None else to_array_axes(self.shards[-1].chunk_shape, self.axes)

    def grid_shape(self, array: zarr.Array[Any]) -> tuple[int, ...]:
        """The number of chunks that the codec decides about, along each axis of the array.

        >>> import zarr
        >>> from zarr.codecs import BytesCodec, ZstdCodec
        >>> codec = ConditionalCodec(codecs=[ZstdCodec()])
        >>> z = zarr.create(store={}, shape=(5, 9), chunks=(2, 3), dtype="u1", codecs=[BytesCodec(), codec])
        >>> find_codecs(z, "count")[0].grid_shape(z)
        (3, 3)
        """
        metadata: Any = array.metadata
        if not self.shards:
            return ChunkGrid.from_metadata(metadata).grid_shape
        chunk_shape = self.chunk_shape(array)
        if chunk_shape is None:
            raise CodecConfigurationError(
                "the chunks inside the shards of this array have no place in its chunk grid: of the codecs "
                f"before the shards in {names_of(metadata.codecs)}, one does more than reorder the axes"
            )
        return tuple(ceil(n / size) for n, size in zip(array.shape, chunk_shape, strict=True))


def names_of(codecs: Iterable[Codec]) -> list[Any]:
    """The names of codecs in zarr.json, and of those inside them."""
    return [codec.to_dict().get("name") for codec in all_codecs(codecs)]


def stored_spec(array: zarr.Array[Any], shape: tuple[int, ...]) -> ArraySpec:
    """The first codec's spec for a chunk of `array` of this shape."""
    return first_spec(array.metadata, shape, config_of(array))


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk or shard of an array, as the store has it."""

    path: StorePath
    """Where its bytes are."""

    codecs: tuple[Codec, ...]
    """The codecs that encoded it."""

    spec: ArraySpec
    """What zarr tells the first of them."""

    locate: Locate
    """Says where it is in the array."""

    @classmethod
    def of(cls, array: zarr.Array[Any], index: Index) -> Self:
        """The one at this index of the grid of `array`."""
        metadata: Any = array.metadata
        grid = Grid.of(metadata)
        # At the edge too, codecs see whole chunks.
        shape = tuple(axis.chunk_size(i) for axis, i in zip(grid.chunks.dimensions, index, strict=True))
        spec, path = stored_spec(array, shape), array.store_path / metadata.encode_chunk_key(index)
        return cls(path, metadata.codecs, spec, partial(grid.position_of, index, spec, metadata.codecs))


def has_conditional(codecs: Iterable[Codec]) -> bool:
    """Whether a `conditional` codec is among or inside these.

    >>> from zarr.codecs import BytesCodec
    >>> has_conditional([BytesCodec()])
    False
    """
    return any(isinstance(codec, ConditionalCodec) for codec in all_codecs(codecs))


def find_codecs(array: zarr.Array[Any], purpose: str) -> list[CodecPath]:
    """All `conditional` codecs of `array`, each before those nested in it; an error if it has none.

    >>> import zarr
    >>> find_codecs(zarr.create(store={}, shape=4, dtype="u1"), "read bitmasks")
    Traceback (most recent call last):
    ...
    intarsia.errors.CodecConfigurationError: cannot read bitmasks: the array has no conditional codec; ...
    """
    own: tuple[Codec, ...] = getattr(array.metadata, "codecs", ())  # there are none in format 2
    codecs = list(_find(own, "codecs", stored_spec(array, array.shape), (), tuple(range(array.ndim))))
    if not codecs:
        raise CodecConfigurationError(
            f"cannot {purpose}: the array has no conditional codec; its codecs are {names_of(own)}"
        )
    return codecs


def _find(
    codecs: Sequence[Codec],
    path: str,
    first: ArraySpec,
    shards: tuple[ShardingCodec, ...],
    axes: Index | None,
    *,
    nested: bool = False,
) -> Iterator[CodecPath]:
    """The `conditional` codecs in the list of codecs at `path`; `first` is the spec of its first codec."""
    for position, (codec, spec) in enumerate(zip(codecs, codec_specs(codecs, first), strict=True)):
        at = f"{path}[{position}]"
        if isinstance(codec, ConditionalCodec):
            yield CodecPath(at, codec, spec, shards, axes, nested)
            yield from _find(codec.codecs, f"{at}.codecs", spec, shards, axes, nested=True)
        elif isinstance(codec, ShardingCodec):
            inside, outer = replace(spec, shape=codec.chunk_shape), axes_after(codecs[:position], first, axes)
            yield from _find(codec.codecs, f"{at}.codecs", inside, (*shards, codec), outer)
        elif hasattr(codec, "chains"):  # it has parts with their own codecs: `optional`, in the room above
            multi_part: Any = codec
            for name, (chain, part) in zip(multi_part.chains, multi_part.largest_parts(spec), strict=True):
                yield from _find(chain, f"{at}.{name}", part, shards, axes)


type Visit = Callable[[ConditionalCodec, str, Buffer, ArraySpec], Buffer | None]
"""Gets a `conditional` codec, its place in zarr.json, the bytes that it encoded and its spec. It returns
other bytes to put in their place, or None. Codecs nested in it are its business."""


@dataclass
class ChunkWalk:
    """Goes through the bytes of chunks to their `conditional` codecs, and counts the chunks."""

    visit: Visit
    """Called for every codec, in the place of its chunk."""

    chunks: int = 0
    """The number of chunks; in shards, of inner chunks."""

    changed: int = 0
    """How many of them have other bytes now."""

    def through(
        self, codecs: Sequence[Codec], data: Buffer, spec: ArraySpec, locate: Locate, path: str = "codecs"
    ) -> Buffer | None:
        """The new bytes of a chunk or shard that these codecs encoded; None if nothing changes."""
        with at_position(locate):
            new = self._back(codecs, data, spec, locate, path)
        if not any(isinstance(codec, ShardingCodec) and has_conditional([codec]) for codec in codecs):
            self.chunks += 1
            self.changed += new is not None
        return new

    def _back(
        self, codecs: Sequence[Codec], data: Buffer, spec: ArraySpec, locate: Locate, path: str
    ) -> Buffer | None:
        """Undo the last codec, go on with those before it, and do it again if they changed anything."""
        if not has_conditional(codecs):
            return None
        *before, codec = codecs
        own, at = codec_specs(codecs, spec)[-1], f"{path}[{len(before)}]"
        if isinstance(codec, ShardingCodec):
            return self._shard(codec, data, own, locate, at)
        if hasattr(codec, "chains"):
            return self._parts(codec, data, own, locate, at)
        assert isinstance(codec, BytesBytesCodec)  # no other codec has a conditional one in or before it
        if has_conditional(before):
            inside = decode_with(codec, data, own, likely_bound(own))
            new = self._back(before, inside, spec, locate, path)
            if new is not None:
                return cast("Buffer", encode_with(codec, new, own))
        return self.visit(codec, at, data, own) if isinstance(codec, ConditionalCodec) else None

    def _shard(
        self, codec: ShardingCodec, data: Buffer, spec: ArraySpec, locate: Locate, path: str
    ) -> Buffer | None:
        index = ShardIndex.of(codec, spec.shape)
        inside = replace(spec, shape=codec.chunk_shape)
        chunks, changed = index.split(data), False
        for position, chunk in chunks.items():
            inner = partial(inner_position, locate, position, inside, codec.codecs)
            new = self.through(codec.codecs, chunk, inside, inner, f"{path}.codecs")
            if new is not None:
                chunks[position], changed = new, True
        return index.join(chunks) if changed else None

    def _parts(self, codec: Any, data: Buffer, spec: ArraySpec, locate: Locate, path: str) -> Buffer | None:
        opened = codec.open_parts(data, spec)
        new = {
            name: self._back(codec.chains[name], part, own, locate, f"{path}.{name}")
            for name, (part, own) in opened.items()
        }
        changed = {name: part for name, part in new.items() if part is not None}
        parts = {name: part for name, (part, _) in opened.items()}
        return cast("Buffer", codec.close_parts(parts | changed, spec)) if changed else None


def deciding_members(array: Any, purpose: str) -> dict[str, zarr.Array[Any]]:
    """The members of a logical array that are in use and have a `conditional` codec; an error if none do."""
    names = dict.fromkeys(region.name for region in array.regions)
    members = {name: array.members[name] for name in names}
    deciding = {name: member for name, member in members.items() if has_conditional(member.metadata.codecs)}
    if not deciding:
        raise CodecConfigurationError(
            f"cannot {purpose}: none of the {len(members)} members of the logical array has a conditional "
            "codec.\n  To give a region other codecs: array.recode(bounds, codecs=[…])",
            command="To give a region other codecs: intarsia recode",
        )
    return deciding


def deciding_arrays(array: Any, purpose: str) -> list[zarr.Array[Any]]:
    """The zarr arrays in a plain, a nullable or a logical array that a decision is for."""
    if hasattr(array, "regions"):  # a logical array, about which this room knows no more
        return list(deciding_members(array, purpose).values())
    return [getattr(array, "zarr_array", array)]  # a nullable array is a view of that one
