"""How a new member stores its chunks: what a caller asks for, completed from the regions around it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod
from operator import mod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import zarr
import zarr.api.asynchronous
from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec, BytesBytesCodec, Codec
from zarr.codecs import ShardingCodec, TransposeCodec, ZstdCodec

from intarsia._compat import ArrayV3Metadata, stages
from intarsia.codecs import CodecLike, PackBitsCodec, ReshapeCodec, parse_codecs
from intarsia.codecs.base import codec_list
from intarsia.codecs.runtime_options import (
    NO_OPTIONS,
    RuntimeOptions,
    options_of,
)
from intarsia.engine.prepared_member import AnyArray
from intarsia.errors import ShapeError
from intarsia.manifest.data_types import data_type_of, plain_type
from intarsia.manifest.document import MAX_ELEMENTS
from intarsia.nullable import NullableCodec, OptionalDType
from intarsia.nullable.codec import default_serializer, optional_codec
from intarsia.nullable.present_values import on_present_values

if TYPE_CHECKING:
    from zarr.dtype import ZDType

    from intarsia.logical.logical_array_handle import LogicalArrayHandle
    from intarsia.manifest.box import Box
    from intarsia.manifest.manifest import Manifest
    from intarsia.manifest.packing import Packing
    from intarsia.manifest.region_table import Row
    from intarsia.manifest.view import View


ELEMENT_SIZE = re.compile("element_?size|typesize")
"""How codecs that depend on the size of the elements call it."""


@dataclass(frozen=True)
class Encoding:
    """How the chunks of a new member will be stored.

    >>> Encoding(codecs=("gzip",)).chunks is None
    True
    """

    codecs: Iterable[CodecLike] | None = None
    """The codec list; None means zarr's own choice."""

    chunks: tuple[int, ...] | None = None
    """The member's chunk shape; None means the logical one."""

    shards: tuple[int, ...] | None = None
    """The member's shard shape, if it is to be sharded."""

    fill_value: Any = None
    """What its unwritten chunks read as; None means the logical array's."""

    options: RuntimeOptions = NO_OPTIONS
    """Run-time options of the handle that writes."""

    packing: Packing | None = None
    """How values become the stored numbers; None means that the values are stored."""

    keep_packing: bool = False
    """Whether to keep the packing of the data that was there before, if it has one."""

    def __post_init__(self) -> None:
        if self.codecs is not None:  # they may be an iterator, or a single codec
            object.__setattr__(self, "codecs", codec_list(self.codecs))

    @property
    def own_options(self) -> RuntimeOptions:
        """The options of the codecs themselves."""
        return NO_OPTIONS if self.codecs is None else options_of(parse_codecs(self.codecs))

    @property
    def other_options(self) -> RuntimeOptions:
        """The handle's options, except those that the codecs have themselves."""
        return self.options.without(self.own_options) if self.options else NO_OPTIONS

    def stored_fill(self, manifest: Manifest) -> Any:
        """What the unwritten chunks of a member hold; None if its packing has no suitable number.

        If packed, that is the number for the requested fill value. The array's own is suitable only if it is
        read back unchanged; otherwise unwritten values are missing.
        """
        packing = self.packing
        value = manifest.fill_value if self.fill_value is None else self.fill_value
        if packing is None or self.fill_value is not None:
            return value if packing is None else packing.encode(value)[()]
        held = (packing.encode(candidate)[()] for candidate in (value, np.nan) if packing.holds(candidate))
        return next(held, None)


def codecs_of_any_size(codecs: Iterable[CodecLike]) -> list[CodecLike] | None:
    """The bytes -> bytes codecs of a list that do not depend on the size of the elements; None without any.

    >>> codecs_of_any_size(["bytes", {"name": "shuffle", "configuration": {"element_size": 2}}, "gzip"])
    [GzipCodec(level=5)]
    """
    of_bytes = [codec for codec in parse_codecs(codecs) if isinstance(codec, BytesBytesCodec)]
    return [codec for codec in of_bytes if not ELEMENT_SIZE.search(str(codec.to_dict()))] or None


