"""Decisions that look at the data: they try nested codecs, or whole pipelines (`one_of`), and keep the best.

The result of the trial is stored; nothing is encoded twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numcodecs import lz4
from zarr.abc.codec import Codec
from zarr.core.buffer import Buffer

from intarsia.codecs.base import CodecLike, parse_codec
from intarsia.codecs.compressors import SECONDS, decoding_cost
from intarsia.codecs.conditional import ConditionalCodec
from intarsia.codecs.decisions import Decision
from intarsia.codecs.nested import Chain
from intarsia.errors import CodecConfigurationError

type Octets = np.ndarray[Any, np.dtype[np.uint8]]

COMB_PIECES, COMB_PIECE_BYTES = 256, 16
"""Enough pieces to hit a stretch of 1/64 of a chunk several times, each long enough for LZ4 to recognise."""


def attempt(chain: Chain, position: int, data: Buffer) -> Buffer | None:
    """The codec's result, or None if it cannot work on these bytes: such a codec is skipped.

    HDF5 treats its optional filters this way. An example is `shuffle` on a length that is not a multiple.
    """
    try:
        return chain.encode(position, data)
    except ValueError:
        return None


@dataclass(frozen=True)
class CompressIfSmaller(Decision):
    """A codec applies if its result is smaller than its input.

    A codec that keeps the length, such as `shuffle`, applies if it is followed by one whose result is
    smaller. In one pass, every codec is tried once, on the running bytes.

    >>> CompressIfSmaller().bounds_size
    True
    """

    bounds_size = True
    may_block = False

    def encode(self, data: Buffer, chain: Chain) -> tuple[int, Buffer]:
        best_mask, best = 0, data
        mask, running = 0, data
        for position in range(len(chain)):
            trial = attempt(chain, position, running)
            if trial is None or len(trial) > len(running):
                continue
            mask, running = mask | 1 << position, trial
            if len(running) < len(best):
                best_mask, best = mask, running
        return best_mask, best


@dataclass(frozen=True)
class Smallest(Decision):
    """Tries combinations of the nested codecs and keeps the smallest result: slow and thorough.

    Combinations with fewer codecs are tried first. A codec that makes the running bytes longer ends its
    combination. Of two equally small results, the one with fewer codecs is kept.

    >>> Smallest(trials=16)
    Smallest(trials=16)
    """

    bounds_size = True
    may_block = False

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
    """Like `compress_if_smaller`, but first estimates whether it is worth it, as ZFS does.

    A few contiguous samples, evenly spread over the chunk, go through the nested codecs at their fastest
    levels. If they promise nothing, LZ4 tries a comb of short pieces from all over the chunk, which reveals
    stretches of equal bytes between the samples. The chunk is compressed only if one of the two saves at
    least the fraction `min_saving`; noise is stored as it is, for little more than the price of a copy. The
    same chunk always gets the same answer.

    >>> Sampled(samples=8)
    Sampled(samples=8, sample_bytes=2048, min_saving=0.015625)
    """

    bounds_size = True
    may_block = False

    samples: int = 4
    """The number of samples; a chunk less than twice as long as all of them is not sampled."""

    sample_bytes: int = 2048
    """The length of one sample."""

    min_saving: float = 1 / 64
    """The fraction of a sample that must be saved."""

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
        """Whether it is worth trying to compress all of `data`."""
        unit = max(1, chain.spec.dtype.to_native_dtype().itemsize)  # filters need whole elements
        content = data.as_numpy_array().view(np.uint8)
        sample = self._samples(content, unit)
        buffer = chain.spec.prototype.buffer.from_array_like(sample)
        _, encoded = CompressIfSmaller().encode(buffer, chain.fastest())
        if sample.size - len(encoded) >= self.min_saving * sample.size:
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


type Weight = Literal["small", "fast"] | float
"""How much speed counts besides size: a name, or how many stored bytes arrive per second."""

NAMED_WEIGHTS = {"small": 0.0, "fast": 1e9}
"""Only size counts; or bytes come from a fast local disk, so that decoding takes most of the time."""


@dataclass(frozen=True)
class OneOf(Decision):
    """Tries alternative pipelines and keeps the one that is cheapest to read; `one_of` makes it.

    A pipeline costs the time until its bytes arrive, plus the time to decode them, by the table in
    `codecs/compressors.py`. Storing the chunk as it is, is always an alternative. With the weight "small",
    only size counts.

    >>> one_of(["gzip", "zstd"]).decision
    OneOf(alternatives=(1, 2), weight='small')
    """

    bounds_size = True
    may_block = False
    for_nested = False

    alternatives: tuple[int, ...]
    """The bitmask of each pipeline."""

    weight: Weight = "small"
    """How much speed counts besides size."""

    _bytes_per_second: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        weight = NAMED_WEIGHTS.get(self.weight) if isinstance(self.weight, str) else self.weight
        if weight is None or isinstance(weight, bool) or not 0 <= weight < math.inf:
            raise CodecConfigurationError(
                f"the weight {self.weight!r} is not 'small', 'fast' or a number of bytes per second"
            )
        object.__setattr__(self, "_bytes_per_second", float(weight))

    def encode(self, data: Buffer, chain: Chain) -> tuple[int, Buffer]:
        best_mask, best, least = 0, data, self._cost(0, len(data), len(data), chain)
        for mask in self.alternatives:
            encoded = self._encoded(mask, data, chain)
            if encoded is None or len(encoded) >= len(data):
                continue
            cost = self._cost(mask, len(encoded), len(data), chain)
            if cost < least:
                best_mask, best, least = mask, encoded, cost
        return best_mask, best

    def _encoded(self, mask: int, data: Buffer, chain: Chain) -> Buffer | None:
        running: Buffer | None = data
        for position in range(len(chain)):
            if running is not None and mask >> position & 1:
                running = attempt(chain, position, running)
        return running

    def _cost(self, mask: int, stored: int, size: int, chain: Chain) -> float:
        """The seconds until the chunk is read, or just its stored size if nothing else counts."""
        if not self._bytes_per_second:
            return stored
        applied = [codec for position, codec in enumerate(chain.codecs) if mask >> position & 1]
        decoding = sum(decoding_cost(codec.name, codec.configuration) for codec in applied)
        return stored / self._bytes_per_second + decoding * SECONDS * size


def one_of(
    alternatives: Iterable[CodecLike | Iterable[CodecLike]], *, weight: Weight = "small"
) -> ConditionalCodec:
    """A `conditional` codec that applies exactly one of several pipelines to each chunk, or none.

    Each alternative is a codec or a list of codecs (bytes → bytes). When a chunk is written, all of them are
    tried, and the one that is cheapest to read is stored. The weight says what "cheap" means: "small" counts
    only bytes; a number is how many stored bytes arrive per second, so that a pipeline costs its bytes
    divided by the weight, plus the seconds to decode them, by a table of codecs; "fast" stands for 1e9, a
    local disk. `intarsia.codecs.masks(array, names=True)` shows what was chosen.

    The array is an ordinary one with the codec `conditional`. The choice is made at run time only: after
    opening the array again, give it with `intarsia.codecs.with_decision(array, one_of([…]).decision)`.

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
    >>> intarsia.codecs.masks(z, names=True).tolist()
    ['shuffle+zstd', 'raw', None]
    """
    nested: list[Codec] = []
    masks: list[int] = []
    for alternative in alternatives:
        listed = [alternative] if isinstance(alternative, Codec | Mapping | str) else alternative
        pipeline = [parse_codec(codec) for codec in listed]
        mask, start = 0, 0
        for codec in pipeline:
            # a codec that is in the right place for an earlier alternative serves this one too
            position = nested.index(codec, start) if codec in nested[start:] else len(nested)
            nested[position:] = nested[position:] or [codec]
            mask, start = mask | 1 << position, position + 1
        if not mask or mask in masks:
            what = (
                "is listed twice" if mask else "has no codecs: storing a chunk unchanged is always possible"
            )
            raise CodecConfigurationError(f"alternative {len(masks)} of one_of {what}")
        masks.append(mask)
    if not masks:
        raise CodecConfigurationError("one_of needs at least one alternative")
    return ConditionalCodec(codecs=nested, decision=OneOf(tuple(masks), weight))
