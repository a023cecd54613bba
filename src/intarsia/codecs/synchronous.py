"""bytes -> bytes codecs that are written once, as plain functions, and serve both of zarr's pipelines."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import TYPE_CHECKING

from zarr.abc.codec import BytesBytesCodec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zarr.core.array_spec import ArraySpec
    from zarr.core.buffer import Buffer

__all__ = ["SynchronousBytesCodec"]


class SynchronousBytesCodec(BytesBytesCodec):
    """Gives a codec with `_encode_sync` and `_decode_sync` the asynchronous pair.

    >>> from intarsia.codecs import ShuffleCodec
    >>> issubclass(ShuffleCodec, SynchronousBytesCodec)
    True
    """

    names_chunks = True
    """Errors of reading name the chunk: see `intarsia.codecs.context`."""

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
