"""The route from a stored chunk to a `conditional` codec: through which shards, past which codecs.

`masks` follows it to read bitmasks, `rewrite` follows it and comes back with new bytes, `with_decision` and
`extend_codecs` look at its end.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Protocol

import zarr
from zarr.abc.codec import ArrayArrayCodec, BytesBytesCodec, Codec
from zarr.codecs import ShardingCodec
from zarr.core.buffer import Buffer, default_buffer_prototype

from intarsia._compat import ArraySpec, ArrayV3Metadata, ChunkGrid
from intarsia.codecs.conditional import ConditionalCodec
from intarsia.codecs.context import (
    ChunkPlace,
    Grid,
    Index,
    InnerPlace,
    StoredPlace,
    at_place,
    axes_after,
    to_array_axes,
)
from intarsia.codecs.nested import redo, undo
from intarsia.codecs.runtime_options import config_of
from intarsia.codecs.shard_index import ShardIndex
from intarsia.codecs.stored_chunks import Extent, MemoryObject, margins
from intarsia.errors import CodecConfigurationError


class Divided(Protocol):
    """An array -> bytes codec whose chunks have parts with their own codecs, such as `optional`."""

    @property
    def chains(self) -> Mapping[str, tuple[Codec, ...]]:
        """The codecs of each part, by the part's name."""

    @property
    def frame_bytes(self) -> int:
        """The bytes of a chunk that are not in its parts."""

    def largest_parts(self, spec: ArraySpec) -> list[tuple[tuple[Codec, ...], ArraySpec]]:
        """The codecs of each part, with the spec of the largest part that a chunk may have."""

    def open_parts(self, data: Buffer, spec: ArraySpec) -> dict[str, tuple[Buffer, ArraySpec]]:
        """The encoded parts of a chunk, each with the spec for its codecs."""

    def close_parts(self, parts: Mapping[str, Buffer], spec: ArraySpec) -> Buffer:
        """A chunk made of these encoded parts."""


@dataclass(frozen=True, slots=True)
class EncodedPiece:
    """The bytes of a stored object, of a chunk in a shard, or of a part of a chunk."""

    extent: Extent
    """Where the bytes are."""

    spec: ArraySpec
    """What zarr tells the first codec of the piece."""

    place: ChunkPlace
    """Which chunk it belongs to."""


@dataclass(frozen=True, slots=True)
class Step:
    """One codec on the route, and its neighbours in the same list of codecs."""

    before: tuple[Codec, ...]
    """The codecs that encode before it."""

    codec: Any
    """The codec itself: a shard, a codec whose chunks have parts, or at the end the `conditional` codec."""

    after: tuple[BytesBytesCodec, ...]
    """The codecs that encode after it, which have to be undone to reach it."""

    part: str = ""
    """The name of the part that the route leads through, if the codec has parts."""

    @property
    def is_shard(self) -> bool:
        """Whether the codec is a shard."""
        return isinstance(self.codec, ShardingCodec)

    def leads_into(self, name: Any) -> bool:
        """Whether the route leads through the inner piece of this name: every chunk of a shard, one part."""
        return self.is_shard or name == self.part

    def spec(self, spec: ArraySpec) -> ArraySpec:
        """The codec's spec of a piece, given the one for the first codec of the list."""
        for codec in self.before:
            spec = codec.resolve_metadata(spec)
        return spec

    def uncover(self, piece: EncodedPiece, *, check: bool = False) -> EncodedPiece | None:
        """The piece as the codec encoded it; None if it does not exist.

        Bytes that the codecs after it only add, such as a checksum, are skipped without reading the piece,
        unless it is to be checked.
        """
        spec, around = self.spec(piece.spec), margins(self.after)
        if around is not None and not check:
            return EncodedPiece(piece.extent.without(*around), spec, piece.place)
        data = piece.extent.all()
        if data is None:
            return None
        with at_place(piece.place):
            return EncodedPiece(Extent(MemoryObject(undo(self.after, data, spec))), spec, piece.place)

    def open(self, piece: EncodedPiece, *, check: bool = False) -> dict[Any, EncodedPiece]:
        """The pieces inside a piece: the chunks of a shard by their positions, or parts by their names."""
        opened = self.uncover(piece, check=check)
        if opened is None:
            return {}
        with at_place(piece.place):
            return self._chunks(opened) if self.is_shard else self._parts(opened)

    def _chunks(self, shard: EncodedPiece) -> dict[Any, EncodedPiece]:
        index = ShardIndex.of(self.codec, shard.spec.shape)
        extent = shard.extent
        stored = extent.first(index.nbytes) if index.first else extent.last(index.nbytes)
        if stored is None:
            return {}
        spec = replace(shard.spec, shape=self.codec.chunk_shape)
        arrays = array_codecs(self.codec.codecs)
        extents = index.extents(index.decode(stored.as_numpy_array()), extent.nbytes)
        return {
            position: EncodedPiece(
                extent.part(start, stop), spec, InnerPlace(shard.place, position, spec, arrays)
            )
            for position, (start, stop) in extents.items()
        }

    def _parts(self, chunk: EncodedPiece) -> dict[Any, EncodedPiece]:
        data = chunk.extent.all()
        parts = {} if data is None else self.codec.open_parts(data, chunk.spec)
        return {
            name: EncodedPiece(Extent(MemoryObject(part)), spec, chunk.place)
            for name, (part, spec) in parts.items()
        }

    def close(self, pieces: Mapping[Any, Buffer], piece: EncodedPiece) -> Buffer:
        """The bytes of `piece` with this content: what `open` undid, done again."""
        spec = self.spec(piece.spec)
        with at_place(piece.place):
            if self.is_shard:
                data = ShardIndex.of(self.codec, spec.shape).join(pieces)
            else:
                data = self.codec.close_parts(pieces, spec)
            return redo(self.after, data, spec)


