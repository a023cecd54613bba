"""A member prepared for reading and writing: by intarsia's own engine, or by zarr."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from math import prod
from operator import lt, mul
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from zarr.codecs import ShardingCodec
from zarr.core.buffer import default_buffer_prototype

from intarsia._compat import ArraySpec, ArrayV2Metadata, evolve_codecs, is_regular
from intarsia.codecs.coding_costs import decode_cost
from intarsia.codecs.runtime_options import RuntimeOptions, config_of
from intarsia.display import codecs_text, one_line
from intarsia.engine.chunk_codecs import Decoder, Encoder
from intarsia.engine.format_2 import as_format_3
from intarsia.engine.inner_chunks import Shards
from intarsia.errors import CodecConfigurationError, MemberError, MetadataError
from intarsia.manifest.box import chunk_grid
from intarsia.manifest.data_types import is_nullable, member_dtype_fits, type_text, values_dtype

if TYPE_CHECKING:
    from intarsia.manifest.manifest import Manifest
    from intarsia.manifest.region_table import Ints, Row


FIXED_SIZE_KINDS = "biufcmMSUV"
"""Kinds of NumPy data types whose values lie in the array itself, so that several threads may fill one."""

FAST_DECODE_COST = 0.45
"""The cost of decoding a byte, in nanoseconds, below which a codec counts as fast: half that of zstd."""

MAX_CHUNKS = 1 << 62
"""Chunks are numbered in C order with 64 bits."""


class _ObstacleError(Exception):
    """Why the engine leaves a member to zarr."""


class PreparedMember:
    """One member, prepared once and used many times: an `EngineMember`, or a `ZarrMember`."""

    def __init__(self, name: str, array: zarr.Array[Any]) -> None:
        self.name = name
        self.array = array
        self.metadata: Any = array.metadata
        """The metadata, as those of format 3."""
        if isinstance(array.metadata, ArrayV2Metadata):
            self.metadata = as_format_3(array.metadata)
        self.path = array.path
        self._as_stored = array.metadata
        self._with_options: tuple[RuntimeOptions, AnyMember] | None = None

    @staticmethod
    def of(name: str, array: zarr.Array[Any]) -> AnyMember:
        """A member, prepared for the engine if the engine can read it.

        >>> import zarr
        >>> PreparedMember.of("m", zarr.create_array({}, shape=4, chunks=2, dtype="u1")).grid
        (2,)
        >>> with zarr.config.set({"array.rectilinear_chunks": True}):
        ...     z = zarr.create_array({}, shape=4, chunks=[[1, 3]], dtype="u1")
        >>> PreparedMember.of("m", z).obstacle
        'chunks of different shapes'
        """
        try:
            return EngineMember(name, array)
        except _ObstacleError as obstacle:
            return ZarrMember(name, array, str(obstacle))

    def with_options(self, options: RuntimeOptions) -> AnyMember:
        """The member, to be read or written with run-time options; the latest result is kept."""
        if not options:
            assert isinstance(self, EngineMember | ZarrMember)
            return self
        if self._with_options is None or self._with_options[0] != options:
            self._with_options = options, PreparedMember.of(self.name, options.on(self.array))
        return self._with_options[1]

    def stored_as(self, index: tuple[int, ...] | None) -> tuple[int, ...] | None:
        """The position of the stored object that holds a chunk: the chunk itself, or its shard."""
        size = self.stored_object_shape
        if index is None or size is None:
            return index
        return tuple(i * c // g for i, c, g in zip(index, self.array.chunks, size, strict=True))

    @cached_property
    def decode_cost(self) -> float:
        """The cost of decoding a byte, in nanoseconds; see `codecs/coding_costs.py`."""
        return decode_cost(self.metadata.codecs)

    @cached_property
    def read_chunk_shape(self) -> tuple[int, ...]:
        """The shape of a chunk, inside shards if there are any; the largest, if shapes differ."""
        try:
            return self.array.chunks
        except NotImplementedError:  # raised by zarr if chunks have different shapes
            return tuple(max(sizes, default=1) for sizes in self.array.read_chunk_sizes)

    @property
    def is_current(self) -> bool:
        """Whether the array has not been resized since."""
        return self.array.metadata is self._as_stored

    @property
    def stored_object_shape(self) -> tuple[int, ...] | None:
        """The shape of one stored object; None if shapes differ."""
        try:
            return object_shape(self.array)
        except NotImplementedError:  # raised by zarr if chunks have different shapes
            return None


class ZarrMember(PreparedMember):
    """A member that zarr itself reads and writes."""

    def __init__(self, name: str, array: zarr.Array[Any], obstacle: str) -> None:
        from intarsia.engine.zarr_fallback import with_size_checks

        super().__init__(name, array)
        self.obstacle = obstacle
        """Why the engine leaves it to zarr."""
        self.are_links_checked = False
        """Whether links were checked: the engine checks them while it reads, but zarr follows all."""
        self.size_checked = with_size_checks(array, self.metadata, names_chunks=True)
        """The member for reading: it does not trust the chunks, as zarr's own codecs would."""


