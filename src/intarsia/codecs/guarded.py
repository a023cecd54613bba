"""zarr's compressors for where zarr itself decodes: the same codecs, but they make no bombs.

Each is a copy whose class is a subclass of its own: it encodes as before, and decodes by `bounded`.
"""

import asyncio
import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import prod
from typing import Any

from zarr.abc.codec import Codec
from zarr.codecs import ShardingCodec, VLenBytesCodec, VLenUTF8Codec
from zarr.core.buffer import Buffer, NDBuffer

from intarsia._compat import ArraySpec
from intarsia.codecs.bounded import check_count, is_known, likely_bound, undone


def guarded(codecs: Sequence[Codec]) -> tuple[Codec, ...]:
    """The chain, in which zarr's compressors and its codecs for texts check what they decode.

    >>> from zarr.codecs import BytesCodec, GzipCodec
    >>> [type(codec).__mro__[1].__name__ for codec in guarded([BytesCodec(), GzipCodec()])]
    ['ArrayBytesCodec', 'GzipCodec']
    """
    return tuple(map(_guarded, codecs))


def _guarded(codec: Codec) -> Codec:
    if type(codec) is ShardingCodec:
        return replace(codec, codecs=guarded(codec.codecs))
    own: Any = type(codec)
    kind = _guard(own)
    if kind is None:
        return codec
    made = copy.copy(codec)
    object.__setattr__(made, "__class__", kind)
    return made


@cache
def _guard(kind: type) -> type | None:
    """The subclass of a codec's class that checks; None for those that need none."""
    name = kind.__name__  # by which zarr knows its codecs for texts
    if kind in (VLenUTF8Codec, VLenBytesCodec):
        return type(name, (kind,), {"_decode_sync": _counted(kind), "_decode_single": _at_once})
    if is_known(kind):
        return type(name, (kind,), {"_decode_sync": _bounded(kind), "_decode_single": _in_thread})
    return None


def _counted(kind: Any) -> Any:
    def decode(self: Any, data: Buffer, spec: ArraySpec) -> NDBuffer:
        check_count(self, data, prod(spec.shape))
        decoded: NDBuffer = kind._decode_sync(self, data, spec)
        return decoded

    return decode


def _bounded(kind: type) -> Any:
    def decode(self: Any, data: Buffer, spec: ArraySpec) -> Buffer:
        return undone(kind, self, data, spec, likely_bound(spec))

    return decode


async def _at_once(self: Any, data: Buffer, spec: ArraySpec) -> Any:
    return self._decode_sync(data, spec)


async def _in_thread(self: Any, data: Buffer, spec: ArraySpec) -> Any:
    return await asyncio.to_thread(self._decode_sync, data, spec)
