"""The codecs of an inner chunk as slots need them: they know where it lies, and can store it raw."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

from zarr.codecs import ShardingCodec

from intarsia._compat import (
    ChunkGrid,
    decode_and_scatter_chunk,
    get_indexer,
    merge_and_encode_chunk,
    morton_order_coords,
)
from intarsia.codecs.conditional import ConditionalCodec
from intarsia.codecs.current_chunk import at_place, current_place
from intarsia.codecs.place import InnerPlace
from intarsia.codecs.recode import array_codecs
from intarsia.codecs.shard_index import ShardIndex

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from zarr.abc.codec import Codec
    from zarr.core.array_spec import ArraySpec
    from zarr.core.buffer import Buffer, NDBuffer

__all__ = ["placed", "raw"]


def placed(codecs: Iterable[Codec]) -> tuple[Codec, ...]:
    """The same codecs; those inside nested shards are told which chunk they work on.

    >>> from zarr.codecs import BytesCodec
    >>> type(placed([ShardingCodec(chunk_shape=(2,), codecs=[BytesCodec()])])[0]).__name__
    'NestedShard'
    """
    return tuple(NestedShard.of(codec) if isinstance(codec, ShardingCodec) else codec for codec in codecs)


def raw(codecs: Iterable[Codec]) -> tuple[Codec, ...]:
    """The same codecs, but no `conditional` one among them, or inside them, applies any of its codecs.

    >>> from zarr.codecs import BytesCodec, ZstdCodec
    >>> codec = ConditionalCodec(codecs=[ZstdCodec()], decision="always_apply")
    >>> raw([BytesCodec(), codec])[1].decision is None
    True
    """
    return tuple(map(_raw, codecs))


def _raw(codec: Any) -> Codec:
    if isinstance(codec, ConditionalCodec):
        return _Raw.of(codec)
    chains = {"codecs": codec.codecs} if isinstance(codec, ShardingCodec) else getattr(codec, "chains", {})
    changed: Codec = (
        replace(codec, **{name: raw(chain) for name, chain in chains.items()}) if chains else codec
    )
    return changed


class _Raw(ConditionalCodec):
    """A `conditional` codec none of whose codecs applies, whatever anybody has decided."""

    @classmethod
    def of(cls, codec: ConditionalCodec) -> Self:
        return cls(codecs=codec.codecs, header_bits=codec.header_bits, name=codec.name)

    def effective_decision(self, _chunk_spec: ArraySpec) -> None:
        """Nobody decides."""


@dataclass(frozen=True, init=False)
class NestedShard(ShardingCodec):
    """A shard that is an inner chunk of another one, encoded and decoded as a whole.

    zarr's own does the same, but tells nobody which chunk it is at.
    """

    @classmethod
    def of(cls, codec: ShardingCodec) -> Self:
        """The same sharding, at all depths."""
        same = {field.name: getattr(codec, field.name) for field in fields(ShardingCodec)}
        return cls(**same | {"codecs": placed(codec.codecs)})

    def _chunks(self, shard_spec: ArraySpec) -> Iterator[tuple[InnerPlace, dict[str, Any]]]:
        chunk_spec = replace(shard_spec, shape=self.chunk_shape)
        shard, arrays = current_place.get(), array_codecs(self.codecs)
        everything = tuple(slice(0, size) for size in shard_spec.shape)
        grid = ChunkGrid.from_sizes(shard_spec.shape, self.chunk_shape)
        for coordinates, inside, outside, _ in get_indexer(
            everything, shape=shard_spec.shape, chunk_grid=grid
        ):
            selections = {"chunk_selection": inside, "out_selection": outside, "chunk_spec": chunk_spec}
            yield InnerPlace(shard, coordinates, chunk_spec, arrays), selections

    def _encode_sync(self, shard_array: NDBuffer, shard_spec: ArraySpec) -> Buffer | None:
        transform = self._get_inner_chunk_transform(shard_spec)
        index = ShardIndex.of(self, shard_spec.shape)
        chunks: dict[tuple[int, ...], Buffer] = {}
        for place, selections in self._chunks(shard_spec):
            with at_place(place):
                encoded = merge_and_encode_chunk(
                    None,
                    shard_array,
                    is_complete=True,
                    drop_axes=(),
                    decode=transform.decode_chunk,
                    encode=transform.encode_chunk,
                    **selections,
                )
            if encoded is not None:
                chunks[place.coordinates] = encoded
        order = morton_order_coords(index.grid)
        return index.join({at: chunks[at] for at in order if at in chunks}) if chunks else None

    def _decode_sync(self, shard_bytes: Buffer, shard_spec: ArraySpec) -> NDBuffer:
        transform = self._get_inner_chunk_transform(shard_spec)
        chunks = ShardIndex.of(self, shard_spec.shape).split(shard_bytes)
        out = shard_spec.prototype.nd_buffer.empty(
            shape=shard_spec.shape, dtype=shard_spec.dtype.to_native_dtype(), order=shard_spec.order
        )
        for place, selections in self._chunks(shard_spec):
            with at_place(place):
                decode_and_scatter_chunk(
                    chunks.get(place.coordinates),
                    out,
                    drop_axes=(),
                    decode=transform.decode_chunk,
                    **selections,
                )
        return out
