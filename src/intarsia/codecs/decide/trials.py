"""Decisions that look at the data: they try nested codecs and keep what is smaller.

The trial's result is what is stored; nothing is encoded twice.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numcodecs import lz4
from zarr.core.buffer import Buffer

from intarsia.codecs.decide.decisions import Decision
from intarsia.codecs.decide.nested import Chain
from intarsia.errors import CodecConfigurationError

type Octets = np.ndarray[Any, np.dtype[np.uint8]]

COMB_PIECES, COMB_PIECE_BYTES = 256, 16
"""Enough pieces to meet a stretch of 1/64 of a chunk several times, each long enough for LZ4 to recognise."""


def attempt(chain: Chain, position: int, data: Buffer) -> Buffer | None:
    """The codec's result, or None if it cannot work on these bytes: such a codec is skipped.

    HDF5 treats its optional filters so. `shuffle` on a length that is no multiple is an example.
    """
    try:
        return chain.encode(position, data)
    except ValueError:
        return None


@dataclass(frozen=True)
class CompressIfSmaller(Decision):
    """A codec applies if its result is smaller than what it got.

    A codec that keeps the length, as `shuffle` does, applies if it is followed by one whose result is
    smaller. One pass, every codec is tried once, on the running bytes.

    >>> CompressIfSmaller().bounds_size
    True
    """

    bounds_size = True
    may_wait = False

    def encode(self, data: Buffer, chain: Chain) -> tuple[int, Buffer]:
        kept_mask, kept = 0, data
        mask, running = 0, data
        for position in range(len(chain)):
            trial = attempt(chain, position, running)
            if trial is None or len(trial) > len(running):
                continue
            mask, running = mask | 1 << position, trial
            if len(running) < len(kept):
                kept_mask, kept = mask, running
        return kept_mask, kept


@dataclass(frozen=True)
class Smallest(Decision):
    """Tries combinations of the nested codecs and keeps the smallest result, for the slow and thorough.

    Combinations are tried in the order of how many codecs they apply. A codec that makes the running
    bytes longer ends its combination. Of two equally small results, the one with fewer codecs stays.

    >>> Smallest(trials=16)
    Smallest(trials=16)
    """

    bounds_size = True
    may_wait = False

    trials: int = 64
    """How often a codec may be run for one chunk: enough for all combinations of six."""

    def __post_init__(self) -> None:
        if isinstance(self.trials, bool) or not isinstance(self.trials, int) or self.trials < 1:
            raise CodecConfigurationError(f"Smallest: trials must be a number above 0, got {self.trials!r}")

    def encode(self, data: Buffer, chain: Chain) -> tuple[int, Buffer]:
        best_mask, best = 0, data
        left = self.trials
        level = [(0, 0, data)]  # the next codec's position, the mask, the running bytes
        while level:
            longer = []
            for start, mask, running in level:
                for position in range(start, len(chain)):
                    if not left:
                        return best_mask, best
                    left -= 1
                    trial = attempt(chain, position, running)
                    if trial is None or len(trial) > len(running):
                        continue
                    applied = mask | 1 << position
                    longer.append((position + 1, applied, trial))
                    if len(trial) < len(best):
                        best_mask, best = applied, trial
            level = longer
        return best_mask, best


@dataclass(frozen=True)
class Sampled(Decision):
    """As `compress_if_smaller`, but first looks whether it is worth it, as ZFS does.

    A few contiguous samples, evenly spread over the chunk, go through the nested codecs at their
    fastest levels. If they promise nothing, LZ4 looks at a comb of short pieces from all over the chunk, in
    which stretches of equal bytes between the samples show. Only if one of them saves at least
    `min_saving` of what it saw is the chunk compressed; noise is stored as it is, for little more than the
    price of a copy. The same chunk always gets the same answer.

    >>> Sampled(samples=8)
    Sampled(samples=8, sample_bytes=2048, min_saving=0.015625)
    """

    bounds_size = True
    may_wait = False

    samples: int = 4
    """How many samples are taken; a chunk less than twice as long as all of them is not sampled."""

    sample_bytes: int = 2048
    """How long one sample is."""

    min_saving: float = 1 / 64
    """What part of a sample must be saved."""

    def __post_init__(self) -> None:
        for name in ("samples", "sample_bytes"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise CodecConfigurationError(f"Sampled: {name} must be a number above 0, got {value!r}")
        if not 0 <= self.min_saving < 1:
            raise CodecConfigurationError(f"Sampled: min_saving must be in [0, 1), got {self.min_saving!r}")

    def encode(self, data: Buffer, chain: Chain) -> tuple[int, Buffer]:
        if (
            len(chain)
            and len(data) >= 2 * self.samples * self.sample_bytes
            and not self._promises(data, chain)
        ):
            return 0, data
        return CompressIfSmaller().encode(data, chain)

    def _promises(self, data: Buffer, chain: Chain) -> bool:
        """Whether compressing all of `data` is worth a try."""
        unit = max(1, chain.spec.dtype.to_native_dtype().itemsize)  # filters want whole elements
        content = data.as_numpy_array().view(np.uint8)
        seen = self._samples(content, unit)
        buffer = chain.spec.prototype.buffer.from_array_like(seen)
        _, encoded = CompressIfSmaller().encode(buffer, chain.fastest())
        if seen.size - len(encoded) >= self.min_saving * seen.size:
            return True
        comb = _comb(content, unit)
        return comb.size - len(lz4.compress(comb)) >= self.min_saving * comb.size

    def _samples(self, content: Octets, unit: int) -> Octets:
        size = max(unit, self.sample_bytes // unit * unit)
        last = content.size - size
        starts = [last * k // max(1, self.samples - 1) // unit * unit for k in range(self.samples)]
        return np.concatenate([content[start : start + size] for start in starts])


def _comb(content: Octets, unit: int) -> Octets:
    """Short pieces of whole elements, at equal distances."""
    piece = max(unit, COMB_PIECE_BYTES // unit * unit)
    distance = max(piece, content.size // COMB_PIECES // unit * unit)
    pieces = content.size // distance
    rows = content[: pieces * distance].reshape(pieces, distance)
    return np.ascontiguousarray(rows[:, :piece]).reshape(-1)
