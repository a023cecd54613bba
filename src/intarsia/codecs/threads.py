"""Threads of our own for work that uses zarr itself.

A decision may read or write another Zarr array, for which zarr needs threads. If decisions ran in zarr's own
threads, enough of them at once would wait for each other forever. So would they in any pool with a limit:
the other array may have a decision too, and so on. Work of codecs therefore never queues. It gets an idle
thread, or a new one; how much of it is under way at once is for the caller to limit, as zarr's pipelines do
(`async.concurrency`). Views are read in threads of their own: a decision may read an array through a view.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cache, partial
from typing import Literal

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
