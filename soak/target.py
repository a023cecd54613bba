"""What is tried: a target has numbered cases, and each of them follows from the seed and its number alone."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

type Case = Callable[[int, random.Random], Mapping[str, int] | str]
"""Runs one case; says what happened, in one word or as counts of words. What must not happen, it raises."""


class Wrong(Exception):  # noqa: N818  # a verdict, not an error of the code that runs
    """Something that must not happen did."""


@dataclass(frozen=True)
class Target:
    """One row of the table."""

    part: str
    name: str
    prepare: Callable[[Path, int], Case]
    """Makes what the cases need, in a folder of its own, from the seed; gives what runs a case."""

    share: float = 1
    """How many of the cases of its part fall to it, in relation to the others."""

    patience: float = 900
    """Seconds after which a case hangs; many, for the machine may be busy with other things."""

    memory: int | None = 256 << 20
    """How many bytes more than at the start the process may hold while it runs cases; None: not looked at."""

    seconds: float = 0.002
    """About how long a case takes: the target that has the longest to go is continued first."""

    stretch: int = 20_000
    """How many cases one process runs; then another one continues."""

    environment: Callable[[Path], Mapping[str, str]] = field(default=lambda _folder: {})
    """Variables for the process that runs the cases, and what they need in a folder."""

    needs: Callable[[], str | None] = field(default=lambda: None)
    """Why it cannot run on this machine, or None."""

    @property
    def label(self) -> str:
        return f"{self.part} {self.name}"


def choice_of(seed: int, target: Target, number: int) -> random.Random:
    """Where all that is random in a case comes from."""
    return random.Random(f"{seed} {target.label} {number}")


def tally(outcome: Mapping[str, int] | str) -> Counter[str]:
    """What a case said, as counts."""
    return Counter({outcome: 1} if isinstance(outcome, str) else outcome)


def targets(part: str | None = None) -> list[Target]:
    """All targets, or those of a part."""
    from soak import PARTS

    found: list[Any] = []
    for name, module in PARTS.items():
        if part in (None, name):
            found += module().TARGETS
    return found