@dataclass(frozen=True, slots=True)
class Route:
    """How to reach one `conditional` codec of an array."""

    steps: tuple[Step, ...]
    """The shards and parts around the codec, outermost first, and the codec itself."""

    path: str
    """The codec's place in zarr.json, leaving out `configuration`: "codecs[0].codecs[1]"."""

    @property
    def end(self) -> Step:
        """The last step, to the `conditional` codec."""
        return self.steps[-1]

    @property
    def codec(self) -> ConditionalCodec:
        """The `conditional` codec."""
        codec: ConditionalCodec = self.end.codec
        return codec

    @property
    def shards(self) -> tuple[Step, ...]:
        """The shards on the way, outermost first."""
        return tuple(step for step in self.steps if step.is_shard)

    def conditional_codecs(self) -> dict[str, ConditionalCodec]:
        """The codec and those nested in it, by their place in zarr.json."""
        codecs: dict[str, ConditionalCodec] = {}

        def add(path: str, codec: ConditionalCodec) -> None:
            codecs[path] = codec
            for position, nested in enumerate(codec.codecs):
                if isinstance(nested, ConditionalCodec):
                    add(f"{path}.codecs[{position}]", nested)

        add(self.path, self.codec)
        return codecs

    def spec(self, array: zarr.Array[Any], shape: tuple[int, ...]) -> ArraySpec:
        """The codec's spec for a chunk, given the shape of the stored chunk or shard around it."""
        spec = stored_spec(array, shape)
        for step in self.shards:
            spec = replace(step.spec(spec), shape=step.codec.chunk_shape)
        return self.end.spec(spec)

    def chunk_shape(self, array: zarr.Array[Any]) -> tuple[int, ...] | None:
        """The shape of the chunks it decides about, in the array's axes; None if that cannot be known."""
        if not self.shards:
            return array.chunks
        axes: tuple[int, ...] | None = tuple(range(array.ndim))
        spec = stored_spec(array, array.shape)
        for step in self.shards:
            axes = axes_after(array_codecs(step.before), spec, axes)
            spec = replace(step.spec(spec), shape=step.codec.chunk_shape)
        return None if axes is None else to_array_axes(spec.shape, axes)

    def grid_shape(self, array: zarr.Array[Any]) -> tuple[int, ...]:
        """The number of chunks that the codec decides about, along each axis of the array.

        >>> import zarr
        >>> from zarr.codecs import BytesCodec, ZstdCodec
        >>> codec = ConditionalCodec(codecs=[ZstdCodec()])
        >>> z = zarr.create(store={}, shape=(5, 9), chunks=(2, 3), dtype="u1", codecs=[BytesCodec(), codec])
        >>> find_routes(z, "count")[0].grid_shape(z)
        (3, 3)
        """
        if not self.shards:
            return ChunkGrid.from_metadata(array.metadata).grid_shape
        chunk_shape = self.chunk_shape(array)
        if chunk_shape is None:
            names = [codec.to_dict().get("name") for step in self.shards for codec in step.before]
            raise CodecConfigurationError(
                "the chunks inside the shards of this array have no place in its chunk grid: of the codecs "
                f"{names} before the shards, one does more than reorder the axes"
            )
        return tuple(ceil(n / size) for n, size in zip(array.shape, chunk_shape, strict=True))


