"""How a handle on a logical array behaves; this is never stored."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal, get_args

from intarsia.casting import CASTINGS, Casting
from intarsia.codecs.decisions import DecisionLike, MaskPerChunk, parse_decision
from intarsia.codecs.runtime_options import PaddingFunction, RuntimeOptions, check_padding
from intarsia.errors import CodecConfigurationError

WINDOW_BYTES_PER_CORE = 16 << 20
MIN_WINDOW_BYTES = 48 << 20


type ReplicaWrites = Literal["drop", "write"]
"""What happens to replicas when values are written."""


@cache
def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class LogicalConfig:
    """Run-time settings of one handle, changed with `LogicalArray.with_config`.

    >>> LogicalConfig().cross_region_writes
    False
    >>> LogicalConfig(threads=0)
    Traceback (most recent call last):
    ...
    ValueError: threads is 0: give a whole number of at least 1, or None for one per core
    """

    cross_region_writes: bool = False
    """Whether one assignment may touch several regions."""

    casting: Casting = "same_kind"
    """What happens to values of another data type: "same_kind" refuses those that would change by more than
    the rounding of a float, "unsafe" accepts all of NumPy's results."""

    threads: int | None = None
    """How many threads decode and encode chunks; None means one per core."""

    window_bytes: int | None = None
    """How much memory a read may take besides its result; None means 16 MiB per core, at least 48 MiB.

    One chunk, encoded and decoded, is always allowed, however large it is.
    """

    cache: int | None = None
    """How many bytes of decoded chunks the handle keeps, for reading the same chunks again; None means none.
    Only chunks of an Icechunk snapshot are kept, because nobody can change these."""

    layer: int | None = None
    """The layer to read from, wherever it holds data; layer 0 has the rest. None means the layer that costs
    least."""

    fallback: bool = False
    """Whether another layer may stand in for one that cannot be read; `LogicalArray.fallbacks` says where it
    did."""

    replicas: ReplicaWrites = "drop"
    """What a write does to replicas of the same box: "drop" cuts it out of them, "write" writes there
    too."""

    decision: DecisionLike | None = field(default=None, hash=False)
    """The decision for the `conditional` codecs of members, instead of their own."""

    padding: PaddingFunction | bytes | None = field(default=None, hash=False)
    """What the `pad` and `offset` codecs of members put around a chunk, instead of their own padding."""

    verify_header: bool = False
    """Whether reading compares the bytes around a chunk with what `padding` or the codec would write."""

    preview: bool = False
    """Whether a notebook shows a picture of some of the values, which have to be read for it."""

    options: RuntimeOptions = field(init=False, repr=False, compare=False)
    """`decision`, `padding` and `verify_header`, as codecs get them."""

    def __post_init__(self) -> None:
        if self.casting not in CASTINGS:
            raise ValueError(f"casting is {self.casting!r}: give 'same_kind' or 'unsafe'")
        if self.layer is not None and (type(self.layer) is not int or self.layer < 0):
            raise ValueError(f"layer is {self.layer!r}: give the number of a layer, or None for the cheapest")
        if self.replicas not in get_args(ReplicaWrites.__value__):
            raise ValueError(f"replicas is {self.replicas!r}: give 'drop' or 'write'")
        decision = None if self.decision is None else parse_decision(self.decision)
        if isinstance(decision, MaskPerChunk):
            raise CodecConfigurationError(
                "a plan of bitmasks is for one chunk grid, but every member of a logical array has its "
                "own.\n  Give a name or a function, or write to one member: "
                "intarsia.codecs.with_decision(arr.members[name], plan)"
            )
        check_padding(self.padding)
        object.__setattr__(self, "decision", decision)
        object.__setattr__(
            self, "options", RuntimeOptions(decision, self.padding, verify_header=self.verify_header)
        )
        defaults = {"threads": "one per core", "window_bytes": "16 MiB per core", "cache": "no cache"}
        for name, default in defaults.items():
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(
                    f"{name} is {value!r}: give a whole number of at least 1, or None for {default}"
                )

    @property
    def for_reading(self) -> LogicalConfig:
        """The same without settings that only matter to a writer."""
        return replace(self, decision=None, padding=self.padding if self.verify_header else None)

    @property
    def most_threads(self) -> int:
        """The number of threads that `threads` means here."""
        return self.threads or cores()

    @property
    def window(self) -> int:
        """The number of bytes that `window_bytes` means here."""
        return self.window_bytes or max(MIN_WINDOW_BYTES, WINDOW_BYTES_PER_CORE * cores())


DEFAULT_CONFIG = LogicalConfig()