def codecs_for(data_type: ZDType[Any, Any], codecs: Iterable[CodecLike] | None) -> tuple[Codec, ...] | None:
    """The codec list of a new member. For nullable data, codecs without `optional` apply to the values.

    >>> from intarsia.manifest.data_types import data_type_of
    >>> (codec,) = codecs_for(data_type_of("optional[int8]"), ["gzip"])
    >>> [type(nested).__name__ for nested in codec.data_codecs]
    ['BytesCodec', 'GzipCodec']
    >>> [type(codec).__name__ for codec in codecs_for(data_type_of("string"), ["gzip"])]
    ['VLenUTF8Codec', 'GzipCodec']
    """
    if codecs is None:
        return (optional_codec(data_type),) if isinstance(data_type, OptionalDType) else None
    parsed = parse_codecs(codecs, serializer_of(data_type))
    if not isinstance(data_type, OptionalDType):
        return parsed
    if any(isinstance(codec, NullableCodec | ShardingCodec) for codec in parsed):
        return tuple(on_present_values(codec) for codec in parsed)
    # Values are one-dimensional for the data_codecs, so codecs that move axes stay in front.
    turning = [codec for codec in parsed if isinstance(codec, TransposeCodec | ReshapeCodec)]
    values = [codec for codec in parsed if codec not in turning]
    compressed = any(isinstance(codec, BytesBytesCodec) for codec in values)
    masks: list[CodecLike] = [PackBitsCodec(), ZstdCodec()] if compressed else [PackBitsCodec()]
    return (*turning, optional_codec(data_type, mask_codecs=masks, data_codecs=values))


def serializer_of(data_type: ZDType[Any, Any]) -> ArrayBytesCodec:
    """The serializer of a codec list that names none; for nullable data, that of the values.

    >>> from intarsia.manifest.data_types import data_type_of
    >>> serializer_of(data_type_of("string"))
    VLenUTF8Codec()
    """
    return default_serializer(plain_type(data_type))


def create_member(
    store: Any, name: str | None, manifest: Manifest, shape: tuple[int, ...], encoding: Encoding
) -> AnyArray:
    """A new Zarr array that decodes to the logical data type, or to the numbers of the packing."""
    packing, fill_value = encoding.packing, encoding.stored_fill(manifest)
    data_type = manifest.data_type if packing is None else data_type_of(packing.stored)
    codecs = codecs_for(data_type, encoding.codecs)
    chain: Any = ("auto", "auto", "auto") if codecs is None else stages(codecs)
    filters, serializer, compressors = chain
    try:
        return zarr.create_array(
            store,
            name=name,
            shape=shape,
            dtype=data_type,
            chunks=encoding.chunks or manifest.chunk_shape,
            shards=encoding.shards,
            fill_value=data_type.default_scalar() if fill_value is None else fill_value,
            dimension_names=manifest.dimension_names,
            filters=filters or None,
            serializer=serializer,
            compressors=compressors or None,
        )
    except ValueError as error:
        if type(error) is not ValueError:
            raise
        raise ShapeError(f"zarr cannot create an array with this encoding: {error}") from error


def planned_metadata(manifest: Manifest, shape: tuple[int, ...], encoding: Encoding) -> ArrayV3Metadata:
    """The metadata of the member that `create_member` would create.

    >>> from intarsia.manifest.manifest import Manifest
    >>> metadata = planned_metadata(Manifest.empty((4,), (2,), "u1"), (4,), Encoding(["gzip"]))
    >>> [type(codec).__name__ for codec in metadata.codecs]
    ['BytesCodec', 'GzipCodec']
    """
    member: Any = create_member({}, None, manifest, shape, encoding)
    metadata: ArrayV3Metadata = member.metadata
    return metadata


def encoding_of(metadata: Any) -> dict[str, Any]:
    """Everything that decides how a member's chunks are stored: equal for members that may be joined."""
    document = dict(metadata.to_dict())
    return {
        key: document[key]
        for key in ("data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs")
    }


