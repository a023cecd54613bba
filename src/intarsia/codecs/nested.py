"""Codecs nested in others, called one at a time on one chunk."""

import asyncio
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, cast

from zarr.abc.codec import BytesBytesCodec
from zarr.core.buffer import Buffer

from intarsia._compat import ArraySpec, codec_supports_sync
from intarsia.codecs import compressors
from intarsia.codecs.context import named_chunk
from intarsia.errors import ChunkDecodeError, ChunkEncodeError, has_panicked

LEVELS = ("level", "clevel")
"""The options of compressors that say how hard they try."""


@dataclass(frozen=True)
class NamedCodec:
    """A nested codec as decisions see it: the codec with its name, which zarr's codec classes lack.

    >>> from zarr.codecs import ZstdCodec
    >>> codec = NamedCodec(ZstdCodec(level=5))
    >>> codec.name, codec.level
    ('zstd', 5)
    """

    codec: BytesBytesCodec
    """The codec itself; its attributes are found here as well."""

    @cached_property
    def name(self) -> str:
        """Its name in zarr.json."""
        return str(self.codec.to_dict()["name"])

    @cached_property
    def fastest(self) -> "NamedCodec":
        """The same codec at its fastest level, for a quick estimate."""
        own: Any = self.codec.to_dict().get("configuration", {})
        levels = {key: 1 for key in LEVELS if isinstance(own.get(key), int) and own[key] > 1}
        if not levels:
            return self
        return NamedCodec(type(self.codec).from_dict({"name": self.name, "configuration": own | levels}))

    def decodes_like(self, other: "NamedCodec") -> bool:
        """Whether it is the other one, except perhaps for the level, which decoding does not need.

        >>> from zarr.codecs import GzipCodec, ZstdCodec
        >>> three, nineteen = NamedCodec(ZstdCodec(level=3)), NamedCodec(ZstdCodec(level=19))
        >>> three.decodes_like(nineteen), three.decodes_like(NamedCodec(GzipCodec(level=3)))
        (True, False)
        """
        return bool(_without_levels(self.codec.to_dict()) == _without_levels(other.codec.to_dict()))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copying and pickling look for these before there is a codec
            raise AttributeError(name)
        return getattr(self.codec, name)


def _without_levels(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {key: _without_levels(value) for key, value in data.items() if key not in LEVELS}
    return [_without_levels(each) for each in data] if isinstance(data, list) else data


@dataclass(frozen=True, slots=True)
class Chain:
    """The nested codecs of one `conditional` codec, at work on one chunk."""

    owner: str
    """The name of the codec they are nested in, for error messages."""

    codecs: tuple[NamedCodec, ...]
    """The codecs, in the order of encoding."""

    spec: ArraySpec
    """What zarr tells every codec about the chunk."""

    def __len__(self) -> int:
        return len(self.codecs)

    def fastest(self) -> "Chain":
        """The same codecs at their fastest levels."""
        return Chain(self.owner, tuple(codec.fastest for codec in self.codecs), self.spec)

    def encode(self, position: int, data: Buffer) -> Buffer:
        """`data` as the codec at `position` encodes it."""
        codec = self.codecs[position].codec
        return cast("Buffer", encode_with(codec, data, self.spec, self._where))

    def decode(self, position: int, data: Buffer, most: int | None) -> Buffer:
        """`data` as the codec at `position` decodes it; more than `most` bytes are an error."""
        codec = self.codecs[position].codec
        return cast("Buffer", decode_with(codec, data, self.spec, most, self._where))

    @property
    def _where(self) -> str:
        return f"codec {self.owner!r}: nested "


def encode_with(codec: Any, data: Any, spec: ArraySpec, where: str = "") -> Any:
    """What a codec of any kind encodes. Its errors say which codec it is, after `where`."""
    supports_sync = codec_supports_sync(codec)
    try:
        encoded = codec._encode_sync(data, spec) if supports_sync else _run(codec._encode_single(data, spec))
    except Exception as error:
        error.add_note(f"while encoding with {where}{_named(codec)}{named_chunk()}")
        raise
    if encoded is None:
        raise ChunkEncodeError(f"{where}{_named(codec)} returned nothing for the data{named_chunk()}")
    return encoded


def decode_with(codec: Any, data: Any, spec: ArraySpec, most: int | None = None, where: str = "") -> Any:
    """The same for decoding; if it decompresses, more than `most` bytes are an error.

    All that a codec finds wrong is a `ChunkDecodeError`.
    """
    try:
        if not codec_supports_sync(codec):
            return _run(codec._decode_single(data, spec))
        if isinstance(codec, BytesBytesCodec):
            return compressors.decode(codec, data, spec, most)
        compressors.check_count(codec, data, prod(spec.shape))
        return codec._decode_sync(data, spec)
    except BaseException as error:
        passes = not isinstance(error, Exception) and not has_panicked(error)
        if passes or isinstance(error, ChunkDecodeError):
            raise
        raise ChunkDecodeError(
            f"{where}{_named(codec)} cannot decode the data{named_chunk()}: "
            f"{str(error) or type(error).__name__}"
        ) from error


def _named(codec: Any) -> str:
    return f"codec {codec.to_dict().get('name')!r}"


def _run[T](coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a codec that can only work asynchronously, in a thread that has no event loop yet."""
    with ThreadPoolExecutor(1, thread_name_prefix="intarsia-nested-codec") as pool:
        return pool.submit(copy_context().run, asyncio.run, coroutine).result()
