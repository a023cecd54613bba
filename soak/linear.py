"""A small checker of linearizability: is there an order of the changes that explains every read?

A history is a list of operations on one array, each with the moments at which it began and ended. What was
acknowledged took effect exactly once, at some moment between its beginning and its end; what was not (its
process was killed, or it failed) at most once, at any moment after its beginning. A read shows the state of
one moment between its beginning and its end. The search is that of Wing and Gong, with the states that were
tried already left out, as Lowe has it, and states left out that cannot become what the next read shows.
States that only a restore can lead out of are one state, whatever their values: nobody will ever see those.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

type State = tuple[int, ...]
"""The values of the rows."""

UNKNOWN = float("inf")

UNSEEN = -1
"""The value of a row that no read will show, before a restore replaces it."""


@dataclass(frozen=True)
class Operation:
    """Something that a process did."""

    kind: str
    argument: Any
    begun: float
    ended: float = UNKNOWN
    """When it was acknowledged; `UNKNOWN` if nobody knows whether it took effect."""
    result: Any = None
    """Of a read: what it showed."""

    @property
    def is_sure(self) -> bool:
        return self.ended != UNKNOWN


type Step = Callable[[State, Operation], State | None]
"""The state after an operation; None if it cannot happen there."""


def rows(state: State, operation: Operation) -> State | None:
    """The model: an array of rows, each of which has one value; fill values are 0."""
    kind, argument = operation.kind, operation.argument
    if kind == "read":
        return state if state == tuple(operation.result) else None
    if kind == "append":
        return (*state, argument)
    if kind == "write":
        row, value = argument
        return (*state[:row], value, *state[row + 1 :]) if row < len(state) else None
    if kind == "grow":
        return (*state, *([0] * argument))
    if kind == "drop":
        first, last = argument
        return (
            tuple(0 if first <= i < last else v for i, v in enumerate(state)) if last <= len(state) else None
        )
    if kind == "restore":
        return tuple(argument)
    return state  # other encodings of the same values


MOST_STEPS = 300_000

CHANGES = ("read", "append", "write", "grow", "drop", "restore")
"""What shows or changes values; other encodings of the same values may stand anywhere."""


class UndecidedError(Exception):
    """The history is too long, or too much of it happened at once, to try all orders."""


def explained(history: list[Operation], start: State = (), step: Step = rows) -> bool:
    """Whether some order explains it.

    >>> append, read = Operation("append", 7, 0.0, 1.0), Operation("read", None, 2.0, 3.0, (7,))
    >>> explained([append, read]), explained([append, Operation("read", None, 2.0, 3.0)])
    (True, False)
    """
    operations = [
        replace(each, result=() if each.result is None else each.result)
        for each in sorted(history, key=lambda each: each.begun)
        if each.kind in CHANGES
    ]
    sure = frozenset(i for i, o in enumerate(operations) if o.is_sure)
    search = None if step is not rows else _Reads(operations)
    tried: set[Hashable] = set()
    waiting: list[tuple[frozenset[int], State]] = [(frozenset(), start)]
    while waiting:
        done, state = waiting.pop()
        if sure <= done:
            return True
        # What may come next: nothing that is sure ended before it began.
        first_end = min(operations[i].ended for i in sure - done)
        next_ones = [i for i, each in enumerate(operations) if i not in done and each.begun <= first_end]
        # The last one that is pushed is tried first: what ended first most likely happened first.
        for i in sorted(next_ones, key=lambda i: operations[i].ended, reverse=True):
            after = step(state, operations[i])
            found = done | {i}
            if after is not None and search is not None:
                after = search.reduced(after, found)
            if after is None or (found, after) in tried:
                continue
            tried.add((found, after))
            waiting.append((found, after))
            if len(tried) > MOST_STEPS:
                raise UndecidedError(f"no answer after {MOST_STEPS} steps")
    return False


class _Reads:
    """What the reads of a history say about the states before them.

    A row changes by a write or a drop of this very row, and all of them by a restore. If no such operation
    can come before a read, the row must be what the read shows.
    """

    def __init__(self, operations: list[Operation]) -> None:
        self._operations = operations
        reads = [i for i, each in enumerate(operations) if each.kind == "read" and each.is_sure]
        self._reads = sorted(reads, key=lambda i: operations[i].ended)

    def reduced(self, state: State, done: frozenset[int]) -> State | None:
        """The state without what no read can tell; None if it cannot become what the next read shows."""
        coming = (i for i in self._reads if i not in done)
        if (first := next(coming, None)) is None or self._leads_to(first, state, done):
            return state
        restores = (o.argument for o in self._before(first, done) if o.kind == "restore")
        if not any(self._leads_to(first, tuple(each), done) for each in restores):
            return None
        if any(self._leads_to(read, state, done) for read in coming):
            return state
        return (UNSEEN,) * len(state)

    def _before(self, read: int, done: frozenset[int]) -> list[Operation]:
        """What may still come before a read."""
        end = self._operations[read].ended
        return [o for i, o in enumerate(self._operations) if i not in done and o.begun <= end]

    def _leads_to(self, read: int, state: State, done: frozenset[int]) -> bool:
        """Whether the state can become what the read shows, without a restore."""
        shown = self._operations[read].result
        if len(state) > len(shown):
            return False
        rows = {row for row, (value, other) in enumerate(zip(state, shown, strict=False)) if value != other}
        for each in self._before(read, done) if rows else ():
            if each.kind == "write":
                rows.discard(each.argument[0])
            elif each.kind == "drop":
                rows.difference_update(range(*each.argument))
        return not rows