class EngineMember(PreparedMember):
    """A member that the engine reads: its grid, its codecs, and where its chunks are stored."""

    def __init__(self, name: str, array: zarr.Array[Any]) -> None:
        super().__init__(name, array)
        if not is_regular(self.metadata.chunk_grid):
            raise _ObstacleError("chunks of different shapes")
        outer_shape = self.metadata.chunk_grid.chunk_shape
        dtype = values_dtype(self.metadata.dtype)
        self.is_fixed_size = dtype.kind in FIXED_SIZE_KINDS and not dtype.hasobject
        """Whether values lie in the array itself, so that several threads may fill one."""
        self.refuses_missing = not array.async_array.config.read_missing_chunks
        """Whether chunks that are not stored are an error instead of the fill value."""
        self.fill_value = self.metadata.fill_value
        self.chunk_shape = outer_shape
        """The shape of the smallest unit that can be read: an inner chunk, if there are shards."""
        self.object_grid = self.grid = chunk_grid(self.metadata.shape, outer_shape)
        """How many objects can be stored along each axis, and how many chunks."""
        self.shards: Shards | None = None
        spec = self._spec(outer_shape)
        codecs = evolve_codecs(self.metadata.codecs, spec)
        if isinstance(codecs[0], ShardingCodec) and len(codecs) == 1:
            codec = codecs[0]
            self.chunk_shape = tuple(codec.chunk_shape)
            try:
                self.shards = Shards(codec, outer_shape)
            except CodecConfigurationError:
                raise _ObstacleError("index codecs other than bytes and crc32c") from None
            self.grid = tuple(map(mul, self.object_grid, self.shards.per_shard))
            spec = self._spec(self.chunk_shape)
            codecs = evolve_codecs(codec.codecs, spec)
        if prod(self.grid) > MAX_CHUNKS:
            raise _ObstacleError("more chunks than can be numbered")
        try:
            self.decoder = Decoder(codecs, spec)
        except (TypeError, ValueError, NotImplementedError) as error:
            raise MetadataError(
                f"the metadata of the array {self.path or '/'!r} cannot be right: {one_line(error)}"
            ) from error
        self._codecs, self._chunk_spec = codecs, spec
        self._prefix = f"{self.path}/" if self.path else ""
        """The beginning of all keys."""

    @cached_property
    def encoder(self) -> Encoder:
        """The codecs of a chunk, for writing."""
        return Encoder(self._codecs, self._chunk_spec, self.decoder)

    @property
    def is_written_by_engine(self) -> bool:
        """Whether the engine also writes this member.

        zarr writes what is not numbers, format 2, and codecs that need an event loop. Slotted shards have
        their own writer, and codecs in shards within shards may ask for a chunk index that only zarr knows.
        """
        if not self.is_fixed_size or is_nullable(self.metadata.dtype) or self._as_stored.zarr_format == 2:
            return False
        zarrs = self.shards is None or type(self.shards.codec) is ShardingCodec
        try:
            return zarrs and self.encoder.tells_the_index
        except TypeError:  # a codec needs an event loop
            return False

    @property
    def is_fast_to_decode(self) -> bool:
        """Whether it takes clearly less to decompress a byte than with zstd, as with lz4."""
        return not self.decoder.is_raw and self.decode_cost < FAST_DECODE_COST

    @property
    def object_count(self) -> int:
        """The number of chunks, or shards, that can be stored."""
        return prod(self.object_grid)

    def _spec(self, shape: tuple[int, ...]) -> ArraySpec:
        config = replace(config_of(self.array), order="C")
        return ArraySpec(shape, self.metadata.dtype, self.fill_value, config, default_buffer_prototype())

    def index(self, chunk: int) -> tuple[int, ...]:
        """The index in the grid of the chunk at a position in C order."""
        return tuple(int(i) for i in np.unravel_index(chunk, self.grid)) if self.grid else ()

    def keys(self, object_index: Ints) -> list[str]:
        """The store keys of the chunks, or shards, at these positions in C order."""
        encode, prefix = self.metadata.chunk_key_encoding.encode_chunk_key, self._prefix
        if not self.object_grid:
            return [prefix + encode(())] * object_index.size
        columns = [axis.tolist() for axis in np.unravel_index(object_index, self.object_grid)]
        return [prefix + encode(index) for index in zip(*columns, strict=True)]


