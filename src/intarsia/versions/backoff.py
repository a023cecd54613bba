"""Waiting before another attempt: longer every time, by chance, and not for ever."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Backoff"]


@dataclass(frozen=True, slots=True)
class Backoff:
    """How often to try, and how long to wait in between.

    The wait is drawn from 0 to a bound that doubles, so that writers who collided once do not collide again.

    >>> list(Backoff(attempts=2, first_wait=0.0).tries())
    [0, 1]
    """

    attempts: int = 100
    """How often, in all."""

    first_wait: float = 0.02
    """The longest first wait, in seconds: about the time that a commit takes."""

    longest_wait: float = 2.0
    """Where doubling ends, in seconds."""

    def tries(self) -> Iterator[int]:
        """Count attempts; waits before every one but the first."""
        for attempt in range(self.attempts):
            if attempt:
                bound = min(self.longest_wait, self.first_wait * 2.0 ** min(attempt - 1, 30))
                time.sleep(random.uniform(0, bound))
            yield attempt