def choose_codecs(
    codecs: Iterable[CodecLike] | Literal["auto"] | None,
    data: Any,
    bounds: Any = None,
    packing: Packing | Literal["keep"] | None = None,
) -> Iterable[CodecLike] | None:
    """The codec list; "auto" means the one that suits the data best, or the numbers that it is packed as."""
    if codecs != "auto":
        return codecs
    if data is None:
        raise ShapeError('codecs="auto" chooses by the data, but there is no data: give a codec list')
    from intarsia.logical.advice import advise

    if packing == "keep":
        data, packing = data.as_stored(bounds), None
    return advise(data, bounds=bounds, packing=packing).codecs


def encoding_like(logical: LogicalArrayHandle, row: Row, encoding: Encoding) -> Encoding:
    """An encoding that takes from a region what `encoding` leaves open.

    If it stores another data type, that is the codecs which do not depend on it.
    """
    manifest, view = logical.manifest, logical.manifest.view_of(row)
    if encoding.keep_packing:
        encoding = replace(encoding, packing=manifest.packing_of(row), keep_packing=False)
    if encoding.codecs is not None:
        return encoding
    member: Any = logical.member_of(row)
    codecs: Any = [codec.to_dict() for codec in chunk_codecs(member, view)]
    if manifest.stored_type(row) != (None if encoding.packing is None else encoding.packing.stored):
        codecs = codecs_of_any_size(codecs)
    if encoding.chunks is not None or encoding.shards is not None:
        return replace(encoding, codecs=codecs)
    chunks, shards = chunks_and_shards(member, view)
    return replace(encoding, codecs=codecs, chunks=chunks, shards=shards)


def chunk_codecs(member: AnyArray, view: View | None) -> list[Codec]:
    """The codecs of a single chunk, which are nested inside those of a shard.

    If there is a view, those that work on certain axes are left out, as it shows others.
    """
    metadata: Any = member.metadata
    outer = metadata.codecs
    inner = outer[0].codecs if isinstance(outer[0], ShardingCodec) else outer
    return [codec for codec in inner if view is None or not isinstance(codec, ArrayArrayCodec)]


def chunks_and_shards(member: AnyArray, view: View | None) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """The shapes of a member's chunks and shards, in the array's axes; there may be no shards."""
    chunks, shards = member.chunks, member.shards
    if view is not None:
        chunks = tuple(size for size, _ in view.grid(chunks))
        shards = None if shards is None else tuple(size for size, _ in view.grid(shards))
    return chunks, shards


def keep_layout(logical: LogicalArrayHandle, box: Box, encoding: Encoding) -> Encoding:
    """The encoding with the chunks and shards of the largest region in a box of logical chunks, if left open.

    With chunks of their own, there are no shards unless requested. Where the box holds only a part of the
    member, chunks and shards do not reach beyond it: they would be stored in full.
    """
    manifest = logical.manifest
    parts = manifest.regions.parts(box)
    if encoding.chunks is not None or not parts:
        return encoding
    row, _ = max(parts, key=lambda part: prod(part[1].shape))
    try:
        chunks, shards = chunks_and_shards(logical.member_of(row), manifest.view_of(row))
    except NotImplementedError:  # its chunks differ in size
        return encoding
    if encoding.shards is not None:
        fits = len(encoding.shards) == len(chunks) and not any(map(mod, encoding.shards, chunks))
        return replace(encoding, chunks=chunks) if fits else encoding
    sides = zip(*box, *row.box, manifest.chunk_shape, strict=True)
    extents = [(b - a) * n if first < a or b < last else MAX_ELEMENTS for a, b, first, last, n in sides]
    chunks = tuple(map(min, chunks, extents))
    if shards is not None:
        whole = [-(-extent // size) * size for extent, size in zip(extents, chunks, strict=True)]
        shards = tuple(map(min, shards, whole))
    return replace(encoding, chunks=chunks, shards=shards)
