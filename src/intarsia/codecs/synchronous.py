"""What codecs of ours have in common: they name chunks, work in both pipelines, have their own threads.

A decision may read or write another Zarr array, for which zarr needs threads. If decisions ran in zarr's own
threads, enough of them at once would wait for each other forever. So would they in any pool with a limit:
the other array may have a decision too, and so on. Work of codecs therefore never queues. It gets an idle
thread, or a new one; how much of it is under way at once is for the caller to limit, as zarr's pipelines do
(`async.concurrency`). Views are read in threads of their own: a decision may read an array through a view.
"""

import asyncio
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cache, partial
from typing import Any, Literal, Self

import numpy as np
from zarr.abc.codec import BytesBytesCodec
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


type Purpose = Literal["codecs", "views"]


# A pool starts a thread whenever none is idle, up to its limit: one that is never reached is no limit. Views
# have as many as asyncio has for zarr; they answer servers, which take any number of requests at once.
MOST_THREADS: dict[Purpose, int] = {"codecs": 1 << 20, "views": min(32, (os.cpu_count() or 1) + 4)}


@cache
def _pool(purpose: Purpose) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MOST_THREADS[purpose], thread_name_prefix=f"intarsia-{purpose}")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork


async def in_thread_for[**P, T](
    purpose: Purpose, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """As `asyncio.to_thread`, in a thread that neither zarr nor work for another purpose waits for.

    >>> asyncio.run(in_thread_for("views", max, 3, 4))
    4
    """
    call = partial(copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_pool(purpose), call)


async def in_own_thread[**P, T](function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """As `asyncio.to_thread`, at once, in a thread that zarr does not wait for; `function` may wait for zarr.

    >>> asyncio.run(in_own_thread(max, 3, 4))
    4
    """
    return await in_thread_for("codecs", function, *args, **kwargs)
