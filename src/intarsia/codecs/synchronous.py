"""What codecs of ours have in common: they name chunks, and are written once for both of zarr's pipelines."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from zarr.abc.codec import BytesBytesCodec

if TYPE_CHECKING:
    from zarr.core.array_spec import ArraySpec
    from zarr.core.buffer import Buffer


@cache  # once: whoever chooses another pipeline afterwards keeps it
def _switch_pipeline() -> None:
    from intarsia.codecs.context import switch_pipeline  # which needs codecs to be defined

    switch_pipeline()


class ChunkNamingCodec:
    """A codec whose errors name the chunk. The first one in a process switches zarr's pipeline to ours.

    Made by hand, from a zarr.json or from a pickle: each way goes through `__new__`. A process that meets no
    codec of ours keeps zarr as it is.

    >>> from intarsia.codecs import PackBitsCodec
    >>> issubclass(PackBitsCodec, ChunkNamingCodec)
    True
    """

    names_chunks = True
    """See `intarsia.codecs.context`."""

    def __new__(cls, *_args: Any, **_fields: Any) -> Self:
        _switch_pipeline()
        return super().__new__(cls)


class SynchronousBytesCodec(ChunkNamingCodec, BytesBytesCodec):
    """Gives a codec with `_encode_sync` and `_decode_sync` the asynchronous pair.

    >>> from intarsia.codecs import ShuffleCodec
    >>> issubclass(ShuffleCodec, SynchronousBytesCodec)
    True
    """

    runs_in_thread = True
    """Whether the work is long enough to leave the event loop for it."""

    @abstractmethod
    def _encode_sync(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer: ...

    @abstractmethod
    def _decode_sync(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer: ...

    async def decode(
        self, chunks_and_specs: Iterable[tuple[Buffer | None, ArraySpec]]
    ) -> Iterable[Buffer | None]:
        if self.runs_in_thread:
            return await super().decode(chunks_and_specs)
        # Without a task for each chunk, which would take longer than the work.
        return [
            None if data is None else self._decode_sync(data, chunk_spec)
            for data, chunk_spec in chunks_and_specs
        ]

    async def _encode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        if self.runs_in_thread:
            return await asyncio.to_thread(self._encode_sync, chunk_data, chunk_spec)
        return self._encode_sync(chunk_data, chunk_spec)

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        if self.runs_in_thread:
            return await asyncio.to_thread(self._decode_sync, chunk_data, chunk_spec)
        return self._decode_sync(chunk_data, chunk_spec)


def aligned(data: Buffer, chunk_spec: ArraySpec) -> Buffer:
    """`data`, copied if a header before it left it at an address that its numbers cannot have.

    Some array -> array codecs cannot work on numbers at such addresses: `cast_value` panics.
    """
    array = data.as_numpy_array()
    if address_of(array) % chunk_spec.dtype.to_native_dtype().alignment == 0:
        return data
    return chunk_spec.prototype.buffer.from_array_like(array.copy())


def address_of(array: np.ndarray[Any, Any]) -> int:
    """Where in memory an array begins."""
    address: int = array.__array_interface__["data"][0]
    return address
