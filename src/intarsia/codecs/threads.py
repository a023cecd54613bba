"""Threads of our own for work that uses zarr itself.

A decision may read another Zarr array, for which zarr needs threads. If decisions ran in zarr's own
threads, enough of them at once would wait for each other forever. For the same reason every purpose has
threads of its own: a decision may read an array through a view, whose chunks are read in threads too.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cache, partial
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["in_own_thread", "in_thread_for"]

type Purpose = Literal["codecs", "views"]


@cache
def _pool(purpose: Purpose) -> ThreadPoolExecutor:
    # As many as asyncio has for zarr.
    return ThreadPoolExecutor(min(32, (os.cpu_count() or 1) + 4), thread_name_prefix=f"intarsia-{purpose}")


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
    """As `asyncio.to_thread`, in a thread that zarr does not wait for.

    >>> asyncio.run(in_own_thread(max, 3, 4))
    4
    """
    return await in_thread_for("codecs", function, *args, **kwargs)
