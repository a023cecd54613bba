"""Joining neighbouring byte ranges of one object into one request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.array.fetch.fetcher import Spans

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["coalesced"]

MOST_GAP_BYTES = 1 << 20
"""Ranges further apart than this are asked for one by one: a request costs less than reading the gap."""

MOST_JOINED_BYTES = 16 << 20


def coalesced(spans: Sequence[Spans]) -> tuple[list[Spans], Callable[[list[Any]], list[Any]]]:
    """Fewer, larger ranges that hold all that was asked for, and how to cut the pieces out of them.

    A gap is read only if it is no larger than what is wanted before it, so at most half is waste.
    """
    if all(item.start is None for item in spans):
        return list(spans), list
    joined: list[Spans] = []
    cuts: list[tuple[int, int, int] | int] = []  # piece -> its request, and first and last byte in it
    requests = 0
    for item in spans:
        if item.start is None or item.nbytes is None or bool((item.start < 0).any()):
            joined.append(item)
            cuts.extend(range(requests, requests + len(item.blob)))
            requests += len(item.blob)
            continue
        order = np.lexsort((item.start, item.blob))
        blob, start, nbytes = (column[order].tolist() for column in (item.blob, item.start, item.nbytes))
        groups: list[list[int]] = []  # blob, first byte, last byte, wanted bytes
        found: list[tuple[int, int, int]] = []
        for b, first, n in zip(blob, start, nbytes, strict=True):
            last = groups[-1] if groups else None
            gap = first - last[2] if last is not None else 0
            if (
                last is not None
                and last[0] == b
                and gap <= min(MOST_GAP_BYTES, last[3])
                and first + n - last[1] <= MOST_JOINED_BYTES
            ):
                last[2], last[3] = max(last[2], first + n), last[3] + n
            else:
                last = [b, first, first + n, n]
                groups.append(last)
            found.append((requests + len(groups) - 1, first - last[1], first - last[1] + n))
        placed: list[Any] = [None] * len(found)
        for position, piece in zip(order.tolist(), found, strict=True):
            placed[position] = piece
        cuts.extend(placed)
        columns = np.array(groups, dtype=np.int64).reshape(-1, 4)
        joined.append(Spans(item.source, columns[:, 0], columns[:, 1], columns[:, 2] - columns[:, 1]))
        requests += len(groups)

    def pieces(found: list[Any]) -> list[Any]:
        return [found[cut] if isinstance(cut, int) else _piece(found[cut[0]], cut[1], cut[2]) for cut in cuts]

    return joined, pieces


def _piece(whole: Any, first: int, last: int) -> Any:
    if whole is None or isinstance(whole, BaseException):
        return whole
    return memoryview(whole)[first:last]
