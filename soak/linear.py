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


MAX_STEPS = 300_000

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
        found: list[tuple[int, float, frozenset[int], State]] = []
        for i in next_ones:
            after, later, passed = step(state, operations[i]), done | {i}, 0
            if after is not None and search is not None:
                after, passed = search.reduced(after, later)
            if after is not None and (later, after) not in tried:
                tried.add((later, after))
                found.append((passed, operations[i].ended, later, after))
        if len(tried) > MAX_STEPS:
            raise UndecidedError(f"no answer after {MAX_STEPS} steps")
        # The last one that is put there is tried first: what leads to the next read, and what ended first.
        found.sort(key=lambda each: each[:2], reverse=True)
        waiting += [each[2:] for each in found]
    return False


class _Reads:
    """What the reads of a history say about the states before them.

    A restore changes all rows. Without one, a row has the value already that a read shows, or an operation
    that can still come before the read gives it this value.
    """

    def __init__(self, operations: list[Operation]) -> None:
        self._operations = operations
        reads = [i for i, each in enumerate(operations) if each.kind == "read" and each.is_sure]
        self._reads = sorted(reads, key=lambda i: operations[i].ended)

    def reduced(self, state: State, done: frozenset[int]) -> tuple[State | None, int]:
        """The state without what no read can tell, or None if it cannot become what the reads show.

        And how many reads must come before the first that it leads to: a restore has to come before these.
        """
        coming = [self._operations[i] for i in self._reads if i not in done]
        left = [o for i, o in enumerate(self._operations) if i not in done and o.kind != "read"]
        restores = [o for o in left if o.kind == "restore"]
        passed = len(coming)
        for number, read in enumerate(coming):
            if _leads_to(read, state, left):
                passed = min(passed, number)
            elif not any(
                o.begun <= read.ended and _leads_to(read, tuple(o.argument), left) for o in restores
            ):
                return None, passed
        return (state if passed < len(coming) or not coming else (UNSEEN,) * len(state)), passed


def _leads_to(read: Operation, state: State, left: list[Operation]) -> bool:
    """Whether operations that are left can turn the state into what the read shows, without a restore."""
    shown, there = read.result, len(state)
    if there > len(shown):
        return False
    missing = {row: value for row, value in enumerate(shown) if row >= there or state[row] != value}
    if not missing:
        return True
    given: set[tuple[int, int]] = set()
    appended: set[int] = set()
    for each in left:
        if each.begun > read.ended:
            continue
        if each.kind == "write":
            given.add(each.argument)
        elif each.kind == "append":
            appended.add(each.argument)
        elif each.kind == "grow":
            appended.add(0)
        elif each.kind == "drop":
            given.update((row, 0) for row in range(*each.argument))
    return all(
        (row, value) in given or (row >= there and value in appended) for row, value in missing.items()
    )
