"""Reading on an event loop: while bytes are on their way, no thread waits for them.

Chunks are decoded in a few threads that all such reads of a process share. What a store answers without an
event loop, as files and memory do, is read there as well.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from intarsia.array.chunk_batches import Queue, threads_for
from intarsia.array.config import LogicalConfig, cores
from intarsia.array.decode import Scratch
from intarsia.array.layers import LayerChoice
from intarsia.array.read import begin, decode_batch, finish, instead
from intarsia.errors import IntarsiaError

if TYPE_CHECKING:
    from intarsia.array.chunk_cache import ChunkCache
    from intarsia.array.layout import Ground, Layout
    from intarsia.array.read import BegunRead
    from intarsia.array.request import Request
    from intarsia.array.values import Values


_shared: ThreadPoolExecutor | None = None


def _pool() -> ThreadPoolExecutor:
    """The threads of all reads; no more than there are cores, however many reads there are."""
    global _shared
    if _shared is None:
        _shared = ThreadPoolExecutor(cores(), thread_name_prefix="intarsia-async")
    return _shared


def _forget() -> None:
    """In a forked child no thread runs, whatever the parent was doing."""
    global _shared
    _shared = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


async def _elsewhere[T](function: Callable[..., T], *args: Any) -> T:
    """Call a function in one of the threads, in the context of the caller."""
    context = copy_context()
    return await asyncio.get_running_loop().run_in_executor(_pool(), lambda: context.run(function, *args))


async def read_request_async(
    ground: Ground[Any], asked: Request, config: LogicalConfig, cache: ChunkCache | None = None
) -> Values:
    """The values of a request, in its shape."""

    async def read(layout: Layout) -> tuple[Values, list[int], None]:
        layers = LayerChoice(config.layer, config.fallback)
        while True:
            try:
                begun = await _elsewhere(begin, ground, layout, asked, config, cache, layers)
                if begun.busy:
                    await _read_chunks(ground, layout, begun, config)
                return await _elsewhere(finish, ground, layout, begun, config)
            except IntarsiaError as error:
                layers = instead(ground, layout, layers, error)

    return await ground.settled_async(read, _elsewhere)


async def _arrived(bytes_of_batch: Future[Any]) -> None:
    """Wait until bytes are here, or will never be: whoever decodes them is told why."""
    arrival = asyncio.wrap_future(bytes_of_batch)
    await asyncio.wait([arrival])
    if not arrival.cancelled():
        arrival.exception()  # looked at here, so that asyncio does not complain that nobody has


async def _read_chunks(ground: Ground[Any], layout: Layout, begun: BegunRead, config: LogicalConfig) -> None:
    works = begun.busy
    threads = threads_for(works, config)
    queue = Queue(works, threads, config.window)

    async def take_and_decode() -> None:
        scratch = Scratch()
        while (taken := queue.take()) is not None:
            batch, pending = taken
            if pending.arrival is not None:
                await _arrived(pending.arrival)
            await _elsewhere(decode_batch, ground, layout, batch, pending, scratch, begun.cache)

    tasks = [asyncio.ensure_future(take_and_decode()) for _ in range(threads)]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        queue.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