def stored_spec(array: zarr.Array[Any], shape: tuple[int, ...]) -> ArraySpec:
    """The first codec's spec for a chunk of `array` of this shape."""
    metadata: Any = array.metadata
    return ArraySpec(
        shape, metadata.data_type, metadata.fill_value, config_of(array), default_buffer_prototype()
    )


def stored_piece(array: zarr.Array[Any], grid: Grid, index: Index, extent: Extent) -> EncodedPiece:
    """The chunk or shard of `array` that is stored at `index`, with its bytes in `extent`."""
    metadata: Any = array.metadata
    # At the edge too, codecs see whole chunks.
    shape = tuple(axis.chunk_size(i) for axis, i in zip(grid.chunks.dimensions, index, strict=True))
    spec, path = stored_spec(array, shape), array.store_path / metadata.encode_chunk_key(index)
    return EncodedPiece(extent, spec, StoredPlace(grid, path.path, spec, array_codecs(metadata.codecs)))


def array_codecs(codecs: tuple[Codec, ...]) -> tuple[ArrayArrayCodec, ...]:
    """The `codecs` that work on arrays."""
    return tuple(codec for codec in codecs if isinstance(codec, ArrayArrayCodec))


def routes(codecs: tuple[Codec, ...], at: str = "codecs") -> list[Route]:
    """The routes to all `conditional` codecs in `codecs`, except those nested in another one.

    >>> from zarr.codecs import BytesCodec, ZstdCodec
    >>> inner = (BytesCodec(), ConditionalCodec(codecs=[ZstdCodec()]))
    >>> [len(route.shards) for route in routes((ShardingCodec(chunk_shape=(2,), codecs=inner),))]
    [1]
    """
    found: list[Route] = []
    for position, codec in enumerate(codecs):
        after = tuple(c for c in codecs[position + 1 :] if isinstance(c, BytesBytesCodec))
        path, step = f"{at}[{position}]", Step(codecs[:position], codec, after)
        if isinstance(codec, ConditionalCodec):
            found.append(Route((step,), path))
            continue
        inside: Any = getattr(codec, "chains", {})
        if isinstance(codec, ShardingCodec):
            inside = {"codecs": codec.codecs}
        for name, chain in inside.items():
            outer = step if step.is_shard else replace(step, part=name)
            inner = routes(chain, f"{path}.{name}")
            found += [replace(route, steps=(outer, *route.steps)) for route in inner]
    return found


def find_routes(array: zarr.Array[Any], purpose: str) -> list[Route]:
    """The routes to all `conditional` codecs of `array`; an error if it has none.

    >>> import zarr
    >>> find_routes(zarr.create(store={}, shape=4, dtype="u1"), "read bitmasks")
    Traceback (most recent call last):
    ...
    intarsia.errors.CodecConfigurationError: cannot read bitmasks: the array has no conditional codec; ...
    """
    metadata = array.metadata
    if not isinstance(metadata, ArrayV3Metadata):
        raise CodecConfigurationError(
            f"cannot {purpose}: the array is in Zarr format 2, which has no such codec"
        )
    found = routes(metadata.codecs)
    if not found:
        names = [codec.to_dict().get("name") for codec in metadata.codecs]
        raise CodecConfigurationError(
            f"cannot {purpose}: the array has no conditional codec; its codecs are {names}"
        )
    return found


def deciding_members(array: Any, purpose: str) -> dict[str, zarr.Array[Any]]:
    """The members of a logical array that are in use and have a `conditional` codec; an error if none do."""
    names = dict.fromkeys(region.name for region in array.regions)
    members = {name: array.members[name] for name in names}
    deciding = {name: member for name, member in members.items() if routes(member.metadata.codecs)}
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
