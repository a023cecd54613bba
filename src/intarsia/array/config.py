"""How a handle on a logical array behaves; never stored."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LogicalConfig"]


@dataclass(frozen=True, slots=True)
class LogicalConfig:
    """Run-time settings of one handle, changed with `LogicalArray.with_config`.

    >>> LogicalConfig().cross_region_writes
    False
    """

    cross_region_writes: bool = False
    """Whether one assignment may touch several regions."""
