"""What slots need from the codecs of an inner chunk: its largest size."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from zarr.abc.codec import BytesBytesCodec, Codec
from zarr.codecs import ShardingCodec
from zarr.core.array_spec import ArraySpec

from intarsia.codecs.conditional import ConditionalCodec
from intarsia.codecs.shard_index import ShardIndex
from intarsia.errors import NoSlotBoundError


@dataclass(frozen=True, slots=True)
class EncodedBound:
    """What is known about the size of an encoded chunk before encoding.

    >>> EncodedBound(nbytes=260, fixed=True).slot
    264
    """

    nbytes: int
    """No encoded chunk takes more bytes."""

    fixed: bool
    """Whether every encoded chunk takes exactly that many."""

    @property
    def slot(self) -> int:
        """The bytes of a slot: the bound, rounded up to a multiple of 8."""
        return -(-self.nbytes // 8) * 8


def inner_chunk_bound(codecs: Iterable[Codec], chunk_spec: ArraySpec) -> EncodedBound:
    """The bound of a codec chain for chunks like `chunk_spec`; raises `NoSlotBoundError` if there is none.

    For a `conditional` codec, wherever it is nested, the bound holds if none of its codecs applies. Code that
    decides otherwise must make sure that the chunk still fits.

    >>> import zarr
    >>> from intarsia.shards.handle import ShardedArray
    >>> z = zarr.create_array({}, shape=64, chunks=8, shards=64, dtype="u2", compressors=None)
    >>> codec = z.metadata.codecs[0]
    >>> inner_chunk_bound(codec.codecs, ShardedArray(z).chunk_spec)
    EncodedBound(nbytes=16, fixed=True)
    """
    codecs = tuple(codecs)
    item_size = getattr(chunk_spec.dtype, "item_size", None)
    if item_size is None:
        raise NoSlotBoundError(
            f"elements of data type {chunk_spec.dtype.to_json(zarr_format=3)} differ in size, so no slot "
            "is certain to be large enough.\n  Use an array without slots, or a data type of fixed size"
        )
    nbytes, fixed = math.prod(chunk_spec.shape) * int(item_size), True
    spec = chunk_spec
    for codec in codecs:
        if isinstance(codec, ConditionalCodec):
            nbytes, fixed = nbytes + codec.header_bytes, False
        elif isinstance(codec, ShardingCodec):  # it leaves out chunks of the fill value
            index = ShardIndex.of(codec, spec.shape)
            inner = inner_chunk_bound(codec.codecs, replace(spec, shape=codec.chunk_shape))
            nbytes, fixed = index.chunks * inner.nbytes + index.nbytes, False
        elif hasattr(codec, "chains"):
            multi_part: Any = codec
            parts = (inner_chunk_bound(*part).nbytes for part in multi_part.largest_parts(spec))
            nbytes, fixed = multi_part.frame_bytes + sum(parts), False
        elif codec.is_fixed_size:
            nbytes = codec.compute_encoded_size(nbytes, spec)
        else:
            raise NoSlotBoundError(_unbounded(codec))
        spec = codec.resolve_metadata(spec)
    return EncodedBound(nbytes, fixed)


def _unbounded(codec: Codec) -> str:
    name = codec.to_dict().get("name")
    advice = "Leave it out: only bytes -> bytes codecs can be nested in a ConditionalCodec"
    if isinstance(codec, BytesBytesCodec):
        nested = f"ConditionalCodec(codecs=[{name!r}], decision='compress_if_smaller')"
        advice = f"Nest it: {nested}; or leave it out, write fast, and compress later"
    return f"codec {name!r} may enlarge a chunk by an unlimited amount, which no slot can hold.\n  {advice}"