type AnyMember = EngineMember | ZarrMember


def fill_value_of(array: zarr.Array[Any]) -> Any:
    """The value of chunks that are not stored; format 2 may leave it open.

    >>> import zarr
    >>> fill_value_of(zarr.create_array({}, shape=4, dtype="u1", zarr_format=2, fill_value=None))
    np.uint8(0)
    """
    stored = array.metadata.fill_value
    return array.metadata.dtype.default_scalar() if stored is None else stored


type AnyArray = zarr.Array[Any]


def object_shape(member: AnyArray) -> tuple[int, ...]:
    """The shape of one object in the store: a shard, or a chunk if there are no shards.

    >>> object_shape(zarr.create_array({}, shape=8, chunks=2, shards=4, dtype="u1"))
    (4,)
    """
    return tuple(member.shards or member.chunks)


def short_codecs(member: AnyArray, *, settings: bool = True) -> str:
    """The codecs of a member in a few words, for messages and tables; without `settings`, only their names.

    >>> import zarr
    >>> short_codecs(zarr.create_array({}, shape=4, dtype="f4", compressors=zarr.codecs.GzipCodec()))
    'gzip-5'
    """
    document: Any = member.metadata.to_dict()
    if document["zarr_format"] == 2:
        stored = (*(document["filters"] or ()), document["compressor"])
        named = ({"name": codec["id"], "configuration": codec} for codec in stored if codec)
        return codecs_text(named, settings=settings)
    return codecs_text(document["codecs"], settings=settings)


def member_problem(member: AnyArray, manifest: Manifest, row: Row) -> str | None:
    """Why this array cannot back a region, or None."""
    needed, stored = manifest.in_member(row).stop, manifest.stored_type(row)
    own: Any = member.metadata.dtype
    if stored is not None:
        if is_nullable(own) or own.to_native_dtype().newbyteorder("=") != stored:
            return f"it decodes to {type_text(own)}, but the packing of its regions is of {stored}"
    elif not member_dtype_fits(manifest.data_type, member):
        return f"it decodes to {type_text(own)}, but the logical array is {type_text(manifest.data_type)}"
    if len(member.shape) != len(needed) or any(map(lt, member.shape, needed)):
        return f"its shape is {member.shape}, but its regions need at least {needed}"
    return None


def checked_member(member: AnyArray, manifest: Manifest, row: Row) -> AnyArray:
    """The member behind a region, checked against what the region needs from it."""
    problem = member_problem(member, manifest, row)
    if problem:
        name, bounds = manifest.members[row.member], manifest.elements(row.box).text()
        raise MemberError(
            f"the member {name!r} cannot back the region {bounds}: {problem}.\n"
            "  intarsia.verify lists everything that is wrong with the array"
        )
    return member
