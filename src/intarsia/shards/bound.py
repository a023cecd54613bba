"""How large an encoded chunk can get: what a slot has to hold."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from zarr.abc.codec import BytesBytesCodec
from zarr.codecs import ShardingCodec

from intarsia.codecs.conditional import ConditionalCodec
from intarsia.codecs.shard_index import ShardIndex
from intarsia.errors import NoSlotBoundError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zarr.abc.codec import Codec
    from zarr.core.array_spec import ArraySpec

    from intarsia.codecs.route import Divided

__all__ = ["EncodedBound", "encoded_bound", "has_checksum"]

CHECKSUMS = frozenset(
    {
        "crc32c",
        "numcodecs.adler32",
        "numcodecs.crc32",
        "numcodecs.crc32c",
        "numcodecs.fletcher32",
        "numcodecs.jenkins_lookup3",
    }
)
"""bytes -> bytes codecs after which a half-written chunk does not decode."""


@dataclass(frozen=True, slots=True)
class EncodedBound:
    """The size of an encoded chunk, as far as it is known before encoding.

    >>> EncodedBound(nbytes=260, fixed=True, checksum=True).slot
    264
    """

    nbytes: int
    """No chunk is encoded to more bytes."""

    fixed: bool
    """Whether every chunk is encoded to exactly that many."""

    checksum: bool
    """Whether a chunk that is half old and half new fails to decode."""

    @property
    def slot(self) -> int:
        """The bytes of a slot: the bound, up to the next multiple of 8."""
        return -(-self.nbytes // 8) * 8


def encoded_bound(codecs: Iterable[Codec], chunk_spec: ArraySpec) -> EncodedBound:
    """The bound of a codec chain for chunks like `chunk_spec`; `NoSlotBoundError` if there is none.

    That of a `conditional` codec, in whatever codec it stands, holds where no nested codec applies: whoever
    decides otherwise must see to it that the chunk still fits.

    >>> import zarr
    >>> from intarsia.shards.array import ShardedArray
    >>> z = zarr.create_array({}, shape=64, chunks=8, shards=64, dtype="u2", compressors=None)
    >>> codec = z.metadata.codecs[0]
    >>> encoded_bound(codec.codecs, ShardedArray(z).chunk_spec)
    EncodedBound(nbytes=16, fixed=True, checksum=False)
    """
    codecs = tuple(codecs)
    item_size = getattr(chunk_spec.dtype, "item_size", None)
    if item_size is None:
        raise NoSlotBoundError(
            f"elements of data type {chunk_spec.dtype.to_json(zarr_format=3)} differ in size, so there is no "
            "upper bound on the size of a chunk, and slots need one.\n"
            "  Use an array without slots, or a data type of fixed size."
        )
    nbytes, fixed = math.prod(chunk_spec.shape) * int(item_size), True
    spec = chunk_spec
    for codec in codecs:
        if isinstance(codec, ConditionalCodec):
            nbytes, fixed = nbytes + codec.header_bytes, False
        elif isinstance(codec, ShardingCodec):  # which leaves chunks of the fill value out
            index = ShardIndex.of(codec, spec.shape)
            inner = encoded_bound(codec.codecs, replace(spec, shape=codec.chunk_shape))
            nbytes, fixed = index.chunks * inner.nbytes + index.nbytes, False
        elif hasattr(codec, "chains"):
            divided = cast("Divided", codec)
            parts = (encoded_bound(*part).nbytes for part in divided.largest_parts(spec))
            nbytes, fixed = divided.frame_bytes + sum(parts), False
        elif codec.is_fixed_size:
            nbytes = codec.compute_encoded_size(nbytes, spec)
        else:
            raise NoSlotBoundError(_unbounded(codec))
        spec = codec.resolve_metadata(spec)
    return EncodedBound(nbytes, fixed, has_checksum(codecs))


def has_checksum(codecs: Iterable[Codec]) -> bool:
    """Whether a chunk of this chain that is half old and half new fails to decode.

    A checksum inside a nested shard, or inside a part of nullable data, does not do: all the parts may be
    whole, and some of them old.

    >>> from zarr.codecs import BytesCodec, Crc32cCodec
    >>> has_checksum([BytesCodec()]), has_checksum([BytesCodec(), Crc32cCodec()])
    (False, True)
    """
    return any(codec.to_dict().get("name") in CHECKSUMS for codec in codecs)


def _unbounded(codec: Codec) -> str:
    name = codec.to_dict().get("name")
    way_out = (
        f"Nest it: ConditionalCodec(codecs=[{name!r}], decision='compress_if_smaller') never exceeds its "
        "input and a header; or leave it out, write fast, and compress later."
        if isinstance(codec, BytesBytesCodec)
        else "Leave it out, or use an array without slots; only bytes -> bytes codecs can be nested in a "
        "ConditionalCodec."
    )
    return (
        f"codec {name!r} may make a chunk larger, by an amount that nothing limits, so no slot is surely "
        f"large enough.\n  {way_out}"
    )
