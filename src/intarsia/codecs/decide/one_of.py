"""Whole pipelines that exclude one another: `one_of`, and the decision that chooses for each chunk."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from zarr.abc.codec import Codec

from intarsia.codecs.base import CodecLike, parse_codec
from intarsia.codecs.conditional import ConditionalCodec
from intarsia.codecs.decide.decisions import Decision
from intarsia.codecs.decide.trials import attempt
from intarsia.errors import CodecConfigurationError

if TYPE_CHECKING:
    from zarr.core.buffer import Buffer

    from intarsia.codecs.decide.nested import Chain


type Weight = Literal["small", "fast"] | float
"""How much speed counts beside size: a name, or how many stored bytes arrive in a second."""

NAMED_WEIGHTS = {"small": 0.0, "fast": 1e9}
"""Only size counts; or bytes come from a fast local disk, so that decoding takes most of the time."""

MEASUREMENTS = 3
"""How often the speed of decoding is measured, for each pipeline; the best one counts."""

LEAST_MEASURED = 1 << 14
"""Chunks shorter than this say little about a codec's speed."""


class _Speeds:
    """How long each pipeline takes to decode a byte, as measured in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: dict[str, list[float]] = {}

    def seconds_per_byte(self, mask: int, encoded: Buffer, size: int, chain: Chain) -> float:
        """Measured on this chunk, as long as it was not measured often enough."""
        applied = [position for position in range(len(chain)) if mask >> position & 1]
        key = json.dumps([chain.codecs[position].codec.to_dict() for position in applied], sort_keys=True)
        with self._lock:
            known = list(self._seconds.get(key, ()))
        if len(known) >= MEASUREMENTS or (known and size < LEAST_MEASURED):
            return min(known)
        # Processor time, which a busy machine does not change; but this thread's alone.
        here = all(chain.codecs[position].synchronous for position in applied)
        clock = time.thread_time if here else time.perf_counter
        start = clock()
        for position in reversed(applied):
            encoded = chain.decode(position, encoded, None)
        taken = (clock() - start) / max(size, 1)
        if size < LEAST_MEASURED:
            return taken
        with self._lock:
            self._seconds.setdefault(key, []).append(taken)
        return min(*known, taken) if known else taken


_SPEEDS = _Speeds()


@dataclass(frozen=True)
class OneOf(Decision):
    """Tries alternative pipelines and keeps the one that is cheapest to read; `one_of` makes it.

    A pipeline costs the time in which its bytes arrive, and the time in which they are decoded. To store
    the chunk as it is, is always an alternative. With the weight "small" only size counts.

    >>> one_of(["gzip", "zstd"]).decision
    OneOf(alternatives=(1, 2), weight='small')
    """

    bounds_size = True
    may_wait = False
    for_nested = False

    alternatives: tuple[int, ...]
    """The bitmask of each pipeline."""

    weight: Weight = "small"
    """How much speed counts beside size."""

    _bytes_per_second: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        weight = NAMED_WEIGHTS.get(self.weight) if isinstance(self.weight, str) else self.weight
        if weight is None or isinstance(weight, bool) or not 0 <= weight < math.inf:
            raise CodecConfigurationError(
                f"the weight {self.weight!r} is neither 'small' nor 'fast' nor a number of bytes per second"
            )
        object.__setattr__(self, "_bytes_per_second", float(weight))

    def encode(self, data: Buffer, chain: Chain) -> tuple[int, Buffer]:
        best_mask, best, least = 0, data, self._cost(0, data, len(data), chain)
        for mask in self.alternatives:
            encoded = self._encoded(mask, data, chain)
            if encoded is None or len(encoded) >= len(data):
                continue
            cost = self._cost(mask, encoded, len(data), chain)
            if cost < least:
                best_mask, best, least = mask, encoded, cost
        return best_mask, best

    def _encoded(self, mask: int, data: Buffer, chain: Chain) -> Buffer | None:
        running: Buffer | None = data
        for position in range(len(chain)):
            if running is not None and mask >> position & 1:
                running = attempt(chain, position, running)
        return running

    def _cost(self, mask: int, encoded: Buffer, size: int, chain: Chain) -> float:
        """Seconds until the chunk is read; its size alone, if nothing else counts."""
        if not self._bytes_per_second:
            return len(encoded)
        decoding = _SPEEDS.seconds_per_byte(mask, encoded, size, chain) * size if mask else 0.0
        return len(encoded) / self._bytes_per_second + decoding


def one_of(
    alternatives: Iterable[CodecLike | Iterable[CodecLike]], *, weight: Weight = "small"
) -> ConditionalCodec:
    """A `conditional` codec that applies exactly one of several pipelines to each chunk, or none.

    Each alternative is a codec or a list of codecs (bytes → bytes). When a chunk is written, all of them are
    tried, and the one that is cheapest to read is stored. The weight says what "cheap" means: "small" counts
    bytes only; a number is how many stored bytes arrive in a second, so that a pipeline costs its bytes
    divided by the weight, and the seconds in which it is decoded (measured in this process on the first
    chunks); "fast" stands for 1e9, a local disk. `intarsia.masks(array, names=True)` shows what was chosen.

    The array is an ordinary one with the codec `conditional`. What chooses exists at run time only: for an
    array that was opened again, give it with `intarsia.with_decision(array, one_of([…]).decision)`.

    Args:
        alternatives: The pipelines to choose from.
        weight: What counts as cheap, see above.

    >>> import numpy as np, zarr, intarsia
    >>> from intarsia.codecs import one_of
    >>> from zarr.codecs import BytesCodec
    >>> shuffle = {"name": "shuffle", "configuration": {"element_size": 4}}
    >>> codec = one_of(["gzip", [shuffle, "zstd"]])
    >>> z = zarr.create(store={}, shape=6000, chunks=2000, dtype="i4", codecs=[BytesCodec(), codec])
    >>> z[:2000] = np.arange(2000) * 1000
    >>> z[2000:4000] = np.random.default_rng(0).integers(-(2**31), 2**31, 2000)
    >>> intarsia.masks(z, names=True).tolist()
    ['shuffle+zstd', 'raw', None]
    """
    nested: list[Codec] = []
    masks: list[int] = []
    for alternative in alternatives:
        listed = [alternative] if isinstance(alternative, Codec | Mapping | str) else alternative
        pipeline = [parse_codec(codec) for codec in listed]
        mask, start = 0, 0
        for codec in pipeline:
            # a codec that stands at the right place for an earlier alternative serves this one too
            position = nested.index(codec, start) if codec in nested[start:] else len(nested)
            nested[position:] = nested[position:] or [codec]
            mask, start = mask | 1 << position, position + 1
        if not mask or mask in masks:
            what = "stands twice" if mask else "has no codecs: to store a chunk as it is, is always possible"
            raise CodecConfigurationError(f"alternative {len(masks)} of one_of {what}")
        masks.append(mask)
    if not masks:
        raise CodecConfigurationError("one_of needs at least one alternative")
    return ConditionalCodec(codecs=nested, decision=OneOf(tuple(masks), weight))
